//! Prints how fast records go into a folder of precomputes and out of it, and how long small ones take, of which most is
//! the disk's:
//! `cargo run --release -p hushtable-infer --example store_speed FOLDER`.

use std::time::Instant;

use hushtable_infer::records::Records;
use hushtable_infer::store::{Head, LedgerPlace, Role, Store, StoreSpec};

const RECORD_BYTES: usize = 2 << 20;
const RECORDS: usize = 1000;
const SMALL: u8 = 200;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args().nth(1).ok_or("which folder?")?;
    let folder = std::path::PathBuf::from(folder);
    std::fs::create_dir_all(&folder)?;
    let spec = StoreSpec {
        folder: folder.join("store"),
        bytes_max: 4 << 30,
        key: folder.join("key"),
        ledger: LedgerPlace::Folder(folder.join("ledgers")),
    };
    let store = Store::open(&spec)?;
    let head = Head { id: [1; 16], plan: [2; 32], client_garbles: false, role: Role::Client };
    let record: Vec<u8> = (0..RECORD_BYTES).map(|i| i as u8).collect();
    let rate =
        |start: Instant| (RECORDS * RECORD_BYTES) as f64 / start.elapsed().as_secs_f64() / 1e6;
    let writing = store.begin(head, &vec![RECORD_BYTES as u64; RECORDS])?;
    let start = Instant::now();
    for i in 0..RECORDS {
        writing.put(i, &record)?;
    }
    print!("put {:.0} MB/s", rate(start));
    writing.commit()?;
    print!(", with commit {:.0} MB/s", rate(start));
    let start = Instant::now();
    let taken = store.take_id(&[1; 16])?.ok_or("it is gone")?;
    print!(", take {:.1} ms", start.elapsed().as_secs_f64() * 1e3);
    let start = Instant::now();
    for i in 0..RECORDS {
        if taken.get(i)? != record {
            return Err("another record".into());
        }
    }
    println!(", get {:.0} MB/s", rate(start));
    let ids: Vec<[u8; 16]> = (2..2 + SMALL).map(|i| [i; 16]).collect();
    let each = |start: Instant| start.elapsed().as_secs_f64() * 1e3 / f64::from(SMALL);
    let start = Instant::now();
    for id in &ids {
        let writing = store.begin(Head { id: *id, ..head }, &[1000])?;
        writing.put(0, &record[..1000])?;
        writing.commit()?;
    }
    print!("of 1 KB: commit {:.2} ms", each(start));
    let start = Instant::now();
    for id in &ids {
        store.take_id(id)?.ok_or("it is gone")?;
    }
    println!(", take {:.2} ms", each(start));
    Ok(())
}
