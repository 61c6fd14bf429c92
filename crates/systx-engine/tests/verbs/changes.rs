//! What a transaction says that it would change is what it changes, and all of it.

use crate::world::acts::*;
use crate::world::*;
use std::os::unix::fs::{symlink, MetadataExt};
use std::path::PathBuf;
use systx_engine::changes::{Change, Kind, Side, What};
use systx_engine::transaction::{Access, SetAttr, SetTime, Transaction};
use systx_os::{Linux, Open, Os, Rename, SetXattr, Timestamp};

/// One line a change: kind, names, what differs.
fn lines(t: &mut Transaction<Linux>) -> Vec<String> {
    t.changes().unwrap().iter().map(line).collect()
}

fn line(change: &Change) -> String {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let path = |side| change.version(side).map(|version| text(&version.path));
    let mut line = match change.kind {
        Kind::Added => "A ",
        Kind::Modified => "M ",
        Kind::Deleted => "D ",
        Kind::Renamed => "R ",
        Kind::Retyped => "T ",
    }
    .to_string();
    let (before, after) = (path(Side::Before), path(Side::After));
    match (&before, &after) {
        (Some(before), Some(after)) if before != after => line += &format!("{before} -> {after}"),
        _ => line += &before.or(after).unwrap(),
    }
    let What { contents, mode, owner, mtime, atime, links, xattrs } = &change.what;
    let flags = [(contents, "bytes"), (mode, "mode"), (owner, "owner"), (mtime, "mtime")];
    for (on, word) in flags.into_iter().chain([(atime, "atime"), (links, "links")]) {
        if *on {
            line += &format!(" {word}");
        }
    }
    for x in xattrs {
        let sign = match (x.before, x.after) {
            (false, _) => '+',
            (_, false) => '-',
            _ => '~',
        };
        line += &format!(" {sign}{}", text(&x.name));
    }
    if let Some(other) = &change.link_to {
        line += &format!(" = {}", text(other));
    }
    line
}

/// All bytes of one side.
fn contents(t: &mut Transaction<Linux>, change: &Change, side: Side) -> Vec<u8> {
    let (mut all, mut buf) = (Vec::new(), vec![0; 70_000]);
    loop {
        match t.contents(change, side, &mut buf, all.len() as u64).unwrap() {
            0 => return all,
            got => all.extend_from_slice(&buf[..got]),
        }
    }
}

#[test]
fn a_new_a_changed_and_a_removed_object_are_told_by_their_paths() {
    let prepare = |lower: &PathBuf| {
        std::fs::create_dir(lower.join("d")).unwrap();
        std::fs::write(lower.join("d/gone"), "1").unwrap();
        std::fs::write(lower.join("changed"), "12345").unwrap();
        std::fs::write(lower.join("read"), "1").unwrap();
    };
    everywhere(prepare, |mut t, _| {
        assert_eq!(lines(&mut t), [""; 0]);
        walk(&mut t, "read").unwrap();
        let opened = node(&mut t, "read");
        t.open(opened, Access::ReadWrite, false).unwrap();
        t.close(opened);
        mkdir(&mut t, "new");
        create(&mut t, "new/file", b"abc");
        let dir = node(&mut t, "new");
        t.symlink(dir, b"symlink", b"file", me()).unwrap();
        write(&mut t, "changed", b"123456");
        remove(&mut t, "d/gone");
        let expected = ["M changed bytes mtime", "D d/gone", "A new", "A new/file", "A new/symlink"];
        assert_eq!(lines(&mut t), expected);
        assert_eq!(lines(&mut t), expected, "telling changes nothing");
        let changes = t.changes().unwrap();
        let size = |n: usize, side| changes[n].version(side).map(|version: &_| version.size);
        assert_eq!((size(0, Side::Before), size(0, Side::After)), (Some(5), Some(6)));
        assert_eq!((size(1, Side::Before), size(1, Side::After)), (Some(1), None));
        assert_eq!((size(3, Side::Before), size(3, Side::After)), (None, Some(3)));
        assert_eq!(contents(&mut t, &changes[0], Side::Before), b"12345");
        assert_eq!(contents(&mut t, &changes[0], Side::After), b"123456");
        assert_eq!(contents(&mut t, &changes[1], Side::Before), b"1");
        assert_eq!(contents(&mut t, &changes[1], Side::After), b"");
        assert_eq!(contents(&mut t, &changes[4], Side::After), b"file");
        t.commit().unwrap();
    });
}

#[test]
fn each_object_of_a_removed_tree_is_told() {
    let prepare = |lower: &PathBuf| {
        std::fs::create_dir_all(lower.join("tree/a/b")).unwrap();
        for n in 0..300 {
            std::fs::write(lower.join(format!("tree/a/b/{n:03}")), "").unwrap();
        }
    };
    everywhere(prepare, |mut t, lower| {
        for n in 0..300 {
            remove(&mut t, &format!("tree/a/b/{n:03}"));
        }
        for dir in ["tree/a/b", "tree/a", "tree"] {
            rmdir(&mut t, dir);
        }
        let told = lines(&mut t);
        assert_eq!(told.len(), 303);
        assert_eq!(told[..4], ["D tree", "D tree/a", "D tree/a/b", "D tree/a/b/000"]);
        t.commit().unwrap();
        assert!(!lower.join("tree").exists());
    });
}

#[test]
fn what_comes_to_nothing_is_not_told() {
    let prepare = |lower: &PathBuf| {
        std::fs::create_dir(lower.join("d")).unwrap();
        std::fs::write(lower.join("d/f"), "same").unwrap();
        std::fs::write(lower.join("g"), "same").unwrap();
    };
    everywhere(prepare, |mut t, _| {
        create(&mut t, "new", b"x");
        rename(&mut t, "new", "d/newer");
        remove(&mut t, "d/newer");
        rename(&mut t, "d", "e");
        rename(&mut t, "e/f", "f");
        rename(&mut t, "f", "e/f");
        rename(&mut t, "e", "d");
        set(&mut t, "g", SetAttr { mode: Some(0o600), ..SetAttr::default() });
        set(&mut t, "g", SetAttr { mode: Some(0o644), ..SetAttr::default() });
        let g = node(&mut t, "g");
        if t.setxattr(g, b"user.k", b"v", SetXattr::Any).is_ok() {
            t.removexattr(g, b"user.k").unwrap();
        }
        assert_eq!(lines(&mut t), [""; 0]);
        let mtime = t.getattr(g).unwrap().mtime;
        write(&mut t, "g", b"other");
        write(&mut t, "g", b"same");
        assert_eq!(lines(&mut t), ["M g mtime"], "only that somebody wrote is left");
        set(&mut t, "g", SetAttr { mtime: Some(SetTime::At(mtime)), ..SetAttr::default() });
        assert_eq!(lines(&mut t), [""; 0]);
        // The directory is another one, and looks like the first.
        rename(&mut t, "d", "moved");
        mkdir(&mut t, "d");
        rename(&mut t, "moved/f", "d/f");
        rmdir(&mut t, "moved");
        assert_eq!(lines(&mut t), [""; 0]);
        t.abort();
    });
}

#[test]
fn attributes_alone_are_told_one_by_one() {
    let prepare = |lower: &PathBuf| {
        for name in ["mode", "owner", "times", "xattr"] {
            std::fs::write(lower.join(name), "1").unwrap();
        }
        std::fs::create_dir(lower.join("dir")).unwrap();
    };
    everywhere(prepare, |mut t, _| {
        set(&mut t, "mode", SetAttr { mode: Some(0o4711), ..SetAttr::default() });
        set(&mut t, "dir", SetAttr { mode: Some(0o700), ..SetAttr::default() });
        let time = Some(SetTime::At(Timestamp { sec: 1000, nsec: 7 }));
        set(&mut t, "times", SetAttr { mtime: time, atime: time, ..SetAttr::default() });
        let mut expected = vec!["M dir mode", "M mode mode"];
        // Only root gives away.
        if me().uid == 0 {
            set(&mut t, "owner", SetAttr { uid: Some(7), gid: Some(8), ..SetAttr::default() });
            expected.push("M owner owner");
        }
        expected.push("M times mtime atime");
        let x = node(&mut t, "xattr");
        match t.setxattr(x, b"user.b", b"v", SetXattr::Any) {
            Ok(()) => {
                t.setxattr(x, b"user.a", b"", SetXattr::Any).unwrap();
                expected.push("M xattr +user.a +user.b");
            }
            Err(e) => println!("skipped: extended attributes: {e:?}"),
        }
        assert_eq!(lines(&mut t), expected);
        let changes = t.changes().unwrap();
        let mode = |side| changes[1].version(side).map(|version: &_| version.mode & 0o7777);
        assert_eq!((mode(Side::Before), mode(Side::After)), (Some(0o644), Some(0o4711)));
        t.commit().unwrap();
    });
}

#[test]
fn a_directory_that_is_renamed_is_one_change_and_what_changes_in_it_has_its_own() {
    let prepare = |lower: &PathBuf| {
        std::fs::create_dir_all(lower.join("a/sub")).unwrap();
        for name in ["a/kept", "a/changed", "a/sub/gone", "a/sub/out", "a/sub/turned"] {
            std::fs::write(lower.join(name), name).unwrap();
        }
        std::fs::create_dir(lower.join("over")).unwrap();
        std::fs::write(lower.join("over/old"), "1").unwrap();
    };
    everywhere(prepare, |mut t, lower| {
        remove(&mut t, "over/old");
        rename(&mut t, "a", "over");
        write(&mut t, "over/changed", b"2");
        remove(&mut t, "over/sub/gone");
        rename(&mut t, "over/sub/out", "out");
        rename(&mut t, "over/sub/turned", "over/sub/round");
        create(&mut t, "over/sub/new", b"");
        let expected = [
            "D a/sub/gone",
            "R a/sub/out -> out",
            // What was there, and the way in which its place is taken.
            "D over",
            "R a -> over",
            "M a/changed -> over/changed bytes mtime",
            "D over/old",
            "A over/sub/new",
            "R a/sub/turned -> over/sub/round",
        ];
        assert_eq!(lines(&mut t), expected);
        let changes = t.changes().unwrap();
        assert_eq!(contents(&mut t, &changes[4], Side::Before), b"a/changed");
        assert_eq!(contents(&mut t, &changes[4], Side::After), b"2");
        t.commit().unwrap();
        assert_eq!(std::fs::read(lower.join("over/sub/round")).unwrap(), b"a/sub/turned");
    });
}

#[test]
fn swaps_and_what_is_moved_into_new_directories_are_renames() {
    let prepare = |lower: &PathBuf| {
        for name in ["a", "b", "f"] {
            std::fs::write(lower.join(name), name).unwrap();
        }
    };
    everywhere(prepare, |mut t, _| {
        rename_as(&mut t, "a", "b", Rename::Exchange);
        mkdir(&mut t, "new");
        rename(&mut t, "f", "new/f");
        write(&mut t, "new/f", b"longer than before");
        create(&mut t, "f", b"another");
        let expected = ["R b -> a", "R a -> b", "A f", "A new", "R f -> new/f bytes mtime"];
        assert_eq!(lines(&mut t), expected);
        t.commit().unwrap();
    });
}

#[test]
fn hard_links_are_told_by_the_name_that_they_share() {
    let prepare = |lower: &PathBuf| {
        for name in ["a", "two", "e"] {
            std::fs::write(lower.join(name), name).unwrap();
        }
        for (from, to) in [("two", "two.kept"), ("e", "e1"), ("e", "e2")] {
            std::fs::hard_link(lower.join(from), lower.join(to)).unwrap();
        }
    };
    everywhere(prepare, |mut t, lower| {
        link(&mut t, "a", "z");
        remove(&mut t, "two");
        create(&mut t, "new", b"");
        link(&mut t, "new", "c");
        link(&mut t, "new", "d");
        write(&mut t, "e1", b"written by one of its names");
        let expected = ["A c", "A d = c", "M e1 bytes mtime", "A new = c", "D two links", "A z = a"];
        assert_eq!(lines(&mut t), expected);
        let changes = t.changes().unwrap();
        let links = |n: usize, side| changes[n].version(side).map(|version: &_| version.nlink);
        assert_eq!((links(5, Side::Before), links(5, Side::After)), (None, Some(2)));
        t.commit().unwrap();
        assert_eq!(std::fs::metadata(lower.join("new")).unwrap().nlink(), 3);
    });
}

#[test]
fn each_of_many_names_of_one_file_is_told() {
    const COUNT: usize = 1000;
    let prepare = |lower: &PathBuf| {
        std::fs::write(lower.join("0"), "").unwrap();
        for n in 1..COUNT {
            std::fs::hard_link(lower.join("0"), lower.join(n.to_string())).unwrap();
        }
    };
    everywhere(prepare, |mut t, _| {
        for n in 0..COUNT {
            rename(&mut t, &n.to_string(), &format!("to{n}"));
            link(&mut t, &format!("to{n}"), &format!("too{n}"));
        }
        let changes = t.changes().unwrap();
        let count = |kind| changes.iter().filter(|change| change.kind == kind).count();
        assert_eq!((count(Kind::Renamed), count(Kind::Added), changes.len()), (COUNT, COUNT, 2 * COUNT));
        assert!(changes.iter().all(|change| (change.kind == Kind::Added) == change.link_to.is_some()));
        t.abort();
    });
}

#[test]
fn what_takes_anothers_name_is_compared_with_it() {
    let prepare = |lower: &PathBuf| {
        for name in ["bytes", "equal", "type", "pushed", "pusher", "linked"] {
            std::fs::write(lower.join(name), name).unwrap();
        }
        std::fs::hard_link(lower.join("linked"), lower.join("linked.too")).unwrap();
        symlink("one", lower.join("symlink")).unwrap();
        std::fs::create_dir_all(lower.join("dir")).unwrap();
        std::fs::write(lower.join("dir/f"), "1").unwrap();
    };
    everywhere(prepare, |mut t, _| {
        // As editors do.
        create(&mut t, "tmp", b"other");
        rename(&mut t, "tmp", "bytes");
        let equal = node(&mut t, "equal");
        let mtime = t.getattr(equal).unwrap().mtime;
        create(&mut t, "tmp", b"equal");
        set(&mut t, "tmp", SetAttr { mtime: Some(SetTime::At(mtime)), ..SetAttr::default() });
        rename(&mut t, "tmp", "equal");
        rename(&mut t, "pusher", "pushed");
        let root = t.root(0);
        remove(&mut t, "symlink");
        t.symlink(root, b"symlink", b"two", me()).unwrap();
        let linked = node(&mut t, "linked");
        let mtime = t.getattr(linked).unwrap().mtime;
        remove(&mut t, "linked");
        create(&mut t, "linked", b"linked");
        set(&mut t, "linked", SetAttr { mtime: Some(SetTime::At(mtime)), ..SetAttr::default() });
        remove(&mut t, "dir/f");
        rmdir(&mut t, "dir");
        create(&mut t, "dir", b"no directory any more");
        remove(&mut t, "type");
        mkdir(&mut t, "type");
        create(&mut t, "type/f", b"");
        let expected = [
            "M bytes bytes mtime",
            "T dir bytes mode",
            "D dir/f",
            "M linked links",
            "D pushed",
            "R pusher -> pushed",
            "M symlink bytes mtime",
            "T type bytes mode",
            "A type/f",
        ];
        assert_eq!(lines(&mut t), expected);
        t.commit().unwrap();
    });
}

#[test]
fn a_tree_that_is_removed_and_made_again_is_compared_file_by_file() {
    let prepare = |lower: &PathBuf| {
        std::fs::create_dir(lower.join("d")).unwrap();
        std::fs::write(lower.join("d/changed"), "1").unwrap();
        std::fs::write(lower.join("d/gone"), "1").unwrap();
    };
    everywhere(prepare, |mut t, _| {
        remove(&mut t, "d/changed");
        remove(&mut t, "d/gone");
        rmdir(&mut t, "d");
        mkdir(&mut t, "d");
        create(&mut t, "d/changed", b"2");
        create(&mut t, "d/new", b"2");
        assert_eq!(lines(&mut t), ["M d/changed bytes mtime", "D d/gone", "A d/new"]);
        t.commit().unwrap();
    });
}

#[test]
fn a_large_file_differs_where_its_bytes_do_and_not_where_they_were_written_again() {
    let bytes: Vec<u8> = (0..600_000).map(|n| (n % 251) as u8).collect();
    let prepare = |lower: &PathBuf| {
        for name in ["again", "hole", "last", "whole"] {
            std::fs::write(lower.join(name), &bytes).unwrap();
        }
    };
    everywhere(prepare, |mut t, lower| {
        let change = |t: &mut Transaction<Linux>, name: &str, new: &[u8], at: u64| {
            let node = node(t, name);
            let mtime = t.getattr(node).unwrap().mtime;
            t.open(node, Access::Write, false).unwrap();
            assert_eq!(t.write_at(node, new, at), Ok(new.len()));
            t.close(node);
            set(t, name, SetAttr { mtime: Some(SetTime::At(mtime)), ..SetAttr::default() });
        };
        change(&mut t, "again", &bytes[100_000..400_000], 100_000);
        change(&mut t, "last", &[255], 599_999);
        let hole = node(&mut t, "hole");
        t.open(hole, Access::Write, false).unwrap();
        t.fallocate(hole, 3, 300_000, 5000).unwrap();
        t.close(hole);
        // From nothing on, to the same bytes.
        let whole = node(&mut t, "whole");
        let mtime = t.getattr(whole).unwrap().mtime;
        write(&mut t, "whole", &bytes);
        set(&mut t, "whole", SetAttr { mtime: Some(SetTime::At(mtime)), ..SetAttr::default() });
        assert_eq!(lines(&mut t), ["M hole bytes mtime", "M last bytes"]);
        let changes = t.changes().unwrap();
        assert!(contents(&mut t, &changes[1], Side::Before) == bytes);
        let mut expected = bytes.clone();
        expected[599_999] = 255;
        assert!(contents(&mut t, &changes[1], Side::After) == expected);
        t.commit().unwrap();
        assert!(std::fs::read(lower.join("last")).unwrap() == expected);
    });
}

#[test]
fn a_file_whose_last_known_name_goes_is_told_with_what_was_written_to_it() {
    let prepare = |lower: &PathBuf| {
        std::fs::write(lower.join("f"), "1").unwrap();
        std::fs::hard_link(lower.join("f"), lower.join("unseen")).unwrap();
    };
    everywhere(prepare, |mut t, lower| {
        let f = node(&mut t, "f");
        t.open(f, Access::Write, false).unwrap();
        remove(&mut t, "f");
        t.write_at(f, b"22", 0).unwrap();
        t.close(f);
        assert_eq!(lines(&mut t), ["D f bytes mtime links"]);
        t.commit().unwrap();
        assert_eq!(std::fs::read(lower.join("unseen")).unwrap(), b"22");
    });
}

#[test]
fn a_root_that_changes_is_told_by_an_empty_path() {
    everywhere(
        |_| {},
        |mut t, _| {
            set(&mut t, "", SetAttr { mode: Some(0o711), ..SetAttr::default() });
            assert_eq!(lines(&mut t), ["M  mode"]);
            assert_eq!(t.shown_path(0, b"a/b"), b"a/b", "nobody said where it is mounted");
            t.abort();
        },
    );
}

#[test]
fn what_an_outsider_changed_meanwhile_is_not_compared_with() {
    let prepare = |lower: &PathBuf| std::fs::write(lower.join("f"), "11").unwrap();
    everywhere(prepare, |mut t, lower| {
        write(&mut t, "f", b"22");
        let os = Linux::new();
        let dir = os.open_path(lower, Open::Directory).unwrap();
        let file = os.open(&dir, b"f", Open::Write).unwrap();
        assert_eq!(os.pwrite(&file, b"33", 0), Ok(2));
        os.utimens(&file, None, Some(Timestamp { sec: 7, nsec: 0 })).unwrap();
        assert!(t.changes().is_err());
        t.abort();
    });
}
