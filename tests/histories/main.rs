//! Concurrent histories: whatever three threads do at once to a registry, there is an order in which it is what the sequential
//! specification says.
//!
//! Each wid is checked by itself; the engine's time, which all share, is part of each. A seed chooses the policy and the calls;
//! how the threads meet is the machine's choice, so a seed that failed is run many times over:
//!
//! ```text
//! HEARTWHEEL_HISTORIES=1000000 cargo test --release --test histories
//! HEARTWHEEL_HISTORY_SEED=42 cargo test --release --test histories
//! ```

#[path = "../common/mod.rs"]
mod common;
mod record;
mod search;
mod spec;

mod checker;

use record::{WIDS, lost_twice, make};

const BATCH: u64 = 200;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

#[test]
fn every_history_has_an_order_that_the_specification_allows() {
    let count = number("HEARTWHEEL_HISTORIES").unwrap_or(10_000);
    let one = number("HEARTWHEEL_HISTORY_SEED");
    let (mut calls, mut overlaps) = (0, 0);
    for batch in 0..count.div_ceil(BATCH) {
        let seeds = (batch * BATCH..(batch + 1) * BATCH).map(|seed| one.unwrap_or(seed));
        for made in make(seeds) {
            for (wid, history) in made.of_wids.iter().enumerate() {
                assert_eq!(lost_twice(&history.lost), None, "seed {}, wid {wid} of {WIDS}", made.seed);
                assert!(
                    history.is_linearizable(&made.rules),
                    "HEARTWHEEL_HISTORY_SEED={}, wid {wid}: no order of this is allowed by {:?}\n{history:#?}",
                    made.seed,
                    made.rules
                );
                calls += history.threads.iter().map(Vec::len).sum::<usize>();
                overlaps += history.overlaps();
            }
        }
    }
    #[expect(clippy::print_stdout, reason = "the test's own report, for --nocapture")]
    {
        println!("{calls} calls, {overlaps} of them at once with another one");
    }
    assert!(overlaps > calls / 1000, "{overlaps} of {calls}: the threads hardly ever met");
}
