//! Folders of precomputes that are put back after they were used, a client's, a server's and both: no half is used twice.

use std::path::Path;

use crate::common::Running;
use crate::hybrid::{check, with_store};
use crate::hybrid_common::{bundle, input, outputs, spec};
use hushtable_serve::{Garbler, HybridPrediction, HybridServer, HybridServerSpec};
use tempfile::TempDir;

const REFUSED: &str = "hushtable_precomputes_refused_total";

/// How a folder comes back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Back {
    /// From a backup: other files with the same bytes.
    Copied,
    /// With the disk that it is on: the same files.
    RolledBack,
}

/// Keeps a folder as it is now, or puts it back.
pub fn bring(from: &Path, to: &Path, back: Back) {
    if to.exists() {
        std::fs::remove_dir_all(to).unwrap();
    }
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match back {
            Back::Copied => drop(std::fs::copy(entry.path(), to).unwrap()),
            Back::RolledBack => std::fs::hard_link(entry.path(), to).unwrap(),
        }
    }
}

struct Place {
    folder: TempDir,
    garbler: Garbler,
}

impl Place {
    fn start(&self) -> Running {
        let path = self.folder.path();
        let model = path.join("shapes");
        let spec = HybridServerSpec {
            store: Some(path.join("server")),
            store_ledger: Some(path.join("ledgers")),
            ..spec(model)
        };
        Running::start(HybridServer::open(spec).unwrap())
    }

    /// A prediction, and how many halves the client has left.
    async fn predict(&self, server: &Running, seed: u64) -> (HybridPrediction, usize) {
        let own = self.folder.path().join("client");
        let client = with_store(server.url(), &own, self.garbler).await;
        let x = input(seed);
        let found = client.predict(&x, None).await.unwrap();
        check(&found.outputs, &outputs(1, &x));
        (found, client.precomputes().precomputes)
    }

    fn bring(&self, side: &str, kept: bool, back: Back) {
        let [own, copy] =
            [side.to_owned(), format!("{side} kept")].map(|name| self.folder.path().join(name));
        if kept { bring(&own, &copy, back) } else { bring(&copy, &own, back) }
    }
}

/// What an attacker does who has a copy of both disks, or a user who puts a backup back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn folders_that_are_put_back_make_no_second_prediction_of_a_precompute() {
    for garbler in [Garbler::Client, Garbler::Server] {
        for back in [Back::Copied, Back::RolledBack] {
            for sides in [&["client"][..], &["server"], &["client", "server"]] {
                let what = format!("{garbler:?} {back:?} {sides:?}");
                let place = Place { folder: TempDir::new().unwrap(), garbler };
                bundle(place.folder.path(), 1);
                let server = place.start();
                let own = place.folder.path().join("client");
                with_store(server.url(), &own, garbler).await.precompute(2, None).await.unwrap();
                drop(server);
                sides.iter().for_each(|side| place.bring(side, true, back));

                let server = place.start();
                let (first, left) = place.predict(&server, 1).await;
                assert!(first.stats.offline.is_none() && left == 1, "{what}");
                drop(server);
                sides.iter().for_each(|side| place.bring(side, false, back));

                // One that was used by nobody is used, or one that is made now.
                let server = place.start();
                let is_server = sides.contains(&"server");
                let refused = match back {
                    _ if !is_server => 0.0,
                    Back::Copied => 2.0,
                    Back::RolledBack => 1.0,
                };
                assert_eq!(server.metric(REFUSED).await, refused, "{what}");
                let (second, left) = place.predict(&server, 2).await;
                let is_made = back == Back::Copied;
                assert_eq!((second.stats.offline.is_some(), left), (is_made, 0), "{what}");
                // A half whose other half was refused is passed over.
                let lost = match (back, sides) {
                    (Back::Copied, ["server"]) => 1,
                    _ => 0,
                };
                assert_eq!(second.stats.lost, lost, "{what}");
                let (third, _) = place.predict(&server, 3).await;
                assert!(third.stats.offline.is_some(), "{what}");
            }
        }
    }
}
