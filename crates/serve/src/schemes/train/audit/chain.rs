//! The chain that the lines of an audit log make.
//!
//! A line is a JSON object that ends in `,"prev":"HEX","hash":"HEX"}`. `prev` is the hash of the line
//! before, zeros in the first; `hash` is BLAKE3, keyed, of the line's bytes before `,"hash":`.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, BufRead, Read};

use hushtable_oram::wire::ControllerKey;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::event::Event;

/// What lines are authenticated by. It follows from the controller's key, and tells nothing of it: who
/// has the disk that the log is on, and not the key, can change no line unnoticed.
pub(in super::super) struct ChainKey(Zeroizing<[u8; 32]>);

impl ChainKey {
    pub fn of(key: &ControllerKey) -> Self {
        Self(key.derive(CONTEXT))
    }
}

/// The end of a chain: how many lines it has, and the hash of the last.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ChainEnd {
    /// Lines, which is the number of the last.
    pub seq: u64,
    hash: [u8; 32],
}

impl ChainEnd {
    /// Before the first line.
    pub(super) const START: Self = Self { seq: 0, hash: [0; 32] };

    /// The line that comes next, with its line feed, and the end that it makes.
    pub(super) fn extend(self, key: &ChainKey, time: &str, event: &Event) -> (Vec<u8>, Self) {
        #[derive(Serialize)]
        struct Line<'a> {
            seq: u64,
            time: &'a str,
            #[serde(flatten)]
            event: &'a Event,
            prev: Hex,
        }
        let seq = self.seq + 1;
        let line = Line { seq, time, event, prev: Hex(self.hash) };
        // Numbers, words and names of fields: there is nothing in it that JSON could not hold.
        let mut text = serde_json::to_vec(&line).unwrap_or_default();
        text.pop();
        let hash = *blake3::keyed_hash(&key.0, &text).as_bytes();
        text.extend_from_slice(format!(",\"hash\":\"{}\"}}\n", Hex(hash)).as_bytes());
        (text, Self { seq, hash })
    }

    /// Reads `SEQ:HASH`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (seq, hash) = text.trim().split_once(':')?;
        Some(Self { seq: seq.parse().ok()?, hash: *blake3::Hash::from_hex(hash).ok()?.as_bytes() })
    }
}

impl fmt::Display for ChainEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.seq, Hex(self.hash))
    }
}

impl fmt::Debug for ChainEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ChainEnd({self})")
    }
}

/// What an audit log holds, every line of it checked.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AuditSummary {
    /// Its last line: whoever kept this finds out by it whether lines were cut off the end later.
    pub end: ChainEnd,
    /// Bytes of whole lines.
    pub bytes: u64,
    /// Bytes of a last line that a crash cut short: no part of the chain.
    pub torn_bytes: u64,
    /// Times of the first and the last line.
    pub times: Option<(String, String)>,
    /// Lines by their event.
    pub events: BTreeMap<String, u64>,
    /// Rounds that are over by their outcome.
    pub outcomes: BTreeMap<String, u64>,
    /// Refused messages that have a line, by their reason.
    pub refused: BTreeMap<String, u64>,
}

/// Why a log is no chain.
#[derive(Debug)]
pub(super) enum Broken {
    Io(io::Error),
    /// The first bad line, counted from 1, and what is wrong with it.
    Line(u64, &'static str),
    /// The log ends before, or has another line than, the expected one.
    Expected {
        expected: ChainEnd,
        reason: &'static str,
    },
}

/// Reads a log to its end and checks each line; `expected` must be among the ends on the way.
pub(super) fn read(
    log: impl io::Read,
    key: &ChainKey,
    expected: Option<ChainEnd>,
) -> Result<AuditSummary, Broken> {
    let mut log = io::BufReader::new(log);
    let mut found = AuditSummary {
        end: ChainEnd::START,
        bytes: 0,
        torn_bytes: 0,
        times: None,
        events: BTreeMap::new(),
        outcomes: BTreeMap::new(),
        refused: BTreeMap::new(),
    };
    let mut line = Vec::new();
    loop {
        line.clear();
        (&mut log).take(LINE_BYTES_MAX).read_until(b'\n', &mut line).map_err(Broken::Io)?;
        let number = found.end.seq + 1;
        if line.last() != Some(&b'\n') {
            if line.len() as u64 == LINE_BYTES_MAX {
                return Err(Broken::Line(number, "is longer than any"));
            }
            found.torn_bytes = line.len() as u64;
            break;
        }
        found.bytes += line.len() as u64;
        line.pop();
        found.take(&line, key).map_err(|wrong| Broken::Line(number, wrong))?;
        if let Some(expected) = expected
            && expected.seq == number
            && expected != found.end
        {
            let reason = "is another one in this log";
            return Err(Broken::Expected { expected, reason });
        }
    }
    match expected {
        Some(expected) if expected.seq > found.end.seq => {
            let reason = "is missing: lines were cut off the end";
            Err(Broken::Expected { expected, reason })
        }
        _ => Ok(found),
    }
}

impl AuditSummary {
    /// Takes one line, without its line feed.
    fn take(&mut self, line: &[u8], key: &ChainKey) -> Result<(), &'static str> {
        #[derive(Deserialize)]
        struct Line {
            seq: u64,
            time: String,
            event: String,
            outcome: Option<String>,
            reason: Option<String>,
            prev: String,
        }
        let no_line = "is no line of an audit log";
        let body = line.len().checked_sub(HASH_BYTES).ok_or(no_line)?;
        let (text, hash) = line.split_at(body);
        let hash = hash.strip_prefix(b",\"hash\":\"").and_then(|hash| hash.strip_suffix(b"\"}"));
        let hash = blake3::Hash::from_hex(hash.ok_or(no_line)?).map_err(|_| no_line)?;
        // In constant time, as blake3 compares: this may be asked by somebody who tries.
        if blake3::keyed_hash(&key.0, text) != hash {
            return Err("has a hash that is not its own");
        }
        let line: Line = serde_json::from_slice(line).map_err(|_| no_line)?;
        let prev = blake3::Hash::from_hex(&line.prev).map_err(|_| no_line)?;
        if line.seq != self.end.seq + 1 || *prev.as_bytes() != self.end.hash {
            return Err("does not follow the line before");
        }
        self.end = ChainEnd { seq: line.seq, hash: *hash.as_bytes() };
        match &mut self.times {
            Some((_, last)) => *last = line.time,
            None => self.times = Some((line.time.clone(), line.time)),
        }
        *self.events.entry(line.event).or_default() += 1;
        if let Some(outcome) = line.outcome {
            *self.outcomes.entry(outcome).or_default() += 1;
        }
        if let Some(reason) = line.reason {
            *self.refused.entry(reason).or_default() += 1;
        }
        Ok(())
    }
}

struct Hex([u8; 32]);

impl fmt::Display for Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Serialize for Hex {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

const CONTEXT: &str =
    "hushtable train 1: the key that the lines of the audit log are authenticated by";
/// `,"hash":"` and 64 digits and `"}`.
const HASH_BYTES: usize = 9 + 64 + 2;
/// A pin and a software's name are the longest that a line holds.
const LINE_BYTES_MAX: u64 = 4096;
