//! Mounts below mounts, bind mounts, read-only ones and overlayfs in a whole tree: what is served, what is
//! read-only, and that what was changed below a mount is committed there.

use super::place::{code, err, must, out, Place};
use super::Case;
use std::path::Path;
use std::process::{Command, Output};

pub const ALL: &[(&str, Case)] = &[
    ("what_is_mounted_below_mounts_is_served_or_read_only", what_is_mounted_is_served_or_read_only),
    ("what_was_changed_below_a_mount_is_committed_there", what_was_changed_is_committed_there),
    ("only_a_directory_serves_what_is_mounted_below_it", only_a_directory_serves_what_is_below),
    ("the_whole_tree_on_overlayfs_is_refused_with_a_remedy", the_whole_tree_on_overlayfs_is_refused),
];

/// Mounts in the tree of a place, gone with it.
struct Mounts<'p>(&'p Place);

const POINTS: [&str; 8] = [
    "data/below",
    "data/below/deep",
    "work/again",
    "work/ro",
    "work/frozen",
    "work/conf",
    "over",
    "over/inner",
];

impl Mounts<'_> {
    fn new(p: &Place) -> Mounts<'_> {
        let root = &p.mount;
        let at = |point: &str| root.join(point);
        let dirs = [
            "data/below",
            "work/again",
            "work/ro",
            "work/frozen",
            "over",
            "layers/low",
            "layers/up",
            "layers/work",
        ];
        for dir in dirs {
            std::fs::create_dir_all(at(dir)).unwrap();
        }
        for file in ["data/conf", "work/conf"] {
            std::fs::write(at(file), "old\n").unwrap();
        }
        let mount = |options: &[&str], what: &Path, point: &str| {
            must(Command::new("mount").args(options).arg(what).arg(at(point)));
        };
        let tmpfs = |point: &str| mount(&["-t", "tmpfs"], Path::new("none"), point);
        tmpfs("data/below");
        std::fs::create_dir(at("data/below/deep")).unwrap();
        tmpfs("data/below/deep");
        mount(&["--bind"], &at("data/below/deep"), "work/again");
        mount(&["--bind"], &at("data"), "work/ro");
        must(Command::new("mount").args(["-o", "remount,bind,ro"]).arg(at("work/ro")));
        tmpfs("work/frozen");
        std::fs::write(at("work/frozen/ice"), "ice\n").unwrap();
        must(Command::new("mount").args(["-o", "remount,ro"]).arg(at("work/frozen")));
        mount(&["--bind"], &at("data/conf"), "work/conf");
        std::fs::create_dir(at("layers/low/inner")).unwrap();
        std::fs::write(at("layers/low/file"), "low\n").unwrap();
        let layer = |name: &str| at("layers").join(name).display().to_string();
        let layers = format!("lowerdir={},upperdir={},workdir={}", layer("low"), layer("up"), layer("work"));
        mount(&["-t", "overlay", "-o", &layers], Path::new("none"), "over");
        tmpfs("over/inner");
        Mounts(p)
    }

    fn run(&self, options: &[&str], script: &str) -> Output {
        let mut chroot = Command::new("chroot");
        chroot
            .arg(&self.0.mount)
            .args(["/opt/systx", "run"])
            .args(options)
            .args(["--", "/bin/sh", "-c", script]);
        chroot.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").current_dir("/").output().unwrap()
    }

    /// Returns what is there outside of any transaction.
    fn read(&self, path: &str) -> Option<String> {
        std::fs::read_to_string(self.0.mount.join(path)).ok()
    }
}

impl Drop for Mounts<'_> {
    fn drop(&mut self) {
        for point in POINTS.iter().rev() {
            // Lazily: a case that failed may have left a process inside.
            let _ = Command::new("umount").arg("-l").arg(self.0.mount.join(point)).output();
        }
        for made in
            ["layers", "over", "data/below", "data/conf", "work/again", "work/ro", "work/frozen", "work/conf"]
        {
            let path = self.0.mount.join(made);
            let _ = std::fs::remove_dir_all(&path).or_else(|_| std::fs::remove_file(&path));
        }
    }
}

fn what_is_mounted_is_served_or_read_only(p: &Place) {
    let m = Mounts::new(p);
    let told = m.run(
        &["--verbose"],
        "for d in /data /data/below /data/below/deep /work/again /work/ro /work/frozen /over /over/inner; do stat -f -c %T $d; done; \
         cat /work/ro/conf /work/frozen/ice /over/file; \
         for f in /work/ro/new /work/ro/conf /work/frozen/ice /over/new /over/file; do (echo x >$f) 2>&1 | sed 's/.*: //'; done",
    );
    assert_eq!(code(&told), 0, "{}", err(&told));
    let types = "fuseblk fuseblk fuseblk fuseblk fuseblk tmpfs overlayfs fuseblk";
    let refused = "Read-only file system ".repeat(5);
    assert_eq!(out(&told).replace('\n', " "), format!("{types} old ice low {refused}"), "{}", err(&told));
    // Only mounts that could have been written to are reported.
    assert!(
        err(&told).contains("systx: /over is read-only inside: overlay can't be served.\n"),
        "{}",
        err(&told)
    );
    let read_only = err(&told).lines().filter(|line| line.contains("read-only")).collect::<String>();
    assert!(!read_only.contains("/work/"), "{read_only}");
}

const CHANGES: &str = "set -e; echo a >/data/below/a; echo b >/data/below/deep/b; echo c >/work/again/c; echo d >/data/d; \
     echo conf >/work/conf; echo i >/over/inner/i; mv /data/below/a /data/below/deep/moved; ln /data/below/deep/b /data/below/deep/link; \
     cat /work/again/b /data/below/deep/c /work/ro/d /data/conf /work/again/moved; stat -c %h /work/again/link";

fn what_was_changed_is_committed_there(p: &Place) {
    let m = Mounts::new(p);
    let failed = m.run(&[], &format!("{CHANGES}; exit 7"));
    assert_eq!((code(&failed), out(&failed).as_str()), (7, "b\nc\nd\nconf\na\n2\n"), "{}", err(&failed));
    for none in [
        "data/below/deep/b",
        "data/below/deep/c",
        "data/below/deep/moved",
        "data/d",
        "over/inner/i",
        "layers/up/inner/i",
    ] {
        assert_eq!(m.read(none), None, "{none}");
    }
    assert_eq!((m.read("data/conf"), m.read("work/conf")), (Some("old\n".into()), Some("old\n".into())));
    let done = m.run(&[], CHANGES);
    assert_eq!((code(&done), err(&done)), (0, String::new()));
    for (path, text) in [
        ("data/below/deep/b", "b\n"),
        ("data/below/deep/c", "c\n"),
        ("data/below/deep/link", "b\n"),
        ("data/below/deep/moved", "a\n"),
        ("work/again/moved", "a\n"),
        ("data/d", "d\n"),
        ("work/ro/d", "d\n"),
        ("data/conf", "conf\n"),
        ("work/conf", "conf\n"),
        ("over/inner/i", "i\n"),
    ] {
        assert_eq!(m.read(path).as_deref(), Some(text), "{path}");
    }
    assert_eq!(m.read("data/below/a"), None);
    std::fs::remove_file(p.mount.join("data/d")).unwrap();
    // On their own file systems, and not on what lies below.
    must(Command::new("umount").args(["-l"]).arg(p.mount.join("data/below/deep")));
    assert_eq!(m.read("data/below/deep/b"), None);
    assert_eq!(m.read("work/again/b").as_deref(), Some("b\n"));
}

fn only_a_directory_serves_what_is_below(p: &Place) {
    let m = Mounts::new(p);
    let script = "echo a >/data/below/a; echo b >/data/below/deep/b; cat /data/below/deep/b; echo out >/work/out; exit 7";
    let failed = m.run(&["--only", "/data"], script);
    assert_eq!((code(&failed), out(&failed).as_str()), (7, "b\n"), "{}", err(&failed));
    assert_eq!((m.read("data/below/a"), m.read("data/below/deep/b")), (None, None));
    assert_eq!(m.read("work/out").as_deref(), Some("out\n"), "outside of it the command is native");
    std::fs::remove_file(p.mount.join("work/out")).unwrap();
    for (only, why) in [
        ("/over", "it is on overlay"),
        ("/work/frozen", "mounted read-only"),
        ("/work/ro", "mounted read-only"),
    ] {
        let refused = m.run(&["--only", only], "echo not reached");
        assert_eq!((code(&refused), out(&refused).as_str()), (125, ""), "{only}");
        assert!(
            err(&refused).contains(why) && err(&refused).contains("nothing was changed"),
            "{only}: {}",
            err(&refused)
        );
    }
    // A mount on top of it can be served, though.
    let inner = m.run(&["--only", "/over/inner"], "echo i >/over/inner/i");
    assert_eq!((code(&inner), m.read("over/inner/i").as_deref()), (0, Some("i\n")), "{}", err(&inner));
}

fn the_whole_tree_on_overlayfs_is_refused(p: &Place) {
    let m = Mounts::new(p);
    // The overlay as a root, with the programs in it.
    let root = p.mount.join("over");
    for dir in ["usr", "proc", "dev", "opt"] {
        std::fs::create_dir(root.join(dir)).unwrap();
    }
    for link in ["bin", "lib", "lib64", "sbin"] {
        if let Ok(target) = std::fs::read_link(Path::new("/").join(link)) {
            std::os::unix::fs::symlink(target, root.join(link)).unwrap();
        }
    }
    for dir in ["usr", "proc", "dev", "opt"] {
        must(Command::new("mount").arg("--rbind").arg(p.mount.join(dir)).arg(root.join(dir)));
    }
    let run = |options: &[&str], script: &str| {
        let mut chroot = Command::new("chroot");
        chroot.arg(&root).args(["/opt/systx", "run"]).args(options).args(["--", "/bin/sh", "-c", script]);
        chroot.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").current_dir("/").output().unwrap()
    };
    let refused = run(&[], "echo not reached");
    let volume = run(&["--only", "/inner"], "echo v >/inner/v");
    for dir in ["usr", "proc", "dev", "opt"] {
        must(Command::new("umount").args(["-R", "-l"]).arg(root.join(dir)));
    }
    assert_eq!((code(&refused), out(&refused).as_str()), (125, ""), "{}", err(&refused));
    let words = "/ is on overlay, which can't be served: name directories on other mounts, a container's volumes for instance, with --only";
    assert!(err(&refused).contains(words), "{}", err(&refused));
    assert_eq!((code(&volume), m.read("over/inner/v").as_deref()), (0, Some("v\n")), "{}", err(&volume));
}
