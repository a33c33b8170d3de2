//! Everything under the lock, and the moves of a job from one place to the next.
//!
//! Each method is one critical section, O(1) or O(log n). Wakers come out; nobody is woken here.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use jiff::Timestamp;

use super::super::failure::{Failure, retry_delay};
use super::super::{Ack, Fail, Limits, PushError, time};
use super::Record;
use super::lines::Lines;
use super::record::Text;
use super::reserved::{Lookup, Reserved};

/// How many dead jobs are kept to be looked at.
pub(crate) const DEAD_KEPT: usize = 1000;
/// The dead may take this part of `max_bytes`, beyond it.
const DEAD_SHARE: usize = 8;

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) lines: Lines,
    pub(super) reserved: Reserved,
    scheduled: BTreeMap<(Instant, u64), Pending>,
    retries: usize,
    /// The newest dead, oldest first.
    dead: VecDeque<Box<Record>>,
    dead_bytes: usize,
    /// Size of everything queued, scheduled and reserved.
    pub(super) bytes: usize,
    pub(super) totals: Totals,
    /// Source of places, attempts and wait ids; never goes back, not even at a flush.
    last: u64,
}

#[derive(Debug)]
struct Pending {
    record: Box<Record>,
    is_retry: bool,
}

/// One job was moved to its queue, and this is whom to wake for it.
#[derive(Debug)]
pub(super) struct Moved(pub(super) Option<Waker>);

/// Jobs the store is done with. They go out so that they are freed after the lock.
pub(super) type Freed = VecDeque<Box<Record>>;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    pub(super) dead: u64,
    pub(super) processed: u64,
    pub(super) failures: u64,
    pub(super) expired: u64,
    pub(super) stale: u64,
}

impl State {
    pub(super) fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Queued, scheduled and reserved jobs.
    pub(super) fn live(&self) -> usize {
        self.lines.len() + self.scheduled.len() + self.reserved.len()
    }

    /// Jobs waiting for their `at`, and jobs waiting for a retry.
    pub(super) fn pending(&self) -> (usize, usize) {
        (self.scheduled.len() - self.retries, self.retries)
    }

    pub(super) fn dead_kept(&self) -> usize {
        self.dead.len()
    }

    /// Is there room for it?
    pub(super) fn admit(&self, limits: Limits, record: &Record) -> Result<(), PushError> {
        if self.live() >= limits.max_jobs {
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
        self.schedule(record, due, false);
        None
    }

    pub(super) fn fetch(&mut self, queues: &[&str], holder: u64, now: Instant) -> Option<Text> {
        let record = self.lines.take(queues)?;
        let text = record.text.clone();
        let end = time::deadline(now, record.reserve_for);
        let attempt = self.next();
        self.reserved.insert(attempt, record, holder, end);
        Some(text)
    }

    pub(super) fn ack(&mut self, jid: &str, holder: Option<u64>) -> (Ack, Freed) {
        match self.finish(jid, holder) {
            Err(refused) => (refused, Freed::new()),
            Ok(record) => {
                self.bytes -= record.size();
                (Ack::Done, [record].into())
            }
        }
    }

    pub(super) fn fail(
        &mut self,
        limits: Limits,
        fail: Fail,
        holder: Option<u64>,
        now: Instant,
        wall: Timestamp,
    ) -> (Ack, Freed) {
        let mut record = match self.finish(&fail.jid, holder) {
            Err(refused) => return (refused, Freed::new()),
            Ok(record) => record,
        };
        self.totals.failures += 1;
        self.bytes -= record.size();
        let Some(retry) = record.retry else { return (Ack::Done, [record].into()) };
        let mut failure = Failure::new(record.text.failure.as_deref(), fail, record.backtrace, wall);
        let count = failure.retry_count();
        let delay = (count < retry).then(|| retry_delay(count));
        if let Some(delay) = delay {
            failure.retry_after(delay);
        }
        record.text.failure = Some(Arc::new(failure));
        let Some(delay) = delay else { return (Ack::Done, self.bury(limits, record)) };
        self.bytes += record.size();
        self.schedule(record, time::deadline(now, delay), true);
        (Ack::Done, Freed::new())
    }

    /// Puts the oldest job of a holder back.
    pub(super) fn release_one(&mut self, holder: u64) -> Option<Moved> {
        let attempt = self.reserved.first_of(holder)?;
        let record = self.reserved.remove(attempt)?;
        Some(Moved(self.lines.put_back(record)))
    }

    /// Puts the newest job of a holder under this jid back.
    pub(super) fn give_back(&mut self, jid: &str, holder: u64) -> Option<Moved> {
        let attempt = self.reserved.last_of(jid, holder)?;
        let record = self.reserved.remove(attempt)?;
        Some(Moved(self.lines.put_back(record)))
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.reserved.first_ended(now).is_some()
            || self.scheduled.first_key_value().is_some_and(|((due, _), _)| *due <= now)
    }

    /// Moves one job that is due: lost reservations first, so that what was promised earlier runs earlier.
    pub(super) fn advance_one(&mut self, now: Instant, wall: Timestamp) -> Option<Moved> {
        if let Some(record) = self.reserved.first_ended(now).and_then(|attempt| self.reserved.remove(attempt))
        {
            self.totals.expired += 1;
            return Some(Moved(self.lines.put_back(record)));
        }
        let first = self.scheduled.first_entry().filter(|first| first.key().0 <= now)?;
        let Pending { mut record, is_retry } = first.remove();
        self.retries -= usize::from(is_retry);
        record.text.enqueued_at = wall;
        Some(Moved(self.join(record)))
    }

    pub(super) fn dead(&self, limit: usize) -> Vec<Text> {
        self.dead.iter().rev().take(limit).map(|record| record.text.clone()).collect()
    }

    /// Empties everything but the sleepers and the numbering. Returns what is to be dropped after the lock.
    pub(super) fn flush(&mut self) -> impl Sized + use<> {
        let queued = self.lines.clear();
        let fresh = Self { lines: std::mem::take(&mut self.lines), last: self.last, ..Self::default() };
        (queued, std::mem::replace(self, fresh))
    }

    fn join(&mut self, mut record: Box<Record>) -> Option<Waker> {
        record.place = self.next();
        self.lines.join(record)
    }

    fn schedule(&mut self, record: Box<Record>, due: Instant, is_retry: bool) {
        let id = self.next();
        self.retries += usize::from(is_retry);
        self.scheduled.insert((due, id), Pending { record, is_retry });
    }

    /// Takes a job from its holder for good, or says why not.
    fn finish(&mut self, jid: &str, holder: Option<u64>) -> Result<Box<Record>, Ack> {
        let attempt = match self.reserved.find(jid, holder) {
            Lookup::Mine(attempt) => Some(attempt),
            Lookup::Nobody if !self.lines.was_returned(jid) => return Err(Ack::Unknown),
            Lookup::Theirs | Lookup::Nobody => None,
        };
        let Some(record) = attempt.and_then(|attempt| self.reserved.remove(attempt)) else {
            self.totals.stale += 1;
            return Err(Ack::Stale);
        };
        self.totals.processed += 1;
        Ok(record)
    }

    fn bury(&mut self, limits: Limits, record: Box<Record>) -> Freed {
        self.totals.dead += 1;
        self.dead_bytes += record.size();
        self.dead.push_back(record);
        let mut forgotten = Freed::new();
        while self.dead.len() > DEAD_KEPT || self.dead_bytes > limits.max_bytes / DEAD_SHARE {
            let Some(oldest) = self.dead.pop_front() else { break };
            self.dead_bytes -= oldest.size();
            forgotten.push_back(oldest);
        }
        forgotten
    }
}
