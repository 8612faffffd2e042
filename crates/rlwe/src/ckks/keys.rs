//! What a server needs to multiply and to rotate.

use std::collections::BTreeMap;
use std::sync::Arc;

use hushtable_ring::kernel::width_bytes;
use hushtable_ring::{Automorphism, Evaluations, Modulus, NoiseSource, Poly, Ring, Secret, Seed};

use super::bootstrap::SparseKey;
use super::key_reader::{KeyReader, Open, Opened};
use super::switch::Switcher;
use super::switch_key::{Masks, SwitchKey};
use super::{Error, KeySpec, Parameters, rules};
use crate::pack::{pack_poly, poly_bytes};
use crate::{SecretKey, SecretKind};

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
    raise: RaiseKeys,
}

/// The keys of a modulus raise: to the sparse secret, under which the multiples of q_0 stay few, and back.
#[derive(Default)]
struct RaiseKeys {
    down: Option<SparseKey>,
    up: Option<SwitchKey>,
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

/// Bytes of memory that the keys of `spec` take, known before there are any.
///
/// # Errors
/// As [`key_bytes`].
pub fn key_memory_bytes(
    parameters: &Parameters,
    spec: &KeySpec,
    masks: Masks,
) -> Result<usize, Error> {
    spec.check(parameters)?;
    let of = |(level, kind): (usize, Kind)| -> Result<usize, Error> {
        let ring = kind.ring(parameters, level)?;
        let widths: usize = ring.moduli().map(width_bytes).sum();
        let rows = masks.sides() * parameters.digits(level) * ring.degree() * widths;
        let key = size_of::<SwitchKey>() + rows;
        Ok(match kind {
            Kind::ToSparse => SparseKey::bytes(&ring),
            Kind::Square | Kind::FromSparse => key,
            Kind::Rotation { .. } | Kind::Conjugation { .. } => 4 * ring.degree() + key,
        })
    };
    kinds(parameters, spec)
        .into_iter()
        .try_fold(size_of::<EvaluationKeys>(), |sum, kind| Ok(sum + of(kind)?))
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
    /// Draws the keys of `spec`, their masks from `seed`, and holds these.
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
        Self::generate_with(parameters, secret, spec, seed, source, Masks::Held)
    }

    /// As [`generate`](Self::generate), with masks held or drawn at each use.
    ///
    /// # Errors
    /// As [`generate`](Self::generate).
    pub fn generate_with(
        parameters: &Parameters,
        secret: &SecretKey,
        spec: &KeySpec,
        seed: &Seed,
        source: &mut NoiseSource,
        masks: Masks,
    ) -> Result<Self, Error> {
        spec.check(parameters)?;
        let sparse = sparse_secret(parameters, spec, source)?;
        let mut keys = Self::none(parameters)?;
        let mut index = 0;
        for (level, kind) in kinds(parameters, spec) {
            let drawing = Drawing::new(parameters, (secret, sparse.as_ref()), level, kind)?;
            let mut open = Open::new(parameters, (level, kind), (masks, seed, index))?;
            for _ in 0..open.digits {
                let mask = drawing.ring.uniform(seed, index);
                let body = drawing.body(open.digit, &mask, source);
                open.put(Some(mask), body);
                index += 1;
            }
            keys.insert(open);
        }
        Ok(keys)
    }

    /// Reads the keys of `spec` from the bytes that [`write_keys`] gave, and holds their masks.
    ///
    /// # Errors
    /// [`Error::Core`] for another length or a number that is no residue; as [`key_bytes`].
    pub fn parse(parameters: &Parameters, spec: &KeySpec, bytes: &[u8]) -> Result<Self, Error> {
        let mut reader = KeyReader::new(parameters, spec, Masks::Held)?;
        reader.push(bytes)?;
        reader.finish()
    }

    /// No keys.
    pub(super) fn none(parameters: &Parameters) -> Result<Self, Error> {
        Ok(Self {
            parameters: parameters.clone(),
            switcher: Arc::new(Switcher::new(parameters)?),
            product: None,
            rotations: BTreeMap::new(),
            conjugation: None,
            raise: RaiseKeys::default(),
        })
    }

    /// Takes a key all of whose rows were put.
    pub(super) fn insert(&mut self, open: Open) {
        let degree = self.parameters.degree();
        let map = |exponent, key| MapKey { map: Automorphism::new(exponent, degree), key };
        match (open.kind, open.key) {
            (_, Opened::Sparse(key)) => self.raise.down = key,
            (Kind::ToSparse, Opened::Switch(_)) => unreachable!("it is opened as a sparse one"),
            (Kind::FromSparse, Opened::Switch(key)) => self.raise.up = Some(key),
            (Kind::Square, Opened::Switch(key)) => self.product = Some(key),
            (Kind::Rotation { steps, exponent }, Opened::Switch(key)) => {
                self.rotations.insert(steps, map(exponent, key));
            }
            (Kind::Conjugation { exponent }, Opened::Switch(key)) => {
                self.conjugation = Some(map(exponent, key));
            }
        }
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
        let down = self.raise.down.iter().map(SparseKey::memory_bytes);
        let up = self.raise.up.iter().map(SwitchKey::memory_bytes);
        size_of::<Self>() + maps.chain(product).chain(down).chain(up).sum::<usize>()
    }

    pub(super) fn switcher(&self) -> &Arc<Switcher> {
        &self.switcher
    }

    /// The key for products at `level`.
    pub(super) fn product(&self, level: usize) -> Result<&SwitchKey, Error> {
        let found = self.product.as_ref().filter(|key| key.level() >= level);
        found.ok_or(Error::MissingKey { operation: "multiply", level })
    }

    /// The key for rotations by `steps` at `level`.
    pub(super) fn rotation(&self, steps: usize, level: usize) -> Result<&MapKey, Error> {
        let found = self.rotations.get(&steps).filter(|map| map.key.level() >= level);
        found.ok_or(Error::MissingRotation { steps })
    }

    /// The keys for a modulus raise to `level`, down to the sparse secret and up from it.
    pub(super) fn raise(&self, level: usize) -> Result<(&SparseKey, &SwitchKey), Error> {
        let up = self.raise.up.as_ref().filter(|key| key.level() >= level);
        let found = self.raise.down.as_ref().zip(up);
        found.ok_or(Error::MissingKey { operation: rules::RAISE, level })
    }

    /// The key for conjugation at `level`.
    pub(super) fn conjugation(&self, level: usize) -> Result<&MapKey, Error> {
        let found = self.conjugation.as_ref().filter(|map| map.key.level() >= level);
        found.ok_or(Error::MissingKey { operation: rules::CONJUGATE, level })
    }
}

/// What a key is for.
#[derive(Clone, Copy)]
pub(super) enum Kind {
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
    pub fn ring(self, parameters: &Parameters, level: usize) -> Result<Ring, Error> {
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
    pub fn digits(self, parameters: &Parameters, level: usize) -> usize {
        match self {
            Self::ToSparse => 1,
            _ => parameters.digits(level),
        }
    }
}

/// Level and kind of each key, in order.
pub(super) fn kinds(parameters: &Parameters, spec: &KeySpec) -> Vec<(usize, Kind)> {
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

pub(super) const SEED_BYTES: usize = 32;

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
