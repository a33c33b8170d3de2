//! heartwheel itself, through its public face: by handle, and by wid.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use ::heartwheel::{Beat, Hello, Policy, Registry, Session, WorkerState};

use super::floor::instant;
use super::{Fleet, wid};

/// A registry that is driven from outside, with made-up instants one tick apart.
struct Driven {
    registry: Registry,
    /// A connection of each worker, which keeps it alive, in the order of their numbers.
    _sessions: Vec<Session>,
    tick: Duration,
    start: Instant,
    passed: AtomicU32,
}

impl Driven {
    fn of(workers: usize) -> Self {
        let policy = Policy::default();
        let tick = policy.tick;
        let registry = Registry::new(policy).unwrap();
        let sessions = (0..workers).map(|worker| connect(&registry, worker)).collect();
        let driven =
            Driven { registry, _sessions: sessions, tick, start: instant(), passed: AtomicU32::new(0) };
        driven.drive();
        driven
    }

    fn drive(&self) {
        let now = self.start + self.tick * self.passed();
        loop {
            let pass = self.registry.reap(now, usize::MAX);
            assert!(
                pass.expired == 0 && pass.hangups.is_empty() && pass.gap.is_none(),
                "all are heard: {pass:?}"
            );
            if !pass.more {
                return;
            }
        }
    }

    fn passed(&self) -> u32 {
        // Relaxed: one thread drives.
        self.passed.load(Ordering::Relaxed)
    }

    fn advance(&self) {
        // Relaxed: as in `passed`.
        self.passed.fetch_add(1, Ordering::Relaxed);
        self.drive();
    }

    fn last_beat(&self, worker: usize) -> u64 {
        let age = self.registry.get(&wid(worker)).expect("a live worker").age();
        u64::from(self.passed()) - u64::try_from(age.as_nanos() / self.tick.as_nanos()).unwrap()
    }

    fn check(&self, worker: usize, state: WorkerState) {
        let info = self.registry.get(&wid(worker)).expect("a live worker");
        assert_eq!(info.age(), Duration::ZERO, "worker {worker} was not heard");
        assert_eq!(info.beats(), u64::from(self.passed()), "worker {worker} was not heard in every tick");
        assert_eq!(info.state(), state, "worker {worker} was told something else");
    }
}

fn connect(registry: &Registry, worker: usize) -> Session {
    registry.connect(Hello::new(wid(worker)).unwrap(), |_| {}).unwrap()
}

/// Beats by handle.
pub(crate) struct ByHandle(Driven);

impl Fleet for ByHandle {
    const NAME: &'static str = "heartwheel, by handle";

    type Handle = Session;

    fn of(workers: usize) -> Self {
        ByHandle(Driven::of(workers))
    }

    /// One more connection of the worker.
    fn handle(&self, worker: usize) -> Session {
        connect(&self.0.registry, worker)
    }

    #[inline]
    fn beat(&self, session: &Session) -> WorkerState {
        session.beat(&Beat::default()).expect("a live worker")
    }

    fn tell(&self, worker: usize, state: WorkerState) {
        self.0.registry.signal(&wid(worker), state).unwrap();
    }

    fn now(&self) -> u64 {
        u64::from(self.0.passed())
    }

    fn advance(&self) {
        self.0.advance();
    }

    fn last_beat(&self, worker: usize) -> u64 {
        self.0.last_beat(worker)
    }

    fn state(&self, worker: usize) -> WorkerState {
        self.0.registry.get(&wid(worker)).expect("a live worker").state()
    }

    fn check(&self, worker: usize, state: WorkerState) {
        self.0.check(worker, state);
    }
}

/// Beats by wid.
pub(crate) struct ByWid(Driven);

impl Fleet for ByWid {
    const NAME: &'static str = "heartwheel, by wid";

    type Handle = String;

    fn of(workers: usize) -> Self {
        ByWid(Driven::of(workers))
    }

    fn handle(&self, worker: usize) -> String {
        wid(worker)
    }

    #[inline]
    fn beat(&self, wid: &String) -> WorkerState {
        self.0.registry.beat(wid, &Beat::default()).expect("a live worker")
    }

    fn tell(&self, worker: usize, state: WorkerState) {
        self.0.registry.signal(&wid(worker), state).unwrap();
    }

    fn now(&self) -> u64 {
        u64::from(self.0.passed())
    }

    fn advance(&self) {
        self.0.advance();
    }

    fn last_beat(&self, worker: usize) -> u64 {
        self.0.last_beat(worker)
    }

    fn state(&self, worker: usize) -> WorkerState {
        self.0.registry.get(&wid(worker)).expect("a live worker").state()
    }

    fn check(&self, worker: usize, state: WorkerState) {
        self.0.check(worker, state);
    }
}
