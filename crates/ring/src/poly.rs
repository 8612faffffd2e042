//! Polynomials in residue form, with their form in the type.

use std::fmt;
use std::marker::PhantomData;

use zeroize::Zeroize;

use crate::buffer::Buffer;

/// Which of the two forms a polynomial is in.
pub trait Form: Copy + Send + Sync + 'static {
    /// The form's name, for debugging.
    const NAME: &'static str;
}

/// Coefficients of 1, X, X², ... .
#[derive(Clone, Copy, Debug)]
pub enum Coefficients {}

/// Values at the odd powers of ψ, in bit-reversed order: products are element by element.
#[derive(Clone, Copy, Debug)]
pub enum Evaluations {}

impl Form for Coefficients {
    const NAME: &'static str = "coefficients";
}

impl Form for Evaluations {
    const NAME: &'static str = "evaluations";
}

/// A polynomial of `degree` numbers in each of `limbs` residues: limb 0 first, contiguous.
///
/// Which moduli it belongs to is known to the [`Ring`](crate::Ring) that made it.
#[derive(Clone)]
pub struct Poly<F: Form> {
    values: Buffer,
    degree: usize,
    form: PhantomData<F>,
}

impl<F: Form> Poly<F> {
    pub(crate) fn zeroed(limbs: usize, degree: usize) -> Self {
        Self { values: Buffer::zeroed(limbs * degree), degree, form: PhantomData }
    }

    /// Residues: 1 or more.
    pub fn limbs(&self) -> usize {
        self.values.len() / self.degree
    }

    /// N.
    pub fn degree(&self) -> usize {
        self.degree
    }

    /// One residue's numbers.
    pub fn limb(&self, index: usize) -> &[u64] {
        &self.values[index * self.degree..(index + 1) * self.degree]
    }

    /// One residue's numbers, to be written below the limb's modulus.
    pub fn limb_mut(&mut self, index: usize) -> &mut [u64] {
        &mut self.values[index * self.degree..(index + 1) * self.degree]
    }

    /// Bytes of memory that its numbers take.
    pub fn memory_bytes(&self) -> usize {
        self.values.memory_bytes()
    }

    /// All numbers, limb by limb.
    pub fn values(&self) -> &[u64] {
        &self.values
    }

    /// All numbers, limb by limb, to be written below each limb's modulus.
    pub fn values_mut(&mut self) -> &mut [u64] {
        &mut self.values
    }

    /// The same numbers under another form's name.
    pub(crate) fn relabel<G: Form>(self) -> Poly<G> {
        Poly { values: self.values, degree: self.degree, form: PhantomData }
    }

    /// Leaves the first `limbs` residues, 1 or more, where there are more; the memory stays.
    pub fn truncate(&mut self, limbs: usize) {
        self.values.truncate(limbs.max(1) * self.degree);
    }

    /// A copy of the first `limbs` residues.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn truncated(&self, limbs: usize) -> Self {
        let mut poly = Self::zeroed(limbs, self.degree);
        poly.values.copy_from_slice(&self.values[..limbs * self.degree]);
        poly
    }
}

impl<F: Form> Zeroize for Poly<F> {
    fn zeroize(&mut self) {
        self.values.zeroize();
    }
}

impl<F: Form> fmt::Debug for Poly<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A polynomial may be a secret: its numbers are not shown.
        write!(f, "Poly<{}>({} limbs of {})", F::NAME, self.limbs(), self.degree)
    }
}
