//! First touches: wait for who is publishing it, look, refresh, and only then deliver (docs/protocol.md R1, R3).

use super::decide::{self, links};
use super::lower_dir::visible_names;
use super::{
    Bytes, DataFact, DeliveredBytes, Depth, FactIx, Facts, Found, Grain, Known, Listing, Look, LowerDir,
    LowerFile, Name, ReadOn, Seen, Which,
};
use crate::acl::CAPABILITY;
use crate::bytes::{copy_from, next_data, read_up_to};
use crate::domain::Domain;
use crate::id::ObjectId;
use crate::mutant::{self, Mutant};
use crate::objects::{current_names, current_xattr};
use crate::outcome::{ConflictKind, Party, Verb, VerbError};
use crate::paths::join;
use std::cell::RefCell;
use std::sync::{Arc, OnceLock};
use systx_os::{Dirent, Errno, FileType, FsInfo, FsKind, Handle, Lease, Open, Os, Result, Seek, Stat};

/// Up to this many missing names in a directory are compared one by one. (In tests few, so that they have
/// both.)
const MISSES_BEFORE_STAMP: u32 = if cfg!(test) { 1 } else { 4 };

impl<O: Os> Facts<O> {
    /// R1 for one object or several that are looked at together: slots before the look, the ring after it.
    /// Any other order can show half a commit.
    pub(super) fn touch<T>(
        &mut self,
        domain: usize,
        objects: &[ObjectId],
        path: &dyn Fn() -> Vec<u8>,
        look: impl Fn(&Self) -> Result<T>,
    ) -> Verb<T> {
        loop {
            let awaited = if mutant::on(Mutant::NoSlotWait) { &[] } else { objects };
            if let Err(stuck) = self.domains[domain].await_slots(awaited, self.waiting)? {
                return Err(self.doomed(self.domains[domain].shown(&path()), stuck.what, stuck.with));
            }
            let looked = look(self);
            let fresh =
                mutant::on(Mutant::NoRefreshAfterLook) || self.refresh_behind(domain, objects, path)?;
            if fresh {
                return Ok(looked?);
            }
        }
    }

    /// Refreshes after a look at objects; false: the look has to be repeated. A conflict on an object without a fact
    /// gets the path that was looked at.
    fn refresh_behind(
        &mut self,
        domain: usize,
        objects: &[ObjectId],
        path: &dyn Fn() -> Vec<u8>,
    ) -> Verb<bool> {
        self.refresh(domain, objects).map_err(|error| match error {
            VerbError::Doomed(mut conflict) if conflict.path.is_empty() => {
                conflict.path = self.domains[domain].shown(&path());
                VerbError::Doomed(conflict)
            }
            other => other,
        })
    }

    /// The root of a mount: a fact.
    pub fn root(&mut self, domain: usize) -> Verb<(Found, Arc<LowerDir<O>>)> {
        let (found, dir) = self.root_unclaimed(domain)?;
        self.seen[found.fact.0 as usize].claimed = true;
        self.claim(domain, ObjectId::attr(&found.handle), found.fact);
        Ok((found, dir))
    }

    /// The root of a mount: no fact.
    pub(crate) fn root_unclaimed(&mut self, domain: usize) -> Verb<(Found, Arc<LowerDir<O>>)> {
        let os = self.domains[domain].os.clone();
        let root = self.domains[domain].area.root.fd();
        let handle = self.domains[domain].remembered.root(|| os.handle(&root))?;
        let stat = self.touch(domain, &[ObjectId::attr(&handle)], &Vec::new, |_| os.stat(&root))?;
        let dir = LowerDir::new(domain, root, handle, Vec::new());
        let known = Arc::new(Known { handle, stat });
        let fact = self.keep(Seen {
            dir: dir.clone(),
            name: Name::from(&b""[..]),
            object: Some(known.clone()),
            data: None,
            xattrs: None,
            stamped: false,
            claimed: false,
            depth: Depth::Whole,
        });
        Ok((Found { fact, known }, dir))
    }

    /// First touch of a name: "this name is that object, with these attributes" or "this name is missing".
    ///
    /// Mode, owner and link count of the object are facts (that of a directory is not); of a regular file
    /// size and modification time, too, if looks go by files. Everything else that a stat shows is a value as of now.
    pub fn entry(&mut self, dir: &Arc<LowerDir<O>>, name: &[u8]) -> Verb<Option<Found>> {
        self.entry_named(dir, &Name::from(name))
    }

    /// Looks at a name that is shared.
    pub(crate) fn entry_named(&mut self, dir: &Arc<LowerDir<O>>, name: &Name) -> Verb<Option<Found>> {
        let stamp = dir.stamp().is_some();
        let in_domain = self.domains[dir.domain].clone();
        let looked = dir.unsure().map(|fd| {
            self.first_look(dir, name, || look_knowing(&in_domain, dir, &fd, name), |found| *found)
        });
        let (found, claims) = match looked {
            // It is not: what has its number is the program's.
            Some(Err(VerbError::Os(Errno::BADF))) | None => {
                let fd = self.opened_now(dir)?;
                self.first_look(dir, name, || look_knowing(&in_domain, dir, &fd, name), |found| *found)?
            }
            Some(looked) => looked?,
        };
        dir.is_sure();
        let stamped = found.is_none() && stamp;
        if found.is_none() && !stamp {
            let fd = self.opened_now(dir)?;
            self.missed(dir, &fd)?;
        }
        let (dir, domain) = (dir.clone(), dir.domain);
        let known = found.map(|(handle, stat)| Arc::new(Known { handle, stat }));
        let object = known.clone();
        let (name, data, xattrs, claimed) = (name.clone(), None, None, true);
        let depth = depth_of(object.as_ref().map(|known| &known.stat), self.grain);
        let fact = self.keep(Seen { dir, name, object, data, xattrs, stamped, claimed, depth });
        for id in claims {
            self.claim(domain, id, fact);
        }
        Ok(known.map(|known| Found { fact, known }))
    }

    /// Takes the stamp of a directory in which names keep missing, for those to come. (For few of them it
    /// would be calls more.)
    fn missed(&self, dir: &LowerDir<O>, fd: &O::Fd) -> Verb<()> {
        if !self.domains[dir.domain].info.dir_stamps || dir.missed() != MISSES_BEFORE_STAMP {
            return Ok(());
        }
        let os = &self.domains[dir.domain].os;
        let ctime = os.stat(fd)?.ctime;
        // A process that makes a name moves the stamp first, and until it is done a name that was looked for
        // before still counts as missing, without waiting. A lookup of a new name waits. Source:
        // lookup_slow() (measured).
        let unheard_of = format!(".systx-{:016x}", os.random());
        if let Err(Errno::NOENT) = os.stat_at(fd, unheard_of.as_bytes()) {
            dir.set_stamp(ctime);
        }
        Ok(())
    }

    /// A look at a name by the rule for first touches (R1), and the objects that it says something of.
    /// `known` is what of a find counts.
    pub(super) fn first_look<T>(
        &mut self,
        dir: &LowerDir<O>,
        name: &[u8],
        look: impl Fn() -> Result<Option<T>>,
        known: impl Fn(&T) -> (Handle, Stat),
    ) -> Verb<(Option<T>, Vec<ObjectId>)> {
        let grain = self.grain;
        let claims = |found: &Option<T>| claims_of(dir, name, &found.as_ref().map(&known), grain);
        let path: &dyn Fn() -> Vec<u8> = &|| join(&dir.path, name);
        if let Some(found) = self.look_between(dir.domain, path, &look, claims)? {
            return Ok(found);
        }
        // First the name, then the object behind it, which is an object of its own: it is touched by the rule, too.
        let entry = [ObjectId::entry(&dir.handle, name)];
        let handle = |found: &Option<T>| found.as_ref().map(|found| known(found).0);
        loop {
            let first = self.touch(dir.domain, &entry, path, |_| look())?;
            let claims = claims(&first);
            let again = self.touch(dir.domain, &claims, path, |_| look())?;
            if handle(&first) == handle(&again) {
                return Ok((again, claims));
            }
        }
    }

    /// R1 where only the look says which objects it was at: active commits are noted before it, and asked for these
    /// objects behind it. `None`: one of them may have changed some, or has ended meanwhile.
    fn look_between<T>(
        &mut self,
        domain: usize,
        path: &dyn Fn() -> Vec<u8>,
        look: impl Fn() -> Result<T>,
        objects: impl Fn(&T) -> Vec<ObjectId>,
    ) -> Verb<Option<(T, Vec<ObjectId>)>> {
        let in_domain = self.domains[domain].clone();
        let slots = in_domain.table.slots();
        let active = in_domain.checked(slots.active())?;
        let found = look()?;
        let objects = objects(&found);
        let apart =
            in_domain.checked(slots.are_apart(&active, &objects))? || mutant::on(Mutant::ActiveUnasked);
        let counts = apart && self.refresh_behind(domain, &objects, path)?;
        Ok(counts.then_some((found, objects)))
    }

    /// Fast path of a first read, without waiting or refreshing. Valid if no commit was active before the
    /// read and no LSN was assigned during it; otherwise returns `None`.
    pub(super) fn look_in_quiet<T>(
        &self,
        domain: usize,
        look: impl FnOnce() -> Result<T>,
    ) -> Verb<Option<T>> {
        if !self.domains[domain].is_quiet()? {
            return Ok(None);
        }
        let found = look()?;
        let unmoved = self.domains.iter().zip(&self.snapshots).all(|(d, s)| d.table.next() == *s);
        Ok(unmoved.then_some(found))
    }

    /// Opens the directory behind a fact as a base for names.
    pub fn dir(&mut self, fact: FactIx) -> Verb<Arc<LowerDir<O>>> {
        let seen = &self.seen[fact.0 as usize];
        let handle = seen.object.as_ref().map(|known| known.handle).ok_or(Errno::NOENT)?;
        let domain = self.domains[seen.dir.domain].clone();
        let index = seen.dir.domain;
        if let Some(fd) = domain.remembered.dir(&handle).filter(|_| !self.lost) {
            return Ok(LowerDir::remembered(index, fd, handle, self.path(fact)));
        }
        let fd = self.present_fd(fact)?;
        domain.remembered.set_dir(&handle, &fd);
        Ok(LowerDir::new(index, fd, handle, self.path(fact)))
    }

    /// The names of a directory, without the area of the domain.
    pub fn listing(&mut self, dir: &Arc<LowerDir<O>>) -> Verb<Vec<Dirent>> {
        let domain = self.domains[dir.domain].clone();
        let id = ObjectId::listing(&dir.handle);
        let fd = self.opened_now(dir)?;
        // The stamp comes before the names.
        let (ctime, names) = self.touch(dir.domain, &[id], &|| dir.path.clone(), |_| {
            let ctime = domain.os.stat(&fd)?.ctime;
            let names = visible_names(&domain, dir, &fd)?;
            if mutant::on(Mutant::ListingStampLate) {
                Ok((domain.os.stat(&fd)?.ctime, names))
            } else {
                Ok((ctime, names))
            }
        })?;
        let fact = Listing {
            dir: dir.clone(),
            ctime: domain.info.dir_stamps.then_some(ctime),
            names: super::compare::hash_names(&names),
            types: super::compare::hash_types(&names),
        };
        self.ids[dir.domain].push(id, Which::Listing(self.listings.len() as u32));
        self.listings.push(fact);
        Ok(names)
    }

    /// Target of the symbolic link behind a fact: part of the object's identity, no fact of its own.
    pub fn read_link(&mut self, fact: FactIx) -> Verb<Vec<u8>> {
        let fd = self.present_fd(fact)?;
        Ok(self.os_of(fact).read_link(&fd)?)
    }

    /// Value of an extended attribute; `None` when there is none.
    pub fn xattr(&mut self, fact: FactIx, name: &[u8]) -> Verb<Option<Vec<u8>>> {
        let known = if *name == *CAPABILITY && self.is_incapable(fact) { Some(None) } else { None };
        let value = match known.map_or_else(|| self.xattr_of_unmoved(fact, name), |none| Ok(Some(none)))? {
            Some(value) => value,
            None => {
                let fd = match self.present_fd(fact) {
                    Err(VerbError::Os(Errno::STALE)) if self.lost => return Ok(None),
                    fd => fd?,
                };
                let os = self.os_of(fact).clone();
                let (domain, id) = self.attr_of(fact)?;
                let path = self.path(fact);
                self.touch(domain, &[id], &|| path.clone(), |_| current_xattr(&os, &fd, name))?
            }
        };
        let seen = &mut self.seen[fact.0 as usize];
        if !seen.claimed {
            return Ok(value);
        }
        let facts = seen.xattrs.get_or_insert_default();
        match facts.values.iter().find(|(known, _)| **known == *name) {
            // An outsider's change moves nothing that R1 looks at.
            Some((_, first)) if *first != value => {
                Err(self.changed(self.shown(fact), ConflictKind::XattrChanged))
            }
            Some(_) => Ok(value),
            None => {
                facts.values.push((name.into(), value.clone()));
                Ok(value)
            }
        }
    }

    /// Returns true for a file that is known to have had no capability at the time of its fact.
    fn is_incapable(&self, fact: FactIx) -> bool {
        let seen = &self.seen[fact.0 as usize];
        let Some(known) = seen.object.as_ref().filter(|_| seen.claimed && !self.lost) else { return false };
        let domain = &self.domains[seen.dir.domain];
        let is_stamp = seen.data.as_ref().is_none_or(|data| data.ctime == known.stat.ctime);
        is_stamp && domain.info.file_stamps && domain.remembered.is_incapable(&known.handle, known.stat.ctime)
    }

    /// The same without opening the object, by its name: what has an unmoved stamp behind it is the object of the fact.
    /// `None`: it has not.
    fn xattr_of_unmoved(&mut self, fact: FactIx, name: &[u8]) -> Verb<Option<Option<Vec<u8>>>> {
        let (domain, id) = self.attr_of(fact)?;
        let seen = &self.seen[fact.0 as usize];
        let Some(known) = seen.object.clone() else { return Ok(None) };
        let trusted = self.domains[domain].info.file_stamps && !self.lost && seen.claimed;
        if !trusted || seen.name.is_empty() || known.stat.kind() == FileType::Symlink {
            return Ok(None);
        }
        let Some(dir) = self.opened(&seen.dir)? else { return Ok(None) };
        let (of, os, path) = (seen.name.clone(), self.os_of(fact).clone(), self.path(fact));
        let found = self.touch(domain, &[id], &|| path.clone(), |_| {
            let value = match os.getxattr_at(&dir, &of, name) {
                Ok(value) => Some(value),
                Err(Errno::NODATA) => None,
                Err(_) => return Ok(None),
            };
            match os.stat_again(&dir, &of, known.stat.sight()) {
                Ok(now) if now.sight() == known.stat.sight() => Ok(Some(value)),
                _ => Ok(None),
            }
        })?;
        if *name == *CAPABILITY && found == Some(None) {
            self.domains[domain].remembered.set_incapable(&known.handle, known.stat.ctime);
        }
        Ok(found)
    }

    /// Names of all extended attributes.
    pub fn xattr_names(&mut self, fact: FactIx) -> Verb<Vec<Vec<u8>>> {
        let fd = match self.present_fd(fact) {
            Err(VerbError::Os(Errno::STALE)) if self.lost => return Ok(Vec::new()),
            fd => fd?,
        };
        let os = self.os_of(fact).clone();
        let (domain, id) = self.attr_of(fact)?;
        let path = self.path(fact);
        let names = self.touch(domain, &[id], &|| path.clone(), |_| current_names(&os, &fd))?;
        let seen = &mut self.seen[fact.0 as usize];
        if !seen.claimed {
            return Ok(names);
        }
        let known = &mut seen.xattrs.get_or_insert_default().names;
        if known.as_ref().is_some_and(|known| *known != names) && !self.lost {
            return Err(self.changed(self.shown(fact), ConflictKind::XattrsChanged));
        }
        *known = Some(names.clone());
        Ok(names)
    }

    /// Opens a file for reading. Its bytes become a fact, held by its stamp; the stamp is taken before any
    /// byte is read.
    pub fn open(&mut self, fact: FactIx) -> Verb<LowerFile<O>> {
        self.open_by(self.os_of(fact).clone(), fact)
    }

    /// Opens it as [`Facts::open`] does, for a caller that closes it before its call is over.
    pub(crate) fn open_for_a_moment(&mut self, fact: FactIx) -> Verb<LowerFile<O>> {
        self.open_by(self.os_of(fact).for_a_moment(), fact)
    }

    fn open_by(&mut self, os: O, fact: FactIx) -> Verb<LowerFile<O>> {
        let seen = &self.seen[fact.0 as usize];
        let Some(Known { handle, stat: first }) = seen.object.as_deref() else {
            return Err(Errno::NOENT.into());
        };
        let (handle, first) = (*handle, *first);
        let domain = seen.dir.domain;
        let id = ObjectId::data(&handle);
        let opened = match self.opened(&seen.dir)? {
            Some(dir) => self.domains[domain].open_past_leases(id, || os.open(&dir, &seen.name, Open::Read)),
            None => Err(Errno::NOENT),
        };
        let fd = match opened {
            Ok(fd) => fd,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NXIO) => {
                return Err(self.changed(self.shown(fact), ConflictKind::ReplacedOrRemoved));
            }
            Err(e) => return Err(e.into()),
        };
        let info = self.domains[domain].info;
        let path = self.path(fact);
        let is_first = self.seen[fact.0 as usize].data.is_none();
        let by_pages = self.depth(fact) != Depth::Whole;
        let touched = if by_pages { ObjectId::size(&handle) } else { id };
        let (stat, hot) = self.touch(domain, &[touched], &|| path.clone(), |_| {
            if !is_first {
                return Ok((os.stat(&fd)?, true));
            }
            let kept_out = keep_writers_out(&os, &fd, &info);
            if kept_out.is_err() {
                // SEEK_DATA waits for writers of the inode: a write(2) that runs now moves the stamp before the
                // data is read.
                let _ = os.seek(&fd, 0, Seek::Data);
            }
            let stamp = os.stat(&fd);
            // Only now: a process that opens the file for writing later moves the stamp with its first store.
            if kept_out.is_ok() {
                let _ = os.lease(&fd, Lease::None);
            }
            Ok((stamp?, kept_out == Err(Errno::AGAIN)))
        })?;
        // Of one that is lost whatever has its name now stands for it. An unmoved stamp says which object it is.
        let is_known =
            info.file_stamps && (stat.dev, stat.ino, stat.ctime) == (first.dev, first.ino, first.ctime);
        if !self.lost && !is_known && os.handle(&fd)? != handle {
            return Err(self.changed(self.shown(fact), ConflictKind::ReplacedOrRemoved));
        }
        if by_pages && !self.lost {
            self.open_by_pages(fact, (&first, &stat), touched)?;
        } else if (stat.size, stat.mtime) != (first.size, first.mtime) && !self.lost {
            return Err(self.changed(self.shown(fact), ConflictKind::ContentsChanged));
        }
        if is_first {
            // The stamp stands for the link count, too.
            if links(&stat) != links(&first) {
                return Err(self.changed(self.shown(fact), ConflictKind::LinksChanged));
            }
            let data =
                DataFact { size: stat.size, ctime: stat.ctime, hot, reads: Vec::new(), pages: Vec::new() };
            self.seen[fact.0 as usize].data = Some(Box::new(data));
        }
        Ok(LowerFile { bytes: Bytes::File(fd), fact, size: stat.size, read_on: OnceLock::new() })
    }

    /// Where the next bytes of a file stand that may be other than zeros, from an offset on.
    pub fn next_data(&self, file: &LowerFile<O>, offset: u64) -> Verb<u64> {
        let Bytes::File(fd) = &file.bytes else { return Ok(offset) };
        // Where a store need not move the stamp, or need not be ours to see, zeros are compared like other bytes.
        if self.depth(file.fact) != Depth::Whole
            || self.seen[file.fact.0 as usize].data.as_ref().is_none_or(|data| data.hot)
        {
            return Ok(offset);
        }
        Ok(next_data(self.os_of(file.fact), fd, offset))
    }

    /// Reads bytes of a file, by the rule for first touches: no commit was under way or came between that may have
    /// changed them. Where a store need not move the stamp, they are facts of their own.
    pub fn read(&mut self, file: &LowerFile<O>, buf: &mut [u8], offset: u64) -> Verb<usize> {
        let fd = match &file.bytes {
            Bytes::File(fd) => fd,
            Bytes::Unclaimed(fd) => return self.read_unclaimed(file.fact, fd, buf, offset),
            Bytes::Copied(bytes) => return Ok(copy_from(bytes, buf, offset)),
        };
        if self.depth(file.fact) < Depth::Whole && !self.lost {
            if let Some(got) = self.read_pages(file.fact, fd, buf, offset)? {
                return Ok(got);
            }
            self.whole(file.fact)?;
        }
        let os = self.os_of(file.fact).clone();
        let seen = &self.seen[file.fact.0 as usize];
        let (Some(data), Some(handle)) = (&seen.data, seen.object.as_ref().map(|known| known.handle)) else {
            return Err(Errno::BADF.into());
        };
        if data.hot {
            let (domain, path, asked) = (seen.dir.domain, self.path(file.fact), buf.len());
            let bytes = self.touch(domain, &[ObjectId::data(&handle)], &|| path.clone(), |_| {
                let mut bytes = vec![0; asked];
                let got = read_up_to(&os, fd, &mut bytes, offset)?;
                bytes.truncate(got);
                Ok(bytes)
            })?;
            let hash = xxhash_rust::xxh3::xxh3_128(&bytes);
            if let Some(data) = self.seen[file.fact.0 as usize].data.as_mut() {
                data.reads.push(DeliveredBytes { offset, asked, hash });
            }
            buf[..bytes.len()].copy_from_slice(&bytes);
            return Ok(bytes.len());
        }
        let (size, ctime) = (data.size, data.ctime);
        let (domain, dir, name) = (seen.dir.domain, seen.dir.clone(), seen.name.clone());
        // Of one that is lost it is as long as it is.
        let size = if self.lost { u64::MAX } else { size };
        let wanted = buf.len().min(usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX));
        let buf = RefCell::new(&mut buf[..wanted]);
        let look = || read_up_to(&os, fd, &mut buf.borrow_mut(), offset);
        let got = match self.look_in_quiet(domain, look)? {
            Some(got) => got,
            _ if mutant::on(Mutant::PagesUnasked) => look()?,
            _ => self.touch(domain, &[ObjectId::data(&handle)], &|| join(&dir.path, &name), |_| look())?,
        };
        // A commit of a transaction would have been met. That no outsider has written is compared when it ends.
        if got == wanted || self.lost {
            return Ok(got);
        }
        let now = os.stat(fd)?;
        if (now.size, now.ctime) != (size, ctime) {
            return Err(self.changed(self.shown(file.fact), ConflictKind::ContentsChanged));
        }
        Ok(got)
    }

    /// Reads bytes of a file as [`Facts::read`] does, if that takes nothing but the read itself: no commit is under way,
    /// and none came meanwhile. The caller need not have looked at the descriptor: that is done when it is closed.
    pub(crate) fn read_on(&mut self, file: &LowerFile<O>, buf: &mut [u8], offset: u64) -> Option<usize> {
        let Bytes::File(fd) = &file.bytes else { return None };
        let seen = &self.seen[file.fact.0 as usize];
        let data = seen.data.as_ref().filter(|data| !data.hot && !self.lost)?;
        let left = usize::try_from(data.size.saturating_sub(offset)).ok()?;
        let wanted = buf.len().min(left);
        let pages = match seen.depth {
            Depth::Whole => None,
            Depth::Sized => Some(self.new_pages(file.fact, wanted, offset)?),
            Depth::Name | Depth::Pages => Some(self.new_pages(file.fact, buf.len(), offset)?),
        };
        let os = self.os_of(file.fact);
        file.read_on.get_or_init(|| ReadOn { os: os.clone(), lost: self.lost_files.clone() });
        let look = || read_up_to(os, fd, &mut buf[..wanted], offset);
        let got = self.look_in_quiet(seen.dir.domain, look).ok()??;
        if let Some(new) = pages.filter(|_| got == wanted) {
            self.keep_pages(file.fact, new, offset, &buf[..got]);
        }
        (got == wanted).then_some(got)
    }

    /// Returns the result of [`Facts::path_fd`] for a running transaction: a conflict names the party that
    /// replaced the object. An object without a fact may be replaced: `ESTALE`, after which the kernel looks
    /// the name up once more.
    pub(super) fn present_fd(&mut self, fact: FactIx) -> Verb<Arc<O::Fd>> {
        match self.path_fd(fact) {
            Err(VerbError::Doomed(_)) if !self.seen[fact.0 as usize].claimed => Err(Errno::STALE.into()),
            Err(doomed @ VerbError::Doomed(_)) => self.refresh_all().and(Err(doomed)),
            opened => opened,
        }
    }

    /// An O_PATH descriptor of the object behind a fact, its identity verified.
    pub fn path_fd(&self, fact: FactIx) -> Verb<Arc<O::Fd>> {
        let seen = &self.seen[fact.0 as usize];
        let handle = seen.object.as_ref().map(|known| known.handle).ok_or(VerbError::Os(Errno::NOENT))?;
        let os = self.os_of(fact);
        let opened = match self.opened(&seen.dir)? {
            Some(dir) if seen.name.is_empty() => return Ok(dir),
            Some(dir) => os.open(&dir, &seen.name, Open::Path),
            None => Err(Errno::NOENT),
        };
        match opened {
            Ok(fd) if os.handle(&fd)? == handle => Ok(Arc::new(fd)),
            Ok(_) | Err(Errno::NOENT | Errno::NOTDIR | Errno::STALE) => {
                Err(self.doomed(self.shown(fact), ConflictKind::ReplacedOrRemoved, Party::Outsider))
            }
            Err(e) => Err(e.into()),
        }
    }

    /// An object with the attributes of what has its name now, if something of its kind has: perhaps another one, for who
    /// only looks.
    pub(crate) fn present(&self, found: &Found) -> Option<Found> {
        let seen = &self.seen[found.fact.0 as usize];
        let (dir, os) = (self.opened(&seen.dir).ok()??, self.os_of(found.fact));
        let stat = if seen.name.is_empty() { os.stat(&dir) } else { os.stat_at(&dir, &seen.name) }.ok()?;
        let known = Arc::new(Known { handle: found.handle, stat });
        (stat.kind() == found.stat.kind()).then_some(Found { fact: found.fact, known })
    }

    pub(super) fn os_of(&self, fact: FactIx) -> &O {
        &self.domains[self.seen[fact.0 as usize].dir.domain].os
    }

    fn attr_of(&self, fact: FactIx) -> Verb<(usize, ObjectId)> {
        let seen = &self.seen[fact.0 as usize];
        let known = seen.object.as_ref().ok_or(VerbError::Os(Errno::NOENT))?;
        Ok((seen.dir.domain, ObjectId::attr(&known.handle)))
    }

    pub(super) fn keep(&mut self, seen: Seen<O>) -> FactIx {
        if let Some(place) = self.vacant.pop() {
            self.seen[place as usize] = seen;
            return FactIx(place);
        }
        self.seen.push(seen);
        FactIx(self.seen.len() as u32 - 1)
    }

    pub(super) fn claim(&mut self, domain: usize, id: ObjectId, fact: FactIx) {
        self.ids[domain].push(id, Which::Seen(fact.0));
    }
}

/// Identity and attributes of a name.
///
/// The handle is asked for once more behind the attributes, as an outsider may replace the object between two calls: both
/// are of one, or each transaction that knows the name would take the one's for the other's.
pub(crate) fn look_at<O: Os>(os: &O, dir: &O::Fd, name: &[u8]) -> Result<Look> {
    loop {
        let handle = match os.handle_at(dir, name) {
            Ok(handle) => handle,
            Err(Errno::NOENT) => return Ok(None),
            Err(e) => return Err(e),
        };
        match os.stat_at(dir, name) {
            Ok(stat) if mutant::on(Mutant::LookTorn) || os.handle_at(dir, name) == Ok(handle) => {
                return Ok(Some((handle, stat)));
            }
            Ok(_) | Err(Errno::NOENT) => {}
            Err(e) => return Err(e),
        }
    }
}

/// The same of a name whose object this process may know. An unmoved stamp says that nothing at all happened to it.
fn look_knowing<O: Os>(domain: &Domain<O>, dir: &LowerDir<O>, fd: &O::Fd, name: &Name) -> Result<Look> {
    let (os, remembered) = (&domain.os, &domain.remembered);
    if !domain.info.file_stamps || !remembered.takes_names() {
        return look_at(os, fd, name);
    }
    if let Some((handle, then)) = remembered.name(&dir.handle, name) {
        match os.stat_again(fd, name, then.sight()) {
            Ok(now) if is_same(&then, &now) => return Ok(Some((handle, now))),
            // Changed perhaps, but the same: a handle that was there before and is there now has had one number.
            Ok(now) if now.ino == then.ino && os.handle_at(fd, name) == Ok(handle) => {
                remembered.set_name(&dir.handle, name, (handle, now));
                return Ok(Some((handle, now)));
            }
            Ok(_) => {}
            Err(Errno::NOENT) => return Ok(None),
            Err(e) => return Err(e),
        }
    }
    let found = look_at(os, fd, name)?;
    if let Some((handle, stat)) = found {
        remembered.set_name(&dir.handle, name, (handle, stat));
    }
    Ok(found)
}

fn is_same(then: &Stat, now: &Stat) -> bool {
    let then = decide::Then { stat: then, data: None, depth: Depth::Whole };
    let verdict = decide::name(Some(then), Some(now), decide::Stamps::Trusted);
    verdict == decide::Name::Holds || mutant::on(Mutant::KnownByName)
}

/// How much of an object a look at its name makes a fact.
fn depth_of(stat: Option<&Stat>, grain: Grain) -> Depth {
    match stat.map(Stat::kind) {
        Some(FileType::File) if grain == Grain::Pages && !mutant::on(Mutant::PagesTooCoarse) => Depth::Name,
        _ => Depth::Whole,
    }
}

/// Which conflict objects a look at a name claims.
fn claims_of<O: Os>(dir: &LowerDir<O>, name: &[u8], found: &Look, grain: Grain) -> Vec<ObjectId> {
    let mut claims = Vec::with_capacity(3);
    claims.push(ObjectId::entry(&dir.handle, name));
    if let Some((handle, stat)) = found {
        claims.push(ObjectId::attr(handle));
        if stat.kind() == FileType::File && depth_of(Some(stat), grain) == Depth::Whole {
            claims.push(ObjectId::data(handle));
        }
    }
    claims
}

/// Keeps out who would store into a file without moving its stamp, until the caller lets them. `EAGAIN`: a process may
/// do so, as it has the file open or mapped for writing or, on tmpfs, may map it later. Any other error: who may is not
/// this process's to know, and it goes by the stamp.
///
/// Source: F_RDLCK is granted if and only if no process has it open for writing (measured). Another user's file can't be
/// leased: `EACCES`. tmpfs doesn't ask to be told of the first store into a page (vma_needs_dirty_tracking() in
/// mm/mmap.c): one that was read through a shared mapping is writable at once.
fn keep_writers_out<O: Os>(os: &O, fd: &O::Fd, info: &FsInfo) -> Result<()> {
    let tmpfs = info.kind == FsKind::Tmpfs && !mutant::on(Mutant::TmpfsByStamps);
    if !info.file_stamps || !info.leases || tmpfs {
        return Err(Errno::AGAIN);
    }
    os.lease(fd, Lease::Read)
}
