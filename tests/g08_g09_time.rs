//! G8: only the monotonic instants that the driver brings decide. G9: the engine's own pauses kill nobody; a gap moves deadlines by
//! itself, once.

mod common;

use std::time::Duration;

use common::{Driven, Happened, TICK, TTL_TICKS, drain, join};
use heartwheel::{Beat, WorkerState};

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn a_pause_of_the_engine_kills_nobody_and_is_told() {
    let mut driven = Driven::new(|_| {});
    let subscriber = driven.registry.subscribe(1000);
    let _sessions: Vec<_> = (0..100).map(|n| join(&driven.registry, &format!("w{n}"))).collect();
    driven.ticks(TTL_TICKS - 1);
    let uptime = driven.registry.stats().uptime;
    driven.at += HOUR;
    assert_eq!(driven.pass(1000).gap, Some(HOUR));
    assert_eq!(driven.pass(1000).gap, None, "it is told once");
    let stats = driven.registry.stats();
    assert_eq!((stats.live(), stats.gaps, stats.uptime), (100, 1, uptime));
    let gaps = drain(&subscriber).into_iter().filter(|event| *event == Happened::Gap(HOUR)).count();
    assert_eq!(gaps, 1);
}

#[test]
fn a_gap_moves_deadlines_once() {
    for gaps in [0, 1, 2, 5] {
        let mut driven = Driven::new(|_| {});
        let _session = join(&driven.registry, "w");
        driven.ticks(3);
        for _ in 0..gaps {
            driven.leap(HOUR);
        }
        assert_eq!(driven.ticks(TTL_TICKS - 3), 0, "early after {gaps} gaps");
        assert_eq!(driven.ticks(2), 1, "late after {gaps} gaps");
    }
}

#[test]
fn a_slow_pass_is_no_gap_until_it_is_longer_than_that() {
    let mut driven = Driven::new(|policy| policy.gap = Some(TICK * 5));
    let _session = join(&driven.registry, "w");
    driven.settle();
    driven.leap(TICK * 5);
    assert_eq!(driven.registry.stats().uptime, TICK * 5);
    driven.leap(TICK * 5 + Duration::from_nanos(1));
    assert_eq!((driven.registry.stats().uptime, driven.registry.stats().gaps), (TICK * 5, 1));
}

#[test]
fn what_passed_of_a_tick_before_a_gap_did_pass() {
    let mut driven = Driven::new(|_| {});
    let _session = join(&driven.registry, "w");
    driven.settle();
    driven.leap(TICK / 2);
    driven.leap(HOUR);
    driven.leap(TICK / 2);
    assert_eq!(driven.registry.stats().uptime, TICK);
}

#[test]
fn a_gap_moves_what_is_remembered_as_well() {
    let mut driven = Driven::new(|_| {});
    drop({
        let session = join(&driven.registry, "w");
        driven.registry.signal("w", WorkerState::Quiet).unwrap();
        session
    });
    driven.leap(HOUR);
    driven.leap(HOUR);
    assert_eq!(join(&driven.registry, "w").state(), Ok(WorkerState::Quiet));
}

#[test]
fn beats_through_a_gap_count_for_a_whole_ttl_after_it() {
    let mut driven = Driven::new(|_| {});
    let session = join(&driven.registry, "w");
    driven.ticks(5);
    // The driver was starved, the beats were not.
    session.beat(&Beat::default()).unwrap();
    driven.leap(HOUR);
    assert_eq!(driven.ticks(TTL_TICKS), 0, "early");
    assert_eq!(driven.ticks(2), 1, "late");
}

#[test]
fn a_clock_that_stalls_or_goes_backward_is_no_time() {
    let mut driven = Driven::new(|_| {});
    let _session = join(&driven.registry, "w");
    driven.ticks(5);
    let at = driven.at;
    for back in [0, 1, 100, 400] {
        driven.at = at - Duration::from_millis(back);
        assert_eq!(driven.settle(), 0);
        assert_eq!(driven.registry.stats().uptime, TICK * 5);
    }
    driven.at = at;
    assert_eq!(driven.ticks(TTL_TICKS - 5), 0, "no time was counted twice");
    assert_eq!(driven.ticks(2), 1);
}

#[test]
fn the_first_pass_is_where_time_begins() {
    let mut driven = Driven { registry: common::registry(|_| {}), start: common::now(), at: HOUR * 1000 };
    let _session = join(&driven.registry, "w");
    let pass = driven.pass(100);
    assert_eq!((pass.gap, pass.expired, driven.registry.stats().uptime), (None, 0, Duration::ZERO));
    assert_eq!(pass.next, Some(driven.start + driven.at + TICK));
    assert_eq!(driven.ticks(TTL_TICKS), 0);
    assert_eq!(driven.ticks(2), 1);
    assert_eq!(driven.pass(100).next, None, "nothing is filed");
}
