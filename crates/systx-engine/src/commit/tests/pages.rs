//! Transactions on different pages of one file, at one time: beside one another, killed and cut off at every call, with
//! outsiders, and redone.

use super::world::*;
use crate::domain::Domain;
use crate::id::PAGE_BYTES;
use crate::outcome::{CommitError, Committed, ConflictKind, Durability, Options, Recovered, Verb, VerbError};
use crate::transaction::{Access, Caller, Grain, Node, SetAttr, SetTime, Transaction};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;
use systx_os::{FsKind, Open, Os, Timestamp};
use systx_sim::machine::{run_process, Crash, Machine, Plant, SimOs};

pub(super) const KINDS: [FsKind; 4] = [FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs, FsKind::Tmpfs];
/// Three pages, and a part of a fourth one.
const LEN: usize = 3 * PAGE_BYTES as usize + 700;

pub(super) fn world(kind: FsKind) -> Machine {
    let machine = machine(kind);
    machine.plant(0, &[("w/f", Plant::File(&[b'.'; LEN])), ("w/g", Plant::File(b"g"))]).expect("planting");
    machine.settle();
    machine.advance_ns(120_000_000_000);
    machine
}

pub(super) fn begin(domain: &Arc<Domain<SimOs>>, durability: Durability) -> Verb<(Transaction<SimOs>, Node)> {
    let options = Options { durability, ..Options::default() };
    let mut t = Transaction::begin(domain.os.clone(), vec![domain.clone()], options)?;
    t.look_by(Grain::Pages);
    let node = named(&mut t, b"f")?;
    Ok((t, node))
}

pub(super) fn named(t: &mut Transaction<SimOs>, name: &[u8]) -> Verb<Node> {
    let root = t.root(0);
    let (w, _) = t.lookup(root, b"w")?.expect("it is there");
    Ok(t.lookup(w, name)?.expect("it is there").0)
}

pub(super) fn write(t: &mut Transaction<SimOs>, node: Node, page: u64, text: &[u8]) -> Verb<()> {
    t.open(node, Access::ReadWrite, false)?;
    t.write_at(node, text, page * PAGE_BYTES + 100)?;
    t.close(node);
    Ok(())
}

pub(super) fn read(t: &mut Transaction<SimOs>, node: Node, page: u64) -> Verb<Vec<u8>> {
    t.open(node, Access::Read, false)?;
    let mut bytes = vec![0; 200];
    let got = t.read_at(node, &mut bytes, page * PAGE_BYTES)?;
    t.close(node);
    bytes.truncate(got);
    Ok(bytes)
}

/// A whole transaction that writes to one page.
fn commit(domain: &Arc<Domain<SimOs>>, page: u64, text: &[u8]) -> Result<Committed, CommitError> {
    let failed = |e: VerbError| crate::commit::aborted(e);
    let (mut t, node) = begin(domain, Durability::Durable).map_err(failed)?;
    match write(&mut t, node, page, text) {
        Ok(()) => t.commit(),
        Err(error) => {
            t.abort();
            Err(failed(error))
        }
    }
}

pub(super) fn committed(done: Result<Committed, CommitError>) {
    let done = done.unwrap_or_else(|error| panic!("{error}"));
    assert!(done.conflict_copies.is_empty() && done.pending.is_none(), "{done:?}");
}

pub(super) fn content(machine: &Machine) -> Vec<u8> {
    machine.look(0, "w/f").expect("it is there").content
}

fn has(machine: &Machine, page: u64, text: &[u8]) -> bool {
    content(machine)[(page * PAGE_BYTES) as usize + 100..].starts_with(text)
}

pub(super) fn recover(machine: &Machine) -> Recovered {
    let os = machine.spawn("recovery");
    let done = run_process(&os, || {
        let domain = open(&os).expect("opens");
        let aside = domain.kept_aside().expect("readable");
        assert!(aside.is_empty(), "displaced without an outsider: {aside:?}");
        domain.finish_dead().expect("recovers")
    });
    os.exit();
    done.expect("lives")
}

pub(super) fn crashes() -> impl Iterator<Item = (u64, Crash)> {
    Crash::WORST.into_iter().chain([Crash::Random; 2]).enumerate().map(|(seed, crash)| (seed as u64, crash))
}

/// Two transactions in one process, one within the other.
pub(super) fn within(kind: FsKind, work: impl FnOnce(&Machine, &Arc<Domain<SimOs>>)) {
    let machine = copy(&world(kind));
    let os = machine.spawn("owner");
    run_process(&os, || work(&machine, &open(&os).expect("opens"))).expect("lives");
}

/// An outsider changes a word to and fro: what a read has found, what the change builds on, and what the comparisons see
/// are of different moments.
#[test]
fn what_is_replaced_is_what_was_read_however_often_it_changes() {
    const AT: u64 = PAGE_BYTES + 104;
    const TURNS: [&[u8; 8]; 2] = [b"one turn", b"another."];
    let world = world(FsKind::Ext4);
    world.set_word_points(false);
    let (mut replaced, mut refused) = (0, 0);
    for seed in 0..1500 {
        let machine = copy(&world);
        let (os, outsider) = (machine.spawn("owner"), machine.outsider("turns"));
        let file = outsider.open_path(0, "w/f", Open::ReadWrite).expect("opens");
        outsider.pwrite(&file, TURNS[0], AT).expect("works");
        machine.advance_ns(120_000_000_000);
        // The value as of the last call at which it was not ours.
        let (last, mut rng) = (Arc::new(AtomicUsize::new(0)), fastrand::Rng::with_seed(seed));
        let shared = last.clone();
        let run = || {
            let (mut t, node) = begin(&open(&os).expect("opens"), Durability::None)?;
            t.open(node, Access::ReadWrite, false)?;
            let mut bytes = [0; 8];
            t.read_at(node, &mut bytes, AT)?;
            machine.set_hook(move |_, _| {
                let mut now = [0; 8];
                outsider.pread(&file, &mut now, AT).expect("works");
                let Some(mut turn) = TURNS.iter().position(|turn| **turn == now) else { return };
                if rng.u8(..4) == 0 {
                    turn = 1 - turn;
                    outsider.pwrite(&file, TURNS[turn], AT).expect("works");
                }
                shared.store(turn, Ordering::Relaxed);
            });
            t.write_at(node, b"is ours.", AT)?;
            t.close(node);
            Ok((bytes, t.commit()))
        };
        let ended: Result<Verb<_>, _> = run_process(&os, run);
        machine.clear_hook();
        match ended.expect("lives") {
            Ok((read, Ok(done))) if done.conflict_copies.is_empty() => {
                replaced += 1;
                let before = TURNS[last.load(Ordering::Relaxed)];
                assert_eq!(&read, before, "seed {seed}: replaces another value than it read");
            }
            Ok(_) | Err(_) => refused += 1,
        }
    }
    assert!(replaced > 0 && refused > 0, "{replaced} {refused}");
}

#[test]
fn who_writes_different_pages_of_a_file_does_not_conflict() {
    for kind in KINDS {
        for durability in [Durability::Durable, Durability::None] {
            within(kind, |machine, domain| {
                let (mut t, node) = begin(domain, durability).expect("begins");
                write(&mut t, node, 0, b"first").expect("writes");
                for n in 1..4 {
                    committed(commit(domain, n, b"other"));
                }
                assert_eq!(read(&mut t, node, 0).expect("reads")[100..105], *b"first");
                committed(t.commit());
                for n in 0..4 {
                    assert!(has(machine, n, if n == 0 { b"first" } else { b"other" }), "{kind:?}: page {n}");
                }
                assert_eq!(content(machine).len(), LEN);
            });
        }
    }
}

/// Whatever the other one has read or been shown of the file.
#[test]
fn what_is_read_of_a_file_conflicts_with_a_write_to_it_and_with_no_other_one() {
    type Part = fn(&mut Transaction<SimOs>, Node) -> Verb<()>;
    let parts: [(&str, Part, [bool; 4]); 9] = [
        ("its name", |_, _| Ok(()), [false; 4]),
        ("the second page", |t, f| read(t, f, 1).map(drop), [false, true, false, false]),
        (
            "the end",
            |t, f| read(t, f, 3).map(|bytes| assert_eq!(bytes.len(), 200)),
            [false, false, false, true],
        ),
        (
            "the end, and that it is the end",
            |t, f| {
                t.open(f, Access::Read, false)?;
                let got = t.read_at(f, &mut [0; 2048], 3 * PAGE_BYTES)?;
                t.close(f);
                assert_eq!(got, 700);
                Ok(())
            },
            [false, false, false, true],
        ),
        ("the size", |t, f| t.size(f).map(|size| assert_eq!(size, LEN as u64)), [false; 4]),
        ("an append behind the size", |t, f| behind(t, f, b"behind"), [false, false, false, true]),
        ("size and times", |t, f| t.getattr(f).map(drop), [true; 4]),
        (
            "all of it",
            |t, f| {
                t.open(f, Access::Read, false)?;
                let got = t.read_at(f, &mut vec![0; 2 * LEN], 0)?;
                t.close(f);
                assert_eq!(got, LEN);
                Ok(())
            },
            [true; 4],
        ),
        ("an append", |t, f| t.append(f, b"behind").map(drop), [false; 4]),
    ];
    for (kind, (what, part, expected)) in KINDS.into_iter().flat_map(|k| parts.map(|part| (k, part))) {
        for page in 0..4 {
            within(kind, |_, domain| {
                let (mut t, node) = begin(domain, Durability::Durable).expect("begins");
                part(&mut t, node).expect("works");
                committed(commit(domain, page, b"other"));
                let g = named(&mut t, b"g");
                let ended = g.and_then(|g| write_whole(&mut t, g)).map_err(crate::commit::aborted);
                let ended = ended.and_then(|()| t.commit());
                let conflict = matches!(ended, Err(CommitError::Conflict(_)));
                assert_eq!(conflict, expected[page as usize], "{kind:?}: {what}, page {page}: {ended:?}");
            });
        }
    }
}

/// Writes behind the end that the file is seen to have.
fn behind(t: &mut Transaction<SimOs>, node: Node, text: &[u8]) -> Verb<()> {
    let size = t.size(node)?;
    t.open(node, Access::Write, false)?;
    let written = t.write_at(node, text, size)?;
    t.close(node);
    assert_eq!((written, t.size(node)?), (text.len(), size + text.len() as u64));
    Ok(())
}

/// The size is a fact by itself: of who has read to the end, asked for it, or written behind it.
#[test]
fn who_knows_the_size_conflicts_with_a_growth_and_a_cut_and_with_no_overwrite() {
    type Part = fn(&mut Transaction<SimOs>, Node) -> Verb<()>;
    let parts: [(&str, Part); 4] = [
        ("asked", |t, f| t.size(f).map(drop)),
        ("read", |t, f| {
            t.open(f, Access::Read, false)?;
            let got = t.read_at(f, &mut [0; 8192], 3 * PAGE_BYTES)?;
            t.close(f);
            assert_eq!(got, 700);
            Ok(())
        }),
        ("grew", |t, f| behind(t, f, &[b'!'; 5000])),
        ("asked and overwrote", |t, f| t.size(f).and_then(|_| write(t, f, 1, b"other"))),
    ];
    let others: [(&str, Part, bool); 4] = [
        ("overwrites", |t, f| write(t, f, 0, b"first"), false),
        ("grows", |t, f| behind(t, f, b"more"), true),
        ("appends", |t, f| t.append(f, b"unseen").map(drop), true),
        (
            "cuts",
            |t, f| t.setattr(f, &SetAttr { size: Some(LEN as u64 - 1), ..SetAttr::default() }).map(drop),
            true,
        ),
    ];
    for kind in KINDS {
        for (what, part) in parts {
            for (other, change, conflicts) in others {
                within(kind, |_, domain| {
                    let (mut t, node) = begin(domain, Durability::Durable).expect("begins");
                    part(&mut t, node).expect("works");
                    let (mut u, f) = begin(domain, Durability::Durable).expect("begins");
                    change(&mut u, f).expect("works");
                    committed(u.commit());
                    let g = named(&mut t, b"g");
                    let ended = g.and_then(|g| write_whole(&mut t, g)).map_err(crate::commit::aborted);
                    let ended = ended.and_then(|()| t.commit());
                    let conflict = matches!(ended, Err(CommitError::Conflict(_)));
                    assert_eq!(conflict, conflicts, "{kind:?}: {what}, {other}: {ended:?}");
                });
            }
        }
    }
}

/// A file that the transaction itself has made has nothing but its own bytes.
#[test]
fn who_makes_a_file_and_goes_by_pages_reads_what_it_has_written() {
    for kind in KINDS {
        within(kind, |machine, domain| {
            let (mut t, _) = begin(domain, Durability::Durable).expect("begins");
            let root = t.root(0);
            let (w, _) = t.lookup(root, b"w").expect("looks").expect("it is there");
            let me = Caller { uid: 0, gid: 0, umask: 0o022 };
            let (made, _) = t.create(w, b"made", 0o644, me).expect("makes");
            for text in [&b"one "[..], b"two "] {
                behind(&mut t, made, text).expect("writes");
            }
            assert_eq!(read(&mut t, made, 0).expect("reads"), b"one two ");
            committed(t.commit());
            assert_eq!(machine.look(0, "w/made").expect("it is there").content, b"one two ");
        });
    }
}

/// A growth by pages is there whole, behind other commits' pages, whatever a power loss takes; and what the transaction
/// reads of it before is what it has written.
#[test]
fn what_is_written_behind_the_end_is_there_beside_other_pages_at_once_and_after_a_power_loss() {
    for (kind, len) in KINDS.into_iter().flat_map(|kind| [6, 512, 5000, 9000].map(|len| (kind, len))) {
        within(kind, |machine, domain| {
            let text: Vec<u8> = (0..len).map(|n| b'a' + (n % 23) as u8).collect();
            let (mut t, node) = begin(domain, Durability::Durable).expect("begins");
            behind(&mut t, node, &text).expect("writes");
            committed(commit(domain, 0, b"other"));
            let mut all = vec![0; LEN + len + 100];
            t.open(node, Access::Read, false).expect("opens");
            assert_eq!(t.read_at(node, &mut all[..len + 50], LEN as u64 - 20).expect("reads"), len + 20);
            assert_eq!((&all[..20], &all[20..len + 20]), (&[b'.'; 20][..], &text[..]));
            t.close(node);
            committed(t.commit());
            let is_whole = |machine: &Machine, what: &str| {
                let now = content(machine);
                assert!(now.len() == LEN + len && now.ends_with(&text), "{kind:?} {len} {what}");
                assert!(has(machine, 0, b"other") && now[LEN - 600..LEN].iter().all(|byte| *byte == b'.'));
            };
            is_whole(machine, "at once");
            for (seed, crash) in crashes().filter(|_| kind != FsKind::Tmpfs) {
                let machine = copy(machine);
                machine.power_loss(crash, &mut fastrand::Rng::with_seed(seed));
                recover(&machine);
                is_whole(&machine, &format!("{crash:?}"));
            }
        });
    }
}

fn write_whole(t: &mut Transaction<SimOs>, node: Node) -> Verb<()> {
    t.open(node, Access::Write, true)?;
    t.write_at(node, b"new", 0)?;
    t.close(node);
    Ok(())
}

/// The file is longer than the writer knows when it comes to its end, or commits.
#[test]
fn what_was_appended_meanwhile_stays_behind_an_overwrite() {
    // Where the other one writes last, beside page 0: nowhere, before the last sector, in it.
    let last = LEN as u64 - 5;
    for (kind, at) in
        KINDS.into_iter().flat_map(|k| [None, Some(3 * PAGE_BYTES), Some(last)].map(|at| (k, at)))
    {
        within(kind, |machine, domain| {
            let (mut t, node) = begin(domain, Durability::Durable).expect("begins");
            write(&mut t, node, 0, b"first").expect("writes");
            if let Some(at) = at {
                t.open(node, Access::Write, false).expect("opens");
                t.write_at(node, b"last.", at).expect("writes");
                t.close(node);
            }
            let (mut other, f) = begin(domain, Durability::Durable).expect("begins");
            other.append(f, b"behind").expect("appends");
            committed(other.commit());
            if at == Some(3 * PAGE_BYTES) {
                assert_eq!(t.getattr(node).expect("has one").size, LEN as u64 + 6);
            }
            committed(t.commit());
            let is_whole = |machine: &Machine, what: &str| {
                let now = content(machine);
                assert_eq!(now.len(), LEN + 6, "{kind:?} {at:?}, {what}: cut off, or left out");
                let there = at.is_none_or(|at| now[at as usize..].starts_with(b"last."));
                let all = now.ends_with(b"behind") && has(machine, 0, b"first") && there;
                assert!(all, "{kind:?} {at:?}, {what}");
            };
            is_whole(machine, "at once");
            for (seed, crash) in crashes().filter(|_| kind != FsKind::Tmpfs) {
                let machine = copy(machine);
                machine.power_loss(crash, &mut fastrand::Rng::with_seed(seed));
                recover(&machine);
                is_whole(&machine, &format!("{crash:?}"));
            }
        });
    }
}

#[test]
fn who_writes_to_what_was_cut_off_meanwhile_conflicts_and_who_does_not_goes_on() {
    for (kind, page) in KINDS.into_iter().flat_map(|kind| (0..4).map(move |page| (kind, page))) {
        within(kind, |machine, domain| {
            let (mut t, node) = begin(domain, Durability::Durable).expect("begins");
            write(&mut t, node, page, b"first").expect("writes");
            let (mut other, f) = begin(domain, Durability::Durable).expect("begins");
            let size = Some(2 * PAGE_BYTES);
            other.setattr(f, &crate::transaction::SetAttr { size, ..Default::default() }).expect("cuts");
            committed(other.commit());
            let ended = t.commit();
            assert_eq!(ended.is_ok(), page < 2, "{kind:?}, page {page}: {ended:?}");
            assert_eq!(content(machine).len() as u64, 2 * PAGE_BYTES);
            assert_eq!(page < 2 && has(machine, page, b"first"), page < 2);
        });
    }
}

#[test]
fn an_outsider_on_a_page_that_was_read_is_a_conflict_and_on_another_one_stays() {
    for (kind, page) in KINDS.into_iter().flat_map(|kind| (0..4).map(move |page| (kind, page))) {
        within(kind, |machine, domain| {
            let (mut t, node) = begin(domain, Durability::Durable).expect("begins");
            read(&mut t, node, 0).expect("reads");
            write(&mut t, node, 1, b"first").expect("writes");
            // The stamp moves by that, and proves nothing any more.
            committed(commit(domain, 2, b"other"));
            let outsider = machine.outsider("outsider");
            let fd = outsider.open_path(0, "w/f", Open::ReadWrite).expect("opens");
            outsider.pwrite(&fd, b"theirs", page * PAGE_BYTES + 100).expect("writes");
            drop(fd);
            outsider.exit();
            let ended = t.commit();
            let conflict = matches!(&ended, Err(CommitError::Conflict(_)));
            assert_eq!(conflict, page < 2, "{kind:?}, page {page}: was read, and changed: {ended:?}");
            assert!(has(machine, page, b"theirs"), "{kind:?}, page {page}: lost");
            assert_eq!(has(machine, 1, b"first"), !conflict, "{kind:?}, page {page}");
        });
    }
}

/// Runs a transaction of its own process beside one that stands still; false: it would wait, or does not come through.
pub(super) fn other(
    machine: &Machine,
    work: impl Fn(&Arc<Domain<SimOs>>) -> Result<Committed, CommitError>,
) -> bool {
    /// A process that makes so many calls waits.
    const CALLS_MAX: u64 = 20_000;
    let run = |machine: &Machine, bounded: bool| {
        let os = machine.spawn("other");
        machine.set_word_points(bounded);
        if bounded {
            machine.kill_at(&os, CALLS_MAX);
        }
        let done = run_process(&os, || match work(&open(&os).expect("opens")) {
            Err(CommitError::Conflict(conflict)) => {
                assert_eq!(conflict.what, ConflictKind::HeldPending, "{conflict}");
                false
            }
            done => {
                committed(done);
                true
            }
        });
        os.exit();
        machine.set_word_points(false);
        done.unwrap_or(false)
    };
    // Calls of a hook are no points, so that it would wait for ever.
    run(&machine.fork(), true) && run(machine, false)
}

/// The end of a commit of page 0 that another one came beside.
struct Beside {
    /// It was not killed.
    lives: bool,
    /// How many calls it has made.
    points: u64,
    /// The moment at which the other one was to come has come.
    reached: bool,
    /// The other one has committed.
    came: bool,
}

/// Acts before the `at`th call of a process that is made without the commit lock. Set afterwards: the moment has come;
/// the answer of the act.
pub(super) fn before_call(
    machine: &Machine,
    os: &SimOs,
    at: usize,
    act: impl Fn(&Machine, &Domain<SimOs>) -> bool + Send + Sync + 'static,
) -> Arc<[AtomicBool; 2]> {
    let watcher = machine.spawn("watcher");
    let domain = run_process(&watcher, || open(&watcher).expect("opens")).expect("lives");
    let (owner, count) = (os.process(), AtomicUsize::new(0));
    let seen = Arc::new([AtomicBool::new(false), AtomicBool::new(false)]);
    let told = seen.clone();
    machine.set_hook(move |machine, info| {
        if info.process != owner || domain.table.lock_holder().expect("sound").is_some() {
            return;
        }
        if count.fetch_add(1, Ordering::Relaxed) == at {
            told[0].store(true, Ordering::Relaxed);
            told[1].store(act(machine, &domain), Ordering::Relaxed);
        }
    });
    seen
}

/// Runs a commit of page 0 and, before its `at`th call, a whole one of page 1; kills the first at another call.
fn beside(machine: &Machine, durability: Durability, at: usize, killed: Option<u64>) -> Beside {
    let os = machine.spawn("owner");
    let seen =
        before_call(machine, &os, at, |machine, _| other(machine, |domain| commit(domain, 1, b"other")));
    if let Some(call) = killed {
        machine.kill_at(&os, call);
    }
    let done = run_process(&os, || {
        let domain = open(&os).expect("opens");
        let (mut t, node) = begin(&domain, durability).expect("begins");
        write(&mut t, node, 0, b"first").expect("writes");
        committed(t.commit());
    });
    let points = os.points();
    machine.clear_hook();
    machine.clear_plans();
    os.exit();
    let [reached, came] = [0, 1].map(|n: usize| seen[n].load(Ordering::Relaxed));
    Beside { lives: done.is_ok(), points, reached, came }
}

#[test]
fn a_commit_of_one_page_beside_any_call_of_a_commit_of_another_one_loses_neither() {
    for (kind, durability) in
        KINDS.into_iter().flat_map(|kind| [Durability::Durable, Durability::None].map(|d| (kind, d)))
    {
        let world = world(kind);
        let (mut came, mut deaths) = (0, 0);
        // In the short form on some at every third call.
        let step = if kind == FsKind::Ext4 || std::env::var_os("SYSTX_LONG").is_some() { 1 } else { 3 };
        for at in (0..).step_by(step) {
            let machine = copy(&world);
            let done = beside(&machine, durability, at, None);
            let what = format!("{kind:?} {durability:?}, before call {at}");
            assert!(done.lives, "{what}");
            if !done.reached {
                break;
            }
            came += u32::from(done.came);
            assert!(has(&machine, 0, b"first"), "{what}: lost");
            assert_eq!(has(&machine, 1, b"other"), done.came, "{what}");
            // Killed at some call, before or behind that.
            let killed = copy(&world);
            let then = beside(&killed, durability, at, Some(done.points * (at as u64 * 7 % 31) / 31));
            deaths += u32::from(!then.lives);
            recover(&killed);
            assert_eq!(content(&killed).len(), LEN, "{what}");
            assert_eq!(has(&killed, 1, b"other"), then.came, "{what}: killed");
            if kind == FsKind::Tmpfs || durability == Durability::None {
                continue;
            }
            for (seed, crash) in crashes() {
                for (machine, done) in [(&machine, &done), (&killed, &then)] {
                    let machine = copy(machine);
                    machine.power_loss(crash, &mut fastrand::Rng::with_seed(seed));
                    recover(&machine);
                    assert_eq!(content(&machine).len(), LEN, "{what} {crash:?}");
                    assert!(!done.lives || has(&machine, 0, b"first"), "{what} {crash:?}: lost");
                    assert!(!done.came || has(&machine, 1, b"other"), "{what} {crash:?}: the other is lost");
                }
            }
        }
        assert!(came > 10 && deaths > 5, "{kind:?}: {came} came, {deaths} died");
    }
}

/// The record of a page stands in the log before those of another one, and is published after they have come and gone.
#[test]
fn a_page_is_redone_though_an_outsider_came_between_records_of_another_one() {
    let world = world(FsKind::Ext4);
    let mut all = 0;
    for at in 0.. {
        let machine = copy(&world);
        let os = machine.spawn("owner");
        let seen = before_call(&machine, &os, at, |machine, _| {
            if !other(machine, |domain| commit(domain, 1, b"first")) {
                return false;
            }
            let outsider = machine.outsider("outsider");
            let fd = outsider.open_path(0, "w/f", Open::ReadWrite).expect("opens");
            outsider.pwrite(&fd, b"theirs", PAGE_BYTES + 100).expect("writes");
            drop(fd);
            outsider.exit();
            other(machine, |domain| commit(domain, 1, b"second"))
        });
        run_process(&os, || committed(commit(&open(&os).expect("opens"), 0, b"ours"))).expect("lives");
        machine.clear_hook();
        machine.clear_plans();
        let [reached, second] = [0, 1].map(|n: usize| seen[n].load(Ordering::Relaxed));
        if !reached {
            break;
        }
        all += u32::from(second);
        for (seed, crash) in crashes() {
            let machine = copy(&machine);
            machine.power_loss(crash, &mut fastrand::Rng::with_seed(seed));
            recover(&machine);
            assert!(has(&machine, 0, b"ours"), "{crash:?}, call {at}: a page that was committed is lost");
            assert!(!second || has(&machine, 1, b"second"), "{crash:?}, call {at}");
        }
    }
    assert!(all > 10, "{all}");
}

/// A transaction that wrote its pages before others did, and goes by the whole file from then on.
#[test]
fn the_time_of_a_file_goes_forward_though_its_pages_were_written_before_those_of_others() {
    type Part = fn(&mut Transaction<SimOs>, Node) -> Verb<()>;
    let set = Timestamp { sec: 5, nsec: 0 };
    let parts: [(&str, Part); 6] = [
        ("pages alone", |_, _| Ok(())),
        ("the end", |t, f| write(t, f, 3, &[b'e'; 600])),
        ("more than its pages", |t, f| {
            t.open(f, Access::ReadWrite, false).and_then(|()| t.append(f, b"a").map(drop))
        }),
        ("size and times", |t, f| t.getattr(f).map(drop)),
        ("a part that is undone", |t, f| {
            let part = t.savepoint()?;
            write(t, f, 0, b"undone").and_then(|()| t.getattr(f).map(drop))?;
            t.undo_to(part)
        }),
        ("a time of its own", |t, f| {
            let mtime = Some(SetTime::At(Timestamp { sec: 5, nsec: 0 }));
            t.setattr(f, &SetAttr { mtime, ..SetAttr::default() })?;
            read(t, f, 2).map(drop)
        }),
    ];
    for kind in KINDS {
        for (what, part) in parts {
            within(kind, |machine, domain| {
                let (mut t, node) = begin(domain, Durability::None).expect("begins");
                write(&mut t, node, 0, b"first").expect("writes");
                machine.advance_ns(1_000_000_000);
                committed(commit(domain, 1, b"other"));
                let mtime = || {
                    let os = machine.outsider("outsider");
                    let file = os.open_path(0, "w/f", Open::Path).expect("opens");
                    os.stat(&file).expect("stats").mtime
                };
                let before = mtime();
                machine.advance_ns(1_000_000_000);
                part(&mut t, node).expect("goes on");
                committed(t.commit());
                assert!(has(machine, 0, b"first") && has(machine, 1, b"other"), "{kind:?}, {what}");
                let is_set = what == "a time of its own";
                assert!(mtime() > before || is_set, "{kind:?}, {what}: the time went back");
                assert_eq!(mtime() == set, is_set, "{kind:?}, {what}");
            });
        }
    }
}
