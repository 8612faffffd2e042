#![no_main]

use hushtable_pir::PrgKind;
use hushtable_pir::client::{PairTerms, TableInfo};
use hushtable_pir::dpf::{Client, Side};
use hushtable_serve::wire::{self, TableInfoReply};
use libfuzzer_sys::fuzz_target;
use prost::Message;

// What a client does with what a left and a right server say of themselves, up to the keys.
fuzz_target!(|bytes: &[u8]| {
    let Ok(reply) = TableInfoReply::decode(bytes) else { return };
    if let Ok(info) = TableInfo::try_from(reply.clone()) {
        let again = TableInfo::try_from(TableInfoReply::from(&info));
        assert_eq!(again.expect("it was taken before"), info);
        assert!(info.name.len() <= 128 && info.software.len() <= 128);
        assert!(info.prgs.len() <= bytes.len() && info.groups.len() <= 3);
    }
    // A second server that differs in its side only: the rest of the pair's check is reached.
    let of_side = |side: wire::Side| {
        TableInfo::try_from(TableInfoReply { side: side.into(), ..reply.clone() })
    };
    let (Ok(left), Ok(right)) = (of_side(wire::Side::Left), of_side(wire::Side::Right)) else {
        return;
    };
    assert!(PairTerms::check([&right, &left], PrgKind::Aes128).is_err(), "swapped");
    for prg in [PrgKind::Aes128, PrgKind::ChaCha20] {
        let Ok(terms) = PairTerms::check([&left, &right], prg) else { continue };
        assert!(left.prgs.contains(&prg) && left.groups.contains(&terms.group));
        assert!((1..=left.keys_per_request_max).contains(&terms.keys_per_request_max));
        let client = Client::with_group(left.shape, left.version, prg, terms.group);
        let last = left.shape.rows() - 1;
        let (request, _) = client.expect("a checked shape").query(&[last], 1).expect("a row");
        for (side, keys) in [(Side::Left, &request.left), (Side::Right, &request.right)] {
            let limit = left.request_bytes_max;
            assert!(keys[0].len() as u64 <= limit, "{side:?}: a key over the server's limit");
        }
    }
});
