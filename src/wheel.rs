//! A hierarchical timer wheel: what is filed under a tick comes due in that tick, never earlier.
//!
//! Ground rules
//! - It has one owner and no lock. Others hand their entries to the owner (the registry has a queue for that).
//! - Eleven levels of 64 slots cover all 64 bits of a tick, six bits a level. An entry is filed at the level of the highest bit
//!   in which its tick differs from the current one, in the slot of its six bits there. So within a level no slot ever
//!   lies behind the current one, nothing wraps around, and there is no top level that needs a rule of its own.
//! - Work is done in steps, one entry a step: [`poll`](Wheel::poll) hands out one due entry or moves one down a level, and
//!   may be stopped and taken up again between any two. A tick is finished before the next begins.
//! - An entry is moved down at most once a level, so it costs O(levels) in its whole life, typically two or three steps.
//!
//! The design is the hierarchical wheel of Varghese and Lauck, "Hashed and Hierarchical Timing Wheels" (1987), with the
//! slots chosen by the highest differing bit, which makes it a radix heap of base 64.

use std::fmt;

const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
const LEVELS: usize = u64::BITS.div_ceil(SLOT_BITS) as usize;

/// An entry and the tick it is filed under.
#[derive(Debug)]
struct Filed<T> {
    due: u64,
    entry: T,
}

/// One level: 64 slots, and a bit for each that is not empty.
struct Level<T> {
    occupied: u64,
    slots: [Vec<Filed<T>>; SLOTS],
}

/// What one step of [`Wheel::poll`] did.
#[derive(Debug, PartialEq, Eq)]
pub enum Step<T> {
    /// This entry is due, since this tick.
    Due(u64, T),
    /// An entry was moved closer; call again.
    Moved,
    /// Nothing more is due up to the tick asked for, which is now the current one.
    Idle,
}

/// What [`Wheel::sweep`] is told to do with an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// It stays as it is filed.
    Stay,
    /// It is filed anew, under this tick.
    Refile(u64),
    /// It goes.
    Drop,
}

/// The wheel; see the [module](self) for its rules.
///
/// ```
/// use heartwheel::wheel::{Step, Wheel};
/// let mut wheel = Wheel::new(0);
/// wheel.insert(600, "worker");
/// assert_eq!(wheel.next_due(), Some(576), "not before; it is looked at again then");
/// while wheel.poll(599) != Step::Idle {}
/// assert_eq!(wheel.poll(600), Step::Moved);
/// assert_eq!(wheel.poll(600), Step::Due(600, "worker"));
/// ```
pub struct Wheel<T> {
    /// The current tick: everything filed before it has been handed out.
    now: u64,
    len: usize,
    /// Due now; not in `levels` any more.
    due: Vec<Filed<T>>,
    /// The slot that is being moved down.
    moving: Vec<Filed<T>>,
    levels: Box<[Level<T>]>,
    /// Where the running sweep is: level, slot, entries of that slot left to look at.
    sweep: Option<(usize, usize, usize)>,
}

impl<T> Wheel<T> {
    /// An empty wheel whose current tick is `now`.
    #[must_use]
    pub fn new(now: u64) -> Self {
        let level = || Level { occupied: 0, slots: std::array::from_fn(|_| Vec::new()) };
        Wheel {
            now,
            len: 0,
            due: Vec::new(),
            moving: Vec::new(),
            levels: (0..LEVELS).map(|_| level()).collect(),
            sweep: None,
        }
    }

    /// How many entries are filed.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether none is filed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The current tick.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Files `entry` under `due`; a tick that is not after the current one is due at the next [`poll`](Wheel::poll).
    pub fn insert(&mut self, due: u64, entry: T) {
        self.len += 1;
        self.file(Filed { due, entry });
    }

    fn file(&mut self, filed: Filed<T>) {
        if filed.due <= self.now {
            self.due.push(filed);
            return;
        }
        let level = level_of(self.now, filed.due);
        let slot = slot_of(filed.due, level);
        let level = &mut self.levels[level];
        level.occupied |= 1 << slot;
        level.slots[slot].push(filed);
    }

    /// A tick at which to poll next: no entry is due before it. `None` when nothing is filed.
    #[must_use]
    pub fn next_due(&self) -> Option<u64> {
        if !self.due.is_empty() || !self.moving.is_empty() {
            return Some(self.now);
        }
        self.next_slot().map(|(level, slot)| start_of(self.now, level, slot))
    }

    /// The first slot in time that is not empty. Lower levels come first: a slot of a higher level starts after all that
    /// the lower ones can reach.
    fn next_slot(&self) -> Option<(usize, usize)> {
        let level = self.levels.iter().position(|level| level.occupied != 0)?;
        Some((level, self.levels[level].occupied.trailing_zeros() as usize))
    }

    /// One step towards `tick`. A tick before the current one counts as the current one.
    pub fn poll(&mut self, tick: u64) -> Step<T> {
        loop {
            if let Some(Filed { due, entry }) = self.due.pop() {
                self.len -= 1;
                return Step::Due(due, entry);
            }
            // The room of a burst is given back.
            self.due = Vec::new();
            if let Some(filed) = self.moving.pop() {
                self.file(filed);
                return Step::Moved;
            }
            self.moving = Vec::new();
            match self.next_slot() {
                Some((level, slot)) if start_of(self.now, level, slot) <= tick => {
                    self.now = start_of(self.now, level, slot);
                    let level = &mut self.levels[level];
                    level.occupied &= !(1 << slot);
                    self.moving = std::mem::take(&mut level.slots[slot]);
                }
                _ => {
                    self.now = self.now.max(tick);
                    return Step::Idle;
                }
            }
        }
    }

    /// Goes over every entry, `budget` of them a call, and does with each what `keep` says of it and the tick it is filed under. `true` while there is more to look at;
    /// once it was `false` the next call begins anew. Entries filed or moved meanwhile may be looked at twice or,
    /// if they were filed after it began, not at all.
    pub fn sweep(&mut self, budget: usize, mut keep: impl FnMut(u64, &T) -> Keep) -> bool {
        let (mut level, mut slot, mut left) = self.sweep.take().unwrap_or((0, 0, usize::MAX));
        let mut budget = budget;
        while level < LEVELS {
            let room = self.levels[level].slots[slot].len();
            left = left.min(room);
            while left > 0 {
                if budget == 0 {
                    self.sweep = Some((level, slot, left));
                    return true;
                }
                budget -= 1;
                left -= 1;
                let entries = &mut self.levels[level].slots[slot];
                match keep(entries[left].due, &entries[left].entry) {
                    Keep::Stay => {}
                    Keep::Refile(due) if due == entries[left].due => {}
                    Keep::Refile(due) => {
                        let entry = entries.swap_remove(left).entry;
                        self.file(Filed { due, entry });
                    }
                    Keep::Drop => {
                        entries.swap_remove(left);
                        self.len -= 1;
                    }
                }
            }
            let swept = &mut self.levels[level];
            if swept.slots[slot].is_empty() {
                swept.occupied &= !(1 << slot);
                swept.slots[slot] = Vec::new();
            } else if swept.slots[slot].len() < swept.slots[slot].capacity() / 4 {
                swept.slots[slot].shrink_to_fit();
            }
            left = usize::MAX;
            slot += 1;
            if slot == SLOTS {
                (level, slot) = (level + 1, 0);
            }
        }
        false
    }
}

/// The level of the highest bit in which the two differ; they differ.
fn level_of(now: u64, due: u64) -> usize {
    ((now ^ due).ilog2() / SLOT_BITS) as usize
}

fn slot_of(due: u64, level: usize) -> usize {
    #[expect(clippy::cast_possible_truncation, reason = "six bits")]
    let slot = (due >> shift_of(level) & (SLOTS as u64 - 1)) as usize;
    slot
}

/// How far the six bits of a level are up the tick.
fn shift_of(level: usize) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "there are eleven levels")]
    let level = level as u32;
    level * SLOT_BITS
}

/// The first tick of a slot ahead of `now`: the bits above the level are those of `now`, the bits below are zero.
fn start_of(now: u64, level: usize, slot: usize) -> u64 {
    let shift = shift_of(level);
    let above = now.checked_shr(shift + SLOT_BITS).unwrap_or(0).checked_shl(shift + SLOT_BITS).unwrap_or(0);
    above | (slot as u64) << shift
}

impl<T> fmt::Debug for Wheel<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wheel")
            .field("now", &self.now)
            .field("len", &self.len)
            .field("next_due", &self.next_due())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
