//! Bootstrapping: levels restored (Cheon, Han, Kim, Kim and Song, EUROCRYPT 2018), for n real numbers
//! that repeat over the slots, slots to coefficients first.
//!
//! At the lowest levels, two or three maps make the numbers coefficients ([`maps`]). The ciphertext is
//! switched to a sparse secret and its modulus raised ([`sparse`]), which adds to each coefficient at
//! most 16 times q_0; the trace to X^(N/n) leaves the n coefficients in use. The maps back make them
//! slots, where the sine of period q_0 takes the multiples off: the cosine of an eighth of the angle, by
//! Chebyshev's interpolation, and three times cos 2x = 2 cos² x − 1 (Han and Ki, CT-RSA 2020,
//! section 3).
//!
//! Slots to coefficients costs least where few limbs are left; and the reduction's noise is then that of
//! slots and not of sums of coefficients. The sine is off by the cube of what a coefficient is of q_0.
//!
//! A number beyond the range that the bootstrap was made for comes back as another one, and no ciphertext
//! shows it: only in the clear and simulated is it refused. What comes out has an error that depends on the
//! numbers, the secret and the multiples of q_0; who passes a decryption on must flood it, as any other.

mod failure;
mod levels;
mod maps;
mod sparse;

use std::f64::consts::TAU;

pub use failure::reduction_failure_log2;
pub use levels::BootstrapLevels;
pub(super) use sparse::SparseKey;

use super::keys::SPARSE_WEIGHT;
use super::{
    Basis, Diagonals, Error, Evaluate, KeySpec, Parameters, Polynomial, Split, Work, chebyshev,
    rules,
};
use maps::Factor;

/// A bootstrap of one set for some number of slots: its maps, levels and keys.
#[derive(Clone, Debug)]
pub struct Bootstrap {
    parameters: Parameters,
    levels: BootstrapLevels,
    n: usize,
    range: f64,
    to_coefficients: Vec<Step>,
    to_slots: Vec<Step>,
    cosine: Polynomial,
}

/// One linear map.
#[derive(Clone, Debug)]
struct Step {
    map: Diagonals,
    split: Split,
    level: usize,
    scale: f64,
}

/// The maps of a bootstrap, prepared for one implementation.
pub struct PreparedBootstrap<T> {
    bootstrap: Bootstrap,
    to_coefficients: Vec<T>,
    to_slots: Vec<T>,
}

impl Bootstrap {
    /// For ciphertexts of `parameters`, made of `levels`, that hold `slots` numbers, a power of two of
    /// them, repeated over all slots and at most `range` in absolute value.
    ///
    /// # Errors
    /// [`Error::Bootstrap`] for parameters of other levels, for slots that are no power of two from 2 to
    /// all, and for a range that the reduction cannot hold.
    pub fn new(
        parameters: &Parameters,
        levels: BootstrapLevels,
        slots: usize,
        range: f64,
    ) -> Result<Self, Error> {
        let refused = |why: String| Err(Error::Bootstrap { why });
        let (found, top) = (parameters.levels(), levels.top());
        if levels.to_coefficients == 0 || levels.to_slots == 0 || levels.left == 0 {
            return refused("a map each way and a level that is left are the least".into());
        }
        if found != top {
            let name = parameters.name();
            return refused(format!(
                "the set {name:?} has {found} levels, expected {top}: {} for maps to coefficients, {} \
                 left, {DEPTH} for the reduction and {} for maps to slots",
                levels.to_coefficients, levels.left, levels.to_slots
            ));
        }
        let bits = |level: usize| match level {
            0 => levels.first,
            level if level <= levels.output() => levels.scale,
            _ => levels.reduction,
        };
        let own = |level: usize| parameters.modulus(level).bits();
        if let Some(level) = (0..=top).find(|&level| own(level) != bits(level)) {
            let (found, expected) = (own(level), bits(level));
            return refused(format!("level {level} has {found} bits, expected {expected}"));
        }
        let most = parameters.slots();
        if !slots.is_power_of_two() || !(2..=most).contains(&slots) {
            let nearest = slots.clamp(2, most).next_power_of_two();
            return refused(format!(
                "{slots} slots: a power of two from 2 to {most} is possible, {nearest} comes next"
            ));
        }
        // Up to a quarter of the period, the sine grows with its argument.
        let share = parameters.scale() / parameters.modulus(0).value() as f64;
        let range_max = 1.0 / (4.0 * share);
        // Written so that a range that is no number is refused.
        if !(range > 0.0 && range <= range_max) {
            return refused(format!(
                "numbers from -{range} to {range}: the reduction holds a positive range up to \
                 {range_max}"
            ));
        }
        let shape = (most, slots);
        let mut bootstrap = Self {
            parameters: parameters.clone(),
            levels,
            n: slots,
            range,
            to_coefficients: Vec::new(),
            to_slots: Vec::new(),
            cosine: Polynomial::new(Basis::Chebyshev, vec![1.0])?,
        };
        (bootstrap.cosine, _) = Self::reduction(bootstrap.width())?;
        let factors = maps::to_coefficients(shape, levels.to_coefficients)?;
        for (factor, level) in factors.into_iter().zip((1..=levels.to_coefficients).rev()) {
            // The scale stays what it is.
            let scale = parameters.modulus(level).value() as f64;
            bootstrap.to_coefficients.push(bootstrap.step(factor, level, scale));
        }
        let (from, to) =
            (bootstrap.raised_scale(), parameters.scale_at(bootstrap.levels.reduced_from()));
        let each = (to / from).powf(1.0 / levels.to_slots as f64);
        let factors = maps::to_slots(shape, levels.to_slots)?;
        for (factor, level) in factors.into_iter().zip((0..=top).rev()) {
            let scale = parameters.modulus(level).value() as f64 * each;
            bootstrap.to_slots.push(bootstrap.step(factor, level, scale));
        }
        Ok(bootstrap)
    }

    /// The map at its level, its rotations split so that they and their keys cost least.
    fn step(&self, Factor { map, distance }: Factor, level: usize, scale: f64) -> Step {
        let slots = self.parameters.slots();
        let cost = |split: &Split| {
            let (babies, giants) = split.rotations(map.steps());
            let key_bytes = Work::key_bytes(&self.parameters, level);
            // A cycle starts eight multiplications, or reads as many bytes.
            let work = self.work_of(&map, *split, level);
            let time = work.multiplications(self.parameters.degree()) + work.bytes;
            time + KEY_READS * (babies.len() + giants.len()) * key_bytes
        };
        let doublings = |from: usize, to: usize| {
            let steps = std::iter::successors(Some(from), |&steps| Some(2 * steps));
            steps.take_while(move |&steps| steps <= to)
        };
        let splits = doublings(distance, slots).flat_map(|baby_steps| {
            doublings(distance, baby_steps).flat_map(move |inner_steps| {
                let split = Split { inner_steps, ..Split::new(baby_steps) };
                [split, Split { is_chained: true, ..split }]
            })
        });
        let split = splits.min_by_key(cost).expect("the distance itself");
        Step { map, split, level, scale }
    }

    /// What reduces arguments of up to `width` periods: cos(2π · `width` · u / 8) on [−1, 1] as a
    /// polynomial of even degrees, and how many double angles come after it.
    ///
    /// # Errors
    /// [`Error::Value`] for a width that is no number.
    pub fn reduction(width: f64) -> Result<(Polynomial, usize), Error> {
        let angle = |u: f64| TAU * width * u / f64::from(1u32 << DOUBLE_ANGLES);
        let mut coefficients = chebyshev::interpolate(|u| angle(u).cos(), DEGREE);
        coefficients.iter_mut().skip(1).step_by(2).for_each(|odd| *odd = 0.0);
        let cosine = Polynomial::new(Basis::Chebyshev, coefficients)?;
        Ok((cosine, DOUBLE_ANGLES as usize))
    }

    /// What a coefficient of 1 is of q_0.
    fn share(&self) -> f64 {
        self.parameters.scale() / self.parameters.modulus(0).value() as f64
    }

    /// The largest argument of the cosine, in periods: the multiples of q_0, a number, and the quarter that
    /// makes the cosine a sine.
    fn width(&self) -> f64 {
        WRAPS_MAX + self.range * self.share() + 0.25
    }

    /// How often the trace adds each coefficient up.
    fn trace(&self) -> usize {
        2 * self.parameters.slots() / self.n
    }

    /// The scale after the raise and the trace, of the coefficients over q_0 and the width.
    fn raised_scale(&self) -> f64 {
        self.trace() as f64 * self.parameters.scale() / self.share() * self.width()
    }

    /// The parameters.
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// What the levels are for.
    pub fn levels(&self) -> BootstrapLevels {
        self.levels
    }

    /// Numbers that a ciphertext holds.
    pub fn slots(&self) -> usize {
        self.n
    }

    /// The least level of what is bootstrapped; from higher ones it is dropped to.
    pub fn input_level(&self) -> usize {
        self.levels.to_coefficients
    }

    /// The largest error of the sine, of a number of the range at its end.
    pub fn sine_error(&self) -> f64 {
        let angle = TAU * self.range * self.share();
        self.range * (1.0 - angle.sin() / angle)
    }

    /// The keys, each with the highest level that it is used at.
    pub fn key_spec(&self) -> KeySpec {
        let mut spec = KeySpec::default();
        let (top, reduced) = (self.levels.top(), self.levels.reduced_from());
        spec.products = Some(reduced);
        spec.conjugation = Some(reduced);
        spec.raise = Some(top);
        let doublings = 0..self.trace().trailing_zeros();
        spec.rotations.extend(doublings.map(|doubling| ((self.n / 2) << doubling, top)));
        for step in self.to_coefficients.iter().chain(&self.to_slots) {
            let (babies, giants) = step.split.rotations(step.map.steps());
            let steps = babies.into_iter().chain(giants);
            spec.rotations.extend(steps.map(|steps| (steps, step.level)));
        }
        spec
    }

    /// The maps, slots to coefficients first: each with how its rotations are split, and its level.
    pub fn maps(&self) -> impl Iterator<Item = (&Diagonals, Split, usize)> {
        let steps = self.to_coefficients.iter().chain(&self.to_slots);
        steps.map(|step| (&step.map, step.split, step.level))
    }

    /// Products of two ciphertexts that the reduction takes, squares among them.
    pub fn products(&self) -> usize {
        self.cosine.products() + DOUBLE_ANGLES as usize
    }

    /// What a map computes and reads.
    fn work_of(&self, map: &Diagonals, split: Split, level: usize) -> Work {
        let steps = split.steps(map.steps());
        let own = (steps.babies, steps.giants);
        let again = Work::cut(&self.parameters, level).times(steps.cuts.saturating_sub(1));
        Work::transform(&self.parameters, level, map.steps().len(), own).plus(again)
    }

    /// What it computes and reads: a floor under its time.
    pub fn work(&self) -> Work {
        let parameters = &self.parameters;
        let (top, reduced) = (self.levels.top(), self.levels.reduced_from());
        let of_map =
            |work: Work, step: &Step| work.plus(self.work_of(&step.map, step.split, step.level));
        let maps = self.to_coefficients.iter().chain(&self.to_slots).fold(Work::default(), of_map);
        // The switch back from the sparse secret is a rotation's, and so is conjugation.
        let switches = 1 + self.trace().trailing_zeros() as usize;
        // Each product is at least at the lowest level of the polynomial's.
        let lowest = self.levels.output() + DOUBLE_ANGLES as usize + 1;
        let angles = (0..DOUBLE_ANGLES as usize)
            .map(|angle| Work::multiply(parameters, self.levels.output() + 1 + angle));
        maps.plus(Work::rotate(parameters, top).times(switches))
            .plus(Work::rotate(parameters, reduced))
            .plus(Work::multiply(parameters, lowest).times(self.cosine.products()))
            .plus(angles.fold(Work::default(), Work::plus))
    }

    /// log2 of a bound on the probability that a coefficient leaves the reduction's range.
    pub fn failure_log2(&self) -> f64 {
        reduction_failure_log2(SPARSE_WEIGHT, WRAPS_MAX, self.n)
    }

    /// Encodes the maps.
    ///
    /// # Errors
    /// [`Error::Bootstrap`] for an evaluator of other parameters; as [`Evaluate::prepare`].
    pub fn prepare<E: Evaluate>(
        &self,
        evaluator: &E,
    ) -> Result<PreparedBootstrap<E::Transform>, Error> {
        // Another q_0 or scale would give other numbers and no error.
        if evaluator.parameters().spec() != self.parameters.spec() {
            let (found, expected) = (evaluator.parameters().name(), self.parameters.name());
            let why = format!(
                "it was made for the set {expected:?}, the evaluator is of the set {found:?}: make \
                 it for that one"
            );
            return Err(Error::Bootstrap { why });
        }
        let prepare =
            |step: &Step| evaluator.prepare(&step.map, step.split, step.level, step.scale);
        Ok(PreparedBootstrap {
            to_coefficients: self.to_coefficients.iter().map(prepare).collect::<Result<_, _>>()?,
            to_slots: self.to_slots.iter().map(prepare).collect::<Result<_, _>>()?,
            bootstrap: self.clone(),
        })
    }
}

impl<T> PreparedBootstrap<T> {
    /// What was prepared.
    pub fn bootstrap(&self) -> &Bootstrap {
        &self.bootstrap
    }

    /// The maps.
    pub fn transforms(&self) -> impl Iterator<Item = &T> {
        self.to_coefficients.iter().chain(&self.to_slots)
    }

    /// The numbers of `x` at the output's level and the scale of fresh ciphertexts.
    ///
    /// # Errors
    /// [`Error::Level`] where `x` is below the input's level, [`Error::Scale`] where it is not at the scale
    /// of fresh ciphertexts; [`Error::MissingKey`] and [`Error::MissingRotation`]; [`Error::Value`] where
    /// numbers are known and beyond the range.
    pub fn run<E: Evaluate<Transform = T>>(
        &self,
        evaluator: &mut E,
        x: &E::Ciphertext,
    ) -> Result<E::Ciphertext, Error> {
        let coefficients = self.coefficients(evaluator, x)?;
        let raised = self.raise(evaluator, &coefficients)?;
        let slots = self.slots(evaluator, &raised)?;
        self.reduce(evaluator, &slots)
    }

    /// The first stage: slots to coefficients, at level 0.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn coefficients<E: Evaluate<Transform = T>>(
        &self,
        evaluator: &mut E,
        x: &E::Ciphertext,
    ) -> Result<E::Ciphertext, Error> {
        let (found, expected) = (evaluator.level(x), self.bootstrap.input_level());
        if found < expected {
            return Err(Error::Level { operation: BOOTSTRAP, found, expected });
        }
        rules::same_scale(BOOTSTRAP, evaluator.scale(x), self.bootstrap.parameters.scale())?;
        let mut x = x.clone();
        evaluator.drop_to(&mut x, expected)?;
        apply(evaluator, &self.to_coefficients, x)
    }

    /// The second stage: the modulus raised and the trace taken, coefficients over q_0 and the reduction's
    /// width.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn raise<E: Evaluate<Transform = T>>(
        &self,
        evaluator: &mut E,
        x: &E::Ciphertext,
    ) -> Result<E::Ciphertext, Error> {
        let bootstrap = &self.bootstrap;
        let mut x = evaluator.raise(x, bootstrap.levels.top(), bootstrap.range)?;
        let trace = bootstrap.trace();
        evaluator.fold(&mut x, bootstrap.n / 2, trace)?;
        // By the scale that it has: the multiples of q_0 are whole at that one alone, and 2^-20 off, which
        // is accepted, they would be off by 2^-16 of q_0, which is more than numbers may lose.
        let share = evaluator.scale(&x) / bootstrap.parameters.modulus(0).value() as f64;
        evaluator.weigh(&mut x, share / (bootstrap.width() * trace as f64))?;
        Ok(x)
    }

    /// The third stage: coefficients to slots.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn slots<E: Evaluate<Transform = T>>(
        &self,
        evaluator: &mut E,
        x: &E::Ciphertext,
    ) -> Result<E::Ciphertext, Error> {
        let mut x = apply(evaluator, &self.to_slots, x.clone())?;
        let conjugate = evaluator.conjugate(&x)?;
        evaluator.add_assign(&mut x, &conjugate)?;
        evaluator.recycle(conjugate);
        Ok(x)
    }

    /// The last stage: of numbers over q_0 and the reduction's width, what they are modulo q_0.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn reduce<E: Evaluate<Transform = T>>(
        &self,
        evaluator: &mut E,
        x: &E::Ciphertext,
    ) -> Result<E::Ciphertext, Error> {
        let bootstrap = &self.bootstrap;
        let parameters = &bootstrap.parameters;
        let output = bootstrap.levels.output();
        let mut x = x.clone();
        evaluator.add_constant(&mut x, -0.25 / bootstrap.width())?;
        // The last scale is that of fresh ciphertexts once numbers are weighed; before a double angle it
        // is what its square, halved and rescaled, comes from.
        let sine = 1.0 / (TAU * bootstrap.share());
        let mut scale = parameters.scale() * sine;
        for angle in 1..=DOUBLE_ANGLES as usize {
            scale = (2.0 * scale * parameters.modulus(output + angle).value() as f64).sqrt();
        }
        let level = output + DOUBLE_ANGLES as usize;
        let mut cosine = bootstrap.cosine.evaluate(evaluator, &x, level, scale)?;
        evaluator.recycle(x);
        for _ in 0..DOUBLE_ANGLES {
            let mut double = evaluator.square_rescale(&cosine)?;
            evaluator.weigh(&mut double, 2.0)?;
            evaluator.add_constant(&mut double, -1.0)?;
            evaluator.recycle(std::mem::replace(&mut cosine, double));
        }
        evaluator.weigh(&mut cosine, sine)?;
        Ok(cosine)
    }
}

/// The maps one after the other, each rescaled.
fn apply<E: Evaluate>(
    evaluator: &mut E,
    maps: &[E::Transform],
    mut x: E::Ciphertext,
) -> Result<E::Ciphertext, Error> {
    for map in maps {
        let image = evaluator.transform_rescale(&[map], &[&x])?;
        evaluator.recycle(std::mem::replace(&mut x, image));
    }
    Ok(x)
}

/// Most multiples of q_0 that a raise adds to a coefficient: 33 products of at most a half each add up
/// to 16.5 at most.
const WRAPS_MAX: f64 = 16.0;

/// Double angles, and the degree of the cosine before them.
const DOUBLE_ANGLES: u32 = 3;
const DEGREE: usize = 30;

/// How often a byte of a key would have to be read to take as long as its upload is worth: a gigabyte,
/// a second of a core that reads 8 GB/s.
const KEY_READS: usize = 8;

/// Levels of the reduction: five of a polynomial of degree 30 and three of double angles.
const DEPTH: usize = 8;

const BOOTSTRAP: &str = "bootstrap";
