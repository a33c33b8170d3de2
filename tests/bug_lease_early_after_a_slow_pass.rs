//! The time that a lease was granted by may have been behind by a slow pass. That was remembered for a worker's ttl, and a lease runs
//! longer: it ended early.

mod common;

use std::time::Duration;

use common::{Driven, join};
use heartwheel::Beat;

#[test]
fn a_lease_longer_than_every_ttl_does_not_end_early_after_a_slow_pass() {
    let mut driven = Driven::new(|_| {});
    let session = join(&driven.registry, "w");
    // 850 ms after the last pass, which says that it is still time 0; the next pass is a slow one.
    let granted = Duration::from_millis(850);
    let ttl = Duration::from_secs(10);
    let lease = session.lease("job", ttl).unwrap();
    driven.leap(Duration::from_millis(900));
    while driven.at < granted + ttl {
        assert!(lease.is_held(), "it ended {:?} early", granted + ttl - driven.at);
        session.beat(&Beat::default()).unwrap();
        driven.ticks(1);
    }
    driven.ticks(12);
    assert!(!lease.is_held());
}
