//! A worker's connection: the handle by which it beats, hears what it is told, and leaves.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use crate::clock;
use crate::engine::Engine;
use crate::error::{Gone, LeaseError, TtlError};
use crate::hello::{Beat, Wid};
use crate::lease::Lease;
use crate::plot::Place;
use crate::policy::Recover;
use crate::state::{Incarnation, WorkerState};
use crate::sync::lock;
use crate::worker::Worker;

/// One connection of one incarnation, from [`Registry::connect`](crate::Registry::connect). Dropped, it is closed; the
/// last one dropped ends the incarnation as [`Left`](crate::EndReason::Left).
///
/// After the end every call answers [`Gone`], and touches no successor (G5).
///
/// ```
/// use heartwheel::{Beat, Hello, Policy, Registry, WorkerState};
/// let registry = Registry::new(Policy::default())?;
/// let session = registry.connect(Hello::new("w1")?, |_| {})?;
/// assert_eq!(session.beat(&Beat::default().rss_kb(54_176))?, WorkerState::Running);
/// registry.signal("w1", WorkerState::Quiet)?;
/// assert_eq!(session.beat(&Beat::default())?, WorkerState::Quiet);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a session that is dropped closes its connection"]
pub struct Session {
    engine: Arc<Engine>,
    worker: Arc<Worker>,
    /// The worker's line, at hand.
    line: Place,
    id: usize,
}

impl Session {
    pub(crate) fn new(engine: Arc<Engine>, worker: Arc<Worker>, id: usize) -> Self {
        Session { engine, line: worker.place(), worker, id }
    }

    /// A heartbeat. Returns what the worker has been told.
    ///
    /// If this returns `Ok`, the worker is not reaped before a ttl has passed (G2). It takes no lock, allocates nothing and
    /// waits for nobody (G7), unless the beat itself says a stronger state than the worker had.
    ///
    /// # Errors
    /// [`Gone`] after the end of the incarnation; nothing was changed.
    #[inline]
    pub fn beat(&self, beat: &Beat) -> Result<WorkerState, Gone> {
        self.engine.beat(&self.line, &self.worker, beat).map_err(|_| Gone)
    }

    /// What the worker has been told; not a beat.
    ///
    /// # Errors
    /// [`Gone`] after the end of the incarnation.
    pub fn state(&self) -> Result<WorkerState, Gone> {
        let word = self.line.vitals.load();
        if word.is_live() { Ok(word.state()) } else { Err(Gone) }
    }

    /// Waits until the worker has been told something other than `known`, or has ended. Cancel-safe; needs no particular
    /// runtime.
    ///
    /// One wait at a time for each session, this or [`wait_for_change`](Session::wait_for_change): a second one takes the place of
    /// the first.
    pub fn changed(&self, known: WorkerState) -> Changed<'_> {
        Changed { session: self, known }
    }

    /// Blocks the thread until the worker has been told something other than `known`, or has ended, for up to `timeout`. `None`
    /// when the time is over and nothing has changed. Not a beat: a worker that only waits is reaped.
    ///
    /// For threads; tasks have [`changed`](Session::changed). One wait at a time for each session, of either sort: a second one takes
    /// the place of the first, which notices what changed when its own time is over, and not before.
    ///
    /// # Errors
    /// [`Gone`] after the end of the incarnation.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use heartwheel::{Beat, Hello, Policy, Registry, WorkerState};
    /// let registry = Registry::new(Policy::default())?;
    /// let session = registry.connect(Hello::new("w1")?, |_| {})?;
    /// let mut told = session.beat(&Beat::default())?;
    /// # let registry = registry.clone();
    /// # std::thread::spawn(move || registry.signal("w1", WorkerState::Quiet));
    /// while told == WorkerState::Running {
    ///     match session.wait_for_change(told, Duration::from_secs(15))? {
    ///         Some(state) => told = state,
    ///         None => told = session.beat(&Beat::default())?,
    ///     }
    /// }
    /// assert_eq!(told, WorkerState::Quiet);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait_for_change(
        &self,
        known: WorkerState,
        timeout: Duration,
    ) -> Result<Option<WorkerState>, Gone> {
        let look = || match self.state() {
            Ok(state) if state == known => Ok(None),
            told => told.map(Some),
        };
        if timeout.is_zero() {
            return look();
        }
        let deadline = clock::now().checked_add(timeout);
        let sleeper = Arc::new(Sleeper { thread: thread::current(), woken: AtomicBool::new(false) });
        let waker = Waker::from(sleeper.clone());
        let mut changed = self.changed(known);
        loop {
            if let Poll::Ready(told) = Pin::new(&mut changed).poll(&mut Context::from_waker(&waker)) {
                return told.map(Some);
            }
            if !sleeper.sleep(deadline) {
                self.wait_no_longer(&waker);
                return look();
            }
        }
    }

    /// Takes back what a wait left behind, unless another wait has taken its place.
    fn wait_no_longer(&self, waker: &Waker) {
        let mut cold = lock(&self.worker.cold);
        let left = cold.wait(self.id, Waker::noop().clone());
        let left = match left {
            Ok(Some(other)) if !other.will_wake(waker) => cold.wait(self.id, other),
            left => left,
        };
        drop(cold);
        // A waker is user code when it is dropped: here, where nothing is held.
        drop(left);
    }

    /// Whether this worker is to be given work now: it lives, was told nothing, and is not cordoned.
    #[must_use]
    pub fn takes_work(&self) -> bool {
        self.line.vitals.load().takes_work()
    }

    /// Leases the work item `id` to this worker for `ttl`, with what the policy says of its end ([`Policy::recover`](crate::Policy::recover)).
    ///
    /// # Errors
    /// [`LeaseError`]: the worker has ended, or takes no work; the item is held; `ttl` or `id` is out of range. Nothing was changed.
    pub fn lease(&self, id: &str, ttl: Duration) -> Result<Lease, LeaseError> {
        let policy = self.engine.policy.load();
        self.engine.lease(&self.worker, id, ttl, policy.recover, &policy)
    }

    /// As [`lease`](Session::lease), with what becomes of it when this worker ends.
    ///
    /// # Errors
    /// As [`lease`](Session::lease).
    pub fn lease_with(&self, id: &str, ttl: Duration, recover: Recover) -> Result<Lease, LeaseError> {
        self.engine.lease(&self.worker, id, ttl, recover, &self.engine.policy.load())
    }

    /// The lease on `id` if this worker holds it, whichever of its connections it was granted on.
    #[must_use]
    pub fn held(&self, id: &str) -> Option<Lease> {
        self.engine.held(&self.worker, id)
    }

    /// How long this worker may be silent from now on; `None` = as the policy says. A shorter ttl counts at once, from its last beat.
    ///
    /// # Errors
    /// [`TtlError`]; nothing was changed.
    pub fn set_ttl(&self, ttl: Option<Duration>) -> Result<(), TtlError> {
        let policy = self.engine.policy.load();
        if let Some(ttl) = ttl {
            policy.check_ttl(ttl).map_err(TtlError::OutOfRange)?;
        }
        self.state().map_err(|Gone| TtlError::Gone)?;
        self.engine.set_ttl(&self.worker, ttl.map_or(0, |ttl| policy.ticks(ttl)));
        Ok(())
    }

    /// The worker's id.
    #[must_use]
    pub fn wid(&self) -> &Wid {
        self.worker.hello.wid()
    }

    /// The life of the worker that this connection belongs to.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.worker.incarnation
    }

    /// Closes the connection; the same as dropping it.
    pub fn leave(self) {}
}

impl Drop for Session {
    fn drop(&mut self) {
        self.engine.leave(&self.worker, self.id);
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("wid", self.wid())
            .field("incarnation", &self.incarnation().get())
            .field("vitals", &self.worker.vitals)
            .finish_non_exhaustive()
    }
}

/// A thread that waits to be woken.
struct Sleeper {
    thread: Thread,
    /// Tells being woken from waking up for no reason.
    woken: AtomicBool,
}

impl Sleeper {
    /// Sleeps until woken, or until `deadline`: then `false`.
    fn sleep(&self, deadline: Option<Instant>) -> bool {
        // Acquire: pairs with the Release of `wake`; who is woken sees what it is woken for.
        while !self.woken.swap(false, Ordering::Acquire) {
            let Some(deadline) = deadline else {
                thread::park();
                continue;
            };
            let left = deadline.saturating_duration_since(clock::now());
            if left.is_zero() {
                return false;
            }
            thread::park_timeout(left);
        }
        true
    }
}

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        // Release: pairs with the Acquire of `sleep`.
        self.woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// The future of [`Session::changed`]: the new state, or [`Gone`].
#[derive(Debug)]
#[must_use = "a future does nothing unless it is awaited"]
pub struct Changed<'a> {
    session: &'a Session,
    known: WorkerState,
}

impl Changed<'_> {
    fn look(&self) -> Poll<Result<WorkerState, Gone>> {
        match self.session.state() {
            Ok(state) if state == self.known => Poll::Pending,
            told => Poll::Ready(told),
        }
    }
}

impl Future for Changed<'_> {
    type Output = Result<WorkerState, Gone>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let waker = context.waker().clone();
        // Whoever changes the state does it under this lock, and wakes whoever is registered then.
        let mut cold = lock(&self.session.worker.cold);
        let looked = self.look();
        if looked.is_pending() {
            let replaced = cold.wait(self.session.id, waker);
            drop(cold);
            if replaced.is_err() {
                return Poll::Ready(Err(Gone));
            }
        }
        looked
    }
}
