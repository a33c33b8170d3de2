//! The reading side of a subscription.
//!
//! Ground rules
//! - Whoever reads takes no lock of the engine's. All ways to read go through [`Subscriber::take`].
//! - "Empty" is said only when nothing was missed that the reader does not know of; so nobody goes to sleep before a
//!   [`Lagged`] that is still to be told.
//! - A reader that sleeps in the channel is woken by the channel. One that is a task leaves its waker in [`Link`], looks again,
//!   and is woken by the driver: the waker is user code, and whoever publishes holds locks (G11).

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, RecvTimeoutError, TryRecvError};

use super::filter::Predicate;
use super::{Event, Lagged};
use crate::clock;
use crate::registry::Registry;
use crate::snapshot::Snapshot;
use crate::sync::{AtomicU64, Mutex, Ordering, fence, lock};
use crate::worker::WorkerInfo;

/// A task that reads gives way to others after so many events that it did not want.
const SKIPPED_AT_ONCE: usize = 128;

/// What a subscriber reads: an event, or how many are missing here.
pub type Item = Result<Event, Lagged>;

/// What goes through the channel.
#[derive(Debug)]
pub(super) enum Slot {
    /// An event, and the worker as it was then if a predicate will ask and the event itself does not say.
    Event(Event, Option<Arc<WorkerInfo>>),
    /// So many events of the whole stream were missed before this place.
    Missed(u64),
}

/// What the two ends share beside the channel.
#[derive(Debug, Default)]
pub(super) struct Link {
    pub(super) missed: Missed,
    /// Whom to wake when there is something to read. Only the reader puts one here, so that only it or the driver drops one.
    pub(super) waker: Mutex<Option<Waker>>,
}

/// How many events of the whole stream were missed, and how many of those the subscriber knows of. Both only grow.
#[derive(Debug, Default)]
pub(super) struct Missed {
    pub(super) total: AtomicU64,
    pub(super) told: AtomicU64,
}

impl Missed {
    /// The subscriber has come to where `total` events are missing: those it did not know of.
    fn tell(&self, total: u64) -> Option<Item> {
        // Release: pairs with the Acquire of `Outlet::send`, which sends no mark for what was told.
        let known = self.told.fetch_max(total, Ordering::Release);
        (total > known).then(|| Err(Lagged(total - known)))
    }

    /// Something was missed that the subscriber does not know of.
    fn is_untold(&self) -> bool {
        // Relaxed: what `total` means is asked anew by whoever tells it, and `told` is written by the reader itself.
        self.total.load(Ordering::Relaxed) > self.told.load(Ordering::Relaxed)
    }
}

/// What one look into the channel brought.
enum Taken {
    Item(Item),
    /// Something that is not for the reader to see.
    Skipped,
    /// Nothing waits, and nothing is untold.
    Empty,
    /// Nothing waits, and nothing will come: the registry is gone.
    Closed,
}

/// A stream of [`Event`]s, from [`Registry::subscribe`](crate::Registry::subscribe). Dropped, it ends the subscription.
///
/// As an iterator it blocks for the next event and ends with the registry. For tasks there is [`poll_recv`](Subscriber::poll_recv), and
/// with the feature `stream` `into_stream`.
pub struct Subscriber {
    events: Receiver<Slot>,
    link: Arc<Link>,
    wanted: Option<Predicate>,
}

impl Subscriber {
    pub(super) fn new(events: Receiver<Slot>, link: Arc<Link>, wanted: Option<Predicate>) -> Self {
        Subscriber { events, link, wanted }
    }

    /// The next event if there is one now.
    #[must_use]
    pub fn try_recv(&self) -> Option<Item> {
        // What comes while unwanted events are skipped is left for the next call.
        for _ in 0..self.events.capacity().unwrap_or(0) + 2 {
            match self.take() {
                Taken::Item(item) => return Some(item),
                Taken::Skipped => {}
                Taken::Empty | Taken::Closed => return None,
            }
        }
        None
    }

    /// The next event, waiting up to `timeout` for it; `None` when the time is over or the registry is gone.
    #[must_use]
    pub fn recv_timeout(&self, timeout: Duration) -> Option<Item> {
        self.wait(clock::now().checked_add(timeout))
    }

    /// The next event, for a task: `Ready(None)` when the registry is gone, `Pending` when nothing waits. The task of the last
    /// call is woken when there is something to read, and may be woken when there is not. Cancel-safe; needs no particular runtime.
    ///
    /// Wakers are woken by the driver ([`Reaper`](crate::Reaper), or whoever calls [`Registry::reap`]), so that none of them can hold up
    /// those to whom things happen, or another subscriber. Beside a `Reaper` that is at once; in a loop of your own it is in the next pass.
    /// When a registry is dropped, whoever drops its last handle wakes them for the end.
    ///
    /// ```
    /// # use std::task::{Context, Poll, Waker};
    /// # use heartwheel::{Hello, Policy, Registry};
    /// let registry = Registry::new(Policy::default())?;
    /// let events = registry.subscribe(10);
    /// let mut task = Context::from_waker(Waker::noop());
    /// assert!(events.poll_recv(&mut task).is_pending());
    /// let _session = registry.connect(Hello::new("w1")?, |_| {})?;
    /// assert!(matches!(events.poll_recv(&mut task), Poll::Ready(Some(Ok(_)))));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn poll_recv(&self, context: &mut Context<'_>) -> Poll<Option<Item>> {
        let mut waits = false;
        for _ in 0..SKIPPED_AT_ONCE {
            match self.take() {
                Taken::Item(item) => return Poll::Ready(Some(item)),
                Taken::Closed => return Poll::Ready(None),
                Taken::Skipped => {}
                Taken::Empty if waits => return Poll::Pending,
                // Once more after that: whoever published before it saw no waker, and whoever publishes after it does.
                Taken::Empty => {
                    self.leave_waker(context.waker());
                    waits = true;
                }
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// After [`Lagged`], or whenever the stream is not worth catching up with: drops what waits, and takes a snapshot that has
    /// everything that was dropped or missed. From there on the stream goes on without a gap.
    ///
    /// `registry` is the one that was subscribed to. The snapshot is of all its workers, whatever was asked for. An event that
    /// the snapshot has already may still come after it; see [`Registry::watch`] for how to tell. Some of what it has may
    /// be counted in a [`Lagged`] that comes after it, never the other way round.
    ///
    /// ```
    /// # use heartwheel::{Hello, Lagged, Policy, Registry};
    /// let registry = Registry::new(Policy::default())?;
    /// let (_, events) = registry.watch(1);
    /// let sessions: Vec<_> =
    ///     ["w1", "w2", "w3"].into_iter().map(|wid| registry.connect(Hello::new(wid)?, |_| {})).collect::<Result<_, _>>()?;
    /// assert!(events.try_recv().is_some_and(|item| item.is_ok()));
    /// assert!(matches!(events.try_recv(), Some(Err(Lagged(2)))));
    /// assert_eq!(events.resync(&registry).workers().len(), 3);
    /// drop(sessions);
    /// assert!(events.try_recv().is_some_and(|item| item.is_ok()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn resync(&self, registry: &Registry) -> Arc<Snapshot> {
        // First this number, then what waits: what was missed until here was missed behind a channel that was full, so when all
        // that is in it now is dropped, the place of every one of them is passed. Acquire: pairs with the Release of `Outlet::miss`;
        // what was sent before is in the channel, and what was missed is in any snapshot taken from now on.
        let total = self.link.missed.total.load(Ordering::Acquire);
        for _ in 0..self.events.len() {
            match self.events.try_recv() {
                Ok(Slot::Missed(total)) => drop(self.link.missed.tell(total)),
                Ok(Slot::Event(..)) => {}
                Err(_) => break,
            }
        }
        let _ = self.link.missed.tell(total);
        registry.snapshot()
    }

    /// Waits for the next event, until `deadline`.
    fn wait(&self, deadline: Option<Instant>) -> Option<Item> {
        loop {
            match self.take() {
                Taken::Item(item) => return Some(item),
                Taken::Closed => return None,
                Taken::Skipped if deadline.is_some_and(|deadline| clock::now() >= deadline) => {
                    return self.try_recv();
                }
                Taken::Skipped => {}
                Taken::Empty => {
                    let waited = match deadline {
                        Some(deadline) => self.events.recv_deadline(deadline),
                        None => self.events.recv().map_err(|_| RecvTimeoutError::Disconnected),
                    };
                    match waited.map(|slot| self.item(slot)) {
                        Ok(Some(item)) => return Some(item),
                        Err(RecvTimeoutError::Timeout) => return self.try_recv(),
                        Ok(None) | Err(RecvTimeoutError::Disconnected) => {}
                    }
                }
            }
        }
    }

    /// One look into the channel.
    fn take(&self) -> Taken {
        let missed = &self.link.missed;
        // Before the channel is looked at: what was missed until here was missed when all that came before it was sent, so if
        // the channel is empty then, this is its place. Acquire: pairs with the Release of `Outlet::miss`, makes the events
        // sent before visible.
        let total = missed.total.load(Ordering::Acquire);
        match self.events.try_recv() {
            Ok(slot) => self.item(slot).map_or(Taken::Skipped, Taken::Item),
            Err(TryRecvError::Empty) => {
                if let Some(told) = missed.tell(total) {
                    return Taken::Item(told);
                }
                // SeqCst: pairs with the fence of `Outlet::miss`. Either this thread sees what that one misses now, or that one sees
                // that there is room again, and leaves a mark.
                fence(Ordering::SeqCst);
                if missed.is_untold() { Taken::Skipped } else { Taken::Empty }
            }
            Err(TryRecvError::Disconnected) => {
                // Acquire: pairs with the Release by which the channel was disconnected, after the last event was missed.
                fence(Ordering::Acquire);
                // Relaxed: nobody publishes any more; the fence orders it.
                missed.tell(missed.total.load(Ordering::Relaxed)).map_or(Taken::Closed, Taken::Item)
            }
        }
    }

    /// What the reader is to see of it. `None` for an event that is not wanted, and for the mark of what was told already.
    fn item(&self, slot: Slot) -> Option<Item> {
        match slot {
            Slot::Event(event, about) => {
                let wanted = match (&self.wanted, about.as_deref().or(event.worker())) {
                    (Some(wanted), Some(worker)) => wanted(worker),
                    _ => true,
                };
                wanted.then_some(Ok(event))
            }
            Slot::Missed(total) => self.link.missed.tell(total),
        }
    }

    fn leave_waker(&self, waker: &Waker) {
        if lock(&self.link.waker).as_ref().is_some_and(|left| left.will_wake(waker)) {
            return;
        }
        // Cloned before and dropped after the lock is held: both are user code.
        let waker = waker.clone();
        let replaced = lock(&self.link.waker).replace(waker);
        drop(replaced);
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        // Here and not with the outlet, which is dropped under the publishers' lock.
        let waker = lock(&self.link.waker).take();
        drop(waker);
    }
}

impl Iterator for Subscriber {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        self.wait(None)
    }
}

impl fmt::Debug for Subscriber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscriber")
            .field("waiting", &self.events.len())
            .field("missed", &self.link.missed)
            .finish_non_exhaustive()
    }
}
