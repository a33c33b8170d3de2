//! The same rules under real threads.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use super::*;

const JOBS: usize = 4000;

/// Every job is completed exactly once or is still there, and no two holders ever have one job.
#[test]
fn no_job_is_lost_doubled_or_shared() {
    let (store, now) = (store(), start());
    let held: Vec<AtomicBool> = (0..JOBS).map(|_| AtomicBool::new(false)).collect();
    let holders = AtomicU64::new(0);
    let number = |jid: &str| jid[4..].parse::<usize>().unwrap();

    let worker = |thread: usize| {
        let mut rng = fastrand::Rng::with_seed(thread as u64);
        let mut done = Vec::new();
        let mut unpushed = (thread..JOBS).step_by(4);
        // Relaxed: only the numbers must differ.
        let mut holder = holders.fetch_add(1, Ordering::Relaxed);
        let mut mine: Vec<String> = Vec::new();
        for _ in 0..JOBS * 2 {
            match rng.u8(0..20) {
                0..7 => {
                    if let Some(n) = unpushed.next() {
                        store.push(job_in(&format!("job-{n:06}"), ["a", "b", "c"][n % 3]), now).unwrap();
                    }
                }
                7..14 => {
                    if let Some(text) = store.fetch(&["b", "a", "c"], holder, now) {
                        let jid = jid(&text);
                        // Relaxed here and below: the lock of the store orders one holder's turn after another's.
                        assert!(!held[number(&jid)].swap(true, Ordering::Relaxed), "{jid} has two holders");
                        mine.push(jid);
                    }
                }
                14..19 => {
                    if !mine.is_empty() {
                        let jid = mine.swap_remove(rng.usize(0..mine.len()));
                        assert_eq!(store.ack(&jid, Some(holder)), Ack::Done);
                        done.push(jid);
                    }
                }
                _ => {
                    for jid in &mine {
                        held[number(jid)].store(false, Ordering::Relaxed);
                    }
                    assert_eq!(store.release(holder, now), mine.len());
                    // A successor is a new incarnation; the old one's word is worth nothing.
                    let old = std::mem::replace(&mut holder, holders.fetch_add(1, Ordering::Relaxed));
                    for jid in mine.drain(..) {
                        assert_ne!(store.ack(&jid, Some(old)), Ack::Done);
                    }
                }
            }
        }
        (done, JOBS.div_ceil(4) - unpushed.len(), mine)
    };
    let results: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|n| scope.spawn(move || worker(n))).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });

    let mut seen: Vec<String> = Vec::new();
    let (mut pushed, mut acked, mut working) = (0, 0, 0);
    for (done, count, mine) in results {
        acked += done.len();
        working += mine.len();
        pushed += count;
        seen.extend(done);
        seen.extend(mine);
    }
    let counts = store.counts();
    assert_eq!((counts.processed, counts.working), (acked as u64, working));
    seen.extend(std::iter::from_fn(|| store.fetch(&["a", "b", "c"], u64::MAX, now).map(|text| jid(&text))));
    assert!(acked > JOBS / 4, "the test did something");
    assert_eq!(seen.len(), pushed);
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), pushed);
}

/// Completion against expiry: each job is either done by its holder or returned, never both.
#[test]
fn completion_and_expiry_have_one_winner() {
    let (store, now) = (store(), start());
    let jids: Vec<_> = (0..3000).map(|n| format!("job-{n:06}")).collect();
    for jid in &jids {
        store.push(job_with(jid, r#","reserve_for":60"#), now).unwrap();
        store.fetch(&["default"], 1, now).unwrap();
    }
    let done = thread::scope(|scope| {
        let acker =
            scope.spawn(|| jids.iter().rev().filter(|jid| store.ack(jid, Some(1)) == Ack::Done).count());
        while store.advance(now + secs(60), 1) {}
        acker.join().unwrap()
    });
    let counts = store.counts();
    assert_eq!(counts.enqueued + done, jids.len());
    assert_eq!((counts.processed, counts.expired), (done as u64, counts.enqueued as u64));
    assert_eq!(counts.stale, counts.expired, "every refused ACK met a job that had come back");
}
