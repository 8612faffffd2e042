//! Linear maps on ciphertexts: baby steps and giant steps, both hoisted (Bossuat, Mouchet,
//! Troncoso-Pastoriza and Hubaux, EUROCRYPT 2021, algorithm 6).
//!
//! out = Σ_g rot_g(Σ_b p_(g, b) · rot_b(in)). Every ciphertext's digits are cut once for all its baby
//! steps, whose sums stay modulo Q · P: they are multiplied with plaintexts modulo Q · P, and only each
//! giant step's sum over all ciphertexts is divided by P, its mask alone. The giant steps' sums stay
//! modulo Q · P again until one division at the end.

use std::collections::{BTreeMap, BTreeSet};

use hushtable_ring::kernel::{PACKED_MAX, PackedGroup, pack_runs, width_bytes};
use hushtable_ring::{Kernel, Modulus, Ring};

use super::keys::{EvaluationKeys, MapKey, key_ring};
use super::switch::{Finish, Room, Switcher, Words};
use super::{Diagonals, Encoder, Error, Parameters, Split, rules};
use crate::Ciphertext;

/// A linear map, its diagonals encoded.
pub struct Transform {
    level: usize,
    scale: f64,
    /// By giant step, ascending.
    groups: Vec<Group>,
    /// By limb; within one by group, all whose baby steps' plaintexts are packed together, and times
    /// 2^52, which their sums of products are divided by.
    packed: Vec<Vec<Vec<u8>>>,
}

/// The diagonals of one giant step.
struct Group {
    giant: usize,
    /// Ascending.
    babies: Vec<usize>,
    /// How many equal evaluations every diagonal has side by side, of which one is held.
    run: usize,
}

impl Group {
    /// The groups of `map`.
    fn all(parameters: &Parameters, map: &Diagonals, split: Split) -> Vec<Self> {
        let mut groups: Vec<Self> = Vec::new();
        // They are ascending.
        for step in map.steps() {
            let (giant, baby) = (step - step % split.baby_steps, step % split.baby_steps);
            let values = map.diagonal(step).expect("of steps that it has").len();
            let run = Encoder::run(parameters.degree(), values);
            match groups.last_mut() {
                Some(group) if group.giant == giant => {
                    group.babies.push(baby);
                    group.run = group.run.min(run);
                }
                _ => groups.push(Self { giant, babies: vec![baby], run }),
            }
        }
        groups
    }

    /// Bytes of its plaintexts modulo one prime.
    fn bytes(&self, degree: usize, modulus: Modulus) -> usize {
        self.babies.len() * (degree / self.run) * width_bytes(modulus)
    }
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
        let groups = Group::all(parameters, map, split);
        let ring = plain_ring(parameters, level, &groups)?;
        let degree = ring.degree();
        let weights: Vec<_> = ring.moduli().map(|modulus| modulus.reduce_u128(1 << 52)).collect();
        let room = |modulus| {
            groups.iter().map(|group: &Group| vec![0; group.bytes(degree, modulus)]).collect()
        };
        let mut packed: Vec<Vec<Vec<u8>>> = ring.moduli().map(room).collect();
        for (number, Group { giant, babies, run }) in groups.iter().enumerate() {
            let mut all = vec![0; degree / run];
            for (index, baby) in babies.iter().enumerate() {
                let mut diagonal = map.complex(giant + baby).expect("of steps that it has");
                // The giant step comes after the product: the diagonal is rotated back.
                let turn = giant % diagonal.len();
                diagonal.rotate_right(turn);
                let mut words = encoder.encode_runs(&ring, diagonal, scale)?;
                let own = words.len() / ring.limbs();
                for (limb, words) in words.chunks_exact_mut(own).enumerate() {
                    let modulus = ring.modulus(limb);
                    ring.kernel().scale_assign(modulus, words, weights[limb]);
                    for (all, word) in all.chunks_exact_mut(degree / run / own).zip(&*words) {
                        all.fill(*word);
                    }
                    let place = (babies.len(), index);
                    pack_runs(modulus, &all, *run, place, &mut packed[limb][number]);
                }
            }
        }
        Ok(Self { level, scale, groups, packed })
    }

    /// Bytes of memory that what [`new`](Self::new) makes takes.
    ///
    /// # Errors
    /// As [`Evaluate::prepared_bytes`](super::Evaluate::prepared_bytes).
    pub(super) fn bytes(
        parameters: &Parameters,
        map: &Diagonals,
        split: Split,
        level: usize,
    ) -> Result<usize, Error> {
        rules::map(parameters, map, split, level)?;
        let groups = Group::all(parameters, map, split);
        let ring = plain_ring(parameters, level, &groups)?;
        let of_limb = |modulus| -> usize {
            groups.iter().map(|group| group.bytes(ring.degree(), modulus)).sum()
        };
        Ok(Self::bytes_with(&groups, ring.limbs(), ring.moduli().map(of_limb).sum()))
    }

    /// Bytes of memory with `packed` bytes of plaintexts over `limbs` limbs.
    fn bytes_with(groups: &[Group], limbs: usize, packed: usize) -> usize {
        let babies: usize = groups.iter().map(|group| group.babies.len()).sum();
        let vectors = limbs * (1 + groups.len()) * size_of::<Vec<u8>>();
        let groups = size_of_val(groups) + babies * size_of::<usize>();
        size_of::<Self>() + packed + vectors + groups
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
        let packed = self.packed.iter().flatten().map(Vec::capacity).sum();
        Self::bytes_with(&self.groups, self.limbs(), packed)
    }

    /// Limbs of the plaintexts: Q's at the level, and P's where there are baby steps.
    fn limbs(&self) -> usize {
        self.packed.len()
    }

    /// The baby steps, 0 left out.
    fn babies(&self) -> BTreeSet<usize> {
        let babies = self.groups.iter().flat_map(|group| &group.babies);
        babies.copied().filter(|&baby| baby > 0).collect()
    }
}

/// The ring of plaintexts: P's limbs are needed where baby steps leave sums modulo Q · P.
fn plain_ring(parameters: &Parameters, level: usize, groups: &[Group]) -> Result<Ring, Error> {
    match groups.iter().flat_map(|group| &group.babies).any(|&baby| baby > 0) {
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
            maps.iter().flat_map(|map| map.groups.iter().map(|group| group.giant)).collect();
        let giants: Vec<usize> = giants.into_iter().collect();
        let giant_keys = giants.iter().map(|&giant| key(giant)).collect::<Result<Vec<_>, _>>()?;
        let limbs = maps.iter().map(|map| map.limbs()).max().unwrap_or(level + 1);
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
            let factors = factors(xs, keys, rotated, (limb, is_special));
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
            switcher.switch(level, mask, &key.key, self.room, None);
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

/// One limb of what is multiplied by a plaintext, mask and body, by baby step. What is not rotated is
/// times P: it is zero modulo P's primes.
type Factors<'a> = BTreeMap<usize, [&'a [u64]; 2]>;

/// The factors of every map.
fn factors<'a>(
    xs: &[&'a Ciphertext],
    keys: &[BTreeMap<usize, &MapKey>],
    mut rotated: &'a [u64],
    (limb, is_special): (usize, bool),
) -> Vec<Factors<'a>> {
    let mut all = Vec::with_capacity(xs.len());
    for (x, keys) in xs.iter().zip(keys) {
        let degree = x.mask.degree();
        let (own, rest) = rotated.split_at(2 * keys.len() * degree);
        rotated = rest;
        let pairs = own.chunks_exact(2 * degree).map(|pair| pair.split_at(degree));
        let mut factors: Factors =
            keys.keys().copied().zip(pairs.map(|(mask, body)| [mask, body])).collect();
        if !is_special {
            factors.insert(0, [x.mask.limb(limb), x.body.limb(limb)]);
        }
        all.push(factors);
    }
    all
}

/// The products of one limb.
struct Products<'a> {
    /// By map.
    factors: &'a [Factors<'a>],
    giants: &'a [usize],
    limb: usize,
    /// Limbs of the sums.
    limbs: usize,
}

impl Products<'_> {
    /// Writes limb `limb` of each giant step's sums.
    fn add_up(&self, switcher: &Switcher, level: usize, maps: &[&Transform], sums: &mut [u64]) {
        let degree = switcher.degree();
        let modulus = switcher.modulus(level, self.limb);
        let groups: Vec<_> = self.giants.iter().map(|&giant| self.groups(maps, giant)).collect();
        let block = BLOCK.min(degree);
        let length = self.limbs * degree;
        let mut part = [vec![0; block], vec![0; block]];
        for start in (0..degree).step_by(block) {
            for (groups, sums) in groups.iter().zip(sums.chunks_exact_mut(2 * length)) {
                let at = self.limb * degree + start;
                let (mask, body) = sums.split_at_mut(length);
                let outs = [&mut mask[at..at + block], &mut body[at..at + block]];
                add_up_groups(switcher.kernel(), modulus, groups, start, &mut part, outs);
            }
        }
    }

    /// What is added up for one giant step.
    fn groups<'a>(&'a self, maps: &'a [&Transform], giant: usize) -> Vec<PackedGroup<'a>> {
        let mut groups = Vec::with_capacity(maps.len());
        for (map, factors) in maps.iter().zip(self.factors) {
            let found = map.groups.binary_search_by_key(&giant, |group| group.giant);
            let Some(number) = found.ok().filter(|_| self.limb < map.limbs()) else { continue };
            let Group { babies, run, .. } = &map.groups[number];
            let of_baby = |(term, baby): (usize, &usize)| Some((term, *factors.get(baby)?));
            let terms: Vec<_> = babies.iter().enumerate().filter_map(of_baby).collect();
            groups.extend(terms.chunks(PACKED_MAX).map(|terms| PackedGroup {
                packed: &map.packed[self.limb][number],
                count: babies.len(),
                run: *run,
                terms: terms.to_vec(),
            }));
        }
        groups
    }
}

/// Writes the sums of `groups` from number `start` on, as many of them at a time as one sum carries.
fn add_up_groups(
    kernel: Kernel,
    modulus: Modulus,
    groups: &[PackedGroup],
    start: usize,
    part: &mut [Vec<u64>; 2],
    [mask, body]: [&mut [u64]; 2],
) {
    let mut rest = groups;
    let mut is_first = true;
    while !rest.is_empty() {
        let mut terms = 0;
        let fits = |group: &&PackedGroup| {
            terms += group.terms.len();
            terms <= PACKED_MAX
        };
        // No group is larger than that by itself.
        let count = rest.iter().take_while(fits).count();
        let (now, later) = rest.split_at(count);
        rest = later;
        if is_first {
            kernel.packed_products(modulus, now, start, [&mut *mask, &mut *body]);
            is_first = false;
            continue;
        }
        let [first, second] = &mut *part;
        kernel.packed_products(modulus, now, start, [first, second]);
        kernel.add_assign(modulus, mask, first);
        kernel.add_assign(modulus, body, second);
    }
    if is_first {
        mask.fill(0);
        body.fill(0);
    }
}

/// Numbers of every baby step that are multiplied together: they fit the second-level cache.
const BLOCK: usize = 512;
