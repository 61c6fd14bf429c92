//! Building a tree from a literal, and a tree as a value that can be compared.
//!
//! Guarantees: two directories with the same names, types, permissions, owners, contents, attributes, link groups and
//! symbolic links have equal [`Tree`]s, whether they are simulated or real. Times and numbers are not part of it.

use std::collections::BTreeMap;

use systx_os::{FileType, Open, Os, Result};

use super::journal::Image;
use super::{FsId, Machine, ProcId, SimOs};
use crate::machine::meta::Id;

/// One object of a literal tree; parents come before what is in them.
#[derive(Clone, Debug)]
pub enum Plant<'a> {
    /// A directory of mode 0755.
    Dir,
    /// A file of mode 0644.
    File(&'a [u8]),
    /// A file with a mode.
    FileMode(&'a [u8], u32),
    /// A symbolic link.
    Symlink(&'a str),
    /// Another name of a file that is there already (a path).
    Link(&'a str),
    /// A FIFO of mode 0644.
    Fifo,
}

/// How one object looks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Look {
    /// Type.
    pub kind: FileType,
    /// Permission bits.
    pub mode: u32,
    /// Owner and group.
    pub owner: (u32, u32),
    /// Contents of a file, or target of a symbolic link.
    pub content: Vec<u8>,
    /// Size of a file.
    pub size: u64,
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// First path with the same inode, if it is not this one.
    pub same_as: Option<String>,
}

/// Paths (lossy where they are not UTF-8) and how the objects there look.
pub type Tree = BTreeMap<String, Look>;

/// Contents longer than this are not compared; sizes are.
const CONTENT_MAX: u64 = 4 << 20;

/// The tree below an open directory, through the calls of any `Os`; opens files for reading, which breaks leases.
pub fn dump<O: Os>(os: &O, dir: &O::Fd) -> Result<Tree> {
    let mut tree = Tree::new();
    let mut seen = BTreeMap::new();
    dump_below(os, dir, "", &mut seen, &mut tree)?;
    Ok(tree)
}

fn dump_below<O: Os>(
    os: &O,
    dir: &O::Fd,
    prefix: &str,
    seen: &mut BTreeMap<(u64, u64), String>,
    tree: &mut Tree,
) -> Result<()> {
    let mut entries = os.read_dir(dir)?;
    entries.sort();
    for entry in entries {
        let path = format!("{prefix}{}", String::from_utf8_lossy(&entry.name));
        let fd = os.open(dir, &entry.name, Open::Path)?;
        let stat = os.stat(&fd)?;
        let mut content = Vec::new();
        match stat.kind() {
            FileType::File => {
                content = vec![0; stat.size.min(CONTENT_MAX) as usize];
                let n = os.pread(&os.reopen(&fd, Open::Read)?, &mut content, 0)?;
                content.truncate(n);
            }
            FileType::Symlink => content = os.read_link(&fd)?,
            _ => {}
        }
        let mut xattrs = BTreeMap::new();
        for name in os.listxattr(&fd)? {
            let value = os.getxattr(&fd, &name)?;
            xattrs.insert(name, value);
        }
        let first = seen.entry((stat.dev, stat.ino)).or_insert_with(|| path.clone());
        let look = Look {
            kind: stat.kind(),
            mode: stat.perm(),
            owner: (stat.uid, stat.gid),
            content,
            size: if stat.kind() == FileType::Directory { 0 } else { stat.size },
            xattrs,
            same_as: (*first != path).then(|| first.clone()),
        };
        tree.insert(path.clone(), look);
        if stat.kind() == FileType::Directory {
            dump_below(os, &os.reopen(&fd, Open::Directory)?, &format!("{path}/"), seen, tree)?;
        }
    }
    Ok(())
}

impl Machine {
    fn world(&self) -> SimOs {
        SimOs { machine: self.clone(), process: ProcId(0), quiet: true }
    }

    /// Makes the objects of a literal on file system `fs`; no points. What is there already is an error.
    pub fn plant(&self, fs: usize, objects: &[(&str, Plant<'_>)]) -> Result<()> {
        let os = self.world();
        for (path, object) in objects {
            let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
            let dir = os.open_path(fs, above, Open::Directory)?;
            let name = name.as_bytes();
            match object {
                Plant::Dir => os.mkdir(&dir, name, 0o755)?,
                Plant::File(bytes) => drop(os.pwrite(&os.create(&dir, name, 0o644)?, bytes, 0)?),
                Plant::FileMode(bytes, mode) => drop(os.pwrite(&os.create(&dir, name, *mode)?, bytes, 0)?),
                Plant::Symlink(target) => os.symlink(&dir, name, target.as_bytes())?,
                Plant::Link(target) => os.link(&os.open_path(fs, target, Open::Path)?, &dir, name)?,
                Plant::Fifo => os.mknod(&dir, name, FileType::Fifo.mode_bits() | 0o644, 0)?,
            }
        }
        Ok(())
    }

    /// Acts for an outsider: writes over the start of a file (`EAGAIN` while a lease keeps it from being
    /// opened).
    pub fn overwrite(&self, fs: usize, path: &str, offset: u64, bytes: &[u8]) -> Result<()> {
        let os = self.world();
        os.pwrite(&os.open_path(fs, path, Open::Write)?, bytes, offset).map(|_| ())
    }

    /// Acts for an outsider: removes an object, and everything below it.
    pub fn remove(&self, fs: usize, path: &str) -> Result<()> {
        let mut inner = self.lock();
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        let dir = inner.state.resolve(FsId(fs), above)?;
        let mut todo = vec![(dir, name.as_bytes().to_vec())];
        while let Some((dir, name)) = todo.pop() {
            let id = inner.state.lookup(dir, &name)?;
            let below: Vec<Vec<u8>> = inner.state.inode(id).entries.keys().cloned().collect();
            if below.is_empty() {
                let is_dir = inner.state.inode(id).is_dir();
                inner.state.remove(dir, &name, is_dir)?;
            } else {
                todo.push((dir, name));
                todo.extend(below.into_iter().map(|name| (id, name)));
            }
        }
        Ok(())
    }

    /// The tree of file system `fs`; no points, no leases broken, mounts not crossed.
    pub fn tree(&self, fs: usize) -> Tree {
        self.tree_of(fs, |_| true)
    }

    /// Like [`Machine::tree`], of the paths that are `wanted` only: other directories are not looked into
    /// either.
    pub fn tree_of(&self, fs: usize, wanted: impl Fn(&str) -> bool) -> Tree {
        let mut inner = self.lock();
        let mut walked = Vec::new();
        let mut todo = vec![(inner.state.systems[fs].root, String::new())];
        // Depth first with names in order, as `dump` goes: the first name of an inode is the same in both.
        while let Some((id, path)) = todo.pop() {
            for (name, below) in inner.state.inode(id).entries.iter().rev() {
                let slash = if path.is_empty() { "" } else { "/" };
                let path = format!("{path}{slash}{}", String::from_utf8_lossy(name));
                if wanted(&path) {
                    todo.push((*below, path));
                }
            }
            if !path.is_empty() {
                walked.push((id, path));
            }
        }
        walked.iter().for_each(|(id, _)| inner.state.fold(*id));
        let state = &inner.state;
        let mut tree = Tree::new();
        let mut seen: BTreeMap<Id, String> = BTreeMap::new();
        for (id, path) in walked {
            let inode = state.inode(id);
            let meta = &inode.meta;
            let mut content = meta.target.clone();
            if meta.kind() == FileType::File {
                content = vec![0; meta.size.min(CONTENT_MAX) as usize];
                inode.data.read(0, &mut content);
            }
            let first = seen.entry(id).or_insert_with(|| path.clone());
            let look = Look {
                kind: meta.kind(),
                mode: meta.mode & 0o7777,
                owner: (meta.uid, meta.gid),
                content,
                size: meta.size,
                xattrs: meta.xattrs.clone(),
                same_as: (*first != path).then(|| first.clone()),
            };
            tree.insert(path, look);
        }
        tree
    }

    /// How the object at `path` looks; `None` when there is none.
    pub fn look(&self, fs: usize, path: &str) -> Option<Look> {
        let other_names = {
            let inner = self.lock();
            let meta = &inner.state.inode(inner.state.resolve(FsId(fs), path).ok()?).meta;
            meta.kind() != FileType::Directory && meta.nlink > 1
        };
        // The tree is large: an area has its log, and a table.
        let leads_there =
            |to: &str| path.strip_prefix(to).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        self.tree_of(fs, |to| other_names || leads_there(to)).remove(path)
    }

    /// Checks the machine as fsck would, and that the journal leads to what is in memory; `Err` names what is wrong.
    pub fn check(&self) -> core::result::Result<(), String> {
        let inner = self.lock();
        let state = &inner.state;
        let mut names: BTreeMap<Id, u32> = BTreeMap::new();
        let mut below: BTreeMap<Id, u32> = BTreeMap::new();
        for (id, inode) in &state.inodes {
            for (name, to) in &inode.entries {
                let name = String::from_utf8_lossy(name);
                let child = state.inodes.get(to).filter(|c| !c.freed && c.fs == inode.fs);
                let child = child.ok_or_else(|| format!("{name} in {id} leads nowhere"))?;
                *names.entry(*to).or_default() += 1;
                if child.is_dir() {
                    *below.entry(*id).or_default() += 1;
                    if child.parent != *id || child.dead {
                        return Err(format!("directory {name} does not know that it is in {id}"));
                    }
                }
            }
        }
        let mut numbers = BTreeMap::new();
        for (id, inode) in state.inodes.iter().filter(|(_, i)| !i.freed) {
            if let Some(other) = numbers.insert((inode.fs, inode.meta.ino), *id) {
                return Err(format!("inode number {} is {other} and {id}", inode.meta.ino));
            }
            let root = state.systems[inode.fs.0].root == *id;
            let named = names.get(id).copied().unwrap_or(0);
            let open = state.files.values().any(|f| f.id == *id);
            if named == 0 && !root && !open {
                return Err(format!("inode {id} has neither name nor descriptor"));
            }
            let btrfs = state.spec(inode.fs).info.kind == systx_os::FsKind::Btrfs;
            let expected = match (inode.is_dir(), btrfs) {
                (true, _) if named == 0 && !root => 0,
                (true, true) => 1,
                (true, false) => 2 + below.get(id).copied().unwrap_or(0),
                (false, _) => named,
            };
            if inode.meta.nlink != expected {
                return Err(format!("inode {id} has {} links, not {expected}", inode.meta.nlink));
            }
        }
        (0..state.systems.len()).try_for_each(|fs| state.check_journal(FsId(fs)))
    }
}

impl super::state::State {
    fn check_journal(&self, fs: FsId) -> core::result::Result<(), String> {
        let system = &self.systems[fs.0];
        if system.forgets() {
            return Ok(());
        }
        let mut image: Image = system.journal.base.clone();
        system.journal.ops.iter().for_each(|op| image.apply(op));
        for (id, inode) in self.inodes.iter().filter(|(_, i)| i.fs == fs && !i.freed) {
            let meta = image.metas.remove(id);
            if meta.as_ref() != Some(&inode.meta) {
                return Err(format!("inode {id} is {:?}, its journal says {meta:?}", inode.meta));
            }
            let entries = image.dirs.remove(id).unwrap_or_default();
            if *entries != inode.entries {
                return Err(format!(
                    "directory {id} holds {:?}, its journal says {entries:?}",
                    inode.entries
                ));
            }
        }
        match image.metas.keys().next() {
            Some(id) => Err(format!("inode {id} is in the journal only")),
            None => Ok(()),
        }
    }
}
