//! Multiplication by the schoolbook: what the NTT must agree with.

use crate::Modulus;

/// x · y modulo X^N + 1 and `modulus`, by the definition, in N² steps.
pub fn multiply(modulus: Modulus, x: &[u64], y: &[u64]) -> Vec<u64> {
    let degree = x.len();
    let mut out = vec![0; degree];
    for (i, &x) in x.iter().enumerate() {
        for (j, &y) in y.iter().enumerate() {
            let product = modulus.mul(x, y);
            let at = &mut out[(i + j) % degree];
            *at =
                if i + j < degree { modulus.add(*at, product) } else { modulus.sub(*at, product) };
        }
    }
    out
}
