//! Many leases of one worker, against a plain list.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::clock;
use crate::lease::Lease;
use crate::policy::Policy;
use crate::registry::Registry;
use crate::sync::{Sum as _, lock};
use crate::{Hello, Recover};

const TICK: Duration = Duration::from_millis(100);

#[derive(Clone, Debug)]
enum Op {
    /// So many, of so many ticks and more.
    Lease(usize, u32),
    /// From so far back in the list.
    Complete(prop::sample::Index),
    Renew(prop::sample::Index, u32),
    Tick(u32),
    /// All but so many of the newest are completed, in this order.
    Drain(usize, bool),
}

fn op() -> impl Strategy<Value = Op> {
    let ticks = || prop_oneof![1..20u32, 1..400u32];
    prop_oneof![
        4 => (1..40usize, ticks()).prop_map(|(count, ticks)| Op::Lease(count, ticks)),
        4 => any::<prop::sample::Index>().prop_map(Op::Complete),
        4 => (any::<prop::sample::Index>(), ticks()).prop_map(|(index, ticks)| Op::Renew(index, ticks)),
        4 => (1..8u32).prop_map(Op::Tick),
        1 => (0..4usize, any::<bool>()).prop_map(|(left, backward)| Op::Drain(left, backward)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(150) })]

    #[test]
    fn it_holds_what_a_list_holds_and_nothing_runs_out_unseen(ops in prop::collection::vec(op(), 1..60)) {
        let policy = Policy { tick: TICK, ttl: Duration::from_secs(3600), ..Policy::default() };
        let registry = Registry::new(policy).unwrap();
        let session = registry.connect(Hello::new("w").unwrap(), |_| {}).unwrap();
        let engine = registry.engine();
        let worker = engine.workers.get("w").unwrap().worker.clone();
        let start = clock::now();
        let _ = registry.reap(start, usize::MAX);
        // Each lease with the tick it runs to, the oldest first.
        let mut list: Vec<(Lease, u64)> = Vec::new();
        let (mut ticks, mut named) = (0, 0);
        for op in ops {
            match op {
                Op::Lease(count, first) => for n in 0..count {
                    let ttl = u64::from(first) + n as u64;
                    named += 1;
                    let recover = if n % 2 == 0 { Recover::AtDeath } else { Recover::AtExpiry };
                    let ttl_span = clock::span(ttl, TICK);
                    list.push((session.lease_with(&named.to_string(), ttl_span, recover).unwrap(), ticks + ttl));
                },
                Op::Complete(index) if !list.is_empty() => list.remove(index.index(list.len())).0.complete().unwrap(),
                Op::Renew(index, ttl) if !list.is_empty() => {
                    let at = index.index(list.len());
                    list[at].0.renew(TICK * ttl).unwrap();
                    list[at].1 = ticks + u64::from(ttl);
                }
                Op::Complete(_) | Op::Renew(..) => {}
                Op::Drain(left, backward) => {
                    let left = left.min(list.len());
                    let mut gone: Vec<_> = list.drain(..list.len() - left).collect();
                    if backward {
                        gone.reverse();
                    }
                    gone.iter().for_each(|(lease, _)| lease.complete().unwrap());
                }
                Op::Tick(count) => for _ in 0..count {
                    ticks += 1;
                    let _ = registry.reap(start + clock::span(ticks, TICK), usize::MAX);
                    // The published time lags by two ticks at the most, when every tick has its pass.
                    list.retain(|(lease, until)| {
                        let held = lease.is_held();
                        assert_eq!(held, ticks < until + 2, "at {ticks}, until {until}");
                        held
                    });
                },
            }
            prop_assert_eq!(engine.counters.ended_holders.get(), 0);
            let mut cold = lock(&worker.cold);
            let holding = &mut cold.work().leases;
            let held: Vec<_> = holding.iter().map(|cell| cell.token()).collect();
            prop_assert_eq!(held, list.iter().map(|(lease, _)| lease.token()).collect::<Vec<_>>());
            prop_assert_eq!(holding.len(), list.len());
            prop_assert_eq!(holding.oldest().map(|cell| cell.token()), list.first().map(|(lease, _)| lease.token()));
            let first = list.iter().map(|&(_, until)| until).min();
            prop_assert!(first.is_none_or(|first| holding.first_due().is_some_and(|due| due <= first)));
            prop_assert!(holding.filed.len() <= 2 * list.len() + SPARE + 1, "{}", holding.filed.len());
            prop_assert!(holding.slots.capacity() <= 2 * (4 * list.len() + SPARE).max(8), "{}", holding.slots.capacity());
        }
        // The holder goes; what may outlive it does, and then its entry goes, too.
        drop(session);
        list.retain(|(lease, _)| lease.is_held());
        prop_assert_eq!(registry.leases().len(), list.len());
        prop_assert_eq!(engine.counters.ended_holders.get(), usize::from(!list.is_empty()));
        if let Some((lease, _)) = list.pop() {
            lease.complete().unwrap();
        }
        while !list.is_empty() {
            ticks += 1;
            let _ = registry.reap(start + clock::span(ticks, TICK), usize::MAX);
            list.retain(|(lease, until)| {
                assert_eq!(lease.is_held(), ticks < until + 2, "at {ticks}, until {until}");
                lease.is_held()
            });
        }
        prop_assert_eq!(engine.counters.ended_holders.get(), 0);
    }
}
