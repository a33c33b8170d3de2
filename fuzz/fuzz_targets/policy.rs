//! Whatever a policy says: it is refused, by a value that is named, or a registry works by it.

#![no_main]

use std::time::{Duration, Instant};

use arbitrary::Arbitrary;
use heartwheel::{Beat, Brake, Hello, Identity, Overdue, Policy, Recover, Registry};
use libfuzzer_sys::fuzz_target;

/// Durations of all sizes.
#[derive(Arbitrary, Debug)]
struct Span {
    nanos: u64,
    shift: u8,
}

impl Span {
    fn get(&self) -> Duration {
        Duration::from_nanos(self.nanos >> (self.shift % 64))
    }
}

#[derive(Arbitrary, Debug)]
struct Said {
    ttl: Option<Span>,
    tick: Option<Span>,
    late_after: Option<Span>,
    remember: Option<Span>,
    gap: Option<Span>,
    grace: Option<Span>,
    lease: Option<(Span, Span)>,
    brake: Option<(f64, Span, u8)>,
    limits: [u16; 5],
    choices: u8,
    steps: Vec<Span>,
}

fuzz_target!(|said: Said| {
    let mut policy = Policy::default();
    let set = |field: &mut Duration, span: &Option<Span>| {
        if let Some(span) = span {
            *field = span.get();
        }
    };
    set(&mut policy.ttl, &said.ttl);
    set(&mut policy.tick, &said.tick);
    policy.late_after = said.late_after.as_ref().map(Span::get);
    policy.remember = said.remember.as_ref().map(Span::get);
    policy.gap = said.gap.as_ref().map(Span::get);
    policy.grace = said.grace.as_ref().map(Span::get);
    if let Some((least, most)) = &said.lease {
        (policy.lease_min, policy.lease_max) = (Some(least.get()), most.get());
    }
    if let Some((share, window, at_least)) = &said.brake {
        let mut brake = Brake::default();
        (brake.share, brake.window, brake.at_least) = (*share, window.get(), (*at_least).into());
        policy.brake = Some(brake);
    }
    let limits = &mut policy.limits;
    // Zero leaves the default.
    for (limit, said) in
        [&mut limits.wid, &mut limits.hostname, &mut limits.labels, &mut limits.label, &mut limits.lease]
            .into_iter()
            .zip(said.limits)
    {
        if said > 0 {
            *limit = usize::from(said) - 1;
        }
    }
    policy.identity = [Identity::Share, Identity::Supersede, Identity::Reject][usize::from(said.choices % 3)];
    policy.overdue = [Overdue::Leave, Overdue::Close, Overdue::End][usize::from(said.choices / 3 % 3)];
    policy.recover = [Recover::AtDeath, Recover::AtExpiry][usize::from(said.choices / 9 % 2)];
    let registry = match Registry::new(policy.clone()) {
        Ok(registry) => registry,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            // It is refused for a registry that runs, too, and changes nothing there.
            let registry = Registry::new(Policy::default()).expect("the default policy is valid");
            assert!(registry.set_policy(policy).is_err());
            assert_eq!(*registry.policy(), Policy::default());
            return;
        }
    };
    let start = Instant::now();
    let mut now = start;
    let _ = registry.reap(now, 100);
    let hello = |wid| Hello::new(wid).expect("a valid wid");
    let first = registry.connect(hello("w"), |_| {}).expect("a wid of one character fits");
    let _ = first.lease("j", policy.lease_max);
    for span in &said.steps {
        now = now.checked_add(span.get()).unwrap_or(now);
        let live = first.beat(&Beat::default());
        let pass = registry.reap(now, 100);
        // A beat and one pass later it lives, however long that pass took.
        assert!(live.is_err() || first.state().is_ok() || policy.overdue == Overdue::End, "{pass:?}");
        for hangup in pass.hangups {
            hangup.run();
        }
    }
    let sums = registry.stats();
    assert_eq!(sums.joined, sums.live() as u64 + sums.expired + sums.left + sums.superseded);
});
