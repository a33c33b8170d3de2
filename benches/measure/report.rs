//! What was measured, as Markdown for the README.

#![expect(clippy::print_stdout, reason = "it is the output of a program")]

use std::collections::BTreeMap;
use std::env;
use std::fmt::Write;
use std::fs;
use std::process::Command;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use super::quiet::Others;

/// How many samples are taken of each.
pub(crate) const SAMPLES: usize = 20;
/// Fewer than this are a trial run, of which no table is made.
const ENOUGH: usize = 5;

/// Nanoseconds a beat, and who else was there.
type Sample = (f64, Others);

/// All samples, by table, row and column, in the order in which they were taken.
static TAKEN: Mutex<BTreeMap<(String, String, String), Vec<Sample>>> = Mutex::new(BTreeMap::new());

/// Takes a sample: `work` says how long `beats` beats took.
pub(crate) fn take(
    table: &str,
    row: &str,
    column: &str,
    beats: u64,
    work: impl FnOnce() -> Duration,
) -> Duration {
    let (took, others) = Others::during(work);
    #[expect(clippy::cast_precision_loss, reason = "15 digits are enough")]
    let nanos = took.as_nanos() as f64 / beats as f64;
    let key = (table.to_owned(), row.to_owned(), column.to_owned());
    TAKEN.lock().unwrap().entry(key).or_default().push((nanos, others));
    took
}

/// The median of a cell, and whether others disturbed it; `None` if it was not measured. Whatever came before the last
/// samples was to warm up.
fn cell(table: &str, row: &str, column: &str) -> Option<(f64, bool)> {
    let taken = TAKEN.lock().unwrap();
    let all = taken.get(&(table.to_owned(), row.to_owned(), column.to_owned()))?;
    if all.len() < ENOUGH {
        return None;
    }
    let last = &all[all.len().saturating_sub(SAMPLES)..];
    let others = last.iter().map(|(_, others)| *others).fold(Others::default(), Others::and);
    let mut nanos: Vec<_> = last.iter().map(|(nanos, _)| *nanos).collect();
    nanos.sort_by(f64::total_cmp);
    let half = nanos.len() / 2;
    let median = if nanos.len() % 2 == 1 { nanos[half] } else { f64::midpoint(nanos[half - 1], nanos[half]) };
    Some((median, others.disturbed()))
}

/// The median of a cell, fit to be compared; `None` if it was not measured, or was disturbed.
pub(crate) fn median(table: &str, row: &str, column: &str) -> Option<f64> {
    cell(table, row, column).filter(|(_, disturbed)| !disturbed).map(|(median, _)| median)
}

/// Whether anything was measured of which a table can be made.
pub(crate) fn is_any() -> bool {
    TAKEN.lock().unwrap().values().any(|samples| samples.len() >= ENOUGH)
}

/// Prints a table, with what is heartwheel's in bold, and `~` where other programs used the machine. A row of which nothing was measured is left out.
pub(crate) fn print(table: &str, rows: &[&str], columns: &[String]) {
    let mut text = format!("\n{table}\n\n| ns per beat |");
    for column in columns {
        let _ = write!(text, " {column} |");
    }
    let _ = write!(text, "\n|---|{}", "---:|".repeat(columns.len()));
    for row in rows {
        let cells: Vec<_> = columns.iter().map(|column| cell(table, row, column)).collect();
        if cells.iter().any(Option::is_some) {
            let bold = if row.starts_with("heartwheel") { "**" } else { "" };
            let _ = write!(text, "\n| {bold}{}{bold} |", row.replace('<', "\\<"));
            for cell in cells {
                let _ = match cell {
                    Some((nanos, disturbed)) => {
                        let digits = if nanos >= 99.95 { 0 } else { 1 };
                        write!(text, " {}{nanos:.digits$} |", if disturbed { "~" } else { "" })
                    }
                    None => write!(text, " – |"),
                };
            }
        }
    }
    println!("{text}");
}

/// Prints one line of text.
pub(crate) fn say(line: &str) {
    println!("{line}");
}

/// Prints on what, when, of what and by which command it was measured.
pub(crate) fn print_facts(bench: &str) {
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("unknown processor", |(_, model)| model);
    let cores = thread::available_parallelism().map_or(0, usize::from);
    let rustc = said_by("rustc", &["--version"]);
    let date = said_by("date", &["-u", "+%Y-%m-%d"]);
    let commit = said_by("git", &["describe", "--always", "--dirty", "--exclude=*"]);
    let arguments: Vec<_> = env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let mut command = format!("cargo bench --bench {bench}");
    if !arguments.is_empty() {
        let _ = write!(command, " -- {}", arguments.join(" "));
    }
    println!("\n{model}, {cores} cores, {}; {rustc}; commit {commit}; {date}; `{command}`", env::consts::OS);
}

fn said_by(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let text = output.ok().filter(|output| output.status.success());
    let text = text.and_then(|output| String::from_utf8(output.stdout).ok());
    text.map_or_else(|| "unknown".to_owned(), |text| text.trim().to_owned())
}
