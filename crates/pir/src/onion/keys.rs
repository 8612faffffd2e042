//! A client's evaluation keys.

use std::fmt;

use hushtable_rlwe::SecretKey;
use hushtable_rlwe::bfv::{Parameters, Substitution, SwitchKey};
use hushtable_rlwe::ring::{NoiseSource, Poly, Seed};

use super::geometry::HEADER_BYTES;
use super::{Error, Geometry, ParameterSet};

/// BLAKE3 of a client's key bytes: what the keys are known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyId([u8; 32]);

impl KeyId {
    /// The id of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }

    /// The 32 bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl From<[u8; 32]> for KeyId {
    fn from(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for KeyId {
    /// 64 hexadecimal digits, lower case.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A client's evaluation keys as a server holds them, checked: one key for each level of the
/// expansion, and one from s² to s.
pub struct EvaluationKeys {
    set: ParameterSet,
    id: KeyId,
    /// What all masks come from.
    seed: Seed,
    levels: Vec<SwitchKey>,
    square: SwitchKey,
    memory_bytes: usize,
}

impl EvaluationKeys {
    /// Makes the keys of `secret` for tables of this geometry, on the wire: format, set, levels, a
    /// zero byte, the seed of all masks, then the bodies.
    pub(crate) fn generate(
        geometry: &Geometry,
        secret: &SecretKey,
        source: &mut NoiseSource,
    ) -> Vec<u8> {
        let (params, seed) = (geometry.params(), source.seed());
        let mut bytes = Vec::with_capacity(geometry.key_bytes());
        bytes.extend([FORMAT, geometry.set().id(), geometry.levels() as u8, 0]);
        bytes.extend(seed);
        let digits = params.key_switch().digits() as u64;
        for level in 0..geometry.levels() {
            let map = Substitution::of_level(params, level);
            let first = digits * u64::from(level);
            SwitchKey::of_automorphism(params, secret, map.map(), &seed, first, source)
                .pack(params, &mut bytes);
        }
        let first = digits * u64::from(geometry.levels());
        SwitchKey::of_square(params, secret, &seed, first, source).pack(params, &mut bytes);
        bytes
    }

    /// Reads keys for tables of this geometry.
    ///
    /// # Errors
    /// [`Error::KeyParameters`] for another set or depth, [`Error::KeyBytes`], [`Error::Residue`].
    pub fn parse(geometry: &Geometry, bytes: &[u8]) -> Result<Self, Error> {
        let expected = geometry.key_bytes();
        if bytes.len() < HEADER_BYTES {
            return Err(Error::KeyBytes { expected, found: bytes.len() });
        }
        let (header, mut bodies) = bytes.split_at(HEADER_BYTES);
        if let Some([expected, found]) = other_parameters(geometry, FORMAT, header) {
            return Err(Error::KeyParameters { expected, found });
        }
        if bytes.len() != expected {
            return Err(Error::KeyBytes { expected, found: bytes.len() });
        }
        let seed: Seed = header[4..].try_into().expect("32 bytes");
        let params: &Parameters = geometry.params();
        let digits = params.key_switch().digits() as u64;
        let mut key = |index: u32| {
            SwitchKey::unpack(params, &seed, digits * u64::from(index), &mut bodies)
                .map_err(Error::of_keys)
        };
        let levels = (0..geometry.levels()).map(&mut key).collect::<Result<Vec<_>, _>>()?;
        let square = key(geometry.levels())?;
        let keys = levels.iter().chain([&square]);
        let memory_bytes = size_of::<Self>() + keys.map(SwitchKey::memory_bytes).sum::<usize>();
        let (set, id) = (geometry.set(), KeyId::of(bytes));
        Ok(Self { set, id, seed, levels, square, memory_bytes })
    }

    /// Reads keys for tables of one of these geometries: they say themselves of which depth they
    /// are.
    ///
    /// # Errors
    /// As [`parse`](Self::parse); [`Error::KeyParameters`] for a depth that is none of theirs.
    pub fn parse_any(geometries: &[Geometry], bytes: &[u8]) -> Result<Self, Error> {
        let depth = bytes.get(2).copied().map(u32::from);
        let geometry = geometries.iter().find(|geometry| Some(geometry.levels()) == depth);
        // Of keys for none of them, any says what is expected instead.
        match geometry.or(geometries.first()) {
            Some(geometry) => Self::parse(geometry, bytes),
            None => Err(Error::KeyBytes { expected: HEADER_BYTES, found: bytes.len() }),
        }
    }

    /// Holds the keys against a geometry. The map of a level does not depend on how many levels
    /// follow, so tables of fewer levels are answered with the first of a deeper table's keys.
    ///
    /// # Errors
    /// [`Error::KeyParameters`] for another set, or for keys that are not deep enough.
    pub(crate) fn check(&self, geometry: &Geometry) -> Result<(), Error> {
        if self.set == geometry.set() && self.levels.len() >= geometry.levels() as usize {
            return Ok(());
        }
        Err(Error::KeyParameters {
            expected: format!("{} at depth {}", geometry.set().name(), geometry.levels()),
            found: format!("{} at depth {}", self.set.name(), self.levels.len()),
        })
    }

    /// The bytes that they were read from: what a front hands on to its shards.
    pub fn to_bytes(&self) -> Vec<u8> {
        let params = &self.set.parameters();
        let mut bytes = Vec::new();
        bytes.extend([FORMAT, self.set.id(), self.levels.len() as u8, 0]);
        bytes.extend(self.seed);
        self.levels.iter().chain([&self.square]).for_each(|key| key.pack(params, &mut bytes));
        bytes
    }

    /// What they are known by.
    pub fn id(&self) -> KeyId {
        self.id
    }

    /// The parameter set they are for.
    pub fn set(&self) -> ParameterSet {
        self.set
    }

    /// Bytes they take in memory.
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    pub(crate) fn levels(&self) -> &[SwitchKey] {
        &self.levels
    }

    pub(crate) fn square(&self) -> &SwitchKey {
        &self.square
    }
}

/// What a header (format, set, levels, a zero) should say for tables of this geometry and what it does
/// say, where these are not the same.
pub(super) fn other_parameters(
    geometry: &Geometry,
    format: u8,
    header: &[u8],
) -> Option<[String; 2]> {
    let expected = [format, geometry.set().id(), geometry.levels() as u8, 0];
    let words = |header: &[u8]| match header[0] == format {
        true => {
            let rest =
                if header[3] == 0 { String::new() } else { format!(", byte 3 = {}", header[3]) };
            format!("{}{rest}", depth_in_words(header[1], header[2]))
        }
        false => format!("format {}", header[0]),
    };
    let both = || match header[0] == format {
        true => [words(&expected), words(header)],
        false => [format!("format {format}"), words(header)],
    };
    (header[..4] != expected).then(both)
}

/// A header's set and levels.
pub(super) fn depth_in_words(set: u8, levels: u8) -> String {
    match ParameterSet::from_id(set) {
        Some(set) => format!("{} at depth {levels}", set.name()),
        None => format!("an unknown set {set} at depth {levels}"),
    }
}

impl fmt::Debug for EvaluationKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EvaluationKeys({}, {} levels)", self.set.name(), self.levels.len())
    }
}

/// A polynomial of evaluations, as queries carry one.
pub(crate) type Evaluated = Poly<hushtable_rlwe::ring::Evaluations>;

const FORMAT: u8 = 1;
