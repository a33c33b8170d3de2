//! What was seen on running servers of the original design, and must not be seen here. Those that need a wire are tested there.

mod common;

use std::thread;

use common::{Closed, Driven, Stop, TTL_TICKS, hello, join, registry};
use heartwheel::{Beat, ConnectError, EndReason, Identity, WorkerState};

use WorkerState::{Quiet, Running, Terminate};

#[test]
fn quiet_reaches_every_connection_and_not_only_the_first() {
    let registry = registry(|_| {});
    let first = join(&registry, "w");
    registry.signal("w", Quiet).unwrap();
    let (second, third) = (join(&registry, "w"), join(&registry, "w"));
    for session in [&first, &second, &third] {
        assert_eq!((session.state(), session.beat(&Beat::default())), (Ok(Quiet), Ok(Quiet)));
    }
    drop(first);
    assert_eq!(second.beat(&Beat::default()), Ok(Quiet), "also when the first is gone");
    registry.signal("w", Terminate).unwrap();
    assert_eq!((second.state(), third.state()), (Ok(Terminate), Ok(Terminate)));
}

/// The busy page read the live map unlocked, and the server died within 25 s of churn.
#[test]
fn the_fleet_can_be_read_while_it_churns() {
    let registry = registry(|_| {});
    let stop = Stop::default();
    let _stays: Vec<_> = (0..50).map(|n| join(&registry, &format!("stays{n}"))).collect();
    thread::scope(|scope| {
        // Dropped first: a failure in here ends the others, for whom the scope waits.
        let _stops = stop.clone();
        let churners: Vec<_> = (0..2)
            .map(|thread| {
                let registry = &registry;
                scope.spawn(move || {
                    for n in 0..20_000 {
                        drop(join(registry, &format!("{thread}-{}", n % 300)));
                    }
                })
            })
            .collect();
        let reader = scope.spawn(|| {
            let mut reads = 0;
            while !stop.is_said() {
                let snapshot = registry.snapshot();
                let workers = snapshot.workers();
                assert!(
                    workers.is_sorted_by(|a, b| a.incarnation() < b.incarnation()),
                    "in order, each once"
                );
                assert_eq!(
                    workers.iter().filter(|worker| worker.wid().as_str().starts_with("stays")).count(),
                    50
                );
                reads += 1;
            }
            reads
        });
        let churned: Vec<_> = churners.into_iter().map(thread::ScopedJoinHandle::join).collect();
        stop.now();
        assert!(reader.join().unwrap() > 0 && churned.iter().all(Result::is_ok));
    });
    assert_eq!(registry.stats().live(), 50);
}

#[test]
fn a_second_hello_refreshes_the_worker_and_its_connection_is_not_closed_early() {
    let mut driven = Driven::new(|_| {});
    let closed = Closed::default();
    let _first = driven.registry.connect(hello("w"), closed.closer(0)).unwrap();
    driven.ticks(TTL_TICKS - 2);
    let second = driven.registry.connect(hello("w"), closed.closer(1)).unwrap();
    driven.ticks(TTL_TICKS - 1);
    assert_eq!((closed.len(), second.state()), (0, Ok(Running)));
    driven.ticks(3);
    assert_eq!(closed.len(), 2);
}

#[test]
fn a_connection_that_is_lost_at_once_leaves_no_ghost() {
    let driven = Driven::new(|_| {});
    for n in 0..200 {
        drop(join(&driven.registry, &format!("w{n}")));
    }
    assert_eq!((driven.registry.stats().live(), driven.registry.snapshot().workers().len()), (0, 0));
}

#[test]
fn a_reconnect_does_not_turn_a_quiet_worker_back_into_a_running_one() {
    let mut driven = Driven::new(|_| {});
    let first = join(&driven.registry, "w");
    driven.registry.signal("w", Quiet).unwrap();
    let second = join(&driven.registry, "w");
    assert_eq!(second.state(), Ok(Quiet), "a further connection");
    drop((first, second));
    let third = join(&driven.registry, "w");
    assert_eq!(third.state(), Ok(Quiet), "all closed and said HELLO again");
    driven.ticks(TTL_TICKS + 2);
    assert!(third.state().is_err());
    assert_eq!(join(&driven.registry, "w").state(), Ok(Quiet), "reaped and said HELLO again");
}

#[test]
fn two_processes_with_one_wid_do_what_the_policy_says() {
    let closed = Closed::default();
    let both = |identity| {
        let driven = Driven::new(|policy| policy.identity = identity);
        let first = driven.registry.connect(hello("w").pid(1), closed.closer(1)).unwrap();
        let second = driven.registry.connect(hello("w").pid(2), closed.closer(2));
        driven.settle();
        (driven, first, second)
    };

    let (driven, first, second) = both(Identity::Share);
    assert_eq!(first.incarnation(), second.unwrap().incarnation());
    assert_eq!((driven.registry.stats().live(), closed.len()), (1, 0));

    let (driven, first, second) = both(Identity::Reject);
    let (wid, hostname) = ("w".parse().unwrap(), "app-1".to_owned());
    assert_eq!(second.unwrap_err(), ConnectError::Conflict { wid, hostname, pid: Some(1) });
    assert_eq!((first.beat(&Beat::default()), closed.len()), (Ok(Running), 0));
    assert_eq!(driven.registry.get("w").unwrap().connections(), 1);

    let (driven, first, second) = both(Identity::Supersede);
    assert!(first.beat(&Beat::default()).is_err());
    assert_eq!(second.unwrap().beat(&Beat::default()), Ok(Running));
    assert_eq!(closed.all(), [(1, EndReason::Superseded)]);
    assert_eq!(driven.registry.stats().superseded, 1);
}

#[test]
fn another_host_is_another_process_and_nothing_said_is_one() {
    let registry = registry(|policy| policy.identity = Identity::Reject);
    let _first = registry.connect(heartwheel::Hello::new("w").unwrap(), |_| {}).unwrap();
    assert!(registry.connect(heartwheel::Hello::new("w").unwrap(), |_| {}).is_ok());
    assert!(registry.connect(heartwheel::Hello::new("w").unwrap().hostname("b"), |_| {}).is_err());
    assert!(registry.connect(heartwheel::Hello::new("w").unwrap().pid(0), |_| {}).is_err());
}

#[test]
fn a_beat_without_rss_keeps_what_was_said() {
    let registry = registry(|_| {});
    let session = join(&registry, "w");
    let rss = || registry.get("w").unwrap().rss_kb();
    assert_eq!(rss(), None);
    session.beat(&Beat::default().rss_kb(54_176)).unwrap();
    session.beat(&Beat::default()).unwrap();
    registry.beat("w", &Beat::default()).unwrap();
    assert_eq!(rss(), Some(54_176));
    session.beat(&Beat::default().rss_kb(0)).unwrap();
    assert_eq!(rss(), Some(0), "nought is said, not missing");
}

#[test]
fn an_unknown_state_on_the_wire_means_running() {
    for (text, state) in [
        ("quiet", Quiet),
        ("terminate", Terminate),
        ("running", Running),
        ("", Running),
        ("bogus", Running),
        ("QUIET", Running),
    ] {
        assert_eq!(WorkerState::from_wire(text), state, "{text:?}");
    }
    let registry = registry(|_| {});
    let session = join(&registry, "w");
    registry.signal("w", Quiet).unwrap();
    for text in ["", "running", "bogus"] {
        assert_eq!(session.beat(&Beat::default().state(WorkerState::from_wire(text))), Ok(Quiet));
    }
}
