//! A subscription as the `Stream` that asynchronous code shares. All it does is in [`Subscriber::poll_recv`].
//!
//! A type of its own, because a [`Subscriber`] is an iterator: with both on one type, `next` and `map` would be ambiguous.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;

use super::{Item, Subscriber};

/// The events of a [`Subscriber`] as a [`Stream`], from [`Subscriber::into_stream`]. Ends with the registry; dropped, it ends the
/// subscription. See [`Subscriber::poll_recv`] for who wakes the task.
///
/// ```
/// # use std::pin::Pin;
/// # use std::task::{Context, Poll, Waker};
/// # use heartwheel::{Hello, Policy, Registry};
/// use futures_core::Stream;
/// let registry = Registry::new(Policy::default())?;
/// let mut events = registry.subscribe(10).into_stream();
/// let _session = registry.connect(Hello::new("w1")?, |_| {})?;
/// let mut task = Context::from_waker(Waker::noop());
/// assert!(matches!(Pin::new(&mut events).poll_next(&mut task), Poll::Ready(Some(Ok(_)))));
/// assert_eq!(events.get_ref().resync(&registry).workers().len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "a stream does nothing unless it is polled"]
pub struct EventStream(Subscriber);

impl EventStream {
    /// The subscription, to [`resync`](Subscriber::resync) it.
    #[must_use]
    pub fn get_ref(&self) -> &Subscriber {
        &self.0
    }

    /// The subscription, to be read in another way.
    #[must_use]
    pub fn into_inner(self) -> Subscriber {
        self.0
    }
}

impl Subscriber {
    /// As a [`Stream`], for asynchronous code.
    pub fn into_stream(self) -> EventStream {
        EventStream(self)
    }
}

impl From<Subscriber> for EventStream {
    fn from(subscriber: Subscriber) -> Self {
        EventStream(subscriber)
    }
}

impl Stream for EventStream {
    type Item = Item;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Item>> {
        self.0.poll_recv(context)
    }
}
