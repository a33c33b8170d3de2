//! The command line.

mod client;
mod fleet;
mod serve;
mod storm;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand};
use heartwheel::WorkerState;
use heartwheel::server::Password;

/// Who is there, who is alive, what have they been told: a worker-liveness server that Faktory workers connect to.
#[derive(Debug, Parser)]
#[command(version, about, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the server. Jobs are held in memory: they are lost on restart; embed the library for a durable queue.
    Serve(serve::Serve),
    /// List the live workers of a running server.
    Workers(fleet::Workers),
    /// Tell workers to finish what they hold and take nothing new. There is no way back.
    Quiet(fleet::Signal),
    /// Tell workers to finish or give up what they hold, and leave.
    Terminate(fleet::Signal),
    /// Give workers no new work for a while. They are not told, and go on with what they hold.
    Cordon(fleet::Cordon),
    /// Give workers work again.
    Uncordon(fleet::Cordon),
    /// Beat on a server as hard as it can take, or at a rate, and tell how long the answers took.
    Storm(storm::Storm),
}

/// The password, for those who serve and those who ask.
#[derive(Debug, Args)]
struct PasswordArgs {
    /// File that holds the password; a line end at its end is not part of it
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// The password
    #[arg(skip = std::env::var("HEARTWHEEL_PASSWORD").ok())]
    from_environment: Option<String>,
}

impl PasswordArgs {
    /// The file's, or else that of the environment.
    fn read(&self) -> anyhow::Result<Option<Password>> {
        Ok(self.text()?.as_deref().and_then(Password::new))
    }

    fn text(&self) -> anyhow::Result<Option<String>> {
        match &self.password_file {
            Some(file) => {
                let text = std::fs::read_to_string(file)
                    .with_context(|| format!("cannot read the password from {}", file.display()))?;
                let text = text.trim_end_matches(['\r', '\n']).to_owned();
                anyhow::ensure!(!text.is_empty(), "the password in {} is empty", file.display());
                Ok(Some(text))
            }
            None => Ok(self.from_environment.clone()),
        }
    }
}

pub(crate) fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Serve(serve) => serve.run(),
        Command::Workers(workers) => workers.run(),
        Command::Quiet(signal) => signal.run(WorkerState::Quiet),
        Command::Terminate(signal) => signal.run(WorkerState::Terminate),
        Command::Cordon(cordon) => cordon.run(true),
        Command::Uncordon(cordon) => cordon.run(false),
        Command::Storm(storm) => storm.run(),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            #[expect(clippy::print_stderr, reason = "this is the program's own voice")]
            {
                eprintln!("heartwheel: {error:#}");
            }
            ExitCode::FAILURE
        }
    }
}
