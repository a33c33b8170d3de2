//! Waiting for what a worker is told, by threads.

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

use common::{Choices, Driven, PATIENCE, Stop, TTL_TICKS, hello, join, now, registry};
use heartwheel::{EndReason, Identity, Reaper, Session, WorkerState};

const SHORT: Duration = Duration::from_millis(30);

/// Waits long, and fails if the wait ends by its time only.
fn wait(session: &Session, known: WorkerState) -> Result<WorkerState, heartwheel::Gone> {
    let start = now();
    let told = session.wait_for_change(known, PATIENCE);
    assert!(start.elapsed() < PATIENCE, "a wake-up was lost");
    told.map(|told| told.expect("the time was not over"))
}

#[test]
fn what_differs_already_is_told_at_once() {
    let registry = registry(|_| {});
    let session = join(&registry, "w");
    assert_eq!(wait(&session, WorkerState::Quiet), Ok(WorkerState::Running));
    registry.signal("w", WorkerState::Terminate).unwrap();
    assert_eq!(wait(&session, WorkerState::Running), Ok(WorkerState::Terminate));
    let told = session.wait_for_change(WorkerState::Quiet, Duration::ZERO);
    assert_eq!(told, Ok(Some(WorkerState::Terminate)), "no time is enough to look");
}

#[test]
fn when_the_time_is_over_nothing_has_changed_and_nothing_is_left_behind() {
    let registry = registry(|_| {});
    let session = join(&registry, "w");
    let start = now();
    assert_eq!(session.wait_for_change(WorkerState::Running, SHORT), Ok(None));
    assert!(start.elapsed() >= SHORT);
    assert_eq!(session.wait_for_change(WorkerState::Running, Duration::ZERO), Ok(None));
    // Were the waker still there, this thread would be unparked by the signal.
    while thread_has_token() {}
    registry.signal("w", WorkerState::Quiet).unwrap();
    assert!(!thread_has_token());
}

/// Whether a park of this thread comes back at once.
fn thread_has_token() -> bool {
    let start = now();
    thread::park_timeout(SHORT);
    start.elapsed() < SHORT / 2
}

#[test]
fn an_unpark_for_no_reason_does_not_end_a_wait() {
    let registry = registry(|_| {});
    let session = join(&registry, "w");
    let stop = Stop::default();
    let waiter = thread::current();
    thread::scope(|scope| {
        // Dropped first: a failure in here ends the others, for whom the scope waits.
        let _stops = stop.clone();
        scope.spawn(|| {
            while !stop.is_said() {
                waiter.unpark();
            }
        });
        let start = now();
        assert_eq!(session.wait_for_change(WorkerState::Running, SHORT), Ok(None));
        assert!(start.elapsed() >= SHORT);
        scope.spawn(|| {
            thread::sleep(SHORT);
            registry.signal("w", WorkerState::Quiet).unwrap();
        });
        assert_eq!(wait(&session, WorkerState::Running), Ok(WorkerState::Quiet));
        stop.now();
    });
}

#[test]
fn the_end_of_the_incarnation_ends_the_wait() {
    // Reaped, by a reaper's thread.
    let quick = registry(|policy| {
        (policy.tick, policy.ttl) = (Duration::from_millis(10), Duration::from_millis(50));
    });
    let _reaper = Reaper::spawn(&quick).unwrap();
    let session = join(&quick, "w");
    assert!(wait(&session, WorkerState::Running).is_err());
}

#[test]
fn a_successor_ends_the_wait_and_a_wait_after_the_end_does_not_begin() {
    let registry = registry(|policy| policy.identity = Identity::Supersede);
    let session = join(&registry, "w");
    thread::scope(|scope| {
        let waiter = scope.spawn(|| wait(&session, WorkerState::Running));
        thread::sleep(SHORT);
        drop(
            registry.connect(hello("w").pid(2), |reason| assert_eq!(reason, EndReason::Superseded)).unwrap(),
        );
        assert!(waiter.join().unwrap().is_err());
    });
    assert!(wait(&session, WorkerState::Running).is_err());
    assert!(session.wait_for_change(WorkerState::Running, Duration::ZERO).is_err());
}

#[test]
fn every_connection_of_a_worker_may_wait() {
    let mut driven = Driven::new(|_| {});
    let sessions: Vec<_> = (0..8).map(|_| join(&driven.registry, "w")).collect();
    for (known, next) in [(WorkerState::Running, Some(WorkerState::Quiet)), (WorkerState::Quiet, None)] {
        let ready = Barrier::new(sessions.len() + 1);
        thread::scope(|scope| {
            let waiters: Vec<_> = sessions
                .iter()
                .map(|session| {
                    scope.spawn(|| {
                        ready.wait();
                        wait(session, known).ok()
                    })
                })
                .collect();
            ready.wait();
            thread::sleep(SHORT);
            match next {
                Some(next) => drop(driven.registry.signal("w", next)),
                None => drop(driven.ticks(TTL_TICKS + 2)),
            }
            for waiter in waiters {
                assert_eq!(waiter.join().unwrap(), next);
            }
        });
    }
}

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_wait_that_is_over_leaves_the_one_that_took_its_place() {
    let registry = registry(|_| {});
    let session = join(&registry, "w");
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    let mut changed = std::pin::pin!(session.changed(WorkerState::Running));
    thread::scope(|scope| {
        let first = scope.spawn(|| session.wait_for_change(WorkerState::Running, 4 * SHORT));
        thread::sleep(SHORT);
        assert!(changed.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        assert_eq!(first.join().unwrap(), Ok(None));
    });
    registry.signal("w", WorkerState::Quiet).unwrap();
    assert_eq!(woken.0.load(Ordering::SeqCst), 1);
    assert_eq!(Arc::strong_count(&woken), 2, "held by the test alone");
}

#[test]
fn a_wait_whose_place_was_taken_tells_what_changed_when_its_time_is_over() {
    let registry = registry(|_| {});
    let session = join(&registry, "w");
    let waker = Waker::from(Arc::new(Woken::default()));
    let mut changed = std::pin::pin!(session.changed(WorkerState::Running));
    thread::scope(|scope| {
        let first = scope.spawn(|| session.wait_for_change(WorkerState::Running, 4 * SHORT));
        thread::sleep(SHORT);
        assert!(changed.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        registry.signal("w", WorkerState::Quiet).unwrap();
        assert_eq!(first.join().unwrap(), Ok(Some(WorkerState::Quiet)));
    });
}

/// Waiters that fall asleep, time out and are told, all at once: none sleeps through what it is told.
#[test]
fn no_wake_up_is_lost() {
    let registry = registry(|_| {});
    for round in 0..3000_u64 {
        let session = join(&registry, "w");
        thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let mut choices = Choices::new(round);
                let mut told = WorkerState::Running;
                while told < WorkerState::Terminate {
                    let next = if choices.below(2) == 0 {
                        wait(&session, told).unwrap()
                    } else {
                        session.wait_for_change(told, Duration::from_micros(20)).unwrap().unwrap_or(told)
                    };
                    assert!(next >= told);
                    told = next;
                }
            });
            for state in [WorkerState::Quiet, WorkerState::Terminate] {
                (0..round % 512).for_each(|_| std::hint::spin_loop());
                registry.signal("w", state).unwrap();
            }
            waiter.join().unwrap();
        });
    }
}
