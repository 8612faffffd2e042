//! VAES: eight registers in flight, two of each of four leaves. Rows are turned by bytes with unpacking,
//! by bits in squares of 8 × 8 with GFNI.

use std::arch::asm;
use std::arch::x86_64::*;

use super::{DEPTH, LEAVES, ROW, ROWS, Row, TILE};

/// Blocks of a register.
const WIDE: usize = 4;
/// Registers of each leaf in flight.
const FLIGHT: usize = 2;

/// AES-128's round keys (FIPS 197, 5.2).
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,vaes,aes")]
pub(super) fn schedule(leaves: &[u128]) -> Vec<[u128; 11]> {
    let mut schedules = Vec::with_capacity(leaves.len());
    for &leaf in leaves {
        let mut keys = [leaf; 11];
        keys[1] = next::<0x01>(keys[0]);
        keys[2] = next::<0x02>(keys[1]);
        keys[3] = next::<0x04>(keys[2]);
        keys[4] = next::<0x08>(keys[3]);
        keys[5] = next::<0x10>(keys[4]);
        keys[6] = next::<0x20>(keys[5]);
        keys[7] = next::<0x40>(keys[6]);
        keys[8] = next::<0x80>(keys[7]);
        keys[9] = next::<0x1B>(keys[8]);
        keys[10] = next::<0x36>(keys[9]);
        schedules.push(keys);
    }
    schedules
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,vaes,aes")]
fn next<const ROUND: i32>(key: u128) -> u128 {
    let word = _mm_aeskeygenassist_si128::<ROUND>(register(key));
    let word = _mm_extract_epi32::<3>(word) as u32;
    // Each word is the exclusive or of all words up to it, and of `word`.
    let sums = key ^ (key << 32);
    let sums = sums ^ (sums << 64);
    sums ^ (u128::from(word) * 0x0000_0001_0000_0001_0000_0001_0000_0001)
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,vaes,aes")]
pub(super) fn fold(
    keys: &[[u128; 11]; LEAVES],
    first: u128,
    rows: &mut [Row; DEPTH],
    sum: &mut Row,
) {
    let (fours, _) = keys.as_chunks::<4>();
    for flight in 0..ROW / (WIDE * FLIGHT) {
        // In registers: what was just stored in halves would be waited for.
        let mut inputs = [_mm512_broadcast_i32x4(register(first)); FLIGHT];
        for (i, input) in inputs.iter_mut().enumerate() {
            let block = (WIDE * (flight * FLIGHT + i)) as i64;
            let blocks = _mm512_setr_epi64(block, 0, block + 1, 0, block + 2, 0, block + 3, 0);
            *input = _mm512_xor_si512(*input, blocks);
        }
        let mut sums = [[_mm512_setzero_si512(); FLIGHT]; DEPTH + 1];
        for (four, keys) in fours.iter().enumerate() {
            let streams = encrypt(keys, &inputs);
            for i in 0..FLIGHT {
                let [r0, r1, r2, r3] = [streams[0][i], streams[1][i], streams[2][i], streams[3][i]];
                let odd = _mm512_xor_si512(r1, r3);
                sums[0][i] = _mm512_xor_si512(sums[0][i], odd);
                sums[1][i] = xor3(sums[1][i], r2, r3);
                let all = xor3(r0, r2, odd);
                sums[DEPTH][i] = _mm512_xor_si512(sums[DEPTH][i], all);
                // A place, not a secret.
                if four & 1 == 1 {
                    sums[2][i] = _mm512_xor_si512(sums[2][i], all);
                }
                if four & 2 == 2 {
                    sums[3][i] = _mm512_xor_si512(sums[3][i], all);
                }
            }
        }
        for i in 0..FLIGHT {
            let place = flight * FLIGHT + i;
            for (row, sums) in rows.iter_mut().zip(&sums) {
                store(row, place, sums[i]);
            }
            store(sum, place, sums[DEPTH][i]);
        }
    }
}

/// `inputs` under each of four keys.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,vaes,aes")]
fn encrypt(keys: &[[u128; 11]; 4], inputs: &[__m512i; FLIGHT]) -> [[__m512i; FLIGHT]; 4] {
    let mut state = [*inputs; 4];
    for (state, keys) in state.iter_mut().zip(keys) {
        for state in state {
            *state = _mm512_xor_si512(*state, broadcast(&keys[0]));
        }
    }
    for round in 1..10 {
        for (state, keys) in state.iter_mut().zip(keys) {
            let key = broadcast(&keys[round]);
            for state in state {
                *state = _mm512_aesenc_epi128(*state, key);
            }
        }
        keep_abreast(&mut state);
    }
    for (state, keys) in state.iter_mut().zip(keys) {
        for state in state {
            *state = _mm512_aesenclast_epi128(*state, broadcast(&keys[10]));
        }
    }
    state
}

/// Holds the compiler to one round of all registers before the next round of any: see `prg::aes`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,vaes,aes")]
fn keep_abreast(state: &mut [[__m512i; FLIGHT]; 4]) {
    let (fours, _) = state.as_flattened_mut().as_chunks_mut::<4>();
    for [a, b, c, d] in fours {
        // SAFETY: no instruction is emitted; the operands stay as they are.
        unsafe {
            asm!(
                "/* {} {} {} {} */",
                inout(zmm_reg) * a,
                inout(zmm_reg) * b,
                inout(zmm_reg) * c,
                inout(zmm_reg) * d,
                options(nomem, nostack, preserves_flags),
            );
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,gfni")]
pub(super) fn transpose(rows: &[Row; ROWS], labels: &mut [u128; TILE]) {
    // Of each sixteen rows, and each byte of sixteen in a lane.
    let mut turned = [[_mm512_setzero_si512(); 16]; ROWS / 16];
    for (wide, labels) in labels.chunks_exact_mut(512).enumerate() {
        for (turned, rows) in turned.iter_mut().zip(rows.chunks_exact(16)) {
            *turned = turn_sixteen(rows, wide);
        }
        for byte in 0..16 {
            let mut words = [_mm512_setzero_si512(); 8];
            for (word, turned) in words.iter_mut().zip(&turned) {
                *word = turned[byte];
            }
            // An element is at (register, word of a lane); each turn rotates these six bits by one.
            for _ in 0..3 {
                let from = words;
                for i in 0..4 {
                    words[2 * i] = _mm512_unpacklo_epi16(from[i], from[i + 4]);
                    words[2 * i + 1] = _mm512_unpackhi_epi16(from[i], from[i + 4]);
                }
            }
            let (halves, _) = words.as_chunks::<4>();
            for (half, words) in halves.iter().enumerate() {
                for (lane, four) in turn_lanes(words).into_iter().enumerate() {
                    let first = 8 * (16 * lane + byte) + 4 * half;
                    let (fours, _) = labels[first..].as_chunks_mut::<4>();
                    store_four(&mut fours[0], four);
                }
            }
        }
    }
}

/// Register c of what comes back: in lane l and word i, the bits of these sixteen rows that are bit i of
/// byte c of lane l of the rows' register number `wide`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,gfni")]
fn turn_sixteen(rows: &[Row], wide: usize) -> [__m512i; 16] {
    let mut turned = [_mm512_setzero_si512(); 16];
    for (i, turned) in turned.iter_mut().enumerate() {
        // Within eights from the last to the first, as the affine map counts rows.
        *turned = load(&rows[i ^ 7], wide);
    }
    // An element is at (register, byte of a lane); each turn rotates these eight bits by one.
    for _ in 0..4 {
        let from = turned;
        for i in 0..8 {
            turned[2 * i] = _mm512_unpacklo_epi8(from[i], from[i + 8]);
            turned[2 * i + 1] = _mm512_unpackhi_epi8(from[i], from[i + 8]);
        }
    }
    let ones = _mm512_set1_epi64(0x8040_2010_0804_0201_u64 as i64);
    let zip =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15));
    for turned in &mut turned {
        // The data are the matrix, and the unit vectors what it is applied to.
        let squares = _mm512_gf2p8affine_epi64_epi8::<0>(ones, *turned);
        *turned = _mm512_shuffle_epi8(squares, zip);
    }
    turned
}

/// Register l of what comes back holds lane l of each.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,gfni")]
fn turn_lanes(x: &[__m512i; 4]) -> [__m512i; 4] {
    let low = [_mm512_shuffle_i64x2::<0x44>(x[0], x[1]), _mm512_shuffle_i64x2::<0x44>(x[2], x[3])];
    let high = [_mm512_shuffle_i64x2::<0xEE>(x[0], x[1]), _mm512_shuffle_i64x2::<0xEE>(x[2], x[3])];
    [
        _mm512_shuffle_i64x2::<0x88>(low[0], low[1]),
        _mm512_shuffle_i64x2::<0xDD>(low[0], low[1]),
        _mm512_shuffle_i64x2::<0x88>(high[0], high[1]),
        _mm512_shuffle_i64x2::<0xDD>(high[0], high[1]),
    ]
}

#[inline]
#[target_feature(enable = "avx512f")]
fn register(x: u128) -> __m128i {
    _mm_set_epi64x((x >> 64) as i64, x as i64)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn xor3(a: __m512i, b: __m512i, c: __m512i) -> __m512i {
    _mm512_ternarylogic_epi64::<0x96>(a, b, c)
}

#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn broadcast(key: &u128) -> __m512i {
    // SAFETY: a u128 is 16 readable bytes; the load needs no alignment.
    _mm512_broadcast_i32x4(unsafe { _mm_loadu_si128(std::ptr::from_ref(key).cast()) })
}

/// Blocks 4 × `place` to 4 × `place` + 3.
#[inline]
#[target_feature(enable = "avx512f")]
fn load(row: &Row, place: usize) -> __m512i {
    let (fours, _) = row.as_chunks::<WIDE>();
    // SAFETY: four blocks are 64 readable bytes; the load needs no alignment.
    unsafe { _mm512_loadu_si512(fours[place].as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store(row: &mut Row, place: usize, x: __m512i) {
    let (fours, _) = row.as_chunks_mut::<WIDE>();
    store_four(&mut fours[place], x);
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store_four(four: &mut [u128; WIDE], x: __m512i) {
    // SAFETY: four blocks are 64 writable bytes; the store needs no alignment.
    unsafe { _mm512_storeu_si512(four.as_mut_ptr().cast(), x) }
}
