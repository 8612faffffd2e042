//! Both lookups, timed on the same embedding.

use std::time::Instant;

use hushtable_rlwe::ckks::{
    BootstrapLevels, Encoder, Encrypted, Error, Evaluate, EvaluationKeys, KeySpec, ModulusBits,
    ParameterSpec, Parameters, decrypt, encrypt, key_bytes,
};
use hushtable_rlwe::ring::{NoiseSource, Platform};
use hushtable_rlwe::{SecretKey, SecretKind, largest};
use serde::Serialize;

use super::{DigitTables, Indicator, Schedule, schedule};

/// What is looked up, and how.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Asked {
    /// Numbers of an embedding.
    pub dim: usize,
    /// How tokens become one-hot forms; its base is p.
    pub indicator: Indicator,
    /// Tokens of an index.
    pub digits: usize,
    /// Levels that the embedding has at the end, for what comes after a lookup.
    pub left: usize,
    /// Whether CodedHELUT is measured in a set that bootstraps as well.
    pub is_bootstrapped: bool,
    /// How often each way is measured.
    pub runs: usize,
}

/// One way's figures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// N.
    pub degree: usize,
    /// Levels of the chain.
    pub levels: usize,
    /// Bootstraps of a lookup.
    pub bootstraps: usize,
    /// Ciphertexts that the embedding comes out in.
    pub ciphertexts: usize,
    /// The server's time, the least of the runs.
    pub ms: f64,
    /// Evaluation keys, as they are sent.
    pub key_bytes: usize,
    /// Largest error of a number of the embedding.
    pub error: f64,
}

/// Both ways of one lookup.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Levels that CodedHELUT takes and leaves.
    pub levels_needed: usize,
    /// Levels of the longest chain of 128 bits without bootstraps.
    pub levels_max: usize,
    /// The largest base that such a chain carries with as many levels left.
    pub leveled_until_base: Option<usize>,
    /// The smallest base that bootstraps in a set that can.
    pub bootstraps_from_base: Option<usize>,
    /// One-hots from the client, and one linear map, in the smallest ring that carries that.
    pub linear: Figures,
    /// CodedHELUT without bootstraps, in the smallest ring that carries its levels at 128 bits; none
    /// where the longest chain does not.
    pub coded: Option<Beside>,
    /// CodedHELUT in a set that bootstraps, where it was asked for.
    pub bootstrapped: Option<Beside>,
}

/// CodedHELUT, and the linear map in the same ring.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Beside {
    /// CodedHELUT.
    #[serde(flatten)]
    pub coded: Figures,
    /// The linear map: in a set that bootstraps it is that set, else one of as many levels as it needs.
    pub linear: Figures,
}

/// Looks one embedding up both ways, on one thread; its rows are as wide as real ones.
///
/// # Errors
/// [`Error::Parameters`] for levels that no chain has; what the evaluator refuses.
///
/// # Panics
/// If there are no runs.
pub fn compare(asked: &Asked, platform: Platform) -> Result<Comparison, Error> {
    assert!(asked.runs > 0, "at least one run");
    let &Asked { indicator, left, .. } = asked;
    let lookup = Lookup::new(asked, platform);

    let longest = ("longest of 128 bits", levels_max(1 << LOG2_MAX));
    let is_leveled = match schedule::places(longest, None, indicator, left) {
        Ok(_) => true,
        Err(error) if !asked.is_bootstrapped => return Err(error),
        Err(_) => false,
    };
    // Refused before anything is measured.
    let refreshed = asked.is_bootstrapped.then(|| lookup.set()).transpose()?;
    let coded = if is_leveled { Some(lookup.leveled()?) } else { None };
    let bootstrapped = match refreshed {
        Some((levels, parameters)) => Some(lookup.bootstrapped(levels, &parameters)?),
        None => None,
    };
    let levels = bootstrap_levels(left);
    let is_carried = |base: &usize| {
        Indicator::of_base(*base)
            .is_some_and(|indicator| schedule::places(longest, None, indicator, left).is_ok())
    };
    let is_refreshed = |base: &usize| {
        let places =
            |indicator| schedule::places(("", levels.top()), Some(levels), indicator, left);
        Indicator::of_base(*base)
            .is_some_and(|indicator| places(indicator).is_ok_and(|places| !places.is_empty()))
    };
    Ok(Comparison {
        levels_needed: Schedule::levels(indicator, left),
        levels_max: longest.1,
        leveled_until_base: Indicator::BASES.into_iter().rev().find(is_carried),
        bootstraps_from_base: Indicator::BASES.into_iter().find(is_refreshed),
        linear: lookup.linear(&smallest(left + 1, LOG2_MIN, platform)?)?,
        coded,
        bootstrapped,
    })
}

/// log2 of the smallest and the largest ring.
const LOG2_MIN: u32 = 13;
const LOG2_MAX: u32 = 16;

/// The primes of a set without bootstraps.
const BITS: ModulusBits = ModulusBits { first: 50, level: 40, special: 50 };

/// Levels of the longest chain of 128 bits at a degree.
fn levels_max(degree: usize) -> usize {
    let all = SecretKind::Ternary.modulus_log2_max(degree);
    ((all - f64::from(BITS.first + BITS.special)) / f64::from(BITS.level)) as usize
}

/// The set of the smallest ring from 2^`log2_min` on that carries `levels` levels at 128 bits.
fn smallest(levels: usize, log2_min: u32, platform: Platform) -> Result<Parameters, Error> {
    let log2 = (log2_min..LOG2_MAX).find(|log2| levels <= levels_max(1 << log2));
    let degree = 1 << log2.unwrap_or(LOG2_MAX);
    Parameters::new(ParameterSpec::of_bits("lookup", degree, BITS, levels, 1)?, platform)
}

/// What is left of levels after a bootstrap decides between the two sets for few slots.
fn bootstrap_levels(left: usize) -> BootstrapLevels {
    // The product with a column takes one.
    match left < BootstrapLevels::R16.output() {
        true => BootstrapLevels::R16,
        false => BootstrapLevels::L16,
    }
}

/// A lookup that is measured.
pub(super) struct Lookup<'a> {
    asked: &'a Asked,
    tables: DigitTables,
    platform: Platform,
}

impl<'a> Lookup<'a> {
    pub(super) fn new(asked: &'a Asked, platform: Platform) -> Self {
        let (base, dim) = (asked.indicator.base(), asked.dim);
        let number = |index: usize| ((index * 7919 + 13) % 2001) as f64 / 1000.0 - 1.0;
        let rows = (0..base * asked.digits * dim).map(number).collect();
        Self { asked, tables: DigitTables::new(base, asked.digits, dim, rows), platform }
    }

    /// The set that bootstraps, once it is known that it carries the lookup.
    fn set(&self) -> Result<(BootstrapLevels, Parameters), Error> {
        let levels = bootstrap_levels(self.asked.left);
        let (name, Asked { indicator, left, .. }) = ("lookup_bootstrapped", *self.asked);
        schedule::places((name, levels.top()), Some(levels), indicator, left)?;
        let spec = levels.spec(name, 1 << LOG2_MAX)?;
        Ok((levels, Parameters::new(spec, self.platform)?))
    }

    fn leveled(&self) -> Result<Beside, Error> {
        let Asked { indicator, left, .. } = *self.asked;
        let parameters = smallest(Schedule::levels(indicator, left), LOG2_MIN, self.platform)?;
        let coded = self.coded(&parameters, None)?;
        let linear = smallest(left + 1, parameters.degree().ilog2(), self.platform)?;
        Ok(Beside { coded, linear: self.linear(&linear)? })
    }

    /// CodedHELUT in the set of `levels`, and the map beside it.
    pub(super) fn bootstrapped(
        &self,
        levels: BootstrapLevels,
        parameters: &Parameters,
    ) -> Result<Beside, Error> {
        let coded = self.coded(parameters, Some(levels))?;
        Ok(Beside { coded, linear: self.linear(parameters)? })
    }

    /// A token for each table.
    fn tokens(&self) -> Vec<usize> {
        let base = self.asked.indicator.base();
        (0..self.asked.digits).map(|table| (5 * table + 1) % base).collect()
    }

    fn coded(
        &self,
        parameters: &Parameters,
        levels: Option<BootstrapLevels>,
    ) -> Result<Figures, Error> {
        let (tables, Asked { indicator, left, .. }) = (&self.tables, *self.asked);
        let schedule = Schedule::new(parameters, levels, indicator, left)?;
        // A lookup that does not bootstrap needs no keys for it.
        let levels = levels.filter(|_| schedule.bootstraps() > 0);
        let bootstrap = levels.map(|levels| tables.bootstrap(parameters, levels)).transpose()?;
        let keys = tables.keys_coded(&schedule, bootstrap.as_ref());
        let setting = Setting::new(parameters, &keys)?;
        let repeated = tables.repeated(&self.tokens());
        let prepare = |evaluator: &Encrypted<'_>| {
            bootstrap.as_ref().map(|bootstrap| bootstrap.prepare(evaluator)).transpose()
        };
        let figures = self.time(&setting, &repeated, schedule.start(), prepare, |run| {
            let Run { evaluator, prepared, sent, read } = run;
            let started = Instant::now();
            let one_hot = tables.one_hot_coded(evaluator, &schedule, prepared.as_ref(), sent)?;
            let mut seconds = started.elapsed().as_secs_f64();
            for index in 0..self.asked.dim {
                // Encoded as it is needed: all of them may be gigabytes.
                let column = tables.column_coded(evaluator, &schedule, index)?;
                let started = Instant::now();
                let found = tables.number_coded(evaluator, &one_hot, &column)?;
                seconds += started.elapsed().as_secs_f64();
                read(&found, 1)?;
                evaluator.recycle(found);
            }
            Ok(seconds)
        })?;
        Ok(Figures { bootstraps: schedule.bootstraps(), ..figures })
    }

    fn linear(&self, parameters: &Parameters) -> Result<Figures, Error> {
        let (tables, level) = (&self.tables, self.asked.left + 1);
        let map = tables.map(parameters.slots())?;
        let (babies, giants) = tables.split().rotations(map.steps());
        let rotations = babies.into_iter().chain(giants).map(|steps| (steps, level)).collect();
        let setting = Setting::new(parameters, &KeySpec { rotations, ..KeySpec::default() })?;
        let one_hot = tables.one_hot(&self.tokens());
        let scale = parameters.modulus(level).value() as f64;
        let prepare =
            |evaluator: &Encrypted<'_>| evaluator.prepare(&map, tables.split(), level, scale);
        self.time(&setting, &one_hot, (level, parameters.scale()), prepare, |run| {
            let Run { evaluator, prepared, sent, read } = run;
            let started = Instant::now();
            let mut found = evaluator.transform(&[prepared], &[sent])?;
            evaluator.rescale(&mut found)?;
            let seconds = started.elapsed().as_secs_f64();
            read(&found, self.asked.dim)?;
            Ok(seconds)
        })
    }

    /// Encrypts `input`, has `lookup` do its work as often as was asked, which says what it took, and
    /// reads what it found the first time.
    fn time<T>(
        &self,
        setting: &Setting,
        input: &[f64],
        (level, scale): (usize, f64),
        prepare: impl FnOnce(&Encrypted<'_>) -> Result<T, Error>,
        lookup: impl Fn(Run<'_, '_, T>) -> Result<f64, Error>,
    ) -> Result<Figures, Error> {
        let Setting { parameters, encoder, secret, .. } = setting;
        let mut source = NoiseSource::from_os()?;
        let seed = source.seed();
        let plain = encoder.encode_real(input, level, scale)?;
        let sent = encrypt(parameters, secret, &plain, &seed, 0, &mut source)?;
        let mut evaluator = Encrypted::new(encoder, &setting.keys);
        let prepared = prepare(&evaluator)?;
        let expected = self.tables.lookup(&self.tokens());
        let (mut numbers, mut ciphertexts) = (Vec::new(), 0);
        let mut seconds = f64::INFINITY;
        for _ in 0..self.asked.runs {
            let mut read = |found: &Ciphertext, count: usize| {
                if numbers.len() < expected.len() {
                    let slots = encoder.decode_real(&decrypt(parameters, secret, found)?);
                    numbers.extend_from_slice(&slots[..count]);
                    ciphertexts += 1;
                }
                Ok(())
            };
            let run = Run {
                evaluator: &mut evaluator,
                prepared: &prepared,
                sent: &sent,
                read: &mut read,
            };
            seconds = seconds.min(lookup(run)?);
        }
        assert_eq!(numbers.len(), expected.len(), "a lookup reads all of an embedding");
        let errors = numbers.iter().zip(&expected).map(|(found, expected)| found - expected);
        Ok(Figures {
            degree: parameters.degree(),
            levels: parameters.levels(),
            bootstraps: 0,
            ciphertexts,
            ms: seconds * 1e3,
            key_bytes: setting.key_bytes,
            error: largest(errors),
        })
    }
}

/// What one run of a lookup works with.
struct Run<'a, 'b, T> {
    evaluator: &'a mut Encrypted<'b>,
    prepared: &'a T,
    sent: &'a Ciphertext,
    /// Takes a ciphertext of the embedding, and how many numbers of it there are in it.
    read: &'a mut dyn FnMut(&Ciphertext, usize) -> Result<(), Error>,
}

/// A client and its keys.
struct Setting {
    parameters: Parameters,
    encoder: Encoder,
    secret: SecretKey,
    keys: EvaluationKeys,
    key_bytes: usize,
}

impl Setting {
    fn new(parameters: &Parameters, spec: &KeySpec) -> Result<Self, Error> {
        let mut source = NoiseSource::from_os()?;
        let secret = SecretKey::draw(parameters.lattice().key_ring(), &mut source);
        let seed = source.seed();
        let keys = EvaluationKeys::generate(parameters, &secret, spec, &seed, &mut source)?;
        let key_bytes = key_bytes(parameters, spec)?;
        let (encoder, parameters) = (Encoder::new(parameters), parameters.clone());
        Ok(Self { parameters, encoder, secret, keys, key_bytes })
    }
}

type Ciphertext = hushtable_rlwe::ckks::Ciphertext;
