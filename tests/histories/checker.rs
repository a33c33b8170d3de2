//! The checker itself: what is in order passes, and each fault that it is there for is found.

use heartwheel::{EndReason, Identity, LeaseEnd, Recover, WorkerState};

use crate::search::{Call, History};
use crate::spec::{Fact, Granted, Op, Rules};

const RULES: Rules =
    Rules { ttl: 4, lease_ttl: 3, identity: Identity::Share, remember: true, recover: Recover::AtDeath };
const QUIET: Option<WorkerState> = Some(WorkerState::Quiet);
const RUNNING: Option<WorkerState> = Some(WorkerState::Running);

fn call(from: u64, op: Op, to: u64) -> Call {
    Call { from, op, to }
}

fn connect(answer: u64) -> Op {
    Op::Connect { process: 0, answer: Some(answer) }
}

fn beat(answer: Option<WorkerState>) -> Op {
    Op::BeatBySession { incarnation: 1, says: WorkerState::Running, answer }
}

const SIGNAL: Op = Op::Signal { state: WorkerState::Quiet, answer: QUIET };

fn joined() -> Fact {
    Fact::Joined(1, WorkerState::Running, false)
}

fn is_allowed(threads: &[&[Call]], facts: &[Fact], lost: &[(u64, LeaseEnd)]) -> bool {
    let threads = threads.iter().map(|calls| calls.to_vec()).collect();
    History { threads, facts: facts.to_vec(), lost: lost.to_vec() }.is_linearizable(&RULES)
}

#[test]
fn a_beat_beside_a_signal_may_answer_either_and_one_after_it_only_the_new() {
    let told = [joined(), Fact::Told(1, WorkerState::Quiet)];
    let beside = |answer| {
        is_allowed(&[&[call(0, connect(1), 1), call(3, beat(answer), 6)], &[call(2, SIGNAL, 5)]], &told, &[])
    };
    assert!(beside(RUNNING) && beside(QUIET));
    assert!(!beside(None), "it lives");
    let after = |answer| {
        is_allowed(&[&[call(0, connect(1), 1), call(6, beat(answer), 7)], &[call(2, SIGNAL, 5)]], &told, &[])
    };
    assert!(after(QUIET) && !after(RUNNING), "a signal that returned is seen");
}

#[test]
fn a_state_that_goes_backward_is_found() {
    let calls =
        [call(0, connect(1), 1), call(2, SIGNAL, 3), call(4, beat(QUIET), 5), call(6, beat(RUNNING), 7)];
    let told = [joined(), Fact::Told(1, WorkerState::Quiet)];
    assert!(is_allowed(&[&calls[..3]], &told, &[]));
    assert!(!is_allowed(&[&calls], &told, &[]));
}

#[test]
fn an_end_too_early_twice_or_unsaid_is_found() {
    let pass = |tick| Op::Pass { tick };
    let ended = Fact::Ended(1, EndReason::Expired);
    let with = |tick, facts: &[Fact]| {
        is_allowed(&[&[call(0, connect(1), 1), call(2, pass(tick), 3), call(4, beat(None), 5)]], facts, &[])
    };
    assert!(with(5, &[joined(), ended]));
    assert!(!with(4, &[joined(), ended]), "early");
    assert!(!with(5, &[joined(), ended, ended]), "twice");
    assert!(!with(5, &[joined()]), "unsaid");
    assert!(!with(5, &[ended, joined()]), "out of order");
}

#[test]
fn an_acknowledged_beat_that_was_lost_is_found() {
    // Heard at tick 3, gone at tick 6.
    let pass = |tick| Op::Pass { tick };
    let calls = [
        call(0, connect(1), 1),
        call(2, pass(3), 3),
        call(4, beat(RUNNING), 5),
        call(6, pass(6), 7),
        call(8, beat(None), 9),
    ];
    assert!(!is_allowed(&[&calls], &[joined(), Fact::Ended(1, EndReason::Expired)], &[]));
}

#[test]
fn incarnations_that_do_not_grow_and_handles_that_touch_a_successor_are_found() {
    let part = Op::Part { incarnation: 1 };
    let facts =
        |next| [joined(), Fact::Ended(1, EndReason::Left), Fact::Joined(next, WorkerState::Running, false)];
    let with = |next, last| {
        let calls = [call(0, connect(1), 1), call(2, part, 3), call(4, connect(next), 5), call(6, last, 7)];
        is_allowed(&[&calls], &facts(next), &[])
    };
    assert!(with(2, beat(None)));
    assert!(!with(1, beat(RUNNING)), "not a greater one");
    assert!(!with(2, beat(RUNNING)), "a handle of the dead is answered");
}

#[test]
fn a_told_state_that_was_forgotten_is_found() {
    let calls = |state| {
        let calls = [
            call(0, connect(1), 1),
            call(2, SIGNAL, 3),
            call(4, Op::Part { incarnation: 1 }, 5),
            call(6, connect(2), 7),
        ];
        let told = Fact::Told(1, WorkerState::Quiet);
        is_allowed(
            &[&calls],
            &[joined(), told, Fact::Ended(1, EndReason::Left), Fact::Joined(2, state, false)],
            &[],
        )
    };
    assert!(calls(WorkerState::Quiet));
    assert!(!calls(WorkerState::Running));
}

#[test]
fn a_lease_that_ends_twice_or_is_granted_to_two_is_found() {
    let lease = |answer| Op::Lease { incarnation: 1, answer };
    let complete = |answer| Op::Complete { token: 7, answer };
    let begin = [call(0, connect(1), 1), call(2, lease(Granted::Token(7)), 3)];
    let with = |more: &[Call], lost: &[(u64, LeaseEnd)]| {
        let facts = [joined(), Fact::Ended(1, EndReason::Left)];
        let ended = more.iter().any(|call| matches!(call.op, Op::Part { .. }));
        is_allowed(&[&[&begin, more].concat()], if ended { &facts } else { &facts[..1] }, lost)
    };
    assert!(with(&[call(4, complete(Ok(())), 5)], &[]));
    assert!(!with(&[call(4, complete(Ok(())), 5), call(6, complete(Ok(())), 7)], &[]), "completed twice");
    assert!(with(&[call(4, lease(Granted::Held(7)), 5)], &[]));
    assert!(!with(&[call(4, lease(Granted::Token(8)), 5)], &[]), "held by two");
    assert!(
        !with(&[call(4, complete(Ok(())), 5), call(6, lease(Granted::Token(6)), 7)], &[]),
        "a smaller token"
    );
    let part = call(4, Op::Part { incarnation: 1 }, 5);
    let lost = [(7, LeaseEnd::HolderEnded)];
    assert!(with(&[part], &lost));
    assert!(!with(&[part], &[]), "lost silently");
    assert!(with(&[part, call(6, complete(Err(LeaseEnd::HolderEnded)), 7)], &lost));
    assert!(!with(&[part, call(6, complete(Ok(())), 7)], &lost), "a stale holder completes");
    assert!(!with(&[call(4, complete(Ok(())), 5)], &lost), "completed and lost");
}
