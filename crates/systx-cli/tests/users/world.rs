//! An ordinary user's directory on a file system of its own, and the user's runs there.

use super::machine::user::{open_fuse_to_all, UNPRIVILEGED, USER};
use super::machine::volume::Volume;
use super::machine::word::hear;
use super::machine::{must, out, systx, AREA};
use std::io::Write;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;

pub struct World {
    pub dir: PathBuf,
    /// The user's directory on a file system of its own; its top is root's.
    pub own: PathBuf,
    /// The served directory.
    pub tree: PathBuf,
    /// Of the user, and not served.
    pub beside: PathBuf,
    pub program: PathBuf,
    pub volume: Volume,
}

impl Drop for World {
    fn drop(&mut self) {
        for point in ["/dev/fuse", "/home", "/var/tmp", "/tmp", STAGE] {
            // Lazily: a case that failed may have left a process inside.
            let _ = Command::new("umount").args(["-R", "-l", point]).status();
        }
    }
}

impl World {
    /// A command of the user's, through these words.
    pub fn through(&self, wrapper: &[&str], words: &[&str]) -> Command {
        let words: Vec<_> = UNPRIVILEGED.iter().chain(wrapper).chain(words).collect();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).current_dir(&self.tree).stdin(Stdio::null());
        command.env("HOME", &self.beside).env("BESIDE", &self.beside);
        for told in [
            "TMPDIR",
            "XDG_RUNTIME_DIR",
            "XDG_STATE_HOME",
            "XDG_CACHE_HOME",
            "XDG_CONFIG_HOME",
            "XDG_DATA_HOME",
        ] {
            command.env_remove(told);
        }
        command
    }

    pub fn verb(&self, words: &[&str]) -> Command {
        let program = self.program.to_str().unwrap();
        let all: Vec<_> =
            [program, words[0], "--area-name", AREA].iter().chain(&words[1..]).copied().collect();
        self.through(&[], &all)
    }

    pub fn run(&self, options: &[&str], script: &str) -> Command {
        let tree = self.tree.to_str().unwrap();
        self.verb(&[&["run", "--only", tree], options, &["--", "sh", "-c", script]].concat())
    }

    pub fn shell(&self, script: &str) -> Output {
        self.run(&[], script).output().unwrap()
    }

    /// Runs a user's script without a transaction.
    pub fn plain(&self, script: &str) -> Output {
        self.through(&[], &["sh", "-c", script]).output().unwrap()
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.tree.join(name)).unwrap()
    }

    pub fn area(&self) -> PathBuf {
        self.own.join(format!("{AREA}-{USER}"))
    }

    /// Names, owners, modes and contents of the tree.
    pub fn picture(&self) -> String {
        let list = "find . -printf '%P %y %m %U %G %s %T@ %C@ %i %l\\n' | sort; find . -type f | sort | xargs -r cat";
        out(&Command::new("sh").args(["-c", list]).current_dir(&self.tree).output().unwrap())
    }
}

/// Where a case works. Everything that a user could change elsewhere on the machine is covered.
const STAGE: &str = "/mnt";

/// The directory of a case, from where it does not lie in /tmp. The machine's own /tmp, /var/tmp and /home
/// are covered: an ordinary user's run over the whole tree would serve them.
fn stage(dir: &Path) -> PathBuf {
    let mount = |options: &[&str], what: &Path, at: &str| {
        must(Command::new("mount").args(options).arg(what).arg(at));
    };
    let none = Path::new("none");
    mount(&["-t", "tmpfs", "-o", "mode=755"], none, STAGE);
    let case = Path::new(STAGE).join("case");
    std::fs::create_dir(&case).unwrap();
    mount(&["--bind"], dir, case.to_str().unwrap());
    // Where it was built others may have no way to it, and it may be what is covered.
    static GIVEN: OnceLock<PathBuf> = OnceLock::new();
    std::fs::create_dir(case.join("bin")).unwrap();
    std::fs::copy(GIVEN.get_or_init(systx), case.join("bin/systx")).unwrap();
    std::env::set_var("SYSTX_BIN", case.join("bin/systx"));
    for open in ["/tmp", "/var/tmp"] {
        mount(&["-t", "tmpfs", "-o", "mode=1777"], none, open);
    }
    mount(&["-t", "tmpfs", "-o", "mode=755"], none, "/home");
    case
}

pub fn world(dir: &Path) -> Option<World> {
    sized(dir, 64)
}

/// One with so many megabytes of room.
pub fn sized(dir: &Path, megabytes: u64) -> Option<World> {
    of_kind(dir, "ext4", megabytes)
}

/// One on another kind of file system.
pub fn of_kind(dir: &Path, kind: &'static str, megabytes: u64) -> Option<World> {
    let dir = &*stage(dir);
    let Some(volume) = Volume::new(dir, kind, megabytes) else {
        must(Command::new("umount").args(["-R", "-l", "/tmp", "/var/tmp", "/home", STAGE]));
        return None;
    };
    let own = volume.point.join("user");
    let world = World {
        tree: own.join("tree"),
        own,
        beside: dir.join("beside"),
        program: dir.join("bin/systx"),
        dir: dir.into(),
        volume,
    };
    for made in [&world.own, &world.tree, &world.beside] {
        std::fs::create_dir(made).unwrap();
        chown(made, Some(USER), Some(USER)).unwrap();
    }
    open_fuse_to_all(dir);
    Some(world)
}

/// A run that waits, after its first words, for ours.
pub struct Waiting {
    pub systx: Child,
    pub word: std::fs::File,
}

impl Waiting {
    pub fn begin(w: &World, options: &[&str], before: &str, after: &str) -> Waiting {
        for name in ["here", "word"] {
            let _ = std::fs::remove_file(w.beside.join(name));
            must(Command::new("mkfifo").args(["-m", "666"]).arg(w.beside.join(name)));
        }
        // Open for both: no process waits for the test, and there is no end of file.
        let word = std::fs::OpenOptions::new().read(true).write(true).open(w.beside.join("word")).unwrap();
        let script = format!("{before}; echo here >$BESIDE/here; read word <$BESIDE/word; {after}");
        let mut systx = w.run(options, &script);
        let mut systx = systx.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        assert_eq!(hear(&w.beside.join("here"), &mut systx), "here\n");
        Waiting { systx, word }
    }

    pub fn end(mut self) -> Output {
        self.word.write_all(b"go\n").unwrap();
        self.systx.wait_with_output().unwrap()
    }
}
