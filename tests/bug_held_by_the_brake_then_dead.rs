//! Whoever the brake had held was not looked at before a window was over, whatever came: a worker that came back and died was
//! listed for up to two windows, and no deadline was kept.

mod common;

use std::time::Duration;

use common::{Driven, TTL, beat_all, join};
use heartwheel::{Brake, Overdue, Session, WorkerState};

/// Eight workers fell silent; the six that are left are held since shortly before the window's end at tick 300.
fn held(late_after: Option<Duration>) -> (Driven, Vec<Session>) {
    let mut driven = Driven::new(|policy| {
        policy.late_after = late_after;
        let mut brake = Brake::default();
        (brake.at_least, brake.window) = (4, Duration::from_secs(30));
        policy.brake = Some(brake);
    });
    driven.ticks(280);
    let sessions: Vec<_> = (0..8).map(|n| join(&driven.registry, &format!("w{n}"))).collect();
    driven.ticks(12);
    assert!(driven.registry.stats().holding);
    assert_eq!(driven.registry.stats().live(), 6);
    let sessions = sessions.into_iter().filter(|session| session.state().is_ok()).collect();
    (driven, sessions)
}

#[test]
fn who_came_back_and_died_expires_when_the_brake_is_released() {
    for late_after in [None, Some(TTL)] {
        let (mut driven, sessions) = held(late_after);
        // From here on the first one is dead.
        beat_all(&sessions);
        while driven.at < Duration::from_secs(62) {
            driven.ticks(1);
            beat_all(&sessions[1..]);
        }
        assert!(!driven.registry.stats().holding);
        assert!(sessions[0].state().is_err(), "still listed, {late_after:?}");
        assert_eq!(driven.registry.stats().live(), 5);
    }
}

#[test]
fn a_deadline_is_kept() {
    let (mut driven, sessions) = held(None);
    let wid = sessions[0].wid().as_str();
    driven.registry.signal_within(wid, WorkerState::Terminate, TTL, Overdue::End).unwrap();
    driven.ticks(9);
    assert!(driven.is_live(wid));
    driven.ticks(4);
    assert!(!driven.is_live(wid));
    assert_eq!(driven.registry.stats().overdue, 1);
}
