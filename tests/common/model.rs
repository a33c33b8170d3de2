//! The sequential model: what a registry must answer, from the design's table and the documentation of the public API. One
//! operation at a time, no wheel, no atomics, everything looked through.
//!
//! Time is in milliseconds. `real` is the made-up clock; `engine` is the engine's time, from which pauses are left out; ticks are
//! whole ticks of it as of the last pass.

use std::collections::BTreeMap;
use std::time::Duration;

use heartwheel::{EndReason, Identity, WorkerState};

pub(crate) const TICK: u64 = 100;
pub(crate) const TTL: u64 = 1000;
pub(crate) const GAP: u64 = 500;

/// What happened to one wid, in order; incarnations by their number in the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fact {
    Joined(usize, WorkerState),
    Told(usize, WorkerState),
    Ended(usize, WorkerState, EndReason, u32),
}

#[derive(Clone, Debug)]
pub(crate) struct Life {
    pub(crate) number: usize,
    pub(crate) process: usize,
    pub(crate) state: WorkerState,
    pub(crate) open: Vec<usize>,
    pub(crate) rss: Option<u64>,
    /// Ticks it was heard in after its HELLO.
    pub(crate) beats: u64,
    /// The tick of the last beat, and the real time of it.
    pub(crate) heard: u64,
    heard_real: u64,
    pub(crate) since: u64,
}

#[derive(Clone, Debug)]
struct Memory {
    process: usize,
    state: WorkerState,
    ended: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    pub(crate) joined: u64,
    pub(crate) left: u64,
    pub(crate) expired: u64,
    pub(crate) superseded: u64,
}

/// What a connect came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Connected {
    /// In the incarnation of this number.
    To(usize),
    /// Refused: held by this process.
    Conflict(usize),
}

#[derive(Debug)]
pub(crate) struct Model {
    identity: Identity,
    /// In ticks.
    remember: u64,
    pub(crate) live: BTreeMap<usize, Life>,
    remembered: BTreeMap<usize, Memory>,
    pub(crate) facts: BTreeMap<usize, Vec<Fact>>,
    /// The incarnation that each connection belongs to, and the reason for which it was closed from outside.
    pub(crate) connections: Vec<(usize, Option<EndReason>)>,
    pub(crate) sums: Sums,
    next: usize,
    pub(crate) real: u64,
    last_pass: u64,
    engine: u64,
    /// The longest distance of two passes, in ticks, that was no pause.
    slowest: u64,
}

impl Model {
    pub(crate) fn new(identity: Identity, remember: u64) -> Self {
        Model {
            identity,
            remember,
            live: BTreeMap::new(),
            remembered: BTreeMap::new(),
            facts: BTreeMap::new(),
            connections: Vec::new(),
            sums: Sums::default(),
            next: 0,
            real: 0,
            last_pass: 0,
            engine: 0,
            slowest: 1,
        }
    }

    pub(crate) fn tick(&self) -> u64 {
        self.engine / TICK
    }

    fn tell_fact(&mut self, wid: usize, fact: Fact) {
        self.facts.entry(wid).or_default().push(fact);
    }

    pub(crate) fn connect(&mut self, wid: usize, process: usize) -> Connected {
        if let Some(life) = self.live.get(&wid)
            && life.process != process
        {
            match self.identity {
                Identity::Reject => return Connected::Conflict(life.process),
                Identity::Supersede => self.end(wid, EndReason::Superseded),
                _ => {}
            }
        }
        let connection = self.connections.len();
        let (tick, real) = (self.tick(), self.real);
        if !self.live.contains_key(&wid) {
            let memory = self.remembered.remove(&wid);
            let state = memory
                .filter(|memory| memory.process == process && tick - memory.ended <= self.remember)
                .map_or(WorkerState::Running, |memory| memory.state);
            let life = Life {
                number: self.next,
                process,
                state,
                open: Vec::new(),
                rss: None,
                beats: 0,
                heard: tick,
                heard_real: real,
                since: tick,
            };
            self.next += 1;
            self.sums.joined += 1;
            self.tell_fact(wid, Fact::Joined(life.number, state));
            self.live.insert(wid, life);
        }
        self.hear(wid);
        let life = self.live.get_mut(&wid).expect("it was just made sure of");
        life.open.push(connection);
        self.connections.push((life.number, None));
        Connected::To(life.number)
    }

    fn hear(&mut self, wid: usize) {
        let (tick, real) = (self.tick(), self.real);
        if let Some(life) = self.live.get_mut(&wid) {
            life.beats += u64::from(tick > life.heard);
            (life.heard, life.heard_real) = (tick, real);
        }
    }

    /// `None`: unknown.
    pub(crate) fn beat(&mut self, wid: usize, rss: Option<u64>, says: WorkerState) -> Option<WorkerState> {
        self.hear(wid);
        let life = self.live.get_mut(&wid)?;
        life.rss = rss.or(life.rss);
        self.signal(wid, says)
    }

    pub(crate) fn signal(&mut self, wid: usize, state: WorkerState) -> Option<WorkerState> {
        let life = self.live.get_mut(&wid)?;
        if state > life.state {
            life.state = state;
            let fact = Fact::Told(life.number, state);
            self.tell_fact(wid, fact);
        }
        self.live.get(&wid).map(|life| life.state)
    }

    pub(crate) fn signal_all(&mut self, state: WorkerState) -> usize {
        let wids: Vec<_> = self.live.keys().copied().collect();
        for &wid in &wids {
            self.signal(wid, state);
        }
        wids.len()
    }

    /// A connection is dropped by its own side.
    pub(crate) fn part(&mut self, wid: usize, connection: usize) {
        if let Some(life) = self.live.get_mut(&wid)
            && let Some(at) = life.open.iter().position(|&open| open == connection)
        {
            life.open.remove(at);
            if life.open.is_empty() {
                self.end(wid, EndReason::Left);
            }
        }
    }

    pub(crate) fn end(&mut self, wid: usize, reason: EndReason) {
        let Some(life) = self.live.remove(&wid) else { return };
        let open = u32::try_from(life.open.len()).expect("few");
        self.tell_fact(wid, Fact::Ended(life.number, life.state, reason, open));
        for connection in life.open {
            self.connections[connection].1 = Some(reason);
        }
        // Some say HELLO again at once; a terminated one that leaves in order begins anew.
        let (count, kept) = match reason {
            EndReason::Left => (&mut self.sums.left, life.state == WorkerState::Quiet),
            EndReason::Expired => (&mut self.sums.expired, life.state > WorkerState::Running),
            _ => (&mut self.sums.superseded, false),
        };
        *count += 1;
        if kept && self.remember > 0 {
            let memory = Memory { process: life.process, state: life.state, ended: self.tick() };
            self.remembered.insert(wid, memory);
        }
    }

    /// A pass at the present instant; returns the pause that it must notice.
    pub(crate) fn pass(&mut self) -> Option<Duration> {
        let passed = self.real.saturating_sub(self.last_pass);
        self.last_pass = self.last_pass.max(self.real);
        // A clock that went backward has said nothing of when that beat was.
        for life in self.live.values_mut() {
            life.heard_real = life.heard_real.min(self.last_pass);
        }
        if passed > GAP {
            return Some(Duration::from_millis(passed));
        }
        let before = self.tick();
        self.engine += passed;
        self.slowest = self.slowest.max(self.tick() - before);
        None
    }

    /// Nobody may reap it yet: in real time a ttl has not passed since its last beat, or in the engine's time it has not.
    pub(crate) fn must_live(&self, wid: usize) -> bool {
        let life = &self.live[&wid];
        self.last_pass < life.heard_real + TTL || self.tick() < life.heard + 1 + TTL / TICK
    }

    /// A pass that had nothing left to do must have reaped it.
    pub(crate) fn must_be_gone(&self, wid: usize) -> bool {
        self.tick() > self.live[&wid].heard + TTL / TICK + self.slowest
    }

    /// How many states are remembered, at least and at most: when exactly one is let go of is the engine's affair.
    pub(crate) fn remembered(&self) -> (usize, usize) {
        let within = |more: u64| {
            let kept = |memory: &&Memory| self.tick() - memory.ended <= self.remember + more;
            self.remembered.values().filter(kept).count()
        };
        (within(0), within(2 + self.slowest))
    }
}
