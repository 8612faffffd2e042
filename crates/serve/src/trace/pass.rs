//! A pass that traced requests are in.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::parent::Passing;
use super::{Context, LINKS_MAX, Span, Traced, Tracer, Value, unix_ns};

/// A pass that at least one traced request is in. It is a trace of its own, which these link to, and which links to
/// them: it answers others besides.
pub(crate) struct TracedPass {
    tracer: Arc<Tracer>,
    context: Context,
    requests: Vec<Context>,
}

/// What a pass was.
pub(crate) struct PassFacts {
    pub started: Instant,
    pub took: Duration,
    /// When the oldest of its requests came.
    pub oldest: Instant,
    pub requests: usize,
    pub queries: usize,
    /// What a query is: `keys`, say.
    pub asked: &'static str,
    pub table: Option<Arc<str>>,
    pub is_failed: bool,
}

impl TracedPass {
    /// That of these requests; none where none of them is traced.
    pub fn of<'a>(mut traced: impl Iterator<Item = &'a Arc<Traced>>) -> Option<Self> {
        let tracer = Arc::clone(traced.next()?.tracer());
        let context = tracer.context(tracer.number());
        Some(Self { tracer, context, requests: Vec::new() })
    }

    /// Runs it on this thread until what is returned is dropped: what other servers of the operator are asked for
    /// meanwhile is part of it.
    pub fn enter(&self) -> Passing {
        Passing::begin(self.context)
    }

    /// Says that it answered some of a request's queries.
    pub fn answered(&mut self, request: &Traced) {
        request.link(self.context);
        if self.requests.len() < LINKS_MAX {
            self.requests.push(request.context());
        }
    }

    /// It is over.
    pub fn finish(self, facts: PassFacts) {
        let PassFacts { started, took, oldest, requests, queries, asked, table, is_failed } = facts;
        let (started_ns, micros) = (unix_ns(started), |it: Duration| it.as_micros() as u64);
        let waited = started.saturating_duration_since(oldest);
        let mut attributes = vec![
            ("hushtable.asked", Value::Word(asked)),
            ("hushtable.queries", Value::Count(queries as u64)),
            ("hushtable.requests", Value::Count(requests as u64)),
            ("hushtable.queue_us", Value::Count(micros(waited))),
            ("hushtable.answer_us", Value::Count(micros(took))),
        ];
        attributes.extend(table.map(|table| ("hushtable.table", Value::Own(table))));
        let engine = self.tracer.engine.get().map(|engine| Value::Own(engine.as_str().into()));
        attributes.extend(engine.map(|engine| ("hushtable.engine", engine)));
        self.tracer.push(Span {
            context: self.context,
            parent: None,
            name: "pass",
            is_request: false,
            is_failed,
            started_ns,
            ended_ns: started_ns + took.as_nanos() as u64,
            attributes,
            links: self.requests,
        });
    }
}
