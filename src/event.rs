//! What happened, for whoever wants to know: bounded per subscriber, in order, with no silent gap.
//!
//! Ground rules
//! - Events of one worker are published in the order of its transitions: whoever makes a transition publishes it before
//!   letting go of the worker's lock. Beats that change no state publish nothing.
//! - Publishers take one lock among themselves, so that all subscribers see one order. A subscriber never takes it to read: it
//!   has a channel of its own, and can stall nobody. With no subscriber, publishing is one load.
//! - A full channel loses the newest events. Their number stands where they would have stood ([`Lagged`]).
//! - No user code runs on a publisher's thread (G11). Kinds are data, and sorted out there; a [`Filter`]'s predicate runs where the
//!   subscriber reads; the waker of a task that reads is woken by the driver.
//!
//! This file is the vocabulary. `bus` is the publishing side, `subscriber` the reading side, `filter` what is wanted of them, `text` how
//! they read in a log. A new variant of [`Event`] needs a line in the table of kinds and its arms in `wid`, `incarnation` and `text`; the
//! compiler asks for each.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::hello::Wid;
use crate::lease::{LeaseEnd, LeaseInfo};
use crate::policy::Overdue;
use crate::state::{EndReason, Incarnation, WorkerState};
use crate::worker::WorkerInfo;

mod bus;
mod filter;
#[cfg(feature = "stream")]
mod stream;
mod subscriber;
mod text;

pub(crate) use bus::Bus;
pub use filter::Filter;
#[cfg(feature = "stream")]
pub use stream::EventStream;
pub use subscriber::{Item, Subscriber};

/// Something that happened to a worker, or to the engine.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A new incarnation, with its first connection. Its state is not running if an earlier one's was remembered.
    Joined(WorkerInfo),
    /// A worker was told a state, or said itself that it is in it.
    Told {
        /// The worker.
        wid: Wid,
        /// Its incarnation.
        incarnation: Incarnation,
        /// The state from now on.
        state: WorkerState,
    },
    /// A worker has been silent for longer than [`Policy::late_after`](crate::Policy::late_after). Every `Late` is followed by a
    /// `Back` or by the end.
    Late(WorkerInfo),
    /// A worker that was late was heard again.
    Back {
        /// The worker.
        wid: Wid,
        /// Its incarnation.
        incarnation: Incarnation,
    },
    /// A worker is not to be given work, or is again.
    Cordoned {
        /// The worker.
        wid: Wid,
        /// Its incarnation.
        incarnation: Incarnation,
        /// Which of the two.
        cordoned: bool,
    },
    /// A worker has not done in time what it was told.
    Overdue(NotDone),
    /// Leases of one worker were lost: those that ran out at one time, or all that ended with their holder.
    Lost(Lost),
    /// An incarnation ended; once each.
    Ended(Ended),
    /// So many workers are silent at once that the rest of them is held ([`Brake`](crate::Brake)).
    MassSilence {
        /// Live workers when the window began.
        fleet: usize,
        /// How many of them expired in this window.
        expired: usize,
    },
    /// Silence is that of few again: workers expire as usual.
    SilenceOver {
        /// How many were held at the last look.
        held: usize,
    },
    /// The engine itself did not run for this long; every deadline moved by it.
    Gap(Duration),
}

impl Event {
    /// The worker it happened to; `None` if it happened to the engine.
    ///
    /// ```
    /// # use heartwheel::{EventKind, Hello, Policy, Registry};
    /// let registry = Registry::new(Policy::default())?;
    /// let events = registry.subscribe(10);
    /// let session = registry.connect(Hello::new("w1")?, |_| {})?;
    /// let event = events.try_recv().expect("a worker joined")?;
    /// assert_eq!(event.kind(), EventKind::Joined);
    /// assert_eq!(event.wid(), Some(session.wid()));
    /// assert_eq!(event.incarnation(), Some(session.incarnation()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn wid(&self) -> Option<&Wid> {
        match self {
            Event::Told { wid, .. }
            | Event::Back { wid, .. }
            | Event::Cordoned { wid, .. }
            | Event::Lost(Lost { wid, .. }) => Some(wid),
            other => other.worker().map(WorkerInfo::wid),
        }
    }

    /// The life of the worker it happened in; `None` if it happened to the engine.
    #[must_use]
    pub fn incarnation(&self) -> Option<Incarnation> {
        match self {
            Event::Told { incarnation, .. }
            | Event::Back { incarnation, .. }
            | Event::Cordoned { incarnation, .. }
            | Event::Lost(Lost { incarnation, .. }) => Some(*incarnation),
            other => other.worker().map(WorkerInfo::incarnation),
        }
    }

    /// The worker as it was then, where the event itself brings that.
    fn worker(&self) -> Option<&WorkerInfo> {
        match self {
            Event::Joined(worker)
            | Event::Late(worker)
            | Event::Overdue(NotDone { worker, .. })
            | Event::Ended(Ended { worker, .. }) => Some(worker),
            Event::Told { .. }
            | Event::Back { .. }
            | Event::Cordoned { .. }
            | Event::Lost(_)
            | Event::MassSilence { .. }
            | Event::SilenceOver { .. }
            | Event::Gap(_) => None,
        }
    }
}

/// Makes [`EventKind`] and [`Event::kind`] from one table.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $name:literal,)+) => {
        /// The kind of an [`Event`], to choose by ([`Filter::kinds`]) and to count by.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum EventKind {
            $($(#[$doc])* $kind,)+
        }

        impl EventKind {
            /// All kinds, in the order of their declaration.
            pub const ALL: &'static [EventKind] = &[$(EventKind::$kind),+];

            /// One lower-case word.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(EventKind::$kind => $name,)+
                }
            }
        }

        impl Event {
            /// Its kind.
            #[must_use]
            pub fn kind(&self) -> EventKind {
                match self {
                    $(Event::$kind { .. } => EventKind::$kind,)+
                }
            }
        }
    };
}

kinds! {
    /// [`Event::Joined`].
    Joined = "joined",
    /// [`Event::Told`].
    Told = "told",
    /// [`Event::Late`].
    Late = "late",
    /// [`Event::Back`].
    Back = "back",
    /// [`Event::Cordoned`].
    Cordoned = "cordoned",
    /// [`Event::Overdue`].
    Overdue = "overdue",
    /// [`Event::Lost`].
    Lost = "lost",
    /// [`Event::Ended`].
    Ended = "ended",
    /// [`Event::MassSilence`].
    MassSilence = "mass-silence",
    /// [`Event::SilenceOver`].
    SilenceOver = "silence-over",
    /// [`Event::Gap`].
    Gap = "gap",
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Leases that were lost, in an [`Event`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Lost {
    /// Who held them.
    pub wid: Wid,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// How they ended: [`Expired`](LeaseEnd::Expired) or [`HolderEnded`](LeaseEnd::HolderEnded).
    pub how: LeaseEnd,
    /// What was lost, in the order in which it was granted.
    pub leases: Arc<[LeaseInfo]>,
}

/// What a worker has not done in time, in an [`Event`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NotDone {
    /// The worker, as it is.
    pub worker: WorkerInfo,
    /// The leases that it still holds.
    pub held: Arc<[LeaseInfo]>,
    /// What follows.
    pub then: Overdue,
}

/// The end of an incarnation, in an [`Event`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Ended {
    /// The worker as it was at its end: state, age of the last beat, and the connections that were still open.
    pub worker: WorkerInfo,
    /// How it ended.
    pub reason: EndReason,
}

/// This many events did not fit into the subscriber's channel, and are missing at this place of the stream.
///
/// Exact, of the kinds that were asked for. With a predicate on the worker ([`Filter::workers`]) it is the most that may be
/// missing: nobody asked the predicate about what was never kept. [`Subscriber::resync`] goes on from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lagged(pub u64);

impl fmt::Display for Lagged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} events were missed here: the subscriber was too slow", self.0)
    }
}

impl std::error::Error for Lagged {}

#[cfg(test)]
mod tests;
