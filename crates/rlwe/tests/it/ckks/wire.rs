//! Ciphertexts as bytes: both forms, and everything that is refused.

use hushtable_rlwe::ckks::wire::{Form, ciphertext_bytes};
use hushtable_rlwe::ckks::{Ciphertext, Error, encrypt};

use super::fixtures::{Client, largest_error, numbers, parameters};

fn client() -> Client {
    Client::new(&parameters(64, 40, 3), 8)
}

#[test]
fn both_forms_come_back_in_the_bytes_that_are_told_beforehand() {
    let mut client = client();
    let params = client.parameters.clone();
    for level in 0..=3 {
        let values = numbers(9, 32);
        let plain = client.encoder.encode_real(&values, level, 2f64.powi(41)).unwrap();
        let seed = [level as u8; 32];
        let fresh =
            encrypt(&params, &client.secret, &plain, &seed, 77, &mut client.source).unwrap();
        let short = fresh.to_fresh_bytes(&params, &seed, 77).unwrap();
        let long = fresh.to_bytes(&params);
        assert_eq!(short.len(), ciphertext_bytes(&params, level, Form::Fresh));
        assert_eq!(long.len(), ciphertext_bytes(&params, level, Form::Computed));
        for bytes in [&short, &long] {
            let back = Ciphertext::parse(&params, bytes).unwrap();
            back.expect("test", level, 2f64.powi(41)).unwrap();
            assert_eq!(back.parts().mask.values(), fresh.parts().mask.values());
            assert!(largest_error(&client.decrypt(&back), &values) < 1e-8);
            assert_eq!(&back.to_bytes(&params), &long);
        }
        // What was computed, or is of another seed, has no short form.
        for (seed, index) in [([9; 32], 77), (seed, 78)] {
            let refused = fresh.to_fresh_bytes(&params, &seed, index);
            assert!(matches!(refused, Err(Error::Bytes { .. })));
        }
    }
}

#[test]
fn damaged_bytes_are_refused() {
    let mut client = client();
    let params = client.parameters.clone();
    let good = client.encrypt(&[0.5], 2).to_bytes(&params);
    let parse = |bytes: &[u8]| Ciphertext::parse(&params, bytes);
    for cut in [0, 1, 15, 16, 17, good.len() / 2, good.len() - 1] {
        assert!(matches!(parse(&good[..cut]), Err(Error::Bytes { .. })), "{cut}");
    }
    assert!(matches!(parse(&[good.as_slice(), &[0]].concat()), Err(Error::Bytes { .. })));
    let with = |index: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[index] = value;
        parse(&bytes)
    };
    // Format, kind, level (too high, then another length), zeros.
    for (index, value) in [(0, 2), (1, 2), (1, 0), (2, 4), (3, 1), (2, 1), (2, 3), (4, 1), (7, 9)] {
        assert!(matches!(with(index, value), Err(Error::Bytes { .. })), "{index} {value}");
    }
    let at_scale = |scale: f64| {
        let mut bytes = good.clone();
        bytes[8..16].copy_from_slice(&scale.to_le_bytes());
        parse(&bytes)
    };
    for scale in [f64::NAN, f64::INFINITY, 0.0, -1.0, 0.99, 1e-300, 2f64.powi(130), 1e300] {
        assert!(matches!(at_scale(scale), Err(Error::Scale { .. })), "{scale}");
    }
    // A residue at its modulus.
    let mut bytes = good.clone();
    bytes[16..23].fill(0xff);
    assert!(matches!(parse(&bytes), Err(Error::Core(_))));
    // What is well formed is still held to what a circuit wants.
    let other = at_scale(2f64.powi(39)).unwrap();
    assert!(matches!(other.expect("query", 2, params.scale()), Err(Error::Scale { .. })));
    assert!(matches!(other.expect("query", 3, 2f64.powi(39)), Err(Error::Level { .. })));
    // Ciphertexts of other parameters.
    let foreign = parameters(64, 40, 4);
    let bytes = Client::new(&foreign, 1).encrypt(&[1.0], 4).to_bytes(&foreign);
    assert!(matches!(parse(&bytes), Err(Error::Bytes { .. })));
}
