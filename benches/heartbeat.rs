//! What a heartbeat costs: heartwheel by handle and by wid, beside other designs and the floors.
//!
//! `cargo bench --bench heartbeat` measures all of it in a few minutes, and prints the tables of the README at its end.
//! `-- --test` runs everything once.
//!
//! With two threads, time per beat is the time of a round divided by the beats of both: it halves if they do not
//! disturb each other. What is timed, and how, is said in `measure/course.rs`.

mod measure;
mod peers;

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, SamplingMode, Throughput};

use measure::course::{Crew, Time};
use measure::report;
use peers::floor::instant;
use peers::{Fleet, dashmap, floor, heartwheel, papaya, rwlock_map, scc};

const FLEETS: [usize; 2] = [64, 100_000];
const THREADS: [usize; 2] = [1, 2];
const CLOCKS: &str = "Reading a clock";
const ONCE: &str = "once";

fn table(time: Time) -> &'static str {
    match time {
        Time::Advances => "A new tick for every round: each beat is the first of its tick",
        Time::Stands => "The clock stands: each worker was heard in this tick before",
    }
}

fn column(workers: usize, threads: usize) -> String {
    let fleet = if workers == 100_000 { "100 000 workers".to_owned() } else { format!("{workers} workers") };
    format!("{fleet}, {threads} thread{}", if threads == 1 { "" } else { "s" })
}

fn columns() -> Vec<String> {
    FLEETS.iter().flat_map(|&workers| THREADS.map(|threads| column(workers, threads))).collect()
}

/// One design in one case.
fn measure<F: Fleet>(criterion: &mut Criterion, workers: usize, threads: usize, time: Time) {
    let column = column(workers, threads);
    let mut group = criterion.benchmark_group(format!("{time:?}, {column}"));
    group.sampling_mode(SamplingMode::Flat);
    // Built when it is asked for, so that a filter skips it.
    let mut crew = None;
    let beats = if time == Time::Stands { workers * threads } else { workers } as u64;
    group.throughput(Throughput::Elements(beats));
    group.bench_function(F::NAME, |bencher| {
        let crew = crew.get_or_insert_with(|| Crew::<F>::new(workers, threads, time));
        assert_eq!(crew.beats() as u64, beats);
        bencher.iter_custom(|rounds| {
            report::take(table(time), F::NAME, &column, rounds * beats, || crew.time(rounds))
        });
    });
    group.finish();
    if let Some(crew) = crew {
        crew.finish();
    }
}

/// All designs in one case.
fn measure_all(criterion: &mut Criterion, workers: usize, threads: usize, time: Time) {
    match time {
        Time::Advances => measure::<floor::Swap>(criterion, workers, threads, time),
        Time::Stands => measure::<floor::Load>(criterion, workers, threads, time),
    }
    measure::<heartwheel::ByHandle>(criterion, workers, threads, time);
    measure::<heartwheel::ByWid>(criterion, workers, threads, time);
    measure::<papaya::Papaya>(criterion, workers, threads, time);
    measure::<dashmap::Dash>(criterion, workers, threads, time);
    measure::<scc::Scc>(criterion, workers, threads, time);
    measure::<rwlock_map::RwLockMap>(criterion, workers, threads, time);
}

/// The rows, in the order of the tables.
const ROWS: [&str; 8] = [
    floor::Swap::NAME,
    floor::Load::NAME,
    heartwheel::ByHandle::NAME,
    heartwheel::ByWid::NAME,
    papaya::Papaya::NAME,
    dashmap::Dash::NAME,
    scc::Scc::NAME,
    rwlock_map::RwLockMap::NAME,
];
const MAPS: [&str; 3] = [papaya::Papaya::NAME, dashmap::Dash::NAME, scc::Scc::NAME];

/// A bare reading of a clock.
fn measure_clock<T>(criterion: &mut Criterion, name: &str, read: impl Fn() -> T) {
    const READINGS: u64 = 1000;
    let mut group = criterion.benchmark_group(CLOCKS);
    group.throughput(Throughput::Elements(READINGS));
    group.bench_function(name, |bencher| {
        bencher.iter_custom(|rounds| {
            report::take(CLOCKS, name, ONCE, rounds * READINGS, || {
                let start = instant();
                for _ in 0..rounds * READINGS {
                    black_box(read());
                }
                instant() - start
            })
        });
    });
    group.finish();
}

const SYSTEM_CLOCK: &str = "Instant::now";
const SHARED_CLOCK: &str = "a relaxed load of the shared tick";

/// Prints how two cells relate.
fn print_ratio(what: &str, time: Time, column: &str, over: Option<f64>, under: &str) {
    if let (Some(over), Some(under)) = (over, report::median(table(time), under, column)) {
        let time = if time == Time::Stands { "the clock stands" } else { "a new tick for every round" };
        report::say(&format!("- {what}, {column}, {time}: {:.2}", over / under));
    }
}

fn print_ratios() {
    report::say("\nRatios\n");
    for time in [Time::Advances, Time::Stands] {
        for column in columns() {
            let cell = |row| report::median(table(time), row, &column);
            let (handle, by_wid) = (heartwheel::ByHandle::NAME, heartwheel::ByWid::NAME);
            let map = MAPS.into_iter().filter_map(cell).reduce(f64::min);
            let floor = if time == Time::Stands { floor::Load::NAME } else { floor::Swap::NAME };
            let original = cell(rwlock_map::RwLockMap::NAME);
            print_ratio("by handle / floor", time, &column, cell(handle), floor);
            print_ratio("two locks / by handle", time, &column, original, handle);
            print_ratio("two locks / by wid", time, &column, original, by_wid);
            print_ratio("best plain map / by wid", time, &column, map, by_wid);
        }
    }
}

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(report::SAMPLES)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(1000))
        .nresamples(5000)
        .configure_from_args();
    measure_clock(&mut criterion, SYSTEM_CLOCK, instant);
    let clock = peers::Clock::default();
    measure_clock(&mut criterion, SHARED_CLOCK, || black_box(&clock).now());
    for time in [Time::Advances, Time::Stands] {
        for workers in FLEETS {
            for threads in THREADS {
                measure_all(&mut criterion, workers, threads, time);
            }
        }
    }
    criterion.final_summary();
    if report::is_any() {
        for time in [Time::Advances, Time::Stands] {
            report::print(table(time), &ROWS, &columns());
        }
        report::print(CLOCKS, &[SYSTEM_CLOCK, SHARED_CLOCK], &[ONCE.to_owned()]);
        print_ratios();
        report::print_facts("heartbeat");
    }
}
