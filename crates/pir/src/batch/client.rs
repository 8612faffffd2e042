//! The client's half of an inference: offsets to two requests, two replies to rows.

use hushtable_prg::valgrind::declassify;
use hushtable_prg::{Platform, Prg, PrgKind, Secret, fill_random};
use hushtable_table::layout::Plan;
use subtle::ConstantTimeEq;
use zeroize::Zeroize;

use super::request::{FORMAT, roots};
use super::{Geometry, PartGeometry};
use crate::Error;
use crate::dpf::{KeyPair, Reply, Side};
use crate::pass::leaf_bytes;

/// Makes the requests of inferences by one layout.
pub struct Client {
    geometry: Geometry,
    prg: Prg,
}

/// The two requests of an inference.
pub struct Request {
    /// For the left server.
    pub left: Vec<u8>,
    /// For the right server.
    pub right: Vec<u8>,
}

/// An inference that has been sent: what is needed to read the replies.
pub struct Pending {
    geometry: Geometry,
}

impl Client {
    /// A client of the layout that both servers announced.
    pub fn new(geometry: Geometry, prg: PrgKind) -> Self {
        Self { geometry, prg: Prg::new(prg, Platform::detect()) }
    }

    /// The layout's geometry.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Makes the requests that fetch `plan`, with seeds from the operating system.
    ///
    /// # Errors
    /// [`Error::Plan`] for a plan of another layout; [`Error::Entropy`].
    ///
    /// # Security
    /// Time, memory accesses and sizes depend on the layout and the generator alone.
    pub fn query(&self, plan: &Plan) -> Result<(Request, Pending), Error> {
        let mut seeds = Secret::new([[0u8; 16]; 2]);
        fill_random(seeds.expose_mut().as_flattened_mut()).map_err(|_| Error::Entropy)?;
        self.query_from_seeds(plan, seeds.expose())
    }

    /// The same from given seeds (left's, right's): for known-answer vectors and simulations. Seeds
    /// must be uniform, independent, and used once.
    ///
    /// # Errors
    /// [`Error::Plan`].
    pub fn query_from_seeds(
        &self,
        plan: &Plan,
        seeds: &[[u8; 16]; 2],
    ) -> Result<(Request, Pending), Error> {
        let keys = self.geometry.keys();
        if plan.offsets.len() != keys {
            return Err(Error::Plan { expected: keys, found: plan.offsets.len() });
        }
        let header = |side: Side| {
            let mut bytes = Vec::with_capacity(self.geometry.request_bytes(side));
            bytes.extend([FORMAT, side.id(), self.prg.kind().id(), 0]);
            bytes.extend(seeds[usize::from(side.id())]);
            bytes
        };
        let mut request = Request { left: header(Side::Left), right: header(Side::Right) };
        let roots = seeds.each_ref().map(|seed| Secret::new(roots(seed, keys)));
        let mut first = 0;
        for part in self.geometry.parts() {
            let range = first..first + part.keys();
            first = range.end;
            let rows = &plan.offsets[range.clone()];
            let is_within = |row: &u32| u8::from((*row as usize) < part.bin_rows());
            let mut are_within = rows.iter().map(is_within).fold(1, |all, one| all & one);
            // Whether a plan is this layout's is told to the caller.
            declassify(&mut are_within);
            if are_within == 0 {
                let found = rows.iter().max().map_or(0, |row| *row as usize);
                return Err(Error::Plan { expected: part.bin_rows(), found });
            }
            let [left, right] = roots.each_ref().map(|roots| &roots.expose()[range.clone()]);
            match part.depth() {
                0 => self.push_vectors(part, rows, left, &mut request.right),
                _ => self.push_keys(part, rows, left, right, &mut request)?,
            }
        }
        Ok((request, Pending { geometry: self.geometry.clone() }))
    }

    /// One-leaf bins: right gets left's vectors, each with its row's bit flipped.
    fn push_vectors(&self, part: &PartGeometry, rows: &[u32], roots: &[u128], to: &mut Vec<u8>) {
        let mut leaves = Secret::new(vec![0u128; 4 * roots.len()]);
        self.prg.convert(roots, &[0; 4], leaves.expose_mut());
        for (row, leaf) in rows.iter().zip(leaves.expose().chunks_exact(4)) {
            let share = &leaf_bytes(leaf)[..part.leaf_rows / 8];
            to.extend((0u32..).zip(share).map(|(i, byte)| {
                let here = i.ct_eq(&(row / 8)).unwrap_u8();
                byte ^ (here << (row % 8))
            }));
        }
    }

    fn push_keys(
        &self,
        part: &PartGeometry,
        rows: &[u32],
        left: &[u128],
        right: &[u128],
        request: &mut Request,
    ) -> Result<(), Error> {
        for (&row, (left, right)) in rows.iter().zip(left.iter().zip(right)) {
            let seeds = [left.to_le_bytes(), right.to_le_bytes()];
            let pair = KeyPair::from_seeds(self.prg, part.domain(), part.index(row), &seeds)?;
            let words = pair.left.words();
            let start = request.left.len();
            let mut right_bits = vec![0u8; words.levels.len().div_ceil(8)];
            for (i, [left, right]) in words.levels.iter().enumerate() {
                request.left.extend(left.to_le_bytes());
                right_bits[i / 8] |= ((right & 1) as u8) << (i % 8);
            }
            request.left.extend(right_bits);
            request.left.extend_from_slice(&leaf_bytes(&words.leaf)[..part.leaf_rows / 8]);
            request.right.extend_from_slice(&request.left[start..]);
        }
        Ok(())
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        self.left.zeroize();
        self.right.zeroize();
    }
}

impl Pending {
    /// Adds the two replies up to the rows that arrived: each key's entry, in the keys' order.
    ///
    /// # Errors
    /// [`Error::VersionMismatch`] or [`Error::VersionChanged`] where a server answered by another
    /// layout (the sum would be noise), [`Error::AnswerBytes`] for a wrong length.
    pub fn combine(&self, left: Reply<'_>, right: Reply<'_>) -> Result<Vec<u8>, Error> {
        crate::dpf::add_replies(self.geometry.version(), self.geometry.answer_bytes(), left, right)
    }

    /// The rows of `ids`' places in combined entries: `found.len() × row_bytes` bytes, zero where
    /// an id was dropped.
    ///
    /// # Panics
    /// If `entries` or `plan` are not this layout's.
    pub fn rows(&self, plan: &Plan, entries: &[u8], row_bytes: usize) -> Vec<u8> {
        let mut rows = vec![0; plan.found.len() * row_bytes];
        for (row, found) in rows.chunks_exact_mut(row_bytes).zip(&plan.found) {
            let Some(found) = found else { continue };
            let start = self.entry_start(found.key as usize) + found.entry_row as usize * row_bytes;
            row.copy_from_slice(&entries[start..start + row_bytes]);
        }
        rows
    }

    fn entry_start(&self, key: usize) -> usize {
        let (mut first, mut start) = (0, 0);
        for part in self.geometry.parts() {
            if key < first + part.keys() {
                return start + (key - first) * part.entry_bytes;
            }
            first += part.keys();
            start += part.keys() * part.entry_bytes;
        }
        start
    }
}
