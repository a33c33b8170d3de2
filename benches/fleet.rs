//! What a fleet needs beyond heartbeats: leases, events, selectors. `cargo bench --bench fleet`
//!
//! A driver thread runs throughout, as it would. Every row asserts afterwards that what it timed took place.

use std::hint::black_box;
use std::thread;
use std::time::Duration;

use criterion::{BatchSize, Criterion, Throughput};
use heartwheel::{Hello, Policy, Reaper, Registry, Selector, Session};

const HOUR: Duration = Duration::from_secs(3600);

fn registry() -> (Registry, Reaper) {
    let mut policy = Policy::default();
    policy.ttl = HOUR;
    let registry = Registry::new(policy).expect("it is valid");
    let reaper = Reaper::spawn(&registry).expect("it is the first");
    (registry, reaper)
}

fn join(registry: &Registry, n: usize) -> Session {
    let hello = Hello::new(format!("worker-{n:09}")).expect("it is a wid");
    let hello =
        hello.hostname(format!("app-{}", n % 100)).label(if n.is_multiple_of(10) { "blue" } else { "green" });
    registry.connect(hello, |_| {}).expect("nobody else has it")
}

/// A lease from its grant to its completion, beside others that are held.
fn leases(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("lease and complete");
    group.throughput(Throughput::Elements(1));
    for outstanding in [0, 1_000_000] {
        let (registry, _reaper) = registry();
        let workers: Vec<_> = (0..1000).map(|n| join(&registry, n)).collect();
        for n in 0..outstanding {
            workers[n % workers.len()].lease(&format!("held-{n}"), HOUR).expect("it is free");
        }
        if outstanding > 0 {
            // The driver files them first.
            thread::sleep(Duration::from_secs(2));
        }
        let ids: Vec<_> = (0..100_000).map(|n| format!("job-{n:08}")).collect();
        let mut next = 0_usize;
        group.bench_function(format!("{outstanding} outstanding"), |bencher| {
            bencher.iter(|| {
                let worker = &workers[next % workers.len()];
                let lease = worker.lease(&ids[next % ids.len()], HOUR).expect("it is free");
                lease.complete().expect("it is held");
                next += 1;
            });
        });
        let stats = registry.stats();
        assert_eq!((stats.leases, stats.leases_completed), (outstanding, next as u64));
    }
    group.finish();
}

/// A worker that joins and leaves, which is two events.
fn events(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("join and leave");
    group.throughput(Throughput::Elements(1));
    for (readers, sleepers) in [(0, 0), (1, 0), (8, 0), (0, 1)] {
        let (registry, reaper) = registry();
        let reading: Vec<_> = (0..readers)
            .map(|_| {
                let subscriber = registry.subscribe(1024);
                thread::spawn(move || {
                    subscriber.map(|item| item.map_or_else(|lagged| lagged.0, |_| 1)).sum::<u64>()
                })
            })
            .collect();
        let sleeping: Vec<_> = (0..sleepers).map(|_| registry.subscribe(1024)).collect();
        let name = format!("{readers} subscribers that read, {sleepers} that never does");
        group.bench_function(name, |bencher| {
            let mut n = 0;
            bencher.iter_batched(
                || {
                    n += 1;
                    Hello::new(format!("worker-{n:09}")).expect("it is a wid")
                },
                |hello| drop(registry.connect(hello, |_| {}).expect("nobody else has it")),
                BatchSize::SmallInput,
            );
        });
        let joined = registry.stats().joined;
        drop((reaper, sleeping, registry));
        for reader in reading {
            let seen = reader.join().expect("it only counts");
            assert!(seen >= 2 * joined, "every event was read, or counted as missed");
        }
    }
    group.finish();
}

/// Sums, snapshots and selections of a large fleet.
fn looks(criterion: &mut Criterion) {
    const FLEET: usize = 1_000_000;
    let (registry, _reaper) = registry();
    let _workers: Vec<_> = (0..FLEET).map(|n| join(&registry, n)).collect();
    let mut group = criterion.benchmark_group(format!("{FLEET} workers"));
    group.sample_size(10);
    group.bench_function("stats", |bencher| bencher.iter(|| assert_eq!(registry.stats().live(), FLEET)));
    group.bench_function("snapshot, after a change", |bencher| {
        let mut cordoned = false;
        bencher.iter(|| {
            cordoned = !cordoned;
            registry.cordon("worker-000000000", cordoned).expect("it is there");
            assert_eq!(black_box(registry.snapshot()).workers().len(), FLEET);
        });
    });
    for (text, matching) in [
        ("wid=worker-000000007", 1),
        ("host=app-7*", 110_000),
        ("label=blue and not state=quiet", 100_000),
        ("(label=gr?en or rss>1G) and age<1h and not cordoned and host!=app-1", 890_000),
    ] {
        let selector: Selector = text.parse().expect("it is a selector");
        // One of the blue ones may be cordoned by the row before.
        let close = |found: usize| found.abs_diff(matching) <= 1;
        group.bench_function(format!("select {text}"), |bencher| {
            bencher.iter(|| assert!(close(black_box(registry.select(&selector)).len())));
        });
    }
    group.finish();
}

fn main() {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();
    leases(&mut criterion);
    events(&mut criterion);
    looks(&mut criterion);
    criterion.final_summary();
}
