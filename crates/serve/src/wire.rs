//! The generated messages and services of `proto/hushtable/v1`.
#![allow(missing_docs, clippy::all, reason = "generated")]

tonic::include_proto!("hushtable.v1");

/// What is used of etcd's own API, by `crates/serve/proto`.
#[allow(dead_code, reason = "generated")]
pub(crate) mod etcd {
    tonic::include_proto!("etcdserverpb");
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use prost::Message;

    use super::*;

    /// The sizes of a reply whose numbers are zero, small and large.
    fn sizes<M: Message>(reply: impl Fn(u64) -> M) -> BTreeSet<usize> {
        let numbers = [0, 1, 127, 128, 16_383, 16_384, 1 << 35, u64::MAX];
        numbers.into_iter().map(|number| reply(number).encoded_len()).collect()
    }

    #[test]
    fn no_replys_size_says_anything_of_its_numbers() {
        let answers = bytes::Bytes::from(vec![7; 96]);
        let pair = sizes(|us| AnswerReply {
            answers: answers.clone(),
            queue_us: Some(us),
            answer_us: Some(us.rotate_left(5)),
            ..AnswerReply::default()
        });
        let bags = sizes(|us| AnswerBagsReply {
            queue_us: Some(us),
            answer_us: Some(us.rotate_left(5)),
            ..AnswerBagsReply::default()
        });
        let model = sizes(|us| AnswerModelReply {
            answers: answers.clone(),
            queue_us: Some(us),
            answer_us: Some(us.rotate_left(5)),
            ..AnswerModelReply::default()
        });
        let onion = sizes(|us| OnionAnswerReply {
            queue_us: Some(us),
            answer_us: Some(us.rotate_left(5)),
            ..OnionAnswerReply::default()
        });
        let onion_model = sizes(|us| OnionAnswerModelReply {
            queue_us: Some(us),
            answer_us: Some(us.rotate_left(5)),
            ..OnionAnswerModelReply::default()
        });
        let keys = sizes(|count| PutKeysReply {
            evicted: Some(count as u32),
            held: Some(count % 2 == 1),
            ..PutKeysReply::default()
        });
        let held = sizes(|number| HaveKeysReply { held: Some(number % 2 == 1) });
        let uploaded = sizes(|count| UploadKeysReply {
            evicted: Some(count as u32),
            held: Some(count % 2 == 1),
            ..UploadKeysReply::default()
        });
        let predicted = sizes(|us| PredictReply {
            answer: answers.clone(),
            queue_us: Some(us),
            answer_us: Some(us.rotate_left(5)),
            ..PredictReply::default()
        });
        let begun = sizes(|number| HybridBeginReply { resumed: Some(number % 2 == 1) });
        let finished = sizes(|number| FinishReply {
            round: Some(number),
            rounds: Some(number),
            requested: Some(number as u32),
            uploaded: Some(number as u32),
            requests: Some(number),
            accesses: Some(number),
            read_bytes: Some(number),
            written_bytes: Some(number),
            steps_us: vec![StepTime { step: "read".into(), us: Some(number) }],
            users: Some(number as u32),
            journal_bytes: Some(number),
            refused: vec![(number % 11) as i32; 3],
        });
        for (what, sizes) in [
            ("pair", pair),
            ("bags", bags),
            ("model", model),
            ("onion", onion),
            ("onion model", onion_model),
            ("keys", keys),
            ("held", held),
            ("uploaded", uploaded),
            ("predicted", predicted),
            ("begun", begun),
            ("finish", finished),
        ] {
            assert_eq!(sizes.len(), 1, "{what}: {sizes:?}");
        }
    }
}
