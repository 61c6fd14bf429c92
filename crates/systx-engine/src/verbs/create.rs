//! New objects. Each is made at once, for real, in the staging area, with its final owner, mode and lists.

use crate::acl::{self, Acl};
use crate::outcome::{Verb, VerbError};
use crate::transaction::{Attr, Caller, Node, Transaction};
use crate::workset::names::Change;
use crate::workset::node::{node_of, Ix};
use crate::workset::savepoint::Act;
use crate::workset::staging::Spot;
use crate::workset::Workset;
use std::sync::Arc;
use systx_os::{Errno, FileType, Open, Os, SetXattr, Stat};

const SETGID: u32 = 0o2000;
const GROUP_EXECUTE: u32 = 0o010;

/// The object to make.
#[derive(Clone, Copy)]
enum New<'a> {
    File,
    Directory,
    Special(FileType, u64),
    Symlink(&'a [u8]),
}

impl New<'_> {
    fn kind(self) -> FileType {
        match self {
            New::File => FileType::File,
            New::Directory => FileType::Directory,
            New::Special(kind, _) => kind,
            New::Symlink(_) => FileType::Symlink,
        }
    }
}

/// The final properties of a new object.
struct Shape {
    uid: u32,
    gid: u32,
    /// Permission bits.
    mode: u32,
    /// To be set by hand: in a slot nothing is inherited.
    access: Option<Vec<u8>>,
    default: Option<Vec<u8>>,
    /// Permission bits to make it with: a staged directory with a default ACL narrows them itself.
    make_with: u32,
    /// Inode flags, to be set by hand for the same reason.
    flags: u32,
}

impl<O: Os> Transaction<O> {
    /// Makes a regular file; `EEXIST` when the name is taken.
    pub fn create(&mut self, dir: Node, name: &[u8], mode: u32, caller: Caller) -> Verb<(Node, Attr)> {
        self.ours()?;
        make(&mut self.workset, dir, name, New::File, mode, caller)
    }

    /// Makes a directory.
    pub fn mkdir(&mut self, dir: Node, name: &[u8], mode: u32, caller: Caller) -> Verb<(Node, Attr)> {
        self.ours()?;
        make(&mut self.workset, dir, name, New::Directory, mode, caller)
    }

    /// Makes a FIFO, socket, device or regular file; `mode` includes the type bits.
    pub fn mknod(
        &mut self,
        dir: Node,
        name: &[u8],
        mode: u32,
        rdev: u64,
        caller: Caller,
    ) -> Verb<(Node, Attr)> {
        self.ours()?;
        let new = match FileType::from_mode(mode) {
            None if mode & libc::S_IFMT == 0 => New::File,
            None => return Err(Errno::INVAL.into()),
            Some(FileType::File) => New::File,
            Some(FileType::Directory) => return Err(Errno::PERM.into()),
            Some(FileType::Symlink) => return Err(Errno::INVAL.into()),
            Some(kind) => New::Special(kind, rdev),
        };
        let made = make(&mut self.workset, dir, name, new, mode, caller)?;
        // No process has it open.
        let ix = self.workset.ix(made.0);
        self.workset.object_mut(ix).file = None;
        Ok(made)
    }

    /// Makes a symbolic link.
    pub fn symlink(&mut self, dir: Node, name: &[u8], target: &[u8], caller: Caller) -> Verb<(Node, Attr)> {
        self.ours()?;
        make(&mut self.workset, dir, name, New::Symlink(target), 0o777, caller)
    }

    /// Makes a nameless regular file; [`Transaction::link`] may name it later.
    pub fn tmpfile(&mut self, dir: Node, mode: u32, caller: Caller) -> Verb<(Node, Attr)> {
        self.ours()?;
        let dir = self.workset.ix(dir);
        self.workset.claim(dir)?;
        self.workset.may_create_in(dir, b"")?;
        let mount = usize::from(self.workset.object(dir).mount);
        let mut shape = shape(&mut self.workset, dir, New::File, mode, caller, Birth::Entry)?;
        shape.flags = self.workset.flags_for_new(dir, FileType::File)?;
        let staging = self.workset.staging(mount)?.dir.clone();
        let fd = Arc::new(self.workset.os().tmpfile(&staging, shape.make_with)?);
        let stat = finish(&self.workset, &fd, &shape, FileType::File)?;
        let ix = self.workset.staged_node(mount, &stat)?;
        let object = self.workset.object_mut(ix);
        object.file = Some(fd);
        object.flagged = shape.flags != 0;
        self.workset.hold(ix);
        Ok((node_of(ix), Attr::from(&stat)))
    }
}

fn make<O: Os>(
    workset: &mut Workset<O>,
    dir: Node,
    name: &[u8],
    new: New<'_>,
    mode: u32,
    caller: Caller,
) -> Verb<(Node, Attr)> {
    let dir = workset.ix(dir);
    if workset.find_to_change(dir, name)?.is_some() {
        return Err(Errno::EXIST.into());
    }
    workset.may_create_in(dir, name)?;
    let user = workset.sub_area_user(name);
    if user.is_some_and(|uid| uid != caller.uid || !matches!(new, New::Directory)) {
        return Err(Errno::ACCESS.into());
    }
    let hidden = user.is_some();
    let mount = usize::from(workset.object(dir).mount);
    let in_slot = hidden || !workset.object(dir).is_staged();
    let birth = if in_slot { Birth::Entry } else { Birth::Directory };
    let mut shape = shape(workset, dir, new, mode, caller, birth)?;
    if hidden {
        // Root finishes it as its owner and group (`finish_sub_areas`). Only a group that the caller has may be that.
        (shape.gid, shape.mode) = (caller.gid, shape.mode & !SETGID);
    } else if in_slot {
        shape.flags = workset.flags_for_new(dir, new.kind())?;
    }
    workset.before_change(dir)?;
    let (spot, slot) = workset.new_spot(dir, name)?;
    let (fd, stat) = make_at(workset, &spot, new, &shape)?;
    let ix = workset.staged_node(mount, &stat)?;
    workset.object_mut(ix).flagged = shape.flags != 0;
    if fd.is_some() {
        workset.object_mut(ix).file = fd;
        workset.hold(ix);
    }
    workset.name(dir, name, ix, slot);
    workset.note_act(|| Act::Added(dir, name.into()));
    if !hidden {
        workset.touch(dir, Change::Real)?;
    }
    Ok((node_of(ix), Attr::from(&stat)))
}

/// Where a new object is made.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Birth {
    /// In a staging entry, which passes nothing on.
    Entry,
    /// In its directory, which is staged and passes on what it has.
    Directory,
}

/// Owner, mode and lists of a new object (inode_init_owner and posix_acl_create in linux/fs).
fn shape<O: Os>(
    workset: &mut Workset<O>,
    dir: Ix,
    new: New<'_>,
    mode: u32,
    caller: Caller,
    birth: Birth,
) -> Verb<Shape> {
    let parent = workset.attr(dir)?;
    let is_dir = matches!(new, New::Directory);
    let mut mode = mode & if is_dir { 0o1777 } else { 0o7777 };
    let inherits_group = parent.mode & SETGID != 0;
    let gid = if inherits_group { parent.gid } else { caller.gid };
    let stranger = caller.uid != 0 && caller.gid != gid;
    if inherits_group && !is_dir && stranger && mode & (SETGID | GROUP_EXECUTE) == SETGID | GROUP_EXECUTE {
        mode &= !SETGID;
    }
    let default = match new {
        New::Symlink(_) => None,
        _ => workset.default_acl(dir)?,
    };
    let mut shape =
        Shape { uid: caller.uid, gid, mode, access: None, default: None, make_with: mode, flags: 0 };
    match (&default, new) {
        (_, New::Symlink(_)) => {}
        (None, _) => {
            shape.mode = mode & !caller.umask;
            shape.make_with = shape.mode;
        }
        (Some(list), _) => {
            let inherited = acl::inherit(list, mode);
            shape.mode = inherited.mode;
            if birth == Birth::Entry {
                shape.make_with = inherited.mode;
                shape.access = inherited.access;
                shape.default = is_dir.then(|| Acl::bytes(list));
            }
        }
    }
    if is_dir && inherits_group {
        shape.mode |= SETGID;
    }
    Ok(shape)
}

fn make_at<O: Os>(
    workset: &mut Workset<O>,
    spot: &Spot<O>,
    new: New<'_>,
    shape: &Shape,
) -> Verb<(Option<Arc<O::Fd>>, Stat)> {
    let os = workset.os().clone();
    let (dir, name) = (&*spot.dir, &*spot.name);
    let kind = match new {
        New::File => {
            let fd = Arc::new(os.create(dir, name, shape.make_with)?);
            return match finish(workset, &fd, shape, FileType::File) {
                Ok(stat) => Ok((Some(fd), stat)),
                Err(e) => Err(undo(e, || os.unlink(dir, name))),
            };
        }
        New::Directory => os.mkdir(dir, name, shape.make_with).map(|()| FileType::Directory)?,
        New::Special(kind, rdev) => {
            os.mknod(dir, name, kind.mode_bits() | shape.make_with, rdev).map(|()| kind)?
        }
        New::Symlink(target) => os.symlink(dir, name, target).map(|()| FileType::Symlink)?,
    };
    let done = (|| -> Verb<Stat> {
        let stat = os.stat_at(dir, name)?;
        if is_finished(&stat, shape, kind) {
            return Ok(stat);
        }
        let fd = os.open(dir, name, Open::Path)?;
        finish(workset, &fd, shape, kind)
    })();
    match done {
        Ok(stat) => Ok((None, stat)),
        Err(e) if kind == FileType::Directory => Err(undo(e, || os.rmdir(dir, name))),
        Err(e) => Err(undo(e, || os.unlink(dir, name))),
    }
}

fn is_finished(stat: &Stat, shape: &Shape, kind: FileType) -> bool {
    (stat.uid, stat.gid) == (shape.uid, shape.gid)
        && (kind == FileType::Symlink || stat.perm() == shape.mode)
        && shape.access.is_none()
        && shape.default.is_none()
        && shape.flags == 0
}

/// Gives a new object what making it did not.
fn finish<O: Os>(workset: &Workset<O>, fd: &O::Fd, shape: &Shape, kind: FileType) -> Verb<Stat> {
    let mut stat = workset.os().stat(fd)?;
    if is_finished(&stat, shape, kind) {
        return Ok(stat);
    }
    if shape.flags != 0 {
        // Of an empty one: some mean nothing later. Those that this user may not set, though the kernel
        // passes them on, can't be had.
        workset.os().add_inode_flags(fd, shape.flags).map_err(|_| Errno::OPNOTSUPP)?;
    }
    if (stat.uid, stat.gid) != (shape.uid, shape.gid) {
        workset.os().chown(fd, shape.uid, shape.gid)?;
    }
    for (name, value) in [(acl::DEFAULT, &shape.default), (acl::ACCESS, &shape.access)] {
        if let Some(value) = value {
            workset.os().setxattr(fd, name, value, SetXattr::Any)?;
        }
    }
    stat = workset.os().stat(fd)?;
    if kind != FileType::Symlink && stat.perm() != shape.mode {
        workset.os().chmod(fd, shape.mode)?;
        stat = workset.os().stat(fd)?;
    }
    Ok(stat)
}

/// Removes what could not be finished; the first error counts.
fn undo(error: VerbError, remove: impl FnOnce() -> Result<(), Errno>) -> VerbError {
    let _ = remove();
    error
}
