//! Leases: held by one, ended once, never lost early, refused to whoever has lost them.

mod common;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use common::{Driven, TICK, TTL, beat_all, events, hello, join};
use heartwheel::{
    Beat, EndReason, Event, Identity, Lease, LeaseEnd, LeaseError, Lost, Recover, Session, WorkerState,
};

type End = fn(&Lease) -> bool;

const LONG: Duration = Duration::from_secs(100);

fn lost(events: &[Event]) -> Vec<&Lost> {
    events.iter().filter_map(|event| if let Event::Lost(lost) = event { Some(lost) } else { None }).collect()
}

fn ids(lost: &Lost) -> Vec<&str> {
    lost.leases.iter().map(|lease| lease.id.as_str()).collect()
}

/// Passes tick by tick while the holder beats, until the lease ends. Returns when that was.
fn ends_at(driven: &mut Driven, session: &Session, lease: &Lease) -> Duration {
    for _ in 0..10_000 {
        if !lease.is_held() {
            return driven.at;
        }
        beat_all([session]);
        driven.ticks(1);
    }
    panic!("it does not end");
}

/// The holder is refused on every call; says how the lease ended and under whose incarnation and token the work is held now.
fn refused(lease: &Lease) -> (LeaseEnd, Option<(u64, u64)>) {
    assert!(!lease.is_held());
    let refusals = [lease.complete(), lease.fail(), lease.release()];
    let mut refusals: Vec<_> =
        refusals.into_iter().map(|refusal| refusal.expect_err("it has ended")).collect();
    let Err(LeaseError::NotHeld(renewal)) = lease.renew(LONG) else { panic!("it was renewed") };
    refusals.push(renewal);
    assert!(refusals.windows(2).all(|two| two[0] == two[1]), "{refusals:?}");
    let refusal = refusals.pop().unwrap();
    assert_eq!(lease.ended(), Some(refusal.how));
    (refusal.how, refusal.now.map(|now| (now.incarnation.get(), now.token.get())))
}

#[test]
fn work_is_held_by_one_until_that_one_ends_it() {
    let driven = Driven::new(|_| {});
    let (one, other) = (join(&driven.registry, "one"), join(&driven.registry, "other"));
    let ends: [(End, LeaseEnd); 3] = [
        (|lease| lease.complete().is_ok(), LeaseEnd::Completed),
        (|lease| lease.fail().is_ok(), LeaseEnd::Failed),
        (|lease| lease.release().is_ok(), LeaseEnd::Released),
    ];
    let mut last = None;
    for (end, how) in ends {
        let lease = one.lease("job", LONG).unwrap();
        for session in [&one, &other] {
            assert_eq!(session.lease("job", LONG).unwrap_err(), LeaseError::Held(lease.info()));
        }
        assert_eq!(driven.registry.lease("job"), Some((lease.info(), LONG)));
        assert_eq!(driven.registry.leases(), [lease.info()]);
        assert_eq!((lease.id(), driven.registry.stats().leases), ("job", 1));
        assert!(Some(lease.token()) > last, "tokens grow");
        assert!(end(&lease));
        assert_eq!(refused(&lease), (how, None));
        assert_eq!(driven.registry.lease("job"), None);
        assert_eq!(driven.registry.leases(), []);
        let next = other.lease("job", LONG).unwrap();
        assert!(next.token() > lease.token());
        assert_eq!(refused(&lease), (how, Some((other.incarnation().get(), next.token().get()))));
        assert!(next.is_held(), "nothing that the stale holder did touched it");
        last = Some(next.token());
        next.release().unwrap();
    }
    let stats = driven.registry.stats();
    assert_eq!((stats.leases, stats.leases_completed, stats.leases_failed), (0, 1, 1));
    assert_eq!((stats.leases_released, stats.leases_expired, stats.leases_lost_with_holder), (4, 0, 0));
}

#[test]
fn every_connection_of_the_holder_finds_it_and_nobody_else() {
    let driven = Driven::new(|_| {});
    let (first, second) = (join(&driven.registry, "w"), join(&driven.registry, "w"));
    let stranger = join(&driven.registry, "stranger");
    let lease = first.lease("job", LONG).unwrap();
    assert!(stranger.held("job").is_none() && first.held("other").is_none());
    // It outlives the connection on which it was granted, and that connection's coming back.
    drop(first);
    let first = join(&driven.registry, "w");
    assert!(lease.is_held());
    let found = second.held("job").unwrap();
    assert_eq!(found.token(), first.held("job").unwrap().token());
    found.complete().unwrap();
    assert!(first.held("job").is_none());
    assert_eq!(refused(&lease), (LeaseEnd::Completed, None));
    assert_eq!(driven.registry.get("w").unwrap().completed(), 1);
}

#[test]
fn it_runs_out_never_early_and_late_by_two_ticks_at_most() {
    for ttl in [TICK, 3 * TICK, TICK * 7 / 2, TTL, 12 * TTL] {
        let mut driven = Driven::new(|_| {});
        let session = join(&driven.registry, "w");
        let subscriber = driven.registry.subscribe(100);
        let granted = driven.at;
        let lease = session.lease("job", ttl).unwrap();
        let ran = ends_at(&mut driven, &session, &lease) - granted;
        assert!(ran >= ttl && ran <= ttl + 2 * TICK + TICK / 2, "{ran:?} of {ttl:?}");
        let events = events(&subscriber);
        let lost = lost(&events);
        assert_eq!((lost.len(), ids(lost[0]), lost[0].how), (1, vec!["job"], LeaseEnd::Expired));
        assert_eq!(lost[0].leases[0], lease.info());
        assert_eq!(driven.registry.lease("job"), None);
        assert_eq!(driven.registry.stats().leases_expired, 1);
        assert_eq!(refused(&lease), (LeaseEnd::Expired, None));
        assert!(session.lease("job", ttl).unwrap().token() > lease.token());
    }
}

#[test]
fn a_renewal_counts_from_its_own_time_be_it_longer_or_shorter() {
    for (first, renewed) in [(5, 30), (100, 5), (30, 30), (100, 1)] {
        let mut driven = Driven::new(|_| {});
        let session = join(&driven.registry, "w");
        let lease = session.lease("job", first * TICK).unwrap();
        driven.ticks(3);
        let at = driven.at;
        lease.renew(renewed * TICK).unwrap();
        assert_eq!(driven.registry.lease("job").unwrap().1, renewed * TICK);
        let ran = ends_at(&mut driven, &session, &lease) - at;
        assert!(ran >= renewed * TICK && ran <= (renewed + 2) * TICK, "{first} {renewed} {ran:?}");
    }
}

#[test]
fn renewed_again_and_again_it_is_held_for_ever_and_a_pause_of_the_engine_ends_it_not() {
    let mut driven = Driven::new(|policy| policy.recover = Recover::AtExpiry);
    let session = join(&driven.registry, "w");
    let lease = session.lease("job", 5 * TICK).unwrap();
    for _ in 0..200 {
        driven.ticks(3);
        beat_all([&session]);
        lease.renew(5 * TICK).unwrap();
    }
    driven.leap(Duration::from_secs(3600));
    driven.ticks(4);
    assert!(lease.is_held());
    driven.ticks(3);
    assert!(!lease.is_held());
}

#[test]
fn with_slow_passes_it_does_not_end_early_either() {
    for step in 2..10 {
        for late in 0..step {
            let mut driven = Driven::new(|_| {});
            let session = join(&driven.registry, "w");
            // Granted just before a pass that is `step` ticks after the last one.
            let granted = late * TICK + TICK / 2;
            let lease = session.lease("job", 20 * TICK).unwrap();
            while lease.is_held() {
                driven.leap(step * TICK);
                beat_all([&session]);
            }
            assert!(driven.at >= granted + 20 * TICK, "{step}: {:?}", driven.at);
            assert!(driven.at <= (20 + 3 * step + 1) * TICK, "{step}: {:?}", driven.at);
        }
    }
}

#[test]
fn all_leases_end_with_their_holder_in_one_event_after_its_end() {
    for reason in [EndReason::Left, EndReason::Expired, EndReason::Superseded] {
        let mut driven = Driven::new(|policy| policy.identity = Identity::Supersede);
        let session = join(&driven.registry, "w");
        let leases: Vec<_> =
            (0..50).map(|n| session.lease(&format!("job-{}", 99 - n), LONG).unwrap()).collect();
        leases[7].complete().unwrap();
        let goes_on = session.lease_with("goes on", LONG, Recover::AtExpiry).unwrap();
        let subscriber = driven.registry.subscribe(1000);
        let incarnation = session.incarnation();
        let mut successor = None;
        match reason {
            EndReason::Left => drop(session),
            EndReason::Superseded => {
                successor = Some(driven.registry.connect(hello("w").pid(2), |_| {}).unwrap());
            }
            _ => drop((driven.ticks(13), session)),
        }
        let events = events(&subscriber);
        let at = events.iter().position(|event| matches!(event, Event::Ended(_))).unwrap();
        let Event::Ended(ended) = &events[at] else { unreachable!() };
        assert_eq!((ended.reason, ended.worker.leases(), ended.worker.completed()), (reason, 50, 1));
        let all = lost(&events);
        assert!(matches!(&events[at + 1], Event::Lost(_)), "{events:?}");
        assert_eq!((all.len(), all[0].how, all[0].incarnation), (1, LeaseEnd::HolderEnded, incarnation));
        let order: Vec<_> = (0..50).filter(|&n| n != 7).map(|n| format!("job-{}", 99 - n)).collect();
        assert_eq!(ids(all[0]), order);
        for (n, lease) in leases.iter().enumerate().filter(|&(n, _)| n != 7) {
            assert_eq!(refused(lease), (LeaseEnd::HolderEnded, None), "{n}");
        }
        let stats = driven.registry.stats();
        assert_eq!((stats.leases, stats.leases_lost_with_holder, stats.leases_completed), (1, 49, 1));
        assert_eq!(driven.registry.leases(), [goes_on.info()]);
        if let Some(successor) = successor {
            assert!(successor.held("goes on").is_none(), "it is another incarnation's");
            assert_eq!(successor.lease("goes on", LONG).unwrap_err(), LeaseError::Held(goes_on.info()));
            assert!(successor.lease("job-99", LONG).is_ok(), "at once");
        }
    }
}

#[test]
fn at_expiry_it_goes_on_after_its_holder_may_be_completed_and_runs_out_once() {
    let mut driven = Driven::new(|policy| policy.recover = Recover::AtExpiry);
    let session = join(&driven.registry, "w");
    let completed = session.lease("completed", 50 * TICK).unwrap();
    let expires = session.lease("expires", 50 * TICK).unwrap();
    let subscriber = driven.registry.subscribe(1000);
    driven.ticks(13);
    assert!(session.state().is_err() && completed.is_held() && expires.is_held());
    assert!(lost(&events(&subscriber)).is_empty());
    assert_eq!(expires.renew(50 * TICK), Err(LeaseError::Gone), "the dead prolong nothing");
    completed.complete().unwrap();
    driven.ticks(36);
    assert!(expires.is_held());
    driven.ticks(4);
    assert_eq!(refused(&expires), (LeaseEnd::Expired, None));
    driven.ticks(100);
    let events = events(&subscriber);
    assert_eq!(lost(&events).iter().map(|lost| ids(lost)).collect::<Vec<_>>(), [vec!["expires"]]);
    let stats = driven.registry.stats();
    assert_eq!((stats.leases, stats.leases_completed, stats.leases_expired), (0, 1, 1));
    assert_eq!((stats.leases_lost_with_holder, stats.filed), (0, 0));
    assert_eq!(session.lease("more", LONG).unwrap_err(), LeaseError::Gone);
}

#[test]
fn what_is_out_of_range_is_refused_and_changes_nothing() {
    let driven = Driven::new(|policy| {
        (policy.lease_min, policy.lease_max) = (Some(2 * TICK), TTL);
        policy.limits.lease = 8;
    });
    let session = join(&driven.registry, "w");
    let lease = session.lease("12345678", TTL).unwrap();
    for ttl in [Duration::ZERO, TICK, 2 * TICK - Duration::from_nanos(1), TTL + TICK, Duration::MAX] {
        assert!(matches!(session.lease("other", ttl), Err(LeaseError::OutOfRange(_))), "{ttl:?}");
        let Err(LeaseError::OutOfRange(range)) = lease.renew(ttl) else { panic!("{ttl:?}") };
        assert_eq!((range.value, range.min, range.max), (ttl, 2 * TICK, TTL));
    }
    for (id, len) in [("", 0), ("123456789", 9), ("ääääö", 10)] {
        assert_eq!(session.lease(id, TTL).unwrap_err(), LeaseError::InvalidId { len, max: 8 });
    }
    assert_eq!(driven.registry.lease("12345678").unwrap().1, TTL);
    assert_eq!(driven.registry.stats().leases, 1);
    assert_eq!(session.lease("next", 2 * TICK).unwrap().token().get(), lease.token().get() + 1);
}

#[test]
fn what_a_worker_holds_and_has_done_is_shown() {
    let mut driven = Driven::new(|_| {});
    let session = join(&driven.registry, "w");
    let get = |driven: &Driven| driven.registry.get("w").unwrap();
    assert_eq!(
        (get(&driven).leases(), get(&driven).oldest_lease(), get(&driven).no_progress_for()),
        (0, None, None)
    );
    driven.ticks(2);
    let first = session.lease("first", LONG).unwrap();
    driven.ticks(3);
    let _second = session.lease("second", LONG).unwrap();
    driven.ticks(2);
    let info = get(&driven);
    assert_eq!((info.leases(), info.oldest_lease(), info.completed()), (2, Some(5 * TICK), 0));
    assert_eq!((info.last_completion(), info.no_progress_for()), (None, Some(5 * TICK)));
    first.complete().unwrap();
    driven.ticks(1);
    let info = get(&driven);
    assert_eq!((info.leases(), info.oldest_lease(), info.completed()), (1, Some(3 * TICK), 1));
    assert_eq!((info.last_completion(), info.no_progress_for()), (Some(TICK), Some(TICK)));
    let shown = driven.registry.snapshot().workers()[0].leases();
    assert_eq!(shown, 1);
}

#[test]
fn no_lease_is_granted_after_a_signal_or_a_cordon_that_returned() {
    for (told, error) in [
        (WorkerState::Quiet, LeaseError::Told(WorkerState::Quiet)),
        (WorkerState::Terminate, LeaseError::Told(WorkerState::Terminate)),
        (WorkerState::Running, LeaseError::Cordoned),
    ] {
        for round in 0..100 {
            let driven = Driven::new(|_| {});
            let session = join(&driven.registry, "w");
            let (begun, returned) = (AtomicBool::new(false), AtomicBool::new(false));
            thread::scope(|scope| {
                scope.spawn(|| {
                    for n in 0..1_000_000 {
                        let after = returned.load(Ordering::SeqCst);
                        let lease = session.lease(&format!("{n}"), LONG);
                        begun.store(true, Ordering::SeqCst);
                        match lease {
                            Ok(lease) if n % 2 == 0 => lease.complete().unwrap(),
                            Ok(_) => {}
                            Err(refused) => assert_eq!(refused, error),
                        }
                        if after {
                            assert!(session.lease("after", LONG).is_err());
                            return;
                        }
                    }
                });
                while !begun.load(Ordering::SeqCst) {
                    thread::yield_now();
                }
                match told {
                    WorkerState::Running => drop(driven.registry.cordon("w", true).unwrap()),
                    told => drop(driven.registry.signal("w", told).unwrap()),
                }
                let held = driven.registry.get("w").unwrap().leases();
                returned.store(true, Ordering::SeqCst);
                let granted = driven.registry.get("w").unwrap().leases();
                assert!(granted <= held, "round {round}: {held} became {granted}");
            });
            let stats = driven.registry.stats();
            assert_eq!(stats.leases, driven.registry.get("w").unwrap().leases() as usize);
            assert_eq!(stats.leases, driven.registry.leases().len());
            assert_eq!(stats.leases_released, 0, "a refused one is no released one");
        }
    }
}

#[test]
fn a_worker_that_was_told_may_still_renew_and_end_what_it_holds() {
    let driven = Driven::new(|_| {});
    let session = join(&driven.registry, "w");
    let lease = session.lease("job", LONG).unwrap();
    driven.registry.signal("w", WorkerState::Terminate).unwrap();
    assert_eq!(session.beat(&Beat::default()), Ok(WorkerState::Terminate));
    lease.renew(LONG).unwrap();
    lease.complete().unwrap();
}

#[test]
fn leases_that_run_longer_than_their_holder_may_be_silent_cost_the_wheel_nothing() {
    let mut driven = Driven::new(|_| {});
    let session = join(&driven.registry, "w");
    driven.ticks(1);
    for n in 0..10_000 {
        session.lease(&format!("{n}"), 2 * TTL).unwrap();
        assert_eq!(driven.registry.stats().filed, 1, "it is in nobody's way");
        driven.settle();
        assert_eq!(driven.registry.stats().filed, 1);
    }
}

#[test]
fn a_burst_that_runs_out_is_taken_in_slices_and_each_lease_is_lost_once() {
    const BURST: usize = 10_000;
    const BUDGET: usize = 64;
    for recover in [Recover::AtDeath, Recover::AtExpiry] {
        let mut driven = Driven::new(|_| {});
        let session = join(&driven.registry, "w");
        driven.ticks(1);
        // Every other one runs long, and stays.
        for n in 0..BURST {
            let ttl = if n % 2 == 0 { 5 * TICK } else { 100 * TTL };
            session.lease_with(&format!("{n}"), ttl, recover).unwrap();
        }
        let subscriber = driven.registry.subscribe(2 * BURST);
        let mut lost = BTreeSet::new();
        for _ in 0..BURST / BUDGET {
            let pass = driven.pass(BUDGET);
            let mut slice = 0;
            for event in events(&subscriber) {
                let Event::Lost(event) = event else { continue };
                assert_eq!(event.how, LeaseEnd::Expired);
                slice += event.leases.len();
                for lease in &*event.leases {
                    assert!(lost.insert(lease.id.parse::<usize>().unwrap()), "{} twice", lease.id);
                }
            }
            // To come upon the worker is a step, too.
            assert!(slice < BUDGET, "{slice} in one slice");
            if !pass.more {
                driven.at += TICK;
                beat_all([&session]);
            }
        }
        assert!(lost.iter().all(|n| n % 2 == 0));
        assert_eq!(lost.len(), BURST / 2);
        let info = driven.registry.get("w").unwrap();
        assert_eq!((info.leases() as usize, driven.registry.leases().len()), (BURST / 2, BURST / 2));
    }
}

#[test]
fn a_token_and_an_end_say_what_they_are() {
    let driven = Driven::new(|_| {});
    let lease = join(&driven.registry, "w").lease("j", TTL).unwrap();
    assert_eq!(format!("{:>9}", lease.token()), format!("{:>9}", lease.token().get()));
    let ends =
        [LeaseEnd::Completed, LeaseEnd::Failed, LeaseEnd::Released, LeaseEnd::Expired, LeaseEnd::HolderEnded];
    let said = ["completed", "failed", "released", "expired", "holder ended"];
    assert_eq!(ends.map(|end| end.to_string()), said);
}
