//! Oblivious transfer from outside: `vectors/ot.json` on every platform of this machine, and bytes that
//! are not the other party's.

use hushtable_mpc::Platform;
use hushtable_mpc::ot::{
    ANSWER_BYTES, CORRECTIONS_BYTES, CotReceiver, CotSender, Error, OPENING_BYTES, POINTS_BYTES,
    ReceiverSetup, SenderSetup, correction_bytes,
};
use proptest::prelude::*;
use serde_json::Value;

fn seed(value: &Value) -> [u8; 32] {
    hex::decode(value.as_str().unwrap()).unwrap().try_into().unwrap()
}

fn hash(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex().to_string()
}

fn bytes(labels: &[u128]) -> Vec<u8> {
    labels.iter().flat_map(|label| label.to_le_bytes()).collect()
}

#[test]
fn every_platform_reproduces_the_vectors() {
    let file: Value = serde_json::from_str(include_str!("../../../../vectors/ot.json")).unwrap();
    assert_eq!(file["format"], 1);
    let vectors = file["vectors"].as_array().unwrap();
    assert_eq!(vectors.len(), 2);
    for vector in vectors {
        let delta = u128::from_str_radix(vector["delta"].as_str().unwrap(), 16).unwrap();
        let (receiver, opening) = ReceiverSetup::new(&seed(&vector["receiver_seed"]));
        assert_eq!(vector["opening"], hex::encode(&opening));
        let (sender, points) =
            SenderSetup::new(&seed(&vector["sender_seed"]), delta, &opening).unwrap();
        assert_eq!(vector["first_point"], hex::encode(&points[..32]));
        assert_eq!(vector["points"], hash(&points));
        let (receiver, setup) = receiver.finish(&points).unwrap();
        assert_eq!(vector["setup"], hash(&setup));
        let sender = sender.finish(&setup).unwrap();
        assert_eq!(vector["receiver"], hash(&receiver.to_bytes()));
        assert_eq!(vector["sender"], hash(&sender.to_bytes()));
        let batches = vector["batches"].as_array().unwrap();
        assert_eq!(batches.len(), 2);
        for it in batches {
            let (batch, groups) = (it["batch"].as_u64().unwrap(), it["groups"].as_u64().unwrap());
            let choices: Vec<u16> = (0..groups).map(|i| (i * 40_503 + 11) as u16).collect();
            for platform in Platform::available() {
                let mut labels = vec![0; 16 * choices.len()];
                let corrections = receiver.extend(platform, batch, &choices, &mut labels);
                assert_eq!(it["corrections"], hash(&corrections), "{platform:?}");
                let answer = hex::encode(&corrections[corrections.len() - ANSWER_BYTES..]);
                assert_eq!(it["answer"], answer, "{platform:?}");
                assert_eq!(it["first_label"], format!("{:032x}", labels[0]), "{platform:?}");
                assert_eq!(it["labels"], hash(&bytes(&labels)), "{platform:?}");
                sender.extend(platform, batch, &corrections, &mut labels).unwrap();
                assert_eq!(it["zeros"], hash(&bytes(&labels)), "{platform:?}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    #[test]
    fn bytes_that_are_none_are_refused(
        junk in prop::collection::vec(any::<u8>(), 0..9000),
        place in 0..128_usize,
    ) {
        let (receiver, opening) = ReceiverSetup::new(&[1; 32]);
        let wrong = |length| junk.len() != length;
        assert!(wrong(OPENING_BYTES) == matches!(
            SenderSetup::new(&[2; 32], 1, &junk),
            Err(Error::Length { expected: OPENING_BYTES, .. })
        ));
        // All ones are no field element; all zeros are the identity, which would show every key.
        for byte in [0, 0xFF] {
            let refused = SenderSetup::new(&[2; 32], 1, &[byte; OPENING_BYTES]);
            assert!(matches!(refused, Err(Error::Point { index: 0, .. })));
        }
        let (sender, mut points) = SenderSetup::new(&[2; 32], 1, &opening).unwrap();
        points[32 * place..][..32].fill(0xFF);
        let refused = receiver.finish(&points).err();
        assert_eq!(refused, Some(Error::Point { what: "the points", index: place }));
        let cut = ReceiverSetup::new(&[1; 32]).0.finish(&points[..POINTS_BYTES - 1]);
        assert!(matches!(cut, Err(Error::Length { .. })));
        // A setup's corrections are masked sums, and any are taken, of the right length: batches show what they were.
        let mut any = junk.clone();
        any.resize(CORRECTIONS_BYTES, 7);
        let sender = sender.finish(&any).unwrap();
        let mut zeros = [0; 32];
        any.resize(correction_bytes(32), 7);
        let cut = sender.extend(Platform::detect(), 0, &any[1..], &mut zeros);
        assert!(matches!(cut, Err(Error::Length { .. })));
        let refused = sender.extend(Platform::detect(), 0, &any, &mut zeros);
        assert_eq!(refused, Err(Error::Inconsistent));
        // One party's bytes are not the other's.
        let kept = sender.to_bytes();
        assert!(CotReceiver::from_bytes(&kept).is_err());
        let mut of_other_kind = kept.to_vec();
        of_other_kind[0] ^= 1;
        assert!(matches!(CotSender::from_bytes(&of_other_kind), Err(Error::Kind { .. })));
        assert!(CotSender::from_bytes(&kept[1..]).is_err());
    }
}

/// A setup and 64 labels of one batch, each of them the zero label: what was sent, and the receiver's.
fn batch() -> (CotSender, Vec<u8>, [u128; 64]) {
    let (receiver, opening) = ReceiverSetup::new(&[3; 32]);
    let (sender, points) = SenderSetup::new(&[4; 32], DELTA, &opening).unwrap();
    let (receiver, corrections) = receiver.finish(&points).unwrap();
    let sender = sender.finish(&corrections).unwrap();
    let mut labels = [0; 64];
    let sent = receiver.extend(Platform::detect(), 9, &[0; 4], &mut labels);
    (sender, sent, labels)
}

const DELTA: u128 = 0x0123_4567_89AB_CDEF_0F1E_2D3C_4B5A_6979;

/// The receiver changes its choice of one label in one tree, which changes the sender's label by four bits of Δ: 16
/// guesses of them give 16 labels, and what a garbler sends under its own (here, a hash) tells which was right.
#[test]
fn a_receiver_that_lies_in_one_tree_learns_nothing_of_the_offset() {
    for tree in [0, 7, 31] {
        let (sender, mut sent, labels) = batch();
        let of_tree = (sent.len() - ANSWER_BYTES) / 32;
        sent[of_tree * tree] ^= 1 << 5;
        let mut zeros = [0; 64];
        let taken = sender.extend(Platform::detect(), 9, &sent, &mut zeros);
        let garbled = blake3::hash(&zeros[5].to_le_bytes());
        let guesses = (1..16).map(|guess| labels[5] ^ guess << (4 * tree));
        let right = guesses.filter(|guess| blake3::hash(&guess.to_le_bytes()) == garbled);
        let learnt: Vec<u128> = right.map(|label| (label ^ labels[5]) >> (4 * tree)).collect();
        assert_eq!(learnt, [0; 0], "the offset's bits: {:x}", DELTA >> (4 * tree) & 15);
        assert_eq!(taken, Err(Error::Inconsistent));
        assert_eq!(zeros, [0; 64]);
        // There is no other guess: what was sent honestly comes too late.
        sent[of_tree * tree] ^= 1 << 5;
        let again = sender.extend(Platform::detect(), 9, &sent, &mut zeros);
        assert_eq!(again, Err(Error::Inconsistent));
    }
}

/// Encodings that RFC 9496 (appendix A.2) has every decoder refuse, and the identity: the only point of low order, for the
/// group's order is a prime.
#[test]
fn every_encoding_of_no_point_or_of_the_identity_is_refused() {
    let identity = "00".repeat(32);
    let refused = [
        identity.as_str(),
        // Not below the field's modulus.
        "00ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
        "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "f3ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        // Negative.
        "0100000000000000000000000000000000000000000000000000000000000000",
        "01ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "ed57ffd8c914fb201471d1c3d245ce3c746fcbe63a3679d51b6a516ebebe0e20",
        "c34c4e1826e5d403b78e246e88aa051c36ccf0aafebffe137d148a2bf9104562",
        // No square.
        "26948d35ca62e643e26a83177332e6b6afeb9d08e4268b650f1f5bbd8d81d371",
        "4eac077a713c57b4f4397629a4145982c661f48044dd3f96427d40b147d9742f",
        // A negative product of coordinates.
        "3eb858e78f5a7254d8c9731174a94f76755fd3941c0ac93735c07ba14579630e",
        "a45fdc55c76448c049a1ab33f17023edfb2be3581e9c7aade8a6125215e04220",
        // y = 0.
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    ];
    for (number, encoding) in refused.iter().enumerate() {
        let bytes = hex::decode(encoding).unwrap();
        let as_opening = SenderSetup::new(&[2; 32], 1, &bytes).err();
        assert_eq!(as_opening, Some(Error::Point { what: "the opening", index: 0 }), "{encoding}");
        let (receiver, opening) = ReceiverSetup::new(&[1; 32]);
        let (_, mut points) = SenderSetup::new(&[2; 32], 1, &opening).unwrap();
        let index = 9 * number;
        points[32 * index..][..32].copy_from_slice(&bytes);
        let as_point = receiver.finish(&points).err();
        assert_eq!(as_point, Some(Error::Point { what: "the points", index }), "{encoding}");
    }
}
