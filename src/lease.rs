//! Leases: work that one incarnation holds for a time, with a fencing token.
//!
//! Ground rules
//! - A lease is decided by one word, as a worker is: how it ended, and the tick it runs to. Completion against expiry, against
//!   the holder's death, against a renewal, has one winner.
//! - A work item (an id) has one lease at a time. Tokens grow strictly over all leases of a registry, and are given out
//!   while the id's shard is held, so those of one id grow in their order.
//! - A lease is granted under the holder's own lock, which is the one that a signal and a cordon take: once they returned, no
//!   later lease is granted (G6). Lock order: a shard of the lease map is never held together with a worker's lock.
//! - A lost lease is reported once, in [`Event::Lost`], by whoever won its word.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use smol_str::SmolStr;

use crate::clock;
use crate::engine::Engine;
use crate::error::{LeaseError, NotHeld};
use crate::event::{Event, Lost};
use crate::hello::Wid;
use crate::map::Entry;
use crate::policy::{Policy, Recover};
use crate::state::{Incarnation, WorkerState};
use crate::sync::{AtomicU32, AtomicU64, Ordering, Sum as _, lock};
use crate::timer;
use crate::worker::{Cold, Worker};

/// A fencing token: of two leases of one work item, the later one has the greater token. Hand it to whatever the work
/// writes to, and have that refuse smaller ones than it has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub(crate) u64);

impl Token {
    /// The bare number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How a lease ended. It ends once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LeaseEnd {
    /// Its holder completed the work.
    Completed,
    /// Its holder reported that the work failed.
    Failed,
    /// Its holder gave it back.
    Released,
    /// It ran out.
    Expired,
    /// Its holder's incarnation ended ([`Recover::AtDeath`]).
    HolderEnded,
}

impl LeaseEnd {
    const ALL: [LeaseEnd; 5] =
        [LeaseEnd::Completed, LeaseEnd::Failed, LeaseEnd::Released, LeaseEnd::Expired, LeaseEnd::HolderEnded];
}

impl fmt::Display for LeaseEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            LeaseEnd::Completed => "completed",
            LeaseEnd::Failed => "failed",
            LeaseEnd::Released => "released",
            LeaseEnd::Expired => "expired",
            LeaseEnd::HolderEnded => "holder ended",
        })
    }
}

/// The word of a lease: `tick << 3 | how it ended`, 0 while it is held.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Word(u64);

impl Word {
    const END_BITS: u32 = 3;

    fn held(until: u64) -> Self {
        Word(until << Self::END_BITS)
    }

    /// The tick it runs to, by the published time.
    fn until(self) -> u64 {
        self.0 >> Self::END_BITS
    }

    fn end(self) -> Option<LeaseEnd> {
        match self.0 & ((1 << Self::END_BITS) - 1) {
            0 => None,
            end => LeaseEnd::ALL.get(usize::try_from(end - 1).ok()?).copied(),
        }
    }

    fn ended(self, end: LeaseEnd) -> Self {
        Word(self.0 | (end as u64 + 1))
    }
}

/// The place of a lease that is only being prepared.
const NOT_GRANTED: u32 = u32::MAX;

/// One lease.
pub(crate) struct Cell {
    word: AtomicU64,
    /// Its token, set while its id's shard is held, before anyone else can see it.
    token: AtomicU64,
    /// Its place in what the holder holds, [`NOT_GRANTED`] before; set under the holder's lock.
    place: AtomicU32,
    /// The tick at which it was granted.
    pub(crate) since: u64,
    recover: Recover,
    id: SmolStr,
    holder: Arc<Worker>,
}

impl Cell {
    fn load(&self) -> Word {
        // Acquire: pairs with the Release of `swap`.
        Word(self.word.load(Ordering::Acquire))
    }

    fn swap(&self, from: Word, to: Word) -> Result<(), Word> {
        // AcqRel: the changes of one lease form one history, and whoever sees an end sees what its maker did before.
        // Acquire on failure: the word read then is decoded.
        match self.word.compare_exchange(from.0, to.0, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(()),
            Err(current) => Err(Word(current)),
        }
    }

    /// Ends it, if it is held. One caller wins.
    fn end(&self, end: LeaseEnd) -> Result<(), LeaseEnd> {
        let mut word = self.load();
        loop {
            if let Some(ended) = word.end() {
                return Err(ended);
            }
            match self.swap(word, word.ended(end)) {
                Ok(()) => return Ok(()),
                Err(current) => word = current,
            }
        }
    }

    pub(crate) fn is_held(&self) -> bool {
        self.load().end().is_none()
    }

    /// Ends it if it runs to `latest` or less. Otherwise the tick it runs to; `None` if it has ended.
    fn expire(&self, latest: u64) -> Result<(), Option<u64>> {
        let mut word = self.load();
        loop {
            if word.end().is_some() {
                return Err(None);
            }
            if word.until() > latest {
                return Err(Some(word.until()));
            }
            match self.swap(word, word.ended(LeaseEnd::Expired)) {
                Ok(()) => return Ok(()),
                Err(current) => word = current,
            }
        }
    }

    pub(crate) fn token(&self) -> Token {
        // Relaxed: the shard's lock orders it, or whatever brought the cell here.
        Token(self.token.load(Ordering::Relaxed))
    }

    /// It is granted, or was moved; under the holder's lock.
    pub(crate) fn place(&self, place: u32) {
        // Release: pairs with the Acquire of `is_granted`. Nobody can have ended it before it was granted.
        self.place.store(place, Ordering::Release);
    }

    /// Where it is; under the holder's lock.
    pub(crate) fn placed(&self) -> u32 {
        // Relaxed: the lock orders it.
        self.place.load(Ordering::Relaxed)
    }

    fn is_granted(&self) -> bool {
        // Acquire: pairs with the Release of `place`.
        self.place.load(Ordering::Acquire) != NOT_GRANTED
    }

    /// The tick it runs to, while it is held.
    pub(crate) fn runs_to(&self) -> Option<u64> {
        let word = self.load();
        word.end().is_none().then(|| word.until())
    }

    /// The engine goes: the holder holds nothing any more.
    pub(crate) fn let_go(&self) {
        let work = lock(&self.holder.cold).work.take();
        drop(work);
    }

    pub(crate) fn info(&self) -> LeaseInfo {
        LeaseInfo {
            id: self.id.clone(),
            token: self.token(),
            wid: self.holder.hello.wid.clone(),
            incarnation: self.holder.incarnation,
        }
    }
}

impl fmt::Debug for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cell")
            .field("id", &self.id)
            .field("token", &self.token().0)
            .field("end", &self.load().end())
            .finish_non_exhaustive()
    }
}

/// A lease in the map, found by its id. The id is where the cell is: the map stays small, so that a million leases in it cost the next
/// one little.
#[cfg_attr(heartwheel_loom, derive(Clone))]
pub(crate) struct ById(pub(crate) Arc<Cell>);

impl Borrow<str> for ById {
    fn borrow(&self) -> &str {
        &self.0.id
    }
}

impl Hash for ById {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.id.as_str().hash(state);
    }
}

impl PartialEq for ById {
    fn eq(&self, other: &Self) -> bool {
        self.0.id == other.0.id
    }
}

impl Eq for ById {}

/// A lease as it is described to others.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseInfo {
    /// The work item.
    pub id: SmolStr,
    /// Its fencing token.
    pub token: Token,
    /// The holder's wid.
    pub wid: Wid,
    /// The holder's incarnation.
    pub incarnation: Incarnation,
}

/// Work that is held; from [`Session::lease`](crate::Session::lease). A handle: dropping it ends nothing, the lease goes on until it is
/// ended or runs out, and [`Session::held`](crate::Session::held) finds it again.
///
/// It belongs to the incarnation, not to the connection. With [`Recover::AtDeath`] it ends with its holder; with
/// [`Recover::AtExpiry`] it outlives its holder, and may still be completed until it runs out or is lost.
///
/// ```
/// use std::time::Duration;
/// use heartwheel::{Hello, Policy, Registry};
/// let registry = Registry::new(Policy::default())?;
/// let session = registry.connect(Hello::new("w1")?, |_| {})?;
/// let lease = session.lease("job-1", Duration::from_secs(1800))?;
/// assert!(session.lease("job-1", Duration::from_secs(1800)).is_err(), "held already");
/// lease.complete()?;
/// assert!(lease.complete().is_err(), "it ends once");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Lease {
    engine: Arc<Engine>,
    cell: Arc<Cell>,
}

impl Lease {
    /// The work item.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.cell.id
    }

    /// The fencing token.
    #[must_use]
    pub fn token(&self) -> Token {
        self.cell.token()
    }

    /// What it is, for others.
    #[must_use]
    pub fn info(&self) -> LeaseInfo {
        self.cell.info()
    }

    /// Whether it is still held.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.cell.is_held()
    }

    /// How it ended; `None` while it is held.
    #[must_use]
    pub fn ended(&self) -> Option<LeaseEnd> {
        self.cell.load().end()
    }

    /// Has it run `ttl` from now, be that longer or shorter than it would have.
    ///
    /// # Errors
    /// [`LeaseError::Gone`] when its holder's incarnation has ended, [`LeaseError::NotHeld`] when it has ended itself, [`LeaseError::OutOfRange`] when the policy allows no such ttl. Nothing was changed.
    pub fn renew(&self, ttl: Duration) -> Result<(), LeaseError> {
        let engine = &self.engine;
        let policy = engine.policy.load();
        policy.check_lease(ttl)?;
        let mut word = self.cell.load();
        loop {
            if let Some(how) = word.end() {
                return Err(LeaseError::NotHeld(engine.not_held(&self.cell, how)));
            }
            if !self.cell.holder.vitals.load().is_live() {
                return Err(LeaseError::Gone);
            }
            let renewed = Word::held(engine.in_ticks(policy.ticks(ttl)));
            match self.cell.swap(word, renewed) {
                Ok(()) if renewed.until() < word.until() => {
                    engine.lease_runs_out_sooner(&self.cell, renewed.until());
                    return Ok(());
                }
                Ok(()) => return Ok(()),
                Err(current) => word = current,
            }
        }
    }

    /// The work is done.
    ///
    /// # Errors
    /// [`NotHeld`] when it has ended: it ran out, its holder died, or it was ended before. The work may be somebody else's by now; the
    /// error says whose. Nothing was changed.
    pub fn complete(&self) -> Result<(), NotHeld> {
        self.engine.end_lease(&self.cell, LeaseEnd::Completed)
    }

    /// The work was tried and failed.
    ///
    /// # Errors
    /// As [`complete`](Lease::complete).
    pub fn fail(&self) -> Result<(), NotHeld> {
        self.engine.end_lease(&self.cell, LeaseEnd::Failed)
    }

    /// The work is given back untouched.
    ///
    /// # Errors
    /// As [`complete`](Lease::complete).
    pub fn release(&self) -> Result<(), NotHeld> {
        self.engine.end_lease(&self.cell, LeaseEnd::Released)
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cell.fmt(f)
    }
}

impl Engine {
    pub(crate) fn lease(
        self: &Arc<Self>,
        holder: &Arc<Worker>,
        id: &str,
        ttl: Duration,
        recover: Recover,
        policy: &Policy,
    ) -> Result<Lease, LeaseError> {
        policy.check_lease(ttl)?;
        policy.check_lease_id(id)?;
        // Asked here to spare the work, and again under the lock, where it counts.
        may_hold(holder)?;
        let (now, until) = (self.now(), self.in_ticks(policy.ticks(ttl)));
        let cell = Arc::new(Cell {
            word: AtomicU64::new(Word::held(until).0),
            token: AtomicU64::new(0),
            since: now,
            place: AtomicU32::new(NOT_GRANTED),
            recover,
            id: SmolStr::new(id),
            holder: holder.clone(),
        });
        let enter = || {
            // Before anyone can end it.
            self.counters.leases.up(1);
            // Relaxed: only the number counts; the shard that is held orders those of one id.
            let token = self.tokens.fetch_add(1, Ordering::Relaxed);
            // Relaxed: nobody else can see it yet.
            cell.token.store(token, Ordering::Relaxed);
        };
        match self.leases.entry(ById(cell.clone())) {
            Entry::Vacant(place) => {
                enter();
                place.insert(());
            }
            Entry::Occupied(place) if place.key().0.is_held() => {
                return Err(LeaseError::Held(place.key().0.info()));
            }
            Entry::Occupied(place) => {
                enter();
                place.replace_entry(());
            }
        }
        let mut cold = lock(&holder.cold);
        if let Err(refused) = may_hold(holder) {
            drop(cold);
            if cell.end(LeaseEnd::Released).is_ok() {
                self.counters.leases.down(1);
            }
            self.forget_lease(&cell);
            return Err(refused);
        }
        cold.work().leases.add(cell.clone(), until);
        let to_file = timer::must_be_told(holder, &mut cold, until);
        drop(cold);
        if to_file {
            self.file(holder.clone());
        }
        Ok(Lease { engine: self.clone(), cell })
    }

    /// A lease was given less time than it had.
    fn lease_runs_out_sooner(&self, cell: &Arc<Cell>, until: u64) {
        let holder = &cell.holder;
        let mut cold = lock(&holder.cold);
        cold.work().leases.sooner(cell, until);
        let to_file = timer::must_be_told(holder, &mut cold, until);
        drop(cold);
        if to_file {
            self.file(holder.clone());
        }
    }

    /// The lease of that incarnation on `id`, if it holds one.
    pub(crate) fn held(self: &Arc<Self>, holder: &Arc<Worker>, id: &str) -> Option<Lease> {
        let cell = self.leases.get(id)?.key().0.clone();
        // One that is just being granted may still be refused.
        let is_its = Arc::ptr_eq(&cell.holder, holder) && cell.is_granted() && cell.is_held();
        is_its.then(|| Lease { engine: self.clone(), cell })
    }

    /// The holder ends its lease.
    fn end_lease(&self, cell: &Arc<Cell>, end: LeaseEnd) -> Result<(), NotHeld> {
        cell.end(end).map_err(|how| self.not_held(cell, how))?;
        let mut cold = lock(&cell.holder.cold);
        let held = self.take_out(cell, &mut cold);
        let work = cold.work();
        if end == LeaseEnd::Completed {
            work.completed += 1;
            work.last_completion = Some(self.now());
        }
        drop(cold);
        drop(held);
        self.count_end(end);
        self.forget_lease(cell);
        Ok(())
    }

    /// Takes an ended lease out of what its holder holds, under the holder's lock.
    fn take_out(&self, cell: &Cell, cold: &mut Cold) -> Option<Arc<Cell>> {
        let leases = &mut cold.work().leases;
        let taken = leases.remove(cell.placed());
        if leases.is_empty() && !cell.holder.vitals.load().is_live() {
            self.counters.ended_holders.down(1);
        }
        taken
    }

    fn count_end(&self, end: LeaseEnd) {
        self.counters.leases.down(1);
        self.counters.leases_ended[end as usize].up(1);
    }

    /// Takes an ended lease out of the map, if it is still the one under its id.
    fn forget_lease(&self, cell: &Arc<Cell>) {
        self.leases.remove_if(cell.id.as_str(), |held, ()| Arc::ptr_eq(&held.0, cell));
    }

    /// Why `cell` is not held, and who holds its work now.
    fn not_held(&self, cell: &Cell, how: LeaseEnd) -> NotHeld {
        let now = self
            .leases
            .get(cell.id.as_str())
            .filter(|now| now.key().0.is_held())
            .map(|now| now.key().0.info());
        NotHeld { how, now }
    }

    /// The leases of a holder that has ended, under its lock: those that end with it, in one event. The caller takes them out of
    /// the map, with nothing locked, by [`Engine::forget_leases`].
    #[must_use = "they are still in the map"]
    pub(crate) fn lose_leases(&self, holder: &Arc<Worker>, cold: &mut Cold) -> Vec<Arc<Cell>> {
        let Some(work) = &mut cold.work else { return Vec::new() };
        if !work.leases.is_empty() {
            self.counters.ended_holders.up(1);
        }
        let ends =
            |cell: &Arc<Cell>| cell.recover == Recover::AtDeath && cell.end(LeaseEnd::HolderEnded).is_ok();
        let lost: Vec<_> = work.leases.iter().filter(|&cell| ends(cell)).cloned().collect();
        self.settle_lost(holder, cold, LeaseEnd::HolderEnded, &lost);
        lost
    }

    /// Ends leases of a worker that have run out by `now`, `budget` of them at the most, under its lock, in one event. The caller
    /// takes them out of the map as those of [`Engine::lose_leases`].
    #[must_use = "they are still in the map"]
    pub(crate) fn expire_leases(
        &self,
        holder: &Arc<Worker>,
        cold: &mut Cold,
        now: u64,
        lag: u64,
        budget: usize,
    ) -> Vec<Arc<Cell>> {
        let Some(work) = &mut cold.work else { return Vec::new() };
        let mut lost = Vec::new();
        // Never early: the time that was read when it was granted or renewed may have been behind by `lag`.
        let Some(latest) = now.checked_sub(lag) else { return lost };
        while lost.len() < budget
            && let Some(cell) = work.leases.take_due(latest)
        {
            match cell.expire(latest) {
                Ok(()) => lost.push(cell),
                Err(Some(until)) => work.leases.file(&cell, until),
                // Whoever ended it takes it out.
                Err(None) => {}
            }
        }
        lost.sort_unstable_by_key(|cell| cell.token());
        self.settle_lost(holder, cold, LeaseEnd::Expired, &lost);
        lost
    }

    /// The duties of leases that were lost, under their holder's lock.
    fn settle_lost(&self, holder: &Arc<Worker>, cold: &mut Cold, how: LeaseEnd, lost: &[Arc<Cell>]) {
        if lost.is_empty() {
            return;
        }
        for cell in lost {
            self.take_out(cell, cold);
            self.count_end(how);
        }
        self.publish_lost(holder, cold, how, lost);
    }

    pub(crate) fn forget_leases(&self, lost: &[Arc<Cell>]) {
        lost.iter().for_each(|cell| self.forget_lease(cell));
    }

    fn publish_lost(&self, holder: &Arc<Worker>, cold: &Cold, how: LeaseEnd, lost: &[Arc<Cell>]) {
        let event = || {
            Event::Lost(Lost {
                wid: holder.hello.wid.clone(),
                incarnation: holder.incarnation,
                how,
                leases: lost.iter().map(|cell| cell.info()).collect(),
            })
        };
        let about = || holder.info(holder.vitals.load(), cold, self.now(), &self.policy.load());
        self.bus.publish_about(event, about);
    }

    /// All leases that are held.
    pub(crate) fn leases(&self) -> Vec<LeaseInfo> {
        self.leases.iter().filter(|cell| cell.key().0.is_held()).map(|cell| cell.key().0.info()).collect()
    }

    /// How long a lease still runs by the published time.
    pub(crate) fn lease_info(&self, id: &str) -> Option<(LeaseInfo, Duration)> {
        let cell = self.leases.get(id)?.key().0.clone();
        let word = cell.load();
        let left = word.until().saturating_sub(self.now());
        word.end().is_none().then(|| (cell.info(), clock::span(left, self.policy.load().tick)))
    }
}

/// Whether a worker may be given work: it lives, runs, and is not cordoned.
fn may_hold(holder: &Worker) -> Result<(), LeaseError> {
    let word = holder.vitals.load();
    if !word.is_live() {
        Err(LeaseError::Gone)
    } else if word.state() != WorkerState::Running {
        Err(LeaseError::Told(word.state()))
    } else if word.is_cordoned() {
        Err(LeaseError::Cordoned)
    } else {
        Ok(())
    }
}
