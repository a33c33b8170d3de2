//! G1: for one incarnation nobody ever sees the state go backward; and what a process was told outlives its worker.

mod common;

use common::{Driven, Happened, TICK, TTL_TICKS, chaos, hello, join};
use heartwheel::{Beat, Identity, Session, WorkerState};

use WorkerState::{Quiet, Running, Terminate};

#[test]
fn no_thread_and_no_subscriber_sees_a_state_go_backward() {
    for (seed, identity) in (0..).zip([Identity::Share, Identity::Supersede]) {
        // What each thread sees is checked where it sees it.
        let history = chaos::run(identity, seed);
        let mut told = 0;
        for (incarnation, events) in history.of_each() {
            let mut last = None;
            for event in events {
                let (Happened::Joined { state, .. }
                | Happened::Told { state, .. }
                | Happened::Ended { state, .. }) = event
                else {
                    continue;
                };
                assert!(last <= Some(*state), "{incarnation}: {event:?} after {last:?}");
                if let Happened::Told { .. } = event {
                    assert!(last < Some(*state), "{incarnation} was told {state} twice");
                    told += 1;
                }
                last = Some(*state);
            }
        }
        assert!(told > 20, "too little was told for a test: {told}");
    }
}

#[test]
fn a_weaker_word_changes_nothing() {
    let driven = Driven::new(|_| {});
    let session = join(&driven.registry, "w");
    for (says, told) in
        [(Running, Running), (Quiet, Quiet), (Running, Quiet), (Terminate, Terminate), (Quiet, Terminate)]
    {
        assert_eq!(session.beat(&Beat::default().state(says)), Ok(told));
        assert_eq!(driven.registry.signal("w", says), Ok(told));
        assert_eq!(session.state(), Ok(told));
    }
}

/// The state in which the same process begins again, or another one.
fn begins_again(driven: &Driven, pid: i64) -> (WorkerState, Session) {
    let session = driven.registry.connect(hello("w").pid(pid), |_| {}).unwrap();
    (session.state().unwrap(), session)
}

fn told(driven: &Driven, state: WorkerState) -> Session {
    let session = join(&driven.registry, "w");
    driven.registry.signal("w", state).unwrap();
    session
}

#[test]
fn quiet_outlives_a_reconnect_and_terminate_does_not() {
    for (state, expected) in [(Running, Running), (Quiet, Quiet), (Terminate, Running)] {
        let driven = Driven::new(|_| {});
        let session = told(&driven, state);
        let first = session.incarnation();
        drop(session);
        assert_eq!(driven.registry.get("w").map(|worker| worker.state()), None, "it has left all the same");
        let (begun, session) = begins_again(&driven, 1);
        assert_eq!(begun, expected, "told {state}, it left and came back");
        assert!(session.incarnation() > first, "as a new incarnation");
    }
}

#[test]
fn both_outlive_an_expiry() {
    for state in WorkerState::ALL {
        let mut driven = Driven::new(|_| {});
        let session = told(&driven, state);
        assert_eq!(driven.ticks(TTL_TICKS + 2), 1);
        assert!(session.beat(&Beat::default()).is_err());
        assert_eq!(begins_again(&driven, 1).0, state, "told {state}, it was silent and came back");
    }
}

#[test]
fn it_is_remembered_for_as_long_as_the_policy_says_and_for_the_same_process() {
    for (ticks, pid, expected) in [(4, 1, Quiet), (5, 1, Quiet), (7, 1, Running), (1, 2, Running)] {
        let mut driven = Driven::new(|policy| policy.remember = Some(TICK * 5));
        drop(told(&driven, Quiet));
        driven.ticks(ticks);
        assert_eq!(begins_again(&driven, pid).0, expected, "after {ticks} ticks, as process {pid}");
    }
}

#[test]
fn nothing_is_remembered_when_that_is_off_or_there_is_no_room() {
    let driven = Driven::new(|policy| policy.remember = Some(std::time::Duration::ZERO));
    drop(told(&driven, Quiet));
    assert_eq!(begins_again(&driven, 1).0, Running);

    let driven = Driven::new(|policy| policy.max_remembered = 0);
    drop(told(&driven, Quiet));
    assert_eq!(begins_again(&driven, 1).0, Running);
    assert_eq!(driven.registry.stats().not_remembered, 1);
}

#[test]
fn a_quiet_worker_stays_quiet_over_any_number_of_reconnects() {
    let mut driven = Driven::new(|_| {});
    let mut session = told(&driven, Quiet);
    for round in 0..50 {
        drop(session);
        driven.ticks(round % 3);
        let (state, again) = begins_again(&driven, 1);
        assert_eq!(state, Quiet, "in round {round}");
        session = again;
    }
    assert_eq!(driven.registry.stats().remembered, 0);
}
