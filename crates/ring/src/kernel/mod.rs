//! Kernels over slices of residues, on every instruction set.
//!
//! [`portable`] is the specification; every other file computes the same numbers.

#![allow(unsafe_code, reason = "SIMD intrinsics")]

mod portable;

#[cfg(test)]
mod check;

#[cfg(target_arch = "x86_64")]
mod lanes_avx512;
#[cfg(target_arch = "x86_64")]
mod ntt_avx512;

use hushtable_prg::{Platform, Tier};

use crate::crt::Crt;
use crate::gadget::Gadget;
use crate::{Modulus, NttTable};

/// Most terms of one [`Kernel::inner_product`].
pub const TERMS_MAX: usize = 256;

/// The kernels of one machine: carried as a value, so that what it names was detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel(Isa);

/// Instructions that [`Kernel::new`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Isa {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx512Ifma,
}

impl Kernel {
    /// The best kernels that `platform` and the machine under it allow.
    pub fn new(platform: Platform) -> Self {
        match platform.tier() {
            #[cfg(target_arch = "x86_64")]
            Tier::Avx512 if is_x86_feature_detected!("avx512ifma") => Self(Isa::Avx512Ifma),
            _ => Self(Isa::Portable),
        }
    }

    /// The instructions that are used: `portable`, `neon`, `avx2` or `avx512ifma`.
    pub fn isa(self) -> &'static str {
        match self.0 {
            Isa::Portable => "portable",
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
                ntt_avx512::inverse(table, values);
            },
            _ => portable::inverse(table, values),
        }
    }

    /// x += y.
    pub fn add_assign(self, modulus: Modulus, x: &mut [u64], y: &[u64]) {
        assert_eq!(x.len(), y.len());
        portable::add_assign(modulus, x, y);
    }

    /// x −= y.
    pub fn sub_assign(self, modulus: Modulus, x: &mut [u64], y: &[u64]) {
        assert_eq!(x.len(), y.len());
        portable::sub_assign(modulus, x, y);
    }

    /// x = −x.
    pub fn neg_assign(self, modulus: Modulus, x: &mut [u64]) {
        portable::neg_assign(modulus, x);
    }

    /// x *= y, element by element.
    pub fn mul_assign(self, modulus: Modulus, x: &mut [u64], y: &[u64]) {
        assert_eq!(x.len(), y.len());
        portable::mul_assign(modulus, x, y);
    }

    /// x *= w for one number w below the modulus.
    pub fn scale_assign(self, modulus: Modulus, x: &mut [u64], w: u64) {
        portable::scale_assign(modulus, x, w, modulus.shoup(w));
    }

    /// `out` = Σ xs[j] · ys[j], element by element, for 1 to [`TERMS_MAX`] terms.
    pub fn inner_product(self, modulus: Modulus, xs: &[&[u64]], ys: &[&[u64]], out: &mut [u64]) {
        assert!(xs.len() == ys.len() && (1..=TERMS_MAX).contains(&xs.len()));
        assert!(xs.iter().chain(ys).all(|values| values.len() == out.len()));
        portable::inner_product(modulus, xs, ys, out);
    }

    /// out[i] = values[indices[i]]; indices are public.
    pub fn permute(self, values: &[u64], indices: &[u32], out: &mut [u64]) {
        assert!(values.len() == out.len() && indices.len() == out.len());
        portable::permute(values, indices, out);
    }

    /// (x, y) = (x + y, (x − y) · w), element by element.
    pub fn split(self, modulus: Modulus, x: &mut [u64], y: &mut [u64], w: &[u64]) {
        assert!(x.len() == y.len() && x.len() == w.len());
        portable::split(modulus, x, y, w);
    }

    /// The signed digits of the numbers whose residues `values` holds (limb by limb, coefficients):
    /// digit j's residue ℓ lands in `out[(j * limbs + ℓ) * degree..]`.
    pub fn decompose(self, gadget: Gadget, crt: &Crt, values: &[u64], out: &mut [u64]) {
        let limbs = crt.limbs();
        assert!(values.len().is_multiple_of(limbs));
        assert_eq!(out.len(), values.len() * gadget.digits());
        portable::decompose(gadget, crt, values, out);
    }
}
