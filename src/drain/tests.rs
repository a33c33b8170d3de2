//! What a drain does, case by case.

use std::time::Duration;

use super::*;
use crate::state::WorkerState::{Quiet, Running, Terminate};

mod fake;
mod properties;

use fake::Fake;

const SECOND: Duration = Duration::from_secs(1);

fn plan() -> DrainPlan {
    Drain::plan(Selector::all())
}

#[test]
fn a_plan_that_cannot_be_carried_out_is_refused() {
    let refused = |plan: DrainPlan| plan.over(Vec::new()).unwrap_err();
    assert_eq!(refused(plan().to(Running)), DrainError::Running);
    assert_eq!(refused(plan().at_most(Share::Count(0))), DrainError::ZeroShare);
    assert_eq!(refused(plan().at_most(Share::Percent(0))), DrainError::ZeroShare);
    assert_eq!(refused(plan().at_most(Share::Percent(101))), DrainError::OverWhole { percent: 101 });
    assert_eq!(refused(plan().wait_for(Until::Elapsed(Duration::ZERO))), DrainError::ZeroElapsed);
}

#[test]
fn a_percentage_is_rounded_down_and_at_least_one() {
    for (percent, total, cap) in [
        (1, 0, 1),
        (1, 99, 1),
        (10, 19, 1),
        (10, 20, 2),
        (33, 10, 3),
        (100, 7, 7),
        (99, 1, 1),
        (50, usize::MAX, usize::MAX / 2),
    ] {
        assert_eq!(Share::Percent(percent).of(total), cap, "{percent} % of {total}");
    }
    assert_eq!(Share::Count(5).of(2), 5);
}

#[test]
fn nobody_is_finished_from_the_start() {
    let fleet = Fake::new([]);
    let mut drain = fleet.start(plan());
    assert!(drain.is_over());
    assert_eq!(fleet.advance(&mut drain).phase, DrainPhase::Finished);
    drain.cancel();
    assert_eq!(drain.progress().phase, DrainPhase::Finished);
}

#[test]
fn a_slot_is_held_until_the_leases_are_done() {
    let fleet = Fake::new([(Running, 1), (Running, 0), (Running, 0)]);
    let mut drain = fleet.start(plan());
    for _ in 0..3 {
        assert_eq!(fleet.advance(&mut drain).out, 1);
        fleet.wait(1);
    }
    assert_eq!(fleet.told(), [0]);
    fleet.act(|inner| inner.set_leases(0, 0));
    // Done, and the next one told, in one call; it is looked at again before it is done, leases or not.
    let progress = fleet.advance(&mut drain);
    assert_eq!((progress.done, progress.out, progress.waiting), (1, 1, 1));
    fleet.advance(&mut drain);
    assert_eq!(fleet.advance(&mut drain).phase, DrainPhase::Finished);
    assert_eq!(fleet.told(), [0, 1, 2]);
}

#[test]
fn a_slot_is_held_until_the_incarnation_has_gone() {
    let fleet = Fake::new([(Running, 0); 3]);
    let mut drain = fleet.start(plan().to(Terminate));
    fleet.advance(&mut drain);
    // It resumes the told state: it never went.
    fleet.act(|inner| inner.reconnect(0, true, true));
    assert_eq!(fleet.advance(&mut drain).out, 1);
    assert_eq!(fleet.told(), [0]);
    // It is restarted, between two looks, and left alone from then on.
    fleet.act(|inner| inner.reconnect(0, false, true));
    assert_eq!(fleet.advance(&mut drain).done, 1);
    assert_eq!(fleet.told(), [0, 1]);
    fleet.act(|inner| inner.end(1));
    fleet.advance(&mut drain);
    fleet.act(|inner| inner.end(2));
    assert_eq!(fleet.advance(&mut drain).phase, DrainPhase::Finished);
    assert_eq!(fleet.told(), [0, 1, 2]);
}

#[test]
fn a_slot_is_held_for_a_time() {
    let fleet = Fake::new([(Running, 5), (Running, 5), (Running, 5)]);
    let mut drain = fleet.start(plan().at_most(Share::Count(2)).wait_for(Until::Elapsed(SECOND * 10)));
    assert_eq!(drain.deadline(), None);
    fleet.advance(&mut drain);
    let begun = fleet.act(|inner| inner.now);
    assert_eq!(drain.deadline(), Some(begun + SECOND * 10));
    fleet.wait(9);
    assert_eq!(fleet.advance(&mut drain).waiting, 1);
    // Time that goes backward is no time.
    assert_eq!(drain.step(begun, &fleet).waiting, 1);
    fleet.wait(1);
    assert_eq!(fleet.advance(&mut drain).done, 2);
    // Gone before its time: the slot is free.
    fleet.act(|inner| inner.end(2));
    assert_eq!(fleet.advance(&mut drain).done, 3);
}

#[test]
fn who_was_told_by_others_counts_and_makes_no_room() {
    let fleet = Fake::new([(Quiet, 1), (Running, 0), (Running, 1), (Running, 0)]);
    let mut drain = fleet.start(plan().at_most(Share::Count(2)));
    fleet.act(|inner| inner.set_state(2, Terminate));
    // The two that others told take the room; nobody is told before one of them is done.
    assert_eq!(fleet.advance(&mut drain).out, 2);
    fleet.wait(1);
    assert_eq!(fleet.advance(&mut drain).out, 2);
    assert!(fleet.told().is_empty());
    fleet.act(|inner| inner.end(2));
    fleet.advance(&mut drain);
    assert_eq!(fleet.told(), [1]);
    // More than the cap, by others.
    fleet.act(|inner| inner.set_state(3, Quiet));
    fleet.act(|inner| inner.set_leases(0, 0));
    assert_eq!(fleet.advance(&mut drain).waiting, 0);
    fleet.advance(&mut drain);
    assert_eq!((fleet.told(), drain.is_over()), (vec![1], true));
}

#[test]
fn who_is_quiet_already_terminates_first() {
    let fleet = Fake::new([(Running, 0), (Quiet, 0), (Running, 0), (Quiet, 0)]);
    let mut drain = fleet.start(plan().to(Terminate).at_most(Share::Count(3)));
    fleet.advance(&mut drain);
    assert_eq!(fleet.told(), [1, 3, 0]);
}

#[test]
fn who_joined_first_has_its_turn_first() {
    let fleet = Fake::new([(Running, 0); 4]);
    fleet.act(|inner| inner.reconnect(1, false, true));
    fleet.act(|inner| inner.reconnect(0, false, true));
    let mut drain = fleet.start(plan());
    while !drain.is_over() {
        fleet.advance(&mut drain);
    }
    assert_eq!(fleet.told(), [2, 3, 1, 0]);
}

#[test]
fn who_joins_later_is_left_alone() {
    let fleet = Fake::new([(Running, 0)]);
    let mut drain = fleet.start(plan());
    fleet.act(|inner| inner.reconnect(7, false, true));
    while !drain.is_over() {
        fleet.advance(&mut drain);
    }
    assert_eq!((fleet.told(), drain.progress().total), (vec![0], 1));
}

#[test]
fn who_reconnects_before_its_turn_has_it_if_it_matches() {
    let fleet = Fake::new([(Running, 0); 3]);
    let mut drain = fleet.start(plan());
    fleet.act(|inner| inner.reconnect(1, false, true));
    fleet.act(|inner| inner.reconnect(2, false, false));
    while !drain.is_over() {
        fleet.advance(&mut drain);
    }
    assert_eq!((fleet.told(), drain.progress().vanished), (vec![0, 1], 1));
}

#[test]
fn who_is_absent_may_come_back() {
    let fleet = Fake::new([(Running, 0); 3]);
    let mut drain = fleet.start(plan());
    fleet.act(|inner| inner.end(1));
    fleet.act(|inner| inner.end(2));
    fleet.advance(&mut drain);
    fleet.advance(&mut drain);
    assert_eq!(drain.progress().waiting, 2);
    fleet.wait(9);
    fleet.act(|inner| inner.reconnect(2, false, true));
    fleet.advance(&mut drain);
    assert_eq!(fleet.told(), [0, 2]);
    fleet.wait(1);
    let progress = fleet.advance(&mut drain);
    assert_eq!((progress.vanished, progress.phase), (1, DrainPhase::Finished));
}

#[test]
fn a_successor_is_not_told_unseen() {
    let fleet = Fake::new([(Running, 0); 2]);
    let mut drain = fleet.start(plan());
    // Ends after it was looked at, before it is told: the next one has the slot.
    fleet.act(|inner| inner.doomed = Some(0));
    fleet.advance(&mut drain);
    assert_eq!(fleet.told(), [1]);
    fleet.advance(&mut drain);
    assert_eq!(fleet.told(), [1, 0]);
}

#[test]
fn pauses_resumes_and_is_cancelled() {
    let fleet = Fake::new([(Running, 0); 4]);
    let mut drain = fleet.start(plan());
    fleet.advance(&mut drain);
    drain.pause();
    assert_eq!(fleet.advance(&mut drain).done, 1);
    assert_eq!((fleet.told(), drain.progress().phase), (vec![0], DrainPhase::Paused));
    // What others do shows.
    fleet.act(|inner| inner.set_state(3, Quiet));
    assert_eq!(fleet.advance(&mut drain).out, 1);
    assert_eq!(fleet.advance(&mut drain).done, 2);
    drain.resume();
    fleet.advance(&mut drain);
    drain.cancel();
    drain.resume();
    drain.pause();
    let progress = fleet.advance(&mut drain);
    assert_eq!((progress.done, progress.waiting, progress.phase), (3, 1, DrainPhase::Cancelled));
    assert_eq!(fleet.told(), [0, 1]);
}
