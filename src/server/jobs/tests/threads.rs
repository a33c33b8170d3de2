//! The same rules under real threads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::*;

const JOBS: usize = 4000;

/// Every job is completed exactly once or is still there, and no two holders ever have one job.
#[test]
fn no_job_is_lost_doubled_or_shared() {
    let (store, fleet, now) = (store(), Fleet::new(Recover::AtDeath), start());
    let (registry, lost) = (&fleet.registry, fleet.lost);
    let held: Vec<AtomicBool> = (0..JOBS).map(|_| AtomicBool::new(false)).collect();
    let number = |jid: &str| jid[4..].parse::<usize>().unwrap();
    let over = AtomicBool::new(false);

    let worker = |thread: usize| {
        let mut rng = fastrand::Rng::with_seed(thread as u64);
        let mut done = Vec::new();
        let mut unpushed = (thread..JOBS).step_by(4);
        let mut session = join(registry, thread);
        let mut mine: Vec<String> = Vec::new();
        for _ in 0..JOBS * 2 {
            match rng.u8(0..20) {
                0..7 => {
                    if let Some(n) = unpushed.next() {
                        store.push(job_in(&format!("job-{n:06}"), ["a", "b", "c"][n % 3]), now).unwrap();
                    }
                }
                7..14 => {
                    if let Some(text) = store.fetch(&["b", "a", "c"], &session).unwrap() {
                        let jid = jid(&text);
                        // Relaxed here and below: the lock of the store orders one holder's turn after another's.
                        assert!(!held[number(&jid)].swap(true, Ordering::Relaxed), "{jid} has two holders");
                        mine.push(jid);
                    }
                }
                14..19 => {
                    if !mine.is_empty() {
                        let jid = mine.swap_remove(rng.usize(0..mine.len()));
                        assert_eq!(store.ack(&jid, Some(session.incarnation())), Ack::Done);
                        done.push(jid);
                    }
                }
                _ => {
                    for jid in &mine {
                        held[number(jid)].store(false, Ordering::Relaxed);
                    }
                    // A successor is a new incarnation; the old one's word is worth nothing.
                    let old = session.incarnation();
                    session = join(registry, thread);
                    for jid in mine.drain(..) {
                        assert_ne!(store.ack(&jid, Some(old)), Ack::Done);
                    }
                }
            }
        }
        (done, JOBS.div_ceil(4) - unpushed.len(), mine, session)
    };
    let results: Vec<_> = thread::scope(|scope| {
        let (store, over) = (&store, &over);
        // Hears of what was lost, and misses most of it.
        let back = scope.spawn(move || {
            let hear = || match lost.try_recv() {
                Some(Ok(crate::Event::Lost(lost))) => {
                    lost.leases.iter().filter(|lease| store.lost(lease.token).is_some()).count()
                }
                Some(Ok(other)) => panic!("{other:?}"),
                Some(Err(_)) => store.lost_unheard().len(),
                None => {
                    thread::yield_now();
                    0
                }
            };
            let mut back = 0;
            // Acquire: pairs with the Release below; what the workers did is heard before the end.
            while !over.load(Ordering::Acquire) {
                back += hear();
            }
            loop {
                match hear() {
                    0 => return back,
                    more => back += more,
                }
            }
        });
        let threads: Vec<_> = (0..4).map(|n| scope.spawn(move || worker(n))).collect();
        let results = threads.into_iter().map(|t| t.join().unwrap()).collect();
        // Release: pairs with the Acquire above.
        over.store(true, Ordering::Release);
        assert_eq!(back.join().unwrap() as u64, store.counts().lost);
        results
    });

    let mut seen: Vec<String> = Vec::new();
    let (mut pushed, mut acked, mut working) = (0, 0, 0);
    let mut sessions = Vec::new();
    for (done, count, mine, session) in results {
        acked += done.len();
        working += mine.len();
        pushed += count;
        seen.extend(done);
        seen.extend(mine);
        sessions.push(session);
    }
    let counts = store.counts();
    assert_eq!((counts.processed, counts.working), (acked as u64, working));
    assert_eq!(registry.stats().leases, working);
    let rest = || store.fetch(&["a", "b", "c"], &sessions[0]).unwrap().map(|text| jid(&text));
    seen.extend(std::iter::from_fn(rest));
    assert!(acked > JOBS / 4, "the test did something");
    assert!(counts.lost > 100, "and lost something: {}", counts.lost);
    assert_eq!(seen.len(), pushed);
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), pushed);
}

/// Completion against expiry: each job is either done by its holder or returned, never both.
#[test]
fn completion_and_expiry_have_one_winner() {
    let (store, fleet, now) = (store(), Fleet::new(Recover::AtExpiry), start());
    fleet.pass(&store, now);
    let jids: Vec<_> = (0..3000).map(|n| format!("job-{n:06}")).collect();
    for jid in &jids {
        store.push(job_with(jid, r#","reserve_for":60"#), now).unwrap();
        fleet.fetch(&store, &["default"], 1).unwrap();
    }
    let holder = fleet.id(1);
    let (store, jids) = (&store, &jids);
    let (back, done) = thread::scope(|scope| {
        let acker =
            scope.spawn(move || jids.iter().rev().filter(|jid| store.ack(jid, holder) == Ack::Done).count());
        let mut back = 0;
        for tick in 1..64 {
            while fleet.registry.reap(now + secs(tick), 2).more {
                back += fleet.hear(store);
            }
        }
        (back, acker.join().unwrap())
    });
    let back = back + fleet.hear(store);
    let counts = store.counts();
    assert_eq!((counts.enqueued + done, counts.working), (jids.len(), 0));
    assert_eq!((counts.processed, counts.lost), (done as u64, counts.enqueued as u64));
    assert_eq!(
        (counts.stale, counts.lost),
        (back as u64, back as u64),
        "every refused ACK met a job that was lost"
    );
    assert_eq!(fleet.registry.stats().leases, 0);
}
