//! The server's half: keys and queries to answers.

use hushtable_rlwe::ckks::{
    Ciphertext, Encoder, Encrypted, EvaluationKeys, KeySpec, Masks, Plaintext, Transform, wire,
};
use hushtable_rlwe::pack::{pack, pack_poly};
use hushtable_rlwe::ring::{NoiseSource, Platform};

use super::compile::Compiled;
use super::error::Error;
use super::keys::{Keys, KeysReader};
use super::layout::Input;
use super::plan::Plan;
use super::terms::{PLAN_BYTES, Terms};
use super::weights::Weights;

/// Memory that the maps of one input may take before they are made at each use instead.
pub const MAP_BYTES_MAX: usize = 6 << 30;
/// −log2 of the largest number that is added to a logit to hide the circuit's noise.
pub const FLOOD_BITS: u32 = 12;

/// A model, ready to answer.
pub struct Engine {
    terms: Terms,
    encoder: Encoder,
    compiled: Compiled<Plaintext, Transform>,
}

impl Engine {
    /// Prepares a model.
    ///
    /// # Errors
    /// [`Error::Terms`] and [`Error::Ckks`] for a plan that no client would accept, [`Error::Plan`] for
    /// weights of another model.
    pub fn new(plan: &Plan, weights: &Weights, platform: Platform) -> Result<Self, Error> {
        Self::with_memory(plan, weights, platform, MAP_BYTES_MAX)
    }

    /// As [`new`](Self::new); maps of an input that would take more than `map_bytes_max` of memory are
    /// made at each use.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_memory(
        plan: &Plan,
        weights: &Weights,
        platform: Platform,
        map_bytes_max: usize,
    ) -> Result<Self, Error> {
        let terms = Terms::of(plan, platform)?;
        let encoder = Encoder::new(terms.parameters());
        // Preparing needs no key: of none, there is a seed alone.
        let none = EvaluationKeys::parse(terms.parameters(), &KeySpec::default(), &[0; 32])?;
        let evaluator = Encrypted::new(&encoder, &none);
        let compiled = Compiled::new(plan, weights, &evaluator, map_bytes_max)?;
        drop(evaluator);
        Ok(Self { terms, encoder, compiled })
    }

    /// What clients must know.
    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        self.compiled.plan()
    }

    /// Reads a client's keys, and holds their masks.
    ///
    /// # Errors
    /// [`Error::Bytes`], [`Error::OtherPlan`], [`Error::Core`], [`Error::Ckks`].
    pub fn keys(&self, bytes: &[u8]) -> Result<Keys, Error> {
        // The length comes first: of bytes that are cut off, it says more than what they hold.
        self.terms.open("keys", self.terms.key_bytes()?, bytes)?;
        let mut reader = self.key_reader(Masks::Held)?;
        reader.push(bytes)?;
        reader.finish()
    }

    /// What reads a client's keys in pieces, and holds their masks or draws them at each use. Answers are the
    /// same.
    ///
    /// # Errors
    /// [`Error::Ckks`] never: the terms were checked.
    pub fn key_reader(&self, masks: Masks) -> Result<KeysReader, Error> {
        KeysReader::new(&self.terms, masks)
    }

    /// Answers a query.
    ///
    /// The answer holds the logits and nothing else: of the polynomial that was computed, only the
    /// coefficients that the logits are read from are sent (the others hold partial sums), its mask is
    /// made anew with a fresh multiple of an encryption of zero, so that it is random to the client too,
    /// and a uniform number below 2^−[`FLOOD_BITS`] is added to each logit. A circuit's noise of 2^−k then
    /// changes the distribution of what is sent by about 2^(12 − k) a logit, statistically: that little
    /// the noise says of the weights ([`super::simulate::precision_bits`] says what k is). The logits
    /// themselves say of them what a model's outputs say.
    ///
    /// # Errors
    /// [`Error::Bytes`], [`Error::OtherPlan`], [`Error::Core`]; [`Error::Ckks`] for a ciphertext of
    /// another level or scale.
    pub fn answer(&self, keys: &Keys, query: &[u8]) -> Result<Vec<u8>, Error> {
        self.answer_from(keys, query, &mut NoiseSource::from_os()?)
    }

    /// As [`answer`](Self::answer), hidden with randomness from `source`.
    ///
    /// # Errors
    /// As [`answer`](Self::answer).
    #[doc(hidden)]
    pub fn answer_from(
        &self,
        keys: &Keys,
        query: &[u8],
        source: &mut NoiseSource,
    ) -> Result<Vec<u8>, Error> {
        let (terms, parameters) = (&self.terms, self.terms.parameters());
        let mut rest = terms.open("query", terms.query_bytes(), query)?;
        let mut xs = Vec::with_capacity(terms.ciphertexts());
        for level in terms.inputs().iter().flat_map(Input::levels) {
            let bytes = wire::ciphertext_bytes(parameters, level, wire::Form::Fresh);
            let (own, others) = rest.split_at(bytes);
            xs.push(Ciphertext::parse(parameters, own)?);
            rest = others;
        }
        let mut evaluator = Encrypted::new(&self.encoder, &keys.keys);
        let answer = self.compiled.run(&mut evaluator, xs, &mut |_, _| Ok(()))?;
        answer.expect("answer", 0, parameters.scale())?;
        self.hide(keys, &answer, source)
    }

    /// The answer's bytes.
    fn hide(
        &self,
        keys: &Keys,
        answer: &Ciphertext,
        source: &mut NoiseSource,
    ) -> Result<Vec<u8>, Error> {
        let (terms, ring) = (&self.terms, self.terms.parameters().ring(0));
        let factor = ring.forward(source.ternary(ring));
        let [mut mask, mut body] = [&keys.zero.parts().mask, &keys.zero.parts().body].map(|part| {
            let mut part = part.clone();
            ring.mul_assign(&mut part, &factor);
            ring.add_assign(&mut part, &ring.forward(source.gaussian(ring)));
            part
        });
        ring.add_assign(&mut mask, &answer.parts().mask);
        ring.add_assign(&mut body, &answer.parts().body);
        let body = ring.inverse(body);
        let (count, modulus) = (2 * terms.users(), ring.modulus(0));
        // A slot is the sum of all coefficients, turned.
        let flood = terms.parameters().scale() * (-f64::from(FLOOD_BITS)).exp2() / count as f64;
        let flood = (flood as u64).max(1);
        let apart = ring.degree() / count;
        let mut kept = Vec::with_capacity(count);
        for index in 0..count {
            let word = u64::from_le_bytes(*source.seed().first_chunk().unwrap_or(&[0; 8]));
            let noise = ((u128::from(word) * u128::from(2 * flood + 1)) >> 64) as u64;
            let noise = modulus.sub(noise % modulus.value(), flood % modulus.value());
            kept.push(modulus.add(body.limb(0)[index * apart], noise));
        }
        let mut bytes = Vec::with_capacity(terms.answer_bytes());
        bytes.extend(terms.plan());
        debug_assert_eq!(bytes.len(), PLAN_BYTES);
        pack_poly(ring, &mask, &mut bytes);
        pack(&kept, modulus.bits(), &mut bytes);
        Ok(bytes)
    }
}
