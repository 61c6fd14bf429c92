//! Directories.

use crate::call::Call;
use crate::listings::FIRST;
use crate::view::View;
use crate::wire::layout::ReadIn;
use crate::wire::{Dirent, Lasts, Plus, Reply};
use std::os::fd::AsFd;
use systx_engine::outcome::{Verb, VerbError};
use systx_engine::transaction::{Attr, DirEntry, Node};
use systx_os::{FileType, Os};

impl<O: Os<Fd: AsFd>> View<O> {
    pub(super) fn readdir(&mut self, mut call: Call<'_>, reply: &mut Reply) -> Verb<()> {
        let args = call.take()?;
        self.list(&call, args, reply, Detail::Names)
    }

    pub(super) fn readdirplus(&mut self, mut call: Call<'_>, reply: &mut Reply) -> Verb<()> {
        let args: ReadIn = call.take()?;
        if self.is_read_committed() {
            return self.list(&call, args, reply, Detail::Nothing);
        }
        let files = self.readahead.wants_files(call.thread, call.node, args.offset);
        self.list(&call, args, reply, if files { Detail::All } else { Detail::AllButFiles })
    }

    fn list(&mut self, call: &Call<'_>, args: ReadIn, reply: &mut Reply, detail: Detail) -> Verb<()> {
        reply.limit(args.size);
        let snapshot = match self.listings.current(call.node, args.offset) {
            Some(snapshot) => snapshot,
            None => {
                let entries = self.tx.readdir(call.node)?;
                self.listings.update(call.node, entries)
            }
        };
        if !self.list_dots(call.node, args.offset, reply, detail)? {
            return Ok(());
        }
        let mut hidden = 0;
        let name = if self.tx.is_shared(call.node) { Lasts::Never } else { Lasts::Forever };
        for (entry, next) in snapshot.after(args.offset.max(FIRST)) {
            let told = self.details(call.node, entry, detail)?;
            hidden += u64::from(told.is_none());
            let plus = match &told {
                _ if detail == Detail::Names => Plus::No,
                Some((node, attr)) => Plus::Node(self.number(call, *node), attr, [name, self.lasts(*node)]),
                None => Plus::Unknown,
            };
            if !reply.dirent(Dirent { name: &entry.name, ino: entry.ino, kind: entry.kind, next }, plus) {
                break;
            }
        }
        self.readahead.hidden(call.thread, call.node, hidden);
        if reply.body_bytes() == 0 {
            self.readahead.ended(call.thread);
            self.listings.ended(call.node);
        }
        Ok(())
    }

    /// Lists `.` and `..`, which never come with details. False: no room.
    fn list_dots(&mut self, dir: Node, offset: u64, reply: &mut Reply, detail: Detail) -> Verb<bool> {
        let plus = || if detail == Detail::Names { Plus::No } else { Plus::Unknown };
        for (name, next) in [(&b"."[..], 1), (b"..", FIRST)].into_iter().filter(|(_, next)| *next > offset) {
            let node = if next == FIRST { self.tx.parent(dir) } else { dir };
            let ino = self.tx.ino(node);
            if !reply.dirent(Dirent { name, ino, kind: FileType::Directory, next }, plus()) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns what the listing says of an entry beyond its name. It is looked up now: the snapshot may be
    /// older than a rename.
    fn details(&mut self, dir: Node, entry: &DirEntry, detail: Detail) -> Verb<Option<(Node, Attr)>> {
        let wanted = match detail {
            Detail::Names | Detail::Nothing => false,
            Detail::AllButFiles => entry.node.is_some() || entry.kind != FileType::File,
            Detail::All => true,
        };
        match wanted.then(|| self.tx.lookup(dir, &entry.name)) {
            None | Some(Err(VerbError::Os(_))) => Ok(None),
            Some(found) => found,
        }
    }
}

/// The details in which the entries of a directory are sent.
///
/// Sent attributes count as read: size and times of a regular file would make its later change a conflict for
/// a program that only listed its directory. So new ones are sent to readers of directories that look at
/// files anyway: see [`Readahead`](crate::readahead::Readahead).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Detail {
    /// For READDIR.
    Names,
    /// For READDIRPLUS: nothing that is sent would be kept.
    Nothing,
    AllButFiles,
    All,
}
