//! Which area this is, and whether it is where it was made: the contents of the file `format`.
//!
//! Guarantees: an area keeps its identity, 128 random bits, under every kernel and device number. What an
//! area that was copied has to redo is never redone in the copy; a copy with nothing to redo gets an identity
//! of its own. What tells a copy are *signs*: the UUID of the file system, its f_fsid, the handle of the
//! area's directory and the time at which that was made. Each is compared with its own kind only: kernels differ in
//! which they tell. Nor is a log ever redone that an archive has brought along, unless a living process has it locked.
//! An archive has whatever bytes, owners and flags its maker likes, but allocates nothing: so a block is allocated far
//! behind the end of the file, which no archiver restores and no copy takes along. What can allocate for a stranger is
//! a stream of btrfs-receive(8). Against that stand the handles and times of the directory and of the file itself: a
//! handle can be foretold (btrfs counts), the instant of making is guessed within a tick of mostly 4 ms, and no call
//! sets it. Others must not be able to write the file: a hard link in an archive can give its name to one of theirs.
//! Does not: tell a copied device from its original, which has the same signs (see [`super::Peers`]).
//!
//! Lines of the file: `systx area 2` · `identity` and 32 hexadecimal digits · `before` and the digits that
//! older segments of the log have instead · `uuid`, `fsid`, `handle`, `file`: the signs that were known,
//! the last two of the directory and the file, each with the time at which it was made. Before
//! version 2 an area was `systx area 1`, and the segments of its log said the UUID, the f_fsid, or zeros and
//! a device number. That proves nothing: such an area goes on if there is nothing to redo, as a copy does.

use super::owners::{Owners, OwnersError};
use crate::id::AreaId;
use crate::log;
use crate::mutant::{self, Mutant};
use systx_os::{Errno, Fallocate, FsInfo, FsKind, Handle, Open, Os, Rename, Timestamp};

pub(super) const FORMAT: &[u8] = b"format";

/// `format.<number>`: a format file on its way.
pub(super) const TEMPORARY: &[u8] = b"format.";

/// Why an area cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AreaError {
    /// Something else has its name.
    NotADirectory,
    /// Another user's.
    Owner(u32),
    /// Others can enter it; its permission bits.
    Mode(u32),
    /// `format` is not ours, or of another version.
    Version,
    /// It is not where it was made, or may not be, for this reason, and its log has something to redo.
    Copied(&'static str),
    /// It is to get an identity while programs use it.
    InUse,
    /// Its log can't be read, so its contents are unknown.
    Unread,
    /// The owners can't be asked.
    Owners(OwnersError),
    /// An operation failed.
    Os(&'static str, Errno),
}

impl core::fmt::Display for AreaError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            AreaError::NotADirectory => {
                write!(f, "the area is no directory; move away what has its name")
            }
            AreaError::Owner(uid) => {
                write!(f, "the area belongs to user {uid}; move it away, systx makes a new one")
            }
            AreaError::Mode(mode) => {
                write!(
                    f,
                    "the area has mode {mode:04o} and others may have changed it; look at it, \
                    then chmod it to 0700"
                )
            }
            AreaError::Version => {
                write!(
                    f,
                    "the file `format` of the area is damaged, or of a later version of systx: use the version \
                    that made it, or, if that is this one, remove the file"
                )
            }
            AreaError::Copied(sign) => {
                write!(
                    f,
                    "the area was copied or put back from elsewhere ({sign}), and its log has \
                    transactions to finish: a copied area is not replayed. Mount the original alone, or give them up by \
                    moving log/ away"
                )
            }
            AreaError::InUse => {
                write!(f, "programs of another version of systx, or of before the area was put back, use it: end them, then try again")
            }
            AreaError::Unread => write!(f, "the log/ of the area can't be read; look at it, or move it away"),
            AreaError::Owners(e) => e.fmt(f),
            AreaError::Os(what, e) => write!(f, "could not {what} of the area: {e}"),
        }
    }
}

impl std::error::Error for AreaError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            AreaError::Os(_, e) => Some(e),
            AreaError::Owners(e) => Some(e),
            _ => None,
        }
    }
}

/// Whether an area that has lost its file `format` is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Used {
    /// By a living process: its log has the identity that this one knows.
    Now,
    /// By none.
    Not,
}

const OLDER: &[u8] = b"systx area 1\n";
const FIRST_LINE: &str = "systx area 2";
/// Longer than any that this version writes.
const BYTES_MAX: usize = 1024;
/// Where the block behind its end is. File systems allocate at most 1 GiB (xfs) for what may be appended, and from the
/// end on, as archivers do that are told a size beforehand; each has files of that size.
const BEHIND: u64 = 2 << 40;
/// S_IWGRP | S_IWOTH.
const WRITABLE_FOR_OTHERS: u32 = 0o022;
/// Pause between two looks at an area that another process gives its identity, in nanoseconds.
const LOOK_AGAIN_NS: u64 = 2_000_000;

/// The contents of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "there is one, for a moment")]
enum Said {
    /// Of this version.
    Ours(Identity),
    /// Of an area without identity of its own.
    Older,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    id: AreaId,
    signs: Signs,
}

/// Properties in which a copy most likely differs from its original.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Signs {
    uuid: Option<[u8; 16]>,
    fsid: Option<u64>,
    dir: Option<Made>,
    /// Of the file `format`.
    file: Option<Made>,
    /// That file is none that systx has made. Never said.
    strange: bool,
}

/// What is known of the file itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct File {
    made: Option<Made>,
    /// No other user can have written it.
    ours_alone: bool,
    /// It has the block behind its end, or nothing can tell.
    reserved: bool,
}

/// An object, and when it was made, where that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Made {
    handle: Handle,
    when: Option<Timestamp>,
}

impl Made {
    fn of<O: Os>(os: &O, fd: &O::Fd) -> Option<Made> {
        Some(Made { handle: os.handle(fd).ok()?, when: os.made(fd).ok().flatten() })
    }

    /// Returns true if they can be the same object.
    fn may_be(&self, now: &Made) -> bool {
        let same_time = self.when.is_none() || now.when.is_none() || self.when == now.when;
        self.handle == now.handle && (same_time || mutant::on(Mutant::MadeAtAnyTime))
    }

    /// Returns true if `was` does not say all that is known now.
    fn is_lacked_by(now: Option<Made>, was: Option<Made>) -> bool {
        let when = |made: Option<Made>| made.and_then(|made| made.when);
        (was.is_none() && now.is_some()) || (when(was).is_none() && when(now).is_some())
    }

    fn encode(self) -> String {
        let when = self.when.map(|when| format!(" {}.{:09}", when.sec, when.nsec));
        format!("{} {}{}", self.handle.kind, hex(self.handle.as_bytes()), when.unwrap_or_default())
    }

    fn decode(text: &str) -> Option<Made> {
        let mut words = text.split(' ');
        let (kind, bytes) = (words.next()?.parse().ok()?, unhex(words.next()?)?);
        let when = words.next().map(|when| {
            let (sec, nsec) = when.split_once('.')?;
            Some(Timestamp { sec: sec.parse().ok()?, nsec: nsec.parse().ok()? })
        });
        let when = match when {
            Some(when) => Some(when?),
            None => None,
        };
        Some(Made { handle: Handle::new(kind, &bytes)?, when })
    }
}

impl Signs {
    fn of<O: Os>(os: &O, dir: &O::Fd, info: &FsInfo) -> Signs {
        // In a view of a transaction numbers of objects last as long as the kernel remembers them.
        let lasts = info.life != FsInfo::LIVES_ONCE || info.kind == FsKind::Tmpfs;
        let dir = Made::of(os, dir).filter(|_| info.handles && lasts);
        Signs { uuid: info.uuid, fsid: info.fsid, dir, file: None, strange: false }
    }

    /// With the file that says them.
    fn in_file(self, file: Option<Made>) -> Signs {
        Signs { file: self.dir.and(file), ..self }
    }

    /// The sign that an area is not where it was made.
    fn copied(&self, now: &Signs) -> Option<&'static str> {
        fn differ<T: PartialEq>(was: Option<T>, now: Option<T>) -> bool {
            matches!((was, now), (Some(was), Some(now)) if was != now)
        }
        let another = |was: Option<Made>, now: Option<Made>| matches!((was, now), (Some(was), Some(now)) if !was.may_be(&now));
        if mutant::on(Mutant::KindsMixed) {
            let any = |s: &Signs| s.uuid.or(s.fsid.map(|fsid| u128::from(fsid).to_le_bytes()));
            return differ(any(self), any(now)).then_some("UUID");
        }
        if mutant::on(Mutant::CopyGoesOn) {
            return None;
        }
        [
            (differ(self.uuid, now.uuid), "the UUID of its file system is another one"),
            (differ(self.fsid, now.fsid), "the f_fsid of its file system is another one"),
            (another(self.dir, now.dir), "the inode of its directory is another one"),
            (
                another(self.file, now.file) && !mutant::on(Mutant::FormatOfAnybody),
                "the inode of its file `format` is another one",
            ),
        ]
        .into_iter()
        .find_map(|(differs, what)| differs.then_some(what))
    }

    /// What says, or leaves open, that the area was made elsewhere. Of a UUID kernels before Linux 6.9 tell nothing.
    fn unproven(&self, now: &Signs) -> Option<&'static str> {
        let lacks = Made::is_lacked_by(now.dir, self.dir)
            || Made::is_lacked_by(now.file, self.file)
            || (self.fsid.is_none() && now.fsid.is_some());
        let open = lacks && !mutant::on(Mutant::SignsNotNeeded);
        let says = open.then_some("its file `format` does not say where it was made");
        self.copied(now).or(says).or(now.strange.then_some("its file `format` was not made by systx"))
    }

    /// With what was not known when they were written.
    fn and(&self, now: &Signs) -> Signs {
        Signs {
            uuid: self.uuid.or(now.uuid),
            fsid: self.fsid.or(now.fsid),
            dir: self.dir.or(now.dir),
            file: self.file.or(now.file),
            strange: self.strange,
        }
    }
}

impl Identity {
    fn encode(&self) -> Vec<u8> {
        let mut text = format!("{FIRST_LINE}\nidentity {}\n", hex(&self.id.id));
        let mut line = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                text += &format!("{name} {value}\n");
            }
        };
        line("before", self.id.was.map(|was| hex(&was)));
        line("uuid", self.signs.uuid.map(|uuid| hex(&uuid)));
        line("fsid", self.signs.fsid.map(|fsid| format!("{fsid:016x}")));
        line("handle", self.signs.dir.map(Made::encode));
        line("file", self.signs.file.map(Made::encode));
        text.into_bytes()
    }

    fn decode(bytes: &[u8]) -> Option<Identity> {
        let text = core::str::from_utf8(bytes).ok()?;
        let mut lines = text.lines().peekable();
        if lines.next() != Some(FIRST_LINE) {
            return None;
        }
        let mut value = |name: &str| {
            let is_it = |line: &&str| line.split_once(' ').is_some_and(|(found, _)| found == name);
            lines.next_if(is_it).and_then(|line| line.split_once(' ')).map(|(_, value)| value)
        };
        let identity = value("identity")?;
        let (before, uuid, fsid) = (value("before"), value("uuid"), value("fsid"));
        let (dir, file) = (value("handle"), value("file"));
        let id = AreaId { id: sixteen(identity)?, was: before.and_then(sixteen) };
        let (dir, file) = (dir.and_then(Made::decode), file.and_then(Made::decode));
        let fsid = fsid.and_then(|text| u64::from_str_radix(text, 16).ok());
        let found =
            Identity { id, signs: Signs { uuid: uuid.and_then(sixteen), fsid, dir, file, strange: false } };
        // Whatever is not understood in full is of another version.
        (found.encode() == bytes).then_some(found)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.is_ascii().then_some(text.as_bytes())?;
    digits.chunks(2).map(|two| u8::from_str_radix(core::str::from_utf8(two).ok()?, 16).ok()).collect()
}

fn sixteen(text: &str) -> Option<[u8; 16]> {
    unhex(text)?.try_into().ok()
}

fn random<O: Os>(os: &O) -> [u8; 16] {
    let halves = [os.random(), os.random()].map(u64::to_le_bytes);
    core::array::from_fn(|n| halves[n / 8][n % 8])
}

fn failed(what: &'static str) -> impl Fn(Errno) -> AreaError {
    move |e| AreaError::Os(what, e)
}

/// Writes the file of a new area, whose directory is `dir`, under a name of its own. The log of one that is in
/// use stays the area's: programs that tidy a directory like /tmp delete files one by one, `format` among them.
pub(super) fn write_new<O: Os>(
    os: &O,
    dir: &O::Fd,
    name: &[u8],
    info: &FsInfo,
    used: Used,
) -> Result<(), AreaError> {
    let written = log::written_for(os, dir).ok().flatten();
    let id = match written.filter(|_| used == Used::Now) {
        Some(id) => AreaId::new(id),
        None => AreaId { id: random(os), was: written },
    };
    write(os, dir, name, &Identity { id, signs: Signs::of(os, dir, info) })
}

fn write<O: Os>(os: &O, dir: &O::Fd, name: &[u8], identity: &Identity) -> Result<(), AreaError> {
    let file = os.create(dir, name, 0o600).map_err(failed("make the file `format`"))?;
    let signs = identity.signs.in_file(Made::of(os, &file));
    if signs.dir.is_some() {
        reserve(os, &file)?;
    }
    let (bytes, mut done) = (Identity { signs, ..*identity }.encode(), 0);
    while done < bytes.len() {
        let write = os.pwrite(&file, &bytes[done..], done as u64);
        done += write.map_err(failed("write the file `format`"))?;
    }
    os.fsync(&file).map_err(failed("write the file `format`"))
}

/// Allocates the block behind the end; returns false where the file system can't.
fn reserve<O: Os>(os: &O, file: &O::Fd) -> Result<bool, AreaError> {
    match os.fallocate(file, Fallocate::KeepSize, BEHIND, 1) {
        Err(Errno::OPNOTSUPP | Errno::FBIG) => Ok(false),
        done => done.map(|()| true).map_err(failed("allocate room behind the file `format`")),
    }
}

/// Returns true if an archiver, or another user, can have made the file: by experiment if it has no block behind its
/// end, since some file systems allocate none there (ext4 without extents).
fn is_strange<O: Os>(os: &O, dir: &O::Fd, file: File) -> Result<bool, AreaError> {
    if !file.ours_alone && !mutant::on(Mutant::FormatOfOthers) {
        return Ok(true);
    }
    if file.reserved || mutant::on(Mutant::AllocatedByAnybody) {
        return Ok(false);
    }
    let try_it = os.tmpfile(dir, 0o600).map_err(failed("make a file"))?;
    reserve(os, &try_it)
}

fn replace<O: Os>(os: &O, dir: &O::Fd, identity: &Identity) -> Result<(), AreaError> {
    let temporary = [TEMPORARY, format!("{:016x}", os.random()).as_bytes()].concat();
    write(os, dir, &temporary, identity)?;
    os.rename((dir, &temporary), (dir, FORMAT), Rename::Replace).map_err(failed("name the file `format`"))?;
    os.fsync(dir).map_err(failed("sync the directory"))
}

/// What the file says, and which it is. `None`: it has not been made to its end.
fn read<O: Os>(os: &O, dir: &O::Fd) -> Result<Option<(Said, File)>, AreaError> {
    let file = os.open_if_there(dir, FORMAT, Open::Read).map_err(failed("open the file `format`"))?;
    let Some(file) = file else { return Ok(None) };
    let mut bytes = [0; BYTES_MAX];
    let n = os.pread(&file, &mut bytes, 0).map_err(failed("read the file `format`"))?;
    let said = match &bytes[..n] {
        OLDER => Said::Older,
        bytes => Identity::decode(bytes).map(Said::Ours).ok_or(AreaError::Version)?,
    };
    let stat = os.stat(&file).map_err(failed("look at the file `format`"))?;
    let ours_alone = stat.uid == os.uid() && stat.perm() & WRITABLE_FOR_OTHERS == 0;
    let reserved = match os.reserved_at(&file, BEHIND) {
        Err(Errno::OPNOTSUPP) => true,
        found => found.map_err(failed("look at the file `format`"))?,
    };
    Ok(Some((said, File { made: Made::of(os, &file), ours_alone, reserved })))
}

/// The identity that an area of this user says it has, whether it is that one or a copy. `None`: there is none, or it
/// can't be read.
pub fn said_at<O: Os>(os: &O, parent: &O::Fd, name: &[u8]) -> Option<[u8; 16]> {
    let dir = os.open(parent, name, Open::Directory).ok()?;
    if os.stat(&dir).ok()?.uid != os.uid() {
        return None;
    }
    match read(os, &dir).ok()?? {
        (Said::Ours(Identity { id, .. }), _) => Some(id.id),
        (Said::Older, _) => None,
    }
}

/// The identity of an area; one that has none yet, or that was copied and has nothing to redo, gets one.
/// `None`: its file is not there yet.
///
/// # Errors
/// `Copied`, `InUse`; nothing was changed.
pub(super) fn of_area<O: Os>(os: &O, dir: &O::Fd, info: &FsInfo) -> Result<Option<AreaId>, AreaError> {
    let now = Signs::of(os, dir, info);
    loop {
        let Some((found, file)) = read(os, dir)? else { return Ok(None) };
        // Without a handle that lasts, as in a view, the file got no block when it was made.
        let file = File { reserved: file.reserved || now.dir.is_none(), ..file };
        let now = Signs { strange: is_strange(os, dir, file)?, ..now.in_file(file.made) };
        let unproven = match found {
            Said::Ours(Identity { id, signs }) => match signs.unproven(&now) {
                None if signs.and(&now) == signs => return Ok(Some(id)),
                unproven => unproven.is_some(),
            },
            Said::Older => true,
        };
        if unproven {
            remove_owners_of_others(os, dir)?;
        }
        let owners = Owners::open(os, dir).map_err(AreaError::Owners)?;
        // Byte 0: no other process gives it an identity, or builds its table, meanwhile.
        let Some(_byte) = owners.initialiser().map_err(AreaError::Owners)? else {
            os.pause(LOOK_AGAIN_NS);
            continue;
        };
        if read(os, dir)? != Some((found, file)) {
            continue;
        }
        return settle(os, dir, &owners, found, &now).map(Some);
    }
}

/// Refuses an area whose log has something to redo, and else takes its table away, which may look like one of
/// this very life. As the only one who may change it.
fn forget_what_is_done<O: Os>(os: &O, dir: &O::Fd, id: AreaId, sign: &'static str) -> Result<(), AreaError> {
    // An unreadable log may have to be redone.
    let needed = log::outline(os, dir, id).map_or(true, |o| o.replay.records.iter().any(|r| r.needed));
    if needed {
        return Err(AreaError::Copied(sign));
    }
    match os.unlink(dir, b"table") {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(e) => Err(AreaError::Os("remove the file `table`", e)),
    }
}

/// Looks at an area that is to get its file `format`, before it does. One that has a log already has lost
/// that file to a program that tidies a directory like /tmp, or was made by an archive: it is ours if
/// somebody has it locked who may enter it.
///
/// # Errors
/// `Copied`: it may have been made by an archive, and its log has something to redo.
pub(super) fn without_format<O: Os>(os: &O, dir: &O::Fd) -> Result<Used, AreaError> {
    let looked = |name: &[u8]| match os.stat_at(dir, name) {
        Err(Errno::NOENT) => Ok(false),
        stat => stat.map(|_| true).map_err(failed("look at the files")),
    };
    remove_owners_of_others(os, dir)?;
    if !(looked(b"log")? || looked(b"table")?) {
        return Ok(Used::Not);
    }
    let owners = Owners::open(os, dir).map_err(AreaError::Owners)?;
    loop {
        if looked(FORMAT)? {
            return Ok(Used::Not);
        }
        if owners.anybody() || mutant::on(Mutant::SignsNotNeeded) {
            return Ok(Used::Now);
        }
        // Byte 0: nobody builds its table meanwhile.
        if let Some(_byte) = owners.initialiser().map_err(AreaError::Owners)? {
            let written = log::written_for(os, dir).map_err(|_| AreaError::Unread)?;
            let id = AreaId { id: written.unwrap_or_default(), was: None };
            return forget_what_is_done(os, dir, id, "it has lost its file `format`").map(|()| Used::Not);
        }
        os.pause(LOOK_AGAIN_NS);
    }
}

/// Removes the file `owners` of an area that may have come from elsewhere, if others can have locked it: an
/// archive can make it another name of a file that another user, or a daemon, has open.
fn remove_owners_of_others<O: Os>(os: &O, dir: &O::Fd) -> Result<(), AreaError> {
    let ours_alone = match os.stat_at(dir, b"owners") {
        Ok(stat) => Owners::may_be_used(os, &stat) && stat.nlink == 1,
        Err(Errno::NOENT) => true,
        Err(e) => return Err(AreaError::Os("look at the file `owners`", e)),
    };
    if ours_alone || mutant::on(Mutant::LocksOfAnybody) {
        return Ok(());
    }
    match os.unlink(dir, b"owners") {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(e) => Err(AreaError::Os("remove the file `owners`", e)),
    }
}

/// Holding byte 0, as the only process that may change it.
fn settle<O: Os>(
    os: &O,
    dir: &O::Fd,
    owners: &Owners<O>,
    found: Said,
    now: &Signs,
) -> Result<AreaId, AreaError> {
    let (was, copied) = match found {
        Said::Ours(Identity { id, signs }) => match signs.unproven(now) {
            None => {
                // Without room for the file the next opening tries again.
                let _ = replace(os, dir, &Identity { id, signs: signs.and(now) });
                return Ok(id);
            }
            sign => (Some(id.id), sign),
        },
        Said::Older => {
            let written = log::written_for(os, dir).map_err(|_| AreaError::Unread)?;
            // What its segments say, the UUID or f_fsid of the file system, any user may ask for.
            let unproven = written.filter(|_| !mutant::on(Mutant::SignsNotNeeded));
            (written, unproven.map(|_| "its file `format` is too old to say where it was made"))
        }
    };
    if owners.anybody() {
        return Err(AreaError::InUse);
    }
    if let Some(sign) = copied {
        let before = AreaId { id: was.unwrap_or_default(), was: None };
        let before = match found {
            Said::Ours(Identity { id, .. }) => id,
            Said::Older => before,
        };
        forget_what_is_done(os, dir, before, sign)?;
    }
    let id = AreaId { id: random(os), was };
    replace(os, dir, &Identity { id, signs: *now })?;
    Ok(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signs() -> Signs {
        Signs { uuid: Some([1; 16]), fsid: Some(7), dir: made(3, 40), file: made(5, 50), strange: false }
    }

    fn made(byte: u8, nsec: u32) -> Option<Made> {
        let handle = Handle::new(-1, &[byte; 8]).expect("is short");
        Some(Made { handle, when: Some(Timestamp { sec: -7, nsec }) })
    }

    fn untimed(made: Option<Made>) -> Option<Made> {
        made.map(|made| Made { when: None, ..made })
    }

    #[test]
    fn what_is_written_is_read_and_nothing_else() {
        for was in [None, Some([9; 16])] {
            let partly = [Signs { uuid: None, ..signs() }, Signs { dir: untimed(signs().dir), ..signs() }];
            for signs in [Signs::default(), signs()].into_iter().chain(partly) {
                let identity = Identity { id: AreaId { id: [0xab; 16], was }, signs };
                let bytes = identity.encode();
                assert!(bytes.len() < BYTES_MAX);
                assert_eq!(Identity::decode(&bytes), Some(identity));
                for cut in 0..bytes.len() {
                    assert_ne!(Identity::decode(&bytes[..cut]), Some(identity));
                }
                assert_eq!(Identity::decode(&[&bytes[..], b"more\n"].concat()), None);
            }
        }
        for text in [&b""[..], OLDER, b"systx area 2\n", b"systx area 2\nidentity 00\n", b"\xff\xfe"] {
            assert_eq!(Identity::decode(text), None);
        }
    }

    #[test]
    fn each_sign_is_compared_with_its_own_kind() {
        let all = signs();
        for now in [
            Signs { uuid: None, ..all },
            Signs { fsid: None, ..all },
            Signs { dir: None, ..all },
            Signs { file: None, ..all },
            Signs { dir: untimed(all.dir), ..all },
            Signs::default(),
            all,
        ] {
            assert_eq!(all.copied(&now), None, "{now:?}");
            assert_eq!(now.copied(&all), None, "{now:?}");
            assert_eq!(
                now.unproven(&all).is_some(),
                now.dir != all.dir || now.file != all.file || now.fsid != all.fsid
            );
        }
        assert!(all.copied(&Signs { uuid: Some([2; 16]), ..all }).is_some_and(|sign| sign.contains("UUID")));
        assert!(all.copied(&Signs { fsid: Some(8), ..all }).is_some_and(|sign| sign.contains("f_fsid")));
        assert_eq!(all.copied(&Signs { strange: true, ..all }), None);
        assert!(all.unproven(&Signs { strange: true, ..all }).is_some());
        let elsewhere = Signs { dir: made(4, 40), ..all };
        assert!(all.copied(&elsewhere).is_some_and(|sign| sign.contains("inode of its directory")));
        for (dir, says) in [(made(4, 40), "inode"), (made(3, 41), "inode")] {
            assert!(all.copied(&Signs { dir, ..all }).is_some_and(|sign| sign.contains(says)));
        }
        let another = Signs { file: made(5, 51), ..all };
        assert!(all.copied(&another).is_some_and(|sign| sign.contains("inode of its file")));
    }
}
