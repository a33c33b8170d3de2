//! One incarnation of a worker: its word, what it said, and its connections.
//!
//! Ground rules
//! - What beats touch is on a line of its own, in `plot`. The rest is here, and is looked at rarely.
//! - `cold` is the lock of everything but beats: whoever makes a transition other than a plain beat holds it from before
//!   the swap until its event is published, so that events come in the order of the transitions (G4).
//! - Lock order: shard of the map, then `cold`, then the publishers' lock. Whoever holds `cold` never touches the map.
//! - Closers and wakers are user code: they are taken out under the lock, and called after it is gone (G11).

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use slab::Slab;

use crate::clock;
use crate::hello::{Hello, Wid};
use crate::holding::Holding;
use crate::lease::LeaseInfo;
use crate::plot::{Line, Place, Plot};
use crate::policy::{Overdue, Policy};
use crate::state::{Health, Incarnation, WorkerState};
use crate::suspicion::Intervals;
use crate::sync::{Mutex, Number, Ordering};
use crate::vitals::Word;

/// What closes a connection from outside: called at most once, with the reason of the end.
pub(crate) type Closer = Box<dyn FnOnce(crate::EndReason) + Send>;

const NEVER_FILED: u64 = u64::MAX;

pub(crate) struct Worker {
    /// Its line, with the word and what beats write: `worker.vitals` is there.
    line: Plot,
    pub(crate) incarnation: Incarnation,
    /// Its own ttl in ticks; 0 = the policy's.
    ttl: Number,
    /// The tick under which its one valid entry is filed in the wheel. Only the driver writes it; see `timer`.
    filed: Number,
    /// The tick of the HELLO.
    since: u64,
    /// Kept if the policy says so.
    intervals: Option<Box<Intervals>>,
    pub(crate) hello: Hello,
    pub(crate) cold: Mutex<Cold>,
}

impl Deref for Worker {
    type Target = Line;

    fn deref(&self) -> &Line {
        &self.line
    }
}

/// A worker in the map: with its line at hand, so that a beat by wid does not have to look at the rest.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) line: Place,
    pub(crate) worker: Arc<Worker>,
}

impl From<Arc<Worker>> for Entry {
    fn from(worker: Arc<Worker>) -> Self {
        Entry { line: worker.line.place(), worker }
    }
}

/// What is behind the lock.
#[derive(Default)]
pub(crate) struct Cold {
    /// The open connections, by the number each was given.
    connections: Slab<Connection>,
    /// The incarnation has ended, and what it was told is remembered.
    pub(crate) remembered: bool,
    /// Work it was given, and what it must have done by when; most workers have none.
    pub(crate) work: Option<Box<Work>>,
}

/// What a worker holds and has done.
#[derive(Default)]
pub(crate) struct Work {
    pub(crate) leases: Holding,
    pub(crate) completed: u64,
    /// The tick of the last completion.
    pub(crate) last_completion: Option<u64>,
    pub(crate) deadline: Option<Deadline>,
    /// The tick for which the driver was handed the worker, since it last looked at it.
    pub(crate) told_driver: Option<u64>,
}

/// By when a worker must have done what it was told.
#[derive(Clone, Copy)]
pub(crate) struct Deadline {
    /// By the published time.
    pub(crate) tick: u64,
    pub(crate) then: Overdue,
}

pub(crate) struct Connection {
    /// Gone once it was called.
    closer: Option<Closer>,
    waker: Option<Waker>,
}

impl Cold {
    pub(crate) fn add(&mut self, closer: Closer) -> usize {
        if self.connections.is_empty() {
            // Most workers have one; a first insertion on its own would make room for four.
            self.connections.reserve_exact(1);
        }
        self.connections.insert(Connection { closer: Some(closer), waker: None })
    }

    /// Forgets a connection that closed by itself. What it held is dropped by the caller, after the lock.
    pub(crate) fn remove(&mut self, id: usize) -> Option<Connection> {
        let removed = self.connections.try_remove(id)?;
        if self.connections.len() < self.connections.capacity() / 4 {
            self.connections.shrink_to_fit();
        }
        Some(removed)
    }

    /// Has `waker` woken at the next change of what the worker was told. Gives back a waker to be dropped after the
    /// lock, `Err` if the connection was closed.
    pub(crate) fn wait(&mut self, id: usize, waker: Waker) -> Result<Option<Waker>, Waker> {
        match self.connections.get_mut(id) {
            Some(connection) => Ok(connection.waker.replace(waker)),
            None => Err(waker),
        }
    }

    /// Everyone who waits for a change.
    pub(crate) fn wakers(&mut self) -> Vec<Waker> {
        self.connections.iter_mut().filter_map(|(_, connection)| connection.waker.take()).collect()
    }

    /// The closers of all connections that were not closed from outside yet.
    pub(crate) fn closers(&mut self) -> Vec<Closer> {
        self.connections.iter_mut().filter_map(|(_, connection)| connection.closer.take()).collect()
    }

    /// All connections, at the end: their closers, and who waits.
    pub(crate) fn close(&mut self) -> (Vec<Closer>, Vec<Waker>) {
        let ended = (self.closers(), self.wakers());
        self.connections = Slab::new();
        ended
    }

    pub(crate) fn work(&mut self) -> &mut Work {
        self.work.get_or_insert_default()
    }

    pub(crate) fn deadline(&self) -> Option<Deadline> {
        self.work.as_ref()?.deadline
    }

    /// By when the first of its leases may run out.
    pub(crate) fn first_lease_due(&mut self) -> Option<u64> {
        self.work.as_mut()?.leases.first_due()
    }

    /// What it holds, in the order in which it got it.
    pub(crate) fn held(&self) -> Arc<[LeaseInfo]> {
        self.work.iter().flat_map(|work| work.leases.iter()).map(|cell| cell.info()).collect()
    }
}

impl Worker {
    pub(crate) fn new(hello: Hello, incarnation: Incarnation, line: Plot, ttl: u64, policy: &Policy) -> Self {
        Worker {
            incarnation,
            ttl: Number::new(ttl),
            filed: Number::new(NEVER_FILED),
            since: line.vitals.load().tick(),
            intervals: policy.suspicion.then(Box::default),
            hello: hello.shrunk(),
            cold: Mutex::default(),
            line,
        }
    }

    /// Its line, for a handle that holds the worker, too.
    pub(crate) fn place(&self) -> Place {
        self.line.place()
    }

    /// Takes note of an interval between two beats.
    pub(crate) fn record(&self, interval: u64) {
        if let Some(intervals) = &self.intervals {
            intervals.record(interval);
        }
    }

    /// How many ticks it may be silent.
    pub(crate) fn ttl(&self, policy: &Policy) -> u64 {
        // Relaxed: who changes it calls the driver, which reads it anew.
        match self.ttl.load(Ordering::Relaxed) {
            0 => policy.ticks(policy.ttl),
            own => own,
        }
    }

    /// After how many ticks of silence it is late: as the policy says, or after half of what it may be silent.
    pub(crate) fn late_after(&self, policy: &Policy) -> u64 {
        match policy.late_after {
            Some(late_after) => policy.ticks(late_after),
            None => self.ttl(policy).div_ceil(2),
        }
    }

    /// Gives it a ttl of its own, in ticks; 0 = the policy's.
    pub(crate) fn set_ttl(&self, ttl: u64) {
        // Relaxed: as in `ttl`.
        self.ttl.store(ttl, Ordering::Relaxed);
    }

    /// Where the driver has filed it. For the driver, and for who holds its lock.
    pub(crate) fn filed(&self) -> u64 {
        // Relaxed: only the driver writes it, under the worker's lock.
        self.filed.load(Ordering::Relaxed)
    }

    /// The driver has looked at it, and files it under `due`. Under its lock.
    pub(crate) fn set_filed(&self, cold: &mut Cold, due: u64) {
        // Relaxed: as in `filed`.
        self.filed.store(due, Ordering::Relaxed);
        if let Some(work) = &mut cold.work {
            work.told_driver = None;
        }
    }

    /// Its public description, with `word` as its state and the age of that word's tick at `now`. `cold` is its own.
    pub(crate) fn info(self: &Arc<Self>, word: Word, cold: &Cold, now: u64, policy: &Policy) -> WorkerInfo {
        let since = |tick: u64| clock::span(now.saturating_sub(tick), policy.tick);
        let silent_ticks = now.saturating_sub(word.tick());
        let age = since(word.tick());
        let pulse = self.pulse();
        let work = cold.work.as_deref();
        let oldest = work.and_then(|work| Some(work.leases.oldest()?.since));
        WorkerInfo {
            incarnation: self.incarnation,
            state: word.state(),
            health: if word.is_late() || silent_ticks > self.late_after(policy) {
                Health::Late
            } else {
                Health::Live
            },
            cordoned: word.is_cordoned(),
            connections: word.connections(),
            age,
            silent_ticks,
            connected_for: since(self.since),
            ttl: clock::span(self.ttl(policy), policy.tick),
            beats: pulse.beats(),
            // What lies between HELLO and the first beat says nothing about the regular distance.
            interval: (pulse.beats() > 1).then(|| clock::span(pulse.interval(), policy.tick)),
            rss_kb: self.rss_kb(),
            leases: work.map_or(0, |work| u32::try_from(work.leases.len()).unwrap_or(u32::MAX)),
            oldest_lease: oldest.map(since),
            completed: work.map_or(0, |work| work.completed),
            last_completion: work.and_then(|work| work.last_completion).map(since),
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
    cordoned: bool,
    pub(crate) connections: u32,
    age: Duration,
    silent_ticks: u64,
    connected_for: Duration,
    ttl: Duration,
    beats: u64,
    interval: Option<Duration>,
    rss_kb: Option<u64>,
    leases: u32,
    oldest_lease: Option<Duration>,
    completed: u64,
    last_completion: Option<Duration>,
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

    /// Whether it is cordoned: not to be given work, whatever it has been told.
    #[must_use]
    pub fn is_cordoned(&self) -> bool {
        self.cordoned
    }

    /// Whether it is to be given work: it runs, and is not cordoned.
    #[must_use]
    pub fn takes_work(&self) -> bool {
        self.state == WorkerState::Running && !self.cordoned
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

    /// How long it may be silent: its own ttl, or the policy's.
    #[must_use]
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// How far its last two beats were apart; `None` before its second beat.
    #[must_use]
    pub fn interval(&self) -> Option<Duration> {
        self.interval
    }

    /// How many beats it has missed by its own interval; `None` before its second beat.
    #[must_use]
    pub fn missed_beats(&self) -> Option<u64> {
        let interval = self.interval?.as_nanos();
        u64::try_from(self.age.as_nanos().checked_div(interval)?).ok()
    }

    /// How suspicious its silence is, by its own rhythm ([`suspicion`](crate::suspicion)): `None` without
    /// [`Policy::suspicion`](crate::Policy::suspicion), or before enough beats. The rhythm is that of now, the silence that of when the
    /// worker was looked at.
    #[must_use]
    pub fn phi(&self) -> Option<f64> {
        Some(self.worker.intervals.as_ref()?.rhythm()?.phi(self.silent_ticks))
    }

    /// How many leases it holds.
    #[must_use]
    pub fn leases(&self) -> u32 {
        self.leases
    }

    /// How long it has held the oldest of them.
    #[must_use]
    pub fn oldest_lease(&self) -> Option<Duration> {
        self.oldest_lease
    }

    /// How many leases it has completed.
    #[must_use]
    pub fn completed(&self) -> u64 {
        self.completed
    }

    /// Time since it last completed one.
    #[must_use]
    pub fn last_completion(&self) -> Option<Duration> {
        self.last_completion
    }

    /// How long it has held work without completing any: since its last completion, or since it got the oldest lease it
    /// holds, whichever is later. `None` when it holds nothing.
    #[must_use]
    pub fn no_progress_for(&self) -> Option<Duration> {
        let oldest = self.oldest_lease?;
        Some(self.last_completion.map_or(oldest, |completed| completed.min(oldest)))
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
