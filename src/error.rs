//! The errors. Each says what was wrong and where; none of them leaves anything changed.

use std::fmt;
use std::time::Duration;

use crate::hello::Wid;
use crate::lease::{LeaseEnd, LeaseInfo};
use crate::state::WorkerState;

/// A [`Hello`](crate::Hello) that cannot be taken. Nothing was registered.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidHello {
    /// The wid is empty or white space only.
    BlankWid,
    /// The wid has a control character.
    ControlCharacter {
        /// Its byte offset.
        at: usize,
    },
    /// A field is longer than the policy's [`Limits`](crate::Limits) allow.
    TooLong {
        /// `wid`, `hostname`, `version` or `label`.
        field: &'static str,
        /// Its length in bytes.
        len: usize,
        /// The limit in bytes.
        max: usize,
    },
    /// The ttl it asks for is outside the range of [`Policy`](crate::Policy).
    TtlOutOfRange(OutOfRange),
    /// There are more labels than the policy's [`Limits`](crate::Limits) allow.
    TooManyLabels {
        /// How many there are.
        count: usize,
        /// The limit.
        max: usize,
    },
}

impl fmt::Display for InvalidHello {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InvalidHello::BlankWid => f.write_str("wid has no visible character"),
            InvalidHello::ControlCharacter { at } => write!(f, "wid has a control character at byte {at}"),
            InvalidHello::TooLong { field, len, max } => {
                write!(f, "{field} of {len} bytes is over the limit of {max}")
            }
            InvalidHello::TtlOutOfRange(range) => range.fmt(f),
            InvalidHello::TooManyLabels { count, max } => {
                write!(f, "{count} labels are over the limit of {max}")
            }
        }
    }
}

impl std::error::Error for InvalidHello {}

/// A connection that was not accepted. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectError {
    /// What it said of itself cannot be taken.
    Invalid(InvalidHello),
    /// The wid belongs to a live worker of another process, and the policy is
    /// [`Identity::Reject`](crate::Identity::Reject).
    Conflict {
        /// The wid.
        wid: Wid,
        /// The holder's hostname.
        hostname: String,
        /// The holder's pid.
        pid: Option<i64>,
    },
    /// The worker has as many connections open as one worker can.
    TooManyConnections {
        /// That number.
        max: u32,
    },
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectError::Invalid(invalid) => invalid.fmt(f),
            ConnectError::Conflict { wid, hostname, pid: Some(pid) } => {
                write!(f, "worker {wid} is held by process {pid} on {hostname:?}")
            }
            ConnectError::Conflict { wid, hostname, pid: None } => {
                write!(f, "worker {wid} is held by another process on {hostname:?}")
            }
            ConnectError::TooManyConnections { max } => {
                write!(f, "worker has {max} connections open already")
            }
        }
    }
}

impl std::error::Error for ConnectError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ConnectError::Invalid(invalid) => Some(invalid),
            _ => None,
        }
    }
}

impl From<InvalidHello> for ConnectError {
    fn from(invalid: InvalidHello) -> Self {
        ConnectError::Invalid(invalid)
    }
}

/// This incarnation has ended; the call changed nothing, whoever holds the wid now (G5). Connect again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gone;

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("this incarnation of the worker has ended")
    }
}

impl std::error::Error for Gone {}

/// No live worker has this wid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnknownWorker;

impl fmt::Display for UnknownWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no live worker has this wid")
    }
}

impl std::error::Error for UnknownWorker {}

/// A duration outside its range. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutOfRange {
    /// What it was for.
    pub field: &'static str,
    /// The value.
    pub value: Duration,
    /// The least value that would do.
    pub min: Duration,
    /// The greatest value that would do.
    pub max: Duration,
}

impl OutOfRange {
    pub(crate) fn check(
        field: &'static str,
        value: Duration,
        min: Duration,
        max: Duration,
    ) -> Result<(), OutOfRange> {
        if (min..=max).contains(&value) { Ok(()) } else { Err(OutOfRange { field, value, min, max }) }
    }
}

impl fmt::Display for OutOfRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OutOfRange { field, value, min, max } = self;
        write!(f, "{field} of {value:?} is not within {min:?} to {max:?}")
    }
}

impl std::error::Error for OutOfRange {}

/// A worker's ttl that was not changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TtlError {
    /// The incarnation has ended.
    Gone,
    /// It is outside the range of [`Policy`](crate::Policy).
    OutOfRange(OutOfRange),
}

impl fmt::Display for TtlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TtlError::Gone => Gone.fmt(f),
            TtlError::OutOfRange(range) => range.fmt(f),
        }
    }
}

impl std::error::Error for TtlError {}

/// A signal with a deadline that was not given. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SignalError {
    /// No live worker has this wid.
    UnknownWorker,
    /// The deadline is outside the range of [`Policy`](crate::Policy).
    OutOfRange(OutOfRange),
}

impl fmt::Display for SignalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SignalError::UnknownWorker => UnknownWorker.fmt(f),
            SignalError::OutOfRange(range) => range.fmt(f),
        }
    }
}

impl std::error::Error for SignalError {}

/// A lease that was not granted or not renewed. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeaseError {
    /// The worker's incarnation has ended.
    Gone,
    /// The worker was told to take no work.
    Told(WorkerState),
    /// The worker is cordoned.
    Cordoned,
    /// The work item is held; here is by whom.
    Held(LeaseInfo),
    /// The lease to be renewed is not held any more.
    NotHeld(NotHeld),
    /// The ttl is outside the range of the policy.
    OutOfRange(OutOfRange),
    /// The id is empty or too long ([`Limits::lease`](crate::Limits::lease)).
    InvalidId {
        /// Its length in bytes.
        len: usize,
        /// The limit in bytes.
        max: usize,
    },
}

impl fmt::Display for LeaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LeaseError::Gone => Gone.fmt(f),
            LeaseError::Told(state) => write!(f, "the worker was told {state}, and is given no work"),
            LeaseError::Cordoned => f.write_str("the worker is cordoned, and is given no work"),
            LeaseError::Held(held) => {
                write!(f, "{:?} is held by worker {}, token {}", held.id, held.wid, held.token)
            }
            LeaseError::NotHeld(not_held) => not_held.fmt(f),
            LeaseError::OutOfRange(range) => range.fmt(f),
            LeaseError::InvalidId { len: 0, .. } => f.write_str("the id of a lease is empty"),
            LeaseError::InvalidId { len, max } => {
                write!(f, "the id of a lease of {len} bytes is over the limit of {max}")
            }
        }
    }
}

impl std::error::Error for LeaseError {}

impl From<OutOfRange> for LeaseError {
    fn from(range: OutOfRange) -> Self {
        LeaseError::OutOfRange(range)
    }
}

/// The lease has ended; the call changed nothing, whoever holds the work now.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NotHeld {
    /// How it ended.
    pub how: LeaseEnd,
    /// The lease under which the work is held now, if it is.
    pub now: Option<LeaseInfo>,
}

impl fmt::Display for NotHeld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the lease has ended ({})", self.how)?;
        match &self.now {
            Some(now) => write!(f, "; worker {} holds the work now, token {}", now.wid, now.token),
            None => Ok(()),
        }
    }
}

impl std::error::Error for NotHeld {}

/// A [`Policy`](crate::Policy) value that cannot be taken. Nothing is clamped; the policy in force stays.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum PolicyError {
    /// A duration is outside its range.
    OutOfRange(OutOfRange),
    /// A size limit is outside its range.
    LimitOutOfRange {
        /// The field of [`Limits`](crate::Limits) or [`Policy`](crate::Policy).
        field: &'static str,
        /// The value.
        value: usize,
        /// The least value that would do.
        min: usize,
        /// The greatest value that would do.
        max: usize,
    },
    /// The share of a [`Brake`](crate::Brake) is not above 0 and up to 1.
    ShareOutOfRange {
        /// The value.
        share: f64,
    },
    /// `tick` is the unit in which a registry counts; it is chosen when the registry is made.
    TickChanged {
        /// The tick of the registry.
        tick: Duration,
    },
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PolicyError::OutOfRange(range) => range.fmt(f),
            PolicyError::LimitOutOfRange { field, value, min, max } => {
                write!(f, "{field} of {value} is not within {min} to {max}")
            }
            PolicyError::ShareOutOfRange { share } => {
                write!(f, "brake.share of {share} is not above 0 and up to 1")
            }
            PolicyError::TickChanged { tick } => {
                write!(f, "tick stays {tick:?} for the life of a registry")
            }
        }
    }
}

impl std::error::Error for PolicyError {}

impl From<OutOfRange> for PolicyError {
    fn from(range: OutOfRange) -> Self {
        PolicyError::OutOfRange(range)
    }
}
