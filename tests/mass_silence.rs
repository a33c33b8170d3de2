//! Mass silence: many silent at once are held, if the policy says so, and told of; few are not.

mod common;

use std::time::Duration;

use common::{Closed, Driven, TICK, TTL, beat_all, events, hello, join};
use heartwheel::{Brake, EndReason, Event, Policy, Session};

const WINDOW: Duration = Duration::from_secs(2);

fn brake(share: f64, at_least: usize) -> impl FnOnce(&mut Policy) {
    move |policy| {
        let mut brake = Brake::default();
        (brake.share, brake.window, brake.at_least) = (share, WINDOW, at_least);
        policy.brake = Some(brake);
    }
}

fn fleet(driven: &Driven, size: usize) -> Vec<Session> {
    (0..size).map(|n| join(&driven.registry, &format!("w{n}"))).collect()
}

/// Of what is told about the fleet as a whole: for each beginning what it said, `None` for an end.
fn told(all: &[Event]) -> Vec<Option<(usize, usize)>> {
    let told = all.iter().filter_map(|event| match event {
        Event::MassSilence { fleet, expired } => Some(Some((*fleet, *expired))),
        Event::SilenceOver { .. } => Some(None),
        _ => None,
    });
    told.collect()
}

#[test]
fn of_nine_in_ten_no_more_than_the_share_expires_and_the_rest_lives_when_heard_again() {
    let mut driven = Driven::new(brake(0.25, 20));
    let sessions = fleet(&driven, 10_000);
    let subscriber = driven.registry.subscribe(1 << 20);
    let (beating, silent) = sessions.split_at(1_000);
    for _ in 0..100 {
        driven.ticks(1);
        beat_all(beating);
    }
    let stats = driven.registry.stats();
    assert_eq!((stats.expired, stats.mass_silences, stats.holding), (2_500, 1, true));
    assert_eq!((stats.live(), stats.late), (7_500, 6_500));
    assert_eq!(told(&events(&subscriber)), [Some((10_000, 2_500))], "told of once");
    assert!(beating.iter().all(|session| session.state().is_ok()));
    // All that are left come back.
    for _ in 0..45 {
        beat_all(beating.iter().chain(silent));
        driven.ticks(1);
    }
    let stats = driven.registry.stats();
    assert_eq!((stats.expired, stats.live(), stats.late, stats.holding), (2_500, 7_500, 0, false));
    assert_eq!(told(&events(&subscriber)), [None]);
    // And are reaped as usual, when they are few.
    for _ in 0..13 {
        beat_all(&sessions[..9_900]);
        driven.ticks(1);
    }
    assert_eq!(driven.registry.stats().live(), 7_500 - 100);
    assert_eq!(told(&events(&subscriber)), []);
}

#[test]
fn who_never_returns_expires_once_the_brake_is_taken_away() {
    let mut driven = Driven::new(brake(0.25, 20));
    let closed = Closed::default();
    let _sessions: Vec<_> = (0..1_000)
        .map(|n| driven.registry.connect(hello(&format!("w{n}")), closed.closer(n)).unwrap())
        .collect();
    driven.ticks(200);
    assert_eq!((driven.registry.stats().live(), closed.len()), (750, 250));
    let mut policy = (*driven.registry.policy()).clone();
    policy.brake = None;
    driven.registry.set_policy(policy).unwrap();
    driven.settle();
    driven.ticks(1);
    let stats = driven.registry.stats();
    assert_eq!((stats.live(), stats.expired, stats.late, stats.holding), (0, 1_000, 0, false));
    assert_eq!(closed.all(), (0..1_000).map(|n| (n, EndReason::Expired)).collect::<Vec<_>>());
}

#[test]
fn when_most_return_the_few_that_do_not_expire_after_all() {
    let mut driven = Driven::new(brake(0.25, 20));
    let sessions = fleet(&driven, 100);
    driven.ticks(15);
    assert_eq!(driven.registry.stats().live(), 75);
    let live: Vec<_> = sessions.iter().filter(|session| session.state().is_ok()).collect();
    for _ in 0..100 {
        beat_all(live[10..].iter().copied());
        driven.ticks(1);
    }
    let stats = driven.registry.stats();
    assert_eq!((stats.live(), stats.holding, stats.mass_silences), (65, false, 1));
}

#[test]
fn a_small_fleet_and_a_usual_share_are_not_held() {
    for (size, silent) in [(19, 19), (20, 5), (100, 25), (1, 1)] {
        let mut driven = Driven::new(brake(0.25, 20));
        let sessions = fleet(&driven, size);
        let subscriber = driven.registry.subscribe(1 << 16);
        for _ in 0..13 {
            driven.ticks(1);
            beat_all(&sessions[silent..]);
        }
        assert_eq!(driven.registry.stats().live(), size - silent, "{silent} of {size}");
        assert_eq!(told(&events(&subscriber)), []);
    }
    let mut driven = Driven::new(brake(0.25, 20));
    let _sessions = fleet(&driven, 20);
    driven.ticks(13);
    assert_eq!(driven.registry.stats().live(), 15, "one more, and it is");
}

#[test]
fn silence_that_grows_slowly_is_no_mass_silence() {
    let mut driven = Driven::new(brake(0.25, 20));
    let sessions = fleet(&driven, 100);
    // Ten more fall silent each window.
    for tick in 0..200 {
        beat_all(&sessions[(tick / 20 * 10).min(60)..]);
        driven.ticks(1);
    }
    let stats = driven.registry.stats();
    assert_eq!((stats.live(), stats.mass_silences), (40, 0));
}

#[test]
fn a_pause_of_the_engine_is_no_silence() {
    let mut driven = Driven::new(brake(0.25, 20));
    let sessions = fleet(&driven, 100);
    driven.ticks(5);
    driven.leap(100 * TTL);
    beat_all(&sessions);
    driven.ticks(9);
    let stats = driven.registry.stats();
    assert_eq!((stats.live(), stats.mass_silences), (100, 0));
}

#[test]
fn a_hundred_thousand_expiries_in_one_tick_come_in_slices_and_each_once() {
    let size = 100_000;
    let mut driven = Driven::new(|policy| policy.late_after = Some(TTL));
    let sessions = fleet(&driven, size);
    let subscriber = driven.registry.subscribe(2 * size);
    driven.ticks(11);
    assert_eq!(driven.registry.stats().live(), size);
    driven.at += TICK;
    let (mut expired, mut slices) = (0, 0);
    loop {
        let pass = driven.pass(1_000);
        assert!(pass.expired <= 1_000 && pass.hangups.len() <= 1_000);
        expired += pass.expired;
        slices += 1;
        if !pass.more {
            break;
        }
    }
    assert_eq!((expired, driven.registry.stats().expired), (size, size as u64));
    assert!(slices >= 100, "{slices}");
    let mut ended: Vec<_> =
        events(&subscriber)
            .iter()
            .map(|event| {
                if let Event::Ended(ended) = event { ended.worker.incarnation() } else { panic!("{event:?}") }
            })
            .collect();
    ended.sort_unstable();
    ended.dedup();
    assert_eq!(ended.len(), size);
    assert!(sessions.iter().all(|session| session.state().is_err()));
}
