//! Workers that left in the same instant each found the last place for a remembered state free, and all took it.

mod common;

use std::sync::Barrier;
use std::thread;

use common::{Driven, join};
use heartwheel::WorkerState;

#[test]
fn no_more_states_are_remembered_than_there_is_room_for() {
    const THREADS: usize = 4;
    for round in 0..400 {
        let driven = Driven::new(|policy| policy.max_remembered = 1);
        let sessions: Vec<_> = (0..THREADS).map(|n| join(&driven.registry, &format!("w{n}"))).collect();
        driven.registry.signal_all(WorkerState::Quiet);
        let barrier = Barrier::new(THREADS);
        thread::scope(|scope| {
            for session in sessions {
                scope.spawn(|| {
                    barrier.wait();
                    drop(session);
                });
            }
        });
        let stats = driven.registry.stats();
        assert_eq!((stats.remembered, stats.not_remembered), (1, 3), "in round {round}");
    }
}
