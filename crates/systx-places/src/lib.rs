//! Which area of systx serves a directory.
//!
//! Owns: the fate of a mount ([`fate`]), the way from a directory to the one that has its area ([`site`]), and
//! the names of areas. Guarantees: the command line and the library come to the same area for the same
//! directory, so their transactions cooperate. Does not: open areas, mount anything, or print.
#![forbid(unsafe_code)]

pub mod fate;
pub mod owned;
pub mod path;
pub mod register;
pub mod site;

use std::borrow::Cow;

/// Name of areas: that of root's. An ordinary user's ends with the user's number, since several users may have
/// areas in one place.
pub const AREA: &[u8] = b".systx";

/// The object at a mount point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Something else: another mount lies over it.
    Hidden,
    /// The mount, and its root is a directory.
    Directory,
    /// The mount of a single file.
    File,
    /// It can't be looked at: its file system fails, or its server has died.
    Silent,
}

/// Returns the name of a user's areas; `base` is that of root's.
pub fn area_name(base: &[u8], uid: u32) -> Cow<'_, [u8]> {
    match uid {
        0 => base.into(),
        uid => [base, format!("-{uid}").as_bytes()].concat().into(),
    }
}
