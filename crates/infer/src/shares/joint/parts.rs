//! What is made for rows' bits and for each step of one inference, from bits that the servers draw to what they keep.

use std::ops::Range;

use hushtable_mpc::compare::joint::{Made, Making, Units, words};
use hushtable_mpc::compare::{Comparisons, Half, Prg};
use hushtable_mpc::ot::{Group, Mutual, SharedBits};
use zeroize::{Zeroize, Zeroizing};

use super::bits::{Bits, Numbers, bits_of};
use super::error::{DealError, taken};
use crate::shares::gate::Gates;
use crate::shares::lift::Lifts;
use crate::shares::outline::StepOutline;
use crate::shares::products::Products;
use crate::shares::stream::Stream;
use crate::shares::words::mask;

/// A step's part.
#[allow(clippy::large_enum_variant, reason = "most are of the large one")]
pub(super) enum Part {
    Relu(Relu),
    Lift(Numbers),
    Products(Vectors),
}

impl Part {
    /// Draws this server's shares: what is kept as a seed from `kept`, in the order in which it is used, the rest from
    /// `own`.
    pub fn new(step: StepOutline, half: Half, kept: &mut Stream, own: &mut Stream) -> Self {
        match step {
            StepOutline::Relu { count, bits } => {
                Self::Relu(Relu::new(Gates { count, bits }, half, kept, own))
            }
            StepOutline::Lift { count, bits } => {
                let mut r = own.words(count);
                let drawn = Bits::new(bits_of(&r, Lifts { count, bits }.bits), false);
                r.zeroize();
                Self::Lift(Numbers::new(drawn, bits as usize))
            }
            StepOutline::Products { vectors, dim } => {
                Self::Products(Vectors::new(Products { vectors, dim }, own))
            }
        }
    }

    /// All bits that are shared.
    pub fn bits(&mut self) -> Vec<&mut Bits> {
        match self {
            Self::Relu(relu) => vec![&mut relu.numbers.bits, &mut relu.m],
            Self::Lift(numbers) => vec![&mut numbers.bits],
            Self::Products(vectors) => vec![&mut vectors.bits],
        }
    }

    pub fn send_numbers(&mut self, half: Half, mutual: &mut Mutual) -> Vec<u8> {
        match self {
            Self::Relu(relu) => relu.numbers.send(half, mutual),
            Self::Lift(numbers) => numbers.send(half, mutual),
            Self::Products(vectors) => vectors.send(mutual),
        }
    }

    pub fn take_numbers(
        &mut self,
        half: Half,
        mutual: &mut Mutual,
        message: &mut &[u8],
    ) -> Result<(), DealError> {
        match self {
            Self::Relu(relu) => relu.numbers.take(half, mutual, message),
            Self::Lift(numbers) => numbers.take(half, mutual, message),
            Self::Products(vectors) => vectors.take(mutual, message),
        }
    }

    pub fn relu(&mut self) -> Option<&mut Relu> {
        match self {
            Self::Relu(relu) => Some(relu),
            Self::Lift(_) | Self::Products(_) => None,
        }
    }

    /// Adds what both servers get, and what this one does.
    pub fn finish(&self, common: &mut Vec<u8>, given: &mut Vec<u8>) {
        let mut put =
            |numbers: &[u32]| given.extend(numbers.iter().flat_map(|it| it.to_le_bytes()));
        match self {
            Self::Relu(relu) => {
                let products = |place: usize| relu.masked.iter().skip(place).step_by(3).copied();
                // A0, A1, m, m · A0, m · A1: m and its products lie gate after gate.
                let [a0, a1] = &relu.a;
                put(a0);
                put(a1);
                (0..3).for_each(|it| put(&products(it).collect::<Vec<_>>()));
                common.extend(words(relu.gates.comparisons(), &relu.made));
            }
            Self::Lift(numbers) => numbers.lowered().iter().for_each(|numbers| put(numbers)),
            Self::Products(vectors) => {
                put(&vectors.masks);
                put(&vectors.dots);
            }
        }
    }
}

/// A layer's gates.
pub(super) struct Relu {
    pub gates: Gates,
    /// The bits of each r.
    numbers: Numbers,
    m: Bits,
    roots: Zeroizing<Vec<u128>>,
    /// A0 and A1.
    a: [Vec<u32>; 2],
    /// m, m · A0 and m · A1 of each gate.
    masked: Zeroizing<Vec<u32>>,
    /// The bits of each r but the highest.
    points: SharedBits,
    units: Option<Units>,
    made: Vec<Made>,
    /// This server's share of each r: what tests hold what the other one sees to.
    #[cfg(test)]
    pub drawn: Vec<u32>,
}

impl Relu {
    fn new(gates: Gates, half: Half, kept: &mut Stream, own: &mut Stream) -> Self {
        let roots = Zeroizing::new(kept.blocks(gates.count));
        let c = kept.bits(gates.count);
        let mut r = own.words(gates.count);
        r.iter_mut().for_each(|r| *r &= mask(gates.bits));
        // m = 1 ⊕ r̂ ⊕ C.
        let one = u8::from(half == Half::Left);
        let tops = r.iter().map(|r| (r >> (gates.bits - 1)) as u8);
        let m = tops.zip(&c).map(|(top, c)| one ^ top ^ c).collect();
        let bits = Bits::new(bits_of(&r, gates.bits), true);
        #[cfg(test)]
        let drawn = r.clone();
        r.zeroize();
        Self {
            #[cfg(test)]
            drawn,
            gates,
            numbers: Numbers::new(bits, gates.bits as usize),
            m: Bits::new(m, true),
            roots,
            a: Default::default(),
            masked: Zeroizing::default(),
            points: SharedBits::default(),
            units: None,
            made: Vec::new(),
        }
    }

    pub fn send_masked(&mut self, half: Half, mutual: &mut Mutual) -> Vec<u8> {
        self.a = self.numbers.lowered();
        let [a0, a1] = &self.a;
        let one = u32::from(half == Half::Left);
        let values = a0.iter().zip(a1).flat_map(|(a0, a1)| [one, *a0, *a1]);
        let values = Zeroizing::new(values.collect::<Vec<_>>());
        let message;
        (self.masked, message) = mutual.multiply(Group::Add, &self.m.shared, &values);
        message
    }

    pub fn take_masked(
        &mut self,
        half: Half,
        mutual: &mut Mutual,
        message: &mut &[u8],
    ) -> Result<(), DealError> {
        let message = taken(message, 4 * self.masked.len())?;
        mutual.multiplied(Group::Add, &self.m.shared, &mut self.masked, message)?;
        let bits = self.gates.bits as usize;
        let places =
            (0..self.gates.count).flat_map(|key| (0..bits - 1).map(move |it| key * bits + it));
        self.points = self.numbers.bits.shared.at(places);
        self.units = Some(Units::new(half, self.gates.comparisons(), &self.points));
        Ok(())
    }

    pub fn has_units(&self) -> bool {
        self.units.as_ref().is_some_and(Units::is_done)
    }

    pub fn send_units(&mut self, mutual: &mut Mutual) -> Vec<u8> {
        self.units.as_mut().map(|units| units.send(mutual, &self.points)).unwrap_or_default()
    }

    pub fn take_units(
        &mut self,
        mutual: &mut Mutual,
        message: &mut &[u8],
    ) -> Result<(), DealError> {
        let Some(units) = &mut self.units else { return Ok(()) };
        let message = taken(message, units.message_bytes())?;
        Ok(units.take(mutual, &self.points, message)?)
    }

    /// Begins some of the keys.
    pub fn make(&self, prg: Prg, half: Half, range: Range<usize>) -> Making {
        let bits = self.gates.bits as usize - 1;
        let keys = Comparisons::new(range.len(), self.gates.bits - 1);
        let points = self.points.at(range.start * bits..range.end * bits);
        let units = self.units.as_ref().map(Units::shares).unwrap_or_default();
        Making::new(prg, half, keys, points, &self.roots[range.clone()], &units[range])
    }

    pub fn made(&mut self, making: Making) {
        self.made.push(making.made());
    }
}

impl Drop for Relu {
    fn drop(&mut self) {
        self.a.iter_mut().for_each(Zeroize::zeroize);
    }
}

/// Vectors whose products are taken.
pub(super) struct Vectors {
    products: Products,
    masks: Zeroizing<Vec<u32>>,
    /// Of all vectors but the first.
    bits: Bits,
    dots: Zeroizing<Vec<u32>>,
}

impl Vectors {
    fn new(products: Products, own: &mut Stream) -> Self {
        let masks = Zeroizing::new(own.words(products.values()));
        let bits = Bits::new(bits_of(masks.get(products.dim..).unwrap_or_default(), 32), true);
        let dots = products.pairs().map(|(i, j)| products.dot(&masks, i, &masks, j)).collect();
        Self { products, masks, bits, dots: Zeroizing::new(dots) }
    }

    /// For each of vector i's bits of the other server: the partners' values at its place, times what the bit stands for.
    fn send(&mut self, mutual: &mut Mutual) -> Vec<u8> {
        let (mut message, dim) = (Vec::new(), self.products.dim);
        for i in 1..self.products.vectors {
            let values = (0..dim).flat_map(|place| (0..32).map(move |bit| (place, bit)));
            let values =
                values.flat_map(|(place, bit)| (0..i).map(move |j| (j * dim + place, bit)));
            let values = values.map(|(at, bit)| self.masks[at] << bit);
            let values = Zeroizing::new(values.collect::<Vec<_>>());
            let offered = &self.bits.shared.offered()[self.range(i)];
            let (shares, sent) = mutual.offer(Group::Add, offered, &values);
            message.extend(sent);
            self.add(i, &shares);
        }
        message
    }

    fn take(&mut self, mutual: &mut Mutual, message: &mut &[u8]) -> Result<(), DealError> {
        for i in 1..self.products.vectors {
            let range = self.range(i);
            let message = taken(message, 4 * i * range.len())?;
            let (chosen, own) =
                (&self.bits.shared.chosen()[range.clone()], &self.bits.shared.own()[range]);
            let shares = mutual.accept(Group::Add, chosen, own, i, message)?;
            self.add(i, &shares);
        }
        Ok(())
    }

    /// Adds shares, each bit's one after the other, to the products of vector i.
    fn add(&mut self, i: usize, shares: &[u32]) {
        let dots = &mut self.dots[i * (i - 1) / 2..][..i];
        for shares in shares.chunks_exact(i) {
            dots.iter_mut().zip(shares).for_each(|(dot, share)| *dot = dot.wrapping_add(*share));
        }
    }

    /// Where vector i's bits are.
    fn range(&self, i: usize) -> Range<usize> {
        let bits = 32 * self.products.dim;
        (i - 1) * bits..i * bits
    }
}
