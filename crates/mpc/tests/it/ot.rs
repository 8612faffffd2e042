//! Oblivious transfer from outside: `vectors/ot.json` on every platform of this machine, and bytes that
//! are not the other party's.

use hushtable_mpc::Platform;
use hushtable_mpc::ot::{
    CORRECTIONS_BYTES, CotReceiver, CotSender, Error, OPENING_BYTES, POINTS_BYTES, ReceiverSetup,
    SenderSetup, correction_bytes,
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
        // Corrections are masked sums: any are as good, of the right length.
        let mut any = junk.clone();
        any.resize(CORRECTIONS_BYTES, 7);
        let sender = sender.finish(&any).unwrap();
        let mut zeros = [0; 32];
        any.resize(correction_bytes(32), 7);
        sender.extend(Platform::detect(), 0, &any, &mut zeros).unwrap();
        let cut = sender.extend(Platform::detect(), 0, &any[1..], &mut zeros);
        assert!(matches!(cut, Err(Error::Length { .. })));
        // One party's bytes are not the other's.
        let kept = sender.to_bytes();
        assert!(CotReceiver::from_bytes(&kept).is_err());
        let mut of_other_kind = kept.to_vec();
        of_other_kind[0] ^= 1;
        assert!(matches!(CotSender::from_bytes(&of_other_kind), Err(Error::Kind { .. })));
        assert!(CotSender::from_bytes(&kept[1..]).is_err());
    }
}
