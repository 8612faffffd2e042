//! Single-server retrieval, from query to row.

use std::sync::Arc;

use hushtable_pir::onion::{Client, Engine, Geometry, OnionSpec, ParameterSet, Schedule, Server};
use hushtable_pir::{Platform, TableShape};
use hushtable_table::Version;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha20Rng;

const VERSION: [u8; 32] = [7; 32];

/// A table of bytes that differ from row to row.
fn bytes(shape: TableShape) -> Vec<u8> {
    let mut random = ChaCha20Rng::seed_from_u64(shape.rows() ^ shape.row_bytes() as u64);
    let mut bytes = vec![0; shape.table_bytes() as usize];
    random.fill(&mut bytes[..]);
    // The extremes of a plaintext's coefficients, where noise is largest.
    let rows = bytes.len() / 8;
    bytes[..rows].fill(0xff);
    bytes[rows..2 * rows].chunks_exact_mut(2).for_each(|pair| pair.copy_from_slice(&[0, 0x80]));
    bytes
}

struct World {
    table: Vec<u8>,
    shape: TableShape,
    client: Client,
    server: Server,
}

impl World {
    fn new(set: ParameterSet, rows: u64, row_bytes: usize, spec: &OnionSpec) -> Self {
        let shape = TableShape::new(rows, row_bytes).unwrap();
        Self::with(Geometry::new(set, shape).unwrap(), spec)
    }

    fn with(geometry: Geometry, spec: &OnionSpec) -> Self {
        let shape = geometry.shape();
        let table = bytes(shape);
        let version = Version::from(VERSION);
        let copy = |first: u64, out: &mut [u8]| {
            let first = first as usize * shape.row_bytes();
            out.copy_from_slice(&table[first..first + out.len()]);
            Ok(())
        };
        let engine = Engine::from_rows(geometry.clone(), version, spec, &copy).unwrap();
        let server = Server::new(Arc::new(engine));
        let client = Client::new(geometry, version).unwrap();
        Self { table, shape, client, server }
    }

    fn row(&self, id: u64) -> &[u8] {
        let row_bytes = self.shape.row_bytes();
        &self.table[id as usize * row_bytes..][..row_bytes]
    }

    fn fetch(&self, ids: &[u64]) -> Vec<u8> {
        let keys = Arc::new(self.server.accept_keys(self.client.keys()).unwrap());
        let (queries, pending) = self.client.query(ids, ids.len()).unwrap();
        let asked: Vec<_> =
            queries.iter().map(|query| self.server.accept(&keys, query).unwrap()).collect();
        let mut responses = vec![0; ids.len() * self.client.geometry().response_bytes()];
        self.server.answer(&asked, &mut responses).unwrap();
        self.client.decode(&pending, VERSION.into(), &responses).unwrap()
    }

    fn check(&self, ids: &[u64]) {
        let rows = self.fetch(ids);
        for (&id, row) in ids.iter().zip(rows.chunks_exact(self.shape.row_bytes())) {
            assert_eq!(row, self.row(id), "row {id} of {:?}", self.shape);
        }
    }
}

#[test]
fn every_row_of_small_tables_is_found() {
    for (rows, row_bytes) in [(1, 16), (300, 16), (1000, 64), (77, 200), (40, 600), (9, 32 << 10)] {
        let world = World::new(ParameterSet::N256Test, rows, row_bytes, &OnionSpec::new());
        let ids: Vec<u64> = (0..rows).collect();
        ids.chunks(7).for_each(|ids| world.check(ids));
    }
}

#[test]
fn the_offered_sets_find_rows() {
    for set in ParameterSet::ALL {
        let world = World::new(set, 20_000, 256, &OnionSpec::new());
        world.check(&[0, 19_999, 7_777]);
    }
}
