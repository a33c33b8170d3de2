//! The channel of a subscriber: what is missed, what is told of it, what is sorted out, who is woken.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use crossbeam::channel::bounded;

use super::*;

fn bus() -> Bus {
    Bus::new(bounded(1).0)
}

fn gap(n: u64) -> Event {
    Event::Gap(Duration::from_secs(n))
}

fn number(item: Item) -> Result<u64, u64> {
    match item {
        Ok(Event::Gap(gap)) => Ok(gap.as_secs()),
        Ok(other) => panic!("{other:?}"),
        Err(Lagged(n)) => Err(n),
    }
}

fn read(subscriber: &Subscriber) -> Option<Result<u64, u64>> {
    subscriber.try_recv().map(number)
}

#[test]
fn a_kind_and_a_gap_in_the_stream_say_what_they_are() {
    assert_eq!(format!("{:<7}|", EventKind::Late), "late   |");
    assert_eq!(Lagged(3).to_string(), "3 events were missed here: the subscriber was too slow");
    assert_eq!(gap(1).incarnation(), None);
}

#[test]
fn what_is_missing_is_counted_where_it_is_missing() {
    let bus = bus();
    let subscriber = bus.subscribe(Filter::default(), 2);
    for n in 0..5 {
        bus.publish(|| gap(n));
    }
    assert_eq!(read(&subscriber), Some(Ok(0)));
    bus.publish(|| gap(5));
    // One place was free: it went to the mark, and the event was missed behind it.
    assert_eq!(read(&subscriber), Some(Ok(1)));
    assert_eq!(read(&subscriber), Some(Err(3)));
    assert_eq!(read(&subscriber), Some(Err(1)));
    assert_eq!(read(&subscriber), None);
    bus.publish(|| gap(6));
    assert_eq!(read(&subscriber), Some(Ok(6)));
    assert_eq!(read(&subscriber), None);
}

#[test]
fn what_was_missed_last_is_told_without_a_further_event() {
    let bus = bus();
    let subscriber = bus.subscribe(Filter::default(), 1);
    bus.publish(|| gap(0));
    bus.publish(|| gap(1));
    assert_eq!(read(&subscriber), Some(Ok(0)));
    assert_eq!(read(&subscriber), Some(Err(1)));
}

#[test]
fn nothing_is_made_for_nobody() {
    let bus = bus();
    bus.publish(|| unreachable!("nobody listens"));
    let subscriber = bus.subscribe(Filter::default(), 1);
    drop(subscriber);
    bus.publish(|| gap(0));
    bus.publish(|| unreachable!("nobody listens any more"));
}

#[test]
fn every_event_is_read_or_counted_under_concurrency() {
    let bus = Arc::new(bus());
    let subscriber = bus.subscribe(Filter::default(), 8);
    let total = 4 * 5_000;
    let publishers: Vec<_> = (0..4)
        .map(|_| {
            let bus = bus.clone();
            std::thread::spawn(move || {
                for n in 0..5_000 {
                    bus.publish(|| gap(n));
                }
            })
        })
        .collect();
    let mut seen = 0;
    while let Some(item) = subscriber.recv_timeout(Duration::from_millis(200)) {
        seen += item.map_or_else(|Lagged(missed)| missed, |_| 1);
    }
    publishers.into_iter().for_each(|publisher| publisher.join().unwrap());
    assert_eq!(seen, total);
}

#[test]
fn every_kind_has_its_place_and_its_name() {
    let mut names: Vec<_> = EventKind::ALL.iter().map(|kind| kind.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), EventKind::ALL.len());
    for (at, &kind) in EventKind::ALL.iter().enumerate() {
        assert_eq!(kind as usize, at);
        let filter = Filter::default().kinds([kind]);
        let chosen: Vec<_> = EventKind::ALL.iter().filter(|&&kind| filter.kinds.contains(kind)).collect();
        assert_eq!(chosen, [&kind]);
    }
    assert_eq!(gap(1).kind(), EventKind::Gap);
    assert_eq!((gap(1).wid(), gap(1).incarnation()), (None, None));
    let none = Filter::default().kinds([EventKind::Joined]).kinds([EventKind::Gap]);
    assert_eq!(format!("{none:?}"), r#"Filter { kinds: [], workers: "all" }"#);
}

#[test]
fn a_kind_that_was_not_asked_for_takes_no_room_and_is_not_missed() {
    let bus = bus();
    let subscriber = bus.subscribe(Filter::default().kinds([EventKind::Ended]), 1);
    for n in 0..5 {
        bus.publish(|| gap(n));
    }
    assert_eq!(read(&subscriber), None);
}

#[test]
fn who_is_gone_leaves_nothing_behind() {
    let bus = bus();
    for _ in 0..100 {
        drop(bus.subscribe(Filter::default(), 1));
    }
    assert_eq!(bus.outlets(), 1, "the next one to subscribe clears up");
    bus.publish(|| gap(0));
    assert_eq!(bus.outlets(), 0);
    drop(bus.subscribe(Filter::default().kinds([EventKind::Joined]), 1));
    bus.publish(|| gap(0));
    assert_eq!(bus.outlets(), 0, "though it did not ask for that kind");
}

/// A reader between its look at what was missed and its sleep, and a publisher between a full channel and the number missed.
#[test]
fn what_was_missed_last_is_told_to_one_who_waits() {
    let bus = bus();
    let subscriber = bus.subscribe(Filter::default(), 1);
    let read = Arc::new(AtomicU64::new(0));
    let known = read.clone();
    let publisher = std::thread::spawn(move || {
        for round in 0..20_000 {
            while known.load(Ordering::SeqCst) < 3 * round {
                std::hint::spin_loop();
            }
            (0..3).for_each(|n| bus.publish(|| gap(n)));
        }
        bus
    });
    while read.load(Ordering::SeqCst) < 60_000 {
        let item = subscriber.recv_timeout(Duration::from_secs(10)).map(number);
        let Some(item) = item else { panic!("nothing comes after {}", read.load(Ordering::SeqCst)) };
        read.fetch_add(item.map_or_else(|missed| missed, |_| 1), Ordering::SeqCst);
    }
    drop(publisher.join().unwrap());
}

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Woken {
    fn times(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

fn poll(subscriber: &Subscriber, woken: &Arc<Woken>) -> Poll<Option<Result<u64, u64>>> {
    let waker = Waker::from(woken.clone());
    subscriber.poll_recv(&mut Context::from_waker(&waker)).map(|item| item.map(number))
}

fn wake_due(bus: &Bus) -> usize {
    let wakers = bus.wakers();
    let due = wakers.len();
    wakers.into_iter().for_each(Waker::wake);
    due
}

#[test]
fn a_task_that_waits_is_woken_by_the_driver_for_what_it_asked_for() {
    let (call, called) = bounded(1);
    let bus = Bus::new(call);
    let gaps = bus.subscribe(Filter::default().kinds([EventKind::Gap]), 1);
    let ends = bus.subscribe(Filter::default().kinds([EventKind::Ended]), 1);
    let (woken, other) = <(Arc<Woken>, Arc<Woken>)>::default();
    bus.publish(|| gap(0));
    assert_eq!((called.len(), wake_due(&bus)), (0, 0), "nobody waits");
    assert_eq!(poll(&gaps, &woken), Poll::Ready(Some(Ok(0))));
    assert_eq!((poll(&gaps, &woken), poll(&ends, &other)), (Poll::Pending, Poll::Pending));
    bus.publish(|| gap(1));
    bus.publish(|| gap(2));
    assert_eq!(woken.times(), 0, "not by the publisher");
    assert_eq!((called.try_iter().count(), wake_due(&bus), wake_due(&bus)), (1, 1, 0));
    assert_eq!((woken.times(), other.times()), (1, 0));
    assert_eq!(poll(&gaps, &woken), Poll::Ready(Some(Ok(1))));
    assert_eq!(poll(&gaps, &woken), Poll::Ready(Some(Err(1))));
    assert_eq!(poll(&gaps, &woken), Poll::Pending);
    assert_eq!(poll(&gaps, &other), Poll::Pending);
    bus.publish(|| gap(3));
    assert_eq!((called.len(), wake_due(&bus)), (1, 1));
    assert_eq!((woken.times(), other.times()), (1, 1), "the one that polled last");
}

#[test]
fn a_task_that_is_gone_is_not_kept() {
    let bus = bus();
    let subscriber = bus.subscribe(Filter::default(), 1);
    let woken = Arc::new(Woken::default());
    assert_eq!(poll(&subscriber, &woken), Poll::Pending);
    assert_eq!(Arc::strong_count(&woken), 2);
    drop(subscriber);
    assert_eq!(Arc::strong_count(&woken), 1);
}

#[test]
fn the_end_of_all_events_wakes_who_waits() {
    let bus = bus();
    let subscribers: Vec<_> = (0..3).map(|_| bus.subscribe(Filter::default(), 1)).collect();
    let woken = Arc::new(Woken::default());
    bus.publish(|| gap(0));
    bus.publish(|| gap(1));
    for subscriber in &subscribers[1..] {
        assert_eq!(poll(subscriber, &woken), Poll::Ready(Some(Ok(0))));
        assert_eq!(poll(subscriber, &woken), Poll::Ready(Some(Err(1))));
        assert_eq!(poll(subscriber, &woken), Poll::Pending);
    }
    drop(bus);
    assert_eq!(woken.times(), 2);
    assert_eq!(poll(&subscribers[0], &woken), Poll::Ready(Some(Ok(0))), "what was sent is read");
    assert_eq!(poll(&subscribers[0], &woken), Poll::Ready(Some(Err(1))), "and what was missed is told");
    for subscriber in &subscribers {
        assert_eq!(poll(subscriber, &woken), Poll::Ready(None));
    }
}

#[test]
fn an_event_reads_as_a_line() {
    let registry = crate::Registry::new(crate::Policy::default()).unwrap();
    let events = registry.subscribe(100);
    let lines = || -> Vec<_> {
        std::iter::from_fn(|| events.try_recv()).map(|event| event.unwrap().to_string()).collect()
    };
    let hello = crate::Hello::new("w1").unwrap().hostname("a\nb");
    let session = registry.connect(hello, |_| {}).unwrap();
    assert_eq!(lines(), [r"worker w1 on a\nb joined, running"]);
    registry.cordon("w1", true).unwrap();
    registry.cordon("w1", false).unwrap();
    let held: Vec<_> =
        (0..5).map(|n| session.lease(&format!("job-{n}"), Duration::from_secs(60)).unwrap()).collect();
    held[0].complete().unwrap();
    registry.signal("w1", crate::WorkerState::Quiet).unwrap();
    let more = registry.connect(crate::Hello::new("w1").unwrap().hostname("a\nb"), |_| {}).unwrap();
    drop((session, more));
    assert_eq!(
        lines(),
        [
            "worker w1 is cordoned",
            "worker w1 is no longer cordoned",
            "worker w1 is told quiet",
            "worker w1 left, quiet, heard 0ns ago",
            "worker w1 lost 4 leases: job-1, job-2, job-3, …: it has ended",
        ]
    );
    assert_eq!(gap(3).to_string(), "the engine stood still for 3s; every deadline moved by it");
}
