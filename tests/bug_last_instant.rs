//! A pass at the last instant that a clock can say panicked, for there is no tick after it.

mod common;

use std::time::Duration;

use common::{Driven, join};

#[test]
fn a_pass_at_the_end_of_time_is_a_pass() {
    let driven = Driven::new(|_| {});
    let _session = join(&driven.registry, "w");
    driven.settle();
    let mut last = driven.start;
    for bit in (0..63).rev() {
        last = last.checked_add(Duration::from_secs(1 << bit)).unwrap_or(last);
    }
    for bit in (0..30).rev() {
        last = last.checked_add(Duration::from_nanos(1 << bit)).unwrap_or(last);
    }
    assert!(driven.registry.reap(last, 10).gap.is_some());
    assert!(driven.is_live("w"));
    assert!(driven.registry.reap(driven.start, 10).gap.is_none());
}
