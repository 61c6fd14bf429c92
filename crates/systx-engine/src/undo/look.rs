//! Checks that everything that a commit changed is as that commit left it.
//!
//! Guarantees: every object that is looked at becomes a fact of the looking transaction, so a change before
//! its commit is a conflict. Does not: look at objects that the commit did not change: other names in its
//! directories, the contents of a directory that it renamed.

use super::again::Again;
use super::image::{Image, Name, State, Thing};
use crate::outcome::{Verb, VerbError};
use crate::transaction::Transaction;
use crate::types::Node;
use crate::undo::keep::digest_bytes;
use crate::undo::keep::state_after;
use crate::workset::data::CHUNK_BYTES;
use crate::workset::node::Ix;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use systx_os::{Dirent, Errno, FileType, Handle, Open, Os};
use xxhash_rust::xxh3::Xxh3;

const REPLACED: &str = "it has been replaced";

/// Something that stands in the way of an undo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Differs {
    /// Where, from the root of the mount.
    pub path: Vec<u8>,
    /// How, as a fragment.
    pub what: &'static str,
}

/// The findings.
#[derive(Debug, Default)]
pub struct Looked {
    /// All that differs. Only if nothing does an image can be put back.
    pub differs: Vec<Differs>,
    /// The node of each thing, if it is there.
    pub(super) nodes: Vec<Option<Node>>,
    /// Directory and last name of each name of `after`.
    pub(super) places: Vec<Option<(Node, Vec<u8>)>>,
    told: HashSet<Vec<u8>>,
}

impl Looked {
    pub(super) fn differs(&mut self, path: &[u8], what: &'static str) {
        // One reason for a path is enough.
        if self.told.insert(path.to_vec()) {
            self.differs.push(Differs { path: path.to_vec(), what });
        }
    }
}

/// Directory and last name of a path.
pub(super) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}

/// The committed tree by path, as far as it was walked.
pub(super) struct Walked {
    mount: usize,
    found: HashMap<Vec<u8>, Option<Node>>,
}

impl Walked {
    pub fn new(mount: usize) -> Walked {
        Walked { mount, found: HashMap::new() }
    }
}

impl<O: Os> Transaction<O> {
    /// Looks whether everything that the transaction of an image changed on a mount is as it left it.
    ///
    /// # Errors
    /// Of the file system; `Doomed` as of any read.
    pub fn look_at_image(&mut self, mount: usize, image: &Image) -> Verb<Looked> {
        self.ours()?;
        let mut looked = Looked { nodes: vec![None; image.things.len()], ..Looked::default() };
        let mut walked = Walked::new(mount);
        for name in &image.after {
            let place = look_at_name(self, image, name, &mut walked, &mut looked)?;
            looked.places.push(place);
        }
        let again = Again::on(&self.workset.mounts()[mount]);
        find_the_rest(self, mount, image, &again, (&mut walked, &mut looked))?;
        for dir in &image.dirs {
            let Some(now) = walk(self, &dir.path, &mut walked)?.map(|node| self.workset.ix(node)) else {
                continue;
            };
            if self.workset.object(now).dir.is_some() && !is_the_same(self, now, Some(dir.handle), &again)? {
                looked.differs(&dir.path, REPLACED);
            }
        }
        let mut firsts: HashMap<u32, &[u8]> = HashMap::new();
        for name in image.after.iter().chain(&image.before) {
            firsts.entry(name.thing).or_insert(&name.path);
        }
        for (n, thing) in image.things.iter().enumerate() {
            let (Some(node), Some(after)) = (looked.nodes[n], &thing.after) else { continue };
            let path = firsts.get(&(n as u32)).copied().unwrap_or_default();
            let ix = self.workset.ix(node);
            if thing.is_known_by_identity() && !is_the_same(self, ix, thing.handle, &again)? {
                looked.differs(path, REPLACED);
            } else if let Some(what) = how_it_differs(self, ix, thing, after)? {
                looked.differs(path, what);
            }
        }
        look_into_new_directories(self, image, &mut looked)?;
        Ok(looked)
    }
}

fn look_at_name<O: Os>(
    t: &mut Transaction<O>,
    image: &Image,
    name: &Name,
    walked: &mut Walked,
    looked: &mut Looked,
) -> Verb<Option<(Node, Vec<u8>)>> {
    let node = walk(t, &name.path, walked)?;
    let place = if name.path.is_empty() {
        None
    } else {
        let (dir, last) = split(&name.path);
        walk(t, dir, walked)?.map(|dir| (dir, last.to_vec()))
    };
    let known = &mut looked.nodes[name.thing as usize];
    match (node, *known) {
        (None, _) => looked.differs(&name.path, "it is gone"),
        (Some(node), None) if t.workset.object(t.workset.ix(node)).kind == image.thing(name).kind => {
            *known = Some(node);
        }
        (Some(node), Some(known)) if node == known => {}
        (Some(_), None) => looked.differs(&name.path, "it is of another type"),
        (Some(_), Some(_)) => looked.differs(&name.path, "it is another file than its other name"),
    }
    Ok(place)
}

/// Finds files of which only names went, by a name that they still have.
fn find_the_rest<O: Os>(
    t: &mut Transaction<O>,
    mount: usize,
    image: &Image,
    again: &Again<O>,
    (walked, looked): (&mut Walked, &mut Looked),
) -> Verb<()> {
    let mut missing: BTreeMap<u32, &[u8]> = BTreeMap::new();
    let mut inodes: HashMap<u64, Vec<(u32, Handle)>> = HashMap::new();
    let named: HashSet<u32> = image.after.iter().map(|name| name.thing).collect();
    for name in &image.before {
        let thing = image.thing(name);
        if looked.nodes[name.thing as usize].is_some() || !thing.stays() || named.contains(&name.thing) {
            continue;
        }
        for path in &thing.known {
            let Some(node) = walk(t, path, walked)? else { continue };
            if is_the_same(t, t.workset.ix(node), thing.handle, again)? {
                looked.nodes[name.thing as usize] = Some(node);
                break;
            }
        }
        if looked.nodes[name.thing as usize].is_none() {
            missing.insert(name.thing, &name.path);
            let all =
                thing.handle.map(|handle| again.all(thing.ino, handle)).transpose()?.unwrap_or_default();
            all.into_iter()
                .for_each(|(ino, handle)| inodes.entry(ino).or_default().push((name.thing, handle)));
        }
    }
    let mut found = BTreeMap::new();
    if !missing.is_empty() {
        let os = t.workset.mounts()[mount].os.clone();
        search(t, mount, |dir, entry, path| {
            if let Some(known) = inodes.get(&entry.ino) {
                let now = os.handle_at(dir, &entry.name);
                let same = known.iter().filter(|(_, handle)| now == Ok(*handle));
                found.extend(same.map(|(thing, _)| (*thing, path.to_vec())));
            }
            found.len() < missing.len()
        })?;
    }
    for (thing, path) in missing {
        let node = found.get(&thing).map(|path| walk(t, path, walked)).transpose()?.flatten();
        let handle = image.things[thing as usize].handle;
        match node {
            Some(node) if is_the_same(t, t.workset.ix(node), handle, again)? => {
                looked.nodes[thing as usize] = Some(node);
            }
            _ => looked.differs(path, "the other names of this file are gone"),
        }
    }
    Ok(())
}

/// Shows everything on a mount but directories, until it says no. No facts: what is of interest is looked at again.
fn search<O: Os>(
    t: &mut Transaction<O>,
    mount: usize,
    mut show: impl FnMut(&O::Fd, &Dirent, &[u8]) -> bool,
) -> Verb<()> {
    let domain = t.workset.mounts()[mount].clone();
    let os = domain.os.clone();
    let mut rest: VecDeque<Vec<u8>> = VecDeque::from([Vec::new()]);
    while let Some(path) = rest.pop_front() {
        let mut dir = Some(os.reopen(&domain.area.root, Open::Directory)?);
        for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            // One that went meanwhile, is another mount, or is not ours to look into, is passed over.
            dir = dir.and_then(|dir| os.open(&dir, name, Open::Directory).ok());
        }
        let dir = dir.filter(|dir| !os.handle(dir).is_ok_and(|handle| domain.is_area(&handle)));
        let Some(dir) = dir else { continue };
        for entry in os.read_dir(&dir)? {
            let at = crate::paths::join(&path, &entry.name);
            match entry.kind {
                FileType::Directory => rest.push_back(at),
                _ if show(&dir, &entry, &at) => {}
                _ => return Ok(()),
            }
        }
    }
    Ok(())
}

/// Returns true if an object is what it was, as far as that is known, or was made again for it.
fn is_the_same<O: Os>(t: &Transaction<O>, ix: Ix, then: Option<Handle>, again: &Again<O>) -> Verb<bool> {
    let now = t.workset.object(ix).lower.as_ref().map(|lower| lower.handle);
    let Some((now, then)) = now.zip(then) else { return Ok(true) };
    Ok(again.is(now, then)?)
}

/// The first way in which an object differs from what was left.
fn how_it_differs<O: Os>(
    t: &mut Transaction<O>,
    ix: Ix,
    thing: &Thing,
    left: &State,
) -> Verb<Option<&'static str>> {
    let now = state_after(t, ix)?;
    let timed = matches!(thing.kind, FileType::File | FileType::Symlink);
    if thing.kind == FileType::File {
        if now.size != left.size {
            return Ok(Some("its contents have changed"));
        }
        let mut buf = vec![0; if thing.bytes.is_empty() { 0 } else { CHUNK_BYTES }];
        for range in thing.bytes.iter() {
            let mut digest = Xxh3::new();
            digest_bytes(t, ix, (range.start, range.end.min(left.size)), &mut buf, &mut digest)?;
            if digest.digest128() != range.after {
                return Ok(Some("its contents have changed"));
            }
        }
    }
    Ok(if now.target != left.target || now.rdev != left.rdev {
        Some(REPLACED)
    } else if now.mode != left.mode {
        Some("its mode has changed")
    } else if (now.uid, now.gid) != (left.uid, left.gid) {
        Some("its owner has changed")
    } else if now.xattrs != left.xattrs {
        Some("its extended attributes have changed")
    } else if timed && now.mtime != left.mtime {
        Some("it has been written to or touched")
    } else if thing.kind != FileType::Directory && now.nlink != left.nlink {
        Some("the number of its names has changed")
    } else {
        None
    })
}

/// In directories that the commit made nothing else may be: they are to go.
fn look_into_new_directories<O: Os>(t: &mut Transaction<O>, image: &Image, looked: &mut Looked) -> Verb<()> {
    let mut ours: HashMap<&[u8], HashSet<&[u8]>> = HashMap::new();
    for name in &image.after {
        let (dir, last) = split(&name.path);
        ours.entry(dir).or_default().insert(last);
    }
    for name in &image.after {
        let thing = image.thing(name);
        let Some(node) = looked.nodes[name.thing as usize] else { continue };
        if thing.kind != FileType::Directory || thing.before.is_some() {
            continue;
        }
        let known = ours.get(&name.path[..]);
        for entry in t.readdir(node)?.iter() {
            if !known.is_some_and(|known| known.contains(&entry.name[..])) {
                looked.differs(
                    &crate::paths::join(&name.path, &entry.name),
                    "it is new, in a directory that would go",
                );
            }
        }
    }
    Ok(())
}

/// The node at a path of the committed tree. Symbolic links are no directories.
pub(super) fn walk<O: Os>(t: &mut Transaction<O>, path: &[u8], walked: &mut Walked) -> Verb<Option<Node>> {
    if path.is_empty() {
        return Ok(Some(t.root(walked.mount)));
    }
    if let Some(known) = walked.found.get(path) {
        return Ok(*known);
    }
    // Not by recursion: a path may be as deep as it likes.
    let mut at = Some(t.root(walked.mount));
    let mut end = 0;
    for name in path.split(|byte| *byte == b'/') {
        end += name.len();
        at = match (walked.found.get(&path[..end]), at) {
            (Some(known), _) => *known,
            (None, Some(dir)) => look_up(t, dir, name)?,
            (None, None) => None,
        };
        walked.found.insert(path[..end].to_vec(), at);
        end += 1;
    }
    Ok(at)
}

/// Returns the object at a name; in what is no directory there are none.
pub(super) fn look_up<O: Os>(t: &mut Transaction<O>, dir: Node, name: &[u8]) -> Verb<Option<Node>> {
    match t.lookup(dir, name) {
        Ok(found) => Ok(found.map(|(node, _)| node)),
        Err(VerbError::Os(Errno::NOTDIR | Errno::NOENT)) => Ok(None),
        Err(e) => Err(e),
    }
}
