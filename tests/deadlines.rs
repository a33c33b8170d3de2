//! Deadlines: by when a worker must have done what it was told, and what follows when it has not.

mod common;

use std::slice::from_ref;
use std::time::Duration;

use common::{Closed, Driven, TICK, beat_all, events, hello, join};
use heartwheel::{EndReason, Event, NotDone, Overdue, Session, SignalError, WorkerState};

const GRACE: Duration = Duration::from_secs(3);
/// Beyond every test.
const LONG: Duration = Duration::from_secs(1000);

fn overdue(all: Vec<Event>) -> Vec<NotDone> {
    all.into_iter()
        .filter_map(|event| if let Event::Overdue(overdue) = event { Some(overdue) } else { None })
        .collect()
}

/// Ticks until a deadline of `GRACE`, given now, is over for certain, with beats, for draining workers go on beating.
fn wait(driven: &mut Driven, sessions: &[Session]) {
    for _ in 0..33 {
        driven.ticks(1);
        beat_all(sessions);
    }
}

#[test]
fn terminate_comes_with_the_policys_deadline_and_quiet_with_none() {
    for all in [false, true] {
        let mut driven = Driven::new(|policy| (policy.grace, policy.overdue) = (Some(GRACE), Overdue::Leave));
        let session = join(&driven.registry, "w");
        let subscriber = driven.registry.subscribe(1000);
        let lease = session.lease("job", LONG).unwrap();
        driven.registry.signal("w", WorkerState::Quiet).unwrap();
        wait(&mut driven, from_ref(&session));
        assert!(overdue(events(&subscriber)).is_empty());
        if all {
            assert_eq!(driven.registry.signal_all(WorkerState::Terminate), 1);
        } else {
            driven.registry.signal("w", WorkerState::Terminate).unwrap();
        }
        for _ in 0..30 {
            assert!(overdue(events(&subscriber)).is_empty(), "never early");
            beat_all([&session]);
            driven.ticks(1);
        }
        driven.ticks(2);
        let told = overdue(events(&subscriber));
        assert_eq!((told.len(), told[0].then, &told[0].held[..]), (1, Overdue::Leave, &[lease.info()][..]));
        assert_eq!((told[0].worker.wid().as_str(), told[0].worker.leases()), ("w", 1));
        assert_eq!(told[0].worker.state(), WorkerState::Terminate);
        wait(&mut driven, from_ref(&session));
        assert!(session.state().is_ok() && lease.is_held(), "left alone");
        assert!(overdue(events(&subscriber)).is_empty(), "once");
        assert_eq!(driven.registry.stats().overdue, 1);
    }
}

#[test]
fn without_a_grace_there_is_no_deadline() {
    let mut driven = Driven::new(|policy| (policy.grace, policy.overdue) = (None, Overdue::End));
    let session = join(&driven.registry, "w");
    driven.registry.signal("w", WorkerState::Terminate).unwrap();
    (0..10).for_each(|_| wait(&mut driven, from_ref(&session)));
    assert!(session.state().is_ok());
    assert_eq!(driven.registry.stats().overdue, 0);
}

#[test]
fn quiet_is_done_when_nothing_is_held_any_more() {
    for ended in [false, true] {
        let mut driven = Driven::new(|_| {});
        let session = join(&driven.registry, "w");
        let subscriber = driven.registry.subscribe(1000);
        let leases = ["a", "b"].map(|id| session.lease(id, LONG).unwrap());
        driven.registry.signal_within("w", WorkerState::Quiet, GRACE, Overdue::End).unwrap();
        leases[0].complete().unwrap();
        if ended {
            driven.ticks(5);
            leases[1].release().unwrap();
        }
        wait(&mut driven, from_ref(&session));
        let told = overdue(events(&subscriber));
        assert_eq!((told.len(), session.state().is_ok()), (usize::from(!ended), ended));
        if let [told] = &told[..] {
            assert_eq!(told.held[..], [leases[1].info()], "what it still holds");
        }
    }
}

#[test]
fn whoever_leaves_in_time_is_not_overdue() {
    let mut driven = Driven::new(|_| {});
    let session = join(&driven.registry, "w");
    driven.registry.signal_within("w", WorkerState::Terminate, GRACE, Overdue::End).unwrap();
    driven.ticks(5);
    drop(session);
    let successor = join(&driven.registry, "w");
    wait(&mut driven, from_ref(&successor));
    assert!(successor.state().is_ok(), "a deadline is no successor's");
    assert_eq!(driven.registry.stats().overdue, 0);
}

#[test]
fn close_closes_each_connection_once_and_the_end_closes_none_again() {
    let mut driven = Driven::new(|policy| policy.overdue = Overdue::Close);
    let closed = Closed::default();
    let connect = |n: usize| driven.registry.connect(hello("w"), closed.closer(n)).unwrap();
    let mut sessions: Vec<_> = (0..3).map(connect).collect();
    driven.registry.signal_within("w", WorkerState::Terminate, GRACE, Overdue::Close).unwrap();
    wait(&mut driven, &sessions);
    let all: Vec<_> = (0..3).map(|n| (n, EndReason::Expired)).collect();
    assert_eq!(closed.all(), all);
    assert!(sessions.iter().all(|session| session.state().is_ok()), "it ends when the last one is dropped");
    sessions.push(driven.registry.connect(hello("w"), closed.closer(3)).unwrap());
    driven.registry.signal_within("w", WorkerState::Terminate, GRACE, Overdue::Close).unwrap();
    wait(&mut driven, &sessions);
    assert_eq!(closed.all(), [&all[..], &[(3, EndReason::Expired)]].concat(), "the new one only");
    driven.ticks(13);
    assert!(!driven.is_live("w"));
    assert_eq!(closed.len(), 4);
    drop(sessions);
    assert_eq!(closed.len(), 4);
    assert_eq!(driven.registry.stats().connections, 0);
}

#[test]
fn end_ends_it_as_expired_with_all_it_holds_and_what_it_was_told_is_remembered() {
    let mut driven = Driven::new(|_| {});
    let closed = Closed::default();
    let sessions: Vec<_> =
        (0..3).map(|n| driven.registry.connect(hello("w"), closed.closer(n)).unwrap()).collect();
    let subscriber = driven.registry.subscribe(1000);
    let lease = sessions[0].lease("job", LONG).unwrap();
    driven.registry.signal_within("w", WorkerState::Terminate, GRACE, Overdue::End).unwrap();
    wait(&mut driven, &sessions);
    let all = events(&subscriber);
    let [Event::Told { .. }, Event::Overdue(overdue), Event::Ended(ended), Event::Lost(lost)] = &all[..]
    else {
        panic!("{all:?}")
    };
    assert_eq!((overdue.then, ended.reason), (Overdue::End, EndReason::Expired));
    assert_eq!((&overdue.held[..], &lost.leases[..]), (&[lease.info()][..], &[lease.info()][..]));
    assert_eq!(closed.len(), 3);
    assert!(sessions.iter().all(|session| session.state().is_err()) && !lease.is_held());
    let again = join(&driven.registry, "w");
    assert_eq!(again.state(), Ok(WorkerState::Terminate));
    assert_eq!(driven.registry.stats().expired, 1);
}

#[test]
fn the_last_deadline_counts_be_it_later_or_earlier() {
    for (first, last) in [(10, 40), (40, 10), (10, 10)] {
        let mut driven = Driven::new(|_| {});
        let session = join(&driven.registry, "w");
        driven.registry.signal_within("w", WorkerState::Terminate, first * TICK, Overdue::Leave).unwrap();
        driven.ticks(5);
        driven.registry.signal_within("w", WorkerState::Quiet, last * TICK, Overdue::End).unwrap();
        assert_eq!(session.state(), Ok(WorkerState::Terminate), "no step back");
        let at = driven.at;
        while session.state().is_ok() {
            assert!(driven.at - at < 100 * TICK, "its deadline is never over");
            beat_all([&session]);
            driven.ticks(1);
        }
        let took = driven.at - at;
        assert!(took >= last * TICK && took <= (last + 2) * TICK, "{first} {last}: {took:?}");
        assert_eq!(driven.registry.stats().overdue, 1);
    }
}

#[test]
fn a_deadline_out_of_range_or_for_nobody_changes_nothing() {
    let mut driven = Driven::new(|_| {});
    let session = join(&driven.registry, "w");
    for grace in [Duration::ZERO, Duration::from_micros(999), Duration::MAX] {
        let refused = driven.registry.signal_within("w", WorkerState::Quiet, grace, Overdue::End);
        assert!(matches!(refused, Err(SignalError::OutOfRange(_))), "{grace:?}");
    }
    assert_eq!(session.state(), Ok(WorkerState::Running));
    let refused = driven.registry.signal_within("nobody", WorkerState::Quiet, GRACE, Overdue::End);
    assert_eq!(refused, Err(SignalError::UnknownWorker));
    wait(&mut driven, from_ref(&session));
    assert_eq!(driven.registry.stats().overdue, 0);
}

#[test]
fn a_pause_of_the_engine_moves_it() {
    let mut driven = Driven::new(|_| {});
    let session = join(&driven.registry, "w");
    driven.registry.signal_within("w", WorkerState::Terminate, 10 * TICK, Overdue::End).unwrap();
    driven.ticks(5);
    driven.leap(Duration::from_secs(3600));
    beat_all([&session]);
    driven.ticks(5);
    assert!(session.state().is_ok());
    driven.ticks(2);
    assert!(session.state().is_err());
}

#[test]
fn whoever_comes_back_as_terminate_is_held_to_it_again() {
    let mut driven = Driven::new(|policy| (policy.grace, policy.overdue) = (Some(GRACE), Overdue::Leave));
    let events = driven.registry.subscribe(100);
    let silent = join(&driven.registry, "w");
    driven.registry.signal("w", WorkerState::Terminate).unwrap();
    while driven.is_live("w") {
        driven.ticks(1);
    }
    drop(silent);
    let back = join(&driven.registry, "w");
    assert_eq!(back.state(), Ok(WorkerState::Terminate));
    while events.try_recv().is_some() {}
    wait(&mut driven, from_ref(&back));
    let late = std::iter::from_fn(|| events.try_recv()).map(Result::unwrap).collect();
    assert_eq!(overdue(late).len(), 1);
}

#[test]
fn who_is_told_to_run_has_nothing_to_do_in_time() {
    let mut driven = Driven::new(|_| {});
    let events = driven.registry.subscribe(100);
    let session = join(&driven.registry, "w");
    driven.registry.signal_within("w", WorkerState::Running, GRACE, Overdue::End).unwrap();
    let lease = session.lease("job", Duration::from_secs(60)).unwrap();
    driven.registry.signal("w", WorkerState::Quiet).unwrap();
    wait(&mut driven, from_ref(&session));
    assert!(lease.is_held());
    assert!(overdue(std::iter::from_fn(|| events.try_recv()).map(Result::unwrap).collect()).is_empty());
}
