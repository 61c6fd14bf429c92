//! After an orderly shutdown nothing is done again: each commit leaves a checkpoint to its helper process,
//! which makes it within a second.
//!
//! A file system is unmounted right behind a command, mounted again, and its table made one of an earlier
//! boot: anything that no checkpoint covers would be redone then, over what was put back by hand in between.
//!
//! `cargo test -p systx-cli --test clean_reboot [-- PART-OF-A-NAME]`

mod machine;

use machine::picture::{difference, picture};
use machine::processes::{children, Held, Tell};
use machine::user::{open_fuse_to_all, UNPRIVILEGED};
use machine::volume::Volume;
use machine::{code, err, have, must, out, recover, run, shell, systx, verb, AREA};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

fn main() {
    machine::main_with_checkpoints(&[
        ("nothing_is_done_again_after_an_orderly_reboot_on_ext4", |dir| rebooted(dir, "ext4")),
        ("nothing_is_done_again_after_an_orderly_reboot_on_xfs", |dir| rebooted(dir, "xfs")),
        ("nothing_is_done_again_after_an_orderly_reboot_on_btrfs", |dir| rebooted(dir, "btrfs")),
        ("one_without_durability_is_not_undone_by_a_durable_one_before_it", none_over_durable),
        ("an_unmount_behind_many_commits_is_not_refused_and_nothing_is_done_again", unmounted_behind_many),
        ("an_ordinary_users_commits_are_not_done_again", an_ordinary_users),
        ("what_recover_has_seen_is_not_done_again_after_a_loss_of_power", recovered_before_a_power_loss),
        ("what_a_killed_publisher_has_removed_is_gone_when_recover_returns", killed_in_the_last_phase),
        ("while_a_helper_waits_another_boot_id_does_nothing_again", seen_from_a_container),
        ("a_helper_watches_before_the_command_that_leaves_it_a_checkpoint_goes_on", watched_first),
        ("recover_waits_for_what_another_process_publishes", recover_waits),
        ("a_helper_that_is_told_to_end_makes_its_checkpoint_first", told_to_end),
    ]);
}

/// How a transaction changes a directory, and how that is put back by hand. Between them every kind of step,
/// with and without slots.
const CHANGES: &[(&str, &str, &str)] = &[
    ("a file renamed", "mv f g", "mv g f"),
    ("moved to another directory", "mv f d/f", "mv d/f f"),
    ("two files exchanged", "mv f t; mv large f; mv t large", "mv f t; mv large f; mv t large"),
    ("a directory renamed", "mv d e", "mv e d"),
    ("a link", "ln f h", "rm h"),
    ("a symbolic link", "ln -s f s", "rm s"),
    ("a file removed", "rm f", "cp -p backup f"),
    ("a tree removed", "rm -r d", "mkdir d; echo in > d/in"),
    ("a file made", "echo new > n", "rm n"),
    ("a large file made", "cp large n", "rm n"),
    ("a directory made", "mkdir -p n/m; echo new > n/m/f", "rm -r n"),
    ("replaced by a rename", "echo new > n; mv n f", "cp backup f"),
    ("written anew", "echo new > f", "cat backup > f"),
    ("emptied", ": > f", "cat backup > f"),
    ("appended to", "echo more >> f", "truncate -s 4 f"),
    ("cut", "truncate -s 100 large", "cat backup.large > large"),
    (
        "changed in its midst",
        "printf new | dd of=large bs=1 seek=150000 conv=notrunc status=none",
        "cat backup.large > large",
    ),
    ("another mode", "chmod 600 f", "chmod 644 f"),
    ("another owner", "chown 7:8 f", "chown 0:0 f"),
    ("an attribute", "setfattr -n user.k -v 1 f", "setfattr -x user.k f"),
    ("another time", "touch -d 2020-02-02 f", "touch -d 2005-06-07 f"),
];

const BEGIN: &str =
    "printf 'old\\n' > f; chmod 644 f; touch -d 2005-06-07 f; cp -p f backup; mkdir d; echo in > d/in; \
    head -c 300000 /dev/zero | tr '\\0' x > large; cp large backup.large";

/// Later acts on each change: none, it is put back at once, or an outsider goes on with it.
const AFTER: &[&str] = &["", "PUT BACK", "for f in *; do [ -f $f ] && echo theirs >> $f; chmod 751 $f; done"];

fn rebooted(dir: &Path, kind: &'static str) {
    let Some(volume) = Volume::new(dir, kind, if kind == "xfs" { 320 } else { 256 }) else { return };
    let served = volume.point.join("tree");
    let all: Vec<_> = (0..CHANGES.len()).flat_map(|c| (0..AFTER.len()).map(move |a| (c, a))).collect();
    for (c, a) in &all {
        let place = served.join(format!("{c}.{a}"));
        std::fs::create_dir_all(&place).unwrap();
        must(Command::new("sh").args(["-ec", BEGIN]).current_dir(place));
    }
    must(Command::new("sync").arg("-f").arg(&served));
    let changes = |(c, a): &(usize, usize)| format!("cd {c}.{a}; {}; cd ..\n", CHANGES[*c].1);
    let output = shell(&served, &all.iter().map(changes).collect::<String>());
    assert_eq!((code(&output), err(&output).as_str()), (0, ""));
    for (c, a) in &all {
        let script = if AFTER[*a] == "PUT BACK" { CHANGES[*c].2 } else { AFTER[*a] };
        must(
            Command::new("sh")
                .args(["-ec", &format!("{script}\n:")])
                .current_dir(served.join(format!("{c}.{a}"))),
        );
    }
    let before = picture(&served);
    volume.boot();
    assert!(recover().contains("nothing to do"), "something was done again");
    let after = picture(&served);
    assert!(after == before, "changed by an orderly reboot:\n{}", difference(&after, &before));
}

fn none_over_durable(dir: &Path) {
    for kind in ["ext4", "xfs"] {
        let Some(volume) = Volume::new(dir, kind, 320) else { return };
        let served = volume.point.join("tree");
        std::fs::create_dir(&served).unwrap();
        let old = "echo OLD > conf; chmod 644 key; : > empty";
        must(Command::new("sh").args(["-ec", &format!(": > key; {old}; sync -f .")]).current_dir(&served));
        let output = shell(&served, "echo NEW > conf; chmod 600 key; echo text > empty");
        assert_eq!(code(&output), 0, "{}", err(&output));
        let output = run(&served, &["--durability", "none"], &["sh", "-c", old]).output().unwrap();
        assert_eq!(code(&output), 0, "{}", err(&output));
        let before = picture(&served);
        volume.boot();
        assert!(recover().contains("nothing to do"));
        let after = picture(&served);
        assert!(after == before, "undone without a loss of power:\n{}", difference(&after, &before));
        volume.unmount();
    }
}

fn unmounted_behind_many(dir: &Path) {
    let Some(volume) = Volume::new(dir, "ext4", 256) else { return };
    let served = volume.point.join("tree");
    std::fs::create_dir(&served).unwrap();
    std::fs::write(served.join("f"), "").unwrap();
    for n in 0..5 {
        let output = shell(&served, &format!("echo {n} >> f; chmod 60{n} f"));
        assert_eq!(code(&output), 0, "{}", err(&output));
    }
    must(Command::new("chmod").arg("603").arg(served.join("f")));
    std::fs::write(served.join("f"), "0\n1\n2\n3\n").unwrap();
    // `umount` must succeed at once; the device is closed when the helpers are gone.
    volume.boot();
    assert!(recover().contains("nothing to do"));
    assert_eq!(std::fs::read_to_string(served.join("f")).unwrap(), "0\n1\n2\n3\n");
    assert_eq!(std::fs::metadata(served.join("f")).unwrap().mode() & 0o777, 0o603);
}

fn an_ordinary_users(dir: &Path) {
    let Some(volume) = Volume::new(dir, "ext4", 256) else { return };
    open_fuse_to_all(dir);
    must(Command::new("chmod").arg("755").args([dir, dir.parent().unwrap()]));
    let home = volume.point.join("home");
    let served = home.join("tree");
    std::fs::create_dir_all(&served).unwrap();
    std::fs::write(served.join("f"), "old").unwrap();
    must(Command::new("chown").args(["-R", "61234:61234"]).arg(&home));
    let as_user = |args: &[&str]| -> Output {
        let mut command = Command::new(UNPRIVILEGED[0]);
        command.args(&UNPRIVILEGED[1..]).arg(systx()).args(args).current_dir(&served).env("HOME", &home);
        command.stdin(Stdio::null()).output().unwrap()
    };
    let only = served.to_str().unwrap();
    let output =
        as_user(&["run", "--area-name", AREA, "--only", only, "--", "sh", "-c", "echo new > f; chmod 600 f"]);
    if code(&output) == 125 {
        println!("skipped: an ordinary user can't run here: {}", err(&output));
        return;
    }
    assert_eq!(code(&output), 0, "{}", err(&output));
    std::fs::write(served.join("f"), "old").unwrap();
    must(Command::new("chmod").arg("644").arg(served.join("f")));
    let before = picture(&served);
    volume.unmount();
    volume.mount();
    let area = home.join(format!("{AREA}-61234"));
    assert!(area.is_dir(), "{}", area.display());
    use std::os::unix::fs::FileExt;
    let table = std::fs::OpenOptions::new().write(true).open(area.join("table")).unwrap();
    table.write_all_at(&[0x5a; 16], 16).unwrap();
    let output = as_user(&["recover", "--area-name", AREA]);
    assert!(out(&output).contains("nothing to do"), "{}{}", out(&output), err(&output));
    let after = picture(&served);
    assert!(after == before, "changed by an orderly reboot:\n{}", difference(&after, &before));
}

/// The remedy for gap (c): without a helper process, and with an outsider's change that was synced.
fn recovered_before_a_power_loss(dir: &Path) {
    let Some(volume) = Volume::new(dir, "ext4", 256) else { return };
    let Some(switch) = volume.switch() else { return };
    let served = volume.point.join("tree");
    std::fs::create_dir(&served).unwrap();
    std::fs::write(served.join("key"), "").unwrap();
    must(Command::new("chmod").arg("644").arg(served.join("key")));
    let mut alone = run(&served, &[], &["chmod", "600", "key"]);
    let output = alone.env("SYSTX_CHECKPOINT", "never").output().unwrap();
    assert_eq!(code(&output), 0, "{}", err(&output));
    recover();
    must(Command::new("chmod").arg("644").arg(served.join("key")));
    must(Command::new("sync").arg("-f").arg(&served));
    switch.off();
    volume.boot();
    assert!(recover().contains("nothing to do"));
    assert_eq!(std::fs::metadata(served.join("key")).unwrap().mode() & 0o777, 0o644);
}

const MANY: usize = 1500;

/// A command that is killed with everything of it.
fn group(served: &Path, script: &str) -> Child {
    let mut command = run(served, &[], &["sh", "-c", script]);
    command.env("SYSTX_CHECKPOINT", "never").process_group(0).stdout(Stdio::null()).spawn().unwrap()
}

fn killed_in_the_last_phase(dir: &Path) {
    let Some(volume) = Volume::new(dir, "ext4", 256) else { return };
    let served = volume.point.join("tree");
    let (names, others) = (served.join("names"), volume.point.join("others"));
    let entries = || std::fs::read_dir(&names).unwrap().count();
    for _ in 0..3 {
        std::fs::create_dir_all(&names).unwrap();
        std::fs::create_dir(&others).unwrap();
        for n in 0..MANY {
            std::fs::write(others.join(n.to_string()), "x").unwrap();
            std::fs::hard_link(others.join(n.to_string()), names.join(n.to_string())).unwrap();
        }
        let mut child = group(&served, "rm names/*");
        while entries() > 0 && child.try_wait().unwrap().is_none() {}
        let _ = rustix::process::kill_process_group(
            rustix::process::Pid::from_child(&child),
            rustix::process::Signal::KILL,
        );
        child.wait().unwrap();
        recover();
        assert_eq!(entries(), 0);
        let linked = |n: &usize| std::fs::metadata(others.join(n.to_string())).unwrap().nlink() != 1;
        assert_eq!((0..MANY).filter(linked).count(), 0, "have a second name somewhere still");
        assert_eq!(std::fs::read_dir(volume.area().join("tx")).unwrap().count(), 0);
        std::fs::remove_dir_all(&others).unwrap();
    }
}

fn recover_waits(dir: &Path) {
    let Some(volume) = Volume::new(dir, "ext4", 256) else { return };
    let served = volume.point.join("tree");
    std::fs::create_dir(&served).unwrap();
    let count = || std::fs::read_dir(&served).unwrap().count();
    let signal = |child: &Child, signal| {
        rustix::process::kill_process(rustix::process::Pid::from_child(child), signal).unwrap();
    };
    let mut met = 0;
    for round in 0..20 {
        let script = format!("for n in $(seq {MANY}); do : > {round}.$n; done");
        let before = count();
        let mut child = group(&served, &script);
        while count() == before {}
        let family = children(child.id());
        signal(&child, rustix::process::Signal::STOP);
        let stopped =
            || std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap().contains(") T ");
        while !stopped() && child_lives(&child) {}
        if count() < before + MANY {
            let recovering = Command::new(systx())
                .args(["recover", "--area-name", AREA])
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            // `recover` is asleep between two looks; where the kernel does not show that, it has not got so
            // far, and finds the tree whole.
            let place = format!("/proc/{}/wchan", recovering.id());
            let asleep = || std::fs::read_to_string(&place).unwrap_or_default().contains("nanosleep");
            met += usize::from((0..20_000).any(|_| asleep()));
            // The second one that it waits for dies, and so does who would finish for it.
            match met {
                2 => {
                    family.iter().for_each(|one| one.signal(rustix::process::Signal::KILL));
                    signal(&child, rustix::process::Signal::KILL);
                }
                _ => signal(&child, rustix::process::Signal::CONT),
            }
            let output = recovering.wait_with_output().unwrap();
            assert_eq!(count(), before + MANY, "recover returned beside a half-new tree: {}", out(&output));
            assert_eq!(code(&output), 0, "{}{}", out(&output), err(&output));
        } else {
            signal(&child, rustix::process::Signal::CONT);
        }
        child.wait().unwrap();
        if met == 2 {
            break;
        }
    }
    assert_eq!(met, 2, "recover never met a publication");
    assert!(out(&verb("recover", &[])).contains("nothing to do"));
}

fn child_lives(child: &Child) -> bool {
    Path::new(&format!("/proc/{}", child.id())).exists()
}

/// The helper process is ended as at a shutdown. The second of two commits in a row has one that waits for up
/// to a second.
fn told_to_end(dir: &Path) {
    let Some(volume) = Volume::new(dir, "ext4", 256) else { return };
    let served = volume.point.join("tree");
    std::fs::create_dir(&served).unwrap();
    std::fs::write(served.join("f"), "").unwrap();
    let mut tell = Tell::new(dir);
    // SIGTERM is held back: from here on the helper waits for it.
    let waits = |helper: &Held| {
        let status = std::fs::read_to_string(format!("/proc/{}/status", helper.pid)).unwrap_or_default();
        let held = status.lines().find_map(|line| line.strip_prefix("SigBlk:\t"));
        held.and_then(|held| u64::from_str_radix(held, 16).ok()).is_some_and(|held| held >> 14 & 1 == 1)
    };
    for n in 0..20 {
        let script = format!("echo {n} >>f; echo end >$TELL");
        let mut command = run(&served, &[], &["sh", "-c", &script]);
        let mut child = command.env("TELL", &tell.path).spawn().unwrap();
        assert!(tell.wait(&child));
        let family = children(child.id());
        assert!(child.wait().unwrap().success());
        let Some(helper) = family.iter().find(|one| !one.gone_within(0)) else { continue };
        while !waits(helper) && !helper.gone_within(0) {}
        if helper.gone_within(0) {
            continue;
        }
        helper.signal(rustix::process::Signal::TERM);
        helper.gone();
        volume.boot();
        let said = recover();
        assert!(said.contains("nothing to do"), "told to end, and its checkpoint was not made: {said}");
        return;
    }
    panic!("no helper waits");
}

/// Bytes of the file `owners` from here on are those of watchers.
const WATCHERS: u64 = 1024;

/// The command waits, for a moment at most, for the end of a pipe whose other end the helper has. Each of its
/// locks takes some time, so that a lock that comes too late is seen to be.
fn watched_first(dir: &Path) {
    if !have("strace") {
        return;
    }
    let Some(volume) = Volume::new(dir, "ext4", 64) else { return };
    let served = volume.point.join("tree");
    std::fs::create_dir(&served).unwrap();
    let log = dir.join("calls");
    for n in 0..30 {
        let command = run(&served, &[], &["sh", "-c", &format!("echo {n} > f")]);
        let mut strace = Command::new("strace");
        strace.args([
            "-f",
            "-qq",
            "-e",
            "trace=fcntl,ppoll,poll",
            "-e",
            "inject=fcntl:delay_enter=3000",
            "-o",
        ]);
        strace.arg(&log).arg(command.get_program()).args(command.get_args());
        let output = strace.current_dir(&served).stdin(Stdio::null()).output().unwrap();
        assert_eq!(code(&output), 0, "{}", err(&output));
        let text = std::fs::read_to_string(&log).unwrap();
        let lines: Vec<(&str, &str)> = text.lines().filter_map(|line| line.split_once(' ')).collect();
        let first = lines[0].0;
        let is_watch = |line: &str| {
            let start = line.split("l_start=").nth(1).and_then(|rest| rest.split(',').next());
            line.contains("F_OFD_SETLK")
                && start.and_then(|n| n.parse().ok()).is_some_and(|n: u64| n >= WATCHERS)
        };
        // The helper is another process; where it was cut by another one's line, its end is the next line of it.
        let Some(asked) = lines.iter().position(|(pid, line)| *pid != first && is_watch(line)) else {
            continue;
        };
        let end_of = |at: usize| match lines[at].1.contains("<unfinished") {
            true => (at + 1..lines.len()).find(|later| lines[*later].0 == lines[at].0),
            false => Some(at),
        };
        let waits = |(pid, line): &(&str, &str)| *pid == first && line.contains("tv_nsec=100000000");
        let Some(waits) = lines.iter().position(waits).and_then(end_of) else { continue };
        // It was too slow for that: then nobody relies on it.
        if !lines[waits].1.contains("= 1 ") {
            continue;
        }
        let held = end_of(asked).expect("it comes back");
        assert!(held < waits, "the command goes on before anybody watches:\n{text}");
        return;
    }
    panic!("never is a checkpoint left to a helper in time");
}

/// A checkpoint that is due within a second gives no process a reason to take the table for one of an earlier
/// boot.
fn seen_from_a_container(dir: &Path) {
    let Some(volume) = Volume::new(dir, "ext4", 256) else { return };
    let served = volume.point.join("tree");
    std::fs::create_dir(&served).unwrap();
    let key = served.join("key");
    let id = dir.join("boot_id");
    std::fs::write(&id, "00112233-4455-6677-8899-aabbccddeeff\n").unwrap();
    let put_back = || {
        std::fs::write(&key, "old\n").unwrap();
        std::fs::set_permissions(&key, PermissionsExt::from_mode(0o644)).unwrap();
    };
    for round in 0..5 {
        put_back();
        // The second one's checkpoint is not made at once.
        for script in ["echo 1 > first", "echo new > key; chmod 600 key"] {
            assert_eq!(code(&shell(&served, script)), 0);
        }
        put_back();
        let command = run(&served, &[], &["cat", "key"]);
        let mut apart = Command::new("unshare");
        apart.args(["--mount", "--propagation", "private", "sh", "-c"]);
        apart.arg("mount --bind \"$0\" /proc/sys/kernel/random/boot_id && exec \"$@\"").arg(&id);
        apart.arg(command.get_program()).args(command.get_args()).current_dir(&served);
        let seen = apart.output().unwrap();
        assert_eq!(
            (code(&seen), out(&seen).as_str(), std::fs::metadata(&key).unwrap().mode() & 0o777),
            (0, "old\n", 0o644),
            "round {round}: {}",
            err(&seen)
        );
    }
}
