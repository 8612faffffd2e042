//! What a server needs to multiply and to rotate.

use std::collections::BTreeMap;
use std::sync::Arc;

use hushtable_ring::kernel::{pack_rows, width_bytes};
use hushtable_ring::{Automorphism, Evaluations, Modulus, NoiseSource, Poly, Ring, Secret, Seed};

use super::bootstrap::SparseKey;
use super::switch::Switcher;
use super::{Error, KeySpec, Parameters, rules};
use crate::pack::{pack_poly, poly_bytes, unpack_poly};
use crate::{SecretKey, SecretKind};

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
    raise: Option<RaiseKey>,
}

/// The keys of a modulus raise: to the sparse secret, under which the multiples of q_0 stay few, and back.
pub(super) struct RaiseKey {
    pub down: SparseKey,
    pub up: SwitchKey,
}

/// What one key is published modulo, and under which secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedKey {
    /// How the secret is drawn that the key is an encryption under.
    pub secret: SecretKind,
    /// The primes.
    pub moduli: Vec<u64>,
}

/// What the keys of `spec` are published modulo, in the order in which they are sent.
///
/// # Errors
/// As [`key_bytes`].
pub fn published_keys(parameters: &Parameters, spec: &KeySpec) -> Result<Vec<PublishedKey>, Error> {
    spec.check(parameters)?;
    let of = |(level, kind): (usize, Kind)| {
        let ring = kind.ring(parameters, level)?;
        let moduli = ring.moduli().map(Modulus::value).collect();
        Ok(PublishedKey { secret: kind.secret(), moduli })
    };
    kinds(parameters, spec).into_iter().map(of).collect()
}

/// Bytes of the keys of `spec`, known before there are any.
///
/// # Errors
/// [`Error::Level`] and [`Error::Slots`] for keys that there cannot be.
pub fn key_bytes(parameters: &Parameters, spec: &KeySpec) -> Result<usize, Error> {
    spec.check(parameters)?;
    kinds(parameters, spec).into_iter().try_fold(SEED_BYTES, |sum, (level, kind)| {
        Ok(sum + kind.digits(parameters, level) * poly_bytes(&kind.ring(parameters, level)?))
    })
}

/// Draws the keys of `spec` and gives their bytes to `sink`, piece by piece: the `seed` of the masks,
/// then, of the key for products, of each rotation's by rising steps, of the conjugation's and of the
/// two of a modulus raise, the bodies of the rows, packed (`crate::pack`). The masks are the seed's polynomials 0, 1, ...
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
    let sparse = sparse_secret(parameters, spec, source)?;
    sink(seed);
    let mut index = 0;
    let mut bytes = Vec::new();
    for (level, kind) in kinds(parameters, spec) {
        let drawing = Drawing::new(parameters, (secret, sparse.as_ref()), level, kind)?;
        for digit in 0..kind.digits(parameters, level) {
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
        let sparse = sparse_secret(parameters, spec, source)?;
        let mut index = 0;
        Self::collect(parameters, spec, |level, kind, put| {
            let drawing = Drawing::new(parameters, (secret, sparse.as_ref()), level, kind)?;
            for digit in 0..kind.digits(parameters, level) {
                let mask = drawing.ring.uniform(seed, index);
                let body = drawing.body(digit, &mask, source);
                put(&drawing.ring, digit, [mask, body]);
                index += 1;
            }
            Ok(())
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
        Self::collect(parameters, spec, |level, kind, put| {
            let ring = kind.ring(parameters, level)?;
            for digit in 0..kind.digits(parameters, level) {
                let body = unpack_poly("evaluation keys", &ring, &mut rest)?;
                put(&ring, digit, [ring.uniform(seed, index), body]);
                index += 1;
            }
            Ok(())
        })
    }

    fn collect(
        parameters: &Parameters,
        spec: &KeySpec,
        mut make: impl FnMut(usize, Kind, &mut Put) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        let switcher = Arc::new(Switcher::new(parameters)?);
        let (mut product, mut rotations, mut conjugation) = (None, BTreeMap::new(), None);
        let (mut down, mut up) = (None, None);
        let degree = parameters.degree();
        for (level, kind) in kinds(parameters, spec) {
            if let Kind::ToSparse = kind {
                make(level, kind, &mut |ring, _, rows| {
                    down = Some(SparseKey::new(ring.clone(), rows));
                })?;
                continue;
            }
            let ring = kind.ring(parameters, level)?;
            let mut key = SwitchKey::zero(parameters, &ring, level);
            make(level, kind, &mut |ring, digit, [mask, body]| {
                key.put(ring, digit, 0, mask);
                key.put(ring, digit, 1, body);
            })?;
            match kind {
                Kind::ToSparse => unreachable!("it was made above"),
                Kind::FromSparse => up = Some(key),
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
        let raise = down.zip(up).map(|(down, up)| RaiseKey { down, up });
        let parameters = parameters.clone();
        Ok(Self { parameters, switcher, product, rotations, conjugation, raise })
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
        let raise = self.raise.iter().map(|key| key.down.memory_bytes() + key.up.memory_bytes());
        size_of::<Self>() + maps.chain(product).chain(raise).sum::<usize>()
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

    /// The keys for a modulus raise to `level`.
    pub(super) fn raise(&self, level: usize) -> Result<&RaiseKey, Error> {
        let found = self.raise.as_ref().filter(|key| key.up.level >= level);
        found.ok_or(Error::MissingKey { operation: rules::RAISE, level })
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
    /// From the secret to the sparse one, modulo q_0 and one of P's primes.
    ToSparse,
    /// From the sparse secret to the secret.
    FromSparse,
}

impl Kind {
    /// The secret that such a key is published under.
    fn secret(self) -> SecretKind {
        match self {
            Self::ToSparse => SecretKind::Weight32,
            _ => SecretKind::Ternary,
        }
    }

    /// What such a key for ciphertexts of `level` is published modulo; under the sparse secret, for those
    /// of level 0 alone.
    fn ring(self, parameters: &Parameters, level: usize) -> Result<Ring, Error> {
        let ring = match self {
            Self::ToSparse => {
                rules::same_level("make a key of the sparse secret", level, 0)?;
                let whole = parameters.lattice().key_ring();
                whole.select(&[0, parameters.levels() + 1]).map_err(crate::Error::from)?
            }
            _ => key_ring(parameters, level)?,
        };
        parameters.lattice().check(self.secret(), ring.modulus_log2())?;
        Ok(ring)
    }

    /// Rows of such a key.
    fn digits(self, parameters: &Parameters, level: usize) -> usize {
        match self {
            Self::ToSparse => 1,
            _ => parameters.digits(level),
        }
    }
}

/// Takes one row of a key: its ring, its digit, its mask and body.
type Put<'a> = dyn FnMut(&Ring, usize, [Poly<Evaluations>; 2]) + 'a;

/// Level and kind of each key, in order.
fn kinds(parameters: &Parameters, spec: &KeySpec) -> Vec<(usize, Kind)> {
    let double = 2 * parameters.degree();
    let rotations = spec.rotations.iter().map(|(steps, level)| {
        (level, Kind::Rotation { steps, exponent: power_of_five(steps, double) })
    });
    let products = spec.products.map(|level| (level, Kind::Square));
    let conjugation =
        spec.conjugation.map(|level| (level, Kind::Conjugation { exponent: double - 1 }));
    let raise = spec.raise.into_iter();
    let raise = raise.flat_map(|level| [(0, Kind::ToSparse), (level, Kind::FromSparse)]);
    products.into_iter().chain(rotations).chain(conjugation).chain(raise).collect()
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
        (secret, sparse): (&SecretKey, Option<&SecretKey>),
        level: usize,
        kind: Kind,
    ) -> Result<Self, Error> {
        let ring = kind.ring(parameters, level)?;
        let special = parameters.special_limbs();
        let limbs = level + 1;
        let within = |secret: &SecretKey| {
            let mut own: Poly<Evaluations> = ring.zero();
            for limb in 0..ring.limbs() {
                let from = if limb < limbs { limb } else { limb + parameters.levels() - level };
                own.limb_mut(limb).copy_from_slice(secret.poly().limb(from));
            }
            own
        };
        let own = within(secret);
        let sparse = || within(sparse.expect("drawn where a key is made of it"));
        let (from, to) = match kind {
            Kind::ToSparse => (own, sparse()),
            Kind::FromSparse => (sparse(), own),
            Kind::Square => {
                let mut other = own.clone();
                ring.mul_assign(&mut other, &own);
                (other, own)
            }
            Kind::Rotation { exponent, .. } | Kind::Conjugation { exponent } => {
                // The secret whose image under X → X^exponent the secret is.
                let double = 2 * parameters.degree();
                let backwards = Automorphism::new(inverse_of_odd(exponent, double), ring.degree());
                let mut other = ring.zero();
                ring.automorphism_into(&backwards, &own, &mut other);
                (own, other)
            }
        };
        let specials: Vec<_> = ring.moduli().skip(limbs).collect();
        let share = |(limb, modulus): (usize, Modulus)| {
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

/// The sparse secret of one set of keys, where there is to be one: nobody needs it afterwards.
fn sparse_secret(
    parameters: &Parameters,
    spec: &KeySpec,
    source: &mut NoiseSource,
) -> Result<Option<SecretKey>, Error> {
    if spec.raise.is_none() {
        return Ok(None);
    }
    // Refused before it is drawn, and before any key is sent.
    Kind::ToSparse.ring(parameters, 0)?;
    let ring = parameters.lattice().key_ring();
    Ok(Some(SecretKey::draw_sparse(ring, SPARSE_WEIGHT, source)))
}

/// Coefficients of the sparse secret that are not 0.
pub(super) const SPARSE_WEIGHT: usize = 32;

const SEED_BYTES: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ckks::{BootstrapLevels, ModulusBits, ParameterSpec};
    use hushtable_ring::Platform;

    #[test]
    fn a_sparse_key_above_level_0_is_refused() {
        let spec = BootstrapLevels::L16.spec("planted", 65536).unwrap();
        let parameters = Parameters::new(spec, Platform::detect()).unwrap();
        let moduli = Kind::ToSparse.ring(&parameters, 0).unwrap().limbs();
        assert_eq!(moduli, 2);
        for level in [1, 2] {
            let refused = Kind::ToSparse.ring(&parameters, level).map(|_| ());
            assert!(matches!(refused, Err(Error::Level { expected: 0, .. })), "{level}");
        }
        // At a degree that has no limit for the sparse secret, there is no such key at all.
        let bits = ModulusBits { first: 50, level: 40, special: 51 };
        let spec = ParameterSpec::of_bits("planted", 16384, bits, 3, 1).unwrap();
        let parameters = Parameters::new(spec, Platform::detect()).unwrap();
        let refused = Kind::ToSparse.ring(&parameters, 0).map(|_| ());
        assert!(matches!(refused, Err(Error::Core(crate::Error::Security { .. }))));
        assert!(Kind::Square.ring(&parameters, 3).is_ok());
        let keys = KeySpec { products: Some(0), raise: Some(0), ..KeySpec::default() };
        let mut source = NoiseSource::from_seed(&[1; 32]);
        let secret = SecretKey::draw(parameters.lattice().key_ring(), &mut source);
        let nothing = |_: &[u8]| panic!("keys that are refused were sent");
        let refused = write_keys(&parameters, &secret, &keys, &[2; 32], &mut source, nothing);
        assert!(matches!(refused, Err(Error::Core(crate::Error::Security { .. }))));
    }
}
