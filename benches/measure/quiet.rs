//! Whether the machine was ours: other programs take cores, and push lines out of the shared cache.

use std::fs;
use std::time::Duration;

use crate::peers::floor::instant;

/// How much of the machine others had.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Others {
    wall: Duration,
    /// What they used of all cores, in the system's own ticks of 10 ms; finer is not told.
    ticks: i64,
}

impl Others {
    /// Watches `work`.
    pub(crate) fn during<T>(work: impl FnOnce() -> T) -> (T, Others) {
        let (before, start) = (ticks_of_others(), instant());
        let done = work();
        let (after, wall) = (ticks_of_others(), instant() - start);
        let ticks = before.zip(after).map_or(0, |(before, after)| after - before);
        (done, Others { wall, ticks })
    }

    pub(crate) fn and(self, more: Others) -> Others {
        Others { wall: self.wall + more.wall, ticks: self.ticks + more.ticks }
    }

    /// Whether they used more than a twentieth of one core.
    pub(crate) fn disturbed(self) -> bool {
        self.ticks as f64 * 0.01 > self.wall.as_secs_f64() / 20.0
    }
}

/// What others have used so far; `None` where the system does not tell.
fn ticks_of_others() -> Option<i64> {
    let all = fs::read_to_string("/proc/stat").ok()?;
    let all: Vec<i64> = all.lines().next()?.split_whitespace().skip(1).flat_map(str::parse).collect();
    // User, nice and system; then idle and waiting; then interrupts (two) and what the host took.
    let busy: i64 = all.get(..3)?.iter().chain(all.get(5..8)?).sum();
    let own = fs::read_to_string("/proc/self/stat").ok()?;
    // The name in brackets may hold anything; behind it user and system are the 12th and 13th.
    let own: Vec<&str> = own.rsplit_once(')')?.1.split_whitespace().collect();
    let own: i64 = own.get(11..13)?.iter().flat_map(|ticks| ticks.parse::<i64>()).sum();
    Some(busy - own)
}
