//! The grammar of `systx undo`, and of keeping what it needs.

use super::{Area, Changes, DurabilityArg, Id};
use crate::words::Voice;
use clap::Args;
use std::path::PathBuf;

/// Keeps an image that `systx undo` needs.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct Undoable {
    /// Keep what `systx undo` needs to take it back after the commit: everything that it changes, as it was.
    /// That takes as much room in the area as what it removes and overwrites; the 50 of each file system that
    /// committed last are kept
    #[arg(long)]
    pub undoable: bool,
}

/// `systx undo`.
#[derive(Clone, Debug, Args)]
#[command(after_help = UNDO_HELP)]
pub struct Undo {
    /// Number of a committed transaction, as `systx log` shows it; or @ (or `last`) for the one that committed last
    #[arg(value_parser = Id::of_committed)]
    pub id: Id,
    /// A directory of the file system, where several have an undoable transaction of that number
    #[arg(long, value_name = "DIR")]
    pub mount: Option<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub changes: Changes,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub undoable: Undoable,
    /// Choose what the commit waits for
    #[arg(long, value_enum, default_value_t = DurabilityArg::Durable)]
    pub durability: DurabilityArg,
    /// Write the outcome, and the changes that were asked for, as JSON to standard error instead of text
    #[arg(long)]
    pub json: bool,
    /// Say that it committed, too
    #[arg(short, long)]
    pub verbose: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub area: Area,
}

impl Undo {
    /// Returns how much is said on standard error.
    pub fn voice(&self) -> Voice {
        Voice { json: self.json, verbose: self.verbose }
    }
}

const UNDO_HELP: &str = "\
Puts everything back as it was before a transaction that was run with --undoable, by a transaction of its own: all of it takes \
effect or nothing. That is done only if everything that it changed is as it left it; else each path that has changed since is named, \
with the transaction that changed it, and nothing happens. Undo those first, the youngest first. Who has only read what it wrote is \
not known. Directories whose names change get the present time; what is made again has another inode number.

Exit status:
  0    done
  75   something has changed since, or changes right now: see the message; nothing was changed
  76   committed, but an outsider's objects stand in the way of some of ours: see the message
  125  it can't be undone, or systx itself failed: nothing was changed; or pending, or in doubt: see the message

Examples:
  systx run --undoable -- apt-get upgrade -y
  systx log -n 5                  `undoable` stands in the line of those that can be undone
  systx undo 12 --dry-run
  systx undo 12
  systx undo 12 --undoable        the undo can be undone, too";
