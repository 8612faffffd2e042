//! What an operator does when a controller does not open, or is gone: look, go on, restore.

use std::path::{Path, PathBuf};
use std::time::Duration;

use hushtable_oram::disk::{DiskError, Faults};
use hushtable_oram::journal::{CounterPlace, CounterValue, JournalError};
use hushtable_oram::round::Error as RoundError;
use hushtable_oram::round::backup::BackupManifest;
use hushtable_oram::round::salvage::{Recovered, Salvage, SalvageReport, recovered_place, swap};
use hushtable_oram::seal::Key;

use super::{ControllerPlace, CounterSpec};
use crate::Error;

/// Told of what there is before anything is written; whether to go on.
pub type Approve<'a> = dyn FnMut(&Diagnosis) -> bool + 'a;
/// Told of the work done and all of it.
type Progress<'a> = dyn FnMut(u64, u64) + 'a;

/// A way to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Remedy {
    /// Go on from the older state that the folder is in.
    AcceptRollback,
    /// Make a root counter that stands where the folder is.
    NewCounter,
    /// Keep the rows that can be read.
    Salvage,
    /// Take a backup: too little is left of the folder.
    Restore,
    /// End a recovery that was cut short: nothing is to be decided.
    Finish,
}

impl Remedy {
    /// As it is called on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::AcceptRollback => "accept-rollback",
            Self::NewCounter => "new-counter",
            Self::Salvage => "salvage",
            Self::Restore => "restore",
            Self::Finish => "finish",
        }
    }

    /// That of this name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::AcceptRollback, Self::NewCounter, Self::Salvage]
            .into_iter()
            .find(|remedy| remedy.name() == name)
    }
}

/// What is the matter with a controller.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Diagnosis {
    /// In words.
    pub found: String,
    /// What to do; None where the controller opens as it is.
    pub remedy: Option<Remedy>,
    /// What the folder holds, where that could be read.
    pub report: Option<SalvageReport>,
    /// Rounds committed as the root counter has it, where that could be read.
    pub counter_rounds: Option<u64>,
    /// Whether rounds may have begun that nothing here knows of, so that they are not charged unless the
    /// operator says how many there were.
    pub rounds_unknown: bool,
}

/// What the counter says.
enum Counted {
    At(CounterValue),
    Lost(JournalError),
}

impl ControllerPlace {
    fn counter_file(&self) -> Option<&Path> {
        match &self.counter {
            CounterSpec::File(path) => Some(path),
            CounterSpec::Etcd(_) => None,
        }
    }

    fn recovered(&self) -> Recovered {
        Recovered::new(&self.folder, self.counter_file())
    }

    fn read_counter(&self, key: &Key) -> Result<Counted, Error> {
        let read = CounterPlace::open(&self.counter, &key.derive("counter"), &Faults::none())
            .and_then(|mut counter| counter.read());
        match read {
            Ok(value) => Ok(Counted::At(value)),
            Err(
                error @ (JournalError::CounterMissing { .. }
                | JournalError::ForgedCounter { .. }
                | JournalError::NotACounter { .. }
                | JournalError::Disk(DiskError::Missing { .. })),
            ) => Ok(Counted::Lost(error)),
            // In use, or out of reach: nothing is the matter with it.
            Err(error) => Err(RoundError::from(error).into()),
        }
    }

    /// Says what is the matter, and changes nothing.
    ///
    /// # Errors
    /// A controller that is running, a counter that cannot be reached, a key that is not this
    /// controller's.
    pub fn diagnose(&self, progress: &mut Progress<'_>) -> Result<Diagnosis, Error> {
        if self.recovered().is_whole()? {
            let found = "an earlier recovery was cut short before its result was put in place";
            return Ok(Diagnosis::without_report(found.to_owned(), Remedy::Finish));
        }
        let key = self.master_key()?.folder_key();
        let counted = self.read_counter(&key)?;
        match self.read(&key, &counted) {
            Ok(salvage) => {
                let heads = salvage.journal().heads.clone();
                let instance = salvage.journal().instance;
                match salvage.look(progress) {
                    Ok(report) => Ok(judge(report, &counted, &heads, instance)),
                    Err(error) => Ok(Diagnosis::without_report(error.to_string(), Remedy::Restore)),
                }
            }
            Err(error) => match is_for_a_backup(&error) {
                true => Ok(Diagnosis::without_report(error.to_string(), Remedy::Restore)),
                false => Err(error.into()),
            },
        }
    }

    fn read(&self, key: &Key, counted: &Counted) -> Result<Salvage, RoundError> {
        let at = match counted {
            Counted::At(value) => Some(value),
            Counted::Lost(_) => None,
        };
        Salvage::read(&self.folder, key, at)
    }

    /// Goes on as `remedy` says, if it fits what is the matter and `approve` says so: the controller
    /// opens afterwards. What was there is kept, as `FOLDER.before-recovery` and
    /// `COUNTER.before-recovery`. `new_counter` is where the new root counter goes, in place of the old one
    /// where it is a file. At least `rounds_begun` rounds count as begun.
    ///
    /// Returns what was done; None where `approve` said no.
    ///
    /// # Errors
    /// As [`diagnose`](Self::diagnose); [`RoundError::Remedy`] for a remedy that does not fit; a disk
    /// without the space for a second tree.
    pub fn recover(
        &self,
        remedy: Remedy,
        new_counter: Option<&CounterSpec>,
        rounds_begun: Option<u64>,
        approve: &mut Approve<'_>,
        progress: &mut Progress<'_>,
    ) -> Result<Option<Diagnosis>, Error> {
        let recovered = match new_counter {
            None => self.recovered(),
            Some(_) => Recovered::new(&self.folder, None),
        };
        if recovered.is_whole()? {
            swap(&recovered, &Faults::none())?;
            let found = "an earlier recovery was cut short; its result is in place now".to_owned();
            return Ok(Some(Diagnosis::without_report(found, Remedy::Finish)));
        }
        let diagnosis = self.diagnose(progress)?;
        let unfit = || RoundError::Remedy {
            found: diagnosis.found.clone(),
            remedy: diagnosis.remedy.map_or("none", Remedy::name),
            asked: remedy.name(),
        };
        let fits = match (remedy, diagnosis.remedy) {
            (_, None | Some(Remedy::Restore | Remedy::Finish)) => false,
            (Remedy::NewCounter, found) => found == Some(Remedy::NewCounter),
            // Also where the counter is lost: it is what to take where nobody vouches for the folder.
            (Remedy::AcceptRollback, found) => found != Some(Remedy::Salvage),
            _ => true,
        };
        if !fits {
            return Err(unfit().into());
        }
        let key = self.master_key()?.folder_key();
        let counted = self.read_counter(&key)?;
        if remedy == Remedy::NewCounter {
            return self.anchor(&key, new_counter, &recovered, diagnosis, approve);
        }
        if diagnosis.rounds_unknown && rounds_begun.is_none() {
            return Err(RoundError::RoundsUnknown.into());
        }
        recovered.prepare()?;
        let counter = self.place_of_new(new_counter)?;
        let salvage = self.read(&key, &counted)?;
        let to = recovered_place(&self.folder);
        let rebuilt = salvage.rebuild(
            &to,
            &key,
            &counter,
            rounds_begun.unwrap_or(0),
            &mut |report| approve(&Diagnosis { report: Some(report.clone()), ..diagnosis.clone() }),
            progress,
            &Faults::none(),
        )?;
        let Some(report) = rebuilt else { return Ok(None) };
        recovered.note_whole(&Faults::none())?;
        swap(&recovered, &Faults::none())?;
        Ok(Some(Diagnosis { report: Some(report), ..diagnosis }))
    }

    /// Where a recovery makes the new counter: beside the old file, or where the operator says.
    fn place_of_new(&self, new_counter: Option<&CounterSpec>) -> Result<CounterSpec, Error> {
        match (new_counter, self.counter_file()) {
            (Some(place), _) => Ok(place.clone()),
            (None, Some(file)) => Ok(CounterSpec::File(recovered_place(file))),
            (None, None) => {
                Err(RoundError::CounterPlace { place: self.counter.to_string() }.into())
            }
        }
    }

    fn anchor(
        &self,
        key: &Key,
        new_counter: Option<&CounterSpec>,
        recovered: &Recovered,
        diagnosis: Diagnosis,
        approve: &mut Approve<'_>,
    ) -> Result<Option<Diagnosis>, Error> {
        recovered.prepare()?;
        let counter = self.place_of_new(new_counter)?;
        if !approve(&diagnosis) {
            return Ok(None);
        }
        Salvage::read(&self.folder, key, None)?.anchor(key, &counter, &Faults::none())?;
        // Only the counter is there to be put in place.
        swap(recovered, &Faults::none())?;
        Ok(Some(diagnosis))
    }

    /// Makes this controller of the backup in `backup`, if `approve` says so. `old_counter` is the root
    /// counter of the controller that was backed up, where it is still there: it knows how many rounds
    /// were committed since.
    ///
    /// # Errors
    /// [`RoundError::BackupIncomplete`], [`RoundError::BackupDamaged`]; [`RoundError::RoundsUnknown`]
    /// where there is a budget and nothing says how many rounds began since; a folder or a counter that
    /// exists, a disk without the space.
    pub fn restore(
        &self,
        backup: &Path,
        old_counter: Option<&CounterSpec>,
        rounds_begun: Option<u64>,
        approve: &mut Approve<'_>,
        progress: &mut Progress<'_>,
    ) -> Result<Option<Diagnosis>, Error> {
        let manifest = BackupManifest::read(backup)?;
        manifest.verify(backup, progress)?;
        let key = self.master_key()?.folder_key();
        let counted = match old_counter {
            None => None,
            Some(place) => {
                let of_old = Self { counter: place.clone(), ..self.clone() };
                match of_old.read_counter(&key)? {
                    Counted::At(value) => Some(value),
                    Counted::Lost(error) => return Err(RoundError::from(error).into()),
                }
            }
        };
        let salvage = Salvage::read(backup, &key, counted.as_ref())?;
        let is_known = counted.is_some() || rounds_begun.is_some();
        if salvage.spec().budget.is_some() && !is_known {
            return Err(RoundError::RoundsUnknown.into());
        }
        let found = format!("a backup of {} after {} rounds", manifest.table, manifest.rounds);
        let diagnosis = |report: &SalvageReport| Diagnosis {
            found: found.clone(),
            remedy: Some(Remedy::Restore),
            report: Some(report.clone()),
            counter_rounds: counted.map(|counted| counted.round),
            rounds_unknown: !is_known,
        };
        let made = salvage.rebuild(
            &self.folder,
            &key,
            &self.counter,
            rounds_begun.unwrap_or(0),
            &mut |report| approve(&diagnosis(report)),
            progress,
            &Faults::none(),
        )?;
        Ok(made.map(|report| diagnosis(&report)))
    }

    /// Backs the controller up to `to`, a new folder, while it is not served.
    ///
    /// # Errors
    /// As [`open`](Self::open); a folder that exists, a disk without the space.
    pub fn backup(&self, to: &Path, progress: &mut Progress<'_>) -> Result<BackupManifest, Error> {
        let mut controller = self.open(&mut |_, _| {})?;
        let backup = controller.start_backup(to)?;
        while !backup.is_done() {
            let (done, all) = backup.progress();
            progress(done, all);
            std::thread::sleep(Duration::from_millis(20));
        }
        let manifest = backup.finish()?;
        controller.close()?;
        Ok(manifest)
    }

    /// Checks that the backup in `backup` is whole and opens under this key, row by row.
    ///
    /// # Errors
    /// As [`restore`](Self::restore), for what is wrong with the backup.
    pub fn verify_backup(
        key: &super::MasterKey,
        backup: &Path,
        progress: &mut Progress<'_>,
    ) -> Result<(BackupManifest, SalvageReport), Error> {
        let manifest = BackupManifest::read(backup)?;
        manifest.verify(backup, progress)?;
        let report = Salvage::read(backup, &key.folder_key(), None)?.look(progress)?;
        match report.is_whole() {
            true => Ok((manifest, report)),
            false => {
                let path = PathBuf::from(backup);
                Err(RoundError::BackupDamaged { path }.into())
            }
        }
    }
}

impl Diagnosis {
    fn without_report(found: String, remedy: Remedy) -> Self {
        let remedy = Some(remedy);
        Self { found, remedy, report: None, counter_rounds: None, rounds_unknown: false }
    }
}

/// Whether nothing but a backup helps.
fn is_for_a_backup(error: &RoundError) -> bool {
    matches!(
        error,
        RoundError::Unsalvageable { .. }
            | RoundError::SpecChanged { .. }
            | RoundError::Incomplete { .. }
            | RoundError::Record
            | RoundError::Journal(
                JournalError::Forged { .. }
                    | JournalError::NotAJournal { .. }
                    | JournalError::Unfinished { .. }
                    | JournalError::Disk(DiskError::Missing { .. })
            )
            | RoundError::Disk(DiskError::Missing { .. })
    )
}

/// What the folder and the counter come to.
fn judge(
    report: SalvageReport,
    counted: &Counted,
    heads: &[[u8; 32]],
    instance: hushtable_oram::instance::Instance,
) -> Diagnosis {
    let rounds = report.rounds;
    let counter_rounds = match counted {
        Counted::At(value) if value.instance == instance => Some(value.round),
        _ => None,
    };
    let (found, remedy) = if !report.is_whole() {
        let journal = match report.journal_damaged_at {
            Some(offset) => format!("the journal is damaged at byte {offset}, and "),
            None => String::new(),
        };
        let found = format!(
            "{journal}{} buckets of the tree are not what was written last: {} of {} rows cannot be read",
            report.damaged_buckets,
            report.lost.len(),
            report.rows
        );
        (found, Some(Remedy::Salvage))
    } else {
        match counted {
            Counted::Lost(error) => {
                let found = format!("the folder is whole, and its root counter is lost: {error}");
                (found, Some(Remedy::NewCounter))
            }
            Counted::At(value) if value.instance != instance => {
                let found = format!(
                    "the folder is of controller {instance}, and the root counter of controller {}: give \
                     the counter of this folder, or take this one for lost by --counter with a new place",
                    value.instance
                );
                (found, Some(Remedy::Restore))
            }
            Counted::At(value) if heads.contains(&value.head) => {
                (format!("nothing: the folder is whole at round {rounds}"), None)
            }
            Counted::At(value) => {
                let found = format!(
                    "the folder is at round {rounds}, and its root counter at round {}: the folder is an \
                     older copy, or lost its last round",
                    value.round
                );
                (found, Some(Remedy::AcceptRollback))
            }
        }
    };
    // What a counter knows of are rounds that were committed, so of others only the operator knows.
    let rounds_unknown = remedy.is_some() && counter_rounds.is_none();
    let rounds_unknown = rounds_unknown && report.spent.budget.is_some();
    Diagnosis { found, remedy, report: Some(report), counter_rounds, rounds_unknown }
}
