//! Encoding of replies.
//!
//! One buffer is used for all replies of a server; its first bytes are the header, filled in last.

use super::init::TRANSFER_BYTES_MAX;
use super::layout::*;
use systx_engine::transaction::Attr;
use systx_os::{Errno, FileType};
use zerocopy::{Immutable, IntoBytes};

const HEADER_BYTES: usize = size_of::<OutHeader>();

/// A reply under construction.
pub struct Reply {
    buf: Box<[u8]>,
    len: usize,
    limit: usize,
    is_postponed: bool,
}

impl Default for Reply {
    fn default() -> Self {
        Self::new()
    }
}

impl Reply {
    /// An empty reply.
    pub fn new() -> Reply {
        let buf = vec![0; HEADER_BYTES + TRANSFER_BYTES_MAX as usize + 4096].into_boxed_slice();
        Reply { len: HEADER_BYTES, limit: buf.len(), buf, is_postponed: false }
    }

    /// Forgets what was put.
    pub fn clear(&mut self) {
        (self.len, self.limit) = (HEADER_BYTES, self.buf.len());
        self.is_postponed = false;
    }

    /// Answers nothing yet: who asks waits on.
    pub fn postpone(&mut self) {
        self.is_postponed = true;
    }

    /// Returns true if nothing is to be answered yet.
    pub fn is_postponed(&self) -> bool {
        self.is_postponed
    }

    /// Bounds the body to what the kernel has room for.
    pub fn limit(&mut self, bytes: u32) {
        self.limit = self.buf.len().min(HEADER_BYTES + bytes as usize);
    }

    /// Bytes of the body so far.
    pub fn body_bytes(&self) -> usize {
        self.len - HEADER_BYTES
    }

    /// Appends bytes; false, and nothing appended, when there is no room.
    #[must_use]
    pub fn raw(&mut self, bytes: &[u8]) -> bool {
        match self.buf[..self.limit].get_mut(self.len..self.len + bytes.len()) {
            Some(room) => {
                room.copy_from_slice(bytes);
                self.len += bytes.len();
                true
            }
            None => false,
        }
    }

    /// Appends one structure.
    pub fn put<T: IntoBytes + Immutable>(&mut self, value: &T) {
        let fits = self.raw(value.as_bytes());
        debug_assert!(fits, "structures are smaller than the buffer");
    }

    /// The room for `len` bytes of data, which [`Reply::filled`] then counts in.
    pub fn room(&mut self, len: usize) -> &mut [u8] {
        let end = self.limit.min(self.len.saturating_add(len));
        &mut self.buf[self.len..end]
    }

    /// Counts in `len` bytes that were written to [`Reply::room`].
    pub fn filled(&mut self, len: usize) {
        self.len = self.limit.min(self.len + len);
    }

    /// The whole message. With an error the body is left out.
    pub fn finish(&mut self, unique: u64, result: Result<(), Errno>) -> &[u8] {
        let (len, error) = match result {
            Ok(()) => (self.len, 0),
            Err(e) => (HEADER_BYTES, -e.raw_os_error()),
        };
        let header = OutHeader { len: len as u32, error, unique };
        self.buf[..HEADER_BYTES].copy_from_slice(header.as_bytes());
        &self.buf[..len]
    }

    /// Puts a node that the kernel may now refer to by `id`.
    pub fn entry(&mut self, id: Id, attr: &Attr, name_lasts: Lasts, attr_lasts: Lasts) {
        self.put(&entry(id, attr, name_lasts, attr_lasts));
    }

    /// Puts "there is no such name".
    pub fn no_entry(&mut self, lasts: Lasts) {
        self.put(&EntryOut { entry_valid: lasts.name_secs(), ..Default::default() });
    }

    /// Puts attributes.
    pub fn attr(&mut self, attr: &Attr, lasts: Lasts) {
        let (attr_valid, attr_valid_nsec) = lasts.attr_time();
        self.put(&AttrOut { attr_valid, attr_valid_nsec, dummy: 0, attr: wire_attr(attr) });
    }

    /// Puts the size of a value (asked for with size 0) or the value.
    ///
    /// # Errors
    /// `ERANGE` when the caller's buffer is too small.
    pub fn sized(&mut self, value: &[u8], size: u32) -> Result<(), Errno> {
        if size == 0 {
            self.put(&GetxattrOut { size: value.len() as u32, padding: 0 });
        } else if value.len() > size as usize || !self.raw(value) {
            return Err(Errno::RANGE);
        }
        Ok(())
    }

    /// Puts a directory entry, for READDIRPLUS with what LOOKUP would say. False: no room.
    #[must_use]
    pub fn dirent(&mut self, entry: Dirent<'_>, plus: Plus<'_>) -> bool {
        let head = if matches!(plus, Plus::No) { 0 } else { size_of::<EntryOut>() };
        let bytes = (head + size_of::<WireDirent>() + entry.name.len()).next_multiple_of(8);
        if self.len + bytes > self.limit {
            return false;
        }
        match plus {
            Plus::No => {}
            Plus::Unknown => self.put(&EntryOut::default()),
            Plus::Node(id, attr, [name, lasts]) => self.entry(id, attr, name, lasts),
        }
        let namelen = entry.name.len() as u32;
        self.put(&WireDirent {
            ino: entry.ino,
            off: entry.next,
            namelen,
            kind: entry.kind.mode_bits() >> 12,
        });
        let padding = entry.name.len().next_multiple_of(8) - entry.name.len();
        self.raw(entry.name) && self.raw(&[0; 8][..padding])
    }
}

/// The message that makes the kernel forget the attributes of a node. It may go out before the answer to a
/// request about that node: it waits for no lock that the request holds.
pub fn stale_attributes(id: u64) -> [u8; 40] {
    let header = OutHeader { len: 40, error: NOTIFY_INVAL_INODE, unique: 0 };
    let body = NotifyInvalInodeOut { ino: id, off: -1, len: 0 };
    let mut message = [0; 40];
    message[..HEADER_BYTES].copy_from_slice(header.as_bytes());
    message[HEADER_BYTES..].copy_from_slice(body.as_bytes());
    message
}

/// Makes the message that asks the kernel to forget nodes that no program uses. It takes no lock of a
/// directory.
pub fn forget_unused(ids: &[u64]) -> Vec<u8> {
    let body = NotifyPruneOut { count: ids.len() as u32, padding: 0, spare: 0 };
    let len = HEADER_BYTES + size_of::<NotifyPruneOut>() + size_of_val(ids);
    let header = OutHeader { len: len as u32, error: NOTIFY_PRUNE, unique: 0 };
    let mut message = Vec::with_capacity(len);
    message.extend_from_slice(header.as_bytes());
    message.extend_from_slice(body.as_bytes());
    message.extend_from_slice(ids.as_bytes());
    message
}

/// How long the kernel may keep an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lasts {
    /// As long as the transaction runs.
    Forever,
    /// Not at all. A name is looked up each time; attributes are for the call that looked it up, and are kept
    /// for one tick of the kernel's clock (1 to 10 ms), which is the least that it keeps them without asking
    /// twice in each call.
    Moment,
    /// The same, but attributes are asked for at each call: others change them without a request.
    Never,
}

impl Lasts {
    fn name_secs(self) -> u64 {
        match self {
            Lasts::Forever => FOREVER,
            Lasts::Moment | Lasts::Never => 0,
        }
    }

    /// Seconds and nanoseconds.
    fn attr_time(self) -> (u64, u32) {
        match self {
            Lasts::Forever => (FOREVER, 0),
            // Rounded up to a tick: time_to_jiffies() in fs/fuse/dir.c.
            Lasts::Moment => (0, 1),
            Lasts::Never => (0, 0),
        }
    }
}

/// A directory entry.
#[derive(Clone, Copy, Debug)]
pub struct Dirent<'a> {
    /// Name.
    pub name: &'a [u8],
    /// Inode number.
    pub ino: u64,
    /// Type.
    pub kind: FileType,
    /// Offset at which reading goes on behind this entry.
    pub next: u64,
}

/// A node, as the kernel knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Id {
    /// Number on the connection.
    pub number: u64,
    /// How many other nodes had that number before: file handles hold both.
    pub generation: u32,
}

/// The details of an entry in READDIRPLUS.
#[derive(Clone, Copy, Debug)]
pub enum Plus<'a> {
    /// It is a READDIR.
    No,
    /// Nothing: the kernel asks when it needs to know.
    Unknown,
    /// This, for so long.
    Node(Id, &'a Attr, [Lasts; 2]),
}

fn entry(id: Id, attr: &Attr, name_lasts: Lasts, attr_lasts: Lasts) -> EntryOut {
    let (attr_valid, attr_valid_nsec) = attr_lasts.attr_time();
    EntryOut {
        nodeid: id.number,
        generation: u64::from(id.generation),
        entry_valid: name_lasts.name_secs(),
        attr_valid,
        entry_valid_nsec: 0,
        attr_valid_nsec,
        attr: wire_attr(attr),
    }
}

fn wire_attr(attr: &Attr) -> WireAttr {
    WireAttr {
        ino: attr.ino,
        size: attr.size,
        blocks: attr.blocks,
        // Seconds before 1970 are negative numbers in the same 64 bits.
        atime: attr.atime.sec as u64,
        mtime: attr.mtime.sec as u64,
        ctime: attr.ctime.sec as u64,
        atimensec: attr.atime.nsec,
        mtimensec: attr.mtime.nsec,
        ctimensec: attr.ctime.nsec,
        mode: attr.mode,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        // The kernel's 32 bits are the lower half of a device number of stat(2) (new_encode_dev).
        rdev: attr.rdev as u32,
        blksize: attr.blksize,
        flags: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attr() -> Attr {
        let t = |sec| systx_os::Timestamp { sec, nsec: 5 };
        Attr {
            ino: 1,
            size: 2,
            blocks: 3,
            atime: t(-1),
            mtime: t(4),
            ctime: t(6),
            mode: 0o100644,
            nlink: 7,
            uid: 8,
            gid: 9,
            rdev: 0,
            blksize: 4096,
        }
    }

    #[test]
    fn an_error_has_no_body_and_a_negative_number() {
        let mut reply = Reply::new();
        reply.put(&LseekOut { offset: 9 });
        let bytes = reply.finish(0x0102, Err(Errno::NOENT));
        assert_eq!(bytes, [16, 0, 0, 0, 0xfe, 0xff, 0xff, 0xff, 2, 1, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn a_missing_name_is_node_zero_for_ever() {
        let mut reply = Reply::new();
        reply.no_entry(Lasts::Forever);
        let bytes = reply.finish(1, Ok(()));
        assert_eq!(bytes.len(), 16 + 128);
        assert_eq!(bytes[16..24], [0; 8]);
        assert_eq!(bytes[32..40], [0, 0, 0, 0x40, 0, 0, 0, 0]);
        assert!(bytes[40..].iter().all(|b| *b == 0));
    }

    #[test]
    fn an_entry_carries_true_inode_number_and_times_before_1970() {
        let mut reply = Reply::new();
        reply.entry(Id { number: 42, generation: 7 }, &attr(), Lasts::Forever, Lasts::Forever);
        let bytes = reply.finish(1, Ok(())).to_vec();
        assert_eq!(bytes[16], 42);
        assert_eq!(bytes[16 + 8..16 + 16], [7, 0, 0, 0, 0, 0, 0, 0], "generation");
        assert_eq!(bytes[16 + 40], 1, "ino");
        assert_eq!(bytes[16 + 40 + 24..16 + 40 + 32], [0xff; 8], "atime -1");
    }

    #[test]
    fn directory_entries_are_padded_and_never_cut() {
        let mut reply = Reply::new();
        reply.limit(24 + 8 + 128 + 24 + 16 - 1);
        let e = Dirent { name: b"abc", ino: 1, kind: FileType::Directory, next: 1 };
        assert!(reply.dirent(e, Plus::No));
        assert_eq!(reply.body_bytes(), 32);
        let long = Dirent { name: b"123456789", next: 2, ..e };
        let id = Id { number: 5, generation: 0 };
        assert!(!reply.dirent(long, Plus::Node(id, &attr(), [Lasts::Forever; 2])));
        assert!(
            reply.dirent(Dirent { name: b"12345678", ..long }, Plus::Node(id, &attr(), [Lasts::Forever; 2]))
        );
        let bytes = reply.finish(1, Ok(())).to_vec();
        assert_eq!(bytes.len(), 16 + 32 + 128 + 24 + 8);
        assert_eq!(bytes[16 + 16..16 + 32], [3, 0, 0, 0, 4, 0, 0, 0, b'a', b'b', b'c', 0, 0, 0, 0, 0]);
    }

    #[test]
    fn a_value_is_measured_returned_or_out_of_range() {
        let mut reply = Reply::new();
        assert_eq!(reply.sized(b"value", 0), Ok(()));
        assert_eq!(reply.finish(1, Ok(()))[16..], [5, 0, 0, 0, 0, 0, 0, 0]);
        reply.clear();
        assert_eq!(reply.sized(b"value", 4), Err(Errno::RANGE));
        assert_eq!(reply.sized(b"value", 5), Ok(()));
        assert_eq!(&reply.finish(1, Ok(()))[16..], b"value");
    }
}
