//! Rust errors to the classes of `hushtable.errors`.

use hushtable_oram::round::Error as RoundError;
use hushtable_oram::rounds::Refused;
use hushtable_oram::wire::Error as WireError;
use hushtable_pir::Error as PirError;
use hushtable_pir::onion::Error as OnionError;
use hushtable_serve::Error as ServeError;
use hushtable_table::RowsError;
use hushtable_table::layout::LayoutError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

/// A class of `hushtable.errors` with its text and attributes, made without the interpreter.
///
/// The classes live in Python, so that they can have several bases (`IdOutOfRange` is also an
/// `IndexError`) and attributes.
#[derive(Debug)]
pub(crate) struct Failure {
    class: &'static str,
    message: String,
    fields: Vec<(&'static str, Field)>,
}

/// An attribute of a Python error.
#[derive(Debug)]
enum Field {
    Count(u64),
    Number(f64),
    Text(String),
}

impl Failure {
    /// The error `class` of `hushtable.errors` with `message` and no attributes.
    pub(crate) fn new(class: &'static str, message: impl ToString) -> Self {
        Self { class, message: message.to_string(), fields: Vec::new() }
    }

    /// An option that cannot work as given.
    pub(crate) fn config(message: impl ToString) -> Self {
        Self::new("ConfigError", message)
    }

    /// An id that is not a row.
    pub(crate) fn id_out_of_range(id: u64, rows: u64) -> Self {
        PirError::IdRange { id, rows }.into()
    }

    /// What a failed connection was about. A server that asks for certificates closes, under TLS
    /// 1.3, a connection that seemed to stand: only here is it known that none was shown.
    pub(crate) fn at_connect(error: ServeError, has_certificate: bool) -> Self {
        match error {
            ServeError::Unavailable { url, reason }
                if url.starts_with("https:") && !has_certificate && was_closed(&reason) =>
            {
                let text = "if it asks for client certificates, give one \
                            (tls=TlsConfig(ca, certificate=..., key=...))";
                Self::new(
                    "ServerUnavailable",
                    format!("{url} closed the connection ({reason}): {text}"),
                )
            }
            error => error.into(),
        }
    }

    pub(crate) fn count(mut self, name: &'static str, count: u64) -> Self {
        self.fields.push((name, Field::Count(count)));
        self
    }

    pub(crate) fn number(mut self, name: &'static str, number: f64) -> Self {
        self.fields.push((name, Field::Number(number)));
        self
    }

    pub(crate) fn text(mut self, name: &'static str, text: impl ToString) -> Self {
        self.fields.push((name, Field::Text(text.to_string())));
        self
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    fn to_object<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let class = py.import("hushtable.errors")?.getattr(self.class)?;
        let fields = PyDict::new(py);
        for (name, value) in &self.fields {
            match value {
                Field::Count(count) => fields.set_item(name, count)?,
                Field::Number(number) => fields.set_item(name, number)?,
                Field::Text(text) => fields.set_item(name, text)?,
            }
        }
        class.call((PyString::new(py, &self.message),), Some(&fields))
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        Python::attach(|py| match failure.to_object(py) {
            Ok(object) => Self::from_value(object),
            Err(error) => error,
        })
    }
}

impl From<hushtable_table::Error> for Failure {
    fn from(error: hushtable_table::Error) -> Self {
        // The bundle's error names the file, the layout's the class and its facts.
        let text = error.to_string();
        match error {
            hushtable_table::Error::Layout { source, .. } => {
                Self { message: text, ..source.into() }
            }
            hushtable_table::Error::Rows {
                source:
                    RowsError::Content { .. }
                    | RowsError::HeaderBytes
                    | RowsError::Lost
                    | RowsError::Row { .. }
                    | RowsError::Sums { .. }
                    | RowsError::Tree,
                ..
            } => Self::new("DamagedTable", text),
            hushtable_table::Error::Damaged { .. } => Self::new("DamagedTable", text),
            hushtable_table::Error::Model { .. } | hushtable_table::Error::NotAModel { .. } => {
                Self::new("ModelError", text)
            }
            hushtable_table::Error::ShardMap { .. } => Self::new("ShardMapError", text),
            _ => Self::new("TableError", text),
        }
    }
}

impl From<LayoutError> for Failure {
    fn from(error: LayoutError) -> Self {
        let class = match &error {
            LayoutError::IdRange { .. } => "IdOutOfRange",
            LayoutError::TooManyIds { .. } => "TooManyIds",
            LayoutError::OtherTable { .. } => "LayoutMismatch",
            _ => "LayoutError",
        };
        let failure = Self::new(class, &error);
        match error {
            LayoutError::IdRange { id, rows } => failure.count("id", id).count("rows", rows),
            LayoutError::TooManyIds { ids, ids_max } => {
                failure.count("ids", ids as u64).count("max_ids", ids_max as u64)
            }
            LayoutError::OtherTable { expected, found } => {
                failure.text("expected", expected).text("found", found)
            }
            LayoutError::Range { part, field, .. } => {
                failure.text("part", part).text("field", field)
            }
            _ => failure,
        }
    }
}

impl From<PirError> for Failure {
    fn from(error: PirError) -> Self {
        let class = match &error {
            PirError::IdRange { .. } => "IdOutOfRange",
            PirError::TooManyIds { .. } => "TooManyIds",
            PirError::VersionMismatch { .. } | PirError::VersionChanged { .. } => "VersionMismatch",
            PirError::Side { .. } => "SwappedServers",
            PirError::Threads { .. } => "ConfigError",
            PirError::Rows { .. }
            | PirError::RowBytes { .. }
            | PirError::Table { .. }
            | PirError::TableBytes { .. }
            | PirError::Memory { .. } => "TableError",
            PirError::Damaged { .. } => "DamagedTable",
            PirError::LayoutTable { .. } => "LayoutMismatch",
            PirError::AnswerBytes { .. } => "ProtocolError",
            PirError::RequestBytes { .. }
            | PirError::KeyBytes { .. }
            | PirError::KeyHeader { .. }
            | PirError::KeyFormat { .. }
            | PirError::KeyPadding
            | PirError::UnknownSide { .. }
            | PirError::UnknownGroup { .. }
            | PirError::UnknownPrg { .. }
            | PirError::Domain { .. } => "KeyFormatError",
            _ => "Error",
        };
        let failure = Self::new(class, &error);
        match error {
            PirError::IdRange { id, rows } => failure.count("id", id).count("rows", rows),
            PirError::TooManyIds { ids, max_ids } => {
                failure.count("ids", ids as u64).count("max_ids", max_ids as u64)
            }
            PirError::VersionMismatch { left, right } => {
                failure.text("left", left).text("right", right)
            }
            PirError::LayoutTable { expected, found } => {
                failure.text("expected", expected).text("found", found)
            }
            _ => failure,
        }
    }
}

impl From<OnionError> for Failure {
    fn from(error: OnionError) -> Self {
        let class = match &error {
            OnionError::IdRange { .. } => "IdOutOfRange",
            OnionError::TooManyIds { .. } => "TooManyIds",
            OnionError::VersionChanged { .. } => "VersionMismatch",
            OnionError::Prepared(_) => "PreparedError",
            OnionError::Threads { .. } => "ConfigError",
            OnionError::Rows { .. } | OnionError::RowBytes { .. } | OnionError::Memory { .. } => {
                "TableError"
            }
            OnionError::KeyBytes { .. }
            | OnionError::KeyParameters { .. }
            | OnionError::QueryBytes { .. }
            | OnionError::QueryParameters { .. }
            | OnionError::Residue { .. } => "KeyFormatError",
            OnionError::Geometry { .. } | OnionError::ResponseBytes { .. } => "ProtocolError",
            _ => "Error",
        };
        let failure = Self::new(class, &error);
        match error {
            OnionError::Table(error) => error.into(),
            OnionError::IdRange { id, rows } => failure.count("id", id).count("rows", rows),
            OnionError::TooManyIds { ids, max_ids } => {
                failure.count("ids", ids as u64).count("max_ids", max_ids as u64)
            }
            _ => failure,
        }
    }
}

impl From<WireError> for Failure {
    fn from(error: WireError) -> Self {
        let class = match &error {
            WireError::Setting { .. }
            | WireError::Name { .. }
            | WireError::PublicKey { .. }
            | WireError::Terms
            | WireError::Pin
            | WireError::Ticket
            | WireError::NoCredential => "ConfigError",
            WireError::Pinned => "PinMismatch",
            WireError::IdRange { .. } => "IdOutOfRange",
            WireError::TooManyIds { .. } => "TooManyIds",
            WireError::Entropy(_) => "Error",
            _ => "RoundError",
        };
        let failure = Self::new(class, &error);
        // Neither an id nor a count: these may be raised where others read what was raised.
        match error {
            WireError::IdRange { rows } => failure.count("rows", rows),
            WireError::TooManyIds { slots } => failure.count("max_ids", slots as u64),
            _ => failure,
        }
    }
}

impl From<RoundError> for Failure {
    fn from(error: RoundError) -> Self {
        let class = match &error {
            RoundError::Spec { .. }
            | RoundError::Fdp(_)
            | RoundError::Geometry(_)
            | RoundError::Exists { .. }
            | RoundError::Kept { .. }
            | RoundError::RoundsUnknown
            | RoundError::CounterPlace { .. } => "ConfigError",
            RoundError::Aggregate(hushtable_oram::aggregate::AggregateError::Setting {
                ..
            }) => "ConfigError",
            RoundError::Phase { .. }
            | RoundError::Users { .. }
            | RoundError::Ids { .. }
            | RoundError::User { .. }
            | RoundError::Twice { .. }
            | RoundError::Length { .. }
            | RoundError::Gradients(_)
            | RoundError::Aggregate(_)
            | RoundError::Union(_) => "RoundError",
            RoundError::BudgetSpent { .. } => "BudgetSpent",
            RoundError::Row { .. } => "TableError",
            RoundError::Entropy(_) => "Error",
            _ => "ControllerError",
        };
        let failure = Self::new(class, &error);
        match error {
            RoundError::BudgetSpent { rounds, spent, needed, budget } => failure
                .count("rounds", rounds)
                .number("spent", spent)
                .number("needed", needed)
                .number("limit", budget),
            _ => failure,
        }
    }
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Message { source, .. } => source.into(),
            other => Self::new("RoundError", &other),
        }
    }
}

fn was_closed(reason: &str) -> bool {
    ["broken pipe", "reset", "closed"].iter().any(|word| reason.contains(word))
}
