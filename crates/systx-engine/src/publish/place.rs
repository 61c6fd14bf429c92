//! PLACE and PUT: the object in the slot gets a name that is missing.

use super::decide::{is_restored, is_zeros, may_be_lost, of_small, opened, Sector, SmallEnd, SmallTime};
use super::power::DROPPED;
use super::refused;
use super::site::{Pass, Site};
use crate::acl::CAPABILITY;
use crate::bytes::{read_file, read_up_to, write_all};
use crate::domain::marks::name_of_step;
use crate::mutant::{self, Mutant};
use crate::objects::{current_xattr, identify, slot_name};
use crate::outcome::ConflictCopyKind;
use crate::record::{Small, Step, SECTOR_BYTES};
use serde::{Deserialize, Serialize};
use systx_os::{Errno, FileType, Lease, Open, Os, Rename, Result, SetXattr, Stat};

/// Setuid and setgid.
const SET_ID: u32 = 0o6000;

/// Renames slot → name, unless the slot is empty (taken already) or the name is taken (displaced).
pub(super) fn place<O: Os>(
    site: &mut Site<'_, O>,
    n: usize,
    step: &Step,
    small: Option<&Small>,
) -> Result<()> {
    let (os, slot) = (site.os, slot_name(step.slot));
    let placed = match site.directory(&step.at) {
        Ok(Some(dir)) => os.rename((site.slots, &slot), (&dir, &step.at.name), Rename::NoReplace),
        Ok(None) => Err(Errno::STALE),
        Err(e) => Err(e),
    };
    match placed {
        Ok(()) => {}
        // Taken already, whatever keeps it from being taken again.
        Err(_) if identify(os, site.slots, &slot)?.is_none() => site.meet_empty(step)?,
        // On btrfs an fsync of the directory brings the new name to the disk, and the old one stays there as well.
        Err(Errno::EXIST) if is_there(site, step, &slot)? => os.unlink(site.slots, &slot)?,
        Err(Errno::EXIST) => site.set_aside(step, ConflictCopyKind::NameTaken)?,
        // It was removed since it was opened.
        Err(Errno::NOENT | Errno::STALE | Errno::NOTDIR) => {
            site.set_aside(step, ConflictCopyKind::DirectoryGone)?
        }
        // As into itself: its directory is below it by now, and nobody can reach it there to move it away.
        Err(Errno::INVAL) if !mutant::on(Mutant::CircleWaits) => {
            site.set_aside(step, ConflictCopyKind::DirectoryInside)?
        }
        Err(Errno::XDEV) => site.set_aside(step, ConflictCopyKind::NameOnOtherMount)?,
        Err(e) => return Err(e),
    }
    match (site.pass, small) {
        (Pass::Redo, Some(small)) => rewrite(site, n, step, small),
        _ => Ok(()),
    }
}

/// Returns true if an entry's object is at its name, too.
fn is_there<O: Os>(site: &mut Site<'_, O>, step: &Step, slot: &[u8]) -> Result<bool> {
    let Some(dir) = site.directory(&step.at)? else { return Ok(false) };
    let held = identify(site.os, site.slots, slot)?;
    Ok(held.is_some() && held == identify(site.os, &dir, &step.at.name)?)
}

/// Writes a small object's contents again where the power loss took them: its name survived, its bytes were
/// never synced. What can't go there is kept in `aside/`.
fn rewrite<O: Os>(site: &mut Site<'_, O>, n: usize, step: &Step, small: &Small) -> Result<()> {
    if FileType::from_mode(small.mode) != Some(FileType::File) {
        return Ok(());
    }
    let restored = match find(site, step, small)? {
        Found::At(found) => restore(site.os, &Note::of(site, n)?, &found, small)?,
        Found::Gone => return Ok(()),
        Found::Nowhere => Restored::Lacking,
    };
    // What a later record has changed was synced before.
    let is_changed = site.changed_later.is_some_and(|changed| changed(&small.handle));
    match restored {
        Restored::WithoutRights => site.report(step, None, DROPPED),
        Restored::Lacking if !is_changed && !mutant::on(Mutant::LackingContentsDropped) => {
            let write = |os: &O, fd: &O::Fd| write_all(os, fd, &small.content, 0);
            refused::keep_bytes(site, n, step, ConflictCopyKind::ContentsLeft, write)?;
        }
        Restored::Whole | Restored::Lacking => {}
    }
    Ok(())
}

/// Where a file of the record is.
enum Found<Fd> {
    At(Fd),
    Gone,
    /// It has been moved, or removed: an ordinary user can't tell.
    Nowhere,
}

/// Finds it, wherever others have moved it.
fn find<O: Os>(site: &mut Site<'_, O>, step: &Step, small: &Small) -> Result<Found<O::Fd>> {
    let os = site.os;
    if let Some(found) = site.open(&small.handle, &step.at.path, &step.at.name, Open::Path)? {
        return Ok(Found::At(found));
    }
    if !site.walks() || site.may_have_removed(&small.handle) {
        return Ok(Found::Gone);
    }
    // A recovery before this one may have made it again, under another handle.
    let Some(dir) = site.directory(&step.at)? else { return Ok(Found::Nowhere) };
    let is_whole = os.open(&dir, &step.at.name, Open::Read).is_ok_and(|fd| {
        let mut present = vec![0; small.content.len() + 1];
        read_up_to(os, &fd, &mut present, 0).is_ok_and(|got| present[..got] == *small.content)
    });
    Ok(if is_whole { Found::Gone } else { Found::Nowhere })
}

/// The state of a file as a redo finds it.
struct Present {
    stat: Stat,
    time: SmallTime,
    /// Of the contents of the record.
    sectors: Vec<Sector>,
    /// The answer if others have changed it. Where bytes belong and a sector has none, some may have been lost.
    left: Restored,
}

impl Present {
    fn of<O: Os>(os: &O, found: &O::Fd, read: &O::Fd, small: &Small, begun: bool) -> Result<Present> {
        let stat = os.stat(found)?;
        let time = match (begun, later(&stat, small)) {
            (true, _) => SmallTime::Restoring,
            (false, true) => SmallTime::Later,
            (false, false) => SmallTime::Published,
        };
        let mut present = vec![0; small.content.len()];
        let got = read_up_to(os, read, &mut present, 0)?;
        let sector = |n: usize| {
            let at = n * SECTOR_BYTES;
            present.get(at..got.min(at + SECTOR_BYTES)).unwrap_or_default()
        };
        let ours = || small.content.chunks(SECTOR_BYTES).enumerate();
        let sectors = ours().map(|(n, ours)| of_small(ours, sector(n))).collect();
        let lacks = ours().any(|(n, ours)| !is_zeros(ours) && is_zeros(sector(n)));
        let left = if lacks { Restored::Lacking } else { Restored::Whole };
        Ok(Present { stat, time, sectors, left })
    }

    /// Returns true if the contents are written again.
    fn is_restored(&self, small: &Small) -> bool {
        let end = SmallEnd::of(small.content.len(), self.stat.size as usize);
        may_be_lost(end, self.time) && is_restored(&self.sectors, self.time)
    }
}

/// Gives a file the contents of `small` again, unless an outsider has changed it since: then all of it stays.
///
/// Lost bytes read as zeros, or lie past the end. A sector that is neither zeros nor ours is an outsider's,
/// and so is an end within a sector; the time shows only changes that did not set it back. A file that was
/// emptied, or overwritten with zeros, and its time set back, looks like a power loss (residue c in
/// docs/guarantees.md).
fn restore<O: Os>(os: &O, note: &Note<O>, found: &O::Fd, small: &Small) -> Result<Restored> {
    let before = note.read(os)?;
    let begun = before.is_some();
    let rights = match before {
        Some(rights) => rights.after_a_cut(os, found)?,
        None => Rights::of(os, found)?,
    };
    let read = match os.reopen(found, Open::Read) {
        // Of mode 0200 or 0000, and we are not root.
        Err(Errno::ACCESS) => {
            note.make(os, &rights)?;
            open_for_writing(os, found)?
        }
        fd => fd?,
    };
    let present = Present::of(os, found, &read, small, begun)?;
    drop(read);
    if !present.is_restored(small) {
        note.end(os);
        return Ok(present.left);
    }
    // Before the mode is opened: that it was opened here is told by this.
    note.make(os, &rights)?;
    let fd = open_for_writing(os, found)?;
    // Where there are leases, nobody writes from here on to the end.
    let lease = os.lease(&fd, Lease::Write);
    let restored = match lease {
        Err(Errno::AGAIN) => Err(Restored::Lacking),
        _ => {
            let present = Present::of(os, found, &fd, small, begun)?;
            if present.is_restored(small) {
                Ok(present)
            } else {
                Err(present.left)
            }
        }
    };
    let present = match restored {
        Ok(present) => present,
        Err(left) => {
            note.end(os);
            return Ok(left);
        }
    };
    for (n, ours) in small.content.chunks(SECTOR_BYTES).enumerate() {
        if present.sectors[n] == Sector::Lost {
            write_all(os, &fd, ours, (n * SECTOR_BYTES) as u64)?;
        }
    }
    let written = os.stat(&fd)?.mtime;
    let held = lease.is_ok().then_some((&fd, &small.content));
    let restored = if begun { rights.lost(os, found)? } else { rights.give_back(os, found, held)? };
    // An outsider may have set it since.
    let time = if later(&present.stat, small) { small.mtime } else { present.stat.mtime };
    if os.stat(found)?.mtime == written {
        os.utimens(found, None, Some(time))?;
    }
    // On the disk before the note goes: without it the time would hide what a power loss took.
    os.fsync(&fd)?;
    note.end(os);
    let _ = os.lease(&fd, Lease::None);
    Ok(restored)
}

/// The note `tx/<id>-<nonce>.<step>` says that a recovery is writing a file's contents, and holds the file's rights. Its
/// writes move the modification time, and a power loss or a kill may leave that and not the bytes: without a note the
/// next recovery would take both for an outsider's.
struct Note<O: Os> {
    /// `tx/`, and the name there.
    at: Option<(O::Fd, Vec<u8>)>,
}

impl<O: Os> Note<O> {
    fn of(site: &Site<'_, O>, n: usize) -> Result<Note<O>> {
        let (Some(area), Some(body)) = (site.area, site.body) else { return Ok(Note { at: None }) };
        let tx = site.os.open(area, b"tx", Open::Directory)?;
        Ok(Note { at: Some((tx, name_of_step(body, n))) })
    }

    /// The rights that a recovery before this one has noted.
    fn read(&self, os: &O) -> Result<Option<Rights>> {
        let Some((tx, name)) = &self.at else { return Ok(None) };
        let Some(fd) = os.open_if_there(tx, name, Open::Read)? else { return Ok(None) };
        Ok(Some(postcard::from_bytes(&read_file(os, &fd)?).unwrap_or_default()))
    }

    /// Makes it, on the disk, if it is not there.
    fn make(&self, os: &O, rights: &Rights) -> Result<()> {
        let Some((tx, name)) = self.at.as_ref().filter(|_| !mutant::on(Mutant::RestoringNotNoted)) else {
            return Ok(());
        };
        let fd = os.tmpfile(tx, 0o600)?;
        write_all(os, &fd, &postcard::to_allocvec(rights).unwrap_or_default(), 0)?;
        os.fsync(&fd)?;
        match os.link(&fd, tx, name) {
            Ok(()) => os.fsync(tx),
            Err(Errno::EXIST) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Takes it back.
    fn end(&self, os: &O) {
        if let Some((tx, name)) = &self.at {
            let _ = os.unlink(tx, name);
        }
    }
}

/// The time of ours may lie in the future: touch(1) can set any.
fn later(stat: &Stat, small: &Small) -> bool {
    stat.mtime > small.ctime && stat.mtime != small.mtime
}

/// A small file behind its redo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Restored {
    /// It has the contents of the record, or what another process has made of them.
    Whole,
    /// Another process may have changed the bytes since.
    WithoutRights,
    /// Another process has changed it, and bytes of the record may have been lost with the power.
    Lacking,
}

/// Mode and capability of a file whose contents are written again, which the kernel takes away with that.
#[derive(Default, Serialize, Deserialize)]
struct Rights {
    /// Of which they are.
    owner: (u32, u32),
    perm: u32,
    capability: Option<Vec<u8>>,
}

impl Rights {
    fn of<O: Os>(os: &O, found: &O::Fd) -> Result<Rights> {
        let capability = match current_xattr(os, found, CAPABILITY) {
            Err(Errno::OPNOTSUPP) => None,
            value => value?,
        };
        let stat = os.stat(found)?;
        Ok(Rights { owner: (stat.uid, stat.gid), perm: stat.perm(), capability })
    }

    /// Those that a recovery found which was cut off: it may have left the mode open to the owner ([`open_for_writing`]).
    fn after_a_cut<O: Os>(self, os: &O, found: &O::Fd) -> Result<Rights> {
        let (perm, shut) = (os.stat(found)?.perm(), self.perm & !SET_ID);
        if os.uid() != 0 && perm & !SET_ID != shut && perm & !SET_ID == opened(shut) {
            os.chmod(found, shut | perm & SET_ID)?;
        }
        Ok(self)
    }

    /// After a recovery that was cut off root may have taken them away: what is gone stays gone, and is reported.
    fn lost<O: Os>(&self, os: &O, found: &O::Fd) -> Result<Restored> {
        let now = Rights::of(os, found)?;
        let lost =
            self.perm & SET_ID & !now.perm != 0 || self.capability.is_some() && now.capability.is_none();
        Ok(if lost { Restored::WithoutRights } else { Restored::Whole })
    }

    /// Gives them back to the contents of the record, in a file under a lease: no process can have other bytes there.
    fn give_back<O: Os>(&self, os: &O, found: &O::Fd, held: Option<(&O::Fd, &Vec<u8>)>) -> Result<Restored> {
        let now = os.stat(found)?;
        let perm = now.perm();
        let lost = self.perm & SET_ID & !perm;
        if lost == 0 && self.capability.is_none() || mutant::on(Mutant::RightsNotGivenBack) {
            return Ok(Restored::Whole);
        }
        let same = (now.uid, now.gid) == self.owner || mutant::on(Mutant::RightsOfAnyOwner);
        let Some((fd, content)) = held.filter(|_| same) else { return Ok(Restored::WithoutRights) };
        let mut present = vec![0; content.len() + 1];
        let got = read_up_to(os, fd, &mut present, 0)?;
        // The rest of the mode may be another process's by now.
        if present[..got] != **content || (lost != 0 && perm | lost != self.perm) {
            return Ok(Restored::WithoutRights);
        }
        if lost != 0 {
            os.chmod(found, self.perm)?;
        }
        let Some(value) = &self.capability else { return Ok(Restored::Whole) };
        match os.setxattr(found, CAPABILITY, value, SetXattr::Any) {
            // Its owner can't.
            Err(Errno::PERM) if os.uid() != 0 => Ok(Restored::WithoutRights),
            set => set.map(|()| Restored::Whole),
        }
    }
}

/// Opens a file for writing, also one that its owner himself may not write to (mode 0444). Root is never kept
/// out.
///
/// There is no other way than another mode for a moment. A kill in that moment is made good when the record
/// is redone: by [`Rights::of`], and by the ATTR step that made the mode what it is.
pub(super) fn open_for_writing<O: Os>(os: &O, found: &O::Fd) -> Result<O::Fd> {
    match os.reopen(found, Open::ReadWrite) {
        Err(Errno::ACCESS) => {
            let perm = os.stat(found)?.perm();
            os.chmod(found, opened(perm))?;
            let opened = os.reopen(found, Open::ReadWrite);
            os.chmod(found, perm)?;
            opened
        }
        opened => opened,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::TxId;
    use crate::record::{Act, At};
    use systx_os::{FsKind, Timestamp};
    use systx_sim::machine::{run_process, Call, Crash, Effect, Fault, Machine, SimOs};

    /// A file of a user's in the root, and how its record describes it.
    fn file(os: &SimOs, content: &[u8], present: &[u8], mode: u32) -> (<SimOs as Os>::Fd, Small) {
        let fd = os.create(&os.root(0), b"f", 0o600).expect("works");
        os.pwrite(&fd, present, 0).expect("works");
        os.chmod(&fd, mode).expect("works");
        let stat = os.stat(&fd).expect("works");
        let small = Small {
            handle: os.handle(&fd).expect("works"),
            ctime: stat.ctime,
            mode: stat.mode & !0o7777 | 0o444,
            uid: stat.uid,
            gid: stat.gid,
            rdev: 0,
            mtime: stat.mtime,
            content: content.to_vec(),
            xattrs: Vec::new(),
        };
        (os.open(&os.root(0), b"f", Open::Path).expect("works"), small)
    }

    /// The note of a recovery.
    fn note(os: &SimOs) -> Note<SimOs> {
        match os.mkdir(&os.root(0), b"tx", 0o700) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => panic!("{error}"),
        }
        let tx = os.open(&os.root(0), b"tx", Open::Directory).expect("works");
        Note { at: Some((tx, b"1-000000000000000f.0".to_vec())) }
    }

    /// Returns the contents of the file after a redo, and its mode.
    fn restored(os: &SimOs, content: &[u8], present: &[u8], mode: u32) -> (Vec<u8>, u32) {
        let (found, small) = file(os, content, present, mode);
        restore(os, &note(os), &found, &small).expect("works");
        let mut bytes = vec![0; content.len() + present.len()];
        let fd = os.reopen(&found, Open::Read).expect("works");
        let got = read_up_to(os, &fd, &mut bytes, 0).expect("works");
        bytes.truncate(got);
        let perm = os.stat(&found).expect("works").perm();
        os.unlink(&os.root(0), b"f").expect("works");
        (bytes, perm)
    }

    #[test]
    fn only_what_a_power_loss_leaves_is_filled_again() {
        let machine = Machine::with(FsKind::Ext4);
        let os = machine.spawn("redo");
        let ours = [[1; 512], [2; 512], [3; 512]].concat();
        let restored = |present: &[u8]| restored(&os, &ours, present, 0o444).0;
        for lost in [&[][..], &[0; 1536], &ours[..512], &[&[1; 512][..], &[0; 1024]].concat()] {
            assert!(restored(lost) == ours);
        }
        let his = [&[1; 512][..], &[0; 512], &[7; 512]].concat();
        for kept in [&his[..], &[1; 100], &[0; 100], &[0; 1537], b"his", &[&ours[..], b"more"].concat()] {
            assert!(restored(kept) == kept);
        }
    }

    #[test]
    fn a_time_in_the_future_hides_no_change_of_an_outsider() {
        let machine = Machine::with(FsKind::Ext4);
        let os = machine.spawn("redo");
        let (found, small) = file(&os, b"contents", b"", 0o644);
        let behind = |sec| Timestamp { sec: small.ctime.sec + sec, nsec: 0 };
        let small = Small { mtime: behind(1_000_000), ..small };
        for (mtime, left) in [(behind(1), 0), (behind(2_000_000), 0), (small.mtime, 8), (behind(-1), 8)] {
            let fd = os.reopen(&found, Open::ReadWrite).expect("works");
            os.truncate(&fd, 0).expect("works");
            os.utimens(&fd, None, Some(mtime)).expect("works");
            drop(fd);
            restore(&os, &note(&os), &found, &small).expect("works");
            assert_eq!(os.stat(&found).expect("works").size, left, "{mtime:?}");
        }
    }

    #[test]
    fn a_power_loss_at_any_call_of_filling_a_file_again_is_followed_by_another_try() {
        let machine = Machine::with(FsKind::Ext4);
        let ours = [[1; 512], [2; 512], [3; 512]].concat();
        let (_, small) = file(&machine.spawn("owner"), &ours, b"", 0o444);
        drop(note(&machine.spawn("owner")));
        machine.settle();
        let fills = |os: &SimOs| {
            let found = os.open(&os.root(0), b"f", Open::Path).expect("is there");
            restore(os, &note(os), &found, &small)
        };
        for point in 0.. {
            let mut whole = false;
            for crash in Crash::WORST.into_iter().chain([Crash::Random; 8]) {
                let machine = machine.fork();
                let os = machine.spawn("redo");
                machine.kill_at(&os, point);
                whole = run_process(&os, || fills(&os).expect("works")).is_ok();
                machine.power_loss(crash, &mut fastrand::Rng::with_seed(point));
                // A reader moves the access time.
                let os = machine.spawn("reader");
                let found = os.open(&os.root(0), b"f", Open::Path).expect("is there");
                os.utimens(&found, Some(os.now()), None).expect("works");
                fills(&machine.spawn("redo")).expect("works");
                let found = machine.look(0, "f").expect("is there");
                assert!(found.content == ours, "{crash:?} at call {point}: {} bytes", found.size);
                let os = machine.spawn("reader");
                let stat = os.stat_at(&os.root(0), b"f").expect("is there");
                assert_eq!(stat.mtime, small.mtime, "{crash:?} at call {point}");
                assert!(note(&os).read(&os).expect("works").is_none(), "{crash:?} at call {point}");
            }
            if whole {
                break;
            }
        }
    }

    #[test]
    fn a_mode_that_a_killed_recovery_left_open_is_set_right() {
        let machine = Machine::with(FsKind::Ext4);
        let user = machine.spawn_as("redo", 1000);
        for present in [&b"contents"[..], b""] {
            for (begun, mode) in [(true, 0o444), (false, 0o644)] {
                let (found, small) = file(&user, b"contents", present, 0o644);
                if begun {
                    note(&user).make(&user, &Rights { perm: 0o444, ..Rights::default() }).expect("works");
                }
                restore(&user, &note(&user), &found, &small).expect("works");
                let perm = user.stat(&found).expect("works").perm();
                assert_eq!(perm, mode, "begun {begun}: else it is an outsider's");
                user.unlink(&user.root(0), b"f").expect("works");
            }
        }
        // Root is never kept out: that mode is an outsider's.
        let root = machine.spawn("redo");
        assert_eq!(restored(&root, b"contents", b"", 0o644).1, 0o644);
    }

    #[test]
    fn a_file_that_another_process_may_be_writing_is_left_as_it_is() {
        let machine = Machine::with(FsKind::Ext4);
        let os = machine.spawn("redo");
        let (found, mut small) = file(&os, b"contents", b"", 0o4755);
        small.mode = small.mode & !0o7777 | 0o4755;
        os.setxattr(&found, CAPABILITY, b"all", SetXattr::Any).expect("works");
        let other = machine.spawn("other");
        let _open = other.open(&other.root(0), b"f", Open::ReadWrite).expect("opens");
        assert_eq!(restore(&os, &note(&os), &found, &small), Ok(Restored::Lacking));
        assert_eq!(os.stat(&found).expect("works").size, 0);
    }

    /// A recovery behind one that was killed at any call gives nothing that root may have taken away, and reports it.
    #[test]
    fn what_writing_contents_again_takes_away_is_given_back() {
        for (uid, taken) in [(0, false), (1000, false), (0, true), (1000, true)] {
            let machine = Machine::with(FsKind::Ext4);
            let os = machine.spawn_as("owner", uid);
            let (found, mut small) = file(&os, b"contents", b"", 0o4755);
            small.mode = small.mode & !0o7777 | 0o4755;
            if uid == 0 {
                os.setxattr(&found, CAPABILITY, b"all", SetXattr::Any).expect("works");
                small.xattrs.push((CAPABILITY.to_vec(), b"all".to_vec()));
            }
            drop(note(&os));
            machine.settle();
            let fills = |os: &SimOs| {
                let found = os.open(&os.root(0), b"f", Open::Path).expect("is there");
                restore(os, &note(os), &found, &small)
            };
            for point in 0.. {
                let machine = machine.fork();
                let os = machine.spawn_as("redo", uid);
                machine.kill_at(&os, point);
                let whole = run_process(&os, || fills(&os).expect("works"));
                if taken && whole.is_err() {
                    let root = machine.spawn("root");
                    let found = root.open(&root.root(0), b"f", Open::Path).expect("is there");
                    root.chmod(&found, 0o755).expect("works");
                }
                let os = machine.spawn_as("redo", uid);
                let told = fills(&os).expect("works");
                let found = os.open(&os.root(0), b"f", Open::Path).expect("is there");
                let is_there = os.stat(&found).expect("works").perm() == 0o4755
                    && current_xattr(&os, &found, CAPABILITY).expect("works").is_some() == (uid == 0);
                let at = format!("{uid}, taken away {taken}: killed at call {point}, {told:?}");
                match whole {
                    Ok(whole) => assert!(is_there && whole == Restored::Whole, "{at}"),
                    Err(_) if taken => assert!(!is_there, "given back, {at}"),
                    Err(_) => assert!(is_there || told == Restored::WithoutRights, "unreported, {at}"),
                }
                if whole.is_ok() {
                    break;
                }
            }
        }
    }

    /// Another process gives the file away while its contents are written: the bits would be the new owner's.
    #[test]
    fn rights_that_were_another_owners_are_not_given_back() {
        for (uid, before) in (0..12).flat_map(|n| [(0, n), (1000, n)]) {
            let machine = Machine::with(FsKind::Ext4);
            let os = machine.spawn_as("redo", uid);
            let (found, mut small) = file(&os, b"contents", b"", 0o4755);
            small.mode = small.mode & !0o7777 | 0o4755;
            let (note, mut calls) = (note(&os), 0);
            machine.set_hook(move |machine, _| {
                let root = machine.outsider("root");
                let f = root.open(&root.root(0), b"f", Open::Path).expect("is there");
                calls += u64::from(root.stat(&f).expect("works").size > 0);
                if calls == before {
                    root.chown(&f, 5, 6).expect("works");
                }
            });
            let told = restore(&os, &note, &found, &small);
            machine.clear_hook();
            let f = machine.look(0, "f").expect("is there");
            let is_theirs = f.owner == (5, 6) && f.mode & 0o4000 != 0;
            assert!(!is_theirs, "before call {before}: set-id bits of another owner's, {told:?}");
        }
    }

    /// A directory that can't be entered now does not show whether a step was taken: the staging entry does,
    /// and it is empty.
    #[test]
    fn a_step_that_was_taken_is_finished_though_its_directory_cant_be_opened() {
        let machine = Machine::with(FsKind::Ext4);
        let os = machine.spawn("owner");
        let root = crate::objects::Top::<SimOs>::whole(os.root(0));
        for name in [&b"slots"[..], b"aside", b"d"] {
            os.mkdir(&root, name, 0o700).expect("works");
        }
        let open = |name: &[u8]| os.open(&root, name, Open::Directory).expect("works");
        let (slots, aside, dir) = (open(b"slots"), open(b"aside"), open(b"d"));
        os.create(&slots, b"0", 0o600).expect("works");
        let at = At { dir: os.handle(&dir).expect("works"), path: b"d".to_vec(), name: b"new".to_vec() };
        let step = Step { slot: 0, at, act: Act::Place { small: None } };
        let take = || {
            let mut site = Site::new(&os, &root, &slots, &aside, TxId(1), Pass::First);
            place(&mut site, 0, &step, None).map(|()| site.conflict_copies.len())
        };
        let shut = |errno| {
            let (call, effect) = (Some(Call::OpenHandle), Effect::Fail(errno));
            machine.fault(Fault { process: None, call, skip: 0, times: u64::MAX, effect });
        };
        for errno in [Errno::IO, Errno::ACCESS, Errno::MFILE, Errno::NOMEM] {
            shut(errno);
            assert_eq!(take(), Err(errno), "it is still to be taken");
            machine.clear_plans();
        }
        assert_eq!(take(), Ok(0));
        for errno in [Errno::IO, Errno::ACCESS, Errno::MFILE, Errno::NOMEM] {
            shut(errno);
            assert_eq!(take(), Ok(0), "{errno}: it was taken");
            machine.clear_plans();
        }
        assert!(os.stat_at(&dir, b"new").is_ok() && os.stat_at(&slots, b"0") == Err(Errno::NOENT));
    }
}
