//! loom on the protocols that span words: what is decided by a word and a map, a word and a lock, a word and a queue.
//!
//! `RUSTFLAGS="--cfg heartwheel_loom" cargo test --release --lib engine::explored`
//!
//! Bounds: two threads, one call or two in each, at most [`PREEMPTIONS`] times that a thread is interrupted where it could have gone on.
//! What it cannot see: the map is a stand-in of one shard (`map`); queues, channels and the pointer to the policy are the real ones, whose
//! calls are one step each; numbers beside the words (`Number`, `Count`, `Flag`) are not explored. The rest of what loom cannot see is said in `vitals::explored`; because of that, each
//! race is explored twice, with either side on the first thread.

use std::sync::Arc;
use std::task::{Context, Poll, Wake as Woken, Waker};
use std::time::{Duration, Instant};

use loom::thread;

use super::*;
use crate::{Beat, EndReason, Event, EventKind, Hello, LeaseError, Policy, Registry, Session, WorkerState};

/// Almost every known fault of this kind needs one or two.
const PREEMPTIONS: usize = 3;

const TICK: Duration = Duration::from_millis(1);

/// Explores `model`, with either side of its race on the first thread. It says which of two outcomes it came to, and must have come to
/// both: a race that always ends the same way is none.
fn explore(model: impl Fn(&Bed) -> bool + Clone + Send + Sync + 'static) {
    let came_to: Arc<[Count; 2]> = Arc::default();
    for swapped in [false, true] {
        let (model, came_to) = (model.clone(), came_to.clone());
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(PREEMPTIONS);
        builder.check(move || came_to[usize::from(model(&Bed::new(swapped)))].up(1));
    }
    assert!(came_to.iter().all(|times| times.get() > 0), "one outcome only: {came_to:?}");
}

/// A registry where a worker that is silent, and a lease of one tick, is due at the third pass.
#[derive(Clone)]
struct Bed {
    registry: Registry,
    start: Instant,
    swapped: bool,
}

impl Bed {
    fn new(swapped: bool) -> Self {
        let policy = Policy { tick: TICK, ttl: TICK, grace: None, ..Policy::default() };
        Bed { registry: Registry::new(policy).unwrap(), start: crate::clock::now(), swapped }
    }

    fn connect(&self) -> Session {
        self.registry.connect(Hello::new("w1").unwrap().pid(1), |_| {}).unwrap()
    }

    /// Passes until right before the one in which everyone who was silent is due.
    fn almost(&self) {
        for tick in 0..3 {
            assert_eq!(self.pass(tick), 0);
        }
    }

    fn pass(&self, tick: u32) -> usize {
        self.registry.reap(self.start + tick * TICK, 1000).expired
    }

    /// Runs the two side by side.
    fn race<T: 'static, U: 'static>(
        &self,
        one: impl FnOnce(&Bed) -> T + 'static,
        other: impl FnOnce(&Bed) -> U + 'static,
    ) -> (T, U) {
        let beside = self.clone();
        if self.swapped {
            let beside = thread::spawn(move || one(&beside));
            let other = other(self);
            (beside.join().unwrap(), other)
        } else {
            let beside = thread::spawn(move || other(&beside));
            (one(self), beside.join().unwrap())
        }
    }
}

fn signal(bed: &Bed) {
    bed.registry.signal("w1", WorkerState::Quiet).unwrap();
}

/// Counts how often it is woken.
#[derive(Default)]
struct Wakes(Count);

impl Woken for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.up(1);
    }
}

/// G4, G5: who connects while the last connection closes is there afterwards, in the one incarnation or the next.
#[test]
fn connect_against_last_disconnect() {
    explore(|bed| {
        let old = bed.connect();
        let first = old.incarnation();
        let ((), new) = bed.race(move |_| drop(old), Bed::connect);
        let found = bed.registry.get("w1").expect("it is connected");
        assert_eq!(found.incarnation(), new.incarnation());
        assert_eq!((new.state(), found.connections()), (Ok(WorkerState::Running), 1));
        let stats = bed.registry.stats();
        let lives = u64::from(new.incarnation() != first) + 1;
        assert_eq!((stats.joined, stats.left, stats.live()), (lives, lives - 1, 1));
        lives == 1
    });
}

/// G2, G4, G5: who connects while its silent incarnation is reaped and taken out of the map is there afterwards.
#[test]
fn connect_against_reaping() {
    explore(|bed| {
        let old = bed.connect();
        bed.almost();
        let (expired, new) = bed.race(|bed| bed.pass(3), Bed::connect);
        let found = bed.registry.get("w1").expect("it is connected");
        assert_eq!(found.incarnation(), new.incarnation());
        assert_eq!(new.state(), Ok(WorkerState::Running));
        assert_eq!(new.incarnation() == old.incarnation(), expired == 0);
        assert_eq!(old.state().is_ok(), expired == 0);
        let stats = bed.registry.stats();
        assert_eq!((stats.live(), stats.expired), (1, expired as u64));
        expired == 0
    });
}

/// G1: a signal that was accepted holds for the process that leaves and is back at once, whichever came first.
#[test]
fn signal_against_reconnect() {
    explore(|bed| {
        let old = bed.connect();
        let (told, new) = bed.race(
            |bed| bed.registry.signal("w1", WorkerState::Quiet),
            |bed| {
                drop(old);
                bed.connect()
            },
        );
        if told.is_ok() {
            assert_eq!(new.state(), Ok(WorkerState::Quiet));
        }
        told.is_ok()
    });
}

/// A lease is completed or lost, never both, and nothing is left of it.
#[test]
fn completion_against_expiry() {
    explore(|bed| {
        let events = bed.registry.subscribe_to(crate::Filter::default().kinds([EventKind::Lost]), 4);
        let session = bed.connect();
        let lease = session.lease("j1", TICK).unwrap();
        bed.almost();
        // Only the lease is due.
        session.beat(&Beat::default()).unwrap();
        let (expired, completed) = bed.race(|bed| bed.pass(3), move |_| lease.complete().is_ok());
        assert_eq!(expired, 0);
        let lost = events.try_recv().is_some();
        assert!(completed != lost, "one of the two");
        assert!(events.try_recv().is_none());
        assert!(bed.registry.leases().is_empty() && session.held("j1").is_none());
        let stats = bed.registry.stats();
        assert_eq!(
            (stats.leases, stats.leases_completed, stats.leases_expired),
            (0, completed.into(), lost.into())
        );
        session.lease("j1", TICK).expect("it is free again");
        completed
    });
}

/// A lease is completed or ends with its holder, never both, and the ended holder holds nothing that is counted.
#[test]
fn completion_against_the_holders_death() {
    explore(|bed| {
        let session = bed.connect();
        let lease = session.lease("j1", 10 * TICK).unwrap();
        let ((), completed) = bed.race(move |_| drop(session), move |_| lease.complete().is_ok());
        let stats = bed.registry.stats();
        assert_eq!((stats.leases, stats.leases_completed), (0, completed.into()));
        assert_eq!(stats.leases_lost_with_holder, (!completed).into());
        assert_eq!(bed.registry.engine().counters.ended_holders.get(), 0);
        assert!(bed.registry.leases().is_empty());
        completed
    });
}

/// G6: once a signal returned, a worker holds what it will hold: a lease that is granted beside the signal can be seen by then, and one that
/// is refused cannot.
#[test]
fn lease_against_signal() {
    explore(|bed| {
        let session = Arc::new(bed.connect());
        let (looks, leases) = (session.clone(), session.clone());
        let (held, granted) = bed.race(
            move |bed| {
                signal(bed);
                (looks.held("j1").is_some(), bed.registry.get("w1").unwrap().leases())
            },
            move |_| leases.lease("j1", TICK).map(drop),
        );
        match &granted {
            Ok(()) => assert_eq!(held, (true, 1)),
            Err(refused) => {
                assert_eq!(refused, &LeaseError::Told(WorkerState::Quiet));
                assert_eq!(held, (false, 0));
                assert!(bed.registry.leases().is_empty() && bed.registry.stats().leases == 0);
            }
        }
        granted.is_ok()
    });
}

/// Work whose lease has ended is free, though the map may still have it.
#[test]
fn lease_against_the_end_of_the_one_before() {
    explore(|bed| {
        let session = Arc::new(bed.connect());
        let lease = session.lease("j1", TICK).unwrap();
        let (before, first) = (lease.clone(), lease.token());
        let beside = session.clone();
        let ((), (ended, again)) = bed.race(
            move |_| lease.complete().unwrap(),
            move |_| (before.ended().is_some(), beside.lease("j1", TICK).map(|lease| lease.token())),
        );
        assert!(again.is_ok() || !ended, "{again:?}");
        assert!(again.as_ref().is_ok_and(|&token| token > first) || again.is_err());
        drop(session);
        again.is_ok()
    });
}

/// A transition beside a subscription is in the stream, or in the snapshot that is taken after it.
#[test]
fn subscription_against_publication() {
    explore(|bed| {
        let session = bed.connect();
        let ((), (snapshot, events)) = bed.race(signal, |bed| bed.registry.watch(4));
        let told = matches!(events.try_recv(), Some(Ok(Event::Told { .. })));
        assert!(told || snapshot.workers()[0].state() == WorkerState::Quiet);
        drop(session);
        told
    });
}

/// G6: who waits for a change sees it, or is woken.
#[test]
fn signal_against_a_wait() {
    explore(|bed| {
        let session = bed.connect();
        let woken = Arc::new(Wakes::default());
        let waker = Waker::from(woken.clone());
        let ((), (waits, _session)) = bed.race(signal, move |_| {
            let mut task = Context::from_waker(&waker);
            (std::pin::pin!(session.changed(WorkerState::Running)).poll(&mut task), session)
        });
        match waits {
            Poll::Ready(told) => assert_eq!(told, Ok(WorkerState::Quiet)),
            Poll::Pending => assert_eq!(woken.0.get(), 1),
        }
        waits.is_pending()
    });
}

/// Who waits for an event has it, or is woken by a pass that the publisher called for.
#[test]
fn publication_against_a_reader_that_goes_to_sleep() {
    explore(|bed| {
        let events = bed.registry.subscribe(1);
        let woken = Arc::new(Wakes::default());
        let waker = Waker::from(woken.clone());
        let (session, (had, events)) = bed.race(Bed::connect, move |_| {
            let had = events.poll_recv(&mut Context::from_waker(&waker)).is_ready();
            (had, events)
        });
        if !had {
            assert!(bed.registry.engine().wakeup.1.try_recv().is_ok(), "the driver is called");
            bed.pass(0);
            assert_eq!(woken.0.get(), 1);
            assert!(events.try_recv().is_some());
        }
        drop(session);
        had
    });
}

/// A task that emptied a channel beside an event that did not fit, and sleeps, knows of it or is woken for it.
#[test]
fn overflow_against_a_reader_that_catches_up() {
    explore(|bed| {
        let events = bed.registry.subscribe(1);
        let session = bed.connect();
        let woken = Arc::new(Wakes::default());
        let waker = Waker::from(woken.clone());
        let ((), (read, events)) = bed.race(signal, move |_| {
            let mut task = Context::from_waker(&waker);
            let mut read = 0;
            while let Poll::Ready(Some(item)) = events.poll_recv(&mut task) {
                read += item.map_or_else(|lagged| lagged.0, |_| 1);
            }
            (read, events)
        });
        if read < 2 {
            assert!(bed.registry.engine().wakeup.1.try_recv().is_ok(), "the driver is called");
            bed.pass(0);
            assert_eq!(woken.0.get(), 1);
            assert!(events.try_recv().is_some() && events.try_recv().is_none());
        }
        drop(session);
        read < 2
    });
}

/// A driver that goes to sleep because nobody is there is called by who comes.
#[test]
fn newcomer_against_a_driver_that_goes_to_sleep() {
    explore(|bed| {
        let (session, sleeps) = bed.race(Bed::connect, |bed| bed.registry.engine().may_park());
        if sleeps {
            assert!(bed.registry.engine().wakeup.1.try_recv().is_ok(), "it is called");
        }
        drop(session);
        sleeps
    });
}

/// G4: of two ends one is told, with the connections it closed.
#[test]
fn last_disconnect_against_reaping() {
    explore(|bed| {
        let events = bed.registry.subscribe_to(crate::Filter::default().kinds([EventKind::Ended]), 4);
        let session = bed.connect();
        bed.almost();
        let (expired, ()) = bed.race(|bed| bed.pass(3), move |_| drop(session));
        let Some(Ok(Event::Ended(ended))) = events.try_recv() else { panic!("it ended") };
        assert!(events.try_recv().is_none());
        assert_eq!(ended.reason, if expired == 1 { EndReason::Expired } else { EndReason::Left });
        assert_eq!(ended.worker.connections(), u32::from(expired == 1));
        let stats = bed.registry.stats();
        assert_eq!((stats.live(), stats.connections, stats.remembered), (0, 0, 0));
        assert!(bed.registry.get("w1").is_none());
        expired == 1
    });
}
