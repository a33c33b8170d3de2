//! A deadline did not allow for slow passes: a worker told to leave within a second could be ended at once.

mod common;

use std::time::Duration;

use common::{Driven, join};
use heartwheel::{Beat, Overdue, WorkerState};

#[test]
fn a_slow_pass_brings_no_deadline_forward() {
    let mut driven = Driven::new(|_| {});
    let session = join(&driven.registry, "w");
    // 850 ms after the last pass, which says that it is still time 0.
    let told = Duration::from_millis(850);
    let grace = Duration::from_millis(300);
    driven.registry.signal_within("w", WorkerState::Terminate, grace, Overdue::End).unwrap();
    driven.leap(Duration::from_millis(900));
    while driven.at < told + grace {
        assert!(driven.is_live("w"), "it was ended {:?} early", told + grace - driven.at);
        session.beat(&Beat::default()).unwrap();
        driven.ticks(1);
    }
    for _ in 0..12 {
        let _ = session.beat(&Beat::default());
        driven.ticks(1);
    }
    assert!(!driven.is_live("w"));
}

#[test]
fn nor_does_one_that_lies_longer_back_than_any_ttl() {
    let mut driven = Driven::new(|_| {});
    let session = join(&driven.registry, "w");
    let (told, grace) = (Duration::from_millis(850), Duration::from_secs(10));
    driven.registry.signal_within("w", WorkerState::Terminate, grace, Overdue::End).unwrap();
    driven.leap(Duration::from_millis(900));
    while driven.at < told + grace {
        assert!(driven.is_live("w"), "it was ended {:?} early", told + grace - driven.at);
        session.beat(&Beat::default()).unwrap();
        driven.ticks(1);
    }
}
