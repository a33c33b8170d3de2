//! A worker that was late and came back was looked at again only when its old deadline came: its next silence was told of up to a
//! ttl late, and what it was told was remembered for that long.

mod common;

use std::time::Duration;

use common::{Driven, TICK, hello, join};
use heartwheel::{Beat, WorkerState};

#[test]
fn the_second_silence_is_told_of_as_soon_as_the_first() {
    let mut driven = Driven::new(|policy| {
        policy.ttl = Duration::from_secs(10);
        policy.late_after = Some(3 * TICK);
    });
    let session = join(&driven.registry, "w");
    driven.ticks(5);
    assert_eq!(driven.registry.stats().late, 1);
    session.beat(&Beat::default()).unwrap();
    assert_eq!(driven.registry.stats().late, 0);
    driven.ticks(5);
    assert_eq!(driven.registry.stats().late, 1);
}

#[test]
fn a_state_is_not_remembered_for_a_long_ttl_of_its_own() {
    let mut driven = Driven::new(|policy| policy.late_after = Some(policy.ttl / 2));
    let hello = hello("w").ttl(Duration::from_secs(100));
    let session = driven.registry.connect(hello, |_| {}).unwrap();
    driven.registry.signal("w", WorkerState::Quiet).unwrap();
    driven.ticks(20);
    assert_eq!(driven.registry.stats().late, 1);
    drop(session);
    assert_eq!(driven.registry.stats().remembered, 1);
    driven.ticks(12);
    assert_eq!(driven.registry.stats().remembered, 0);
}
