//! What happened, for whoever wants to know: bounded per subscriber, in order, with no silent gap.
//!
//! Ground rules
//! - Events of one worker are published in the order of its transitions: whoever makes a transition publishes it before
//!   letting go of the worker's lock. Beats that change no state publish nothing.
//! - Publishers take one lock among themselves, so that all subscribers see one order. A subscriber never takes it: it reads
//!   from a channel of its own, and can stall nobody. With no subscriber, publishing is one load.
//! - A full channel loses the newest events. Their number stands where they would have stood ([`Lagged`]).

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, TryRecvError, TrySendError, bounded};

use crate::hello::Wid;
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
    /// An incarnation ended; once each.
    Ended(Ended),
    /// The engine itself did not run for this long; every deadline moved by it.
    Gap(Duration),
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
    events: Receiver<Item>,
    missed: Arc<AtomicU64>,
}

impl Subscriber {
    /// The next event if there is one now.
    #[must_use]
    pub fn try_recv(&self) -> Option<Item> {
        match self.events.try_recv() {
            Ok(item) => Some(item),
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => self.lagged(),
        }
    }

    /// The next event, waiting up to `timeout` for it; `None` when the time is over or the registry is gone.
    #[must_use]
    pub fn recv_timeout(&self, timeout: Duration) -> Option<Item> {
        if let Some(item) = self.try_recv() {
            return Some(item);
        }
        match self.events.recv_timeout(timeout) {
            Ok(item) => Some(item),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => self.lagged(),
        }
    }

    /// The channel is empty: what was missed since, if anything, was missed here.
    fn lagged(&self) -> Option<Item> {
        // Relaxed: the number stands for itself. Either this side or a publisher takes it, and both report it before
        // any event that is sent later.
        match self.missed.swap(0, Ordering::Relaxed) {
            0 => None,
            missed => Some(Err(Lagged(missed))),
        }
    }
}

impl Iterator for Subscriber {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        // A channel with something missed is full, so an empty one has nothing to wait for but a new event.
        self.try_recv().or_else(|| self.events.recv().ok()).or_else(|| self.lagged())
    }
}

#[derive(Debug)]
struct Outlet {
    events: Sender<Item>,
    missed: Arc<AtomicU64>,
}

impl Outlet {
    /// Sends the event, or counts it as missed. `false` when nobody listens any more.
    fn send(&self, event: &Event) -> bool {
        // Relaxed: as in `Subscriber::lagged`; publishers exclude each other by the lock of `Bus`.
        let missed = self.missed.swap(0, Ordering::Relaxed);
        if missed > 0 {
            match self.events.try_send(Err(Lagged(missed))) {
                Ok(()) => {}
                Err(TrySendError::Full(_)) => return self.miss(missed + 1),
                Err(TrySendError::Disconnected(_)) => return false,
            }
        }
        match self.events.try_send(Ok(event.clone())) {
            Ok(()) => true,
            Err(TrySendError::Full(_)) => self.miss(1),
            Err(TrySendError::Disconnected(_)) => false,
        }
    }

    fn miss(&self, count: u64) -> bool {
        // Relaxed: as above.
        self.missed.fetch_add(count, Ordering::Relaxed);
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
        let missed = Arc::new(AtomicU64::new(0));
        let mut outlets = lock(&self.outlets);
        outlets.push(Outlet { events: sender, missed: missed.clone() });
        // Release: pairs with the Acquire of `publish`.
        self.count.store(outlets.len(), Ordering::Release);
        Subscriber { events, missed }
    }

    /// Publishes what `event` makes, which is not called if nobody listens.
    pub(crate) fn publish(&self, event: impl FnOnce() -> Event) {
        // Acquire: pairs with the Release of `subscribe`; a transition made after a subscription began is seen by it.
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let event = event();
        let mut outlets = lock(&self.outlets);
        outlets.retain(|outlet| outlet.send(&event));
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
