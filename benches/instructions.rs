//! What the operations cost in instructions, counted by valgrind's callgrind, and held to a limit each.
//!
//! `cargo bench --bench instructions` runs itself under valgrind, prints the table of what was counted, and fails when a count is
//! above its limit. Instructions are not time, but they hardly vary: a change that makes a hot path longer shows on any machine,
//! however busy. With the feature `server` the wire is counted, too.
//!
//! Ground rules
//! - A probe is a function that is never inlined and does one thing to each of many; callgrind says what it cost with all that
//!   it called. The loop around is in the count: two to four instructions each.
//! - What a probe needs is made before it is called, and what it did is checked after it has returned, by the answers and by the sums.
//! - A limit is what was counted, and a twentieth more for the beats, a sixth for the rest: maps are seeded anew in each run, and
//!   compilers change. A count far below its limit is a reason to lower it. The aim for a beat by handle is 40.
//! - The limits are those of a build without link-time optimisation, as `.ci/instructions` makes it; with it a beat by handle takes
//!   about a quarter less.

mod measure;
mod peers;
#[cfg(feature = "server")]
mod served;

use std::error::Error;
use std::process::{Command, ExitCode, id};
use std::time::{Duration, Instant};
use std::{env, fs, iter};

use heartwheel::{Beat, EndReason, Hangup, Hello, Policy, Registry, Session, WorkerState};

use measure::report::say;
use peers::floor::instant;
use peers::wid;

/// What is counted, the function that does it, and how many instructions each one may take.
const LIMITS: &[(&str, &str, u64)] = &[
    ("beat by handle, first of its tick", "probe_beat_first", 122),
    ("beat by handle, in a tick it was heard in", "probe_beat_again", 105),
    ("beat by wid, first of its tick", "probe_wid_first", 260),
    ("beat by wid, in a tick it was heard in", "probe_wid_again", 240),
    ("connect", "probe_connect", 1860),
    ("leave", "probe_leave", 1160),
    ("second connection, and its end", "probe_second", 1870),
    ("newcomer filed in the wheel", "probe_file", 1000),
    ("look at a worker that beat meanwhile", "probe_moved_on", 1090),
    ("reap a worker that is silent", "probe_expire", 2520),
    ("lease and complete", "probe_lease", 1980),
    #[cfg(feature = "server")]
    ("BEAT on the wire, one of 64 sent at once", "probe_wire", 2400),
];

/// Each probe does its thing so often.
const EACH: usize = 1024;
/// The argument with which this program is started under valgrind.
const COUNTED: &str = "counted";

#[inline(never)]
fn probe_beat_first(sessions: &[Session]) -> usize {
    sessions.iter().map(|session| session.beat(&Beat::default()).expect("a live worker") as usize).sum()
}

#[inline(never)]
fn probe_beat_again(sessions: &[Session]) -> usize {
    sessions.iter().map(|session| session.beat(&Beat::default()).expect("a live worker") as usize).sum()
}

#[inline(never)]
fn probe_wid_first(registry: &Registry, wids: &[String]) -> usize {
    wids.iter().map(|wid| registry.beat(wid, &Beat::default()).expect("a live worker") as usize).sum()
}

#[inline(never)]
fn probe_wid_again(registry: &Registry, wids: &[String]) -> usize {
    wids.iter().map(|wid| registry.beat(wid, &Beat::default()).expect("a live worker") as usize).sum()
}

#[inline(never)]
fn probe_connect(registry: &Registry, hellos: Vec<Hello>, sessions: &mut Vec<Session>) {
    for hello in hellos {
        sessions.push(registry.connect(hello, |_| {}).expect("nobody else has it"));
    }
}

#[inline(never)]
fn probe_leave(sessions: &mut Vec<Session>) {
    sessions.clear();
}

#[inline(never)]
fn probe_second(registry: &Registry, hellos: Vec<Hello>) {
    for hello in hellos {
        drop(registry.connect(hello, |_| {}).expect("it is the same process"));
    }
}

#[inline(never)]
fn probe_file(time: &mut Driven) {
    time.pass();
}

#[inline(never)]
fn probe_moved_on(time: &mut Driven, span: Duration) -> usize {
    time.pass_by(span);
    time.registry.stats().live()
}

#[inline(never)]
fn probe_expire(time: &mut Driven, span: Duration) -> usize {
    time.pass_by(span);
    time.hangups.len()
}

#[inline(never)]
fn probe_lease(holders: &[&Session], ids: &[String]) {
    for (session, id) in iter::zip(holders, ids) {
        let lease = session.lease(id, Duration::from_secs(1800)).expect("it is free");
        lease.complete().expect("it is held");
    }
}

#[cfg(feature = "server")]
#[inline(never)]
fn probe_wire(served: &mut served::Served) {
    served.beats(64, EACH as u64 / 64);
}

/// A registry that is driven with made-up instants.
struct Driven {
    registry: Registry,
    now: Instant,
    hangups: Vec<Hangup>,
}

impl Driven {
    fn new() -> Self {
        let mut policy = Policy::default();
        // Looked at when its ttl is over, and not before.
        policy.late_after = Some(policy.ttl);
        Driven { registry: Registry::new(policy).expect("it is valid"), now: instant(), hangups: Vec::new() }
    }

    /// One pass, until nothing is left to do.
    fn pass(&mut self) {
        loop {
            let pass = self.registry.reap(self.now, usize::MAX);
            self.hangups.extend(pass.hangups);
            if !pass.more {
                return;
            }
        }
    }

    /// A pass every second, for that long.
    fn pass_by(&mut self, span: Duration) {
        for _ in 0..span.as_secs() {
            self.now += Duration::from_secs(1);
            self.pass();
        }
    }
}

/// Tells some of the workers quiet, so that the answers to beats show that each was looked at. Returns the sum of all answers.
fn quiet_ones(registry: &Registry, wids: &[String]) -> usize {
    let quiet = wids.iter().step_by(8);
    quiet.map(|wid| registry.signal(wid, WorkerState::Quiet).expect("a live worker") as usize).sum()
}

/// Calls each probe once.
fn run_probes() {
    let mut time = Driven::new();
    let registry = time.registry.clone();
    let wids: Vec<_> = (0..EACH).map(wid).collect();
    let hellos = || wids.iter().map(|wid| Hello::new(wid).expect("a wid").hostname("app-1").pid(1)).collect();
    let ttl = registry.policy().ttl;
    let mut sessions = Vec::with_capacity(EACH);
    time.pass();

    // Once for the memory that is there after the first time, once to be counted.
    for hello in hellos() {
        sessions.push(registry.connect(hello, |_| {}).expect("nobody else has it"));
    }
    sessions.clear();
    probe_connect(&registry, hellos(), &mut sessions);
    assert_eq!(registry.stats().live(), EACH);
    probe_file(&mut time);
    probe_second(&registry, hellos());
    assert_eq!((registry.stats().live(), registry.stats().connections), (EACH, EACH));

    time.pass_by(ttl / 2);
    let quiet = quiet_ones(&registry, &wids);
    assert_eq!(probe_beat_first(&sessions), quiet);
    assert_eq!(probe_beat_again(&sessions), quiet);
    time.pass_by(Duration::from_secs(1));
    assert_eq!(probe_wid_first(&registry, &wids), quiet);
    assert_eq!(probe_wid_again(&registry, &wids), quiet);
    for wid in &wids {
        let worker = registry.get(wid).expect("a live worker");
        assert_eq!((worker.beats(), worker.age()), (2, Duration::ZERO), "each was heard in both ticks");
    }

    // They came a ttl ago, and beat half a ttl ago: each is looked at once, and filed again.
    assert_eq!(probe_moved_on(&mut time, ttl / 2 + Duration::from_secs(3)), EACH);
    assert_eq!(registry.stats().filed, EACH);

    // Those that were told quiet are given no work, and the others do it for them.
    let ids: Vec<_> = (0..EACH).map(|n| format!("job-{n:08}")).collect();
    let holders: Vec<_> = sessions.iter().filter(|session| session.takes_work()).cycle().take(EACH).collect();
    probe_lease(&holders, &ids);
    assert_eq!(registry.stats().leases_completed, EACH as u64);

    // Silent for a ttl: all are due in one tick.
    assert_eq!(probe_expire(&mut time, ttl / 2 + Duration::from_secs(3)), EACH);
    assert_eq!((registry.stats().live(), registry.stats().expired), (0, EACH as u64));
    assert!(time.hangups.iter().all(|hangup| hangup.reason() == EndReason::Expired));
    time.hangups.clear();

    sessions.clear();
    for hello in hellos() {
        sessions.push(registry.connect(hello, |_| {}).expect("nobody else has it"));
    }
    probe_leave(&mut sessions);
    assert_eq!((registry.stats().live(), registry.stats().left), (0, 2 * EACH as u64));

    #[cfg(feature = "server")]
    {
        let mut served = served::Served::start();
        served.beats(64, 1);
        probe_wire(&mut served);
    }
}

/// Runs this program under callgrind. Returns what its report says, function by function.
fn count() -> Result<String, Box<dyn Error>> {
    let out = env::temp_dir().join(format!("heartwheel-callgrind-{}", id()));
    let run = Command::new("valgrind")
        .args(["--tool=callgrind", "--quiet"])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(env::current_exe()?)
        .arg(COUNTED)
        .status()
        .map_err(|error| format!("valgrind does not start: {error}"))?;
    if !run.success() {
        return Err(format!("under valgrind: {run}").into());
    }
    let report = Command::new("callgrind_annotate")
        .args(["--inclusive=yes", "--threshold=100", "--auto=no"])
        .arg(&out)
        .output()?;
    fs::remove_file(&out)?;
    if !report.status.success() {
        return Err(String::from_utf8_lossy(&report.stderr).into());
    }
    Ok(String::from_utf8_lossy(&report.stdout).into_owned())
}

/// The instructions of a function and all that it called, in a line such as `1,024 (0.05%)  file:function [program]`.
fn counted(report: &str, function: &str) -> Option<u64> {
    let names = |line: &&str| {
        line.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word.ends_with(function))
    };
    let count = report.lines().find(names)?.trim_start().split([' ', '(']).next()?;
    count.replace(',', "").parse().ok()
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    if env::args().nth(1).is_some_and(|argument| argument == COUNTED) {
        run_probes();
        return Ok(ExitCode::SUCCESS);
    }
    let report = count()?;
    say("| instructions | counted | limit |\n|---|---:|---:|");
    let mut above = 0;
    for (what, function, limit) in LIMITS {
        let all = counted(&report, function).ok_or_else(|| format!("{function} was not counted"))?;
        #[expect(clippy::cast_precision_loss, reason = "15 digits are enough")]
        let each = all as f64 / EACH as f64;
        #[expect(clippy::cast_precision_loss, reason = "15 digits are enough")]
        let is_above = each > *limit as f64;
        above += usize::from(is_above);
        say(&format!("| {what} | {each:.1} | {limit} |{}", if is_above { " ABOVE" } else { "" }));
    }
    if above > 0 {
        say(&format!("\n{above} above the limit; the limits are in benches/instructions.rs"));
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}
