//! Where there is no room, no permission, no descriptor, no memory; and objects of odd kinds and names.

use super::machine::picture::{difference, picture};
use super::machine::processes::traced;
use super::machine::volume::{Quota, Volume};
use super::machine::{code, err, have, must, out, run, shell, verb};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use super::world::*;
use super::Case;

pub const ALL: &[(&str, Case)] = &[
    ("a_full_disk_aborts_and_says_so", a_full_disk_aborts_and_says_so),
    ("a_run_begins_without_a_free_block", a_run_begins_without_a_free_block),
    ("a_run_begins_where_shared_blocks_cant_be_tried", a_run_begins_where_shared_blocks_cant_be_tried),
    ("a_read_only_file_system_is_refused", a_read_only_file_system_is_refused),
    ("an_immutable_file_aborts_before_the_commit_point", an_immutable_file_aborts_before_the_commit_point),
    ("too_few_descriptors_are_told", too_few_descriptors_are_told),
    ("a_quota_met_by_the_command_is_told_to_it", a_quota_met_by_the_command_is_told_to_it),
    ("a_quota_met_at_the_commit_aborts_it", a_quota_met_at_the_commit_aborts_it),
    ("a_full_owners_file_is_told", a_full_owners_file_is_told),
    ("a_fifo_without_reader_does_not_hold_up_a_commit", a_fifo_without_reader_does_not_hold_up_a_commit),
    ("a_path_of_4095_bytes_commits", a_path_of_4095_bytes_commits),
    (
        "a_handle_for_which_there_is_no_memory_is_opened_a_moment_later",
        a_handle_for_which_there_is_no_memory_is_opened_a_moment_later,
    ),
];

fn a_full_disk_aborts_and_says_so(dir: &Path) {
    let Some(w) = world(dir, 96) else { return };
    let before = picture(&w.served);
    // The command learns of it from the call that fails, and may ignore it; a commit is refused where space
    // lacks then.
    let told = shell(&w.served, "echo kept >> a; dd if=/dev/zero of=big bs=1M count=200 2>/dev/null");
    assert_eq!((code(&told), picture(&w.served) == before), (1, true), "{}", err(&told));
    assert!(err(&told).contains("nothing was changed"), "{}", err(&told));
    w.works();
    // Now full before it begins, by another file.
    let filler = w.volume.point.join("filler");
    let _ = must(Command::new("sh").args(["-c", "cat /dev/zero > \"$0\" 2>/dev/null || true"]).arg(&filler));
    let before = picture(&w.served);
    // A call that takes space fails in the command itself, and nothing of it stays.
    let output = shell(&w.served, "echo three > a && head -c 3000000 /dev/urandom > d/new");
    assert_eq!((code(&output), picture(&w.served) == before), (1, true), "{}", err(&output));
    let words = ["No space left", "nothing was changed"];
    assert!(words.iter().all(|word| err(&output).contains(word)), "{}", err(&output));
    // A lack of space that is found at the commit is refused before the commit point.
    for script in ["echo three > a", "echo three > a; mv d e"] {
        w.refused(&shell(&w.served, script), &before, &["No space left"]);
    }
    // A small new file is in a record, for which there is room.
    let output = shell(&w.served, "echo new > d/new");
    assert_eq!((code(&output), err(&output).as_str()), (0, ""));
    assert_eq!(std::fs::read_to_string(w.served.join("d/new")).unwrap(), "new\n");
    std::fs::remove_file(filler).unwrap();
    w.works();
}

/// Not one block is free, for root neither. What takes away commits, or says that there is no room and changes nothing.
fn a_run_begins_without_a_free_block(dir: &Path) {
    let Some(w) = world(dir, 64) else { return };
    std::fs::write(w.served.join("d/below"), "below\n").unwrap();
    if !take_every_block(&w.volume) {
        return;
    }
    let output = shell(&w.served, "cat a; ls d");
    assert_eq!((code(&output), out(&output).as_str(), err(&output).as_str()), (0, "two\nbelow\n", ""));
    let mut committed = 0;
    for script in ["rm d/below", "rm -r d", "mv a e", "chmod 600 b", "echo new > new", "rm b", "rm -rf ./*"] {
        let before = picture(&w.served);
        let output = shell(&w.served, script);
        let text = err(&output);
        assert!(!text.contains("probing"), "{script}: {text}");
        match code(&output) {
            0 => committed += usize::from(picture(&w.served) != before),
            1 | 2 | 125 => {
                assert!(
                    text.contains("No space left") && text.contains("nothing was changed"),
                    "{script}: {text}"
                );
                let after = picture(&w.served);
                assert!(after == before, "{script}: {}", difference(&after, &before));
            }
            other => panic!("{script}: {other}: {text}"),
        }
    }
    println!("without a free block: {committed} of 7 changes");
    std::fs::remove_file(w.volume.point.join("filler")).unwrap();
    std::fs::write(w.served.join("a"), "one\n").unwrap();
    w.works();
}

/// A run tests for shared blocks by writing one, which no other part of its beginning does.
fn a_run_begins_where_shared_blocks_cant_be_tried(dir: &Path) {
    if !have("strace") {
        return;
    }
    let Some(w) = Volume::new(dir, "xfs", 320).and_then(world_on) else { return };
    let trace = dir.join("trace");
    for error in ["ENOSPC", "EDQUOT"] {
        let inject = format!("inject=pwrite64:error={error}:when=1");
        let command = run(&w.served, &[], &["cat", "a"]);
        let output =
            traced(&command, &["-o", trace.to_str().unwrap(), "-e", &inject], "pwrite64").output().unwrap();
        assert_eq!((code(&output), out(&output).as_str(), err(&output).as_str()), (0, "two\n", ""));
        let failed = std::fs::read_to_string(&trace).unwrap();
        let failed = failed.lines().find(|line| line.contains("(INJECTED)")).expect("one call fails");
        assert!(failed.contains("4096, 0) = -1"), "another call: {failed}");
    }
    w.works();
}

/// Takes also what is set aside for root and for the file system itself; false, with a reason printed, where
/// it can't be had.
fn take_every_block(volume: &Volume) -> bool {
    let script = "dev=$(findmnt -no SOURCE $POINT) && echo 0 > /sys/fs/ext4/${dev##*/}/reserved_clusters || exit 1; \
        cat /dev/zero > $POINT/filler 2>/dev/null; sync -f $POINT; \
        while dd if=/dev/zero of=$POINT/filler oflag=append,direct conv=notrunc bs=4096 count=1 status=none 2>/dev/null || \
        dd if=/dev/zero of=$POINT/filler oflag=append,direct conv=notrunc bs=1024 count=1 status=none 2>/dev/null; do :; done; \
        sync -f $POINT; stat -f -c %f $POINT";
    let told = Command::new("sh").args(["-c", script]).env("POINT", &volume.point).output().unwrap();
    let full = told.status.success() && out(&told).trim() == "0";
    if !full {
        println!("skipped: blocks are left: {}{}", out(&told), err(&told));
    }
    full
}

fn a_read_only_file_system_is_refused(dir: &Path) {
    let Some(w) = world(dir, 64) else { return };
    must(Command::new("mount").args(["-o", "remount,ro"]).arg(&w.volume.point));
    let before = picture(&w.served);
    let output = shell(&w.served, "echo three > a");
    w.refused(&output, &before, &["read-only", "Read-only"]);
    let told = out(&verb("recover", &[]));
    let point = w.volume.point.to_string_lossy().into_owned();
    assert!(told.lines().any(|line| line.contains(&point) && line.contains("read-only")), "{told}");
    must(Command::new("mount").args(["-o", "remount,rw"]).arg(&w.volume.point));
    w.works();
}

fn an_immutable_file_aborts_before_the_commit_point(dir: &Path) {
    let Some(w) = world(dir, 64) else { return };
    if !have("chattr") {
        return;
    }
    for (change, script) in [
        ("contents", "echo three > a"),
        ("name", "rm a"),
        ("rename", "mv a d/a"),
        ("mode", "chmod 600 a"),
        ("link", "ln a d/link"),
    ] {
        let before = picture(&w.served);
        must(Command::new("chattr").arg("+i").arg(w.served.join("a")));
        let output = shell(&w.served, &format!("echo other > d/other; {script}"));
        let after = picture(&w.served);
        must(Command::new("chattr").arg("-i").arg(w.served.join("a")));
        // Either the command's call failed already, as it would natively, or the commit was refused.
        assert_ne!(code(&output), 0, "{change} of an immutable file");
        assert!(err(&output).contains("nothing was changed"), "{change}: {}", err(&output));
        assert!(after == before, "{change}: {}", difference(&after, &before));
        w.works();
    }
}

fn too_few_descriptors_are_told(dir: &Path) {
    let Some(w) = world(dir, 64) else { return };
    let inner =
        run(&w.served, &[], &["sh", "-c", "for f in 1 2 3 4 5 6 7 8 9; do echo $f > d/$f; done; echo x > a"]);
    let mut seen = [0, 0];
    for limit in [3, 5, 8, 10, 12, 14, 16, 18, 20, 24, 28, 32, 40, 64] {
        let before = picture(&w.served);
        let mut sh = Command::new("sh");
        sh.args(["-c", "ulimit -n $0 && exec \"$@\""]).arg(limit.to_string());
        sh.arg(inner.get_program()).args(inner.get_args()).current_dir(&w.served).stdin(Stdio::null());
        let output = sh.output().unwrap();
        match code(&output) {
            0 => seen[1] += 1,
            // Too few to load the program at all.
            127 if err(&output).contains("shared lib") => {}
            _ => {
                seen[0] += 1;
                let text = err(&output);
                assert!(picture(&w.served) == before, "{limit}: {text}");
                assert!(text.contains("nothing was changed"), "{limit}: {text}");
            }
        }
    }
    println!("descriptors: {} × refused, {} × enough", seen[0], seen[1]);
    assert!(seen[0] > 0 && seen[1] > 0);
    w.works();
}

fn with_quota(dir: &Path) -> Option<(World, Quota)> {
    let (volume, quota) = Volume::with_quota(dir)?;
    Some((world_on(volume)?, quota))
}

fn a_quota_met_by_the_command_is_told_to_it(dir: &Path) {
    let Some((w, quota)) = with_quota(dir) else { return };
    quota.limit("60M");
    let before = picture(&w.served);
    let output = shell(&w.served, "echo kept >> a; head -c 80000000 /dev/zero | dd of=big bs=100000");
    assert_eq!((code(&output), picture(&w.served) == before), (1, true), "{}", err(&output));
    assert!(
        err(&output).contains("quota") && err(&output).contains("nothing was changed"),
        "{}",
        err(&output)
    );
    w.works();
}

fn a_quota_met_at_the_commit_aborts_it(dir: &Path) {
    let Some((w, quota)) = with_quota(dir) else { return };
    let before = picture(&w.served);
    // The limit comes after the last word of the command; systx then has no room for its record.
    let script = "head -c 300000 /dev/urandom > d/new; echo three > a; rm b; sync -f $POINT; \
        exec btrfs qgroup limit 16K 0/256 $POINT > /dev/null";
    let mut command = run(&w.served, &[], &["sh", "-c", script]);
    let output = command.env("POINT", &quota.whole).output().unwrap();
    w.refused(&output, &before, &["quota", "No space"]);
    // While this lasts, nothing works, and everything says why.
    for _ in 0..2 {
        let again = shell(&w.served, "echo three > a");
        w.refused(&again, &before, &["quota", "No space"]);
    }
    quota.limit("none");
    assert_eq!(picture(&w.served), before);
    w.works();
}

fn a_full_owners_file_is_told(dir: &Path) {
    let Some(w) = world(dir, 64) else { return };
    if !have("python3") {
        return;
    }
    // A process holds every byte of the owners file, as 1023 processes would.
    let hold = "import fcntl, os, struct, sys\nf = os.open(sys.argv[1], os.O_RDWR)\n\
        fcntl.fcntl(f, 37, struct.pack('hhqqi4x', fcntl.F_WRLCK, 0, 1, 1023, 0))\nprint('held', flush=True)\nsys.stdin.read()";
    let mut python = Command::new("python3");
    python.args(["-c", hold]).arg(w.volume.area().join("owners"));
    let mut holder = python.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut word = [0; 5];
    holder.stdout.take().unwrap().read_exact(&mut word).unwrap();
    let before = picture(&w.served);
    let output = shell(&w.served, "echo three > a");
    holder.stdin.take().unwrap().write_all(b"\n").unwrap();
    holder.wait().unwrap();
    w.refused(&output, &before, &["already run transactions"]);
    w.works();
}

fn a_fifo_without_reader_does_not_hold_up_a_commit(dir: &Path) {
    let Some(w) = world(dir, 64) else { return };
    must(Command::new("mkfifo").arg(w.served.join("fifo")));
    let script = "mkfifo d/new; mv fifo d/moved; chmod 600 d/moved; touch d/moved; mkfifo gone; rm gone; ls -lR > /dev/null";
    let output = shell(&w.served, script);
    assert_eq!((code(&output), err(&output).as_str()), (0, ""));
    use std::os::unix::fs::FileTypeExt;
    for name in ["d/new", "d/moved"] {
        assert!(std::fs::metadata(w.served.join(name)).unwrap().file_type().is_fifo());
    }
    let output = shell(&w.served, "rm d/new d/moved");
    assert_eq!((code(&output), err(&output).as_str()), (0, ""));
    w.works();
}

fn a_path_of_4095_bytes_commits(dir: &Path) {
    let Some(w) = world(dir, 64) else { return };
    // By descending, and then as the longest path that a call takes.
    let script = "n=$(printf '%0200d' 7); i=0; while [ $i -lt 18 ]; do mkdir $n && cd $n || exit 1; i=$((i + 1)); done; \
        echo deep > end; chmod 600 end";
    let output = shell(&w.served, script);
    assert_eq!((code(&output), err(&output).as_str()), (0, ""));
    let name = "0".repeat(199) + "7";
    let find =
        must(Command::new("find").arg(".").args(["-name", "end", "-perm", "600"]).current_dir(&w.served));
    assert_eq!(find.trim(), format!("./{}end", format!("{name}/").repeat(18)));
    assert!(w.served.as_os_str().len() < 200, "the scratch directory is too deep");
    let exact = "d=$1; left=$((4095 - ${#PWD} - 1)); while [ $left -gt 250 ]; do mkdir -p $d && cd $d || exit 1; \
        left=$((left - ${#d} - 1)); done; f=$(printf \"%0${left}d\" 1); echo x > \"$PWD/$f\" && cat \"$PWD/$f\" > /dev/null && printf %s \"$PWD/$f\" | wc -c";
    let mut command = run(&w.served, &[], &["sh", "-c", exact, "sh", &"e".repeat(240)]);
    let output = command.output().unwrap();
    assert_eq!((code(&output), out(&output).trim()), (0, "4095"), "{}", err(&output));
    let before = mounts();
    let output = shell(&w.served, "rm -r 0* e*");
    assert_eq!((code(&output), err(&output).as_str()), (0, ""));
    assert_eq!(mounts(), before);
    w.works();
}

/// The kernel says so of an inode number with which another process makes an object at that instant.
fn a_handle_for_which_there_is_no_memory_is_opened_a_moment_later(dir: &Path) {
    if !have("strace") {
        return;
    }
    let Some(w) = world(dir, 64) else { return };
    let (call, trace) = ("open_by_handle_at", dir.join("trace"));
    // Every other call: the first time that anything is tried.
    let inject = format!("inject={call}:error=ENOMEM:when=1+2");
    let script = "echo more >> a; printf y | dd of=b conv=notrunc bs=1 seek=9000 status=none; mv d e";
    let command = run(&w.served, &[], &["sh", "-c", script]);
    let output = traced(&command, &["-o", trace.to_str().unwrap(), "-e", &inject], call).output().unwrap();
    assert_eq!((code(&output), err(&output).as_str()), (0, ""));
    let failed = std::fs::read_to_string(trace).unwrap().matches("(INJECTED)").count();
    assert!(failed > 1, "{failed} calls failed");
    assert_eq!(std::fs::read_to_string(w.served.join("a")).unwrap(), "two\nmore\n");
    assert_eq!(std::fs::read(w.served.join("b")).unwrap()[9000], b'y');
    assert!(w.served.join("e").is_dir() && !w.served.join("d").exists());
    w.works();
}
