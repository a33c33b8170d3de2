//! `WorkerInfo::beats` counts the ticks in which a worker was heard after its HELLO; those in which a further connection said HELLO
//! first were left out, also if it beat in them.

mod common;

use common::{Driven, join};
use heartwheel::Beat;

#[test]
fn the_hello_of_a_further_connection_counts_as_heard() {
    let mut driven = Driven::new(|_| {});
    let first = join(&driven.registry, "w");
    driven.ticks(1);
    first.beat(&Beat::default()).unwrap();
    driven.ticks(1);
    let second = join(&driven.registry, "w");
    second.beat(&Beat::default()).unwrap();
    assert_eq!(driven.registry.get("w").unwrap().beats(), 2);
}
