//! The checkpoint soon after the last commit (docs/protocol.md, C2), which a committing process leaves to its
//! helper process.
//!
//! Owns: the choice of the process that makes it, and the helper's wait for its time. Guarantees: no outcome
//! waits for the checkpoint, unless no process would be left to make it; no unmount is refused because of it,
//! since every descriptor is on a detached copy of a mount. Such a copy keeps the file system open behind an
//! unmount until the checkpoint is made, so it begins as soon as a mount has gone. Does not: report a
//! failure; `systx status` does.

use crate::args::Area;
use crate::domains::{self, Mounted};
use crate::logging::{self, Role};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use systx_engine::domain::Domain;
use systx_os::sandbox::helper::{Call, Helper, Taken, WORDS_MAX};
use systx_os::sandbox::vigil::{Vigil, Woken};
use systx_os::{Linux, Open, Os};
use tracing::debug;

/// No checkpoint is to be made of that one.
const NONE: u64 = u64::MAX;

/// The checkpoints that a run has taken on: a time for each mount that its helper holds.
#[derive(Default)]
pub struct Promised(Vec<u64>);

impl Promised {
    /// Returns true if the helper process has no checkpoint to make.
    pub fn is_nothing(&self) -> bool {
        self.0.iter().all(|at| *at == NONE)
    }
}

/// Takes on the checkpoints that are owed on the served file systems, by this run's commits or others', and
/// leaves them to the helper process, which holds `held`. The domains stay open until the helper has taken
/// over, so that a process is at work here all the time and no other takes the table for one of an earlier
/// boot.
pub fn promise<'a>(
    helper: &Helper,
    held: &[Mounted],
    served: impl IntoIterator<Item = (&'a Mounted, &'a Arc<Domain<Linux>>)>,
) -> Promised {
    let mut promised = vec![NONE; held.len()];
    if is_left_to_others() {
        return Promised(promised);
    }
    let at_once = ends_with_us(held);
    for (mounted, domain) in served {
        // A command that needs the table reports that it makes no sense.
        let Ok(Some(at)) = domain.promise() else { continue };
        let place = held.iter().position(|held| held.lower.point == mounted.lower.point);
        match place.filter(|place| !at_once && *place < WORDS_MAX) {
            Some(place) => promised[place] = at,
            None => drop(domain.keep_promise(at)),
        }
    }
    let promised = Promised(promised);
    if !promised.is_nothing() {
        helper.leave(&promised.0);
    }
    promised
}

/// For tests of what a redo does: as if every helper were killed.
fn is_left_to_others() -> bool {
    std::env::var_os("SYSTX_CHECKPOINT").is_some_and(|value| value == "never")
}

/// Returns true if a helper process would be killed with this process, or would keep a file system from being
/// unmounted by its root directory or its program, which it can't let go of.
fn ends_with_us(held: &[Mounted]) -> bool {
    let place = |path: &str| std::fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
    let (root, first, program) = (place("/"), place("/proc/1/root"), place("/proc/self/exe"));
    let is_apart = first.is_some() && first != root;
    let os = Linux::new();
    let has_program = |mounted: &Mounted| {
        let dev = os.stat(&mounted.copy.root).map(|stat| stat.dev).ok();
        mounted.lower.point != b"/" && program.map(|(dev, _)| dev) == dev
    };
    std::process::id() == 1 || is_apart || held.iter().any(has_program)
}

/// Lets go of the helper, unless something was left to it.
pub fn end(helper: Helper, promised: &Promised) {
    if promised.is_nothing() {
        helper.reap();
    }
}

/// Does the work of a helper process: finishes what a dead `systx` left, or makes the checkpoints that a
/// finished one left.
pub fn called(call: Call, mounts: &[Mounted], area: &Area) {
    logging::enter(Role::Helper);
    match call {
        Call::Died => {
            debug!("systx has died: finishing what it left");
            finish(mounts, area);
        }
        Call::Left(times, taken) => {
            debug!(?times, "making the checkpoints that systx left, at these times");
            keep(mounts, area, &times, taken);
        }
    }
}

/// Opens the domains and finishes what a dead `systx` left.
fn finish(mounts: &[Mounted], area: &Area) {
    let os = Linux::new();
    // With fewer descriptors a large publication may have to wait for the next use of systx.
    let _ = systx_os::linux::raise_nofile_limit();
    let mut mounts: Vec<&Mounted> = mounts.iter().collect();
    // All stay open to the end: a coordinator and its participants ask each other.
    let domains = domains::open_what_is_there(&os, &mut mounts, area, &mut Vec::new());
    for domain in domains.iter().flatten() {
        // No one listens here; the next use of systx reports an unfinished publication.
        let finished = domain.finish_dead();
        debug!(?finished, "dead owners");
        // An image for undo belongs to a commit by now, or to none.
        let _ = domain.settle_images();
        // It deletes what a killed publisher has left in the slots, too.
        now(domain);
    }
}

/// Waits for the time of the checkpoints that were left, and makes them.
fn keep(held: &[Mounted], area: &Area, times: &[u64], taken: Taken) {
    let os = Linux::new();
    let name = domains::area_name(area);
    // Or who comes by meanwhile with another boot id, as in a container, takes the table for one of an
    // earlier boot, and does again what no checkpoint covers.
    let watch = |mounted: &Mounted| {
        let dir = os.open(&mounted.copy.root, &name, Open::Directory).ok()?;
        systx_engine::domain::watch(&os, &dir).ok().flatten()
    };
    let due = held.iter().zip(times).filter(|(_, at)| **at != NONE);
    let watching: Vec<_> = due.filter_map(|(mounted, _)| watch(mounted)).collect();
    drop(taken);
    let last = times.iter().copied().filter(|at| *at != NONE).max().unwrap_or(0);
    wait(&os, held, last);
    // All of them: a coordinator asks its participants. An area that was deleted meanwhile is not made again,
    // and one that another user has put in its place stays where it is.
    let mut mounts: Vec<&Mounted> = held.iter().collect();
    let open = domains::open_what_is_there(&os, &mut mounts, area, &mut Vec::new());
    for (mounted, domain) in mounts.iter().zip(&open) {
        let Some(domain) = domain else { continue };
        let place = held.iter().position(|held| held.lower.point == mounted.lower.point);
        let at = place.and_then(|place| times.get(place)).copied().unwrap_or(NONE);
        if at != NONE {
            let made = domain.keep_promise(at);
            debug!(mount = %mounted.point(), ?made, "the promised checkpoint");
        }
    }
    drop(watching);
}

/// Makes the checkpoint that a dead process owed, at once.
fn now(domain: &Domain<Linux>) {
    if !is_left_to_others() {
        // It may be the dead process's own promise that stands there, and others may have relied on it.
        let _ = domain.keep_all_promises();
    }
}

/// Until that time; less when the machine goes down, or one of the mounts has gone: then its file system is
/// kept open by us alone.
fn wait(os: &Linux, held: &[Mounted], until: u64) {
    // Without a way to be woken, don't wait.
    let Ok(vigil) = Vigil::begin() else { return };
    let mut woken = Woken::Mounts;
    loop {
        match woken {
            Woken::ToEnd => return,
            Woken::Mounts if !held.iter().all(|mounted| is_there(os, mounted)) => return,
            Woken::Mounts | Woken::InTime | Woken::Noticed => {}
        }
        let left = until.saturating_sub(os.monotonic_ns());
        if left == 0 {
            return;
        }
        woken = vigil.wait(left);
    }
}

/// Returns true if a held mount is still mounted where it was.
fn is_there(os: &Linux, mounted: &Mounted) -> bool {
    let found =
        std::fs::metadata(OsStr::from_bytes(&mounted.lower.point)).map(|found| (found.dev(), found.ino()));
    let held = os.stat(&mounted.copy.root).map(|stat| (stat.dev, stat.ino));
    held.ok() == found.ok()
}
