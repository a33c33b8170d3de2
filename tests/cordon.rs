//! The cordon: no work for a worker, reversible, and apart from what it was told.

mod common;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use common::{Driven, TTL, events, hello, join};
use heartwheel::{Beat, Event, LeaseError, WorkerState};

#[test]
fn it_is_lifted_again_and_changes_no_state() {
    let driven = Driven::new(|_| {});
    let session = join(&driven.registry, "w");
    let subscriber = driven.registry.subscribe(100);
    let held = session.lease("held", TTL).unwrap();
    for _ in 0..3 {
        assert_eq!(driven.registry.cordon("w", true), Ok(true));
        assert_eq!(driven.registry.cordon("w", true), Ok(false), "so already");
        assert!(!session.takes_work());
        assert_eq!(session.lease("job", TTL).unwrap_err(), LeaseError::Cordoned);
        assert_eq!(session.beat(&Beat::default()), Ok(WorkerState::Running));
        let info = driven.registry.get("w").unwrap();
        assert!(info.is_cordoned() && !info.takes_work());
        assert_eq!((info.state(), info.leases()), (WorkerState::Running, 1));
        assert!(driven.registry.snapshot().workers()[0].is_cordoned(), "at once in a snapshot");
        held.renew(TTL).unwrap();
        assert_eq!(driven.registry.cordon("w", false), Ok(true));
        assert_eq!(driven.registry.cordon("w", false), Ok(false));
        assert!(session.takes_work());
        session.lease("job", TTL).unwrap().complete().unwrap();
    }
    let cordoned = events(&subscriber).into_iter().map(|event| match event {
        Event::Cordoned { wid, incarnation, cordoned } => {
            assert_eq!((wid.as_str(), incarnation), ("w", session.incarnation()));
            cordoned
        }
        other => panic!("{other:?}"),
    });
    assert_eq!(cordoned.collect::<Vec<_>>(), [true, false].repeat(3), "one event each");
    assert!(driven.registry.cordon("nobody", true).is_err());
    assert_eq!(driven.registry.stats().leases, 1, "what it held it holds");
}

#[test]
fn it_reaches_every_connection_and_those_to_come() {
    let driven = Driven::new(|_| {});
    let first = join(&driven.registry, "w");
    driven.registry.cordon("w", true).unwrap();
    let second = join(&driven.registry, "w");
    assert!(!first.takes_work() && !second.takes_work());
    driven.registry.signal("w", WorkerState::Quiet).unwrap();
    driven.registry.cordon("w", false).unwrap();
    assert!(!first.takes_work(), "it was told quiet meanwhile");
}

#[test]
fn the_same_process_comes_back_cordoned_and_no_other() {
    for left in [true, false] {
        for (pid, ticks, kept) in [(1, 0, true), (1, 9, true), (2, 0, false), (1, 13, false)] {
            let mut driven = Driven::new(|_| {});
            let session = join(&driven.registry, "w");
            driven.registry.cordon("w", true).unwrap();
            if left {
                drop(session);
            } else {
                driven.ticks(12);
                assert!(session.state().is_err());
            }
            driven.ticks(ticks);
            let again = driven.registry.connect(hello("w").pid(pid), |_| {}).unwrap();
            assert_eq!(again.takes_work(), !kept, "{left} {pid} {ticks}");
            assert_eq!(again.state(), Ok(WorkerState::Running));
            assert_eq!(driven.registry.get("w").unwrap().is_cordoned(), kept);
            driven.registry.cordon("w", false).unwrap();
            drop(again);
            let again = join(&driven.registry, "w");
            assert!(again.takes_work(), "lifted is lifted");
        }
    }
}

#[test]
fn a_cordon_that_was_lifted_leaves_nothing_behind() {
    let mut driven = Driven::new(|_| {});
    let session = join(&driven.registry, "w");
    driven.registry.cordon("w", true).unwrap();
    driven.registry.cordon("w", false).unwrap();
    drop(session);
    assert_eq!(driven.registry.stats().remembered, 0);
    let session = join(&driven.registry, "w");
    driven.registry.cordon("w", true).unwrap();
    drop(session);
    assert_eq!(driven.registry.stats().remembered, 1);
    driven.ticks(13);
    assert_eq!(driven.registry.stats().remembered, 0);
    assert_eq!(driven.registry.stats().filed, 0);
    assert!(driven.registry.cordon("w", true).is_err());
}

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn it_wakes_who_waits_for_a_change_and_does_not_return_it() {
    let driven = Driven::new(|_| {});
    let session = join(&driven.registry, "w");
    let wakes = Arc::new(Wakes::default());
    let waker = Waker::from(wakes.clone());
    let mut changed = std::pin::pin!(session.changed(WorkerState::Running));
    let mut poll = || changed.as_mut().poll(&mut Context::from_waker(&waker));
    for n in 1..5 {
        assert_eq!(poll(), Poll::Pending);
        driven.registry.cordon("w", n % 2 == 1).unwrap();
        assert_eq!(wakes.0.load(Ordering::SeqCst), n);
    }
    assert_eq!(poll(), Poll::Pending);
    driven.registry.cordon("w", false).unwrap();
    assert_eq!(wakes.0.load(Ordering::SeqCst), 4, "nothing changed");
    driven.registry.signal("w", WorkerState::Quiet).unwrap();
    assert_eq!(wakes.0.load(Ordering::SeqCst), 5);
    assert_eq!(poll(), Poll::Ready(Ok(WorkerState::Quiet)));
}
