//! Nobody is forgotten in the wheel: whatever is done to ttls, deadlines, policies and time, in whatever slices the driver works, every
//! worker ends when it must, and no earlier.

mod common;

use std::time::Duration;

use common::{Driven, TICK, join};
use heartwheel::{Beat, Overdue, Session, WorkerState};
use proptest::prelude::*;

const WORKERS: usize = 6;

#[derive(Clone, Debug)]
enum Op {
    /// Passes after so many ticks, of this budget, at most so many of them before other things happen.
    Pass {
        ticks: u32,
        budget: usize,
        passes: usize,
    },
    Beat(usize),
    Ttl(usize, Option<u32>),
    Within(usize, WorkerState, u32),
    Policy {
        ttl: u32,
        late_after: u32,
    },
    Lease(usize, u32),
    Cordon(usize),
}

fn op() -> impl Strategy<Value = Op> {
    let worker = 0..WORKERS;
    let state = prop_oneof![Just(WorkerState::Quiet), Just(WorkerState::Terminate)];
    prop_oneof![
        8 => (0..10u32, 2..20usize, 1..12usize)
            .prop_map(|(ticks, budget, passes)| Op::Pass { ticks, budget, passes }),
        1 => (10..90u32, 2..9usize, 1..12usize)
            .prop_map(|(ticks, budget, passes)| Op::Pass { ticks, budget, passes }),
        8 => worker.clone().prop_map(Op::Beat),
        3 => (worker.clone(), proptest::option::of(1..200u32)).prop_map(|(worker, ttl)| Op::Ttl(worker, ttl)),
        2 => (worker.clone(), state, 1..150u32).prop_map(|(worker, state, grace)| Op::Within(worker, state, grace)),
        2 => (1..150u32, 0..150u32)
            .prop_map(|(ttl, late)| Op::Policy { ttl, late_after: late.min(ttl) }),
        2 => (worker.clone(), 1..100u32).prop_map(|(worker, ttl)| Op::Lease(worker, ttl)),
        1 => worker.prop_map(Op::Cordon),
    ]
}

struct Watched {
    session: Session,
    /// Engine time in ticks of its last beat.
    heard: u32,
    own: Option<u32>,
    /// When it must have done what it was told.
    deadline: Option<u32>,
    live: bool,
}

struct World {
    driven: Driven,
    workers: Vec<Watched>,
    ttl: u32,
    late_after: u32,
    /// Engine time in ticks, pauses left out.
    time: u32,
    /// Of the longest step since the beginning.
    slowest: u32,
}

impl World {
    fn new() -> Self {
        let driven = Driven::new(|policy| {
            (policy.ttl, policy.late_after) = (100 * TICK, Some(50 * TICK));
            policy.remember = Some(Duration::ZERO);
        });
        let watched = |n| Watched {
            session: join(&driven.registry, &format!("w{n}")),
            heard: 0,
            own: None,
            deadline: None,
            live: true,
        };
        let workers = (0..WORKERS).map(watched).collect();
        World { driven, workers, ttl: 100, late_after: 50, time: 0, slowest: 1 }
    }

    fn run(&mut self, op: &Op) {
        match *op {
            Op::Pass { ticks, budget, passes } => {
                self.driven.at += TICK * ticks;
                if ticks <= 10 {
                    self.time += ticks;
                    self.slowest = self.slowest.max(ticks);
                }
                let done = (0..passes).any(|_| !self.driven.pass(budget).more);
                self.check(done);
            }
            Op::Beat(worker) => {
                let watched = &mut self.workers[worker];
                let live = watched.session.beat(&Beat::default()).is_ok();
                assert_eq!(live, watched.live);
                watched.heard = self.time;
            }
            Op::Ttl(worker, own) => {
                let watched = &mut self.workers[worker];
                let set = watched.session.set_ttl(own.map(|ttl| TICK * ttl));
                assert_eq!(set.is_ok(), watched.live);
                watched.own = own;
            }
            Op::Within(worker, state, grace) => {
                let wid = format!("w{worker}");
                let told = self.driven.registry.signal_within(&wid, state, TICK * grace, Overdue::End);
                assert_eq!(told.is_ok(), self.workers[worker].live);
                self.workers[worker].deadline = Some(self.time + grace);
            }
            Op::Policy { ttl, late_after } => {
                let mut policy = (*self.driven.registry.policy()).clone();
                (policy.ttl, policy.late_after) = (TICK * ttl, Some(TICK * late_after));
                self.driven.registry.set_policy(policy).unwrap();
                (self.ttl, self.late_after) = (ttl, late_after);
            }
            Op::Lease(worker, ttl) => {
                let _ = self.workers[worker].session.lease(&format!("{}", self.time), TICK * ttl);
            }
            Op::Cordon(worker) => drop(self.driven.registry.cordon(&format!("w{worker}"), true)),
        }
    }

    /// After a pass; `done` when it had nothing left to do.
    fn check(&mut self, done: bool) {
        let slack = 1 + self.slowest;
        for (n, watched) in self.workers.iter_mut().enumerate().filter(|(_, watched)| watched.live) {
            let expiry = watched.heard + watched.own.unwrap_or(self.ttl);
            let info = self.driven.registry.get(&format!("w{n}"));
            let Some(info) = info else {
                let overdue = watched.deadline.is_some_and(|deadline| self.time >= deadline);
                assert!(self.time > expiry || overdue, "w{n} ended early: {} of {expiry}", self.time);
                watched.live = false;
                continue;
            };
            if !done {
                continue;
            }
            assert!(self.time <= expiry + slack, "w{n} was forgotten: {} of {expiry}", self.time);
            if let Some(deadline) = watched.deadline.filter(|deadline| self.time > deadline + slack) {
                let drained = info.state() == WorkerState::Quiet;
                assert!(drained, "a deadline of w{n} was forgotten: {} of {deadline}", self.time);
            }
        }
        if done {
            let late = self.workers.iter().filter(|watched| watched.live);
            let late = late.filter(|watched| self.time > watched.heard + self.late_after + slack).count();
            assert!(self.driven.registry.stats().late >= late, "a silence was forgotten");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn every_worker_ends_at_its_time_and_not_before(ops in proptest::collection::vec(op(), 1..150)) {
        let mut world = World::new();
        for op in &ops {
            world.run(op);
        }
        for _ in 0..400 {
            world.run(&Op::Pass { ticks: 1, budget: 1000, passes: 1000 });
        }
        prop_assert_eq!(world.driven.registry.stats().live(), 0);
        prop_assert_eq!(world.driven.registry.stats().late, 0);
        prop_assert_eq!(world.driven.registry.stats().filed, 0);
    }
}
