//! What a trace says about a table: which rows are hot, and which are read together.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};

use super::permutation::mix;
use super::{Layout, LayoutError, LayoutMap, LayoutSpec, PartSpec};
use crate::shape::Shape;
use crate::version::Version;

/// Bags of ids, one an inference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    ids: Vec<u32>,
    /// Where each bag starts, and at last where the last one ends.
    offsets: Vec<u64>,
}

impl Trace {
    /// Bag i is `ids[offsets[i]..offsets[i + 1]]`.
    ///
    /// # Errors
    /// [`LayoutError::Trace`] for offsets that do not start at 0, fall, or do not end at the number
    /// of ids.
    pub fn new(ids: Vec<u32>, offsets: Vec<u64>) -> Result<Self, LayoutError> {
        let reason = if offsets.first() != Some(&0) {
            "its offsets do not start with 0"
        } else if offsets.windows(2).any(|pair| pair[0] > pair[1]) {
            "its offsets fall"
        } else if offsets.last() != Some(&(ids.len() as u64)) {
            "its last offset is not the number of ids"
        } else {
            return Ok(Self { ids, offsets });
        };
        Err(LayoutError::Trace { reason: reason.to_owned() })
    }

    /// Every id, bag after bag.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// How many bags.
    pub fn bag_count(&self) -> usize {
        self.offsets.len() - 1
    }

    /// The ids of bag number `bag`.
    ///
    /// # Panics
    /// Unless `bag` is below the number of bags.
    pub fn bag(&self, bag: usize) -> &[u32] {
        &self.ids[self.offsets[bag] as usize..self.offsets[bag + 1] as usize]
    }
}

/// A trace, and for each row the bags that read it.
pub struct Profile {
    trace: Trace,
    rows: u64,
    /// Reads of each row.
    counts: Vec<u32>,
    /// Rows in the order of their counts, most read first, then by id.
    ranked: Vec<u32>,
    /// Bags of row r: `bags[starts[r]..starts[r + 1]]`, once a read.
    starts: Vec<u64>,
    bags: Vec<u32>,
    /// Companions found so far, at most [`KEPT_COMPANIONS`] a row.
    companions: Mutex<HashMap<u32, Vec<u32>>>,
}

/// Bags of one row that are looked at for what is read with it: a sample of this size leaves the
/// order of the most frequent companions of a very hot row all but unchanged.
const BAGS_MAX: usize = 1_024;
/// The same where rows are spread over bins, which is done for many layouts: and no more reads of
/// bags in all than this.
const SPREAD_BAGS_MAX: usize = 256;
const SPREAD_READS_MAX: usize = 1 << 23;
const NOWHERE: u32 = u32::MAX;
const KEPT_COMPANIONS: usize = 16;
/// Progress is told at every so many rows.
const PROGRESS_ROWS: usize = 4_096;

impl Profile {
    /// Counts `trace`, whose ids are rows of a table with `rows`.
    ///
    /// # Errors
    /// [`LayoutError::IdRange`]; [`LayoutError::Trace`] for a trace without ids.
    pub fn new(trace: Trace, rows: u64) -> Result<Self, LayoutError> {
        if trace.ids.is_empty() {
            return Err(LayoutError::Trace { reason: "it has no ids".to_owned() });
        }
        if let Some(&id) = trace.ids.iter().find(|&&id| u64::from(id) >= rows) {
            return Err(LayoutError::IdRange { id: id.into(), rows });
        }
        if u32::try_from(trace.ids.len()).is_err() {
            let reason = "it has 2^32 ids or more: sample it".to_owned();
            return Err(LayoutError::Trace { reason });
        }
        let mut starts = vec![0u64; rows as usize + 1];
        trace.ids.iter().for_each(|&id| starts[id as usize + 1] += 1);
        let counts: Vec<u32> = starts[1..].iter().map(|&count| count as u32).collect();
        let mut sum = 0;
        starts.iter_mut().for_each(|start| {
            sum += *start;
            *start = sum;
        });
        let mut next = starts.clone();
        let mut bags = vec![0; trace.ids.len()];
        for bag in 0..trace.bag_count() {
            for &id in trace.bag(bag) {
                let at = &mut next[id as usize];
                bags[*at as usize] = bag as u32;
                *at += 1;
            }
        }
        let mut ranked: Vec<u32> = (0..rows).map(|id| id as u32).collect();
        ranked.sort_by_key(|&id| (std::cmp::Reverse(counts[id as usize]), id));
        let companions = Mutex::new(HashMap::new());
        Ok(Self { trace, rows, counts, ranked, starts, bags, companions })
    }

    /// The trace.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// Reads of each row.
    pub fn counts(&self) -> &[u32] {
        &self.counts
    }

    /// Every row, the most read first; equals by id.
    pub fn ranked(&self) -> &[u32] {
        &self.ranked
    }

    /// For each of `ids` its `count` (at most 16) most frequent companions: the rows that most bags
    /// hold together with it, itself where there are fewer. `progress` is told rows done and rows.
    ///
    /// Counting is exact up to 1,024 bags a row; of more, that many are sampled evenly.
    pub fn companions(
        &self,
        ids: &[u32],
        count: usize,
        progress: impl Fn(usize, usize) + Sync,
    ) -> Vec<u32> {
        let count = count.min(KEPT_COMPANIONS);
        if count == 0 {
            return Vec::new();
        }
        let is_read = |id: u32| self.counts[id as usize] > 0;
        let missing: Vec<u32> = {
            let kept = self.kept();
            let ids = ids.iter().copied();
            ids.filter(|&id| is_read(id) && !kept.contains_key(&id)).collect()
        };
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let next = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    let mut together = Counter::new(self.rows);
                    loop {
                        let first =
                            next.fetch_add(PROGRESS_ROWS, std::sync::atomic::Ordering::Relaxed);
                        if first >= missing.len() {
                            break;
                        }
                        let chunk = &missing[first..(first + PROGRESS_ROWS).min(missing.len())];
                        let found: Vec<_> =
                            chunk.iter().map(|&id| (id, self.top(id, &mut together))).collect();
                        self.kept().extend(found);
                        progress((first + chunk.len()).min(missing.len()), missing.len());
                    }
                });
            }
        });
        let kept = self.kept();
        let mut lists = Vec::with_capacity(ids.len() * count);
        for &id in ids {
            let found = match is_read(id) {
                true => kept.get(&id).map_or(&[][..], Vec::as_slice),
                false => &[],
            };
            lists.extend(found.iter().copied().chain(std::iter::repeat(id)).take(count));
        }
        lists
    }

    /// The layout of `spec` with the map that this trace suggests: the rows most read are hot, rows
    /// read together lie in different hot bins, and each row has its most frequent companions.
    ///
    /// # Errors
    /// As [`Layout::new`].
    pub fn design(
        &self,
        spec: &LayoutSpec,
        shape: Shape,
        table_version: Version,
        progress: impl Fn(usize, usize) + Sync,
    ) -> Result<Layout, LayoutError> {
        let checked = |part: Option<PartSpec>| part.filter(|part| part.rows <= self.rows);
        let mut map = LayoutMap::default();
        if let Some(hot) = checked(spec.hot) {
            let most_read = &self.ranked[..hot.rows as usize];
            map.hot_ids = match hot.hashes {
                1 => self.spread(most_read, hot.bins as usize),
                _ => most_read.to_vec(),
            };
            map.hot_companions = self.companions(&map.hot_ids, hot.companions as usize, &progress);
        }
        if let Some(full) = checked(spec.full) {
            let ids: Vec<u32> = match full.companions {
                0 => Vec::new(),
                _ => (0..self.rows).map(|id| id as u32).collect(),
            };
            map.full_companions = self.companions(&ids, full.companions as usize, &progress);
        }
        Layout::new(spec.clone(), map, shape, table_version)
    }

    /// Orders rows (most read first) so that rows cut into `bins` of equal size in this order meet
    /// few of those that are read with them: each goes to the bin with room in which it meets the
    /// fewest, and of those to the least read. Within a bin the most read come first.
    pub fn spread(&self, ids: &[u32], bins: usize) -> Vec<u32> {
        let bins = bins.clamp(1, ids.len().max(1));
        let bin_rows = ids.len().div_ceil(bins);
        let ids_a_bag = self.trace.ids.len().div_ceil(self.trace.bag_count()).max(1);
        let bags_max = (SPREAD_READS_MAX / ids_a_bag / ids.len().max(1)).clamp(2, SPREAD_BAGS_MAX);
        let mut members: Vec<Vec<u32>> = vec![Vec::new(); bins];
        let mut reads = vec![0u64; bins];
        let mut bin_of = vec![NOWHERE; self.rows as usize];
        let mut meets = vec![0u32; bins];
        let mut met: Vec<usize> = Vec::new();
        // Bins are cut off a list in order, so that only the last ones may be short.
        let capacity = |bin: usize| (ids.len() - (bin * bin_rows).min(ids.len())).min(bin_rows);
        let mut with_room: BTreeSet<(u64, usize, usize)> =
            (0..bins).filter(|&bin| capacity(bin) > 0).map(|bin| (0, 0, bin)).collect();
        for &id in ids {
            met.drain(..).for_each(|bin| meets[bin] = 0);
            for bag in self.bags_of(id, bags_max) {
                for &other in self.trace.bag(bag as usize) {
                    let bin = bin_of[other as usize];
                    if bin != NOWHERE {
                        let meets = &mut meets[bin as usize];
                        if *meets == 0 {
                            met.push(bin as usize);
                        }
                        *meets += 1;
                    }
                }
            }
            // Few bins are met: the first of the least read is most often one that is not.
            let unmet = with_room.iter().find(|(_, _, bin)| meets[*bin] == 0);
            let fewest =
                || with_room.iter().min_by_key(|&&(reads, len, bin)| (meets[bin], reads, len));
            let Some(&place) = unmet.or_else(fewest) else { break };
            with_room.remove(&place);
            let bin = place.2;
            members[bin].push(id);
            reads[bin] += u64::from(self.counts[id as usize]);
            bin_of[id as usize] = bin as u32;
            if members[bin].len() < capacity(bin) {
                with_room.insert((reads[bin], members[bin].len(), bin));
            }
        }
        members.concat()
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, HashMap<u32, Vec<u32>>> {
        self.companions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The bags that hold `id`, or `bags_max` of them, evenly drawn.
    fn bags_of(&self, id: u32, bags_max: usize) -> impl Iterator<Item = u32> + '_ {
        let (start, end) = (self.starts[id as usize], self.starts[id as usize + 1]);
        let count = (end - start) as usize;
        let taken = count.min(bags_max);
        // A random bag of each of `taken` equal stretches, the same in every run.
        (0..taken).map(move |i| {
            let (from, to) = (count * i / taken, count * (i + 1) / taken);
            let within = mix(u64::from(id) << 32 ^ i as u64) as usize % (to - from).max(1);
            self.bags[start as usize + from + within]
        })
    }

    /// The rows that most bags hold together with `id`.
    fn top(&self, id: u32, together: &mut Counter) -> Vec<u32> {
        for bag in self.bags_of(id, BAGS_MAX) {
            self.trace.bag(bag as usize).iter().filter(|&&other| other != id).for_each(|&other| {
                together.add(other);
            });
        }
        together.take_top(KEPT_COMPANIONS)
    }
}

/// Counts of few of many rows.
struct Counter {
    counts: Vec<u32>,
    touched: Vec<u32>,
}

impl Counter {
    fn new(rows: u64) -> Self {
        Self { counts: vec![0; rows as usize], touched: Vec::new() }
    }

    fn add(&mut self, id: u32) {
        let count = &mut self.counts[id as usize];
        if *count == 0 {
            self.touched.push(id);
        }
        *count += 1;
    }

    /// The `count` most counted, most first, equals by id; forgets all counts.
    fn take_top(&mut self, count: usize) -> Vec<u32> {
        let key = |id: &u32| (std::cmp::Reverse(self.counts[*id as usize]), *id);
        if self.touched.len() > count {
            self.touched.select_nth_unstable_by_key(count - 1, key);
        }
        let mut top: Vec<u32> = self.touched.iter().copied().take(count).collect();
        top.sort_unstable_by_key(key);
        self.touched.drain(..).for_each(|id| self.counts[id as usize] = 0);
        top
    }
}
