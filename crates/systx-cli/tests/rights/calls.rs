//! Calls of a user on the subject of a directory. Each is one change, or one look.

use super::kinds::{list, OTHER, SUBJECT};
use super::machine::user::USER;
use rustix::fs::{
    self, AtFlags, FallocateFlags, FileType, Mode, OFlags, RenameFlags, Timespec, Timestamps, XattrFlags, CWD,
};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use std::io::Write;
use std::path::Path;

/// Result of a call: a word, for a look what was seen.
type Answer = Result<String, Errno>;

pub struct Call {
    pub name: &'static str,
    pub of_directories: bool,
    make: fn(&str) -> Answer,
}

const fn on_file(name: &'static str, make: fn(&str) -> Answer) -> Call {
    Call { name, of_directories: false, make }
}

const fn on_directory(name: &'static str, make: fn(&str) -> Answer) -> Call {
    Call { name, of_directories: true, make }
}

fn done(result: Result<(), Errno>) -> Answer {
    result.map(|()| String::new())
}

fn open_as(path: &str, flags: OFlags) -> Result<std::os::fd::OwnedFd, Errno> {
    fs::open(path, flags | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::from_raw_mode(0o666))
}

fn write(path: &str, flags: OFlags) -> Answer {
    let file = open_as(path, flags)?;
    rustix::io::write(&file, b"written\n").map(|_| String::new())
}

fn read(path: &str) -> Answer {
    let file = open_as(path, OFlags::RDONLY)?;
    let mut bytes = [0; 100];
    let length = rustix::io::read(&file, &mut bytes)?;
    Ok(format!("{:?}", String::from_utf8_lossy(&bytes[..length])))
}

fn chmod(path: &str, mode: u32) -> Answer {
    done(fs::chmod(path, Mode::from_raw_mode(mode)))
}

fn chown(path: &str, uid: Option<u32>, gid: Option<u32>) -> Answer {
    let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
    done(fs::chownat(CWD, path, uid, gid, AtFlags::SYMLINK_NOFOLLOW))
}

fn set(path: &str, name: &str, value: &[u8]) -> Answer {
    done(fs::lsetxattr(path, name, value, XattrFlags::empty()))
}

fn times(path: &str, time: Timespec) -> Answer {
    let times = Timestamps { last_access: time, last_modification: time };
    done(fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW))
}

fn node(path: &str, kind: FileType, mode: u32, device: u64) -> Answer {
    done(fs::mknodat(CWD, path, kind, Mode::from_raw_mode(mode), device))
}

fn rename(from: &str, to: &str) -> Answer {
    done(fs::rename(from, to))
}

fn within(dir: &str, name: &str) -> String {
    format!("{dir}/{name}")
}

const ALL: u32 = u32::MAX;
const CAPABLE: [u8; 20] = [1, 0, 0, 2, 128, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const SET_AT: Timespec = Timespec { tv_sec: 7, tv_nsec: 0 };
const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: fs::UTIME_NOW };

fn with_user(path: &str) -> Answer {
    let entries = [(1, 7, ALL), (2, 7, USER), (4, 5, ALL), (0x10, 7, ALL), (0x20, 0, ALL)];
    set(path, "system.posix_acl_access", &list(&entries))
}

/// On files, then on directories.
pub const CALLS: &[Call] = &[
    on_file("append", |p| write(p, OFlags::WRONLY | OFlags::APPEND)),
    on_file("write", |p| write(p, OFlags::WRONLY)),
    on_file("write-creating", |p| write(p, OFlags::WRONLY | OFlags::CREATE)),
    on_file("create-anew", |p| write(p, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL)),
    on_file("open-for-both", |p| open_as(p, OFlags::RDWR).map(|_| String::new())),
    on_file("truncate", |p| {
        open_as(p, OFlags::WRONLY).and_then(|f| fs::ftruncate(f, 1)).map(|()| String::new())
    }),
    on_file("open-truncating", |p| open_as(p, OFlags::WRONLY | OFlags::TRUNC).map(|_| String::new())),
    on_file("read-truncating", |p| open_as(p, OFlags::RDONLY | OFlags::TRUNC).map(|_| String::new())),
    on_file("allocate", |p| {
        done(open_as(p, OFlags::RDWR).and_then(|f| fs::fallocate(f, FallocateFlags::empty(), 0, 5000)))
    }),
    on_file("read", read),
    on_file("read-link", |p| fs::readlink(p, Vec::new()).map(|to| to.to_string_lossy().into_owned())),
    on_file("chmod-777", |p| chmod(p, 0o777)),
    on_file("chmod-4755", |p| chmod(p, 0o4755)),
    on_file("chmod-2755", |p| chmod(p, 0o2755)),
    on_file("chown-to-other", |p| chown(p, Some(OTHER), None)),
    on_file("chown-to-me", |p| chown(p, Some(USER), None)),
    on_file("chown-to-nobody-else", |p| chown(p, None, None)),
    on_file("chgrp-to-other", |p| chown(p, None, Some(OTHER))),
    on_file("chgrp-to-mine", |p| chown(p, None, Some(USER))),
    on_file("times-now", |p| times(p, NOW)),
    on_file("times-set", |p| times(p, SET_AT)),
    on_file("attribute", |p| set(p, "user.x", b"1")),
    on_file("attribute-gone", |p| done(fs::lremovexattr(p, "user.x"))),
    on_file("capability", |p| set(p, "security.capability", &CAPABLE)),
    on_file("capability-gone", |p| done(fs::lremovexattr(p, "security.capability"))),
    on_file("trusted", |p| set(p, "trusted.x", b"1")),
    on_file("security", |p| set(p, "security.x", b"1")),
    on_file("list", with_user),
    on_file("list-gone", |p| done(fs::lremovexattr(p, "system.posix_acl_access"))),
    on_file("rename", |p| rename(p, "renamed")),
    on_file("rename-into-mine", |p| rename(p, "mine.d/renamed")),
    on_file("rename-over", |p| rename("mine", p)),
    on_file("rename-over-mine", |p| rename(p, "mine")),
    on_file("exchange", |p| done(fs::renameat_with(CWD, "mine", CWD, p, RenameFlags::EXCHANGE))),
    on_file("whiteout", |p| done(fs::renameat_with(CWD, p, CWD, "renamed", RenameFlags::WHITEOUT))),
    on_file("link", |p| done(fs::linkat(CWD, p, CWD, "linked", AtFlags::empty()))),
    on_file("link-followed", |p| done(fs::linkat(CWD, p, CWD, "linked", AtFlags::SYMLINK_FOLLOW))),
    on_file("unlink", |p| done(fs::unlink(p))),
    on_file("unlink-other", |_| done(fs::unlink("other"))),
    on_file("rename-other", |_| rename("other", "renamed")),
    on_directory("list-names", |p| {
        let names = std::fs::read_dir(p).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let names = names.map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
        let mut names: Vec<_> =
            names.iter().map(|name| name.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        Ok(names.join(","))
    }),
    on_directory("read-inside", |p| read(&within(p, "other"))),
    on_directory("create", |p| write(&within(p, "new"), OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL)),
    on_directory("create-setuid", |p| {
        let how = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        fs::open(within(p, "new"), how, Mode::from_raw_mode(0o6777)).map(|_| String::new())
    }),
    on_directory("create-closed", |p| {
        let how = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        fs::open(within(p, "new"), how, Mode::empty()).map(|_| String::new())
    }),
    on_directory("make-directory", |p| done(fs::mkdir(within(p, "new"), Mode::from_raw_mode(0o7777)))),
    on_directory("make-link", |p| done(fs::symlink("/etc/shadow", within(p, "new")))),
    on_directory("make-device", |p| {
        node(&within(p, "new"), FileType::CharacterDevice, 0o666, fs::makedev(1, 3))
    }),
    on_directory("make-whiteout", |p| node(&within(p, "new"), FileType::CharacterDevice, 0o666, 0)),
    on_directory("make-disk", |p| node(&within(p, "new"), FileType::BlockDevice, 0o666, fs::makedev(7, 1))),
    on_directory("make-fifo", |p| node(&within(p, "new"), FileType::Fifo, 0o6666, 0)),
    on_directory("make-socket", |p| node(&within(p, "new"), FileType::Socket, 0o666, 0)),
    on_directory("link-into", |p| done(fs::linkat(CWD, "mine", CWD, within(p, "new"), AtFlags::empty()))),
    on_directory("link-other-into", |p| {
        done(fs::linkat(CWD, "other", CWD, within(p, "new"), AtFlags::empty()))
    }),
    on_directory("unlink-mine-in", |p| done(fs::unlink(within(p, "mine")))),
    on_directory("unlink-other-in", |p| done(fs::unlink(within(p, "other")))),
    on_directory("unlink-roots-in", |p| done(fs::unlink(within(p, "root")))),
    on_directory("rename-mine-out", |p| rename(&within(p, "mine"), "renamed")),
    on_directory("rename-other-out", |p| rename(&within(p, "other"), "renamed")),
    on_directory("rename-roots-within", |p| rename(&within(p, "root"), &within(p, "new"))),
    on_directory("rename-over-other", |p| rename("mine", &within(p, "other"))),
    on_directory("rename-into", |p| rename("mine", &within(p, "new"))),
    on_directory("write-mine-in", |p| write(&within(p, "mine"), OFlags::WRONLY)),
    on_directory("write-other-in", |p| write(&within(p, "other"), OFlags::WRONLY)),
    on_directory("write-roots-in", |p| write(&within(p, "root"), OFlags::WRONLY)),
    on_directory("write-creating-in", |p| write(&within(p, "other"), OFlags::WRONLY | OFlags::CREATE)),
    on_directory("chmod-roots-in", |p| chmod(&within(p, "root"), 0o4777)),
    on_directory("chown-roots-in", |p| chown(&within(p, "root"), None, None)),
    on_directory("remove", |p| done(fs::rmdir(p))),
    on_directory("rename", |p| rename(p, "renamed")),
    on_directory("rename-into-mine", |p| rename(p, "mine.d/renamed")),
    on_directory("rename-over", |p| rename("mine.d", p)),
    on_directory("exchange", |p| done(fs::renameat_with(CWD, "mine", CWD, p, RenameFlags::EXCHANGE))),
    on_directory("chmod-777", |p| chmod(p, 0o777)),
    on_directory("chmod-7755", |p| chmod(p, 0o7755)),
    on_directory("chown-to-me", |p| chown(p, Some(USER), None)),
    on_directory("chgrp-to-other", |p| chown(p, None, Some(OTHER))),
    on_directory("list", with_user),
    on_directory("default-list-gone", |p| done(fs::lremovexattr(p, "system.posix_acl_default"))),
    on_directory("attribute", |p| set(p, "user.x", b"1")),
    on_directory("times-set", |p| times(p, SET_AT)),
];

/// Makes the call that each directory of a tree is named after, in that directory, and says what it has come to.
pub fn make_all(tree: &Path) {
    rustix::process::umask(Mode::empty());
    let mut said = std::io::stdout().lock();
    for entry in std::fs::read_dir(tree).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let last = name.rsplit('.').next().unwrap();
        let of_directories = name.split('.').nth(1).is_some_and(|kind| kind.starts_with("dir-"));
        let call =
            CALLS.iter().find(|call| call.name == last && call.of_directories == of_directories).unwrap();
        std::env::set_current_dir(tree.join(&name)).unwrap();
        match (call.make)(SUBJECT) {
            Ok(seen) => writeln!(said, "{name} ok {seen}"),
            Err(e) => writeln!(said, "{name} {}", word(e)),
        }
        .unwrap();
    }
}

/// An error by its name, as far as calls here are answered with one.
fn word(error: Errno) -> String {
    let words = [
        (Errno::PERM, "EPERM"),
        (Errno::ACCESS, "EACCES"),
        (Errno::INVAL, "EINVAL"),
        (Errno::EXIST, "EEXIST"),
        (Errno::NOTDIR, "ENOTDIR"),
        (Errno::ISDIR, "EISDIR"),
        (Errno::NOTEMPTY, "ENOTEMPTY"),
        (Errno::OVERFLOW, "EOVERFLOW"),
        (Errno::ROFS, "EROFS"),
    ];
    let known = words.iter().find(|(known, _)| *known == error);
    known.map_or_else(|| format!("errno {}", error.raw_os_error()), |(_, word)| (*word).into())
}
