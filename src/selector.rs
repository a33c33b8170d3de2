//! Which workers are meant: a predicate over [`WorkerInfo`] with a text form for command lines, pages and programs alike.
//!
//! Ground rules
//! - A selector is flat: a program of conditions with the places where each goes on, and the shape it was built in. No call
//!   recurses over it, so none can overflow the stack, however it was built; matching allocates nothing and evaluates
//!   each condition at most once.
//! - Every way of building one keeps one canonical form: `and` of `and` is one, `not not` is nothing. Selectors that are
//!   written alike are equal.
//! - It reads what it is given and decides nothing by itself: no clock, no registry.

use std::ops::Not;
use std::str::FromStr;
use std::time::Duration;

use crate::hello::Wid;
use crate::state::{Health, WorkerState};
use crate::worker::WorkerInfo;

mod error;
mod glob;
mod parse;
mod render;
mod term;
#[cfg(test)]
mod tests;

pub use error::{SelectorError, SelectorFault};
use glob::Glob;
pub use term::Compare;
use term::{Facts, Span, Term, Text};

/// A predicate over [`WorkerInfo`]: which workers are meant.
///
/// ```
/// use heartwheel::{Selector, WorkerState};
/// let written: Selector = "label=blue and not state=quiet".parse()?;
/// let built = Selector::label("blue").and(!Selector::state(WorkerState::Quiet));
/// assert_eq!(written, built);
/// assert_eq!(built.to_string(), "label=blue and not state=quiet");
/// # Ok::<(), heartwheel::SelectorError>(())
/// ```
///
/// # The text form
///
/// ```text
/// selector  = and { "or" and }                  and binds tighter than or, not tighter than both
/// and       = not { "and" not }
/// not       = { "not" } ( "(" selector ")" | condition )
/// condition = "all" | "cordoned"
///           | ( "wid" | "host" | "label" | "version" ) ( "=" | "!=" ) text
///           | "state"                 compare  ( "running" | "quiet" | "terminate" )
///           | "health"            ( "=" | "!=" ) ( "live" | "late" )
///           | ( "age" | "up" | "idle" ) compare  duration
///           | "rss"                   compare  size
///           | "leases"                compare  number
/// compare   = "=" | "!=" | "<" | "<=" | ">" | ">="
/// text      = bare | '"' { character | escape } '"' | "'" { character | escape } "'"
/// duration  = number ( "d" | "h" | "m" | "s" | "ms" | "us" | "ns" )
/// size      = number ( "K" | "M" | "G" )
/// ```
///
/// | condition | holds for a worker |
/// |---|---|
/// | `all` | always |
/// | `wid=4qpc*`, `host=app-?`, `version=1.2` | whose text is that |
/// | `label=blue` | that has such a label |
/// | `state>=quiet` | told that; running < quiet < terminate |
/// | `health=late` | that looks like that |
/// | `age>30s` | silent for so long |
/// | `up>1d` | whose incarnation began so long ago |
/// | `idle>10m` | that holds a lease and made no progress for so long |
/// | `rss>=512M` | whose resident memory, as it last said, is that |
/// | `leases>0` | that holds so many leases |
/// | `cordoned` | that is cordoned |
///
/// - **Wildcards.** In a text `*` stands for any run of characters, also an empty one, and `?` for one character, in quotes as well. A
///   whole text is compared, never a part of it.
/// - **Bare or quoted.** A bare text ends at white space, at a control character, or at one of ``( ) " ' \ & | < > ! , ;``. In quotes everything
///   but control characters may stand, and `\` escapes: `\*`, `\?`, `\"`, `\'`, `\\`, `\n`, `\r`, `\t`, `\u{2028}`. The empty text is `""`.
/// - **Case.** Words of the language, and K, M and G, are read in either case. What a worker said is compared exactly, a hostname
///   too. Units of durations are lower case.
/// - **Units.** K, M and G are KiB, MiB and GiB (1024). Numbers are whole, and a unit is never left out.
/// - **What is not known.** A comparison with what a worker never said, or has not got, does not hold: `rss<1G` leaves out who never
///   said it. `a!=b` is short for `not a=b`, and so holds there.
/// - `==` is read as `=`. The empty text selects nothing by accident: it is an error.
///
/// [`Display`](std::fmt::Display) renders a selector to a text that parses to an equal one, as long as that is within
/// [`MAX_LEN`](Selector::MAX_LEN) and [`MAX_DEPTH`](Selector::MAX_DEPTH).
#[derive(Clone, PartialEq, Eq, Hash)]
#[must_use]
pub struct Selector {
    steps: Vec<Step>,
    /// How it was put together: each entry takes what it needs from the results before it.
    shape: Vec<Shape>,
}

/// A condition, and where to go on from it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Step {
    term: Term,
    holds: Next,
    fails: Next,
}

/// Always forward, so matching comes to an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Next {
    Step(usize),
    Match,
    NoMatch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Shape {
    /// The next condition.
    Term,
    Not,
    /// Of so many.
    And(usize),
    /// Of so many.
    Or(usize),
}

impl Selector {
    /// The longest text that is parsed, in bytes.
    pub const MAX_LEN: usize = 4096;
    /// How deep parentheses may stand within one another in a text that is parsed.
    pub const MAX_DEPTH: usize = 64;

    fn term(term: Term) -> Self {
        Selector {
            steps: vec![Step { term, holds: Next::Match, fails: Next::NoMatch }],
            shape: vec![Shape::Term],
        }
    }

    fn text(text: Text, glob: Glob) -> Self {
        Selector::term(Term::Text(text, glob))
    }

    /// Every worker.
    pub fn all() -> Self {
        Selector::term(Term::All)
    }

    /// The worker with this id, exactly.
    pub fn wid(wid: &str) -> Self {
        Selector::text(Text::Wid, Glob::exact(wid))
    }

    /// Workers whose id is like `pattern`: `*` is any run of characters, `?` one, and `\` has the next one stand for itself.
    pub fn wid_like(pattern: &str) -> Self {
        Selector::text(Text::Wid, Glob::pattern(pattern))
    }

    /// Workers that said this hostname, exactly.
    pub fn host(hostname: &str) -> Self {
        Selector::text(Text::Host, Glob::exact(hostname))
    }

    /// Workers whose hostname is like `pattern`; see [`wid_like`](Selector::wid_like).
    pub fn host_like(pattern: &str) -> Self {
        Selector::text(Text::Host, Glob::pattern(pattern))
    }

    /// Workers that have this label, exactly.
    pub fn label(label: &str) -> Self {
        Selector::text(Text::Label, Glob::exact(label))
    }

    /// Workers that have a label like `pattern`; see [`wid_like`](Selector::wid_like).
    pub fn label_like(pattern: &str) -> Self {
        Selector::text(Text::Label, Glob::pattern(pattern))
    }

    /// Workers that said this version, exactly.
    pub fn version(version: &str) -> Self {
        Selector::text(Text::Version, Glob::exact(version))
    }

    /// Workers whose version is like `pattern`; see [`wid_like`](Selector::wid_like).
    pub fn version_like(pattern: &str) -> Self {
        Selector::text(Text::Version, Glob::pattern(pattern))
    }

    /// Workers that have been told exactly `state`.
    pub fn state(state: WorkerState) -> Self {
        Selector::state_is(Compare::Equal, state)
    }

    /// Workers by what they have been told, in the order of [`WorkerState`].
    pub fn state_is(compare: Compare, state: WorkerState) -> Self {
        Selector::term(Term::State(compare, state))
    }

    /// Workers that look like `health`.
    pub fn health(health: Health) -> Self {
        Selector::term(Term::Health(health))
    }

    /// Workers by the time since their last beat ([`WorkerInfo::age`]).
    pub fn age(compare: Compare, age: Duration) -> Self {
        Selector::term(Term::Span(Span::Age, compare, age))
    }

    /// Workers by the time since their incarnation began ([`WorkerInfo::connected_for`]).
    pub fn up(compare: Compare, up: Duration) -> Self {
        Selector::term(Term::Span(Span::Up, compare, up))
    }

    /// Workers by the time without progress ([`WorkerInfo::no_progress_for`]); without a lease it does not hold.
    pub fn idle(compare: Compare, idle: Duration) -> Self {
        Selector::term(Term::Span(Span::Idle, compare, idle))
    }

    /// Workers by their resident memory in KiB, as they last said; where that was never said it does not hold.
    pub fn rss_kb(compare: Compare, rss_kb: u64) -> Self {
        Selector::term(Term::Rss(compare, rss_kb))
    }

    /// Workers by the number of leases they hold.
    pub fn leases(compare: Compare, leases: u32) -> Self {
        Selector::term(Term::Leases(compare, leases))
    }

    /// Workers that are cordoned.
    pub fn cordoned() -> Self {
        Selector::term(Term::Cordoned)
    }

    /// Workers that both select.
    pub fn and(self, other: Selector) -> Self {
        self.join(other, Next::Match, |shape| match shape {
            Shape::And(count) => Some(count),
            _ => None,
        })
        .shaped(Shape::And)
    }

    /// Workers that one of both selects, or both.
    pub fn or(self, other: Selector) -> Self {
        self.join(other, Next::NoMatch, |shape| match shape {
            Shape::Or(count) => Some(count),
            _ => None,
        })
        .shaped(Shape::Or)
    }

    /// Both, one after the other: where the first would end with `open`, the second goes on. `count` tells how many parts a
    /// shape of the kind to be made has; such parts are taken in one by one.
    fn join(mut self, other: Selector, open: Next, count: impl Fn(Shape) -> Option<usize>) -> Joined {
        let base = self.steps.len();
        for step in &mut self.steps {
            for next in [&mut step.holds, &mut step.fails] {
                if *next == open {
                    *next = Next::Step(base);
                }
            }
        }
        self.steps.extend(other.steps.into_iter().map(|step| Step {
            term: step.term,
            holds: step.holds.moved(base),
            fails: step.fails.moved(base),
        }));
        let mut parts = 0;
        let mut part = |mut shape: Vec<Shape>| {
            match shape.last().and_then(|last| count(*last)) {
                Some(count) => {
                    shape.pop();
                    parts += count;
                }
                None => parts += 1,
            }
            shape
        };
        let mut shape = part(self.shape);
        shape.extend(part(other.shape));
        Joined { steps: self.steps, shape, parts }
    }

    /// Whether it selects this worker, as it was when it was looked at. Allocates nothing.
    #[must_use]
    pub fn matches(&self, worker: &WorkerInfo) -> bool {
        self.holds(worker)
    }

    fn holds(&self, worker: &impl Facts) -> bool {
        let mut at = 0;
        // There is at least one step, and each goes on to a later one.
        while let Some(step) = self.steps.get(at) {
            match if step.term.matches(worker) { step.holds } else { step.fails } {
                Next::Step(next) => at = next,
                Next::Match => return true,
                Next::NoMatch => return false,
            }
        }
        false
    }
}

struct Joined {
    steps: Vec<Step>,
    shape: Vec<Shape>,
    parts: usize,
}

impl Joined {
    fn shaped(mut self, shape: fn(usize) -> Shape) -> Selector {
        self.shape.push(shape(self.parts));
        Selector { steps: self.steps, shape: self.shape }
    }
}

impl Next {
    fn moved(self, by: usize) -> Self {
        match self {
            Next::Step(at) => Next::Step(at + by),
            end => end,
        }
    }
}

/// Workers that it does not select.
impl Not for Selector {
    type Output = Selector;

    fn not(mut self) -> Selector {
        let turned = |next| match next {
            Next::Match => Next::NoMatch,
            Next::NoMatch => Next::Match,
            step @ Next::Step(_) => step,
        };
        for step in &mut self.steps {
            (step.holds, step.fails) = (turned(step.holds), turned(step.fails));
        }
        if self.shape.last() == Some(&Shape::Not) {
            self.shape.pop();
        } else {
            self.shape.push(Shape::Not);
        }
        self
    }
}

/// The worker with this id, exactly.
impl From<&Wid> for Selector {
    fn from(wid: &Wid) -> Self {
        Selector::wid(wid.as_str())
    }
}

impl FromStr for Selector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        parse::parse(text)
    }
}
