//! Where the jobs are, in memory: nothing survives a restart.
//!
//! One mutex around plain data. What happens under it is O(1) or O(log n) in the number of jobs, except
//! [`counts`](JobStore::counts) and [`flush`](JobStore::flush), which are O(queues) and O(reserved jobs); long work (very many due
//! at once) is cut in slices, and JSON is read and written outside. Wakers run, leases are granted and ended, and jobs are freed, with
//! the lock released.
//!
//! # How the store follows the leases
//! A lease is granted and ended without the lock, so each of these can come between two steps of another:
//! - FETCH takes a job from its queue into an attempt, leases it, and notes the lease. A lease that is lost before it was noted is not
//!   found by [`lost`](JobStore::lost), so FETCH looks once more after it has noted it.
//! - ACK ends the lease, and then the attempt. An attempt whose lease was completed is nobody's to put back.
//! - Whoever learns that a lease was lost puts the job back. Several may; the attempt is there for one of them only.

mod lines;
mod record;
mod reserved;
mod state;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Instant;

use bytes::Bytes;
use jiff::Timestamp;

use super::{Counts, Fail, Job, Limits, PushError, Wait, wall_now};
use crate::error::{LeaseError, NotHeld};
use crate::lease::{Lease, LeaseEnd, LeaseInfo, Token};
use crate::session::Session;
use crate::state::Incarnation;
pub(super) use lines::Names;
#[cfg(test)]
pub(super) use record::OVERHEAD;
pub(crate) use record::Record;
pub(super) use state::State;
use state::{Moved, Offer};

/// Jobs moved or looked at per lock by work that can be long.
const SLICE: usize = 128;

/// What became of an ACK or FAIL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub enum Ack {
    /// The attempt is over.
    Done,
    /// Nobody holds such a job. Faktory answers OK to this, and so should a server.
    Unknown,
    /// The job was handed out and lost: it is back in its queue or with another holder. Nothing changed.
    Stale,
}

/// A job that was put back.
#[derive(Clone, Debug)]
pub struct Requeued {
    jid: Arc<str>,
    queue: Arc<str>,
    head: Bytes,
    lease: Lease,
}

impl Requeued {
    /// Its jid.
    #[must_use]
    pub fn jid(&self) -> &str {
        &self.jid
    }

    /// The queue it is in again.
    #[must_use]
    pub fn queue(&self) -> &str {
        &self.queue
    }

    /// The lease that was lost: whose it was.
    #[must_use]
    pub fn holder(&self) -> LeaseInfo {
        self.lease.info()
    }

    /// How it was lost.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self.lease.ended() {
            Some(LeaseEnd::HolderEnded) => "its holder ended",
            _ => "its time ran out",
        }
    }

    /// What it is to run.
    #[must_use]
    pub fn jobtype(&self) -> String {
        record::jobtype(&self.head)
    }
}

/// Keeps jobs from PUSH to ACK, in memory. The rules are on the [module](super).
///
/// All methods are synchronous and short, so they may be called from an async task. Every `now` comes from one
/// monotonic source; a `now` a little older than one seen before is harmless.
pub struct JobStore {
    limits: Limits,
    state: Arc<Mutex<State>>,
}

impl JobStore {
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

    /// Takes a job in: to the end of its queue, or on the schedule when its `at` is still to come.
    ///
    /// # Errors
    /// [`PushError::Full`] when the job would pass a limit. Nothing has changed then.
    pub fn push(&self, job: Job, now: Instant) -> Result<(), PushError> {
        self.push_at(job, now, wall_now())
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

    /// Takes the next job of the first queue, in the order given, that has one, and leases it to `holder` for its `reserve_for`.
    /// Returns the JSON for the worker.
    ///
    /// The id of the lease is the jid; of a second job with a jid that is held, the jid and a number.
    ///
    /// # Errors
    /// As [`Session::lease`] says: the holder has ended, or is to be given no work. The job is back in its place.
    pub fn fetch(&self, queues: &[&str], holder: &Session) -> Result<Option<Bytes>, LeaseError> {
        let Some(offer) = self.lock().offer(queues) else { return Ok(None) };
        let lease = match lease(holder, &offer) {
            Ok(lease) => lease,
            Err(refused) => {
                self.undo(offer.attempt);
                return Err(refused);
            }
        };
        if !self.lock().reserved.grant(offer.attempt, holder.incarnation(), lease.clone()) {
            // Flushed meanwhile. If the lease was lost, too, so much the better.
            let _ = lease.release();
            return Ok(None);
        }
        if reserved::is_lost(&lease) {
            // Whoever was told of it may have found nothing to put back.
            self.undo(offer.attempt);
            return Err(LeaseError::Gone);
        }
        Ok(Some(offer.text.render()))
    }

    fn undo(&self, attempt: u64) {
        let moved = self.lock().put_back(attempt);
        if let Some(Moved(woken)) = moved {
            wake(woken);
        }
    }

    /// Ends an attempt well. `None` as the holder acts for whoever holds the job: producers may acknowledge too.
    ///
    /// What decides is the lease: an ACK after the end of its time counts while the engine has not ended it.
    pub fn ack(&self, jid: &str, holder: Option<Incarnation>) -> Ack {
        self.end(jid, holder, Lease::complete, State::done)
    }

    /// Ends an attempt badly: the job is retried later, dropped (`retry` −1), or dead (no retry left).
    pub fn fail(&self, fail: Fail, holder: Option<Incarnation>, now: Instant) -> Ack {
        let (jid, wall) = (fail.jid.clone(), wall_now());
        self.end(&jid, holder, Lease::fail, |state, attempt| state.failed(attempt, fail, now, wall))
    }

    /// First the lease, which decides; then the attempt.
    fn end(
        &self,
        jid: &str,
        holder: Option<Incarnation>,
        end: impl FnOnce(&Lease) -> Result<(), NotHeld>,
        settle: impl FnOnce(&mut State, u64) -> Option<Box<Record>>,
    ) -> Ack {
        let (attempt, lease) = match self.lock().held(jid, holder) {
            Ok(held) => held,
            Err(refused) => return refused,
        };
        match end(&lease) {
            Ok(()) => {
                let freed = settle(&mut self.lock(), attempt);
                drop(freed);
                Ack::Done
            }
            Err(NotHeld { how: LeaseEnd::Expired | LeaseEnd::HolderEnded, .. }) => {
                self.lock().totals.stale += 1;
                Ack::Stale
            }
            // Another ACK was quicker, or a flush.
            Err(_) => Ack::Unknown,
        }
    }

    /// The lease with this token was lost ([`Event::Lost`](crate::Event::Lost)): its job is back in its place. `None` if it is already,
    /// or the lease was not of a job.
    pub fn lost(&self, token: Token) -> Option<Requeued> {
        let (requeued, Moved(woken)) = self.lock().lose_by_token(token)?;
        wake(woken);
        Some(requeued)
    }

    /// Puts back every job whose lease was lost until now, and of which nobody told: after [`Lagged`](crate::Lagged).
    pub fn lost_unheard(&self) -> Vec<Requeued> {
        let mut all = Vec::new();
        let mut from = Some(0);
        while let Some(start) = from {
            let mut state = self.lock();
            let (lost, next) = state.reserved.lost(start, SLICE);
            let back: Vec<_> = lost.into_iter().filter_map(|attempt| state.lose(attempt)).collect();
            drop(state);
            for (requeued, Moved(woken)) in back {
                wake(woken);
                all.push(requeued);
            }
            from = next;
        }
        all
    }

    /// Moves scheduled jobs that are due to their queues. At most `budget` jobs are moved; `true` means that more are due.
    pub fn advance(&self, now: Instant, budget: usize) -> bool {
        let wall = wall_now();
        self.in_slices(budget, |state| state.advance_one(now, wall));
        self.lock().is_due(now)
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

    /// Sizes and totals, all from one moment.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let state = self.lock();
        let sizes = state.lines.sizes();
        let counts = Counts {
            enqueued: state.lines.len(),
            scheduled: state.scheduled.len(),
            retries: state.retries.len(),
            working: state.reserved.len(),
            dead_kept: state.dead.len(),
            bytes: state.bytes,
            dead: state.totals.dead,
            processed: state.totals.processed,
            failures: state.totals.failures,
            lost: state.totals.lost,
            stale: state.totals.stale,
            ..Counts::default()
        };
        drop(state);
        let queues = sizes.into_iter().map(|(name, len)| (name.as_ref().to_owned(), len)).collect();
        Counts { queues, ..counts }
    }

    /// The newest dead jobs, newest first, at most `limit`.
    #[must_use]
    pub fn dead(&self, limit: usize) -> Vec<Bytes> {
        let texts = self.lock().newest_dead(limit);
        texts.iter().map(record::Text::render).collect()
    }

    /// Drops every job and sets every total to zero. Attempts that were running end as [`Ack::Unknown`].
    pub fn flush(&self) {
        let (leases, freed) = self.lock().flush();
        drop(freed);
        for lease in leases {
            // It may have ended just now.
            let _ = lease.release();
        }
    }

    /// A way to sleep until one of these queues has a job to take.
    pub fn wait(&self, queues: &[&str]) -> Wait {
        Wait::new(Arc::clone(&self.state), queues.iter().map(|&name| name.into()).collect())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Queue names held in memory.
    #[cfg(test)]
    pub(super) fn names(&self) -> usize {
        self.lock().lines.names()
    }
}

impl fmt::Debug for JobStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // No lock: this must not hang when it is printed from inside.
        f.debug_struct("JobStore").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// Leases a job to its holder, under the first id that is free: there may be several jobs with one jid.
fn lease(holder: &Session, offer: &Offer) -> Result<Lease, LeaseError> {
    let mut id = String::from(&*offer.jid);
    loop {
        match holder.lease(&id, offer.reserve_for) {
            // A jid may look like this, so it may be held as well.
            Err(LeaseError::Held(_)) => id.push_str(&format!("#{}", offer.attempt)),
            leased => return leased,
        }
    }
}

pub(super) fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// A panic under the lock would be a fault of this module; the state is left between two moves and still usable.
pub(super) fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
