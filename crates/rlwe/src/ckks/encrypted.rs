//! Arithmetic on ciphertexts.

use std::sync::Arc;

use super::keys::{EvaluationKeys, MapKey};
use super::switch::{Finish, Room, Switcher, Words};
use super::switch_key::SwitchKey;
use super::{
    Ciphertext, Diagonals, Encoder, Error, Evaluate, Parameters, Plaintext, Split, Transform,
    rules, transform,
};

/// Computes on ciphertexts; holds room for intermediate results, so one a thread.
///
/// Ciphertexts and plaintexts are taken to be of these parameters: what comes from outside is to be read
/// with their parsers.
pub struct Encrypted<'a> {
    encoder: &'a Encoder,
    keys: &'a EvaluationKeys,
    switcher: Arc<Switcher>,
    room: Room,
    /// What transforms compute in.
    pub(super) sums: transform::Sums,
    /// A mask of its own, and other polynomials over Q.
    scratch: Words,
    /// Used ciphertexts by level.
    spare: Vec<Vec<crate::Ciphertext>>,
}

impl<'a> Encrypted<'a> {
    /// With `encoder` and `keys` of the same parameters.
    pub fn new(encoder: &'a Encoder, keys: &'a EvaluationKeys) -> Self {
        let levels = keys.parameters().levels();
        Self {
            encoder,
            keys,
            switcher: Arc::clone(keys.switcher()),
            room: Room::default(),
            sums: transform::Sums::default(),
            scratch: Words::default(),
            spare: vec![Vec::new(); levels + 1],
        }
    }

    /// The keys.
    pub fn keys(&self) -> &'a EvaluationKeys {
        self.keys
    }

    /// A ciphertext of `level` of any content.
    fn take(&mut self, level: usize) -> crate::Ciphertext {
        // One of a higher level serves as well: its memory is there.
        let mut spare = self.spare[level..].iter_mut();
        let Some(mut found) = spare.find_map(Vec::pop) else {
            return crate::Ciphertext::zero(self.parameters().ring(level));
        };
        found.mask.truncate(level + 1);
        found.body.truncate(level + 1);
        found
    }

    /// A copy of the limbs up to `level`, over room that is there already.
    fn copy(&mut self, x: &Ciphertext, level: usize) -> Ciphertext {
        let mut parts = self.take(level);
        for (to, from) in [(&mut parts.mask, &x.parts.mask), (&mut parts.body, &x.parts.body)] {
            let length = to.values().len();
            to.values_mut().copy_from_slice(&from.values()[..length]);
        }
        Ciphertext { parts, level, scale: x.scale }
    }

    /// Divides what a switch left, adds `body` to the body's quotient and applies `map`.
    fn divide(
        &mut self,
        (level, rescales): (usize, bool),
        body: Option<&[u64]>,
        map: Option<&MapKey>,
    ) -> crate::Ciphertext {
        let mut out = self.take(level - usize::from(rescales));
        let map = map.map(|key| &key.map);
        let (level, room) = ((level, rescales), &mut self.room);
        let finish = Finish { plus: None, map };
        room.divide(&self.switcher, level, 0, finish, out.mask.values_mut());
        let finish = Finish { plus: body, map };
        room.divide(&self.switcher, level, 1, finish, out.body.values_mut());
        out
    }

    /// The image of `x` under the key's automorphism.
    fn map(&mut self, x: &Ciphertext, key: &MapKey) -> Ciphertext {
        let mask = x.parts.mask.values();
        self.switcher.switch(x.level, mask, &key.key, &mut self.room, None);
        let parts = self.divide((x.level, false), Some(x.parts.body.values()), Some(key));
        Ciphertext { parts, ..*x }
    }

    /// x · y, relinearised by `key`, and rescaled where `rescales`.
    fn product(
        &mut self,
        x: &Ciphertext,
        y: &Ciphertext,
        key: &SwitchKey,
        rescales: bool,
    ) -> crate::Ciphertext {
        let level = x.level;
        let degree = self.parameters().degree();
        let ring = self.keys.parameters().ring(level);
        // The square of the secret's share of the product; the rest joins the sums of the switch.
        let share = self.scratch.take((level + 1) * degree);
        let limbs = share.chunks_exact_mut(degree).enumerate();
        self.room.crew.each((level + 1) * degree, limbs, |_, (limb, values)| {
            values.copy_from_slice(x.parts.mask.limb(limb));
            ring.kernel().mul_assign(ring.modulus(limb), values, y.parts.mask.limb(limb));
        });
        let factors = Some([&x.parts, &y.parts]);
        self.switcher.switch(level, share, key, &mut self.room, factors);
        self.divide((level, rescales), None, None)
    }

    fn multiply_any(
        &mut self,
        x: &Ciphertext,
        y: &Ciphertext,
        rescales: bool,
    ) -> Result<Ciphertext, Error> {
        rules::same_level(rules::MULTIPLY, y.level, x.level)?;
        let ring = self.parameters().ring(x.level);
        let scale = rules::product_scale(rules::MULTIPLY, ring, x.scale, y.scale)?;
        if rescales {
            rules::rescalable(self.parameters(), x.level)?;
        }
        let key = self.keys.product(x.level)?;
        let parts = self.product(x, y, key, rescales);
        Ok(self.rescaled(parts, x.level, scale, rescales))
    }

    /// What came of a ciphertext of `level` and what has `scale` before it is divided.
    fn rescaled(
        &self,
        parts: crate::Ciphertext,
        level: usize,
        scale: f64,
        rescales: bool,
    ) -> Ciphertext {
        match rescales {
            false => Ciphertext { parts, level, scale },
            true => {
                let scale = scale / self.parameters().modulus(level).value() as f64;
                Ciphertext { parts, level: level - 1, scale }
            }
        }
    }

    fn transform_any(
        &mut self,
        maps: &[&Transform],
        xs: &[&Ciphertext],
        rescales: bool,
    ) -> Result<Ciphertext, Error> {
        let shapes: Vec<_> = maps.iter().map(|map| (map.level(), map.scale())).collect();
        let operands: Vec<_> = xs.iter().map(|x| (x.level, x.scale)).collect();
        let (level, scale) = rules::transform(self.parameters(), &shapes, &operands)?;
        if rescales {
            rules::rescalable(self.parameters(), level)?;
        }
        let mut parts = self.take(level - usize::from(rescales));
        let xs: Vec<_> = xs.iter().map(|x| &x.parts).collect();
        transform::Run {
            switcher: &self.switcher,
            keys: self.keys,
            room: &mut self.room,
            sums: &mut self.sums,
            level,
        }
        .transform(maps, &xs, rescales, &mut parts)?;
        Ok(self.rescaled(parts, level, scale, rescales))
    }
}

impl Evaluate for Encrypted<'_> {
    type Ciphertext = Ciphertext;
    type Plaintext = Plaintext;
    type Transform = Transform;

    fn parameters(&self) -> &Parameters {
        self.keys.parameters()
    }

    fn level(&self, x: &Ciphertext) -> usize {
        x.level
    }

    fn scale(&self, x: &Ciphertext) -> f64 {
        x.scale
    }

    fn encode(&self, values: &[f64], level: usize, scale: f64) -> Result<Plaintext, Error> {
        self.encoder.encode_real(values, level, scale)
    }

    fn prepare(
        &self,
        map: &Diagonals,
        split: Split,
        level: usize,
        scale: f64,
    ) -> Result<Transform, Error> {
        Transform::new(self.encoder, map, split, level, scale)
    }

    fn add_assign(&mut self, x: &mut Ciphertext, y: &Ciphertext) -> Result<(), Error> {
        rules::same(rules::ADD, (y.level, y.scale), (x.level, x.scale))?;
        x.parts.add_assign(self.parameters().ring(x.level), &y.parts);
        Ok(())
    }

    fn sub_assign(&mut self, x: &mut Ciphertext, y: &Ciphertext) -> Result<(), Error> {
        rules::same(rules::SUBTRACT, (y.level, y.scale), (x.level, x.scale))?;
        x.parts.sub_assign(self.parameters().ring(x.level), &y.parts);
        Ok(())
    }

    fn add_plain(&mut self, x: &mut Ciphertext, y: &Plaintext) -> Result<(), Error> {
        rules::same(rules::ADD_PLAIN, (y.level, y.scale), (x.level, x.scale))?;
        self.parameters().ring(x.level).add_assign(&mut x.parts.body, &y.poly);
        Ok(())
    }

    fn add_constant(&mut self, x: &mut Ciphertext, y: f64) -> Result<(), Error> {
        let ring = self.keys.parameters().ring(x.level);
        let residues = self.encoder.constant(ring, y, x.scale)?;
        let values = self.scratch.take(ring.degree());
        for (limb, residue) in residues.into_iter().enumerate() {
            // A constant has the same evaluation everywhere.
            values.fill(residue);
            ring.kernel().add_assign(ring.modulus(limb), x.parts.body.limb_mut(limb), values);
        }
        Ok(())
    }

    fn multiply_plain(&mut self, x: &mut Ciphertext, y: &Plaintext) -> Result<(), Error> {
        rules::same_level(rules::MULTIPLY_PLAIN, y.level, x.level)?;
        let ring = self.keys.parameters().ring(x.level);
        x.scale = rules::product_scale(rules::MULTIPLY_PLAIN, ring, x.scale, y.scale)?;
        ring.mul_assign(&mut x.parts.mask, &y.poly);
        ring.mul_assign(&mut x.parts.body, &y.poly);
        Ok(())
    }

    fn multiply_constant(&mut self, x: &mut Ciphertext, y: f64, scale: f64) -> Result<(), Error> {
        let ring = self.keys.parameters().ring(x.level);
        let residues = self.encoder.constant(ring, y, scale)?;
        x.scale = rules::product_scale(rules::MULTIPLY_CONSTANT, ring, x.scale, scale)?;
        ring.scale_assign(&mut x.parts.mask, &residues);
        ring.scale_assign(&mut x.parts.body, &residues);
        Ok(())
    }

    fn multiply(&mut self, x: &Ciphertext, y: &Ciphertext) -> Result<Ciphertext, Error> {
        self.multiply_any(x, y, false)
    }

    fn square(&mut self, x: &Ciphertext) -> Result<Ciphertext, Error> {
        self.multiply_any(x, x, false)
    }

    fn multiply_rescale(&mut self, x: &Ciphertext, y: &Ciphertext) -> Result<Ciphertext, Error> {
        self.multiply_any(x, y, true)
    }

    fn square_rescale(&mut self, x: &Ciphertext) -> Result<Ciphertext, Error> {
        self.multiply_any(x, x, true)
    }

    fn rescale(&mut self, x: &mut Ciphertext) -> Result<(), Error> {
        rules::rescalable(self.parameters(), x.level)?;
        let mut out = self.take(x.level - 1);
        let ring = self.parameters().ring(x.level);
        ring.drop_last_limb_into(&mut x.parts.mask, &mut out.mask);
        ring.drop_last_limb_into(&mut x.parts.body, &mut out.body);
        let scale = x.scale / self.parameters().modulus(x.level).value() as f64;
        let rescaled = Ciphertext { parts: out, level: x.level - 1, scale };
        self.recycle(std::mem::replace(x, rescaled));
        Ok(())
    }

    fn drop_to(&mut self, x: &mut Ciphertext, level: usize) -> Result<(), Error> {
        rules::droppable(self.parameters(), (x.level, x.scale), level)?;
        if level == x.level {
            return Ok(());
        }
        let lower = self.copy(x, level);
        self.recycle(std::mem::replace(x, lower));
        Ok(())
    }

    fn lowered(&mut self, x: &Ciphertext, level: usize) -> Result<Ciphertext, Error> {
        rules::droppable(self.parameters(), (x.level, x.scale), level)?;
        Ok(self.copy(x, level))
    }

    fn rotate(&mut self, x: &Ciphertext, steps: usize) -> Result<Ciphertext, Error> {
        match steps % self.parameters().slots() {
            0 => Ok(self.copy(x, x.level)),
            steps => {
                let key = self.keys.rotation(steps, x.level)?;
                Ok(self.map(x, key))
            }
        }
    }

    fn rotate_many(&mut self, x: &Ciphertext, steps: &[usize]) -> Result<Vec<Ciphertext>, Error> {
        let slots = self.parameters().slots();
        let key = |steps| match steps % slots {
            0 => Ok(None),
            steps => self.keys.rotation(steps, x.level).map(Some),
        };
        let keys = steps.iter().map(|&steps| key(steps)).collect::<Result<Vec<_>, _>>()?;
        let (level, switcher) = (x.level, Arc::clone(&self.switcher));
        let (degree, limbs) = (switcher.degree(), switcher.limbs_at(level));
        let mut hoisted = std::mem::take(&mut self.scratch);
        let length = switcher.digits_at(level) * degree;
        let digits = hoisted.take(limbs * length);
        if keys.iter().any(Option::is_some) {
            let room = (&mut self.room.cut, &mut self.room.crew);
            switcher.hoist(level, x.parts.mask.values(), room, digits);
        }
        let mut out = Vec::with_capacity(keys.len());
        for key in keys {
            let Some(key) = key else {
                out.push(self.copy(x, level));
                continue;
            };
            let Room { sums: [masks, bodies], crew, .. } = &mut self.room;
            let sums = masks
                .take(limbs * degree)
                .chunks_exact_mut(degree)
                .zip(bodies.take(limbs * degree).chunks_exact_mut(degree));
            let limbs = sums.zip(digits.chunks_exact(length)).enumerate();
            crew.each(limbs.len() * length, limbs, |seat, (limb, ((mask, body), own))| {
                let room = &mut seat.masks;
                switcher.switch_hoisted((level, limb), own, &key.key, room, [mask, body]);
            });
            let body = Some(x.parts.body.values());
            let parts = self.divide((level, false), body, Some(key));
            out.push(Ciphertext { parts, ..*x });
        }
        self.scratch = hoisted;
        Ok(out)
    }

    fn transform(&mut self, maps: &[&Transform], xs: &[&Ciphertext]) -> Result<Ciphertext, Error> {
        self.transform_any(maps, xs, false)
    }

    fn conjugate(&mut self, x: &Ciphertext) -> Result<Ciphertext, Error> {
        let key = self.keys.conjugation(x.level)?;
        Ok(self.map(x, key))
    }

    fn raise(&mut self, x: &Ciphertext, level: usize, _range: f64) -> Result<Ciphertext, Error> {
        rules::raisable(self.parameters(), x.level, level)?;
        let (down, up) = self.keys.raise(level)?;
        let raised = down.raise(self.keys.parameters().ring(level), &x.parts);
        let (mask, body) = (raised.mask.values(), raised.body.values());
        self.switcher.switch(level, mask, up, &mut self.room, None);
        let parts = self.divide((level, false), Some(body), None);
        Ok(Ciphertext { parts, level, scale: x.scale })
    }

    fn weigh(&mut self, x: &mut Ciphertext, factor: f64) -> Result<(), Error> {
        x.scale = rules::weighed(self.parameters().ring(x.level), x.scale, factor)?;
        Ok(())
    }

    fn transform_rescale(
        &mut self,
        maps: &[&Transform],
        xs: &[&Ciphertext],
    ) -> Result<Ciphertext, Error> {
        self.transform_any(maps, xs, true)
    }

    fn recycle(&mut self, x: Ciphertext) {
        // Circuits go down: what is of the highest level is least likely to be written over again.
        if self.spare.iter().map(Vec::len).sum::<usize>() == SPARE_MAX {
            let highest = self.spare.iter().rposition(|spare| !spare.is_empty());
            let Some(highest) = highest.filter(|&highest| highest >= x.level) else { return };
            self.spare[highest].pop();
        }
        self.spare[x.level].push(x.parts);
    }
}

/// Most used ciphertexts that are kept: at the largest sets, each has tens of megabytes.
const SPARE_MAX: usize = 8;
