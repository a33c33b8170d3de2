//! The queues, and who sleeps on them.
//!
//! Jobs and sleepers live under one lock because the rule that loses no wake-up speaks of both. A sleeper that is woken
//! for a queue holds a *claim* on it until its wait is polled again or dropped. The rule, true whenever the lock is free:
//!
//! > A queue with sleepers has at least as many claims as jobs.
//!
//! A job that comes, or a claim that ends, can break it by one; waking one sleeper mends it. A wait goes to sleep only
//! where the rule holds, seen under the same lock. So a job never lies in a queue beside a sleeper unless somebody who
//! is awake is on the way to it, and one job wakes one sleeper.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::task::Waker;

use super::Record;

/// The queues of one wait.
pub(crate) type Names = Arc<[Arc<str>]>;

#[derive(Debug, Default)]
pub(crate) struct Lines {
    by_name: BTreeMap<Arc<str>, Line>,
    /// Waits that sleep or hold a claim, by id.
    waits: BTreeMap<u64, State>,
    /// How many of the queued jobs with this jid were handed out before: they make an ACK stale instead of unknown.
    returned: BTreeMap<Arc<str>, usize>,
    len: usize,
}

#[derive(Debug)]
struct Line {
    /// The one copy of the name that all jobs of the queue share.
    name: Arc<str>,
    /// By place. A job that comes back was ahead of all that are left here, and is again.
    jobs: BTreeMap<u64, Box<Record>>,
    /// Waits that sleep here. Ids grow, so the first has waited longest.
    sleepers: BTreeSet<u64>,
    claims: usize,
}

#[derive(Debug)]
enum State {
    Asleep { waker: Waker, names: Names },
    Claim { queue: Arc<str>, told: bool },
}

/// Answer to a poll. The wakers are for after the lock: the first to wake, the second only to drop.
#[derive(Debug)]
pub(crate) struct Polled {
    pub(crate) ready: bool,
    pub(crate) wake: Option<Waker>,
    pub(crate) replaced: Option<Waker>,
}

impl Line {
    fn new(name: Arc<str>) -> Self {
        Self { name, jobs: BTreeMap::new(), sleepers: BTreeSet::new(), claims: 0 }
    }

    fn is_vacant(&self) -> bool {
        self.jobs.is_empty() && self.sleepers.is_empty() && self.claims == 0
    }
}

impl Lines {
    /// Jobs in all queues.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Names and sizes of the queues that have jobs.
    pub(super) fn sizes(&self) -> Vec<(Arc<str>, usize)> {
        let sizes = self.by_name.values().map(|line| (Arc::clone(&line.name), line.jobs.len()));
        sizes.filter(|&(_, len)| len > 0).collect()
    }

    /// Queue names held in memory.
    #[cfg(test)]
    pub(super) fn names(&self) -> usize {
        self.by_name.len()
    }

    pub(super) fn was_returned(&self, jid: &str) -> bool {
        self.returned.contains_key(jid)
    }

    /// Puts a job at the end of its queue. `record.place` must be higher than any before.
    pub(super) fn join(&mut self, mut record: Box<Record>) -> Option<Waker> {
        let line = self.line(&record.queue);
        record.queue = Arc::clone(&line.name);
        let name = Arc::clone(&line.name);
        line.jobs.insert(record.place, record);
        self.len += 1;
        self.mend(&name)
    }

    /// Puts a job back where it was taken from. `returned`: its holder may still speak of it.
    pub(super) fn put_back(&mut self, mut record: Box<Record>, returned: bool) -> Option<Waker> {
        record.returned = returned;
        let name = Arc::clone(&record.queue);
        if returned {
            *self.returned.entry(Arc::clone(&record.jid)).or_insert(0) += 1;
        }
        self.line(&name).jobs.insert(record.place, record);
        self.len += 1;
        self.mend(&name)
    }

    /// Takes the first job of the first queue that has one.
    pub(super) fn take(&mut self, queues: &[&str]) -> Option<Box<Record>> {
        queues.iter().find_map(|queue| self.take_from(queue))
    }

    fn take_from(&mut self, queue: &str) -> Option<Box<Record>> {
        let line = self.by_name.get_mut(queue)?;
        let (_, mut record) = line.jobs.pop_first()?;
        if std::mem::take(&mut record.returned) {
            self.uncount(&record.jid);
        }
        self.len -= 1;
        self.forget(queue);
        Some(record)
    }

    fn uncount(&mut self, jid: &str) {
        if let Some(count) = self.returned.get_mut(jid) {
            *count -= 1;
            if *count == 0 {
                self.returned.remove(jid);
            }
        }
    }

    /// Drops all jobs; sleepers sleep on.
    pub(super) fn clear(&mut self) -> impl Sized + use<> {
        let jobs: Vec<_> = self.by_name.values_mut().map(|line| std::mem::take(&mut line.jobs)).collect();
        self.by_name.retain(|_, line| !line.is_vacant());
        self.len = 0;
        (jobs, std::mem::take(&mut self.returned))
    }

    /// One poll of a wait: ready with a claim, or asleep.
    pub(crate) fn poll(&mut self, id: u64, names: &Names, waker: Waker) -> Polled {
        let mut polled = Polled { ready: true, wake: None, replaced: None };
        let mut used = None;
        match self.waits.get_mut(&id) {
            Some(State::Claim { told, .. }) if !*told => {
                *told = true;
                polled.replaced = Some(waker);
                return polled;
            }
            Some(State::Claim { queue, .. }) => used = Some(Arc::clone(queue)),
            Some(State::Asleep { waker: old, .. }) => {
                polled.ready = false;
                polled.replaced = Some(std::mem::replace(old, waker));
                return polled;
            }
            None => {}
        }
        if let Some(queue) = &used {
            // Asked again: what it was woken for is taken or was left. Its own look comes before the others' wake.
            self.waits.remove(&id);
            self.unclaim(queue);
        }
        if let Some(name) = names.iter().find(|name| self.is_open(name)) {
            self.claim(id, name, true);
            polled.replaced = Some(waker);
        } else {
            for name in names.iter() {
                self.line(name).sleepers.insert(id);
            }
            self.waits.insert(id, State::Asleep { waker, names: Arc::clone(names) });
            polled.ready = false;
        }
        if let Some(queue) = &used {
            polled.wake = self.mend(queue);
            self.forget(queue);
        }
        polled
    }

    /// Ends a wait. Its claim, if it has one, passes to another sleeper when there is a job left. Returns the waker to
    /// wake and the one to drop.
    pub(crate) fn leave(&mut self, id: u64) -> (Option<Waker>, Option<Waker>) {
        match self.waits.remove(&id) {
            None => (None, None),
            Some(State::Asleep { waker, names }) => {
                self.get_up(id, &names);
                (None, Some(waker))
            }
            Some(State::Claim { queue, .. }) => {
                self.unclaim(&queue);
                let wake = self.mend(&queue);
                self.forget(&queue);
                (wake, None)
            }
        }
    }

    fn line(&mut self, name: &Arc<str>) -> &mut Line {
        self.by_name.entry(Arc::clone(name)).or_insert_with(|| Line::new(Arc::clone(name)))
    }

    /// Has the queue a job that nobody was woken for?
    fn is_open(&self, name: &str) -> bool {
        self.by_name.get(name).is_some_and(|line| line.jobs.len() > line.claims)
    }

    /// Makes the rule true again after it was broken by one.
    fn mend(&mut self, name: &str) -> Option<Waker> {
        if !self.is_open(name) {
            return None;
        }
        let id = self.by_name.get(name)?.sleepers.first().copied()?;
        let State::Asleep { waker, names } = self.waits.remove(&id)? else { return None };
        let name = names.iter().find(|n| &***n == name)?;
        // The claim first: it keeps the line in memory while the sleeper leaves it.
        self.claim(id, name, false);
        self.get_up(id, &names);
        Some(waker)
    }

    fn get_up(&mut self, id: u64, names: &Names) {
        for name in names.iter() {
            if let Some(line) = self.by_name.get_mut(name) {
                line.sleepers.remove(&id);
            }
            self.forget(name);
        }
    }

    fn claim(&mut self, id: u64, name: &Arc<str>, told: bool) {
        self.line(name).claims += 1;
        self.waits.insert(id, State::Claim { queue: Arc::clone(name), told });
    }

    fn unclaim(&mut self, name: &str) {
        if let Some(line) = self.by_name.get_mut(name) {
            line.claims -= 1;
        }
    }

    /// Lets the name of a queue go when nothing is left of it.
    fn forget(&mut self, name: &str) {
        if self.by_name.get(name).is_some_and(Line::is_vacant) {
            self.by_name.remove(name);
        }
    }
}
