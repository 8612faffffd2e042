//! A ring Z_Q[X] / (X^N + 1), Q a product of primes, and what can be done in it.

use std::sync::Arc;

use hushtable_prg::Platform;

use crate::crt::Crt;
use crate::kernel::Kernel;
use crate::{Coefficients, Error, Evaluations, Form, Gadget, Modulus, NttTable, Poly};

/// `Z_Q[X] / (X^N + 1)` for distinct primes q_0, q_1, ... (limbs), each 1 modulo 2N.
///
/// Cheap to clone: the roots are shared.
#[derive(Clone, Debug)]
pub struct Ring {
    tables: Vec<Arc<NttTable>>,
    crt: Arc<Crt>,
    /// 1 / q_last modulo each other limb.
    last_inverses: Arc<[u64]>,
    kernel: Kernel,
}

impl Ring {
    /// Most limbs.
    pub const LIMBS_MAX: usize = 64;

    /// The ring of `degree` (a power of two, 8 to 2^17) modulo the product of `moduli` (primes of at
    /// most 51 bits, 1 modulo twice the degree).
    ///
    /// # Errors
    /// [`Error::Limbs`], [`Error::Modulus`], [`Error::Repeated`], [`Error::Degree`],
    /// [`Error::NoRoot`].
    pub fn new(degree: usize, moduli: &[u64], platform: Platform) -> Result<Self, Error> {
        if !(1..=Self::LIMBS_MAX).contains(&moduli.len()) {
            return Err(Error::Limbs { limbs: moduli.len() });
        }
        let mut tables = Vec::with_capacity(moduli.len());
        for (index, &modulus) in moduli.iter().enumerate() {
            if moduli[..index].contains(&modulus) {
                return Err(Error::Repeated { modulus });
            }
            tables.push(Arc::new(NttTable::new(Modulus::new(modulus)?, degree)?));
        }
        Ok(Self::of(tables, Kernel::new(platform)))
    }

    fn of(tables: Vec<Arc<NttTable>>, kernel: Kernel) -> Self {
        let moduli: Vec<_> = tables.iter().map(|table| table.modulus()).collect();
        let (last, rest) = moduli.split_last().expect("a ring has a limb");
        let last_inverses =
            rest.iter().map(|modulus| modulus.inv(last.value() % modulus.value())).collect();
        Self { crt: Arc::new(Crt::new(&moduli)), tables, last_inverses, kernel }
    }

    /// The ring of the first `limbs` moduli.
    ///
    /// # Errors
    /// [`Error::Limbs`] for none or more than there are.
    pub fn prefix(&self, limbs: usize) -> Result<Self, Error> {
        if !(1..=self.limbs()).contains(&limbs) {
            return Err(Error::Limbs { limbs });
        }
        Ok(Self::of(self.tables[..limbs].to_vec(), self.kernel))
    }

    /// The ring of the moduli at `limbs`, in that order.
    ///
    /// # Errors
    /// [`Error::Limbs`] for none or a limb that there is not, [`Error::Repeated`].
    pub fn select(&self, limbs: &[usize]) -> Result<Self, Error> {
        if limbs.is_empty() || limbs.iter().any(|&limb| limb >= self.limbs()) {
            return Err(Error::Limbs { limbs: limbs.len() });
        }
        for (index, limb) in limbs.iter().enumerate() {
            if limbs[..index].contains(limb) {
                return Err(Error::Repeated { modulus: self.modulus(*limb).value() });
            }
        }
        let tables = limbs.iter().map(|&limb| Arc::clone(&self.tables[limb])).collect();
        Ok(Self::of(tables, self.kernel))
    }

    /// N.
    pub fn degree(&self) -> usize {
        self.tables[0].degree()
    }

    /// How many moduli there are.
    pub fn limbs(&self) -> usize {
        self.tables.len()
    }

    /// The moduli in order.
    pub fn moduli(&self) -> impl ExactSizeIterator<Item = Modulus> + '_ {
        self.tables.iter().map(|table| table.modulus())
    }

    /// One modulus.
    pub fn modulus(&self, limb: usize) -> Modulus {
        self.tables[limb].modulus()
    }

    /// The roots of one limb.
    pub fn table(&self, limb: usize) -> &NttTable {
        &self.tables[limb]
    }

    /// log2 Q.
    pub fn modulus_log2(&self) -> f64 {
        self.moduli().map(|modulus| (modulus.value() as f64).log2()).sum()
    }

    /// The remainder theorem for the moduli.
    pub fn crt(&self) -> &Crt {
        &self.crt
    }

    /// The kernels in use.
    pub fn kernel(&self) -> Kernel {
        self.kernel
    }

    /// The polynomial 0.
    pub fn zero<F: Form>(&self) -> Poly<F> {
        Poly::zeroed(self.limbs(), self.degree())
    }

    /// The polynomial whose coefficients are `values` (at most N), reduced; time may depend on them.
    pub fn from_signed_vartime(&self, values: &[i64]) -> Poly<Coefficients> {
        let mut poly = self.zero();
        for (limb, modulus) in self.moduli().enumerate() {
            for (out, &value) in poly.limb_mut(limb).iter_mut().zip(values) {
                *out = modulus.from_signed_vartime(value);
            }
        }
        poly
    }

    /// To evaluations.
    pub fn forward(&self, mut poly: Poly<Coefficients>) -> Poly<Evaluations> {
        for (limb, table) in self.tables.iter().enumerate() {
            self.kernel.forward(table, poly.limb_mut(limb));
        }
        poly.relabel()
    }

    /// To coefficients.
    pub fn inverse(&self, mut poly: Poly<Evaluations>) -> Poly<Coefficients> {
        for (limb, table) in self.tables.iter().enumerate() {
            self.kernel.inverse(table, poly.limb_mut(limb));
        }
        poly.relabel()
    }

    /// x += y.
    pub fn add_assign<F: Form>(&self, x: &mut Poly<F>, y: &Poly<F>) {
        for (limb, modulus) in self.moduli().enumerate() {
            self.kernel.add_assign(modulus, x.limb_mut(limb), y.limb(limb));
        }
    }

    /// x −= y.
    pub fn sub_assign<F: Form>(&self, x: &mut Poly<F>, y: &Poly<F>) {
        for (limb, modulus) in self.moduli().enumerate() {
            self.kernel.sub_assign(modulus, x.limb_mut(limb), y.limb(limb));
        }
    }

    /// x = −x.
    pub fn neg_assign<F: Form>(&self, x: &mut Poly<F>) {
        for (limb, modulus) in self.moduli().enumerate() {
            self.kernel.neg_assign(modulus, x.limb_mut(limb));
        }
    }

    /// x *= y.
    pub fn mul_assign(&self, x: &mut Poly<Evaluations>, y: &Poly<Evaluations>) {
        for (limb, modulus) in self.moduli().enumerate() {
            self.kernel.mul_assign(modulus, x.limb_mut(limb), y.limb(limb));
        }
    }

    /// x *= w, `w` given by its residues.
    pub fn scale_assign<F: Form>(&self, x: &mut Poly<F>, w: &[u64]) {
        for (limb, modulus) in self.moduli().enumerate() {
            self.kernel.scale_assign(modulus, x.limb_mut(limb), w[limb]);
        }
    }

    /// x · X^exponent in evaluations: the monomial itself, for exponents modulo 2N.
    pub fn monomial(&self, exponent: usize) -> Poly<Evaluations> {
        let degree = self.degree();
        let exponent = exponent % (2 * degree);
        let mut poly: Poly<Coefficients> = self.zero();
        for (limb, modulus) in self.moduli().enumerate() {
            let sign = if exponent < degree { 1 } else { modulus.value() - 1 };
            poly.limb_mut(limb)[exponent % degree] = sign;
        }
        self.forward(poly)
    }

    /// Signed digits of `poly`'s coefficients, each digit in evaluations over all limbs; time does
    /// not depend on them on vector paths, and may on the portable one: decompose ciphertexts only.
    ///
    /// # Panics
    /// If Q has more than 110 bits.
    pub fn decompose(&self, gadget: Gadget, poly: &Poly<Coefficients>, out: &mut [u64]) {
        let (degree, limbs) = (self.degree(), self.limbs());
        self.kernel.decompose(gadget, &self.crt, poly.values(), out);
        for (index, values) in out.chunks_exact_mut(degree).enumerate() {
            self.kernel.forward(&self.tables[index % limbs], values);
        }
    }

    /// round(poly / q_last) over the other limbs, in evaluations: modulus switching by one prime.
    ///
    /// # Panics
    /// If there is only one limb.
    pub fn drop_last_limb(&self, poly: &Poly<Evaluations>) -> Poly<Evaluations> {
        let mut rest = poly.clone();
        let mut out = poly.truncated(self.limbs() - 1);
        self.drop_last_limb_into(&mut rest, &mut out);
        out
    }

    /// As [`drop_last_limb`](Self::drop_last_limb), into `out` (one limb less); `poly` is used up.
    ///
    /// # Panics
    /// If there is only one limb.
    pub fn drop_last_limb_into(&self, poly: &mut Poly<Evaluations>, out: &mut Poly<Evaluations>) {
        let last = self.limbs() - 1;
        assert!(last > 0, "a ring keeps at least one limb");
        let dropped = self.modulus(last);
        self.kernel.inverse(&self.tables[last], poly.limb_mut(last));
        let (kept, rest) = poly.values_mut().split_at_mut(last * self.degree());
        let limbs = kept.chunks_exact(self.degree()).zip(&self.tables[..last]).enumerate();
        for (limb, (kept, table)) in limbs {
            let modulus = table.modulus();
            let out = out.limb_mut(limb);
            // (x − centred rest) / q_last, as (centred rest − x) · (−1 / q_last).
            self.kernel.recentre(dropped, modulus, rest, out);
            self.kernel.forward(table, out);
            self.kernel.sub_assign(modulus, out, kept);
            self.kernel.scale_assign(modulus, out, modulus.neg(self.last_inverses[limb]));
        }
    }
}
