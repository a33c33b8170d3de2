//! A subscriber that found its channel empty, while a publisher filled it and missed an event behind that, was told of the missing
//! one first and given the earlier ones after: whoever took a snapshot at the mark then undid it with older events.

mod common;

use std::thread;

use common::{Stop, hello, registry};
use heartwheel::{Event, Lagged};

const WORKERS: usize = 40_000;

#[test]
fn what_is_missing_is_told_where_it_is_missing() {
    let mut marks = 0;
    for capacity in [1, 2, 5] {
        let registry = registry(|_| {});
        let subscriber = registry.subscribe(capacity);
        let stop = Stop::default();
        let mut place = 0;
        thread::scope(|scope| {
            // Dropped first: a failure in here ends the others, for whom the scope waits.
            let _stops = stop.clone();
            let (publisher, said) = (registry.clone(), stop.clone());
            let sessions = scope.spawn(move || {
                let join = |n| publisher.connect(hello(&format!("w{n}")), |_| {}).unwrap();
                let sessions: Vec<_> = (0..WORKERS).map(join).collect();
                said.now();
                sessions
            });
            // A single thread joins them, so the incarnation is the place in the stream.
            let mut over = false;
            loop {
                match subscriber.try_recv() {
                    Some(Ok(Event::Joined(worker))) => {
                        place += 1;
                        assert_eq!(worker.incarnation().get(), place, "after {marks} marks");
                    }
                    Some(Ok(event)) => panic!("{event:?}"),
                    Some(Err(Lagged(missed))) => {
                        place += missed;
                        marks += 1;
                    }
                    None if over => break,
                    None => over = stop.is_said(),
                }
            }
            drop(subscriber);
            drop(sessions.join());
        });
        assert_eq!(place, WORKERS as u64, "every event is read or counted");
    }
    assert!(marks > 0, "nothing was missed, so nothing was tested");
}
