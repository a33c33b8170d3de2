//! G5: after its end every handle of an incarnation answers `Gone`, and nothing it does touches a successor. Incarnations grow.

mod common;

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use common::{Closed, Driven, Stop, TTL_TICKS, block_on, hello, join};
use heartwheel::{Beat, Identity, WorkerState};

#[test]
fn a_stale_handle_answers_gone_and_touches_no_successor() {
    for expired in [true, false] {
        let mut driven = Driven::new(|policy| policy.identity = Identity::Supersede);
        let closed = Closed::default();
        let stale = driven.registry.connect(hello("w"), closed.closer(0)).unwrap();
        let also = driven.registry.connect(hello("w"), closed.closer(1)).unwrap();
        if expired {
            assert_eq!(driven.ticks(TTL_TICKS + 2), 1);
        }
        let successor = driven.registry.connect(hello("w").pid(2), closed.closer(2)).unwrap();
        driven.settle();
        assert!(successor.incarnation() > stale.incarnation());
        driven.ticks(3);

        let strong = Beat::default().rss_kb(7).state(WorkerState::Terminate);
        assert!(stale.beat(&strong).is_err());
        assert!(stale.state().is_err());
        assert!(block_on(stale.changed(WorkerState::Running)).is_some_and(|told| told.is_err()));
        drop(stale);
        also.leave();

        let worker = driven.registry.get("w").expect("the successor is still there");
        assert_eq!(worker.incarnation(), successor.incarnation());
        assert_eq!((worker.state(), worker.connections(), worker.rss_kb()), (WorkerState::Running, 1, None));
        assert_eq!(worker.age(), common::TICK * 3, "nobody beat for it");
        assert_eq!(successor.beat(&Beat::default()), Ok(WorkerState::Running));
        assert_eq!(driven.registry.beat("w", &Beat::default()), Ok(WorkerState::Running));
        assert_eq!(closed.len(), 2, "the successor's connection was left open");
    }
}

#[test]
fn nothing_answers_for_one_that_is_gone_but_remembered() {
    let mut driven = Driven::new(|_| {});
    let session = join(&driven.registry, "w");
    driven.registry.signal("w", WorkerState::Quiet).unwrap();
    driven.ticks(TTL_TICKS + 2);
    assert_eq!(driven.registry.stats().remembered, 1);
    assert!(driven.registry.beat("w", &Beat::default()).is_err());
    assert!(driven.registry.signal("w", WorkerState::Terminate).is_err());
    assert_eq!(driven.registry.signal_all(WorkerState::Terminate), 0);
    assert!(driven.registry.get("w").is_none() && driven.registry.snapshot().workers().is_empty());
    assert!(session.beat(&Beat::default()).is_err());
}

#[test]
fn incarnations_grow_over_all_workers() {
    let driven = Driven::new(|_| {});
    let mut last = None;
    for n in 0..1000 {
        let session = join(&driven.registry, &format!("w{}", n % 7));
        assert!(Some(session.incarnation()) > last);
        last = Some(session.incarnation());
    }
}

/// The original answered OK for a worker that was just reaped, in one of six forced races.
#[test]
fn no_beat_by_wid_is_acknowledged_once_the_worker_was_reaped() {
    let mut driven = Driven::new(|policy| {
        (policy.tick, policy.ttl) = (Duration::from_millis(1), Duration::from_millis(2));
    });
    // Rounds whose worker has been reaped: there is none of that wid from then on.
    let reaped = AtomicU64::new(0);
    let refused = AtomicU64::new(0);
    let (registry, stop) = (driven.registry.clone(), Stop::default());
    let sessions = thread::scope(|scope| {
        let beaters: Vec<_> = (0..2)
            .map(|_| {
                let (registry, stop, reaped, refused) = (registry.clone(), stop.clone(), &reaped, &refused);
                scope.spawn(move || {
                    while !stop.is_said() {
                        let before = reaped.load(Ordering::SeqCst);
                        // A beat now and then, so that it is reaped in the middle of many.
                        if before > 0 {
                            let told = registry.beat(&format!("w{}", before - 1), &Beat::default());
                            assert!(told.is_err(), "acknowledged in round {before}");
                            refused.fetch_add(1, Ordering::SeqCst);
                        }
                        if registry.beat(&format!("w{before}"), &Beat::default()).is_ok() {
                            thread::sleep(Duration::from_micros(50));
                        }
                    }
                })
            })
            .collect();
        let mut sessions = Vec::new();
        for round in 0..200 {
            sessions.push(join(&registry, &format!("w{round}")));
            while driven.ticks(1) == 0 {}
            reaped.store(round + 1, Ordering::SeqCst);
            // Both beaters are on their way when the next one is reaped.
            common::wait_for("a beat for the one before is refused", || {
                refused.load(Ordering::SeqCst) > round
                    || beaters.iter().any(thread::ScopedJoinHandle::is_finished)
            });
        }
        stop.now();
        assert!(beaters.into_iter().all(|beater| beater.join().is_ok()));
        sessions
    });
    assert_eq!(registry.stats().expired, 200);
    assert!(sessions.iter().all(|session| session.state().is_err()));
}
