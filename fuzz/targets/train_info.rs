#![no_main]

use hushtable_serve::wire::{FinishReply, TrainInfoReply};
use hushtable_serve::{RoundReport, TrainInfo};
use libfuzzer_sys::fuzz_target;
use prost::Message;

// What a client does with what a training server says of itself and of its rounds.
fuzz_target!(|bytes: &[u8]| {
    if let Ok(reply) = TrainInfoReply::decode(bytes)
        && let Ok(info) = TrainInfo::try_from(reply)
    {
        let again = TrainInfo::try_from(TrainInfoReply::from(&info)).expect("what was read");
        assert_eq!(again, info);
    }
    if let Ok(reply) = FinishReply::decode(bytes) {
        let report = RoundReport::from(reply);
        assert_eq!(RoundReport::from(FinishReply::from(&report)), report);
    }
});
