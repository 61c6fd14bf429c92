//! File systems on loop devices that can lose power.

use super::{have, must};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A file system in a file.
pub struct Volume {
    pub image: PathBuf,
    pub point: PathBuf,
    pub kind: &'static str,
}

impl Volume {
    /// Makes and mounts one; `None`, with a reason printed, where it can't be had. Kinds: ext4, ext4-nj (no
    /// journal), ext4-4k (blocks of 4 KiB), ext4-encrypt, ext4-casefold, ext4-128 (inodes without room
    /// for fine time stamps), ext4-no-extents (files have block maps, as on ext3),
    /// ext4-inline-data (small files and directories lie in their inodes), ext3 (one made as such, which the driver of
    /// ext4 serves), xfs, btrfs; and tmpfs, which has no image and can't lose power.
    pub fn new(dir: &Path, kind: &'static str, megabytes: u64) -> Option<Volume> {
        let volume = Volume { image: dir.join(format!("{kind}.img")), point: dir.join(kind), kind };
        if kind == "tmpfs" {
            return volume.in_memory(megabytes);
        }
        let (tool, options): (&str, &[&str]) = match kind {
            "ext4-nj" => ("mkfs.ext4", &["-q", "-O", "^has_journal"]),
            "ext4-128" => ("mkfs.ext4", &["-q", "-I", "128"]),
            "ext4" => ("mkfs.ext4", &["-q"]),
            "ext3" => ("mkfs.ext3", &["-q"]),
            "ext4-inline-data" => ("mkfs.ext4", &["-q", "-O", "inline_data"]),
            "ext4-no-extents" => ("mkfs.ext4", &["-q", "-O", "^extents,^64bit"]),
            "ext4-4k" => ("mkfs.ext4", &["-q", "-b", "4096"]),
            "ext4-encrypt" => ("mkfs.ext4", &["-q", "-O", "encrypt"]),
            "ext4-casefold" => ("mkfs.ext4", &["-q", "-O", "casefold"]),
            "xfs" => ("mkfs.xfs", &["-q"]),
            "btrfs" => ("mkfs.btrfs", &["-q"]),
            _ => panic!("no file system is called {kind}"),
        };
        if !have(tool) {
            return None;
        }
        std::fs::create_dir(&volume.point).unwrap();
        std::fs::File::create(&volume.image).unwrap().set_len(megabytes << 20).unwrap();
        must(Command::new(tool).args(options).arg(&volume.image));
        match volume.try_mount() {
            Ok(()) => Some(volume),
            Err(why) => {
                println!("skipped: {kind} on a loop device can't be mounted: {why}");
                None
            }
        }
    }

    fn in_memory(self, megabytes: u64) -> Option<Volume> {
        std::fs::create_dir(&self.point).unwrap();
        let size = format!("size={megabytes}m");
        must(Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(&self.point));
        let name = Command::new("setfattr").args(["-n", "user.try", "-v", "1"]).arg(&self.point).output();
        match name {
            Ok(output) if output.status.success() => {
                must(Command::new("setfattr").args(["-x", "user.try"]).arg(&self.point));
                Some(self)
            }
            _ => {
                println!("skipped: no setfattr, or this kernel's tmpfs has no extended attributes of users");
                None
            }
        }
    }

    /// A btrfs of which one subvolume, mounted alone, is under a quota: those of ext4 and xfs don't bind root
    /// everywhere.
    pub fn with_quota(dir: &Path) -> Option<(Volume, Quota)> {
        if !have("btrfs") {
            return None;
        }
        let whole = Volume::new(dir, "btrfs", 300)?;
        let point = dir.join("limited");
        std::fs::create_dir(&point).unwrap();
        must(Command::new("btrfs").args(["subvolume", "create"]).arg(whole.point.join("limited")));
        must(Command::new("btrfs").args(["quota", "enable"]).arg(&whole.point));
        let device = must(Command::new("findmnt").args(["-no", "SOURCE"]).arg(&whole.point));
        must(Command::new("mount").args(["-o", "subvol=limited", device.trim()]).arg(&point));
        let volume = Volume { image: whole.image.clone(), point, kind: "btrfs" };
        Some((volume, Quota { whole: whole.point }))
    }

    fn try_mount(&self) -> Result<(), String> {
        let output = Command::new("mount").args(["-o", "loop"]).arg(&self.image).arg(&self.point).output();
        match output {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => Err(super::err(&output)),
            Err(e) => Err(e.to_string()),
        }
    }

    pub fn mount(&self) {
        self.try_mount().unwrap_or_else(|why| panic!("{}: {why}", self.image.display()));
    }

    /// Unmounts, and returns when the device is closed: copies of the mount in namespaces of the dead go a
    /// little later.
    pub fn unmount(&self) {
        must(Command::new("umount").arg(&self.point));
        self.closed();
    }

    /// The same, once a helper that has nothing to do has ended: it may be the last to know that its owner has.
    fn unmount_behind_the_last(&self) {
        let mut last = String::new();
        let mut unmounted = || {
            let output = Command::new("umount").arg(&self.point).output().unwrap();
            last = super::err(&output);
            output.status.success()
        };
        let done = (0..10_000).any(|_| unmounted());
        assert!(done, "{last}");
        self.closed();
    }

    fn closed(&self) {
        let open = || !must(Command::new("losetup").arg("-j").arg(&self.image)).is_empty();
        assert!((0..10_000).any(|_| !open()), "{} is still in use", self.image.display());
    }

    pub fn area(&self) -> PathBuf {
        self.point.join(super::AREA)
    }

    /// Starts a process that cuts the power at once on demand: what the file system has not written to its
    /// device is lost.
    pub fn switch(&self) -> Option<Switch> {
        if !have("xfs_io") {
            return None;
        }
        // FS_IOC_SHUTDOWN with flag 2, "don't flush the log"; xfs_io has it as an expert's command, for ext4, too.
        let mut xfs_io = Command::new("xfs_io");
        xfs_io.args(["-x", "-r"]).arg(&self.point);
        let child =
            xfs_io.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        Some(Switch(child))
    }

    /// What was not on the device is lost, and it is mounted again in the same boot: the device as it is at this
    /// instant takes the place of the one that is mounted, or its file system is shut down. `None`: that can't be had.
    pub fn lose_cache(&self) -> Option<()> {
        if self.kind == "btrfs" {
            let copy = self.image.with_extension("copy");
            std::fs::copy(&self.image, &copy).unwrap();
            self.unmount();
            std::fs::rename(copy, &self.image).unwrap();
        } else {
            self.switch()?.off();
            self.unmount();
        }
        self.mount();
        Some(())
    }

    /// After a loss of power, with everybody dead: mounts anew what the device holds, as a boot would.
    pub fn boot(&self) {
        self.boot_of(&self.area());
    }

    /// Like `boot`, with an area that is elsewhere.
    pub fn boot_of(&self, area: &Path) {
        self.unmount_behind_the_last();
        self.mount();
        forget_boot(area);
    }

    /// The same from another image.
    pub fn boot_from(&self, copy: &Path, area: &Path) {
        self.unmount_behind_the_last();
        std::fs::rename(copy, &self.image).unwrap();
        self.mount();
        forget_boot(area);
    }

    pub fn forget_boot(&self) {
        forget_boot(&self.area());
    }
}

/// Makes the domain's table one of an earlier boot.
///
/// The power loss is simulated, so the machine's boot id is the same as before, and by it systx takes the table for
/// one that it may rely on. After a real loss the id differs. So the two words that hold it in the file are changed.
pub fn forget_boot(area: &Path) {
    use std::os::unix::fs::FileExt;
    match std::fs::OpenOptions::new().write(true).open(area.join("table")) {
        Ok(table) => {
            if table.metadata().unwrap().len() >= 40 {
                table.write_all_at(&[0x5a; 16], 16).unwrap();
            }
        }
        // Power was lost before it was made.
        Err(e) => assert_eq!(e.kind(), std::io::ErrorKind::NotFound, "{e}"),
    }
}

/// See [`Volume::with_quota`].
pub struct Quota {
    /// The file system; a process that can't write below the limit can write here.
    pub whole: PathBuf,
}

impl Quota {
    /// Sets the limit, in bytes as `btrfs qgroup limit` takes them.
    pub fn limit(&self, bytes: &str) {
        must(Command::new("sync").arg("-f").arg(&self.whole));
        // The first subvolume of a file system.
        must(Command::new("btrfs").args(["qgroup", "limit", bytes, "0/256"]).arg(&self.whole));
    }
}

/// See [`Volume::switch`].
pub struct Switch(Child);

impl Switch {
    pub fn off(self) {
        Switch::all_off([self]);
    }

    /// All at the same instant, but for a few microseconds.
    pub fn all_off<const N: usize>(mut switches: [Switch; N]) {
        for Switch(child) in &mut switches {
            child.stdin.take().unwrap().write_all(b"shutdown\n").unwrap();
        }
        for Switch(child) in switches {
            let output = child.wait_with_output().unwrap();
            assert!(output.status.success() && output.stderr.is_empty(), "{}", super::err(&output));
        }
    }
}
