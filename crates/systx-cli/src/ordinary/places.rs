//! The places where an ordinary user can change anything: a run over the whole tree serves them.
//!
//! Owns: the choice of these directories. Guarantees: a bounded number of paths is looked at, each once, and
//! no directory is listed: the places that the environment names for programs, those where files are usually
//! made, the working directory, mounts, and places of earlier runs. A place is the topmost directory of the
//! user on the way there, or one of root's in which all may make names and only owners remove them (the
//! sticky bit). Does not: find other directories of the user; they are read-only inside.
//!
//! To be asked before a user namespace is entered: inside, root looks like any other user.

use super::remembered;
use crate::failure::{LeftOut, Result};
use crate::tree::owned::way;
use crate::tree::{self, is_below};
use crate::words::shown;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use systx_os::sandbox::mounts::Mount;
use systx_os::{Linux, Os};
use systx_places::register::HABITUAL;
use systx_places::site::is_open_to_all;

/// Variables that say where programs keep files.
const TOLD_BY: [&str; 7] = [
    "HOME",
    "TMPDIR",
    "XDG_RUNTIME_DIR",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
];
/// Directories of the home where programs keep files without such a variable, for a home that can't be served
/// as a whole.
const IN_HOME: [&str; 3] = [".cache", ".config", ".local"];

/// Places, and those that can't be served.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// Paths without symbolic links, none below another one.
    pub found: Vec<Vec<u8>>,
    /// Those that can't be served.
    pub left_out: Vec<LeftOut>,
}

/// Looks for them.
pub fn places(table: &[Mount]) -> Places {
    let mut places = Places::default();
    for dir in candidates(table) {
        match place_of(table, &dir) {
            Some(Ok(place)) => places.found.push(place),
            Some(Err(why)) => places.left_out.push(LeftOut { point: dir, why }),
            None => {}
        }
    }
    places.found.sort();
    places.found.dedup_by(|below, top| is_below(below, top).is_some());
    // A directory in a place is served with it.
    let found = &places.found;
    places.left_out.retain(|out| !found.iter().any(|top| is_below(&out.point, top).is_some()));
    places
}

/// Directories to be looked at, without symbolic links, each once.
fn candidates(table: &[Mount]) -> Vec<Vec<u8>> {
    let uid = Linux::new().uid();
    let told = TOLD_BY.iter().filter_map(std::env::var_os).map(PathBuf::from);
    let home = home_of(uid).or_else(|| std::env::var_os("HOME").map(PathBuf::from));
    let in_home = home.iter().flat_map(|home| IN_HOME.iter().map(|name| home.join(name)));
    let usual = HABITUAL.iter().map(PathBuf::from).chain([PathBuf::from(format!("/run/user/{uid}"))]);
    let mounts = table.iter().filter(|mount| tree::can_be_served(mount).is_ok());
    let mounts = mounts.map(|mount| PathBuf::from(OsStr::from_bytes(&mount.point)));
    let noted = remembered().into_iter().map(|dir| PathBuf::from(OsStr::from_bytes(&dir)));
    let here = std::env::current_dir().into_iter();
    let all = told.chain(home.clone()).chain(in_home).chain(usual).chain(mounts).chain(noted).chain(here);
    let found = all.filter(|dir| dir.is_absolute()).filter_map(|dir| dir.canonicalize().ok());
    let mut found: Vec<_> = found.filter(|dir| dir.is_dir()).map(bytes).collect();
    found.sort();
    found.dedup();
    found
}

fn bytes(path: PathBuf) -> Vec<u8> {
    path.into_os_string().as_bytes().to_vec()
}

/// Returns the home by /etc/passwd. Names that only a network knows are not asked for: HOME gives those
/// users' homes.
fn home_of(uid: u32) -> Option<PathBuf> {
    let users = std::fs::read("/etc/passwd").ok()?;
    home_in(&users, uid).map(|home| Path::new(OsStr::from_bytes(home)).into())
}

fn home_in(users: &[u8], uid: u32) -> Option<&[u8]> {
    users.split(|b| *b == b'\n').find_map(|line| {
        let fields: Vec<_> = line.split(|b| *b == b':').collect();
        let number: u32 = core::str::from_utf8(fields.get(2)?).ok()?.parse().ok()?;
        (number == uid).then_some(*fields.get(5)?)
    })
}

/// Returns the topmost place on the way to a directory, on its file system, below which no mount lies that
/// the kernel would not let the user copy. `None`: no directory on that way is the user's or open to all.
fn place_of(table: &[Mount], dir: &[u8]) -> Option<Result<Vec<u8>>> {
    let mount = super::mount_of(table, dir)?;
    let device = look(dir)?.dev();
    let is_place = |path: &&[u8]| look(path).is_some_and(|m| m.dev() == device && is_open_to_him(&m));
    let on_the_way: Vec<_> = way(dir, &mount.point).filter(is_place).collect();
    let top = on_the_way.first()?;
    if let Err(why) = tree::can_be_served(&mount) {
        return Some(Err(why));
    }
    let bears = |path: &[u8]| table.iter().find(|m| m.point != path && is_below(&m.point, path).is_some());
    match on_the_way.iter().find(|path| bears(path).is_none()) {
        Some(place) => Some(Ok(place.to_vec())),
        None => {
            let what = bears(top).map_or_else(String::new, |mount| shown(&mount.point));
            Some(Err(format!("{what} is mounted below it, so only root can serve it").into()))
        }
    }
}

fn look(path: &[u8]) -> Option<std::fs::Metadata> {
    std::fs::symlink_metadata(OsStr::from_bytes(path)).ok()
}

/// Returns true if the user can make names in a directory and keep them: it is the user's, or root's and open
/// to all.
fn is_open_to_him(dir: &std::fs::Metadata) -> bool {
    dir.uid() == Linux::new().uid() || (dir.uid() == 0 && is_open_to_all(dir.mode()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_is_found_by_its_users_number() {
        let users = b"root:x:0:0:root:/root:/bin/sh\nbroken\nu:x:1000:100:U,,,:/home/u:/bin/sh\n";
        assert_eq!(home_in(users, 1000), Some(&b"/home/u"[..]));
        assert_eq!(home_in(users, 100), None, "that is a group");
        assert_eq!(home_in(b"", 0), None);
    }
}
