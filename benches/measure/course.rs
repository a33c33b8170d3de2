//! The course that threads walk through a fleet, beating each worker they come to.
//!
//! Ground rules
//! - Orders are random, fixed, and each thread's own. Handles lie in the order in which they are walked: whoever beats
//!   has its handle, or the wid that came in, at hand. What is measured begins there.
//! - While the clock stands every thread walks all workers, again and again; only the first walk, untimed, finds anything to swap.
//! - With a new tick for every round the workers are shared out, and the shares change hands with every round: each beat
//!   is the first of its tick, so it swaps, and with two threads it finds the line in the other core's cache.
//! - Time is taken from the first start to the last end, with nothing else in between: no thread is started, no time is
//!   advanced, nothing is allocated. The reading of the clock itself is subtracted.
//! - Every walk adds up what the workers were told, and the sum has to come out; every fleet is checked afterwards, worker by worker.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use heartwheel::WorkerState;

use super::gate::Gate;
use crate::peers::floor::instant;
use crate::peers::{Fleet, scrambled};

/// What time does while a fleet is walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Time {
    /// One tick for all rounds: what a fleet sees that is heard many times a tick.
    Stands,
    /// One tick for each round: every beat is the first of its tick.
    Advances,
}

/// Handles in the order of a walk, and the sum of what their workers were told.
struct Leg<H> {
    handles: Vec<H>,
    told: usize,
}

struct Course<F: Fleet> {
    fleet: F,
    workers: usize,
    time: Time,
    /// By thread, then by share of the workers.
    legs: Vec<Vec<Leg<F::Handle>>>,
    gate: Gate,
    /// The start and the end of each thread's last walk.
    spans: Vec<Mutex<(Instant, Instant)>>,
    /// What it costs to read the clock for a start and an end.
    reading: Duration,
}

/// What each worker is told before the start: some of them something else, so that the sum shows that they were looked at.
fn told(worker: usize) -> WorkerState {
    if worker.is_multiple_of(8) { WorkerState::Quiet } else { WorkerState::Running }
}

impl<F: Fleet> Course<F> {
    fn new(workers: usize, threads: usize, time: Time) -> Self {
        let fleet = F::of(workers);
        for worker in 0..workers {
            fleet.tell(worker, told(worker));
        }
        let shares = if time == Time::Stands { 1 } else { threads };
        let leg = |thread: usize, share: usize| {
            let mut order: Vec<usize> = (share..workers).step_by(shares).collect();
            shuffle(&mut order, (thread * shares + share) as u64);
            Leg {
                told: order.iter().map(|&worker| told(worker) as usize).sum(),
                handles: order.into_iter().map(|worker| fleet.handle(worker)).collect(),
            }
        };
        let legs = (0..threads).map(|thread| (0..shares).map(|share| leg(thread, share)).collect()).collect();
        let now = instant();
        Course {
            fleet,
            workers,
            time,
            legs,
            gate: Gate::new(threads),
            spans: (0..threads).map(|_| Mutex::new((now, now))).collect(),
            reading: reading(),
        }
    }

    /// Beats each worker of a leg `walks` times.
    #[inline(never)]
    fn walk(&self, thread: usize, share: usize, walks: u64) {
        let leg = &self.legs[thread][share];
        let start = instant();
        for _ in 0..walks {
            let mut told = 0;
            for handle in &leg.handles {
                told += self.fleet.beat(handle) as usize;
            }
            assert_eq!(told, leg.told, "{}: wrong answers", F::NAME);
        }
        *self.spans[thread].lock().unwrap() = (start, instant());
    }

    /// A thread's part of `rounds` rounds. The first thread also minds the time, and learns how long they took.
    fn run(&self, thread: usize, rounds: u64) -> Duration {
        let mut took = Duration::ZERO;
        match self.time {
            Time::Stands => {
                if thread == 0 {
                    self.fleet.advance();
                    self.walk(0, 0, 1);
                }
                self.gate.pass();
                self.walk(thread, 0, rounds);
                self.gate.pass();
                took += self.span();
            }
            Time::Advances => {
                for _ in 0..rounds {
                    if thread == 0 {
                        self.fleet.advance();
                    }
                    self.gate.pass();
                    let turn = usize::try_from(self.fleet.now()).expect("few ticks");
                    self.walk(thread, (turn + thread) % self.legs.len(), 1);
                    self.gate.pass();
                    if thread == 0 {
                        took += self.span();
                    }
                }
            }
        }
        took
    }

    /// From the first start to the last end.
    fn span(&self) -> Duration {
        let spans = self.spans.iter().map(|span| *span.lock().unwrap());
        let (start, end) = spans.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))).expect("at least one thread");
        (end - start).saturating_sub(self.reading)
    }
}

/// A course and the threads that walk it; the thread that calls is the first of them.
pub(crate) struct Crew<F: Fleet> {
    course: Arc<Course<F>>,
    others: Vec<(Sender<u64>, JoinHandle<()>)>,
}

impl<F: Fleet> Crew<F> {
    pub(crate) fn new(workers: usize, threads: usize, time: Time) -> Self {
        let course = Arc::new(Course::<F>::new(workers, threads, time));
        let others = (1..threads).map(|thread| {
            let (sender, rounds) = channel();
            let course = course.clone();
            let walk = move || {
                for rounds in rounds {
                    course.run(thread, rounds);
                }
            };
            (sender, thread::spawn(walk))
        });
        let others = others.collect();
        Crew { course, others }
    }

    /// The beats of one round, of all threads together.
    pub(crate) fn beats(&self) -> usize {
        match self.course.time {
            Time::Stands => self.course.workers * self.course.legs.len(),
            Time::Advances => self.course.workers,
        }
    }

    /// How long `rounds` rounds take.
    pub(crate) fn time(&self, rounds: u64) -> Duration {
        for (other, _) in &self.others {
            other.send(rounds).expect("the thread walks until this is dropped");
        }
        self.course.run(0, rounds)
    }

    /// Ends the threads, and panics unless each worker was heard.
    pub(crate) fn finish(self) {
        for (sender, thread) in self.others {
            drop(sender);
            thread.join().expect("every walk came out right");
        }
        assert!(self.course.fleet.now() > 0, "nothing was walked");
        for worker in 0..self.course.workers {
            self.course.fleet.check(worker, told(worker));
        }
    }
}

/// The shuffle of Fisher and Yates, the same for the same seed.
fn shuffle(order: &mut [usize], seed: u64) {
    let mut state = scrambled(seed + 1);
    for last in (1..order.len()).rev() {
        state = scrambled(state);
        order.swap(last, usize::try_from(state % (last as u64 + 1)).expect("an index"));
    }
}

/// What two readings of the clock in a row see pass: the least of many, so that nothing but the readings is in it.
fn reading() -> Duration {
    let pair = |_| {
        let start = instant();
        instant() - start
    };
    (0..10_000).map(pair).min().expect("some")
}
