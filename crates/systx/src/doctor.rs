//! `systx doctor`: which guarantee holds on this machine, and what to do about the rest.
//!
//! Owns: one line for each guarantee. Guarantees: it finds out by trying, leaves nothing behind, and makes no area. Does
//! not: change anything.

use crate::args::Area;
use crate::domains::{self, Mounted};
use crate::report::lossy;
use serde_json::{json, Value};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use systx_os::{Errno, FsInfo, FsKind, Linux, Open, Os};

/// How far a guarantee holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holds {
    Yes,
    Weaker,
    No,
}

/// One guarantee.
struct Line {
    subject: String,
    holds: Holds,
    text: String,
    remedy: Option<&'static str>,
}

fn line(subject: &str, holds: Holds, text: impl Into<String>, remedy: Option<&'static str>) -> Line {
    Line { subject: subject.into(), holds, text: text.into(), remedy }
}

/// All lines for people, and whether everything that is needed is there.
pub fn text(area: &Area) -> (String, bool) {
    let mut out = String::new();
    let lines = look(area);
    for Line { subject, holds, text, remedy } in &lines {
        let mark = match holds {
            Holds::Yes => "ok  ",
            Holds::Weaker => "weak",
            Holds::No => "NO  ",
        };
        out += &format!("{mark} {subject}: {text}");
        if let Some(remedy) = remedy {
            out += &format!(". {remedy}");
        }
        out.push('\n');
    }
    (out, lines.iter().all(|l| l.holds != Holds::No))
}

/// The same for programs.
pub fn json(area: &Area) -> (Value, bool) {
    let lines = look(area);
    let value = lines
        .iter()
        .map(|l| {
            let holds = match l.holds {
                Holds::Yes => "yes",
                Holds::Weaker => "weaker",
                Holds::No => "no",
            };
            json!({ "subject": l.subject, "holds": holds, "text": l.text, "remedy": l.remedy })
        })
        .collect();
    (value, lines.iter().all(|l| l.holds != Holds::No))
}

fn look(area: &Area) -> Vec<Line> {
    let os = Linux::new();
    let mut lines = vec![
        privilege(&os),
        kernel(),
        fuse(),
        passthrough(&os),
        user_namespaces(),
        isolation(),
        hooks(),
        twin(),
    ];
    match domains::table().and_then(|table| domains::plan(&table, &[])) {
        Err(e) => lines.push(line("mounts", Holds::No, e, None)),
        Ok(tree) => {
            for (point, fs_type) in &tree.read_only {
                let text = format!("{fs_type} can't be served: read-only inside a transaction");
                lines.push(line(&lossy(point), Holds::Weaker, text, None));
            }
            match domains::hold(&tree) {
                Err(e) => lines.push(line("mounts", Holds::No, e, Some("Run as root"))),
                Ok(mounts) => mounts.iter().for_each(|mounted| lines.extend(file_system(&os, mounted, area))),
            }
        }
    }
    lines
}

fn privilege(os: &Linux) -> Line {
    match os.uid() {
        0 => line("privilege", Holds::Yes, "root: `systx run` serves the whole tree", None),
        uid => line(
            "privilege",
            Holds::No,
            format!("user {uid}: `systx run` needs root in this version"),
            Some("Use sudo"),
        ),
    }
}

fn kernel() -> Line {
    let (major, minor) = systx_os::linux::kernel_release();
    let release = format!("Linux {major}.{minor}");
    match (major, minor) {
        version if version >= (6, 13) => line("kernel", Holds::Yes, release, None),
        version if version >= (5, 12) => {
            let text =
                format!("{release}: before 6.13 file stamps are coarse, so contents are compared by hash");
            line("kernel", Holds::Weaker, text, Some("Use Linux 6.13 or later"))
        }
        _ => line(
            "kernel",
            Holds::No,
            format!("{release} is too old"),
            Some("Use Linux 5.12 or later, best 6.13"),
        ),
    }
}

fn fuse() -> Line {
    match std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse") {
        Ok(_) => line("FUSE", Holds::Yes, "/dev/fuse opens", None),
        Err(e) => line("FUSE", Holds::No, format!("/dev/fuse: {e}"), Some("Load the module: modprobe fuse")),
    }
}

fn passthrough(os: &Linux) -> Line {
    let subject = "FUSE passthrough";
    match (os.uid(), systx_os::linux::kernel_release() >= (6, 9)) {
        (0, true) => line(subject, Holds::Yes, "large files are read and written without a copy", None),
        (0, false) => {
            let text = "large files go through systx: slower";
            line(subject, Holds::Weaker, text, Some("Use Linux 6.9 or later"))
        }
        _ => line(subject, Holds::Weaker, "needs root: large files go through systx, slower", None),
    }
}

fn user_namespaces() -> Line {
    let says = |path: &str, value: &str| std::fs::read_to_string(path).is_ok_and(|text| text.trim() == value);
    let subject = "user namespaces";
    if says("/proc/sys/user/max_user_namespaces", "0") {
        let remedy = "Not needed as root; else: sysctl user.max_user_namespaces=10000";
        line(subject, Holds::Weaker, "none allowed", Some(remedy))
    } else if says("/proc/sys/kernel/unprivileged_userns_clone", "0") {
        let remedy = "Not needed as root; else: sysctl kernel.unprivileged_userns_clone=1";
        line(subject, Holds::Weaker, "for root only", Some(remedy))
    } else if says("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1") {
        line(
            subject,
            Holds::Weaker,
            "restricted by AppArmor",
            Some("Not needed as root; else give systx an AppArmor profile with `userns,`"),
        )
    } else {
        line(subject, Holds::Yes, "allowed (not needed as root)", None)
    }
}

fn isolation() -> Line {
    let text = "validated: outsiders' changes are found at commit, their reads may see a commit's objects change one by one";
    line("isolation", Holds::Yes, text, None)
}

fn hooks() -> Line {
    match Path::new("/etc/systemd/system/systx-recover.service").exists()
        || Path::new("/etc/profile.d/systx.sh").exists()
    {
        true => line("recovery at boot", Holds::Yes, "hooks are installed", None),
        false => line(
            "recovery at boot",
            Holds::Weaker,
            "left to the next use of systx",
            Some("systx install-hooks"),
        ),
    }
}

fn twin() -> Line {
    match Path::new("/sys/fs/cgroup/cgroup.controllers").exists() {
        true => {
            line("twin", Holds::Yes, "survives the end of a service or session, in a cgroup of its own", None)
        }
        false => line(
            "twin",
            Holds::Weaker,
            "ends with its service or session; then the next use of systx recovers",
            Some("Use cgroup v2"),
        ),
    }
}

fn file_system(os: &Linux, mounted: &Mounted, area: &Area) -> Vec<Line> {
    match probe(os, mounted, area) {
        Ok(info) => describe(&mounted.point(), &info),
        Err(e) => vec![line(&mounted.point(), Holds::No, format!("can't be examined: {e}"), None)],
    }
}

/// Probes in the area where there is one, else in a directory that is removed again.
fn probe(os: &Linux, mounted: &Mounted, area: &Area) -> Result<FsInfo, Errno> {
    let root = &mounted.copy.root;
    if let Ok(dir) = os.open(root, area.area_name.as_bytes(), Open::Directory) {
        return os.probe_thoroughly(&dir);
    }
    let name = format!(".systx-doctor-{}", os.pid()).into_bytes();
    os.mkdir(root, &name, 0o700)?;
    let info = os.open(root, &name, Open::Directory).and_then(|dir| os.probe_thoroughly(&dir));
    os.rmdir(root, &name)?;
    info
}

fn describe(point: &str, info: &FsInfo) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut add = |holds, text: &str, remedy| lines.push(line(point, holds, text, remedy));
    match info.kind {
        FsKind::Ext4NoJournal => add(
            Holds::Weaker,
            "ext4 without a journal: a power loss can damage the file system itself",
            Some("tune2fs -O has_journal while it is unmounted"),
        ),
        FsKind::Ext4 => add(Holds::Yes, "ext4 with a journal: durable commits survive power loss", None),
        FsKind::Xfs => add(Holds::Yes, "xfs: durable commits survive power loss", None),
        FsKind::Btrfs => add(Holds::Yes, "btrfs: durable commits survive power loss", None),
        FsKind::Tmpfs => add(Holds::Yes, "tmpfs: atomic; nothing on it survives power loss", None),
        FsKind::Other(magic) => {
            add(Holds::Weaker, &format!("file system {magic:#x} is not on the list of tested ones"), None)
        }
    }
    let mut need = |is: bool, holds, text: &str, remedy| {
        if !is {
            lines.push(line(point, holds, text, remedy));
        }
    };
    need(info.handles, Holds::No, "no file handles: objects can't be told apart", None);
    need(
        info.rename_flags,
        Holds::No,
        "no RENAME_EXCHANGE and RENAME_NOREPLACE: nothing can be published safely",
        None,
    );
    need(
        info.file_stamps,
        Holds::Weaker,
        "no multigrain timestamps: contents are compared by hash, reading costs more",
        Some("Use Linux 6.13 or later with ext4, xfs, btrfs or tmpfs"),
    );
    need(
        info.leases,
        Holds::Weaker,
        "no leases: a file changed in place can be seen half changed",
        Some("sysctl fs.leases-enable=1"),
    );
    need(
        info.open_by_handle,
        Holds::Weaker,
        "no opening by handle: recovery after a rename of a directory may report instead of finish",
        None,
    );
    lines
}
