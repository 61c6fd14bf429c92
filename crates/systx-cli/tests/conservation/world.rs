//! The tree that the transaction changes and the outsider meddles with, and what can be found in it.

use super::act::Act;
use super::machine::picture::{picture, Picture};
use super::machine::volume::Volume;
use super::machine::{must, run, verb, AREA};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const BEGIN: &str =
    "mkdir dst gone his his/dir; echo c > gone/c; echo old > small; echo old > replaced; echo old > removed
    echo old > moved; echo old > attr; echo old > grown; tr '\\0' x < /dev/zero | head -c 300000 > patched";
const SCRIPT: &str = "cat small replaced removed moved grown gone/c patched > /dev/null
    echo ours > new; mkdir newdir; echo ours > newdir/in; echo ours > small; echo ours > t; mv t replaced
    rm removed; mv moved dst/moved; chmod 751 attr; echo ours >> grown; rm -r gone
    printf ours | dd of=patched bs=1 seek=150000 conv=notrunc status=none; : > \"$TOLD\"";
pub const TARGETS: [&str; 12] = [
    "new",
    "newdir",
    "small",
    "replaced",
    "removed",
    "moved",
    "dst/moved",
    "dst",
    "attr",
    "grown",
    "gone",
    "patched",
];

/// Bytes that an act writes; no other process writes them, and they are nowhere before.
pub const HIS: &str = "these bytes are the outsider's";
/// Contents of the file that the outsider has before and moves or links.
pub const MINE: &str = "a file that he had before";
/// Contents of the directory that the outsider has before and moves.
pub const DIR: &str = "in a directory that he had before";

pub struct World {
    pub dir: PathBuf,
    pub volume: Volume,
    pub tree: PathBuf,
}

/// Inode numbers of what was there before the outsider's act.
#[derive(Clone, Copy)]
pub struct Before {
    /// The outsider's file and directory.
    pub mine: u64,
    pub dir: u64,
    /// At the name when the transaction began, and when the outsider acted.
    pub first: Option<u64>,
    pub taken: Option<u64>,
}

impl World {
    pub fn new(dir: &Path, kind: &'static str) -> Option<World> {
        let volume = Volume::new(dir, kind, if kind == "xfs" { 320 } else { 128 })?;
        let tree = volume.point.join("tree");
        Some(World { dir: dir.to_path_buf(), volume, tree })
    }

    pub fn command(&self) -> Command {
        let mut command = run(&self.tree, &[], &["sh", "-c", SCRIPT]);
        command.env("TOLD", self.dir.join("told"));
        command
    }

    /// Returns true if the command has come to its end, which it shows outside of the transaction.
    pub fn told(&self) -> bool {
        self.dir.join("told").exists()
    }

    /// The old tree, and two things of the outsider's.
    pub fn begin(&self) {
        let _ = std::fs::remove_dir_all(&self.tree);
        let _ = std::fs::remove_file(self.dir.join("told"));
        std::fs::create_dir(&self.tree).unwrap();
        must(Command::new("sh").args(["-ec", BEGIN]).current_dir(&self.tree));
        std::fs::write(self.tree.join("his/mine"), MINE).unwrap();
        std::fs::write(self.tree.join("his/dir/in"), DIR).unwrap();
    }

    pub fn before(&self, target: &str) -> Before {
        let inode = |name: &str| inode(&self.tree.join(name));
        let (mine, dir) = (inode("his/mine").unwrap(), inode("his/dir").unwrap());
        Before { mine, dir, first: inode(target), taken: None }
    }

    pub fn aside(&self) -> PathBuf {
        self.volume.area().join("aside")
    }

    /// All that is there or was put aside, as one text.
    pub fn everything(&self) -> String {
        let mut text = String::new();
        for dir in [self.tree.clone(), self.aside()] {
            let list = "find . -printf '%p %y %m %U %l\\n'; find . -type f -exec cat {} +; getfattr -hRd . 2>/dev/null";
            text += &must(Command::new("sh").args(["-c", list]).current_dir(dir));
        }
        text
    }

    /// Returns true if an object is at a name, and holds what it held: itself, or as `below`. The outsider's
    /// stays there; ours is put aside.
    pub fn has(&self, target: &str, wanted: u64, below: &str, text: &str) -> bool {
        let name = self.tree.join(target);
        let file = if below.is_empty() { name.clone() } else { name.join(below) };
        inode(&name) == Some(wanted) && std::fs::read(file).is_ok_and(|bytes| bytes == text.as_bytes())
    }

    /// The name that an act took it to still means it.
    pub fn kept(&self, act: Act, before: &Before) -> bool {
        act.takes_to().is_none_or(|name| inode(&self.tree.join(name)) == before.taken)
    }

    pub fn prune(&self) {
        must(Command::new(super::machine::systx()).args(["prune", "--yes", "--area-name", AREA]));
    }

    /// Checks that no transaction is running or active.
    pub fn quiet(&self) {
        let status: serde_json::Value = serde_json::from_slice(&verb("status", &["--json"]).stdout).unwrap();
        assert_eq!((&status[0]["running"], &status[0]["in_flight"]), (&0.into(), &0.into()), "{status}");
    }
}

pub fn inode(path: &Path) -> Option<u64> {
    path.symlink_metadata().ok().map(|meta| meta.ino())
}

pub fn without_times(tree: &Path) -> Picture {
    let one = |(name, line): (String, String)| {
        let words: Vec<_> =
            line.split(' ').enumerate().filter(|(n, _)| *n != 2).map(|(_, word)| word).collect();
        (name, words.join(" "))
    };
    picture(tree).into_iter().map(one).collect()
}
