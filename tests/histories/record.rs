//! Makes histories: three threads on one registry, each call noted with what it answered and when it began and returned.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use heartwheel::{
    Beat, EndReason, Event, EventKind, Filter, Identity, Lease, LeaseEnd, LeaseError, Policy, Recover,
    Registry, Session, Subscriber, WorkerState,
};

use crate::common::{Choices, Closed, hello, now};
use crate::search::{Call, History};
use crate::spec::{Fact, Granted, Op, Rules, Seen};

pub(crate) const THREADS: usize = 3;
pub(crate) const WIDS: usize = 2;
const CALLS: usize = 7;
const TICK: Duration = Duration::from_millis(100);
/// Passes with nobody else there, three ticks apart: enough for everyone to expire.
const LAST_PASSES: u64 = 16;

pub(crate) fn rules(seed: u64) -> Rules {
    let mut choices = Choices::new(seed);
    Rules {
        ttl: 4,
        lease_ttl: 3,
        identity: [Identity::Share, Identity::Supersede, Identity::Reject][choices.below(3)],
        remember: choices.below(4) > 0,
        recover: [Recover::AtDeath, Recover::AtExpiry][choices.below(2)],
    }
}

fn policy(rules: &Rules) -> Policy {
    let ticks = |n: u64| TICK * u32::try_from(n).expect("few");
    let mut policy = Policy::default();
    policy.tick = TICK;
    policy.ttl = ticks(rules.ttl);
    policy.late_after = Some(ticks(rules.ttl));
    policy.remember = Some(if rules.remember { Duration::from_secs(3600) } else { Duration::ZERO });
    policy.gap = Some(Duration::from_secs(3600));
    policy.identity = rules.identity;
    policy.grace = None;
    policy.recover = rules.recover;
    policy
}

/// One registry for one history, and what its threads share.
struct Stage {
    seed: u64,
    rules: Rules,
    registry: Registry,
    events: Subscriber,
    closed: Closed,
    start: Instant,
    /// The made-up time, in milliseconds.
    at: AtomicU64,
    /// Counts the instants at which calls begin and return.
    instant: AtomicU64,
    ready: AtomicUsize,
}

/// What one thread did, by wid.
#[derive(Default)]
struct Done {
    calls: [Vec<Call>; WIDS],
    /// Not dropped before all is over: a drop is a call.
    sessions: Vec<(usize, Session)>,
}

/// A history made: what happened to each wid, and what was found wrong besides.
pub(crate) struct Made {
    pub(crate) seed: u64,
    pub(crate) rules: Rules,
    pub(crate) of_wids: Vec<History>,
}

fn wid(n: usize) -> String {
    format!("w{n}")
}

fn job(n: usize) -> String {
    format!("job-{n}")
}

impl Stage {
    fn new(seed: u64) -> Self {
        let rules = rules(seed);
        let registry = Registry::new(policy(&rules)).expect("a policy of a test is valid");
        let kinds =
            [EventKind::Joined, EventKind::Told, EventKind::Cordoned, EventKind::Ended, EventKind::Lost];
        let events = registry.subscribe_to(Filter::default().kinds(kinds), 10_000);
        let start = now();
        let _ = registry.reap(start, 10);
        Stage {
            seed,
            rules,
            registry,
            events,
            closed: Closed::default(),
            start,
            at: AtomicU64::new(0),
            instant: AtomicU64::new(0),
            ready: AtomicUsize::new(0),
        }
    }

    /// Makes a call and notes it.
    fn call(&self, calls: &mut Vec<Call>, make: impl FnOnce() -> Op) {
        let from = self.instant.fetch_add(1, Ordering::SeqCst);
        let op = make();
        let to = self.instant.fetch_add(1, Ordering::SeqCst);
        calls.push(Call { from, op, to });
    }

    fn pass(&self, ticks: u64, budget: usize) -> Op {
        let at = self.at.fetch_add(ticks * 100, Ordering::SeqCst) + ticks * 100;
        let pass = self.registry.reap(self.start + Duration::from_millis(at), budget);
        pass.hangups.into_iter().for_each(|hangup| assert!(hangup.run()));
        Op::Pass { tick: at / 100 }
    }

    /// All calls of one thread.
    fn act(&self, thread: usize) -> Done {
        let mut choices = Choices::new(self.seed.wrapping_mul(THREADS as u64) + thread as u64 + 1);
        let mut done = Done::default();
        let mut leases: Vec<(usize, Lease)> = Vec::new();
        self.ready.fetch_add(1, Ordering::SeqCst);
        while self.ready.load(Ordering::SeqCst) < THREADS {
            thread::yield_now();
        }
        for n in 0..CALLS {
            if choices.below(4) == 0 {
                thread::yield_now();
            }
            let which = choices.below(WIDS);
            let own = (!done.sessions.is_empty()).then(|| choices.below(done.sessions.len().max(1)));
            let Done { calls, sessions } = &mut done;
            match (choices.below(20), own) {
                (0..=3, _) => {
                    let process = u8::try_from(choices.below(2)).expect("two");
                    let closer = self.closed.closer(thread * CALLS + n);
                    let hello = hello(&wid(which)).pid(i64::from(process));
                    self.call(&mut calls[which], || {
                        let session = self.registry.connect(hello, closer).ok();
                        let answer = session.as_ref().map(|session| session.incarnation().get());
                        sessions.extend(session.map(|session| (which, session)));
                        Op::Connect { process, answer }
                    });
                }
                (4..=6, Some(own)) => {
                    let (which, session) = &sessions[own];
                    let says = if choices.below(4) == 0 { choices.state() } else { WorkerState::Running };
                    self.call(&mut calls[*which], || {
                        let answer = session.beat(&Beat::default().state(says)).ok();
                        Op::BeatBySession { incarnation: session.incarnation().get(), says, answer }
                    });
                }
                (7..=8, _) => {
                    let says = if choices.below(4) == 0 { choices.state() } else { WorkerState::Running };
                    self.call(&mut calls[which], || {
                        let answer = self.registry.beat(&wid(which), &Beat::default().state(says)).ok();
                        Op::BeatByWid { says, answer }
                    });
                }
                (9, _) => {
                    let state = choices.state();
                    self.call(&mut calls[which], || Op::Signal {
                        state,
                        answer: self.registry.signal(&wid(which), state).ok(),
                    });
                }
                (10, _) => {
                    let on = choices.below(2) == 0;
                    self.call(&mut calls[which], || Op::Cordon {
                        on,
                        answer: self.registry.cordon(&wid(which), on).ok(),
                    });
                }
                (11..=12, Some(own)) => {
                    let (which, session) = sessions.swap_remove(own);
                    let incarnation = session.incarnation().get();
                    self.call(&mut calls[which], || {
                        drop(session);
                        Op::Part { incarnation }
                    });
                }
                (13, _) => self.call(&mut calls[which], || Op::Get {
                    answer: self.registry.get(&wid(which)).map(|worker| Seen {
                        incarnation: worker.incarnation().get(),
                        state: worker.state(),
                        cordoned: worker.is_cordoned(),
                        connections: worker.connections(),
                    }),
                }),
                (14..=15, Some(own)) => {
                    let (which, session) = &sessions[own];
                    let ttl = TICK * u32::try_from(self.rules.lease_ttl).expect("few");
                    self.call(&mut calls[*which], || {
                        let answer = match session.lease(&job(*which), ttl) {
                            Ok(lease) => {
                                let token = lease.token().get();
                                leases.push((*which, lease));
                                Granted::Token(token)
                            }
                            Err(LeaseError::Gone) => Granted::Gone,
                            Err(LeaseError::Told(state)) => Granted::Told(state),
                            Err(LeaseError::Cordoned) => Granted::Cordoned,
                            Err(LeaseError::Held(held)) => Granted::Held(held.token.get()),
                            Err(other) => panic!("{other}"),
                        };
                        Op::Lease { incarnation: session.incarnation().get(), answer }
                    });
                }
                (16, _) if !leases.is_empty() => {
                    let (which, lease) = &leases[choices.below(leases.len())];
                    self.call(&mut calls[*which], || Op::Complete {
                        token: lease.token().get(),
                        answer: lease.complete().map_err(|not_held| not_held.how),
                    });
                }
                _ => {
                    let (ticks, budget) = (choices.below(4) as u64, 2 + choices.below(6));
                    let mut pass = Vec::new();
                    self.call(&mut pass, || self.pass(ticks, budget));
                    calls.iter_mut().for_each(|calls| calls.extend(&pass));
                }
            }
        }
        done
    }

    /// Everyone expires; then it is what it was.
    fn finish(self, mut done: Vec<Done>) -> Made {
        for _ in 0..LAST_PASSES {
            let mut pass = Vec::new();
            self.call(&mut pass, || self.pass(3, 1000));
            done[0].calls.iter_mut().for_each(|calls| calls.extend(&pass));
        }
        let stats = self.registry.stats();
        assert_eq!((stats.live(), stats.leases), (0, 0), "seed {}: late", self.seed);
        let mut of_wids = vec![History { threads: Vec::new(), ..History::default() }; WIDS];
        for done in &mut done {
            for (history, calls) in of_wids.iter_mut().zip(&mut done.calls) {
                history.threads.push(std::mem::take(calls));
            }
        }
        let mut open = 0;
        while let Some(event) = self.events.try_recv() {
            let event = event.expect("no event is missing");
            let which = (0..WIDS).find(|&n| event.wid().is_some_and(|of| of.as_str() == wid(n)));
            let history = &mut of_wids[which.expect("a wid of this test")];
            match event {
                Event::Joined(worker) => history.facts.push(Fact::Joined(
                    worker.incarnation().get(),
                    worker.state(),
                    worker.is_cordoned(),
                )),
                Event::Told { incarnation, state, .. } => {
                    history.facts.push(Fact::Told(incarnation.get(), state));
                }
                Event::Cordoned { incarnation, cordoned, .. } => {
                    history.facts.push(Fact::Cordoned(incarnation.get(), cordoned));
                }
                Event::Ended(ended) => {
                    if ended.reason != EndReason::Left {
                        open += ended.worker.connections() as usize;
                    }
                    history.facts.push(Fact::Ended(ended.worker.incarnation().get(), ended.reason));
                }
                Event::Lost(lost) => {
                    history.lost.extend(lost.leases.iter().map(|lease| (lease.token.get(), lost.how)));
                }
                other => panic!("{other}"),
            }
        }
        assert_eq!(self.closed.len(), open, "seed {}: each open connection is closed once", self.seed);
        Made { seed: self.seed, rules: self.rules, of_wids }
    }
}

/// Makes one history for each seed.
pub(crate) fn make(seeds: impl Iterator<Item = u64>) -> Vec<Made> {
    let stages: Vec<_> = seeds.map(Stage::new).collect();
    let mut done: Vec<Vec<Done>> = thread::scope(|scope| {
        let act = |thread| stages.iter().map(|stage| stage.act(thread)).collect::<Vec<_>>();
        let threads: Vec<_> = (0..THREADS).map(|n| scope.spawn(move || act(n))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no thread panics")).collect()
    });
    let mut made = Vec::new();
    for stage in stages.into_iter().rev() {
        let done = done.iter_mut().map(|of_thread| of_thread.pop().expect("one for each stage")).collect();
        made.push(stage.finish(done));
    }
    made
}

impl History {
    /// How many calls overlap one of another thread.
    pub(crate) fn overlaps(&self) -> usize {
        let overlaps = |one: &Call, other: &Call| one.from < other.to && other.from < one.to;
        let of_others = |n: usize, call: &Call| {
            let others = self.threads.iter().enumerate().filter(|&(other, _)| other != n);
            others.flat_map(|(_, calls)| calls).any(|other| overlaps(call, other))
        };
        let threads = self.threads.iter().enumerate();
        threads.map(|(n, calls)| calls.iter().filter(|call| of_others(n, call)).count()).sum()
    }
}

/// A lease ends once: no token is lost twice.
pub(crate) fn lost_twice(lost: &[(u64, LeaseEnd)]) -> Option<u64> {
    let mut tokens: Vec<_> = lost.iter().map(|&(token, _)| token).collect();
    tokens.sort_unstable();
    tokens.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0])
}
