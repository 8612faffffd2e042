//! How a training server runs: [`TrainServerSpec`], checked into `Settings`.

use std::path::PathBuf;
use std::time::Duration;

use hushtable_oram::wire::Terms;
use serde::{Deserialize, Serialize};

use super::{TrainError, TrainRefusal};
use crate::host::network::{Network, within};
use crate::{Error, NetworkSpec};

/// How a training server runs. Every field has a default.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(clippy::exhaustive_structs, reason = "a spec is written field by field")]
pub struct TrainServerSpec {
    /// Ports, TLS, limits of connections.
    #[serde(flatten)]
    pub network: NetworkSpec,
    /// A file whose one line the operator's calls must carry. None lets everyone who can connect
    /// open and end rounds, which `allow_open_operator` is about.
    pub operator_token_file: Option<PathBuf>,
    /// Let everyone take part who can reach the server, though other machines can. Without it, a
    /// server on another address than loopback takes a controller whose users are enrolled.
    pub allow_unenrolled: bool,
    /// Let everyone open and end rounds who can reach the server, though other machines can. Without
    /// it, a server on another address than loopback takes an operator's token, or TLS with a CA of
    /// clients.
    pub allow_open_operator: bool,
    /// Bytes of users' sealed rows that are kept until the round ends, to be given again where a reply
    /// was lost. Rows past that are made anew, for each user once a second. 256 MiB by default.
    pub rows_cache_bytes_max: usize,
    /// The folder that backups go to, on another disk than the controller's best. None writes none.
    pub backup_dir: Option<PathBuf>,
    /// A file to which rounds are written down as they are opened, begun and ended, and messages as they
    /// are refused: lines of JSON, chained by a key of the controller's. None writes nothing down.
    pub audit_log: Option<PathBuf>,
    /// How long requests are taken where OpenRound does not say, in milliseconds. 60,000 by default.
    pub request_ms: u64,
    /// How long uploads are waited for where OpenRound does not say, in milliseconds. 600,000 by
    /// default.
    pub upload_ms: u64,
    /// How long, behind the deadline for uploads, the operator is waited for where OpenRound does not
    /// say, in milliseconds: then the round ends without an update. 600,000 by default.
    pub finish_ms: u64,
}

impl Default for TrainServerSpec {
    fn default() -> Self {
        Self {
            network: NetworkSpec::default(),
            operator_token_file: None,
            allow_unenrolled: false,
            allow_open_operator: false,
            rows_cache_bytes_max: 256 << 20,
            backup_dir: None,
            audit_log: None,
            request_ms: 60_000,
            upload_ms: 600_000,
            finish_ms: 600_000,
        }
    }
}

/// How a round is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "a spec is written field by field")]
pub struct RoundSpec {
    /// Users that are expected: places of the round.
    pub users: usize,
    /// Users without which the round does not begin.
    pub users_min: usize,
    /// How long requests are taken; None for the server's own choice.
    pub request: Option<Duration>,
    /// How long uploads are waited for; None for the server's own choice.
    pub upload: Option<Duration>,
    /// How long, from then on, the server waits for [`TrainClient::finish`](super::TrainClient::finish)
    /// before it ends the round without an update; None for the server's own choice.
    pub finish: Option<Duration>,
}

impl RoundSpec {
    /// A round of `users` that begins with any number of them, by the server's deadlines.
    pub fn new(users: usize) -> Self {
        Self { users, users_min: 1, request: None, upload: None, finish: None }
    }
}

/// A checked [`TrainServerSpec`].
pub(super) struct Settings {
    pub backup_dir: Option<PathBuf>,
    pub operator_token: Option<Token>,
    pub request: Duration,
    pub upload: Duration,
    pub finish: Duration,
    /// How long one call may wait for a round to get on.
    pub wait_max: Duration,
    pub message_bytes_max: usize,
    pub rows_cache_bytes_max: usize,
    pub audit_log: Option<PathBuf>,
}

impl Settings {
    pub fn check(spec: TrainServerSpec, terms: &Terms) -> Result<(Self, Network), Error> {
        let addr = spec.network.addr;
        if !addr.ip().is_loopback() && terms.authority().is_none() && !spec.allow_unenrolled {
            return Err(TrainError::Unenrolled { addr }.into());
        }
        let has_client_ca = spec.network.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
        let is_known = spec.operator_token_file.is_some() || has_client_ca;
        if !addr.ip().is_loopback() && !is_known && !spec.allow_open_operator {
            return Err(TrainError::OpenOperator { addr }.into());
        }
        let shape = terms.shape();
        let range = 1..=DEADLINE_MS_MAX as usize;
        within("request_ms", spec.request_ms as usize, range.clone())?;
        within("upload_ms", spec.upload_ms as usize, range.clone())?;
        within("finish_ms", spec.finish_ms as usize, range)?;
        let message_bytes_max = shape.upload_bytes().max(terms.request_bytes()) + OVERHEAD_BYTES;
        // A call may hold its message, what it opens to, and a reply.
        let network = Network::check(spec.network, 2 * message_bytes_max + shape.reply_bytes())?;
        let operator_token = spec.operator_token_file.as_ref().map(Token::read).transpose()?;
        let settings = Self {
            backup_dir: spec.backup_dir,
            operator_token,
            request: Duration::from_millis(spec.request_ms),
            upload: Duration::from_millis(spec.upload_ms),
            finish: Duration::from_millis(spec.finish_ms),
            wait_max: network.request_max / 2,
            message_bytes_max,
            rows_cache_bytes_max: spec.rows_cache_bytes_max,
            audit_log: spec.audit_log,
        };
        Ok((settings, network))
    }

    /// A deadline of OpenRound.
    pub fn deadline(
        name: &str,
        milliseconds: u64,
        default: Duration,
    ) -> Result<Duration, TrainRefusal> {
        match milliseconds {
            0 => Ok(default),
            value if value <= DEADLINE_MS_MAX => Ok(Duration::from_millis(value)),
            value => {
                let (name, max) = (name.to_owned(), DEADLINE_MS_MAX);
                Err(TrainRefusal::BadSetting { name, value, min: 1, max })
            }
        }
    }
}

/// What the operator's calls carry.
pub(super) struct Token(zeroize::Zeroizing<Vec<u8>>);

impl Token {
    fn read(path: &PathBuf) -> Result<Self, Error> {
        let failed = |source| Error::Io {
            what: format!("read the operator's token from {}", path.display()),
            source,
        };
        let text = zeroize::Zeroizing::new(std::fs::read_to_string(path).map_err(failed)?);
        let token = text.trim_start_matches('\u{feff}').trim_end_matches(['\r', '\n']);
        let usable = token.len() >= TOKEN_BYTES_MIN && token.bytes().all(|b| b.is_ascii_graphic());
        match usable && token.len() <= TOKEN_BYTES_MAX {
            true => Ok(Self(token.as_bytes().to_vec().into())),
            false => Err(Error::Token { path: path.clone() }),
        }
    }

    /// Whether `given` is the token, in a time that tells nothing of where they differ.
    pub fn matches(&self, given: &[u8]) -> bool {
        subtle::ConstantTimeEq::ct_eq(self.0.as_slice(), given).into()
    }
}

/// A week.
const DEADLINE_MS_MAX: u64 = 7 * 86_400_000;
const TOKEN_BYTES_MIN: usize = 16;
const TOKEN_BYTES_MAX: usize = 1024;
/// Round, user and protobuf's own bytes.
const OVERHEAD_BYTES: usize = 64;
