//! A whole tree as the command's root, in a chroot made for it.

use super::place::{code, err, out, Place};
use super::Case;
use std::path::Path;
use std::process::{Command, Output};

pub const ALL: &[(&str, Case)] = &[
    ("the_whole_tree_commits_and_aborts", the_whole_tree_commits_and_aborts),
    ("mounts_are_in_their_places", mounts_are_in_their_places),
    ("a_bind_mount_shows_the_same_as_the_view", a_bind_mount_shows_the_same_as_the_view),
    ("processes_see_only_each_other", processes_see_only_each_other),
    ("the_whole_tree_stays_open_over_several_commands", the_whole_tree_stays_open),
    ("calls_in_a_whole_tree_are_watched", calls_in_a_whole_tree_are_watched),
];

fn run(p: &Place, script: &str) -> Output {
    let mut chroot = Command::new("chroot");
    chroot.arg(&p.mount).args(["/opt/systx", "run", "--", "/bin/sh", "-c", script]);
    chroot.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").current_dir("/").output().unwrap()
}

fn the_whole_tree_commits_and_aborts(p: &Place) {
    let output = run(p, "echo one > /work/a && echo two > /tmp/b && exit 5");
    assert_eq!(code(&output), 5, "{}", err(&output));
    assert!(!p.mount.join("work/a").exists() && !p.mount.join("tmp/b").exists());
    let output = run(p, "echo one > /work/a && echo two > /tmp/b");
    assert_eq!((code(&output), err(&output).as_str()), (0, ""));
    assert_eq!(std::fs::read_to_string(p.mount.join("work/a")).unwrap(), "one\n");
    assert_eq!(std::fs::read_to_string(p.mount.join("tmp/b")).unwrap(), "two\n");
}

fn mounts_are_in_their_places(p: &Place) {
    let script =
        "for d in / /tmp /window /proc /usr /dev /sys; do stat -f -c %T $d; done; ls -d /dev/null; pwd; \
        [ -e /.systx ] || echo hidden";
    let output = run(p, script);
    let expected = "fuseblk fuseblk fuseblk proc";
    let text = out(&output).replace('\n', " ");
    assert!(text.starts_with(expected), "{text}{}", err(&output));
    assert!(text.ends_with("/dev/null / hidden "), "{text}");
}

fn a_bind_mount_shows_the_same_as_the_view(p: &Place) {
    let output =
        run(p, "echo x > /window/f && cat /data/inner/f && ln /data/inner/f /data/g && stat -c %h /window/f");
    assert_eq!((out(&output).as_str(), code(&output)), ("x\n2\n", 0), "{}", err(&output));
    assert_eq!(std::fs::read_to_string(p.mount.join("data/g")).unwrap(), "x\n");
}

fn processes_see_only_each_other(p: &Place) {
    let output = run(p, "echo $$; ls -d /proc/[0-9]* | wc -l");
    let text = out(&output);
    let mut lines = text.lines();
    let mut is_at_most =
        |max: u32| lines.next().is_some_and(|n| n.trim().parse().is_ok_and(|n: u32| n <= max));
    assert!(is_at_most(3) && is_at_most(5), "{text}{}", err(&output));
}

fn the_whole_tree_stays_open(p: &Place) {
    let systx = |words: &[&str]| {
        let mut chroot = Command::new("chroot");
        chroot.arg(&p.mount).arg("/opt/systx").args(words).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        chroot.current_dir("/").output().unwrap()
    };
    let begun = systx(&["begin"]);
    assert_eq!(code(&begun), 0, "{}", err(&begun));
    let id = out(&begun).trim().to_string();
    let told = systx(&[
        "exec",
        &id,
        "--",
        "/bin/sh",
        "-c",
        "echo k > /work/k; echo t > /tmp/t; cd /; ls -d opt; ls /.systx",
    ]);
    // Of this tree, and not of the one that it is in.
    assert_eq!((code(&told), out(&told).as_str()), (2, "opt\n"), "{}", err(&told));
    assert!(!p.mount.join("work/k").exists());
    let told = systx(&["exec", &id, "--", "/bin/cat", "/work/k", "/tmp/t"]);
    assert_eq!(out(&told), "k\nt\n", "{}", err(&told));
    let committed = systx(&["commit", &id]);
    assert_eq!(code(&committed), 0, "{}", err(&committed));
    assert_eq!(std::fs::read_to_string(p.mount.join("work/k")).unwrap(), "k\n");
    assert_eq!(std::fs::read_to_string(p.mount.join("tmp/t")).unwrap(), "t\n");
}

fn calls_in_a_whole_tree_are_watched(p: &Place) {
    if !Path::new("/usr/bin/logger").exists() || !Path::new("/bin/bash").exists() {
        return println!("skipped: no logger, or no bash");
    }
    let systx = |policy: &str, script: &str| {
        let mut chroot = Command::new("chroot");
        chroot.arg(&p.mount).args([
            "/opt/systx",
            "run",
            "--network",
            policy,
            "--",
            "/bin/bash",
            "-c",
            script,
        ]);
        let output = chroot.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").current_dir("/").output().unwrap();
        (code(&output), err(&output))
    };
    let outside = std::os::unix::net::UnixDatagram::bind(p.mount.join("work/outside")).unwrap();
    // An address for documentation: no machine has it. And a server outside whose socket lies in a served
    // directory can't be reached anyhow.
    let script =
        "echo x > /work/watched; : > /dev/tcp/192.0.2.1/80; logger --socket-errors=on -u /work/outside x";
    let (code, said) = systx("deny", &format!("{script}; true"));
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("systx: denied: bash (pid ") && said.ends_with(" to 192.0.2.1:80.\n"), "{said}");
    assert!(said.contains("Connection refused"), "{said}");
    let (code, said) = systx("abort", "logger --socket-errors=on -u /work/outside x; rm /work/watched");
    assert_eq!((code, said.contains("systx:")), (0, false), "{said}");
    let (code, said) = systx("abort", script);
    assert!(code == 125 && said.contains("bash (pid ") && said.contains("reach 192.0.2.1:80,"), "{said}");
    assert!(!p.mount.join("work/watched").exists());
    drop(outside);
    std::fs::remove_file(p.mount.join("work/outside")).unwrap();
}
