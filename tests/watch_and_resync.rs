//! A snapshot and the events after it are one story: folded into a map they are the registry, however slow the reader.

mod common;

use std::collections::BTreeMap;
use std::sync::Barrier;
use std::thread;

use common::{Choices, Driven, Happened, TTL_TICKS, drain, hello, join, registry};
use heartwheel::{
    Event, EventKind, Filter, Identity, Incarnation, Lagged, Registry, Snapshot, Subscriber, WorkerState,
};

/// The documented way to fold.
#[derive(Debug, Default, PartialEq, Eq)]
struct Fleet(BTreeMap<String, (Incarnation, WorkerState)>);

impl Fleet {
    fn of(snapshot: &Snapshot) -> Self {
        let known = |worker: &heartwheel::WorkerInfo| {
            (worker.wid().to_string(), (worker.incarnation(), worker.state()))
        };
        Fleet(snapshot.workers().iter().map(known).collect())
    }

    fn fold(&mut self, event: &Event) {
        match event {
            Event::Joined(worker) => {
                let new = (worker.incarnation(), worker.state());
                let known = self.0.entry(worker.wid().to_string()).or_insert(new);
                *known = new.max(*known);
            }
            Event::Told { wid, incarnation, state } => {
                if let Some(known) = self.0.get_mut(wid.as_str()).filter(|known| known.0 == *incarnation) {
                    known.1 = known.1.max(*state);
                }
            }
            Event::Ended(ended) => {
                let wid = ended.worker.wid().as_str();
                if self.0.get(wid).is_some_and(|known| known.0 == ended.worker.incarnation()) {
                    self.0.remove(wid);
                }
            }
            // What changes neither who is there nor what it was told.
            Event::Late(_) | Event::Back { .. } => {}
            other => panic!("{other:?}"),
        }
    }

    /// Everything that waits; returns how often it had to begin anew.
    fn follow(&mut self, events: &Subscriber, registry: &Registry) -> u32 {
        let mut resyncs = 0;
        while let Some(item) = events.try_recv() {
            match item {
                Ok(event) => self.fold(&event),
                Err(Lagged(missed)) => {
                    assert!(missed > 0);
                    resyncs += 1;
                    *self = Fleet::of(&events.resync(registry));
                }
            }
        }
        resyncs
    }
}

/// One thread's share of a burst: joins, ends, takeovers and signals among few wids.
fn churn(registry: &Registry, choices: &mut Choices, sessions: &mut Vec<heartwheel::Session>, steps: usize) {
    for _ in 0..steps {
        let wid = format!("w{}", choices.below(4));
        match choices.below(6) {
            0..3 => {
                let process = i64::try_from(choices.below(2)).unwrap();
                sessions.push(registry.connect(hello(&wid).pid(process), |_| {}).unwrap());
            }
            3 => drop(registry.signal(&wid, choices.state())),
            _ if sessions.is_empty() => {}
            _ => drop(sessions.swap_remove(choices.below(sessions.len()))),
        }
    }
}

#[test]
fn a_folded_map_is_the_registry_under_churn() {
    for (capacity, bursts) in [(1, 1500), (3, 1500), (8, 1500), (1000, 500)] {
        let registry = registry(|policy| policy.identity = Identity::Supersede);
        let barrier = Barrier::new(3);
        let (mut resyncs, mut quiet_bursts) = (0, 0);
        thread::scope(|scope| {
            for thread in 0..2 {
                let (registry, barrier) = (&registry, &barrier);
                scope.spawn(move || {
                    let mut choices = Choices::new(7 + thread + 10 * capacity as u64);
                    let mut sessions = Vec::new();
                    for _ in 0..bursts {
                        barrier.wait();
                        let steps = choices.below(20);
                        churn(registry, &mut choices, &mut sessions, steps);
                        barrier.wait();
                        // The reader looks, and compares.
                        barrier.wait();
                    }
                });
            }
            // A subscription in the midst of it now and then: the first snapshot is under churn, too.
            let mut followed: Option<(Fleet, Subscriber)> = None;
            for burst in 0..bursts {
                barrier.wait();
                let (fleet, events) = followed.get_or_insert_with(|| {
                    let (snapshot, events) = registry.watch(capacity);
                    (Fleet::of(&snapshot), events)
                });
                let mut resynced = 0;
                for _ in 0..3 {
                    resynced += fleet.follow(events, &registry);
                    thread::yield_now();
                }
                barrier.wait();
                resynced += fleet.follow(events, &registry);
                assert_eq!(*fleet, Fleet::of(&registry.snapshot()), "burst {burst}, capacity {capacity}");
                resyncs += resynced;
                quiet_bursts += u32::from(resynced == 0);
                if burst % 5 == 4 {
                    followed = None;
                }
                barrier.wait();
            }
        });
        assert!(quiet_bursts > 50, "only {quiet_bursts} bursts of {capacity} were told by events alone");
        assert_eq!(resyncs > 50, capacity < 1000, "{resyncs} times anew at {capacity}");
    }
}

/// A snapshot that takes a while, in the midst of a burst whose rest is told by events alone.
#[test]
fn a_resync_at_any_moment_loses_nothing() {
    let registry = registry(|policy| policy.identity = Identity::Supersede);
    let _fleet: Vec<_> = (0..3000).map(|n| join(&registry, &format!("bystander-{n}"))).collect();
    let events = registry.subscribe(1000);
    let mut fleet = Fleet::of(&registry.snapshot());
    let mut choices = Choices::new(1);
    for burst in 0..300 {
        let barrier = Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut choices = Choices::new(burst);
                let mut sessions = Vec::new();
                barrier.wait();
                churn(&registry, &mut choices, &mut sessions, 200);
            });
            barrier.wait();
            (0..choices.below(20_000)).for_each(|_| std::hint::spin_loop());
            fleet = Fleet::of(&events.resync(&registry));
        });
        assert_eq!(fleet.follow(&events, &registry), 0, "there is room for the whole burst");
        assert_eq!(fleet, Fleet::of(&registry.snapshot()), "burst {burst}");
    }
}

/// Heavy churn without a pause, reaping included, and the end of it.
#[test]
fn a_folded_map_is_the_registry_in_the_end() {
    let mut driven = Driven::new(|policy| policy.identity = Identity::Supersede);
    let stop = common::Stop::default();
    let registry = driven.registry.clone();
    let (snapshot, events) = registry.watch(2);
    let mut fleet = Fleet::of(&snapshot);
    thread::scope(|scope| {
        // Dropped first: a failure in here ends the others, for whom the scope waits.
        let _stops = stop.clone();
        for thread in 0..2 {
            let (registry, stop) = (&registry, &stop);
            scope.spawn(move || {
                let mut choices = Choices::new(thread);
                let mut sessions = Vec::new();
                while !stop.is_said() {
                    churn(registry, &mut choices, &mut sessions, 20);
                }
            });
        }
        for _ in 0..400 {
            driven.ticks(1);
            fleet.follow(&events, &registry);
        }
        stop.now();
    });
    fleet.follow(&events, &registry);
    assert_eq!(fleet, Fleet::of(&registry.snapshot()));
    let _silent = join(&registry, "silent");
    driven.ticks(TTL_TICKS + 2);
    fleet.follow(&events, &registry);
    assert_eq!(fleet, Fleet::default());
}

#[test]
fn a_resync_drops_what_waits_and_tells_nothing_twice() {
    let registry = registry(|_| {});
    let (snapshot, events) = registry.watch(3);
    assert!(snapshot.workers().is_empty());
    let sessions: Vec<_> = (0..10).map(|n| join(&registry, &format!("w{n}"))).collect();
    assert_eq!(events.resync(&registry).workers().len(), 10);
    assert!(events.try_recv().is_none(), "neither an event nor a Lagged is left");
    drop(sessions);
    assert_eq!(drain_some(&events), (3, 7));
    assert_eq!(events.resync(&registry).workers().len(), 0);
    let _next = join(&registry, "next");
    assert!(matches!(&drain(&events)[..], [Happened::Joined { wid, .. }] if wid == "next"));
}

#[test]
fn a_resync_with_the_mark_in_the_channel_goes_on_without_it() {
    let registry = registry(|_| {});
    let events = registry.subscribe(2);
    let mut sessions: Vec<_> = (0..4).map(|n| join(&registry, &format!("w{n}"))).collect();
    assert!(events.try_recv().is_some_and(|item| item.is_ok()));
    // The free place goes to the mark, and this one is missed behind it.
    sessions.push(join(&registry, "w4"));
    assert_eq!(events.resync(&registry).workers().len(), 5);
    sessions.push(join(&registry, "w5"));
    sessions.push(join(&registry, "w6"));
    assert_eq!(drain(&events).len(), 2);
}

#[test]
fn a_resync_is_of_the_whole_fleet_whatever_was_asked_for() {
    let registry = registry(|_| {});
    let events = registry.subscribe_to(Filter::default().kinds([EventKind::Ended]).workers(|_| false), 1);
    let session = join(&registry, "w");
    assert_eq!(events.resync(&registry).workers().len(), 1);
    drop(session);
    assert!(events.try_recv().is_none());
}

fn drain_some(events: &Subscriber) -> (u64, u64) {
    let (mut read, mut missed) = (0, 0);
    while let Some(item) = events.try_recv() {
        match item {
            Ok(_) => read += 1,
            Err(Lagged(count)) => missed += count,
        }
    }
    (read, missed)
}
