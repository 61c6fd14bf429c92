//! A domain in a directory of its own, and transactions over it.

use crate::meter::Meter;
use crate::{Outcome, Setup};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use systx_engine::domain::{Bounds, Domain, Location};
use systx_engine::outcome::{Committed, Durability, Options, VerbError};
use systx_engine::transaction::{Access, Caller, Node, Transaction};
use systx_os::{Linux, Open};

/// Name of the area.
pub const AREA: &str = ".area";

/// A directory with a domain in it, and the meter of everything that is done there.
pub struct World {
    /// The directory.
    pub path: PathBuf,
    /// Counts this domain's calls.
    pub meter: Meter,
    /// The domain.
    pub domain: Arc<Domain<Meter>>,
}

/// One verb's error as text.
pub fn said(error: VerbError) -> Box<dyn std::error::Error> {
    format!("{error:?}").into()
}

/// Runs a command that must succeed.
pub fn ran(command: &mut Command) -> Outcome<Output> {
    let output = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    if !output.status.success() {
        return Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(output)
}

/// A fresh directory below the scratch directory.
pub fn fresh(setup: &Setup, name: &str) -> Outcome<PathBuf> {
    fresh_in(&setup.dir, name)
}

/// A fresh directory in another one.
pub fn fresh_in(dir: &Path, name: &str) -> Outcome<PathBuf> {
    let path = dir.join(name);
    if path.exists() {
        std::fs::remove_dir_all(&path)?;
    }
    std::fs::create_dir(&path)?;
    Ok(path)
}

/// A system call that has no other way: syncs the file system.
pub fn sync_all(path: &Path) -> Outcome<()> {
    Ok(rustix::fs::syncfs(std::fs::File::open(path)?)?)
}

impl World {
    /// A fresh one.
    pub fn new(setup: &Setup, name: &str) -> Outcome<World> {
        World::open(&fresh(setup, name)?)
    }

    /// Opens the domain of a directory.
    pub fn open(path: &Path) -> Outcome<World> {
        let meter = Meter::new();
        let root = Arc::new(Linux::new().open_path(path, Open::Directory)?);
        let domain = Domain::open(
            &meter,
            Location { root: root.clone(), bounds: Bounds::FileSystem, parent: &root, name: AREA.as_bytes() },
        )?;
        Ok(World { path: path.to_path_buf(), meter, domain })
    }

    /// Begins a durable transaction.
    pub fn begin(&self) -> Outcome<Work> {
        self.begin_with(Durability::Durable)
    }

    /// Begins a transaction.
    pub fn begin_with(&self, durability: Durability) -> Outcome<Work> {
        let options = Options { durability, command: "bench".into(), ..Options::default() };
        let t = Transaction::begin(self.meter.clone(), vec![self.domain.clone()], options).map_err(said)?;
        Ok(Work(t))
    }
}

/// A transaction, with the few verbs that measurements use.
pub struct Work(pub Transaction<Meter>);

/// Whoever runs the measurement: root.
pub const ME: Caller = Caller { uid: 0, gid: 0, umask: 0o022 };

impl Work {
    /// The root of the domain.
    pub fn root(&self) -> Node {
        self.0.root(0)
    }

    /// An object that must be there.
    pub fn find(&mut self, dir: Node, name: &str) -> Outcome<Node> {
        let found = self.0.lookup(dir, name.as_bytes()).map_err(said)?;
        Ok(found.ok_or(format!("{name} is missing"))?.0)
    }

    /// Makes a directory.
    pub fn mkdir(&mut self, dir: Node, name: &str) -> Outcome<Node> {
        Ok(self.0.mkdir(dir, name.as_bytes(), 0o755, ME).map_err(said)?.0)
    }

    /// Makes a file with contents: create, write, close.
    pub fn create(&mut self, dir: Node, name: &str, bytes: &[u8]) -> Outcome<Node> {
        let (node, _) = self.0.create(dir, name.as_bytes(), 0o644, ME).map_err(said)?;
        self.0.open(node, Access::Write, false).map_err(said)?;
        self.0.write_at(node, bytes, 0).map_err(said)?;
        self.0.close(node);
        Ok(node)
    }

    /// Changes bytes of a file in place: open, write, close.
    pub fn write(&mut self, node: Node, bytes: &[u8], offset: u64) -> Outcome<()> {
        self.0.open(node, Access::Write, false).map_err(said)?;
        self.0.write_at(node, bytes, offset).map_err(said)?;
        self.0.close(node);
        Ok(())
    }

    /// Reads the beginning of a file: open, read, close.
    pub fn read(&mut self, node: Node, bytes: &mut [u8]) -> Outcome<()> {
        self.0.open(node, Access::Read, false).map_err(said)?;
        self.0.read_at(node, bytes, 0).map_err(said)?;
        self.0.close(node);
        Ok(())
    }

    /// Commits; anything but a whole commit is an error here.
    pub fn commit(self) -> Outcome<Committed> {
        let done = self.0.commit()?;
        match (&done.pending, done.conflict_copies.is_empty()) {
            (None, true) => Ok(done),
            _ => Err(format!("not a clean commit: {done:?}").into()),
        }
    }
}

/// Plain files `0`, `1`, … with these contents.
pub fn plain_files(dir: &Path, count: usize, bytes: &[u8]) -> Outcome<()> {
    for n in 0..count {
        std::fs::write(dir.join(n.to_string()), bytes)?;
    }
    Ok(())
}
