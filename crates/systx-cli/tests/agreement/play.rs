//! Random system calls in the working directory, all of them from one seed: the same seed makes the same
//! calls as long as the answers are the same.
//!
//! Owns: the calls and the words in which their answers are printed. Does not: judge.

use super::tree::{self, escape};
use rustix::fd::OwnedFd;
use rustix::fs::{
    self, Access, AtFlags, FallocateFlags, FileType, Gid, Mode, OFlags, RenameFlags, SeekFrom, Timespec,
    Timestamps, Uid, XattrFlags, CWD,
};
use rustix::io::{Errno, Result};
use std::ffi::OsStr;
use std::fmt::Debug;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Names: few, so that calls meet.
fn names() -> Vec<Vec<u8>> {
    let mut names: Vec<Vec<u8>> = ["a", "b", "c", "dir", "sub", "large", "sparse"].map(|n| n.into()).to_vec();
    names.push(vec![b'n'; 255]);
    names.push(vec![b'l', 0xff, 0xfe, b'\n', b'\t', b'z']);
    names.push("späce and \u{1f600}".into());
    names
}

/// Makes the first contents of both directories: `dir` and `sub` are directories, everything else has one of
/// each kind.
pub fn begin(dir: &Path, uid: u32) {
    let at = |name: &str| dir.join(name);
    let mode = Mode::from_raw_mode(0o644);
    std::fs::write(at("a"), "a small file\n").unwrap();
    std::fs::write(at("large"), (0..600_000u32).map(|n| (n / 7) as u8).collect::<Vec<u8>>()).unwrap();
    std::fs::create_dir_all(at("dir/sub/dir")).unwrap();
    std::fs::create_dir(at("sub")).unwrap();
    let sparse = std::fs::File::create(at("sparse")).unwrap();
    use std::os::unix::fs::FileExt;
    sparse.set_len(3 << 20).unwrap();
    sparse.write_all_at(&[7; 9000], 1 << 20).unwrap();
    std::fs::hard_link(at("a"), at("dir/a")).unwrap();
    std::os::unix::fs::symlink("../a", at("sub/a")).unwrap();
    std::os::unix::fs::symlink("dir", at("b")).unwrap();
    std::fs::write(dir.join(OsStr::from_bytes(&names()[8])), "not UTF-8").unwrap();
    std::fs::write(at("dir/sub/c"), vec![b'c'; 150_000]).unwrap();
    fs::mknodat(CWD, at("dir/b"), FileType::Fifo, mode, 0).unwrap();
    fs::mknodat(CWD, at("dir/c"), FileType::CharacterDevice, mode, fs::makedev(1, 3)).unwrap();
    fs::mknodat(CWD, at("sub/c"), FileType::Socket, mode, 0).unwrap();
    fs::lsetxattr(at("large"), "user.k", b"before", XattrFlags::empty()).unwrap();
    if uid != 0 {
        // Owned by the user, but for some things.
        for name in ["", "a", "large", "dir", "dir/sub", "dir/sub/dir", "dir/sub/c", "dir/b"] {
            std::os::unix::fs::chown(at(name), Some(uid), Some(uid)).unwrap();
        }
        fs::chmod(at("sub"), Mode::from_raw_mode(0o1777)).unwrap();
        std::fs::write(at("sub/b"), "root's, in a sticky directory").unwrap();
        fs::chmod(at("sub/b"), Mode::from_raw_mode(0o666)).unwrap();
    }
}

/// Returns true if the file system of a directory can zero a range; tmpfs can't, and a view over it can.
pub fn zeroes(dir: &Path) -> bool {
    let path = dir.join("zeroes");
    let file = fs::open(&path, OFlags::RDWR | OFlags::CREATE, Mode::from_raw_mode(0o600)).unwrap();
    std::fs::remove_file(path).unwrap();
    fs::fallocate(&file, FallocateFlags::ZERO_RANGE, 0, 4096).is_ok()
}

/// Role, to try something by hand: makes what both directories begin with. DIR UID.
pub fn role_begin(args: &[String]) {
    begin(Path::new(&args[0]), args[1].parse().unwrap());
}

/// Gives a directory the clock's time.
fn renew_directory(path: &[u8]) {
    let (keep, now) =
        (Timespec { tv_sec: 0, tv_nsec: fs::UTIME_OMIT }, Timespec { tv_sec: 0, tv_nsec: fs::UTIME_NOW });
    let times = Timestamps { last_access: keep, last_modification: now };
    let kind = fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW).map(|s| FileType::from_raw_mode(s.st_mode));
    if kind == Ok(FileType::Directory) {
        // Fails on another user's directory: then it has not been moved here either.
        let _ = fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW);
    }
}

/// Role: SEED STEPS UID ZEROES.
pub fn role(args: &[String]) {
    let number = |n: usize| args[n].parse::<u64>().unwrap();
    let (seed, steps, uid, zeroes) = (number(0), number(1), number(2) as u32, number(3) == 1);
    let modes = if uid != 0 && steps > 1000 { 0o1777 } else { 0o7777 };
    let rng = fastrand::Rng::with_seed(seed);
    let mut player = Player { rng, names: names(), open: Vec::new(), zeroes, modes };
    rustix::process::umask(Mode::from_raw_mode(0o022));
    if uid != 0 {
        // Saved ids stay, so that the tree can be looked at by root in the end.
        rustix::thread::set_thread_groups(&[Gid::from_raw(uid), Gid::from_raw(50)]).unwrap();
        let gid = Gid::from_raw(uid);
        rustix::thread::set_thread_res_gid(gid, gid, Gid::ROOT).unwrap();
        rustix::thread::set_thread_res_uid(Uid::from_raw(uid), Uid::from_raw(uid), Uid::ROOT).unwrap();
    }
    let mut said = String::new();
    for n in 0..steps {
        said += &format!("{n} {}\n", player.step());
    }
    player.open.clear();
    if uid != 0 {
        rustix::thread::set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT).unwrap();
    }
    print!("{said}{}", tree::print(&tree::look(Path::new("../.."))));
}

/// Role: tries to collapse and to insert ranges of files that are old, new, and changed.
pub fn ranges(_: &[String]) {
    let write = |name: &str, bytes: &[u8], at: u64| {
        let file = fs::open(name, OFlags::RDWR | OFlags::CREATE, Mode::from_raw_mode(0o644)).unwrap();
        assert_eq!(rustix::io::pwrite(&file, bytes, at), Ok(bytes.len()));
        file
    };
    let first = std::fs::read("old").unwrap();
    for file in [
        fs::open("old", OFlags::RDWR, Mode::empty()).unwrap(),
        write("patched", b"there", 5000),
        write("new", &first[..20_000], 0),
    ] {
        for how in [FallocateFlags::COLLAPSE_RANGE, FallocateFlags::INSERT_RANGE] {
            println!("{how:?}: {:?}", fs::fallocate(&file, how, 4096, 4096));
        }
    }
}

struct Player {
    rng: fastrand::Rng,
    names: Vec<Vec<u8>>,
    open: Vec<OwnedFd>,
    zeroes: bool,
    /// Bits that it sets. Long plays of an ordinary user open a setuid file twice for writing, sooner or
    /// later, and then the bits go earlier than outside (docs/limits.md).
    modes: u32,
}

/// Returns an answer in words; `tell` describes what it holds.
fn say<T>(what: String, answer: Result<T>, tell: impl FnOnce(T) -> String) -> String {
    match answer {
        Ok(t) => format!("{what} = {}", tell(t)),
        Err(e) => format!("{what} = {e:?}"),
    }
}

fn done(what: String, answer: Result<()>) -> String {
    say(what, answer, |()| "done".into())
}

fn debug<T: Debug>(t: T) -> String {
    format!("{t:?}")
}

fn sum(bytes: &[u8]) -> String {
    let sum = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325u64, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    format!("{} bytes {sum:016x}", bytes.len())
}

fn stat(s: fs::Stat) -> String {
    let directory = FileType::from_raw_mode(s.st_mode) == FileType::Directory;
    // Others are the clock's. Natively a FIFO has the time of the last byte that went through it, in a view it has not.
    let fifo = FileType::from_raw_mode(s.st_mode) == FileType::Fifo;
    let set = s.st_mtime < 315_532_800 && !fifo;
    let time = if set { format!(" {}.{:09}", s.st_mtime, s.st_mtime_nsec) } else { String::new() };
    let links = if directory { String::new() } else { format!(" links {} size {}", s.st_nlink, s.st_size) };
    format!("{:o} {}:{} device {:x}{links}{time}", s.st_mode, s.st_uid, s.st_gid, s.st_rdev)
}

/// How [`Player::step`] shows a path.
fn show(path: &[u8]) -> String {
    let text = escape(path);
    // The longest names would hide everything else.
    text.replace(&"n".repeat(255), "nnn…").replace(&"m".repeat(256), "mmm…")
}

impl Player {
    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.rng.usize(..from.len())]
    }

    /// A path that is there more often than not.
    fn path(&mut self) -> Vec<u8> {
        match self.rng.u8(..100) {
            0 => return b".".to_vec(),
            1 => return b"dir/..".to_vec(),
            2 => return vec![b'm'; 256],
            3 => return b"a/".to_vec(),
            4 => return Vec::new(),
            5 => return b"dir/".to_vec(),
            _ => {}
        }
        let mut path = Vec::new();
        for _ in 0..self.pick(&[0, 0, 1, 1, 2]) {
            path.extend_from_slice(self.pick(&[&b"dir"[..], b"sub", b"dir", b"b"]));
            path.push(b'/');
        }
        let n = self.rng.usize(..self.names.len());
        path.extend_from_slice(&self.names[n]);
        path
    }

    fn data(&mut self) -> Vec<u8> {
        let len = self.pick(&[0usize, 1, 10, 512, 3000, 4096, 5000, 20_000, 70_000, 140_000]);
        // Zeros, too: they are data.
        let byte = self.pick(&[0, 1, b'x', 0xff, 0x7f]);
        (0..len).map(|i| if byte == 0 { 0 } else { byte ^ (i / 100) as u8 }).collect()
    }

    fn offset(&mut self) -> u64 {
        let near = self.rng.u64(..200_000);
        match self.rng.u8(..10) {
            0 => 0,
            1..=3 => near / 4096 * 4096,
            4 => (1 << 20) + near / 4096 * 4096,
            5 => 1 << 33,
            _ => near,
        }
    }

    fn length(&mut self) -> u64 {
        self.pick(&[1, 100, 4096, 8192, 10_000, 65_536, 300_000])
    }

    fn mode(&mut self) -> Mode {
        let mode = self.pick(&[0o644, 0o600, 0o755, 0o777, 0o4755, 0o2775, 0o1777, 0o444, 0o6711, 0o700]);
        Mode::from_raw_mode(mode & self.modes)
    }

    fn flags(&mut self) -> OFlags {
        let mut flags = self.pick(&[OFlags::RDONLY, OFlags::RDWR, OFlags::RDWR, OFlags::WRONLY]);
        for more in [OFlags::CREATE, OFlags::APPEND, OFlags::EXCL, OFlags::NOFOLLOW, OFlags::DIRECTORY] {
            let often = if more == OFlags::CREATE { 2 } else { 8 };
            if self.rng.u8(..often) == 0 {
                flags |= more;
            }
        }
        // O_TRUNC without write access, O_EXCL without O_CREAT, and O_CREAT with O_DIRECTORY have no promised
        // effect.
        if !(flags & OFlags::ACCMODE).is_empty() && self.rng.u8(..6) == 0 {
            flags |= OFlags::TRUNC;
        }
        if !flags.contains(OFlags::CREATE) {
            flags -= OFlags::EXCL;
        }
        if flags.contains(OFlags::DIRECTORY) {
            flags = OFlags::RDONLY | OFlags::DIRECTORY;
        }
        // A FIFO without another end is no reason to wait.
        flags | OFlags::NONBLOCK | OFlags::CLOEXEC
    }

    /// An open file, or the error of there being none.
    fn held(&mut self) -> Result<usize> {
        match self.open.len() {
            0 => Err(Errno::BADF),
            n => Ok(self.rng.usize(..n)),
        }
    }

    /// One call.
    fn step(&mut self) -> String {
        match self.rng.u8(..100) {
            0..=41 => self.of_names(),
            42..=59 => self.of_attributes(),
            60..=69 => self.of_looking(),
            _ => self.of_bytes(),
        }
    }

    fn of_names(&mut self) -> String {
        let (p, q) = (self.path(), self.path());
        let (mode, shown) = (self.mode(), show(&p));
        let two = format!("{shown} {}", show(&q));
        let (path, other) = (p.as_slice(), q.as_slice());
        match self.rng.u8(..42) {
            0..=9 => {
                let flags = self.flags();
                let what = format!("open {shown} {flags:?} {:o}", mode.as_raw_mode());
                let opened = fs::open(path, flags, mode);
                if opened.is_ok() && self.open.len() >= 6 {
                    let n = self.rng.usize(..6);
                    drop(self.open.swap_remove(n));
                }
                // A special file that is open and has no name left is out of a view's reach (docs/limits.md).
                let kept = |fd: &OwnedFd| {
                    let kind = fs::fstat(fd).map(|s| FileType::from_raw_mode(s.st_mode));
                    matches!(kind, Ok(FileType::RegularFile | FileType::Directory))
                };
                say(what, opened.map(|fd| self.open.extend(Some(fd).filter(kept))), debug)
            }
            10..=12 => done(format!("mkdir {shown} {:o}", mode.as_raw_mode()), fs::mkdir(path, mode)),
            13..=15 => {
                let kinds = [FileType::Fifo, FileType::Socket, FileType::RegularFile];
                let devices = [FileType::CharacterDevice, FileType::BlockDevice];
                let kind = if self.rng.u8(..3) == 0 { self.pick(&devices) } else { self.pick(&kinds) };
                // No driver answers to the second, so none is loaded.
                let device =
                    if kind == FileType::CharacterDevice { fs::makedev(1, 3) } else { fs::makedev(240, 77) };
                let device = if devices.contains(&kind) { device } else { 0 };
                let what = format!("mknod {shown} {kind:?} {:o}", mode.as_raw_mode());
                done(what, fs::mknodat(CWD, path, kind, mode, device))
            }
            16..=17 => {
                let target: &[u8] = match self.rng.u8(..8) {
                    0 => &[b't'; 1000],
                    1 => b"\xff\xfe",
                    2 => b"",
                    3 => b".",
                    _ => other,
                };
                done(format!("symlink {} {shown}", show(target)), fs::symlink(target, path))
            }
            18..=21 => {
                let how = self.pick(&[AtFlags::empty(), AtFlags::empty(), AtFlags::SYMLINK_FOLLOW]);
                done(format!("link {two} {how:?}"), fs::linkat(CWD, path, CWD, other, how))
            }
            22..=25 => done(format!("unlink {shown}"), fs::unlink(path)),
            26..=28 => done(format!("rmdir {shown}"), fs::rmdir(path)),
            29..=37 => {
                let plain = RenameFlags::empty();
                let (exchange, noreplace) = (RenameFlags::EXCHANGE, RenameFlags::NOREPLACE);
                let how =
                    self.pick(&[plain, plain, plain, exchange, exchange, noreplace, noreplace | exchange]);
                let renamed = fs::renameat_with(CWD, path, CWD, other, how);
                if renamed.is_ok() && how == exchange {
                    // xfs gives a directory that gets another parent so a new time, a view does not (docs/limits.md).
                    [path, other].into_iter().for_each(renew_directory);
                }
                // POSIX leaves open how a full directory is reported; xfs says the one, the others and a view
                // the other.
                let full = |e| if e == Errno::EXIST && how == plain { Errno::NOTEMPTY } else { e };
                done(format!("rename {two} {how:?}"), renamed.map_err(full))
            }
            38 => {
                let raw = self.pick(&[0o022, 0, 0o077, 0o027]);
                format!(
                    "umask {raw:o} = {:o}",
                    rustix::process::umask(Mode::from_raw_mode(raw)).as_raw_mode()
                )
            }
            _ => self.nameless(path, other),
        }
    }

    /// O_TMPFILE, and perhaps a name for it.
    fn nameless(&mut self, dir: &[u8], name: &[u8]) -> String {
        let what = format!("nameless in {}", show(dir));
        let (flags, mode) = (OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, self.mode());
        let file = match fs::open(dir, flags, mode) {
            Ok(file) => file,
            Err(e) => return format!("{what} = {e:?}"),
        };
        let bytes = self.data();
        let written = rustix::io::pwrite(&file, &bytes, 0);
        let proc = format!("/proc/self/fd/{}", file.as_raw_fd());
        let named = (self.rng.u8(..4) > 0).then(|| fs::linkat(CWD, proc, CWD, name, AtFlags::SYMLINK_FOLLOW));
        let links = fs::fstat(&file).map(stat);
        if self.rng.bool() && self.open.len() < 6 {
            self.open.push(file);
        }
        format!("{what} = {written:?}, named {} {named:?}, {links:?}", show(name))
    }

    fn of_attributes(&mut self) -> String {
        let p = self.path();
        let (path, shown) = (p.as_slice(), show(&p));
        let follow = self.pick(&[AtFlags::empty(), AtFlags::SYMLINK_NOFOLLOW]);
        match self.rng.u8(..18) {
            0..=2 => {
                let mode = self.mode();
                done(format!("chmod {shown} {:o}", mode.as_raw_mode()), fs::chmod(path, mode))
            }
            3 => {
                let mode = self.mode();
                let n = self.held();
                done(
                    format!("fchmod {n:?} {:o}", mode.as_raw_mode()),
                    n.and_then(|n| fs::fchmod(&self.open[n], mode)),
                )
            }
            4..=6 => {
                let (uid, gid) = (
                    self.pick(&[None, Some(0), Some(1000), Some(77)]),
                    self.pick(&[None, Some(50), Some(1000), Some(0)]),
                );
                let (u, g) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
                done(
                    format!("chown {shown} {uid:?} {gid:?} {follow:?}"),
                    fs::chownat(CWD, path, u, g, follow),
                )
            }
            7..=9 => {
                // Always both, or neither but the clock's: the clock's is distinguished by being late.
                let sec = self.pick(&[0, 1, 100_000_000, -5, 300_000_000]);
                let nsec = self.pick(&[0, 1, 999_999_999, fs::UTIME_NOW, fs::UTIME_OMIT]);
                let time = Timespec { tv_sec: sec, tv_nsec: nsec };
                let times =
                    Timestamps { last_access: Timespec { tv_sec: 5, tv_nsec: 5 }, last_modification: time };
                let what = format!("utimens {shown} {sec} {nsec} {follow:?}");
                done(what, fs::utimensat(CWD, path, &times, follow))
            }
            10..=13 => {
                let how = self.pick(&[
                    XattrFlags::empty(),
                    XattrFlags::empty(),
                    XattrFlags::CREATE,
                    XattrFlags::REPLACE,
                ]);
                let (name, value) = self.xattr();
                let what = format!("setxattr {shown} {name} {} {how:?}", escape(&value));
                done(what, fs::lsetxattr(path, name, &value, how))
            }
            14..=15 => {
                let name = self.xattr().0;
                done(format!("removexattr {shown} {name}"), fs::lremovexattr(path, name))
            }
            16 => {
                let mut value = vec![0; self.pick(&[0, 3, 400])];
                let name = self.xattr().0;
                let got = fs::lgetxattr(path, name, &mut value[..]);
                let len = value.len();
                say(format!("getxattr {shown} {name} {len}"), got, |n| {
                    if len == 0 {
                        n.to_string()
                    } else {
                        escape(&value[..n])
                    }
                })
            }
            _ => {
                let mut list = vec![0; 8000];
                let got = fs::llistxattr(path, &mut list[..]).map(|n| list[..n].to_vec());
                let all = got.map(|list| tree::names(&list)).unwrap_or_default();
                let len = self.pick(&[0, 5, 4000]);
                let short = fs::llistxattr(path, &mut list[..len]);
                let alone = !all.iter().any(|name| name.starts_with("system.posix_acl_"));
                match (alone, short) {
                    (true, short) => {
                        say(format!("listxattr {shown} {len}"), short, |n| format!("{n} {all:?}"))
                    }
                    // The length may be that of a list with a name that only the file system has.
                    (false, _) => format!("listxattr {shown} = {all:?}"),
                }
            }
        }
    }

    fn xattr(&mut self) -> (&'static str, Vec<u8>) {
        match self.rng.u8(..12) {
            0 => ("trusted.t", b"trusted".to_vec()),
            1 => ("user.", b"no name".to_vec()),
            2 => ("nonsense.n", b"no kind".to_vec()),
            3 => ("system.posix_acl_access", self.acl()),
            4 => ("system.posix_acl_default", self.acl()),
            5 => ("user.k", vec![b'v'; 200]),
            6 => ("user.empty", Vec::new()),
            7 => ("security.test", b"secure".to_vec()),
            _ => (self.pick(&["user.k", "user.l"]), vec![self.rng.u8(..); 5]),
        }
    }

    /// Returns an ACL in the format of linux/posix_acl_xattr.h.
    fn acl(&mut self) -> Vec<u8> {
        let entry = |tag: u16, perm: u16, id: u32| {
            [&tag.to_le_bytes()[..], &perm.to_le_bytes(), &id.to_le_bytes()].concat()
        };
        let mut permissions = || self.rng.u16(..8);
        let (user, named, group, mask, other) =
            (permissions(), permissions(), permissions(), permissions(), permissions());
        let all = [
            2u32.to_le_bytes().to_vec(),
            entry(1, user, u32::MAX),
            entry(2, named, 77),
            entry(4, group, u32::MAX),
            entry(16, mask, u32::MAX),
            entry(32, other, u32::MAX),
        ];
        all.concat()
    }

    fn of_looking(&mut self) -> String {
        let p = self.path();
        let (path, shown) = (p.as_slice(), show(&p));
        match self.rng.u8(..12) {
            0..=2 => {
                let follow = self.pick(&[AtFlags::empty(), AtFlags::SYMLINK_NOFOLLOW]);
                say(format!("stat {shown} {follow:?}"), fs::statat(CWD, path, follow), stat)
            }
            3 => {
                let n = self.held();
                let links = n.and_then(|n| fs::fstat(&self.open[n]));
                // The answer if the two are one object is equal in both directories, though the numbers
                // differ.
                let same = links.is_ok_and(|s| {
                    fs::stat(path).is_ok_and(|t| (s.st_dev, s.st_ino) == (t.st_dev, t.st_ino))
                });
                say(format!("fstat {n:?}, and is it {shown}: {same}"), links, stat)
            }
            4..=5 => {
                say(format!("readlink {shown}"), fs::readlink(path, Vec::new()), |to| show(to.as_bytes()))
            }
            6..=7 => {
                let listed =
                    fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
                say(format!("readdir {shown}"), listed.and_then(|fd| listing(&fd)), |names| names)
            }
            8 => {
                let n = self.held();
                say(format!("readdir of {n:?}"), n.and_then(|n| listing(&self.open[n])), |names| names)
            }
            9 => say(format!("statfs {shown}"), fs::statfs(path), |s| {
                format!("{} {} {}", s.f_bsize, s.f_frsize, s.f_namelen)
            }),
            10 => {
                let how = self.pick(&[Access::EXISTS, Access::READ_OK, Access::WRITE_OK, Access::EXEC_OK]);
                done(format!("access {shown} {how:?}"), fs::access(path, how))
            }
            _ => {
                let n = self.held();
                let inside = n.and_then(|n| fs::statat(&self.open[n], "a", AtFlags::SYMLINK_NOFOLLOW));
                say(format!("stat a in {n:?}"), inside, stat)
            }
        }
    }

    fn of_bytes(&mut self) -> String {
        let (offset, bytes, length) = (self.offset(), self.data(), self.length());
        if self.rng.u8(..12) == 0 {
            let p = self.path();
            // Not waiting for a FIFO's reader.
            let file =
                fs::open(p.as_slice(), OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty());
            let size = offset.min(1 << 30);
            let cut = file.and_then(|file| fs::ftruncate(file, size));
            return format!("truncate {} {size} = {cut:?}", show(&p));
        }
        let n = match self.held() {
            Ok(n) => n,
            Err(_) => return self.of_names(),
        };
        let (fd, other) = (self.open[n].as_fd(), self.rng.usize(..self.open.len()));
        let other = self.open[other].as_fd();
        match self.rng.u8(..34) {
            0..=6 => say(
                format!("pwrite {n} {offset} {}", sum(&bytes)),
                rustix::io::pwrite(fd, &bytes, offset),
                debug,
            ),
            7..=9 => say(format!("write {n} {}", sum(&bytes)), rustix::io::write(fd, &bytes), debug),
            10..=14 => {
                let mut buffer = vec![0; length as usize];
                let got = rustix::io::pread(fd, &mut buffer[..], offset);
                say(format!("pread {n} {offset} {length}"), got, |n| sum(&buffer[..n]))
            }
            15..=16 => {
                let mut buffer = vec![0; length as usize];
                let got = rustix::io::read(fd, &mut buffer[..]);
                say(format!("read {n} {length}"), got, |n| sum(&buffer[..n]))
            }
            17..=18 => {
                let back = -(offset.min(50_000) as i64);
                let to = [SeekFrom::Start(offset), SeekFrom::End(back), SeekFrom::Current(back)];
                let mut to = to[self.rng.usize(..to.len())];
                if fs::fstat(fd).is_ok_and(|s| FileType::from_raw_mode(s.st_mode) == FileType::Directory) {
                    // Other positions of a directory are cookies of its file system.
                    to = SeekFrom::Start(0);
                }
                say(format!("seek {n} {to:?}"), fs::seek(fd, to), debug)
            }
            19..=20 => done(format!("truncate {n} {offset}"), fs::ftruncate(fd, offset)),
            21..=25 => {
                let keep = FallocateFlags::KEEP_SIZE;
                let punch = FallocateFlags::PUNCH_HOLE | keep;
                let how = [
                    FallocateFlags::empty(),
                    keep,
                    punch,
                    punch,
                    FallocateFlags::ZERO_RANGE,
                    FallocateFlags::PUNCH_HOLE,
                ];
                let mut how = how[self.rng.usize(..how.len())];
                if how == FallocateFlags::ZERO_RANGE && !self.zeroes {
                    how = keep;
                }
                // Not where it would take the space of the file system.
                let offset = offset.min(3 << 20);
                done(
                    format!("fallocate {n} {how:?} {offset} {length}"),
                    fs::fallocate(fd, how, offset, length),
                )
            }
            26..=29 => {
                let (mut from, mut to) = (offset.min(600_000), self.rng.u64(..300_000));
                let what = format!("copy {from} of {n} to {to} of another, {length}");
                let length = length as usize;
                let copied = match fs::copy_file_range(fd, Some(&mut from), other, Some(&mut to), length) {
                    // As on the border of a directory that the kernel serves.
                    Err(Errno::XDEV) => copy(fd, &mut from, other, &mut to, length),
                    copied => copied,
                };
                say(what, copied, |copied| format!("{copied} {from} {to}"))
            }
            30 => done(format!("fsync {n}"), fs::fsync(fd)),
            31 => done(format!("fdatasync {n}"), fs::fdatasync(fd)),
            _ => {
                drop(self.open.swap_remove(n));
                format!("close {n}")
            }
        }
    }
}

/// Names and kinds, once each.
fn listing(fd: &OwnedFd) -> Result<String> {
    let mut dir = fs::Dir::read_from(fd)?;
    let mut names = Vec::new();
    while let Some(entry) = dir.read() {
        let entry = entry?;
        names.push(format!("{} {:?}", show(entry.file_name().to_bytes()), entry.file_type()));
    }
    names.sort();
    Ok(names.join(", "))
}

/// What programs do where the kernel does not copy.
fn copy(fd: impl AsFd, from: &mut u64, other: impl AsFd, to: &mut u64, length: usize) -> Result<usize> {
    let mut bytes = vec![0; length];
    let read = rustix::io::pread(fd, &mut bytes, *from)?;
    let written = rustix::io::pwrite(other, &bytes[..read], *to)?;
    (*from, *to) = (*from + written as u64, *to + written as u64);
    Ok(written)
}
