//! Hybrid key switching (Han and Ki, CT-RSA 2020): digits of several limbs, extended to all limbs and
//! to P's, times the rows of a key, over P.
//!
//! What is computed modulo Q · P stands for a ciphertext times P. Its residues modulo Q's primes are
//! kept already divided by P, modulo P's primes not: what is modulo Q alone is added to it as it is, and
//! dividing by P is a subtraction. Rows of keys are kept the same way.

use hushtable_ring::kernel::{ROWS_MAX, SOURCES_MAX};
use hushtable_ring::{Automorphism, Buffer, Kernel, Modulus, NttTable, Ring};

use super::crew::{Crew, Seat};
use super::switch_key::SwitchKey;
use super::{Error, Parameters};
use crate::Ciphertext;

/// Constants of the key switches of one parameter set.
#[derive(Debug)]
pub(super) struct Switcher {
    key_ring: Ring,
    /// Limbs of Q.
    limbs: usize,
    /// k: limbs of P, and of a digit.
    special: usize,
    /// By digit and by limbs of it that are left, less one.
    digits: Vec<Vec<Extension>>,
    /// By level, of what P divides, and of what P · q_level divides, from level 1 on.
    divisions: [Vec<Division>; 2],
}

/// From residues modulo a few primes to residues modulo others, centred.
#[derive(Debug)]
struct Extension {
    moduli: Vec<Modulus>,
    /// 1 / (D / q_i) modulo q_i, D the product of the primes.
    scales: Vec<u64>,
    /// By limb of the key ring: D / q_i times the target's factor, and −D times it.
    weights: Vec<Vec<u64>>,
    wraps: Vec<u64>,
}

impl Extension {
    /// From the limbs `sources` of `ring`; what it is extended to modulo each limb is multiplied with
    /// `factor`.
    fn new(ring: &Ring, sources: &[usize], factor: impl Fn(Modulus) -> u64) -> Self {
        let moduli: Vec<Modulus> = sources.iter().map(|&limb| ring.modulus(limb)).collect();
        let product_but = |modulus: Modulus, but: Option<usize>| {
            let others = moduli.iter().enumerate().filter(|&(index, _)| Some(index) != but);
            others.fold(1, |product, (_, other)| {
                modulus.mul(product, other.value() % modulus.value())
            })
        };
        let scale = |index: usize| moduli[index].inv(product_but(moduli[index], Some(index)));
        let weights = |target: Modulus| -> Vec<u64> {
            let factor = factor(target);
            let of = |index| target.mul(product_but(target, Some(index)), factor);
            (0..moduli.len()).map(of).collect()
        };
        let wrap =
            |target: Modulus| target.neg(target.mul(product_but(target, None), factor(target)));
        Self {
            scales: (0..moduli.len()).map(scale).collect(),
            weights: ring.moduli().map(weights).collect(),
            wraps: ring.moduli().map(wrap).collect(),
            moduli,
        }
    }

    /// `out` = what the scaled coefficients `xs`, wrapped `counts` times, are modulo limb `target`.
    fn extend(&self, ring: &Ring, target: usize, xs: &[&[u64]], counts: &[u8], out: &mut [u64]) {
        let (weights, wrap) = (&self.weights[target], self.wraps[target]);
        ring.kernel().combine(ring.modulus(target), xs, weights, counts, wrap, out);
    }
}

/// A rounded division of what is modulo Q · P.
#[derive(Debug)]
struct Division {
    /// From the primes that divide; −1 over their product is the factor.
    extension: Extension,
    /// What residues modulo the limbs that stay are multiplied with.
    factors: Vec<u64>,
}

/// Room for intermediate results, so that none of it is fresh.
#[derive(Default)]
pub(super) struct Room {
    pub cut: Cut,
    /// Mask and body modulo Q · P.
    pub sums: [Words; 2],
    /// What each thread has to itself.
    pub crew: Crew,
}

/// A mask's digits in coefficients, scaled for their extension.
#[derive(Default)]
pub(super) struct Cut {
    coefficients: Words,
    pub counts: Vec<u8>,
}

/// A buffer that grows to what is asked of it.
pub(super) struct Words(Buffer);

impl Default for Words {
    fn default() -> Self {
        Self(Buffer::zeroed(0))
    }
}

impl Words {
    /// `length` numbers of any content.
    pub fn take(&mut self, length: usize) -> &mut [u64] {
        if self.0.len() < length {
            // What was there goes first: both together are never needed.
            self.0 = Buffer::zeroed(0);
            self.0 = Buffer::zeroed(length);
        }
        &mut self.0[..length]
    }

    /// The first `length` numbers, which were taken before.
    pub fn held(&self, length: usize) -> &[u64] {
        &self.0[..length]
    }
}

/// What a division's quotient is added to and how its evaluations are shuffled before it is written.
#[derive(Clone, Copy, Default)]
pub(super) struct Finish<'a> {
    /// Added to the quotient, limb by limb.
    pub plus: Option<&'a [u64]>,
    /// Shuffles the sum.
    pub map: Option<&'a Automorphism>,
}

impl Switcher {
    /// # Errors
    /// [`Error::Parameters`] for more primes in P than a division can carry.
    pub fn new(parameters: &Parameters) -> Result<Self, Error> {
        let (special, limbs) = (parameters.special_limbs(), parameters.levels() + 1);
        // A division by P · q takes one source more.
        let most = SOURCES_MAX - 1;
        if special > most {
            let why = format!("{special} primes in P, key switching carries at most {most}");
            return Err(Error::Parameters { name: parameters.name().to_owned(), why });
        }
        // A product adds two terms to its rows'.
        let rows = limbs.div_ceil(special);
        if rows > ROWS_MAX - 2 {
            let why = format!("{rows} digits, key switching adds up at most {}", ROWS_MAX - 2);
            return Err(Error::Parameters { name: parameters.name().to_owned(), why });
        }
        let key_ring = parameters.lattice().key_ring().clone();
        let digits = (0..limbs.div_ceil(special)).map(|digit| {
            let first = digit * special;
            let whole = special.min(limbs - first);
            let left = |count| {
                let sources: Vec<usize> = (first..first + count).collect();
                Extension::new(&key_ring, &sources, |_| 1)
            };
            (1..=whole).map(left).collect()
        });
        let digits = digits.collect();
        let specials: Vec<usize> = (limbs..limbs + special).collect();
        let division = |level: usize, rescales: bool| {
            let mut sources = specials.clone();
            sources.extend(rescales.then_some(level));
            let divisors: Vec<Modulus> =
                sources.iter().map(|&limb| key_ring.modulus(limb)).collect();
            let negative_inverse = |target: Modulus| {
                let divisor = divisors.iter().fold(1, |product, divisor| {
                    target.mul(product, divisor.value() % target.value())
                });
                // A prime that divides is no target: what stands there for it is never used.
                if divisor == 0 { 0 } else { target.neg(target.inv(divisor)) }
            };
            let mut extension = Extension::new(&key_ring, &sources, negative_inverse);
            let mut factors = Vec::new();
            if rescales {
                // The residue modulo q_level is held over P already.
                *extension.scales.last_mut().expect("q_level's") = 1;
                let divisor = key_ring.modulus(level).value();
                let moduli = key_ring.moduli().take(level);
                factors.extend(moduli.map(|modulus| modulus.inv(divisor % modulus.value())));
            }
            Division { extension, factors }
        };
        let whole = vec![division(0, false)];
        let rescaled = (1..limbs).map(|level| division(level, true)).collect();
        Ok(Self { limbs, special, digits, divisions: [whole, rescaled], key_ring })
    }

    pub fn kernel(&self) -> Kernel {
        self.key_ring.kernel()
    }

    pub fn degree(&self) -> usize {
        self.key_ring.degree()
    }

    /// Limbs at `level`, Q's and then P's.
    pub fn limbs_at(&self, level: usize) -> usize {
        level + 1 + self.special
    }

    /// Digits at `level`.
    pub fn digits_at(&self, level: usize) -> usize {
        (level + 1).div_ceil(self.special)
    }

    /// The number in the key ring of limb `limb` of those at `level`.
    fn key_limb(&self, level: usize, limb: usize) -> usize {
        if limb <= level { limb } else { self.limbs + (limb - level - 1) }
    }

    /// The roots of limb `limb` of those at `level`.
    fn table(&self, level: usize, limb: usize) -> &NttTable {
        self.key_ring.table(self.key_limb(level, limb))
    }

    /// Limb `limb` of those at `level`.
    pub fn modulus(&self, level: usize, limb: usize) -> Modulus {
        self.table(level, limb).modulus()
    }

    /// The limbs at `level` that digit `digit` holds, and its extension.
    fn digit(&self, level: usize, digit: usize) -> (std::ops::Range<usize>, &Extension) {
        let first = digit * self.special;
        let end = (first + self.special).min(level + 1);
        (first..end, &self.digits[digit][end - first - 1])
    }

    /// Cuts the mask (evaluations over Q's limbs at `level`) into digits.
    pub fn cut(&self, level: usize, mask: &[u64], cut: &mut Cut, crew: &mut Crew) {
        let (degree, kernel) = (self.degree(), self.kernel());
        let coefficients = cut.coefficients.take(mask.len());
        cut.counts.resize(self.digits_at(level) * degree, 0);
        let length = self.special * degree;
        let owns = coefficients.chunks_mut(length).zip(mask.chunks(length));
        let digits = owns.zip(cut.counts.chunks_exact_mut(degree)).enumerate();
        crew.each(mask.len(), digits, |_, (digit, ((own, mask), counts))| {
            own.copy_from_slice(mask);
            let (range, extension) = self.digit(level, digit);
            for ((limb, values), &scale) in
                range.zip(own.chunks_exact_mut(degree)).zip(&extension.scales)
            {
                kernel.inverse_scaled(self.key_ring.table(limb), scale, values);
            }
            let xs: Vec<&[u64]> = own.chunks_exact(degree).collect();
            kernel.count_wraps(&extension.moduli, &xs, counts);
        });
    }

    /// Limb `limb` of digit `digit`, in evaluations: a part of the mask where it is one, or in `out`.
    fn extended<'a>(
        &self,
        (level, limb, digit): (usize, usize, usize),
        mask: &'a [u64],
        cut: &Cut,
        out: &'a mut [u64],
    ) -> &'a [u64] {
        let degree = self.degree();
        let (range, extension) = self.digit(level, digit);
        if range.contains(&limb) {
            return &mask[limb * degree..(limb + 1) * degree];
        }
        let own = &cut.coefficients.held((level + 1) * degree);
        let own = &own[range.start * degree..range.end * degree];
        let xs: Vec<&[u64]> = own.chunks_exact(degree).collect();
        let counts = &cut.counts[digit * degree..(digit + 1) * degree];
        let target = self.key_limb(level, limb);
        extension.extend(&self.key_ring, target, &xs, counts, out);
        self.kernel().forward(self.key_ring.table(target), out);
        out
    }

    /// All limbs of all digits of the mask, limb by limb, in evaluations: to be used for many keys.
    pub fn hoist(&self, level: usize, mask: &[u64], room: (&mut Cut, &mut Crew), out: &mut [u64]) {
        let (cut, crew) = room;
        self.cut(level, mask, cut, crew);
        let length = self.degree() * self.digits_at(level);
        crew.each(out.len(), out.chunks_exact_mut(length).enumerate(), |_, (limb, out)| {
            self.hoist_limb((level, limb), mask, cut, out);
        });
    }

    /// One limb of what [`hoist`](Self::hoist) leaves, of a mask whose `cut` was made.
    pub fn hoist_limb(
        &self,
        (level, limb): (usize, usize),
        mask: &[u64],
        cut: &Cut,
        out: &mut [u64],
    ) {
        let degree = self.degree();
        for (digit, out) in out.chunks_exact_mut(degree).enumerate() {
            let (range, _) = self.digit(level, digit);
            if range.contains(&limb) {
                out.copy_from_slice(&mask[limb * degree..(limb + 1) * degree]);
            } else {
                self.extended((level, limb, digit), mask, cut, out);
            }
        }
    }

    /// Switches the mask by `key`: mask and body modulo Q · P into `room.sums`. What is left of the
    /// product of `factors`, ciphertexts over Q, without its share of the secret's square, is added.
    pub fn switch(
        &self,
        level: usize,
        mask: &[u64],
        key: &SwitchKey,
        room: &mut Room,
        factors: Option<[&Ciphertext; 2]>,
    ) {
        let (degree, digits) = (self.degree(), self.digits_at(level));
        let (limbs, kernel) = (self.limbs_at(level), self.kernel());
        let Room { cut, sums, crew } = room;
        self.cut(level, mask, cut, crew);
        let [masks, bodies] = sums;
        let (masks, bodies) = (masks.take(limbs * degree), bodies.take(limbs * degree));
        let sums = masks.chunks_exact_mut(degree).zip(bodies.chunks_exact_mut(degree));
        let numbers = limbs * digits * degree;
        crew.each(numbers, sums.enumerate(), |seat, (limb, (mask_out, body_out))| {
            let Seat { digits: digit_room, limb: scaled, masks: mask_room, .. } = seat;
            let xs: Vec<&[u64]> = digit_room
                .take(digits * degree)
                .chunks_exact_mut(degree)
                .enumerate()
                .map(|(digit, out)| self.extended((level, limb, digit), mask, cut, out))
                .collect();
            let modulus = self.modulus(level, limb);
            let rows = key.rows((kernel, modulus), (level, limb), digits, mask_room);
            let outs = [mask_out, body_out];
            let Some([x, y]) = factors.filter(|_| limb <= level) else {
                kernel.row_products(modulus, &xs, rows, &[], outs);
                return;
            };
            // As the rows are, times what their sums are divided by.
            let weight = modulus.reduce_u128(1 << 52);
            let (first, rest) = scaled.take(3 * degree).split_at_mut(degree);
            let (second, nothing) = rest.split_at_mut(degree);
            for (scaled, own) in [(&mut *first, &x.body), (&mut *second, &x.mask)] {
                scaled.copy_from_slice(own.limb(limb));
                kernel.scale_assign(modulus, scaled, weight);
            }
            nothing.fill(0);
            let (mask, body) = (y.mask.limb(limb), y.body.limb(limb));
            let more = [(&*first, [mask, body]), (&*second, [body, &*nothing])];
            kernel.row_products(modulus, &xs, rows, &more, outs);
        });
    }

    /// One limb of a switch by `key`, of that limb of what [`hoist`](Self::hoist) left.
    pub fn switch_hoisted(
        &self,
        (level, limb): (usize, usize),
        own: &[u64],
        key: &SwitchKey,
        room: &mut Words,
        outs: [&mut [u64]; 2],
    ) {
        let xs: Vec<&[u64]> = own.chunks_exact(self.degree()).collect();
        let (kernel, modulus) = (self.kernel(), self.modulus(level, limb));
        let rows = key.rows((kernel, modulus), (level, limb), xs.len(), room);
        kernel.row_products(modulus, &xs, rows, &[], outs);
    }

    /// Divides a polynomial modulo Q · P at `level` by P, and by q_level besides where `rescales`:
    /// rounded, to `out`, whose limbs are those that stay. `sum` is used up.
    pub fn divide(
        &self,
        (level, rescales): (usize, bool),
        sum: &mut [u64],
        finish: Finish,
        (counts, crew): (&mut Vec<u8>, &mut Crew),
        out: &mut [u64],
    ) {
        let (degree, kernel) = (self.degree(), self.kernel());
        let division = match rescales {
            false => &self.divisions[0][0],
            true => &self.divisions[1][level - 1],
        };
        let kept = if rescales { level } else { level + 1 };
        let (stay, rest) = sum.split_at_mut(kept * degree);
        // q_level stands before P's primes here, and behind them in the extension.
        let rest: &mut [u64] = rest;
        let first = level + 1 - kept;
        let count = first + self.special;
        let order = |source: usize| (source + first) % count;
        crew.each(rest.len(), rest.chunks_exact_mut(degree).enumerate(), |_, (at, values)| {
            let scale = division.extension.scales[(at + count - first) % count];
            kernel.inverse_scaled(self.table(level, kept + at), scale, values);
        });
        let xs: Vec<&[u64]> = (0..count)
            .map(|source| &rest[order(source) * degree..(order(source) + 1) * degree])
            .collect();
        counts.resize(degree, 0);
        kernel.count_wraps(&division.extension.moduli, &xs, counts);
        let numbers = stay.len();
        let limbs = stay.chunks_exact_mut(degree).zip(out.chunks_exact_mut(degree));
        crew.each(numbers, limbs.enumerate(), |seat, (limb, (sum, out))| {
            let scratch = &mut seat.limb;
            let table = self.key_ring.table(limb);
            let modulus = table.modulus();
            let quotient = match finish.map {
                Some(_) => scratch.take(degree),
                None => &mut *out,
            };
            division.extension.extend(&self.key_ring, limb, &xs, counts, quotient);
            kernel.forward(table, quotient);
            if let Some(&factor) = division.factors.get(limb) {
                kernel.scale_assign(modulus, sum, factor);
            }
            kernel.add_assign(modulus, quotient, sum);
            if let Some(plus) = finish.plus {
                kernel.add_assign(modulus, quotient, &plus[limb * degree..(limb + 1) * degree]);
            }
            if let Some(map) = finish.map {
                kernel.permute(scratch.held(degree), map.indices(), out);
            }
        });
    }
}

impl Room {
    /// Divides `sums[side]`, as [`Switcher::divide`].
    pub fn divide(
        &mut self,
        switcher: &Switcher,
        (level, rescales): (usize, bool),
        side: usize,
        finish: Finish,
        out: &mut [u64],
    ) {
        let length = switcher.limbs_at(level) * switcher.degree();
        let sum = self.sums[side].take(length);
        let room = (&mut self.cut.counts, &mut self.crew);
        switcher.divide((level, rescales), sum, finish, room, out);
    }
}
