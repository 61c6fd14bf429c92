//! Random operations in a plain directory and through a transaction: the same results, the same error
//! numbers, the same tree, and after the commit the same tree on disk.
//!
//! Left out, with the reason: sizes of directories (the file system's own affair), times that nobody set
//! (clocks go on), link counts of the root (the area is in it), and after the commit the times of directories
//! whose changes cancelled out.

use crate::world::*;
use std::sync::Arc;
use systx_engine::domain::Most;
use systx_engine::transaction::{Access, Grain, Node, SetAttr, SetTime, Transaction};
use systx_os::{Errno, Fallocate, FileType, Linux, Open, Os, Rename, SetXattr, Timestamp};

const NAMES: [&str; 5] = ["a", "b", "c", "x", "y"];
const BIG: usize = 300 << 10;

struct Both {
    t: Transaction<Linux>,
    plain: Fd,
    os: Linux,
    handles: Vec<(Node, Fd)>,
    /// Directories that processes share: as nodes, themselves, and in the plain tree. `None`: none is to be.
    shared: Option<Vec<(Node, Arc<Fd>, Fd)>>,
    /// Calls that brought objects of the committed tree into these, and failed.
    refused: usize,
}

fn pattern(n: usize, seed: u8) -> Vec<u8> {
    (0..n).map(|i| (i / 7) as u8 ^ seed).collect()
}

/// The tree that both begin with.
fn populate(dir: &Fd, acls: bool) {
    let os = Linux::new();
    let file = |dir: &Fd, name: &str, bytes: &[u8]| {
        let fd = os.create(dir, name.as_bytes(), 0o644).unwrap();
        if !bytes.is_empty() {
            os.pwrite(&fd, bytes, 0).unwrap();
        }
        fd
    };
    let sub = |dir: &Fd, name: &str| {
        os.mkdir(dir, name.as_bytes(), 0o755).unwrap();
        os.open(dir, name.as_bytes(), Open::Directory).unwrap()
    };
    let a = sub(dir, "a");
    let b = sub(dir, "b");
    let aa = sub(&a, "a");
    sub(&b, "c");
    let setgid = sub(dir, "c");
    if os.uid() == 0 {
        os.chown(&setgid, 0, 7).unwrap();
    }
    os.chmod(&setgid, 0o2775).unwrap();
    file(dir, "x", &pattern(BIG, 1));
    let y = file(&a, "y", b"hello");
    os.link(&y, &b, b"x").unwrap();
    file(&aa, "x", &pattern(5000, 2));
    file(&aa, "y", b"");
    let suid = file(&b, "y", &pattern(70_000, 3));
    os.chmod(&suid, 0o6755).unwrap();
    os.symlink(dir, b"y", b"a/y").unwrap();
    os.mknod(&setgid, b"a", 0o010644, 0).unwrap();
    let _ = os.setxattr(&y, b"user.k", b"lower", SetXattr::Any);
    if acls {
        let list =
            [2u32, 0x70001, u32::MAX, 0x70002, 12, 0x50004, u32::MAX, 0x70010, u32::MAX, 0x50020, u32::MAX];
        let bytes: Vec<u8> = list.iter().flat_map(|w| w.to_le_bytes()).collect();
        os.setxattr(&b, b"system.posix_acl_default", &bytes, SetXattr::Any).unwrap();
        os.setxattr(&suid, b"system.posix_acl_access", &bytes, SetXattr::Any).unwrap();
    }
    // So that explicit times tell whether they are kept.
    for (d, sec) in [(&a, 1000), (&b, 2000), (&aa, 3000)] {
        os.utimens(d, None, Some(Timestamp { sec, nsec: 0 })).unwrap();
    }
}

fn supports_acls(dir: &Fd) -> bool {
    let os = Linux::new();
    !matches!(os.getxattr(dir, b"system.posix_acl_default"), Err(Errno::OPNOTSUPP))
}

/// A result, as far as it is compared.
type Seen = Result<Vec<u8>, Errno>;

fn nothing() -> (String, Seen, Seen) {
    ("nothing".into(), Ok(Vec::new()), Ok(Vec::new()))
}

impl Both {
    /// Counts what is refused where processes share a directory, and nowhere else.
    fn is_refused<T>(&mut self, answer: &Result<T, Errno>) -> bool {
        let refused = self.shared.is_some() && matches!(answer, Err(Errno::XDEV));
        self.refused += usize::from(refused);
        refused
    }

    /// A new directory is shared from here on, if any is.
    fn share(&mut self, node: Node, path: &str) {
        let plain = self.at(path).unwrap();
        if let Some(shared) = &mut self.shared {
            shared.extend(self.t.share(node).unwrap().map(|dir| (node, dir, plain)));
        }
    }

    /// A call of a process in a directory that it shares, and the same in the plain one. Or the directory is left.
    fn by_itself(&mut self, rng: &mut fastrand::Rng) -> (String, Seen, Seen) {
        let Some(shared) = &mut self.shared else { return nothing() };
        // Not those that were removed.
        shared.retain(|(.., plain)| self.os.read_dir(plain).is_ok());
        if shared.is_empty() {
            return nothing();
        }
        let n = rng.usize(0..shared.len());
        if rng.u32(0..40) == 0 {
            let (node, ..) = shared.swap_remove(n);
            self.t.leave(node);
            return ("leave".into(), Ok(Vec::new()), Ok(Vec::new()));
        }
        let (_, ours, plain) = &shared[n];
        let there: Vec<String> = real(plain).into_keys().filter(|p| !p.is_empty()).collect();
        let path = |rng: &mut fastrand::Rng| match there.len() {
            0 => NAMES[rng.usize(0..5)].to_owned(),
            len if rng.bool() => there[rng.usize(0..len)][1..].to_owned(),
            len => format!("{}/{}", &there[rng.usize(0..len)][1..], NAMES[rng.usize(0..5)]),
        };
        let (p, q) = (path(rng), if rng.bool() { path(rng) } else { NAMES[rng.usize(0..5)].to_owned() });
        let (what, mode, sec) = (rng.u32(0..12), 0o700 | rng.u32(0..0o100), rng.i64(5000..9000));
        let how = [Rename::Replace, Rename::NoReplace, Rename::Exchange][rng.usize(0..3)];
        let bytes = pattern(rng.usize(0..9000), rng.u8(..));
        let act = |top: &Fd| -> Seen {
            let k = Linux::new();
            let open = |path: &str| {
                path.split('/').filter(|n| !n.is_empty()).try_fold(k.dup(top)?, |at, name| {
                    match k.stat(&at)?.kind() {
                        FileType::Directory => k.open(&at, name.as_bytes(), Open::Path),
                        _ => Err(Errno::NOTDIR),
                    }
                })
            };
            let dir = |path: &str| {
                let fd = open(path)?;
                let is_dir = k.stat(&fd)?.kind() == FileType::Directory;
                is_dir.then_some(fd).ok_or(Errno::NOTDIR)
            };
            let ((d, n), (qd, qn)) = (split(&p), split(&q));
            let done = match what {
                0..=2 => k.pwrite(&k.create(&dir(d)?, n.as_bytes(), mode)?, &bytes, 0).map(drop),
                3 | 4 => k.mkdir(&dir(d)?, n.as_bytes(), mode),
                5 => k.symlink(&dir(d)?, n.as_bytes(), q.as_bytes()),
                6 => k.link(&open(&p)?, &dir(qd)?, qn.as_bytes()),
                7 => k.unlink(&dir(d)?, n.as_bytes()),
                8 => k.rmdir(&dir(d)?, n.as_bytes()),
                9 | 10 => k.rename((&dir(d)?, n.as_bytes()), (&dir(qd)?, qn.as_bytes()), how),
                _ => {
                    let fd = open(&p)?;
                    if k.stat(&fd)?.kind() != FileType::Symlink {
                        k.chmod(&fd, mode)?;
                    }
                    k.utimens(&fd, None, Some(Timestamp { sec, nsec: 0 }))
                }
            };
            done.map(|()| Vec::new())
        };
        (format!("by itself: {what} {p} {q} {how:?}"), act(plain), act(ours))
    }

    fn dir(&self, path: &str) -> Result<Fd, Errno> {
        let mut at = self.os.dup(&self.plain)?;
        for name in path.split('/').filter(|n| !n.is_empty()) {
            at = self.os.open(&at, name.as_bytes(), Open::Path)?;
            if self.os.stat(&at)?.kind() != FileType::Directory {
                return Err(Errno::NOTDIR);
            }
        }
        Ok(at)
    }

    fn node(&mut self, path: &str) -> Result<Node, Errno> {
        let (node, attr) = walk(&mut self.t, path)?;
        match FileType::from_mode(attr.mode) {
            Some(FileType::Directory) => Ok(node),
            _ => Err(Errno::NOTDIR),
        }
    }

    fn at(&self, path: &str) -> Result<Fd, Errno> {
        let (dir, name) = split(path);
        self.os.open(&self.dir(dir)?, name.as_bytes(), Open::Path)
    }

    fn node_at(&mut self, path: &str) -> Result<Node, Errno> {
        let (dir, name) = split(path);
        let dir = self.node(dir)?;
        os(self.t.lookup(dir, name.as_bytes()))?.map(|(n, _)| n).ok_or(Errno::NOENT)
    }

    fn step(&mut self, rng: &mut fastrand::Rng, acls: bool) -> (String, Seen, Seen) {
        let there: Vec<String> = real(&self.plain).into_keys().filter(|p| !p.is_empty()).collect();
        let path = |rng: &mut fastrand::Rng| {
            // Names that are there make more things happen.
            if rng.bool() && !there.is_empty() {
                return there[rng.usize(0..there.len())][1..].to_owned();
            }
            let depth = [1, 1, 2, 2, 3][rng.usize(0..5)];
            (0..depth).map(|_| NAMES[rng.usize(0..NAMES.len())]).collect::<Vec<_>>().join("/")
        };
        let (p, q) = (path(rng), path(rng));
        let (d, n) = split(&p);
        let (n, k) = (n.as_bytes(), Linux::new());
        let caller = systx_engine::transaction::Caller { umask: 0, ..me() };
        let mode = [0o644, 0o600, 0o755, 0o777, 0o4755, 0o2755][rng.usize(0..6)];
        // Permission checks are the caller's part: without privileges, let there be none that fail.
        let mode = if me().uid == 0 { mode } else { mode | 0o700 };
        let offset = [0, 3, 511, 512, 4096, 130_000, 250_000][rng.usize(0..7)] as u64;
        let len = [1, 100, 512, 5000, 40_000][rng.usize(0..5)];
        let bytes = pattern(len, rng.u8(..));
        match rng.u32(0..23) {
            0 | 1 => {
                let a = self.dir(d).and_then(|d| k.create(&d, n, mode)).map(|_| Vec::new());
                let b = self.node(d).and_then(|d| os(self.t.create(d, n, mode, caller)));
                let b = b.map(|(node, _)| {
                    self.t.open(node, Access::Write, false).unwrap();
                    self.t.close(node);
                    Vec::new()
                });
                (format!("create {p} {mode:o}"), a, b)
            }
            2 | 3 => {
                let a = self.dir(d).and_then(|d| k.mkdir(&d, n, mode)).map(|_| Vec::new());
                let b = self.node(d).and_then(|d| os(self.t.mkdir(d, n, mode, caller)));
                let b = b.map(|(node, _)| {
                    self.share(node, &p);
                    Vec::new()
                });
                (format!("mkdir {p}"), a, b)
            }
            4 => {
                let a = self.dir(d).and_then(|d| k.symlink(&d, n, q.as_bytes())).map(|_| Vec::new());
                let b = self.node(d).and_then(|d| os(self.t.symlink(d, n, q.as_bytes(), caller)));
                (format!("symlink {p}"), a, b.map(|_| Vec::new()))
            }
            5 => {
                let a = self.dir(d).and_then(|d| k.mknod(&d, n, 0o010000 | mode, 0)).map(|_| Vec::new());
                let b = self.node(d).and_then(|d| os(self.t.mknod(d, n, 0o010000 | mode, 0, caller)));
                (format!("mkfifo {p}"), a, b.map(|_| Vec::new()))
            }
            6 | 7 => {
                let (qd, qn) = split(&q);
                let b = self.node_at(&p).and_then(|f| {
                    let d = self.node(qd)?;
                    os(self.t.link(f, d, qn.as_bytes()))
                });
                if self.is_refused(&b) {
                    return nothing();
                }
                let a =
                    self.at(&p).and_then(|f| k.link(&f, &self.dir(qd)?, qn.as_bytes())).map(|_| Vec::new());
                (format!("link {p} {q}"), a, b.map(|_| Vec::new()))
            }
            8 | 9 => {
                let a = self.dir(d).and_then(|d| k.unlink(&d, n)).map(|_| Vec::new());
                let b = self.node(d).and_then(|d| os(self.t.unlink(d, n))).map(|_| Vec::new());
                (format!("unlink {p}"), a, b)
            }
            10 => {
                let a = self.dir(d).and_then(|d| k.rmdir(&d, n)).map(|_| Vec::new());
                let b = self.node(d).and_then(|d| os(self.t.rmdir(d, n))).map(|_| Vec::new());
                (format!("rmdir {p}"), a, b)
            }
            11..=13 => {
                let how =
                    [Rename::Replace, Rename::Replace, Rename::NoReplace, Rename::Exchange][rng.usize(0..4)];
                let (qd, qn) = split(&q);
                let b = self.node(d).and_then(|d| {
                    let to = self.node(qd)?;
                    os(self.t.rename(d, n, to, qn.as_bytes(), how))
                });
                if self.is_refused(&b) {
                    return nothing();
                }
                let a = self.dir(d).and_then(|d| k.rename((&d, n), (&self.dir(qd)?, qn.as_bytes()), how));
                (format!("rename {p} {q} {how:?}"), a.map(|_| Vec::new()), b.map(|_| Vec::new()))
            }
            14 | 15 => self.with_file(&p, |both, node, fd| match len {
                100 => {
                    both.t.setattr(node, &SetAttr { size: Some(offset), ..SetAttr::default() }).unwrap();
                    both.os.truncate(fd, offset).unwrap();
                }
                512 => {
                    let how = [Fallocate::PunchHole, Fallocate::Zero, Fallocate::KeepSize][rng.usize(0..3)];
                    let raw = [3, 0x10, 1][[Fallocate::PunchHole, Fallocate::Zero, Fallocate::KeepSize]
                        .iter()
                        .position(|h| *h == how)
                        .unwrap()];
                    let a = both.os.fallocate(fd, how, offset, 9000);
                    if a != Err(Errno::OPNOTSUPP) {
                        assert_eq!(a, os(both.t.fallocate(node, raw, offset, 9000)));
                    }
                }
                _ => {
                    assert_eq!(both.t.write_at(node, &bytes, offset), Ok(len));
                    assert_eq!(both.os.pwrite(fd, &bytes, offset), Ok(len));
                }
            }),
            16 => {
                let a = self
                    .at(&p)
                    .and_then(|f| k.stat(&f)?.kind().ne(&FileType::Symlink).then_some(f).ok_or(Errno::IO));
                let a = a.and_then(|f| k.chmod(&f, mode)).map(|_| Vec::new());
                let b = self.node_at(&p).and_then(|f| {
                    let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
                    os(self.t.setattr(f, &set)).map_err(|e| if e == Errno::OPNOTSUPP { Errno::IO } else { e })
                });
                (format!("chmod {p} {mode:o}"), a, b.map(|_| Vec::new()))
            }
            17 if self.os.uid() == 0 => {
                let gid = rng.u32(0..4);
                let a = self.at(&p).and_then(|f| k.chown(&f, 5, gid)).map(|_| Vec::new());
                let b = self.node_at(&p).and_then(|f| {
                    let set = SetAttr { uid: Some(5), gid: Some(gid), kill_priv: true, ..SetAttr::default() };
                    os(self.t.setattr(f, &set))
                });
                (format!("chown {p}"), a, b.map(|_| Vec::new()))
            }
            18 => {
                let at = Timestamp { sec: rng.i64(5000..9000), nsec: 5 };
                let a = self.at(&p).and_then(|f| k.utimens(&f, None, Some(at))).map(|_| Vec::new());
                let b = self.node_at(&p).and_then(|f| {
                    os(self.t.setattr(f, &SetAttr { mtime: Some(SetTime::At(at)), ..SetAttr::default() }))
                });
                (format!("utimens {p}"), a, b.map(|_| Vec::new()))
            }
            19 => {
                let how = [SetXattr::Any, SetXattr::Create, SetXattr::Replace][rng.usize(0..3)];
                let name: &[u8] = [&b"user.k"[..], b"user.l"][rng.usize(0..2)];
                let a = self.at(&p).and_then(|f| k.setxattr(&f, name, &bytes[..1], how)).map(|_| Vec::new());
                let b = self.node_at(&p).and_then(|f| os(self.t.setxattr(f, name, &bytes[..1], how)));
                (format!("setxattr {p} {how:?}"), a, b.map(|_| Vec::new()))
            }
            20 => {
                let name: &[u8] = match rng.usize(0..3) {
                    0 if acls => b"system.posix_acl_access",
                    1 => b"user.l",
                    _ => b"user.k",
                };
                let a = self.at(&p).and_then(|f| k.removexattr(&f, name)).map(|_| Vec::new());
                let b = self.node_at(&p).and_then(|f| os(self.t.removexattr(f, name)));
                (format!("removexattr {p} {}", String::from_utf8_lossy(name)), a, b.map(|_| Vec::new()))
            }
            21 => self.open_handle(&p),
            _ => self.use_handle(rng, offset, &bytes),
        }
    }

    /// Does the same to a regular file on both sides.
    fn with_file(&mut self, p: &str, act: impl FnOnce(&mut Both, Node, &Fd)) -> (String, Seen, Seen) {
        let what = format!("change bytes of {p}");
        let (fd, node) = (self.at(p), self.node_at(p));
        let (fd, node) = match (fd, node) {
            (Ok(fd), Ok(node)) => (fd, node),
            (a, b) => return (what, a.map(|_| Vec::new()), b.map(|_| Vec::new())),
        };
        let kinds =
            (self.os.stat(&fd).unwrap().kind(), FileType::from_mode(self.t.getattr(node).unwrap().mode));
        if kinds == (FileType::File, Some(FileType::File)) {
            let fd = self.os.reopen(&fd, Open::ReadWrite).unwrap();
            self.t.open(node, Access::Write, false).unwrap();
            act(self, node, &fd);
            self.drop_privileges(node, &fd);
            self.t.close(node);
        }
        (what, Ok(vec![kinds.0 as u8]), Ok(vec![kinds.1.map_or(255, |k| k as u8)]))
    }

    /// As the kernel does for whoever may not set setuid bits, and a view asks for.
    fn drop_privileges(&mut self, node: Node, plain: &Fd) {
        if self.os.uid() != 0 && self.os.stat(plain).unwrap().perm() & 0o6000 == 0 {
            self.t.setattr(node, &SetAttr { kill_priv: true, ..SetAttr::default() }).unwrap();
        }
    }

    fn open_handle(&mut self, p: &str) -> (String, Seen, Seen) {
        let (fd, node) = (self.at(p), self.node_at(p));
        if let (Ok(fd), Ok(node)) = (&fd, &node) {
            if self.os.stat(fd).unwrap().kind() == FileType::File && self.handles.len() < 4 {
                self.t.open(*node, Access::ReadWrite, false).unwrap();
                self.handles.push((*node, self.os.reopen(fd, Open::ReadWrite).unwrap()));
            }
        }
        (format!("open {p}"), fd.map(|_| Vec::new()), node.map(|_| Vec::new()))
    }

    fn use_handle(&mut self, rng: &mut fastrand::Rng, offset: u64, bytes: &[u8]) -> (String, Seen, Seen) {
        if self.handles.is_empty() {
            return nothing();
        }
        let n = rng.usize(0..self.handles.len());
        let node = self.handles[n].0;
        let what = rng.u32(0..3);
        let (a, b) = match what {
            0 => {
                let (node, _) = self.handles.swap_remove(n);
                self.t.close(node);
                (Ok(Vec::new()), Ok(Vec::new()))
            }
            1 => {
                let a = self.os.pwrite(&self.handles[n].1, bytes, offset);
                let b = os(self.t.write_at(node, bytes, offset));
                let fd = self.os.dup(&self.handles[n].1).unwrap();
                self.drop_privileges(node, &fd);
                (a.map(|n| n.to_le_bytes().to_vec()), b.map(|n| n.to_le_bytes().to_vec()))
            }
            _ => {
                let (mut a, mut b) = (vec![0; 50_000], vec![0; 50_000]);
                let n_a = self.os.pread(&self.handles[n].1, &mut a, offset).unwrap();
                let n_b = os(self.t.read_at(node, &mut b, offset)).unwrap();
                a.truncate(n_a);
                b.truncate(n_b);
                let nlink = self.os.stat(&self.handles[n].1).unwrap().nlink;
                assert_eq!(nlink, self.t.getattr(node).unwrap().nlink, "links of an open file");
                (Ok(a), Ok(b))
            }
        };
        (format!("handle {n}: {what}"), a, b)
    }
}

/// The tree as the transaction sees it, but for times of directories that nobody has set.
fn seen_now(t: &mut Transaction<Linux>) -> Tree {
    let mut tree = seen(t);
    tree.get_mut("").unwrap().mtime = None;
    tree
}

impl Both {
    /// A part that is undone alone: meanwhile the plain directory is a copy, which is left behind.
    fn undone(
        &mut self,
        rng: &mut fastrand::Rng,
        scratch: &Scratch,
        acls: bool,
        depth: usize,
        log: &mut Vec<String>,
    ) {
        let before = seen_now(&mut self.t);
        let savepoint = self.t.savepoint().unwrap();
        log.push(format!("savepoint {savepoint}"));
        let copy = scratch.copy_of(&self.plain);
        let plain = std::mem::replace(&mut self.plain, copy);
        let handles = std::mem::take(&mut self.handles);
        for _ in 0..rng.usize(1..20) {
            self.both_alike(rng, acls, log);
            match rng.u32(0..12) {
                0 if depth < 2 => self.undone(rng, scratch, acls, depth + 1, log),
                1 if depth < 2 => self.kept(rng, acls, log),
                _ => {}
            }
        }
        let left = std::mem::replace(&mut self.handles, handles);
        self.plain = plain;
        self.t.undo_to(savepoint).unwrap_or_else(|e| panic!("{e:?}\n{}", log.join("\n")));
        log.push(format!("undone {savepoint}"));
        left.into_iter().for_each(|(node, _)| self.t.close(node));
        assert_same(&before, &seen_now(&mut self.t), &log.join("\n"));
    }

    /// A part that is kept.
    fn kept(&mut self, rng: &mut fastrand::Rng, acls: bool, log: &mut Vec<String>) {
        let savepoint = self.t.savepoint().unwrap();
        log.push(format!("savepoint {savepoint}, to be kept"));
        for _ in 0..rng.usize(1..10) {
            self.both_alike(rng, acls, log);
        }
        self.t.release(savepoint).unwrap_or_else(|e| panic!("{e:?}\n{}", log.join("\n")));
        log.push(format!("kept {savepoint}"));
        assert!(self.t.undo_to(savepoint).is_err() && self.t.release(savepoint).is_err(), "it is over");
    }

    /// A step with the same answer on both sides.
    fn both_alike(&mut self, rng: &mut fastrand::Rng, acls: bool, log: &mut Vec<String>) {
        let by_itself = self.shared.is_some() && rng.bool();
        let (what, a, b) = if by_itself { self.by_itself(rng) } else { self.step(rng, acls) };
        let brief = |s: &Seen| s.as_ref().map(|b| crc32c::crc32c(b)).map_err(|e| *e);
        log.push(format!("{what} -> {:?}", brief(&a)));
        assert_eq!(brief(&a), brief(&b), "{}", log.join("\n"));
    }
}

/// The calls that were made, to be printed if the test fails.
struct Log(Vec<String>);

impl Drop for Log {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.0.join("\n"));
        }
    }
}

/// Returns true if parts of the transaction may be undone on their own.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Parts {
    None,
    Some,
}

/// Returns true if processes make names by themselves in new directories.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sharing {
    None,
    Some,
}

/// Returns how many calls that brought objects of the committed tree into shared directories were refused.
fn agree(base: std::path::PathBuf, seed: u64, steps: usize, parts: Parts, sharing: Sharing) -> usize {
    let Some(scratch) = Scratch::new(base) else { return 0 };
    let (plain, lower) = (scratch.open("plain"), scratch.open("lower"));
    let domain = domain(&scratch, "lower");
    if seed % 3 == 0 {
        domain.remember(Most { names: 64, open: 8 });
    }
    let acls = supports_acls(&plain);
    populate(&plain, acls);
    populate(&lower, acls);
    let mut rng = fastrand::Rng::with_seed(seed);
    let untouched = real(&lower);
    let shared = (sharing == Sharing::Some).then(Vec::new);
    let mut both =
        Both { t: begin(&domain), plain, os: Linux::new(), handles: Vec::new(), shared, refused: 0 };
    for name in ["n", "m"].into_iter().filter(|_| sharing == Sharing::Some) {
        both.os.mkdir(&both.plain, name.as_bytes(), 0o755).unwrap();
        let root = both.t.root(0);
        let (node, _) = both.t.mkdir(root, name.as_bytes(), 0o755, me()).unwrap();
        both.share(node, name);
    }
    // As the library does.
    if seed % 4 < 2 {
        both.t.look_by(Grain::Pages);
    }
    if seed % 2 == 0 {
        // Nearly every access has to open its file again.
        both.t.hold_files(1);
    }
    let mut log = Log(Vec::new());
    let log = &mut log.0;
    for n in 0..steps {
        match (parts, rng.u32(0..8)) {
            (Parts::Some, 0) => both.undone(&mut rng, &scratch, acls, 0, log),
            (Parts::Some, 1) => both.kept(&mut rng, acls, log),
            _ => both.both_alike(&mut rng, acls, log),
        }
        if rng.usize(0..25) == 0 || n + 1 == steps {
            let mut a = real(&both.plain);
            let mut b = seen(&mut both.t);
            for tree in [&mut a, &mut b] {
                tree.get_mut("").unwrap().mtime = None;
            }
            b.get_mut("").unwrap().nlink -= u32::from(b[""].nlink > 1);
            assert_same(&a, &b, &format!("seed {seed}, step {n}:\n{}", log.join("\n")));
        }
    }
    let now = real(&lower);
    assert_same(&untouched, &now, "the committed tree was touched");
    let Both { mut t, plain, handles, shared, refused, .. } = both;
    drop(handles);
    for (node, ..) in shared.into_iter().flatten() {
        t.leave(node);
    }
    let done = t.commit().unwrap_or_else(|e| panic!("seed {seed}: {e}\n{}", log.join("\n")));
    assert!(
        done.conflict_copies.is_empty() && done.pending.is_none(),
        "seed {seed}: {done:?}\n{}",
        log.join("\n")
    );
    let (a, mut b) = (real(&plain), real(&lower));
    for (path, theirs) in &mut b {
        // Names that came and went leave no trace in a committed directory, not even in its time.
        if theirs.kind == FileType::Directory && a.get(path).is_some_and(|a| a.mtime.is_none()) {
            theirs.mtime = None;
        }
    }
    assert_same(&a, &b, &format!("seed {seed}, after commit:\n{}", log.join("\n")));
    refused
}

#[test]
fn verbs_agree_with_plain_system_calls_and_commit_makes_them_real() {
    let seeds = std::env::var("SYSTX_AGREEMENT_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(12);
    for base in bases() {
        for seed in 0..seeds {
            agree(base.clone(), seed, 30 + (seed as usize * 37) % 300, Parts::None, Sharing::None);
        }
    }
}

#[test]
fn what_is_undone_alone_leaves_no_trace_and_what_is_kept_is_as_if_done_without() {
    let seeds = std::env::var("SYSTX_AGREEMENT_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(12);
    for base in bases() {
        for seed in 0..seeds {
            agree(base.clone(), seed, 20 + (seed as usize * 17) % 60, Parts::Some, Sharing::None);
        }
    }
}

#[test]
fn verbs_find_what_processes_make_by_themselves_and_are_found_by_them() {
    let seeds = std::env::var("SYSTX_AGREEMENT_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(24);
    for base in bases() {
        let run =
            |seed| agree(base.clone(), seed, 30 + (seed as usize * 37) % 300, Parts::None, Sharing::Some);
        let refused: usize = (0..seeds).map(run).sum();
        assert!(refused > 0, "no object of the committed tree met a shared directory");
    }
}
