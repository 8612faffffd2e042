//! What is wrong with how a controller is served or asked, or with where its key is.

use std::net::SocketAddr;

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
}
