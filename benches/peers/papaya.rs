//! A plain papaya `HashMap` from wid to word. A beat pins the map and takes no lock.

use ::heartwheel::WorkerState;
use ::papaya::HashMap;

use super::{Clock, Fleet, Hasher, Word, wid};

pub(crate) struct Papaya {
    workers: HashMap<String, Word, Hasher>,
    clock: Clock,
}

impl Fleet for Papaya {
    const NAME: &'static str = "papaya";

    type Handle = String;

    fn of(workers: usize) -> Self {
        let map = HashMap::with_capacity_and_hasher(workers, Hasher::default());
        for worker in 0..workers {
            map.pin().insert(wid(worker), Word::default());
        }
        Papaya { workers: map, clock: Clock::default() }
    }

    fn handle(&self, worker: usize) -> String {
        wid(worker)
    }

    #[inline]
    fn beat(&self, wid: &String) -> WorkerState {
        self.workers.pin().get(wid).expect("a worker of the fleet").heard(self.clock.now())
    }

    fn tell(&self, worker: usize, state: WorkerState) {
        self.workers.pin().get(&wid(worker)).expect("a worker of the fleet").told(state);
    }

    fn now(&self) -> u64 {
        self.clock.now()
    }

    fn advance(&self) {
        self.clock.advance();
    }

    fn last_beat(&self, worker: usize) -> u64 {
        self.workers.pin().get(&wid(worker)).expect("a worker of the fleet").tick()
    }

    fn state(&self, worker: usize) -> WorkerState {
        self.workers.pin().get(&wid(worker)).expect("a worker of the fleet").state()
    }
}
