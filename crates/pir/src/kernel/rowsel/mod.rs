//! RowSel: the products of a table of evaluations with many clients' expanded queries.
//!
//! For each coefficient a matrix product on its own (Kim et al., "IVE", section III-A). Eight
//! neighbouring coefficients make a vector; the table's vectors are packed (52 or 32 bits a number)
//! in the order in which they are read, four columns of one row side by side, so that each block of
//! the table is read once, whatever the number of clients. Sums of products stay unreduced until a
//! column's end.
//!
//! [`portable`] is the specification. Tables and queries are public to the server that runs this.

use hushtable_prg::Platform;
#[cfg(target_arch = "x86_64")]
use hushtable_prg::Tier;
use hushtable_rlwe::ring::Modulus;

mod portable;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod doubles_avx2;

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

    /// Words of a row of an expanded query for one vector: its eight masks and its eight bodies.
    pub(crate) const fn query_words(self) -> usize {
        match self {
            Self::Narrow => LANES,
            Self::Wide => 2 * LANES,
        }
    }

    /// Words of a column's sums for one chunk: its masks and its bodies.
    pub(crate) const fn sum_words(self) -> usize {
        CHUNK_VECTORS * self.query_words()
    }

    /// Writes one row of an expanded query. Narrow numbers share words, the mask in the lower half:
    /// what many clients' queries take is read again for each block of columns.
    pub(crate) fn pack_query(self, mask: &[u64], body: &[u64], out: &mut [u64]) {
        match self {
            Self::Narrow => {
                for ((out, mask), body) in out.iter_mut().zip(mask).zip(body) {
                    *out = mask | body << 32;
                }
            }
            Self::Wide => {
                let (masks, bodies) = out.split_at_mut(LANES);
                masks.copy_from_slice(mask);
                bodies.copy_from_slice(body);
            }
        }
    }

    /// Reads what [`pack_query`](Self::pack_query) wrote: masks, then bodies.
    pub(crate) fn unpack_query(self, words: &[u64]) -> [[u64; LANES]; 2] {
        match self {
            Self::Narrow => [
                std::array::from_fn(|lane| words[lane] & u64::from(u32::MAX)),
                std::array::from_fn(|lane| words[lane] >> 32),
            ],
            Self::Wide => [
                std::array::from_fn(|lane| words[lane]),
                std::array::from_fn(|lane| words[LANES + lane]),
            ],
        }
    }

    /// A column's masks and bodies of one chunk, out of its [`sum_words`](Self::sum_words).
    pub(crate) fn unpack_sums(self, words: &[u64], masks: &mut [u64], bodies: &mut [u64]) {
        match self {
            Self::Narrow => {
                for ((word, mask), body) in words.iter().zip(masks).zip(bodies) {
                    (*mask, *body) = (word & u64::from(u32::MAX), word >> 32);
                }
            }
            Self::Wide => {
                let (from_masks, from_bodies) = words.split_at(CHUNK);
                masks.copy_from_slice(from_masks);
                bodies.copy_from_slice(from_bodies);
            }
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
    /// One for each client: vector, row, and what [`Packing::pack_query`] makes of it.
    pub queries: &'a [&'a [u64]],
}

impl Task<'_> {
    /// Bytes of a group for one vector of coefficients.
    pub(crate) fn group_bytes(&self) -> usize {
        self.rows * GROUP_COLUMNS * self.packing.vector_bytes()
    }

    /// Words of a client's query for one vector of coefficients.
    pub(crate) fn query_vector(&self) -> usize {
        self.rows * self.packing.query_words()
    }

    /// Words that the task yields: client, column, and of wide numbers (mask, body), then
    /// coefficient; narrow ones share words, the mask in the lower half.
    pub(crate) fn out_len(&self) -> usize {
        self.queries.len() * self.groups * GROUP_COLUMNS * self.packing.sum_words()
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

/// Where a vector of a column's masks goes, and its bodies: the same words for narrow numbers.
fn out_index(task: &Task<'_>, client: usize, column: usize, vector: usize) -> [usize; 2] {
    let words = task.packing.sum_words();
    let mask = (client * task.groups * GROUP_COLUMNS + column) * words + vector * LANES;
    [mask, mask + words - CHUNK]
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
            Tier::Avx512 | Tier::Avx2 if is_x86_feature_detected!("fma") => return Self::Avx2,
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
            // SAFETY: `new` chose this where AVX2 (the tier) and FMA were detected; `check` held all
            // lengths.
            Self::Avx2 => unsafe { avx2::multiply(task, out) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `new` chose this where AVX-512 F, DQ, BW, VL (the tier), IFMA and VBMI were
            // detected; `check` held all lengths.
            Self::Avx512Ifma => unsafe { avx512::multiply(task, out) },
        }
    }
}
