//! External products: a selector chooses, and what noise that adds.

use crate::fixtures;

use fixtures::{mean, noise, offered, plains, scaled, secret_poly, source};
use hushtable_rlwe::bfv::noise::Noise;
use hushtable_rlwe::bfv::{Evaluator, Parameters, Selector};
use hushtable_rlwe::ring::{Coefficients, NoiseSource, Poly, SIGMA};
use hushtable_rlwe::{Ciphertext, SecretKey, bfv};

/// A selector of fresh encryptions modulo q, each with an error of variance SIGMA².
fn selector(
    params: &Parameters,
    secret: &SecretKey,
    bit: bool,
    source: &mut NoiseSource,
) -> Selector {
    let (ring, gadget, seed) = (params.answer_ring(), params.selector(), source.seed());
    let mut row = |number: usize, message: &Poly<Coefficients>, digit: usize| {
        let weight = u128::from(bit) << gadget.weight_bits(digit);
        let weights: Vec<_> = ring.moduli().map(|modulus| modulus.reduce_u128(weight)).collect();
        let mut message = message.clone();
        ring.scale_assign(&mut message, &weights);
        secret.encrypt(ring, &seed, number as u64, &ring.forward(message), source)
    };
    let (of_mask, of_body) = (secret_poly(ring, secret), ring.inverse(ring.monomial(0)));
    let digits = gadget.digits();
    let masks = (0..digits).map(|digit| row(digit, &of_mask, digit)).collect();
    let bodies = (0..digits).map(|digit| row(digits + digit, &of_body, digit)).collect();
    Selector::new(masks, bodies)
}

fn encrypt(evaluator: &mut Evaluator, secret: &SecretKey, plain: &[u64]) -> Ciphertext {
    let params = evaluator.params().clone();
    evaluator.drop_limbs(bfv::encrypt(&params, secret, plain).unwrap())
}

#[test]
fn a_bit_times_a_ciphertext_is_the_ciphertext_or_zero() {
    for params in offered() {
        let (ring, model, mut source) = (params.answer_ring(), Noise::new(&params), source(30));
        let secret = SecretKey::draw(params.ring(), &mut source);
        let mut evaluator = Evaluator::new(&params);
        let row = SIGMA * SIGMA;
        for bit in [false, true] {
            let mut ratios = Vec::new();
            for plain in plains(&params) {
                let selector = selector(&params, &secret, bit, &mut source);
                assert_eq!(selector.rows().len(), 2 * params.selector().digits());
                let ciphertext = encrypt(&mut evaluator, &secret, &plain);
                let before = noise(ring, &secret, &ciphertext, &scaled(&params, &plain)).variance;
                let product = evaluator.external_product(&selector, ciphertext);
                let expected: Vec<u64> = plain.iter().map(|value| value * u64::from(bit)).collect();
                assert_eq!(bfv::decrypt(&params, &secret, &product), expected);
                let after = noise(ring, &secret, &product, &scaled(&params, &expected)).variance;
                // Where the bit is 0, so is what it multiplies: the ciphertext's noise, and the part
                // that the digits drop.
                let predicted = match bit {
                    true => before + model.select(row, row),
                    false => model.select(row, row) - model.select(0.0, 0.0),
                };
                ratios.push(after / predicted);
            }
            let ratio = mean(ratios);
            println!("{}: bit {bit}: {ratio:.3} of predicted", params.name());
            assert!((0.7..1.2).contains(&ratio), "{} {bit}: {ratio}", params.name());
        }
    }
}

#[test]
fn a_selector_leaves_zero_or_takes_one() {
    for params in offered() {
        let mut source = source(31);
        let secret = SecretKey::draw(params.ring(), &mut source);
        let mut evaluator = Evaluator::new(&params);
        let plains = plains(&params);
        for bit in [false, true] {
            let selector = selector(&params, &secret, bit, &mut source);
            for (zero, one) in plains.iter().zip(plains.iter().rev()) {
                let mut left = encrypt(&mut evaluator, &secret, zero);
                let right = encrypt(&mut evaluator, &secret, one);
                evaluator.select(&selector, &mut left, right);
                let expected = if bit { one } else { zero };
                assert!(bfv::decrypt(&params, &secret, &left) == *expected, "{}", params.name());
            }
        }
    }
}

#[test]
fn noise_of_ten_games_is_within_the_predicted_sum() {
    for params in offered() {
        let (ring, model, mut source) = (params.answer_ring(), Noise::new(&params), source(32));
        let secret = SecretKey::draw(params.ring(), &mut source);
        let mut evaluator = Evaluator::new(&params);
        let plains = plains(&params);
        let game = model.select(SIGMA * SIGMA, SIGMA * SIGMA);
        let start = model.drop_limbs(SIGMA * SIGMA);
        // The winner of all games before is the selected side of each, as a tournament's is.
        for bits in [0u32, 0x3ff, 0x2a5] {
            let expected = &plains[5];
            let mut winner = encrypt(&mut evaluator, &secret, expected);
            for number in 0..10 {
                let bit = bits >> number & 1 == 1;
                let selector = selector(&params, &secret, bit, &mut source);
                let mut zero = encrypt(&mut evaluator, &secret, &plains[number % 5]);
                let mut one = winner;
                if !bit {
                    std::mem::swap(&mut zero, &mut one);
                }
                evaluator.select(&selector, &mut zero, one);
                winner = zero;
            }
            let measured = noise(ring, &secret, &winner, &scaled(&params, expected));
            let ratio = measured.variance / (start + 10.0 * game);
            println!("{}: games {bits:#x}: {ratio:.4} of predicted", params.name());
            assert!(ratio < 1.1, "{} {bits:#x}: {ratio}", params.name());
            // Without dropped bits, and where all is dropped every time, the sum is reached.
            if bits == 0x3ff {
                assert!(ratio > 0.7, "{} {bits:#x}: {ratio}", params.name());
            }
            assert!(bfv::decrypt(&params, &secret, &winner) == *expected);
        }
    }
}
