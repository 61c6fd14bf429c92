//! Root or an ordinary user, at the same work: the programs of a case, and where they work.

use super::user::{open_fuse_to_all, UNPRIVILEGED, USER};
use super::{code, err, must, out, rounds, systx, AREA};
use std::ffi::OsStr;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    Root,
    User,
}

impl Who {
    /// How often: in the short form an ordinary user's cases are a sample of root's.
    pub fn rounds(self, short: usize, long: usize) -> usize {
        rounds(if self == Who::Root { short } else { short.div_ceil(3) }, long)
    }
}

/// Who works in the directory of a case.
pub struct Account {
    pub who: Who,
    program: PathBuf,
    home: PathBuf,
}

impl Account {
    pub fn root() -> Account {
        Account { who: Who::Root, program: systx(), home: PathBuf::new() }
    }

    pub fn new(dir: &Path, who: Who) -> Account {
        if who == Who::Root {
            return Account::root();
        }
        open_fuse_to_all(dir);
        let (given, home) = (systx(), dir.join("home"));
        // Others may have no way to where it was built. Tests know its processes by its name.
        let program = dir.join("bin").join(given.file_name().expect("it is a file"));
        std::fs::create_dir(dir.join("bin")).unwrap();
        std::fs::copy(&given, &program).unwrap();
        let account = Account { who, program, home };
        account.make(&account.home);
        account
    }

    /// Makes a directory of this one's.
    pub fn make(&self, dir: &Path) {
        std::fs::create_dir(dir).unwrap();
        self.give(dir);
    }

    pub fn give(&self, path: &Path) {
        if self.who == Who::User {
            chown(path, Some(USER), Some(USER)).unwrap();
        }
    }

    /// Makes a directory to serve on a file system; a user's lies in the user's topmost directory there.
    pub fn served(&self, point: &Path) -> PathBuf {
        let top = self.top(point);
        if top != point {
            self.make(&top);
        }
        let served = top.join("tree");
        self.make(&served);
        served
    }

    fn top(&self, point: &Path) -> PathBuf {
        match self.who {
            Who::Root => point.into(),
            Who::User => point.join("user"),
        }
    }

    /// Where the area on a file system is.
    pub fn area(&self, point: &Path) -> PathBuf {
        match self.who {
            Who::Root => point.join(AREA),
            Who::User => self.top(point).join(format!("{AREA}-{USER}")),
        }
    }

    /// A command of this one's.
    pub fn command<S: AsRef<OsStr>>(&self, program: S) -> Command {
        let mut command = match self.who {
            Who::Root => Command::new(program),
            Who::User => {
                let mut command = Command::new(UNPRIVILEGED[0]);
                command.args(&UNPRIVILEGED[1..]).arg(program).env("HOME", &self.home);
                for told in ["XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"] {
                    command.env_remove(told);
                }
                command
            }
        };
        command.stdin(Stdio::null());
        command
    }

    /// `systx run --only DIR OPTIONS -- COMMAND`, in that directory.
    pub fn run<S: AsRef<OsStr>>(&self, dir: &Path, options: &[&str], command: &[S]) -> Command {
        let mut run = self.command(&self.program);
        run.args(["run", "--area-name", AREA, "--only"]).arg(dir).args(options).arg("--").args(command);
        run.current_dir(dir);
        run
    }

    /// Runs a shell script inside, to its end.
    pub fn shell(&self, dir: &Path, script: &str) -> Output {
        self.run(dir, &[], &["sh", "-c", script]).output().unwrap()
    }

    /// Runs a shell script without systx; it must succeed.
    pub fn natively(&self, dir: &Path, script: &str) -> String {
        must(self.command("sh").args(["-ec", script]).current_dir(dir))
    }

    /// Another verb of systx.
    pub fn verb(&self, verb: &str, options: &[&str]) -> Output {
        self.command(&self.program).args([verb, "--area-name", AREA]).args(options).output().unwrap()
    }

    /// `systx recover`, which must succeed.
    pub fn recover(&self) -> String {
        let output = self.verb("recover", &[]);
        assert_eq!(code(&output), 0, "recover: {}{}", out(&output), err(&output));
        out(&output)
    }
}

/// The same command with these words in front of it.
pub fn behind(wrapper: &[&str], command: &Command) -> Command {
    let given = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<&OsStr> = wrapper.iter().map(OsStr::new).chain(given).collect();
    let mut wrapped = Command::new(words[0]);
    wrapped.args(&words[1..]).stdin(Stdio::null());
    if let Some(dir) = command.get_current_dir() {
        wrapped.current_dir(dir);
    }
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => wrapped.env(name, value),
            None => wrapped.env_remove(name),
        };
    }
    wrapped
}
