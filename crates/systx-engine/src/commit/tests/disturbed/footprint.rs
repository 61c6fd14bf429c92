//! The changes that a record describes are no less than those that its transaction announces in its active
//! entry.

use super::verbs::{self, PATHS};
use super::{copy, open, world, Finds};
use crate::domain::changed_by;
use crate::id::ObjectId;
use crate::outcome::{Options, Verb};
use crate::plan::Plan;
use crate::record::{Act, Change, Gone};
use crate::transaction::{Access, SetAttr, SetTime, Transaction};
use std::collections::HashSet;
use systx_os::{FsKind, Handle, Timestamp};
use systx_sim::machine::{run_process, SimOs};

/// Changes that the random verbs don't make: new times, and a file that is written anew.
fn more(t: &mut Transaction<SimOs>, rng: &mut fastrand::Rng) -> Verb<()> {
    let root = t.root(0);
    let Some((file, _)) = t.lookup(root, b"t")?.filter(|(_, attr)| attr.mode & 0o170_000 == 0o100_000) else {
        return Ok(());
    };
    match rng.u8(0..4) {
        0 => {
            let at = |sec| Some(SetTime::At(Timestamp { sec, nsec: 0 }));
            let (atime, mtime) = (at(5), at(7).filter(|_| rng.bool()));
            t.setattr(file, &SetAttr { atime, mtime, ..SetAttr::default() }).map(drop)
        }
        1 => {
            t.open(file, Access::Write, true)?;
            t.write_at(file, &vec![b'B'; (1 << 20) + 1], 0)?;
            t.close(file);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// The names inside of trees that go as a whole: no record has them.
fn inside_of_trees(plan: &Plan) -> HashSet<ObjectId> {
    let names: HashSet<&str> = PATHS.iter().filter_map(|path| path.rsplit('/').next()).collect();
    let gone = plan.steps.iter().flat_map(|step| -> Vec<Handle> {
        match &step.act {
            Act::Remove { before, tree, .. } | Act::Replace { before, tree, .. } if !tree.is_empty() => {
                [before].into_iter().chain(Gone::handles(tree)).copied().collect()
            }
            _ => Vec::new(),
        }
    });
    gone.flat_map(|dir| names.iter().map(move |name| ObjectId::entry(&dir, name.as_bytes()))).collect()
}

#[test]
fn a_record_changes_all_that_its_transaction_announces() {
    let rounds = if std::env::var_os("SYSTX_LONG").is_some() { 50_000 } else { 1500 };
    let (mut seen, mut rng) = ([0u32; 4], fastrand::Rng::with_seed(systx_runner::seed()));
    for round in 0..rounds {
        let machine = copy(&world(FsKind::Ext4, Finds::ByHandle));
        let os = machine.spawn("owner");
        let steps: Vec<_> = (0..rng.u8(0..9)).map(|_| verbs::step(&mut rng)).collect();
        let plan = run_process(&os, || {
            let domain = open(&os).expect("opens");
            let mut t = Transaction::begin(os.clone(), vec![domain], Options::default()).expect("begins");
            verbs::take(&mut t, &steps).and_then(|()| more(&mut t, &mut rng)).expect("nobody disturbs it");
            let plan = crate::plan::plan(&mut t.workset).expect("plans").remove(0).0;
            t.abort();
            plan
        });
        let plan = plan.expect("lives");
        let changed = changed_by(&plan.steps);
        let (written, commuting): (HashSet<_>, HashSet<_>) =
            (changed.written.into_iter().collect(), changed.commuting.into_iter().collect());
        let inside = inside_of_trees(&plan);
        let told = |what: &str| {
            format!("round {round}: {what} is announced, and no step changes it: {:#?}", plan.steps)
        };
        let lost = plan.written.iter().find(|o| !written.contains(o) && !inside.contains(o));
        assert_eq!(lost, None, "{}", told("W"));
        // An object that goes as a whole is written.
        let lost = plan.commuting.iter().find(|o| !commuting.contains(o) && !written.contains(o));
        assert_eq!(lost, None, "{}", told("C"));
        for step in &plan.steps {
            match &step.act {
                Act::Replace { rewrites: Some(_), .. } => seen[0] += 1,
                Act::Attr { changes, .. } if matches!(changes[..], [Change::Times { .. }]) => seen[1] += 1,
                Act::Remove { tree, .. } if !tree.is_empty() => seen[2] += 1,
                Act::Take { .. } => seen[3] += 1,
                _ => {}
            }
        }
    }
    assert!(seen.iter().all(|n| *n > 0), "replaced, only a time, a tree, moved: {seen:?}");
}
