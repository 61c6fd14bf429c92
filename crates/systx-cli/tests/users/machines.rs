//! Limits that a machine sets to an ordinary user, and what `systx doctor` shows that user.

use super::machine::user::{ORDINARY, USER};
use super::machine::{code, err, have, must, out, systx, Case, AREA};
use super::world::{sized, world};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

pub const ALL: &[(&str, Case)] = &[
    ("a_forbidden_user_namespace_is_told_with_its_remedy", a_forbidden_user_namespace_is_told),
    (
        "a_capability_of_the_program_file_makes_the_namespace_and_nothing_else",
        a_capability_makes_the_namespace,
    ),
    (
        "fusermount3_mounts_for_everybody_and_there_is_no_mount_namespace_without_a_user_namespace",
        fusermount3_mounts_for_everybody,
    ),
    ("a_device_that_does_not_open_is_told_with_its_remedy", a_device_that_does_not_open_is_told),
    ("doctor_says_what_holds_for_an_ordinary_user", doctor_says_what_holds),
];

fn a_forbidden_user_namespace_is_told(dir: &Path) {
    let Some(w) = world(dir) else { return };
    // A setting of a user namespace of its own, not the machine's.
    let forbidding = "echo 0 >/proc/sys/user/max_user_namespaces && exec setpriv --inh-caps=-all --ambient-caps=-all -- \"$@\"";
    let wrapper = ["unshare", "--user", "--map-current-user", "--keep-caps", "sh", "-c", forbidding, "sh"];
    let program = w.program.to_str().unwrap();
    let tree = w.tree.to_str().unwrap();
    let run = |words: &[&str]| w.through(&wrapper, words).output().unwrap();
    let refused = run(&[program, "run", "--area-name", AREA, "--only", tree, "--", "echo", "not reached"]);
    assert_eq!((code(&refused), out(&refused)), (125, String::new()), "{}", err(&refused));
    let words = "no user namespaces are allowed here (user.max_user_namespaces). As root: sysctl user.max_user_namespaces=10000";
    assert!(err(&refused).contains(words), "{}", err(&refused));
    assert!(!w.area().exists());
    let doctor = run(&[program, "doctor", "--area-name", AREA]);
    assert_eq!(code(&doctor), 1);
    assert!(out(&doctor).contains(&format!("NO   user namespaces: {words}")), "{}", out(&doctor));
    // At a login of who never used it nothing is said; of who has an area, why it can't be looked at.
    let recover = || run(&[program, "recover", "--quiet", "--area-name", AREA]);
    let nothing = recover();
    assert_eq!((code(&nothing), out(&nothing), err(&nothing)), (0, String::new(), String::new()));
    assert_eq!(code(&w.shell("true")), 0);
    let refused = recover();
    assert_eq!(code(&refused), 125);
    assert!(err(&refused).contains(words), "{}", err(&refused));
}

/// The setting of Debian's kernels that keeps user namespaces for root.
const FOR_ROOT_ONLY: &str = "/proc/sys/kernel/unprivileged_userns_clone";

fn a_capability_makes_the_namespace(dir: &Path) {
    // With room for two programs with names of lines and variables.
    let Some(w) = sized(dir, 256) else { return };
    if !have("setcap") {
        println!("skipped: no setcap");
        return;
    }
    // In a place where it counts: on the scratch volume capabilities of files are heeded, on the temporary
    // directory perhaps not.
    let program = w.own.parent().unwrap().join("systx");
    std::fs::copy(systx(), &program).unwrap();
    must(Command::new("setcap").arg("cap_sys_admin+ep").arg(&program));
    let (program, tree) = (program.to_str().unwrap(), w.tree.to_str().unwrap());
    let as_user = |words: &[&str]| {
        let mut command = Command::new(ORDINARY[0]);
        command.args(&ORDINARY[1..]).args(words).current_dir(&w.tree).stdin(Stdio::null());
        command.env("HOME", &w.beside).env_remove("XDG_STATE_HOME").output().unwrap()
    };
    let run = |program: &str, script: &str| {
        as_user(&[program, "run", "--area-name", AREA, "--only", tree, "--", "sh", "-c", script])
    };
    let closed = std::fs::read_to_string(FOR_ROOT_ONLY).is_ok_and(|was| {
        std::fs::write(FOR_ROOT_ONLY, "0").unwrap();
        // The machine's own; put back by the end of this case, also when it fails.
        let answers = std::panic::catch_unwind(|| run(w.program.to_str().unwrap(), "echo not reached >a"));
        let opened = std::panic::catch_unwind(|| run(program, "echo one >one"));
        std::fs::write(FOR_ROOT_ONLY, was.trim()).unwrap();
        let (answers, opened) = (answers.unwrap(), opened.unwrap());
        assert_eq!(code(&answers), 125, "{}", err(&answers));
        assert!(err(&answers).contains("setcap cap_sys_admin+ep"), "{}", err(&answers));
        assert_eq!(code(&opened), 0, "{}", err(&opened));
        assert_eq!(w.read("one"), "one\n");
        true
    });
    if !closed {
        println!("skipped in part: no {FOR_ROOT_ONLY} here to close");
    }
    // Nothing of it for the command, in the namespace or out of it.
    let capabilities = run(program, "grep -E 'Cap(Prm|Eff|Inh|Amb)' /proc/self/status; echo two >two");
    assert_eq!(code(&capabilities), 0, "{}", err(&capabilities));
    let told = out(&capabilities);
    assert_eq!(told.lines().count(), 4, "{told}");
    assert!(told.lines().all(|line| line.ends_with("\t0000000000000000")), "{told}");
    assert_eq!(w.read("two"), "two\n");
    // Verbs that make no namespace, some of which a message asks the user to run afterwards.
    for words in [&["list"][..], &["status"], &["log"], &["recover"], &["doctor"]] {
        let answer = as_user(&[&[program, words[0], "--area-name", AREA], &words[1..]].concat());
        assert_eq!(code(&answer), 0, "{words:?}: {}", err(&answer));
    }
    let aborted = run(program, "echo three >two; exit 1");
    assert_eq!((code(&aborted), w.read("two")), (1, "two\n".to_string()), "{}", err(&aborted));
}

/// Why it is no way to make a view where user namespaces are forbidden (docs/limits.md).
fn fusermount3_mounts_for_everybody(dir: &Path) {
    let Some(w) = world(dir) else { return };
    if !have("fusermount3") {
        return;
    }
    let path = must(Command::new("sh").args(["-c", "command -v fusermount3"]));
    let mode = std::fs::metadata(path.trim()).unwrap().permissions().mode();
    if mode & 0o4000 == 0 {
        println!("skipped: fusermount3 is not setuid");
        return;
    }
    let as_user = |words: &[&str]| {
        let mut command = Command::new(ORDINARY[0]);
        command.args(&ORDINARY[1..]).args(words).current_dir(&w.tree);
        command
    };
    // It asks for the name of who calls it.
    let (users, with_him) = (Path::new("/etc/passwd"), w.own.parent().unwrap().join("passwd"));
    let lines = std::fs::read_to_string(users).unwrap();
    std::fs::write(&with_him, format!("{lines}systx-test:x:{USER}:{USER}::/:/bin/sh\n")).unwrap();
    must(Command::new("mount").arg("--bind").args([&*with_him, users]));
    // The caller gets the descriptor of the connection by a socket, here its standard input. It is not taken
    // out: any look into the mount would wait for an answer.
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut mount = as_user(&["fusermount3", "-o", "fsname=systx-test", "--"]);
    mount.arg(&w.beside).env("_FUSE_COMMFD", "0").stdin(OwnedFd::from(theirs));
    let mounted = mount.output().unwrap();
    must(Command::new("umount").arg("-l").arg(users));
    assert_eq!((code(&mounted), err(&mounted)), (0, String::new()));
    // This process is not the user's command, nor below it, and not even the user's.
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let here = table.lines().find(|line| line.contains(" - fuse systx-test "));
    assert_eq!(here.and_then(|line| line.split(' ').nth(4)), w.beside.to_str(), "{table}");
    drop(ours);
    must(Command::new("umount").arg("-l").arg(&w.beside));
    // So it would take a mount namespace that only the user's command is in.
    let alone = as_user(&["unshare", "--mount", "true"]).stdin(Stdio::null()).output().unwrap();
    assert_ne!(code(&alone), 0);
    assert!(err(&alone).contains("Operation not permitted"), "{}", err(&alone));
}

fn a_device_that_does_not_open_is_told(dir: &Path) {
    let Some(w) = world(dir) else { return };
    std::fs::set_permissions(w.dir.join("fuse"), PermissionsExt::from_mode(0o600)).unwrap();
    let refused = w.shell("echo not reached");
    assert_eq!((code(&refused), out(&refused)), (125, String::new()), "{}", err(&refused));
    assert!(err(&refused).contains("chmod 0666 /dev/fuse"), "{}", err(&refused));
    let doctor = w.verb(&["doctor"]).output().unwrap();
    assert_eq!(code(&doctor), 1);
    assert!(out(&doctor).contains("NO   FUSE: /dev/fuse: Permission denied"), "{}", out(&doctor));
}

fn doctor_says_what_holds(dir: &Path) {
    let Some(w) = world(dir) else { return };
    assert_eq!(code(&w.shell("true")), 0);
    let doctor = w.verb(&["doctor"]).output().unwrap();
    let text = out(&doctor);
    assert_eq!(code(&doctor), 0, "{text}{}", err(&doctor));
    let own = w.own.display();
    for begin in [
        format!("weak privilege: user {USER}: `systx run` serves {}, {own}, ", w.beside.display()),
        "ok   user namespaces: allowed".into(),
        format!("ok   area on {own}: there, and no other user can enter it"),
        format!("weak opening by handle on {own}: "),
    ] {
        assert!(text.lines().any(|line| line.starts_with(&begin)), "{begin}\n{text}");
    }
}
