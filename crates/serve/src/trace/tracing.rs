//! A server's traces, from its start to its end.

use std::sync::{Arc, OnceLock};

#[cfg(feature = "otlp")]
use super::Exporter;
use super::Fraction;
use super::{Collector, SpanCounts, Tracer};
use crate::error::Error;

/// What traces a server's requests; off, it is nothing at all.
#[derive(Default)]
pub(crate) struct Tracing {
    tracer: Option<Arc<Tracer>>,
    #[cfg(feature = "otlp")]
    exporter: Option<Exporter>,
}

impl Tracing {
    /// Starts to send the part `sample` of all requests to `collector`, as `service`, of a server that calls
    /// its part `side`.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Tls`], [`Error::Pir`] for what cannot be started.
    #[cfg(feature = "otlp")]
    pub fn start(
        collector: Option<Collector>,
        (service, sample): (&str, Fraction),
        side: &'static str,
        counts: SpanCounts,
        engine: Arc<OnceLock<String>>,
    ) -> Result<Self, Error> {
        let Some(collector) = collector else { return Ok(Self::default()) };
        let tracer = Tracer::new(sample, counts, engine)?;
        let instance = u128::from_be_bytes(tracer.context(tracer.number()).trace);
        let who = [
            ("service.name", service.to_owned()),
            ("service.version", env!("CARGO_PKG_VERSION").to_owned()),
            ("service.instance.id", format!("{instance:032x}")),
            ("hushtable.side", side.to_owned()),
        ];
        tracing::info!(
            collector = collector.url,
            sample = sample.number(),
            "traces leave this server"
        );
        if !collector.is_https && !crate::endpoint::is_loopback(&collector.host) {
            tracing::warn!(collector = collector.url, "traces leave this machine in the clear");
        }
        let exporter = Some(Exporter::start(collector, Arc::clone(&tracer), who)?);
        Ok(Self { tracer: Some(tracer), exporter })
    }

    /// As a build without the feature `otlp` has it: no collector comes through the check of a spec.
    ///
    /// # Errors
    /// None.
    #[cfg(not(feature = "otlp"))]
    pub fn start(
        _: Option<Collector>,
        _: (&str, Fraction),
        _: &'static str,
        _: SpanCounts,
        _: Arc<OnceLock<String>>,
    ) -> Result<Self, Error> {
        Ok(Self::default())
    }

    /// What requests are traced by; None where they are not.
    pub fn tracer(&self) -> Option<Arc<Tracer>> {
        self.tracer.clone()
    }

    /// Sends what waits, but not for long.
    #[cfg_attr(
        not(feature = "otlp"),
        allow(clippy::unused_async, reason = "there is nothing to send")
    )]
    pub async fn flush(self) {
        #[cfg(feature = "otlp")]
        if let Some(exporter) = self.exporter {
            exporter.flush().await;
        }
    }
}
