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
}

/// Some of what the client sends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Input {
    /// Which values.
    pub values: Values,
    /// The level that they are encrypted at.
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
        /// By feature: its lanes.
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
            Layout::Lanes { .. } => slots,
        }
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
                let is_fit = used.is_some_and(|used| used <= *lanes) && !counts.contains(&0);
                if self.values != Values::Onehot || counts.len() != digits.len() || !is_fit {
                    return refuse("lanes that are not the features'".into());
                }
                let rows = slots / lanes * self.ciphertexts;
                let mut tables = counts.iter().zip(digits);
                if tables.any(|(&count, digits)| digits.slots() > rows.saturating_mul(count)) {
                    return refuse("a table has more rows than its lanes".into());
                }
            }
        }
        Ok(())
    }

    /// By slot of ciphertext `number`: which value, if any, of those that the input holds; with lanes,
    /// of the one-hot vectors one after the other.
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
        }
        places
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
/// ciphertexts as there can be; `None` where a ciphertext has fewer lanes than there are features.
pub fn share_lanes(slots: usize, dim: usize, digits: &[Digits]) -> Option<(usize, Layout)> {
    let width = dim.next_power_of_two();
    let lanes = slots / width;
    if lanes < digits.len() || lanes == 0 {
        return None;
    }
    let counts = |ciphertexts: usize| -> Vec<usize> {
        let rows = width * ciphertexts;
        digits.iter().map(|digits| digits.slots().div_ceil(rows)).collect()
    };
    let mut ciphertexts = count_values(Values::Onehot, 0, digits).div_ceil(slots).max(1);
    while counts(ciphertexts).iter().sum::<usize>() > lanes {
        ciphertexts += 1;
    }
    let counts = counts(ciphertexts);
    Some((ciphertexts, Layout::Lanes { lanes, first: 0, width, counts }))
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
        for (ciphertexts, layout) in
            [share_lanes(4096, 16, &digits).unwrap(), own_lanes(4096, 16, 1, &digits).unwrap()]
        {
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
    fn shared_lanes_waste_little() {
        // The paper's ciphertexts of 32768 slots: 1, 1, 2, 18 and 85.
        for (threshold, ciphertexts_max) in [(500, 1), (5_000, 1), (50_000, 2), (500_000, 18)] {
            let (ciphertexts, _) = share_lanes(32_768, 16, &criteo(threshold)).unwrap();
            assert!(ciphertexts <= ciphertexts_max, "threshold {threshold}: {ciphertexts}");
        }
        let (ciphertexts, _) = share_lanes(8192, 16, &criteo(5_000_000)).unwrap();
        // 338.4 would be all slots.
        assert!(ciphertexts <= 355, "{ciphertexts}");
        assert!(share_lanes(256, 16, &criteo(500)).is_none());
    }
}
