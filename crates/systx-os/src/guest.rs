//! [`Os`] for a process that is somebody else's: its program may close descriptors that it does not know, as
//! closefrom(3) does, and then open its own under their numbers.
//!
//! Owns: what a descriptor is known by, the device and number of its object as it was opened. Guarantees: no call gets a
//! descriptor that is not known to be the one that was opened: it answers `EBADF`, and nothing was changed; a lost
//! descriptor is not closed, as its number is another's or nobody's; a mapping and an owned byte don't hang on
//! descriptors and stay. New descriptors get high numbers, which a program that opens its own does not come to soon.
//! Within one call of the program into the library ([`Guest::in_call`]) a descriptor is looked at once for all that only
//! looks, and once more behind each wait: for another process, for the disk, or in a pause. For what changes something it
//! is looked at each time.
//! Does not: open a lost one again (who knows its name does), or help against a thread that closes between the look and
//! the call: a program that does that while it works with files loses its own as well.

use std::fmt;
use std::ops::Deref;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::call::{self, AsOfCall, InCall};
use crate::os::Os;
use crate::types::*;
use crate::Linux;

/// The kernel as `K` reaches it, with every descriptor looked at before it is used.
#[derive(Clone, Debug)]
pub struct Guest<K> {
    os: K,
    /// Descriptors are taken for what they were: to show what that costs.
    trusting: bool,
    /// New descriptors stay where they are: see [`Os::for_a_moment`].
    brief: bool,
}

/// A descriptor, and what it is known by.
pub struct GuestFd<K: Os> {
    os: K,
    /// Taken by the drop alone.
    fd: Option<K::Fd>,
    is: (u64, u64),
    trusting: bool,
    /// The call in which it was looked at last.
    looked_at: AtomicU64,
}

thread_local! {
    static UID: AsOfCall<u32> = const { AsOfCall::never_asked() };
}

impl<K: Os> Deref for GuestFd<K> {
    type Target = K::Fd;

    fn deref(&self) -> &K::Fd {
        match &self.fd {
            Some(fd) => fd,
            None => unreachable!("only the drop takes it"),
        }
    }
}

impl<K: Os> GuestFd<K> {
    fn is_lost(&self) -> bool {
        !self.trusting && !self.os.still(self, self.is)
    }

    /// The descriptor, for a look: if it is the one that was opened, as of this call, since its last wait, or of now.
    fn known(&self) -> Result<&K::Fd> {
        let now = call::present();
        if now == 0 || self.looked_at.load(Ordering::Relaxed) != now {
            return self.held();
        }
        Ok(self)
    }

    /// The descriptor, if it is still the one that was opened.
    fn held(&self) -> Result<&K::Fd> {
        if self.is_lost() {
            return Err(Errno::BADF);
        }
        self.looked_at.store(call::present(), Ordering::Relaxed);
        Ok(self)
    }

    /// Checks behind a wait for the disk that it was for this descriptor.
    fn held_since(&self, waited_for: Result<()>) -> Result<()> {
        call::waited();
        waited_for?;
        self.held().map(drop)
    }
}

impl<K: Os> Drop for GuestFd<K> {
    fn drop(&mut self) {
        // A close is for good: in a call that takes long its program's other threads may have been here.
        let lost = if call::is_short() { self.known() } else { self.held() }.is_err();
        if let Some(fd) = self.fd.take() {
            if lost {
                // The number is not ours any more.
                std::mem::forget(fd)
            } else {
                self.os.close(fd)
            }
        }
    }
}

impl<K: Os> fmt::Debug for GuestFd<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GuestFd of {:?}", self.is)
    }
}

impl<K: Os> Guest<K> {
    /// Over a kernel.
    pub fn over(os: K) -> Guest<K> {
        Guest { os, trusting: false, brief: false }
    }

    /// One that looks at no descriptor: for the test that shows what happens then.
    #[doc(hidden)]
    pub fn trusting(os: K) -> Guest<K> {
        Guest { os, trusting: true, brief: false }
    }

    /// Takes over a descriptor that was opened just now.
    ///
    /// # Errors
    /// Of fstat(2).
    pub fn adopt(&self, fd: K::Fd) -> Result<GuestFd<K>> {
        let fd = if self.brief { fd } else { self.os.lift(fd) };
        let (os, never) = (self.os.clone(), AtomicU64::new(0));
        let mut fd = GuestFd { os, fd: Some(fd), is: (0, 0), trusting: self.trusting, looked_at: never };
        // On an error another thread has closed it, and its number is not ours any more.
        fd.is = self.os.identity(&fd)?;
        fd.looked_at = AtomicU64::new(call::present());
        Ok(fd)
    }

    /// Begins a call of the program into the library. What its own thread does with descriptors it does before or
    /// after; what another thread does meanwhile, no look would always notice.
    pub fn in_call() -> InCall {
        InCall::begin()
    }

    /// Begins one that waits for the disk: what is opened in it gets a high number, however soon it is closed.
    pub fn in_long_call() -> InCall {
        InCall::begin_long()
    }

    /// One more of calls that count as one, for reading: what was looked at in one of them is not looked at in the next.
    /// It is looked at before it is closed, by who reads; `these` is 0 before the first.
    pub fn in_call_of(these: &mut u64) -> InCall {
        InCall::begin_of(these)
    }
}

impl Guest<Linux> {
    /// Opens a path as [`Linux::open_path`] does.
    ///
    /// # Errors
    /// Of openat(2).
    pub fn open_path(&self, path: &Path, how: Open) -> Result<GuestFd<Linux>> {
        self.adopt(self.os.open_path(path, how)?)
    }
}

/// Calls over one descriptor, and those over none.
macro_rules! through {
    (
        opening { $(fn $opens:ident($on:ident $(, $open_arg:ident: $open_type:ty)*);)* }
        making { $(fn $makes:ident($in:ident $(, $make_arg:ident: $make_type:ty)*);)* }
        looks { $(fn $look:ident($at:ident $(, $look_arg:ident: $look_type:ty)*) -> $seen:ty;)* }
        on_one { $(fn $name:ident($fd:ident $(, $arg:ident: $type:ty)*) -> $out:ty;)* }
        without { $(fn $free:ident($($free_arg:ident: $free_type:ty),*) $(-> $free_out:ty)?;)* }
        $($rest:item)*
    ) => {
        impl<K: Os> Os for Guest<K> {
            type Fd = GuestFd<K>;
            type Mem = K::Mem;
            type Owned = K::Owned;
            $(fn $opens(&self, $on: &Self::Fd $(, $open_arg: $open_type)*) -> Result<Self::Fd> {
                self.adopt(self.os.$opens($on.known()? $(, $open_arg)*)?)
            })*
            $(fn $makes(&self, $in: &Self::Fd $(, $make_arg: $make_type)*) -> Result<Self::Fd> {
                self.adopt(self.os.$makes($in.held()? $(, $make_arg)*)?)
            })*
            $(fn $look(&self, $at: &Self::Fd $(, $look_arg: $look_type)*) -> Result<$seen> {
                self.os.$look($at.known()? $(, $look_arg)*)
            })*
            $(fn $name(&self, $fd: &Self::Fd $(, $arg: $type)*) -> Result<$out> {
                self.os.$name($fd.held()? $(, $arg)*)
            })*
            $(fn $free(&self, $($free_arg: $free_type),*) $(-> $free_out)? {
                self.os.$free($($free_arg),*)
            })*
            $($rest)*
        }
    };
}

through! {
    opening {
        fn open(dir, name: &[u8], how: Open);
        fn reopen(fd, how: Open);
        fn open_handle(mount, handle: &Handle, how: Open);
        fn dup(fd);
    }
    making {
        fn create(dir, name: &[u8], mode: u32);
        fn tmpfile(dir, mode: u32);
    }
    looks {
        fn stat_at(dir, name: &[u8]) -> Stat;
        fn handle(fd) -> Handle;
        fn made(fd) -> Option<Timestamp>;
        fn reserved_at(fd, offset: u64) -> bool;
        fn was_written_out(fd) -> bool;
        fn handle_at(dir, name: &[u8]) -> Handle;
        fn read_dir(fd) -> Vec<Dirent>;
        fn read_link(fd) -> Vec<u8>;
        fn may_change_names(dir) -> ();
        fn project_passed_on(dir) -> Option<u32>;
        fn inode_flags(object) -> u32;
        fn encryption_policy(dir) -> Option<Vec<u8>>;
        fn are_names_locked(dir) -> bool;
        fn statfs(fd) -> StatFs;
        fn pread(fd, buf: &mut [u8], offset: u64) -> usize;
        fn seek(fd, offset: u64, to: Seek) -> u64;
        fn may_end_at(fd, size: u64) -> ();
        fn getxattr(fd, name: &[u8]) -> Vec<u8>;
        fn getxattr_at(dir, of: &[u8], name: &[u8]) -> Vec<u8>;
        fn listxattr(fd) -> Vec<Vec<u8>>;
        fn lease(fd, lease: Lease) -> ();
        fn lease_held(fd) -> Lease;
        fn byte_owned(owners, byte: u64) -> bool;
    }
    on_one {
        fn set_project(dir, name: &[u8], project: u32) -> bool;
        fn add_inode_flags(object, flags: u32) -> ();
        fn fs_info(scratch) -> FsInfo;
        fn mkdir(dir, name: &[u8], mode: u32) -> ();
        fn mknod(dir, name: &[u8], mode: u32, rdev: u64) -> ();
        fn symlink(dir, name: &[u8], target: &[u8]) -> ();
        fn unlink(dir, name: &[u8]) -> ();
        fn rmdir(dir, name: &[u8]) -> ();
        fn pwrite(fd, buf: &[u8], offset: u64) -> usize;
        fn truncate(fd, size: u64) -> ();
        fn fallocate(fd, mode: Fallocate, offset: u64, len: u64) -> ();
        fn compare_exchange(fd, offset: u64, before: &[u8], after: &[u8]) -> bool;
        fn append(fd, bytes: &[u8]) -> (u64, usize);
        fn chmod(fd, mode: u32) -> ();
        fn chown(fd, uid: u32, gid: u32) -> ();
        fn utimens(fd, atime: Option<Timestamp>, mtime: Option<Timestamp>) -> ();
        fn setxattr(fd, name: &[u8], value: &[u8], mode: SetXattr) -> ();
        fn removexattr(fd, name: &[u8]) -> ();
        fn map(fd, words: usize) -> K::Mem;
        fn own_byte(owners, byte: u64) -> K::Owned;
    }
    without {
        fn boot_id() -> Result<[u8; 16]>;
        fn now() -> Timestamp;
        fn monotonic_ns() -> u64;
        fn random() -> u64;
        fn sees_all_owners() -> bool;
        fn is_limited(by: Limit) -> bool;
        fn lineage() -> u64;
        fn pid() -> u32;
        fn phase(phase: Phase);
        fn steps_taken(taken: usize, of: usize);
    }

    /// What it answers says whose it is.
    fn stat(&self, fd: &Self::Fd) -> Result<Stat> {
        let stat = self.os.stat(fd)?;
        // Where both come from one call they agree; a kernel that names devices twofold is asked in its other way.
        if (stat.dev, stat.ino) == fd.is {
            fd.looked_at.store(call::present(), Ordering::Relaxed);
            Ok(stat)
        } else if fd.is_lost() {
            Err(Errno::BADF)
        } else {
            Ok(stat)
        }
    }
    fn stat_again(&self, dir: &Self::Fd, name: &[u8], before: Sight) -> Result<Stat> {
        match self.os.stat_at(dir, name) {
            Ok(stat) if stat.sight() == before => Ok(stat),
            found => dir.known().and(found),
        }
    }
    fn identity(&self, fd: &Self::Fd) -> Result<(u64, u64)> {
        fd.known().map(|_| fd.is)
    }
    fn is_lost(&self, fd: &Self::Fd) -> bool {
        fd.known().is_err()
    }
    fn link(&self, fd: &Self::Fd, dir: &Self::Fd, name: &[u8]) -> Result<()> {
        self.os.link(fd.held()?, dir.held()?, name)
    }
    fn rename(&self, from: (&Self::Fd, &[u8]), to: (&Self::Fd, &[u8]), mode: Rename) -> Result<()> {
        self.os.rename((from.0.held()?, from.1), (to.0.held()?, to.1), mode)
    }
    fn copy_range(&self, from: &Self::Fd, from_offset: u64, to: &Self::Fd, to_offset: u64, len: u64) -> Result<u64> {
        self.os.copy_range(from.held()?, from_offset, to.held()?, to_offset, len)
    }
    fn uid(&self) -> u32 {
        UID.with(|uid| uid.get(|| self.os.uid()))
    }
    fn for_a_moment(&self) -> Self {
        // Between two calls the program would come to low numbers.
        Guest { brief: call::is_short(), ..self.clone() }
    }
    fn pause(&self, ns: u64) {
        self.os.pause(ns);
        call::waited();
    }
    // A sync of another file, or none, must not pass for one: looked at once more when it is over.
    fn write_out(&self, fd: &Self::Fd, writing: Writing) -> Result<()> {
        fd.held_since(self.os.write_out(fd.held()?, writing))
    }
    fn fsync(&self, fd: &Self::Fd) -> Result<()> {
        fd.held_since(self.os.fsync(fd.held()?))
    }
    fn fdatasync(&self, fd: &Self::Fd) -> Result<()> {
        fd.held_since(self.os.fdatasync(fd.held()?))
    }
    fn syncfs(&self, fd: &Self::Fd) -> Result<()> {
        fd.held_since(self.os.syncfs(fd.held()?))
    }
}
