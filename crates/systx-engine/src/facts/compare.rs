//! Comparison of one fact with the present.

use super::decide::{self, Bytes, Name, Stamps, Then};
use super::lower_dir::visible_names;
use super::{DataFact, DeliveredBytes, Depth, Facts, Listing, Seen, Which};
use crate::bytes::read_up_to;
use crate::mutant::{self, Mutant};
use crate::objects::{current_names, current_xattr, past_leases};
use crate::outcome::ConflictKind;
use crate::paths::join;
use std::collections::HashMap;
use std::sync::Arc;
use systx_os::{Dirent, Errno, Handle, Open, Os, Result, Sight, Stat};
use xxhash_rust::xxh3::Xxh3;

/// Bytes that are compared at a time.
const CHUNK_BYTES: usize = 256 * 1024;

/// Files that are open already, by identity.
pub(crate) type OpenFiles<O> = HashMap<Handle, Arc<<O as Os>::Fd>>;

/// A name with the object that it had, in its open directory.
pub(super) struct Place<'a, O: Os> {
    pub seen: &'a Seen<O>,
    pub dir: &'a O::Fd,
    pub handle: &'a Handle,
}

impl<O: Os> Clone for Place<'_, O> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<O: Os> Copy for Place<'_, O> {}

/// Path and what changed, as a fragment.
pub(super) type Difference = (Vec<u8>, ConflictKind);

impl<O: Os> Facts<O> {
    /// The difference found, if any.
    pub(super) fn compare(&self, which: Which, open: &OpenFiles<O>) -> Result<Option<Difference>> {
        match which {
            Which::Seen(n) => {
                let seen = &self.seen[n as usize];
                Ok(self.compare_seen(seen, open)?.map(|what| {
                    let path = join(&seen.dir.path, &seen.name);
                    (self.domains[seen.dir.domain].shown(&path), what)
                }))
            }
            Which::Listing(n) => {
                let listing = &self.listings[n as usize];
                Ok(self
                    .compare_listing(listing)?
                    .map(|what| (self.domains[listing.dir.domain].shown(&listing.dir.path), what)))
            }
        }
    }

    fn compare_seen(&self, seen: &Seen<O>, open: &OpenFiles<O>) -> Result<Option<ConflictKind>> {
        let domain = &self.domains[seen.dir.domain];
        let os = &domain.os;
        let Some(dir) = self.opened(&seen.dir)? else {
            // A missing name in it is still missing. The fact of its own name reports that the directory
            // itself is gone.
            return Ok(seen.object.is_some().then_some(ConflictKind::NameRemoved));
        };
        let now = match &seen.object {
            _ if seen.name.is_empty() => os.stat(&dir),
            Some(known) => {
                let ctime = seen.data.as_ref().map_or(known.stat.ctime, |data| data.ctime);
                os.stat_again(&dir, &seen.name, Sight { ctime, ..known.stat.sight() })
            }
            None => os.stat_at(&dir, &seen.name),
        };
        let now = match now {
            Ok(stat) => Some(stat),
            Err(Errno::NOENT | Errno::STALE) => None,
            Err(e) => return Err(e),
        };
        let (data, depth) = (seen.data.as_deref(), seen.depth);
        let then = seen.object.as_ref().map(|known| Then { stat: &known.stat, data, depth });
        let stamps = if domain.info.file_stamps { Stamps::Trusted } else { Stamps::Coarse };
        let verdict = decide::name(then, now.as_ref(), stamps);
        let (Some(known), Some(now)) = (&seen.object, now) else {
            return Ok(verdict.difference());
        };
        let handle = &known.handle;
        if now.immutable || now.append_only {
            self.fixed.borrow_mut().insert(*handle);
        }
        match verdict {
            Name::HoldsButBytes => {
                let at = Place { seen, dir: &dir, handle };
                return match &seen.data {
                    Some(data) => self.data_differs(at, data, &now, open),
                    None => Ok(None),
                };
            }
            Name::Unclear => {}
            Name::Holds | Name::Differs(_) => return Ok(verdict.difference()),
        }
        if !seen.name.is_empty() && os.handle_at(&dir, &seen.name).ok() != Some(*handle) {
            return Ok(Some(ConflictKind::NameReplaced));
        }
        if let Some(what) = decide::attributes(&known.stat, &now, seen.depth) {
            return Ok(Some(what));
        }
        let at = Place { seen, dir: &dir, handle };
        if let Some(data) = &seen.data {
            if let Some(what) = self.data_differs(at, data, &now, open)? {
                return Ok(Some(what));
            }
        }
        self.xattrs_differ(at)
    }

    /// Bytes that were delivered are held by the stamp, or by their hash where the stamp can't be trusted.
    pub(super) fn data_differs(
        &self,
        Place { seen, dir, handle }: Place<'_, O>,
        data: &DataFact,
        now: &Stat,
        open: &OpenFiles<O>,
    ) -> Result<Option<ConflictKind>> {
        let differs = Ok(Some(ConflictKind::ContentsInDoubt));
        match decide::bytes(data, now, seen.depth) {
            Bytes::Same => return Ok(None),
            Bytes::Differ => return differs,
            Bytes::ByHash => {}
        }
        let os = &self.domains[seen.dir.domain].os;
        // A commit of other pages may be publishing them, under a lease.
        let opened = || match seen.depth {
            Depth::Whole => os.open(dir, &seen.name, Open::Read),
            _ => past_leases(os, || Ok(()), || os.open(dir, &seen.name, Open::Read)),
        };
        // Another open would break the lease that the commit holds on a file of its own.
        let fd = match open.get(handle) {
            Some(fd) => fd.clone(),
            None => match opened() {
                Ok(fd) => Arc::new(fd),
                Err(Errno::AGAIN) if seen.depth != Depth::Whole => return Ok(Some(self.kept_out())),
                // Gone, or under the lease of a process that may be writing; or, since the look at its name, something else
                // has that: a link, a FIFO, a file that may not be read.
                Err(Errno::NOENT | Errno::AGAIN | Errno::LOOP | Errno::NXIO | Errno::ACCESS) => {
                    return differs
                }
                Err(e) => return Err(e),
            },
        };
        if os.handle(&*fd)? != *handle {
            return differs;
        }
        Ok(if are_as_delivered(os, &fd, &data.reads)? { None } else { Some(ConflictKind::ContentsInDoubt) })
    }

    fn xattrs_differ(&self, Place { seen, dir, handle }: Place<'_, O>) -> Result<Option<ConflictKind>> {
        let Some(facts) = seen.xattrs.as_ref().filter(|_| !mutant::on(Mutant::XattrsNotCompared)) else {
            return Ok(None);
        };
        let os = &self.domains[seen.dir.domain].os;
        let fd = if seen.name.is_empty() {
            os.dup(dir)?
        } else {
            match os.open(dir, &seen.name, Open::Path) {
                Ok(fd) => fd,
                Err(Errno::NOENT) => return Ok(Some(ConflictKind::NameRemoved)),
                Err(e) => return Err(e),
            }
        };
        if os.handle(&fd)? != *handle {
            return Ok(Some(ConflictKind::NameReplaced));
        }
        for (name, value) in &facts.values {
            if current_xattr(os, &fd, name)? != *value {
                return Ok(Some(ConflictKind::XattrChanged));
            }
        }
        match &facts.names {
            Some(names) if current_names(os, &fd)? != *names => Ok(Some(ConflictKind::XattrsChanged)),
            _ => Ok(None),
        }
    }

    fn compare_listing(&self, listing: &Listing<O>) -> Result<Option<ConflictKind>> {
        let domain = &self.domains[listing.dir.domain];
        let Some(dir) = self.opened(&listing.dir)? else { return Ok(Some(ConflictKind::DirectoryRemoved)) };
        if listing.ctime.is_some() && listing.ctime == domain.os.stat(&dir).ok().map(|s| s.ctime) {
            return Ok(None);
        }
        let names = match visible_names(domain, &listing.dir, &dir) {
            Ok(names) => names,
            Err(Errno::NOENT | Errno::STALE) => return Ok(Some(ConflictKind::DirectoryRemoved)),
            Err(e) => return Err(e),
        };
        let now = (hash_names(&names), hash_types(&names));
        Ok(decide::listing((listing.names, listing.types), now))
    }
}

/// Returns true if bytes are as they were delivered. Each of them is read once, however often it was delivered: if that
/// was not the same each time, it is not so again, whatever an outsider does meanwhile. What a patch takes for the bytes
/// before it is among them.
fn are_as_delivered<O: Os>(os: &O, fd: &O::Fd, reads: &[DeliveredBytes]) -> Result<bool> {
    let mut reads: Vec<&DeliveredBytes> = reads.iter().collect();
    reads.sort_by_key(|read| read.offset);
    let (mut rest, mut buf) = (reads.into_iter().peekable(), Vec::new());
    while let Some(first) = rest.next() {
        let (mut at, mut end) = (first.offset, first.end());
        // Those that have begun before `at`, and have not ended.
        let mut begun = vec![(first, Xxh3::new())];
        loop {
            let overlaps = |read: &&DeliveredBytes, end: u64| {
                read.offset < end.min(at + CHUNK_BYTES as u64) && !mutant::on(Mutant::ReadsApart)
            };
            while let Some(next) = rest.next_if(|read| overlaps(read, end)) {
                end = end.max(next.end());
                begun.push((next, Xxh3::new()));
            }
            buf.resize((end - at).min(CHUNK_BYTES as u64) as usize, 0);
            let got = read_up_to(os, fd, &mut buf, at)?;
            let within = |offset: u64| (offset.max(at) - at).min(got as u64) as usize;
            for (read, hash) in &mut begun {
                hash.update(&buf[within(read.offset)..within(read.end())]);
            }
            at += buf.len() as u64;
            let is_last = at >= end || got < buf.len();
            let has_ended = |read: &DeliveredBytes| is_last || read.end() <= at;
            if begun.iter().any(|(read, hash)| has_ended(read) && hash.digest128() != read.hash) {
                return Ok(false);
            }
            if is_last {
                break;
            }
            begun.retain(|(read, _)| !has_ended(read));
        }
    }
    Ok(true)
}

/// Hash of a set of names, whatever their order. Inode numbers are no facts.
pub(super) fn hash_names(names: &[Dirent]) -> u128 {
    let mut sorted: Vec<&[u8]> = names.iter().map(|d| d.name.as_slice()).collect();
    sorted.sort_unstable();
    let mut h = Xxh3::new();
    for name in sorted {
        h.update(name);
        h.update(b"/");
    }
    h.digest128()
}

/// Hash of the types of a set of names, whatever their order. They come with the names, so they cost no call.
pub(super) fn hash_types(names: &[Dirent]) -> u128 {
    if mutant::on(Mutant::TypesNotCompared) {
        return 0;
    }
    let mut sorted: Vec<_> = names.iter().map(|d| (d.name.as_slice(), d.kind)).collect();
    sorted.sort_unstable();
    let types: Vec<u8> = sorted.iter().map(|(_, kind)| *kind as u8).collect();
    xxhash_rust::xxh3::xxh3_128(&types)
}
