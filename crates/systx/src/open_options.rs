//! How a file is opened.

use systx_engine::transaction::Access;
use systx_os::Errno;

/// How a file is opened; as [`std::fs::OpenOptions`].
#[derive(Clone, Debug)]
pub struct OpenOptions {
    pub(crate) read: bool,
    pub(crate) write: bool,
    pub(crate) append: bool,
    pub(crate) truncate: bool,
    pub(crate) create: bool,
    pub(crate) create_new: bool,
    pub(crate) no_follow: bool,
    pub(crate) mode: u32,
    /// Takes what open(2) takes, and [`std::fs::OpenOptions`] refuses.
    pub(crate) posix: bool,
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions::new()
    }
}

impl OpenOptions {
    /// Nothing is set, and new files get mode 0o666 less the umask.
    pub fn new() -> OpenOptions {
        OpenOptions {
            read: false,
            write: false,
            append: false,
            truncate: false,
            create: false,
            create_new: false,
            no_follow: false,
            mode: 0o666,
            posix: false,
        }
    }

    /// For reading.
    pub fn read(mut self, read: bool) -> OpenOptions {
        self.read = read;
        self
    }

    /// For writing.
    pub fn write(mut self, write: bool) -> OpenOptions {
        self.write = write;
        self
    }

    /// For writing, each time at the end of the file.
    pub fn append(mut self, append: bool) -> OpenOptions {
        self.append = append;
        self
    }

    /// Empties the file.
    pub fn truncate(mut self, truncate: bool) -> OpenOptions {
        self.truncate = truncate;
        self
    }

    /// Makes the file if it is missing.
    pub fn create(mut self, create: bool) -> OpenOptions {
        self.create = create;
        self
    }

    /// Makes the file, which must be missing.
    pub fn create_new(mut self, create_new: bool) -> OpenOptions {
        self.create_new = create_new;
        self
    }

    /// Fails with `ELOOP` on a symbolic link at the end of the path (O_NOFOLLOW).
    pub fn no_follow(mut self, no_follow: bool) -> OpenOptions {
        self.no_follow = no_follow;
        self
    }

    /// Permission bits of a new file, before the umask.
    pub fn mode(mut self, mode: u32) -> OpenOptions {
        self.mode = mode;
        self
    }

    /// # Errors
    /// `EINVAL` for what [`std::fs::OpenOptions`] refuses.
    pub(crate) fn access(&self) -> Result<Access, Errno> {
        let writes = self.write || self.append;
        let needs_writing = self.truncate || self.create || self.create_new;
        let odd = (needs_writing && !writes) || (self.truncate && self.append && !self.create_new);
        if odd && !self.posix {
            return Err(Errno::INVAL);
        }
        match (self.read, writes) {
            (true, false) => Ok(Access::Read),
            (false, true) => Ok(Access::Write),
            (true, true) => Ok(Access::ReadWrite),
            (false, false) => Err(Errno::INVAL),
        }
    }
}
