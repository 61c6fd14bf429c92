//! A tree as far as a user can distinguish it from another: names, contents, types, modes, owners, times,
//! links, xattrs.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A line for each path.
pub type Picture = BTreeMap<String, String>;

/// Takes one. The area is left out.
pub fn picture(dir: &Path) -> Picture {
    let mut lines = Picture::new();
    look(dir, Path::new(""), &mut lines, &mut HashMap::new());
    lines
}

fn look(top: &Path, at: &Path, lines: &mut Picture, first: &mut HashMap<u64, String>) {
    let path = top.join(at);
    let meta = std::fs::symlink_metadata(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let name = at.display().to_string();
    let mut line =
        format!("{:o} {}:{} {}.{}", meta.mode(), meta.uid(), meta.gid(), meta.mtime(), meta.mtime_nsec());
    if meta.is_file() {
        let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let _ = write!(line, " {} bytes {:016x}", bytes.len(), sum(&bytes));
        if bytes.len() <= 40 {
            let _ = write!(line, " {:?}", String::from_utf8_lossy(&bytes));
        }
    }
    if meta.is_symlink() {
        let _ = write!(line, " -> {}", std::fs::read_link(&path).unwrap().display());
    }
    if !meta.is_dir() {
        let same = first.entry(meta.ino()).or_insert_with(|| name.clone());
        let _ = write!(line, " links {} same as {same}", meta.nlink());
    }
    for (key, value) in xattrs(&path) {
        let _ = write!(line, " {key}={value}");
    }
    lines.insert(name, line);
    if meta.is_dir() {
        let mut names: Vec<_> =
            std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        for name in names.iter().filter(|name| *name != super::AREA && *name != "lost+found") {
            look(top, &at.join(name), lines, first);
        }
    }
}

fn xattrs(path: &Path) -> BTreeMap<String, String> {
    let mut list = [0u8; 4096];
    let used = rustix::fs::llistxattr(path, &mut list[..]).unwrap_or(0);
    let names = list[..used].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let value = |name: &[u8]| {
        let mut value = [0u8; 4096];
        let used = rustix::fs::lgetxattr(path, std::ffi::OsStr::from_bytes(name), &mut value[..]).unwrap();
        String::from_utf8_lossy(&value[..used]).into_owned()
    };
    names.map(|name| (String::from_utf8_lossy(name).into_owned(), value(name))).collect()
}

/// FNV-1a, eight bytes at a time: enough to distinguish versions that were not made to collide.
fn sum(bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(0xcbf2_9ce4_8422_2325, |sum, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        (sum ^ u64::from_le_bytes(word)).wrapping_mul(0x0100_0000_01b3).rotate_left(29)
    })
}

/// In what two pictures differ, for a person.
pub fn difference(found: &Picture, expected: &Picture) -> String {
    let mut text = String::new();
    for (name, line) in found.iter().filter(|(name, line)| expected.get(*name) != Some(line)) {
        let _ = writeln!(text, "  {name}: {line}\n    expected {:?}", expected.get(name));
    }
    for name in expected.keys().filter(|name| !found.contains_key(*name)) {
        let _ = writeln!(text, "  {name}: missing");
    }
    text
}
