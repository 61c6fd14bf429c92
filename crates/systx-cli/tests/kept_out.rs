//! Ways in which users can try to keep root, or each other, from transactions: names taken, file systems
//! filled, servers that never answer, disks with areas of their own making. Root's run goes on without such a
//! file system, read-only, and says so; `recover`, `list` and `status` make no area, wait for no user, and go
//! on with the others.
//!
//! Each case has a root of its own: an ext4 in a file, and on it a tmpfs in which all may make names.
//!
//! `cargo test -p systx-cli --test kept_out [-- PART-OF-A-NAME]`

mod machine;

use machine::user::{UNPRIVILEGED, USER};
use machine::volume::Volume;
use machine::{code, err, must, out, programs_below, systx, Case};
use std::os::unix::fs::{chown, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

fn main() {
    let cases: &[(&str, Case)] = &[
        ("a_file_of_roots_under_the_areas_name_is_moved_away", a_file_of_roots_is_moved_away),
        ("a_mount_on_the_areas_name_leaves_the_file_system_out", a_mount_on_the_name),
        ("a_full_file_system_is_left_out", a_full_file_system_is_left_out),
        ("a_file_system_that_fails_stays_where_it_is", a_file_system_that_fails),
        ("verbs_make_no_area_and_go_on_with_the_others", verbs_make_no_area),
        ("a_server_that_never_answers_keeps_nobody_waiting", a_server_that_never_answers),
        ("a_disk_of_others_with_an_area_of_roots_reaches_nothing_else", a_disk_of_others),
        ("a_damaged_area_on_a_disk_of_others_leaves_it_out", a_damaged_area_on_a_disk_of_others),
    ];
    machine::main(cases);
}

/// Far more than anything takes here that does not wait for a user.
const PATIENCE: Duration = Duration::from_secs(60);

struct World {
    _volume: Volume,
    dir: PathBuf,
    root: PathBuf,
    /// A directory that is open to all, at the top of a file system.
    open: PathBuf,
}

impl World {
    fn new(dir: &Path) -> Option<World> {
        let volume = Volume::new(dir, "ext4", 96)?;
        let root = volume.point.clone();
        programs_below(&root);
        let mount = |options: &[&str], at: &str| {
            std::fs::create_dir(root.join(at)).unwrap();
            must(Command::new("mount").args(options).arg(root.join(at)));
        };
        mount(&["-t", "proc", "none"], "proc");
        mount(&["--rbind", "/dev"], "dev");
        mount(&["-t", "tmpfs", "-o", "mode=1777,size=8m", "none"], "open");
        for name in ["opt", "work", "home", "tmp"] {
            std::fs::create_dir(root.join(name)).unwrap();
        }
        std::fs::set_permissions(root.join("tmp"), PermissionsExt::from_mode(0o1777)).unwrap();
        chown(root.join("home"), Some(USER), Some(USER)).unwrap();
        std::fs::copy(systx(), root.join("opt/systx")).unwrap();
        Some(World { open: root.join("open"), _volume: volume, dir: dir.into(), root })
    }

    fn inside(&self, words: &[&str]) -> Command {
        let mut chroot = Command::new("chroot");
        chroot.arg(&self.root).args(["env", "-C", "/work"]).args(words);
        chroot.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("HOME", "/home").stdin(Stdio::null());
        chroot
    }

    fn root(&self, words: &[&str]) -> Output {
        ends(self.inside(&[&["/opt/systx"], words].concat()))
    }

    fn run(&self, script: &str) -> Output {
        self.root(&["run", "--", "sh", "-c", script])
    }

    fn user(&self, words: &[&str]) -> Output {
        ends(self.inside(&[&UNPRIVILEGED[..], words].concat()))
    }

    /// Root's run commits without the open directory, which is read-only inside, and says so.
    fn goes_on_without(&self, at: &str, why: &str) {
        let ran = self.run(&format!("echo new >> /work/made; echo no > {at}/made; test ! -e {at}/made"));
        let said = err(&ran);
        assert_eq!(
            (code(&ran), std::fs::read(self.root.join("work/made")).unwrap()),
            (0, b"new\n".to_vec()),
            "{said}"
        );
        let told = said.lines().any(|line| {
            line.starts_with(&format!("systx: {at} is read-only inside: ")) && line.contains(why)
        });
        assert!(told, "{said}");
    }
}

/// To its end, which is soon.
fn ends(mut command: Command) -> Output {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let begin = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begin.elapsed() > PATIENCE {
            let _ = child.kill();
            panic!("{command:?} waits for somebody");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

/// A FUSE of a user's that everybody may enter and that never answers.
struct Silent(Child, PathBuf);

impl Silent {
    fn mount(at: &Path, uid: u32) -> Silent {
        let script = format!(
            "exec 3<>/dev/fuse; mount -i -t fuse -o fd=3,rootmode=40000,user_id={uid},group_id={uid},allow_other none \"$0\" && \
             echo mounted && exec cat"
        );
        let mut server = Command::new("sh");
        server.args(["-c", &script]).arg(at).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut server = server.spawn().unwrap();
        let mut word = [0; 8];
        std::io::Read::read_exact(server.stdout.as_mut().unwrap(), &mut word).expect("a FUSE is mounted");
        Silent(server, at.into())
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        // Processes that wait for it get an error then.
        let _ = self.0.kill();
        let _ = self.0.wait();
        let _ = Command::new("umount").arg("-l").arg(&self.1).output();
    }
}

fn a_file_of_roots_is_moved_away(dir: &Path) {
    let Some(w) = World::new(dir) else { return };
    // Root has made it in a directory of the user's.
    let (theirs, area) = (w.open.join("theirs"), w.open.join(".systx"));
    std::fs::create_dir(&theirs).unwrap();
    chown(&theirs, Some(USER), Some(USER)).unwrap();
    std::fs::write(theirs.join("log"), "root's\n").unwrap();
    assert_eq!(code(&w.user(&["mv", "/open/theirs/log", "/open/.systx"])), 0);
    let ran = w.run("echo new > /open/made");
    assert!(code(&ran) == 0 && err(&ran).contains("/open/.systx.foreign-"), "{}", err(&ran));
    assert!(area.is_dir() && w.open.join("made").exists());
    let names = std::fs::read_dir(&w.open).unwrap().map(|entry| entry.unwrap());
    let moved = names.filter(|entry| entry.file_name().to_string_lossy().starts_with(".systx.foreign-"));
    let moved: Vec<_> = moved.map(|entry| std::fs::read_to_string(entry.path()).unwrap()).collect();
    assert_eq!(moved, ["root's\n"]);
}

fn a_mount_on_the_name(dir: &Path) {
    let Some(w) = World::new(dir) else { return };
    let area = w.open.join(".systx");
    std::fs::create_dir(&area).unwrap();
    chown(&area, Some(USER), Some(USER)).unwrap();
    let silent = Silent::mount(&area, USER);
    w.goes_on_without("/open", "/open/.systx");
    for verb in [&["recover"][..], &["list"], &["status"], &["log"], &["prune", "--yes"]] {
        let output = w.root(verb);
        assert_eq!((code(&output), err(&output).as_str()), (0, ""), "{verb:?}");
    }
    drop(silent);
    let ran = w.run("echo new > /open/made");
    assert!(code(&ran) == 0 && w.open.join("made").exists(), "{}", err(&ran));
}

fn fill(w: &World) {
    // To the last page; some kernels keep none for names.
    let full = w.user(&["sh", "-c", "dd if=/dev/zero of=/open/full bs=4096 2>/dev/null; i=0; while echo x > /open/n$i; do i=$((i+1)); done 2>/dev/null"]);
    assert_eq!(code(&full), 0, "{}", err(&full));
}

fn a_full_file_system_is_left_out(dir: &Path) {
    let Some(w) = World::new(dir) else { return };
    fill(&w);
    w.goes_on_without("/open", "No space left on device");
    // The files that the try has left there are no area.
    for verb in ["recover", "list", "status"] {
        let output = w.root(&[verb]);
        assert_eq!((code(&output), err(&output).as_str()), (0, ""), "{verb}");
    }
    std::fs::remove_file(w.open.join("full")).unwrap();
    let ran = w.run("echo new > /open/made");
    assert!(code(&ran) == 0 && err(&ran).is_empty() && w.open.join("made").exists(), "{}", err(&ran));
    // One that is there already has its table and log.
    fill(&w);
    let ran = w.run("rm /open/made");
    assert!(code(&ran) == 0 && err(&ran).is_empty() && !w.open.join("made").exists(), "{}", err(&ran));
    // Behind a reboot they are made anew.
    std::fs::remove_file(w.open.join(".systx/table")).unwrap();
    fill(&w);
    std::fs::remove_file(w.root.join("work/made")).unwrap();
    w.goes_on_without("/open", "No space left on device");
}

/// Without it a command would change the directory that it is mounted on.
fn a_file_system_that_fails(dir: &Path) {
    let Some(w) = World::new(dir) else { return };
    let Some(volume) = Volume::new(dir, "xfs", 320) else { return };
    let Some(switch) = volume.switch() else { return };
    let below = w.root.join("failing");
    std::fs::create_dir(&below).unwrap();
    must(Command::new("mount").arg("--bind").arg(&volume.point).arg(&below));
    assert_eq!(code(&w.run("echo new > /failing/made")), 0);
    switch.off();
    let ran = w.run("ls /failing/made 2>/dev/null; echo $?; echo no > /failing/made");
    assert_eq!((out(&ran).as_str(), code(&ran)), ("2\n", 2), "{}", err(&ran));
    let ran = w.run("echo here > /work/here");
    assert!(code(&ran) == 0 && w.root.join("work/here").exists(), "{}", err(&ran));
    for verb in ["recover", "list", "status", "log"] {
        let output = w.root(&[verb]);
        let told = err(&output).contains("/failing: it can't be looked at");
        assert!(code(&output) == 1 && told, "{verb}: {}", err(&output));
    }
    must(Command::new("umount").arg("-l").arg(&below));
    assert_eq!(std::fs::read_dir(&below).unwrap().count(), 0, "under the mount");
}

fn verbs_make_no_area(dir: &Path) {
    let Some(w) = World::new(dir) else { return };
    assert_eq!(code(&w.run("echo > made")), 0);
    // One that was never finished, and one that another user may have changed.
    std::fs::remove_dir_all(w.open.join(".systx")).unwrap();
    std::fs::create_dir(w.open.join(".systx")).unwrap();
    std::fs::set_permissions(w.open.join(".systx"), PermissionsExt::from_mode(0o700)).unwrap();
    let all = |expected: i32| {
        for verb in ["recover", "list", "status", "log"] {
            let output = w.root(&[verb]);
            assert_eq!(code(&output), expected, "{verb}: {}", err(&output));
            assert!(verb == "list" || out(&output).contains('/'), "{verb} goes on with the others");
        }
        assert_eq!(std::fs::read_dir(w.open.join(".systx")).unwrap().count(), 0);
    };
    all(0);
    std::fs::set_permissions(w.open.join(".systx"), PermissionsExt::from_mode(0o777)).unwrap();
    all(1);
}

fn a_server_that_never_answers(dir: &Path) {
    let Some(w) = World::new(dir) else { return };
    machine::user::open_fuse_to_all(&w.dir);
    must(Command::new("mount").arg("--bind").arg(w.dir.join("fuse")).arg(w.root.join("dev/fuse")));
    let other = USER + 1;
    for (at, uid) in [("mounted", other), (&*format!("tmp/.systx-{USER}"), other), ("tmp/systx", other)] {
        let at = w.root.join(at);
        std::fs::create_dir(&at).unwrap();
        chown(&at, Some(uid), Some(uid)).unwrap();
        let silent = Silent::mount(&at, uid);
        for verb in ["recover", "list", "status"] {
            for output in [w.root(&[verb]), w.user(&["/opt/systx", verb])] {
                assert_eq!((code(&output), err(&output).as_str()), (0, ""), "{verb} beside {}", at.display());
            }
        }
        let ran = w.run("echo new > /work/made");
        assert_eq!((code(&ran), err(&ran).as_str()), (0, ""), "beside {}", at.display());
        // And where only the name is taken.
        drop(silent);
        for verb in ["recover", "list", "status"] {
            let output = w.user(&["/opt/systx", verb]);
            assert_eq!((code(&output), err(&output).as_str()), (0, ""), "{verb} with {}", at.display());
        }
    }
}

/// A disk whose maker is root on another machine, as every user is on their own; here mounted as desktops do.
fn disk(w: &World, make: impl Fn(&Path)) {
    let parts = w.dir.join("elsewhere");
    std::fs::create_dir(&parts).unwrap();
    let volume = Volume::new(&parts, "ext4", 32).unwrap();
    make(&volume.point);
    must(Command::new("umount").arg(&volume.point));
    let at = w.root.join("disk");
    std::fs::create_dir(&at).unwrap();
    must(Command::new("mount").args(["-o", "loop,nosuid,nodev"]).arg(&volume.image).arg(at));
}

fn a_disk_of_others(dir: &Path) {
    let Some(w) = World::new(dir) else { return };
    let secret = w.root.join("work/secret");
    std::fs::write(&secret, "root's\n").unwrap();
    let before = std::fs::metadata(&secret).unwrap();
    // A log of commits that are to be redone, of files whose numbers are those of root's files on this machine, too.
    disk(&w, |point| {
        for n in 0..40 {
            std::fs::write(point.join(format!("f{n}")), "old\n").unwrap();
        }
        let script = "for f in f*; do echo forged > $f; chown 61234 $f; chmod 4777 $f; done; ln -s /work l; mkdir work; echo forged > work/secret";
        let run = Command::new(systx())
            .args(["run", "--only"])
            .arg(point)
            .args(["--", "sh", "-c", script])
            .current_dir(point)
            .output();
        assert_eq!(code(&run.unwrap()), 0);
        // And now once more: the table is not that of this machine.
        for name in ["l", "work"] {
            must(Command::new("rm").arg("-r").arg(point.join(name)));
        }
        must(Command::new("sh").args(["-c", "chmod 644 f*"]).current_dir(point));
        must(Command::new("rm").args(["table", "owners"]).current_dir(point.join(".systx")));
    });
    let picture = || {
        let list = "find . -xdev -not -path './.systx*' -not -name opt -printf '%p %m %u %s %l\\n' | sort; cat work/*";
        must(Command::new("sh").args(["-c", list]).current_dir(&w.root))
    };
    let machine = picture();
    let recovered = w.root(&["recover"]);
    assert!(code(&recovered) < 2, "{}", err(&recovered));
    assert_eq!(picture(), machine, "{}", out(&recovered));
    let ran = w.run("cat /work/secret");
    assert_eq!((code(&ran), out(&ran).as_str()), (0, "root's\n"), "{}", err(&ran));
    let after = std::fs::metadata(&secret).unwrap();
    assert_eq!((before.ino(), before.mode(), before.uid()), (after.ino(), after.mode(), after.uid()));
}

fn a_damaged_area_on_a_disk_of_others(dir: &Path) {
    let Some(w) = World::new(dir) else { return };
    disk(&w, |point| {
        let run = Command::new(systx())
            .args(["run", "--only"])
            .arg(point)
            .args(["--", "touch", "f"])
            .current_dir(point)
            .output();
        assert_eq!(code(&run.unwrap()), 0);
        std::fs::write(point.join(".systx/table"), vec![0xa5; 200_000]).unwrap();
        must(
            Command::new("sh")
                .args(["-c", "rm -r owners; mkdir owners; rm -r log/*; mkdir log/0000000000000001"])
                .current_dir(point.join(".systx")),
        );
    });
    w.goes_on_without("/disk", "/disk");
    let recovered = w.root(&["recover"]);
    assert!(
        code(&recovered) == 1 && out(&recovered).contains("/: "),
        "{}{}",
        out(&recovered),
        err(&recovered)
    );
}
