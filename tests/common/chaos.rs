//! Many threads do whatever they can to a few workers while a driver reaps, and everything that was seen is kept.
//!
//! What every single thread sees is checked where it is seen: states of one incarnation do not go backward, and an incarnation
//! that was seen to have ended is not seen alive again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use heartwheel::{Beat, ConnectError, Hello, Identity, Incarnation, Registry, Session, WorkerState};

use super::{Choices, Driven, Happened, Stop, drain};

const THREADS: u64 = 4;
const WIDS: usize = 8;
const OPERATIONS: usize = 12_000;
const TICK: Duration = Duration::from_millis(1);

/// What is left when all is over.
pub(crate) struct History {
    pub(crate) events: Vec<Happened>,
    /// For each connection its incarnation, and how often it was closed from outside.
    pub(crate) connections: Vec<(Incarnation, u32)>,
    pub(crate) registry: Registry,
}

impl History {
    pub(crate) fn of_each(&self) -> BTreeMap<Incarnation, Vec<&Happened>> {
        let mut of_each = BTreeMap::<_, Vec<_>>::new();
        for event in &self.events {
            if let Some(incarnation) = event.incarnation() {
                of_each.entry(incarnation).or_default().push(event);
            }
        }
        of_each
    }
}

/// What one thread has seen.
#[derive(Default)]
struct Seen {
    states: BTreeMap<Incarnation, WorkerState>,
    ended: BTreeSet<Incarnation>,
}

impl Seen {
    fn live(&mut self, incarnation: Incarnation, state: WorkerState) {
        assert!(!self.ended.contains(&incarnation), "{incarnation} is alive again");
        let before = self.states.insert(incarnation, state).unwrap_or_default();
        assert!(before <= state, "{incarnation} went from {before} back to {state}");
    }

    fn gone(&mut self, incarnation: Incarnation) {
        self.ended.insert(incarnation);
    }
}

struct Connection {
    session: Session,
    closed: Arc<AtomicU32>,
}

pub(crate) fn run(identity: Identity, seed: u64) -> History {
    let mut driven = Driven::new(|policy| {
        (policy.tick, policy.ttl, policy.identity) = (TICK, TICK, identity);
    });
    let registry = driven.registry.clone();
    let subscriber = registry.subscribe(1 << 20);
    let stop = Stop::default();
    let connections = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|n| {
                let (registry, stop) = (registry.clone(), stop.clone());
                scope.spawn(move || {
                    let connections = act(&registry, seed * THREADS + n);
                    drop(stop);
                    connections
                })
            })
            .collect();
        let (driven, said) = (&mut driven, stop.clone());
        scope.spawn(move || {
            while !said.is_said() {
                driven.ticks(1);
            }
        });
        let connections = threads.into_iter().map(thread::ScopedJoinHandle::join);
        let connections: Vec<_> = connections.collect();
        stop.now();
        connections.into_iter().flat_map(|thread| thread.expect("what it saw was right"))
    });
    let connections: Vec<_> = connections.collect();
    // All sessions are gone; what was put off is done, what was remembered is let go of.
    driven.ticks(60);
    let closed =
        |(incarnation, closed): (Incarnation, Arc<AtomicU32>)| (incarnation, closed.load(Ordering::SeqCst));
    History {
        events: drain(&subscriber),
        connections: connections.into_iter().map(closed).collect(),
        registry,
    }
}

fn act(registry: &Registry, seed: u64) -> Vec<(Incarnation, Arc<AtomicU32>)> {
    let mut choices = Choices::new(seed + 1);
    let mut seen = Seen::default();
    let mut open: Vec<Connection> = Vec::new();
    let mut all = Vec::new();
    for operation in 0..OPERATIONS {
        let wid = format!("w{}", choices.below(WIDS));
        let which = choices.below(open.len().max(1));
        match choices.below(16) {
            0..3 if open.len() < 6 => {
                let closed = Arc::new(AtomicU32::new(0));
                let count = closed.clone();
                let hello = Hello::new(&wid).unwrap().pid(choices.below(2) as i64);
                match registry.connect(hello, move |_| {
                    count.fetch_add(1, Ordering::SeqCst);
                }) {
                    Ok(session) => {
                        let incarnation = session.incarnation();
                        all.push((incarnation, closed.clone()));
                        open.push(Connection { session, closed });
                    }
                    Err(ConnectError::Conflict { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            3..6 if !open.is_empty() => drop(open.swap_remove(which)),
            6..11 if !open.is_empty() => {
                let Connection { session, closed } = &open[which];
                let was_closed = closed.load(Ordering::SeqCst) > 0;
                let says = if choices.below(20) == 0 { choices.state() } else { WorkerState::Running };
                match session.beat(&Beat::default().state(says)) {
                    Ok(told) => {
                        assert!(!was_closed, "a beat on a closed connection was acknowledged");
                        assert!(told >= says);
                        seen.live(session.incarnation(), told);
                    }
                    Err(_) => seen.gone(session.incarnation()),
                }
            }
            11 => drop(registry.beat(&wid, &Beat::default())),
            12 if choices.below(4) == 0 => drop(registry.signal(&wid, choices.state())),
            13 | 14 => {
                if let Some(worker) = registry.get(&wid) {
                    seen.live(worker.incarnation(), worker.state());
                }
            }
            15 if operation % 8 == 0 => {
                for worker in registry.snapshot().workers() {
                    // It may be from before what this thread has seen itself of an end that nobody had settled yet.
                    if !seen.ended.contains(&worker.incarnation()) {
                        seen.live(worker.incarnation(), worker.state());
                    }
                }
            }
            _ => {}
        }
    }
    all
}
