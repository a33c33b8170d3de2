//! The fleet as it was when it was looked at, and its sums.
//!
//! Ground rules
//! - A snapshot is built by whoever asks, from words read one at a time; beats do not notice. It is kept and handed out again
//!   while it is still true: no transition since, and the same tick. So many readers cost one walk a tick.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;

use crate::engine::Engine;
use crate::lease::LeaseEnd;
use crate::state::{EndReason, WorkerState};
use crate::sync::{Mutex, Ordering, Sum as _, lock};
use crate::worker::WorkerInfo;

/// All live workers, in the order in which they joined; from [`Registry::snapshot`](crate::Registry::snapshot).
///
/// Each worker is as it was at one instant; the fleet is weakly consistent: a worker that joined or ended while the snapshot was
/// built may be in it or not. Whoever joined, ended or was told before the snapshot was asked for is in it as such; a plain beat (age, beats,
/// resident memory) shows in the first one after the next tick, and at once in [`Registry::get`](crate::Registry::get).
#[derive(Debug)]
pub struct Snapshot {
    workers: Vec<WorkerInfo>,
    transitions: u64,
    tick: u64,
}

impl Snapshot {
    /// The workers, in the order in which they joined.
    #[must_use]
    pub fn workers(&self) -> &[WorkerInfo] {
        &self.workers
    }
}

/// The newest snapshot.
#[derive(Debug, Default)]
pub(crate) struct Latest {
    snapshot: ArcSwapOption<Snapshot>,
    /// Held by the one who builds the next; who waits for it finds it built.
    building: Mutex<()>,
}

impl Latest {
    /// Lets go of the newest snapshot if it holds more than `bound` workers: it may be all that keeps them in memory.
    pub(crate) fn outgrown(&self, bound: usize) -> Option<Arc<Snapshot>> {
        let outgrown = |snapshot: &Snapshot| snapshot.workers.len() > bound;
        if self.snapshot.load().as_deref().is_some_and(outgrown) { self.snapshot.swap(None) } else { None }
    }
}

impl Engine {
    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        if let Some(snapshot) = self.still_true() {
            return snapshot;
        }
        let building = lock(&self.latest.building);
        if let Some(snapshot) = self.still_true() {
            return snapshot;
        }
        // Read before the walk: a transition during it makes the snapshot one to be built anew. Acquire: as in
        // `still_true`.
        let transitions = self.counters.transitions.load(Ordering::Acquire);
        let tick = self.now();
        let policy = self.policy.load();
        let mut workers: Vec<WorkerInfo> =
            self.live().map(|(worker, word)| worker.info(word, &lock(&worker.cold), tick, &policy)).collect();
        workers.sort_unstable_by_key(WorkerInfo::incarnation);
        let snapshot = Arc::new(Snapshot { workers, transitions, tick });
        self.latest.snapshot.store(Some(snapshot.clone()));
        drop(building);
        snapshot
    }

    fn still_true(&self) -> Option<Arc<Snapshot>> {
        let snapshot = self.latest.snapshot.load_full()?;
        // Acquire: a caller that made a transition, or knows of one, must not be given a snapshot of before.
        let transitions = self.counters.transitions.load(Ordering::Acquire);
        (snapshot.tick == self.now() && snapshot.transitions == transitions).then_some(snapshot)
    }

    pub(crate) fn stats(&self) -> Stats {
        let counters = &self.counters;
        let live = WorkerState::ALL.map(|state| counters.live[state as usize].get());
        let ended = |reason: EndReason| counters.ended[reason as usize].get();
        let leases = |end: LeaseEnd| counters.leases_ended[end as usize].get();
        Stats {
            late: counters.late.get(),
            leases: counters.leases.get(),
            leases_completed: leases(LeaseEnd::Completed),
            leases_failed: leases(LeaseEnd::Failed),
            leases_released: leases(LeaseEnd::Released),
            leases_expired: leases(LeaseEnd::Expired),
            leases_lost_with_holder: leases(LeaseEnd::HolderEnded),
            overdue: counters.overdue.get(),
            mass_silences: counters.mass_silences.get(),
            // Relaxed: a flag for display.
            holding: counters.holding.load(Ordering::Relaxed),
            running: live[0],
            quiet: live[1],
            terminate: live[2],
            connections: counters.connections.get(),
            joined: counters.joined.get(),
            left: ended(EndReason::Left),
            expired: ended(EndReason::Expired),
            superseded: ended(EndReason::Superseded),
            remembered: counters.remembered.get(),
            not_remembered: counters.not_remembered.get(),
            gaps: counters.gaps.get(),
            filed: counters.filed.get(),
            uptime: crate::clock::span(self.now(), self.policy.load().tick),
        }
    }
}

/// The sums of a registry, in a few loads however large the fleet is. Each number is true by itself; two of them may be from
/// either side of a transition.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Live workers that take work.
    pub running: usize,
    /// Live workers told to quiet.
    pub quiet: usize,
    /// Live workers told to terminate.
    pub terminate: usize,
    /// Live workers that are late ([`Health::Late`](crate::Health::Late)); all others are live.
    pub late: usize,
    /// Open connections of live workers.
    pub connections: usize,
    /// Incarnations begun.
    pub joined: u64,
    /// Incarnations whose last connection closed.
    pub left: u64,
    /// Incarnations reaped.
    pub expired: u64,
    /// Incarnations taken over.
    pub superseded: u64,
    /// Ended workers whose told state is remembered now.
    pub remembered: usize,
    /// Ended workers whose told state was not remembered for want of room ([`Policy::max_remembered`](crate::Policy::max_remembered)).
    pub not_remembered: u64,
    /// Pauses of the engine that were left out of its time.
    pub gaps: u64,
    /// Leases that are held.
    pub leases: usize,
    /// Leases that their holders completed.
    pub leases_completed: u64,
    /// Leases whose work failed.
    pub leases_failed: u64,
    /// Leases that their holders gave back.
    pub leases_released: u64,
    /// Leases that ran out.
    pub leases_expired: u64,
    /// Leases that ended with their holders.
    pub leases_lost_with_holder: u64,
    /// Deadlines by which a worker had not done what it was told.
    pub overdue: u64,
    /// How often the brake began to hold.
    pub mass_silences: u64,
    /// Whether it holds now: silent workers do not expire.
    pub holding: bool,
    /// Entries in the timer wheel, and on their way to it, after the last pass.
    pub filed: usize,
    /// The engine's time since the first pass, pauses left out.
    pub uptime: Duration,
}

impl Stats {
    /// All live workers.
    #[must_use]
    pub fn live(&self) -> usize {
        self.running + self.quiet + self.terminate
    }
}
