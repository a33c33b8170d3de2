//! The one word that decides: state, end, lateness, cordon, connections and last beat of one incarnation, in one
//! `AtomicU64`.
//!
//! Ground rules
//! - [`Word`] is a plain `Copy` value. It owns the layout and every transition, and is tested without threads.
//! - [`Vitals`] is the atomic around it: a compare-and-swap loop, nothing else. Whatever happens to an incarnation is
//!   one successful swap of this word, so "beat against reap" and "last disconnect against connect" have one winner.
//! - An ended word never changes again (G5). A live word's state only grows and its tick only grows (G1, G2).
//! - A transition that changes nothing swaps nothing: a beat in the tick that the word already holds is one load.

use std::fmt;

use crate::state::{EndReason, WorkerState};
use crate::sync::{AtomicU64, Ordering};

/// The decoded word of one incarnation.
///
/// ```text
/// 63 …………………… 24 | 23 ………… 6 |    5     |  4   | 3  2 | 1    0
/// tick           | connections | cordoned | late | end  | state
///
/// state:    00 running 01 quiet   10 terminate
/// end:      00 live    01 left    10 expired    11 superseded
/// late:     the driver has noticed that it was silent for long; the next beat clears it
/// cordoned: it is not to be given work; set and cleared from outside
/// tick:     of the last beat while live, of the end once ended
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Word(u64);

const STATE_BITS: u32 = 2;
const END_BITS: u32 = 2;
const FLAG_BITS: u32 = 1;
const CONNECTION_BITS: u32 = 18;

const END_SHIFT: u32 = STATE_BITS;
const LATE_SHIFT: u32 = END_SHIFT + END_BITS;
const CORDON_SHIFT: u32 = LATE_SHIFT + FLAG_BITS;
const CONNECTION_SHIFT: u32 = CORDON_SHIFT + FLAG_BITS;
const TICK_SHIFT: u32 = CONNECTION_SHIFT + CONNECTION_BITS;

const STATE_MASK: u64 = (1 << STATE_BITS) - 1;
const END_MASK: u64 = ((1 << END_BITS) - 1) << END_SHIFT;
const LATE: u64 = 1 << LATE_SHIFT;
const CORDONED: u64 = 1 << CORDON_SHIFT;
const CONNECTION_MASK: u64 = ((1 << CONNECTION_BITS) - 1) << CONNECTION_SHIFT;
const ONE_CONNECTION: u64 = 1 << CONNECTION_SHIFT;

/// Most connections one worker can have open at once.
pub(crate) const MAX_CONNECTIONS: u32 = (1 << CONNECTION_BITS) - 1;
/// The last tick a word can hold: 34 years of milliseconds. Later ones are held as this one.
pub(crate) const MAX_TICK: u64 = u64::MAX >> TICK_SHIFT;

/// The incarnation has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended;

/// Why a plain beat was not taken in passing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotHeard {
    Ended,
    /// It is marked as late: whoever clears that has duties, and does it by [`Word::back`].
    Late,
}

/// Why a connection was not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotJoined {
    Ended,
    Full,
}

impl Word {
    /// A new incarnation with its first connection, heard at `now`.
    pub(crate) const fn born(state: WorkerState, cordoned: bool, now: u64) -> Self {
        let cordon = if cordoned { CORDONED } else { 0 };
        Word(state as u64 | cordon | ONE_CONNECTION).at(now)
    }

    const fn at(self, tick: u64) -> Self {
        let tick = if tick > MAX_TICK { MAX_TICK } else { tick };
        Word(self.0 & ((1 << TICK_SHIFT) - 1) | tick << TICK_SHIFT)
    }

    pub(crate) const fn state(self) -> WorkerState {
        match self.0 & STATE_MASK {
            0 => WorkerState::Running,
            1 => WorkerState::Quiet,
            _ => WorkerState::Terminate,
        }
    }

    pub(crate) const fn end(self) -> Option<EndReason> {
        match (self.0 & END_MASK) >> END_SHIFT {
            0 => None,
            1 => Some(EndReason::Left),
            2 => Some(EndReason::Expired),
            _ => Some(EndReason::Superseded),
        }
    }

    pub(crate) const fn is_live(self) -> bool {
        self.0 & END_MASK == 0
    }

    pub(crate) const fn is_late(self) -> bool {
        self.0 & LATE != 0
    }

    pub(crate) const fn is_cordoned(self) -> bool {
        self.0 & CORDONED != 0
    }

    /// Live, running and not cordoned: it may be given work.
    pub(crate) fn takes_work(self) -> bool {
        self.is_live() && self.state() == WorkerState::Running && !self.is_cordoned()
    }

    pub(crate) const fn connections(self) -> u32 {
        ((self.0 & CONNECTION_MASK) >> CONNECTION_SHIFT) as u32
    }

    /// The tick of the last beat, or of the end.
    pub(crate) const fn tick(self) -> u64 {
        self.0 >> TICK_SHIFT
    }

    const fn live(self) -> Result<Self, Ended> {
        if self.is_live() { Ok(self) } else { Err(Ended) }
    }

    fn advanced(self, to: WorkerState) -> Self {
        Word(self.0 & !STATE_MASK | self.state().max(to) as u64)
    }

    /// Heard at `now`, which may lie before the last beat: the later one stays.
    pub(crate) fn beat(self, now: u64) -> Result<Self, NotHeard> {
        if self.0 & (END_MASK | LATE) != 0 {
            return Err(if self.is_live() { NotHeard::Late } else { NotHeard::Ended });
        }
        // The tick is on top and the rest is the same, so the greater word is the later one.
        Ok(Word(self.0.max(self.at(now).0)))
    }

    /// Heard at `now`, and not late any more.
    pub(crate) fn back(self, now: u64) -> Result<Self, Ended> {
        let word = Word(self.live()?.0 & !LATE);
        Ok(word.at(word.tick().max(now)))
    }

    /// Silent for long.
    pub(crate) fn late(self) -> Result<Self, Ended> {
        Ok(Word(self.live()?.0 | LATE))
    }

    /// To be given work, or not.
    pub(crate) fn cordoned(self, cordoned: bool) -> Result<Self, Ended> {
        let word = self.live()?;
        Ok(Word(if cordoned { word.0 | CORDONED } else { word.0 & !CORDONED }))
    }

    /// Told `state`, or something stronger before.
    pub(crate) fn told(self, state: WorkerState) -> Result<Self, Ended> {
        Ok(self.live()?.advanced(state))
    }

    /// One more connection; joining counts as a beat.
    pub(crate) fn joined(self, now: u64) -> Result<Self, NotJoined> {
        let word = self.back(now).map_err(|Ended| NotJoined::Ended)?;
        if word.connections() == MAX_CONNECTIONS {
            return Err(NotJoined::Full);
        }
        Ok(Word(word.0 + ONE_CONNECTION))
    }

    /// One connection less; the last one ends the incarnation in the same step.
    pub(crate) fn parted(self, now: u64) -> Result<Self, Ended> {
        let word = Word(self.live()?.0 - ONE_CONNECTION);
        if word.connections() == 0 { word.ended(EndReason::Left, now) } else { Ok(word) }
    }

    /// The end, for `reason`, at `now`.
    pub(crate) fn ended(self, reason: EndReason, now: u64) -> Result<Self, Ended> {
        let end = match reason {
            EndReason::Left => 1,
            EndReason::Expired => 2,
            EndReason::Superseded => 3,
        };
        Ok(Word(self.live()?.at(self.tick().max(now)).0 | end << END_SHIFT))
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Word")
            .field("state", &self.state())
            .field("end", &self.end())
            .field("late", &self.is_late())
            .field("cordoned", &self.is_cordoned())
            .field("connections", &self.connections())
            .field("tick", &self.tick())
            .finish()
    }
}

/// A transition that took effect: the word before and after it. What follows from it (events, counters, connections
/// to close) is the duty of whoever made it, and of nobody else.
#[derive(Clone, Copy, Debug)]
#[must_use = "the maker of a transition carries out what follows from it"]
pub(crate) struct Change {
    pub(crate) before: Word,
    pub(crate) after: Word,
}

/// The word, shared.
pub(crate) struct Vitals(AtomicU64);

impl Vitals {
    pub(crate) fn new(word: Word) -> Self {
        Vitals(AtomicU64::new(word.0))
    }

    /// Begins another incarnation in the place of one that nobody can look at any more.
    pub(crate) fn begin(&self, word: Word) {
        // Release: pairs with the Acquire of `load`.
        self.0.store(word.0, Ordering::Release);
    }

    #[inline]
    pub(crate) fn load(&self) -> Word {
        // Acquire: pairs with the Release of `update` and `expire`; whoever sees a state or an end also sees what
        // its maker wrote before it.
        Word(self.0.load(Ordering::Acquire))
    }

    /// Replaces the word by `next` of it, or says why not. `next` may be called several times.
    #[inline]
    pub(crate) fn update<E>(&self, next: impl Fn(Word) -> Result<Word, E>) -> Result<Change, E> {
        let mut before = self.load();
        loop {
            let after = next(before)?;
            if after == before {
                return Ok(Change { before, after });
            }
            // AcqRel: Release pairs with the Acquire of `load`, Acquire with the Release of the previous change, so
            // that the changes of one word form one history. Acquire on failure: the word read then is decoded, too.
            match self.0.compare_exchange_weak(before.0, after.0, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Ok(Change { before, after }),
                Err(current) => before = Word(current),
            }
        }
    }

    /// Replaces the word by `next` if it is still exactly `seen`; the word as it is now otherwise.
    pub(crate) fn replace(&self, seen: Word, next: Word) -> Result<Change, Word> {
        // AcqRel, Acquire: as in `update`.
        match self.0.compare_exchange(seen.0, next.0, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(Change { before: seen, after: next }),
            Err(current) => Err(Word(current)),
        }
    }

    /// Ends the incarnation as expired if its word is still exactly `seen`; otherwise something was heard since, and
    /// the word as it is now comes back (G2).
    pub(crate) fn expire(&self, seen: Word, now: u64) -> Result<Change, Word> {
        let Ok(after) = seen.ended(EndReason::Expired, now) else { return Err(seen) };
        self.replace(seen, after)
    }
}

impl fmt::Debug for Vitals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.load().fmt(f)
    }
}

#[cfg(all(test, heartwheel_loom))]
mod explored;
#[cfg(all(test, not(heartwheel_loom)))]
mod tests;
