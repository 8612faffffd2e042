//! Attempts: lives of a controller, and which of them wrote the buckets that are in force.
//!
//! How often evictions have passed a bucket says how new it is, as long as every eviction happens
//! once. An attempt that is cut short was not: its evictions happen again, with other blocks, in the
//! next one, and both have written the same buckets after the same number of evictions. So each time a
//! controller is made or opened it draws a name at random, and every bucket that it seals is sealed
//! with that name as associated data. What stands are ranges of evictions, each by one attempt; the
//! journal's checkpoint holds them. What an attempt wrote behind its range never was committed, and does
//! not open.
//!
//! A name at random needs no record before the first write, so that a new attempt costs no I/O.

use hushtable_prg::{EntropyError, fill_random};

use crate::geometry::Geometry;
use crate::shape::Shape;

/// Bytes of an attempt's name.
pub const ATTEMPT_BYTES: usize = 16;

/// The name of one attempt: public, and never drawn twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt([u8; ATTEMPT_BYTES]);

impl Attempt {
    /// A new one.
    ///
    /// # Errors
    ///
    /// The operating system has no random bytes to give.
    pub fn random() -> Result<Self, EntropyError> {
        let mut name = [0; ATTEMPT_BYTES];
        fill_random(&mut name)?;
        Ok(Self(name))
    }

    /// One of this name.
    pub fn from_bytes(name: [u8; ATTEMPT_BYTES]) -> Self {
        Self(name)
    }

    /// Its name.
    pub fn bytes(&self) -> &[u8; ATTEMPT_BYTES] {
        &self.0
    }
}

/// What a sealed bucket is bound to: where it is, how often evictions had passed it, and which
/// attempt sealed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// The bucket's number.
    pub number: u64,
    /// Evictions that had passed it.
    pub counter: u64,
    /// Who sealed it.
    pub attempt: Attempt,
}

/// Which attempt wrote each bucket that is in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempts {
    /// The number of an attempt's first eviction, and the attempt, in ascending order. An attempt's
    /// range ends where the next one begins; the last attempt writes now.
    ranges: Vec<(u64, Attempt)>,
    /// The attempt that wrote the cached levels to disk at the last checkpoint.
    flushed: Attempt,
}

impl Attempts {
    /// A new tree's: nothing was written to it, and `attempt` writes from now on.
    pub fn first(attempt: Attempt) -> Self {
        Self { ranges: vec![(0, attempt)], flushed: attempt }
    }

    /// Reads a checkpoint's ranges, after `evictions` evictions; None if they do not fit that count.
    pub fn from_ranges(ranges: Vec<(u64, Attempt)>, evictions: u64) -> Option<Self> {
        let ascending = ranges.windows(2).all(|pair| pair[0].0 < pair[1].0);
        let &(first, flushed) = ranges.last()?;
        (ascending && first <= evictions).then_some(Self { ranges, flushed })
    }

    /// The ranges, for the record of a checkpoint: the attempt that writes a checkpoint is the last
    /// one, and has sealed all of the cached levels.
    pub fn ranges(&self) -> &[(u64, Attempt)] {
        &self.ranges
    }

    /// From now on, after `evictions` committed ones, `attempt` writes. Forgets ranges that every bucket
    /// of `geometry` has been written since.
    pub fn begin(&mut self, evictions: u64, attempt: Attempt, geometry: &Geometry) {
        self.flushed = self.current();
        // Nothing that the last attempt wrote may have been committed.
        self.ranges.retain(|&(first, _)| first < evictions);
        self.ranges.push((evictions, attempt));
        // Any as many evictions as there are leaves pass every bucket.
        let oldest = evictions.saturating_sub(geometry.leaves());
        let kept = self.ranges.partition_point(|&(first, _)| first <= oldest).saturating_sub(1);
        self.ranges.drain(..kept);
    }

    /// The attempt that writes now.
    pub fn current(&self) -> Attempt {
        self.ranges.last().map_or(self.flushed, |&(_, attempt)| attempt)
    }

    /// The bucket `number` of a tree of this shape as evictions left it, the last of them before
    /// `evictions`; none if none has passed it.
    pub fn version(&self, number: u64, evictions: u64, shape: Shape) -> Option<Version> {
        let (level, index) = shape.place(number);
        let (counter, last) = shape.last_pass(evictions, level, index)?;
        let at = self.ranges.partition_point(|&(first, _)| first <= last).saturating_sub(1);
        Some(Version { number, counter, attempt: self.ranges[at].1 })
    }

    /// A bucket of the cached levels as the last checkpoint left it, `evictions` before; none if none
    /// had passed it.
    pub fn flushed_version(&self, number: u64, evictions: u64, shape: Shape) -> Option<Version> {
        self.version(number, evictions, shape)
            .map(|version| Version { attempt: self.flushed, ..version })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::GeometrySpec;

    fn name(byte: u8) -> Attempt {
        Attempt::from_bytes([byte; ATTEMPT_BYTES])
    }

    /// Attempts that write a few evictions each, some of which are cut: every bucket's is that which
    /// wrote it last and was committed.
    #[test]
    fn every_bucket_is_of_the_attempt_that_wrote_it_last() {
        let geometry = Geometry::new(&GeometrySpec::on_disk(3000, 200)).unwrap();
        let shape = geometry.shape();
        let mut wrote = vec![None; geometry.buckets() as usize];
        let mut attempts = Attempts::first(name(0));
        let mut evictions = 0_u64;
        for life in 0..200_u8 {
            if life > 0 {
                attempts.begin(evictions, name(life), &geometry);
            }
            // Every third is cut before it commits, and its evictions happen again.
            if life % 3 != 2 {
                for _ in 0..u64::from(life) * 7 % 61 {
                    for bucket in shape.path(shape.eviction_leaf(evictions)) {
                        let counter = wrote[bucket as usize].map_or(0, |(count, _)| count) + 1;
                        wrote[bucket as usize] = Some((counter, life));
                    }
                    evictions += 1;
                }
            }
            let back = Attempts::from_ranges(attempts.ranges().to_vec(), evictions).unwrap();
            for (bucket, wrote) in (0..).zip(&wrote) {
                let expected = wrote.map(|(counter, life)| (counter, name(life)));
                let found = back.version(bucket, evictions, shape).map(|v| (v.counter, v.attempt));
                assert_eq!(found, expected, "bucket {bucket} in life {life}");
            }
            assert!(attempts.ranges().len() as u64 <= geometry.leaves() + 1);
        }
        assert!(evictions > 4 * geometry.leaves() && attempts.ranges().len() < 100);
    }

    #[test]
    fn ranges_that_are_none_are_refused() {
        assert!(Attempts::from_ranges(vec![], 5).is_none());
        assert!(Attempts::from_ranges(vec![(6, name(1))], 5).is_none());
        assert!(Attempts::from_ranges(vec![(2, name(1)), (2, name(2))], 5).is_none());
        assert!(Attempts::from_ranges(vec![(3, name(1)), (2, name(2))], 5).is_none());
        assert!(Attempts::from_ranges(vec![(2, name(1)), (5, name(2))], 5).is_some());
    }
}
