//! The store that keeps jobs in memory: nothing survives a restart.
//!
//! One mutex around plain data. What happens under it is O(1) or O(log n) in the number of jobs, except
//! [`counts`](JobStore::counts) and [`flush`](JobStore::flush), which are O(queues); long work (a holder with very many
//! jobs, very many due at once) is cut in slices, and JSON is read and written outside. Wakers run, and jobs are freed,
//! after the lock is released.

mod lines;
mod record;
mod reserved;
mod state;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use bytes::Bytes;
use jiff::Timestamp;

use super::{Ack, Counts, Fail, Job, JobStore, Limits, PushError, Readiness, Wait, wall_now};
use lines::Names;
#[cfg(test)]
pub(super) use record::OVERHEAD;
pub(crate) use record::Record;
#[cfg(test)]
pub(super) use state::DEAD_KEPT;
use state::{Moved, State};

/// Jobs moved per lock by work that can be long.
const SLICE: usize = 128;

/// Keeps all jobs in memory.
///
/// Of the dead it keeps the newest 1000, or fewer when these would take more than an eighth of
/// [`Limits::max_bytes`]; they come on top of the limits and never stand in the way of a PUSH.
pub struct MemoryStore {
    limits: Limits,
    state: Arc<Mutex<State>>,
}

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits, state: Arc::default() }
    }

    /// What it may hold.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.limits
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Runs `step` up to `budget` times, a slice per lock, until it has nothing to do.
    fn in_slices(&self, budget: usize, mut step: impl FnMut(&mut State) -> Option<Moved>) -> usize {
        let mut done = 0;
        loop {
            let slice = SLICE.min(budget - done);
            let mut state = self.lock();
            let moves: Vec<_> = (0..slice).map_while(|_| step(&mut state)).collect();
            drop(state);
            done += moves.len();
            let ended = moves.len() < slice || done == budget;
            for Moved(woken) in moves {
                wake(woken);
            }
            if ended {
                return done;
            }
        }
    }

    /// A push at a moment given on both clocks.
    pub(super) fn push_at(&self, job: Job, now: Instant, wall: Timestamp) -> Result<(), PushError> {
        let (record, due) = job.into_record(wall, now);
        let record = Box::new(record);
        let mut state = self.lock();
        state.admit(self.limits, &record)?;
        let woken = state.push(record, due);
        drop(state);
        wake(woken);
        Ok(())
    }

    /// Queue names held in memory.
    #[cfg(test)]
    pub(super) fn names(&self) -> usize {
        self.lock().lines.names()
    }
}

impl JobStore for MemoryStore {
    fn push(&self, job: Job, now: Instant) -> Result<(), PushError> {
        self.push_at(job, now, wall_now())
    }

    fn fetch(&self, queues: &[&str], holder: u64, now: Instant) -> Option<Bytes> {
        let text = self.lock().fetch(queues, holder, now)?;
        Some(text.render())
    }

    fn ack(&self, jid: &str, holder: Option<u64>) -> Ack {
        let (ack, _freed) = self.lock().ack(jid, holder);
        ack
    }

    fn fail(&self, fail: Fail, holder: Option<u64>, now: Instant) -> Ack {
        let wall = wall_now();
        let (ack, _freed) = self.lock().fail(self.limits, fail, holder, now, wall);
        ack
    }

    fn release(&self, holder: u64, _now: Instant) -> usize {
        self.in_slices(usize::MAX, |state| state.release_one(holder))
    }

    fn give_back(&self, jid: &str, holder: u64) -> bool {
        let Some(Moved(woken)) = self.lock().give_back(jid, holder) else { return false };
        wake(woken);
        true
    }

    fn advance(&self, now: Instant, budget: usize) -> bool {
        let wall = wall_now();
        self.in_slices(budget, |state| state.advance_one(now, wall));
        self.lock().is_due(now)
    }

    fn counts(&self) -> Counts {
        let state = self.lock();
        let sizes = state.lines.sizes();
        let (scheduled, retries) = state.pending();
        let counts = Counts {
            enqueued: state.lines.len(),
            scheduled,
            retries,
            working: state.reserved.len(),
            dead_kept: state.dead_kept(),
            bytes: state.bytes,
            dead: state.totals.dead,
            processed: state.totals.processed,
            failures: state.totals.failures,
            expired: state.totals.expired,
            stale: state.totals.stale,
            ..Counts::default()
        };
        drop(state);
        let queues = sizes.into_iter().map(|(name, len)| (name.as_ref().to_owned(), len)).collect();
        Counts { queues, ..counts }
    }

    fn dead(&self, limit: usize) -> Vec<Bytes> {
        let texts = self.lock().dead(limit);
        texts.iter().map(record::Text::render).collect()
    }

    fn flush(&self) {
        let _freed = self.lock().flush();
    }

    fn wait(&self, queues: &[&str]) -> Wait {
        let names = queues.iter().map(|&name| name.into()).collect();
        Wait::new(Sleeper { state: Arc::clone(&self.state), names, id: None })
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // No lock: this must not hang when it is printed from inside.
        f.debug_struct("MemoryStore").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// A wait on queues in memory. It is unknown to the store until it first has to sleep.
struct Sleeper {
    state: Arc<Mutex<State>>,
    names: Names,
    id: Option<u64>,
}

impl Readiness for Sleeper {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let waker = cx.waker().clone();
        let mut state = lock(&self.state);
        let id = *self.id.get_or_insert_with(|| state.next());
        let polled = state.lines.poll(id, &self.names, waker);
        drop(state);
        drop(polled.replaced);
        wake(polled.wake);
        if polled.ready { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            let (woken, _own) = lock(&self.state).lines.leave(id);
            wake(woken);
        }
    }
}

impl fmt::Debug for Sleeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleeper").field("names", &self.names).field("id", &self.id).finish_non_exhaustive()
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// A panic under the lock would be a fault of this module; the state is left between two moves and still usable.
fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
