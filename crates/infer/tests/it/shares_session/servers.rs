//! Left and right of two models: what each server of a pair replies, with what comes of both halves
//! for real.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use hushtable_client::simulation::Answered;
use hushtable_client::{CallError, CallFault, Place};
use hushtable_infer::shares::bench::described;
use hushtable_infer::shares::client::{Dealt, Shared};
use hushtable_infer::shares::joint::Precompute;
use hushtable_infer::shares::price::Model;
use hushtable_infer::shares::session::{Call, Info, Reply, Share, SharedInference, Terms};
use hushtable_infer::shares::{Dealers, DealtBy, Half, Session};
use hushtable_pir::dpf::{Key, Side};
use hushtable_pir::{Backend, CpuEngine, EngineSpec, TableShape};
use hushtable_table::Version;

/// A model that both servers of a pair hold.
pub struct Held {
    pub model: Model,
    pub version: Version,
    pub plan: Version,
    engines: Vec<CpuEngine>,
    /// What the servers dealt. A test may use it more than once.
    precomputes: [Precompute; 2],
}

/// Two of one architecture.
pub fn held() -> &'static [Held; 2] {
    static HELD: OnceLock<[Held; 2]> = OnceLock::new();
    HELD.get_or_init(|| [Held::new(1), Held::new(2)])
}

impl Held {
    fn new(seed: u8) -> Self {
        let features = [("user", 50, 1), ("item", 90, 1), ("seen", 90, 3)];
        let spec = described(3, &[8, 4], &[8, 1], &features);
        let model = Model::synthetic(spec, 12, 8, seed.into()).unwrap();
        let engines = model.network.tables().iter().map(|table| {
            let shape = TableShape::new(table.rows() as u64, table.row_bytes()).unwrap();
            CpuEngine::from_rows(shape, &table.bytes, &EngineSpec::default()).unwrap()
        });
        let engines = engines.collect();
        let mut dealers = Dealers::meet(model.network.outline()).unwrap();
        let precomputes = dealers.deal(1).unwrap().map(|mut dealt| dealt.remove(0));
        let (version, plan) = ([seed; 32].into(), [seed + 100; 32].into());
        Self { model, version, plan, engines, precomputes }
    }

    pub fn info(&self, half: Half, dealer: DealtBy) -> Info {
        let (dlrm, outline) = (self.model.dlrm.clone(), self.model.network.outline().clone());
        let terms = Terms { dlrm, dealer, outline };
        Info::new("clicks".into(), self.version, self.plan, half, terms, "test".into())
    }

    /// This server's half of the rows, of keys that are for it.
    fn rows(&self, side: Side, keys: &[Bytes]) -> Option<Vec<u8>> {
        let lookups = self.model.network.outline().lookups.iter().zip(&self.engines);
        let (mut keys, mut rows) = (keys.iter(), Vec::new());
        for (lookup, engine) in lookups {
            for key in keys.by_ref().take(lookup.rows) {
                let key = Key::parse(key).ok().filter(|key| key.params().side == side)?;
                let mut row = vec![0; engine.shape().row_bytes()];
                engine.answer(&[key], &mut row).unwrap();
                rows.extend(row);
            }
        }
        Some(rows)
    }

    /// What both halves of an inference come to: the sum of the shares.
    fn compute(&self, dealer: DealtBy, [left, right]: [&Part; 2]) -> u32 {
        let rows = [&left.rows[..], &right.rows[..]];
        let mut shares = [left.dealt.to_vec(), right.dealt.to_vec()];
        let [of_left, of_right] = shares.each_mut().map(std::mem::take);
        let network = &self.model.network;
        let session = match dealer {
            DealtBy::Client => {
                let common = left.common.to_vec();
                Session::start(network, &Dealt { common, left: of_left, right: of_right }, rows)
            }
            DealtBy::Servers => {
                let [left, right] = &self.precomputes;
                let dense = Shared { left: of_left, right: of_right };
                Session::start_precomputed(network, [left, right], &dense, rows)
            }
        };
        let shares = session.unwrap().finish().unwrap();
        let words = shares.map(|share| {
            let mut word = [0; 4];
            word[..share.len()].copy_from_slice(&share);
            u32::from_le_bytes(word)
        });
        words[0].wrapping_add(words[1])
    }

    fn share(&self, word: u32) -> Bytes {
        let outline = self.model.network.outline();
        let mask = u32::MAX >> (32 - outline.logit_bits);
        Bytes::copy_from_slice(&(word & mask).to_le_bytes()[..outline.logit_bytes()])
    }
}

/// One server's part of an inference.
struct Part {
    half: Half,
    state: usize,
    rows: Vec<u8>,
    common: Bytes,
    dealt: Bytes,
}

/// What one server is at a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Now {
    /// This half of one of the models.
    Serves(Half, usize),
    /// It is about to end.
    Drains,
    /// It is not there.
    Down,
}

/// Both servers, which have met, and all that they were ever sent.
pub struct Servers {
    pub dealer: DealtBy,
    parts: BTreeMap<[u8; 16], Part>,
    names: BTreeMap<[u8; 16], BTreeSet<&'static str>>,
    dealt: BTreeSet<Bytes>,
}

impl Servers {
    pub fn new(dealer: DealtBy) -> Self {
        let (parts, names, dealt) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        Self { dealer, parts, names, dealt }
    }

    /// Inferences that either server was sent a part of.
    pub fn names(&self) -> usize {
        self.names.len()
    }

    /// The server at `place` is sent a call; `refusal` is why it takes no part just then.
    pub fn reply(
        &mut self,
        now: Now,
        place: Place,
        call: Call,
        refusal: Option<CallFault>,
    ) -> Option<Vec<Answered<SharedInference>>> {
        if let Call::Predict { name, keys, common, dealt, .. } = &call {
            self.note(*name, place, keys, common, dealt);
        }
        Some(vec![match now {
            Now::Down => return None,
            Now::Drains => refused(CallFault::Draining, "it drains"),
            Now::Serves(half, state) => self.serve(half, state, call, refusal),
        }])
    }

    /// What was dealt is sent once, to one server: no two parts have anything in common but a name
    /// and what is for both.
    fn note(
        &mut self,
        name: [u8; 16],
        place: Place,
        keys: &[Bytes],
        common: &Bytes,
        dealt: &Bytes,
    ) {
        let places = self.names.entry(name).or_default();
        let is_first = places.is_empty();
        assert!(places.insert(place.name()), "{place} got two parts of one name");
        for bytes in keys.iter().chain([dealt]) {
            assert!(self.dealt.insert(bytes.clone()), "{place} got what was sent before");
        }
        // Correction words go to both, under one name.
        let is_new = common.is_empty() || self.dealt.insert(common.clone());
        assert!(is_new == is_first || common.is_empty(), "correction words of another inference");
    }

    fn serve(
        &mut self,
        half: Half,
        state: usize,
        call: Call,
        refusal: Option<CallFault>,
    ) -> Answered<SharedInference> {
        let held = &held()[state];
        let Call::Predict { plan, name, keys, common, dealt, .. } = call else {
            return Ok(Reply::Info(Box::new(held.info(half, self.dealer).announced())));
        };
        if let Some(fault) = refusal {
            return refused(fault, "not now");
        }
        if plan != held.plan {
            return refused(CallFault::Other, OTHER_PLAN);
        }
        let outline = held.model.network.outline();
        let checked = match self.dealer {
            DealtBy::Client => outline.check_part(half, &common, &dealt),
            DealtBy::Servers => outline.check_shared(half, &common, &dealt),
        };
        let side = if half == Half::Left { Side::Left } else { Side::Right };
        let Some(rows) = checked.ok().and_then(|()| held.rows(side, &keys)) else {
            return refused(CallFault::Other, "a bad part");
        };
        let part = Part { half, state, rows, common, dealt };
        // Who is first has a share that says nothing; the other one has what is left of the logit.
        let mask = u32::from_le_bytes([name[0], name[1], name[2], name[3]]);
        let share = match self.parts.remove(&name) {
            None => {
                self.parts.insert(name, part);
                mask
            }
            Some(first) if first.state == state && first.half != half => {
                let parts = match half {
                    Half::Left => [&part, &first],
                    Half::Right => [&first, &part],
                };
                held.compute(self.dealer, parts).wrapping_sub(mask)
            }
            Some(_) => return refused(pending(), "they lost each other"),
        };
        let (queue, took) = (Duration::from_micros(7), Duration::from_micros(9));
        Ok(Reply::Share(Share { plan: held.plan, share: held.share(share), queue, took }))
    }
}

pub fn pending() -> CallFault {
    CallFault::Pending { retry_after: Duration::from_millis(250) }
}

pub fn refused(fault: CallFault, error: &'static str) -> Answered<SharedInference> {
    Err(CallError { fault, error })
}

/// What a server says to what was dealt by another plan.
pub const OTHER_PLAN: &str = "another plan";
