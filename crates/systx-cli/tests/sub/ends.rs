//! The state at the end: of a subtransaction, in the outer one; of the outer one, for all processes.

use super::machine::generations::{tree, Generations};
use super::machine::picture::{difference, picture};
use super::machine::processes::Tell;
use super::machine::user::{open_fuse_to_all, UNPRIVILEGED, USER};
use super::machine::volume::Volume;
use super::machine::who::Account;
use super::machine::{code, err, have, must, out, programs_below, run, systx, verb, Case, AREA};
use super::world::{each, inner, World, KINDS};
use std::os::unix::fs::{chown, MetadataExt};
use std::path::Path;
use std::process::{Command, Stdio};

pub const ALL: &[(&str, Case)] = &[
    ("what_it_commits_is_what_a_plain_run_leaves", what_it_commits_is_what_a_plain_run_leaves),
    ("undone_it_leaves_the_outer_one_as_it_was", undone_it_leaves_the_outer_one_as_it_was),
    ("it_changes_what_the_outer_one_has_made", it_changes_what_the_outer_one_has_made),
    ("with_the_outer_one_it_is_undone", with_the_outer_one_it_is_undone),
    ("eight_deep_each_is_undone_alone", eight_deep_each_is_undone_alone),
    ("over_several_file_systems_it_is_one", over_several_file_systems_it_is_one),
    ("an_open_transaction_has_some", an_open_transaction_has_some),
    ("a_shell_has_some", a_shell_has_some),
    ("an_ordinary_users_transaction_has_some", an_ordinary_users_transaction_has_some),
    ("a_user_in_a_transaction_of_root_has_some", a_user_in_a_transaction_of_root_has_some),
    (
        "an_area_that_its_user_has_filled_by_hand_neither_refuses_nor_waits_nor_leads_out",
        an_area_filled_by_hand,
    ),
    ("areas_that_a_user_has_everywhere_do_not_keep_root_from_committing", areas_that_a_user_has_everywhere),
    ("the_whole_tree_has_some", the_whole_tree_has_some),
    ("what_still_runs_at_the_end_of_the_outer_one_is_undone", what_still_runs_is_undone),
    ("what_the_outer_one_has_mounted_is_native_to_both", what_the_outer_one_has_mounted_is_native),
    ("outside_of_any_transaction_it_is_an_ordinary_one", outside_it_is_an_ordinary_one),
];

fn what_it_commits_is_what_a_plain_run_leaves(dir: &Path) {
    // Every kind of change, with times.
    let generations = Generations::learn(dir, 20, &Account::root());
    let tell = Tell::new(dir);
    for kind in KINDS {
        let Some(volume) = Volume::new(dir, kind, if kind == "xfs" { 320 } else { 128 }) else { continue };
        let served = tree(&volume.point, &generations, &Account::root());
        for (from, script) in
            [(1, "\"$S\" run --sub -- sh -c \"$0\""), (0, "\"$S\" run --sub -- sh -c \"$0\"; exit 0")]
        {
            let mut outer = run(&served, &[], &["sh", "-c", script, &generations.script()]);
            generations.environment(&mut outer, from, &tell.path);
            let output = outer.env("S", systx()).output().unwrap();
            assert_eq!((code(&output), err(&output).as_str()), (0, ""), "{kind}");
            assert_eq!(generations.whole(&served, kind), 1 - from, "{kind}");
        }
        let names = std::fs::read_dir(&volume.point).unwrap().count();
        assert_eq!(names, 2 + usize::from(volume.point.join("lost+found").exists()), "{kind}");
    }
}

const SETUP: &str = "echo a > a; mkdir dir; echo b > dir/b; head -c 200000 /dev/zero > large";

fn undone_it_leaves_the_outer_one_as_it_was(dir: &Path) {
    each(dir, SETUP, |w| {
        let said = w.commits(
            "echo mine > mine; mkdir made; echo in > made/in
            before=$(find . -printf '%P %y %m %s %n %T@ %C@ %i\\n' | sort)
            sub -- sh -c 'echo x > a; rm mine; mv made gone; rm -r dir; chmod 600 large; echo y >> large; exit 7' 2>/dev/null
            echo $?
            [ \"$before\" = \"$(find . -printf '%P %y %m %s %n %T@ %C@ %i\\n' | sort)\" ] && echo same
            cat a mine made/in dir/b",
        );
        assert_eq!(said, "7\nsame\na\nmine\nin\nb\n");
        assert_eq!(w.names(), ["a", "dir", "large", "made", "mine"]);
        assert_eq!((w.read("a").as_str(), w.read("mine").as_str()), ("a\n", "mine\n"));
    });
}

fn it_changes_what_the_outer_one_has_made(dir: &Path) {
    each(dir, SETUP, |w| {
        let served = "mkdir own; sub --only own -- sh -c 'echo s > own/s; echo n > beside; mv own/s own/t; false' 2>/dev/null; ls -A own; \
            sub --only own -- sh -c 'echo s > own/s' || exit 9; ls -A own; rm -r own beside";
        assert_eq!(w.commits(served), "s\n");
        let said = w.commits(
            "echo more >> a; mkdir -p made/deep; echo f > made/deep/f; mv dir moved; rm large; echo t > twice
            sub -- sh -c 'cat a made/deep/f moved/b; ls; mv made/deep up; rmdir made; echo sub >> a; mv moved/b moved/c
                ln up/f hard; rm twice; echo new > large; mkfifo pipe; ln -s up sym' || exit 9
            cat a up/f moved/c; stat -c %h up/f
            sub -- sh -c 'rm -r moved; echo again > twice' || exit 9
            echo outer >> a",
        );
        assert_eq!(said, "a\nmore\nf\nb\na\nmade\nmoved\ntwice\na\nmore\nsub\nf\nb\n2\n");
        assert_eq!(w.names(), ["a", "hard", "large", "pipe", "sym", "twice", "up"]);
        assert_eq!((w.read("a").as_str(), w.read("up/f").as_str()), ("a\nmore\nsub\nouter\n", "f\n"));
        assert_eq!((w.read("large").as_str(), w.read("twice").as_str()), ("new\n", "again\n"));
    });
}

fn with_the_outer_one_it_is_undone(dir: &Path) {
    each(dir, SETUP, |w| {
        let output =
            w.run(&[], "sub -- sh -c 'echo x > a; echo n > new; rm -r dir' || exit 9; cat a new; exit 3");
        assert_eq!((code(&output), out(&output).as_str()), (3, "x\nn\n"), "{}", err(&output));
        assert_eq!(
            (w.names(), w.read("a")),
            (["a", "dir", "large"].map(String::from).to_vec(), "a\n".into())
        );
        w.nothing_is_left();
    });
}

fn eight_deep_each_is_undone_alone(dir: &Path) {
    let Some(w) = World::new(dir, "ext4", "") else { return };
    // Each makes a file before and after the one in it; the fourth and the innermost fail, and what is in
    // them with them.
    let script = "n=$1; echo $n > before$n; \"$S\" run --sub -- sh ../level $((n + 1)) 2>> $BESIDE/said; echo $? > after$n; \
        [ $n != 4 ] && [ $n != 8 ]";
    std::fs::write(w.mount.join("level"), script).unwrap();
    let output = w.run(&[], "sh ../level 1");
    assert_eq!(code(&output), 0, "{}", err(&output));
    let mut expected: Vec<String> =
        [1, 2, 3].iter().flat_map(|n| [format!("after{n}"), format!("before{n}")]).collect();
    expected.sort();
    assert_eq!(w.names(), expected);
    assert_eq!([w.read("after1"), w.read("after2"), w.read("after3")], ["0\n", "0\n", "1\n"]);
    let said = std::fs::read_to_string(w.beside.join("said")).unwrap();
    assert!(said.contains("more than 8 transactions in one another; leave --sub out"), "{said}");
    w.nothing_is_left();
}

fn over_several_file_systems_it_is_one(dir: &Path) {
    let [Some(one), Some(two)] = ["ext4", "tmpfs"].map(|kind| World::new(dir, kind, SETUP)) else { return };
    let other = two.tree.to_str().unwrap();
    let script = "sub -- sh -c 'echo s > s; echo s > $0/s; rm a $0/a' $OTHER || exit 9; cat s $OTHER/s
        sub -- sh -c 'echo t > t; echo t > $0/t; false' $OTHER 2>/dev/null; echo $?; ls . $OTHER | grep -c ^t; true";
    let mut outer = one.outer(&["--only", other], script);
    let output = outer.env("OTHER", other).output().unwrap();
    assert_eq!((code(&output), err(&output).as_str(), out(&output).as_str()), (0, "", "s\ns\n1\n0\n"));
    for w in [&one, &two] {
        assert_eq!(w.names(), ["dir", "large", "s"]);
        w.nothing_is_left();
    }
}

fn an_open_transaction_has_some(dir: &Path) {
    let Some(w) = World::new(dir, "ext4", SETUP) else { return };
    let begun = Command::new(systx())
        .args(["begin", "--area-name", AREA, "--only", "."])
        .current_dir(&w.tree)
        .output()
        .unwrap();
    assert_eq!(code(&begun), 0, "{}", err(&begun));
    let id = out(&begun).trim().to_string();
    let exec = |script: &str| {
        let mut exec = Command::new(systx());
        exec.args(["exec", "--area-name", AREA, &id, "--", "sh", "-c", &inner(script)]).current_dir(&w.tree);
        exec.env("S", systx()).env("BESIDE", &w.beside).stdin(Stdio::null()).output().unwrap()
    };
    assert_eq!(code(&exec("sub -- sh -c 'echo s > s; echo x > a'")), 0);
    assert_eq!(code(&exec("sub -- sh -c 'echo t > t; exit 4'")), 4);
    assert_eq!(out(&exec("ls; cat a")), "a\ndir\nlarge\ns\nx\n");
    // One that is still there at the end.
    w.fifos(&["ready"]);
    let left = exec("(sub -- sh -c 'echo l > left; echo > $BESIDE/ready; exec sleep 1000' &) >/dev/null 2>&1; read x < $BESIDE/ready");
    assert_eq!(code(&left), 0, "{}", err(&left));
    let diff = verb("diff", &[&id]);
    let tree = w.tree.to_str().unwrap();
    assert_eq!(out(&diff), format!("M\t{tree}/a\nA\t{tree}/s\n"), "{}", err(&diff));
    let committed = verb("commit", &[&id]);
    assert_eq!((code(&committed), err(&committed).as_str()), (0, ""));
    assert_eq!((w.names().join(" "), w.read("a")), ("a dir large s".into(), "x\n".into()));
    w.nothing_is_left();
}

fn a_shell_has_some(dir: &Path) {
    let Some(w) = World::new(dir, "ext4", SETUP) else { return };
    let typed = w.beside.join("typed");
    std::fs::write(&typed, inner("sub -- sh -c 'echo s > s'; sub -- sh -c 'rm a; false'; true")).unwrap();
    // Without a terminal its status decides.
    let mut shell = Command::new("setsid");
    shell.arg("--wait").arg(systx()).args(["shell", "--area-name", AREA, "--only", "."]).current_dir(&w.tree);
    shell.env("SHELL", "/bin/sh").env("S", systx()).stdin(std::fs::File::open(typed).unwrap());
    let output = shell.output().unwrap();
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert_eq!(w.names(), ["a", "dir", "large", "s"]);
    w.nothing_is_left();
}

fn an_ordinary_users_transaction_has_some(dir: &Path) {
    let Some(w) = World::new(dir, "ext4", SETUP) else { return };
    must(Command::new("chown").arg("-R").arg(format!("{USER}:{USER}")).arg(&w.tree));
    std::fs::create_dir(dir.join("bin")).unwrap();
    let program = dir.join("bin/systx");
    std::fs::copy(systx(), &program).unwrap();
    chown(&w.beside, Some(USER), Some(USER)).unwrap();
    open_fuse_to_all(dir);
    let user = |script: &str| {
        let mut command = Command::new(UNPRIVILEGED[0]);
        command.args(&UNPRIVILEGED[1..]).arg(&program).args(["run", "--area-name", AREA, "--only", "."]);
        command.args(["--", "sh", "-c", &inner(script)]).current_dir(&w.tree).stdin(Stdio::null());
        command
            .env("S", &program)
            .env("HOME", &w.beside)
            .env("BESIDE", &w.beside)
            .env_remove("XDG_STATE_HOME");
        command.output().unwrap()
    };
    // An object that a command has made read-only is published by a process that has the command's privileges
    // at that moment.
    let output = user(
        "chmod 555 dir; sub -- sh -c 'id -u; grep CapEff /proc/self/status; echo s > s; chmod 755 dir; mv dir/b dir/c; chmod 555 dir
            mkdir ro; echo r > ro/r; chmod 500 ro; \"$S\" run --sub -- sh -c \"echo deep > deep; chmod 400 a\"' || exit 9
        sub -- sh -c 'rm -rf a s; exit 5' 2>/dev/null; echo $?; cat dir/c ro/r deep; readlink /proc/1/fd/0 >/dev/null && echo pid 1 is open; cat /proc/1/environ 2>/dev/null; true",
    );
    assert_eq!((code(&output), err(&output).as_str()), (0, ""));
    assert_eq!(out(&output), format!("{USER}\nCapEff:\t0000000000000000\n5\nb\nr\ndeep\n"));
    let area = format!("{AREA}-{USER}");
    assert_eq!(w.names(), [area.as_str(), "a", "deep", "dir", "large", "ro", "s"]);
    assert_eq!(std::fs::metadata(w.tree.join("deep")).unwrap().uid(), USER);
    // One that is cut off is finished, or undone, by pid 1 of the outer one, which has none but the user's
    // rights either.
    w.fifos(&["ready"]);
    let output = user("sub -- sh -c 'echo l > left; echo > $BESIDE/ready; exec sleep 1000' & read x < $BESIDE/ready; echo o > outer");
    assert_eq!((code(&output), err(&output).as_str()), (0, ""));
    assert_eq!(w.names(), [area.as_str(), "a", "deep", "dir", "large", "outer", "ro", "s"]);
    w.nothing_is_left();
    must(Command::new("umount").arg("/dev/fuse"));
}

fn a_user_in_a_transaction_of_root_has_some(dir: &Path) {
    let Some(w) = World::new(dir, "ext4", SETUP) else { return };
    let own = &format!("mkdir his; echo h > his/h; chown -R {USER}:{USER} his");
    must(Command::new("sh").args(["-c", own]).current_dir(&w.tree));
    open_fuse_to_all(dir);
    w.fifos(&["ready"]);
    let his = format!("his() {{ {} \"$S\" run --sub \"$@\"; }}", UNPRIVILEGED.join(" "));
    let program = w.beside.join("systx");
    std::fs::copy(systx(), &program).unwrap();
    let run = |script: &str| {
        let mut outer = w.outer(&[], &format!("{his}; {script}"));
        outer.env("S", &program).env("HOME", &w.beside).env_remove("XDG_STATE_HOME").output().unwrap()
    };
    chown(&w.beside, Some(USER), Some(USER)).unwrap();
    // In a directory that is new itself its area moves no time either.
    let new = &format!("mkdir new; chown {USER}:{USER} new; touch -d @1000000000 new; cd new; his --only . -- true; stat -c %Y .; ls -A; cd ..; rmdir new");
    let output = run(new);
    assert_eq!((code(&output), out(&output).as_str(), err(&output).as_str()), (0, "1000000000\n", ""));
    // And goes with it, also where it lay in a directory that was there before.
    let output = run("cd his; his --only . -- sh -c 'rm h'; cd ..; rmdir his");
    assert_eq!((code(&output), err(&output).as_str(), w.names().join(" ")), (0, "", "a dir large".into()));
    w.nothing_is_left();
    must(Command::new("sh").args(["-c", own]).current_dir(&w.tree));
    let output = run(
        "cd his; his --only . -- sh -c 'echo s > s; rm h' || exit 9; his --only . -- sh -c 'rm s; false' 2>/dev/null; echo $?
        his --only . -- sh -c 'echo l > left; echo > $BESIDE/ready; exec sleep 1000' & read x < $BESIDE/ready; sub -- sh -c 'echo r > ../r'",
    );
    assert_eq!((code(&output), out(&output).as_str(), err(&output).as_str()), (0, "1\n", ""));
    assert_eq!(w.names(), ["a", "dir", "his", "large", "r"]);
    let names: Vec<_> =
        std::fs::read_dir(w.tree.join("his")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["s"]);
    w.nothing_is_left();
    assert!(!w.beside.join(".local").exists(), "an area that goes with the outer one is noted nowhere");
    must(Command::new("umount").arg("/dev/fuse"));
}

/// Nobody of its user is left to be asked when it is finished: no FIFO in there is waited for, no link leads
/// out of it, and it does not keep root from committing.
fn an_area_filled_by_hand(dir: &Path) {
    if !have("getfattr") || !have("timeout") {
        return;
    }
    let made = format!(
        "mkdir his others; echo o > others/o; mkdir -m 1777 his/sticky; echo s > his/sticky/s; echo r > his/power
        chmod 4755 his/power; chown {USER}:{USER} his; touch -d @1000000000 his ."
    );
    let Some(w) = World::new(dir, "ext4", &made) else { return };
    open_fuse_to_all(dir);
    let before = picture(&w.tree);
    // And whether nothing of it is left.
    let fillings = [
        ("rm -f format; mkfifo format", false),
        ("rm -f owners; mkfifo owners", false),
        ("rm -f table; mkfifo table", false),
        ("rm -f log/*; mkfifo log/0000000000000001", false),
        ("rm -r log; mkfifo log", false),
        ("rm -r log; ln -s ../../others log", false),
        ("rm -r tx; ln -s ../../others tx", false),
        ("rm -r aside; ln -s ../../others aside", false),
        ("rm -f table; ln -s ../../others/o table", false),
        ("rm -f table; truncate -s 1T table", false),
        ("mkdir tx/7; mv ../sticky tx/7/0", false),
        ("chmod 0 log", false),
        ("chmod 755 .", false),
        ("chmod 0 .", false),
        ("true", true),
    ];
    for (fill, is_sound) in fillings {
        let area = "cd his && n=$(getfattr --only-values -n systx.sub-area .) && mkdir -m 700 $n && cd $n";
        let his = format!("{area} && mkdir log tx aside && {fill}");
        let script = format!("{} sh -c '{his}' || exit 9; echo r > new", UNPRIVILEGED.join(" "));
        let outer = w.outer(&[], &script);
        let mut timed = Command::new("timeout");
        timed.arg("60").arg(outer.get_program()).args(outer.get_args()).current_dir(&w.tree);
        let output = timed.envs(outer.get_envs().filter_map(|(k, v)| Some((k, v?)))).output().unwrap();
        assert_eq!((code(&output), w.read("new").as_str()), (0, "r\n"), "{fill}: {}", err(&output));
        let left = w.tree.join("his/systx-displaced.1");
        let told = format!("could not be finished: what is left of it is {} now.", left.display());
        assert!(!left.exists() || err(&output).contains(&told), "{fill}: {}", err(&output));
        assert!(!is_sound || (!left.exists() && err(&output).is_empty()), "{fill}: {}", err(&output));
        if left.join("tx/7/0/s").exists() {
            std::fs::rename(left.join("tx/7/0"), w.tree.join("his/sticky")).unwrap();
        }
        std::fs::remove_dir_all(left).or_else(not_there).unwrap();
        std::fs::remove_file(w.tree.join("new")).unwrap();
        must(Command::new("touch").args(["-d", "@1000000000", "his", "."]).current_dir(&w.tree));
        assert_eq!(difference(&picture(&w.tree), &before), "", "{fill}: {}", err(&output));
        w.nothing_is_left();
    }
}

fn not_there(error: std::io::Error) -> std::io::Result<()> {
    match error.kind() {
        std::io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    }
}

/// Their paths are more than fits in one answer.
fn areas_that_a_user_has_everywhere(dir: &Path) {
    if !have("getfattr") {
        return;
    }
    let Some(w) = World::new(dir, "ext4", &format!("mkdir his; chown {USER}:{USER} his")) else { return };
    open_fuse_to_all(dir);
    let make = "long=$(printf %0250d 0) && n=$(getfattr --only-values -n systx.sub-area .) && mkdir $long && cd $long && \
        for i in $(seq 300); do mkdir $i $i/$n && chmod 700 $i/$n || exit 9; done; chmod 755 1/$n";
    let script = format!("cd his; {} sh -c '{make}' || exit 9; echo r > ../new", UNPRIVILEGED.join(" "));
    let output = w.run(&[], &script);
    assert_eq!((code(&output), w.read("new").as_str()), (0, "r\n"), "{}", err(&output));
    assert!(err(&output).contains("could not be finished"), "{}", err(&output));
    w.nothing_is_left();
}

fn the_whole_tree_has_some(dir: &Path) {
    let root = dir.join("root");
    std::fs::create_dir(&root).unwrap();
    must(Command::new("mount").args(["-t", "tmpfs", "-o", "size=256m", "none"]).arg(&root));
    programs_below(&root);
    for name in ["proc", "dev", "sys"] {
        std::fs::create_dir(root.join(name)).unwrap();
        must(Command::new("mount").arg("--rbind").arg(Path::new("/").join(name)).arg(root.join(name)));
    }
    for name in ["tmp", "work", "data", "data/inner", "window", "opt"] {
        std::fs::create_dir(root.join(name)).unwrap();
    }
    must(Command::new("mount").args(["-t", "tmpfs", "none"]).arg(root.join("tmp")));
    must(Command::new("mount").arg("--bind").arg(root.join("data/inner")).arg(root.join("window")));
    std::fs::copy(systx(), root.join("opt/systx")).unwrap();
    let run = |script: &str| {
        let mut chroot = Command::new("chroot");
        chroot.arg(&root).args(["/opt/systx", "run", "--", "/bin/sh", "-c", &inner(script)]);
        chroot
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("S", "/opt/systx")
            .current_dir("/")
            .output()
            .unwrap()
    };
    let output = run(
        "echo o > /work/o; sub -- sh -c 'cat /work/o; echo s > /work/s; echo t > /tmp/t; echo w > /window/w; cat /data/inner/w' || exit 9
        sub -- sh -c 'rm -r /work /tmp/t; exit 3' 2>/dev/null; echo $?; cat /work/s /tmp/t /data/inner/w
        sub --only /work -- sh -c 'echo n > /tmp/native; echo u > /work/u; false' 2>/dev/null; ls /tmp /work",
    );
    assert_eq!((code(&output), err(&output).as_str()), (0, ""));
    assert_eq!(out(&output), "o\nw\n3\ns\nt\nw\n/tmp:\nnative\nt\n\n/work:\no\ns\n");
    for (path, text) in [("work/o", "o\n"), ("work/s", "s\n"), ("tmp/t", "t\n"), ("data/inner/w", "w\n")] {
        assert_eq!(std::fs::read_to_string(root.join(path)).unwrap(), text);
    }
    let found = must(
        Command::new("find")
            .args([root.join("tmp"), root.join("work"), root.join(".systx")])
            .args(["-name", "*sub-*"]),
    );
    assert_eq!(found, "");
}

fn what_still_runs_is_undone(dir: &Path) {
    each(dir, SETUP, |w| {
        w.fifos(&["ready"]);
        let said = w.commits(
            "sub -- sh -c 'echo l > left; rm a; echo > $BESIDE/ready; exec sleep 1000' & read x < $BESIDE/ready; echo o > outer",
        );
        assert_eq!((said.as_str(), w.names().join(" ").as_str()), ("", "a dir large outer"));
    });
}

fn what_the_outer_one_has_mounted_is_native(dir: &Path) {
    let Some(w) = World::new(dir, "ext4", SETUP) else { return };
    let said = w.commits(
        "mkdir m; mount -t tmpfs none m; sub -- sh -c 'echo x > m/x; echo y > dir/y; exit 3' 2>/dev/null; echo $?; ls -A m dir; \
        sub -- sh -c 'echo z > dir/z; rm m/x' || exit 9; ls -A m dir",
    );
    assert_eq!(said, "3\ndir:\nb\n\nm:\nx\ndir:\nb\nz\n\nm:\n");
    assert_eq!(w.names(), ["a", "dir", "large", "m"]);
}

fn outside_it_is_an_ordinary_one(dir: &Path) {
    let Some(w) = World::new(dir, "ext4", SETUP) else { return };
    let output = run(&w.tree, &["--sub"], &["sh", "-c", "echo x > x; exit 3"]).output().unwrap();
    assert_eq!(code(&output), 3);
    assert_eq!(err(&output), "systx: aborted, nothing was changed: the command exited with status 3.\n");
    let output = run(&w.tree, &["--sub", "-v"], &["sh", "-c", "echo x > x"]).output().unwrap();
    assert_eq!((code(&output), err(&output).as_str()), (0, "systx: committed: all changes are in place.\n"));
    assert_eq!(w.names(), ["a", "dir", "large", "x"]);
}
