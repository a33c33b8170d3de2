//! What a storm came to.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::Storm;

/// Longest latency told apart from longer ones, in microseconds: ten minutes.
const LONGEST: u64 = 600_000_000;
/// Kinds of errors that are told apart.
const KINDS: usize = 32;

/// What was seen so far.
pub(super) struct Tally {
    /// In microseconds, one entry for each answered beat.
    pub(super) latency: Histogram<u64>,
    /// Answers that told a state.
    pub(super) told: u64,
    /// Connections made.
    pub(super) connects: u64,
    /// Silent connections that the server closed.
    pub(super) silent_closed: u64,
    pub(super) errors: BTreeMap<String, u64>,
}

impl Default for Tally {
    fn default() -> Self {
        Tally {
            latency: Histogram::new_with_max(LONGEST, 3).expect("three digits of ten minutes fit"),
            told: 0,
            connects: 0,
            silent_closed: 0,
            errors: BTreeMap::new(),
        }
    }
}

impl Tally {
    /// So many beats were answered together.
    pub(super) fn answered(&mut self, took: Duration, beats: u32, told: u32) {
        self.latency.saturating_record_n(micros(took), u64::from(beats));
        self.told += u64::from(told);
    }

    /// Counts an error under its kind.
    pub(super) fn failed(&mut self, kind: &str) {
        let full = self.errors.len() >= KINDS && !self.errors.contains_key(kind);
        *self.errors.entry(if full { "others" } else { kind }.to_owned()).or_default() += 1;
    }
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

#[expect(clippy::cast_precision_loss, reason = "for display")]
pub(super) fn millis(micros: u64) -> f64 {
    micros as f64 / 1000.0
}

/// What a process has used of the processors.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CpuTime {
    user: Duration,
    system: Duration,
}

impl CpuTime {
    /// From `/proc`; `None` where there is no such process, or no `/proc`.
    pub(super) fn of(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Self::parse(&stat, rustix::param::clock_ticks_per_second())
    }

    fn parse(stat: &str, ticks_per_second: u64) -> Option<Self> {
        // The name in brackets may hold anything; behind it user and system are the 12th and the 13th.
        let (_, fields) = stat.rsplit_once(')')?;
        let mut fields = fields.split_whitespace().skip(11);
        let mut next = || -> Option<Duration> {
            let ticks: u32 = fields.next()?.parse().ok()?;
            Some(Duration::from_secs(1) * ticks / u32::try_from(ticks_per_second).ok()?)
        };
        Some(CpuTime { user: next()?, system: next()? })
    }
}

/// Microseconds.
#[derive(Debug, Serialize)]
struct Latency {
    mean: f64,
    p50: u64,
    p90: u64,
    p99: u64,
    p999: u64,
    max: u64,
}

/// What one process used while it was measured.
#[derive(Debug, Serialize)]
struct Used {
    pid: u32,
    user_seconds: f64,
    system_seconds: f64,
    /// Of both together; `None` without a beat.
    us_per_beat: Option<f64>,
}

/// Everything that is told at the end.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    connections: u32,
    /// Of them, so many were there when the measuring began.
    connected: u32,
    workers: u32,
    depth: u32,
    /// Beats a second asked for; 0 is as many as possible.
    rate: f64,
    silent: f64,
    flapping: f64,
    seconds: f64,
    beats: u64,
    beats_per_second: f64,
    latency_us: Latency,
    told: u64,
    /// Connections made while it was measured.
    reconnects: u64,
    silent_closed: u64,
    pub(super) errors: BTreeMap<String, u64>,
    server: Option<Used>,
    generator: Used,
}

impl Report {
    #[expect(clippy::cast_precision_loss, reason = "15 digits are enough")]
    pub(super) fn new(
        tally: &Tally,
        took: Duration,
        storm: &Storm,
        connected: u32,
        before: &(Option<CpuTime>, CpuTime),
        after: &(Option<CpuTime>, CpuTime),
    ) -> Self {
        let beats = tally.latency.len();
        let at = |quantile| tally.latency.value_at_quantile(quantile);
        let used = |pid, before: CpuTime, after: CpuTime| {
            let (user, system) =
                (after.user.saturating_sub(before.user), after.system.saturating_sub(before.system));
            Used {
                pid,
                user_seconds: user.as_secs_f64(),
                system_seconds: system.as_secs_f64(),
                us_per_beat: (beats > 0).then(|| (user + system).as_secs_f64() * 1e6 / beats as f64),
            }
        };
        let server = storm.pid.zip(before.0).zip(after.0);
        Report {
            connections: storm.connections,
            connected,
            workers: storm.connections.div_ceil(storm.connections_per_worker),
            depth: storm.depth,
            rate: storm.rate,
            silent: storm.silent,
            flapping: storm.flapping,
            seconds: took.as_secs_f64(),
            beats,
            beats_per_second: beats as f64 / took.as_secs_f64(),
            latency_us: Latency {
                mean: tally.latency.mean(),
                p50: at(0.5),
                p90: at(0.9),
                p99: at(0.99),
                p999: at(0.999),
                max: tally.latency.max(),
            },
            told: tally.told,
            reconnects: tally.connects,
            silent_closed: tally.silent_closed,
            errors: tally.errors.clone(),
            server: server.map(|((pid, before), after)| used(pid, before, after)),
            generator: used(std::process::id(), before.1, after.1),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { connections, workers, depth, seconds, beats, .. } = self;
        write!(f, "{connections} connections of {workers} workers, {depth} deep, ")?;
        match self.rate {
            0.0 => write!(f, "as fast as they are answered")?,
            rate => write!(f, "{rate} beats a second asked for")?,
        }
        writeln!(f, ", {seconds:.1} s")?;
        writeln!(f, "  beats      {beats}, {:.0} a second", self.beats_per_second)?;
        let Latency { mean, p50, p90, p99, p999, max } = self.latency_us;
        let [p50, p90, p99, p999, max] = [p50, p90, p99, p999, max].map(millis);
        writeln!(
            f,
            "  latency    mean {:.3} ms, p50 {p50:.3}, p90 {p90:.3}, p99 {p99:.3}, p99.9 {p999:.3}, max {max:.3}",
            mean / 1000.0
        )?;
        for (what, count) in [
            ("told       a state, in answer to a beat:", self.told),
            ("connected  anew:", self.reconnects),
            ("silent     and closed by the server:", self.silent_closed),
        ] {
            if count > 0 {
                writeln!(f, "  {what} {count}")?;
            }
        }
        for (kind, count) in &self.errors {
            // What a server says is not written to a terminal as it is.
            writeln!(f, "  error      {}: {count}", kind.escape_debug())?;
        }
        let generator = Some(("generator", &self.generator));
        let lines = self.server.as_ref().map(|server| ("server   ", server)).into_iter().chain(generator);
        for (at, (who, used)) in lines.enumerate() {
            let Used { user_seconds: user, system_seconds: system, .. } = used;
            let end = if at > 0 { "\n" } else { "" };
            write!(
                f,
                "{end}  {who}  {:.2} core-seconds (user {user:.2}, system {system:.2})",
                user + system
            )?;
            if let Some(each) = used.us_per_beat {
                write!(f, ", {each:.2} µs a beat")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processors_time_of_a_process_whose_name_looks_like_the_rest() {
        let stat = "7 (a ) b 1 2) S 1 7 7 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 4 0 1000";
        let time = CpuTime::parse(stat, 100).unwrap();
        assert_eq!((time.user, time.system), (Duration::from_millis(2500), Duration::from_millis(500)));
        assert!(CpuTime::parse("7 (a) S 1", 100).is_none());
    }

    #[test]
    fn kinds_of_errors_are_bounded() {
        let mut tally = Tally::default();
        for n in 0..100 {
            tally.failed(&format!("error {n}"));
        }
        tally.failed("error 0");
        assert_eq!((tally.errors.len(), tally.errors["error 0"], tally.errors["others"]), (KINDS + 1, 2, 68));
    }
}
