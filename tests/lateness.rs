//! Lateness: told of once per silence, taken back once, and in order.

mod common;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use common::{Driven, Stop, TICK, TTL, beat_all, events, join};
use heartwheel::{Beat, Event, Health, WorkerState};

fn names(all: &[Event]) -> Vec<&'static str> {
    let name = |event: &Event| match event {
        Event::Joined(_) => "joined",
        Event::Told { .. } => "told",
        Event::Late(_) => "late",
        Event::Back { .. } => "back",
        Event::Ended(_) => "ended",
        Event::Gap(_) => "gap",
        other => panic!("{other:?}"),
    };
    all.iter().map(name).collect()
}

#[test]
fn each_silence_is_told_of_once_and_taken_back_once() {
    let mut driven = Driven::new(|policy| policy.late_after = Some(3 * TICK));
    let subscriber = driven.registry.subscribe(1000);
    let session = join(&driven.registry, "w");
    for _ in 0..5 {
        driven.ticks(3);
        assert_eq!(driven.registry.stats().late, 0, "never early");
        driven.ticks(2);
        assert_eq!(driven.registry.stats().late, 1, "late by at most two ticks");
        assert_eq!(driven.registry.get("w").unwrap().health(), Health::Late);
        driven.ticks(3);
        (0..3).for_each(|_| beat_all([&session]));
        assert_eq!(driven.registry.stats().late, 0);
        assert_eq!(driven.registry.get("w").unwrap().health(), Health::Live);
        (0..3).for_each(|_| beat_all([&session]));
    }
    driven.ticks(13);
    let all = events(&subscriber);
    let mut expected = vec!["joined"];
    expected.extend(["late", "back"].repeat(5));
    expected.extend(["late", "ended"]);
    assert_eq!(names(&all), expected);
    let Event::Late(late) = &all[1] else { panic!() };
    assert_eq!((late.wid().as_str(), late.health(), late.age()), ("w", Health::Late, 5 * TICK));
    assert_eq!(driven.registry.stats().late, 0, "the dead are not late");
}

#[test]
fn a_further_connection_and_a_beat_by_wid_bring_it_back_too() {
    let mut driven = Driven::new(|_| {});
    let _session = join(&driven.registry, "w");
    let subscriber = driven.registry.subscribe(1000);
    driven.ticks(8);
    let _second = join(&driven.registry, "w");
    driven.ticks(8);
    driven.registry.beat("w", &Beat::default()).unwrap();
    driven.ticks(8);
    driven.registry.beat("w", &Beat::default().state(WorkerState::Quiet)).unwrap();
    assert_eq!(names(&events(&subscriber)), ["late", "back", "late", "back", "late", "back", "told"]);
}

#[test]
fn what_a_late_worker_is_told_brings_it_not_back() {
    let mut driven = Driven::new(|_| {});
    let session = join(&driven.registry, "w");
    let subscriber = driven.registry.subscribe(1000);
    driven.ticks(8);
    driven.registry.signal("w", WorkerState::Quiet).unwrap();
    assert_eq!(driven.registry.stats().late, 1);
    drop(session);
    assert_eq!(driven.registry.stats().late, 0);
    assert_eq!(names(&events(&subscriber)), ["late", "told", "ended"]);
}

#[test]
fn there_is_none_when_it_would_come_with_the_end() {
    let mut driven = Driven::new(|policy| policy.late_after = Some(TTL));
    let _session = join(&driven.registry, "w");
    let subscriber = driven.registry.subscribe(1000);
    driven.ticks(20);
    assert_eq!(names(&events(&subscriber)), ["ended"]);
}

#[test]
fn a_pause_of_the_engine_makes_nobody_late() {
    let mut driven = Driven::new(|_| {});
    let session = join(&driven.registry, "w");
    let subscriber = driven.registry.subscribe(1000);
    driven.ticks(4);
    driven.leap(Duration::from_secs(3600));
    driven.ticks(1);
    assert_eq!(names(&events(&subscriber)), ["gap"]);
    driven.ticks(2);
    assert_eq!(names(&events(&subscriber)), ["late"]);
    driven.leap(Duration::from_secs(3600));
    beat_all([&session]);
    assert_eq!(names(&events(&subscriber)), ["gap", "back"]);
}

#[test]
fn missed_beats_are_counted_by_its_own_interval() {
    let mut driven = Driven::new(|_| {});
    let session = join(&driven.registry, "w");
    let get = |driven: &Driven| driven.registry.get("w").unwrap();
    driven.ticks(1);
    beat_all([&session]);
    assert_eq!((get(&driven).interval(), get(&driven).missed_beats()), (None, None));
    driven.ticks(2);
    beat_all([&session]);
    assert_eq!((get(&driven).interval(), get(&driven).missed_beats()), (Some(2 * TICK), Some(0)));
    driven.ticks(3);
    assert_eq!(get(&driven).missed_beats(), Some(1));
    driven.ticks(3);
    assert_eq!(get(&driven).missed_beats(), Some(3));
    // Through lateness, too.
    beat_all([&session]);
    assert_eq!((get(&driven).interval(), get(&driven).missed_beats()), (Some(6 * TICK), Some(0)));
}

#[test]
fn a_shorter_late_after_reaches_who_is_silent_already() {
    let mut driven = Driven::new(|policy| policy.late_after = Some(TTL));
    let _session = join(&driven.registry, "w");
    driven.ticks(6);
    assert_eq!(driven.registry.stats().late, 0);
    let mut policy = (*driven.registry.policy()).clone();
    policy.late_after = Some(2 * TICK);
    driven.registry.set_policy(policy).unwrap();
    driven.settle();
    driven.ticks(1);
    assert_eq!(driven.registry.stats().late, 1);
}

#[test]
fn every_late_is_followed_by_back_or_the_end_whoever_beats_meanwhile() {
    let mut driven = Driven::new(|policy| {
        (policy.tick, policy.ttl, policy.late_after) = (TICK / 100, 3 * TICK / 100, Some(Duration::ZERO));
    });
    let registry = driven.registry.clone();
    let subscriber = registry.subscribe(1 << 20);
    let stop = Stop::default();
    // Time goes on only while a thread waits for it with a silent connection: as many ticks as rounds, however the threads are run.
    let (waiting, ticks) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let wait_in_silence = || {
        waiting.fetch_add(1, Ordering::SeqCst);
        let until = ticks.load(Ordering::SeqCst) + 3;
        while ticks.load(Ordering::SeqCst) < until && !stop.is_said() {
            thread::yield_now();
        }
        waiting.fetch_sub(1, Ordering::SeqCst);
    };
    thread::scope(|scope| {
        // Dropped first: a failure in here ends the others, for whom the scope waits.
        let _stops = stop.clone();
        let beating: Vec<_> = (0..3)
            .map(|n| {
                let (registry, wait_in_silence) = (registry.clone(), &wait_in_silence);
                scope.spawn(move || {
                    for round in 0..2_000 {
                        // All threads have connections of the same workers.
                        let session = join(&registry, &format!("w{}", round % 3));
                        for beat in 0..20 {
                            beat_all([&session]);
                            if beat % 7 == n {
                                thread::yield_now();
                            }
                        }
                        if round % 10 == 0 {
                            wait_in_silence();
                            beat_all([&session]);
                        }
                        if round % 5 == 0 {
                            let _ = registry.signal("w1", WorkerState::Quiet);
                        }
                    }
                })
            })
            .collect();
        while beating.iter().any(|thread| !thread.is_finished()) {
            if waiting.load(Ordering::SeqCst) > 0 {
                driven.ticks(1);
                ticks.fetch_add(1, Ordering::SeqCst);
            }
            thread::yield_now();
        }
    });
    driven.ticks(20);
    let mut late = BTreeMap::new();
    let (mut lates, mut backs) = (0, 0);
    for event in events(&subscriber) {
        match event {
            Event::Joined(worker) => assert_eq!(late.insert(worker.incarnation(), false), None),
            Event::Late(worker) => {
                lates += 1;
                assert_eq!(late.insert(worker.incarnation(), true), Some(false), "twice");
            }
            Event::Back { incarnation, .. } => {
                backs += 1;
                assert_eq!(late.insert(incarnation, false), Some(true), "nobody was late");
            }
            Event::Told { incarnation, .. } => assert!(late.contains_key(&incarnation)),
            Event::Ended(ended) => drop(late.remove(&ended.worker.incarnation()).expect("it lived")),
            _ => {}
        }
    }
    assert!(late.is_empty(), "all have ended");
    assert!(lates > 0 && backs > 0, "{lates} {backs}");
    assert_eq!(registry.stats().late, 0);
}
