//! Reservations of jobs as leases of the engine: the policy they need, and the way back of a job whose lease was lost.
//!
//! What the engine reports lost is put back by [`requeue`]. It may miss events, for its channel is bounded; a lease that was lost says
//! so itself, so after [`Lagged`](crate::Lagged) all that are outstanding are asked.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use tracing::warn;

use super::jobs::{MAX_JID, MAX_RESERVE, Requeued};
use super::{Config, Shared};
use crate::event::{Event, EventKind, Filter};
use crate::policy::Policy;

/// Events that may wait to be worked off. One is all that a worker lost at one time.
const CAPACITY: usize = 1024;
/// Room for the number that tells two jobs with one jid apart.
const NUMBER: usize = 64;

/// The policy as configured, with room for every lease that a job may ask for.
pub(super) fn policy(config: &Config) -> Policy {
    let mut policy = config.policy.clone();
    policy.recover = config.recover;
    policy.limits.lease = policy.limits.lease.max(usize::from(MAX_JID) + NUMBER);
    policy.lease_min = None;
    policy.lease_max = policy.lease_max.max(Duration::from_secs(MAX_RESERVE.into()));
    policy
}

/// Puts jobs back whose leases were lost, as long as the server runs. Subscribed before this returns.
pub(super) fn requeue(shared: Arc<Shared>) -> impl Future<Output = ()> + Send {
    let events = shared.registry.subscribe_to(Filter::default().kinds([EventKind::Lost]), CAPACITY);
    async move {
        while let Some(item) = poll_fn(|cx| events.poll_recv(cx)).await {
            match item {
                Ok(Event::Lost(lost)) => {
                    lost.leases
                        .iter()
                        .filter_map(|lease| shared.store.lost(lease.token))
                        .for_each(|job| say(&job));
                }
                Ok(_) => {}
                Err(lagged) => {
                    warn!("{lagged}; every job that is held is asked whether it was lost");
                    shared.store.lost_unheard().iter().for_each(say);
                }
            }
        }
    }
}

fn say(job: &Requeued) {
    let (holder, reason) = (job.holder(), job.reason());
    warn!(
        wid = ?holder.wid, incarnation = %holder.incarnation, jid = job.jid(), jobtype = job.jobtype(), queue = job.queue(),
        reason, "job requeued"
    );
}
