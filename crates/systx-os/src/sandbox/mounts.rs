//! The mount table of this process, and detached copies of single mounts.
//!
//! Owns: the format of /proc/self/mountinfo. Guarantees: a line that can't be understood is an error, not a mount that
//! is silently missing. Does not: decide which mounts matter.
//!
//! Source: proc_pid_mountinfo(5), open_tree(2).

use crate::types::Result;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, StatxFlags, CWD};
use rustix::io::Errno;
use rustix::mount::OpenTreeFlags;
use std::io::Read;
use std::sync::Arc;

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Mount id.
    pub id: u64,
    /// Id of the mount it is mounted on; its own id or an unknown one for the topmost.
    pub parent: u64,
    /// Device of the file system, `major:minor`.
    pub device: Vec<u8>,
    /// The directory of the file system that is this mount's root: `/`, or deeper for a bind mount.
    pub root: Vec<u8>,
    /// Where it is mounted, seen from this process's root.
    pub point: Vec<u8>,
    /// Type of the file system, such as `ext4`.
    pub fs_type: Vec<u8>,
    /// Source of the mount, such as a device's path.
    pub source: Vec<u8>,
    /// Options of the mount.
    pub attributes: Attributes,
    /// True if the file system as a whole is read-only.
    pub file_system_read_only: bool,
    /// True if it shows other numbers of users and groups than the file system has (an idmapped mount).
    pub idmapped: bool,
    /// The user who mounted it, where the file system says so: FUSE does.
    pub user_id: Option<u32>,
}

/// Options of one mount that a stand-in for it must have, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// ro
    pub read_only: bool,
    /// nosuid
    pub nosuid: bool,
    /// nodev
    pub nodev: bool,
    /// noexec
    pub noexec: bool,
}

/// All mounts of this process's mount namespace that lie below its root, in the kernel's order.
pub fn table() -> Result<Vec<Mount>> {
    read_table(watch()?)
}

/// Reads a mount table that is open.
pub(super) fn read_table(table: OwnedFd) -> Result<Vec<Mount>> {
    let mut text = Vec::new();
    let read = std::fs::File::from(table).read_to_end(&mut text);
    read.map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
    parse(&text).ok_or(Errno::BADMSG)
}

fn parse(text: &[u8]) -> Option<Vec<Mount>> {
    text.split(|b| *b == b'\n').filter(|line| !line.is_empty()).map(parse_line).collect()
}

fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|b| *b == b' ');
    let id = number(fields.next()?)?;
    let parent = number(fields.next()?)?;
    let device = fields.next()?.to_vec();
    let root = unescape(fields.next()?);
    let point = unescape(fields.next()?);
    let options = fields.next()?;
    // Optional fields follow, closed by a dash.
    fields.find(|field| *field == b"-")?;
    let fs_type = unescape(fields.next()?);
    let source = unescape(fields.next()?);
    let file_system_options = fields.next()?;
    let has = |options: &[u8], wanted: &[u8]| options.split(|b| *b == b',').any(|option| option == wanted);
    let attributes = Attributes {
        read_only: has(options, b"ro"),
        nosuid: has(options, b"nosuid"),
        nodev: has(options, b"nodev"),
        noexec: has(options, b"noexec"),
    };
    let file_system_read_only = has(file_system_options, b"ro");
    let idmapped = has(options, b"idmapped");
    let user_id =
        file_system_options.split(|b| *b == b',').find_map(|option| option.strip_prefix(b"user_id="));
    let user_id = user_id.map(number).map(|id| u32::try_from(id?).ok());
    let user_id = match user_id {
        Some(id) => Some(id?),
        None => None,
    };
    Some(Mount {
        id,
        parent,
        device,
        root,
        point,
        fs_type,
        source,
        attributes,
        file_system_read_only,
        idmapped,
        user_id,
    })
}

fn number(field: &[u8]) -> Option<u64> {
    core::str::from_utf8(field).ok()?.parse().ok()
}

/// Undoes the kernel's octal escapes of space, tab, newline and backslash.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        let octal = |b: u8| (b'0'..=b'7').contains(&b).then_some(b - b'0');
        let escaped = match tail {
            [a, b, c, ..] if first == b'\\' => octal(*a).zip(octal(*b)).zip(octal(*c)),
            _ => None,
        };
        match escaped {
            Some(((a, b), c)) => {
                out.push(a.wrapping_mul(64).wrapping_add(b * 8).wrapping_add(c));
                rest = &tail[3..];
            }
            None => {
                out.push(first);
                rest = tail;
            }
        }
    }
    out
}

/// The target of a path now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Id of the mount: another one than expected when something is mounted over it.
    pub mount_id: u64,
    /// True for a directory.
    pub directory: bool,
}

/// Looks at the end of a path, without following a symbolic link there and without causing a mount. No server
/// is asked: one that does not answer must not stop its neighbours.
pub fn look(path: &[u8]) -> Result<Found> {
    let flags = AtFlags::NO_AUTOMOUNT | AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_DONT_SYNC;
    let stat = rustix::fs::statx(CWD, path, flags, StatxFlags::TYPE | StatxFlags::MNT_ID)?;
    let directory = FileType::from_raw_mode(stat.stx_mode.into()) == FileType::Directory;
    Ok(Found { mount_id: stat.stx_mnt_id, directory })
}

/// Number of the mount that a descriptor is on.
pub fn mount_id(fd: &OwnedFd) -> Result<u64> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    Ok(rustix::fs::statx(fd, c"", flags, StatxFlags::MNT_ID)?.stx_mnt_id)
}

/// Begins to watch the mounts of this process's namespace, for [`have_changed`].
pub fn watch() -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, c"/proc/self/mountinfo", flags, Mode::empty())
}

/// Returns true if the mounts have changed since the last question to this descriptor. Does not wait.
///
/// Source: proc_pid_mounts(5), "monitored for changes".
pub fn have_changed(watched: &OwnedFd) -> Result<bool> {
    let mut polled = [PollFd::new(watched, PollFlags::PRI)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut polled, Some(&now))?;
    Ok(polled[0].revents().intersects(PollFlags::PRI | PollFlags::ERR))
}

/// Value of an extended attribute of at most `bytes_max` bytes, without following a symbolic link at the end
/// of the path.
pub fn attribute(path: &[u8], name: &str, bytes_max: usize) -> Result<Vec<u8>> {
    let mut value = vec![0; bytes_max];
    let length = rustix::fs::lgetxattr(path, name, &mut value)?;
    value.truncate(length);
    Ok(value)
}

/// A detached copy of one mount, with its root directory open.
///
/// What it shows can't be covered by later mounts, and it lives as long as this value.
pub struct Detached {
    /// The root directory.
    pub root: Arc<OwnedFd>,
    copy: OwnedFd,
}

impl Detached {
    /// Copies the mount that covers `path`, with the directory at `path` as its root, without the mounts on it.
    pub fn of(path: &[u8]) -> Result<Detached> {
        let how = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let copy = rustix::mount::open_tree(CWD, path, how)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::openat(&copy, c".", flags, Mode::empty())?;
        Ok(Detached { root: Arc::new(root), copy })
    }

    /// Copies the mount of a descriptor, from its root, without the mounts on it.
    pub fn of_mount(mount: &OwnedFd) -> Result<Detached> {
        let copy = detached(mount)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::openat(&copy, c".", flags, Mode::empty())?;
        Ok(Detached { root: Arc::new(root), copy })
    }

    /// Value of an extended attribute of its root, however long.
    pub fn attribute(&self, name: &str) -> Result<Vec<u8>> {
        let mut value = vec![0; 4096];
        loop {
            match rustix::fs::fgetxattr(&self.root, name, &mut value[..]) {
                Err(Errno::RANGE) => value.resize(value.len() * 2, 0),
                length => {
                    value.truncate(length?);
                    return Ok(value);
                }
            }
        }
    }

    /// Returns its descriptors, for a helper process to keep.
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.root.as_fd(), self.copy.as_fd()]
    }
}

/// A detached copy of the mount at `path` and of all mounts on it.
pub fn detached_with_all_below(path: &[u8]) -> Result<OwnedFd> {
    let how = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    rustix::mount::open_tree(CWD, path, how)
}

/// A detached copy of the mount of a descriptor, without the mounts on it. Its file system is asked nothing.
pub(super) fn detached(mount: impl AsFd) -> Result<OwnedFd> {
    let how =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    rustix::mount::open_tree(mount, c"", how)
}

/// Writes back what programs stored through mappings of files of mounts (syncfs), on a thread of its own:
/// this process may be the one that serves them ([`super::few`]).
pub fn sync(mounts: &[OwnedFd]) -> Result<()> {
    let work = || {
        super::few::keep_only(mounts.iter().map(AsRawFd::as_raw_fd).collect())?;
        mounts.iter().try_for_each(sync_one)
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("systx-sync".into()).spawn_scoped(scope, work);
        let thread = thread.map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::AGAIN))?;
        thread.join().unwrap_or(Err(Errno::IO))
    })
}

fn sync_one(mount: &OwnedFd) -> Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::syncfs(rustix::fs::openat(mount, c".", flags, Mode::empty())?)
}

/// Returns the device of a mount's file system, as stat has it. A view's server is not asked for it.
pub fn device(mount: &OwnedFd) -> Result<u64> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = rustix::fs::statx(mount, c"", flags, StatxFlags::empty())?;
    Ok(rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &[u8] = b"29 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard\n\
        41 29 0:30 /a\\040b /mnt/x\\134y ro,nosuid,nodev,noexec shared:2 master:3 - tmpfs none\\011t rw\n\
        42 29 8:1 / /boot rw - vfat /dev/sda1 ro,errors=remount-ro\n";

    #[test]
    fn every_field_is_read_and_escapes_are_undone() {
        let mounts = parse(SAMPLE).unwrap();
        assert_eq!(mounts.len(), 3);
        assert_eq!((mounts[0].id, mounts[0].parent), (29, 1));
        assert_eq!((mounts[0].point.as_slice(), mounts[0].fs_type.as_slice()), (&b"/"[..], &b"ext4"[..]));
        assert_eq!(mounts[0].attributes, Attributes::default());
        assert_eq!(mounts[1].root, b"/a b");
        assert_eq!(mounts[1].point, b"/mnt/x\\y");
        assert_eq!(mounts[1].source, b"none\tt");
        let all = Attributes { read_only: true, nosuid: true, nodev: true, noexec: true };
        assert_eq!((mounts[1].attributes, mounts[1].file_system_read_only), (all, false));
        assert!(!mounts[2].attributes.read_only && mounts[2].file_system_read_only);
        let mapped = parse(b"43 29 8:1 /v /mnt rw,relatime,idmapped - ext4 /dev/sda1 rw\n").unwrap();
        assert!(mapped[0].idmapped && !mounts[0].idmapped);
    }

    #[test]
    fn who_mounted_it_is_known_where_it_is_said() {
        let fuse = b"61 29 0:52 / /mnt rw - fuse.x src rw,user_id=1000,group_id=0,allow_other\n";
        assert_eq!(parse(fuse).unwrap()[0].user_id, Some(1000));
        assert_eq!(parse(SAMPLE).unwrap()[0].user_id, None);
    }

    #[test]
    fn a_line_that_cannot_be_understood_is_refused() {
        assert!(parse(b"61 29 0:52 / /mnt rw - fuse.x src rw,user_id=-1\n").is_none());
        assert!(parse(b"29 1 254:0 / / rw,relatime shared:1 ext4 /dev/vda rw\n").is_none());
        assert!(parse(b"x 1 254:0 / / rw - ext4 /dev/vda rw\n").is_none());
    }

    #[test]
    fn the_table_of_this_process_has_the_mount_that_a_path_leads_to() {
        let found = look(b"/").unwrap();
        assert!(found.directory);
        assert!(table().unwrap().iter().any(|m| m.id == found.mount_id && m.point == b"/"));
    }
}
