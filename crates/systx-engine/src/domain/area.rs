//! The area of a domain: the directory that holds its log, its table, its staging entries and conflict
//! copies.
//!
//! Owns: the directory, its subdirectories `tx` and `aside`, and the file `format`. Guarantees: an open area
//! is a real directory of this user that no other can enter, in a format that this version understands. Does
//! not: choose where it is, nor remove anything but its own temporary files; root moves another user's object
//! in its place aside.

use super::identity;
use super::identity::AreaError;
use super::identity::{FORMAT, TEMPORARY};
use crate::acl;
use crate::id::AreaId;
use crate::objects::{Bounds, Top};
use std::sync::Arc;
use systx_os::{Errno, FileType, FsInfo, Open, Os, Rename, Stat};

/// `<area>.foreign-<number>`: what another user had put there.
const FOREIGN: &[u8] = b".foreign-";
/// S_IWOTH.
const WRITABLE_FOR_ALL: u32 = 0o002;
/// How often an opening looks again for what it finds changed under its hands: another user may put something
/// there and take it away.
const LOOKS_MAX: u32 = 1000;

/// Where a domain is to be opened.
pub struct Location<'a, O: Os> {
    /// Root of the mount.
    pub root: Arc<O::Fd>,
    /// How far handles may lead from there.
    pub bounds: Bounds,
    /// Directory of the area.
    pub parent: &'a O::Fd,
    /// Name of the area.
    pub name: &'a [u8],
}

/// An open area.
pub struct Area<O: Os> {
    /// The top directory.
    pub(crate) root: Top<O>,
    /// The area.
    pub dir: O::Fd,
    /// Which it is.
    pub id: AreaId,
    /// Properties of the file system.
    pub info: FsInfo,
    /// `tx/`: a directory a transaction.
    pub tx: Arc<O::Fd>,
    /// `aside/`: displaced objects.
    pub aside: O::Fd,
    /// Where another user's object went that had the area's name.
    pub moved: Option<Vec<u8>>,
    /// The directory and the name that it was opened by.
    pub(super) place: (O::Fd, Vec<u8>),
}

/// The treatment of a missing area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Make {
    /// It is made, or its making is finished.
    IfMissing,
    /// It is not.
    Never,
}

fn failed(what: &'static str) -> impl Fn(Errno) -> AreaError {
    move |e| AreaError::Os(what, e)
}

impl<O: Os> Area<O> {
    /// Opens the area `name` in `parent`; or makes it, or finishes making it, if asked for. `None`: there is
    /// none (or one that was never finished).
    ///
    /// # Errors
    ///
    /// [`AreaError`]; no foreign object is touched.
    pub fn open(os: &O, site: &Location<'_, O>, missing: Make) -> Result<Option<Area<O>>, AreaError> {
        let Location { parent, name, .. } = *site;
        let moved = if missing == Make::IfMissing { make_directory(os, parent, name)? } else { None };
        let dir = match os.open(parent, name, Open::Directory) {
            Err(Errno::NOENT) if missing == Make::Never => return Ok(None),
            // A symbolic link is never followed.
            Err(Errno::LOOP | Errno::NOTDIR) => return Err(AreaError::NotADirectory),
            // One's own opens.
            Err(Errno::ACCESS) => match os.stat_at(parent, name) {
                Ok(stat) if stat.uid != os.uid() => return Err(AreaError::Owner(stat.uid)),
                _ => return Err(AreaError::Os("open the directory", Errno::ACCESS)),
            },
            opened => opened.map_err(failed("open the directory"))?,
        };
        check(os, &dir)?;
        // To probe takes room, which others may have filled.
        if missing == Make::Never && os.stat_at(&dir, FORMAT) == Err(Errno::NOENT) {
            return Ok(None);
        }
        let mut info = os.fs_info(&dir).map_err(failed("probe the file system"))?;
        let bounds = if info.open_by_handle { site.bounds } else { Bounds::Directory };
        let root = Top::new(os, site.root.clone(), bounds, info.kind);
        let root = root.map_err(failed("look at the directory"))?;
        info.open_by_handle &= root.takes_handles();
        let mut id = identity::of_area(os, &dir, &info)?;
        if id.is_none() && missing == Make::IfMissing {
            make(os, parent, &dir, &info)?;
            id = identity::of_area(os, &dir, &info)?;
        }
        let Some(id) = id else { return Ok(None) };
        // A program that tidies a directory like /tmp removes empty ones that were not used for long.
        for name in [&b"tx"[..], b"aside"] {
            if os.stat_at(&dir, name) == Err(Errno::NOENT) {
                made(os.mkdir(&dir, name, 0o700)).map_err(failed("make the directories"))?;
            }
        }
        let tx = os.open(&dir, b"tx", Open::Directory).map_err(failed("open the directory `tx`"))?;
        let aside = os.open(&dir, b"aside", Open::Directory).map_err(failed("open the directory `aside`"))?;
        let place = (os.dup(parent).map_err(failed("keep open the directory of"))?, name.to_vec());
        Ok(Some(Area { root, dir, id, info, tx: Arc::new(tx), aside, moved, place }))
    }
}

/// Makes the directory, if there is none. Returns what another user's object that had its name is called now.
fn make_directory<O: Os>(os: &O, parent: &O::Fd, name: &[u8]) -> Result<Option<Vec<u8>>, AreaError> {
    for _ in 0..LOOKS_MAX {
        match os.mkdir(parent, name, 0o700) {
            Err(Errno::EXIST) => {}
            made => return made.map(|()| None).map_err(failed("make the directory")),
        }
        match take_over(os, parent, name)? {
            TakenOver::No => return Ok(None),
            TakenOver::Moved(to) => return Ok(Some(to)),
            TakenOver::LookAgain => {}
        }
    }
    Ok(None)
}

/// What has become of an object that has the area's name.
enum TakenOver {
    /// It is no other user's.
    No,
    /// It is under this name, and a new directory has the area's.
    Moved(Vec<u8>),
    /// It has gone meanwhile.
    LookAgain,
}

/// Puts a new directory in the place of what another user has put where root's area belongs, so that nobody
/// who may make names there, as all may in /tmp, can keep root from it. That is one exchange of two names:
/// between moving the one away and making the other the user could come again.
///
/// What is moved is not looked into, and a symbolic link is moved itself. Where anybody may make names,
/// anybody may have given the name to a file of root's, too: to have one at hand takes no right to it.
fn take_over<O: Os>(os: &O, parent: &O::Fd, name: &[u8]) -> Result<TakenOver, AreaError> {
    let found = |name: &[u8]| match os.stat_at(parent, name) {
        Err(Errno::NOENT) => Ok(None),
        stat => stat.map(Some).map_err(failed("look at what has the name")),
    };
    let open_to_all =
        os.uid() == 0 && os.stat(parent).is_ok_and(|parent| parent.perm() & WRITABLE_FOR_ALL != 0);
    let is_foreign = |stat: &Stat| stat.uid != 0 || (open_to_all && stat.kind() != FileType::Directory);
    match found(name)? {
        _ if os.uid() != 0 => return Ok(TakenOver::No),
        None => return Ok(TakenOver::LookAgain),
        Some(stat) if !is_foreign(&stat) => return Ok(TakenOver::No),
        Some(_) => {}
    }
    // A number that can't be guessed: this name can't be taken first, too.
    let to = [name, FOREIGN, format!("{:016x}", os.random()).as_bytes()].concat();
    os.mkdir(parent, &to, 0o700).map_err(failed("make the directory"))?;
    let exchanged = os.rename((parent, &to), (parent, name), Rename::Exchange);
    if exchanged.is_err() {
        let _ = os.rmdir(parent, &to);
    }
    match exchanged {
        Err(Errno::NOENT) => return Ok(TakenOver::LookAgain),
        exchanged => exchanged.map_err(failed("move away another user's object that has the name"))?,
    }
    // Between the look and the exchange another process of root may have done all of this, and made the area.
    if found(&to)?.is_some_and(|stat| !is_foreign(&stat)) {
        let back = os.rename((parent, &to), (parent, name), Rename::Exchange);
        back.map_err(failed("put back the directory"))?;
        // Unless somebody has begun to work in it.
        let _ = os.rmdir(parent, &to);
        return Ok(TakenOver::No);
    }
    Ok(TakenOver::Moved(to))
}

fn check<O: Os>(os: &O, dir: &O::Fd) -> Result<(), AreaError> {
    let stat = os.stat(dir).map_err(failed("look at the directory"))?;
    if stat.kind() != FileType::Directory {
        return Err(AreaError::NotADirectory);
    }
    if stat.uid != os.uid() {
        return Err(AreaError::Owner(stat.uid));
    }
    if stat.perm() & 0o077 != 0 {
        return Err(AreaError::Mode(stat.perm()));
    }
    Ok(())
}

/// Makes everything in the area; `format` last, so that an area without it is one that was never used.
fn make<O: Os>(os: &O, parent: &O::Fd, dir: &O::Fd, info: &FsInfo) -> Result<(), AreaError> {
    let used = identity::without_format(os, dir)?;
    inherit_nothing(os, dir)?;
    made(os.mkdir(dir, b"tx", 0o700)).map_err(failed("make the directory `tx`"))?;
    made(os.mkdir(dir, b"aside", 0o700)).map_err(failed("make the directory `aside`"))?;
    // A process may have been killed between making it and the first line.
    for name in [&b"tx"[..], b"aside"] {
        inherit_nothing(os, &os.open(dir, name, Open::Directory).map_err(failed("open the directories"))?)?;
    }
    loop {
        let temporary = [TEMPORARY, format!("{:016x}", os.random()).as_bytes()].concat();
        identity::write_new(os, dir, &temporary, info, used)?;
        match os.rename((dir, &temporary), (dir, FORMAT), Rename::NoReplace) {
            Ok(()) => break,
            // Another process was faster. Its file is complete, and read as if found.
            Err(Errno::EXIST) => {
                let _ = os.unlink(dir, &temporary);
                break;
            }
            // A faster process has swept ours away, below.
            Err(Errno::NOENT) => {}
            Err(e) => return Err(AreaError::Os("name the file `format`", e)),
        }
    }
    // Left by those who died here. One that still works on it finds its file gone and looks again.
    for entry in os.read_dir(dir).map_err(failed("list the directory"))? {
        if entry.name.starts_with(TEMPORARY) {
            let _ = os.unlink(dir, &entry.name);
        }
    }
    os.fsync(dir).map_err(failed("sync the directory"))?;
    // The parent may be open by identity only, or unreadable for us; then the whole file system goes.
    os.fsync(parent).or_else(|_| os.syncfs(dir)).map_err(failed("sync the directory"))
}

/// Takes the default ACL away that a directory got from the one that it was made in: else what is staged in
/// it would have that list, and let in whom the directory that it is for does not.
fn inherit_nothing<O: Os>(os: &O, dir: &O::Fd) -> Result<(), AreaError> {
    match os.removexattr(dir, acl::DEFAULT) {
        Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(()),
        Err(e) => Err(AreaError::Os("take the inherited default ACL", e)),
    }
}

/// Another process may have made it meanwhile.
fn made(result: systx_os::Result<()>) -> systx_os::Result<()> {
    match result {
        Err(Errno::EXIST) => Ok(()),
        other => other,
    }
}
