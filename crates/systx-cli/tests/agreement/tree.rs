//! The appearance of a tree, in lines that can be printed inside and compared outside.
//!
//! Owns: the fields, and which of them are compared. A line is `path TAB kind-and-mode TAB owner TAB links
//! TAB device TAB mtime TAB contents TAB extended attributes TAB holes`, bytes that aren't plain text
//! escaped.

use rustix::fs::{self, OFlags, SeekFrom};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// First words of the line before a tree.
pub const BEGIN: &str = "---- tree";
/// Holes are compared in pieces of this size.
const BLOCK: u64 = 4096;
/// Times before 1980 were set by a call; others are the clock's.
const SET_BEFORE: i64 = 315_532_800;

const TIME: usize = 4;
const CLOCK: &str = "the clock's";
const HOLES: usize = 7;

/// Fields by escaped path.
pub type Tree = BTreeMap<String, Vec<String>>;

/// Fields that two looks have in common beside the rest.
#[derive(Clone, Copy)]
pub enum Also<'a> {
    AllTimes,
    /// And which blocks a file of the second had before anything happened; and so many blocks beside data may be data.
    Holes(&'a dyn Fn(&str) -> Blocks, u64),
}

/// Looks at everything below a directory.
pub fn look(dir: &Path) -> Tree {
    let mut tree = Tree::new();
    walk(dir, Path::new("."), &mut tree);
    tree
}

/// Returns the tree as lines.
pub fn print(tree: &Tree) -> String {
    let mut text = format!("{BEGIN}\n");
    for (path, fields) in tree {
        let _ = writeln!(text, "{path}\t{}", fields.join("\t"));
    }
    text
}

/// From lines.
pub fn parse(text: &str) -> Tree {
    let lines = text.lines().skip_while(|line| !line.starts_with(BEGIN)).skip(1);
    let mut words = lines.map(|line| line.split('\t').map(str::to_owned));
    words.by_ref().map(|mut line| (line.next().unwrap_or_default(), line.collect())).collect()
}

/// In what two trees differ, for a person.
pub fn differences(a: &Tree, b: &Tree, also: Also<'_>, a_is: &str, b_is: &str) -> String {
    let mut text = String::new();
    let seen = |tree: &Tree, path: &String| {
        let mut fields = tree.get(path).cloned()?;
        let directory = fields[0].starts_with('4');
        let seconds = fields[TIME].split('.').next().and_then(|s| s.parse::<i64>().ok()).unwrap_or(i64::MAX);
        let fifo = fields[0].len() < 6 && fields[0].starts_with('1');
        if !matches!(also, Also::AllTimes) && (fifo || seconds >= SET_BEFORE) {
            fields[TIME] = CLOCK.into();
        }
        // The file system decides how changes of its names move a directory's time.
        if directory && seconds >= SET_BEFORE {
            fields[TIME] = CLOCK.into();
        }
        if matches!(also, Also::AllTimes) {
            fields[HOLES].clear();
        }
        Some(fields)
    };
    let paths: std::collections::BTreeSet<_> = a.keys().chain(b.keys()).collect();
    for path in paths {
        let (mut left, mut right) = (seen(a, path), seen(b, path));
        if let (Some(left), Some(right)) = (&left, &mut right) {
            // Names that came and went leave no trace in a committed directory, not even in its time.
            if left[0].starts_with('4') && left[TIME] == CLOCK {
                right[TIME] = CLOCK.into();
            }
        }
        if let (Some(left), Some(right), Also::Holes(before, beside)) = (&mut left, &right, also) {
            // Zeros that were written may be a hole. A hole is never written to, but a file that is changed
            // in place may keep a block that it had.
            let mut data: Blocks = blocks(&left[HOLES])
                .into_iter()
                .flat_map(|n| n.saturating_sub(beside)..=n + beside)
                .collect();
            data.extend(before(path));
            if blocks(&right[HOLES]).is_subset(&data) {
                left[HOLES].clone_from(&right[HOLES]);
            }
        }
        if left != right {
            let _ = writeln!(text, "{path}\n  {a_is:9} {left:?}\n  {b_is:9} {right:?}");
        }
    }
    text
}

/// Directories that have another time than they had inside, but for one before: names that came and went
/// leave no trace.
pub fn other_times(inside: &Tree, committed: &Tree) -> String {
    let mut text = String::new();
    let time = |fields: &[String]| {
        let (sec, nsec) = fields[TIME].split_once('.').unwrap_or_default();
        (sec.parse::<i64>().ok(), nsec.to_owned())
    };
    for (path, fields) in inside.iter().filter(|(_, fields)| fields[0].starts_with('4')) {
        let (inside, committed) = (time(fields), committed.get(path).map(|fields| time(fields)));
        if committed.as_ref().is_some_and(|committed| *committed > inside) {
            let _ = writeln!(text, "{path}: inside {inside:?}, committed {committed:?}");
        }
    }
    text
}

fn blocks(ranges: &str) -> Blocks {
    let range = |text: &str| {
        let (from, to) = text.split_once('-').unwrap_or_default();
        from.parse().unwrap_or(0)..to.parse().unwrap_or(0)
    };
    ranges.split_whitespace().flat_map(range).collect()
}

/// Which blocks are data.
pub type Blocks = std::collections::BTreeSet<u64>;

/// The data of every regular file below a directory, by inode number; and each path's inode number.
pub fn inodes(dir: &Path, tree: &Tree) -> (BTreeMap<u64, Blocks>, BTreeMap<String, u64>) {
    let (mut data, mut numbers) = (BTreeMap::new(), BTreeMap::new());
    let mut left = vec![PathBuf::from(".")];
    while let Some(at) = left.pop() {
        let path = dir.join(&at);
        let meta = std::fs::symlink_metadata(&path).unwrap();
        let name = escape(at.as_os_str().as_bytes());
        data.insert(meta.ino(), tree.get(&name).map(|fields| blocks(&fields[HOLES])).unwrap_or_default());
        numbers.insert(name, meta.ino());
        if meta.is_dir() {
            left.extend(std::fs::read_dir(path).unwrap().map(|entry| at.join(entry.unwrap().file_name())));
        }
    }
    (data, numbers)
}

/// Bytes as text without tabs and newlines.
pub fn escape(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

fn walk(top: &Path, at: &Path, tree: &mut Tree) {
    let path = top.join(at);
    let meta = std::fs::symlink_metadata(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let kind = meta.mode() & 0o170_000;
    let (mut content, mut holes) = (String::new(), String::new());
    if meta.is_file() {
        (content, holes) = bytes_of(&path, meta.size());
    } else if meta.is_symlink() {
        content = escape(std::fs::read_link(&path).unwrap().as_os_str().as_bytes());
    }
    let links = if meta.is_dir() { String::new() } else { format!("links {}", meta.nlink()) };
    let device = if kind == 0o020_000 || kind == 0o060_000 { meta.rdev() } else { 0 };
    let fields = vec![
        format!("{:o}", meta.mode()),
        format!("{}:{}", meta.uid(), meta.gid()),
        links,
        format!("device {device:x}"),
        format!("{}.{:09}", meta.mtime(), meta.mtime_nsec()),
        content,
        xattrs(&path),
        holes,
    ];
    tree.insert(escape(at.as_os_str().as_bytes()), fields);
    if meta.is_dir() {
        for entry in std::fs::read_dir(&path).unwrap() {
            walk(top, &at.join(entry.unwrap().file_name()), tree);
        }
    }
}

/// A sum over what is not zero, with its place; and the blocks that are data.
fn bytes_of(path: &Path, size: u64) -> (String, String) {
    use std::os::unix::fs::FileExt;
    let file = fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, fs::Mode::empty()).unwrap();
    // Reserved blocks that a process has read are taken for data as long as they stay in memory.
    fs::fadvise(&file, 0, None, fs::Advice::DontNeed).unwrap();
    let file = std::fs::File::from(file);
    let (mut sum, mut at, mut data) = (0xcbf2_9ce4_8422_2325u64, 0, String::new());
    let mut add = |byte: u64| sum = (sum ^ byte).wrapping_mul(0x0100_0000_01b3);
    let mut buffer = vec![0; 1 << 20];
    while let Ok(from) = fs::seek(&file, SeekFrom::Data(at)) {
        let to = fs::seek(&file, SeekFrom::Hole(from)).unwrap();
        let _ = write!(data, " {}-{}", from / BLOCK, to.min(size).div_ceil(BLOCK));
        at = from;
        while at < to {
            let want = buffer.len().min((to - at) as usize);
            let n = file.read_at(&mut buffer[..want], at).unwrap();
            assert!(n > 0, "{}: {at} of {size}", path.display());
            for (i, byte) in buffer[..n].iter().enumerate().filter(|(_, byte)| **byte != 0) {
                add(at + i as u64);
                add(u64::from(*byte));
            }
            at += n as u64;
        }
    }
    (format!("{size} bytes {sum:016x}"), data)
}

/// Names of extended attributes, escaped. xfs shows root its ACLs by two names, of which a view shows the
/// usual one.
pub fn names(list: &[u8]) -> Vec<String> {
    let names =
        list.split(|b| *b == 0).filter(|name| !name.is_empty() && !name.starts_with(b"trusted.SGI_ACL_"));
    let mut names: Vec<_> = names.map(escape).collect();
    names.sort();
    names
}

fn xattrs(path: &Path) -> String {
    let mut list = vec![0; 16_384];
    let used = fs::llistxattr(path, &mut list[..]).unwrap_or(0);
    let one = |name: String| {
        let mut value = vec![0; 65_536];
        let used = fs::lgetxattr(path, &name, &mut value[..]).unwrap();
        format!("{name}={}", escape(&value[..used]))
    };
    names(&list[..used]).into_iter().map(one).collect::<Vec<_>>().join(" ")
}
