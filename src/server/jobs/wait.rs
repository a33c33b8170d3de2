//! Sleeping until a queue has a job.

use std::fmt;
use std::future::poll_fn;
use std::task::{Context, Poll};

/// The part of a [`Wait`] that a store supplies.
///
/// `poll_ready` answers `Ready` when one of the queues has a job nobody else was woken for, and remembers the waker
/// otherwise, both in one step, so no job can slip in between. A value that answered `Ready` stands for one wake.
/// It must give that wake to another sleeper, if there is still a job to take, when it is asked again or dropped.
pub trait Readiness: Send + fmt::Debug {
    /// Is there something to take?
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()>;
}

/// Sleeps until one of some queues has a job; made by [`JobStore::wait`](super::JobStore::wait).
///
/// A job that comes to a queue, however it comes, wakes one sleeper that can take it. The sleeper that has waited
/// longest is woken first and keeps its place when another fetch was quicker. A wake is never lost: a wait that is
/// dropped with its wake unused hands it on.
///
/// ```text
/// let job = store.wait(&queues).until(|| store.fetch(&queues, holder, clock.now()));
/// let job = tokio::time::timeout(Duration::from_secs(2), job).await.ok();
/// ```
#[derive(Debug)]
#[must_use = "a wait does nothing until it is polled"]
pub struct Wait(Box<dyn Readiness>);

impl Wait {
    /// A wait on what a store supplies.
    pub fn new(readiness: impl Readiness + 'static) -> Self {
        Self(Box::new(readiness))
    }

    /// Tries, sleeps, and tries again until `attempt` gives something.
    ///
    /// `attempt` must fetch from the queues of this wait. To end for another reason (the worker was told to be quiet)
    /// it returns that reason as its value: a `None` while there is a job to take is tried again at once.
    ///
    /// Dropping the future is safe at any point: it never holds something that `attempt` gave. A future that was woken
    /// is polled or dropped soon, as any `select` or `timeout` does: the job it was woken for waits for it.
    pub async fn until<T>(mut self, mut attempt: impl FnMut() -> Option<T>) -> T {
        loop {
            if let Some(found) = attempt() {
                return found;
            }
            self.ready().await;
        }
    }

    /// Sleeps until there may be a job. Keep the wait across the fetch that follows, then drop it or sleep again; the
    /// wake counts as used up only then. Nothing slow belongs in between. [`until`](Self::until) does it right.
    pub async fn ready(&mut self) {
        poll_fn(|cx| self.0.poll_ready(cx)).await;
    }
}
