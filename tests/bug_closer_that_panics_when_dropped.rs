//! A closer whose drop panics took the thread with it that closed its own connection, and left that worker in the registry's
//! map until its deadline. While that thread was unwinding already it took the whole process.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};

use common::{Driven, hello};

struct Panics;

impl Drop for Panics {
    fn drop(&mut self) {
        panic!("a closer that panics when it is dropped, on purpose");
    }
}

#[test]
fn it_costs_nobody_anything() {
    let driven = Driven::new(|_| {});
    let panics = Panics;
    let session = driven.registry.connect(hello("w"), move |_| drop(panics)).unwrap();
    let left = catch_unwind(AssertUnwindSafe(|| drop(session)));
    assert!(left.is_ok(), "the connection closes all the same");
    assert_eq!(driven.registry.stats().left, 1);
    assert!(!driven.is_live("w"));
}
