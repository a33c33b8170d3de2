//! A ttl of a worker's own: said at HELLO or later, shorter or longer than the policy's.

mod common;

use std::thread;
use std::time::Duration;

use common::{Driven, TICK, TTL, beat_all, hello, join, now, registry, wait_for};
use heartwheel::{ConnectError, Health, InvalidHello, Policy, Reaper, Session, TtlError};

/// How long the worker is live from now on without a beat.
fn lives_for(driven: &mut Driven, session: &Session) -> Duration {
    let from = driven.at;
    while session.state().is_ok() {
        assert!(driven.at - from < Duration::from_secs(100), "it lives for ever");
        driven.ticks(1);
    }
    driven.at - from
}

fn assert_about(lived: Duration, ttl: Duration) {
    assert!(lived >= ttl && lived <= ttl + 2 * TICK, "{lived:?} of {ttl:?}");
}

#[test]
fn it_is_said_at_hello_and_shown() {
    for ticks in [1, 3, 10, 50] {
        let mut driven = Driven::new(|_| {});
        let other = join(&driven.registry, "other");
        let ttl = ticks * TICK;
        let session = driven.registry.connect(hello("w").ttl(ttl), |_| {}).unwrap();
        assert_eq!(driven.registry.get("w").unwrap().ttl(), ttl);
        assert_eq!(driven.registry.get("other").unwrap().ttl(), TTL);
        assert_about(lives_for(&mut driven, &session), ttl);
        assert_eq!(other.state().is_ok(), ticks < 10, "it is nobody else's");
    }
}

#[test]
fn a_further_connection_that_says_one_changes_it_and_one_that_says_none_does_not() {
    let mut driven = Driven::new(|_| {});
    let session = join(&driven.registry, "w");
    let _second = driven.registry.connect(hello("w").ttl(3 * TTL), |_| {}).unwrap();
    let _third = join(&driven.registry, "w");
    assert_eq!(driven.registry.get("w").unwrap().ttl(), 3 * TTL);
    assert_about(lives_for(&mut driven, &session), 3 * TTL);
}

#[test]
fn a_shorter_one_counts_at_once_from_the_last_beat() {
    let mut driven = Driven::new(|policy| policy.ttl = 10 * TTL);
    let session = join(&driven.registry, "w");
    driven.ticks(4);
    session.set_ttl(Some(6 * TICK)).unwrap();
    assert_about(lives_for(&mut driven, &session), 2 * TICK);

    let session = join(&driven.registry, "w");
    driven.ticks(20);
    session.set_ttl(Some(TICK)).unwrap();
    assert_eq!(driven.settle(), 1, "it has been over for long");
    assert_eq!(session.set_ttl(None), Err(TtlError::Gone));
}

#[test]
fn a_longer_one_saves_who_would_have_expired_and_none_gives_it_back() {
    let mut driven = Driven::new(|_| {});
    let session = join(&driven.registry, "w");
    driven.ticks(9);
    session.set_ttl(Some(5 * TTL)).unwrap();
    assert_about(lives_for(&mut driven, &session), 5 * TTL - 9 * TICK);

    let session = driven.registry.connect(hello("w").ttl(5 * TTL), |_| {}).unwrap();
    driven.ticks(5);
    session.set_ttl(None).unwrap();
    assert_eq!(driven.registry.get("w").unwrap().ttl(), TTL);
    assert_about(lives_for(&mut driven, &session), TTL - 5 * TICK);

    let session = driven.registry.connect(hello("w").ttl(3 * TICK), |_| {}).unwrap();
    session.set_ttl(None).unwrap();
    assert_about(lives_for(&mut driven, &session), TTL);
}

#[test]
fn it_is_not_the_successors() {
    let mut driven = Driven::new(|_| {});
    drop(driven.registry.connect(hello("w").ttl(5 * TTL), |_| {}).unwrap());
    let session = join(&driven.registry, "w");
    assert_about(lives_for(&mut driven, &session), TTL);
}

#[test]
fn a_policy_of_another_ttl_does_not_touch_it() {
    let mut driven = Driven::new(|_| {});
    let session = driven.registry.connect(hello("w").ttl(3 * TTL), |_| {}).unwrap();
    let mut policy = (*driven.registry.policy()).clone();
    policy.ttl = TICK;
    driven.registry.set_policy(policy).unwrap();
    assert_about(lives_for(&mut driven, &session), 3 * TTL);
}

#[test]
fn one_out_of_range_is_refused_and_changes_nothing() {
    let mut driven = Driven::new(|_| {});
    let session = join(&driven.registry, "w");
    for ttl in [Duration::ZERO, TICK - Duration::from_nanos(1), Policy::MAX + TICK, Duration::MAX] {
        let Err(TtlError::OutOfRange(range)) = session.set_ttl(Some(ttl)) else { panic!("{ttl:?}") };
        assert_eq!((range.value, range.min, range.max), (ttl, TICK, Policy::MAX));
        for wid in ["w", "new"] {
            let refused = driven.registry.connect(hello(wid).ttl(ttl), |_| {}).unwrap_err();
            assert_eq!(refused, ConnectError::Invalid(InvalidHello::TtlOutOfRange(range.clone())));
        }
    }
    let stats = driven.registry.stats();
    assert_eq!((stats.live(), stats.connections), (1, 1));
    assert_about(lives_for(&mut driven, &session), TTL);
    for ttl in [TICK, Policy::MAX] {
        assert!(driven.registry.connect(hello("w").ttl(ttl), |_| {}).is_ok());
    }
}

#[test]
fn with_a_slow_driver_nobody_is_early_however_long_the_ttl() {
    for step in 1..10 {
        let mut driven = Driven::new(|_| {});
        let long = driven.registry.connect(hello("long").ttl(30 * TTL), |_| {}).unwrap();
        let other = join(&driven.registry, "other");
        // Both beat just before a slow pass; regular ones follow.
        let beaten = driven.at + step * TICK - TICK / 10;
        beat_all([&long, &other]);
        driven.leap(step * TICK);
        while long.state().is_ok() {
            driven.ticks(1);
            if driven.at == 5 * TTL {
                // Filed anew, when a short ttl's slow pass would be forgotten.
                long.set_ttl(Some(30 * TTL)).unwrap();
            }
            if driven.at < beaten + TTL {
                assert!(other.state().is_ok(), "{step}");
            }
        }
        assert!(driven.at >= beaten + 30 * TTL, "{step}: {:?} early", beaten + 30 * TTL - driven.at);
        assert!(driven.at <= beaten + 30 * TTL + (step + 2) * TICK, "{step}");
    }
}

#[test]
fn the_reapers_thread_hears_of_a_shorter_one_at_once() {
    let registry = registry(|policy| policy.ttl = Duration::from_secs(3600));
    let _reaper = Reaper::spawn(&registry).unwrap();
    let session = join(&registry, "w");
    thread::sleep(3 * TICK);
    assert!(session.state().is_ok());
    let from = now();
    session.set_ttl(Some(TICK)).unwrap();
    wait_for("its end", || session.state().is_err());
    assert!(from.elapsed() < Duration::from_secs(5));
}

#[test]
fn it_is_late_after_half_of_it_unless_the_policy_says_when() {
    for (own, late_after) in [(40, None), (4, None), (40, Some(3))] {
        let mut driven = Driven::new(|policy| policy.late_after = late_after.map(|ticks| ticks * TICK));
        let _session = driven.registry.connect(hello("w").ttl(own * TICK), |_| {}).unwrap();
        let late = late_after.unwrap_or(own / 2);
        driven.ticks(late);
        assert_eq!(
            (driven.registry.get("w").unwrap().health(), driven.registry.stats().late),
            (Health::Live, 0)
        );
        driven.ticks(2);
        assert_eq!(
            (driven.registry.get("w").unwrap().health(), driven.registry.stats().late),
            (Health::Late, 1)
        );
    }
}
