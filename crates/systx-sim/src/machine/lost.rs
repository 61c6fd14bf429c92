//! Descriptors that a program closes under the engine's hands, as closefrom(3) does, and opens as its own.
//!
//! Guarantees: mappings and owned bytes stay, as they don't hang on descriptors.

use super::state::OpenFile;
use super::{FsId, Machine, SimOs};

impl Machine {
    /// Closes every descriptor of `os`.
    pub fn close_all(&self, os: &SimOs) {
        let mut inner = self.lock();
        let state = &mut inner.state;
        let of_it = |open: &OpenFile| open.process == os.process;
        let closed: Vec<_> =
            state.files.iter().filter(|(_, open)| of_it(open)).map(|(n, open)| (*n, open.id)).collect();
        for (file, _) in &closed {
            state.files.remove(file);
        }
        closed.into_iter().for_each(|(_, id)| state.reap(id));
    }

    /// Closes every descriptor of `os` and opens the file at `path` under each of their numbers, to read and write.
    ///
    /// # Errors
    /// Of finding the file.
    pub fn replace_all(&self, os: &SimOs, fs: usize, path: &str) -> systx_os::Result<()> {
        let mut inner = self.lock();
        let state = &mut inner.state;
        let id = state.resolve(FsId(fs), path)?;
        let mut closed = Vec::new();
        for open in state.files.values_mut().filter(|open| open.process == os.process) {
            closed.push(open.id);
            *open = OpenFile { id, read: true, write: true, lease: None, ..open.clone() };
        }
        closed.into_iter().for_each(|id| state.reap(id));
        Ok(())
    }
}
