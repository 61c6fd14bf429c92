//! File systems that lack what systx wants of them: without fine time stamps contents are compared by hash,
//! and nothing of an outsider's is lost; what can't be served is refused, or read-only inside, and its kind
//! is named.
//!
//! `cargo test -p systx-cli --test poor_file_systems [-- PART-OF-A-NAME]`

mod machine;

use machine::picture::{difference, picture};
use machine::volume::Volume;
use machine::word::{hear, say};
use machine::{code, err, must, out, run, shell, verb};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

fn main() {
    machine::main(&[
        ("with_coarse_stamps_a_run_commits", with_coarse_stamps_a_run_commits),
        (
            "with_coarse_stamps_an_edit_that_leaves_no_trace_is_a_conflict",
            an_edit_without_trace_is_a_conflict,
        ),
        ("doctor_says_that_stamps_are_coarse", doctor_says_that_stamps_are_coarse),
        ("where_no_file_can_be_long_what_was_committed_is_redone", where_no_file_can_be_long),
        ("with_directories_in_inodes_what_was_committed_is_redone", with_directories_in_inodes_it_is_redone),
        (
            "without_extents_bytes_behind_a_hole_are_committed",
            without_extents_bytes_behind_a_hole_are_committed,
        ),
        ("an_overlay_that_is_named_is_refused", an_overlay_that_is_named_is_refused),
        ("an_overlay_in_the_whole_tree_is_read_only_and_named", an_overlay_in_the_whole_tree_is_read_only),
    ]);
}

/// A directory where stamps are whole seconds.
fn coarse(dir: &Path) -> Option<PathBuf> {
    let served = Volume::new(dir, "ext4-128", 64)?.point.join("tree");
    std::fs::create_dir(&served).unwrap();
    std::fs::write(served.join("count"), "1\n").unwrap();
    assert_eq!(std::fs::metadata(served.join("count")).unwrap().ctime_nsec(), 0, "stamps are fine");
    Some(served)
}

/// A file system made as ext3 allocates nothing at 2 TiB, and says that it can't even look there.
fn where_no_file_can_be_long(dir: &Path) {
    let Some(volume) = Volume::new(dir, "ext3", 128) else { return };
    let served = volume.point.join("tree");
    std::fs::create_dir(&served).unwrap();
    must(Command::new("sync").arg("-f").arg(&served));
    for n in ["1", "2"] {
        let output = shell(&served, &format!("echo {n} >> count"));
        assert_eq!((code(&output), err(&output)), (0, String::new()));
    }
    let Some(switch) = volume.switch() else { return };
    switch.off();
    volume.boot();
    let output = verb("recover", &[]);
    assert_eq!(code(&output), 0, "{}{}", out(&output), err(&output));
    assert_eq!(std::fs::read_to_string(served.join("count")).unwrap(), "1\n2\n", "{}", out(&output));
}

/// After a mount the kernel finds none of them by its handle.
fn with_directories_in_inodes_it_is_redone(dir: &Path) {
    let Some(volume) = Volume::new(dir, "ext4-inline-data", 64) else { return };
    // Seldom the helper process is faster than the switch.
    for round in 0..3 {
        let served = volume.point.join(format!("tree{round}"));
        std::fs::create_dir_all(served.join("d/e")).unwrap();
        std::fs::write(served.join("moved"), "moved\n").unwrap();
        std::fs::write(served.join("d/e/patched"), "old\n").unwrap();
        std::fs::write(served.join("d/removed"), "removed\n").unwrap();
        must(Command::new("sync").arg("-f").arg(&served));
        let Some(switch) = volume.switch() else { return };
        let script =
            "mv moved d/e; echo new > d/e/new; printf new | dd of=d/e/patched conv=notrunc status=none; \
            rm d/removed; chmod 700 d/e; mkdir d/f";
        let output = shell(&served, script);
        assert_eq!((code(&output), err(&output)), (0, String::new()));
        let committed = picture(&served);
        switch.off();
        volume.boot();
        let output = verb("recover", &[]);
        let text = format!("{}{}", out(&output), err(&output));
        assert!(code(&output) == 0 && !text.contains("displaced"), "{text}");
        let after = picture(&served);
        assert!(after == committed, "{text}{}", difference(&after, &committed));
    }
}

/// There the kernel takes what is not on the disk yet for a part of the hole before it.
fn without_extents_bytes_behind_a_hole_are_committed(dir: &Path) {
    let Some(volume) = Volume::new(dir, "ext4-no-extents", 64) else { return };
    let served = volume.point.join("tree");
    std::fs::create_dir(&served).unwrap();
    let sparse = |end: &str| [b"begin".as_slice(), &[0; 1_000_000], end.as_bytes()].concat();
    std::fs::write(served.join("grows"), "begin").unwrap();
    // Just written by another program, and to be copied before it is changed.
    let theirs = std::fs::File::create(served.join("theirs")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&theirs, b"begin", 0).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&theirs, b"theirs", 1_000_005).unwrap();
    for durability in ["durable", "none"] {
        let script = "truncate -s 1000005 grows; printf end >> grows; printf more >> theirs; \
            truncate -s 5 new; printf begin > new; truncate -s 1000005 new; printf end >> new";
        let words = ["sh", "-c", script];
        let output = run(&served, &["--durability", durability], &words).output().unwrap();
        assert_eq!((code(&output), err(&output)), (0, String::new()));
        let read = |name: &str| std::fs::read(served.join(name)).unwrap();
        assert!(read("grows") == sparse("end"), "{durability}: behind a hole in a file that grows");
        assert!(read("new") == sparse("end"), "{durability}: behind a hole in a new file");
        assert!(read("theirs").starts_with(&sparse("theirsmore")), "{durability}: of another program");
        std::fs::write(served.join("grows"), "begin").unwrap();
    }
}

fn with_coarse_stamps_a_run_commits(dir: &Path) {
    let Some(served) = coarse(dir) else { return };
    std::fs::write(served.join("large"), vec![b'x'; 300_000]).unwrap();
    // No other process is there, so there is no conflict, however often two changes fall into one second.
    for n in 1..=10 {
        let output = shell(
            &served,
            "read n < count; echo $((n + 1)) > count; echo $n >> large; mkdir -p d; ls > d/$n",
        );
        assert_eq!((code(&output), err(&output)), (0, String::new()));
        assert_eq!(std::fs::read_to_string(served.join("count")).unwrap(), format!("{}\n", n + 1));
    }
    let large = std::fs::read(served.join("large")).unwrap();
    assert_eq!(&large[300_000..], b"1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n");
    assert_eq!(std::fs::read_dir(served.join("d")).unwrap().count(), 10);
    let before = picture(&served);
    let failed = shell(&served, "echo 0 > count; rm -r d; : > large; exit 3");
    let after = picture(&served);
    assert!(code(&failed) == 3 && after == before, "{}{}", err(&failed), difference(&after, &before));
}

/// A run that waits, after its first words, for ours.
struct Waiting {
    systx: Child,
    word: PathBuf,
}

impl Waiting {
    fn begin(dir: &Path, served: &Path, before: &str, after: &str) -> Waiting {
        let [here, word] = ["here", "word"].map(|name| dir.join(name));
        for fifo in [&here, &word] {
            let _ = std::fs::remove_file(fifo);
            must(Command::new("mkfifo").arg(fifo));
        }
        let script = format!("{before}; echo here > $HERE; read word < $WORD; {after}");
        let mut systx = run(served, &[], &["sh", "-c", &script]);
        let mut systx = systx.env("HERE", &here).env("WORD", &word).stderr(Stdio::piped()).spawn().unwrap();
        assert_eq!(hear(&here, &mut systx), "here\n");
        Waiting { systx, word }
    }

    fn end(mut self) -> Output {
        say(&self.word, &mut self.systx, "go");
        self.systx.wait_with_output().unwrap()
    }
}

/// Returns what shows a change without reading.
fn stamps(path: &Path) -> (u64, u64, [i64; 4]) {
    let meta = std::fs::metadata(path).unwrap();
    let times = [meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec()];
    (meta.ino(), meta.size(), times)
}

fn an_edit_without_trace_is_a_conflict(dir: &Path) {
    let Some(served) = coarse(dir) else { return };
    let count = served.join("count");
    let mut without_trace = 0;
    for _ in 0..50 {
        std::fs::write(&count, "1\n").unwrap();
        let before = stamps(&count);
        let run =
            Waiting::begin(dir, &served, "read n < count", "echo $((n + 1)) > next; echo $((n + 1)) > count");
        // With the old length, in place, and with the time of before.
        let at = std::fs::metadata(&count).unwrap().modified().unwrap();
        let mut file = std::fs::OpenOptions::new().write(true).open(&count).unwrap();
        file.write_all(b"7\n").unwrap();
        file.set_modified(at).unwrap();
        drop(file);
        // The change time can't be set back: it is the same if no second has begun.
        without_trace += usize::from(stamps(&count) == before);
        let lost = run.end();
        assert_eq!(code(&lost), 75, "{}", err(&lost));
        assert!(
            err(&lost).contains("count: contents may have changed by a program outside"),
            "{}",
            err(&lost)
        );
        assert_eq!(std::fs::read_to_string(&count).unwrap(), "7\n");
        assert!(!served.join("next").exists());
        if without_trace == 3 {
            return;
        }
    }
    println!("{without_trace} edits of 50 left no trace");
    assert!(without_trace > 0, "every edit was in another second");
}

fn doctor_says_that_stamps_are_coarse(dir: &Path) {
    let Some(served) = coarse(dir) else { return };
    assert_eq!(code(&shell(&served, "true")), 0);
    let text = out(&verb("doctor", &[]));
    let begin = format!(
        "weak multigrain stamps on {}: none: contents are compared by hash",
        served.parent().unwrap().display()
    );
    assert!(text.lines().any(|line| line.starts_with(&begin)), "{begin}\n{text}");
}

/// A mounted overlay, below a directory on an ext4; `None`, with a reason printed, where it can't be had.
fn overlay(dir: &Path) -> Option<PathBuf> {
    let volume = Volume::new(dir, "ext4", 64)?;
    let [lower, upper, work, tree] = ["lower", "upper", "work", "tree"].map(|name| volume.point.join(name));
    for made in [&lower, &upper, &work, &tree] {
        std::fs::create_dir(made).unwrap();
    }
    let point = tree.join("over");
    std::fs::create_dir(&point).unwrap();
    std::fs::write(lower.join("f"), "lower\n").unwrap();
    let paths = [("lowerdir", &lower), ("upperdir", &upper), ("workdir", &work)];
    let options: Vec<_> = paths.iter().map(|(name, path)| format!("{name}={}", path.display())).collect();
    let mounted =
        Command::new("mount").args(["-t", "overlay", "-o", &options.join(","), "none"]).arg(&point).output();
    match mounted {
        Ok(output) if output.status.success() => Some(point),
        Ok(output) => {
            println!("skipped: no overlay can be mounted: {}", err(&output));
            None
        }
        Err(e) => {
            println!("skipped: no mount: {e}");
            None
        }
    }
}

fn an_overlay_that_is_named_is_refused(dir: &Path) {
    let Some(point) = overlay(dir) else { return };
    let output = shell(&point, "echo x > x; echo reached");
    assert_eq!((code(&output), out(&output)), (125, String::new()), "{}", err(&output));
    let told = err(&output);
    assert!(told.contains("it is on overlay") && told.contains("nothing was changed"), "{told}");
    assert!(told.contains(point.to_str().unwrap()), "{told}");
    assert!(!point.join("x").exists());
}

fn an_overlay_in_the_whole_tree_is_read_only(dir: &Path) {
    let Some(point) = overlay(dir) else { return };
    let tree = point.parent().unwrap();
    let before = picture(&point);
    let script = "cat over/f; (echo x > over/f) 2>/dev/null && echo stored; (mkdir over/d) 2>/dev/null && echo stored; echo y > y";
    let output = run(tree, &["--verbose"], &["sh", "-c", script]).output().unwrap();
    assert_eq!((code(&output), out(&output)), (0, "lower\n".to_string()), "{}", err(&output));
    let told = err(&output);
    assert!(
        told.lines()
            .any(|line| line.contains("overlay can't be served") && line.contains(point.to_str().unwrap())),
        "{told}"
    );
    assert_eq!(std::fs::read_to_string(tree.join("y")).unwrap(), "y\n");
    let after = picture(&point);
    assert!(after == before, "{}", difference(&after, &before));
}
