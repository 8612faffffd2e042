//! SipHash-2-4 (Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012).

use super::Core;

/// SipHash-2-4 keyed with the seed, on the one-byte messages 0 to 3 (children) and 4 to 11 (leaf).
pub(crate) struct SipHash24;

impl Core for SipHash24 {
    #[inline(always)]
    fn children<const N: usize>(seeds: &[u128; N]) -> [[u128; 2]; N] {
        words(seeds, 0)
    }

    #[inline(always)]
    fn leaves<const N: usize>(seeds: &[u128; N]) -> [[u128; 4]; N] {
        words(seeds, 4)
    }
}

/// `W` 128-bit words a seed from the messages `first`, `first + 1`, …; the lower message is the
/// lower half of its word.
#[inline(always)]
fn words<const N: usize, const W: usize>(seeds: &[u128; N], first: u8) -> [[u128; W]; N] {
    let mut out = [[0; W]; N];
    for j in 0..W {
        let low = tags(seeds, first + 2 * j as u8);
        let high = tags(seeds, first + 2 * j as u8 + 1);
        for lane in 0..N {
            out[lane][j] = u128::from(low[lane]) | u128::from(high[lane]) << 64;
        }
    }
    out
}

/// SipHash-2-4 of the one-byte message `message` under every seed.
#[inline(always)]
fn tags<const N: usize>(seeds: &[u128; N], message: u8) -> [u64; N] {
    // A message of under eight bytes is one word: its bytes, then its length in the top byte.
    let word = 1 << 56 | u64::from(message);
    let low = seeds.map(|seed| seed as u64);
    let high = seeds.map(|seed| (seed >> 64) as u64);
    let mut v = [
        low.map(|k| k ^ 0x736f_6d65_7073_6575),
        high.map(|k| k ^ 0x646f_7261_6e64_6f6d),
        low.map(|k| k ^ 0x6c79_6765_6e65_7261),
        high.map(|k| k ^ 0x7465_6462_7974_6573 ^ word),
    ];
    sip_round(&mut v);
    sip_round(&mut v);
    v[0] = v[0].map(|v0| v0 ^ word);
    v[2] = v[2].map(|v2| v2 ^ 0xff);
    for _ in 0..4 {
        sip_round(&mut v);
    }
    std::array::from_fn(|lane| v[0][lane] ^ v[1][lane] ^ v[2][lane] ^ v[3][lane])
}

#[inline(always)]
fn sip_round<const N: usize>(v: &mut [[u64; N]; 4]) {
    for lane in 0..N {
        let [mut v0, mut v1, mut v2, mut v3] = [v[0][lane], v[1][lane], v[2][lane], v[3][lane]];
        v0 = v0.wrapping_add(v1);
        v2 = v2.wrapping_add(v3);
        v1 = v1.rotate_left(13) ^ v0;
        v3 = v3.rotate_left(16) ^ v2;
        v0 = v0.rotate_left(32);
        v2 = v2.wrapping_add(v1);
        v0 = v0.wrapping_add(v3);
        v1 = v1.rotate_left(17) ^ v2;
        v3 = v3.rotate_left(21) ^ v0;
        v2 = v2.rotate_left(32);
        [v[0][lane], v[1][lane], v[2][lane], v[3][lane]] = [v0, v1, v2, v3];
    }
}
