//! Sleeping until a queue has a job.

use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use super::store::{Names, State, lock, wake};

/// Sleeps until one of some queues has a job; made by [`JobStore::wait`](super::JobStore::wait).
///
/// A job that comes to a queue, however it comes, wakes one sleeper that can take it. The sleeper that has waited
/// longest is woken first and keeps its place when another fetch was quicker. A wake is never lost: a wait that is
/// dropped with its wake unused hands it on.
///
/// ```text
/// let job = store.wait(&queues).until(|| store.fetch(&queues, &session).transpose());
/// let job = tokio::time::timeout(Duration::from_secs(2), job).await.ok();
/// ```
#[must_use = "a wait does nothing until it is polled"]
pub struct Wait {
    state: Arc<Mutex<State>>,
    names: Names,
    /// The store does not know of it until it first has to sleep.
    id: Option<u64>,
}

impl Wait {
    pub(super) fn new(state: Arc<Mutex<State>>, names: Names) -> Self {
        Self { state, names, id: None }
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
        poll_fn(|cx| self.poll_ready(cx)).await;
    }

    /// `Ready` when one of the queues has a job that nobody else was woken for; the waker is left otherwise, in the same step, so
    /// that no job slips in between.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let waker = cx.waker().clone();
        let mut state = lock(&self.state);
        let id = *self.id.get_or_insert_with(|| state.next());
        let polled = state.lines.poll(id, &self.names, waker);
        drop(state);
        drop(polled.replaced);
        wake(polled.wake);
        if polled.ready { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            let (woken, _own) = lock(&self.state).lines.leave(id);
            wake(woken);
        }
    }
}

impl fmt::Debug for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wait").field("names", &self.names).field("id", &self.id).finish_non_exhaustive()
    }
}
