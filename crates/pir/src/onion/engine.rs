//! The engine for processors: ExpandQuery, RowSel, ColTor.

use std::convert::Infallible;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hushtable_prg::Platform;
use hushtable_rlwe::Ciphertext;
use hushtable_rlwe::bfv::scheme::Encrypted;
use hushtable_rlwe::bfv::{Evaluator, Parameters, Selector, Spare, Substitution, response};
use hushtable_rlwe::ring::Buffer;
use hushtable_table::Version;
use hushtable_table::prepared::Standing;
use rayon::prelude::*;

use super::check::check_columns;
use super::geometry::{BLOCK_COLUMNS, Block};
use super::payload::{Payload, zeros};
use super::pool::{Lent, Pool};
use super::prepare::{CopyRows, Encoder};
use super::tree::{self, Alone, Node, Schedule, Subtree, Tournament};
use super::{Asked, Error, Geometry, OnionBackend};
use crate::Threads;
use crate::kernel::rowsel::{
    CHUNK, CHUNK_VECTORS, GROUP_COLUMNS, LANES, Packing, RowSelect, SLACK_BYTES, Task,
};

/// How an [`Engine`] runs.
#[derive(Clone, Debug)]
pub struct OnionSpec {
    /// Threads; 0 for one a core.
    pub threads: usize,
    /// Threads that other engines use too, instead of `threads` of this one's own.
    pub shared: Option<Threads>,
    /// The instructions that may be used.
    pub platform: Platform,
    /// Queries that share a pass; 0 for the engine's own choice.
    pub batch_queries_max: usize,
    /// Order of ExpandQuery's steps.
    pub expand: Schedule,
    /// Order of ColTor's.
    pub tournament: Schedule,
    /// Whether each digit of a decomposition is used up as soon as it is there (the paper's
    /// reduction overlapping).
    pub overlap: bool,
    /// Whether the table is copied to memory of huge pages instead of being read from its file:
    /// faster by what page walks cost, at the price of memory that cannot be given back.
    pub load: bool,
    /// Whether it is known that the rows of the table's patch make its version of the one below, which a shard
    /// cannot see by its own rows: a map of shards was made with that very patch.
    pub is_patch_checked: bool,
}

impl OnionSpec {
    /// All cores, the machine's best instructions, and the schedules that measured fastest.
    pub fn new() -> Self {
        Self {
            threads: 0,
            shared: None,
            platform: Platform::detect(),
            batch_queries_max: 0,
            expand: Schedule::DepthFirst,
            tournament: Schedule::Hierarchical { depth: 4 },
            overlap: false,
            load: false,
            is_patch_checked: false,
        }
    }
}

impl Default for OnionSpec {
    fn default() -> Self {
        Self::new()
    }
}

/// Where the time of a pass went.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stages {
    /// ExpandQuery, with the conversion of the selectors.
    pub expand: Duration,
    /// RowSel.
    pub row_select: Duration,
    /// ColTor, with the responses' compression.
    pub tournament: Duration,
}

/// A prepared table, or a shard of one, and the threads that answer from it.
pub struct Engine {
    geometry: Geometry,
    version: Version,
    pub(super) payload: Payload,
    /// The blocks that are answered here: all, or a shard's.
    pub(super) blocks: Vec<Block>,
    columns: Range<u64>,
    row_select: RowSelect,
    spec: OnionSpec,
    batch_queries_max: usize,
    levels: Vec<Substitution>,
    /// Kept between passes: the system's zeroing of fresh pages costs as much as what is computed
    /// in them.
    sums: Pool<Buffer>,
    expanded_rows: Pool<Buffer>,
    evaluators: Pool<Evaluator>,
    spare: Arc<Spare>,
    threads: Threads,
}

/// A query, expanded.
pub(crate) struct Expanded {
    /// D0 leaves: limb, vector, row, and what [`Packing::pack_query`] makes of it.
    rows: Lent<Buffer>,
    /// One for each game.
    selectors: Vec<Selector>,
    /// Where the selectors' memory goes.
    spare: Arc<Spare>,
}

impl Drop for Expanded {
    fn drop(&mut self) {
        let rows = self.selectors.drain(..).flat_map(Selector::into_rows);
        rows.for_each(|row| self.spare.give(row));
    }
}

impl Expanded {
    /// D0 leaves: limb, vector, row, and what [`Packing::pack_query`] makes of it.
    pub(crate) fn rows(&self) -> &[u64] {
        &self.rows
    }

    /// One for each game.
    pub(crate) fn selectors(&self) -> &[Selector] {
        &self.selectors
    }
}

impl Engine {
    /// An engine over `blocks` of a prepared table.
    pub(crate) fn new(
        geometry: Geometry,
        version: Version,
        payload: Payload,
        blocks: Vec<Block>,
        spec: &OnionSpec,
    ) -> Result<Self, Error> {
        let threads = match &spec.shared {
            Some(threads) => threads.clone(),
            None => Threads::named(spec.threads, "hushtable-onion")
                .map_err(|error| Error::Threads { message: error.to_string() })?,
        };
        let levels =
            (0..geometry.levels()).map(|level| Substitution::of_level(geometry.params(), level));
        let batch_queries_max = match spec.batch_queries_max {
            0 => BATCH_QUERIES,
            queries => queries,
        };
        Ok(Self {
            levels: levels.collect(),
            row_select: RowSelect::new(spec.platform),
            spec: spec.clone(),
            columns: 0..geometry.columns(),
            geometry,
            version,
            payload,
            blocks,
            batch_queries_max,
            sums: Pool::default(),
            expanded_rows: Pool::default(),
            evaluators: Pool::default(),
            spare: Arc::default(),
            threads,
        })
    }

    fn params(&self) -> &Parameters {
        self.geometry.params()
    }

    /// The columns that are answered here.
    pub(crate) fn columns(&self) -> Range<u64> {
        self.columns.clone()
    }

    /// The same engine for `columns` only, which lie between blocks.
    pub(crate) fn covering(mut self, columns: Range<u64>) -> Self {
        self.blocks.retain(|block| columns.contains(&block.first));
        self.columns = columns;
        self
    }

    pub(crate) fn install<T: Send>(&self, run: impl FnOnce() -> T + Send) -> T {
        self.threads.run(run)
    }

    /// Ciphertexts kept for the next pass, and ciphertexts of passes under way.
    #[doc(hidden)]
    pub fn spare_counts(&self) -> (usize, usize) {
        self.spare.counts()
    }

    /// Threads that answer.
    pub fn threads(&self) -> usize {
        self.threads.count()
    }

    /// Bytes of the prepared table that this engine reads in a pass.
    pub fn resident_bytes(&self) -> u64 {
        self.blocks.iter().map(|block| block.bytes as u64).sum()
    }

    /// How long one pass over the table takes: what a request may wait for company (Kim et al.,
    /// "IVE", section V). Measured with a query that selects nothing, the table once in memory.
    pub fn scan(&self) -> Duration {
        let zero = Expanded {
            rows: self.expanded_rows.take(|| Buffer::zeroed(self.expanded_words())),
            selectors: Vec::new(),
            spare: Arc::clone(&self.spare),
        };
        let mut sums = self.sums.take(|| Buffer::zeroed(0));
        let mut pass = || {
            let started = Instant::now();
            self.threads.run(|| {
                for block in &self.blocks {
                    self.select_rows(block, &[&zero], &mut sums);
                }
            });
            started.elapsed()
        };
        // The first pass may read the file from disk.
        pass();
        pass()
    }

    pub(super) fn payload(&self) -> &Payload {
        &self.payload
    }

    /// Whether all that was read of the table until now was what its version says.
    pub(crate) fn confirm(&self) -> Result<Standing, Error> {
        let Payload::File(file) = &self.payload else { return Ok(Standing::Kept) };
        let (payload, hashes) = (file.payload(), file.block_hashes());
        let (path, columns) = (file.path(), &self.columns);
        let check =
            || self.install(|| check_columns(path, &self.geometry, columns, payload, hashes));
        Ok(file.standing(check)?)
    }

    /// Answers as [`OnionBackend::answer`] does, and says where the time went.
    ///
    /// # Errors
    /// [`Error::ResponseBytes`]; [`Error::Prepared`] where the file that is answered from was
    /// written to or cut short.
    pub fn answer_timed(&self, queries: &[Asked], out: &mut [u8]) -> Result<Stages, Error> {
        self.confirmed(|| self.answer_unconfirmed(queries, out))
    }

    /// What `read` makes of the table's bytes, once it is known that they were right.
    pub(crate) fn confirmed<T>(
        &self,
        mut read: impl FnMut() -> Result<T, Error>,
    ) -> Result<T, Error> {
        for _ in 0..CONFIRMATIONS_MAX {
            let made = read()?;
            // A file that was touched but is whole: once more, from what was checked since.
            match self.confirm()? {
                Standing::Kept => return Ok(made),
                Standing::Restored => {}
            }
        }
        Err(Error::Unsteady { attempts: CONFIRMATIONS_MAX })
    }

    /// Answers as [`answer_timed`](Self::answer_timed) does, but brings the table into the form in
    /// which it is multiplied anew, block by block, from the rows that `copy(first, bytes)` writes:
    /// what every pass would cost if nothing were prepared (Kim et al., "IVE", section II-B). The
    /// encoding counts to RowSel.
    ///
    /// # Errors
    /// As [`answer_timed`](Self::answer_timed), and what `copy` fails with.
    pub fn answer_unprepared(
        &self,
        queries: &[Asked],
        copy: CopyRows<'_>,
        out: &mut [u8],
    ) -> Result<Stages, Error> {
        let encoder = Encoder::new(&self.geometry, self.version);
        let bytes = self.blocks.iter().map(|block| block.bytes).max().unwrap_or(0);
        let mut scratch = zeros(bytes + SLACK_BYTES)?;
        self.answer_from(queries, out, |block, clients, sums| {
            let alone = Block { offset: 0, ..*block };
            encoder.encode(&[alone], copy, &mut scratch)?;
            self.multiply(&alone, &scratch, clients, sums);
            Ok(())
        })
    }

    fn answer_unconfirmed(&self, queries: &[Asked], out: &mut [u8]) -> Result<Stages, Error> {
        self.answer_from(queries, out, |block, clients, sums| {
            self.select_rows(block, clients, sums);
            Ok(())
        })
    }

    /// Answers with `select` for the sums of each block.
    fn answer_from(
        &self,
        queries: &[Asked],
        out: &mut [u8],
        select: impl FnMut(&Block, &[&Expanded], &mut Buffer) -> Result<(), Error> + Send,
    ) -> Result<Stages, Error> {
        let expected = queries.len() * self.geometry.response_bytes();
        if out.len() != expected {
            return Err(Error::ResponseBytes { expected, found: out.len() });
        }
        let mut stages = Stages::default();
        self.threads.run(|| {
            let started = Instant::now();
            let expanded = self.expand(queries);
            stages.expand = started.elapsed();
            let winners = self.play_from(&expanded, &mut stages, select)?;
            let started = Instant::now();
            let bytes = self.geometry.response_bytes();
            out.par_chunks_exact_mut(bytes)
                .zip(&expanded)
                .zip(winners)
                .for_each(|((out, expanded), winners)| self.respond(expanded, winners, out));
            stages.tournament += started.elapsed();
            Ok(stages)
        })
    }

    /// Expands queries, one a thread, or one on all threads.
    pub(crate) fn expand(&self, queries: &[Asked]) -> Vec<Expanded> {
        queries.par_iter().map(|asked| self.expand_one(asked)).collect()
    }

    fn expand_one(&self, asked: &Asked) -> Expanded {
        let params = self.params();
        let keys = asked.keys();
        let (rows, leaves) = (self.geometry.rows(), self.geometry.leaves());
        let used = rows + self.geometry.selector_leaves();
        let root = Node { residue: 0, ciphertext: asked.query().ciphertext(params, &self.spare) };
        let levels = self.geometry.levels();
        // A few subtrees a thread: the first levels are split here, the rest side by side.
        let wide = match rayon::current_num_threads() {
            1 => 0,
            threads => ((4 * threads).ilog2()).min(levels),
        };
        let mut roots = Vec::with_capacity(1 << wide);
        let mut evaluator = self.evaluator();
        let mut scheme =
            Encrypted { evaluator: &mut evaluator, levels: &self.levels, keys: keys.levels() };
        let breadth = Schedule::BreadthFirst;
        tree::expand(&mut scheme, breadth, vec![root], (0, wide), used, &mut |_, node| {
            roots.push(node);
        });
        let subtrees = roots.into_par_iter().map_init(
            || self.evaluator(),
            |evaluator, root| {
                let mut done = Vec::new();
                let mut scheme = Encrypted { evaluator, levels: &self.levels, keys: keys.levels() };
                let mut finish = |scheme: &mut Encrypted<'_>, node: Node<Ciphertext>| {
                    done.push(finish_leaf(scheme, asked, rows, node));
                };
                let range = (wide, levels);
                tree::expand(&mut scheme, self.spec.expand, vec![root], range, used, &mut finish);
                done
            },
        );
        let mut ready: Vec<Option<Leaf>> = (0..leaves).map(|_| None).collect();
        for leaf in subtrees.collect::<Vec<_>>().into_iter().flatten() {
            let index = leaf.index;
            ready[index] = Some(leaf);
        }
        let digits = params.selector().digits();
        let selectors = ready[rows..used].chunks_mut(digits).map(|leaves| {
            let (masks, bodies) = leaves
                .iter_mut()
                .filter_map(Option::take)
                .filter_map(|leaf| Some((leaf.times_secret?, leaf.ciphertext)))
                .unzip();
            Selector::new(masks, bodies)
        });
        let selectors = selectors.collect();
        let interleaved = self.interleave(&ready[..rows]);
        for leaf in ready.into_iter().take(rows).flatten() {
            self.spare.give(leaf.ciphertext);
        }
        Expanded { rows: interleaved, selectors, spare: Arc::clone(&self.spare) }
    }

    fn packing(&self) -> Packing {
        Packing::of(self.params().answer_ring().modulus(0))
    }

    /// Words of an expanded query's rows.
    fn expanded_words(&self) -> usize {
        let ring = self.params().answer_ring();
        ring.limbs() * ring.degree() / LANES * self.geometry.rows() * self.packing().query_words()
    }

    /// Leaves in the order in which RowSel reads them.
    fn interleave(&self, leaves: &[Option<Leaf>]) -> Lent<Buffer> {
        let ring = self.params().answer_ring();
        let (degree, rows, packing) = (ring.degree(), leaves.len(), self.packing());
        let mut out = self.expanded_rows.take(|| Buffer::zeroed(self.expanded_words()));
        let words = packing.query_words();
        let chunk = CHUNK_VECTORS * rows * words;
        out.par_chunks_exact_mut(chunk).enumerate().for_each(|(index, out)| {
            let (limb, first) = (index * CHUNK / degree, index * CHUNK % degree);
            for (row, leaf) in leaves.iter().enumerate() {
                let Some(leaf) = leaf else { continue };
                let [masks, bodies] = leaf
                    .ciphertext
                    .polys()
                    .map(|poly| poly.limb(limb)[first..first + CHUNK].chunks_exact(LANES));
                for (vector, (mask, body)) in masks.zip(bodies).enumerate() {
                    let at = (vector * rows + row) * words;
                    packing.pack_query(mask, body, &mut out[at..at + words]);
                }
            }
        });
        out
    }

    /// RowSel and the tournaments of all blocks: for each query, each chunk's subtrees.
    pub(crate) fn play(&self, expanded: &[Expanded], stages: &mut Stages) -> Vec<Vec<Vec<Won>>> {
        let select = |block: &Block, clients: &[&Expanded], sums: &mut Buffer| {
            self.select_rows(block, clients, sums);
            Ok::<_, Infallible>(())
        };
        match self.play_from(expanded, stages, select) {
            Ok(won) => won,
            Err(never) => match never {},
        }
    }

    fn play_from<E>(
        &self,
        expanded: &[Expanded],
        stages: &mut Stages,
        mut select: impl FnMut(&Block, &[&Expanded], &mut Buffer) -> Result<(), E>,
    ) -> Result<Vec<Vec<Vec<Won>>>, E> {
        let fresh = || Tournament::new(self.spec.tournament, self.geometry.games());
        let chunks = self.geometry.chunks();
        let mut tournaments: Vec<Vec<Tournament<Ciphertext>>> =
            expanded.iter().map(|_| (0..chunks).map(|_| fresh()).collect()).collect();
        let clients: Vec<&Expanded> = expanded.iter().collect();
        let mut sums = self.sums.take(|| Buffer::zeroed(0));
        for block in &self.blocks {
            let started = Instant::now();
            select(block, &clients, &mut sums)?;
            stages.row_select += started.elapsed();
            let started = Instant::now();
            self.play_block(block, &sums, expanded, &mut tournaments);
            stages.tournament += started.elapsed();
        }
        drop(sums);
        let started = Instant::now();
        let finish = |(tournaments, expanded): (Vec<Tournament<Ciphertext>>, &Expanded)| {
            let mut evaluator = self.evaluator();
            let mut scheme = self.scheme(&mut evaluator);
            let finish = |tournament: Tournament<Ciphertext>| {
                tournament.finish(&mut scheme, &expanded.selectors)
            };
            tournaments.into_iter().map(finish).collect()
        };
        let won = tournaments.into_par_iter().zip(expanded).map(finish).collect();
        stages.tournament += started.elapsed();
        Ok(won)
    }

    /// A scheme for selections alone: no keys are needed any more.
    fn scheme<'a>(&'a self, evaluator: &'a mut Evaluator) -> Encrypted<'a> {
        Encrypted { evaluator, levels: &self.levels, keys: &[] }
    }

    /// The sums of a block: limb, chunk of coefficients, then as a task yields them.
    fn select_rows(&self, block: &Block, clients: &[&Expanded], out: &mut Buffer) {
        self.multiply(block, &self.payload.bytes()[block.offset..], clients, out);
    }

    /// As [`select_rows`](Self::select_rows), for a block whose bytes `table` starts with.
    fn multiply(&self, block: &Block, table: &[u8], clients: &[&Expanded], out: &mut Buffer) {
        let ring = self.params().answer_ring();
        let (degree, rows, packing) = (ring.degree(), self.geometry.rows(), self.packing());
        let sums = clients.len() * block.groups * GROUP_COLUMNS * packing.sum_words();
        let needed = ring.limbs() * degree / CHUNK * sums;
        if out.len() < needed {
            *out = Buffer::zeroed(needed);
        }
        out[..needed].par_chunks_exact_mut(sums).enumerate().for_each(|(index, out)| {
            let first = block.group_offset(index * CHUNK_VECTORS, 0);
            let end = block.group_offset((index + 1) * CHUNK_VECTORS, 0) + SLACK_BYTES;
            let words = CHUNK_VECTORS * rows * packing.query_words();
            let queries: Vec<&[u64]> = clients
                .iter()
                .map(|client| &client.rows[index * words..(index + 1) * words])
                .collect();
            let modulus = ring.modulus(index * CHUNK / degree);
            let task = Task {
                modulus,
                packing,
                rows,
                groups: block.groups,
                table: &table[first..end],
                queries: &queries,
            };
            self.row_select.multiply(&task, out);
        });
    }

    /// A column of the first chunk for the first query, before any game.
    pub(crate) fn column_sum(&self, expanded: &[Expanded], column: u64) -> Ciphertext {
        let is_its = |block: &&Block| block.chunk == 0 && block.first <= column;
        let block = self.blocks.iter().rfind(is_its).expect("the column is answered here");
        let mut sums = self.sums.take(|| Buffer::zeroed(0));
        self.install(|| self.select_rows(block, &[&expanded[0]], &mut sums));
        self.column(block, &sums, 1, 0, (column - block.first) as usize)
    }

    /// An evaluator, which goes back when it is dropped.
    fn evaluator(&self) -> Lent<Evaluator> {
        self.evaluators.take(|| {
            Evaluator::sharing(self.params(), Arc::clone(&self.spare))
                .overlapping(self.spec.overlap)
        })
    }

    /// Plays a block's columns, or hands them on where the schedule waits for more.
    fn play_block(
        &self,
        block: &Block,
        sums: &Buffer,
        expanded: &[Expanded],
        tournaments: &mut [Vec<Tournament<Ciphertext>>],
    ) {
        let clients = expanded.len();
        let width = match self.spec.tournament {
            Schedule::Hierarchical { depth } => (1 << depth.min(6)).min(BLOCK_COLUMNS),
            _ => BLOCK_COLUMNS,
        };
        let games = self.geometry.games();
        tournaments.par_iter_mut().zip(expanded).enumerate().for_each(
            |(client, (tournaments, expanded))| {
                let bits = &expanded.selectors;
                // Subtrees side by side: where clients are fewer than threads, both have work.
                let starts: Vec<usize> = (0..block.columns).step_by(width).collect();
                let subtrees: Vec<Vec<Won>> = starts
                    .into_par_iter()
                    .map_init(
                        || self.evaluator(),
                        |evaluator, start| {
                            let mut scheme = self.scheme(evaluator);
                            let end = (start + width).min(block.columns);
                            let column = |column: usize| Subtree {
                                level: 0,
                                index: block.first + column as u64,
                                ciphertext: self.column(block, sums, clients, client, column),
                            };
                            if !matches!(self.spec.tournament, Schedule::Hierarchical { .. }) {
                                return (start..end).map(column).collect();
                            }
                            let mut own = Tournament::new(Schedule::DepthFirst, games);
                            for index in start..end {
                                own.push(&mut scheme, bits, column(index));
                            }
                            own.finish(&mut scheme, bits)
                        },
                    )
                    .collect();
                let mut evaluator = self.evaluator();
                let mut scheme = self.scheme(&mut evaluator);
                for subtree in subtrees.into_iter().flatten() {
                    tournaments[block.chunk].push(&mut scheme, bits, subtree);
                }
            },
        );
    }

    /// One column's ciphertext out of a block's sums.
    fn column(
        &self,
        block: &Block,
        sums: &Buffer,
        clients: usize,
        client: usize,
        column: usize,
    ) -> Ciphertext {
        let ring = self.params().answer_ring();
        let columns = block.groups * GROUP_COLUMNS;
        let mut out = self.spare.take(ring);
        let words = self.packing().sum_words();
        let masks = out.mask.values_mut().chunks_exact_mut(CHUNK);
        let bodies = out.body.values_mut().chunks_exact_mut(CHUNK);
        for (index, (masks, bodies)) in masks.zip(bodies).enumerate() {
            let at = ((index * clients + client) * columns + column) * words;
            self.packing().unpack_sums(&sums[at..at + words], masks, bodies);
        }
        out
    }

    /// Takes the memory back of winners that nobody needs any more.
    pub(crate) fn take_back(&self, won: Vec<Vec<Vec<Won>>>) {
        let won = won.into_iter().flatten().flatten();
        won.for_each(|subtree| self.spare.give(subtree.ciphertext));
    }

    /// Joins each chunk's subtrees and writes the response.
    pub(crate) fn respond(&self, expanded: &Expanded, won: Vec<Vec<Won>>, out: &mut [u8]) {
        let params = self.params();
        let mut evaluator = self.evaluator();
        let mut scheme = self.scheme(&mut evaluator);
        let mut bytes = Vec::with_capacity(out.len());
        for subtrees in won {
            let bits = &expanded.selectors;
            let level = bits.len() as u32;
            let winners = tree::join(&mut scheme, bits, subtrees, level, Alone::Advances);
            for winner in winners {
                response::compress(params, &winner.ciphertext, &mut bytes);
                self.spare.give(winner.ciphertext);
            }
        }
        out.copy_from_slice(&bytes);
    }
}

/// A subtree that was won.
pub(crate) type Won = Subtree<Ciphertext>;

/// A finished leaf, modulo q.
struct Leaf {
    index: usize,
    ciphertext: Ciphertext,
    /// Of a selector's leaf: the same times the secret.
    times_secret: Option<Ciphertext>,
}

fn finish_leaf(
    scheme: &mut Encrypted<'_>,
    asked: &Asked,
    rows: usize,
    node: Node<Ciphertext>,
) -> Leaf {
    let evaluator = &mut *scheme.evaluator;
    let times_secret = (node.residue >= rows).then(|| {
        let product = evaluator.times_secret(asked.keys().square(), &node.ciphertext);
        evaluator.drop_limbs(product)
    });
    let ciphertext = evaluator.drop_limbs(node.ciphertext);
    Leaf { index: node.residue, ciphertext, times_secret }
}

impl OnionBackend for Engine {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn version(&self) -> Version {
        self.version
    }

    fn answer(&self, queries: &[Asked], responses: &mut [u8]) -> Result<(), Error> {
        self.answer_timed(queries, responses).map(drop)
    }

    fn check(&self) -> Result<(), Error> {
        self.confirm().map(|_| ())
    }

    fn batch_queries_best(&self) -> usize {
        self.batch_queries_max
    }

    fn description(&self) -> String {
        format!(
            "{} threads, {}, {:?}, {} MiB of prepared table",
            self.threads(),
            self.geometry.set().name(),
            self.row_select,
            self.resident_bytes() >> 20
        )
    }
}

/// Passes over a file that something touches in each of them.
const CONFIRMATIONS_MAX: usize = 8;
/// Beyond this a pass gains little: the table's reading is shared by enough.
pub(super) const BATCH_QUERIES: usize = 16;
