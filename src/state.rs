//! The small vocabularies of a worker's life: what it was told, how it ended, how it looks from outside.

use std::fmt;
use std::str::FromStr;

/// What a worker has been told. One way: running → quiet → terminate.
///
/// The order is total and advancing is `max`, so a repeat or a step back changes nothing.
///
/// ```
/// use heartwheel::WorkerState::{Quiet, Running, Terminate};
/// assert!(Running < Quiet && Quiet < Terminate);
/// assert_eq!(Terminate.max(Quiet), Terminate);
/// assert_eq!("quiet".parse(), Ok(Quiet));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WorkerState {
    /// Takes work.
    #[default]
    Running,
    /// Finishes what it holds and takes nothing new.
    Quiet,
    /// Finishes or gives up what it holds, then leaves.
    Terminate,
}

impl WorkerState {
    /// All states, in order.
    pub const ALL: [WorkerState; 3] = [WorkerState::Running, WorkerState::Quiet, WorkerState::Terminate];

    /// The protocol's word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            WorkerState::Running => "running",
            WorkerState::Quiet => "quiet",
            WorkerState::Terminate => "terminate",
        }
    }

    /// How a worker's own `current_state` is read on the wire: a text that is neither `quiet` nor `terminate` says
    /// nothing, which is [`Running`](WorkerState::Running).
    #[must_use]
    pub fn from_wire(text: &str) -> Self {
        text.parse().unwrap_or_default()
    }
}

impl fmt::Display for WorkerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The text is not the name of a [`WorkerState`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnknownState;

impl fmt::Display for UnknownState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a worker state: running, quiet or terminate")
    }
}

impl std::error::Error for UnknownState {}

impl FromStr for WorkerState {
    type Err = UnknownState;

    fn from_str(text: &str) -> Result<Self, UnknownState> {
        WorkerState::ALL.into_iter().find(|state| state.as_str() == text).ok_or(UnknownState)
    }
}

/// How an incarnation ended. It ends once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum EndReason {
    /// Its last connection closed.
    Left,
    /// It was silent for its ttl, and was reaped.
    Expired,
    /// Another process took over its wid ([`Identity::Supersede`](crate::Identity::Supersede)).
    Superseded,
}

impl EndReason {
    /// One lower-case word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            EndReason::Left => "left",
            EndReason::Expired => "expired",
            EndReason::Superseded => "superseded",
        }
    }
}

impl fmt::Display for EndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// How a live worker looks by the age of its last beat. A view, computed when read; nothing is decided by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Health {
    /// Heard within [`Policy::late_after`](crate::Policy::late_after).
    Live,
    /// Silent for longer than that, and not yet reaped.
    Late,
}

impl Health {
    /// One lower-case word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Health::Live => "live",
            Health::Late => "late",
        }
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The number of one life of a worker, a fencing token: within one registry a later incarnation is always greater
/// than every earlier one, of any worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub(crate) u64);

impl Incarnation {
    /// The bare number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
