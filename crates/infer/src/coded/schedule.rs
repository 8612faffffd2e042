//! In which levels an indicator is computed, and where it is bootstrapped.

use hushtable_rlwe::ckks::{BootstrapLevels, Error, Parameters};

use super::Indicator;

/// What takes levels, one after the other; the last is the product with a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Square,
    Clean,
    Column,
}

/// What is done to a ciphertext of differences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// x² − 1.
    Differ,
    /// x².
    Square,
    /// x²(3 − 2x), by two levels.
    Clean,
    /// The scale of fresh ciphertexts, which is what is bootstrapped, by a level.
    Align,
    /// A bootstrap, and the level that what follows needs.
    Bootstrap { then: usize },
}

/// The steps of one indicator in one chain: with no bootstrap where the levels carry it, else with the
/// fewest, and of those where they cost the least precision. A bootstrap's error doubles with every
/// squaring behind it, and a cleaning squares it away.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    steps: Vec<Step>,
    start: (usize, f64),
    end: (usize, f64),
}

impl Schedule {
    /// Of `indicator` in the chain of `parameters`, which bootstraps where `levels` are given and are what
    /// it is made of. The embedding has `left` levels at the end.
    ///
    /// # Errors
    /// [`Error::Parameters`] for a chain that is too short, which says what would do.
    pub fn new(
        parameters: &Parameters,
        levels: Option<BootstrapLevels>,
        indicator: Indicator,
        left: usize,
    ) -> Result<Self, Error> {
        let operations = operations(indicator);
        let cuts = places((parameters.name(), parameters.levels()), levels, indicator, left)?;
        let ends = [&cuts[..], &[operations.len()]].concat();
        let parts: Vec<_> =
            [0].iter().chain(&cuts).zip(ends).map(|(&a, b)| &operations[a..b]).collect();
        let (first, last) = (parts[0], parts.len() - 1);
        let base = |part: usize| match levels {
            Some(levels) if part < last => levels.to_coefficients,
            _ => left,
        };
        let level = base(0) + depth(first);
        let start = (level, scale_before(parameters, first, base(0)));
        let mut end = (level, start.1);
        let mut steps = Vec::new();
        for (index, part) in parts.into_iter().enumerate() {
            let is_aligned = index > 0 && index < last;
            if index > 0 {
                end = (base(index) + usize::from(is_aligned) + depth(part), parameters.scale());
                steps.push(Step::Bootstrap { then: end.0 });
            }
            for &operation in part {
                match operation {
                    Operation::Square if steps.is_empty() => steps.push(Step::Differ),
                    Operation::Square => steps.push(Step::Square),
                    Operation::Clean => steps.push(Step::Clean),
                    // Each column is multiplied with by itself.
                    Operation::Column => continue,
                }
                end = after(parameters, operation, end);
            }
            if is_aligned {
                steps.push(Step::Align);
            }
        }
        Ok(Self { steps, start, end })
    }

    /// Levels that a chain needs to carry the lookup without a bootstrap.
    pub fn levels(indicator: Indicator, left: usize) -> usize {
        depth(&operations(indicator)).saturating_add(left)
    }

    pub(super) fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// How many bootstraps there are.
    pub fn bootstraps(&self) -> usize {
        self.steps.iter().filter(|step| matches!(step, Step::Bootstrap { .. })).count()
    }

    /// Level and scale of the ciphertext that the client sends.
    pub fn start(&self) -> (usize, f64) {
        self.start
    }

    /// Level and scale of the one-hot form.
    pub fn end(&self) -> (usize, f64) {
        self.end
    }
}

fn operations(indicator: Indicator) -> Vec<Operation> {
    let squares = std::iter::repeat_n(Operation::Square, 1 + indicator.squarings());
    let cleanings = std::iter::repeat_n(Operation::Clean, indicator.cleanings());
    squares.chain(cleanings).chain([Operation::Column]).collect()
}

/// Levels that operations take.
fn depth(operations: &[Operation]) -> usize {
    let of = |operation: &Operation| if *operation == Operation::Clean { 2 } else { 1 };
    operations.iter().map(of).sum()
}

/// Level and scale after an operation.
fn after(
    parameters: &Parameters,
    operation: Operation,
    (level, scale): (usize, f64),
) -> (usize, f64) {
    let prime = |level: usize| parameters.modulus(level).value() as f64;
    match operation {
        Operation::Square => (level - 1, scale * scale / prime(level)),
        Operation::Clean => (level - 2, scale * scale / prime(level) * scale / prime(level - 1)),
        Operation::Column => (level - 1, scale),
    }
}

/// The scale before `operations` for which that of fresh ciphertexts comes out, at level `end`.
fn scale_before(parameters: &Parameters, operations: &[Operation], end: usize) -> f64 {
    let prime = |level: usize| parameters.modulus(level).value() as f64;
    let before = |(level, scale): (usize, f64), operation: &Operation| match operation {
        Operation::Square => (level + 1, (scale * prime(level + 1)).sqrt()),
        Operation::Clean => (level + 2, (scale * prime(level + 1) * prime(level + 2)).cbrt()),
        Operation::Column => (level + 1, scale),
    };
    operations.iter().rev().fold((end, parameters.scale()), before).1
}

/// How far values near 0 and 1 are off after `operations`, roughly: to compare places by.
fn error_after(operations: &[Operation], error: f64) -> f64 {
    let after = |error: f64, operation: &Operation| match operation {
        Operation::Square => 2.0 * error + ROUNDING,
        Operation::Clean => 3.0 * error * error + ROUNDING,
        Operation::Column => error,
    };
    operations.iter().fold(error, after)
}

/// The error at some place, and before which operations it is bootstrapped; none where it cannot be.
type Way = Option<(f64, Vec<usize>)>;

/// Before which of the operations it is bootstrapped; none where no places do.
fn cuts(
    operations: &[Operation],
    top: usize,
    levels: Option<BootstrapLevels>,
    left: usize,
) -> Option<Vec<usize>> {
    let count = operations.len();
    if depth(operations).saturating_add(left) <= top {
        return Some(Vec::new());
    }
    let levels = levels?;
    let (input, output) = (levels.to_coefficients, levels.output());
    let is_carried = |from: usize, to: usize, most: Option<usize>| {
        most.is_some_and(|most| depth(&operations[from..to]) <= most)
    };
    // The best way to each place, with one bootstrap more every time.
    let better = |a: Way, b: Way| match (a, b) {
        (Some(a), Some(b)) => Some(if b.0 < a.0 { b } else { a }),
        (a, b) => a.or(b),
    };
    let mut ways: Vec<Way> = vec![None; count];
    for (to, way) in ways.iter_mut().enumerate().skip(1) {
        if is_carried(0, to, top.checked_sub(input)) {
            *way = Some((error_after(&operations[..to], ROUNDING) + BOOTSTRAP, vec![to]));
        }
    }
    while ways.iter().any(Option::is_some) {
        let mut best = None;
        let mut next: Vec<Way> = vec![None; count];
        for (from, way) in ways.iter().enumerate() {
            let Some((error, cuts)) = way else { continue };
            if is_carried(from, count, output.checked_sub(left)) {
                let error = error_after(&operations[from..], *error);
                best = better(best, Some((error, cuts.clone())));
            }
            // A level more aligns the scale.
            for to in from + 1..count {
                if is_carried(from, to, output.checked_sub(input + 1)) {
                    let error = error_after(&operations[from..to], *error) + BOOTSTRAP;
                    let there = next[to].take();
                    next[to] = better(there, Some((error, [&cuts[..], &[to]].concat())));
                }
            }
        }
        if let Some((_, cuts)) = best {
            return Some(cuts);
        }
        ways = next;
    }
    None
}

/// Before which of the operations an indicator is bootstrapped in a chain of a name and so many levels.
///
/// # Errors
/// [`Error::Parameters`] for a chain that is too short.
pub(super) fn places(
    (name, top): (&str, usize),
    levels: Option<BootstrapLevels>,
    indicator: Indicator,
    left: usize,
) -> Result<Vec<usize>, Error> {
    let operations = operations(indicator);
    if let Some(cuts) = cuts(&operations, top, levels, left) {
        return Ok(cuts);
    }
    let most =
        (0..left.min(top)).rev().find(|&left| cuts(&operations, top, levels, left).is_some());
    let base = Indicator::BASES.into_iter().rev().find(|&base| {
        base < indicator.base()
            && Indicator::of_base(base).is_some_and(|smaller| {
                cuts(&self::operations(smaller), top, levels, left).is_some()
            })
    });
    let mut ways = Vec::new();
    ways.extend(most.map(|most| format!("leave at most {most}")));
    ways.extend(base.map(|base| format!("take tables of {base} rows")));
    ways.push(match levels {
        None => "take a set that bootstraps".into(),
        Some(_) => "take a set with more levels left behind a bootstrap".into(),
    });
    let bootstraps = if levels.is_some() { ", with bootstraps too" } else { "" };
    let why = format!(
        "its {top} levels are too few{bootstraps}: a lookup in tables of {} rows takes {} and \
         leaves {left}: {}",
        indicator.base(),
        depth(&operations),
        ways.join(", or ")
    );
    Err(Error::Parameters { name: name.to_owned(), why })
}

/// Errors of an operation and of a bootstrap, to compare places by.
const ROUNDING: f64 = 1.0 / (1 << 24) as f64;
const BOOTSTRAP: f64 = 1.0 / (1 << 14) as f64;
