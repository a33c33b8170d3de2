//! G4: one incarnation ends once, gives one end event, and each of its connections is closed once. Events of one worker come in
//! order. A slow subscriber is told how many it missed.

mod common;

use std::collections::BTreeMap;
use std::sync::Barrier;
use std::thread;

use common::{Closed, Driven, Happened, TTL_TICKS, chaos, drain, hello, join};
use heartwheel::{EndReason, Identity, Incarnation, Lagged, WorkerState};

#[test]
fn under_any_interleaving_everything_ends_once() {
    for (seed, identity) in (10..).zip([Identity::Share, Identity::Supersede, Identity::Reject]) {
        let history = chaos::run(identity, seed);
        let mut closed = BTreeMap::<Incarnation, u32>::new();
        for &(incarnation, times) in &history.connections {
            assert!(times <= 1, "a connection of {incarnation} was closed {times} times");
            *closed.entry(incarnation).or_default() += times;
        }
        let of_each = history.of_each();
        let mut reasons = BTreeMap::<_, u64>::new();
        for (incarnation, events) in &of_each {
            let (first, rest) = events.split_first().unwrap();
            assert!(matches!(first, Happened::Joined { .. }), "{incarnation}: {events:?}");
            let (last, between) = rest.split_last().unwrap_or_else(|| panic!("{incarnation} did not end"));
            assert!(between.iter().all(|event| matches!(event, Happened::Told { .. })), "{events:?}");
            let Happened::Ended { reason, connections, .. } = last else {
                panic!("{incarnation}: {events:?}")
            };
            assert_eq!(closed[incarnation], *connections, "of {incarnation}, {reason}");
            *reasons.entry(reason.as_str()).or_default() += 1;
        }
        // Within one wid a life ends before the next begins.
        let mut alive = BTreeMap::new();
        for event in &history.events {
            match event {
                Happened::Joined { wid, incarnation, .. } => {
                    assert_eq!(alive.insert(wid.clone(), *incarnation), None, "two lives of {wid} at once");
                }
                Happened::Ended { wid, incarnation, .. } => assert_eq!(alive.remove(wid), Some(*incarnation)),
                _ => {}
            }
        }
        let stats = history.registry.stats();
        assert_eq!((stats.live(), stats.connections, stats.remembered, stats.filed), (0, 0, 0, 0));
        assert_eq!(stats.joined, of_each.len() as u64);
        let counted = [("left", stats.left), ("expired", stats.expired), ("superseded", stats.superseded)];
        for (reason, count) in counted {
            assert_eq!(reasons.get(reason).copied().unwrap_or(0), count, "{reason}");
        }
        assert!(stats.left > 0 && stats.expired > 0, "too little happened: {stats:?}");
        assert_eq!(stats.superseded > 0, identity == Identity::Supersede);
    }
}

/// The last disconnect, the reaper and a newcomer of another process, all at once.
#[test]
fn leaving_reaping_and_taking_over_at_once_have_one_winner() {
    for round in 0..300 {
        let mut driven = Driven::new(|policy| policy.identity = Identity::Supersede);
        let subscriber = driven.registry.subscribe(100);
        let closed = Closed::default();
        let session = driven.registry.connect(hello("w"), closed.closer(0)).unwrap();
        driven.ticks(TTL_TICKS + 1);
        assert!(driven.is_live("w"));
        let first = session.incarnation();
        let barrier = Barrier::new(3);
        thread::scope(|scope| {
            scope.spawn(|| {
                barrier.wait();
                drop(session);
            });
            scope.spawn(|| {
                barrier.wait();
                drop(driven.registry.connect(hello("w").pid(2), |_| {}));
            });
            barrier.wait();
            driven.at += common::TICK;
            driven.settle();
        });
        driven.settle();
        let events = drain(&subscriber);
        let ends: Vec<_> = events
            .iter()
            .filter_map(|event| match event {
                Happened::Ended { incarnation, reason, connections, .. } if *incarnation == first => {
                    Some((*reason, *connections))
                }
                _ => None,
            })
            .collect();
        assert_eq!(ends.len(), 1, "in round {round}: {events:?}");
        let by_itself = ends[0].0 == EndReason::Left;
        assert_eq!(ends[0].1, u32::from(!by_itself));
        assert_eq!(closed.len(), usize::from(!by_itself), "in round {round}: {events:?}");
    }
}

/// Two signals and the last disconnect at once: whatever took effect is told in the order in which it did.
#[test]
fn events_of_racing_transitions_come_in_their_order() {
    const WORKERS: usize = 8_000;
    let driven = Driven::new(|_| {});
    let subscriber = driven.registry.subscribe(4 * WORKERS);
    let sessions: Vec<_> = (0..WORKERS).map(|n| join(&driven.registry, &n.to_string())).collect();
    let tell = |state| {
        for n in 0..WORKERS {
            let _ = driven.registry.signal(&n.to_string(), state);
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| tell(WorkerState::Quiet));
        scope.spawn(|| tell(WorkerState::Terminate));
        scope.spawn(|| drop(sessions));
    });
    let mut last = BTreeMap::new();
    for event in drain(&subscriber) {
        let (state, ended) = match &event {
            Happened::Joined { state, .. } | Happened::Told { state, .. } => (*state, false),
            Happened::Ended { state, .. } => (*state, true),
            Happened::Gap(_) => continue,
        };
        let before = last.insert(event.incarnation(), (state, ended));
        assert!(before.is_none_or(|(before, ended)| before <= state && !ended), "{event:?} after {before:?}");
    }
    assert!(last.values().all(|&(_, ended)| ended) && last.len() == WORKERS);
}

#[test]
fn every_open_connection_is_closed_once_with_the_reason_and_no_other() {
    let mut driven = Driven::new(|policy| policy.identity = Identity::Supersede);
    let closed = Closed::default();
    let connect = |name, pid: i64| driven.registry.connect(hello("w").pid(pid), closed.closer(name)).unwrap();
    let mut sessions: Vec<_> = (0..4).map(|name| connect(name, 1)).collect();
    drop(sessions.remove(2));
    let _next = connect(4, 2);
    driven.settle();
    let superseded = EndReason::Superseded;
    assert_eq!(closed.all(), [(0, superseded), (1, superseded), (3, superseded)]);
    drop(sessions);
    driven.ticks(TTL_TICKS + 2);
    driven.ticks(50);
    assert_eq!(closed.all()[3..], [(4, EndReason::Expired)]);
}

#[test]
fn a_slow_subscriber_learns_how_many_it_missed_and_where() {
    let driven = Driven::new(|_| {});
    let (slow, complete) = (driven.registry.subscribe(3), driven.registry.subscribe(1000));
    let sessions: Vec<_> = (0..50).map(|n| join(&driven.registry, &format!("w{n}"))).collect();
    driven.registry.signal_all(WorkerState::Quiet);
    drop(sessions);
    let all = drain(&complete);
    assert_eq!(all.len(), 150);
    let mut place = 0;
    let mut missed = 0;
    while let Some(item) = slow.try_recv() {
        match item {
            Ok(event) => {
                assert_eq!(Happened::of(&event).as_ref(), Some(&all[place]));
                place += 1;
            }
            Err(Lagged(count)) => {
                missed += count;
                place += usize::try_from(count).unwrap();
            }
        }
    }
    assert_eq!((place, missed), (150, 147));
}

#[test]
fn an_iterator_of_events_ends_with_the_registry() {
    let registry = common::registry(|_| {});
    let subscriber = registry.subscribe(10);
    let reader = thread::spawn(move || subscriber.filter(Result::is_ok).count());
    drop(join(&registry, "w"));
    drop(registry);
    assert_eq!(reader.join().unwrap(), 2);
}
