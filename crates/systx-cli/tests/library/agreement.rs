//! One sequence of random calls plainly and in a transaction: every answer and every error number is the
//! same, and after the commit both trees are.

use super::{loosely, place, systx, KINDS};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{chown, symlink, FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use systx::{Dir, OpenOptions};

use super::machine::rounds;
use super::machine::user::USER;

const NAMES: [&str; 7] = ["a", "b", "c", "dir", "sub", "large", "link"];
const STEPS: usize = 150;

/// One call.
#[derive(Clone, Debug)]
enum Call {
    Read(String),
    Write(String, usize),
    Append(String),
    WriteAt(String, u64),
    Exclusive(String, u32),
    Truncate(String, u64),
    List(String),
    Stat(String),
    Lstat(String),
    Mkdir(String),
    MkdirAll(String),
    Rmdir(String),
    Unlink(String),
    Rename(String, String),
    Link(String, String),
    Symlink(String, String),
    Readlink(String),
    Chmod(String, u32),
    Chown(String, Option<u32>, Option<u32>),
}

fn path(rng: &mut fastrand::Rng) -> String {
    let mut path = String::new();
    let depth = rng.usize(1..4);
    for n in 0..depth {
        if n > 0 {
            path.push('/');
            if rng.usize(..15) == 0 {
                path.push_str(["../", "./", "/"][rng.usize(..3)]);
            }
        }
        path.push_str(NAMES[rng.usize(..NAMES.len())]);
    }
    if rng.usize(..12) == 0 {
        path.push_str(["/", "/.", "/.."][rng.usize(..3)]);
    }
    path
}

fn call(rng: &mut fastrand::Rng, uids: &[u32]) -> Call {
    let (one, other) = (path(rng), path(rng));
    let id = |rng: &mut fastrand::Rng| rng.bool().then(|| uids[rng.usize(..uids.len())]);
    // A user who takes the own rights to an object can't commit what was done with it (docs/programming.md).
    let owners = if uids.contains(&0) { 0 } else { 0o700 };
    match rng.usize(..22) {
        0 | 1 => Call::Read(one),
        2 | 3 => Call::Write(one, rng.usize(..200_000)),
        4 => Call::Append(one),
        5 => Call::WriteAt(one, rng.u64(..500_000)),
        6 => Call::Exclusive(one, rng.u32(..0o10_000) | owners),
        7 => Call::Truncate(one, rng.u64(..300_000)),
        8 => Call::List(one),
        9 => Call::Stat(one),
        10 => Call::Lstat(one),
        11 | 12 => Call::Mkdir(one),
        13 => Call::MkdirAll(one),
        14 => Call::Rmdir(one),
        15 => Call::Unlink(one),
        16 | 17 => Call::Rename(one, other),
        18 => Call::Link(one, other),
        19 => match rng.bool() {
            true => Call::Symlink(one, other),
            false => Call::Readlink(one),
        },
        20 => Call::Chmod(one, rng.u32(..0o10_000) | owners),
        _ => Call::Chown(one, id(rng), id(rng)),
    }
}

/// What a call says, or its error number.
fn said<T: std::fmt::Debug>(answer: io::Result<T>) -> String {
    match answer {
        Ok(value) => format!("{value:?}"),
        Err(error) => match (error.raw_os_error(), systx::Error::of(&error)) {
            (Some(errno), _) => format!("errno {errno}"),
            (None, Some(error)) => format!("{error:?}"),
            (None, None) => format!("{:?}", error.kind()),
        },
    }
}

fn text(n: usize) -> Vec<u8> {
    (0..n).map(|at| (at / 3 + n) as u8).collect()
}

fn sum(bytes: &[u8]) -> (usize, u32) {
    (bytes.len(), bytes.iter().fold(7u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(*byte))))
}

fn plainly(top: &Path, call: &Call) -> String {
    let at = |path: &String| -> PathBuf {
        // `join` would keep a trailing slash, too.
        let mut whole = top.as_os_str().to_owned();
        whole.push(OsStr::new("/"));
        whole.push(path);
        PathBuf::from(whole)
    };
    let stat = |m: fs::Metadata| {
        let size = if m.is_dir() { 0 } else { m.len() };
        let links = if m.is_dir() { 0 } else { m.nlink() };
        (m.mode(), m.uid(), m.gid(), size, links)
    };
    match call {
        Call::Read(path) => said(fs::read(at(path)).map(|bytes| sum(&bytes))),
        Call::Write(path, n) => said(fs::write(at(path), text(*n))),
        Call::Append(path) => said(
            fs::OpenOptions::new().append(true).open(at(path)).and_then(|mut file| file.write(b"appended")),
        ),
        Call::WriteAt(path, offset) => said(
            fs::OpenOptions::new()
                .read(true)
                .write(true)
                .open(at(path))
                .and_then(|file| file.write_at(b"patch", *offset)),
        ),
        Call::Exclusive(path, mode) => said(
            fs::OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(*mode)
                .open(at(path))
                .and_then(|mut f| f.write(b"x")),
        ),
        Call::Truncate(path, size) => {
            said(fs::OpenOptions::new().write(true).open(at(path)).and_then(|file| file.set_len(*size)))
        }
        Call::List(path) => said(fs::read_dir(at(path)).map(|entries| {
            let entry = |entry: io::Result<fs::DirEntry>| {
                let entry = entry.unwrap();
                let kind = entry.file_type().unwrap();
                (entry.file_name(), kind.is_dir(), kind.is_symlink())
            };
            let mut all: Vec<_> = entries.map(entry).collect();
            all.sort();
            all
        })),
        Call::Stat(path) => said(fs::metadata(at(path)).map(stat)),
        Call::Lstat(path) => said(fs::symlink_metadata(at(path)).map(stat)),
        Call::Mkdir(path) => said(fs::create_dir(at(path))),
        Call::MkdirAll(path) => said(fs::create_dir_all(at(path))),
        Call::Rmdir(path) => said(fs::remove_dir(at(path))),
        Call::Unlink(path) => said(fs::remove_file(at(path))),
        // On xfs a directory that is not empty "exists"; elsewhere it is "not empty".
        Call::Rename(from, to) => match said(fs::rename(at(from), at(to))).as_str() {
            "errno 17" => "errno 39".into(),
            other => other.into(),
        },
        Call::Link(from, to) => said(fs::hard_link(at(from), at(to))),
        Call::Symlink(target, link) => said(symlink(target, at(link))),
        Call::Readlink(path) => said(fs::read_link(at(path))),
        Call::Chmod(path, mode) => said(fs::set_permissions(at(path), PermissionsExt::from_mode(*mode))),
        Call::Chown(path, uid, gid) => said(chown(at(path), *uid, *gid)),
    }
}

fn inside(dir: &Dir, call: &Call) -> String {
    let stat = |m: systx::Metadata| {
        let size = if m.is_dir() { 0 } else { m.len() };
        let links = if m.is_dir() { 0 } else { m.nlink() };
        (m.mode(), m.uid(), m.gid(), size, links)
    };
    let open = |path: &String, options: OpenOptions| dir.open_with(path, &options);
    match call {
        Call::Read(path) => said(dir.read(path).map(|bytes| sum(&bytes))),
        Call::Write(path, n) => said(dir.write(path, text(*n))),
        Call::Append(path) => {
            said(open(path, OpenOptions::new().append(true)).and_then(|mut file| file.write(b"appended")))
        }
        Call::WriteAt(path, offset) => {
            let options = OpenOptions::new().read(true).write(true);
            said(open(path, options).and_then(|file| file.write_at(b"patch", *offset)))
        }
        Call::Exclusive(path, mode) => {
            let options = OpenOptions::new().write(true).create_new(true).mode(*mode);
            said(open(path, options).and_then(|mut file| file.write(b"x")))
        }
        Call::Truncate(path, size) => {
            said(open(path, OpenOptions::new().write(true)).and_then(|file| file.set_len(*size)))
        }
        Call::List(path) => said(dir.read_dir(path).map(|entries| {
            let entry = |entry: systx::DirEntry| {
                let kind = entry.file_type();
                (entry.file_name().to_owned(), kind.is_dir(), kind.is_symlink())
            };
            let mut all: Vec<_> = entries.map(entry).collect();
            all.sort();
            all
        })),
        Call::Stat(path) => said(dir.metadata(path).map(stat)),
        Call::Lstat(path) => said(dir.symlink_metadata(path).map(stat)),
        Call::Mkdir(path) => said(dir.create_dir(path)),
        Call::MkdirAll(path) => said(dir.create_dir_all(path)),
        Call::Rmdir(path) => said(dir.remove_dir(path)),
        Call::Unlink(path) => said(dir.remove_file(path)),
        Call::Rename(from, to) => said(dir.rename(from, to)),
        Call::Link(from, to) => said(dir.hard_link(from, to)),
        Call::Symlink(target, link) => said(dir.symlink(target, link)),
        Call::Readlink(path) => said(dir.read_link(path)),
        Call::Chmod(path, mode) => said(dir.set_mode(path, *mode)),
        Call::Chown(path, uid, gid) => said(dir.chown(path, *uid, *gid)),
    }
}

/// Makes the first contents, partly of another user.
fn begin_with(top: &Path, uid: u32) {
    fs::create_dir_all(top.join("dir/sub")).unwrap();
    fs::create_dir(top.join("sub")).unwrap();
    fs::write(top.join("a"), "a small file\n").unwrap();
    fs::write(top.join("large"), text(600_000)).unwrap();
    fs::write(top.join("dir/sub/c"), text(150_000)).unwrap();
    fs::hard_link(top.join("a"), top.join("dir/a")).unwrap();
    symlink("dir", top.join("link")).unwrap();
    symlink("../a", top.join("sub/a")).unwrap();
    symlink("nowhere", top.join("b")).unwrap();
    for name in ["", "a", "large", "dir", "dir/sub", "dir/sub/c"] {
        chown(top.join(name), Some(uid), Some(uid)).unwrap();
    }
    if uid != 0 {
        fs::set_permissions(top.join("sub"), PermissionsExt::from_mode(0o1777)).unwrap();
        fs::write(top.join("sub/b"), "root's, in a sticky directory").unwrap();
        fs::set_permissions(top.join("sub/b"), PermissionsExt::from_mode(0o666)).unwrap();
    }
}

/// Everything that another user can see of a tree, but times.
fn look(top: &Path) -> BTreeMap<PathBuf, String> {
    let mut lines = BTreeMap::new();
    let mut todo = vec![PathBuf::new()];
    while let Some(at) = todo.pop() {
        let path = top.join(&at);
        let m = fs::symlink_metadata(&path).unwrap();
        let mut line = format!("{:o} {}:{}", m.mode(), m.uid(), m.gid());
        if m.is_dir() {
            todo.extend(fs::read_dir(&path).unwrap().map(|entry| at.join(entry.unwrap().file_name())));
        } else {
            let _ = write!(line, " links {}", m.nlink());
        }
        if m.is_file() {
            let mut bytes = Vec::new();
            let mut file = fs::File::open(&path).unwrap();
            file.seek(SeekFrom::Start(0)).unwrap();
            file.read_to_end(&mut bytes).unwrap();
            let _ = write!(line, " {:?}", sum(&bytes));
        }
        if m.is_symlink() {
            let _ = write!(line, " -> {}", fs::read_link(&path).unwrap().display());
        }
        assert!(!m.file_type().is_fifo());
        lines.insert(at, line);
    }
    lines
}

pub fn as_root(dir: &Path) {
    agree(dir, 0);
}

pub fn as_a_user(dir: &Path) {
    agree(dir, USER);
}

fn agree(dir: &Path, uid: u32) {
    for kind in KINDS {
        let Some((_volume, tree)) = place(dir, kind) else { continue };
        for n in 0..rounds(6, 100) {
            let seed = systx_runner::first_seed() + n as u64;
            let (plain, within) = (tree.join(format!("plain{n}/top")), tree.join(format!("inside{n}/top")));
            for top in [&plain, &within] {
                fs::create_dir_all(top).unwrap();
                begin_with(top, uid);
                chown(top.parent().unwrap(), Some(uid), Some(uid)).unwrap();
            }
            let failed = std::thread::scope(|scope| {
                scope.spawn(|| as_user(uid, || play(&plain, &within, seed, uid))).join().unwrap()
            });
            if let Some(failed) = failed {
                panic!("{kind}, seed {seed}, user {uid}: {failed}");
            }
            let (found, expected) = (look(&within), look(&plain));
            assert_eq!(found, expected, "{kind}, seed {seed}, user {uid}");
        }
    }
}

/// Runs `work` with the rights of a user, on a thread of its own. (Saved ids stay, so that it can be root
/// again.)
pub fn as_user<T>(uid: u32, work: impl FnOnce() -> T) -> T {
    use rustix::fs::{Gid, Uid};
    use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
    if uid != 0 {
        set_thread_groups(&[Gid::from_raw(50)]).unwrap();
        let gid = Gid::from_raw(uid);
        set_thread_res_gid(gid, gid, Gid::ROOT).unwrap();
        set_thread_res_uid(Uid::from_raw(uid), Uid::from_raw(uid), Uid::ROOT).unwrap();
    }
    let done = work();
    if uid != 0 {
        set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT).unwrap();
        set_thread_res_gid(Gid::ROOT, Gid::ROOT, Gid::ROOT).unwrap();
    }
    done
}

/// `None`, or the first difference.
fn play(plain: &Path, within: &Path, seed: u64, uid: u32) -> Option<String> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let systx = systx();
    let uids = if uid == 0 { vec![0, 7, USER] } else { vec![uid, 50, 7] };
    let mut played = Vec::new();
    // Several transactions behind each other: what one has committed is what the next one begins with.
    for _ in 0..3 {
        let tx = systx.begin(&loosely()).unwrap();
        let dir = tx.open_dir(within).unwrap();
        for _ in 0..STEPS / 3 {
            let call = call(&mut rng, &uids);
            let (expected, found) = (plainly(plain, &call), inside(&dir, &call));
            played.push(format!("{call:?}: {expected}"));
            if found != expected {
                let last = played[played.len().saturating_sub(12)..].join("\n  ");
                return Some(format!("found {found} after\n  {last}"));
            }
        }
        drop(dir);
        if let Err(error) = tx.commit() {
            return Some(format!("the commit: {error}"));
        }
    }
    None
}
