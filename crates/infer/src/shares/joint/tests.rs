//! What two servers deal gives the reference's logits, is a dealer's, and shows neither server a thing.

use std::collections::HashSet;
use std::sync::Arc;

use hushtable_mpc::compare::{Comparisons, evaluate};
use hushtable_mpc::ot;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;

use super::*;
use crate::dlrm::spec::{DlrmSpec, Interaction};
use crate::shares::bench::described;
use crate::shares::client::{open, share};
use crate::shares::dense::whole;
use crate::shares::gate::Gates;
use crate::shares::price::{Model, features};
use crate::shares::words::mask;
use crate::shares::{Dealers, Error, Server, Session, reference};
use crate::store::{LedgerPlace, StoreError, StoreSpec};

fn spec(bottom: &[usize], top: &[usize], rows: &[u64], bag: usize) -> DlrmSpec {
    let names: Vec<String> = (0..rows.len()).map(|index| format!("C{index}")).collect();
    let features: Vec<_> =
        names.iter().zip(rows).map(|(name, &rows)| (name.as_str(), rows, bag)).collect();
    described(13, bottom, top, &features)
}

fn small() -> Model {
    Model::synthetic(spec(&[8, 4], &[8, 1], &[4, 4], 1), 6, 8, 2).unwrap()
}

fn split(bytes: &[u8], rng: &mut ChaCha12Rng) -> [Vec<u8>; 2] {
    let left: Vec<u8> = bytes.iter().map(|_| rng.random()).collect();
    let right = bytes.iter().zip(&left).map(|(byte, left)| byte ^ left).collect();
    [left, right]
}

/// An inference of what was dealt: the logit, and the reference's for the same draws.
fn logits(model: &Model, dealt: [&Precompute; 2], seed: u64) -> [f64; 2] {
    let (dense, indices) = features(&model.dlrm, seed);
    let rows = model.rows(&indices).unwrap();
    let values = reference::summed(&model.network, &model.dlrm.places(&indices).unwrap());
    let [left, right] = split(&rows, &mut ChaCha12Rng::seed_from_u64(seed));
    let outline = model.network.outline();
    let shared = share(outline, &dense).unwrap();
    assert_eq!((shared.left.len(), shared.right.len()), (32, 4 * outline.dense));
    let mut session =
        Session::start_precomputed(&model.network, dealt, &shared, [&left, &right]).unwrap();
    let shares = session.finish().unwrap();
    assert_eq!(session.sent.len(), outline.rounds());
    for side in 0..2 {
        let bytes: usize = session.sent.iter().map(|sent| sent[side].len()).sum();
        assert_eq!(bytes, outline.peer_bytes(), "as with a client's keys");
    }
    let found = open(outline, &shares[0], &shares[1]).unwrap();
    let numbers = whole(outline, &dense).unwrap();
    let drawn = &session.servers[0].drawn;
    let expected =
        reference::logit(&model.network, &numbers, &values, |layer, output| drawn[layer][output]);
    [found, expected as f64 / f64::from(1_u32 << outline.fraction_bits)]
}

#[test]
fn a_logit_is_the_references_bit_for_bit() {
    let dot = |spec| DlrmSpec { interaction: Interaction::Dot, ..spec };
    let lifted = |spec| DlrmSpec { bottom_activates_last: false, ..spec };
    let shapes = [
        spec(&[32, 8], &[24, 1], &[10, 300, 5], 1),
        lifted(spec(&[32, 8], &[24, 16, 1], &[10, 30], 3)),
        spec(&[16, 8], &[1], &[10], 1),
        dot(spec(&[16, 8], &[24, 1], &[10, 300, 5], 1)),
        dot(lifted(spec(&[16, 8], &[24, 1], &[10, 30], 4))),
        dot(lifted(spec(&[8], &[1], &[10, 5], 1))),
    ];
    let mut kinds = HashSet::new();
    for (index, spec) in shapes.into_iter().enumerate() {
        for (value_bits, fraction_bits) in [(8, 10), (16, 6)] {
            let model = Model::synthetic(spec.clone(), fraction_bits, value_bits, 7).unwrap();
            let outline = model.network.outline();
            kinds.extend(outline.steps.iter().map(std::mem::discriminant));
            let mut dealers = Dealers::meet(outline).unwrap();
            for count in [1, 3] {
                let [left, right] = dealers.deal(count).unwrap();
                assert_eq!([left.len(), right.len()], [count; 2]);
                for (seed, (left, right)) in left.iter().zip(&right).enumerate() {
                    assert_eq!(left.id(), right.id());
                    assert_eq!(left.as_bytes().len(), Precompute::bytes_of(outline));
                    let [found, expected] = logits(&model, [left, right], seed as u64);
                    assert_eq!(found, expected, "shape {index}, {value_bits} bits, seed {seed}");
                }
            }
        }
    }
    assert_eq!(kinds.len(), 3, "each kind of step");
}

#[test]
fn a_criteo_shaped_logit_is_the_references() {
    let model = Model::criteo(40, 12, 3).unwrap();
    let mut dealers = Dealers::meet(model.network.outline()).unwrap();
    let [left, right] = dealers.deal(2).unwrap();
    for (seed, (left, right)) in left.iter().zip(&right).enumerate() {
        let [found, expected] = logits(&model, [left, right], seed as u64);
        assert_eq!(found, expected);
    }
}

/// Both servers' halves add up to what a dealer would have drawn, and their keys compare with that r.
#[test]
fn what_is_dealt_is_a_dealers() {
    let model = small();
    let outline = model.network.outline();
    let mut dealers = Dealers::meet(outline).unwrap();
    let mut tops = [0_u32; 2];
    for _ in 0..20 {
        let [left, right] = dealers.deal(1).unwrap();
        let mut both = [left[0].dealt(), right[0].dealt()];
        let looked = outline.looked_bits();
        let [x, y] = both.each_mut().map(|it| (it.numbers(looked).unwrap(), it.bits(looked)));
        for bit in 0..looked {
            let rho = u32::from(x.1[bit] ^ y.1[bit]);
            assert_eq!(x.0[bit].wrapping_add(y.0[bit]), rho);
        }
        for step in &outline.steps {
            let StepOutline::Relu { count, bits } = *step else { panic!("gates alone") };
            let mut numbers = || {
                let [x, y] = both.each_mut().map(|it| it.numbers(count).unwrap());
                x.iter().zip(&y).map(|(x, y)| x.wrapping_add(*y)).collect::<Vec<_>>()
            };
            let [a0, a1, m, ma0, ma1] = std::array::from_fn(|_| numbers());
            let roots = both.each_mut().map(|it| it.blocks(count));
            let c = both.each_mut().map(|it| it.bits(count));
            let gates = Gates { count, bits };
            let words = both.each_mut().map(|it| it.words(gates.words_bytes()).unwrap());
            assert_eq!(words[0], words[1]);
            let prg = Prg::new(PRG, Platform::detect());
            let keys = Comparisons::new(count, bits - 1);
            for gate in 0..count {
                let r = a1[gate].wrapping_neg();
                assert!(r < 1 << bits, "{r}");
                let top = r >> (bits - 1);
                tops[top as usize] += 1;
                assert_eq!(a0[gate], a1[gate].wrapping_add(top << bits));
                assert_eq!(m[gate], 1 ^ top ^ u32::from(c[0][gate] ^ c[1][gate]));
                assert_eq!(ma0[gate], m[gate].wrapping_mul(a0[gate]));
                assert_eq!(ma1[gate], m[gate].wrapping_mul(a1[gate]));
            }
            let low = gates.mask() >> 1;
            let points = a1.iter().map(|a1| u64::from(a1.wrapping_neg() & low));
            let points: Vec<u64> = points.collect();
            for offset in 0..3 {
                let at = points.iter().enumerate();
                let at = at.map(|(gate, r)| match offset {
                    0 => *r,
                    1 => r.wrapping_sub(1) & u64::from(low),
                    _ => (gate as u64).wrapping_mul(0x9E37_79B9) & u64::from(low),
                });
                let at: Vec<u64> = at.collect();
                let less = |half: Half, side: usize| {
                    evaluate(prg, half, keys, &roots[side], words[0], &at).unwrap()
                };
                let (x, y) = (less(Half::Left, 0), less(Half::Right, 1));
                for gate in 0..count {
                    assert_eq!(x[gate] ^ y[gate], u8::from(at[gate] < points[gate]));
                }
            }
        }
    }
    // 400 fair bits: five deviations of 10.
    assert!(tops.iter().all(|it| it.abs_diff((tops[0] + tops[1]) / 2) < 60), "{tops:?}");
}

#[test]
fn keys_that_are_too_wide_are_named_with_the_remedy() {
    let mut outline = small().network.outline().clone();
    outline.steps.push(StepOutline::Lift { count: 1, bits: 32 });
    assert!(check(&outline).is_ok());
    outline.steps.push(StepOutline::Relu { count: 1, bits: 27 });
    let refused = Dealer::start(Half::Left, &outline).map(drop).unwrap_err();
    assert!(matches!(refused, DealError::Wide { bits: 27, .. }));
    let said = refused.to_string();
    assert!(said.contains("27 bits") && said.contains("3 fewer bits after the point"), "{said}");
    outline.logit_bits = 99;
    let refused = Dealer::start(Half::Left, &outline).map(drop);
    assert!(matches!(refused, Err(DealError::Outline(_))));
}

#[test]
fn gates_of_more_trees_than_memory_holds_are_made_in_chunks() {
    let mut outline = small().network.outline().clone();
    outline.steps = vec![
        StepOutline::Relu { count: 50, bits: 24 },
        StepOutline::Relu { count: 20, bits: 5 },
        StepOutline::Relu { count: 20, bits: 24 },
    ];
    let mut dealers = Dealers::meet(&outline).unwrap();
    let [left, right] = dealers.deal(1).unwrap();
    // Two chunks of 16 levels.
    assert!(dealers.sent.len() > 2 * 33, "{}", dealers.sent.len());
    let mut both = [left[0].dealt(), right[0].dealt()];
    let looked = outline.looked_bits();
    both.iter_mut().for_each(|it| drop((it.numbers(looked), it.bits(looked))));
    for step in &outline.steps {
        let StepOutline::Relu { count, bits } = *step else { continue };
        let numbers: [Vec<_>; 5] = std::array::from_fn(|_| {
            let [x, y] = both.each_mut().map(|it| it.numbers(count).unwrap());
            x.iter().zip(&y).map(|(x, y)| x.wrapping_add(*y)).collect()
        });
        let roots = both.each_mut().map(|it| it.blocks(count));
        both.iter_mut().for_each(|it| drop(it.bits(count)));
        let keys = Comparisons::new(count, bits - 1);
        let words = both.each_mut().map(|it| it.words(keys.words_bytes()).unwrap())[0];
        let low = u64::from(mask(bits) >> 1);
        let points: Vec<u64> =
            numbers[1].iter().map(|a1: &u32| u64::from(a1.wrapping_neg()) & low).collect();
        let at: Vec<u64> = points.iter().map(|r| r.wrapping_sub(1) & low).collect();
        let prg = Prg::new(PRG, Platform::detect());
        let [x, y] = [(Half::Left, 0), (Half::Right, 1)].map(|(half, side): (Half, usize)| {
            evaluate(prg, half, keys, &roots[side], words, &at).unwrap()
        });
        for gate in 0..count {
            assert_eq!(x[gate] ^ y[gate], u8::from(points[gate] > 0), "{bits} bits, gate {gate}");
        }
    }
}

/// Each message in turn cut, too long, or with a bit of it changed: an error that says so, or keys of which both know
/// that they are wrong, and never a panic.
#[test]
fn messages_that_are_cut_or_changed_end_the_session() {
    let dot = DlrmSpec { interaction: Interaction::Dot, ..spec(&[8, 4], &[8, 1], &[4, 4], 1) };
    let model = Model::synthetic(dot, 6, 8, 2).unwrap();
    let outline = model.network.outline();
    let rounds = {
        let mut dealers = Dealers::meet(outline).unwrap();
        dealers.deal(1).unwrap();
        dealers.sent.len()
    };
    let mut rng = ChaCha12Rng::seed_from_u64(3);
    let mut disagreed = Vec::new();
    for bad in 0..rounds {
        for change in 0..4 {
            let mut dealers = Dealers::meet(outline).unwrap().servers;
            let mut messages = dealers.each_mut().map(|it| it.deal(1).unwrap());
            let mut outcome = Ok(());
            for round in 0..rounds {
                let mut to_left = messages[1].clone();
                if round == bad && !to_left.is_empty() {
                    match change {
                        0 => drop(to_left.pop()),
                        1 => to_left.push(0),
                        3 => to_left.iter_mut().for_each(|byte| *byte ^= 0xff),
                        _ => {
                            let place = rng.random_range(0..to_left.len());
                            to_left[place] ^= 1 << rng.random_range(0..8);
                        }
                    }
                } else if round == bad && change == 1 {
                    to_left.push(0);
                } else if round == bad {
                    outcome = Err(DealError::Turn);
                    break;
                }
                let outcomes = [dealers[0].step(&to_left), dealers[1].step(&messages[0])];
                match outcomes {
                    [Ok(Progress::Send(left)), Ok(Progress::Send(right))] => {
                        messages = [left, right];
                    }
                    [Ok(_), Ok(_)] => break,
                    [left, right] => {
                        outcome = left.and(right).map(drop);
                        break;
                    }
                }
            }
            // A changed offer makes numbers wrong, which nobody sees: both follow the protocol, over TLS. Some changes cancel.
            assert!(outcome.is_err() || change >= 2, "round {bad}, change {change}");
            if change == 3 && matches!(outcome, Err(DealError::Disagree)) {
                disagreed.push(bad);
            }
            if let (Err(error), true) = (&outcome, change < 2 && !messages[1].is_empty()) {
                let is_named = matches!(
                    error,
                    DealError::Bytes { .. } | DealError::Transfer(_) | DealError::Making(_)
                );
                assert!(is_named, "round {bad}, change {change}: {error}");
                assert!(matches!(dealers[0].step(&[]), Err(DealError::Turn)));
                assert!(matches!(dealers[0].deal(1), Err(DealError::Turn)));
            }
        }
    }
    // Correction words that one server has otherwise are found by the hash of them all, and so is another hash.
    assert!(disagreed.len() > 2 && disagreed.ends_with(&[rounds - 1]), "{disagreed:?} of {rounds}");
}

/// A server that does not choose by the same bits in every tree, to learn what hides the other's: the other sends nothing
/// that depends on its secret, whichever of the two lies.
#[test]
fn a_server_that_lies_in_its_choices_is_sent_nothing_for_them() {
    let model = small();
    for liar in [0, 1] {
        for place in 0..24 {
            let mut dealers = Dealers::meet(model.network.outline()).unwrap().servers;
            let mut messages = dealers.each_mut().map(|it| it.deal(1).unwrap());
            let own = &mut messages[liar];
            // After the terms; the last are in what shows that choices agree.
            let at = 32 + (own.len() - 33) * place / 23;
            own[at] ^= 1 << (place % 8);
            let honest = &mut dealers[1 - liar];
            let refused = honest.step(&messages[liar]);
            assert!(
                matches!(refused, Err(DealError::Transfer(ot::Error::Inconsistent))),
                "byte {at}"
            );
            assert!(matches!(honest.step(&[]), Err(DealError::Turn)));
            assert!(matches!(honest.deal(1), Err(DealError::Turn)));
        }
    }
}

#[test]
fn servers_that_deal_for_different_things_say_so() {
    let outline = small().network.outline().clone();
    let mut other = outline.clone();
    other.dense += 1;
    let terms = |left: &Outline, right: &Outline, halves: [Half; 2], counts: [usize; 2]| {
        let (mut left, mut to_right) = Dealer::start(halves[0], left).unwrap();
        let (mut right, mut to_left) = Dealer::start(halves[1], right).unwrap();
        while let [Progress::Send(left), Progress::Send(right)] =
            [left.step(&to_left).unwrap(), right.step(&to_right).unwrap()]
        {
            (to_right, to_left) = (left, right);
        }
        let messages = [left.deal(counts[0]).unwrap(), right.deal(counts[1]).unwrap()];
        left.step(&messages[1]).map(drop)
    };
    let both = [Half::Left, Half::Right];
    assert!(terms(&outline, &outline, both, [1, 1]).is_ok());
    for outcome in [
        terms(&outline, &other, both, [1, 1]),
        terms(&outline, &outline, both, [1, 2]),
        terms(&outline, &outline, [Half::Left; 2], [1, 1]),
    ] {
        assert!(matches!(outcome, Err(DealError::Terms)), "{outcome:?}");
    }
    let mut dealers = Dealers::meet(&outline).unwrap();
    for found in [0, BATCH_MAX + 1] {
        let refused = dealers.servers[0].deal(found);
        assert!(matches!(refused, Err(DealError::Batch { .. })));
    }
    assert!(dealers.deal(1).is_ok(), "which did not end the session");
}

#[test]
fn a_precompute_of_something_else_is_refused() {
    let model = small();
    let outline = model.network.outline();
    let [left, right] = Dealers::meet(outline).unwrap().deal(2).unwrap();
    let start = |precompute: &Precompute, half, dense: usize| {
        let (network, rows) = (Arc::clone(&model.network), vec![0; outline.looked_bits() / 8]);
        let dense = vec![0; dense];
        Server::start_precomputed(network, half, precompute, &dense, &rows, &[0; 32]).map(drop)
    };
    assert!(start(&left[0], Half::Left, 32).is_ok());
    assert!(start(&right[0], Half::Right, 4 * 13).is_ok());
    assert!(matches!(
        start(&left[0], Half::Right, 4 * 13),
        Err(Error::Precompute(PrecomputeError::Half))
    ));
    assert!(matches!(start(&left[0], Half::Left, 31), Err(Error::Bytes { .. })));
    let mut other = outline.clone();
    other.fraction_bits += 1;
    assert_eq!(left[0].check(&other, Half::Left), Err(PrecomputeError::Outline));
    let read = |bytes: &[u8], id: &Id| Precompute::from_bytes(bytes.to_vec(), id);
    let bytes = left[0].as_bytes();
    let same = read(bytes, &left[0].id()).unwrap();
    assert_eq!((same.as_bytes(), same.check(outline, Half::Left)), (bytes, Ok(())));
    assert!(matches!(read(bytes, &left[1].id()), Err(PrecomputeError::Id)));
    let longer = read(&[bytes, &[0]].concat(), &left[0].id()).unwrap();
    assert!(matches!(longer.check(outline, Half::Left), Err(PrecomputeError::Format { .. })));
    for cut in 0..bytes.len() {
        if let Ok(cut) = read(&bytes[..cut], &left[0].id()) {
            assert!(cut.check(outline, Half::Left).is_err());
        }
    }
}

#[test]
fn each_batch_and_session_has_ids_labels_and_messages_of_its_own() {
    let model = small();
    let outline = model.network.outline();
    let (mut ids, mut choices) = (HashSet::new(), HashSet::new());
    for _ in 0..2 {
        let mut dealers = Dealers::meet(outline).unwrap();
        for count in [1, 2, 1] {
            let [left, _] = dealers.deal(count).unwrap();
            assert!(left.iter().all(|it| ids.insert(it.id())));
            for message in &dealers.sent[0] {
                // 16 bytes of what choices are sent under: another stream of the transfers each time. Zeros are of the first
                // tree, whose own bits hide the sums of the others.
                let mut sent = message[32..].chunks_exact(16).filter(|it| **it != [0; 16]);
                assert!(sent.all(|it| choices.insert(it.to_vec())));
            }
        }
    }
}

fn stocks(place: &std::path::Path, outline: &Outline) -> [Stock; 2] {
    [("left", Half::Left), ("right", Half::Right)].map(|(name, half)| {
        let spec = StoreSpec {
            folder: place.join(name),
            bytes_max: 1 << 14,
            key: place.join(format!("{name}.key")),
            ledger: LedgerPlace::Folder(place.join("ledgers")),
        };
        Stock::open(&spec, half, outline).unwrap()
    })
}

#[test]
fn what_is_in_stock_is_used_once_also_after_a_restart() {
    let model = small();
    let outline = model.network.outline();
    let place = tempfile::tempdir().unwrap();
    let mut dealers = Dealers::meet(outline).unwrap();
    let [left, right] = dealers.deal(4).unwrap();
    let ids: Vec<Id> = left.iter().map(Precompute::id).collect();
    let [l, r] = stocks(place.path(), outline);
    assert!(matches!(l.keep(&right), Err(StockError::Precompute(PrecomputeError::Half))));
    l.keep(&left).unwrap();
    // Right has kept three when left asks for what is ready, and when both are killed.
    r.keep(&right[..3]).unwrap();
    assert_eq!((l.ready(), l.take_next().unwrap().is_none()), (0, true), "until right has it");
    l.agreed(&ids[..2]);
    l.agreed(&ids[..2]);
    assert_eq!(l.ready(), 2);
    let taken = l.take_next().unwrap().unwrap();
    assert_eq!((taken.id(), taken.as_bytes()), (ids[0], left[0].as_bytes()));
    assert!(l.take(&ids[0]).unwrap().is_none(), "it was taken");
    let partner = r.take(&ids[0]).unwrap().unwrap();
    let [found, expected] = logits(&model, [&taken, &partner], 1);
    assert_eq!(found, expected);
    assert!(r.take(&ids[0]).unwrap().is_none());
    // Right uses one that left will not know of.
    assert!(r.take(&ids[1]).unwrap().is_some());
    drop((l, r));

    let [l, r] = stocks(place.path(), outline);
    // Files of one moment come in any order.
    assert_eq!(l.held().iter().collect::<HashSet<_>>(), ids[1..].iter().collect());
    assert_eq!(r.held(), [ids[2]]);
    assert!(l.take(&ids[0]).unwrap().is_none() && r.take(&ids[1]).unwrap().is_none());
    let [of_left, of_right] = [l.held(), r.held()];
    assert_eq!((l.agree(&of_right).unwrap(), r.agree(&of_left).unwrap()), (2, 0));
    assert_eq!([l.ready(), r.ready()], [1, 1]);
    assert_eq!(l.take_next().unwrap().unwrap().id(), ids[2]);
    assert!(l.take_next().unwrap().is_none());
    assert_eq!(l.counts().bytes, 0);
    drop((l, r));

    // Another model's are discarded, and a folder is one server's.
    let mut other = outline.clone();
    other.fraction_bits += 1;
    let [l, r] = stocks(place.path(), &other);
    assert!(r.held().is_empty());
    let fits = l.room();
    assert!(fits > 2);
    drop((l, r));
    let [l, _r] = stocks(place.path(), outline);
    let mut kept = 0;
    let refused = loop {
        let [batch, _] = dealers.deal(1).unwrap();
        match l.keep(&batch) {
            Ok(()) => kept += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, StockError::Store(StoreError::Full { .. })), "{refused}");
    assert_eq!((kept, l.room()), (fits, 0));
    drop(l);
    let spec = StoreSpec {
        folder: place.path().join("left"),
        bytes_max: 1 << 14,
        key: place.path().join("left.key"),
        ledger: LedgerPlace::Folder(place.path().join("ledgers")),
    };
    let refused = Stock::open(&spec, Half::Right, outline).map(drop);
    assert!(matches!(refused, Err(StockError::Store(StoreError::OtherParty { .. }))));
}

#[test]
fn what_is_taken_ahead_is_used_in_order_and_agreed_on_like_the_rest() {
    let model = small();
    let outline = model.network.outline();
    let place = tempfile::tempdir().unwrap();
    let [left, right] = Dealers::meet(outline).unwrap().deal(6).unwrap();
    let ids: Vec<Id> = left.iter().map(Precompute::id).collect();
    let [l, r] = stocks(place.path(), outline);
    for (stock, batch) in [(&l, &left), (&r, &right)] {
        stock.keep(batch).unwrap();
        stock.agreed(&ids);
    }
    assert_eq!((l.fetch(3).unwrap(), r.fetch(2).unwrap()), (3, 2));
    assert_eq!((l.ready(), l.ahead(), r.ahead()), (6, 3, 2));
    assert_eq!(l.held(), ids, "what is ahead is held");
    for id in &ids[..4] {
        let taken = l.take_next().unwrap().unwrap();
        assert_eq!(taken.id(), *id);
        assert_eq!(r.take(id).unwrap().map(|it| it.id()), Some(*id));
        assert!(r.take(id).unwrap().is_none());
    }
    // Left ends with one in memory, which is lost; right has another there, and lets go of what left lost.
    assert_eq!((l.fetch(1).unwrap(), r.fetch(9).unwrap()), (1, 2));
    drop(l);
    let l = Stock::open(
        &StoreSpec {
            folder: place.path().join("left"),
            bytes_max: 1 << 14,
            key: place.path().join("left.key"),
            ledger: LedgerPlace::Folder(place.path().join("ledgers")),
        },
        Half::Left,
        outline,
    )
    .unwrap();
    let [of_left, of_right] = [l.held(), r.held()];
    assert_eq!((&of_left[..], &of_right[..]), (&ids[5..], &ids[4..]));
    assert_eq!((l.agree(&of_right).unwrap(), r.agree(&of_left).unwrap()), (0, 1));
    assert_eq!(r.take(&ids[4]).unwrap().map(|it| it.id()), None);
    assert_eq!(l.take_next().unwrap().unwrap().id(), ids[5]);
    assert!(r.take(&ids[5]).unwrap().is_some());
    assert_eq!((l.fetch(4).unwrap(), l.ready(), r.ready()), (0, 0, 0));
}

/// Left would say that it has none, where it has many; right would keep what is of no use.
#[test]
fn one_that_is_damaged_is_passed_over_and_both_agree_anew() {
    let model = small();
    let outline = model.network.outline();
    let place = tempfile::tempdir().unwrap();
    let [left, right] = Dealers::meet(outline).unwrap().deal(3).unwrap();
    let ids: Vec<Id> = left.iter().map(Precompute::id).collect();
    let [l, r] = stocks(place.path(), outline);
    for (stock, batch) in [(&l, &left), (&r, &right)] {
        stock.keep(batch).unwrap();
        stock.agreed(&ids);
    }
    let hex: String = ids[0].iter().map(|byte| format!("{byte:02x}")).collect();
    let data = place.path().join("left").join(format!("{hex}.data"));
    let bytes = std::fs::read(&data).unwrap();
    std::fs::write(&data, &bytes[..bytes.len() / 2]).unwrap();
    assert_eq!(l.take_next().unwrap().map(|it| it.id()), Some(ids[1]));
    assert!(l.has_disagreed() && !l.has_disagreed());
    let [of_left, of_right] = [l.held(), r.held()];
    assert_eq!((l.agree(&of_right).unwrap(), r.agree(&of_left).unwrap()), (0, 2));
    assert_eq!((l.held(), r.held()), (vec![ids[2]], vec![ids[2]]));
    assert!(l.take_next().unwrap().is_some() && !l.has_disagreed());
}

/// Per bit of all that a server is sent while it deals, and of what it keeps: how often it is set where a bit of the other
/// server's share of r is set, and where it is not. The largest difference, in deviations, of a few bits of r.
fn furthest(planted: bool) -> [f64; 2] {
    let mut outline = small().network.outline().clone();
    outline.steps = vec![
        StepOutline::Relu { count: 1, bits: 10 },
        StepOutline::Lift { count: 1, bits: 9 },
        StepOutline::Products { vectors: 2, dim: 1 },
    ];
    outline.lookups.truncate(1);
    outline.lookups[0].dim = 1;
    let mut dealers = Dealers::meet(&outline).unwrap();
    const RUNS: usize = 3000;
    const BITS: [u32; 3] = [0, 6, 9];
    let mut counts: [[Vec<[i32; 2]>; 3]; 2] = Default::default();
    let mut cases = [[[0; 2]; 3]; 2];
    for _ in 0..RUNS {
        let made = dealers.deal(1).unwrap();
        let drawn = dealers.servers.each_ref().map(|it| it.drawn);
        for side in 0..2 {
            // All messages, without the terms, and what the server makes of them and keeps.
            let mut seen: Vec<u8> =
                dealers.sent.iter().skip(1).flat_map(|sent| sent[1 - side].clone()).collect();
            seen.extend(&dealers.sent[0][1 - side][32..]);
            seen.extend(made[side][0].as_bytes());
            for (number, bit) in BITS.into_iter().enumerate() {
                let secret = drawn[1 - side] >> bit & 1;
                if planted {
                    // What a server would be sent by one that offers without a pad.
                    seen[5] = seen[5] & !1 | secret as u8;
                }
                cases[side][number][secret as usize] += 1;
                let counts = &mut counts[side][number];
                counts.resize(8 * seen.len(), [0; 2]);
                for (bit, counts) in counts.iter_mut().enumerate() {
                    counts[secret as usize] += i32::from(seen[bit / 8] >> (bit % 8) & 1);
                }
            }
        }
    }
    let mut furthest = [0_f64; 2];
    for side in 0..2 {
        for (cases, counts) in cases[side].iter().zip(&counts[side]) {
            let [n, m] = cases.map(f64::from);
            let deviation = (0.25 / n + 0.25 / m).sqrt();
            for counts in counts {
                let difference = f64::from(counts[0]) / n - f64::from(counts[1]) / m;
                furthest[side] = furthest[side].max(difference.abs() / deviation);
            }
        }
    }
    furthest
}

#[test]
fn what_a_server_sees_of_dealing_says_nothing_of_the_others_bits() {
    // Some 60,000 counts: seven deviations are chance once in 10^6 runs.
    let found = furthest(false);
    assert!(found.iter().all(|it| *it < 7.0), "{found:?}");
    let planted = furthest(true);
    assert!(planted.iter().all(|it| *it > 20.0), "{planted:?}");
}
