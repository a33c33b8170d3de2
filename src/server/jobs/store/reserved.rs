//! Who works on what.
//!
//! One attempt is one grant of one job to one holder; its number is never used again, so two jobs with one jid, or one
//! job granted twice, can not be mixed up. An attempt is there from the moment its job leaves the queue, and can be found once it has its
//! lease. Every look-up is O(log n), whatever the jids and holders are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Record;
use crate::lease::{Lease, LeaseEnd, Token};
use crate::state::Incarnation;

#[derive(Debug, Default)]
pub(super) struct Reserved {
    attempts: BTreeMap<u64, Attempt>,
    by_jid: BTreeSet<(Arc<str>, Incarnation, u64)>,
    by_token: BTreeMap<Token, u64>,
}

#[derive(Debug)]
struct Attempt {
    record: Box<Record>,
    granted: Option<Granted>,
}

#[derive(Debug)]
struct Granted {
    holder: Incarnation,
    lease: Lease,
}

/// What is known of a jid.
#[derive(Debug)]
pub(super) enum Lookup {
    /// This attempt may be ended by whoever asks, if the lease is still held.
    Mine(u64, Lease),
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
    pub(super) fn insert(&mut self, attempt: u64, record: Box<Record>) {
        self.attempts.insert(attempt, Attempt { record, granted: None });
    }

    /// It has its lease. `false` if there is no such attempt any more.
    pub(super) fn grant(&mut self, attempt: u64, holder: Incarnation, lease: Lease) -> bool {
        let Some(entry) = self.attempts.get_mut(&attempt) else { return false };
        self.by_jid.insert((Arc::clone(&entry.record.jid), holder, attempt));
        self.by_token.insert(lease.token(), attempt);
        entry.granted = Some(Granted { holder, lease });
        true
    }

    pub(super) fn find(&self, jid: &str, holder: Option<Incarnation>) -> Lookup {
        let jid: Arc<str> = jid.into();
        let first = |low: Incarnation, high: Incarnation| {
            let range = (Arc::clone(&jid), low, 0)..=(Arc::clone(&jid), high, u64::MAX);
            self.by_jid.range(range).next().map(|&(_, _, attempt)| attempt)
        };
        let anyone = (Incarnation(0), Incarnation(u64::MAX));
        let (low, high) = holder.map_or(anyone, |holder| (holder, holder));
        let mine = first(low, high).and_then(|attempt| {
            let granted = self.attempts.get(&attempt)?.granted.as_ref()?;
            Some(Lookup::Mine(attempt, granted.lease.clone()))
        });
        match mine {
            Some(mine) => mine,
            None if first(anyone.0, anyone.1).is_some() => Lookup::Theirs,
            None => Lookup::Nobody,
        }
    }

    pub(super) fn by_token(&self, token: Token) -> Option<u64> {
        self.by_token.get(&token).copied()
    }

    /// Of the `budget` attempts from `from` on, those whose lease was lost; and where to go on, if there are more.
    pub(super) fn lost(&self, from: u64, budget: usize) -> (Vec<u64>, Option<u64>) {
        let mut attempts = self.attempts.range(from..);
        let looked_at = attempts.by_ref().take(budget);
        let lost = looked_at.filter(|(_, attempt)| attempt.is_lost()).map(|(&number, _)| number).collect();
        (lost, attempts.next().map(|(&number, _)| number))
    }

    /// Takes an attempt out, with its lease if it was granted.
    pub(super) fn remove(&mut self, attempt: u64) -> Option<(Box<Record>, Option<Lease>)> {
        let Attempt { record, granted } = self.attempts.remove(&attempt)?;
        let lease = granted.map(|Granted { holder, lease }| {
            self.by_jid.remove(&(Arc::clone(&record.jid), holder, attempt));
            self.by_token.remove(&lease.token());
            lease
        });
        Some((record, lease))
    }

    pub(super) fn leases(&self) -> impl Iterator<Item = &Lease> {
        self.attempts.values().filter_map(|attempt| Some(&attempt.granted.as_ref()?.lease))
    }
}

impl Attempt {
    fn is_lost(&self) -> bool {
        self.granted.as_ref().is_some_and(|granted| is_lost(&granted.lease))
    }
}

/// Whether it ended without its holder's doing.
pub(super) fn is_lost(lease: &Lease) -> bool {
    matches!(lease.ended(), Some(LeaseEnd::Expired | LeaseEnd::HolderEnded))
}
