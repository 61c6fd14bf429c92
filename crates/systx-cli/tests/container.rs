//! `systx run` inside of a container: mount, pid, IPC, UTS, network and cgroup namespaces of its own, and a
//! root that it was pivoted into. Made by plain means, as no container's manager need be at hand.
//!
//! `cargo test -p systx-cli --test container [-- PART-OF-A-NAME]`

mod machine;

use machine::user::{open_fuse_to_all, UNPRIVILEGED, USER};
use machine::volume::Volume;
use machine::{code, err, must, out, systx};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn main() {
    machine::main(&[
        ("on_ext4_all_of_a_run_in_a_container_or_nothing", on_ext4_all_or_nothing),
        ("open_transactions_and_other_verbs_work_in_a_container", other_verbs_work),
        (
            "on_overlayfs_volumes_are_served_and_the_rest_is_refused_with_a_remedy",
            on_overlayfs_volumes_are_served,
        ),
        ("a_container_that_lacks_something_is_told_what", what_is_missing_is_told),
        ("in_a_user_namespace_volumes_are_served", in_a_user_namespace_volumes_are_served),
        (
            "an_ordinary_user_in_a_container_has_what_he_could_change",
            an_ordinary_user_has_what_he_could_change,
        ),
    ]);
}

/// Properties of a container.
#[derive(Clone, Copy, Default)]
struct Made<'a> {
    /// More words for unshare(1).
    unshare: &'a [&'a str],
    /// In front of the words inside.
    before: &'a [&'a str],
    without_fuse: bool,
    without_masks: bool,
}

struct Container {
    root: PathBuf,
    volume: PathBuf,
}

/// Script that runs in the new namespaces before the words are executed; $1 is the root, $2 says if it has
/// /dev/fuse, $3 if parts of /proc are masked, as in most containers.
const ENTER: &str = r#"set -e; mount --rbind "$1" "$1"; cd "$1"; fuse=$2; masks=$3; shift 3
mount -t proc proc proc; mount -t tmpfs -o mode=755 none dev
devices="null zero urandom"; [ "$fuse" = no ] || devices="$devices fuse"
for device in $devices; do : >dev/$device; mount --bind /dev/$device dev/$device; done
mkdir dev/shm; mount -t tmpfs none dev/shm
mount -t sysfs -o ro sysfs sys || true
if [ "$masks" = yes ]; then
    mount --bind dev/null proc/version; mount -t tmpfs -o ro none proc/irq; mount --bind proc/sys proc/sys; mount -o remount,bind,ro proc/sys
fi
pivot_root . old; cd /; umount -l /old; rmdir /old
exec "$@""#;

impl Container {
    fn new(dir: &Path, kind: &'static str) -> Option<Container> {
        let disk = Volume::new(dir, "ext4", 256)?;
        let root = dir.join("root");
        std::fs::create_dir(&root).unwrap();
        let part = |name: &str| {
            std::fs::create_dir(disk.point.join(name)).unwrap();
            disk.point.join(name)
        };
        match kind {
            "ext4" => must(Command::new("mount").arg("--bind").arg(part("root")).arg(&root)),
            _ => {
                let [low, up, work] = ["low", "up", "work"].map(|name| part(name).display().to_string());
                let layers = format!("lowerdir={low},upperdir={up},workdir={work}");
                must(Command::new("mount").args(["-t", "overlay", "-o", &layers, "none"]).arg(&root))
            }
        };
        for made in ["proc", "sys", "dev", "tmp", "etc", "opt", "volume", "work"] {
            std::fs::create_dir(root.join(made)).unwrap();
        }
        machine::programs_below(&root);
        std::fs::copy(systx(), root.join("opt/systx")).unwrap();
        std::fs::set_permissions(root.join("tmp"), PermissionsExt::from_mode(0o1777)).unwrap();
        let volume = part("volume");
        must(Command::new("mount").arg("--bind").arg(&volume).arg(root.join("volume")));
        Some(Container { root, volume })
    }

    fn inside(&self, made: Made<'_>, words: &[&str]) -> Output {
        let mut unshare = Command::new("unshare");
        unshare
            .args(made.unshare)
            .args(["--mount", "--pid", "--fork", "--ipc", "--uts", "--net", "--cgroup"]);
        let [fuse, masks] =
            [made.without_fuse, made.without_masks].map(|without| if without { "no" } else { "yes" });
        std::fs::create_dir_all(self.root.join("old")).unwrap();
        unshare
            .args(["--", "sh", "-c", ENTER, "sh"])
            .arg(&self.root)
            .args([fuse, masks])
            .args(made.before)
            .args(words);
        unshare.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").stdin(Stdio::null()).output().unwrap()
    }

    fn run(&self, made: Made<'_>, options: &[&str], script: &str) -> Output {
        self.inside(made, &[&["/opt/systx", "run"], options, &["--", "sh", "-c", script]].concat())
    }

    fn read(&self, path: &str) -> Option<String> {
        std::fs::read_to_string(self.root.join(path)).ok()
    }
}

fn on_ext4_all_or_nothing(dir: &Path) {
    let Some(c) = Container::new(dir, "ext4") else { return };
    let script = "echo x >/x; mkdir /etc/d; echo y >/etc/d/y; echo v >/volume/v; echo t >/tmp/t; ls /proc | grep -c '^[0-9]'; cat /proc/version; ls /proc/irq";
    let failed = c.run(Made::default(), &[], &format!("{script}; exit 3"));
    assert_eq!(code(&failed), 3, "{}", err(&failed));
    let all = ["x", "etc/d/y", "volume/v", "tmp/t"];
    assert!(all.iter().all(|path| c.read(path).is_none()));
    let done = c.run(Made::default(), &[], &format!("{script}; true"));
    assert_eq!(code(&done), 0, "{}", err(&done));
    // Pid 1 and the command's few, and not the container's; and what is masked stays so.
    assert!(out(&done).trim().parse::<u32>().is_ok_and(|n| n <= 5), "{}", out(&done));
    assert!(all.iter().all(|path| c.read(path).is_some()));
    assert!(c.volume.join("v").exists());
    // The container's pid 1 can run it as well as any other process.
    let doctor = c.inside(Made::default(), &["/opt/systx", "doctor"]);
    assert_eq!(code(&doctor), 0, "{}", out(&doctor));
}

fn other_verbs_work(dir: &Path) {
    let Some(c) = Container::new(dir, "ext4") else { return };
    let script = "set -e; s=/opt/systx; id=$($s begin); $s exec $id -- sh -c 'echo x >/work/x'; test ! -e /work/x; $s diff $id; $s list | grep -q $id; \
                  $s commit $id; cat /work/x; $s run --undoable -- rm /work/x; $s undo $($s log --json | tail -n 1 | grep -o '\"id\":[0-9]*' | head -n 1 | cut -d: -f2); \
                  cat /work/x; $s recover --quiet";
    let told = c.inside(Made::default(), &["sh", "-c", script]);
    assert_eq!((code(&told), out(&told)), (0, "A\t/work/x\nx\nx\n".into()), "{}", err(&told));
}

fn on_overlayfs_volumes_are_served(dir: &Path) {
    let Some(c) = Container::new(dir, "overlay") else { return };
    let refused = c.run(Made::default(), &[], "echo not reached");
    assert_eq!((code(&refused), out(&refused)), (125, String::new()), "{}", err(&refused));
    let words = "/ is on overlay, which can't be served: name directories on other mounts, a container's volumes for instance, with --only";
    assert!(err(&refused).contains(words), "{}", err(&refused));
    let failed = c.run(Made::default(), &["--only", "/volume"], "echo v >/volume/v; exit 3");
    assert_eq!((code(&failed), c.read("volume/v")), (3, None), "{}", err(&failed));
    let done = c.run(Made::default(), &["--only", "/volume"], "echo v >/volume/v");
    assert_eq!((code(&done), c.read("volume/v")), (0, Some("v\n".into())), "{}", err(&done));
    // The volume is one domain outside and in another container.
    let area = c.volume.join(".systx");
    assert!(area.join("format").exists());
}

fn what_is_missing_is_told(dir: &Path) {
    let Some(c) = Container::new(dir, "ext4") else { return };
    let no_fuse = Made { without_fuse: true, ..Default::default() };
    let no_privilege = Made {
        before: &["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"],
        ..Default::default()
    };
    for (made, words) in [
        (no_fuse, "/dev/fuse: No such file or directory (os error 2). Load the module: modprobe fuse; and give a container the device: --device /dev/fuse"),
        (no_privilege, "Operation not permitted (os error 1); root without CAP_SYS_ADMIN can't mount: give a container --cap-add SYS_ADMIN, or use systx outside of it"),
    ] {
        for only in [&[][..], &["--only", "/volume"]] {
            let told = c.run(made, only, "echo not reached");
            assert_eq!((code(&told), out(&told)), (125, String::new()), "{}", err(&told));
            assert!(err(&told).contains(words) && err(&told).contains("nothing was changed"), "{only:?}: {}", err(&told));
        }
        let doctor = c.inside(made, &["/opt/systx", "doctor"]);
        assert!(code(&doctor) == 1 && out(&doctor).lines().any(|l| l.starts_with("NO ") && l.contains(words)), "{}", out(&doctor));
    }
}

/// A container of an ordinary user: root in it is another user outside.
fn in_a_user_namespace_volumes_are_served(dir: &Path) {
    let Some(c) = Container::new(dir, "ext4") else { return };
    let made = Made { unshare: &["--user", "--map-root-user"], ..Default::default() };
    let refused = c.run(made, &[], "echo not reached");
    assert_eq!((code(&refused), out(&refused)), (125, String::new()), "{}", err(&refused));
    let words = "/: what is mounted below it can't be looked under from this user namespace: name directories with --only";
    assert!(err(&refused).contains(words), "{}", err(&refused));
    let failed = c.run(made, &["--only", "/volume"], "echo v >/volume/v; exit 3");
    assert_eq!((code(&failed), c.read("volume/v")), (3, None), "{}", err(&failed));
    let done =
        c.run(made, &["--only", "/volume"], "echo v >/volume/v; mkdir /volume/d; mv /volume/v /volume/d");
    assert_eq!((code(&done), c.read("volume/d/v")), (0, Some("v\n".into())), "{}", err(&done));
}

fn an_ordinary_user_has_what_he_could_change(dir: &Path) {
    let Some(c) = Container::new(dir, "overlay") else { return };
    open_fuse_to_all(dir);
    std::os::unix::fs::chown(&c.volume, Some(USER), Some(USER)).unwrap();
    let made = Made { before: &UNPRIVILEGED, without_masks: true, ..Default::default() };
    let script = "echo v >/volume/v; echo x >/tmp/x";
    let failed = c.run(made, &["--verbose"], &format!("{script}; exit 3"));
    assert_eq!((code(&failed), c.read("volume/v")), (3, None), "{}", err(&failed));
    assert!(
        err(&failed).contains("systx: served: /volume. Everything else is read-only inside."),
        "{}",
        err(&failed)
    );
    let done = c.run(made, &[], &format!("{script}; true"));
    assert_eq!((code(&done), c.read("volume/v")), (0, Some("v\n".into())), "{}", err(&done));
    assert!(err(&done).contains("/tmp/x: Read-only file system"), "{}", err(&done));
    // A process that does not see all of /proc gets no new one.
    let masked = c.run(Made { without_masks: false, ..made }, &[], "echo not reached");
    assert_eq!((code(&masked), out(&masked)), (125, String::new()), "{}", err(&masked));
    let words = "could not mount /proc for the command: Operation not permitted (os error 1); parts of /proc are hidden here";
    assert!(err(&masked).contains(words) && err(&masked).contains("nothing was changed"), "{}", err(&masked));
    must(Command::new("umount").arg("/dev/fuse"));
}
