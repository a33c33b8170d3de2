//! The contract between the server and whatever keeps its jobs.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Instant;

use bytes::Bytes;

use super::{Fail, Job, PushError, Wait};

/// Keeps jobs from PUSH to ACK. The rules every store follows are on the [module](super).
///
/// All methods are synchronous and short, so they may be called from an async task. Every `now` comes from one
/// monotonic source; a `now` a little older than one seen before is harmless.
///
/// # A holder that dies while it fetches
/// [`fetch`](Self::fetch) does not know who is alive. After a successful fetch the caller looks once more whether the
/// holder lives and, if not, calls [`release`](Self::release) again. Whichever comes second, the death or the fetch,
/// then sees the other, and no job is left with the dead.
pub trait JobStore: Send + Sync + fmt::Debug + 'static {
    /// Takes a job in: to the end of its queue, or on the schedule when its `at` is still to come.
    ///
    /// # Errors
    /// [`PushError::Full`] when the job would pass a limit. Nothing has changed then.
    fn push(&self, job: Job, now: Instant) -> Result<(), PushError>;

    /// Takes the next job of the first queue, in the order given, that has one, and reserves it for `holder` until
    /// `now` + `reserve_for`. Returns the JSON for the worker.
    fn fetch(&self, queues: &[&str], holder: u64, now: Instant) -> Option<Bytes>;

    /// Ends an attempt well. `None` as the holder acts for whoever holds the job: producers may acknowledge too.
    ///
    /// What decides is whether the reservation is still there, not the time: an ACK after the reservation's end counts
    /// when [`advance`](Self::advance) has not taken the job back yet.
    fn ack(&self, jid: &str, holder: Option<u64>) -> Ack;

    /// Ends an attempt badly: the job is retried later, dropped (`retry` −1), or dead (no retry left).
    fn fail(&self, fail: Fail, holder: Option<u64>, now: Instant) -> Ack;

    /// Takes back everything a dead holder has and returns how many jobs that was. A second call finds nothing.
    fn release(&self, holder: u64, now: Instant) -> usize;

    /// Undoes a fetch whose job was never handed over: the job `holder` got last under this jid is back in its place.
    /// `false` if it holds none.
    fn give_back(&self, jid: &str, holder: u64) -> bool;

    /// Moves what is due: scheduled jobs to their queues, jobs whose reservation ran out back to theirs. At most
    /// `budget` jobs are moved; `true` means that more are due.
    fn advance(&self, now: Instant, budget: usize) -> bool;

    /// Sizes and totals, all from one moment.
    fn counts(&self) -> Counts;

    /// The newest dead jobs, newest first, at most `limit`. A store keeps only a bounded number of them.
    fn dead(&self, limit: usize) -> Vec<Bytes>;

    /// Drops every job and sets every total to zero. Attempts that were running end as [`Ack::Unknown`].
    fn flush(&self);

    /// A way to sleep until one of these queues has a job to take.
    fn wait(&self, queues: &[&str]) -> Wait;
}

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

/// What a store may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Jobs queued, scheduled and reserved together. Reserved ones count because they can return.
    pub max_jobs: usize,
    /// Their size in memory, in bytes: the JSON and an estimate of the bookkeeping.
    ///
    /// FAIL adds its message and backtrace to a job that was already accepted, so the size can pass the limit by that
    /// much; new jobs are refused meanwhile.
    pub max_bytes: usize,
}

impl Default for Limits {
    /// A million jobs, 1 GiB.
    fn default() -> Self {
        Self { max_jobs: 1_000_000, max_bytes: 1 << 30 }
    }
}

/// Sizes (what is there now) and totals (since the start or the last flush).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Size: jobs waiting in all queues.
    pub enqueued: usize,
    /// Size: jobs waiting, by queue. A queue without a job is not listed.
    pub queues: BTreeMap<String, usize>,
    /// Size: jobs that wait for the time in their `at`.
    pub scheduled: usize,
    /// Size: jobs that failed and wait for their next attempt.
    pub retries: usize,
    /// Size: jobs reserved by a holder.
    pub working: usize,
    /// Size: dead jobs still kept to be looked at.
    pub dead_kept: usize,
    /// Size: bytes of the jobs queued, scheduled and reserved, as [`Limits::max_bytes`] counts them.
    pub bytes: usize,
    /// Total: jobs that ran out of retries.
    pub dead: u64,
    /// Total: attempts that ended, by ACK or by FAIL.
    pub processed: u64,
    /// Total: attempts that ended by FAIL.
    pub failures: u64,
    /// Total: reservations that ran out.
    pub expired: u64,
    /// Total: ACKs and FAILs refused as [`Ack::Stale`].
    pub stale: u64,
}
