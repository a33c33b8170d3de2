//! A selector on a registry: the preview, and who is told.

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{Driven, hello, registry};
use heartwheel::{Beat, Health, Registry, Selector, Session, WorkerState};

fn wids(registry: &Registry, selector: &str) -> Vec<String> {
    let selector: Selector = selector.parse().unwrap();
    registry.select(&selector).iter().map(|worker| worker.wid().to_string()).collect()
}

#[test]
fn selects_in_the_order_of_joining() {
    let registry = registry(|_| {});
    let sessions: Vec<_> = (0..20)
        .map(|n| {
            let hello = hello(&format!("w{n}"))
                .hostname(format!("app-{}", n % 4))
                .version(format!("1.{}", n % 2))
                .label(if n < 10 { "blue" } else { "green" });
            registry.connect(hello, |_| {}).unwrap()
        })
        .collect();
    assert_eq!(wids(&registry, "host=app-1 and label=blue"), ["w1", "w5", "w9"]);
    assert_eq!(wids(&registry, "wid=w1? and version!=1.0"), ["w11", "w13", "w15", "w17", "w19"]);
    assert_eq!(wids(&registry, "all").len(), 20);
    assert!(wids(&registry, "cordoned").is_empty());
    drop(sessions);
    assert!(wids(&registry, "all").is_empty());
}

#[test]
fn a_beat_shows_at_once() {
    let mut driven = Driven::new(|_| {});
    let session = common::join(&driven.registry, "w1");
    driven.ticks(6);
    assert_eq!(wids(&driven.registry, "age>500ms and health=late"), ["w1"]);
    assert!(wids(&driven.registry, "rss>0K").is_empty());
    session.beat(&Beat::default().rss_kb(2048)).unwrap();
    assert_eq!(wids(&driven.registry, "rss=2M and age=0s and up=600ms"), ["w1"]);
    let seen = driven.registry.get("w1").unwrap();
    assert!(Selector::health(Health::Live).and(Selector::from(session.wid())).matches(&seen));
}

#[test]
fn tells_who_matches_and_nobody_else() {
    let registry = registry(|_| {});
    let blue = registry.connect(hello("blue").label("blue"), |_| {}).unwrap();
    let green = registry.connect(hello("green").label("green"), |_| {}).unwrap();
    let selector = Selector::label("blue");
    assert_eq!(registry.signal_where(&selector, WorkerState::Quiet), 1);
    assert_eq!((blue.state(), green.state()), (Ok(WorkerState::Quiet), Ok(WorkerState::Running)));
    // A repeat changes nothing, and counts.
    assert_eq!(registry.signal_where(&selector, WorkerState::Running), 1);
    assert_eq!(registry.signal_where(&!selector.clone(), WorkerState::Terminate), 1);
    assert_eq!((blue.state(), green.state()), (Ok(WorkerState::Quiet), Ok(WorkerState::Terminate)));
    blue.leave();
    assert_eq!(registry.signal_where(&selector, WorkerState::Terminate), 0);
}

#[test]
fn churn_meanwhile_is_no_trouble() {
    let registry = registry(|_| {});
    let kept: Vec<_> = (0..50)
        .map(|n| registry.connect(hello(&format!("kept-{n}")).label("kept"), |_| {}).unwrap())
        .collect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (registry, stop) = (&registry, &stop);
            scope.spawn(move || {
                // Relaxed: a flag, and nothing else.
                while !stop.load(Ordering::Relaxed) {
                    drop(registry.connect(hello(&format!("churn-{thread}")), |_| {}).unwrap());
                }
            });
        }
        let selector: Selector = "label=kept and not wid=churn-*".parse().unwrap();
        for _ in 0..300 {
            assert_eq!(registry.select(&selector).len(), kept.len());
            assert_eq!(registry.signal_where(&selector, WorkerState::Running), kept.len());
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(registry.signal_where(&"label=kept".parse().unwrap(), WorkerState::Quiet), kept.len());
    assert!(kept.iter().all(|session| session.state() == Ok(WorkerState::Quiet)));
    assert_eq!(registry.select(&Selector::age(heartwheel::Compare::Less, Duration::ZERO)).len(), 0);
}

#[test]
fn cordons_who_matches_and_counts_for_whom_that_was_new() {
    let registry = registry(|_| {});
    let sessions: Vec<_> = ["b1", "b2", "b3", "g1"]
        .map(|wid| registry.connect(hello(wid).label(&wid[..1]), |_| {}).unwrap())
        .into_iter()
        .collect();
    registry.cordon("b2", true).unwrap();
    let blue = Selector::label("b");
    assert_eq!(registry.cordon_where(&blue, true), 2, "one was so already");
    let take_work: Vec<_> = sessions.iter().map(Session::takes_work).collect();
    assert_eq!(take_work, [false, false, false, true]);
    assert_eq!(registry.cordon_where(&Selector::label("nobody"), false), 0);
    assert_eq!(registry.cordon_where(&blue, false), 3);
    assert!(sessions.iter().all(Session::takes_work));
}
