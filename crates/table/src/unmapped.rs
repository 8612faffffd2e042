//! The maps of files where there are none: as [`system`](crate::system) says.

use std::fs::File;
use std::io;
use std::ops::Deref;

/// No value.
#[derive(Debug)]
pub(crate) enum Mapping {}

impl Mapping {
    pub(crate) fn new(_: &File) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn is_lost(&self) -> bool {
        match *self {}
    }

    pub(crate) fn advise_sequential(&self) {
        match *self {}
    }

    pub(crate) fn advise_will_need(&self) {
        match *self {}
    }
}

impl Deref for Mapping {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match *self {}
    }
}
