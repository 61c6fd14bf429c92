//! How much the kernel asks: what programs that look at many files cost.

use crate::tap::Counts;
use crate::world::World;
use std::fs;
use std::path::Path;
use std::process::Command;
use systx_view::wire::Opcode;

const DIRECTORIES: usize = 30;
const FILES: usize = 60;
/// With as many files at the top as in each directory.
const ALL_FILES: usize = (DIRECTORIES + 1) * FILES;

/// Makes a tree. Of the files at the top some are listed before directories, some after, whatever the order.
fn make(top: &Path) {
    let file = |dir: &Path, n: usize| fs::write(dir.join(format!("file-{n:03}")), "content").unwrap();
    fs::create_dir(top).unwrap();
    (0..FILES / 2).for_each(|n| file(top, n));
    for n in 0..DIRECTORIES {
        let dir = top.join(format!("dir-{n}"));
        fs::create_dir(&dir).unwrap();
        (0..FILES).for_each(|n| file(&dir, n));
    }
    (FILES / 2..FILES).for_each(|n| file(top, n));
}

/// What one command asks that works on such a tree.
fn asked_by(command: &[&str]) -> Option<Counts> {
    let (mut world, asked) = World::counted()?;
    make(&world.below.join("tree-of-many"));
    asked.take();
    let done = Command::new(command[0]).args(&command[1..]).current_dir(&world.view).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    let counts = asked.take();
    world.stop().finish().abort();
    Some(counts)
}

#[test]
fn who_removes_a_tree_looks_up_few_of_its_files() {
    let Some(asked) = asked_by(&["rm", "-r", "tree-of-many"]) else { return };
    assert_eq!(asked.of(Opcode::Unlink), ALL_FILES);
    assert!(asked.of(Opcode::Lookup) < ALL_FILES / 4, "{asked:?}");
}

#[test]
fn who_looks_at_a_tree_looks_up_few_of_its_files() {
    let Some(asked) = asked_by(&["find", "tree-of-many", "-size", "+5"]) else { return };
    assert!(asked.of(Opcode::Lookup) < ALL_FILES / 4, "{asked:?}");
    assert!(asked.waited_for() < ALL_FILES / 3, "{asked:?}");
}

#[test]
fn who_reads_names_only_looks_up_none() {
    let Some(asked) = asked_by(&["find", "tree-of-many", "-name", "file*"]) else { return };
    assert!(asked.of(Opcode::Lookup) <= 1, "{asked:?}");
    assert!(asked.waited_for() < 5 * DIRECTORIES, "{asked:?}");
}

/// Names, attributes, targets of links and what is not there, of all that is below a directory.
fn look(dir: &Path) -> Vec<String> {
    let missing = fs::symlink_metadata(dir.join("missing")).unwrap_err();
    let mut seen = vec![format!("{dir:?}: {missing} {:?}", fs::symlink_metadata(dir).unwrap())];
    for entry in fs::read_dir(dir).unwrap() {
        let (entry, path) = entry.map(|entry| (entry.file_type().unwrap(), entry.path())).unwrap();
        if entry.is_dir() {
            seen.extend(look(&path));
        } else {
            let attributes = fs::symlink_metadata(&path).unwrap();
            seen.push(format!("{path:?} {attributes:?} {:?}", fs::read_link(&path).ok()));
        }
    }
    seen
}

#[test]
fn looked_at_again_nothing_is_asked_for() {
    let Some((mut world, asked)) = World::counted() else { return };
    let first = look(&world.view);
    assert!(asked.take().waited_for() > 0, "the tap sees nothing");
    // Since they were read, the kernel takes the time of access of directories and links for changed (fs/fuse,
    // fuse_invalidate_atime), and asks for it once.
    for read in ["", "tree", "tree/a", "tree/a/b", "tree/link"] {
        fs::symlink_metadata(world.view.join(read)).unwrap();
    }
    asked.take();
    let second = look(&world.view);
    let again = asked.take();
    assert_eq!(second, first);
    assert_eq!(again.waited_for(), 0, "{again:?}");
    world.stop().finish().abort();
}
