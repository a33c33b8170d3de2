//! Any sequence of operations agrees with a sequential model of the contract.

mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use common::model::{Connected, Fact, GAP, Model, TICK, TTL};
use common::{Closed, Happened, drain, now, registry};
use heartwheel::{
    Beat, ConnectError, Health, Hello, Identity, Incarnation, Registry, Session, Subscriber, WorkerState,
};
use proptest::prelude::*;

const WIDS: usize = 3;

#[derive(Clone, Copy, Debug)]
enum Op {
    Connect {
        wid: usize,
        process: usize,
    },
    BeatBySession {
        session: usize,
        rss: Option<u64>,
        says: WorkerState,
    },
    BeatByWid {
        wid: usize,
        rss: Option<u64>,
        says: WorkerState,
    },
    Signal {
        wid: usize,
        state: WorkerState,
    },
    SignalAll(WorkerState),
    Part(usize),
    /// Time goes on and nobody makes a pass.
    Wait(u64),
    /// Passes on every tick.
    Ticks(u64),
    /// The clock leaps, forward or backward, and one pass is made.
    Leap(i64),
    /// One slice, however much is left.
    Slice(usize),
}

fn state() -> impl Strategy<Value = WorkerState> {
    prop_oneof![2 => Just(WorkerState::Running), 2 => Just(WorkerState::Quiet), 1 => Just(WorkerState::Terminate)]
}

fn op() -> impl Strategy<Value = Op> {
    let rss = || prop::option::of(0_u64..3);
    prop_oneof![
        6 => (0..WIDS, 0_usize..2).prop_map(|(wid, process)| Op::Connect { wid, process }),
        4 => (any::<usize>(), rss(), state()).prop_map(|(session, rss, says)| Op::BeatBySession { session, rss, says }),
        3 => (0..WIDS, rss(), state()).prop_map(|(wid, rss, says)| Op::BeatByWid { wid, rss, says }),
        2 => (0..WIDS, state()).prop_map(|(wid, state)| Op::Signal { wid, state }),
        1 => state().prop_map(Op::SignalAll),
        5 => any::<usize>().prop_map(Op::Part),
        3 => prop_oneof![1_u64..TICK, Just(TICK), 1..GAP].prop_map(Op::Wait),
        5 => prop_oneof![1_u64..4, Just(TTL / TICK), Just(TTL / TICK + 1), Just(TTL / TICK + 2)].prop_map(Op::Ticks),
        2 => prop_oneof![Just(GAP as i64), Just(GAP as i64 + 1), 1..20 * TTL as i64, -2000_i64..0].prop_map(Op::Leap),
        2 => (0_usize..4).prop_map(Op::Slice),
    ]
}

fn identity() -> impl Strategy<Value = Identity> {
    prop::sample::select(vec![Identity::Share, Identity::Supersede, Identity::Reject])
}

fn name(wid: usize) -> String {
    format!("w{wid}")
}

struct Open {
    session: Session,
    wid: usize,
    connection: usize,
}

/// The registry beside the model.
struct Pair {
    registry: Registry,
    model: Model,
    start: std::time::Instant,
    subscriber: Subscriber,
    closed: Closed,
    open: Vec<Open>,
    /// The engine's number for each of the model's.
    incarnations: BTreeMap<usize, Incarnation>,
}

impl Pair {
    fn new(identity: Identity, remember: u64) -> Self {
        let registry = registry(|policy| {
            policy.identity = identity;
            policy.remember = Some(Duration::from_millis(remember * TICK));
            policy.gap = Some(Duration::from_millis(GAP));
        });
        let subscriber = registry.subscribe(100_000);
        let start = now() + Duration::from_secs(3600);
        let pair = Pair {
            registry,
            model: Model::new(identity, remember),
            start,
            subscriber,
            closed: Closed::default(),
            open: Vec::new(),
            incarnations: BTreeMap::new(),
        };
        let _ = pair.registry.reap(start, 10);
        pair
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Connect { wid, process } => self.connect(wid, process),
            Op::BeatBySession { session, rss, says } if !self.open.is_empty() => {
                let open = &self.open[session % self.open.len()];
                let (wid, number) = (open.wid, self.model.connections[open.connection].0);
                let mine = self.model.live.get(&wid).is_some_and(|life| life.number == number);
                let expected = if mine { self.model.beat(wid, rss, says) } else { None };
                assert_eq!(open.session.beat(&beat(rss, says)).ok(), expected);
            }
            Op::BeatByWid { wid, rss, says } => {
                let told = self.registry.beat(&name(wid), &beat(rss, says)).ok();
                assert_eq!(told, self.model.beat(wid, rss, says));
            }
            Op::Signal { wid, state } => {
                assert_eq!(self.registry.signal(&name(wid), state).ok(), self.model.signal(wid, state));
            }
            Op::SignalAll(state) => {
                assert_eq!(self.registry.signal_all(state), self.model.signal_all(state));
            }
            Op::Part(which) if !self.open.is_empty() => {
                let open = self.open.swap_remove(which % self.open.len());
                self.model.part(open.wid, open.connection);
                drop(open.session);
            }
            Op::BeatBySession { .. } | Op::Part(_) => {}
            Op::Wait(span) => self.model.real += span,
            Op::Ticks(count) => (0..count).for_each(|_| {
                self.model.real += TICK;
                self.pass(1 << 16, true);
            }),
            Op::Leap(span) => {
                self.model.real = self.model.real.saturating_add_signed(span);
                self.pass(3, true);
            }
            Op::Slice(budget) => self.pass(budget, false),
        }
    }

    fn connect(&mut self, wid: usize, process: usize) {
        let connection = self.model.connections.len();
        let hello = Hello::new(name(wid)).unwrap().hostname("app").pid(process as i64).label("blue");
        let connected = self.registry.connect(hello, self.closed.closer(connection));
        match (self.model.connect(wid, process), connected) {
            (Connected::To(number), Ok(session)) => {
                let known = *self.incarnations.entry(number).or_insert(session.incarnation());
                assert_eq!(session.incarnation(), known);
                self.open.push(Open { session, wid, connection });
            }
            (Connected::Conflict(holder), Err(error)) => {
                let (wid, hostname) = (name(wid).parse().unwrap(), "app".to_owned());
                assert_eq!(error, ConnectError::Conflict { wid, hostname, pid: Some(holder as i64) });
            }
            (expected, got) => panic!("expected {expected:?}, got {got:?}"),
        }
    }

    /// Passes at the present instant; to the end, or one slice.
    fn pass(&mut self, budget: usize, to_the_end: bool) {
        let somebody = !self.model.live.is_empty();
        // One that joined since the last pass may be nobody yet to it.
        let somebody_filed = somebody && self.registry.stats().filed > 0;
        let mut gap = self.model.pass();
        let now = self.start + Duration::from_millis(self.model.real);
        for _ in 0..10_000 {
            let pass = self.registry.reap(now, budget);
            assert!(pass.gap.is_none() || pass.gap == gap);
            assert!(pass.gap == gap || !somebody_filed, "a pause was not noticed");
            gap = None;
            let live: Vec<_> = self.model.live.keys().copied().collect();
            let gone: Vec<_> =
                live.into_iter().filter(|&wid| self.registry.get(&name(wid)).is_none()).collect();
            assert_eq!(pass.expired, gone.len());
            for wid in gone {
                assert!(!self.model.must_live(wid), "{wid} was reaped early");
                self.model.end(wid, heartwheel::EndReason::Expired);
            }
            pass.hangups.into_iter().for_each(|hangup| assert!(hangup.run()));
            if !pass.more {
                for &wid in self.model.live.keys() {
                    assert!(!self.model.must_be_gone(wid), "{wid} was not reaped");
                }
                return;
            }
            if !to_the_end {
                return;
            }
        }
        panic!("passes do not come to an end");
    }

    /// All that can be read is as in the model.
    fn agree(&self) {
        let tick = |ticks| Duration::from_millis(ticks * TICK);
        let (model, stats) = (&self.model, self.registry.stats());
        let with = |state| model.live.values().filter(|life| life.state == state).count();
        assert_eq!(
            (stats.running, stats.quiet, stats.terminate),
            (with(WorkerState::Running), with(WorkerState::Quiet), with(WorkerState::Terminate))
        );
        assert_eq!(stats.connections, model.live.values().map(|life| life.open.len()).sum::<usize>());
        let sums = model.sums;
        assert_eq!(
            (stats.joined, stats.left, stats.expired, stats.superseded),
            (sums.joined, sums.left, sums.expired, sums.superseded)
        );
        assert_eq!(stats.uptime, tick(model.tick()));
        assert_eq!(stats.not_remembered, 0);

        for wid in 0..WIDS {
            let (got, life) = (self.registry.get(&name(wid)), model.live.get(&wid));
            assert_eq!(got.is_some(), life.is_some(), "{wid}");
            let (Some(got), Some(life)) = (got, life) else { continue };
            let age = tick(model.tick() - life.heard);
            assert_eq!((got.state(), got.age()), (life.state, age));
            assert_eq!((got.connected_for(), got.beats()), (tick(model.tick() - life.since), life.beats));
            assert_eq!((got.rss_kb(), got.connections() as usize), (life.rss, life.open.len()));
            assert_eq!(got.health() == Health::Late, age > Duration::from_millis(TTL / 2));
            assert_eq!(got.incarnation(), self.incarnations[&life.number]);
            assert_eq!((got.hostname(), got.pid()), ("app", Some(life.process as i64)));
        }
        let mut expected: Vec<_> = model.live.iter().collect();
        expected.sort_by_key(|(_, life)| life.number);
        let expected: Vec<_> =
            expected.iter().map(|&(&wid, life)| (name(wid), life.state, life.open.len())).collect();
        let snapshot = self.registry.snapshot();
        let got: Vec<_> = snapshot
            .workers()
            .iter()
            .map(|worker| (worker.wid().to_string(), worker.state(), worker.connections() as usize))
            .collect();
        assert_eq!(got, expected);

        for open in &self.open {
            let number = model.connections[open.connection].0;
            let life = model.live.get(&open.wid).filter(|life| life.number == number);
            assert_eq!(open.session.state().ok(), life.map(|life| life.state));
        }
    }

    fn remembered_agrees(&self) {
        let (least, most) = self.model.remembered();
        let remembered = self.registry.stats().remembered;
        assert!((least..=most).contains(&remembered), "{remembered} of {least} to {most}");
    }

    /// The events of each wid, the order of incarnations, and every connection closed once or never.
    fn history_agrees(&self) {
        assert!(self.incarnations.values().is_sorted_by(|a, b| a < b), "incarnations grow");
        let numbers: BTreeMap<_, _> =
            self.incarnations.iter().map(|(number, known)| (*known, *number)).collect();
        let mut facts: BTreeMap<usize, Vec<Fact>> = BTreeMap::new();
        for happened in drain(&self.subscriber) {
            let (wid, fact) = match happened {
                Happened::Joined { wid, incarnation, state } => {
                    (wid, Fact::Joined(numbers[&incarnation], state))
                }
                Happened::Told { wid, incarnation, state } => (wid, Fact::Told(numbers[&incarnation], state)),
                Happened::Ended { wid, incarnation, state, reason, connections } => {
                    (wid, Fact::Ended(numbers[&incarnation], state, reason, connections))
                }
                Happened::Gap(_) => continue,
            };
            facts.entry(wid[1..].parse().unwrap()).or_default().push(fact);
        }
        assert_eq!(facts, self.model.facts);
        let closed: Vec<_> = (0..)
            .zip(&self.model.connections)
            .filter_map(|(connection, &(_, reason))| Some((connection, reason?)))
            .collect();
        assert_eq!(self.closed.all(), closed);
    }
}

fn beat(rss: Option<u64>, says: WorkerState) -> Beat {
    let beat = Beat::default().state(says);
    rss.map_or(beat, |rss| beat.rss_kb(rss))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn any_sequence_agrees_with_the_model(
        identity in identity(),
        remember in prop::sample::select(vec![0_u64, 1, 5, 10, 40]),
        ops in prop::collection::vec(op(), 1..80),
    ) {
        let mut pair = Pair::new(identity, remember);
        for op in ops {
            let to_the_end = matches!(op, Op::Ticks(_));
            pair.apply(&op);
            pair.agree();
            if to_the_end {
                pair.remembered_agrees();
            }
        }
        // Everyone goes silent: all that is open then ends once.
        pair.apply(&Op::Ticks(TTL / TICK + 10));
        pair.agree();
        pair.history_agrees();
    }
}
