//! The private directories of transactions: `tx/<id>.<owner>~` while one prepares, `tx/<id>` from then on.
//!
//! Guarantees: the name of an unsealed one has its owner, so that the owner's successor finds it; a sealed
//! one is complete, and noted as its owner's until an active entry or the log names it ([`super::sealed`]).
//! Does not: put anything in.

use super::{marks, own_file};
use super::{Domain, Sealed};
use crate::id::{OwnerIx, TxId};
use crate::mutant::{self, Mutant};
use crate::objects::remove_all;
use std::sync::Arc;
use systx_os::{FileType, Open, Os, Rename, Result};

impl<O: Os> Domain<O> {
    /// Makes the private staging directory of a new transaction: `tx/<id>.<owner>~`.
    #[cfg(test)]
    pub(crate) fn begin_staging(&self) -> Result<(TxId, O::Fd)> {
        let id = self.new_tx();
        Ok((id, self.begin_staging_of(id)?))
    }

    /// Makes the private staging directory of a transaction that has its number already.
    pub(crate) fn begin_staging_of(&self, id: TxId) -> Result<O::Fd> {
        self.ours()?;
        let name = self.staging_name(id);
        self.os.mkdir(&self.area.tx, &name, 0o700)?;
        self.os.open(&self.area.tx, &name, Open::Directory)
    }

    /// Where marks are, if they prove something here.
    pub(crate) fn marks(&self) -> Option<&O::Fd> {
        marks::prove_on(self.info.kind).then_some(&self.area.tx)
    }

    /// Stands for the slots of a record that has none.
    pub(crate) fn no_slots(&self) -> Arc<O::Fd> {
        self.area.tx.clone()
    }

    /// Gives the staging directory its final name `tx/<id>`: the last act before the record is written. The
    /// value that is returned is kept until it has its number.
    pub(crate) fn seal_staging(self: &Arc<Self>, id: TxId) -> Result<Sealed<O>> {
        self.ours()?;
        let noted = Sealed::note(self, id);
        if mutant::on(Mutant::NoSeal) {
            return Ok(noted);
        }
        let (from, to) = (self.staging_name(id), id.to_string());
        self.os.rename((&self.area.tx, &from), (&self.area.tx, to.as_bytes()), Rename::NoReplace)?;
        Ok(noted)
    }

    /// Takes a seal off again, of a commit that has failed and whose transaction stays: a sealed directory
    /// that no record needs is an orphan.
    pub(crate) fn unseal_staging(&self, id: TxId) {
        if !self.is_ours() {
            return;
        }
        let (from, to) = (id.to_string(), self.staging_name(id));
        // There is none where the record carries everything, or the shared staging directory has it.
        let _ = self.os.rename((&self.area.tx, from.as_bytes()), (&self.area.tx, &to), Rename::NoReplace);
    }

    /// Notes that a transaction's sealed directory is in use, until the value is dropped.
    pub(crate) fn keep_sealed(self: &Arc<Self>, id: TxId) -> Sealed<O> {
        Sealed::note(self, id)
    }

    fn staging_name(&self, id: TxId) -> Vec<u8> {
        if mutant::on(Mutant::NoSeal) {
            return id.to_string().into_bytes();
        }
        format!("{id}.{}~", self.me().0).into_bytes()
    }

    /// Deletes the staging directory of a transaction that does not happen, sealed or not. What can't be deleted is
    /// left to `systx prune`. A forked child deletes nothing: it is its parent's.
    pub fn discard_staging(&self, id: TxId) {
        if !self.is_ours() {
            return;
        }
        let (unsealed, sealed) = (self.staging_name(id), id.to_string().into_bytes());
        for name in [&unsealed[..], &sealed[..]] {
            if let Ok(dir) = self.os.open(&self.area.tx, name, Open::Directory) {
                let _ = remove_all(&self.os, &dir);
                let _ = self.os.rmdir(&self.area.tx, name);
            }
        }
    }

    /// Deletes the unsealed staging directories of an owner that is dead.
    pub(crate) fn discard_unsealed_of(&self, ix: OwnerIx) -> Result<()> {
        let suffix = format!(".{}~", ix.0);
        for entry in self.os.read_dir(&self.area.tx)? {
            if entry.name.ends_with(suffix.as_bytes()) && entry.kind == FileType::Directory {
                let dir = self.os.open(&self.area.tx, &entry.name, Open::Directory)?;
                remove_all(&self.os, &dir)?;
                self.os.rmdir(&self.area.tx, &entry.name)?;
            }
        }
        Ok(())
    }

    /// The file whose sync closes a stage barrier.
    pub(crate) fn barrier_file(&self) -> Result<Arc<O::Fd>> {
        let mut barrier = self.barrier.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(fd) = &*barrier {
            return Ok(fd.clone());
        }
        let fd = own_file::open_or_make(&self.os, &self.area.dir, b"barrier")?;
        Ok(barrier.insert(Arc::new(fd)).clone())
    }
}
