//! `systx on-end ID -- CMD`: a command that is run when a transaction has ended.
//!
//! Owns: both sides. The waiting process makes a socket `ends/<id>.<its pid>.<number>` in the area and
//! sleeps; `systx run`, when its transaction has ended, sends one word to each socket with its number.
//! Guarantees: a word that arrives is true; if none does, because the process of the transaction was killed,
//! the outcome is `unknown`. Does not: report when a pending commit is *published*; wait for a process of
//! another pid namespace, whose death can't be seen.
//!
//! A run sends when its domains are closed, so its transaction is not listed any more, and every socket that
//! exists by then gets the word. A process that has found the transaction listed, and makes its socket after
//! that moment, learns `unknown` when the run has ended. A run without waiters pays one call for each file
//! system.

use crate::args::{Number, OnEnd};
use crate::domains::{self, Mounted};
use crate::failure::{at, failed, Failure, Result};
use crate::ordinary;
use crate::report::{Ending, NOT_EXECUTABLE, NOT_FOUND, OURS};
use crate::words::shown;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::sync::Arc;
use systx_engine::domain::Domain;
use systx_engine::id::TxId;
use systx_engine::outcome::CommitError;
use systx_os::{process, Errno, FileType, Linux, Open, Os};

/// The directory of the sockets in an area.
const ENDS: &[u8] = b"ends";

/// The outcome that is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Committed,
    Aborted,
    Unknown,
}

impl Outcome {
    const ALL: [Outcome; 3] = [Outcome::Committed, Outcome::Aborted, Outcome::Unknown];

    fn of(ending: &Ending) -> Outcome {
        match ending {
            Ending::Committed(..) | Ending::Part(..) | Ending::Mute(..) => Outcome::Committed,
            Ending::NotCommitted(CommitError::InDoubt { .. }) => Outcome::Unknown,
            _ => Outcome::Aborted,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Outcome::Committed => "committed",
            Outcome::Aborted => "aborted",
            Outcome::Unknown => "unknown",
        }
    }
}

/// The numbers of a run's tries, and the sockets that wait for their ends.
#[derive(Default)]
pub struct Notices {
    /// The areas of its file systems, where they could be kept.
    areas: Vec<Option<OwnedFd>>,
    /// The numbers of each try, one for each area, and its outcome.
    tries: Vec<(Vec<TxId>, Outcome)>,
}

impl Notices {
    /// A try has begun.
    pub fn began(&mut self, domains: &[Arc<Domain<Linux>>], ids: &[TxId]) {
        if self.areas.is_empty() {
            self.areas = domains.iter().map(|domain| domain.area.dir.try_clone().ok()).collect();
        }
        self.tries.push((ids.to_vec(), Outcome::Unknown));
    }

    /// The number that the last try is known by.
    pub fn id(&self) -> Option<TxId> {
        self.tries.last().and_then(|(ids, _)| ids.first().copied())
    }

    /// The last try came to nothing, and another one follows.
    pub fn lost(&mut self) {
        if let Some((ids, outcome)) = self.tries.last_mut() {
            *outcome = Outcome::Aborted;
            tell(&self.areas, ids, *outcome);
        }
    }

    /// Records that the last try has ended so, and informs all waiters, also those that came after their try
    /// had ended and found it listed still. To be called when the domains are closed: later callers find
    /// nothing.
    pub fn ended(&mut self, ending: &Ending) {
        if let Some((_, outcome)) = self.tries.last_mut() {
            *outcome = Outcome::of(ending);
        }
        self.tries.iter().for_each(|(ids, outcome)| tell(&self.areas, ids, *outcome));
        // Output that was held back may take long to leave, and keeps no file system busy.
        self.areas.clear();
    }
}

fn tell(areas: &[Option<OwnedFd>], ids: &[TxId], outcome: Outcome) {
    let os = Linux::new();
    for (area, id) in areas.iter().zip(ids) {
        let Some(ends) = area.as_ref().and_then(|area| os.open(area, ENDS, Open::Directory).ok()) else {
            continue;
        };
        let prefix = format!("{id}.");
        let entries = os.read_dir(&ends).unwrap_or_default();
        // A symbolic link would lead to a socket of somebody else.
        for entry in entries.into_iter().filter(|entry| entry.kind == FileType::Socket) {
            let Some(name) = std::str::from_utf8(&entry.name).ok().filter(|n| n.starts_with(&prefix)) else {
                continue;
            };
            let path = place(&ends, name);
            let sent = UnixDatagram::unbound().and_then(|socket| {
                // A full socket must not hold this run up.
                socket.set_nonblocking(true)?;
                socket.send_to(outcome.word().as_bytes(), path)
            });
            if sent.is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionRefused) {
                // Its maker is gone, and no other process uses it.
                let _ = os.unlink(&ends, &entry.name);
            }
        }
    }
}

/// A name in an open directory, as a path: the kernel takes sockets by path only, and by a short one.
fn place(dir: &OwnedFd, name: &str) -> PathBuf {
    format!("/proc/self/fd/{}/{name}", dir.as_raw_fd()).into()
}

/// `systx on-end` of a transaction; returns the exit code, if the command can't be run.
pub fn on_end(args: &OnEnd, wanted: Number) -> u8 {
    let id = wanted.id;
    let outcome = match ended(args, wanted) {
        Ok(outcome) => outcome,
        Err(why) => {
            eprintln!("systx: {why}.");
            return OURS;
        }
    };
    std::env::set_var("SYSTX_ID", id.to_string());
    std::env::set_var("SYSTX_OUTCOME", outcome.word());
    let error = process::exec(&args.command);
    let name = args.command.first().map_or_else(String::new, |word| shown(word.as_encoded_bytes()));
    match error {
        Errno::NOENT => {
            eprintln!("systx: {name}: command not found. Transaction {id} is {}.", outcome.word());
            NOT_FOUND
        }
        e => {
            eprintln!("systx: {name}: can't be executed: {e}. Transaction {id} is {}.", outcome.word());
            NOT_EXECUTABLE
        }
    }
}

/// Waits for the end.
fn ended(args: &OnEnd, wanted: Number) -> Result<Outcome> {
    if ordinary::is_ordinary() {
        // The processes in other user namespaces of the user can't be looked at from within one.
        return Err("`systx on-end` is for root's transactions only, so far; run it as root".into());
    }
    if domains::inside_a_transaction(&domains::table()?) {
        return Err("inside of a transaction others can't be seen; run `systx on-end` outside of it".into());
    }
    let os = Linux::new();
    let mut found = domains::existing(&os, &args.area)?;
    let (at, pid) = one_of(wanted, &found.open)?;
    let (_, domain) = found.open.swap_remove(at);
    drop(found);
    let area = domain.area.dir.try_clone().map_err(failed(WAITING))?;
    // In this order: a process that takes part when it is watched already is no other one that has got its
    // number, and who has a socket waits.
    let process = process::watch(pid).ok().filter(|_| takes_part(&os, &area, pid));
    let process = process.ok_or_else(|| {
        Failure::from(format!(
            "transaction {} has just ended, or its process {pid} is in another container: wait there",
            wanted.id
        ))
    })?;
    let bell = Bell::new(&os, &area, wanted.id)?;
    // A process that only waits is no party of the domain.
    drop(domain);
    // Not by looking again whether its owner lives: while a helper does what is left, it seems to.
    process::wait_readable([bell.socket.as_fd(), process.as_fd()]);
    Ok(bell.word().unwrap_or(Outcome::Unknown))
}

/// Returns true if the process `pid` is a party of the domain of an area, and not only one with the same
/// number in another pid namespace. A party has the file `owners` mapped as long as it lives.
fn takes_part(os: &Linux, area: &OwnedFd, pid: u32) -> bool {
    let owners = os.open(area, b"owners", Open::Path).and_then(|file| os.stat(&file));
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"));
    let (Ok(owners), Ok(maps)) = (owners, maps) else { return false };
    let ino = owners.ino.to_string();
    // address perms offset device inode path. The device is not what stat says on btrfs.
    maps.lines().any(|line| line.ends_with("/owners") && line.split_ascii_whitespace().nth(4) == Some(&ino))
}

/// Which of the domains has it, and its process.
fn one_of(wanted: Number, open: &[(Mounted, Arc<Domain<Linux>>)]) -> Result<(usize, u32)> {
    let id = wanted.id;
    let mut all = Vec::new();
    for (n, (mounted, domain)) in open.iter().enumerate() {
        let listed = domain.transactions().map_err(at(&mounted.lower.point))?;
        all.extend(listed.into_iter().filter(|l| wanted.is(l.tx.0, l.pid)).map(|l| (n, mounted, l)));
    }
    let Some((n, _, first)) = all.first() else {
        let why = format!("transaction {id} does not run: it has ended, or never was");
        return Err(Failure::from(why).hint("`systx list` shows those that run"));
    };
    if !first.alive {
        let why = format!("transaction {id} was cut off, its end will not be reported: run `systx recover`");
        return Err(why.into());
    }
    if all.iter().any(|(_, _, other)| other.pid != first.pid) {
        let places: Vec<_> =
            all.iter().map(|(_, mounted, l)| format!("pid {} on {}", l.pid, mounted.point())).collect();
        let why = format!(
            "each file system counts for itself, and several have a transaction {id}: {}",
            places.join(", ")
        );
        return Err(Failure::from(why).hint("say which with --pid"));
    }
    Ok((*n, first.pid))
}

const WAITING: &str = "waiting in the area";

/// A socket in an area, gone when dropped.
struct Bell {
    socket: UnixDatagram,
    os: Linux,
    area: OwnedFd,
    ends: OwnedFd,
    name: String,
}

impl Bell {
    fn new(os: &Linux, area: &OwnedFd, id: u64) -> Result<Bell> {
        loop {
            match os.mkdir(area, ENDS, 0o700) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(e) => return Err(Failure::new(WAITING, e)),
            }
            let ends = match os.open(area, ENDS, Open::Directory) {
                // Another waiter has just removed the directory.
                Err(Errno::NOENT) => continue,
                opened => opened.map_err(failed(WAITING))?,
            };
            let name = format!("{id}.{}.{:08x}", std::process::id(), os.random() as u32);
            match UnixDatagram::bind(place(&ends, &name)) {
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue,
                bound => {
                    let socket = bound.map_err(failed(WAITING))?;
                    socket.set_nonblocking(true).map_err(failed(WAITING))?;
                    let area = area.try_clone().map_err(failed(WAITING))?;
                    return Ok(Bell { socket, os: os.clone(), area, ends, name });
                }
            }
        }
    }

    /// Returns the word that has arrived.
    fn word(&self) -> Option<Outcome> {
        let mut bytes = [0; 16];
        let len = self.socket.recv(&mut bytes).ok()?;
        let word = bytes.get(..len)?;
        Some(Outcome::ALL.into_iter().find(|o| o.word().as_bytes() == word).unwrap_or(Outcome::Unknown))
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        let _ = self.os.unlink(&self.ends, self.name.as_bytes());
        // This fails, as it should, while others wait.
        let _ = self.os.rmdir(&self.area, ENDS);
    }
}
