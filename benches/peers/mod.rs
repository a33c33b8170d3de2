//! The designs that are measured side by side, each behind [`Fleet`].
//!
//! Ground rules
//! - A peer is no slower than its design makes it: its maps are sized for their workers, hash with what heartwheel
//!   hashes with, and read time as heartwheel does, from one shared word. What is left is the design.
//! - The lock-free peers hold [`Word`], which means what heartwheel's word means for a beat and has its shortcut: a
//!   second beat within one tick swaps nothing.
//! - A worker is a number here; [`wid`] is its id, the same for every peer.

#![allow(dead_code, reason = "each bench uses a part of it")]

use std::sync::atomic::{AtomicU64, Ordering};

use ::heartwheel::WorkerState;
use crossbeam::utils::CachePadded;

pub(crate) mod dashmap;
pub(crate) mod floor;
pub(crate) mod heartwheel;
pub(crate) mod papaya;
pub(crate) mod rwlock_map;
pub(crate) mod scc;

/// The hasher of every map.
pub(crate) type Hasher = foldhash::quality::RandomState;

/// A fleet of workers that are heard, as one design keeps it.
pub(crate) trait Fleet: Send + Sync + 'static {
    /// Its row in the table.
    const NAME: &'static str;

    /// What one who beats holds of a worker: a handle where the design has one, else the wid.
    type Handle: Send + Sync + 'static;

    /// A fleet of `workers` workers, running, last heard in tick 0.
    fn of(workers: usize) -> Self;

    /// The handle of a worker; each thread takes its own.
    fn handle(&self, worker: usize) -> Self::Handle;

    /// A heartbeat. Returns what the worker was told.
    fn beat(&self, handle: &Self::Handle) -> WorkerState;

    /// Tells a worker a state.
    fn tell(&self, worker: usize, state: WorkerState);

    /// The fleet's time in ticks.
    fn now(&self) -> u64;

    /// Moves time on by one tick.
    fn advance(&self);

    /// The tick in which a worker was heard last.
    fn last_beat(&self, worker: usize) -> u64;

    /// What a worker was told.
    fn state(&self, worker: usize) -> WorkerState;

    /// Panics unless the worker was heard in the present tick and was told `state`.
    fn check(&self, worker: usize, state: WorkerState) {
        assert_eq!(self.last_beat(worker), self.now(), "{}: worker {worker} was not heard", Self::NAME);
        assert_eq!(self.state(worker), state, "{}: worker {worker} was told something else", Self::NAME);
    }
}

/// The id of a worker: 16 bytes, without an order that a map could profit from.
pub(crate) fn wid(worker: usize) -> String {
    format!("{:016x}", scrambled(worker as u64))
}

/// The finalizer of splitmix64: one to one, and its results look random.
pub(crate) fn scrambled(number: u64) -> u64 {
    let mut z = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The time of a peer, as cheap to read as heartwheel's: one shared word, alone on its line.
#[derive(Default)]
pub(crate) struct Clock(CachePadded<AtomicU64>);

impl Clock {
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        // Relaxed: a number that only grows.
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn advance(&self) {
        // Relaxed: as in `now`; the gate between two rounds orders it for those who beat.
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

const STATE_BITS: u32 = 2;
const STATE_MASK: u64 = (1 << STATE_BITS) - 1;

/// The plain word of a tick and a state.
pub(crate) fn packed(tick: u64, state: WorkerState) -> u64 {
    tick << STATE_BITS | state as u64
}

/// The state in a packed word.
#[inline]
pub(crate) fn state_of(word: u64) -> WorkerState {
    match word & STATE_MASK {
        0 => WorkerState::Running,
        1 => WorkerState::Quiet,
        _ => WorkerState::Terminate,
    }
}

/// The last beat's tick and the state of a worker in one atomic word.
#[derive(Default)]
pub(crate) struct Word(AtomicU64);

impl Word {
    /// Heard at `now`: the later tick and the state stay. Returns the state.
    #[inline]
    pub(crate) fn heard(&self, now: u64) -> WorkerState {
        // Acquire: pairs with the Release of whoever told a state.
        let mut word = self.0.load(Ordering::Acquire);
        loop {
            let next = word.max(now << STATE_BITS | word & STATE_MASK);
            if next == word {
                return state_of(word);
            }
            // AcqRel, Acquire: as heartwheel's own; see `load`.
            match self.0.compare_exchange_weak(word, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return state_of(word),
                Err(current) => word = current,
            }
        }
    }

    /// Told `state`; nobody else writes meanwhile.
    pub(crate) fn told(&self, state: WorkerState) {
        // AcqRel: Release pairs with the Acquire of `heard`.
        self.0.fetch_or(state as u64, Ordering::AcqRel);
    }

    pub(crate) fn tick(&self) -> u64 {
        // Acquire: read when all who beat have stopped.
        self.0.load(Ordering::Acquire) >> STATE_BITS
    }

    pub(crate) fn state(&self) -> WorkerState {
        // Acquire: as in `tick`.
        state_of(self.0.load(Ordering::Acquire))
    }
}
