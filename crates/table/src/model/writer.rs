//! Writes a model bundle aside, and puts it in its place in one step.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use super::manifest::{DenseRef, Feature, ModelManifest, ModelSpec, TableRef, check_name};
use super::plans::is_plan_file;
use super::{ModelError, places};
use crate::bundle::FILES;
use crate::error::Error;
use crate::staging::{Staging, check_entries, sync_folder};
use crate::table::Table;

/// Writes a model of tables that are open or in memory at `out`, replacing an older model there in
/// one step: `tables` with their names, `features` by index into them, and the dense file to copy.
///
/// # Errors
/// [`Error::Model`] for what no manifest holds; else as [`Table::save`].
pub fn write(
    out: &Path,
    name: &str,
    tables: &[(&str, &Table)],
    features: &[Feature],
    dense: Option<&Path>,
) -> Result<ModelManifest, Error> {
    let mut writer = ModelWriter::new(out, name)?;
    for (name, table) in tables {
        writer.push_table(name, table)?;
    }
    if let Some(dense) = dense {
        writer.copy_dense(dense)?;
    }
    writer.finish(features)
}

/// Takes tables and the dense file, and ends as a model bundle at its path.
pub(super) struct ModelWriter {
    staging: Staging,
    out: PathBuf,
    spec: ModelSpec,
}

impl ModelWriter {
    /// Starts a model that is to stand at `out`.
    pub(super) fn new(out: &Path, name: &str) -> Result<Self, Error> {
        check_name("model", name).map_err(Error::model(out))?;
        let staging = Staging::replacing(out, &check_replaceable)?;
        let tables = staging.path().join(places::TABLES);
        DirBuilder::new().create(&tables).map_err(Error::io("create", &tables))?;
        let spec = ModelSpec { name: name.to_owned(), ..ModelSpec::default() };
        Ok(Self { staging, out: out.to_owned(), spec })
    }

    /// Where the next table's bundle is to be written; [`adopt_table`](Self::adopt_table) takes it
    /// into the model.
    pub(super) fn table_path(&self, name: &str) -> Result<PathBuf, Error> {
        check_name("table", name).map_err(Error::model(&self.out))?;
        if self.spec.tables.iter().any(|table| table.name == name) {
            let twice = ModelError::Twice { what: "table", name: name.to_owned() };
            return Err(Error::model(&self.out)(twice));
        }
        Ok(self.staging.path().join(places::table(name)))
    }

    /// Takes in the table that was written at its [`table_path`](Self::table_path).
    pub(super) fn adopt_table(&mut self, name: &str) -> Result<(), Error> {
        let table = Table::open(&self.table_path(name)?)?;
        self.spec.tables.push(TableRef {
            name: name.to_owned(),
            version: table.version(),
            shape: table.shape(),
            layout: table.layout().map(|layout| layout.version()),
        });
        Ok(())
    }

    /// Writes an open table into the model, rows checked, layout included.
    pub(super) fn push_table(&mut self, name: &str, table: &Table) -> Result<(), Error> {
        table.save(&self.table_path(name)?)?;
        self.adopt_table(name)
    }

    /// Takes in the bundle at `from` without reading its rows: its files are never written in
    /// place, so both models may share them.
    pub(super) fn link_table(&mut self, name: &str, from: &Path) -> Result<(), Error> {
        let to = self.table_path(name)?;
        DirBuilder::new().create(&to).map_err(Error::io("create", &to))?;
        for file in FILES {
            if from.join(file).exists() {
                link_or_copy(&from.join(file), &to.join(file))?;
            }
        }
        sync_folder(&to).map_err(Error::io("synchronise", &to))?;
        self.adopt_table(name)
    }

    /// Copies a dense file into the model.
    pub(super) fn copy_dense(&mut self, from: &Path) -> Result<(), Error> {
        let to = self.create_dense()?;
        let mut file = File::open(from).map_err(Error::io("open", from))?;
        let mut writer = DenseWriter::new(to);
        let mut buffer = vec![0; 1 << 20];
        loop {
            match file.read(&mut buffer).map_err(Error::io("read", from))? {
                0 => break,
                count => writer
                    .write_all(&buffer[..count])
                    .map_err(Error::io("write", self.staging.file_path(places::DENSE)))?,
            }
        }
        self.adopt_dense(writer)
    }

    /// The dense file's path, for error messages.
    pub(super) fn dense_path(&self) -> PathBuf {
        self.staging.file_path(places::DENSE)
    }

    /// A new dense file, to be written by a [`DenseWriter`].
    pub(super) fn create_dense(&self) -> Result<File, Error> {
        self.staging.create_file(places::DENSE)
    }

    /// Takes in the dense file that was written.
    pub(super) fn adopt_dense(&mut self, written: DenseWriter) -> Result<(), Error> {
        let path = self.staging.file_path(places::DENSE);
        self.spec.dense = Some(written.finish().map_err(Error::io("write", path))?);
        Ok(())
    }

    /// Writes the manifest and puts the model in its place.
    pub(super) fn finish(mut self, features: &[Feature]) -> Result<ModelManifest, Error> {
        self.spec.features = features.to_vec();
        let manifest = ModelManifest::new(self.spec).map_err(Error::model(&self.out))?;
        let mut file = self.staging.create_file(places::MANIFEST)?;
        let path = self.staging.file_path(places::MANIFEST);
        file.write_all(&manifest.to_json())
            .and_then(|()| file.sync_all())
            .map_err(Error::io("write", path))?;
        let tables = self.staging.path().join(places::TABLES);
        sync_folder(&tables).map_err(Error::io("synchronise", &tables))?;
        self.staging.commit()?;
        Ok(manifest)
    }
}

/// Writes the dense file and hashes it.
pub(super) struct DenseWriter {
    file: io::BufWriter<File>,
    hasher: blake3::Hasher,
    bytes: u64,
}

impl DenseWriter {
    pub(super) fn new(file: File) -> Self {
        Self { file: io::BufWriter::new(file), hasher: blake3::Hasher::new(), bytes: 0 }
    }

    fn finish(self) -> io::Result<DenseRef> {
        let file = self.file.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_all()?;
        Ok(DenseRef { blake3: *self.hasher.finalize().as_bytes(), bytes: self.bytes })
    }
}

impl Write for DenseWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.file.write(bytes)?;
        self.hasher.update(&bytes[..count]);
        self.bytes += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Refuses to replace anything but a model or an empty folder: it and the folders in it may hold
/// nothing that no model holds.
fn check_replaceable(target: &Path) -> Result<(), Error> {
    let ours = [
        places::MANIFEST,
        places::DENSE,
        places::TABLES,
        places::PREPARED,
        places::PLANS,
        places::SHARDS,
        places::SHARDS_ONION,
    ];
    check_entries(target, &|name| ours.contains(&name))?;
    check_entries(&target.join(places::PREPARED), &|name| {
        // A file that is being prepared has others beside it that begin with its name.
        name.contains(&format!(".{}", places::PREPARED_EXTENSION))
    })?;
    check_entries(&target.join(places::PLANS), &is_plan_file)?;
    let tables = target.join(places::TABLES);
    let Ok(entries) = fs::read_dir(&tables) else { return Ok(()) };
    for entry in entries {
        let entry = entry.map_err(Error::io("list", &tables))?;
        // What a killed build of one table left is hidden, and is a bundle too.
        let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        check_entries(&entry.path(), &|name| FILES.contains(&name) || hidden)?;
    }
    Ok(())
}

/// Gives a file a second name, or copies it where the two folders are on different file systems.
fn link_or_copy(from: &Path, to: &Path) -> Result<(), Error> {
    if fs::hard_link(from, to).is_ok() {
        return Ok(());
    }
    let copy = || -> io::Result<()> {
        let mut source = File::open(from)?;
        let mut target = OpenOptions::new().write(true).create_new(true).open(to)?;
        io::copy(&mut source, &mut target)?;
        target.sync_all()
    };
    copy().map_err(Error::io("copy", from))
}
