//! Any sequence of what holders, the fleet's owner and time can do, against a sequential model of leases.

mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use common::{Driven, TICK, TTL, events, join};
use heartwheel::{Beat, Event, Lease, LeaseEnd, LeaseError, Recover, Session, WorkerState};
use proptest::prelude::*;

const WORKERS: usize = 3;
const IDS: usize = 4;

#[derive(Clone, Debug)]
enum Op {
    /// A pass after so many halves of a tick, with beats of those in the mask or none.
    Pass(u32),
    Beat(usize),
    Lease {
        worker: usize,
        id: usize,
        halves: u32,
        recover: Recover,
    },
    Renew {
        id: usize,
        halves: u32,
    },
    End {
        id: usize,
        how: LeaseEnd,
    },
    /// The last handle but one of that item tries all it can.
    Stale(usize),
    Leave(usize),
    Signal(usize, WorkerState),
    Cordon(usize, bool),
}

fn op() -> impl Strategy<Value = Op> {
    let recover = prop_oneof![Just(Recover::AtDeath), Just(Recover::AtExpiry)];
    let how = prop_oneof![Just(LeaseEnd::Completed), Just(LeaseEnd::Failed), Just(LeaseEnd::Released)];
    let state = prop_oneof![4 => Just(WorkerState::Running), 1 => Just(WorkerState::Quiet), 1 => Just(WorkerState::Terminate)];
    prop_oneof![
        8 => (1..6u32).prop_map(Op::Pass),
        1 => (6..40u32).prop_map(Op::Pass),
        8 => (0..WORKERS).prop_map(Op::Beat),
        8 => (0..WORKERS, 0..IDS, 2..60u32, recover)
            .prop_map(|(worker, id, halves, recover)| Op::Lease { worker, id, halves, recover }),
        3 => (0..IDS, 2..60u32).prop_map(|(id, halves)| Op::Renew { id, halves }),
        2 => (0..IDS, how).prop_map(|(id, how)| Op::End { id, how }),
        1 => (0..IDS).prop_map(Op::Stale),
        1 => (0..WORKERS).prop_map(Op::Leave),
        1 => (0..WORKERS, state).prop_map(|(worker, state)| Op::Signal(worker, state)),
        2 => (0..WORKERS, any::<bool>()).prop_map(|(worker, cordoned)| Op::Cordon(worker, cordoned)),
    ]
}

struct Held {
    lease: Lease,
    worker: usize,
    incarnation: u64,
    recover: Recover,
    /// Engine time in halves of a tick at which it was granted or renewed, and for how long.
    from: u32,
    halves: u32,
}

struct World {
    driven: Driven,
    subscriber: heartwheel::Subscriber,
    sessions: Vec<Option<Session>>,
    held: BTreeMap<usize, Held>,
    stale: BTreeMap<usize, Lease>,
    told: [WorkerState; WORKERS],
    cordoned: [bool; WORKERS],
    /// Engine time in halves of a tick, pauses left out.
    time: u32,
    slowest: u32,
    token: u64,
    ended: BTreeMap<&'static str, u64>,
}

fn name(how: LeaseEnd) -> &'static str {
    match how {
        LeaseEnd::Completed => "completed",
        LeaseEnd::Failed => "failed",
        LeaseEnd::Released => "released",
        LeaseEnd::Expired => "expired",
        _ => "holder",
    }
}

impl World {
    fn new() -> Self {
        let driven = Driven::new(|policy| {
            policy.late_after = Some(TTL);
            policy.remember = Some(Duration::ZERO);
        });
        World {
            subscriber: driven.registry.subscribe(1 << 16),
            driven,
            sessions: (0..WORKERS).map(|_| None).collect(),
            held: BTreeMap::new(),
            stale: BTreeMap::new(),
            told: Default::default(),
            cordoned: Default::default(),
            time: 0,
            slowest: 2,
            token: 0,
            ended: BTreeMap::new(),
        }
    }

    fn session(&mut self, worker: usize) -> &Session {
        if self.sessions[worker].as_ref().is_none_or(|session| session.state().is_err()) {
            (self.told[worker], self.cordoned[worker]) = (WorkerState::Running, false);
            self.sessions[worker] = Some(join(&self.driven.registry, &format!("w{worker}")));
        }
        self.sessions[worker].as_ref().unwrap()
    }

    fn over(&mut self, id: usize, how: LeaseEnd) {
        let held = self.held.remove(&id).expect("it was held");
        assert!(!held.lease.is_held());
        assert_eq!(held.lease.complete().unwrap_err().how, how);
        *self.ended.entry(name(how)).or_default() += 1;
        self.stale.insert(id, held.lease);
    }

    fn run(&mut self, op: &Op) {
        match *op {
            Op::Pass(halves) => {
                self.driven.at += TICK / 2 * halves;
                if halves <= 20 {
                    self.time += halves;
                    self.slowest = self.slowest.max(halves);
                }
                self.driven.settle();
            }
            Op::Beat(worker) => drop(self.session(worker).beat(&Beat::default()).unwrap()),
            Op::Lease { worker, id, halves, recover } => {
                let session = self.session(worker);
                let incarnation = session.incarnation().get();
                let got = session.lease_with(&format!("id{id}"), TICK / 2 * halves, recover);
                match got {
                    Ok(lease) => {
                        assert!(!self.cordoned[worker] && self.told[worker] == WorkerState::Running);
                        assert!(lease.token().get() > self.token, "tokens grow");
                        self.token = lease.token().get();
                        let from = self.time;
                        let held = Held { lease, worker, incarnation, recover, from, halves };
                        assert!(self.held.insert(id, held).is_none(), "two hold it");
                    }
                    Err(LeaseError::Held(by)) => assert_eq!(by, self.held[&id].lease.info()),
                    Err(LeaseError::Told(state)) => {
                        assert_eq!(state, self.told[worker]);
                        assert_ne!(state, WorkerState::Running);
                    }
                    Err(LeaseError::Cordoned) => assert!(self.cordoned[worker]),
                    Err(error) => panic!("{error}"),
                }
            }
            Op::Renew { id, halves } => {
                if let Some(held) = self.held.get_mut(&id) {
                    let info = held.lease.info();
                    let holder = self.driven.registry.get(info.wid.as_str());
                    let lives = holder.is_some_and(|worker| worker.incarnation() == info.incarnation);
                    match held.lease.renew(TICK / 2 * halves) {
                        Ok(()) => (held.from, held.halves) = (self.time, halves),
                        Err(error) => assert_eq!((error, lives), (LeaseError::Gone, false)),
                    }
                }
            }
            Op::End { id, how } => {
                if let Some(held) = self.held.get(&id) {
                    match how {
                        LeaseEnd::Completed => held.lease.complete().unwrap(),
                        LeaseEnd::Failed => held.lease.fail().unwrap(),
                        _ => held.lease.release().unwrap(),
                    }
                    self.over(id, how);
                }
            }
            Op::Stale(id) => {
                if let Some(stale) = self.stale.get(&id) {
                    let now = self.held.get(&id).map(|held| held.lease.info());
                    assert_eq!(stale.complete().unwrap_err().now, now);
                    assert!(stale.renew(TTL).is_err() && stale.fail().is_err() && stale.release().is_err());
                }
            }
            Op::Leave(worker) => self.sessions[worker] = None,
            Op::Signal(worker, state) => {
                self.session(worker);
                self.told[worker] = self.driven.registry.signal(&format!("w{worker}"), state).unwrap();
                assert!(self.told[worker] >= state);
            }
            Op::Cordon(worker, cordoned) => {
                self.session(worker);
                let changed = self.driven.registry.cordon(&format!("w{worker}"), cordoned).unwrap();
                assert_eq!(changed, self.cordoned[worker] != cordoned);
                self.cordoned[worker] = cordoned;
            }
        }
        self.hear();
        self.check();
    }

    /// What was lost, by the events.
    fn hear(&mut self) {
        let mut dead = BTreeMap::new();
        for event in events(&self.subscriber) {
            match event {
                Event::Ended(ended) => drop(dead.insert(ended.worker.incarnation().get(), false)),
                Event::Lost(lost) => {
                    let ids: Vec<usize> =
                        lost.leases.iter().map(|lease| lease.id[2..].parse().unwrap()).collect();
                    for (id, info) in ids.iter().zip(&*lost.leases) {
                        assert_eq!(*info, self.held[id].lease.info());
                    }
                    if lost.how == LeaseEnd::Expired {
                        for held in ids.iter().map(|id| &self.held[id]) {
                            assert!(self.time >= held.from + held.halves, "early");
                        }
                    } else {
                        let told = dead.insert(lost.incarnation.get(), true);
                        assert_eq!(told, Some(false), "once, and after the end");
                        let all = self.held.iter().filter(|(_, held)| {
                            held.incarnation == lost.incarnation.get() && held.recover == Recover::AtDeath
                        });
                        let mut all: Vec<_> = all.map(|(&id, held)| (held.lease.token(), id)).collect();
                        all.sort_unstable();
                        assert_eq!(
                            ids,
                            all.into_iter().map(|(_, id)| id).collect::<Vec<_>>(),
                            "all, in order"
                        );
                    }
                    ids.into_iter().for_each(|id| self.over(id, lost.how));
                }
                _ => {}
            }
        }
    }

    fn check(&self) {
        for (id, held) in &self.held {
            assert!(held.lease.is_held(), "it ended unheard of");
            // A tick for where it began within one, one for what was cut off, and what the driver was late.
            let latest = held.from + held.halves + 3 + 2 * self.slowest;
            assert!(self.time <= latest, "late: {id} at {} of {latest}", self.time);
            let live = self.sessions[held.worker]
                .as_ref()
                .filter(|session| session.incarnation().get() == held.incarnation && session.state().is_ok());
            assert!(live.is_some() || held.recover == Recover::AtExpiry, "it outlived its holder");
            let found = live.map(|session| session.held(&format!("id{id}")).map(|lease| lease.token()));
            assert!(found.is_none_or(|found| found == Some(held.lease.token())));
        }
        let stats = self.driven.registry.stats();
        assert_eq!(stats.leases, self.held.len());
        assert_eq!(self.driven.registry.leases().len(), self.held.len());
        let ended = |how| self.ended.get(how).copied().unwrap_or(0);
        assert_eq!(
            [stats.leases_completed, stats.leases_failed, stats.leases_released],
            ["completed", "failed", "released"].map(ended)
        );
        assert_eq!([stats.leases_expired, stats.leases_lost_with_holder], ["expired", "holder"].map(ended));
        for worker in (0..WORKERS).filter_map(|n| self.driven.registry.get(&format!("w{n}"))) {
            let holds =
                self.held.values().filter(|held| held.incarnation == worker.incarnation().get()).count();
            assert_eq!(worker.leases() as usize, holds);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn a_registry_answers_as_the_model_does(ops in proptest::collection::vec(op(), 1..120)) {
        let mut world = World::new();
        for op in ops {
            world.run(&op);
        }
        // In the end nothing is left of anything.
        world.sessions.fill_with(|| None);
        (0..80).for_each(|_| world.run(&Op::Pass(2)));
        prop_assert_eq!(world.driven.registry.stats().filed, 0);
        prop_assert!(world.held.is_empty());
    }
}
