//! The constants with which residues become digits: mixed radix, and its sum.

use crate::crt::Crt;
use crate::gadget::Gadget;

/// Most limbs of what is decomposed by other paths than the specification.
pub(super) const LIMBS_MAX: usize = 8;

/// A factor beside its Shoup quotient for one modulus.
pub(super) type Factor = (u64, u64);

/// The constants that [`Kernel::decompose`](super::Kernel::decompose) needs, made of its moduli and
/// its gadget.
///
/// An integer is v_0 + v_1 · radix_1 + v_2 · radix_2 + ..., radix_i the product of the first i
/// moduli, v_i below modulus i. It is found limb by limb: what the digits so far are modulo q_i
/// (Horner, with the moduli below as factors), taken off residue i, over radix_i.
pub(super) struct Garner {
    pub limbs: usize,
    /// `steps[i][j]`: modulus j modulo q_i; `steps[i][i]`: 1 modulo q_i.
    pub steps: [[Factor; LIMBS_MAX]; LIMBS_MAX],
    /// 1 / radix_i modulo q_i.
    pub inverses: [Factor; LIMBS_MAX],
    pub radices: [u128; LIMBS_MAX],
    /// Q.
    pub product: u128,
}

impl Garner {
    /// The constants, or nothing where the specification must do: more than [`LIMBS_MAX`] limbs, a
    /// digit that a modulus cannot hold, or a gadget for a smaller modulus than this one.
    pub fn new(gadget: Gadget, crt: &Crt) -> Option<Self> {
        let (limbs, product) = (crt.limbs(), crt.product()?);
        let digits_fit = crt.moduli().iter().all(|modulus| gadget.base_bits() < modulus.bits());
        // The last digit is the rest: a signed number of base_bits where the gadget covers Q.
        let covered = gadget.weight_bits(gadget.digits());
        let covers = u128::BITS - product.leading_zeros() <= covered;
        if limbs > LIMBS_MAX || !digits_fit || !covers {
            return None;
        }
        let mut steps = [[(0, 0); LIMBS_MAX]; LIMBS_MAX];
        let (mut inverses, mut radices) = ([(0, 0); LIMBS_MAX], [1; LIMBS_MAX]);
        for (i, modulus) in crt.moduli().iter().enumerate() {
            let factor = |w: u64| (w, modulus.shoup(w));
            for (j, below) in crt.moduli()[..i].iter().enumerate() {
                steps[i][j] = factor(below.value() % modulus.value());
                radices[i] *= u128::from(below.value());
            }
            steps[i][i] = factor(1);
            inverses[i] = factor(crt.inverses()[i]);
        }
        Some(Self { limbs, steps, inverses, radices, product })
    }
}
