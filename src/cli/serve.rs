//! `heartwheel serve`.

use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use heartwheel::server::{Config, Recover, Server};
use heartwheel::{Identity, Policy};
use tokio::signal::unix::{SignalKind, signal};
use tracing::{info, warn};

use super::PasswordArgs;

#[derive(Debug, Args)]
pub(super) struct Serve {
    /// Address that workers connect to
    #[arg(long, env = "HEARTWHEEL_LISTEN", default_value = "127.0.0.1:7419")]
    listen: SocketAddr,
    /// Address of the operators' API
    #[arg(long, env = "HEARTWHEEL_API", default_value = "127.0.0.1:7420")]
    api: SocketAddr,
    #[command(flatten)]
    password: PasswordArgs,
    /// How long a worker may be silent before it is reaped
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration)]
    ttl: Duration,
    /// How finely time is counted: a silent worker is reaped one to two ticks after its ttl
    #[arg(long, value_name = "DURATION", default_value = "100ms", value_parser = duration)]
    tick: Duration,
    /// From which silence on a worker is listed as late [default: half the ttl]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    late_after: Option<Duration>,
    /// How long what a worker was told is remembered after it has gone; 0s is not at all [default: the ttl]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    remember: Option<Duration>,
    /// What to do when another process brings the id of a live worker
    #[arg(long, value_enum, default_value_t)]
    identity: IdentityArg,
    /// When jobs that an ended worker held are queued again
    #[arg(long, value_enum, default_value_t)]
    recover: RecoverArg,
    /// Most jobs held, whether waiting, scheduled, reserved or dead; further ones are refused
    #[arg(long, value_name = "N", env = "HEARTWHEEL_MAX_JOBS", default_value_t = heartwheel::server::jobs::Limits::default().max_jobs)]
    max_jobs: usize,
    /// Most memory for jobs, in bytes; further ones are refused
    #[arg(long, value_name = "BYTES", env = "HEARTWHEEL_MAX_BYTES", default_value_t = heartwheel::server::jobs::Limits::default().max_bytes)]
    max_bytes: usize,
    /// What to log: error, warn, info, debug, or more finely as in the tracing crate's `EnvFilter`
    #[arg(long, env = "HEARTWHEEL_LOG", default_value = "info")]
    log: String,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum IdentityArg {
    /// It joins the worker as one more connection
    #[default]
    Share,
    /// It takes the worker over; the old connections are closed
    Supersede,
    /// It is refused
    Reject,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum RecoverArg {
    /// When their reservation runs out, as Faktory does
    #[default]
    AtExpiry,
    /// At once
    AtDeath,
}

pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let span: jiff::SignedDuration = text.parse().map_err(|error: jiff::Error| error.to_string())?;
    Duration::try_from(span).map_err(|_| "a duration below zero".to_owned())
}

impl Serve {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let filter = tracing_subscriber::EnvFilter::try_new(&self.log)?;
        let stderr = std::io::stderr;
        tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_ansi(stderr().is_terminal())
            .with_writer(stderr)
            .init();
        let config = self.config()?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        runtime.block_on(serve(config))?;
        Ok(ExitCode::SUCCESS)
    }

    fn config(self) -> anyhow::Result<Config> {
        let mut policy = Policy::default();
        policy.ttl = self.ttl;
        policy.tick = self.tick;
        policy.late_after = self.late_after;
        policy.remember = self.remember;
        policy.identity = match self.identity {
            IdentityArg::Share => Identity::Share,
            IdentityArg::Supersede => Identity::Supersede,
            IdentityArg::Reject => Identity::Reject,
        };
        let mut config = Config::default();
        config.listen = self.listen;
        config.api = self.api;
        config.password = self.password.read()?;
        config.policy = policy;
        config.jobs.max_jobs = self.max_jobs;
        config.jobs.max_bytes = self.max_bytes;
        config.recover = match self.recover {
            RecoverArg::AtExpiry => Recover::AtExpiry,
            RecoverArg::AtDeath => Recover::AtDeath,
        };
        Ok(config)
    }
}

async fn serve(config: Config) -> anyhow::Result<()> {
    let password = config.password.is_some();
    let server = Server::bind(config).await?;
    info!(
        workers = %server.address()?, api = %server.api_address()?, password,
        "heartwheel {} serves", env!("CARGO_PKG_VERSION")
    );
    warn!("jobs are lost on restart; embed the library for a durable queue");
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let stop = async {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    };
    server.run(stop).await?;
    Ok(())
}
