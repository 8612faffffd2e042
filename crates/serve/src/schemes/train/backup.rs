//! Backups that the operator asks a running server for.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hushtable_oram::round::Error as RoundError;
use hushtable_oram::round::backup::{Backup, BackupManifest};
use hushtable_table::within;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::{Instant, sleep};

use super::{Awaited, RoundMemory, TrainRefusal};
use crate::Refusal;

/// The backups of one server: one at a time.
pub(super) struct Backups {
    dir: Option<PathBuf>,
    making: Mutex<Option<(String, Backup)>>,
}

impl Backups {
    /// Backups in folders of `dir`; none without it.
    pub fn new(dir: Option<PathBuf>) -> Self {
        Self { dir, making: Mutex::new(None) }
    }

    /// Makes the backup `name`, or says what it is of where it was made already: waits for at most
    /// `wait_max`, and goes on where nobody waits.
    pub async fn make(
        self: &Arc<Self>,
        name: &str,
        memory: &Arc<AsyncMutex<Box<dyn RoundMemory>>>,
        wait_max: Duration,
    ) -> Result<BackupManifest, Refusal> {
        let Some(dir) = &self.dir else {
            return Err(refused(
                "this server writes no backups: start it with --backup-dir (backup_dir), a folder on \
                 another disk than the controller's",
            ));
        };
        if !is_name(name) {
            return Err(refused(
                "a backup's name is 1 to 100 letters, digits, dots, dashes and underscores, and begins \
                 with no dot",
            ));
        }
        let to = within::join(dir, name).map_err(|error| refused(&error.to_string()))?;
        let give_up = Instant::now() + wait_max;
        loop {
            if let Some(manifest) = self.finished(name)? {
                return Ok(manifest);
            }
            if self.making().is_none() {
                if let Ok(manifest) = BackupManifest::read(&to) {
                    return Ok(manifest);
                }
                let mut memory = Arc::clone(memory).lock_owned().await;
                let (backups, own, to) = (Arc::clone(self), name.to_owned(), to.clone());
                // To its end, also where nobody waits for it any more.
                let begun = tokio::task::spawn_blocking(move || {
                    // Whoever has the memory is alone here.
                    if backups.making().is_none()
                        && let Some(backup) = memory.start_backup(&to)?
                    {
                        tracing::info!(name = own, "backing up");
                        *backups.making() = Some((own, backup));
                    }
                    Ok::<_, super::MemoryError>(())
                });
                begun.await.map_err(|_| Refusal::Backend)?.map_err(|error| failed(&*error))?;
            }
            if Instant::now() >= give_up {
                let (round, awaited, retry_after) = (0, Awaited::Backup, RETRY_AFTER);
                return Err(TrainRefusal::Pending { round, awaited, retry_after }.into());
            }
            sleep(RETRY_AFTER.min(give_up.saturating_duration_since(Instant::now()))).await;
        }
    }

    /// What has come of the backup that was being made, if that is over and was this one.
    fn finished(&self, name: &str) -> Result<Option<BackupManifest>, Refusal> {
        let mut making = self.making();
        let Some((own, backup)) = making.take_if(|(_, backup)| backup.is_done()) else {
            return Ok(None);
        };
        drop(making);
        let outcome = backup.finish();
        match &outcome {
            Ok(manifest) => tracing::info!(name = own, rounds = manifest.rounds, "backed up"),
            Err(error) => tracing::error!(name = own, %error, "could not back up"),
        }
        match outcome {
            Ok(manifest) if own == name => Ok(Some(manifest)),
            Err(error) if own == name => Err(failed(&error)),
            _ => Ok(None),
        }
    }

    fn making(&self) -> MutexGuard<'_, Option<(String, Backup)>> {
        self.making.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    (1..=100).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(fits)
}

fn refused(message: &str) -> Refusal {
    TrainRefusal::BackupRefused { message: message.to_owned() }.into()
}

/// What the operator can do something about is said, the rest is in the log.
fn failed(error: &(dyn std::error::Error + 'static)) -> Refusal {
    match error.downcast_ref::<RoundError>() {
        Some(RoundError::Exists { .. } | RoundError::Disk(_) | RoundError::File { .. }) => {
            refused(&error.to_string())
        }
        Some(RoundError::BackupCut { .. }) => refused(&error.to_string()),
        _ => {
            tracing::error!(%error, "could not begin a backup");
            Refusal::Backend
        }
    }
}

const RETRY_AFTER: Duration = Duration::from_millis(100);
