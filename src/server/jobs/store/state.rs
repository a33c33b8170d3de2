//! Everything under the lock, and the moves of a job from one place to the next.
//!
//! Each method is one critical section, O(1) or O(log n). Wakers come out; nobody is woken here, and no lease is ended.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::super::failure::{Failure, retry_delay};
use super::super::{Fail, Limits, PushError, time};
use super::lines::Lines;
use super::record::Text;
use super::reserved::{Lookup, Reserved};
use super::{Ack, Record, Requeued};
use crate::lease::{Lease, Token};
use crate::state::Incarnation;

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) lines: Lines,
    pub(super) reserved: Reserved,
    /// Jobs that wait for the time in their `at`.
    pub(super) scheduled: Set,
    /// Jobs that failed and wait for their next attempt.
    pub(super) retries: Set,
    /// Jobs that ran out of retries, by when they died.
    pub(super) dead: Set,
    /// Size of every job there is.
    pub(super) bytes: usize,
    pub(super) totals: Totals,
    /// Source of places, attempts and wait ids; never goes back, not even at a flush.
    last: u64,
}

/// Jobs by a time, and in the order in which they came where that is the same.
pub(super) type Set = BTreeMap<(Instant, u64), Box<Record>>;

/// One job was moved to its queue, and this is whom to wake for it.
#[derive(Debug)]
pub(super) struct Moved(pub(super) Option<Waker>);

/// A job taken from its queue, to be leased.
#[derive(Debug)]
pub(super) struct Offer {
    pub(super) attempt: u64,
    pub(super) jid: Arc<str>,
    pub(super) reserve_for: Duration,
    pub(super) text: Text,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    pub(super) dead: u64,
    pub(super) processed: u64,
    pub(super) failures: u64,
    pub(super) lost: u64,
    pub(super) stale: u64,
}

impl State {
    pub(crate) fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Jobs in all places.
    pub(super) fn len(&self) -> usize {
        self.lines.len() + self.reserved.len() + self.scheduled.len() + self.retries.len() + self.dead.len()
    }

    /// Is there room for it?
    pub(super) fn admit(&self, limits: Limits, record: &Record) -> Result<(), PushError> {
        if self.len() >= limits.max_jobs {
            return Err(PushError::Full { limit: limits.max_jobs, unit: "jobs" });
        }
        if self.bytes.saturating_add(record.size()) > limits.max_bytes {
            return Err(PushError::Full { limit: limits.max_bytes, unit: "bytes" });
        }
        Ok(())
    }

    /// Takes an admitted job in.
    pub(super) fn push(&mut self, record: Box<Record>, due: Option<Instant>) -> Option<Waker> {
        self.bytes += record.size();
        let Some(due) = due else { return self.join(record) };
        let id = self.next();
        self.scheduled.insert((due, id), record);
        None
    }

    /// Takes the next job of these queues for an attempt.
    pub(super) fn offer(&mut self, queues: &[&str]) -> Option<Offer> {
        let record = self.lines.take(queues)?;
        let attempt = self.next();
        let offer = Offer {
            attempt,
            jid: Arc::clone(&record.jid),
            reserve_for: record.reserve_for,
            text: record.text.clone(),
        };
        self.reserved.insert(attempt, record);
        Some(offer)
    }

    /// The attempt that an ACK or FAIL speaks of, with the lease that decides it.
    pub(super) fn held(&mut self, jid: &str, holder: Option<Incarnation>) -> Result<(u64, Lease), Ack> {
        match self.reserved.find(jid, holder) {
            Lookup::Mine(attempt, lease) => Ok((attempt, lease)),
            Lookup::Nobody if !self.lines.was_returned(jid) => Err(Ack::Unknown),
            Lookup::Theirs | Lookup::Nobody => {
                self.totals.stale += 1;
                Err(Ack::Stale)
            }
        }
    }

    /// Ends an attempt whose lease was completed. The job goes out to be freed after the lock.
    pub(super) fn done(&mut self, attempt: u64) -> Option<Box<Record>> {
        let (record, _) = self.reserved.remove(attempt)?;
        self.totals.processed += 1;
        self.bytes -= record.size();
        Some(record)
    }

    /// Ends an attempt whose lease failed. A job that is dropped goes out to be freed after the lock.
    pub(super) fn failed(
        &mut self,
        attempt: u64,
        fail: Fail,
        now: Instant,
        wall: Timestamp,
    ) -> Option<Box<Record>> {
        let (mut record, _) = self.reserved.remove(attempt)?;
        self.totals.processed += 1;
        self.totals.failures += 1;
        self.bytes -= record.size();
        let Some(retry) = record.retry else { return Some(record) };
        let mut failure = Failure::new(record.text.failure.as_deref(), fail, record.backtrace, wall);
        let count = failure.retry_count();
        let delay = (count < retry).then(|| retry_delay(count));
        if let Some(delay) = delay {
            failure.retry_after(delay);
        }
        record.text.failure = Some(Arc::new(failure));
        self.bytes += record.size();
        let id = self.next();
        match delay {
            Some(delay) => self.retries.insert((time::deadline(now, delay), id), record),
            None => {
                self.totals.dead += 1;
                self.dead.insert((now, id), record)
            }
        };
        None
    }

    /// Undoes an attempt that came to nothing.
    pub(super) fn put_back(&mut self, attempt: u64) -> Option<Moved> {
        let (record, _) = self.reserved.remove(attempt)?;
        Some(Moved(self.lines.put_back(record, false)))
    }

    /// Puts the job of an attempt back whose lease was lost. One caller finds it.
    pub(super) fn lose(&mut self, attempt: u64) -> Option<(Requeued, Moved)> {
        let (record, lease) = self.reserved.remove(attempt)?;
        let lease = lease?;
        self.totals.lost += 1;
        let requeued = Requeued {
            jid: Arc::clone(&record.jid),
            queue: Arc::clone(&record.queue),
            head: record.text.head.clone(),
            lease,
        };
        Some((requeued, Moved(self.lines.put_back(record, true))))
    }

    /// As [`lose`](Self::lose), by the lease's token.
    pub(super) fn lose_by_token(&mut self, token: Token) -> Option<(Requeued, Moved)> {
        self.lose(self.reserved.by_token(token)?)
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        [&self.scheduled, &self.retries]
            .iter()
            .any(|set| set.first_key_value().is_some_and(|(key, _)| key.0 <= now))
    }

    /// Moves the job that is due first.
    pub(super) fn advance_one(&mut self, now: Instant, wall: Timestamp) -> Option<Moved> {
        let first = |set: &Set| set.first_key_value().map(|(&key, _)| key).filter(|key| key.0 <= now);
        let record = match (first(&self.scheduled), first(&self.retries)) {
            (Some(at), Some(retry)) if retry < at => self.retries.remove(&retry)?,
            (Some(at), _) => self.scheduled.remove(&at)?,
            (None, retry) => self.retries.remove(&retry?)?,
        };
        Some(self.queue_up(record, wall))
    }

    /// Puts a job at the end of its queue, as one that comes there now.
    pub(super) fn queue_up(&mut self, mut record: Box<Record>, wall: Timestamp) -> Moved {
        record.text.enqueued_at = wall;
        Moved(self.join(record))
    }

    pub(super) fn newest_dead(&self, limit: usize) -> Vec<Text> {
        self.dead.values().rev().take(limit).map(|record| record.text.clone()).collect()
    }

    /// Empties everything but the sleepers and the numbering. Returns the leases to end, and what is to be dropped after the lock.
    pub(super) fn flush(&mut self) -> (Vec<Lease>, impl Sized + use<>) {
        let leases = self.reserved.leases().cloned().collect();
        let queued = self.lines.clear();
        let fresh = Self { lines: std::mem::take(&mut self.lines), last: self.last, ..Self::default() };
        (leases, (queued, std::mem::replace(self, fresh)))
    }

    fn join(&mut self, mut record: Box<Record>) -> Option<Waker> {
        record.place = self.next();
        self.lines.join(record)
    }
}
