//! Mass silence: whether so many workers are silent at once that it is likelier the network's or the engine's doing than theirs (G9).
//!
//! Ground rules
//! - Windows follow one another. Within one, no more than the set share of the fleet expires; beyond it the brake holds, and
//!   whoever is held is looked at again a window later, so every window counts each of them once.
//! - A whole window that finds no more silent than the share releases it. What is left of the silence then is few.

use crate::policy::Brake;

/// What one more silent worker means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Silence {
    /// It may expire.
    Usual,
    /// It is one too many: the brake begins to hold.
    Begins { fleet: usize, expired: usize },
    /// The brake holds.
    Held,
}

/// The count of the current window.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    since: u64,
    expired: usize,
    held: usize,
    /// What the share came to when last asked.
    limit: usize,
    holding: bool,
}

impl Watch {
    /// One more worker has been silent for its ttl; `live` counts it.
    pub(crate) fn one_more(&mut self, brake: &Brake, live: usize) -> Silence {
        let fleet = live + self.expired;
        if fleet < brake.at_least {
            self.expired += 1;
            return Silence::Usual;
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_precision_loss,
            clippy::cast_sign_loss,
            reason = "a share of a count"
        )]
        let limit = (fleet as f64 * brake.share) as usize;
        self.limit = limit.max(1);
        if !self.holding && self.expired < self.limit {
            self.expired += 1;
            return Silence::Usual;
        }
        self.held += 1;
        if std::mem::replace(&mut self.holding, true) {
            Silence::Held
        } else {
            Silence::Begins { fleet, expired: self.expired }
        }
    }

    /// At `now`: begins a new window if the last one is over. Returns how many were held in it if that releases the brake. Without
    /// a brake (`None`) it is released at once.
    pub(crate) fn roll(&mut self, brake: Option<(&Brake, u64)>, now: u64) -> Option<usize> {
        let over = brake.is_none_or(|(_, window)| now.saturating_sub(self.since) >= window);
        if !over {
            return None;
        }
        let (expired, held) = (self.expired, self.held);
        (self.since, self.expired, self.held) = (now, 0, 0);
        let release = self.holding && (brake.is_none() || expired + held <= self.limit);
        if release {
            self.holding = false;
        }
        release.then_some(held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quarter() -> Brake {
        Brake { share: 0.25, at_least: 8, ..Brake::default() }
    }

    #[test]
    fn no_more_than_the_share_expires_within_a_window() {
        let (brake, mut watch) = (quarter(), Watch::default());
        let mut live = 100;
        for _ in 0..25 {
            assert_eq!(watch.one_more(&brake, live), Silence::Usual);
            live -= 1;
        }
        assert_eq!(watch.one_more(&brake, live), Silence::Begins { fleet: 100, expired: 25 });
        assert_eq!(watch.one_more(&brake, live), Silence::Held);
    }

    #[test]
    fn it_is_released_by_a_window_that_finds_few() {
        let (brake, mut watch) = (quarter(), Watch::default());
        for live in (60..=100).rev() {
            let _ = watch.one_more(&brake, live.max(75));
        }
        assert_eq!(watch.roll(Some((&brake, 10)), 9), None, "within the window");
        assert_eq!(watch.roll(Some((&brake, 10)), 10), None, "that window found many");
        for _ in 0..19 {
            assert_eq!(watch.one_more(&brake, 75), Silence::Held);
        }
        assert_eq!(watch.roll(Some((&brake, 10)), 20), None, "19 of 75 are more than a quarter");
        for _ in 0..18 {
            assert_eq!(watch.one_more(&brake, 75), Silence::Held);
        }
        assert_eq!(watch.roll(Some((&brake, 10)), 30), Some(18));
        assert_eq!(watch.one_more(&brake, 75), Silence::Usual);
    }

    #[test]
    fn a_small_fleet_is_not_held_and_without_a_brake_nobody_is() {
        let (brake, mut watch) = (quarter(), Watch::default());
        for live in (1..=7).rev() {
            assert_eq!(watch.one_more(&brake, live), Silence::Usual);
        }
        // Also when it was large enough before.
        let mut watch = Watch::default();
        for live in (70..=100).rev() {
            let _ = watch.one_more(&brake, live);
        }
        watch.expired = 0;
        assert_eq!(watch.one_more(&brake, 7), Silence::Usual);
        let mut watch = Watch::default();
        for _ in 0..30 {
            let _ = watch.one_more(&brake, 75);
        }
        assert!(watch.roll(None, 0).is_some());
        assert_eq!(watch.roll(None, 1), None);
    }
}
