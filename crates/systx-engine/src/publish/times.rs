//! Modification times of committed directories in which a record changes names: the time that the program saw
//! inside, not the time of publication.
//!
//! Guarantees: a directory gets the time that it had inside only if no outsider has changed a name in it
//! since the transaction looked at it, nor while the record is published, but for the moment between a look
//! and the call beside it. Otherwise it keeps the time of the last change, which is later: a program that
//! compares times sees that there is something new. Nothing depends on it: a user who may not set a time
//! leaves it. A publication that was cut off by a kill has moved the time already, and leaves it, too.

use super::site::Site;
use crate::mutant::{self, Mutant};
use crate::record::{Act, Body, Step};
use std::collections::HashMap;
use systx_os::{Handle, Os, Timestamp};

/// The directories of a record that are to get their times.
#[derive(Default)]
pub(super) struct Times(HashMap<Handle, Given>);

struct Given {
    /// The time that the program saw.
    mtime: Timestamp,
    /// The time that our last step in it has left.
    now: Timestamp,
}

/// Looks at the directories before the first step.
pub(super) fn watch<O: Os>(site: &mut Site<'_, O>, body: &Body) -> Times {
    let mut times = Times::default();
    for time in &body.times {
        let Some(step) = body.steps.get(time.step as usize) else { continue };
        if let Some(now) = mtime(site, step) {
            // Ours: a redo of what was done.
            if now == time.before || now == time.mtime || mutant::on(Mutant::TimesGivenBlindly) {
                times.0.insert(step.at.dir, Given { mtime: time.mtime, now });
            }
        }
    }
    times
}

impl Times {
    /// Looks before a step: an outsider may have changed a name since.
    pub fn before<O: Os>(&mut self, site: &mut Site<'_, O>, step: &Step) {
        let Some(given) = self.of(step) else { return };
        if mtime(site, step) != Some(given.now) && !mutant::on(Mutant::TimesGivenBlindly) {
            self.0.remove(&step.at.dir);
        }
    }

    /// After a step.
    pub fn after<O: Os>(&mut self, site: &mut Site<'_, O>, step: &Step) {
        let Some(given) = self.of(step) else { return };
        // The step has moved the time itself; only a later difference is an outsider's.
        match mtime(site, step) {
            Some(now) => given.now = now,
            None => drop(self.0.remove(&step.at.dir)),
        }
    }

    /// After the last step.
    pub fn give<O: Os>(mut self, site: &mut Site<'_, O>, body: &Body) {
        for time in &body.times {
            let Some(step) = body.steps.get(time.step as usize) else { continue };
            // Looked at once more: an outsider may have changed a name since the last step there.
            self.before(site, step);
            let (Some(given), Ok(Some(dir))) = (self.of(step), site.directory(&step.at)) else { continue };
            // Of another user's directory it can't be set, as in a plain run.
            let _ = site.os.utimens(&dir, None, Some(given.mtime));
        }
    }

    fn of(&mut self, step: &Step) -> Option<&mut Given> {
        if changes_a_name(step) {
            self.0.get_mut(&step.at.dir)
        } else {
            None
        }
    }
}

/// Returns true if a step changes a name in its directory.
pub(crate) fn changes_a_name(step: &Step) -> bool {
    !matches!(step.act, Act::Patch(_) | Act::Attr { .. })
}

fn mtime<O: Os>(site: &mut Site<'_, O>, step: &Step) -> Option<Timestamp> {
    // A directory that can't be looked at keeps its time: an error here must not stop a committed record.
    let dir = site.directory(&step.at).ok()??;
    Some(site.os.stat(&dir).ok()?.mtime)
}
