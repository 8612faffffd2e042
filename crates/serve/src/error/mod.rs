//! What can go wrong at a server's start and at a client, and what to do about it.

mod own;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use hushtable_pir::PrgKind;
use hushtable_pir::dpf::Side;
use hushtable_pir::onion::ParameterSet;
use hushtable_table::Version;
use hushtable_table::layout::LayoutError;
use hushtable_table::model::ModelError;

pub use hushtable_pir::client::ReplyDefect;

pub use self::own::Own;
use crate::refusal::Refusal;

/// An error of this crate. Fields carry the facts; `Display` names the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An error that one part of this crate has, or what it computes by: [`Error::of`] finds it by its type.
    #[error(transparent)]
    Own(Box<dyn std::error::Error + Send + Sync>),
    /// A server without TLS would be reachable from other machines.
    #[error(
        "{addr} is reachable from other machines and there is no TLS: give a certificate and its \
         key, or say `insecure` if something else encrypts the way"
    )]
    Exposed {
        /// The address asked for.
        addr: SocketAddr,
    },
    /// A setting outside its range.
    #[error("{name} is {value}, but must be {min} to {max}")]
    Setting {
        /// The setting.
        name: &'static str,
        /// Its value.
        value: u64,
        /// The least it may be.
        min: u64,
        /// The most it may be.
        max: u64,
    },
    /// A generator's name that no generator has, or an empty list of them.
    #[error("prgs names {name:?}: list one or more of {}", prg_names())]
    PrgName {
        /// The name; empty for an empty list.
        name: String,
    },
    /// A PEM file without what it should hold.
    #[error("{from} holds no {expected} in PEM form (\"-----BEGIN ...\"): {reason}")]
    Pem {
        /// The file, or what the bytes are.
        from: String,
        /// What was looked for.
        expected: &'static str,
        /// The reader's reason.
        reason: String,
    },
    /// A certificate, key or CA that TLS cannot work with.
    #[error("{from} cannot be used for TLS: {reason}")]
    Tls {
        /// The file, or what the bytes are.
        from: String,
        /// The TLS library's reason.
        reason: String,
    },
    /// A certificate that may not be used any more.
    #[error(
        "the certificate of {from} expired on {at}, by this machine's clock: have its authority issue another \
         one, and put it in the file's place"
    )]
    Expired {
        /// The file.
        from: String,
        /// The date.
        at: String,
    },
    /// A certificate that could not be made.
    #[error("no certificate could be made for {names:?}: {reason}")]
    Certificate {
        /// The names asked for.
        names: Vec<String>,
        /// The certificate library's reason.
        reason: String,
    },
    /// The operating system refused something.
    #[error("could not {what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A thread that a server cannot do without has panicked.
    #[error(
        "the server's thread {thread} has panicked, and nothing more can be answered: start the server again; what the \
         log says of the panic is a bug to report"
    )]
    Panicked {
        /// The thread.
        thread: &'static str,
    },
    /// The table bundle is not usable.
    #[error("the table at {}: {source}", path.display())]
    Table {
        /// The bundle.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<hushtable_table::Error>,
    },
    /// The model bundle is not usable.
    #[error("the model at {}: {source}", path.display())]
    Model {
        /// The bundle.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<hushtable_table::Error>,
    },
    /// A table of a model that is missing, or that is not the one its manifest means.
    #[error("feature {feature:?} of the model at {} cannot be served: {source}", path.display())]
    ModelTable {
        /// The bundle.
        path: PathBuf,
        /// A feature that reads the table.
        feature: String,
        /// What is wrong with the table.
        source: Box<hushtable_table::Error>,
    },
    /// Two versions of one model.
    #[error(
        "{} holds another version of model {name:?} than the bundles before it ({found}, not \
         {expected}): serve one of them, or give one another name",
        path.display()
    )]
    ModelTwice {
        /// The later bundle.
        path: PathBuf,
        /// The model's name.
        name: String,
        /// The first bundle's version.
        expected: Version,
        /// The later bundle's version.
        found: Version,
    },
    /// Tables that take more memory than they may.
    #[error(
        "the tables take {bytes} bytes in memory with {what}, and {bytes_max} are allowed: raise \
         tables_bytes_max (`hushtable serve --tables-bytes-max`), or serve fewer tables here"
    )]
    TablesBudget {
        /// The first table that does not fit, and the feature that reads it.
        what: String,
        /// Bytes of all tables up to it.
        bytes: u64,
        /// Bytes allowed.
        bytes_max: u64,
    },
    /// Rows that do not decode.
    #[error("a row could not be decoded: {source}")]
    Rows {
        /// What is wrong.
        source: hushtable_table::Error,
    },
    /// The scheme's own errors: ids, keys, replies.
    #[error(transparent)]
    Pir(#[from] hushtable_pir::Error),
    /// The parts of a whole inference that are not what a model's tables take.
    #[error(transparent)]
    Part(#[from] hushtable_pir::model::PartError),
    /// A plan whose keys are larger than the client makes.
    #[error(
        "the plan that {url} computes by needs keys of {bytes} bytes, and this client uploads at most \
         {bytes_max}: raise the limit (key_bytes_max=, --key-bytes-max) if that much may be made and sent"
    )]
    KeyBytes {
        /// The server.
        url: String,
        /// Bytes of the plan's keys.
        bytes: u64,
        /// The client's bound.
        bytes_max: u64,
    },
    /// A model without tables, at a server of lookups.
    #[error(
        "the model at {} has no tables to look rows up in: `hushtable infer serve` computes it",
        path.display()
    )]
    NoTables {
        /// The bundle.
        path: PathBuf,
    },
    /// A model with several plans, none of which was named.
    #[error("the model at {} has several plans: name one of {} (plan)", path.display(), plans.join(", "))]
    SeveralPlans {
        /// The bundle.
        path: PathBuf,
        /// Their names.
        plans: Vec<String>,
    },
    /// A plan for another scheme than this server computes by.
    #[error("plan {name:?} of the model at {} is for {scheme}, which this kind of server does not compute by", path.display())]
    PlanScheme {
        /// The bundle.
        path: PathBuf,
        /// The plan.
        name: String,
        /// What it is for.
        scheme: String,
    },
    /// The plan does not compute what the model does.
    #[error(
        "the self-check failed: an encrypted query came back as {found}, the model says {expected}. Compile \
         the model again, then run `hushtable doctor`; this server must not serve"
    )]
    SelfCheckLogit {
        /// The logit in the clear.
        expected: f64,
        /// What the answer opened to.
        found: f64,
    },
    /// A file that holds no operator's token.
    #[error(
        "{} holds no operator's token: write one line of 16 to 1,024 printable characters, such as \
         `openssl rand -hex 32` makes",
        path.display()
    )]
    Token {
        /// The file.
        path: PathBuf,
    },
    /// An operator's token that no header can carry.
    #[error("the operator's token holds characters that cannot be sent: use printable ASCII")]
    TokenText,
    /// A parameter set's name that no set has.
    #[error("there is no parameter set {name:?}: choose one of {}", names_of(&ParameterSet::ALL))]
    ParameterSet {
        /// The name.
        name: String,
    },
    /// A backend that holds another table, or lays it out otherwise, than the server does.
    #[error(
        "the backend answers for table {found} in another way than this server's table {expected} \
         and parameters {parameters} ask for: make it from the table given to it, for these \
         parameters"
    )]
    BackendTable {
        /// The table's version.
        expected: Version,
        /// The backend's.
        found: Version,
        /// The server's parameter set.
        parameters: &'static str,
    },
    /// A batch backend that was made for another layout than the table's.
    #[error(
        "the backend answers by layout {found}, the table's is {expected}: make it from the layout given to it"
    )]
    BackendLayout {
        /// The table's layout.
        expected: Version,
        /// The backend's.
        found: Version,
    },
    /// The engine does not answer what the table holds.
    #[error(
        "the self-check failed: row {row} came back different from the table's bytes. Run \
         `hushtable table verify`, then `hushtable doctor`; this server must not serve"
    )]
    SelfCheck {
        /// The row checked.
        row: u64,
    },
    /// A URL that names no server.
    #[error("{url:?} is no server address: {reason}; write https://host:port")]
    Url {
        /// The URL as given.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Queries would cross a network in the clear.
    #[error(
        "{url} is not on this machine and not https: a listener could change what comes back, and, \
         with keys for both servers, see which rows are asked for. Use https, or say `insecure` if \
         something else encrypts the way"
    )]
    PlainText {
        /// The URL.
        url: String,
    },
    /// A TLS server without a CA to check it by.
    #[error(
        "{url} is https, but no CA certificate was given to check it by: pass the CA's PEM file, or ask for \
         the system's authorities"
    )]
    NoCa {
        /// The URL.
        url: String,
    },
    /// A server that cannot be reached, or went away while it answered.
    #[error("{url} is unavailable: {reason}. Is the server running, and its address and CA right?")]
    Unavailable {
        /// The server.
        url: String,
        /// Why, from the transport.
        reason: String,
    },
    /// A server that answers in TLS what was said in plain text.
    #[error(
        "{url} speaks TLS, and was spoken to without: write https:// and give the CA of its \
         certificate"
    )]
    SpeaksTls {
        /// The URL.
        url: String,
    },
    /// A server that took too long.
    #[error("{url} did not answer within {} ms: raise the timeout, or look at its load", after.as_millis())]
    Timeout {
        /// The server.
        url: String,
        /// How long it was waited for.
        after: Duration,
    },
    /// A call that was not over in time, of which it is not known what server it waited for.
    #[error("the call was not over within {} ms: raise the timeout", after.as_millis())]
    Late {
        /// How long it was waited for.
        after: Duration,
    },
    /// The two addresses are the wrong way round.
    #[error(
        "left is {left}, but that server says it is right; right is {right}, which says it is left: swap the two addresses"
    )]
    SidesSwapped {
        /// The URL given as left.
        left: String,
        /// The URL given as right.
        right: String,
    },
    /// Both addresses lead to servers of one side, perhaps to the same one.
    #[error(
        "{left} and {right} both say they are the {side} server: give one left and one right \
         server, run by parties that do not collude"
    )]
    SameSide {
        /// The URL given as left.
        left: String,
        /// The URL given as right.
        right: String,
        /// What both say.
        side: Side,
    },
    /// The servers hold different tables.
    #[error(
        "{left} serves table version {left_version}, {right} serves {right_version}: serve the \
         same bundle from both"
    )]
    TablesDiffer {
        /// The left URL.
        left: String,
        /// The left table's version.
        left_version: Version,
        /// The right URL.
        right: String,
        /// The right table's version.
        right_version: Version,
    },
    /// No model of the name asked for, or no name where there is not exactly one.
    #[error(
        "{url} {}: {}",
        match model {
            Some(name) => format!("does not serve model {name:?}"),
            None => format!("serves {} models", models.len()),
        },
        match &models[..] {
            [] => "it serves tables alone; start it with a model bundle, or connect without a model"
                .to_owned(),
            names => format!("name one of {}", names.join(", ")),
        }
    )]
    ModelUnserved {
        /// The server.
        url: String,
        /// The name asked for.
        model: Option<String>,
        /// The names of the models that it serves.
        models: Vec<String>,
    },
    /// The servers hold different versions of a model.
    #[error(
        "{left} serves version {} of model {model}, {right} serves {}: serve the same model bundle \
         from both",
        versions[0],
        versions[1]
    )]
    ModelsDiffer {
        /// The left URL.
        left: String,
        /// The right URL.
        right: String,
        /// The model.
        model: String,
        /// Its versions: left's, right's.
        versions: Box<[Version; 2]>,
    },
    /// What a model's manifest does not have, as a feature.
    #[error(transparent)]
    Manifest(#[from] ModelError),
    /// A feature that one inference is asked for twice.
    #[error("feature {feature:?} is asked for twice: ask for all its ids at once")]
    FeatureTwice {
        /// The feature.
        feature: String,
    },
    /// More ids of a feature than the model is made for.
    #[error(
        "{ids} ids of feature {feature:?}, which the model bundle pads to max_ids = {max_ids}: ask \
         for fewer at once, or build the model with a larger max_ids for it"
    )]
    FeatureIds {
        /// The feature.
        feature: String,
        /// Ids asked for.
        ids: usize,
        /// What the model bundle pads them to.
        max_ids: usize,
    },
    /// An id of a feature that is not a row of its table.
    #[error(
        "id {id} of feature {feature:?} is out of range: its table has {rows} rows, ids run from 0 \
         to {last}",
        last = rows - 1
    )]
    FeatureIdRange {
        /// The feature.
        feature: String,
        /// The id.
        id: u64,
        /// Rows of its table.
        rows: u64,
    },
    /// Another version than the one that the client was told to ask for.
    #[error(
        "this client asks for version {expected} alone, and {} holds {}: nothing was fetched. Serve \
         that version, or name the one that is served",
        urls.join(" or "),
        found.map_or_else(|| "others".to_owned(), |version| version.to_string())
    )]
    VersionMismatch {
        /// The servers that were asked.
        urls: Vec<String>,
        /// The version that the client asks for.
        expected: Version,
        /// What a server holds, where it said so.
        found: Option<Version>,
    },
    /// The servers announce one version of a table, and other facts of it that differ.
    #[error(
        "{left} and {right} announce different {field} for one version of the table: one of them is \
         wrong, so nothing was sent. Serve the same bundle from both, by the same release"
    )]
    AnnouncementsDiffer {
        /// The left URL.
        left: String,
        /// The right URL.
        right: String,
        /// The field of `TableInfoReply`.
        field: &'static str,
    },
    /// The servers' tables have different layouts, or only one has any.
    #[error(
        "{left} serves layout {}, {right} serves {}: serve the same bundle from both",
        version_or_none(&versions[0]),
        version_or_none(&versions[1])
    )]
    LayoutsDiffer {
        /// The left URL.
        left: String,
        /// The right URL.
        right: String,
        /// The layouts' versions: left's, right's.
        versions: Box<[Option<Version>; 2]>,
    },
    /// The servers' table has no layout.
    #[error(
        "the table that {left} and {right} serve has no layout, so a bag cannot be asked for at \
         once: use `lookup`, or serve a bundle that `hushtable tune --apply` has made"
    )]
    NoLayout {
        /// The left URL.
        left: String,
        /// The right URL.
        right: String,
    },
    /// A layout larger than this client fetches.
    #[error(
        "the layout that {url} serves has {bytes} bytes, over the {bytes_max} that this client \
         fetches: raise the limit (layout_bytes_max), or tune a layout with fewer companions"
    )]
    LayoutBytes {
        /// The server.
        url: String,
        /// Its layout's bytes.
        bytes: u64,
        /// The client's bound.
        bytes_max: u64,
    },
    /// A bag that a layout cannot answer: an id that is no row, too many ids.
    #[error(transparent)]
    Bag(#[from] LayoutError),
    /// The client's generator is not one that a server accepts.
    #[error("{url} accepts keys of {accepted:?}, not {prg}: choose one of those")]
    Prg {
        /// The server.
        url: String,
        /// The client's generator.
        prg: PrgKind,
        /// The server's generators.
        accepted: Vec<PrgKind>,
    },
    /// A server of a parameter set that the caller has not accepted.
    #[error(
        "{url} serves by the parameter set {announced:?}, but this client accepts {}: nothing was \
         sent. Have it serve by one of those, or, if you accept that set's security, name it \
         (parameter_sets=, --parameter-set)",
        names_of(accepted)
    )]
    ParametersRefused {
        /// The server.
        url: String,
        /// The name that it announced, cut to 128 characters.
        announced: String,
        /// The sets that the caller accepts.
        accepted: Vec<ParameterSet>,
    },
    /// More ids a lookup than a server takes, or none.
    #[error(
        "max_ids is {max_ids}, but 1 to {keys_max} are taken a lookup: lower max_ids and split the \
         lookup, or raise {setting}"
    )]
    MaxIds {
        /// The caller's bound.
        max_ids: usize,
        /// The servers' bound.
        keys_max: usize,
        /// What sets it, and where.
        setting: &'static str,
    },
    /// A server said no, and why.
    #[error("{url} refused: {refusal}")]
    Refused {
        /// The server.
        url: String,
        /// Its reason.
        refusal: Refusal,
    },
    /// A server that does not do what this client asks of it.
    #[error(
        "{url} does not take part in what it was asked for ({message}): ask it by the scheme that it speaks"
    )]
    Unserved {
        /// The server.
        url: String,
        /// The server's words, cut to 512 characters.
        message: String,
    },
    /// A client that ends for a reason that this version has no error of its own for.
    #[error("{reason}")]
    Client {
        /// The reason.
        reason: String,
    },
    /// A server failed in a way that this version does not know.
    #[error("{url} failed with {code}: {message}")]
    Remote {
        /// The server.
        url: String,
        /// The gRPC status code's name.
        code: String,
        /// The server's words, cut to 512 characters.
        message: String,
    },
    /// A reply that makes no sense.
    #[error(
        "{url} sent a reply that does not fit: {defect}. Are its version and this one's compatible?"
    )]
    Reply {
        /// The server.
        url: String,
        /// What does not fit.
        defect: ReplyDefect,
    },
}

/// What bounds a lookup from a pair of servers.
pub(crate) const KEYS_SETTING: &str = "keys_per_request_max at both servers";
/// What bounds a lookup from one server.
pub(crate) const QUERIES_SETTING: &str =
    "queries_per_request_max at the server (`hushtable serve --queries-per-request-max`)";

fn version_or_none(version: &Option<Version>) -> String {
    version.map_or_else(|| "none".to_owned(), |version| version.to_string())
}

fn names_of(sets: &[ParameterSet]) -> String {
    match sets {
        [] => "none".into(),
        _ => sets.iter().map(|set| set.name()).collect::<Vec<_>>().join(", "),
    }
}

fn prg_names() -> String {
    PrgKind::ALL.map(PrgKind::name).join(", ")
}
