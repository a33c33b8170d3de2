//! Why a job is not taken. An error always means that nothing has changed.
//!
//! The texts hold field names and numbers only, never what the client sent: they go back over the wire as one line.

/// A text that is not a job.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// Not JSON, not UTF-8, or JSON but not an object.
    #[error("a job must be one JSON object, this text fails at line {line} column {column}")]
    NotAnObject {
        /// Line of the first fault, from 1.
        line: usize,
        /// Column of the first fault, in bytes.
        column: usize,
    },
    /// A field that every job needs is absent or null.
    #[error("a job needs the field {field}")]
    Missing {
        /// The field.
        field: &'static str,
    },
    /// A field holds the wrong kind of value.
    #[error("job field {field} must be {expected}")]
    Kind {
        /// The field.
        field: &'static str,
        /// What belongs there.
        expected: &'static str,
    },
    /// A number, or the length of a text in bytes, is out of range. Values are never clamped.
    #[error("job field {field} must be {min} to {max} {unit}, found {found}")]
    Range {
        /// The field.
        field: &'static str,
        /// What was given.
        found: i64,
        /// The smallest value allowed.
        min: i64,
        /// The largest value allowed.
        max: i64,
        /// What is counted.
        unit: &'static str,
    },
}

impl JobError {
    /// The field at fault; `None` when the text is no object at all.
    #[must_use]
    pub fn field(&self) -> Option<&'static str> {
        match *self {
            Self::NotAnObject { .. } => None,
            Self::Missing { field } | Self::Kind { field, .. } | Self::Range { field, .. } => Some(field),
        }
    }
}

/// Why a good job was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PushError {
    /// The store is at a limit. The same PUSH can succeed later, once other jobs are done.
    #[error("the job store is full: it may hold {limit} {unit} (max-{unit})")]
    Full {
        /// The limit that would be passed.
        limit: usize,
        /// What it counts: `jobs` or `bytes`.
        unit: &'static str,
    },
}
