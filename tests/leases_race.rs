//! The holder ends its lease while it runs out and while the holder dies: exactly one of them wins, and all say the same.

mod common;

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use common::{Choices, Driven, events, join};
use heartwheel::{Event, LeaseEnd, Recover};

const ROUNDS: u64 = 100;
const HOLDERS: usize = 40;
const LEASES: usize = 50;
const TICK: Duration = Duration::from_millis(1);

#[test]
fn completion_expiry_and_the_holders_death_have_one_winner_in_200_000_races() {
    let mut driven = Driven::new(|policy| {
        policy.tick = TICK;
        policy.ttl = Duration::from_secs(3600);
    });
    let subscriber = driven.registry.subscribe(1 << 20);
    let ended = [const { AtomicU64::new(0) }; 3];
    let mut choices = Choices::new(7);
    let mut lost = [0; 2];
    for round in 0..ROUNDS {
        let sessions: Vec<_> = (0..HOLDERS).map(|n| join(&driven.registry, &format!("w{n}"))).collect();
        let mut leases = Vec::new();
        for (n, session) in sessions.iter().enumerate() {
            for job in 0..LEASES {
                let recover = if job % 2 == 0 { Recover::AtDeath } else { Recover::AtExpiry };
                let ttl = TICK * u32::try_from(1 + choices.below(60)).unwrap();
                leases.push(session.lease_with(&format!("{n} {job}"), ttl, recover).unwrap());
            }
        }
        assert_eq!(driven.registry.stats().leases, HOLDERS * LEASES);
        let (leases, barrier, ended) = (&leases, Barrier::new(4), &ended);
        thread::scope(|scope| {
            let barrier = &barrier;
            scope.spawn(move || {
                barrier.wait();
                for lease in leases {
                    let won = lease.complete().is_ok();
                    ended[0].fetch_add(u64::from(won), Ordering::Relaxed);
                    assert!(!lease.is_held());
                }
            });
            scope.spawn(move || {
                barrier.wait();
                for (n, lease) in leases.iter().enumerate().rev().skip(LEASES) {
                    let which = 1 + n % 2;
                    let won = if which == 1 { lease.fail() } else { lease.release() }.is_ok();
                    ended[which].fetch_add(u64::from(won), Ordering::Relaxed);
                }
            });
            scope.spawn(move || {
                barrier.wait();
                // From the middle on, where the others meet.
                let mut sessions = sessions;
                while !sessions.is_empty() {
                    drop(sessions.swap_remove(sessions.len() / 2));
                    thread::yield_now();
                }
            });
            barrier.wait();
            for _ in 0..20 {
                driven.ticks(4);
            }
        });
        for event in events(&subscriber) {
            if let Event::Lost(event) = event {
                lost[usize::from(event.how == LeaseEnd::HolderEnded)] += event.leases.len() as u64;
            }
        }
        let stats = driven.registry.stats();
        let ended = [0, 1, 2].map(|n: usize| ended[n].load(Ordering::Relaxed));
        assert_eq!(ended, [stats.leases_completed, stats.leases_failed, stats.leases_released]);
        assert_eq!(lost, [stats.leases_expired, stats.leases_lost_with_holder]);
        let granted = (round + 1) * (HOLDERS * LEASES) as u64;
        assert_eq!(ended.iter().chain(&lost).sum::<u64>(), granted);
        assert_eq!((stats.leases, driven.registry.leases()), (0, Vec::new()));
        assert_eq!(stats.live(), 0);
    }
    assert!(lost.iter().chain(&ended.map(AtomicU64::into_inner)).all(|&won| won > 0), "each wins at times");
    driven.ticks(2);
    assert!(driven.registry.stats().filed <= 1024, "{}", driven.registry.stats().filed);
}

#[test]
fn many_want_one_item_and_one_gets_it_with_a_greater_token_each_time() {
    let driven = Driven::new(|_| {});
    let (registry, holders, greatest) = (&driven.registry, AtomicU64::new(0), AtomicU64::new(0));
    let (holders, greatest) = (&holders, &greatest);
    let granted: u64 = thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|n| {
                scope.spawn(move || {
                    let session = join(registry, &format!("w{n}"));
                    let mut granted = 0;
                    for _ in 0..5_000 {
                        let Ok(lease) = session.lease("job", Duration::from_secs(60)) else { continue };
                        granted += 1;
                        assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0, "two hold it");
                        let before = greatest.swap(lease.token().get(), Ordering::SeqCst);
                        assert!(before < lease.token().get(), "a token went backward");
                        holders.fetch_sub(1, Ordering::SeqCst);
                        lease.complete().unwrap();
                    }
                    granted
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert!(granted > 0);
    assert_eq!(driven.registry.stats().leases_completed, granted);
}
