//! A collector of traces: HTTP/1.1 on loopback, which keeps what it is sent.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::{Arc, Mutex};

use crate::common::block_until;
use prost::Message;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// What it does with a message.
#[derive(Clone, Copy)]
pub enum Manner {
    Takes,
    /// It reads, and says nothing.
    Hangs,
    /// It says 503 so often, then takes them.
    Busy(usize),
}

/// Runs until the process ends.
pub struct Collector {
    pub addr: SocketAddr,
    messages: Arc<Mutex<Vec<Sent>>>,
}

#[derive(Clone)]
pub struct Sent {
    pub head: String,
    pub body: Vec<u8>,
    pub is_taken: bool,
}

impl Collector {
    pub fn start(manner: Manner) -> Self {
        Self::start_by(manner, None)
    }

    /// One by https, of a certificate and a key in files.
    pub fn start_tls(cert: &Path, key: &Path) -> Self {
        let certs = CertificateDer::pem_file_iter(cert).unwrap().map(Result::unwrap).collect();
        let key = PrivateKeyDer::from_pem_file(key).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let mut config = builder.with_no_client_auth().with_single_cert(certs, key).unwrap();
        // As many collectors have it: a client that offered both would have to speak HTTP/2.
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Self::start_by(Manner::Takes, Some(Arc::new(config)))
    }

    fn start_by(manner: Manner, tls: Option<Arc<ServerConfig>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let messages = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&messages);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, kept, tls) = (stream.unwrap(), Arc::clone(&kept), tls.clone());
                std::thread::spawn(move || match tls {
                    None => serve(stream, manner, &kept),
                    Some(tls) => {
                        let connection = ServerConnection::new(tls).unwrap();
                        serve(StreamOwned::new(connection, stream), manner, &kept);
                    }
                });
            }
        });
        Self { addr, messages }
    }

    pub fn url(&self) -> Option<String> {
        Some(format!("http://{}", self.addr))
    }

    pub fn messages(&self) -> Vec<Sent> {
        self.messages.lock().unwrap().clone()
    }

    /// All spans that it took, and who sent the last.
    pub fn spans(&self) -> (Vec<Span>, Vec<KeyValue>) {
        let (mut spans, mut who) = (Vec::new(), Vec::new());
        for sent in self.messages().into_iter().filter(|sent| sent.is_taken) {
            for of_one in Request::decode(&sent.body[..]).unwrap().resource_spans {
                who = of_one.resource.unwrap().attributes;
                spans.extend(of_one.scope_spans.into_iter().flat_map(|it| it.spans));
            }
        }
        (spans, who)
    }

    /// The same, once there are `count` spans called `name`.
    pub fn await_spans(&self, name: &str, count: usize) -> Vec<Span> {
        let mut spans = Vec::new();
        block_until(&format!("there are {count} spans called {name}"), || {
            spans = self.spans().0;
            spans.iter().filter(|span| span.name == name).count() >= count
        });
        spans
    }
}

/// Reads requests until the other side goes.
fn serve(stream: impl Read + Write, manner: Manner, kept: &Mutex<Vec<Sent>>) {
    let mut stream = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if stream.read_line(&mut head).unwrap_or(0) == 0 {
                return;
            }
        }
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.unwrap().parse().unwrap()];
        if stream.read_exact(&mut body).is_err() {
            return;
        }
        let mut kept = kept.lock().unwrap();
        let is_taken = match manner {
            Manner::Takes => true,
            Manner::Hangs => false,
            Manner::Busy(times) => kept.len() >= times,
        };
        kept.push(Sent { head, body, is_taken });
        drop(kept);
        let reply = match manner {
            Manner::Hangs => {
                let mut rest = Vec::new();
                let _ = stream.read_to_end(&mut rest);
                return;
            }
            _ if is_taken => "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
            _ => "HTTP/1.1 503 Busy\r\nretry-after: 0\r\ncontent-length: 0\r\n\r\n",
        };
        if stream.get_mut().write_all(reply.as_bytes()).is_err() {
            return;
        }
    }
}

// The fields of OTLP that tests read. `python/tests/test_telemetry.py` reads all of them, by the messages that
// OpenTelemetry publishes.

#[derive(Clone, PartialEq, Message)]
struct Request {
    #[prost(message, repeated, tag = "1")]
    resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scope_spans: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeSpans {
    #[prost(message, repeated, tag = "2")]
    spans: Vec<Span>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Span {
    #[prost(bytes = "vec", tag = "1")]
    pub trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub span_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    pub parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    pub name: String,
    #[prost(int32, tag = "6")]
    pub kind: i32,
    #[prost(fixed64, tag = "7")]
    pub started_ns: u64,
    #[prost(fixed64, tag = "8")]
    pub ended_ns: u64,
    #[prost(message, repeated, tag = "9")]
    pub attributes: Vec<KeyValue>,
    #[prost(message, repeated, tag = "13")]
    pub links: Vec<Link>,
    #[prost(message, optional, tag = "15")]
    pub status: Option<Status>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Link {
    #[prost(bytes = "vec", tag = "1")]
    pub trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub span_id: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Status {
    #[prost(int32, tag = "3")]
    pub code: i32,
}

#[derive(Clone, PartialEq, Message)]
pub struct KeyValue {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(message, optional, tag = "2")]
    pub value: Option<Any>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Any {
    #[prost(string, optional, tag = "1")]
    pub text: Option<String>,
    #[prost(int64, optional, tag = "3")]
    pub count: Option<i64>,
}

impl Span {
    /// An attribute as text; a panic where it has none.
    #[track_caller]
    pub fn said(&self, key: &str) -> String {
        said(&self.attributes, key).unwrap_or_else(|| panic!("no {key} in {self:?}"))
    }

    pub fn keys(&self) -> Vec<&str> {
        let mut keys: Vec<_> = self.attributes.iter().map(|it| it.key.as_str()).collect();
        keys.sort_unstable();
        keys
    }
}

/// An attribute as text.
pub fn said(attributes: &[KeyValue], key: &str) -> Option<String> {
    let Any { text, count } = attributes.iter().find(|it| it.key == key)?.value.clone()?;
    text.or(count.map(|count| count.to_string()))
}
