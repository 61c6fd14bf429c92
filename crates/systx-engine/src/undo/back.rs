//! Putting a before-image back, by the verbs that every program's calls come to.
//!
//! In three passes. What the commit put somewhere goes: new objects for good, others to a name of their own
//! in the root, from the deepest name on. Then everything gets the name that it had, from the outermost on,
//! and what is gone is made again. Then bytes, owners, modes and attributes, and last of all times. Nodes
//! stay what they are while names change, so a directory that moved takes along what is in it, and no order
//! of renames is a problem. Guarantees: nothing is replaced: a name that is to come back has to be free. Does
//! not: look whether what goes is as it was left ([`super::look`]).

use super::again;
use super::image::{Image, Name, State, Thing};
use super::look::{split, Looked};
use crate::bytes::read_up_to;
use crate::outcome::Verb;
use crate::paths::{depth, on_the_way};
use crate::transaction::Transaction;
use crate::types::{Access, Caller, Node, SetAttr, SetTime};
use crate::undo::look::look_up;
use crate::workset::attributes::none_if_unsupported;
use crate::workset::data::CHUNK_BYTES;
use std::collections::HashMap;
use systx_os::{Errno, FileType, Os, Rename, SetXattr};
use xxhash_rust::xxh3::Xxh3;

const OWNER_ALL: u32 = 0o700;
const PUNCH_HOLE: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;

/// Names of an image by path.
type ByPath<'a> = HashMap<&'a [u8], u32>;

/// The state of one mount's undo.
struct Back<'a, O: Os> {
    mount: usize,
    image: &'a Image,
    contents: Option<&'a O::Fd>,
    looked: Looked,
    before: ByPath<'a>,
    after: ByPath<'a>,
    /// Names in the root of what is between two names.
    aside: HashMap<u32, Vec<Vec<u8>>>,
}

impl<O: Os> Transaction<O> {
    /// Restores the state before for everything that an image names. It must have been [looked
    /// at](Transaction::look_at_image), and nothing may differ. Returns differences that are found only now;
    /// then this transaction can only be aborted.
    ///
    /// # Errors
    ///
    /// Of the file system; `UCLEAN`: the image is damaged. Then, too, it can only be aborted.
    pub fn put_back(
        &mut self,
        mount: usize,
        image: &Image,
        looked: Looked,
        contents: Option<&O::Fd>,
    ) -> Verb<Looked> {
        let mut back = Back {
            mount,
            image,
            contents,
            looked,
            before: image.before.iter().map(|name| (&name.path[..], name.thing)).collect(),
            after: image.after.iter().map(|name| (&name.path[..], name.thing)).collect(),
            aside: HashMap::new(),
        };
        take_away(self, &mut back)?;
        give_names(self, &mut back)?;
        if back.looked.differs.is_empty() {
            give_attributes(self, &mut back)?;
            give_times(self, &mut back)?;
        }
        Ok(back.looked)
    }
}

impl<O: Os> Transaction<O> {
    /// Notes what this transaction has made again of an image on a mount. To be called when it is about to commit.
    ///
    /// # Errors
    ///
    /// Of the file system, if there is no room for instance; `FBIG`: more than such a file may hold.
    pub fn note_made_again(&mut self, mount: usize, image: &Image, looked: &Looked) -> Verb<()> {
        let mut pairs = Vec::new();
        for (thing, node) in image.things.iter().zip(&looked.nodes) {
            let (Some(then), Some(node), None) = (thing.handle, node, &thing.after) else { continue };
            let spot = self.workset.spot(self.workset.ix(*node))?;
            let stat = self.workset.os().stat_at(&spot.dir, &spot.name)?;
            pairs.push((then, (stat.ino, self.workset.os().handle_at(&spot.dir, &spot.name)?)));
        }
        if !pairs.is_empty() {
            again::write(&self.workset.mounts()[mount], self.workset.ids()[mount], &pairs)?;
        }
        Ok(())
    }
}

/// Takes away what the commit made, and what has to go elsewhere.
fn take_away<O: Os>(t: &mut Transaction<O>, back: &mut Back<'_, O>) -> Verb<()> {
    let image = back.image;
    let mut wanted: HashMap<u32, usize> = HashMap::new();
    for name in image.before.iter().filter(|name| !name.path.is_empty() && !back.in_place(name)) {
        *wanted.entry(name.thing).or_default() += 1;
    }
    let mut order: Vec<usize> = (0..image.after.len()).collect();
    order.sort_by_key(|n| std::cmp::Reverse(depth(&image.after[*n].path)));
    for n in order {
        let name = &image.after[n];
        if back.in_place(name) {
            continue;
        }
        let Some((dir, last)) = back.looked.places[n].clone() else { continue };
        let thing = image.thing(name);
        let taken = back.aside.get(&name.thing).map_or(0, Vec::len);
        if thing.before.is_some() && taken < wanted.get(&name.thing).copied().unwrap_or(0) {
            let root = t.root(back.mount);
            let aside = free_name(t, root)?;
            t.rename(dir, &last, root, &aside, Rename::NoReplace)?;
            back.aside.entry(name.thing).or_default().push(aside);
            continue;
        }
        match thing.kind {
            FileType::Directory => t.rmdir(dir, &last)?,
            _ => t.unlink(dir, &last)?,
        }
    }
    Ok(())
}

/// A name that nothing has.
fn free_name<O: Os>(t: &mut Transaction<O>, dir: Node) -> Verb<Vec<u8>> {
    loop {
        let name = format!(".systx-undo-{:016x}", t.workset.os().random()).into_bytes();
        if look_up(t, dir, &name)?.is_none() {
            return Ok(name);
        }
    }
}

/// Gives everything the names that it had; makes what is gone.
fn give_names<O: Os>(t: &mut Transaction<O>, back: &mut Back<'_, O>) -> Verb<()> {
    let image = back.image;
    let mut order: Vec<&Name> =
        image.before.iter().filter(|name| !name.path.is_empty() && !back.in_place(name)).collect();
    order.sort_by_key(|name| depth(&name.path));
    for name in order {
        let (dir, last) = split(&name.path);
        let Some(dir) = directory_before(t, back, dir)? else {
            back.looked.differs(dir, "the directory is gone");
            continue;
        };
        if look_up(t, dir, last)?.is_some() {
            back.looked.differs(&name.path, "the name is taken");
            continue;
        }
        let aside = back.aside.get_mut(&name.thing).and_then(Vec::pop);
        if let Some(aside) = aside {
            let root = t.root(back.mount);
            t.rename(root, &aside, dir, last, Rename::NoReplace)?;
        } else if let Some(node) = back.looked.nodes[name.thing as usize] {
            t.link(node, dir, last)?;
        } else {
            let thing = image.thing(name);
            let Some(state) = &thing.before else { continue };
            let node = make_again(t, dir, last, thing, state, back)?;
            back.looked.nodes[name.thing as usize] = Some(node);
        }
    }
    Ok(())
}

/// The directory that had this path before the commit.
fn directory_before<O: Os>(t: &mut Transaction<O>, back: &Back<'_, O>, path: &[u8]) -> Verb<Option<Node>> {
    let mut at = t.root(back.mount);
    let mut end = 0;
    for name in path.split(|byte| *byte == b'/').filter(|_| !path.is_empty()) {
        end += name.len();
        let next = match back.before.get(&path[..end]) {
            Some(thing) => back.looked.nodes[*thing as usize],
            None => look_up(t, at, name)?,
        };
        let Some(next) = next.filter(|next| t.workset.object(t.workset.ix(*next)).dir.is_some()) else {
            return Ok(None);
        };
        at = next;
        end += 1;
    }
    Ok(Some(at))
}

/// Makes an object that is gone, with its bytes. It gets its attributes later.
fn make_again<O: Os>(
    t: &mut Transaction<O>,
    dir: Node,
    name: &[u8],
    thing: &Thing,
    state: &State,
    back: &Back<'_, O>,
) -> Verb<Node> {
    let caller = Caller { uid: state.uid, gid: state.gid, umask: 0 };
    let made = match thing.kind {
        FileType::Directory => t.mkdir(dir, name, state.mode | OWNER_ALL, caller)?,
        FileType::Symlink => t.symlink(dir, name, &state.target, caller)?,
        kind => t.mknod(dir, name, kind.mode_bits() | state.mode, state.rdev, caller)?,
    };
    if thing.kind == FileType::File && state.size > 0 {
        give_bytes(t, made.0, thing, (0, state.size), back.contents)?;
    }
    Ok(made.0)
}

/// Bytes and size of a file, where they differ.
fn give_bytes<O: Os>(
    t: &mut Transaction<O>,
    node: Node,
    thing: &Thing,
    (now, size): (u64, u64),
    contents: Option<&O::Fd>,
) -> Verb<()> {
    t.open(node, Access::Write, false)?;
    let done = write_back(t, node, thing, (now, size), contents);
    t.close(node);
    done
}

fn write_back<O: Os>(
    t: &mut Transaction<O>,
    node: Node,
    thing: &Thing,
    (now, size): (u64, u64),
    contents: Option<&O::Fd>,
) -> Verb<()> {
    if now != size {
        t.setattr(node, &SetAttr { size: Some(size), ..SetAttr::default() })?;
    }
    let mut buf = Vec::new();
    for range in &thing.bytes {
        let mut digest = Xxh3::new();
        let mut at = range.start;
        for (offset, len, place) in &range.pieces {
            let (from, to) = (*offset, offset.checked_add(*len).ok_or(Errno::UCLEAN)?);
            if from < at || to > size || place.checked_add(*len).is_none() {
                return Err(Errno::UCLEAN.into());
            }
            clear_bytes(t, node, (at, from), now)?;
            let contents = contents.ok_or(Errno::UCLEAN)?;
            buf.resize(CHUNK_BYTES, 0);
            let mut done = 0;
            while done < *len {
                let want = buf.len().min((len - done) as usize);
                let got = read_up_to(t.workset.os(), contents, &mut buf[..want], place + done)?;
                if got == 0 {
                    return Err(Errno::UCLEAN.into());
                }
                digest.update(&buf[..got]);
                let mut put = 0;
                while put < got {
                    match t.write_at(node, &buf[put..got], from + done + put as u64)? {
                        0 => return Err(Errno::NOSPC.into()),
                        more => put += more,
                    }
                }
                done += got as u64;
            }
            at = to;
        }
        clear_bytes(t, node, (at, range.end.min(size)), now)?;
        if digest.digest128() != range.before {
            return Err(Errno::UCLEAN.into());
        }
    }
    Ok(())
}

/// Makes a hole where there was one. Behind the old end there is one.
fn clear_bytes<O: Os>(t: &mut Transaction<O>, node: Node, (from, to): (u64, u64), end: u64) -> Verb<()> {
    let to = to.min(end);
    if from < to {
        t.fallocate(node, PUNCH_HOLE, from, to - from)
    } else {
        Ok(())
    }
}

/// Bytes, owner, mode and extended attributes, children before the directories that they are in.
fn give_attributes<O: Os>(t: &mut Transaction<O>, back: &mut Back<'_, O>) -> Verb<()> {
    for n in back.deepest_first() {
        let thing = &back.image.things[n];
        let (Some(node), Some(before)) = (back.looked.nodes[n], &thing.before) else { continue };
        match &thing.after {
            Some(after) => {
                if !thing.bytes.is_empty() || before.size != after.size && thing.kind == FileType::File {
                    give_bytes(t, node, thing, (after.size, before.size), back.contents)?;
                }
                if after != before {
                    give_state(t, node, thing.kind, before)?;
                }
            }
            None => give_state(t, node, thing.kind, before)?,
        }
    }
    Ok(())
}

fn give_state<O: Os>(t: &mut Transaction<O>, node: Node, kind: FileType, state: &State) -> Verb<()> {
    let now = t.getattr(node)?;
    if (now.uid, now.gid) != (state.uid, state.gid) {
        let set = SetAttr { uid: Some(state.uid), gid: Some(state.gid), ..SetAttr::default() };
        t.setattr(node, &set)?;
    }
    // A list changes the mode, and a mode the list: both are what they were in the end.
    give_xattrs(t, node, state)?;
    if kind != FileType::Symlink && t.getattr(node)?.mode & 0o7777 != state.mode {
        t.setattr(node, &SetAttr { mode: Some(state.mode), ..SetAttr::default() })?;
        give_xattrs(t, node, state)?;
    }
    Ok(())
}

fn give_xattrs<O: Os>(t: &mut Transaction<O>, node: Node, state: &State) -> Verb<()> {
    let ix = t.workset.ix(node);
    let now = none_if_unsupported(t.listxattr(node))?;
    for name in now.iter().filter(|name| !state.xattrs.iter().any(|(known, _)| known == *name)) {
        t.removexattr(node, name)?;
    }
    for (name, value) in &state.xattrs {
        if !now.contains(name) || t.workset.xattr(ix, name)?.as_ref() != Some(value) {
            t.setxattr(node, name, value, SetXattr::Any)?;
        }
    }
    Ok(())
}

/// Times, when nothing moves them any more.
fn give_times<O: Os>(t: &mut Transaction<O>, back: &mut Back<'_, O>) -> Verb<()> {
    for n in back.deepest_first() {
        let thing = &back.image.things[n];
        let (Some(node), Some(before)) = (back.looked.nodes[n], &thing.before) else { continue };
        let at = |time| Some(SetTime::At(time));
        let set = match &thing.after {
            None => SetAttr { atime: at(before.atime), mtime: at(before.mtime), ..SetAttr::default() },
            Some(after) => {
                let moved = match thing.kind {
                    FileType::Directory => thing.mtime_set,
                    _ => after.mtime != before.mtime || !thing.bytes.is_empty(),
                };
                SetAttr {
                    atime: at(before.atime).filter(|_| thing.atime_set),
                    mtime: at(before.mtime).filter(|_| moved),
                    ..SetAttr::default()
                }
            }
        };
        if set.atime.is_some() || set.mtime.is_some() {
            t.setattr(node, &set)?;
        }
    }
    Ok(())
}

impl<O: Os> Back<'_, O> {
    /// Returns true if a name is the same before and after, in directories that are the same.
    fn in_place(&self, name: &Name) -> bool {
        on_the_way(&name.path).all(|path| self.before.get(path) == self.after.get(path))
    }

    /// All things by one of their names, where they had one by that, from the deepest on. One that stays may
    /// have got a name and changed, and have lost none.
    fn deepest_first(&self) -> Vec<usize> {
        let mut paths: HashMap<usize, &[u8]> = HashMap::new();
        for name in self.image.before.iter().chain(&self.image.after) {
            paths.entry(name.thing as usize).or_insert(&name.path);
        }
        let mut order: Vec<_> =
            paths.into_iter().map(|(n, path)| (std::cmp::Reverse(depth(path)), n)).collect();
        order.sort_unstable();
        order.into_iter().map(|(_, n)| n).collect()
    }
}
