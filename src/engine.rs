//! What all handles share. The public faces are `Registry`, `Session` and `Lease`; what happens to workers is in `transitions`, what
//! the driver does in `driver`.
//!
//! Ground rules
//! - A transition is one swap of the worker's word, made under the worker's own lock and followed by its duties: counters,
//!   event, connections to close, waiters to wake. A plain beat takes no lock and has no duties.
//! - An ended incarnation stays in the map while the state it was told is remembered; everyone who looks there asks the word
//!   first. It leaves the map by identity, so nothing can remove a successor (G5).
//! - Closers go to the queue of the driver; wakers are woken by whoever made the transition, holding nothing.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Waker;

use arc_swap::ArcSwap;
use crossbeam::channel::{Receiver, Sender, bounded};
use crossbeam::queue::SegQueue;
use crossbeam::utils::CachePadded;

use crate::driver::Driver;
use crate::error::PolicyError;
use crate::event::Bus;
use crate::hangup::Hangup;
use crate::hello::Wid;
use crate::lease::{ById, Cell};
use crate::map::{self, Map};
use crate::plot::Plots;
use crate::policy::Policy;
use crate::snapshot::Latest;
use crate::sync::{AtomicBool, AtomicU64, Count, Flag, Mutex, Number, Ordering, Sum, fence, lock};
use crate::vitals::Word;
use crate::worker::{Entry, Worker};

/// So many that a pass over one shard of a million workers holds its lock for four thousand entries only, and so few that
/// their own locks stay in the cache.
const SHARDS: usize = 256;

/// So many newcomers are not left waiting for the next tick: most of them may be gone already.
const MANY_NEWCOMERS: usize = 4096;

/// What a thread that lets go of a worker's lock still has to do.
#[must_use = "whoever waits must be woken"]
#[derive(Default)]
pub(crate) struct Wake {
    wakers: Vec<Waker>,
    /// Leases that ended with their holder, and are still in the map.
    lost: Vec<Arc<Cell>>,
}

impl Wake {
    pub(crate) fn new(wakers: Vec<Waker>, lost: Vec<Arc<Cell>>) -> Self {
        Wake { wakers, lost }
    }

    /// Does what is the engine's own, and leaves whom to wake. To be called with no worker locked.
    pub(crate) fn settled(mut self, engine: &Engine) -> Self {
        engine.forget_leases(&std::mem::take(&mut self.lost));
        self
    }

    /// Does all of it. To be called with nothing locked; a waker that panics costs the others nothing.
    pub(crate) fn all(self, engine: &Engine) {
        self.settled(engine).wake();
    }

    /// Wakes everyone, once the rest is settled.
    pub(crate) fn wake(self) {
        for waker in self.wakers {
            let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
        }
    }

    /// Each of them, to be woken elsewhere.
    pub(crate) fn each(self) -> impl Iterator<Item = Wake> {
        self.wakers.into_iter().map(|waker| Wake::new(vec![waker], Vec::new()))
    }

    pub(crate) fn and(&mut self, other: Wake) {
        self.wakers.extend(other.wakers);
        self.lost.extend(other.lost);
    }
}

/// Sums over the fleet. Written on transitions only, never on a plain beat.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) live: [Count; 3],
    pub(crate) connections: Count,
    pub(crate) late: Count,
    pub(crate) leases: Count,
    pub(crate) leases_ended: [Number; 5],
    /// Ended workers that still hold leases.
    pub(crate) ended_holders: Count,
    pub(crate) joined: Number,
    pub(crate) ended: [Number; 3],
    pub(crate) remembered: Count,
    pub(crate) not_remembered: Number,
    pub(crate) gaps: Number,
    pub(crate) overdue: Number,
    pub(crate) mass_silences: Number,
    pub(crate) holding: Flag,
    pub(crate) filed: Count,
    /// Grows with every transition, so that a snapshot can tell whether it is still true.
    pub(crate) transitions: Number,
}

impl Counters {
    /// Something has changed that a snapshot shows.
    pub(crate) fn transition(&self) {
        // Release: pairs with the Acquire of `Engine::snapshot`; who builds one by this number sees what was changed.
        self.transitions.fetch_add(1, Ordering::Release);
    }

    pub(crate) fn live(&self) -> usize {
        self.live.iter().map(Sum::get).sum()
    }
}

pub(crate) struct Engine {
    /// The engine's time in ticks, published by the driver.
    clock: CachePadded<AtomicU64>,
    pub(crate) policy: ArcSwap<Policy>,
    pub(crate) workers: Map<Wid, Entry>,
    pub(crate) plots: Arc<Plots>,
    pub(crate) incarnations: Number,
    pub(crate) leases: Map<ById, ()>,
    pub(crate) tokens: Number,
    /// The longest ttl any worker has had, in ticks.
    pub(crate) longest_ttl: Number,
    /// The longest time any lease or deadline was given, in ticks.
    pub(crate) longest_span: Number,
    /// Workers on their way to the wheel.
    pub(crate) inbox: SegQueue<Arc<Worker>>,
    /// Connections to close, on their way out.
    pub(crate) hangups: SegQueue<Hangup>,
    pub(crate) driver: Mutex<Driver>,
    /// The driver's thread sleeps until it is woken.
    parked: AtomicBool,
    /// A wake-up for it; one that is under way is enough.
    pub(crate) wakeup: (Sender<()>, Receiver<()>),
    /// A reaper thread is running.
    pub(crate) driven: Flag,
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
        let wakeup = bounded(1);
        Ok(Engine {
            clock: CachePadded::default(),
            driver: Mutex::new(Driver::new(policy.tick)),
            policy: ArcSwap::from_pointee(policy),
            workers: map::new(SHARDS),
            plots: Arc::default(),
            incarnations: Number::new(1),
            leases: map::new(SHARDS),
            tokens: Number::new(1),
            longest_ttl: Number::new(0),
            longest_span: Number::new(0),
            inbox: SegQueue::new(),
            hangups: SegQueue::new(),
            parked: AtomicBool::new(false),
            bus: Bus::new(wakeup.0.clone()),
            wakeup,
            driven: Flag::new(false),
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

    /// The published time `span` from now, for a lease or a deadline. How far that time was behind is kept for so long.
    pub(crate) fn in_ticks(&self, span: u64) -> u64 {
        // Relaxed: read by the driver's next pass. Looked at first, for it is seldom longer than all before.
        if self.longest_span.load(Ordering::Relaxed) < span {
            // Relaxed: as above.
            self.longest_span.fetch_max(span, Ordering::Relaxed);
        }
        self.now().saturating_add(span)
    }

    pub(crate) fn publish_time(&self, now: u64) {
        // Relaxed: as in `now`.
        self.clock.store(now, Ordering::Relaxed);
    }

    /// All live workers, each with the word that said so. Weakly consistent: see the crate's documentation.
    pub(crate) fn live(&self) -> impl Iterator<Item = (Arc<Worker>, Word)> + '_ {
        self.workers.iter().filter_map(|entry| {
            let word = entry.line.vitals.load();
            word.is_live().then(|| (entry.worker.clone(), word))
        })
    }

    /// Hands a worker to the driver, which files it where it wants to be looked at, if it is not filed there or earlier.
    pub(crate) fn file(&self, worker: Arc<Worker>) {
        self.inbox.push(worker);
        if self.inbox.len() > MANY_NEWCOMERS {
            self.call_driver();
        } else {
            self.call_driver_if_parked();
        }
    }

    /// Wakes the driver's thread.
    pub(crate) fn call_driver(&self) {
        let _ = self.wakeup.0.try_send(());
    }

    /// Wakes the driver's thread if it sleeps because nothing was filed.
    fn call_driver_if_parked(&self) {
        // SeqCst: pairs with the fence of `park`. Either this thread sees `parked`, or that one sees the inbox.
        fence(Ordering::SeqCst);
        // Relaxed: the fence orders it.
        if self.parked.load(Ordering::Relaxed) {
            self.call_driver();
        }
    }

    /// Sleeps until somebody connects, or calls. The engine's time stands still meanwhile: there is nobody to wait for.
    pub(crate) fn park(&self) {
        if self.may_park() {
            lock(&self.driver).pause();
            let _ = self.wakeup.1.recv();
        }
        // Relaxed: a call that comes for nothing does no harm.
        self.parked.store(false, Ordering::Relaxed);
    }

    /// From here on whoever files a worker calls the driver. `false` if somebody has filed one before.
    fn may_park(&self) -> bool {
        // Relaxed: the fence orders it.
        self.parked.store(true, Ordering::Relaxed);
        // SeqCst: pairs with the fence of `call_driver_if_parked`.
        fence(Ordering::SeqCst);
        self.inbox.is_empty()
    }
}

impl Drop for Engine {
    /// A lease holds its worker, and a worker what it holds.
    fn drop(&mut self) {
        for (lease, ()) in std::mem::take(&mut self.leases) {
            lease.0.let_go();
        }
    }
}

#[cfg(all(test, heartwheel_loom))]
mod explored;
#[cfg(all(test, not(heartwheel_loom)))]
mod tests;
