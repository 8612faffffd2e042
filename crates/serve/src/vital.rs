//! Threads that a server cannot do without, and what becomes of it where one of them panics: it says that it is not
//! ready, counts the panic and ends, so that whoever keeps it starts another.

use std::sync::Arc;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use tokio::sync::watch;

use crate::Error;

/// The threads of one server. Clones speak of the same server; one by [`Default`] is nobody's.
#[derive(Clone, Debug, Default)]
pub struct Vitals(Arc<Told>);

#[derive(Debug)]
struct Told {
    /// The first thread that the server cannot do without and that has panicked.
    lost: watch::Sender<Option<&'static str>>,
    panics: Counter,
}

/// A thread or task, as long as it runs. Held by what runs, on its own stack: it notices a panic as that passes by.
#[derive(Debug)]
pub struct Vital {
    vitals: Vitals,
    name: &'static str,
    is_replaced: bool,
}

impl Default for Told {
    fn default() -> Self {
        Self { lost: watch::channel(None).0, panics: Counter::default() }
    }
}

impl Vitals {
    /// One that the server cannot do without: a panic ends the server.
    pub fn hold(&self, name: &'static str) -> Vital {
        Vital { vitals: self.clone(), name, is_replaced: false }
    }

    /// One in whose place another comes by itself: a panic is counted.
    pub fn hold_replaced(&self, name: &'static str) -> Vital {
        Vital { vitals: self.clone(), name, is_replaced: true }
    }

    /// Counts a panic that was caught, after which its thread goes on.
    pub(crate) fn caught(&self) {
        self.0.panics.inc();
    }

    /// Registers what it counts.
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "panics",
            "Panics: of threads, and of passes whose thread went on",
            self.0.panics.clone(),
        );
    }

    /// Resolves once a thread that the server cannot do without has panicked.
    pub(crate) async fn lost(&self) -> Error {
        let mut lost = self.0.lost.subscribe();
        let name = lost.wait_for(Option::is_some).await.ok().and_then(|name| *name);
        match name {
            Some(name) => Error::Panicked { thread: name },
            // The sender is this one's own.
            None => std::future::pending().await,
        }
    }
}

impl Vital {
    /// Called at each turn of what runs, where a test has it panic.
    pub(crate) fn turn(&self) {
        #[cfg(test)]
        planted::panic_where_told(self.name);
    }
}

impl Drop for Vital {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        self.vitals.0.panics.inc();
        match self.is_replaced {
            true => {
                tracing::error!(thread = self.name, "a thread panicked: another takes its place")
            }
            false => {
                tracing::error!(thread = self.name, "a thread panicked: the server ends");
                let is_first =
                    |lost: &mut Option<_>| lost.is_none() && lost.replace(self.name).is_none();
                self.vitals.0.lost.send_if_modified(is_first);
            }
        }
    }
}

/// Panics that tests ask for.
#[cfg(test)]
pub(crate) mod planted {
    use std::sync::{Mutex, PoisonError};

    /// The thread that panics at its next turn. Each test has a process of its own.
    static NAME: Mutex<Option<&str>> = Mutex::new(None);

    /// Has the thread of this name panic at its next turn.
    pub(crate) fn panic_in(name: &'static str) {
        *NAME.lock().unwrap_or_else(PoisonError::into_inner) = Some(name);
    }

    /// Whether that is still to come.
    pub(crate) fn is_due() -> bool {
        NAME.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    pub(super) fn panic_where_told(name: &'static str) {
        let told =
            NAME.lock().unwrap_or_else(PoisonError::into_inner).take_if(|told| *told == name);
        assert!(told.is_none(), "a panic that a test asked {name} for");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_thread_that_panics_is_lost_and_one_that_ends_is_not() {
        let vitals = Vitals::default();
        let [ends, replaced, panics] = [
            ("ends", vitals.hold("ends")),
            ("replaced", vitals.hold_replaced("replaced")),
            ("panics", vitals.hold("panics")),
        ]
        .map(|(name, vital)| {
            std::thread::spawn(move || {
                let _vital = vital;
                assert_eq!(name, "ends");
            })
        });
        assert!(ends.join().is_ok() && replaced.join().is_err());
        drop(panics.join());
        let Error::Panicked { thread } = vitals.lost().await else { panic!("another error") };
        assert_eq!((thread, vitals.0.panics.get()), ("panics", 2));
    }
}
