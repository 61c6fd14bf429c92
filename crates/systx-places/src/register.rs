//! The register of an ordinary user's areas: a directory of symbolic links in the user's own state, one to each
//! directory that has an area.
//!
//! Guarantees: below another user's HOME nothing is made and nothing is trusted. Does not: open an area.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use systx_os::caller::fs_uid as uid;
use systx_os::sandbox::mounts;

/// Directories in which everybody makes files. /dev/shm is the command's own.
pub const HABITUAL: [&str; 2] = ["/tmp", "/var/tmp"];

fn register() -> Option<PathBuf> {
    let of = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = of("XDG_STATE_HOME").or_else(|| Some(of("HOME")?.join(".local/state")))?;
    Some(state.join("systx/areas"))
}

/// Returns true if a directory, or the first existing one above it, belongs to this user: below another
/// user's HOME nothing is made and nothing is trusted.
fn is_own(dir: &Path) -> bool {
    let found = dir.ancestors().find_map(|dir| std::fs::metadata(dir).ok());
    found.is_some_and(|m| m.uid() == uid())
}

/// Notes that a directory has an area, so that `systx recover` finds it. Where that can't be noted, the next
/// run in there does what there is to do.
pub fn remember(top: &[u8]) {
    let Some(register) = register().filter(|register| is_own(register)) else { return };
    let path = Path::new(OsStr::from_bytes(top));
    let link = register.join(format!("{:016x}", fnv(top)));
    if std::fs::read_link(&link).is_ok_and(|known| known == path) {
        return;
    }
    // With a mode of its own: the umask of systx is 0.
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&register);
    let made = made.and_then(|()| std::os::unix::fs::symlink(path, &link));
    // See the doc comment.
    let _ = made;
}

/// The directories that were noted and are there, the user's home, and those where areas are made without a
/// home to note them in.
pub fn remembered() -> Vec<Vec<u8>> {
    let links =
        register().filter(|register| is_own(register)).and_then(|register| std::fs::read_dir(register).ok());
    let noted = links.into_iter().flatten().filter_map(|link| std::fs::read_link(link.ok()?.path()).ok());
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let habitual = HABITUAL.iter().map(PathBuf::from);
    let mut found: Vec<_> =
        noted.chain(home).chain(habitual).filter_map(|dir| dir.canonicalize().ok()).collect();
    found.retain(|dir| dir.is_dir());
    found.sort();
    found.dedup();
    found.into_iter().map(|dir| dir.as_os_str().as_bytes().to_vec()).collect()
}

/// Those of them that have an area of this name.
pub fn with_areas(name: &[u8]) -> Vec<Vec<u8>> {
    let area = |top: &[u8]| Path::new(OsStr::from_bytes(top)).join(OsStr::from_bytes(name));
    let mut tops = remembered();
    // Another user may have taken the name in /tmp. A mount at the name is no area: its server, which may not
    // answer, is not asked. Nor is another user's directory asked; a run reports it.
    let uid = uid();
    let mount = |path: &[u8]| mounts::look(path).ok().map(|found| found.mount_id);
    tops.retain(|top| {
        let area = area(top);
        let here = mount(area.as_os_str().as_bytes());
        here.is_some()
            && here == mount(top)
            && std::fs::symlink_metadata(&area).is_ok_and(|found| found.uid() == uid)
    });
    tops
}

/// FNV-1a: names of links only have to differ.
fn fnv(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}
