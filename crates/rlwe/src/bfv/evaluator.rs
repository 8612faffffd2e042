//! What a server computes on ciphertexts: substitution, external product, modulus switching.

use std::sync::{Arc, Mutex, PoisonError};

use hushtable_ring::{Automorphism, Buffer, Evaluations, Gadget, Poly, Ring};

use super::{Parameters, SwitchKey};
use crate::Ciphertext;

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

    /// The same, for whoever has a use for them when the bit has none any more.
    pub fn into_rows(self) -> Vec<Ciphertext> {
        self.rows
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

/// Ciphertexts that are used up and wait to be written over: what evaluators of one engine share.
///
/// Fresh memory costs as much as a third of what is computed in it. What is taken is to be given
/// back; what was not taken here is not kept, so that there are never more than were needed at once.
#[derive(Debug, Default)]
pub struct Spare {
    /// By limbs, less one.
    lists: Mutex<Vec<List>>,
}

#[derive(Debug, Default)]
struct List {
    idle: Vec<Ciphertext>,
    /// Ciphertexts that were taken and not given back.
    lent: usize,
}

impl Spare {
    /// A ciphertext over `ring` of any content.
    pub fn take(&self, ring: &Ring) -> Ciphertext {
        let idle = self.with_list(ring.limbs(), |list| {
            list.lent += 1;
            list.idle.pop()
        });
        idle.unwrap_or_else(|| Ciphertext::zero(ring))
    }

    /// Takes a ciphertext that nobody needs any more.
    pub fn give(&self, ciphertext: Ciphertext) {
        let surplus = self.with_list(ciphertext.body.limbs(), |list| match list.lent {
            0 => Some(ciphertext),
            _ => {
                list.lent -= 1;
                list.idle.push(ciphertext);
                None
            }
        });
        // Freed outside the lock.
        drop(surplus);
    }

    /// Ciphertexts that wait, and ciphertexts that were taken and not given back.
    pub fn counts(&self) -> (usize, usize) {
        let lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        lists.iter().fold((0, 0), |(idle, lent), list| (idle + list.idle.len(), lent + list.lent))
    }

    fn with_list<T>(&self, limbs: usize, run: impl FnOnce(&mut List) -> T) -> T {
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        if lists.len() < limbs {
            lists.resize_with(limbs, List::default);
        }
        run(&mut lists[limbs - 1])
    }
}

/// Computes over one parameter set; holds room for intermediate results, so one a thread.
pub struct Evaluator {
    params: Parameters,
    digits: Buffer,
    /// Room for one polynomial modulo Q.
    scratch: Poly<Evaluations>,
    spare: Arc<Spare>,
    overlaps: bool,
}

impl Evaluator {
    /// An evaluator of `params`.
    pub fn new(params: &Parameters) -> Self {
        Self::sharing(params, Arc::default())
    }

    /// An evaluator that shares used ciphertexts with others of the same parameters.
    pub fn sharing(params: &Parameters, spare: Arc<Spare>) -> Self {
        let room = |gadget: Gadget, ring: &Ring| gadget.digits() * ring.limbs() * ring.degree();
        let digits = room(params.key_switch(), params.ring())
            .max(2 * room(params.selector(), params.answer_ring()));
        let (params, scratch) = (params.clone(), params.ring().zero());
        let digits = Buffer::zeroed(digits);
        Self { params, digits, scratch, spare, overlaps: false }
    }

    /// Whether each digit is used up as soon as it is transformed, instead of all together: less
    /// room is touched, more additions are done (Kim et al., "IVE", section IV-A: "reduction
    /// overlapping"). The results are the same.
    pub fn overlapping(self, overlaps: bool) -> Self {
        Self { overlaps, ..self }
    }

    /// The parameters.
    pub fn params(&self) -> &Parameters {
        &self.params
    }

    /// Takes a ciphertext that nobody needs any more.
    pub fn give(&self, ciphertext: Ciphertext) {
        self.spare.give(ciphertext);
    }

    /// Turns the mask in `scratch`, under the secret that `key` is from, into a ciphertext under the
    /// one it is to.
    fn switch_scratch(&mut self, key: &SwitchKey) -> Ciphertext {
        let (ring, gadget) = (self.params.ring(), self.params.key_switch());
        let digits = &mut self.digits[..gadget.digits() * ring.limbs() * ring.degree()];
        let mut out = self.spare.take(ring);
        decompose(ring, gadget, &mut self.scratch, digits);
        if self.overlaps {
            let term = &mut self.scratch;
            Sum { ring, digits, term, out: &mut out }.add_rows(key.rows());
        } else {
            transform(ring, digits);
            inner_products(ring, digits, key.rows(), &mut out);
        }
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
        self.params.ring().automorphism_into(&level.map, &node.mask, &mut self.scratch);
        let mut odd = self.switch_scratch(key);
        let ring = self.params.ring();
        ring.automorphism_into(&level.map, &node.body, &mut self.scratch);
        ring.add_assign(&mut odd.body, &self.scratch);
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
        self.scratch.values_mut().copy_from_slice(ciphertext.mask.values());
        let mut out = self.switch_scratch(square);
        self.params.ring().add_assign(&mut out.mask, &ciphertext.body);
        out
    }

    /// The ciphertext modulo q, from one modulo Q: drops the limbs that answers do not keep.
    pub fn drop_limbs(&mut self, mut ciphertext: Ciphertext) -> Ciphertext {
        for rings in self.params.rings().windows(2) {
            let mut out = self.spare.take(&rings[1]);
            rings[0].drop_last_limb_into(&mut ciphertext.mask, &mut out.mask);
            rings[0].drop_last_limb_into(&mut ciphertext.body, &mut out.body);
            self.spare.give(std::mem::replace(&mut ciphertext, out));
        }
        ciphertext
    }

    /// zero += bit · (one − zero): `zero` where the selector holds 0, `one` where it holds 1
    /// (one game of a ColTor; Kim et al., "IVE", section II-C).
    pub fn select(&mut self, bit: &Selector, zero: &mut Ciphertext, mut one: Ciphertext) {
        one.sub_assign(self.params.answer_ring(), zero);
        let product = self.external_product(bit, one);
        zero.add_assign(self.params.answer_ring(), &product);
        self.give(product);
    }

    /// bit ⊡ ciphertext, modulo q.
    pub fn external_product(&mut self, bit: &Selector, mut ciphertext: Ciphertext) -> Ciphertext {
        let (ring, gadget) = (self.params.answer_ring(), self.params.selector());
        let half = gadget.digits() * ring.limbs() * ring.degree();
        let digits = &mut self.digits[..2 * half];
        let (of_mask, of_body) = digits.split_at_mut(half);
        decompose(ring, gadget, &mut ciphertext.mask, of_mask);
        decompose(ring, gadget, &mut ciphertext.body, of_body);
        // Its digits are all that is needed of it: the product takes its place.
        if self.overlaps {
            let term = &mut self.scratch;
            Sum { ring, digits, term, out: &mut ciphertext }.add_rows(bit.rows());
        } else {
            transform(ring, digits);
            inner_products(ring, digits, bit.rows(), &mut ciphertext);
        }
        ciphertext
    }
}

/// The digits of `poly`, in coefficients; `poly` is used up.
fn decompose(ring: &Ring, gadget: Gadget, poly: &mut Poly<Evaluations>, digits: &mut [u64]) {
    let (kernel, limbs) = (ring.kernel(), ring.limbs());
    for limb in 0..limbs {
        kernel.inverse(ring.table(limb), poly.limb_mut(limb));
    }
    kernel.decompose(gadget, ring.crt(), poly.values(), digits);
}

/// Digits to evaluations.
fn transform(ring: &Ring, digits: &mut [u64]) {
    for (index, digit) in digits.chunks_exact_mut(ring.degree()).enumerate() {
        ring.kernel().forward(ring.table(index % ring.limbs()), digit);
    }
}

/// out = Σ_j digit_j · rows[j], each digit transformed just before it is used up.
struct Sum<'a> {
    ring: &'a Ring,
    digits: &'a mut [u64],
    /// Room for one product.
    term: &'a mut Poly<Evaluations>,
    out: &'a mut Ciphertext,
}

impl Sum<'_> {
    fn add_rows(&mut self, rows: &[Ciphertext]) {
        let (ring, degree) = (self.ring, self.ring.degree());
        let (limbs, kernel) = (ring.limbs(), ring.kernel());
        for (index, digit) in self.digits.chunks_exact_mut(degree).enumerate() {
            let (row, limb) = (&rows[index / limbs], index % limbs);
            let modulus = ring.modulus(limb);
            kernel.forward(ring.table(limb), digit);
            let sides = [(&row.mask, &mut self.out.mask), (&row.body, &mut self.out.body)];
            for (row, out) in sides {
                let (row, out) = (row.limb(limb), out.limb_mut(limb));
                if index < limbs {
                    kernel.inner_product(modulus, &[digit], &[row], out);
                } else {
                    let term = self.term.limb_mut(limb);
                    kernel.inner_product(modulus, &[digit], &[row], term);
                    kernel.add_assign(modulus, out, term);
                }
            }
        }
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
