//! A request that is traced, from its headers to its answer's.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use hushtable_table::Version;
use tonic::Code;

use super::{Context, LINKS_MAX, Span, Tracer, Value, unix_ns};
use crate::refusal::code_name;

/// A request that is sampled, or may be joined to a trace that is. Whoever works for it notes what its span is to
/// say.
pub(crate) struct Traced {
    tracer: Arc<Tracer>,
    /// A trace of its own, and its span.
    own: Context,
    is_sampled: bool,
    /// Another server's span that it is a child of.
    parent: OnceLock<Context>,
    received_bytes: AtomicU64,
    notes: Mutex<Notes>,
}

#[derive(Default)]
struct Notes {
    version: Option<Version>,
    queries: Option<u64>,
    passes: Vec<Context>,
}

tokio::task_local! {
    static CURRENT: Arc<Traced>;
}

/// The request that is worked for here, where it is traced.
pub(crate) fn current() -> Option<Arc<Traced>> {
    CURRENT.try_with(Arc::clone).ok().filter(|traced| traced.is_sampled())
}

/// Has `note` look at the request that is worked for here, sampled or not yet, where there is a tracer.
pub(super) fn with_offered(note: impl FnOnce(&Traced)) {
    // Without a trace there is nothing to note.
    let _ = CURRENT.try_with(|traced| note(traced));
}

/// Notes which version the request that is worked for here was for: one that this server holds, never what
/// a client wrote in its place.
pub(crate) fn note_version(held: Version) {
    with_offered(|traced| traced.notes().version = Some(held));
}

impl Traced {
    pub(super) fn new(tracer: Arc<Tracer>, number: u64, is_sampled: bool) -> Arc<Self> {
        let own = tracer.context(number);
        let (parent, notes) = (OnceLock::new(), Mutex::default());
        let received_bytes = AtomicU64::new(0);
        Arc::new(Self { tracer, own, is_sampled, parent, received_bytes, notes })
    }

    /// Makes it a child of another server's span, the first that it is told.
    pub(super) fn join(&self, parent: Context) {
        let _ = self.parent.set(parent);
    }

    fn is_sampled(&self) -> bool {
        self.is_sampled || self.parent.get().is_some()
    }

    /// Its span, in the trace that it is part of.
    pub(super) fn context(&self) -> Context {
        Context { trace: self.parent.get().map_or(self.own.trace, |it| it.trace), ..self.own }
    }

    /// Works for this request.
    pub fn scope<F: Future>(self: Arc<Self>, work: F) -> impl Future<Output = F::Output> {
        CURRENT.scope(self, work)
    }

    /// Notes that so many bytes of it came in.
    pub fn receive(&self, bytes: usize) {
        self.received_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Notes how many queries it is made of: what its sender pads to.
    pub fn note_queries(&self, queries: usize) {
        self.notes().queries = Some(queries as u64);
    }

    /// Notes a pass that answered some of its queries.
    pub(super) fn link(&self, pass: Context) {
        let mut notes = self.notes();
        if notes.passes.len() < LINKS_MAX {
            notes.passes.push(pass);
        }
    }

    /// The wait for its last pass is over.
    pub fn waited(&self, arrived: Instant, until: Instant) {
        let started_ns = unix_ns(arrived);
        let waited_ns = until.saturating_duration_since(arrived).as_nanos() as u64;
        self.tracer.push(Span {
            context: Context { span: self.tracer.span_id(), ..self.context() },
            parent: Some(self.own.span),
            name: "queue",
            is_request: false,
            is_failed: false,
            started_ns,
            ended_ns: started_ns + waited_ns,
            attributes: Vec::new(),
            links: Vec::new(),
        });
    }

    /// Ends the request. A request that is not sampled leaves no span.
    pub fn finish(
        &self,
        service: &'static str,
        method: &'static str,
        code: Code,
        started: Instant,
    ) {
        if !self.is_sampled() {
            return;
        }
        let started_ns = unix_ns(started);
        let Notes { version, queries, passes } = std::mem::take(&mut *self.notes());
        let mut attributes = vec![
            ("rpc.system", Value::Word("grpc")),
            ("rpc.service", Value::Word(service)),
            ("rpc.method", Value::Word(method)),
            ("rpc.grpc.status_code", Value::Count(i32::from(code).unsigned_abs().into())),
            ("rpc.response.status_code", Value::Word(code_name(code))),
            ("hushtable.received_bytes", Value::Count(self.received_bytes.load(Ordering::Relaxed))),
        ];
        attributes.extend(queries.map(|queries| ("hushtable.queries", Value::Count(queries))));
        attributes.extend(version.map(|version| ("hushtable.version", short(version))));
        self.tracer.push(Span {
            context: self.context(),
            parent: self.parent.get().map(|parent| parent.span),
            name: method,
            is_request: true,
            is_failed: is_of_the_server(code),
            started_ns,
            ended_ns: started_ns + started.elapsed().as_nanos() as u64,
            attributes,
            links: passes,
        });
    }

    pub(super) fn tracer(&self) -> &Arc<Tracer> {
        &self.tracer
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Enough of a version to tell it from others.
fn short(version: Version) -> Value {
    let mut text = version.to_string();
    text.truncate(VERSION_CHARS);
    Value::Own(text.into())
}

/// Whether a request failed by the server's fault, as OpenTelemetry's conventions for gRPC have it.
fn is_of_the_server(code: Code) -> bool {
    matches!(
        code,
        Code::Unknown
            | Code::DeadlineExceeded
            | Code::Unimplemented
            | Code::Internal
            | Code::Unavailable
            | Code::DataLoss
    )
}

const VERSION_CHARS: usize = 16;
