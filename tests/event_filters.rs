//! A subscriber is told what it asked for: kinds are sorted out before they take room, workers where it reads.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use common::{Driven, Happened, TTL_TICKS, drain, hello, join, registry};
use heartwheel::{Event, EventKind, Filter, Lagged, WorkerInfo, WorkerState};

fn is_blue(worker: &WorkerInfo) -> bool {
    worker.labels().any(|label| label == "blue")
}

fn of_wid(happened: &Happened) -> &str {
    match happened {
        Happened::Joined { wid, .. } | Happened::Told { wid, .. } | Happened::Ended { wid, .. } => wid,
        Happened::Gap(_) => "",
    }
}

#[test]
fn every_event_of_the_workers_asked_for_comes_and_no_other() {
    let mut driven = Driven::new(|_| {});
    let blue = driven.registry.subscribe_to(Filter::default().workers(is_blue), 1000);
    let all = driven.registry.subscribe(1000);
    let connect = |wid: &str, label: &str| driven.registry.connect(hello(wid).label(label), |_| {}).unwrap();
    let sessions = [connect("b1", "blue"), connect("r1", "red"), connect("b2", "blue"), connect("r2", "red")];
    driven.registry.signal("b1", WorkerState::Quiet).unwrap();
    driven.registry.signal("r1", WorkerState::Quiet).unwrap();
    driven.registry.signal_all(WorkerState::Terminate);
    let [b1, r1, _b2, _r2] = sessions;
    drop((b1, r1));
    driven.ticks(1);
    driven.leap(Duration::from_secs(1000));
    driven.ticks(TTL_TICKS + 2);
    let expected: Vec<_> =
        drain(&all).into_iter().filter(|happened| !of_wid(happened).starts_with('r')).collect();
    // Of each: joined, told, ended; one was told twice. And the pause of the engine, which is about no worker.
    assert_eq!(expected.len(), 8);
    assert_eq!(drain(&blue), expected);
}

#[test]
fn a_predicate_sees_the_worker_as_it_was_right_after_what_happened() {
    let registry = registry(|_| {});
    let filter =
        Filter::default().kinds([EventKind::Told]).workers(|worker| worker.state() == WorkerState::Quiet);
    let events = registry.subscribe_to(filter, 10);
    let session = join(&registry, "w");
    registry.signal("w", WorkerState::Quiet).unwrap();
    registry.signal("w", WorkerState::Terminate).unwrap();
    drop(session);
    assert!(matches!(drain(&events)[..], [Happened::Told { state: WorkerState::Quiet, .. }]));
}

#[test]
fn each_call_narrows_a_filter() {
    let registry = registry(|_| {});
    let filter = Filter::default()
        .kinds([EventKind::Joined, EventKind::Told])
        .kinds([EventKind::Joined, EventKind::Ended])
        .workers(is_blue)
        .workers(|worker| worker.pid() == Some(2));
    let events = registry.subscribe_to(filter.clone(), 10);
    for (wid, label, pid) in [("a", "blue", 1), ("b", "red", 2), ("c", "blue", 2)] {
        drop(registry.connect(hello(wid).label(label).pid(pid), |_| {}).unwrap());
    }
    assert!(matches!(&drain(&events)[..], [Happened::Joined { wid, .. }] if wid == "c"));
    assert_eq!(format!("{filter:?}"), r#"Filter { kinds: [Joined], workers: "some" }"#);
}

#[test]
fn what_is_missed_is_counted_by_kind_and_never_too_low() {
    let registry = registry(|_| {});
    let ends = registry.subscribe_to(Filter::default().kinds([EventKind::Ended]), 3);
    let blue = registry.subscribe_to(Filter::default().kinds([EventKind::Joined]).workers(is_blue), 3);
    for n in 0..20 {
        let label = if n % 2 == 0 { "red" } else { "blue" };
        drop(registry.connect(hello(&format!("w{n}")).label(label), |_| {}).unwrap());
    }
    let count = |subscriber: &heartwheel::Subscriber| {
        let (mut read, mut missed) = (0, 0);
        while let Some(item) = subscriber.try_recv() {
            match item {
                Ok(_) => read += 1,
                Err(Lagged(count)) => missed += count,
            }
        }
        (read, missed)
    };
    assert_eq!(count(&ends), (3, 17), "exact: 20 ended");
    // Red, blue and red were kept; of the 17 others nine were blue, but nobody may know.
    assert_eq!(count(&blue), (1, 17));
}

/// G11: the predicate is user code; it runs on the thread that reads.
#[test]
fn a_predicate_is_called_by_the_reader_with_nothing_locked() {
    let mut driven = Driven::new(|_| {});
    let calls = Arc::new(AtomicUsize::new(0));
    let (counted, registry, reader) = (calls.clone(), driven.registry.clone(), thread::current().id());
    let events = driven.registry.subscribe_to(
        Filter::default().workers(move |worker| {
            assert_eq!(thread::current().id(), reader);
            assert_ne!(worker.wid().as_str(), "panics", "a predicate that panics, on purpose");
            counted.fetch_add(1, Ordering::SeqCst);
            // Whatever it may call.
            let _ = registry.signal(worker.wid().as_str(), WorkerState::Terminate);
            let _ = (registry.snapshot(), registry.subscribe(1));
            drop(join(&registry, worker.wid().as_str()));
            drop(registry.reap(common::now(), 10));
            true
        }),
        5,
    );
    thread::scope(|scope| {
        scope.spawn(|| {
            let sessions = [join(&driven.registry, "w"), join(&driven.registry, "panics")];
            driven.registry.signal("w", WorkerState::Quiet).unwrap();
            drop(sessions);
        });
    });
    driven.ticks(1);
    assert_eq!(calls.load(Ordering::SeqCst), 0, "nobody has read");
    assert!(matches!(events.try_recv(), Some(Ok(Event::Joined(_)))));
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| events.try_recv()));
    assert!(panicked.is_err());
    assert!(matches!(events.try_recv(), Some(Ok(Event::Told { .. }))), "it costs what it was asked about");
    assert_eq!(calls.load(Ordering::SeqCst), 2);
}

#[test]
fn a_wait_ends_in_time_though_unwanted_events_keep_coming() {
    let registry = registry(|_| {});
    let events = registry.subscribe_to(Filter::default().workers(|_| false), 1 << 16);
    let stop = common::Stop::default();
    thread::scope(|scope| {
        // Dropped first: a failure in here ends the others, for whom the scope waits.
        let _stops = stop.clone();
        scope.spawn(|| {
            while !stop.is_said() {
                drop(join(&registry, "w"));
            }
        });
        let start = common::now();
        for _ in 0..5 {
            // All it may be given is how many it missed.
            assert!(!matches!(events.recv_timeout(Duration::from_millis(20)), Some(Ok(_))));
        }
        stop.now();
        assert!(start.elapsed() < common::PATIENCE);
    });
}

#[test]
fn who_waits_for_what_it_asked_for_does_not_give_up_at_what_it_did_not() {
    let registry = registry(|_| {});
    let blue = registry.subscribe_to(Filter::default().workers(is_blue), 10);
    let _red = registry.connect(hello("r").label("red"), |_| {}).unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| blue.recv_timeout(common::PATIENCE));
        thread::sleep(Duration::from_millis(50));
        let _blue = registry.connect(hello("b").label("blue"), |_| {}).unwrap();
        let got = waits.join().unwrap();
        assert!(matches!(&got, Some(Ok(Event::Joined(worker))) if worker.wid().as_str() == "b"), "{got:?}");
    });
}
