//! One incarnation of a worker: its word, what it said, and its connections.
//!
//! Ground rules
//! - `vitals` decides; `rss_kb` and `beats` are for display, and stand next to it so that a beat touches one cache line.
//! - `cold` is the lock of everything but beats: whoever makes a transition other than a plain beat holds it from before
//!   the swap until its event is published, so that events come in the order of the transitions (G4).
//! - Lock order: shard of the map, then `cold`, then the publishers' lock. Whoever holds `cold` never touches the map.
//! - Closers and wakers are user code: they are taken out under the lock, and called after it is gone (G11).

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::Duration;

use crate::clock;
use crate::hello::{Beat, Hello, Wid};
use crate::policy::Policy;
use crate::state::{Health, Incarnation, WorkerState};
use crate::vitals::{Vitals, Word};

/// The counters of one worker that are written by whoever beats. Not part of the model that loom runs.
type Gauge = std::sync::atomic::AtomicU64;

/// What closes a connection from outside: called at most once, with the reason of the end.
pub(crate) type Closer = Box<dyn FnOnce(crate::EndReason) + Send>;

const NEVER_SAID: u64 = u64::MAX;

#[repr(C)] // The order of the first fields is the order in memory.
pub(crate) struct Worker {
    pub(crate) vitals: Vitals,
    beats: Gauge,
    rss_kb: Gauge,
    pub(crate) incarnation: Incarnation,
    /// The tick of the HELLO.
    since: u64,
    pub(crate) hello: Hello,
    pub(crate) cold: Mutex<Cold>,
}

/// What is behind the lock.
#[derive(Default)]
pub(crate) struct Cold {
    /// The open connections, by the number each was given.
    connections: Vec<Connection>,
    next: u64,
    /// The incarnation has ended, and its state is remembered.
    pub(crate) remembered: bool,
}

pub(crate) struct Connection {
    id: u64,
    closer: Closer,
    waker: Option<Waker>,
}

impl Cold {
    pub(crate) fn add(&mut self, closer: Closer) -> u64 {
        let id = self.next;
        self.next += 1;
        if self.connections.is_empty() {
            // Most workers have one; a first push on its own would make room for four.
            self.connections.reserve_exact(1);
        }
        self.connections.push(Connection { id, closer, waker: None });
        id
    }

    /// Forgets a connection that closed by itself. What it held is dropped by the caller, after the lock.
    pub(crate) fn remove(&mut self, id: u64) -> Option<Connection> {
        let at = self.connections.iter().position(|connection| connection.id == id)?;
        Some(self.connections.swap_remove(at))
    }

    /// Has `waker` woken at the next change of what the worker was told. Gives back a waker to be dropped after the
    /// lock, `Err` if the connection was closed.
    pub(crate) fn wait(&mut self, id: u64, waker: Waker) -> Result<Option<Waker>, Waker> {
        match self.connections.iter_mut().find(|connection| connection.id == id) {
            Some(connection) => Ok(connection.waker.replace(waker)),
            None => Err(waker),
        }
    }

    /// Everyone who waits for a change.
    pub(crate) fn wakers(&mut self) -> Vec<Waker> {
        self.connections.iter_mut().filter_map(|connection| connection.waker.take()).collect()
    }

    /// All connections, at the end: their closers, and who waits.
    pub(crate) fn close(&mut self) -> (Vec<Closer>, Vec<Waker>) {
        let wakers = self.wakers();
        (
            std::mem::take(&mut self.connections).into_iter().map(|connection| connection.closer).collect(),
            wakers,
        )
    }
}

impl Worker {
    pub(crate) fn new(hello: Hello, incarnation: Incarnation, state: WorkerState, now: u64) -> Self {
        Worker {
            vitals: Vitals::new(Word::born(state, now)),
            rss_kb: Gauge::new(NEVER_SAID),
            beats: Gauge::new(0),
            incarnation,
            since: now,
            hello: hello.shrunk(),
            cold: Mutex::default(),
        }
    }

    /// Keeps what a beat said beside being alive. `new_tick`: the beat was the first of its tick.
    #[inline]
    pub(crate) fn note(&self, beat: &Beat, new_tick: bool) {
        // Relaxed throughout: for display, each value by itself.
        if let Some(rss_kb) = beat.rss_kb
            && self.rss_kb.load(Ordering::Relaxed) != rss_kb
        {
            self.rss_kb.store(rss_kb, Ordering::Relaxed);
        }
        if new_tick {
            // Not a locked addition: two connections that beat in the same instant may count as one.
            self.beats.store(self.beats.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    }

    /// Its public description, with `word` as its state and the age of that word's tick at `now`.
    pub(crate) fn info(self: &Arc<Self>, word: Word, now: u64, policy: &Policy) -> WorkerInfo {
        let age = clock::span(now.saturating_sub(word.tick()), policy.tick);
        WorkerInfo {
            incarnation: self.incarnation,
            state: word.state(),
            health: if age > policy.late_after() { Health::Late } else { Health::Live },
            connections: word.connections(),
            age,
            connected_for: clock::span(now.saturating_sub(self.since), policy.tick),
            // Relaxed: for display.
            beats: self.beats.load(Ordering::Relaxed),
            // Relaxed: for display.
            rss_kb: Some(self.rss_kb.load(Ordering::Relaxed)).filter(|&rss_kb| rss_kb != NEVER_SAID),
            worker: self.clone(),
        }
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("hello", &self.hello)
            .field("incarnation", &self.incarnation)
            .field("vitals", &self.vitals)
            .finish_non_exhaustive()
    }
}

/// One incarnation as it was when it was looked at. Owned: it holds no lock, and does not change.
#[derive(Clone)]
pub struct WorkerInfo {
    worker: Arc<Worker>,
    incarnation: Incarnation,
    state: WorkerState,
    health: Health,
    pub(crate) connections: u32,
    age: Duration,
    connected_for: Duration,
    beats: u64,
    rss_kb: Option<u64>,
}

impl WorkerInfo {
    /// The worker's id.
    #[must_use]
    pub fn wid(&self) -> &Wid {
        self.worker.hello.wid()
    }

    /// The number of this life of it.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// The hostname it said, or an empty text.
    #[must_use]
    pub fn hostname(&self) -> &str {
        &self.worker.hello.hostname
    }

    /// The process id it said.
    #[must_use]
    pub fn pid(&self) -> Option<i64> {
        self.worker.hello.pid
    }

    /// The version it said, or an empty text.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.worker.hello.version
    }

    /// The labels it said, in its order.
    pub fn labels(&self) -> impl ExactSizeIterator<Item = &str> {
        self.worker.hello.labels.iter().map(smol_str::SmolStr::as_str)
    }

    /// What it has been told.
    #[must_use]
    pub fn state(&self) -> WorkerState {
        self.state
    }

    /// How it looks by the age of its last beat.
    #[must_use]
    pub fn health(&self) -> Health {
        self.health
    }

    /// How many connections it has open; at the end of an incarnation, how many had to be closed.
    #[must_use]
    pub fn connections(&self) -> u32 {
        self.connections
    }

    /// Time since its last beat, in whole ticks; HELLO counts as one.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.age
    }

    /// Time since this incarnation began, in whole ticks.
    #[must_use]
    pub fn connected_for(&self) -> Duration {
        self.connected_for
    }

    /// Its resident memory in KiB, as it last said.
    #[must_use]
    pub fn rss_kb(&self) -> Option<u64> {
        self.rss_kb
    }

    /// How many ticks it was heard in after its HELLO. Several beats within one tick count as one.
    #[must_use]
    pub fn beats(&self) -> u64 {
        self.beats
    }
}

impl fmt::Debug for WorkerInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerInfo")
            .field("wid", self.wid())
            .field("incarnation", &self.incarnation().get())
            .field("state", &self.state)
            .field("connections", &self.connections)
            .field("age", &self.age)
            .finish_non_exhaustive()
    }
}
