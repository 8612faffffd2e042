//! The sets of linear layers, by name.

use hushtable_ring::{Platform, Poly, Ring, ntt_primes};

use super::noise::rounding_max;
use crate::pack::{packed_bytes, poly_bytes};
use crate::{Error, Lattice, LatticeSpec};

/// A set as written down.
struct Set {
    name: &'static str,
    degree: usize,
    /// Primes of 51 bits.
    limbs: usize,
    /// Whether uploads are proven to be encryptions.
    is_verified: bool,
}

const fn set(name: &'static str, degree: usize, limbs: usize, is_verified: bool) -> Set {
    Set { name, degree, limbs, is_verified }
}

/// The sets that there are. Of either kind the first that carries a model's noise is the fastest.
const SETS: [Set; 4] = [
    set("linear_4096", 4096, 2, false),
    set("linear_8192", 8192, 3, false),
    set("linear_8192_verified", 8192, 3, true),
    set("linear_8192_4_verified", 8192, 4, true),
];

/// The names of the sets of either kind, the fastest first: of those whose uploads are proven to be encryptions
/// ([`proof`](super::proof)), or of those whose uploads are taken as they are.
pub fn names(is_verified: bool) -> impl Iterator<Item = &'static str> {
    SETS.iter().filter(move |set| set.is_verified == is_verified).map(|set| set.name)
}

/// Bits of a set's primes.
const PRIME_BITS: u32 = 51;

/// Bits between noise and flood.
const FLOOD_BITS: u32 = 40;

/// What a proof of uploads says of their numbers: they are multiples of 2^-2 of what honest ones are multiples of.
const SLACK_BITS: u32 = 2;

/// Most bits of a flood: it is reduced modulo primes of 51 bits at once.
const FLOOD_LOG2_MAX: u32 = 100;

/// The same where uploads are proven to be encryptions, which leaves them more noise: reduced in halves.
const VERIFIED_FLOOD_LOG2_MAX: u32 = 126;

/// A set for numbers modulo 2^bits.
#[derive(Clone, Debug)]
pub struct Parameters {
    lattice: Lattice,
    /// What is left of the lattice's ring in answers.
    answer_ring: Ring,
    /// Bits that numbers are encrypted with.
    step_bits: u32,
    /// Low bits of them that are 0 in honest uploads, and random in answers.
    slack_bits: u32,
    flood_log2: u32,
    mask_dropped: u32,
    body_dropped: u32,
    /// Q modulo 2^64.
    product_low: u64,
    /// −1 / t modulo each prime.
    scales: Vec<u64>,
}

impl Parameters {
    /// The set `name` for numbers of `bits` bits, 16 to 64.
    ///
    /// # Errors
    /// [`Error::UnknownSet`]; [`Error::LinearBits`] for bits that the set does not carry.
    pub fn new(name: &str, bits: u32, platform: Platform) -> Result<Self, Error> {
        let set = SETS.iter().find(|set| set.name == name);
        let Set { degree, limbs, is_verified, .. } =
            *set.ok_or_else(|| Error::UnknownSet { name: name.chars().take(64).collect() })?;
        let spec = LatticeSpec {
            name: name.to_owned(),
            degree,
            moduli: ntt_primes(PRIME_BITS, degree, limbs),
            special_moduli: Vec::new(),
        };
        let lattice = Lattice::new(spec, platform)?;
        let unfit = Error::LinearBits { name: name.to_owned(), bits };
        let (slack_bits, flood_max) = match is_verified {
            true => (SLACK_BITS, VERIFIED_FLOOD_LOG2_MAX),
            false => (0, FLOOD_LOG2_MAX),
        };
        let step_bits = bits.saturating_add(slack_bits);
        if bits < 16 || step_bits > 64 {
            return Err(unfit);
        }
        let ring = lattice.ring();
        // A quarter of the distance between two plaintexts; the primes are a hair below powers of two.
        let flood = ring.modulus_log2() + 0.01 - f64::from(step_bits) - 2.0;
        let flood_log2 = (flood as u32).min(flood_max);
        for limbs in 1..=ring.limbs() {
            let answer_ring = ring.prefix(limbs)?;
            let Some((mask_dropped, body_dropped)) =
                dropped(&answer_ring, step_bits, f64::from(flood_log2) - ring.modulus_log2())
            else {
                continue;
            };
            if answer_ring.crt().product().is_none() {
                break;
            }
            let scale = |modulus: hushtable_ring::Modulus| {
                let t = modulus.pow_vartime(2, step_bits.into());
                modulus.neg(modulus.inv(t))
            };
            let scales = ring.moduli().map(scale).collect();
            let low = |product: u64, modulus: hushtable_ring::Modulus| {
                product.wrapping_mul(modulus.value())
            };
            let product_low = ring.moduli().fold(1, low);
            return Ok(Self {
                answer_ring,
                step_bits,
                slack_bits,
                flood_log2,
                mask_dropped,
                body_dropped,
                product_low,
                scales,
                lattice,
            });
        }
        Err(unfit)
    }

    /// The set's name.
    pub fn name(&self) -> &str {
        self.lattice.name()
    }

    /// N.
    pub fn degree(&self) -> usize {
        self.lattice.degree()
    }

    /// k: numbers are modulo 2^k.
    pub fn bits(&self) -> u32 {
        self.step_bits - self.slack_bits
    }

    /// Whether uploads are proven to be encryptions.
    pub fn is_verified(&self) -> bool {
        self.slack_bits > 0
    }

    /// Bits of numbers as they are encrypted: low bits of 0 are added to those of [`bits`](Self::bits).
    pub(super) fn step_bits(&self) -> u32 {
        self.step_bits
    }

    /// Low bits that are added.
    pub(super) fn slack_bits(&self) -> u32 {
        self.slack_bits
    }

    /// The ring modulo Q.
    pub fn ring(&self) -> &Ring {
        self.lattice.ring()
    }

    /// The ring of answers.
    pub fn answer_ring(&self) -> &Ring {
        &self.answer_ring
    }

    /// F: a flood is uniform in −2^F..2^F.
    pub fn flood_log2(&self) -> u32 {
        self.flood_log2
    }

    /// log2 of the most noise that a flood hides.
    pub fn noise_log2_max(&self) -> f64 {
        f64::from(self.flood_log2) - f64::from(FLOOD_BITS)
    }

    /// Bytes of an upload: the body of one encryption.
    pub fn upload_bytes(&self) -> usize {
        poly_bytes(self.ring())
    }

    /// Bytes of an answer of `coefficients` coefficients.
    pub fn answer_bytes(&self, coefficients: usize) -> usize {
        packed_bytes(self.degree(), self.mask_bits()) + packed_bytes(coefficients, self.body_bits())
    }

    /// Low bits that an answer's mask goes without.
    pub(super) fn mask_dropped(&self) -> u32 {
        self.mask_dropped
    }

    /// Low bits that an answer's body goes without.
    pub(super) fn body_dropped(&self) -> u32 {
        self.body_dropped
    }

    /// Bits of an answer's mask, a coefficient.
    pub(super) fn mask_bits(&self) -> u32 {
        self.answer_bits() - self.mask_dropped
    }

    /// Bits of an answer's body, a coefficient.
    pub(super) fn body_bits(&self) -> u32 {
        self.answer_bits() - self.body_dropped
    }

    fn answer_bits(&self) -> u32 {
        let product = self.answer_ring.crt().product().expect("checked when made");
        u128::BITS - product.leading_zeros()
    }

    /// The encoding of N numbers below 2^[`bits`](Self::bits), in constant time.
    pub(super) fn encode(&self, values: &[u64]) -> Poly<hushtable_ring::Coefficients> {
        self.encode_steps(values.iter().map(|value| value << self.slack_bits))
    }

    /// round(Q · value / t) of N numbers below t = 2^[`step_bits`](Self::step_bits), in constant time.
    ///
    /// It is (Q · value − c) / t, for c the remainder of Q · value modulo t between −t/2 and t/2, and modulo
    /// a prime −c / t.
    pub(super) fn encode_steps(
        &self,
        values: impl Iterator<Item = u64> + Clone,
    ) -> Poly<hushtable_ring::Coefficients> {
        let ring = self.ring();
        let mut poly = ring.zero();
        for (limb, modulus) in ring.moduli().enumerate() {
            let out = poly.limb_mut(limb);
            for (out, value) in out.iter_mut().zip(values.clone()) {
                let rest = self.rest(value);
                *out = match self.step_bits < PRIME_BITS {
                    true => rest,
                    false => modulus.reduce_product(rest.into()),
                };
            }
            ring.kernel().scale_assign(modulus, out, self.scales[limb]);
            // −(c + t/2) / t + 1/2.
            let half = modulus.inv(2);
            for out in out {
                *out = modulus.add(*out, half);
            }
        }
        poly
    }

    /// c + t/2 of a number below t.
    fn rest(&self, value: u64) -> u64 {
        let (mask, half) = (u64::MAX >> (64 - self.step_bits), 1u64 << (self.step_bits - 1));
        value.wrapping_mul(self.product_low).wrapping_add(half) & mask
    }

    /// By how much the encoding of a number below 2^[`bits`](Self::bits) is less than Q · number / t: c / t, in
    /// units of 2^-32, rounded down.
    pub(super) fn rounding(&self, number: u64) -> i64 {
        let rest = self.rest(number << self.slack_bits);
        let own = rest.wrapping_sub(1u64 << (self.step_bits - 1)) as i64;
        match self.step_bits {
            bits @ ..=32 => own << (32 - bits),
            bits => own >> (bits - 32),
        }
    }
}

/// The low bits that an answer modulo q′ can go without, of mask and body, where the flood is 2^`flood` of
/// q′; None where its rounding leaves no room.
///
/// Between two plaintexts lie q′ / t; the noise that is right is half of that. The flood takes 2^`flood` of
/// q′. Of the rest, half is the mask's, a quarter the body's.
fn dropped(answer_ring: &Ring, bits: u32, flood: f64) -> Option<(u32, u32)> {
    let modulus_log2 = answer_ring.modulus_log2();
    let half = (modulus_log2 - f64::from(bits) - 1.0).exp2();
    let room = half - (modulus_log2 + flood).exp2();
    let mask = (room / 2.0 / rounding_max(answer_ring.degree())).log2();
    (mask >= 0.0).then(|| (mask as u32, ((room / 4.0).log2() + 1.0) as u32))
}
