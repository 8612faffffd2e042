//! How a server of encrypted inference runs: [`CkksServerSpec`], checked into `Settings`.

use std::path::PathBuf;

use hushtable_infer::dlrm::Masks;
use serde::{Deserialize, Serialize};

use super::CHUNK_BYTES_MAX;
use super::CkksInfo;
use crate::host::network::{Network, within};
use crate::keys::{KeyStoreSpec, PeerShare};
use crate::{Error, NetworkSpec};

/// How a server of encrypted inference runs. Every field but `model` has a default.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(clippy::exhaustive_structs, reason = "a spec is written field by field")]
pub struct CkksServerSpec {
    /// A model bundle's folder.
    pub model: PathBuf,
    /// Which of the bundle's plans; none for its only one.
    #[serde(default)]
    pub plan: Option<String>,
    /// Ports, TLS, limits of connections. Where they are less than what one upload of keys takes,
    /// `inflight_bytes_max` is raised to that, and `request_ms_max` to its time at 8 Mbit/s.
    #[serde(flatten)]
    pub network: NetworkSpec,
    /// Threads that compute: each begins a query of its own, and helps with others' where none waits; 0 (the
    /// default) for one a core.
    #[serde(default)]
    pub threads: usize,
    /// Most queries that wait; beyond, requests are refused with a hint when to retry.
    #[serde(default = "default_queue_queries_max")]
    pub queue_queries_max: usize,
    /// Where clients' keys are kept through restarts: a folder that no other server uses. None to
    /// keep them in memory only.
    #[serde(default)]
    pub keys_folder: Option<PathBuf>,
    /// Most bytes of clients' keys in memory, where a client's take two to four times what it uploads; where they
    /// would not fit, all are kept without their masks, in half of that, and a query takes longer. 8 GiB by default.
    #[serde(default = "default_keys_memory_bytes_max")]
    pub keys_memory_bytes_max: usize,
    /// Most bytes of clients' keys in the folder. 64 GiB by default.
    #[serde(default = "default_keys_folder_bytes_max")]
    pub keys_folder_bytes_max: usize,
    /// Most bytes of the keys of one peer's clients (an IPv4 address, or an IPv6 network of 64 bits), in
    /// memory and in the folder; half of each by default. A peer that has more to keep loses its own.
    #[serde(default)]
    pub keys_bytes_per_peer_max: Option<usize>,
}

impl CkksServerSpec {
    /// The defaults for a model.
    pub fn new(model: impl Into<PathBuf>) -> Self {
        Self {
            model: model.into(),
            plan: None,
            network: NetworkSpec::default(),
            threads: 0,
            queue_queries_max: default_queue_queries_max(),
            keys_folder: None,
            keys_memory_bytes_max: default_keys_memory_bytes_max(),
            keys_folder_bytes_max: default_keys_folder_bytes_max(),
            keys_bytes_per_peer_max: None,
        }
    }
}

/// A checked [`CkksServerSpec`], with what follows from it and the plan.
pub(super) struct Settings {
    pub spec: CkksServerSpec,
    pub keys: KeyStoreSpec,
    /// How clients' keys are kept, and bytes of memory that one client's take so.
    pub masks: Masks,
    pub key_memory_bytes: usize,
    pub message_bytes_max: usize,
}

impl Settings {
    /// Checks `spec` for a server of what `info` describes.
    pub fn check(mut spec: CkksServerSpec, info: &CkksInfo) -> Result<(Self, Network), Error> {
        within("threads", spec.threads, 0..=4096)?;
        within("queue_queries_max", spec.queue_queries_max, 1..=1 << 16)?;
        let key_bytes = info.key_bytes();
        let of = |masks| info.terms.key_memory_bytes(masks);
        let (held, drawn) = (of(Masks::Held)?, of(Masks::Drawn)?);
        within("keys_memory_bytes_max", spec.keys_memory_bytes_max, drawn..=1 << 50)?;
        let least = key_bytes.max(drawn);
        let of_peer = spec.keys_bytes_per_peer_max.unwrap_or(least);
        within("keys_bytes_per_peer_max", of_peer, least..=1 << 50)?;
        let room = spec.keys_bytes_per_peer_max.unwrap_or(usize::MAX);
        let (masks, key_memory_bytes) = match held <= room.min(spec.keys_memory_bytes_max) {
            true => (Masks::Held, held),
            false => (Masks::Drawn, drawn),
        };
        within("keys_folder_bytes_max", spec.keys_folder_bytes_max, key_bytes..=1 << 50)?;
        let message_bytes_max = info.query_bytes().max(CHUNK_BYTES_MAX) + OVERHEAD_BYTES;
        let sent = key_bytes + key_bytes.div_ceil(CHUNK_BYTES_LEAST) * OVERHEAD_BYTES;
        let whole = (message_bytes_max + held_bytes(info)).max(sent + upload_bytes(info));
        let network = &mut spec.network;
        if network.inflight_bytes_max < whole {
            let given = network.inflight_bytes_max;
            tracing::info!(given, needed = whole, "inflight_bytes_max is raised to one upload's");
            network.inflight_bytes_max = whole;
        }
        let upload_ms = 1000 * key_bytes as u64 / UPLOAD_BYTES_PER_S_MIN;
        network.request_ms_max = network.request_ms_max.max(upload_ms.min(REQUEST_MS_MAX));
        let network = Network::check(spec.network.clone(), whole)?;
        let keys = KeyStoreSpec {
            memory_bytes_max: spec.keys_memory_bytes_max,
            folder: spec.keys_folder.clone(),
            folder_bytes_max: spec.keys_folder_bytes_max,
            key_bytes_max: key_bytes,
            peer_bytes_max: PeerShare::of(
                spec.keys_bytes_per_peer_max,
                [spec.keys_memory_bytes_max, spec.keys_folder_bytes_max],
                [key_memory_bytes, key_bytes],
            ),
        };
        Ok((Self { spec, keys, masks, key_memory_bytes, message_bytes_max }, network))
    }
}

/// Bytes that a query holds beside its request's: its answer.
pub(super) fn held_bytes(info: &CkksInfo) -> usize {
    info.answer_bytes()
}

/// Bytes that an upload holds beside its messages': the keys in one piece. What they are parsed into
/// is counted by the store.
pub(super) fn upload_bytes(info: &CkksInfo) -> usize {
    info.key_bytes()
}

fn default_queue_queries_max() -> usize {
    1 << 8
}

fn default_keys_memory_bytes_max() -> usize {
    8 << 30
}

fn default_keys_folder_bytes_max() -> usize {
    64 << 30
}

/// A client whose line is slower than 8 Mbit/s needs an operator who allows it more time.
const UPLOAD_BYTES_PER_S_MIN: u64 = 1_000_000;
/// The longest request that a server may be told.
const REQUEST_MS_MAX: u64 = 3_600_000;
/// What a request has around its query, or a chunk around its bytes.
const OVERHEAD_BYTES: usize = 256;
/// Chunks of which an upload has room for as many as it takes; ours are larger.
const CHUNK_BYTES_LEAST: usize = 64 << 10;
