//! A shorter ttl is put in force by looking at every entry of the timer wheel once, in slices. An entry that the wheel moved
//! closer between two slices was missed, and its worker stayed until the old deadline.

mod common;

use std::time::Duration;

use common::{Driven, join, policy_with};

const TICK: Duration = Duration::from_millis(1);

#[test]
fn a_shorter_ttl_reaches_everyone_however_thin_the_slices() {
    for budget in [2, 3, 7, 50, 150] {
        let long = Duration::from_secs(5);
        let change = |ttl| policy_with(|policy| (policy.tick, policy.ttl) = (TICK, ttl));
        let mut driven = Driven::new(|policy| *policy = change(long));
        let silent: Vec<_> = (0..100).map(|n| join(&driven.registry, &format!("w{n}"))).collect();
        // 4096 is where the wheel moves all that is due in the 4096 ticks from there on.
        driven.ticks(4095);
        driven.registry.set_policy(change(TICK * 10)).unwrap();
        let mut expired = driven.pass(budget).expired;
        // Called again at once, as it asks to be; time goes on all the same.
        driven.at += TICK;
        expired += driven.settle() + driven.ticks(3);
        assert_eq!(expired, silent.len(), "of those silent for 400 ttls, budget {budget}");
    }
}
