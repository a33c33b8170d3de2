//! A waker that did not come back, woken because its worker expired, stopped the reaper's thread: nobody else was reaped any
//! more.

mod common;

use std::future::Future;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

use common::{PATIENCE, join, now, registry, wait_for};
use heartwheel::{Beat, Reaper, WorkerState};

struct Stalls(Mutex<Receiver<()>>);

impl Wake for Stalls {
    fn wake(self: Arc<Self>) {
        let _ = self.0.lock().unwrap().recv();
    }
}

#[test]
fn a_stalling_waker_costs_only_itself() {
    let registry = registry(|policy| {
        policy.tick = Duration::from_millis(10);
        policy.ttl = Duration::from_millis(100);
    });
    let reaper = Reaper::spawn(&registry).unwrap();
    let (release, stall) = channel();
    let session = join(&registry, "first");
    let waker = Waker::from(Arc::new(Stalls(Mutex::new(stall))));
    let mut changed = Box::pin(session.changed(WorkerState::Running));
    assert!(changed.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    let second = join(&registry, "second");
    wait_for("the first is reaped", || {
        let _ = second.beat(&Beat::default());
        registry.get("first").is_none()
    });
    let until = now() + PATIENCE / 4;
    while registry.get("second").is_some() && now() < until {
        thread::sleep(Duration::from_millis(5));
    }
    let reaped = registry.get("second").is_none();
    drop(release);
    drop(reaper);
    assert!(reaped, "the second is reaped, too");
}
