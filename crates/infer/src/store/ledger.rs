//! A folder's ledger: which of its precomputes may still be used. It is kept outside of the folder, so that a folder that
//! is put back does not bring back what was used since.
//!
//! A precompute is entered before it is put in the folder, and struck out, durably, before a byte of it is handed out.
//! What is not in the ledger is never used, so there is no list of all that was used, and the ledger stays as small as what
//! is in the folder. Entries are numbered: a folder that has a number which its ledger has not given has an older ledger.
//!
//! ```text
//! header   kind and version, 8 bytes; the folder's id, 16; the machine, 32; the file's identity, 24; random bytes, 16;
//!          the number given last, 8; a seal, 16
//! record   1 for an entry, 0 where it is struck out; the number, 8; the precompute's id, 16; a seal, 16
//! ```
//!
//! Seals are BLAKE3 under a key that comes of the store's, over the bytes before, for a record with the header's seal and
//! the record's place. A record that was being written when the process ended is not sealed: it is as if it were not there,
//! and what it was written for has not been done.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use hushtable_mpc::fill_random;
use zeroize::Zeroizing;

use super::folder::{create_private, name};
use super::identity::{IDENTITY_BYTES, identity};
use super::place::LedgerPlace;
use super::spec::{Cause, StoreError};

/// An open ledger, which no other process has.
pub(super) struct Ledger {
    path: PathBuf,
    /// Open, to make changes of names durable.
    folder: File,
    lock: File,
    key: Zeroizing<[u8; 32]>,
    store: [u8; 16],
    machine: [u8; 32],
    log: Mutex<Log>,
}

struct Log {
    /// None where what is in it is not known: it is written anew then.
    file: Option<File>,
    header: [u8; SEAL_BYTES],
    records: u64,
    /// The number given last.
    number: u64,
    entries: HashMap<[u8; 16], u64>,
    /// Why nothing that is in it is believed.
    doubt: Option<Cause>,
}

impl Ledger {
    /// Opens the ledger of a folder of this id.
    pub(super) fn open(
        place: &LedgerPlace,
        of: &Path,
        store_key: &[u8; 32],
        store: [u8; 16],
    ) -> Result<Self, StoreError> {
        Self::open_at(&place.folder(), of, store_key, store, place.machine(store_key))
    }

    pub(super) fn open_at(
        folder: &Path,
        of: &Path,
        store_key: &[u8; 32],
        store: [u8; 16],
        machine: [u8; 32],
    ) -> Result<Self, StoreError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(failed(folder))?;
        let [within, around] = [folder, of].map(fs::canonicalize);
        if within.map_err(failed(folder))?.starts_with(around.map_err(failed(of))?) {
            return Err(StoreError::LedgerInside {
                ledger: folder.to_owned(),
                folder: of.to_owned(),
            });
        }
        let lock_path = folder.join(format!("{}.lock", name(&store)));
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let lock = options.open(&lock_path).map_err(failed(&lock_path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(StoreError::LedgerLocked { ledger: lock_path, folder: of.to_owned() });
            }
            Err(TryLockError::Error(source)) => return Err(failed(&lock_path)(source)),
        }
        let key = blake3::derive_key("hushtable store 2026-11 ledger", store_key);
        let mut ledger = Self {
            path: folder.join(format!("{}.ledger", name(&store))),
            folder: File::open(folder).map_err(failed(folder))?,
            lock,
            key: Zeroizing::new(key),
            store,
            machine,
            log: Mutex::new(Log {
                file: None,
                header: [0; SEAL_BYTES],
                records: 0,
                number: 0,
                entries: HashMap::new(),
                doubt: None,
            }),
        };
        let (number, entries, doubt) = match ledger.read()? {
            Ok((number, entries)) => (number, entries, None),
            Err(doubt) => (0, HashMap::new(), Some(doubt)),
        };
        let log = ledger.log.get_mut().unwrap_or_else(PoisonError::into_inner);
        (log.number, log.entries, log.doubt) = (number, entries, doubt);
        Ok(ledger)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Why nothing is to be used of a folder whose newest precompute has this number.
    pub(super) fn doubt(&self, newest: u64) -> Option<Cause> {
        let log = self.log();
        let is_older = newest > log.number;
        log.doubt.or(is_older.then_some(Cause::OlderLedger))
    }

    /// Whether a precompute was entered under this number, and not struck out.
    pub(super) fn has(&self, id: &[u8; 16], number: u64) -> bool {
        self.log().entries.get(id) == Some(&number)
    }

    /// Begins anew, durably: these entries are all, and numbers go on behind `newest` at least.
    pub(super) fn begin(
        &self,
        entries: HashMap<[u8; 16], u64>,
        newest: u64,
    ) -> Result<(), StoreError> {
        let mut log = self.log();
        log.number = log.number.max(newest);
        log.entries = entries;
        log.doubt = None;
        self.rewrite(&mut log)
    }

    /// Enters a precompute, durably; gives its number.
    pub(super) fn enter(&self, id: &[u8; 16]) -> Result<u64, StoreError> {
        let mut log = self.log();
        log.number += 1;
        let number = log.number;
        log.entries.insert(*id, number);
        self.append(&mut log, ENTERED, &[(*id, number)])?;
        Ok(number)
    }

    /// Strikes precomputes out, durably: they are never used from now on, but by who called.
    pub(super) fn strike(&self, ids: &[[u8; 16]]) -> Result<(), StoreError> {
        let mut log = self.log();
        let struck = ids.iter().filter_map(|id| Some((*id, log.entries.remove(id)?)));
        let struck: Vec<_> = struck.collect();
        self.append(&mut log, STRUCK, &struck)
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        // What it holds after a panic is written anew, or refused when it is next read.
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn append(
        &self,
        log: &mut Log,
        kind: u8,
        records: &[([u8; 16], u64)],
    ) -> Result<(), StoreError> {
        let is_long = log.records > 2 * log.entries.len() as u64 + RECORDS_MIN;
        let Some(mut file) = log.file.take().filter(|_| !is_long) else {
            // It has what is appended already.
            return self.rewrite(log);
        };
        let mut bytes = Vec::with_capacity(records.len() * RECORD_BYTES);
        for (id, number) in records {
            bytes.extend(self.record(&log.header, log.records, kind, id, *number));
            log.records += 1;
        }
        file.write_all(&bytes).and_then(|()| file.sync_data()).map_err(failed(&self.path))?;
        log.file = Some(file);
        Ok(())
    }

    /// Writes all of it to a new file, which takes the old one's place.
    fn rewrite(&self, log: &mut Log) -> Result<(), StoreError> {
        log.file = None;
        let path = self.path.with_extension("ledger.new");
        // Each has an identity of its own.
        let mut file = create_private(&path)?;
        let mut bytes = Vec::with_capacity(HEADER_BYTES + log.entries.len() * RECORD_BYTES);
        bytes.extend(MAGIC);
        bytes.extend(self.store);
        bytes.extend(self.machine);
        bytes.extend(identity(&file).map_err(failed(&path))?);
        let mut nonce = [0; NONCE_BYTES];
        fill_random(&mut nonce)?;
        bytes.extend(nonce);
        bytes.extend(log.number.to_le_bytes());
        log.header = self.seal(&[&bytes]);
        bytes.extend(log.header);
        let mut entries: Vec<_> = log.entries.iter().collect();
        entries.sort_unstable_by_key(|(_, number)| **number);
        for (place, (id, number)) in entries.into_iter().enumerate() {
            bytes.extend(self.record(&log.header, place as u64, ENTERED, id, *number));
        }
        log.records = log.entries.len() as u64;
        file.write_all(&bytes).and_then(|()| file.sync_all()).map_err(failed(&path))?;
        fs::rename(&path, &self.path).map_err(failed(&self.path))?;
        self.folder.sync_all().map_err(failed(&self.path))?;
        log.file = Some(file);
        Ok(())
    }

    /// The number given last and the entries; within, why they are not to be believed.
    #[allow(clippy::type_complexity, reason = "used once")]
    fn read(&self) -> Result<Result<(u64, HashMap<[u8; 16], u64>), Cause>, StoreError> {
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(source) if source.kind() == io::ErrorKind::NotFound => {
                return Ok(Err(Cause::NoLedger));
            }
            Err(source) => return Err(failed(&self.path)(source)),
        };
        let own = identity(&file).map_err(failed(&self.path))?;
        let mut bytes = Vec::new();
        file.take(LEDGER_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed(&self.path))?;
        Ok(self.parse(&bytes, &own))
    }

    fn parse(
        &self,
        bytes: &[u8],
        own: &[u8; IDENTITY_BYTES],
    ) -> Result<(u64, HashMap<[u8; 16], u64>), Cause> {
        let damaged = Cause::DamagedLedger;
        let (header, records) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or(damaged)?;
        let (sealed, seal) = header.split_last_chunk::<SEAL_BYTES>().ok_or(damaged)?;
        let is_own = sealed.starts_with(&MAGIC) && sealed[MAGIC.len()..].starts_with(&self.store);
        if !is_own || self.seal(&[sealed]) != *seal || bytes.len() as u64 > LEDGER_BYTES_MAX {
            return Err(damaged);
        }
        let rest = &sealed[MAGIC.len() + self.store.len()..];
        let (machine, rest) = rest.split_first_chunk::<32>().ok_or(damaged)?;
        let (file, rest) = rest.split_first_chunk::<IDENTITY_BYTES>().ok_or(damaged)?;
        let (_, number) = rest.split_last_chunk::<8>().ok_or(damaged)?;
        if *machine != self.machine {
            return Err(Cause::OtherMachine);
        }
        if file != own {
            return Err(Cause::CopiedLedger);
        }
        let (mut number, mut entries) = (u64::from_le_bytes(*number), HashMap::new());
        let mut has_ended = false;
        for (place, record) in records.as_chunks::<RECORD_BYTES>().0.iter().enumerate() {
            let Some((kind, given, id)) = self.open_record(seal, place as u64, record) else {
                has_ended = true;
                continue;
            };
            if has_ended {
                // Not the end of a write that was cut.
                return Err(damaged);
            }
            number = number.max(given);
            match kind {
                ENTERED => entries.insert(id, given),
                _ => entries.remove(&id),
            };
        }
        Ok((number, entries))
    }

    fn record(
        &self,
        header: &[u8; SEAL_BYTES],
        place: u64,
        kind: u8,
        id: &[u8; 16],
        number: u64,
    ) -> [u8; RECORD_BYTES] {
        let mut record = [0; RECORD_BYTES];
        let (text, seal) = record.split_at_mut(RECORD_BYTES - SEAL_BYTES);
        text[0] = kind;
        text[1..9].copy_from_slice(&number.to_le_bytes());
        text[9..].copy_from_slice(id);
        seal.copy_from_slice(&self.seal(&[header, &place.to_le_bytes(), text]));
        record
    }

    /// The kind, number and id of a record; none where it is not sealed for this place.
    fn open_record(
        &self,
        header: &[u8; SEAL_BYTES],
        place: u64,
        record: &[u8; RECORD_BYTES],
    ) -> Option<(u8, u64, [u8; 16])> {
        let (text, seal) = record.split_last_chunk::<SEAL_BYTES>()?;
        let is_sealed = self.seal(&[header, &place.to_le_bytes(), text]) == *seal;
        let (kind, rest) = text.split_first().filter(|_| is_sealed)?;
        let (number, id) = rest.split_first_chunk::<8>()?;
        Some((*kind, u64::from_le_bytes(*number), id.try_into().ok()?))
    }

    fn seal(&self, parts: &[&[u8]]) -> [u8; SEAL_BYTES] {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        for part in parts {
            hasher.update(part);
        }
        let mut seal = [0; SEAL_BYTES];
        hasher.finalize_xof().fill(&mut seal);
        seal
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        // As the folder's: a process that was forked meanwhile has it as well.
        let _ = self.lock.unlock();
    }
}

fn failed(path: &Path) -> impl Fn(io::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::Ledger { path: path.clone(), source }
}

const MAGIC: [u8; 8] = *b"htledg\x00\x01";
const NONCE_BYTES: usize = 16;
const SEAL_BYTES: usize = 16;
const HEADER_BYTES: usize = MAGIC.len() + 16 + 32 + IDENTITY_BYTES + NONCE_BYTES + 8 + SEAL_BYTES;
const RECORD_BYTES: usize = 1 + 8 + 16 + SEAL_BYTES;
const STRUCK: u8 = 0;
const ENTERED: u8 = 1;
/// As many records are appended before it is written anew, beside two an entry.
const RECORDS_MIN: u64 = 512;
/// More than entries for all precomputes that a folder could hold would take.
const LEDGER_BYTES_MAX: u64 = 1 << 30;
