//! Properties that a directory of the committed tree passes on to new objects, besides owner and lists: inode
//! flags, encryption, names without case.
//!
//! Owns: the look at it, once a directory. Guarantees: a new object gets the flags that the kernel would have
//! given it, at once, as some of them count for empty files only; or making it fails, as does everything that
//! publication could not do. Does not: know of projects ([`crate::commit`] gives them).

use super::Workset;
use crate::mutant::{self, Mutant};
use crate::outcome::Verb;
use crate::workset::node::Ix;
use std::sync::Arc;
use systx_os::{inode_flag, Errno, FileType, FsKind, Os};

/// The flags that a new object gets of its directory's.
///
/// Source: EXT4_FL_INHERITED and ext4_mask_flags, btrfs_inherit_iflags, xfs_inode_inherit_flags, SHMEM_FL_INHERITED.
pub(crate) fn passed_on(kind: FsKind, flags: u32, to: FileType) -> u32 {
    use inode_flag::*;
    let all = match kind {
        FsKind::Ext4 | FsKind::Ext4NoJournal => {
            SECRM | UNRM | SYNC | NODUMP | NOATIME | JOURNAL_DATA | NOTAIL | DIRSYNC
        }
        FsKind::Xfs => SYNC | NODUMP | NOATIME,
        FsKind::Btrfs => NOCOW | NOCOMP,
        FsKind::Tmpfs => NODUMP | NOATIME,
        FsKind::Other(_) => 0,
    };
    match to {
        FileType::Directory => flags & all,
        FileType::File => flags & all & !DIRSYNC,
        // They can be given to files and directories alone, and mean nothing elsewhere.
        _ => 0,
    }
}

impl<O: Os> Workset<O> {
    /// Inode flags of a directory of the committed tree; none of one that was made here: what is made in that
    /// gets its flags by itself.
    fn flags_of(&mut self, dir: Ix) -> Verb<u32> {
        if self.object(dir).is_staged() {
            return Ok(0);
        }
        if let Some(known) = self.object(dir).dir.as_ref().and_then(|d| d.flags) {
            return Ok(known);
        }
        let kind = self.mounts[usize::from(self.object(dir).mount)].info.kind;
        let flags = match kind {
            FsKind::Other(_) => 0,
            _ => {
                let fd = self.base_fd(dir)?;
                self.os.inode_flags(&fd)?
            }
        };
        if let Some(directory) = &mut self.object_mut(dir).dir {
            directory.flags = Some(flags);
        }
        Ok(flags)
    }

    /// A descriptor of a directory of the committed tree.
    fn base_fd(&mut self, dir: Ix) -> Verb<Arc<O::Fd>> {
        Ok(self.lower_dir(dir)?.kept().ok_or(Errno::STALE)?)
    }

    /// The flags of a new object of a directory.
    ///
    /// # Errors
    /// `EOPNOTSUPP`: what is made elsewhere can't be put into that directory.
    pub(crate) fn flags_for_new(&mut self, dir: Ix, kind: FileType) -> Verb<u32> {
        let flags = self.flags_of(dir)?;
        if flags & (inode_flag::ENCRYPT | inode_flag::CASEFOLD) != 0 {
            return Err(Errno::OPNOTSUPP.into());
        }
        let fs = self.mounts[usize::from(self.object(dir).mount)].info.kind;
        if mutant::on(Mutant::FlagsNotPassedOn) {
            return Ok(0);
        }
        Ok(passed_on(fs, flags, kind))
    }

    /// Checks that a name may go: two names that differ in case are one there, and two here.
    pub(crate) fn may_lose_names(&mut self, dir: Ix) -> Verb<()> {
        if self.folds_case(dir)? {
            return Err(Errno::OPNOTSUPP.into());
        }
        Ok(())
    }

    /// Whether names that differ in case alone are one in a directory.
    pub(crate) fn folds_case(&mut self, dir: Ix) -> Verb<bool> {
        Ok(self.flags_of(dir)? & inode_flag::CASEFOLD != 0)
    }

    /// Checks that an object of one directory may get a name in another: into an encrypted one comes only
    /// what is encrypted alike.
    ///
    /// # Errors
    ///
    /// `EXDEV`, as the kernel answers.
    pub(crate) fn may_arrive(&mut self, from: Ix, to: Ix) -> Verb<()> {
        self.may_lose_names(to)?;
        if from == to || self.flags_of(to)? & inode_flag::ENCRYPT == 0 {
            return Ok(());
        }
        if self.object(from).is_staged() {
            return Err(Errno::XDEV.into());
        }
        let (here, there) = (self.base_fd(from)?, self.base_fd(to)?);
        if self.os.encryption_policy(&here)? == self.os.encryption_policy(&there)? {
            Ok(())
        } else {
            Err(Errno::XDEV.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_get_what_concerns_files_and_others_nothing() {
        use inode_flag::*;
        let all = u32::MAX;
        assert_eq!(passed_on(FsKind::Ext4, all, FileType::Directory) & DIRSYNC, DIRSYNC);
        assert_eq!(passed_on(FsKind::Ext4, all, FileType::File) & (DIRSYNC | SYNC), SYNC);
        assert_eq!(passed_on(FsKind::Btrfs, NOCOW | SYNC, FileType::File), NOCOW);
        assert_eq!(passed_on(FsKind::Ext4, all, FileType::Symlink), 0);
        assert_eq!(passed_on(FsKind::Other(1), all, FileType::File), 0);
    }
}
