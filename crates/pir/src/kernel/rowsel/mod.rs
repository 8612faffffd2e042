//! RowSel: the products of a table of evaluations with many clients' expanded queries.
//!
//! For each coefficient a matrix product on its own (Kim et al., "IVE", section III-A). Eight
//! neighbouring coefficients make a vector; the table's vectors are packed (52 or 32 bits a number)
//! in the order in which they are read, four columns of one row side by side, so that each block of
//! the table is read once, whatever the number of clients. Sums of products stay unreduced until a
//! column's end.
//!
//! [`portable`] is the specification. Tables and queries are public to the server that runs this.

use hushtable_prg::{Platform, Tier};
use hushtable_rlwe::ring::Modulus;

mod portable;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;

#[cfg(test)]
mod check;

/// Coefficients of a vector.
pub(crate) const LANES: usize = 8;
/// Columns of a group: they lie side by side for each row.
pub(crate) const GROUP_COLUMNS: usize = 4;
/// Vectors of one polynomial that are answered together: one chunk of output.
pub(crate) const CHUNK_VECTORS: usize = 8;
/// Numbers of one polynomial in a chunk.
pub(crate) const CHUNK: usize = CHUNK_VECTORS * LANES;
/// Most rows of a product: sums of so many products of 52 bits stay below 2^63.
pub(crate) const ROWS_MAX: usize = 2047;
/// Bytes that a kernel may read past the end of a table region.
pub(crate) const SLACK_BYTES: usize = 16;

/// Bits of one stored number of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packing {
    /// 32, for moduli of at most 32 bits.
    Narrow,
    /// 52.
    Wide,
}

impl Packing {
    /// What residues of `modulus` need.
    pub(crate) fn of(modulus: Modulus) -> Self {
        if modulus.bits() <= 32 { Self::Narrow } else { Self::Wide }
    }

    /// Bytes of a vector.
    pub(crate) const fn vector_bytes(self) -> usize {
        match self {
            Self::Narrow => LANES * 4,
            Self::Wide => LANES * 52 / 8,
        }
    }

    /// Packs eight numbers.
    pub(crate) fn pack(self, values: &[u64; LANES], out: &mut [u8]) {
        match self {
            Self::Narrow => {
                for (bytes, &value) in out.chunks_exact_mut(4).zip(values) {
                    bytes.copy_from_slice(&(value as u32).to_le_bytes());
                }
            }
            Self::Wide => {
                let &[a, b, c, d, e, f, g, h] = values;
                let words = [
                    a | b << 52,
                    b >> 12 | c << 40,
                    c >> 24 | d << 28,
                    d >> 36 | e << 16,
                    e >> 48 | f << 4 | g << 56,
                    g >> 8 | h << 44,
                ];
                let (head, tail) = out.split_at_mut(48);
                for (bytes, word) in head.chunks_exact_mut(8).zip(words) {
                    bytes.copy_from_slice(&word.to_le_bytes());
                }
                tail.copy_from_slice(&((h >> 20) as u32).to_le_bytes());
            }
        }
    }
}

/// The operands of one call: a chunk of coefficients of one block of columns, in one limb.
pub(crate) struct Task<'a> {
    /// The limb's modulus.
    pub modulus: Modulus,
    /// How the table is packed.
    pub packing: Packing,
    /// D0.
    pub rows: usize,
    /// Groups of four columns.
    pub groups: usize,
    /// The table: vector, group, row, column; and at least [`SLACK_BYTES`] after it.
    pub table: &'a [u8],
    /// One for each client: vector, row, (mask, body), lane.
    pub queries: &'a [&'a [u64]],
}

impl Task<'_> {
    /// Bytes of a group for one vector of coefficients.
    pub(crate) fn group_bytes(&self) -> usize {
        self.rows * GROUP_COLUMNS * self.packing.vector_bytes()
    }

    /// Numbers of a client's query for one vector of coefficients.
    pub(crate) fn query_vector(&self) -> usize {
        self.rows * 2 * LANES
    }

    /// Numbers that the task yields: client, column, (mask, body), coefficient.
    pub(crate) fn out_len(&self) -> usize {
        self.queries.len() * self.groups * GROUP_COLUMNS * 2 * CHUNK
    }

    fn check(&self, out: &[u64]) {
        assert!((1..=ROWS_MAX).contains(&self.rows));
        let bytes = CHUNK_VECTORS * self.groups * self.group_bytes();
        assert!(self.table.len() >= bytes + SLACK_BYTES);
        let query = CHUNK_VECTORS * self.query_vector();
        assert!(self.queries.iter().all(|numbers| numbers.len() == query));
        assert_eq!(out.len(), self.out_len());
    }
}

/// Where a result goes: client, column, (mask, body), vector.
fn out_index(task: &Task<'_>, client: usize, column: usize, side: usize, vector: usize) -> usize {
    ((client * task.groups * GROUP_COLUMNS + column) * 2 + side) * CHUNK + vector * LANES
}

/// One backend of the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowSelect {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512Ifma,
}

impl RowSelect {
    pub(crate) fn new(platform: Platform) -> Self {
        #[cfg(target_arch = "x86_64")]
        match platform.tier() {
            Tier::Avx512
                if is_x86_feature_detected!("avx512ifma")
                    && is_x86_feature_detected!("avx512vbmi") =>
            {
                return Self::Avx512Ifma;
            }
            Tier::Avx512 | Tier::Avx2 => return Self::Avx2,
            _ => {}
        }
        let _ = platform;
        Self::Portable
    }

    /// `out` = the sums over rows of table × query, reduced.
    pub(crate) fn multiply(self, task: &Task<'_>, out: &mut [u64]) {
        task.check(out);
        match self {
            Self::Portable => portable::multiply(task, out),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `new` chose this where AVX2 was detected; `check` held all lengths.
            Self::Avx2 => unsafe { avx2::multiply(task, out) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `new` chose this where AVX-512 F, DQ, BW, VL (the tier), IFMA and VBMI were
            // detected; `check` held all lengths.
            Self::Avx512Ifma => unsafe { avx512::multiply(task, out) },
        }
    }
}
