//! The scheme that encrypts and the one that does not agree on what is computed.

use crate::fixtures;

use fixtures::{numbers, offered, parameters, secret_poly, source};
use hushtable_rlwe::bfv::scheme::{Encrypted, NoOp, Scheme};
use hushtable_rlwe::bfv::{
    Evaluator, ParameterSpec, Parameters, Selector, Substitution, SwitchKey,
};
use hushtable_rlwe::ring::{Coefficients, NoiseSource, Platform, Poly, Ring, ntt_primes};
use hushtable_rlwe::{SecretKey, bfv};

/// Splits `root` into 2^`levels` nodes.
fn expand<S: Scheme>(scheme: &mut S, root: S::Ciphertext, levels: u32) -> Vec<S::Ciphertext> {
    let mut nodes = vec![root];
    for level in 0..levels {
        let odd: Vec<_> = nodes.iter_mut().map(|node| scheme.split(level, node)).collect();
        nodes.extend(odd);
    }
    nodes
}

/// Plays neighbours against each other until one is left.
fn play<S: Scheme>(
    scheme: &mut S,
    mut nodes: Vec<S::Ciphertext>,
    bits: &[S::Selector],
) -> S::Ciphertext {
    for bit in bits {
        let mut rest = nodes.into_iter();
        nodes = Vec::new();
        while let (Some(mut zero), Some(one)) = (rest.next(), rest.next()) {
            scheme.select(bit, &mut zero, one);
            nodes.push(zero);
        }
    }
    assert_eq!(nodes.len(), 1);
    nodes.remove(0)
}

fn selector(
    params: &Parameters,
    secret: &SecretKey,
    bit: bool,
    source: &mut NoiseSource,
) -> Selector {
    let (ring, gadget, seed) = (params.answer_ring(), params.selector(), source.seed());
    let messages = [secret_poly(ring, secret), ring.inverse(ring.monomial(0))];
    let [masks, bodies] = [0, 1].map(|side: usize| {
        let row = |digit: usize| {
            let weight = u128::from(bit) << gadget.weight_bits(digit);
            let weights: Vec<_> = ring.moduli().map(|m| m.reduce_u128(weight)).collect();
            let mut message: Poly<Coefficients> = messages[side].clone();
            ring.scale_assign(&mut message, &weights);
            let index = (side * gadget.digits() + digit) as u64;
            secret.encrypt(ring, &seed, index, &ring.forward(message), source)
        };
        (0..gadget.digits()).map(row).collect()
    });
    Selector::new(masks, bodies)
}

fn check(params: &Parameters, levels: u32, choices: &[u32]) {
    let (ring, mut source) = (params.ring(), source(40));
    let secret = SecretKey::draw(params.ring(), &mut source);
    let plain = numbers(&mut source, params.degree(), params.plain_bits());

    // Exact: numbers up to 2^levels · P fit one prime of 50 bits.
    let exact = Ring::new(params.degree(), &ntt_primes(50, params.degree(), 1), Platform::detect());
    let mut noop = NoOp::new(exact.unwrap());
    let signed: Vec<i64> = plain.iter().map(|&value| value as i64).collect();
    let root = noop.ring().from_signed_vartime(&signed);
    let bare = expand(&mut noop, root, levels);

    // The same in ciphertexts: Δ / 2^levels, times the limbs that are dropped.
    let delta = params.delta();
    let scale = params.query_residues(|limb| delta[limb], levels);
    let mut message: Poly<Coefficients> = ring.zero();
    for (limb, modulus) in ring.moduli().enumerate() {
        for (out, &value) in message.limb_mut(limb).iter_mut().zip(&plain) {
            *out = modulus.mul(value % modulus.value(), scale[limb]);
        }
    }
    let root = secret.encrypt(ring, &source.seed(), 0, &ring.forward(message), &mut source);
    let substitutions: Vec<_> =
        (0..levels).map(|level| Substitution::of_level(params, level)).collect();
    let seed = source.seed();
    let key = |level: &Substitution| {
        SwitchKey::of_automorphism(params, &secret, level.map(), &seed, 0, &mut source)
    };
    let keys: Vec<_> = substitutions.iter().map(key).collect();
    let mut evaluator = Evaluator::new(params);
    let mut encrypted =
        Encrypted { evaluator: &mut evaluator, levels: &substitutions, keys: &keys };
    let leaves = expand(&mut encrypted, root, levels);
    let leaves: Vec<_> =
        leaves.into_iter().map(|leaf| encrypted.evaluator.drop_limbs(leaf)).collect();

    let modulus = noop.ring().modulus(0);
    let bare_plain = |poly: &Poly<Coefficients>| -> Vec<u64> {
        let halve = |&value: &u64| {
            let value = modulus.to_signed(value);
            assert_eq!(value % (1 << levels), 0);
            (value >> levels) as u64
        };
        poly.limb(0).iter().map(halve).collect()
    };
    for (leaf, bare) in leaves.iter().zip(&bare) {
        assert!(bfv::decrypt(params, &secret, leaf) == bare_plain(bare), "{}", params.name());
    }
    for &choice in choices {
        let bits: Vec<bool> = (0..levels).map(|bit| choice >> bit & 1 == 1).collect();
        let selectors: Vec<_> =
            bits.iter().map(|&bit| selector(params, &secret, bit, &mut source)).collect();
        let won = play(&mut encrypted, leaves.clone(), &selectors);
        let expected = play(&mut noop, bare.clone(), &bits);
        // Both chose the same, and what the bits say.
        assert_eq!(expected.values(), bare[choice as usize].values());
        assert!(bfv::decrypt(params, &secret, &won) == bare_plain(&expected), "{choice}");
    }
}

#[test]
fn a_tree_of_splits_and_selections_is_the_same_with_and_without_encryption() {
    check(&parameters(ParameterSpec::n256_test()), 3, &[0, 1, 2, 3, 4, 5, 6, 7]);
    for params in offered() {
        check(&params, 2, &[0, 2, 3]);
    }
}
