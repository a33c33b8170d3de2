//! What the timer wheel holds: workers, each under the tick at which it is to be looked at.
//!
//! Ground rules
//! - A worker has one entry for all that it waits for: its deadline, its lateness, the first of its leases to run out, the end of what is
//!   remembered of it. It notes the tick that this one is filed under. An entry under another tick is stale: it is dropped when
//!   it comes due, or by a sweep.
//! - An earlier deadline is filed beside the old entry, which becomes stale by that; a later one is found when the old one comes due.
//! - All of this happens in the driver. Others hand in a worker ([`Engine::file`](crate::engine::Engine::file)), and the driver asks it when it
//!   wants to be looked at.
//! - That tick is written under the worker's lock, in the same hold in which all that it waits for was looked at. So whoever holds the
//!   lock may trust it: a lease that runs out after it needs no handing in.

use std::sync::Arc;

use crate::policy::Policy;
use crate::state::WorkerState;
use crate::sync::lock;
use crate::vitals::Word;
use crate::wheel::{Keep, Wheel};
use crate::worker::{Cold, Worker};

/// Files it for the first time, or earlier than it is.
pub(crate) fn file(worker: Arc<Worker>, wheel: &mut Wheel<Arc<Worker>>, policy: &Policy) {
    let mut cold = lock(&worker.cold);
    let (look, filed) = (look_at(&worker, &mut cold, policy), worker.filed());
    let earlier = look.filter(|&look| look < filed);
    worker.set_filed(&mut cold, earlier.unwrap_or(filed));
    drop(cold);
    if let Some(due) = earlier {
        wheel.insert(due, worker);
    }
}

/// What a sweep makes of its entry under `due`.
pub(crate) fn keep(worker: &Worker, due: u64, policy: &Policy) -> Keep {
    if worker.filed() != due {
        return Keep::Drop;
    }
    let mut cold = lock(&worker.cold);
    match look_at(worker, &mut cold, policy) {
        Some(look) if look < due => {
            worker.set_filed(&mut cold, look);
            Keep::Refile(look)
        }
        Some(_) => Keep::Stay,
        None => Keep::Drop,
    }
}

/// The tick at which to look for what is due at `due`, if the published time never lags by more than a tick; the look itself sees
/// how it was.
fn in_time_for(due: u64) -> u64 {
    due.saturating_add(2)
}

/// Whether the driver must be handed a worker, to look at it in time for a lease that runs out at `until`. Under its lock.
pub(crate) fn must_be_told(worker: &Worker, cold: &mut Cold, until: u64) -> bool {
    let look = in_time_for(until);
    let work = cold.work();
    let to_tell = look < worker.filed() && work.told_driver.is_none_or(|told| look < told);
    if to_tell {
        work.told_driver = Some(look);
    }
    to_tell
}

/// When a worker wants to be looked at; `None` if there is nothing left to wait for. Under its lock.
fn look_at(worker: &Worker, cold: &mut Cold, policy: &Policy) -> Option<u64> {
    let word = worker.vitals.load();
    let lease = cold.first_lease_due().map(in_time_for);
    if !word.is_live() {
        let remembered = cold.remembered.then(|| remembered_until(word, policy));
        return lease.into_iter().chain(remembered).min();
    }
    let expiry = in_time_for(word.tick().saturating_add(worker.ttl(policy)));
    let late = || in_time_for(word.tick().saturating_add(worker.late_after(policy)));
    let late = (!word.is_late()).then(late);
    let deadline = cold.deadline().map(|deadline| in_time_for(deadline.tick));
    [Some(expiry), late, lease, deadline].into_iter().flatten().min()
}

/// The first tick at which an ended worker's state is not remembered any more.
pub(crate) fn remembered_until(word: Word, policy: &Policy) -> u64 {
    word.tick().saturating_add(policy.ticks(policy.remember())).saturating_add(1)
}

/// Whether a worker has done what it was told: whoever is told to quiet, when it holds no lease any more; whoever is told to
/// terminate, when it has gone.
pub(crate) fn has_done(word: Word, cold: &Cold) -> bool {
    match word.state() {
        WorkerState::Running => true,
        WorkerState::Quiet => cold.work.as_ref().is_none_or(|work| work.leases.is_empty()),
        WorkerState::Terminate => false,
    }
}
