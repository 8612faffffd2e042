//! Serves a table bundle until SIGTERM or SIGINT.
//!
//! ```text
//! serve_bundle SPEC.json
//! ```
//!
//! SPEC.json is a `ServerSpec`, or an `OnionServerSpec`, which has no `side`. The addresses are printed as JSON on one line once the ports are
//! taken; logs go to standard error, as JSON if `HUSHTABLE_LOG_JSON` is set.

use std::io::Write;
use std::process::ExitCode;

use hushtable_serve::{BoundServer, OnionServer, Server};
use serde_json::Value;

// As the Python package's module has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("serve_bundle: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: serve_bundle SPEC.json")?;
    let filter = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or("info".into());
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match std::env::var_os("HUSHTABLE_LOG_JSON") {
        Some(_) => log.json().init(),
        None => log.init(),
    }
    let spec: Value = serde_json::from_slice(&std::fs::read(path)?)?;
    match spec.get("side") {
        Some(_) => Server::open(serde_json::from_value(spec)?)?.run_blocking(print_addrs)?,
        None => OnionServer::open(serde_json::from_value(spec)?)?.run_blocking(print_addrs)?,
    }
    Ok(())
}

fn print_addrs(bound: &BoundServer) {
    let addrs = serde_json::json!({ "addr": bound.addr, "metrics_addr": bound.metrics_addr });
    let mut out = std::io::stdout();
    // Whoever started this process may not listen: that is no reason not to serve.
    let _ = writeln!(out, "{addrs}").and_then(|()| out.flush());
}
