//! systemd's units after a recovery: what was half published when the boot read them is read again.
//!
//! Owns: the directories in which units stand. Does not: start what is new among them; a boot that runs has
//! made its plan.

use crate::failure::{Failure, Result};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// systemd.unit(5), and what its generators read.
const PLACES: [&str; 7] = [
    "/etc/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
    "/etc/systemd/system-generators",
    "/etc/init.d",
    "/etc/fstab",
];
/// Drop-ins and links stand one directory below.
const DEPTH: usize = 2;
const OLD: &str = "units may be as they were before the recovery";
/// The kernel's clock for stamps is behind the one that a program reads, by a tick.
const TICK: Duration = Duration::from_millis(20);

/// Has systemd, where it runs, read its units anew if one has changed since then.
pub fn reload_if_changed(since: SystemTime) -> Result<()> {
    let since = since.duration_since(UNIX_EPOCH).unwrap_or_default().saturating_sub(TICK);
    let booted = Path::new("/run/systemd/system").is_dir();
    if !booted || !PLACES.iter().any(|place| has_changed(Path::new(place), since, DEPTH)) {
        return Ok(());
    }
    let reload = Command::new("systemctl").arg("daemon-reload").stdin(Stdio::null()).output();
    match reload {
        Ok(done) if done.status.success() => Ok(()),
        Ok(done) => {
            let said = String::from_utf8_lossy(&done.stderr).trim().to_string();
            Err(Failure::new("systemctl daemon-reload", said).hint(OLD))
        }
        Err(e) => Err(Failure::new("systemctl can't be run", e).hint(OLD)),
    }
}

/// Returns true if the path, or an entry below it down to `depth`, has a change time of `since` or later.
fn has_changed(path: &Path, since: Duration, depth: usize) -> bool {
    let Ok(meta) = path.symlink_metadata() else { return false };
    let changed = Duration::new(meta.ctime().unsigned_abs(), meta.ctime_nsec() as u32);
    if changed >= since {
        return true;
    }
    depth > 0
        && meta.is_dir()
        && std::fs::read_dir(path)
            .is_ok_and(|entries| entries.flatten().any(|e| has_changed(&e.path(), since, depth - 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_seen_in_a_directory_of_drop_ins_and_not_before_it() {
        let dir = systx_runner::Scratch::new("units");
        std::fs::create_dir_all(dir.join("a.service.d")).unwrap();
        let drop_in = dir.join("a.service.d/b.conf");
        std::fs::write(&drop_in, "").unwrap();
        let meta = drop_in.symlink_metadata().unwrap();
        let at = Duration::new(meta.ctime() as u64, meta.ctime_nsec() as u32);
        assert!(has_changed(&dir, at, DEPTH));
        assert!(!has_changed(&dir, at + Duration::from_secs(1), DEPTH));
        assert!(!has_changed(&dir.join("none"), Duration::ZERO, DEPTH));
    }
}
