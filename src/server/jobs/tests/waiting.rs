//! A job never lies in a queue beside somebody who sleeps on it, and one job wakes one.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, Wake, Waker};

use super::*;

/// Counts how often it was woken. The count is read by the thread that wakes, so any ordering would do.
#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        // Relaxed: see the type.
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

type Fetched = Pin<Box<dyn Future<Output = String>>>;

/// A FETCH that is polled by hand.
struct Fetch {
    future: Option<Fetched>,
    bell: Arc<Bell>,
}

impl Fetch {
    fn new(store: &Arc<JobStore>, queues: &'static [&'static str]) -> Self {
        let (store, session) = (Arc::clone(store), session());
        let wait = store.wait(queues);
        let future = wait.until(move || store.fetch(queues, &session).unwrap().map(|text| jid(&text)));
        Self { future: Some(Box::pin(future)), bell: Arc::default() }
    }

    fn asleep(store: &Arc<JobStore>, queues: &'static [&'static str]) -> Self {
        let mut fetch = Self::new(store, queues);
        assert_eq!(fetch.poll(), None);
        fetch
    }

    fn poll(&mut self) -> Option<String> {
        let waker = Waker::from(Arc::clone(&self.bell));
        match self.future.as_mut().expect("not over").as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Pending => None,
            Poll::Ready(jid) => {
                self.future = None;
                Some(jid)
            }
        }
    }

    fn woken(&self) -> usize {
        // Relaxed: see `Bell`.
        self.bell.0.load(Ordering::Relaxed)
    }

    fn cancel(&mut self) {
        self.future = None;
    }
}

/// A worker of its own, whose jobs outlive it: one engine for all tests, whose time stands still.
fn session() -> Session {
    static ENGINE: LazyLock<Registry> = LazyLock::new(|| Fleet::new(Recover::AtExpiry).registry);
    join(&ENGINE, 0)
}

fn shared() -> Arc<JobStore> {
    Arc::new(store())
}

fn push(store: &JobStore, jid: &str, queue: &str) {
    store.push(job_in(jid, queue), start()).unwrap();
}

fn woken(fetches: &[Fetch]) -> Vec<usize> {
    fetches.iter().map(Fetch::woken).collect()
}

#[test]
fn a_push_wakes_the_one_who_waited_longest() {
    let store = shared();
    let mut fetches: Vec<_> = (0..1000).map(|_| Fetch::asleep(&store, &["a", "b"])).collect();
    push(&store, "job-0001", "b");
    assert_eq!(woken(&fetches).iter().sum::<usize>(), 1);
    assert_eq!(fetches[0].poll().as_deref(), Some("job-0001"));
    push(&store, "job-0002", "a");
    push(&store, "job-0003", "a");
    assert_eq!(woken(&fetches)[..4], [1, 1, 1, 0]);
    push(&store, "job-0004", "elsewhere");
    assert_eq!(woken(&fetches).iter().sum::<usize>(), 3);
}

#[test]
fn a_job_that_is_there_needs_no_sleep() {
    let store = shared();
    push(&store, "job-0001", "a");
    assert_eq!(Fetch::new(&store, &["b", "a"]).poll().as_deref(), Some("job-0001"));
}

#[test]
fn a_job_between_the_look_and_the_sleep_is_seen() {
    let (store, session) = (shared(), session());
    let mut looks = 0;
    let late = Arc::clone(&store);
    let mut future = pin!(store.wait(&["a"]).until(|| {
        looks += 1;
        let got = late.fetch(&["a"], &session).unwrap();
        if looks == 1 {
            push(&late, "job-0001", "a");
        }
        got
    }));
    let bell = Waker::from(Arc::new(Bell::default()));
    assert!(future.as_mut().poll(&mut Context::from_waker(&bell)).is_ready());
}

#[test]
fn a_wake_unused_is_passed_on() {
    let store = shared();
    let mut fetches: Vec<_> = (0..3).map(|_| Fetch::asleep(&store, &["a"])).collect();
    push(&store, "job-0001", "a");
    fetches[0].cancel();
    assert_eq!(woken(&fetches), [1, 1, 0]);
    fetches[1].cancel();
    assert_eq!(fetches[2].woken(), 1);
    assert_eq!(fetches[2].poll().as_deref(), Some("job-0001"));
}

/// Asks a bare wait once.
fn is_ready(wait: &mut Wait) -> bool {
    let bell = Waker::from(Arc::new(Bell::default()));
    pin!(wait.ready()).as_mut().poll(&mut Context::from_waker(&bell)).is_ready()
}

#[test]
fn a_wait_told_and_then_dropped_passes_the_wake_on() {
    let store = shared();
    let mut wait = store.wait(&["a"]);
    assert!(!is_ready(&mut wait));
    let other = Fetch::asleep(&store, &["a"]);
    push(&store, "job-0001", "a");
    assert!(is_ready(&mut wait));
    assert_eq!(other.woken(), 0, "the first is on its way");
    assert!(!is_ready(&mut store.wait(&["a"])), "the only job has somebody on the way to it");
    drop(wait);
    assert_eq!(other.woken(), 1);
}

#[test]
fn a_wait_that_turns_to_another_queue_passes_the_wake_on() {
    let store = shared();
    let mut wait = store.wait(&["a", "b"]);
    assert!(!is_ready(&mut wait));
    let other = Fetch::asleep(&store, &["b"]);
    push(&store, "job-in-b", "b");
    push(&store, "job-in-a", "a");
    assert!(is_ready(&mut wait), "told of b");
    assert_eq!(other.woken(), 0);
    assert!(is_ready(&mut wait), "it left b alone and is told of a");
    assert_eq!(other.woken(), 1);
}

#[test]
fn a_wake_for_one_queue_used_on_another_is_passed_on() {
    let store = shared();
    let mut both = Fetch::asleep(&store, &["a", "b"]);
    let mut b = Fetch::asleep(&store, &["b"]);
    let mut a = Fetch::asleep(&store, &["a"]);
    push(&store, "job-in-b", "b");
    push(&store, "job-in-a", "a");
    assert_eq!((both.woken(), b.woken(), a.woken()), (1, 0, 1));
    assert_eq!(both.poll().as_deref(), Some("job-in-a"), "woken for b, it takes from a, its first queue");
    assert_eq!(b.woken(), 1);
    assert_eq!(b.poll().as_deref(), Some("job-in-b"));
    assert_eq!(a.poll(), None);
}

#[test]
fn a_stolen_job_costs_no_place() {
    let store = shared();
    let mut first = Fetch::asleep(&store, &["a"]);
    let second = Fetch::asleep(&store, &["a"]);
    push(&store, "job-0001", "a");
    assert!(store.fetch(&["a"], &session()).unwrap().is_some(), "somebody was quicker");
    assert_eq!(first.poll(), None);
    push(&store, "job-0002", "a");
    assert_eq!((first.woken(), second.woken()), (2, 0));
    assert_eq!(first.poll().as_deref(), Some("job-0002"));
}

#[test]
fn a_job_wakes_however_it_comes() {
    let (store, mut fleet, mut now) = (shared(), Fleet::new(Recover::AtDeath), start());
    fleet.pass(&store, now);
    push(&store, "job-0001", "a");
    fleet.fetch(&store, &["a"], 5).unwrap();

    let mut fetch = Fetch::asleep(&store, &["a"]);
    fleet.end(&store, 5);
    assert_eq!((fetch.woken(), fetch.poll().is_some()), (1, true), "its holder ended");
    assert_eq!(store.ack("job-0001", None), Ack::Done);

    push(&store, "job-0001", "a");
    fleet.fetch(&store, &["a"], 6).unwrap();
    let mut fetch = Fetch::asleep(&store, &["a"]);
    now += secs(3600);
    fleet.pass(&store, now);
    assert_eq!((fetch.woken(), fetch.poll().is_some()), (1, true), "the reservation ran out");

    assert_eq!(store.fail(super::fail("job-0001"), None, now), Ack::Done);
    let mut fetch = Fetch::asleep(&store, &["a"]);
    now += secs(60);
    store.advance(now, 1);
    assert_eq!((fetch.woken(), fetch.poll().is_some()), (1, true), "retry");

    let wall = wall_now();
    let soon = wall.checked_add(jiff::SignedDuration::from_secs(5)).unwrap();
    store.push_at(job_with("job-0002", &format!(r#","queue":"a","at":"{soon}""#)), now, wall).unwrap();
    let mut fetch = Fetch::asleep(&store, &["a"]);
    store.advance(now + secs(5), 1);
    assert_eq!((fetch.woken(), fetch.poll().is_some()), (1, true), "schedule");
}

#[test]
fn names_and_sleepers_go_away() {
    let store = shared();
    let mut fetches: Vec<_> = (0..3).map(|_| Fetch::asleep(&store, &["a", "b", "a"])).collect();
    assert_eq!(store.names(), 2);
    fetches[0].cancel();
    push(&store, "job-0001", "a");
    fetches[2].cancel();
    assert_eq!(fetches[1].poll().as_deref(), Some("job-0001"));
    assert_eq!(store.names(), 0);
    drop(store.wait(&["never polled"]));
    assert_eq!(store.names(), 0);
}

#[test]
fn a_flush_leaves_sleepers_asleep_and_reachable() {
    let store = shared();
    let mut fetches: Vec<_> = (0..2).map(|_| Fetch::asleep(&store, &["a"])).collect();
    push(&store, "job-0001", "a");
    store.flush();
    assert_eq!(fetches[0].poll(), None);
    // Numbering goes on, so a newcomer can not take the place of an old sleeper.
    fetches.push(Fetch::asleep(&store, &["a"]));
    push(&store, "job-0002", "a");
    assert_eq!(woken(&fetches), [2, 0, 0]);
    assert_eq!(fetches[0].poll().as_deref(), Some("job-0002"));
    push(&store, "job-0003", "a");
    assert_eq!(fetches[1].poll().as_deref(), Some("job-0003"));
    push(&store, "job-0004", "a");
    assert_eq!(fetches[2].poll().as_deref(), Some("job-0004"));
}

/// Fetches that are cancelled at any moment, pushes and releases from everywhere: all jobs are done in the end, though
/// the sleepers only ever move when they are woken.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_wake_is_lost_in_a_storm() {
    const JOBS: usize = 3000;
    let store = shared();
    let done = Arc::new(AtomicUsize::new(0));
    let mut workers = tokio::task::JoinSet::new();
    for (worker, n) in (0..16_u64).zip(0..16) {
        let (store, done) = (Arc::clone(&store), Arc::clone(&done));
        let queues: &[&str] = [&["a", "b"][..], &["b", "c"], &["c"], &["a", "c", "b"]][n % 4];
        workers.spawn(async move {
            let mut rng = fastrand::Rng::with_seed(worker);
            let session = session();
            let holder = Some(session.incarnation());
            loop {
                // Odd workers give up all the time, even ones never: they hang when a wake is lost.
                let patience =
                    if worker % 2 == 1 { Duration::from_micros(rng.u64(0..300)) } else { secs(30) };
                let fetch = store.wait(queues).until(|| store.fetch(queues, &session).unwrap());
                match tokio::time::timeout(patience, fetch).await {
                    Err(_) => {
                        assert_eq!(worker % 2, 1, "slept on, with jobs there or the end come");
                        tokio::time::sleep(Duration::from_micros(50)).await;
                    }
                    Ok(text) if jid(&text) == "the-end!" => return,
                    Ok(text) if rng.u8(0..4) == 0 => {
                        let lease = session.held(&jid(&text)).unwrap();
                        lease.release().unwrap();
                        assert!(store.lost(lease.token()).is_some());
                    }
                    Ok(text) => {
                        assert_eq!(store.ack(&jid(&text), holder), Ack::Done);
                        // Relaxed: a count; the join below orders the last look.
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        });
    }
    for n in 0..JOBS {
        push(&store, &format!("job-{n:06}"), ["a", "b", "c"][n % 3]);
        if n % 7 == 0 {
            tokio::task::yield_now().await;
        }
        if n % 100 == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    // Relaxed: see above.
    while done.load(Ordering::Relaxed) < JOBS {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // Everybody listens to b or c; more ends than workers, so that each gets one.
    for n in 0..64 {
        push(&store, "the-end!", ["b", "c"][n % 2]);
    }
    while let Some(worker) = workers.join_next().await {
        worker.unwrap();
    }
    assert_eq!(done.load(Ordering::Relaxed), JOBS);
}
