//! Scratch directories, and a transaction over one of them.

pub mod acts;

use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use systx_engine::domain::{Bounds, Domain, Location};
use systx_engine::outcome::{Durability, Options};
use systx_engine::transaction::{Access, Attr, Caller, Node, Transaction};
use systx_os::{Errno, FileType, Linux, Open, Os};

pub type Fd = <Linux as Os>::Fd;

/// A directory of our own, removed when dropped.
pub struct Scratch(pub PathBuf);

impl Scratch {
    /// Below `base`; `None` when it can't be written to here.
    pub fn new(base: PathBuf) -> Option<Scratch> {
        let name = format!("systx-verbs-{}-{:016x}", std::process::id(), Linux::new().random());
        let path = base.join(name);
        std::fs::create_dir(&path).ok()?;
        Some(Scratch(path))
    }

    pub fn open(&self, name: &str) -> Fd {
        let path = self.0.join(name);
        if !path.exists() {
            std::fs::create_dir(&path).unwrap();
        }
        Linux::new().open_path(&path, Open::Directory).unwrap()
    }

    /// A directory with the same contents as another one.
    pub fn copy_of(&self, dir: &Fd) -> Fd {
        let copy = format!("copy-{:016x}", Linux::new().random());
        let fd = self.open(&copy);
        let from = format!("/proc/{}/fd/{}/.", std::process::id(), dir.as_raw_fd());
        let done = std::process::Command::new("cp").arg("-a").arg(from).arg(self.0.join(&copy)).status();
        assert!(done.unwrap().success());
        fd
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Where tests run: the temporary directory, and a tmpfs if there is one.
pub fn bases() -> Vec<PathBuf> {
    let shm = PathBuf::from("/dev/shm");
    std::iter::once(std::env::temp_dir()).chain(shm.is_dir().then_some(shm)).collect()
}

/// A domain whose mount is the directory `root`.
pub fn domain(scratch: &Scratch, root: &str) -> Arc<Domain<Linux>> {
    let os = Linux::new();
    let root = Arc::new(scratch.open(root));
    Domain::open(
        &os,
        Location { root: root.clone(), bounds: Bounds::FileSystem, parent: &root, name: b".area" },
    )
    .unwrap()
}

pub fn begin(domain: &Arc<Domain<Linux>>) -> Transaction<Linux> {
    Transaction::begin(
        Linux::new(),
        vec![domain.clone()],
        Options { durability: Durability::None, command: "test".into(), ..Options::default() },
    )
    .unwrap()
}

/// Whoever runs the test.
pub fn me() -> Caller {
    let own = std::fs::metadata("/proc/self").unwrap();
    Caller { uid: own.uid(), gid: own.gid(), umask: 0o022 }
}

/// Walks a path in a transaction, following nothing.
pub fn walk(t: &mut Transaction<Linux>, path: &str) -> Result<(Node, Attr), Errno> {
    let mut at = t.root(0);
    let mut attr = os(t.getattr(at))?;
    for name in path.split('/').filter(|n| !n.is_empty()) {
        (at, attr) = os(t.lookup(at, name.as_bytes()))?.ok_or(Errno::NOENT)?;
    }
    Ok((at, attr))
}

/// Directory and name of a path.
pub fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

pub fn os<T>(verb: systx_engine::outcome::Verb<T>) -> Result<T, Errno> {
    match verb {
        Ok(t) => Ok(t),
        Err(systx_engine::outcome::VerbError::Os(e)) => Err(e),
        Err(systx_engine::outcome::VerbError::Doomed(c)) => panic!("doomed: {c}"),
    }
}

/// One object, as far as it is compared.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Object {
    pub kind: FileType,
    pub mode: u32,
    pub owner: (u32, u32),
    pub nlink: u32,
    pub rdev: u64,
    pub content: Vec<u8>,
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Where it was set by the program.
    pub mtime: Option<i64>,
}

pub type Tree = std::collections::BTreeMap<String, Object>;

/// Times that tests set are before 1980: anything later was made by an operation.
fn set_time(sec: i64) -> Option<i64> {
    (sec < 300_000_000).then_some(sec)
}

/// The tree as the transaction shows it.
pub fn seen(t: &mut Transaction<Linux>) -> Tree {
    let mut tree = Tree::new();
    let root = t.root(0);
    see(t, root, String::new(), &mut tree);
    tree
}

fn see(t: &mut Transaction<Linux>, node: Node, path: String, tree: &mut Tree) {
    let a = t.getattr(node).unwrap();
    let kind = FileType::from_mode(a.mode).unwrap();
    let content = match kind {
        FileType::File => {
            t.open(node, Access::Read, false).unwrap();
            let mut buf = vec![0; a.size as usize + 10];
            let n = t.read_at(node, &mut buf, 0).unwrap();
            assert_eq!(n as u64, a.size, "size of {path}");
            buf.truncate(n);
            t.close(node);
            buf
        }
        FileType::Symlink => t.readlink(node).unwrap(),
        _ => Vec::new(),
    };
    let mut names = t.listxattr(node).unwrap();
    names.sort();
    let xattrs = names.into_iter().map(|n| (n.clone(), t.getxattr(node, &n).unwrap())).collect();
    if kind == FileType::Directory {
        let entries = t.readdir(node).unwrap();
        for e in entries.iter() {
            let name = String::from_utf8(e.name.to_vec()).unwrap();
            let (child, attr) = t.lookup(node, &e.name).unwrap().expect("listed");
            assert_eq!((attr.ino, FileType::from_mode(attr.mode)), (e.ino, Some(e.kind)), "{path}/{name}");
            see(t, child, format!("{path}/{name}"), tree);
        }
    }
    let (mode, owner) = (a.mode & 0o7777, (a.uid, a.gid));
    let object = Object {
        kind,
        mode,
        owner,
        nlink: a.nlink,
        rdev: a.rdev,
        content,
        xattrs,
        mtime: set_time(a.mtime.sec),
    };
    tree.insert(path, object);
}

/// The tree as it is.
pub fn real(dir: &Fd) -> Tree {
    let mut tree = Tree::new();
    look(dir, dir, None, String::new(), &mut tree);
    tree
}

fn look(fd: &Fd, parent: &Fd, name: Option<&[u8]>, path: String, tree: &mut Tree) {
    let os = Linux::new();
    let s = os.stat(fd).unwrap();
    let content = match s.kind() {
        FileType::File => {
            let file = os.open(parent, name.unwrap(), Open::Read).unwrap();
            let mut buf = vec![0; s.size as usize];
            assert_eq!(os.pread(&file, &mut buf, 0), Ok(buf.len()));
            buf
        }
        FileType::Symlink => os.read_link(fd).unwrap(),
        _ => Vec::new(),
    };
    let mut names = os.listxattr(fd).unwrap();
    names.sort();
    let xattrs = names.into_iter().map(|n| (n.clone(), os.getxattr(fd, &n).unwrap())).collect();
    if s.kind() == FileType::Directory {
        for e in os.read_dir(fd).unwrap() {
            if path.is_empty() && e.name == b".area" {
                continue;
            }
            let child = os.open(fd, &e.name, Open::Path).unwrap();
            let name = String::from_utf8(e.name.clone()).unwrap();
            look(&child, fd, Some(&e.name), format!("{path}/{name}"), tree);
        }
    }
    // The area is a directory in the root, and its making has changed the root's time.
    let root = path.is_empty();
    let area = root && os.stat_at(fd, b".area").is_ok() && s.nlink > 1;
    let object = Object {
        kind: s.kind(),
        mode: s.perm(),
        owner: (s.uid, s.gid),
        nlink: s.nlink - u32::from(area),
        rdev: s.rdev,
        content,
        xattrs,
        mtime: set_time(s.mtime.sec),
    };
    tree.insert(path, object);
}

/// What differs, readably.
pub fn assert_same(a: &Tree, b: &Tree, what: &str) {
    for path in a.keys().chain(b.keys()) {
        let (a, b) = (a.get(path), b.get(path));
        if a != b {
            let brief = |o: Option<&Object>| {
                o.map(|o| {
                    let mut o = o.clone();
                    let n = o.content.len();
                    o.content = crc32c::crc32c(&o.content).to_le_bytes().to_vec();
                    format!("{o:?} ({n} bytes)")
                })
            };
            panic!("{what}: {path:?}\n  plain {:?}\n  ours  {:?}", brief(a), brief(b));
        }
    }
}
