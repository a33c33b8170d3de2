//! A rolling drain on a registry whose workers come, go, obey and crash on threads of their own.

mod common;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use common::{Driven, PATIENCE, hello, join, now, registry};
use heartwheel::{Drain, DrainPhase, Event, Selector, Share, Standing, Until, WorkerState};

#[test]
fn terminates_a_busy_fleet_with_never_more_than_the_cap_out() {
    const WORKERS: usize = 40;
    const CAP: usize = 3;
    let registry = registry(|policy| policy.tick = Duration::from_millis(2));
    let (out, most, stop) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
    let joined = AtomicUsize::new(0);
    thread::scope(|scope| {
        for n in 0..WORKERS {
            let (registry, out, most, stop, joined) = (&registry, &out, &most, &stop, &joined);
            scope.spawn(move || {
                let hello = || hello(&format!("w{n}")).label("fleet");
                let mut session = registry.connect(hello(), |_| {}).unwrap();
                let mut restarted = false;
                // Relaxed: a counter.
                joined.fetch_add(1, Ordering::Relaxed);
                // SeqCst throughout: the counts are compared across threads.
                while !stop.load(Ordering::SeqCst) {
                    if session.state() == Ok(WorkerState::Terminate) {
                        assert!(!restarted, "told after its restart");
                        let now_out = out.fetch_add(1, Ordering::SeqCst) + 1;
                        most.fetch_max(now_out, Ordering::SeqCst);
                        thread::sleep(Duration::from_millis(1 + n as u64 % 5));
                        out.fetch_sub(1, Ordering::SeqCst);
                        session.leave();
                        session = registry.connect(hello(), |_| {}).unwrap();
                        restarted = true;
                    } else if n % 4 == 0 && !restarted {
                        // Reconnects all the time, and must have its turn even so.
                        session.leave();
                        session = registry.connect(hello(), |_| {}).unwrap();
                        thread::sleep(Duration::from_micros(300));
                    } else {
                        thread::sleep(Duration::from_micros(200));
                    }
                }
            });
        }
        let begun = now();
        while joined.load(Ordering::Relaxed) < WORKERS || registry.stats().live() < WORKERS {
            assert!(begun.elapsed() < PATIENCE);
            thread::yield_now();
        }
        // One that reconnects may be away in the moment of the start.
        let mut drain = loop {
            let plan = Drain::plan(Selector::label("fleet")).to(WorkerState::Terminate);
            let drain = plan.at_most(Share::Count(CAP)).start(&registry).unwrap();
            if drain.progress().total == WORKERS {
                break drain;
            }
        };
        let begun = now();
        let last = drain.run(&registry, |drain, progress| {
            assert!(progress.out <= CAP, "{progress}");
            if begun.elapsed() > PATIENCE {
                drain.cancel();
            }
        });
        stop.store(true, Ordering::SeqCst);
        assert_eq!((last.phase, last.done, last.vanished), (DrainPhase::Finished, WORKERS, 0), "{last}");
    });
    assert!((1..=CAP).contains(&most.load(Ordering::SeqCst)), "{most:?}");
}

#[test]
fn a_worker_that_is_reaped_frees_its_slot() {
    let mut driven = Driven::new(|_| {});
    let _silent = [join(&driven.registry, "a"), join(&driven.registry, "b")];
    let mut drain = Drain::plan(Selector::all()).to(WorkerState::Terminate).start(&driven.registry).unwrap();
    drain.advance(driven.start + driven.at, &driven.registry);
    let events = driven.registry.subscribe(8);
    driven.ticks(20);
    let ended: Vec<_> = std::iter::from_fn(|| events.try_recv()).filter_map(Result::ok).collect();
    let concerned: Vec<_> = ended.iter().filter(|event| drain.concerns(event)).collect();
    assert!(matches!(concerned[..], [Event::Ended(ended)] if ended.worker.wid().as_str() == "a"));
    assert_eq!(drain.advance(driven.start + driven.at, &driven.registry).done, 1);
    // The other one was never told; it might come back for ten seconds.
    driven.ticks(100);
    let last = drain.advance(driven.start + driven.at, &driven.registry);
    assert_eq!((last.vanished, last.phase), (1, DrainPhase::Finished));
    let standings: Vec<_> = drain.workers().map(|(_, standing)| standing).collect();
    assert_eq!(standings, [Standing::Done, Standing::Vanished]);
}

#[test]
fn a_process_that_resumes_what_it_was_told_holds_its_slot() {
    let registry = registry(|_| {});
    let (a, b) = (join(&registry, "a"), join(&registry, "b"));
    let mut drain = Drain::plan(Selector::all()).wait_for(Until::Gone).start(&registry).unwrap();
    let begun = now();
    drain.advance(begun, &registry);
    a.leave();
    let a = join(&registry, "a");
    assert_eq!(a.state(), Ok(WorkerState::Quiet));
    assert_eq!(drain.advance(begun, &registry).out, 1);
    assert_eq!(b.state(), Ok(WorkerState::Running));
    a.leave();
    assert_eq!(drain.advance(begun, &registry).done, 1);
    assert_eq!(b.state(), Ok(WorkerState::Quiet));
}

#[test]
fn is_paused_and_cancelled_while_it_runs() {
    let registry = registry(|policy| policy.tick = Duration::from_millis(1));
    let sessions: Vec<_> = (0..10).map(|n| join(&registry, &format!("w{n}"))).collect();
    let quiet = || sessions.iter().filter(|session| session.state() == Ok(WorkerState::Quiet)).count();
    let mut drain =
        Drain::plan("wid=w*".parse().unwrap()).at_most(Share::Percent(20)).start(&registry).unwrap();
    let mut told = Vec::new();
    let last = drain.run(&registry, |drain, progress| {
        told.push(quiet());
        match told.len() {
            2 => drain.pause(),
            6 => drain.resume(),
            8 => drain.cancel(),
            _ => {}
        }
        assert!(progress.out <= 2);
    });
    assert_eq!((last.phase, last.waiting, quiet()), (DrainPhase::Cancelled, 2, 8));
    assert_eq!(told, [2, 4, 4, 4, 4, 4, 6, 8]);
}
