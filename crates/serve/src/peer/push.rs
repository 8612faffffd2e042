//! Pushes a bundle to an operator's own server.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use tonic::codegen::tokio_stream;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::{Code, Request};

use super::endpoint::{EndpointSpec, Peer, REPLY_OVERHEAD_BYTES};
use super::refusal::MESSAGE_CHARS_MAX;
use crate::Error;
use crate::host::ReloadError;
use crate::wire::operate_client::OperateClient;
use crate::wire::push_frame::Frame;
use crate::wire::{PushFile, PushFrame, PushStart};

/// Brings the bundle at `bundle` to the server at `endpoint`, as the operator who has its `token`. Returns whether the
/// server did not have that version as its newest; it announces it by then.
///
/// # Errors
/// [`Error::Url`], [`Error::PlainText`], [`Error::NoCa`], [`Error::Pem`], [`Error::Tls`] for what is wrong with
/// `endpoint`; [`Error::Io`] for a bundle that cannot be read; [`Error::Reload`] for what the server says against it;
/// [`Error::Unavailable`], [`Error::Unserved`].
pub async fn push(
    endpoint: &EndpointSpec,
    token: &str,
    bundle: &Path,
    connect_max: Duration,
) -> Result<bool, Error> {
    let refused = |message: String| ReloadError::Push { url: endpoint.url.clone(), message };
    let token: MetadataValue<Ascii> = format!("Bearer {}", token.trim_end())
        .parse()
        .map_err(|_| refused("the token is none that a request can have".into()))?;
    let folder = fs::canonicalize(bundle).map_err(failed("open", bundle))?;
    let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut found = Vec::new();
    list(&folder, &mut String::new(), &mut found)?;
    found.sort_unstable();
    let files = found.iter().map(|(path, bytes)| PushFile { path: path.clone(), bytes: *bytes });
    let start = PushFrame { frame: Some(Frame::Start(PushStart { name, files: files.collect() })) };
    let paths: Vec<PathBuf> = found.iter().map(|(path, _)| folder.join(path)).collect();
    let frames = std::iter::once(start).chain(Frames { paths: paths.into_iter(), file: None });
    let peer = Peer::new(endpoint, false, connect_max)?;
    let mut client = OperateClient::new(peer.channel.clone())
        .max_decoding_message_size(REPLY_OVERHEAD_BYTES + WORDS_BYTES_MAX);
    let mut request = Request::new(tokio_stream::iter(frames));
    request.metadata_mut().insert("authorization", token);
    match client.push(request).await {
        Ok(reply) => Ok(reply.into_inner().taken),
        Err(status) => match status.code() {
            Code::Unavailable | Code::Unimplemented | Code::Unknown => Err(peer.error(&status)),
            _ => {
                let message = status.message().chars().take(MESSAGE_CHARS_MAX).collect();
                Err(refused(message).into())
            }
        },
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

fn failed(what: &'static str, path: &Path) -> impl Fn(std::io::Error) -> Error + use<> {
    let path = path.to_owned();
    move |source| Error::Io { what: format!("{what} {}", path.display()), source }
}

/// The files' bytes. One that cannot be read ends them early, which the server refuses.
struct Frames {
    paths: std::vec::IntoIter<PathBuf>,
    file: Option<File>,
}

impl Iterator for Frames {
    type Item = PushFrame;

    fn next(&mut self) -> Option<PushFrame> {
        loop {
            let Some(file) = &mut self.file else {
                self.file = Some(File::open(self.paths.next()?).ok()?);
                continue;
            };
            let mut bytes = vec![0; FRAME_BYTES];
            match file.read(&mut bytes) {
                Ok(0) => self.file = None,
                Ok(count) => {
                    bytes.truncate(count);
                    return Some(PushFrame { frame: Some(Frame::Bytes(Bytes::from(bytes))) });
                }
                Err(_) => {
                    (self.file, self.paths) = (None, Vec::new().into_iter());
                    return None;
                }
            }
        }
    }
}

const FRAME_BYTES: usize = 256 << 10;
const WORDS_BYTES_MAX: usize = 64 << 10;
