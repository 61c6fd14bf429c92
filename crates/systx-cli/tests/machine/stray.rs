//! Areas that a test program would leave on the machine's own file systems.
//!
//! A verb that looks at all file systems meets them from then on, in every later test. Guarantees: the
//! program that leaves one fails.

use std::path::{Path, PathBuf};

/// The machine's own areas of a name at the start of a test program.
pub struct Strays {
    area: &'static str,
    found: Vec<PathBuf>,
}

impl Strays {
    /// To be asked before anything is mounted.
    pub fn at_the_start(area: &'static str) -> Strays {
        Strays { area, found: areas(area) }
    }

    /// For a program whose verbs tell of all areas: ends it, with a reason, if there is one already.
    #[allow(dead_code)] // Each program uses its part.
    pub fn none_or_exit(&self) {
        if !self.found.is_empty() && !systx_runner::only_listed() {
            eprintln!(
                "{:?}: left by an earlier test run, which this program would take for its own: remove it",
                self.found
            );
            std::process::exit(1);
        }
    }

    /// To be called when everything is unmounted.
    pub fn are_no_more(&self) {
        let left: Vec<_> = areas(self.area).into_iter().filter(|area| !self.found.contains(area)).collect();
        assert!(
            left.is_empty() || std::thread::panicking(),
            "{left:?}: left on the machine's own file system"
        );
    }
}

/// Where an area can be without a mount of a test's own: at the top of the file systems on which there is a
/// directory for temporary files.
fn areas(area: &str) -> Vec<PathBuf> {
    let temporary = std::env::temp_dir();
    temporary.ancestors().map(|above: &Path| above.join(area)).filter(|path| path.exists()).collect()
}
