//! Whole clients of predictions on shares over a simulated clock and network, which loses, delays,
//! doubles and refuses, while the two servers drain, restart with another model and swap places:
//! never a wrong logit, never a hang, and nothing that was dealt is sent twice.

mod servers;

use std::cell::{Cell, RefCell};
use std::time::Duration;

use hushtable_client::simulation::{Faults, Network, Serve, bell, random_faults};
use hushtable_client::{CallFault, Error, Machine, Outcome, Place};
use hushtable_infer::dlrm::reference::forward;
use hushtable_infer::shares::price::features;
use hushtable_infer::shares::session::{
    Announced, Answered, Call, Failure, InfoDefect, Predictor, Reply, SessionSpec, SharedInference,
};
use hushtable_infer::shares::{self, DealtBy, Half};
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use servers::{Held, Now, OTHER_PLAN, Servers, held, pending, refused};

const CALL_MAX: Duration = Duration::from_secs(6);
/// When storms are over and the servers settled.
const CALM: Duration = Duration::from_secs(40);
/// When what began in the storm is over.
const QUIET: Duration = Duration::from_secs(60);
/// Users that are asked for.
const USERS: u64 = 5;

/// What came of the operations that began in the storm.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    right: usize,
    /// Right, and dealt anew.
    anew: usize,
    other_plan: usize,
    late: usize,
    failed: usize,
    opened: usize,
    /// Servers that were refused by clients.
    misfits: usize,
}

impl Counts {
    fn add(&mut self, other: Self) {
        self.right += other.right;
        self.anew += other.anew;
        self.other_plan += other.other_plan;
        self.late += other.late;
        self.failed += other.failed;
        self.opened += other.opened;
        self.misfits += other.misfits;
    }

    fn note(&mut self, outcome: &Outcome<SharedInference, Answered, &'static str>) {
        match outcome {
            Ok(answered) => {
                self.right += 1;
                self.anew += usize::from(answered.retries > 0);
            }
            Err(Error::Call { error, .. }) if *error == OTHER_PLAN => self.other_plan += 1,
            Err(Error::Failure(Failure::Timeout { .. })) => self.late += 1,
            Err(Error::Call { .. }) => self.failed += 1,
            Err(error) => panic!("{error}"),
        }
    }
}

/// What each server is when, and when the two are mistaken for each other.
struct History {
    holds: [Vec<(Duration, Option<usize>, bool)>; 2],
    swap: (Duration, Duration),
    last: usize,
}

impl History {
    fn random(rng: &mut ChaCha8Rng) -> Self {
        let moment = |rng: &mut ChaCha8Rng| Duration::from_millis(rng.random_range(0..35_000));
        let last = rng.random_range(0..2);
        // The servers follow each other, at moments of their own.
        let restarts: Vec<_> = (0..rng.random_range(0..4))
            .map(|_| (moment(rng), usize::from(rng.random_bool(0.3))))
            .collect();
        let mut holds = [(); 2].map(|()| {
            let mut changes = vec![(Duration::ZERO, Some(0), false)];
            for &(at, state) in &restarts {
                let ms =
                    |rng: &mut ChaCha8Rng, max| Duration::from_millis(rng.random_range(0..max));
                let drains = at + ms(rng, 1_500);
                let down = drains + ms(rng, 800);
                let up = down + ms(rng, 1_500);
                changes.extend([(drains, None, true), (down, None, false)]);
                changes.push((up, Some(state), false));
            }
            changes
        });
        for changes in &mut holds {
            changes.sort_by_key(|&(at, ..)| at);
            changes.push((CALM, Some(last), false));
        }
        let from = if rng.random_bool(0.5) { moment(rng) } else { CALM };
        Self { holds, swap: (from, (from + Duration::from_secs(4)).min(CALM)), last }
    }

    fn at(&self, now: Duration, place: Place) -> Now {
        let (from, to) = self.swap;
        let is_left = (place == Place::Left) != (from..to).contains(&now);
        let half = if is_left { Half::Left } else { Half::Right };
        let changes = self.holds[usize::from(!is_left)].iter().rev();
        match changes.clone().find(|(at, ..)| *at <= now) {
            Some(&(_, Some(state), _)) => Now::Serves(half, state),
            Some((_, None, true)) => Now::Drains,
            _ => Now::Down,
        }
    }
}

fn spec() -> SessionSpec {
    SessionSpec { version: None, dealer: None, call_max: CALL_MAX }
}

fn settled(place: Place, state: usize) -> Now {
    let half = if place == Place::Left { Half::Left } else { Half::Right };
    Now::Serves(half, state)
}

/// Runs one machine to its end, without faults.
fn run<M>(
    machine: M,
    from: Duration,
    serve: &mut Serve<'_, SharedInference>,
) -> Outcome<SharedInference, M::Output, &'static str>
where
    M: Machine<&'static str, Protocol = SharedInference>,
{
    let (_, rung) = bell();
    let (mut rng, done) = (ChaCha8Rng::seed_from_u64(1), RefCell::new(None));
    let mut network = Network::new(&mut rng, &rung, from, Faults::NONE);
    network.start(from, from + CALL_MAX, machine, |_, outcome| *done.borrow_mut() = Some(outcome));
    network.run(serve);
    drop(network);
    done.into_inner().expect("it is done")
}

/// A client of settled servers.
fn open(spec: SessionSpec, from: Duration, state: usize, dealer: DealtBy) -> Predictor {
    let mut servers = Servers::new(dealer);
    let opening = Predictor::open(spec, 1, bell().0);
    let opened = run(opening, from, &mut |_, place, _, call| {
        servers.reply(settled(place, state), place, call, None)
    });
    opened.unwrap_or_else(|error| panic!("{error}"))
}

fn check(held: &Held, user: u64, client: &Predictor, found: &Answered) {
    let (dense, indices) = features(&held.model.dlrm, user);
    let float = forward(&held.model.dlrm, &held.model.weights, &dense, &indices).unwrap().logit;
    assert!((found.logit - float).abs() <= 1.0 / 256.0, "{} and {float}", found.logit);
    let (info, dealt) = (client.info(), u64::from(found.retries) + 1);
    assert_eq!(found.dealt_bytes, dealt * info.up_bytes() as u64);
    assert!(found.key_bytes > 0 && found.key_bytes.is_multiple_of(dealt));
    assert_eq!(found.received_bytes, 2 * info.outline.logit_bytes() as u64);
    assert!(!found.queue.is_zero() && found.queue < found.answer);
}

fn predict<E: Send>(
    client: &Predictor,
    user: u64,
    random: u64,
) -> impl Machine<E, Protocol = SharedInference, Output = Answered> + use<E> {
    let (dense, indices) = features(&held()[0].model.dlrm, user);
    client.predict_one(dense, indices, random)
}

fn storm(seed: u64) -> Counts {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let history = History::random(&mut rng);
    let faults = random_faults(&mut rng);
    let dealer = if rng.random_bool(0.5) { DealtBy::Client } else { DealtBy::Servers };
    let dry = [0.0, 0.3][usize::from(rng.random_bool(0.5))];
    let client = open(spec(), Duration::ZERO, 0, dealer);
    let plans: Vec<_> = (0..8)
        .map(|turn| {
            let begins = Duration::from_millis(rng.random_range(0..35_000));
            let pin = rng.random_bool(0.5).then_some(held()[0].version);
            (turn % 4 == 3, begins, rng.random_range(0..USERS), pin, rng.random())
        })
        .collect();
    let mut refuses = ChaCha8Rng::seed_from_u64(!seed);
    let servers = RefCell::new(Servers::new(dealer));
    let mut serve = |now, place, _, call| {
        let is_dry = now < CALM && refuses.random_bool(dry);
        let refusal = is_dry.then(pending);
        servers.borrow_mut().reply(history.at(now, place), place, call, refusal)
    };
    let counts = RefCell::new(Counts::default());
    let noted = &counts;
    let (_, rung) = bell();
    let mut network = Network::new(&mut rng, &rung, Duration::ZERO, faults);
    for &(is_opening, begins, user, version, random) in &plans {
        let ends_max = begins + CALL_MAX;
        if is_opening {
            let opening = Predictor::open(SessionSpec { version, ..spec() }, random, bell().0);
            network.start(begins, ends_max, opening, move |_, opened| {
                let mut counts = noted.borrow_mut();
                match opened {
                    Ok(client) => {
                        assert!(version.is_none_or(|pin| pin == client.info().version));
                        counts.opened += 1;
                    }
                    Err(Error::Failure(Failure::Timeout { .. })) => counts.late += 1,
                    Err(Error::Failure(_)) => counts.misfits += 1,
                    Err(Error::Call { .. }) => counts.failed += 1,
                }
            });
            continue;
        }
        let client = &client;
        network.start(begins, ends_max, predict(client, user, random), move |_, outcome| {
            if let Ok(found) = &outcome {
                check(&held()[0], user, client, found);
            }
            noted.borrow_mut().note(&outcome);
        });
    }
    network.run(&mut serve);
    drop(network);

    // When the faults are over, predictions succeed: of the client that was opened before, and of a new one.
    let last = history.last;
    match run(predict(&client, 1, seed), QUIET, &mut serve) {
        Ok(found) if last == 0 => check(&held()[0], 1, &client, &found),
        Err(Error::Call { error, .. }) if last != 0 => assert_eq!(error, OTHER_PLAN),
        _ => panic!("neither right nor refused"),
    }
    let client = open(spec(), QUIET, last, dealer);
    let found = run(predict(&client, 2, seed), QUIET, &mut serve).unwrap();
    check(&held()[last], 2, &client, &found);
    counts.into_inner()
}

/// The storms are storms, and clients come through them: else the properties would hold of nothing.
#[test]
fn of_every_outcome_there_are_many() {
    let mut counts = Counts::default();
    (0..100).for_each(|seed| counts.add(storm(seed)));
    let Counts { right, anew, other_plan, late, failed, opened, misfits } = counts;
    assert!(right >= 150 && anew >= 75 && other_plan >= 20, "{counts:?}");
    assert!(late >= 20 && failed >= 20 && opened >= 50 && misfits >= 10, "{counts:?}");
}

/// A logit of the other model would be seen.
#[test]
fn the_models_differ() {
    for user in 0..USERS {
        let [first, second] = held().each_ref().map(|held| {
            let (dense, indices) = features(&held.model.dlrm, user);
            forward(&held.model.dlrm, &held.model.weights, &dense, &indices).unwrap().logit
        });
        assert!((first - second).abs() > 1.0 / 64.0, "{first} and {second}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn a_client_gives_a_right_logit_or_an_error(seed: u64) {
        storm(seed);
    }
}

/// What a server may say for which an inference is dealt anew, and what ends it.
#[test]
fn what_passes_is_dealt_anew_and_what_does_not_is_an_end() {
    let client = open(spec(), Duration::ZERO, 0, DealtBy::Client);
    let busy = CallFault::Busy { retry_after: Duration::from_millis(20) };
    for (fault, passes) in [
        (busy, true),
        (pending(), true),
        (CallFault::Draining, true),
        (CallFault::Unreachable, true),
        (CallFault::Other, false),
    ] {
        for wrong in Place::PAIR {
            let (mut servers, mut left) = (Servers::new(DealtBy::Client), 3);
            let found = run(predict(&client, 3, 1), QUIET, &mut |_, place, _, call| {
                let refuses = place == wrong && left > 0;
                left -= usize::from(refuses);
                let refusal = refuses.then(|| fault.clone());
                servers.reply(settled(place, 0), place, call, refusal)
            });
            match found {
                Ok(found) => {
                    assert!(passes && found.retries == 3, "{fault:?}: {}", found.retries);
                    check(&held()[0], 3, &client, &found);
                }
                Err(Error::Call { place, fault: found, .. }) => {
                    assert!(!passes && (place, &found) == (wrong, &fault), "{fault:?}");
                }
                Err(error) => panic!("{error}"),
            }
            assert_eq!(servers.names(), if passes { 4 } else { 1 });
        }
    }
}

/// A server that is busy for good: the operation ends with what it said, in time.
#[test]
fn a_pause_that_does_not_fit_is_not_begun() {
    let client = open(spec(), Duration::ZERO, 0, DealtBy::Client);
    let asked = Cell::new(0);
    let outcome = run(predict(&client, 3, 1), QUIET, &mut |_, place, _, _| {
        asked.set(asked.get() + usize::from(place == Place::Right));
        Some(vec![refused(pending(), "dry")])
    });
    assert!(matches!(outcome, Err(Error::Call { error: "dry", .. })));
    assert!((2..20).contains(&asked.get()), "{}", asked.get());
}

#[test]
fn a_silent_server_is_waited_for_once() {
    let client = open(spec(), Duration::ZERO, 0, DealtBy::Client);
    for silent in Place::PAIR {
        let mut servers = Servers::new(DealtBy::Client);
        let outcome =
            run(predict(&client, 3, 1), QUIET, &mut |_, place, _, call| match place == silent {
                true => Some(Vec::new()),
                false => servers.reply(settled(place, 0), place, call, None),
            });
        let Err(Error::Failure(Failure::Timeout { place, after })) = outcome else {
            panic!("no timeout");
        };
        assert_eq!((place, after, servers.names()), (silent, CALL_MAX, 1));
    }
}

/// Features that the model does not have are dealt to nobody.
#[test]
fn what_is_no_users_never_leaves_the_client() {
    let client = open(spec(), Duration::ZERO, 0, DealtBy::Client);
    let (dense, indices) = features(&held()[0].model.dlrm, 0);
    let mut far = indices.clone();
    far[0] = 50;
    for (dense, indices) in
        [(vec![f64::NAN; 3], indices.clone()), (dense[1..].to_vec(), indices), (dense, far)]
    {
        let asking = client.predict_one(dense, indices, 1);
        let outcome = run(asking, QUIET, &mut |_, _, _, call| panic!("{call:?}"));
        let Err(Error::Failure(Failure::Dlrm(_) | Failure::Shares(_))) = outcome else {
            panic!("not refused");
        };
    }
}

/// An answer of another plan or length is none.
#[test]
fn answers_are_held_against_what_was_asked() {
    let client = open(spec(), Duration::ZERO, 0, DealtBy::Client);
    type Change = fn(&mut Reply);
    let changes: [Change; 3] = [
        |reply| {
            if let Reply::Share(share) = reply {
                share.plan = held()[1].plan;
            }
        },
        |reply| {
            if let Reply::Share(share) = reply {
                share.share.truncate(1);
            }
        },
        |reply| {
            let info = held()[0].info(Half::Left, DealtBy::Client);
            *reply = Reply::Info(Box::new(info.announced()));
        },
    ];
    for wrong in Place::PAIR {
        let found = changes.map(|change| {
            let mut servers = Servers::new(DealtBy::Client);
            let outcome = run(predict(&client, 3, 1), QUIET, &mut |_, place, _, call| {
                let mut replies = servers.reply(settled(place, 0), place, call, None)?;
                if let (Ok(reply), true) = (&mut replies[0], place == wrong) {
                    change(reply);
                }
                Some(replies)
            });
            match outcome {
                Err(Error::Failure(Failure::OtherPlan { place })) => ("plan", place),
                Err(Error::Failure(Failure::AnswerBytes { place, found: 1, .. })) => {
                    ("bytes", place)
                }
                Err(Error::Failure(Failure::OtherCall { place })) => ("call", place),
                _ => panic!("taken for an answer"),
            }
        });
        assert_eq!(found, [("plan", wrong), ("bytes", wrong), ("call", wrong)]);
    }
}

/// Servers that do not fit each other, or what the client asks for, get nothing.
#[test]
fn servers_that_do_not_go_together_are_told_apart() {
    use DealtBy::{Client, Servers};
    use Half::{Left, Right};
    let infos = |left: (Half, usize, DealtBy), right: (Half, usize, DealtBy)| {
        [left, right].map(|(half, state, dealer)| held()[state].info(half, dealer).announced())
    };
    let open = |spec, announced: [Announced; 2]| {
        let opening = Predictor::open(spec, 1, bell().0);
        let outcome = run(opening, Duration::ZERO, &mut |_, place, _, _| {
            let announced = announced[usize::from(place == Place::Right)].clone();
            Some(vec![Ok(Reply::Info(Box::new(announced)))])
        });
        match outcome {
            Err(Error::Failure(failure)) => failure,
            _ => panic!("not refused"),
        }
    };
    let own = (Left, 0, Client);
    let failure = open(spec(), infos((Right, 0, Client), own));
    assert!(matches!(failure, Failure::SidesSwapped), "{failure}");
    let failure = open(spec(), infos(own, own));
    assert!(matches!(failure, Failure::SameSide { half: Left }), "{failure}");
    let failure = open(spec(), infos(own, (Right, 1, Client)));
    let [first, second] = held();
    let is_mismatch = |failure: &Failure, [one, other]: [&Held; 2]| {
        matches!(failure, Failure::VersionMismatch { expected, found }
            if (*expected, *found) == (one.version, other.version))
    };
    assert!(is_mismatch(&failure, [first, second]), "{failure}");
    let pinned = SessionSpec { version: Some(second.version), ..spec() };
    let failure = open(pinned, infos(own, (Right, 0, Client)));
    assert!(is_mismatch(&failure, [second, first]), "{failure}");
    let told = SessionSpec { dealer: Some(Servers), ..spec() };
    let failure = open(told, infos(own, (Right, 0, Client)));
    assert!(matches!(failure, Failure::Dealer { announced: Client, accepted: Servers }));
    let failure = open(spec(), infos(own, (Right, 0, Servers)));
    assert!(matches!(failure, Failure::TermsDiffer), "{failure}");
    let good = infos(own, (Right, 0, Client));
    let mut other = good.clone();
    other[1].plan = second.plan;
    let failure = open(spec(), other);
    assert!(
        matches!(failure, Failure::VersionMismatch { expected, found }
            if (expected, found) == (first.plan, second.plan)),
        "{failure}"
    );
    // And what no server announces.
    let changed = |text: &str, to: &str| {
        let [left, mut right] = good.clone();
        let terms = String::from_utf8(right.terms.to_vec()).unwrap();
        assert!(terms.contains(text), "{terms}");
        right.terms = terms.replacen(text, to, 1).into_bytes().into();
        open(spec(), [left, right])
    };
    let defect = |failure: Failure| match failure {
        Failure::Info { place: Place::Right, defect } => *defect,
        other => panic!("{other}"),
    };
    let found = defect(changed("{", "["));
    assert!(matches!(found, InfoDefect::Terms(_)), "{found}");
    let found = defect(changed("\"dense\":3", "\"dense\":4"));
    assert!(matches!(found, InfoDefect::OtherOutline | InfoDefect::Model(_)), "{found}");
    let found = defect(changed("\"fraction_bits\":12", "\"fraction_bits\":21"));
    assert!(matches!(found, InfoDefect::Outline(shares::Error::Unsupported { .. })), "{found}");
    let mut sideless = good.clone();
    sideless[1].side = Some(2);
    assert!(matches!(defect(open(spec(), sideless)), InfoDefect::Side));
    let mut long = good;
    long[1].terms = vec![b' '; (1 << 20) + 1].into();
    assert!(matches!(defect(open(spec(), long)), InfoDefect::TermsTooLong(_)));
}

/// The bytes of what is dealt stay out of logs.
#[test]
fn calls_and_shares_say_nothing_secret() {
    let client = open(spec(), Duration::ZERO, 0, DealtBy::Client);
    let mut servers = Servers::new(DealtBy::Client);
    let texts = RefCell::new(Vec::new());
    let outcome = run(predict(&client, 3, 1), QUIET, &mut |_, place, _, call: Call| {
        texts.borrow_mut().push(format!("{call:?}"));
        let replies = servers.reply(settled(place, 0), place, call, None)?;
        texts.borrow_mut().extend(replies.iter().flatten().map(|reply| format!("{reply:?}")));
        Some(replies)
    });
    outcome.unwrap();
    let texts = texts.into_inner();
    assert_eq!(texts.len(), 4);
    assert!(texts.iter().all(|text| text == "Predict" || text.ends_with(".. })")), "{texts:?}");
}
