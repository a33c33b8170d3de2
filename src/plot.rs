//! Where the words of workers lie: a cache line each, side by side.
//!
//! Ground rules
//! - A beat touches one line and nothing else of its worker. Lines of many workers share pages, apart from all that is large and
//!   rarely looked at, so that a beat of one among many costs one miss.
//! - A line is its worker's from birth until the last handle to the worker is gone: nobody who can still look at it ever sees
//!   another worker there (G5).
//! - A chunk of lines lives as long as a worker has a line in it, and only the newest is kept beyond that (G10).

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Weak};

use crate::hello::Beat;
use crate::state::WorkerState;
use crate::sync::{Flag, Mutex, Number, Ordering, lock};
use crate::vitals::{Change, Vitals, Word};

const NEVER_SAID: u64 = u64::MAX;

/// What a beat touches.
#[repr(align(64))]
pub(crate) struct Line {
    pub(crate) vitals: Vitals,
    /// Beats counted, and the ticks between the last two: see [`Pulse`].
    pulse: Number,
    rss_kb: Number,
    /// The worker keeps its intervals.
    keeps_intervals: Flag,
}

/// What a beat leaves behind for display: how many there were, and how far the last two were apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pulse(u64);

impl Pulse {
    const INTERVAL_BITS: u32 = 24;
    const MAX_INTERVAL: u64 = (1 << Self::INTERVAL_BITS) - 1;

    pub(crate) fn beats(self) -> u64 {
        self.0 >> Self::INTERVAL_BITS
    }

    /// Ticks between the last two beats.
    pub(crate) fn interval(self) -> u64 {
        self.0 & Self::MAX_INTERVAL
    }

    fn beaten(self, interval: u64) -> Self {
        Pulse((self.beats() + 1) << Self::INTERVAL_BITS | interval.min(Self::MAX_INTERVAL))
    }
}

impl Line {
    fn new() -> Self {
        Line {
            vitals: Vitals::new(Word::born(WorkerState::Running, false, 0)),
            pulse: Number::new(0),
            rss_kb: Number::new(NEVER_SAID),
            keeps_intervals: Flag::new(false),
        }
    }

    /// Begins a life on this line, which nobody else can look at yet.
    fn begin(&self, word: Word, keeps_intervals: bool) {
        self.vitals.begin(word);
        // Relaxed: whoever is given the line is given it after this, by the map or a handle.
        self.pulse.store(0, Ordering::Relaxed);
        // Relaxed: as above.
        self.rss_kb.store(NEVER_SAID, Ordering::Relaxed);
        // Relaxed: as above.
        self.keeps_intervals.store(keeps_intervals, Ordering::Relaxed);
    }

    /// Keeps what a beat said beside being alive. Returns the interval it ended, in ticks, if the worker keeps its intervals. A beat that was
    /// not the first of its tick changed no word, and counts as that one did.
    #[inline]
    pub(crate) fn note(&self, beat: &Beat, change: Change) -> Option<u64> {
        // Relaxed throughout: for display, each value by itself.
        if let Some(rss_kb) = beat.rss_kb
            && self.rss_kb.load(Ordering::Relaxed) != rss_kb
        {
            // Relaxed: as above.
            self.rss_kb.store(rss_kb, Ordering::Relaxed);
        }
        let interval = change.after.tick() - change.before.tick();
        if interval == 0 {
            return None;
        }
        // Not a locked addition: two connections that beat in the same instant may count as one.
        let pulse = Pulse(self.pulse.load(Ordering::Relaxed)).beaten(interval);
        self.pulse.store(pulse.0, Ordering::Relaxed);
        // What lies between HELLO and the first beat says nothing about the regular distance.
        (pulse.beats() > 1 && self.keeps_intervals.load(Ordering::Relaxed)).then_some(interval)
    }

    pub(crate) fn pulse(&self) -> Pulse {
        // Relaxed: for display.
        Pulse(self.pulse.load(Ordering::Relaxed))
    }

    pub(crate) fn rss_kb(&self) -> Option<u64> {
        // Relaxed: for display.
        Some(self.rss_kb.load(Ordering::Relaxed)).filter(|&rss_kb| rss_kb != NEVER_SAID)
    }
}

/// So many lines lie side by side. The pages that beats touch are then dense: among a hundred thousand workers most of a beat's time
/// goes into finding the page, and with a page for every 64 it took three times as long.
const LINES: usize = if cfg!(heartwheel_loom) { BITS } else { 1024 };

/// Lines side by side, and which of them are free.
struct Chunk {
    lines: Arc<[Line; LINES]>,
    free: Mutex<Free>,
    plots: Weak<Plots>,
}

const BITS: usize = u64::BITS as usize;

/// The free lines of a chunk, a bit each.
struct Free {
    bits: [u64; LINES / BITS],
    count: usize,
}

impl Free {
    fn all() -> Self {
        Free { bits: [u64::MAX; LINES / BITS], count: LINES }
    }

    /// The first of them. There is one: whoever asks has found the chunk on the list.
    fn take(&mut self) -> usize {
        let word = self.bits.iter().position(|&bits| bits != 0).unwrap_or(0);
        let bit = self.bits[word].trailing_zeros() as usize;
        self.bits[word] &= !(1 << bit);
        self.count -= 1;
        word * BITS + bit
    }

    fn give_back(&mut self, line: usize) {
        self.bits[line / BITS] |= 1 << (line % BITS);
        self.count += 1;
    }
}

/// Where a line is. A handle: it keeps the memory, not the line, which is its worker's.
#[derive(Clone)]
pub(crate) struct Place {
    lines: Arc<[Line; LINES]>,
    index: usize,
}

impl Deref for Place {
    type Target = Line;

    #[inline]
    fn deref(&self) -> &Line {
        // The index is below it always; this way no check of it is needed.
        &self.lines[self.index % LINES]
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.vitals.fmt(f)
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.vitals.fmt(f)
    }
}

/// The worker's own hold on its line; dropped, the line is free.
pub(crate) struct Plot {
    chunk: Arc<Chunk>,
    index: usize,
}

impl Plot {
    pub(crate) fn place(&self) -> Place {
        Place { lines: self.chunk.lines.clone(), index: self.index }
    }
}

impl Deref for Plot {
    type Target = Line;

    fn deref(&self) -> &Line {
        &self.chunk.lines[self.index % LINES]
    }
}

impl fmt::Debug for Plot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.vitals.fmt(f)
    }
}

impl Drop for Plot {
    fn drop(&mut self) {
        let mut free = lock(&self.chunk.free);
        free.give_back(self.index);
        let was_full = free.count == 1;
        // Lock order: the list, then a chunk.
        drop(free);
        if was_full && let Some(plots) = self.chunk.plots.upgrade() {
            // It was not on the list, so nobody has taken the line meanwhile, and nobody else puts it there.
            lock(&plots.open).push(Arc::downgrade(&self.chunk));
        }
    }
}

/// The chunks that have a free line, each once.
#[derive(Default)]
pub(crate) struct Plots {
    open: Mutex<Vec<Weak<Chunk>>>,
    /// The newest chunk, kept though nobody may live there: a fleet of one that comes and goes does not make it anew each time.
    newest: Mutex<Option<Arc<Chunk>>>,
}

impl Plots {
    /// A free line, on which a life begins with `word`.
    pub(crate) fn take(self: &Arc<Self>, word: Word, keeps_intervals: bool) -> Plot {
        let mut open = lock(&self.open);
        let chunk = loop {
            match open.last() {
                None => {
                    let chunk = self.chunk();
                    open.push(Arc::downgrade(&chunk));
                    break chunk;
                }
                Some(last) => match last.upgrade() {
                    Some(chunk) => break chunk,
                    None => drop(open.pop()),
                },
            }
        };
        let mut free = lock(&chunk.free);
        let index = free.take();
        if free.count == 0 {
            // Whoever frees a line of it from here on puts it on the list again.
            open.pop();
        }
        drop(free);
        drop(open);
        let plot = Plot { chunk, index };
        plot.begin(word, keeps_intervals);
        plot
    }

    fn chunk(self: &Arc<Self>) -> Arc<Chunk> {
        let lines: Arc<[Line]> = (0..LINES).map(|_| Line::new()).collect();
        let lines = lines.try_into().expect("it was made with that many");
        let chunk = Arc::new(Chunk { lines, free: Mutex::new(Free::all()), plots: Arc::downgrade(self) });
        *lock(&self.newest) = Some(chunk.clone());
        chunk
    }
}

#[cfg(all(test, not(heartwheel_loom)))]
mod tests {
    use std::thread;

    use super::*;

    fn word(tick: u64) -> Word {
        Word::born(WorkerState::Running, false, tick)
    }

    #[test]
    fn a_line_is_one_cache_line() {
        assert_eq!((size_of::<Line>(), align_of::<Line>()), (64, 64));
        assert_eq!(size_of::<[Line; LINES]>(), 64 * LINES);
    }

    #[test]
    fn the_newest_chunk_is_kept_for_a_fleet_that_comes_and_goes() {
        let plots = Arc::new(Plots::default());
        let first = plots.take(word(1), false);
        let at: *const Line = &*first;
        drop(first);
        let second = plots.take(word(2), false);
        assert!(std::ptr::eq(at, &*second));
        // No circle: it goes with the last of them.
        let left = Arc::downgrade(&plots);
        let chunk = Arc::downgrade(&second.chunk);
        drop((plots, second));
        assert!(left.upgrade().is_none() && chunk.upgrade().is_none());
    }

    #[test]
    fn a_new_life_begins_anew_on_a_line_that_was_used() {
        let plots = Arc::new(Plots::default());
        let first = plots.take(word(1), true);
        let change = first.vitals.update(|word| word.beat(7)).unwrap();
        assert_eq!(first.note(&Beat::default().rss_kb(5), change), None, "one beat makes no interval");
        let change = first.vitals.update(|word| word.beat(9)).unwrap();
        assert_eq!(first.note(&Beat::default(), change), Some(2));
        assert_eq!((first.rss_kb(), first.pulse().beats()), (Some(5), 2));
        let at: *const Line = &*first;
        // Another one keeps the chunk.
        let _other = plots.take(word(2), false);
        drop(first);
        let second = plots.take(word(3), false);
        assert!(std::ptr::eq(at, &*second));
        assert_eq!((second.rss_kb(), second.pulse().beats(), second.vitals.load()), (None, 0, word(3)));
    }

    #[test]
    fn lines_are_used_again_and_chunks_go_with_their_last_line() {
        let plots = Arc::new(Plots::default());
        for _ in 0..3 {
            let mut held: Vec<_> = (0..LINES as u64 * 10).map(|n| plots.take(word(n), false)).collect();
            assert!(lock(&plots.open).is_empty(), "all are full");
            // Every other line is free, and taken again; the list stays as long as there are chunks.
            for _ in 0..5 {
                let mut n = 0;
                held.retain(|_| {
                    n += 1;
                    n % 2 == 0
                });
                assert_eq!(lock(&plots.open).len(), 10);
                while held.len() < LINES * 10 {
                    held.push(plots.take(word(0), false));
                }
                assert!(lock(&plots.open).is_empty());
            }
            drop(held);
            let living = |open: &[Weak<Chunk>]| open.iter().filter(|chunk| chunk.strong_count() > 0).count();
            assert_eq!(living(&lock(&plots.open)), 1, "only the newest is kept");
            assert_eq!(lock(&plots.open).len(), 10);
            let _all: Vec<_> = (0..=LINES as u64).map(|n| plots.take(word(n), false)).collect();
            assert!(lock(&plots.open).len() == 1, "the dead ones were thrown away");
        }
    }

    #[test]
    fn nobody_shares_a_line_under_concurrency() {
        let plots = Arc::new(Plots::default());
        let threads: Vec<_> = (0..4_u64)
            .map(|thread| {
                let plots = plots.clone();
                thread::spawn(move || {
                    let mut held = Vec::new();
                    for n in 0..50_000_u64 {
                        let mine = word(thread << 32 | n);
                        held.push((mine, plots.take(mine, false)));
                        if n % 3 != 0 {
                            let at = usize::try_from(n).unwrap() * 7 % held.len();
                            let (mine, plot) = held.swap_remove(at);
                            assert_eq!(plot.vitals.load(), mine, "another began on it");
                        }
                        if held.len() > 500 {
                            held.clear();
                        }
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let newest = lock(&plots.newest).as_ref().map(|chunk| lock(&chunk.free).count);
        assert_eq!(newest, Some(LINES), "all were given back");
        assert_eq!(lock(&plots.open).iter().filter(|chunk| chunk.strong_count() > 0).count(), 1);
    }
}
