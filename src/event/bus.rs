//! The publishing side: one outlet for each subscriber.
//!
//! Ground rules
//! - Publishing happens under the lock of a worker, at times under that of the driver. So nothing here calls user code: a waker is
//!   noticed, left where it is, and taken by the driver, which is called ([`Bus::wakers`]).
//! - A subscriber that is gone leaves an outlet behind, which goes with the next event or the next subscription.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Waker;

use crossbeam::channel::{Sender, TrySendError, bounded};

use super::filter::{Filter, Kinds};
use super::subscriber::{Link, Slot, Subscriber};
use super::{Event, EventKind};
use crate::sync::{AtomicBool, AtomicUsize, Mutex, Ordering, fence, lock};
use crate::worker::WorkerInfo;

#[derive(Debug)]
struct Outlet {
    events: Sender<Slot>,
    link: Arc<Link>,
    /// How many of the missed ones have their mark in the channel.
    marked: u64,
    kinds: Kinds,
    /// A predicate will ask about the worker.
    asks: bool,
    /// Something was sent or missed since the driver last took the waker.
    due: bool,
}

impl Outlet {
    fn wants(&self, kind: EventKind) -> bool {
        self.kinds.contains(kind)
    }

    /// Somebody reads.
    fn is_read(&self) -> bool {
        Arc::strong_count(&self.link) > 1
    }

    /// Sends the event, or counts it as missed. `false` when nobody listens any more.
    fn send(&mut self, event: &Event, about: Option<Arc<WorkerInfo>>) -> bool {
        let missed = &self.link.missed;
        // Relaxed: only written here, and publishers exclude each other by the lock of `Bus`.
        let total = missed.total.load(Ordering::Relaxed);
        // Acquire: pairs with the Release of `Missed::tell`.
        if total > self.marked.max(missed.told.load(Ordering::Acquire)) {
            match self.events.try_send(Slot::Missed(total)) {
                Ok(()) => self.marked = total,
                Err(TrySendError::Full(_)) => return self.miss(total + 1),
                Err(TrySendError::Disconnected(_)) => return false,
            }
        }
        match self.events.try_send(Slot::Event(event.clone(), about)) {
            Ok(()) => true,
            Err(TrySendError::Full(_)) => self.miss(total + 1),
            Err(TrySendError::Disconnected(_)) => false,
        }
    }

    /// One more was missed, which makes `total`.
    fn miss(&mut self, total: u64) -> bool {
        // Release: pairs with the Acquire of `Subscriber::take`; whoever counts this one has what was sent before it.
        self.link.missed.total.store(total, Ordering::Release);
        // SeqCst: pairs with the fence of `Subscriber::take`. A reader that emptied the channel meanwhile may have looked at the
        // number before it grew, and wait for an event by now: it is sent the mark.
        fence(Ordering::SeqCst);
        match self.events.try_send(Slot::Missed(total)) {
            Ok(()) => {
                self.marked = total;
                true
            }
            Err(TrySendError::Full(_)) => true,
            Err(TrySendError::Disconnected(_)) => false,
        }
    }

    /// After something was sent or missed: whether the driver has to be called.
    fn call(&mut self) -> bool {
        if !self.due {
            self.due = lock(&self.link.waker).is_some();
            return self.due;
        }
        false
    }
}

/// The publishing side.
#[derive(Debug)]
pub(crate) struct Bus {
    outlets: Mutex<Vec<Outlet>>,
    /// How many outlets there are, to be read without the lock.
    count: AtomicUsize,
    /// The driver has wakers to take.
    due: AtomicBool,
    /// Calls the driver.
    driver: Sender<()>,
}

impl Bus {
    /// `driver` is what calls whoever will ask for [`Bus::wakers`]; one call that is under way is enough.
    pub(crate) fn new(driver: Sender<()>) -> Self {
        Bus { outlets: Mutex::default(), count: AtomicUsize::new(0), due: AtomicBool::new(false), driver }
    }

    pub(crate) fn subscribe(&self, filter: Filter, capacity: usize) -> Subscriber {
        let Filter { kinds, workers } = filter;
        let (sender, events) = bounded(capacity.max(1));
        let link = Arc::new(Link::default());
        let outlet = Outlet {
            events: sender,
            link: link.clone(),
            marked: 0,
            kinds,
            asks: workers.is_some(),
            due: false,
        };
        let mut outlets = lock(&self.outlets);
        outlets.retain(Outlet::is_read);
        outlets.push(outlet);
        // Release: pairs with the Acquire of `publish`.
        self.count.store(outlets.len(), Ordering::Release);
        // SeqCst: pairs with the fence of `publish`. Either a publisher sees this subscriber, or whoever subscribed sees the
        // transition in all that it reads from now on, such as a snapshot: there is no gap between the two.
        fence(Ordering::SeqCst);
        Subscriber::new(events, link, workers)
    }

    /// Publishes what `event` makes, which is not called if nobody listens. For events of the engine, and for those that bring the
    /// whole worker; others are published with [`publish_about`](Bus::publish_about).
    pub(crate) fn publish(&self, event: impl FnOnce() -> Event) {
        self.send(event, None::<fn() -> WorkerInfo>);
    }

    /// Publishes what `event` makes, which happened to the worker that `about` describes, right after it happened. Neither is called
    /// if nobody wants it.
    pub(crate) fn publish_about(&self, event: impl FnOnce() -> Event, about: impl FnOnce() -> WorkerInfo) {
        self.send(event, Some(about));
    }

    fn send(&self, event: impl FnOnce() -> Event, mut about: Option<impl FnOnce() -> WorkerInfo>) {
        // SeqCst: pairs with the fence of `subscribe`; the transition was made before this.
        fence(Ordering::SeqCst);
        // Acquire: pairs with the Release of `subscribe`; a transition made after a subscription began is seen by it.
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let event = event();
        debug_assert!(
            about.is_some() || event.wid().is_none() || event.worker().is_some(),
            "no predicate could be asked about {event:?}: it is to be published with `publish_about`"
        );
        let kind = event.kind();
        let mut described = None;
        let mut call = false;
        let mut outlets = lock(&self.outlets);
        outlets.retain_mut(|outlet| {
            if !outlet.wants(kind) {
                return outlet.is_read();
            }
            if outlet.asks
                && let Some(about) = about.take()
            {
                described = Some(Arc::new(about()));
            }
            let is_read = outlet.send(&event, described.clone().filter(|_| outlet.asks));
            call |= is_read && outlet.call();
            is_read
        });
        // Release: as in `subscribe`.
        self.count.store(outlets.len(), Ordering::Release);
        drop(outlets);
        // SeqCst: pairs with the load of `wakers`. If the driver has not taken an earlier call yet, it comes to that load after
        // this; if it has, this call reaches it. Whoever set it before calls for this one, too.
        if call && !self.due.swap(true, Ordering::SeqCst) {
            let _ = self.driver.try_send(());
        }
    }

    #[cfg(test)]
    pub(super) fn outlets(&self) -> usize {
        lock(&self.outlets).len()
    }

    /// The wakers of those who have something to read, to be woken with nothing locked.
    pub(crate) fn wakers(&self) -> Vec<Waker> {
        // SeqCst: pairs with the swap of `send`.
        if !self.due.load(Ordering::SeqCst) {
            return Vec::new();
        }
        // SeqCst: as above. Before the outlets are looked at: one that becomes due after that sets it again.
        self.due.swap(false, Ordering::SeqCst);
        let take = |outlet: &mut Outlet| {
            if std::mem::take(&mut outlet.due) { lock(&outlet.link.waker).take() } else { None }
        };
        lock(&self.outlets).iter_mut().filter_map(take).collect()
    }
}

impl Drop for Bus {
    fn drop(&mut self) {
        let outlets = std::mem::take(&mut *lock(&self.outlets));
        // First every stream ends, then those who wait are told: a waker that stalls keeps nobody from seeing the end.
        let links: Vec<_> = outlets.into_iter().map(|outlet| outlet.link).collect();
        for link in links {
            let waker = lock(&link.waker).take();
            if let Some(waker) = waker {
                let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::Lagged;
    use super::*;

    /// The reader emptied the channel after the publisher had found it full, looked at the number before it grew, and sleeps.
    #[test]
    fn what_is_missed_beside_an_empty_channel_leaves_a_mark_that_wakes() {
        let bus = Bus::new(bounded(1).0);
        let subscriber = bus.subscribe(Filter::default(), 1);
        let reader = std::thread::spawn(move || subscriber.recv_timeout(Duration::from_secs(20)));
        std::thread::sleep(Duration::from_millis(50));
        assert!(lock(&bus.outlets)[0].miss(1));
        let item = reader.join().unwrap();
        assert!(matches!(item, Some(Err(Lagged(1)))), "{item:?}");
        assert_eq!(lock(&bus.outlets)[0].marked, 1);
    }
}
