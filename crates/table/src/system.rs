//! What bundles ask of files beyond the standard library.
//!
//! Where there is no Unix, as in a browser, there are no files either: all of it fails as the
//! standard library's own calls do there, and a client, which needs none, builds.

#[cfg(not(unix))]
mod none;
#[cfg(unix)]
mod unix;

#[cfg(not(unix))]
pub(crate) use none::{FileExt, MetadataExt, nonblocking, open, open_folder, open_in, sync_bytes};
#[cfg(unix)]
pub(crate) use unix::{FileExt, MetadataExt, nonblocking, open, open_folder, open_in, sync_bytes};
