//! The checkpoint soon after the last commit, which whoever commits leaves to his twin (docs/protocol.md, C2).
//!
//! Owns: who makes it, and the twin's wait for its time. Guarantees: nobody who waits for an outcome waits for it, but where nobody
//! would be left afterwards; and no unmount is refused because of it: every descriptor is on a detached copy of a mount. Such a copy keeps the
//! file system from being closed behind an unmount before it is made, and it begins as soon as a mount has gone. Does not: tell whether
//! it was made; `systx status` tells when it failed.

use crate::args::Area;
use crate::domains::{self, Mounted};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use systx_engine::domain::Domain;
use systx_os::sandbox::twin::{Call, Taken, Twin, WORDS_MAX};
use systx_os::sandbox::vigil::{Vigil, Woken};
use systx_os::{Linux, Open, Os};

/// No checkpoint is to be made of that one.
const NONE: u64 = u64::MAX;

/// What a run has taken on: for each mount that its twin holds the time for a checkpoint.
#[derive(Default)]
pub struct Promised(Vec<u64>);

impl Promised {
    /// Whether the twin is not needed for it.
    pub fn is_nothing(&self) -> bool {
        self.0.iter().all(|at| *at == NONE)
    }
}

/// Takes on what is owed where this run comes by, whoever has committed it, and leaves it to the twin. `held`: what that one holds. The
/// domains are open until it has taken over: somebody is at work here all the time, so nobody takes the table for one of an earlier boot.
pub fn promise<'a>(
    twin: &Twin,
    held: &[Mounted],
    served: impl IntoIterator<Item = (&'a Mounted, &'a Arc<Domain<Linux>>)>,
) -> Promised {
    let mut promised = vec![NONE; held.len()];
    if is_left_to_others() {
        return Promised(promised);
    }
    let at_once = ends_with_us(held);
    for (mounted, domain) in served {
        // A table that makes no sense is told by who needs it.
        let Ok(Some(at)) = domain.promise() else { continue };
        let place = held.iter().position(|held| held.lower.point == mounted.lower.point);
        match place.filter(|place| !at_once && *place < WORDS_MAX) {
            Some(place) => promised[place] = at,
            None => drop(domain.keep_promise(at)),
        }
    }
    let promised = Promised(promised);
    if !promised.is_nothing() {
        twin.leave(&promised.0);
    }
    promised
}

/// For tests of what a redo does: as if every twin were killed.
fn is_left_to_others() -> bool {
    std::env::var_os("SYSTX_CHECKPOINT").is_some_and(|value| value == "never")
}

/// Whether a twin would be gone with this process, or keep a file system from being unmounted by what it can't let go of: its root
/// directory and its program.
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

/// Lets go of the twin, unless something was left to it.
pub fn end(twin: Twin, promised: &Promised) {
    if promised.is_nothing() {
        twin.reap();
    }
}

/// What a twin does: for a dead `systx` it finishes what that one left, for one that goes it makes the checkpoints that are left to it.
pub fn called(call: Call, mounts: &[Mounted], area: &Area) {
    match call {
        Call::Died => finish(mounts, area),
        Call::Left(times, taken) => keep(mounts, area, &times, taken),
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
        // Nobody listens here; what is unfinished is told by the next use of systx.
        let _ = domain.finish_dead();
        // What it could be undone with is its commit's, or nobody's.
        let _ = domain.settle_images();
        // It deletes what a killed publisher has left in the slots, too.
        now(domain);
    }
}

/// What is left to a twin: waits for the time, and makes the checkpoints.
fn keep(held: &[Mounted], area: &Area, times: &[u64], taken: Taken) {
    let os = Linux::new();
    let name = domains::area_name(area);
    // Or who comes by meanwhile with another boot id, as in a container, takes the table for one of an earlier boot, and does again what
    // no checkpoint covers.
    let watch = |mounted: &Mounted| {
        let dir = os.open(&mounted.copy.root, &name, Open::Directory).ok()?;
        systx_engine::domain::watch(&os, &dir).ok().flatten()
    };
    let due = held.iter().zip(times).filter(|(_, at)| **at != NONE);
    let watching: Vec<_> = due.filter_map(|(mounted, _)| watch(mounted)).collect();
    drop(taken);
    let last = times.iter().copied().filter(|at| *at != NONE).max().unwrap_or(0);
    wait(&os, held, last);
    // All of them: a coordinator asks its participants. But an area that was deleted meanwhile is not made again.
    let mut mounts: Vec<&Mounted> =
        held.iter().filter(|mounted| os.open(&mounted.copy.root, &name, Open::Path).is_ok()).collect();
    let open = domains::open_what_opens(&os, &mut mounts, area, &mut Vec::new());
    for (mounted, domain) in mounts.iter().zip(&open) {
        let place = held.iter().position(|held| held.lower.point == mounted.lower.point);
        let at = place.and_then(|place| times.get(place)).copied().unwrap_or(NONE);
        if at != NONE {
            let _ = domain.keep_promise(at);
        }
    }
    drop(watching);
}

/// The same at once, for what a dead process has left.
fn now(domain: &Domain<Linux>) {
    if !is_left_to_others() {
        // It may be the dead process's own promise that stands there, and others may have relied on it.
        let _ = domain.keep_all_promises();
    }
}

/// Until that time; less when the machine goes down, or one of the mounts has gone: then its file system is kept open by us alone.
fn wait(os: &Linux, held: &[Mounted], until: u64) {
    // Who can't be woken does not wait.
    let Ok(vigil) = Vigil::begin() else { return };
    let mut woken = Woken::Mounts;
    loop {
        match woken {
            Woken::ToEnd => return,
            Woken::Mounts if !held.iter().all(|mounted| is_there(os, mounted)) => return,
            Woken::Mounts | Woken::InTime => {}
        }
        let left = until.saturating_sub(os.monotonic_ns());
        if left == 0 {
            return;
        }
        woken = vigil.wait(left);
    }
}

/// Whether what is held is still mounted where it was.
fn is_there(os: &Linux, mounted: &Mounted) -> bool {
    let found =
        std::fs::metadata(OsStr::from_bytes(&mounted.lower.point)).map(|found| (found.dev(), found.ino()));
    let held = os.stat(&mounted.copy.root).map(|stat| (stat.dev, stat.ino));
    held.ok() == found.ok()
}
