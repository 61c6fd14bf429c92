//! The file systems of this machine as domains.
//!
//! Owns: the way from a mount to a domain. Guarantees: every descriptor held here is on a detached copy of
//! one mount, so a later mount does not change what it leads to. Does not: choose the mounts ([`crate::tree`]
//! does).

use crate::args::Area;
use crate::failure::{at, bytes, in_words, Failure, LeftOut, Result};
use crate::hint;
use crate::ordinary;
use crate::sub;
use crate::tree::{self, Lower, Seen, Tree};
use crate::words::shown;
use std::borrow::{Borrow, Cow};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use systx_engine::domain::{AreaError, Domain, Location, OpenError, SlotState};
use systx_engine::recovery::{open_all_doubting, open_existing};
use systx_engine::upkeep::Listed;
use systx_os::sandbox::answers::{self, Trial};
use systx_os::sandbox::mounts::{self, Detached, Mount};
use systx_os::{Errno, Linux, Open, Os};
use systx_places::site::is_open_to_all;
use systx_view::SUB_AREA_ATTRIBUTE;

/// A mount that is served, with a detached copy of it.
pub struct Mounted {
    /// Which.
    pub lower: Lower,
    /// The copy.
    pub copy: Detached,
    shared: bool,
}

impl Mounted {
    /// Where it is mounted, for messages.
    pub fn point(&self) -> String {
        shown(&self.lower.point)
    }

    /// Returns true if the user may make names in the root, and does not own it.
    pub fn is_shared(&self) -> bool {
        self.shared
    }
}

/// The mounts of this mount namespace.
pub fn table() -> Result<Vec<Mount>> {
    mounts::table().map_err(at(b"/proc/self/mountinfo"))
}

/// Returns true if this process is inside a transaction.
pub fn inside_a_transaction(table: &[Mount]) -> bool {
    sub::around(table).is_some()
}

/// Returns true if `--only` leaves nothing out.
pub fn is_everything(only: &[PathBuf]) -> bool {
    only.is_empty() || only.iter().any(|dir| dir.canonicalize().is_ok_and(|dir| dir == Path::new("/")))
}

/// File system type of a mount that is left out, in the table that a tree is planned by. No file system that
/// can be served has this name.
const LEFT_OUT: &[u8] = b"systx.left-out";

/// Plans the whole tree with what is mounted at these points read-only, wherever else it is seen, too.
pub fn plan_without(table: &[Mount], points: &[Vec<u8>]) -> Result<Tree> {
    let of = |point: &Vec<u8>| ordinary::mount_of(table, point).ok_or_else(|| Failure::on_no_mount(point));
    let left_out = points.iter().map(of).collect::<Result<Vec<_>, _>>()?;
    let mut table = table.to_vec();
    for mount in &mut table {
        let is_of = |out: &Mount| {
            let same_tree = mount.fs_type != b"btrfs" || tree::is_below(&mount.root, &out.root).is_some();
            mount.device == out.device && same_tree
        };
        if left_out.iter().any(is_of) {
            mount.fs_type = LEFT_OUT.to_vec();
        }
    }
    tree::plan(&table, &[], &see)
}

/// Plans an ordinary user's whole tree, with these places served.
pub fn plan_places(table: &[Mount], places: &[Vec<u8>]) -> Result<Tree> {
    tree::plan_places(table, &ordinary::table_with(table, places)?, places, &see)
}

/// Plans the tree of a mount table for the directories in `only`, or for all of it.
pub fn plan(table: &[Mount], only: &[PathBuf]) -> Result<Tree> {
    let only = only
        .iter()
        .map(|dir| match dir.canonicalize() {
            Ok(path) if path.is_dir() => Ok(path.as_os_str().as_bytes().to_vec()),
            Ok(_) => Err(Failure::new("--only", "not a directory").on(bytes(dir)).hint("name one")),
            Err(e) => {
                let hint = "name a directory that is there";
                Err(Failure::new("--only", in_words(&e)).on(bytes(dir)).hint(hint))
            }
        })
        .collect::<Result<Vec<_>, _>>()?;
    if ordinary::is_ordinary() {
        return tree::plan(&ordinary::table_for(table, &only)?, &only, &see);
    }
    let everything = only.is_empty() || only.iter().any(|dir| dir == b"/");
    for dir in only.iter().filter(|_| !everything) {
        is_served_from_its_mount(table, dir)?;
    }
    tree::plan(table, if everything { &[] } else { &only }, &see)
}

/// No name moves between subvolumes of btrfs, so one that is not mounted can't be served from the area of its mount.
fn is_served_from_its_mount(table: &[Mount], dir: &[u8]) -> Result<()> {
    let device = |path: &[u8]| std::fs::metadata(OsStr::from_bytes(path)).ok().map(|m| m.dev());
    let Some(mount) = ordinary::mount_of(table, dir).filter(|m| device(&m.point) != device(dir)) else {
        return Ok(());
    };
    // Only btrfs has them: something was mounted, or unmounted, since the table was read.
    if mount.fs_type != b"btrfs" {
        return Err(Failure::on_no_mount(dir));
    }
    let mut way = tree::owned::way(dir, &mount.point);
    let subvolume = shown(way.find(|path| device(path) == device(dir)).unwrap_or(dir));
    let why = format!("the subvolume {subvolume} has no mount of its own");
    let hint = format!("give it one: mount --bind {subvolume} {subvolume}");
    Err(Failure::new("--only", why).on(dir).hint(hint))
}

/// Looks at a mount's place.
fn see(mount: &Mount) -> Seen {
    match mounts::look(&mount.point) {
        Ok(found) if found.mount_id != mount.id => Seen::Hidden,
        Ok(found) if found.directory => Seen::Directory,
        Ok(_) => Seen::File,
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Seen::Hidden,
        // One way that leads there is closed for an ordinary user, and then for the command, too.
        Err(Errno::ACCESS) if ordinary::is_ordinary() => Seen::Hidden,
        // A disk that fails, a server that died, or another user's FUSE mount.
        Err(_) => Seen::Silent,
    }
}

/// The mounts that can be served, each file system once.
pub fn served() -> Result<Vec<Lower>> {
    Ok(tree::served(&table()?, &see))
}

/// Where mounts are that would be served were they not read-only: what was begun before that is open there still.
pub fn read_only() -> Result<Vec<Vec<u8>>> {
    let there = |mount: &Mount| tree::is_only_read_only(mount) && see(mount) == Seen::Directory;
    Ok(table()?.into_iter().filter(there).map(|mount| mount.point).collect())
}

/// Why mounts that would be served are not: their file systems fail.
pub fn failing() -> Result<Vec<Failure>> {
    let fails = |mount: &Mount| tree::can_be_served(mount).is_ok() && see(mount) == Seen::Silent;
    let why = |mount: Mount| {
        let silent = Failure::at(&mount.point, "it can't be looked at");
        silent.hint(hint::step(Errno::IO).unwrap_or_default())
    };
    Ok(table()?.into_iter().filter(fails).map(why).collect())
}

/// Takes hold of the planned mounts.
pub fn hold(lower: &[Lower]) -> Result<Vec<Mounted>> {
    hold_all(lower).map_err(|not_held| not_held.why)
}

/// A planned mount that can't be held.
pub struct NotHeld {
    /// Index of the mount.
    pub mount: usize,
    /// Why.
    pub why: Failure,
}

/// Takes hold of the planned mounts; an error says on which of them.
pub fn hold_all(lower: &[Lower]) -> Result<Vec<Mounted>, NotHeld> {
    let os = Linux::new();
    let hold = |lower: &Lower| -> Result<Mounted, Errno> {
        let copy = Detached::of(&lower.point)?;
        let stat = os.stat(&copy.root)?;
        let shared = os.uid() != 0 && stat.uid != os.uid();
        // Another directory than the one that was looked at.
        if shared && !is_open_to_all(stat.mode) {
            return Err(Errno::ACCESS);
        }
        Ok(Mounted { lower: lower.clone(), copy, shared })
    };
    let not_held = |mount, lower: &Lower, e| NotHeld { mount, why: ordinary::cannot_hold(&lower.point, e) };
    lower.iter().enumerate().map(|(n, lower)| hold(lower).map_err(|e| not_held(n, lower, e))).collect()
}

/// Why the domain of a mount can't be opened.
pub struct Refused {
    /// Index of the mount.
    pub mount: usize,
    /// Why.
    pub why: Failure,
    /// Any user may have brought it about: by what has the area's name, or by leaving no room for an area.
    pub by_anybody: bool,
    /// The identity that another area has, too.
    copy: Option<[u8; 16]>,
}

/// Opens the domains of mounts, making areas where there are none; that finishes what is in the way.
pub fn open<M: Borrow<Mounted>>(
    os: &Linux,
    mounts: &[M],
    area: &Area,
) -> Result<Vec<Arc<Domain<Linux>>>, Refused> {
    open_by(os, mounts, area, &[], open_all_doubting)
}

/// A domain, or none where there is no area.
pub type FoundOrNot = Option<Arc<Domain<Linux>>>;
type OpenOf<D> = fn(&Linux, &[Location<'_, Linux>], &[[u8; 16]]) -> Result<Vec<D>, (usize, OpenError)>;

/// Where two areas have each of the identities in `doubted`, neither answers for it.
fn open_by<M: Borrow<Mounted>, D: MayBe>(
    os: &Linux,
    mounts: &[M],
    area: &Area,
    doubted: &[[u8; 16]],
    open: OpenOf<D>,
) -> Result<Vec<D>, Refused> {
    let named = |(mount, mounted): (usize, &M)| {
        let name = area_name_on(area, mounted.borrow());
        let why = |e| {
            let doing = format!("{}: asking for the area's name", mounted.borrow().point());
            Failure::new(doing, e)
        };
        name.map_err(|e: Errno| Refused { mount, why: why(e), by_anybody: false, copy: None })
    };
    let names = mounts.iter().enumerate().map(named).collect::<Result<Vec<_>, _>>()?;
    let locations: Vec<_> = mounts
        .iter()
        .map(|mounted| (&mounted.borrow().copy.root, mounted.borrow().lower.bounds))
        .zip(&names)
        .map(|((root, bounds), name)| Location { root: root.clone(), bounds, parent: &**root, name })
        .collect();
    let point = |n: usize| mounts.get(n).map_or(&b""[..], |mounted| &mounted.borrow().lower.point);
    let area_path = |n: usize| {
        let point = point(n);
        let name = names.get(n).map_or(&b""[..], |name| name);
        [point.strip_suffix(b"/").unwrap_or(point), b"/", name].concat()
    };
    let words = |n: usize, e: OpenError| {
        match e {
            // In the user's namespace, other users have no number.
            OpenError::Area(AreaError::Owner(_)) if os.uid() != 0 => {
                Failure::at(&area_path(n), "another user has taken this name")
                    .hint("that user or root can remove what has it")
            }
            e @ OpenError::Area(_) => not_opened(&area_path(n), &e),
            OpenError::Copy { first, .. } => {
                let why = format!(
                "the area is the same as that of {}: a copy of a file system is not used beside its original",
                shown(point(first))
            );
                Failure::at(&area_path(n), why).hint("unmount one of them, or move the copy's area away")
            }
            e => not_opened(point(n), &e),
        }
    };
    let failed = |(n, e)| {
        // Removable disks are mounted with these options: any user may have written what is on them, log and
        // table included.
        let is_untrusted = mounts.get(n).is_some_and(|mounted: &M| {
            let attributes = mounted.borrow().lower.attributes;
            attributes.nosuid && attributes.nodev
        });
        let by_anybody = is_untrusted || may_be_anybodys(&e);
        let copy = match &e {
            OpenError::Copy { id, .. } => Some(*id),
            _ => None,
        };
        Refused { mount: n, why: words(n, e), by_anybody, copy }
    };
    let domains = open(os, &locations, doubted).map_err(failed)?;
    for (n, domain) in domains.iter().enumerate() {
        let Some(domain) = domain.domain() else { continue };
        if let Some(mounted) = mounts.get(n).filter(|_| os.uid() != 0 && !area.is_in_view) {
            ordinary::remember(&mounted.borrow().lower.point);
        }
        domain.mounted_at(mounts.get(n).map_or(&b""[..], |mounted| &mounted.borrow().lower.point));
    }
    Ok(domains)
}

/// A domain, or none.
trait MayBe {
    fn domain(&self) -> Option<&Domain<Linux>>;
}

impl MayBe for Arc<Domain<Linux>> {
    fn domain(&self) -> Option<&Domain<Linux>> {
        Some(self)
    }
}

impl MayBe for FoundOrNot {
    fn domain(&self) -> Option<&Domain<Linux>> {
        self.as_deref()
    }
}

/// Returns true if room is missing.
fn is_full(error: &OpenError) -> bool {
    matches!(error.errno(), Some(Errno::NOSPC | Errno::DQUOT))
}

/// Returns true if any user who may make files on a file system could have caused an error.
fn may_be_anybodys(error: &OpenError) -> bool {
    match error {
        _ if is_full(error) => true,
        OpenError::Area(AreaError::Os(_, e)) => {
            matches!(*e, Errno::BUSY | Errno::EXIST | Errno::ACCESS | Errno::PERM)
        }
        OpenError::Area(AreaError::Version) => false,
        OpenError::Area(_) => true,
        _ => false,
    }
}

/// A domain that can't be opened, with the next step after an error of a system call.
fn not_opened(path: &[u8], error: &OpenError) -> Failure {
    let step = match error {
        // It says so itself.
        OpenError::Pending { .. } => None,
        _ => error.errno().and_then(hint::step),
    };
    let full = matches!(error, OpenError::Log(_)) && is_full(error);
    let what = "; what is committed there is finished by the next use behind that";
    let step = step.unwrap_or_default();
    Failure::at(path, error.to_string()).hint(if full { format!("{step}{what}") } else { step.into() })
}

/// The domains of this machine.
pub struct Existing {
    /// Those that are open now.
    pub open: Vec<(Mounted, Arc<Domain<Linux>>)>,
    /// Why the others are not.
    pub failed: Vec<Failure>,
}

impl Existing {
    /// Returns the sentences about those that could not be opened, for programs.
    pub fn sentences(&self) -> Vec<String> {
        self.failed.iter().map(Failure::to_string).collect()
    }

    /// Names on standard error the areas that could not be opened.
    pub fn complain(&self) {
        for failed in &self.failed {
            eprintln!("systx: {failed}");
        }
    }
}

/// Returns the state of a listed transaction in words.
pub fn state(listed: &Listed) -> &'static str {
    match (listed.state, listed.alive) {
        (None, _) => "running",
        (Some(_), false) => "cut off: run `systx recover`",
        (Some(SlotState::Prepared), true) => "prepared",
        (Some(SlotState::Publishing), true) => "publishing",
        (Some(SlotState::Aborting), true) => "aborting",
        (Some(_), true) => "committing",
    }
}

/// Opens the domains of all mounts that have an area already; makes none. Collects why others can't be
/// opened.
pub fn existing(os: &Linux, area: &Area) -> Result<Existing> {
    existing_that(os, area, Trial::Write)
}

/// Opens the domains of all mounts that have an area, for a caller that is going to sync them.
pub fn existing_to_sync(os: &Linux, area: &Area) -> Result<Existing> {
    existing_that(os, area, Trial::Sync)
}

fn existing_that(os: &Linux, area: &Area, trial: Trial) -> Result<Existing> {
    let mut failed = Vec::new();
    let mut mounts = match os.uid() {
        0 => {
            failed.extend(failing()?);
            let mut held = Vec::new();
            for lower in served()? {
                // One that goes just now, for instance.
                match hold(std::slice::from_ref(&lower)) {
                    Ok(mounted) => held.extend(mounted),
                    Err(why) => failed.push(why),
                }
            }
            held
        }
        _ => match ordinary::with_areas(&area_name(area)) {
            // Without an area, at login for instance, nothing is needed of the machine.
            tops if tops.is_empty() => Vec::new(),
            tops => {
                ordinary::enter()?;
                own(tops, ordinary::table_of, &mut failed)?
            }
        },
    };
    let name = area_name(area);
    let mut areas = Vec::new();
    mounts.retain(|mounted| match os.open(&mounted.copy.root, &name, Open::Path) {
        // Another user's directory in the place of root's area is none: `doctor` reports it, and the next run
        // moves it away.
        Ok(area) if os.uid() != 0 || os.stat(&area).is_ok_and(|stat| stat.uid == 0) => {
            areas.push(area);
            true
        }
        Ok(_) | Err(Errno::NOENT) => false,
        Err(e) => {
            failed.push(Failure::at(&mounted.lower.point, e));
            false
        }
    });
    if !area.is_in_view {
        leave_out_the_silent(&mut mounts, &areas, trial, &mut failed);
    }
    let mut unopened = Vec::new();
    let domains = open_what_is_there(os, &mut mounts, area, &mut unopened);
    failed.extend(unopened.into_iter().map(|out: LeftOut| out.why));
    let open = mounts.into_iter().zip(domains).filter_map(|(mounted, domain)| Some((mounted, domain?)));
    Ok(Existing { open: open.collect(), failed })
}

/// A disk that is idle answers within milliseconds, and a snapshot is taken in a second. At boot and at login
/// others wait.
const ANSWER: Duration = Duration::from_secs(10);

/// A file system that does not answer would hold up the others, and not even SIGKILL ends who waits for it.
fn leave_out_the_silent(
    mounts: &mut Vec<Mounted>,
    areas: &[OwnedFd],
    trial: Trial,
    failed: &mut Vec<Failure>,
) {
    // Without a way to find out, wait.
    let Ok(answered) = answers::answer(areas, trial, ANSWER) else { return };
    let mut answered = answered.into_iter();
    mounts.retain(|mounted| {
        let answers = answered.next().unwrap_or(true);
        if !answers {
            let why = format!(
                "no answer within {} s: it is frozen (fsfreeze), or its disk is stuck",
                ANSWER.as_secs()
            );
            let hint = "left out. Run again when it answers";
            failed.push(Failure::at(&mounted.lower.point, why).hint(hint));
        }
        answers
    });
}

/// Takes hold of an ordinary user's directories, each by the mount table that it is seen in. The process must
/// have [entered](ordinary::enter) its namespace.
pub fn own(
    tops: Vec<Vec<u8>>,
    seen_as: impl Fn(&[Mount], &[u8]) -> Result<Vec<Mount>>,
    failed: &mut Vec<Failure>,
) -> Result<Vec<Mounted>> {
    let table = table()?;
    let mut mounts: Vec<Mounted> = Vec::new();
    for top in tops {
        // A directory that now belongs to another user has no area of this one.
        let Ok(narrowed) = seen_as(&table, &top) else { continue };
        let only = [top];
        match tree::plan(&narrowed, &only, &see).and_then(|tree| hold(&tree.lower)) {
            Ok(held) => mounts.extend(held),
            Err(why) => failed.push(why),
        }
    }
    mounts.sort_by(|a, b| a.lower.point.cmp(&b.lower.point));
    mounts.dedup_by(|a, b| a.lower.point == b.lower.point);
    Ok(mounts)
}

/// Opens as many as possible; the others leave `mounts` and go into `failed`, by their mount points.
pub fn open_what_opens<M: Borrow<Mounted>>(
    os: &Linux,
    mounts: &mut Vec<M>,
    area: &Area,
    failed: &mut Vec<LeftOut>,
) -> Vec<Arc<Domain<Linux>>> {
    as_many(mounts, failed, |mounts, doubted| open_by(os, mounts, area, doubted, open_all_doubting))
}

/// Opens as many of the existing areas as possible, and makes none.
pub fn open_what_is_there<M: Borrow<Mounted>>(
    os: &Linux,
    mounts: &mut Vec<M>,
    area: &Area,
    failed: &mut Vec<LeftOut>,
) -> Vec<FoundOrNot> {
    as_many(mounts, failed, |mounts, doubted| open_by(os, mounts, area, doubted, open_existing))
}

fn as_many<M: Borrow<Mounted>, D>(
    mounts: &mut Vec<M>,
    failed: &mut Vec<LeftOut>,
    open: impl Fn(&[M], &[[u8; 16]]) -> Result<Vec<D>, Refused>,
) -> Vec<D> {
    let mut doubted = Vec::new();
    loop {
        match open(mounts, &doubted) {
            Ok(domains) => return domains,
            Err(refused) => {
                doubted.extend(refused.copy);
                let mount = mounts.remove(refused.mount);
                failed.push(LeftOut { point: mount.borrow().lower.point.clone(), why: refused.why });
            }
        }
    }
}

/// Name of the area on one mount.
fn area_name_on<'a>(area: &'a Area, mounted: &Mounted) -> Result<Cow<'a, [u8]>, Errno> {
    if area.is_in_view {
        mounted.copy.attribute(SUB_AREA_ATTRIBUTE).map(Cow::from)
    } else {
        Ok(area_name(area))
    }
}

/// Returns the name of an area. An ordinary user's ends with the user's number, since several users may have
/// areas in one place.
pub fn area_name(area: &Area) -> Cow<'_, [u8]> {
    systx_places::area_name(area.area_name.as_bytes(), Linux::new().uid())
}
