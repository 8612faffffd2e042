//! What clients tell whoever watches them. Only what fails is told: a call that is answered costs nothing.

use std::sync::OnceLock;

use crate::Error;

/// What a client met in a call. It says nothing of what was asked for.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Met<'a> {
    /// A server refused a request by this reason, as it travels: `BUSY`, say.
    Refused {
        /// The server.
        url: &'a str,
        /// The reason.
        reason: &'a str,
    },
    /// A request is made again, or another in its place, to this server or to another one.
    Again {
        /// The server that is asked now.
        url: &'a str,
        /// The reason of the refusal before; else `UNREACHABLE`, `REMOTE` or `OTHER`.
        reason: &'a str,
        /// Which attempt it is of the operation: 2 at the first time.
        attempt: u32,
    },
}

/// Has `watch` told what any client of this process meets; the first that is given stays. It is called where
/// connections are served, and must not block.
pub fn watch_clients(watch: fn(Met<'_>)) {
    let _stays = WATCH.get_or_init(|| watch);
}

/// What failed in one operation.
#[derive(Default)]
pub(crate) struct Failures {
    count: u32,
    last: Option<String>,
}

impl Failures {
    /// A call failed.
    pub fn note(&mut self, error: &Error) {
        let Some(watch) = WATCH.get() else { return };
        let reason = match error {
            Error::Refused { url, refusal } => {
                let reason = refusal.reason();
                watch(Met::Refused { url, reason });
                reason
            }
            Error::Unavailable { .. } | Error::SpeaksTls { .. } => "UNREACHABLE",
            Error::Remote { .. } => "REMOTE",
            _ => "OTHER",
        };
        self.count += 1;
        self.last = Some(reason.to_owned());
    }

    /// The server at `url` is asked.
    pub fn ask(&mut self, url: &str) {
        if let Some(reason) = self.last.take()
            && let Some(watch) = WATCH.get()
        {
            watch(Met::Again { url, reason: &reason, attempt: self.count + 1 });
        }
    }
}

static WATCH: OnceLock<fn(Met<'_>)> = OnceLock::new();
