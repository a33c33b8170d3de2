//! The timer wheel against an ordered set.

#![no_main]

use std::collections::BTreeSet;

use arbitrary::Arbitrary;
use heartwheel::wheel::{Keep, Step, Wheel};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
enum Op {
    Insert(u64),
    /// Near the edge of a level.
    InsertBy {
        bit: u8,
        off: i8,
    },
    Step {
        ahead: u8,
    },
    Reach {
        ahead: u64,
    },
    Sweep {
        budget: u8,
        drop_every: u8,
    },
}

fuzz_target!(|input: (u64, Vec<Op>)| {
    let (start, ops) = input;
    let mut wheel = Wheel::new(start);
    let mut filed = BTreeSet::new();
    let mut next = 0_u64;
    let mut insert = |wheel: &mut Wheel<(u64, u64)>, filed: &mut BTreeSet<(u64, u64)>, due: u64| {
        wheel.insert(due, (due, next));
        filed.insert((due, next));
        next += 1;
    };
    for op in ops {
        match op {
            Op::Insert(due) => insert(&mut wheel, &mut filed, due),
            Op::InsertBy { bit, off } => {
                let due = wheel.now().saturating_add(1 << (bit % 64)).saturating_add_signed(off.into());
                insert(&mut wheel, &mut filed, due);
            }
            Op::Step { ahead } => {
                let target = wheel.now().saturating_add(ahead.into());
                if let Step::Due(due, entry) = wheel.poll(target) {
                    assert_eq!(due, entry.0);
                    assert!(entry.0 <= target, "early");
                    assert!(filed.remove(&entry), "twice");
                }
            }
            Op::Reach { ahead } => {
                let target = wheel.now().saturating_add(ahead);
                loop {
                    match wheel.poll(target) {
                        Step::Due(_, entry) => {
                            assert!(entry.0 <= target, "early");
                            assert!(filed.remove(&entry), "twice");
                        }
                        Step::Moved => {}
                        Step::Idle => break,
                    }
                }
                assert!(filed.first().is_none_or(|&(due, _)| due > target), "missed");
            }
            Op::Sweep { budget, drop_every } => {
                let every = u64::from(drop_every) + 1;
                let mut dropped = Vec::new();
                let _ = wheel.sweep(budget.into(), |_, entry| {
                    if entry.1 % every == 0 {
                        dropped.push(*entry);
                        Keep::Drop
                    } else {
                        Keep::Stay
                    }
                });
                assert!(dropped.iter().all(|entry| filed.remove(entry)), "swept what was not filed");
            }
        }
        assert_eq!(wheel.len(), filed.len());
    }
});
