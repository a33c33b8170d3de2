//! The maps: how evenly wids spread over their shards, whatever scheme they are made by, and that ended leases leave.

use std::time::Duration;

use super::*;
use crate::{Hello, Recover, Registry};

const WIDS: u64 = 200_000;

/// Milliseconds of a start-up storm: some forty ids each.
fn millis(n: u64) -> u64 {
    1_760_000_000_000 + n / 40
}

/// How many of `wids` the fullest shard holds. Shards are chosen as `DashMap` does: by the bits after the first seven.
fn fullest(wids: impl Iterator<Item = String>) -> usize {
    let engine = Engine::new(Policy::default()).unwrap();
    let mut shards = vec![0; SHARDS];
    for wid in wids {
        let hash = engine.workers.hash_usize(&Wid::new(wid).unwrap());
        shards[(hash << 7) >> (usize::BITS - SHARDS.ilog2())] += 1;
    }
    shards.into_iter().max().unwrap()
}

#[test]
fn no_scheme_of_ids_crowds_a_shard() {
    let crockford = |value: u64, digits: u32| -> String {
        let digit = |at: u32| {
            b"0123456789ABCDEFGHJKMNPQRSTVWXYZ"[(value.checked_shr(5 * at).unwrap_or(0) & 31) as usize]
                as char
        };
        (0..digits).rev().map(digit).collect()
    };
    let spread = |n: u64| n.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    type Scheme<'a> = (&'static str, &'a dyn Fn(u64) -> String);
    let schemes: [Scheme<'_>; 5] = [
        ("sequential", &|n| n.to_string()),
        ("worker-n", &|n| format!("worker-{n:08}")),
        ("snowflake", &|n| {
            (((millis(n) - 1_288_834_974_657) << 22) | ((n % 8) << 12) | (n % 40)).to_string()
        }),
        ("ULID", &|n| format!("{}{}", crockford(millis(n), 10), crockford(spread(n) >> 20, 16))),
        ("UUIDv7", &|n| {
            let (time, random) = (millis(n), spread(n));
            format!(
                "{:08x}-{:04x}-7{:03x}-8{:03x}-{:012x}",
                time >> 16,
                time & 0xffff,
                n % 40,
                random >> 52,
                random & 0xffff_ffff_ffff
            )
        }),
    ];
    // So many are to be expected in each; more than six standard deviations above that is no chance.
    let mean = WIDS as f64 / SHARDS as f64;
    let limit = mean + 6.0 * mean.sqrt();
    for (name, scheme) in schemes {
        let most = fullest((0..WIDS).map(scheme));
        assert!((most as f64) < limit, "{name}: {most} of {WIDS} in one of {SHARDS} shards");
    }
}

/// One that stayed there would stay for ever, unless somebody asked for its id again.
#[test]
fn a_lease_that_was_lost_leaves_the_map() {
    const TICK: Duration = Duration::from_millis(100);
    for recover in [Recover::AtDeath, Recover::AtExpiry] {
        let registry = Registry::new(Policy::default()).unwrap();
        let start = crate::clock::now();
        let drive = |ticks: std::ops::Range<u32>| {
            for tick in ticks {
                let _ = registry.reap(start + tick * TICK, 1000);
            }
        };
        drive(0..1);
        let session = registry.connect(Hello::new("w").unwrap(), |_| {}).unwrap();
        session.lease_with("short", TICK, recover).unwrap();
        session.lease_with("long", 50 * TICK, recover).unwrap();
        assert_eq!(registry.engine().leases.len(), 2);
        drive(1..10);
        assert_eq!(registry.engine().leases.len(), 1, "one ran out");
        drop(session);
        assert_eq!(registry.engine().leases.len(), usize::from(recover == Recover::AtExpiry));
        drive(10..70);
        assert!(registry.engine().leases.is_empty());
    }
}
