//! The registry: the face of the engine.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::driver::Pass;
use crate::engine::Engine;
use crate::error::{ConnectError, PolicyError, SignalError, UnknownWorker};
use crate::event::{Filter, Subscriber};
use crate::hello::{Beat, Hello, Wid};
use crate::lease::LeaseInfo;
use crate::policy::{Overdue, Policy};
use crate::selector::Selector;
use crate::session::Session;
use crate::snapshot::{Snapshot, Stats};
use crate::state::{EndReason, Incarnation, WorkerState};
use crate::sync::lock;
use crate::worker::{Worker, WorkerInfo};

/// The workers of one server. A handle: clones are the same registry.
///
/// It starts no thread and reads no clock. Something has to drive it: [`Reaper::spawn`](crate::Reaper::spawn), or your own loop that
/// calls [`reap`](Registry::reap).
#[derive(Clone)]
pub struct Registry {
    engine: Arc<Engine>,
}

impl Registry {
    /// An empty registry.
    ///
    /// # Errors
    /// A value of `policy` outside its range.
    pub fn new(policy: Policy) -> Result<Self, PolicyError> {
        Ok(Registry { engine: Arc::new(Engine::new(policy)?) })
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Adds a connection: to the live worker of that wid, or to a new incarnation. It counts as a beat.
    ///
    /// `closer` closes the connection from outside; it is run at most once, when the incarnation ends while this connection is open
    /// (see [`Pass::hangups`]), with nothing locked. It must not be needed for closing the connection from inside.
    ///
    /// A new incarnation begins running, or in the state that the same process was told before ([`Policy::remember`]).
    ///
    /// # Errors
    /// [`ConnectError`]; nothing was changed.
    pub fn connect(
        &self,
        hello: Hello,
        closer: impl FnOnce(EndReason) + Send + 'static,
    ) -> Result<Session, ConnectError> {
        let (worker, id) = self.engine.connect(hello, Box::new(closer))?;
        Ok(Session::new(self.engine.clone(), worker, id))
    }

    /// A heartbeat by wid, for callers that hold no [`Session`]: one look-up, and then as [`Session::beat`].
    ///
    /// # Errors
    /// [`UnknownWorker`]; nothing was changed.
    pub fn beat(&self, wid: &str, beat: &Beat) -> Result<WorkerState, UnknownWorker> {
        let engine = &self.engine;
        let worker = {
            let entry = engine.workers.get(wid).ok_or(UnknownWorker)?;
            let told = engine.heard(&entry.line, &entry.worker, beat).map_err(|_| UnknownWorker)?;
            if beat.state <= told {
                return Ok(told);
            }
            // The shard is let go before anyone is woken.
            entry.worker.clone()
        };
        engine.tell(&worker, beat.state).map_err(|_| UnknownWorker)
    }

    /// Tells a worker `state`, on all of its connections. Returns what it has been told from now on: `state`, or
    /// something stronger that it was told before. Once this returned, every later beat of that worker answers so (G6).
    ///
    /// Terminate comes with the policy's deadline ([`Policy::grace`], [`Policy::overdue`]).
    ///
    /// # Errors
    /// [`UnknownWorker`]; nothing was changed.
    pub fn signal(&self, wid: &str, state: WorkerState) -> Result<WorkerState, UnknownWorker> {
        let worker = self.live(wid)?;
        self.engine.tell_within(&worker, state, self.engine.usual_deadline(state)).map_err(|_| UnknownWorker)
    }

    /// Tells a worker `state` and by when it must have done it: whoever is told to quiet, holds no lease by then; whoever is told to
    /// terminate, has left. Otherwise there is an [`Event::Overdue`](crate::Event::Overdue) that names what it still holds, and what `then`
    /// says follows. The last deadline given to a worker counts.
    ///
    /// # Errors
    /// [`SignalError`]; nothing was changed.
    pub fn signal_within(
        &self,
        wid: &str,
        state: WorkerState,
        grace: Duration,
        then: Overdue,
    ) -> Result<WorkerState, SignalError> {
        self.engine.policy.load().check_grace(grace).map_err(SignalError::OutOfRange)?;
        // Whoever is told to run has nothing to have done.
        let deadline = (state > WorkerState::Running).then(|| self.engine.deadline(grace, then));
        let worker = self.live(wid).map_err(|_| SignalError::UnknownWorker)?;
        self.engine.tell_within(&worker, state, deadline).map_err(|_| SignalError::UnknownWorker)
    }

    /// Tells `state` to every worker that is registered throughout the call, as [`signal`](Registry::signal) does. Returns how many were told.
    pub fn signal_all(&self, state: WorkerState) -> usize {
        let workers: Vec<_> = self.engine.live().collect();
        let deadline = self.engine.usual_deadline(state);
        let told = |worker| self.engine.tell_within(worker, state, deadline).is_ok();
        workers.iter().filter(|(worker, _)| told(worker)).count()
    }

    /// Stops giving a worker work, or lifts that again: reversible, and apart from what it has been told. Kept as a told state is when
    /// the same process connects again. `false` if it was so already.
    ///
    /// Once this returned, no later [`Session::lease`] is granted.
    ///
    /// # Errors
    /// [`UnknownWorker`]; nothing was changed.
    pub fn cordon(&self, wid: &str, cordoned: bool) -> Result<bool, UnknownWorker> {
        let worker = self.live(wid)?;
        self.engine.cordon(&worker, cordoned).map_err(|_| UnknownWorker)
    }

    /// The lease under which a work item is held, and how long it still runs.
    #[must_use]
    pub fn lease(&self, id: &str) -> Option<(LeaseInfo, Duration)> {
        self.engine.lease_info(id)
    }

    /// All leases that are held. Weakly consistent, as a [`Snapshot`] is.
    #[must_use]
    pub fn leases(&self) -> Vec<LeaseInfo> {
        self.engine.leases()
    }

    fn live(&self, wid: &str) -> Result<Arc<Worker>, UnknownWorker> {
        Ok(self.engine.workers.get(wid).ok_or(UnknownWorker)?.worker.clone())
    }

    /// The workers that `selector` selects, in the order in which they joined: the preview of
    /// [`signal_where`](Registry::signal_where). O(workers).
    ///
    /// Each is looked at once, as it is then, to the last beat. Weakly consistent as a [`Snapshot`]: a worker that joins or ends
    /// meanwhile may be among them or not.
    ///
    /// ```
    /// # use heartwheel::{Hello, Policy, Registry, Selector, WorkerState};
    /// let registry = Registry::new(Policy::default())?;
    /// let _blue = registry.connect(Hello::new("w1")?.label("blue"), |_| {})?;
    /// let _green = registry.connect(Hello::new("w2")?.label("green"), |_| {})?;
    /// let selector: Selector = "label=blue and state=running".parse()?;
    /// assert_eq!(registry.select(&selector).len(), 1);
    /// assert_eq!(registry.signal_where(&selector, WorkerState::Quiet), 1);
    /// assert!(registry.select(&selector).is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn select(&self, selector: &Selector) -> Vec<WorkerInfo> {
        let policy = self.engine.policy.load();
        // First everyone, then who matches: a costly selector must not hold a shard.
        let workers: Vec<_> = self.engine.live().collect();
        let now = self.engine.now();
        let mut selected: Vec<_> = workers
            .into_iter()
            .map(|(worker, word)| worker.info(word, &lock(&worker.cold), now, &policy))
            .filter(|worker| selector.matches(worker))
            .collect();
        selected.sort_unstable_by_key(WorkerInfo::incarnation);
        selected
    }

    /// Tells `state` to the workers that `selector` selects. Returns how many were told, with those that had been told it
    /// before. O(workers).
    ///
    /// Each worker is looked at right before it is told, and told only if it matches then; what a [`select`](Registry::select) showed before
    /// decides nothing. It is told as the incarnation that was looked at, never as a successor. Workers that join meanwhile may be
    /// missed.
    pub fn signal_where(&self, selector: &Selector, state: WorkerState) -> usize {
        let deadline = self.engine.usual_deadline(state);
        self.each_where(selector, |worker| self.engine.tell_within(worker, state, deadline).is_ok())
    }

    /// Cordons the workers that `selector` selects, or lifts that: [`cordon`](Registry::cordon) for many, with the consistency of
    /// [`signal_where`](Registry::signal_where). Returns for how many it changed.
    pub fn cordon_where(&self, selector: &Selector, cordoned: bool) -> usize {
        self.each_where(selector, |worker| self.engine.cordon(worker, cordoned).unwrap_or(false))
    }

    /// Does `act` with each worker that `selector` selects when it is looked at; counts for how many it answered `true`.
    fn each_where(&self, selector: &Selector, act: impl Fn(&Arc<Worker>) -> bool) -> usize {
        let policy = self.engine.policy.load();
        // First everyone, then who matches: a costly selector must not hold a shard.
        let workers: Vec<_> = self.engine.live().collect();
        let acted = workers.iter().filter(|(worker, _)| {
            let word = worker.vitals.load();
            let info = worker.info(word, &lock(&worker.cold), self.engine.now(), &policy);
            word.is_live() && selector.matches(&info) && act(worker)
        });
        acted.count()
    }

    /// As [`signal`](Registry::signal), for this incarnation only: a successor is left alone. Whether it was told.
    pub(crate) fn signal_incarnation(&self, wid: &Wid, incarnation: Incarnation, state: WorkerState) -> bool {
        let deadline = self.engine.usual_deadline(state);
        self.live(wid.as_str()).is_ok_and(|worker| {
            worker.incarnation == incarnation && self.engine.tell_within(&worker, state, deadline).is_ok()
        })
    }

    /// The live worker of that wid.
    #[must_use]
    pub fn get(&self, wid: &str) -> Option<WorkerInfo> {
        let worker = self.live(wid).ok()?;
        let cold = lock(&worker.cold);
        let word = worker.vitals.load();
        word.is_live().then(|| worker.info(word, &cold, self.engine.now(), &self.engine.policy.load()))
    }

    /// All live workers. O(workers), and cheap if nothing happened since the last one.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.engine.snapshot()
    }

    /// The sums.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.engine.stats()
    }

    /// Subscribes to what happens from now on. At most `capacity` events (at least one) wait for the subscriber; what does not fit is
    /// counted in the stream ([`Lagged`](crate::Lagged)).
    pub fn subscribe(&self, capacity: usize) -> Subscriber {
        self.subscribe_to(Filter::default(), capacity)
    }

    /// As [`subscribe`](Registry::subscribe), to what `filter` selects. To begin with who is there, take the first snapshot by
    /// [`Subscriber::resync`].
    pub fn subscribe_to(&self, filter: Filter, capacity: usize) -> Subscriber {
        self.engine.bus.subscribe(filter, capacity)
    }

    /// Who is there, and what happens from then on, with no gap between the two.
    ///
    /// What happens while the snapshot is taken may be in it and come as an event, too, for it is subscribed first. An event is
    /// told from a repetition by what only grows: the incarnation of a wid, and the state within an incarnation.
    ///
    /// ```
    /// use std::collections::HashMap;
    /// use heartwheel::{Event, Hello, Incarnation, Lagged, Policy, Registry, Snapshot, Wid, WorkerInfo, WorkerState};
    ///
    /// type Fleet = HashMap<Wid, (Incarnation, WorkerState)>;
    ///
    /// fn start(snapshot: &Snapshot) -> Fleet {
    ///     let known = |worker: &WorkerInfo| (worker.wid().clone(), (worker.incarnation(), worker.state()));
    ///     snapshot.workers().iter().map(known).collect()
    /// }
    ///
    /// fn fold(fleet: &mut Fleet, event: &Event) {
    ///     match event {
    ///         // The greater incarnation, and within it the greater state.
    ///         Event::Joined(worker) => {
    ///             let new = (worker.incarnation(), worker.state());
    ///             let known = fleet.entry(worker.wid().clone()).or_insert(new);
    ///             *known = new.max(*known);
    ///         }
    ///         // Not of one that the snapshot knew to have ended, or to have a successor.
    ///         Event::Told { wid, incarnation, state } => {
    ///             if let Some(known) = fleet.get_mut(wid).filter(|known| known.0 == *incarnation) {
    ///                 known.1 = known.1.max(*state);
    ///             }
    ///         }
    ///         Event::Ended(ended) => {
    ///             let worker = &ended.worker;
    ///             if fleet.get(worker.wid()).is_some_and(|known| known.0 == worker.incarnation()) {
    ///                 fleet.remove(worker.wid());
    ///             }
    ///         }
    ///         _ => {}
    ///     }
    /// }
    ///
    /// let registry = Registry::new(Policy::default())?;
    /// let first = registry.connect(Hello::new("w1")?, |_| {})?;
    /// let (snapshot, events) = registry.watch(1000);
    /// let mut fleet = start(&snapshot);
    ///
    /// let second = registry.connect(Hello::new("w2")?, |_| {})?;
    /// registry.signal("w2", WorkerState::Quiet)?;
    /// drop(first);
    /// while let Some(item) = events.try_recv() {
    ///     match item {
    ///         Ok(event) => fold(&mut fleet, &event),
    ///         Err(Lagged(_)) => fleet = start(&events.resync(&registry)),
    ///     }
    /// }
    /// let known = fleet.into_iter().collect::<Vec<_>>();
    /// assert_eq!(known, [(second.wid().clone(), (second.incarnation(), WorkerState::Quiet))]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn watch(&self, capacity: usize) -> (Arc<Snapshot>, Subscriber) {
        let subscriber = self.subscribe(capacity);
        (self.snapshot(), subscriber)
    }

    /// One pass of the driver: advances the engine's time to `now`, and reaps who is due, in at most about `budget` steps (at
    /// least two; one step is one worker filed, moved closer, judged or dropped).
    ///
    /// Call it once a tick ([`Policy::tick`]), or at [`Pass::next`], and again at once while [`Pass::more`] says so. `now` may stall or
    /// go backward; a leap of more than [`Policy::gap`] is taken for a pause of the engine itself.
    ///
    /// ```
    /// # use std::time::{Duration, Instant};
    /// # use heartwheel::{Hello, Policy, Registry};
    /// let registry = Registry::new(Policy::default())?;
    /// let _silent = registry.connect(Hello::new("w1")?, |_| {})?;
    /// // Any clock will do: this one is made up.
    /// let start = Instant::now();
    /// let mut expired = 0;
    /// for tick in 0..=602 {
    ///     let pass = registry.reap(start + Duration::from_millis(100) * tick, 1000);
    ///     expired += pass.expired;
    ///     pass.hangups.into_iter().for_each(|hangup| drop(hangup.run()));
    /// }
    /// assert_eq!(expired, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reap(&self, now: Instant, budget: usize) -> Pass {
        let (pass, wake) = self.engine.pass(now, budget);
        wake.wake();
        pass
    }

    /// The policy in force.
    #[must_use]
    pub fn policy(&self) -> Arc<Policy> {
        self.engine.policy.load_full()
    }

    /// Puts another policy in force, for workers that are registered already, too. A shorter ttl takes effect at the driver's next
    /// passes, which look at every worker once.
    ///
    /// # Errors
    /// A value outside its range, or another tick; the old policy stays.
    pub fn set_policy(&self, policy: Policy) -> Result<(), PolicyError> {
        policy.validate()?;
        // The driver's lock: two callers put their policies in force one after the other.
        let mut driver = lock(&self.engine.driver);
        let tick = self.engine.policy.load().tick;
        if policy.tick != tick {
            return Err(PolicyError::TickChanged { tick });
        }
        self.engine.policy.store(Arc::new(policy));
        driver.refile();
        Ok(())
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").field("stats", &self.stats()).finish_non_exhaustive()
    }
}
