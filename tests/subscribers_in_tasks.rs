//! A task that reads events: no wake-up is lost, and its waker, which is user code, costs nobody else anything (G11).

mod common;

use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

use common::{PATIENCE, block_on, join, registry, wait_for};
use heartwheel::{Event, Filter, Item, Lagged, Reaper, Registry, Subscriber, WorkerState};

/// Ticks so long that nothing here is saved by the next one.
fn slow_registry() -> Registry {
    registry(|policy| {
        policy.tick = Duration::from_secs(60);
        policy.ttl = Duration::from_secs(600);
    })
}

/// The next item for a task; fails if nobody wakes it.
fn next(events: &Subscriber) -> Option<Item> {
    block_on(poll_fn(|context| events.poll_recv(context))).expect("a wake-up was lost")
}

struct Calls<F: Fn() + Send + Sync>(F);

impl<F: Fn() + Send + Sync> Wake for Calls<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

fn add_one(count: &AtomicUsize) {
    count.fetch_add(1, Ordering::SeqCst);
}

/// Polls once, so that `call` is called at the next event.
fn wait_with(events: &Subscriber, call: impl Fn() + Send + Sync + 'static) {
    let waker = Waker::from(Arc::new(Calls(call)));
    assert!(events.poll_recv(&mut Context::from_waker(&waker)).is_pending());
}

/// A publisher that waits for the reader before each burst: every burst meets a reader that falls asleep, or just has.
#[test]
fn no_wake_up_is_lost() {
    for (capacity, burst) in [(1, 1), (1, 2), (2, 5), (100, 1)] {
        let registry = slow_registry();
        let _reaper = Reaper::spawn(&registry).unwrap();
        let events = registry.subscribe(capacity);
        let read = AtomicU64::new(0);
        let bursts = 3000;
        thread::scope(|scope| {
            scope.spawn(|| {
                for n in 0..bursts {
                    let until = common::now() + PATIENCE;
                    while read.load(Ordering::SeqCst) < n * burst * 2 {
                        if common::now() > until {
                            return;
                        }
                        std::hint::spin_loop();
                    }
                    (0..n % 64).for_each(|_| std::hint::spin_loop());
                    (0..burst).for_each(|_| drop(join(&registry, "w")));
                }
            });
            while read.load(Ordering::SeqCst) < bursts * burst * 2 {
                let new =
                    next(&events).expect("the registry is there").map_or_else(|Lagged(missed)| missed, |_| 1);
                read.fetch_add(new, Ordering::SeqCst);
            }
        });
        assert_eq!(read.into_inner(), bursts * burst * 2, "every event is read or counted");
    }
}

/// The reaper's thread falls asleep for good while nobody is registered, and is called for a waker all the same.
#[test]
fn an_idle_reaper_wakes_who_waits() {
    let registry = slow_registry();
    let _reaper = Reaper::spawn(&registry).unwrap();
    let events = registry.subscribe(10);
    for _ in 0..200 {
        drop(join(&registry, "w"));
        assert!(matches!(next(&events), Some(Ok(Event::Joined(_)))));
        assert!(matches!(next(&events), Some(Ok(Event::Ended(_)))));
    }
}

#[test]
fn a_task_hears_the_end_of_the_registry() {
    let registry = slow_registry();
    let reaper = Reaper::spawn(&registry).unwrap();
    let events = registry.subscribe(10);
    let reader = thread::spawn(move || std::iter::from_fn(|| next(&events)).count());
    drop(join(&registry, "w"));
    thread::sleep(Duration::from_millis(20));
    drop((reaper, registry));
    assert_eq!(reader.join().unwrap(), 2);
}

#[test]
fn in_a_loop_of_ones_own_the_next_pass_wakes() {
    let registry = registry(|_| {});
    let events = registry.subscribe(10);
    let woken = Arc::new(AtomicUsize::new(0));
    let count = woken.clone();
    wait_with(&events, move || add_one(&count));
    let _session = join(&registry, "w");
    assert_eq!(woken.load(Ordering::SeqCst), 0);
    drop(registry.reap(common::now(), 10));
    assert_eq!(woken.load(Ordering::SeqCst), 1);
    drop(registry.reap(common::now(), 10));
    assert_eq!(woken.load(Ordering::SeqCst), 1);
}

#[test]
fn a_task_gives_way_though_only_unwanted_events_wait() {
    let registry = registry(|_| {});
    let events =
        registry.subscribe_to(Filter::default().workers(|worker| worker.wid().as_str() == "last"), 1000);
    (0..200).for_each(|_| drop(join(&registry, "w")));
    let _last = join(&registry, "last");
    let woken = Arc::new(AtomicUsize::new(0));
    let mut polls = 0;
    let count = woken.clone();
    let waker = Waker::from(Arc::new(Calls(move || add_one(&count))));
    while events.poll_recv(&mut Context::from_waker(&waker)).is_pending() {
        polls += 1;
        assert_eq!(woken.load(Ordering::SeqCst), polls, "it asks to be polled again");
        assert!(polls < 400);
    }
    assert!(polls > 0);
}

#[test]
fn a_waker_is_woken_on_no_publishers_thread_and_may_use_the_registry() {
    let registry = registry(|policy| policy.tick = Duration::from_millis(10));
    let reaper = Reaper::spawn(&registry).unwrap();
    let ran = Arc::new(Mutex::new(Vec::new()));
    let use_all = |registry: &Registry, events: &Arc<Subscriber>| {
        let _ = registry.signal("w", WorkerState::Terminate);
        registry.signal_all(WorkerState::Quiet);
        let _ = (registry.snapshot(), registry.subscribe(1), registry.stats());
        registry.set_policy((*registry.policy()).clone()).unwrap();
        drop(join(registry, "from-a-waker"));
        drop(registry.reap(common::now(), 10));
        while events.try_recv().is_some() {}
    };
    let events = Arc::new(registry.subscribe(100));
    let session = join(&registry, "w");
    while events.try_recv().is_some() {}
    let (seen, other, own) = (ran.clone(), registry.clone(), events.clone());
    wait_with(&events, move || {
        use_all(&other, &own);
        seen.lock().unwrap().push(thread::current().id());
    });
    registry.signal("w", WorkerState::Quiet).unwrap();
    wait_for("it is woken", || !ran.lock().unwrap().is_empty());
    assert!(ran.lock().unwrap().iter().all(|&thread| thread != thread::current().id()));
    drop((session, reaper));
}

struct Stalls(Mutex<Receiver<()>>);

impl Wake for Stalls {
    fn wake(self: Arc<Self>) {
        let _ = self.0.lock().unwrap().recv();
    }
}

#[test]
fn a_waker_that_stalls_or_panics_costs_only_itself() {
    let registry = registry(|policy| {
        (policy.tick, policy.ttl) = (Duration::from_millis(10), Duration::from_millis(100));
    });
    let _reaper = Reaper::spawn(&registry).unwrap();
    let (release, stall) = channel();
    let [stalls, panics, good] = [(); 3].map(|()| registry.subscribe(100));
    let waker = Waker::from(Arc::new(Stalls(Mutex::new(stall))));
    assert!(stalls.poll_recv(&mut Context::from_waker(&waker)).is_pending());
    wait_with(&panics, || panic!("a waker that panics, on purpose"));
    let woken = Arc::new(AtomicUsize::new(0));
    let count = woken.clone();
    wait_with(&good, move || add_one(&count));
    let silent = join(&registry, "silent");
    wait_for("the others are woken", || woken.load(Ordering::SeqCst) == 1);
    wait_for("the silent is reaped", || registry.get("silent").is_none());
    // And those to whom things happen are not held up.
    (0..100).for_each(|_| drop(join(&registry, "w")));
    drop((release, silent));
}

#[cfg(feature = "stream")]
#[test]
fn a_subscription_is_a_stream() {
    use std::pin::Pin;

    use futures_core::Stream;
    use heartwheel::EventStream;

    fn collect(mut events: EventStream) -> Vec<Item> {
        let mut all = Vec::new();
        while let Some(item) =
            block_on(poll_fn(|context| Pin::new(&mut events).poll_next(context))).expect("a wake-up was lost")
        {
            all.push(item);
        }
        all
    }

    let registry = slow_registry();
    let reaper = Reaper::spawn(&registry).unwrap();
    let events = registry.subscribe(3).into_stream();
    assert_eq!(events.get_ref().resync(&registry).workers().len(), 0);
    let reader = thread::spawn(move || collect(events));
    for _ in 0..100 {
        drop(join(&registry, "w"));
    }
    drop((reaper, registry));
    let read = reader.join().unwrap();
    let told: u64 = read.iter().map(|item| item.as_ref().map_or_else(|lagged| lagged.0, |_| 1)).sum();
    assert_eq!(told, 200);
}
