//! The world of these tests: one tree, and one transaction that takes a step of every kind in it.

use crate::bytes::{sector_crc, write_all};
use crate::commit::{run, Draft, Failing, InSharedStaging};
use crate::domain::shared_staging::{first_slot, SLOTS_MAX};
use crate::domain::{Area, AreaError, Bounds, Domain, Location, Make, OpenError};
use crate::facts::{Facts, Found, LowerDir};
use crate::id::ObjectId;
use crate::objects::slot_name;
use crate::outcome::{CommitError, Committed, Durability, VerbError};
use crate::plan::{Plan, Staged};
use crate::publish::power::BytesHash;
use crate::publish::tokens::Token;
use crate::record::*;
use std::sync::Arc;
use systx_os::{Errno, FsKind, Handle, Open, Os};
use systx_sim::machine::{run_process, FsSpec, Machine, Plant, SimFd, SimOs, Tree};

pub(super) const AREA: &[u8] = b".systx";

/// Old bytes of the file that is patched: three sectors and a bit.
pub(super) fn old_bytes() -> Vec<u8> {
    (0..1700u32).map(|n| (n / 7) as u8).collect()
}

/// How objects are found that a record names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finds {
    /// As root does.
    ByHandle,
    /// By paths and in slots, as ordinary users do: handles can't be opened.
    ByPath,
}

impl Finds {
    pub(super) fn spec(self, kind: FsKind) -> FsSpec {
        let mut spec = FsSpec::new(kind);
        spec.info.open_by_handle = self == Finds::ByHandle;
        spec
    }

    /// Whether the n-th of many cases is tried. Without handles that is, in the short form, every fourth.
    pub(super) fn takes(self, n: u64) -> bool {
        self == Finds::ByHandle || n % 4 == 0 || std::env::var_os("SYSTX_LONG").is_some()
    }
}

pub(super) fn machine(kind: FsKind) -> Machine {
    machine_where(kind, Finds::ByHandle)
}

pub(super) fn machine_where(kind: FsKind, finds: Finds) -> Machine {
    let machine = Machine::new(1, &[finds.spec(kind)]);
    machine
        .plant(
            0,
            &[
                ("w", Plant::Dir),
                ("w/replaced", Plant::File(b"old contents")),
                ("w/removed", Plant::File(b"to be removed")),
                ("w/tree", Plant::Dir),
                ("w/tree/x", Plant::File(b"x")),
                ("w/tree/sub", Plant::Dir),
                ("w/tree/sub/y", Plant::Symlink("nowhere")),
                ("w/moved", Plant::File(b"moved")),
                ("w/dst", Plant::Dir),
                ("w/dirmoved", Plant::Dir),
                ("w/dirmoved/inside", Plant::File(b"inside")),
                ("w/linked", Plant::File(b"linked")),
                ("w/patched", Plant::File(&old_bytes())),
                ("w/grown", Plant::File(b"short")),
                ("w/attr", Plant::File(b"attr")),
                ("w/untouched", Plant::File(b"untouched")),
            ],
        )
        .expect("planting");
    machine.settle();
    // All of it is older than the checkpoint, as most of a tree is.
    machine.advance_ns(100_000_000_000);
    machine.set_word_points(false);
    // The area and the first segment are there already, as on every machine but at the very first use.
    let os = machine.spawn("earlier");
    let _ = run_process(&os, || {
        let domain = open(&os).map_err(|e| e.to_string())?;
        // A new segment is synced, and with it whatever was staged before.
        domain.checkpoint().map_err(|e| e.to_string())
    })
    .expect("not killed");
    os.exit();
    machine.settle();
    machine
}

/// Of a world that is built once; no access to the table is a point of its own.
pub(super) fn copy(machine: &Machine) -> Machine {
    let copy = machine.fork();
    copy.set_word_points(false);
    copy
}

pub(super) fn open(os: &SimOs) -> Result<Arc<Domain<SimOs>>, OpenError> {
    Domain::open(os, location(os, &os.root(0)))
}

/// The area alone, without what recovers in it.
pub(super) fn area(os: &SimOs, missing: Make) -> Result<Option<Area<SimOs>>, AreaError> {
    Area::open(os, &location(os, &os.root(0)), missing)
}

fn location<'a>(os: &SimOs, parent: &'a SimFd) -> Location<'a, SimOs> {
    Location { root: Arc::new(os.root(0)), bounds: Bounds::FileSystem, parent, name: AREA }
}

/// Returns what all others see: the tree without our area.
pub(super) fn public(machine: &Machine) -> Tree {
    machine.tree_of(0, |path| path != ".systx")
}

struct Maker<'a> {
    os: &'a SimOs,
    dir: Arc<LowerDir<SimOs>>,
    slots: SimFd,
    plan: Plan,
}

impl Maker<'_> {
    fn at(&self, dir: Handle, path: &[u8], name: &[u8]) -> At {
        At { dir, path: path.to_vec(), name: name.to_vec() }
    }
    fn step(&mut self, slot: u32, name: &[u8], act: Act) {
        let at = self.at(self.dir.handle, b"w", name);
        self.plan.steps.push(Step { slot, at, act });
        self.plan.written.push(ObjectId::entry(&self.dir.handle, name));
        self.plan.commuting.push(ObjectId::listing(&self.dir.handle));
    }
    fn file(&self, name: &[u8], bytes: &[u8]) -> Result<(), CommitError> {
        let fd = self.os.create(&self.slots, name, 0o640).map_err(os_failed)?;
        write_all(self.os, &fd, bytes, 0).map_err(os_failed)
    }
    fn patch(
        &mut self,
        slot: u32,
        name: &[u8],
        file: &Found,
        before: &[u8],
        after: &[u8],
        inline: bool,
    ) -> Result<(), CommitError> {
        let sectors = |b: &[u8]| {
            let mut padded = b.to_vec();
            padded.resize(before.len().max(after.len()).next_multiple_of(SECTOR_BYTES), 0);
            padded.chunks(SECTOR_BYTES).map(sector_crc).collect::<Vec<_>>()
        };
        let mut crcs = sectors(before);
        crcs.truncate(after.len().div_ceil(SECTOR_BYTES));
        if !inline {
            self.file(slot.to_string().as_bytes(), after)?;
        }
        let source = if inline { Source::Inline(after.to_vec()) } else { Source::Slot };
        let range = PatchRange { offset: 0, len: after.len() as u64, source, before: Before::Sectors(crcs) };
        let patch = Patch {
            file: file.handle,
            size_before: before.len() as u64,
            size_after: after.len() as u64,
            ranges: vec![range],
            ends: Vec::new(),
            by_pages: None,
        };
        self.step(if inline { Step::NO_SLOT } else { slot }, name, Act::Patch(patch));
        self.plan.written.push(ObjectId::data(&file.handle));
        Ok(())
    }
}

fn gone() -> CommitError {
    CommitError::Refused("gone before the transaction began".into())
}

fn os_failed(error: Errno) -> CommitError {
    CommitError::Failed { doing: "staging", path: Vec::new(), error }
}

/// Reads a file that is to be taken out, and returns its state.
fn read(facts: &mut Facts<SimOs>, found: &Found) -> Result<Vec<Read>, CommitError> {
    let failed = |e: VerbError| crate::commit::aborted(e);
    let file = facts.open(found.fact).map_err(failed)?;
    facts.read(&file, &mut [0; 100], 0).map_err(failed)?;
    Ok(facts.read_of(found.fact).into_iter().collect())
}

/// Which steps the transaction takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// One of every kind, with staged objects and a stage barrier.
    Everything,
    /// Those that need no barrier: small new objects, patches inline.
    Small,
    /// Those that need no slot: patches inline and attributes.
    Inline,
}

/// Runs the transaction; the caller is inside of `run_process`.
pub(super) fn transact(os: &SimOs, kind: Kind, durability: Durability) -> Result<Committed, CommitError> {
    let failed = |e: VerbError| crate::commit::aborted(e);
    let domain = open(os).map_err(|e| CommitError::Refused(e.to_string()))?;
    let mut facts = Facts::new(vec![domain.clone()]);
    let (_, root) = facts.root(0).map_err(failed)?;
    let w = facts.entry(&root, b"w").map_err(failed)?.ok_or_else(gone)?;
    let dir = facts.dir(w.fact).map_err(failed)?;
    let mut old = |name: &[u8]| -> Result<Found, CommitError> {
        let found = facts.entry(&dir, name).map_err(failed)?;
        found.ok_or_else(gone)
    };
    let (replaced, removed, tree, moved) =
        (old(b"replaced")?, old(b"removed")?, old(b"tree")?, old(b"moved")?);
    let (dst, dirmoved, linked) = (old(b"dst")?, old(b"dirmoved")?, old(b"linked")?);
    let (patched, grown, attr) = (old(b"patched")?, old(b"grown")?, old(b"attr")?);
    for name in [&b"new"[..], b"newdir", b"link", b"movedto", b"dirmovedto"] {
        if facts.entry(&dir, name).map_err(failed)?.is_some() {
            return Err(CommitError::Refused("there before the transaction began".into()));
        }
    }
    let (was_replaced, was_removed) = (read(&mut facts, &replaced)?, read(&mut facts, &removed)?);
    let (id, slots, base, shared_staging) = match (kind, domain.shared_staging()) {
        (Kind::Small, Some(shared_staging)) => {
            let id = domain.new_tx();
            (id, os.dup(&shared_staging.dir).map_err(os_failed)?, first_slot(id), Some(shared_staging))
        }
        _ => {
            let (id, slots) = domain.begin_staging().map_err(os_failed)?;
            (id, slots, 0, None)
        }
    };
    let in_shared_staging =
        shared_staging.map(|shared_staging| InSharedStaging { shared_staging, end: base + SLOTS_MAX });
    let mut m = Maker { os, dir: dir.clone(), slots, plan: Plan::default() };

    if kind == Kind::Everything {
        // Moves first, then what appears, then patches, removals, attributes.
        m.step(4, b"moved", Act::Take { before: moved.handle, directory: false });
        m.plan.tokens.push((4, Token::File));
        m.step(5, b"dirmoved", Act::Take { before: dirmoved.handle, directory: true });
        m.plan.tokens.push((5, Token::Directory));
        let to = m.at(dst.handle, b"w/dst", b"moved");
        m.plan.steps.push(Step { slot: 4, at: to, act: Act::Place { small: None } });
        m.step(5, b"dirmovedto", Act::Place { small: None });
        m.file(b"0", b"new contents")?;
        m.step(0, b"new", Act::Place { small: None });
        os.mkdir(&m.slots, b"1", 0o755).map_err(os_failed)?;
        let newdir = os.open(&m.slots, b"1", Open::Directory).map_err(os_failed)?;
        let inside = os.create(&newdir, b"inside", 0o600).map_err(os_failed)?;
        os.pwrite(&inside, b"inside of new", 0).map_err(os_failed)?;
        m.step(1, b"newdir", Act::Place { small: None });
        m.file(b"2", b"replacement")?;
        let ours = os.handle_at(&m.slots, b"2").map_err(os_failed)?;
        m.step(
            2,
            b"replaced",
            Act::Replace {
                ours,
                before: replaced.handle,
                tree: Vec::new(),
                read: was_replaced,
                rewrites: None,
            },
        );
        m.plan.staged = Staged { files: 4, others: 1 };
    } else if kind == Kind::Small {
        let name = slot_name(base);
        m.file(&name, b"new contents")?;
        let fd = os.open(&m.slots, &name, Open::Path).map_err(os_failed)?;
        let stat = os.stat(&fd).map_err(os_failed)?;
        let small = Small {
            handle: os.handle(&fd).map_err(os_failed)?,
            ctime: stat.ctime,
            mode: stat.mode,
            uid: stat.uid,
            gid: stat.gid,
            rdev: 0,
            mtime: stat.mtime,
            content: b"new contents".to_vec(),
            xattrs: Vec::new(),
        };
        m.step(base, b"new", Act::Place { small: Some(small) });
    }
    if kind != Kind::Inline {
        let found = m.at(dir.handle, b"w", b"linked");
        m.step(base + 6, b"link", Act::Link { object: linked.handle, found: Box::new(found) });
        m.plan.tokens.push((base + 6, Token::Links));
    }
    let mut after = old_bytes();
    after[600..640].fill(0xee);
    after.truncate(1300);
    m.patch(7, b"patched", &patched, &old_bytes(), &after, kind != Kind::Everything)?;
    let grown_after = [b"short".as_slice(), &[7; 1000]].concat();
    m.patch(8, b"grown", &grown, b"short", &grown_after, true)?;
    if kind != Kind::Inline {
        m.step(
            base + 9,
            b"removed",
            Act::Remove { before: removed.handle, tree: Vec::new(), read: was_removed, directory: false },
        );
        m.plan.tokens.push((base + 9, Token::File));
    }
    if kind == Kind::Everything {
        let below = facts.dir(tree.fact).map_err(failed)?;
        let mut handles = Vec::new();
        for name in [&b"x"[..], b"sub"] {
            handles.push(facts.entry(&below, name).map_err(failed)?.ok_or_else(gone)?);
        }
        let sub = facts.dir(handles[1].fact).map_err(failed)?;
        handles.push(facts.entry(&sub, b"y").map_err(failed)?.ok_or_else(gone)?);
        facts.listing(&below).map_err(failed)?;
        facts.listing(&sub).map_err(failed)?;
        let place = |path: &[&[u8]]| path.iter().fold(TreePlace::default(), |at, name| at.of(name)).short();
        let places = [place(&[b"x"]), place(&[b"sub"]), place(&[b"sub", b"y"])];
        let gone = |(f, place): (&Found, u32)| Gone { handle: f.handle, place };
        let names = handles.iter().zip(places).map(gone).collect();
        let of = Some(0);
        let read = read(&mut facts, &handles[0])?.into_iter().map(|read| Read { of, ..read }).collect();
        m.step(10, b"tree", Act::Remove { before: tree.handle, tree: names, read, directory: true });
        m.plan.tokens.push((10, Token::Directory));
    }
    let changes = vec![
        Change::Owner { old: (attr.stat.uid, attr.stat.gid), new: (5, 6) },
        Change::Mode { old: 0o644, new: 0o4755 },
        Change::Xattr { name: b"user.k".to_vec(), old: None, new: Some(b"v".to_vec()) },
    ];
    let mut bytes = BytesHash::default();
    bytes.add(0, b"attr");
    let power_over = Some(bytes.finish(4));
    m.step(Step::NO_SLOT, b"attr", Act::Attr { object: attr.handle, changes, power_over });
    let place = m.at(dir.handle, b"w", b"attr");
    m.plan.places.insert(attr.handle, place);
    let plan = m.plan;
    let draft = Draft {
        mount: 0,
        domain,
        id,
        age: id,
        plan,
        directories: Default::default(),
        slots: Some(Arc::new(m.slots)),
        in_shared_staging,
        failing: Failing::Goes,
    };
    run(&mut facts, vec![draft], durability, "test")
}
