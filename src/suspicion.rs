//! How suspicious a silence is, judged by a worker's own rhythm: the φ accrual failure detector of Hayashibara, Défago, Yared
//! and Katayama, "The φ Accrual Failure Detector" (SRDS 2004).
//!
//! A ttl is one number for all. φ asks instead how likely it is that a worker that beat like this one is silent for so long and
//! will still be heard: φ = 1 means about one in ten, φ = 3 one in a thousand, φ = 8 one in a hundred million. It is a scale,
//! not a verdict: show it, sort by it, or choose a threshold for each thing that depends on it.
//!
//! Ground rules
//! - It decides nothing. A worker is reaped by its ttl only.
//! - [`Intervals`] is written on the path of a beat: a few relaxed loads and stores, no lock, no allocation, no loop. It is read by
//!   whoever asks, who may see a window in the midst of being written: each value in it is an interval that was recorded.
//! - Everything is in ticks of the engine's time, which stands still while the engine does: its own pauses make nobody suspect.
//!
//! ```
//! use heartwheel::suspicion::Intervals;
//! let intervals = Intervals::new();
//! for ticks in [150, 149, 151, 150, 148, 152] {
//!     intervals.record(ticks);
//! }
//! let rhythm = intervals.rhythm().expect("enough was heard");
//! assert!(rhythm.phi(150) < 1.0);        // as usual
//! assert!(rhythm.phi(300) > 4.0);        // one beat is missing
//! assert!(rhythm.phi(600) > 30.0);       // three are
//! ```

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};

/// The last intervals between the beats of one worker, in ticks. 132 bytes, all in place.
///
/// Two connections that beat in the same instant may lose one of the two intervals. Nothing else can go wrong.
pub struct Intervals {
    /// Where the next one goes, modulo the length, which divides 2³²: it may wrap.
    next: AtomicU32,
    /// Zero: nothing was recorded here yet.
    ticks: [AtomicU32; Intervals::LEN],
}

impl Intervals {
    /// How many are kept: the last eight minutes of a worker that beats every 15 s.
    pub const LEN: usize = 32;

    /// With fewer than these there is no [`rhythm`](Intervals::rhythm).
    pub const FEWEST: usize = 4;

    /// Nothing heard yet.
    #[must_use]
    pub const fn new() -> Self {
        Intervals { next: AtomicU32::new(0), ticks: [const { AtomicU32::new(0) }; Intervals::LEN] }
    }

    /// Takes note of the interval that a beat ended, in ticks; the oldest one gives way. Zero, a second beat within one tick, is no
    /// interval; what is longer than `u32::MAX` counts as that.
    #[inline]
    pub fn record(&self, ticks: u64) {
        if ticks == 0 {
            return;
        }
        // Relaxed here and below: every value stands for itself, and which of two is the older matters little. Not a locked
        // addition, which would cost a beat more than all the rest: two at once may take the same place.
        let next = self.next.load(Ordering::Relaxed);
        // Relaxed: as above.
        self.next.store(next.wrapping_add(1), Ordering::Relaxed);
        let ticks = u32::try_from(ticks).unwrap_or(u32::MAX);
        // Relaxed: as above.
        self.ticks[next as usize % Intervals::LEN].store(ticks, Ordering::Relaxed);
    }

    /// Mean and deviation of what was recorded; `None` with fewer than [`FEWEST`](Intervals::FEWEST) intervals: too little to suspect
    /// anybody by.
    #[must_use]
    pub fn rhythm(&self) -> Option<Rhythm> {
        // Relaxed: as in `record`.
        let ticks = self.ticks.each_ref().map(|ticks| f64::from(ticks.load(Ordering::Relaxed)));
        let heard = || ticks.iter().copied().filter(|&ticks| ticks > 0.0);
        let count = heard().count();
        if count < Intervals::FEWEST {
            return None;
        }
        // At most 32: exact.
        #[expect(clippy::cast_precision_loss, reason = "a count of at most 32")]
        let samples = count as f64;
        let mean = heard().sum::<f64>() / samples;
        // Two passes and not a difference of large sums, which would cancel.
        let variance = heard().map(|ticks| (ticks - mean).powi(2)).sum::<f64>() / (samples - 1.0);
        Some(Rhythm { mean, deviation: variance.sqrt(), samples: count })
    }
}

impl Default for Intervals {
    fn default() -> Self {
        Intervals::new()
    }
}

impl fmt::Debug for Intervals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Intervals").field("rhythm", &self.rhythm()).finish_non_exhaustive()
    }
}

/// How regularly a worker beats, from [`Intervals::rhythm`]. In ticks.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Rhythm {
    /// The mean of the intervals.
    pub mean: f64,
    /// Their standard deviation, of a sample (n − 1), as it was measured.
    pub deviation: f64,
    /// How many intervals these are made from.
    pub samples: usize,
}

impl Rhythm {
    /// Nobody is taken to be more regular than this part of their mean: a worker that never was late yet may be late once. With a
    /// quarter, a silence of twice the mean makes φ 4.5 at the most, of three times 15, of four times 33.
    pub const LEAST_DEVIATION: f64 = 0.25;

    /// The suspicion after `elapsed` ticks of silence, with a deviation of at least [`LEAST_DEVIATION`](Rhythm::LEAST_DEVIATION) of the mean.
    /// For another floor there is the bare [`phi`].
    #[must_use]
    pub fn phi(&self, elapsed: u64) -> f64 {
        #[expect(
            clippy::cast_precision_loss,
            reason = "a silence of 2⁵³ ticks is as suspicious as one of a tick more"
        )]
        let elapsed = elapsed as f64;
        phi(elapsed, self.mean, self.deviation.max(self.mean * Rhythm::LEAST_DEVIATION))
    }
}

/// The least deviation that [`phi`] reckons with, in ticks. Both ends of an interval are cut to whole ticks, so that even a perfect clock shows up to
/// one tick more or less.
pub const LEAST_DEVIATION: f64 = 1.0;

/// φ = −log₁₀(1 − F(`elapsed`)), F being the normal distribution with that mean and deviation: how likely it is, as a negative power of
/// ten, that the next beat is still to come after so long a silence.
///
/// All three in the same unit, ticks. A deviation below [`LEAST_DEVIATION`] counts as that. The result is never negative, infinite or
/// NaN, and never falls while `elapsed` grows; what cannot be reckoned with (NaN, an infinite mean) suspects nobody: 0.
///
/// Accurate to thirteen digits, however far in the tail: the logarithm is taken there before anything can vanish.
///
/// ```
/// use heartwheel::suspicion::phi;
/// assert!((phi(10.0, 10.0, 2.0) - 0.301_029_995_664).abs() < 1e-12);     // one half
/// assert!((phi(14.0, 10.0, 2.0) - 1.643_016_080_141).abs() < 1e-12);     // two deviations late
/// assert!((phi(90.0, 10.0, 2.0) - 349.437_006_459_346).abs() < 1e-9);    // forty
/// ```
#[must_use]
pub fn phi(elapsed: f64, mean: f64, deviation: f64) -> f64 {
    // In this order: a NaN gives way to the floor.
    let late = (elapsed - mean) / deviation.max(LEAST_DEVIATION);
    if late.is_nan() {
        return 0.0;
    }
    let x = late * std::f64::consts::FRAC_1_SQRT_2;
    let nepers = if x < SMALL {
        // Early: 1 − F is near one, and what it lacks is what counts.
        -(-half_erfc(-x)).ln_1p()
    } else {
        // Late: erfc(x) is erfcx(x) · exp(−x²), and would be gone from x = 27 on.
        x * x - (0.5 * erfcx(x)).ln()
    };
    // No further than there are numbers; and no minus before a zero.
    (nepers / std::f64::consts::LN_10).clamp(0.0, f64::MAX)
}

/// Up to here erf is approximated by itself.
const SMALL: f64 = 0.46875;

/// ½ erfc(x), for x > −[`SMALL`].
fn half_erfc(x: f64) -> f64 {
    if x <= SMALL { 0.5 - 0.5 * erf_small(x) } else { 0.5 * erfcx(x) * (-x * x).exp() }
}

// What follows are the approximations of W. J. Cody, "Rational Chebyshev Approximations for the Error Function", Mathematics of
// Computation 23 (1969), in the coefficients of his program CALERF: relative error below 2⁻⁵³ in exact arithmetic.

/// erf(x) for |x| ≤ [`SMALL`].
fn erf_small(x: f64) -> f64 {
    const OVER: [f64; 5] = [
        1.857_777_061_846_031_5e-1,
        3.161_123_743_870_565_5,
        1.138_641_541_510_501_6e2,
        3.774_852_376_853_02e2,
        3.209_377_589_138_469_4e3,
    ];
    const UNDER: [f64; 5] = [
        1.0,
        2.360_129_095_234_412_2e1,
        2.440_246_379_344_441_7e2,
        1.282_616_526_077_372_3e3,
        2.844_236_833_439_171e3,
    ];
    x * quotient(x * x, &OVER, &UNDER)
}

/// exp(x²) erfc(x) for x ≥ [`SMALL`].
fn erfcx(x: f64) -> f64 {
    const OVER: [f64; 9] = [
        2.153_115_354_744_038_3e-8,
        5.641_884_969_886_7e-1,
        8.883_149_794_388_377,
        6.611_919_063_714_163e1,
        2.986_351_381_974_001e2,
        8.819_522_212_417_69e2,
        1.712_047_612_634_070_7e3,
        2.051_078_377_826_071_6e3,
        1.230_339_354_797_997_2e3,
    ];
    const UNDER: [f64; 9] = [
        1.0,
        1.574_492_611_070_983_4e1,
        1.176_939_508_913_125e2,
        5.371_811_018_620_098e2,
        1.621_389_574_566_69e3,
        3.290_799_235_733_459_7e3,
        4.362_619_090_143_247e3,
        3.439_367_674_143_721_6e3,
        1.230_339_354_803_749_5e3,
    ];
    const OVER_FAR: [f64; 6] = [
        1.631_538_713_730_209_7e-2,
        3.053_266_349_612_323_6e-1,
        3.603_448_999_498_044_5e-1,
        1.257_817_261_112_292_6e-1,
        1.608_378_514_874_227_5e-2,
        6.587_491_615_298_378e-4,
    ];
    const UNDER_FAR: [f64; 6] = [
        1.0,
        2.568_520_192_289_822,
        1.872_952_849_923_460_4,
        5.279_051_029_514_285e-1,
        6.051_834_131_244_132e-2,
        2.335_204_976_268_691_8e-3,
    ];
    if x <= 4.0 {
        return quotient(x, &OVER, &UNDER);
    }
    let square = (x * x).recip();
    let less = square * quotient(square, &OVER_FAR, &UNDER_FAR);
    (0.5 * std::f64::consts::FRAC_2_SQRT_PI - less) / x
}

/// The quotient of two polynomials in `x`, the highest power first.
fn quotient(x: f64, over: &[f64], under: &[f64]) -> f64 {
    let at = |coefficients: &[f64]| coefficients.iter().fold(0.0, |sum, &coefficient| sum * x + coefficient);
    at(over) / at(under)
}

#[cfg(test)]
mod tests;
