//! Outcomes of transactions, kept beside the log for participants that have not heard of them
//! (docs/protocol.md §3, C).
//!
//! Owns: the directory `decided/` of the area, with one file a checkpoint or verb. Guarantees: a decision is
//! on the disk before the log lets go of the record that it replaces, and goes when all participants that it
//! is kept for have answered, on the disk; no person can make it go before that. Does not: ask participants
//! ([`crate::recovery::Logs`] does).
//!
//! A file: magic `SYSTXDEC`, version (u32), CRC32C of the rest (u32), postcard of a list of [`Decision`].

use super::Area;
use crate::id::TxId;
use crate::record::Share;
use serde::{Deserialize, Serialize};
use systx_os::{Errno, Open, Os, Rename, Result};

const DIR: &[u8] = b"decided";
const MAGIC: &[u8; 8] = b"SYSTXDEC";
const VERSION: u32 = 1;
const HEAD: usize = 16;
/// Longer than any that is written.
const BYTES_MAX: u64 = 64 << 20;

/// One transaction's end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// Number here.
    pub id: TxId,
    /// Nonce.
    pub nonce: u64,
    /// True if it is committed.
    pub committed: bool,
    /// Command, for messages.
    pub command: String,
    /// The party that decided.
    pub by: By,
}

/// The party that decided, and those that the decision is kept for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum By {
    /// Its record in this area, which coordinated it. Kept until these have answered.
    Record {
        /// Those that have promised.
        participants: Vec<Share>,
        /// Those that live as long as the boot, and the boot.
        companions: Vec<Share>,
        /// Which boot that is.
        boot: [u8; 16],
        /// True if a person has silenced it.
        silenced: bool,
    },
    /// A person, as its coordinator was away. Kept until it returns, and compared.
    Hand {
        /// The coordinator.
        coordinator: Share,
    },
}

/// A file of decisions.
pub(crate) struct Kept {
    pub name: Vec<u8>,
    pub decisions: Vec<Decision>,
}

/// All decisions of the area behind `dir`.
///
/// # Errors
/// `BADMSG` for a file that can't be understood.
pub(crate) fn all<O: Os>(os: &O, dir: &O::Fd) -> Result<Vec<Kept>> {
    let Some(decided) = os.open_if_there(dir, DIR, Open::Directory)? else { return Ok(Vec::new()) };
    let mut all = Vec::new();
    for entry in os.read_dir(&decided)? {
        // One that was never finished says nothing: the log still has what it was to stand for.
        if entry.name.ends_with(b"~") {
            continue;
        }
        let Some(file) = os.open_if_there(&decided, &entry.name, Open::Read)? else { continue };
        let size = os.stat(&file)?.size;
        if size > BYTES_MAX {
            return Err(Errno::BADMSG);
        }
        let (mut bytes, mut done) = (vec![0; size as usize], 0);
        while done < bytes.len() {
            match os.pread(&file, &mut bytes[done..], done as u64)? {
                0 => break,
                n => done += n,
            }
        }
        let decisions = decode(&bytes[..done]).ok_or(Errno::BADMSG)?;
        all.push(Kept { name: entry.name, decisions });
    }
    all.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(all)
}

/// Keeps decisions: on the disk when it returns.
pub(crate) fn keep<O: Os>(os: &O, dir: &O::Fd, decisions: &[Decision]) -> Result<()> {
    if decisions.is_empty() {
        return Ok(());
    }
    let made = match os.mkdir(dir, DIR, 0o700) {
        Err(Errno::EXIST) => false,
        made => made.map(|()| true)?,
    };
    let decided = os.open(dir, DIR, Open::Directory)?;
    write(os, &decided, format!("{:016x}", os.random()).as_bytes(), decisions)?;
    // A directory that another process has just made may have no name on the disk, either.
    if made {
        os.fsync(dir)
    } else {
        os.fsync(dir).or(Ok(()))
    }
}

fn write<O: Os>(os: &O, decided: &O::Fd, name: &[u8], decisions: &[Decision]) -> Result<()> {
    let temporary = [name, format!(".{:016x}~", os.random()).as_bytes()].concat();
    let (bytes, mut done) = (encode(decisions), 0);
    let file = os.create(decided, &temporary, 0o600)?;
    while done < bytes.len() {
        done += os.pwrite(&file, &bytes[done..], done as u64)?;
    }
    os.fsync(&file)?;
    os.rename((decided, &temporary), (decided, name), Rename::Replace)?;
    os.fsync(decided)
}

/// Replaces what a file says; with nothing left it goes. Who does so at the same time leaves more, never less
/// than both.
pub(crate) fn update<O: Os>(os: &O, dir: &O::Fd, kept: &Kept) -> Result<()> {
    let decided = os.open(dir, DIR, Open::Directory)?;
    if kept.decisions.is_empty() {
        match os.unlink(&decided, &kept.name) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(e),
        }
    } else {
        write(os, &decided, &kept.name, &kept.decisions)
    }
}

/// The end of the transaction with that number and nonce, if it is kept.
pub(crate) fn of(all: &[Kept], id: TxId, nonce: u64) -> Option<&Decision> {
    all.iter().flat_map(|kept| &kept.decisions).find(|d| d.id == id && d.nonce == nonce)
}

/// Highest number of a transaction that is kept.
pub(crate) fn highest<O: Os>(os: &O, area: &Area<O>) -> Result<u64> {
    let all = all(os, &area.dir)?;
    Ok(all.iter().flat_map(|kept| &kept.decisions).map(|d| d.id.0).max().unwrap_or(0))
}

fn encode(decisions: &[Decision]) -> Vec<u8> {
    let rest = postcard::to_allocvec(decisions).unwrap_or_else(|e| unreachable!("encoding decisions: {e}"));
    let crc = crc32c::crc32c(&rest);
    [&MAGIC[..], &VERSION.to_le_bytes(), &crc.to_le_bytes(), &rest].concat()
}

fn decode(bytes: &[u8]) -> Option<Vec<Decision>> {
    let (head, rest) = bytes.split_at_checked(HEAD)?;
    let word = |at: usize| u32::from_le_bytes(core::array::from_fn(|n| head[at + n]));
    let whole = &head[..8] == MAGIC && word(8) == VERSION && word(12) == crc32c::crc32c(rest);
    whole.then(|| postcard::from_bytes(rest).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use systx_os::FsKind;
    use systx_sim::machine::{Crash, Machine};

    fn decision(id: u64, nonce: u64) -> Decision {
        let participants = vec![Share { area: [3; 16], id: TxId(9) }];
        let by = By::Record { participants, companions: Vec::new(), boot: [1; 16], silenced: false };
        Decision { id: TxId(id), nonce, committed: true, command: "make".into(), by }
    }

    #[test]
    fn damaged_bytes_are_no_decisions() {
        let bytes = encode(&[decision(1, 2), decision(3, 4)]);
        assert_eq!(decode(&bytes), Some(vec![decision(1, 2), decision(3, 4)]));
        for at in 0..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1;
            assert_eq!(decode(&bytes), None, "{at}");
            assert_eq!(decode(&bytes[..at]), None);
        }
    }

    #[test]
    fn what_is_kept_survives_a_power_loss_until_it_goes() {
        let machine = Machine::with(FsKind::Ext4);
        let lose = || machine.power_loss(Crash::NothingUnsynced, &mut fastrand::Rng::with_seed(1));
        let dir = |os: &systx_sim::machine::SimOs| os.open(&os.root(0), b"a", Open::Directory).unwrap();
        let os = machine.spawn("keeps");
        os.mkdir(&os.root(0), b"a", 0o700).unwrap();
        machine.settle();
        keep(&os, &dir(&os), &[decision(1, 2), decision(2, 3)]).unwrap();
        lose();
        let os = machine.spawn("again");
        let mut found = all(&os, &dir(&os)).unwrap();
        assert!(of(&found, TxId(2), 3).is_some() && of(&found, TxId(2), 2).is_none());
        found[0].decisions.pop();
        update(&os, &dir(&os), &found[0]).unwrap();
        lose();
        let os = machine.spawn("last");
        let mut found = all(&os, &dir(&os)).unwrap();
        assert_eq!(found[0].decisions, [decision(1, 2)]);
        found[0].decisions.clear();
        update(&os, &dir(&os), &found[0]).unwrap();
        assert!(all(&os, &dir(&os)).unwrap().is_empty());
    }
}
