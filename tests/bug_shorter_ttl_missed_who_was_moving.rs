//! A shorter ttl put in force while a pass with its budget used up was moving entries closer: the look at everyone began behind
//! where they went, and they were reaped by the old ttl.

mod common;

use std::time::Duration;

use common::{Driven, TTL, join};

#[test]
fn a_shorter_ttl_reaches_who_is_just_moving() {
    for cut in 1..10 {
        let mut driven = Driven::new(|policy| {
            policy.ttl = Duration::from_secs(18);
            policy.late_after = Some(Duration::from_secs(18));
        });
        let sessions: Vec<_> = (0..200).map(|n| join(&driven.registry, &format!("w{n}"))).collect();
        // Due at 182; at 128 they move from the second level to the first.
        driven.ticks(127);
        driven.at += driven.registry.policy().tick;
        for _ in 0..cut {
            assert!(driven.pass(20).more, "it was cut short");
        }
        let mut policy = (*driven.registry.policy()).clone();
        (policy.ttl, policy.late_after) = (TTL, Some(TTL));
        driven.registry.set_policy(policy).unwrap();
        for _ in 0..10_000 {
            if !driven.pass(20).more {
                break;
            }
        }
        driven.ticks(2);
        assert_eq!(driven.registry.stats().live(), 0, "after {cut} passes");
        drop(sessions);
    }
}
