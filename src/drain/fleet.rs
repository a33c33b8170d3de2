//! What a drain needs to know and to do: a registry, or something made up.

use crate::hello::Wid;
use crate::registry::Registry;
use crate::selector::Selector;
use crate::state::{Incarnation, WorkerState};

/// What a drain sees of the fleet, and the one thing it does to it.
pub(super) trait Fleet {
    /// The live worker of that wid, in one look: a second one could find another incarnation, or nobody.
    fn look(&self, wid: &Wid, known: Incarnation, selector: &Selector) -> Option<Sight>;
    /// Tells this incarnation; `false` if it has ended, and then nothing was changed.
    fn tell(&self, wid: &Wid, incarnation: Incarnation, state: WorkerState) -> bool;
}

/// A worker when it was looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sight {
    pub(super) incarnation: Incarnation,
    pub(super) state: WorkerState,
    pub(super) leases: u32,
    /// It is the incarnation that was known, or one that the selector selects.
    pub(super) belongs: bool,
}

impl Fleet for Registry {
    fn look(&self, wid: &Wid, known: Incarnation, selector: &Selector) -> Option<Sight> {
        let worker = self.get(wid.as_str())?;
        let (incarnation, state, leases) = (worker.incarnation(), worker.state(), worker.leases());
        let belongs = incarnation == known || selector.matches(&worker);
        Some(Sight { incarnation, state, leases, belongs })
    }

    fn tell(&self, wid: &Wid, incarnation: Incarnation, state: WorkerState) -> bool {
        self.signal_incarnation(wid, incarnation, state)
    }
}
