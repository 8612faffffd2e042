//! The product by `vpshufb`: an 8 × 8 matrix times a byte is the XOR of two 16-entry tables, one for
//! each nibble of the byte. The tables come from query bits and stay in registers; the indices are
//! table bits.

use std::arch::x86_64::*;

use super::{BLOCK_GROUPS, LANES, UNIT_BYTES, transpose8};

/// Two 16-byte tables a group of rows: the sums of the matrix's columns 0 to 3 and 4 to 7.
/// A masked XOR of a register takes three instructions, the look-ups of its nibbles nine: on Zen 1, two keys are
/// scanned for in 0.41 to 0.51 of the product's time, four in 0.69 to 0.95, five in its time or more.
pub(super) const SCANS_MAX: usize = 4;
pub(super) const OPERAND_BYTES: usize = 32 * BLOCK_GROUPS;

/// `BIT[i]` has byte n set where bit i of n is.
const BIT: [u128; 4] = [
    0xFF00_FF00_FF00_FF00_FF00_FF00_FF00_FF00,
    0xFFFF_0000_FFFF_0000_FFFF_0000_FFFF_0000,
    0xFFFF_FFFF_0000_0000_FFFF_FFFF_0000_0000,
    0xFFFF_FFFF_FFFF_FFFF_0000_0000_0000_0000,
];

#[target_feature(enable = "avx2")]
pub(super) fn pack(shares: &[&[u8; 64]; LANES], operand: &mut [u8]) {
    assert_eq!(operand.len(), OPERAND_BYTES);
    // In the low lane the columns 0 to 3, in the high lane 4 to 7.
    let spread: [__m256i; 4] = std::array::from_fn(|i| {
        let i = i as i8;
        _mm256_setr_m128i(_mm_set1_epi8(i), _mm_set1_epi8(i + 4))
    });
    let bit = BIT.map(|mask| {
        _mm256_set_epi64x((mask >> 64) as i64, mask as i64, (mask >> 64) as i64, mask as i64)
    });
    for (group, table) in operand.chunks_exact_mut(32).enumerate() {
        let rows = u64::from_le_bytes(std::array::from_fn(|lane| shares[lane][group]));
        // Byte r now holds the eight queries' bits for row r: the matrix's column r.
        let columns = _mm256_set1_epi64x(transpose8(rows) as i64);
        let mut sum = _mm256_setzero_si256();
        for (spread, bit) in spread.iter().zip(bit) {
            let column = _mm256_and_si256(_mm256_shuffle_epi8(columns, *spread), bit);
            sum = _mm256_xor_si256(sum, column);
        }
        // SAFETY: `table` has the 32 bytes that are stored.
        unsafe { _mm256_storeu_si256(table.as_mut_ptr().cast(), sum) }
    }
}

#[target_feature(enable = "avx2")]
pub(super) fn multiply(tile: &[u8], next: &[u8], units: usize, operands: &[u8], sums: &mut [u8]) {
    let width = units * UNIT_BYTES;
    let count = operands.len() / OPERAND_BYTES;
    let groups = tile.len() / width;
    assert!(tile.len() == groups * width && groups <= BLOCK_GROUPS);
    assert_eq!(operands.len(), count * OPERAND_BYTES);
    assert_eq!(sums.len(), count * width);
    prefetch(next);
    let mut first = 0;
    while first < count {
        let step = (count - first).min(4);
        let operands = operands[first * OPERAND_BYTES..].as_ptr();
        for column in (0..width).step_by(64) {
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
