//! Which transactions can be undone, and for how long.

use super::machine::Case;
use super::*;

pub const ALL: &[(&str, Case)] = &[
    ("the_log_says_which_can_be_undone", the_log_says_which),
    ("the_youngest_are_kept_and_prune_keeps_fewer", the_youngest_are_kept),
    ("one_that_began_long_ago_and_commits_last_can_be_undone", one_that_began_long_ago),
    ("open_transactions_can_be_undone_after_their_commit", open_transactions_can_be_undone),
    ("without_room_for_what_is_kept_nothing_happens", without_room_nothing_happens),
    ("a_transaction_without_durability_can_be_undone", without_durability),
];

fn the_log_says_which(dir: &Path) {
    let Some((volume, tree)) = served(dir, "tmpfs") else { return };
    let (a, b) = (undoable(&tree, "echo a > a"), committed(&tree, &[], "echo b > b"));
    let log: Value = serde_json::from_str(&out(&verb("log", &["--json"]))).unwrap();
    let here =
        log.as_array().unwrap().iter().filter(|one| volume.point.starts_with(one["mount"].as_str().unwrap()));
    let told: Vec<_> =
        here.map(|one| (one["id"].as_u64().unwrap(), one["undoable"].as_bool().unwrap())).collect();
    assert_eq!(told, [(b, false), (a, true)]);
    let text = out(&verb("log", &[&a.to_string()]));
    assert!(text.contains("1 change, undoable  sh -e -c echo a > a"), "{text}");
}

fn the_youngest_are_kept(dir: &Path) {
    let Some((volume, tree)) = served(dir, "tmpfs") else { return };
    let kept = || {
        let mut ids: Vec<u64> = in_area(&volume, "undo").iter().map(|name| name.parse().unwrap()).collect();
        ids.sort_unstable();
        ids
    };
    let mut ids = Vec::new();
    for n in 0..53 {
        ids.push(committed(&tree, &["--undoable", "--durability", "none"], &format!("echo {n} > f")));
    }
    assert_eq!(kept(), ids[3..]);
    assert_eq!(out(&verb("prune", &["--yes"])), format!("{}: nothing to remove\n", volume.point.display()));
    // Without a word of agreement nothing goes.
    let asked = verb("prune", &["--keep", "1"]);
    assert!(err(&asked).contains("could be undone with: "), "{}", err(&asked));
    assert_eq!(kept(), ids[3..]);
    let pruned: Value =
        serde_json::from_str(&out(&verb("prune", &["--yes", "--keep", "1", "--json"]))).unwrap();
    assert_eq!(pruned["removed"].as_array().map(Vec::len), Some(49));
    assert_eq!(kept(), ids[52..]);
    undone(ids[52]);
    assert_eq!(std::fs::read_to_string(tree.join("f")).unwrap(), "51\n");
    assert_eq!(code(&undo(ids[51], &[])), 125);
}

fn one_that_began_long_ago(dir: &Path) {
    let Some((volume, tree)) = served(dir, "tmpfs") else { return };
    plain(&tree, "echo 1 > one");
    let here = tree.to_str().unwrap();
    let id = out(&verb("begin", &["--only", here, "--undoable"])).trim().to_string();
    assert_eq!(code(&verb("exec", &[&id, "--", "rm", tree.join("one").to_str().unwrap()])), 0);
    let first = undoable(&tree, "echo 0 > f");
    let mut last = first;
    for n in 1..50 {
        last = committed(&tree, &["--undoable", "--durability", "none"], &format!("echo {n} > f"));
    }
    // Stamps are of ticks, and two within one are distinguished by number.
    let time = |path: &Path| std::fs::metadata(path).unwrap().modified().unwrap();
    let (probe, manifest) = (volume.point.join("probe"), format!("undo/{last}/manifest"));
    std::fs::write(&probe, "").unwrap();
    while time(&probe) <= time(&volume.area().join(&manifest)) {
        std::fs::write(&probe, "x").unwrap();
    }
    let done = verb("commit", &[&id]);
    assert_eq!((code(&done), err(&done)), (0, String::new()));
    let kept = in_area(&volume, "undo");
    assert!(kept.len() == 50 && kept.contains(&id) && !kept.contains(&first.to_string()), "{kept:?}");
    // Nor does its number make it the oldest to prune.
    assert_eq!(code(&verb("prune", &["--yes", "--keep", "1"])), 0);
    assert_eq!(in_area(&volume, "undo").as_slice(), std::slice::from_ref(&id));
    undone(id.parse().unwrap());
    assert_eq!(std::fs::read_to_string(tree.join("one")).unwrap(), "1\n");
}

fn open_transactions_can_be_undone(dir: &Path) {
    let Some((volume, tree)) = served(dir, "ext4") else { return };
    plain(&tree, "echo 1 > one; echo 2 > two");
    let here = tree.to_str().unwrap();
    for (begin, commit) in [(&["--undoable"][..], &[][..]), (&[], &["--undoable"])] {
        let before = picture(&tree);
        let begun = verb("begin", &[&["--only", here], begin].concat());
        assert_eq!(code(&begun), 0, "{}", err(&begun));
        let id = out(&begun).trim().to_string();
        let script = format!("cd {here}; rm one; echo n > new");
        assert_eq!(code(&verb("exec", &[&id, "--", "sh", "-e", "-c", &script])), 0);
        let done = verb("commit", &[&[id.as_str()], commit].concat());
        assert_eq!(code(&done), 0, "{}", err(&done));
        assert!(!tree.join("one").exists());
        undone(id.parse().unwrap());
        same(&picture(&tree), &before, &[""]);
    }
    // Of a part only the part.
    let id = out(&verb("begin", &["--only", here])).trim().to_string();
    let script = format!("cd {here}; rm one; echo n > new");
    assert_eq!(code(&verb("exec", &[&id, "--", "sh", "-e", "-c", &script])), 0);
    let new = tree.join("new");
    let done = verb("commit", &[&id, "--undoable", "--only", new.to_str().unwrap()]);
    assert_eq!(code(&done), 0, "{}", err(&done));
    plain(&tree, "echo later >> one");
    undone(id.parse().unwrap());
    assert!(tree.join("one").exists() && !new.exists());
    // One that stays open by itself.
    let output = run(&tree, &["-n", "--undoable", "--json"], &["rm", "two"]).output().unwrap();
    let id = outcome(&output)["id"].to_string();
    assert_eq!(code(&verb("commit", &[&id])), 0);
    assert!(!tree.join("two").exists());
    undone(id.parse().unwrap());
    assert!(tree.join("two").exists());
    // One that is given up.
    let kept = in_area(&volume, "undo");
    let id = out(&verb("begin", &["--only", here, "--undoable"])).trim().to_string();
    assert_eq!(code(&verb("exec", &[&id, "--", "rm", tree.join("two").to_str().unwrap()])), 0);
    assert_eq!(code(&verb("abort", &[&id])), 0);
    assert_eq!(in_area(&volume, "undo"), kept);
}

fn without_room_nothing_happens(dir: &Path) {
    let Some(volume) = Volume::new(dir, "tmpfs", 16) else { return };
    plain(&volume.point, "mkdir tree; head -c 9000000 /dev/urandom > tree/large");
    let tree = volume.point.join("tree");
    let before = picture(&tree);
    let output = run(&tree, &["--undoable"], &["rm", "large"]).output().unwrap();
    assert_eq!(code(&output), 125, "{}", err(&output));
    assert!(
        err(&output).contains("nothing was changed: keeping what it could be undone with"),
        "{}",
        err(&output)
    );
    assert_eq!(picture(&tree), before);
    assert_eq!(in_area(&volume, "undo"), [""; 0]);
    committed(&tree, &[], "rm large");
}

fn without_durability(dir: &Path) {
    let Some((_volume, tree)) = served(dir, "ext4") else { return };
    plain(&tree, "echo 1 > one");
    let before = picture(&tree);
    let id = committed(&tree, &["--undoable", "--durability", "none"], "rm one; echo 2 > two");
    let output = undo(id, &["--durability", "none"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    same(&picture(&tree), &before, &[""]);
}
