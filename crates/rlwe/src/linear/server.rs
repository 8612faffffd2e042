//! The server's half: sums of products, and what is sent of them.

use std::ops::Range;

use hushtable_ring::kernel::TERMS_MAX;
use hushtable_ring::{Buffer, Coefficients, NoiseSource, Poly, Ring};
use zeroize::Zeroize;

use super::{Parameters, PublicKey, Upload};
use crate::Ciphertext;
use crate::pack::pack;

/// Σ ŵ_j · upload_j, not to be sent as it is.
pub struct Sum(Ciphertext);

/// An answer's bytes, appended by [`Sum::seal`].
pub type Sealed = Vec<u8>;

impl Sum {
    /// The empty sum.
    pub fn zero(parameters: &Parameters) -> Self {
        Self(Ciphertext::zero(parameters.ring()))
    }

    /// What was hidden, as a sum again.
    #[cfg(test)]
    pub(super) fn of(
        parameters: &Parameters,
        mask: Poly<Coefficients>,
        body: Poly<Coefficients>,
    ) -> Self {
        let ring = parameters.ring();
        Self(Ciphertext { mask: ring.forward(mask), body: ring.forward(body) })
    }

    #[cfg(test)]
    pub(super) fn ciphertext(&self) -> &Ciphertext {
        &self.0
    }

    /// Appends what the client is to know: for each of the coefficients `wanted`, it less `shares` (below
    /// 2^bits), and nothing more (see [`linear`](super)).
    ///
    /// `source` is of this answer alone.
    pub fn seal(
        self,
        parameters: &Parameters,
        key: &PublicKey,
        wanted: &[usize],
        shares: &[u64],
        source: &mut NoiseSource,
        out: &mut Sealed,
    ) {
        let flood_log2 = parameters.flood_log2();
        let [mask, body] = self.hide(parameters, key, (wanted, shares), flood_log2, source);
        let (ring, answer_ring) = (parameters.ring(), parameters.answer_ring());
        let mask = drop_limbs(ring, answer_ring, mask);
        let body = drop_limbs(ring, answer_ring, body);
        out.reserve(parameters.answer_bytes(wanted.len()));
        let dropped = parameters.mask_dropped();
        write(answer_ring, &mask, 0..ring.degree(), dropped, parameters.mask_bits(), out);
        let wanted = wanted.iter().copied();
        let dropped = parameters.body_dropped();
        write(answer_ring, &body, wanted, dropped, parameters.body_bits(), out);
    }

    /// The mask and body modulo Q, re-randomised, the shares subtracted from what is wanted and a flood of
    /// `flood_log2` bits added.
    pub(super) fn hide(
        mut self,
        parameters: &Parameters,
        key: &PublicKey,
        (wanted, shares): (&[usize], &[u64]),
        flood_log2: u32,
        source: &mut NoiseSource,
    ) -> [Poly<Coefficients>; 2] {
        let ring = parameters.ring();
        let mut again = ring.forward(source.ternary(ring));
        for (to, zero) in [(&mut self.0.mask, &key.zero.mask), (&mut self.0.body, &key.zero.body)] {
            let mut product = zero.clone();
            ring.mul_assign(&mut product, &again);
            ring.add_assign(to, &product);
        }
        again.zeroize();
        let mut mask = ring.inverse(self.0.mask);
        ring.add_assign(&mut mask, &source.gaussian(ring));
        let mut body = ring.inverse(self.0.body);
        let mut values = vec![0; ring.degree()];
        let slack = parameters.slack_bits();
        let mut low = vec![0; if slack > 0 { wanted.len() } else { 0 }];
        source.words(&mut low);
        for (&at, &share) in wanted.iter().zip(shares) {
            values[at] = share << slack;
        }
        // The added bits hide what fractions an upload had there.
        for (&at, word) in wanted.iter().zip(&low) {
            values[at] |= word >> (64 - slack);
        }
        low.zeroize();
        ring.sub_assign(&mut body, &parameters.encode_steps(values.iter().copied()));
        values.zeroize();
        flood(parameters, wanted, flood_log2, source, &mut body);
        [mask, body]
    }
}

/// Adds to each of the coefficients `wanted` a number that is uniform in −2^bits..2^bits.
fn flood(
    parameters: &Parameters,
    wanted: &[usize],
    bits: u32,
    source: &mut NoiseSource,
    body: &mut Poly<Coefficients>,
) {
    let mask = (1u128 << (bits + 1)) - 1;
    let mut words = vec![0; 2 * wanted.len()];
    source.words(&mut words);
    for (limb, modulus) in parameters.ring().moduli().enumerate() {
        let least = modulus.pow_vartime(2, bits.into());
        let above = modulus.pow_vartime(2, 64);
        let values = body.limb_mut(limb);
        for (&at, words) in wanted.iter().zip(words.as_chunks::<2>().0) {
            let draw = (u128::from(words[1]) << 64 | u128::from(words[0])) & mask;
            // As one number where it has no more than 102 bits, else by its halves.
            let draw = match bits < 101 {
                true => modulus.reduce_product(draw),
                false => {
                    let high = modulus.mul(modulus.reduce_product(draw >> 64), above);
                    modulus.add(high, modulus.reduce_product(draw & u128::from(u64::MAX)))
                }
            };
            let draw = modulus.sub(draw, least);
            values[at] = modulus.add(values[at], draw);
        }
    }
    words.zeroize();
}

/// round(poly · q′ / Q), where q′ is the product of the first primes.
pub(super) fn drop_limbs(
    ring: &Ring,
    to: &Ring,
    mut poly: Poly<Coefficients>,
) -> Poly<Coefficients> {
    let degree = ring.degree();
    let kernel = ring.kernel();
    let mut rounded = Buffer::zeroed(degree);
    for last in (to.limbs()..ring.limbs()).rev() {
        let dropped = ring.modulus(last);
        let (kept, rest) = poly.values_mut().split_at_mut(last * degree);
        for (limb, kept) in kept.chunks_exact_mut(degree).enumerate() {
            let modulus = ring.modulus(limb);
            kernel.recentre(dropped, modulus, &rest[..degree], &mut rounded);
            kernel.sub_assign(modulus, kept, &rounded);
            kernel.scale_assign(modulus, kept, modulus.inv(dropped.value() % modulus.value()));
        }
    }
    poly.truncated(to.limbs())
}

/// Appends the coefficients `at`, each without its low `dropped` bits, in `bits` bits.
fn write(
    ring: &Ring,
    poly: &Poly<Coefficients>,
    at: impl Iterator<Item = usize>,
    dropped: u32,
    bits: u32,
    out: &mut Vec<u8>,
) {
    if ring.limbs() == 1 {
        let values = poly.limb(0);
        let kept: Vec<_> = at.map(|index| values[index] >> dropped).collect();
        pack(&kept, bits, out);
        return;
    }
    let product = ring.crt().product().expect("checked when made") as i128;
    let (mut held, mut held_bits) = (0u128, 0);
    for index in at {
        let value = ring.crt().compose_signed(|limb| poly.limb(limb)[index]);
        let value = (value + (product & (value >> 127))) as u128;
        held |= (value >> dropped) << held_bits;
        held_bits += bits;
        while held_bits >= 8 {
            out.push(held as u8);
            held >>= 8;
            held_bits -= 8;
        }
    }
    if held_bits > 0 {
        out.push(held as u8);
    }
}

/// Weights' polynomials, as evaluations: what one output sees of all its inputs, after another.
///
/// Kept from one sum to the next, so that memory is not asked for again.
pub struct Plaintexts {
    /// Limb by limb, each input's N evaluations.
    values: Buffer,
    degree: usize,
    /// Polynomials of each limb.
    room: usize,
    inputs: usize,
    count: usize,
}

impl Plaintexts {
    /// Room for the polynomials of as many outputs of `inputs` inputs as are best computed together, at most
    /// `outputs`.
    pub fn new(parameters: &Parameters, inputs: usize, outputs: usize) -> Self {
        let ring = parameters.ring();
        let bytes = ring.degree() * ring.limbs() * size_of::<u64>() * inputs;
        let outputs = (PLAINTEXT_BYTES / bytes).clamp(1, outputs.max(1));
        let room = inputs * outputs;
        let values = Buffer::zeroed(room * ring.degree() * ring.limbs());
        Self { values, degree: ring.degree(), room, inputs, count: 0 }
    }

    /// Outputs that there is room for.
    pub fn outputs(&self) -> usize {
        self.room / self.inputs
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.count = 0;
    }

    /// Adds the polynomial of the next input, or of the next output's first: `taps` gives each coefficient
    /// and its weight.
    ///
    /// # Panics
    /// Where there is no more room.
    pub fn push(&mut self, parameters: &Parameters, taps: impl FnOnce(&mut dyn FnMut(usize, i32))) {
        assert!(self.count < self.room, "room for {}", self.room);
        let (ring, degree) = (parameters.ring(), self.degree);
        let mut limbs: Vec<_> = self.values.chunks_exact_mut(self.room * degree).collect();
        let range = self.count * degree..(self.count + 1) * degree;
        limbs.iter_mut().for_each(|values| values[range.clone()].fill(0));
        taps(&mut |at, weight| {
            for (values, modulus) in limbs.iter_mut().zip(ring.moduli()) {
                values[range.start + at] = modulus.from_signed(weight.into());
            }
        });
        for (limb, values) in limbs.into_iter().enumerate() {
            ring.kernel().forward(ring.table(limb), &mut values[range.clone()]);
        }
        self.count += 1;
    }

    /// The evaluations `range` of one limb of all polynomials of an output.
    fn of(&self, limb: usize, output: usize, range: Range<usize>) -> Vec<&[u64]> {
        let first = limb * self.room + output * self.inputs;
        let of = |index: usize| &self.values[index * self.degree..][range.clone()];
        (first..first + self.inputs).map(of).collect()
    }
}

/// Bytes of plaintexts that are computed together: with as much of ciphertexts they fit the caches.
const PLAINTEXT_BYTES: usize = 4 << 20;

/// `sums[i][j]` += Σ_g `plaintexts` of output j and input g · `uploads[i][g]`, for each output that there is.
///
/// In blocks of coefficients, so that what is used again lies near.
pub fn add_products(
    parameters: &Parameters,
    plaintexts: &Plaintexts,
    uploads: &[Vec<&Upload>],
    sums: &mut [&mut [Sum]],
) {
    let ring = parameters.ring();
    let kernel = ring.kernel();
    let outputs = plaintexts.count / plaintexts.inputs;
    let mut products = [0; BLOCK];
    for (limb, modulus) in ring.moduli().enumerate() {
        for start in (0..ring.degree()).step_by(BLOCK) {
            let range = start..start + BLOCK;
            let weights: Vec<_> =
                (0..outputs).map(|output| plaintexts.of(limb, output, range.clone())).collect();
            for (uploads, sums) in uploads.iter().zip(&mut *sums) {
                let of = |side: usize| -> Vec<&[u64]> {
                    let own = uploads.iter().map(|upload| upload.0.polys()[side]);
                    own.map(|poly| &poly.limb(limb)[range.clone()]).collect()
                };
                let sides = [of(0), of(1)];
                for (weights, sum) in weights.iter().zip(sums.iter_mut()) {
                    let outs = [&mut sum.0.mask, &mut sum.0.body];
                    for (out, side) in outs.into_iter().zip(&sides) {
                        let out = &mut out.limb_mut(limb)[range.clone()];
                        for (xs, ys) in weights.chunks(TERMS_MAX).zip(side.chunks(TERMS_MAX)) {
                            kernel.inner_product(modulus, xs, ys, &mut products);
                            kernel.add_assign(modulus, out, &products);
                        }
                    }
                }
            }
        }
    }
}

/// Coefficients of a block.
const BLOCK: usize = 128;
