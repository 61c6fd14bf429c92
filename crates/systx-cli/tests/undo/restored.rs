//! Everything comes back, on every kind of file system.

use super::machine::{self, Case};
use super::*;
use std::os::unix::fs::MetadataExt;

pub const ALL: &[(&str, Case)] = &[
    ("a_file_system_that_is_not_meant_is_left_alone", what_is_not_meant_is_left_alone),
    ("everything_that_a_transaction_changes_comes_back", everything_comes_back),
    ("access_control_lists_come_back_also_where_they_are_listed_twice", access_control_lists_come_back),
    ("renames_come_back_whatever_their_order_was", renames_come_back),
    ("whatever_transactions_do_comes_back_one_by_one", whatever_transactions_do),
    ("a_name_comes_back_to_a_file_that_has_others_nobody_looked_at", a_name_of_several_comes_back),
    ("what_came_later_is_undone_first_and_then_what_came_before", the_youngest_first),
    ("an_at_sign_is_the_first_line_of_the_log_and_undone_by_undo", lines_of_the_log),
    ("an_undo_can_be_undone", an_undo_can_be_undone),
    ("what_others_made_beside_it_stays", what_others_made_beside_it_stays),
    ("a_dry_run_tells_what_would_come_back_and_changes_nothing", a_dry_run_changes_nothing),
    ("a_transaction_over_two_file_systems_is_undone_on_both", two_file_systems),
];

/// Every kind of object.
const SETUP: &str = r#"
umask 022
echo keep > keep; echo two > appended; echo three > gone; printf '' > empty
mkdir -p d/sub/deep; echo x > d/sub/deep/x; echo y > d/y; ln -s y d/l; ln d/y d/y2; ln d/y d-y3; mkfifo d/p
mknod d/null c 1 3; chmod 666 d/null; echo s > d/suid; chmod 4755 d/suid; chmod 1751 d/sub; chmod 000 d/sub/deep/x
setfattr -n user.dir -v dir d; setfattr -n user.file -v file d/y; setfattr -n trusted.t -v t gone
echo a > attrs; chown 12:34 attrs; chmod 2640 attrs; setfattr -n user.a -v 1 attrs; setfattr -n user.b -v 2 attrs
echo link > 'odd
name'; ln -s nowhere symlink; mkdir was-dir; echo in > was-dir/in; echo file > was-file
seq 200000 > large; seq 200000 > cut; seq 200000 > longer; truncate -s 3M sparse
seq 200000 > anew; echo short > grown
printf middle | dd of=sparse bs=1 seek=1500000 conv=notrunc status=none
truncate -s 2M holes; seq 1000 | dd of=holes bs=1 seek=1000000 conv=notrunc status=none
mkdir renamed; echo r > renamed/r; echo rr > renamed/gone; mkdir stays; echo 1 > stays/1
echo old > replaced; echo new > over; touch times; echo lk > linked; ln -s nowhere victim
touch -h -d '2001-02-03 04:05:06.123456789' gone d/l d/y d/p d/sub/deep/x symlink large times appended attrs
touch -d '2002-02-03 04:05:06.987654321' d/sub/deep d/sub was-dir
"#;

const CHANGES: &str = r#"
echo more >> appended; rm gone empty; rm -rf d; mkdir d; echo other > d/y; echo fresh > d/fresh
chown 56:78 attrs; chmod 4711 attrs; setfattr -n user.a -v 3 attrs; setfattr -x user.b attrs; setfattr -n user.c -v 4 attrs
rm 'odd
name'; ln -sfn elsewhere symlink; rm -r was-dir; echo now > was-dir; rm was-file; mkdir was-file; echo i > was-file/i
printf CHANGED | dd of=large bs=1 seek=700000 conv=notrunc status=none
printf AGAIN | dd of=large bs=1 seek=10 conv=notrunc status=none
truncate -s 150000 cut; seq 1000 >> longer; rm sparse
seq 7 300000 > anew; head -c 1048577 /dev/zero > grown
head -c 600000 /dev/urandom | dd of=holes bs=100K iflag=fullblock oflag=seek_bytes seek=500000 conv=notrunc status=none
mv renamed new-name; echo more >> new-name/r; rm new-name/gone; echo n > new-name/new
echo 2 > stays/2; mv over replaced; touch times; ln keep keep2; mkdir -p made/in/made; ln -s x made/in/l; mkfifo made/p
chmod 611 linked; ln linked linked2; mv linked2 victim
chmod 700 stays
"#;

fn everything_comes_back(dir: &Path) {
    for kind in ["ext4", "xfs", "btrfs", "tmpfs"] {
        let Some((volume, tree)) = served(dir, kind) else { continue };
        plain(&tree, SETUP);
        let (before, keep) = (picture(&tree), std::fs::metadata(tree.join("keep")).unwrap().ino());
        let id = undoable(&tree, CHANGES);
        let after = picture(&tree);
        let changed = before.iter().filter(|(name, line)| after.get(*name) != Some(line)).count();
        assert!(changed > 30, "{kind}: {changed}");
        assert!(in_area(&volume, "undo").contains(&id.to_string()));
        undone(id);
        same(&picture(&tree), &before, &["", "renamed", "stays"]);
        assert_eq!(std::fs::metadata(tree.join("keep")).unwrap().ino(), keep);
        for sparse in ["sparse", "holes"] {
            let meta = std::fs::metadata(tree.join(sparse)).unwrap();
            assert!(meta.blocks() * 512 < meta.len() / 2, "{kind}: {sparse}: {} blocks", meta.blocks());
        }
        // Nothing of it is left but what keeps other undos possible.
        assert_eq!(in_area(&volume, "aside"), [""; 0]);
        let images = in_area(&volume, "undo").into_iter().filter(|name| !name.ends_with('='));
        assert_eq!(images.collect::<Vec<_>>(), [id.to_string()]);
        volume.unmount();
    }
}

/// XFS shows root each list by a second name, too.
fn access_control_lists_come_back(dir: &Path) {
    if !machine::have("setfacl") {
        return;
    }
    for kind in ["xfs", "ext4"] {
        let Some((volume, tree)) = served(dir, kind) else { continue };
        let lists = || must(Command::new("getfacl").args(["-cR", "."]).current_dir(&tree));
        for (setup, changes) in [
            ("echo a > f", "setfacl -m u:1:r f"),
            ("echo a > f; setfacl -m u:1:r f", "echo b > f"),
            ("echo a > f; setfacl -m u:1:r f", "chmod 600 f"),
            ("echo a > f; setfacl -m u:1:r f", "setfacl -b f; echo new > f"),
            (
                "echo a > f; setfacl -m u:1:r f",
                "setfacl -m u:1:rwx f; echo new > n; mv n g; mv f h; ln h f; rm h",
            ),
            ("echo a > f; setfacl -m u:1:r f", "rm f"),
            (":", "echo a > f; setfacl -m u:1:r f"),
            ("setfacl -d -m u:1:r .", "echo a > f; mkdir q; setfacl -d -m u:2:r q"),
        ] {
            plain(&tree, setup);
            let (before, listed) = (picture(&tree), lists());
            let id = undoable(&tree, changes);
            assert!(picture(&tree) != before, "{kind}: {changes}");
            let output = undo(id, &[]);
            assert_eq!((code(&output), err(&output)), (0, String::new()), "{kind}: {setup}; {changes}");
            same(&picture(&tree), &before, &["", "q"]);
            assert_eq!(lists(), listed, "{kind}: {setup}; {changes}");
            plain(&tree, "setfacl -b .; find . -mindepth 1 -delete");
        }
        // Nor does a copy that is made inside take along a list that is there no more.
        plain(&tree, "echo a > f; setfacl -m u:1:r f");
        committed(&tree, &[], "setfacl -b f; cp --preserve=all f g");
        assert!(!lists().contains("user:bin") && !lists().contains("user:1"), "{kind}: {}", lists());
        volume.unmount();
    }
}

fn renames_come_back(dir: &Path) {
    let Some((_volume, tree)) = served(dir, "tmpfs") else { return };
    plain(&tree, "mkdir -p a/in b/in c; echo a > a/f; echo b > b/f; echo c > c/f; echo 1 > one; echo 2 > two; echo d > a/in/d");
    for script in [
        // Two that change places; a circle of three.
        "mv a x; mv b a; mv x b",
        "mv a x; mv b a; mv c b; mv x c; mv one x; mv two one; mv x two",
        // One into what was in it, and turned over.
        "mv a/in top; mv a top/a; echo e > top/a/e",
        // Away, and others of its name and its files' names in its place.
        "mv a other; mkdir a; mv other/f a/f; echo new > other/f; rm -r b; mv other b",
        // One that moved out of a directory that went, and into one that came.
        "mv a/in/d .; rm -r a; mkdir -p n/n; mv d n/n/d; mv c n/c; chmod 700 n/c",
        // Over others.
        "mv one two; mv a/f b/f; rm -r c/f; rmdir c; mv a c",
    ] {
        let before = picture(&tree);
        let id = undoable(&tree, script);
        assert!(picture(&tree) != before, "{script}");
        undone(id);
        let dirs = ["", "a", "b", "c", "a/in", "b/in"];
        same(&picture(&tree), &before, &dirs);
    }
}

/// A few transactions of random calls on few names, then their undos. `SYSTX_SEED` repeats them.
fn whatever_transactions_do(dir: &Path) {
    for kind in ["tmpfs", "ext4"] {
        let Some((volume, tree)) = served(dir, kind) else { continue };
        let (rounds, mut changed) = (machine::rounds(12, 400), 0);
        for _ in 0..rounds {
            plain(&tree, "mkdir -p a/a b/b c; echo 1 > a/a/x; echo 2 > b/y; echo 3 > z; ln b/y c/y; ln -s z l; seq 50000 > c/large");
            let mut done = Vec::new();
            for _ in 0..3 {
                let script = (0..fastrand::usize(2..14)).map(|_| call()).collect::<Vec<_>>().join("; ");
                let before = picture(&tree);
                // Many of them fail.
                let id = undoable(&tree, &format!("set +e; exec 2>/dev/null; {script}; true"));
                changed += usize::from(picture(&tree) != before);
                done.push((id, before, script));
            }
            for (id, before, script) in done.into_iter().rev() {
                let output = undo(id, &[]);
                // One that has come to nothing has nothing to be undone with.
                let nothing = code(&output) == 125 && err(&output).contains("no committed transaction");
                assert!(nothing || code(&output) == 0, "{kind}: {script}: {}", err(&output));
                let now = picture(&tree);
                let dirs: Vec<_> = before
                    .iter()
                    .filter(|(_, line)| line.starts_with('4'))
                    .map(|(name, _)| &name[..])
                    .collect();
                same(&now, &before, &dirs);
            }
            plain(&tree, "chmod -R u+rwx .; find . -mindepth 1 -delete");
        }
        assert!(changed > rounds, "{changed}");
        assert_eq!(in_area(&volume, "aside"), [""; 0]);
        volume.unmount();
    }
}

/// A random call of a shell.
fn call() -> String {
    let dirs = ["a", "b", "c", "a/a", "b/b", "a/b", "b/a", "c/c"];
    let name = || match fastrand::usize(..12) {
        0 => "z".into(),
        1 => "l".into(),
        2..5 => fastrand::choice(dirs).unwrap_or_default().to_string(),
        _ => format!(
            "{}/{}",
            fastrand::choice(dirs).unwrap_or_default(),
            fastrand::choice(["x", "y", "large"]).unwrap_or_default()
        ),
    };
    match fastrand::usize(..15) {
        0..4 => format!("mv -T {} {}", name(), name()),
        4 => format!("mv {} {}", name(), name()),
        5 => format!("rm -r {}", name()),
        6 => format!("rm {}", name()),
        7 => format!("mkdir {}", name()),
        8 => format!("ln -T {} {}", name(), name()),
        9 => format!("echo {} >> {}", fastrand::u8(..), name()),
        10 => format!(
            "printf {} | dd of={} bs=1 seek={} conv=notrunc",
            fastrand::u8(..),
            name(),
            fastrand::u32(..400_000)
        ),
        11 => format!("truncate -s {} {}", fastrand::u32(..400_000), name()),
        12 => format!("chmod {:o} {}", 0o700 | fastrand::u32(..0o100), name()),
        13 => format!("ln -sfn {} {}", name(), name()),
        _ => format!("setfattr -n user.{} -v {} {}", fastrand::u8(..3), fastrand::u8(..), name()),
    }
}

fn a_name_of_several_comes_back(dir: &Path) {
    let Some((_volume, tree)) = served(dir, "ext4") else { return };
    plain(&tree, "mkdir -p far/away here; echo x > far/away/x; ln far/away/x here/y; echo z > here/z");
    let before = picture(&tree);
    // Nothing in it looks at the other name.
    let id = undoable(&tree, "rm -r here");
    undone(id);
    same(&picture(&tree), &before, &["", "here"]);
    // The file's other name has another name by now: it is still one file.
    let id = undoable(&tree, "rm here/y");
    plain(&tree, "mv far/away/x moved");
    let before = picture(&tree);
    undone(id);
    let after = picture(&tree);
    let ino = |name: &str| std::fs::metadata(tree.join(name)).unwrap().ino();
    assert_eq!(ino("here/y"), ino("moved"));
    assert_eq!(after.len(), before.len() + 1);
    // It was made again meanwhile, by another undo: another file, in every way the same.
    plain(&tree, "mkdir there; echo same > there/one; ln there/one two; touch -d 2001-01-01 two");
    let (id, again) = (undoable(&tree, "rm two"), undoable(&tree, "rm there/one"));
    undone(again);
    undone(id);
    assert_eq!(ino("two"), ino("there/one"));
    // A copy that is equal in every way is another file. Directories that were removed and made again, twice, are the same.
    let first = undoable(
        &tree,
        "mkdir -p there/deep/er; mv there/one there/deep/er/one; mkfifo there/deep/p; rm two",
    );
    let again = undoable(&tree, "rm -r there/deep");
    undone(again);
    plain(&tree, "cp -a there/deep/er/one there/three");
    let twice = undoable(&tree, "rm -r there/deep");
    undone(twice);
    undone(first);
    assert_eq!(ino("two"), ino("there/one"));
    let (id, last) = (undoable(&tree, "rm two"), ino("there/one"));
    plain(&tree, "cp -p there/one there/backup; rm there/one");
    assert_eq!(code(&undo(id, &[])), 75);
    assert!(ino("there/backup") != last && !tree.join("two").exists());
    plain(&tree, "mv there/backup there/one; ln there/one two");
    // The name that it was known to keep is that of a file made again, or of one that only looks the same.
    plain(&tree, "echo first > p; ln p q");
    let (id, again) = (undoable(&tree, "stat p >&2; rm q"), undoable(&tree, "rm p"));
    undone(again);
    undone(id);
    assert_eq!(ino("q"), ino("p"));
    let id = undoable(&tree, "stat p >&2; rm q");
    plain(&tree, "echo other > r; touch -r p r; mv r p");
    let before = picture(&tree);
    assert_eq!(code(&undo(id, &[])), 75);
    assert_eq!(picture(&tree), before);
    // With all of them gone there is none that it could be one of.
    let id = undoable(&tree, "rm here/y");
    plain(&tree, "rm moved");
    let output = undo(id, &[]);
    assert_eq!(code(&output), 75);
    assert!(err(&output).contains("here/y: the other names of this file are gone"), "{}", err(&output));
}

fn the_youngest_first(dir: &Path) {
    for kind in ["ext4", "tmpfs"] {
        let Some((volume, tree)) = served(dir, kind) else { continue };
        plain(&tree, "mkdir d; echo 1 > d/one; echo 2 > d/two; echo 3 > three; ln three four");
        let first = picture(&tree);
        let a = undoable(
            &tree,
            "echo a >> d/one; rm d/two; mv three moved; mkdir new; echo n > new/n; chmod 700 d",
        );
        let second = picture(&tree);
        // It takes away, replaces, and builds on what the first one has made.
        let b = undoable(&tree, "rm -r new; rm d/one; echo b > d/two; echo b >> moved; mv d e; chmod 755 e");
        let third = picture(&tree);
        let refused = undo(a, &["--json"]);
        assert_eq!(code(&refused), 75);
        let told = outcome(&refused);
        assert_eq!(told["outcome"], "overtaken");
        let later: Vec<_> =
            told["overtaken"]["later"].as_array().unwrap().iter().map(|l| l["id"].clone()).collect();
        assert_eq!(later, [Value::from(b)], "{told}");
        let message = told["message"].as_str().unwrap();
        assert!(
            message.ends_with(&format!("Undo first what came later: systx undo {b} && systx undo {a}.")),
            "{message}"
        );
        assert_eq!(picture(&tree), third);
        undone(b);
        same(&picture(&tree), &second, &["", "d"]);
        undone(a);
        same(&picture(&tree), &first, &["", "d"]);
        volume.unmount();
    }
}

fn lines_of_the_log(dir: &Path) {
    let Some((_volume, tree)) = served(dir, "ext4") else { return };
    let [a, b, c] = ["a", "b", "c"].map(|name| undoable(&tree, &format!("echo {name} > {name}")));
    for (words, id) in [("@", c), ("last", c), ("@1", b), ("@2", a)] {
        let log: Value = serde_json::from_str(&out(&verb("log", &[words, "--json"]))).unwrap();
        assert_eq!((log[0]["id"].as_u64(), log.as_array().map(Vec::len)), (Some(id), Some(1)), "{words}");
    }
    let none = verb("log", &["@999999"]);
    assert_eq!(code(&none), 125);
    assert!(err(&none).contains("no durable commit is @999999: fewer are known here"), "{}", err(&none));
    let older = verb("undo", &["@1"]);
    assert_eq!(code(&older), 125);
    assert!(err(&older).contains("only the newest is undone without its number"), "{}", err(&older));
    assert_eq!(code(&verb("undo", &["@"])), 0);
    assert_eq!(["a", "b", "c"].map(|name| tree.join(name).exists()), [true, true, false]);
    // The undo is the newest now, and was not run with --undoable.
    let refused = verb("undo", &["last"]);
    assert_eq!(code(&refused), 125);
    assert!(err(&refused).contains("can't be undone"), "{}", err(&refused));
    let here = tree.to_str().unwrap();
    let another = undoable(&tree, "echo d > d");
    assert_eq!(code(&verb("undo", &["last", "--mount", here])), 0, "{another}");
    assert_eq!(["a", "b", "c", "d"].map(|name| tree.join(name).exists()), [true, true, false, false]);
}

fn an_undo_can_be_undone(dir: &Path) {
    let Some((_volume, tree)) = served(dir, "ext4") else { return };
    plain(&tree, "mkdir d; echo 1 > d/one; ln -s one d/link");
    let before = picture(&tree);
    let id = undoable(&tree, "rm -r d; echo f > file");
    let after = picture(&tree);
    let output = undo(id, &["--undoable", "--json"]);
    let again = outcome(&output)["id"].as_u64().unwrap();
    same(&picture(&tree), &before, &[""]);
    // An undo is not possible twice.
    let twice = undo(id, &[]);
    assert_eq!(code(&twice), 75);
    assert!(
        err(&twice).contains(&format!("transaction {id} is undone already, by transaction {again}")),
        "{}",
        err(&twice)
    );
    let log = out(&verb("log", &[]));
    assert!(log.contains(&format!("undoable  undo of {id}: sh -e -c rm -r d")), "{log}");
    undone(again);
    same(&picture(&tree), &after, &[""]);
    undone(id);
    same(&picture(&tree), &before, &[""]);
}

fn what_others_made_beside_it_stays(dir: &Path) {
    let Some((_volume, tree)) = served(dir, "ext4") else { return };
    plain(&tree, "mkdir d; echo 1 > d/one; echo 2 > two; mkdir renamed");
    let id = undoable(&tree, "echo 2 > d/two; rm d/one two; mv renamed moved");
    plain(&tree, "echo o > d/other; echo b > beside; echo in > moved/in");
    committed(&tree, &[], "echo t > d/third");
    undone(id);
    let names: Vec<_> = picture(&tree).into_keys().collect();
    assert_eq!(names, ["", "beside", "d", "d/one", "d/other", "d/third", "renamed", "renamed/in", "two"]);
}

fn a_dry_run_changes_nothing(dir: &Path) {
    let Some((volume, tree)) = served(dir, "ext4") else { return };
    plain(&tree, "echo 1 > one; echo 2 > two");
    let before = picture(&tree);
    let id = undoable(&tree, "rm one; echo 3 > two; echo n > new");
    let after = picture(&tree);
    let output = undo(id, &["--dry-run"]);
    let at = |name: &str| tree.join(name).display().to_string();
    let expected = format!(
        "D\t{}\nA\t{}\nM\t{}\nsystx: dry run, nothing was changed: 3 changes are not committed.\n",
        at("new"),
        at("one"),
        at("two")
    );
    assert_eq!((code(&output), err(&output)), (0, expected));
    assert_eq!(picture(&tree), after);
    assert_eq!(in_area(&volume, "undo"), [id.to_string()]);
    let told = undo(id, &["-p", "-v"]);
    assert!(
        err(&told).contains("\n-3\n+2\n") && err(&told).ends_with("all changes are in place.\n"),
        "{}",
        err(&told)
    );
    same(&picture(&tree), &before, &[""]);
    // It notes what it made again, for older images.
    assert_eq!(in_area(&volume, "undo").iter().filter(|name| name.ends_with('=')).count(), 1);
    assert_eq!(code(&verb("prune", &["--yes", "--keep", "0"])), 0);
    assert_eq!(in_area(&volume, "undo"), [""; 0]);
}

fn two_file_systems(dir: &Path) {
    let (Some((one, a)), Some((other, b))) = (served(dir, "ext4"), served(dir, "tmpfs")) else { return };
    plain(&a, "echo a > a");
    plain(&b, "echo b > b");
    // So that the numbers differ.
    committed(&a, &[], "echo more > more");
    let (was_a, was_b) = (picture(&a), picture(&b));
    let both = |script: &str| undoable_on(&a, &b, script);
    let id = both("rm $A/a; rm $B/b; echo n > $A/n; echo n > $B/n");
    undone(id);
    same(&picture(&a), &was_a, &[""]);
    same(&picture(&b), &was_b, &[""]);
    // A number that is there twice: which one has to be said.
    let twice = undoable(&a, "echo 1 > only-a");
    let mut on_b = (0..50).map(|n| undoable(&b, &format!("echo {n} > only-b")));
    assert_eq!(on_b.find(|id| *id >= twice), Some(twice));
    let full = picture(&b);
    let output = undo(twice, &[]);
    assert_eq!(code(&output), 125);
    assert!(err(&output).contains("choose by --mount"), "{}", err(&output));
    assert_eq!(code(&undo(twice, &["--mount", b.to_str().unwrap()])), 0);
    let left = picture(&b);
    assert!(a.join("only-a").exists() && left != full, "{left:?}");
    // Where one of them has changed nothing comes back on either.
    let id = both("rm $A/a; echo c > $B/b");
    plain(&b, "echo d > b");
    let (now_a, now_b) = (picture(&a), picture(&b));
    assert_eq!(code(&undo(id, &[])), 75);
    assert_eq!((picture(&a), picture(&b)), (now_a, now_b));
    // Nor where what was kept on one of them is gone, and its number is another transaction's.
    let id = both("echo y > $A/y; echo y > $B/y");
    let numbers = in_area(&other, "undo").into_iter().filter_map(|name| name.parse::<u64>().ok());
    let part = numbers.max().unwrap();
    let stranger = undoable(&b, "echo z > z");
    let kept = |id: u64| other.area().join("undo").join(id.to_string());
    std::fs::remove_dir_all(kept(part)).unwrap();
    let on_a = ["--mount", a.to_str().unwrap()];
    let output = undo(id, &on_a);
    assert_eq!(code(&output), 125);
    assert!(err(&output).contains("is gone"), "{}", err(&output));
    std::fs::rename(kept(stranger), kept(part)).unwrap();
    let (now_a, now_b) = (picture(&a), picture(&b));
    let output = undo(id, &on_a);
    assert_eq!(code(&output), 125);
    assert!(err(&output).contains("is another transaction's by now"), "{}", err(&output));
    assert_eq!((picture(&a), picture(&b)), (now_a, now_b));
    // Nor where one is not there.
    let id = both("echo x > $A/x; echo x > $B/x");
    must(Command::new("umount").arg(b.parent().unwrap()));
    let output = undo(id, &[]);
    assert_eq!(code(&output), 125);
    assert!(err(&output).contains("is not mounted"), "{}", err(&output));
    assert!(a.join("x").exists());
    assert!(!in_area(&one, "undo").is_empty());
}

fn undoable_on(a: &Path, b: &Path, script: &str) -> u64 {
    let mut command =
        run(a, &["--json", "--undoable", "--only", b.to_str().unwrap()], &["sh", "-e", "-c", script]);
    let output = command.env("A", a).env("B", b).output().unwrap();
    assert_eq!(machine::code(&output), 0, "{}", err(&output));
    outcome(&output)["id"].as_u64().unwrap()
}

fn what_is_not_meant_is_left_alone(dir: &Path) {
    let (Some((one, a)), Some((_other, b))) = (served(dir, "ext4"), served(dir, "tmpfs")) else { return };
    undoable(&a, "echo a > a");
    undoable(&b, "echo b > b");
    // Left there by a process that was killed.
    let left = one.area().join("undo/99999~");
    std::fs::create_dir(&left).unwrap();
    assert_eq!(code(&undo(99998, &["--mount", b.to_str().unwrap()])), 125);
    assert!(left.exists());
    assert_eq!(code(&undo(99998, &["--mount", a.to_str().unwrap()])), 125);
    assert!(!left.exists());
}
