//! What one wid's operations mean, one step at a time: the sequential specification that every concurrent history must agree with.
//!
//! An operation is a few steps, in order, each of which happens at one instant: the end of a worker, and after it the loss of its
//! lease. What the engine may or may not do (a pass with a small budget) is a choice here: a step can have several successors.
//! What an operation answered is known beforehand, so a step that contradicts the answer has none.
//!
//! The rules, by the contract: the state only advances (G1); nobody expires before a ttl has passed since it was heard (G2, G3); an end
//! comes once, and the events of a wid in the order of its transitions (G4); a handle of an ended incarnation is refused (G5); whatever
//! comes after a signal sees it (G6); a lease ends once.

use heartwheel::{EndReason, Identity, LeaseEnd, Recover, WorkerState};

/// Policy of a history, in ticks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) ttl: u64,
    pub(crate) lease_ttl: u64,
    pub(crate) identity: Identity,
    pub(crate) remember: bool,
    pub(crate) recover: Recover,
}

/// A call, and what it answered. Incarnations and tokens are bare numbers; `None` as an answer is a refusal: gone, or unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Connect {
        process: u8,
        answer: Option<u64>,
    },
    BeatBySession {
        incarnation: u64,
        says: WorkerState,
        answer: Option<WorkerState>,
    },
    BeatByWid {
        says: WorkerState,
        answer: Option<WorkerState>,
    },
    Signal {
        state: WorkerState,
        answer: Option<WorkerState>,
    },
    Cordon {
        on: bool,
        answer: Option<bool>,
    },
    Part {
        incarnation: u64,
    },
    Get {
        answer: Option<Seen>,
    },
    Lease {
        incarnation: u64,
        answer: Granted,
    },
    Complete {
        token: u64,
        answer: Result<(), LeaseEnd>,
    },
    /// A pass at this tick, of the whole registry.
    Pass {
        tick: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Granted {
    Token(u64),
    Gone,
    Told(WorkerState),
    Cordoned,
    Held(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) incarnation: u64,
    pub(crate) state: WorkerState,
    pub(crate) cordoned: bool,
    pub(crate) connections: u32,
}

/// An event of the wid, as it was published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fact {
    Joined(u64, WorkerState, bool),
    Told(u64, WorkerState),
    Cordoned(u64, bool),
    Ended(u64, EndReason),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Life {
    incarnation: u64,
    process: u8,
    state: WorkerState,
    cordoned: bool,
    connections: u32,
    /// The tick of its last beat.
    heard: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Held {
    /// `None` while it is being granted to one who will be refused: nobody is told the token of that.
    token: Option<u64>,
    incarnation: u64,
    granted: bool,
    until: u64,
}

/// The state of one wid between two steps. `explained` of its published events have come about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Spec {
    tick: u64,
    life: Option<Life>,
    /// Process, state and cordon of an ended worker.
    remembered: Option<(u8, WorkerState, bool)>,
    last_incarnation: u64,
    held: Option<Held>,
    last_token: u64,
    ended_leases: Vec<(u64, LeaseEnd)>,
    explained: usize,
}

/// Where an operation is: its next step, and what it keeps in mind until then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Progress {
    pub(crate) step: u8,
    mind: u64,
}

/// After a step: the operation goes on, or is done.
pub(crate) type Next = (Spec, Option<Progress>);

impl Spec {
    pub(crate) fn new() -> Self {
        Spec {
            tick: 0,
            life: None,
            remembered: None,
            last_incarnation: 0,
            held: None,
            last_token: 0,
            ended_leases: Vec::new(),
            explained: 0,
        }
    }

    /// All published events are explained, and the leases that were lost are those that were said to be.
    pub(crate) fn is_final(&self, facts: &[Fact], lost: &[(u64, LeaseEnd)]) -> bool {
        let mut said = lost.to_vec();
        said.sort_unstable_by_key(|&(token, _)| token);
        let of_engine = |how: LeaseEnd| matches!(how, LeaseEnd::Expired | LeaseEnd::HolderEnded);
        let mut ended: Vec<_> =
            self.ended_leases.iter().copied().filter(|&(_, how)| of_engine(how)).collect();
        ended.sort_unstable_by_key(|&(token, _)| token);
        self.explained == facts.len() && ended == said
    }

    /// What can be after the next step of `op`.
    pub(crate) fn after(&self, op: &Op, at: Progress, rules: &Rules, facts: &[Fact]) -> Vec<Next> {
        let mut next = self.clone();
        let go_on = |step, mind| Some(Progress { step, mind });
        let here = self.life;
        let is_live = |incarnation| here.is_some_and(|life| life.incarnation == incarnation);
        match *op {
            // The time is read first: a thread may be held up before its connection is added.
            Op::Connect { process, answer } => match (at.step, here) {
                (0, _) => vec![(next, go_on(1, self.tick))],
                (1, None) => next.begin(process, at.mind, answer, rules, facts),
                (1, Some(life)) if life.process == process || rules.identity == Identity::Share => {
                    let heard = life.heard.max(at.mind);
                    next.life = Some(Life { connections: life.connections + 1, heard, ..life });
                    if answer == Some(life.incarnation) { vec![(next, None)] } else { vec![] }
                }
                (1, Some(life)) if rules.identity == Identity::Supersede => {
                    if next.end(EndReason::Superseded, rules, facts) {
                        vec![(next, go_on(2, life.incarnation))]
                    } else {
                        vec![]
                    }
                }
                (1, Some(_)) => refused(next, answer.is_none()),
                _ => {
                    next.lose_with(at.mind, rules);
                    vec![(next, go_on(0, 0))]
                }
            },
            Op::BeatBySession { incarnation, says, answer } => match at.step {
                0 if !is_live(incarnation) => refused(next, answer.is_none()),
                0 => next.hear(says, answer, incarnation),
                _ => next.say(says, answer, incarnation, facts),
            },
            Op::BeatByWid { says, answer } => match (at.step, here) {
                (0, None) => refused(next, answer.is_none()),
                (0, Some(life)) => next.hear(says, answer, life.incarnation),
                _ => next.say(says, answer, at.mind, facts),
            },
            Op::Signal { state, answer } => match here {
                None => refused(next, answer.is_none()),
                Some(life) => next.say(state, answer, life.incarnation, facts),
            },
            Op::Cordon { on, answer } => match here {
                None => refused(next, answer.is_none()),
                Some(life) => {
                    let changes = life.cordoned != on;
                    next.life = Some(Life { cordoned: on, ..life });
                    let told = !changes || next.tell(Fact::Cordoned(life.incarnation, on), facts);
                    if told && answer == Some(changes) { vec![(next, None)] } else { vec![] }
                }
            },
            Op::Part { incarnation } => match at.step {
                0 if !is_live(incarnation) => vec![(next, None)],
                0 => {
                    let Some(life) = &mut next.life else { return vec![] };
                    life.connections -= 1;
                    if life.connections > 0 {
                        vec![(next, None)]
                    } else if next.end(EndReason::Left, rules, facts) {
                        vec![(next, go_on(1, incarnation))]
                    } else {
                        vec![]
                    }
                }
                _ => {
                    next.lose_with(at.mind, rules);
                    vec![(next, None)]
                }
            },
            Op::Get { answer } => {
                let seen = here.map(|life| Seen {
                    incarnation: life.incarnation,
                    state: life.state,
                    cordoned: life.cordoned,
                    connections: life.connections,
                });
                if seen == answer { vec![(next, None)] } else { vec![] }
            }
            Op::Lease { incarnation, answer } => next.lease(at, incarnation, answer, rules),
            Op::Complete { token, answer } => {
                let held = self.held.is_some_and(|held| held.granted && held.token == Some(token));
                let agrees = match answer {
                    Ok(()) => held,
                    Err(how) => self.ended_leases.contains(&(token, how)),
                };
                if held {
                    next.end_lease(LeaseEnd::Completed);
                }
                if agrees { vec![(next, None)] } else { vec![] }
            }
            Op::Pass { tick } => self.pass(at, tick, rules, facts),
        }
    }

    /// A pass: time is published, and then whatever is due may be done, or be left to a later pass.
    fn pass(&self, at: Progress, tick: u64, rules: &Rules, facts: &[Fact]) -> Vec<Next> {
        let mut next = self.clone();
        if at.step == 0 {
            next.tick = next.tick.max(tick);
            return vec![(next, Some(Progress { step: 1, mind: 0 }))];
        }
        if at.step == 2 {
            next.lose_with(at.mind, rules);
            return vec![(next, Some(Progress { step: 1, mind: 0 }))];
        }
        let mut all = vec![(next, None)];
        if let Some(life) = self.life
            && self.tick > life.heard + rules.ttl
        {
            let mut next = self.clone();
            if next.end(EndReason::Expired, rules, facts) {
                all.push((next, Some(Progress { step: 2, mind: life.incarnation })));
            }
        }
        if let Some(held) = self.held
            && held.granted
            && self.tick > held.until
        {
            let mut next = self.clone();
            next.end_lease(LeaseEnd::Expired);
            all.push((next, Some(Progress { step: 1, mind: 0 })));
        }
        all
    }

    /// An incarnation begins: a greater one than all before, in the state that the same process was told.
    fn begin(
        mut self,
        process: u8,
        heard: u64,
        answer: Option<u64>,
        rules: &Rules,
        facts: &[Fact],
    ) -> Vec<Next> {
        let Some(incarnation) = answer else { return vec![] };
        let told = self.remembered.take().filter(|&(of, ..)| of == process);
        let (state, cordoned) =
            told.map_or((WorkerState::Running, false), |(_, state, cordoned)| (state, cordoned));
        let grows = incarnation > self.last_incarnation;
        self.last_incarnation = incarnation;
        self.life = Some(Life { incarnation, process, state, cordoned, connections: 1, heard });
        // A state that was remembered while the policy remembers none would be a fault of this file.
        assert!(rules.remember || told.is_none());
        let told = self.tell(Fact::Joined(incarnation, state, cordoned), facts);
        if grows && told { vec![(self, None)] } else { vec![] }
    }

    /// The first half of a beat. What the beat itself says is left to the second.
    fn hear(mut self, says: WorkerState, answer: Option<WorkerState>, incarnation: u64) -> Vec<Next> {
        let Some(life) = &mut self.life else { return vec![] };
        life.heard = life.heard.max(self.tick);
        if says > life.state {
            vec![(self, Some(Progress { step: 1, mind: incarnation }))]
        } else if answer == Some(life.state) {
            vec![(self, None)]
        } else {
            vec![]
        }
    }

    /// The state advances, or is that already. For this incarnation only.
    fn say(
        mut self,
        state: WorkerState,
        answer: Option<WorkerState>,
        incarnation: u64,
        facts: &[Fact],
    ) -> Vec<Next> {
        let Some(life) = self.life.filter(|life| life.incarnation == incarnation) else {
            return refused(self, answer.is_none());
        };
        let after = life.state.max(state);
        self.life = Some(Life { state: after, ..life });
        let told = after == life.state || self.tell(Fact::Told(incarnation, after), facts);
        if told && answer == Some(after) { vec![(self, None)] } else { vec![] }
    }

    /// Asked whether the worker may hold work, entered under the id, and asked again where it counts.
    fn lease(mut self, at: Progress, incarnation: u64, answer: Granted, rules: &Rules) -> Vec<Next> {
        let refusal = match self.life {
            Some(life) if life.incarnation == incarnation => {
                if life.state > WorkerState::Running {
                    Some(Granted::Told(life.state))
                } else {
                    life.cordoned.then_some(Granted::Cordoned)
                }
            }
            _ => Some(Granted::Gone),
        };
        let go_on = |step, mind| Some(Progress { step, mind });
        match at.step {
            0 => match refusal {
                Some(refusal) => refused(self, refusal == answer),
                None => vec![(self.clone(), go_on(1, self.tick))],
            },
            1 => match (self.held, answer) {
                (Some(held), Granted::Held(token)) => {
                    refused(self, held.token.is_none_or(|held| held == token))
                }
                (Some(_), _) | (None, Granted::Held(_)) => vec![],
                (None, _) => {
                    let token = if let Granted::Token(token) = answer { Some(token) } else { None };
                    if token.is_some_and(|token| token <= self.last_token) {
                        return vec![];
                    }
                    self.last_token = token.unwrap_or(self.last_token);
                    let until = at.mind + rules.lease_ttl;
                    self.held = Some(Held { token, incarnation, granted: false, until });
                    vec![(self, go_on(2, 0))]
                }
            },
            2 => match (refusal, answer) {
                (None, Granted::Token(_)) => {
                    if let Some(held) = &mut self.held {
                        held.granted = true;
                    }
                    vec![(self, None)]
                }
                (Some(refusal), _) if refusal == answer => vec![(self, go_on(3, 0))],
                _ => vec![],
            },
            _ => {
                self.held = None;
                vec![(self, None)]
            }
        }
    }

    fn end_lease(&mut self, how: LeaseEnd) {
        if let Some(Held { token: Some(token), .. }) = self.held.take() {
            self.ended_leases.push((token, how));
        }
    }

    /// What an ended incarnation held ends with it, if that is the policy.
    fn lose_with(&mut self, incarnation: u64, rules: &Rules) {
        let its = self.held.is_some_and(|held| held.granted && held.incarnation == incarnation);
        if its && rules.recover == Recover::AtDeath {
            self.end_lease(LeaseEnd::HolderEnded);
        }
    }

    /// The worker ends. `false` if the event of that was not published.
    fn end(&mut self, reason: EndReason, rules: &Rules, facts: &[Fact]) -> bool {
        let Some(life) = self.life.take() else { return false };
        let kept = match reason {
            EndReason::Left => {
                life.state == WorkerState::Quiet || life.state == WorkerState::Running && life.cordoned
            }
            EndReason::Expired => life.state > WorkerState::Running || life.cordoned,
            _ => false,
        };
        self.remembered = (kept && rules.remember).then_some((life.process, life.state, life.cordoned));
        self.tell(Fact::Ended(life.incarnation, reason), facts)
    }

    /// The next published event must be this one.
    fn tell(&mut self, fact: Fact, facts: &[Fact]) -> bool {
        let told = facts.get(self.explained) == Some(&fact);
        self.explained += 1;
        told
    }
}

fn refused(spec: Spec, agrees: bool) -> Vec<Next> {
    if agrees { vec![(spec, None)] } else { vec![] }
}
