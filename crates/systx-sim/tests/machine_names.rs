//! Names, identities and leases of the simulated machine.

use systx_os::{Errno, FsKind, Lease, Open, Os, Rename};
use systx_sim::machine::{FsSpec, Machine, Plant};

#[test]
fn exchange_swaps_noreplace_refuses_and_a_directory_never_moves_below_itself() {
    let machine = Machine::with(FsKind::Ext4);
    machine
        .plant(
            0,
            &[("a", Plant::File(b"1")), ("d", Plant::Dir), ("d/e", Plant::Dir), ("d/f", Plant::File(b"2"))],
        )
        .unwrap();
    let os = machine.spawn("p");
    let (root, d) = (os.root(0), os.open_path(0, "d", Open::Directory).unwrap());
    let e = os.open_path(0, "d/e", Open::Directory).unwrap();
    os.rename((&root, b"a"), (&d, b"f"), Rename::Exchange).unwrap();
    assert_eq!(machine.look(0, "a").unwrap().content, b"2");
    assert_eq!(machine.look(0, "d/f").unwrap().content, b"1");
    let rename = |from, to, mode| os.rename(from, to, mode).unwrap_err();
    assert_eq!(rename((&root, b"a"), (&d, b"f"), Rename::NoReplace), Errno::EXIST);
    assert_eq!(rename((&root, b"a"), (&d, b"g"), Rename::Exchange), Errno::NOENT);
    assert_eq!(rename((&root, b"d"), (&e, b"x"), Rename::Replace), Errno::INVAL);
    assert_eq!(rename((&root, b"d"), (&d, b"e"), Rename::Exchange), Errno::INVAL);
    assert_eq!(rename((&d, b"e"), (&root, b"d"), Rename::Replace), Errno::NOTEMPTY);
    os.rename((&root, b"a"), (&d, b"e"), Rename::Exchange).unwrap();
    assert_eq!(os.stat(&root).unwrap().nlink, 4);
    assert_eq!(os.stat(&d).unwrap().nlink, 2);
    machine.check().unwrap();
}

#[test]
fn a_freed_number_is_reused_at_once_and_only_the_generation_tells() {
    for (kind, reused) in [(FsKind::Ext4, true), (FsKind::Xfs, true), (FsKind::Btrfs, false)] {
        let machine = Machine::with(kind);
        let os = machine.spawn("p");
        let root = os.root(0);
        let old = os.create(&root, b"a", 0o600).unwrap();
        let (stat, handle) = (os.stat(&old).unwrap(), os.handle(&old).unwrap());
        os.unlink(&root, b"a").unwrap();
        let second = os.create(&root, b"b", 0o600).unwrap();
        assert_ne!(os.stat(&second).unwrap().ino, stat.ino, "still open, so its number is taken");
        assert_eq!(os.stat(&os.open_handle(&root, &handle, Open::Path).unwrap()).unwrap().nlink, 0);
        drop(old);
        assert_eq!(os.open_handle(&root, &handle, Open::Path).err(), Some(Errno::STALE));
        os.mkdir(&root, b"c", 0o700).unwrap();
        assert_eq!(os.stat_at(&root, b"c").unwrap().ino == stat.ino, reused);
        assert_ne!(os.handle_at(&root, b"c").unwrap(), handle);
        machine.check().unwrap();
    }
}

#[test]
fn limits_flags_and_mounts_refuse_as_the_kernel_does() {
    let small = FsSpec { links_max: 3, ..FsSpec::new(FsKind::Ext4) };
    let machine = Machine::new(7, &[small, FsSpec::new(FsKind::Tmpfs)]);
    machine.plant(0, &[("f", Plant::File(b"")), ("m", Plant::Dir), ("i", Plant::File(b""))]).unwrap();
    machine.mount(1, 0, "m").unwrap();
    machine.set_flags(0, "i", true, false).unwrap();
    let os = machine.spawn("p");
    let (root, other) = (os.root(0), os.root(1));
    let f = os.open(&root, b"f", Open::Path).unwrap();
    os.link(&f, &root, b"g").unwrap();
    os.link(&f, &root, b"h").unwrap();
    assert_eq!(os.link(&f, &root, b"j"), Err(Errno::MLINK));
    assert_eq!(os.mkdir(&root, b"d", 0o755), Err(Errno::MLINK));
    assert_eq!(os.link(&f, &other, b"f"), Err(Errno::XDEV));
    assert_eq!(os.rename((&root, b"f"), (&other, b"f"), Rename::Replace), Err(Errno::XDEV));
    assert_eq!(os.open(&root, b"m", Open::Directory).err(), Some(Errno::XDEV));
    assert_eq!(os.stat_at(&root, b"m").unwrap().dev, os.stat(&other).unwrap().dev);
    assert_eq!(os.rmdir(&root, b"m"), Err(Errno::BUSY));
    assert_eq!(os.rename((&root, b"m"), (&root, b"n"), Rename::Replace), Err(Errno::BUSY));
    assert_eq!(os.open(&root, b"i", Open::Write).err(), Some(Errno::PERM));
    assert_eq!(os.unlink(&root, b"i"), Err(Errno::PERM));
    assert_eq!(os.open(&root, &[b'n'; 256], Open::Path).err(), Some(Errno::NAMETOOLONG));
    machine.check().unwrap();
}

#[test]
fn a_write_lease_needs_to_be_alone_and_an_open_breaks_it() {
    let machine = Machine::with(FsKind::Ext4);
    machine.plant(0, &[("f", Plant::File(b"x"))]).unwrap();
    let (os, other) = (machine.spawn("holder"), machine.spawn("other"));
    let fd = os.open_path(0, "f", Open::ReadWrite).unwrap();
    let theirs = other.open_path(0, "f", Open::Path).unwrap();
    os.lease(&fd, Lease::Write).unwrap();
    assert_eq!(os.lease_held(&fd), Ok(Lease::Write));
    assert_eq!(other.reopen(&theirs, Open::Read).err(), Some(Errno::AGAIN));
    assert_eq!(os.lease_held(&fd), Ok(Lease::Read), "a reader waits for it to become a read lease");
    assert_eq!(other.reopen(&theirs, Open::Write).err(), Some(Errno::AGAIN));
    assert_eq!(os.lease_held(&fd), Ok(Lease::None));
    assert_eq!(machine.overwrite(0, "f", 0, b"y"), Err(Errno::AGAIN));
    os.lease(&fd, Lease::None).unwrap();
    let reader = other.reopen(&theirs, Open::Read).unwrap();
    assert_eq!(os.lease(&fd, Lease::Write), Err(Errno::AGAIN));
    assert_eq!(
        other.lease(&reader, Lease::Read),
        Err(Errno::AGAIN),
        "another program has it open for writing"
    );
    machine.kill(os.process());
    other.lease(&reader, Lease::Read).unwrap();
    drop(reader);
    machine.overwrite(0, "f", 0, b"y").unwrap();
}

#[test]
fn a_lease_that_is_not_given_back_is_taken_after_the_break_time() {
    let machine = Machine::with(FsKind::Xfs);
    machine.plant(0, &[("f", Plant::File(b"x"))]).unwrap();
    let os = machine.spawn("holder");
    let fd = os.open_path(0, "f", Open::ReadWrite).unwrap();
    os.lease(&fd, Lease::Write).unwrap();
    assert_eq!(machine.overwrite(0, "f", 0, b"y"), Err(Errno::AGAIN));
    machine.advance_ns(45_000_000_000);
    machine.overwrite(0, "f", 0, b"y").unwrap();
    assert_eq!(os.lease_held(&fd), Ok(Lease::None));
}

#[test]
fn stamps_move_with_every_change_but_not_in_directories_of_a_tmpfs() {
    for (kind, moves) in [(FsKind::Ext4, true), (FsKind::Tmpfs, false)] {
        let machine = Machine::with(kind);
        let os = machine.spawn("p");
        let root = os.root(0);
        let file = os.create(&root, b"f", 0o600).unwrap();
        let (before, dir) = (os.stat(&file).unwrap().ctime, os.stat(&root).unwrap().ctime);
        os.pwrite(&file, b"x", 0).unwrap();
        let stat = os.stat(&file).unwrap();
        assert!(stat.ctime > before && stat.mtime > before);
        os.unlink(&root, b"f").unwrap();
        assert_eq!(os.stat(&root).unwrap().ctime != dir, moves);
    }
}
