//! The two kinds of time and the one place where they meet.

use std::time::{Duration, Instant};

use jiff::Timestamp;

/// How far ahead a deadline is put that the monotonic clock cannot hold: a hundred years.
const FAR: Duration = Duration::from_secs(100 * 366 * 86_400);

/// The wall time, for the texts that carry one. Nothing is decided by it.
#[must_use]
pub fn wall_now() -> Timestamp {
    Timestamp::now()
}

/// `now + after`, or a time nobody will see.
pub(super) fn deadline(now: Instant, after: Duration) -> Instant {
    now.checked_add(after).or_else(|| now.checked_add(FAR)).unwrap_or(now)
}

/// The deadline for a wall time, or `None` when that time has come.
pub(super) fn due(at: Timestamp, wall: Timestamp, now: Instant) -> Option<Instant> {
    let ahead = Duration::try_from(at.duration_since(wall)).ok()?;
    (!ahead.is_zero()).then(|| deadline(now, ahead))
}
