//! The mount table as it would be if directories were mounts of their own.
//!
//! An ordinary user's area is in a directory of the user, and names move only within one mount, so that
//! directory is served as the top of a file system is for root. Guarantees: nothing above it is served. Does
//! not: look at the machine.

use super::path::is_below;
use systx_os::sandbox::mounts::Mount;

/// The table with a mount for each of `tops`, each given with the mount that it is on; of the others those
/// below them, and the kernel's /proc.
pub fn narrow(table: &[Mount], tops: &[(Vec<u8>, Mount)]) -> Vec<Mount> {
    let is_a_top = |mount: &Mount| tops.iter().any(|(top, _)| *top == mount.point);
    let is_in_a_top = |mount: &Mount| tops.iter().any(|(top, _)| is_below(&mount.point, top).is_some());
    let kept = |mount: &&Mount| mount.point == b"/proc" || (is_in_a_top(mount) && !is_a_top(mount));
    let own = tops.iter().map(|(top, mount)| {
        let rest = is_below(top, &mount.point).unwrap_or_default();
        let root = match (mount.root.as_slice(), rest) {
            (root, b"") => root.to_vec(),
            (b"/", rest) => [b"/", rest].concat(),
            (root, rest) => [root, b"/", rest].concat(),
        };
        Mount { point: top.clone(), root, ..mount.clone() }
    });
    own.chain(table.iter().filter(kept).cloned()).collect()
}

/// `dir` and the directories above it, up to the mount point `point`, from the top.
pub fn way<'a>(dir: &'a [u8], point: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    let cuts = (1..=dir.len()).filter(move |n| dir.get(*n).is_none_or(|b| *b == b'/'));
    let from_root = std::iter::once(&b"/"[..]).filter(move |_| dir != b"/");
    from_root.chain(cuts.map(move |n| &dir[..n])).filter(move |path| is_below(path, point).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(id: u64, point: &str, root: &str) -> Mount {
        Mount {
            id,
            parent: 1,
            device: b"8:1".to_vec(),
            root: root.into(),
            point: point.into(),
            fs_type: b"ext4".to_vec(),
            source: b"/dev/sda1".to_vec(),
            attributes: Default::default(),
            file_system_read_only: false,
            idmapped: false,
            user_id: None,
        }
    }

    #[test]
    fn what_lies_above_an_own_directory_is_not_served() {
        let table =
            [mount(1, "/", "/"), mount(2, "/proc", "/"), mount(3, "/home", "/vol"), mount(4, "/srv", "/")];
        let tops = [(b"/home/u".to_vec(), table[2].clone()), (b"/srv".to_vec(), table[3].clone())];
        let told: Vec<_> = narrow(&table, &tops).into_iter().map(|m| (m.id, m.point, m.root)).collect();
        let line = |id, point: &str, root: &str| (id, point.as_bytes().to_vec(), root.as_bytes().to_vec());
        assert_eq!(told, [line(3, "/home/u", "/vol/u"), line(4, "/srv", "/"), line(2, "/proc", "/")]);
    }

    #[test]
    fn what_is_mounted_in_an_own_directory_stays() {
        let table = [mount(1, "/", "/"), mount(2, "/u/in", "/")];
        let told = narrow(&table, &[(b"/u".to_vec(), table[0].clone())]);
        assert_eq!(
            told.iter().map(|m| m.point.clone()).collect::<Vec<_>>(),
            [b"/u".to_vec(), b"/u/in".to_vec()]
        );
    }

    #[test]
    fn the_way_to_a_directory_begins_at_its_mount() {
        let told = |dir: &str, point: &str| -> Vec<String> {
            way(dir.as_bytes(), point.as_bytes()).map(|p| String::from_utf8(p.to_vec()).unwrap()).collect()
        };
        assert_eq!(told("/home/u/a", "/"), ["/", "/home", "/home/u", "/home/u/a"]);
        assert_eq!(told("/home/u/a", "/home/u"), ["/home/u", "/home/u/a"]);
        assert_eq!(told("/", "/"), ["/"]);
    }
}
