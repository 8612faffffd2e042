//! The roots that the negacyclic NTT of one modulus and degree multiplies with.

#[cfg(target_arch = "x86_64")]
use std::sync::OnceLock;

use crate::{Error, Modulus};

/// Roots of unity for the transform modulo X^N + 1 and one prime.
///
/// Evaluation `i` of a transformed polynomial is its value at ψ^(2·brv(i)+1), where ψ is a primitive
/// 2N-th root of unity and brv reverses the log2 N bits of `i`.
#[derive(Clone, Debug)]
pub struct NttTable {
    modulus: Modulus,
    degree: usize,
    psi: u64,
    /// ψ^brv(i), and floor(· 2^52 / q): what the forward butterflies use, in the order of use.
    pub(crate) roots: Vec<u64>,
    pub(crate) roots_shoup: Vec<u64>,
    /// ψ^−brv(i) likewise.
    pub(crate) inverse_roots: Vec<u64>,
    pub(crate) inverse_roots_shoup: Vec<u64>,
    /// 1 / N.
    pub(crate) degree_inverse: u64,
    pub(crate) degree_inverse_shoup: u64,
    /// The inverse transform's last root over N.
    pub(crate) last_inverse_root: u64,
    /// The roots as doubles, for machines that want them so.
    #[cfg(target_arch = "x86_64")]
    double_roots: OnceLock<[DoubleRoots; 2]>,
}

/// Roots as doubles.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Debug)]
pub(crate) struct DoubleRoots {
    pub all: Vec<f64>,
    /// Of each four blocks of four numbers: their four roots, then each block's first root of the next
    /// layer, then each one's second.
    pub tail: Vec<f64>,
}

#[cfg(target_arch = "x86_64")]
impl DoubleRoots {
    fn new(roots: &[u64]) -> Self {
        let all: Vec<_> = roots.iter().map(|&root| root as f64).collect();
        let quarter = all.len() / 4;
        let four = |first: usize, step: usize| (0..4).map(move |block| first + step * block);
        let indices = (quarter..2 * quarter).step_by(4).flat_map(|first| {
            four(first, 1).chain(four(2 * first, 2)).chain(four(2 * first + 1, 2))
        });
        Self { tail: indices.map(|index| all[index]).collect(), all }
    }
}

impl NttTable {
    /// Smallest and largest degree.
    pub const DEGREES: std::ops::RangeInclusive<usize> = 8..=1 << 17;

    /// Roots for `degree` (a power of two) modulo `modulus` (a prime, 1 modulo twice the degree).
    ///
    /// # Errors
    /// [`Error::Degree`], [`Error::NoRoot`].
    pub fn new(modulus: Modulus, degree: usize) -> Result<Self, Error> {
        if !degree.is_power_of_two() || !Self::DEGREES.contains(&degree) {
            return Err(Error::Degree { degree });
        }
        let root = modulus.root_of_unity(2 * degree as u64);
        let psi = root.ok_or(Error::NoRoot { modulus: modulus.value(), degree })?;
        let powers = |base: u64| {
            let mut powers = vec![0; degree];
            let mut power = 1;
            for index in 0..degree {
                powers[reverse_bits(index, degree)] = power;
                power = modulus.mul(power, base);
            }
            powers
        };
        let shoup = |values: &[u64]| values.iter().map(|&w| modulus.shoup(w)).collect::<Vec<_>>();
        let (roots, inverse_roots) = (powers(psi), powers(modulus.inv(psi)));
        let degree_inverse = modulus.inv(degree as u64 % modulus.value());
        let last_inverse_root = modulus.mul(inverse_roots[1], degree_inverse);
        Ok(Self {
            modulus,
            degree,
            psi,
            roots_shoup: shoup(&roots),
            inverse_roots_shoup: shoup(&inverse_roots),
            roots,
            inverse_roots,
            degree_inverse,
            degree_inverse_shoup: modulus.shoup(degree_inverse),
            last_inverse_root,
            #[cfg(target_arch = "x86_64")]
            double_roots: OnceLock::new(),
        })
    }

    /// The roots of both directions as doubles, made at the first call; of 16 numbers or more.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn double_roots(&self) -> &[DoubleRoots; 2] {
        let both = || [&self.roots, &self.inverse_roots].map(|roots| DoubleRoots::new(roots));
        self.double_roots.get_or_init(both)
    }

    /// The modulus.
    pub fn modulus(&self) -> Modulus {
        self.modulus
    }

    /// N.
    pub fn degree(&self) -> usize {
        self.degree
    }

    /// ψ, the primitive 2N-th root of unity.
    pub fn psi(&self) -> u64 {
        self.psi
    }
}

/// `index` with its log2 `length` bits in reverse.
pub fn reverse_bits(index: usize, length: usize) -> usize {
    match length.trailing_zeros() {
        0 => index,
        bits => index.reverse_bits() >> (usize::BITS - bits),
    }
}
