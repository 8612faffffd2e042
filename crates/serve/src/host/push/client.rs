//! Pushes a bundle to an operator's own server.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tonic::codegen::tokio_stream;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::{Code, Request};

use super::PushRefusal;
use crate::endpoint::EndpointSpec;
use crate::error::Error;
use crate::host::reload::ReloadError;
use crate::peer::endpoint::{Peer, REPLY_OVERHEAD_BYTES};
use crate::refusal::{Listed, Tables};
use crate::wire::operate_client::OperateClient;
use crate::wire::push_frame::Frame;
use crate::wire::{PushFile, PushFrame, PushStart};

/// Brings the bundle at `bundle` to the server at `endpoint`, as the operator who has its `token`. Returns whether the
/// server did not have that version as its newest; it announces it by then.
///
/// # Errors
/// [`Error::Url`], [`Error::PlainText`], [`Error::NoCa`], [`Error::Pem`], [`Error::Tls`] for what is wrong with
/// `endpoint`; [`Error::TokenText`]; [`Error::Io`] for a bundle that cannot be read; [`Error::Refused`] for what the
/// server says against it; [`ReloadError`](crate::host::ReloadError) of a server that takes no pushes; [`Error::Unavailable`].
pub async fn push(
    endpoint: &EndpointSpec,
    token: &str,
    bundle: &Path,
    connect_max: Duration,
) -> Result<bool, Error> {
    let token: MetadataValue<Ascii> =
        format!("Bearer {}", token.trim_end()).parse().map_err(|_| Error::TokenText)?;
    let folder = fs::canonicalize(bundle).map_err(failed("open", bundle))?;
    let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut found = Vec::new();
    list(&folder, &mut String::new(), &mut found)?;
    found.sort_unstable();
    let files = found.iter().map(|(path, bytes)| PushFile { path: path.clone(), bytes: *bytes });
    let start = PushFrame { frame: Some(Frame::Start(PushStart { name, files: files.collect() })) };
    let paths: Vec<PathBuf> = found.iter().map(|(path, _)| folder.join(path)).collect();
    let broken = Arc::new(Mutex::new(None));
    let frames = Frames { paths: paths.into_iter(), file: None, broken: Arc::clone(&broken) };
    let frames = std::iter::once(start).chain(frames);
    let peer = Peer::new(endpoint, false, connect_max, REFUSALS)?;
    let mut client = OperateClient::new(peer.channel.clone())
        .max_decoding_message_size(REPLY_OVERHEAD_BYTES + WORDS_BYTES_MAX);
    let mut request = Request::new(tokio_stream::iter(frames));
    request.metadata_mut().insert("authorization", token);
    let status = match client.push(request).await {
        Ok(reply) => return Ok(reply.into_inner().taken),
        Err(status) => status,
    };
    // The server says that bytes are missing, and does not know why.
    let unread = broken.lock().unwrap_or_else(PoisonError::into_inner).take();
    match unread {
        Some(error) => Err(error),
        None if status.code() == Code::Unimplemented => {
            Err(ReloadError::NoPushes { url: endpoint.url.clone() }.into())
        }
        None => Err(peer.error(&status)),
    }
}

/// The files below `folder` by their paths from the bundle on, and their bytes; hidden ones are left out.
fn list(folder: &Path, prefix: &mut String, found: &mut Vec<(String, u64)>) -> Result<(), Error> {
    for entry in fs::read_dir(folder).map_err(failed("read", folder))? {
        let entry = entry.map_err(failed("read", folder))?;
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        if name.starts_with('.') {
            continue;
        }
        let about = fs::metadata(&path).map_err(failed("read", &path))?;
        let length = prefix.len();
        prefix.push_str(&name);
        match about.is_dir() {
            true => {
                prefix.push('/');
                list(&path, prefix, found)?;
            }
            false => found.push((prefix.clone(), about.len())),
        }
        prefix.truncate(length);
    }
    Ok(())
}

fn failed(what: &'static str, path: &Path) -> impl Fn(io::Error) -> Error + use<> {
    let path = path.to_owned();
    move |source| Error::Io { what: format!("{what} {}", path.display()), source }
}

/// The files' bytes. One that cannot be read ends them early, which the server refuses.
struct Frames {
    paths: std::vec::IntoIter<PathBuf>,
    file: Option<(PathBuf, File)>,
    /// Why they ended early.
    broken: Arc<Mutex<Option<Error>>>,
}

impl Frames {
    fn end(&mut self, path: &Path, source: io::Error) -> Option<PushFrame> {
        (self.file, self.paths) = (None, Vec::new().into_iter());
        let error = failed("read", path)(source);
        *self.broken.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        None
    }
}

impl Iterator for Frames {
    type Item = PushFrame;

    fn next(&mut self) -> Option<PushFrame> {
        loop {
            let Some((path, file)) = &mut self.file else {
                let path = self.paths.next()?;
                match File::open(&path) {
                    Ok(file) => self.file = Some((path, file)),
                    Err(error) => return self.end(&path, error),
                }
                continue;
            };
            let mut bytes = vec![0; FRAME_BYTES];
            match file.read(&mut bytes) {
                Ok(0) => self.file = None,
                Ok(count) => {
                    bytes.truncate(count);
                    return Some(PushFrame { frame: Some(Frame::Bytes(Bytes::from(bytes))) });
                }
                Err(error) => {
                    let path = std::mem::take(path);
                    return self.end(&path, error);
                }
            }
        }
    }
}

const REFUSALS: Tables = &[Listed::of::<PushRefusal>()];
const FRAME_BYTES: usize = 256 << 10;
const WORDS_BYTES_MAX: usize = 64 << 10;
