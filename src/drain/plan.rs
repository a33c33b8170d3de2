//! What a drain is to do, checked before anyone is told.

use std::fmt;
use std::time::Duration;

use super::Drain;
use crate::hello::Wid;
use crate::registry::Registry;
use crate::selector::Selector;
use crate::state::{Incarnation, WorkerState};
use crate::worker::WorkerInfo;

/// How many workers of a [`Drain`] may be out at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Share {
    /// So many; at least one.
    Count(usize),
    /// So many in a hundred of those that match when the drain starts, rounded down, but at least one; 1 to 100.
    Percent(u8),
}

impl Share {
    /// Of `total`.
    pub(super) fn of(self, total: usize) -> usize {
        match self {
            Share::Count(count) => count,
            // In two steps, for the product could be too large.
            Share::Percent(percent) => {
                let percent = usize::from(percent);
                (total / 100 * percent + total % 100 * percent / 100).max(1)
            }
        }
    }
}

/// Until when a worker that was told holds its slot. Its end frees the slot in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Until {
    /// It holds no lease: what it had begun is finished. What [`Quiet`](WorkerState::Quiet) is for.
    NoLeases,
    /// It has left, or was reaped. What [`Terminate`](WorkerState::Terminate) is for: workers that are quiet do not leave by themselves, so
    /// somebody has to end them.
    Gone,
    /// This much time has passed since it was told, by the time that [`Drain::advance`] is given.
    Elapsed(Duration),
}

impl Until {
    pub(super) fn default_for(state: WorkerState) -> Self {
        if state == WorkerState::Terminate { Until::Gone } else { Until::NoLeases }
    }

    /// For a live worker that was found out so long ago.
    pub(super) fn is_met(self, leases: u32, out_for: Duration) -> bool {
        match self {
            Until::NoLeases => leases == 0,
            Until::Gone => false,
            Until::Elapsed(length) => out_for >= length,
        }
    }
}

/// A plan that cannot be carried out. Nobody was told.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DrainError {
    /// Workers cannot be told to run: a state never goes back.
    Running,
    /// A share of nobody would never begin.
    ZeroShare,
    /// The share is more than the whole.
    OverWhole {
        /// The percentage.
        percent: u8,
    },
    /// To wait for no time at all would be no limit.
    ZeroElapsed,
}

impl fmt::Display for DrainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DrainError::Running => f.write_str("a drain is to quiet or terminate, not to running"),
            DrainError::ZeroShare => f.write_str("a drain with nobody out at once would never begin"),
            DrainError::OverWhole { percent } => write!(f, "{percent} % is more than the whole fleet"),
            DrainError::ZeroElapsed => f.write_str("a drain that waits for no time has no limit"),
        }
    }
}

impl std::error::Error for DrainError {}

/// What a [`Drain`] is to do, from [`Drain::plan`]. Unless said otherwise: to quiet, one at a time, until it holds no lease (to terminate:
/// until it is gone).
///
/// ```
/// use heartwheel::{Drain, DrainError, Selector, Share};
/// let plan = Drain::plan(Selector::label("blue")).at_most(Share::Percent(0));
/// assert_eq!(plan.validate(), Err(DrainError::ZeroShare));
/// ```
#[derive(Clone, Debug)]
#[must_use = "a plan does nothing unless it is started"]
pub struct DrainPlan {
    pub(super) selector: Selector,
    pub(super) state: WorkerState,
    pub(super) share: Share,
    pub(super) until: Option<Until>,
}

impl DrainPlan {
    pub(super) fn new(selector: Selector) -> Self {
        DrainPlan { selector, state: WorkerState::Quiet, share: Share::Count(1), until: None }
    }

    /// What the workers are told: quiet or terminate.
    pub fn to(mut self, state: WorkerState) -> Self {
        self.state = state;
        self
    }

    /// How many may be out at once.
    pub fn at_most(mut self, share: Share) -> Self {
        self.share = share;
        self
    }

    /// Until when a worker that was told counts as out.
    pub fn wait_for(mut self, until: Until) -> Self {
        self.until = Some(until);
        self
    }

    /// Checks every value.
    ///
    /// # Errors
    /// [`DrainError`]
    pub fn validate(&self) -> Result<(), DrainError> {
        if self.state == WorkerState::Running {
            return Err(DrainError::Running);
        }
        match self.share {
            Share::Count(0) | Share::Percent(0) => return Err(DrainError::ZeroShare),
            Share::Percent(percent @ 101..) => return Err(DrainError::OverWhole { percent }),
            Share::Count(_) | Share::Percent(_) => {}
        }
        if self.until == Some(Until::Elapsed(Duration::ZERO)) {
            return Err(DrainError::ZeroElapsed);
        }
        Ok(())
    }

    /// Fixes whom it is about: the workers that match now. Nobody is told before the first [`Drain::advance`].
    ///
    /// That nobody matches is no error: look at the `total` of [`Drain::progress`].
    ///
    /// # Errors
    /// [`DrainError`]; as [`validate`](DrainPlan::validate).
    pub fn start(self, registry: &Registry) -> Result<Drain, DrainError> {
        self.validate()?;
        let workers = registry.select(&self.selector);
        let known = |worker: &WorkerInfo| (worker.wid().clone(), worker.incarnation());
        self.over(workers.iter().map(known).collect())
    }

    /// Over these workers.
    pub(super) fn over(self, workers: Vec<(Wid, Incarnation)>) -> Result<Drain, DrainError> {
        self.validate()?;
        Ok(Drain::over(self, workers))
    }
}
