//! Later changes are named, and nothing comes back.

use super::machine::processes::Stopped;
use super::machine::{have, Case};
use super::*;

pub const ALL: &[(&str, Case)] = &[
    ("whatever_a_program_outside_changes_afterwards_is_named", a_program_outside_is_named),
    ("a_later_transaction_is_named_also_by_changes_that_the_log_does_not_tell", a_later_transaction_is_named),
    ("what_changes_while_it_is_undone_is_a_conflict", what_changes_meanwhile_is_a_conflict),
    ("what_was_not_kept_is_told", what_was_not_kept_is_told),
    ("damaged_bytes_are_not_put_back", damaged_bytes_are_not_put_back),
    ("inside_of_a_transaction_nothing_is_undone_or_kept", inside_of_a_transaction_nothing_is_undone),
];

const SETUP: &str = "mkdir d; echo gone > d/gone; echo file > file; echo attrs > attrs; seq 100000 > large; ln -s a link; mkdir dir was was2; echo w > was/w";
const CHANGES: &str =
    "rm d/gone; echo more >> file; chmod 600 attrs; printf X | dd of=large bs=1 seek=300000 conv=notrunc; \
    ln -sfn b link; mkdir new; echo n > new/n; chmod 700 dir; mv was now; mkdir lock; mkfifo fifo";

/// Change that is made outside, the path that the report names, and the reason it gives.
const LATER: &[(&str, &str, &str)] = &[
    ("echo other >> file", "file", "its contents have changed"),
    ("printf Y | dd of=file bs=1 conv=notrunc; touch -r attrs file", "file", "its contents have changed"),
    ("touch -d 2001-01-01 file", "file", "it has been written to or touched"),
    ("printf Y | dd of=large bs=1 seek=300000 conv=notrunc", "large", "its contents have changed"),
    ("printf Y | dd of=large bs=1 seek=5 conv=notrunc", "large", "it has been written to or touched"),
    ("truncate -s 5 large", "large", "its contents have changed"),
    ("chmod 640 attrs", "attrs", "its mode has changed"),
    ("chown 5 file", "file", "its owner has changed"),
    ("setfattr -n user.x -v 1 attrs", "attrs", "its extended attributes have changed"),
    ("ln file other", "file", "the number of its names has changed"),
    ("rm file", "file", "it is gone"),
    ("mv large elsewhere", "large", "it is gone"),
    ("ln -sfn c link", "link", "it has been replaced"),
    ("rm link; mkdir link", "link", "it is of another type"),
    ("echo t > d/gone", "d/gone", "the name is taken"),
    ("mkdir d/gone", "d/gone", "the name is taken"),
    ("rmdir d", "d", "the directory is gone"),
    ("mv d e; ln -s e d", "d", "the directory is gone"),
    ("echo o > new/other", "new/other", "it is new, in a directory that would go"),
    ("rm -r new", "new", "it is gone"),
    ("chmod 711 new", "new", "its mode has changed"),
    ("chmod 711 dir", "dir", "its mode has changed"),
    // Another one of the same looks.
    ("mv dir away; mkdir -m 700 dir; echo m > dir/mine", "dir", "it has been replaced"),
    ("mv now bak; mkdir now; echo m > now/mine", "now", "it has been replaced"),
    ("rm -r now; mkdir now", "now", "it has been replaced"),
    ("cp -p attrs other; chown 5 other; mv other attrs; chown 0 attrs", "attrs", "it has been replaced"),
    ("rmdir lock; mkdir lock", "lock", "it has been replaced"),
    ("rm fifo; mkfifo fifo", "fifo", "it has been replaced"),
    ("mv d x; mkdir d", "d", "it has been replaced"),
    ("mv d x; mv was2 d", "d", "it has been replaced"),
];

fn a_program_outside_is_named(dir: &Path) {
    let Some((_volume, top)) = served(dir, "ext4") else { return };
    for (n, (script, path, what)) in LATER.iter().enumerate() {
        let tree = top.join(n.to_string());
        std::fs::create_dir(&tree).unwrap();
        plain(&tree, SETUP);
        let id = undoable(&tree, CHANGES);
        plain(&tree, script);
        let before = picture(&tree);
        let output = undo(id, &["--json"]);
        let told = outcome(&output);
        assert_eq!((code(&output), told["outcome"].as_str()), (75, Some("overtaken")), "{script}: {told}");
        let named = told["overtaken"]["obstacles"].as_array().unwrap().iter();
        let named: Vec<_> =
            named.map(|one| (one["path"].as_str().unwrap(), one["what"].as_str().unwrap())).collect();
        let at = tree.join(path).display().to_string();
        assert!(named.contains(&(at.as_str(), *what)), "{script}: {told}");
        assert_eq!(told["overtaken"]["obstacles"][0]["by"], Value::Array(Vec::new()), "{script}");
        let message = told["message"].as_str().unwrap();
        assert!(message.contains("by a program outside of any transaction"), "{message}");
        assert!(message.contains("nothing was changed") && !message.contains("systx undo"), "{message}");
        assert_eq!(picture(&tree), before, "{script}");
    }
}

fn a_later_transaction_is_named(dir: &Path) {
    let Some((_volume, tree)) = served(dir, "tmpfs") else { return };
    plain(&tree, "mkdir d; echo f > zz; echo g > d/g");
    let a = undoable(&tree, "echo a >> zz; echo a >> d/g");
    // More than the log shows of one.
    let many =
        "for n in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25; do echo $n > $n; done;";
    let b = undoable(&tree, &format!("{many} echo b >> zz"));
    let told = outcome(&undo(a, &["--json"]));
    let obstacles = &told["overtaken"]["obstacles"];
    assert_eq!((&obstacles[0]["by"], &obstacles[0]["sure"]), (&Value::from(vec![b]), &true.into()), "{told}");
    // Without its image it can only be suspected; and it can't be undone.
    let pruned = verb("prune", &["--yes", "--keep", "0"]);
    assert!(out(&pruned).contains(&format!("transaction {b} can't be undone any more")), "{}", out(&pruned));
    let a = undoable(&tree, "echo a >> zz");
    let c = committed(&tree, &[], &format!("rm [0-9]; {} echo c >> zz", many.replace("> $n;", "> c$n;")));
    // A removed directory reports what it took along.
    let d = committed(&tree, &[], "rm -r d");
    let told = outcome(&undo(a, &["--json"]));
    let obstacles = &told["overtaken"]["obstacles"];
    assert_eq!(
        (&obstacles[0]["by"], &obstacles[0]["sure"]),
        (&Value::from(vec![c]), &false.into()),
        "{told}"
    );
    assert!(told["message"].as_str().unwrap().contains("can't be undone (no --undoable"), "{told}");
    assert!(!told.to_string().contains(&format!("\"id\":{d},")), "{told}");
}

fn what_changes_meanwhile_is_a_conflict(dir: &Path) {
    let Some((_volume, tree)) = served(dir, "ext4") else { return };
    if !have("strace") {
        return;
    }
    plain(&tree, "mkdir d; echo f > f; seq 100000 > d/large");
    let id = undoable(&tree, "echo a >> f; rm -r d");
    let mut command = Command::new(machine::systx());
    command.args(["undo", "--area-name", machine::AREA, &id.to_string()]);
    // The first fsync is that of the log's barrier: all is looked at, and nothing has happened.
    let stopped =
        Stopped::after(dir, &command, "fsync", 1).unwrap_or_else(|output| panic!("{}", err(&output)));
    plain(&tree, "echo later >> f");
    let now = picture(&tree);
    let output = stopped.go_on();
    assert_eq!(code(&output), 75, "{}", err(&output));
    assert!(
        err(&output).contains("conflict on") && err(&output).contains("nothing was changed"),
        "{}",
        err(&output)
    );
    assert_eq!(picture(&tree), now);
}

fn what_was_not_kept_is_told(dir: &Path) {
    let Some((volume, tree)) = served(dir, "tmpfs") else { return };
    let id = committed(&tree, &[], "echo a > a");
    let says = |output: Output, words: &str| {
        assert_eq!(code(&output), 125);
        assert!(
            err(&output).contains(words) && err(&output).contains("nothing was changed"),
            "{}",
            err(&output)
        );
    };
    says(undo(id, &[]), "was not run with --undoable");
    says(undo(999_999_999, &[]), "no committed transaction 999999999 is known here");
    assert!(!volume.area().join("undo").exists(), "who does not ask pays nothing");
    // A transaction that did not commit can't be undone, and leaves nothing.
    let failed = run(&tree, &["--undoable"], &["sh", "-c", "echo b > b; exit 3"]).output().unwrap();
    assert_eq!(code(&failed), 3);
    assert_eq!(in_area(&volume, "undo"), [""; 0]);
}

fn damaged_bytes_are_not_put_back(dir: &Path) {
    let Some((volume, tree)) = served(dir, "tmpfs") else { return };
    plain(&tree, "seq 100 > f");
    let id = undoable(&tree, "rm f; echo n > n");
    let now = picture(&tree);
    let kept = volume.area().join("undo").join(id.to_string());
    for (file, at) in [("contents", 7), ("manifest", 40), ("manifest", 8), ("manifest", 0)] {
        let whole = std::fs::read(kept.join(file)).unwrap();
        let mut wrong = whole.clone();
        wrong[at] ^= 1;
        std::fs::write(kept.join(file), &wrong).unwrap();
        let output = undo(id, &[]);
        assert_eq!(code(&output), 125, "{file}: {}", err(&output));
        let words = if at == 8 { "has version 3" } else { "is damaged" };
        assert!(err(&output).contains(words), "{file} {at}: {}", err(&output));
        std::fs::write(kept.join(file), &whole[..whole.len() - 1]).unwrap();
        assert_eq!(code(&undo(id, &[])), 125, "{file}");
        std::fs::write(kept.join(file), &whole).unwrap();
    }
    assert_eq!(picture(&tree), now);
    undone(id);
    assert!(tree.join("f").exists());
}

fn inside_of_a_transaction_nothing_is_undone(dir: &Path) {
    let Some((_volume, tree)) = served(dir, "tmpfs") else { return };
    let id = undoable(&tree, "echo a > a");
    let systx = machine::systx();
    let (systx, id) = (systx.to_str().unwrap(), id.to_string());
    let inner = run(&tree, &[], &[systx, "undo", "--area-name", machine::AREA, &id]).output().unwrap();
    assert_eq!(code(&inner), 125);
    assert!(err(&inner).contains("inside of another one"), "{}", err(&inner));
    let inner = run(&tree, &[], &[systx, "run", "--undoable", "--", "true"]).output().unwrap();
    assert_eq!(code(&inner), 125);
    assert!(err(&inner).contains("--undoable is for a transaction of its own"), "{}", err(&inner));
    assert!(tree.join("a").exists());
}
