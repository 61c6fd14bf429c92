//! Owners: which processes take part in a domain, and whether they still live.
//!
//! Owns: the file `owners` of the area; each process owns one byte of it. Guarantees: an index belongs to one living
//! process at a time. Does not: finish what the last owner of an index left; whoever claims an index must, *before* it
//! does anything else in the domain: [`super::RobustLock::inherit`], then the slots of that index (docs/protocol.md §4),
//! then [`super::Records::clear`].

use crate::id::{OwnerIx, OWNERS};
use crate::mutant::{self, Mutant};
use systx_os::{Errno, Open, Os};

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
    /// As many processes take part as can.
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

/// Bytes of those that watch: behind the owners, as they have no slots and nobody finishes anything for them.
const WATCHERS: core::ops::Range<u64> = OWNERS as u64..OWNERS as u64 + 64;

/// Keeps the table that processes meet in now, in the area whose directory is `dir`, from being built anew for as long as the answer lives:
/// for who will work there soon. `None`: nobody has ever used that area, or as many watch as can.
///
/// # Errors
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

impl<O: Os> Owners<O> {
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
        Ok(Owners { os: os.clone(), file: file.map_err(|e| OwnersError::Os("open", e))? })
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

    /// Claims one index, if it is free: for its helper. `Ok(None)`: somebody living owns it.
    ///
    /// # Errors
    /// [`OwnersError::Os`].
    pub fn claim_of(&self, ix: OwnerIx) -> Result<Option<Claim<O>>, OwnersError> {
        if ix.0 == 0 || ix.0 >= OWNERS {
            return Ok(None);
        }
        Ok(self.byte(ix.0)?.map(|byte| Claim { ix, _byte: byte }))
    }

    /// Whether that owner lives. What can't be asked counts as alive: to wait is safe, to take over is not.
    pub fn alive(&self, ix: OwnerIx) -> bool {
        self.os.byte_owned(&self.file, u64::from(ix.0)).unwrap_or(true)
    }

    /// Byte 0: whoever holds it builds the table.
    pub(crate) fn initialiser(&self) -> Result<Option<O::Owned>, OwnersError> {
        self.byte(0)
    }

    /// Whether anybody takes part at the moment, or watches.
    pub(crate) fn anybody(&self) -> bool {
        let watched = || self.watched() && !mutant::on(Mutant::WatchersUnseen);
        (1..OWNERS).any(|ix| self.alive(OwnerIx(ix))) || watched()
    }

    /// Whether anybody watches, see [`watch`].
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
