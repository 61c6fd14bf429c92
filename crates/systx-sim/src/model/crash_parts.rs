//! Parts of the crash model: steps and what they meet, the disk, the phases of a commit.
//!
//! Values only; the code that changes them is in `crash` (the transaction), `crash_steps` (U) and
//! `crash_world` (the others).

/// Kind of a publication step (docs/protocol.md §3, U).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A staged object to a new name.
    Place,
    /// A staged object over an existing one.
    Replace,
    /// An object out of its name, over a token.
    Remove,
    /// TAKE and PUT through one slot: a rename.
    Move,
    /// A hard link, made in the slot over a token.
    Link,
    /// A sector of an existing file, under a write lease.
    PatchLeased,
    /// A sector without a lease: comparing and writing are two system calls. Residue (d).
    Patch,
    /// An attribute: comparing and setting are two system calls. Residue (d).
    Attr,
}

impl Kind {
    /// Kinds that act on names and have a slot.
    pub const NAMES: [Kind; 5] = [Kind::Place, Kind::Replace, Kind::Remove, Kind::Move, Kind::Link];

    pub(super) fn is_name(self) -> bool {
        Kind::NAMES.contains(&self)
    }

    pub(super) fn staged(self) -> bool {
        matches!(self, Kind::Place | Kind::Replace)
    }

    pub(super) fn before(self) -> Object {
        match self {
            Kind::Place | Kind::Link => Object::None,
            _ => Object::Before,
        }
    }

    /// Returns what the staging entry holds before the step.
    pub(super) fn in_slot(self) -> Object {
        match self {
            Kind::Place | Kind::Replace => Object::Ours,
            Kind::Remove | Kind::Move | Kind::Link => Object::Token,
            _ => Object::None,
        }
    }
}

/// Contents of a name, a staging entry or a sector.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Object {
    /// Nothing.
    None,
    /// The state that the transaction expects.
    Before,
    /// The state that the transaction brings.
    Ours,
    /// An empty placeholder.
    Token,
    /// Something of the outsider.
    Theirs(u8),
}

/// In which order metadata survive a power loss.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Storage {
    /// A prefix of the changes survives: ext4 with a journal, xfs.
    Prefix,
    /// A prefix up to the rename of `tx/<id>~`, from there on the steps in any subset: an outsider's fsync of one
    /// directory may carry a later step to the disk before an earlier one (btrfs).
    StepsInAnyOrder,
    /// Any subset of everything: a file system without a journal. Not allowed for durable transactions.
    AnySubset,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Directory {
    Missing,
    /// Still named `tx/<id>~`.
    Building,
    There,
}

/// The names and the slot of one step, and what the properties have to remember about them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Cell {
    pub name: Object,
    /// Second name of a move.
    pub dest: Object,
    pub slot: Object,
    pub aside: Object,
    /// The slot or token was made.
    pub built: bool,
    /// A step of U was taken here.
    pub begun: bool,
    /// The step has been decided: what an outsider does from here on stays.
    pub decided: bool,
    /// The second half of a move has been decided: what an outsider does from here on stays.
    pub put_decided: bool,
    /// Named in the outcome as displaced.
    pub reported: bool,
    /// State that the outsider's last call left at `name` and `dest`.
    pub theirs: [Option<Object>; 2],
    /// True if that call came after the decision.
    pub later: [bool; 2],
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Names {
    pub directory: Directory,
    pub cells: [Cell; 2],
}

/// A value in memory and what a power loss would leave of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Stored<T> {
    pub(super) now: T,
    pub(super) disk: T,
}

impl<T: Copy> Stored<T> {
    pub(super) fn new(value: T) -> Self {
        Stored { now: value, disk: value }
    }

    pub(super) fn sync(&mut self) {
        self.disk = self.now;
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Phase {
    /// P: the slot of this step next.
    Build(u8),
    /// P: `tx/<id>~` to `tx/<id>`.
    NameDirectory,
    Barrier,
    /// P4.
    CheckAll,
    V6,
    V7,
    Sync,
    FinalFact,
    FinalBefore(u8),
    Abort,
    SyncAbort,
    Aborted,
    /// Recovery found no `tx/<id>`: tokens again.
    Rebuild(u8),
    Publish,
    Done,
    /// Recovery: C.
    SyncAll,
    End,
}

/// Place within a step of U; a helper or a recovery starts at `Look`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Micro {
    Look,
    /// The precondition was seen.
    Act,
    /// The call returned; what came out is looked at next.
    Acted,
    /// Exchanging back until what comes out is what was last put in: this.
    Back(Object),
    /// Something foreign was taken: back to its name.
    PutBack,
    /// First half of a move is done.
    Taken,
    /// The staging entry's object goes to `aside/`: the decision that it is a conflict copy.
    SetAside,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Told {
    Nothing,
    Aborted,
    Committed,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Fact {
    Unchanged,
    ChangedBeforeV6,
    ChangedAfterV6,
}

/// State of the machine, its disk, the transaction and the outsider.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct State {
    pub(super) names: Names,
    pub(super) disk: Names,
    pub(super) fact: Stored<Fact>,
    pub(super) header: Stored<bool>,
    pub(super) abort: Stored<bool>,
    pub(super) phase: Phase,
    /// Step of U under way.
    pub(super) step: u8,
    pub(super) micro: Micro,
    pub(super) told: Told,
    /// Went through D.
    pub(super) forward: bool,
    /// F had found everything in order once.
    pub(super) looked: bool,
    /// A power loss sent it forward over a change that V6 should have seen.
    pub(super) overtook: bool,
    pub(super) owner_dead: bool,
    pub(super) recovering: bool,
    pub(super) dropped: bool,
    pub(super) kills: u8,
    pub(super) losses: u8,
    pub(super) calls: u8,
    pub(super) fresh: u8,
}
