//! G10: work of a tick is what is due, in slices; memory is that of the live workers, and churn leaves nothing behind.

mod common;

use common::{Driven, TICK, TTL_TICKS, join, resident};
use heartwheel::{Beat, Registry, WorkerState};

/// What the timer wheel may hold: twice what is needed, and a little.
fn assert_filed_is_bounded(registry: &Registry, between_passes: usize) {
    let stats = registry.stats();
    let needed = stats.live() + stats.remembered;
    assert!(stats.filed <= 2 * needed + 1024 + between_passes, "{stats:?}");
}

#[test]
fn a_million_short_connections_leave_nothing_behind() {
    let mut driven = Driven::new(|_| {});
    let _live: Vec<_> = (0..100).map(|n| join(&driven.registry, &format!("live{n}"))).collect();
    let mut settled = 0;
    for n in 0..1_000_000_u32 {
        drop(join(&driven.registry, &n.to_string()));
        if n % 2_000 == 0 {
            // Within one ttl, so that nothing is due.
            driven.leap(TICK / 100);
            assert_filed_is_bounded(&driven.registry, 0);
        }
        if n == 100_000 {
            settled = resident();
        }
    }
    let grown = resident().saturating_sub(settled);
    assert!(grown < 8 << 20, "{grown} bytes more after 900 000 workers that are gone");
    assert_eq!(driven.registry.stats().left, 1_000_000);
}

/// As above, but each has been filed when it leaves.
#[test]
fn entries_of_workers_that_left_do_not_outnumber_the_others() {
    let mut driven = Driven::new(|policy| policy.ttl = std::time::Duration::from_secs(3600));
    let _live: Vec<_> = (0..100).map(|n| join(&driven.registry, &format!("live{n}"))).collect();
    for round in 0..300 {
        let short: Vec<_> = (0..500).map(|n| join(&driven.registry, &format!("{round}-{n}"))).collect();
        driven.ticks(1);
        drop(short);
        driven.ticks(1);
        assert_filed_is_bounded(&driven.registry, 0);
    }
}

#[test]
fn quiet_workers_that_reconnect_in_a_loop_leave_nothing_behind() {
    let mut driven = Driven::new(|policy| policy.ttl = std::time::Duration::from_secs(3600));
    let mut sessions: Vec<_> = (0..50).map(|n| join(&driven.registry, &format!("w{n}"))).collect();
    driven.registry.signal_all(WorkerState::Quiet);
    let mut settled = 0;
    for round in 0..2_000 {
        sessions.clear();
        sessions.extend((0..50).map(|n| join(&driven.registry, &format!("w{n}"))));
        driven.leap(TICK);
        assert_filed_is_bounded(&driven.registry, 0);
        if round == 500 {
            settled = resident();
        }
    }
    assert!(sessions.iter().all(|session| session.state() == Ok(WorkerState::Quiet)));
    let grown = resident().saturating_sub(settled);
    assert!(grown < 4 << 20, "{grown} bytes more after 75 000 reconnects");
    assert_eq!(driven.registry.stats().remembered, 0);
}

#[test]
fn nothing_is_filed_when_everyone_is_gone_and_forgotten() {
    let mut driven = Driven::new(|_| {});
    for state in WorkerState::ALL {
        let _silent = join(&driven.registry, "silent");
        let left = join(&driven.registry, "left");
        driven.registry.signal_all(state);
        drop(left);
        driven.ticks(3 * TTL_TICKS);
        let stats = driven.registry.stats();
        assert_eq!((stats.filed, stats.remembered, stats.live()), (0, 0, 0), "told {state}");
        assert_eq!(driven.pass(10).next, None);
    }
}

#[test]
fn a_pass_costs_what_is_due_and_not_the_fleet() {
    let mut driven = Driven::new(|policy| {
        policy.ttl = TICK * 40;
        policy.late_after = Some(policy.ttl);
    });
    let _fleet: Vec<_> = (0..50_000).map(|n| join(&driven.registry, &format!("w{n}"))).collect();
    driven.settle();
    for _ in 0..30 {
        driven.at += TICK;
        assert!(!driven.pass(2).more, "nobody is due");
    }
}

#[test]
fn a_burst_is_reaped_in_slices_of_the_budget() {
    let mut driven = Driven::new(|_| {});
    let sessions: Vec<_> = (0..10_000).map(|n| join(&driven.registry, &format!("w{n}"))).collect();
    driven.ticks(TTL_TICKS + 1);
    driven.at += TICK;
    let (mut expired, mut hangups) = (0, 0);
    for slice in 0.. {
        let pass = driven.pass(100);
        assert!(pass.expired <= 100 && pass.hangups.len() <= 100);
        expired += pass.expired;
        hangups += pass.hangups.into_iter().filter(|hangup| hangup.reason().as_str() == "expired").count();
        // Those who come back to life between two slices live.
        if slice == 5 {
            assert_eq!(expired as u64, driven.registry.stats().expired);
            for session in sessions.iter().skip(5_000) {
                let _ = session.beat(&Beat::default());
            }
        }
        if !pass.more {
            break;
        }
        assert!(slice < 1_000);
    }
    let live = driven.registry.stats().live();
    assert_eq!((expired + live, hangups), (10_000, expired));
    assert!((4_000..=5_000).contains(&live), "{live} live");
}
