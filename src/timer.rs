//! What the timer wheel holds: workers and leases, each under the tick at which it is to be looked at.
//!
//! Ground rules
//! - Whoever has anything to wait for has one valid entry, and notes the tick it is filed under. An entry under another tick is
//!   stale: it is dropped when it comes due, or by a sweep.
//! - An earlier deadline is filed beside the old entry, which becomes stale by that; a later one is found when the old one comes due.
//! - All of this happens in the driver. Others hand in a timer ([`Engine::file`](crate::engine::Engine::file)), and the driver asks it when it
//!   wants to be looked at.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::lease::Cell;
use crate::policy::Policy;
use crate::state::WorkerState;
use crate::sync::lock;
use crate::vitals::Word;
use crate::wheel::{Keep, Wheel};
use crate::worker::{Cold, Worker};

/// An entry of the wheel.
#[derive(Clone, Debug)]
pub(crate) enum Timer {
    Worker(Arc<Worker>),
    Lease(Arc<Cell>),
}

impl Timer {
    fn filed(&self) -> u64 {
        match self {
            Timer::Worker(worker) => worker.filed(),
            // Relaxed: only the driver, under its lock, reads and writes it.
            Timer::Lease(cell) => cell.filed.load(Ordering::Relaxed),
        }
    }

    fn set_filed(&self, due: u64) {
        match self {
            Timer::Worker(worker) => worker.set_filed(due),
            // Relaxed: as above.
            Timer::Lease(cell) => cell.filed.store(due, Ordering::Relaxed),
        }
    }

    /// Whether an entry under `due` is the valid one.
    pub(crate) fn is_filed(&self, due: u64) -> bool {
        self.filed() == due
    }

    /// When it wants to be looked at; `None` if there is nothing left to wait for.
    fn look_at(&self, policy: &Policy) -> Option<u64> {
        match self {
            Timer::Worker(worker) => look_at(worker, policy),
            Timer::Lease(cell) => cell.look_at(),
        }
    }

    /// Files it for the first time, or earlier than it is.
    pub(crate) fn file(self, wheel: &mut Wheel<Timer>, policy: &Policy) {
        if let Some(due) = self.look_at(policy)
            && due < self.filed()
        {
            self.file_under(due, wheel);
        }
    }

    /// Files it under `due`, and nowhere else.
    pub(crate) fn file_under(self, due: u64, wheel: &mut Wheel<Timer>) {
        self.set_filed(due);
        wheel.insert(due, self);
    }

    /// What a sweep makes of its entry under `due`.
    pub(crate) fn keep(&self, due: u64, policy: &Policy) -> Keep {
        if !self.is_filed(due) {
            return Keep::Drop;
        }
        match self.look_at(policy) {
            Some(look) if look < due => {
                self.set_filed(look);
                Keep::Refile(look)
            }
            Some(_) => Keep::Stay,
            None => Keep::Drop,
        }
    }
}

/// When a worker wants to be looked at, if the published time never lags by more than a tick; the look itself sees how
/// it was.
pub(crate) fn look_at(worker: &Worker, policy: &Policy) -> Option<u64> {
    let word = worker.vitals.load();
    let cold = lock(&worker.cold);
    if !word.is_live() {
        return cold.remembered.then(|| remembered_until(word, policy));
    }
    let mut look = word.tick().saturating_add(worker.ttl(policy)).saturating_add(2);
    if !word.is_late() {
        look = look.min(word.tick().saturating_add(worker.late_after(policy)).saturating_add(2));
    }
    if let Some(deadline) = cold.deadline() {
        look = look.min(deadline.tick.saturating_add(2));
    }
    Some(look)
}

/// The first tick at which an ended worker's state is not remembered any more.
pub(crate) fn remembered_until(word: Word, policy: &Policy) -> u64 {
    word.tick().saturating_add(policy.ticks(policy.remember())).saturating_add(1)
}

/// Whether a worker has done what it was told: whoever is told to quiet, when it holds no lease any more; whoever is told to
/// terminate, when it has gone.
pub(crate) fn has_done(word: Word, cold: &Cold) -> bool {
    match word.state() {
        WorkerState::Running => true,
        WorkerState::Quiet => cold.work.as_ref().is_none_or(|work| work.leases.is_empty()),
        WorkerState::Terminate => false,
    }
}
