//! What does `systx run true` cost, start and durable commit included?

use crate::measure::{wall_ms, Samples};
use crate::report::Report;
use crate::world::fresh;
use crate::{Outcome, Setup};
use rustix::fs::{Mode, OFlags};
use rustix::process::{chdir, chroot, fchdir};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Runs of each in one repeat of the whole: starting is short and noisy.
const RUNS: usize = 40;

pub fn measure(setup: &Setup, report: &mut Report) -> Outcome<()> {
    report.heading("1. Start and commit");
    let runs = setup.size(RUNS, 5) * setup.repeats.max(1);
    let only = fresh(setup, "start")?;
    let root = whole_root(setup)?;
    let mut plain = Samples::default();
    let mut limited = Samples::default();
    let mut writing = Samples::default();
    let mut alone = Samples::default();
    let mut whole = Samples::default();
    for _ in 0..runs {
        plain.push(timed(&mut Command::new("/bin/true"))?);
        limited.push(timed(systx(setup, &only).args(["--", "/bin/true"]))?);
        let write = ["--", "/bin/sh", "-c", "echo x > a"];
        writing.push(timed(systx(setup, &only).args(write))?);
        alone.push(timed(systx(setup, &only).args(write).env("SYSTX_CHECKPOINT", "never"))?);
        let run = || timed(Command::new("/opt/systx").args(["run", "--", "/bin/true"]));
        whole.push(with_root(&root, run)??);
    }
    report.compared(
        &format!("Start to exit, {runs} times each (target: 6 ms). The whole `/` is a chroot with four file systems of its own, three of them served."),
        "ms",
        &[
            ("`true`", &plain),
            ("`systx run --only DIR -- true`", &limited),
            ("`systx run -- true`, whole `/`", &whole),
            ("`systx run --only DIR -- sh -c 'echo x > a'`, durable", &writing),
            ("the same, and no process left behind makes a checkpoint", &alone),
        ],
    );
    Ok(())
}

/// `systx run --only DIR`, in that directory.
pub fn systx(setup: &Setup, only: &Path) -> Command {
    let mut command = Command::new(&setup.systx);
    command.args(["run", "--only"]).arg(only).current_dir(only);
    command
}

/// Milliseconds until a command that must succeed has ended.
pub fn timed(command: &mut Command) -> Outcome<f64> {
    let (ms, done) = wall_ms(|| command.stdin(Stdio::null()).stdout(Stdio::null()).status());
    match done? {
        status if status.success() => Ok(ms),
        status => Err(format!("{command:?}: {status}").into()),
    }
}

/// Does something with another root; not by the program chroot, which takes as long to start as `true`.
fn with_root<T>(root: &Path, work: impl FnOnce() -> T) -> Outcome<T> {
    let open = |path: &str| rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY, Mode::empty());
    let (top, here) = (open("/")?, open(".")?);
    chroot(root)?;
    let done = chdir("/").map(|()| work());
    fchdir(top)?;
    chroot(".")?;
    fchdir(here)?;
    Ok(done?)
}

/// A root to live in with chroot, so that the machine's own file systems get no areas: on the file system
/// under test, with the system's programs bound in read-only and two tmpfs, as machines have them.
fn whole_root(setup: &Setup) -> Outcome<PathBuf> {
    let root = fresh(setup, "root")?;
    for dir in ["usr", "bin", "lib", "lib64", "sbin"] {
        let (from, to) = (Path::new("/").join(dir), root.join(dir));
        match std::fs::symlink_metadata(&from) {
            Ok(meta) if meta.is_symlink() => std::os::unix::fs::symlink(std::fs::read_link(&from)?, to)?,
            Ok(_) => {
                std::fs::create_dir(&to)?;
                mount(&["-o", "bind,ro"], &from, &to)?;
            }
            Err(_) => {}
        }
    }
    for dir in ["proc", "dev", "sys"] {
        let to = root.join(dir);
        std::fs::create_dir(&to)?;
        mount(&["--rbind"], &Path::new("/").join(dir), &to)?;
    }
    for dir in ["tmp", "run"] {
        let to = root.join(dir);
        std::fs::create_dir(&to)?;
        mount(&["-t", "tmpfs"], Path::new("none"), &to)?;
    }
    std::fs::create_dir(root.join("etc"))?;
    let libraries = "etc/ld.so.cache";
    let _ = std::fs::copy(Path::new("/").join(libraries), root.join(libraries));
    std::fs::create_dir(root.join("opt"))?;
    std::fs::copy(&setup.systx, root.join("opt/systx"))?;
    // The root of a transaction over the whole tree must be a mount.
    mount(&["--rbind"], &root, &root)?;
    Ok(root)
}

fn mount(options: &[&str], from: &Path, to: &Path) -> Outcome<()> {
    let status = Command::new("mount").args(options).arg(from).arg(to).status()?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("mount {} failed", to.display()).into()),
    }
}
