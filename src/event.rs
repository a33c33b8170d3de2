//! What happened, for whoever wants to know: bounded per subscriber, in order, with no silent gap.
//!
//! Ground rules
//! - Events of one worker are published in the order of its transitions: whoever makes a transition publishes it before
//!   letting go of the worker's lock. Beats that change no state publish nothing.
//! - Publishers take one lock among themselves, so that all subscribers see one order. A subscriber never takes it: it reads
//!   from a channel of its own, and can stall nobody. With no subscriber, publishing is one load.
//! - A full channel loses the newest events. Their number stands where they would have stood ([`Lagged`]).

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crossbeam::channel::{Receiver, Sender, TryRecvError, TrySendError, bounded};

use crate::clock;
use crate::hello::Wid;
use crate::lease::{LeaseEnd, LeaseInfo};
use crate::policy::Overdue;
use crate::state::{EndReason, Incarnation, WorkerState};
use crate::sync::lock;
use crate::worker::WorkerInfo;

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
    /// Leases were lost: one that ran out, or all that ended with their holder.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lagged(pub u64);

impl fmt::Display for Lagged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} events were missed here: the subscriber was too slow", self.0)
    }
}

impl std::error::Error for Lagged {}

/// What a subscriber reads: an event, or how many are missing here.
pub type Item = Result<Event, Lagged>;

/// A stream of [`Event`]s, from [`Registry::subscribe`](crate::Registry::subscribe). Dropped, it ends the subscription.
///
/// As an iterator it blocks for the next event and ends with the registry.
#[derive(Debug)]
pub struct Subscriber {
    events: Receiver<Slot>,
    missed: Arc<Missed>,
}

/// What goes through the channel.
#[derive(Debug)]
enum Slot {
    Event(Event),
    /// So many events of the whole stream were missed before this place.
    Missed(u64),
}

/// How many events of the whole stream were missed, and how many of those the subscriber knows of. Both only grow.
#[derive(Debug, Default)]
struct Missed {
    total: AtomicU64,
    told: AtomicU64,
}

impl Missed {
    /// The subscriber has come to where `total` events are missing: those it did not know of.
    fn tell(&self, total: u64) -> Option<Item> {
        // Release: pairs with the Acquire of `Outlet::send`, which sends no mark for what was told.
        let known = self.told.fetch_max(total, Ordering::Release);
        (total > known).then(|| Err(Lagged(total - known)))
    }
}

impl Subscriber {
    /// The next event if there is one now.
    #[must_use]
    pub fn try_recv(&self) -> Option<Item> {
        loop {
            // Before the channel is looked at: what was missed until here was missed when all that came before it was sent, so if
            // the channel is empty then, this is its place. Acquire: pairs with the Release of `Outlet::miss`, makes the events
            // sent before visible.
            let total = self.missed.total.load(Ordering::Acquire);
            match self.events.try_recv() {
                Ok(slot) => {
                    if let Some(item) = self.item(slot) {
                        return Some(item);
                    }
                }
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => return self.missed.tell(total),
            }
        }
    }

    /// The next event, waiting up to `timeout` for it; `None` when the time is over or the registry is gone.
    #[must_use]
    pub fn recv_timeout(&self, timeout: Duration) -> Option<Item> {
        let deadline = clock::now().checked_add(timeout);
        loop {
            if let Some(item) = self.try_recv() {
                return Some(item);
            }
            let waited = match deadline {
                Some(deadline) => self.events.recv_deadline(deadline).ok(),
                None => self.events.recv().ok(),
            };
            let Some(slot) = waited else { return self.try_recv() };
            if let Some(item) = self.item(slot) {
                return Some(item);
            }
        }
    }

    /// `None` for the mark of what was told already, when the channel was empty.
    fn item(&self, slot: Slot) -> Option<Item> {
        match slot {
            Slot::Event(event) => Some(Ok(event)),
            Slot::Missed(total) => self.missed.tell(total),
        }
    }
}

impl Iterator for Subscriber {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        loop {
            if let Some(item) = self.try_recv() {
                return Some(item);
            }
            // A channel behind which something was missed is full, so an empty one has nothing to wait for but a new event.
            let Ok(slot) = self.events.recv() else { return self.try_recv() };
            if let Some(item) = self.item(slot) {
                return Some(item);
            }
        }
    }
}

#[derive(Debug)]
struct Outlet {
    events: Sender<Slot>,
    missed: Arc<Missed>,
    /// How many of the missed ones have their mark in the channel.
    marked: u64,
}

impl Outlet {
    /// Sends the event, or counts it as missed. `false` when nobody listens any more.
    fn send(&mut self, event: &Event) -> bool {
        // Relaxed: only written here, and publishers exclude each other by the lock of `Bus`.
        let total = self.missed.total.load(Ordering::Relaxed);
        // Acquire: pairs with the Release of `Missed::tell`.
        if total > self.marked.max(self.missed.told.load(Ordering::Acquire)) {
            match self.events.try_send(Slot::Missed(total)) {
                Ok(()) => self.marked = total,
                Err(TrySendError::Full(_)) => return self.miss(total),
                Err(TrySendError::Disconnected(_)) => return false,
            }
        }
        match self.events.try_send(Slot::Event(event.clone())) {
            Ok(()) => true,
            Err(TrySendError::Full(_)) => self.miss(total),
            Err(TrySendError::Disconnected(_)) => false,
        }
    }

    fn miss(&self, total: u64) -> bool {
        // Release: pairs with the Acquire of `Subscriber::try_recv`; whoever counts this one has what was sent before it.
        self.missed.total.store(total + 1, Ordering::Release);
        true
    }
}

/// The publishing side.
#[derive(Debug, Default)]
pub(crate) struct Bus {
    outlets: Mutex<Vec<Outlet>>,
    /// How many outlets there are, to be read without the lock.
    count: AtomicUsize,
}

impl Bus {
    pub(crate) fn subscribe(&self, capacity: usize) -> Subscriber {
        let (sender, events) = bounded(capacity.max(1));
        let missed = Arc::new(Missed::default());
        let mut outlets = lock(&self.outlets);
        outlets.push(Outlet { events: sender, missed: missed.clone(), marked: 0 });
        // Release: pairs with the Acquire of `publish`.
        self.count.store(outlets.len(), Ordering::Release);
        // SeqCst: pairs with the fence of `publish`. Either a publisher sees this subscriber, or whoever subscribed sees the
        // transition in all that it reads from now on, such as a snapshot: there is no gap between the two.
        fence(Ordering::SeqCst);
        Subscriber { events, missed }
    }

    /// Publishes what `event` makes, which is not called if nobody listens.
    pub(crate) fn publish(&self, event: impl FnOnce() -> Event) {
        // SeqCst: pairs with the fence of `subscribe`; the transition was made before this.
        fence(Ordering::SeqCst);
        // Acquire: pairs with the Release of `subscribe`; a transition made after a subscription began is seen by it.
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let event = event();
        let mut outlets = lock(&self.outlets);
        outlets.retain_mut(|outlet| outlet.send(&event));
        // Release: as in `subscribe`.
        self.count.store(outlets.len(), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gap(n: u64) -> Event {
        Event::Gap(Duration::from_secs(n))
    }

    fn read(subscriber: &Subscriber) -> Option<Result<u64, u64>> {
        subscriber.try_recv().map(|item| match item {
            Ok(Event::Gap(gap)) => Ok(gap.as_secs()),
            Ok(other) => panic!("{other:?}"),
            Err(Lagged(n)) => Err(n),
        })
    }

    #[test]
    fn what_is_missing_is_counted_where_it_is_missing() {
        let bus = Bus::default();
        let subscriber = bus.subscribe(2);
        for n in 0..5 {
            bus.publish(|| gap(n));
        }
        assert_eq!(read(&subscriber), Some(Ok(0)));
        bus.publish(|| gap(5));
        // One place was free: it went to the mark, and the event was missed behind it.
        assert_eq!(read(&subscriber), Some(Ok(1)));
        assert_eq!(read(&subscriber), Some(Err(3)));
        assert_eq!(read(&subscriber), Some(Err(1)));
        assert_eq!(read(&subscriber), None);
        bus.publish(|| gap(6));
        assert_eq!(read(&subscriber), Some(Ok(6)));
        assert_eq!(read(&subscriber), None);
    }

    #[test]
    fn what_was_missed_last_is_told_without_a_further_event() {
        let bus = Bus::default();
        let subscriber = bus.subscribe(1);
        bus.publish(|| gap(0));
        bus.publish(|| gap(1));
        assert_eq!(read(&subscriber), Some(Ok(0)));
        assert_eq!(read(&subscriber), Some(Err(1)));
    }

    #[test]
    fn nothing_is_made_for_nobody() {
        let bus = Bus::default();
        bus.publish(|| unreachable!("nobody listens"));
        let subscriber = bus.subscribe(1);
        drop(subscriber);
        bus.publish(|| gap(0));
        bus.publish(|| unreachable!("nobody listens any more"));
    }

    #[test]
    fn every_event_is_read_or_counted_under_concurrency() {
        let bus = Arc::new(Bus::default());
        let subscriber = bus.subscribe(8);
        let total = 4 * 5_000;
        let publishers: Vec<_> = (0..4)
            .map(|_| {
                let bus = bus.clone();
                std::thread::spawn(move || {
                    for n in 0..5_000 {
                        bus.publish(|| gap(n));
                    }
                })
            })
            .collect();
        let mut seen = 0;
        while let Some(item) = subscriber.recv_timeout(Duration::from_millis(200)) {
            seen += item.map_or_else(|Lagged(missed)| missed, |_| 1);
        }
        publishers.into_iter().for_each(|publisher| publisher.join().unwrap());
        assert_eq!(seen, total);
    }
}
