//! Digits without division, for machines whose vectors do not multiply widely.

use super::garner::{Garner, LIMBS_MAX};
use crate::crt::Crt;
use crate::gadget::Gadget;

/// As [`portable`](super::portable::decompose), in constant time.
pub(super) fn decompose(
    gadget: Gadget,
    crt: &Crt,
    garner: &Garner,
    values: &[u64],
    out: &mut [u64],
) {
    let limbs = garner.limbs;
    let degree = values.len() / limbs;
    let half = garner.product / 2;
    let moduli = crt.moduli();
    for index in 0..degree {
        let mut digits = [0; LIMBS_MAX];
        let mut x = 0u128;
        for (i, &modulus) in moduli.iter().enumerate() {
            let steps = &garner.steps[i];
            let mut value = values[i * degree + index];
            if i > 0 {
                let mut below = 0;
                for j in (0..i).rev() {
                    let digit = modulus.mul_shoup(digits[j], steps[i].0, steps[i].1);
                    below = modulus.mul_shoup(below, steps[j].0, steps[j].1);
                    below = modulus.add(below, digit);
                }
                let rest = modulus.sub(value, below);
                value = modulus.mul_shoup(rest, garner.inverses[i].0, garner.inverses[i].1);
            }
            digits[i] = value;
            x += garner.radices[i] * u128::from(value);
        }
        let above = ((half.wrapping_sub(x) as i128) >> 127) as u128;
        let centred = x.wrapping_sub(garner.product & above) as i128;
        for digit in 0..gadget.digits() {
            let d = gadget.digit(centred, digit);
            for (limb, modulus) in moduli.iter().enumerate() {
                out[(digit * limbs + limb) * degree + index] = modulus.from_signed(d);
            }
        }
    }
}
