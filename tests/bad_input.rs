//! Whatever is passed in that cannot be taken gets a typed error or does what its documentation says, and changes nothing.

mod common;

use std::time::Duration;

use common::{Driven, TICK, TTL, hello, join, policy, policy_with, registry, wait_for};
use heartwheel::{
    Beat, ConnectError, Hello, InvalidHello, OutOfRange, Policy, PolicyError, Reaper, Registry, SpawnError,
    WorkerState,
};

#[test]
fn a_wid_must_be_something_and_of_one_line() {
    for blank in ["", " ", "\u{3000}\u{2003}"] {
        assert_eq!(Hello::new(blank).unwrap_err(), InvalidHello::BlankWid);
    }
    for (wid, at) in [("a\r\nb", 1), ("\0", 0), ("\t", 0), ("é\u{85}", 2), ("wid\u{7f}", 3)] {
        assert_eq!(Hello::new(wid).unwrap_err(), InvalidHello::ControlCharacter { at }, "{wid:?}");
        assert_eq!(wid.parse::<heartwheel::Wid>().unwrap_err(), InvalidHello::ControlCharacter { at });
    }
    assert!(Hello::new(" a b ").is_ok() && Hello::new("ü").is_ok());
}

#[test]
fn what_is_too_large_is_refused_and_nothing_is_registered() {
    let registry = registry(|_| {});
    let subscriber = registry.subscribe(10);
    let huge = "x".repeat(10 << 20);
    let too_long = |field, len| InvalidHello::TooLong { field, len, max: 255 };
    let cases = [
        (Hello::new(&huge).unwrap(), too_long("wid", huge.len())),
        (hello("w").hostname(&huge), too_long("hostname", huge.len())),
        (hello("w").label("fine").label(&huge), too_long("label", huge.len())),
        (hello("w").label("y".repeat(256)), too_long("label", 256)),
        (
            (0..65).fold(hello("w"), |hello, n| hello.label(n.to_string())),
            InvalidHello::TooManyLabels { count: 65, max: 64 },
        ),
    ];
    for (bad, expected) in cases {
        let error = registry.connect(bad, |_| {}).unwrap_err();
        assert_eq!(error, ConnectError::Invalid(expected));
        assert!(!error.to_string().is_empty() && std::error::Error::source(&error).is_some());
    }
    let stats = registry.stats();
    assert_eq!((stats.joined, stats.connections, stats.filed), (0, 0, 0));
    assert!(subscriber.try_recv().is_none() && registry.snapshot().workers().is_empty());

    // At the limits it is fine, and a live worker is not disturbed by a HELLO that is not.
    let most = (0..64).fold(Hello::new("z".repeat(255)).unwrap(), |hello, _| hello.label("y".repeat(255)));
    let session = registry.connect(most, |_| {}).unwrap();
    let bad = Hello::new("z".repeat(255)).unwrap().label(&huge);
    assert!(registry.connect(bad, |_| {}).is_err());
    assert_eq!(registry.get(session.wid().as_str()).unwrap().connections(), 1);
}

#[test]
fn a_policy_out_of_range_is_an_error_with_the_range() {
    let over = Policy::MAX + Duration::from_nanos(1);
    let ns = Duration::from_nanos(1);
    let cases: Vec<(&str, Policy)> = vec![
        ("ttl", policy_with(|policy| policy.ttl = Duration::ZERO)),
        ("ttl", policy_with(|policy| policy.tick = policy.ttl + ns)),
        ("ttl", policy_with(|policy| policy.ttl = over)),
        ("ttl", policy_with(|policy| policy.ttl = Duration::MAX)),
        ("tick", policy_with(|policy| policy.tick = Duration::ZERO)),
        ("tick", policy_with(|policy| policy.tick = Duration::from_micros(999))),
        ("tick", policy_with(|policy| policy.tick = Duration::from_secs(61))),
        ("late_after", policy_with(|policy| policy.late_after = Some(policy.ttl + ns))),
        ("remember", policy_with(|policy| policy.remember = Some(over))),
        ("gap", policy_with(|policy| policy.gap = Some(policy.tick - ns))),
        ("gap", policy_with(|policy| policy.gap = Some(Duration::ZERO))),
        ("gap", policy_with(|policy| policy.gap = Some(Duration::MAX))),
        ("grace", policy_with(|policy| policy.grace = Some(Duration::ZERO))),
        ("lease_max", policy_with(|policy| policy.lease_max = over)),
        ("lease_min", policy_with(|policy| policy.lease_min = Some(policy.lease_max + ns))),
    ];
    let standing = registry(|_| {});
    for (expected, bad) in cases {
        let error = Registry::new(bad.clone()).unwrap_err();
        let PolicyError::OutOfRange(OutOfRange { field, value, min, max, .. }) = &error else {
            panic!("{error:?}")
        };
        assert_eq!(*field, expected);
        assert!(min <= max && (value < min || value > max), "{error}");
        assert_eq!(standing.set_policy(bad), Err(error));
        assert_eq!(*standing.policy(), policy(), "the one in force stays");
    }
    type Change = (&'static str, fn(&mut Policy));
    let limits: [Change; 6] = [
        ("limits.wid", |policy| policy.limits.wid = 0),
        ("limits.wid", |policy| policy.limits.wid = 4097),
        ("limits.hostname", |policy| policy.limits.hostname = 4097),
        ("limits.labels", |policy| policy.limits.labels = usize::MAX),
        ("limits.label", |policy| policy.limits.label = 4097),
        ("limits.label", |policy| policy.limits.label = usize::MAX),
    ];
    for (expected, change) in limits {
        let error = standing.set_policy(policy_with(change)).unwrap_err();
        assert!(
            matches!(error, PolicyError::LimitOutOfRange { field, .. } if field == expected),
            "{error:?}"
        );
    }
}

#[test]
fn the_extremes_of_a_policy_work() {
    let mut driven = Driven::new(|policy| {
        (policy.ttl, policy.remember, policy.gap) = (Policy::MAX, Some(Policy::MAX), Some(Policy::MAX));
        policy.tick = Duration::from_millis(1);
        policy.max_remembered = usize::MAX;
    });
    let session = join(&driven.registry, "w");
    driven.settle();
    driven.leap(Policy::MAX);
    assert_eq!(session.beat(&Beat::default().rss_kb(u64::MAX - 1)), Ok(WorkerState::Running));
    // Late by the driver's period, which is a year here, and a tick.
    assert_eq!(driven.leap(Policy::MAX) + driven.leap(Policy::MAX), 0);
    assert_eq!(driven.leap(Duration::from_millis(1)), 1);
}

#[test]
fn another_tick_is_refused_for_the_life_of_a_registry() {
    let registry = registry(|_| {});
    let error = registry.set_policy(policy_with(|policy| policy.tick = TICK / 2)).unwrap_err();
    assert_eq!(error, PolicyError::TickChanged { tick: TICK });
    assert_eq!(*registry.policy(), policy());
    registry.set_policy(policy_with(|policy| policy.ttl = TTL * 2)).unwrap();
    assert_eq!(registry.policy().ttl, TTL * 2);
}

#[test]
fn a_connection_too_many_is_refused_and_the_others_stay() {
    // The word counts connections in 20 bits.
    const MOST: u32 = (1 << 18) - 1;
    let registry = registry(|_| {});
    let sessions: Vec<_> = (0..MOST).map(|_| join(&registry, "w")).collect();
    let error = registry.connect(hello("w"), |_| {}).unwrap_err();
    assert_eq!(error, ConnectError::TooManyConnections { max: MOST });
    assert_eq!(registry.get("w").unwrap().connections(), MOST);
    assert_eq!(registry.stats().connections, MOST as usize);
    // Newest first: each is found at once.
    let mut sessions = sessions;
    while let Some(session) = sessions.pop() {
        if sessions.len() > 1000 {
            std::mem::forget(session);
        }
    }
    assert_eq!(registry.get("w").unwrap().connections(), MOST - 1001);
}

#[test]
fn a_registry_has_one_reaper_at_a_time() {
    let registry = registry(|policy| (policy.tick, policy.ttl) = (TICK / 10, TICK / 2));
    let first = Reaper::spawn(&registry).unwrap();
    let refused = Reaper::spawn(&registry).unwrap_err();
    assert!(matches!(refused, SpawnError::AlreadyDriven), "{refused:?}");
    assert!(matches!(Reaper::spawn(&registry.clone()), Err(SpawnError::AlreadyDriven)));
    let _one = join(&registry, "one");
    wait_for("the first reaps", || registry.get("one").is_none());
    first.stop();
    let _two = join(&registry, "two");
    let uptime = registry.stats().uptime;
    let second = Reaper::spawn(&registry).expect("the first was stopped");
    wait_for("the second reaps", || registry.get("two").is_none());
    assert!(registry.stats().uptime > uptime);
    drop(second);
}

#[test]
fn a_reaper_may_outlive_every_other_handle() {
    let registry = registry(|policy| policy.tick = TICK / 10);
    let reaper = Reaper::spawn(&registry).unwrap();
    let subscriber = registry.subscribe(10);
    let session = join(&registry, "w");
    drop(registry);
    assert_eq!(session.beat(&Beat::default()), Ok(WorkerState::Running));
    drop(session);
    // Joined and left; the registry is still driven, and ends with its reaper.
    drop(reaper);
    assert_eq!(subscriber.filter(Result::is_ok).count(), 2);
}

#[test]
fn a_reaper_that_sleeps_is_woken_by_whoever_connects() {
    let tick = Duration::from_millis(1);
    let registry = registry(|policy| (policy.tick, policy.ttl) = (tick, tick));
    let _reaper = Reaper::spawn(&registry).unwrap();
    for round in 0..150_u32 {
        let wid = format!("w{round}");
        let _session = join(&registry, &wid);
        let until = common::now() + common::PATIENCE;
        while registry.get(&wid).is_some() {
            assert!(common::now() < until, "not reaped, in round {round}");
            std::hint::spin_loop();
        }
        // Now it is about to fall asleep. The next one comes before, just then, or when it sleeps.
        (0..round * 7 % 100 * 20).for_each(|_| std::hint::spin_loop());
        if round % 50 == 0 {
            std::thread::sleep(tick * 5);
        }
    }
}

#[test]
fn a_registry_that_nobody_drives_reaps_nobody() {
    let registry = registry(|_| {});
    let session = join(&registry, "w");
    assert_eq!(registry.stats().uptime, Duration::ZERO);
    assert_eq!(session.beat(&Beat::default()), Ok(WorkerState::Running));
    assert_eq!(registry.snapshot().workers().len(), 1);
}
