//! What one client waits for its answers alone, and beside one peer with many threads.
//!
//! ```text
//! beside_hogs ADDR ROWS DIM THREADS KEYS
//! ```
//!
//! ADDR is a server of a pair, the left one, in plain text on this machine. The peer's threads, each with a
//! connection of its own from 127.0.0.2, ask for KEYS keys at a time without a pause; the client asks
//! from 127.0.0.3, for 8 keys. What is printed is JSON: both medians in milliseconds, their
//! ratio, and how many keys a second the peer is answered beside the client, and alone.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hushtable_pir::dpf;
use hushtable_pir::{PrgKind, TableShape};
use hushtable_serve::wire::private_lookup_client::PrivateLookupClient;
use hushtable_serve::wire::{AnswerRequest, TableInfoRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpSocket;
use tonic::transport::{Channel, Endpoint, Uri};

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [addr, rows, dim, threads, keys] = &args[..] else { return Err(USAGE.into()) };
    let addr: SocketAddr = addr.parse()?;
    let shape = TableShape::new(rows.parse()?, 4 * dim.parse::<usize>()?)?;
    let mut client = connect(addr, [127, 0, 0, 3]).await?;
    let info = client.table_info(TableInfoRequest::default()).await?.into_inner();
    let request = |count| {
        let version = <[u8; 32]>::try_from(&info.version[..])?;
        let client = dpf::Client::new(shape, version.into(), PrgKind::Aes128)?;
        let (request, _) = client.query(&[5], count)?;
        let keys = request.left.into_iter().map(Bytes::from).collect();
        Ok::<_, Failure>(AnswerRequest { table_version: info.version.clone(), keys })
    };
    let own = request(8)?;
    let alone = median_ms(&mut client, &own).await?;
    let many = request(keys.parse()?)?;
    let answered = Arc::new(AtomicU64::new(0));
    let mut hogs = tokio::task::JoinSet::new();
    for _ in 0..threads.parse()? {
        let mut hog = connect(addr, [127, 0, 0, 2]).await?;
        let (many, answered) = (many.clone(), Arc::clone(&answered));
        hogs.spawn(async move {
            loop {
                // A refusal is no reason for a hog to stop.
                match hog.answer(many.clone()).await {
                    Ok(_) => drop(answered.fetch_add(many.keys.len() as u64, Ordering::Relaxed)),
                    Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
                }
            }
        });
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (started, before) = (Instant::now(), answered.load(Ordering::Relaxed));
    let rate = |started: Instant, before| {
        (answered.load(Ordering::Relaxed) - before) as f64 / started.elapsed().as_secs_f64()
    };
    let beside = median_ms(&mut client, &own).await?;
    let hogs_beside = rate(started, before);
    // The server forgets the client meanwhile.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (started, before) = (Instant::now(), answered.load(Ordering::Relaxed));
    tokio::time::sleep(Duration::from_secs(4)).await;
    let hogs_alone = rate(started, before);
    let ratio = beside / alone;
    println!(
        "{}",
        serde_json::json!({
            "p50_alone_ms": alone, "p50_beside_ms": beside, "ratio": ratio,
            "hogs_beside_keys_per_s": hogs_beside, "hogs_alone_keys_per_s": hogs_alone,
        })
    );
    Ok(())
}

async fn connect(addr: SocketAddr, from: [u8; 4]) -> Result<PrivateLookupClient<Channel>, Failure> {
    let connector = tower::service_fn(move |_: Uri| async move {
        let socket = TcpSocket::new_v4()?;
        socket.bind((from, 0).into())?;
        let stream = socket.connect(addr).await?;
        stream.set_nodelay(true)?;
        Ok::<_, io::Error>(TokioIo::new(stream))
    });
    let endpoint = Endpoint::from_shared(format!("http://{addr}"))?;
    let channel = endpoint.connect_with_connector(connector).await?;
    Ok(PrivateLookupClient::new(channel).max_decoding_message_size(64 << 20))
}

/// Half the requests of a while take no longer; those that are refused count until they are answered.
async fn median_ms(
    client: &mut PrivateLookupClient<Channel>,
    request: &AnswerRequest,
) -> Result<f64, Failure> {
    let (mut took, started) = (Vec::new(), Instant::now());
    while took.len() < 20 || started.elapsed() < Duration::from_secs(4) && took.len() < 200 {
        let asked = Instant::now();
        while client.answer(request.clone()).await.is_err() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        took.push(asked.elapsed().as_secs_f64() * 1e3);
    }
    took.sort_by(f64::total_cmp);
    Ok(took[took.len() / 2])
}

const USAGE: &str = "usage: beside_hogs ADDR ROWS DIM THREADS KEYS";
