//! `systx run --sub`: a transaction inside of one, which commits into it, or leaves it as it was.
//!
//! Owns: what is around it, what is refused there, and how an outer transaction ends its inner ones. The view of the outer one is a
//! file system like others to the inner one: it makes its view over it, and its area in it, which the outer one's engine keeps apart
//! from everything else. Guarantees: when the outer one commits, each inner one is part of it as a whole or not at all, however it
//! ended. Does not: know how a transaction works; an inner one is one.

use crate::args::{DurabilityArg, Run};
use crate::report::shown;
use crate::run::failed;
use crate::{network, session, undo};
use std::ffi::OsStr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use systx_engine::domain::{finish_sub_areas, Location};
use systx_os::fuse::EventFd;
use systx_os::sandbox::mounts::{self, Detached, Mount};
use systx_os::sandbox::own;
use systx_os::sandbox::spawn::Last;
use systx_os::{Errno, Linux, Open, Os, Stat};
use systx_view::{DEPTH_ATTRIBUTE, ID_ATTRIBUTE, SUB_AREAS_ATTRIBUTE};

/// So many transactions may lie in one another. Each has namespaces of its own, of which the kernel allows 32 in one another.
pub const DEPTH_MAX: u32 = 8;

/// Where this process is.
pub struct Around {
    /// Where its views are mounted.
    points: Vec<Vec<u8>>,
    /// How many transactions deep that is; `None`: it takes no inner ones.
    depth: Option<u32>,
}

/// The transaction that this process is inside of: then some mount is a view that answers.
///
/// Neither the name of a mount is proof, since any user may give it to his own, nor the environment, since any program may
/// set it. What root mounted as a view, and what answers with a transaction's number, is one.
pub fn around(table: &[Mount]) -> Option<Around> {
    let uid = Linux::new().uid();
    let mounted_by = |mount: &Mount| mount.user_id.is_some_and(|id| id == 0 || id == uid);
    let views = table.iter().filter(|m| m.fs_type == b"fuse.systx" && m.source == b"systx" && mounted_by(m));
    let mut around: Option<Around> = None;
    for view in views.filter(|m| mounts::look(&m.point).is_ok_and(|found| found.mount_id == m.id)) {
        let number = |name| {
            let answer = mounts::attribute(&view.point, name, NUMBER_BYTES_MAX).ok()?;
            std::str::from_utf8(&answer).ok()?.parse::<u64>().ok()
        };
        if number(ID_ATTRIBUTE).is_some() {
            let depth = number(DEPTH_ATTRIBUTE).and_then(|depth| u32::try_from(depth).ok());
            let around = around.get_or_insert(Around { points: Vec::new(), depth });
            around.depth = around.depth.zip(depth).map(|(one, other)| one.max(other));
            around.points.push(view.point.clone());
        }
    }
    around
}

/// In decimal.
const NUMBER_BYTES_MAX: usize = 20;

/// What a transaction's view is called in the mount table that its subtransactions are planned by. No file system of the kernel's has
/// this name.
pub const VIEW: &[u8] = b"systx";
/// The same of what the outer transaction has left as it is.
pub const NATIVE: &[u8] = b"systx.native";

impl Around {
    /// How many transactions deep an inner one will be.
    pub fn depth_inside(&self) -> u32 {
        1 + self.depth.unwrap_or(1)
    }

    /// The mount table with the views as what is to be served, and everything else as what is not.
    pub fn table(&self, mut table: Vec<Mount>) -> Vec<Mount> {
        for mount in &mut table {
            let is_new_inside =
                matches!(mount.fs_type.as_slice(), b"proc" | b"mqueue") || mount.point == b"/dev/shm";
            if self.points.contains(&mount.point) && mount.fs_type == b"fuse.systx" {
                mount.fs_type = VIEW.to_vec();
            } else if !is_new_inside {
                mount.fs_type = NATIVE.to_vec();
            }
        }
        table
    }

    /// What is meant by the options of an inner one.
    pub fn run(&self, args: &Run) -> Result<Run, String> {
        if let Some(why) = is_the_outermost_ones(args) {
            return Err(why.into());
        }
        let leave_it = "leave --sub out, and it joins the one around it";
        match self.depth {
            None => {
                return Err(format!(
                    "a transaction of isolation `committed` has no subtransactions; {leave_it}"
                ))
            }
            Some(DEPTH_MAX..) => {
                return Err(format!(
                    "this would be more than {DEPTH_MAX} transactions in one another; {leave_it}"
                ))
            }
            Some(_) => {}
        }
        systx_os::linux::prove_nothing();
        let mut run = args.clone();
        // Whether it survives is up to the outer one, where a sync does nothing. But only a log makes one of several file systems.
        run.promise.durability = DurabilityArg::Durable;
        run.area.is_in_view = true;
        if run.only.is_empty() && !self.points.iter().any(|point| point == b"/") {
            run.only = self.points.iter().map(|point| PathBuf::from(OsStr::from_bytes(point))).collect();
        }
        Ok(run)
    }
}

/// Why the options are none of a run inside of a transaction, joined or not: they are of the outermost one alone.
pub fn is_the_outermost_ones(args: &Run) -> Option<&'static str> {
    if session::kept::Keep::of(args).is_some() {
        return Some(session::kept::PART_OF_ANOTHER);
    }
    if args.network.policy().is_some() {
        return Some(network::PART_OF_ANOTHER);
    }
    args.undoable.undoable.then_some(undo::PART_OF_ANOTHER)
}

/// What pid 1 of a transaction does at its end.
pub fn last(views: &[OwnedFd], due: EventFd) -> Result<Last, String> {
    let views: Result<Vec<_>, _> = views.iter().map(OwnedFd::try_clone).collect();
    let views = views.map_err(|e| e.to_string())?;
    let keep = views.iter().map(AsRawFd::as_raw_fd).collect();
    let work = Box::new(move || match finish(&views) {
        Ok(()) => true,
        Err(why) => {
            eprintln!("systx: subtransactions: {why}.");
            false
        }
    });
    Ok(Last { due, keep, work })
}

/// An area of subtransactions.
struct Site {
    /// The directory that it is in, open for reading: the kernel finds objects by handle from no other.
    dir: Arc<OwnedFd>,
    name: Vec<u8>,
    /// Whose it is.
    uid: u32,
    gid: u32,
}

impl Site {
    fn location(&self) -> Location<'_, Linux> {
        Location { root: self.dir.clone(), parent: &*self.dir, name: &self.name }
    }
}

/// Finishes the subtransactions of the transaction that has these views. Nobody is left in there.
fn finish(views: &[OwnedFd]) -> Result<(), String> {
    let os = Linux::new();
    systx_os::linux::prove_nothing();
    // It may have root's rights, and nothing above the directory of an area is an inner one's.
    systx_os::linux::find_by_path();
    // With fewer descriptors a large publication may fail, and with it the outer transaction.
    let _ = systx_os::linux::raise_nofile_limit();
    let mut sites: Vec<Site> = Vec::new();
    for view in views {
        // On a mount of our own: what the command has mounted there is none of ours.
        let copy = Detached::of_mount(view).map_err(failed("copying a mount"))?;
        let paths = copy.attribute(SUB_AREAS_ATTRIBUTE).map_err(failed("asking for its areas"))?;
        for path in paths.split(|byte| *byte == 0).filter(|path| !path.is_empty()) {
            sites.push(site(&os, &copy.root, path).map_err(|e| format!("{}: {e}", shown(path)))?);
        }
    }
    let mut users: Vec<_> = sites.iter().map(|site| (site.uid, site.gid)).collect();
    users.sort_unstable();
    users.dedup_by_key(|(uid, _)| *uid);
    for (uid, gid) in users {
        let theirs: Vec<_> = sites.iter().filter(|site| site.uid == uid).collect();
        let done = match uid == os.uid() {
            true => finish_of_one(&os, &theirs),
            // What is another user's only he may finish.
            false => {
                own::as_user(uid, gid, || finish_of_one(&os, &theirs)).map_err(failed("becoming its user"))?
            }
        };
        if !done {
            return Err(format!("what user {uid} has left could not be finished"));
        }
    }
    Ok(())
}

fn site(os: &Linux, root: &OwnedFd, path: &[u8]) -> Result<Site, Errno> {
    let mut names: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
    let name = names.pop().unwrap_or_default().to_vec();
    let mut dir = os.dup(root)?;
    for name in names {
        dir = os.open(&dir, name, Open::Path)?;
    }
    let dir = Arc::new(os.reopen(&dir, Open::Directory)?);
    let Stat { uid, gid, .. } = os.stat_at(&dir, &name)?;
    Ok(Site { dir, name, uid, gid })
}

/// Finishes what is in the areas of one user, and says what he has to know; whether all is done.
fn finish_of_one(os: &Linux, sites: &[&Site]) -> bool {
    let locations: Vec<_> = sites.iter().map(|site| site.location()).collect();
    match finish_sub_areas(os, &locations) {
        Ok(kept) => {
            for (_, name) in kept {
                eprintln!("systx: what a subtransaction has displaced is {name} now, at the top of what it has served.");
            }
            true
        }
        Err(why) => {
            eprintln!("systx: a subtransaction that was cut off: {why}.");
            false
        }
    }
}
