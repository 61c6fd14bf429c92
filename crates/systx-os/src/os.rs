//! The trait through which everything above this crate reaches the kernel.
//!
//! Two implementations: [`crate::Linux`] and the simulated machine of `systx-sim`. Every method is one system call
//! (or the shortest sequence that Linux needs for it), so that the simulated machine can kill, fail and interleave at
//! exactly the points where a real machine can. Objects are reached by descriptor and single name, never by a path of
//! several components: a name is a non-empty byte string of at most 255 bytes without `/` and NUL, and is never
//! followed when it is a symbolic link.

use crate::types::*;
use crate::words::Words;

/// The kernel, as far as the engine needs it.
///
/// A value stands for one process: clones share its descriptors and die with it.
pub trait Os: Clone + Send + Sync + 'static {
    /// An open descriptor; closed on drop.
    type Fd: Send + Sync + 'static;
    /// A shared mapping of 64-bit words (the domain table).
    type Mem: Words + Send + Sync + 'static;
    /// A byte of the owners file held by this process: see [`Os::own_byte`].
    type Owned: Send + Sync + 'static;

    // ---- opening -------------------------------------------------------------------------------------------------

    /// Opens `name` in `dir`; never follows a symbolic link and never crosses a mount.
    ///
    /// Source: openat2(2), RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV.
    fn open(&self, dir: &Self::Fd, name: &[u8], how: Open) -> Result<Self::Fd>;
    /// Opens a name; `None`: nothing has that name.
    fn open_if_there(&self, dir: &Self::Fd, name: &[u8], how: Open) -> Result<Option<Self::Fd>> {
        match self.open(dir, name, how) {
            Err(Errno::NOENT) => Ok(None),
            opened => opened.map(Some),
        }
    }
    /// Opens the object behind `fd` (often an O_PATH descriptor) once more.
    fn reopen(&self, fd: &Self::Fd, how: Open) -> Result<Self::Fd>;
    /// Opens an object by its handle; `mount` is any descriptor on the same mount. `ESTALE` when it is gone,
    /// `EPERM` without CAP_DAC_READ_SEARCH.
    fn open_handle(&self, mount: &Self::Fd, handle: &Handle, how: Open) -> Result<Self::Fd>;
    /// Creates a regular file, O_RDWR | O_CREAT | O_EXCL. The umask is not applied.
    fn create(&self, dir: &Self::Fd, name: &[u8], mode: u32) -> Result<Self::Fd>;
    /// Creates a nameless regular file on the file system of `dir` (O_TMPFILE).
    fn tmpfile(&self, dir: &Self::Fd, mode: u32) -> Result<Self::Fd>;
    /// Another descriptor for the same open file (dup).
    fn dup(&self, fd: &Self::Fd) -> Result<Self::Fd>;
    /// Gives a descriptor a number that programs that open files don't come to soon, if there is one. The default leaves
    /// it where it is.
    fn lift(&self, fd: Self::Fd) -> Self::Fd {
        fd
    }
    /// Closes a descriptor, whoever may be closing it just now.
    fn close(&self, fd: Self::Fd) {
        drop(fd)
    }
    /// This kernel, for descriptors that are closed again before the program's call into us is over: they need no
    /// such number. The default makes no difference.
    fn for_a_moment(&self) -> Self {
        self.clone()
    }
    /// What an open file is known by: device and inode number.
    fn identity(&self, fd: &Self::Fd) -> Result<(u64, u64)> {
        self.stat(fd).map(|stat| (stat.dev, stat.ino))
    }
    /// Returns true if an open file is still the one that is known by `is`.
    fn still(&self, fd: &Self::Fd, is: (u64, u64)) -> bool {
        self.identity(fd) == Ok(is)
    }
    /// Returns true for a descriptor that was closed by somebody else, and perhaps opened as another file since. Only
    /// where somebody else may: see [`crate::Guest`].
    fn is_lost(&self, fd: &Self::Fd) -> bool {
        let _ = fd;
        false
    }

    // ---- looking -------------------------------------------------------------------------------------------------

    /// Attributes of the object behind `fd`.
    fn stat(&self, fd: &Self::Fd) -> Result<Stat>;
    /// Attributes of `name` in `dir`, not following a link.
    fn stat_at(&self, dir: &Self::Fd, name: &[u8]) -> Result<Stat>;
    /// The same of a name that was looked at before. The answer `before` proves by itself that `dir` is what it was;
    /// any other is as of [`Os::stat_at`].
    fn stat_again(&self, dir: &Self::Fd, name: &[u8], before: Sight) -> Result<Stat> {
        let _ = before;
        self.stat_at(dir, name)
    }
    /// File handle of the object behind `fd`. `EOPNOTSUPP` where the file system has none.
    fn handle(&self, fd: &Self::Fd) -> Result<Handle>;
    /// File handle of `name` in `dir`.
    fn handle_at(&self, dir: &Self::Fd, name: &[u8]) -> Result<Handle>;
    /// When the object behind `fd` was made, where the file system keeps that; no call sets it. The default knows of
    /// none.
    ///
    /// Source: STATX_BTIME in statx(2).
    fn made(&self, fd: &Self::Fd) -> Result<Option<Timestamp>> {
        let _ = fd;
        Ok(None)
    }
    /// Returns true if a block is allocated at an offset, also behind the end, that was never written. The default can't
    /// tell: `EOPNOTSUPP`.
    ///
    /// Source: FS_IOC_FIEMAP in Documentation/filesystems/fiemap.rst.
    fn reserved_at(&self, fd: &Self::Fd, offset: u64) -> Result<bool> {
        let _ = (fd, offset);
        Err(Errno::OPNOTSUPP)
    }
    /// Returns true if bytes of a file may have been written to the disk, be it with an earlier state: it has a block that
    /// is more than planned. The default can't tell.
    fn was_written_out(&self, fd: &Self::Fd) -> Result<bool> {
        let _ = fd;
        Ok(true)
    }
    /// All entries of a directory but `.` and `..`, in the file system's order. `fd` may be O_PATH.
    fn read_dir(&self, fd: &Self::Fd) -> Result<Vec<Dirent>>;
    /// Target of the symbolic link behind `fd` (O_PATH | O_NOFOLLOW).
    fn read_link(&self, fd: &Self::Fd) -> Result<Vec<u8>>;
    /// Checks that names may be added to and removed from a directory, as far as its permissions and its
    /// immutable flag say: `EACCES`, `EPERM`, `EROFS`. The default knows the flag only.
    ///
    /// Source: faccessat2(2), W_OK | X_OK, AT_EACCESS | AT_EMPTY_PATH.
    fn may_change_names(&self, dir: &Self::Fd) -> Result<()> {
        if self.stat(dir)?.immutable {
            Err(Errno::PERM)
        } else {
            Ok(())
        }
    }
    /// The project that a directory passes on, for quotas of trees: what belongs to another one can't be moved into it,
    /// `EXDEV`. The default knows of none.
    ///
    /// Source: FS_XFLAG_PROJINHERIT in ioctl_xfs_fsgetxattr(2).
    fn project_passed_on(&self, dir: &Self::Fd) -> Result<Option<u32>> {
        let _ = dir;
        Ok(None)
    }
    /// Makes the object at a name one of a project; a directory then passes it on. Whether it was of another
    /// one.
    ///
    /// # Errors
    /// `EDQUOT` where the project has no room for it; `EXDEV` where that can't be had: for links, FIFOs,
    /// sockets and devices before Linux 6.17, and for users in a namespace. The default says so for
    /// everything.
    fn set_project(&self, dir: &Self::Fd, name: &[u8], project: u32) -> Result<bool> {
        let _ = (dir, name, project);
        Err(Errno::XDEV)
    }
    /// Inode flags ([`inode_flag`]) of a file or directory; 0 where the file system has none, or this process
    /// may not ask. The default knows of none.
    ///
    /// Source: FS_IOC_GETFLAGS in ioctl_iflags(2).
    fn inode_flags(&self, object: &Self::Fd) -> Result<u32> {
        let _ = object;
        Ok(0)
    }
    /// Gives a file or directory inode flags beside those that it has. The default can't.
    fn add_inode_flags(&self, object: &Self::Fd, flags: u32) -> Result<()> {
        let _ = (object, flags);
        Err(Errno::OPNOTSUPP)
    }
    /// By what a directory is encrypted; `None`: it isn't. The default knows of none.
    ///
    /// Source: FS_IOC_GET_ENCRYPTION_POLICY_EX in Documentation/filesystems/fscrypt.rst.
    fn encryption_policy(&self, dir: &Self::Fd) -> Result<Option<Vec<u8>>> {
        let _ = dir;
        Ok(None)
    }
    /// Returns true if a directory is encrypted and its key is not there: no name in it is found. The default knows of
    /// none.
    ///
    /// Source: "Encryption key not available" in Documentation/filesystems/fscrypt.rst.
    fn are_names_locked(&self, dir: &Self::Fd) -> Result<bool> {
        let _ = dir;
        Ok(false)
    }
    /// File-system totals (statfs).
    fn statfs(&self, fd: &Self::Fd) -> Result<StatFs>;
    /// Returns the kind of file system and what may be relied on there. Probes by experiment where no flag
    /// says it; `scratch` is a directory of ours on it. Cached by the caller.
    fn fs_info(&self, scratch: &Self::Fd) -> Result<FsInfo>;

    // ---- names ---------------------------------------------------------------------------------------------------

    /// Makes a directory; the umask is not applied.
    fn mkdir(&self, dir: &Self::Fd, name: &[u8], mode: u32) -> Result<()>;
    /// Makes a FIFO, socket, device or regular file; `mode` includes the type bits.
    fn mknod(&self, dir: &Self::Fd, name: &[u8], mode: u32, rdev: u64) -> Result<()>;
    /// Makes a symbolic link.
    fn symlink(&self, dir: &Self::Fd, name: &[u8], target: &[u8]) -> Result<()>;
    /// Gives the object behind `fd` another name (linkat with AT_EMPTY_PATH).
    fn link(&self, fd: &Self::Fd, dir: &Self::Fd, name: &[u8]) -> Result<()>;
    /// Removes a name that is not a directory.
    fn unlink(&self, dir: &Self::Fd, name: &[u8]) -> Result<()>;
    /// Removes an empty directory.
    fn rmdir(&self, dir: &Self::Fd, name: &[u8]) -> Result<()>;
    /// renameat2(2).
    fn rename(&self, from: (&Self::Fd, &[u8]), to: (&Self::Fd, &[u8]), mode: Rename) -> Result<()>;

    // ---- bytes ---------------------------------------------------------------------------------------------------

    /// Reads at `offset`; short only at the end of the file.
    fn pread(&self, fd: &Self::Fd, buf: &mut [u8], offset: u64) -> Result<usize>;
    /// Writes at `offset`; may be short (disk full), never 0 for a non-empty `buf`.
    fn pwrite(&self, fd: &Self::Fd, buf: &[u8], offset: u64) -> Result<usize>;
    /// Checks that a file may end there: `EFBIG` beyond what its file system can have, or this process may write. The
    /// default knows of no limit.
    ///
    /// Source: lseek(2), EINVAL; RLIMIT_FSIZE in setrlimit(2).
    fn may_end_at(&self, fd: &Self::Fd, size: u64) -> Result<()> {
        let _ = (fd, size);
        Ok(())
    }
    /// Sets the size.
    fn truncate(&self, fd: &Self::Fd, size: u64) -> Result<()>;
    /// fallocate(2).
    fn fallocate(&self, fd: &Self::Fd, mode: Fallocate, offset: u64, len: u64) -> Result<()>;
    /// Copies a range, sharing blocks where the file system can (copy_file_range). May be short.
    fn copy_range(
        &self,
        from: &Self::Fd,
        from_offset: u64,
        to: &Self::Fd,
        to_offset: u64,
        len: u64,
    ) -> Result<u64>;
    /// Replaces bytes by others, machine word by machine word, each only if it still holds what `before`
    /// says; returns true if all did, or have the new value. `offset` is a multiple of 8 and the range lies within the file. For
    /// files that another process keeps open: its store between our read and our write is not overwritten. Words that
    /// shall stay are not looked at.
    ///
    /// # Errors
    /// `NOSPC` where a store needs a block and gets none; `INTR` if the child was killed that does it. Words may be
    /// exchanged then.
    ///
    /// Source: compare-and-exchange on a shared mapping (docs/decisions.md, "Measured").
    fn compare_exchange(&self, fd: &Self::Fd, offset: u64, before: &[u8], after: &[u8]) -> Result<bool>;
    /// Writes at the end of the file, wherever that is at that moment, and returns where it was. May be short.
    ///
    /// Source: pwritev2(2) with RWF_APPEND.
    fn append(&self, fd: &Self::Fd, bytes: &[u8]) -> Result<(u64, usize)>;
    /// Start of the next data or hole at or after `offset`; `ENXIO` past the end.
    fn seek(&self, fd: &Self::Fd, offset: u64, to: Seek) -> Result<u64>;

    // ---- attributes (also on O_PATH descriptors and symbolic links) -------------------------------------------------

    /// Sets permission bits, including setuid, setgid and sticky.
    fn chmod(&self, fd: &Self::Fd, mode: u32) -> Result<()>;
    /// Sets owner and group.
    fn chown(&self, fd: &Self::Fd, uid: u32, gid: u32) -> Result<()>;
    /// Sets access and modification time; `None` leaves one as it is.
    fn utimens(&self, fd: &Self::Fd, atime: Option<Timestamp>, mtime: Option<Timestamp>) -> Result<()>;
    /// Value of an extended attribute; `ENODATA` when there is none.
    fn getxattr(&self, fd: &Self::Fd, name: &[u8]) -> Result<Vec<u8>>;
    /// The same of a name in `dir`, which may be looked up twice meanwhile.
    fn getxattr_at(&self, dir: &Self::Fd, of: &[u8], name: &[u8]) -> Result<Vec<u8>> {
        self.getxattr(&self.open(dir, of, Open::Path)?, name)
    }
    /// Sets an extended attribute.
    fn setxattr(&self, fd: &Self::Fd, name: &[u8], value: &[u8], mode: SetXattr) -> Result<()>;
    /// Removes an extended attribute.
    fn removexattr(&self, fd: &Self::Fd, name: &[u8]) -> Result<()>;
    /// Names of all extended attributes.
    fn listxattr(&self, fd: &Self::Fd) -> Result<Vec<Vec<u8>>>;

    // ---- durability ----------------------------------------------------------------------------------------------

    /// Starts or waits for write-out of a file's dirty pages (sync_file_range). No flush of the disk.
    fn write_out(&self, fd: &Self::Fd, writing: Writing) -> Result<()>;
    /// fsync(2); for directories too.
    fn fsync(&self, fd: &Self::Fd) -> Result<()>;
    /// fdatasync(2).
    fn fdatasync(&self, fd: &Self::Fd) -> Result<()>;
    /// syncfs(2).
    fn syncfs(&self, fd: &Self::Fd) -> Result<()>;

    // ---- leases --------------------------------------------------------------------------------------------------

    /// Tries to take a lease on an open file; `EAGAIN` when another process has it open. Never blocks, and a
    /// lease break kills no process (F_SETSIG SIGURG first). Dropping the descriptor or `Lease::None`
    /// releases.
    fn lease(&self, fd: &Self::Fd, lease: Lease) -> Result<()>;
    /// Returns the lease that is still wholly held: a smaller one if an open is breaking it.
    fn lease_held(&self, fd: &Self::Fd) -> Result<Lease>;

    // ---- cooperation ---------------------------------------------------------------------------------------------

    /// Maps the first `words` 64-bit words of a file, shared with every process that maps it.
    fn map(&self, fd: &Self::Fd, words: usize) -> Result<Self::Mem>;
    /// Takes ownership of one byte of the owners file, without waiting. It is held exactly as long as this process's
    /// address space exists or until the value is dropped; `EAGAIN` when a living process holds it.
    ///
    /// Source: an OFD lock kept by a mapping that fork does not copy (docs/decisions.md, "Measured").
    fn own_byte(&self, owners: &Self::Fd, byte: u64) -> Result<Self::Owned>;
    /// Returns true if a living process owns that byte (this one included).
    fn byte_owned(&self, owners: &Self::Fd, byte: u64) -> Result<bool>;

    // ---- the machine ---------------------------------------------------------------------------------------------

    /// Identity of this boot of the kernel.
    fn boot_id(&self) -> Result<[u8; 16]>;
    /// Wall clock.
    fn now(&self) -> Timestamp;
    /// Monotonic clock in nanoseconds, the same for all processes of one boot.
    fn monotonic_ns(&self) -> u64;
    /// Random bits.
    fn random(&self) -> u64;
    /// Effective user id.
    fn uid(&self) -> u32;
    /// Returns true if every user and group has a number here. Not in a user namespace that maps only some:
    /// there the others look like [`NOBODY`], and their objects can't be changed.
    fn sees_all_owners(&self) -> bool {
        true
    }
    /// Returns true if this process lacks what another one of its user may have, so that what the kernel refuses it says
    /// nothing of the object.
    fn is_limited(&self, _by: Limit) -> bool {
        false
    }
    /// A number of this process that a forked child has not: one that was noted and is not the present one any more
    /// says that a fork came between, and that what was noted with it is another process's. Costs no call.
    fn lineage(&self) -> u64;
    /// Process id, for messages only: never an identity.
    fn pid(&self) -> u32;
    /// Gives up the CPU for at most `ns` nanoseconds (used for back-off, never for correctness).
    fn pause(&self, ns: u64);
    /// Called by a commit when a part of it begins, for measurements.
    fn phase(&self, _phase: Phase) {}
    /// Called by the publication of an own commit before it takes a step: the number of steps taken, of how
    /// many. For progress reports.
    fn steps_taken(&self, _taken: usize, _of: usize) {}
}
