//! A part of a transaction, cut at every call from the choice to the end: all of the part or nothing, and
//! never anything of the rest.

use super::super::world::{machine, open, public};
use super::{copy, difference, orphans, recovered, scattered};
use crate::changes::part::Choice;
use crate::outcome::{CommitError, Committed, Durability, Options, Verb};
use crate::transaction::{Access, Caller, Node, SetAttr, Transaction};
use systx_os::{Errno, FsKind, Rename};
use systx_sim::machine::{run_process, Crash, Machine, SimOs, Tree};

const ME: Caller = Caller { uid: 0, gid: 0, umask: 0o022 };

/// How much the part stages: what fits into a record, or not.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Size {
    Small,
    Large,
}

fn walk(t: &mut Transaction<SimOs>, path: &str) -> Verb<Node> {
    let mut at = t.root(0);
    for name in path.split('/').filter(|name| !name.is_empty()) {
        at = t.lookup(at, name.as_bytes())?.ok_or(Errno::NOENT)?.0;
    }
    Ok(at)
}

fn write(t: &mut Transaction<SimOs>, node: Node, bytes: &[u8]) -> Verb<()> {
    t.open(node, Access::Write, false)?;
    t.write_at(node, bytes, 0)?;
    t.close(node);
    Ok(())
}

/// Changes of every kind below `w/chosen` and, the same, below `w/rest`; and what is in both.
fn change(t: &mut Transaction<SimOs>, size: Size) -> Verb<()> {
    let w = walk(t, "w")?;
    for (side, old) in
        [("chosen", ["replaced", "moved", "attr"]), ("rest", ["removed", "dirmoved", "untouched"])]
    {
        let (dir, _) = t.mkdir(w, side.as_bytes(), 0o755, ME)?;
        let (deep, _) = t.mkdir(dir, b"deep", 0o755, ME)?;
        let count = if size == Size::Large { 20 } else { 2 };
        for n in 0..count {
            let (file, _) = t.create(deep, format!("{n}").as_bytes(), 0o644, ME)?;
            write(t, file, side.as_bytes())?;
        }
        t.rename(w, old[1].as_bytes(), dir, b"in", Rename::Replace)?;
        let node = walk(t, &format!("w/{}", old[2]))?;
        t.link(node, dir, b"linked")?;
        t.setattr(node, &SetAttr { mode: Some(0o600), ..SetAttr::default() })?;
        write(t, node, side.as_bytes())?;
        t.unlink(w, old[0].as_bytes())?;
    }
    let tree = walk(t, "w/tree")?;
    t.unlink(tree, b"x")?;
    Ok(())
}

const CHOSEN: [&str; 3] = ["w/chosen", "w/replaced", "w/attr"];

fn begin(os: &SimOs) -> Result<Transaction<SimOs>, CommitError> {
    let domain = open(os).map_err(|e| CommitError::Refused(e.to_string()))?;
    let options = Options { durability: Durability::Durable, command: String::new(), ..Options::default() };
    Transaction::begin(os.clone(), vec![domain], options).map_err(crate::commit::aborted)
}

/// Runs the transaction and commits its part; how many calls came before the choice.
fn transact(os: &SimOs, size: Size) -> Result<(Committed, u64), CommitError> {
    let mut t = begin(os)?;
    let done = change(&mut t, size).and_then(|()| {
        let (calls, changes) = (os.points(), t.changes()?);
        let only = CHOSEN.iter().map(|path| path.as_bytes().to_vec()).collect();
        let part = t.choose(&changes, &Choice { only, ..Choice::default() }).expect("works").expect("fits");
        assert!(changes.iter().any(|change| !part.has(change)), "there is a rest");
        t.keep_only(&part)?;
        Ok(calls)
    });
    match done {
        Ok(calls) => Ok((t.commit()?, calls)),
        Err(e) => {
            t.abort();
            Err(crate::commit::aborted(e))
        }
    }
}

/// Before, after, the call of the choice, and the last.
fn undisturbed(size: Size) -> (Machine, Tree, Tree, u64, u64) {
    let world = machine(FsKind::Ext4);
    let before = public(&world);
    let machine = copy(&world);
    let os = machine.spawn("owner");
    let (done, first) = run_process(&os, || transact(&os, size)).expect("not killed").expect("commits");
    assert!(done.conflict_copies.is_empty() && done.pending.is_none(), "{done:?}");
    let points = os.points();
    os.exit();
    let after = public(&machine);
    let has = |path: &str| after.contains_key(path);
    assert!(has("w/chosen/deep/1") && has("w/chosen/in") && !has("w/moved") && !has("w/replaced"));
    assert_eq!(after["w/attr"].content, b"chosen");
    assert_eq!(after["w/chosen/linked"].same_as.is_some(), after["w/attr"].same_as.is_none());
    // Of the rest nothing is there, and nothing is gone.
    assert!(!has("w/rest") && ["w/removed", "w/dirmoved/inside", "w/tree/x"].iter().all(|path| has(path)));
    assert_eq!(after["w/untouched"], before["w/untouched"]);
    assert!(orphans(&machine).is_empty(), "{:?}", orphans(&machine));
    (world, before, after, first, points)
}

fn is_one(before: &Tree, after: &Tree, tree: &Tree, at: &str) -> bool {
    assert!(tree == before || tree == after, "{at}: a mixture\n{:#?}", difference(before, after, tree));
    tree == after
}

fn cut_at_every_call(size: Size) {
    let (world, before, after, first, points) = undisturbed(size);
    let mut outcomes = [0u32; 2];
    for point in scattered(points + 1 - first).map(|n| first + n) {
        let killed = copy(&world);
        let os = killed.spawn("owner");
        killed.kill_at(&os, point);
        let _ = run_process(&os, || transact(&os, size));
        let at = format!("killed at call {point} of {points}");
        outcomes[usize::from(is_one(&before, &after, &recovered(&killed), &at))] += 1;
        assert!(orphans(&killed).is_empty(), "{at}: {:?} in tx/ belongs to nobody", orphans(&killed));

        let cut = copy(&world);
        let os = cut.spawn("owner");
        cut.kill_at(&os, point);
        let told = run_process(&os, || transact(&os, size));
        cut.power_loss(Crash::Random, &mut fastrand::Rng::with_seed(point));
        let at = format!("power lost at call {point} of {points}");
        let happened = is_one(&before, &after, &recovered(&cut), &at);
        assert!(happened || !matches!(told, Ok(Ok(_))), "{at}: reported committed, and lost");
        outcomes[usize::from(happened)] += 1;
    }
    assert!(outcomes[0] > 0 && outcomes[1] > 0, "both outcomes are seen: {outcomes:?}");
}

#[test]
fn a_part_that_is_cut_at_any_call_is_there_in_whole_or_not_at_all_and_the_rest_never() {
    cut_at_every_call(Size::Large);
}

#[test]
fn a_small_part_that_is_cut_at_any_call_is_there_in_whole_or_not_at_all_and_the_rest_never() {
    cut_at_every_call(Size::Small);
}

/// Reads of the rest count for the part, too: the part may have been made of them.
#[test]
fn a_part_conflicts_by_what_only_the_rest_has_read() {
    let machine = machine(FsKind::Ext4);
    let (os, other) = (machine.spawn("owner"), machine.spawn("other"));
    let ended = run_process(&os, || {
        let mut t = begin(&os)?;
        let read = walk(&mut t, "w/grown").and_then(|node| {
            t.open(node, Access::Read, false)?;
            t.read_at(node, &mut [0; 8], 0).map(drop)
        });
        read.and_then(|()| change(&mut t, Size::Small)).map_err(crate::commit::aborted)?;
        let theirs = run_process(&other, || {
            let mut theirs = begin(&other)?;
            let node = walk(&mut theirs, "w/grown").map_err(crate::commit::aborted)?;
            write(&mut theirs, node, b"theirs").map_err(crate::commit::aborted)?;
            theirs.commit()
        });
        theirs.expect("not killed")?;
        let changes = t.changes().map_err(crate::commit::aborted)?;
        let only = vec![b"w/chosen".to_vec()];
        let part = t.choose(&changes, &Choice { only, ..Choice::default() }).expect("works").expect("fits");
        t.keep_only(&part).map_err(crate::commit::aborted)?;
        t.commit()
    });
    match ended.expect("not killed") {
        Err(CommitError::Conflict(conflict)) => assert_eq!(conflict.path, b"w/grown"),
        other => panic!("{other:?}"),
    }
    assert!(!public(&machine).contains_key("w/chosen"));
}
