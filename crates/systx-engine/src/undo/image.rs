//! The bytes of a before-image.
//!
//! Owns: the types and their encoding. The file `manifest` is 8 bytes `SYSTXUND`, the version and the CRC32C
//! of the rest (u32 each, lowest byte first), and the postcard encoding of [`Image`]. The file `contents`
//! beside it has bytes of files as they were, at the places that the image says; each range has a digest of
//! them. Guarantees: a file that was not written like this is reported and not used.

use crate::id::TxId;
use serde::{Deserialize, Serialize};
use systx_os::{FileType, Handle, Timestamp};

/// Version of the encoding; another one is refused.
pub const IMAGE_VERSION: u32 = 2;
const MAGIC: &[u8; 8] = b"SYSTXUND";

/// The state that a transaction found and left on one file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// Number there.
    pub tx: TxId,
    /// When the image was kept, in seconds since the epoch: before the commit.
    pub at: i64,
    /// User.
    pub uid: u32,
    /// Command.
    pub command: Vec<u8>,
    /// All file systems that it changed, by the key of their area, with its number on each.
    pub parts: Vec<([u8; 16], TxId)>,
    /// Whatever it changed. A name is one of these.
    pub things: Vec<Thing>,
    /// Names as they were: all that went or whose object changed, and those of whatever else changed.
    pub before: Vec<Name>,
    /// Names as it left them.
    pub after: Vec<Name>,
    /// The directories of all names that changed, as far as they were there before and are there afterwards.
    pub dirs: Vec<Dir>,
}

/// A directory in which names changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dir {
    /// Where it was left, from the root of the mount.
    pub path: Vec<u8>,
    /// Identity.
    pub handle: Handle,
}

/// A name, from the root of the mount, and what it names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Name {
    /// The name. Empty: the root itself.
    pub path: Vec<u8>,
    /// Index among the things.
    pub thing: u32,
}

/// An object that was changed, or whose names were.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thing {
    /// Type.
    pub kind: FileType,
    /// Inode number, if it was there before.
    pub ino: u64,
    /// Identity, of one that was there before, or that nothing else tells from others: inode numbers are given out again.
    pub handle: Option<Handle>,
    /// State before; `None`: the transaction made it.
    pub before: Option<State>,
    /// State after; `None`: it is gone.
    pub after: Option<State>,
    /// Names that it has afterwards, as far as the transaction knew them.
    pub known: Vec<Vec<u8>>,
    /// Bytes that differ.
    pub bytes: Vec<Range>,
    /// Access time was set.
    pub atime_set: bool,
    /// The modification time of a directory was set, rather than moved by its names.
    pub mtime_set: bool,
}

/// Attributes of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of names.
    pub nlink: u32,
    /// Size in bytes.
    pub size: u64,
    /// Device number of a device node.
    pub rdev: u64,
    /// Access time.
    pub atime: Timestamp,
    /// Modification time.
    pub mtime: Timestamp,
    /// Extended attributes, by name.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Of a symbolic link.
    pub target: Vec<u8>,
}

/// A range of a file's bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Range {
    /// From here, in bytes.
    pub start: u64,
    /// To here. Either size may be smaller.
    pub end: u64,
    /// The bytes, from the start on, without holes: offset in the file, length, offset in `contents`.
    pub pieces: Vec<(u64, u64, u64)>,
    /// Digest of the pieces.
    pub before: u128,
    /// Digest of what was left there.
    pub after: u128,
}

/// Why an image can't be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// Of another version of systx.
    Version(u32),
    /// Not what was written.
    Damaged,
}

impl core::fmt::Display for Unreadable {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Unreadable::Version(version) => {
                write!(
                    f,
                    "what was kept of it has version {version}, which this version of systx does not know"
                )
            }
            Unreadable::Damaged => f.write_str("what was kept of it is damaged"),
        }
    }
}

impl Image {
    /// Encodes it for `manifest`; `None`: it would be longer than this, or can't be encoded.
    pub fn encode(&self, max: u64) -> Option<Vec<u8>> {
        let body = postcard::to_allocvec(self).ok()?;
        let mut bytes = MAGIC.to_vec();
        bytes.extend(IMAGE_VERSION.to_le_bytes());
        bytes.extend(crc32c::crc32c(&body).to_le_bytes());
        bytes.extend(body);
        Some(bytes).filter(|bytes| bytes.len() as u64 <= max)
    }

    /// Reads it. Everything that later code relies on is checked: indices, and that paths are relative and
    /// have no empty names.
    pub fn decode(bytes: &[u8]) -> Result<Image, Unreadable> {
        let damaged = Unreadable::Damaged;
        let rest = bytes.strip_prefix(MAGIC).ok_or(damaged)?;
        let (version, rest) = rest.split_first_chunk::<4>().ok_or(damaged)?;
        let (crc, body) = rest.split_first_chunk::<4>().ok_or(damaged)?;
        match u32::from_le_bytes(*version) {
            IMAGE_VERSION => {}
            other => return Err(Unreadable::Version(other)),
        }
        if u32::from_le_bytes(*crc) != crc32c::crc32c(body) {
            return Err(damaged);
        }
        let image: Image = postcard::from_bytes(body).map_err(|_| damaged)?;
        let sound = |name: &Name| (name.thing as usize) < image.things.len() && is_path(&name.path);
        let dirs = image.dirs.iter().map(|dir| &dir.path);
        let mut known = image.things.iter().flat_map(|thing| &thing.known).chain(dirs);
        if image.before.iter().chain(&image.after).all(sound) && known.all(|path| is_path(path)) {
            Ok(image)
        } else {
            Err(damaged)
        }
    }

    /// The thing of a name.
    pub fn thing(&self, name: &Name) -> &Thing {
        &self.things[name.thing as usize]
    }
}

fn is_path(path: &[u8]) -> bool {
    path.is_empty() || path.split(|byte| *byte == b'/').all(is_name)
}

fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name != b"." && name != b".." && !name.contains(&0)
}

/// Returns true if nothing that is compared tells one object of a type from another one, which has been put in its place.
pub(super) fn looks_like_others(kind: FileType) -> bool {
    !matches!(kind, FileType::File | FileType::Symlink)
}

impl Thing {
    /// Identity tells whether it is what it was. All bytes of a file that the transaction made are compared.
    pub fn is_known_by_identity(&self) -> bool {
        self.before.is_some() || looks_like_others(self.kind)
    }

    /// It was there before and is there afterwards.
    pub fn stays(&self) -> bool {
        self.before.is_some() && self.after.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(known: &[u8], path: &[u8], thing: u32) -> Image {
        let file = Thing {
            kind: FileType::File,
            ino: 1,
            handle: None,
            before: None,
            after: None,
            known: vec![known.to_vec()],
            bytes: Vec::new(),
            atime_set: false,
            mtime_set: false,
        };
        Image {
            tx: TxId(1),
            at: 0,
            uid: 0,
            command: Vec::new(),
            parts: Vec::new(),
            things: vec![file],
            before: vec![Name { path: path.to_vec(), thing }],
            after: Vec::new(),
            dirs: vec![Dir { path: known.to_vec(), handle: Handle::new(1, b"d").unwrap() }],
        }
    }

    #[test]
    fn no_image_is_longer_than_it_may_be() {
        let image = of(b"a", b"b", 0);
        let bytes = image.encode(u64::MAX).unwrap();
        let len = bytes.len() as u64;
        assert_eq!(image.encode(len), Some(bytes));
        assert_eq!(image.encode(len - 1), None);
    }

    #[test]
    fn names_are_checked_wherever_they_are() {
        let read = |image: Image| Image::decode(&image.encode(u64::MAX).unwrap());
        let sound = of(b"a/b", b"", 0);
        assert_eq!(read(sound.clone()), Ok(sound));
        for wrong in [&b"../a"[..], b"/a", b"a//b", b"a/.", b"a\0"] {
            assert_eq!(read(of(wrong, b"a", 0)), Err(Unreadable::Damaged), "{wrong:?}");
            assert_eq!(read(of(b"a", wrong, 0)), Err(Unreadable::Damaged), "{wrong:?}");
        }
        assert_eq!(read(of(b"a", b"a", 1)), Err(Unreadable::Damaged));
    }
}
