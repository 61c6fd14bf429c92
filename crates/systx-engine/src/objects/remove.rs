//! The removal of whole trees, however deep, without recursion.

use crate::record::TreePlace;
use std::sync::Arc;
use systx_os::{Dirent, Errno, FileType, Open, Os, Result};

/// Says whether what has a name in a directory, at that place of the tree, may be deleted; `None`: nothing has it any more.
pub(crate) type MayGo<'a, O> = dyn Fn(&<O as Os>::Fd, &[u8], TreePlace) -> Result<Option<bool>> + 'a;

/// Deletes what may go below `dir`; whether it is empty now.
pub(crate) fn clear<O: Os>(os: &O, dir: &O::Fd, may_go: &MayGo<'_, O>) -> Result<bool> {
    Clearing { os, top: dir, may_go: Some(may_go), levels: Vec::new() }.run()
}

/// Deletes everything below a directory that is ours alone (staging of a transaction that was never committed).
pub(crate) fn remove_all<O: Os>(os: &O, dir: &O::Fd) -> Result<()> {
    if (Clearing { os, top: dir, may_go: None, levels: Vec::new() }).run()? {
        Ok(())
    } else {
        Err(Errno::NOTEMPTY)
    }
}

/// Directories kept open on the way down: trees may be deeper than there are descriptors.
const OPEN_LEVELS_MAX: usize = 64;

/// Deletion of a tree, without recursion.
struct Clearing<'a, O: Os> {
    os: &'a O,
    top: &'a O::Fd,
    /// The objects that may be deleted; `None`: all.
    may_go: Option<&'a MayGo<'a, O>>,
    /// From `top` (the first; it has no name) down.
    levels: Vec<Level<O>>,
}

struct Level<O: Os> {
    name: Vec<u8>,
    /// Closed while far below; the first is `top`.
    fd: Option<Arc<O::Fd>>,
    place: TreePlace,
    left: Vec<Dirent>,
    clean: bool,
}

impl<O: Os> Clearing<'_, O> {
    /// Returns true if `top` is empty now.
    fn run(mut self) -> Result<bool> {
        let left = self.os.read_dir(self.top)?;
        self.levels.push(Level {
            name: Vec::new(),
            fd: None,
            place: TreePlace::default(),
            left,
            clean: true,
        });
        loop {
            let Some(level) = self.levels.last_mut() else { return Ok(true) };
            match level.left.pop() {
                Some(entry) => self.take(entry)?,
                None => {
                    let Some(done) = self.levels.pop() else { return Ok(true) };
                    if self.levels.is_empty() {
                        return Ok(done.clean);
                    }
                    let removed = done.clean && self.remove(&done.name, FileType::Directory)?;
                    if !removed {
                        self.leave_something();
                    }
                }
            }
        }
    }

    fn leave_something(&mut self) {
        if let Some(level) = self.levels.last_mut() {
            level.clean = false;
        }
    }

    fn take(&mut self, entry: Dirent) -> Result<()> {
        let (os, here) = (self.os, self.here()?);
        let dir = here.as_deref().unwrap_or(self.top);
        let place = self.levels.last().map(|level| level.place).unwrap_or_default().of(&entry.name);
        if let Some(may_go) = self.may_go {
            match may_go(dir, &entry.name, place)? {
                None => return Ok(()),
                Some(true) => {}
                Some(false) => {
                    self.leave_something();
                    return Ok(());
                }
            }
        }
        if entry.kind != FileType::Directory {
            if !self.remove(&entry.name, entry.kind)? {
                self.leave_something();
            }
            return Ok(());
        }
        let child = match os.open(dir, &entry.name, Open::Path) {
            Err(Errno::NOENT) => return Ok(()),
            child => child?,
        };
        let left = match os.read_dir(&child) {
            // The token of a directory, which is empty; an ordinary user may not list it.
            Err(Errno::ACCESS) if self.may_go.is_none() => Vec::new(),
            left => left?,
        };
        self.levels.push(Level { name: entry.name, fd: Some(Arc::new(child)), place, left, clean: true });
        let far = self.levels.len().checked_sub(OPEN_LEVELS_MAX + 1);
        if let Some(level) = far.and_then(|n| self.levels.get_mut(n)) {
            level.fd = None;
        }
        Ok(())
    }

    /// Removes a name of the lowest level; whether it is gone.
    fn remove(&mut self, name: &[u8], kind: FileType) -> Result<bool> {
        let here = self.here()?;
        let dir = here.as_deref().unwrap_or(self.top);
        let done = match kind {
            FileType::Directory => self.os.rmdir(dir, name),
            _ => self.os.unlink(dir, name),
        };
        match done {
            Ok(()) | Err(Errno::NOENT) => Ok(true),
            Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
            // An outsider may have made a part of the known objects immutable, or mounted on it: that part
            // stays.
            Err(Errno::PERM | Errno::ACCESS | Errno::BUSY) if self.may_go.is_some() => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// The lowest level, opened again with its nearest ancestors if it was closed; `None`: `top`.
    fn here(&mut self) -> Result<Option<Arc<O::Fd>>> {
        let lowest = self.levels.len() - 1;
        if lowest > 0 && self.levels[lowest].fd.is_none() {
            let mut fd: Option<Arc<O::Fd>> = None;
            for n in 1..=lowest {
                let opened =
                    self.os.open(fd.as_deref().unwrap_or(self.top), &self.levels[n].name, Open::Path)?;
                let opened = Arc::new(opened);
                if n + OPEN_LEVELS_MAX > lowest {
                    self.levels[n].fd = Some(opened.clone());
                }
                fd = Some(opened);
            }
        }
        Ok(self.levels[lowest].fd.clone())
    }
}
