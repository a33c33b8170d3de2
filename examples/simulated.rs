//! Ten thousand workers under a made-up clock: five and a half minutes of a fleet's life in a second or two, the same in every run.
//! `cargo run --release --example simulated`
//!
//! A rack loses its network for a while, some workers are restarted, and a new version is rolled out by a drain. The clock is a
//! variable: the registry is driven by [`Registry::reap`], and nothing sleeps.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use heartwheel::{Beat, Drain, Hello, Policy, Registry, Selector, Session, Share, Until, WorkerState};

type Error = Box<dyn std::error::Error>;

const FLEET: usize = 10_000;
const TICK: Duration = Duration::from_millis(100);
const TICKS_PER_SECOND: u64 = 10;
/// Workers beat every 15 s, each in its own tick of them.
const BEAT: u64 = 15 * TICKS_PER_SECOND;

/// A worker as it is at its own end.
struct Worker {
    n: usize,
    pid: u32,
    version: &'static str,
    session: Option<Session>,
}

impl Worker {
    fn connect(&mut self, registry: &Registry) -> Result<(), Error> {
        let hello = Hello::new(format!("w{}", self.n))?
            .hostname(format!("rack-{}", self.n % 10))
            .pid(self.pid)
            .version(self.version);
        self.session = Some(registry.connect(hello, |_| {})?);
        Ok(())
    }

    /// Stops, and starts again as another process.
    fn restart(&mut self, registry: &Registry, version: &'static str) -> Result<(), Error> {
        self.session = None;
        self.pid += 1;
        self.version = version;
        self.connect(registry)
    }

    /// Its regular beat: it connects again if it was reaped, and is restarted with the new version if it is told to terminate.
    fn beat(&mut self, registry: &Registry) -> Result<(), Error> {
        match self.session.as_ref().map(|session| session.beat(&Beat::default())) {
            Some(Ok(WorkerState::Terminate)) => self.restart(registry, "2"),
            Some(Ok(_)) => Ok(()),
            Some(Err(_)) | None => self.connect(registry),
        }
    }
}

/// Whether a worker's rack has no network in that second.
fn is_cut_off(n: usize, second: u64) -> bool {
    n % 10 == 3 && (60..150).contains(&second)
}

/// Runs it all, and writes a line every half minute.
///
/// # Errors
/// Those of `out`.
pub fn run(out: &mut impl Write) -> Result<(), Error> {
    let mut policy = Policy::default();
    policy.tick = TICK;
    let registry = Registry::new(policy)?;
    let mut workers: Vec<_> = (0..FLEET).map(|n| Worker { n, pid: 1, version: "1", session: None }).collect();
    let mut drain: Option<Drain> = None;
    #[expect(clippy::disallowed_methods, reason = "any instant will do to begin with")]
    let start = Instant::now();
    for tick in 0..=330 * TICKS_PER_SECOND {
        let (now, second) = (start + Duration::from_millis(100 * tick), tick / TICKS_PER_SECOND);
        loop {
            let pass = registry.reap(now, 10_000);
            pass.hangups.into_iter().for_each(|hangup| assert!(hangup.run()));
            if !pass.more {
                break;
            }
        }
        // Those whose turn to beat it is.
        let turn = usize::try_from(tick % BEAT)?;
        for worker in workers.iter_mut().skip(turn).step_by(usize::try_from(BEAT)?) {
            if !is_cut_off(worker.n, second) {
                worker.beat(&registry)?;
            }
        }
        if tick == 200 * TICKS_PER_SECOND {
            for worker in workers.iter_mut().filter(|worker| worker.n % 20 == 7) {
                worker.restart(&registry, "1")?;
            }
        }
        if tick == 240 * TICKS_PER_SECOND {
            let plan = Drain::plan(Selector::version("1")).to(WorkerState::Terminate);
            drain = Some(plan.at_most(Share::Percent(10)).wait_for(Until::Gone).start(&registry)?);
        }
        if let Some(drain) = &mut drain {
            let progress = drain.advance(now, &registry);
            assert!(progress.out <= FLEET / 10, "never more than the cap");
        }
        if tick % (30 * TICKS_PER_SECOND) == 0 {
            let stats = registry.stats();
            write!(
                out,
                "{second:3} s: {:5} live, {:4} late, {:4} expired, {:5} left",
                stats.live(),
                stats.late,
                stats.expired,
                stats.left
            )?;
            match &drain {
                Some(drain) => writeln!(out, ", drain {}", drain.progress())?,
                None => writeln!(out)?,
            }
        }
    }
    let new = registry.select(&Selector::version("2")).len();
    writeln!(out, "{new} workers run the new version")?;
    Ok(())
}

fn main() -> Result<(), Error> {
    run(&mut io::stdout())
}
