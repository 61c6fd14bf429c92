//! Files that are changed under a name that goes: an ordinary user's run opens nothing by handle, and neither
//! does the process that finishes or redoes it.

use super::cut::kill;
use super::machine::processes::Stopped;
use super::machine::{code, err, have, must, out, Case};
use super::world::{of_kind, world, World};
use std::path::Path;
use std::process::Command;

pub const ALL: &[(&str, Case)] = &[
    ("a_file_whose_name_goes_is_changed_by_its_other_names", as_plainly),
    ("a_file_whose_name_goes_is_changed_wherever_its_publisher_is_killed", killed),
    ("a_file_whose_name_goes_is_changed_for_good_on_ext4", |dir| for_good(dir, "ext4")),
    ("a_file_whose_name_goes_is_changed_for_good_on_xfs", |dir| for_good(dir, "xfs")),
    ("a_directory_that_is_renamed_is_so_for_good_on_ext4", |dir| renamed_for_good(dir, "ext4")),
    ("a_directory_that_is_renamed_is_so_for_good_on_xfs", |dir| renamed_for_good(dir, "xfs")),
];

/// Files of `d` have another name in `g`, which no transaction touches.
const SETUP: &str = "rm -rf t; mkdir -p t/d/in t/g t/e/sub; cd t; \
    for f in d/a d/c d/in/h e/f e/sub/h; do head -c 3000 /dev/zero | tr '\\0' o >$f; chmod 644 $f; done; \
    ln d/a g/a; ln d/c g/c; ln d/in/h g/h";

const SCRIPTS: &[&str] = &[
    "chmod 600 d/a; rm d/a",
    "printf NEW | dd of=d/a conv=notrunc status=none; echo more >>d/c; rm d/a d/c",
    "truncate -s 100 d/a; rm d/a",
    "printf NEW | dd of=d/a conv=notrunc status=none; chmod 600 d/a; echo other >n; mv n d/a",
    "chmod 600 d/a; printf NEW | dd of=d/in/h conv=notrunc status=none; rm -r d",
    "chmod 600 d/a; printf NEW | dd of=d/c conv=notrunc status=none; mv d k; rm k/a k/c",
    "mv e x; echo new >x/f; chmod 600 x/sub/h",
    "mv e/sub s; mv e s/e; echo new >s/h; chmod 600 s/e/f; mv d s/e/d; echo more >>s/e/d/in/h; rm s/e/d/a",
];

/// A second transaction takes away what the first one knows.
const CHAINS: &[(&str, &str)] = &[
    ("echo new >e/f; chmod 600 e/sub/h", "mv e x"),
    ("echo more >>d/a; chmod 600 d/c", "rm d/a d/c"),
    ("echo small >e/sub/new", "mv e/sub s"),
];

/// Renames of directories, behind a commit that has synced all on the way to them: so each syncs the log
/// alone, and its slots and tokens are lost with the power. Which of these were a directory's, a redo has to
/// know without opening anything by handle.
const RENAMES: &[&str] = &[
    "mv e x; echo new >x/f",
    "mv e/sub s; chmod 600 s/h",
    "mv d k; mv e d; mv k e; echo more >>d/f",
    "mv e g/e; rm -r d; echo new >g/e/sub/h",
];

/// Names, modes, links, sizes and contents.
fn look(w: &World) -> String {
    let list = "find . -printf '%P %y %m %n %s\\n' | sort; find . -type f | sort | xargs -r cat";
    must(Command::new("sh").args(["-c", list]).current_dir(w.tree.join("t")))
}

fn set_up(w: &World) {
    let output = w.plain(SETUP);
    assert_eq!(code(&output), 0, "{}", err(&output));
}

/// Runs a script without a transaction.
fn plainly(w: &World, script: &str) -> String {
    set_up(w);
    let output = w.plain(&format!("cd t; {script}"));
    assert_eq!(code(&output), 0, "{script}: {}", err(&output));
    look(w)
}

fn inside(w: &World, script: &str) {
    let output = w.shell(&format!("cd t; {script}"));
    assert_eq!((code(&output), err(&output).as_str()), (0, ""), "{script}");
}

fn as_plainly(dir: &Path) {
    let Some(w) = world(dir) else { return };
    for script in SCRIPTS {
        let expected = plainly(&w, script);
        for options in [&[][..], &["--durability", "none"]] {
            set_up(&w);
            let output = w.run(options, &format!("cd t; {script}")).output().unwrap();
            assert_eq!((code(&output), err(&output).as_str()), (0, ""), "{script}");
            assert_eq!(look(&w), expected, "{script} {options:?}");
        }
    }
}

/// Killed with its helper behind each rename, and so between any two names that change.
fn killed(dir: &Path) {
    let Some(w) = world(dir) else { return };
    if !have("strace") {
        return;
    }
    let mut cut = 0;
    for script in [SCRIPTS[1], SCRIPTS[5], SCRIPTS[7]] {
        let after = plainly(&w, script);
        for n in 1.. {
            set_up(&w);
            let before = look(&w);
            let run = w.run(&[], &format!("cd t; {script}"));
            match Stopped::after(&w.dir, &run, "renameat2", n) {
                Ok(stopped) => kill(stopped, true),
                Err(_) => break,
            }
            let recovered = w.verb(&["recover"]).output().unwrap();
            let told = format!("{}{}", out(&recovered), err(&recovered));
            let found = look(&w);
            assert!(found == before || found == after, "{script}, rename {n}: a mixture: {told}\n{found}");
            assert!(!told.contains("displaced"), "{script}, rename {n}: {told}");
            cut += usize::from(found == after);
        }
    }
    assert!(cut > 6, "finished for the dead {cut} times");
}

/// The power goes behind a durable commit.
fn for_good(dir: &Path, kind: &'static str) {
    let alone = SCRIPTS.iter().map(|script| ("", *script));
    power_lost(dir, kind, alone.chain(CHAINS.iter().copied()), |_| {});
}

fn renamed_for_good(dir: &Path, kind: &'static str) {
    let commits = RENAMES.iter().map(|script| ("echo z >z", *script));
    power_lost(dir, kind, commits, sync);
}

fn sync(w: &World) {
    must(Command::new("sync").arg("-f").arg(&w.own));
}

fn power_lost(
    dir: &Path,
    kind: &'static str,
    commits: impl Iterator<Item = (&'static str, &'static str)>,
    between: fn(&World),
) {
    let Some(w) = of_kind(dir, kind, if kind == "xfs" { 320 } else { 64 }) else { return };
    if !have("xfs_io") {
        return;
    }
    for (first, second) in commits {
        let what = format!("{first} … {second}");
        let expected = plainly(&w, &format!("{first}\n{second}"));
        set_up(&w);
        sync(&w);
        if !first.is_empty() {
            inside(&w, first);
        }
        between(&w);
        inside(&w, second);
        let Some(switch) = w.volume.switch() else { return };
        switch.off();
        w.volume.boot_of(&w.area());
        let recovered = w.verb(&["recover"]).output().unwrap();
        let told = format!("{}{}", out(&recovered), err(&recovered));
        assert_eq!(code(&recovered), 0, "{what}: {told}");
        assert!(!told.contains("displaced"), "{what}: {told}");
        assert_eq!(look(&w), expected, "{what}: reported durable, and lost: {told}");
    }
}
