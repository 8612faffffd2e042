//! A real controller under the rounds: opened from its folder, and opened again where it ended.

use std::fs;
use std::path::{Path, PathBuf};

use hushtable_oram::round::backup::Backup;
use hushtable_oram::round::{
    Controller, Ended, Error as RoundError, RoundName, RoundReport, Settled,
};
use hushtable_oram::seal::Key;
use hushtable_oram::wire::{ControllerKey, Pin, Terms};
use zeroize::Zeroizing;

use super::{
    BudgetSpent, CommitError, CounterSpec, MemoryError, RoundMemory, SecretFile, TrainError,
};
use crate::Error;

/// The 32 secret bytes that a controller's folder is sealed under, kept in a file of their own. Its
/// key pair follows from them.
pub struct MasterKey(Zeroizing<[u8; 32]>);

impl MasterKey {
    /// Makes a random key and writes it to a new file that only its owner may read.
    ///
    /// # Errors
    /// As [`SecretFile::create`].
    pub fn create(path: &Path) -> Result<Self, Error> {
        SecretFile::create(path).map(|secret| Self(secret.into_bytes()))
    }

    /// Reads a key.
    ///
    /// # Errors
    /// As [`SecretFile::read`].
    pub fn read(path: &Path) -> Result<Self, Error> {
        SecretFile::read(path).map(|secret| Self(secret.into_bytes()))
    }

    /// What the folder is sealed under.
    pub fn folder_key(&self) -> Key {
        Key::from_bytes(*self.0)
    }

    /// What users' requests are sealed to.
    pub fn controller_key(&self) -> ControllerKey {
        ControllerKey::of_master(&self.0)
    }
}

/// Where a controller is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "a spec is written field by field")]
pub struct ControllerPlace {
    /// Its folder.
    pub folder: PathBuf,
    /// The file of its key, which should not be where the folder is.
    pub key: PathBuf,
    /// Take a key that lies beside the folder, or in it, all the same.
    pub key_beside: bool,
    /// Where its root counter is: a file beside the folder by default. It should be where whoever can
    /// write to the folder cannot put it back.
    pub counter: CounterSpec,
}

impl ControllerPlace {
    /// The controller in `folder`, whose key is in the file `key`, with `folder.counter` beside it.
    pub fn new(folder: &Path, key: &Path) -> Self {
        let counter = CounterSpec::File(beside(folder, ".counter"));
        Self { folder: folder.to_owned(), key: key.to_owned(), key_beside: false, counter }
    }

    /// The controller in `folder`, with `folder.key` and `folder.counter` beside it: for trying out,
    /// since whoever copies that disk has all of it.
    pub fn all_beside(folder: &Path) -> Self {
        Self { key_beside: true, ..Self::new(folder, &beside(folder, ".key")) }
    }

    /// Its key.
    ///
    /// # Errors
    /// [`TrainError::KeyBeside`] for a key that lies where the folder does, unless that is allowed; as
    /// [`MasterKey::read`].
    pub fn master_key(&self) -> Result<MasterKey, Error> {
        self.check_key_apart()?;
        MasterKey::read(&self.key)
    }

    /// Makes its key.
    ///
    /// # Errors
    /// [`TrainError::KeyBeside`], as [`master_key`](Self::master_key); as [`MasterKey::create`].
    pub fn create_key(&self) -> Result<MasterKey, Error> {
        self.check_key_apart()?;
        MasterKey::create(&self.key)
    }

    /// Paths are compared as the system resolves them: it is where the bytes lie that counts.
    fn check_key_apart(&self) -> Result<(), Error> {
        let [key, folder] = [&self.key, &self.folder].map(|path| resolved(path));
        let is_beside = key.parent() == folder.parent() || key.starts_with(&folder);
        match is_beside && !self.key_beside {
            true => Err(TrainError::KeyBeside { key, folder }.into()),
            false => Ok(()),
        }
    }

    /// What the controller was created as, without opening it: for what is said before that. The
    /// controller holds the file against its journal when it is opened.
    ///
    /// # Errors
    /// [`hushtable_oram::round::Error`] for a folder that is no controller, or another version's.
    pub fn terms(&self) -> Result<Terms, Error> {
        let path = self.folder.join(SPEC_FILE);
        let text =
            fs::read(&path).map_err(|_| RoundError::Incomplete { path: self.folder.clone() })?;
        Ok(Terms::read(&text).map_err(|_| RoundError::SpecChanged { path })?)
    }

    /// What users are given to know the controller by.
    ///
    /// # Errors
    /// As [`terms`](Self::terms); as [`master_key`](Self::master_key).
    pub fn pin(&self) -> Result<Pin, Error> {
        Ok(Pin::new(self.master_key()?.controller_key().public(), &self.terms()?))
    }

    /// Opens the controller; `progress` is told the work done and all of it.
    ///
    /// # Errors
    /// As [`master_key`](Self::master_key); [`hushtable_oram::round::Error`].
    pub fn open(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<Controller, Error> {
        let key = self.master_key()?.folder_key();
        Ok(Controller::open(&self.folder, &key, &self.counter, progress)?)
    }

    /// [`open`](Self::open), for whoever has told others these terms.
    ///
    /// # Errors
    /// As [`open`](Self::open), and [`hushtable_oram::round::Error`] for a controller of other terms: its file
    /// was another one when the terms were read.
    pub fn open_as(
        &self,
        terms: &Terms,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Controller, Error> {
        let controller = self.open(progress)?;
        match controller.spec_hash() == terms.hash() {
            true => Ok(controller),
            false => Err(RoundError::SpecChanged { path: self.folder.join(SPEC_FILE) }.into()),
        }
    }
}

/// A controller as rounds use it. After an error that ended it, the next round opens it again, as of
/// the last committed one.
pub struct OramMemory {
    place: ControllerPlace,
    terms: Terms,
    controller: Option<Controller>,
    rounds: u64,
    settled: Vec<Settled>,
    /// The round that is open, or was last.
    name: RoundName,
}

impl OramMemory {
    /// Rounds of the controller at `place`, which others were told `terms` of.
    ///
    /// # Errors
    /// As [`ControllerPlace::open_as`].
    pub fn open(
        place: ControllerPlace,
        terms: Terms,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self, Error> {
        let controller = place.open_as(&terms, progress)?;
        let (rounds, settled) = (controller.round(), controller.settled().to_vec());
        let name = RoundName::NONE;
        Ok(Self { place, terms, controller: Some(controller), rounds, settled, name })
    }

    /// The controller, opened again where it was given up.
    fn live(&mut self) -> Result<&mut Controller, Error> {
        if self.controller.is_none() {
            tracing::info!(folder = %self.place.folder.display(), "opening the controller again");
            let controller = self.place.open_as(&self.terms, &mut |_, _| {})?;
            (self.rounds, self.settled) = (controller.round(), controller.settled().to_vec());
            self.controller = Some(controller);
        }
        let opened = self.controller.as_mut();
        Ok(opened.unwrap_or_else(|| unreachable!("it was opened just now")))
    }
}

impl OramMemory {
    /// Takes over what the controller says of rounds.
    fn note(&mut self) {
        if let Some(controller) = &self.controller {
            (self.rounds, self.settled) = (controller.round(), controller.settled().to_vec());
        }
    }
}

impl RoundMemory for OramMemory {
    fn begin(&mut self, name: RoundName, users: usize, ids: &[u32]) -> Result<(), MemoryError> {
        self.name = name;
        match self.live()?.begin_named(name, users, ids) {
            Ok(_) => Ok(()),
            Err(RoundError::Ended) => {
                self.controller = None;
                self.live()?.begin_named(name, users, ids)?;
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    fn rows(
        &mut self,
        user: usize,
        rows: &mut [f32],
        found: &mut [bool],
    ) -> Result<(), MemoryError> {
        Ok(self.live()?.rows(user, rows, found)?)
    }

    fn add(&mut self, user: usize, gradients: &[f32], weight: f32) -> Result<(), MemoryError> {
        Ok(self.live()?.add(user, gradients, weight)?)
    }

    fn commit(&mut self) -> Result<RoundReport, CommitError> {
        let controller = match self.live() {
            Ok(controller) => controller,
            Err(error) => return Err(CommitError::Failed(error.into())),
        };
        let error = match controller.commit() {
            Ok(report) => {
                self.note();
                return Ok(report);
            }
            Err(error) => error,
        };
        // An aggregate has failed: the round is still open.
        if controller.is_serving() && self.abandon().is_ok() {
            return Err(CommitError::Failed(error.into()));
        }
        self.controller = None;
        if !matches!(error, RoundError::Unsettled { .. }) {
            return Err(CommitError::Failed(error.into()));
        }
        tracing::error!(%error, "opening the controller again to see");
        match self.live() {
            Ok(_) => {
                let own = self.settled.iter().find(|settled| settled.round == self.name.number);
                match own.map(|settled| &settled.ended) {
                    Some(Ended::Committed(report)) => Ok(report.clone()),
                    _ => Err(CommitError::Failed(error.into())),
                }
            }
            Err(again) => {
                tracing::error!(error = %again, "the controller could not be opened again");
                Err(CommitError::Unsettled(error.into()))
            }
        }
    }

    fn abandon(&mut self) -> Result<(), MemoryError> {
        match self.live()?.abandon() {
            Ok(_) => {
                self.note();
                Ok(())
            }
            Err(error) => {
                self.controller = None;
                Err(error.into())
            }
        }
    }

    fn settled(&self) -> Vec<Settled> {
        self.settled.clone()
    }

    fn check(&mut self, users: usize) -> Result<(), MemoryError> {
        match self.live()?.check_writable(users) {
            Err(RoundError::Ended) => {
                self.controller = None;
                Ok(self.live()?.check_writable(users)?)
            }
            checked => Ok(checked?),
        }
    }

    fn accesses(&self) -> Option<u64> {
        self.controller.as_ref()?.accesses()
    }

    fn rounds(&self) -> u64 {
        self.rounds
    }

    fn start_backup(&mut self, to: &Path) -> Result<Option<Backup>, MemoryError> {
        let controller = self.live()?;
        match controller.is_serving() {
            true => Ok(None),
            false => match controller.start_backup(to) {
                // An earlier error has ended it: it is opened again by whoever asks next.
                Err(RoundError::Ended) => {
                    self.controller = None;
                    Ok(None)
                }
                started => Ok(Some(started?)),
            },
        }
    }

    fn spent(&self) -> Option<BudgetSpent> {
        // One that is to be opened again says so when its round begins.
        let controller = self.controller.as_ref()?;
        let spent = controller.check_budget().err()?;
        Some(BudgetSpent { rounds: controller.spent().rounds, message: spent.to_string() })
    }
}

fn beside(folder: &Path, ending: &str) -> PathBuf {
    let mut name = folder.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

/// `path` without links and detours, as far as it exists.
fn resolved(path: &Path) -> PathBuf {
    if let Ok(path) = path.canonicalize() {
        return path;
    }
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            resolved(parent).join(name)
        }
        _ => path.to_owned(),
    }
}

const SPEC_FILE: &str = "controller.json";

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_key_beside_its_folder_takes_a_word_and_one_that_others_read_is_refused() {
        let root = tempfile::TempDir::new().unwrap();
        let [disk, elsewhere] = ["disk", "elsewhere"].map(|name| root.path().join(name));
        for folder in [&disk, &elsewhere] {
            fs::create_dir(folder).unwrap();
        }
        let folder = disk.join("films");
        let made = |key: &Path| ControllerPlace::new(&folder, key).create_key().map(|_| ());
        let ways = [disk.join("films.key"), folder.join("key"), disk.join("../disk/films.key")];
        let refused = |result: Result<(), Error>| {
            let error = result.unwrap_err();
            assert!(matches!(error.of(), Some(TrainError::KeyBeside { .. })), "{error}");
        };
        ways.iter().for_each(|key| refused(made(key)));
        fs::create_dir(&folder).unwrap();
        ways.iter().for_each(|key| refused(made(key)));
        // By a link to the folder, and by one to the key.
        symlink(&disk, root.path().join("link")).unwrap();
        refused(made(&root.path().join("link/films.key")));
        ControllerPlace::all_beside(&folder).create_key().unwrap();
        symlink(disk.join("films.key"), elsewhere.join("link.key")).unwrap();
        let by_link = ControllerPlace::new(&folder, &elsewhere.join("link.key"));
        refused(by_link.master_key().map(|_| ()));

        let key = elsewhere.join("films.key");
        made(&key).unwrap();
        let apart = ControllerPlace::new(&folder, &key);
        apart.master_key().unwrap();
        for mode in [0o604, 0o640, 0o660] {
            fs::set_permissions(&key, fs::Permissions::from_mode(mode)).unwrap();
            let error = apart.master_key().map(|_| ()).unwrap_err();
            assert!(error.to_string().contains("chmod 600"), "{error}");
        }
        fs::set_permissions(&key, fs::Permissions::from_mode(0o400)).unwrap();
        apart.master_key().unwrap();
    }
}
