//! Names: looking them up, making, moving and removing them.

use crate::call::Call;
use crate::view::View;
use crate::wire::layout::{LinkIn, MkdirIn, MknodIn, Rename2In, RenameIn};
use crate::wire::{Lasts, Reply};
use std::os::fd::AsFd;
use systx_engine::outcome::Verb;
use systx_os::{Errno, Os, Rename};

/// RENAME_NOREPLACE and RENAME_EXCHANGE of renameat2(2). RENAME_WHITEOUT is for stacked file systems.
const NOREPLACE: u32 = 1;
const EXCHANGE: u32 = 2;

impl<O: Os<Fd: AsFd>> View<O> {
    pub(super) fn lookup(&mut self, mut call: Call<'_>, reply: &mut Reply) -> Verb<()> {
        let name = call.name_or_dots()?;
        let (found, lasts) = match name {
            // Asked for by open_by_handle_at(2), of what the kernel has forgotten (fs/fuse/inode.c, fuse_get_dentry).
            b"." => (self.tx.known(call.node)?, Lasts::Forever),
            b".." => {
                let parent = self.tx.parent(call.node);
                (self.tx.known(parent)?, Lasts::Forever)
            }
            name => {
                let found = self.tx.lookup(call.node, name)?;
                let stays = self.tx.name_stays(call.node, name) && !self.tx.is_shared(call.node);
                (found, if stays { Lasts::Forever } else { Lasts::Moment })
            }
        };
        match found {
            Some((node, _)) if self.natives.is_fresh(node) => self.lookup_fresh(&call, node, reply)?,
            Some((node, attr)) => self.introduce_by(&call, node, &attr, lasts, reply),
            None => reply.no_entry(lasts),
        }
        if self.listings.has(call.node) {
            self.readahead.looked_up(call.thread);
        }
        Ok(())
    }

    pub(super) fn readlink(&mut self, call: Call<'_>, reply: &mut Reply) -> Verb<()> {
        let target = self.tx.readlink(call.node)?;
        reply.raw(&target).then_some(()).ok_or(Errno::IO.into())
    }

    pub(super) fn symlink(&mut self, mut call: Call<'_>, reply: &mut Reply) -> Verb<()> {
        let (name, target) = (call.name()?, call.text()?);
        let (node, attr) = self.tx.symlink(call.node, name, target, call.caller(0))?;
        self.introduce(&call, node, &attr, reply);
        Ok(())
    }

    pub(super) fn mknod(&mut self, mut call: Call<'_>, reply: &mut Reply) -> Verb<()> {
        let args: MknodIn = call.take()?;
        let (name, caller) = (call.name()?, call.caller(args.umask));
        let (node, attr) = self.tx.mknod(call.node, name, args.mode, u64::from(args.rdev), caller)?;
        self.introduce(&call, node, &attr, reply);
        Ok(())
    }

    pub(super) fn mkdir(&mut self, mut call: Call<'_>, reply: &mut Reply) -> Verb<()> {
        let args: MkdirIn = call.take()?;
        let name = call.name()?;
        let (node, attr) = self.tx.mkdir(call.node, name, args.mode, call.caller(args.umask))?;
        if self.tx.is_sub_area(name) {
            self.divided.ring();
        }
        let lasts = self.made_directory(&call, node);
        self.introduce_by(&call, node, &attr, lasts, reply);
        Ok(())
    }

    pub(super) fn unlink(&mut self, mut call: Call<'_>) -> Verb<()> {
        let name = call.name()?;
        self.may_take(&call, call.node, name)?;
        self.tx.unlink(call.node, name)
    }

    pub(super) fn rmdir(&mut self, mut call: Call<'_>) -> Verb<()> {
        let name = call.name()?;
        self.may_take(&call, call.node, name)?;
        self.tx.rmdir(call.node, name)
    }

    pub(super) fn rename(&mut self, mut call: Call<'_>) -> Verb<()> {
        let args: RenameIn = call.take()?;
        self.move_name(call, args.newdir, Rename::Replace)
    }

    pub(super) fn rename2(&mut self, mut call: Call<'_>) -> Verb<()> {
        let args: Rename2In = call.take()?;
        let how = match args.flags {
            0 => Rename::Replace,
            NOREPLACE => Rename::NoReplace,
            EXCHANGE => Rename::Exchange,
            _ => return Err(Errno::INVAL.into()),
        };
        self.move_name(call, args.newdir, how)
    }

    fn move_name(&mut self, mut call: Call<'_>, new_dir: u64, how: Rename) -> Verb<()> {
        let (name, new_name) = (call.name()?, call.name()?);
        let new_dir = call.other(new_dir)?;
        self.natives.is_entered(new_dir);
        self.may_take(&call, call.node, name)?;
        self.may_take(&call, new_dir, new_name)?;
        self.tx.rename(call.node, name, new_dir, new_name, how)
    }

    pub(super) fn link(&mut self, mut call: Call<'_>, reply: &mut Reply) -> Verb<()> {
        let args: LinkIn = call.take()?;
        let node = call.other(args.oldnodeid)?;
        let attr = self.tx.link(node, call.node, call.name()?)?;
        self.introduce(&call, node, &attr, reply);
        Ok(())
    }
}
