//! The leases that one worker holds, in the order in which it got them.
//!
//! Ground rules
//! - All of it is under the worker's lock. To add one and to end one is O(1), amortised, and the oldest is at hand.
//! - A lease ends by its own word, before it is told of here. It stays where it lies until it comes to the front, or until the ended ones
//!   outnumber the held: so there are never more than twice as many as are held, and a few.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::lease::Cell;

/// So many ended ones are not worth a look at all of them.
const ENDED_ALLOWED: usize = 8;

#[derive(Debug, Default)]
pub(crate) struct Holding {
    cells: VecDeque<Arc<Cell>>,
    held: usize,
}

impl Holding {
    pub(crate) fn len(&self) -> usize {
        self.held
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.held == 0
    }

    pub(crate) fn add(&mut self, cell: Arc<Cell>) {
        self.held += 1;
        self.cells.push_back(cell);
    }

    /// One of them has ended; none, if they were all taken before.
    pub(crate) fn one_ended(&mut self) {
        self.held = self.held.saturating_sub(1);
        while self.cells.front().is_some_and(|cell| !cell.is_held()) {
            self.cells.pop_front();
        }
        if self.cells.len() > 2 * self.held + ENDED_ALLOWED {
            self.cells.retain(|cell| cell.is_held());
            self.cells.shrink_to(2 * self.held);
        }
    }

    /// The one it has held longest.
    pub(crate) fn oldest(&self) -> Option<&Arc<Cell>> {
        self.iter().next()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Cell>> {
        self.cells.iter().filter(|cell| cell.is_held())
    }

    /// All of them; it holds none any more.
    pub(crate) fn take(&mut self) -> Vec<Arc<Cell>> {
        let taken = std::mem::take(self);
        taken.cells.into_iter().filter(|cell| cell.is_held()).collect()
    }
}
