//! I6: what an outsider's successful call has left behind is in the tree, or aside and reported.

use super::book::Book;
use super::crashes::Aftermath;
use super::watch::{Moment, Rule, Verdict};
use systx_os::{Open, Os};
use systx_sim::machine::{Machine, PointInfo, Tree};

/// Bytes that the outsider writes.
pub(super) const HIS: &[u8] = b"written by another program";

/// The outsider's act, right before a rename of the publication.
#[derive(Clone, Copy, Debug)]
pub(super) struct Act {
    /// First name of that rename: the slot, or the public name.
    pub before: &'static [u8],
    /// The name in `w` that the outsider's file takes.
    pub takes: &'static [u8],
}

/// One before each kind of rename.
pub(super) const ACTS: [Act; 4] = [
    Act { before: b"0", takes: b"new" },
    Act { before: b"2", takes: b"replaced" },
    Act { before: b"removed", takes: b"removed" },
    Act { before: b"moved", takes: b"moved" },
];

impl Act {
    /// Returns true if the act is due.
    pub(super) fn is_due(&self, info: &PointInfo) -> bool {
        info.call == systx_sim::machine::Call::Rename && info.name == self.before
    }

    pub(super) fn done(&self, machine: &Machine) {
        let os = machine.outsider("outsider");
        let w = os.open_path(0, "w", Open::Directory).expect("is there");
        let file = os.create(&w, b"his", 0o644).expect("makes");
        os.pwrite(&file, HIS, 0).expect("writes");
        os.rename((&w, b"his"), (&w, self.takes), systx_os::Rename::Replace).expect("renames");
    }
}

/// I6.
#[derive(Default)]
pub(super) struct Conserved {
    /// The outsider's act is done.
    pub acted: bool,
}

impl Rule for Conserved {
    fn name(&self) -> &'static str {
        "I6"
    }

    fn now(&mut self, now: &Moment<'_>, _: &Book) -> Verdict {
        let tree = now.machine.tree_of(0, |path| path != ".systx/log" && path != ".systx/table");
        self.acted |= has_his(&tree, |_| true);
        if !self.acted {
            return Ok(false);
        }
        let settled = |path: &str| !path.starts_with(".systx/tx/");
        // On the way back from a slot, while that is in flight.
        if has_his(&tree, settled) || (!now.fs[0].slots.is_empty() && has_his(&tree, |_| true)) {
            Ok(true)
        } else {
            Err("what he wrote is gone".to_owned())
        }
    }

    fn after(&mut self, _: &Moment<'_>, end: &Aftermath, _: &Book) -> Verdict {
        if !self.acted {
            return Ok(false);
        }
        if has_his(&end.whole[0], |path| !path.starts_with(".systx/tx/")) {
            Ok(true)
        } else {
            Err(format!("{:?}: what he wrote is lost", end.how))
        }
    }
}

fn has_his(tree: &Tree, counts: impl Fn(&str) -> bool) -> bool {
    tree.iter().any(|(path, look)| counts(path) && look.content == HIS)
}
