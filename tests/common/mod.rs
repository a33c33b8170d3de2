//! What the integration tests share: a made-up clock that drives a registry, and ways to see what came out.
#![allow(dead_code, reason = "every test crate uses its own part of this")]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use heartwheel::{
    Beat, EndReason, Event, Hello, Incarnation, Lagged, Pass, Policy, Registry, Session, Subscriber,
    WorkerState,
};

pub(crate) mod chaos;
pub(crate) mod model;

pub(crate) const TICK: Duration = Duration::from_millis(100);
/// Ten ticks.
pub(crate) const TTL: Duration = Duration::from_secs(1);
pub(crate) const TTL_TICKS: u32 = 10;
/// How long a test that waits for another thread waits before it says that nothing will come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The one reading of the clock: a start for made-up time, or the time of a test that really runs.
pub(crate) fn now() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "tests have one place of their own to read the clock")]
    Instant::now()
}

pub(crate) fn policy() -> Policy {
    let mut policy = Policy::default();
    policy.tick = TICK;
    policy.ttl = TTL;
    policy
}

pub(crate) fn policy_with(change: impl FnOnce(&mut Policy)) -> Policy {
    let mut policy = policy();
    change(&mut policy);
    policy
}

pub(crate) fn registry(change: impl FnOnce(&mut Policy)) -> Registry {
    Registry::new(policy_with(change)).expect("a policy of a test is valid")
}

pub(crate) fn hello(wid: &str) -> Hello {
    Hello::new(wid).expect("a wid of a test is valid").hostname("app-1").pid(1)
}

/// Connects a worker whose closer does nothing.
pub(crate) fn join(registry: &Registry, wid: &str) -> Session {
    registry.connect(hello(wid), |_| {}).expect("it can connect")
}

/// A registry driven by a made-up clock.
pub(crate) struct Driven {
    pub(crate) registry: Registry,
    pub(crate) start: Instant,
    /// The made-up time since the start.
    pub(crate) at: Duration,
}

impl Driven {
    /// A registry whose time has begun.
    pub(crate) fn new(change: impl FnOnce(&mut Policy)) -> Self {
        let driven = Driven { registry: registry(change), start: now(), at: Duration::ZERO };
        driven.settle();
        driven
    }

    /// Passes at the present instant until there is nothing more to do. Returns how many expired.
    pub(crate) fn settle(&self) -> usize {
        let mut expired = 0;
        for _ in 0..1_000_000 {
            let pass = self.pass(1 << 20);
            expired += pass.expired;
            let more = pass.more;
            for hangup in pass.hangups {
                hangup.run();
            }
            if !more {
                return expired;
            }
        }
        panic!("passes at one instant do not come to an end");
    }

    pub(crate) fn pass(&self, budget: usize) -> Pass {
        self.registry.reap(self.start + self.at, budget)
    }

    /// Passes on the next `count` ticks. Returns how many expired.
    pub(crate) fn ticks(&mut self, count: u32) -> usize {
        (0..count)
            .map(|_| {
                self.at += self.registry.policy().tick;
                self.settle()
            })
            .sum()
    }

    /// One pass after `span`, however long.
    pub(crate) fn leap(&mut self, span: Duration) -> usize {
        self.at += span;
        self.settle()
    }

    pub(crate) fn is_live(&self, wid: &str) -> bool {
        self.registry.get(wid).is_some()
    }
}

/// An event, as far as the tests compare it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Happened {
    Joined { wid: String, incarnation: Incarnation, state: WorkerState },
    Told { wid: String, incarnation: Incarnation, state: WorkerState },
    Ended { wid: String, incarnation: Incarnation, state: WorkerState, reason: EndReason, connections: u32 },
    Gap(Duration),
}

impl Happened {
    /// `None` for a kind of event that these tests do not follow.
    pub(crate) fn of(event: &Event) -> Option<Self> {
        Some(match event {
            Event::Joined(worker) => Happened::Joined {
                wid: worker.wid().to_string(),
                incarnation: worker.incarnation(),
                state: worker.state(),
            },
            Event::Told { wid, incarnation, state } => {
                Happened::Told { wid: wid.to_string(), incarnation: *incarnation, state: *state }
            }
            Event::Ended(ended) => Happened::Ended {
                wid: ended.worker.wid().to_string(),
                incarnation: ended.worker.incarnation(),
                state: ended.worker.state(),
                reason: ended.reason,
                connections: ended.worker.connections(),
            },
            Event::Gap(gap) => Happened::Gap(*gap),
            _ => return None,
        })
    }

    pub(crate) fn incarnation(&self) -> Option<Incarnation> {
        match self {
            Happened::Joined { incarnation, .. }
            | Happened::Told { incarnation, .. }
            | Happened::Ended { incarnation, .. } => Some(*incarnation),
            Happened::Gap(_) => None,
        }
    }
}

/// All that waits for the subscriber now; nothing may be missing.
pub(crate) fn drain(subscriber: &Subscriber) -> Vec<Happened> {
    let mut all = Vec::new();
    while let Some(item) = subscriber.try_recv() {
        match item {
            Ok(event) => all.extend(Happened::of(&event)),
            Err(Lagged(missed)) => panic!("{missed} events are missing"),
        }
    }
    all
}

/// All that waits for the subscriber now, as it is; nothing may be missing.
pub(crate) fn events(subscriber: &Subscriber) -> Vec<Event> {
    std::iter::from_fn(|| subscriber.try_recv()).map(|item| item.expect("no event is missing")).collect()
}

/// Every session that is left beats.
pub(crate) fn beat_all<'a>(sessions: impl IntoIterator<Item = &'a Session>) {
    for session in sessions {
        let _ = session.beat(&Beat::default());
    }
}

/// What was closed from outside, by the name that the test gave each connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Closed(Arc<Mutex<Vec<(usize, EndReason)>>>);

impl Closed {
    pub(crate) fn closer(&self, name: usize) -> impl FnOnce(EndReason) + Send + 'static {
        let closed = self.0.clone();
        move |reason| closed.lock().unwrap().push((name, reason))
    }

    pub(crate) fn all(&self) -> Vec<(usize, EndReason)> {
        let mut all = self.0.lock().unwrap().clone();
        all.sort_by_key(|&(name, _)| name);
        all
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

/// A repeatable source of choices for a thread of a test.
pub(crate) struct Choices(u64);

impl Choices {
    pub(crate) fn new(seed: u64) -> Self {
        Choices(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % bound
    }

    pub(crate) fn state(&mut self) -> WorkerState {
        WorkerState::ALL[self.below(3)]
    }
}

/// Says once that a thread may stop.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    pub(crate) fn now(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_said(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        // A test that failed must not leave its other threads running.
        if thread::panicking() {
            self.now();
        }
    }
}

/// Waits until `done`; fails with `what` if that does not come.
pub(crate) fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let until = now() + PATIENCE;
    while !done() {
        assert!(now() < until, "waited in vain: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Resident memory of this process in bytes.
pub(crate) fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).expect("a number of pages") * 4096
}

struct Unpark {
    thread: Thread,
    wakes: AtomicUsize,
}

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.wakes.fetch_add(1, Ordering::SeqCst);
        self.thread.unpark();
    }
}

/// Runs a future on this thread. `None` if nobody wakes it in time: a lost wake-up, for nothing here polls on its own.
pub(crate) fn block_on<F: Future>(future: F) -> Option<F::Output> {
    let unpark = Arc::new(Unpark { thread: thread::current(), wakes: AtomicUsize::new(0) });
    let waker = Waker::from(unpark.clone());
    let mut context = Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    let until = now() + PATIENCE;
    loop {
        let woken = unpark.wakes.load(Ordering::SeqCst);
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
        while unpark.wakes.load(Ordering::SeqCst) == woken {
            let left = until.saturating_duration_since(now());
            if left.is_zero() {
                return None;
            }
            thread::park_timeout(left);
        }
    }
}
