//! The settings of servers, each described once: commands make flags, variables and help of them.
//!
//! A setting has one name. `request_ms_max` is a spec's field, the key in a file, the flag
//! `--request-ms-max` and the variable `HUSHTABLE_REQUEST_MS_MAX`; a dot in a name is a table in a
//! file, and `-` or `_` elsewhere.

mod network;

use hushtable_pir::dpf::Side;
use serde_json::Value;

use self::network::NETWORK;
use crate::{
    CkksServerSpec, HybridServerSpec, OnionServerSpec, ServerSpec, SharesServerSpec,
    TrainServerSpec,
};

/// One field of a server's spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Setting {
    /// The field; of a field of a field, both names with a dot between them.
    pub name: &'static str,
    /// What its value is.
    pub kind: Kind,
    /// What happens without it, in a few words, where its default is no value.
    pub unset: &'static str,
    /// What it does, in a sentence or two.
    pub help: &'static str,
}

/// What the value of a [`Setting`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// An address and a port, or none.
    Addr,
    /// A number of bytes.
    Bytes,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A number.
    Count,
    /// Yes or no.
    Flag,
    /// A number from 0 to 1.
    Fraction,
    /// A time in microseconds.
    Microseconds,
    /// A time in milliseconds.
    Milliseconds,
    /// Several words.
    Names,
    /// A file or folder, or none.
    Path,
    /// Several files or folders.
    Paths,
    /// A word.
    Text,
}

impl Kind {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Addr => "addr",
            Self::Bytes => "bytes",
            Self::Choice(_) => "choice",
            Self::Count => "count",
            Self::Flag => "flag",
            Self::Fraction => "fraction",
            Self::Microseconds | Self::Milliseconds => "time",
            Self::Names => "names",
            Self::Path => "path",
            Self::Paths => "paths",
            Self::Text => "text",
        }
    }

    /// What its numbers count, where they have a unit.
    pub fn unit(self) -> Option<&'static str> {
        match self {
            Self::Bytes => Some("bytes"),
            Self::Microseconds => Some("us"),
            Self::Milliseconds => Some("ms"),
            _ => None,
        }
    }
}

impl Setting {
    const fn new(name: &'static str, kind: Kind, unset: &'static str, help: &'static str) -> Self {
        Self { name, kind, unset, help }
    }
}

/// Whose settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Served {
    /// [`ServerSpec`]'s.
    Pair,
    /// [`OnionServerSpec`]'s.
    Onion,
    /// [`TrainServerSpec`]'s.
    Train,
    /// [`CkksServerSpec`]'s.
    Ckks,
    /// [`HybridServerSpec`]'s.
    Hybrid,
    /// [`SharesServerSpec`]'s.
    Shares,
}

impl Served {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Pair, Self::Onion, Self::Train, Self::Ckks, Self::Hybrid, Self::Shares];

    /// The name that a command takes.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pair => "pair",
            Self::Onion => "onion",
            Self::Train => "train",
            Self::Ckks => "infer",
            Self::Hybrid => "hybrid",
            Self::Shares => "shares",
        }
    }

    /// Every setting, in the order of a help page.
    pub fn settings(self) -> Vec<Setting> {
        let own = match self {
            Self::Pair => PAIR,
            Self::Onion => ONION,
            Self::Train => TRAIN,
            Self::Ckks => INFER,
            Self::Hybrid => HYBRID,
            Self::Shares => SHARES,
        };
        [own, NETWORK].concat()
    }

    /// The value that `setting` has where nobody gives one; null for none.
    pub fn default_of(self, setting: &Setting) -> Value {
        let spec = match self {
            Self::Pair => serde_json::to_value(ServerSpec::new("", Side::Left)),
            Self::Onion => serde_json::to_value(OnionServerSpec::new("")),
            Self::Train => serde_json::to_value(TrainServerSpec::default()),
            Self::Ckks => serde_json::to_value(CkksServerSpec::new("")),
            Self::Hybrid => serde_json::to_value(HybridServerSpec::new("")),
            Self::Shares => serde_json::to_value(SharesServerSpec::new("", Side::Left)),
        };
        let mut value = spec.unwrap_or_default();
        // What has no default is not what its spec's constructor was given.
        if REQUIRED.contains(&setting.name) {
            return Value::Null;
        }
        for part in setting.name.split('.') {
            value = value.get_mut(part).map(Value::take).unwrap_or_default();
        }
        value
    }
}

const REQUIRED: [&str; 3] = ["model", "side", "table"];

const SIDE: Setting =
    Setting::new("side", Kind::Choice(&["left", "right"]), "none", "Which of the two servers.");
const TABLE: Setting =
    Setting::new("table", Kind::Path, "none", "The folder of the bundle that is served.");
const TABLES: Setting = Setting::new(
    "tables",
    Kind::Paths,
    "",
    "More bundles, of tables or of models, to be served at the same address.",
);
const TABLES_BYTES_MAX: Setting = Setting::new(
    "tables_bytes_max",
    Kind::Bytes,
    "no limit",
    "Most bytes that all tables may take in memory; more are refused at the start.",
);
const WATCH: Setting = Setting::new(
    "watch",
    Kind::Path,
    "none",
    "A folder whose newest bundle is served in place of the one of its name, as soon as it is there.",
);
const PUSH_FOLDER: Setting = Setting::new(
    "push_folder",
    Kind::Path,
    "none",
    "Where bundles go that `hushtable table push` and `model push` bring, and are served from.",
);
const PUSH_TOKEN_FILE: Setting = Setting::new(
    "push_token_file",
    Kind::Path,
    "no pushes",
    "The file of the token that a push must have: one line, 16 characters or more.",
);
const KEEP_OLD_S: Setting = Setting::new(
    "keep_old_s",
    Kind::Count,
    "",
    "Seconds that an older version is kept after the last request for it.",
);
const KEEP_OLD_S_MAX: Setting = Setting::new(
    "keep_old_s_max",
    Kind::Count,
    "",
    "Seconds that an older version is kept at most, whoever asks for it.",
);
const THREADS: Setting =
    Setting::new("threads", Kind::Count, "", "Threads that answer; 0 for one a core.");
const WINDOW_US: Setting = Setting::new(
    "window_us",
    Kind::Microseconds,
    "the time of one pass",
    "Longest wait for others to share a pass.",
);
const BEST: &str = "what the engine does best";

const QUEUE_QUERIES_MAX: Setting =
    Setting::new("queue_queries_max", Kind::Count, "", "Most queries that wait; beyond, BUSY.");
const KEYS_FOLDER: Setting = Setting::new(
    "keys_folder",
    Kind::Path,
    "memory only",
    "Folder where clients' keys outlive a restart, of this server alone.",
);
const KEYS_MEMORY_BYTES_MAX: Setting = Setting::new(
    "keys_memory_bytes_max",
    Kind::Bytes,
    "",
    "Most bytes of clients' keys in memory, where they take almost four times what is uploaded.",
);
const KEYS_FOLDER_BYTES_MAX: Setting = Setting::new(
    "keys_folder_bytes_max",
    Kind::Bytes,
    "",
    "Most bytes of clients' keys in --keys-folder.",
);

const KEYS_BYTES_PER_PEER_MAX: Setting = Setting::new(
    "keys_bytes_per_peer_max",
    Kind::Bytes,
    "half of each",
    "Most bytes of the keys of one peer's clients, in memory and in --keys-folder.",
);

const SHARD: Setting = Setting::new(
    "shard",
    Kind::Count,
    "all of them",
    "Be a server of this shard of the rows, for fronts of this side alone.",
);
const SHARDS_FILE: Setting = Setting::new(
    "shards_file",
    Kind::Path,
    "it holds the rows itself",
    "Be a front: this TOML file says where each shard's servers are.",
);

const PAIR: &[Setting] = &[
    TABLE,
    TABLES,
    TABLES_BYTES_MAX,
    SIDE,
    SHARD,
    SHARDS_FILE,
    Setting::new(
        "device",
        Kind::Text,
        "",
        "What answers: cpu, cuda, cuda:NUMBER, or auto, a GPU where there is one.",
    ),
    Setting::new(
        "nvrtc_folders",
        Kind::Paths,
        "",
        "Folders with NVRTC, which compiles a GPU's kernels, beside the usual places.",
    ),
    THREADS,
    WINDOW_US,
    Setting::new("batch_keys_max", Kind::Count, BEST, "Most keys in a pass."),
    Setting::new(
        "keys_per_request_max",
        Kind::Count,
        "1024, less for long rows",
        "Most keys in a request.",
    ),
    Setting::new("queue_keys_max", Kind::Count, "", "Most keys that wait; beyond, BUSY."),
    Setting::new("batch_bags_max", Kind::Count, BEST, "Most inferences in a pass."),
    Setting::new("queue_bags_max", Kind::Count, "", "Most inferences that wait; beyond, BUSY."),
    Setting::new(
        "bags_per_request_max",
        Kind::Count,
        "256, less for large ones",
        "Most inferences in a request by a layout.",
    ),
    Setting::new("prgs", Kind::Names, "", "Generators that keys may use."),
    WATCH,
    PUSH_FOLDER,
    PUSH_TOKEN_FILE,
    KEEP_OLD_S,
    KEEP_OLD_S_MAX,
];

const ONION: &[Setting] = &[
    TABLE,
    TABLES,
    SHARD,
    Setting::new(
        "shards",
        Kind::Count,
        "what the model's map says",
        "How many shards there are, of which --shard is one.",
    ),
    SHARDS_FILE,
    TABLES_BYTES_MAX,
    Setting::new(
        "parameters",
        Kind::Choice(&["n4096_128", "ive_paper"]),
        "",
        "Parameter set. ive_paper has less than 128 bits by the 2024 guidelines.",
    ),
    Setting::new(
        "prepared",
        Kind::Path,
        "beside the bundle, BUNDLE.onion-PARAMETERS.prepared",
        "The prepared file, made at the start where it is missing or stale; none to prepare in \
         memory.",
    ),
    Setting::new(
        "mapped",
        Kind::Flag,
        "",
        "Answer from the prepared file itself, so that the system may drop what is not read, \
         instead of a copy in memory, which is faster.",
    ),
    THREADS,
    WINDOW_US,
    Setting::new("batch_queries_max", Kind::Count, BEST, "Most queries in a pass."),
    Setting::new(
        "queries_per_request_max",
        Kind::Count,
        "64, less for long rows",
        "Most queries in a request.",
    ),
    QUEUE_QUERIES_MAX,
    KEYS_FOLDER,
    KEYS_MEMORY_BYTES_MAX,
    KEYS_FOLDER_BYTES_MAX,
    KEYS_BYTES_PER_PEER_MAX,
    WATCH,
    PUSH_FOLDER,
    PUSH_TOKEN_FILE,
    KEEP_OLD_S,
    KEEP_OLD_S_MAX,
];

const TRAIN: &[Setting] = &[
    Setting::new(
        "operator_token_file",
        Kind::Path,
        "whoever connects may",
        "File with the token that opening and ending rounds takes.",
    ),
    Setting::new(
        "allow_unenrolled",
        Kind::Flag,
        "",
        "Serve other machines though everyone who connects may take part.",
    ),
    Setting::new(
        "allow_open_operator",
        Kind::Flag,
        "",
        "Serve other machines though everyone who connects may open and end rounds.",
    ),
    Setting::new(
        "backup_dir",
        Kind::Path,
        "writes none",
        "Folder that backups go to, when `hushtable train backup --url` asks for one.",
    ),
    Setting::new(
        "rows_cache_bytes_max",
        Kind::Bytes,
        "",
        "Sealed rows kept until the round ends, to be given again where a reply was lost.",
    ),
    Setting::new(
        "audit_log",
        Kind::Path,
        "none",
        "File to which rounds and refusals are written, in lines that are chained by a key.",
    ),
    Setting::new(
        "request_ms",
        Kind::Milliseconds,
        "",
        "How long requests are taken, where the operator does not say.",
    ),
    Setting::new(
        "upload_ms",
        Kind::Milliseconds,
        "",
        "How long uploads are waited for, where the operator does not say.",
    ),
    Setting::new(
        "finish_ms",
        Kind::Milliseconds,
        "",
        "How long, from then on, the operator is waited for: then a round ends without an update.",
    ),
];

const MODEL: Setting =
    Setting::new("model", Kind::Path, "none", "The folder of the model bundle that is computed.");
const PLAN: Setting =
    Setting::new("plan", Kind::Text, "the only one", "Which of the model's plans.");

const HYBRID: &[Setting] = &[
    MODEL,
    PLAN,
    THREADS,
    Setting::new(
        "store",
        Kind::Path,
        "memory only",
        "Folder where precomputes outlive a restart, of this process alone.",
    ),
    Setting::new(
        "store_key",
        Kind::Path,
        "key, in the folder",
        "File of the key that --store is sealed with; made where there is none.",
    ),
    Setting::new(
        "store_bytes_max",
        Kind::Bytes,
        "",
        "Most bytes of precomputes; beyond, BUSY until some are used.",
    ),
    Setting::new(
        "precomputes_max",
        Kind::Count,
        "",
        "Most precomputes that are being made at once; beyond, BUSY.",
    ),
    Setting::new(
        "precompute_idle_ms_max",
        Kind::Milliseconds,
        "",
        "How long a precompute that is being made may rest before it is dropped.",
    ),
    Setting::new(
        "precompute_hours_max",
        Kind::Count,
        "",
        "How many hours a precompute waits to be used before it is dropped.",
    ),
    Setting::new("predictions_max", Kind::Count, "", "Most predictions at once; beyond, BUSY."),
    Setting::new("client_garbles", Kind::Flag, "", "Let clients garble the circuits."),
    Setting::new("server_garbles", Kind::Flag, "", "Garble circuits for clients."),
];

const INFER: &[Setting] = &[
    MODEL,
    PLAN,
    THREADS,
    QUEUE_QUERIES_MAX,
    KEYS_FOLDER,
    KEYS_MEMORY_BYTES_MAX,
    KEYS_FOLDER_BYTES_MAX,
    KEYS_BYTES_PER_PEER_MAX,
];

const SHARES: &[Setting] = &[
    MODEL,
    SIDE,
    Setting::new(
        "peer",
        Kind::Text,
        "right has none",
        "Where right is, https://host:port: left calls it.",
    ),
    Setting::new(
        "peer_ca",
        Kind::Path,
        "whoever connects from this machine",
        "The authority of the other server's certificate, a PEM file.",
    ),
    Setting::new(
        "peer_cert",
        Kind::Path,
        "that of tls.cert",
        "The certificate that left shows to right, a PEM file.",
    ),
    Setting::new("peer_key", Kind::Path, "that of tls.key", "Its key, a PEM file."),
    PLAN,
    THREADS,
    Setting::new(
        "batch_inferences_max",
        Kind::Count,
        "",
        "Most inferences whose rows are looked up in one pass.",
    ),
    Setting::new("inferences_max", Kind::Count, "", "Most inferences at once; beyond, BUSY."),
    Setting::new(
        "silence_ms_max",
        Kind::Milliseconds,
        "",
        "How long the other server may be silent about an inference.",
    ),
    Setting::new(
        "dealer",
        Kind::Choice(&["client", "servers"]),
        "",
        "Who deals what an inference takes: the client, or both servers beforehand. Both must have the same.",
    ),
    Setting::new(
        "precomputes",
        Kind::Path,
        "none, where clients deal",
        "Folder for what the servers dealt, of this process alone.",
    ),
    Setting::new(
        "precomputes_key",
        Kind::Path,
        "key, in the folder",
        "File of the key that --precomputes is sealed with; made where there is none.",
    ),
    Setting::new("precomputes_bytes_max", Kind::Bytes, "", "Most bytes of what the servers dealt."),
    Setting::new(
        "refill_percent",
        Kind::Count,
        "",
        "Hundredths of one core that dealing may take, 1 to 100.",
    ),
    Setting::new("refill_batch", Kind::Count, "", "Inferences that are dealt for at once."),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use hushtable_pir::onion::ParameterSet;

    use super::*;
    use crate::TlsSpec;

    fn fields(value: &Value, prefix: &str, found: &mut BTreeSet<String>) {
        for (name, value) in value.as_object().unwrap() {
            match value.is_object() {
                true => fields(value, &format!("{prefix}{name}."), found),
                false => drop(found.insert(format!("{prefix}{name}"))),
            }
        }
    }

    /// A spec with every part in it.
    fn whole(served: Served) -> Value {
        let tls = || {
            let file = || "file".into();
            Some(TlsSpec {
                cert: file(),
                key: file(),
                client_ca: None,
                client_name: None,
                peer_ca: None,
            })
        };
        match served {
            Served::Pair => {
                serde_json::to_value(ServerSpec { tls: tls(), ..ServerSpec::new("", Side::Left) })
            }
            Served::Onion => {
                let mut spec = OnionServerSpec::new("");
                spec.network.tls = tls();
                serde_json::to_value(spec)
            }
            Served::Train => {
                let mut spec = TrainServerSpec::default();
                spec.network.tls = tls();
                serde_json::to_value(spec)
            }
            Served::Ckks => {
                let mut spec = CkksServerSpec::new("");
                spec.network.tls = tls();
                serde_json::to_value(spec)
            }
            Served::Hybrid => {
                let mut spec = HybridServerSpec::new("");
                spec.network.tls = tls();
                serde_json::to_value(spec)
            }
            Served::Shares => {
                let mut spec = SharesServerSpec::new("", Side::Left);
                spec.network.tls = tls();
                serde_json::to_value(spec)
            }
        }
        .unwrap()
    }

    #[test]
    fn every_field_of_every_spec_is_described_and_nothing_else() {
        for served in Served::ALL {
            let mut found = BTreeSet::new();
            fields(&whole(served), "", &mut found);
            let settings = served.settings();
            let described: BTreeSet<_> = settings.iter().map(|s| s.name.to_owned()).collect();
            assert_eq!(described, found, "{}", served.name());
            assert_eq!(settings.len(), described.len(), "{}: a name twice", served.name());
        }
    }

    #[test]
    fn a_default_is_the_specs_and_where_there_is_none_words_say_what_happens() {
        let default = |served: Served, name: &str| {
            let settings = served.settings();
            served.default_of(settings.iter().find(|s| s.name == name).unwrap())
        };
        assert_eq!(default(Served::Pair, "request_ms_max"), 60_000);
        assert_eq!(
            default(Served::Pair, "prgs"),
            serde_json::json!(["aes128", "chacha20", "chacha12"])
        );
        assert_eq!(default(Served::Pair, "side"), Value::Null);
        assert_eq!(default(Served::Onion, "parameters"), "n4096_128");
        assert_eq!(default(Served::Train, "metrics_addr"), "127.0.0.1:4001");
        for served in Served::ALL {
            for setting in served.settings() {
                let is_unset = served.default_of(&setting).is_null();
                assert_eq!(is_unset, !setting.unset.is_empty(), "{}", setting.name);
            }
        }
    }

    #[test]
    fn a_name_that_two_specs_share_is_one_setting() {
        for served in Served::ALL {
            for setting in served.settings() {
                for other in Served::ALL.into_iter().flat_map(Served::settings) {
                    assert!(other.name != setting.name || other == setting, "{}", setting.name);
                }
            }
        }
    }

    #[test]
    fn kinds_are_what_the_specs_take() {
        for served in Served::ALL {
            for setting in served.settings() {
                let value = served.default_of(&setting);
                let fits = match setting.kind {
                    Kind::Bytes | Kind::Count | Kind::Microseconds | Kind::Milliseconds => {
                        value.is_u64()
                    }
                    Kind::Flag => value.is_boolean(),
                    Kind::Fraction => value.is_f64(),
                    Kind::Names | Kind::Paths => value.is_array(),
                    Kind::Choice(words) => words.iter().any(|word| value == *word),
                    Kind::Addr | Kind::Path | Kind::Text => value.is_string(),
                };
                assert!(fits || value.is_null(), "{}: {value}", setting.name);
            }
        }
    }
    #[test]
    fn the_words_of_a_choice_are_those_that_are_taken() {
        let parameters = ONION.iter().find(|s| s.name == "parameters").unwrap();
        let Kind::Choice(words) = parameters.kind else { panic!("{:?}", parameters.kind) };
        assert_eq!(words, ParameterSet::ALL.map(ParameterSet::name));
        let Kind::Choice(words) = SIDE.kind else { panic!("{:?}", SIDE.kind) };
        assert_eq!(words, [Side::Left, Side::Right].map(Side::name));
    }
}
