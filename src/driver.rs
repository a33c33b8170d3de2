//! The passes of the driver: time, wheel, reaping. No thread, no clock, no I/O in here: `now` is an argument, effects come out.
//!
//! Ground rules
//! - Whoever drives holds the driver's lock, for one slice of at most `budget` steps. Nobody else ever waits for it: not beats, not
//!   connects, not signals.
//! - Every live worker has one entry in the wheel, or in the inbox on its way there. When it comes due, the deadline is read anew
//!   from the worker's word: filed again, or reaped by a swap from exactly that word (G2).
//! - An entry of a worker that ended stays until it comes due, unless such entries outnumber the others: then the wheel is
//!   swept, in slices (G10).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::clock::Timekeeper;
use crate::engine::{Engine, Wake};
use crate::event::Event;
use crate::hangup::Hangup;
use crate::policy::Policy;
use crate::sync::lock;
use crate::wheel::{Keep, Step, Wheel};
use crate::worker::Worker;

/// So many entries of ended workers are not worth a sweep.
const STALE_ALLOWED: usize = 1024;

/// What one pass did, and what is left to do; from [`Registry::reap`](crate::Registry::reap).
#[derive(Debug)]
#[non_exhaustive]
#[must_use = "its hang-ups must be run, and it says when to come again"]
pub struct Pass {
    /// How many workers expired.
    pub expired: usize,
    /// The connections to close. Run each; they may be run on another thread.
    pub hangups: Vec<Hangup>,
    /// The budget was used up: call again at once.
    pub more: bool,
    /// The pause of the engine that this pass noticed and left out (G9).
    pub gap: Option<Duration>,
    /// When to call next, at the latest; `None` when nothing is filed, until somebody connects.
    pub next: Option<Instant>,
}

#[derive(Debug)]
pub(crate) struct Driver {
    time: Timekeeper,
    wheel: Wheel<Arc<Worker>>,
    /// Nothing was filed when the last pass ended.
    idle: bool,
    /// A sweep is under way.
    sweeping: bool,
    /// Deadlines may have become earlier: every entry is to be looked at once.
    refile: bool,
    /// The tick at which the wheel stands still while that look is under way: an entry that moved closer meanwhile could be missed.
    held: Option<u64>,
}

impl Driver {
    pub(crate) fn new(tick: Duration) -> Self {
        Driver {
            time: Timekeeper::new(tick),
            wheel: Wheel::new(0),
            idle: true,
            sweeping: false,
            refile: false,
            held: None,
        }
    }

    pub(crate) fn pause(&mut self) {
        self.time.pause();
    }

    pub(crate) fn refile(&mut self) {
        self.refile = true;
    }
}

impl Engine {
    /// One pass. Who waits is woken by the caller, where it costs the driver nothing.
    pub(crate) fn pass(&self, now: Instant, budget: usize) -> (Pass, Wake) {
        let mut wake = Wake::default();
        let mut driver = lock(&self.driver);
        // Read under the lock, as it is put in force under it: who finds `refile` set looks at everyone by the new policy.
        let policy = self.policy.load();
        let gap = self.advance(&mut driver, now, &policy);
        // One step to file a newcomer and one to go on: with less, a pass could come to no end, or never reap.
        let budget = budget.max(2);
        let mut left = budget;
        let mut expired = 0;
        // Half of it at the most: a storm of newcomers must not keep the dead alive.
        while left > budget / 2 {
            let Some(worker) = self.inbox.pop() else { break };
            left -= 1;
            file(&mut driver.wheel, worker, &policy);
        }
        let tick = driver.held.unwrap_or(driver.time.elapsed());
        let mut idle = false;
        while left > 0 && !idle {
            left -= 1;
            match driver.wheel.poll(tick) {
                Step::Due(worker) => {
                    expired += usize::from(self.judge(&mut driver, worker, &policy, &mut wake));
                }
                Step::Moved => {}
                Step::Idle => idle = true,
            }
        }
        let sweeping = self.sweep(&mut driver, left, &policy);
        // Dropped when the driver's lock is gone.
        let outgrown = self.latest.outgrown(2 * self.counters.live() + STALE_ALLOWED);
        let mut hangups = Vec::new();
        while hangups.len() < budget {
            let Some(hangup) = self.hangups.pop() else { break };
            hangups.push(hangup);
        }
        driver.idle = driver.wheel.is_empty() && self.inbox.is_empty();
        // Relaxed: for display.
        self.counters.filed.store(driver.wheel.len() + self.inbox.len(), Ordering::Relaxed);
        let pass = Pass {
            expired,
            more: !idle || sweeping || !self.inbox.is_empty() || !self.hangups.is_empty(),
            hangups,
            gap,
            next: if driver.idle { None } else { driver.time.next_tick() },
        };
        drop(driver);
        drop(outgrown);
        (pass, wake)
    }

    /// Advances the engine's time, and says so if there was a gap.
    fn advance(&self, driver: &mut Driver, now: Instant, policy: &Policy) -> Option<Duration> {
        // A beat waits for its deadline a ttl and a little.
        let window = policy.ticks(policy.ttl).saturating_add(2);
        let gap = driver.time.advance(now, policy.gap(), window).gap;
        self.publish_time(driver.time.elapsed());
        // A pause while nobody was there is nobody's concern.
        let gap = gap.filter(|_| !driver.idle);
        if let Some(gap) = gap {
            // Relaxed: a counter.
            self.counters.gaps.fetch_add(1, Ordering::Relaxed);
            self.bus.publish(|| Event::Gap(gap));
        }
        gap
    }

    /// A worker's entry came due: expired (`true`), filed again, or gone.
    fn judge(&self, driver: &mut Driver, worker: Arc<Worker>, policy: &Policy, wake: &mut Wake) -> bool {
        let now = driver.time.elapsed();
        loop {
            let word = worker.vitals.load();
            if !word.is_live() {
                self.judge_ended(driver, worker, policy);
                return false;
            }
            // A beat that read tick k was made before k + lag: the worker may be silent for a ttl from there (G2).
            let deadline =
                word.tick().saturating_add(policy.ticks(policy.ttl)).saturating_add(driver.time.lag());
            if now < deadline {
                driver.wheel.insert(deadline, worker);
                return false;
            }
            let mut cold = lock(&worker.cold);
            if let Ok(change) = worker.vitals.expire(word, now) {
                wake.and(self.settle_end(&worker, &mut cold, change, policy));
                drop(cold);
                self.judge_ended(driver, worker, policy);
                return true;
            }
        }
    }

    /// An ended worker's entry: filed again until its state need not be remembered any more, then gone.
    fn judge_ended(&self, driver: &mut Driver, worker: Arc<Worker>, policy: &Policy) {
        // The lock: whoever ended it has done its duties.
        let mut cold = lock(&worker.cold);
        if cold.remembered {
            let until = remembered_until(&worker, policy);
            if driver.time.elapsed() < until {
                drop(cold);
                driver.wheel.insert(until, worker);
                return;
            }
            self.forget(&mut cold);
        }
        drop(cold);
        self.remove(&worker);
    }

    /// Sweeps the wheel when entries of ended workers outnumber the others, or when deadlines became earlier.
    fn sweep(&self, driver: &mut Driver, budget: usize, policy: &Policy) -> bool {
        // Relaxed: a bound that need not be exact.
        let needed = self.counters.live() + self.counters.remembered.load(Ordering::Relaxed);
        if !driver.sweeping && !driver.refile && driver.wheel.len() <= 2 * needed + STALE_ALLOWED {
            return false;
        }
        if !driver.sweeping && std::mem::take(&mut driver.refile) {
            driver.held = Some(driver.wheel.now());
        }
        driver.sweeping = driver.wheel.sweep(budget, |worker| match needed_until(worker, policy) {
            Some(tick) => Keep::Refile(tick),
            None => Keep::Drop,
        });
        if driver.sweeping {
            return true;
        }
        // Now the wheel goes on from where it was held, with what came due by the look.
        let behind = driver.held.take().is_some();
        behind || driver.refile
    }
}

/// Files a worker where its deadline is if the published time never lags by more than a tick; `judge` sees how it was.
fn file(wheel: &mut Wheel<Arc<Worker>>, worker: Arc<Worker>, policy: &Policy) {
    if let Some(tick) = needed_until(&worker, policy) {
        wheel.insert(tick, worker);
    }
}

/// The tick at which a worker's entry is to be looked at; `None` if there is nothing left to look at.
fn needed_until(worker: &Worker, policy: &Policy) -> Option<u64> {
    let word = worker.vitals.load();
    if word.is_live() {
        return Some(word.tick().saturating_add(policy.ticks(policy.ttl)).saturating_add(2));
    }
    let remembered = lock(&worker.cold).remembered;
    remembered.then(|| remembered_until(worker, policy))
}

/// The first tick at which an ended worker's state is not remembered any more.
fn remembered_until(worker: &Worker, policy: &Policy) -> u64 {
    worker.vitals.load().tick().saturating_add(policy.ticks(policy.remember())).saturating_add(1)
}
