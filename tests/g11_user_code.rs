//! G11: no user code runs while anything is locked; a panic or a stall in a closer, a waker or a subscriber costs only itself.

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use common::{Closed, Driven, PATIENCE, TTL_TICKS, hello, join, registry, wait_for};
use heartwheel::{Beat, Identity, Reaper, Registry, WorkerState};

/// Everything that user code might call from within a callback; comes back only if nothing it needs is locked.
fn use_all(registry: &Registry, wid: &str) {
    let _ = registry.signal(wid, WorkerState::Terminate);
    let _ = registry.beat(wid, &Beat::default().state(WorkerState::Quiet));
    let _ = registry.get(wid);
    registry.signal_all(WorkerState::Running);
    let _ = registry.snapshot();
    let _ = registry.stats();
    let _ = registry.subscribe(1);
    registry.set_policy((*registry.policy()).clone()).unwrap();
    let session = registry.connect(hello(wid), |_| {}).unwrap();
    let _ = session.beat(&Beat::default());
    drop(session);
    drop(join(registry, "from-a-callback"));
    for hangup in registry.reap(common::now(), 10).hangups {
        hangup.run();
    }
}

/// Runs `test` on a thread of its own; fails if it does not come back.
fn comes_back(what: &str, test: impl FnOnce() + Send + 'static) {
    let (done, is_done) = channel();
    let thread = thread::spawn(move || {
        test();
        let _ = done.send(());
    });
    assert!(is_done.recv_timeout(PATIENCE).is_ok() || thread.is_finished(), "a deadlock: {what}");
    thread.join().unwrap();
}

struct Calls<F: Fn() + Send + Sync>(F);

impl<F: Fn() + Send + Sync> Wake for Calls<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

/// Polls once, so that `call` is called at the next change.
fn wait_with(session: &heartwheel::Session, call: impl Fn() + Send + Sync + 'static) {
    let waker = Waker::from(Arc::new(Calls(call)));
    let mut changed = std::pin::pin!(session.changed(session.state().unwrap()));
    assert!(matches!(changed.as_mut().poll(&mut Context::from_waker(&waker)), Poll::Pending));
}

struct OnDrop<F: Fn()>(F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[test]
fn a_closer_may_use_the_registry() {
    comes_back("a closer", || {
        let mut driven = Driven::new(|policy| policy.identity = Identity::Supersede);
        let ran = Arc::new(AtomicUsize::new(0));
        let closer = || {
            let (registry, ran) = (driven.registry.clone(), ran.clone());
            move |_| {
                use_all(&registry, "w");
                ran.fetch_add(1, Ordering::SeqCst);
            }
        };
        let _first = driven.registry.connect(hello("w"), closer()).unwrap();
        let _second = driven.registry.connect(hello("w").pid(2), closer()).unwrap();
        driven.settle();
        // The first is superseded; its closer says HELLO as its own process, and supersedes the second.
        assert_eq!(ran.load(Ordering::SeqCst), 2);
        driven.ticks(TTL_TICKS + 2);
        assert_eq!(driven.registry.stats().live(), 0);
    });
}

#[test]
fn a_waker_may_use_the_registry() {
    comes_back("a waker", || {
        let mut driven = Driven::new(|policy| policy.identity = Identity::Supersede);
        let ran = Arc::new(AtomicUsize::new(0));
        let calls = |wid: &'static str| {
            let (registry, ran) = (driven.registry.clone(), ran.clone());
            move || {
                use_all(&registry, wid);
                ran.fetch_add(1, Ordering::SeqCst);
            }
        };
        let [told, says, by_wid, taken, silent] =
            ["told", "says", "by-wid", "taken", "silent"].map(|wid| join(&driven.registry, wid));
        for (session, wid) in
            [(&told, "told"), (&says, "says"), (&by_wid, "by-wid"), (&taken, "taken"), (&silent, "silent")]
        {
            wait_with(session, calls(wid));
        }
        driven.registry.signal("told", WorkerState::Quiet).unwrap();
        let _ = says.beat(&Beat::default().state(WorkerState::Quiet));
        let _ = driven.registry.beat("by-wid", &Beat::default().state(WorkerState::Quiet));
        let _taker = driven.registry.connect(hello("taken").pid(2), |_| {}).unwrap();
        driven.ticks(TTL_TICKS + 2);
        // All five, the last at the latest by its expiry.
        assert_eq!(ran.load(Ordering::SeqCst), 5);
    });
}

#[test]
fn the_drop_of_a_closer_may_use_the_registry() {
    comes_back("the drop of a closer", || {
        let mut driven = Driven::new(|policy| policy.identity = Identity::Reject);
        let ran = Arc::new(AtomicUsize::new(0));
        let closer = || {
            let (registry, ran) = (driven.registry.clone(), ran.clone());
            let held = OnDrop(move || {
                use_all(&registry, "w");
                ran.fetch_add(1, Ordering::SeqCst);
            });
            move |_| drop(held)
        };
        let holder = driven.registry.connect(hello("w"), closer()).unwrap();
        assert!(driven.registry.connect(hello("w").pid(2), closer()).is_err());
        assert_eq!(ran.load(Ordering::SeqCst), 1, "refused");
        let other = driven.registry.connect(hello("w"), closer()).unwrap();
        drop(other);
        assert_eq!(ran.load(Ordering::SeqCst), 2, "one of two left");
        drop(holder);
        assert_eq!(ran.load(Ordering::SeqCst), 3, "the last left");
        let long = "x".repeat(10_000);
        assert!(driven.registry.connect(hello("w").label(long), closer()).is_err());
        assert_eq!(ran.load(Ordering::SeqCst), 4, "invalid");
        let _silent = driven.registry.connect(hello("w"), closer()).unwrap();
        driven.at += common::TICK * (TTL_TICKS + 2);
        driven.ticks(2 * TTL_TICKS);
    });
}

#[test]
fn a_panic_in_a_closer_or_a_waker_costs_only_itself() {
    let mut driven = Driven::new(|_| {});
    let closed = Closed::default();
    let woken = Arc::new(AtomicUsize::new(0));
    let sessions: Vec<_> = (0..10)
        .map(|n| {
            let closer = closed.closer(n);
            let closer = move |reason| {
                assert!(n % 2 == 0, "a closer that panics, on purpose");
                closer(reason);
            };
            driven.registry.connect(hello(&format!("w{}", n / 5)), closer).unwrap()
        })
        .collect();
    for (n, session) in sessions.iter().enumerate() {
        let woken = woken.clone();
        wait_with(session, move || {
            assert!(n % 2 == 0, "a waker that panics, on purpose");
            woken.fetch_add(1, Ordering::SeqCst);
        });
    }
    driven.registry.signal("w0", WorkerState::Quiet).unwrap();
    assert_eq!(woken.load(Ordering::SeqCst), 3);
    assert_eq!(driven.ticks(TTL_TICKS + 2), 2);
    assert_eq!(woken.load(Ordering::SeqCst), 5);
    assert_eq!(closed.all().iter().map(|&(name, _)| name).collect::<Vec<_>>(), [0, 2, 4, 6, 8]);
    let _next = join(&driven.registry, "w0");
    assert_eq!(driven.registry.stats().live(), 1, "the registry goes on");
}

#[test]
fn a_stall_in_a_closer_costs_only_itself() {
    let registry = registry(|policy| {
        (policy.tick, policy.ttl) = (Duration::from_millis(10), Duration::from_millis(50));
    });
    let _reaper = Reaper::spawn(&registry).unwrap();
    let closed = Closed::default();
    let (release, stall) = channel::<()>();
    let stall = Mutex::new(stall);
    let stalls = move |_| {
        let _ = stall.lock().unwrap().recv();
    };
    let _first = registry.connect(hello("stalls"), stalls).unwrap();
    wait_for("it is reaped", || registry.get("stalls").is_none());
    let _others: Vec<_> =
        (0..20).map(|n| registry.connect(hello(&format!("w{n}")), closed.closer(n)).unwrap()).collect();
    wait_for("the others are closed meanwhile", || closed.len() == 20);
    drop(release);
}

#[test]
fn a_closer_is_run_though_its_session_was_dropped_by_another() {
    // Two sessions whose closers drop each other's session: a connection that ended already leaves without harm.
    let mut driven = Driven::new(|_| {});
    let slots: [Arc<Mutex<Option<heartwheel::Session>>>; 2] = Default::default();
    for n in 0..2 {
        let other = slots[1 - n].clone();
        let session =
            driven.registry.connect(hello("w"), move |_| drop(other.lock().unwrap().take())).unwrap();
        *slots[n].lock().unwrap() = Some(session);
    }
    assert_eq!(driven.ticks(TTL_TICKS + 2), 1);
    assert!(slots.iter().all(|slot| slot.lock().unwrap().is_none()));
    assert_eq!(driven.registry.stats().expired, 1);
}
