//! Single promises of the verbs: what the random agreement test can't reach.

use crate::world::*;
use std::os::unix::fs::{FileExt, MetadataExt};
use systx_engine::outcome::{ConflictKind, VerbError};
use systx_engine::transaction::{Access, AppendedAt, Node, SetAttr, SetTime, Transaction};
use systx_os::host;
use systx_os::{Errno, FileType, Linux, Open, Os, Rename, Seek, SetXattr, Timestamp};

/// Runs a test on every file system at hand.
fn everywhere(test: impl Fn(&Scratch)) {
    for base in bases() {
        match Scratch::new(base.clone()) {
            Some(scratch) => test(&scratch),
            None => println!("skipped on {}: not writable", base.display()),
        }
    }
}

fn bytes(n: usize) -> Vec<u8> {
    (0..n).map(|i| (i % 251) as u8 + 1).collect()
}

#[test]
fn a_large_file_is_changed_in_place_and_only_where_it_changed() {
    everywhere(|scratch| {
        let domain = domain(scratch, "lower");
        let path = scratch.0.join("lower/big");
        let mut expected = bytes(3 << 20);
        std::fs::write(&path, &expected).unwrap();
        let ino = std::fs::metadata(&path).unwrap().ino();
        let mut t = begin(&domain);
        let (node, _) = walk(&mut t, "big").unwrap();
        t.open(node, Access::ReadWrite, false).unwrap();
        assert!(t.backing(node).is_none(), "its bytes are not all in one place");
        let patch = vec![0xEE; 200_001];
        assert_eq!(t.write_at(node, &patch, 1_000_003), Ok(200_001));
        t.fallocate(node, 3, 2_000_000, 100_000).unwrap();
        t.setattr(node, &SetAttr { size: Some(2_500_000), ..SetAttr::default() }).unwrap();
        assert_eq!(t.append(node, b"end"), Ok((AppendedAt::Offset(2_500_000), 3)));
        t.setattr(node, &SetAttr { size: Some(2_600_000), ..SetAttr::default() }).unwrap();
        let hole = t.seek(node, 1_500_000, Seek::Hole).unwrap();
        assert_eq!(hole, 2_000_000);
        t.close(node);
        expected[1_000_003..1_200_004].fill(0xEE);
        expected[2_000_000..2_100_000].fill(0);
        expected.truncate(2_500_000);
        expected.extend_from_slice(b"end");
        expected.resize(2_600_000, 0);
        let mtime = t.getattr(node).unwrap().mtime;
        let private =
            std::fs::read_dir(scratch.0.join("lower/.area/tx")).unwrap().next().unwrap().unwrap().path();
        let blocks: u64 =
            std::fs::read_dir(private).unwrap().map(|f| f.unwrap().metadata().unwrap().blocks()).sum();
        assert!(blocks * 512 < 1 << 20, "only what changed was copied");
        let done = t.commit().unwrap();
        assert!(done.conflict_copies.is_empty(), "{done:?}");
        assert!(std::fs::read(&path).unwrap() == expected);
        let meta = std::fs::metadata(&path).unwrap();
        assert_eq!((meta.ino(), meta.mtime(), meta.mtime_nsec()), (ino, mtime.sec, i64::from(mtime.nsec)));
    });
}

/// Of a sparse file, too, where the committed bytes are zeros as those of the hole are.
#[test]
fn bytes_behind_a_hole_in_its_last_sector_are_published() {
    everywhere(|scratch| {
        let domain = domain(scratch, "lower");
        let path = scratch.0.join("lower/sparse");
        for ends in [300_000, 150_990] {
            std::fs::File::create(&path).unwrap().set_len(ends).unwrap();
            let mut t = begin(&domain);
            let (node, _) = walk(&mut t, "sparse").unwrap();
            t.open(node, Access::ReadWrite, false).unwrap();
            t.write_at(node, &bytes(100_000), 100_000).unwrap();
            t.fallocate(node, 3, 150_000, 1000).unwrap();
            for size in [180_001, 190_000] {
                t.setattr(node, &SetAttr { size: Some(size), ..SetAttr::default() }).unwrap();
            }
            t.write_at(node, b"near", 180_010).unwrap();
            let mut seen = vec![0; 190_000];
            assert_eq!(t.read_at(node, &mut seen, 0), Ok(190_000));
            assert_eq!((seen[150_999], seen[151_000], &seen[180_010..180_014]), (0, 48, &b"near"[..]));
            t.close(node);
            t.commit().unwrap();
            assert!(std::fs::read(&path).unwrap() == seen, "a file of {ends} bytes");
        }
    });
}

#[test]
fn a_large_file_written_anew_keeps_its_owner_mode_attributes_and_contents() {
    everywhere(|scratch| {
        let domain = domain(scratch, "lower");
        let path = scratch.0.join("lower/big");
        std::fs::write(&path, bytes(100)).unwrap();
        let os = Linux::new();
        let lower = scratch.open("lower");
        let fd = os.open(&lower, b"big", Open::Path).unwrap();
        os.chmod(&fd, 0o751).unwrap();
        let labelled = os.setxattr(&fd, b"user.k", b"v", SetXattr::Any).is_ok();
        let mut t = begin(&domain);
        let (node, _) = walk(&mut t, "big").unwrap();
        t.open(node, Access::Write, true).unwrap();
        let new = bytes((2 << 20) + 77);
        assert_eq!(t.write_at(node, &new, 0), Ok(new.len()));
        t.close(node);
        t.commit().unwrap();
        assert!(std::fs::read(&path).unwrap() == new);
        let fd = os.open(&lower, b"big", Open::Path).unwrap();
        assert_eq!(os.stat(&fd).unwrap().perm(), 0o751);
        assert!(!labelled || os.getxattr(&fd, b"user.k").as_deref() == Ok(&b"v"[..]));
    });
}

#[test]
fn writing_the_same_bytes_changes_nothing_but_the_time() {
    everywhere(|scratch| {
        let domain = domain(scratch, "lower");
        let path = scratch.0.join("lower/f");
        std::fs::write(&path, bytes(5000)).unwrap();
        let mut t = begin(&domain);
        let (node, before) = walk(&mut t, "f").unwrap();
        t.open(node, Access::Write, false).unwrap();
        assert_eq!(t.getattr(node).unwrap(), before, "opening for writing shows nowhere");
        t.close(node);
        t.open(node, Access::Write, true).unwrap();
        t.write_at(node, &bytes(5000), 0).unwrap();
        t.close(node);
        let after = t.getattr(node).unwrap();
        assert_ne!(after.mtime, before.mtime);
        let done = t.commit().unwrap();
        assert_eq!(done.steps, 1, "{done:?}");
        let meta = std::fs::metadata(&path).unwrap();
        assert_eq!((meta.mtime(), meta.mtime_nsec()), (after.mtime.sec, i64::from(after.mtime.nsec)));
    });
}

#[test]
fn changes_that_cancel_out_leave_nothing_to_publish() {
    everywhere(|scratch| {
        let domain = domain(scratch, "lower");
        std::fs::write(scratch.0.join("lower/f"), b"1").unwrap();
        std::fs::create_dir(scratch.0.join("lower/d")).unwrap();
        let mut t = begin(&domain);
        let root = t.root(0);
        let (d, _) = walk(&mut t, "d").unwrap();
        t.create(root, b"new", 0o644, me()).unwrap();
        t.rename(root, b"f", d, b"g", Rename::Replace).unwrap();
        t.rename(d, b"g", root, b"f", Rename::Replace).unwrap();
        t.unlink(root, b"new").unwrap();
        assert_eq!(t.commit().unwrap().steps, 0);
    });
}

#[test]
fn the_area_can_neither_be_seen_nor_made_over() {
    everywhere(|scratch| {
        let domain = domain(scratch, "lower");
        let mut t = begin(&domain);
        let root = t.root(0);
        assert_eq!(t.lookup(root, b".area").unwrap(), None);
        assert!(t.readdir(root).unwrap().is_empty());
        assert_eq!(t.mkdir(root, b".area", 0o755, me()).map(drop), Err(Errno::ACCESS.into()));
        assert_eq!(t.rmdir(root, b".area"), Err(Errno::NOENT.into()));
        t.create(root, b"f", 0o644, me()).unwrap();
        assert_eq!(t.rename(root, b"f", root, b".area", Rename::Replace), Err(Errno::ACCESS.into()));
        t.abort();
        assert_eq!(std::fs::read_dir(scratch.0.join("lower/.area/tx")).unwrap().count(), 0);
    });
}

#[test]
fn an_unlinked_open_file_keeps_its_bytes_until_it_is_closed() {
    everywhere(|scratch| {
        let domain = domain(scratch, "lower");
        std::fs::write(scratch.0.join("lower/old"), b"old bytes").unwrap();
        let mut t = begin(&domain);
        let root = t.root(0);
        let (new, _) = t.create(root, b"new", 0o644, me()).unwrap();
        let (old, _) = walk(&mut t, "old").unwrap();
        for (node, name) in [(new, &b"new"[..]), (old, b"old")] {
            t.open(node, Access::ReadWrite, false).unwrap();
            t.unlink(root, name).unwrap();
            assert_eq!(t.write_at(node, b"NEW", 0), Ok(3));
            let mut buf = [0; 3];
            assert_eq!(t.read_at(node, &mut buf, 0), Ok(3));
            assert_eq!((&buf, t.getattr(node).unwrap().nlink), (b"NEW", 0));
            t.close(node);
        }
        t.commit().unwrap();
        assert!(!scratch.0.join("lower/old").exists() && !scratch.0.join("lower/new").exists());
    });
}

#[test]
fn a_nameless_file_can_get_a_name() {
    everywhere(|scratch| {
        let domain = domain(scratch, "lower");
        let mut t = begin(&domain);
        let root = t.root(0);
        let (node, attr) = t.tmpfile(root, 0o640, me()).unwrap();
        assert_eq!(attr.nlink, 0);
        t.open(node, Access::ReadWrite, false).unwrap();
        t.write_at(node, b"named late", 0).unwrap();
        assert_eq!(t.link(node, root, b"name").unwrap().nlink, 1);
        t.close(node);
        t.commit().unwrap();
        assert_eq!(std::fs::read(scratch.0.join("lower/name")).unwrap(), b"named late");
    });
}

#[test]
fn a_new_tree_takes_in_what_was_there_and_keeps_its_times() {
    everywhere(|scratch| {
        let domain = domain(scratch, "lower");
        let lower = scratch.0.join("lower");
        std::fs::create_dir_all(lower.join("old/deep")).unwrap();
        std::fs::write(lower.join("old/deep/f"), b"kept").unwrap();
        let mut t = begin(&domain);
        let root = t.root(0);
        let (new, _) = t.mkdir(root, b"new", 0o755, me()).unwrap();
        let (sub, _) = t.mkdir(new, b"sub", 0o755, me()).unwrap();
        let (old, _) = walk(&mut t, "old").unwrap();
        t.rename(old, b"deep", sub, b"deep", Rename::Replace).unwrap();
        t.rmdir(root, b"old").unwrap();
        let at = Timestamp { sec: 1234, nsec: 0 };
        t.setattr(sub, &SetAttr { mtime: Some(SetTime::At(at)), ..SetAttr::default() }).unwrap();
        assert_eq!(t.getattr(sub).unwrap().nlink.max(3), 3);
        let (f, _) = walk(&mut t, "new/sub/deep/f").unwrap();
        assert_eq!(t.path_of(f), b"new/sub/deep/f");
        t.commit().unwrap();
        assert_eq!(std::fs::read(lower.join("new/sub/deep/f")).unwrap(), b"kept");
        assert_eq!(std::fs::metadata(lower.join("new/sub")).unwrap().mtime(), 1234);
        assert!(!lower.join("old").exists());
    });
}

#[test]
fn a_file_and_a_directory_can_take_each_others_names() {
    everywhere(|scratch| {
        let domain = domain(scratch, "lower");
        let lower = scratch.0.join("lower");
        std::fs::create_dir_all(lower.join("d/sub")).unwrap();
        std::fs::write(lower.join("f"), b"file").unwrap();
        let mut t = begin(&domain);
        let root = t.root(0);
        // By exchange, and by removing a tree and making a file in its place.
        t.rename(root, b"f", root, b"d", Rename::Exchange).unwrap();
        let (dir, _) = walk(&mut t, "f").unwrap();
        t.rmdir(dir, b"sub").unwrap();
        t.rmdir(root, b"f").unwrap();
        t.symlink(root, b"f", b"d", me()).unwrap();
        t.commit().unwrap();
        assert_eq!(std::fs::read(lower.join("d")).unwrap(), b"file");
        assert_eq!(std::fs::read_link(lower.join("f")).unwrap().to_str(), Some("d"));
    });
}

#[test]
fn a_listing_is_a_snapshot_and_a_missing_name_stays_missing() {
    everywhere(|scratch| {
        let domain = domain(scratch, "lower");
        std::fs::write(scratch.0.join("lower/f"), b"").unwrap();
        let mut t = begin(&domain);
        let root = t.root(0);
        let before = t.readdir(root).unwrap();
        assert_eq!(t.lookup(root, b"late").unwrap(), None);
        std::fs::write(scratch.0.join("lower/late"), b"").unwrap();
        t.unlink(root, b"f").unwrap();
        assert_eq!(t.lookup(root, b"late").unwrap(), None);
        assert_eq!((before.len(), before[0].kind), (1, FileType::File));
        assert!(t.readdir(root).unwrap().is_empty());
        assert!(t.commit().is_err(), "a name that was seen to be missing has appeared");
        assert!(scratch.0.join("lower/f").exists());
    });
}

#[test]
fn names_too_long_and_across_mounts_are_refused() {
    everywhere(|scratch| {
        let domains = vec![domain(scratch, "one"), domain(scratch, "two")];
        std::fs::write(scratch.0.join("one/f"), b"").unwrap();
        let options = systx_engine::outcome::Options::default();
        let mut t = systx_engine::transaction::Transaction::begin(Linux::new(), domains, options).unwrap();
        let (one, two) = (t.root(0), t.root(1));
        let long = [b'n'; 256];
        assert_eq!(t.create(one, &long, 0o644, me()).map(drop), Err(Errno::NAMETOOLONG.into()));
        assert_eq!(t.lookup(one, &long).map(drop), Err(Errno::NAMETOOLONG.into()));
        assert_eq!(t.rename(one, b"f", two, b"f", Rename::Replace), Err(Errno::XDEV.into()));
        let (f, _) = t.lookup(one, b"f").unwrap().unwrap();
        assert_eq!(t.link(f, two, b"f").map(drop), Err(Errno::XDEV.into()));
        t.abort();
    });
}

#[test]
fn private_bytes_of_a_middle_sized_file_may_be_written_directly() {
    everywhere(|scratch| {
        let domain = domain(scratch, "lower");
        let middle = b"0123456789".repeat(4_000);
        std::fs::write(scratch.0.join("lower/f"), &middle).unwrap();
        let mut t = begin(&domain);
        let (node, _) = walk(&mut t, "f").unwrap();
        t.open(node, Access::ReadWrite, false).unwrap();
        let direct = std::fs::File::from(t.backing(node).expect("it is copied").try_clone().unwrap());
        direct.write_all_at(b"xx", 4).unwrap();
        let mut buf = [0; 10];
        t.read_at(node, &mut buf, 0).unwrap();
        assert_eq!(&buf, b"0123xx6789");
        t.close(node);
        drop(direct);
        t.commit().unwrap();
        let after = std::fs::read(scratch.0.join("lower/f")).unwrap();
        assert!(after.starts_with(b"0123xx6789") && after[10..] == middle[10..]);
    });
}

#[test]
fn a_small_file_changes_in_memory_until_it_grows() {
    everywhere(|scratch| {
        let domain = domain(scratch, "lower");
        let path = scratch.0.join("lower/f");
        std::fs::write(&path, b"0123456789").unwrap();
        let staged = || {
            let tx = std::fs::read_dir(scratch.0.join("lower/.area/tx")).unwrap();
            tx.map(|d| std::fs::read_dir(d.unwrap().path()).unwrap().count()).sum::<usize>()
        };
        let cut = |size| SetAttr { size: Some(size), ..SetAttr::default() };
        let mut t = begin(&domain);
        let (node, _) = walk(&mut t, "f").unwrap();
        t.open(node, Access::ReadWrite, false).unwrap();
        t.write_at(node, b"xx", 4).unwrap();
        t.setattr(node, &cut(8)).unwrap();
        t.append(node, b"end").unwrap();
        assert!(t.backing(node).is_none() && staged() == 0, "nothing is staged");
        let mut buf = [0; 20];
        let got = t.read_at(node, &mut buf, 1).unwrap();
        assert_eq!(&buf[..got], b"123xx67end");
        assert_eq!((t.seek(node, 3, Seek::Data).unwrap(), t.seek(node, 3, Seek::Hole).unwrap()), (3, 11));
        assert_eq!(t.seek(node, 11, Seek::Data), Err(Errno::NXIO.into()));
        t.write_at(node, b"far", 1 << 20).unwrap();
        assert_eq!(staged(), 1, "it has grown too large");
        assert_eq!(t.getattr(node).unwrap().size, (1 << 20) + 3);
        t.setattr(node, &cut(11)).unwrap();
        let inside = t.getattr(node).unwrap().mtime;
        t.close(node);
        t.commit().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"0123xx67end");
        let meta = std::fs::metadata(&path).unwrap();
        assert_eq!((meta.mtime(), meta.mtime_nsec() as u32), (inside.sec, inside.nsec));
    });
}

#[test]
fn a_change_whose_time_is_set_back_is_kept_also_when_it_leaves_memory() {
    everywhere(|scratch| {
        let domain = domain(scratch, "lower");
        let path = scratch.0.join("lower/f");
        std::fs::write(&path, b"0123456789").unwrap();
        let mut t = begin(&domain);
        let (node, attr) = walk(&mut t, "f").unwrap();
        t.open(node, Access::ReadWrite, false).unwrap();
        t.write_at(node, b"xx", 4).unwrap();
        let back = SetAttr { mtime: Some(SetTime::At(attr.mtime)), ..SetAttr::default() };
        t.setattr(node, &back).unwrap();
        // Too far for memory, and for most file systems.
        let refused = t.write_at(node, b"far", 1 << 62).is_err();
        t.close(node);
        if refused {
            drop(t.commit().unwrap())
        } else {
            return t.abort();
        }
        assert_eq!(std::fs::read(&path).unwrap(), b"0123xx6789");
    });
}

#[test]
fn a_file_of_any_size_has_the_time_that_was_set_back_after_its_change() {
    everywhere(|scratch| {
        for size in [100, 40_000, 200_000] {
            let domain = domain(scratch, "lower");
            let path = scratch.0.join(format!("lower/f{size}"));
            std::fs::write(&path, vec![b'.'; size]).unwrap();
            let before = std::fs::metadata(&path).unwrap();
            let mut t = begin(&domain);
            let (node, attr) = walk(&mut t, &format!("f{size}")).unwrap();
            t.open(node, Access::ReadWrite, false).unwrap();
            t.write_at(node, b"xx", 4).unwrap();
            let back = SetAttr { mtime: Some(SetTime::At(attr.mtime)), ..SetAttr::default() };
            t.setattr(node, &back).unwrap();
            t.close(node);
            t.commit().unwrap();
            assert_eq!(&std::fs::read(&path).unwrap()[..8], b"....xx..");
            let after = std::fs::metadata(&path).unwrap();
            let time = |meta: &std::fs::Metadata| (meta.mtime(), meta.mtime_nsec());
            assert_eq!(time(&after), time(&before), "{size} bytes");
        }
    });
}

/// Read through, a terabyte would take an hour.
/// Makes a transaction that may keep two directories open let go of all but the last two of these.
fn come_by(t: &mut Transaction<Linux>, directories: &[Node], name: &str) {
    for dir in directories {
        assert_eq!(t.lookup(*dir, name.as_bytes()), Ok(None));
    }
}

#[test]
fn a_directory_that_was_let_go_of_is_the_same_object_or_gone() {
    if Linux::new().uid() != 0 {
        println!("skipped: needs root, for handles");
        return;
    }
    everywhere(|scratch| {
        let domain = domain(scratch, "lower");
        let at = |path: &str| scratch.0.join("lower").join(path);
        for name in ["a", "b", "c", "d"] {
            std::fs::create_dir(at(name)).unwrap();
        }
        let mut t = begin(&domain);
        t.hold_files(2);
        let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| walk(&mut t, name).unwrap().0);
        come_by(&mut t, &[a, b, c, d], "first");
        std::fs::rename(at("a"), at("moved")).unwrap();
        std::fs::create_dir_all(at("a/other")).unwrap();
        std::fs::create_dir(at("moved/own")).unwrap();
        assert_eq!(t.lookup(a, b"other"), Ok(None), "another object has its name now");
        assert!(t.lookup(a, b"own").unwrap().is_some());
        come_by(&mut t, &[b, c, d], "second");
        std::fs::remove_dir_all(at("moved")).unwrap();
        match t.lookup(a, b"third") {
            Err(VerbError::Doomed(conflict)) => assert_eq!(conflict.what, ConflictKind::ReplacedOrRemoved),
            other => panic!("{other:?}"),
        }
        t.abort();
    });
}

#[test]
fn a_new_directory_that_was_removed_keeps_its_attributes_for_whoever_is_in_it() {
    everywhere(|scratch| {
        let domain = domain(scratch, "lower");
        let mut t = begin(&domain);
        t.hold_files(2);
        let (root, me) = (t.root(0), me());
        let others = [b"b", b"c", b"d"].map(|name| t.mkdir(root, name, 0o700, me).unwrap().0);
        for (n, inside) in ["never looked into", "looked into"].into_iter().enumerate() {
            let (node, made) = t.mkdir(root, b"gone", 0o751, me).unwrap();
            if n == 1 {
                t.create(node, b"f", 0o600, me).unwrap();
                t.unlink(node, b"f").unwrap();
            }
            t.rmdir(root, b"gone").unwrap();
            for other in others {
                t.create(other, format!("f{n}").as_bytes(), 0o600, me).unwrap();
            }
            let found = t.getattr(node).unwrap();
            assert_eq!((found.ino, found.mode, found.nlink), (made.ino, made.mode, 0), "{inside}");
            assert!(t.readdir(node).unwrap().is_empty());
            assert_eq!(t.create(node, b"g", 0o600, me).unwrap_err(), Errno::NOENT.into(), "{inside}");
        }
        assert!(t.commit().unwrap().conflict_copies.is_empty());
        for name in ["b", "c", "d"] {
            assert_eq!(std::fs::read_dir(scratch.0.join("lower").join(name)).unwrap().count(), 2);
        }
    });
}

#[test]
fn a_terabyte_of_nothing_costs_nothing() {
    everywhere(|scratch| {
        let domain = domain(scratch, "lower");
        let sizes = [("small", 10), ("middle", 40_000), ("large", 300_000)];
        for (name, size) in sizes {
            std::fs::write(scratch.0.join("lower").join(name), vec![b'a'; size]).unwrap();
        }
        let end = 1 << 40;
        let mut t = begin(&domain);
        for (name, size) in sizes {
            let (node, _) = walk(&mut t, name).unwrap();
            t.open(node, Access::ReadWrite, false).unwrap();
            t.write_at(node, b"b", size as u64 / 2).unwrap();
            t.write_at(node, b"end", end - 3).unwrap();
            t.close(node);
        }
        t.commit().unwrap();
        for (name, size) in sizes {
            let path = scratch.0.join("lower").join(name);
            let file = std::fs::File::open(&path).unwrap();
            let meta = file.metadata().unwrap();
            assert_eq!(meta.len(), end, "{name}");
            assert!(meta.blocks() < 10_000, "{name} has its blocks: {}", meta.blocks());
            let mut buf = vec![0; size + 10];
            file.read_exact_at(&mut buf, 0).unwrap();
            let mut wanted = vec![b'a'; size];
            wanted[size / 2] = b'b';
            wanted.resize(size + 10, 0);
            assert!(buf == wanted, "{name}");
            file.read_exact_at(&mut buf[..3], end - 3).unwrap();
            assert_eq!(&buf[..3], b"end");
        }
    });
}

/// Closing a descriptor ends a lease only if no process has a copy of it.
#[test]
fn a_child_that_is_forked_in_a_commit_and_lives_on_keeps_no_lease() {
    everywhere(|scratch| {
        let domain = domain(scratch, "lower");
        let (changed, new) = (scratch.0.join("lower/changed"), scratch.0.join("lower/new"));
        std::fs::write(&changed, bytes(5000)).unwrap();
        let mut t = begin(&domain);
        let (node, _) = walk(&mut t, "changed").unwrap();
        t.open(node, Access::ReadWrite, false).unwrap();
        t.write_at(node, b"x", 100).unwrap();
        t.close(node);
        let root = t.root(0);
        t.create(root, b"new", 0o644, me()).unwrap();
        let (told, child) = std::sync::mpsc::channel();
        t.at_commit_point(move || {
            let lives = || loop {
                std::thread::park();
            };
            told.send(host::fork(lives)).unwrap();
        });
        t.commit().unwrap();
        let child = child.recv().unwrap();
        // Opened by a call that doesn't wait for a lease's end.
        let os = Linux::new();
        let open = [&changed, &new].map(|path| os.open_path(path, Open::ReadWrite).map(drop));
        host::kill(child);
        host::wait(child);
        assert_eq!(open, [Ok(()), Ok(())]);
    });
}
