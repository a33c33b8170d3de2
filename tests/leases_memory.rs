//! Leases that come and go leave nothing behind.

mod common;

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use common::{Driven, TICK, TTL, beat_all, join, resident};
use heartwheel::{Hello, Policy, Recover, Registry};

/// Held by whoever measures the memory of this process.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn a_million_leases_leave_no_entry_and_no_memory() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut driven = Driven::new(|_| {});
    let sessions: Vec<_> = (0..10).map(|n| join(&driven.registry, &format!("w{n}"))).collect();
    let mut before = 0;
    for n in 0..1_000_000_usize {
        let recover = if n % 2 == 0 { Recover::AtDeath } else { Recover::AtExpiry };
        let ttl = if n % 3 == 0 { TICK } else { Duration::from_secs(3600) };
        let lease = sessions[n % 10].lease_with(&format!("a job of that number: {n}"), ttl, recover).unwrap();
        if n % 500 == 0 {
            // Some are filed before they end.
            driven.ticks(1);
            beat_all(&sessions);
            let stats = driven.registry.stats();
            let needed = stats.live() + stats.remembered + stats.leases;
            assert!(stats.filed <= 2 * needed + 1024 + 1, "{} for {needed}", stats.filed);
        }
        if lease.is_held() {
            lease.complete().unwrap();
        }
        if n == 200_000 {
            before = resident();
        }
    }
    driven.ticks(2);
    assert_eq!(driven.registry.stats().leases, 0);
    assert!(driven.registry.leases().is_empty());
    let grown = resident().saturating_sub(before);
    assert!(grown < 8 << 20, "{grown} bytes more");
}

#[test]
fn entries_made_stale_by_renewals_and_shorter_ttls_are_swept() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut driven = Driven::new(|_| {});
    let session = join(&driven.registry, "w");
    let leases: Vec<_> =
        (0..10).map(|n| session.lease(&format!("{n}"), Duration::from_secs(3600)).unwrap()).collect();
    for n in 0..20_000_u32 {
        for lease in &leases {
            lease.renew(Duration::from_secs(3600)).unwrap();
            lease.renew(TICK * (5 + n % 50)).unwrap();
        }
        session.set_ttl(Some(TICK * (20 + n % 50))).unwrap();
        session.set_ttl(Some(TICK * (20 + n % 7))).unwrap();
        driven.ticks(1);
        beat_all([&session]);
        let filed = driven.registry.stats().filed;
        assert!(filed <= 2 * 11 + 1024 + 1, "{filed}");
    }
    assert!(leases.iter().all(heartwheel::Lease::is_held));
}

#[test]
fn a_registry_that_goes_with_leases_outstanding_leaves_nothing() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let round = |n: usize| {
        let registry = Registry::new(Policy::default()).unwrap();
        let label = "a label of some length, to be missed if it stays behind ".repeat(4);
        for worker in 0..100 {
            let hello = Hello::new(format!("{n}-{worker}")).unwrap().hostname(&label);
            let session = registry.connect(hello, |_| {}).unwrap();
            for job in 0..10 {
                let recover = if job % 2 == 0 { Recover::AtDeath } else { Recover::AtExpiry };
                session.lease_with(&format!("{worker}-{job}"), TTL, recover).unwrap();
            }
        }
    };
    (0..50).for_each(round);
    let before = resident();
    (50..550).for_each(round);
    let grown = resident().saturating_sub(before);
    assert!(grown < 8 << 20, "{grown} bytes more");
}
