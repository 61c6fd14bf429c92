//! Names: making, moving, removing.

use systx_os::{Errno, Linux, Open, Os, Rename};

use crate::place::{without_capabilities, Place};

#[test]
fn creating_never_takes_a_name_that_is_there() {
    let os = Linux::new();
    for place in Place::all() {
        os.symlink(&place.dir, b"n", b"nowhere").unwrap();
        assert_eq!(os.create(&place.dir, b"n", 0o600).err(), Some(Errno::EXIST));
        assert_eq!(os.mkdir(&place.dir, b"n", 0o700), Err(Errno::EXIST));
        assert_eq!(os.mknod(&place.dir, b"n", 0o600, 0), Err(Errno::EXIST));
        assert_eq!(os.symlink(&place.dir, b"n", b"x"), Err(Errno::EXIST));
    }
}

#[test]
fn rename_replaces_refuses_or_swaps() {
    let os = Linux::new();
    for place in Place::all() {
        let dir = &place.dir;
        let ino = |name: &[u8]| os.stat_at(dir, name).map(|s| s.ino);
        os.create(dir, b"a", 0o600).unwrap();
        os.create(dir, b"b", 0o600).unwrap();
        let (a, b) = (ino(b"a").unwrap(), ino(b"b").unwrap());
        assert_eq!(os.rename((dir, b"a"), (dir, b"b"), Rename::NoReplace), Err(Errno::EXIST));
        os.rename((dir, b"a"), (dir, b"b"), Rename::Exchange).unwrap();
        assert_eq!((ino(b"a"), ino(b"b")), (Ok(b), Ok(a)));
        assert_eq!(os.rename((dir, b"a"), (dir, b"c"), Rename::Exchange), Err(Errno::NOENT));
        os.rename((dir, b"a"), (dir, b"c"), Rename::NoReplace).unwrap();
        os.rename((dir, b"c"), (dir, b"b"), Rename::Replace).unwrap();
        assert_eq!((ino(b"b"), ino(b"c")), (Ok(b), Err(Errno::NOENT)));
    }
}

#[test]
fn linking_by_descriptor_needs_no_name_and_no_privilege() {
    let os = Linux::new();
    for place in Place::all() {
        let nameless = os.tmpfile(&place.dir, 0o600).unwrap();
        os.symlink(&place.dir, b"link", b"nowhere").unwrap();
        let link = os.open(&place.dir, b"link", Open::Path).unwrap();
        os.link(&nameless, &place.dir, b"one").unwrap();
        without_capabilities(|| {
            os.link(&nameless, &place.dir, b"two").unwrap();
            os.link(&link, &place.dir, b"link two").unwrap();
            assert_eq!(os.link(&nameless, &place.dir, b"two"), Err(Errno::EXIST));
        });
        assert_eq!(os.stat(&nameless).unwrap().nlink, 2);
        assert_eq!(os.stat(&link).unwrap().nlink, 2);
    }
}

#[test]
fn removing_tells_directories_from_others() {
    let os = Linux::new();
    for place in Place::all() {
        os.create(&place.dir, b"file", 0o600).unwrap();
        os.mkdir(&place.dir, b"dir", 0o700).unwrap();
        os.create(&os.open(&place.dir, b"dir", Open::Path).unwrap(), b"x", 0o600).unwrap();
        assert_eq!(os.unlink(&place.dir, b"dir"), Err(Errno::ISDIR));
        assert_eq!(os.rmdir(&place.dir, b"file"), Err(Errno::NOTDIR));
        assert_eq!(os.rmdir(&place.dir, b"dir"), Err(Errno::NOTEMPTY));
        os.unlink(&os.open(&place.dir, b"dir", Open::Directory).unwrap(), b"x").unwrap();
        os.rmdir(&place.dir, b"dir").unwrap();
        os.unlink(&place.dir, b"file").unwrap();
        assert_eq!(os.unlink(&place.dir, b"file"), Err(Errno::NOENT));
    }
}
