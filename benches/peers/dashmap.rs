//! A plain `DashMap` from wid to word, with its default shards. A beat holds the shared lock of one shard.

use ::dashmap::DashMap;
use ::heartwheel::WorkerState;

use super::{Clock, Fleet, Hasher, Word, wid};

pub(crate) struct Dash {
    workers: DashMap<String, Word, Hasher>,
    clock: Clock,
}

impl Fleet for Dash {
    const NAME: &'static str = "dashmap";

    type Handle = String;

    fn of(workers: usize) -> Self {
        let map = DashMap::with_capacity_and_hasher(workers, Hasher::default());
        for worker in 0..workers {
            map.insert(wid(worker), Word::default());
        }
        Dash { workers: map, clock: Clock::default() }
    }

    fn handle(&self, worker: usize) -> String {
        wid(worker)
    }

    #[inline]
    fn beat(&self, wid: &String) -> WorkerState {
        self.workers.get(wid).expect("a worker of the fleet").heard(self.clock.now())
    }

    fn tell(&self, worker: usize, state: WorkerState) {
        self.workers.get(&wid(worker)).expect("a worker of the fleet").told(state);
    }

    fn now(&self) -> u64 {
        self.clock.now()
    }

    fn advance(&self) {
        self.clock.advance();
    }

    fn last_beat(&self, worker: usize) -> u64 {
        self.workers.get(&wid(worker)).expect("a worker of the fleet").tick()
    }

    fn state(&self, worker: usize) -> WorkerState {
        self.workers.get(&wid(worker)).expect("a worker of the fleet").state()
    }
}
