//! Keeping the before-image of a transaction that is about to commit.
//!
//! Guarantees: when [`Transaction::keep_image`] returns, everything that [`super::back`] needs is in
//! `undo/<id>~` of every file system that changes, and on stable storage if the transaction is durable. What
//! is read for it becomes a fact, as it has to be: what was kept is what was replaced, or the transaction
//! does not commit. Does not: change anything of the transaction.

use super::area;
use super::area::{CONTENTS, MANIFEST, MANIFEST_BYTES_MAX};
use super::image::{looks_like_others, Dir, Image, Name, Range, State, Thing};
use crate::bytes::write_all;
use crate::diff::bytes::Bytes;
use crate::diff::pairs::{Named, Pair};
use crate::diff::Diff;
use crate::domain::images::{pending_name, DIR};
use crate::domain::Domain;
use crate::id::TxId;
use crate::outcome::{Durability, Verb};
use crate::paths::{join, on_the_way};
use crate::transaction::Transaction;
use crate::types::Attr;
use crate::workset::attributes::none_if_unsupported;
use crate::workset::data::CHUNK_BYTES;
use crate::workset::node::{node_of, Data, Ix};
use crate::workset::Workset;
use std::collections::HashMap;
use std::sync::Arc;
use systx_os::{Errno, FileType, Open, Os, Rename, Seek};
use xxhash_rust::xxh3::Xxh3;

/// From this length on bytes begin on a block of `contents`, so that blocks may be shared with it.
const ALIGNED_BYTES: u64 = 64 << 10;
const BLOCK_BYTES: u64 = 4096;

/// The images of a transaction whose end is not known yet. Dropped as they are, they are left to the next
/// process on the file system.
pub struct Kept<O: Os> {
    parts: Vec<(Arc<Domain<O>>, TxId)>,
}

impl<O: Os> Kept<O> {
    /// Marks the transaction as committed: it can be undone from here on, it and this many others at most of
    /// each file system.
    ///
    /// # Errors
    ///
    /// Of a rename or a removal. Then the history shows it to the next process, if the commit was durable.
    pub fn committed(self, images_max: usize) -> systx_os::Result<()> {
        for (domain, id) in &self.parts {
            let Some(undo) = domain.undo_dir()? else { continue };
            let name = id.to_string();
            match domain.os.rename((&undo, &pending_name(*id)), (&undo, name.as_bytes()), Rename::NoReplace) {
                // Another process has found it in the history.
                Ok(()) | Err(Errno::NOENT) => {}
                Err(e) => return Err(e),
            }
        }
        self.parts.iter().try_for_each(|(domain, id)| domain.keep_images(images_max, *id).map(drop))
    }

    /// It has not committed, and will not.
    pub fn aborted(self) {
        for (domain, id) in &self.parts {
            if let Ok(Some(undo)) = domain.undo_dir() {
                // An image that can't be removed turns out to belong to no commit.
                let _ = area::remove(&domain.os, &undo, &pending_name(*id));
            }
        }
    }
}

/// The image of one file system.
#[derive(Default)]
struct Draft {
    diff: Diff,
    of: HashMap<Ix, u32>,
    order: Vec<Ix>,
    before: Vec<Name>,
    after: Vec<Name>,
}

impl Draft {
    fn add(&mut self, ix: Ix) -> u32 {
        let next = self.order.len() as u32;
        *self.of.entry(ix).or_insert_with(|| {
            self.order.push(ix);
            next
        })
    }
}

/// `contents`, once there is something to be written to it.
struct Contents<'a, O: Os> {
    os: &'a O,
    dir: &'a O::Fd,
    fd: Option<O::Fd>,
    end: u64,
}

impl<O: Os> Contents<'_, O> {
    /// Where so many bytes will go.
    fn place(&mut self, len: u64) -> systx_os::Result<(&O::Fd, u64)> {
        let fd = match self.fd.take() {
            Some(fd) => fd,
            None => self.os.create(self.dir, CONTENTS, 0o600)?,
        };
        let block = if len >= ALIGNED_BYTES { BLOCK_BYTES } else { 1 };
        let at = self.end.next_multiple_of(block);
        self.end = at + len;
        Ok((self.fd.insert(fd), at))
    }
}

impl<O: Os> Transaction<O> {
    /// Keeps what undoing this transaction needs, for the case that it commits now. No program may work in it
    /// any more.
    ///
    /// # Errors
    ///
    /// Of the file system, if there is no room for instance: then nothing is kept. `FBIG`: it is more than an
    /// image may be. `Doomed` as of any read.
    pub fn keep_image(&mut self) -> Verb<Kept<O>> {
        self.ours()?;
        self.workset.see_ends()?;
        let mut drafts = Vec::new();
        self.workset.read_native_trees()?;
        for diff in Diff::of(&mut self.workset).map_err(|(_, error)| error)? {
            drafts.push(draft(self, diff)?);
        }
        let changed = (0..drafts.len()).filter(|mount| !drafts[*mount].order.is_empty());
        let parts: Vec<_> = changed
            .map(|mount| (mount, self.workset.mounts()[mount].clone(), self.workset.ids()[mount]))
            .collect();
        let kept = Kept { parts: parts.iter().map(|(_, domain, id)| (domain.clone(), *id)).collect() };
        let keys: Vec<_> = parts.iter().map(|(_, domain, id)| (domain.image_key(), *id)).collect();
        for (mount, domain, id) in parts {
            let draft = std::mem::take(&mut drafts[mount]);
            if let Err(e) = keep_of(self, &domain, id, draft, &keys) {
                kept.aborted();
                return Err(e);
            }
        }
        Ok(kept)
    }
}

/// Returns true if anything of an object of the committed tree that keeps a name is changed.
fn is_changed<O: Os>(workset: &mut Workset<O>, diff: &Diff, ix: Ix) -> Verb<bool> {
    let object = workset.object(ix);
    if object.dir.is_none() && object.links != 0 {
        return Ok(true);
    }
    let Some(object) = diff.object(ix) else { return Ok(false) };
    Ok(object.attributes_differ() || object.bytes_differ(workset)?)
}

/// All names and objects that change. Not the list that people see: a name that an object has in a new
/// directory, as it had in the one that was there, is no change to them, and has to go and come back.
fn draft<O: Os>(t: &mut Transaction<O>, diff: Diff) -> Verb<Draft> {
    let mut pairs: Vec<_> = diff.pairs(&t.workset);
    let path = |pair: &Pair| pair.before.iter().chain(&pair.after).next().map(|(_, path)| path.clone());
    pairs.sort_by_cached_key(path);
    let mut draft = Draft { diff, ..Draft::default() };
    let side = |named: fn(&Pair) -> &Option<Named>| -> HashMap<_, _> {
        pairs.iter().filter_map(|pair| named(pair).clone()).map(|(ix, path)| (path, ix)).collect()
    };
    let (before, after) = (side(|pair| &pair.before), side(|pair| &pair.after));
    let stays = |path: &[u8]| before.get(path) == after.get(path);
    for pair in pairs {
        if let (Some((ix, was)), Some((other, is)), false) = (&pair.before, &pair.after, pair.moved) {
            let in_place = was != is || on_the_way(is).all(stays);
            if ix == other && in_place && !is_changed(&mut t.workset, &draft.diff, *ix)? {
                continue;
            }
        }
        if let Some((ix, path)) = pair.before {
            let thing = draft.add(ix);
            draft.before.push(Name { path, thing });
        }
        if let Some((ix, path)) = pair.after {
            let thing = draft.add(ix);
            draft.after.push(Name { path, thing });
        }
    }
    Ok(draft)
}

fn keep_of<O: Os>(
    t: &mut Transaction<O>,
    domain: &Domain<O>,
    id: TxId,
    draft: Draft,
    keys: &[([u8; 16], TxId)],
) -> Verb<()> {
    let os = domain.os.clone();
    let durable = t.options.durability == Durability::Durable;
    let made = os.mkdir(&domain.area.dir, DIR, 0o700);
    match made {
        Ok(()) if durable => os.fsync(&domain.area.dir)?,
        Ok(()) | Err(Errno::EXIST) => {}
        Err(e) => return Err(e.into()),
    }
    let undo = os.open(&domain.area.dir, DIR, Open::Directory)?;
    let name = pending_name(id);
    os.mkdir(&undo, &name, 0o700)?;
    let dir = os.open(&undo, &name, Open::Directory)?;
    let mut contents = Contents { os: &os, dir: &dir, fd: None, end: 0 };
    let mut things = Vec::with_capacity(draft.order.len());
    for ix in draft.order {
        things.push(thing(t, &draft.diff, ix, &mut contents)?);
    }
    let dirs = directories(t, &draft.diff);
    let image = Image {
        tx: id,
        at: os.now().sec,
        uid: os.uid(),
        command: t.options.command.clone().into_bytes(),
        parts: keys.to_vec(),
        things,
        before: draft.before,
        after: draft.after,
        dirs,
    };
    let bytes = image.encode(MANIFEST_BYTES_MAX).ok_or(Errno::FBIG)?;
    let manifest = os.create(&dir, MANIFEST, 0o600)?;
    write_all(&os, &manifest, &bytes, 0)?;
    if durable {
        for fd in contents.fd.iter().chain([&manifest, &dir, &undo]) {
            os.fsync(fd)?;
        }
    }
    Ok(())
}

/// The directories in which names change, but for those that come or go with them.
fn directories<O: Os>(t: &Transaction<O>, diff: &Diff) -> Vec<Dir> {
    let mut dirs = Vec::new();
    for ix in diff.names.chunk_by(|a, b| a.dir == b.dir).map(|names| names[0].dir) {
        let lower = t.workset.object(ix).lower.as_ref().filter(|_| !t.workset.is_gone(ix));
        dirs.extend(lower.map(|lower| Dir { path: t.workset.path(ix), handle: lower.handle }));
    }
    dirs
}

/// An object.
fn thing<O: Os>(t: &mut Transaction<O>, diff: &Diff, ix: Ix, contents: &mut Contents<'_, O>) -> Verb<Thing> {
    let gone = t.workset.is_gone(ix);
    let before = state_before(t, ix)?;
    let after = (!gone).then(|| state_after(t, ix)).transpose()?;
    let object = t.workset.object(ix);
    let (kind, is_dir) = (object.kind, object.dir.is_some());
    let lower = object.lower.as_ref();
    let (ino, mut handle) = lower.map_or((0, None), |lower| (lower.stat.ino, Some(lower.handle)));
    let named = before.is_some() && after.is_some() && !is_dir;
    let known = object.names.iter().filter(|_| named);
    let known: Vec<_> = known.map(|(dir, name)| join(&t.workset.path(*dir), name)).collect();
    let sizes = (before.as_ref().map_or(0, |b| b.size), after.as_ref().map_or(0, |a| a.size));
    let diff = diff.object(ix);
    let ranges = match diff.map(|diff| &diff.bytes) {
        _ if kind != FileType::File => Vec::new(),
        _ if before.is_none() || gone => Bytes::whole(sizes.0, sizes.1).ranges(),
        Some(Some(changed)) if changed.differ(&mut t.workset, (ix, ix))? => changed.ranges(),
        _ => Vec::new(),
    };
    if let Data::Private(private) = &mut t.workset.object_mut(ix).data {
        // An undo knows the object by its identity: it stays, and takes its new bytes, however many.
        private.replaced = false;
    }
    let mut bytes = Vec::with_capacity(ranges.len());
    for changed in ranges {
        bytes.push(range(t, ix, changed, sizes, contents)?);
    }
    if handle.is_none() && !gone && looks_like_others(kind) {
        let spot = t.workset.spot(ix)?;
        handle = Some(t.workset.os().handle_at(&spot.dir, &spot.name)?);
    }
    Ok(Thing {
        kind,
        ino,
        handle,
        before,
        after,
        known,
        bytes,
        atime_set: diff.and_then(|diff| diff.atime).is_some_and(|atime| atime.differs()),
        mtime_set: is_dir && diff.and_then(|diff| diff.mtime).is_some_and(|mtime| mtime.differs()),
    })
}

fn state_before<O: Os>(t: &mut Transaction<O>, ix: Ix) -> Verb<Option<State>> {
    let Some(lower) = &t.workset.object(ix).lower else { return Ok(None) };
    let (fact, attr) = (lower.fact, Attr::from(&lower.stat));
    let mut xattrs = Vec::new();
    for name in none_if_unsupported(t.workset.facts_mut().xattr_names(fact))? {
        if let Some(value) = t.workset.facts_mut().xattr(fact, &name)? {
            xattrs.push((name, value));
        }
    }
    state(t, ix, &attr, xattrs).map(Some)
}

/// Attributes of a node, as they are compared and put back.
pub(super) fn state_after<O: Os>(t: &mut Transaction<O>, ix: Ix) -> Verb<State> {
    let attr = t.workset.attr(ix)?;
    let mut xattrs = Vec::new();
    for name in none_if_unsupported(t.listxattr(node_of(ix)))? {
        if let Some(value) = t.workset.xattr(ix, &name)? {
            xattrs.push((name, value));
        }
    }
    state(t, ix, &attr, xattrs)
}

fn state<O: Os>(
    t: &mut Transaction<O>,
    ix: Ix,
    attr: &Attr,
    mut xattrs: Vec<(Vec<u8>, Vec<u8>)>,
) -> Verb<State> {
    xattrs.sort_unstable();
    let target = match t.workset.object(ix).kind {
        FileType::Symlink => t.readlink(node_of(ix))?,
        _ => Vec::new(),
    };
    let Attr { uid, gid, nlink, size, rdev, atime, mtime, .. } = *attr;
    Ok(State { mode: attr.mode & 0o7777, uid, gid, nlink, size, rdev, atime, mtime, xattrs, target })
}

fn range<O: Os>(
    t: &mut Transaction<O>,
    ix: Ix,
    changed: std::ops::Range<u64>,
    (before, after): (u64, u64),
    contents: &mut Contents<'_, O>,
) -> Verb<Range> {
    let (start, end) = (changed.start, changed.end);
    let mut buf = vec![0; CHUNK_BYTES.min((end - start) as usize)];
    let (mut pieces, mut digest) = (Vec::new(), Xxh3::new());
    if start < before {
        let file = t.workset.lower_file(ix)?;
        let os = t.workset.mounts()[usize::from(t.workset.object(ix).mount)].os.clone();
        let (mut at, stop) = (start, end.min(before));
        while at < stop {
            // Where data begins is a hint: what is read is a fact.
            let from = match file.seek(&os, at, Seek::Data) {
                Ok(from) => from,
                Err(Errno::NXIO) => break,
                Err(_) => at,
            };
            let to = file.seek(&os, from, Seek::Hole).unwrap_or(stop).min(stop);
            if from >= to {
                break;
            }
            let (fd, place) = contents.place(to - from)?;
            let mut done = 0;
            while from + done < to {
                let len = buf.len().min((to - from - done) as usize);
                let got = t.workset.read_lower(ix, &file, &mut buf[..len], from + done)?;
                if got == 0 {
                    break;
                }
                write_all(&os, fd, &buf[..got], place + done)?;
                digest.update(&buf[..got]);
                done += got as u64;
            }
            pieces.push((from, done, place));
            at = to;
        }
    }
    let mut left = Xxh3::new();
    if start < after {
        digest_bytes(t, ix, (start, end.min(after)), &mut buf, &mut left)?;
    }
    Ok(Range { start, end, pieces, before: digest.digest128(), after: left.digest128() })
}

/// Adds bytes of a node to a digest.
pub(super) fn digest_bytes<O: Os>(
    t: &mut Transaction<O>,
    ix: Ix,
    (start, end): (u64, u64),
    buf: &mut [u8],
    digest: &mut Xxh3,
) -> Verb<()> {
    let mut at = start;
    while at < end {
        let len = buf.len().min((end - at) as usize);
        let got = t.workset.read_bytes(ix, &mut buf[..len], at)?;
        if got == 0 {
            break;
        }
        digest.update(&buf[..got]);
        at += got as u64;
    }
    Ok(())
}
