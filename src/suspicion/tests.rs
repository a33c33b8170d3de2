//! φ against worked values and against its own laws; the window under two writers.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;

#[track_caller]
fn is_close(value: f64, expected: f64) {
    let error = (value - expected).abs() / expected.abs().max(f64::MIN_POSITIVE);
    assert!(error < 1e-13, "{value} for {expected}: off by {error:e} of it");
}

/// Worked out with 60 digits.
#[test]
fn worked_values() {
    for (elapsed, mean, deviation, expected) in [
        (10.0, 10.0, 2.0, std::f64::consts::LOG10_2),
        (12.0, 10.0, 2.0, 0.799_545_541_491_970_5),
        (14.0, 10.0, 2.0, 1.643_016_080_140_937),
        (16.0, 10.0, 2.0, 2.869_699_035_929_369),
        (20.0, 10.0, 2.0, 6.542_645_672_390_654),
        (30.0, 10.0, 2.0, 23.118_053_405_486_076),
        (90.0, 10.0, 2.0, 349.437_006_459_345_84),
        (8.0, 10.0, 2.0, 0.075_026_012_957_818_02),
        (0.0, 10.0, 2.0, 1.244_912_137_388_291_7e-7),
        (4.0, 10.0, 1.0, 4.284_695_703_651_578e-10),
        (150.0, 150.0, 37.5, std::f64::consts::LOG10_2),
        (300.0, 150.0, 37.5, 4.499_334_907_556_479),
        (600.0, 150.0, 37.5, 32.750_439_161_191_86),
        (10_010.0, 10.0, 1.0, 21_714_728.494_252_53),
        // Either side of where one approximation gives way to the next.
        (11.3, 10.0, 2.0, 0.588_639_414_842_065),
        (11.3258, 10.0, 2.0, 0.595_684_153_291_735_3),
        (11.326, 10.0, 2.0, 0.595_738_977_092_771),
        (21.31, 10.0, 2.0, 8.108_333_575_893_125),
        (21.32, 10.0, 2.0, 8.120_981_591_776_132),
    ] {
        is_close(phi(elapsed, mean, deviation), expected);
    }
}

/// From the tables of any book of statistics.
#[test]
fn the_approximations_are_those_of_the_error_function() {
    is_close(erf_small(0.25), 0.276_326_390_168_236_9);
    is_close(2.0 * half_erfc(0.25), 0.723_673_609_831_763_1);
    is_close(2.0 * half_erfc(-0.25), 1.276_326_390_168_237);
    is_close(2.0 * half_erfc(1.0), 0.157_299_207_050_285_13);
    is_close(2.0 * half_erfc(3.0), 2.209_049_699_858_544e-5);
    is_close(2.0 * half_erfc(6.0), 2.151_973_671_249_891_3e-17);
    is_close(erfcx(1e9), 5.641_895_835_477_563e-10);
}

#[test]
fn one_in_ten_is_one_and_one_in_a_thousand_is_three() {
    // The quantiles of the normal distribution.
    is_close(phi(100.0 + 10.0 * 1.281_551_565_544_600_5, 100.0, 10.0), 1.0);
    is_close(phi(100.0 + 10.0 * 3.090_232_306_167_813_5, 100.0, 10.0), 3.0);
}

#[test]
fn nothing_makes_it_infinite_or_not_a_number() {
    let odd = [
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::MAX,
        f64::MIN,
        f64::MIN_POSITIVE,
        -1.0,
        -0.0,
        0.0,
        1.0,
        1e150,
        1e200,
        u64::MAX as f64,
    ];
    for elapsed in odd {
        for mean in odd {
            for deviation in odd {
                let phi = phi(elapsed, mean, deviation);
                assert!(phi.is_finite() && phi.is_sign_positive(), "{phi} of {elapsed}, {mean}, {deviation}");
            }
        }
    }
    assert_eq!(phi(f64::INFINITY, 10.0, 1.0), f64::MAX);
    assert_eq!(phi(1e300, 10.0, 1.0), f64::MAX);
    assert_eq!(phi(f64::NAN, 10.0, 1.0), 0.0);
    assert_eq!(phi(20.0, 10.0, f64::NAN), phi(20.0, 10.0, LEAST_DEVIATION));
    assert_eq!(phi(20.0, 10.0, 0.0), phi(20.0, 10.0, LEAST_DEVIATION));
}

fn heard(ticks: impl IntoIterator<Item = u64>) -> Intervals {
    let intervals = Intervals::new();
    ticks.into_iter().for_each(|ticks| intervals.record(ticks));
    intervals
}

#[test]
fn a_window_costs_what_it_says() {
    assert_eq!(size_of::<Intervals>(), 132);
}

#[test]
fn too_little_heard_is_no_rhythm() {
    assert_eq!(heard([]).rhythm(), None);
    assert_eq!(heard([10, 10, 10]).rhythm(), None);
    assert_eq!(heard([10, 0, 10, 0, 10]).rhythm(), None, "a second beat within a tick is no interval");
    let rhythm = heard([9, 10, 10, 11]).rhythm().unwrap();
    assert_eq!((rhythm.mean, rhythm.samples), (10.0, 4));
    is_close(rhythm.deviation, (2.0_f64 / 3.0).sqrt());
}

#[test]
fn the_oldest_give_way() {
    let rhythm = heard((0..100).map(|_| 7).chain((0..Intervals::LEN).map(|_| 50))).rhythm().unwrap();
    assert_eq!((rhythm.mean, rhythm.deviation, rhythm.samples), (50.0, 0.0, Intervals::LEN));
    let rhythm = heard((0..100).map(|_| 7).chain((1..Intervals::LEN).map(|_| 50))).rhythm().unwrap();
    assert!(rhythm.mean < 50.0, "one of before is left");
}

#[test]
fn the_place_of_the_next_may_wrap() {
    let intervals = heard((0..40).map(|_| 7));
    intervals.next.store(u32::MAX - 3, Ordering::Relaxed);
    (0..Intervals::LEN).for_each(|_| intervals.record(9));
    assert_eq!(intervals.rhythm().unwrap().mean, 9.0);
}

#[test]
fn the_longest_intervals_neither_overflow_nor_cancel() {
    let rhythm = heard((0..40).map(|_| u64::MAX)).rhythm().unwrap();
    assert_eq!((rhythm.mean, rhythm.deviation), (f64::from(u32::MAX), 0.0));
    assert_eq!(rhythm.phi(0).to_bits() >> 63, 0);
    assert!(rhythm.phi(u64::MAX).is_finite());
    let far = u64::from(u32::MAX) - 3;
    is_close(heard([far, far + 1, far + 2, far + 1]).rhythm().unwrap().deviation, (2.0_f64 / 3.0).sqrt());
}

#[test]
fn nobody_is_too_regular_to_be_late_once() {
    let rhythm = heard((0..40).map(|_| 150)).rhythm().unwrap();
    assert_eq!(rhythm.deviation, 0.0);
    is_close(rhythm.phi(150), std::f64::consts::LOG10_2);
    is_close(rhythm.phi(300), 4.499_334_907_556_479);
    // One that is irregular by itself is suspected later.
    let irregular = heard((0..32).map(|n| if n % 2 == 0 { 50 } else { 250 })).rhythm().unwrap();
    assert!(irregular.phi(300) < rhythm.phi(300));
}

#[test]
fn connections_that_beat_at_once_leave_nothing_but_intervals_of_theirs() {
    let intervals = Arc::new(Intervals::new());
    std::thread::scope(|scope| {
        for ticks in [100, 300] {
            let intervals = intervals.clone();
            scope.spawn(move || (0..200_000).for_each(|_| intervals.record(ticks)));
        }
        for _ in 0..2000 {
            if let Some(rhythm) = intervals.rhythm() {
                assert!((100.0..=300.0).contains(&rhythm.mean), "{rhythm:?}");
                assert!(rhythm.deviation <= 116.0, "{rhythm:?}");
            }
        }
    });
    assert_eq!(intervals.rhythm().map(|rhythm| rhythm.samples), Some(Intervals::LEN));
}

proptest! {
    #[test]
    fn it_never_falls_while_the_silence_grows(
        mean in 0_u32..,
        deviation in 0_u32..,
        elapsed in any::<u32>(),
        more in 1_u32..,
    ) {
        let [mean, deviation] = [mean, deviation].map(f64::from);
        let (before, after) = (f64::from(elapsed), f64::from(elapsed) + f64::from(more));
        prop_assert!(phi(before, mean, deviation) <= phi(after, mean, deviation));
    }

    /// Tick by tick, around where one approximation gives way to another: 0.66 and 5.66 deviations from the mean.
    #[test]
    fn it_never_falls_from_one_tick_to_the_next(
        deviation in 1_u32..100_000,
        seam in prop::sample::select(vec![-5.656_854, -0.662_913, 0.0, 0.662_913, 5.656_854]),
        off in -3_i32..=3,
    ) {
        let (mean, deviation) = (1e6, f64::from(deviation));
        let elapsed = (mean + seam * deviation).round() + f64::from(off);
        let (before, after) = (phi(elapsed, mean, deviation), phi(elapsed + 1.0, mean, deviation));
        prop_assert!(before < after, "{before} and then {after}");
    }

    /// 1 − F on either side of the mean adds up to one.
    #[test]
    fn early_and_late_are_the_two_sides_of_one_bell(late in 0.0..8.0_f64) {
        let (one, other) = (phi(100.0 + late * 10.0, 100.0, 10.0), phi(100.0 - late * 10.0, 100.0, 10.0));
        let sum = 10_f64.powf(-one) + 10_f64.powf(-other);
        prop_assert!((sum - 1.0).abs() < 1e-14, "{sum}");
    }

    #[test]
    fn the_rhythm_is_that_of_the_last_intervals(ticks in prop::collection::vec(1_u32.., 0..100)) {
        let last = &ticks[ticks.len().saturating_sub(Intervals::LEN)..];
        let rhythm = heard(ticks.iter().copied().map(u64::from)).rhythm();
        prop_assert_eq!(rhythm.is_some(), last.len() >= Intervals::FEWEST);
        if let Some(rhythm) = rhythm {
            let mean = last.iter().copied().map(f64::from).sum::<f64>() / last.len() as f64;
            prop_assert!((rhythm.mean - mean).abs() <= 1e-9 * mean);
            prop_assert_eq!(rhythm.samples, last.len());
            prop_assert!(rhythm.deviation <= f64::from(u32::MAX) && rhythm.phi(0) < rhythm.phi(1 << 40));
        }
    }
}
