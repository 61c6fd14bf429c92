//! Checks that nothing of an outsider's is lost, and that the rest is all there or not at all.

use super::act::{Act, Leaves};
use super::machine::picture::Picture;
use super::machine::{code, err};
use super::world::{inode, without_times, Before, World, DIR, HIS, MINE};

/// Returns what is wrong, in words, after `act` on `target` within a run that ended so.
pub fn judge(
    w: &World,
    act: Act,
    target: &str,
    before: &Before,
    acknowledged: bool,
    output: &std::process::Output,
    [old, new]: [&Picture; 2],
) -> Vec<String> {
    let mut wrong = Vec::new();
    let end = code(output);
    if ![0, 75, 76].contains(&end) {
        wrong.push("an outsider is no reason for that".into());
    }
    let aside: Vec<_> = std::fs::read_dir(w.aside()).unwrap().collect();
    if !aside.is_empty() && (end != 76 || !err(output).contains("aside/")) {
        wrong.push(format!("{} aside and not reported", aside.len()));
    }
    let there = without_times(&w.tree);
    // Objects that only the transaction changed are all new or all old.
    let expected = if end == 75 { old } else { new };
    let other = if target == "moved" {
        "dst/moved"
    } else if target == "dst/moved" {
        "moved"
    } else {
        target
    };
    let his = |path: &str| {
        let below = |of: &str| path == of || path.starts_with(&format!("{of}/"));
        below("his")
            || path.is_empty()
            || below(target)
            || below(other)
            || (target == "dst" && below("moved"))
    };
    for path in expected.keys().chain(there.keys()).filter(|path| !his(path)) {
        // Without the parent, which the outsider's act may have changed.
        if expected.get(path) != there.get(path) && !target.starts_with(&format!("{path}/")) {
            wrong.push(format!("{path}: {:?} instead of {:?}", there.get(path), expected.get(path)));
        }
    }
    if !acknowledged {
        return wrong;
    }
    // A file that the transaction removes, or whose name it gives to another, goes with an extended attribute
    // that is set before, as it has not read that, and with what is written into it when it has no name any
    // more. A directory goes with attributes.
    let was_there = before.taken == before.first;
    let goes = match target {
        "removed" | "replaced" => match act {
            Act::WriteOpenSinceBefore => !was_there,
            _ => act == Act::SetXattr && was_there,
        },
        "gone" => act.in_place() && was_there,
        _ => false,
    };
    let everything = w.everything();
    let there_is = match act.leaves() {
        Leaves::Words => goes || everything.contains(HIS),
        Leaves::Mine => w.has(target, before.mine, "", MINE),
        Leaves::Dir => w.has(target, before.dir, "in", DIR),
        Leaves::Neither => true,
    };
    if !there_is {
        wrong.push("his bytes are lost, or not where he put them".into());
    }
    if !w.kept(act, before) {
        wrong.push("what he took is not at his name for it".into());
    }
    let name = w.tree.join(target);
    match act {
        Act::Unlink | Act::Rmdir | Act::RenameAway if inode(&name).is_some() => {
            wrong.push("what he took from there is there".into())
        }
        Act::Mkdir if !name.is_dir() || name.join("in").exists() => {
            wrong.push("his directory is gone".into())
        }
        Act::LinkMine if inode(&w.tree.join("his/mine")) != Some(before.mine) => {
            wrong.push("the first name of his file is gone".into())
        }
        // The mode of what gets another mode at the same time is gap (d) of docs/guarantees.md.
        Act::Chmod if !goes && target != "attr" && !everything.contains(" 604 ") => {
            wrong.push("his mode is lost".into())
        }
        Act::Chown if !goes && !everything.contains(" 77 ") => wrong.push("his owner is lost".into()),
        _ => {}
    }
    wrong
}
