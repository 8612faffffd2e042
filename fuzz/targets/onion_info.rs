#![no_main]

use hushtable_pir::TableShape;
use hushtable_pir::onion::{Geometry, ParameterSet};
use hushtable_serve::wire::OnionInfoReply;
use hushtable_serve::{OnionInfo, ReplyDefect};
use libfuzzer_sys::fuzz_target;
use prost::Message;

// What a client does with the bytes that a server sends of itself: what it takes for true, it says
// again in the same words; and it takes no parameters but those that it was told to accept.
fuzz_target!(|bytes: &[u8]| {
    let Ok(reply) = OnionInfoReply::decode(bytes) else { return };
    for accepted in [&[ParameterSet::N4096128][..], &ParameterSet::ALL] {
        for reply in [Some(reply.clone()), told(&reply)].into_iter().flatten() {
            let Ok(info) = check(reply, accepted) else { continue };
            assert!(accepted.contains(&info.geometry.set()));
            let own = Geometry::new(info.geometry.set(), info.shape).expect("it was made before");
            assert_eq!(info.geometry, own);
            assert!(info.name.len() <= 128 && info.software.len() <= 128);
            let requests = info.queries_per_request_max as u64 * own.query_bytes() as u64;
            assert!(requests <= info.request_bytes_max);
            let again = check(OnionInfoReply::from(&info), accepted);
            assert_eq!(again.expect("it was taken before"), info);
        }
    }
});

fn check(reply: OnionInfoReply, accepted: &[ParameterSet]) -> Result<OnionInfo, ReplyDefect> {
    OnionInfo::check(reply.try_into()?, accepted)
}

/// The same with the geometry and the sizes that its shape makes, which are out of a fuzzer's reach.
fn told(reply: &OnionInfoReply) -> Option<OnionInfoReply> {
    let set = ParameterSet::ALL[reply.window_us as usize % 2];
    let shape = TableShape::new(reply.rows, reply.row_bytes as usize).ok()?;
    let geometry = Geometry::new(set, shape).ok()?;
    Some(OnionInfoReply {
        geometry: geometry.to_bytes().into(),
        parameters: set.name().into(),
        key_bytes: geometry.key_bytes() as u64,
        query_bytes: geometry.query_bytes() as u64,
        response_bytes: geometry.response_bytes() as u64,
        ..reply.clone()
    })
}
