//! What each connection of a storm does: beat, beat and come back, or be silent.

use std::io;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use super::Storm;
use super::report::Tally;
use super::target::{Failure, Link, Reply, Target};

/// Before the next try, after a connection that failed.
const PAUSE: Duration = Duration::from_millis(200);

/// What a connection does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Beats,
    Flaps,
    Silent,
}

/// The load, and what came of it so far.
pub(super) struct Load {
    target: Target,
    /// Tells the workers of this storm from those of another.
    run: u32,
    connections_per_worker: u32,
    /// The first connections are silent, the next ones flap.
    silent: u32,
    flapping: u32,
    beating: u32,
    depth: u32,
    flap_after: Duration,
    /// From one write of a connection to its next, where there is a rate.
    interval: Option<Duration>,
    tried: AtomicU32,
    open: AtomicU32,
    stopping: AtomicBool,
    tally: Mutex<Tally>,
}

impl Load {
    pub(super) fn new(storm: &Storm, silent: u32, flapping: u32) -> Self {
        let beating = storm.connections - silent;
        let interval = (storm.rate > 0.0 && beating > 0)
            .then(|| f64::from(storm.depth) * f64::from(beating) / storm.rate)
            // A year is for ever.
            .map(|seconds| Duration::from_secs_f64(seconds.min(3e7)));
        Load {
            target: storm.url.clone(),
            run: fastrand::u32(..),
            connections_per_worker: storm.connections_per_worker,
            silent,
            flapping,
            beating,
            depth: storm.depth,
            flap_after: storm.flap_after,
            interval,
            tried: AtomicU32::new(0),
            open: AtomicU32::new(0),
            stopping: AtomicBool::new(false),
            tally: Mutex::default(),
        }
    }

    fn part(&self, n: u32) -> Part {
        match n {
            n if n < self.silent => Part::Silent,
            n if n < self.silent + self.flapping => Part::Flaps,
            _ => Part::Beats,
        }
    }

    /// The id of the worker that a connection is one of: of 16 bytes for the first hundred thousand.
    pub(super) fn wid(&self, n: u32) -> String {
        format!("storm-{:04x}{:06}", self.run & 0xffff, n / self.connections_per_worker)
    }

    pub(super) fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many connections were made, or failed, at least once.
    pub(super) fn tried(&self) -> u32 {
        // Relaxed: a number that only grows.
        self.tried.load(Ordering::Relaxed)
    }

    /// Forgets the beats so far; what failed is kept. Returns how many connections there are.
    pub(super) fn begin(&self) -> u32 {
        let mut tally = self.tally();
        let errors = mem::take(&mut tally.errors);
        *tally = Tally { errors, ..Tally::default() };
        // Relaxed: a gauge.
        self.open.load(Ordering::Relaxed)
    }

    /// Ends the storm: what it came to.
    pub(super) fn end(&self) -> Tally {
        // Relaxed: it carries nothing with it.
        self.stopping.store(true, Ordering::Relaxed);
        mem::take(&mut *self.tally())
    }

    fn is_over(&self) -> bool {
        // Relaxed: as in `end`.
        self.stopping.load(Ordering::Relaxed)
    }

    /// The life of one connection, until the storm is over.
    pub(super) async fn run(&self, n: u32) {
        let (wid, part) = (self.wid(n), self.part(n));
        let round = format!("BEAT {{\"wid\":\"{wid}\",\"rss_kb\":54176}}\r\n").repeat(self.depth as usize);
        // The writes of all connections are spread evenly over the interval.
        let mut next = self
            .interval
            .map(|interval| Instant::now() + interval * (n % self.beating.max(1)) / self.beating.max(1));
        let mut first = true;
        while !self.is_over() {
            let link = self.target.connect(&wid).await;
            if mem::take(&mut first) {
                // Relaxed: as in `tried`.
                self.tried.fetch_add(1, Ordering::Relaxed);
            }
            let mut link = match link {
                Ok(link) => link,
                Err(failure) => {
                    self.tally().failed(&match failure {
                        Failure::Refused(why) => format!("refused: {why}"),
                        Failure::Broken(error) => format!("no connection: {error}"),
                    });
                    sleep(PAUSE).await;
                    continue;
                }
            };
            self.tally().connects += 1;
            // Relaxed, here and below: a gauge.
            self.open.fetch_add(1, Ordering::Relaxed);
            let done = match part {
                Part::Silent => self.listen(&mut link).await,
                Part::Beats => self.beat(&mut link, &round, &mut next).await,
                Part::Flaps => self.round(&mut link, &round, Instant::now()).await,
            };
            // Relaxed: as above.
            self.open.fetch_sub(1, Ordering::Relaxed);
            match done {
                Ok(()) => {
                    // A server that has closed it meanwhile has nothing to be told.
                    let _ = link.end().await;
                    match part {
                        Part::Silent => return,
                        Part::Flaps => sleep(self.flap_after).await,
                        Part::Beats => {}
                    }
                }
                Err(error) => {
                    self.tally().failed(&format!("broken: {error}"));
                    sleep(PAUSE).await;
                }
            }
        }
    }

    /// Says nothing until the server closes the connection, as it is to do with a worker that is silent.
    async fn listen(&self, link: &mut Link) -> io::Result<()> {
        loop {
            match link.read().await {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    self.tally().silent_closed += 1;
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Round after round, by the schedule if there is one.
    async fn beat(&self, link: &mut Link, round: &str, next: &mut Option<Instant>) -> io::Result<()> {
        while !self.is_over() {
            let start = match (next.as_mut(), self.interval) {
                (Some(next), Some(interval)) => {
                    let due = *next;
                    *next += interval;
                    sleep_until(due).await;
                    due
                }
                _ => Instant::now(),
            };
            self.round(link, round, start).await?;
        }
        Ok(())
    }

    /// Sends beats, and reads until each is answered.
    async fn round(&self, link: &mut Link, round: &str, start: Instant) -> io::Result<()> {
        link.send(round.as_bytes()).await?;
        let mut left = self.depth;
        while left > 0 {
            link.read().await?;
            let took = start.elapsed();
            let (mut answered, mut told, mut error) = (0, 0, None);
            while answered < left
                && let Some(reply) = link.next()?
            {
                answered += 1;
                match reply {
                    Reply::Ok => {}
                    Reply::Bulk => told += 1,
                    other => error = Some(other),
                }
                if let Some(other) = error.take() {
                    self.tally().failed(&match other {
                        // The id is another for each, and the kind is one.
                        Reply::Error(text) if text.contains("nknown worker") => {
                            "BEAT: unknown worker".to_owned()
                        }
                        Reply::Error(text) => format!("BEAT: {text}"),
                        other => format!("BEAT: {other:?} for an answer"),
                    });
                }
            }
            left -= answered;
            self.tally().answered(took, answered, told);
        }
        Ok(())
    }
}
