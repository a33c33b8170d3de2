//! Whatever text is said to be a selector: an error inside it, or a selector that is written, read and meant alike.

#![no_main]

use std::sync::OnceLock;

use heartwheel::{Beat, Hello, Policy, Registry, Selector, Session, WorkerInfo, WorkerState};
use libfuzzer_sys::fuzz_target;

/// A few workers that differ in what selectors ask about.
fn fleet() -> &'static [WorkerInfo] {
    static FLEET: OnceLock<(Registry, Vec<Session>, Vec<WorkerInfo>)> = OnceLock::new();
    let (.., workers) = FLEET.get_or_init(|| {
        let registry = Registry::new(Policy::default()).expect("the default policy is valid");
        let hello = |wid: &str| Hello::new(wid).expect("a valid wid");
        let hellos = [
            hello("a"),
            hello("w1").hostname("app-1").label("blue").version("1.2"),
            hello("w*").hostname("é\u{2028}").label("a b").label("\"").pid(1),
        ];
        let sessions: Vec<_> = hellos
            .into_iter()
            .enumerate()
            .map(|(n, hello)| {
                let session = registry.connect(hello, |_| {}).expect("it is welcome");
                let state = [WorkerState::Running, WorkerState::Quiet, WorkerState::Terminate][n];
                session.beat(&Beat::default().rss_kb(1 << (10 * n)).state(state)).expect("it lives");
                session
            })
            .collect();
        let workers = registry.snapshot().workers().to_vec();
        (registry, sessions, workers)
    });
    workers
}

fuzz_target!(|text: &str| {
    let selector: Selector = match text.parse() {
        Ok(selector) => selector,
        Err(error) => {
            let error: heartwheel::SelectorError = error;
            assert!(error.at() <= text.len() && text.is_char_boundary(error.at()), "{error:?}");
            let _ = error.render(text);
            return;
        }
    };
    let written = selector.to_string();
    // Written out it may be longer than what may be read; what fits is read as the same.
    if written.len() <= Selector::MAX_LEN {
        let read: Selector = written.parse().expect("what is written is read");
        assert_eq!(read, selector, "{written}");
    }
    let negated = !selector.clone();
    for worker in fleet() {
        assert_ne!(selector.matches(worker), negated.matches(worker));
    }
});
