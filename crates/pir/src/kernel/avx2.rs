//! The product by `vpshufb`: an 8 × 8 matrix times a byte is the XOR of two 16-entry tables, one for
//! each nibble of the byte. The tables come from query bits and stay in registers; the indices are
//! table bits.

use std::arch::x86_64::*;

use super::{BLOCK_GROUPS, LANES, UNIT_BYTES};

/// Two 16-byte tables a group of rows: the sums of the matrix's columns 0 to 3 and 4 to 7.
pub(super) const OPERAND_BYTES: usize = 32 * BLOCK_GROUPS;

/// No byte: what is picked is zero.
const NO: i8 = -1;
/// Columns of which the sum is that of a pair's columns in bit 0 and 1 of a byte's number, for two pairs; the columns
/// 0 to 3 in the low lane, 4 to 7 in the high one.
const PAIRS: [[[i8; 16]; 2]; 2] = [
    [
        [NO, 0, 1, 0, NO, 2, 3, 2, NO, NO, NO, NO, NO, NO, NO, NO],
        [NO, 4, 5, 4, NO, 6, 7, 6, NO, NO, NO, NO, NO, NO, NO, NO],
    ],
    [
        [NO, NO, NO, 1, NO, NO, NO, 3, NO, NO, NO, NO, NO, NO, NO, NO],
        [NO, NO, NO, 5, NO, NO, NO, 7, NO, NO, NO, NO, NO, NO, NO, NO],
    ],
];
/// The pairs' sums that make the sum of nibble n's columns, in byte n.
const NIBBLES: [[i8; 16]; 2] = [
    [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3],
    [4, 4, 4, 4, 5, 5, 5, 5, 6, 6, 6, 6, 7, 7, 7, 7],
];

/// Four groups of rows at a time: eight queries' bytes are interleaved to a word a group, the words transposed
/// together, and each group's two tables looked up in its columns' sums of two. On Zen 3 a group takes 6 cycles; one
/// that is transposed in general registers and adds four masked columns takes 18.
#[target_feature(enable = "avx2")]
pub(super) fn pack(shares: &[&[u8; 64]; LANES], operand: &mut [u8]) {
    assert_eq!(operand.len(), OPERAND_BYTES);
    for (half, operand) in operand.chunks_exact_mut(OPERAND_BYTES / 2).enumerate() {
        let bytes: [__m256i; LANES] = std::array::from_fn(|lane| {
            // SAFETY: a share has 64 bytes, of which each half's 32 are loaded.
            unsafe { _mm256_loadu_si256(shares[lane].as_ptr().add(32 * half).cast()) }
        });
        let pairs = [0, 2, 4, 6].map(|i| (bytes[i], bytes[i + 1]));
        let low = pairs.map(|(a, b)| _mm256_unpacklo_epi8(a, b));
        let high = pairs.map(|(a, b)| _mm256_unpackhi_epi8(a, b));
        // In each 128-bit lane, whose groups are 16 apart: groups 0 to 7, then 8 to 15.
        for (group, [a, b, c, d]) in [(0, low), (8, high)] {
            let low = (group, _mm256_unpacklo_epi16(a, b), _mm256_unpacklo_epi16(c, d));
            let high = (group + 4, _mm256_unpackhi_epi16(a, b), _mm256_unpackhi_epi16(c, d));
            for (group, a, b) in [low, high] {
                pack4(_mm256_unpacklo_epi32(a, b), &mut operand[32 * group..]);
                pack4(_mm256_unpackhi_epi32(a, b), &mut operand[32 * (group + 2)..]);
            }
        }
    }
}

/// The tables of groups 0, 1, 16 and 17, whose rows' bits are `words`: byte j query j's, bit r row r's.
#[inline]
#[target_feature(enable = "avx2")]
fn pack4(words: __m256i, operand: &mut [u8]) {
    // Byte r of a word then holds the eight queries' bits for row r: the matrix's column r.
    let words = transpose8x4(words);
    let columns = [
        _mm256_extract_epi64::<0>(words),
        _mm256_extract_epi64::<1>(words),
        _mm256_extract_epi64::<2>(words),
        _mm256_extract_epi64::<3>(words),
    ];
    for (columns, group) in columns.into_iter().zip([0, 1, 16, 17]) {
        let columns = _mm256_set1_epi64x(columns);
        let [a, b] = PAIRS.map(|picks| _mm256_shuffle_epi8(columns, register(picks)));
        let sums = _mm256_xor_si256(a, b);
        let [a, b] = NIBBLES.map(|picks| _mm256_shuffle_epi8(sums, register([picks; 2])));
        let table = &mut operand[32 * group..][..32];
        // SAFETY: `table` has the 32 bytes that are stored.
        unsafe { _mm256_storeu_si256(table.as_mut_ptr().cast(), _mm256_xor_si256(a, b)) }
    }
}

/// The transposition of four words' 8 × 8 bits.
#[inline]
#[target_feature(enable = "avx2")]
fn transpose8x4(x: __m256i) -> __m256i {
    let swap =
        |x, shifted, mask| _mm256_and_si256(_mm256_xor_si256(x, shifted), _mm256_set1_epi64x(mask));
    let t = swap(x, _mm256_srli_epi64::<7>(x), 0x00AA_00AA_00AA_00AA);
    let x = _mm256_xor_si256(x, _mm256_xor_si256(t, _mm256_slli_epi64::<7>(t)));
    let t = swap(x, _mm256_srli_epi64::<14>(x), 0x0000_CCCC_0000_CCCC);
    let x = _mm256_xor_si256(x, _mm256_xor_si256(t, _mm256_slli_epi64::<14>(t)));
    let t = swap(x, _mm256_srli_epi64::<28>(x), 0x0000_0000_F0F0_F0F0);
    _mm256_xor_si256(x, _mm256_xor_si256(t, _mm256_slli_epi64::<28>(t)))
}

#[inline]
#[target_feature(enable = "avx2")]
fn register(lanes: [[i8; 16]; 2]) -> __m256i {
    let [low, high] = lanes.map(|lane| u128::from_le_bytes(lane.map(|pick| pick as u8)));
    _mm256_set_epi64x((high >> 64) as i64, high as i64, (low >> 64) as i64, low as i64)
}

#[target_feature(enable = "avx2")]
pub(super) fn multiply(tile: &[u8], next: &[u8], units: usize, operands: &[u8], sums: &mut [u8]) {
    let width = units * UNIT_BYTES;
    let count = operands.len() / OPERAND_BYTES;
    let groups = tile.len() / width;
    assert!(tile.len() == groups * width && groups <= BLOCK_GROUPS);
    assert_eq!(operands.len(), count * OPERAND_BYTES);
    assert_eq!(sums.len(), count * width);
    // The next tile is asked for a part at a time: asked for at once, its lines wait for each other, and whole passes
    // over tables beyond the last-level cache take 1.3 to 2 times as long (Zen 3).
    let parts = count.div_ceil(4) * units;
    let mut next = next.chunks(next.len().div_ceil(parts.max(1)).next_multiple_of(64).max(64));
    let mut first = 0;
    while first < count {
        let step = (count - first).min(4);
        let operands = operands[first * OPERAND_BYTES..].as_ptr();
        for column in (0..width).step_by(64) {
            prefetch(next.next().unwrap_or_default());
            let sums = sums[first * width + column..].as_mut_ptr();
            let tile = tile[column..].as_ptr();
            // SAFETY: by the lengths checked above, `step` operands lie behind `operands`, and 64
            // bytes at `column` of each of `groups` groups and of `step` sums behind the other two.
            unsafe {
                match step {
                    1 => multiply_column::<1>(tile, groups, width, operands, sums),
                    2 => multiply_column::<2>(tile, groups, width, operands, sums),
                    3 => multiply_column::<3>(tile, groups, width, operands, sums),
                    _ => multiply_column::<4>(tile, groups, width, operands, sums),
                }
            }
        }
        first += step;
    }
}

/// `Q` query groups over 64 bytes of each group of rows, the sums in `2 Q` registers.
///
/// # Safety
/// Behind `tile` lie `groups` × `width` bytes less the column's offset, of which 64 are read every
/// `width`; behind `operands` `Q × OPERAND_BYTES`; `sums` is read and written likewise, `Q` times.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn multiply_column<const Q: usize>(
    tile: *const u8,
    groups: usize,
    width: usize,
    operands: *const u8,
    sums: *mut u8,
) {
    let nibble = _mm256_set1_epi8(0x0F);
    let mut acc = [[_mm256_setzero_si256(); 2]; Q];
    for group in 0..groups {
        // SAFETY: the caller's promise about `tile`.
        let planes: [__m256i; 2] = std::array::from_fn(|i| unsafe {
            _mm256_loadu_si256(tile.add(group * width + 32 * i).cast())
        });
        let low = planes.map(|x| _mm256_and_si256(x, nibble));
        let high = planes.map(|x| _mm256_and_si256(_mm256_srli_epi16::<4>(x), nibble));
        for (q, acc) in acc.iter_mut().enumerate() {
            // SAFETY: the caller's promise about `operands`.
            let (t_low, t_high) = unsafe {
                let table = operands.add(q * OPERAND_BYTES + 32 * group).cast::<__m128i>();
                (
                    _mm256_broadcastsi128_si256(_mm_loadu_si128(table)),
                    _mm256_broadcastsi128_si256(_mm_loadu_si128(table.add(1))),
                )
            };
            for i in 0..2 {
                let x = _mm256_shuffle_epi8(t_low, low[i]);
                let y = _mm256_shuffle_epi8(t_high, high[i]);
                acc[i] = _mm256_xor_si256(acc[i], _mm256_xor_si256(x, y));
            }
        }
    }
    for (q, acc) in acc.into_iter().enumerate() {
        for (i, acc) in acc.into_iter().enumerate() {
            // SAFETY: the caller's promise about `sums`.
            unsafe {
                let to = sums.add(q * width + 32 * i).cast::<__m256i>();
                _mm256_storeu_si256(to, _mm256_xor_si256(_mm256_loadu_si256(to), acc));
            }
        }
    }
}

/// One query: planes masked by the query's byte, folded, and the parities taken last.
#[target_feature(enable = "avx2")]
pub(super) fn scan(tile: &[u8], next: &[u8], units: usize, shares: &[u8; 64], sums: &mut [u8]) {
    match units {
        1 => scan_units::<2>(tile, next, shares, sums),
        2 => scan_units::<4>(tile, next, shares, sums),
        3 => scan_units::<6>(tile, next, shares, sums),
        _ => scan_units::<8>(tile, next, shares, sums),
    }
}

/// `R` registers of 32 bytes a group of rows.
#[target_feature(enable = "avx2")]
fn scan_units<const R: usize>(tile: &[u8], next: &[u8], shares: &[u8; 64], sums: &mut [u8]) {
    assert_eq!(sums.len(), 32 * R);
    let mut acc = [_mm256_setzero_si256(); R];
    for (group, planes) in tile.chunks_exact(32 * R).enumerate() {
        let mask = _mm256_set1_epi8(shares[group] as i8);
        for line in next.get(32 * R * group..32 * R * (group + 1)).unwrap_or_default().chunks(64) {
            _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast());
        }
        for (acc, planes) in acc.iter_mut().zip(planes.chunks_exact(32)) {
            // SAFETY: `planes` has the 32 bytes that are loaded.
            let x = unsafe { _mm256_loadu_si256(planes.as_ptr().cast()) };
            *acc = _mm256_xor_si256(*acc, _mm256_and_si256(x, mask));
        }
    }
    // Byte n: the parity of nibble n.
    let parities = _mm256_setr_epi8(
        0, 1, 1, 0, 1, 0, 0, 1, 1, 0, 0, 1, 0, 1, 1, 0, //
        0, 1, 1, 0, 1, 0, 0, 1, 1, 0, 0, 1, 0, 1, 1, 0,
    );
    let nibble = _mm256_set1_epi8(0x0F);
    for (acc, sums) in acc.into_iter().zip(sums.chunks_exact_mut(32)) {
        let folded = _mm256_xor_si256(acc, _mm256_srli_epi16::<4>(acc));
        let folded = _mm256_and_si256(folded, nibble);
        let bits = _mm256_shuffle_epi8(parities, folded);
        let to = sums.as_mut_ptr().cast::<__m256i>();
        // SAFETY: `sums` has the 32 bytes that are read and written.
        unsafe { _mm256_storeu_si256(to, _mm256_xor_si256(_mm256_loadu_si256(to), bits)) }
    }
}

/// Asks for the next tile a line at a time.
#[target_feature(enable = "avx2")]
fn prefetch(next: &[u8]) {
    for line in next.chunks(64) {
        _mm_prefetch::<_MM_HINT_T1>(line.as_ptr().cast());
    }
}
