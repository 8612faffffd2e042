//! The client's half of a lookup: ids to two requests, two replies to rows.

use hushtable_prg::{Platform, Prg, PrgKind};
use hushtable_table::Version;

use super::{Domain, Group, KeyPair, Side};
use crate::{Error, TableShape};

/// Makes lookups against one version of one table.
pub struct Client {
    shape: TableShape,
    version: Version,
    domain: Domain,
    prg: Prg,
}

/// The keys of one lookup, in the order of their ids: send `left` and `right` to their servers.
pub struct Request {
    /// One key per id, dummies included, for the left server.
    pub left: Vec<Vec<u8>>,
    /// The same for the right server.
    pub right: Vec<Vec<u8>>,
}

/// A lookup that has been sent: what is needed to read the replies.
pub struct Pending {
    shape: TableShape,
    version: Version,
    group: Group,
    ids: usize,
    keys: usize,
}

/// One server's reply.
#[derive(Clone, Copy)]
pub struct Reply<'a> {
    /// The version of the table it answered from.
    pub version: Version,
    /// `keys × row_bytes` bytes.
    pub answers: &'a [u8],
}

impl Client {
    /// A client of the table version that both servers announced, whose keys are of
    /// [`Group::Bits`]: what processors answer fastest.
    ///
    /// # Errors
    /// None beyond those of the shape, which is checked already; kept fallible for other domains.
    pub fn new(shape: TableShape, version: Version, prg: PrgKind) -> Result<Self, Error> {
        Self::with_group(shape, version, prg, Group::Bits)
    }

    /// As [`new`](Self::new), with keys of `group`.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_group(
        shape: TableShape,
        version: Version,
        prg: PrgKind,
        group: Group,
    ) -> Result<Self, Error> {
        let domain = Domain::new(shape.rows(), group)?;
        Ok(Self { shape, version, domain, prg: Prg::new(prg, Platform::detect()) })
    }

    /// The table's shape.
    pub fn shape(&self) -> TableShape {
        self.shape
    }

    /// Makes the two requests that fetch the rows `ids`, padded to `max_ids` keys each, so that a
    /// server learns `max_ids` and not how many ids there were.
    ///
    /// # Errors
    /// [`Error::IdRange`], [`Error::TooManyIds`], or [`Error::Entropy`].
    pub fn query(&self, ids: &[u64], max_ids: usize) -> Result<(Request, Pending), Error> {
        if ids.len() > max_ids {
            return Err(Error::TooManyIds { ids: ids.len(), max_ids });
        }
        let rows = self.shape.rows();
        if let Some(&id) = ids.iter().find(|&&id| id >= rows) {
            return Err(Error::IdRange { id, rows });
        }
        let mut request =
            Request { left: Vec::with_capacity(max_ids), right: Vec::with_capacity(max_ids) };
        // A dummy asks for row 0: keys for equal and for different rows look alike to a server.
        for id in ids.iter().copied().chain(std::iter::repeat(0)).take(max_ids) {
            let pair = KeyPair::generate(self.prg, self.domain, id)?;
            request.left.push(pair.left.to_bytes());
            request.right.push(pair.right.to_bytes());
        }
        let pending = Pending {
            shape: self.shape,
            version: self.version,
            group: self.domain.group(),
            ids: ids.len(),
            keys: max_ids,
        };
        Ok((request, pending))
    }
}

impl Pending {
    /// Adds the two replies up to the rows asked for: `ids × row_bytes` bytes, in the ids' order.
    ///
    /// # Errors
    /// [`Error::VersionMismatch`] or [`Error::VersionChanged`] where a server answered from another
    /// version of the table (the sum would be noise), [`Error::AnswerBytes`] for a wrong length.
    pub fn combine(&self, left: Reply<'_>, right: Reply<'_>) -> Result<Vec<u8>, Error> {
        let row_bytes = self.shape.row_bytes();
        let expected = self.keys * row_bytes;
        let mut rows = check_replies(self.version, expected, left, right)?.to_vec();
        rows.truncate(self.ids * row_bytes);
        for (row, share) in
            rows.chunks_exact_mut(row_bytes).zip(right.answers.chunks_exact(row_bytes))
        {
            self.group.add(row, share);
        }
        Ok(rows)
    }
}

/// The XOR of two replies, once their versions and lengths are what they should be.
pub(crate) fn add_replies(
    version: Version,
    answer_bytes: usize,
    left: Reply<'_>,
    right: Reply<'_>,
) -> Result<Vec<u8>, Error> {
    let mut sum = check_replies(version, answer_bytes, left, right)?.to_vec();
    Group::Bits.add(&mut sum, right.answers);
    Ok(sum)
}

/// The left answers, once both replies' versions and lengths are what they should be.
fn check_replies<'a>(
    version: Version,
    answer_bytes: usize,
    left: Reply<'a>,
    right: Reply<'_>,
) -> Result<&'a [u8], Error> {
    if left.version != right.version {
        return Err(Error::VersionMismatch { left: left.version, right: right.version });
    }
    if left.version != version {
        return Err(Error::VersionChanged {
            side: Side::Left,
            expected: version,
            found: left.version,
        });
    }
    for found in [left.answers.len(), right.answers.len()] {
        if found != answer_bytes {
            return Err(Error::AnswerBytes { expected: answer_bytes, found });
        }
    }
    Ok(left.answers)
}
