//! A shard's part of an answer as bytes.
//!
//! What subtrees a range of columns leaves is known from the range, so that a part has one length and carries
//! nothing but a head and, for each chunk, those subtrees' ciphertexts from left to right
//! (docs/onion-format.md). Every query's part has its own head: a shard's answers are told apart from another
//! split's or version's wherever they are joined.

use std::ops::Range;

use hushtable_rlwe::Ciphertext;
use hushtable_rlwe::pack::{pack_poly, poly_bytes, unpack_poly};
use hushtable_table::Version;

use super::engine::Won;
use super::keys::depth_in_words;
use super::tree::{self, Subtree};
use super::{Error, Geometry};

/// One shard's winners for a batch of queries.
pub struct Partial {
    pub(super) geometry: Geometry,
    pub(super) version: Version,
    pub(super) columns: Range<u64>,
    /// For each query, each chunk's subtrees.
    pub(super) won: Vec<Vec<Vec<Won>>>,
}

impl Partial {
    /// The columns that it covers.
    pub fn columns(&self) -> Range<u64> {
        self.columns.clone()
    }

    /// The table's version that it answers from.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Queries that it answers.
    pub fn queries(&self) -> usize {
        self.won.len()
    }

    /// What a shard without a row of the queries' would have answered: zeros.
    #[doc(hidden)]
    pub fn zeros(
        geometry: &Geometry,
        version: Version,
        columns: Range<u64>,
        queries: usize,
    ) -> Self {
        let ring = geometry.params().answer_ring();
        let zero = || Ciphertext { mask: ring.zero(), body: ring.zero() };
        let subtrees = || {
            let all = tree::subtrees(columns.clone(), geometry.games());
            all.map(|(level, index)| Subtree { level, index, ciphertext: zero() }).collect()
        };
        let chunks = || (0..geometry.chunks()).map(|_| subtrees()).collect();
        let won = (0..queries).map(|_| chunks()).collect();
        Self { geometry: geometry.clone(), version, columns, won }
    }

    /// The part as bytes: [`Geometry::partial_bytes`] for each query, in order.
    pub fn to_bytes(&self) -> Vec<u8> {
        let one = self.geometry.partial_bytes(&self.columns);
        let mut bytes = Vec::with_capacity(self.won.len() * one);
        let ring = self.geometry.params().answer_ring();
        for chunks in &self.won {
            bytes.extend(head(&self.geometry));
            bytes.extend(self.version.as_bytes());
            bytes.extend(self.columns.start.to_le_bytes());
            bytes.extend(self.columns.end.to_le_bytes());
            for subtrees in chunks {
                let places = subtrees.iter().map(|subtree| (subtree.level, subtree.index));
                let expected = tree::subtrees(self.columns.clone(), self.geometry.games());
                // Else what is read at the other end would be another table's rows, and look like noise.
                assert!(places.eq(expected), "a tournament ends with the largest subtrees");
                for subtree in subtrees {
                    pack_poly(ring, &subtree.ciphertext.mask, &mut bytes);
                    pack_poly(ring, &subtree.ciphertext.body, &mut bytes);
                }
            }
        }
        bytes
    }

    /// Reads a shard's part of the answers to `queries` queries of a table of this geometry.
    ///
    /// # Errors
    /// [`Error::PartialBytes`], [`Error::PartialParameters`], [`Error::ShardColumns`] for columns that the table
    /// does not have, or that are not the same in all answers; [`Error::ShardVersion`] for two versions;
    /// [`Error::Residue`].
    pub fn parse(geometry: &Geometry, queries: usize, bytes: &[u8]) -> Result<Self, Error> {
        let bad_length = |expected| Error::PartialBytes { expected, found: bytes.len() };
        let mut rest = bytes;
        let mut first: Option<(Version, Range<u64>)> = None;
        let mut won = Vec::new();
        for _ in 0..queries {
            let Some((head, body)) = rest.split_at_checked(PARTIAL_HEAD_BYTES) else {
                return Err(bad_length(queries.saturating_mul(PARTIAL_HEAD_BYTES)));
            };
            let (version, columns) = read_head(geometry, head)?;
            match &first {
                None => {
                    let expected = geometry.partial_bytes(&columns).saturating_mul(queries);
                    if bytes.len() != expected {
                        return Err(bad_length(expected));
                    }
                    // Its length is checked: so many there are.
                    won.reserve_exact(queries);
                    first = Some((version, columns.clone()));
                }
                Some((expected, _)) if *expected != version => {
                    return Err(Error::ShardVersion { expected: *expected, found: version });
                }
                Some((_, expected)) if *expected != columns => {
                    let expected = expected.clone();
                    return Err(Error::ShardColumns { expected, found: Some(columns) });
                }
                Some(_) => {}
            }
            rest = body;
            let mut chunks = Vec::with_capacity(geometry.chunks());
            for _ in 0..geometry.chunks() {
                chunks.push(read_subtrees(geometry, columns.clone(), &mut rest)?);
            }
            won.push(chunks);
        }
        match (first, rest) {
            (Some((version, columns)), []) => {
                Ok(Self { geometry: geometry.clone(), version, columns, won })
            }
            _ => Err(bad_length(0)),
        }
    }
}

impl Geometry {
    /// Bytes of a shard's part of one answer, for a shard of these columns.
    pub fn partial_bytes(&self, columns: &Range<u64>) -> usize {
        let subtrees = tree::subtrees(columns.clone(), self.games()).count();
        let ciphertext = 2 * poly_bytes(self.params().answer_ring());
        PARTIAL_HEAD_BYTES + self.chunks() * subtrees * ciphertext
    }
}

fn head(geometry: &Geometry) -> [u8; 4] {
    [FORMAT, geometry.set().id(), geometry.levels() as u8, geometry.games() as u8]
}

fn read_head(geometry: &Geometry, bytes: &[u8]) -> Result<(Version, Range<u64>), Error> {
    let (parameters, rest) = bytes.split_at(4);
    let expected = head(geometry);
    if parameters != expected {
        let words = |head: &[u8]| match head[0] {
            FORMAT => format!("{} and {} games", depth_in_words(head[1], head[2]), head[3]),
            other => format!("format {other}"),
        };
        let (expected, found) = (words(&expected), words(parameters));
        return Err(Error::PartialParameters { expected, found });
    }
    let (version, columns) = rest.split_at(32);
    let version = Version::from(<[u8; 32]>::try_from(version).expect("32 bytes"));
    let number =
        |at: usize| u64::from_le_bytes(columns[at..at + 8].try_into().expect("eight bytes"));
    let (columns, all) = (number(0)..number(8), geometry.columns());
    match columns.start <= columns.end && columns.end <= all {
        true => Ok((version, columns)),
        false => Err(Error::ShardColumns { expected: 0..all, found: Some(columns) }),
    }
}

fn read_subtrees(
    geometry: &Geometry,
    columns: Range<u64>,
    bytes: &mut &[u8],
) -> Result<Vec<Won>, Error> {
    let ring = geometry.params().answer_ring();
    let mut poly = || unpack_poly(WHAT, ring, bytes).map_err(Error::of_partial);
    tree::subtrees(columns, geometry.games())
        .map(|(level, index)| {
            let ciphertext = Ciphertext { mask: poly()?, body: poly()? };
            Ok(Subtree { level, index, ciphertext })
        })
        .collect()
}

/// Format, set, levels, games; the version; the first column, and where they end.
pub(super) const PARTIAL_HEAD_BYTES: usize = 4 + 32 + 2 * 8;
const FORMAT: u8 = 1;
const WHAT: &str = "partial answers";
