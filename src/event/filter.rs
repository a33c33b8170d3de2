//! Which events a subscriber wants.
//!
//! Ground rules
//! - Kinds are a set of bits, looked at by the publisher: an event of another kind takes no place in the channel and is never
//!   counted as missed.
//! - The predicate is user code: it is called where the subscriber reads, on its thread, with nothing locked. So what it rejects takes
//!   a place until it is read, and may be among what is counted as missed. The count is never too low.
//! - The predicate is given the worker as it was when the event happened, not as it is when the event is read.

use std::fmt;
use std::sync::Arc;

use super::EventKind;
use crate::worker::WorkerInfo;

/// What a predicate on workers is.
pub(super) type Predicate = Arc<dyn Fn(&WorkerInfo) -> bool + Send + Sync>;

/// A set of [`EventKind`]s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kinds(u32);

impl Kinds {
    const ALL: Kinds = Kinds(u32::MAX);

    pub(super) fn contains(self, kind: EventKind) -> bool {
        self.0 & bit(kind) != 0
    }
}

/// Every kind has a bit.
const _: () = assert!(EventKind::ALL.len() <= u32::BITS as usize);

fn bit(kind: EventKind) -> u32 {
    1 << kind as u32
}

/// Which events a subscriber wants, for [`Registry::subscribe_to`](crate::Registry::subscribe_to). The default is all of them; every call
/// narrows it.
///
/// ```
/// use heartwheel::{EventKind, Filter, Hello, Policy, Registry, WorkerState};
/// let registry = Registry::new(Policy::default())?;
/// let filter = Filter::default()
///     .kinds([EventKind::Joined, EventKind::Told])
///     .workers(|worker| worker.labels().any(|label| label == "blue"));
/// let events = registry.subscribe_to(filter, 100);
///
/// let blue = registry.connect(Hello::new("w1")?.label("blue"), |_| {})?;
/// let red = registry.connect(Hello::new("w2")?.label("red"), |_| {})?;
/// registry.signal_all(WorkerState::Quiet);
/// drop((blue, red));
///
/// let seen: Vec<_> = std::iter::from_fn(|| events.try_recv()).flatten().collect();
/// assert!(seen.iter().all(|event| event.wid().is_some_and(|wid| wid.as_str() == "w1")));
/// assert_eq!(seen.iter().map(|event| event.kind()).collect::<Vec<_>>(), [EventKind::Joined, EventKind::Told]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
#[must_use]
pub struct Filter {
    pub(super) kinds: Kinds,
    pub(super) workers: Option<Predicate>,
}

impl Filter {
    /// Only events of these kinds. The others cost the subscriber nothing: they take no place in its channel, and are not
    /// counted in [`Lagged`](crate::Lagged).
    pub fn kinds(mut self, kinds: impl IntoIterator<Item = EventKind>) -> Self {
        self.kinds.0 &= kinds.into_iter().fold(0, |set, kind| set | bit(kind));
        self
    }

    /// Only events about workers for which `wanted` holds. Events about no worker are not touched by it: leave them out by kind.
    ///
    /// `wanted` is called where the subscriber reads, with nothing locked; a panic in it is the reader's, and costs the event that was
    /// asked about. It sees the worker as it was right after what happened; a worker that ended, as it was at its end.
    ///
    /// Ask what a worker said in its HELLO if a worker's events must all come or none. By its state or age some may come and others
    /// not: its end might never be heard of.
    pub fn workers(mut self, wanted: impl Fn(&WorkerInfo) -> bool + Send + Sync + 'static) -> Self {
        self.workers = Some(match self.workers.take() {
            Some(before) => Arc::new(move |worker| before(worker) && wanted(worker)),
            None => Arc::new(wanted),
        });
        self
    }
}

impl Default for Filter {
    /// Every event, also of kinds that are still to come.
    fn default() -> Self {
        Filter { kinds: Kinds::ALL, workers: None }
    }
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds: Vec<_> = EventKind::ALL.iter().filter(|&&kind| self.kinds.contains(kind)).collect();
        f.debug_struct("Filter")
            .field("kinds", &kinds)
            .field("workers", &self.workers.as_ref().map_or("all", |_| "some"))
            .finish()
    }
}
