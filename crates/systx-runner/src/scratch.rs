//! A directory of a test's own.

use std::ops::Deref;
use std::path::{Path, PathBuf};

/// A new directory for temporary files, which goes with all that is in it.
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes it. Tests that run at a time have different names.
    pub fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("systx-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).expect("makes a directory for temporary files");
        Scratch(path)
    }
}

impl Deref for Scratch {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
