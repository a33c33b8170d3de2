//! Any fleet, any plan, and anything that workers and other operators may do meanwhile.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::fake::{Fake, number, wid};
use super::*;

#[derive(Clone, Debug)]
enum Step {
    Advance,
    Wait(u32),
    Leases(u8, u32),
    /// By somebody else.
    Signal(u8, WorkerState),
    End(u8),
    Reconnect {
        n: u8,
        remembered: bool,
        matches: bool,
    },
    Doom(u8),
    Pause,
    Resume,
    Cancel,
}

fn states() -> impl Strategy<Value = WorkerState> {
    prop::sample::select(WorkerState::ALL.to_vec())
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let n = || 0..12u8;
    let step = prop_oneof![
        12 => Just(Step::Advance),
        4 => (1..8u32).prop_map(Step::Wait),
        6 => (n(), 0..3u32).prop_map(|(n, leases)| Step::Leases(n, leases)),
        2 => (n(), states()).prop_map(|(n, state)| Step::Signal(n, state)),
        3 => n().prop_map(Step::End),
        3 => (n(), any::<bool>(), any::<bool>())
            .prop_map(|(n, remembered, matches)| Step::Reconnect { n, remembered, matches }),
        2 => n().prop_map(Step::Doom),
        1 => Just(Step::Pause),
        2 => Just(Step::Resume),
    ];
    let steps = prop::collection::vec(step, 0..80);
    (steps, any::<prop::sample::Index>(), prop::bool::weighted(0.15)).prop_map(|(mut steps, at, cancel)| {
        if cancel {
            steps.insert(at.index(steps.len() + 1), Step::Cancel);
        }
        steps
    })
}

fn plans() -> impl Strategy<Value = DrainPlan> {
    let shares = prop_oneof![(1..5usize).prop_map(Share::Count), (1..=100u8).prop_map(Share::Percent)];
    let untils = prop_oneof![
        Just(Until::NoLeases),
        Just(Until::Gone),
        (1..20u32).prop_map(|seconds| Until::Elapsed(SECOND * seconds)),
    ];
    (any::<bool>(), shares, untils).prop_map(|(quiet, share, until)| {
        plan().to(if quiet { Quiet } else { Terminate }).at_most(share).wait_for(until)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(3000) })]

    /// The fleet itself asserts that the cap is kept whenever somebody is told, that nobody is told while paused or cancelled, that nobody
    /// is told twice; and `advance` that the progress adds up.
    #[test]
    fn keeps_the_cap_and_comes_to_an_end(
        fleet in prop::collection::vec((states(), 0..3u32), 0..10),
        plan in plans(),
        steps in steps(),
    ) {
        let fleet = Fake::new(fleet);
        let mut drain = fleet.start(plan);
        let (target, until) = (drain.state(), drain.until());
        let begun: BTreeMap<u8, u64> = drain
            .members
            .iter()
            .map(|member| (number(&member.wid), member.incarnation.get()))
            .collect();
        let mut cancelled = false;
        let (mut done, mut vanished) = (0, 0);
        for step in steps {
            match step {
                Step::Advance => {
                    let progress = fleet.advance(&mut drain);
                    prop_assert!(progress.done >= done && progress.vanished >= vanished);
                    (done, vanished) = (progress.done, progress.vanished);
                    // Nobody who is out was let go of.
                    for n in fleet.act(|inner| inner.out.keys().copied().collect::<Vec<_>>()) {
                        let (_, standing) = drain.workers().find(|(own, _)| **own == wid(n)).unwrap();
                        prop_assert!(!matches!(standing, Standing::Done | Standing::Vanished), "{n}: {standing:?}");
                    }
                }
                Step::Wait(seconds) => fleet.wait(seconds),
                Step::Leases(n, leases) => fleet.act(|inner| inner.set_leases(n, leases)),
                Step::Signal(n, state) => fleet.act(|inner| inner.set_state(n, state)),
                Step::End(n) => fleet.act(|inner| inner.end(n)),
                Step::Reconnect { n, remembered, matches } => {
                    fleet.act(|inner| inner.reconnect(n, remembered, matches));
                }
                Step::Doom(n) => fleet.act(|inner| inner.doomed = Some(n)),
                Step::Pause => drain.pause(),
                Step::Resume => drain.resume(),
                Step::Cancel => {
                    drain.cancel();
                    cancelled = !begun.is_empty() && drain.progress().phase == DrainPhase::Cancelled;
                }
            }
            // Who has vanished is no worker of this drain any more, whatever becomes of the wid.
            let vanished_now: Vec<u8> = drain
                .workers()
                .filter(|(_, standing)| *standing == Standing::Vanished)
                .map(|(wid, _)| number(wid))
                .collect();
            let phase = drain.progress().phase;
            fleet.act(|inner| {
                for n in vanished_now {
                    inner.planned.remove(&n);
                    inner.out.remove(&n);
                }
                inner.rule.as_mut().unwrap().hands_off =
                    matches!(phase, DrainPhase::Paused | DrainPhase::Cancelled);
            });
        }
        if cancelled {
            prop_assert_eq!(fleet.advance(&mut drain).phase, DrainPhase::Cancelled);
            return Ok(());
        }
        // From here on everyone obeys, and it comes to an end.
        drain.resume();
        fleet.act(|inner| inner.rule.as_mut().unwrap().hands_off = false);
        let mut calls = 0;
        while !drain.is_over() {
            fleet.advance(&mut drain);
            fleet.act(|inner| {
                for n in inner.workers.keys().copied().collect::<Vec<_>>() {
                    inner.set_leases(n, 0);
                    if inner.workers[&n].state >= target && until == Until::Gone {
                        inner.end(n);
                    }
                }
                inner.wait(SECOND * 5);
            });
            calls += 1;
            prop_assert!(calls < 100, "no end: {:?}", drain);
        }
        let progress = drain.progress();
        prop_assert_eq!(progress.done + progress.vanished, progress.total);
        fleet.act(|inner| {
            for (n, incarnation) in begun {
                // Of those that were there at the start everyone is drained or gone.
                if let Some(worker) = inner.workers.get(&n) {
                    assert!(worker.incarnation != incarnation || worker.state >= target, "{n} was missed");
                }
            }
        });
    }
}
