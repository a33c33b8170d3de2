//! The wheel against an ordered set, from ticks around the edges of its levels.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn drain(wheel: &mut Wheel<u32>, tick: u64) -> Vec<u32> {
    let mut due = Vec::new();
    loop {
        match wheel.poll(tick) {
            Step::Due(_, entry) => due.push(entry),
            Step::Moved => {}
            Step::Idle => return due,
        }
    }
}

#[test]
fn the_last_tick_of_all_can_be_filed_and_reached() {
    let mut wheel = Wheel::new(0);
    wheel.insert(u64::MAX, 1);
    wheel.insert(u64::MAX - 1, 2);
    assert!(drain(&mut wheel, u64::MAX - 2).is_empty());
    assert_eq!(drain(&mut wheel, u64::MAX - 1), [2]);
    assert_eq!(drain(&mut wheel, u64::MAX), [1]);
    assert_eq!(wheel.next_due(), None);
}

#[test]
fn a_far_entry_hides_no_nearer_one() {
    for bits in [12, 36, 42, 60, 63] {
        let mut wheel = Wheel::new(3);
        wheel.insert(1 << bits, 1);
        wheel.insert(70, 2);
        assert_eq!(drain(&mut wheel, 70), [2], "behind 2^{bits}");
        assert_eq!(drain(&mut wheel, 1 << bits), [1]);
    }
}

#[test]
fn what_is_late_already_is_due_at_once() {
    let mut wheel = Wheel::new(100);
    wheel.insert(7, 1);
    assert_eq!(wheel.next_due(), Some(100));
    assert_eq!(drain(&mut wheel, 100), [1]);
}

#[test]
fn a_tick_of_before_changes_nothing() {
    let mut wheel = Wheel::new(100);
    wheel.insert(101, 1);
    assert_eq!(wheel.poll(5), Step::Idle);
    assert_eq!(wheel.now(), 100);
    assert_eq!(drain(&mut wheel, 101), [1]);
}

#[test]
fn an_entry_is_moved_at_most_once_a_level() {
    let mut wheel = Wheel::new(0);
    wheel.insert(u64::MAX, 1);
    let mut moves = 0;
    while wheel.poll(u64::MAX) == Step::Moved {
        moves += 1;
    }
    assert_eq!(moves, LEVELS);
}

#[derive(Clone, Debug)]
enum Op {
    Insert(u64),
    Advance(u64),
    Steps(usize),
    Sweep(usize),
}

/// Distances around the edges of the levels, near and far.
fn distance() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0_u64..200,
        3 => (0_u32..64, -2_i64..=2).prop_map(|(bit, off)| (1_u64 << bit).saturating_add_signed(off)),
        1 => any::<u64>(),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => distance().prop_map(Op::Insert),
        2 => distance().prop_map(Op::Advance),
        2 => (1_usize..4).prop_map(Op::Steps),
        1 => (1_usize..9).prop_map(Op::Sweep),
    ]
}

/// Starts around 2^(6k), where every level turns over.
fn start() -> impl Strategy<Value = u64> {
    (0_u32..=10, -1_i64..=1).prop_map(|(k, off)| (1_u64 << (6 * k)).saturating_add_signed(off))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Whatever is filed comes due exactly once, not before its tick, and before any later tick is finished; also when it is
    /// polled a single step at a time with entries filed in between, and when a sweep moves or drops what it holds.
    #[test]
    fn agrees_with_an_ordered_set(start in start(), ops in prop::collection::vec(op(), 1..60)) {
        let mut wheel = Wheel::new(start);
        let mut oracle: BTreeSet<(u64, u32)> = BTreeSet::new();
        let mut dues: Vec<u64> = Vec::new();
        let mut target = start;
        for op in ops {
            match op {
                Op::Insert(distance) => {
                    let due = wheel.now().saturating_add(distance);
                    let id = u32::try_from(dues.len()).unwrap();
                    dues.push(due);
                    oracle.insert((due, id));
                    wheel.insert(due, id);
                }
                Op::Advance(distance) => {
                    target = target.saturating_add(distance);
                    for id in drain(&mut wheel, target) {
                        let due = dues[id as usize];
                        prop_assert!(due <= target, "early");
                        prop_assert!(oracle.remove(&(due, id)), "not filed, or twice");
                    }
                    prop_assert!(oracle.first().is_none_or(|&(due, _)| due > target), "missed");
                    prop_assert_eq!(wheel.now(), target);
                }
                Op::Steps(steps) => {
                    target = target.saturating_add(1);
                    for _ in 0..steps {
                        match wheel.poll(target) {
                            Step::Due(filed, id) => {
                                let due = dues[id as usize];
                                prop_assert_eq!(filed, due);
                                prop_assert!(due <= target, "early");
                                prop_assert!(oracle.remove(&(due, id)), "not filed, or twice");
                                // A tick is finished before the next begins.
                                prop_assert!(oracle.iter().all(|&(other, _)| other >= due.min(wheel.now())));
                            }
                            Step::Moved => {}
                            Step::Idle => prop_assert_eq!(wheel.now(), target),
                        }
                    }
                }
                Op::Sweep(budget) => {
                    // Every third goes, every fifth is put off, the others stay.
                    let later = wheel.now().saturating_add(100);
                    loop {
                        let mut gone = Vec::new();
                        let mut moved = Vec::new();
                        let more = wheel.sweep(budget, |filed, &id| {
                            assert!(filed == dues[id as usize] || filed == later);
                            if id % 3 == 0 {
                                gone.push(id);
                                Keep::Drop
                            } else if id % 5 == 0 {
                                moved.push(id);
                                Keep::Refile(later)
                            } else {
                                Keep::Stay
                            }
                        });
                        prop_assert!(gone.len() + moved.len() <= budget);
                        for id in gone {
                            prop_assert!(oracle.remove(&(dues[id as usize], id)), "swept what was not filed");
                        }
                        for id in moved {
                            prop_assert!(oracle.remove(&(dues[id as usize], id)));
                            dues[id as usize] = later;
                            oracle.insert((later, id));
                        }
                        if !more {
                            break;
                        }
                    }
                }
            }
            prop_assert_eq!(wheel.len(), oracle.len());
            if let (Some(next), Some(&(due, _))) = (wheel.next_due(), oracle.first()) {
                prop_assert!(next <= due.max(wheel.now()), "nothing may be due before next_due");
            }
            prop_assert_eq!(wheel.next_due().is_none(), oracle.is_empty());
        }
        let left = drain(&mut wheel, u64::MAX);
        prop_assert_eq!(left.len(), oracle.len());
    }
}
