//! A file system is mounted again in the same boot: what was committed there is redone, and nothing is taken
//! for what it was.
//!
//! Its cache is lost by FS_IOC_SHUTDOWN without a flush of its log (ext4, xfs), or a copy of its device is
//! put in the device's place (btrfs). The table keeps its boot id: no reboot is feigned.
//!
//! `cargo test -p systx-cli --test lives [-- PART-OF-A-NAME]`.

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
        ("a_copy_beside_its_original_is_refused_and_goes_on_alone_on_ext4", |dir| beside(dir, "ext4")),
        ("a_copy_beside_its_original_is_refused_and_goes_on_alone_on_xfs", |dir| beside(dir, "xfs")),
        ("a_disk_that_is_older_than_its_partner_takes_nothing_back", older_than_its_partner),
        ("an_area_that_was_copied_in_use_is_not_replayed_under_its_old_uuid", copied_in_use),
        ("what_fsck_has_cleared_is_told_and_the_rest_is_done", cleared),
        ("an_area_whose_file_system_was_rebuilt_under_it_is_not_replayed", rebuilt),
        ("a_mount_with_mapped_numbers_is_left_alone", mapped_numbers),
        ("what_is_others_waits_for_who_sees_them_all", hidden_owners),
        ("names_in_an_encrypted_directory_wait_for_its_key", locked_names),
        ("an_area_in_a_layer_of_an_overlay_is_a_directory_like_others", layers),
        ("the_area_of_a_users_old_number_is_left_alone", old_number),
        ("a_table_of_another_layout_is_made_anew_when_nobody_uses_it", another_layout),
    ]);
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| e.to_string())
}

/// The number that the table has for as long as the file system stays mounted.
fn number(volume: &Volume) -> Vec<u8> {
    std::fs::read(volume.area().join("table")).unwrap()[48..64].to_vec()
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
        if volume.lose_cache().is_none() {
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

/// A container of systemd-nspawn has a boot id of its own: while a run is active here, and when none is.
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
    // To the area a backup looks like the archive of an attacker.
    let refused = shell(&work, "echo v4 >f");
    assert_eq!(code(&refused), 125, "{}", err(&refused));
    assert!(err(&refused).contains("moving log/ away"), "{}", err(&refused));
    assert_eq!(read(&work.join("f")), "v2\n");
    std::fs::rename(volume.point.join(machine::AREA).join("log"), volume.point.join("log.old")).unwrap();
    commits("echo v4 >f; echo q >q");
    volume.unmount();
    volume.mount();
    let said = recover();
    let found = ["f", "new", "p", "q"].map(|name| read(&work.join(name)));
    assert_eq!(found, ["v4\n", "n\n", "p\n", "q\n"], "{said}");
    commits("echo v5 >f");
    assert_eq!(read(&work.join("f")), "v5\n");
}

/// ext4 with errors=remount-ro does this by itself when its disk fails.
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

/// A volume with a directory in it, on the disk.
fn with_work(dir: &Path, kind: &'static str, script: &str) -> Option<Volume> {
    let volume = Volume::new(dir, kind, if kind == "xfs" { 320 } else { 256 })?;
    let work = volume.point.join("work");
    std::fs::create_dir(&work).unwrap();
    must(Command::new("sh").args(["-ec", script]).current_dir(&work));
    must(Command::new("sync").arg("-f").arg(&work));
    Some(volume)
}

/// Commits, which leaves something that a redo would do.
fn commits(work: &Path, script: &str) {
    let done = shell(work, script);
    assert_eq!(code(&done), 0, "{script}: {}", err(&done));
}

/// Copies the image in its present state, under another name; writes to it are frozen meanwhile.
fn copy_of(volume: &Volume, name: &str) -> Volume {
    let copied = Volume {
        image: volume.image.with_file_name(format!("{name}.img")),
        point: volume.point.with_file_name(name),
        kind: volume.kind,
    };
    let freeze = |how: &str| must(Command::new("fsfreeze").arg(how).arg(&volume.point));
    freeze("-f");
    let done = std::fs::copy(&volume.image, &copied.image);
    freeze("-u");
    done.unwrap();
    std::fs::create_dir_all(&copied.point).unwrap();
    copied
}

fn failing(name: &str, options: &[&str], says: &str) {
    let output = verb(name, options);
    assert!(code(&output) != 0 && err(&output).contains(says), "{name}: {}{}", out(&output), err(&output));
}

/// LVM snapshots, images, multipath: one UUID twice.
fn beside(dir: &Path, kind: &'static str) {
    if !have("fsfreeze") {
        return;
    }
    let Some(volume) = with_work(dir, kind, "echo 0 >f") else { return };
    let work = volume.point.join("work");
    commits(&work, "echo 1 >f");
    let copy = copy_of(&volume, "copy");
    let options = if kind == "xfs" { "loop,nouuid" } else { "loop" };
    must(Command::new("mount").args(["-o", options]).arg(&copy.image).arg(&copy.point));
    let theirs = copy.point.join("work");
    failing("recover", &[], "a copy of a file system is not used beside its original");
    let both = format!("echo 2 >f; echo 2 >{}/f", theirs.display());
    let done = run(&work, &["--only", theirs.to_str().unwrap()], &["sh", "-c", &both]).output().unwrap();
    assert_eq!(
        (code(&done), read(&work.join("f")), read(&theirs.join("f"))),
        (125, "1\n".into(), "1\n".into())
    );
    commits(&work, "echo 3 >f");
    volume.unmount();
    must(Command::new("umount").arg(&copy.point));
    copy.mount();
    copy.forget_boot();
    recover();
    commits(&theirs, "echo 4 >>f");
    assert_eq!(read(&theirs.join("f")), "1\n4\n");
}

/// A virtual machine of which one disk is put back: numbers are given again there.
fn older_than_its_partner(dir: &Path) {
    if !have("fsfreeze") {
        return;
    }
    for (n, back) in [0, 1].into_iter().enumerate() {
        let dirs = [dir.join(format!("{n}.one")), dir.join(format!("{n}.two"))];
        dirs.iter().for_each(|dir| std::fs::create_dir(dir).unwrap());
        let volumes = dirs.each_ref().map(|dir| with_work(dir, "ext4", "echo 0 >f"));
        let [Some(one), Some(two)] = &volumes else { return };
        let [a, b] = [one, two].map(|volume| volume.point.join("work"));
        let both = |n: u32| {
            let script =
                format!("echo {n} >>f; chmod 64{n} f; echo {n} >>{0}/f; chmod 64{n} {0}/f", b.display());
            let done = run(&a, &["--only", b.to_str().unwrap()], &["sh", "-c", &script]).output().unwrap();
            assert_eq!(code(&done), 0, "{}", err(&done));
        };
        both(1);
        let volume = [one, two][back];
        let older = copy_of(volume, "older");
        both(2);
        both(3);
        volume.unmount();
        std::fs::rename(&older.image, &volume.image).unwrap();
        volume.mount();
        [one, two].into_iter().for_each(Volume::forget_boot);
        let said = recover();
        let found = [&a, &b].map(|work| read(&work.join("f")));
        let mut wanted = ["0\n1\n2\n3\n"; 2];
        wanted[back] = "0\n1\n";
        assert_eq!(found, wanted, "{back} was put back: {said}");
        // Under numbers that the partner has met.
        both(4);
        [one, two].into_iter().for_each(Volume::forget_boot);
        let said = recover();
        let ends = [&a, &b].map(|work| read(&work.join("f")).ends_with("4\n"));
        assert_eq!(ends, [true; 2], "{back} was put back: {said}");
        [one, two].into_iter().for_each(Volume::unmount);
    }
}

/// By a backup tool that copies files, on a new file system that gets the old one's UUID.
fn copied_in_use(dir: &Path) {
    for kind in ["ext4", "xfs"] {
        let Some(volume) = with_work(dir, kind, "echo old >f; chmod 644 f") else { return };
        let work = volume.point.join("work");
        commits(&work, "echo new >>f; chmod 600 f; echo made >n");
        let backup = dir.join("backup");
        must(Command::new("cp").arg("-a").arg(&volume.point).arg(&backup));
        let uuid = must(Command::new("findmnt").args(["-no", "UUID"]).arg(&volume.point)).trim().to_owned();
        volume.unmount();
        let (tool, options) = match kind {
            "xfs" => ("mkfs.xfs", vec!["-q".into(), "-f".into(), "-m".into(), format!("uuid={uuid}")]),
            _ => ("mkfs.ext4", vec!["-q".into(), "-F".into(), "-U".into(), uuid]),
        };
        must(Command::new(tool).args(options).arg(&volume.image));
        volume.mount();
        must(Command::new("cp").args(["-a", "--"]).arg(backup.join(".")).arg(&volume.point));
        must(
            Command::new("sh").args(["-ec", "rm n; echo old >f; chmod 644 f; sync -f ."]).current_dir(&work),
        );
        failing("recover", &[], "a copied area is not replayed");
        let done = shell(&work, "echo x >f");
        let tree = (read(&work.join("f")), work.join("n").exists());
        assert_eq!((code(&done), tree), (125, ("old\n".into(), false)), "{kind}: {}", err(&done));
        volume.unmount();
        std::fs::remove_dir_all(&backup).unwrap();
        std::fs::remove_dir_all(&volume.point).unwrap();
    }
}

/// The power fails, and fsck clears an inode that the redo needs: a file, its directory, the slots.
fn cleared(dir: &Path) {
    if !have("debugfs") || !have("e2fsck") {
        return;
    }
    let begin = "mkdir d; for f in f g h; do echo old >$f; chmod 644 $f; done; echo old >d/f";
    let Some(volume) = with_work(dir, "ext4", begin) else { return };
    let Some(switch) = volume.switch() else { return };
    let work = volume.point.join("work");
    commits(&work, "echo new >>f; chmod 600 f g; rm h; for n in $(seq 40); do echo $n >d/$n; done");
    let tx = std::fs::read_dir(volume.area().join("tx")).unwrap().map(|entry| entry.unwrap());
    let tx = tx.filter(|entry| entry.path().is_dir()).map(|entry| entry.path()).next().unwrap();
    let inodes = [work.join("f"), work.join("d"), tx]
        .map(|path| std::os::unix::fs::MetadataExt::ino(&path.metadata().unwrap()));
    switch.off();
    volume.unmount();
    let fsck = || Command::new("e2fsck").args(["-fy"]).arg(&volume.image).output().unwrap();
    fsck();
    let lost = copy_lost(&volume);
    for (inode, says) in inodes.into_iter().zip([
        "removed by another program",
        "its directory is gone",
        "the file system lost objects",
    ]) {
        std::fs::copy(&lost, &volume.image).unwrap();
        must(Command::new("debugfs").args(["-w", "-R", &format!("clri <{inode}>")]).arg(&volume.image));
        fsck();
        volume.mount();
        volume.forget_boot();
        let output = verb("recover", &[]);
        let said = out(&output);
        assert!(said.contains(says), "{}: {said}{}", code(&output), err(&output));
        let mode = std::os::unix::fs::MetadataExt::mode(&work.join("g").metadata().unwrap());
        assert_eq!((mode & 0o777, work.join("h").exists()), (0o600, false), "the rest is done: {said}");
        commits(&work, "echo on >on");
        volume.unmount();
    }
}

fn copy_lost(volume: &Volume) -> std::path::PathBuf {
    let lost = volume.image.with_extension("lost");
    std::fs::copy(&volume.image, &lost).unwrap();
    lost
}

/// By tools that keep the UUID and give objects other inodes.
fn rebuilt(dir: &Path) {
    if !have("btrfs-convert") || !have("resize2fs") || !have("e2fsck") {
        return;
    }
    // Of the files of a directory of its own, most of which lie beyond the new end.
    let begin = "for d in $(seq 16); do mkdir d$d; echo old >d$d/f; chmod 644 d$d/f; done";
    for (tool, options, kind) in [
        ("resize2fs", &["-f", "IMAGE", "64M"][..], "ext4"),
        // It takes no smaller blocks.
        ("btrfs-convert", &["--no-progress", "--uuid", "copy", "IMAGE"], "btrfs"),
    ] {
        let dir = dir.join(tool);
        std::fs::create_dir(&dir).unwrap();
        let before = if kind == "btrfs" { "ext4-4k" } else { "ext4" };
        let Some(volume) = with_work(&dir, before, begin) else { return };
        let work = volume.point.join("work");
        commits(&work, "for d in d*; do chmod 600 $d/f; echo made >$d/n; done");
        must(
            Command::new("sh")
                .args(["-ec", "for d in d*; do chmod 640 $d/f; rm $d/n; done; sync -f ."])
                .current_dir(&work),
        );
        volume.unmount();
        let _ = Command::new("e2fsck").args(["-fy"]).arg(&volume.image).output();
        let image = volume.image.to_str().unwrap();
        let words = options.iter().map(|word| if *word == "IMAGE" { image } else { word });
        must(Command::new(tool).args(words));
        volume.mount();
        let fs_type = must(Command::new("findmnt").args(["-no", "FSTYPE"]).arg(&volume.point));
        assert_eq!(fs_type.trim(), kind);
        volume.forget_boot();
        let output = verb("recover", &[]);
        let said = format!("{tool}: {}{}", out(&output), err(&output));
        assert!(code(&output) == 0 || err(&output).contains("a copied area is not replayed"), "{said}");
        for d in 1..=16 {
            let d = work.join(format!("d{d}"));
            let mode = std::os::unix::fs::MetadataExt::mode(&d.join("f").metadata().unwrap());
            assert_eq!(
                (read(&d.join("f")).as_str(), mode & 0o777),
                ("old\n", 0o640),
                "put back, and undone: {said}"
            );
            assert!(!d.join("n").exists(), "removed, and there again: {said}");
        }
        volume.unmount();
    }
}

/// Programs see other numbers by it than the file system has.
fn mapped_numbers(dir: &Path) {
    if !have("python3") {
        return;
    }
    let Some(volume) = with_work(dir, "ext4", "echo old >f; chown 5:6 f") else { return };
    let (work, mapped) = (volume.point.join("work"), dir.join("mapped"));
    std::fs::create_dir(&mapped).unwrap();
    let mut map = Command::new("python3");
    map.args(["-c", IDMAP]).args([&volume.point, &mapped]).arg("0 100000 65536");
    let output = map.output().unwrap();
    if !output.status.success() {
        println!("skipped: no mount with mapped numbers: {}", err(&output));
        return;
    }
    let theirs = mapped.join("work");
    let owner = |path: &Path| std::os::unix::fs::MetadataExt::uid(&path.join("f").metadata().unwrap());
    assert_eq!((owner(&work), owner(&theirs)), (5, 100_005));
    let done = shell(&theirs, "chown 100009 f");
    assert_eq!((code(&done), owner(&work)), (125, 5), "{}", err(&done));
    assert!(err(&done).contains("mapped numbers of users and groups"), "{}", err(&done));
    // Beside it, all is as ever.
    commits(&work, "chown 7 f; echo new >f");
    assert_eq!((owner(&work), owner(&theirs), read(&theirs.join("f")).as_str()), (7, 100_007, "new\n"));
    must(Command::new("umount").arg(&mapped));
    volume.forget_boot();
    recover();
    assert_eq!(owner(&work), 7);
}

/// A container that shares a volume with the machine, and of all users knows root only. It comes first after
/// a loss of power.
fn hidden_owners(dir: &Path) {
    let begin = "echo old >f; chown 5:6 f; chmod 644 f; mkdir d; chown 7 d; echo x >d/x";
    let Some(volume) = with_work(dir, "ext4", begin) else { return };
    let Some(switch) = volume.switch() else { return };
    let work = volume.point.join("work");
    commits(&work, "chown 8:9 f; chmod 600 f; rm d/x");
    commits(&work, "echo mine >own");
    switch.off();
    volume.boot();
    let inside = |words: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount"]).arg(machine::systx()).args(words);
        command.current_dir(&work).stdin(Stdio::null()).output().unwrap()
    };
    let run = ["run", "--area-name", machine::AREA, "--only", ".", "--", "sh", "-c", "echo inner >inner"];
    let done = inside(&run);
    if err(&done).contains("Operation not permitted") {
        println!("skipped: no user namespace for root: {}", err(&done));
        return;
    }
    assert_eq!((code(&done), read(&work.join("inner")).as_str()), (0, "inner\n"), "{}", err(&done));
    assert_eq!(read(&work.join("own")), "mine\n", "what it can see is done: {}", err(&done));
    let said = recover();
    let f = work.join("f").metadata().unwrap();
    let owner = (std::os::unix::fs::MetadataExt::uid(&f), std::os::unix::fs::MetadataExt::gid(&f));
    let mode = std::os::unix::fs::MetadataExt::mode(&f) & 0o777;
    let done = (owner, mode, work.join("d/x").exists());
    assert_eq!(done, ((8, 9), 0o600, false), "committed, and lost: {said}");
    assert!(!said.contains("displaced"), "{said}");
}

const FSCRYPT: &str = include_str!("machine/fscrypt.py");

/// A recovery at boot, before the login that brings the key.
fn locked_names(dir: &Path) {
    if !have("python3") {
        return;
    }
    let Some(volume) = with_work(dir, "ext4-encrypt", "mkdir in; echo plain >f") else { return };
    let work = volume.point.join("work");
    let key = |more: &[&Path]| {
        let mut python = Command::new("python3");
        python.args(["-c", FSCRYPT]).arg(&volume.point).args(more).output().unwrap()
    };
    let locks = key(&[&work.join("in")]);
    if !locks.status.success() {
        println!("skipped: no encrypted directory: {}", err(&locks));
        return;
    }
    must(
        Command::new("sh")
            .args(["-ec", "mkdir in/d; for f in moves goes stays; do echo $f >in/$f; done"])
            .current_dir(&work),
    );
    must(Command::new("sync").arg("-f").arg(&work));
    commits(&work, "mv in/moves in/d/moved; rm in/goes; echo more >>f");
    commits(&work, "echo more >>f");
    if volume.lose_cache().is_none() {
        return;
    }
    assert!(!work.join("in/stays").exists(), "its key is gone");
    let boot = verb("recover", &[]);
    assert_ne!(code(&boot), 0, "what waits for a key is told: {}", err(&boot));
    assert!(key(&[]).status.success());
    assert!(work.join("in/stays").exists() && work.join("in/goes").exists());
    recover();
    let there = ["stays", "moves", "goes", "d/moved"].map(|name| work.join("in").join(name).exists());
    assert_eq!((there, read(&work.join("f")).as_str()), ([true, false, false, true], "plain\nmore\nmore\n"));
}

/// mount(8) has it from 2.39 on.
const IDMAP: &str = include_str!("machine/idmap.py");

/// The layers are as `docker commit` makes them: the area of another machine in a lower or upper layer.
fn layers(dir: &Path) {
    let Some(volume) = with_work(dir, "ext4", "echo old >f; chmod 644 f") else { return };
    let work = volume.point.join("work");
    commits(&work, "echo new >>f; chmod 600 f");
    let at = |name: &str| volume.point.join(name);
    for name in ["lower", "upper", "scratch", "merged"] {
        std::fs::create_dir(at(name)).unwrap();
    }
    for name in ["lower", "upper"] {
        must(Command::new("cp").arg("-a").args([&volume.area(), &work]).arg(at(name)));
        must(Command::new("chmod").arg("644").arg(at(name).join("work/f")));
    }
    let options = ["lowerdir=lower,upperdir=upper,workdir=scratch"];
    let mut overlay = Command::new("mount");
    overlay.args(["-t", "overlay", "overlay", "-o"]).args(options).arg("merged").current_dir(&volume.point);
    if !overlay.output().unwrap().status.success() {
        println!("skipped: no overlay here");
        return;
    }
    let done = shell(&at("merged/work"), "echo x >f");
    assert_eq!(code(&done), 125, "no reliable handles: {}", err(&done));
    recover();
    for name in ["lower", "upper", "merged"] {
        let f = at(name).join("work/f");
        let mode = std::os::unix::fs::MetadataExt::mode(&f.metadata().unwrap());
        assert_eq!(
            (read(&f).as_str(), mode & 0o777),
            ("old\nnew\n", 0o644),
            "{name}: nothing is redone there"
        );
    }
    commits(&at("upper/work"), "echo more >>f");
    commits(&at("lower/work"), "echo more >>f");
    recover();
    assert_eq!(read(&at("upper/work/f")), "old\nnew\nmore\n");
    must(Command::new("umount").arg(at("merged")));
}

/// `usermod -u`, or a home that was moved: no user has the right to redo what is in there.
fn old_number(dir: &Path) {
    if !have("setpriv") {
        return;
    }
    let Some(volume) = with_work(dir, "ext4", "echo old >f; chmod 644 f; chown -R 61234:61234 .") else {
        return;
    };
    let home = volume.point.join("work");
    machine::user::open_fuse_to_all(dir);
    must(Command::new("chmod").arg("755").args([dir, dir.parent().unwrap()]));
    let as_user = |number: u32, args: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args([format!("--reuid={number}"), format!("--regid={number}")]).arg("--clear-groups");
        command.arg(machine::systx()).args(args).current_dir(&home).env("HOME", &home).stdin(Stdio::null());
        command.output().unwrap()
    };
    let script =
        ["run", "--area-name", machine::AREA, "--only", ".", "--", "sh", "-c", "chmod 600 f; echo made >n"];
    let done = as_user(61234, &script);
    if code(&done) == 125 {
        println!("skipped: an ordinary user can't run here: {}", err(&done));
        return;
    }
    assert_eq!(code(&done), 0, "{}", err(&done));
    must(
        Command::new("sh")
            .args(["-ec", "chown -R 61235:61235 .; chmod 644 f; rm n; sync -f ."])
            .current_dir(&home),
    );
    volume.unmount();
    volume.mount();
    let tree = || {
        let mode = std::os::unix::fs::MetadataExt::mode(&home.join("f").metadata().unwrap());
        (mode & 0o777, home.join("n").exists())
    };
    for said in [as_user(61235, &["recover", "--area-name", machine::AREA]), verb("recover", &[])] {
        assert_eq!((code(&said), tree()), (0, (0o644, false)), "{}{}", out(&said), err(&said));
    }
    let done = as_user(61235, &script);
    assert_eq!((code(&done), tree()), (0, (0o600, true)), "{}", err(&done));
}

/// The layout differs, as after an update in the same boot.
fn another_layout(dir: &Path) {
    use std::os::unix::fs::FileExt;
    let Some(volume) = with_work(dir, "ext4", "echo 0 >f") else { return };
    let work = volume.point.join("work");
    commits(&work, "echo 1 >>f");
    let older = |version: u64| {
        let table = std::fs::OpenOptions::new().write(true).open(volume.area().join("table")).unwrap();
        table.write_all_at(&version.to_le_bytes(), 8).unwrap();
    };
    let mut here = run(&work, &[], &["sh", "-c", "echo begun; read end"]);
    let mut here = here.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(here.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    older(3);
    let done = shell(&work, "echo 2 >>f");
    assert_eq!(code(&done), 125, "somebody uses it");
    assert!(err(&done).contains("the domain table has layout 3"), "{}", err(&done));
    drop(here.stdin.take());
    here.wait().unwrap();
    commits(&work, "echo 2 >>f");
    assert_eq!(read(&work.join("f")), "0\n1\n2\n");
    older(77);
    recover();
    commits(&work, "echo 3 >>f");
    assert_eq!(read(&work.join("f")), "0\n1\n2\n3\n");
}
