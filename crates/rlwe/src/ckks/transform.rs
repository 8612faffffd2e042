//! Linear maps on ciphertexts: baby steps and giant steps, both hoisted (Bossuat, Mouchet,
//! Troncoso-Pastoriza and Hubaux, EUROCRYPT 2021, algorithm 6).
//!
//! out = Σ_g rot_g(Σ_b p_(g, b) · rot_b(in)). Every ciphertext's digits are cut once for all its baby
//! steps, whose sums stay modulo Q · P: they are multiplied with plaintexts modulo Q · P, and only each
//! giant step's sum over all ciphertexts is divided by P, its mask alone. The giant steps' sums stay
//! modulo Q · P again until one division at the end.

use std::collections::{BTreeMap, BTreeSet};

use hushtable_ring::{Buffer, Ring};

use super::keys::{EvaluationKeys, MapKey, key_ring};
use super::switch::{Finish, Room, Switcher, Words};
use super::{Diagonals, Encoder, Error, Parameters, Split, rules};
use crate::Ciphertext;

/// A linear map, its diagonals encoded.
pub struct Transform {
    level: usize,
    scale: f64,
    degree: usize,
    /// Limbs of the plaintexts: Q's at the level, and P's where there are baby steps.
    limbs: usize,
    /// Giant and baby steps, ascending.
    steps: Vec<(usize, usize)>,
    /// By limb, by block of numbers, by step: what is multiplied together lies together.
    values: Buffer,
}

impl Transform {
    /// Encodes `map`.
    ///
    /// # Errors
    /// As [`Evaluate::prepare`](super::Evaluate::prepare).
    pub(super) fn new(
        encoder: &Encoder,
        map: &Diagonals,
        split: Split,
        level: usize,
        scale: f64,
    ) -> Result<Self, Error> {
        let parameters = encoder.parameters();
        rules::preparable(parameters, map, split, level, scale)?;
        let cut = |steps: usize| (steps - steps % split.baby_steps, steps % split.baby_steps);
        let mut steps: Vec<_> = map.steps().map(cut).collect();
        steps.sort_unstable();
        let has_babies = steps.iter().any(|&(_, baby)| baby > 0);
        let ring = plain_ring(parameters, level, has_babies)?;
        let (degree, limbs) = (ring.degree(), ring.limbs());
        let block = BLOCK.min(degree);
        let mut values = Buffer::zeroed(limbs * degree * steps.len());
        for (index, &(giant, baby)) in steps.iter().enumerate() {
            let diagonal = map.diagonal(giant + baby).expect("of steps that it has");
            // The giant step comes after the product: the diagonal is rotated back.
            let mut rotated = diagonal.to_vec();
            rotated.rotate_right(giant % diagonal.len());
            let poly = encoder.encode_over(&ring, &rotated, scale)?;
            let blocks = values.chunks_exact_mut(block * steps.len());
            for (values, poly) in blocks.zip(poly.values().chunks_exact(block)) {
                values[index * block..(index + 1) * block].copy_from_slice(poly);
            }
        }
        Ok(Self { level, scale, degree, limbs, steps, values })
    }

    /// The level of the ciphertexts that it is for.
    pub fn level(&self) -> usize {
        self.level
    }

    /// What its numbers were multiplied with.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// Bytes of memory that it takes.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(self.steps.as_slice()) + self.values.memory_bytes()
    }

    /// The baby steps, 0 left out.
    fn babies(&self) -> BTreeSet<usize> {
        self.steps.iter().map(|&(_, baby)| baby).filter(|&baby| baby > 0).collect()
    }

    /// Block `block` of limb `limb` of every step's plaintext.
    fn block(&self, limb: usize, block: usize) -> &[u64] {
        let length = BLOCK.min(self.degree);
        let blocks = self.degree / length;
        let start = (limb * blocks + block) * length * self.steps.len();
        &self.values[start..start + length * self.steps.len()]
    }
}

/// The ring of plaintexts: P's limbs are needed where baby steps leave sums modulo Q · P.
fn plain_ring(parameters: &Parameters, level: usize, has_babies: bool) -> Result<Ring, Error> {
    match has_babies {
        true => key_ring(parameters, level),
        false => Ok(parameters.ring(level).clone()),
    }
}

/// Room that transforms compute in.
#[derive(Default)]
pub(super) struct Sums {
    /// Every ciphertext's digits.
    hoisted: Vec<Words>,
    /// One limb of every ciphertext's baby steps, mask and body.
    babies: Words,
    /// By giant step, side and limb.
    giants: Words,
    /// Mask and body modulo Q · P.
    total: [Words; 2],
    mask: Words,
}

/// One transform.
pub(super) struct Run<'a> {
    pub switcher: &'a Switcher,
    pub keys: &'a EvaluationKeys,
    pub room: &'a mut Room,
    pub sums: &'a mut Sums,
    pub level: usize,
}

impl Run<'_> {
    /// Σ maps[i](xs[i]) to `out`, divided by q_level where `rescales`.
    pub fn transform(
        mut self,
        maps: &[&Transform],
        xs: &[&Ciphertext],
        rescales: bool,
        out: &mut Ciphertext,
    ) -> Result<(), Error> {
        let level = self.level;
        let key = |steps| match steps {
            0 => Ok(None),
            steps => self.keys.rotation(steps, level).map(Some),
        };
        let of_babies = |map: &&Transform| -> Result<BTreeMap<usize, &MapKey>, Error> {
            let of = |baby| Ok((baby, self.keys.rotation(baby, level)?));
            map.babies().into_iter().map(of).collect()
        };
        let baby_keys = maps.iter().map(of_babies).collect::<Result<Vec<_>, _>>()?;
        let giants: BTreeSet<usize> =
            maps.iter().flat_map(|map| map.steps.iter().map(|&(giant, _)| giant)).collect();
        let giants: Vec<usize> = giants.into_iter().collect();
        let giant_keys = giants.iter().map(|&giant| key(giant)).collect::<Result<Vec<_>, _>>()?;
        let limbs = maps.iter().map(|map| map.limbs).max().unwrap_or(level + 1);
        self.multiply(maps, xs, &baby_keys, &giants, limbs);
        self.rotate(&giant_keys, limbs);
        for (side, out) in [&mut out.mask, &mut out.body].into_iter().enumerate() {
            let sum = self.sums.total[side].take(self.switcher.limbs_at(level) * out.degree());
            let room = (&mut self.room.cut.counts, &mut self.room.limb);
            let finish = Finish::default();
            self.switcher.divide((level, rescales), sum, finish, room, out.values_mut());
        }
        Ok(())
    }

    /// Every giant step's sum of products, over `limbs` limbs.
    fn multiply(
        &mut self,
        maps: &[&Transform],
        xs: &[&Ciphertext],
        keys: &[BTreeMap<usize, &MapKey>],
        giants: &[usize],
        limbs: usize,
    ) {
        let (switcher, level, degree) = (self.switcher, self.level, self.switcher.degree());
        let Sums { hoisted, babies, giants: sums, .. } = &mut *self.sums;
        let digits = switcher.limbs_at(level) * switcher.digits_at(level) * degree;
        hoisted.resize_with(hoisted.len().max(xs.len()), Words::default);
        for ((x, keys), hoisted) in xs.iter().zip(keys).zip(&mut *hoisted) {
            if !keys.is_empty() {
                let cut = &mut self.room.cut;
                switcher.hoist(level, x.mask.values(), cut, hoisted.take(digits));
            }
        }
        let count: usize = keys.iter().map(BTreeMap::len).sum();
        let sums = sums.take(giants.len() * 2 * limbs * degree);
        let kernel = switcher.kernel();
        for limb in 0..limbs {
            let is_special = limb > level;
            let rotated = babies.take(2 * count * degree);
            let mut rest = rotated.chunks_exact_mut(2 * degree);
            for ((x, keys), hoisted) in xs.iter().zip(keys).zip(&*hoisted) {
                for (key, out) in keys.values().zip(rest.by_ref()) {
                    let (mask_out, body_out) = out.split_at_mut(degree);
                    let (mask, body) = self.room.limb.take(2 * degree).split_at_mut(degree);
                    let hoisted = hoisted.held(digits);
                    switcher.switch_hoisted((level, limb), hoisted, &key.key, [mask, body]);
                    if !is_special {
                        kernel.add_assign(switcher.modulus(level, limb), body, x.body.limb(limb));
                    }
                    kernel.permute(mask, key.map.indices(), mask_out);
                    kernel.permute(body, key.map.indices(), body_out);
                }
            }
            let rotated = babies.held(2 * count * degree);
            let factors = factors(maps, xs, keys, rotated, (limb, is_special));
            let products = Products { factors: &factors, giants, limb, limbs };
            products.add_up(switcher, level, maps, sums);
        }
    }

    /// The sum of the giant steps' sums, each switched by its key, to `total`.
    fn rotate(&mut self, keys: &[Option<&MapKey>], limbs: usize) {
        let (switcher, level, degree) = (self.switcher, self.level, self.switcher.degree());
        let kernel = switcher.kernel();
        let all = switcher.limbs_at(level) * degree;
        let Sums { giants, total, mask: quotient, .. } = &mut *self.sums;
        let length = limbs * degree;
        let giants = giants.take(keys.len() * 2 * length);
        let [total_mask, total_body] = total;
        let mut totals = [total_mask.take(all), total_body.take(all)];
        totals.iter_mut().for_each(|total| total.fill(0));
        for (sums, key) in giants.chunks_exact_mut(2 * length).zip(keys) {
            let (mask, body) = sums.split_at_mut(length);
            let Some(key) = key else {
                for (total, sum) in totals.iter_mut().zip([mask, body]) {
                    for (limb, sum) in sum.chunks_exact(degree).enumerate() {
                        let total = &mut total[limb * degree..(limb + 1) * degree];
                        kernel.add_assign(switcher.modulus(level, limb), total, sum);
                    }
                }
                continue;
            };
            let mask: &[u64] = if limbs > level + 1 {
                let out = quotient.take((level + 1) * degree);
                let room = (&mut self.room.cut.counts, &mut self.room.limb);
                switcher.divide((level, false), mask, Finish::default(), room, out);
                out
            } else {
                mask
            };
            switcher.switch(level, mask, &key.key, self.room, |_| Vec::new());
            for (side, total) in totals.iter_mut().enumerate() {
                let sum = self.room.sums[side].take(all);
                let parts = sum.chunks_exact_mut(degree).zip(total.chunks_exact_mut(degree));
                for (limb, (sum, total)) in parts.enumerate() {
                    let modulus = switcher.modulus(level, limb);
                    if side == 1 && limb < limbs {
                        let body = &body[limb * degree..(limb + 1) * degree];
                        kernel.add_assign(modulus, sum, body);
                    }
                    let rotated = self.room.limb.take(degree);
                    kernel.permute(sum, key.map.indices(), rotated);
                    kernel.add_assign(modulus, total, rotated);
                }
            }
        }
    }
}

/// One limb of what is multiplied by a plaintext: by map and step, mask and body. Nothing where it is
/// zero.
fn factors<'a>(
    maps: &[&Transform],
    xs: &[&'a Ciphertext],
    keys: &[BTreeMap<usize, &MapKey>],
    rotated: &'a [u64],
    (limb, is_special): (usize, bool),
) -> Vec<Vec<Option<[&'a [u64]; 2]>>> {
    let mut rotated = rotated;
    let mut all = Vec::with_capacity(maps.len());
    for ((map, x), keys) in maps.iter().zip(xs).zip(keys) {
        let (own, rest) = rotated.split_at(2 * keys.len() * map.degree);
        rotated = rest;
        let by_baby: BTreeMap<usize, &[u64]> =
            keys.keys().copied().zip(own.chunks_exact(2 * map.degree)).collect();
        let of_step = |&(_, baby): &(usize, usize)| match by_baby.get(&baby) {
            Some(pair) => {
                let (mask, body) = pair.split_at(map.degree);
                Some([mask, body])
            }
            // What was not rotated is times P: zero modulo P's primes.
            None if is_special => None,
            None => Some([x.mask.limb(limb), x.body.limb(limb)]),
        };
        all.push(map.steps.iter().map(of_step).collect());
    }
    all
}

/// The products of one limb.
struct Products<'a> {
    /// As [`factors`] gives them.
    factors: &'a [Vec<Option<[&'a [u64]; 2]>>],
    giants: &'a [usize],
    limb: usize,
    /// Limbs of the sums.
    limbs: usize,
}

impl Products<'_> {
    /// Writes limb `limb` of each giant step's sums.
    fn add_up(&self, switcher: &Switcher, level: usize, maps: &[&Transform], sums: &mut [u64]) {
        let (degree, kernel) = (switcher.degree(), switcher.kernel());
        let modulus = switcher.modulus(level, self.limb);
        let block = BLOCK.min(degree);
        let length = self.limbs * degree;
        let (mut plain, mut masks, mut bodies) = (Vec::new(), Vec::new(), Vec::new());
        let mut part = [vec![0; block], vec![0; block]];
        for index in 0..degree / block {
            let range = index * block..(index + 1) * block;
            for (&giant, sums) in self.giants.iter().zip(sums.chunks_exact_mut(2 * length)) {
                (plain.clear(), masks.clear(), bodies.clear());
                for (map, factors) in maps.iter().zip(self.factors) {
                    let first = map.steps.partition_point(|&(other, _)| other < giant);
                    let end = map.steps.partition_point(|&(other, _)| other <= giant);
                    if self.limb >= map.limbs || first == end {
                        continue;
                    }
                    let plains = map.block(self.limb, index).chunks_exact(block);
                    for (values, factors) in plains.zip(factors).take(end).skip(first) {
                        if let Some([mask, body]) = factors {
                            plain.push(values);
                            masks.push(&mask[range.clone()]);
                            bodies.push(&body[range.clone()]);
                        }
                    }
                }
                let (mask, body) = sums.split_at_mut(length);
                let at = self.limb * degree + range.start;
                let outs = [&mut mask[at..at + block], &mut body[at..at + block]];
                if plain.is_empty() {
                    outs.into_iter().for_each(|out| out.fill(0));
                    continue;
                }
                let most = hushtable_ring::kernel::TERMS_MAX;
                let chunks = plain.chunks(most).zip(masks.chunks(most)).zip(bodies.chunks(most));
                let [mask, body] = outs;
                for (number, ((plain, masks), bodies)) in chunks.enumerate() {
                    if number == 0 {
                        let outs = [&mut *mask, &mut *body];
                        kernel.inner_products(modulus, plain, [masks, bodies], outs);
                        continue;
                    }
                    let [first, second] = &mut part;
                    let outs = [first.as_mut_slice(), second.as_mut_slice()];
                    kernel.inner_products(modulus, plain, [masks, bodies], outs);
                    kernel.add_assign(modulus, mask, first);
                    kernel.add_assign(modulus, body, second);
                }
            }
        }
    }
}

/// Numbers of a plaintext that lie side by side: a block of each baby step fits the second-level cache.
const BLOCK: usize = 512;
