//! Owners: the processes that take part in a domain, and whether they still live.
//!
//! Owns: the file `owners` of the area; each process owns one byte of it. Guarantees: an index belongs to one
//! living process at a time. Does not: finish what the last owner of an index left; a process that claims an
//! index must, *before* it does anything else in the domain: [`RobustLock::inherit`](crate::lock::RobustLock::inherit), then the active
//! entries of that index (docs/protocol.md §4), then [`super::Records::clear`].

use crate::id::{OwnerIx, OWNERS};
use crate::mutant::{self, Mutant};
use systx_os::{Errno, FileType, Open, Os, Stat};

/// The owners file of a domain.
pub struct Owners<O: Os> {
    os: O,
    file: O::Fd,
}

/// A claimed index; given up on drop.
pub struct Claim<O: Os> {
    /// The index.
    pub ix: OwnerIx,
    _byte: O::Owned,
}

impl<O: Os> core::fmt::Debug for Claim<O> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.ix.fmt(f)
    }
}

/// Why there is no owner index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OwnersError {
    /// All indexes are taken.
    Full,
    /// The owners file could not be used.
    Os(&'static str, Errno),
}

impl core::fmt::Display for OwnersError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            OwnersError::Full => write!(
                f,
                "{} processes already run transactions on this file system; wait for some of them to end",
                OWNERS - 1
            ),
            OwnersError::Os(what, e) => write!(f, "could not {what} the file `owners` of the area: {e}"),
        }
    }
}

impl std::error::Error for OwnersError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            OwnersError::Os(_, e) => Some(e),
            OwnersError::Full => None,
        }
    }
}

/// Bytes of watching processes: behind the owners, as they have no active entries that a successor would
/// finish.
const WATCHERS: core::ops::Range<u64> = OWNERS as u64..OWNERS as u64 + 64;

/// Keeps the present table of the area whose directory is `dir` from being built anew for as long as the
/// result lives: for a process that will work there soon. `None`: that area was never used, or all such bytes
/// are taken.
///
/// # Errors
///
/// [`OwnersError::Os`].
pub fn watch<O: Os>(os: &O, dir: &O::Fd) -> Result<Option<O::Owned>, OwnersError> {
    let failed = |e| OwnersError::Os("open", e);
    let Some(file) = os.open_if_there(dir, b"owners", Open::ReadWrite).map_err(failed)? else {
        return Ok(None);
    };
    let first = os.random() % WATCHERS.count() as u64;
    for n in 0..WATCHERS.count() as u64 {
        match os.own_byte(&file, WATCHERS.start + (first + n) % WATCHERS.count() as u64) {
            Ok(owned) => return Ok(Some(owned)),
            Err(Errno::AGAIN) => {}
            Err(e) => return Err(OwnersError::Os("lock a byte of", e)),
        }
    }
    Ok(None)
}

/// Byte of the attendant, behind the watching processes, whose promises it does not share.
const ATTENDANT: u64 = WATCHERS.end;

/// The one process of an area that finishes for the others when they die.
pub struct Attendant<O: Os> {
    owners: Owners<O>,
    _byte: O::Owned,
}

impl<O: Os> Attendant<O> {
    /// Becomes that of the area whose directory is `dir`. `None`: it has one.
    ///
    /// # Errors
    /// [`OwnersError::Os`].
    pub fn of(os: &O, dir: &O::Fd) -> Result<Option<Attendant<O>>, OwnersError> {
        let owners = Owners::open(os, dir)?;
        match os.own_byte(&owners.file, ATTENDANT) {
            Ok(byte) => Ok(Some(Attendant { owners, _byte: byte })),
            Err(Errno::AGAIN) => Ok(None),
            Err(e) => Err(OwnersError::Os("lock a byte of", e)),
        }
    }

    /// The owners that live now.
    pub fn living(&self) -> std::collections::BTreeSet<u32> {
        (1..OWNERS).filter(|ix| self.owners.alive(OwnerIx(*ix))).collect()
    }

    /// Is it no more. Owners that have come before that have seen one, so they are looked for once more.
    pub fn resign(self) -> Owners<O> {
        self.owners
    }

    /// The file that each owner opens when it comes, and closes when it goes.
    pub fn file(&self) -> &O::Fd {
        &self.owners.file
    }
}

impl<O: Os> Owners<O> {
    /// The file.
    pub(super) fn file(&self) -> &O::Fd {
        &self.file
    }

    /// Returns true if there is an attendant, or that can't be known. To be asked by a living owner: an attendant that
    /// is about to go looks for owners once more when it has given up its byte.
    pub fn are_attended(&self) -> bool {
        self.os.byte_owned(&self.file, ATTENDANT).unwrap_or(true)
    }

    /// The kernel that they were opened with.
    pub(super) fn os(&self) -> &O {
        &self.os
    }

    /// Opens, or makes, the owners file of an area.
    ///
    /// # Errors
    /// [`OwnersError::Os`].
    pub fn open(os: &O, dir: &O::Fd) -> Result<Owners<O>, OwnersError> {
        let file = match os.create(dir, b"owners", 0o600) {
            Err(Errno::EXIST) => os.open(dir, b"owners", Open::ReadWrite),
            made => made,
        };
        let failed = |e| OwnersError::Os("open", e);
        let file = file.map_err(failed)?;
        let stat = os.stat(&file).map_err(failed)?;
        if !Self::may_be_used(os, &stat) && !mutant::on(Mutant::LocksOfAnybody) {
            return Err(OwnersError::Os("use", Errno::PERM));
        }
        Ok(Owners { os: os.clone(), file })
    }

    /// Returns true for a file of this user's that nobody else may open: others can't have locked it by this name.
    pub(super) fn may_be_used(os: &O, stat: &Stat) -> bool {
        stat.kind() == FileType::File && stat.uid == os.uid() && stat.perm() & 0o077 == 0
    }

    /// Claims a free index for this process.
    ///
    /// # Errors
    /// [`OwnersError::Full`] when there is none.
    pub fn claim(&self) -> Result<Claim<O>, OwnersError> {
        // Anywhere first, so that many that start at once do not all try the same bytes.
        let indexes = u64::from(OWNERS) - 1;
        let first = self.os.random() % indexes;
        for n in 0..indexes {
            let byte = 1 + (first + n) % indexes;
            match self.os.own_byte(&self.file, byte) {
                Ok(owned) => return Ok(Claim { ix: OwnerIx(byte as u32), _byte: owned }),
                Err(Errno::AGAIN) => {}
                Err(e) => return Err(OwnersError::Os("lock a byte of", e)),
            }
        }
        Err(OwnersError::Full)
    }

    /// Claims one index, if it is free: for its successor. `Ok(None)`: a living process owns it.
    ///
    /// # Errors
    ///
    /// [`OwnersError::Os`].
    pub fn claim_of(&self, ix: OwnerIx) -> Result<Option<Claim<O>>, OwnersError> {
        if ix.0 == 0 || ix.0 >= OWNERS {
            return Ok(None);
        }
        Ok(self.byte(ix.0)?.map(|byte| Claim { ix, _byte: byte }))
    }

    /// Returns true if that owner lives, or can't be asked: to wait is safe, to take over is not.
    pub fn alive(&self, ix: OwnerIx) -> bool {
        self.os.byte_owned(&self.file, u64::from(ix.0)).unwrap_or(true)
    }

    /// Byte 0: its holder builds the table.
    pub(crate) fn initialiser(&self) -> Result<Option<O::Owned>, OwnersError> {
        self.byte(0)
    }

    /// Returns true if any process takes part at the moment, or watches.
    pub(crate) fn anybody(&self) -> bool {
        let watched = || self.watched() && !mutant::on(Mutant::WatchersUnseen);
        self.have_any() || watched()
    }

    /// Returns true if any process takes part at the moment.
    pub fn have_any(&self) -> bool {
        (1..OWNERS).any(|ix| self.alive(OwnerIx(ix)))
    }

    /// Returns true if any process watches, see [`watch`].
    pub(crate) fn watched(&self) -> bool {
        WATCHERS.into_iter().any(|byte| self.os.byte_owned(&self.file, byte).unwrap_or(true))
    }

    fn byte(&self, byte: u32) -> Result<Option<O::Owned>, OwnersError> {
        match self.os.own_byte(&self.file, u64::from(byte)) {
            Ok(owned) => Ok(Some(owned)),
            Err(Errno::AGAIN) => Ok(None),
            Err(e) => Err(OwnersError::Os("lock a byte of", e)),
        }
    }
}
