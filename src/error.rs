//! The errors. Each says what was wrong and where; none of them leaves anything changed.

use std::fmt;
use std::time::Duration;

use crate::hello::Wid;

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

/// A [`Policy`](crate::Policy) value that cannot be taken. Nothing is clamped; the policy in force stays.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PolicyError {
    /// A duration is outside its range.
    OutOfRange {
        /// The field of [`Policy`](crate::Policy).
        field: &'static str,
        /// The value.
        value: Duration,
        /// The least value that would do.
        min: Duration,
        /// The greatest value that would do.
        max: Duration,
    },
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
    /// `tick` is the unit in which a registry counts; it is chosen when the registry is made.
    TickChanged {
        /// The tick of the registry.
        tick: Duration,
    },
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PolicyError::OutOfRange { field, value, min, max } => {
                write!(f, "{field} of {value:?} is not within {min:?} to {max:?}")
            }
            PolicyError::LimitOutOfRange { field, value, min, max } => {
                write!(f, "{field} of {value} is not within {min} to {max}")
            }
            PolicyError::TickChanged { tick } => {
                write!(f, "tick stays {tick:?} for the life of a registry")
            }
        }
    }
}

impl std::error::Error for PolicyError {}
