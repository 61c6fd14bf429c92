//! An ordinary user without any way to get a privilege.

use super::must;
use std::path::Path;
use std::process::Command;

pub const USER: u32 = 61234;

/// Prefix of the user's commands.
pub const UNPRIVILEGED: [&str; 8] = [
    "setpriv",
    "--reuid=61234",
    "--regid=61234",
    "--clear-groups",
    "--inh-caps=-all",
    "--ambient-caps=-all",
    "--bounding-set=-all",
    "--",
];

/// Like `UNPRIVILEGED`, but a program file may still give them capabilities.
#[allow(dead_code)] // not by every suite
pub const ORDINARY: &[&str] = UNPRIVILEGED.split_at(6).0;

/// Makes /dev/fuse one that everybody may open, as on most systems, in this program's own mount namespace.
pub fn open_fuse_to_all(dir: &Path) {
    use std::os::unix::fs::PermissionsExt;
    // By a case before: its node is deleted by now, and nothing can be mounted on a name that is gone.
    if std::fs::metadata("/dev/fuse").is_ok_and(|node| node.permissions().mode() & 0o666 == 0o666) {
        return;
    }
    let node = dir.join("fuse");
    must(Command::new("mknod").args(["-m", "666"]).arg(&node).args(["c", "10", "229"]));
    must(Command::new("mount").arg("--bind").arg(&node).arg("/dev/fuse"));
}
