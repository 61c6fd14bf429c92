//! Subvolumes of btrfs: nothing moves between them, so what is not mounted by itself can't be published to.

use super::place::{code, err, must, out, Place, AREA, SYSTX};
use super::Case;
use std::process::{Command, Output, Stdio};

pub const ALL: &[(&str, Case)] = &[
    ("in_a_subvolume_nothing_changes_and_the_command_is_told", in_a_subvolume_nothing_changes),
    ("a_subvolume_with_a_mount_of_its_own_is_served", a_subvolume_with_a_mount_is_served),
];

/// A subvolume in the served directory, with a file; `None` on other file systems.
fn subvolume(p: &Place) -> Option<()> {
    if !p.mount.ends_with("btrfs") {
        return None;
    }
    let mut make = Command::new("btrfs");
    must(make.args(["subvolume", "create"]).arg(p.served.join("sub")).stdout(Stdio::null()));
    p.write("sub/old", "old\n");
    p.write("plain", "plain\n");
    Some(())
}

fn in_a_subvolume_nothing_changes(p: &Place) {
    let Some(()) = subvolume(p) else { return };
    let before = p.picture();
    let calls = [
        "echo new >sub/new",
        "echo more >>sub/old",
        ": >sub/old",
        "mkdir sub/d",
        "ln -s a sub/l",
        "mkfifo sub/f",
        "rm sub/old",
        "mv sub/old sub/other",
        "mv sub/old .",
        "mv plain sub/plain",
        "chmod 0600 sub/old",
        "touch -d @0 sub/old",
        "chown 1 sub/old",
        "setfattr -n user.a -v b sub/old",
        "truncate -s 9 sub/old",
        "chmod 0700 sub",
    ];
    for call in calls {
        let output = p.shell(call);
        assert_ne!(code(&output), 0, "{call}");
        assert!(err(&output).contains("Read-only file system"), "{call}: {}", err(&output));
        assert_eq!(p.picture(), before, "{call}");
    }
    // Readable files are read, and changes outside of it are committed, the subvolume's own name included.
    let output = p.shell(
        "cat sub/old >copy; echo x >sub/new || echo more >>plain; mv sub moved; cat moved/old; ln plain two",
    );
    assert_eq!((code(&output), out(&output)), (0, "old\n".into()), "{}", err(&output));
    assert_eq!(
        (p.read("copy"), p.read("plain"), p.read("moved/old")),
        ("old\n".into(), "plain\nmore\n".into(), "old\n".into())
    );
    assert!(!p.served.join("moved/new").exists());
}

fn a_subvolume_with_a_mount_is_served(p: &Place) {
    let Some(()) = subvolume(p) else { return };
    let sub = p.served.join("sub");
    let run = || -> Output {
        let mut systx = Command::new(SYSTX);
        systx.args(["run", "--area-name", AREA, "--only"]).arg(&sub).args(["--", "sh", "-c"]);
        systx.arg("echo new >new; echo more >>old; mkdir d; mv new d").current_dir(&sub).stdin(Stdio::null());
        systx.output().unwrap()
    };
    let refused = run();
    assert_eq!(code(&refused), 125);
    let words = format!("mount --bind {0} {0}", sub.display());
    assert!(err(&refused).contains(&words), "{}", err(&refused));
    assert_eq!(p.read("sub/old"), "old\n");
    // Does what the message says.
    must(Command::new("sh").arg("-c").arg(words));
    let served = run();
    assert_eq!(code(&served), 0, "{}", err(&served));
    assert_eq!((p.read("sub/d/new"), p.read("sub/old")), ("new\n".into(), "old\nmore\n".into()));
    // Also as a mount in what is served.
    let above = p.shell("echo again >sub/again; mv plain sub/plain; rm -r sub/d");
    assert_eq!(code(&above), 0, "{}", err(&above));
    assert_eq!((p.read("sub/again"), p.read("sub/plain")), ("again\n".into(), "plain\n".into()));
    assert!(!sub.join("d").exists() && !p.served.join("plain").exists());
    must(Command::new("umount").arg(&sub));
}
