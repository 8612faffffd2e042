//! When a late server is asked again elsewhere: past the 95th percentile of the last parts of its shard,
//! and within a budget, so that what makes servers late is not made worse.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How long the last parts of a shard took, by how much was asked.
#[derive(Debug, Default)]
pub(super) struct Recent(Mutex<Vec<Ring>>);

#[derive(Debug, Default)]
struct Ring {
    class: u32,
    us: Vec<u64>,
    next: usize,
    /// What is late, as of the last time that it was worked out: each part of each pass asks.
    late: Option<Duration>,
}

/// Parts that may be asked a second time: each that is asked brings a fraction of one more.
#[derive(Debug, Default)]
pub(super) struct Budget(Mutex<u32>);

impl Recent {
    /// Notes that a part with `bytes` of keys took so long.
    pub fn note(&self, bytes: usize, took: Duration) {
        let class = class_of(bytes);
        let mut rings = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = rings.iter().position(|ring| ring.class == class).unwrap_or_else(|| {
            rings.push(Ring { class, ..Ring::default() });
            rings.len() - 1
        });
        let (ring, us) = (&mut rings[place], took.as_micros() as u64);
        match ring.us.get_mut(ring.next) {
            Some(oldest) => *oldest = us,
            None => ring.us.push(us),
        }
        ring.next = (ring.next + 1) % RING;
        if ring.next.is_multiple_of(RING_LEAST) {
            ring.late = Some(late_of(&ring.us));
        }
    }

    /// After how long such a part is late; None where too few have been seen.
    pub fn late_after(&self, bytes: usize) -> Option<Duration> {
        let class = class_of(bytes);
        let rings = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        rings.iter().find(|ring| ring.class == class)?.late
    }
}

/// What is late among times like these.
fn late_of(us: &[u64]) -> Duration {
    let mut us = us.to_vec();
    let place = us.len() * 95 / 100;
    let (_, &mut late, _) = us.select_nth_unstable(place);
    // Of times that hardly differ, the 95th percentile is a tick of the clock over the median.
    Duration::from_micros(late).max(LATE_LEAST).mul_f64(LATE_SLACK)
}

impl Budget {
    /// Notes that a part was asked for.
    pub fn earn(&self, per_mille: u32) {
        let mut tokens = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *tokens = (*tokens + per_mille).min(TOKENS_MAX);
    }

    /// Takes what a second server costs, where there is so much.
    pub fn spend(&self) -> bool {
        let mut tokens = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let has = *tokens >= TOKEN;
        if has {
            *tokens -= TOKEN;
        }
        has
    }
}

/// Parts of about one size take about one time.
fn class_of(bytes: usize) -> u32 {
    usize::BITS - bytes.leading_zeros()
}

const RING: usize = 128;
const RING_LEAST: usize = 16;
const TOKEN: u32 = 1000;
const TOKENS_MAX: u32 = 10 * TOKEN;
const LATE_LEAST: Duration = Duration::from_millis(1);
const LATE_SLACK: f64 = 1.25;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_is_past_nearly_all_of_the_last_of_that_size() {
        let recent = Recent::default();
        for ms in 1..=100u64 {
            recent.note(1000, Duration::from_millis(ms));
        }
        let late = recent.late_after(1000).unwrap();
        assert!(late > Duration::from_millis(95) && late < Duration::from_millis(150), "{late:?}");
        assert_eq!(recent.late_after(100_000), None, "of that size nothing is known");
        // What was long ago says nothing any more.
        for _ in 0..RING {
            recent.note(1000, Duration::from_millis(2));
        }
        assert!(recent.late_after(1000).unwrap() < Duration::from_millis(3));
    }

    #[test]
    fn the_budget_is_a_part_of_what_is_asked() {
        let budget = Budget::default();
        assert!(!budget.spend());
        let spent = (0..10_000).filter(|_| {
            budget.earn(50);
            budget.spend()
        });
        assert_eq!(spent.count(), 500);
        (0..10_000).for_each(|_| budget.earn(50));
        assert_eq!((0..100).filter(|_| budget.spend()).count(), 10, "a calm time saves up for ten");
    }
}
