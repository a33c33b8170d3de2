//! A plain scc `HashMap` from wid to word. A beat holds the shared lock of one bucket.

use ::heartwheel::WorkerState;
use ::scc::HashMap;

use super::{Clock, Fleet, Hasher, Word, wid};

pub(crate) struct Scc {
    workers: HashMap<String, Word, Hasher>,
    clock: Clock,
}

impl Scc {
    fn with<T>(&self, wid: &str, read: impl FnOnce(&Word) -> T) -> T {
        self.workers.read_sync(wid, |_, word| read(word)).expect("a worker of the fleet")
    }
}

impl Fleet for Scc {
    const NAME: &'static str = "scc";

    type Handle = String;

    fn of(workers: usize) -> Self {
        let map = HashMap::with_capacity_and_hasher(workers, Hasher::default());
        for worker in 0..workers {
            assert!(map.insert_sync(wid(worker), Word::default()).is_ok());
        }
        Scc { workers: map, clock: Clock::default() }
    }

    fn handle(&self, worker: usize) -> String {
        wid(worker)
    }

    #[inline]
    fn beat(&self, wid: &String) -> WorkerState {
        let now = self.clock.now();
        self.with(wid, |word| word.heard(now))
    }

    fn tell(&self, worker: usize, state: WorkerState) {
        self.with(&wid(worker), |word| word.told(state));
    }

    fn now(&self) -> u64 {
        self.clock.now()
    }

    fn advance(&self) {
        self.clock.advance();
    }

    fn last_beat(&self, worker: usize) -> u64 {
        self.with(&wid(worker), Word::tick)
    }

    fn state(&self, worker: usize) -> WorkerState {
        self.with(&wid(worker), Word::state)
    }
}
