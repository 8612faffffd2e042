//! Kernels over slices of residues, on every instruction set.
//!
//! [`portable`] is the specification; every other file computes the same numbers, and `check` holds
//! it to that. `avx512`, `basis_avx512`, `lanes_avx512` and `ntt_avx512` multiply integers of 52 bits; `avx2` and
//! `neon` doubles (`float`), beside digits in plain integers (`scalar`).

#![allow(unsafe_code, reason = "SIMD intrinsics")]

mod portable;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod basis_avx512;
#[cfg(any(test, target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little")))]
mod float;
mod garner;
#[cfg(target_arch = "x86_64")]
mod lanes_avx512;
#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
mod neon;
#[cfg(target_arch = "x86_64")]
mod ntt_avx512;
mod scalar;

#[cfg(test)]
mod check;

use hushtable_prg::{Platform, Tier};

use crate::crt::Crt;
use crate::gadget::Gadget;
use crate::{Modulus, NttTable};
use garner::Garner;

/// Most terms of one [`Kernel::inner_product`].
pub const TERMS_MAX: usize = 256;

/// Most sources of one [`Kernel::combine`].
pub const SOURCES_MAX: usize = 7;

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
    /// F, DQ and IFMA.
    #[cfg(target_arch = "x86_64")]
    Avx512Ifma,
}

impl Kernel {
    /// The best kernels that `platform` and the machine under it allow.
    pub fn new(platform: Platform) -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            let is_wide = is_x86_feature_detected!("avx512ifma");
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

    /// `out` = Σ xs[j] · ys[j], element by element, for 1 to [`TERMS_MAX`] terms.
    pub fn inner_product(self, modulus: Modulus, xs: &[&[u64]], ys: &[&[u64]], out: &mut [u64]) {
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

    /// `outs[side]` = Σ xs[j] · ys[side][j], element by element, for 1 to [`TERMS_MAX`] terms: two
    /// inner products that share a side.
    pub fn inner_products(
        self,
        modulus: Modulus,
        xs: &[&[u64]],
        ys: [&[&[u64]]; 2],
        outs: [&mut [u64]; 2],
    ) {
        let length = outs[0].len();
        assert!((1..=TERMS_MAX).contains(&xs.len()) && outs[1].len() == length);
        assert!(ys.iter().all(|ys| ys.len() == xs.len()));
        assert!(xs.iter().chain(ys[0]).chain(ys[1]).all(|values| values.len() == length));
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the flags were detected when the kernel was made.
            Isa::Avx512Ifma if whole(outs[0]) && modulus.bits() >= SUM_BITS_MIN => unsafe {
                basis_avx512::inner_products(modulus, xs, ys, outs);
            },
            Isa::Portable => portable::inner_products(modulus, xs, ys, outs),
            #[allow(unreachable_patterns, reason = "no vectors on some machines")]
            _ => {
                for (ys, out) in ys.into_iter().zip(outs) {
                    self.inner_product(modulus, xs, ys, out);
                }
            }
        }
    }

    /// `out` = Σ_j xs[j] · weights[j] + counts · wrap modulo `modulus`, for 1 to [`SOURCES_MAX`]
    /// sources of numbers below 2^51, which are other moduli's residues, and counts of at most 7.
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

    /// `out` = Σ_j xs[j] / moduli[j], rounded to an integer, for 1 to [`SOURCES_MAX`] rows of
    /// residues. The sum is one of doubles: within 2^-48 of a half it may round to the other side.
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

    /// out[i] = values[indices[i]]; indices are public.
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
            _ => portable::recentre(from, to, values, out),
        }
    }

    /// The signed digits of the numbers whose residues `values` holds (limb by limb, coefficients):
    /// digit j's residue ℓ lands in `out[(j * limbs + ℓ) * degree..]`.
    ///
    /// # Panics
    /// If Q has more than 110 bits.
    pub fn decompose(self, gadget: Gadget, crt: &Crt, values: &[u64], out: &mut [u64]) {
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
