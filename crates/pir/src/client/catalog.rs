//! What a server of a pair says of its models, checked.

use std::time::Duration;

use bytes::Bytes;
use hushtable_table::Version;
use hushtable_table::model::{MODEL_JSON_BYTES_MAX, ModelManifest};

use super::announced::{VERSIONS_MAX, text, version, versions, window, within};
use super::{AnnouncedTable, ReplyDefect};

/// A server's tables and models as they came, unchecked: `CatalogReply` in
/// `proto/hushtable/v1/lookup.proto`.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_structs, reason = "written field by field")]
#[allow(missing_docs, reason = "the proto says what each is")]
pub struct AnnouncedCatalog {
    pub tables: Vec<AnnouncedTable>,
    pub models: Vec<AnnouncedModel>,
    pub older: Vec<AnnouncedModel>,
    pub state: Option<u64>,
}

/// A server's announcement of a model as it came, unchecked: the fields of `ModelInfo` in
/// `proto/hushtable/v1/lookup.proto`.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_structs, reason = "written field by field")]
#[allow(missing_docs, reason = "the proto says what each is")]
pub struct AnnouncedModel {
    pub name: String,
    pub versions: Vec<Bytes>,
    pub manifest: Bytes,
    pub window_us: u64,
    pub request_bytes_max: u64,
}

/// What a server says of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ModelInfo {
    /// What the model is. It hashes to the version that the server announced.
    pub manifest: ModelManifest,
    /// How long an inference may wait for others to share its pass.
    pub window: Duration,
    /// Bytes that one inference's request may have.
    pub request_bytes_max: u64,
}

impl AnnouncedCatalog {
    /// Bounds what is searched.
    pub(super) fn check(&self) -> Result<(), ReplyDefect> {
        within("tables", self.tables.len() as u64, 0..=TABLES_MAX)?;
        within("models", self.models.len() as u64, 0..=MODELS_MAX)?;
        within("older models", self.older.len() as u64, 0..=MODELS_MAX * VERSIONS_MAX)?;
        for model in self.models.iter().chain(&self.older) {
            text("model name", model.name.clone())?;
        }
        Ok(())
    }
}

impl AnnouncedModel {
    /// The version that is described.
    pub(super) fn version(&self) -> Result<Version, ReplyDefect> {
        match self.versions.first() {
            Some(first) => version(first),
            None => Err(ReplyDefect::VersionBytes { found: 0 }),
        }
    }
}

impl ModelInfo {
    /// Holds an announcement against what a model can be, and the manifest against the version that
    /// it is announced under.
    ///
    /// # Errors
    /// The [`ReplyDefect`] of the field that cannot be.
    pub fn check(announced: &AnnouncedModel) -> Result<Self, ReplyDefect> {
        let expected = announced.version()?;
        versions(expected, &announced.versions)?;
        let bytes = announced.manifest.len() as u64;
        within("manifest bytes", bytes, 1..=MODEL_JSON_BYTES_MAX as u64)?;
        let manifest = ModelManifest::from_json(&announced.manifest)
            .map_err(|error| ReplyDefect::Manifest { reason: super::announced::cut_long(error) })?;
        let found = manifest.version();
        if found != expected {
            return Err(ReplyDefect::ManifestVersion { expected, found });
        }
        let name = text("model name", announced.name.clone())?;
        if manifest.name() != name {
            return Err(ReplyDefect::ManifestName { announced: name });
        }
        Ok(Self {
            manifest,
            window: window("window_us", announced.window_us)?,
            request_bytes_max: announced.request_bytes_max,
        })
    }
}

const TABLES_MAX: u64 = 1024;
const MODELS_MAX: u64 = 64;
