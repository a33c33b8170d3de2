//! `heartwheel workers`, `quiet` and `terminate`.

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use comfy_table::{CellAlignment, Table, presets};
use heartwheel::WorkerState;
use heartwheel::server::{SignalReply, SignalRequest, WorkerReply, WorkersReply};

use super::client::Api;

#[derive(Debug, Args)]
pub(super) struct Workers {
    #[command(flatten)]
    api: Api,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Workers {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let reply: WorkersReply = self.api.get("/api/workers")?;
        let text = if self.json { serde_json::to_string_pretty(&reply)? } else { table(&reply.workers) };
        say(&text)?;
        Ok(ExitCode::SUCCESS)
    }
}

#[derive(Debug, Args)]
pub(super) struct Signal {
    /// The workers' ids
    #[arg(value_name = "WID", required_unless_present = "all", conflicts_with = "all")]
    wids: Vec<String>,
    /// Every worker
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    api: Api,
}

impl Signal {
    /// Tells each; fails if one of them was not told, after having tried all.
    pub(super) fn run(self, state: WorkerState) -> anyhow::Result<ExitCode> {
        let request = |wid| SignalRequest { wid, all: self.all, state: state.to_string() };
        if self.all {
            let reply: SignalReply = self.api.post("/api/signal", &request(None))?;
            say(&format!("told {} workers: {state}", reply.told))?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut code = ExitCode::SUCCESS;
        for wid in &self.wids {
            match self.api.post::<SignalReply>("/api/signal", &request(Some(wid.clone()))) {
                Ok(reply) => say(&format!("{}: {}", plain(wid), reply.state.unwrap_or_default()))?,
                Err(error) => {
                    say(&format!("{}: {error:#}", plain(wid)))?;
                    code = ExitCode::FAILURE;
                }
            }
        }
        Ok(code)
    }
}

/// Prints a text; a reader that has gone is no error.
fn say(text: &str) -> io::Result<()> {
    match writeln!(io::stdout(), "{text}") {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        done => done,
    }
}

fn table(workers: &[WorkerReply]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["WID", "STATE", "HEALTH", "AGE", "CONNS", "RSS", "HOST", "PID", "LABELS"]);
    for worker in workers {
        table.add_row([
            plain(&worker.wid),
            worker.state.clone(),
            worker.health.clone(),
            age(Duration::from_millis(worker.age_ms)),
            worker.connections.to_string(),
            worker.rss_kb.map(memory).unwrap_or_default(),
            plain(&worker.hostname),
            worker.pid.map(|pid| pid.to_string()).unwrap_or_default(),
            plain(&worker.labels.join(",")),
        ]);
    }
    for number in [3, 4, 5, 7] {
        if let Some(column) = table.column_mut(number) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let lines: Vec<_> = table.lines().map(|line| line.trim_end().to_owned()).collect();
    lines.join("\n")
}

/// Text of a worker as a terminal may be given it.
fn plain(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut plain, c| {
        if c.is_control() {
            plain.extend(c.escape_default());
        } else {
            plain.push(c);
        }
        plain
    })
}

fn age(age: Duration) -> String {
    let seconds = age.as_secs();
    match seconds {
        0..60 => format!("{:.1}s", age.as_secs_f64()),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
    }
}

#[expect(clippy::cast_precision_loss, reason = "for display")]
fn memory(kb: u64) -> String {
    match kb {
        0..1024 => format!("{kb}K"),
        1024..1_048_576 => format!("{:.1}M", kb as f64 / 1024.0),
        _ => format!("{:.1}G", kb as f64 / 1_048_576.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units() {
        assert_eq!(age(Duration::from_millis(1234)), "1.2s");
        assert_eq!(age(Duration::from_secs(61)), "1m01s");
        assert_eq!(age(Duration::from_secs(7320)), "2h02m");
        assert_eq!(
            (memory(999), memory(54_176), memory(3 << 20)),
            ("999K".into(), "52.9M".into(), "3.0G".into())
        );
    }

    #[test]
    fn what_a_worker_said_moves_no_cursor() {
        assert_eq!(plain("a\u{1b}[2Jb\u{9b}\n"), "a\\u{1b}[2Jb\\u{9b}\\n");
    }
}
