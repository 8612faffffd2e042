//! How rounds end: with an update or without, durably, and as the journal will say.

use std::time::Instant;

use zeroize::Zeroizing;

use super::records::{self, Entry};
use super::settled::{self, Ended, RoundName, Settled};
use super::{Controller, Drained, Error, RoundReport, Steps, idle, micros, one_each, update_rows};
use crate::aggregate::Batch;
use crate::bucket::{HEAD_BYTES, block_bytes, set_head};
use crate::disk::{Counters, DiskError};
use crate::journal::{CounterValue, Journal, JournalError};

/// What the journal is told of a round with a name.
pub(super) struct Settling<'a> {
    report: &'a mut RoundReport,
    /// What had been read and written when the round began.
    before: (Counters, u64),
    update: bool,
}

impl Controller {
    /// Updates the rows by what was added, and makes the round durable.
    ///
    /// # Errors
    ///
    /// No open round. The aggregate's own: the round is still open and may be abandoned. The disk, or
    /// tampered state: the controller has ended, and the round did not happen, but for
    /// [`Error::Unsettled`]: then only opening it again tells.
    pub fn commit(&mut self) -> Result<RoundReport, Error> {
        self.finish(true)
    }

    /// Ends the round without an update: rows go back as they were served. It takes as long, and
    /// looks to the disk, as a commit.
    ///
    /// # Errors
    ///
    /// As [`commit`](Self::commit).
    pub fn abandon(&mut self) -> Result<RoundReport, Error> {
        self.finish(false)
    }

    fn finish(&mut self, update: bool) -> Result<RoundReport, Error> {
        if self.ended {
            return Err(Error::Ended);
        }
        let Some(open) = self.open.as_mut() else { return Err(idle("commit")) };
        let clock = Instant::now();
        let (dim, payload_bytes) = (self.spec.dim, self.raw.geometry().payload_bytes());
        if let Some(buffer) = open.buffer.take() {
            let mut drained = Drained {
                payloads: Zeroizing::new(Vec::with_capacity(open.k * payload_bytes)),
                sums: Zeroizing::new(Vec::with_capacity(open.k * dim)),
                weights: Zeroizing::new(Vec::with_capacity(open.k)),
            };
            buffer.drain(|row| {
                drained.payloads.extend_from_slice(row.row);
                drained.sums.extend_from_slice(row.gradient);
                drained.weights.push(row.weight);
            })?;
            open.drained = Some(drained);
            open.steps.drain_us = micros(clock);
        }
        let Some(drained) = open.drained.as_mut() else { return Err(Error::Ended) };
        if update {
            let clock = Instant::now();
            let round = u32::try_from(self.round + 1).unwrap_or(u32::MAX);
            let (sums, weights) = (&drained.sums[..], &drained.weights[..]);
            update_rows(&mut drained.payloads, dim, payload_bytes, |rows, state| {
                let noise = &mut self.random;
                self.aggregate.post(&mut Batch { dim, round, rows, state, sums, weights, noise })
            })?;
            open.steps.update_us = micros(clock);
        }
        let Some(open) = self.open.take() else { return Err(idle("commit")) };
        let Some(drained) = open.drained else { return Err(Error::Ended) };
        let mut steps = open.steps;
        self.ended = true;
        let rounds = self.round + u64::from(update);
        let is_named = open.name != RoundName::NONE;
        let mut report = RoundReport {
            round: if is_named { open.name.number } else { self.round + 1 },
            rounds,
            users: open.users,
            requested: if is_named { open.name.requested } else { open.users },
            uploaded: open.added.iter().filter(|&&added| added).count(),
            requests: open.positions.len() as u64,
            accesses: open.k as u64,
            refused: one_each(open.refused),
            ..RoundReport::default()
        };
        let before = (open.disk, open.journal_bytes);
        let mut settled = is_named.then_some(Settling { report: &mut report, before, update });
        self.put(&open.entries, &drained.payloads, rounds, settled.as_mut(), &mut steps)?;
        self.round = rounds;
        self.ended = false;
        // The round stands, whatever becomes of the journal now.
        if let Err(error) = self.checkpoint_if_due() {
            tracing::error!(%error, "the round stands, but the journal could not be begun anew");
        }
        self.measure(&mut report, before);
        report.steps_us = steps.named();
        if is_named {
            let ended = if update { Ended::Committed(report.clone()) } else { Ended::Abandoned };
            settled::push(&mut self.settled, Settled { round: report.round, ended });
        }
        Ok(report)
    }

    /// What has been read and written since `before`.
    fn measure(&self, report: &mut RoundReport, (disk, journal_bytes): (Counters, u64)) {
        let now = self.raw.tree().counters();
        report.read_bytes = now.read_bytes - disk.read_bytes;
        report.written_bytes = now.written_bytes - disk.written_bytes;
        report.journal_bytes = self.journal.counters().written_bytes - journal_bytes;
    }

    /// Puts rows back into the tree, at their new leaves, durably; `round` rounds are committed then.
    pub(super) fn put(
        &mut self,
        entries: &[Entry],
        payloads: &[u8],
        round: u64,
        settling: Option<&mut Settling<'_>>,
        steps: &mut Steps,
    ) -> Result<(), Error> {
        let payload_bytes = self.payload_bytes();
        let before = self.raw.evictions();
        let times = self.raw.times();
        self.raw.write(entries.len(), &mut |at, block| {
            set_head(block, entries[at].id, entries[at].fresh);
            block[HEAD_BYTES..].copy_from_slice(&payloads[at * payload_bytes..][..payload_bytes]);
        })?;
        let now = self.raw.times();
        steps.evict_us += now.evict_us - times.evict_us;
        steps.read_us += now.load_us - times.load_us;
        let clock = Instant::now();
        self.raw.tree_mut().sync()?;
        steps.write_us += micros(clock) + now.save_us - times.save_us;
        let clock = Instant::now();
        let stride = block_bytes(payload_bytes);
        let mut bytes = Zeroizing::new(Vec::new());
        let chunk_rows = chunk_rows(stride);
        for (chunk, own) in entries.chunks(chunk_rows).enumerate() {
            bytes.clear();
            for (at, entry) in own.iter().enumerate() {
                let at = chunk * chunk_rows + at;
                bytes.extend(entry.id.to_le_bytes());
                bytes.extend(entry.fresh.to_le_bytes());
                bytes.extend_from_slice(&payloads[at * payload_bytes..][..payload_bytes]);
            }
            self.journal.append(records::ROWS, round, &bytes)?;
        }
        let mut commit = records::commit_to_bytes(before, self.raw.evictions()).to_vec();
        let is_update = settling.as_ref().is_some_and(|settling| settling.update);
        if let Some(Settling { report, before, update }) = settling {
            self.measure(report, *before);
            commit.extend(settled::to_bytes(report, *update));
        }
        // From here on the round may be in force, whatever the system says.
        let is_put = match self.journal.append(records::COMMIT, round, &commit) {
            // Nothing was written for which there was no space.
            Err(error @ JournalError::Disk(DiskError::Full { .. })) => return Err(error.into()),
            appended => appended
                .and_then(|_| self.journal.sync())
                .map_err(Error::from)
                .and_then(|()| self.advance(round)),
        };
        is_put.map_err(|error| match is_update || round > self.round {
            true => Error::Unsettled { rounds: self.round, source: Box::new(error) },
            false => error,
        })?;
        self.raw.commit();
        steps.journal_us += micros(clock);
        Ok(())
    }

    /// Moves the counter to the journal's head, unless someone else has moved it.
    pub(super) fn advance(&mut self, round: u64) -> Result<(), Error> {
        let (evictions, head) = (self.raw.evictions(), self.journal.head());
        let value = CounterValue { instance: *self.journal.instance(), round, evictions, head };
        if value != self.counted {
            self.counter.advance(&self.counted, &value)?;
            self.counted = value;
        }
        Ok(())
    }

    /// Has space on the disk for all that a round of so many `requests` writes to the journal, and for
    /// the next checkpoint. (The tree and the counter have theirs since they were made.)
    pub(super) fn reserve_round(&mut self, requests: usize) -> Result<(), Error> {
        let stride = block_bytes(self.payload_bytes());
        let rows = chunk_rows(stride).min(requests);
        let records = requests.div_ceil(rows.max(1)) as u64;
        let bytes = [records::BEGUN_BYTES, records::intent_bytes(requests), COMMIT_BYTES_MAX]
            .map(Journal::record_bytes);
        let bytes = bytes.iter().sum::<u64>() + records * Journal::record_bytes(rows * stride);
        self.journal.reserve(bytes)?;
        let checkpoint_bytes = self.checkpoint_bytes();
        Ok(self.journal.reserve_successor(checkpoint_bytes)?)
    }

    /// Whether a round of `users` users could be written now: there is space for it, and the counter
    /// answers and is where this controller left it. Between rounds.
    ///
    /// # Errors
    ///
    /// What keeps a round from being written. Nothing has changed; [`Error::Ended`] where the
    /// controller is to be opened again.
    pub fn check_writable(&mut self, users: usize) -> Result<(), Error> {
        self.check_idle("check_writable")?;
        self.reserve_round(users.clamp(1, self.spec.users_max) * self.spec.slots)?;
        let found = self.counter.read()?;
        match found == self.counted {
            true => Ok(()),
            false => Err(JournalError::CounterMoved {
                place: "the root counter".to_owned(),
                expected_round: self.counted.round,
                expected_evictions: self.counted.evictions,
                found_round: found.round,
                found_evictions: found.evictions,
            }
            .into()),
        }
    }
}

/// The most that a commit's record holds.
const COMMIT_BYTES_MAX: usize = 16 + settled::BYTES;

/// Rows in a record of them.
fn chunk_rows(stride: usize) -> usize {
    (records::ROWS_BYTES_MAX / stride).max(1)
}
