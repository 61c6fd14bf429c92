//! Read committed: looks that become no facts (degree 2; docs/guarantees.md, "Consistency on request").
//!
//! Owns: a look at a name, a listing or a whole file by the rule for first touches (R1), of which nothing is
//! kept but the place. Guarantees: what is delivered is committed, and of one commit: nothing half-published,
//! neither within a look nor while a file is open. Does not: compare anything afterwards, but for large files
//! that are open ([`Watched`]).

use super::lower_dir::visible_names;
use super::{Bytes, Depth, FactIx, Facts, Found, Known, LowerDir, LowerFile, Name, Seen};
use crate::bytes::read_up_to;
use crate::id::ObjectId;
use crate::outcome::Verb;
use std::sync::Arc;
use systx_os::{Dirent, Errno, Open, Os, Result, Seek, Stat};

/// Up to this size an open file is kept in memory, so that no process can change it for its reader.
pub(crate) const COPIED_BYTES_MAX: u64 = if cfg!(test) { 16 << 10 } else { 4 << 20 };
/// A file that outsiders write to all the time is read so often before it is taken as it comes.
const QUIET_TRIES: u32 = 8;

/// Room in memory for the bytes of one more open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    ForBytes,
    None,
}

/// A file that is open, and too large for memory: a commit that changes it in place while it is open is a
/// conflict.
///
/// An outsider's writes are read as they come, as by any program.
pub(super) struct Watched<O: Os> {
    pub domain: usize,
    pub data: ObjectId,
    fact: FactIx,
    fd: Arc<O::Fd>,
    stat: Stat,
}

/// The object of a name when it was looked at, and a descriptor (O_PATH) of it.
pub(crate) type Unvalidated<O> = Option<(Arc<Known>, Arc<<O as Os>::Fd>)>;

impl<O: Os> Facts<O> {
    /// Looks at a name now. A directory that is gone has none.
    pub(crate) fn read_unvalidated(&mut self, dir: &Arc<LowerDir<O>>, name: &[u8]) -> Verb<Unvalidated<O>> {
        let Some(fd) = self.opened(dir)? else { return Ok(None) };
        let os = self.domains[dir.domain].os.clone();
        let known = |(known, _): &(Arc<Known>, Arc<O::Fd>)| (known.handle, known.stat);
        let (found, claims) = self.first_look(dir, name, || hold(&os, &fd, name), known)?;
        self.met(dir.domain, &claims);
        Ok(found)
    }

    /// The names of a directory now, without the area of the domain.
    pub(crate) fn names_now(&mut self, dir: &Arc<LowerDir<O>>) -> Verb<Vec<Dirent>> {
        let Some(fd) = self.opened(dir)? else { return Ok(Vec::new()) };
        let (domain, id) = (self.domains[dir.domain].clone(), ObjectId::listing(&dir.handle));
        let names = self.touch(dir.domain, &[id], &|| dir.path.clone(), |_| {
            match visible_names(&domain, dir, &fd) {
                Err(Errno::NOENT | Errno::STALE) => Ok(Vec::new()),
                names => names,
            }
        })?;
        self.met(dir.domain, &[id]);
        Ok(names)
    }

    /// Opens a file as it is now, and copies it to memory if there is room. What is not copied is
    /// [`Facts::watch`]ed.
    ///
    /// # Errors
    /// `ESTALE`: its name is no longer its, and it is not `held` either.
    pub(crate) fn open_unclaimed(
        &mut self,
        fact: FactIx,
        held: Option<&O::Fd>,
        room: Room,
    ) -> Verb<(Found, LowerFile<O>)> {
        let seen = &self.seen[fact.0 as usize];
        let handle = seen.object.as_ref().map(|known| known.handle).ok_or(Errno::NOENT)?;
        let (os, domain, id) = (self.os_of(fact).clone(), seen.dir.domain, ObjectId::data(&handle));
        let opened = match self.opened(&seen.dir)?.filter(|_| held.is_none()) {
            _ if held.is_some() => {
                let again = |held| self.domains[domain].open_past_leases(id, || os.reopen(held, Open::Read));
                held.map_or(Err(Errno::NOENT), again)
            }
            Some(dir) => self.domains[domain].open_past_leases(id, || os.open(&dir, &seen.name, Open::Read)),
            None => Err(Errno::NOENT),
        };
        let fd = match opened {
            Ok(fd) if os.handle(&fd)? == handle => fd,
            Ok(_) | Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NXIO) => {
                return Err(Errno::STALE.into());
            }
            Err(error) => return Err(error.into()),
        };
        let (path, objects) = (self.path(fact), [id, ObjectId::attr(&handle)]);
        let (stat, copied) = self.touch(domain, &objects, &|| path.clone(), |_| whole(&os, &fd, room))?;
        self.met(domain, &objects);
        let found = self.note(fact, Arc::new(Known { handle, stat }));
        let bytes = match copied {
            Some(bytes) => Bytes::Copied(bytes),
            None => Bytes::Unclaimed(Arc::new(fd)),
        };
        Ok((found, LowerFile { bytes, fact, size: stat.size, read_on: std::sync::OnceLock::new() }))
    }

    /// From now on a commit that changes an open file is a conflict.
    pub(crate) fn watch(&mut self, found: &Found, file: &LowerFile<O>) {
        if let Bytes::Unclaimed(fd) = &file.bytes {
            let domain = self.seen[found.fact.0 as usize].dir.domain;
            let (data, fd, fact) = (ObjectId::data(&found.handle), fd.clone(), found.fact);
            self.watched.push(Watched { domain, data, fact, fd, stat: found.stat });
        }
    }

    /// The file is closed.
    pub(crate) fn unwatch(&mut self, fact: FactIx) {
        self.watched.retain(|file| file.fact != fact);
    }

    /// The path of a watched file, if it is another one than when it was opened.
    pub(super) fn open_file_differs(&self, n: usize) -> Result<Option<Vec<u8>>> {
        let file = &self.watched[n];
        let now = self.domains[file.domain].os.stat(&*file.fd)?;
        let version = |stat: &Stat| (stat.size, stat.mtime, stat.ctime);
        Ok((version(&now) != version(&file.stat)).then(|| self.shown(file.fact)))
    }

    pub(super) fn read_unclaimed(
        &mut self,
        fact: FactIx,
        fd: &Arc<O::Fd>,
        buf: &mut [u8],
        offset: u64,
    ) -> Verb<usize> {
        let seen = &self.seen[fact.0 as usize];
        let handle = seen.object.as_ref().map(|known| known.handle).ok_or(Errno::BADF)?;
        let (os, domain, path, asked) =
            (self.os_of(fact).clone(), seen.dir.domain, self.path(fact), buf.len());
        let bytes = self.touch(domain, &[ObjectId::data(&handle)], &|| path.clone(), |_| {
            let mut bytes = vec![0; asked];
            let got = read_up_to(&os, &**fd, &mut bytes, offset)?;
            bytes.truncate(got);
            Ok(bytes)
        })?;
        buf[..bytes.len()].copy_from_slice(&bytes);
        Ok(bytes.len())
    }

    /// The directory that was found under a name and is held since, as a base for names.
    pub(crate) fn dir_held(&self, fact: FactIx, fd: Arc<O::Fd>) -> Verb<Arc<LowerDir<O>>> {
        let seen = &self.seen[fact.0 as usize];
        let handle = seen.object.as_ref().map(|known| known.handle).ok_or(Errno::NOENT)?;
        Ok(LowerDir::new(seen.dir.domain, fd, handle, self.path(fact)))
    }

    /// Notes where something was seen that is no fact.
    pub(crate) fn note_at(&mut self, dir: &Arc<LowerDir<O>>, name: &Name, known: Arc<Known>) -> Found {
        let (object, name) = (Some(known.clone()), name.clone());
        let (data, xattrs, stamped, claimed) = (None, None, false, false);
        let (dir, depth) = (dir.clone(), Depth::Whole);
        let fact = self.keep(Seen { dir, name, object, data, xattrs, stamped, claimed, depth });
        Found { fact, known }
    }

    /// Notes that it is there under another name.
    pub(crate) fn note_move(&mut self, fact: FactIx, dir: &Arc<LowerDir<O>>, name: &Name) {
        let seen = &mut self.seen[fact.0 as usize];
        (seen.dir, seen.name) = (dir.clone(), name.clone());
    }

    /// Notes what it is now.
    pub(crate) fn note(&mut self, fact: FactIx, known: Arc<Known>) -> Found {
        self.seen[fact.0 as usize].object = Some(known.clone());
        Found { fact, known }
    }

    /// Forgets a place that is no fact; its number is given again.
    pub(crate) fn forget(&mut self, fact: FactIx) {
        let root = self.seen[0].dir.clone();
        let seen = &mut self.seen[fact.0 as usize];
        debug_assert!(!seen.claimed, "a fact stays");
        (seen.dir, seen.name, seen.object) = (root, Name::from(&b""[..]), None);
        self.vacant.push(fact.0);
    }

    /// The look is forgotten, but not that its object may not be durable yet: V4 asks.
    fn met(&mut self, domain: usize, objects: &[ObjectId]) {
        if !self.met_unsynced[domain] {
            let unsynced = self.domains[domain].table.unsynced().signature();
            self.met_unsynced[domain] = objects.iter().any(|object| unsynced.may_contain(*object));
        }
    }

    /// Makes durable what was met without being so. For a durable commit, before its record is.
    pub(crate) fn sync_met(&mut self) -> Result<()> {
        for (domain, met) in self.domains.iter().zip(&mut self.met_unsynced) {
            if std::mem::take(met) {
                domain.sync_unsynced()?;
            }
        }
        Ok(())
    }
}

/// Opens what a name is, and looks at that: of one object, whatever becomes of the name meanwhile.
fn hold<O: Os>(os: &O, dir: &O::Fd, name: &[u8]) -> Result<Unvalidated<O>> {
    match os.open(dir, name, Open::Path) {
        Ok(fd) => {
            let known = Known { handle: os.handle(&fd)?, stat: os.stat(&fd)? };
            Ok(Some((Arc::new(known), Arc::new(fd))))
        }
        Err(Errno::NOENT | Errno::STALE) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A file as it is between two writes of outsiders, and its bytes if they are few: publications have been waited for.
fn whole<O: Os>(os: &O, fd: &O::Fd, room: Room) -> Result<(Stat, Option<Vec<u8>>)> {
    let mut tries = QUIET_TRIES;
    loop {
        // SEEK_DATA waits for writers of the inode: a write(2) that runs now moves the stamp before the data is read.
        let _ = os.seek(fd, 0, Seek::Data);
        let mut stat = os.stat(fd)?;
        if room == Room::None || stat.size > COPIED_BYTES_MAX {
            return Ok((stat, None));
        }
        let mut bytes = vec![0; stat.size as usize];
        let got = read_up_to(os, fd, &mut bytes, 0)?;
        bytes.truncate(got);
        let _ = os.seek(fd, 0, Seek::Data);
        let after = os.stat(fd)?;
        tries -= 1;
        if (after.size, after.mtime, after.ctime) == (stat.size, stat.mtime, stat.ctime) || tries == 0 {
            stat.size = bytes.len() as u64;
            return Ok((stat, Some(bytes)));
        }
    }
}
