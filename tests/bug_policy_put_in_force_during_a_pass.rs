//! A pass that had read the old policy just before a new one came into force looked at every worker once, as the new one
//! demands, but by the old one; a shorter ttl then never took effect for the workers of before.

mod common;

use std::thread;
use std::time::Duration;

use common::{Driven, Stop, join, policy};

#[test]
fn a_shorter_ttl_takes_effect_whatever_pass_is_under_way() {
    for round in 0..200 {
        let mut driven = Driven::new(|policy| policy.ttl = Duration::from_secs(3600));
        let _silent = join(&driven.registry, "silent");
        driven.ticks(1);
        let now = driven.start + driven.at;
        let stop = Stop::default();
        thread::scope(|scope| {
            // Dropped first: a failure in here ends the others, for whom the scope waits.
            let _stops = stop.clone();
            for _ in 0..3 {
                let (registry, stop) = (driven.registry.clone(), stop.clone());
                scope.spawn(move || {
                    while !stop.is_said() {
                        let _ = registry.reap(now, 1000);
                    }
                });
            }
            thread::sleep(Duration::from_micros(200));
            driven.registry.set_policy(policy()).unwrap();
            stop.now();
        });
        driven.ticks(15);
        assert!(!driven.is_live("silent"), "still judged by the policy of before, in round {round}");
    }
}
