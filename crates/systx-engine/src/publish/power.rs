//! Set-id bits, capabilities and root's ownership are given to the bytes that were validated, and to no
//! others (docs/protocol.md C6).
//!
//! Owns: the hold on a file between the comparison of its bytes and the call that gives them power: a lease,
//! so that no process has it open for writing, and a hash from the record. Guarantees: bytes that are written
//! after the final look, or after a power loss, get none of it. Does not: go by times, which the record's own
//! steps move.

use super::site::Site;
use crate::bytes::{next_data, read_up_to};
use crate::mutant::{self, Mutant};
use crate::outcome::ConflictCopyKind;
use crate::record::Step;
use sha2::{Digest, Sha256};
use std::sync::Arc;
use systx_os::{Errno, Handle, Lease, Open, Os, Result};

/// Bytes that are hashed at a time.
const CHUNK_BYTES: usize = 256 * 1024;

/// The text about changes that are not made.
pub(super) const DROPPED: ConflictCopyKind = ConflictCopyKind::PowerNotGiven;

/// A file whose bytes are the validated ones, and stay so until this is dropped.
pub(super) struct Hold<'a, O: Os> {
    os: &'a O,
    fd: Arc<O::Fd>,
    /// `None`: there are no leases.
    lease: Option<Lease>,
    /// To be given back: the file stays open elsewhere.
    taken: bool,
}

impl<O: Os> Hold<'_, O> {
    /// Returns true if no other process has got the file open for writing since its bytes were compared, or waits for
    /// that: its right to do so was looked at before it began to wait, so it would have a file with power in its hands, and
    /// store into that through a mapping.
    pub fn is_sure(&self) -> bool {
        // A write lease becomes a read lease for those that wait to read.
        let holds = |kind, held| held == kind || held == Lease::Read;
        self.lease.is_none_or(|kind| self.os.lease_held(&self.fd).is_ok_and(|held| holds(kind, held)))
    }
}

impl<O: Os> Drop for Hold<'_, O> {
    fn drop(&mut self) {
        if self.taken {
            let _ = self.os.lease(&self.fd, Lease::None);
        }
    }
}

/// Takes hold of a file; `None`: its bytes are not those that were validated, or a process may be changing
/// them.
pub(super) fn hold<'a, O: Os>(
    site: &Site<'a, O>,
    step: &Step,
    object: &Handle,
    bytes: &[u8; 32],
) -> Result<Option<Hold<'a, O>>> {
    let os = site.os;
    // A file that this very publication has open for writing is ours alone under a write lease only.
    let (fd, kind) = match site.patch_targets.get(object) {
        Some(fd) => (fd.clone(), Lease::Write),
        None => match site.open(object, &step.at.path, &step.at.name, Open::Read) {
            Ok(Some(fd)) => (Arc::new(fd), Lease::Read),
            // Under a lease of a process that has it open for writing; or readable for root only.
            Ok(None) | Err(Errno::AGAIN | Errno::ACCESS | Errno::PERM) => return Ok(None),
            Err(e) => return Err(e),
        },
    };
    let held = kind == Lease::Write && os.lease_held(&fd) == Ok(Lease::Write);
    let leased = held || (!mutant::on(Mutant::PowerUnleased) && os.lease(&fd, kind) != Err(Errno::AGAIN));
    // In a view of an outer transaction there are no leases: there the bytes alone are compared, and once
    // more by its commit.
    let unheld = !leased && !mutant::on(Mutant::PowerUnleased);
    if unheld && site.area.is_none_or(|area| os.fs_info(area).is_ok_and(|info| info.leases)) {
        return Ok(None);
    }
    let hold = Hold { os, fd, lease: leased.then_some(kind), taken: leased && !held };
    let same = mutant::on(Mutant::PowerByName) || hash(os, &hold.fd)? == *bytes;
    Ok((same && (hold.is_sure() || mutant::on(Mutant::WaitingUnseen))).then_some(hold))
}

/// Hash of a file's bytes.
fn hash<O: Os>(os: &O, fd: &O::Fd) -> Result<[u8; 32]> {
    let size = os.stat(fd)?.size;
    BytesHash::of(size, |bytes, at| {
        let at = block_of(next_data(os, fd, at)).min(size);
        Ok((at, read_up_to(os, fd, bytes, at)?))
    })
}

/// SHA-256 of a file's bytes, since a mere checksum can be met on purpose: of each block that is not all
/// zeros its place and its bytes, and of the size.
#[derive(Default)]
pub(crate) struct BytesHash(Sha256);

/// Of such blocks zeros are left out.
const BLOCK_BYTES: usize = 4096;

/// Where the block begins in which a byte stands.
pub(crate) fn block_of(at: u64) -> u64 {
    at / BLOCK_BYTES as u64 * BLOCK_BYTES as u64
}

impl BytesHash {
    /// The hash of a file of `size` bytes. `next` reads from an offset on and may pass over zeros, of which a sparse file has
    /// very many: it says where the bytes stand that it has read, the start of a block, and how many they are.
    pub fn of<E>(
        size: u64,
        mut next: impl FnMut(&mut [u8], u64) -> std::result::Result<(u64, usize), E>,
    ) -> std::result::Result<[u8; 32], E> {
        let (mut hash, mut at, mut bytes) = (BytesHash::default(), 0, vec![0; CHUNK_BYTES]);
        while at < size {
            let (from, got) = next(&mut bytes, at)?;
            hash.add(from, &bytes[..got]);
            at = from + got as u64;
            if got < bytes.len() {
                break;
            }
        }
        Ok(hash.finish(size))
    }

    /// Adds bytes that begin `at`, a multiple of the block's size. Only the last ones of a file may end elsewhere.
    pub fn add(&mut self, at: u64, bytes: &[u8]) {
        const ZEROS: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];
        for (n, block) in bytes.chunks(BLOCK_BYTES).enumerate() {
            if *block != ZEROS[..block.len()] {
                self.0.update((at + (n * BLOCK_BYTES) as u64).to_le_bytes());
                self.0.update(block);
            }
        }
    }

    /// The hash of a file of that size, in bytes.
    pub fn finish(mut self, size: u64) -> [u8; 32] {
        self.0.update(size.to_le_bytes());
        self.0.finalize().into()
    }
}
