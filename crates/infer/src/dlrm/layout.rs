//! Where values are in slots: of what the client sends, and of vectors between links.
//!
//! A ciphertext of `users` users holds the slots of each in turn: slot s · users + u is slot s of user
//! u. All below is about one user's slots; rotations are `users` times as far. A vector between links
//! has a *period*, a power of two, and is repeated over the slots.

use serde::{Deserialize, Serialize};

use super::digits::Digits;
use super::error::Error;

/// Which values an input holds, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Values {
    /// The dense features, with their monomials if lifted.
    Dense,
    /// The one-hot vectors of all sparse features.
    Onehot,
    /// Both, the dense first.
    Both,
    /// The one-hot vectors of the largest sparse features in two parts: of each, that of a row inside its
    /// group, and that of the group.
    Parts,
}

/// Some of what the client sends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Input {
    /// Which values.
    pub values: Values,
    /// The level that they are encrypted at; of parts that of the first ciphertext, the others' is one below.
    pub level: usize,
    /// How many ciphertexts.
    pub ciphertexts: usize,
    /// Where the values are in them.
    pub layout: Layout,
}

/// Where an input's values are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
#[non_exhaustive]
pub enum Layout {
    /// For a map to `period` outputs by `diagonals` diagonals: slot s holds value
    /// `diagonals` · ⌊s / period⌋ + s mod `diagonals`. With one diagonal, each value fills a block of
    /// `period` slots; with `period` of them the values are in order. The first of `copies` equal parts
    /// of the slots does, and the others hold what it does.
    Packed {
        /// The map's outputs, rounded up to a power of two.
        period: usize,
        /// The map's diagonals: slot s of the output reads slots s to s + `diagonals` − 1.
        diagonals: usize,
        /// How often the slots hold the same.
        #[serde(default = "one", skip_serializing_if = "is_one")]
        copies: usize,
    },
    /// For table lookups: slot s is in lane s mod `lanes`, a feature has `counts` lanes one after the
    /// other, and its rows go around them.
    Lanes {
        /// How many lanes, a power of two.
        lanes: usize,
        /// The first feature's first lane.
        first: usize,
        /// Values of a row, rounded up to a power of two.
        width: usize,
        /// By feature: its lanes; 0 where another input holds the feature.
        counts: Vec<usize>,
    },
    /// For lookups by a product: slot s is in column s mod `columns`, whose slots are as many rows of a
    /// feature's group. The first ciphertext says which row of a group, the same for all of a feature's
    /// columns. The others say which group: where slot s is of value ⌊s / (slots / `width`)⌋ of a row and
    /// of lane s mod (slots / `width`), the groups of a column go around its lanes, each with all values.
    Parts {
        /// How many columns, a power of two.
        columns: usize,
        /// Values of a row, rounded up to a power of two.
        width: usize,
        /// By feature: its columns; 0 where another input holds the feature.
        counts: Vec<usize>,
    },
}

fn one() -> usize {
    1
}

fn is_one(number: &usize) -> bool {
    *number == 1
}

impl Input {
    /// How many values each of the ciphertexts holds at most.
    fn chunk(&self, slots: usize) -> usize {
        match self.layout {
            Layout::Packed { period, diagonals, copies } => diagonals * (slots / period / copies),
            Layout::Lanes { .. } | Layout::Parts { .. } => slots,
        }
    }

    /// The level that ciphertext `number` is encrypted at.
    pub fn level_of(&self, number: usize) -> usize {
        let is_group = matches!(self.layout, Layout::Parts { .. }) && number > 0;
        self.level.saturating_sub(usize::from(is_group))
    }

    /// The levels of all its ciphertexts.
    pub fn levels(&self) -> impl Iterator<Item = usize> + use<'_> {
        (0..self.ciphertexts).map(|number| self.level_of(number))
    }

    /// Refuses an input that does not hold its values, or that is no layout of `slots` slots.
    ///
    /// # Errors
    /// [`Error::Layout`].
    pub fn check(&self, slots: usize, dense: usize, digits: &[Digits]) -> Result<(), Error> {
        let refuse = |why: String| Err(Error::Layout { why });
        if self.ciphertexts == 0 || self.ciphertexts > CIPHERTEXTS_MAX {
            let found = self.ciphertexts;
            return refuse(format!("{found} ciphertexts, possible are 1 to {CIPHERTEXTS_MAX}"));
        }
        match &self.layout {
            &Layout::Packed { period, diagonals, copies } => {
                let is_power = [period, diagonals, copies].iter().all(|n| n.is_power_of_two());
                if !is_power || period > slots || diagonals > period || copies > slots / period {
                    return refuse(format!(
                        "{diagonals} diagonals of period {period}, {copies} times"
                    ));
                }
                let count = count_values(self.values, dense, digits);
                if count > self.chunk(slots).saturating_mul(self.ciphertexts) {
                    return refuse(format!("{count} values do not fit"));
                }
            }
            Layout::Lanes { lanes, first, width, counts } => {
                let is_power = lanes.is_power_of_two() && width.is_power_of_two();
                if !is_power || lanes.checked_mul(*width).is_none_or(|period| period > slots) {
                    return refuse(format!("{lanes} lanes of {width} values in {slots} slots"));
                }
                let used = counts.iter().try_fold(*first, |sum, &count| sum.checked_add(count));
                let is_fit = used.is_some_and(|used| used <= *lanes);
                if self.values != Values::Onehot || counts.len() != digits.len() || !is_fit {
                    return refuse("lanes that are not the features'".into());
                }
                let rows = slots / lanes * self.ciphertexts;
                let mut tables = counts.iter().zip(digits).filter(|(count, _)| **count > 0);
                if tables.any(|(&count, digits)| digits.slots() > rows.saturating_mul(count)) {
                    return refuse("a table has more rows than its lanes".into());
                }
            }
            Layout::Parts { columns, width, counts } => {
                let is_power = columns.is_power_of_two() && width.is_power_of_two();
                if !is_power || columns.checked_mul(*width).is_none_or(|each| each > slots) {
                    return refuse(format!("{columns} columns of {width} values in {slots} slots"));
                }
                if self.ciphertexts < 2 || self.level < 2 {
                    let (found, level) = (self.ciphertexts, self.level);
                    return refuse(format!("parts in {found} ciphertexts at level {level}"));
                }
                let used = counts.iter().try_fold(0, |sum: usize, &count| sum.checked_add(count));
                let is_fit = used.is_some_and(|used| (1..=*columns).contains(&used));
                if self.values != Values::Parts || counts.len() != digits.len() || !is_fit {
                    return refuse("columns that are not the features'".into());
                }
                let groups = slots / width / columns * (self.ciphertexts - 1);
                let mut tables = counts.iter().zip(digits).filter(|(count, _)| **count > 0);
                if tables.any(|(&count, digits)| {
                    digits.is_cut()
                        || digits.slots().div_ceil(slots / columns) > groups.saturating_mul(count)
                }) {
                    return refuse("a table has more rows than its columns".into());
                }
            }
        }
        Ok(())
    }

    /// By slot of ciphertext `number`: which value, if any, of those that the input holds; with lanes,
    /// of the one-hot vectors one after the other; with parts, of `part_sizes`' vectors.
    pub fn places(&self, slots: usize, number: usize, digits: &[Digits]) -> Vec<Option<usize>> {
        let mut places = vec![None; slots];
        match &self.layout {
            &Layout::Packed { period, diagonals, copies } => {
                let first = number * self.chunk(slots);
                for (slot, place) in places.iter_mut().enumerate() {
                    let slot = slot % (slots / copies);
                    *place = Some(first + diagonals * (slot / period) + slot % diagonals);
                }
            }
            Layout::Lanes { lanes, first, counts, .. } => {
                let rows = slots / lanes;
                let (mut lane, mut start) = (*first, 0);
                for (&count, digits) in counts.iter().zip(digits) {
                    let size = digits.slots();
                    for own in 0..count {
                        for down in 0..rows {
                            let row = (number * rows + down) * count + own;
                            if row < size {
                                places[down * lanes + lane + own] = Some(start + row);
                            }
                        }
                    }
                    lane += count;
                    start += size;
                }
            }
            Layout::Parts { columns, .. } => {
                let owners = self.owners(slots);
                let sizes = part_sizes(&self.layout, slots, digits);
                let starts = starts(sizes.iter().map(|(rows, groups)| rows + groups));
                let groups = number.checked_sub(1).map(|number| self.groups(slots, number));
                for (slot, place) in places.iter_mut().enumerate() {
                    let Some((feature, _)) = owners[slot % columns] else { continue };
                    let (rows, count) = sizes[feature];
                    *place = match &groups {
                        None => Some(starts[feature] + slot / columns),
                        Some(groups) => groups[slot]
                            .filter(|&(_, group)| group < count)
                            .map(|(_, group)| starts[feature] + rows + group),
                    };
                }
            }
        }
        places
    }

    /// By lane, or by column of parts: the feature whose it is, and which of that feature's it is.
    pub(super) fn owners(&self, slots: usize) -> Vec<Option<(usize, usize)>> {
        let (count, first, counts) = match &self.layout {
            Layout::Packed { .. } => return vec![None; slots],
            Layout::Lanes { lanes, first, counts, .. } => (*lanes, *first, counts),
            Layout::Parts { columns, counts, .. } => (*columns, 0, counts),
        };
        let mut owners = vec![None; count];
        let own = counts.iter().enumerate();
        let own = own.flat_map(|(feature, &count)| (0..count).map(move |own| (feature, own)));
        owners[first..].iter_mut().zip(own).for_each(|(owner, own)| *owner = Some(own));
        owners
    }

    /// Of parts, by slot of group ciphertext `number`: the feature and the group of it that the slot is of.
    pub(super) fn groups(&self, slots: usize, number: usize) -> Vec<Option<(usize, usize)>> {
        let &Layout::Parts { columns, width, .. } = &self.layout else { return vec![None; slots] };
        let owners = self.owners(slots);
        let (lanes, each) = (slots / width, slots / width / columns);
        let group = |slot: usize| {
            let (feature, own) = owners[slot % columns]?;
            let number = own * (self.ciphertexts - 1) + number;
            Some((feature, number * each + slot % lanes / columns))
        };
        (0..slots).map(group).collect()
    }
}

/// Of parts, by feature: how many rows a group has, and how many groups there are; none of a feature that
/// another input holds.
pub(super) fn part_sizes(layout: &Layout, slots: usize, digits: &[Digits]) -> Vec<(usize, usize)> {
    let Layout::Parts { columns, counts, .. } = layout else { return Vec::new() };
    let rows = slots / columns;
    let own = counts.iter().zip(digits);
    own.map(|(&count, digits)| match count {
        0 => (0, 0),
        _ => (rows, digits.slots().div_ceil(rows)),
    })
    .collect()
}

/// Where each of what has these sizes starts, one after the other.
pub(super) fn starts(sizes: impl Iterator<Item = usize>) -> Vec<usize> {
    let start = |next: &mut usize, size| Some(std::mem::replace(next, *next + size));
    sizes.scan(0, start).collect()
}

/// Refuses inputs that do not hold all values of a user once.
///
/// # Errors
/// [`Error::Layout`].
pub(super) fn check_inputs(
    inputs: &[Input],
    slots: usize,
    dense: usize,
    digits: &[Digits],
) -> Result<(), Error> {
    inputs.iter().try_for_each(|input| input.check(slots, dense, digits))?;
    let held = |feature: usize| {
        let is_in = |input: &&Input| match &input.layout {
            Layout::Packed { .. } => input.values != Values::Dense,
            Layout::Lanes { counts, .. } | Layout::Parts { counts, .. } => counts[feature] > 0,
        };
        inputs.iter().filter(is_in).count()
    };
    match (0..digits.len()).find(|&feature| held(feature) != 1) {
        Some(feature) => {
            let why =
                format!("feature {feature} is in {} inputs, and must be in one", held(feature));
            Err(Error::Layout { why })
        }
        None => Ok(()),
    }
}

impl Layout {
    /// Whether it holds every feature, of those that hold some.
    pub(super) fn is_all(&self) -> bool {
        match self {
            Self::Packed { .. } => true,
            Self::Lanes { counts, .. } | Self::Parts { counts, .. } => !counts.contains(&0),
        }
    }

    /// The layout in words.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Packed { period, diagonals: 1, .. } => format!("each value in {period} slots"),
            Self::Packed { period, .. } => format!("packed for {period} outputs"),
            Self::Lanes { lanes, counts, .. } => {
                format!("{lanes} lanes, {} in use", counts.iter().sum::<usize>())
            }
            Self::Parts { columns, counts, .. } => {
                let features = counts.iter().filter(|count| **count > 0).count();
                let used = counts.iter().sum::<usize>();
                format!("{features} features in parts of {columns} columns, {used} in use")
            }
        }
    }
}

/// The most ciphertexts of an input.
pub const CIPHERTEXTS_MAX: usize = 1 << 14;

/// How many values an input has to hold.
pub fn count_values(values: Values, dense: usize, digits: &[Digits]) -> usize {
    let onehot = || digits.iter().map(Digits::slots).sum::<usize>();
    match values {
        Values::Dense => dense,
        Values::Onehot => onehot(),
        Values::Both => dense + onehot(),
        // No map packs them.
        Values::Parts => usize::MAX,
    }
}

/// The packing of `count` values for a map to `outputs` outputs in as few ciphertexts as there can be, by
/// as few diagonals.
pub fn pack_values(slots: usize, count: usize, outputs: usize) -> (usize, Layout) {
    let period = outputs.next_power_of_two();
    let ciphertexts = count.div_ceil(slots).max(1);
    let each = count.div_ceil(ciphertexts).max(1);
    let diagonals = each.div_ceil(slots / period.min(slots)).next_power_of_two();
    (ciphertexts, packed(slots, each, period, diagonals))
}

/// The packing of `each` values of a ciphertext by `diagonals` diagonals, repeated as often as there is
/// room: what is not repeated is folded.
fn packed(slots: usize, each: usize, period: usize, diagonals: usize) -> Layout {
    let blocks = slots / period.min(slots);
    let copies = blocks / each.div_ceil(diagonals).next_power_of_two().min(blocks);
    Layout::Packed { period, diagonals, copies }
}

/// As `input`, of `count` values, by more diagonals: each doubling leaves one fold less.
pub(super) fn packings(slots: usize, input: &Input, count: usize) -> Vec<Layout> {
    let Layout::Packed { period, diagonals, copies } = input.layout else { return Vec::new() };
    let each = count.div_ceil(input.ciphertexts).max(1);
    let folds = (slots / period / copies).trailing_zeros();
    let more = (1..=folds).map(|doublings| diagonals << doublings);
    let more = more.take_while(|&diagonals| diagonals <= period);
    more.map(|diagonals| packed(slots, each, period, diagonals)).collect()
}

/// As many lanes as there can be, shared among the features by their rows, so that there are as few
/// ciphertexts as there can be, those left out that `beside` holds in parts; `None` where a ciphertext has
/// fewer lanes than there are features.
pub fn share_lanes(
    slots: usize,
    dim: usize,
    digits: &[Digits],
    beside: Option<&Layout>,
) -> Option<(usize, Layout)> {
    let width = dim.next_power_of_two();
    let lanes = slots / width;
    let sizes = beside.map(|parts| part_sizes(parts, slots, digits)).unwrap_or_default();
    let is_left = |index: usize| sizes.get(index).is_none_or(|&(rows, _)| rows == 0);
    let left = digits.iter().enumerate();
    let left: Vec<_> =
        left.map(|(index, own)| if is_left(index) { own.slots() } else { 0 }).collect();
    if lanes < left.iter().filter(|rows| **rows > 0).count() || lanes == 0 {
        return None;
    }
    let counts = |ciphertexts: usize| -> Vec<usize> {
        left.iter().map(|own| own.div_ceil(width * ciphertexts)).collect()
    };
    let mut ciphertexts = left.iter().sum::<usize>().div_ceil(slots).max(1);
    while counts(ciphertexts).iter().sum::<usize>() > lanes {
        ciphertexts += 1;
    }
    let counts = counts(ciphertexts);
    Some((ciphertexts, Layout::Lanes { lanes, first: 0, width, counts }))
}

/// The `features` largest tables in parts of `columns` columns, shared among them by their groups, in as
/// few ciphertexts as there can be; `None` where these columns do not hold them.
pub fn share_columns(
    slots: usize,
    dim: usize,
    digits: &[Digits],
    features: usize,
    columns: usize,
) -> Option<(usize, Layout)> {
    let width = dim.next_power_of_two();
    let is_fit = columns.is_power_of_two() && columns.checked_mul(width)? <= slots;
    let mut largest: Vec<usize> =
        (0..digits.len()).filter(|&index| !digits[index].is_cut()).collect();
    largest.sort_by_key(|&index| std::cmp::Reverse(digits[index].slots()));
    if !is_fit || features == 0 || features > columns || features > largest.len() {
        return None;
    }
    let (rows, each) = (slots / columns, slots / width / columns);
    let groups = |index: usize| digits[index].slots().div_ceil(rows);
    let counts = |ciphertexts: usize| {
        let mut counts = vec![0; digits.len()];
        for &index in &largest[..features] {
            counts[index] = groups(index).div_ceil(each * ciphertexts);
        }
        counts
    };
    let all: usize = largest[..features].iter().map(|&index| groups(index)).sum();
    let mut ciphertexts = all.div_ceil(each * columns).max(1);
    while counts(ciphertexts).iter().sum::<usize>() > columns {
        ciphertexts += 1;
    }
    let counts = counts(ciphertexts);
    Some((1 + ciphertexts, Layout::Parts { columns, width, counts }))
}

/// One lane a feature, from lane `first` on: the layout in which each embedding is whole.
pub fn own_lanes(
    slots: usize,
    dim: usize,
    first: usize,
    digits: &[Digits],
) -> Option<(usize, Layout)> {
    let width = dim.next_power_of_two();
    let lanes = (first + digits.len()).next_power_of_two();
    if lanes * width > slots {
        return None;
    }
    let rows = slots / lanes;
    let most = digits.iter().map(Digits::slots).max()?;
    let counts = vec![1; digits.len()];
    Some((most.div_ceil(rows), Layout::Lanes { lanes, first, width, counts }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dlrm::digits::CRITEO_ROWS;

    fn criteo(threshold: u64) -> Vec<Digits> {
        CRITEO_ROWS.iter().map(|&rows| Digits::new(rows, threshold, 4)).collect()
    }

    #[test]
    fn every_packed_value_meets_every_output_once() {
        for (slots, count, outputs) in
            [(64, 11, 4), (64, 3, 4), (64, 40, 4), (128, 5, 16), (128, 128, 16), (64, 100, 7)]
        {
            let (ciphertexts, layout) = pack_values(slots, count, outputs);
            let input = Input { values: Values::Dense, level: 0, ciphertexts, layout };
            input.check(slots, count, &[]).unwrap();
            let more = packings(slots, &input, count);
            let more = more.into_iter().map(|layout| Input { layout, ..input.clone() });
            for input in std::iter::once(input.clone()).chain(more) {
                input.check(slots, count, &[]).unwrap();
                let Layout::Packed { period, diagonals, copies } = input.layout else {
                    unreachable!()
                };
                for output in 0..period {
                    let mut met = vec![0; count];
                    for number in 0..ciphertexts {
                        let places = input.places(slots, number, &[]);
                        for slot in (output..slots).step_by(period) {
                            for diagonal in 0..diagonals {
                                let place = places[(slot + diagonal) % slots].unwrap();
                                if let Some(met) = met.get_mut(place) {
                                    *met += 1;
                                }
                            }
                        }
                    }
                    let is_met = met.iter().all(|&met| met == copies);
                    assert!(is_met, "{slots} {count} {outputs} {input:?} {met:?}");
                }
            }
        }
    }

    #[test]
    fn lanes_hold_every_row_once() {
        let digits = criteo(5_000);
        for (ciphertexts, layout) in [
            share_lanes(4096, 16, &digits, None).unwrap(),
            own_lanes(4096, 16, 1, &digits).unwrap(),
        ] {
            let input = Input { values: Values::Onehot, level: 0, ciphertexts, layout };
            input.check(4096, 0, &digits).unwrap();
            let mut met = vec![0; count_values(Values::Onehot, 0, &digits)];
            for number in 0..ciphertexts {
                for place in input.places(4096, number, &digits).into_iter().flatten() {
                    met[place] += 1;
                }
            }
            assert!(met.iter().all(|&met| met == 1));
        }
    }

    #[test]
    fn parts_hold_every_group_once_for_each_value() {
        let digits = criteo(5_000_000);
        for (slots, features, columns) in [(8192, 4, 16), (8192, 8, 8), (16_384, 5, 64)] {
            let (ciphertexts, layout) =
                share_columns(slots, 16, &digits, features, columns).unwrap();
            let input = Input { values: Values::Parts, level: 2, ciphertexts, layout };
            input.check(slots, 0, &digits).unwrap();
            assert_eq!(input.levels().collect::<Vec<_>>()[..3], [2, 1, 1]);
            let sizes = part_sizes(&input.layout, slots, &digits);
            let first = starts(sizes.iter().map(|(rows, groups)| rows + groups));
            let mut met: Vec<Vec<usize>> =
                sizes.iter().map(|&(rows, groups)| vec![0; rows + groups]).collect();
            for number in 0..ciphertexts {
                let groups = number.checked_sub(1).map(|number| input.groups(slots, number));
                for (slot, place) in input.places(slots, number, &digits).into_iter().enumerate() {
                    let Some(place) = place else { continue };
                    let feature = first.partition_point(|&start| start <= place) - 1;
                    // Features without parts start where the next one does.
                    let own = place - first[feature];
                    met[feature][own] += 1;
                    let (rows, _) = sizes[feature];
                    match &groups {
                        None => assert_eq!(own, slot / columns),
                        Some(groups) => assert_eq!(groups[slot], Some((feature, own - rows))),
                    }
                }
            }
            let Layout::Parts { counts, .. } = &input.layout else { unreachable!() };
            for ((met, &(rows, _)), &count) in met.iter().zip(&sizes).zip(counts) {
                assert!(met[..rows].iter().all(|&met| met == count));
                assert!(met[rows..].iter().all(|&met| met == 16));
            }
        }
        // More features than columns, or columns than slots have.
        assert!(share_columns(8192, 16, &digits, 4, 2).is_none());
        assert!(share_columns(8192, 16, &digits, 4, 1024).is_none());
        assert!(share_columns(8192, 16, &digits, 27, 32).is_none());
    }

    #[test]
    fn shared_lanes_waste_little() {
        // The paper's ciphertexts of 32768 slots: 1, 1, 2, 18 and 85.
        for (threshold, ciphertexts_max) in [(500, 1), (5_000, 1), (50_000, 2), (500_000, 18)] {
            let (ciphertexts, _) = share_lanes(32_768, 16, &criteo(threshold), None).unwrap();
            assert!(ciphertexts <= ciphertexts_max, "threshold {threshold}: {ciphertexts}");
        }
        let (ciphertexts, _) = share_lanes(8192, 16, &criteo(5_000_000), None).unwrap();
        // 338.4 would be all slots.
        assert!(ciphertexts <= 355, "{ciphertexts}");
        assert!(share_lanes(256, 16, &criteo(500), None).is_none());
    }
}
