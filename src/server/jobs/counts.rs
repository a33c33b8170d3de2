//! What a store may hold, and what it holds.

use std::collections::BTreeMap;

/// What a store may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Jobs in all places together: queued, scheduled, reserved (they can return), waiting for a retry, and dead.
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
    /// Size: dead jobs.
    pub dead_kept: usize,
    /// Size: bytes of all jobs, as [`Limits::max_bytes`] counts them.
    pub bytes: usize,
    /// Total: jobs that ran out of retries.
    pub dead: u64,
    /// Total: attempts that ended, by ACK or by FAIL.
    pub processed: u64,
    /// Total: attempts that ended by FAIL.
    pub failures: u64,
    /// Total: reservations that were lost: they ran out, or their holder ended.
    pub lost: u64,
    /// Total: ACKs and FAILs refused as [`Ack::Stale`](super::Ack::Stale).
    pub stale: u64,
}
