//! The rolling drain: tells the workers of a selector to quiet or terminate, a few at a time, and goes on as they get ready.
//!
//! Ground rules
//! - It holds no thread, no clock and no subscription: whoever owns it calls [`Drain::advance`] with the time. What it
//!   sees and does goes through [`Fleet`], so the decisions are tested without a registry.
//! - Nothing is decided by events, which can lag: before anyone is told, everyone who counts is looked at.
//! - A worker is told as the incarnation that was looked at ([`Fleet::tell`]); a successor is looked at first, like anyone.
//! - Who is finished stays finished, and nobody is told twice: a drain comes to an end.

use std::cmp::Reverse;
use std::time::{Duration, Instant};

use crate::clock;
use crate::event::Event;
use crate::hello::Wid;
use crate::registry::Registry;
use crate::selector::Selector;
use crate::state::{Incarnation, WorkerState};

mod fleet;
mod plan;
mod progress;
#[cfg(test)]
mod tests;

use fleet::Fleet;
pub use plan::{DrainError, DrainPlan, Share, Until};
pub use progress::{DrainPhase, DrainProgress, Standing};

/// How long a waiting worker may be absent before it counts as vanished: it may be connecting again.
const GRACE: Duration = Duration::from_secs(10);
/// Events that may wait for [`Drain::run`]. To miss some costs nothing but a look.
const BACKLOG: usize = 1024;

/// A drain under way, from [`DrainPlan::start`]: tells its workers a state, with never more than a share of them out at once.
///
/// ```
/// use std::time::{Duration, Instant};
/// use heartwheel::{Drain, Hello, Policy, Registry, Selector, Share, Until, WorkerState};
///
/// let registry = Registry::new(Policy::default())?;
/// let mut sessions = Vec::new();
/// for wid in ["w1", "w2", "w3"] {
///     sessions.push(registry.connect(Hello::new(wid)?, |_| {})?);
/// }
/// let mut drain = Drain::plan(Selector::all())
///     .to(WorkerState::Terminate)
///     .at_most(Share::Count(1))
///     .wait_for(Until::Gone)
///     .start(&registry)?;
///
/// # let now = Instant::now();
/// while !drain.is_over() {
///     let progress = drain.advance(now, &registry);      // the time, at your interval
///     assert!(progress.out <= 1);
///     // Here the workers obey at once; real ones take their time.
///     sessions.retain(|session| session.state() != Ok(WorkerState::Terminate));
/// }
/// assert_eq!(drain.progress().done, 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Who belongs to it
///
/// The workers that match when it starts; the list does not grow. It is what a preview ([`Registry::select`]) shows, and it is finite: had
/// it followed the selector, a rolling restart would go on to the replacements it brings up, for ever. To keep newcomers out as
/// well, plan a second drain, or cordon first.
///
/// - They are known by their wid. One that reconnects as a new incarnation before its turn is still waiting if it matches again, and
///   has vanished if not (it was restarted, and has another version now). One that is absent has ten seconds to come back.
/// - One that changes without a new incarnation, so that it does not match any more, still has its turn.
///
/// # Who is out
///
/// A worker is out from the moment it is told the state, *whoever* told it, also before the start, until what is
/// [waited for](Until) is met or it is gone. While the cap's number of its workers or more is out, the drain tells nobody. It cannot
/// keep others from telling workers, so `out` can be above the cap by those. What others do while a call
/// of [`advance`](Drain::advance) is under way is seen by the next call.
///
/// When a slot is free, workers that are quiet already (and are to terminate) come first, for no capacity is lost by them; then those
/// that joined first.
///
/// # Gone, and back
///
/// - With [`Until::Gone`] the slot is held until the incarnation that was told has ended. Its restart under the same wid is not
///   waited for, and is not told again.
/// - A process that lost its connections and resumes the told state under a new incarnation ([`Policy::remember`](crate::Policy::remember)) has not
///   gone: if it is back before the drain looked, it holds its slot. If the drain saw it absent it is done, and stays so.
/// - A worker that never leaves holds its slot for ever. [`workers`](Drain::workers) names it; end it, or
///   [`cancel`](Drain::cancel).
#[derive(Clone, Debug)]
#[must_use = "a drain does nothing unless it is advanced"]
pub struct Drain {
    selector: Selector,
    target: WorkerState,
    until: Until,
    cap: usize,
    /// By wid.
    members: Vec<Member>,
    /// In the order of joining. Who is found to be out, done or vanished leaves it.
    waiting: Vec<usize>,
    out: Vec<usize>,
    done: usize,
    vanished: usize,
    phase: DrainPhase,
    /// The latest time that was brought.
    now: Option<Instant>,
}

#[derive(Clone, Debug)]
struct Member {
    wid: Wid,
    incarnation: Incarnation,
    standing: Standing,
    /// Waiting, and not found.
    absent_since: Option<Instant>,
}

impl Drain {
    /// Begins a plan for the workers that `selector` selects.
    pub fn plan(selector: Selector) -> DrainPlan {
        DrainPlan::new(selector)
    }

    /// Over these workers; the older has its turn first.
    fn over(plan: DrainPlan, workers: Vec<(Wid, Incarnation)>) -> Self {
        let member =
            |(wid, incarnation)| Member { wid, incarnation, standing: Standing::Waiting, absent_since: None };
        let mut members: Vec<Member> = workers.into_iter().map(member).collect();
        members.sort_unstable_by(|a, b| a.wid.cmp(&b.wid));
        members.dedup_by(|a, b| a.wid == b.wid);
        let mut waiting: Vec<usize> = (0..members.len()).collect();
        waiting.sort_unstable_by_key(|&at| members[at].incarnation);
        let phase = if members.is_empty() { DrainPhase::Finished } else { DrainPhase::Active };
        Drain {
            selector: plan.selector,
            target: plan.state,
            until: plan.until.unwrap_or_else(|| Until::default_for(plan.state)),
            cap: plan.share.of(members.len()),
            members,
            waiting,
            out: Vec::new(),
            done: 0,
            vanished: 0,
            phase,
            now: None,
        }
    }

    /// Looks at who is out; then, if a slot is free, at everyone who waits, and tells as many as there are slots.
    ///
    /// Call it at an interval of your choice (a tick of the registry is the finest that makes sense), at
    /// [`deadline`](Drain::deadline), and after an event that [`concerns`](Drain::concerns) it. `now` is any monotonic time; one before the
    /// last counts as the last. Without a free slot it costs a look-up for each worker that is out, with one also for each that
    /// waits. A worker is finished at the call after the one that found it out, at the earliest.
    pub fn advance(&mut self, now: Instant, registry: &Registry) -> DrainProgress {
        self.step(now, registry)
    }

    fn step(&mut self, now: Instant, fleet: &impl Fleet) -> DrainProgress {
        let now = self.now.map_or(now, |last| last.max(now));
        self.now = Some(now);
        self.look_at_out(now, fleet);
        if self.out.len() < self.cap && self.phase != DrainPhase::Cancelled {
            let ready = self.look_at_waiting(now, fleet);
            if self.phase == DrainPhase::Active {
                self.tell(now, fleet, ready);
            }
            let members = &self.members;
            self.waiting.retain(|&at| members[at].standing == Standing::Waiting);
        }
        if self.waiting.is_empty() && self.out.is_empty() && !self.is_over() {
            self.phase = DrainPhase::Finished;
        }
        self.progress()
    }

    fn look_at_out(&mut self, now: Instant, fleet: &impl Fleet) {
        let (selector, target, until) = (&self.selector, self.target, self.until);
        let members = &mut self.members;
        let before = self.out.len();
        self.out.retain(|&at| {
            let member = &mut members[at];
            let Standing::Out { since } = member.standing else { return false };
            let is_out = match fleet.look(&member.wid, member.incarnation, selector) {
                // Told the same, so it resumed what it was told: it never went.
                Some(sight) if sight.state >= target => {
                    member.incarnation = sight.incarnation;
                    !until.is_met(sight.leases, now.saturating_duration_since(since))
                }
                // Gone, or restarted.
                _ => false,
            };
            if !is_out {
                member.standing = Standing::Done;
            }
            is_out
        });
        self.done += before - self.out.len();
    }

    /// Finds those who are out by what others did, or have vanished. Returns who can be told, with what they have been told.
    fn look_at_waiting(&mut self, now: Instant, fleet: &impl Fleet) -> Vec<(WorkerState, usize)> {
        let mut ready = Vec::new();
        for &at in &self.waiting {
            let member = &mut self.members[at];
            match fleet.look(&member.wid, member.incarnation, &self.selector) {
                Some(sight) if sight.state >= self.target => {
                    member.incarnation = sight.incarnation;
                    member.standing = Standing::Out { since: now };
                    self.out.push(at);
                }
                Some(sight) if sight.belongs => {
                    member.incarnation = sight.incarnation;
                    member.absent_since = None;
                    ready.push((sight.state, at));
                }
                None if now.saturating_duration_since(*member.absent_since.get_or_insert(now)) < GRACE => {}
                _ => {
                    member.standing = Standing::Vanished;
                    self.vanished += 1;
                }
            }
        }
        ready
    }

    fn tell(&mut self, now: Instant, fleet: &impl Fleet, mut ready: Vec<(WorkerState, usize)>) {
        // Stable: in the order of their turns otherwise.
        ready.sort_by_key(|(state, _)| Reverse(*state));
        for (_, at) in ready {
            if self.out.len() >= self.cap {
                return;
            }
            let member = &mut self.members[at];
            // One that ended since it was looked at is looked at again by the next call.
            if fleet.tell(&member.wid, member.incarnation, self.target) {
                member.standing = Standing::Out { since: now };
                self.out.push(at);
            }
        }
    }

    /// Whether `event` may have freed a slot, so that [`advance`](Drain::advance) is worth a call at once. A hint for promptness: nothing is
    /// lost when events are missed, or never asked about.
    #[must_use]
    pub fn concerns(&self, event: &Event) -> bool {
        let Event::Ended(ended) = event else { return false };
        self.members
            .binary_search_by(|member| member.wid.cmp(ended.worker.wid()))
            .is_ok_and(|at| matches!(self.members[at].standing, Standing::Out { .. }))
    }

    /// When the next slot gets free by itself, with [`Until::Elapsed`]; `None` if that is not a matter of time.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let Until::Elapsed(length) = self.until else { return None };
        let ends = self.out.iter().filter_map(|&at| match self.members[at].standing {
            Standing::Out { since } => since.checked_add(length),
            _ => None,
        });
        ends.min()
    }

    /// Tells nobody from now on, until [`resume`](Drain::resume). Who is out is still followed. No effect once it is over.
    pub fn pause(&mut self) {
        if self.phase == DrainPhase::Active {
            self.phase = DrainPhase::Paused;
        }
    }

    /// Goes on after [`pause`](Drain::pause).
    pub fn resume(&mut self) {
        if self.phase == DrainPhase::Paused {
            self.phase = DrainPhase::Active;
        }
    }

    /// Tells nobody any more, for good. What workers were told cannot be taken back; further calls of [`advance`](Drain::advance) follow
    /// those who are out. No effect once it is finished.
    pub fn cancel(&mut self) {
        if !self.is_over() {
            self.phase = DrainPhase::Cancelled;
        }
    }

    /// Whether it tells nobody any more: finished, or cancelled. A drain of nobody is finished from the start.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self.phase, DrainPhase::Finished | DrainPhase::Cancelled)
    }

    /// How far it was after the last [`advance`](Drain::advance).
    #[must_use]
    pub fn progress(&self) -> DrainProgress {
        DrainProgress {
            phase: self.phase,
            total: self.members.len(),
            cap: self.cap,
            waiting: self.waiting.len(),
            out: self.out.len(),
            done: self.done,
            vanished: self.vanished,
        }
    }

    /// Its workers in the order of their wids, and where each stands.
    pub fn workers(&self) -> impl ExactSizeIterator<Item = (&Wid, Standing)> {
        self.members.iter().map(|member| (&member.wid, member.standing))
    }

    /// Whom it selects.
    #[must_use = "it is a look at the drain, and changes nothing"]
    pub fn selector(&self) -> &Selector {
        &self.selector
    }

    /// What its workers are told.
    #[must_use]
    pub fn state(&self) -> WorkerState {
        self.target
    }

    /// What holds a slot.
    #[must_use]
    pub fn until(&self) -> Until {
        self.until
    }

    /// Advances it on the calling thread until it is over, once a tick of the registry and whenever a slot may have got free. `watch` is
    /// called after each advance, with nothing locked, and may pause, resume or cancel.
    ///
    /// ```no_run
    /// # use heartwheel::{Drain, Policy, Registry, Selector};
    /// # let registry = Registry::new(Policy::default())?;
    /// let mut drain = Drain::plan("host=app-*".parse()?).start(&registry)?;
    /// drain.run(&registry, |_, progress| println!("{progress}"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn run(
        &mut self,
        registry: &Registry,
        mut watch: impl FnMut(&mut Drain, DrainProgress),
    ) -> DrainProgress {
        let events = registry.subscribe(BACKLOG);
        loop {
            let now = clock::now();
            let progress = self.advance(now, registry);
            watch(self, progress);
            if self.is_over() {
                return self.progress();
            }
            let tick = registry.policy().tick;
            loop {
                let left = tick.saturating_sub(clock::now().saturating_duration_since(now));
                match events.recv_timeout(left) {
                    Some(Ok(event)) if !left.is_zero() && !self.concerns(&event) => {}
                    _ => break,
                }
            }
        }
    }
}
