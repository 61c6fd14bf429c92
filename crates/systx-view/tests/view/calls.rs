//! System calls with their exact errors.

use crate::plain::xattrs;
use rustix::fs::{self, AtFlags, FallocateFlags, Mode, OFlags, RenameFlags, SeekFrom, XattrFlags, CWD};
use rustix::io::{pread, pwrite};
use std::os::fd::OwnedFd;
use std::path::Path;

fn say<T: std::fmt::Debug>(what: &str, answer: T) -> String {
    format!("{what}: {answer:?}")
}

fn open(path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    fs::open(path, flags | OFlags::CLOEXEC, Mode::from_raw_mode(0o644))
}

fn read(fd: &OwnedFd, offset: u64, len: usize) -> String {
    let mut buf = vec![0; len];
    match pread(fd, &mut buf, offset) {
        Ok(n) => String::from_utf8_lossy(&buf[..n]).into_owned(),
        Err(e) => format!("{e:?}"),
    }
}

fn size(fd: &OwnedFd) -> i64 {
    fs::fstat(fd).unwrap().st_size
}

/// Bytes: two writers, appends, holes, allocation, copies, nameless files.
pub fn data(dir: &Path) -> Vec<String> {
    let mut said = Vec::new();
    let at = |name: &str| dir.join(name);

    let reader = open(&at("lines"), OFlags::RDONLY).unwrap();
    said.push(say("first", read(&reader, 0, 6)));
    let writer = open(&at("lines"), OFlags::RDWR).unwrap();
    said.push(say("write", pwrite(&writer, b"NEW", 2)));
    said.push(say("seen by the earlier reader", read(&reader, 0, 6)));
    let appender = open(&at("lines"), OFlags::WRONLY | OFlags::APPEND).unwrap();
    said.push(say("append", rustix::io::write(&appender, b"appended\n")));
    said.push(say("append beside a writer", pwrite(&writer, b"tail", size(&writer) as u64)));
    said.push(say("append", rustix::io::write(&appender, b"again\n")));
    said.push(say("end", read(&reader, size(&reader) as u64 - 20, 40)));
    said.push(say("write to a reader", pwrite(&reader, b"x", 0)));
    said.push(say("read from a writer", read(&appender, 0, 1)));
    drop((reader, writer, appender));
    let reader = open(&at("lines"), OFlags::RDONLY).unwrap();
    said.push(say("read anew", (read(&reader, 0, 6), size(&reader))));

    let file = open(&at("sparse"), OFlags::RDWR | OFlags::CREATE).unwrap();
    said.push(say("far", pwrite(&file, b"far", 1 << 20)));
    said.push(say("hole reads as zeros", read(&file, 1000, 4)));
    said.push(say("data", fs::seek(&file, SeekFrom::Data(0))));
    said.push(say("hole", fs::seek(&file, SeekFrom::Hole(1 << 20))));
    said.push(say("past the end", fs::seek(&file, SeekFrom::Data(2 << 20))));
    said.push(say("allocate", fs::fallocate(&file, FallocateFlags::empty(), 0, 2 << 20)));
    said.push(say("size", size(&file)));
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    said.push(say("punch", fs::fallocate(&file, punch, 1 << 20, 4096)));
    said.push(say("punched", read(&file, 1 << 20, 3)));
    said.push(say("shrink", fs::ftruncate(&file, 10)));
    said.push(say("grow", (fs::ftruncate(&file, 20), size(&file), read(&file, 0, 30))));
    said.push(say("again by open", open(&at("sparse"), OFlags::WRONLY | OFlags::TRUNC).map(|_| size(&file))));

    let (from, to) =
        (open(&at("large"), OFlags::RDONLY).unwrap(), open(&at("to"), OFlags::RDWR | OFlags::CREATE));
    let to = to.unwrap();
    let (mut off_in, mut off_out) = (1000, 50);
    let copied = fs::copy_file_range(&from, Some(&mut off_in), &to, Some(&mut off_out), 100_000);
    said.push(say("copy", (copied, off_in, off_out, size(&to))));

    let nameless =
        fs::open(dir, OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, Mode::from_raw_mode(0o640));
    said.push(say("nameless", nameless.is_ok()));
    if let Ok(file) = nameless {
        said.push(say("write", pwrite(&file, b"nameless", 0)));
        said.push(say("links", fs::fstat(&file).unwrap().st_nlink));
        let proc = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        said.push(say("name it", fs::linkat(CWD, proc, CWD, at("named"), AtFlags::SYMLINK_FOLLOW)));
        said.push(say("links", fs::fstat(&file).unwrap().st_nlink));
        said.push(say("write", pwrite(&file, b"NAMED", 0)));
    }
    let file = open(&at("named"), OFlags::RDONLY);
    said.push(say("named", file.map(|f| read(&f, 0, 20))));

    let gone = open(&at("gone"), OFlags::RDWR | OFlags::CREATE | OFlags::EXCL).unwrap();
    said.push(say("unlink", fs::unlink(at("gone"))));
    said.push(say("unlinked", (pwrite(&gone, b"still here", 0), read(&gone, 0, 20))));
    said.push(say("links", fs::fstat(&gone).unwrap().st_nlink));
    said.push(say("exclusive", open(&at("to"), OFlags::RDWR | OFlags::CREATE | OFlags::EXCL).err()));
    said.push(say("write a directory", open(&at("tree"), OFlags::WRONLY).err()));
    let direct = open(&at("to"), OFlags::RDWR | OFlags::CREATE);
    said.push(say("sync", direct.and_then(|f| fs::fsync(&f).and(fs::fdatasync(&f)))));
    said
}

/// Names: every kind of rename, links, and what is refused.
pub fn names(dir: &Path) -> Vec<String> {
    let mut said = Vec::new();
    let at = |name: &str| dir.join(name);
    let put = |name: &str| std::fs::write(at(name), name).unwrap();
    let mode = Mode::from_raw_mode(0o755);
    let rename = |a: &str, b: &str, how| fs::renameat_with(CWD, at(a), CWD, at(b), how);
    let (exchange, noreplace, plain) = (RenameFlags::EXCHANGE, RenameFlags::NOREPLACE, RenameFlags::empty());

    put("one");
    put("two");
    said.push(say("exchange", rename("one", "two", exchange)));
    said.push(say("exchanged", std::fs::read_to_string(at("one"))));
    said.push(say("exchange with a directory", rename("one", "tree", exchange)));
    said.push(say("in its place", std::fs::read_dir(at("one")).map(|d| d.count())));
    said.push(say("back", rename("tree", "one", exchange)));
    said.push(say("noreplace", rename("one", "two", noreplace)));
    said.push(say("noreplace onto nothing", rename("one", "three", noreplace)));
    said.push(say("exchange with nothing", rename("three", "nothing", exchange)));
    said.push(say("both flags", rename("three", "two", exchange | noreplace)));
    said.push(say("whiteout", rename("three", "new", RenameFlags::WHITEOUT | exchange)));
    said.push(say("over a file", rename("three", "two", plain)));
    said.push(say("of nothing", rename("three", "two", plain)));
    said.push(say("file over directory", rename("two", "tree", plain)));
    said.push(say("directory over file", rename("tree", "two", plain)));
    said.push(say("mkdir", (fs::mkdir(at("dir"), mode), fs::mkdir(at("dir"), mode))));
    said.push(say("directory over full directory", rename("dir", "tree", plain)));
    said.push(say("full directory over empty one", rename("tree", "dir", plain)));
    said.push(say("into itself", rename("dir", "dir/a/inside", plain)));
    said.push(say("deep", std::fs::read_to_string(at("dir/a/b/deep"))));
    said.push(say("up", std::fs::read_to_string(at("dir/a/b/../../../two"))));
    said.push(say("rmdir full", fs::rmdir(at("dir"))));
    said.push(say("rmdir file", fs::rmdir(at("two"))));
    said.push(say("unlink directory", fs::unlink(at("dir"))));
    said.push(say("unlink nothing", fs::unlink(at("nothing"))));
    said.push(say("link", fs::link(at("two"), at("linked"))));
    said.push(say("links", fs::stat(at("linked")).map(|s| s.st_nlink)));
    said.push(say("link again", fs::link(at("two"), at("linked"))));
    said.push(say("rename over own link", rename("two", "linked", plain)));
    said.push(say("both are there", (at("two").exists(), at("linked").exists())));
    said.push(say("link a directory", fs::link(at("dir"), at("no"))));
    said.push(say("symlink", fs::symlink("two", at("sym"))));
    said.push(say("symlink again", fs::symlink("two", at("sym"))));
    said.push(say("loop", fs::symlink("round", at("round")).and(fs::stat(at("round")).map(drop))));
    said.push(say("through a file", fs::stat(at("two/x")).map(drop)));
    said.push(say("long name", fs::mkdir(at(&"n".repeat(255)), mode)));
    said.push(say("too long name", fs::mkdir(at(&"n".repeat(256)), mode)));
    said.push(say("too long, missing", fs::stat(at(&"m".repeat(256))).map(drop)));
    said.push(say("not utf-8", fs::mkdir(dir.join(name_of_bytes()), mode)));
    let working = fs::open(at("dir/a"), OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap();
    said.push(say("move below an open directory", rename("dir/a", "moved", plain)));
    said.push(say("through it", fs::statat(&working, "b/deep", AtFlags::empty()).map(|s| s.st_size)));
    said.push(say("its parent", fs::statat(&working, "../two", AtFlags::empty()).map(|s| s.st_size)));
    said.push(say("remove", std::fs::remove_dir_all(at("moved")).is_ok()));
    said.push(say("make in a removed directory", fs::mkdirat(&working, "x", mode)));
    said
}

fn name_of_bytes() -> std::ffi::OsString {
    use std::os::unix::ffi::OsStringExt;
    std::ffi::OsString::from_vec(vec![b'a', 0xff, 0xfe, b'\n', b'z'])
}

/// Attributes: modes, owners, privileges, times, extended attributes, ACLs.
pub fn attributes(dir: &Path) -> Vec<String> {
    let mut said = Vec::new();
    let at = |name: &str| dir.join(name);
    let mode = |name: &str| fs::lstat(at(name)).map(|s| format!("{:o}", s.st_mode)).unwrap();
    let chmod = |name: &str, bits| fs::chmod(at(name), Mode::from_raw_mode(bits));
    let (uid, gid) = (fs::Uid::from_raw(77), fs::Gid::from_raw(78));

    said.push(say("chmod", (chmod("small", 0o4755), mode("small"), mode("small-too"))));
    said.push(say("chown clears setuid", (fs::chown(at("small"), Some(uid), Some(gid)), mode("small"))));
    said.push(say("chmod", (chmod("small", 0o6777), mode("small"))));
    let file = open(&at("small"), OFlags::WRONLY).unwrap();
    said.push(say("root's write keeps it", (pwrite(&file, b"x", 0), mode("small"))));
    drop(file);
    said.push(say(
        "directory",
        (chmod("tree", 0o3777), fs::chown(at("tree"), Some(uid), None), mode("tree")),
    ));
    let link = fs::chownat(CWD, at("tree/link"), Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW);
    said.push(say("owner of a link", (link, fs::lstat(at("tree/link")).map(|s| (s.st_uid, s.st_gid)))));

    let time = |sec, nsec| fs::Timespec { tv_sec: sec, tv_nsec: nsec };
    for (a, m) in [(time(1, 2), time(3, 4)), (time(-5, 6), time(0, fs::UTIME_OMIT))] {
        let times = fs::Timestamps { last_access: a, last_modification: m };
        let set = fs::utimensat(CWD, at("small"), &times, AtFlags::empty());
        let s = fs::stat(at("small")).unwrap();
        said.push(say("times", (set, s.st_atime, s.st_atime_nsec, s.st_mtime, s.st_mtime_nsec)));
    }

    let set = |name: &str, value: &[u8], flags| fs::lsetxattr(at("large"), name, value, flags);
    let get = |name: &str, len: usize| {
        let mut buf = vec![0; len];
        fs::lgetxattr(at("large"), name, &mut buf).map(|n| (n, buf))
    };
    said.push(say("missing", get("user.a", 10)));
    said.push(say("replace missing", set("user.a", b"1", XattrFlags::REPLACE)));
    said.push(say("create", set("user.a", b"value", XattrFlags::CREATE)));
    said.push(say("create again", set("user.a", b"2", XattrFlags::CREATE)));
    said.push(say("size", get("user.a", 0)));
    said.push(say("too small", get("user.a", 3)));
    said.push(say("get", get("user.a", 9)));
    said.push(say("trusted", set("trusted.t", b"t", XattrFlags::empty())));
    said.push(say("empty", set("user.empty", b"", XattrFlags::empty())));
    said.push(say("list", xattrs(&at("large"))));
    said.push(say("list too small", fs::llistxattr(at("large"), &mut [0; 3])));
    said.push(say("remove", (fs::lremovexattr(at("large"), "user.a"), get("user.a", 9))));
    said.push(say("remove again", fs::lremovexattr(at("large"), "user.a")));
    said.push(say("on a link", fs::lsetxattr(at("tree/link"), "user.a", b"1", XattrFlags::empty())));
    said.push(say("unknown kind", set("nonsense.a", b"1", XattrFlags::empty())));

    // Version 2, CAP_NET_RAW effective and permitted.
    let capability = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    said.push(say(
        "capability",
        fs::lsetxattr(at("lines"), "security.capability", &capability, XattrFlags::empty()),
    ));
    said.push(say("there", xattrs(&at("lines"))));
    let file = open(&at("lines"), OFlags::WRONLY).unwrap();
    said.push(say("a write drops it", (pwrite(&file, b"x", 0), xattrs(&at("lines")))));
    drop(file);

    // u::rwx,u:77:r-x,g::r--,m::rwx,o::--- as in linux/posix_acl_xattr.h.
    let entry = |tag: u16, perm: u16, id: u32| {
        [&tag.to_le_bytes()[..], &perm.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    let acl = [
        2u32.to_le_bytes().to_vec(),
        entry(1, 7, u32::MAX),
        entry(2, 5, 77),
        entry(4, 4, u32::MAX),
        entry(16, 7, u32::MAX),
        entry(32, 0, u32::MAX),
    ]
    .concat();
    let set_acl = |name: &str, which: &str| fs::lsetxattr(at(name), which, &acl, XattrFlags::empty());
    said.push(say("ACL", (set_acl("empty", "system.posix_acl_access"), mode("empty"), xattrs(&at("empty")))));
    said.push(say("chmod changes its mask", (chmod("empty", 0o640), xattrs(&at("empty")))));
    said.push(say("default ACL", set_acl("tree/a", "system.posix_acl_default")));
    std::fs::write(at("tree/a/inherits"), "x").unwrap();
    said.push(say("inherited", (mode("tree/a/inherits"), xattrs(&at("tree/a/inherits")))));
    said.push(say(
        "directory",
        (fs::mkdir(at("tree/a/dir"), Mode::from_raw_mode(0o777)), mode("tree/a/dir")),
    ));
    said.push(say("both", xattrs(&at("tree/a/dir"))));
    said.push(say("file system", fs::statfs(dir).map(|s| (s.f_bsize, s.f_namelen, s.f_blocks))));
    said
}

/// Directories: all names once, also while some of them go.
pub fn directories(dir: &Path) -> Vec<String> {
    let mut said = Vec::new();
    let tree = dir.join("tree");
    let sorted = |dir: &mut fs::Dir| {
        let mut names: Vec<String> = dir
            .by_ref()
            .map(|e| e.map(|e| format!("{:?} {:?}", e.file_name(), e.file_type())).unwrap())
            .collect();
        names.sort();
        names
    };
    let mut reading = fs::Dir::read_from(fs::open(&tree, OFlags::DIRECTORY, Mode::empty()).unwrap()).unwrap();
    said.extend(sorted(&mut reading));
    std::fs::write(tree.join("late"), "").unwrap();
    reading.rewind();
    said.push(say("after rewinding", sorted(&mut reading).len()));

    // As `rm -r` does: remove what was read, read on, with many chunks.
    let many = dir.join("many");
    fs::mkdir(&many, Mode::from_raw_mode(0o755)).unwrap();
    (0..3000).for_each(|n| std::fs::write(many.join(format!("a-rather-long-name-{n}")), "").unwrap());
    said.push(say("listed", std::fs::read_dir(&many).unwrap().count()));
    let mut removed = 0;
    for entry in std::fs::read_dir(&many).unwrap() {
        removed += usize::from(std::fs::remove_file(entry.unwrap().path()).is_ok());
    }
    said.push(say("removed", (removed, std::fs::remove_dir(&many).is_ok())));
    said
}
