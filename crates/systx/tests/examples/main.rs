//! The examples, as programs: raced, and killed.
//!
//! `cargo test -p systx --test examples [-- PART-OF-A-NAME]`. Needs root, for file systems of its own.

mod graph_server;
mod trees;

use std::io::Write;
use std::os::unix::fs::{symlink, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use systx_runner::{self as runner, kill_after, Case, Ends, Tried};

/// An example that `cargo test` has built beside this program.
fn example(name: &str) -> Command {
    let tests = std::env::current_exe().unwrap();
    let built = tests.parent().and_then(Path::parent).unwrap().join("examples").join(name);
    assert!(built.exists(), "{}: built by `cargo test -p systx`", built.display());
    Command::new(built)
}

fn said(output: Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A command that gets a text on standard input.
fn fed(command: &mut Command, text: &str) -> Child {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    child
}

/// A file system of its own, in memory.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        let dir = std::env::temp_dir().join(format!("systx-examples-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=64m", "examples"]).arg(&dir).status();
        assert!(mounted.unwrap().success());
        Scratch(dir)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
        let _ = std::fs::remove_dir(&self.0);
    }
}

fn numbers(text: &str) -> Vec<u64> {
    text.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect()
}

/// An instant in a run that takes so long, or after it.
fn an_instant(takes: Duration) -> Duration {
    takes.mul_f64(2.0 * fastrand::f64())
}

fn toctou(dir: &Path) {
    let (file, own, link) = (dir.join("report"), dir.join("own"), dir.join("link"));
    std::fs::write(dir.join("shadow"), "secret").unwrap();
    std::fs::write(&file, "harmless").unwrap();
    let over = AtomicBool::new(false);
    let run = |how: &str, times: &str| {
        let told = said(example("toctou").arg(how).arg(&file).arg(times).output().unwrap());
        numbers(&told)
    };
    std::thread::scope(|scope| {
        // The attacker: the name is now a harmless file, and now a link to what only root may read.
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                symlink(dir.join("shadow"), &link).unwrap();
                std::fs::rename(&link, &file).unwrap();
                std::fs::write(&own, "harmless").unwrap();
                std::fs::rename(&own, &file).unwrap();
            }
        });
        let ends = Ends(&over);
        // The attack works: plainly it hits in the end.
        let hit = (0..100).any(|_| run("plain", "20000")[2] > 0);
        let counted = run("systx", "2000");
        drop(ends);
        assert!(hit, "the attack is one");
        let [served, refused, hits] = counted[..] else { panic!("{counted:?}") };
        assert_eq!((served + refused, hits), (2000, 0));
    });
    // Where there is no attack, all are served.
    std::fs::write(&own, "harmless").unwrap();
    std::fs::rename(&own, &file).unwrap();
    assert_eq!(run("systx", "10"), [10, 0, 0]);
}

fn maildir(dir: &Path) {
    let mailbox = dir.join("mail");
    for part in ["new", "cur"] {
        std::fs::create_dir_all(mailbox.join(part)).unwrap();
    }
    let count = 12;
    let names: Vec<_> = (0..count).map(|n| format!("message-{n}")).collect();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for half in names.chunks(count / 2) {
            let (mailbox, ends) = (&mailbox, Ends(&over));
            scope.spawn(move || {
                for name in half {
                    let deliver = fed(example("maildir").arg("deliver").arg(mailbox).arg(name), "text\n");
                    said(deliver.wait_with_output().unwrap());
                    for flag in ["S", "R", "F"] {
                        said(
                            example("maildir").arg("flag").arg(mailbox).args([name, flag]).output().unwrap(),
                        );
                    }
                }
                // The reader goes on until it has seen all of them.
                std::mem::forget(ends);
            });
        }
        let reader = scope.spawn(|| {
            let mut most = 0;
            while !over.load(Ordering::Relaxed) {
                let told = said(example("maildir").arg("list").arg(&mailbox).output().unwrap());
                let mut seen: Vec<_> =
                    told.lines().map(|line| line[4..].split(':').next().unwrap()).collect();
                let all = seen.len();
                seen.sort_unstable();
                seen.dedup();
                assert_eq!(seen.len(), all, "a message twice: {told}");
                assert!(all >= most, "a message was gone for a while: {told}");
                most = all;
                if most == count {
                    break;
                }
            }
        });
        reader.join().unwrap();
    });
    let told = said(example("maildir").arg("list").arg(&mailbox).output().unwrap());
    let flagged = told.lines().filter(|line| line.starts_with("cur/") && line.ends_with(":2,FRS")).count();
    assert_eq!(flagged, count, "{told}");
}

fn tempfile(dir: &Path) {
    let texts: Vec<_> = (0..8).map(|n| format!("{n}").repeat(5000)).collect();
    let all: Vec<_> = texts.iter().map(|text| fed(example("tempfile").arg(dir).arg("t"), text)).collect();
    let mut paths: Vec<_> = all.into_iter().map(|child| said(child.wait_with_output().unwrap())).collect();
    for (path, text) in paths.iter().zip(&texts) {
        assert_eq!(std::fs::read_to_string(path.trim_end()).unwrap(), *text);
        assert_eq!(std::fs::metadata(path.trim_end()).unwrap().mode() & 0o777, 0o600);
    }
    paths.sort_unstable();
    paths.dedup();
    assert_eq!(paths.len(), texts.len(), "each has a name of its own");
    assert!(paths.iter().all(|path| numbers(path.rsplit('.').next().unwrap())[0] < texts.len() as u64));
}

fn editor(dir: &Path) {
    let (file, link) = (dir.join("text"), dir.join("link"));
    let text = |word: &str| format!("{word}\n").repeat(100_000);
    std::fs::write(&file, text("old")).unwrap();
    std::fs::hard_link(&file, &link).unwrap();
    let before = std::fs::metadata(&file).unwrap();
    let systx = systx::Systx::new().unwrap();
    let mut seen = [0; 2];
    let began = Instant::now();
    said(example("editor").arg(&file).args(["neither", "nor"]).output().unwrap());
    let takes = began.elapsed();
    for round in 0..300 {
        if round >= 20 && !seen.contains(&0) {
            break;
        }
        let words = if round % 2 == 0 { ["old", "new"] } else { ["new", "old"] };
        let mut child = example("editor").arg(&file).args(words).stdout(Stdio::piped()).spawn().unwrap();
        // Killed somewhere on its way, or when it is through.
        kill_after(&mut child, an_instant(takes));
        // The next use finishes what it has left.
        let now = systx.atomically(&systx::Options::new(), |tx| tx.read_to_string(&file)).unwrap();
        let whole = words.map(|word| now == text(word));
        assert!(whole.contains(&true), "neither old nor new: round {round}");
        seen[usize::from(whole[1])] += 1;
        said(example("editor").arg(&file).args(words).output().unwrap());
        assert_eq!(std::fs::read_to_string(&link).unwrap(), text(words[1]));
    }
    let after = std::fs::metadata(&file).unwrap();
    assert_eq!((after.ino(), after.nlink()), (before.ino(), before.nlink()), "it is the same file");
    assert!(!seen.contains(&0), "the old text {} times, the new one {} times", seen[0], seen[1]);
}

fn tokio(dir: &Path) {
    let file = dir.join("number");
    std::fs::write(&file, "0\n").unwrap();
    assert_eq!(said(example("tokio").arg(&file).args(["6", "20"]).output().unwrap()), "120\n");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "120\n");
}

fn transfer(dir: &Path) {
    let (a, b) = (dir.join("a"), dir.join("b"));
    std::fs::write(&a, "100\n").unwrap();
    std::fs::write(&b, "0\n").unwrap();
    let moves: Vec<_> =
        (0..8).map(|_| example("transfer").args([&a, &b]).arg("5").spawn().unwrap()).collect();
    for mut one in moves {
        assert!(one.wait().unwrap().success());
    }
    assert!(!example("transfer").args([&a, &b]).arg("61").stderr(Stdio::null()).status().unwrap().success());
    let now = [&a, &b].map(|file| std::fs::read_to_string(file).unwrap());
    assert_eq!(now, ["60\n", "40\n"]);
}

/// The loop that is in the example for comparison.
fn serial_loop(dir: &Path) {
    let files = ["a", "b"].map(|name| dir.join(name));
    files.iter().for_each(|file| std::fs::write(file, "one two").unwrap());
    for how in ["serial", "2"] {
        said(example("parallel").arg(how).arg(dir.join(how)).args(&files).output().unwrap());
    }
    let [serial, parallel] = ["serial", "2"].map(|how| std::fs::read_to_string(dir.join(how)).unwrap());
    assert!(serial == parallel && serial.lines().count() == 2, "{serial}{parallel}");
}

/// A case, in a file system of its own.
type Body = fn(&Path);

fn main() {
    // A systx that is installed on this machine is not what is tested.
    std::env::set_var("SYSTX_WATCHER", "off");
    runner::in_a_mount_namespace();
    let cases: [(&str, Body); 13] = [
        ("a_checked_file_is_the_one_that_is_opened", toctou),
        ("a_reader_of_a_mailbox_sees_each_message_once", maildir),
        ("each_gets_a_file_of_its_own", tempfile),
        ("tasks_of_an_async_program_lose_no_update", tokio),
        ("transfers_of_many_processes_keep_the_sum", transfer),
        ("a_graph_server_that_is_killed_answers_as_a_serial_one", graph_server::killed),
        ("a_graph_with_aborted_requests_is_that_of_a_serial_loop", graph_server::aborted),
        ("a_replica_that_catches_up_in_parallel_has_the_same_state", graph_server::replica),
        ("a_loop_in_parallel_writes_what_a_serial_one_does", |dir| trees::parallel(dir, &example)),
        ("the_serial_loop_writes_the_same", serial_loop),
        ("a_subtree_is_moved_beside_readers_who_never_see_half", |dir| trees::ldif(dir, &example)),
        ("files_are_checked_in_together_or_not_at_all", |dir| trees::check(dir, &example)),
        ("an_editor_that_is_killed_leaves_the_old_text_or_the_new_one", editor),
    ];
    let cases = cases.map(|(name, case)| {
        Case::new(name, move || {
            fastrand::seed(runner::seed());
            let scratch = Scratch::new();
            case(&scratch.0);
            Tried::Passed
        })
    });
    runner::run(cases.into(), || ());
}
