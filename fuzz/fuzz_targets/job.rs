//! Whatever PUSH brings: it is refused, or handed out again as JSON with all that workers need.

#![no_main]

use std::time::{Duration, Instant};

use heartwheel::server::jobs::{Job, JobStore, Limits, jid_of};
use heartwheel::{Hello, Policy, Registry};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &[u8]| {
    let Ok(job) = Job::parse(text) else { return };
    let (jid, queue) = (job.jid().to_owned(), job.queue().to_owned());
    assert_eq!(jid_of(text).as_deref(), Some(&*jid));
    let store = JobStore::new(Limits::default());
    let now = Instant::now();
    store.push(job, now).expect("there is room");
    // Longer than any `at` can name.
    let late = now + Duration::from_secs(400 * 365 * 24 * 3600);
    while store.advance(late, 16) {}
    let registry = Registry::new(Policy::default()).expect("the default policy is valid");
    let session = registry.connect(Hello::new("w1").expect("a valid wid"), |_| {}).expect("it is welcome");
    let handed = store.fetch(&[&queue], &session).expect("it takes work").expect("the job is due");
    let again = Job::parse(&handed).expect("what is handed out is a job");
    assert_eq!((again.jid(), again.queue()), (&*jid, &*queue));
    for field in ["queue", "created_at", "enqueued_at", "reserve_for"] {
        assert!(again.raw(field).is_some_and(|value| value != "null"), "{field}");
    }
});
