//! The client's half: encryptions that are bodies alone, and answers opened.

use hushtable_ring::{Coefficients, Evaluations, NoiseSource, Poly, Ring, Seed};
use zeroize::Zeroizing;

use super::Parameters;
use crate::bfv::round_ratio;
use crate::pack::{pack_poly, packed_bytes, poly_bytes, unpack, unpack_poly};
use crate::{Ciphertext, Error, SecretKey};

/// A client's secret and the public seed of its masks.
pub struct Client {
    parameters: Parameters,
    secret: SecretKey,
    seed: Seed,
}

impl Client {
    /// Draws a secret and a public seed.
    pub fn draw(parameters: Parameters, source: &mut NoiseSource) -> Self {
        let secret = SecretKey::draw(parameters.ring(), source);
        Self { secret, seed: source.seed(), parameters }
    }

    /// What it computes with.
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// Bytes of the public key: the seed of all masks, and an encryption of 0 whose mask is its number 0.
    pub fn public_key(&self, source: &mut NoiseSource) -> Vec<u8> {
        self.public_key_and_errors(source).0
    }

    /// [`public_key`](Self::public_key), and the errors in it, for a proof of it.
    pub fn public_key_and_errors(&self, source: &mut NoiseSource) -> (Vec<u8>, Errors) {
        let ring = self.parameters.ring();
        let mut bytes = Vec::with_capacity(PublicKey::bytes(&self.parameters));
        bytes.extend(self.seed);
        let errors = self.seal(0, source.gaussian(ring), None, &mut bytes);
        (bytes, errors)
    }

    /// Appends the encryption number `index` (1 or more) of N numbers below 2^bits: the body alone.
    ///
    /// An index stands for one plaintext, and `source` for one index: two bodies of one mask would tell their
    /// difference.
    pub fn encrypt(
        &self,
        index: u64,
        values: &[u64],
        source: &mut NoiseSource,
        out: &mut Vec<u8>,
    ) -> Errors {
        self.seal(index, source.gaussian(self.parameters.ring()), Some(values), out)
    }

    /// Appends error + encoding − mask · s, and gives the errors.
    fn seal(
        &self,
        index: u64,
        error: Poly<Coefficients>,
        values: Option<&[u64]>,
        out: &mut Vec<u8>,
    ) -> Errors {
        let ring = self.parameters.ring();
        let errors = Errors::of(ring, &error);
        let mut body = error;
        if let Some(values) = values {
            ring.add_assign(&mut body, &self.parameters.encode(values));
        }
        let mut body = ring.forward(body);
        let mut product = self.mask(index);
        ring.mul_assign(&mut product, self.secret.poly());
        ring.sub_assign(&mut body, &product);
        pack_poly(ring, &body, out);
        errors
    }

    /// The mask of encryption number `index`.
    pub(super) fn mask(&self, index: u64) -> Poly<Evaluations> {
        self.parameters.ring().uniform(&self.seed, index)
    }

    /// s.
    pub(super) fn secret(&self) -> &Poly<Evaluations> {
        self.secret.poly()
    }

    /// Opens an answer of the coefficients `wanted`: `out[i]` is coefficient `wanted[i]`.
    ///
    /// # Errors
    /// [`Error::Bytes`] for another length than [`Parameters::answer_bytes`] of as many.
    pub fn open(&self, bytes: &[u8], wanted: &[usize], out: &mut [u64]) -> Result<(), Error> {
        let parameters = &self.parameters;
        let expected = parameters.answer_bytes(wanted.len());
        if bytes.len() != expected {
            return Err(Error::Bytes { what: "answer", expected, found: bytes.len() });
        }
        let masks_bytes = packed_bytes(parameters.degree(), parameters.mask_bits());
        let (masks, bodies) = bytes.split_at(masks_bytes);
        if parameters.answer_ring().limbs() == 1 {
            self.open_one(masks, bodies, wanted, out)?;
        } else {
            self.open_many(masks, bodies, wanted, out);
        }
        // Numbers rounded up here and down at the server: their sum's added bits are 0.
        let (slack, mask) = (parameters.slack_bits(), u64::MAX >> (64 - parameters.bits()));
        let low = (1 << slack) - 1;
        for value in out {
            *value = ((*value >> slack) + (((*value & low) + low) >> slack)) & mask;
        }
        Ok(())
    }

    /// As [`open`](Self::open), modulo one prime; in constant time.
    fn open_one(
        &self,
        masks: &[u8],
        bodies: &[u8],
        wanted: &[usize],
        out: &mut [u64],
    ) -> Result<(), Error> {
        let parameters = &self.parameters;
        let ring = parameters.answer_ring();
        let modulus = ring.modulus(0);
        // The middle of the numbers that had these upper bits.
        let restore = |value: u64, dropped: u32| {
            modulus.correct((value << dropped) + ((1u64 << dropped) >> 1))
        };
        let mut mask = ring.zero();
        let values = mask.limb_mut(0);
        unpack("answer", masks, parameters.mask_bits(), values)?;
        for value in values {
            *value = restore(*value, parameters.mask_dropped());
        }
        let mut product = ring.forward(mask);
        ring.mul_assign(&mut product, self.secret.poly());
        let product = ring.inverse(product);
        unpack("answer", bodies, parameters.body_bits(), out)?;
        // t / q, in 63 bits: a phase times it is right to 2^-12 of a step.
        let bits = parameters.step_bits();
        let factor = (1u128 << 113) / u128::from(modulus.value());
        let below = 113 - bits;
        for (&at, out) in wanted.iter().zip(out) {
            let body = restore(*out, parameters.body_dropped());
            let phase = modulus.add(body, product.limb(0)[at]);
            let scaled = u128::from(phase) * factor + (1 << (below - 1));
            *out = (scaled >> below) as u64 & (u64::MAX >> (64 - bits));
        }
        Ok(())
    }

    /// As [`open`](Self::open), modulo several primes.
    fn open_many(&self, masks: &[u8], bodies: &[u8], wanted: &[usize], out: &mut [u64]) {
        let parameters = &self.parameters;
        let ring = parameters.answer_ring();
        let mut mask = ring.zero();
        let restore = |value: u128, dropped: u32| (value << dropped) + ((1u128 << dropped) >> 1);
        let mut reader = Reader::new(masks, parameters.mask_bits());
        for index in 0..parameters.degree() {
            let value = restore(reader.read(), parameters.mask_dropped());
            for (limb, modulus) in ring.moduli().enumerate() {
                mask.limb_mut(limb)[index] = modulus.reduce_product(value);
            }
        }
        let mut product = ring.forward(mask);
        ring.mul_assign(&mut product, self.secret.poly());
        let product = ring.inverse(product);
        let modulus = ring.crt().product().expect("checked when made");
        let mut reader = Reader::new(bodies, parameters.body_bits());
        for (&at, out) in wanted.iter().zip(out) {
            let product = ring.crt().compose_signed(|limb| product.limb(limb)[at]);
            let body = restore(reader.read(), parameters.body_dropped()) % modulus;
            let phase = (body as i128 + product).rem_euclid(modulus as i128) as u128;
            *out = round_modulo(phase, modulus, parameters.step_bits());
        }
    }

    /// b + a · s of what is kept of a sum, for tests of noise.
    #[cfg(test)]
    pub(super) fn phase(&self, sum: &super::Sum) -> Poly<Coefficients> {
        self.secret.phase(self.parameters.ring(), sum.ciphertext())
    }
}

/// round(value · 2^bits / modulus) modulo 2^bits, for value < modulus < 2^110 and bits ≤ 64.
fn round_modulo(value: u128, modulus: u128, bits: u32) -> u64 {
    if bits <= 48 {
        return round_ratio(value, modulus, bits) & (u64::MAX >> (64 - bits));
    }
    let (mut quotient, mut rest) = (0u128, value);
    for _ in 0..bits {
        rest <<= 1;
        let carry = u128::from(rest >= modulus);
        rest -= carry * modulus;
        quotient = quotient << 1 | carry;
    }
    quotient += u128::from(2 * rest >= modulus);
    quotient as u64 & (u64::MAX >> (64 - bits))
}

/// Numbers of up to 110 bits, one after another.
struct Reader<'a> {
    bytes: &'a [u8],
    bits: u32,
    held: u128,
    held_bits: u32,
}

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8], bits: u32) -> Self {
        Self { bytes, bits, held: 0, held_bits: 0 }
    }

    fn read(&mut self) -> u128 {
        while self.held_bits < self.bits {
            let (&byte, rest) = self.bytes.split_first().expect("the length was checked");
            self.held |= u128::from(byte) << self.held_bits;
            self.held_bits += 8;
            self.bytes = rest;
        }
        let value = self.held & ((1 << self.bits) - 1);
        self.held >>= self.bits;
        self.held_bits -= self.bits;
        value
    }
}

/// The errors of an encryption.
pub struct Errors(Zeroizing<Vec<i8>>);

impl Errors {
    fn of(ring: &Ring, error: &Poly<Coefficients>) -> Self {
        let modulus = ring.modulus(0);
        Self(Zeroizing::new(
            error.limb(0).iter().map(|&value| modulus.to_signed(value) as i8).collect(),
        ))
    }

    pub(super) fn values(&self) -> &[i8] {
        &self.0
    }
}

/// What a server re-randomises with.
pub struct PublicKey {
    seed: Seed,
    pub(super) zero: Ciphertext,
}

impl PublicKey {
    /// Bytes of a public key.
    pub fn bytes(parameters: &Parameters) -> usize {
        size_of::<Seed>() + poly_bytes(parameters.ring())
    }

    /// A key that re-randomises nothing.
    #[cfg(test)]
    pub(super) fn zero(parameters: &Parameters) -> Self {
        Self { seed: [0; 32], zero: Ciphertext::zero(parameters.ring()) }
    }

    /// Reads [`Client::public_key`].
    ///
    /// # Errors
    /// [`Error::Bytes`] for another length, [`Error::Residue`].
    pub fn read(parameters: &Parameters, bytes: &[u8]) -> Result<Self, Error> {
        let expected = Self::bytes(parameters);
        let found = bytes.len();
        let wrong = Error::Bytes { what: "public key", expected, found };
        let Some((seed, mut rest)) = bytes.split_first_chunk::<32>().filter(|_| found == expected)
        else {
            return Err(wrong);
        };
        let ring = parameters.ring();
        let body = unpack_poly("public key", ring, &mut rest)?;
        Ok(Self { seed: *seed, zero: Ciphertext { mask: ring.uniform(seed, 0), body } })
    }

    /// Reads one body, encryption number `index`.
    ///
    /// # Errors
    /// [`Error::Bytes`] for another length, [`Error::Residue`].
    pub fn upload(
        &self,
        parameters: &Parameters,
        index: u64,
        bytes: &[u8],
    ) -> Result<Upload, Error> {
        let (expected, found) = (parameters.upload_bytes(), bytes.len());
        if found != expected {
            return Err(Error::Bytes { what: "upload", expected, found });
        }
        let ring: &Ring = parameters.ring();
        let mut rest = bytes;
        let body: Poly<Evaluations> = unpack_poly("upload", ring, &mut rest)?;
        Ok(Upload(Ciphertext { mask: ring.uniform(&self.seed, index), body }))
    }
}

/// An encryption that a server has taken.
pub struct Upload(pub(super) Ciphertext);

impl Upload {
    /// Whether it is the same.
    pub fn is_same(&self, other: &Self) -> bool {
        self.0.body.values() == other.0.body.values()
    }
}
