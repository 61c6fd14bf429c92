//! A part of a transaction is committed as it stands there, and nothing else of it.

mod random;

use crate::world::acts::*;
use crate::world::*;
use std::path::{Path, PathBuf};
use systx_engine::changes::part::{Choice, Unfit};
use systx_engine::changes::Change;
use systx_engine::transaction::{Access, SetAttr, Transaction};
use systx_os::{Linux, Open};

fn choice(only: &[&str], exclude: &[&str]) -> Choice {
    let bytes = |paths: &[&str]| paths.iter().map(|path| path.as_bytes().to_vec()).collect();
    Choice { only: bytes(only), exclude: bytes(exclude) }
}

fn name(change: &Change) -> String {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    match (&change.before, &change.after) {
        (Some(before), Some(after)) if before.path != after.path => {
            format!("{} -> {}", text(&before.path), text(&after.path))
        }
        _ => text(change.path()),
    }
}

/// Commits a part: what of the changes was in it. The tree on disk is what the transaction showed last.
fn commit(mut t: Transaction<Linux>, lower: &Path, choice: &Choice) -> Vec<String> {
    let changes = t.changes().unwrap();
    let part = t.choose(&changes, choice).unwrap().unwrap();
    let chosen: Vec<_> = changes.iter().filter(|change| part.has(change)).map(name).collect();
    t.keep_only(&part).unwrap();
    let left: Vec<_> = t.changes().unwrap().iter().map(name).collect();
    assert_eq!(left, chosen, "what is left is what was said");
    let shown = seen(&mut t);
    let done = t.commit().unwrap();
    assert!(done.conflict_copies.is_empty() && done.pending.is_none(), "{done:?}");
    let root = Linux::new().open_path(lower, Open::Directory).unwrap();
    same_but_for_the_area(shown, real(&root), "shown last, and committed");
    chosen
}

/// The area is one of the root's links, and its making a change of it.
fn same_but_for_the_area(mut shown: Tree, mut real: Tree, what: &str) {
    for tree in [&mut shown, &mut real] {
        let root = tree.get_mut("").unwrap();
        (root.nlink, root.mtime) = (0, None);
    }
    assert_same(&shown, &real, what);
}

/// What a choice is not, and that the transaction is as it was.
fn refused(t: &mut Transaction<Linux>, choice: &Choice) -> Unfit {
    let before = seen(t);
    let changes = t.changes().unwrap();
    let why = t.choose(&changes, choice).unwrap().map(drop).unwrap_err();
    assert_same(&before, &seen(t), "refused");
    why
}

fn read(lower: &Path, path: &str) -> Option<String> {
    std::fs::read_to_string(lower.join(path)).ok()
}

fn files(lower: &Path, names: &[&str]) {
    for name in names {
        let path = lower.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, name).unwrap();
    }
}

#[test]
fn a_new_file_brings_its_new_directories_and_nothing_else() {
    everywhere(
        |lower| files(lower, &["changed", "gone"]),
        |mut t, lower| {
            mkdir(&mut t, "new");
            mkdir(&mut t, "new/deep");
            create(&mut t, "new/deep/f", b"f");
            create(&mut t, "new/deep/other", b"other");
            create(&mut t, "new/beside", b"beside");
            write(&mut t, "changed", b"2");
            remove(&mut t, "gone");
            assert_eq!(commit(t, lower, &choice(&["new/deep/f"], &[])), ["new", "new/deep", "new/deep/f"]);
            assert_eq!(read(lower, "changed").as_deref(), Some("changed"));
            assert_eq!(read(lower, "gone").as_deref(), Some("gone"));
            assert_eq!(std::fs::read_dir(lower.join("new/deep")).unwrap().count(), 1);
        },
    );
}

#[test]
fn a_rename_is_both_of_its_names_or_neither() {
    let prepare = |lower: &PathBuf| files(lower, &["a", "b", "over", "c"]);
    let change = |t: &mut Transaction<Linux>| {
        rename(t, "a", "moved");
        write(t, "moved", b"and changed");
        rename(t, "b", "over");
        write(t, "c", b"2");
    };
    for (only, exclude, expected) in [
        (vec!["a"], vec![], vec!["a -> moved"]),
        (vec!["moved"], vec![], vec!["a -> moved"]),
        // What stood in the way goes with it.
        (vec!["b"], vec![], vec!["over", "b -> over"]),
        (vec![], vec!["a", "over"], vec!["c"]),
        (vec![], vec!["moved", "b"], vec!["c"]),
        (vec!["a", "c"], vec!["moved"], vec!["c"]),
    ] {
        everywhere(prepare, |mut t, lower| {
            change(&mut t);
            assert_eq!(commit(t, lower, &choice(&only, &exclude)), expected);
        });
    }
}

#[test]
fn an_excluded_directory_excludes_everything_below_and_what_stands_on_it() {
    let prepare = |lower: &PathBuf| files(lower, &["d/f", "d/gone", "e/f", "e/out"]);
    everywhere(prepare, |mut t, lower| {
        write(&mut t, "d/f", b"2");
        remove(&mut t, "d/gone");
        mkdir(&mut t, "d/new");
        create(&mut t, "d/new/f", b"");
        // Out of what is excluded: both of its names stay.
        rename(&mut t, "e/out", "d/new/in");
        write(&mut t, "e/f", b"2");
        assert_eq!(commit(t, lower, &choice(&[], &["d"])), ["e/f"]);
        assert_eq!(read(lower, "e/out").as_deref(), Some("e/out"));
    });
    everywhere(prepare, |mut t, lower| {
        rename(&mut t, "d", "moved");
        create(&mut t, "moved/new", b"");
        write(&mut t, "moved/f", b"2");
        write(&mut t, "e/f", b"2");
        assert_eq!(commit(t, lower, &choice(&[], &["d"])), ["e/f"]);
        assert_eq!(read(lower, "d/f").as_deref(), Some("d/f"));
    });
}

#[test]
fn what_is_in_a_directory_that_moved_brings_the_move() {
    let prepare = |lower: &PathBuf| files(lower, &["d/f", "d/g", "d/gone"]);
    everywhere(prepare, |mut t, lower| {
        rename(&mut t, "d", "e");
        write(&mut t, "e/f", b"2");
        write(&mut t, "e/g", b"2");
        remove(&mut t, "e/gone");
        assert_eq!(commit(t, lower, &choice(&["e/f"], &[])), ["d -> e", "d/f -> e/f"]);
        assert_eq!(read(lower, "e/f").as_deref(), Some("2"));
        assert_eq!(read(lower, "e/g").as_deref(), Some("d/g"));
        assert_eq!(read(lower, "e/gone").as_deref(), Some("d/gone"));
    });
}

#[test]
fn a_directory_goes_only_with_all_that_was_in_it() {
    let prepare = |lower: &PathBuf| files(lower, &["d/a", "d/b", "d/sub/c"]);
    let clear = |t: &mut Transaction<Linux>| {
        for name in ["d/a", "d/b", "d/sub/c"] {
            remove(t, name);
        }
        rmdir(t, "d/sub");
        rmdir(t, "d");
    };
    everywhere(prepare, |mut t, lower| {
        clear(&mut t);
        assert_eq!(commit(t, lower, &choice(&["d/a", "d/sub"], &[])), ["d/a", "d/sub", "d/sub/c"]);
        assert_eq!(read(lower, "d/b").as_deref(), Some("d/b"));
    });
    everywhere(prepare, |mut t, lower| {
        clear(&mut t);
        assert_eq!(commit(t, lower, &choice(&[], &["d/sub/c"])), ["d/a", "d/b"]);
        assert_eq!(read(lower, "d/sub/c").as_deref(), Some("d/sub/c"));
    });
    // Another directory has its place: all of the old one goes with it, and that has to be said.
    everywhere(prepare, |mut t, lower| {
        clear(&mut t);
        mkdir(&mut t, "d");
        create(&mut t, "d/a", b"2");
        let why = refused(&mut t, &choice(&["d/a"], &[]));
        assert!(matches!(&why, Unfit::Needs(d, _) if d == b"d"), "{why:?}");
        let chosen = commit(t, lower, &choice(&["d"], &[]));
        assert_eq!(chosen, ["d/a", "d/b", "d/sub", "d/sub/c"]);
        assert_eq!((read(lower, "d/a").as_deref(), read(lower, "d/b")), (Some("2"), None));
    });
    // What is left of the old one keeps the new one out.
    everywhere(prepare, |mut t, lower| {
        clear(&mut t);
        mkdir(&mut t, "d");
        create(&mut t, "d/a", b"2");
        create(&mut t, "d/new", b"");
        assert_eq!(commit(t, lower, &choice(&[], &["d/a"])), ["d/b", "d/sub", "d/sub/c"]);
        assert_eq!(read(lower, "d/a").as_deref(), Some("d/a"));
    });
}

#[test]
fn a_path_at_which_nothing_changes_is_told() {
    everywhere(
        |lower| files(lower, &["d/read", "d/changed", "d/written.again"]),
        |mut t, _| {
            node(&mut t, "d/read");
            write(&mut t, "d/changed", b"2");
            let again = node(&mut t, "d/written.again");
            t.open(again, Access::ReadWrite, false).unwrap();
            t.close(again);
            create(&mut t, "came", b"");
            remove(&mut t, "came");
            for path in ["d/read", "d/written.again", "came", "none", "d/change", "changed"] {
                let unmatched = Unfit::Unmatched(path.into());
                assert_eq!(refused(&mut t, &choice(&["d/changed", path], &[])), unmatched);
                assert_eq!(refused(&mut t, &choice(&[], &[path])), unmatched);
            }
            assert_eq!(refused(&mut t, &choice(&[], &["d"])), Unfit::Empty);
            assert_eq!(refused(&mut t, &choice(&["d"], &["d/changed"])), Unfit::Empty);
            t.abort();
        },
    );
}

#[test]
fn names_of_one_file_are_chosen_one_by_one_and_its_bytes_by_any_of_them() {
    let prepare = |lower: &PathBuf| {
        files(lower, &["old", "dropped", "one"]);
        std::fs::hard_link(lower.join("one"), lower.join("two")).unwrap();
    };
    let change = |t: &mut Transaction<Linux>| {
        link(t, "old", "third");
        write(t, "third", b"2");
        create(t, "new", b"new");
        link(t, "new", "new.link");
        write(t, "one", b"2");
        remove(t, "two");
        write(t, "dropped", b"2");
        remove(t, "dropped");
    };
    everywhere(prepare, |mut t, lower| {
        change(&mut t);
        let chosen = commit(t, lower, &choice(&["new.link", "third", "one"], &[]));
        // As it is told: what was written to one of two names goes with the other one's end.
        assert_eq!(chosen, ["new.link", "old", "third", "two"]);
        let expected = [("old", "2"), ("third", "2"), ("one", "2"), ("new.link", "new")];
        expected.iter().for_each(|(name, bytes)| assert_eq!(read(lower, name).as_deref(), Some(*bytes)));
        assert!(!lower.join("new").exists());
    });
    everywhere(prepare, |mut t, lower| {
        change(&mut t);
        let chosen = commit(t, lower, &choice(&[], &["old", "dropped", "new"]));
        assert_eq!(chosen, ["new.link", "third", "two"]);
        assert_eq!(read(lower, "third").as_deref(), Some("old"));
        // What was written to it before it went is gone, too.
        assert_eq!(read(lower, "dropped").as_deref(), Some("dropped"));
    });
}

#[test]
fn a_link_in_a_name_s_place_is_chosen_apart_from_what_else_becomes_of_the_file() {
    let prepare = |lower: &PathBuf| files(lower, &["moved", "taken", "written", "taken too"]);
    let change = |t: &mut Transaction<Linux>| {
        rename(t, "moved", "a new name");
        for (old, new) in [("a new name", "taken"), ("written", "taken too")] {
            remove(t, new);
            link(t, old, new);
        }
        write(t, "written", b"2");
    };
    everywhere(prepare, |mut t, lower| {
        change(&mut t);
        let told: Vec<_> = t.changes().unwrap().iter().map(name).collect();
        assert_eq!(told, ["moved -> a new name", "taken", "taken too", "written"]);
        let chosen = commit(t, lower, &choice(&["a new name", "written"], &[]));
        assert_eq!(chosen, ["moved -> a new name", "written"]);
        let expected =
            [("a new name", "moved"), ("taken", "taken"), ("written", "2"), ("taken too", "taken too")];
        expected.iter().for_each(|(name, bytes)| assert_eq!(read(lower, name).as_deref(), Some(*bytes)));
        assert!(!lower.join("moved").exists());
    });
    everywhere(prepare, |mut t, lower| {
        change(&mut t);
        assert_eq!(commit(t, lower, &choice(&["taken"], &[])), ["taken"]);
        assert_eq!(read(lower, "moved").as_deref(), Some("moved"));
        assert_eq!(read(lower, "taken").as_deref(), Some("moved"));
        assert!(!lower.join("a new name").exists());
    });
}

#[test]
fn swapped_and_turned_over_directories_stay_trees() {
    let prepare = |lower: &PathBuf| files(lower, &["a/b/f", "x/1", "y/2"]);
    // The inner one becomes the outer one.
    for (only, expected) in [("c", vec!["a/b -> c", "a -> c/a"]), ("c/a", vec!["a/b -> c", "a -> c/a"])] {
        everywhere(prepare, |mut t, lower| {
            rename(&mut t, "a/b", "c");
            rename(&mut t, "a", "c/a");
            let mut chosen = commit(t, lower, &choice(&[only], &[]));
            chosen.sort();
            let mut expected = expected.clone();
            expected.sort();
            assert_eq!(chosen, expected);
        });
    }
    everywhere(prepare, |mut t, lower| {
        rename(&mut t, "a/b", "c");
        rename(&mut t, "a", "c/a");
        assert_eq!(refused(&mut t, &choice(&[], &["a"])), Unfit::Empty);
        assert_eq!(read(lower, "a/b/f").as_deref(), Some("a/b/f"));
    });
}

#[test]
fn a_staged_directory_without_write_permission_is_taken_apart_and_stays_so() {
    everywhere(
        |_| {},
        |mut t, lower| {
            mkdir(&mut t, "new");
            mkdir(&mut t, "new/deep");
            mkdir(&mut t, "new/deep/er");
            create(&mut t, "new/deep/er/f", b"");
            create(&mut t, "new/f", b"");
            for (dir, mode) in [("new/deep/er", 0o000), ("new/deep", 0o444), ("new", 0o555)] {
                set(&mut t, dir, SetAttr { mode: Some(mode), ..SetAttr::default() });
            }
            let changes = t.changes().unwrap();
            let part = t.choose(&changes, &choice(&["new/f"], &[])).unwrap().unwrap();
            t.keep_only(&part).unwrap();
            t.commit().unwrap();
            use std::os::unix::fs::PermissionsExt;
            let mode = std::fs::metadata(lower.join("new")).unwrap().permissions().mode() & 0o7777;
            assert_eq!((mode, lower.join("new/deep").exists()), (0o555, false));
            assert_eq!(read(lower, "new/f").as_deref(), Some(""));
        },
    );
}
