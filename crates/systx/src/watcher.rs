//! The watcher: a process that finishes for those of a user's that die in a commit, so that nothing has to wait for the
//! next use of systx.
//!
//! Owns: its start by a process of the library ([`Starter`]), and its life ([`watch`]). Guarantees: an area has one at
//! most; it is there from before the first commit of a process until no owner of the area is left; it sees
//! each death, in whatever process namespace, by the close of the file `owners`. Where none can be started, the next use
//! of systx finishes. Does not: hold a file system open that has been unmounted, or a domain between two deaths.

use crate::kernel::Kernel;
use crate::served::{Open, Served};
use std::collections::BTreeSet;
use std::ffi::{CString, OsStr};
use std::fs::Metadata;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use systx_engine::domain::Attendant;
use systx_os::caller::fs_uid;
use systx_os::guest::GuestFd;
use systx_os::notice::Notices;
use systx_os::sandbox::mounts::{self, Detached};
use systx_os::sandbox::vigil::{Vigil, Woken};
use systx_os::{stranger, Errno, Guest, Linux, Open as How, Os};
use systx_places::area_name;
use systx_places::site::{Site, Table};

/// The program that finishes for this process if it is killed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Watcher {
    /// The one that SYSTX_WATCHER names by an absolute path (`off`: none); else the first `systx` of PATH,
    /// /usr/local/bin and /usr/bin.
    #[default]
    Found,
    /// The `systx` at this absolute path.
    Program(PathBuf),
    /// None: the next use of systx finishes.
    Off,
}

/// Names the program, or `off`.
const VARIABLE: &str = "SYSTX_WATCHER";
/// What the program gets of this process's environment: where it logs, and where the user's areas are noted.
const ENVIRONMENT: [&str; 5] = ["HOME", "XDG_STATE_HOME", "SYSTX_LOG", "SYSTX_LOG_FILE", "SYSTX_CHECKPOINT"];

impl Watcher {
    /// The program, if there is one that this user can trust: it and all directories above belong to the user or root,
    /// and no other user can write to them.
    ///
    /// # Errors
    /// Why there is none.
    pub fn program(&self) -> Result<PathBuf, String> {
        let chosen = match self {
            Watcher::Off => return Err("it is switched off".into()),
            Watcher::Program(path) => Some(path.clone()),
            Watcher::Found => std::env::var_os(VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from),
        };
        match chosen {
            Some(off) if off == Path::new("off") => Err(format!("{VARIABLE} switches it off")),
            Some(path) => trusted(&path).map_err(|why| format!("{}: {why}", path.display())),
            None => {
                let path = std::env::var_os("PATH").unwrap_or_default();
                let habitual = ["/usr/local/bin", "/usr/bin"].map(PathBuf::from);
                let found = std::env::split_paths(&path).chain(habitual).map(|dir| dir.join("systx"));
                found.filter(|path| path.exists()).find_map(|path| trusted(&path).ok()).ok_or_else(|| {
                    "no program `systx` that only this user and root can change is in PATH".into()
                })
            }
        }
    }
}

/// The program at a path, by its real path.
fn trusted(path: &Path) -> Result<PathBuf, String> {
    if !path.is_absolute() {
        return Err("the path does not begin with /".into());
    }
    let path = path.canonicalize().map_err(|e| e.to_string())?;
    let uid = fs_uid();
    let ours = |found: &Metadata| [0, uid].contains(&found.uid()) && found.mode() & 0o022 == 0;
    for part in path.ancestors() {
        match part.metadata() {
            Ok(found) if ours(&found) => {}
            Ok(_) => return Err(format!("another user can change {}", part.display())),
            Err(e) => return Err(e.to_string()),
        }
    }
    match path.metadata() {
        Ok(found) if found.is_file() && found.mode() & 0o111 != 0 => Ok(path),
        _ => Err("it is no program".into()),
    }
}

/// Sees to it that a watcher is there.
pub(crate) struct Starter {
    watcher: Watcher,
    /// Name of root's areas.
    area: Vec<u8>,
}

impl Starter {
    pub fn new(watcher: Watcher, area: &[u8]) -> Starter {
        Starter { watcher, area: area.to_vec() }
    }

    /// Before a commit over these: starts a watcher for those that have none. Once for each that this process has opened.
    pub fn see_to(&self, mounts: &[Open]) {
        if mounts.iter().all(|open| open.seen_to.load(Ordering::Relaxed)) {
            return;
        }
        let mut alone: Vec<&Open> =
            mounts.iter().filter(|open| !open.seen_to.swap(true, Ordering::Relaxed)).collect();
        alone.retain(|open| !open.domain.is_attended());
        if alone.is_empty() || self.watcher == Watcher::Off || !stranger::may_start() {
            return;
        }
        // Without one the next use of systx finishes.
        let Ok(program) = self.watcher.program() else { return };
        let words = [program.as_os_str().as_bytes(), b"watch-areas", b"--area-name", &self.area, b"--"];
        let words = words.into_iter().chain(alone.iter().map(|open| open.top.as_slice()));
        let set = |name: &&str| Some([name.as_bytes(), b"=", std::env::var_os(name)?.as_bytes()].concat());
        let given: Vec<_> = ENVIRONMENT.iter().filter_map(set).collect();
        let strings = |all: Vec<Vec<u8>>| all.into_iter().map(CString::new).collect::<Result<Vec<_>, _>>();
        if let (Ok(argv), Ok(envp)) = (strings(words.map(<[u8]>::to_vec).collect()), strings(given)) {
            let _ = stranger::start(&argv, &envp);
        }
    }
}

/// An area that this process is the attendant of.
struct Area {
    site: Site,
    /// Of a mount of our own where that can be had, so that no unmount is refused.
    root: Arc<GuestFd<Linux>>,
    _mount: Option<Detached>,
    dir: GuestFd<Linux>,
    attendant: Attendant<Kernel>,
    /// The owners as of the last look.
    living: BTreeSet<u32>,
}

/// No owner's: at the first look one has gone, in the time before it.
const UNKNOWN: u32 = 0;

/// An act of the watcher after a look at an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    /// An owner has gone, perhaps in its commit.
    Finish,
    Wait,
    /// No owner is left, and nothing to finish.
    Leave,
}

fn act(before: &BTreeSet<u32>, now: &BTreeSet<u32>) -> Act {
    match (before.is_subset(now), now.is_empty()) {
        (false, _) => Act::Finish,
        (true, false) => Act::Wait,
        (true, true) => Act::Leave,
    }
}

impl Area {
    /// `Ok(None)`: it has an attendant, or there is no area.
    fn attend(os: &Kernel, table: &Table, name: &[u8], top: &[u8]) -> Result<Option<Area>, Errno> {
        let Some(site) = table.site_in(top, mounts::look(top)?.mount_id) else { return Ok(None) };
        // Only root may have one.
        let mount = Detached::of(top).ok();
        let root = match &mount {
            Some(mount) => os.adopt(mount.root.try_clone().map_err(|_| Errno::MFILE)?)?,
            None => os.open_path(Path::new(OsStr::from_bytes(top)), How::Directory)?,
        };
        let Some(dir) = os.open_if_there(&root, name, How::Directory)? else { return Ok(None) };
        let Ok(Some(attendant)) = Attendant::of(os, &dir) else { return Ok(None) };
        let area = Area {
            site,
            root: Arc::new(root),
            _mount: mount,
            dir,
            attendant,
            living: BTreeSet::from([UNKNOWN]),
        };
        Ok(Some(area))
    }

    /// Returns false if it was deleted, or its mount has gone.
    fn is_there(&self, os: &Kernel, name: &[u8]) -> bool {
        let is = |found: Result<_, Errno>| found.is_ok() && found == os.identity(&self.dir);
        let here = os.stat_at(&self.root, name).map(|stat| (stat.dev, stat.ino));
        let path = Path::new(OsStr::from_bytes(&self.site.top)).join(OsStr::from_bytes(name));
        let mounted = path.symlink_metadata().map(|found| (found.dev(), found.ino()));
        is(here) && is(mounted.map_err(|_| Errno::NOENT))
    }
}

const MS: u64 = 1_000_000;
/// Times after an event at which it is looked again: the close of a file comes before its locks go.
const LOOKS_NS: [u64; 3] = [20 * MS, 200 * MS, 1000 * MS];
/// Between two looks, however many come and go.
const BETWEEN_LOOKS_NS: u64 = 20 * MS;
/// A death is finished behind at once, but not more often than so.
const BETWEEN_NS: u64 = 500 * MS;

/// Watches over the areas of this user in these directories that have no watcher yet, until no owner is left in any.
///
/// # Errors
/// Of looking at mounts; without inotify there is none.
#[doc(hidden)]
pub fn watch(area: &OsStr, tops: &[Vec<u8>]) -> io::Result<()> {
    // From here on no event is missed.
    let (vigil, notices) = (Vigil::begin()?, Notices::new()?);
    let (os, uid) = (Guest::over(Linux::new()), fs_uid());
    let name = area_name(area.as_bytes(), uid);
    let watch = Watch { os: &os, name: &name, uid, notices };
    let mut left: Vec<Vec<u8>> = tops.to_vec();
    loop {
        let table = Table::read()?;
        let attend = |top: &Vec<u8>| Area::attend(&os, &table, &name, top).ok().flatten();
        let areas: Vec<Area> = left.iter().filter_map(attend).collect();
        left = areas.iter().map(|area| area.site.top.clone()).collect();
        let ended = watch.over(areas, &vigil)?;
        // An owner that came before the bytes were given up has seen an attendant, and starts none.
        let Some(last) = ended else { return Ok(()) };
        left.retain(|top| last.iter().any(|area| area == top));
        if left.is_empty() {
            return Ok(());
        }
    }
}

struct Watch<'a> {
    os: &'a Kernel,
    name: &'a [u8],
    uid: u32,
    notices: Notices,
}

impl Watch<'_> {
    /// Until no owner is left; the areas that have one again by the time the watch was given up. `None`: it is to end.
    fn over(&self, mut areas: Vec<Area>, vigil: &Vigil) -> io::Result<Option<Vec<Vec<u8>>>> {
        for area in &areas {
            self.notices.watch_use(&**area.attendant.file())?;
        }
        let mut looks = LOOKS_NS.iter();
        let (mut finished_ns, mut looked_ns) = (0, 0);
        loop {
            let too_soon_ns = (looked_ns + BETWEEN_LOOKS_NS).saturating_sub(self.os.monotonic_ns());
            if looked_ns > 0 && too_soon_ns > 0 && vigil.wait(too_soon_ns) != Woken::ToEnd {
                continue;
            }
            looked_ns = self.os.monotonic_ns();
            areas.retain(|area| area.is_there(self.os, self.name));
            let now: Vec<_> = areas.iter().map(|area| area.attendant.living()).collect();
            let acts: Vec<_> = areas.iter().zip(&now).map(|(area, now)| act(&area.living, now)).collect();
            let left_ns = (finished_ns + BETWEEN_NS).saturating_sub(self.os.monotonic_ns());
            let mut wait_ns = looks.next().copied().unwrap_or(u64::MAX);
            if acts.contains(&Act::Finish) {
                if left_ns == 0 || finished_ns == 0 {
                    areas.iter_mut().zip(now).for_each(|(area, now)| area.living = now);
                    self.finish(&areas);
                    finished_ns = self.os.monotonic_ns();
                    looks = LOOKS_NS.iter();
                    continue;
                }
                wait_ns = left_ns;
            } else {
                areas.iter_mut().zip(now).for_each(|(area, now)| area.living = now);
                if acts.iter().all(|act| *act == Act::Leave) {
                    return Ok(Some(self.give_up(areas)));
                }
            }
            match vigil.wait_for(Some(&self.notices), wait_ns) {
                Woken::ToEnd => {
                    self.finish(&areas);
                    return Ok(None);
                }
                Woken::Noticed => {
                    self.notices.take()?;
                    looks = LOOKS_NS.iter();
                }
                Woken::Mounts | Woken::InTime => {}
            }
        }
    }

    /// Gives up the places; those where an owner is again.
    fn give_up(&self, areas: Vec<Area>) -> Vec<Vec<u8>> {
        let had: Vec<_> = areas
            .into_iter()
            .map(|area| {
                let Area { site, root, _mount, dir, attendant, .. } = area;
                (site.top, attendant.resign(), (root, _mount, dir))
            })
            .collect();
        had.into_iter().filter(|(_, owners, _)| owners.have_any()).map(|(top, ..)| top).collect()
    }

    /// Finishes what the dead have left, and makes the checkpoints that are owed. A failure leaves it to the next use.
    fn finish(&self, areas: &[Area]) {
        let Ok(served) = Served::new(self.os.clone(), self.uid, self.name.to_vec()) else { return };
        // All of them: a coordinator and its participants ask each other. Opening one finishes for its dead.
        let there = areas.iter().filter(|area| area.is_there(self.os, self.name));
        let open: Vec<_> =
            there.filter_map(|area| served.open_held(&area.site, area.root.clone()).ok()).collect();
        served.settle();
        for Open { domain, .. } in &open {
            let _ = domain.finish_dead();
            let _ = domain.settle_images();
            // For tests of what a redo does.
            if std::env::var_os("SYSTX_CHECKPOINT").is_none_or(|value| value != "never") {
                // They may be promises of the dead.
                let _ = domain.keep_all_promises();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn whoever_has_gone_is_finished_for_and_the_last_one_ends_the_watch() {
        let set = |owners: &[u32]| owners.iter().copied().collect::<BTreeSet<u32>>();
        let all = [set(&[]), set(&[1]), set(&[2]), set(&[1, 2])];
        for (before, now) in all.iter().flat_map(|before| all.iter().map(move |now| (before, now))) {
            let expected = match (before.difference(now).count(), now.len()) {
                (0, 0) => Act::Leave,
                (0, _) => Act::Wait,
                _ => Act::Finish,
            };
            assert_eq!(act(before, now), expected, "{before:?} {now:?}");
        }
    }

    #[test]
    fn a_program_that_others_can_change_is_not_trusted() {
        let dir = std::env::temp_dir().join(format!("systx-watcher-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        let program = dir.join("systx");
        std::fs::copy("/bin/true", &program).unwrap();
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(trusted(&program).unwrap_err().starts_with("another user can change"));
        assert!(trusted(Path::new("systx")).is_err() && trusted(&dir.join("missing")).is_err());
        assert!(Watcher::Program(program).program().is_err() && Watcher::Off.program().is_err());
        assert_eq!(trusted(Path::new("/bin/sh")), Ok(Path::new("/bin/sh").canonicalize().unwrap()));
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
