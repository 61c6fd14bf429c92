//! Transactions that append to one file without having seen its end: beside one another, beside outsiders and readers of
//! the size, killed and cut off at every call, and redone.

use super::pages::*;
use super::world::*;
use crate::domain::{Domain, InFlight, SlotState};
use crate::id::PAGE_BYTES;
use crate::outcome::{CommitError, Committed, ConflictCopy, ConflictCopyKind, Durability, Verb, VerbError};
use crate::transaction::{Access, AppendedAt, Node, SetAttr, Transaction};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use systx_os::{Errno, FsKind, Open, Os, Rename, Seek};
use systx_sim::machine::{run_process, Call, Crash, Effect, Fault, Machine, Plant, SimFd, SimOs};

const BOTH: [Durability; 2] = [Durability::Durable, Durability::None];
const OURS: &str = "<ours, which is longer than what the others append>";

/// A world in which `w/f` has this size, and ends in bytes or in a hole.
fn world_of(kind: FsKind, size: u64, hole: bool) -> Machine {
    let machine = copy(&world(kind));
    let os = machine.outsider("before");
    let fd = os.open_path(0, "w/f", Open::ReadWrite).expect("opens");
    os.truncate(&fd, 0).expect("empties");
    if !hole {
        os.pwrite(&fd, &vec![b'.'; size as usize], 0).expect("writes");
    }
    os.truncate(&fd, size).expect("makes it longer");
    drop(fd);
    os.exit();
    machine.settle();
    machine.advance_ns(120_000_000_000);
    machine
}

/// Empty, within a sector, at the end of one, of a page, within a page; and a hole.
const SIZES: [(u64, bool); 7] = [
    (0, false),
    (5, false),
    (512, false),
    (PAGE_BYTES, false),
    (PAGE_BYTES + 700, false),
    (1000, true),
    (8192, true),
];

fn append(t: &mut Transaction<SimOs>, file: Node, text: &str) -> Verb<()> {
    t.open(file, Access::Write, false)?;
    t.append(file, text.as_bytes())?;
    t.close(file);
    Ok(())
}

/// A whole transaction that appends to `w/f`, and changes `w/g` if it is ours.
fn commit(domain: &Arc<Domain<SimOs>>, durability: Durability, text: &str) -> Result<Committed, CommitError> {
    let work = || -> Verb<Transaction<SimOs>> {
        let (mut t, f) = begin(domain, durability)?;
        append(&mut t, f, text)?;
        if text == OURS {
            let g = named(&mut t, b"g")?;
            t.open(g, Access::Write, true)?;
            t.write_at(g, b"new", 0)?;
            t.close(g);
        }
        Ok(t)
    };
    work().map_err(crate::commit::aborted)?.commit()
}

/// Returns all that stands behind the first bytes of the file, piece by piece, each of which is whole.
fn behind(machine: &Machine, size: u64) -> Vec<String> {
    let all = content(machine);
    assert!(all.len() as u64 >= size, "the file was cut");
    let (first, rest) = all.split_at(size as usize);
    assert!(first.iter().all(|byte| b".\0".contains(byte)), "written to the bytes before");
    let text = String::from_utf8_lossy(rest);
    let pieces = text.split_inclusive('>').map(str::to_owned).collect::<Vec<_>>();
    let whole =
        |piece: &String| piece.starts_with('<') && piece.ends_with('>') && piece.matches('<').count() == 1;
    assert!(pieces.iter().all(whole), "torn: {text:?}");
    pieces
}

fn count(machine: &Machine, text: &str) -> usize {
    String::from_utf8_lossy(&content(machine)).matches(text).count()
}

fn is_new(machine: &Machine) -> bool {
    machine.look(0, "w/g").expect("it is there").content == b"new"
}

#[test]
fn who_appends_unseen_does_not_conflict() {
    for (kind, durability) in KINDS.into_iter().flat_map(|kind| BOTH.map(|durability| (kind, durability))) {
        for (size, hole) in SIZES {
            let machine = copy(&world_of(kind, size, hole));
            let os = machine.spawn("owner");
            run_process(&os, || {
                let domain = open(&os).expect("opens");
                let (mut t, f) = begin(&domain, durability).expect("begins");
                append(&mut t, f, "<1>").expect("appends");
                committed(commit(&domain, Durability::Durable, "<2>"));
                committed(commit(&domain, Durability::None, "<3>"));
                append(&mut t, f, "<4>").expect("appends");
                committed(t.commit());
                committed(commit(&domain, durability, "<5>"));
            })
            .expect("lives");
            let what = format!("{kind:?} {durability:?}, {size} bytes, hole: {hole}");
            assert_eq!(behind(&machine, size), ["<2>", "<3>", "<1>", "<4>", "<5>"], "{what}");
            os.exit();
            for (seed, crash) in
                crashes().filter(|_| kind != FsKind::Tmpfs && durability == Durability::Durable)
            {
                let machine = copy(&machine);
                machine.power_loss(crash, &mut fastrand::Rng::with_seed(seed));
                recover(&machine);
                assert_eq!(behind(&machine, size), ["<2>", "<3>", "<1>", "<4>", "<5>"], "{what}: {crash:?}");
            }
        }
    }
}

/// Something is asked or made of the file before the commit, or beside what is appended.
#[test]
fn who_has_seen_the_end_conflicts_with_an_append_and_who_has_not_does_not() {
    type Part = fn(&mut Transaction<SimOs>, Node) -> Verb<()>;
    // Each with two answers: is it a conflict behind what is appended, and before?
    let parts: [(&str, Part, [bool; 2]); 12] = [
        ("nothing", |_, _| Ok(()), [false; 2]),
        ("a page before", |t, f| read(t, f, 0).map(drop), [true, false]),
        ("a page written", |t, f| write(t, f, 0, b"."), [true, false]),
        ("size and times", |t, f| t.getattr(f).map(drop), [true; 2]),
        ("its end", |t, f| t.end_before(f).map(drop), [true; 2]),
        ("its bytes", |t, f| t.read_at(f, &mut [0; 20_000], 0).map(drop), [true; 2]),
        ("a seek", |t, f| t.seek(f, 0, Seek::Hole).map(drop), [true; 2]),
        ("a part", |t, _| t.savepoint().map(drop), [true, false]),
        // The end is seen when it commits.
        (
            "its mode",
            |t, f| t.setattr(f, &SetAttr { mode: Some(0o600), ..SetAttr::default() }).map(drop),
            [false; 2],
        ),
        (
            "its size",
            |t, f| t.setattr(f, &SetAttr { size: Some(3), ..SetAttr::default() }).map(drop),
            [true; 2],
        ),
        ("many bytes", |t, f| t.append(f, &[b'+'; 7000]).map(drop), [true; 2]),
        ("its changes", |t, _| t.changes().map(drop), [true, false]),
    ];
    for (kind, (what, part, expected)) in KINDS.into_iter().flat_map(|k| parts.map(|part| (k, part))) {
        for (first, expected) in [true, false].into_iter().zip(expected) {
            within(kind, |machine, domain| {
                let (mut t, f) = begin(domain, Durability::Durable).expect("begins");
                t.open(f, Access::ReadWrite, false).expect("opens");
                if first {
                    t.append(f, b"<1>").expect("appends");
                }
                part(&mut t, f).expect("works");
                committed(commit(domain, Durability::Durable, "<2>"));
                let work = || -> Result<Committed, CommitError> {
                    if !first {
                        t.append(f, b"<1>").map_err(crate::commit::aborted)?;
                    }
                    t.close(f);
                    t.commit()
                };
                let ended = work();
                let conflict = matches!(ended, Err(CommitError::Conflict(_)));
                assert_eq!(conflict, expected, "{kind:?}: {what}, first: {first}: {ended:?}");
                assert_eq!(count(machine, "<2>"), 1, "{kind:?}: {what}");
                assert_eq!(count(machine, "<1>"), usize::from(!conflict), "{kind:?}: {what}");
            });
        }
    }
}

#[test]
fn who_appends_sees_its_own_bytes_behind_the_end_that_it_asks_for() {
    for (size, hole) in SIZES {
        let machine = copy(&world_of(FsKind::Ext4, size, hole));
        let os = machine.spawn("owner");
        run_process(&os, || {
            let domain = open(&os).expect("opens");
            let (mut t, f) = begin(&domain, Durability::None).expect("begins");
            t.open(f, Access::ReadWrite, false).expect("opens");
            assert_eq!(t.append(f, b"<1>"), Ok((AppendedAt::BehindEnd(0), 3)));
            assert_eq!(t.append(f, b"<2>"), Ok((AppendedAt::BehindEnd(3), 3)));
            let mut all = [0; 10];
            assert_eq!(t.read_at(f, &mut all, size), Ok(6));
            assert_eq!(all[..6], *b"<1><2>");
            assert_eq!(t.end_before(f), Ok(size));
            assert_eq!(t.getattr(f).map(|attr| attr.size), Ok(size + 6));
            assert_eq!(t.append(f, b"<3>"), Ok((AppendedAt::Offset(size + 6), 3)));
            t.close(f);
            committed(t.commit());
        })
        .expect("lives");
        assert_eq!(behind(&machine, size), ["<1>", "<2>", "<3>"], "{size}");
    }
}

#[test]
fn a_file_that_cannot_take_what_was_appended_does_not_lose_it_silently() {
    within(FsKind::Ext4, |machine, domain| {
        let (mut t, f) = begin(domain, Durability::None).expect("begins");
        append(&mut t, f, "<1>").expect("appends");
        let g = named(&mut t, b"g").expect("is there");
        // Removed in the transaction, it is open to it still.
        t.open(f, Access::ReadWrite, false).expect("opens");
        let root = t.root(0);
        let (w, _) = t.lookup(root, b"w").expect("looks").expect("is there");
        t.unlink(w, b"f").expect("unlinks");
        let mut bytes = [0; 3];
        assert_eq!(t.read_at(f, &mut bytes, 3 * PAGE_BYTES + 700), Ok(3));
        assert_eq!(bytes, *b"<1>");
        t.close(f);
        append(&mut t, g, "<1>").expect("appends");
        committed(t.commit());
        assert_eq!(machine.look(0, "w/g").expect("is there").content, b"g<1>");
        assert!(machine.look(0, "w/f").is_none(), "removed");
    });
}

/// How a commit of ours has ended beside which something else was done.
struct Beside {
    /// `None`: it was killed.
    ended: Option<Result<Committed, CommitError>>,
    points: u64,
    reached: bool,
    came: bool,
}

/// Runs a commit of ours and, before its `at`th call, an act; kills ours at another call.
fn beside(
    machine: &Machine,
    durability: Durability,
    at: usize,
    act: impl Fn(&Machine, &Domain<SimOs>) -> bool + Send + Sync + 'static,
    killed: Option<u64>,
) -> Beside {
    let os = machine.spawn("owner");
    let seen = before_call(machine, &os, at, act);
    if let Some(call) = killed {
        machine.kill_at(&os, call);
    }
    let done = run_process(&os, || commit(&open(&os).expect("opens"), durability, OURS));
    let points = os.points();
    machine.clear_hook();
    machine.clear_plans();
    os.exit();
    let [reached, came] = [0, 1].map(|n: usize| seen[n].load(Ordering::Relaxed));
    Beside { ended: done.ok(), points, reached, came }
}

/// In the short form of some kinds at every third call.
fn step(kind: FsKind) -> usize {
    if kind == FsKind::Ext4 || std::env::var_os("SYSTX_LONG").is_some() {
        1
    } else {
        3
    }
}

#[test]
fn an_append_beside_any_call_of_another_one_loses_neither() {
    for (kind, durability) in KINDS.into_iter().flat_map(|kind| BOTH.map(|durability| (kind, durability))) {
        let size = PAGE_BYTES + 700;
        let world = world_of(kind, size, false);
        let (mut came, mut deaths) = (0, 0);
        for at in (0..).step_by(step(kind)) {
            let theirs = if at % 2 == 0 { Durability::Durable } else { Durability::None };
            let act = move |machine: &Machine, _: &Domain<SimOs>| {
                other(machine, |domain| commit(domain, theirs, "<other>"))
            };
            let machine = copy(&world);
            let done = beside(&machine, durability, at, act, None);
            let what = format!("{kind:?} {durability:?}, before call {at}");
            committed(done.ended.unwrap_or_else(|| panic!("{what}: it lives")));
            if !done.reached {
                break;
            }
            came += u32::from(done.came);
            let all = behind(&machine, size);
            assert_eq!(all.len(), 1 + usize::from(done.came), "{what}: lost: {all:?}");
            assert!(all.contains(&OURS.into()) && is_new(&machine), "{what}: lost: {all:?}");
            // Killed at some call, before or behind that.
            let killed = copy(&world);
            let then = beside(&killed, durability, at, act, Some(done.points * (at as u64 * 7 % 31) / 31));
            let lives = then.ended.is_some();
            deaths += u32::from(!lives);
            recover(&killed);
            let all = behind(&killed, size);
            assert_eq!(all.contains(&OURS.into()), is_new(&killed), "{what}, killed: half: {all:?}");
            assert_eq!(
                all.len(),
                usize::from(is_new(&killed)) + usize::from(then.came),
                "{what}, killed: {all:?}"
            );
            if kind == FsKind::Tmpfs || durability == Durability::None {
                continue;
            }
            for (seed, crash) in crashes() {
                for (machine, lives, came) in [(&machine, true, done.came), (&killed, lives, then.came)] {
                    let machine = copy(machine);
                    machine.power_loss(crash, &mut fastrand::Rng::with_seed(seed));
                    recover(&machine);
                    let ours = count(&machine, OURS);
                    assert_eq!(ours, usize::from(is_new(&machine)), "{what} {crash:?}: half");
                    assert!(!lives || ours == 1, "{what} {crash:?}: lost");
                    // Without durability the other one's may be torn.
                    if theirs == Durability::Durable {
                        let all = behind(&machine, size);
                        assert_eq!(all.len(), ours + usize::from(came), "{what} {crash:?}: {all:?}");
                    }
                }
            }
        }
        assert!(came > 10 && deaths > 5, "{kind:?}: {came} came, {deaths} died");
    }
}

/// An outsider that has the file open all the time, or opens it to append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Theirs {
    Open,
    Opens,
}

/// An outsider on a machine.
struct Outsider {
    os: SimOs,
    kept: Option<SimFd>,
    /// Ours was past its commit point when it appended.
    late: AtomicBool,
}

impl Outsider {
    fn new(machine: &Machine, theirs: Theirs) -> Arc<Outsider> {
        let os = machine.outsider("outsider");
        let open = || os.open_path(0, "w/f", Open::ReadWrite).expect("opens");
        let kept = (theirs == Theirs::Open).then(open);
        Arc::new(Outsider { os, kept, late: AtomicBool::new(false) })
    }

    /// Appends; false: it was kept out.
    fn append(&self, domain: &Domain<SimOs>) -> bool {
        let publishes =
            |slot: Result<InFlight, _>| slot.expect("sound").seen.state() == SlotState::Publishing;
        self.late.store(domain.table.slots().in_flight().any(publishes), Ordering::Relaxed);
        let put = |fd: &SimFd| self.os.append(fd, b"<theirs>").is_ok();
        match &self.kept {
            Some(kept) => put(kept),
            None => self.os.open_path(0, "w/f", Open::ReadWrite).is_ok_and(|fd| put(&fd)),
        }
    }
}

/// Runs a commit of ours beside an outsider's append; whether both have come through, or ours has met a conflict by that;
/// `None`: there is no such call.
fn beside_outsider(
    world: &Machine,
    (kind, durability, theirs): (FsKind, Durability, Theirs),
    size: u64,
    at: usize,
    what: &str,
) -> Option<[bool; 2]> {
    let machine = copy(world);
    let outsider = Outsider::new(&machine, theirs);
    let act = |outsider: &Arc<Outsider>| {
        let outsider = outsider.clone();
        move |_: &Machine, domain: &Domain<SimOs>| outsider.append(domain)
    };
    let done = beside(&machine, durability, at, act(&outsider), None);
    if !done.reached {
        return None;
    }
    let ours = match done.ended.unwrap_or_else(|| panic!("{what}: it lives")) {
        Err(CommitError::Conflict(conflict)) => {
            assert!(done.came, "{what}: {conflict}");
            false
        }
        ended => {
            committed(ended);
            true
        }
    };
    let times = |all: &[String], text: &str| all.iter().filter(|piece| *piece == text).count();
    let all = behind(&machine, size);
    assert_eq!(times(&all, "<theirs>"), usize::from(done.came), "{what}: {all:?}");
    assert_eq!((times(&all, OURS), is_new(&machine)), (usize::from(ours), ours), "{what}: {all:?}");
    // Killed at some call, before or behind that. What comes behind the commit point can't be told from a part of ours
    // then, which is reported.
    let killed = copy(world);
    let other = Outsider::new(&killed, theirs);
    let call = done.points * (at as u64 * 7 % 31) / 31;
    let then = beside(&killed, durability, at, act(&other), Some(call));
    let os = killed.spawn("recovery");
    run_process(&os, || drop(open(&os).expect("opens").finish_dead().expect("recovers"))).expect("lives");
    os.exit();
    let all = behind(&killed, size);
    assert_eq!(times(&all, "<theirs>"), usize::from(then.came), "{what}, killed: {all:?}");
    assert!(times(&all, OURS) <= 1, "{what}, killed: twice: {all:?}");
    let whole = (times(&all, OURS) == 1) == is_new(&killed);
    assert!(whole || other.late.load(Ordering::Relaxed), "{what}, killed: half: {all:?}");
    let ends = [(&machine, true), (&killed, then.ended.is_some())];
    if durability == Durability::Durable && kind != FsKind::Tmpfs {
        for ((machine, lives), (seed, crash)) in
            ends.into_iter().flat_map(|end| crashes().map(move |c| (end, c)))
        {
            let machine = copy(machine);
            machine.power_loss(crash, &mut fastrand::Rng::with_seed(seed));
            recover(&machine);
            // What the outsider has not synced may be lost, or torn.
            let now = count(&machine, OURS);
            assert!(now <= 1, "{what} {crash:?}: twice");
            assert!(!lives || now == usize::from(ours), "{what} {crash:?}: ours is lost");
        }
    }
    Some([done.came, ours])
}

#[test]
fn an_outsider_that_appends_beside_any_call_of_an_append_loses_nothing_and_nothing_of_ours_is_lost() {
    let size = PAGE_BYTES + 700;
    for kind in KINDS {
        let world = world_of(kind, size, false);
        for (durability, theirs) in BOTH
            .iter()
            .flat_map(|durability| [Theirs::Open, Theirs::Opens].map(|theirs| (*durability, theirs)))
        {
            let case = |at: &usize| {
                let what = format!("{kind:?} {durability:?} {theirs:?}, before call {at}");
                beside_outsider(&world, (kind, durability, theirs), size, *at, &what)
            };
            let all: Vec<_> = (0..).step_by(step(kind)).map_while(|at| case(&at)).collect();
            let came = all.iter().filter(|[came, _]| *came).count();
            let both = all.iter().filter(|[came, ours]| *came && *ours).count();
            assert!(
                came > 10 && both > 0,
                "{kind:?} {durability:?} {theirs:?}: {came} came, {both} with ours"
            );
        }
    }
}

/// An outsider that has the file open makes it longer by zeros, which look like bytes that a power loss has taken.
#[test]
fn an_append_that_came_behind_zeros_of_an_outsider_is_there_once_after_a_power_loss() {
    let size = PAGE_BYTES + 700;
    let mut both = 0;
    for kind in [FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs] {
        let world = world_of(kind, size, false);
        for at in (0..).step_by(step(kind)) {
            let machine = copy(&world);
            let outsider = Outsider::new(&machine, Theirs::Open);
            let theirs = outsider.clone();
            let grows = move |_: &Machine, _: &Domain<SimOs>| {
                theirs.kept.as_ref().is_some_and(|fd| theirs.os.append(fd, &[0; 512]).is_ok())
            };
            let done = beside(&machine, Durability::Durable, at, grows, None);
            if !done.reached {
                break;
            }
            let Ok(committed) = done.ended.expect("it lives") else { continue };
            assert!(committed.pending.is_none(), "{committed:?}");
            both += 1;
            for (seed, crash) in crashes() {
                let machine = copy(&machine);
                machine.power_loss(crash, &mut fastrand::Rng::with_seed(seed));
                recover(&machine);
                let times = count(&machine, OURS);
                assert_eq!(times, 1, "{kind:?}, before call {at}, {crash:?}: it is there {times} times");
            }
        }
    }
    assert!(both > 5, "{both} come together");
}

/// It is public, and no sync of it has succeeded.
#[test]
fn an_append_whose_sync_fails_behind_an_outsiders_is_there_after_the_next_mount() {
    let size = PAGE_BYTES + 700;
    let mut pending = 0;
    for kind in [FsKind::Ext4, FsKind::Xfs] {
        let world = world_of(kind, size, false);
        for at in 0.. {
            let machine = copy(&world);
            let outsider = Outsider::new(&machine, Theirs::Open);
            let theirs = outsider.clone();
            let append = move |machine: &Machine, domain: &Domain<SimOs>| {
                let came = theirs.append(domain);
                // Its header is in the log.
                let is_decided = domain
                    .table
                    .slots()
                    .in_flight()
                    .flatten()
                    .any(|slot| slot.seen.state() == SlotState::Publishing);
                if is_decided {
                    machine.fault(Fault::fail(Call::Fdatasync, Errno::IO));
                }
                came && is_decided
            };
            let done = beside(&machine, Durability::Durable, at, append, None);
            if !done.reached {
                break;
            }
            let waits = done.ended.expect("lives").is_ok_and(|committed| committed.pending.is_some());
            if !waits {
                continue;
            }
            pending += 1;
            for _ in 0..2 {
                let os = machine.spawn("next");
                let _ = run_process(&os, || {
                    let domain = open(&os).expect("opens");
                    let _ = domain.finish_dead();
                    let _ = (domain.keep_all_promises(), domain.checkpoint());
                });
                os.exit();
            }
            machine.power_loss(Crash::NothingUnsynced, &mut fastrand::Rng::with_seed(1));
            let os = machine.spawn("recovery");
            run_process(&os, || drop(open(&os).expect("opens").finish_dead())).expect("lives");
            assert_eq!(count(&machine, OURS), 1, "{kind:?}, before call {at}: ours is lost");
        }
    }
    assert!(pending > 0, "none waits");
}

/// The disk is full behind the page in which the file ends, until no other process has it open any more.
#[test]
fn an_append_that_a_full_disk_has_cut_off_at_a_page_is_made_whole_when_there_is_room() {
    let size = 2 * PAGE_BYTES - 10;
    let (mut pending, mut cut) = (0, 0);
    for (kind, durability) in KINDS.into_iter().flat_map(|kind| BOTH.map(|durability| (kind, durability))) {
        let world = world_of(kind, size, false);
        for skip in 0..40 {
            let machine = copy(&world);
            let outsider = Outsider::new(&machine, Theirs::Open);
            let os = machine.spawn("owner");
            let ended = run_process(&os, || {
                let domain = open(&os).expect("opens");
                let planned =
                    |skip, effect| Fault { process: None, call: Some(Call::Pwrite), skip, times: 1, effect };
                machine.fault(planned(skip, Effect::Short(10)));
                machine.fault(planned(skip + 1, Effect::Fail(Errno::NOSPC)));
                commit(&domain, durability, OURS)
            })
            .expect("lives");
            machine.clear_plans();
            os.exit();
            pending += u32::from(ended.is_ok_and(|done| done.pending.is_some()));
            cut += u32::from(content(&machine).len() as u64 == size + 10);
            drop(outsider);
            recover(&machine);
            let all = behind(&machine, size);
            let ours = usize::from(is_new(&machine));
            assert_eq!(all, vec![OURS; ours], "{kind:?} {durability:?}, short write {skip}: half");
        }
    }
    assert!(pending > 5 && cut > 5, "{pending} pending, {cut} cut off");
}

/// A transaction that reads the size writes what it has read.
#[test]
fn a_reader_of_the_size_beside_any_call_of_an_append_has_seen_all_of_it_or_nothing() {
    let size = PAGE_BYTES + 700;
    let world = world_of(FsKind::Ext4, size, false);
    let mut came = 0;
    for at in 0.. {
        let machine = copy(&world);
        let os = machine.spawn("reader");
        let seen = before_call(&machine, &os, at, |machine, _| {
            other(machine, |domain| commit(domain, Durability::Durable, "<other>"))
        });
        let ended = run_process(&os, || {
            let failed = |e: VerbError| crate::commit::aborted(e);
            let domain = open(&os).expect("opens");
            let work = || -> Verb<Transaction<SimOs>> {
                let (mut t, f) = begin(&domain, Durability::Durable)?;
                let seen = t.getattr(f)?.size;
                append(&mut t, f, &format!("<{seen}>"))?;
                Ok(t)
            };
            work().map_err(failed)?.commit()
        })
        .expect("lives");
        machine.clear_hook();
        machine.clear_plans();
        let [reached, other] = [0, 1].map(|n: usize| seen[n].load(Ordering::Relaxed));
        if !reached {
            break;
        }
        came += u32::from(other);
        let before =
            if behind(&machine, size).first().is_some_and(|first| first == "<other>") { 7 } else { 0 };
        let said = behind(&machine, size).iter().any(|piece| *piece == format!("<{}>", size + before));
        match ended {
            Err(CommitError::Conflict(_)) => assert!(other && !said, "call {at}"),
            ended => {
                committed(ended);
                assert!(said, "call {at}: a size that it has not: {:?}", behind(&machine, size));
            }
        }
    }
    assert!(came > 10, "{came}");
}

/// A redo writes the bytes of a first commit to a file that a second commit has read and then removed or replaced.
#[test]
fn what_a_redo_writes_to_a_file_that_is_taken_away_behind_is_no_outsiders_change() {
    type Change = fn(&mut Transaction<SimOs>, Node) -> Verb<()>;
    let changes: [Change; 2] = [|t, f| append(t, f, OURS), |t, f| write(t, f, 0, b"page")];
    for (kind, (n, change)) in [FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs]
        .into_iter()
        .flat_map(|kind| changes.into_iter().enumerate().map(move |c| (kind, c)))
    {
        for replaced in [true, false] {
            let machine = machine(kind);
            let planted = [("w/f", Plant::File(&[b'.'; 5000])), ("w/g", Plant::File(b"g"))];
            machine.plant(0, &planted).expect("planting");
            machine.settle();
            let os = machine.spawn("owner");
            run_process(&os, || {
                let domain = open(&os).expect("opens");
                let (mut t, f) = begin(&domain, Durability::Durable).expect("begins");
                change(&mut t, f).expect("works");
                committed(t.commit());
                let (mut t, f) = begin(&domain, Durability::Durable).expect("begins");
                read(&mut t, f, 0).expect("reads");
                let (w, _) = t.lookup(t.root(0), b"w").expect("looks").expect("is there");
                if replaced {
                    t.rename(w, b"g", w, b"f", Rename::Replace).expect("works");
                } else {
                    t.unlink(w, b"f").expect("works");
                }
                committed(t.commit());
            })
            .expect("lives");
            os.exit();
            for (seed, crash) in crashes() {
                let machine = copy(&machine);
                machine.power_loss(crash, &mut fastrand::Rng::with_seed(seed));
                let os = machine.spawn("recovery");
                let told = run_process(&os, || open(&os).expect("opens").recovered.clone()).expect("lives");
                let what = format!("{kind:?}, {crash:?}, change {n}, replaced {replaced}");
                let changed = |copy: &ConflictCopy| copy.what == ConflictCopyKind::ReadThenChanged;
                let wrong = told.conflict_copies.iter().any(changed);
                assert!(!wrong, "{what}: no other process was there, {told:?}");
                assert_eq!(machine.look(0, "w/f").is_some(), replaced, "{what}");
            }
        }
    }
}
