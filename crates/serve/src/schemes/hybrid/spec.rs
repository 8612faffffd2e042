//! How a server of hybrid inference runs: [`HybridServerSpec`], checked into `Settings`.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::HybridError;
use super::{CHUNK_BYTES, FRAMES_AHEAD, OVERHEAD_BYTES, PAYLOAD_BYTES_MAX};
use crate::host::network::{Network, within, within_u64};
use crate::{Error, NetworkSpec};

/// Where halves of precomputes outlive a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "a spec is written field by field")]
pub struct PrecomputeStoreSpec {
    /// A folder that no other process uses.
    pub folder: PathBuf,
    /// The file of the key that they are sealed with, made where there is none; in the folder by default.
    pub key: Option<PathBuf>,
    /// A folder for the ledger of what may still be used, outside of `folder`; where this machine keeps its state by default.
    pub ledger: Option<PathBuf>,
}

impl PrecomputeStoreSpec {
    pub(super) fn key_file(&self) -> PathBuf {
        self.key.clone().unwrap_or_else(|| self.folder.join("key"))
    }
}

/// How a server of hybrid inference runs. Every field but `model` has a default.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(clippy::exhaustive_structs, reason = "a spec is written field by field")]
pub struct HybridServerSpec {
    /// A model bundle's folder.
    pub model: PathBuf,
    /// Which of the bundle's plans; none for its only one.
    #[serde(default)]
    pub plan: Option<String>,
    /// Ports, TLS, limits of connections. Where `inflight_bytes_max` is less than what one prediction
    /// holds, it is raised to that.
    #[serde(flatten)]
    pub network: NetworkSpec,
    /// Steps that are computed at once, each on a thread; 0 (the default) for one a core.
    #[serde(default)]
    pub threads: usize,
    /// Where precomputes are kept through restarts: a folder that no other process uses. None to keep them
    /// in memory.
    #[serde(default)]
    pub store: Option<PathBuf>,
    /// The file of the key that the folder is sealed with. None for `key` in the folder.
    #[serde(default)]
    pub store_key: Option<PathBuf>,
    /// The folder of the ledger that says which precomputes may still be used: outside of `store`, on storage that is not
    /// put back together with it. None for where this machine keeps its state.
    #[serde(default)]
    pub store_ledger: Option<PathBuf>,
    /// Most bytes of precomputes, those that are being made included. 64 GiB by default.
    #[serde(default = "default_store_bytes_max")]
    pub store_bytes_max: u64,
    /// Most precomputes that are being made at once.
    #[serde(default = "default_precomputes_max")]
    pub precomputes_max: usize,
    /// How long a precompute that is being made may rest, in milliseconds; then it is dropped.
    #[serde(default = "default_precompute_idle_ms_max")]
    pub precompute_idle_ms_max: u64,
    /// How many hours a precompute waits to be used; then it is dropped. A week by default.
    #[serde(default = "default_precompute_hours_max")]
    pub precompute_hours_max: u64,
    /// Most precomputes that one client may begin in 24 hours, used or not; 0 (the default) for as many as it likes.
    #[serde(default)]
    pub precomputes_per_client_per_day: u64,
    /// Most predictions at once.
    #[serde(default = "default_predictions_max")]
    pub predictions_max: usize,
    /// Whether the client may garble.
    #[serde(default = "yes")]
    pub client_garbles: bool,
    /// Whether this server garbles.
    #[serde(default = "yes")]
    pub server_garbles: bool,
}

impl HybridServerSpec {
    /// The defaults for a model.
    pub fn new(model: impl Into<PathBuf>) -> Self {
        Self {
            model: model.into(),
            plan: None,
            network: NetworkSpec::default(),
            threads: 0,
            store: None,
            store_key: None,
            store_ledger: None,
            store_bytes_max: default_store_bytes_max(),
            precomputes_max: default_precomputes_max(),
            precompute_idle_ms_max: default_precompute_idle_ms_max(),
            precompute_hours_max: default_precompute_hours_max(),
            precomputes_per_client_per_day: 0,
            predictions_max: default_predictions_max(),
            client_garbles: true,
            server_garbles: true,
        }
    }

    /// Where precomputes are kept, where they are kept in a folder.
    pub(super) fn precompute_store(&self) -> Option<PrecomputeStoreSpec> {
        let folder = self.store.clone()?;
        let (key, ledger) = (self.store_key.clone(), self.store_ledger.clone());
        Some(PrecomputeStoreSpec { folder, key, ledger })
    }
}

/// A checked [`HybridServerSpec`].
pub(super) struct Settings {
    pub spec: HybridServerSpec,
}

impl Settings {
    pub fn check(mut spec: HybridServerSpec) -> Result<(Self, Network), Error> {
        within("threads", spec.threads, 0..=4096)?;
        within_u64("store_bytes_max", spec.store_bytes_max, 1..=1 << 50)?;
        within("precomputes_max", spec.precomputes_max, 1..=1 << 16)?;
        within_u64("precompute_idle_ms_max", spec.precompute_idle_ms_max, 1..=DAY_MS)?;
        within_u64("precompute_hours_max", spec.precompute_hours_max, 1..=100_000)?;
        within("predictions_max", spec.predictions_max, 1..=PREDICTIONS_MAX)?;
        if !spec.client_garbles && !spec.server_garbles {
            return Err(HybridError::NoGarbler.into());
        }
        let network = &mut spec.network;
        let whole = MESSAGE_BYTES_MAX + HELD_BYTES;
        if network.inflight_bytes_max < whole {
            let given = network.inflight_bytes_max;
            tracing::info!(
                given,
                needed = whole,
                "inflight_bytes_max is raised to one prediction's"
            );
            network.inflight_bytes_max = whole;
        }
        let network = Network::check(network.clone(), whole)?;
        Ok((Self { spec }, network))
    }
}

/// The longest message of a client.
pub(super) const MESSAGE_BYTES_MAX: usize = PAYLOAD_BYTES_MAX + OVERHEAD_BYTES;
/// What a step or a prediction holds beside its requests: replies that are not sent yet.
pub(super) const HELD_BYTES: usize = FRAMES_AHEAD * CHUNK_BYTES;

fn default_store_bytes_max() -> u64 {
    64 << 30
}

fn default_precomputes_max() -> usize {
    16
}

fn default_precompute_idle_ms_max() -> u64 {
    600_000
}

fn default_precompute_hours_max() -> u64 {
    168
}

fn default_predictions_max() -> usize {
    64
}

fn yes() -> bool {
    true
}

const DAY_MS: u64 = 86_400_000;
/// Each has a thread.
const PREDICTIONS_MAX: usize = 256;
