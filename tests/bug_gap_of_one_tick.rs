//! A gap of one tick was taken as a valid policy, but no driver comes exactly on the tick: every pass was taken for a pause, the
//! engine's time stood still, and nobody was ever reaped.

mod common;

use std::time::Duration;

use common::{join, policy_with, registry, wait_for};
use heartwheel::{PolicyError, Reaper, Registry};

#[test]
fn a_gap_that_regular_passes_exceed_is_refused() {
    let policy = policy_with(|policy| policy.gap = Some(policy.tick));
    let error = Registry::new(policy.clone()).unwrap_err();
    assert!(
        matches!(&error, PolicyError::OutOfRange(range) if range.field == "gap" && range.min == policy.tick * 2),
        "{error}"
    );
}

#[test]
fn with_the_least_gap_the_dead_are_reaped() {
    let registry = registry(|policy| {
        policy.tick = Duration::from_millis(20);
        policy.ttl = Duration::from_millis(60);
        policy.gap = Some(policy.tick * 2);
    });
    let _reaper = Reaper::spawn(&registry).unwrap();
    let _silent = join(&registry, "silent");
    wait_for("the silent worker is reaped", || registry.get("silent").is_none());
}
