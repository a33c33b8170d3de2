//! What happens to workers: they connect, beat, are told, are cordoned, leave, end. Each is one swap of the worker's word, and its duties.
//!
//! Ground rules: those of `engine`. Lock order: shard of the map, the worker's lock, the publishers' lock.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::engine::{Engine, Wake};
use crate::error::{ConnectError, InvalidHello};
use crate::event::{self, Event};
use crate::hangup::Hangup;
use crate::hello::{Beat, Hello};
use crate::map::Entry;
use crate::plot::Line;
use crate::policy::{Identity, Overdue, Policy};
use crate::state::{EndReason, Incarnation, WorkerState};
use crate::sync::{Ordering, Sum as _, lock};
use crate::vitals::{Change, Ended, MAX_CONNECTIONS, NotHeard, NotJoined, Word};
use crate::worker::{Closer, Cold, Deadline, Worker, WorkerInfo};

impl Engine {
    /// Takes note of a beat. No lock, no allocation, no hashing, unless the worker was marked late; the state that `beat` says is left
    /// to the caller.
    #[inline]
    pub(crate) fn heard(&self, line: &Line, worker: &Arc<Worker>, beat: &Beat) -> Result<WorkerState, Ended> {
        loop {
            let now = self.now();
            let change = match line.vitals.update(|word| word.beat(now)) {
                Ok(change) => change,
                Err(NotHeard::Late) => self.back(worker)?,
                Err(NotHeard::Ended) => return Err(Ended),
            };
            // A thread that was held up between reading the time and the swap would acknowledge a beat of before (G2).
            if self.now() == now {
                if let Some(interval) = line.note(beat, change) {
                    worker.record(interval);
                }
                return Ok(change.after.state());
            }
        }
    }

    /// A worker that was late is heard again. Under its lock, so that its `Late` and `Back` come in order.
    #[cold]
    fn back(&self, worker: &Arc<Worker>) -> Result<Change, Ended> {
        let cold = lock(&worker.cold);
        let change = worker.vitals.update(|word| word.back(self.now()))?;
        self.settle_back(worker, &cold, change);
        Ok(change)
    }

    /// The duties of a beat of a late worker, under its lock.
    fn settle_back(&self, worker: &Arc<Worker>, cold: &Cold, change: Change) {
        if change.before.is_late() {
            self.counters.late.down(1);
            self.counters.transition();
            let back = || Event::Back { wid: worker.hello.wid.clone(), incarnation: worker.incarnation };
            self.bus.publish_about(back, || self.info(worker, change.after, cold));
            // Its entry is where the silence that is over would have ended; the next one may be told of before.
            self.file(worker.clone());
        }
    }

    #[inline]
    pub(crate) fn beat(&self, line: &Line, worker: &Arc<Worker>, beat: &Beat) -> Result<WorkerState, Ended> {
        let told = self.heard(line, worker, beat)?;
        if beat.state > told { self.tell(worker, beat.state) } else { Ok(told) }
    }

    /// Tells a worker a state. Returns the state from now on, which may be stronger.
    pub(crate) fn tell(&self, worker: &Arc<Worker>, state: WorkerState) -> Result<WorkerState, Ended> {
        self.tell_within(worker, state, None)
    }

    /// Tells a worker a state, and by when it must have done it; the last deadline that was set counts.
    pub(crate) fn tell_within(
        &self,
        worker: &Arc<Worker>,
        state: WorkerState,
        deadline: Option<Deadline>,
    ) -> Result<WorkerState, Ended> {
        let mut cold = lock(&worker.cold);
        let Change { before, after } = worker.vitals.update(|word| word.told(state))?;
        let mut wake = Wake::default();
        if before.state() < after.state() {
            let counters = &self.counters;
            counters.live[before.state() as usize].down(1);
            counters.live[after.state() as usize].up(1);
            counters.transition();
            let told = || Event::Told {
                wid: worker.hello.wid.clone(),
                incarnation: worker.incarnation,
                state: after.state(),
            };
            self.bus.publish_about(told, || self.info(worker, after, &cold));
            wake = Wake::new(cold.wakers(), Vec::new());
        }
        if deadline.is_some() {
            cold.work().deadline = deadline;
        }
        drop(cold);
        if deadline.is_some() {
            self.file(worker.clone());
        }
        wake.all(self);
        Ok(after.state())
    }

    /// The deadline that comes with a state if none is given.
    pub(crate) fn usual_deadline(&self, state: WorkerState) -> Option<Deadline> {
        let policy = self.policy.load();
        let grace = policy.grace.filter(|_| state == WorkerState::Terminate)?;
        Some(self.deadline(grace, policy.overdue))
    }

    pub(crate) fn deadline(&self, grace: Duration, then: Overdue) -> Deadline {
        Deadline { tick: self.in_ticks(self.policy.load().ticks(grace)), then }
    }

    /// Cordons a worker or lifts the cordon. `false` if it was so already.
    pub(crate) fn cordon(&self, worker: &Arc<Worker>, cordoned: bool) -> Result<bool, Ended> {
        let mut cold = lock(&worker.cold);
        let Change { before, after } = worker.vitals.update(|word| word.cordoned(cordoned))?;
        if before == after {
            return Ok(false);
        }
        self.counters.transition();
        let event =
            || Event::Cordoned { wid: worker.hello.wid.clone(), incarnation: worker.incarnation, cordoned };
        self.bus.publish_about(event, || self.info(worker, after, &cold));
        let wake = Wake::new(cold.wakers(), Vec::new());
        drop(cold);
        wake.all(self);
        Ok(true)
    }

    /// Gives a worker a ttl of its own, in ticks; 0 = the policy's. A shorter one counts from its last beat, at once.
    pub(crate) fn set_ttl(&self, worker: &Arc<Worker>, ttl: u64) {
        // Relaxed: read by the driver, which is called by the timer below if it matters.
        self.longest_ttl.fetch_max(ttl, Ordering::Relaxed);
        worker.set_ttl(ttl);
        self.file(worker.clone());
        self.call_driver();
    }

    /// Adds a connection, to the live worker of that wid or to a new incarnation.
    pub(crate) fn connect(&self, hello: Hello, closer: Closer) -> Result<(Arc<Worker>, usize), ConnectError> {
        let policy = self.policy.load();
        hello.check(&policy.limits)?;
        if let Some(ttl) = hello.ttl {
            policy.check_ttl(ttl).map_err(InvalidHello::TtlOutOfRange)?;
        }
        let mut wake = Wake::default();
        let begun = match self.workers.entry(hello.wid.clone()) {
            Entry::Vacant(place) => self.begin(hello, (WorkerState::Running, false), closer, |worker| {
                // The guard of the shard ends here.
                place.insert(worker.into());
            }),
            Entry::Occupied(mut place) => {
                let old = place.get().worker.clone();
                let mut cold = lock(&old.cold);
                let now = self.now();
                if old.vitals.load().is_live() && !hello.same_process(&old.hello) {
                    match policy.identity {
                        Identity::Share => {}
                        Identity::Reject => {
                            return Err(ConnectError::Conflict {
                                wid: hello.wid,
                                hostname: old.hello.hostname.to_string(),
                                pid: old.hello.pid,
                            });
                        }
                        Identity::Supersede => {
                            if let Ok(change) =
                                old.vitals.update(|word| word.ended(EndReason::Superseded, now))
                            {
                                wake = self.settle_end(&old, &mut cold, change, &policy);
                            }
                        }
                    }
                }
                match old.vitals.update(|word| word.joined(now)) {
                    Ok(change) => {
                        self.settle_back(&old, &cold, change);
                        if let Some(interval) = old.note(&Beat::default(), change) {
                            old.record(interval);
                        }
                        let id = cold.add(closer);
                        self.counters.connections.up(1);
                        self.counters.transition();
                        drop(cold);
                        drop(place);
                        if let Some(ttl) = hello.ttl {
                            self.set_ttl(&old, policy.ticks(ttl));
                        }
                        return Ok((old, id));
                    }
                    Err(NotJoined::Full) => {
                        return Err(ConnectError::TooManyConnections { max: MAX_CONNECTIONS });
                    }
                    Err(NotJoined::Ended) => {
                        let told = remembered_for(&old, &hello, now, &policy);
                        self.forget(&mut cold);
                        drop(cold);
                        self.begin(hello, told, closer, |worker| {
                            place.insert(worker.into());
                            // The guard of the shard ends here.
                            drop(place);
                        })
                    }
                }
            }
        };
        wake.all(self);
        Ok(begun)
    }

    /// Begins an incarnation. `insert` puts it into the map and lets go of the shard.
    fn begin(
        &self,
        hello: Hello,
        (state, cordoned): (WorkerState, bool),
        closer: Closer,
        insert: impl FnOnce(Arc<Worker>),
    ) -> (Arc<Worker>, usize) {
        // Numbered while the shard is held, so that incarnations of one wid grow in their order. Relaxed: only the
        // number counts.
        let incarnation = Incarnation(self.incarnations.fetch_add(1, Ordering::Relaxed));
        let policy = self.policy.load();
        let ttl = hello.ttl.map_or(0, |ttl| policy.ticks(ttl));
        // Relaxed: read by the driver's next pass.
        self.longest_ttl.fetch_max(ttl, Ordering::Relaxed);
        let now = self.now();
        let word = Word::born(state, cordoned, now);
        let line = self.plots.take(word, policy.suspicion);
        let worker = Arc::new(Worker::new(hello, incarnation, line, ttl, &policy));
        // Nobody can have it yet; held, so that nothing about it is published before its `Joined`.
        let mut cold = lock(&worker.cold);
        let id = cold.add(closer);
        // One that comes back as it was told before is held to it, too.
        if let Some(deadline) = self.usual_deadline(state) {
            cold.work().deadline = Some(deadline);
        }
        insert(worker.clone());
        let counters = &self.counters;
        counters.live[state as usize].up(1);
        counters.connections.up(1);
        counters.joined.up(1);
        counters.transition();
        self.bus.publish(|| Event::Joined(worker.info(word, &cold, now, &policy)));
        drop(cold);
        self.file(worker.clone());
        (worker, id)
    }

    /// A connection closed by itself.
    pub(crate) fn leave(&self, worker: &Arc<Worker>, id: usize) {
        let mut wake = Wake::default();
        let policy = self.policy.load();
        let mut cold = lock(&worker.cold);
        let connection = cold.remove(id);
        if let Ok(change) = worker.vitals.update(|word| word.parted(self.now())) {
            if change.after.is_live() {
                self.counters.connections.down(1);
                self.counters.transition();
            } else {
                wake = self.settle_end(worker, &mut cold, change, &policy);
                // Its entry in the wheel may be due much later than that; this one is in time to give back the room.
                if cold.remembered && policy.ticks(policy.remember()) < worker.ttl(&policy) {
                    self.file(worker.clone());
                }
            }
        }
        let kept = cold.remembered;
        drop(cold);
        wake.all(self);
        if !kept {
            self.remove(worker);
        }
        // User data: dropped when all is done and nothing held. Its panic must not reach whoever drops a session.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(connection)));
    }

    /// The duties of an end, under the worker's lock: counters, event, connections to close, and whether its state is
    /// remembered. The caller wakes who waits, and removes the worker from the map if it is not remembered.
    pub(crate) fn settle_end(
        &self,
        worker: &Arc<Worker>,
        cold: &mut Cold,
        change: Change,
        policy: &Policy,
    ) -> Wake {
        let Change { before, after } = change;
        let Some(reason) = after.end() else { return Wake::default() };
        let counters = &self.counters;
        counters.live[before.state() as usize].down(1);
        counters.connections.down(before.connections() as usize);
        counters.late.down(usize::from(before.is_late()));
        counters.ended[reason as usize].up(1);
        counters.transition();
        if is_remembered(after, policy) {
            let room = |remembered| (remembered < policy.max_remembered).then_some(remembered + 1);
            // One step: several may end at once, and there may be room for one.
            if counters.remembered.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).is_ok() {
                cold.remembered = true;
            } else {
                counters.not_remembered.up(1);
            }
        }
        self.bus.publish(|| {
            let mut worker = worker.info(before, cold, after.tick(), policy);
            worker.connections = after.connections();
            Event::Ended(event::Ended { worker, reason })
        });
        let lost = self.lose_leases(worker, cold);
        let (closers, wakers) = cold.close();
        self.hang_up(closers, reason);
        Wake::new(wakers, lost)
    }

    /// Hands closers to the driver, which has them run.
    pub(crate) fn hang_up(&self, closers: Vec<Closer>, reason: EndReason) {
        if closers.is_empty() {
            return;
        }
        for closer in closers {
            self.hangups.push(Hangup::new(closer, reason));
        }
        self.call_driver();
    }

    /// A worker as it is now, under its lock.
    fn info(&self, worker: &Arc<Worker>, word: Word, cold: &Cold) -> WorkerInfo {
        worker.info(word, cold, self.now(), &self.policy.load())
    }

    /// Its state is remembered no longer.
    pub(crate) fn forget(&self, cold: &mut Cold) {
        if std::mem::take(&mut cold.remembered) {
            self.counters.remembered.down(1);
        }
    }

    /// Takes an ended worker out of the map, if it is still the one under its wid.
    pub(crate) fn remove(&self, worker: &Arc<Worker>) {
        if !worker.vitals.load().is_live() {
            self.workers.remove_if(&worker.hello.wid, |_, held| Arc::ptr_eq(&held.worker, worker));
        }
    }
}

/// Whether what an incarnation was told outlives it, when it ended like this (G1).
fn is_remembered(word: Word, policy: &Policy) -> bool {
    let told = match word.end() {
        Some(EndReason::Left) => {
            word.state() == WorkerState::Quiet || word.is_cordoned() && word.state() == WorkerState::Running
        }
        Some(EndReason::Expired) => word.state() > WorkerState::Running || word.is_cordoned(),
        Some(EndReason::Superseded) | None => false,
    };
    told && !policy.remember().is_zero()
}

/// The state in which a newcomer begins where `old` has ended, and whether it is cordoned.
fn remembered_for(old: &Worker, hello: &Hello, now: u64, policy: &Policy) -> (WorkerState, bool) {
    let word = old.vitals.load();
    let in_time = now.saturating_sub(word.tick()) <= policy.ticks(policy.remember());
    if is_remembered(word, policy) && in_time && old.hello.same_process(hello) {
        (word.state(), word.is_cordoned())
    } else {
        (WorkerState::Running, false)
    }
}
