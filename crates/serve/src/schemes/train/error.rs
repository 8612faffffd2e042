//! What is wrong with how a controller is served or asked, or with where its key is.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::error::Own;

/// A controller that somebody other than those it is for could use.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainError {
    /// Users that are not known to the controller could come from other machines.
    #[error(
        "{addr} is reachable from other machines, and the controller's users are not enrolled: make \
         it with an authority (`hushtable train create --authority`), or say `allow_unenrolled` if \
         everyone who can connect may take part"
    )]
    Unenrolled {
        /// The address asked for.
        addr: SocketAddr,
    },
    /// Whoever connects from another machine could open and end rounds.
    #[error(
        "{addr} is reachable from other machines, and whoever connects could open and end rounds: \
         give `operator_token_file` (a file with one line, such as `openssl rand -hex 32` makes) or \
         `tls.client_ca`, or say `allow_open_operator` if everyone who can connect may do so"
    )]
    OpenOperator {
        /// The address asked for.
        addr: SocketAddr,
    },
    /// A user's message to a controller that nobody has vouched for.
    #[error(
        "nobody has vouched for the controller that {url} announces: give its pin (pin=), which \
         `hushtable train create`, `train info` and `train serve` print, from somebody other than \
         whoever runs the server; trust_announced=True believes this one"
    )]
    NoPin {
        /// The server.
        url: String,
    },
    /// A controller's key that lies where its folder does.
    #[error(
        "the controller's key {} lies beside its folder {}: whoever copies that disk, or gets hold of \
         its backup, has both, and can read every row and every request. Keep the key on another \
         disk and say where: `--key /elsewhere/{}` (key=). To keep it there all the same, say \
         `--key-beside` (key_beside=True)",
        key.display(), folder.display(), key.file_name().unwrap_or_default().display()
    )]
    KeyBeside {
        /// The key's file.
        key: PathBuf,
        /// The controller's folder.
        folder: PathBuf,
    },
    /// A secret key that other users of the machine can read or write.
    #[error(
        "the key {} is open to others than its owner (mode {mode:03o}): run `chmod 600 {}`, and \
         take it for known if others use this machine",
        path.display(), path.display()
    )]
    KeyMode {
        /// The key's file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// An audit log that was changed, or that is another controller's.
    #[error(
        "line {line} of the audit log {} {reason}: it was changed, or it is another controller's. Keep it, \
         for it may be evidence; to begin a new one, move it away",
        path.display()
    )]
    Audit {
        /// The log.
        path: PathBuf,
        /// Its first bad line, counted from 1.
        line: u64,
        /// What is wrong with that.
        reason: &'static str,
    },
    /// An audit log without the line that was expected in it.
    #[error("the line {expected} of the audit log {} {reason}", path.display())]
    AuditExpected {
        /// The log.
        path: PathBuf,
        /// `SEQ:HASH`, as it was given.
        expected: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// An audit log that another server writes.
    #[error("another server writes the audit log {}: give each its own", path.display())]
    AuditInUse {
        /// The log.
        path: PathBuf,
    },
    /// A file that holds no key of training: a controller's, an authority's, a user's.
    #[error(
        "{} has {bytes} bytes, but a key has 32: give the file that `hushtable train` wrote",
        path.display()
    )]
    KeyFile {
        /// The file.
        path: PathBuf,
        /// Its bytes.
        bytes: usize,
    },
}

impl Own for TrainError {}
/// A controller that cannot be created, opened or exported.
impl Own for hushtable_oram::round::Error {}
/// What is sealed between users and a controller: ids, gradients, messages that do not open.
impl Own for hushtable_oram::wire::Error {}
