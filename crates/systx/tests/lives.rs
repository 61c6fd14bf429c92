//! A file system is mounted again in the same boot: what was committed there is redone, and nothing is taken for what it was.
//!
//! Its cache is lost by FS_IOC_SHUTDOWN without a flush of its log (ext4, xfs), or a copy of its device is put in the device's place
//! (btrfs). The table keeps its boot id: no reboot is feigned.
//!
//! `cargo test -p systx --test lives [-- PART-OF-A-NAME]`.

mod machine;

use machine::processes::Stopped;
use machine::volume::Volume;
use machine::{code, err, have, must, out, recover, run, shell, verb};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

fn main() {
    machine::main(&[
        ("what_was_committed_is_redone_after_a_mount_in_the_same_boot_on_ext4", |dir| {
            mounted_again(dir, "ext4")
        }),
        ("what_was_committed_is_redone_after_a_mount_in_the_same_boot_on_xfs", |dir| {
            mounted_again(dir, "xfs")
        }),
        ("what_was_committed_is_redone_after_a_mount_in_the_same_boot_on_btrfs", |dir| {
            mounted_again(dir, "btrfs");
        }),
        ("a_boot_id_of_its_own_keeps_nobody_out", a_boot_id_of_its_own_keeps_nobody_out),
        ("what_a_backup_has_put_back_is_not_done_again", what_a_backup_has_put_back_is_not_done_again),
        (
            "a_file_system_that_turns_read_only_in_mid_publication_is_whole_after_the_next_mount",
            a_file_system_that_turns_read_only_in_mid_publication_is_whole_after_the_next_mount,
        ),
    ]);
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| e.to_string())
}

/// The number that the table has for as long as the file system stays mounted.
fn number(volume: &Volume) -> Vec<u8> {
    std::fs::read(volume.area().join("table")).unwrap()[48..64].to_vec()
}

/// The device as it is at this instant takes the place of the one that is mounted; or its file system is shut down.
fn lose_cache(volume: &Volume) -> Option<()> {
    if volume.kind == "btrfs" {
        let copy = volume.image.with_extension("copy");
        std::fs::copy(&volume.image, &copy).unwrap();
        volume.unmount();
        std::fs::rename(copy, &volume.image).unwrap();
    } else {
        volume.switch()?.off();
        volume.unmount();
    }
    volume.mount();
    Some(())
}

fn mounted_again(dir: &Path, kind: &'static str) {
    let Some(volume) = Volume::new(dir, kind, 320) else { return };
    let work = volume.point.join("work");
    std::fs::create_dir(&work).unwrap();
    std::fs::write(work.join("a"), "0").unwrap();
    must(Command::new("sync").arg("-f").arg(&work));
    let mut numbers = Vec::new();
    // Twice: numbers and names of the life before are met again.
    for n in 1..=2 {
        for part in 1..=2 {
            let script = format!(
                "echo {n}.{part} >a.new; mv a.new a; mkdir d{n}.{part}; for i in 1 2 3; do echo $i >d{n}.{part}/$i; done"
            );
            let done = shell(&work, &script);
            assert_eq!(code(&done), 0, "{kind}: {}", err(&done));
            numbers.push(number(&volume));
        }
        if lose_cache(&volume).is_none() {
            return;
        }
        let said = recover();
        assert!(read(&work.join("a")) == format!("{n}.2\n"), "{kind}: committed, and lost: {said}");
        for part in 1..=2 {
            assert_eq!(read(&work.join(format!("d{n}.{part}/3"))), "3\n", "{kind}: {said}");
        }
    }
    let [one, again, two, too] = &numbers[..] else { panic!("{kind}: {numbers:?}") };
    assert!(one == again && two == too && one != two, "{kind}: one table a mount: {numbers:?}");
    let done = shell(&work, "echo last >a");
    assert_eq!((code(&done), read(&work.join("a")).as_str()), (0, "last\n"), "{kind}: {}", err(&done));
}

/// As in a container of systemd-nspawn: while somebody is at work here, and when nobody is.
fn a_boot_id_of_its_own_keeps_nobody_out(dir: &Path) {
    if !have("unshare") {
        return;
    }
    let Some(volume) = Volume::new(dir, "ext4", 256) else { return };
    let work = volume.point.join("work");
    std::fs::create_dir(&work).unwrap();
    let id = dir.join("boot_id");
    std::fs::write(&id, "00112233-4455-6677-8899-aabbccddeeff\n").unwrap();
    let apart = |script: &str| {
        let command = run(&work, &[], &["sh", "-c", script]);
        let mut apart = Command::new("unshare");
        apart.args(["--mount", "--propagation", "private", "sh", "-c"]);
        apart.arg("mount --bind \"$0\" /proc/sys/kernel/random/boot_id && exec \"$@\"").arg(&id);
        apart.arg(command.get_program()).args(command.get_args()).current_dir(&work);
        apart.stdin(Stdio::null()).output().unwrap()
    };
    let mut here = run(&work, &[], &["sh", "-c", "echo begun; read end; echo here >here"]);
    let mut here = here.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(here.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let beside = apart("echo beside >beside");
    assert_eq!(code(&beside), 0, "while one runs here: {}", err(&beside));
    drop(here.stdin.take());
    let ended = here.wait_with_output().unwrap();
    assert_eq!((code(&ended), read(&work.join("here")).as_str()), (0, "here\n"), "{}", err(&ended));
    let alone = apart("echo alone >alone");
    assert_eq!(code(&alone), 0, "{}", err(&alone));
    let back = shell(&work, "cat beside alone");
    assert_eq!((code(&back), out(&back).as_str()), (0, "beside\nalone\n"), "{}", err(&back));
    let listed = verb("list", &[]);
    assert_eq!(code(&listed), 0, "{}", err(&listed));
}

/// A backup of the tree holds the area, too; it is put back over both, and work goes on.
fn what_a_backup_has_put_back_is_not_done_again(dir: &Path) {
    if !have("tar") {
        return;
    }
    let Some(volume) = Volume::new(dir, "ext4", 256) else { return };
    let work = volume.point.join("work");
    std::fs::create_dir(&work).unwrap();
    let commits = |script: &str| {
        let done = shell(&work, script);
        assert_eq!(code(&done), 0, "{script}: {}", err(&done));
    };
    std::fs::write(work.join("f"), "v1\n").unwrap();
    commits("echo v2 >f; chmod 640 f");
    let backup = dir.join("backup.tar");
    must(Command::new("tar").arg("-C").arg(&volume.point).arg("-cf").arg(&backup).arg("."));
    commits("echo v3 >f; echo n >new");
    commits("echo p >p");
    must(Command::new("tar").arg("-C").arg(&volume.point).arg("-xf").arg(&backup));
    assert_eq!(read(&work.join("f")), "v2\n");
    commits("echo v4 >f; echo q >q");
    volume.unmount();
    volume.mount();
    let said = recover();
    let found = ["f", "new", "p", "q"].map(|name| read(&work.join(name)));
    assert_eq!(found, ["v4\n", "n\n", "p\n", "q\n"], "{said}");
    commits("echo v5 >f");
    assert_eq!(read(&work.join("f")), "v5\n");
}

/// As ext4 with errors=remount-ro does by itself when its disk fails.
fn a_file_system_that_turns_read_only_in_mid_publication_is_whole_after_the_next_mount(dir: &Path) {
    if !have("strace") || !have("e2fsck") {
        return;
    }
    let Some(volume) = Volume::new(dir, "ext4", 256) else { return };
    let work = volume.point.join("work");
    let mut ends = [0; 2];
    for n in 1..=6 {
        must(Command::new("mount").args(["-o", "remount,errors=remount-ro"]).arg(&volume.point));
        let _ = std::fs::remove_dir_all(&work);
        std::fs::create_dir(&work).unwrap();
        must(Command::new("sync").arg("-f").arg(&work));
        let command = run(&work, &[], &["sh", "-c", "for i in 1 2 3 4; do echo new >$i; done"]);
        let Ok(stopped) = Stopped::after(dir, &command, "renameat2", n) else { break };
        let device = must(Command::new("findmnt").args(["-no", "SOURCE"]).arg(&volume.point));
        let name = device.trim().rsplit('/').next().unwrap().to_string();
        std::fs::write(format!("/sys/fs/ext4/{name}/trigger_fs_error"), "a test\n").unwrap();
        let ended = stopped.go_on();
        let text = format!("{}{}", out(&ended), err(&ended));
        let at = format!("read-only after rename {n}: {} {text}", code(&ended));
        let recovered = verb("recover", &[]);
        volume.unmount();
        // It ends with 1 where it has repaired something.
        let _ = Command::new("e2fsck").args(["-fy"]).arg(&volume.image).output();
        volume.mount();
        let again = verb("recover", &[]);
        assert_eq!(
            code(&again),
            0,
            "{at}; {}{}; {}{}",
            out(&recovered),
            err(&recovered),
            out(&again),
            err(&again)
        );
        let there = (1..=4).filter(|i| work.join(i.to_string()).exists()).count();
        assert!(there == 0 || there == 4, "{at}: a mixture: {there} of 4");
        let nothing = text.contains("nothing");
        assert!(!(there == 4 && nothing), "{at}: it is there");
        assert!(!(there == 0 && (code(&ended) == 0 || text.contains("committed"))), "{at}: it is not there");
        ends[usize::from(there == 4)] += 1;
    }
    assert!(ends[1] > 0, "none got past its commit point: {ends:?}");
}
