//! Normal noise by Box and Muller's method, with a logarithm, sine and cosine that neither branch
//! nor look anything up.
//!
//! Limits: the numbers are 53-bit floats, at most 8.6 from zero, and what is added to a float is
//! rounded by an amount that depends on the sum. So this is the Gaussian mechanism in floating
//! point, whose low bits can tell more than its proof allows (Mironov, "On significance of the
//! least significant bits for differential privacy", CCS 2012). Square roots and divisions take
//! the processor's time, which for some operands and models is not constant.

use std::f64::consts::{FRAC_PI_2, LN_2, SQRT_2};
use std::hint::black_box;

use rand::CryptoRng;
use zeroize::Zeroizing;

const PAIRS: usize = 32;
const UNIT: f64 = 1.0 / (1_u64 << 53) as f64;

/// Fills `noise` with independent standard normal numbers. How many bytes are drawn depends on its
/// length alone.
pub(super) fn fill_normal(noise: &mut [f64], rng: &mut dyn CryptoRng) {
    let mut bytes = Zeroizing::new([0_u8; 16 * PAIRS]);
    for block in noise.chunks_mut(2 * PAIRS) {
        let drawn = &mut bytes[..16 * block.len().div_ceil(2)];
        rng.fill_bytes(drawn);
        for (pair, drawn) in block.chunks_mut(2).zip(drawn.chunks_exact(16)) {
            let word = |at: usize| {
                let bytes: [u8; 8] = std::array::from_fn(|index| drawn[at + index]);
                black_box(u64::from_le_bytes(bytes))
            };
            // In (0, 1], so that the logarithm is finite.
            let radius = (-2.0 * ln_unit(((word(0) >> 11) + 1) as f64 * UNIT)).sqrt();
            let (sin, cos) = sin_cos_turn(word(8));
            let both = [radius * cos, radius * sin];
            pair.iter_mut().zip(both).for_each(|(to, value)| *to = value);
        }
    }
}

/// ln x for normal 0 < x ≤ 1, to about 2e-16.
fn ln_unit(x: f64) -> f64 {
    const FRACTION: u64 = (1 << 52) - 1;
    let bits = x.to_bits();
    // x = m · 2^e with m in [√2/2, √2).
    let fraction = bits & FRACTION;
    let is_large = (SQRT_2.to_bits() & FRACTION).wrapping_sub(fraction) >> 63;
    let m = f64::from_bits(fraction | (1023 - is_large) << 52);
    let e = (bits >> 52) as i64 - 1023 + is_large as i64;
    // ln m = 2 artanh s, |s| < 0.172
    let s = (m - 1.0) / (m + 1.0);
    let squared = s * s;
    let mut series = 0.0;
    for n in (0..12).rev() {
        series = series * squared + 1.0 / f64::from(2 * n + 1);
    }
    e as f64 * LN_2 + 2.0 * s * series
}

/// Sine and cosine of a uniform angle: a quarter turn by two bits, and an angle of -π/4 to π/4.
fn sin_cos_turn(word: u64) -> (f64, f64) {
    let within = ((word >> 9) & ((1 << 53) - 1)) as f64 * UNIT - 0.5;
    let angle = within * FRAC_PI_2;
    let squared = angle * angle;
    let (mut sin, mut cos) = (1.0, 1.0);
    for n in (1..10_i32).rev() {
        sin = 1.0 - sin * squared / f64::from(2 * n * (2 * n + 1));
        cos = 1.0 - cos * squared / f64::from(2 * n * (2 * n - 1));
    }
    sin *= angle;
    let quarter = word >> 62;
    let is_swapped = black_box(0_u64.wrapping_sub(quarter & 1));
    let difference = (sin.to_bits() ^ cos.to_bits()) & is_swapped;
    // Quarters 0 to 3: (s, c), (c, -s), (-s, -c), (-c, s).
    let sin_sign = (quarter >> 1) << 63;
    let cos_sign = (quarter >> 1 ^ quarter & 1) << 63;
    (
        f64::from_bits(sin.to_bits() ^ difference ^ sin_sign),
        f64::from_bits(cos.to_bits() ^ difference ^ cos_sign),
    )
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;
    use rand_chacha::ChaCha20Rng;

    use super::{FRAC_PI_2, UNIT, fill_normal, ln_unit, sin_cos_turn};

    #[test]
    fn functions_agree_with_the_library() {
        let mut word = 1_u64;
        for _ in 0..20_000 {
            word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
            for shift in [11, 20, 40, 60] {
                let x = ((word >> shift) + 1) as f64 * UNIT;
                let error = (ln_unit(x) - x.ln()).abs();
                assert!(error <= 1e-15 * x.ln().abs().max(0.1), "ln {x}: {error:e}");
            }
            let within = ((word >> 9) & ((1 << 53) - 1)) as f64 * UNIT - 0.5;
            let angle = (within + (word >> 62) as f64) * FRAC_PI_2;
            let (sin, cos) = sin_cos_turn(word);
            assert!((sin - angle.sin()).abs() < 1e-15, "sin {angle}");
            assert!((cos - angle.cos()).abs() < 1e-15, "cos {angle}");
        }
        assert_eq!(ln_unit(1.0), 0.0);
        assert!((ln_unit(UNIT) - UNIT.ln()).abs() < 1e-13);
    }

    #[test]
    fn noise_is_normal_and_independent() {
        let mut noise = vec![0.0; 400_001];
        fill_normal(&mut noise, &mut ChaCha20Rng::from_seed([1; 32]));
        let count = noise.len() as f64;
        let moment = |power: i32| noise.iter().map(|x| x.powi(power)).sum::<f64>() / count;
        for (power, expected, spread) in
            [(1, 0.0, 1.0), (2, 1.0, 2.0), (3, 0.0, 15.0), (4, 3.0, 96.0)]
        {
            let error = (moment(power) - expected) / (spread / count).sqrt();
            assert!(error.abs() < 5.0, "moment {power} is off by {error} standard errors");
        }
        // Neighbours come from one pair.
        for lag in [1, 2] {
            let product: f64 = noise.iter().zip(&noise[lag..]).map(|(a, b)| a * b).sum();
            assert!((product / count.sqrt()).abs() < 5.0);
        }
        for (bound, share) in [(1.0, 0.682_689), (2.0, 0.954_500), (3.0, 0.997_300)] {
            let inside = noise.iter().filter(|x| x.abs() < bound).count() as f64 / count;
            assert!((inside - share).abs() < 5.0 * (share * (1.0 - share) / count).sqrt());
        }
    }
}
