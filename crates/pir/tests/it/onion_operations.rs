//! What is said of a query's operations, beside what an engine executes. One test alone: the counters
//! are the process's.

use std::sync::Arc;

use hushtable_pir::TableShape;
use hushtable_pir::onion::{Client, Engine, Geometry, OnionSpec, ParameterSet, Server, operations};
use hushtable_rlwe::ring::kernel::counts;

#[test]
fn an_engine_executes_the_operations_that_are_said() {
    for (set, rows, row_bytes) in [
        (ParameterSet::N4096128, 3_000, 512),
        // Rows of several plaintexts, and a last column that is alone.
        (ParameterSet::N4096128, 150, 20_000),
        (ParameterSet::IvePaper, 1_000, 16_384),
    ] {
        let shape = TableShape::new(rows, row_bytes).unwrap();
        let geometry = Geometry::with_levels(set, shape, 6).unwrap();
        let copy = |first: u64, bytes: &mut [u8]| {
            bytes.fill(first as u8);
            Ok(())
        };
        let spec = OnionSpec { threads: 2, ..OnionSpec::new() };
        let engine = Engine::from_rows(geometry.clone(), [3; 32].into(), &spec, &copy).unwrap();
        let engine = Arc::new(engine);
        let server = Server::new(Arc::clone(&engine) as _);
        let client = Client::new(geometry.clone(), [3; 32].into()).unwrap();
        let keys = Arc::new(server.accept_keys(client.keys()).unwrap());
        let (queries, _) = client.query(&[rows - 1], 1).unwrap();
        let asked = [server.accept(&keys, &queries[0]).unwrap()];
        let mut response = vec![0; geometry.response_bytes()];
        counts::take();
        engine.answer_timed(&asked, &mut response).unwrap();
        let [forward, inverse, products, decompositions] = counts::take();
        let said = operations::of_query(&geometry);
        let (expand, tournament) = (said.expand, said.tournament);
        // A response is brought back to coefficients.
        let compressed = (2 * geometry.chunks() * geometry.params().answer_ring().limbs()) as u64;
        assert!(said.splits > 32 && said.games > 2, "{said:?}");
        assert_eq!(forward, expand.forward + tournament.forward, "{set:?}");
        assert_eq!(inverse, expand.inverse + tournament.inverse + compressed, "{set:?}");
        assert_eq!(products, expand.products + tournament.products, "{set:?}");
        assert_eq!(decompositions, expand.decompositions + tournament.decompositions, "{set:?}");

        // The table anew in each pass: the same response, and a transform for each plaintext.
        let mut again = vec![0; response.len()];
        engine.answer_unprepared(&asked, &copy, &mut again).unwrap();
        assert!(again == response, "{set:?}");
        let plaintexts = geometry.columns().next_multiple_of(4) as usize
            * geometry.rows()
            * geometry.chunks()
            * geometry.params().answer_ring().limbs();
        assert_eq!(counts::take()[0], forward + plaintexts as u64, "{set:?}");
    }
}
