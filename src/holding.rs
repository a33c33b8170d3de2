//! The leases that one worker holds: in the order in which it got them, and by when they run out.
//!
//! Ground rules
//! - All of it is under the worker's lock. A lease ends by its own word first; whoever ended it takes it out of here.
//! - To add one and to take one out is O(1): they are a linked list in a slab, with the oldest at its front.
//! - Most are over long before they run out. So no order of that is kept at first, only a tick before which none of them does. When
//!   it is reached, those that are still held are filed in a heap, each once: they are the newer end of the list.
//! - What is filed in the heap stays there when its lease goes; it is stale from then on, and passed by when it comes to the top. Stale
//!   entries never outnumber the others by more than a few.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use slab::Slab;

use crate::lease::{Cell, Token};

/// So much that is stale, or so much room, is not worth a look at all that is held.
const SPARE: usize = 16;

/// No place in the slab.
const NONE: u32 = u32::MAX;

/// The tick of what is not filed in the heap.
const NOT_FILED: u64 = u64::MAX;

#[derive(Debug)]
pub(crate) struct Holding {
    slots: Slab<Slot>,
    oldest: u32,
    newest: u32,
    /// None that is not filed in the heap runs out before.
    unfiled_due: u64,
    filed: BinaryHeap<Reverse<Filed>>,
}

#[derive(Debug)]
struct Slot {
    cell: Arc<Cell>,
    /// The tick of its valid entry in the heap.
    filed: u64,
    older: u32,
    newer: u32,
}

/// An entry of the heap: which runs out at which tick. Places are used again, tokens never.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Filed {
    due: u64,
    token: Token,
    place: u32,
}

impl Default for Holding {
    fn default() -> Self {
        Holding {
            slots: Slab::new(),
            oldest: NONE,
            newest: NONE,
            unfiled_due: u64::MAX,
            filed: BinaryHeap::new(),
        }
    }
}

impl Holding {
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Adds one that runs to `due`, and tells it its place.
    pub(crate) fn add(&mut self, cell: Arc<Cell>, due: u64) {
        self.unfiled_due = self.unfiled_due.min(due);
        self.append(cell);
    }

    fn append(&mut self, cell: Arc<Cell>) {
        let place = self.slots.vacant_entry();
        let at = u32::try_from(place.key()).expect("no memory holds four billion leases of one worker");
        cell.place(at);
        place.insert(Slot { cell, filed: NOT_FILED, older: self.newest, newer: NONE });
        let before = std::mem::replace(&mut self.newest, at);
        match self.slots.get_mut(before as usize) {
            Some(before) => before.newer = at,
            None => self.oldest = at,
        }
    }

    /// Takes out one that has ended.
    pub(crate) fn remove(&mut self, place: u32) -> Option<Arc<Cell>> {
        let slot = self.slots.try_remove(place as usize)?;
        match self.slots.get_mut(slot.older as usize) {
            Some(older) => older.newer = slot.newer,
            None => self.oldest = slot.newer,
        }
        match self.slots.get_mut(slot.newer as usize) {
            Some(newer) => newer.older = slot.older,
            None => self.newest = slot.older,
        }
        self.tidy();
        Some(slot.cell)
    }

    /// Drops what is stale once that is most of it, and gives back the room of a burst.
    fn tidy(&mut self) {
        let held = self.slots.len();
        if held == 0 {
            self.unfiled_due = u64::MAX;
            self.filed.clear();
        }
        if self.slots.capacity() > 4 * held + SPARE {
            let due = self.first_due();
            let old = std::mem::take(self);
            old.in_order().for_each(|slot| self.append(slot.cell.clone()));
            self.unfiled_due = due.unwrap_or(u64::MAX);
        }
        if self.filed.len() > 2 * held + SPARE {
            self.filed.retain(|Reverse(filed)| is_valid(&self.slots, filed));
            self.filed.shrink_to(2 * held + SPARE);
        }
    }

    /// One runs to `due` from now on, which is sooner than it was.
    pub(crate) fn sooner(&mut self, cell: &Arc<Cell>, due: u64) {
        let place = cell.placed();
        let Some(slot) = self.slots.get_mut(place as usize).filter(|slot| Arc::ptr_eq(&slot.cell, cell))
        else {
            return;
        };
        if slot.filed == NOT_FILED {
            self.unfiled_due = self.unfiled_due.min(due);
        } else if due < slot.filed {
            slot.filed = due;
            self.filed.push(Reverse(Filed { due, token: cell.token(), place }));
            self.tidy();
        }
    }

    /// None of them runs out before this tick.
    pub(crate) fn first_due(&mut self) -> Option<u64> {
        while let Some(Reverse(first)) = self.filed.peek()
            && !is_valid(&self.slots, first)
        {
            self.filed.pop();
        }
        let filed = self.filed.peek().map_or(u64::MAX, |Reverse(first)| first.due);
        (!self.is_empty()).then_some(filed.min(self.unfiled_due))
    }

    /// One that may run out by `now`. The caller ends it and takes it out, or files it again.
    pub(crate) fn take_due(&mut self, now: u64) -> Option<Arc<Cell>> {
        if self.unfiled_due <= now {
            self.file_all();
        }
        if self.first_due()? > now {
            return None;
        }
        let Reverse(first) = self.filed.pop()?;
        let slot = self.slots.get_mut(first.place as usize)?;
        slot.filed = NOT_FILED;
        Some(slot.cell.clone())
    }

    /// Files one that is held, and runs to `due`.
    pub(crate) fn file(&mut self, cell: &Cell, due: u64) {
        let place = cell.placed();
        if let Some(slot) = self.slots.get_mut(place as usize) {
            slot.filed = due;
            self.filed.push(Reverse(Filed { due, token: cell.token(), place }));
        }
    }

    /// Files all that are not.
    fn file_all(&mut self) {
        self.unfiled_due = u64::MAX;
        let mut place = self.newest;
        while let Some(slot) = self.slots.get_mut(place as usize)
            && slot.filed == NOT_FILED
        {
            if let Some(due) = slot.cell.runs_to() {
                slot.filed = due;
                self.filed.push(Reverse(Filed { due, token: slot.cell.token(), place }));
            }
            place = slot.older;
        }
    }

    /// The one it has held longest.
    pub(crate) fn oldest(&self) -> Option<&Arc<Cell>> {
        self.iter().next()
    }

    /// Those that are held, the oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Cell>> {
        self.in_order().map(|slot| &slot.cell).filter(|cell| cell.is_held())
    }

    fn in_order(&self) -> impl Iterator<Item = &Slot> {
        let slot = |place: u32| self.slots.get(place as usize);
        std::iter::successors(slot(self.oldest), move |before| slot(before.newer))
    }
}

fn is_valid(slots: &Slab<Slot>, filed: &Filed) -> bool {
    slots
        .get(filed.place as usize)
        .is_some_and(|slot| slot.filed == filed.due && slot.cell.token() == filed.token)
}

#[cfg(test)]
mod tests;
