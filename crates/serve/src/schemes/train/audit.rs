//! The audit log of a training server: which rounds were opened, who was refused why, how they ended,
//! in lines of JSON that are chained by a key of the controller's.
//!
//! A thread of its own writes, so that no call waits for the disk but the one that opens a round: a round
//! that cannot be written down is not opened. What cannot be written once a round is open stays in
//! memory, in order, until it can, and the round goes on.

mod chain;
mod event;

use std::collections::VecDeque;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub use self::chain::{AuditSummary, ChainEnd};
use self::chain::{Broken, ChainKey};
pub(super) use self::event::{Committed, Event, REFUSED_MAX};
use super::{MasterKey, TrainError};
use crate::Error;
use hushtable_oram::wire::ControllerKey;

/// An audit log that is written to. Dropped, it is written to its end first.
pub(super) struct Audit {
    /// None once it is dropped.
    told: Option<Sender<Told>>,
    writer: Option<JoinHandle<()>>,
    fault: Arc<Mutex<Option<String>>>,
}

/// What is to be written, and who waits for it.
struct Told {
    event: Event,
    done: Option<SyncSender<bool>>,
}

/// Where lines go.
trait Lines: Send {
    /// Puts one more line at the end, durably; after an error the lines are as they were.
    fn append(&mut self, line: &[u8]) -> io::Result<()>;
}

struct LogFile {
    file: File,
    /// Bytes of whole lines.
    bytes: u64,
}

struct Writer {
    path: PathBuf,
    lines: Box<dyn Lines>,
    key: ChainKey,
    end: ChainEnd,
    /// What could not be written yet, oldest first, with its time.
    waiting: VecDeque<(String, Event)>,
    fault: Arc<Mutex<Option<String>>>,
}

impl Audit {
    /// Goes on with the log at `path`, made where there is none. What a crash left of a last line is cut
    /// off, and noted.
    ///
    /// # Errors
    /// [`TrainError::Audit`] for a log whose chain is broken, or of another controller;
    /// [`TrainError::AuditInUse`]; [`Error::Io`].
    pub fn open(path: &Path, key: &ControllerKey) -> Result<Self, Error> {
        let failed =
            |source| Error::Io { what: format!("write the audit log {}", path.display()), source };
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(TrainError::AuditInUse { path: path.to_owned() }.into());
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let mut lines = LogFile { file, bytes: 0 };
        let key = ChainKey::of(key);
        let found = chain::read(&lines.file, &key, None).map_err(|broken| told_of(path, broken))?;
        lines.bytes = found.bytes;
        lines.cut().map_err(failed)?;
        let mut waiting = VecDeque::new();
        if found.torn_bytes > 0 {
            let bytes = found.torn_bytes;
            tracing::warn!(path = %path.display(), bytes, "cut a torn line off the audit log");
            waiting.push_back((now(), Event::Cut { bytes }));
        }
        let (lines, path) = (Box::new(lines), path.to_owned());
        Self::start(Writer { path, lines, key, end: found.end, waiting, fault: Arc::default() })
            .map_err(failed)
    }

    fn start(writer: Writer) -> io::Result<Self> {
        let (fault, (told, events)) = (Arc::clone(&writer.fault), channel());
        let writer = std::thread::Builder::new()
            .name("hushtable-audit".into())
            .spawn(move || writer.run(&events))?;
        Ok(Self { told: Some(told), writer: Some(writer), fault })
    }

    /// Writes an event down, soon.
    pub fn note(&self, event: Event) {
        self.tell(Told { event, done: None });
    }

    /// Writes an event down, with all before it, and says whether that is on the disk. May block.
    pub fn note_durably(&self, event: Event) -> bool {
        let (done, is_written) = sync_channel(1);
        self.tell(Told { event, done: Some(done) });
        is_written.recv().unwrap_or(false)
    }

    /// Why nothing can be written at the moment; None while all is well.
    pub fn fault(&self) -> Option<String> {
        lock(&self.fault).clone()
    }

    fn tell(&self, told: Told) {
        // The writer ends after this sender alone.
        if let Some(sender) = &self.told {
            let _ = sender.send(told);
        }
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        drop(self.told.take());
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

impl LogFile {
    /// Leaves whole lines, and writes behind them from now on.
    fn cut(&mut self) -> io::Result<()> {
        self.file.set_len(self.bytes)?;
        self.file.seek(SeekFrom::Start(self.bytes)).map(drop)
    }
}

impl Drop for LogFile {
    fn drop(&mut self) {
        // Closing it is not enough: a process that was forked meanwhile, by this program to run
        // another say, has the lock as well until it starts that one.
        let _ = self.file.unlock();
    }
}

impl Lines for LogFile {
    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        let written = self.file.write_all(line).and_then(|()| self.file.sync_data());
        match written {
            Ok(()) => self.bytes += line.len() as u64,
            // Half a line must not be before the next one.
            Err(_) => self.cut()?,
        }
        written
    }
}

impl Writer {
    fn run(mut self, events: &Receiver<Told>) {
        self.catch_up();
        loop {
            match events.recv_timeout(AGAIN_AFTER) {
                Ok(Told { event, done }) => {
                    self.waiting.push_back((now(), event));
                    let is_written = self.catch_up();
                    if let Some(done) = done {
                        let _ = done.send(is_written);
                    }
                }
                Err(RecvTimeoutError::Timeout) => drop(self.catch_up()),
                Err(RecvTimeoutError::Disconnected) => {
                    if !self.catch_up() {
                        let lost = self.waiting.len();
                        tracing::error!(lost, "the audit log lacks the last events");
                    }
                    return;
                }
            }
        }
    }

    /// Writes what waits, and says whether nothing does any more.
    fn catch_up(&mut self) -> bool {
        while let Some((time, event)) = self.waiting.front() {
            let (line, end) = self.end.extend(&self.key, time, event);
            if let Err(error) = self.lines.append(&line) {
                let text =
                    format!("the audit log {} cannot be written: {error}", self.path.display());
                let mut fault = lock(&self.fault);
                if fault.as_ref() != Some(&text) {
                    tracing::error!("{text}: no rounds are opened until it can");
                }
                *fault = Some(text);
                return false;
            }
            self.end = end;
            self.waiting.pop_front();
        }
        if lock(&self.fault).take().is_some() {
            tracing::info!("the audit log is written again");
        }
        true
    }
}

impl AuditSummary {
    /// Checks every line of the audit log at `path` by the controller's key; `expected` is `SEQ:HASH` of a
    /// line that must be in it, as an earlier check or the operator's notes have it.
    ///
    /// # Errors
    /// [`TrainError::Audit`] with the first bad line, [`TrainError::AuditExpected`], [`Error::Io`].
    pub fn of_file(path: &Path, key: &MasterKey, expected: Option<&str>) -> Result<Self, Error> {
        let failed =
            |source| Error::Io { what: format!("read the audit log {}", path.display()), source };
        let expected = match expected {
            None => None,
            Some(text) => {
                let reason = "is no SEQ:HASH, which a number and 64 hex digits make";
                let no_end = || TrainError::AuditExpected {
                    path: path.to_owned(),
                    expected: text.to_owned(),
                    reason,
                };
                Some(ChainEnd::parse(text).ok_or_else(no_end)?)
            }
        };
        let file = File::open(path).map_err(failed)?;
        let key = ChainKey::of(&key.controller_key());
        chain::read(file, &key, expected).map_err(|broken| told_of(path, broken))
    }
}

fn told_of(path: &Path, broken: Broken) -> Error {
    let path = path.to_owned();
    match broken {
        Broken::Io(source) => {
            Error::Io { what: format!("read the audit log {}", path.display()), source }
        }
        Broken::Line(line, reason) => TrainError::Audit { path, line, reason }.into(),
        Broken::Expected { expected, reason } => {
            TrainError::AuditExpected { path, expected: expected.to_string(), reason }.into()
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The time in UTC, as RFC 3339 writes it.
fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    utc(since)
}

fn utc(since_1970: Duration) -> String {
    let seconds = since_1970.as_secs();
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Howard Hinnant's civil_from_days: years begin in March, in eras of 400 years.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + 400 * era + u64::from(month <= 2);
    let (hour, minute, milli) = (second / 3600, second / 60 % 60, since_1970.subsec_millis());
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{:02}.{milli:03}Z", second % 60)
}

/// How soon what could not be written is tried again.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
