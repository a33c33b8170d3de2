//! With the smallest budgets passes came to no end, or reaped nobody while newcomers kept coming.

mod common;

use std::time::Duration;

use common::{Driven, TICK, join, policy_with};

/// Passes at one instant until there is no more to do; how many it took, at most `limit`.
fn passes(driven: &Driven, budget: usize, limit: usize) -> usize {
    (1..=limit).find(|_| !driven.pass(budget).more).unwrap_or(limit)
}

#[test]
fn passes_of_any_budget_come_to_an_end() {
    for budget in [0, 1, 2, 3] {
        let driven = Driven::new(|_| {});
        let _sessions: Vec<_> = (0..10).map(|n| join(&driven.registry, &format!("w{n}"))).collect();
        assert!(passes(&driven, budget, 1000) < 1000, "newcomers, budget {budget}");
        driven.registry.set_policy(policy_with(|policy| policy.ttl = Duration::from_secs(9))).unwrap();
        assert!(passes(&driven, budget, 1000) < 1000, "a new policy, budget {budget}");
        assert_eq!(passes(&driven, budget, 1000), 1, "nothing to do, budget {budget}");
    }
}

#[test]
fn newcomers_do_not_keep_the_dead_alive() {
    for budget in [1, 2, 3, 8] {
        // Looked at once in a ttl, as otherwise there is more to do than this budget allows.
        let mut driven = Driven::new(|policy| policy.late_after = Some(policy.ttl));
        let _dead = join(&driven.registry, "dead");
        driven.ticks(1);
        let mut newcomers = Vec::new();
        for n in 0..300 {
            // More of them than a pass of this budget can file.
            for m in 0..=budget {
                newcomers.push(join(&driven.registry, &format!("{n}-{m}")));
            }
            driven.at += TICK / 10;
            let _ = driven.pass(budget);
        }
        assert!(!driven.is_live("dead"), "silent for three ttls, budget {budget}");
    }
}
