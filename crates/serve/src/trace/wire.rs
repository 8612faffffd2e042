//! Spans as OTLP carries them: the part that is used here of `opentelemetry/proto/trace/v1/trace.proto`,
//! `common/v1/common.proto`, `resource/v1/resource.proto` and `collector/trace/v1/trace_service.proto` of
//! opentelemetry-proto 1.x, whose fields keep their numbers. A test reads what is written here with
//! the messages of the crate `opentelemetry-proto`.

use prost::Message;

use super::{Context, Span, Value};

/// A message of a batch of spans.
#[derive(Clone, PartialEq, Message)]
struct ExportTraceServiceRequest {
    #[prost(message, repeated, tag = "1")]
    resource_spans: Vec<ResourceSpans>,
}

/// What a collector says of one.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ExportTraceServiceResponse {
    #[prost(message, optional, tag = "1")]
    partial_success: Option<PartialSuccess>,
}

#[derive(Clone, PartialEq, Message)]
struct PartialSuccess {
    #[prost(int64, tag = "1")]
    rejected_spans: i64,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scope_spans: Vec<ScopeSpans>,
}

/// Who sends spans.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    spans: Vec<WireSpan>,
}

#[derive(Clone, PartialEq, Message)]
struct Scope {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    version: String,
}

#[derive(Clone, PartialEq, Message)]
struct WireSpan {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    name: String,
    #[prost(int32, tag = "6")]
    kind: i32,
    #[prost(fixed64, tag = "7")]
    start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<KeyValue>,
    #[prost(message, repeated, tag = "13")]
    links: Vec<Link>,
    #[prost(message, optional, tag = "15")]
    status: Option<Status>,
    #[prost(fixed32, tag = "16")]
    flags: u32,
}

#[derive(Clone, PartialEq, Message)]
struct Link {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
    #[prost(fixed32, tag = "6")]
    flags: u32,
}

#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(int32, tag = "3")]
    code: i32,
}

#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct AnyValue {
    #[prost(oneof = "Any", tags = "1, 3")]
    value: Option<Any>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Any {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(int64, tag = "3")]
    Count(i64),
}

impl Resource {
    /// One that says these of itself.
    pub fn new<'a>(attributes: impl IntoIterator<Item = (&'a str, String)>) -> Self {
        let attributes = attributes.into_iter();
        Self { attributes: attributes.map(|(key, text)| pair(key, Any::Text(text))).collect() }
    }

    /// The message of these spans.
    pub fn message(&self, spans: &[Span]) -> Vec<u8> {
        let scope = Scope { name: "hushtable".into(), version: env!("CARGO_PKG_VERSION").into() };
        let spans = spans.iter().map(WireSpan::of).collect();
        let scope_spans = vec![ScopeSpans { scope: Some(scope), spans }];
        let resource_spans = vec![ResourceSpans { resource: Some(self.clone()), scope_spans }];
        ExportTraceServiceRequest { resource_spans }.encode_to_vec()
    }
}

impl ExportTraceServiceResponse {
    /// Spans of the message that were not taken.
    pub fn rejected(&self) -> u64 {
        let rejected = self.partial_success.as_ref().map_or(0, |partial| partial.rejected_spans);
        rejected.try_into().unwrap_or_default()
    }
}

impl WireSpan {
    fn of(span: &Span) -> Self {
        let Span { context, parent, name, is_request, is_failed, .. } = span;
        Self {
            trace_id: context.trace.to_vec(),
            span_id: context.span.to_vec(),
            parent_span_id: parent.map(|parent| parent.to_vec()).unwrap_or_default(),
            name: (*name).into(),
            kind: if *is_request { KIND_SERVER } else { KIND_INTERNAL },
            start_time_unix_nano: span.started_ns,
            end_time_unix_nano: span.ended_ns,
            attributes: span.attributes.iter().map(|(key, value)| attribute(key, value)).collect(),
            links: span.links.iter().map(Link::of).collect(),
            status: is_failed.then_some(Status { code: STATUS_ERROR }),
            flags: FLAG_SAMPLED,
        }
    }
}

impl Link {
    fn of(to: &Context) -> Self {
        Self { trace_id: to.trace.to_vec(), span_id: to.span.to_vec(), flags: FLAG_SAMPLED }
    }
}

fn attribute(key: &str, value: &Value) -> KeyValue {
    pair(
        key,
        match value {
            Value::Count(count) => Any::Count((*count).try_into().unwrap_or(i64::MAX)),
            Value::Word(word) => Any::Text((*word).into()),
            Value::Own(text) => Any::Text((**text).into()),
        },
    )
}

fn pair(key: &str, value: Any) -> KeyValue {
    KeyValue { key: key.into(), value: Some(AnyValue { value: Some(value) }) }
}

const KIND_INTERNAL: i32 = 1;
const KIND_SERVER: i32 = 2;
const STATUS_ERROR: i32 = 2;
const FLAG_SAMPLED: u32 = 1;
