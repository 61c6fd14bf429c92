//! Acts of others meanwhile: signals, kills, edits; and what they see.

use super::place::word::{hear, say};
use super::place::{code, err, out, Place, AREA, SYSTX};
use super::Case;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

pub const ALL: &[(&str, Case)] = &[
    ("nothing_is_seen_before_the_commit", nothing_is_seen_before_the_commit),
    ("an_outsiders_edit_wins_and_stays", an_outsiders_edit_wins_and_stays),
    ("a_limit_on_the_size_of_files_is_the_commands", a_limit_on_the_size_of_files_is_the_commands),
    ("retry_runs_it_again_after_a_conflict", retry_runs_it_again_after_a_conflict),
    ("daemons_do_not_outlive_the_transaction", daemons_do_not_outlive_the_transaction),
    (
        "killing_systx_kills_the_command_and_leaves_no_trace",
        killing_systx_kills_the_command_and_leaves_no_trace,
    ),
    ("a_signal_to_systx_reaches_the_command", a_signal_to_systx_reaches_the_command),
    ("list_names_a_running_transaction", list_names_a_running_transaction),
    ("no_mount_is_left_behind", no_mount_is_left_behind),
];

/// A command that says when it is at its turning point and waits there for our word.
struct Meeting {
    systx: Child,
    word: std::path::PathBuf,
}

/// Shell text for the turning point.
const MEET: &str = "echo here > $BESIDE/here; read word < $BESIDE/word;";

fn meet(p: &Place, options: &[&str], script: &str) -> Meeting {
    let (here, word) = (p.fifo("here"), p.fifo("word"));
    let mut command = p.systx(options, &["sh", "-c", script]);
    let mut systx = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    assert_eq!(hear(&here, &mut systx), "here\n");
    Meeting { systx, word }
}

impl Meeting {
    fn go_on(&mut self) {
        say(&self.word, &mut self.systx, "go");
    }
    fn end(mut self) -> Output {
        self.go_on();
        self.systx.wait_with_output().unwrap()
    }
}

fn nothing_is_seen_before_the_commit(p: &Place) {
    p.write("a", "old\n");
    let before = p.picture();
    let meeting = meet(p, &[], &format!("echo new > a; mkdir d; {MEET}"));
    assert_eq!(p.picture(), before);
    assert_eq!(code(&meeting.end()), 0);
    assert_eq!(p.read("a"), "new\n");
    assert!(p.served.join("d").is_dir());
}

fn an_outsiders_edit_wins_and_stays(p: &Place) {
    p.write("count", "1\n");
    let meeting = meet(p, &[], &format!("read n < count; {MEET} echo $((n + 1)) > count; : > made"));
    p.write("count", "41\n");
    let output = meeting.end();
    assert_eq!(code(&output), 75, "{}", err(&output));
    let text = err(&output);
    assert!(
        text.contains("conflict on") && text.contains("count") && text.contains("nothing was changed"),
        "{text}"
    );
    assert_eq!(p.read("count"), "41\n");
    assert!(!p.served.join("made").exists());
}

fn retry_runs_it_again_after_a_conflict(p: &Place) {
    p.write("count", "1\n");
    let script = format!("read n < count; if [ $n = 1 ]; then {MEET} fi; echo $((n + 1)) > count");
    let meeting = meet(p, &["--retry", "1"], &script);
    p.write("count", "41\n");
    let output = meeting.end();
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert_eq!(p.read("count"), "42\n");
}

fn daemons_do_not_outlive_the_transaction(p: &Place) {
    let alive = p.fifo("alive");
    let mut reader = open_without_waiting(&alive);
    let output =
        p.shell("exec 3> $BESIDE/alive; (setsid sh -c 'trap \"\" TERM HUP; sleep 1000; : > late' &); exit 0");
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert_eq!(reader.read(&mut [0]).unwrap(), 0, "nobody holds the FIFO open");
}

fn killing_systx_kills_the_command_and_leaves_no_trace(p: &Place) {
    p.write("a", "old\n");
    let before = p.picture();
    let alive = p.fifo("alive");
    let script = format!("exec 3> $BESIDE/alive; echo new > a; {MEET}");
    let opener = std::thread::spawn(move || std::fs::File::open(alive).unwrap());
    let mut meeting = meet(p, &[], &script);
    let mut reader = opener.join().unwrap();
    meeting.systx.kill().unwrap();
    meeting.systx.wait().unwrap();
    // Returns when the command and all of its processes are gone.
    assert_eq!(reader.read(&mut [0]).unwrap(), 0);
    assert_eq!(p.picture(), before);
    // The helper process is at it at the same time: the second of the two finds nothing to do, before the
    // first has ended.
    let staging = p.mount.join(AREA).join("tx");
    let swept = (0..1000).any(|_| {
        let recover = Command::new(SYSTX).args(["recover", "--area-name", AREA]).output().unwrap();
        assert_eq!(code(&recover), 0, "{}{}", out(&recover), err(&recover));
        // Sealed directories of committed transactions stay until the log lets go of them.
        !std::fs::read_dir(&staging)
            .unwrap()
            .any(|entry| entry.unwrap().file_name().to_string_lossy().ends_with('~'))
    });
    assert!(swept, "staging of the dead is removed");
}

fn a_limit_on_the_size_of_files_is_the_commands(p: &Place) {
    let limited = |script: &str| {
        let mut systx = Command::new("sh");
        systx.args([
            "-c",
            "ulimit -Sf 8; exec \"$0\" \"$@\"",
            SYSTX,
            "run",
            "--area-name",
            AREA,
            "--only",
            ".",
        ]);
        systx.args(["--", "sh", "-c", script]).current_dir(&p.served).output().unwrap()
    };
    let output = limited("ulimit -Sf; echo x > made");
    assert_eq!((code(&output), out(&output).as_str(), err(&output).as_str()), (0, "8\n", ""));
    assert_eq!(p.read("made"), "x\n");
    let output = limited("exec head -c 100000 /dev/zero > big");
    assert_eq!(code(&output), 128 + 25, "SIGXFSZ ends the command: {}", err(&output));
    assert!(
        err(&output).contains("nothing was changed") && !p.served.join("big").exists(),
        "{}",
        err(&output)
    );
}

fn a_signal_to_systx_reaches_the_command(p: &Place) {
    let script = format!("trap 'exit 9' TERM; {MEET}");
    let meeting = meet(p, &[], &script);
    let pid = meeting.systx.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert_eq!(code(&meeting.systx.wait_with_output().unwrap()), 9);
}

fn list_names_a_running_transaction(p: &Place) {
    let meeting = meet(p, &[], &format!(": > made; {MEET}"));
    let output = Command::new(SYSTX).args(["list", "--json", "--area-name", AREA]).output().unwrap();
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let pid = u64::from(meeting.systx.id());
    let rows = value["transactions"].as_array().unwrap();
    let row = rows.iter().find(|row| row["pid"].as_u64() == Some(pid)).expect("it is in the list");
    assert_eq!((row["state"].as_str(), row["mount"].as_str()), (Some("running"), p.mount.to_str()));
    assert_eq!(code(&meeting.end()), 0);
}

fn no_mount_is_left_behind(p: &Place) {
    let table = || std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let before = table();
    assert_eq!(code(&p.shell("true")), 0);
    assert_eq!(code(&p.shell("false")), 1);
    assert_eq!(table(), before);
}

fn open_without_waiting(path: &Path) -> std::fs::File {
    use std::os::unix::fs::OpenOptionsExt;
    std::fs::OpenOptions::new().read(true).custom_flags(O_NONBLOCK).open(path).unwrap()
}

/// Of fcntl(2), on the architectures that Rust's tier 1 and 2 Linux targets share but mips and sparc.
const O_NONBLOCK: i32 = 0o4000;
