#![no_main]

use std::sync::{Arc, OnceLock};

use hushtable_pir::batch::{self, Geometry};
use hushtable_pir::dpf::{self, Group, Reply};
use hushtable_pir::{Error, PrgKind, TableShape};
use hushtable_serve::wire::{AnswerBagsReply, AnswerReply};
use hushtable_table::layout::{DropRule, Layout, LayoutMap, LayoutSpec, PartSpec, Plan, Planner};
use hushtable_table::{DType, Shape, Version, decode_rows};
use libfuzzer_sys::fuzz_target;
use prost::Message;

const DIM: usize = 5;
const VERSION: [u8; 32] = [1; 32];

/// Lookups and an inference that were sent.
struct Sent {
    lookups: Vec<(DType, dpf::Pending)>,
    plan: Plan,
    bag: batch::Pending,
    layout: Version,
    row_bytes: usize,
    answer_bytes: usize,
}

// What a client does with the replies of a left and a right server, up to the numbers: to lookups in
// tables of every number type and group, and to an inference.
fuzz_target!(|bytes: &[u8]| {
    static SENT: OnceLock<Sent> = OnceLock::new();
    let sent = SENT.get_or_init(send);
    if let Ok(reply) = AnswerReply::decode(bytes) {
        for (dtype, pending) in &sent.lookups {
            let row_bytes = dtype.row_bytes(DIM);
            for answers in [&reply.answers[..], &sized(&reply.answers, 3 * row_bytes)] {
                let version = version(&reply.table_version, Version::from(VERSION));
                match pending.combine(share(version, answers), other(answers, 3 * row_bytes)) {
                    Ok(rows) => {
                        assert_eq!((answers.len(), rows.len()), (3 * row_bytes, 2 * row_bytes));
                        let mut numbers = vec![0.0; 2 * DIM];
                        // An int8 row's scale may be no number: that is an error like others.
                        let _ = decode_rows(*dtype, DIM, &rows, &mut numbers);
                    }
                    Err(error) => expect(&error),
                }
            }
        }
    }
    if let Ok(reply) = AnswerBagsReply::decode(bytes) {
        for answers in [&reply.answers[..], &sized(&reply.answers, sent.answer_bytes)] {
            let version = version(&reply.layout_version, sent.layout);
            let right = Reply { version: sent.layout, answers: &vec![7; sent.answer_bytes] };
            match sent.bag.combine(share(version, answers), right) {
                Ok(entries) => {
                    let rows = sent.bag.rows(&sent.plan, &entries, sent.row_bytes);
                    assert_eq!(rows.len(), sent.plan.found.len() * sent.row_bytes);
                }
                Err(error) => expect(&error),
            }
        }
    }
});

/// The version that a reply says, or the right one where it says none.
fn version(bytes: &[u8], right: Version) -> Version {
    <[u8; 32]>::try_from(bytes).map_or(right, Version::from)
}

fn share(version: Version, answers: &[u8]) -> Reply<'_> {
    Reply { version, answers }
}

/// An honest second reply, but for its bytes.
fn other(answers: &[u8], bytes: usize) -> Reply<'static> {
    static ZEROS: [u8; 1 << 10] = [0; 1 << 10];
    let length = if answers.len() % 2 == 0 { bytes } else { answers.len().min(bytes) };
    Reply { version: Version::from(VERSION), answers: &ZEROS[..length] }
}

fn sized(bytes: &[u8], length: usize) -> Vec<u8> {
    let mut sized = bytes.to_vec();
    sized.resize(length, 0);
    sized
}

fn expect(error: &Error) {
    assert!(
        matches!(
            error,
            Error::AnswerBytes { .. }
                | Error::VersionMismatch { .. }
                | Error::VersionChanged { .. }
        ),
        "{error}"
    );
}

fn send() -> Sent {
    let version = Version::from(VERSION);
    let lookup = |(dtype, group): (DType, Group)| {
        let shape = TableShape::new(100, dtype.row_bytes(DIM)).expect("a small table");
        let client = dpf::Client::with_group(shape, version, PrgKind::Aes128, group);
        let (_, pending) = client.expect("a small table").query(&[7, 99], 3).expect("two rows");
        (dtype, pending)
    };
    let dtypes = [DType::F32, DType::F16, DType::Bf16, DType::Int8];
    let pairs = dtypes.into_iter().flat_map(|dtype| Group::ALL.map(|group| (dtype, group)));
    let lookups = pairs.map(lookup).collect();

    let part =
        |rows, bins, companions| Some(PartSpec { rows, bins, queries: 1, hashes: 1, companions });
    let spec = LayoutSpec {
        hot: part(4, 2, 1),
        full: part(100, 4, 0),
        ids_max: 8,
        drop: DropRule::Earliest,
        seed: [1; 32],
    };
    let map = LayoutMap {
        hot_ids: vec![0, 1, 2, 3],
        hot_companions: vec![1, 2, 3, 4],
        full_companions: vec![],
    };
    let shape = Shape::new(100, DIM, DType::F32).expect("a small table");
    let layout = Arc::new(Layout::new(spec, map, shape, version).expect("a small layout"));
    let plan = Planner::new(Arc::clone(&layout)).plan_vartime(&[0, 1, 50, 99, 98], 0);
    let plan = plan.expect("ids that are rows");
    let client = batch::Client::new(Geometry::new(&layout), PrgKind::Aes128);
    let (_, bag) = client.query(&plan).expect("a plan of this layout");
    let answer_bytes = client.geometry().answer_bytes();
    let (layout, row_bytes) = (layout.version(), layout.row_bytes());
    Sent { lookups, plan, bag, layout, row_bytes, answer_bytes }
}
