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
use std::time::{Duration, Instant};

use crate::brake::{Silence, Watch};
use crate::clock::Timekeeper;
use crate::engine::{Engine, Wake};
use crate::event::{Event, NotDone};
use crate::hangup::Hangup;
use crate::policy::{Overdue, Policy};
use crate::state::EndReason;
use crate::sync::{MutexGuard, Ordering, Sum as _, lock};
use crate::timer::{self, has_done, remembered_until};
use crate::vitals::{Change, Word};
use crate::wheel::{Step, Wheel};
use crate::worker::{Cold, Deadline, Worker};

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
    silence: Watch,
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
            silence: Watch::default(),
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
        self.release_brake(&mut driver, &policy);
        // One step to file a newcomer and one to go on: with less, a pass could come to no end, or never reap.
        let budget = budget.max(2);
        let mut left = budget;
        let mut expired = 0;
        // Half of it at the most: a storm of newcomers must not keep the dead alive.
        while left > budget / 2 {
            let Some(worker) = self.inbox.pop() else { break };
            left -= 1;
            timer::file(worker, &mut driver.wheel, &policy);
        }
        let tick = driver.held.unwrap_or(driver.time.elapsed());
        let mut idle = false;
        while left > 0 && !idle {
            left -= 1;
            match driver.wheel.poll(tick) {
                // Stale: it was filed earlier since, and has been looked at.
                Step::Due(due, worker) if worker.filed() != due => {}
                Step::Due(_, worker) => {
                    left = left.saturating_sub(self.expire_due_leases(&driver, &worker, left.max(1)));
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
        wake.and(Wake::new(self.bus.wakers(), Vec::new()));
        (pass, wake)
    }

    /// Advances the engine's time, and says so if there was a gap.
    fn advance(&self, driver: &mut Driver, now: Instant, policy: &Policy) -> Option<Duration> {
        // A beat waits for its deadline a ttl and a little. Relaxed: as in `set_ttl`.
        let longest = self.longest_ttl.load(Ordering::Relaxed).max(policy.ticks(policy.ttl));
        let window = longest.saturating_add(2);
        let step = driver.time.advance(now, policy.gap(), window);
        // Relaxed: as above.
        driver.time.keep_step(step.ticks, self.longest_span.load(Ordering::Relaxed).saturating_add(2));
        let gap = step.gap;
        self.publish_time(driver.time.elapsed());
        // A pause while nobody was there is nobody's concern.
        let gap = gap.filter(|_| !driver.idle);
        if let Some(gap) = gap {
            self.counters.gaps.up(1);
            self.bus.publish(|| Event::Gap(gap));
        }
        gap
    }

    /// Those of a worker's leases that have run out, at most `budget` of them. Returns how many.
    fn expire_due_leases(&self, driver: &Driver, worker: &Arc<Worker>, budget: usize) -> usize {
        let (now, lag) = (driver.time.elapsed(), driver.time.long_lag());
        let lost = self.expire_leases(worker, &mut lock(&worker.cold), now, lag, budget);
        self.forget_leases(&lost);
        lost.len()
    }

    /// A worker's entry came due: expired (`true`), filed again, or gone.
    fn judge(&self, driver: &mut Driver, worker: Arc<Worker>, policy: &Policy, wake: &mut Wake) -> bool {
        let now = driver.time.elapsed();
        let (lag, long_lag) = (driver.time.lag(), driver.time.long_lag());
        let due = |deadline: Deadline| deadline.tick.saturating_add(long_lag);
        // Held throughout: nothing but a plain beat can change the word meanwhile.
        let mut cold = lock(&worker.cold);
        // Until then the brake holds it.
        let mut held = None;
        let next = loop {
            let word = worker.vitals.load();
            if !word.is_live() {
                drop(cold);
                self.judge_ended(driver, worker, policy);
                return false;
            }
            // A beat that read tick k was made before k + lag: the worker may be silent for a ttl from there (G2).
            let expiry = word.tick().saturating_add(worker.ttl(policy)).saturating_add(lag);
            if now >= expiry && held.is_none() {
                held = self.brake(driver, policy, now);
            }
            if now >= expiry && held.is_none() {
                let Ok(change) = worker.vitals.expire(word, now) else { continue };
                wake.and(self.end(driver, worker.clone(), cold, change, policy));
                return true;
            }
            if let Some(deadline) = cold.deadline().filter(|&deadline| now >= due(deadline)) {
                cold.work().deadline = None;
                if !has_done(word, &cold) && self.overdue(&worker, &mut cold, word, deadline, policy, now) {
                    let Ok(change) = worker.vitals.update(|word| word.ended(EndReason::Expired, now)) else {
                        continue;
                    };
                    wake.and(self.end(driver, worker.clone(), cold, change, policy));
                    return true;
                }
            }
            let late = word.tick().saturating_add(worker.late_after(policy)).saturating_add(lag);
            // Whoever is held is late in any case, for that has its next beat file it anew.
            if !word.is_late() && (now >= late || now >= expiry) {
                // From exactly the word seen: a beat since makes it not late.
                let Some(change) = word.late().ok().and_then(|next| worker.vitals.replace(word, next).ok())
                else {
                    continue;
                };
                self.settle_late(&worker, &cold, change, policy, now);
            }
            let late = if worker.vitals.load().is_late() { u64::MAX } else { late };
            let expiry = if now >= expiry { held.unwrap_or(expiry) } else { expiry };
            let deadline = cold.deadline().map_or(u64::MAX, due);
            let lease = cold.first_lease_due().map_or(u64::MAX, |until| until.saturating_add(long_lag));
            break expiry.min(late).min(deadline).min(lease);
        };
        worker.set_filed(&mut cold, next);
        drop(cold);
        driver.wheel.insert(next, worker);
        false
    }

    /// The rest of an end that the driver made.
    fn end(
        &self,
        driver: &mut Driver,
        worker: Arc<Worker>,
        mut cold: MutexGuard<'_, Cold>,
        change: Change,
        policy: &Policy,
    ) -> Wake {
        let wake = self.settle_end(&worker, &mut cold, change, policy);
        drop(cold);
        let wake = wake.settled(self);
        self.judge_ended(driver, worker, policy);
        wake
    }

    /// A worker is late, under its lock.
    fn settle_late(&self, worker: &Arc<Worker>, cold: &Cold, change: Change, policy: &Policy, now: u64) {
        self.counters.late.up(1);
        self.counters.transition();
        self.bus.publish(|| Event::Late(worker.info(change.after, cold, now, policy)));
    }

    /// A worker has not done in time what it was told, under its lock. `true` if it is to be ended.
    fn overdue(
        &self,
        worker: &Arc<Worker>,
        cold: &mut Cold,
        word: Word,
        deadline: Deadline,
        policy: &Policy,
        now: u64,
    ) -> bool {
        let then = deadline.then;
        self.counters.overdue.up(1);
        self.bus.publish(|| {
            Event::Overdue(NotDone { worker: worker.info(word, cold, now, policy), held: cold.held(), then })
        });
        if then == Overdue::Close {
            self.hang_up(cold.closers(), EndReason::Expired);
        }
        then == Overdue::End
    }

    /// `None` if one more worker may expire; otherwise when to look at it again.
    fn brake(&self, driver: &mut Driver, policy: &Policy, now: u64) -> Option<u64> {
        let brake = policy.brake.as_ref()?;
        let window = policy.ticks(brake.window);
        let live = self.counters.live();
        match driver.silence.one_more(brake, live) {
            Silence::Usual => return None,
            Silence::Held => {}
            Silence::Begins { fleet, expired } => {
                self.counters.mass_silences.up(1);
                // Relaxed: a flag for display.
                self.counters.holding.store(true, Ordering::Relaxed);
                self.bus.publish(|| Event::MassSilence { fleet, expired });
            }
        }
        Some(now.saturating_add(window))
    }

    /// At the end of a window: whether the silence is still that of many.
    fn release_brake(&self, driver: &mut Driver, policy: &Policy) {
        let window = policy.brake.as_ref().map(|brake| (brake, policy.ticks(brake.window)));
        if let Some(held) = driver.silence.roll(window, driver.time.elapsed()) {
            // Relaxed: a flag for display.
            self.counters.holding.store(false, Ordering::Relaxed);
            self.bus.publish(|| Event::SilenceOver { held });
        }
    }

    /// An ended worker's entry: filed again until what it was told need not be remembered any more and it holds no lease, then
    /// gone.
    fn judge_ended(&self, driver: &mut Driver, worker: Arc<Worker>, policy: &Policy) {
        // The lock: whoever ended it has done its duties.
        let mut cold = lock(&worker.cold);
        let remembered = cold.remembered.then(|| remembered_until(worker.vitals.load(), policy));
        let remembered = remembered.filter(|&until| driver.time.elapsed() < until);
        if remembered.is_none() {
            self.forget(&mut cold);
        }
        let lag = driver.time.long_lag();
        let lease = cold.first_lease_due().map(|until| until.saturating_add(lag));
        let next = remembered.into_iter().chain(lease).min();
        if let Some(next) = next {
            worker.set_filed(&mut cold, next);
        }
        drop(cold);
        if remembered.is_none() {
            self.remove(&worker);
        }
        if let Some(next) = next {
            driver.wheel.insert(next, worker);
        }
    }

    /// Sweeps the wheel when stale entries outnumber the others, or when deadlines became earlier.
    fn sweep(&self, driver: &mut Driver, budget: usize, policy: &Policy) -> bool {
        let counters = &self.counters;
        // A bound that need not be exact.
        let needed = counters.live() + counters.remembered.get() + counters.ended_holders.get();
        if !driver.sweeping && !driver.refile && driver.wheel.len() <= 2 * needed + STALE_ALLOWED {
            return false;
        }
        if budget == 0 {
            // Nothing can be looked at, and what is on its way down in the wheel must not be passed by.
            return true;
        }
        if !driver.sweeping && std::mem::take(&mut driver.refile) {
            driver.held = Some(driver.wheel.now());
        }
        driver.sweeping = driver.wheel.sweep(budget, |due, worker| timer::keep(worker, due, policy));
        if driver.sweeping {
            return true;
        }
        // Now the wheel goes on from where it was held, with what came due by the look.
        let behind = driver.held.take().is_some();
        behind || driver.refile
    }
}
