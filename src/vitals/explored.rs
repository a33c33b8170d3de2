//! loom on the word: every interleaving, under the memory model, of the races that it decides.
//!
//! `RUSTFLAGS="--cfg heartwheel_loom" cargo test --release --lib vitals::explored`
//!
//! What it cannot see: loom reduces the orders it tries by the *last* access to each atomic only. A change that another thread makes between
//! two looks of one thread may never be tried where those looks come right after one another, so no model here rests on that.

use ::loom::sync::Arc;
use ::loom::thread;

use super::*;
use crate::sync::{AtomicU64, Ordering};

const TTL: u64 = 10;

fn running() -> Arc<Vitals> {
    Arc::new(Vitals::new(Word::born(WorkerState::Running, false, 0)))
}

/// What a reaper does at `now`.
fn reap(vitals: &Vitals, now: u64) -> bool {
    let seen = vitals.load();
    seen.is_live() && seen.tick() + TTL <= now && vitals.expire(seen, now).is_ok()
}

/// G2: a beat that was acknowledged is never reaped over; one that was not, was.
#[test]
fn beat_against_reap() {
    ::loom::model(|| {
        let vitals = running();
        let beater = thread::spawn({
            let vitals = vitals.clone();
            move || vitals.update(|word| word.beat(TTL)).is_ok()
        });
        let reaped = reap(&vitals, TTL);
        let beaten = beater.join().unwrap();
        assert!(beaten != reaped, "one of the two wins");
        assert_eq!(vitals.load().is_live(), beaten);
        assert_eq!(vitals.load().tick(), TTL);
    });
}

/// G1, G6: a state that was told is neither lost to a beat nor to the worker's own weaker word; and a beat that comes after the
/// signal sees it.
#[test]
fn signal_against_beat() {
    ::loom::model(|| {
        let vitals = running();
        let signalled = Arc::new(AtomicU64::new(0));
        let signaller = thread::spawn({
            let (vitals, signalled) = (vitals.clone(), signalled.clone());
            move || {
                let _ = vitals.update(|word| word.told(WorkerState::Terminate)).unwrap();
                // Release: the test's own way of saying "it returned".
                signalled.store(1, Ordering::Release);
            }
        });
        let quiet = thread::spawn({
            let vitals = vitals.clone();
            move || vitals.update(|word| word.told(WorkerState::Quiet)).unwrap().after.state()
        });
        // Acquire: pairs with the Release above.
        let returned = signalled.load(Ordering::Acquire) == 1;
        let heard = vitals.update(|word| word.beat(1)).unwrap().after.state();
        assert!(!returned || heard == WorkerState::Terminate);
        assert!(quiet.join().unwrap() >= WorkerState::Quiet);
        signaller.join().unwrap();
        assert_eq!((vitals.load().state(), vitals.load().tick()), (WorkerState::Terminate, 1));
    });
}

/// G4: a connect joins the live incarnation or finds it ended; the last disconnect and the reaper end it once.
#[test]
fn connect_against_last_disconnect_against_reap() {
    ::loom::model(|| {
        let vitals = running();
        let joiner = thread::spawn({
            let vitals = vitals.clone();
            move || vitals.update(|word| word.joined(TTL)).is_ok()
        });
        let leaver = thread::spawn({
            let vitals = vitals.clone();
            move || vitals.update(|word| word.parted(TTL)).is_ok_and(|change| !change.after.is_live())
        });
        let reaped = reap(&vitals, TTL);
        let joined = joiner.join().unwrap();
        let left = leaver.join().unwrap();
        let word = vitals.load();
        assert!(!(left && reaped), "it ends once");
        assert_eq!(word.is_live(), !(left || reaped));
        if word.is_live() {
            assert!(joined && word.connections() == 1, "who joined is still there");
        }
        if left {
            assert!(!joined || word.connections() == 0, "whoever joined first was counted");
        }
        if reaped {
            assert_eq!(word.end(), Some(EndReason::Expired));
        }
    });
}

/// A worker is marked late from exactly the word seen, and back once: what the two make of each other is one history.
#[test]
fn late_against_beat() {
    ::loom::model(|| {
        let vitals = running();
        let beater = thread::spawn({
            let vitals = vitals.clone();
            move || match vitals.update(|word| word.beat(TTL)) {
                Ok(_) => false,
                Err(NotHeard::Late) => vitals.update(|word| word.back(TTL)).unwrap().before.is_late(),
                Err(NotHeard::Ended) => unreachable!("nobody ends it"),
            }
        });
        let seen = vitals.load();
        let marked = seen.tick() == 0 && vitals.replace(seen, seen.late().unwrap()).is_ok();
        let back = beater.join().unwrap();
        assert_eq!(marked, back, "every Late has its Back");
        assert!(!vitals.load().is_late());
        assert_eq!(vitals.load().tick(), TTL);
    });
}

/// G5: after the end nothing changes the word any more.
#[test]
fn an_end_is_final() {
    ::loom::model(|| {
        let vitals = running();
        let ender = thread::spawn({
            let vitals = vitals.clone();
            move || vitals.update(|word| word.ended(EndReason::Superseded, 3)).unwrap().after
        });
        let beaten = vitals.update(|word| word.beat(5)).is_ok();
        let told = vitals.update(|word| word.told(WorkerState::Quiet)).is_ok();
        let ended = ender.join().unwrap();
        assert_eq!(vitals.load(), ended);
        assert!(beaten || !told, "once refused, always refused");
    });
}

/// The pairing that all else rests on (G6): whoever sees a state, by a look or by a change of its own, sees what was written before it was
/// told, though neither that write nor its read orders anything.
#[test]
fn what_was_written_before_a_signal_is_seen_with_it() {
    type Reads = fn(&Vitals) -> WorkerState;
    let by_a_look: Reads = |vitals| vitals.load().state();
    let by_a_change: Reads = |vitals| vitals.update(|word| word.beat(1)).unwrap().after.state();
    for reads in [by_a_look, by_a_change] {
        ::loom::model(move || {
            let vitals = running();
            let note = Arc::new(AtomicU64::new(0));
            let reader = thread::spawn({
                let (vitals, note) = (vitals.clone(), note.clone());
                move || {
                    let seen = reads(&vitals);
                    // Relaxed: what came before must have ordered it.
                    assert!(seen == WorkerState::Running || note.load(Ordering::Relaxed) == 1);
                }
            });
            // Relaxed: what follows must order it.
            note.store(1, Ordering::Relaxed);
            let _ = vitals.update(|word| word.told(WorkerState::Quiet)).unwrap();
            reader.join().unwrap();
        });
    }
}
