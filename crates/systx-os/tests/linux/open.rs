//! Opening and looking.

use std::os::unix::fs::PermissionsExt;

use systx_os::{Errno, FileType, Handle, Linux, Open, Os};

use crate::place::{without_capabilities, Place};

#[test]
fn modes_are_as_asked_for_whatever_the_umask_was() {
    let os = Linux::new();
    for place in Place::all() {
        os.create(&place.dir, b"file", 0o666).unwrap();
        os.mkdir(&place.dir, b"dir", 0o1777).unwrap();
        os.mknod(&place.dir, b"fifo", libc::S_IFIFO | 0o622, 0).unwrap();
        let stat = |name: &[u8]| os.stat_at(&place.dir, name).unwrap();
        assert_eq!(stat(b"file").mode, libc::S_IFREG | 0o666);
        assert_eq!(stat(b"dir").mode, libc::S_IFDIR | 0o1777);
        assert_eq!(stat(b"fifo").mode, libc::S_IFIFO | 0o622);
        let nameless = os.tmpfile(&place.dir, 0o606).unwrap();
        assert_eq!(os.stat(&nameless).unwrap().perm(), 0o606);
    }
    assert_eq!(os.inherited_umask(), Linux::new().inherited_umask());
}

#[test]
fn nothing_but_one_component_is_a_name() {
    let os = Linux::new();
    let place = Place::below(&std::env::temp_dir());
    for bad in [&b""[..], b".", b"..", b"a/b", b"/", b"a\0"] {
        assert_eq!(os.open(&place.dir, bad, Open::Path).err(), Some(Errno::INVAL));
        assert_eq!(os.stat_at(&place.dir, bad).err(), Some(Errno::INVAL));
        assert_eq!(os.create(&place.dir, bad, 0o600).err(), Some(Errno::INVAL));
        assert_eq!(os.unlink(&place.dir, bad).err(), Some(Errno::INVAL));
    }
    assert_eq!(os.mkdir(&place.dir, &[b'n'; 256], 0o700).err(), Some(Errno::NAMETOOLONG));
    os.mkdir(&place.dir, &[b'n'; 255], 0o700).unwrap();
}

#[test]
fn a_symbolic_link_is_opened_as_itself_or_not_at_all() {
    let os = Linux::new();
    for place in Place::all() {
        os.create(&place.dir, b"target", 0o600).unwrap();
        os.symlink(&place.dir, b"link", b"target").unwrap();
        for how in [Open::Read, Open::ReadWrite, Open::Write] {
            assert_eq!(os.open(&place.dir, b"link", how).err(), Some(Errno::LOOP));
        }
        assert_eq!(os.open(&place.dir, b"link", Open::Directory).err(), Some(Errno::NOTDIR));
        let link = os.open(&place.dir, b"link", Open::Path).unwrap();
        assert_eq!(os.stat(&link).unwrap().kind(), FileType::Symlink);
        assert_eq!(os.read_link(&link).unwrap(), b"target");
        assert_eq!(os.read_link(&place.dir).err(), Some(Errno::INVAL));
        let again = os.reopen(&link, Open::Path).unwrap();
        assert_eq!(os.stat(&again).unwrap(), os.stat(&link).unwrap());
        assert_eq!(os.reopen(&link, Open::Read).err(), Some(Errno::LOOP));
    }
}

#[test]
fn a_mount_below_is_not_crossed() {
    let os = Linux::new();
    let root = os.open_path("/".as_ref(), Open::Directory).unwrap();
    match os.open(&root, b"proc", Open::Path) {
        Err(e) => assert_eq!(e, Errno::XDEV),
        Ok(proc) => assert_eq!(os.stat(&proc).unwrap().mnt_id, os.stat(&root).unwrap().mnt_id),
    }
}

#[test]
fn opening_a_fifo_does_not_block() {
    let os = Linux::new();
    let place = Place::below(&std::env::temp_dir());
    os.mknod(&place.dir, b"fifo", libc::S_IFIFO | 0o600, 0).unwrap();
    os.open(&place.dir, b"fifo", Open::Read).unwrap();
    assert_eq!(os.open(&place.dir, b"fifo", Open::Write).err(), Some(Errno::NXIO));
}

#[test]
fn reopening_reaches_the_same_object_without_its_name() {
    let os = Linux::new();
    for place in Place::all() {
        let file = os.create(&place.dir, b"file", 0o600).unwrap();
        let path = os.open(&place.dir, b"file", Open::Path).unwrap();
        os.unlink(&place.dir, b"file").unwrap();
        os.pwrite(&os.reopen(&path, Open::Write).unwrap(), b"bytes", 0).unwrap();
        let mut buf = [0; 5];
        assert_eq!(os.pread(&os.reopen(&file, Open::Read).unwrap(), &mut buf, 0), Ok(5));
        assert_eq!(&buf, b"bytes");
        assert_eq!(os.reopen(&file, Open::Directory).err(), Some(Errno::NOTDIR));
        assert_eq!(os.stat(&os.dup(&path).unwrap()).unwrap().ino, os.stat(&file).unwrap().ino);
    }
}

#[test]
fn a_reused_inode_number_has_another_handle() {
    let os = Linux::new();
    for place in Place::all() {
        let first = os.create(&place.dir, b"a", 0o600).unwrap();
        let Ok(handle) = os.handle(&first) else {
            println!("skipped: no handles on {}", place.path.display());
            continue;
        };
        assert_eq!(os.handle_at(&place.dir, b"a"), Ok(handle));
        assert_eq!(Handle::new(handle.kind, handle.as_bytes()), Some(handle));
        drop(first);
        os.unlink(&place.dir, b"a").unwrap();
        for _ in 0..100 {
            os.create(&place.dir, b"a", 0o600).unwrap();
            assert_ne!(os.handle_at(&place.dir, b"a").unwrap(), handle);
            os.unlink(&place.dir, b"a").unwrap();
        }
    }
}

#[test]
fn a_handle_opens_what_was_renamed_and_not_what_is_gone() {
    let os = Linux::new();
    for place in Place::all() {
        os.create(&place.dir, b"a", 0o600).unwrap();
        let handle = os.handle_at(&place.dir, b"a").unwrap();
        let ino = os.stat_at(&place.dir, b"a").unwrap().ino;
        std::fs::rename(place.path.join("a"), place.path.join("b")).unwrap();
        let by_path = os.reopen(&place.dir, Open::Path).unwrap();
        for mount in [&place.dir, &by_path] {
            match os.open_handle(mount, &handle, Open::Read) {
                Err(Errno::PERM) => return println!("skipped: needs CAP_DAC_READ_SEARCH"),
                opened => assert_eq!(os.stat(&opened.unwrap()).unwrap().ino, ino),
            }
        }
        without_capabilities(|| {
            assert_eq!(os.open_handle(&place.dir, &handle, Open::Path).err(), Some(Errno::PERM));
        });
        os.unlink(&place.dir, b"b").unwrap();
        assert_eq!(os.open_handle(&place.dir, &handle, Open::Path).err(), Some(Errno::STALE));
    }
}

#[test]
fn reading_leaves_the_access_time_and_works_on_foreign_files() {
    let os = Linux::new();
    let place = Place::below(&std::env::temp_dir());
    let file = os.create(&place.dir, b"file", 0o644).unwrap();
    os.pwrite(&file, b"x", 0).unwrap();
    let before = os.stat(&file).unwrap().atime;
    let reader = os.open(&place.dir, b"file", Open::Read).unwrap();
    assert_eq!(os.pread(&reader, &mut [0; 1], 0), Ok(1));
    assert_eq!(os.stat(&file).unwrap().atime, before);
    if os.uid() != 0 {
        return println!("skipped in part: only root can give files away");
    }
    os.chown(&file, 12345, 12345).unwrap();
    without_capabilities(|| {
        // O_NOATIME is refused here, so this is the second try.
        os.open(&place.dir, b"file", Open::Read).unwrap();
    });
}

#[test]
fn a_listing_is_whole_also_by_a_path_descriptor_and_many_times() {
    let os = Linux::new();
    for place in Place::all() {
        for n in 0..3000 {
            os.mknod(&place.dir, format!("a name of some length, number {n}").as_bytes(), 0o600, 0).unwrap();
        }
        os.mkdir(&place.dir, b"dir", 0o700).unwrap();
        os.symlink(&place.dir, b"link", b"nowhere").unwrap();
        let path = os.reopen(&place.dir, Open::Path).unwrap();
        let first = os.read_dir(&path).unwrap();
        assert_eq!(first.len(), 3002);
        assert_eq!(first, os.read_dir(&place.dir).unwrap());
        assert_eq!(first, os.read_dir(&place.dir).unwrap());
        let kind = |name: &[u8]| first.iter().find(|e| e.name == name).unwrap().kind;
        assert_eq!(kind(b"dir"), FileType::Directory);
        assert_eq!(kind(b"link"), FileType::Symlink);
        for entry in first.iter().take(10) {
            assert_eq!(entry.ino, os.stat_at(&place.dir, &entry.name).unwrap().ino);
        }
    }
}

#[test]
fn attributes_agree_with_the_standard_library() {
    use std::os::unix::fs::MetadataExt;
    let os = Linux::new();
    for place in Place::all() {
        std::fs::write(place.path.join("file"), vec![7; 10_000]).unwrap();
        std::fs::set_permissions(place.path.join("file"), PermissionsExt::from_mode(0o4750)).unwrap();
        let theirs = std::fs::symlink_metadata(place.path.join("file")).unwrap();
        let ours = os.stat_at(&place.dir, b"file").unwrap();
        assert_eq!(ours, os.stat(&os.open(&place.dir, b"file", Open::Path).unwrap()).unwrap());
        assert_eq!((ours.dev, ours.ino, ours.mode), (theirs.dev(), theirs.ino(), theirs.mode()));
        assert_eq!((ours.uid, ours.gid, ours.rdev), (theirs.uid(), theirs.gid(), theirs.rdev()));
        assert_eq!((ours.size, ours.blocks), (theirs.size(), theirs.blocks()));
        assert_eq!(u64::from(ours.nlink), theirs.nlink());
        assert_eq!((ours.ctime.sec, i64::from(ours.ctime.nsec)), (theirs.ctime(), theirs.ctime_nsec()));
        assert_eq!((ours.mtime.sec, i64::from(ours.mtime.nsec)), (theirs.mtime(), theirs.mtime_nsec()));
        assert!(!ours.immutable && !ours.append_only);
        assert!(ours.mnt_id != 0);
    }
}
