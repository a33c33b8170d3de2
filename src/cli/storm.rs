//! `heartwheel storm`: a load of heartbeats for this server, or any that speaks the protocol.
//!
//! Ground rules
//! - One task a connection. What it saw goes into a [`Tally`] that all share, once for each read.
//! - What is measured begins when the ramp is over and every connection was tried; what failed before is told, too.
//! - With a rate, a beat's latency counts from the moment the schedule gave it, whether or not it could be sent then: a server that
//!   stalls is charged for every beat that had to wait, not for one. Without a rate it counts from the write.

mod connections;
mod report;
mod target;

use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::fleet::say;
use super::serve::duration;
use connections::Load;
use report::{CpuTime, Report, Tally};
use target::{Failure, Target};

/// Longest wait for all connections to have been tried, after the ramp.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long connections may take to end in order.
const GOODBYE: Duration = Duration::from_secs(1);
/// How often the line of progress is written.
const PROGRESS: Duration = Duration::from_millis(500);

#[derive(Debug, Args)]
pub(super) struct Storm {
    /// The server, as tcp://:password@host:port
    #[arg(
        long,
        value_name = "URL",
        env = "FAKTORY_URL",
        default_value = "tcp://127.0.0.1:7419",
        hide_env_values = true
    )]
    url: Target,
    /// Connections
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    connections: u32,
    /// Connections that share a worker's id, as the pool of one process does
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    connections_per_worker: u32,
    /// Beats that a connection sends in one write, before it reads the answers
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    depth: u32,
    /// Beats a second, of all connections together; 0 is as fast as they are answered. The timer is good to a millisecond,
    /// and that is in the latencies
    #[arg(long, value_name = "BEATS", default_value_t = 0.0, value_parser = rate)]
    rate: f64,
    /// Time over which the connections are opened, one after the other
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration)]
    ramp: Duration,
    /// Share of the connections that say HELLO and then nothing, from 0 to 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = share)]
    silent: f64,
    /// Share of the connections that beat once and connect anew, again and again, from 0 to 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = share)]
    flapping: f64,
    /// How long one of those waits before it connects again
    #[arg(long, value_name = "DURATION", default_value = "100ms", value_parser = duration)]
    flap_after: Duration,
    /// How long to measure
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    duration: Duration,
    /// Threads that make the load
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,
    /// Process of the server, on this machine: what it uses of the processors is told, too
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn share(text: &str) -> Result<f64, String> {
    let share: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    (0.0..=1.0).contains(&share).then_some(share).ok_or_else(|| "not within 0 to 1".to_owned())
}

fn rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    (0.0..=1e9).contains(&rate).then_some(rate).ok_or_else(|| "not within 0 to 1000000000".to_owned())
}

/// How many of `all` a share is, to the nearest.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within 0 and `all`")]
fn share_of(all: u32, share: f64) -> u32 {
    (f64::from(all) * share).round() as u32
}

impl Storm {
    /// Fails when a beat or a connection did.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let silent = share_of(self.connections, self.silent);
        let flapping = share_of(self.connections, self.flapping);
        anyhow::ensure!(
            silent.saturating_add(flapping) <= self.connections,
            "--silent {} and --flapping {} are more than all connections",
            self.silent,
            self.flapping
        );
        anyhow::ensure!(!self.duration.is_zero(), "a --duration of 0s measures nothing");
        raise_descriptors(self.connections)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(usize::from(self.threads))
            .enable_all()
            .build()?;
        let report = runtime.block_on(self.measure(silent, flapping))?;
        say(&if self.json { serde_json::to_string_pretty(&report)? } else { report.to_string() })?;
        Ok(if report.errors.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    async fn measure(&self, silent: u32, flapping: u32) -> anyhow::Result<Report> {
        // A password that is wrong or a port that is closed is told once, here, and not by every connection.
        let load = Arc::new(Load::new(self, silent, flapping));
        match self.url.connect(&load.wid(0)).await {
            Ok(link) => drop(link.end().await),
            Err(Failure::Refused(why)) => anyhow::bail!("{} refuses: {why}", self.url),
            Err(Failure::Broken(error)) => {
                return Err(error).with_context(|| format!("cannot connect to {}", self.url));
            }
        }
        let mut connections = JoinSet::new();
        let start = Instant::now();
        for n in 0..self.connections {
            let load = load.clone();
            let at = start + self.ramp * n / self.connections;
            connections.spawn(async move {
                tokio::time::sleep_until(at).await;
                load.run(n).await;
            });
        }
        let shows = io::stderr().is_terminal();
        let show = |what: &str, since: Instant| {
            if shows {
                progress(what, since, &load.tally());
            }
        };
        while load.tried() < self.connections && start.elapsed() < self.ramp + PATIENCE {
            show("connecting", start);
            sleep(Duration::from_millis(10)).await;
        }
        let ready = load.begin();
        let start = Instant::now();
        let cpu = || -> anyhow::Result<_> {
            let of = |pid: u32| {
                CpuTime::of(pid)
                    .with_context(|| format!("cannot read what process {pid} uses of the processors"))
            };
            Ok((self.pid.map(of).transpose()?, CpuTime::of(std::process::id()).unwrap_or_default()))
        };
        let before = cpu()?;
        while let left = self.duration.saturating_sub(start.elapsed())
            && !left.is_zero()
        {
            sleep(left.min(PROGRESS)).await;
            show("beating", start);
        }
        let (tally, took, after) = (load.end(), start.elapsed(), cpu()?);
        if shows {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
        // They finish the round they are at; the silent ones are not waited for.
        let _ = timeout(GOODBYE, async { while connections.join_next().await.is_some() {} }).await;
        connections.shutdown().await;
        Ok(Report::new(&tally, took, self, ready, &before, &after))
    }
}

/// Writes over the line of progress.
fn progress(what: &str, since: Instant, tally: &Tally) {
    let seconds = since.elapsed().as_secs_f64();
    // Whoever cannot see it misses nothing else.
    let _ = write!(
        io::stderr(),
        "\r\x1b[K{what} {seconds:.1} s: {} connections made, {} beats, p99 {:.2} ms, {} errors",
        tally.connects,
        tally.latency.len(),
        report::millis(tally.latency.value_at_quantile(0.99)),
        tally.errors.values().sum::<u64>(),
    );
}

/// As many descriptors as the connections need, if the system allows them.
fn raise_descriptors(connections: u32) -> anyhow::Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let needed = u64::from(connections) + 64;
    if current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    anyhow::ensure!(
        maximum.is_none_or(|maximum| maximum >= needed),
        "{connections} connections need {needed} descriptors, and this process may open {}",
        maximum.unwrap_or_default()
    );
    setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum })
        .context("cannot raise the limit of descriptors")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_the_whole() {
        assert_eq!((share_of(10, 0.0), share_of(10, 0.25), share_of(10, 1.0)), (0, 3, 10));
        assert!(
            share("1.5").is_err() && share("-0.1").is_err() && share("NaN").is_err() && share("x").is_err()
        );
        assert!(rate("inf").is_err() && rate("-1").is_err());
        assert_eq!((share("0.5"), rate("1e3")), (Ok(0.5), Ok(1000.0)));
    }
}
