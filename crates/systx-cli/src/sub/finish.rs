//! The end of a transaction's subtransactions: what was cut off in them is finished, or the outer one does not commit.

use crate::failure::{failed, verb_failed, Result};
use crate::logging::{self, Role};
use crate::report::Ending;
use crate::words::shown;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use systx_engine::domain::{Bounds, Location};
use systx_engine::outcome::VerbError;
use systx_engine::transaction::Transaction;
use systx_engine::upkeep::{finish_sub_areas, Remains};
use systx_os::fuse::EventFd;
use systx_os::sandbox::mounts::Detached;
use systx_os::sandbox::own;
use systx_os::sandbox::spawn::Last;
use systx_os::{Errno, Linux, Open, Os, Stat};
use systx_view::SUB_AREAS_ATTRIBUTE;

/// Returns the work of pid 1 at the end of a transaction.
pub fn last(views: &[OwnedFd], due: EventFd) -> Result<Last> {
    let views: Result<Vec<_>, _> = views.iter().map(OwnedFd::try_clone).collect();
    let views = views.map_err(failed("copying the descriptor of a view"))?;
    let keep = views.iter().map(AsRawFd::as_raw_fd).collect();
    let work = Box::new(move || {
        logging::enter(Role::Init);
        match finish(&views) {
            Ok(()) => true,
            Err(why) => {
                eprintln!("systx: subtransactions: {why}.");
                false
            }
        }
    });
    Ok(Last { due, keep, work })
}

/// Areas of another user that are finished; further ones are set aside. Each takes some 25 ms, and that user
/// could make any number of them to hold up the end of this transaction.
const AREAS_OF_OTHERS_MAX: usize = 1024;

/// An area of subtransactions.
struct Site {
    /// The directory that it is in, open for reading: the kernel finds objects by handle from no other.
    dir: Arc<OwnedFd>,
    name: Vec<u8>,
    /// Owner of the area.
    uid: u32,
    gid: u32,
}

impl Site {
    /// This process may have root's rights, and nothing above the directory of an area is an inner one's.
    fn location(&self) -> Location<'_, Linux> {
        Location { root: self.dir.clone(), bounds: Bounds::Directory, parent: &*self.dir, name: &self.name }
    }
}

/// Finishes the subtransactions of the transaction that has these views. No program is left inside.
fn finish(views: &[OwnedFd]) -> Result<()> {
    let os = Linux::new();
    systx_os::linux::prove_nothing();
    // With fewer descriptors a large publication may fail, and with it the outer transaction.
    let _ = systx_os::linux::raise_nofile_limit();
    let mut sites: Vec<Site> = Vec::new();
    for view in views {
        // On a mount of our own: what the command has mounted there is none of ours.
        let copy = Detached::of_mount(view).map_err(failed("copying a mount"))?;
        for path in areas(&copy).map_err(failed("asking for its areas"))? {
            match site(&os, &copy.root, &path) {
                Ok(site) => sites.push(site),
                // It stays, and the transaction knows its user.
                Err(e) => eprintln!("systx: subtransactions: {}: {e}.", shown(&path)),
            }
        }
    }
    let mut users: Vec<_> = sites.iter().map(|site| (site.uid, site.gid)).collect();
    users.sort_unstable();
    users.dedup_by_key(|(uid, _)| *uid);
    for (uid, gid) in users {
        let theirs: Vec<_> = sites.iter().filter(|site| site.uid == uid).collect();
        if uid != os.uid() {
            // Only its own user may finish another user's area. If that fails, `set_aside` follows.
            let theirs = &theirs[..theirs.len().min(AREAS_OF_OTHERS_MAX)];
            own::as_user(uid, gid, || finish_of_one(&os, theirs)).map_err(failed("becoming its user"))?;
        } else if !finish_of_one(&os, &theirs) {
            return Err("what they have left could not be finished".into());
        }
    }
    Ok(())
}

/// Returns the paths of all areas of a view.
fn areas(view: &Detached) -> Result<Vec<Vec<u8>>, Errno> {
    let (mut areas, mut told) = (Vec::new(), 0);
    loop {
        let page = view.attribute(&format!("{SUB_AREAS_ATTRIBUTE}{told}"))?;
        let paths: Vec<_> =
            page.split_inclusive(|byte| *byte == 0).map(|path| &path[..path.len() - 1]).collect();
        if paths.is_empty() {
            return Ok(areas);
        }
        told += paths.len();
        areas.extend(paths.into_iter().filter(|path| !path.is_empty()).map(<[u8]>::to_vec));
    }
}

/// Makes what other users' subtransactions could not finish ordinary directories, and returns a warning about
/// them. An area of this user stays, and keeps the transaction from committing.
///
/// # Errors
/// The ending of a transaction that can't commit.
pub fn set_aside(tx: &mut Transaction<Linux>) -> Result<Option<String>, Ending> {
    let left = tx.set_aside_sub_areas().map_err(|error| match error {
        VerbError::Doomed(conflict) => Ending::Conflict(*conflict),
        error => Ending::Failed(verb_failed("setting aside what a subtransaction has left", error)),
    })?;
    let Some((uid, path)) = left.first() else { return Ok(None) };
    let more = match left.len() - 1 {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    Ok(Some(format!(
        "a subtransaction of user {uid} could not be finished: what is left of it is {}{more} now. Part of its changes may be missing",
        shown(path)
    )))
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

/// Finishes the areas of one user, and reports what the user has to know; true if all is done.
fn finish_of_one(os: &Linux, sites: &[&Site]) -> bool {
    let locations: Vec<_> = sites.iter().map(|site| site.location()).collect();
    match finish_sub_areas(os, &locations) {
        Ok(kept) => {
            for Remains { name, .. } in kept {
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
