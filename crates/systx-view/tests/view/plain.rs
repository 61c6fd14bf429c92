//! What a tree looks like, as text.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// One line an object, sorted by path.
pub fn dump(root: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    walk(root, root, &mut lines);
    lines.sort();
    lines
}

fn walk(root: &Path, path: &Path, lines: &mut Vec<String>) {
    let meta = fs::symlink_metadata(path).unwrap();
    let kind = meta.file_type();
    let mut line = format!(
        "{} {:o} {}:{}",
        path.strip_prefix(root).unwrap().display(),
        meta.mode(),
        meta.uid(),
        meta.gid()
    );
    if !kind.is_dir() {
        line += &format!(" links {} size {}", meta.nlink(), meta.size());
    }
    if kind.is_file() {
        let bytes = fs::read(path).unwrap();
        let sum = bytes.iter().fold(0u64, |sum, b| sum.wrapping_mul(31).wrapping_add(u64::from(*b)));
        line += &format!(" bytes {sum:x}");
    } else if kind.is_symlink() {
        line += &format!(" -> {}", fs::read_link(path).unwrap().display());
    } else if kind.is_char_device() || kind.is_block_device() {
        line += &format!(" device {:x}", meta.rdev());
    }
    line += &xattrs(path);
    lines.push(line);
    if kind.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            walk(root, &entry.unwrap().path(), lines);
        }
    }
}

/// Names and values of all extended attributes.
pub fn xattrs(path: &Path) -> String {
    let mut list = vec![0; 4096];
    let len = rustix::fs::llistxattr(path, &mut list).unwrap_or(0);
    let mut names: Vec<&[u8]> = list[..len].split(|b| *b == 0).filter(|n| !n.is_empty()).collect();
    names.sort_unstable();
    let value = |name: &[u8]| {
        let mut value = vec![0; 4096];
        let len = rustix::fs::lgetxattr(path, std::ffi::OsStr::from_bytes(name), &mut value).unwrap_or(0);
        format!(" {}={:x?}", String::from_utf8_lossy(name), &value[..len])
    };
    names.into_iter().map(value).collect()
}
