//! Keys read as their bytes come, with and without their masks.

use hushtable_infer::NoiseSource;
use hushtable_infer::dlrm::cost::CostTable;
use hushtable_infer::dlrm::spec::{Activation, Interaction};
use hushtable_infer::dlrm::{
    Client, Dlrm, DlrmSpec, Engine, Error, Goal, Keys, Masks, Weights, plan,
};
use hushtable_rlwe::ring::Platform;

use crate::models::{features, logits, model, spec};

fn engine(threshold: u64) -> (Dlrm, Engine) {
    let (dlrm, weights) = own(threshold);
    let plan = plan(&dlrm, &weights, Goal::default(), &CostTable::shipped().unwrap()).unwrap();
    let engine = Engine::new(&plan, &weights, Platform::detect()).unwrap();
    (dlrm, engine)
}

fn own(threshold: u64) -> (Dlrm, Weights) {
    model(DlrmSpec { threshold, ..spec(Activation::Square, Interaction::Concat) }, 1)
}

fn uploaded(client: &Client) -> Vec<u8> {
    client.keys().collect::<Vec<_>>().concat()
}

/// Reads `bytes` in pieces of these lengths, over and over.
fn read(engine: &Engine, masks: Masks, mut bytes: &[u8], lengths: &[usize]) -> Result<Keys, Error> {
    let mut reader = engine.key_reader(masks)?;
    for length in lengths.iter().cycle() {
        if bytes.is_empty() {
            break;
        }
        let (piece, rest) = bytes.split_at(bytes.len().min(*length));
        reader.push(piece)?;
        bytes = rest;
    }
    reader.finish()
}

#[test]
fn answers_are_bit_equal_with_masks_held_and_drawn_whatever_pieces_keys_come_in() {
    let (dlrm, engine) = engine(8);
    let terms = engine.terms();
    let client = Client::new(terms.clone()).unwrap();
    let bytes = uploaded(&client);
    let (dense, indices) = features(&dlrm, 1, 1);
    let query = client.query(&dense, &indices).unwrap();
    let answer = |keys: &Keys| {
        engine.answer_from(keys, &query, &mut NoiseSource::from_seed(&[7; 32])).unwrap()
    };
    let whole = engine.keys(&bytes).unwrap();
    let expected = answer(&whole);
    assert_eq!(whole.memory_bytes(), terms.key_memory_bytes(Masks::Held).unwrap());
    for masks in Masks::ALL {
        for lengths in [&[1, 31, 7, 65_537][..], &[33, 1, 4097], &[999_983], &[usize::MAX]] {
            let keys = read(&engine, masks, &bytes, lengths).unwrap();
            assert!(answer(&keys) == expected, "{masks:?} {lengths:?}");
            assert_eq!(keys.memory_bytes(), terms.key_memory_bytes(masks).unwrap(), "{masks:?}");
        }
    }
    let [held, drawn] = Masks::ALL.map(|masks| terms.key_memory_bytes(masks).unwrap());
    assert!(10 * drawn < 6 * held, "{drawn} of {held}");
}

#[test]
fn keys_in_pieces_are_refused_as_whole_ones_are() {
    let (_, engine) = engine(8);
    let client = Client::new(engine.terms().clone()).unwrap();
    let bytes = uploaded(&client);
    let other = uploaded(&Client::new(self::engine(4).1.terms().clone()).unwrap());
    let longer = [&bytes[..], &[0]].concat();
    let mut named = bytes.clone();
    named[..32].copy_from_slice(&other[..32]);
    let mut level = bytes.clone();
    // The header of the encryption of zero follows the plan: format, kind, level.
    level[32 + 2] += 1;
    let mut residue = bytes.clone();
    // The last row is whole residues, and all ones are none.
    let end = residue.len();
    residue[end - 64..].fill(0xff);
    let cut = &bytes[..bytes.len() - 1];
    for bad in [&[][..], &bytes[..31], &bytes[..40], cut, &longer, &named, &level, &residue] {
        let expected = format!("{:?}", engine.keys(bad).err().unwrap());
        for masks in Masks::ALL {
            for lengths in [&[5, 999_983][..], &[usize::MAX]] {
                let found = format!("{:?}", read(&engine, masks, bad, lengths).err().unwrap());
                assert_eq!(found, expected, "{} bytes, {lengths:?}", bad.len());
            }
        }
    }
    // Of another plan's, the first 32 bytes are enough.
    let mut reader = engine.key_reader(Masks::Drawn).unwrap();
    reader.push(&other[..31]).unwrap();
    let refused = reader.push(&other[31..32]).unwrap_err();
    assert!(matches!(refused, Error::OtherPlan { what: "keys", .. }), "{refused}");
    // So are they refused whose other bytes were never looked at.
    let refused = reader.push(&bytes).unwrap_err();
    assert!(matches!(refused, Error::Bytes { .. } | Error::OtherPlan { .. }), "{refused}");
    assert!(matches!(reader.finish(), Err(Error::Bytes { what: "keys", .. })));
}

#[test]
fn keys_that_are_given_away_as_they_are_made_are_the_client_s() {
    let (dlrm, engine) = engine(8);
    let terms = engine.terms();
    let (mut reader, mut hasher) =
        (engine.key_reader(Masks::Drawn).unwrap(), blake3::Hasher::new());
    let client = Client::giving(terms.clone(), |piece| {
        hasher.update(piece);
        reader.push(piece)
    });
    let client = client.unwrap();
    assert_eq!((client.keys().len(), client.key_id()), (0, *hasher.finalize().as_bytes()));
    let keys = reader.finish().unwrap();
    let (dense, indices) = features(&dlrm, 1, 1);
    let answer = engine.answer(&keys, &client.query(&dense, &indices).unwrap()).unwrap();
    let found = client.open(&answer).unwrap()[0];
    let expected = logits(&dlrm, &own(8).1, &dense, &indices)[0];
    assert!((found - expected).abs() < 1.0 / 1024.0, "{found}, {expected}");

    // What the taker says is what comes of it, and it is not asked again.
    let mut pieces = 0;
    let refused = Client::giving(terms.clone(), |_| {
        pieces += 1;
        match pieces {
            3 => Err(Error::Answer),
            _ => Ok(()),
        }
    });
    assert!(matches!(refused, Err(Error::Answer)));
    assert_eq!(pieces, 3);
}
