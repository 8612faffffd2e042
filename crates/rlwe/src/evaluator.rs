//! What a server computes on ciphertexts: substitution, external product, modulus switching.

use hushtable_ring::{Automorphism, Buffer, Evaluations, Gadget, Poly, Ring};

use crate::{Ciphertext, Parameters, SwitchKey};

/// An encryption of a bit for external products (RGSW; Gentry, Sahai and Waters, CRYPTO 2013):
/// for each digit weight g_j, encryptions of bit · g_j · s and of bit · g_j, modulo q.
pub struct Selector {
    /// Rows for the mask's digits, then for the body's.
    rows: Vec<Ciphertext>,
}

impl Selector {
    /// From ciphertexts modulo q of bit · g_j · s (`mask_rows`) and bit · g_j (`body_rows`), the
    /// lowest digit first.
    pub fn new(mask_rows: Vec<Ciphertext>, body_rows: Vec<Ciphertext>) -> Self {
        let mut rows = mask_rows;
        rows.extend(body_rows);
        Self { rows }
    }

    /// Rows for the mask's digits, then for the body's.
    pub fn rows(&self) -> &[Ciphertext] {
        &self.rows
    }
}

/// Substitutes X^r and switches back to the secret, with tables for its level.
#[derive(Clone, Debug)]
pub struct Substitution {
    map: Automorphism,
    /// X^(−2^level), for the odd half of a split.
    shift: Poly<Evaluations>,
}

impl Substitution {
    /// What level `level` of an expansion needs: X → X^(N / 2^level + 1), and X^(−2^level).
    pub fn of_level(params: &Parameters, level: u32) -> Self {
        let degree = params.degree();
        Self {
            map: Automorphism::new((degree >> level) + 1, degree),
            shift: params.ring().monomial(2 * degree - (1 << level)),
        }
    }

    /// The automorphism.
    pub fn map(&self) -> &Automorphism {
        &self.map
    }
}

/// Computes over one parameter set; holds room for intermediate digits, so one a thread.
pub struct Evaluator {
    params: Parameters,
    digits: Buffer,
}

impl Evaluator {
    /// An evaluator of `params`.
    pub fn new(params: &Parameters) -> Self {
        let room = |gadget: Gadget, ring: &Ring| gadget.digits() * ring.limbs() * ring.degree();
        let digits = room(params.key_switch(), params.ring())
            .max(2 * room(params.selector(), params.answer_ring()));
        Self { params: params.clone(), digits: Buffer::zeroed(digits) }
    }

    /// The parameters.
    pub fn params(&self) -> &Parameters {
        &self.params
    }

    /// Turns a mask under the secret that `key` is from into a ciphertext under the one it is to.
    pub fn switch(&mut self, key: &SwitchKey, mask: &Poly<Evaluations>) -> Ciphertext {
        let (ring, gadget) = (self.params.ring(), self.params.key_switch());
        let (limbs, degree) = (ring.limbs(), ring.degree());
        let digits = &mut self.digits[..gadget.digits() * limbs * degree];
        ring.decompose(gadget, &ring.inverse(mask.clone()), digits);
        let mut out = Ciphertext::zero(ring);
        inner_products(ring, &self.digits, key.rows(), &mut out);
        out
    }

    /// Splits a node of an expansion: `node` keeps twice its even coefficients (in X^(2^level)), and
    /// what is returned has twice the odd ones, moved to even places
    /// (`Subs` and the steps around it; Kim et al., "IVE", sections II-C and II-D).
    pub fn split(
        &mut self,
        level: &Substitution,
        key: &SwitchKey,
        node: &mut Ciphertext,
    ) -> Ciphertext {
        let ring = self.params.ring().clone();
        let mask = ring.automorphism(&level.map, &node.mask);
        let mut odd = self.switch(key, &mask);
        ring.add_assign(&mut odd.body, &ring.automorphism(&level.map, &node.body));
        let kernel = ring.kernel();
        for (limb, modulus) in ring.moduli().enumerate() {
            for (even, odd) in [(&mut node.mask, &mut odd.mask), (&mut node.body, &mut odd.body)] {
                let shift = level.shift.limb(limb);
                kernel.split(modulus, even.limb_mut(limb), odd.limb_mut(limb), shift);
            }
        }
        odd
    }

    /// A ciphertext of μ · s from one of μ, with the key from s² to s: (b, 0) + switch(a).
    pub fn times_secret(&mut self, square: &SwitchKey, ciphertext: &Ciphertext) -> Ciphertext {
        let mut out = self.switch(square, &ciphertext.mask);
        self.params.ring().add_assign(&mut out.mask, &ciphertext.body);
        out
    }

    /// The ciphertext modulo q, from one modulo Q: drops the limbs that answers do not keep.
    pub fn drop_limbs(&mut self, ciphertext: &Ciphertext) -> Ciphertext {
        let keep = self.params.answer_ring().limbs();
        let drop = |poly: &Poly<Evaluations>| {
            let mut ring = self.params.ring().clone();
            let mut poly = poly.clone();
            while ring.limbs() > keep {
                poly = ring.drop_last_limb(&poly);
                ring = ring.prefix(ring.limbs() - 1).expect("at least one limb is kept");
            }
            poly
        };
        Ciphertext { mask: drop(&ciphertext.mask), body: drop(&ciphertext.body) }
    }

    /// zero += bit · (one − zero): `zero` where the selector holds 0, `one` where it holds 1
    /// (one game of a ColTor; Kim et al., "IVE", section II-C).
    pub fn select(&mut self, bit: &Selector, zero: &mut Ciphertext, one: Ciphertext) {
        let ring = self.params.answer_ring().clone();
        let mut difference = one;
        difference.sub_assign(&ring, zero);
        let product = self.external_product(bit, difference);
        zero.add_assign(&ring, &product);
    }

    /// bit ⊡ ciphertext, modulo q.
    pub fn external_product(&mut self, bit: &Selector, ciphertext: Ciphertext) -> Ciphertext {
        let (ring, gadget) = (self.params.answer_ring(), self.params.selector());
        let half = gadget.digits() * ring.limbs() * ring.degree();
        let (of_mask, of_body) = self.digits[..2 * half].split_at_mut(half);
        ring.decompose(gadget, &ring.inverse(ciphertext.mask), of_mask);
        ring.decompose(gadget, &ring.inverse(ciphertext.body), of_body);
        let mut out = Ciphertext::zero(ring);
        inner_products(ring, &self.digits, bit.rows(), &mut out);
        out
    }
}

/// out = Σ_j digit_j · rows[j], for `digits` laid out digit by digit, limb by limb.
fn inner_products(ring: &Ring, digits: &[u64], rows: &[Ciphertext], out: &mut Ciphertext) {
    let (limbs, degree, kernel) = (ring.limbs(), ring.degree(), ring.kernel());
    let mut xs = Vec::with_capacity(rows.len());
    let mut ys = Vec::with_capacity(rows.len());
    for (limb, modulus) in ring.moduli().enumerate() {
        xs.clear();
        xs.extend((0..rows.len()).map(|j| &digits[(j * limbs + limb) * degree..][..degree]));
        ys.clear();
        ys.extend(rows.iter().map(|row| row.mask.limb(limb)));
        kernel.inner_product(modulus, &xs, &ys, out.mask.limb_mut(limb));
        ys.clear();
        ys.extend(rows.iter().map(|row| row.body.limb(limb)));
        kernel.inner_product(modulus, &xs, &ys, out.body.limb_mut(limb));
    }
}
