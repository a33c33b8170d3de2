//! What a drain needs to know and to do: a registry, or something made up.

use crate::hello::Wid;
use crate::registry::Registry;
use crate::selector::Selector;
use crate::state::{Incarnation, WorkerState};

/// What a drain sees of the fleet, and the one thing it does to it.
pub(super) trait Fleet {
    /// The live worker of that wid.
    fn look(&self, wid: &Wid) -> Option<Sight>;
    /// Whether the live worker of that wid is one of those that are meant.
    fn matches(&self, wid: &Wid, selector: &Selector) -> bool;
    /// Tells this incarnation; `false` if it has ended, and then nothing was changed.
    fn tell(&self, wid: &Wid, incarnation: Incarnation, state: WorkerState) -> bool;
}

/// A worker when it was looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sight {
    pub(super) incarnation: Incarnation,
    pub(super) state: WorkerState,
    pub(super) leases: u32,
}

impl Fleet for Registry {
    fn look(&self, wid: &Wid) -> Option<Sight> {
        let worker = self.get(wid.as_str())?;
        let (incarnation, state, leases) = (worker.incarnation(), worker.state(), worker.leases());
        Some(Sight { incarnation, state, leases })
    }

    fn matches(&self, wid: &Wid, selector: &Selector) -> bool {
        self.get(wid.as_str()).is_some_and(|worker| selector.matches(&worker))
    }

    fn tell(&self, wid: &Wid, incarnation: Incarnation, state: WorkerState) -> bool {
        self.signal_incarnation(wid, incarnation, state)
    }
}
