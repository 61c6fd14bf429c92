//! The numbers by which C knows the open files and directories of transactions.
//!
//! Owns: the table of the process. Guarantees: behind each number stands a descriptor that nothing can be done with
//! (`border::nothing`), so that the kernel gives the number to no one else, `EMFILE` comes where it is to come, and a
//! plain call on it is an error. Closes nothing that is not ours: a number that the program has closed plainly is the
//! program's.

use crate::border::{close, copy, identity, Answer};
use crate::running::Running;
use libc::c_int;
use std::collections::HashMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use systx::posix::{Errno, Opened};
use systx::{Dir, File};

/// An open file or directory.
pub struct Handle {
    pub running: Arc<Running>,
    pub opened: Opened,
}

impl Handle {
    pub fn file(&self) -> Option<&File> {
        match &self.opened {
            Opened::File(file) => Some(file),
            Opened::Dir(_) => None,
        }
    }

    pub fn dir(&self) -> Option<&Dir> {
        match &self.opened {
            Opened::File(_) => None,
            Opened::Dir(dir) => Some(dir),
        }
    }
}

pub struct Numbers {
    nothing: OwnedFd,
    /// Device and inode of it.
    identity: (u64, u64),
    open: RwLock<HashMap<c_int, Arc<Handle>>>,
}

/// A number that is taken, and goes back unless it is used.
pub struct Taken<'a> {
    numbers: &'a Numbers,
    number: Option<c_int>,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            close(number);
        }
    }
}

impl Taken<'_> {
    /// Gives the number to a handle.
    pub fn is(mut self, running: &Arc<Running>, opened: Opened) -> Answer<c_int> {
        let number = self.number.take().ok_or(Errno::BADF)?;
        running.has_opened();
        let handle = Arc::new(Handle { running: running.clone(), opened });
        // What had the number was closed behind our back.
        let before = self.numbers.change().insert(number, handle);
        drop(before);
        Ok(number)
    }
}

impl Numbers {
    pub fn new(nothing: OwnedFd) -> Answer<Numbers> {
        let identity = identity(nothing.as_raw_fd())?;
        Ok(Numbers { nothing, identity, open: RwLock::default() })
    }

    fn look(&self) -> RwLockReadGuard<'_, HashMap<c_int, Arc<Handle>>> {
        self.open.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self) -> RwLockWriteGuard<'_, HashMap<c_int, Arc<Handle>>> {
        self.open.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a number, before anything else is done.
    ///
    /// # Errors
    /// `EMFILE`.
    pub fn take(&self) -> Answer<Taken<'_>> {
        Ok(Taken { numbers: self, number: Some(copy(&self.nothing)?) })
    }

    pub fn get(&self, number: c_int) -> Option<Arc<Handle>> {
        self.look().get(&number).cloned()
    }

    /// Gives a number back.
    ///
    /// # Errors
    /// `EBADF`: it is none of ours.
    pub fn close(&self, number: c_int) -> Answer<()> {
        let handle = self.change().remove(&number).ok_or(Errno::BADF)?;
        drop(handle);
        if identity(number) != Ok(self.identity) {
            return Err(Errno::BADF);
        }
        close(number);
        Ok(())
    }

    /// Gives back the numbers of a transaction that has ended.
    pub fn close_all_of(&self, running: &Arc<Running>) {
        let is_its = |handle: &Arc<Handle>| Arc::ptr_eq(&handle.running, running);
        let its: Vec<c_int> =
            self.look().iter().filter(|(_, handle)| is_its(handle)).map(|(number, _)| *number).collect();
        for number in its {
            // One that the program has closed plainly needs nothing more.
            let _ = self.close(number);
        }
    }
}
