//! Whole clients over a simulated clock and network, which loses, delays, doubles and refuses, while
//! servers restart with other versions, layouts and models, swap places and forget keys: never a wrong
//! row, never a hang, and a client that asks for one version alone never gets another.

mod fleet;
mod servers;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::Duration;

use hushtable_client::simulation::{Faults, Network, bell, random_faults};
use hushtable_pir::PrgKind;
use hushtable_pir::client::{
    BagRows, Error, Failure, ModelClient, ModelRows, ModelSpec, OnionClient, OnionSpec, PairClient,
    PairSpec, Place, Rows,
};
use hushtable_pir::dpf::Side;
use hushtable_pir::onion::ParameterSet;
use hushtable_table::Version;
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use servers::{Held, OnionState, State};

const CALL_MAX: Duration = Duration::from_secs(4);
const LOOKUP_MAX: Duration = Duration::from_secs(20);
/// An operation's own limit, and that of the layouts it may fetch, which are not its time.
const ENDS_AFTER: Duration = Duration::from_secs(20 + 4 * 4);
/// When storms are over and the servers settled.
const CALM: Duration = Duration::from_secs(60);
/// When what began in the storm is over.
const QUIET: Duration = Duration::from_secs(200);

type Failed = Error<&'static str>;

/// What came of the operations that began in the storm.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    right: usize,
    /// Right, and of another version than the client began with.
    renewed: usize,
    mismatched: usize,
    failed: usize,
}

impl Counts {
    fn add(&mut self, other: Self) {
        self.right += other.right;
        self.renewed += other.renewed;
        self.mismatched += other.mismatched;
        self.failed += other.failed;
    }

    /// Notes an operation; `version` is the one that answered.
    fn note(&mut self, first: Version, outcome: Result<Version, Failed>) {
        match outcome {
            Ok(version) => {
                self.right += 1;
                self.renewed += usize::from(version != first);
            }
            Err(Error::Failure(Failure::VersionMismatch { .. })) => self.mismatched += 1,
            Err(_) => self.failed += 1,
        }
    }
}

/// What each of some servers holds when, and when the two of a pair are mistaken for each other.
#[derive(Debug)]
struct History {
    /// By server: from when on, and which of the states; `None` while it is down.
    holds: Vec<Vec<(Duration, Option<usize>)>>,
    swaps: Vec<(Duration, Duration)>,
    last: usize,
}

impl History {
    fn random(rng: &mut ChaCha8Rng, servers: usize, states: usize) -> Self {
        let last = rng.random_range(0..states);
        let moment = |rng: &mut ChaCha8Rng| Duration::from_millis(rng.random_range(0..50_000));
        // Servers follow each other, at moments of their own.
        let restarts: Vec<_> = (0..rng.random_range(0..4))
            .map(|_| (moment(rng), rng.random_range(0..states)))
            .collect();
        let holds = (0..servers).map(|_| {
            let mut changes = vec![(Duration::ZERO, Some(0))];
            for &(at, state) in &restarts {
                let at = at + Duration::from_millis(rng.random_range(0..5_000));
                let down = Duration::from_millis(rng.random_range(0..4_000));
                changes.extend([(at, None), (at + down, Some(state))]);
            }
            changes.sort_by_key(|&(at, _)| at);
            changes.push((CALM, Some(last)));
            changes
        });
        let holds = holds.collect();
        let swaps = (0..rng.random_range(0..3)).map(|_| {
            let from = moment(rng);
            (from, from + Duration::from_secs(3))
        });
        let swaps = swaps.collect();
        Self { holds, swaps, last }
    }

    fn at(&self, now: Duration, server: usize) -> Option<usize> {
        self.holds[server]
            .iter()
            .rev()
            .find(|&&(from, _)| from <= now)
            .and_then(|&(_, state)| state)
    }

    /// The server of a pair that is at `place`, and what it holds.
    fn of_pair(&self, now: Duration, place: Place) -> Option<(Side, usize)> {
        let is_swapped = self.swaps.iter().any(|&(from, to)| (from..to).contains(&now));
        let side = match (place, is_swapped) {
            (Place::Left, false) | (Place::Right, true) => Side::Left,
            _ => Side::Right,
        };
        self.at(now, usize::from(side.id())).map(|state| (side, state))
    }
}

fn tables() -> &'static [State; 4] {
    static STATES: OnceLock<[State; 4]> = OnceLock::new();
    STATES.get_or_init(|| {
        [
            State::of_table(Held::new("films", 300, 4, 1, Some(1))),
            // Another version, of another shape.
            State::of_table(Held::new("films", 500, 5, 2, Some(1))),
            // The first with another layout, and the second with none.
            State::of_table(Held::new("films", 300, 4, 1, Some(2))),
            State::of_table(Held::new("films", 500, 5, 2, None)),
        ]
    })
}

/// Two versions of a model: in the second, features stand elsewhere and have other tables.
fn models() -> &'static [State; 3] {
    static STATES: OnceLock<[State; 3]> = OnceLock::new();
    STATES.get_or_init(|| {
        let (users, items) =
            (Held::new("users", 200, 3, 3, None), Held::new("items", 300, 4, 1, Some(1)));
        let others = Held::new("users", 400, 3, 4, None);
        let first = [("user", 0, 2), ("cart", 1, 8), ("friend", 0, 3)];
        let second = [("friend", 0, 2), ("user", 0, 3), ("cart", 1, 8)];
        [
            State::of_model(vec![users.clone(), items.clone()], &first),
            State::of_model(vec![others, items.clone()], &second),
            // One feature less: to ask for it is an error then.
            State::of_model(vec![users, items], &first[..2]),
        ]
    })
}

fn onions() -> &'static [OnionState; 2] {
    static STATES: OnceLock<[OnionState; 2]> = OnceLock::new();
    STATES.get_or_init(|| [OnionState::new(300, 1), OnionState::new(450, 2)])
}

fn check_rows(ids: &[u64], Rows { rows, stats, .. }: &Rows, pin: Option<Version>) {
    let held = tables().iter().find_map(|state| state.table(stats.version)).expect("a version");
    assert!(pin.is_none_or(|pin| pin == stats.version), "another version than the pinned");
    let expected: Vec<u8> = ids.iter().flat_map(|&id| held.row(id)).collect();
    assert_eq!(*rows, expected, "rows of another version or other ids");
}

fn check_bag(ids: &[u64], bag: &BagRows, pin: Option<Version>) {
    let version = bag.stats.version;
    let held = tables().iter().find_map(|state| state.table(version)).expect("a version");
    assert!(pin.is_none_or(|pin| pin == version), "another version than the pinned");
    let rows = bag.rows.chunks_exact(bag.format.row_bytes);
    for ((&id, row), &kept) in ids.iter().zip(rows).zip(&bag.kept) {
        match kept {
            true => assert_eq!(row, held.row(id)),
            false => assert!(row.iter().all(|&byte| byte == 0)),
        }
    }
}

fn check_model(asked: &[(&str, Vec<u64>)], found: &ModelRows, pin: Option<Version>) {
    let version = found.stats.version;
    assert_eq!(found.facts.version(), version);
    assert!(pin.is_none_or(|pin| pin == version), "another version than the pinned");
    let of_version =
        |state: &&State| state.model.as_ref().is_some_and(|(it, _)| it.version() == version);
    let state = models().iter().find(of_version).expect("a version");
    let (manifest, _) = state.model.as_ref().expect("it has one");
    assert_eq!(found.features.len(), asked.len());
    for ((name, ids), found) in asked.iter().zip(&found.features) {
        let feature = &manifest.features()[found.feature];
        assert_eq!(feature.name, *name);
        let held = &state.tables[feature.table];
        let rows = found.rows.chunks_exact(found.format.row_bytes);
        for ((&id, row), &kept) in ids.iter().zip(rows).zip(&found.kept) {
            match kept {
                true => assert_eq!(row, held.row(id), "{name}"),
                false => assert!(row.iter().all(|&byte| byte == 0)),
            }
        }
    }
}

fn random_ids(rng: &mut ChaCha8Rng, rows: u64, count_max: usize) -> Vec<u64> {
    (0..rng.random_range(0..=count_max)).map(|_| rng.random_range(0..rows)).collect()
}

fn is_mismatch(error: &Failed, pin: Option<Version>) -> bool {
    matches!(error, Error::Failure(Failure::VersionMismatch { expected, .. }) if Some(*expected) == pin)
}

fn pair_of_table(seed: u64) -> Counts {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let history = History::random(&mut rng, 2, tables().len());
    let faults = random_faults(&mut rng);
    let versions = tables().each_ref().map(|state| state.tables[0].version());
    let pin = rng.random_bool(0.5).then_some(versions[0]);
    let mut serve = |now, place, _, call| {
        let (side, state) = history.of_pair(now, place)?;
        Some(tables()[state].reply(side, call))
    };
    let (bell, rung) = bell();
    let spec = PairSpec {
        servers: [1, 1],
        prg: PrgKind::Aes128,
        version: pin,
        layout_bytes_max: 1 << 20,
        call_max: CALL_MAX,
        lookup_max: LOOKUP_MAX,
    };
    // The first session in peace, which is moment zero of the history.
    let client = RefCell::new(None);
    let mut calm = |_, place, _, call| {
        let side = if place == Place::Left { Side::Left } else { Side::Right };
        Some(tables()[0].reply(side, call))
    };
    let mut network = Network::new(&mut rng, &rung, Duration::ZERO, Faults::NONE);
    let opening = PairClient::open(spec.clone(), seed, bell.clone());
    network.start(Duration::ZERO, ENDS_AFTER, opening, |_, opened| {
        *client.borrow_mut() = Some(opened.unwrap_or_else(|error| panic!("{error}")));
    });
    network.run(&mut calm);
    drop(network);
    let client = client.into_inner().expect("it was opened");

    let plans: Vec<_> = (0..12)
        .map(|_| {
            let begins = Duration::from_millis(rng.random_range(0..55_000));
            (begins, random_ids(&mut rng, 300, 4), rng.random_range(0..3), rng.random())
        })
        .collect();
    let counts = RefCell::new(Counts::default());
    let noted = &counts;
    let mut network = Network::new(&mut rng, &rung, Duration::ZERO, faults);
    for (begins, ids, kind, random) in &plans {
        let (begins, random) = (*begins, *random);
        let ends_max = begins + ENDS_AFTER;
        match kind {
            0 => network.start(begins, ends_max, client.bag(ids, random), move |_, bag| {
                let version = bag.map(|bag| {
                    check_bag(ids, &bag, pin);
                    bag.stats.version
                });
                noted.borrow_mut().note(versions[0], version);
            }),
            1 => network.start(begins, ends_max, client.lookup(ids, 4, random), move |_, rows| {
                let version = rows.map(|rows| {
                    check_rows(ids, &rows, pin);
                    rows.stats.version
                });
                noted.borrow_mut().note(versions[0], version);
            }),
            // A client that connects in the middle of it.
            _ => {
                let opening = PairClient::open(spec.clone(), random, bell.clone());
                network.start(begins, ends_max, opening, move |_, opened| {
                    if let (Ok(client), Some(pin)) = (opened, pin) {
                        assert_eq!(client.info().version, pin);
                    }
                });
            }
        }
    }
    network.run(&mut serve);
    drop(network);

    // When the faults are over and the servers have settled, lookups succeed.
    let (version, ids) = (versions[history.last], [1, 299, 7]);
    let mut network = Network::new(&mut rng, &rung, QUIET, Faults::NONE);
    let lookup = client.lookup(&ids, 4, seed);
    network.start(QUIET, QUIET + LOOKUP_MAX, lookup, move |_, rows| match rows {
        Ok(rows) => {
            assert_eq!(rows.stats.version, version);
            check_rows(&ids, &rows, pin);
        }
        Err(error) => {
            assert!(pin.is_some_and(|pin| pin != version) && is_mismatch(&error, pin), "{error}");
        }
    });
    let has_layout = tables()[history.last].tables[0].table.layout().is_some();
    let bag = client.bag(&ids, seed);
    network.start(QUIET + LOOKUP_MAX, QUIET + 2 * LOOKUP_MAX, bag, move |_, bag| match bag {
        Ok(bag) => {
            assert!(has_layout && bag.stats.version == version);
            check_bag(&ids, &bag, pin);
        }
        Err(Error::Failure(Failure::NoLayout)) => assert!(!has_layout),
        Err(error) => {
            assert!(pin.is_some_and(|pin| pin != version) && is_mismatch(&error, pin), "{error}");
        }
    });
    network.run(&mut serve);
    drop(network);
    counts.into_inner()
}

fn pair_of_model(seed: u64) -> Counts {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let history = History::random(&mut rng, 2, models().len());
    let faults = random_faults(&mut rng);
    let versions =
        models().each_ref().map(|state| state.model.as_ref().map(|(it, _)| it.version()));
    let pin = if rng.random_bool(0.5) { versions[0] } else { None };
    let mut serve = |now, place, _, call| {
        let (side, state) = history.of_pair(now, place)?;
        Some(models()[state].reply(side, call))
    };
    let (bell, rung) = bell();
    let spec = ModelSpec {
        servers: [1, 1],
        model: rng.random_bool(0.5).then(|| "clicks".to_owned()),
        version: pin,
        prg: PrgKind::Aes128,
        layout_bytes_max: 1 << 20,
        call_max: CALL_MAX,
        lookup_max: LOOKUP_MAX,
    };
    let client = RefCell::new(None);
    let mut calm = |_, place, _, call| {
        let side = if place == Place::Left { Side::Left } else { Side::Right };
        Some(models()[0].reply(side, call))
    };
    let mut network = Network::new(&mut rng, &rung, Duration::ZERO, Faults::NONE);
    let opening = ModelClient::open(spec.clone(), seed, bell.clone());
    network.start(Duration::ZERO, ENDS_AFTER, opening, |_, opened| {
        *client.borrow_mut() = Some(opened.unwrap_or_else(|error| panic!("{error}")));
    });
    network.run(&mut calm);
    drop(network);
    let client = client.into_inner().expect("it was opened");

    let plans: Vec<_> = (0..8)
        .map(|_| {
            let begins = Duration::from_millis(rng.random_range(0..55_000));
            let mut asked = vec![
                ("friend", random_ids(&mut rng, 200, 2)),
                ("cart", random_ids(&mut rng, 300, 8)),
                ("user", random_ids(&mut rng, 200, 2)),
            ];
            asked.rotate_left(rng.random_range(0..3));
            asked.truncate(rng.random_range(1..=3));
            (begins, asked, rng.random())
        })
        .collect();
    let counts = RefCell::new(Counts::default());
    let (noted, first) = (&counts, models()[0].model.as_ref().expect("it has one").0.version());
    let mut network = Network::new(&mut rng, &rung, Duration::ZERO, faults);
    for (begins, asked, random) in &plans {
        let features: Vec<_> = asked.iter().map(|(name, ids)| (*name, ids.as_slice())).collect();
        let lookup = client.lookup(&features, *random);
        network.start(*begins, *begins + ENDS_AFTER, lookup, move |_, found| {
            let version = found.map(|found| {
                check_model(asked, &found, pin);
                found.stats.version
            });
            noted.borrow_mut().note(first, version);
        });
    }
    network.run(&mut serve);
    drop(network);

    let (version, asked) = (versions[history.last], [("cart", vec![1, 299, 7]), ("user", vec![9])]);
    let features: Vec<_> = asked.iter().map(|(name, ids)| (*name, ids.as_slice())).collect();
    let mut network = Network::new(&mut rng, &rung, QUIET, Faults::NONE);
    let lookup = client.lookup(&features, seed);
    network.start(QUIET, QUIET + LOOKUP_MAX, lookup, |_, found| match found {
        Ok(found) => {
            assert_eq!(Some(found.stats.version), version);
            check_model(&asked, &found, pin);
        }
        Err(error) => {
            assert!(pin.is_some() && pin != version && is_mismatch(&error, pin), "{error}");
        }
    });
    network.run(&mut serve);
    drop(network);
    counts.into_inner()
}

fn single_server(seed: u64) -> Counts {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let history = History::random(&mut rng, 1, onions().len());
    let faults = random_faults(&mut rng);
    let pin = rng.random_bool(0.5).then_some(onions()[0].version);
    let mut forgetful = ChaCha8Rng::seed_from_u64(!seed);
    let forgets = [0.0, 0.2][usize::from(rng.random_bool(0.5))];
    // Keys are lost with a restart, and now and then to make room.
    let (kept, was) = (RefCell::new(BTreeMap::new()), RefCell::new(Some(0)));
    let mut serve = |now, _, _, call| {
        let state = history.at(now, 0);
        if was.replace(state) != state || (now < CALM && forgetful.random_bool(forgets)) {
            kept.borrow_mut().clear();
        }
        Some(vec![onions()[state?].reply(&mut kept.borrow_mut(), call)])
    };
    let (bell, rung) = bell();
    let spec = OnionSpec {
        servers: 1,
        parameter_sets: vec![ParameterSet::N256Test],
        version: pin,
        call_max: CALL_MAX,
        lookup_max: LOOKUP_MAX,
    };
    let check = |ids: &[u64], Rows { rows, stats, .. }: &Rows| {
        assert!(pin.is_none_or(|pin| pin == stats.version), "another version than the pinned");
        let held =
            onions().iter().find(|state| state.version == stats.version).expect("one of them");
        let expected: Vec<u8> =
            ids.iter().flat_map(|&id| &held.table[id as usize * 16..][..16]).copied().collect();
        assert_eq!(*rows, expected);
    };
    let client = RefCell::new(None);
    let mut network = Network::new(&mut rng, &rung, Duration::ZERO, Faults::NONE);
    let opening = OnionClient::open(spec, seed, bell.clone());
    network.start(Duration::ZERO, ENDS_AFTER, opening, |_, opened| {
        *client.borrow_mut() = Some(opened.unwrap_or_else(|error| panic!("{error}")));
    });
    network.run(&mut |_, _, _, call| Some(vec![onions()[0].reply(&mut BTreeMap::new(), call)]));
    drop(network);
    let client = client.into_inner().expect("it was opened");

    let plans: Vec<_> = (0..8)
        .map(|_| {
            let begins = Duration::from_millis(rng.random_range(0..55_000));
            (begins, random_ids(&mut rng, 300, 3), rng.random())
        })
        .collect();
    let counts = RefCell::new(Counts::default());
    let noted = &counts;
    let mut network = Network::new(&mut rng, &rung, Duration::ZERO, faults);
    for (begins, ids, random) in &plans {
        let lookup = client.lookup(ids, 3, *random);
        network.start(*begins, *begins + LOOKUP_MAX, lookup, move |_, rows| {
            let version = rows.map(|rows| {
                check(ids, &rows);
                rows.stats.version
            });
            noted.borrow_mut().note(onions()[0].version, version);
        });
    }
    network.run(&mut serve);
    drop(network);

    let (version, ids) = (onions()[history.last].version, [1, 299]);
    let mut network = Network::new(&mut rng, &rung, QUIET, Faults::NONE);
    let lookup = client.lookup(&ids, 3, seed);
    network.start(QUIET, QUIET + LOOKUP_MAX, lookup, move |_, rows| match rows {
        Ok(rows) => {
            assert_eq!(rows.stats.version, version);
            check(&ids, &rows);
        }
        Err(error) => {
            assert!(pin.is_some_and(|pin| pin != version) && is_mismatch(&error, pin), "{error}");
        }
    });
    network.run(&mut serve);
    drop(network);
    counts.into_inner()
}

/// The storms are storms, and clients come through them: else the properties would hold of nothing.
#[test]
fn of_every_outcome_there_are_many() {
    for storm in [pair_of_table, pair_of_model, single_server] {
        let mut counts = Counts::default();
        (0..200).for_each(|seed| counts.add(storm(seed)));
        let Counts { right, renewed, mismatched, failed } = counts;
        assert!(right >= 200 && renewed >= 20 && mismatched >= 20 && failed >= 50, "{counts:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn a_pair_gives_right_rows_or_an_error(seed: u64) {
        pair_of_table(seed);
    }

    #[test]
    fn a_model_gives_right_rows_or_an_error(seed: u64) {
        pair_of_model(seed);
    }
}

proptest! {
    // Keys and queries under encryption take milliseconds each.
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_single_server_gives_right_rows_or_an_error(seed: u64) {
        single_server(seed);
    }
}
