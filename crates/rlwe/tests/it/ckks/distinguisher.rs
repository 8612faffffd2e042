//! A server's view of ciphertexts must not tell their contents apart; views with a planted leak must
//! be caught.

use hushtable_rlwe::SecretKey;
use hushtable_rlwe::ckks::wire::{Form, ciphertext_bytes};
use hushtable_rlwe::ckks::{Ciphertext, KeySpec, Parameters, Plaintext, encrypt, write_keys};
use hushtable_rlwe::pack::pack_poly;
use hushtable_rlwe::ring::{Evaluations, NoiseSource, Poly};

use super::fixtures::{Client, parameters, source};
use crate::classifier::{CHANCE_MAX, accuracy};

fn client() -> Client {
    Client::new(&parameters(32, 30, 1), 70)
}

/// Two inputs that a server may choose, encoded.
fn chosen(client: &Client) -> [Plaintext; 2] {
    [0.0, 100.0].map(|value| {
        client
            .encoder
            .encode_real(&[value, -value, value, value], 1, client.parameters.scale())
            .unwrap()
    })
}

/// What a server sees: the bytes, and the body's coefficients, in which small errors stay small.
fn seen(params: &Parameters, mut bytes: Vec<u8>) -> Vec<u8> {
    let ciphertext = Ciphertext::parse(params, &bytes).unwrap();
    let ring = params.ring(ciphertext.level());
    pack_poly(ring, &ring.inverse(ciphertext.parts().body.clone()), &mut bytes);
    bytes
}

#[test]
fn a_fresh_ciphertext_tells_nothing_of_its_numbers() {
    let mut client = client();
    let inputs = chosen(&client);
    let params = client.parameters.clone();
    let score = accuracy(|class| {
        let seed = client.source.seed();
        let plain = &inputs[usize::from(class)];
        let fresh = encrypt(&params, &client.secret, plain, &seed, 0, &mut client.source).unwrap();
        let bytes = fresh.to_fresh_bytes(&params, &seed, 0).unwrap();
        assert_eq!(bytes.len(), ciphertext_bytes(&params, 1, Form::Fresh));
        seen(&params, bytes)
    });
    assert!(score < CHANCE_MAX, "{score}");
}

#[test]
fn differences_of_ciphertexts_tell_nothing_of_their_numbers() {
    // Two ciphertexts of one seed, of the same numbers or of others.
    let mut client = client();
    let inputs = chosen(&client);
    let params = client.parameters.clone();
    let score = accuracy(|class| {
        let seed = client.source.seed();
        let mut bytes = |index: u64, plain: &Plaintext| {
            let source = &mut client.source;
            let fresh = encrypt(&params, &client.secret, plain, &seed, index, source).unwrap();
            seen(&params, fresh.to_fresh_bytes(&params, &seed, index).unwrap())
        };
        let pair = [bytes(0, &inputs[0]), bytes(1, &inputs[usize::from(class)])];
        pair[0].iter().zip(&pair[1]).map(|(a, b)| a ^ b).collect()
    });
    assert!(score < CHANCE_MAX, "{score}");
}

#[test]
fn keys_beside_a_ciphertext_tell_nothing_of_its_numbers() {
    let score = {
        let params = parameters(32, 30, 1);
        let mut number = 0u64;
        accuracy(|class| {
            number += 1;
            let mut client = Client::new(&params, 0);
            let mut seed = [0; 32];
            seed[..8].copy_from_slice(&number.to_le_bytes());
            // A secret and masks of their own for each view.
            client.source = NoiseSource::from_seed(&seed);
            client.secret = SecretKey::draw(params.lattice().key_ring(), &mut client.source);
            let seeds = [client.source.seed(), client.source.seed()];
            let spec = KeySpec::at_every_level(&params, [1]);
            let mut view = Vec::new();
            let Client { secret, source, .. } = &mut client;
            write_keys(&params, secret, &spec, &seeds[0], source, |bytes| view.extend(bytes))
                .unwrap();
            let plain = &chosen(&client)[usize::from(class)];
            let Client { secret, source, .. } = &mut client;
            let fresh = encrypt(&params, secret, plain, &seeds[1], 0, source).unwrap();
            view.extend(seen(&params, fresh.to_fresh_bytes(&params, &seeds[1], 0).unwrap()));
            view
        })
    };
    assert!(score < CHANCE_MAX, "{score}");
}

#[test]
fn a_mask_that_is_used_again_is_caught() {
    let mut client = client();
    let inputs = chosen(&client);
    let params = client.parameters.clone();
    // The planted ciphertexts differ from sound ones in the seed alone.
    let score = accuracy(|class| {
        let plain = &inputs[usize::from(class)];
        let (secret, source) = (&client.secret, &mut client.source);
        let fresh = encrypt(&params, secret, plain, &[9; 32], 0, source).unwrap();
        seen(&params, fresh.to_fresh_bytes(&params, &[9; 32], 0).unwrap())
    });
    assert!(score > 0.99, "a mask used twice went unseen: {score}");
}

#[test]
fn a_mask_or_an_error_that_is_left_out_is_caught() {
    let mut client = client();
    let inputs = chosen(&client);
    let params = client.parameters.clone();
    let ring = params.ring(1);
    let view = |seed: [u8; 32], body: &Poly<Evaluations>| {
        let mut bytes = seed.to_vec();
        pack_poly(ring, body, &mut bytes);
        bytes
    };
    let mut seeds = source(71);
    let score = accuracy(|class| view(seeds.seed(), inputs[usize::from(class)].poly()));
    assert!(score > 0.99, "a bare message went unseen: {score}");
    // Without errors, ciphertexts of one mask are equal where their numbers are; with them, in
    // evaluations, where an error is anything, they are not.
    for (has_error, is_caught) in [(false, true), (true, false)] {
        let score = accuracy(|class| {
            let plain = &inputs[usize::from(class)];
            let (secret, source) = (&client.secret, &mut client.source);
            let fresh = encrypt(&params, secret, plain, &[9; 32], 0, source).unwrap();
            let mut body = fresh.parts().body.clone();
            if !has_error {
                let phase = ring.forward(secret.phase(ring, fresh.parts()));
                ring.sub_assign(&mut body, &phase);
                ring.add_assign(&mut body, plain.poly());
            }
            view([9; 32], &body)
        });
        assert!(is_caught == (score > 0.99) && is_caught != (score < CHANCE_MAX), "{score}");
    }
}
