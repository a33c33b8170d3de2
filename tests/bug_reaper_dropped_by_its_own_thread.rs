//! A reaper dropped by a waker that it woke itself waited for its own thread: the drop panicked, and the registry counted as
//! driven for ever.

mod common;

use std::future::Future;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use common::{PATIENCE, join, registry};
use heartwheel::{Reaper, WorkerState};

/// The last owner of a program's state is a task that is woken at the end.
struct Owner {
    reaper: Mutex<Option<Reaper>>,
    dropped: Mutex<Sender<()>>,
}

impl Wake for Owner {
    fn wake(self: Arc<Self>) {
        drop(self.reaper.lock().unwrap().take());
        self.dropped.lock().unwrap().send(()).unwrap();
    }
}

#[test]
fn a_reaper_can_be_dropped_from_a_waker() {
    let registry = registry(|policy| {
        policy.tick = Duration::from_millis(10);
        policy.ttl = Duration::from_millis(30);
    });
    let reaper = Mutex::new(Some(Reaper::spawn(&registry).unwrap()));
    let session = join(&registry, "silent");
    let (sender, dropped) = channel();
    let waker = Waker::from(Arc::new(Owner { reaper, dropped: Mutex::new(sender) }));
    let mut changed = Box::pin(session.changed(WorkerState::Running));
    assert!(changed.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    assert_eq!(dropped.recv_timeout(PATIENCE), Ok(()), "the drop comes back");
    let _again = Reaper::spawn(&registry).expect("the registry is free again");
    let _next = join(&registry, "next");
    common::wait_for("the new reaper reaps", || registry.get("next").is_none());
}
