//! Random verbs of a transaction over a small tree with files, links, directories in directories, and empty ones.

use crate::outcome::{Verb, VerbError};
use crate::transaction::{Access, Caller, Node, SetAttr, Transaction};
use systx_os::{Errno, FileType, Rename, SetXattr};
use systx_sim::machine::{Machine, Plant, SimOs};

const ME: Caller = Caller { uid: 0, gid: 0, umask: 0o022 };

/// Paths that are used; not all of them are there at first.
pub(super) const PATHS: [&str; 22] = [
    "t", "n", "a", "a/f", "a/g", "a/n", "a/s", "a/s/x", "a/s/y", "a/s/n", "b", "b/h", "b/k", "b/e", "b/e/n",
    "b/n", "c", "c/l", "c/m", "c/n", "c/p", "d",
];

pub(super) fn plant(machine: &Machine, mine: &[u8]) {
    let long: Vec<u8> = (0..1700u32).map(|n| (n / 7) as u8).collect();
    let objects = [
        ("t", Plant::File(b"at the top")),
        ("a", Plant::Dir),
        ("a/f", Plant::File(&long)),
        ("a/g", Plant::File(b"short")),
        ("a/s", Plant::Dir),
        ("a/s/x", Plant::File(b"x")),
        ("a/s/y", Plant::File(&long[..600])),
        ("b", Plant::Dir),
        ("b/h", Plant::File(b"h")),
        ("b/k", Plant::Link("a/g")),
        ("b/e", Plant::Dir),
        ("c", Plant::Dir),
        ("c/l", Plant::Symlink("nowhere")),
        ("c/m", Plant::File(&long[..1024])),
        ("c/p", Plant::Fifo),
        ("d", Plant::Dir),
        // The outsider's.
        ("o", Plant::Dir),
        ("o/mine", Plant::File(mine)),
        ("o/dir", Plant::Dir),
        ("o/dir/inside", Plant::File(mine)),
    ];
    machine.plant(0, &objects).expect("planting");
}

#[derive(Clone, Debug)]
pub(super) enum Step {
    Create(String, usize),
    Write(String, u64, usize),
    Truncate(String, u64),
    Mkdir(String),
    Symlink(String),
    Link(String, String),
    Unlink(String),
    Rmdir(String),
    RemoveTree(String),
    Rename(String, String, Rename),
    Mode(String, u32),
    Owner(String, u32),
    Xattr(String, bool),
    List(String),
}

fn path(rng: &mut fastrand::Rng) -> String {
    PATHS[rng.usize(0..PATHS.len())].to_owned()
}

pub(super) fn step(rng: &mut fastrand::Rng) -> Step {
    let (one, two) = (path(rng), path(rng));
    match rng.u8(0..22) {
        0..=2 => Step::Create(one, [0, 20, 700, 70_000][rng.usize(0..4)]),
        3..=5 => Step::Write(one, rng.u64(0..1500), rng.usize(1..900)),
        6 => Step::Truncate(one, rng.u64(0..1200)),
        7 => Step::Mkdir(one),
        8 => Step::Symlink(one),
        9 => Step::Link(one, two),
        10 => Step::Unlink(one),
        11 => Step::Rmdir(one),
        12 => Step::RemoveTree(one),
        13..=15 => Step::Rename(one, two, Rename::Replace),
        16 => Step::Rename(one, two, [Rename::NoReplace, Rename::Exchange][usize::from(rng.bool())]),
        17 => Step::Mode(one, 0o600 | rng.u32(0..8)),
        18 => Step::Owner(one, rng.u32(1..9)),
        19 | 20 => Step::Xattr(one, rng.u8(0..4) > 0),
        _ => Step::List(one),
    }
}

type T = Transaction<SimOs>;

/// The directory of a path and its last name.
fn place<'p>(t: &mut T, path: &'p str) -> Verb<(Node, &'p [u8])> {
    let Some((above, name)) = path.rsplit_once('/') else { return Ok((t.root(0), path.as_bytes())) };
    let (dir, kind) = find(t, above)?;
    match kind {
        FileType::Directory => Ok((dir, name.as_bytes())),
        _ => Err(Errno::NOTDIR.into()),
    }
}

fn find(t: &mut T, path: &str) -> Verb<(Node, FileType)> {
    let (dir, name) = place(t, path)?;
    let (node, attr) = t.lookup(dir, name)?.ok_or(Errno::NOENT)?;
    Ok((node, FileType::from_mode(attr.mode).ok_or(Errno::INVAL)?))
}

fn write(t: &mut T, file: Node, at: u64, bytes: &[u8]) -> Verb<()> {
    t.open(file, Access::Write, false)?;
    let written = t.write_at(file, bytes, at);
    t.close(file);
    written.map(drop)
}

fn file(t: &mut T, path: &str) -> Verb<Node> {
    match find(t, path)? {
        (node, FileType::File) => Ok(node),
        _ => Err(Errno::ISDIR.into()),
    }
}

fn remove_tree(t: &mut T, dir: Node, name: &[u8], depth: u32) -> Verb<()> {
    let (node, attr) = t.lookup(dir, name)?.ok_or(Errno::NOENT)?;
    if FileType::from_mode(attr.mode) != Some(FileType::Directory) {
        return t.unlink(dir, name);
    }
    if depth == 0 {
        return Err(Errno::NOTEMPTY.into());
    }
    let names: Vec<_> = t.readdir(node)?.iter().map(|entry| entry.name.clone()).collect();
    for below in names {
        remove_tree(t, node, &below, depth - 1)?;
    }
    t.rmdir(dir, name)
}

fn take_one(t: &mut T, step: &Step) -> Verb<()> {
    match step {
        Step::Create(p, len) => {
            let (dir, name) = place(t, p)?;
            let (file, _) = t.create(dir, name, 0o644, ME)?;
            write(t, file, 0, &vec![b'C'; *len])
        }
        Step::Write(p, at, len) => {
            let file = file(t, p)?;
            write(t, file, *at, &vec![b'W'; *len])
        }
        Step::Truncate(p, size) => {
            let file = file(t, p)?;
            t.setattr(file, &SetAttr { size: Some(*size), ..SetAttr::default() }).map(drop)
        }
        Step::Mkdir(p) => {
            let (dir, name) = place(t, p)?;
            t.mkdir(dir, name, 0o755, ME).map(drop)
        }
        Step::Symlink(p) => {
            let (dir, name) = place(t, p)?;
            t.symlink(dir, name, b"somewhere", ME).map(drop)
        }
        Step::Link(p, q) => {
            let ((node, kind), (dir, name)) = (find(t, p)?, place(t, q)?);
            if kind == FileType::Directory {
                return Err(Errno::PERM.into());
            }
            t.link(node, dir, name).map(drop)
        }
        Step::Unlink(p) => {
            let (dir, name) = place(t, p)?;
            t.unlink(dir, name)
        }
        Step::Rmdir(p) => {
            let (dir, name) = place(t, p)?;
            t.rmdir(dir, name)
        }
        Step::RemoveTree(p) => {
            let (dir, name) = place(t, p)?;
            remove_tree(t, dir, name, 3)
        }
        Step::Rename(p, q, how) => {
            let (from, to) = (place(t, p)?, place(t, q)?);
            t.rename(from.0, from.1, to.0, to.1, *how)
        }
        Step::Mode(p, mode) => {
            let (node, kind) = find(t, p)?;
            if kind == FileType::Symlink {
                return Err(Errno::OPNOTSUPP.into());
            }
            let mode = Some(mode | (u32::from(kind == FileType::Directory) * 0o100));
            t.setattr(node, &SetAttr { mode, ..SetAttr::default() }).map(drop)
        }
        Step::Owner(p, id) => {
            let (node, _) = find(t, p)?;
            t.setattr(node, &SetAttr { uid: Some(*id), gid: Some(*id), ..SetAttr::default() }).map(drop)
        }
        Step::Xattr(p, set) => {
            let (node, kind) = find(t, p)?;
            match (kind, set) {
                (FileType::File | FileType::Directory, true) => {
                    t.setxattr(node, b"user.k", b"ours", SetXattr::Any)
                }
                (FileType::File | FileType::Directory, false) => t.removexattr(node, b"user.k"),
                _ => Err(Errno::PERM.into()),
            }
        }
        Step::List(p) => {
            let (node, _) = find(t, p)?;
            t.readdir(node).map(drop)
        }
    }
}

/// Takes every step that can be taken; an error number is an answer like any other.
pub(super) fn take(t: &mut T, steps: &[Step]) -> Verb<()> {
    for step in steps {
        match take_one(t, step) {
            Ok(()) | Err(VerbError::Os(_)) => {}
            Err(doomed) => return Err(doomed),
        }
    }
    Ok(())
}
