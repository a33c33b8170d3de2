//! Who works on what, until when.
//!
//! One attempt is one grant of one job to one holder; its number is never used again, so two jobs with one jid, or one
//! job granted twice, can not be mixed up. Three ordered indexes find attempts by jid and holder, by holder, and by end;
//! every look-up is O(log n), whatever the jids and holders are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use super::Record;

#[derive(Debug, Default)]
pub(super) struct Reserved {
    attempts: BTreeMap<u64, Attempt>,
    by_jid: BTreeSet<(Arc<str>, u64, u64)>,
    by_holder: BTreeSet<(u64, u64)>,
    by_end: BTreeSet<(Instant, u64)>,
}

#[derive(Debug)]
struct Attempt {
    record: Box<Record>,
    holder: u64,
    end: Instant,
}

/// What is known of a jid.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Lookup {
    /// This attempt may be ended.
    Mine(u64),
    /// Reserved, but by others.
    Theirs,
    /// Not reserved.
    Nobody,
}

impl Reserved {
    pub(super) fn len(&self) -> usize {
        self.attempts.len()
    }

    /// `attempt` must be new.
    pub(super) fn insert(&mut self, attempt: u64, record: Box<Record>, holder: u64, end: Instant) {
        self.by_jid.insert((Arc::clone(&record.jid), holder, attempt));
        self.by_holder.insert((holder, attempt));
        self.by_end.insert((end, attempt));
        self.attempts.insert(attempt, Attempt { record, holder, end });
    }

    pub(super) fn find(&self, jid: &str, holder: Option<u64>) -> Lookup {
        let jid: Arc<str> = jid.into();
        let first = |low: u64, high: u64| {
            let range = (Arc::clone(&jid), low, 0)..=(Arc::clone(&jid), high, u64::MAX);
            self.by_jid.range(range).next().map(|&(_, _, attempt)| attempt)
        };
        let (low, high) = holder.map_or((0, u64::MAX), |holder| (holder, holder));
        match first(low, high) {
            Some(attempt) => Lookup::Mine(attempt),
            None if first(0, u64::MAX).is_some() => Lookup::Theirs,
            None => Lookup::Nobody,
        }
    }

    /// The oldest attempt of a holder.
    pub(super) fn first_of(&self, holder: u64) -> Option<u64> {
        self.by_holder.range((holder, 0)..=(holder, u64::MAX)).next().map(|&(_, attempt)| attempt)
    }

    /// The newest attempt of a holder under this jid.
    pub(super) fn last_of(&self, jid: &str, holder: u64) -> Option<u64> {
        let jid: Arc<str> = jid.into();
        let range = (Arc::clone(&jid), holder, 0)..=(jid, holder, u64::MAX);
        self.by_jid.range(range).next_back().map(|&(_, _, attempt)| attempt)
    }

    /// The attempt that ran out first, if one did.
    pub(super) fn first_ended(&self, now: Instant) -> Option<u64> {
        self.by_end.first().filter(|(end, _)| *end <= now).map(|&(_, attempt)| attempt)
    }

    pub(super) fn remove(&mut self, attempt: u64) -> Option<Box<Record>> {
        let Attempt { record, holder, end } = self.attempts.remove(&attempt)?;
        self.by_jid.remove(&(Arc::clone(&record.jid), holder, attempt));
        self.by_holder.remove(&(holder, attempt));
        self.by_end.remove(&(end, attempt));
        Some(record)
    }
}
