//! A root counter under a key of an etcd cluster, by its gRPC API, version 3.
//!
//! What is stored is what a counter's file holds: authenticated by the controller's key and bound to its
//! instance. An advance is one transaction that compares the key's revision and value with those that
//! were read last, so that of two controllers one finds that the other was first; a value that was
//! put back by hand has another revision. A reply that was lost leaves unknown whether the transaction
//! happened: it is tried again, and since no two sealed values are alike, what the key holds then says
//! whether it was this controller's.

use std::fmt;
use std::pin::Pin;
use std::time::{Duration, Instant};

use hushtable_oram::disk::Faults;
use hushtable_oram::journal::{
    CounterPlace, CounterSeal, CounterValue, JournalError, RootCounter, check_advance,
};
use hushtable_oram::seal::Key;
use tonic::Status;

use crate::endpoint::is_loopback;
use crate::peer::endpoint::{INFO_BYTES_MAX, Peer, reason};
use crate::wire::etcd::compare::{CompareResult, CompareTarget, TargetUnion};
use crate::wire::etcd::kv_client::KvClient;
use crate::wire::etcd::request_op::Request;
use crate::wire::etcd::response_op::Response;
use crate::wire::etcd::{
    Compare, KeyValue, PutRequest, RangeRequest, RequestOp, ResponseOp, TxnRequest, TxnResponse,
};
use crate::{EndpointSpec, Error, Identity};

/// A key of an etcd cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdPlace {
    /// `http://host:port` or `https://host:port` of each member.
    urls: Vec<String>,
    key: String,
    tls: TlsFiles,
    /// How long one call of one member may take.
    call_max: Duration,
    /// How long a call may take, with all that is tried again.
    wait_max: Duration,
}

/// What `etcds://` asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct TlsFiles {
    ca: Option<String>,
    cert: Option<String>,
    key: Option<String>,
    domain: Option<String>,
}

impl EtcdPlace {
    /// The key of a URL, see [`CounterSpec::parse`](super::CounterSpec::parse).
    ///
    /// # Errors
    /// As there.
    pub(super) fn parse(url: &str) -> Result<Self, Error> {
        let bad = |reason: &str| Error::Url { url: url.to_owned(), reason: reason.to_owned() };
        let (scheme, rest) = url.split_once("://").ok_or_else(|| bad("it has no scheme"))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (hosts, key) = rest.split_once('/').ok_or_else(|| bad("it has no /KEY"))?;
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return Err(bad("its key has not 1 to 1,024 bytes"));
        }
        let (is_tls, protocol) = match scheme {
            "etcds" => (true, "https"),
            _ => (false, "http"),
        };
        let mut tls = TlsFiles::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let place = match name {
                "ca" => &mut tls.ca,
                "cert" => &mut tls.cert,
                "key" => &mut tls.key,
                "domain" => &mut tls.domain,
                _ => return Err(bad("behind ? it takes ca, cert, key and domain")),
            };
            if value.is_empty() || place.replace(value.to_owned()).is_some() {
                return Err(bad("each of ca, cert, key and domain takes one value"));
            }
        }
        if tls.cert.is_some() != tls.key.is_some() {
            return Err(bad("cert and key belong together"));
        }
        if is_tls != tls.ca.is_some() {
            return Err(bad(match is_tls {
                true => "it has no ?ca=FILE: the CA that the members' certificates come from",
                false => "ca, cert and key are for etcds://",
            }));
        }
        let urls: Vec<String> =
            hosts.split(',').map(|host| format!("{protocol}://{host}")).collect();
        for member in &urls {
            let uri = member.parse::<http::Uri>().unwrap_or_default();
            let host = uri.host().filter(|host| !host.is_empty() && uri.port().is_some());
            let host = host.ok_or_else(|| bad("each member is HOST:PORT"))?;
            let host = host.trim_start_matches('[').trim_end_matches(']');
            if !is_tls && !is_loopback(host) {
                return Err(bad(
                    "etcd:// is not encrypted, so it is for this machine: use etcds://",
                ));
            }
        }
        Ok(Self { urls, key: key.to_owned(), tls, call_max: CALL_MAX, wait_max: WAIT_MAX })
    }

    /// See [`CounterSpec::with_waits`](super::CounterSpec::with_waits).
    pub(super) fn with_waits(self, call_max: Duration, wait_max: Duration) -> Self {
        Self { call_max, wait_max, ..self }
    }

    /// Reads the files and makes the endpoints.
    fn endpoints(&self) -> Result<Vec<EndpointSpec>, Error> {
        let read = |path: &String| {
            std::fs::read(path).map_err(|source| Error::Io { what: format!("read {path}"), source })
        };
        let ca_pem = self.tls.ca.as_ref().map(read).transpose()?;
        let identity = match (&self.tls.cert, &self.tls.key) {
            (Some(cert), Some(key)) => {
                Some(Identity { cert_pem: read(cert)?, key_pem: read(key)? })
            }
            _ => None,
        };
        let spec = |url: &String| EndpointSpec {
            domain: self.tls.domain.clone(),
            identity: identity.clone(),
            ..EndpointSpec::new(url, ca_pem.clone())
        };
        Ok(self.urls.iter().map(spec).collect())
    }

    fn unavailable(&self, reason: impl fmt::Display) -> JournalError {
        JournalError::CounterUnavailable { place: self.to_string(), reason: reason.to_string() }
    }

    /// Makes `request` of one member after another until one answers, or it has taken too long.
    fn call<R: Send>(&self, request: &Requests<'_, R>) -> Result<R, JournalError> {
        let endpoints = self.endpoints().map_err(|error| self.unavailable(error))?;
        // A thread of its own: whoever calls may be within another runtime, which this one must neither
        // block nor be dropped in.
        let work = || -> Result<R, String> {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.map_err(|error| error.to_string())?;
            runtime.block_on(self.ask(&endpoints, request))
        };
        let done = std::thread::scope(|scope| scope.spawn(work).join());
        done.unwrap_or_else(|_| Err("the thread that asked it ended".into()))
            .map_err(|reason| self.unavailable(reason))
    }

    async fn ask<R>(
        &self,
        endpoints: &[EndpointSpec],
        request: &Requests<'_, R>,
    ) -> Result<R, String> {
        let deadline = Instant::now() + self.wait_max;
        loop {
            let mut said = String::new();
            for endpoint in endpoints {
                let peer = Peer::new(endpoint, false, self.call_max, &[]);
                let peer = peer.map_err(|error| error.to_string())?;
                match tokio::time::timeout(self.call_max, request(peer)).await {
                    Ok(Ok(reply)) => return Ok(reply),
                    Ok(Err(status)) if is_passing(&status) => said = reason(&status),
                    Ok(Err(status)) => return Err(reason(&status)),
                    Err(_) => said = format!("no answer in {} s", self.call_max.as_secs()),
                }
            }
            if Instant::now() + PAUSE > deadline {
                return Err(said);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// What the key holds, as a majority of members has it.
    fn fetch(&self) -> Result<Option<KeyValue>, JournalError> {
        self.call::<Option<KeyValue>>(&|peer: Peer| {
            let request = self.range();
            Box::pin(async move {
                let reply = client(peer).range(request).await;
                reply.map(|reply| reply.into_inner().kvs.pop())
            })
        })
    }

    /// Puts `bytes` where the comparisons hold; else says what is there. Puts that happen twice, for
    /// want of a reply to the first, are one.
    fn put(&self, compare: Vec<Compare>, bytes: &[u8]) -> Result<Written, JournalError> {
        let put = PutRequest { key: self.key.clone().into(), value: bytes.to_vec() };
        let request = TxnRequest {
            compare,
            success: vec![RequestOp { request: Some(Request::RequestPut(put)) }],
            failure: vec![RequestOp { request: Some(Request::RequestRange(self.range())) }],
        };
        let reply = self.call::<TxnResponse>(&|peer: Peer| {
            let request = request.clone();
            Box::pin(async move {
                let reply = client(peer).txn(request).await;
                reply.map(|reply| reply.into_inner())
            })
        })?;
        if reply.succeeded {
            return Ok(Written::Put { revision: reply.header.map_or(0, |header| header.revision) });
        }
        let found = reply.responses.into_iter().next().and_then(|op: ResponseOp| op.response);
        let found = match found {
            Some(Response::ResponseRange(mut range)) => range.kvs.pop(),
            _ => None,
        };
        match found {
            Some(found) if found.value == bytes => {
                Ok(Written::Put { revision: found.mod_revision })
            }
            found => Ok(Written::Found(found)),
        }
    }

    fn range(&self) -> RangeRequest {
        RangeRequest { key: self.key.clone().into(), limit: 1, serializable: false }
    }

    fn compare(&self, target: CompareTarget, union: TargetUnion) -> Compare {
        Compare {
            result: CompareResult::Equal.into(),
            target: target.into(),
            key: self.key.clone().into(),
            target_union: Some(union),
        }
    }
}

/// What became of a put.
enum Written {
    /// It is there, since this revision.
    Put { revision: i64 },
    /// Not as compared: what is there.
    Found(Option<KeyValue>),
}

/// A call of one member.
type Call<R> = Pin<Box<dyn Future<Output = Result<R, Status>> + Send>>;
/// Makes one.
type Requests<'a, R> = dyn Fn(Peer) -> Call<R> + Sync + 'a;

fn client(peer: Peer) -> KvClient<tonic::transport::Channel> {
    KvClient::new(peer.channel).max_decoding_message_size(INFO_BYTES_MAX)
}

/// Whether another member, or the same one later, may answer.
fn is_passing(status: &Status) -> bool {
    use tonic::Code;
    matches!(
        status.code(),
        Code::Unavailable
            | Code::Unknown
            | Code::DeadlineExceeded
            | Code::Cancelled
            | Code::Aborted
            | Code::ResourceExhausted
    )
}

impl fmt::Display for EtcdPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the files of the TLS options.
        let scheme = if self.tls.ca.is_some() { "etcds" } else { "etcd" };
        let hosts: Vec<&str> = self
            .urls
            .iter()
            .filter_map(|url| url.split_once("://"))
            .map(|(_, host)| host)
            .collect();
        write!(f, "{scheme}://{}/{}", hosts.join(","), self.key)
    }
}

impl CounterPlace for EtcdPlace {
    fn check_free(&self) -> Result<(), JournalError> {
        match self.fetch()? {
            Some(_) => Err(JournalError::CounterExists { place: self.to_string() }),
            None => Ok(()),
        }
    }

    fn create(
        &self,
        key: &Key,
        value: &CounterValue,
        _faults: &Faults,
    ) -> Result<Box<dyn RootCounter>, JournalError> {
        let seal = CounterSeal::new(key);
        let bytes = seal.seal(value)?.to_vec();
        let absent = self.compare(CompareTarget::Version, TargetUnion::Version(0));
        let Written::Put { revision } = self.put(vec![absent], &bytes)? else {
            return Err(JournalError::CounterExists { place: self.to_string() });
        };
        Ok(Box::new(EtcdCounter { place: self.clone(), seal, known: Known { bytes, revision } }))
    }

    fn open(&self, key: &Key, _faults: &Faults) -> Result<Box<dyn RootCounter>, JournalError> {
        let known = Known { bytes: Vec::new(), revision: 0 };
        let mut counter = EtcdCounter { place: self.clone(), seal: CounterSeal::new(key), known };
        counter.read()?;
        Ok(Box::new(counter))
    }
}

/// The counter of a controller at work.
struct EtcdCounter {
    place: EtcdPlace,
    seal: CounterSeal,
    known: Known,
}

/// What the key held when it was last read or put.
struct Known {
    bytes: Vec<u8>,
    revision: i64,
}

impl RootCounter for EtcdCounter {
    fn read(&mut self) -> Result<CounterValue, JournalError> {
        let place = self.place.to_string();
        let Some(found) = self.place.fetch()? else {
            return Err(JournalError::CounterMissing { place });
        };
        let value = self.seal.open(&place, &found.value)?;
        self.known = Known { bytes: found.value, revision: found.mod_revision };
        Ok(value)
    }

    fn advance(
        &mut self,
        expected: &CounterValue,
        value: &CounterValue,
    ) -> Result<(), JournalError> {
        let place = self.place.to_string();
        check_advance(&place, &self.seal.open(&place, &self.known.bytes)?, expected, value)?;
        let bytes = self.seal.seal(value)?.to_vec();
        let Known { bytes: last, revision } = &self.known;
        let compare = vec![
            self.place.compare(CompareTarget::Value, TargetUnion::Value(last.clone())),
            self.place.compare(CompareTarget::Mod, TargetUnion::ModRevision(*revision)),
        ];
        match self.place.put(compare, &bytes)? {
            Written::Put { revision } => {
                self.known = Known { bytes, revision };
                Ok(())
            }
            Written::Found(None) => Err(JournalError::CounterMissing { place }),
            Written::Found(Some(found)) => {
                let found = self.seal.open(&place, &found.value)?;
                Err(JournalError::CounterMoved {
                    place,
                    expected_round: expected.round,
                    expected_evictions: expected.evictions,
                    found_round: found.round,
                    found_evictions: found.evictions,
                })
            }
        }
    }
}

const KEY_BYTES_MAX: usize = 1024;
/// One call of one member.
const CALL_MAX: Duration = Duration::from_secs(3);
/// All that is tried: longer than a cluster takes to choose another leader.
const WAIT_MAX: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(250);
