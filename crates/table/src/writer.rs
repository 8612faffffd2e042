//! Writes a bundle, rows in order, without holding them.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use crate::bundle;
use crate::codec::count_nonfinite;
use crate::error::Error;
use crate::header::{DATA_OFFSET, encode_header, scales_bytes};
use crate::layout::Layout;
use crate::manifest::{Manifest, ManifestSpec, clip_created_from};
use crate::shape::Shape;
use crate::staging::Staging;
use crate::system::FileExt;
use crate::version::{ContentHasher, Hashing};
use crate::{sums, tree};

/// Takes rows as served, in order, and ends as a bundle at its path.
pub(crate) struct BundleWriter {
    shape: Shape,
    staging: Staging,
    rows: File,
    sums: BufWriter<File>,
    tree: BufWriter<File>,
    content: ContentHasher,
    row_sums: blake3::Hasher,
    nonfinite_count: u64,
    /// Bytes of scales and of weights written so far.
    scales_done: u64,
    weights_done: u64,
    scratch: Vec<u8>,
}

impl BundleWriter {
    /// Starts a bundle that is to stand at `out`.
    pub(crate) fn new(out: &Path, shape: Shape) -> Result<Self, Error> {
        let staging = Staging::new(out)?;
        let rows = staging.create_file(bundle::ROWS)?;
        let mut sums = BufWriter::new(staging.create_file(bundle::SUMS)?);
        let mut row_sums = blake3::Hasher::new();
        rows.write_all_at(&encode_header(shape), 0)
            .map_err(Error::io("write", staging.file_path(bundle::ROWS)))?;
        sums.write_all(&sums::MARK).map_err(Error::io("write", staging.file_path(bundle::SUMS)))?;
        row_sums.update(&sums::MARK);
        let mut tree = BufWriter::new(staging.create_file(bundle::TREE)?);
        tree.write_all(&tree::MARK).map_err(Error::io("write", staging.file_path(bundle::TREE)))?;
        Ok(Self {
            shape,
            staging,
            rows,
            sums,
            tree,
            content: ContentHasher::new(shape, Hashing::Tree),
            row_sums,
            nonfinite_count: 0,
            scales_done: 0,
            weights_done: 0,
            scratch: Vec::new(),
        })
    }

    /// Appends whole rows as served.
    pub(crate) fn push(&mut self, served: &[u8]) -> Result<(), Error> {
        let shape = self.shape;
        debug_assert!(served.len().is_multiple_of(shape.row_bytes()));
        self.content.update(served);
        self.tree
            .write_all(&self.content.take_leaves())
            .map_err(Error::io("write", self.staging.file_path(bundle::TREE)))?;
        self.nonfinite_count += count_nonfinite(shape.dtype(), shape.dim(), served);

        self.scratch.clear();
        sums::append_sums(shape, served, &mut self.scratch);
        self.row_sums.update(&self.scratch);
        self.sums
            .write_all(&self.scratch)
            .map_err(Error::io("write", self.staging.file_path(bundle::SUMS)))?;

        match shape.dtype().scales_bytes(shape.dim()) {
            0 => {
                let offset = DATA_OFFSET as u64 + self.weights_done;
                self.weights_done += served.len() as u64;
                self.write_rows(served, offset)
            }
            scales => self.write_split(served, scales),
        }
    }

    /// Rows with scales: so many bytes of each to the first tensor, codes to the second.
    fn write_split(&mut self, served: &[u8], scales: usize) -> Result<(), Error> {
        let rows = served.chunks_exact(self.shape.row_bytes());
        let mut split = std::mem::take(&mut self.scratch);
        split.clear();
        for row in rows.clone() {
            split.extend_from_slice(&row[..scales]);
        }
        self.write_rows(&split, DATA_OFFSET as u64 + self.scales_done)?;
        self.scales_done += split.len() as u64;

        split.clear();
        for row in rows {
            split.extend_from_slice(&row[scales..]);
        }
        let offset = DATA_OFFSET as u64 + scales_bytes(self.shape) + self.weights_done;
        self.write_rows(&split, offset)?;
        self.weights_done += split.len() as u64;
        self.scratch = split;
        Ok(())
    }

    fn write_rows(&self, bytes: &[u8], offset: u64) -> Result<(), Error> {
        let path = || self.staging.file_path(bundle::ROWS);
        self.rows.write_all_at(bytes, offset).map_err(|error| Error::io("write", path())(error))
    }

    /// Flushes everything to the disk and puts the bundle in its place.
    pub(crate) fn finish(
        mut self,
        name: &str,
        created_from: &str,
        layout: Option<&Layout>,
    ) -> Result<Manifest, Error> {
        assert_eq!(
            self.scales_done + self.weights_done,
            self.shape.content_bytes(),
            "the caller pushes every row of the shape once"
        );
        let staging = self.staging;
        let (leaves, levels, content) = self.content.finish_levels();
        for hashes in std::iter::once(&leaves).chain(&levels) {
            let written = self.tree.write_all(hashes);
            written.map_err(Error::io("write", staging.file_path(bundle::TREE)))?;
        }
        let manifest = Manifest::new(ManifestSpec {
            name: name.to_owned(),
            shape: self.shape,
            content,
            row_sums: *self.row_sums.finalize().as_bytes(),
            nonfinite_count: self.nonfinite_count,
            created_from: clip_created_from(created_from),
            patch: None,
        });
        let sync = |name: &str, file: &File| {
            file.sync_all().map_err(Error::io("synchronise", staging.file_path(name)))
        };
        sync(bundle::ROWS, &self.rows)?;
        let sums = self.sums.into_inner().map_err(|error| {
            Error::io("write", staging.file_path(bundle::SUMS))(error.into_error())
        })?;
        sync(bundle::SUMS, &sums)?;
        let tree = self.tree.into_inner().map_err(|error| {
            Error::io("write", staging.file_path(bundle::TREE))(error.into_error())
        })?;
        sync(bundle::TREE, &tree)?;
        let write = |name: &str, bytes: &[u8]| {
            let mut file = staging.create_file(name)?;
            file.write_all(bytes).map_err(Error::io("write", staging.file_path(name)))?;
            sync(name, &file)
        };
        if let Some(layout) = layout {
            write(bundle::LAYOUT, layout.to_json().as_bytes())?;
            write(bundle::LAYOUT_MAP, &layout.map_bytes())?;
        }
        write(bundle::MANIFEST, manifest.to_json().as_bytes())?;
        staging.commit()?;
        Ok(manifest)
    }
}
