#![no_main]

use hushtable_serve::OnionInfo;
use hushtable_serve::wire::OnionInfoReply;
use libfuzzer_sys::fuzz_target;
use prost::Message;

// What a client does with the bytes that a server sends of itself: what it takes for true, it says
// again in the same words.
fuzz_target!(|bytes: &[u8]| {
    if let Ok(reply) = OnionInfoReply::decode(bytes)
        && let Ok(info) = OnionInfo::try_from(reply)
    {
        let again = OnionInfo::try_from(OnionInfoReply::from(&info));
        assert_eq!(again.expect("it was taken before"), info);
    }
});
