//! What programs do, by path, in a transaction over a directory.

use super::*;
use std::process::Command;
use systx_engine::transaction::SetAttr;
use systx_os::Rename;

/// A transaction over a directory that `prepare` has filled, on every file system at hand.
pub fn everywhere(prepare: impl Fn(&PathBuf), test: impl Fn(Transaction<Linux>, &PathBuf)) {
    for base in bases() {
        let Some(scratch) = Scratch::new(base.clone()) else {
            println!("skipped on {}: not writable", base.display());
            continue;
        };
        let domain = domain(&scratch, "lower");
        let lower = scratch.0.join("lower");
        prepare(&lower);
        let set =
            "find . -path ./.area -prune -o -type d -exec chmod 755 {} + -o -type f -exec chmod 644 {} +";
        let done = Command::new("sh").args(["-c", set]).current_dir(&lower).status().unwrap();
        assert!(done.success(), "modes that don't depend on the umask");
        test(begin(&domain), &lower);
    }
}

/// The node at a path.
pub fn node(t: &mut Transaction<Linux>, path: &str) -> Node {
    walk(t, path).unwrap().0
}

/// Writes a file anew.
pub fn write(t: &mut Transaction<Linux>, path: &str, bytes: &[u8]) {
    let node = node(t, path);
    t.open(node, Access::Write, true).unwrap();
    assert_eq!(t.write_at(node, bytes, 0), Ok(bytes.len()));
    t.close(node);
}

/// Makes a file.
pub fn create(t: &mut Transaction<Linux>, path: &str, bytes: &[u8]) {
    let (dir, name) = split(path);
    let dir = node(t, dir);
    let (made, _) = t.create(dir, name.as_bytes(), 0o644, me()).unwrap();
    t.open(made, Access::Write, false).unwrap();
    assert_eq!(t.write_at(made, bytes, 0), Ok(bytes.len()));
    t.close(made);
}

/// Makes a directory.
pub fn mkdir(t: &mut Transaction<Linux>, path: &str) {
    let (dir, name) = split(path);
    let dir = node(t, dir);
    t.mkdir(dir, name.as_bytes(), 0o755, me()).unwrap();
}

/// Removes a name that is no directory.
pub fn remove(t: &mut Transaction<Linux>, path: &str) {
    let (dir, name) = split(path);
    let dir = node(t, dir);
    t.unlink(dir, name.as_bytes()).unwrap();
}

/// Removes a directory.
pub fn rmdir(t: &mut Transaction<Linux>, path: &str) {
    let (dir, name) = split(path);
    let dir = node(t, dir);
    t.rmdir(dir, name.as_bytes()).unwrap();
}

/// Renames, in one of its forms.
pub fn rename_as(t: &mut Transaction<Linux>, from: &str, to: &str, how: Rename) {
    let ((from_dir, from), (to_dir, to)) = (split(from), split(to));
    let (from_dir, to_dir) = (node(t, from_dir), node(t, to_dir));
    t.rename(from_dir, from.as_bytes(), to_dir, to.as_bytes(), how).unwrap();
}

/// Renames.
pub fn rename(t: &mut Transaction<Linux>, from: &str, to: &str) {
    rename_as(t, from, to, Rename::Replace);
}

/// Gives a file one more name.
pub fn link(t: &mut Transaction<Linux>, from: &str, to: &str) {
    let (dir, name) = split(to);
    let (from, dir) = (node(t, from), node(t, dir));
    t.link(from, dir, name.as_bytes()).unwrap();
}

/// Sets attributes.
pub fn set(t: &mut Transaction<Linux>, path: &str, set: SetAttr) {
    let node = node(t, path);
    t.setattr(node, &set).unwrap();
}
