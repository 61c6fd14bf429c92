//! Objects that were read, opened for a caller that waits until one changes.

use super::Facts;
use crate::objects::open_object;
use std::collections::HashSet;
use systx_os::{Open, Os, Result};

impl<O: Os> Facts<O> {
    /// Hands out, open (O_PATH) and once each, every directory that a fact has a name or the list of, and every object
    /// of a name. What is gone is left out: comparing says so.
    pub(crate) fn each_read(&self, each: &mut dyn FnMut(&O::Fd) -> Result<()>) -> Result<()> {
        let mut done = HashSet::new();
        let claimed = || self.seen.iter().filter(|seen| seen.claimed);
        let dirs = claimed().map(|seen| &seen.dir).chain(self.listings.iter().map(|listing| &listing.dir));
        for dir in dirs {
            if done.insert((dir.domain, dir.handle)) {
                if let Some(fd) = self.opened(dir)? {
                    each(&fd)?;
                }
            }
        }
        for seen in claimed() {
            let Some(known) = &seen.object else { continue };
            if !done.insert((seen.dir.domain, known.handle)) {
                continue;
            }
            let domain = &self.domains[seen.dir.domain];
            let (root, path) = (&domain.area.root, &seen.dir.path);
            if let Some(fd) = open_object(&domain.os, root, &known.handle, path, &seen.name, Open::Path)? {
                each(&fd)?;
            }
        }
        Ok(())
    }
}
