//! Serves a table bundle, a model on encrypted features, or a controller's training rounds, until SIGTERM or
//! SIGINT.
//!
//! ```text
//! serve_bundle SPEC.json
//! serve_bundle SPEC.json onion
//! serve_bundle SPEC.json infer
//! serve_bundle SPEC.json hybrid
//! serve_bundle SPEC.json shares
//! serve_bundle SPEC.json train CONTROLLER_FOLDER
//! ```
//!
//! SPEC.json is a `ServerSpec`, an `OnionServerSpec`, an `CkksServerSpec`, a `HybridServerSpec`, a
//! `SharesServerSpec` or a `TrainServerSpec`. The addresses are printed as JSON on one line once the ports are taken; logs go to standard error, as JSON if `HUSHTABLE_LOG_JSON` is set.
//! With `HUSHTABLE_COUNT_BYTES`, each line that comes is answered by the bytes that are allocated and the most that
//! ever were, as JSON on one line.

use std::io::{BufRead, Write};
use std::process::ExitCode;

use cap::Cap;
use hushtable_serve::{
    BoundServer, CkksServer, ControllerPlace, HybridServer, OnionServer, Server, ServerSpec,
    SharesServer, TrainServer,
};

// As the Python package's module has it; this one counts.
#[global_allocator]
static ALLOCATOR: Cap<mimalloc::MiMalloc> = Cap::new(mimalloc::MiMalloc, usize::MAX);

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
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (path, kind) = args.split_first().ok_or(USAGE)?;
    let filter = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or("info".into());
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // Else what could not be written is said by eprintln, which panics for the same reason.
        .log_internal_errors(false);
    match std::env::var_os("HUSHTABLE_LOG_JSON") {
        Some(_) => log.json().init(),
        None => log.init(),
    }
    let spec = std::fs::read(path)?;
    if std::env::var_os("HUSHTABLE_COUNT_BYTES").is_some() {
        std::thread::spawn(count_bytes);
    }
    match kind.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => {
            let spec: ServerSpec = serde_json::from_slice(&spec)?;
            Server::open(spec)?.run_blocking(announce)?;
        }
        ["onion"] => OnionServer::open(serde_json::from_slice(&spec)?)?.run_blocking(announce)?,
        ["infer"] => CkksServer::open(serde_json::from_slice(&spec)?)?.run_blocking(announce)?,
        ["hybrid"] => HybridServer::open(serde_json::from_slice(&spec)?)?.run_blocking(announce)?,
        ["shares"] => SharesServer::open(serde_json::from_slice(&spec)?)?.run_blocking(announce)?,
        ["train", folder] => {
            let place = ControllerPlace::all_beside(folder.as_ref());
            let spec = serde_json::from_slice(&spec)?;
            TrainServer::of_controller(spec, place, |_, _| {})?.run_blocking(announce)?;
        }
        _ => return Err(USAGE.into()),
    }
    Ok(())
}

fn announce(bound: &BoundServer) {
    let addrs = serde_json::json!({ "addr": bound.addr, "metrics_addr": bound.metrics_addr });
    let mut out = std::io::stdout();
    // Whoever started this process may not listen: that is no reason not to serve.
    let _ = writeln!(out, "{addrs}").and_then(|()| out.flush());
}

/// Says what is allocated as often as it is asked.
fn count_bytes() {
    for line in std::io::stdin().lock().lines() {
        let (now, most) = (ALLOCATOR.allocated(), ALLOCATOR.max_allocated());
        let counts = serde_json::json!({ "now": now, "most": most });
        let mut out = std::io::stdout();
        if line.is_err() || writeln!(out, "{counts}").and_then(|()| out.flush()).is_err() {
            return;
        }
    }
}

const USAGE: &str =
    "usage: serve_bundle SPEC.json [onion | infer | hybrid | shares | train CONTROLLER_FOLDER]";
