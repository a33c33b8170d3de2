//! A made-up fleet that knows for itself who is out, and looks whenever anyone is told.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::super::fleet::Sight;
use super::*;

#[derive(Clone, Copy, Debug)]
pub(super) struct Worker {
    pub(super) incarnation: u64,
    pub(super) state: WorkerState,
    pub(super) leases: u32,
    pub(super) matches: bool,
}

/// What the drain is to keep to, as the fleet knows it.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) target: WorkerState,
    pub(super) until: Until,
    pub(super) cap: usize,
    /// Nobody may be told.
    pub(super) hands_off: bool,
}

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) workers: BTreeMap<u8, Worker>,
    pub(super) incarnations: u64,
    pub(super) now: Instant,
    pub(super) rule: Option<Rule>,
    pub(super) planned: BTreeSet<u8>,
    /// Of those planned: out at present and since when, and those that ever were.
    pub(super) out: BTreeMap<u8, Instant>,
    pub(super) ever_out: BTreeSet<u8>,
    pub(super) told: Vec<u8>,
    /// Ends right after it was looked at.
    pub(super) doomed: Option<u8>,
}

pub(super) struct Fake(RefCell<Inner>);

pub(super) fn wid(n: u8) -> Wid {
    Wid::new(format!("w{n:03}")).unwrap()
}

pub(super) fn number(wid: &Wid) -> u8 {
    wid.as_str()[1..].parse().unwrap()
}

impl Inner {
    pub(super) fn set_state(&mut self, n: u8, state: WorkerState) {
        let Some(worker) = self.workers.get_mut(&n) else { return };
        worker.state = worker.state.max(state);
        self.note(n);
    }

    /// Takes note of who is out. Who once was does not count again.
    fn note(&mut self, n: u8) {
        let Some(rule) = &self.rule else { return };
        let worker = self.workers.get(&n);
        let is_out = worker.is_some_and(|worker| worker.state >= rule.target);
        if is_out && self.planned.contains(&n) && self.ever_out.insert(n) {
            self.out.insert(n, self.now);
        }
        if let (Some(since), Some(worker)) = (self.out.get(&n), worker)
            && is_out
            && !rule.until.is_met(worker.leases, self.now.saturating_duration_since(*since))
        {
            return;
        }
        self.out.remove(&n);
    }

    pub(super) fn end(&mut self, n: u8) {
        self.workers.remove(&n);
        self.note(n);
    }

    /// It ends, and is back as a new incarnation.
    pub(super) fn reconnect(&mut self, n: u8, remembered: bool, matches: bool) {
        let state = match self.workers.get(&n) {
            // The same process goes on: for the rule it never went.
            Some(worker) if remembered => worker.state,
            _ => {
                self.end(n);
                Running
            }
        };
        self.incarnations += 1;
        let worker = Worker { incarnation: self.incarnations, state, leases: 0, matches };
        self.workers.insert(n, worker);
        self.note(n);
    }

    pub(super) fn set_leases(&mut self, n: u8, leases: u32) {
        let Some(worker) = self.workers.get_mut(&n) else { return };
        // Who was told to quiet takes nothing new.
        worker.leases = if worker.state == Running { leases } else { worker.leases.min(leases) };
        self.note(n);
    }

    pub(super) fn wait(&mut self, span: Duration) {
        self.now += span;
        for n in self.out.keys().copied().collect::<Vec<_>>() {
            self.note(n);
        }
    }
}

impl Fake {
    pub(super) fn new(workers: impl IntoIterator<Item = (WorkerState, u32)>) -> Self {
        let fake = Fake(RefCell::new(Inner {
            workers: BTreeMap::new(),
            incarnations: 0,
            now: clock::now(),
            rule: None,
            planned: BTreeSet::new(),
            out: BTreeMap::new(),
            ever_out: BTreeSet::new(),
            told: Vec::new(),
            doomed: None,
        }));
        for (n, (state, leases)) in (0..).zip(workers) {
            fake.act(|inner| {
                inner.reconnect(n, false, true);
                inner.set_leases(n, leases);
                inner.set_state(n, state);
            });
        }
        fake
    }

    pub(super) fn act<T>(&self, act: impl FnOnce(&mut Inner) -> T) -> T {
        act(&mut self.0.borrow_mut())
    }

    pub(super) fn start(&self, plan: DrainPlan) -> Drain {
        let (target, until) = (plan.state, plan.until.unwrap_or_else(|| Until::default_for(plan.state)));
        let workers: Vec<_> = self.act(|inner| {
            let matching = inner.workers.iter().filter(|(_, worker)| worker.matches);
            matching.map(|(n, worker)| (wid(*n), Incarnation(worker.incarnation))).collect()
        });
        let drain = plan.over(workers).unwrap();
        self.act(|inner| {
            inner.rule = Some(Rule { target, until, cap: drain.cap, hands_off: false });
            inner.planned = drain.members.iter().map(|member| number(&member.wid)).collect();
            for n in inner.planned.clone() {
                inner.note(n);
            }
        });
        drain
    }

    pub(super) fn advance(&self, drain: &mut Drain) -> DrainProgress {
        let now = self.act(|inner| inner.now);
        let progress = drain.step(now, self);
        assert_eq!(progress.waiting + progress.out + progress.done + progress.vanished, progress.total);
        let standing =
            |like: fn(&Standing) -> bool| drain.workers().filter(|(_, standing)| like(standing)).count();
        assert_eq!(standing(|standing| *standing == Standing::Waiting), progress.waiting);
        assert_eq!(standing(|standing| matches!(standing, Standing::Out { .. })), progress.out);
        assert_eq!(standing(|standing| *standing == Standing::Done), progress.done);
        assert_eq!(standing(|standing| *standing == Standing::Vanished), progress.vanished);
        progress
    }

    pub(super) fn wait(&self, seconds: u32) {
        self.act(|inner| inner.wait(SECOND * seconds));
    }

    pub(super) fn told(&self) -> Vec<u8> {
        self.act(|inner| inner.told.clone())
    }
}

impl Fleet for Fake {
    fn look(&self, wid: &Wid, known: Incarnation, _: &Selector) -> Option<Sight> {
        let n = number(wid);
        self.act(|inner| {
            let worker = inner.workers.get(&n).copied();
            if inner.doomed.take_if(|doomed| *doomed == n).is_some() {
                inner.reconnect(n, false, true);
            }
            worker.map(|worker| Sight {
                incarnation: Incarnation(worker.incarnation),
                state: worker.state,
                leases: worker.leases,
                belongs: worker.matches || worker.incarnation == known.get(),
            })
        })
    }

    fn tell(&self, wid: &Wid, incarnation: Incarnation, state: WorkerState) -> bool {
        let n = number(wid);
        self.act(|inner| {
            let rule = inner.rule.as_ref().unwrap();
            assert!(!rule.hands_off, "told while paused or cancelled");
            assert_eq!(state, rule.target);
            if inner.workers.get(&n).is_none_or(|worker| worker.incarnation != incarnation.get()) {
                return false;
            }
            assert!(inner.out.len() < rule.cap, "{n} told while {:?} are out", inner.out);
            assert!(!inner.told.contains(&n), "told twice");
            inner.told.push(n);
            inner.set_state(n, state);
            true
        })
    }
}
