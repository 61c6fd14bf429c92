//! A directory that an outer transaction serves, and scripts that run in there.

use crate::machine::volume::Volume;
use crate::machine::{code, err, must, out, run, systx};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

pub struct World {
    /// Unmounted with the case.
    pub _volume: Volume,
    /// The root of the file system.
    pub mount: PathBuf,
    /// The served directory.
    pub tree: PathBuf,
    /// Reached natively.
    pub beside: PathBuf,
}

/// On each of these file systems.
pub const KINDS: [&str; 4] = ["tmpfs", "ext4", "xfs", "btrfs"];

/// A world on each file system that can be had; its tree is what `setup` makes.
pub fn each(dir: &Path, setup: &str, case: impl Fn(&World)) {
    for kind in KINDS {
        if let Some(world) = World::new(dir, kind, setup) {
            case(&world);
        }
    }
}

impl World {
    pub fn new(dir: &Path, kind: &'static str, setup: &str) -> Option<World> {
        let volume = Volume::new(dir, kind, if kind == "xfs" { 320 } else { 128 })?;
        let mount = volume.point.clone();
        let world = World {
            _volume: volume,
            tree: mount.join("tree"),
            beside: dir.join(format!("{kind}.beside")),
            mount,
        };
        for made in [&world.tree, &world.beside] {
            std::fs::create_dir(made).unwrap();
        }
        must(Command::new("sh").args(["-c", &format!("set -e; {setup}")]).current_dir(&world.tree));
        Some(world)
    }

    /// `systx run --only TREE OPTIONS -- sh -c SCRIPT`, in which `sub` is `systx run --sub`, and `$BESIDE` is native.
    pub fn outer(&self, options: &[&str], script: &str) -> Command {
        let mut outer = run(&self.tree, options, &["sh", "-c", &inner(script)]);
        outer.env("S", systx()).env("BESIDE", &self.beside).stdout(Stdio::piped()).stderr(Stdio::piped());
        outer
    }

    /// Like `outer`, to its end.
    pub fn run(&self, options: &[&str], script: &str) -> Output {
        self.outer(options, script).output().unwrap()
    }

    /// Like `run`, of a script that commits and says nothing on standard error; returns what it says on the
    /// other stream.
    pub fn commits(&self, script: &str) -> String {
        let output = self.run(&[], script);
        assert_eq!((code(&output), err(&output).as_str()), (0, ""), "{}", out(&output));
        self.nothing_is_left();
        out(&output)
    }

    /// A pair of FIFOs by which two processes wait for each other.
    pub fn fifos(&self, names: &[&str]) {
        for name in names {
            must(Command::new("mkfifo").args(["-m", "666"]).arg(self.beside.join(name)));
        }
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.tree.join(name)).unwrap_or_else(|e| format!("{name}: {e}"))
    }

    /// Names in the tree.
    pub fn names(&self) -> Vec<String> {
        let names = std::fs::read_dir(&self.tree).unwrap();
        let mut names: Vec<_> =
            names.map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// No area of a subtransaction is anywhere on the file system, nor in a slot.
    pub fn nothing_is_left(&self) {
        let found = must(Command::new("find").arg(&self.mount).args(["-name", "*.sub-*"]));
        assert_eq!(found, "");
        // Staging entries of dead processes would be found by a recovery, and by no process before: a table
        // is in each area.
        let tables = must(Command::new("find").arg(&self.mount).args(["-name", "table", "-path", "*/tx/*"]));
        let shelved =
            must(Command::new("find").arg(&self.mount).args(["-name", "table", "-path", "*/slots.*"]));
        assert_eq!((tables.as_str(), shelved.as_str()), ("", ""));
    }
}

/// With `sub` for `systx run --sub`.
pub fn inner(script: &str) -> String {
    format!("sub() {{ \"$S\" run --sub \"$@\"; }}; {script}")
}
