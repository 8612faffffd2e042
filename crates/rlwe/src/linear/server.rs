//! The server's half: sums of products, and what is sent of them.

use hushtable_ring::kernel::TERMS_MAX;
use hushtable_ring::{Buffer, Coefficients, NoiseSource, Poly, Ring};
use zeroize::Zeroize;

use super::{Parameters, PublicKey, Upload};
use crate::Ciphertext;

/// Σ ŵ_j · upload_j, not to be sent as it is.
pub struct Sum(Ciphertext);

/// An answer's bytes, appended by [`Sum::seal`].
pub type Sealed = Vec<u8>;

impl Sum {
    /// The empty sum.
    pub fn zero(parameters: &Parameters) -> Self {
        Self(Ciphertext::zero(parameters.ring()))
    }

    pub(super) fn ciphertext(&self) -> &Ciphertext {
        &self.0
    }

    /// Appends what the client is to know: for each of the coefficients `wanted`, it less `shares` (below
    /// 2^bits), and nothing more (see [`linear`](super)).
    ///
    /// `source` is of this answer alone.
    pub fn seal(
        mut self,
        parameters: &Parameters,
        key: &PublicKey,
        wanted: &[usize],
        shares: &[u64],
        source: &mut NoiseSource,
        out: &mut Sealed,
    ) {
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
        // The shares and the flood, where they are wanted.
        let mut values = vec![0; ring.degree()];
        for (&at, &share) in wanted.iter().zip(shares) {
            values[at] = share;
        }
        ring.sub_assign(&mut body, &parameters.encode(&values));
        flood(parameters, wanted, source, &mut body);
        let mask = drop_limbs(ring, parameters.answer_ring(), mask);
        let body = drop_limbs(ring, parameters.answer_ring(), body);
        out.reserve(parameters.answer_bytes(wanted.len()));
        let (answer_ring, degree) = (parameters.answer_ring(), ring.degree());
        let dropped = parameters.mask_dropped();
        write(answer_ring, &mask, 0..degree, dropped, parameters.mask_bits(), out);
        let wanted = wanted.iter().copied();
        let dropped = parameters.body_dropped();
        write(answer_ring, &body, wanted, dropped, parameters.body_bits(), out);
    }
}

/// Adds to each of the coefficients `wanted` a number that is uniform in −2^F..2^F.
fn flood(
    parameters: &Parameters,
    wanted: &[usize],
    source: &mut NoiseSource,
    body: &mut Poly<Coefficients>,
) {
    let bits = parameters.flood_log2();
    let mask = (1u128 << (bits + 1)) - 1;
    let mut words = vec![0; 2 * wanted.len()];
    source.words(&mut words);
    for (limb, modulus) in parameters.ring().moduli().enumerate() {
        let least = modulus.pow_vartime(2, bits.into());
        let values = body.limb_mut(limb);
        for (&at, words) in wanted.iter().zip(words.as_chunks::<2>().0) {
            let draw = (u128::from(words[1]) << 64 | u128::from(words[0])) & mask;
            let draw = modulus.sub(modulus.reduce_product(draw), least);
            values[at] = modulus.add(values[at], draw);
        }
    }
    words.zeroize();
}

/// round(poly · q′ / Q), where q′ is the product of the first primes.
fn drop_limbs(ring: &Ring, to: &Ring, mut poly: Poly<Coefficients>) -> Poly<Coefficients> {
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
    let product = ring.crt().product().expect("checked when made") as i128;
    let (mut held, mut held_bits) = (0u128, 0);
    for index in at {
        let value = if ring.limbs() == 1 {
            u128::from(poly.limb(0)[index])
        } else {
            let value = ring.crt().compose_signed(|limb| poly.limb(limb)[index]);
            (value + (product & (value >> 127))) as u128
        };
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

/// `sums[i][j]` += Σ_g `weights[j][g]` · `uploads[i][g]`, of one limb: weights are evaluations, one after
/// another, `uploads[i].len()` for each j.
///
/// In blocks of coefficients, so that what is used again lies near.
pub fn add_products(
    parameters: &Parameters,
    limb: usize,
    weights: &[Buffer],
    uploads: &[Vec<&Upload>],
    sums: &mut [Vec<Sum>],
) {
    let ring = parameters.ring();
    let (modulus, kernel) = (ring.modulus(limb), ring.kernel());
    let mut products = [0; BLOCK];
    for start in (0..ring.degree()).step_by(BLOCK) {
        let range = start..start + BLOCK;
        for (uploads, sums) in uploads.iter().zip(&mut *sums) {
            let of = |side: usize| -> Vec<&[u64]> {
                uploads
                    .iter()
                    .map(|upload| &upload.0.polys()[side].limb(limb)[range.clone()])
                    .collect()
            };
            let sides = [of(0), of(1)];
            let rows = weights.chunks_exact(uploads.len());
            for (weights, sum) in rows.zip(sums) {
                let weights: Vec<&[u64]> =
                    weights.iter().map(|weights| &weights[range.clone()]).collect();
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

/// Coefficients of a block.
const BLOCK: usize = 512;
