//! A state was counted as remembered until the worker's old deadline, however short `remember` is: with a long ttl, workers that
//! were told to quiet and left filled `max_remembered`, and those that came after them were forgotten at once.

mod common;

use std::time::Duration;

use common::{Driven, TICK, join};
use heartwheel::WorkerState;

#[test]
fn a_state_takes_room_only_while_it_is_remembered() {
    let mut driven = Driven::new(|policy| {
        policy.ttl = Duration::from_secs(3600);
        policy.remember = Some(TICK * 3);
        policy.max_remembered = 10;
    });
    for round in 0..5 {
        let sessions: Vec<_> = (0..10).map(|n| join(&driven.registry, &format!("{round}-{n}"))).collect();
        driven.ticks(1);
        assert_eq!(driven.registry.signal_all(WorkerState::Quiet), 10);
        drop(sessions);
        assert_eq!(driven.registry.stats().remembered, 10, "in round {round}");
        assert_eq!(driven.registry.stats().not_remembered, 0, "in round {round}");
        driven.ticks(5);
        assert_eq!(driven.registry.stats().remembered, 0, "in round {round}");
    }
}
