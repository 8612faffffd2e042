//! How a server of predictions on shares runs: [`SharesServerSpec`], checked into `Settings`.

use std::path::PathBuf;
use std::time::Duration;

use hushtable_infer::shares::DealtBy;
use hushtable_infer::shares::exchange::ExchangeSpec;
use hushtable_infer::shares::joint::{BATCH_MAX, DealError, StockError, check};
use hushtable_infer::store::StoreSpec;
use hushtable_pir::dpf::Side;
use serde::{Deserialize, Serialize};

use super::SharesInfo;
use super::right::Right;
use crate::error::Own;
use crate::host::network::{Network, within, within_u64};
use crate::{EndpointSpec, Error, NetworkSpec};

/// How a server of predictions on shares runs. Every field but `model`, `side` and, at left, `peer` has a default.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(clippy::exhaustive_structs, reason = "a spec is written field by field")]
pub struct SharesServerSpec {
    /// A model bundle's folder.
    pub model: PathBuf,
    /// Which of the two servers this is.
    #[serde(with = "crate::schemes::side_name")]
    pub side: Side,
    /// Left: where right is, `https://host:port`. Right is called by left, and needs no address.
    #[serde(default)]
    pub peer: Option<String>,
    /// PEM file: the authority that the other server's certificate comes from. Its certificate must have the
    /// name [`peer_name`].
    #[serde(default)]
    pub peer_ca: Option<PathBuf>,
    /// Left: PEM files of the certificate and key that it proves itself with to right; those of `tls` by default.
    #[serde(default)]
    pub peer_cert: Option<PathBuf>,
    /// Left: the key of `peer_cert`.
    #[serde(default)]
    pub peer_key: Option<PathBuf>,
    /// Which of the bundle's plans; none for its only one for shares.
    #[serde(default)]
    pub plan: Option<String>,
    /// Ports, TLS, limits of connections.
    #[serde(flatten)]
    pub network: NetworkSpec,
    /// Threads that pass over the tables; 0 (the default) for one a core.
    #[serde(default)]
    pub threads: usize,
    /// Most inferences whose rows are looked up in one pass.
    #[serde(default = "default_batch_max")]
    pub batch_inferences_max: usize,
    /// Most inferences under way; beyond, requests are refused with a hint when to retry.
    #[serde(default = "default_inferences_max")]
    pub inferences_max: usize,
    /// How long the other server may be silent about an inference, in milliseconds.
    #[serde(default = "default_silence_ms_max")]
    pub silence_ms_max: u64,
    /// Who deals what an inference takes: `client`, or both `servers`, beforehand, so that no client learns more of the model
    /// than predictions say. Both servers must have the same.
    #[serde(default)]
    pub dealer: DealtBy,
    /// Where the servers deal: a folder for what they have dealt, of this process alone.
    #[serde(default)]
    pub precomputes: Option<PathBuf>,
    /// The file of the key that it is sealed with, made where there is none; in the folder by default.
    #[serde(default)]
    pub precomputes_key: Option<PathBuf>,
    /// The folder of the ledger that says what of it may still be used: outside of it, on storage that is not put back
    /// together with it. Where this machine keeps its state by default.
    #[serde(default)]
    pub precomputes_ledger: Option<PathBuf>,
    /// Most bytes that it may take.
    #[serde(default = "default_precomputes_bytes_max")]
    pub precomputes_bytes_max: u64,
    /// How many hundredths of one core dealing may take, 1 to 100.
    #[serde(default = "default_refill_percent")]
    pub refill_percent: u64,
    /// Inferences that are dealt for at once: more take fewer messages for each, and more memory.
    #[serde(default = "default_refill_batch")]
    pub refill_batch: usize,
}

impl SharesServerSpec {
    /// The defaults for a side of a model.
    pub fn new(model: impl Into<PathBuf>, side: Side) -> Self {
        Self {
            model: model.into(),
            side,
            peer: None,
            peer_ca: None,
            peer_cert: None,
            peer_key: None,
            plan: None,
            network: NetworkSpec::default(),
            threads: 0,
            batch_inferences_max: default_batch_max(),
            inferences_max: default_inferences_max(),
            silence_ms_max: default_silence_ms_max(),
            dealer: DealtBy::Client,
            precomputes: None,
            precomputes_key: None,
            precomputes_ledger: None,
            precomputes_bytes_max: default_precomputes_bytes_max(),
            refill_percent: default_refill_percent(),
            refill_batch: default_refill_batch(),
        }
    }
}

impl SharesServerSpec {
    /// Where what the servers deal is kept.
    pub(super) fn store(&self) -> Option<StoreSpec> {
        let folder = self.precomputes.clone()?;
        let key = self.precomputes_key.clone().unwrap_or_else(|| folder.join("key"));
        let ledger = self.precomputes_ledger.clone().into();
        Some(StoreSpec { folder, bytes_max: self.precomputes_bytes_max, key, ledger })
    }
}

/// The DNS name that a server's certificate must have for the other one.
pub fn peer_name(side: Side) -> String {
    format!("peer.{}.hushtable.internal", side.name())
}

/// What is wrong with how two servers are to meet.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PeerError {
    /// Left does not know where right is.
    #[error(
        "left has no peer: give it right's address (--peer https://host:port); right waits for left's call"
    )]
    NoAddress,
    /// Right is not to call.
    #[error(
        "right has a peer, {url}: it is left that calls, so give left the address of this server instead"
    )]
    Address {
        /// What it was given.
        url: String,
    },
    /// Other machines reach a server that lets anybody be its peer.
    #[error(
        "right is reached by other machines and does not know whom left's certificate comes from: give peer_ca. \
         Left's certificate must have the name {name}"
    )]
    NoAuthority {
        /// The name.
        name: String,
    },
    /// An authority without TLS, which no certificate would be held against.
    #[error(
        "peer_ca is for TLS, which right does not have: give tls.cert and tls.key, or leave peer_ca out"
    )]
    NoTls,
    /// Two authorities for certificates of clients, of which one alone is asked.
    #[error(
        "tls.client_ca and peer_ca are different files: whoever makes clients' certificates could make left's. Leave \
         tls.client_ca out, so that clients need no certificate, or give the same file for both"
    )]
    TwoAuthorities,
    /// Servers that deal have nowhere to keep it.
    #[error(
        "the servers are to deal, and this one has no folder for what they dealt: give precomputes a folder of its own"
    )]
    NoFolder,
    /// Servers cannot deal for the model.
    #[error("the servers are to deal, and cannot for this model: {0}")]
    Dealing(#[source] Box<DealError>),
    /// What servers dealt cannot be opened.
    #[error("what the servers dealt cannot be opened: {0}")]
    Stock(#[source] Box<StockError>),
    /// A certificate without its key, or the other way round.
    #[error("peer_cert and peer_key go together: give both or none")]
    HalfIdentity,
}

impl Own for PeerError {}
/// The errors of predictions on shares: features, plans, shares.
impl Own for hushtable_infer::shares::Error {}

/// A checked [`SharesServerSpec`].
pub(super) struct Settings {
    pub spec: SharesServerSpec,
    pub exchange: ExchangeSpec,
    /// Right, at left.
    pub peer: Option<(Right, EndpointSpec)>,
    /// The name that left's certificate must have, at right.
    pub peer_name: Option<String>,
    pub message_bytes_max: usize,
}

impl Settings {
    /// Checks `spec` for a server of what `info` describes.
    pub fn check(mut spec: SharesServerSpec, info: &SharesInfo) -> Result<(Self, Network), Error> {
        within("threads", spec.threads, 0..=4096)?;
        within("batch_inferences_max", spec.batch_inferences_max, 1..=1 << 12)?;
        within("inferences_max", spec.inferences_max, 1..=1 << 16)?;
        within_u64("silence_ms_max", spec.silence_ms_max, 10..=600_000)?;
        within("refill_batch", spec.refill_batch, 1..=BATCH_MAX)?;
        within_u64("precomputes_bytes_max", spec.precomputes_bytes_max, 1..=1 << 50)?;
        within_u64("refill_percent", spec.refill_percent, 1..=100)?;
        if spec.dealer == DealtBy::Servers {
            check(&info.outline).map_err(|error| PeerError::Dealing(Box::new(error)))?;
            if spec.precomputes.is_none() {
                return Err(PeerError::NoFolder.into());
            }
        }
        if spec.peer_cert.is_some() != spec.peer_key.is_some() {
            return Err(PeerError::HalfIdentity.into());
        }
        let (mut peer, mut name) = (None, None);
        match (spec.side, spec.peer.clone()) {
            (Side::Left, None) => return Err(PeerError::NoAddress.into()),
            (Side::Right, Some(url)) => return Err(PeerError::Address { url }.into()),
            (Side::Left, Some(url)) => peer = Some(Right::of(&spec, url)?),
            (Side::Right, None) => {
                let NetworkSpec { addr, insecure, tls, .. } = &mut spec.network;
                let left = peer_name(Side::Left);
                match (tls, &spec.peer_ca) {
                    (Some(tls), Some(ca)) => {
                        if tls.client_ca.as_ref().is_some_and(|clients| clients != ca) {
                            return Err(PeerError::TwoAuthorities.into());
                        }
                        tls.peer_ca = Some(ca.clone());
                        name = Some(left);
                    }
                    (None, Some(_)) => return Err(PeerError::NoTls.into()),
                    // Without TLS, `insecure` says that something else encrypts the way, and knows who calls.
                    (tls, None) if !addr.ip().is_loopback() && (tls.is_some() || !*insecure) => {
                        return Err(PeerError::NoAuthority { name: left }.into());
                    }
                    (_, None) => {}
                }
            }
        }
        let message_bytes_max = request_bytes(info)?.max(FRAMES_BYTES_MAX);
        let network = Network::check(spec.network.clone(), message_bytes_max)?;
        let silence_max = Duration::from_millis(spec.silence_ms_max);
        let exchange = ExchangeSpec { inferences_max: spec.inferences_max, silence_max };
        Ok((Self { spec, exchange, peer, peer_name: name, message_bytes_max }, network))
    }
}

/// Bytes of the largest request: one part, and what its fields take.
fn request_bytes(info: &SharesInfo) -> Result<usize, Error> {
    let keys = info.domains()?.into_iter().zip(&info.outline.lookups);
    // A key is a root, a word a level and some for a leaf.
    let keys: usize =
        keys.map(|(domain, it)| it.rows * (KEY_BYTES + 18 * domain.depth() as usize)).sum();
    let outline = &info.outline;
    let dealt = outline.common_bytes() + outline.left_bytes().max(outline.right_bytes());
    Ok(keys + dealt + OVERHEAD_BYTES)
}

fn default_batch_max() -> usize {
    32
}

fn default_inferences_max() -> usize {
    1024
}

fn default_silence_ms_max() -> u64 {
    5_000
}

fn default_precomputes_bytes_max() -> u64 {
    1 << 30
}

fn default_refill_percent() -> u64 {
    50
}

fn default_refill_batch() -> usize {
    4
}

/// More than a lookup key has beside its levels.
const KEY_BYTES: usize = 128;
/// What a request has around its parts.
const OVERHEAD_BYTES: usize = 1024;
/// More than a frame has.
const FRAMES_BYTES_MAX: usize = 2 * super::FRAME_BYTES_MAX;
