//! The word alone, without threads: layout, and the rules of every transition from every kind of word.

use proptest::prelude::*;

use super::*;

fn state() -> impl Strategy<Value = WorkerState> {
    prop::sample::select(WorkerState::ALL.to_vec())
}

fn reason() -> impl Strategy<Value = EndReason> {
    prop::sample::select(vec![EndReason::Left, EndReason::Expired, EndReason::Superseded])
}

fn tick() -> impl Strategy<Value = u64> {
    prop_oneof![0_u64..100, (MAX_TICK - 2)..=MAX_TICK, Just(u64::MAX)]
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Beat(u64),
    Back(u64),
    Late,
    Cordoned(bool),
    Told(WorkerState),
    Joined(u64),
    Parted(u64),
    Ended(EndReason, u64),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        tick().prop_map(Op::Beat),
        tick().prop_map(Op::Back),
        Just(Op::Late),
        any::<bool>().prop_map(Op::Cordoned),
        state().prop_map(Op::Told),
        tick().prop_map(Op::Joined),
        tick().prop_map(Op::Parted),
        (reason(), tick()).prop_map(|(reason, tick)| Op::Ended(reason, tick)),
    ]
}

fn apply(word: Word, op: Op) -> Option<Word> {
    match op {
        Op::Beat(tick) => word.beat(tick).ok(),
        Op::Back(tick) => word.back(tick).ok(),
        Op::Late => word.late().ok(),
        Op::Cordoned(cordoned) => word.cordoned(cordoned).ok(),
        Op::Told(state) => word.told(state).ok(),
        Op::Joined(tick) => word.joined(tick).ok(),
        Op::Parted(tick) => word.parted(tick).ok(),
        Op::Ended(reason, tick) => word.ended(reason, tick).ok(),
    }
}

#[test]
fn a_newborn_is_what_it_was_born_as() {
    for state in WorkerState::ALL {
        let word = Word::born(state, false, 7);
        assert_eq!((word.state(), word.end(), word.connections(), word.tick()), (state, None, 1, 7));
    }
}

#[test]
fn the_fields_fill_the_word_and_do_not_touch() {
    assert_eq!(TICK_SHIFT, 24);
    let fields = [STATE_MASK, END_MASK, LATE, CORDONED, CONNECTION_MASK, MAX_TICK << TICK_SHIFT];
    assert_eq!(fields.iter().fold(0, |all, field| all | field), u64::MAX);
    assert_eq!(fields.iter().map(|field| field.count_ones()).sum::<u32>(), u64::BITS);
}

#[test]
fn connections_stop_at_their_maximum() {
    let mut word = Word::born(WorkerState::Quiet, true, u64::MAX);
    for connections in 2..=MAX_CONNECTIONS {
        word = word.joined(0).unwrap();
        debug_assert_eq!(word.connections(), connections);
    }
    assert_eq!(word.joined(0), Err(NotJoined::Full));
    assert_eq!((word.state(), word.tick(), word.end()), (WorkerState::Quiet, MAX_TICK, None));
}

#[test]
fn expire_needs_exactly_the_word_seen() {
    let vitals = Vitals::new(Word::born(WorkerState::Running, false, 1));
    let seen = vitals.load();
    let _ = vitals.update(|word| word.beat(2)).unwrap();
    assert_eq!(vitals.expire(seen, 9).unwrap_err().tick(), 2);
    let change = vitals.expire(vitals.load(), 9).unwrap();
    assert_eq!(change.after.end(), Some(EndReason::Expired));
    assert_eq!(vitals.expire(vitals.load(), 10).unwrap_err(), vitals.load(), "it ends once");
}

proptest! {
    /// One operation changes what it is about, and nothing else; from an ended word there is no way on.
    #[test]
    fn every_transition_keeps_the_rules(born in state(), ops in prop::collection::vec(op(), 0..40)) {
        let mut word = Word::born(born, false, 0);
        for op in ops {
            let Some(next) = apply(word, op) else {
                prop_assert!(!word.is_live() || word.is_late() && matches!(op, Op::Beat(_)));
                continue;
            };
            prop_assert!(word.is_live(), "an ended word changed");
            prop_assert!(next.state() >= word.state() && next.tick() >= word.tick());
            let late = match op {
                Op::Late => true,
                Op::Beat(_) | Op::Back(_) | Op::Joined(_) => false,
                _ => word.is_late(),
            };
            prop_assert_eq!(next.is_late(), late);
            prop_assert_eq!(next.is_cordoned(), if let Op::Cordoned(to) = op { to } else { word.is_cordoned() });
            let (state, end, connections, tick) = match op {
                Op::Late | Op::Cordoned(_) => (word.state(), None, word.connections(), 0),
                Op::Beat(tick) | Op::Back(tick) => (word.state(), None, word.connections(), tick),
                Op::Told(state) => (word.state().max(state), None, word.connections(), 0),
                Op::Joined(tick) => (word.state(), None, word.connections() + 1, tick),
                Op::Parted(_) if word.connections() > 1 => (word.state(), None, word.connections() - 1, 0),
                Op::Parted(tick) => (word.state(), Some(EndReason::Left), 0, tick),
                Op::Ended(reason, tick) => (word.state(), Some(reason), word.connections(), tick),
            };
            prop_assert_eq!(
                (next.state(), next.end(), next.connections(), next.tick()),
                (state, end, connections, word.tick().max(tick.min(MAX_TICK)))
            );
            word = next;
        }
    }
}
