//! The design of Faktory's registry: one map behind one lock for readers and writers. A beat finds its worker under
//! the shared lock, and then notes what it said under the exclusive lock of the same map.
//!
//! Two things are kinder here than there. The worker is found once: the second lock leads to it by its place, without
//! another hash or a counted reference. And the time is one load, where the original reads the system's clock while it
//! holds the lock.

use std::collections::HashMap;
use std::sync::RwLock;

use ::heartwheel::WorkerState;

use super::{Clock, Fleet, Hasher, wid};

#[derive(Default)]
struct Entry {
    last_beat: u64,
    state: WorkerState,
}

struct Registry {
    places: HashMap<String, usize, Hasher>,
    entries: Vec<Entry>,
}

pub(crate) struct RwLockMap {
    registry: RwLock<Registry>,
    clock: Clock,
}

impl Fleet for RwLockMap {
    const NAME: &'static str = "one map, two locks a beat";

    type Handle = String;

    fn of(workers: usize) -> Self {
        let mut places = HashMap::with_capacity_and_hasher(workers, Hasher::default());
        places.extend((0..workers).map(|worker| (wid(worker), worker)));
        let entries = (0..workers).map(|_| Entry::default()).collect();
        RwLockMap { registry: RwLock::new(Registry { places, entries }), clock: Clock::default() }
    }

    fn handle(&self, worker: usize) -> String {
        wid(worker)
    }

    #[inline]
    fn beat(&self, wid: &String) -> WorkerState {
        let place = *self.registry.read().unwrap().places.get(wid).expect("a worker of the fleet");
        let now = self.clock.now();
        let mut registry = self.registry.write().unwrap();
        let entry = &mut registry.entries[place];
        entry.last_beat = entry.last_beat.max(now);
        entry.state
    }

    fn tell(&self, worker: usize, state: WorkerState) {
        let mut registry = self.registry.write().unwrap();
        let place = registry.places[&wid(worker)];
        let entry = &mut registry.entries[place];
        entry.state = entry.state.max(state);
    }

    fn now(&self) -> u64 {
        self.clock.now()
    }

    fn advance(&self) {
        self.clock.advance();
    }

    fn last_beat(&self, worker: usize) -> u64 {
        let registry = self.registry.read().unwrap();
        registry.entries[registry.places[&wid(worker)]].last_beat
    }

    fn state(&self, worker: usize) -> WorkerState {
        let registry = self.registry.read().unwrap();
        registry.entries[registry.places[&wid(worker)]].state
    }
}
