//! Descriptors: those of the program that a transaction stands in for, and those that it opens for handles.
//!
//! Owns: the way from an open file to its node, and the end of what was opened. Guarantees: an offset of the program's
//! moves when the transaction commits, and is as it was after an abort; what was opened for a handle outside of what is
//! served is closed with the transaction. Does not: know how handles are used (`file`).

use crate::calls::Opened;
use crate::open_options::OpenOptions;
use crate::place::Place;
use crate::state::{Answer, Calling, Carried};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use systx_engine::transaction::Access;
use systx_os::outside::{self, Outside};
use systx_os::{Errno, FileType};

impl Calling<'_> {
    /// The file behind a descriptor as the transaction sees it, opened as the descriptor is, with the offset that it
    /// has now.
    ///
    /// # Errors
    /// `EBADF` if it is open for neither reading nor writing; `EINVAL` if it is no regular file; `ESTALE` if the
    /// transaction sees another object, or none, at the file's path.
    pub fn open_like(&mut self, fd: OwnedFd) -> Answer<(Opened, OpenOptions, Arc<Mutex<u64>>)> {
        let how = outside::opened_as(&fd)?;
        let options = OpenOptions::new().read(how.reads).write(how.writes).append(how.appends);
        let access = options.access().map_err(|_| Errno::BADF)?;
        let fd = Arc::new(fd);
        let found = Outside::of(&fd)?;
        if found.kind() != FileType::File {
            return Err(Errno::INVAL.into());
        }
        let path = outside::path_of(&fd)?;
        let end = path.iter().rposition(|byte| *byte == b'/').ok_or(Errno::STALE)?;
        let (above, name) = (&path[..end.max(1)], &path[end + 1..]);
        let place = self.enter(Arc::new(outside::open_at_path(above)?))?;
        let offset = Arc::new(Mutex::new(outside::offset(&fd)?));
        let (_, ino, mount) = outside::key_of(&fd)?;
        let Place::Inside { node: dir, mount: there } = place else {
            if access != Access::Read {
                return Err(Errno::ROFS.into());
            }
            return Ok((Opened::Outside(Outside::of(&fd)?.open(false)?), options, offset));
        };
        // As the descriptor was opened already, no permission is asked for.
        let (node, attr) = self.lookup(dir, name)?.ok_or(Errno::STALE)?;
        // Nor is what was mounted over the name the file that is served.
        if (attr.ino, there) != (ino, mount) || FileType::from_mode(attr.mode) != Some(FileType::File) {
            return Err(Errno::STALE.into());
        }
        self.state.engine.open(node, access, false)?;
        if how.appends {
            // The program's offset moves there.
            self.state.engine.getattr(node)?;
        }
        let fd = self.shared.os.adopt(fd.try_clone()?)?;
        self.state.carried.push(Carried { birth: self.state.handles.birth(), fd, offset: offset.clone() });
        Ok((Opened::Inside(node), options, offset))
    }
}

impl Carried {
    /// Moves the program's offset to where the handle's is.
    pub fn move_offset(self) {
        let offset = *self.offset.lock().unwrap_or_else(PoisonError::into_inner);
        // A descriptor that the program has closed has none.
        let _ = outside::set_offset(&*self.fd, offset);
    }
}
