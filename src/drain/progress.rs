//! How far a drain is, and where each of its workers stands.

use std::fmt;
use std::time::Instant;

/// Where a worker of a [`Drain`](crate::Drain) stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Standing {
    /// Its turn has not come.
    Waiting,
    /// It was told, and is not finished.
    Out {
        /// When the drain told it, or found it told.
        since: Instant,
    },
    /// It was out, and what was waited for is met, or it is gone.
    Done,
    /// It ended before it was out, and did not come back as one that matches. Nobody was told.
    Vanished,
}

/// What a [`Drain`](crate::Drain) is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DrainPhase {
    /// Telling workers as slots get free.
    Active,
    /// Telling nobody until it is resumed; who is out is still followed.
    Paused,
    /// Telling nobody any more; who is out is still followed.
    Cancelled,
    /// Every worker is done or has vanished.
    Finished,
}

/// How far a [`Drain`](crate::Drain) is. `waiting + out + done + vanished == total`, always; `done` and `vanished` never shrink.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct DrainProgress {
    /// What it is doing.
    pub phase: DrainPhase,
    /// All its workers: those that matched when it started.
    pub total: usize,
    /// How many of them may be out at once.
    pub cap: usize,
    /// Not told yet, as far as was looked: waiting workers are looked at when a slot is free.
    pub waiting: usize,
    /// Told, and not finished.
    pub out: usize,
    /// Drained, or gone after they were told.
    pub done: usize,
    /// Ended before their turn.
    pub vanished: usize,
}

/// One line.
impl fmt::Display for DrainProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DrainProgress { phase, total, cap, waiting, out, done, vanished } = self;
        write!(
            f,
            "{phase}: {done} of {total} done, {out} out (at most {cap}), {waiting} waiting, {vanished} vanished"
        )
    }
}

impl DrainPhase {
    /// One lower-case word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            DrainPhase::Active => "active",
            DrainPhase::Paused => "paused",
            DrainPhase::Cancelled => "cancelled",
            DrainPhase::Finished => "finished",
        }
    }
}

impl fmt::Display for DrainPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
