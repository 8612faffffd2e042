//! The settings of servers, each described once: commands make flags, variables and help of them. Here are those that
//! several schemes have; a scheme's own lie in its folder.
//!
//! A setting has one name. `request_ms_max` is a spec's field, the key in a file, the flag
//! `--request-ms-max` and the variable `HUSHTABLE_REQUEST_MS_MAX`; a dot in a name is a table in a
//! file, and `-` or `_` elsewhere.

mod network;

pub(crate) use self::network::NETWORK;

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
    pub(crate) const fn new(
        name: &'static str,
        kind: Kind,
        unset: &'static str,
        help: &'static str,
    ) -> Self {
        Self { name, kind, unset, help }
    }
}

pub(crate) const SIDE: Setting =
    Setting::new("side", Kind::Choice(&["left", "right"]), "none", "Which of the two servers.");
pub(crate) const TABLE: Setting =
    Setting::new("table", Kind::Path, "none", "The folder of the bundle that is served.");
pub(crate) const TABLES: Setting = Setting::new(
    "tables",
    Kind::Paths,
    "",
    "More bundles, of tables or of models, to be served at the same address.",
);
pub(crate) const TABLES_BYTES_MAX: Setting = Setting::new(
    "tables_bytes_max",
    Kind::Bytes,
    "no limit",
    "Most bytes that all tables may take in memory; more are refused at the start.",
);
pub(crate) const WATCH: Setting = Setting::new(
    "watch",
    Kind::Path,
    "none",
    "A folder whose newest bundle is served in place of the one of its name, as soon as it is there.",
);
pub(crate) const PUSH_FOLDER: Setting = Setting::new(
    "push_folder",
    Kind::Path,
    "none",
    "Where bundles go that `hushtable table push` and `model push` bring, and are served from.",
);
pub(crate) const PUSH_TOKEN_FILE: Setting = Setting::new(
    "push_token_file",
    Kind::Path,
    "no pushes",
    "The file of the token that a push must have: one line, 16 characters or more.",
);
pub(crate) const KEEP_OLD_S: Setting = Setting::new(
    "keep_old_s",
    Kind::Count,
    "",
    "Seconds that an older version is kept after the last request for it.",
);
pub(crate) const KEEP_OLD_S_MAX: Setting = Setting::new(
    "keep_old_s_max",
    Kind::Count,
    "",
    "Seconds that an older version is kept at most, whoever asks for it.",
);
pub(crate) const THREADS: Setting =
    Setting::new("threads", Kind::Count, "", "Threads that answer; 0 for one a core.");
pub(crate) const WINDOW_US: Setting = Setting::new(
    "window_us",
    Kind::Microseconds,
    "the time of one pass",
    "Longest wait for others to share a pass.",
);
pub(crate) const BEST: &str = "what the engine does best";

pub(crate) const QUEUE_QUERIES_MAX: Setting =
    Setting::new("queue_queries_max", Kind::Count, "", "Most queries that wait; beyond, BUSY.");
pub(crate) const KEYS_FOLDER: Setting = Setting::new(
    "keys_folder",
    Kind::Path,
    "memory only",
    "Folder where clients' keys outlive a restart, of this server alone.",
);
pub(crate) const KEYS_MEMORY_BYTES_MAX: Setting = Setting::new(
    "keys_memory_bytes_max",
    Kind::Bytes,
    "",
    "Most bytes of clients' keys in memory, where they take almost four times what is uploaded.",
);
pub(crate) const KEYS_FOLDER_BYTES_MAX: Setting = Setting::new(
    "keys_folder_bytes_max",
    Kind::Bytes,
    "",
    "Most bytes of clients' keys in --keys-folder.",
);

pub(crate) const KEYS_BYTES_PER_PEER_MAX: Setting = Setting::new(
    "keys_bytes_per_peer_max",
    Kind::Bytes,
    "half of each",
    "Most bytes of the keys of one peer's clients, in memory and in --keys-folder.",
);

pub(crate) const SHARD: Setting = Setting::new(
    "shard",
    Kind::Count,
    "all of them",
    "Be a server of this shard of the rows, for fronts of this side alone.",
);
pub(crate) const SHARDS_FILE: Setting = Setting::new(
    "shards_file",
    Kind::Path,
    "it holds the rows itself",
    "Be a front: this TOML file says where each shard's servers are.",
);

pub(crate) const MODEL: Setting =
    Setting::new("model", Kind::Path, "none", "The folder of the model bundle that is computed.");
pub(crate) const PLAN: Setting =
    Setting::new("plan", Kind::Text, "the only one", "Which of the model's plans.");
