//! What a server needs to multiply and to rotate.

use std::collections::BTreeMap;
use std::sync::Arc;

use hushtable_ring::kernel::{pack_rows, width_bytes};
use hushtable_ring::{Automorphism, Evaluations, NoiseSource, Poly, Ring, Secret, Seed};

use super::switch::Switcher;
use super::{Error, KeySpec, Parameters, rules};
use crate::SecretKey;
use crate::pack::{pack_poly, poly_bytes, unpack_poly};

/// Encryptions of each digit's gadget times one secret under another, modulo Q · P: row j has, of
/// secret s' and for the target s, mask a uniform and body e − a · s + P · s' · g_j, where g_j is 1
/// modulo the primes of digit j and 0 modulo Q's others.
///
/// Both are held, and sent, over P modulo Q's primes (a is uniform either way), which makes the gadget
/// s' itself and leaves a division by P nothing to multiply.
pub(super) struct SwitchKey {
    level: usize,
    digits: usize,
    /// By limb; within one packed together, by digit, mask before body, and times 2^52, which sums of
    /// rows are divided by.
    rows: Vec<Vec<u8>>,
}

impl SwitchKey {
    /// A key over `ring`, Q's limbs at `level` and P's.
    fn zero(parameters: &Parameters, ring: &Ring, level: usize) -> Self {
        let digits = parameters.digits(level);
        let bytes = |modulus| 2 * digits * ring.degree() * width_bytes(modulus);
        Self { level, digits, rows: ring.moduli().map(|modulus| vec![0; bytes(modulus)]).collect() }
    }

    /// Puts one side of a row, a polynomial over `ring`.
    fn put(&mut self, ring: &Ring, digit: usize, side: usize, mut poly: Poly<Evaluations>) {
        let weights: Vec<_> = ring.moduli().map(|modulus| modulus.reduce_u128(1 << 52)).collect();
        ring.scale_assign(&mut poly, &weights);
        let at = (2 * self.digits, 2 * digit + side);
        for (limb, rows) in self.rows.iter_mut().enumerate() {
            pack_rows(ring.modulus(limb), poly.limb(limb), at, rows);
        }
    }

    /// The rows at limb `limb` of those at `level`, as `Kernel::row_products` reads them.
    pub fn rows(&self, limb: usize, level: usize) -> &[u8] {
        &self.rows[if limb <= level { limb } else { limb + self.level - level }]
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.rows.iter().map(Vec::capacity).sum::<usize>()
    }
}

/// A key that follows an automorphism: it is from the secret to the one whose image the secret is, so
/// that the automorphism comes last, and digits are those of the ciphertext as it was.
pub(super) struct MapKey {
    pub map: Automorphism,
    pub key: SwitchKey,
}

/// Keys for products of ciphertexts, rotations and conjugation.
pub struct EvaluationKeys {
    parameters: Parameters,
    switcher: Arc<Switcher>,
    product: Option<SwitchKey>,
    rotations: BTreeMap<usize, MapKey>,
    conjugation: Option<MapKey>,
}

/// Bytes of the keys of `spec`, known before there are any.
///
/// # Errors
/// [`Error::Level`] and [`Error::Slots`] for keys that there cannot be.
pub fn key_bytes(parameters: &Parameters, spec: &KeySpec) -> Result<usize, Error> {
    spec.check(parameters)?;
    spec.levels().try_fold(SEED_BYTES, |sum, level| {
        Ok(sum + parameters.digits(level) * poly_bytes(&key_ring(parameters, level)?))
    })
}

/// Draws the keys of `spec` and gives their bytes to `sink`, piece by piece: the `seed` of the masks,
/// then, of the key for products, of each rotation's by rising steps and of the conjugation's, the
/// bodies of the rows, packed (`crate::pack`). The masks are the seed's polynomials 0, 1, ...
///
/// # Errors
/// [`Error::Level`] and [`Error::Slots`] for keys that there cannot be.
pub fn write_keys(
    parameters: &Parameters,
    secret: &SecretKey,
    spec: &KeySpec,
    seed: &Seed,
    source: &mut NoiseSource,
    mut sink: impl FnMut(&[u8]),
) -> Result<(), Error> {
    spec.check(parameters)?;
    sink(seed);
    let mut index = 0;
    let mut bytes = Vec::new();
    for (level, kind) in kinds(parameters, spec) {
        let drawing = Drawing::new(parameters, secret, level, kind)?;
        for digit in 0..parameters.digits(level) {
            let mask = drawing.ring.uniform(seed, index);
            bytes.clear();
            pack_poly(&drawing.ring, &drawing.body(digit, &mask, source), &mut bytes);
            sink(&bytes);
            index += 1;
        }
    }
    Ok(())
}

impl EvaluationKeys {
    /// Draws the keys of `spec`, their masks from `seed`.
    ///
    /// # Errors
    /// [`Error::Level`] and [`Error::Slots`] for keys that there cannot be; [`Error::Parameters`].
    pub fn generate(
        parameters: &Parameters,
        secret: &SecretKey,
        spec: &KeySpec,
        seed: &Seed,
        source: &mut NoiseSource,
    ) -> Result<Self, Error> {
        spec.check(parameters)?;
        let mut index = 0;
        Self::collect(parameters, spec, |level, kind| {
            let drawing = Drawing::new(parameters, secret, level, kind)?;
            let mut key = SwitchKey::zero(parameters, &drawing.ring, level);
            for digit in 0..key.digits {
                let mask = drawing.ring.uniform(seed, index);
                key.put(&drawing.ring, digit, 1, drawing.body(digit, &mask, source));
                key.put(&drawing.ring, digit, 0, mask);
                index += 1;
            }
            Ok(key)
        })
    }

    /// Reads the keys of `spec` from the bytes that [`write_keys`] gave.
    ///
    /// # Errors
    /// [`Error::Core`] for another length or a number that is no residue; as [`key_bytes`].
    pub fn parse(parameters: &Parameters, spec: &KeySpec, bytes: &[u8]) -> Result<Self, Error> {
        let expected = key_bytes(parameters, spec)?;
        let Some((seed, mut rest)) =
            bytes.split_first_chunk::<SEED_BYTES>().filter(|_| bytes.len() == expected)
        else {
            let found = bytes.len();
            return Err(crate::Error::Bytes { what: "evaluation keys", expected, found }.into());
        };
        let mut index = 0;
        Self::collect(parameters, spec, |level, _| {
            let ring = key_ring(parameters, level)?;
            let mut key = SwitchKey::zero(parameters, &ring, level);
            for digit in 0..key.digits {
                key.put(&ring, digit, 1, unpack_poly("evaluation keys", &ring, &mut rest)?);
                key.put(&ring, digit, 0, ring.uniform(seed, index));
                index += 1;
            }
            Ok(key)
        })
    }

    fn collect(
        parameters: &Parameters,
        spec: &KeySpec,
        mut make: impl FnMut(usize, Kind) -> Result<SwitchKey, Error>,
    ) -> Result<Self, Error> {
        let switcher = Arc::new(Switcher::new(parameters)?);
        let (mut product, mut rotations, mut conjugation) = (None, BTreeMap::new(), None);
        let degree = parameters.degree();
        for (level, kind) in kinds(parameters, spec) {
            let key = make(level, kind)?;
            match kind {
                Kind::Square => product = Some(key),
                Kind::Rotation { steps, exponent } => {
                    let map = Automorphism::new(exponent, degree);
                    rotations.insert(steps, MapKey { map, key });
                }
                Kind::Conjugation { exponent } => {
                    conjugation = Some(MapKey { map: Automorphism::new(exponent, degree), key });
                }
            }
        }
        Ok(Self { parameters: parameters.clone(), switcher, product, rotations, conjugation })
    }

    /// The parameters.
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// Bytes of memory that they take.
    pub fn memory_bytes(&self) -> usize {
        let maps = self.rotations.values().chain(&self.conjugation);
        let maps = maps.map(|map| 4 * self.parameters.degree() + map.key.memory_bytes());
        let product = self.product.iter().map(SwitchKey::memory_bytes);
        size_of::<Self>() + maps.chain(product).sum::<usize>()
    }

    pub(super) fn switcher(&self) -> &Arc<Switcher> {
        &self.switcher
    }

    /// The key for products at `level`.
    pub(super) fn product(&self, level: usize) -> Result<&SwitchKey, Error> {
        let found = self.product.as_ref().filter(|key| key.level >= level);
        found.ok_or(Error::MissingKey { operation: "multiply", level })
    }

    /// The key for rotations by `steps` at `level`.
    pub(super) fn rotation(&self, steps: usize, level: usize) -> Result<&MapKey, Error> {
        let found = self.rotations.get(&steps).filter(|map| map.key.level >= level);
        found.ok_or(Error::MissingRotation { steps })
    }

    /// The key for conjugation at `level`.
    pub(super) fn conjugation(&self, level: usize) -> Result<&MapKey, Error> {
        let found = self.conjugation.as_ref().filter(|map| map.key.level >= level);
        found.ok_or(Error::MissingKey { operation: rules::CONJUGATE, level })
    }
}

/// What a key is for.
#[derive(Clone, Copy)]
enum Kind {
    Square,
    /// X → X^exponent, the exponent 5^steps.
    Rotation {
        steps: usize,
        exponent: usize,
    },
    /// X → X^exponent, the exponent −1.
    Conjugation {
        exponent: usize,
    },
}

/// Level and kind of each key, in order.
fn kinds(parameters: &Parameters, spec: &KeySpec) -> Vec<(usize, Kind)> {
    let double = 2 * parameters.degree();
    let rotations = spec.rotations.iter().map(|(steps, level)| {
        (level, Kind::Rotation { steps, exponent: power_of_five(steps, double) })
    });
    let products = spec.products.map(|level| (level, Kind::Square));
    let conjugation =
        spec.conjugation.map(|level| (level, Kind::Conjugation { exponent: double - 1 }));
    products.into_iter().chain(rotations).chain(conjugation).collect()
}

/// 5^exponent modulo a power of two.
fn power_of_five(exponent: usize, modulus: usize) -> usize {
    (0..exponent).fold(1, |power, _| power * 5 % modulus)
}

/// The ring of Q's limbs at `level` and of P's.
pub(super) fn key_ring(parameters: &Parameters, level: usize) -> Result<Ring, Error> {
    let ring = parameters.lattice().key_ring();
    let special = parameters.levels() + 1..ring.limbs();
    let limbs: Vec<usize> = (0..=level).chain(special).collect();
    Ok(ring.select(&limbs).map_err(crate::Error::from)?)
}

/// What one key's rows are drawn with.
struct Drawing {
    ring: Ring,
    /// Q's limbs in it, and the limbs of a digit.
    limbs: usize,
    special: usize,
    /// 1 / P modulo Q's primes, 1 modulo P's.
    shares: Vec<u64>,
    from: Secret<Poly<Evaluations>>,
    to: Secret<Poly<Evaluations>>,
}

impl Drawing {
    fn new(
        parameters: &Parameters,
        secret: &SecretKey,
        level: usize,
        kind: Kind,
    ) -> Result<Self, Error> {
        let ring = key_ring(parameters, level)?;
        let special = parameters.special_limbs();
        let limbs = level + 1;
        let mut own: Poly<Evaluations> = ring.zero();
        for limb in 0..ring.limbs() {
            let from = if limb < limbs { limb } else { limb + parameters.levels() - level };
            own.limb_mut(limb).copy_from_slice(secret.poly().limb(from));
        }
        let mut other = own.clone();
        let (from, to) = match kind {
            Kind::Square => {
                ring.mul_assign(&mut other, &own);
                (other, own)
            }
            Kind::Rotation { exponent, .. } | Kind::Conjugation { exponent } => {
                // The secret whose image under X → X^exponent the secret is.
                let double = 2 * parameters.degree();
                let backwards = Automorphism::new(inverse_of_odd(exponent, double), ring.degree());
                ring.automorphism_into(&backwards, &own, &mut other);
                (own, other)
            }
        };
        let specials: Vec<_> = ring.moduli().skip(limbs).collect();
        let share = |(limb, modulus): (usize, hushtable_ring::Modulus)| {
            let product = specials.iter().fold(1, |product, special| {
                modulus.mul(product, special.value() % modulus.value())
            });
            if limb < limbs { modulus.inv(product) } else { 1 }
        };
        let shares = ring.moduli().enumerate().map(share).collect();
        let (from, to) = (Secret::new(from), Secret::new(to));
        Ok(Self { ring, limbs, special, shares, from, to })
    }

    /// The body of row `digit`.
    fn body(
        &self,
        digit: usize,
        mask: &Poly<Evaluations>,
        source: &mut NoiseSource,
    ) -> Poly<Evaluations> {
        let (ring, kernel) = (&self.ring, self.ring.kernel());
        let mut body = ring.forward(source.gaussian(ring));
        ring.scale_assign(&mut body, &self.shares);
        let mut product = mask.clone();
        ring.mul_assign(&mut product, self.to.expose());
        ring.sub_assign(&mut body, &product);
        let end = self.limbs.min((digit + 1) * self.special);
        for limb in digit * self.special..end {
            let from = self.from.expose().limb(limb);
            kernel.add_assign(ring.modulus(limb), body.limb_mut(limb), from);
        }
        body
    }
}

/// 1 / x modulo a power of two, for an odd x.
fn inverse_of_odd(x: usize, modulus: usize) -> usize {
    // Newton's iteration doubles the right bits, from the three of x · x = 1 modulo 8.
    let inverse = (0..5).fold(x, |y, _| y.wrapping_mul(2usize.wrapping_sub(x.wrapping_mul(y))));
    inverse % modulus
}

const SEED_BYTES: usize = 32;
