//! Where a case works: a file system made for it, a directory that is served, and one beside it that is not.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, OnceLock};
use stray::Strays;
use systx_runner::{self as runner, Tried};
use tidy::tidy;

#[path = "../machine/stray.rs"]
mod stray;
#[path = "../machine/tidy.rs"]
mod tidy;
#[path = "../machine/word.rs"]
pub mod word;

pub const SYSTX: &str = env!("CARGO_BIN_EXE_systx");
/// Not the usual name: a command that looks at all file systems must not touch the machine's own areas.
pub const AREA: &str = ".systx-test";
pub const KINDS: [&str; 4] = ["tmpfs", "ext4", "xfs", "btrfs"];

/// The least that mkfs.xfs takes is 300 MB.
const IMAGE_BYTES: u64 = 320 << 20;

/// A promise.
pub type Case = fn(&Place);

/// Everything on disk that a run of the tests makes; removed on drop. Mounts go with the namespace.
pub struct Scratch(PathBuf, Strays);

impl Scratch {
    pub fn new() -> Scratch {
        let path = std::env::temp_dir().join(format!("systx-run-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Scratch(path, Strays::at_the_start(AREA))
    }

    /// The cases on a file system of their own, which is made for the first of them that runs.
    pub fn cases(self: Arc<Scratch>, kind: &str, cases: &[(&str, Case)]) -> Vec<runner::Case> {
        let mount: Arc<OnceLock<Option<PathBuf>>> = Arc::default();
        let case = |&(name, case): &(&str, Case)| {
            let (scratch, mount) = (self.clone(), mount.clone());
            let (kind, name) = (kind.to_owned(), name.to_owned());
            runner::Case::new(format!("{kind}::{name}"), move || {
                fastrand::seed(runner::seed());
                match mount.get_or_init(|| scratch.mount(&kind)) {
                    Some(mount) => case(&Place::new(mount, &name)),
                    None => return Tried::Skipped,
                }
                Tried::Passed
            })
        };
        cases.iter().map(case).collect()
    }

    /// A fresh file system; `None`, with a reason printed, where it can't be had.
    pub fn mount(&self, kind: &str) -> Option<PathBuf> {
        let point = self.0.join(kind);
        std::fs::create_dir(&point).unwrap();
        if kind == "tmpfs" {
            must(Command::new("mount").args(["-t", "tmpfs", "-o", "size=256m", "none"]).arg(&point));
            return Some(point);
        }
        let image = self.0.join(format!("{kind}.img"));
        std::fs::File::create(&image).unwrap().set_len(IMAGE_BYTES).unwrap();
        let made = Command::new(format!("mkfs.{kind}")).arg("-q").arg(&image).stdout(Stdio::null()).status();
        if !made.is_ok_and(|status| status.success()) {
            println!("skipped: {kind}: no mkfs.{kind}");
            return None;
        }
        if !Command::new("mount")
            .args(["-o", "loop"])
            .arg(&image)
            .arg(&point)
            .status()
            .is_ok_and(|s| s.success())
        {
            println!("skipped: {kind}: no loop device");
            return None;
        }
        Some(point)
    }

    /// A whole tree to live in with chroot: its own tmpfs, the system's programs bound in read-only, and systx.
    pub fn root(&self) -> Place {
        let root = self.0.join("root");
        if !root.exists() {
            std::fs::create_dir(&root).unwrap();
            must(Command::new("mount").args(["-t", "tmpfs", "-o", "size=256m", "none"]).arg(&root));
            for dir in ["usr", "bin", "lib", "lib64", "sbin"] {
                let from = Path::new("/").join(dir);
                match std::fs::symlink_metadata(&from) {
                    Ok(meta) if meta.is_symlink() => {
                        std::os::unix::fs::symlink(std::fs::read_link(&from).unwrap(), root.join(dir))
                            .unwrap()
                    }
                    Ok(_) => {
                        std::fs::create_dir(root.join(dir)).unwrap();
                        must(Command::new("mount").args(["-o", "bind,ro"]).arg(&from).arg(root.join(dir)));
                    }
                    Err(_) => {}
                }
            }
            for dir in ["proc", "dev", "sys"] {
                std::fs::create_dir(root.join(dir)).unwrap();
                must(Command::new("mount").arg("--rbind").arg(Path::new("/").join(dir)).arg(root.join(dir)));
            }
            for dir in ["tmp", "data", "data/inner", "window", "work", "opt"] {
                std::fs::create_dir(root.join(dir)).unwrap();
            }
            must(Command::new("mount").args(["-t", "tmpfs", "none"]).arg(root.join("tmp")));
            must(Command::new("mount").arg("--bind").arg(root.join("data/inner")).arg(root.join("window")));
            std::fs::copy(SYSTX, root.join("opt/systx")).unwrap();
        }
        Place { served: root.join("work"), beside: root.clone(), mount: root }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        for kind in KINDS.into_iter().chain(["root"]) {
            let point = self.0.join(kind);
            if point.exists() {
                // Lazily: a case that failed may have left a process inside.
                tidy(Command::new("umount").args(["-R", "-l"]).arg(&point));
            }
        }
        // Never through a mount that is still there.
        tidy(Command::new("rm").args(["-r", "--one-file-system"]).arg(&self.0));
        self.1.are_no_more();
    }
}

pub fn must(command: &mut Command) {
    assert!(command.status().is_ok_and(|status| status.success()), "{command:?}");
}

/// Where one case works.
pub struct Place {
    /// Root of the file system.
    pub mount: PathBuf,
    /// The directory that is served.
    pub served: PathBuf,
    /// A directory that the command reaches natively.
    pub beside: PathBuf,
}

impl Place {
    pub fn new(mount: &Path, name: &str) -> Place {
        let served = mount.join(name);
        // Beside the mount, on what the machine has.
        let beside = mount.with_extension(format!("{name}.beside"));
        std::fs::create_dir(&served).unwrap();
        std::fs::create_dir(&beside).unwrap();
        Place { mount: mount.to_path_buf(), served, beside }
    }

    /// `systx run --only SERVED OPTIONS -- COMMAND`, in the served directory.
    pub fn systx<S: AsRef<OsStr>>(&self, options: &[&str], command: &[S]) -> Command {
        let mut systx = Command::new(SYSTX);
        systx
            .args(["run", "--area-name", AREA, "--only"])
            .arg(&self.served)
            .args(options)
            .arg("--")
            .args(command);
        systx.current_dir(&self.served).stdin(Stdio::null());
        systx.env("BESIDE", &self.beside);
        systx
    }

    /// Runs a shell script inside.
    pub fn shell(&self, script: &str) -> Output {
        self.systx(&[], &["sh", "-c", script]).output().unwrap()
    }

    pub fn write(&self, name: &str, text: &str) {
        std::fs::write(self.served.join(name), text).unwrap();
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.served.join(name)).unwrap()
    }

    /// A FIFO that inside and outside share.
    pub fn fifo(&self, name: &str) -> PathBuf {
        let path = self.beside.join(name);
        must(Command::new("mkfifo").arg(&path));
        path
    }

    /// Returns everything below the served directory that a user can distinguish.
    pub fn picture(&self) -> String {
        let list = "find . -printf '%P %y %m %U %G %n %s %T@ %C@ %i %l\\n' | sort; find . -type f | sort | xargs -r cat";
        let output = Command::new("sh").args(["-c", list]).current_dir(&self.served).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

pub fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or(-1)
}

pub fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}
