//! A scratch directory, and file systems in it.

use super::built::must;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A directory that goes with everything in it. Mounts in it are of this process's namespace.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new() -> Scratch {
        let dir = std::env::temp_dir().join(format!("systx-c-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        Scratch(dir)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

/// A mounted file system.
pub struct Volume {
    point: PathBuf,
}

impl Volume {
    /// `None`, with a reason printed, where it can't be had.
    pub fn new(dir: &Path, kind: &str, megabytes: u64) -> Option<Volume> {
        let point = dir.join(kind);
        std::fs::create_dir(&point).unwrap();
        let image = dir.join(format!("{kind}.img"));
        let mut mount = Command::new("mount");
        if kind == "tmpfs" {
            mount.args(["-t", "tmpfs", "-o", &format!("size={megabytes}m"), "tmpfs"]);
        } else {
            std::fs::File::create(&image).unwrap().set_len(megabytes << 20).unwrap();
            let made = Command::new(format!("mkfs.{kind}")).arg("-q").arg(&image).output();
            if !made.is_ok_and(|output| output.status.success()) {
                println!("skipped: {kind}: no file system can be made");
                return None;
            }
            mount.args(["-o", "loop"]).arg(&image);
        }
        let mounted = mount.arg(&point).output().unwrap();
        if !mounted.status.success() {
            println!("skipped: {kind}: {}", String::from_utf8_lossy(&mounted.stderr).trim());
            return None;
        }
        let volume = Volume { point };
        std::fs::create_dir(volume.tree()).unwrap();
        Some(volume)
    }

    /// A directory for a program.
    pub fn tree(&self) -> PathBuf {
        self.point.join("tree")
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        must(Command::new("umount").arg("--lazy").arg(&self.point));
    }
}
