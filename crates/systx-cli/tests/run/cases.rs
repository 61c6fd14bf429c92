//! The environment that a command finds, and what becomes of the command.

use super::place::{code, err, must, out, Place, AREA, SYSTX};
use super::Case;
use std::io::Write;
use std::process::{Command, Stdio};

pub const ALL: &[(&str, Case)] = &[
    ("status_0_commits_and_says_nothing", status_0_commits_and_says_nothing),
    ("failure_leaves_no_trace", failure_leaves_no_trace),
    ("a_directory_that_replaces_another_keeps_its_time", a_directory_that_replaces_another_keeps_its_time),
    (
        "what_many_files_of_an_aborted_command_took_is_given_back",
        what_many_files_of_an_aborted_command_took_is_given_back,
    ),
    ("exit_codes_tell_who_failed", exit_codes_tell_who_failed),
    ("a_failed_commands_changes_are_kept_if_asked_for", a_failed_commands_changes_are_kept_if_asked_for),
    ("a_command_without_end_is_ended_by_its_timeout", a_command_without_end_is_ended_by_its_timeout),
    ("words_arrive_verbatim", words_arrive_verbatim),
    ("standard_streams_are_the_commands", standard_streams_are_the_commands),
    ("the_terminal_is_the_commands", the_terminal_is_the_commands),
    ("the_working_directory_and_umask_stay", the_working_directory_and_umask_stay),
    ("the_processors_of_who_asks_again_and_again_stay", the_processors_of_who_asks_again_and_again_stay),
    ("environment_has_the_transactions_number", environment_has_the_transactions_number),
    ("an_inner_run_joins_the_outer_one", an_inner_run_joins_the_outer_one),
    ("outside_of_only_the_command_runs_natively", outside_of_only_the_command_runs_natively),
    ("each_of_several_only_is_covered", each_of_several_only_is_covered),
    ("json_and_status_fd_tell_the_outcome", json_and_status_fd_tell_the_outcome),
    ("verbose_says_that_it_committed", verbose_says_that_it_committed),
    ("what_was_stored_through_a_mapping_is_committed", what_was_stored_through_a_mapping_is_committed),
    ("a_running_program_can_not_be_written_or_cut", a_running_program_can_not_be_written_or_cut),
];

fn status_0_commits_and_says_nothing(p: &Place) {
    p.write("old", "1\n");
    p.write("gone", "2\n");
    p.write("moved", "3\n");
    p.write("changed", "4\n");
    let script = "echo new > new && mkdir -p d/e && echo deep > d/e/f && rm gone && mv moved there && echo 5 >> changed \
        && chmod 600 old && ln -s old link && ln old hard && cat d/e/f";
    let output = p.shell(script);
    assert_eq!((code(&output), err(&output).as_str(), out(&output).as_str()), (0, "", "deep\n"));
    assert_eq!(
        (p.read("new"), p.read("d/e/f"), p.read("there")),
        ("new\n".into(), "deep\n".into(), "3\n".into())
    );
    assert_eq!(p.read("changed"), "4\n5\n");
    assert!(!p.served.join("gone").exists() && !p.served.join("moved").exists());
    let meta = std::fs::metadata(p.served.join("old")).unwrap();
    use std::os::unix::fs::MetadataExt;
    assert_eq!((meta.mode() & 0o7777, meta.nlink()), (0o600, 2));
    assert_eq!(std::fs::read_link(p.served.join("link")).unwrap().to_str(), Some("old"));
}

fn failure_leaves_no_trace(p: &Place) {
    p.write("a", "1\n");
    p.write("b", "2\n");
    std::fs::create_dir(p.served.join("d")).unwrap();
    let before = p.picture();
    let output = p.shell("echo x > a; rm b; mv d e; echo y > e/new; mkdir n; chmod 700 .; exit 3");
    assert_eq!(code(&output), 3);
    assert_eq!(err(&output), "systx: aborted, nothing was changed: the command exited with status 3.\n");
    assert_eq!(p.picture(), before);
}

/// xfs moves the time of a directory that is exchanged for one of another directory.
fn a_directory_that_replaces_another_keeps_its_time(p: &Place) {
    for name in ["taken", "taken-too", "old"] {
        std::fs::create_dir(p.served.join(name)).unwrap();
    }
    let script = "mkdir new && touch -d @300000000 new old && mv -T new taken && mv -T old taken-too";
    let output = p.shell(script);
    assert_eq!((code(&output), err(&output).as_str()), (0, ""));
    for name in ["taken", "taken-too"] {
        let meta = std::fs::metadata(p.served.join(name)).unwrap();
        assert_eq!(std::os::unix::fs::MetadataExt::mtime(&meta), 300_000_000, "{name}");
    }
}

fn exit_codes_tell_who_failed(p: &Place) {
    assert_eq!(code(&p.shell("exit 0")), 0);
    assert_eq!(code(&p.shell("exit 75")), 75);
    assert_eq!(code(&p.shell("kill -TERM $$")), 128 + 15);
    let run = |word: &str| p.systx(&[], &[word]).output().unwrap();
    let missing = run("no-such-command");
    assert_eq!(code(&missing), 127);
    assert_eq!(
        err(&missing),
        "systx: aborted, nothing was changed: no-such-command: command not found; check its name, and PATH.\n"
    );
    p.write("data", "");
    assert_eq!(code(&run("./data")), 126);
    let ours = Command::new(SYSTX).args(["run", "--only", "/no/such/directory", "true"]).output().unwrap();
    assert_eq!(code(&ours), 125);
    let told = "systx: aborted, nothing was changed: --only /no/such/directory: No such file or directory; name a directory that is there.\n";
    assert_eq!(err(&ours), told);
    assert_eq!(code(&Command::new(SYSTX).args(["run"]).output().unwrap()), 125);
}

fn a_failed_commands_changes_are_kept_if_asked_for(p: &Place) {
    let run = |script: &str| p.systx(&["--on-error", "commit"], &["sh", "-c", script]).output().unwrap();
    let output = run("echo kept > kept; exit 3");
    assert_eq!((code(&output), p.read("kept").as_str()), (3, "kept\n"));
    assert!(err(&output).contains("committed, as was asked for, though"), "{}", err(&output));
    let output = run("echo lost > lost; kill -KILL $$");
    assert_eq!(code(&output), 128 + 9, "{}", err(&output));
    assert!(!p.served.join("lost").exists());
}

fn a_command_without_end_is_ended_by_its_timeout(p: &Place) {
    // The command's background process, too, which has a session of its own and ignores what can be ignored.
    let script = "echo x > x; trap '' TERM HUP; setsid sh -c 'trap \"\" TERM; while :; do read x; done < $BESIDE/never' & \
        while :; do read x; done < $BESIDE/never";
    p.fifo("never");
    let output = p.systx(&["--timeout", "0.2"], &["sh", "-c", script]).output().unwrap();
    assert_eq!(code(&output), 124, "{}", err(&output));
    assert!(
        err(&output).contains("aborted, nothing was changed: the command had not ended after 0.2 s."),
        "{}",
        err(&output)
    );
    assert!(!p.served.join("x").exists());
    // A command that ends in time is not touched.
    assert_eq!(code(&p.systx(&["--timeout", "1d"], &["true"]).output().unwrap()), 0);
}

/// No process waits for it: it may take a moment longer than the command.
fn what_many_files_of_an_aborted_command_took_is_given_back(p: &Place) {
    p.write("old", "1\n");
    let before = p.picture();
    assert_eq!(code(&p.shell("true")), 0);
    let area = p.mount.join(AREA);
    // Staged objects are in `tx`, or in a shared staging directory with their token.
    let staged = || {
        let shared_stagings = std::fs::read_dir(&area).unwrap().map(|entry| entry.unwrap().path());
        let shared_stagings = shared_stagings
            .filter(|path| path.file_name().unwrap().as_encoded_bytes().starts_with(b"slots."));
        let names =
            |dir: std::path::PathBuf| std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
        let all = shared_stagings.chain([area.join("tx")]).flat_map(names);
        all.filter(|name| name != "token").collect::<Vec<_>>()
    };
    let others = staged();
    // Slots of their own; one tree in one slot.
    for name in ["$i", "new/$i"] {
        let script = format!("rm old; mkdir new; for i in $(seq 1500); do : > {name}; done; exit 3");
        assert_eq!(
            p.systx(&[], &["sh", "-c", &script]).stderr(Stdio::null()).status().unwrap().code(),
            Some(3)
        );
        assert_eq!(p.picture(), before);
        while staged().iter().any(|name| !others.contains(name)) {
            std::thread::yield_now();
        }
    }
    // The next one finds nothing to be made good.
    let next = p.shell("echo 2 > new");
    assert_eq!((code(&next), err(&next).as_str(), p.read("new").as_str()), (0, "", "2\n"));
}

fn words_arrive_verbatim(p: &Place) {
    let words = ["printf", "<%s>", "a b", "", "\"q'", "$HOME", "*", "--", "-v", "\u{e4}\n"];
    let output = p.systx(&[], &words).output().unwrap();
    assert_eq!(out(&output), "<a b><><\"q'><$HOME><*><--><-v><\u{e4}\n>");
}

fn standard_streams_are_the_commands(p: &Place) {
    let mut child = p
        .systx(&[], &["sh", "-c", "cat; echo e >&2"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"through\n").unwrap();
    // Returns at the end of both streams: neither systx nor its helper keeps them.
    let output = child.wait_with_output().unwrap();
    assert_eq!((out(&output).as_str(), err(&output).as_str()), ("through\n", "e\n"));
}

fn the_terminal_is_the_commands(p: &Place) {
    let inner = format!(
        "{SYSTX} run --area-name {AREA} --only {} -- sh -c 'test -t 0 && : > /dev/tty && tty'",
        p.served.display()
    );
    match Command::new("script").args(["-qec", &inner, "/dev/null"]).stdin(Stdio::null()).output() {
        Ok(output) => {
            assert_eq!(code(&output), 0, "{}", out(&output));
            assert!(out(&output).contains("/dev/pts/"), "{}", out(&output));
        }
        Err(e) => println!("skipped: script(1) can't be run: {e}"),
    }
}

fn the_working_directory_and_umask_stay(p: &Place) {
    std::fs::create_dir(p.served.join("sub")).unwrap();
    let script =
        format!("umask 037; {SYSTX} run --area-name {AREA} --only .. -- sh -c 'umask; pwd; : > made'");
    let output = Command::new("sh").args(["-c", &script]).current_dir(p.served.join("sub")).output().unwrap();
    assert_eq!(out(&output), format!("0037\n{}/sub\n", p.served.display()), "{}", err(&output));
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(p.served.join("sub/made")).unwrap());
    assert_eq!(mode & 0o777, 0o640);
}

/// It is woken on the dispatcher's CPU; nothing of that may stay.
fn the_processors_of_who_asks_again_and_again_stay(p: &Place) {
    let before = std::fs::read_to_string("/proc/self/status").unwrap();
    let before = before.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:\t")).unwrap();
    // Redirections and read are the shell's own: all these requests are of one thread.
    let mask =
        "mask() { while read -r key value; do case $key in Cpus_allowed_list:) echo $value; esac; done; }; ";
    let ask = "i=0; while [ $i -lt 300 ]; do : > f$i; i=$((i + 1)); done; ";
    // It can have been looked at before the dispatcher came to give it back.
    let look = "until [ \"$(mask < /proc/$$/status)\" = \"$WANT\" ]; do :; done; echo given back";
    let mut systx = p.systx(&[], &["sh", "-c", &[mask, ask, look].concat()]);
    let output = systx.env("WANT", before).output().unwrap();
    assert_eq!((out(&output).as_str(), code(&output)), ("given back\n", 0), "{}", err(&output));
}

fn environment_has_the_transactions_number(p: &Place) {
    let output = p.systx(&[], &["sh", "-c", "echo $SYSTX_ID:$ODD"]).env("ODD", "a b").output().unwrap();
    let text = out(&output);
    let (id, odd) = text.trim().split_once(':').unwrap();
    assert!(id.parse::<u64>().is_ok_and(|id| id > 0) && odd == "a b", "{text}");
}

fn an_inner_run_joins_the_outer_one(p: &Place) {
    let output = p.shell(&format!("{SYSTX} run -- sh -c 'echo inner > i'; cat i; exit 4"));
    assert_eq!((code(&output), out(&output).as_str()), (4, "inner\n"));
    assert!(!p.served.join("i").exists(), "the inner one commits nothing by itself");
}

/// Of one file system, two of them: none is native, and each is named.
fn each_of_several_only_is_covered(p: &Place) {
    for dir in ["a", "b", "c", "c/in"] {
        std::fs::create_dir(p.served.join(dir)).unwrap();
        p.write(&format!("{dir}/x"), dir);
    }
    // The third one is of another file system.
    let other = p.beside.join("served");
    std::fs::create_dir(&other).unwrap();
    must(Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&other));
    let _mounted = Unmounted(&other);
    std::fs::write(other.join("x"), "other").unwrap();
    let run = |script: &str| {
        let mut systx = Command::new(SYSTX);
        systx.args(["run", "-v", "--area-name", AREA]);
        for dir in ["a", "b", "c/in", "c"] {
            systx.arg("--only").arg(p.served.join(dir));
        }
        systx.arg("--only").arg(&other).args(["--", "sh", "-c", script]).env("OTHER", &other);
        systx.current_dir(&p.served).output().unwrap()
    };
    let all = "set -e; cat a/x b/x c/x c/in/x $OTHER/x; rm a/x b/x c/x c/in/x $OTHER/x; : >a/y; : >b/y; mv c/in c/out";
    let failed = run(&format!("{all}; exit 3"));
    assert_eq!((code(&failed), out(&failed).as_str()), (3, "abcc/inother"), "{}", err(&failed));
    let dir = |name: &str| p.served.join(name).canonicalize().unwrap().display().to_string();
    let named = format!("systx: served: {}, {}, {}, ", dir("a"), dir("b"), dir("c"));
    assert!(err(&failed).contains(&named) && err(&failed).contains("runs natively."), "{}", err(&failed));
    for name in ["a/x", "b/x", "c/x", "c/in/x"] {
        assert!(p.served.join(name).exists(), "{name} was removed natively");
    }
    assert!(other.join("x").exists() && !p.served.join("a/y").exists() && !p.served.join("b/y").exists());
    let done = run(all);
    assert_eq!(code(&done), 0, "{}", err(&done));
    for (name, is_there) in [("a/x", false), ("b/x", false), ("a/y", true), ("b/y", true), ("c/out", true)] {
        assert_eq!(p.served.join(name).exists(), is_there, "{name}");
    }
    let alone = p.systx(&["-v"], &["true"]).output().unwrap();
    assert!(!err(&alone).contains("served:"), "{}", err(&alone));
}

/// A mount point, unmounted on drop.
struct Unmounted<'a>(&'a std::path::Path);

impl Drop for Unmounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

fn outside_of_only_the_command_runs_natively(p: &Place) {
    let output = p.shell("echo kept > $BESIDE/kept; echo lost > lost; exit 1");
    assert_eq!(code(&output), 1);
    assert_eq!(std::fs::read_to_string(p.beside.join("kept")).unwrap(), "kept\n");
    assert!(!p.served.join("lost").exists());
}

fn json_and_status_fd_tell_the_outcome(p: &Place) {
    let output = p.systx(&["--json"], &["sh", "-c", ": > made"]).output().unwrap();
    let value: serde_json::Value = serde_json::from_str(&err(&output)).unwrap();
    assert_eq!((value["outcome"].as_str(), value["status"].as_u64()), (Some("committed"), Some(0)));
    let script = format!(
        "{SYSTX} run --area-name {AREA} --only . --status-fd 7 -- sh -c '(: >&7) 2>/dev/null && echo leaked; exit 75' 7>status 2>/dev/null"
    );
    let output = Command::new("sh").args(["-c", &script]).current_dir(&p.served).output().unwrap();
    assert_eq!((code(&output), out(&output).as_str()), (75, ""));
    let value: serde_json::Value = serde_json::from_str(&p.read("status")).unwrap();
    assert_eq!((value["outcome"].as_str(), value["exit"].as_u64()), (Some("aborted"), Some(75)));
}

fn verbose_says_that_it_committed(p: &Place) {
    let output = p.systx(&["-v"], &["sh", "-c", "mkdir made"]).output().unwrap();
    assert_eq!(err(&output), "systx: committed: all changes are in place.\n");
    let output = p.systx(&["-v"], &["ls"]).output().unwrap();
    assert_eq!(
        (out(&output).as_str(), err(&output).as_str()),
        ("made\n", "systx: committed; there was nothing to change.\n")
    );
}

fn what_was_stored_through_a_mapping_is_committed(p: &Place) {
    let script = "import mmap\nf = open('m', 'w+b')\nf.truncate(8192)\nm = mmap.mmap(f.fileno(), 8192)\nm[5000:5004] = b'here'\nimport os\nos._exit(0)";
    if Command::new("python3").arg("-V").output().is_err() {
        println!("skipped: no python3 to make a shared mapping with");
        return;
    }
    let output = p.systx(&[], &["python3", "-c", script]).output().unwrap();
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert_eq!(&std::fs::read(p.served.join("m")).unwrap()[5000..5004], b"here");
}

fn a_running_program_can_not_be_written_or_cut(p: &Place) {
    // O_RDONLY | O_TRUNC is the one that the kernel asks the view for before it looks itself.
    let script = "import errno, os, shutil, subprocess
shutil.copy(shutil.which('cat'), 'program')
size = os.stat('program').st_size
child = subprocess.Popen(['./program'], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
for flags in os.O_WRONLY, os.O_RDWR | os.O_TRUNC, os.O_RDONLY | os.O_TRUNC:
    try:
        os.open('program', flags)
        raise SystemExit('opened with %o' % flags)
    except OSError as e:
        assert e.errno == errno.ETXTBSY, e
assert child.communicate(b'alive')[0] == b'alive' and child.returncode == 0, child.returncode
assert os.stat('program').st_size == size
";
    if Command::new("python3").arg("-V").output().is_err() {
        println!("skipped: no python3 to open a file with O_RDONLY | O_TRUNC");
        return;
    }
    let output = p.systx(&[], &["python3", "-c", script]).output().unwrap();
    assert_eq!(code(&output), 0, "{}", err(&output));
}
