//! While it is open.

use super::alone::place::{word::hear, *};
use super::alone::Case;
use super::{all, begin, nobody_is_kept, systx};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

pub const ALL: &[(&str, Case)] = &[
    ("what_several_commands_do_takes_effect_at_once", what_several_commands_do_takes_effect_at_once),
    ("begin_prints_the_number_and_holds_nothing_open", begin_prints_the_number),
    ("one_whose_directory_has_moved_stays_open", one_whose_directory_has_moved),
    ("one_on_a_mount_that_is_read_only_now_is_listed", one_on_a_mount_that_is_read_only_now),
    ("labels_that_decide_are_told_of_at_each_commit", labels_that_decide_are_told_of),
    ("a_command_inside_keeps_what_is_its_callers", a_command_inside_keeps_what_is_its_callers),
    ("several_commands_run_at_the_same_time_and_are_listed", several_commands_run_at_the_same_time),
    ("what_a_command_leaves_behind_goes_on_until_the_end", what_a_command_leaves_behind_goes_on),
    ("diff_tells_in_every_form_and_changes_nothing", diff_tells_in_every_form),
    ("diff_tells_what_was_stored_through_a_mapping", diff_tells_what_was_stored_through_a_mapping),
    ("a_number_that_is_not_open_is_told_with_those_that_are", a_number_that_is_not_open_is_told),
    ("inside_of_one_there_is_no_other", inside_of_one_there_is_no_other),
];

fn what_several_commands_do_takes_effect_at_once(p: &Place) {
    p.write("old", "1\n");
    let before = p.picture();
    let open = begin(p, &[]);
    assert_eq!(all(&open.shell("echo new > new; mkdir d")), (0, String::new(), String::new()));
    assert_eq!(all(&open.shell("mv new d; cat d/new; rm old; exit 3")), (3, "new\n".into(), String::new()));
    assert_eq!(p.picture(), before, "nobody outside sees it");
    assert_eq!(all(&open.verb("commit", &[])), (0, String::new(), String::new()));
    assert_eq!((p.read("d/new").as_str(), p.served.join("old").exists()), ("new\n", false));
    open.daemon.gone();
    nobody_is_kept(p);
    let open = begin(p, &[]);
    open.shell("rm -r d; echo other > other");
    let before = p.picture();
    let aborted = all(&open.verb("abort", &["--verbose"]));
    assert_eq!(aborted, (0, String::new(), "systx: aborted, nothing was changed.\n".into()));
    assert_eq!(p.picture(), before);
    open.daemon.gone();
    nobody_is_kept(p);
}

fn begin_prints_the_number(p: &Place) {
    // Returns at the end of both streams: neither the session daemon nor its helper nor pid 1 keeps them.
    let begun = systx(p, "begin", &["--only", "."]).output().unwrap();
    let (code, id, said) = all(&begun);
    assert!(code == 0 && said.is_empty() && id.trim().parse::<u64>().is_ok_and(|id| id > 0), "{id}{said}");
    let ended = systx(p, "commit", &["--json", id.trim()]).output().unwrap();
    let value: serde_json::Value = serde_json::from_str(&err(&ended)).unwrap();
    assert_eq!((value["outcome"].as_str(), value["id"].to_string().as_str()), (Some("committed"), id.trim()));
    // A `begin` that can't print the number has begun nothing.
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let begun = systx(p, "begin", &["--only", "."]).stdout(full).output().unwrap();
    assert!(err(&begun).contains("nothing is begun: its number could not be printed"), "{}", err(&begun));
    assert_eq!(all(&begun).0, 125);
    let nowhere = systx(p, "begin", &["--only", "nowhere"]).output().unwrap();
    assert_eq!((all(&nowhere).0, out(&nowhere).as_str()), (125, ""));
    assert!(err(&nowhere).contains("--only nowhere: No such file or directory"), "{}", err(&nowhere));
}

/// A commit that fails leaves it as it is, so it must be possible to serve it again.
fn one_whose_directory_has_moved(p: &Place) {
    let open = begin(p, &[]);
    open.shell("echo new > new");
    let away = p.served.with_file_name("away");
    std::fs::rename(&p.served, &away).unwrap();
    let (code, said, why) = all(&open.command("commit", &[]).current_dir(&away).output().unwrap());
    assert_eq!((code, said.as_str()), (125, ""), "{why}");
    assert!(why.contains("it has been moved or removed; put it back, and commit then"), "{why}");
    std::fs::rename(&away, &p.served).unwrap();
    assert_eq!(all(&open.verb("commit", &[])), (0, String::new(), String::new()));
    assert_eq!(p.read("new"), "new\n");
    open.daemon.gone();
}

fn one_on_a_mount_that_is_read_only_now(p: &Place) {
    let open = begin(p, &[]);
    open.shell("echo new > new");
    must(Command::new("mount").args(["-o", "remount,bind,ro"]).arg(&p.mount));
    let (code, listed, why) = all(&systx(p, "list", &[]).output().unwrap());
    assert_eq!((code, why.as_str()), (0, ""));
    let row = listed.lines().find(|line| line.starts_with(&open.id)).unwrap_or_default();
    assert!(row.contains("open") && row.ends_with("mounted read-only"), "{listed}");
    must(Command::new("mount").args(["-o", "remount,bind,rw"]).arg(&p.mount));
    assert_eq!(all(&open.verb("commit", &[])), (0, String::new(), String::new()));
    assert_eq!(p.read("new"), "new\n");
    open.daemon.gone();
}

/// A tmpfs over /sys/fs says that SELinux enforces its policy.
fn labels_that_decide_are_told_of(p: &Place) {
    let machine = Path::new("/sys/fs");
    let run =
        |script: &str| err(&systx(p, "run", &["--only", ".", "--", "sh", "-c", script]).output().unwrap());
    assert!(!run("echo 1 > new").contains("SELinux"));
    must(Command::new("mount").args(["-t", "tmpfs", "selinux"]).arg(machine));
    std::fs::create_dir(machine.join("selinux")).unwrap();
    let enforces = |value: &str| std::fs::write(machine.join("selinux/enforce"), value).unwrap();
    enforces("1");
    let told = run("echo 2 > new");
    enforces("0");
    let permissive = run("echo 3 > new");
    must(Command::new("umount").arg(machine));
    assert!(
        told.contains("SELinux: new files have the label of systx's area; run restorecon on them"),
        "{told}"
    );
    assert!(!permissive.contains("SELinux"), "{permissive}");
    assert_eq!(p.read("new"), "3\n");
}

fn must(command: &mut Command) {
    assert!(command.status().unwrap().success(), "{command:?}");
}

fn a_command_inside_keeps_what_is_its_callers(p: &Place) {
    let open = begin(p, &[]);
    std::fs::create_dir(p.served.join("sub")).unwrap();
    let script = "cat; echo e >&2; pwd; umask; echo $ODD:$SYSTX_ID; id -u; exit 7";
    let mut child = std::process::Command::new("sh")
        .args([
            "-c",
            &format!("umask 037; exec {SYSTX} exec --area-name {AREA} {} -- sh -c '{script}'", open.id),
        ])
        .current_dir(p.served.join("sub"))
        .env("ODD", "a b")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"through\n").unwrap();
    let told = all(&child.wait_with_output().unwrap());
    let said = format!("through\n{}/sub\n0037\na b:{}\n0\n", p.served.display(), open.id);
    assert_eq!(told, (7, said, "e\n".into()));
    // SIGPIPE and SIGCHLD are as they were.
    let told = open.shell("grep SigIgn /proc/self/status");
    let native = std::process::Command::new("grep").args(["SigIgn", "/proc/self/status"]).output().unwrap();
    assert_eq!(out(&told), out(&native));
    let killed = open.shell("kill -TERM $$");
    assert_eq!(all(&killed), (143, String::new(), String::new()));
    let missing = open.verb("exec", &["--", "no-such-command"]);
    assert_eq!(
        all(&missing),
        (127, String::new(), "systx: no-such-command: command not found; check its name, and PATH.\n".into())
    );
    assert_eq!(open.verb("exec", &["--", "/dev/null"]).status.code(), Some(126));
    // Without a command, the user's shell.
    let shell = open.command("exec", &[]).env("SHELL", "/bin/pwd").output().unwrap();
    assert_eq!(out(&shell), format!("{}\n", p.served.display()));
}

fn several_commands_run_at_the_same_time(p: &Place) {
    let open = begin(p, &[]);
    let mut one = open.waiting(1, "echo 1 > one;", "cat two");
    let mut other = open.waiting(2, "echo 2 > two; cat one >> two;", "exit 4");
    let told = out(&systx(p, "list", &[]).output().unwrap());
    assert!(told.contains(&format!("{}  open  pid {}  ", open.id, open.daemon.pid)), "{told}");
    for child in [&one, &other] {
        assert!(told.contains(&format!("  inside: pid {}, for ", child.id())), "{told}");
    }
    let told = out(&systx(p, "status", &[&open.id]).output().unwrap());
    assert!(told.contains(": open, pid ") && told.contains(", by user 0\n  inside: pid "), "{told}");
    let told = out(&systx(p, "list", &["--json"]).output().unwrap());
    let value: serde_json::Value = serde_json::from_str(&told).unwrap();
    let row = value["transactions"]
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["id"].as_u64() == open.id.parse().ok());
    let row = row.unwrap();
    assert_eq!((row["state"].as_str(), row["open"]["inside"].as_array().unwrap().len()), (Some("open"), 2));
    open.say(2, &mut other);
    assert_eq!(other.wait().unwrap().code(), Some(4));
    // A command that has ended is listed no more.
    let inside = |told: &str| told.matches("  inside: ").count();
    while inside(&out(&systx(p, "list", &[]).output().unwrap())) != 1 {
        std::thread::yield_now();
    }
    open.say(1, &mut one);
    assert_eq!(one.wait().unwrap().code(), Some(0));
    assert_eq!(open.verb("commit", &[]).status.code(), Some(0));
    assert_eq!(p.read("two"), "2\n1\n");
}

fn what_a_command_leaves_behind_goes_on(p: &Place) {
    let open = begin(p, &[]);
    let told = p.fifo("told");
    let word = p.fifo("word");
    // With a session of its own, like a daemon.
    let script =
        "setsid sh -c 'read word < $BESIDE/word; echo $word > late; echo done > $BESIDE/told; sleep 1000' \
        > /dev/null 2>&1 < /dev/null &";
    assert_eq!(all(&open.shell(script)), (0, String::new(), String::new()));
    std::fs::write(word, "hello\n").unwrap();
    assert_eq!(std::fs::read_to_string(told).unwrap(), "done\n");
    assert_eq!(out(&open.shell("cat late")), "hello\n");
    // With 1000 s to go it is killed.
    assert_eq!(open.verb("commit", &[]).status.code(), Some(0));
    assert_eq!(p.read("late"), "hello\n");
}

fn diff_tells_in_every_form(p: &Place) {
    p.write("text", "one\n");
    p.write("moved", "m\n");
    let open = begin(p, &[]);
    assert_eq!(all(&open.verb("diff", &[])), (0, String::new(), String::new()));
    open.shell("echo two >> text; mv moved there; echo n > new; chmod 600 new");
    let at = p.served.display();
    let lines = format!("A\t{at}/new\nM\t{at}/text\nR100\t{at}/moved\t{at}/there\n");
    let told = all(&open.verb("diff", &[]));
    assert_eq!((told.0, sorted(&told.1), told.2), (0, sorted(&lines), String::new()));
    let stat = out(&open.verb("diff", &["--stat"]));
    assert!(stat.contains("text") && stat.contains("2 insertions(+)"), "{stat}");
    let patch = out(&open.verb("diff", &["-p"]));
    assert!(patch.contains("+two\n") && patch.contains("rename to "), "{patch}");
    let value: serde_json::Value = serde_json::from_str(&out(&open.verb("diff", &["--json"]))).unwrap();
    assert_eq!(value["changes"].as_array().map(Vec::len), Some(3));
    // It goes on as before, also for who was inside meanwhile.
    let mut child = open.waiting(1, "exec 3>>text;", "echo three >&3");
    assert_eq!(sorted(&out(&open.verb("diff", &[]))), sorted(&lines));
    open.say(1, &mut child);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(open.verb("commit", &[]).status.code(), Some(0));
    assert_eq!((p.read("text").as_str(), p.read("there").as_str()), ("one\ntwo\nthree\n", "m\n"));
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    lines
}

fn diff_tells_what_was_stored_through_a_mapping(p: &Place) {
    if std::process::Command::new("python3").arg("--version").output().is_err() {
        println!("skipped: no python3");
        return;
    }
    p.write("mapped", &"a".repeat(8192));
    let open = begin(p, &[]);
    let store = "python3 -c \"import mmap; f = open('mapped', 'r+b'); m = mmap.mmap(f.fileno(), 0); m[0:3] = b'xyz'; \
        open('$BESIDE/here1', 'w').write('here\\n'); open('$BESIDE/word1').read()\"; exit 0;";
    let here = p.fifo("here1");
    p.fifo("word1");
    let mut child = open.command("exec", &["--", "sh", "-c", store]).spawn().unwrap();
    assert_eq!(hear(&here, &mut child), "here\n");
    let patch = out(&open.verb("diff", &["-p"]));
    assert!(patch.contains("+xyzaaa"), "{patch}");
    open.say(1, &mut child);
    child.wait().unwrap();
    assert_eq!(open.verb("commit", &[]).status.code(), Some(0));
    assert!(p.read("mapped").starts_with("xyza"));
}

fn a_number_that_is_not_open_is_told(p: &Place) {
    let told = |id: &str, verb: &str, words: &[&str]| {
        all(&systx(p, verb, &[&[id], words].concat()).output().unwrap())
    };
    let none = told("4711", "commit", &[]);
    assert_eq!(none.0, 125);
    assert_eq!(
        none.2,
        "systx: transaction 4711 is not open: it has ended, or never was; none is open; `systx begin` begins one.\n"
    );
    let (one, other) = (begin(p, &[]), begin(p, &[]));
    for (verb, words) in [("exec", &["--", "true"][..]), ("diff", &[]), ("commit", &[]), ("abort", &[])] {
        let (code, _, said) = told("4711", verb, words);
        let open = format!("never was; open are {}, {}.", one.id, other.id);
        assert!(code == 125 && said.contains(&open), "{verb}: {said}");
    }
    assert_eq!(one.verb("commit", &[]).status.code(), Some(0));
    let (code, _, said) = told(&one.id, "exec", &["--", "true"]);
    assert!(code == 125 && said.contains(&format!("open is {}.", other.id)), "{said}");
    // A run by itself is open to no other command.
    let meeting = super::alone::meet(p, 1, &[], &["sh", "-c", &super::alone::turn(1)]);
    let id = systx(p, "list", &[]).output().unwrap();
    let row = out(&id);
    let row = row.lines().find(|line| line.contains("  running  ")).unwrap();
    let (code, _, said) = told(row.split(' ').next().unwrap(), "commit", &[]);
    assert!(
        code == 125
            && said.contains(" runs (pid ")
            && said.contains("but is not open, or not any more; open is "),
        "{said}"
    );
    meeting.end();
    let wrong = systx(p, "commit", &["--pid", "1", &other.id]).output().unwrap();
    assert_eq!(all(&wrong).0, 125);
}

fn inside_of_one_there_is_no_other(p: &Place) {
    let open = begin(p, &[]);
    let told = open.shell(&format!("{SYSTX} begin"));
    assert!(all(&told).0 == 125 && err(&told).contains("inside of a transaction already"), "{}", err(&told));
    let told = open.shell(&format!("{SYSTX} commit $SYSTX_ID"));
    assert!(all(&told).0 == 125 && err(&told).contains("do it outside of it"), "{}", err(&told));
    for option in ["-n", "--on-error=keep"] {
        let told = open.shell(&format!("{SYSTX} run {option} -- true"));
        assert!(all(&told).0 == 125 && err(&told).contains("part of another one"), "{}", err(&told));
    }
    // An inner run joins.
    assert_eq!(open.shell(&format!("{SYSTX} run -- sh -c 'echo inner > inner'")).status.code(), Some(0));
    assert!(!p.served.join("inner").exists());
    assert_eq!(out(&open.shell("cat inner")), "inner\n");
}
