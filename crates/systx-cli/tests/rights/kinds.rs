//! Kinds of files, each made in a directory of its own, and what such a directory looks like.

use super::machine::user::USER;
use rustix::fs::{IFlags, Mode, XattrFlags};
use std::collections::BTreeMap;
use std::os::unix::fs::{chown, symlink, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;

/// Another user, and the group of that user.
pub const OTHER: u32 = 61235;
/// Name of the object that the calls are made on.
pub const SUBJECT: &str = "subject";

pub enum Shape {
    File,
    Directory,
    Fifo,
    /// To a name in the same directory.
    Link(&'static str),
}

#[derive(Clone, Copy, PartialEq)]
pub enum Extra {
    None,
    /// A second name.
    Named,
    Capability,
    /// An access list that names the user with these permissions.
    List(u16),
    /// A default list that names the other user.
    DefaultList,
    Immutable,
    Append,
}

pub struct Kind {
    pub name: &'static str,
    shape: Shape,
    uid: u32,
    gid: u32,
    mode: u32,
    extra: Extra,
}

impl Kind {
    pub fn is_directory(&self) -> bool {
        matches!(self.shape, Shape::Directory)
    }
}

const fn file(name: &'static str, uid: u32, gid: u32, mode: u32, extra: Extra) -> Kind {
    Kind { name, shape: Shape::File, uid, gid, mode, extra }
}

const fn directory(name: &'static str, uid: u32, gid: u32, mode: u32, extra: Extra) -> Kind {
    Kind { name, shape: Shape::Directory, uid, gid, mode, extra }
}

use Extra::{Append, Capability, DefaultList, Immutable, List, Named};
const NONE: Extra = Extra::None;

/// No directories.
pub const FILES: &[Kind] = &[
    file("mine", USER, USER, 0o644, NONE),
    file("mine-read-only", USER, USER, 0o444, NONE),
    file("mine-closed", USER, USER, 0, NONE),
    file("mine-setuid", USER, USER, 0o4755, NONE),
    file("mine-setgid-of-others", USER, OTHER, 0o2775, NONE),
    file("mine-of-others-group", USER, OTHER, 0o664, NONE),
    file("mine-named", USER, USER, 0o644, Named),
    file("mine-capable", USER, USER, 0o755, Capability),
    file("mine-listed", USER, USER, 0o640, List(6)),
    file("mine-immutable", USER, USER, 0o644, Immutable),
    file("mine-append", USER, USER, 0o644, Append),
    file("others", OTHER, OTHER, 0o644, NONE),
    file("others-open", OTHER, OTHER, 0o666, NONE),
    file("others-named", OTHER, OTHER, 0o644, Named),
    file("others-setuid-open", OTHER, OTHER, 0o6777, NONE),
    file("others-of-my-group", OTHER, USER, 0o664, NONE),
    file("others-closed-to-my-group", OTHER, USER, 0o606, NONE),
    file("others-listed-out", OTHER, OTHER, 0o666, List(0)),
    file("others-listed-in", OTHER, OTHER, 0o600, List(6)),
    file("roots", 0, 0, 0o644, NONE),
    file("roots-open", 0, 0, 0o666, NONE),
    file("roots-secret", 0, 0, 0o600, NONE),
    file("roots-setuid", 0, 0, 0o4755, NONE),
    file("roots-setuid-open", 0, 0, 0o6777, NONE),
    file("roots-setgid-open", 0, OTHER, 0o2777, NONE),
    file("roots-capable", 0, 0, 0o777, Capability),
    Kind { name: "others-fifo", shape: Shape::Fifo, uid: OTHER, gid: OTHER, mode: 0o6644, extra: NONE },
    Kind { name: "link-to-mine", shape: Shape::Link("mine"), uid: USER, gid: USER, mode: 0, extra: NONE },
    Kind {
        name: "link-to-others",
        shape: Shape::Link("other"),
        uid: OTHER,
        gid: OTHER,
        mode: 0,
        extra: NONE,
    },
];

pub const DIRECTORIES: &[Kind] = &[
    directory("dir-mine", USER, USER, 0o755, NONE),
    directory("dir-mine-read-only", USER, USER, 0o555, NONE),
    directory("dir-mine-closed", USER, USER, 0, NONE),
    directory("dir-mine-setgid-of-others", USER, OTHER, 0o2755, NONE),
    directory("dir-mine-default-list", USER, USER, 0o755, DefaultList),
    directory("dir-mine-immutable", USER, USER, 0o755, Immutable),
    directory("dir-mine-append", USER, USER, 0o755, Append),
    directory("dir-others", OTHER, OTHER, 0o755, NONE),
    directory("dir-others-open", OTHER, OTHER, 0o777, NONE),
    directory("dir-others-sticky", OTHER, OTHER, 0o1777, NONE),
    directory("dir-others-setgid", OTHER, OTHER, 0o2777, NONE),
    directory("dir-others-private", OTHER, OTHER, 0o700, NONE),
    directory("dir-others-passable", OTHER, OTHER, 0o711, NONE),
    directory("dir-others-listed-out", OTHER, OTHER, 0o777, List(0)),
    directory("dir-others-listed-in", OTHER, OTHER, 0o700, List(7)),
    directory("dir-roots", 0, 0, 0o755, NONE),
    directory("dir-roots-sticky", 0, 0, 0o1777, NONE),
    directory("dir-roots-of-my-group", 0, USER, 0o775, NONE),
];

/// `struct vfs_cap_data`, revision 2: CAP_SETUID, permitted and effective.
const CAPABILITY: [u8; 20] = [1, 0, 0, 2, 128, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const NOBODY: u32 = u32::MAX;

/// An ACL as an extended attribute holds it.
pub fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

fn set(path: &Path, name: &str, value: &[u8]) {
    rustix::fs::lsetxattr(path, name, value, XattrFlags::empty()).unwrap_or_else(|e| panic!("{name}: {e}"));
}

fn plain_file(path: &Path, uid: u32, gid: u32, mode: u32) {
    std::fs::write(path, format!("of {uid}, secret as its mode says\n")).unwrap();
    own(path, uid, gid, mode);
}

fn own(path: &Path, uid: u32, gid: u32, mode: u32) {
    chown(path, Some(uid), Some(gid)).unwrap();
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

/// The directory of a pair, with its subject and what calls need besides.
pub fn make(dir: &Path, kind: &Kind, sticky: bool) {
    std::fs::create_dir(dir).unwrap();
    plain_file(&dir.join("mine"), USER, USER, 0o644);
    plain_file(&dir.join("other"), OTHER, OTHER, 0o644);
    std::fs::create_dir(dir.join("mine.d")).unwrap();
    own(&dir.join("mine.d"), USER, USER, 0o755);
    let subject = dir.join(SUBJECT);
    match kind.shape {
        Shape::File => plain_file(&subject, kind.uid, kind.gid, kind.mode),
        Shape::Fifo => {
            rustix::fs::mknodat(rustix::fs::CWD, &subject, rustix::fs::FileType::Fifo, Mode::empty(), 0)
                .unwrap();
            own(&subject, kind.uid, kind.gid, kind.mode);
        }
        Shape::Link(to) => {
            symlink(to, &subject).unwrap();
            std::os::unix::fs::lchown(&subject, Some(kind.uid), Some(kind.gid)).unwrap();
        }
        Shape::Directory => {
            std::fs::create_dir(&subject).unwrap();
            for (name, uid) in [("mine", USER), ("other", OTHER), ("root", 0)] {
                plain_file(&subject.join(name), uid, uid, if uid == 0 { 0o666 } else { 0o644 });
            }
            own(&subject, kind.uid, kind.gid, kind.mode);
        }
    }
    match kind.extra {
        Extra::None => {}
        Named => std::fs::hard_link(&subject, dir.join("second")).unwrap(),
        Capability => set(&subject, "security.capability", &CAPABILITY),
        List(user) => {
            let (owner, all) = (if kind.is_directory() { 7 } else { 6 }, ((kind.mode & 7) as u16));
            let entries = [
                (1, owner, NOBODY),
                (2, user, USER),
                (4, all, NOBODY),
                (0x10, 7, NOBODY),
                (0x20, all, NOBODY),
            ];
            set(&subject, "system.posix_acl_access", &list(&entries));
        }
        DefaultList => {
            let entries =
                [(1, 7, NOBODY), (2, 7, OTHER), (4, 5, NOBODY), (0x10, 7, NOBODY), (0x20, 0, NOBODY)];
            set(&subject, "system.posix_acl_default", &list(&entries));
        }
        Immutable | Append => {
            let flag = if kind.extra == Immutable { IFlags::IMMUTABLE } else { IFlags::APPEND };
            let file = std::fs::File::open(&subject).unwrap();
            // Not on every file system: then it is one more file like others.
            let _ = rustix::fs::ioctl_setflags(&file, flag);
        }
    }
    match sticky {
        true => own(dir, 0, 0, 0o1777),
        false => own(dir, USER, USER, 0o755),
    }
}

/// Names below a directory, each with everything that gives or takes a right, and its contents.
pub type State = BTreeMap<String, String>;

pub fn state(dir: &Path) -> State {
    let mut state = State::new();
    walk(dir, ".", &mut state);
    state
}

/// Times that a call has set, and no clock.
const CALLS_OWN: i64 = 1000;

fn walk(path: &Path, name: &str, state: &mut State) {
    let meta = std::fs::symlink_metadata(path).unwrap();
    let kind = meta.file_type();
    let mut text = format!("{:o} {}:{}", meta.mode(), meta.uid(), meta.gid());
    if !kind.is_dir() {
        text += &format!(" links {}", meta.nlink());
    }
    if kind.is_char_device() || kind.is_block_device() {
        text += &format!(" device {}", meta.rdev());
    }
    if meta.mtime() <= CALLS_OWN {
        text += &format!(" mtime {}", meta.mtime());
    }
    let mut names = [0u8; 4096];
    let length = rustix::fs::llistxattr(path, &mut names[..]).unwrap_or(0);
    let mut names: Vec<_> =
        names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()).collect();
    names.sort();
    for name in names {
        let mut value = [0u8; 4096];
        let length = rustix::fs::lgetxattr(path, name, &mut value[..]).unwrap_or(0);
        text += &format!(" {}={:?}", String::from_utf8_lossy(name), &value[..length]);
    }
    if kind.is_symlink() {
        text += &format!(" to {}", std::fs::read_link(path).unwrap().display());
    }
    if kind.is_file() {
        text += &format!(" {:?}", String::from_utf8_lossy(&std::fs::read(path).unwrap()));
    }
    state.insert(name.into(), text);
    if kind.is_dir() {
        for entry in std::fs::read_dir(path).unwrap() {
            let entry = entry.unwrap();
            walk(&entry.path(), &format!("{name}/{}", entry.file_name().to_string_lossy()), state);
        }
    }
}

/// Returns the differences of two states.
pub fn difference(plain: &State, inside: &State) -> String {
    let mut names: Vec<_> = plain.keys().chain(inside.keys()).collect();
    names.sort();
    names.dedup();
    let differs = |name: &&&String| plain.get(**name) != inside.get(**name);
    let line =
        |name: &String| format!("    {name}: plainly {:?}, inside {:?}\n", plain.get(name), inside.get(name));
    names.iter().filter(differs).map(|name| line(name)).collect()
}
