//! Kernels over slices of residues, on every instruction set.
//!
//! `portable` is the specification; every other file computes the same numbers, and `check` holds
//! it to that. `avx512`, `basis_avx512`, `columns_avx512`, `lanes_avx512`, `ntt_avx512` and `uniform_avx512` multiply integers of 52
//! bits; `avx2` and `neon` doubles (`float`), beside digits in plain integers (`scalar`).

#![allow(unsafe_code, reason = "SIMD intrinsics")]

mod portable;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod basis_avx512;
#[cfg(target_arch = "x86_64")]
mod columns_avx512;
#[cfg(target_arch = "x86_64")]
mod digits_avx2;
#[cfg(any(test, target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little")))]
mod float;
mod garner;
#[cfg(target_arch = "x86_64")]
mod lanes_avx512;
#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
mod neon;
#[cfg(target_arch = "x86_64")]
mod ntt_avx2;
#[cfg(target_arch = "x86_64")]
mod ntt_avx512;
mod scalar;
#[cfg(target_arch = "x86_64")]
mod uniform_avx512;

#[cfg(test)]
mod check;

use hushtable_prg::{Platform, Tier};

use crate::crt::Crt;
use crate::gadget::Gadget;
use crate::sample::Stream;
use crate::{Modulus, NttTable};
use garner::Garner;

/// Most terms of one [`Kernel::inner_product`].
pub const TERMS_MAX: usize = 256;

/// Most terms of one [`Kernel::row_products`].
pub const ROWS_MAX: usize = 62;

/// Most terms of one [`Kernel::packed_products`].
pub const PACKED_MAX: usize = 256;

/// Numbers of a polynomial that lie side by side where several are packed together.
pub const ROW_BLOCK: usize = 32;

/// Numbers of one row of [`Kernel::add_columns`].
pub const COLUMNS: usize = 32;

/// Bytes of a packed residue.
pub fn width_bytes(modulus: Modulus) -> usize {
    modulus.bits().div_ceil(8) as usize
}

/// Packs one of `count` polynomials of one residue, number `which`, into `out`, where all have room:
/// [`ROW_BLOCK`] numbers of polynomial 0 (or all, where there are fewer), each in
/// [`width_bytes`] bytes, as many of polynomial 1, and so on; then the next ones of polynomial 0.
pub fn pack_rows(modulus: Modulus, values: &[u64], place: (usize, usize), out: &mut [u8]) {
    pack_runs(modulus, values, 1, place, out);
}

/// As [`pack_rows`], of polynomials whose numbers come in runs of `run` (a power of two) equal ones:
/// `values`, and what is packed, are one of each run.
pub fn pack_runs(
    modulus: Modulus,
    values: &[u64],
    run: usize,
    (count, which): (usize, usize),
    out: &mut [u8],
) {
    let width = width_bytes(modulus);
    let block = block_words(values.len() * run, run);
    assert!(which < count && out.len() == count * values.len() * width);
    let blocks = out.chunks_exact_mut(block * width).skip(which).step_by(count);
    for (out, values) in blocks.zip(values.chunks_exact(block)) {
        for (out, value) in out.chunks_exact_mut(width).zip(values) {
            out.copy_from_slice(&value.to_le_bytes()[..width]);
        }
    }
}

/// The second factors of [`Kernel::row_products`], all times 2^52: for each row a first side and a second.
#[derive(Clone, Copy)]
pub enum Rows<'a> {
    /// Packed together ([`pack_rows`]): row 0's first side, its second, row 1's and so on, which makes them
    /// one stream.
    Packed(&'a [u8]),
    /// First sides as numbers, one row after the other; second ones packed together.
    Apart {
        /// First sides.
        firsts: &'a [u64],
        /// Second sides.
        seconds: &'a [u8],
    },
}

impl Rows<'_> {
    /// How many rows of `length` numbers there are.
    fn count(self, modulus: Modulus, length: usize) -> usize {
        let bytes = length * width_bytes(modulus);
        match self {
            Self::Packed(rows) => {
                assert!(rows.len().is_multiple_of(2 * bytes));
                rows.len() / (2 * bytes)
            }
            Self::Apart { firsts, seconds } => {
                assert!(firsts.len().is_multiple_of(length) && seconds.len().is_multiple_of(bytes));
                (firsts.len() / length).min(seconds.len() / bytes)
            }
        }
    }
}

/// Numbers that are packed of a polynomial of `length` numbers before the next one's.
fn block_words(length: usize, run: usize) -> usize {
    (ROW_BLOCK.min(length) / run).max(1)
}

/// Terms of [`Kernel::packed_products`] whose first factors lie together.
pub struct PackedGroup<'a> {
    /// Polynomials as [`pack_runs`] packs them, given times 2^52.
    pub packed: &'a [u8],
    /// How many there are.
    pub count: usize,
    /// How many equal numbers, a power of two, each packed one stands for.
    pub run: usize,
    /// Number of a packed polynomial, and its other factors.
    pub terms: Vec<(usize, [&'a [u64]; 2])>,
}

impl PackedGroup<'_> {
    /// Numbers of each polynomial, the repeated ones counted.
    fn length(&self, modulus: Modulus) -> usize {
        self.packed.len() / (self.count * width_bytes(modulus)).max(1) * self.run
    }
}

/// Most sources of one [`Kernel::combine`]: twelve primes of P and one of Q, which a division carries.
pub const SOURCES_MAX: usize = 13;

/// The kernels of one machine: carried as a value, so that what it names was detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel(Isa);

/// Instructions that [`Kernel::new`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Isa {
    Portable,
    #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
    Neon,
    /// With FMA.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// F, BW, DQ, VL, IFMA and VBMI.
    #[cfg(target_arch = "x86_64")]
    Avx512Ifma,
}

impl Kernel {
    /// The best kernels that `platform` and the machine under it allow.
    pub fn new(platform: Platform) -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            // Every processor that has the one has the other.
            let is_wide =
                is_x86_feature_detected!("avx512ifma") && is_x86_feature_detected!("avx512vbmi");
            if platform.tier() == Tier::Avx512 && is_wide {
                return Self(Isa::Avx512Ifma);
            }
            let is_avx2 = matches!(platform.tier(), Tier::Avx2 | Tier::Avx512);
            if is_avx2 && is_x86_feature_detected!("fma") {
                return Self(Isa::Avx2);
            }
        }
        #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
        if platform.tier() == Tier::Neon {
            return Self(Isa::Neon);
        }
        let _ = platform;
        Self(Isa::Portable)
    }

    /// The instructions that are used: `portable`, `neon`, `avx2` or `avx512ifma`.
    pub fn isa(self) -> &'static str {
        match self.0 {
            Isa::Portable => "portable",
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            Isa::Neon => "neon",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Ifma => "avx512ifma",
        }
    }

    /// Coefficients to evaluations, in place; all values below the modulus before and after.
    pub fn forward(self, table: &NttTable, values: &mut [u64]) {
        #[cfg(feature = "counts")]
        counts::add(&counts::FORWARD, 1);
        assert_eq!(values.len(), table.degree(), "one limb at a time");
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the flags were detected when the kernel was made.
            Isa::Avx512Ifma if values.len() >= ntt_avx512::LEAF => unsafe {
                ntt_avx512::forward(table, values);
            },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: likewise.
            Isa::Avx2 => unsafe { avx2::forward(table, values) },
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            Isa::Neon => neon::forward(table, values),
            _ => portable::forward(table, values),
        }
    }

    /// Evaluations to coefficients, in place.
    pub fn inverse(self, table: &NttTable, values: &mut [u64]) {
        #[cfg(feature = "counts")]
        counts::add(&counts::INVERSE, 1);
        assert_eq!(values.len(), table.degree(), "one limb at a time");
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the flags were detected when the kernel was made.
            Isa::Avx512Ifma if values.len() >= ntt_avx512::LEAF => unsafe {
                ntt_avx512::inverse(table, 1, values);
            },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: likewise.
            Isa::Avx2 => unsafe { avx2::inverse(table, values) },
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            Isa::Neon => neon::inverse(table, values),
            _ => portable::inverse(table, values),
        }
    }

    /// As [`inverse`](Self::inverse), multiplied with `w` (below the modulus) besides.
    pub fn inverse_scaled(self, table: &NttTable, w: u64, values: &mut [u64]) {
        assert_eq!(values.len(), table.degree(), "one limb at a time");
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the flags were detected when the kernel was made.
            Isa::Avx512Ifma if values.len() >= ntt_avx512::LEAF => unsafe {
                ntt_avx512::inverse(table, w, values);
            },
            Isa::Portable => portable::inverse_scaled(table, w, values),
            #[allow(unreachable_patterns, reason = "no vectors on some machines")]
            _ => {
                self.inverse(table, values);
                self.scale_assign(table.modulus(), values, w);
            }
        }
    }

    /// x += y.
    pub fn add_assign(self, modulus: Modulus, x: &mut [u64], y: &[u64]) {
        assert_eq!(x.len(), y.len());
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the flags were detected when the kernel was made.
            Isa::Avx512Ifma if whole(x) => unsafe { avx512::add_assign(modulus, x, y) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: likewise.
            Isa::Avx2 => unsafe { avx2::add_assign(modulus, x, y) },
            _ => portable::add_assign(modulus, x, y),
        }
    }

    /// x −= y.
    pub fn sub_assign(self, modulus: Modulus, x: &mut [u64], y: &[u64]) {
        assert_eq!(x.len(), y.len());
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the flags were detected when the kernel was made.
            Isa::Avx512Ifma if whole(x) => unsafe { avx512::sub_assign(modulus, x, y) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: likewise.
            Isa::Avx2 => unsafe { avx2::sub_assign(modulus, x, y) },
            _ => portable::sub_assign(modulus, x, y),
        }
    }

    /// x = −x.
    pub fn neg_assign(self, modulus: Modulus, x: &mut [u64]) {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the flags were detected when the kernel was made.
            Isa::Avx512Ifma if whole(x) => unsafe { avx512::neg_assign(modulus, x) },
            _ => portable::neg_assign(modulus, x),
        }
    }

    /// x *= y, element by element.
    pub fn mul_assign(self, modulus: Modulus, x: &mut [u64], y: &[u64]) {
        assert_eq!(x.len(), y.len());
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the flags were detected when the kernel was made.
            Isa::Avx512Ifma if whole(x) => unsafe { avx512::mul_assign(modulus, x, y) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: likewise.
            Isa::Avx2 => unsafe { avx2::mul_assign(modulus, x, y) },
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            Isa::Neon => neon::mul_assign(modulus, x, y),
            _ => portable::mul_assign(modulus, x, y),
        }
    }

    /// Uniform numbers below the modulus, each times `weight`, a number below it too: the words of
    /// `stream`, cut to the modulus' length and taken where they are below it. Time depends on the seed,
    /// which is public.
    pub fn uniform(self, modulus: Modulus, stream: Stream, weight: u64, out: &mut [u64]) {
        assert!(weight < modulus.value());
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the flags were detected when the kernel was made.
            Isa::Avx512Ifma => unsafe {
                uniform_avx512::uniform(modulus, stream, weight, out);
            },
            _ => portable::uniform(modulus, stream, weight, out),
        }
    }

    /// x *= w for one number w below the modulus.
    pub fn scale_assign(self, modulus: Modulus, x: &mut [u64], w: u64) {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the flags were detected when the kernel was made.
            Isa::Avx512Ifma if whole(x) => unsafe { avx512::scale_assign(modulus, x, w) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: likewise.
            Isa::Avx2 => unsafe { avx2::scale_assign(modulus, x, w) },
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            Isa::Neon => neon::scale_assign(modulus, x, w),
            _ => portable::scale_assign(modulus, x, w, modulus.shoup(w)),
        }
    }

    /// `out = Σ xs[j] · ys[j]`, element by element, for 1 to [`TERMS_MAX`] terms.
    pub fn inner_product(self, modulus: Modulus, xs: &[&[u64]], ys: &[&[u64]], out: &mut [u64]) {
        #[cfg(feature = "counts")]
        counts::add(&counts::PRODUCTS, xs.len());
        assert!(xs.len() == ys.len() && (1..=TERMS_MAX).contains(&xs.len()));
        assert!(xs.iter().chain(ys).all(|values| values.len() == out.len()));
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the flags were detected when the kernel was made.
            Isa::Avx512Ifma if whole(out) && modulus.bits() >= SUM_BITS_MIN => unsafe {
                avx512::inner_product(modulus, xs, ys, out);
            },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: likewise.
            Isa::Avx2 if out.len().is_multiple_of(avx2::LANES) => unsafe {
                avx2::inner_product(modulus, xs, ys, out);
            },
            _ => portable::inner_product(modulus, xs, ys, out),
        }
    }

    /// `outs[side] = (Σ xs[j] · row_j[side] + Σ x · ys[side]) / 2^52`, element by element, the second sum
    /// over `more`'s (x, ys): what a key switch adds up.
    ///
    /// There may be more rows than `xs`. There are at most [`ROWS_MAX`] terms.
    pub fn row_products(
        self,
        modulus: Modulus,
        xs: &[&[u64]],
        rows: Rows,
        more: &[(&[u64], [&[u64]; 2])],
        outs: [&mut [u64]; 2],
    ) {
        let length = outs[0].len();
        assert!(xs.len() + more.len() <= ROWS_MAX && outs[1].len() == length);
        assert!(length > 0 && length.is_multiple_of(ROW_BLOCK.min(length)));
        assert!(xs.len() <= rows.count(modulus, length));
        assert!(xs.iter().all(|x| x.len() == length));
        assert!(more.iter().all(|(x, [y, z])| [x, y, z].iter().all(|v| v.len() == length)));
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the flags were detected when the kernel was made.
            Isa::Avx512Ifma if length >= ROW_BLOCK => unsafe {
                basis_avx512::row_products(modulus, xs, rows, more, outs);
            },
            _ => portable::row_products(modulus, xs, rows, more, outs),
        }
    }

    /// `outs[side] = Σ packed · factors[side] / 2^52`, element by element from number `start` of the
    /// factors on, over 1 to [`PACKED_MAX`] terms of all groups: plaintexts with ciphertexts.
    pub fn packed_products(
        self,
        modulus: Modulus,
        groups: &[PackedGroup],
        start: usize,
        outs: [&mut [u64]; 2],
    ) {
        let length = outs[0].len();
        assert!(length > 0 && length.is_multiple_of(ROW_BLOCK.min(length)));
        assert!(outs[1].len() == length && start.is_multiple_of(ROW_BLOCK));
        let terms: usize = groups.iter().map(|group| group.terms.len()).sum();
        assert!((1..=PACKED_MAX).contains(&terms));
        for group in groups {
            let all = group.length(modulus);
            assert!(group.run.is_power_of_two() && start + length <= all);
            assert!(all.is_multiple_of(ROW_BLOCK.min(all)));
            assert!(group.packed.len() == group.count * (all / group.run) * width_bytes(modulus));
            let fits = |(term, factors): &(usize, [&[u64]; 2])| {
                *term < group.count && factors.iter().all(|factor| factor.len() == all)
            };
            assert!(group.terms.iter().all(fits));
        }
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the flags were detected when the kernel was made.
            Isa::Avx512Ifma if length >= ROW_BLOCK => unsafe {
                basis_avx512::packed_products(modulus, groups, terms, start, outs);
            },
            _ => portable::packed_products(modulus, groups, start, outs),
        }
    }

    /// outs[row][column] += Σ_i weights[row · stride + i] · columns[i][column] modulo 2^bits; what is above
    /// these bits is left undefined. A convolution in plain integers, [`COLUMNS`] outputs at a time.
    pub fn add_columns(
        self,
        bits: u32,
        weights: &[i32],
        stride: usize,
        columns: &[[u64; COLUMNS]],
        outs: &mut [[u64; COLUMNS]],
    ) {
        assert!(bits <= 64 && columns.len() <= stride);
        assert!(outs.is_empty() || weights.len() >= (outs.len() - 1) * stride + columns.len());
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the flags were detected when the kernel was made.
            Isa::Avx512Ifma if bits <= 52 => unsafe {
                columns_avx512::add_columns_52(weights, stride, columns, outs);
            },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: likewise.
            Isa::Avx512Ifma => unsafe {
                columns_avx512::add_columns_64(weights, stride, columns, outs);
            },
            _ => portable::add_columns(weights, stride, columns, outs),
        }
    }

    /// `out = Σ_j xs[j] · weights[j] + counts · wrap` modulo `modulus`, for 1 to [`SOURCES_MAX`]
    /// sources of numbers below 2^51, which are other moduli's residues, and counts of at most 15.
    ///
    /// With the numbers y_j = x · (Q / q_j)^-1 modulo q_j, the weights Q / q_j, the counts of
    /// [`count_wraps`](Self::count_wraps) and −Q for `wrap` it is x, taken from −Q / 2 to Q / 2
    /// (Halevi, Polyakov and Shoup, CT-RSA 2019, section 2.2).
    pub fn combine(
        self,
        modulus: Modulus,
        xs: &[&[u64]],
        weights: &[u64],
        counts: &[u8],
        wrap: u64,
        out: &mut [u64],
    ) {
        assert!((1..=SOURCES_MAX).contains(&xs.len()) && xs.len() == weights.len());
        assert!(xs.iter().all(|x| x.len() == out.len()) && counts.len() == out.len());
        assert!(weights.iter().chain([&wrap]).all(|&w| w < modulus.value()));
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the flags were detected when the kernel was made.
            Isa::Avx512Ifma if whole(out) => unsafe {
                basis_avx512::combine(modulus, xs, weights, counts, wrap, out);
            },
            _ => portable::combine(modulus, xs, weights, counts, wrap, out),
        }
    }

    /// `out = Σ_j xs[j] / moduli[j]`, rounded to an integer, for 1 to [`SOURCES_MAX`] rows of
    /// residues. The sum is one of doubles: within 2^-46 of a half it may round to the other side.
    pub fn count_wraps(self, moduli: &[Modulus], xs: &[&[u64]], out: &mut [u8]) {
        assert!((1..=SOURCES_MAX).contains(&xs.len()) && xs.len() == moduli.len());
        assert!(xs.iter().all(|x| x.len() == out.len()));
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the flags were detected when the kernel was made.
            Isa::Avx512Ifma if out.len().is_multiple_of(avx512::LANES) => unsafe {
                basis_avx512::count_wraps(moduli, xs, out);
            },
            _ => portable::count_wraps(moduli, xs, out),
        }
    }

    /// `out[i] = values[indices[i]]`; indices are public.
    ///
    /// # Panics
    /// If an index is out of range.
    pub fn permute(self, values: &[u64], indices: &[u32], out: &mut [u64]) {
        assert!(values.len() == out.len() && indices.len() == out.len());
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the flags were detected when the kernel was made.
            Isa::Avx512Ifma if whole(out) => unsafe { avx512::permute(values, indices, out) },
            _ => portable::permute(values, indices, out),
        }
    }

    /// (x, y) = (x + y, (x − y) · w), element by element.
    pub fn split(self, modulus: Modulus, x: &mut [u64], y: &mut [u64], w: &[u64]) {
        assert!(x.len() == y.len() && x.len() == w.len());
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the flags were detected when the kernel was made.
            Isa::Avx512Ifma if whole(x) => unsafe { avx512::split(modulus, x, y, w) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: likewise.
            Isa::Avx2 => unsafe { avx2::split(modulus, x, y, w) },
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            Isa::Neon => neon::split(modulus, x, y, w),
            _ => portable::split(modulus, x, y, w),
        }
    }

    /// Residues modulo `to` of what `values` are modulo `from`, taken from −from / 2 to from / 2.
    pub fn recentre(self, from: Modulus, to: Modulus, values: &[u64], out: &mut [u64]) {
        assert_eq!(values.len(), out.len());
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the flags were detected when the kernel was made.
            Isa::Avx512Ifma if whole(out) => unsafe { avx512::recentre(from, to, values, out) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: likewise.
            Isa::Avx2 if whole(out) => unsafe { avx2::recentre(from, to, values, out) },
            _ => portable::recentre(from, to, values, out),
        }
    }

    /// The signed digits of the numbers whose residues `values` holds (limb by limb, coefficients):
    /// digit j's residue ℓ lands in `out[(j * limbs + ℓ) * degree..]`.
    ///
    /// # Panics
    /// If Q has more than 110 bits.
    pub fn decompose(self, gadget: Gadget, crt: &Crt, values: &[u64], out: &mut [u64]) {
        #[cfg(feature = "counts")]
        counts::add(&counts::DECOMPOSITIONS, 1);
        let limbs = crt.limbs();
        assert!(values.len().is_multiple_of(limbs));
        assert_eq!(out.len(), values.len() * gadget.digits());
        let garner = match self.0 {
            Isa::Portable => None,
            _ => Garner::new(gadget, crt),
        };
        match (self.0, garner) {
            (_, None) => portable::decompose(gadget, crt, values, out),
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx512Ifma, Some(garner)) if whole(&values[..values.len() / limbs]) => {
                // SAFETY: the flags were detected when the kernel was made.
                unsafe { avx512::decompose(gadget, crt, &garner, values, out) }
            }
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx2, Some(garner))
                if limbs <= digits_avx2::LIMBS_MAX
                    && (values.len() / limbs).is_multiple_of(digits_avx2::LANES) =>
            {
                // SAFETY: likewise.
                unsafe { digits_avx2::decompose(gadget, crt, &garner, values, out) }
            }
            (_, Some(garner)) => scalar::decompose(gadget, crt, &garner, values, out),
        }
    }
}

/// Whether `values` are whole vectors of AVX-512.
#[cfg(target_arch = "x86_64")]
fn whole(values: &[u64]) -> bool {
    values.len().is_multiple_of(avx512::LANES)
}

/// Least bits of a modulus for AVX-512's sums: below, the estimate of their quotient errs by more.
#[cfg(target_arch = "x86_64")]
const SUM_BITS_MIN: u32 = 5;

/// What this process's kernels have done, for tests.
#[cfg(feature = "counts")]
pub mod counts {
    use std::sync::atomic::{AtomicU64, Ordering};

    pub(super) static FORWARD: AtomicU64 = AtomicU64::new(0);
    pub(super) static INVERSE: AtomicU64 = AtomicU64::new(0);
    pub(super) static PRODUCTS: AtomicU64 = AtomicU64::new(0);
    pub(super) static DECOMPOSITIONS: AtomicU64 = AtomicU64::new(0);

    pub(super) fn add(counter: &AtomicU64, count: usize) {
        counter.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// Since the last call: transforms to evaluations and back, products that were added up, and
    /// decompositions.
    pub fn take() -> [u64; 4] {
        [&FORWARD, &INVERSE, &PRODUCTS, &DECOMPOSITIONS]
            .map(|counter| counter.swap(0, Ordering::Relaxed))
    }
}
