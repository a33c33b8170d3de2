//! What nothing can go below: one instruction on the worker's cache line, and a bare reading of a clock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use ::heartwheel::WorkerState;

use super::{Clock, Fleet, packed, state_of};

/// The one place where benches read the monotonic clock.
#[inline]
pub(crate) fn instant() -> Instant {
    #[expect(
        clippy::disallowed_methods,
        reason = "a bench times, and makes up the instants that it drives with"
    )]
    Instant::now()
}

/// A word with a cache line of its own.
#[derive(Default)]
#[repr(align(64))]
struct Line(AtomicU64);

/// Where a word is. Whoever beats knows its state, so that a beat need not read before it swaps.
pub(crate) struct Place {
    at: u32,
    state: WorkerState,
}

/// The lines of a fleet, in one array.
struct Lines {
    lines: Vec<Line>,
    clock: Clock,
}

impl Lines {
    fn of(workers: usize) -> Self {
        Lines { lines: (0..workers).map(|_| Line::default()).collect(), clock: Clock::default() }
    }

    fn place(&self, worker: usize) -> Place {
        Place { at: u32::try_from(worker).expect("a worker of the fleet"), state: self.state(worker) }
    }

    fn word(&self, worker: usize) -> u64 {
        // Relaxed: written before the threads start and after they stop.
        self.lines[worker].0.load(Ordering::Relaxed)
    }

    fn tell(&self, worker: usize, state: WorkerState) {
        // Relaxed: as in `word`.
        self.lines[worker].0.store(packed(self.last_beat(worker), state), Ordering::Relaxed);
    }

    fn last_beat(&self, worker: usize) -> u64 {
        self.word(worker) >> super::STATE_BITS
    }

    fn state(&self, worker: usize) -> WorkerState {
        state_of(self.word(worker))
    }
}

/// The floor of a beat that is the first of its tick: one compare-and-swap from a value known before.
pub(crate) struct Swap(Lines);

impl Fleet for Swap {
    const NAME: &'static str = "floor: a bare compare-and-swap";

    type Handle = Place;

    fn of(workers: usize) -> Self {
        Swap(Lines::of(workers))
    }

    fn handle(&self, worker: usize) -> Place {
        self.0.place(worker)
    }

    #[inline]
    fn beat(&self, place: &Place) -> WorkerState {
        let now = self.0.clock.now();
        let (before, after) = (packed(now - 1, place.state), packed(now, place.state));
        let line = &self.0.lines[place.at as usize].0;
        // AcqRel, Acquire: what a beat must use.
        match line.compare_exchange(before, after, Ordering::AcqRel, Ordering::Acquire) {
            Ok(word) => state_of(word),
            Err(_) => panic!("a second beat within one tick"),
        }
    }

    fn tell(&self, worker: usize, state: WorkerState) {
        self.0.tell(worker, state);
    }

    fn now(&self) -> u64 {
        self.0.clock.now()
    }

    fn advance(&self) {
        self.0.clock.advance();
    }

    fn last_beat(&self, worker: usize) -> u64 {
        self.0.last_beat(worker)
    }

    fn state(&self, worker: usize) -> WorkerState {
        self.0.state(worker)
    }
}

/// The floor of a beat in a tick in which its worker was heard: one load.
pub(crate) struct Load(Lines);

impl Fleet for Load {
    const NAME: &'static str = "floor: a bare load";

    type Handle = Place;

    fn of(workers: usize) -> Self {
        Load(Lines::of(workers))
    }

    fn handle(&self, worker: usize) -> Place {
        self.0.place(worker)
    }

    #[inline]
    fn beat(&self, place: &Place) -> WorkerState {
        // Acquire: what a beat must use.
        state_of(self.0.lines[place.at as usize].0.load(Ordering::Acquire))
    }

    fn tell(&self, worker: usize, state: WorkerState) {
        self.0.tell(worker, state);
    }

    fn now(&self) -> u64 {
        self.0.clock.now()
    }

    fn advance(&self) {
        self.0.clock.advance();
        for worker in 0..self.0.lines.len() {
            // Relaxed: as in `word`.
            self.0.lines[worker].0.store(packed(self.now(), self.state(worker)), Ordering::Relaxed);
        }
    }

    fn last_beat(&self, worker: usize) -> u64 {
        self.0.last_beat(worker)
    }

    fn state(&self, worker: usize) -> WorkerState {
        self.0.state(worker)
    }
}
