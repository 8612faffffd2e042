//! Parameters: as written down, and checked.

use hushtable_ring::{Gadget, GadgetSpec, Platform, Ring, ntt_primes};

use crate::{Error, Lattice, LatticeSpec};

/// A parameter set as written down; [`Parameters::new`] checks it.
///
/// The secret is uniformly ternary and errors have standard deviation 3.2. Everything a client
/// publishes (queries and evaluation keys) is modulo Q, the product of all `moduli`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterSpec {
    /// The set's name. A set below 128 bits must say so by ending in `_paper`; with the feature
    /// `test-sets`, in `_paper` or `_test`.
    pub name: String,
    /// N.
    pub degree: usize,
    /// The primes of Q, each 1 modulo 2N.
    pub moduli: Vec<u64>,
    /// Limbs of Q that ciphertexts keep once queries are expanded: the answer modulus q is the
    /// product of the first so many. Dropping the others takes expansion's noise along.
    pub answer_limbs: usize,
    /// log2 P: bits of a table that one coefficient holds.
    pub plain_bits: u32,
    /// How masks are cut up for key switching, modulo Q.
    pub key_switch: GadgetSpec,
    /// How ciphertexts are cut up for external products, modulo q.
    pub selector: GadgetSpec,
    /// Bits of a response's mask coefficients, after modulus switching to 2^this.
    pub response_mask_bits: u32,
    /// The same of its body's.
    pub response_body_bits: u32,
}

/// A parameter set that was checked, with its rings.
#[derive(Clone, Debug)]
pub struct Parameters {
    spec: ParameterSpec,
    /// From the ring modulo Q, each with one limb less, to the ring modulo q.
    rings: Vec<Ring>,
    key_switch: Gadget,
    selector: Gadget,
}

impl ParameterSpec {
    /// The default: N = 4096, two primes of 50 bits (log2 Q = 100 of 106 that 128 bits allow), of
    /// which expansion's results keep one; 16-bit plaintexts.
    pub fn n4096_128() -> Self {
        Self {
            name: "n4096_128".into(),
            degree: 4096,
            moduli: ntt_primes(50, 4096, 2),
            answer_limbs: 1,
            plain_bits: 16,
            key_switch: GadgetSpec { digits: 2, base_bits: 32, dropped_bits: 36 },
            selector: GadgetSpec { digits: 2, base_bits: 15, dropped_bits: 20 },
            response_mask_bits: 25,
            response_body_bits: 20,
        }
    }

    /// The paper's: N = 4096, the primes 2^27 + 2^k + 1 for k = 15, 17, 21, 22 (log2 Q = 108.07,
    /// two bits above what the 2024 table allows a ternary secret), 32-bit plaintexts, digits over
    /// all of Q (Kim et al., "IVE", table I and section IV-G).
    pub fn ive_paper() -> Self {
        Self {
            name: "ive_paper".into(),
            degree: 4096,
            moduli: [15, 17, 21, 22].map(|k| (1 << 27) + (1 << k) + 1).into(),
            answer_limbs: 4,
            plain_bits: 32,
            key_switch: GadgetSpec { digits: 8, base_bits: 14, dropped_bits: 0 },
            selector: GadgetSpec { digits: 5, base_bits: 22, dropped_bits: 0 },
            response_mask_bits: 42,
            response_body_bits: 36,
        }
    }

    /// A small set without security, for tests of protocols: N = 256, otherwise as `n4096_128`. Only
    /// with the feature `test-sets`.
    #[cfg(feature = "test-sets")]
    pub fn n256_test() -> Self {
        Self {
            name: "n256_test".into(),
            degree: 256,
            moduli: ntt_primes(50, 256, 2),
            ..Self::n4096_128()
        }
    }
}

impl Parameters {
    /// Checks `spec`, its security first of all.
    ///
    /// # Errors
    /// [`Error::Security`] for less than 128 bits under a name that does not say so;
    /// [`Error::Ring`], [`Error::AnswerLimbs`], [`Error::PlainBits`], [`Error::ResponseBits`].
    pub fn new(spec: ParameterSpec, platform: Platform) -> Result<Self, Error> {
        let lattice = Lattice::new(
            LatticeSpec {
                name: spec.name.clone(),
                degree: spec.degree,
                moduli: spec.moduli.clone(),
                special_moduli: Vec::new(),
            },
            platform,
        )?;
        let ring = lattice.ring();
        if !(1..=ring.limbs()).contains(&spec.answer_limbs) {
            let limbs = ring.limbs();
            return Err(Error::AnswerLimbs { answer_limbs: spec.answer_limbs, limbs });
        }
        let kept = (spec.answer_limbs..=ring.limbs()).rev();
        let rings = kept.map(|limbs| ring.prefix(limbs)).collect::<Result<Vec<_>, _>>()?;
        let answer_ring = &rings[rings.len() - 1];
        let plain_bits = spec.plain_bits;
        if !(1..=32).contains(&plain_bits)
            || f64::from(plain_bits) + 1.0 >= answer_ring.modulus_log2()
        {
            return Err(Error::PlainBits { plain_bits });
        }
        let (mask_bits, body_bits) = (spec.response_mask_bits, spec.response_body_bits);
        if [mask_bits, body_bits].iter().any(|bits| !(plain_bits + 1..=50).contains(bits)) {
            return Err(Error::ResponseBits { mask_bits, body_bits, plain_bits });
        }
        let bits = |ring: &Ring| ring.modulus_log2().ceil() as u32;
        let key_switch = Gadget::new(spec.key_switch, bits(ring))?;
        let selector = Gadget::new(spec.selector, bits(answer_ring))?;
        Ok(Self { spec, rings, key_switch, selector })
    }

    /// The set as written down.
    pub fn spec(&self) -> &ParameterSpec {
        &self.spec
    }

    /// The set's name.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// N.
    pub fn degree(&self) -> usize {
        self.spec.degree
    }

    /// The ring modulo Q, in which everything published lives.
    pub fn ring(&self) -> &Ring {
        &self.rings[0]
    }

    /// The ring modulo q, in which tables, selectors and answers live.
    pub fn answer_ring(&self) -> &Ring {
        &self.rings[self.rings.len() - 1]
    }

    /// From the ring modulo Q, each with one limb less, to the ring modulo q: the way down of
    /// modulus switching.
    pub fn rings(&self) -> &[Ring] {
        &self.rings
    }

    /// log2 P.
    pub fn plain_bits(&self) -> u32 {
        self.spec.plain_bits
    }

    /// Digits of key switching.
    pub fn key_switch(&self) -> Gadget {
        self.key_switch
    }

    /// Digits of external products.
    pub fn selector(&self) -> Gadget {
        self.selector
    }

    /// `value` · q_dropped / 2^`halvings` modulo each prime of Q, where q_dropped is the product of
    /// the limbs that answers do not keep: what a query holds so that an expanded leaf holds
    /// `value` modulo q.
    pub fn query_residues(&self, value: impl Fn(usize) -> u64, halvings: u32) -> Vec<u64> {
        let dropped: Vec<_> = self.ring().moduli().skip(self.spec.answer_limbs).collect();
        let residue = |(limb, modulus): (usize, hushtable_ring::Modulus)| {
            let scale = dropped
                .iter()
                .fold(1, |scale, dropped| modulus.mul(scale, dropped.value() % modulus.value()));
            let half = modulus.inv(2);
            // Beyond the answer's limbs the scale is zero, whatever the value is.
            let value = if limb < self.spec.answer_limbs { value(limb) } else { 0 };
            modulus.mul(modulus.mul(value, scale), modulus.pow_vartime(half, halvings.into()))
        };
        self.ring().moduli().enumerate().map(residue).collect()
    }

    /// Residues modulo q's primes of Δ = round(q / P).
    pub fn delta(&self) -> Vec<u64> {
        let product = self.answer_ring().crt().product().expect("checked with the gadget");
        let delta = (product + (1 << (self.plain_bits() - 1))) >> self.plain_bits();
        self.answer_ring().moduli().map(|modulus| modulus.reduce_u128(delta)).collect()
    }
}
