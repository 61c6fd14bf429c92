//! An ordinary user's runs: what `systx run` promises holds without any privilege, for what is his.
//!
//! Every run here is of user 1000 without capabilities, in a user namespace that systx makes. /dev/fuse is a node that everybody
//! may open, as on most systems, in this program's own mount namespace.
//!
//! `cargo test -p systx --test users [-- PART-OF-A-NAME]`

mod machine;

use machine::processes::{children, Held, Stopped};
use machine::user::{open_fuse_to_all, ORDINARY, UNPRIVILEGED, USER};
use machine::volume::Volume;
use machine::{code, err, have, must, out, systx, AREA};
use std::io::Write;
use std::os::unix::fs::{chown, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

fn main() {
    machine::main(&[
        ("all_of_an_ordinary_users_run_or_nothing", all_of_an_ordinary_users_run_or_nothing),
        ("the_command_has_no_privilege_and_its_own_number", the_command_has_no_privilege),
        ("a_setuid_program_stays_the_users", a_setuid_program_stays_the_users),
        ("what_belongs_to_others_stays_as_it_is", what_belongs_to_others_stays_as_it_is),
        ("what_is_forbidden_fails_as_natively_and_nothing_happens", what_is_forbidden_fails_as_natively),
        (
            "a_permission_that_goes_before_the_commit_is_told_and_nothing_happens",
            a_permission_that_goes_is_told,
        ),
        ("a_change_by_a_program_outside_is_a_conflict", a_change_by_a_program_outside_is_a_conflict),
        ("a_change_by_a_transaction_of_root_is_a_conflict", a_change_by_roots_transaction_is_a_conflict),
        ("of_two_runs_of_a_user_one_loses_and_can_try_again", of_two_runs_of_a_user_one_loses),
        ("recover_finishes_what_was_killed_in_mid_commit", recover_finishes_what_was_killed),
        ("the_twin_finishes_what_was_killed_in_mid_commit", the_twin_finishes_what_was_killed),
        ("the_next_run_finishes_what_was_killed_in_mid_commit", the_next_run_finishes_what_was_killed),
        ("recover_finds_an_area_that_is_not_in_the_topmost_directory", an_area_below_the_topmost_directory),
        ("a_directory_moved_before_recovery_costs_no_change", a_directory_moved_before_recovery),
        ("a_commit_over_two_file_systems_is_one", a_commit_over_two_file_systems_is_one),
        ("an_inner_run_joins_the_outer_one", an_inner_run_joins_the_outer_one),
        ("a_transaction_stays_open_over_several_commands", a_transaction_stays_open),
        ("what_is_not_the_users_cannot_be_served", what_is_not_the_users_cannot_be_served),
        ("a_mode_changes_beside_list_entries_of_others", modes_change_beside_entries),
        ("under_another_users_home_nothing_is_made", under_anothers_home_nothing_is_made),
        ("a_forbidden_user_namespace_is_told_with_its_remedy", a_forbidden_user_namespace_is_told),
        (
            "a_capability_of_the_program_file_makes_the_namespace_and_nothing_else",
            a_capability_makes_the_namespace,
        ),
        ("a_device_that_does_not_open_is_told_with_its_remedy", a_device_that_does_not_open_is_told),
        ("doctor_says_what_holds_for_an_ordinary_user", doctor_says_what_holds),
    ]);
}

struct World {
    dir: PathBuf,
    /// The user's directory on a file system of its own; its top is root's.
    own: PathBuf,
    /// What is served.
    tree: PathBuf,
    /// Of the user, and not served.
    beside: PathBuf,
    program: PathBuf,
}

fn world(dir: &Path) -> Option<World> {
    let volume = Volume::new(dir, "ext4", 64)?;
    let own = volume.point.join("user");
    let world = World {
        tree: own.join("tree"),
        own,
        beside: dir.join("beside"),
        program: dir.join("bin/systx"),
        dir: dir.into(),
    };
    for made in [&world.own, &world.tree, &world.beside] {
        std::fs::create_dir(made).unwrap();
        chown(made, Some(USER), Some(USER)).unwrap();
    }
    // Where it was built others may have no way to it.
    std::fs::create_dir(dir.join("bin")).unwrap();
    std::fs::copy(systx(), &world.program).unwrap();
    open_fuse_to_all(dir);
    Some(world)
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("/dev/fuse").status();
    }
}

impl World {
    /// A command of the user's, through these words.
    fn through(&self, wrapper: &[&str], words: &[&str]) -> Command {
        let words: Vec<_> = UNPRIVILEGED.iter().chain(wrapper).chain(words).collect();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).current_dir(&self.tree).stdin(Stdio::null());
        command.env("HOME", &self.beside).env_remove("XDG_STATE_HOME").env("BESIDE", &self.beside);
        command
    }

    fn verb(&self, words: &[&str]) -> Command {
        let program = self.program.to_str().unwrap();
        let all: Vec<_> =
            [program, words[0], "--area-name", AREA].iter().chain(&words[1..]).copied().collect();
        self.through(&[], &all)
    }

    fn run(&self, options: &[&str], script: &str) -> Command {
        let tree = self.tree.to_str().unwrap();
        self.verb(&[&["run", "--only", tree], options, &["--", "sh", "-c", script]].concat())
    }

    fn shell(&self, script: &str) -> Output {
        self.run(&[], script).output().unwrap()
    }

    /// What the user does without a transaction.
    fn plain(&self, script: &str) -> Output {
        self.through(&[], &["sh", "-c", script]).output().unwrap()
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.tree.join(name)).unwrap()
    }

    fn area(&self) -> PathBuf {
        self.own.join(format!("{AREA}-{USER}"))
    }

    /// Names, owners, modes and contents of the tree.
    fn picture(&self) -> String {
        let list = "find . -printf '%P %y %m %U %G %s %T@ %C@ %i %l\\n' | sort; find . -type f | sort | xargs -r cat";
        out(&Command::new("sh").args(["-c", list]).current_dir(&self.tree).output().unwrap())
    }
}

fn all_of_an_ordinary_users_run_or_nothing(dir: &Path) {
    let Some(w) = world(dir) else { return };
    let setup =
        "mkdir old ro; echo one >old/one; echo two >two; chmod 0400 two; seq 100000 >large; ln two link; \
                 echo a >ro/a; chmod 0555 ro";
    assert_eq!(code(&w.plain(setup)), 0);
    let before = w.picture();
    let change =
        "mkdir -p new/deep; echo n >new/deep/n; rm -r old; chmod 0640 two; echo more >>two; ln -s two sym; \
                  mv large grown; echo end >>grown; setfattr -n user.a -v b grown 2>/dev/null; mkfifo pipe; \
                  touch -d @1 new; chmod 0500 new; chmod u+w ro; mv ro/a ro/b; chmod 0500 ro; mv ro moved; \
                  echo none >none; chmod 0 none";
    let failed = w.shell(&format!("{change}; exit 3"));
    assert_eq!(code(&failed), 3, "{}", err(&failed));
    assert_eq!(w.picture(), before);

    let done = w.shell(change);
    assert_eq!((code(&done), err(&done)), (0, String::new()));
    assert_eq!((w.read("two"), w.read("link")), ("two\nmore\n".into(), "two\nmore\n".into()));
    assert_eq!(w.read("new/deep/n"), "n\n");
    assert!(!w.tree.join("old").exists() && !w.tree.join("large").exists());
    let grown = w.read("grown");
    assert!(grown.starts_with("1\n") && grown.ends_with("100000\nend\n"));
    let meta = |name: &str| std::fs::symlink_metadata(w.tree.join(name)).unwrap();
    assert_eq!((meta("new").mode() & 0o7777, meta("new").mtime()), (0o500, 1));
    assert_eq!(meta("two").mode() & 0o7777, 0o640);
    assert_eq!((meta("moved").mode() & 0o7777, w.read("moved/b")), (0o500, "a\n".into()));
    assert_eq!((meta("none").mode() & 0o7777, w.read("none")), (0, "none\n".into()));
    for name in ["none", "moved/b", "new", "new/deep", "new/deep/n", "two", "sym", "grown", "pipe"] {
        assert_eq!((meta(name).uid(), meta(name).gid()), (USER, USER), "{name}");
    }
    let area = std::fs::symlink_metadata(w.area()).unwrap();
    assert_eq!((area.uid(), area.mode() & 0o7777), (USER, 0o700));
    // What the user can't see is not left where root's area would be.
    assert!(!w.own.join(AREA).exists() && !w.own.parent().unwrap().join(AREA).exists());
    assert_eq!(out(&w.verb(&["list"]).output().unwrap()), "");
}

fn the_command_has_no_privilege(dir: &Path) {
    let Some(w) = world(dir) else { return };
    let script = "id -u; id -g; cat /proc/self/uid_map /proc/self/gid_map | tr -s ' '; grep -E 'Cap(Eff|Prm|Inh|Amb)' \
                  /proc/self/status | cut -f2; umount . 2>/dev/null || echo stays; ls -a ..";
    let told = w.shell(script);
    assert_eq!(code(&told), 0, "{}", err(&told));
    let none = "0000000000000000\n".repeat(4);
    let begin = format!("1000\n1000\n 1000 1000 1\n 1000 1000 1\n{none}stays\n");
    assert!(out(&told).starts_with(&begin), "{}", out(&told));
    // With the whole of the user's directory served, the area is not in it.
    let own = w.own.to_str().unwrap();
    let listed = w.verb(&["run", "--only", own, "--", "ls", "-a", own]).output().unwrap();
    assert_eq!(out(&listed), ".\n..\ntree\n", "{}", err(&listed));
}

/// A limit: root is nobody in the user namespace. docs/limits.md.
fn a_setuid_program_stays_the_users(dir: &Path) {
    let Some(w) = world(dir) else { return };
    let id = w.tree.join("id");
    must(Command::new("sh").args(["-c", "cp \"$(command -v id)\" \"$0\" && chmod 4755 \"$0\""]).arg(&id));
    let plain = w.plain("./id -u");
    if out(&plain) != "0\n" {
        println!(
            "skipped: setuid programs get nothing in {}: {}{}",
            w.tree.display(),
            out(&plain),
            err(&plain)
        );
        return;
    }
    let told = w.shell("./id -u; ./id -ru; stat -c %a id");
    assert_eq!((code(&told), out(&told).as_str()), (0, "1000\n1000\n4755\n"), "{}", err(&told));
    assert_eq!(out(&w.plain("./id -u")), "0\n");
}

fn what_belongs_to_others_stays_as_it_is(dir: &Path) {
    let Some(w) = world(dir) else { return };
    for (name, mode, uid) in [("shown", 0o644, 0), ("secret", 0o600, 0), ("open", 0o666, 1001)] {
        std::fs::write(w.tree.join(name), format!("{name}\n")).unwrap();
        std::fs::set_permissions(w.tree.join(name), PermissionsExt::from_mode(mode)).unwrap();
        chown(w.tree.join(name), Some(uid), Some(uid)).unwrap();
    }
    let before = w.picture();
    let tried = "cat shown; cat secret; echo x >shown; echo x >secret; echo x >open; chmod 0777 shown; \
                 touch shown; chown 1000 shown; mv secret mine; rm -f shown; mkdir -p own; echo own >own/file";
    let tried = w.shell(tried);
    assert_eq!((code(&tried), out(&tried)), (0, "shown\n".into()), "{}", err(&tried));
    assert_eq!(w.read("own/file"), "own\n");
    std::fs::remove_dir_all(w.tree.join("own")).unwrap();
    let without_times = |text: &str| -> Vec<String> {
        text.lines().filter(|line| !line.starts_with(" d ")).map(String::from).collect()
    };
    assert_eq!(without_times(&w.picture()), without_times(&before));
}

/// A run that waits, after its first words, for ours.
struct Waiting {
    systx: Child,
    word: std::fs::File,
}

impl Waiting {
    fn begin(w: &World, options: &[&str], before: &str, after: &str) -> Waiting {
        for name in ["here", "word"] {
            let _ = std::fs::remove_file(w.beside.join(name));
            must(Command::new("mkfifo").args(["-m", "666"]).arg(w.beside.join(name)));
        }
        // Open for both: nobody waits for us, and there is no end of file.
        let word = std::fs::OpenOptions::new().read(true).write(true).open(w.beside.join("word")).unwrap();
        let script = format!("{before}; echo here >$BESIDE/here; read word <$BESIDE/word; {after}");
        let mut systx = w.run(options, &script);
        let systx = systx.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        assert_eq!(std::fs::read_to_string(w.beside.join("here")).unwrap(), "here\n");
        Waiting { systx, word }
    }

    fn end(mut self) -> Output {
        self.word.write_all(b"go\n").unwrap();
        self.systx.wait_with_output().unwrap()
    }
}

fn what_is_forbidden_fails_as_natively(dir: &Path) {
    let Some(w) = world(dir) else { return };
    std::fs::write(w.tree.join("not-mine"), "root's\n").unwrap();
    std::fs::create_dir(w.tree.join("not-my-dir")).unwrap();
    std::fs::write(w.tree.join("not-my-dir/in"), "in\n").unwrap();
    // For names and attributes of what is nobody's in his namespace the kernel has another word (docs/limits.md).
    for (script, same_words) in [
        ("echo x > not-mine", true),
        ("echo x >> not-mine", true),
        ("echo x > not-my-dir/new", true),
        ("mkdir not-my-dir/new", true),
        ("ln not-my-dir/in here && echo x > here", false),
        ("mv not-my-dir/in here", false),
        ("rm -f not-my-dir/in", false),
        ("chmod 0666 not-mine", false),
        ("chown 1000 not-mine", false),
        ("touch -d @1 not-mine", false),
    ] {
        let before = w.picture();
        // What was done before goes with it.
        let run = w.shell(&format!("echo mine > mine; {script}"));
        assert_eq!(w.picture(), before, "{script}");
        let native = w.plain(script);
        assert_eq!(w.picture(), before, "{script} is not forbidden");
        assert_ne!(code(&native), 0, "{script} is not forbidden");
        assert_eq!(code(&run), code(&native), "{script}: {}", err(&run));
        let (told, words) = (err(&run), err(&native));
        assert!(told.contains("nothing happened"), "{script}: {told}");
        let overflow = told.contains("Value too large for defined data type");
        assert!(told.starts_with(&words) || (!same_words && overflow), "{script}: {told}natively: {words}");
    }
}

fn a_permission_that_goes_is_told(dir: &Path) {
    let Some(w) = world(dir) else { return };
    // What the user does, what root does then, and where it is told.
    let to_dir = ["chmod 500 d", "chown root d", "chown root:root d; chmod 700 d"];
    let to_file = ["chmod 400 d/f", "chown root d/f", "chown root:root d/f; chmod 600 d/f"];
    let in_dir =
        ["echo new > d/new", "rm d/f", "mv d/f d/g", "mv d/f here", "mkdir -p d/sub/deep", "ln f d/l"];
    let in_file = ["echo more >> d/f", "echo other > d/f", "chmod 640 d/f", "touch -d @1 d/f"];
    let cases = in_dir.iter().flat_map(|ours| to_dir.iter().map(move |roots| (ours, roots, "d")));
    let cases =
        cases.chain(in_file.iter().flat_map(|ours| to_file.iter().map(move |roots| (ours, roots, "d/f"))));
    for (ours, roots, place) in cases {
        let at = format!("{ours}, then {roots}");
        std::fs::remove_dir_all(&w.tree).unwrap();
        std::fs::create_dir(&w.tree).unwrap();
        chown(&w.tree, Some(USER), Some(USER)).unwrap();
        assert_eq!(code(&w.plain("mkdir d; seq 3 > d/f; echo f > f")), 0);
        let run = Waiting::begin(&w, &[], ours, "true");
        must(Command::new("sh").args(["-c", roots]).current_dir(&w.tree));
        let then = w.picture();
        let output = run.end();
        assert!([75, 125].contains(&code(&output)), "{at}: {} {}", code(&output), err(&output));
        assert_eq!(w.picture(), then, "{at}");
        let told = err(&output);
        let path = w.tree.join(place);
        assert!(told.contains("nothing happened") && told.contains(path.to_str().unwrap()), "{at}: {told}");
    }
    assert_eq!(out(&w.verb(&["list"]).output().unwrap()), "");
}

fn a_change_by_a_program_outside_is_a_conflict(dir: &Path) {
    let Some(w) = world(dir) else { return };
    assert_eq!(code(&w.plain("echo 1 >stock")), 0);
    let run = Waiting::begin(&w, &[], "read n <stock", "echo $((n+1)) >next");
    assert_eq!(code(&w.plain("echo 7 >stock")), 0);
    let lost = run.end();
    assert_eq!(code(&lost), 75, "{}", err(&lost));
    assert!(err(&lost).contains("stock: contents changed by a program outside"), "{}", err(&lost));
    assert!(!w.tree.join("next").exists());
}

fn a_change_by_roots_transaction_is_a_conflict(dir: &Path) {
    let Some(w) = world(dir) else { return };
    assert_eq!(code(&w.plain("echo 1 >stock")), 0);
    let run = Waiting::begin(&w, &[], "read n <stock", "echo $((n+1)) >next");
    let root = machine::shell(&w.tree, "echo 7 >stock");
    assert_eq!(code(&root), 0, "{}", err(&root));
    let lost = run.end();
    assert_eq!(code(&lost), 75, "{}", err(&lost));
    assert!(!w.tree.join("next").exists());
    assert_eq!(
        (w.read("stock"), std::fs::metadata(w.tree.join("stock")).unwrap().uid()),
        ("7\n".into(), USER)
    );
}

fn of_two_runs_of_a_user_one_loses(dir: &Path) {
    let Some(w) = world(dir) else { return };
    assert_eq!(code(&w.plain("echo 1 >stock")), 0);
    let add = "n=$(cat stock); echo $((n+1)) >stock";
    let run = Waiting::begin(&w, &[], "n=$(cat stock)", "echo $((n+1)) >stock");
    let other = w.shell(add);
    assert_eq!(code(&other), 0, "{}", err(&other));
    let lost = run.end();
    assert_eq!((code(&lost), w.read("stock")), (75, "2\n".into()), "{}", err(&lost));
    assert!(err(&lost).contains("ransaction") && err(&lost).contains(add), "{}", err(&lost));
    // As many as lose begin again.
    let runs: Vec<_> =
        (0..4).map(|_| w.run(&["--retry", "50"], add).stderr(Stdio::piped()).spawn().unwrap()).collect();
    for run in runs {
        let done = run.wait_with_output().unwrap();
        assert_eq!(code(&done), 0, "{}", err(&done));
    }
    assert_eq!(w.read("stock"), "6\n");
}

const NAMES: usize = 8;
/// New names in a directory that is there, a file changed in place, and one that goes: steps of several kinds.
const SCRIPT: &str =
    "for i in 0 1 2 3 4 5 6 7; do echo new $i >deep/f$i; done; echo in place >>stays; rm goes";

/// A run that stands still with some names published, and some not.
fn in_the_middle(w: &World) -> Option<Stopped> {
    if !have("strace") {
        return None;
    }
    let setup = "rm -rf deep stays goes; mkdir deep; echo old >stays; echo old >goes";
    assert_eq!(code(&w.plain(setup)), 0);
    // The area is made.
    assert_eq!(code(&w.shell("true")), 0);
    for n in 1.. {
        let stopped = Stopped::after(&w.dir, &w.run(&[], SCRIPT), "renameat2", n);
        let stopped = stopped.unwrap_or_else(|o| panic!("never in mid-publication: {}", err(&o)));
        let done = published(w);
        if 0 < done && done < NAMES {
            return Some(stopped);
        }
        assert_eq!(done, 0, "all were published at once");
        let output = stopped.go_on();
        assert_eq!(code(&output), 0, "{}", err(&output));
        assert_eq!(code(&w.plain(setup)), 0);
    }
    None
}

fn published(w: &World) -> usize {
    (0..NAMES).filter(|n| w.tree.join(format!("deep/f{n}")).exists()).count()
}

fn is_whole(w: &World) {
    assert_eq!(published(w), NAMES);
    assert_eq!(w.read("stays"), "old\nin place\n");
    assert!(!w.tree.join("goes").exists());
}

/// Kills the owner of a run, and its twin if it is not to do its work.
fn kill(stopped: Stopped, twin_too: bool) {
    let family = children(stopped.owner.pid);
    if twin_too {
        family.iter().for_each(Held::kill);
    }
    stopped.owner.kill();
    stopped.go_on();
    family.iter().for_each(Held::gone);
}

fn recover_finishes_what_was_killed(dir: &Path) {
    let Some(w) = world(dir) else { return };
    let Some(stopped) = in_the_middle(&w) else { return };
    kill(stopped, true);
    assert!(published(&w) < NAMES);
    let recovered = w.verb(&["recover"]).output().unwrap();
    assert_eq!(code(&recovered), 0, "{}{}", out(&recovered), err(&recovered));
    assert!(out(&recovered).contains(w.own.to_str().unwrap()), "{}", out(&recovered));
    is_whole(&w);
}

fn the_twin_finishes_what_was_killed(dir: &Path) {
    let Some(w) = world(dir) else { return };
    let Some(stopped) = in_the_middle(&w) else { return };
    kill(stopped, false);
    is_whole(&w);
}

fn the_next_run_finishes_what_was_killed(dir: &Path) {
    let Some(w) = world(dir) else { return };
    let Some(stopped) = in_the_middle(&w) else { return };
    kill(stopped, true);
    // Also one that serves another part of what is the user's: the area is the same.
    assert_eq!(code(&w.plain("mkdir ../other")), 0);
    let other = w.own.join("other");
    let next = w.verb(&["run", "--only", other.to_str().unwrap(), "--", "true"]).output().unwrap();
    assert_eq!(code(&next), 0, "{}", err(&next));
    is_whole(&w);
}

fn an_area_below_the_topmost_directory(dir: &Path) {
    let Some(w) = world(dir) else { return };
    let beside = w.own.join("mounted");
    std::fs::create_dir(&beside).unwrap();
    must(Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&beside));
    let Some(stopped) = in_the_middle(&w) else { return };
    kill(stopped, true);
    must(Command::new("umount").arg(&beside));
    assert!(w.tree.join(format!("{AREA}-{USER}")).exists() && !w.area().exists());
    let recovered = w.verb(&["recover"]).output().unwrap();
    assert_eq!(code(&recovered), 0, "{}{}", out(&recovered), err(&recovered));
    is_whole(&w);
}

fn a_directory_moved_before_recovery(dir: &Path) {
    let Some(w) = world(dir) else { return };
    let Some(stopped) = in_the_middle(&w) else { return };
    kill(stopped, true);
    let done = published(&w);
    assert_eq!(code(&w.plain("mv deep moved")), 0);
    let recovered = w.verb(&["recover"]).output().unwrap();
    assert_eq!(out(&recovered).matches("its directory is gone; kept as aside/").count(), NAMES - done);
    let aside = std::fs::read_dir(w.area().join("aside")).unwrap();
    let kept: Vec<_> = aside.map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap()).collect();
    let moved = std::fs::read_dir(w.tree.join("moved")).unwrap().count();
    assert_eq!((moved, kept.len()), (done, NAMES - done), "{kept:?}");
    assert_eq!(w.read("stays"), "old\nin place\n");
    assert!(!w.tree.join("goes").exists());
}

fn a_commit_over_two_file_systems_is_one(dir: &Path) {
    let Some(w) = world(dir) else { return };
    let ram = w.dir.join("ram");
    std::fs::create_dir(&ram).unwrap();
    must(Command::new("mount").args(["-t", "tmpfs", "-o", "uid=1000,gid=1000,mode=700", "none"]).arg(&ram));
    let run = |end: &str| {
        let script = format!("echo a >a; echo b >\"$0\"/b; {end}");
        let (tree, ram) = (w.tree.to_str().unwrap(), ram.to_str().unwrap());
        w.verb(&["run", "--only", tree, "--only", ram, "--", "sh", "-c", &script, ram]).output().unwrap()
    };
    let there = || [w.tree.join("a").exists(), ram.join("b").exists()];
    let failed = run("exit 5");
    assert_eq!((code(&failed), there()), (5, [false, false]), "{}", err(&failed));
    let done = run("true");
    assert_eq!((code(&done), there()), (0, [true, true]), "{}", err(&done));
}

fn a_transaction_stays_open(dir: &Path) {
    let Some(w) = world(dir) else { return };
    let begin = || {
        let begun = w.verb(&["begin", "--json", "--only", "."]).output().unwrap();
        assert_eq!(code(&begun), 0, "{}", err(&begun));
        let value: serde_json::Value = serde_json::from_str(&out(&begun)).unwrap();
        (value["id"].to_string(), Held::new(value["pid"].as_u64().unwrap() as u32).unwrap())
    };
    let (id, keeper) = begin();
    let exec = |script: &str| w.verb(&["exec", &id, "--", "sh", "-c", script]).output().unwrap();
    let told = exec("id -u; grep CapEff /proc/self/status; echo x >x; exit 3");
    assert_eq!((code(&told), out(&told)), (3, "1000\nCapEff:\t0000000000000000\n".into()), "{}", err(&told));
    assert!(!w.tree.join("x").exists());
    assert_eq!(out(&exec("cat x")), "x\n");
    // It is his alone: root has areas of its own.
    let root = machine::verb("commit", &[&id]);
    assert!(code(&root) == 125 && err(&root).contains("is not open"), "{}", err(&root));
    let unknown = w.verb(&["commit", "4711"]).output().unwrap();
    assert!(err(&unknown).contains("Those of other users are theirs alone"), "{}", err(&unknown));
    let committed = w.verb(&["commit", &id]).output().unwrap();
    assert_eq!(code(&committed), 0, "{}", err(&committed));
    assert_eq!(std::fs::metadata(w.tree.join("x")).unwrap().uid(), USER);
    keeper.gone();
    let (id, keeper) = begin();
    let kept = w.verb(&["exec", &id, "--", "sh", "-c", "echo y >y"]).output().unwrap();
    assert_eq!(code(&kept), 0, "{}", err(&kept));
    keeper.kill();
    while w.area().join("open").exists() {
        std::thread::yield_now();
    }
    assert!(!w.tree.join("y").exists());
    let kept = w.run(&["-n"], "echo z >z").output().unwrap();
    assert!(code(&kept) == 0 && err(&kept).contains("stays open until"), "{}", err(&kept));
    let said = err(&kept);
    let id = said.split("transaction ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    assert_eq!(code(&w.verb(&["commit", id]).output().unwrap()), 0);
    assert_eq!(w.read("z"), "z\n");
}

fn an_inner_run_joins_the_outer_one(dir: &Path) {
    let Some(w) = world(dir) else { return };
    let inner = format!("{} run --area-name {AREA} --only . -- sh -c 'echo inner >a'", w.program.display());
    let failed = w.shell(&format!("{inner} && cat a && exit 4"));
    assert_eq!((code(&failed), out(&failed)), (4, "inner\n".into()), "{}", err(&failed));
    assert!(!w.tree.join("a").exists());
}

fn what_is_not_the_users_cannot_be_served(dir: &Path) {
    let Some(w) = world(dir) else { return };
    let refused = |words: &[&str], why: &str| {
        let output = w.verb(words).output().unwrap();
        assert_eq!((code(&output), out(&output)), (125, String::new()), "{words:?}: {}", err(&output));
        assert!(err(&output).contains("nothing happened") && err(&output).contains(why), "{}", err(&output));
    };
    let top = w.own.parent().unwrap().to_str().unwrap();
    refused(&["run", "--only", top, "--", "echo"], "belongs to user 1000: only root can serve it");
    refused(&["run", "--", "echo"], "--only DIR");
    let inside = w.tree.join("inside");
    std::fs::create_dir(&inside).unwrap();
    must(Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&inside));
    refused(&["run", "--only", w.tree.to_str().unwrap(), "--", "echo"], "something is mounted below it");
    // What is mounted beside it is no hindrance.
    let beside = w.own.join("beside");
    std::fs::create_dir(&beside).unwrap();
    chown(&beside, Some(USER), Some(USER)).unwrap();
    let words = [
        "run",
        "--only",
        beside.to_str().unwrap(),
        "--",
        "sh",
        "-c",
        "echo a >$0/a",
        beside.to_str().unwrap(),
    ];
    let done = w.verb(&words).output().unwrap();
    assert_eq!((code(&done), beside.join("a").exists()), (0, true), "{}", err(&done));
    let recovered = w.verb(&["recover"]).output().unwrap();
    assert_eq!(code(&recovered), 0, "{}{}", out(&recovered), err(&recovered));
    must(Command::new("umount").arg(&inside));
}

fn modes_change_beside_entries(dir: &Path) {
    let Some(w) = world(dir) else { return };
    if !have("setfacl") || !have("getfacl") {
        return;
    }
    assert_eq!(
        code(&w.plain("echo a >file; mkdir d; setfacl -m u:1234:rw,g:1235:r file; setfacl -m u:1234:rwx d")),
        0
    );
    let done = w.shell("chmod 0640 file; chmod 0750 d; stat -c %a file d; echo b >>file; mv file d");
    assert_eq!((code(&done), out(&done), err(&done)), (0, "640\n750\n".into(), String::new()));
    let lists = out(&w.plain("getfacl -cn --omit-header --no-effective d d/file"));
    let wanted = "user::rwx\nuser:1234:rwx\ngroup::r-x\nmask::r-x\nother::---\n\n\
                  user::rw-\nuser:1234:rw-\ngroup::r--\ngroup:1235:r--\nmask::r--\nother::---\n\n";
    assert_eq!((lists.as_str(), w.read("d/file").as_str()), (wanted, "a\nb\n"));
    assert_eq!(out(&w.verb(&["list"]).output().unwrap()), "");
}

fn under_anothers_home_nothing_is_made(dir: &Path) {
    let Some(w) = world(dir) else { return };
    let home = w.dir.join("open-to-all");
    std::fs::create_dir(&home).unwrap();
    std::fs::set_permissions(&home, PermissionsExt::from_mode(0o777)).unwrap();
    let done = w.run(&[], "echo a >a").env("HOME", &home).output().unwrap();
    assert_eq!((code(&done), w.read("a")), (0, "a\n".into()), "{}", err(&done));
    assert_eq!(std::fs::read_dir(&home).unwrap().count(), 0);
}

fn a_forbidden_user_namespace_is_told(dir: &Path) {
    let Some(w) = world(dir) else { return };
    // A setting of a user namespace of its own, not the machine's.
    let forbidding = "echo 0 >/proc/sys/user/max_user_namespaces && exec setpriv --inh-caps=-all --ambient-caps=-all -- \"$@\"";
    let wrapper = ["unshare", "--user", "--map-current-user", "--keep-caps", "sh", "-c", forbidding, "sh"];
    let program = w.program.to_str().unwrap();
    let tree = w.tree.to_str().unwrap();
    let run = |words: &[&str]| w.through(&wrapper, words).output().unwrap();
    let refused = run(&[program, "run", "--area-name", AREA, "--only", tree, "--", "echo", "not reached"]);
    assert_eq!((code(&refused), out(&refused)), (125, String::new()), "{}", err(&refused));
    let words = "no user namespaces are allowed here (user.max_user_namespaces). As root: sysctl user.max_user_namespaces=10000";
    assert!(err(&refused).contains(words), "{}", err(&refused));
    assert!(!w.area().exists());
    let doctor = run(&[program, "doctor", "--area-name", AREA]);
    assert_eq!(code(&doctor), 1);
    assert!(out(&doctor).contains(&format!("NO   user namespaces: {words}")), "{}", out(&doctor));
    // At a login of who never used it nothing is said; of who has an area, why it can't be looked at.
    let recover = || run(&[program, "recover", "--quiet", "--area-name", AREA]);
    let nothing = recover();
    assert_eq!((code(&nothing), out(&nothing), err(&nothing)), (0, String::new(), String::new()));
    assert_eq!(code(&w.shell("true")), 0);
    let refused = recover();
    assert_eq!(code(&refused), 125);
    assert!(err(&refused).contains(words), "{}", err(&refused));
}

/// The setting of Debian's kernels that keeps user namespaces for root.
const FOR_ROOT_ONLY: &str = "/proc/sys/kernel/unprivileged_userns_clone";

fn a_capability_makes_the_namespace(dir: &Path) {
    let Some(w) = world(dir) else { return };
    if !have("setcap") {
        println!("skipped: no setcap");
        return;
    }
    // In a place where it counts: on the scratch volume capabilities of files are heeded, on the temporary directory perhaps not.
    let program = w.own.parent().unwrap().join("systx");
    std::fs::copy(systx(), &program).unwrap();
    must(Command::new("setcap").arg("cap_sys_admin+ep").arg(&program));
    let (program, tree) = (program.to_str().unwrap(), w.tree.to_str().unwrap());
    let as_user = |words: &[&str]| {
        let mut command = Command::new(ORDINARY[0]);
        command.args(&ORDINARY[1..]).args(words).current_dir(&w.tree).stdin(Stdio::null());
        command.env("HOME", &w.beside).env_remove("XDG_STATE_HOME").output().unwrap()
    };
    let run = |program: &str, script: &str| {
        as_user(&[program, "run", "--area-name", AREA, "--only", tree, "--", "sh", "-c", script])
    };
    let closed = std::fs::read_to_string(FOR_ROOT_ONLY).is_ok_and(|was| {
        std::fs::write(FOR_ROOT_ONLY, "0").unwrap();
        // The machine's own; put back by the end of this case, also when it fails.
        let answers = std::panic::catch_unwind(|| run(w.program.to_str().unwrap(), "echo not reached >a"));
        let opened = std::panic::catch_unwind(|| run(program, "echo one >one"));
        std::fs::write(FOR_ROOT_ONLY, was.trim()).unwrap();
        let (answers, opened) = (answers.unwrap(), opened.unwrap());
        assert_eq!(code(&answers), 125, "{}", err(&answers));
        assert!(err(&answers).contains("setcap cap_sys_admin+ep"), "{}", err(&answers));
        assert_eq!(code(&opened), 0, "{}", err(&opened));
        assert_eq!(w.read("one"), "one\n");
        true
    });
    if !closed {
        println!("skipped in part: no {FOR_ROOT_ONLY} here to close");
    }
    // Nothing of it for the command, in the namespace or out of it.
    let capabilities = run(program, "grep -E 'Cap(Prm|Eff|Inh|Amb)' /proc/self/status; echo two >two");
    assert_eq!(code(&capabilities), 0, "{}", err(&capabilities));
    let told = out(&capabilities);
    assert_eq!(told.lines().count(), 4, "{told}");
    assert!(told.lines().all(|line| line.ends_with("\t0000000000000000")), "{told}");
    assert_eq!(w.read("two"), "two\n");
    // Verbs that make no namespace, and who is told to run something afterwards.
    for words in [&["list"][..], &["status"], &["log"], &["recover"], &["doctor"]] {
        let answer = as_user(&[&[program, words[0], "--area-name", AREA], &words[1..]].concat());
        assert_eq!(code(&answer), 0, "{words:?}: {}", err(&answer));
    }
    let aborted = run(program, "echo three >two; exit 1");
    assert_eq!((code(&aborted), w.read("two")), (1, "two\n".to_string()), "{}", err(&aborted));
}

fn a_device_that_does_not_open_is_told(dir: &Path) {
    let Some(w) = world(dir) else { return };
    std::fs::set_permissions(w.dir.join("fuse"), PermissionsExt::from_mode(0o600)).unwrap();
    let refused = w.shell("echo not reached");
    assert_eq!((code(&refused), out(&refused)), (125, String::new()), "{}", err(&refused));
    assert!(err(&refused).contains("chmod 0666 /dev/fuse"), "{}", err(&refused));
    let doctor = w.verb(&["doctor"]).output().unwrap();
    assert_eq!(code(&doctor), 1);
    assert!(out(&doctor).contains("NO   FUSE: /dev/fuse: Permission denied"), "{}", out(&doctor));
}

fn doctor_says_what_holds(dir: &Path) {
    let Some(w) = world(dir) else { return };
    assert_eq!(code(&w.shell("true")), 0);
    let doctor = w.verb(&["doctor"]).output().unwrap();
    let text = out(&doctor);
    assert_eq!(code(&doctor), 0, "{text}{}", err(&doctor));
    let own = w.own.display();
    for begin in [
        "weak privilege: user 1000: `systx run --only DIR` serves".to_string(),
        "ok   user namespaces: allowed".into(),
        format!("ok   area on {own}: there, and nobody else can enter it"),
        format!("weak opening by handle on {own}: "),
    ] {
        assert!(text.lines().any(|line| line.starts_with(&begin)), "{begin}\n{text}");
    }
}
