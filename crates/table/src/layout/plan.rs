//! Which rows to ask for, so that as much of a bag as possible arrives.

use std::collections::HashMap;
use std::sync::Arc;

use super::permutation::mix;
use super::{DropRule, Layout, LayoutError, Part, PartName, Place, Trace};
use crate::parts::in_parts;

/// Plans inferences by one layout.
///
/// Its time and memory accesses depend on the ids: it runs at the client, and what it makes of
/// them (always the same number of keys) is all that leaves.
#[derive(Clone, Debug)]
pub struct Planner {
    layout: Arc<Layout>,
    /// Index in the map's hot ids.
    hot_index: HashMap<u32, u32>,
    /// By part (hot, full): the rows that have an id as a companion.
    carriers: [Carriers; 2],
}

/// Pairs of an id and a row that has it as a companion, in that order, each as one number: the id,
/// then 32 bits of the row.
///
/// Memory is bounded by the map's length. A table of the ids' rows would be bounded by the number of
/// rows only, which a server is free to announce.
#[derive(Clone, Debug, Default)]
struct Carriers(Vec<u64>);

impl Carriers {
    fn new(layout: &Layout, part: &Part) -> Self {
        let pairs = (0..part.spec().rows).flat_map(|index| {
            let mut ids = layout.entry_ids(part, index);
            let own = ids.next();
            ids.filter(move |&id| Some(id) != own).map(move |id| id << 32 | index)
        });
        let mut pairs: Vec<u64> = pairs.collect();
        pairs.sort_unstable();
        Self(pairs)
    }

    /// Some of the rows that bring `id`, at most [`CARRIERS_MAX`].
    fn of(&self, id: u64) -> impl Iterator<Item = u64> + '_ {
        let start = self.0.partition_point(|&pair| pair >> 32 < id);
        let rows = self.0[start..].iter().take_while(move |&&pair| pair >> 32 == id);
        rows.take(CARRIERS_MAX).map(|&pair| u64::from(pair as u32))
    }
}

/// An inference as it is asked for: what each key fetches, and which key serves each id.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Plan {
    /// For each key of the request the row of its bin to fetch, 0 where nothing is wanted: keys look
    /// alike, and whoever makes them need not (and must not) know which of them matter.
    pub offsets: Vec<u32>,
    /// For each id of the bag where its row arrives, `None` where it was dropped.
    pub found: Vec<Option<Found>>,
    /// Distinct ids of the bag that were dropped.
    pub dropped: usize,
}

impl Plan {
    /// A plan of `keys` keys that wants nothing.
    pub fn empty(keys: usize) -> Self {
        Self { offsets: vec![0; keys], found: Vec::new(), dropped: 0 }
    }
}

/// Where a row arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "two numbers")]
pub struct Found {
    /// Which key's answer.
    pub key: u32,
    /// Which of the rows in it: 0 for the entry's own, then its companions.
    pub entry_row: u32,
}

/// A part's row that a bin may be asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Row {
    part: usize,
    index: u64,
}

/// One item of a matching: any of several rows serves it, and each row lies in several places.
struct Item {
    rows: Vec<Row>,
    /// Bin (over all parts) and offset it has now.
    placed: Option<(usize, u32, Row)>,
}

/// The bins of all parts, hot ones first, and what is placed in them.
struct Board<'a> {
    parts: Vec<&'a Part>,
    /// First bin of each part.
    starts: [usize; 2],
    bins: Vec<Vec<usize>>,
    /// Most items of each bin.
    queries: Vec<usize>,
    items: Vec<Item>,
    /// The last search that reached a bin.
    visited: Vec<u32>,
    search: u32,
}

/// An item's move into a bin, and the one that must wait for it.
#[derive(Clone, Copy)]
struct Move {
    item: usize,
    row: Row,
    bin: usize,
    offset: u32,
    before: Option<usize>,
}

/// A distinct id of a bag.
struct Wanted {
    id: u64,
    /// Times the bag holds it, and where first.
    count: u32,
    first: usize,
    /// Item and row of its entry.
    covered: Option<(usize, u32)>,
}

impl Planner {
    /// A planner for `layout`.
    pub fn new(layout: Arc<Layout>) -> Self {
        let map = layout.map();
        let hot_index = (0..).zip(&map.hot_ids).map(|(index, &id)| (id, index)).collect();
        let mut carriers = [Carriers::default(), Carriers::default()];
        for part in layout.parts().filter(|part| part.spec().companions > 0) {
            carriers[part_number(part)] = Carriers::new(&layout, part);
        }
        Self { layout, hot_index, carriers }
    }

    /// The layout.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// Plans the bag `ids`, which may repeat ids. `random` decides where the layout's rule is
    /// [`DropRule::Random`]. The same bag, number and layout give the same plan.
    ///
    /// The number of ids served is the largest possible where there are no companions (a maximum
    /// matching of ids and bins, found in the order of the rule, so that no id is dropped for one
    /// that comes after it); companions are used greedily.
    ///
    /// # Errors
    /// [`LayoutError::TooManyIds`], [`LayoutError::IdRange`].
    pub fn plan_vartime(&self, ids: &[u64], random: u64) -> Result<Plan, LayoutError> {
        let layout = &*self.layout;
        if ids.len() > layout.ids_max() {
            return Err(LayoutError::TooManyIds { ids: ids.len(), ids_max: layout.ids_max() });
        }
        let rows = layout.rows();
        if let Some(&id) = ids.iter().find(|&&id| id >= rows) {
            return Err(LayoutError::IdRange { id, rows });
        }
        let (mut wanted, of_position) = self.wanted(ids, random);
        let mut board = Board::new(layout);
        self.place_carriers(&mut board, &mut wanted);
        for wanted in wanted.iter_mut().filter(|wanted| wanted.covered.is_none()) {
            wanted.covered = board.place(self.rows_of(wanted.id)).map(|item| (item, 0));
        }
        self.place_with_others(&mut board, &mut wanted);

        let (offsets, keys) = board.keys(layout.keys());
        let found = of_position
            .iter()
            .map(|&i| {
                let (item, entry_row) = wanted[i].covered?;
                Some(Found { key: keys[item]?, entry_row })
            })
            .collect();
        let dropped = wanted.iter().filter(|wanted| wanted.covered.is_none()).count();
        Ok(Plan { offsets, found, dropped })
    }

    /// The distinct ids in the order of the rule, and which of them each position holds.
    fn wanted(&self, ids: &[u64], random: u64) -> (Vec<Wanted>, Vec<usize>) {
        let mut numbers: HashMap<u64, usize> = HashMap::with_capacity(ids.len());
        let mut wanted: Vec<Wanted> = Vec::with_capacity(ids.len());
        let mut of_position = Vec::with_capacity(ids.len());
        for (first, &id) in ids.iter().enumerate() {
            let number = *numbers.entry(id).or_insert(wanted.len());
            if number == wanted.len() {
                wanted.push(Wanted { id, count: 0, first, covered: None });
            }
            wanted[number].count += 1;
            of_position.push(number);
        }
        let mut order: Vec<usize> = (0..wanted.len()).collect();
        match self.layout.spec().drop {
            DropRule::Earliest => return (wanted, of_position),
            DropRule::MostFrequent => order.sort_by_cached_key(|&i| {
                let Wanted { id, count, first, .. } = wanted[i];
                // Rows lie in a hot bin in the order of how much they are read.
                let hot = self.hot_index.get(&(id as u32)).map_or(u32::MAX, |&index| {
                    self.layout.hot().map_or(0, |hot| offset_of(hot, index))
                });
                (std::cmp::Reverse(count), hot, first)
            }),
            DropRule::Random => order.sort_by_cached_key(|&i| mix(random ^ mix(wanted[i].id))),
        }
        let mut rank = vec![0; wanted.len()];
        order.iter().enumerate().for_each(|(place, &i)| rank[i] = place);
        of_position.iter_mut().for_each(|i| *i = rank[*i]);
        let mut by_rank: Vec<(usize, Wanted)> =
            wanted.into_iter().enumerate().map(|(i, wanted)| (rank[i], wanted)).collect();
        by_rank.sort_unstable_by_key(|(rank, _)| *rank);
        (by_rank.into_iter().map(|(_, wanted)| wanted).collect(), of_position)
    }

    /// The rows that store `id` as their own, hot first.
    fn rows_of(&self, id: u64) -> Vec<Row> {
        let mut rows = Vec::with_capacity(2);
        if let Some(&index) = self.hot_index.get(&(id as u32)) {
            rows.push(Row { part: HOT, index: index.into() });
        }
        if self.layout.full().is_some() {
            rows.push(Row { part: FULL, index: id });
        }
        rows
    }

    /// First, rows that bring several wanted ids at once, those that bring most first.
    fn place_carriers(&self, board: &mut Board<'_>, wanted: &mut [Wanted]) {
        if self.layout.parts().all(|part| part.spec().companions == 0) {
            return;
        }
        let numbers: HashMap<u64, usize> =
            wanted.iter().enumerate().map(|(i, wanted)| (wanted.id, i)).collect();
        let gain = |row: Row, wanted: &[Wanted]| {
            let brings = |id| numbers.get(&id).filter(|&&i| wanted[i].covered.is_none());
            let mut ids: Vec<usize> =
                self.entry_ids(row).filter_map(|id| brings(id).copied()).collect();
            ids.sort_unstable();
            ids.dedup();
            ids.len()
        };
        let mut heap: std::collections::BinaryHeap<(usize, std::cmp::Reverse<(usize, usize)>)> =
            std::collections::BinaryHeap::new();
        let candidates: Vec<(usize, Row)> = (0..wanted.len())
            .flat_map(|i| self.rows_of(wanted[i].id).into_iter().map(move |row| (i, row)))
            .filter(|(_, row)| self.part(*row).spec().companions > 0)
            .collect();
        for (number, &(i, row)) in candidates.iter().enumerate() {
            heap.push((gain(row, wanted), std::cmp::Reverse((i, number))));
        }
        // Gains only fall as ids are covered: one that is still the largest when looked at again is
        // the largest.
        while let Some((before, std::cmp::Reverse((i, number)))) = heap.pop() {
            let row = candidates[number].1;
            let now = gain(row, wanted);
            if now < 2 {
                continue;
            }
            if now < before {
                heap.push((now, std::cmp::Reverse((i, number))));
                continue;
            }
            if let Some(item) = board.place(vec![row]) {
                for (id, entry_row) in self.entry_ids(row).zip(0..) {
                    if let Some(&i) = numbers.get(&id)
                        && wanted[i].covered.is_none()
                    {
                        wanted[i].covered = Some((item, entry_row));
                    }
                }
            }
        }
    }

    /// Last, ids without room of their own, as companions of rows whose bins have room.
    fn place_with_others(&self, board: &mut Board<'_>, wanted: &mut [Wanted]) {
        for wanted in wanted.iter_mut().filter(|wanted| wanted.covered.is_none()) {
            for part in [HOT, FULL] {
                let carriers = self.carriers[part].of(wanted.id);
                let rows: Vec<Row> = carriers.map(|index| Row { part, index }).collect();
                if let Some(item) = board.place(rows) {
                    // From here on it stays this row: in another, the id may stand elsewhere.
                    wanted.covered = self.entry_row_of(board, item, wanted.id);
                    break;
                }
            }
        }
    }

    fn entry_row_of(&self, board: &mut Board<'_>, item: usize, id: u64) -> Option<(usize, u32)> {
        let (_, _, row) = board.items[item].placed?;
        board.items[item].rows = vec![row];
        let entry_row = self.entry_ids(row).position(|found| found == id)?;
        Some((item, entry_row as u32))
    }

    fn part(&self, row: Row) -> &Part {
        let part = if row.part == HOT { self.layout.hot() } else { self.layout.full() };
        part.expect("rows are made for parts that there are")
    }

    fn entry_ids(&self, row: Row) -> impl Iterator<Item = u64> + '_ {
        self.layout.entry_ids(self.part(row), row.index)
    }
}

impl<'a> Board<'a> {
    fn new(layout: &'a Layout) -> Self {
        let parts: Vec<&Part> = layout.parts().collect();
        let mut starts = [0; 2];
        let mut queries = Vec::new();
        for part in &parts {
            starts[part_number(part)] = queries.len();
            queries.resize(queries.len() + part.bins(), part.queries());
        }
        let bin_count = queries.len();
        Self {
            parts,
            starts,
            bins: vec![Vec::new(); bin_count],
            queries,
            items: Vec::new(),
            visited: vec![0; bin_count],
            search: 0,
        }
    }

    fn part(&self, number: usize) -> &'a Part {
        self.parts.iter().find(|part| part_number(part) == number).expect("a row's part exists")
    }

    /// Places one of `rows`, moving others to their other places where need be.
    fn place(&mut self, rows: Vec<Row>) -> Option<usize> {
        let item = self.items.len();
        self.items.push(Item { rows, placed: None });
        if self.find_room(item) {
            return Some(item);
        }
        self.items.pop();
        None
    }

    /// Finds the shortest chain of moves that ends at a bin with room, breadth first (an augmenting
    /// path of the matching of items and bins), and makes them.
    fn find_room(&mut self, item: usize) -> bool {
        self.search += 1;
        let mut moves = Vec::new();
        self.reach(item, None, &mut moves);
        let mut next = 0;
        while next < moves.len() {
            let Move { bin, .. } = moves[next];
            if self.bins[bin].len() < self.queries[bin] {
                let mut step = Some(next);
                while let Some(i) = step {
                    self.put(moves[i]);
                    step = moves[i].before;
                }
                return true;
            }
            for i in 0..self.bins[bin].len() {
                let other = self.bins[bin][i];
                if self.can_move(other) {
                    self.reach(other, Some(next), &mut moves);
                }
            }
            next += 1;
        }
        false
    }

    /// Adds the moves of `item` to bins that this search has not reached yet.
    fn reach(&mut self, item: usize, before: Option<usize>, moves: &mut Vec<Move>) {
        for &row in &self.items[item].rows {
            for Place { bin, offset } in self.part(row.part).places(row.index) {
                let bin = self.starts[row.part] + bin as usize;
                if std::mem::replace(&mut self.visited[bin], self.search) != self.search {
                    moves.push(Move { item, row, bin, offset, before });
                }
            }
        }
    }

    /// Whether an item has more than the place it is in.
    fn can_move(&self, item: usize) -> bool {
        let rows = &self.items[item].rows;
        rows.len() > 1 || rows.iter().any(|row| self.part(row.part).spec().hashes > 1)
    }

    fn put(&mut self, Move { item, row, bin, offset, .. }: Move) {
        if let Some((old, _, _)) = self.items[item].placed {
            self.bins[old].retain(|&other| other != item);
        }
        self.bins[bin].push(item);
        self.items[item].placed = Some((bin, offset, row));
    }

    /// Each key's offset, and each item's key.
    fn keys(&self, key_count: usize) -> (Vec<u32>, Vec<Option<u32>>) {
        let mut offsets = vec![0; key_count];
        let mut keys = vec![None; self.items.len()];
        let (mut bin, mut key) = (0, 0);
        for part in &self.parts {
            for _ in 0..part.bins() {
                for (slot, &item) in self.bins[bin].iter().enumerate() {
                    if let Some((_, offset, _)) = self.items[item].placed {
                        offsets[key + slot] = offset;
                    }
                    keys[item] = Some((key + slot) as u32);
                }
                bin += 1;
                key += part.queries();
            }
        }
        (offsets, keys)
    }
}

fn part_number(part: &Part) -> usize {
    match part.name() {
        PartName::Hot => HOT,
        PartName::Full => FULL,
    }
}

fn offset_of(part: &Part, index: u32) -> u32 {
    part.places(index.into()).next().map_or(0, |place| place.offset)
}

const HOT: usize = 0;
const FULL: usize = 1;
/// Rows tried that bring an id as a companion.
const CARRIERS_MAX: usize = 16;

/// Plans every bag of a trace, on as many threads as there are: for each id whether it was served.
///
/// # Errors
/// As [`Planner::plan_vartime`], for the first bag at fault.
pub fn simulate(planner: &Planner, trace: &Trace, seed: u64) -> Result<Vec<bool>, LayoutError> {
    let bags: Vec<usize> = (0..trace.bag_count()).collect();
    let plan_bags = |bags: &[usize]| -> Result<Vec<bool>, LayoutError> {
        let mut kept = Vec::new();
        for &bag in bags {
            let ids: Vec<u64> = trace.bag(bag).iter().map(|&id| id.into()).collect();
            let plan = planner.plan_vartime(&ids, mix(seed ^ bag as u64))?;
            kept.extend(plan.found.iter().map(Option::is_some));
        }
        Ok(kept)
    };
    let mut kept = Vec::with_capacity(trace.ids().len());
    for part in in_parts(&bags, 1, plan_bags) {
        kept.extend(part?);
    }
    Ok(kept)
}
