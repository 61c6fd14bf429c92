//! Mounts that are not served: what is stored there by a transaction that fails must not be there.

use super::place::{code, err, must, out, Place, AREA, SYSTX};
use super::Case;
use std::path::Path;
use std::process::{Command, Output};

pub const ALL: &[(&str, Case)] = &[
    ("nothing_stays_in_memory_file_systems", nothing_stays_in_memory_file_systems),
    ("nothing_stays_in_the_directory_of_devices", nothing_stays_in_the_directory_of_devices),
];

/// A shell script in the whole tree of a chroot.
fn run(p: &Place, script: &str) -> Output {
    let mut chroot = Command::new("chroot");
    chroot.arg(&p.mount).args(["/opt/systx", "run", "--", "/bin/sh", "-c", script]);
    chroot.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").current_dir("/").output().unwrap()
}

fn mounted(p: &Place, fs_type: &str) -> bool {
    let point = p.mount.join(fs_type);
    std::fs::create_dir_all(&point).unwrap();
    let done = Command::new("mount").args(["-t", fs_type, "none"]).arg(&point).status();
    if !done.is_ok_and(|status| status.success()) {
        println!("skipped: {fs_type}: can't be mounted here");
        return false;
    }
    true
}

fn nothing_stays_in_memory_file_systems(p: &Place) {
    for fs_type in ["ramfs", "hugetlbfs"] {
        if !mounted(p, fs_type) {
            continue;
        }
        let file = p.mount.join(fs_type).join("x");
        for end in ["exit 1", "exit 0"] {
            let script =
                format!("(echo b > /{fs_type}/x || mkdir /{fs_type}/x) 2>/dev/null && echo stored; {end}");
            let output = run(p, &script);
            assert_eq!((code(&output).to_string().as_str(), out(&output).as_str()), (&end[5..], ""));
            assert!(!file.exists(), "{} is there although the run was told that it can't be", file.display());
        }
        must(Command::new("umount").arg(p.mount.join(fs_type)));
        // With --only it can't be named, either: a transaction that is none would be no transaction.
        assert!(mounted(p, fs_type));
        let dir = p.mount.join(fs_type);
        let output = only(&dir);
        assert_eq!(code(&output), 125, "{}", err(&output));
        assert!(
            err(&output).contains(fs_type) && err(&output).contains("nothing was changed"),
            "{}",
            err(&output)
        );
        assert!(!dir.join("y").exists());
        must(Command::new("umount").arg(&dir));
    }
}

fn only(dir: &Path) -> Output {
    let mut systx = Command::new(SYSTX);
    systx.args(["run", "--area-name", AREA, "--only"]).arg(dir).args(["--", "touch"]).arg(dir.join("y"));
    systx.output().unwrap()
}

fn nothing_stays_in_the_directory_of_devices(p: &Place) {
    let name = format!("systx-test-{}", std::process::id());
    let made = p.mount.join("dev").join(&name);
    let script = format!("(echo b > /dev/{name}) 2>/dev/null && echo stored; echo x > /dev/null && exit 3");
    let output = run(p, &script);
    let stayed = made.exists();
    let _ = std::fs::remove_file(&made);
    assert!(!stayed, "a file stays in /dev");
    // Device files work as ever.
    assert_eq!((code(&output), out(&output).as_str()), (3, ""), "{}", err(&output));
}
