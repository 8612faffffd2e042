//! The client's half of a proof.

use hushtable_ring::{Coefficients, Evaluations, NoiseSource, Poly, Ring, Seed, declassify};
use zeroize::Zeroizing;

use super::rows::{Shifted, add_shifted, monomials};
use super::{Bounds, CANDIDATES, HASH_BYTES, ROWS, number_halves};
use crate::Error;
use crate::linear::scheme::Errors;
use crate::linear::{Client, Parameters};
use crate::pack::pack;

/// Proves a batch of uploads.
pub struct Prover {
    parameters: Parameters,
    bounds: Bounds,
    secret: Zeroizing<Vec<i64>>,
    rows: Vec<Row>,
    /// A_r, until they are committed to.
    masks: Vec<Poly<Coefficients>>,
    columns: usize,
    added: usize,
}

/// What a row hides.
struct Row {
    exponents: Vec<usize>,
    /// Sums of errors, less those of roundings, in units of 2^-32.
    errors: Zeroizing<Vec<u64>>,
    /// Sums of numbers, modulo 2^64.
    numbers: Zeroizing<Vec<u64>>,
    /// Of each candidate, what its masks and its salt are drawn from.
    seeds: Zeroizing<Vec<Seed>>,
}

impl Prover {
    /// A proof of `columns` bodies, the public key's among them, for the server's first seed; `source` is this proof's
    /// alone.
    pub fn new(client: &Client, columns: usize, seed: &Seed, source: &mut NoiseSource) -> Self {
        let parameters = client.parameters().clone();
        let ring = parameters.ring();
        let degree = ring.degree();
        let bounds = Bounds::new(degree, columns);
        let modulus = ring.modulus(0);
        let secret = ring.inverse(client.secret().clone());
        let secret = secret.limb(0).iter().map(|&value| modulus.to_signed(value)).collect();
        let all = monomials(seed, ROWS * columns, degree);
        let rows = all.chunks(columns.max(1)).map(|exponents| {
            let mut words = Zeroizing::new([0; 4 * CANDIDATES]);
            source.words(&mut *words);
            Row {
                exponents: exponents.to_vec(),
                errors: Zeroizing::new(vec![0; degree]),
                numbers: Zeroizing::new(vec![0; degree]),
                seeds: Zeroizing::new(words.as_chunks::<4>().0.iter().map(joined).collect()),
            }
        });
        let rows = rows.collect();
        let masks = (0..ROWS).map(|_| ring.zero()).collect();
        let secret = Zeroizing::new(secret);
        Self { bounds, secret, rows, masks, columns, added: 0, parameters }
    }

    /// Adds the next column: encryption number `index` of N numbers below 2^bits (none for the public key, number 0), as
    /// the client made it with these errors.
    pub fn add(&mut self, client: &Client, index: u64, values: Option<&[u64]>, errors: &Errors) {
        let ring = self.parameters.ring();
        let mask = ring.inverse(client.mask(index));
        let column = self.added;
        let exponents = self.rows.iter().map(|row| row.exponents[column]);
        add_shifted(ring, &mask, exponents, &mut self.masks);
        let number = |at: usize| values.map_or(0, |values| values[at]);
        let own = errors.values().iter().enumerate().map(|(at, &error)| {
            let rounding = values.map_or(0, |values| self.parameters.rounding(values[at]));
            ((i64::from(error) << 32) - rounding) as u64
        });
        let own = Shifted::new(own);
        let numbers = Shifted::new((0..ring.degree()).map(number));
        for row in &mut self.rows {
            own.add_to(row.exponents[column], &mut row.errors);
            if values.is_some() {
                numbers.add_to(row.exponents[column], &mut row.numbers);
            }
        }
        self.added += 1;
    }

    /// Commits to masks: [`COMMITMENT_BYTES`](super::COMMITMENT_BYTES). Once, after every column was added.
    ///
    /// # Panics
    /// Where columns are missing.
    pub fn commit(&mut self) -> Vec<u8> {
        assert_eq!(self.added, self.columns, "every column is added");
        let ring = self.parameters.ring();
        let mut hashes = Vec::with_capacity(super::COMMITMENT_BYTES);
        for (row, mask) in self.rows.iter().zip(self.masks.drain(..)) {
            let mask = ring.forward(mask);
            for seed in row.seeds.iter() {
                let masks = Masks::draw(&self.parameters, self.bounds, seed);
                let secret = signed(ring, &masks.secret);
                let mut sum = self.parameters.encode(&masks.numbers);
                ring.add_assign(&mut sum, &signed(ring, &masks.errors));
                let own = hash(ring, &masks.salt, &mask, secret, sum);
                hashes.extend(own);
            }
        }
        hashes
    }

    /// Answers row `row` for the server's second seed: [`response_bytes`](super::response_bytes).
    ///
    /// # Errors
    /// [`Error::NoMask`] where no candidate hides the answer: a chance below 2^-24.
    ///
    /// # Panics
    /// For a row that there is not.
    pub fn respond(&self, seed: &Seed, row: usize) -> Result<Vec<u8>, Error> {
        let degree = self.parameters.degree();
        let challenge = monomials(seed, ROWS, degree)[row];
        let bounds = self.bounds;
        let row = &self.rows[row];
        let secret = Shifted::new(self.secret.iter().map(|&value| value as u64));
        let errors = Shifted::new(row.errors.iter().copied());
        let numbers = Shifted::new(row.numbers.iter().copied());
        let bits = self.parameters.bits();
        let most = u64::MAX >> (64 - bits);
        for (candidate, seed) in row.seeds.iter().enumerate() {
            let masks = Masks::draw(&self.parameters, bounds, seed);
            let mut secrets = Zeroizing::new(Vec::with_capacity(degree));
            let mut sums = Zeroizing::new(Vec::with_capacity(degree));
            let mut hidden = Zeroizing::new(Vec::with_capacity(degree));
            let mut is_hidden = 1u8;
            for (&mask, &own) in masks.secret.iter().zip(secret.by(challenge)) {
                is_hidden &=
                    u8::from(offset(mask, own as i64, 1, bounds.secret_mask_log2, &mut secrets));
            }
            let own = errors.by(challenge).iter().zip(numbers.by(challenge));
            for ((&mask, &mask_number), (&error, &number)) in
                masks.errors.iter().zip(masks.numbers.iter()).zip(own)
            {
                let sum = mask_number.wrapping_add(number) & most;
                let rounding = |number| self.parameters.rounding(number);
                // An integer, but for what was rounded down.
                let own = error as i64 - rounding(mask_number) + rounding(sum);
                let own = (own + (1 << 31)) >> 32;
                let limits = (bounds.error, bounds.error_mask_log2);
                is_hidden &= u8::from(offset(mask, own, limits.0, limits.1, &mut sums));
                hidden.push(sum);
            }
            // Which candidate is taken has the same chances whatever is hidden.
            declassify(&mut is_hidden);
            if is_hidden == 0 {
                continue;
            }
            let mut bytes = vec![candidate as u8];
            bytes.extend(masks.salt);
            pack(&secrets, bounds.secret_mask_log2 + 1, &mut bytes);
            pack(&sums, bounds.error_mask_log2 + 1, &mut bytes);
            let [low, high] = number_halves(bits);
            let part: Zeroizing<Vec<_>> = Zeroizing::new(
                hidden.iter().map(|value| value & (u64::MAX >> (64 - low))).collect(),
            );
            pack(&part, low, &mut bytes);
            if high > 0 {
                let part: Zeroizing<Vec<_>> =
                    Zeroizing::new(hidden.iter().map(|value| value >> low).collect());
                pack(&part, high, &mut bytes);
            }
            return Ok(bytes);
        }
        Err(Error::NoMask)
    }
}

/// Appends mask + own + 2^mask_log2, and says whether every own within ± `most` is as likely to have given it; in
/// constant time.
pub(super) fn offset(mask: i64, own: i64, most: u64, mask_log2: u32, out: &mut Vec<u64>) -> bool {
    let value = (mask + own + (1 << mask_log2)) as u64;
    out.push(value);
    let room = (1u64 << (mask_log2 + 1)) - 2 * most;
    (own.unsigned_abs() <= most) & (value.wrapping_sub(most) < room)
}

/// A candidate.
struct Masks {
    secret: Zeroizing<Vec<i64>>,
    errors: Zeroizing<Vec<i64>>,
    numbers: Zeroizing<Vec<u64>>,
    salt: [u8; HASH_BYTES],
}

impl Masks {
    fn draw(parameters: &Parameters, bounds: Bounds, seed: &Seed) -> Self {
        let mut source = NoiseSource::from_seed(seed);
        let mut words = Zeroizing::new(vec![0; parameters.degree()]);
        let mut uniform = |log2: u32| {
            source.words(&mut words);
            let centred = |word: &u64| (word >> (63 - log2)) as i64 - (1 << log2);
            Zeroizing::new(words.iter().map(centred).collect::<Vec<_>>())
        };
        let (secret, errors) = (uniform(bounds.secret_mask_log2), uniform(bounds.error_mask_log2));
        source.words(&mut words);
        let bits = parameters.bits();
        let numbers = Zeroizing::new(words.iter().map(|word| word >> (64 - bits)).collect());
        let mut salt = [0; 4];
        source.words(&mut salt);
        Self { secret, errors, numbers, salt: joined(&salt) }
    }
}

/// Four words as bytes.
fn joined(words: &[u64; 4]) -> [u8; 32] {
    let mut bytes = [0; 32];
    for (bytes, word) in bytes.chunks_exact_mut(8).zip(words) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// Signed numbers below the primes, as residues; in constant time.
pub(super) fn signed(ring: &Ring, values: &[i64]) -> Poly<Coefficients> {
    let mut poly = ring.zero();
    for (limb, modulus) in ring.moduli().enumerate() {
        for (out, &value) in poly.limb_mut(limb).iter_mut().zip(values) {
            *out = modulus.from_signed(value);
        }
    }
    poly
}

/// The hash of `sum` − `mask` · `secret` and of a salt.
pub(super) fn hash(
    ring: &Ring,
    salt: &[u8; HASH_BYTES],
    mask: &Poly<Evaluations>,
    secret: Poly<Coefficients>,
    sum: Poly<Coefficients>,
) -> [u8; HASH_BYTES] {
    let mut product = ring.forward(secret);
    ring.mul_assign(&mut product, mask);
    let mut sum = ring.forward(sum);
    ring.sub_assign(&mut sum, &product);
    let mut hasher = blake3::Hasher::new_keyed(salt);
    let mut bytes = Vec::with_capacity(8 * BLOCK);
    for values in sum.values().chunks(BLOCK) {
        bytes.clear();
        bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        hasher.update(&bytes);
    }
    *hasher.finalize().as_bytes()
}

/// Numbers that are hashed at once.
const BLOCK: usize = 4096;
