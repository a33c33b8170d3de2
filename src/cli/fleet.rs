//! `heartwheel workers`, `quiet` and `terminate`.

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use comfy_table::{CellAlignment, Table, presets};
use heartwheel::server::{
    CordonReply, CordonRequest, SignalReply, SignalRequest, Whom, WorkerReply, WorkersReply,
};
use heartwheel::{Selector, WorkerState};

use super::client::Api;

#[derive(Debug, Args)]
pub(super) struct Workers {
    /// Only the workers of a selector, such as 'label=blue and age>30s and not state=quiet'
    #[arg(long = "where", value_name = "SELECTOR", value_parser = selector)]
    selector: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    api: Api,
}

impl Workers {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let query: Vec<_> = self.selector.as_deref().map(|text| ("where", text)).into_iter().collect();
        let reply: WorkersReply = self.api.get("/api/workers", &query)?;
        let text = if self.json { serde_json::to_string_pretty(&reply)? } else { table(&reply.workers) };
        say(&text)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Whom a command is for.
#[derive(Debug, Args)]
#[group(id = "whom", required = true, multiple = false)]
struct WhomArgs {
    /// The workers' ids
    #[arg(value_name = "WID")]
    wids: Vec<String>,
    /// The workers of a selector; `heartwheel workers --where` shows beforehand which they are
    #[arg(long = "where", value_name = "SELECTOR", value_parser = selector)]
    selector: Option<String>,
    /// Every worker
    #[arg(long)]
    all: bool,
}

/// Checks a selector here, where its fault can be shown under the text.
fn selector(text: &str) -> Result<String, String> {
    match text.parse::<Selector>() {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(format!("\n{}", error.render(text))),
    }
}

#[derive(Debug, Args)]
pub(super) struct Signal {
    #[command(flatten)]
    whom: WhomArgs,
    #[command(flatten)]
    api: Api,
}

impl Signal {
    pub(super) fn run(self, state: WorkerState) -> anyhow::Result<ExitCode> {
        let api = &self.api;
        self.whom.each(|whom, wid| {
            let reply: SignalReply =
                api.post("/api/signal", &SignalRequest { whom, state: state.to_string() })?;
            Ok(match wid {
                Some(_) => reply.state.unwrap_or_default(),
                None => format!("told {} workers: {state}", reply.told),
            })
        })
    }
}

#[derive(Debug, Args)]
pub(super) struct Cordon {
    #[command(flatten)]
    whom: WhomArgs,
    #[command(flatten)]
    api: Api,
}

impl Cordon {
    pub(super) fn run(self, cordoned: bool) -> anyhow::Result<ExitCode> {
        let api = &self.api;
        let done = if cordoned { "cordoned" } else { "uncordoned" };
        self.whom.each(|whom, wid| {
            let reply: CordonReply = api.post("/api/cordon", &CordonRequest { whom, cordoned })?;
            Ok(match (wid, reply.changed) {
                (Some(_), 0) => format!("was {done} already"),
                (Some(_), _) => done.to_owned(),
                (None, changed) => format!("{done} {changed} workers"),
            })
        })
    }
}

impl WhomArgs {
    /// Asks once for all of them, or for each that was named. Fails if one request did, after having tried all.
    fn each(self, ask: impl Fn(Whom, Option<&str>) -> anyhow::Result<String>) -> anyhow::Result<ExitCode> {
        if self.wids.is_empty() {
            let whom = Whom { wid: None, selector: self.selector, all: self.all };
            say(&ask(whom, None)?)?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut code = ExitCode::SUCCESS;
        for wid in &self.wids {
            let whom = Whom { wid: Some(wid.clone()), ..Whom::default() };
            let said = ask(whom, Some(wid)).unwrap_or_else(|error| {
                code = ExitCode::FAILURE;
                format!("{error:#}")
            });
            say(&format!("{}: {said}", plain(wid)))?;
        }
        Ok(code)
    }
}

/// Prints a text; a reader that has gone is no error.
pub(super) fn say(text: &str) -> io::Result<()> {
    match writeln!(io::stdout(), "{text}") {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        done => done,
    }
}

fn table(workers: &[WorkerReply]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["WID", "STATE", "HEALTH", "AGE", "CONNS", "JOBS", "RSS", "HOST", "PID", "LABELS"]);
    for worker in workers {
        table.add_row([
            plain(&worker.wid),
            if worker.cordoned { format!("{} (cordoned)", worker.state) } else { worker.state.clone() },
            worker.health.clone(),
            age(Duration::from_millis(worker.age_ms)),
            worker.connections.to_string(),
            worker.leases.to_string(),
            worker.rss_kb.map(memory).unwrap_or_default(),
            plain(&worker.hostname),
            worker.pid.map(|pid| pid.to_string()).unwrap_or_default(),
            plain(&worker.labels.join(",")),
        ]);
    }
    for number in [3, 4, 5, 6, 8] {
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
