//! Descriptors of files and directories: a bounded number, whatever a program keeps open or comes by.
//!
//! Owns: the order in which they were opened. Guarantees: what is let go of is opened again, as the same
//! object, when it is needed: a committed file by its fact, private bytes by their slot, a staged file by a
//! name; a directory, committed or staged, by its handle. A staged file that nothing leads back to keeps its
//! descriptor, as does a staged directory where handles can't be opened; of one that was removed only the
//! attributes are kept. Does not: count roots of mounts and staging directories, which are few and stay open.

use super::Workset;
use crate::workset::node::{Data, Ix, Native, Reach};
use std::collections::VecDeque;
use systx_os::Os;

/// Most objects that ride in a record.
pub(crate) const SMALL_OBJECTS_MAX: usize = 16;

/// The fewest that are kept: the one in use, and the source of a copy.
const LEAST: usize = 2;

/// Nodes that may have descriptors, in the order in which they got them.
pub(crate) struct Held {
    queue: VecDeque<Ix>,
    most: usize,
    /// Staged files that are open although no program has them open.
    closed: Vec<Ix>,
}

impl Default for Held {
    fn default() -> Held {
        Held { queue: VecDeque::new(), most: usize::MAX, closed: Vec::new() }
    }
}

impl<O: Os> Workset<O> {
    /// Sets how many files and directories it may keep open itself; there is no bound before. For callers
    /// that know the limit of the process.
    pub(crate) fn hold_files(&mut self, most: usize) {
        self.held.most = most.max(LEAST);
    }

    /// Notes that a node has got a descriptor; another one may lose its own.
    pub(crate) fn hold(&mut self, ix: Ix) {
        if std::mem::replace(&mut self.object_mut(ix).held, true) {
            return;
        }
        self.held.queue.push_back(ix);
        while self.held.queue.len() > self.held.most {
            let Some(first) = self.held.queue.pop_front() else { return };
            self.object_mut(first).held = false;
            self.let_go(first);
        }
    }

    /// Keeps a staged file open that its last opener has closed, if it is one of few: the record will want its bytes.
    pub(crate) fn keep_closed(&mut self, ix: Ix) -> bool {
        let object = self.object(ix);
        let wanted = object.is_staged() && object.file.is_some() && !object.names.is_empty();
        // An ordinary user's file may be open for writing only.
        if !wanted || self.held.closed.len() >= SMALL_OBJECTS_MAX || self.os.uid() != 0 {
            return false;
        }
        if !self.held.closed.contains(&ix) {
            self.held.closed.push(ix);
        }
        true
    }

    /// Closes those: from the commit point on others have them, and run them.
    pub(crate) fn let_go_of_closed(&mut self) {
        for ix in std::mem::take(&mut self.held.closed) {
            if self.object(ix).opens == 0 {
                self.object_mut(ix).file = None;
            }
        }
    }

    fn let_go(&mut self, ix: Ix) {
        match self.object(ix).dir {
            Some(_) => self.let_go_of_directory(ix),
            None => self.let_go_of_file(ix),
        }
    }

    fn let_go_of_directory(&mut self, ix: Ix) {
        let object = self.object(ix);
        let Some(dir) = &object.dir else { return };
        if let Some(base) = &dir.base {
            return base.let_go();
        }
        let Reach::Open(fd) = &dir.staged else { return };
        let reach = if object.names.is_empty() {
            self.os.stat(fd).map(|stat| Reach::Gone(Box::new(stat)))
        } else if self.mounts[usize::from(object.mount)].info.open_by_handle {
            self.os.handle(fd).map(|handle| Reach::Handle(Box::new(handle)))
        } else {
            return;
        };
        if let (Ok(reach), Some(dir)) = (reach, &mut self.object_mut(ix).dir) {
            dir.staged = reach;
        }
    }

    fn let_go_of_file(&mut self, ix: Ix) {
        let object = self.object(ix);
        // An open file stays what it was when it was opened.
        if self.is_unclaimed(ix) {
            return;
        }
        // Processes may have taken its name by themselves. And without privileges its own permission bits, which may have
        // changed, could keep us out.
        let may_be_nameless = object.names.iter().all(|(dir, _)| self.native(*dir) != Native::No);
        if object.is_staged() && (may_be_nameless || self.os.uid() != 0) {
            return;
        }
        let object = self.object_mut(ix);
        object.file = None;
        match &mut object.data {
            Data::Base(file) => *file = None,
            Data::Pages(pages) => pages.lower = None,
            Data::Overlay(overlay) => overlay.lower = None,
            Data::Appended(_) | Data::Private(_) | Data::Memory(_) => {}
        }
    }
}
