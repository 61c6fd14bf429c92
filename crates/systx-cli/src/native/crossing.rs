//! Which bound directories are in the way of a call about names.
//!
//! Owns: the decision, from what the mounts of the call's names are. Guarantees: a call that stays on one mount costs no
//! question to the kernel where its text shows that. Does not: act.
//!
//! The kernel refuses to move or link from one mount to another (`EXDEV`), and to move or remove a mount point (`EBUSY`).

use systx_os::sandbox::bind;
use systx_os::sandbox::calls::Name;

/// A directory that is bound.
#[derive(Clone, Copy, Debug)]
pub struct Bind<'a> {
    /// Number of the mount.
    pub mount: u64,
    /// Last name of the directory.
    pub name: &'a [u8],
}

/// See [`concerned`].
pub type MountOf<'a> = &'a dyn Fn(Option<i32>, &[u8]) -> Option<u64>;

/// Returns the mounts of `binds` that are, or may be, in the way of a call with these names. `mount_of` finds the mount on
/// which a path from a descriptor, or from the working directory, ends; `None`: it can't be found out.
pub fn concerned(names: &[Name], binds: &[Bind<'_>], mount_of: MountOf<'_>) -> Vec<u64> {
    let parts: Vec<_> = names.iter().map(|name| (name.from, split(&name.path))).collect();
    // Directories above it may have got other names; its own is known, as it changes by a call that is asked about.
    let may_be_bound =
        |last: &[u8]| matches!(last, b"" | b"." | b"..") || binds.iter().any(|b| b.name == last);
    let in_one = match &parts[..] {
        [(from, (dir, _)), (other, (to, _))] => from == other && dir == to,
        _ => true,
    };
    if in_one && !parts.iter().any(|(_, (_, last))| may_be_bound(last)) {
        return Vec::new();
    }
    let dirs: Vec<_> = parts.iter().map(|(from, (dir, _))| mount_of(*from, &itself(dir))).collect();
    let is_bound = |mount: &u64| binds.iter().any(|bind| bind.mount == *mount);
    let mut found = Vec::new();
    if !in_one && dirs[0].is_none() && dirs[1].is_none() {
        // Both may be anywhere.
        return binds.iter().map(|bind| bind.mount).collect();
    }
    if !in_one && dirs[0] != dirs[1] {
        found.extend(dirs.iter().flatten().copied().filter(is_bound));
    }
    for ((from, (_, last)), name) in parts.iter().zip(names) {
        if may_be_bound(last) {
            let object = mount_of(*from, without_slashes(&name.path)).filter(is_bound);
            found.extend(object.filter(|mount| !dirs.contains(&Some(*mount))));
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// The path of a directory, written so that a symbolic link at its end is followed.
pub(super) fn itself(dir: &[u8]) -> Vec<u8> {
    if dir.is_empty() {
        Vec::new()
    } else {
        [dir, b"/."].concat()
    }
}

/// A path without the slashes that it ends in.
pub(super) fn without_slashes(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    if end == 0 {
        &path[..path.len().min(1)]
    } else {
        &path[..end]
    }
}

/// Directory and last name of a path, which may end in slashes.
pub(super) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match bind::split(without_slashes(path)) {
        (b"", last) if path.starts_with(b"/") => (b"/", last),
        split => split,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mount 1 is a view; `d` of its root is bound by mount 2, `e` by 3, and `d/f` is a file.
    fn asked(names: &[&str]) -> Vec<u64> {
        let names: Vec<_> =
            names.iter().map(|path| Name { from: None, path: path.as_bytes().to_vec() }).collect();
        let binds = [Bind { mount: 2, name: b"d" }, Bind { mount: 3, name: b"e" }];
        let mount_of = |_: Option<i32>, path: &[u8]| {
            let path = std::str::from_utf8(path).unwrap();
            match path.trim_start_matches("./").split('/').next() {
                Some("d") => Some(2),
                Some("e") => Some(3),
                Some("unknown") => None,
                _ => Some(1),
            }
        };
        concerned(&names, &binds, &mount_of)
    }

    #[test]
    fn what_stays_on_one_mount_has_nothing_in_its_way() {
        for names in
            [&["a", "b"][..], &["d/f", "d/g"], &["d/f", "d/s/g"], &["x"], &["d/s"], &["d/f", "./d/g"]]
        {
            assert_eq!(asked(names), [0u64; 0], "{names:?}");
        }
    }

    #[test]
    fn what_goes_from_one_mount_to_another_has_both_in_its_way() {
        assert_eq!(asked(&["d/f", "f"]), [2]);
        assert_eq!(asked(&["f", "d/f"]), [2]);
        assert_eq!(asked(&["d/f", "e/f"]), [2, 3]);
    }

    #[test]
    fn what_may_go_from_one_mount_to_another_counts_as_if_it_did() {
        assert_eq!(asked(&["d/f", "unknown/f"]), [2]);
        assert_eq!(asked(&["unknown/f", "unknown/e/f"]), [2, 3]);
        assert_eq!(asked(&["f", "unknown/f"]), [0u64; 0]);
    }

    #[test]
    fn a_directory_that_is_bound_is_in_its_own_way() {
        assert_eq!(asked(&["d"]), [2]);
        assert_eq!(asked(&["d//"]), [2]);
        assert_eq!(asked(&["d", "x"]), [2]);
        assert_eq!(asked(&["d", "e"]), [2, 3]);
        assert_eq!(asked(&["d", "e/x"]), [2, 3]);
        // Another one of that name, in a directory that is bound.
        assert_eq!(asked(&["d/d"]), [0u64; 0]);
    }
}
