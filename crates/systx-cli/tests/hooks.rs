//! The hooks at boot and at login: only `systx install-hooks` installs them, and it names every file; the
//! command that they run finishes what was killed in mid-commit, reports that in one line, and else says
//! nothing.
//!
//! The boot hook is root's and looks at all file systems, so it lives in a chroot on an ext4 in a file. The
//! login hook is an ordinary user's, who has areas wherever an earlier run was.
//!
//! `cargo test -p systx-cli --test hooks [-- PART-OF-A-NAME]`

mod machine;

use machine::processes::{children, Held, Stopped};
use machine::user::{open_fuse_to_all, UNPRIVILEGED, USER};
use machine::volume::Volume;
use machine::{code, err, have, must, out, systx};
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn main() {
    machine::main(&[
        ("install_hooks_writes_the_files_that_it_names_and_no_other", install_hooks_writes_what_it_names),
        ("install_hooks_writes_all_or_nothing", install_hooks_writes_all_or_nothing),
        ("a_loss_of_power_leaves_whole_hooks_or_none", a_loss_of_power_leaves_whole_hooks_or_none),
        ("make_install_needs_no_cargo_strips_and_writes_no_hooks", make_install_writes_no_hooks),
        ("systemd_takes_the_unit_and_has_it_enabled", systemd_takes_the_unit),
        ("a_file_system_that_comes_later_is_recovered_after_its_mount", the_generator_takes_what_comes_later),
        ("a_login_finishes_what_was_killed_in_mid_commit", a_login_finishes_what_was_killed),
        ("a_login_waits_for_nothing_and_hears_nothing_but_at_a_terminal", a_login_waits_for_nothing),
        ("a_boot_finishes_what_was_killed_in_mid_commit", a_boot_finishes_what_was_killed),
        ("a_frozen_file_system_keeps_no_boot_from_the_others", a_frozen_one_keeps_no_boot_from_the_others),
    ]);
}

const UNIT: &str = "etc/systemd/system/systx-recover.service";
const WANTED: &str = "etc/systemd/system/sysinit.target.wants/systx-recover.service";
const TEMPLATE: &str = "etc/systemd/system/systx-recover@.service";
const GENERATOR: &str = "etc/systemd/system-generators/systx-recover-generator";
const LOGIN: &str = "etc/profile.d/systx.sh";

/// Everything below a directory that is none itself.
fn files(dir: &Path) -> Vec<PathBuf> {
    let found = must(Command::new("find").arg(dir).args(["!", "-type", "d"]));
    let mut files: Vec<_> = found.lines().map(PathBuf::from).collect();
    files.sort();
    files
}

fn install(program: &Path, root: &Path) -> Output {
    let output = Command::new(program).args(["install-hooks", "--root"]).arg(root).output().unwrap();
    assert_eq!((code(&output), err(&output)), (0, String::new()));
    output
}

fn install_hooks_writes_what_it_names(dir: &Path) {
    let root = dir.join("root");
    let named = |output: &Output, verbs: &[&str]| {
        let text = out(output);
        let file = |line: &str| verbs.iter().find_map(|verb| line.strip_prefix(verb)).map(PathBuf::from);
        let mut named: Vec<_> = text.lines().filter_map(file).collect();
        named.sort();
        named
    };
    let installed = install(&systx(), &root);
    assert_eq!(named(&installed, &["wrote ", "enabled "]), files(&root));
    assert_eq!(files(&root).len(), 5);
    assert!(root.join(UNIT).exists() && root.join(LOGIN).exists());
    // By a relative path as by an absolute one.
    let relative = Command::new(systx()).args(["install-hooks", "--root", "other"]).current_dir(dir).output();
    assert_eq!(code(&relative.unwrap()), 0);
    assert_eq!(files(&dir.join("other")).len(), 5);
    // Others' files stay.
    let other = root.join("etc/profile.d/other.sh");
    std::fs::write(&other, "true\n").unwrap();
    let removed = Command::new(systx()).args(["install-hooks", "--uninstall", "--root"]).arg(&root).output();
    assert_eq!(named(&removed.unwrap(), &["removed "]), named(&installed, &["wrote ", "enabled "]));
    assert_eq!(files(&root), [other]);
}

/// Obstacle that keeps a file from being written.
#[derive(Clone, Copy)]
enum InTheWay {
    SomebodysFile,
    ReadOnlyMount,
    /// A file that may be written to and not replaced, as in a container that has it from elsewhere.
    OursMountedOn,
}

impl InTheWay {
    fn put(self, place: &Path) {
        match self {
            InTheWay::SomebodysFile => {
                std::fs::create_dir_all(place.parent().unwrap()).unwrap();
                std::fs::write(place, "mine\n").unwrap();
            }
            InTheWay::ReadOnlyMount => {
                std::fs::create_dir_all(place).unwrap();
                must(Command::new("mount").arg("--bind").args([place, place]));
                must(Command::new("mount").args(["-o", "remount,bind,ro"]).arg(place));
            }
            InTheWay::OursMountedOn => {
                let ours =
                    "# Written by `systx install-hooks`; removed by `systx install-hooks --uninstall`.\n";
                std::fs::create_dir_all(place.parent().unwrap()).unwrap();
                std::fs::write(place, ours).unwrap();
                must(Command::new("mount").arg("--bind").args([place, place]));
            }
        }
    }
}

/// Whatever is in the way of any of the files: nothing of the others is written, and no directory made.
fn install_hooks_writes_all_or_nothing(dir: &Path) {
    use InTheWay::{OursMountedOn, ReadOnlyMount, SomebodysFile};
    let (wants, profiles) = ("etc/systemd/system/sysinit.target.wants", "etc/profile.d");
    let cases = [
        (LOGIN, SomebodysFile),
        (LOGIN, OursMountedOn),
        (UNIT, SomebodysFile),
        (GENERATOR, SomebodysFile),
        (profiles, SomebodysFile),
        (profiles, ReadOnlyMount),
        (wants, SomebodysFile),
        (wants, ReadOnlyMount),
    ];
    for (n, (place, obstacle)) in cases.into_iter().enumerate() {
        let root = dir.join(format!("root{n}"));
        let place = root.join(place);
        obstacle.put(&place);
        let all = || must(Command::new("find").arg(&root).args(["-printf", "%y %p\\n"]));
        let before = all();
        let output = Command::new(systx()).args(["install-hooks", "--root"]).arg(&root).output().unwrap();
        assert_eq!((code(&output), out(&output).as_str()), (125, ""), "{}", err(&output));
        assert!(err(&output).contains(place.to_str().unwrap()), "{}", err(&output));
        assert_eq!(all(), before);
    }
}

/// An empty file would for ever count as another program's, and as a unit say that this one is not to run.
fn a_loss_of_power_leaves_whole_hooks_or_none(dir: &Path) {
    let Some(volume) = Volume::new(dir, "ext4", 64) else { return };
    let Some(switch) = volume.switch() else { return };
    install(&systx(), &volume.point);
    // The fsync of another file brings the new names to the device.
    std::fs::File::create(volume.point.join("other")).unwrap().sync_all().unwrap();
    switch.off();
    volume.unmount();
    volume.mount();
    for path in [UNIT, TEMPLATE, LOGIN] {
        let text = std::fs::read_to_string(volume.point.join(path)).unwrap();
        assert!(text.contains(systx().to_str().unwrap()), "{path}: {text:?}");
    }
    install(&systx(), &volume.point);
}

fn make_install_writes_no_hooks(dir: &Path) {
    if !have("make") {
        return;
    }
    // The Makefile's own words, with the program that is there in place of one that would be built, and any files for
    // the library.
    let (built, library) = (dir.join("target/release"), dir.join("target/library"));
    std::fs::create_dir_all(&built).unwrap();
    std::fs::create_dir_all(&library).unwrap();
    std::fs::copy(systx(), built.join("systx")).unwrap();
    for name in ["libsystx.a", "libsystx.so.0"] {
        std::fs::write(library.join(name), name).unwrap();
    }
    let to = dir.join("to");
    // Root has no cargo.
    let make = |target: &Path| {
        let mut make = Command::new("make");
        make.args([
            "-C",
            concat!(env!("CARGO_MANIFEST_DIR"), "/../.."),
            "install",
            "PREFIX=/usr",
            "CARGO=/none",
        ]);
        make.arg(format!("DESTDIR={}", to.display())).env("CARGO_TARGET_DIR", target);
        make.env_remove("MAKEFLAGS").env_remove("MAKELEVEL").output().unwrap()
    };
    let none = make(&dir.join("none"));
    assert_ne!(code(&none), 0);
    assert!(err(&none).contains("run make first, as the user who has cargo"), "{}", err(&none));
    assert!(!to.exists(), "nothing is installed");
    let made = make(&dir.join("target"));
    assert_eq!(code(&made), 0, "{}", err(&made));
    let bytes = |path: &Path| std::fs::metadata(path).unwrap().len();
    let stripped = bytes(&to.join("usr/bin/systx"));
    assert!(!have("strip") || stripped * 2 < bytes(&built.join("systx")), "{stripped} bytes");
    must(Command::new(to.join("usr/bin/systx")).arg("--version"));
    let files = files(&to);
    assert!(files.contains(&to.join("usr/bin/systx")), "{files:?}");
    for file in files {
        let place = file.strip_prefix(&to).unwrap();
        let known = ["usr/bin", "usr/share", "usr/lib", "usr/include"];
        assert!(known.iter().any(|known| place.starts_with(known)), "{}", place.display());
        let name = place.to_str().unwrap();
        assert!(!name.contains("systemd") && !name.contains("profile.d"), "{name}");
    }
}

/// Returns the output of `systemd-analyze verify` about a unit.
fn said(unit: &Path) -> String {
    let verify = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(unit).output().unwrap();
    let name = unit.file_name().unwrap().to_str().unwrap();
    // Not of the machine's others.
    let text = out(&verify) + &err(&verify);
    text.lines().filter(|line| line.contains(name)).map(|line| format!("{line}\n")).collect()
}

fn systemd_takes_the_unit(dir: &Path) {
    if !have("systemd-analyze") || !have("systemctl") {
        return;
    }
    let root = dir.join("root");
    install(&systx(), &root);
    let unit = root.join(UNIT);
    assert_eq!(said(&unit), "");
    let text = std::fs::read_to_string(&unit).unwrap();
    for (right, wrong) in [("After=", "Aftre="), ("oneshot", "once"), ("ExecStart=\"/", "ExecStart=\"/none/")]
    {
        assert!(text.contains(right));
        std::fs::write(&unit, text.replace(right, wrong)).unwrap();
        assert_ne!(said(&unit), "", "{wrong} is not noticed here");
    }
    // Everything that a failure or a hang of it must not hold up.
    let has = |line: &str| assert!(text.lines().any(|l| l == line), "{line}: {text}");
    for line in [
        "DefaultDependencies=no",
        "After=local-fs.target",
        "Before=sysinit.target systemd-tmpfiles-setup.service shutdown.target",
        "TimeoutStartSec=90",
        "WantedBy=sysinit.target",
    ] {
        has(line);
    }
    assert!(!text.contains("Requires="), "{text}");
    // Checked in an instance: a template itself does not run.
    let instance = root.join("etc/systemd/system/systx-recover@mnt-a.service");
    std::fs::copy(root.join(TEMPLATE), &instance).unwrap();
    assert_eq!(said(&instance), "");
    std::fs::remove_file(instance).unwrap();
    std::fs::write(&unit, text).unwrap();
    let enabled = || {
        let mut systemctl = Command::new("systemctl");
        out(&systemctl
            .arg("--root")
            .arg(&root)
            .args(["is-enabled", "systx-recover.service"])
            .output()
            .unwrap())
    };
    assert_eq!(enabled(), "enabled\n");
    std::fs::remove_file(root.join(WANTED)).unwrap();
    assert_eq!(enabled(), "disabled\n");
}

/// File systems that a boot waits for are recovered by the boot's unit; those that may come later by a unit
/// of their mount.
fn the_generator_takes_what_comes_later(dir: &Path) {
    if !have("systemd-escape") {
        return;
    }
    let root = dir.join("root");
    install(&systx(), &root);
    let (fstab, to) = (dir.join("fstab"), dir.join("to"));
    let lines = "# a comment with /mnt/none ext4 nofail\n\
        #/dev/sdx /mnt/off ext4 nofail 0 2\n\
        UUID=1 / ext4 errors=remount-ro 0 1\n\
        UUID=2 /home ext4 defaults 0 2\n\
        UUID=3 none swap sw,nofail 0 0\n\
        UUID=4 /mnt/with\\040space xfs rw,nofail 0 2\n\
        UUID=5\t/srv\tbtrfs\tnoauto,x-systemd.automount\t0\t0\n\
        \n\
        net:/x /net nfs _netdev 0 0";
    std::fs::write(&fstab, format!("{lines}\n")).unwrap();
    let generate = |fstab: &Path| {
        let mut generator = Command::new(root.join(GENERATOR));
        let done = generator.args([&to, &to, &to]).env("SYSTEMD_FSTAB", fstab).output().unwrap();
        is_silent(&done);
    };
    generate(&fstab);
    let found: Vec<_> =
        files(&to).iter().map(|file| file.strip_prefix(&to).unwrap().to_str().unwrap().to_owned()).collect();
    let instance = |name: &str| format!("{name}.mount.wants/systx-recover@{name}.service");
    assert_eq!(found, ["mnt-with\\x20space", "net", "srv"].map(instance));
    for file in files(&to) {
        assert_eq!(std::fs::read_link(file).unwrap(), Path::new("/").join(TEMPLATE));
    }
    // A boot's second run, and a machine without the file.
    generate(&fstab);
    generate(&dir.join("none"));
    assert_eq!(files(&to).len(), 3);
}

const NAMES: usize = 8;
const SETUP: &str = "rm -rf deep stays goes; mkdir deep; echo old >stays; echo old >goes";
/// New names in a directory that is there, a file changed in place, and one that goes: steps of several kinds.
const SCRIPT: &str =
    "for i in 0 1 2 3 4 5 6 7; do echo new $i >deep/f$i; done; echo in place >>stays; rm goes";

fn published(tree: &Path) -> usize {
    (0..NAMES).filter(|n| tree.join(format!("deep/f{n}")).exists()).count()
}

fn is_whole(tree: &Path) {
    assert_eq!(published(tree), NAMES);
    assert_eq!(std::fs::read_to_string(tree.join("stays")).unwrap(), "old\nin place\n");
    assert!(!tree.join("goes").exists());
}

/// Kills a run of [`SCRIPT`] with some names published, and some not, together with its helper. False: it can't
/// be done here.
fn cut_off(dir: &Path, tree: &Path, run: &dyn Fn(&str) -> Command) -> bool {
    if !have("strace") {
        return false;
    }
    for n in 1.. {
        let setup = run(SETUP).output().unwrap();
        assert_eq!(code(&setup), 0, "{}", err(&setup));
        let stopped = Stopped::after(dir, &run(SCRIPT), "renameat2", n);
        let stopped = stopped.unwrap_or_else(|o| panic!("never in mid-publication: {}", err(&o)));
        match published(tree) {
            0 => assert_eq!(code(&stopped.go_on()), 0),
            NAMES => panic!("all were published at once"),
            done => {
                let family = children(stopped.owner.pid);
                family.iter().for_each(Held::kill);
                stopped.owner.kill();
                stopped.go_on();
                family.iter().for_each(Held::gone);
                assert_eq!(published(tree), done, "somebody has gone on");
                return true;
            }
        }
    }
    false
}

/// Well, and with one line: that something was finished, and where.
fn tells_what_it_finished(output: &Output, place: &str) {
    let line = format!("{place}: 1 committed finished, 0 aborted taken back\n");
    assert_eq!((code(output), out(output), err(output)), (0, line, String::new()));
}

/// Well, and without a word.
fn is_silent(output: &Output) {
    assert_eq!((code(output), out(output), err(output)), (0, String::new(), String::new()));
}

fn a_login_finishes_what_was_killed(dir: &Path) {
    let Some(volume) = Volume::new(dir, "ext4", 64) else { return };
    let (home, tree) = (dir.join("home"), volume.point.join("user/tree"));
    std::fs::create_dir_all(&tree).unwrap();
    std::fs::create_dir(&home).unwrap();
    for own in [&home, tree.parent().unwrap(), &tree] {
        chown(own, Some(USER), Some(USER)).unwrap();
    }
    // Where it was built others may have no way to it.
    let program = dir.join("bin/systx");
    std::fs::create_dir(dir.join("bin")).unwrap();
    std::fs::copy(systx(), &program).unwrap();
    open_fuse_to_all(dir);
    let as_user = |words: &[&str]| {
        let words: Vec<_> = UNPRIVILEGED.iter().chain(words).collect();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).current_dir(&tree).stdin(Stdio::null());
        command.env("HOME", &home).env_remove("XDG_STATE_HOME");
        command
    };
    install(&program, dir);
    let script = dir.join(LOGIN);
    // At a terminal, as a person's shell; the pipe ends with whatever the hook has started.
    let shell = format!("sh -ic '{{ . {}; }} 9>&1 | cat >/dev/null'", script.display());
    let login = || as_user(&["script", "-qec", &shell, "/dev/null"]).output().unwrap();
    // Of a user who never used it.
    is_silent(&login());
    assert_eq!(std::fs::read_dir(&home).unwrap().count(), 0);
    let run =
        |script: &str| as_user(&[program.to_str().unwrap(), "run", "--only", ".", "--", "sh", "-c", script]);
    if cut_off(dir, &tree, &run) {
        let place = tree.parent().unwrap().display();
        let line = format!("{place}: 1 committed finished, 0 aborted taken back\r\n");
        let told = login();
        assert_eq!((code(&told), out(&told)), (0, line));
        is_whole(&tree);
        is_silent(&login());
    }
    must(Command::new("umount").arg("/dev/fuse"));
    // A program that is gone is no error of everybody's login.
    std::fs::remove_file(&program).unwrap();
    is_silent(&login());
}

/// The reason why a script logs in is the script's own; and no login, not even root's, waits for a file
/// system.
fn a_login_waits_for_nothing(dir: &Path) {
    let (home, bin) = (dir.join("home"), dir.join("bin"));
    for own in [&home, &bin] {
        std::fs::create_dir(own).unwrap();
        chown(own, Some(USER), Some(USER)).unwrap();
    }
    let program = bin.join("systx");
    std::fs::copy(systx(), &program).unwrap();
    install(&program, dir);
    let (script, begun) = (dir.join(LOGIN), bin.join("begun"));
    let text = std::fs::read_to_string(&script).unwrap();
    assert!(text.contains("timeout -k 5 60"), "bounded: {text}");
    // It says that it was started, and waits for ever.
    let wait = "#!/bin/sh\necho \"$$ $*\" >\"${0%/*}/begun\"; echo words; exec sleep 1000\n";
    std::fs::remove_file(&program).unwrap();
    std::fs::write(&program, wait).unwrap();
    must(Command::new("chmod").arg("755").arg(&program));
    must(Command::new("mkfifo").args(["-m", "666"]).arg(&begun));
    let plain = format!("sh -c '. {}; echo logged in'", script.display());
    let person = format!("sh -ic '. {}; echo logged in'", script.display());
    let login = |words: &[&str]| {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).stdin(Stdio::null()).env("HOME", &home).current_dir(dir);
        command.output().unwrap()
    };
    let user = |words: &[&str]| login(&[&UNPRIVILEGED[..], words].concat());
    // Were it started, it would wait for a reader of the FIFO, and its words be among these.
    let silent = |output: &Output| {
        assert_eq!((code(output), out(output).trim_end(), err(output).as_str()), (0, "logged in", ""));
    };
    silent(&user(&["sh", "-c", &format!(". {}; echo logged in", script.display())]));
    silent(&user(&["script", "-qec", &plain, "/dev/null"]));
    silent(&login(&["script", "-qec", &person, "/dev/null"]));
    // A person: the shell goes on once it is started, which is what it says by the FIFO, and does not wait for its end.
    let person =
        format!("sh -ic '. {}; read -r words <{}; echo \"$words\"'", script.display(), begun.display());
    let output = user(&["script", "-qec", &person, "/dev/null"]);
    let told = out(&output);
    let (pid, words) = told.lines().find_map(|line| line.split_once(' ')).expect("it was started");
    must(Command::new("kill").arg(pid));
    assert_eq!(words, "recover --quiet");
}

/// A root with systx in `opt` and its hooks, and a command in there, at `/work`.
fn machine_with_hooks(root: &Path) -> impl Fn(&[&str]) -> Command + '_ {
    machine::programs_below(root);
    for name in ["proc", "dev"] {
        std::fs::create_dir(root.join(name)).unwrap();
        must(Command::new("mount").arg("--bind").arg(Path::new("/").join(name)).arg(root.join(name)));
    }
    for name in ["opt", "work"] {
        std::fs::create_dir(root.join(name)).unwrap();
    }
    std::fs::copy(systx(), root.join("opt/systx")).unwrap();
    let inside = move |words: &[&str]| {
        let mut chroot = Command::new("chroot");
        chroot.arg(root).args(["env", "-C", "/work"]).args(words);
        chroot.env("PATH", "/opt:/usr/sbin:/usr/bin:/sbin:/bin").stdin(Stdio::null());
        chroot
    };
    let installed = inside(&["/opt/systx", "install-hooks"]).output().unwrap();
    assert_eq!(code(&installed), 0, "{}", err(&installed));
    inside
}

/// Returns the command that the boot's unit runs.
fn start_of_unit(root: &Path) -> String {
    let unit = std::fs::read_to_string(root.join(UNIT)).unwrap();
    let starts: Vec<_> = unit.lines().filter_map(|line| line.strip_prefix("ExecStart=")).collect();
    assert_eq!(starts.len(), 1, "{unit}");
    starts[0].to_owned()
}

/// A file system that waits keeps waiting who writes to it, beyond any signal. So it must not be this one's
/// recovery that waits.
fn a_frozen_one_keeps_no_boot_from_the_others(dir: &Path) {
    if !have("fsfreeze") {
        return;
    }
    let Some(volume) = Volume::new(dir, "ext4", 96) else { return };
    let Some(later) = Volume::new(dir, "xfs", 320) else { return };
    let root = &volume.point;
    let inside = machine_with_hooks(root);
    for (name, from) in [("later", later.point.as_path()), ("sys", Path::new("/sys"))] {
        std::fs::create_dir(root.join(name)).unwrap();
        must(Command::new("mount").arg("--bind").arg(from).arg(root.join(name)));
    }
    for at in ["/work", "/later"] {
        let run = |script: &str| {
            let script = format!("cd {at}; {script}");
            inside(&["/opt/systx", "run", "--only", at, "--", "sh", "-c", &script])
        };
        let beside = dir.join(&at[1..]);
        std::fs::create_dir(&beside).unwrap();
        if !cut_off(&beside, &root.join(&at[1..]), &run) {
            return;
        }
    }
    let start = start_of_unit(root);
    let boot = || inside(&["sh", "-c", &start]).output().unwrap();
    // Thaws in the end, whatever becomes of this test: who waits for a frozen file system can't be killed.
    let thaw =
        format!("trap 'fsfreeze -u {0}' EXIT; fsfreeze -f {0}; echo; read -t 60 _", later.point.display());
    let mut daemon = Command::new("bash");
    daemon.args(["-c", &thaw]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut daemon = daemon.spawn().unwrap();
    let mut frozen = [0];
    std::io::Read::read_exact(daemon.stdout.as_mut().unwrap(), &mut frozen).unwrap();
    let told = boot();
    assert_eq!((code(&told), out(&told).as_str()), (1, "/: 1 committed finished, 0 aborted taken back\n"));
    assert!(err(&told).starts_with("systx: /later: no answer within "), "{}", err(&told));
    assert_eq!(err(&told).lines().count(), 1);
    is_whole(&root.join("work"));
    let listed = inside(&["/opt/systx", "list"]).output().unwrap();
    assert!(err(&listed).starts_with("systx: /later: no answer within "), "{}", err(&listed));
    drop(daemon.stdin.take());
    daemon.wait().unwrap();
    tells_what_it_finished(&boot(), "/later");
    is_whole(&root.join("later"));
    // To look is to make no disk work; the tries of a recovery, which may sync, are seen by the same means.
    for (verb, syncs) in [("list", 0), ("status", 0), ("log", 0), ("recover", 2)] {
        let calls = dir.join(verb);
        let mut strace = Command::new("strace");
        strace
            .args(["-f", "-qq", "-e", "trace=fsync,fdatasync,syncfs,sync,msync,sync_file_range", "-o"])
            .arg(&calls);
        let words = inside(&["/opt/systx", verb]);
        must(strace.arg(words.get_program()).args(words.get_args()));
        let calls = std::fs::read_to_string(calls).unwrap();
        let begun = calls.lines().filter(|call| call.contains("sync(") || call.contains("syncfs("));
        assert_eq!(begun.count(), syncs, "{verb}: {calls}");
    }
}

fn a_boot_finishes_what_was_killed(dir: &Path) {
    let Some(volume) = Volume::new(dir, "ext4", 96) else { return };
    let root = &volume.point;
    let inside = machine_with_hooks(root);
    let start = start_of_unit(root);
    let boot = || inside(&["sh", "-c", &start]).output().unwrap();
    is_silent(&boot());
    assert!(!root.join(".systx").exists(), "a boot makes no area");
    // systemd runs, and is asked by a program of ours.
    let asked = root.join("opt/asked");
    std::fs::create_dir_all(root.join("run/systemd/system")).unwrap();
    std::fs::write(root.join("opt/systemctl"), "#!/bin/sh\necho \"$*\" >>/opt/asked\n").unwrap();
    must(Command::new("chmod").arg("755").arg(root.join("opt/systemctl")));
    // Units are read again if some of them were half published, and not for anything else.
    for (served, asks) in [("work", None), ("etc/systemd/system", Some("daemon-reload\n"))] {
        let at = format!("/{served}");
        let run = |script: &str| {
            let script = format!("cd {at}; {script}");
            inside(&["/opt/systx", "run", "--only", &at, "--", "sh", "-c", &script])
        };
        let beside = dir.join(served.replace('/', "-"));
        std::fs::create_dir(&beside).unwrap();
        if cut_off(&beside, &root.join(served), &run) {
            tells_what_it_finished(&boot(), "/");
            is_whole(&root.join(served));
            assert_eq!(std::fs::read_to_string(&asked).ok().as_deref(), asks);
            is_silent(&boot());
        }
    }
}
