//! The socket of a session daemon, in the area of its transaction's first file system.
//!
//! Owns: the directory `open` of an area, and the names in it, `<number of the transaction>.<process of its
//! daemon>`. Guarantees: only a process that may enter the area gets there, and each side checks the other's
//! user; a socket is removed by its daemon, and that of a killed daemon by its helper process, or by
//! whichever client finds it. Does not: open domains to look for one; the kernel's mount table is enough.

use super::wire::{Answer, Checked, Line, Look, Message, Request, ANSWER_BYTES_MAX, VERSION};
use crate::args::{Area, Session};
use crate::domains;
use crate::failure::{Failure, Result};
use crate::ordinary;
use crate::words::shown;
use std::ffi::OsStr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;
use systx_os::{process, sockets, Errno, FileType, Linux, Open, Os};

/// The directory of the sockets in an area.
const OPEN: &[u8] = b"open";
/// Stands in front of the process's number while no process listens yet, so a socket with a plain name that
/// does not answer belongs to a dead daemon.
const NEW: &str = "new.";
/// A peer that does not take an answer, or does not answer a mere question, in this time is given up.
const PATIENCE: Duration = Duration::from_secs(10);

/// A name in an open directory, as a path: the kernel takes sockets by path only, and by a short one.
fn place(dir: &OwnedFd, name: &str) -> PathBuf {
    format!("/proc/self/fd/{}/{name}", dir.as_raw_fd()).into()
}

/// The socket of a session daemon, gone when dropped.
pub struct Socket {
    /// `None`: closed, no client comes in any more.
    pub listener: Option<UnixListener>,
    os: Linux,
    area: OwnedFd,
    dir: OwnedFd,
    name: String,
}

const MAKING: &str = "making a socket in the area";

impl Socket {
    /// Makes it in an area, for this process.
    pub fn new(os: &Linux, area: &OwnedFd, id: u64) -> Result<Socket> {
        loop {
            match os.mkdir(area, OPEN, 0o700) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(e) => return Err(Failure::new(MAKING, e)),
            }
            let dir = match os.open(area, OPEN, Open::Directory) {
                // Another session daemon has just removed it.
                Err(Errno::NOENT) => continue,
                opened => opened.map_err(|e| Failure::new(MAKING, e))?,
            };
            let (name, new) =
                (format!("{id}.{}", std::process::id()), format!("{NEW}{}", std::process::id()));
            match UnixListener::bind(place(&dir, &new)) {
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue,
                Err(e) if e.kind() == std::io::ErrorKind::AddrInUse => {
                    // Of a process that had this number before.
                    os.unlink(&dir, new.as_bytes()).map_err(|e| Failure::new(MAKING, e))?;
                }
                bound => {
                    let listener = bound.map_err(|e| Failure::new(MAKING, e))?;
                    listener.set_nonblocking(true).map_err(|e| Failure::new(MAKING, e))?;
                    std::fs::rename(place(&dir, &new), place(&dir, &name))
                        .map_err(|e| Failure::new(MAKING, e))?;
                    let area = area.try_clone().map_err(|e| Failure::new(MAKING, e))?;
                    return Ok(Socket { listener: Some(listener), os: os.clone(), area, dir, name });
                }
            }
        }
    }

    /// Accepts a client, if it may come in.
    pub fn accept(&self) -> Option<(Line, sockets::Peer)> {
        let (stream, _) = self.listener.as_ref()?.accept().ok()?;
        let peer = sockets::peer(&stream).ok()?;
        stream.set_write_timeout(Some(PATIENCE)).ok()?;
        (peer.uid == self.os.uid() || peer.uid == 0)
            .then(|| (Line::new(stream, super::wire::REQUEST_BYTES_MAX), peer))
    }

    /// Takes its name away: who looks for it now finds none.
    pub fn close(&mut self) {
        if self.listener.take().is_some() {
            let _ = self.os.unlink(&self.dir, self.name.as_bytes());
            // Not while there is another one's.
            let _ = self.os.rmdir(&self.area, OPEN);
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.close();
    }
}

/// Removes the sockets without a listener from an area.
pub fn sweep(os: &Linux, area: &OwnedFd) {
    let Ok(dir) = os.open(area, OPEN, Open::Directory) else { return };
    for entry in os.read_dir(&dir).unwrap_or_default() {
        if let Ok(name) = std::str::from_utf8(&entry.name) {
            let _ = connect(os, &dir, name);
        }
    }
    let _ = os.rmdir(area, OPEN);
}

/// Connects to a session daemon; `None`: there is none, and now no socket either.
fn connect(os: &Linux, dir: &OwnedFd, name: &str) -> Option<UnixStream> {
    // A symbolic link would lead to a socket of somebody else.
    os.stat_at(dir, name.as_bytes()).ok().filter(|stat| stat.kind() == FileType::Socket)?;
    match UnixStream::connect(place(dir, name)) {
        Ok(stream) => Some(stream),
        Err(e) => {
            let is_made = name.strip_prefix(NEW).and_then(|pid| pid.parse().ok()).is_some_and(process::lives);
            if e.kind() == std::io::ErrorKind::ConnectionRefused && !is_made {
                let _ = os.unlink(dir, name.as_bytes());
            }
            None
        }
    }
}

/// An open transaction that answers.
pub struct Found {
    /// To its session daemon.
    pub line: Line,
    /// How it stands.
    pub look: Look,
    /// Where its first file system is mounted.
    pub point: Vec<u8>,
    /// What it conflicts with, once that was asked for.
    pub checked: Option<Checked>,
}

/// All open transactions of this user that answer.
pub fn all(area: &Area) -> Result<Vec<Found>> {
    let os = Linux::new();
    let mut found = Vec::new();
    for (point, area) in areas(&os, area)? {
        let Ok(dir) = os.open(&area, OPEN, Open::Directory) else { continue };
        for entry in os.read_dir(&dir).unwrap_or_default() {
            let Some(stream) =
                std::str::from_utf8(&entry.name).ok().and_then(|name| connect(&os, &dir, name))
            else {
                continue;
            };
            if let Some((line, look)) = ask(&os, stream) {
                found.push(Found { line, look, point: point.clone(), checked: None });
            }
        }
    }
    found.sort_by_key(|found| (found.look.id, found.look.pid));
    found.dedup_by_key(|found| (found.look.id, found.look.pid));
    Ok(found)
}

fn ask(os: &Linux, stream: UnixStream) -> Option<(Line, Look)> {
    // Else any user who could make a socket there would be believed.
    let peer = sockets::peer(&stream).ok()?;
    if peer.uid != os.uid() && peer.uid != 0 {
        return None;
    }
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    let mut line = Line::new(stream, ANSWER_BYTES_MAX);
    line.say(&Message { version: VERSION, request: Request::Look }, &[]).ok()?;
    match line.hear::<Answer>() {
        Ok(Some((Answer::Look(look), _))) => {
            line.stream().set_read_timeout(None).ok()?;
            Some((line, look))
        }
        _ => None,
    }
}

/// The areas of this user that are there, each with where its file system is mounted.
fn areas(os: &Linux, area: &Area) -> Result<Vec<(Vec<u8>, OwnedFd)>> {
    let name = domains::area_name(area);
    let points = match os.uid() {
        0 => {
            let served = domains::served()?.into_iter().map(|lower| lower.point);
            served.chain(domains::read_only()?).collect()
        }
        _ => ordinary::with_areas(&name),
    };
    let open = |point: Vec<u8>| {
        let top = os.open_path(Path::new(OsStr::from_bytes(&point)), Open::Directory).ok()?;
        let area = os.open(&top, &name, Open::Directory).ok()?;
        // Another user's is none.
        (os.stat(&area).ok()?.uid == os.uid()).then_some((point, area))
    };
    Ok(points.into_iter().filter_map(open).collect())
}

/// The one that is meant.
pub fn find(wanted: &Session) -> Result<Found> {
    if domains::inside_a_transaction(&domains::table()?) {
        return Err("inside of a transaction others can't be seen; do it outside of it".into());
    }
    let (id, mut others) = (wanted.id, Vec::new());
    let mut found = Vec::new();
    for one in all(&wanted.area)? {
        if one.look.id == id && wanted.pid.is_none_or(|pid| pid == one.look.pid) {
            found.push(one)
        } else {
            others.push(one)
        }
    }
    match found.pop() {
        Some(one) if found.is_empty() => Ok(one),
        Some(one) => {
            found.push(one);
            let places: Vec<_> =
                found.iter().map(|f| format!("pid {} on {}", f.look.pid, shown(&f.point))).collect();
            let why = format!(
                "each file system counts for itself, and several have an open transaction {id}: {}",
                places.join(", ")
            );
            Err(Failure::from(why).hint("say which with --pid"))
        }
        None => Err(unknown(wanted, &others)),
    }
}

/// Why there is no such transaction, and which there are.
fn unknown(wanted: &Session, others: &[Found]) -> Failure {
    let id = wanted.id;
    let why = match super::elsewhere(id, &wanted.area) {
        Some(why) => why,
        None => match domains::failing().unwrap_or_default().as_slice() {
            [] => format!("transaction {id} is not open: it has ended, or never was"),
            [failing, ..] => format!("transaction {id} is not to be found, unless it is there: {failing}"),
        },
    };
    let open: Vec<_> = others.iter().map(|other| other.look.id.to_string()).collect();
    let open = match open.len() {
        0 => "none is open; `systx begin` begins one".to_string(),
        1 => format!("open is {}", open.join("")),
        _ => format!("open are {}", open.join(", ")),
    };
    let whose = if ordinary::is_ordinary() {
        ". Those of other users are theirs alone: for root's use sudo"
    } else {
        ""
    };
    Failure::from(why).hint(format!("{open}{whose}"))
}
