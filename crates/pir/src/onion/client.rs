//! The client's half: ids to queries, responses to rows.

use std::sync::Arc;

use hushtable_rlwe::bfv::response;
use hushtable_rlwe::ring::NoiseSource;
use hushtable_rlwe::{Error as RlweError, SecretKey};
use hushtable_table::Version;

use super::geometry::Place;
use super::query::{Query, is_equal};
use super::{Error, EvaluationKeys, Geometry, KeyId, Mask};

/// A client of one version of one table, with its secret.
pub struct Client {
    geometry: Geometry,
    version: Version,
    mask: Mask,
    secret: Arc<SecretKey>,
    /// The depth of the keys: the geometry's, or a deeper table's that shares them.
    depth: u32,
    keys: Arc<[u8]>,
    key_id: KeyId,
}

/// A lookup that was sent: what is needed to read its responses.
pub struct Pending {
    /// Where each row is.
    places: Vec<Place>,
    queries: usize,
}

impl Client {
    /// Draws a secret and makes its keys.
    ///
    /// # Errors
    /// [`Error::Entropy`].
    pub fn new(geometry: Geometry, version: Version) -> Result<Self, Error> {
        let mut source = NoiseSource::from_os().map_err(|_| Error::Entropy)?;
        Ok(Self::draw(geometry, version, &mut source))
    }

    /// The client that `source` gives, for known answers.
    #[doc(hidden)]
    pub fn draw(geometry: Geometry, version: Version, source: &mut NoiseSource) -> Self {
        let secret = SecretKey::draw(geometry.params().ring(), source);
        let keys = EvaluationKeys::generate(&geometry, &secret, source);
        let mask = Mask::new(version, geometry.set());
        let (key_id, depth) = (KeyId::of(&keys), geometry.levels());
        let (keys, secret) = (keys.into(), Arc::new(secret));
        Self { key_id, keys, depth, secret, mask, geometry, version }
    }

    /// A client of another table of the same parameter set with this one's secret and keys, so that
    /// one upload serves both: a server of several tables takes the deepest one's keys for all.
    ///
    /// # Errors
    /// [`Error::KeyParameters`] for a table of another set, or of more levels than these keys have.
    pub fn of_table(&self, geometry: Geometry, version: Version) -> Result<Self, Error> {
        let set = self.geometry.set();
        if geometry.set() != set || geometry.levels() > self.depth {
            return Err(Error::KeyParameters {
                expected: format!("{} at depth {}", geometry.set().name(), geometry.levels()),
                found: format!("{} at depth {}", set.name(), self.depth),
            });
        }
        Ok(Self {
            mask: Mask::new(version, set),
            geometry,
            version,
            secret: Arc::clone(&self.secret),
            depth: self.depth,
            keys: Arc::clone(&self.keys),
            key_id: self.key_id,
        })
    }

    /// The table's geometry.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// What the server knows the keys by.
    pub fn key_id(&self) -> KeyId {
        self.key_id
    }

    /// What is uploaded once: [`Geometry::key_bytes`] bytes of the table that they were made for.
    pub fn keys(&self) -> &[u8] {
        &self.keys
    }

    /// The secret, for whoever measures noise.
    #[doc(hidden)]
    pub fn secret(&self) -> &SecretKey {
        &self.secret
    }

    /// Makes queries for the rows `ids`, padded to `max_ids` queries, so that the server learns
    /// `max_ids` and not how many ids there were.
    ///
    /// # Errors
    /// [`Error::IdRange`], [`Error::TooManyIds`], [`Error::Entropy`].
    pub fn query(&self, ids: &[u64], max_ids: usize) -> Result<(Vec<Vec<u8>>, Pending), Error> {
        if ids.len() > max_ids {
            return Err(Error::TooManyIds { ids: ids.len(), max_ids });
        }
        let rows = self.geometry.shape().rows();
        if let Some(&id) = ids.iter().find(|&&id| id >= rows) {
            return Err(Error::IdRange { id, rows });
        }
        let mut source = NoiseSource::from_os().map_err(|_| Error::Entropy)?;
        Ok(self.query_from(ids, max_ids, &mut source))
    }

    /// As [`query`](Self::query), with randomness from `source`, for known answers; the caller has
    /// checked the ids.
    #[doc(hidden)]
    pub fn query_from(
        &self,
        ids: &[u64],
        max_ids: usize,
        source: &mut NoiseSource,
    ) -> (Vec<Vec<u8>>, Pending) {
        // A dummy asks for row 0: encryptions of equal and of different places look alike.
        let places = ids.iter().copied().chain(std::iter::repeat(0)).take(max_ids);
        let make = |id| Query::make(&self.geometry, &self.secret, self.geometry.place(id), source);
        let queries = places.map(make).collect();
        let places = ids.iter().map(|&id| self.geometry.place(id)).collect();
        (queries, Pending { places, queries: max_ids })
    }

    /// Decodes the responses to all queries, from table `version`, to ids × row_bytes bytes.
    ///
    /// # Errors
    /// [`Error::VersionChanged`], [`Error::ResponseBytes`].
    pub fn decode(
        &self,
        pending: &Pending,
        version: Version,
        responses: &[u8],
    ) -> Result<Vec<u8>, Error> {
        if version != self.version {
            let (expected, found) = (self.version, version);
            return Err(Error::VersionChanged { expected, found });
        }
        let response_bytes = self.geometry.response_bytes();
        let expected = pending.queries * response_bytes;
        if responses.len() != expected {
            return Err(Error::ResponseBytes { expected, found: responses.len() });
        }
        let row_bytes = self.geometry.shape().row_bytes();
        let mut rows = Vec::with_capacity(pending.places.len() * row_bytes);
        for (place, bytes) in pending.places.iter().zip(responses.chunks_exact(response_bytes)) {
            let item = self.open(place.item, bytes)?;
            let first = rows.len();
            rows.resize(first + row_bytes, 0);
            // Every row is read, so that no address depends on which one was wanted.
            for (index, row) in item.chunks_exact(row_bytes).enumerate() {
                let mask = is_equal(index as u64, place.within as u64) as u8;
                rows[first..].iter_mut().zip(row).for_each(|(out, byte)| *out |= byte & mask);
            }
        }
        Ok(rows)
    }

    /// All bytes of the item that one response holds, its mask taken off.
    fn open(&self, item_index: u64, bytes: &[u8]) -> Result<Vec<u8>, Error> {
        let params = self.geometry.params();
        let (bits, chunk_bytes) = (params.plain_bits(), response::response_bytes(params));
        let mut item = Vec::new();
        for (chunk, bytes) in bytes.chunks_exact(chunk_bytes).enumerate() {
            let first = item.len();
            let numbers =
                response::open(params, &self.secret, bytes).map_err(|error| match error {
                    RlweError::Bytes { expected, found, .. } => {
                        Error::ResponseBytes { expected, found }
                    }
                    _ => Error::Entropy,
                })?;
            for number in numbers {
                item.extend_from_slice(&number.to_le_bytes()[..bits as usize / 8]);
            }
            self.mask.apply(self.geometry.plaintext_number(item_index, chunk), &mut item[first..]);
        }
        Ok(item)
    }
}
