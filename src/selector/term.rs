//! One condition on a worker, and how it is written.
//!
//! Ground rules
//! - A condition on what a worker does not have (its resident memory was never said, it holds no lease that could be without
//!   progress) does not hold. So `a!=b` is `not a=b`, always, and holds for those.
//! - What is written is exact: nothing is rounded, in either direction.

use std::fmt;
use std::time::Duration;

use super::glob::Glob;
use crate::state::{Health, WorkerState};
use crate::worker::WorkerInfo;

/// How a number, a duration or a state compares with the one that is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Compare {
    /// `<`
    Less,
    /// `<=`
    AtMost,
    /// `=`
    Equal,
    /// `>=`
    AtLeast,
    /// `>`
    More,
}

impl Compare {
    pub(super) fn holds<T: Ord + Copy>(self, left: T, right: T) -> bool {
        match self {
            Compare::Less => left < right,
            Compare::AtMost => left <= right,
            Compare::Equal => left == right,
            Compare::AtLeast => left >= right,
            Compare::More => left > right,
        }
    }

    /// Its sign in the text form.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Compare::Less => "<",
            Compare::AtMost => "<=",
            Compare::Equal => "=",
            Compare::AtLeast => ">=",
            Compare::More => ">",
        }
    }
}

impl fmt::Display for Compare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Text {
    Wid,
    Host,
    Label,
    Version,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Span {
    Age,
    Up,
    Idle,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Term {
    All,
    Cordoned,
    Text(Text, Glob),
    State(Compare, WorkerState),
    Health(Health),
    Span(Span, Compare, Duration),
    /// In KiB.
    Rss(Compare, u64),
    Leases(Compare, u32),
}

/// What a condition can ask of a worker.
pub(super) trait Facts {
    fn wid(&self) -> &str;
    fn host(&self) -> &str;
    fn version(&self) -> &str;
    fn has_label(&self, glob: &Glob) -> bool;
    fn state(&self) -> WorkerState;
    fn health(&self) -> Health;
    fn age(&self) -> Duration;
    fn up(&self) -> Duration;
    fn idle(&self) -> Option<Duration>;
    fn rss_kb(&self) -> Option<u64>;
    fn leases(&self) -> u32;
    fn cordoned(&self) -> bool;
}

impl Facts for WorkerInfo {
    fn wid(&self) -> &str {
        self.wid().as_str()
    }

    fn host(&self) -> &str {
        self.hostname()
    }

    fn version(&self) -> &str {
        self.version()
    }

    fn has_label(&self, glob: &Glob) -> bool {
        self.labels().any(|label| glob.matches(label))
    }

    fn state(&self) -> WorkerState {
        self.state()
    }

    fn health(&self) -> Health {
        self.health()
    }

    fn age(&self) -> Duration {
        self.age()
    }

    fn up(&self) -> Duration {
        self.connected_for()
    }

    fn idle(&self) -> Option<Duration> {
        self.no_progress_for()
    }

    fn rss_kb(&self) -> Option<u64> {
        self.rss_kb()
    }

    fn leases(&self) -> u32 {
        self.leases()
    }

    fn cordoned(&self) -> bool {
        self.is_cordoned()
    }
}

impl Term {
    pub(super) fn matches(&self, worker: &impl Facts) -> bool {
        match self {
            Term::All => true,
            Term::Cordoned => worker.cordoned(),
            Term::Text(Text::Wid, glob) => glob.matches(worker.wid()),
            Term::Text(Text::Host, glob) => glob.matches(worker.host()),
            Term::Text(Text::Version, glob) => glob.matches(worker.version()),
            Term::Text(Text::Label, glob) => worker.has_label(glob),
            Term::State(compare, state) => compare.holds(worker.state(), *state),
            Term::Health(health) => worker.health() == *health,
            Term::Span(Span::Age, compare, span) => compare.holds(worker.age(), *span),
            Term::Span(Span::Up, compare, span) => compare.holds(worker.up(), *span),
            Term::Span(Span::Idle, compare, span) => {
                worker.idle().is_some_and(|idle| compare.holds(idle, *span))
            }
            Term::Rss(compare, kb) => worker.rss_kb().is_some_and(|rss_kb| compare.holds(rss_kb, *kb)),
            Term::Leases(compare, count) => compare.holds(worker.leases(), *count),
        }
    }
}

/// Units of durations with their nanoseconds, largest first.
pub(super) const SPANS: [(&str, u128); 7] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// Units of sizes with their KiB, largest first.
pub(super) const SIZES: [(&str, u128); 3] = [("G", 1_048_576), ("M", 1024), ("K", 1)];

/// A count of the smallest unit, in the largest unit that it is a whole number of; zero in `zero`.
fn in_units(f: &mut fmt::Formatter<'_>, count: u128, units: &[(&str, u128)], zero: &str) -> fmt::Result {
    if count == 0 {
        return write!(f, "0{zero}");
    }
    match units.iter().find(|(_, size)| count.is_multiple_of(*size)) {
        Some((unit, size)) => write!(f, "{}{unit}", count / size),
        // The smallest unit is one.
        None => write!(f, "{count}"),
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Term::All => f.write_str("all"),
            Term::Cordoned => f.write_str("cordoned"),
            Term::Text(Text::Wid, glob) => write!(f, "wid={glob}"),
            Term::Text(Text::Host, glob) => write!(f, "host={glob}"),
            Term::Text(Text::Label, glob) => write!(f, "label={glob}"),
            Term::Text(Text::Version, glob) => write!(f, "version={glob}"),
            Term::State(compare, state) => write!(f, "state{compare}{state}"),
            Term::Health(health) => write!(f, "health={health}"),
            Term::Span(span, compare, length) => {
                let name = match span {
                    Span::Age => "age",
                    Span::Up => "up",
                    Span::Idle => "idle",
                };
                write!(f, "{name}{compare}")?;
                in_units(f, length.as_nanos(), &SPANS, "s")
            }
            Term::Rss(compare, kb) => {
                write!(f, "rss{compare}")?;
                in_units(f, u128::from(*kb), &SIZES, "K")
            }
            Term::Leases(compare, count) => write!(f, "leases{compare}{count}"),
        }
    }
}
