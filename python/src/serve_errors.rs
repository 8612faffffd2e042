//! Errors of servers and clients to the classes of `hushtable.errors`.

use hushtable_serve::host::{PushRefusal, ReloadError};
use hushtable_serve::{Error as ServeError, KeysRefusal, NoCollector, Refusal};
use hushtable_table::model::ModelError;

use crate::errors::Failure;
use crate::schemes::SCHEMES;

/// The scheme of the service that a server says it offers, and how it is asked.
fn spoken(message: &str) -> Option<(&'static str, &'static str)> {
    let (_, offered) = message.split_once("this server offers ")?;
    let is_offered = |service: &str| offered.split(", ").any(|name| name == service);
    let scheme = hushtable_serve::SCHEMES.iter().find(|scheme| is_offered(scheme.service))?;
    Some((scheme.name, scheme.asked))
}

impl From<ServeError> for Failure {
    fn from(error: ServeError) -> Self {
        let class = match &error {
            ServeError::Pir(_)
            | ServeError::Table { .. }
            | ServeError::Bag(_)
            | ServeError::Own(_)
            | ServeError::Refused { .. } => "",
            ServeError::Exposed { .. }
            | ServeError::Setting { .. }
            | ServeError::PrgName { .. }
            | ServeError::ParameterSet { .. }
            | ServeError::Url { .. }
            | ServeError::PlainText { .. }
            | ServeError::NoCa { .. }
            | ServeError::Pem { .. }
            | ServeError::Tls { .. }
            | ServeError::Certificate { .. }
            | ServeError::Expired { .. }
            | ServeError::Token { .. }
            | ServeError::TokenText
            | ServeError::Prg { .. } => "ConfigError",
            ServeError::SidesSwapped { .. } | ServeError::SameSide { .. } => "SwappedServers",
            ServeError::TablesDiffer { .. }
            | ServeError::AnnouncementsDiffer { .. }
            | ServeError::LayoutsDiffer { .. } => "VersionMismatch",
            ServeError::ModelsDiffer { .. } | ServeError::VersionMismatch { .. } => {
                "VersionMismatch"
            }
            ServeError::ModelUnserved { .. } => "UnknownModel",
            ServeError::Manifest(ModelError::UnknownFeature { .. }) => "UnknownFeature",
            ServeError::Manifest(_)
            | ServeError::Model { .. }
            | ServeError::ModelTable { .. }
            | ServeError::ModelTwice { .. }
            | ServeError::PlanScheme { .. }
            | ServeError::SelfCheckLogit { .. } => "ModelError",
            ServeError::KeyBytes { .. }
            | ServeError::NoTables { .. }
            | ServeError::SeveralPlans { .. } => "ConfigError",
            ServeError::TablesBudget { .. } | ServeError::FeatureTwice { .. } => "ConfigError",
            ServeError::FeatureIds { .. } => "TooManyIds",
            ServeError::FeatureIdRange { .. } => "IdOutOfRange",
            ServeError::ParametersRefused { .. } => "ParametersRefused",
            ServeError::NoLayout { .. } => "NoLayout",
            ServeError::LayoutBytes { .. } => "LayoutError",
            ServeError::MaxIds { .. } => "TooManyIds",
            ServeError::SpeaksTls { .. } => "TlsError",
            ServeError::Unavailable { url, reason } if is_tls_failure(url, reason) => "TlsError",
            ServeError::Unavailable { .. } => "ServerUnavailable",
            ServeError::Late { .. } | ServeError::Timeout { .. } => "ServerTimeout",
            ServeError::Rows { .. } | ServeError::Reply { .. } | ServeError::Unserved { .. } => {
                "ProtocolError"
            }
            ServeError::SelfCheck { .. } => "DamagedTable",
            ServeError::Remote { .. } => "ServerError",
            _ => "Error",
        };
        let failure = Self::new(class, &error);
        match error {
            ServeError::Pir(error) => error.into(),
            ServeError::Bag(error) => error.into(),
            ServeError::Own(error) => own(error),
            ServeError::Refused { refusal, .. } => refused(&refusal, failure.message()),
            ServeError::Unserved { url, message } => match spoken(&message) {
                Some((scheme, how)) => Self::new(
                    class,
                    format!("{url} speaks {scheme}, and was asked by another scheme: ask it {how}"),
                ),
                None => failure,
            },
            ServeError::Table { source, .. } => (*source).into(),
            ServeError::MaxIds { max_ids, keys_max, .. } => {
                failure.count("ids", max_ids as u64).count("max_ids", keys_max as u64)
            }
            ServeError::TablesDiffer { left_version, right_version, .. } => {
                failure.text("left", left_version).text("right", right_version)
            }
            ServeError::ModelsDiffer { versions, .. } => {
                let [left, right] = *versions;
                failure.text("left", left).text("right", right)
            }
            ServeError::VersionMismatch { expected, found, .. } => {
                let found = found.map_or_else(String::new, |version| version.to_string());
                failure.text("expected", expected).text("found", found)
            }
            ServeError::Manifest(ModelError::UnknownFeature { feature, .. }) => {
                failure.text("feature", feature)
            }
            ServeError::FeatureIds { feature, ids, max_ids } => failure
                .count("ids", ids as u64)
                .count("max_ids", max_ids as u64)
                .text("feature", feature),
            ServeError::FeatureIdRange { feature, id, rows } => {
                failure.count("id", id).count("rows", rows).text("feature", feature)
            }
            ServeError::ParametersRefused { announced, accepted, .. } => {
                let accepted: Vec<_> = accepted.iter().map(|set| set.name()).collect();
                failure.text("announced", announced).text("accepted", accepted.join(","))
            }
            ServeError::LayoutsDiffer { versions, .. } => {
                let [left, right] =
                    versions.map(|version| version.map_or_else(String::new, |v| v.to_string()));
                failure.text("left", left).text("right", right)
            }
            _ => failure,
        }
    }
}

/// An error that belongs to one part.
pub(crate) type Own = Box<dyn std::error::Error + Send + Sync>;

/// Takes an error for what it is; gives it back where it is another.
pub(crate) type Reads = fn(Own) -> Result<Failure, Own>;

/// Of errors that say by themselves what they are to Python.
pub(crate) fn known<E: std::error::Error + Into<Failure> + 'static>(
    error: Own,
) -> Result<Failure, Own> {
    error.downcast::<E>().map(|known| (*known).into())
}

/// Of errors of what was asked for.
pub(crate) fn config<E: std::error::Error + 'static>(error: Own) -> Result<Failure, Own> {
    error.downcast::<E>().map(Failure::config)
}

fn own(mut error: Own) -> Failure {
    let hosts: &[Reads] = &[config::<NoCollector>, config::<ReloadError>];
    for read in SCHEMES.iter().flat_map(|scheme| scheme.errors).chain(hosts) {
        error = match read(error) {
            Ok(known) => return known,
            Err(other) => other,
        };
    }
    Failure::new("Error", error)
}

/// What a server said no by, under the text that the client gave it.
fn refused(refusal: &Refusal, text: &str) -> Failure {
    let of = |class| Failure::new(class, text);
    let class = match refusal {
        Refusal::Busy { retry_after, .. } => {
            return of("ServerBusy").number("retry_after", retry_after.as_secs_f64());
        }
        Refusal::ShardAbsent { shard, retry_after } => {
            let failure = of("ShardAbsent").count("shard", *shard as u64);
            return failure.number("retry_after", retry_after.as_secs_f64());
        }
        Refusal::Draining => "ServerUnavailable",
        Refusal::VersionSkew { .. } => "VersionMismatch",
        Refusal::UnknownModel { .. } | Refusal::UnknownTable { .. } => "UnknownModel",
        Refusal::Backend => "ServerError",
        _ => "ProtocolError",
    };
    if let Some(failure) = SCHEMES.iter().find_map(|scheme| (scheme.refused)(refusal, &of)) {
        return failure;
    }
    if let Some(refusal) = refusal.of::<KeysRefusal>() {
        return of(match refusal {
            KeysRefusal::BadKeyId { .. } | KeysRefusal::BadKeys { .. } => "KeyFormatError",
            KeysRefusal::UnknownKeys { .. } => "UnknownKeys",
            KeysRefusal::KeysBudget { .. } => "ServerError",
            _ => class,
        });
    }
    if let Some(refusal) = refusal.of::<PushRefusal>() {
        return match refusal {
            PushRefusal::PushUnderWay { retry_after } => {
                of("ServerBusy").number("retry_after", retry_after.as_secs_f64())
            }
            PushRefusal::PushToken => of("OperatorOnly"),
            PushRefusal::PushLate { .. } => of("ServerTimeout"),
            PushRefusal::PushUnwritable { .. } => of("ServerError"),
            _ => of("PushRefused").text("reason", refusal.reason()),
        };
    }
    of(class)
}

pub(crate) fn too_many(failure: Failure, found: usize, most: usize) -> Failure {
    failure.count("ids", found as u64).count("max_ids", most as u64)
}

/// Whether a connection failed over TLS. The transport hands on its reason as text only.
fn is_tls_failure(url: &str, reason: &str) -> bool {
    let about_tls = ["certificate", "corrupt message", "TLS", "tls", "handshake", "UnknownIssuer"];
    url.starts_with("https:") && about_tls.iter().any(|word| reason.contains(word))
}
