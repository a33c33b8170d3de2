//! What all handles share, and the transitions: connect, tell, leave, end. The public faces are `Registry` and
//! `Session`; the passes of the driver are in `driver`.
//!
//! Ground rules
//! - A transition is one swap of the worker's word, made under the worker's own lock and followed by its duties: counters,
//!   event, connections to close, waiters to wake. A plain beat takes no lock and has no duties.
//! - An ended incarnation stays in the map while the state it was told is remembered; everyone who looks there asks the word
//!   first. It leaves the map by identity, so nothing can remove a successor (G5).
//! - Closers go to the queue of the driver; wakers are woken by whoever made the transition, holding nothing.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex};
use std::task::Waker;

use arc_swap::ArcSwap;
use crossbeam::channel::{Receiver, Sender, bounded};
use crossbeam::queue::SegQueue;
use crossbeam::utils::CachePadded;
use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use foldhash::quality::RandomState;

use crate::driver::Driver;
use crate::error::{ConnectError, PolicyError};
use crate::event::{self, Bus, Event};
use crate::hangup::Hangup;
use crate::hello::{Beat, Hello, Wid};
use crate::policy::{Identity, Policy};
use crate::snapshot::Latest;
use crate::state::{EndReason, Incarnation, WorkerState};
use crate::sync::lock;
use crate::vitals::{Change, Ended, MAX_CONNECTIONS, NotJoined, Word};
use crate::worker::{Closer, Cold, Worker};

/// So many that a pass over one shard of a million workers holds its lock for a thousand entries only.
const SHARDS: usize = 1024;

/// So many newcomers are not left waiting for the next tick: most of them may be gone already.
const MANY_NEWCOMERS: usize = 4096;

/// What a thread that lets go of a worker's lock still has to do.
#[must_use = "whoever waits must be woken"]
#[derive(Default)]
pub(crate) struct Wake(Vec<Waker>);

impl Wake {
    /// Wakes everyone. To be called with nothing locked; a waker that panics costs the others nothing.
    pub(crate) fn all(self) {
        for waker in self.0 {
            let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
        }
    }

    /// Each of them, to be woken elsewhere.
    pub(crate) fn each(self) -> impl Iterator<Item = Wake> {
        self.0.into_iter().map(|waker| Wake(vec![waker]))
    }

    pub(crate) fn and(&mut self, other: Wake) {
        self.0.extend(other.0);
    }
}

/// Sums over the fleet. Written on transitions only, never on a plain beat.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) live: [AtomicUsize; 3],
    pub(crate) connections: AtomicUsize,
    pub(crate) joined: AtomicU64,
    pub(crate) ended: [AtomicU64; 3],
    pub(crate) remembered: AtomicUsize,
    pub(crate) not_remembered: AtomicU64,
    pub(crate) gaps: AtomicU64,
    pub(crate) filed: AtomicUsize,
    /// Grows with every transition, so that a snapshot can tell whether it is still true.
    pub(crate) transitions: AtomicU64,
}

impl Counters {
    pub(crate) fn live(&self) -> usize {
        // Relaxed: each counter stands for itself, here and wherever counters are read or written.
        self.live.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

pub(crate) struct Engine {
    /// The engine's time in ticks, published by the driver.
    clock: CachePadded<AtomicU64>,
    pub(crate) policy: ArcSwap<Policy>,
    pub(crate) workers: DashMap<Wid, Arc<Worker>, RandomState>,
    incarnations: AtomicU64,
    /// New workers, on their way to the wheel.
    pub(crate) inbox: SegQueue<Arc<Worker>>,
    /// Connections to close, on their way out.
    pub(crate) hangups: SegQueue<Hangup>,
    pub(crate) driver: Mutex<Driver>,
    /// The driver's thread sleeps until it is woken.
    parked: AtomicBool,
    /// A wake-up for it; one that is under way is enough.
    pub(crate) wakeup: (Sender<()>, Receiver<()>),
    /// A reaper thread is running.
    pub(crate) driven: AtomicBool,
    pub(crate) bus: Bus,
    pub(crate) latest: Latest,
    pub(crate) counters: Counters,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("counters", &self.counters).finish_non_exhaustive()
    }
}

impl Engine {
    pub(crate) fn new(policy: Policy) -> Result<Self, PolicyError> {
        policy.validate()?;
        Ok(Engine {
            clock: CachePadded::default(),
            driver: Mutex::new(Driver::new(policy.tick)),
            policy: ArcSwap::from_pointee(policy),
            workers: DashMap::with_capacity_and_hasher_and_shard_amount(0, RandomState::default(), SHARDS),
            incarnations: AtomicU64::new(1),
            inbox: SegQueue::new(),
            hangups: SegQueue::new(),
            parked: AtomicBool::new(false),
            wakeup: bounded(1),
            driven: AtomicBool::new(false),
            bus: Bus::default(),
            latest: Latest::default(),
            counters: Counters::default(),
        })
    }

    /// The engine's time.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        // Relaxed: a number that only grows; what it means for a worker is decided by that worker's word.
        self.clock.load(Ordering::Relaxed)
    }

    pub(crate) fn publish_time(&self, now: u64) {
        // Relaxed: as in `now`.
        self.clock.store(now, Ordering::Relaxed);
    }

    /// Takes note of a beat. No lock, no allocation, no hashing; the state that `beat` says is left to the caller.
    #[inline]
    pub(crate) fn heard(&self, worker: &Worker, beat: &Beat) -> Result<WorkerState, Ended> {
        loop {
            let now = self.now();
            let change = worker.vitals.update(|word| word.beat(now))?;
            // A thread that was held up between reading the time and the swap would acknowledge a beat of before (G2).
            if self.now() == now {
                worker.note(beat, change.before.tick() != change.after.tick());
                return Ok(change.after.state());
            }
        }
    }

    #[inline]
    pub(crate) fn beat(&self, worker: &Arc<Worker>, beat: &Beat) -> Result<WorkerState, Ended> {
        let told = self.heard(worker, beat)?;
        if beat.state > told { self.tell(worker, beat.state) } else { Ok(told) }
    }

    /// Tells a worker a state. Returns the state from now on, which may be stronger.
    pub(crate) fn tell(&self, worker: &Arc<Worker>, state: WorkerState) -> Result<WorkerState, Ended> {
        let mut cold = lock(&worker.cold);
        let Change { before, after } = worker.vitals.update(|word| word.told(state))?;
        let mut wake = Wake::default();
        if before.state() < after.state() {
            let counters = &self.counters;
            counters.live[before.state() as usize].fetch_sub(1, Ordering::Relaxed);
            counters.live[after.state() as usize].fetch_add(1, Ordering::Relaxed);
            counters.transitions.fetch_add(1, Ordering::Relaxed);
            self.bus.publish(|| Event::Told {
                wid: worker.hello.wid.clone(),
                incarnation: worker.incarnation,
                state: after.state(),
            });
            wake = Wake(cold.wakers());
        }
        drop(cold);
        wake.all();
        Ok(after.state())
    }

    /// Adds a connection, to the live worker of that wid or to a new incarnation.
    pub(crate) fn connect(&self, hello: Hello, closer: Closer) -> Result<(Arc<Worker>, u64), ConnectError> {
        let policy = self.policy.load();
        hello.check(&policy.limits)?;
        let mut wake = Wake::default();
        let begun = match self.workers.entry(hello.wid.clone()) {
            Entry::Vacant(place) => self.begin(hello, WorkerState::Running, closer, |worker| {
                // The guard of the shard ends here.
                place.insert(worker);
            }),
            Entry::Occupied(mut place) => {
                let old = place.get().clone();
                let mut cold = lock(&old.cold);
                let now = self.now();
                if old.vitals.load().is_live() && !hello.same_process(&old.hello) {
                    match policy.identity {
                        Identity::Share => {}
                        Identity::Reject => {
                            return Err(ConnectError::Conflict {
                                wid: hello.wid,
                                hostname: old.hello.hostname.to_string(),
                                pid: old.hello.pid,
                            });
                        }
                        Identity::Supersede => {
                            if let Ok(change) =
                                old.vitals.update(|word| word.ended(EndReason::Superseded, now))
                            {
                                wake = self.settle_end(&old, &mut cold, change, &policy);
                            }
                        }
                    }
                }
                match old.vitals.update(|word| word.joined(now)) {
                    Ok(change) => {
                        old.note(&Beat::default(), change.before.tick() != change.after.tick());
                        let id = cold.add(closer);
                        self.counters.connections.fetch_add(1, Ordering::Relaxed);
                        self.counters.transitions.fetch_add(1, Ordering::Relaxed);
                        drop(cold);
                        return Ok((old, id));
                    }
                    Err(NotJoined::Full) => {
                        return Err(ConnectError::TooManyConnections { max: MAX_CONNECTIONS });
                    }
                    Err(NotJoined::Ended) => {
                        let state = remembered_for(&old, &hello, now, &policy);
                        self.forget(&mut cold);
                        drop(cold);
                        self.begin(hello, state, closer, |worker| {
                            place.insert(worker);
                            // The guard of the shard ends here.
                            drop(place);
                        })
                    }
                }
            }
        };
        wake.all();
        self.call_driver_if_parked();
        Ok(begun)
    }

    /// Begins an incarnation. `insert` puts it into the map and lets go of the shard.
    fn begin(
        &self,
        hello: Hello,
        state: WorkerState,
        closer: Closer,
        insert: impl FnOnce(Arc<Worker>),
    ) -> (Arc<Worker>, u64) {
        // Numbered while the shard is held, so that incarnations of one wid grow in their order. Relaxed: only the
        // number counts.
        let incarnation = Incarnation(self.incarnations.fetch_add(1, Ordering::Relaxed));
        let now = self.now();
        let worker = Arc::new(Worker::new(hello, incarnation, state, now));
        // Nobody can have it yet; held, so that nothing about it is published before its `Joined`.
        let mut cold = lock(&worker.cold);
        let id = cold.add(closer);
        insert(worker.clone());
        let counters = &self.counters;
        counters.live[state as usize].fetch_add(1, Ordering::Relaxed);
        counters.connections.fetch_add(1, Ordering::Relaxed);
        counters.joined.fetch_add(1, Ordering::Relaxed);
        counters.transitions.fetch_add(1, Ordering::Relaxed);
        self.bus.publish(|| Event::Joined(worker.info(Word::born(state, now), now, &self.policy.load())));
        drop(cold);
        self.inbox.push(worker.clone());
        if self.inbox.len() > MANY_NEWCOMERS {
            self.call_driver();
        }
        (worker, id)
    }

    /// A connection closed by itself.
    pub(crate) fn leave(&self, worker: &Arc<Worker>, id: u64) {
        let mut wake = Wake::default();
        let policy = self.policy.load();
        let mut cold = lock(&worker.cold);
        let connection = cold.remove(id);
        if let Ok(change) = worker.vitals.update(|word| word.parted(self.now())) {
            if change.after.is_live() {
                self.counters.connections.fetch_sub(1, Ordering::Relaxed);
                self.counters.transitions.fetch_add(1, Ordering::Relaxed);
            } else {
                wake = self.settle_end(worker, &mut cold, change, &policy);
                // Its entry in the wheel may be due much later than that; this one is in time to give back the room.
                if cold.remembered && policy.remember() < policy.ttl {
                    self.inbox.push(worker.clone());
                }
            }
        }
        let kept = cold.remembered;
        drop(cold);
        wake.all();
        if !kept {
            self.remove(worker);
        }
        // User data: dropped when all is done and nothing held. Its panic must not reach whoever drops a session.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(connection)));
    }

    /// The duties of an end, under the worker's lock: counters, event, connections to close, and whether its state is
    /// remembered. The caller wakes who waits, and removes the worker from the map if it is not remembered.
    pub(crate) fn settle_end(
        &self,
        worker: &Arc<Worker>,
        cold: &mut Cold,
        change: Change,
        policy: &Policy,
    ) -> Wake {
        let Change { before, after } = change;
        let Some(reason) = after.end() else { return Wake::default() };
        let counters = &self.counters;
        counters.live[before.state() as usize].fetch_sub(1, Ordering::Relaxed);
        counters.connections.fetch_sub(before.connections() as usize, Ordering::Relaxed);
        counters.ended[reason as usize].fetch_add(1, Ordering::Relaxed);
        counters.transitions.fetch_add(1, Ordering::Relaxed);
        if is_remembered(after, policy) {
            let room = |remembered| (remembered < policy.max_remembered).then_some(remembered + 1);
            // One step: several may end at once, and there may be room for one.
            if counters.remembered.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).is_ok() {
                cold.remembered = true;
            } else {
                counters.not_remembered.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.bus.publish(|| {
            let mut worker = worker.info(before, after.tick(), policy);
            worker.connections = after.connections();
            Event::Ended(event::Ended { worker, reason })
        });
        let (closers, wakers) = cold.close();
        let any = !closers.is_empty();
        for closer in closers {
            self.hangups.push(Hangup::new(closer, reason));
        }
        if any {
            self.call_driver();
        }
        Wake(wakers)
    }

    /// Its state is remembered no longer.
    pub(crate) fn forget(&self, cold: &mut Cold) {
        if std::mem::take(&mut cold.remembered) {
            self.counters.remembered.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Takes an ended worker out of the map, if it is still the one under its wid.
    pub(crate) fn remove(&self, worker: &Arc<Worker>) {
        if !worker.vitals.load().is_live() {
            self.workers.remove_if(&worker.hello.wid, |_, held| Arc::ptr_eq(held, worker));
        }
    }

    /// All live workers, each with the word that said so. Weakly consistent: see the crate's documentation.
    pub(crate) fn live(&self) -> impl Iterator<Item = (Arc<Worker>, Word)> + '_ {
        self.workers.iter().filter_map(|entry| {
            let word = entry.vitals.load();
            word.is_live().then(|| (entry.value().clone(), word))
        })
    }

    /// Wakes the driver's thread.
    pub(crate) fn call_driver(&self) {
        let _ = self.wakeup.0.try_send(());
    }

    /// Wakes the driver's thread if it sleeps because nothing was filed.
    fn call_driver_if_parked(&self) {
        // SeqCst: pairs with the fence of `park`. Either this thread sees `parked`, or that one sees the inbox.
        fence(Ordering::SeqCst);
        if self.parked.load(Ordering::Relaxed) {
            self.call_driver();
        }
    }

    /// Sleeps until somebody connects, or calls. The engine's time stands still meanwhile: there is nobody to wait for.
    pub(crate) fn park(&self) {
        self.parked.store(true, Ordering::Relaxed);
        // SeqCst: pairs with the fence of `call_driver_if_parked`.
        fence(Ordering::SeqCst);
        if self.inbox.is_empty() {
            lock(&self.driver).pause();
            let _ = self.wakeup.1.recv();
        }
        self.parked.store(false, Ordering::Relaxed);
    }
}

/// Whether the state of an incarnation that ended like this outlives it (G1).
fn is_remembered(word: Word, policy: &Policy) -> bool {
    let told = match word.end() {
        Some(EndReason::Left) => word.state() == WorkerState::Quiet,
        Some(EndReason::Expired) => word.state() > WorkerState::Running,
        Some(EndReason::Superseded) | None => false,
    };
    told && !policy.remember().is_zero()
}

/// The state in which a newcomer begins where `old` has ended.
fn remembered_for(old: &Worker, hello: &Hello, now: u64, policy: &Policy) -> WorkerState {
    let word = old.vitals.load();
    let in_time = now.saturating_sub(word.tick()) <= policy.ticks(policy.remember());
    if is_remembered(word, policy) && in_time && old.hello.same_process(hello) {
        word.state()
    } else {
        WorkerState::Running
    }
}

#[cfg(test)]
mod tests;
