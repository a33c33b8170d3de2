//! Workers that came and left between two passes waited in the driver's queue for the next tick, however many they were: with a long
//! tick, a storm of short connections grew the memory without bound.

mod common;

use std::time::Duration;

use common::{join, registry, resident};
use heartwheel::Reaper;

#[test]
fn short_connections_leave_nothing_behind_however_long_the_tick_is() {
    let registry = registry(|policy| {
        policy.tick = Duration::from_secs(60);
        policy.ttl = Duration::from_secs(600);
    });
    let _reaper = Reaper::spawn(&registry).unwrap();
    let _live = join(&registry, "live");
    let cycle =
        |from: u32, count: u32| (from..from + count).for_each(|n| drop(join(&registry, &n.to_string())));
    cycle(0, 50_000);
    let before = resident();
    cycle(50_000, 300_000);
    let grown = resident().saturating_sub(before);
    assert!(grown < 20 << 20, "{grown} bytes for 300 000 workers that are gone");
}
