//! `systx doctor`: which guarantee holds on this machine, and what to do about the rest.
//!
//! Owns: one line for each guarantee. Guarantees: it finds out by trying, leaves nothing behind, and makes no
//! area. Does not: change anything.

use crate::args::Area;
use crate::domains::{self, Mounted};
use crate::failure::LeftOut;
use crate::labels;
use crate::ordinary;
use crate::ordinary::places::{places, Places};
use crate::status::Said;
use crate::words::{put, shown};
use serde_json::{json, Value};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use systx_os::linux::{features, Features};
use systx_os::{Errno, FileType, FsInfo, FsKind, Linux, Open, Os};

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
    /// Of which mount, where it is one's.
    mount: Option<Vec<u8>>,
    holds: Holds,
    text: String,
    hint: Option<&'static str>,
}

fn line(subject: &str, holds: Holds, text: impl Into<String>, hint: Option<&'static str>) -> Line {
    Line { subject: subject.into(), mount: None, holds, text: text.into(), hint }
}

/// A guarantee of one mount.
fn line_of(
    point: &[u8],
    subject: &str,
    holds: Holds,
    text: impl Into<String>,
    hint: Option<&'static str>,
) -> Line {
    Line { mount: Some(point.to_vec()), ..line(subject, holds, text, hint) }
}

/// All lines for people, and whether everything that is needed is there.
pub fn text(area: &Area) -> Said {
    let mut out = String::new();
    let lines = look(area);
    for Line { subject, mount, holds, text, hint } in &lines {
        let mark = match holds {
            Holds::Yes => "ok  ",
            Holds::Weaker => "weak",
            Holds::No => "NO  ",
        };
        let place = mount.as_ref().map_or_else(String::new, |point| format!(" on {}", shown(point)));
        out += &format!("{mark} {subject}{place}: {text}");
        if let Some(hint) = hint {
            out += &format!(". {hint}");
        }
        out.push('\n');
    }
    Said { text: out, well: lines.iter().all(|l| l.holds != Holds::No) }
}

/// Returns the report for programs.
pub fn json(area: &Area) -> Said {
    let lines = look(area);
    let value: Value = lines
        .iter()
        .map(|l| {
            let holds = match l.holds {
                Holds::Yes => "yes",
                Holds::Weaker => "weaker",
                Holds::No => "no",
            };
            let mut value = json!({ "subject": l.subject, "holds": holds, "text": l.text, "remedy": l.hint });
            if let Some(point) = &l.mount {
                put(&mut value, "mount", point);
            }
            value
        })
        .collect();
    Said { text: format!("{value}\n"), well: lines.iter().all(|l| l.holds != Holds::No) }
}

const USER_NAMESPACES: &str = "user namespaces";

/// Lists the places that an ordinary user's run serves, and those that it leaves out.
fn own_places(os: &Linux, area: &Area, places: Places) -> Vec<Line> {
    let mut failed = Vec::new();
    let seen_as = |table: &[_], place: &[u8]| ordinary::table_with(table, &[place.to_vec()]);
    let mounts = match domains::own(places.found, seen_as, &mut failed) {
        Ok(mounts) => mounts,
        Err(e) => return vec![line(DIRECTORIES, Holds::No, e.to_string(), None)],
    };
    let left_out = places.left_out.iter().map(|LeftOut { point, why }| {
        line_of(point, DIRECTORIES, Holds::Weaker, format!("read-only inside: {why}"), None)
    });
    let failed = failed.into_iter().map(|why| line(DIRECTORIES, Holds::Weaker, why.to_string(), None));
    left_out.chain(failed).chain(mounts.iter().flat_map(|mounted| file_system(os, mounted, area))).collect()
}

const DIRECTORIES: &str = "directories";

fn look(area: &Area) -> Vec<Line> {
    let os = Linux::new();
    let table = domains::table();
    // Before the user namespace is entered.
    let places = table.as_ref().ok().filter(|_| ordinary::is_ordinary()).map(|table| places(table));
    let mut lines = vec![
        privilege(&os, places.as_ref()),
        kernel(),
        fuse(),
        passthrough(&os),
        user_namespaces(),
        isolation(),
        hooks(),
        helper(),
        watcher(),
    ];
    lines.extend(of_labels());
    if let Some(places) = places {
        // Without a user namespace nothing can be looked at, and that is said.
        if lines.iter().all(|line| line.subject != USER_NAMESPACES || line.holds != Holds::No) {
            lines.extend(own_places(&os, area, places));
        }
        return lines;
    }
    match table.and_then(|table| domains::plan(&table, &[])) {
        Err(e) => lines.push(line("mounts", Holds::No, e.to_string(), None)),
        Ok(tree) => {
            lines.extend(tree.read_only.iter().map(|(point, fs_type)| left_out(point, fs_type)));
            match domains::hold(&tree.lower) {
                Err(e) => lines.push(line("mounts", Holds::No, e.to_string(), None)),
                Ok(mounts) => mounts.iter().for_each(|mounted| lines.extend(file_system(&os, mounted, area))),
            }
        }
    }
    lines
}

fn privilege(os: &Linux, places: Option<&Places>) -> Line {
    let subject = "privilege";
    match (os.uid(), ordinary::is_nobody()) {
        (0, _) => line(subject, Holds::Yes, "root: `systx run` serves the whole tree", None),
        (_, Some(refusal)) => line(subject, Holds::No, refusal.text, Some(refusal.hint)),
        (uid, None) => {
            let served = places.map_or(&[][..], |places| &places.found);
            let served: Vec<_> = served.iter().map(|place| shown(place)).collect();
            let served = if served.is_empty() { "nothing".into() } else { served.join(", ") };
            line(
                subject,
                Holds::Weaker,
                format!("user {uid}: `systx run` serves {served}; everything else is read-only inside"),
                Some("What belongs to others needs root: use sudo"),
            )
        }
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
    match ordinary::fuse() {
        Ok(()) => line("FUSE", Holds::Yes, "/dev/fuse opens", None),
        Err(refusal) => line("FUSE", Holds::No, refusal.text, Some(refusal.hint)),
    }
}

fn passthrough(os: &Linux) -> Line {
    let subject = "FUSE passthrough";
    match (os.uid(), systx_os::linux::kernel_release() >= (6, 9)) {
        (0, true) => line(
            subject,
            Holds::Yes,
            "the kernel itself serves large files, and directories that a command makes",
            None,
        ),
        (0, false) => {
            let text = "large files and new directories go through systx: slower";
            line(subject, Holds::Weaker, text, Some("Use Linux 6.9 or later"))
        }
        _ => line(subject, Holds::Weaker, "needs root: large files go through systx, slower", None),
    }
}

/// Tries whether user namespaces can be made. An ordinary user's process is in one afterwards; for root the
/// result is that of others.
fn user_namespaces() -> Line {
    let subject = USER_NAMESPACES;
    if ordinary::is_ordinary() {
        return match ordinary::enter() {
            Ok(()) => line(subject, Holds::Yes, "allowed", None),
            Err(refusal) => line(subject, Holds::No, refusal.text, Some(refusal.hint)),
        };
    }
    match ordinary::forbidden_by_settings() {
        None => line(subject, Holds::Yes, "allowed (not needed as root)", None),
        Some(refusal) => {
            line(subject, Holds::Weaker, format!("{}; root needs none", refusal.text), Some(refusal.hint))
        }
    }
}

fn isolation() -> Line {
    let text = "validated: outsiders' changes are found at commit, their reads may see a commit's objects change one by one";
    line("isolation", Holds::Yes, text, None)
}

fn hooks() -> Line {
    let subject = "recovery at boot";
    let places = ["/etc/systemd/system/systx-recover.service", "/etc/profile.d/systx.sh"];
    if places.iter().any(|place| Path::new(place).exists()) {
        line(subject, Holds::Yes, "hooks are installed", None)
    } else {
        line(subject, Holds::Weaker, "left to the next use of systx", Some("systx install-hooks"))
    }
}

fn helper() -> Line {
    if Path::new("/sys/fs/cgroup/cgroup.controllers").exists() {
        line("helper", Holds::Yes, "survives the end of a service or session, in a cgroup of its own", None)
    } else {
        line(
            "helper",
            Holds::Weaker,
            "ends with its service or session; then the next use of systx recovers",
            Some("Use cgroup v2"),
        )
    }
}

fn of_labels() -> Option<Line> {
    let text = "SELinux: inside, labels protect nothing; new files get the label of the area";
    labels::decide().then(|| line("labels", Holds::Weaker, text, Some("restorecon behind each commit")))
}

/// Of the library's processes.
fn watcher() -> Line {
    match systx::Watcher::Found.program() {
        Ok(program) => {
            let text = format!(
                "{} finishes for killed processes of the library",
                shown(program.as_os_str().as_bytes())
            );
            line("watcher", Holds::Yes, text, None)
        }
        Err(why) => {
            let text =
                format!("none for processes of the library: {why}; the next use finishes for killed ones");
            line("watcher", Holds::Weaker, text, Some("make install, or SYSTX_WATCHER=/path/of/systx"))
        }
    }
}

/// A mount that is read-only inside a transaction.
fn left_out(point: &[u8], fs_type: &str) -> Line {
    match fs_type {
        "devtmpfs" => {
            let text = "devices work inside a transaction; nothing can be made or removed beside them";
            line_of(point, "devices", Holds::Yes, text, None)
        }
        _ => {
            let text = format!("{fs_type} can't be served: read-only inside a transaction");
            line_of(point, "file system", Holds::Weaker, text, None)
        }
    }
}

fn file_system(os: &Linux, mounted: &Mounted, area: &Area) -> Vec<Line> {
    let point = &mounted.lower.point;
    let (ours, mut lines) = our_area(os, mounted, area);
    match probe(os, mounted, ours) {
        Ok((info, features)) => {
            lines.extend(describe(point, &info));
            lines.extend(special(point, features));
        }
        Err(e) => {
            let text = format!("can't be examined: {e}");
            lines.push(line_of(point, "file system", Holds::No, text, None));
        }
    }
    lines
}

/// The area of a mount, if it has one that can be used, and what is to be said of it.
fn our_area(os: &Linux, mounted: &Mounted, area: &Area) -> (Option<OwnedFd>, Vec<Line>) {
    let name = domains::area_name(area);
    let (root, name) = (&mounted.copy.root, &*name);
    let add = |holds, text: String, hint| line_of(&mounted.lower.point, "area", holds, text, hint);
    let stat = match os.stat_at(root, name) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => {
            return (None, vec![add(Holds::Yes, "none yet: the first run makes it".into(), None)]);
        }
        Err(e) => return (None, vec![add(Holds::No, e.to_string(), None)]),
    };
    let foreign = format!("{} belongs to user {}: not used", shown(name), stat.uid);
    match stat.kind() {
        _ if stat.uid != os.uid() && os.uid() == 0 => {
            let hint = Some("The next `systx run` moves it away");
            (None, vec![add(Holds::Weaker, foreign, hint)])
        }
        _ if stat.uid != os.uid() => (None, vec![add(Holds::No, foreign, Some("Move it away"))]),
        FileType::Directory if stat.perm() & 0o077 == 0 => {
            let dir = os.open(root, name, Open::Directory).ok();
            let line = match dir.as_ref().and_then(|dir| of_another_kind(os, dir)) {
                Some(text) => add(Holds::No, text, Some("Move the area away: the next run makes it anew")),
                None => add(Holds::Yes, "there, and no other user can enter it".into(), None),
            };
            (dir, vec![line])
        }
        FileType::Directory => {
            let text = format!("others can enter it (mode {:04o})", stat.perm());
            (None, vec![add(Holds::No, text, Some("Look at it, then chmod it to 0700"))])
        }
        _ => (None, vec![add(Holds::No, "is no directory".into(), Some("Move away what has its name"))]),
    }
}

/// Something in an area that can't be what has that name there.
fn of_another_kind(os: &Linux, area: &OwnedFd) -> Option<String> {
    let (dir, file) = (("directory", FileType::Directory), ("file", FileType::File));
    let all =
        [("log", dir), ("tx", dir), ("aside", dir), ("table", file), ("owners", file), ("format", file)];
    let is_another =
        |name: &str, kind| os.stat_at(area, name.as_bytes()).is_ok_and(|stat| stat.kind() != kind);
    let (name, (kind, _)) = all.into_iter().find(|(name, (_, kind))| is_another(name, *kind))?;
    Some(format!("`{name}` in it is no {kind}"))
}

/// Probes in the area where there is one, else in a directory that is removed again.
fn probe(os: &Linux, mounted: &Mounted, area: Option<OwnedFd>) -> Result<(FsInfo, Features), Errno> {
    let root = &mounted.copy.root;
    let look = |dir: OwnedFd| Ok((os.probe_thoroughly(&dir)?, features(&dir)));
    if let Some(dir) = area {
        return look(dir);
    }
    let name = format!(".systx-doctor-{}", os.pid()).into_bytes();
    os.mkdir(root, &name, 0o700)?;
    let info = os.open(root, &name, Open::Directory).and_then(look);
    os.rmdir(root, &name)?;
    info
}

/// Directories into which nothing new can be put: which there are is not looked for.
fn special(point: &[u8], features: Features) -> Option<Line> {
    let text = match features {
        Features { encryption: false, case_folding: false } => return None,
        Features { encryption: true, case_folding: false } => {
            "can have encrypted directories (fscrypt): nothing new can be made in one inside a transaction"
        }
        Features { encryption: false, case_folding: true } => {
            "can have directories that are blind to case (chattr +F): no name can change in one inside a transaction"
        }
        Features { encryption: true, case_folding: true } => {
            "can have encrypted directories and such that are blind to case: in the former nothing new can be made inside a transaction, in \
             the latter no name can change"
        }
    };
    Some(line_of(point, "special directories", Holds::Weaker, text, None))
}

fn describe(point: &[u8], info: &FsInfo) -> Vec<Line> {
    let (holds, text, hint) = match info.kind {
        FsKind::Ext4NoJournal => (
            Holds::Weaker,
            "ext4 without a journal: it can damage the file system itself",
            Some("tune2fs -O has_journal while it is unmounted"),
        ),
        FsKind::Ext4 => (Holds::Yes, "ext4 with a journal: durable commits survive", None),
        FsKind::Xfs => (Holds::Yes, "xfs, which has a journal: durable commits survive", None),
        FsKind::Btrfs => (Holds::Yes, "btrfs, which writes trees anew: durable commits survive. A subvolume without a mount of its own is read-only inside", None),
        FsKind::Tmpfs => (Holds::Yes, "tmpfs: nothing on it survives, half a commit neither", None),
        FsKind::Other(_) => (Holds::Weaker, "the file system is not on the list of tested ones", None),
    };
    let mut lines = vec![line_of(point, "power loss", holds, text, hint)];
    let mut add = |subject, is: bool, yes: &str, otherwise: Holds, no: &str, hint| {
        lines.push(if is {
            line_of(point, subject, Holds::Yes, yes, None)
        } else {
            line_of(point, subject, otherwise, no, hint)
        });
    };
    add(
        "file handles",
        info.handles,
        "objects are told apart, whatever becomes of their names",
        Holds::No,
        "none: objects can't be told apart",
        None,
    );
    add(
        "conditional renames",
        info.rename_flags,
        "RENAME_EXCHANGE and RENAME_NOREPLACE: nothing of an outsider is overwritten",
        Holds::No,
        "no RENAME_EXCHANGE and RENAME_NOREPLACE: nothing can be published safely",
        None,
    );
    add(
        "multigrain stamps",
        info.file_stamps,
        "every change of a file that was looked at moves its stamp",
        Holds::Weaker,
        "none: contents are compared by hash, reading costs more",
        Some("Use Linux 6.13 or later with ext4 (inodes of 256 bytes: tune2fs -l), xfs, btrfs or tmpfs"),
    );
    add(
        "leases",
        info.leases,
        "no program opens a file while it is changed in place",
        Holds::Weaker,
        "none: a file changed in place can be seen half changed",
        Some("sysctl fs.leases-enable=1"),
    );
    add(
        "opening by handle",
        info.open_by_handle,
        "recovery finds a directory that was renamed",
        Holds::Weaker,
        "not possible: recovery after a rename of a directory may report instead of finish",
        None,
    );
    lines
}
