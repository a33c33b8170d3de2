//! The newest snapshot is kept to be handed out again. After the fleet of it had gone it kept every worker of it in memory, until
//! somebody asked for another.

mod common;

use common::{Driven, join, resident};

const FLEET: usize = 100_000;

fn fill(driven: &mut Driven, name: &str) -> usize {
    let before = resident();
    let sessions: Vec<_> = (0..FLEET).map(|n| join(&driven.registry, &format!("{name}-{n}"))).collect();
    driven.ticks(1);
    assert_eq!(driven.registry.snapshot().workers().len(), FLEET);
    let grown = resident().saturating_sub(before);
    drop(sessions);
    driven.ticks(30);
    grown
}

#[test]
fn a_fleet_that_left_leaves_no_memory_behind() {
    let mut driven = Driven::new(|_| {});
    let first = fill(&mut driven, "first");
    // The allocator keeps some of what large blocks were freed, once.
    fill(&mut driven, "second");
    let third = fill(&mut driven, "third");
    assert!(third < first / 5, "the third fleet took {third} bytes more, the first {first}");
}
