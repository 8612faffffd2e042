//! A table of measured costs, and prices by it.

use hushtable_rlwe::ckks::Work;
use serde::{Deserialize, Serialize};

use super::super::error::Error;
use super::super::plan::{Plan, Turn};
use super::super::turn::Map;
use super::kinds::Kind;
use super::operations::{MapShape, operations};

/// Milliseconds of one thread, for ciphertexts of one size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(clippy::exhaustive_structs, reason = "an entry of a data file")]
pub struct Entry {
    /// N.
    pub degree: usize,
    /// Limbs: the level and one.
    pub limbs: usize,
    /// Primes of P.
    pub special: usize,
    /// One rotation.
    pub rotate_ms: f64,
    /// A mask's digits cut, for many rotations.
    pub cut_ms: f64,
    /// One of many rotations of one ciphertext, digits cut already.
    pub hoisted_ms: f64,
    /// One rotation of a map's sum.
    pub giant_ms: f64,
    /// The divisions that a map ends with.
    pub close_ms: f64,
    /// A product of two ciphertexts, relinearised.
    pub multiply_ms: f64,
    /// A product of two ciphertexts, relinearised and rescaled at once.
    pub multiply_rescale_ms: f64,
    /// A rescaling by itself.
    pub rescale_ms: f64,
    /// One diagonal of a prepared map, from memory.
    pub diagonal_ms: f64,
    /// One diagonal that repeats, and is small for that.
    pub repeated_ms: f64,
    /// A product with a number.
    pub constant_ms: f64,
    /// A sum of two ciphertexts.
    pub add_ms: f64,
    /// A copy.
    pub copy_ms: f64,
    /// A client's ciphertext read from its bytes, whose mask is drawn.
    pub read_ms: f64,
}

impl Entry {
    /// Milliseconds of what was measured for `kind`: of that kind, or of the one that [`measured`] names.
    fn ms(&self, kind: Kind) -> f64 {
        match kind {
            Kind::Rotate | Kind::Raise => self.rotate_ms,
            Kind::Cut => self.cut_ms,
            Kind::Hoisted => self.hoisted_ms,
            Kind::Giant => self.giant_ms,
            Kind::Close | Kind::Divide => self.close_ms,
            Kind::Multiply => self.multiply_ms,
            Kind::MultiplyRescale => self.multiply_rescale_ms,
            Kind::Rescale => self.rescale_ms,
            Kind::Diagonal | Kind::DiagonalOverP => self.diagonal_ms,
            Kind::Repeated | Kind::RepeatedOverP => self.repeated_ms,
            Kind::Constant => self.constant_ms,
            Kind::Add | Kind::AddPart => self.add_ms,
            Kind::Copy => self.copy_ms,
            Kind::Read => self.read_ms,
        }
    }
}

/// The kind that an entry has a number of, where `kind` itself is priced by another's.
fn measured(kind: Kind) -> Kind {
    match kind {
        Kind::Raise => Kind::Rotate,
        Kind::Divide => Kind::Close,
        Kind::DiagonalOverP => Kind::Diagonal,
        Kind::RepeatedOverP => Kind::Repeated,
        Kind::AddPart => Kind::Add,
        _ => kind,
    }
}

/// Operations and their costs on one machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(clippy::exhaustive_structs, reason = "a data file")]
pub struct CostTable {
    /// [`FORMAT`]; tables of format 1 had no such field.
    pub format: u32,
    /// Where it was measured.
    pub machine: String,
    /// What was measured.
    pub entries: Vec<Entry>,
}

/// The format of tables that is read and written.
pub const FORMAT: u32 = 2;

/// A table's format, whatever else is in it.
#[derive(Deserialize)]
struct Version {
    /// Tables of the first format did not say.
    #[serde(default = "first")]
    format: u32,
}

fn first() -> u32 {
    1
}

impl CostTable {
    /// The table that was measured where this was developed.
    ///
    /// # Errors
    /// [`Error::Plan`] never, but for a file that was edited.
    pub fn shipped() -> Result<Self, Error> {
        Self::parse(include_str!("../data/cost.json"))
    }

    /// Reads a table.
    ///
    /// # Errors
    /// [`Error::Plan`] for a table of another format, and for text that is no table.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let wrong = |why: String| Error::Plan { why: format!("the cost table: {why}") };
        // The format first: what a table of another one says may not be what it means here.
        let Version { format } =
            serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
        if format != FORMAT {
            return Err(wrong(format!(
                "format {format}, this build reads {FORMAT}, which prices more operations: measure it \
                 again with `infer_speed calibrate MACHINE`"
            )));
        }
        let table: Self = serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
        if table.entries.is_empty() {
            return Err(wrong("no entries, expected one or more".into()));
        }
        for (index, entry) in table.entries.iter().enumerate() {
            let Entry { degree, limbs, special, .. } = *entry;
            let is_size = (2..=DEGREE_MAX).contains(&degree)
                && degree.is_power_of_two()
                && (2..=LIMBS_MAX).contains(&limbs)
                && (1..=LIMBS_MAX).contains(&special);
            if !is_size {
                return Err(wrong(format!(
                    "entry {index} is of degree {degree}, {limbs} limbs and {special} primes of P, \
                     expected a power of two, two limbs or more and one prime or more"
                )));
            }
            let is_number = |value: f64| value.is_finite() && value > 0.0;
            if let Some(kind) = Kind::ALL.into_iter().find(|&kind| !is_number(entry.ms(kind))) {
                return Err(wrong(format!(
                    "entry {index} has {} ms for {kind:?}, expected a positive number",
                    entry.ms(kind)
                )));
            }
        }
        Ok(table)
    }

    /// Milliseconds of one operation: what a unit of its work takes between the two nearest numbers of
    /// limbs that were measured, or at the nearest where all are larger or smaller, at the nearest degree
    /// and number of P's primes.
    pub fn cost_ms(&self, kind: Kind, degree: usize, limbs: usize, special: usize) -> f64 {
        let log2 = |value: usize| (value as f64).log2();
        let apart = |a: usize, b: usize| (log2(a) - log2(b)).abs();
        let degrees = self.entries.iter().map(|entry| entry.degree);
        let nearest = degrees.min_by(|&a, &b| apart(a, degree).total_cmp(&apart(b, degree)));
        let own = || self.entries.iter().filter(|entry| Some(entry.degree) == nearest);
        // Of entries with as many limbs, that with the nearest number of P's primes.
        let nearer = |a: &&Entry, b: &&Entry| {
            apart(a.special, special).total_cmp(&apart(b.special, special))
        };
        let below = own().filter(|entry| entry.limbs <= limbs).map(|entry| entry.limbs).max();
        let above = own().filter(|entry| entry.limbs >= limbs).map(|entry| entry.limbs).min();
        let unit_ms = |of: usize| {
            let found = own().filter(|entry| entry.limbs == of).min_by(nearer)?;
            let work = work(measured(kind), found.degree, found.limbs, found.special);
            Some(found.ms(kind) / work)
        };
        let unit = match (below, above) {
            (Some(below), Some(above)) if below < above => {
                let share = (log2(limbs) - log2(below)) / (log2(above) - log2(below));
                let ends = unit_ms(below).zip(unit_ms(above));
                ends.map(|(low, high)| low + share * (high - low))
            }
            (below, above) => below.or(above).and_then(unit_ms),
        };
        unit.unwrap_or(0.0) * work(kind, degree, limbs, special)
    }

    /// Milliseconds of `count` operations at `level` of a set of `degree` with `special` primes in P.
    pub(in super::super) fn operations_ms(
        &self,
        (degree, special): (usize, usize),
        operations: impl IntoIterator<Item = (Kind, usize, usize)>,
    ) -> f64 {
        let ms = |(kind, level, count): (Kind, usize, usize)| match count {
            0 => 0.0,
            count => count as f64 * self.cost_ms(kind, degree, level + 1, special),
        };
        operations.into_iter().map(ms).sum()
    }

    /// Milliseconds of the maps of `plan`, which splits decide.
    pub(in super::super) fn maps_ms(&self, plan: &Plan) -> f64 {
        let maps = plan.maps();
        maps.iter().map(|map| self.map_ms(plan, map, &map.turn)).sum()
    }

    /// Milliseconds of one map of `plan`, split as `turn` is.
    pub(in super::super) fn map_ms(&self, plan: &Plan, map: &Map, turn: &Turn) -> f64 {
        self.operations_ms(size(plan), MapShape::of(plan, map).operations(turn))
    }

    /// Milliseconds that a server takes for one query of `plan`.
    pub fn server_ms(&self, plan: &Plan) -> f64 {
        let all = operations(plan).into_iter();
        self.operations_ms(size(plan), all.map(|own| (own.kind, own.level, own.count)))
    }
}

/// Degree and primes of P.
fn size(plan: &Plan) -> (usize, usize) {
    (plan.parameters.degree, plan.parameters.special_moduli.len())
}

/// What an operation computes and reads, in units that are the same for one kind at all sizes: for most
/// the multiplications of their transforms and products, and bytes of keys.
fn work(kind: Kind, degree: usize, limbs: usize, special: usize) -> f64 {
    let special = special.max(1);
    let (all, digits) = (limbs + special, limbs.div_ceil(special));
    let extend = Work::extend(limbs, special);
    let rows = Work::rows(limbs, special, degree, WIDTH_BYTES * all);
    // A level has a prime to be rescaled by; what is at level 0 has none.
    let divide = |rescaled: usize| Work::divide(limbs, special, rescaled.min(limbs - 1)).times(2);
    let switch = extend.plus(rows);
    let own = match kind {
        Kind::Rotate | Kind::Raise => switch.plus(divide(0)),
        Kind::Cut => extend,
        Kind::Giant => switch,
        Kind::Close => divide(1),
        Kind::Divide => Work::divide(limbs, special, 0),
        Kind::Multiply => Work::tensor(limbs).plus(switch).plus(divide(0)),
        Kind::MultiplyRescale => Work::tensor(limbs).plus(switch).plus(divide(1)),
        Kind::Rescale => Work::rescale(limbs - 1),
        // Reading a key's rows, and shuffling what comes of them, which takes as much as a few rows.
        Kind::Hoisted => return (degree * all) as f64 * (SHUFFLE_ROWS + digits as f64),
        Kind::DiagonalOverP | Kind::RepeatedOverP => return (degree * all) as f64,
        Kind::Diagonal | Kind::Repeated | Kind::Constant | Kind::Add | Kind::Copy | Kind::Read => {
            return (degree * limbs) as f64;
        }
        // One of two polynomials.
        Kind::AddPart => return (degree * limbs) as f64 / 2.0,
    };
    // A cycle starts eight multiplications, or reads as many bytes.
    (own.multiplications(degree) + own.bytes) as f64
}

/// Bytes of a number modulo one prime, about.
const WIDTH_BYTES: usize = 6;
/// Rows of a key whose products take what shuffling their sums does.
const SHUFFLE_ROWS: f64 = 4.5;
/// The largest sizes that a table may be of.
const DEGREE_MAX: usize = 1 << 20;
const LIMBS_MAX: usize = 1 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    /// A table in which an entry's kinds all take `ms` of its limbs.
    fn table(entries: &[(usize, usize, usize)], ms: impl Fn(usize) -> f64) -> CostTable {
        let entry = |&(degree, limbs, special): &(usize, usize, usize)| {
            let ms = ms(limbs);
            Entry {
                degree,
                limbs,
                special,
                rotate_ms: ms,
                cut_ms: ms,
                hoisted_ms: ms,
                giant_ms: ms,
                close_ms: ms,
                multiply_ms: ms,
                multiply_rescale_ms: ms,
                rescale_ms: ms,
                diagonal_ms: ms,
                repeated_ms: ms,
                constant_ms: ms,
                add_ms: ms,
                copy_ms: ms,
                read_ms: ms,
            }
        };
        let entries = entries.iter().map(entry).collect();
        CostTable { format: FORMAT, machine: "test".into(), entries }
    }

    #[test]
    fn what_was_measured_is_said_and_what_lies_between_is_between() {
        let costs = table(&[(8192, 4, 1), (8192, 16, 1), (16_384, 4, 1)], |limbs| limbs as f64);
        for kind in Kind::ALL.into_iter().filter(|&kind| kind == measured(kind)) {
            for limbs in [4, 16] {
                let found = costs.cost_ms(kind, 8192, limbs, 1);
                assert!((found / limbs as f64 - 1.0).abs() < 1e-12, "{kind:?} {limbs} {found}");
            }
        }
        // A unit of work takes as much at both ends, and so between them.
        for (limbs, expected) in [(8, 8.0), (2, 2.0), (32, 32.0)] {
            let found = costs.cost_ms(Kind::Add, 8192, limbs, 1);
            assert!((found - expected).abs() < 1e-12, "{limbs} {found}");
        }
        // Another degree is priced by the work of the nearest, and half a ciphertext as half of it.
        let (half, part) = (costs.cost_ms(Kind::Add, 4096, 4, 1), Kind::AddPart);
        assert!((half - 2.0).abs() < 1e-12, "{half}");
        assert!((costs.cost_ms(part, 8192, 4, 1) - 2.0).abs() < 1e-12);
        let over_p = costs.cost_ms(Kind::DiagonalOverP, 8192, 4, 1);
        assert!((over_p - 5.0).abs() < 1e-12, "{over_p}");
        // Where a unit takes twice as much at one end, it takes half more in the middle.
        let costs = table(&[(8192, 4, 1), (8192, 16, 1)], |limbs| (limbs * limbs) as f64);
        let found = costs.cost_ms(Kind::Copy, 8192, 8, 1);
        assert!((found - 8.0 * 10.0).abs() < 1e-9, "{found}");
    }

    #[test]
    fn of_as_many_limbs_the_entry_with_the_nearest_special_primes_counts() {
        let mut costs = table(&[(8192, 8, 1), (8192, 8, 4)], |_| 1.0);
        costs.entries[1].rescale_ms = 3.0;
        for (special, expected) in [(1, 1.0), (3, 3.0), (9, 3.0)] {
            assert_eq!(costs.cost_ms(Kind::Rescale, 8192, 8, special), expected, "{special}");
        }
    }

    #[test]
    fn shipped_costs_grow_with_limbs() {
        let costs = CostTable::shipped().unwrap();
        for (degree, special, most) in
            [(8192, 1, 4), (16_384, 2, 10), (32_768, 2, 14), (65_536, 6, 30)]
        {
            // What is priced by another kind's number grows as that does, but for P's primes.
            for kind in Kind::ALL.into_iter().filter(|&kind| kind == measured(kind)) {
                // As many digits, or more.
                for limbs in 2..most {
                    let [less, more] =
                        [limbs, limbs + 1].map(|limbs| costs.cost_ms(kind, degree, limbs, special));
                    assert!(less > 0.0 && less < more, "{kind:?} {degree} {limbs}: {less} {more}");
                }
            }
        }
    }

    #[test]
    fn tables_of_other_formats_and_tables_that_are_none_are_refused_by_what_is_wrong() {
        let good = serde_json::to_value(table(&[(8192, 4, 1)], |_| 1.0)).unwrap();
        let parse = |value: &serde_json::Value| CostTable::parse(&value.to_string());
        assert_eq!(parse(&good).unwrap().entries.len(), 1);
        let first = r#"{"machine": "m", "entries": [{"degree": 4096, "limbs": 2, "special": 1,
            "rotate_ms": 1, "hoisted_ms": 1, "multiply_ms": 1, "diagonal_ms": 1}]}"#;
        let refused = CostTable::parse(first).unwrap_err().to_string();
        assert!(refused.contains("format 1, this build reads 2"), "{refused}");
        assert!(refused.contains("calibrate"), "{refused}");
        let changed = |change: &dyn Fn(&mut serde_json::Value)| {
            let mut value = good.clone();
            change(&mut value);
            parse(&value).unwrap_err().to_string()
        };
        let entry = |name: &'static str, number: serde_json::Value| {
            move |value: &mut serde_json::Value| value["entries"][0][name] = number.clone()
        };
        for (said, refused) in [
            ("format 3", changed(&|value| value["format"] = 3.into())),
            ("no entries", changed(&|value| value["entries"] = serde_json::json!([]))),
            ("0 ms for Giant", changed(&entry("giant_ms", 0.into()))),
            ("-1 ms for Read", changed(&entry("read_ms", (-1).into()))),
            ("degree 100", changed(&entry("degree", 100.into()))),
            ("0 limbs", changed(&entry("limbs", 0.into()))),
            ("0 primes of P", changed(&entry("special", 0.into()))),
            ("unknown field", changed(&entry("other_ms", 1.into()))),
            ("invalid type", changed(&entry("add_ms", "fast".into()))),
            ("missing field", {
                changed(&|value| {
                    value["entries"][0].as_object_mut().unwrap().remove("cut_ms");
                })
            }),
        ] {
            assert!(refused.contains(said) && refused.contains("cost table"), "{said}: {refused}");
        }
        assert!(CostTable::parse("nothing").is_err());
    }
}
