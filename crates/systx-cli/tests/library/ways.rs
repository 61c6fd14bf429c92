//! Where paths lead: links, dots, slashes, mounts, and what is not served.

use super::{loosely, place, systx};
use crate::machine::must;
use std::io::{Read, Write};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use systx::{Error, OpenOptions, Options};

pub fn paths(dir: &Path) {
    let Some((_volume, tree)) = place(dir, "ext4") else { return };
    let at = |name: &str| tree.join(name);
    std::fs::create_dir_all(at("d/e")).unwrap();
    std::fs::write(at("d/f"), "file").unwrap();
    symlink("d/e/../f", at("l")).unwrap();
    symlink(at("d"), at("absolute")).unwrap();
    symlink("loop", at("loop")).unwrap();
    symlink("made/by/nobody", at("dangling")).unwrap();
    let systx = systx();
    let tx = systx.begin(&loosely()).unwrap();
    let here = tx.open_dir(&tree).unwrap();
    for path in ["d/f", "./d//f", "d/e/../f", "l", "absolute/f", "d/../d/e/../../l"] {
        assert_eq!(here.read(path).unwrap(), b"file", "{path}");
        assert_eq!(tx.read(at(path)).unwrap(), b"file", "{path}");
    }
    let errno = |answer: std::io::Result<Vec<u8>>| answer.unwrap_err().raw_os_error().unwrap();
    assert_eq!(errno(here.read("loop")), 40, "ELOOP");
    assert_eq!(errno(here.read("dangling")), 2);
    assert_eq!(errno(here.read("d/f/")), 20);
    assert_eq!(errno(here.read("d/f/../f")), 20);
    assert_eq!(errno(here.read("")), 2);
    assert_eq!(errno(here.read("x".repeat(256))), 36);
    assert_eq!(errno(here.read("d/".repeat(3000))), 36);
    assert_eq!(errno(here.read("a\0b")), 22);
    assert_eq!(
        errno(here.open_with("l", &OpenOptions::new().read(true).no_follow(true)).map(|_| Vec::new())),
        40
    );
    // A dangling link is where a new file is made, but not exclusively.
    let exclusive = OpenOptions::new().write(true).create_new(true);
    assert_eq!(errno(here.open_with("dangling", &exclusive).map(|_| Vec::new())), 17);
    here.create_dir_all("made/by").unwrap();
    here.write("dangling", "now").unwrap();
    assert_eq!(here.read("made/by/nobody").unwrap(), b"now");
    // The directory of a handle goes with its name, as a descriptor does.
    let e = here.open_dir("d/e").unwrap();
    here.rename("d/e", "moved").unwrap();
    e.write("g", "in it").unwrap();
    assert_eq!(here.read("moved/g").unwrap(), b"in it");
    assert_eq!(e.read("../d/f").unwrap(), b"file");
    tx.commit().unwrap();
    assert_eq!(std::fs::read(at("moved/g")).unwrap(), b"in it");
    assert_eq!(std::fs::read(at("made/by/nobody")).unwrap(), b"now");
    // A descriptor that was opened before, and the working directory.
    let before = std::fs::File::open(at("moved")).unwrap();
    let tx = systx.begin(&loosely()).unwrap();
    tx.dir_of(&before).unwrap().write("h", "by descriptor").unwrap();
    assert!(tx.dir_of(std::fs::File::open(at("d/f")).unwrap()).is_err());
    let was = std::env::current_dir().unwrap();
    std::env::set_current_dir(at("moved")).unwrap();
    assert_eq!(tx.read("h").unwrap(), b"by descriptor");
    assert_eq!(tx.read("../d/f").unwrap(), b"file");
    tx.write("here", "relative").unwrap();
    std::env::set_current_dir(at("d")).unwrap();
    assert_eq!(tx.read("f").unwrap(), b"file", "the working directory is that of each call");
    std::env::set_current_dir(was).unwrap();
    tx.commit().unwrap();
    assert_eq!(std::fs::read(at("moved/here")).unwrap(), b"relative");
    // One that moves under a transaction is no place any more.
    let tx = systx.begin(&loosely()).unwrap();
    std::fs::rename(at("moved"), at("elsewhere")).unwrap();
    std::fs::create_dir(at("moved")).unwrap();
    let there = tx.dir_of(&before).unwrap();
    there.write("i", "still the same directory").unwrap();
    tx.commit().unwrap();
    assert!(at("elsewhere/i").exists() && !at("moved/i").exists());
}

pub fn mounts(dir: &Path) {
    let Some((outer, tree)) = place(dir, "ext4") else { return };
    let inner = tree.join("inner");
    std::fs::create_dir_all(inner.join("hidden")).unwrap();
    std::fs::create_dir(outer.point.join("real")).unwrap();
    std::fs::create_dir(tree.join("window")).unwrap();
    must(Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&inner));
    must(Command::new("mount").arg("--bind").arg(outer.point.join("real")).arg(tree.join("window")));
    let systx = systx();
    let tx = systx.begin(&Options::new()).unwrap();
    tx.write(inner.join("a"), "on the tmpfs").unwrap();
    assert!(!tx.try_exists(inner.join("hidden")).unwrap(), "the mount covers it");
    tx.write(inner.join("../outside"), "on the ext4").unwrap();
    let here = tx.open_dir(&inner).unwrap();
    assert_eq!(here.read("../outside").unwrap(), b"on the ext4");
    let crosses = |answer: std::io::Result<()>| answer.unwrap_err().raw_os_error().unwrap();
    assert_eq!(crosses(tx.rename(inner.join("a"), tree.join("a"))), 18);
    assert_eq!(crosses(tx.hard_link(inner.join("a"), tree.join("a"))), 18);
    assert_eq!(crosses(tx.remove_dir(&inner)), 16, "EBUSY");
    assert_eq!(crosses(tx.remove_file(&inner)), 21, "EISDIR");
    assert_eq!(crosses(tx.rename(&inner, tree.join("b"))), 16);
    // Two windows on one file system are one to a transaction.
    tx.write(tree.join("window/w"), "by the window").unwrap();
    assert_eq!(tx.read(outer.point.join("real/w")).unwrap(), b"by the window");
    tx.write(outer.point.join("real/r"), "by the real way").unwrap();
    assert_eq!(tx.read(tree.join("window/r")).unwrap(), b"by the real way");
    assert_eq!(tx.read(tree.join("window/../outside")).unwrap(), b"on the ext4");
    // To rename(2) and link(2) they are two.
    let real = outer.point.join("real");
    assert_eq!(crosses(tx.rename(tree.join("window/w"), real.join("x"))), 18);
    assert_eq!(crosses(tx.hard_link(real.join("w"), tree.join("window/x"))), 18);
    tx.commit().unwrap();
    assert_eq!(std::fs::read(inner.join("a")).unwrap(), b"on the tmpfs");
    assert_eq!(std::fs::read(tree.join("outside")).unwrap(), b"on the ext4");
    assert_eq!(std::fs::read(outer.point.join("real/w")).unwrap(), b"by the window");
    // What is mounted or unmounted between two calls is seen.
    let tx = systx.begin(&Options::new()).unwrap();
    assert!(!tx.try_exists(tree.join("late/x")).unwrap());
    tx.abort();
    std::fs::create_dir(tree.join("late")).unwrap();
    must(Command::new("mount").args(["-t", "tmpfs", "none"]).arg(tree.join("late")));
    std::fs::write(tree.join("late/x"), "x").unwrap();
    let tx = systx.begin(&Options::new()).unwrap();
    assert_eq!(tx.read(tree.join("late/x")).unwrap(), b"x");
    // Without its area open the file system can go.
    drop((tx, here, systx));
    must(Command::new("umount").arg(tree.join("late")));
    must(Command::new("umount").arg(&inner));
}

pub fn outside(dir: &Path) {
    let Some((_volume, tree)) = place(dir, "ext4") else { return };
    let systx = systx();
    let tx = systx.begin(&Options::new()).unwrap();
    let status = tx.read_to_string("/proc/self/status").unwrap();
    assert!(status.contains(&format!("Pid:\t{}", std::process::id())));
    assert!(tx.read_dir("/proc/self").unwrap().any(|entry| entry.file_name() == "status"));
    assert!(tx.metadata("/proc").unwrap().is_dir());
    let refused = |answer: std::io::Result<()>| answer.unwrap_err().raw_os_error().unwrap();
    assert_eq!(refused(tx.write("/proc/self/comm", "x")), 30, "EROFS");
    assert_eq!(refused(tx.create_dir("/sys/x")), 30);
    assert_eq!(refused(tx.remove_file("/proc/version")), 30);
    assert_eq!(refused(tx.set_mode("/proc/version", 0)), 30);
    assert_eq!(refused(tx.symlink("x", "/proc/x")), 30);
    // Devices work.
    tx.open_with("/dev/null", &OpenOptions::new().write(true)).unwrap().write_all(b"gone").unwrap();
    let mut zeros = [1; 8];
    tx.open("/dev/zero").unwrap().read_exact(&mut zeros).unwrap();
    assert_eq!(zeros, [0; 8]);
    tx.write(tree.join("f"), "inside").unwrap();
    tx.commit().unwrap();
    // An area is nothing that a transaction sees.
    let tx = systx.begin(&Options::new()).unwrap();
    let top = tree.parent().unwrap();
    assert!(!tx.try_exists(top.join(crate::AREA)).unwrap());
    assert!(tx.read_dir(top).unwrap().all(|entry| entry.file_name() != crate::AREA));
    let error = tx.create_dir(top.join(crate::AREA)).unwrap_err();
    assert!(Error::of(&error).is_none() && error.raw_os_error().is_some(), "{error}");
}
