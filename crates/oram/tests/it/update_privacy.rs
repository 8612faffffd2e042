//! What a published table, and the rows that users are served, tell of those who trained them, under
//! the aggregates that promise differential privacy: attacks that must fail, and that must work
//! where the noise is left out.

use std::collections::BTreeSet;
use std::path::Path;

use hushtable_oram::aggregate::AggregateSpec;
use hushtable_oram::bucket::DUMMY;
use hushtable_oram::disk::{FaultSpec, Faults, Tear, Unsynced};
use hushtable_oram::fdp::FdpSpec;
use hushtable_oram::round::{Controller, ControllerSpec, Error};
use hushtable_oram::seal::Key;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha20Rng;
use tempfile::TempDir;

const USERS: usize = 3;
const SLOTS: usize = 4;
const LEARNING_RATE: f64 = 0.5;
const CLIP: f64 = 2.0;
const NOISE: f64 = 0.75;
const DIVISOR: f64 = 4.0;
/// The standard deviation of one round's noise in a row.
const SIGMA: f64 = LEARNING_RATE * CLIP * NOISE / DIVISOR;

/// The aggregates that promise it, all with noise of [`SIGMA`].
fn private() -> [AggregateSpec; 2] {
    [named("dp_fed_avg", DIVISOR), named("lazy_dp", DIVISOR)]
}

fn named(name: &str, users: f64) -> AggregateSpec {
    let text = format!(
        r#"{{ "name": "{name}", "learning_rate": {LEARNING_RATE}, "clip": {CLIP},
              "noise_multiplier": {NOISE}, "users": {users} }}"#
    );
    serde_json::from_str(&text).expect("a spec")
}

/// As strong as the others, but for rows that nobody sent.
fn eana() -> AggregateSpec {
    let text = format!(
        r#"{{ "name": "eana", "learning_rate": {}, "clip": {CLIP}, "noise_multiplier": {NOISE} }}"#,
        LEARNING_RATE / DIVISOR
    );
    serde_json::from_str(&text).expect("a spec")
}

struct Table {
    at: TempDir,
    rows: usize,
    dim: usize,
    /// None after a crash.
    controller: Option<Controller>,
}

fn key() -> Key {
    Key::from_bytes([5; 32])
}

/// Of about a row's noise, so that rounding is nothing beside it.
fn start(row: usize, column: usize) -> f32 {
    ((row * 31 + column * 7) % 64) as f32 / 64.0 - 0.5
}

/// A folder in memory where there is one: thousands of them are opened.
fn folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() }.expect("a folder")
}

impl Table {
    fn new((rows, dim): (usize, usize), aggregate: AggregateSpec) -> Self {
        let at = folder();
        let mut spec = ControllerSpec::new("films", (rows as u64, dim), (USERS, SLOTS));
        // As many rows are read as there are slots: none is lost.
        spec.fdp = FdpSpec { epsilon: 0.0, ..FdpSpec::default() };
        spec.aggregate = aggregate;
        spec.cached_levels = 2;
        let mut fill = |first: u64, out: &mut [f32]| {
            for (at, row) in out.chunks_exact_mut(dim).enumerate() {
                let row_start = (0..dim).map(|column| start(first as usize + at, column));
                row.iter_mut().zip(row_start).for_each(|(to, value)| *to = value);
            }
            Ok(())
        };
        let (folder, counter) = places(at.path());
        let made = Controller::create(&folder, &key(), &counter, &spec, &mut fill, &mut |_, _| {});
        Self { rows, dim, controller: Some(made.expect("a controller")), at }
    }

    fn controller(&mut self) -> &mut Controller {
        if self.controller.is_none() {
            self.controller = Some(self.open(&Faults::none()).expect("what is there"));
        }
        self.controller.as_mut().expect("it is open")
    }

    fn open(&self, faults: &Faults) -> Result<Controller, Error> {
        let (folder, counter) = places(self.at.path());
        Controller::open_with(&folder, &key(), &counter, &mut |_, _| {}, faults)
    }

    /// Its files, elsewhere.
    fn copy(&self) -> Self {
        let at = folder();
        let [(from, counter), (to, counter_to)] = [places(self.at.path()), places(at.path())];
        std::fs::create_dir(&to).expect("a folder");
        for file in std::fs::read_dir(from).expect("files") {
            let file = file.expect("a file");
            std::fs::copy(file.path(), to.join(file.file_name())).expect("a copy");
        }
        std::fs::copy(counter, counter_to).expect("a copy");
        Self { at, rows: self.rows, dim: self.dim, controller: None }
    }

    /// Begins a round; each user's ids are padded.
    fn begin(&mut self, wanted: &[&[u32]]) -> Result<(), Error> {
        let mut ids = vec![DUMMY; USERS * SLOTS];
        for (own, wanted) in ids.chunks_exact_mut(SLOTS).zip(wanted) {
            own[..wanted.len()].copy_from_slice(wanted);
        }
        self.controller().begin(USERS, &ids).map(drop)
    }

    /// What a user is served in the first slots.
    fn served(&mut self, user: usize, count: usize) -> Vec<f32> {
        let dim = self.dim;
        let (mut rows, mut found) = (vec![0.0; SLOTS * dim], [false; SLOTS]);
        self.controller().rows(user, &mut rows, &mut found).expect("rows");
        assert!(found[..count].iter().all(|&found| found), "nothing is lost");
        rows.truncate(count * dim);
        rows
    }

    /// A user's gradients: `value` in each number of each slot.
    fn add(&mut self, user: usize, value: f32) {
        let gradients = vec![value; SLOTS * self.dim];
        self.controller().add(user, &gradients, 1.0).expect("gradients");
    }

    fn commit(&mut self) {
        self.controller().commit().expect("a commit");
    }

    /// A round in which each user who has ids trains their rows.
    fn train(&mut self, wanted: &[&[u32]], value: f32) {
        self.begin(wanted).expect("a round");
        for user in (0..wanted.len()).filter(|&user| !wanted[user].is_empty()) {
            self.add(user, value);
        }
        self.commit();
    }

    /// As by a crash: nothing is ended.
    fn crash(&mut self) {
        self.controller = None;
    }

    fn export(&mut self) -> Vec<f32> {
        let mut all = Vec::new();
        let sink = &mut |_, rows: &[f32]| {
            all.extend_from_slice(rows);
            Ok(())
        };
        self.controller().export(sink, &mut |_, _| {}).expect("a table");
        assert_eq!(all.len(), self.rows * self.dim);
        all
    }

    /// Rows of an export that are not what they started as.
    fn support(&mut self) -> BTreeSet<usize> {
        let (dim, all) = (self.dim, self.export());
        let is_start = |(row, values): &(usize, &[f32])| {
            values.iter().enumerate().all(|(column, value)| *value == start(*row, column))
        };
        all.chunks_exact(dim).enumerate().filter(|row| !is_start(row)).map(|(row, _)| row).collect()
    }
}

fn places(at: &Path) -> (std::path::PathBuf, std::path::PathBuf) {
    (at.join("films"), at.join("counter"))
}

/// Three rounds; one user's one value is `of_ann` in the second.
fn run_with(aggregate: AggregateSpec, of_ann: u32) -> BTreeSet<usize> {
    let mut table = Table::new((200, 8), aggregate);
    table.train(&[&[1, 2], &[3]], 0.25);
    table.train(&[&[1, of_ann], &[3, 4]], 0.25);
    table.train(&[&[], &[5]], 0.25);
    table.support()
}

#[test]
fn the_export_does_not_show_which_rows_were_trained() {
    for aggregate in private() {
        let [one, other] = [17, 90].map(|row| run_with(aggregate, row));
        let apart: Vec<_> = one.symmetric_difference(&other).collect();
        assert!(
            apart.is_empty() && one.len() == 200,
            "{aggregate:?}: {} and {} of 200 rows are not what they started as; between the \
             neighbours {apart:?} differ",
            one.len(),
            other.len()
        );
    }
    // What the attack sees where rows that nobody sent get no noise, as `eana` says of itself.
    let [one, other] = [17, 90].map(|row| run_with(eana(), row));
    assert_eq!(one.symmetric_difference(&other).copied().collect::<Vec<_>>(), [17, 90]);
}

/// The mean square over [`SIGMA`]² of what rows are off from where they started, and how far off
/// that may be by chance (five standard errors).
fn variance(rows: impl Iterator<Item = (usize, Vec<f32>)>) -> (f64, f64) {
    let (mut squares, mut count) = (0.0, 0);
    for (row, values) in rows {
        for (column, value) in values.iter().enumerate() {
            squares += (f64::from(*value) - f64::from(start(row, column))).powi(2);
            count += 1;
        }
    }
    (squares / f64::from(count) / SIGMA.powi(2), 5.0 * (2.0 / f64::from(count)).sqrt())
}

#[test]
fn every_row_has_the_noise_of_every_round() {
    const DIM: usize = 125;
    let trained = [3_u32, 40, 41, 99];
    for aggregate in private() {
        let mut table = Table::new((160, DIM), aggregate);
        // Gradients of zero: what is left is the noise.
        table.train(&[&trained[..2]], 0.0);
        table.train(&[&[3]], 0.0);
        // Rows that are read and not updated, by an end or by a crash, are owed no more than others.
        table.begin(&[&trained, &[120, 121]]).expect("a round");
        table.controller().abandon().expect("an end");
        table.begin(&[&trained, &[130, 131]]).expect("a round");
        table.crash();
        table.train(&[&trained, &[7]], 0.0);
        // Read by a user who then drops out.
        table.begin(&[&[], &[], &[60, 61, 62]]).expect("a round");
        table.commit();
        for rounds in [4, 5, 9] {
            while table.controller().round() < rounds {
                table.train(&[&[3]], 0.0);
            }
            let all = table.export();
            let of = |row: usize| (row, all[row * DIM..][..DIM].to_vec());
            let are_trained = |row: usize| trained.contains(&(row as u32));
            let parts: [Vec<usize>; 4] = [
                trained.map(|row| row as usize).to_vec(),
                (0..160).filter(|&row| !are_trained(row)).collect(),
                vec![120, 121, 130, 131],
                vec![60, 61, 62],
            ];
            for (part, rows) in parts.into_iter().enumerate() {
                let (found, off_max) = variance(rows.into_iter().map(of));
                let ratio = found / rounds as f64;
                assert!(
                    (ratio - 1.0).abs() < off_max,
                    "{aggregate:?}: part {part} has noise of {found:.3} rounds, not {rounds}"
                );
            }
        }
    }
}

#[test]
fn a_row_asked_for_twice_does_not_tell_whether_it_was_trained_between() {
    const DIM: usize = 125;
    for aggregate in private() {
        for is_trained in [false, true] {
            let mut table = Table::new((160, DIM), aggregate);
            table.begin(&[&[], &[], &[50]]).expect("a round");
            let before = table.served(2, 1);
            table.commit();
            let wanted: &[u32] = if is_trained { &[50] } else { &[51] };
            table.train(&[wanted], 0.0);
            table.begin(&[&[], &[], &[50]]).expect("a round");
            let after = table.served(2, 1);
            let pairs = before.iter().zip(&after);
            let squares: f64 = pairs.map(|(a, b)| f64::from(a - b).powi(2)).sum();
            let rounds = squares / DIM as f64 / SIGMA.powi(2);
            assert!(
                (rounds / 2.0 - 1.0).abs() < 5.0 * (2.0 / DIM as f64).sqrt(),
                "{aggregate:?}, trained: {is_trained}: what was served before and after two \
                 rounds is {rounds:.3} rounds of noise apart"
            );
        }
    }
}

#[test]
fn noise_that_was_served_is_not_drawn_again() {
    // Were it, who makes the controller crash would average the noise away.
    for aggregate in private() {
        let mut table = Table::new((160, 125), aggregate);
        table.train(&[&[1]], 0.25);
        let wanted: [&[u32]; 3] = [&[50, 51, 52, 1], &[100, 101, 102, 103], &[150]];
        let counts = wanted.map(<[u32]>::len);
        let view = |table: &mut Table| {
            table.begin(&wanted).expect("a round");
            [0, 1, 2].map(|user| table.served(user, counts[user]))
        };
        let first = view(&mut table);
        assert!((0..125).all(|column| first[0][column] != start(50, column)), "{aggregate:?}");
        for attempt in 0..6 {
            match attempt % 3 {
                0 => drop(table.controller().abandon().expect("an end")),
                1 => table.crash(),
                // A crash while the last one is mended leaves it to be mended again.
                _ => {
                    table.crash();
                    table.controller();
                    table.crash();
                }
            }
            if attempt == 3 {
                // Other rows of the same round do not matter.
                table.begin(&[&[7, 8]]).expect("a round");
                table.crash();
            }
            assert_eq!(view(&mut table), first, "{aggregate:?}: attempt {attempt}");
        }
        // And another round's noise adds to it instead of replacing it.
        table.crash();
        table.train(&[&[2]], 0.25);
        let later = view(&mut table);
        let moves = first.iter().flatten().zip(later.iter().flatten());
        let squares: f64 = moves.map(|(a, b)| f64::from(a - b).powi(2)).sum();
        let count = 125 * counts.iter().sum::<usize>();
        let rounds = squares / count as f64 / SIGMA.powi(2);
        assert!((rounds - 1.0).abs() < 5.0 * (2.0 / count as f64).sqrt(), "{rounds:.3} rounds");
    }
}

#[test]
fn no_crash_makes_noise_be_drawn_again_that_was_served() {
    let wanted: [&[u32]; 3] = [&[50, 51, 52, 1], &[10, 11, 12, 13], &[5]];
    let view = |table: &mut Table| [0, 1, 2].map(|user| table.served(user, wanted[user].len()));
    let mut base = Table::new((60, 16), named("lazy_dp", DIVISOR));
    base.train(&[&[1, 10]], 0.25);
    base.controller.take().expect("a controller").close().expect("an end");
    let (mut cut, mut done) = (0, 0);
    for kill_at in 0.. {
        let mut table = base.copy();
        let faults = Faults::new(FaultSpec {
            kill_at: Some(kill_at),
            tear: Tear::Half,
            unsynced: if kill_at % 2 == 0 { Unsynced::Lost } else { Unsynced::Kept },
        });
        let opened = table.open(&faults);
        let mut served = None;
        let outcome = opened.and_then(|controller| {
            table.controller = Some(controller);
            table.begin(&wanted)?;
            served = Some(view(&mut table));
            table.controller().commit().map(drop)
        });
        assert_eq!(outcome.is_err(), faults.is_killed(), "{outcome:?}");
        // A second crash, while the first is mended.
        table.crash();
        let faults_again =
            Faults::new(FaultSpec { kill_at: Some(kill_at / 2), ..FaultSpec::default() });
        drop(table.open(&faults_again));
        let round = table.controller().round();
        table.begin(&wanted).expect("a round");
        if let (1, Some(served)) = (round, served) {
            assert_eq!(view(&mut table), served, "kill at {kill_at}");
            cut += 1;
        }
        done += u32::from(round == 2);
        if !faults.is_killed() {
            break;
        }
    }
    assert!(cut > 3 && done > 0, "{cut} cut after rows were served, {done} done");
}

/// What exports before and after a round tell of rows that a user did or did not train in it: the
/// move along the gradient, and whether the row changed at all. Each row is an experiment of its own.
fn features(aggregate: AggregateSpec, rounds: usize) -> Vec<(bool, [f64; 2])> {
    const DIM: usize = 4;
    let mut random = ChaCha20Rng::seed_from_u64(7);
    let mut table = Table::new((40, DIM), aggregate);
    let mut before = table.export();
    let mut all = Vec::new();
    for _ in 0..rounds {
        let users: [Vec<(u32, bool)>; 2] = [10, 20]
            .map(|first| (first..first + 4).map(|row| (row, random.random::<bool>())).collect());
        let wanted = users.clone().map(|rows| -> Vec<u32> {
            rows.into_iter().filter_map(|(row, takes_part)| takes_part.then_some(row)).collect()
        });
        // Clipped to C: the most that one row can say.
        table.train(&[&wanted[0], &wanted[1]], 100.0);
        let after = table.export();
        for (row, takes_part) in users.into_iter().flatten() {
            let [before, after] = [&before, &after].map(|all| &all[row as usize * DIM..][..DIM]);
            let moved = before.iter().zip(after).map(|(before, after)| f64::from(before - after));
            all.push((takes_part, [moved.sum(), f64::from(u8::from(before != after))]));
        }
        before = after;
    }
    all
}

/// The largest excess of a test's right alarms over e^ε · false ones + δ, in any feature, at any
/// threshold, to either side.
fn excess(views: &[(bool, [f64; 2])], epsilon: f64, delta: f64) -> f64 {
    let share = |is_alarm: &dyn Fn(&[f64; 2]) -> bool, of: bool| {
        let class: Vec<_> = views.iter().filter(|(takes_part, _)| *takes_part == of).collect();
        class.iter().filter(|(_, view)| is_alarm(view)).count() as f64 / class.len() as f64
    };
    let mut worst = f64::MIN;
    for feature in 0..2 {
        for (_, at) in views {
            for sign in [-1.0, 1.0] {
                let is_alarm = |view: &[f64; 2]| sign * view[feature] >= sign * at[feature];
                for of in [false, true] {
                    let allowed = epsilon.exp() * share(&is_alarm, !of) + delta;
                    worst = worst.max(share(&is_alarm, of) - allowed);
                }
            }
        }
    }
    worst
}

#[test]
fn exports_of_neighbours_are_no_easier_to_tell_apart_than_epsilon_allows() {
    // One round's Gaussian mechanism with noise of 0.75 of what one row can change it by, at ε = 1:
    // δ = Φ(1/2σ - εσ) - e^ε Φ(-1/2σ - εσ) (Balle and Wang, ICML 2018, theorem 8) with σ = 0.75.
    let (epsilon, delta) = (1.0, 0.466_7 - 1_f64.exp() * 0.078_3);
    // Four standard errors of 200 trials of each, false alarms counted e^ε times.
    let rounds = 50;
    let slack = 0.25;
    for aggregate in private() {
        let found = excess(&features(aggregate, rounds), epsilon, delta);
        assert!(found < slack, "{aggregate:?}: {found:.3} more than e^ε and δ allow");
    }
    let planted = excess(&features(eana(), rounds), epsilon, delta);
    assert!(planted > 0.5, "rows without noise go unnoticed: {planted:.3}");
}
