//! G7: beats wait for nobody: not for a pass, a snapshot, a registration or a subscriber.
//!
//! No clock decides here. One thread says while it is inside the long operation; a beat counts if that operation was under way
//! both before and after it, and was the same one. If beats waited for it, none would count.

mod common;

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use common::{Driven, Stop, TICK, hello, join};
use heartwheel::{Beat, Lagged, Session, WorkerState};

const FLEET: usize = 200_000;
const BEATS: u64 = 3;

/// How many beats, by session and by wid, were made while `long` ran, which is repeated until it is enough.
fn beats_during(driven: &Driven, sessions: &[Session], long: impl FnMut() -> bool) -> (u64, u64) {
    beats_during_prepared(driven, sessions, || {}, long)
}

/// As above; what `prepare` does before each does not count.
fn beats_during_prepared(
    driven: &Driven,
    sessions: &[Session],
    mut prepare: impl FnMut(),
    mut long: impl FnMut() -> bool,
) -> (u64, u64) {
    // Odd while it runs.
    let inside = AtomicU64::new(0);
    let [by_session, by_wid] = [AtomicU64::new(0), AtomicU64::new(0)];
    let stop = Stop::default();
    thread::scope(|scope| {
        // Dropped first: a failure in here ends the others, for whom the scope waits.
        let _stops = stop.clone();
        let (said, inside, counts) = (stop.clone(), &inside, [&by_session, &by_wid]);
        let registry = driven.registry.clone();
        scope.spawn(move || {
            for session in sessions.iter().cycle() {
                if said.is_said() {
                    return;
                }
                let beats: [&dyn Fn() -> bool; 2] =
                    [&|| session.beat(&Beat::default().rss_kb(1)).is_ok(), &|| {
                        registry.beat(session.wid().as_str(), &Beat::default()).is_ok()
                    }];
                for (beat, count) in beats.into_iter().zip(counts) {
                    let before = inside.load(Ordering::SeqCst);
                    // Long enough for it to have got whatever it locks.
                    thread::sleep(Duration::from_millis(2));
                    if inside.load(Ordering::SeqCst) != before {
                        continue;
                    }
                    assert!(beat(), "it lives");
                    if before % 2 == 1 && inside.load(Ordering::SeqCst) == before {
                        count.fetch_add(1, Ordering::SeqCst);
                    }
                }
            }
        });
        let enough = || counts.iter().all(|count| count.load(Ordering::SeqCst) >= BEATS);
        for _ in 0..20 {
            prepare();
            inside.fetch_add(1, Ordering::SeqCst);
            let again = long();
            inside.fetch_add(1, Ordering::SeqCst);
            if enough() || !again {
                break;
            }
        }
        stop.now();
    });
    (by_session.into_inner(), by_wid.into_inner())
}

fn assert_enough((by_session, by_wid): (u64, u64), what: &str) {
    assert!(by_session >= BEATS && by_wid >= BEATS, "{by_session} by session, {by_wid} by wid during {what}");
}

fn fleet(driven: &Driven, name: &str, count: usize) -> Vec<Session> {
    (0..count).map(|n| join(&driven.registry, &format!("{name}{n}"))).collect()
}

#[test]
fn for_a_snapshot() {
    let driven = Driven::new(|_| {});
    let _fleet = fleet(&driven, "w", FLEET);
    let beating = fleet(&driven, "b", 64);
    // Something happened, so it is built anew.
    let prepare = || drop(join(&driven.registry, "another"));
    let beats = beats_during_prepared(&driven, &beating, prepare, || {
        driven.registry.snapshot().workers().len() > FLEET
    });
    assert_enough(beats, "a snapshot");
}

#[test]
fn for_a_pass_that_reaps_everyone_else() {
    let mut driven = Driven::new(|policy| policy.ttl = Duration::from_millis(300));
    let _fleet = fleet(&driven, "w", FLEET);
    driven.ticks(2);
    let beating = fleet(&driven, "b", 64);
    driven.ticks(2);
    beating.iter().for_each(|session| assert!(session.beat(&Beat::default()).is_ok()));
    driven.at += common::TICK;
    let mut whole = None;
    let beats = beats_during(&driven, &beating, || {
        whole = Some(driven.pass(usize::MAX));
        false
    });
    assert_eq!(whole.map(|pass| pass.expired), Some(FLEET));
    assert_enough(beats, "a pass that reaps all");
}

#[test]
fn for_registrations_and_departures() {
    let driven = Driven::new(|_| {});
    let beating = fleet(&driven, "b", 64);
    let beats = beats_during(&driven, &beating, || {
        drop(fleet(&driven, "w", 20_000));
        true
    });
    assert_enough(beats, "registrations");
}

#[test]
fn for_a_closer_that_registers_and_takes_its_time() {
    let mut driven = Driven::new(|_| {});
    let beating = fleet(&driven, "b", 2);
    let registry = driven.registry.clone();
    let slow = move |_| {
        for n in 0..20_000 {
            drop(join(&registry, &format!("in{n}")));
        }
    };
    let _slow = driven.registry.connect(hello("slow"), slow).unwrap();
    for _ in 0..12 {
        beating.iter().for_each(|session| assert!(session.beat(&Beat::default()).is_ok()));
        driven.at += common::TICK;
        let mut pass = driven.pass(1000);
        if let Some(hangup) = pass.hangups.pop() {
            let mut hangup = Some(hangup);
            let beats = beats_during(&driven, &beating, || hangup.take().is_some_and(|hangup| !hangup.run()));
            assert_enough(beats, "a closer");
            return;
        }
    }
    panic!("nobody was reaped");
}

#[test]
fn for_a_subscriber_that_never_reads() {
    let driven = Driven::new(|_| {});
    let subscriber = driven.registry.subscribe(1);
    let beating = fleet(&driven, "b", 64);
    for n in 0..10_000 {
        let session = &beating[n % beating.len()];
        // Every one of these publishes nothing; the next ones publish, and miss.
        assert!(session.beat(&Beat::default()).is_ok());
        drop(join(&driven.registry, "other"));
    }
    for session in &beating {
        assert_eq!(session.beat(&Beat::default().state(WorkerState::Quiet)), Ok(WorkerState::Quiet));
    }
    assert!(matches!(subscriber.try_recv(), Some(Ok(_))));
    assert_eq!(subscriber.try_recv().unwrap().unwrap_err(), Lagged(64 + 20_000 + 64 - 1));
}

/// What makes the above true whatever there is to do: a pass ends when its budget is used up.
#[test]
fn a_pass_does_no_more_than_its_budget() {
    let mut driven = Driven::new(|_| {});
    let _sessions: Vec<_> = (0..1_000).map(|n| join(&driven.registry, &format!("w{n}"))).collect();
    let (mut expired, mut rounds) = (0, 0);
    for _ in 0..1_000 {
        driven.at += TICK / 10;
        let pass = driven.pass(100);
        assert!(pass.expired <= 100 && pass.hangups.len() <= 100, "{pass:?}");
        (expired, rounds) = (expired + pass.expired, rounds + usize::from(pass.expired > 0));
    }
    assert_eq!(expired, 1_000);
    assert!(rounds >= 10, "due at once, they come as the budget allows: in {rounds} passes");
}
