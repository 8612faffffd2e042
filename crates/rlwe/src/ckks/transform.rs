//! Linear maps on ciphertexts: baby steps and giant steps, both hoisted (Bossuat, Mouchet,
//! Troncoso-Pastoriza and Hubaux, EUROCRYPT 2021, algorithm 6).
//!
//! out = Σ_g rot_g(Σ_b p_(g, b) · rot_b(in)). Every ciphertext's digits are cut once for all its baby
//! steps, whose sums stay modulo Q · P: they are multiplied with plaintexts modulo Q · P, and only each
//! giant step's sum over all ciphertexts is divided by P, its mask alone. The giant steps' sums stay
//! modulo Q · P again until one division at the end.
//!
//! Two ways save keys. Baby steps of two rotations cut the digits of what the first leaves once more, its
//! mask divided by P. Chained giant steps rotate the sum of all that lie above: one key for them all.

use std::collections::{BTreeMap, BTreeSet};

use hushtable_ring::kernel::{PACKED_MAX, PackedGroup, pack_runs, width_bytes};
use hushtable_ring::{Kernel, Modulus, Ring};

use super::keys::{EvaluationKeys, MapKey, key_ring};
use super::switch::{Cut, Finish, Room, Switcher, Words};
use super::{Diagonals, Encoder, Error, Parameters, Split, rules};
use crate::Ciphertext;

/// A linear map, its diagonals encoded.
pub struct Transform {
    level: usize,
    scale: f64,
    split: Split,
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
        Ok(Self { level, scale, split, groups, packed })
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
    /// What the first of two rotations left.
    outers: Vec<Outer>,
    /// By giant step, side and limb.
    giants: Words,
    /// Mask and body modulo Q · P.
    total: [Words; 2],
    mask: Words,
}

/// What the first of two rotations left.
#[derive(Default)]
struct Outer {
    /// Mask and body modulo Q · P, side by side.
    whole: Words,
    /// The mask divided by P, and its digits.
    mask: Words,
    cut: Cut,
}

/// A ciphertext whose baby steps are taken: by the first rotation and the second, their keys.
struct Source<'a> {
    x: &'a Ciphertext,
    /// Rotations of the ciphertext.
    inner: BTreeMap<usize, &'a MapKey>,
    /// Rotations whose results are used, and rotated again by the second.
    outer: Vec<(usize, &'a MapKey, BTreeMap<usize, &'a MapKey>)>,
}

impl Source<'_> {
    fn is_rotated(&self) -> bool {
        !self.inner.is_empty() || !self.outer.is_empty()
    }

    /// Key switches.
    fn count(&self) -> usize {
        let again = self.outer.iter().map(|(.., again)| 1 + again.len());
        self.inner.len() + again.sum::<usize>()
    }

    /// The baby steps in the order in which they are computed.
    fn steps(&self) -> impl Iterator<Item = usize> {
        let outer = self.outer.iter().flat_map(|(outer, _, again)| {
            std::iter::once(*outer).chain(again.keys().map(move |inner| outer + inner))
        });
        self.inner.keys().copied().chain(outer)
    }
}

/// The keys of giant steps.
enum Giants<'a> {
    /// By giant step; none for that by 0.
    Each(Vec<Option<&'a MapKey>>),
    /// One for steps of this many.
    Chained(usize, Option<&'a MapKey>),
}

/// One transform.
pub(super) struct Run<'a> {
    pub switcher: &'a Switcher,
    pub keys: &'a EvaluationKeys,
    pub room: &'a mut Room,
    pub sums: &'a mut Sums,
    pub level: usize,
}

impl<'a> Run<'a> {
    /// Σ maps[i](xs[i]) to `out`, divided by q_level where `rescales`.
    pub fn transform(
        mut self,
        maps: &[&Transform],
        xs: &[&Ciphertext],
        rescales: bool,
        out: &mut Ciphertext,
    ) -> Result<(), Error> {
        let level = self.level;
        let split = rules::one_split(maps.iter().map(|map| map.split));
        let sources = maps.iter().zip(xs).map(|(map, x)| self.source(map, x));
        let sources = sources.collect::<Result<Vec<_>, _>>()?;
        let giants: BTreeSet<usize> =
            maps.iter().flat_map(|map| map.groups.iter().map(|group| group.giant)).collect();
        let giants: Vec<usize> = giants.into_iter().collect();
        let key = |steps| match steps {
            0 => Ok(None),
            steps => self.keys.rotation(steps, level).map(Some),
        };
        let giant_keys = match split.is_chained {
            true => {
                let step = split.baby_steps.min(giants.last().copied().unwrap_or(0));
                Giants::Chained(split.baby_steps, key(step)?)
            }
            false => {
                Giants::Each(giants.iter().map(|&giant| key(giant)).collect::<Result<_, _>>()?)
            }
        };
        let limbs = maps.iter().map(|map| map.limbs()).max().unwrap_or(level + 1);
        self.multiply(maps, &sources, &giants, limbs);
        match giant_keys {
            Giants::Each(keys) => self.rotate(&keys, limbs),
            Giants::Chained(step, key) => self.chain(&giants, step, key, limbs),
        }
        for (side, out) in [&mut out.mask, &mut out.body].into_iter().enumerate() {
            let sum = self.sums.total[side].take(self.switcher.limbs_at(level) * out.degree());
            let room = (&mut self.room.cut.counts, &mut self.room.crew);
            let finish = Finish::default();
            self.switcher.divide((level, rescales), sum, finish, room, out.values_mut());
        }
        Ok(())
    }

    /// The keys of the baby steps that `map` takes of `x`.
    fn source<'x>(&self, map: &Transform, x: &'x Ciphertext) -> Result<Source<'x>, Error>
    where
        'a: 'x,
    {
        let mut cuts: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        for baby in map.babies() {
            let [outer, inner] = map.split.cut_baby(baby);
            cuts.entry(outer).or_default().insert(inner);
        }
        let keys: &'a EvaluationKeys = self.keys;
        let key = |steps| keys.rotation(steps, self.level);
        let inner_keys = |inner: BTreeSet<usize>| -> Result<BTreeMap<usize, &'a MapKey>, Error> {
            let steps = inner.into_iter().filter(|&inner| inner > 0);
            steps.map(|steps| Ok((steps, key(steps)?))).collect()
        };
        let inner = inner_keys(cuts.remove(&0).unwrap_or_default())?;
        let outer =
            cuts.into_iter().map(|(outer, again)| Ok((outer, key(outer)?, inner_keys(again)?)));
        Ok(Source { x, inner, outer: outer.collect::<Result<_, Error>>()? })
    }

    /// Every giant step's sum of products, over `limbs` limbs.
    fn multiply(
        &mut self,
        maps: &[&Transform],
        sources: &[Source],
        giants: &[usize],
        limbs: usize,
    ) {
        let (switcher, level, degree) = (self.switcher, self.level, self.switcher.degree());
        self.turn_outer(sources);
        let Sums { hoisted, outers, giants: sums, .. } = &mut *self.sums;
        let (hoisted, outers) = (&*hoisted, &*outers);
        let digits = switcher.digits_at(level) * degree;
        let count: usize = sources.iter().map(Source::count).sum();
        let kernel = switcher.kernel();
        let whole_length = switcher.limbs_at(level) * degree;
        // Mask and body of every giant step's sum, limb by limb.
        let mut outs: Vec<Vec<[&mut [u64]; 2]>> =
            (0..limbs).map(|_| Vec::with_capacity(giants.len())).collect();
        let sums = sums.take(giants.len() * 2 * limbs * degree);
        for sums in sums.chunks_exact_mut(2 * limbs * degree) {
            let (masks, bodies) = sums.split_at_mut(limbs * degree);
            let pairs = masks.chunks_exact_mut(degree).zip(bodies.chunks_exact_mut(degree));
            outs.iter_mut().zip(pairs).for_each(|(outs, (mask, body))| outs.push([mask, body]));
        }
        let numbers = limbs * degree * (count.max(1) * digits / degree + giants.len());
        self.room.crew.each(numbers, outs.into_iter().enumerate(), |seat, (limb, outs)| {
            let is_special = limb > level;
            let (here, own) =
                (limb * degree..(limb + 1) * degree, limb * digits..(limb + 1) * digits);
            let rotated = seat.babies.take(2 * count * degree);
            let mut rest = rotated.chunks_exact_mut(2 * degree);
            let mut outers = outers.iter();
            for (source, hoisted) in sources.iter().zip(hoisted) {
                for (key, out) in source.inner.values().zip(rest.by_ref()) {
                    let (mask_out, body_out) = out.split_at_mut(degree);
                    let (mask, body) = seat.limb.take(2 * degree).split_at_mut(degree);
                    let own = &hoisted.held(own.end)[own.clone()];
                    let room = &mut seat.masks;
                    switcher.switch_hoisted((level, limb), own, &key.key, room, [mask, body]);
                    if !is_special {
                        let own = source.x.body.limb(limb);
                        kernel.add_assign(switcher.modulus(level, limb), body, own);
                    }
                    kernel.permute(mask, key.map.indices(), mask_out);
                    kernel.permute(body, key.map.indices(), body_out);
                }
                for ((_, _, again), outer) in source.outer.iter().zip(outers.by_ref()) {
                    let (masks, bodies) = outer.whole.held(2 * whole_length).split_at(whole_length);
                    let out = rest.next().expect("room for each key switch");
                    out[..degree].copy_from_slice(&masks[here.clone()]);
                    out[degree..].copy_from_slice(&bodies[here.clone()]);
                    if again.is_empty() {
                        continue;
                    }
                    let own = seat.digits.take(digits);
                    let mask = outer.mask.held((level + 1) * degree);
                    switcher.hoist_limb((level, limb), mask, &outer.cut, own);
                    for (key, out) in again.values().zip(rest.by_ref()) {
                        let (mask_out, body_out) = out.split_at_mut(degree);
                        let (mask, body) = seat.limb.take(2 * degree).split_at_mut(degree);
                        let room = &mut seat.masks;
                        switcher.switch_hoisted((level, limb), own, &key.key, room, [mask, body]);
                        kernel.add_assign(
                            switcher.modulus(level, limb),
                            body,
                            &bodies[here.clone()],
                        );
                        kernel.permute(mask, key.map.indices(), mask_out);
                        kernel.permute(body, key.map.indices(), body_out);
                    }
                }
            }
            let rotated = seat.babies.held(2 * count * degree);
            let factors = factors(sources, rotated, (limb, is_special));
            Products { factors: &factors, giants, limb }.add_up(switcher, level, maps, outs);
        });
    }

    /// Cuts every ciphertext that is rotated, and takes the first of two rotations.
    fn turn_outer(&mut self, sources: &[Source]) {
        let (switcher, level, degree) = (self.switcher, self.level, self.switcher.degree());
        let (kernel, limbs) = (switcher.kernel(), switcher.limbs_at(level));
        let Sums { hoisted, outers, .. } = &mut *self.sums;
        let digits = switcher.digits_at(level) * degree;
        hoisted.resize_with(hoisted.len().max(sources.len()), Words::default);
        let count: usize = sources.iter().map(|source| source.outer.len()).sum();
        outers.resize_with(outers.len().max(count), Outer::default);
        let mut outers = outers.iter_mut();
        for (source, hoisted) in sources.iter().zip(&mut *hoisted) {
            if !source.is_rotated() {
                continue;
            }
            let x = source.x;
            let hoisted = hoisted.take(limbs * digits);
            let room = (&mut self.room.cut, &mut self.room.crew);
            switcher.hoist(level, x.mask.values(), room, hoisted);
            for ((_, key, again), outer) in source.outer.iter().zip(outers.by_ref()) {
                let whole = outer.whole.take(2 * limbs * degree);
                let (masks, bodies) = whole.split_at_mut(limbs * degree);
                let outs = masks.chunks_exact_mut(degree).zip(bodies.chunks_exact_mut(degree));
                let parts = hoisted.chunks_exact(digits).zip(outs).enumerate();
                self.room.crew.each(limbs * digits, parts, |seat, (limb, (own, outs))| {
                    let (mask, body) = seat.limb.take(2 * degree).split_at_mut(degree);
                    let room = &mut seat.masks;
                    switcher.switch_hoisted((level, limb), own, &key.key, room, [mask, body]);
                    if limb <= level {
                        let modulus = switcher.modulus(level, limb);
                        kernel.add_assign(modulus, body, x.body.limb(limb));
                    }
                    kernel.permute(mask, key.map.indices(), outs.0);
                    kernel.permute(body, key.map.indices(), outs.1);
                });
                if again.is_empty() {
                    continue;
                }
                // The division uses up what it divides.
                let sum = self.room.sums[0].take(limbs * degree);
                sum.copy_from_slice(masks);
                let mask = outer.mask.take((level + 1) * degree);
                let room = (&mut self.room.cut.counts, &mut self.room.crew);
                switcher.divide((level, false), sum, Finish::default(), room, mask);
                switcher.cut(level, mask, &mut outer.cut, &mut self.room.crew);
            }
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
                    add_limbs(switcher, level, total, sum);
                }
                continue;
            };
            let mask: &[u64] = if limbs > level + 1 {
                let out = quotient.take((level + 1) * degree);
                let room = (&mut self.room.cut.counts, &mut self.room.crew);
                switcher.divide((level, false), mask, Finish::default(), room, out);
                out
            } else {
                mask
            };
            switcher.switch(level, mask, &key.key, self.room, None);
            add_limbs(switcher, level, self.room.sums[1].take(all), body);
            for (side, total) in totals.iter_mut().enumerate() {
                let sum = self.room.sums[side].take(all);
                let parts = sum.chunks_exact(degree).zip(total.chunks_exact_mut(degree));
                self.room.crew.each(all, parts.enumerate(), |seat, (limb, (sum, total))| {
                    let rotated = seat.limb.take(degree);
                    kernel.permute(sum, key.map.indices(), rotated);
                    kernel.add_assign(switcher.modulus(level, limb), total, rotated);
                });
            }
        }
    }

    /// The sum of the giant steps' sums to `total`: from the highest on, what there is of it is switched
    /// by the one key, which rotates by `step`, as often as the next sum lies below.
    fn chain(&mut self, steps: &[usize], step: usize, key: Option<&MapKey>, limbs: usize) {
        let (switcher, level, degree) = (self.switcher, self.level, self.switcher.degree());
        let kernel = switcher.kernel();
        let all = switcher.limbs_at(level) * degree;
        let Sums { giants, total, mask: quotient, .. } = &mut *self.sums;
        let length = limbs * degree;
        let giants = giants.take(steps.len() * 2 * length);
        let [total_mask, total_body] = total;
        let totals = [total_mask.take(all), total_body.take(all)];
        totals.into_iter().for_each(|total| total.fill(0));
        let mut rest = steps.iter().zip(giants.chunks_exact(2 * length)).rev().peekable();
        let mut is_over_p = limbs > level + 1;
        let top = steps.last().map_or(0, |&top| top / step);
        for at in (0..=top).rev() {
            if let Some((_, sums)) = rest.next_if(|&(&giant, _)| giant == at * step) {
                for (total, sum) in total.iter_mut().zip(sums.chunks_exact(length)) {
                    add_limbs(switcher, level, total.take(all), sum);
                }
            }
            let Some(key) = key.filter(|_| at > 0) else { continue };
            let [mask, body] = total;
            let (mask, body) = (mask.take(all), body.take(all));
            let whole: &[u64] = if is_over_p {
                let out = quotient.take((level + 1) * degree);
                let room = (&mut self.room.cut.counts, &mut self.room.crew);
                switcher.divide((level, false), mask, Finish::default(), room, out);
                out
            } else {
                &mask[..(level + 1) * degree]
            };
            switcher.switch(level, whole, &key.key, self.room, None);
            is_over_p = true;
            let [switched, bodies] = &mut self.room.sums;
            let bodies = bodies.take(all);
            add_limbs(switcher, level, bodies, body);
            for (sum, total) in [(switched.take(all), mask), (bodies, body)] {
                let parts = sum.chunks_exact(degree).zip(total.chunks_exact_mut(degree));
                self.room.crew.each(all, parts, |_, (sum, total)| {
                    kernel.permute(sum, key.map.indices(), total);
                });
            }
        }
    }
}

/// Adds the first limbs of `total`, as many as `sum` has of those at `level`.
fn add_limbs(switcher: &Switcher, level: usize, total: &mut [u64], sum: &[u64]) {
    let degree = switcher.degree();
    let limbs = total.chunks_exact_mut(degree).zip(sum.chunks_exact(degree));
    for (limb, (total, sum)) in limbs.enumerate() {
        switcher.kernel().add_assign(switcher.modulus(level, limb), total, sum);
    }
}

/// One limb of what is multiplied by a plaintext, mask and body, by baby step. What is not rotated is
/// times P: it is zero modulo P's primes.
type Factors<'a> = BTreeMap<usize, [&'a [u64]; 2]>;

/// The factors of every map.
fn factors<'a>(
    sources: &[Source<'a>],
    mut rotated: &'a [u64],
    (limb, is_special): (usize, bool),
) -> Vec<Factors<'a>> {
    let mut all = Vec::with_capacity(sources.len());
    for source in sources {
        let x = source.x;
        let degree = x.mask.degree();
        let (own, rest) = rotated.split_at(2 * source.count() * degree);
        rotated = rest;
        let pairs = own.chunks_exact(2 * degree).map(|pair| pair.split_at(degree));
        let mut factors: Factors =
            source.steps().zip(pairs.map(|(mask, body)| [mask, body])).collect();
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
}

impl Products<'_> {
    /// Writes limb `limb` of each giant step's sums, mask and body.
    fn add_up(
        &self,
        switcher: &Switcher,
        level: usize,
        maps: &[&Transform],
        mut outs: Vec<[&mut [u64]; 2]>,
    ) {
        let degree = switcher.degree();
        let modulus = switcher.modulus(level, self.limb);
        let groups: Vec<_> = self.giants.iter().map(|&giant| self.groups(maps, giant)).collect();
        let block = BLOCK.min(degree);
        let mut part = [vec![0; block], vec![0; block]];
        for start in (0..degree).step_by(block) {
            for (groups, [mask, body]) in groups.iter().zip(&mut outs) {
                let outs = [&mut mask[start..start + block], &mut body[start..start + block]];
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
