//! One inference of a model: the keys of all its features, answered in one pass over all its tables.
//!
//! Each feature asks one table, by rows ([`dpf`]) or by the table's layout
//! ([`batch`]). Features that ask one table share its pass. The tables are shared out
//! over the threads, a large one over all of them, a small one on one thread beside the others, so
//! that no thread waits for another before the last tables are done.

use std::sync::Arc;

use hushtable_prg::PrgKind;
use hushtable_table::Version;

use crate::batch::{self, BatchKeys};
use crate::dpf::{self, Group, Key};
use crate::{Error, Threads};

/// What answers one feature.
#[derive(Clone)]
pub enum Feature {
    /// Rows of a table, so many keys an inference.
    Rows {
        /// The table.
        server: dpf::Server,
        /// Keys of an inference: the feature's `max_ids`, at least 1.
        keys: usize,
    },
    /// The bins of a table's layout.
    Bins(batch::Server),
}

impl Feature {
    /// Bytes of its answer to one inference.
    pub fn answer_bytes(&self) -> usize {
        match self {
            Self::Rows { server, keys } => keys * server.backend().shape().row_bytes(),
            Self::Bins(server) => server.backend().geometry().answer_bytes(),
        }
    }

    /// Stored bytes that one inference's keys are multiplied with: rows × row bytes, for each key.
    fn product_bytes(&self) -> u64 {
        match self {
            Self::Rows { server, keys } => server.backend().shape().table_bytes() * *keys as u64,
            Self::Bins(server) => {
                let parts = server.backend().geometry().parts().iter();
                parts.map(|part| (part.keys() * part.bin_rows() * part.entry_bytes) as u64).sum()
            }
        }
    }

    /// Stored bytes that a pass reads.
    fn read_bytes(&self) -> u64 {
        match self {
            Self::Rows { server, .. } => server.backend().shape().table_bytes(),
            Self::Bins(server) => {
                let parts = server.backend().geometry().parts().iter();
                parts.map(|part| (part.bins * part.bin_rows() * part.entry_bytes) as u64).sum()
            }
        }
    }

    /// Whether both answer from the same memory.
    fn shares_with(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Rows { server: a, .. }, Self::Rows { server: b, .. }) => {
                is_same(a.backend(), b.backend())
            }
            (Self::Bins(a), Self::Bins(b)) => is_same(a.backend(), b.backend()),
            (Self::Rows { .. }, Self::Bins(_)) | (Self::Bins(_), Self::Rows { .. }) => false,
        }
    }
}

/// Whether both are the same object, whatever their vtables' addresses.
fn is_same<T: ?Sized>(a: &Arc<T>, b: &Arc<T>) -> bool {
    std::ptr::addr_eq(Arc::as_ptr(a), Arc::as_ptr(b))
}

/// What one table is asked in a pass.
pub enum Asked<'a> {
    /// Keys of its rows, for the backend of this server.
    Rows(&'a dpf::Server, Vec<&'a Key>),
    /// Inferences by its layout.
    Bins(&'a batch::Server, Vec<&'a BatchKeys>),
}

/// Answers all tables of a pass together, where that is better than one after the other: a front's
/// tables lie on the same shards, and one message to each asks for all.
pub trait Together: Send + Sync {
    /// The answers to each of `asked`, as the table's backend would write them, in order.
    ///
    /// # Errors
    /// Those of the backends.
    fn answer_together(&self, asked: Vec<Asked<'_>>) -> Result<Vec<Vec<u8>>, Error>;
}

/// A model's features, ready to answer whole inferences.
#[derive(Clone)]
pub struct Server {
    version: Version,
    features: Arc<[Feature]>,
    /// Where each feature's answer starts.
    starts: Arc<[usize]>,
    /// For each table the features that ask it; the largest work first.
    tables: Arc<[Vec<usize>]>,
    answer_bytes: usize,
    threads: Threads,
    together: Option<Arc<dyn Together>>,
}

/// The checked keys of one inference, feature by feature.
pub struct Inference(Vec<Part>);

enum Part {
    Rows(Vec<Key>),
    Bins(BatchKeys),
}

/// Why the keys of an inference are not usable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PartError {
    /// Too few or too many parts.
    #[error("the model has {expected} features, the request has {found} parts: one a feature")]
    Parts {
        /// Features of the model.
        expected: usize,
        /// Parts received.
        found: usize,
    },
    /// A part that is no whole number of keys of one length.
    #[error("part {feature} has {bytes} bytes, which are not {keys} keys of one length")]
    Length {
        /// The feature's number.
        feature: usize,
        /// Keys that it has.
        keys: usize,
        /// Bytes received.
        bytes: usize,
    },
    /// A key that is not usable.
    #[error("part {feature}: {source}")]
    Key {
        /// The feature's number.
        feature: usize,
        /// What is wrong with it.
        source: Error,
    },
    /// A key of another group than the table's server takes.
    #[error("part {feature}: this server takes keys of other groups than {}", group.name())]
    Group {
        /// The feature's number.
        feature: usize,
        /// The key's.
        group: Group,
    },
}

impl Inference {
    /// The generators that its keys use, each with its feature's number.
    pub fn prgs(&self) -> impl Iterator<Item = (usize, PrgKind)> {
        self.0.iter().enumerate().flat_map(|(feature, part)| {
            let keys = match part {
                Part::Rows(keys) => keys.as_slice(),
                Part::Bins(_) => &[],
            };
            let bins = match part {
                Part::Rows(_) => None,
                Part::Bins(keys) => Some(keys.prg()),
            };
            let prgs = keys.iter().map(|key| key.params().prg).chain(bins);
            prgs.map(move |prg| (feature, prg))
        })
    }
}

impl Server {
    /// The server of the model `version`, whose `features` are in its manifest's order. `threads`
    /// are those of the features' engines: a pass stays among them.
    pub fn new(version: Version, features: Vec<Feature>, threads: Threads) -> Self {
        let mut starts = Vec::with_capacity(features.len());
        let mut answer_bytes = 0;
        for feature in &features {
            starts.push(answer_bytes);
            answer_bytes += feature.answer_bytes();
        }
        let mut tables: Vec<Vec<usize>> = Vec::new();
        for (number, feature) in features.iter().enumerate() {
            match tables.iter_mut().find(|table| feature.shares_with(&features[table[0]])) {
                Some(table) => table.push(number),
                None => tables.push(vec![number]),
            }
        }
        let work = |table: &Vec<usize>| -> u64 {
            table.iter().map(|&feature| features[feature].product_bytes()).sum()
        };
        tables.sort_by_key(|table| std::cmp::Reverse(work(table)));
        let (features, starts, tables) = (features.into(), starts.into(), tables.into());
        Self { version, features, starts, tables, answer_bytes, threads, together: None }
    }

    /// Has all tables of a pass answered by `together`.
    #[must_use]
    pub fn answering_together(self, together: Arc<dyn Together>) -> Self {
        Self { together: Some(together), ..self }
    }

    /// The version of the model, which goes into every answer.
    pub fn version(&self) -> Version {
        self.version
    }

    /// What answers each feature.
    pub fn features(&self) -> &[Feature] {
        &self.features
    }

    /// Bytes of the answer to one inference: all features', one after the other.
    pub fn answer_bytes(&self) -> usize {
        self.answer_bytes
    }

    /// Stored bytes that one inference's keys are multiplied with. An affine instruction of 512 bits
    /// does 512 of them: 64 bytes, for eight inferences.
    pub fn product_bytes(&self) -> u64 {
        self.features.iter().map(Feature::product_bytes).sum()
    }

    /// Stored bytes that one pass reads, however many inferences share it.
    pub fn read_bytes(&self) -> u64 {
        self.tables.iter().map(|table| self.features[table[0]].read_bytes()).sum()
    }

    /// Inferences that one pass answers best: as many as fill the largest table's batch.
    pub fn batch_best(&self) -> usize {
        let Some(largest) = self.tables.first() else { return 1 };
        match &self.features[largest[0]] {
            Feature::Bins(server) => server.backend().batch_requests_best().max(1),
            Feature::Rows { server, .. } => {
                let keys = largest.iter().map(|&feature| match &self.features[feature] {
                    Feature::Rows { keys, .. } => *keys,
                    Feature::Bins(_) => 0,
                });
                (server.backend().batch_keys_best() / keys.sum::<usize>().max(1)).max(1)
            }
        }
    }

    /// Reads the parts of one inference from the wire, in the features' order: of a feature that
    /// asks bins what [`batch::Server::accept`] reads, of any other its keys one after the other.
    ///
    /// # Errors
    /// [`PartError`] says which part is not what its feature's table takes.
    pub fn accept<P: AsRef<[u8]> + Into<Vec<u8>>>(
        &self,
        parts: Vec<P>,
    ) -> Result<Inference, PartError> {
        if parts.len() != self.features.len() {
            let (expected, found) = (self.features.len(), parts.len());
            return Err(PartError::Parts { expected, found });
        }
        let parts = parts.into_iter().enumerate().zip(self.features.iter());
        let accept = |((number, part), feature): ((usize, P), &Feature)| match feature {
            Feature::Rows { server, keys } => {
                accept_rows(number, server, *keys, part.as_ref()).map(Part::Rows)
            }
            Feature::Bins(server) => server
                .accept(part.into())
                .map(Part::Bins)
                .map_err(|source| PartError::Key { feature: number, source }),
        };
        Ok(Inference(parts.map(accept).collect::<Result<_, _>>()?))
    }

    /// Answers inferences that were accepted, in one pass over all tables: the answer to
    /// `inferences[i]` lands in `answers[i * answer_bytes..]`.
    ///
    /// # Errors
    /// [`Error::AnswerBytes`] for a buffer of another size, and those of the features' engines.
    pub fn answer(&self, inferences: &[Inference], answers: &mut [u8]) -> Result<(), Error> {
        let expected = inferences.len() * self.answer_bytes;
        if answers.len() != expected {
            return Err(Error::AnswerBytes { expected, found: answers.len() });
        }
        let product = self.product_bytes().saturating_mul(inferences.len().div_ceil(8) as u64);
        let cost = usize::try_from(product).unwrap_or(usize::MAX);
        let answer = |table: usize| self.answer_table(table, inferences);
        let done = match &self.together {
            Some(together) => {
                let asked = self.tables.iter().map(|table| self.ask_table(table, inferences));
                together.answer_together(asked.collect())?.into_iter().map(Ok).collect()
            }
            None => {
                self.threads.run_if_worth(cost, |sharing| sharing.map(self.tables.len(), answer))
            }
        };
        for (table, answered) in self.tables.iter().zip(done) {
            let answered = answered?;
            let mut rest = answered.as_slice();
            for &feature in table {
                let (start, bytes) = (self.starts[feature], self.features[feature].answer_bytes());
                let (own, others) = rest.split_at(inferences.len() * bytes);
                rest = others;
                let to = answers.chunks_exact_mut(self.answer_bytes);
                for (to, own) in to.zip(own.chunks_exact(bytes)) {
                    to[start..start + bytes].copy_from_slice(own);
                }
            }
        }
        Ok(())
    }

    /// What one table is asked: feature after feature, each inference after inference.
    fn ask_table<'a>(&'a self, table: &[usize], inferences: &'a [Inference]) -> Asked<'a> {
        let parts =
            table.iter().flat_map(|&feature| inferences.iter().map(move |it| &it.0[feature]));
        match &self.features[table[0]] {
            Feature::Rows { server, .. } => {
                let keys = parts.flat_map(|part| match part {
                    Part::Rows(keys) => keys.as_slice(),
                    Part::Bins(_) => &[],
                });
                Asked::Rows(server, keys.collect())
            }
            Feature::Bins(server) => {
                let keys = parts.filter_map(|part| match part {
                    Part::Rows(_) => None,
                    Part::Bins(keys) => Some(keys),
                });
                Asked::Bins(server, keys.collect())
            }
        }
    }

    /// One table's answers, in the order of what it is asked.
    fn answer_table(&self, table: usize, inferences: &[Inference]) -> Result<Vec<u8>, Error> {
        let table = &self.tables[table];
        let bytes: usize = table.iter().map(|&feature| self.features[feature].answer_bytes()).sum();
        let mut answers = vec![0; inferences.len() * bytes];
        match self.ask_table(table, inferences) {
            Asked::Rows(server, keys) => server.backend().answer_each(&keys, &mut answers)?,
            Asked::Bins(server, keys) => server.backend().answer_each(&keys, &mut answers)?,
        }
        Ok(answers)
    }
}

/// The keys of a feature that asks for rows.
fn accept_rows(
    feature: usize,
    server: &dpf::Server,
    keys: usize,
    part: &[u8],
) -> Result<Vec<Key>, PartError> {
    let bytes = part.len();
    if bytes == 0 || !bytes.is_multiple_of(keys) {
        return Err(PartError::Length { feature, keys, bytes });
    }
    let accept = |key: &[u8]| {
        let key = server.accept(key).map_err(|source| PartError::Key { feature, source })?;
        let group = key.params().domain.group();
        match server.backend().groups().contains(&group) {
            true => Ok(key),
            false => Err(PartError::Group { feature, group }),
        }
    };
    part.chunks_exact(bytes / keys).map(accept).collect()
}
