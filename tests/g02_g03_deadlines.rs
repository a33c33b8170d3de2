//! G2: a beat that was acknowledged at t keeps its worker until t + ttl. G3: never early, and late by at most one tick plus the
//! driver's period; also for a worker that said HELLO and never beat.

mod common;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use common::{Choices, Driven, Stop, TICK, TTL, TTL_TICKS, hello, join, now, registry, wait_for};
use heartwheel::{Beat, Reaper};

#[test]
fn with_passes_on_every_tick_a_silent_worker_goes_in_its_tick() {
    for (beats, first) in [(0, 0), (0, 1), (0, 63), (1, 5), (3, 64), (7, 4090)] {
        let mut driven = Driven::new(|_| {});
        driven.ticks(first);
        let session = join(&driven.registry, "w");
        for _ in 0..beats {
            driven.ticks(3);
            session.beat(&Beat::default()).unwrap();
        }
        assert_eq!(driven.ticks(TTL_TICKS), 0, "early");
        assert!(driven.is_live("w"));
        driven.ticks(2);
        assert!(!driven.is_live("w"), "late; begun in tick {first}, {beats} beats");
        assert!(session.beat(&Beat::default()).is_err());
    }
}

#[test]
fn a_beat_at_any_point_between_two_passes_counts_for_a_whole_ttl() {
    for late in [1, 50, 99] {
        let mut driven = Driven::new(|_| {});
        let session = join(&driven.registry, "w");
        driven.ticks(1);
        // The pass before this was `late` milliseconds ago, and the next one comes at its tick.
        session.beat(&Beat::default()).unwrap();
        let beat = driven.at + Duration::from_millis(late);
        while driven.is_live("w") {
            driven.ticks(1);
        }
        assert!(driven.at >= beat + TTL, "early");
        assert!(driven.at <= beat + TTL + TICK * 2, "late");
    }
}

/// However irregular the passes: the published time lags behind, and that must not shorten anybody's ttl.
#[test]
fn slow_passes_reap_nobody_early() {
    let mut choices = Choices::new(7);
    for round in 0..300 {
        let mut driven = Driven::new(|_| {});
        let session = join(&driven.registry, "w");
        let mut last = driven.at;
        let mut slowest = Duration::ZERO;
        let beats = choices.below(6);
        for step in 0.. {
            let span = Duration::from_millis(1 + choices.below(900) as u64);
            slowest = slowest.max(span);
            if step < beats {
                // Just before the pass, in the time of the one before.
                last = driven.at + span - Duration::from_millis(1);
                session.beat(&Beat::default()).unwrap();
            }
            driven.leap(span);
            if !driven.is_live("w") {
                break;
            }
            assert!(driven.at < last + TTL + slowest * 2 + TICK * 2, "late, in round {round}");
        }
        assert!(driven.at >= last + TTL, "early by {:?}, in round {round}", last + TTL - driven.at);
    }
}

/// The same with threads: a made-up clock that runs as fast as it can, against beats.
#[test]
fn no_acknowledged_beat_is_lost_to_a_racing_reaper() {
    const TTL: u64 = 3;
    let mut driven = Driven::new(|policy| {
        (policy.tick, policy.ttl) = (Duration::from_millis(1), Duration::from_millis(TTL));
    });
    // The tick of the pass that is about to be made.
    let clock = AtomicU64::new(0);
    let (registry, stop) = (driven.registry.clone(), Stop::default());
    let reaped = thread::scope(|scope| {
        let beaters: Vec<_> = (0..3)
            .map(|n| {
                let (registry, clock) = (&registry, &clock);
                scope.spawn(move || {
                    let mut choices = Choices::new(n + 1);
                    let mut reaped = 0;
                    for life in 0..400 {
                        let end = Arc::new(AtomicU64::new(0));
                        let ended = end.clone();
                        // The closer is run by the pass that reaps, in this test.
                        let closer = move |_| ended.store(1, Ordering::SeqCst);
                        let mut last = clock.load(Ordering::SeqCst);
                        let session = registry.connect(hello(&format!("{n}-{life}")), closer).unwrap();
                        loop {
                            let before = clock.load(Ordering::SeqCst);
                            if session.beat(&Beat::default()).is_err() {
                                // The pass that reaped it has begun: its tick is not later than this.
                                let tick = clock.load(Ordering::SeqCst);
                                assert!(tick >= last + TTL, "heard in {last}, reaped by {tick}");
                                reaped += 1;
                                break;
                            }
                            last = before;
                            // Rarely for long enough to be reaped; then back just in time or just too late.
                            if choices.below(20) == 0 {
                                let until = last + TTL + choices.below(3) as u64;
                                while clock.load(Ordering::SeqCst) < until {
                                    thread::yield_now();
                                }
                            }
                        }
                        wait_for("its connection is closed", || end.load(Ordering::SeqCst) == 1);
                    }
                    reaped
                })
            })
            .collect();
        let (driven, said, clock) = (&mut driven, stop.clone(), &clock);
        scope.spawn(move || {
            while !said.is_said() {
                clock.fetch_add(1, Ordering::SeqCst);
                driven.ticks(1);
                thread::yield_now();
            }
        });
        let reaped: Vec<_> = beaters.into_iter().map(thread::ScopedJoinHandle::join).collect();
        stop.now();
        reaped.into_iter().map(|reaped| reaped.expect("no beat was lost")).sum::<u64>()
    });
    assert_eq!((reaped, registry.stats().expired), (1200, 1200));
}

/// Without anybody there, the reaper's thread sleeps until somebody connects.
#[test]
fn the_reaper_wakes_for_who_comes_after_a_while_of_nobody() {
    let registry =
        registry(|policy| (policy.tick, policy.ttl) = (Duration::from_millis(1), Duration::from_millis(10)));
    let _reaper = Reaper::spawn(&registry).unwrap();
    for round in 1..=3 {
        let _silent = join(&registry, "w");
        wait_for("it is reaped", || registry.stats().expired == round);
        wait_for("nothing is filed any more", || registry.stats().filed == 0);
        // Asleep by now, most likely; if not, this finds less than it could.
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn the_reaper_in_real_time_closes_nobody_early() {
    let ttl = Duration::from_millis(60);
    let registry = registry(|policy| (policy.tick, policy.ttl) = (Duration::from_millis(5), ttl));
    let _reaper = Reaper::spawn(&registry).unwrap();
    let closed: Arc<Mutex<Vec<(usize, Instant)>>> = Arc::default();
    let mut choices = Choices::new(3);
    let mut workers: Vec<_> = (0..100)
        .map(|n| {
            let closed = closed.clone();
            let closer = move |_| closed.lock().unwrap().push((n, now()));
            let before = now();
            let session = registry.connect(hello(&format!("w{n}")), closer).unwrap();
            (session, before, choices.below(6))
        })
        .collect();
    // Each beats for a while of its own, every 20 ms, and falls silent.
    for round in 0..6 {
        thread::sleep(Duration::from_millis(20));
        for (session, last, rounds) in &mut workers {
            if round < *rounds {
                let before = now();
                if session.beat(&Beat::default()).is_ok() {
                    *last = before;
                }
            }
        }
    }
    wait_for("everyone is closed", || closed.lock().unwrap().len() == workers.len());
    for &(n, at) in closed.lock().unwrap().iter() {
        let (_, last, _) = &workers[n];
        assert!(at >= *last + ttl, "{n} early by {:?}", (*last + ttl).duration_since(at));
    }
}

#[test]
fn a_second_hello_is_a_beat() {
    let mut driven = Driven::new(|_| {});
    let _first = join(&driven.registry, "w");
    driven.ticks(TTL_TICKS - 1);
    let _second = join(&driven.registry, "w");
    assert_eq!(driven.ticks(TTL_TICKS), 0, "early, seen from the second HELLO");
    assert_eq!(driven.ticks(2), 1);
}

#[test]
fn a_policy_with_another_ttl_moves_the_deadlines_of_all() {
    for (after, gone) in [(5, 5 + 2), (30, 30 + 2)] {
        let mut driven = Driven::new(|_| {});
        let _session = join(&driven.registry, "w");
        driven.ticks(1);
        driven.registry.set_policy(common::policy_with(|policy| policy.ttl = TICK * after)).unwrap();
        driven.ticks(after - 1);
        assert!(driven.is_live("w"), "ttl of {after} ticks");
        driven.ticks(gone - after);
        assert!(!driven.is_live("w"), "ttl of {after} ticks");
    }
}
