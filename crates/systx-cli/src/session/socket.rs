//! The socket of a session daemon, in the area of its transaction's first file system.
//!
//! Owns: the directory `open` of an area, and the names in it, `<number of the transaction>.<process of its
//! daemon>`. Guarantees: only a process that may enter the area gets there, and each side checks the other's
//! user; a socket is removed by its daemon, and that of a killed daemon by its helper process, or by
//! whichever client finds it. Does not: open domains to look for one; the kernel's mount table is enough.

use super::wire::{Answer, Line, Look, Message, Request, ANSWER_BYTES_MAX, VERSION};
use crate::args::{Area, Id, Number, Session};
use crate::domains;
use crate::failure::{Failure, Result};
use crate::ordinary;
use crate::words::shown;
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
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
            if e.kind() == ErrorKind::ConnectionRefused && !is_made {
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
}

/// All open transactions of this user that answer.
pub fn all(area: &Area) -> Result<Vec<Found>> {
    let Asked { found, silent, .. } = asked(area)?;
    for (_, pid) in silent {
        eprintln!("systx: the session daemon (pid {pid}) does not answer: it is stopped, or at work.");
    }
    Ok(found)
}

/// What became of a question to each session daemon of this user.
#[derive(Default)]
struct Asked {
    found: Vec<Found>,
    /// How many have ended instead of an answer.
    ended: usize,
    /// Those that have not answered in time: the transaction, as the socket is called, and the process.
    silent: Vec<(Option<u64>, u32)>,
}

/// The answer of one.
enum Heard {
    Answer(Box<(Line, Look)>),
    Ended,
    Silent(u32),
}

fn asked(area: &Area) -> Result<Asked> {
    let os = Linux::new();
    let (mut streams, mut all) = (Vec::new(), Asked::default());
    for (point, area) in areas(&os, area)? {
        let Ok(dir) = os.open(&area, OPEN, Open::Directory) else { continue };
        for entry in os.read_dir(&dir).unwrap_or_default() {
            let name = std::str::from_utf8(&entry.name).ok();
            let Some(to) = name.and_then(|name| connect(&os, &dir, name)) else { continue };
            let id = name.and_then(|name| name.split('.').next()?.parse().ok());
            streams.push((point.clone(), id, to));
        }
    }
    // All are asked before one is waited for: one time is enough for all that are silent.
    let until = Instant::now() + PATIENCE;
    let asked = streams.into_iter().map(|(point, id, stream)| (point, id, ask(&os, stream)));
    for (point, id, asked) in asked.collect::<Vec<_>>() {
        match asked.map_or(Heard::Ended, |(line, pid)| hear(line, pid, until)) {
            Heard::Answer(answer) => {
                let (line, look) = *answer;
                all.found.push(Found { line, look, point });
            }
            Heard::Ended => all.ended += 1,
            Heard::Silent(pid) => all.silent.push((id, pid)),
        }
    }
    all.found.sort_by_key(|found| (found.look.id, found.look.pid));
    all.found.dedup_by_key(|found| (found.look.id, found.look.pid));
    Ok(all)
}

/// Asks a session daemon how its transaction stands; its process. `None`: it is none, or has ended.
fn ask(os: &Linux, stream: UnixStream) -> Option<(Line, u32)> {
    // Else any user who could make a socket there would be believed.
    let peer = sockets::peer(&stream).ok()?;
    if peer.uid != os.uid() && peer.uid != 0 {
        return None;
    }
    let line = Line::new(stream, ANSWER_BYTES_MAX);
    line.say(&Message { version: VERSION, request: Request::Look }, &[]).ok()?;
    Some((line, peer.pid))
}

fn hear(mut line: Line, pid: u32, until: Instant) -> Heard {
    // What has answered already is heard, however long the others took.
    let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    if line.stream().set_read_timeout(Some(left)).is_err() {
        return Heard::Ended;
    }
    match line.hear::<Answer>() {
        Ok(Some((Answer::Look(look), _))) if line.stream().set_read_timeout(None).is_ok() => {
            Heard::Answer(Box::new((line, look)))
        }
        Err(e) if e.kind() == ErrorKind::WouldBlock => Heard::Silent(pid),
        _ => Heard::Ended,
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
    let is_meant = |one: &Found| {
        let is_it = match &wanted.id {
            Some(Id::Number(id)) => one.look.id == *id,
            Some(Id::Name(name)) => one.look.name.as_ref() == Some(name),
            Some(Id::Back(_)) | None => true,
        };
        is_it && wanted.pid.is_none_or(|pid| pid == one.look.pid)
    };
    let Asked { found, ended, silent } = asked(&wanted.area)?;
    if matches!(wanted.id, Some(Id::Back(_)) | None) {
        // The user may have meant that one.
        if ended > 0 {
            return Err(Failure::from("a transaction has ended while the one that is meant was looked for")
                .hint("`systx list` shows those that are open; say which"));
        }
    }
    // A number may be there once on each file system.
    let may_be_meant = |(id, pid): &(Option<u64>, u32)| {
        let is_another = matches!(wanted.id, Some(Id::Number(wanted)) if *id != Some(wanted));
        !is_another && wanted.pid.is_none_or(|wanted| wanted == *pid)
    };
    let silent: Vec<_> = silent.into_iter().filter(may_be_meant).collect();
    if !matches!(wanted.id, Some(Id::Name(_))) {
        refuse_silent(&silent)?;
    }
    let (mut meant, others): (Vec<_>, Vec<_>) = found.into_iter().partition(is_meant);
    let place = match wanted.id {
        Some(Id::Back(back)) => {
            // Also those that are lost or over count: an older one must not be ended in their place.
            meant.sort_by_key(|one| std::cmp::Reverse(age(&one.look)));
            back
        }
        _ if meant.len() > 1 => return Err(ambiguous(wanted.id.as_ref(), &meant)),
        _ => 0,
    };
    if place < meant.len() {
        Ok(meant.swap_remove(place))
    } else {
        refuse_silent(&silent)?;
        Err(unknown(wanted, meant.iter().chain(&others)))
    }
}

/// Fails where a session daemon has not answered: what is looked for may be its transaction.
fn refuse_silent(silent: &[(Option<u64>, u32)]) -> Result<()> {
    let Some((_, pid)) = silent.first() else { return Ok(()) };
    let why = format!("a session daemon (pid {pid}) does not answer: it is stopped, or at work");
    Err(Failure::from(why).hint("nothing was done; try again when it goes on, or say another one's number"))
}

/// Returns the number of the transaction that is meant, which may run without being open, if a number is what was given.
pub fn number(id: &Id, pid: Option<u32>, area: &Area) -> Result<Number> {
    if let Id::Number(id) = id {
        return Ok(Number { id: *id, pid });
    }
    let found = find(&Session { id: Some(id.clone()), pid, area: area.clone() })?;
    Ok(Number { id: found.look.id, pid: Some(found.look.pid) })
}

/// When it began, by a clock that all have; the rest tells apart those of an older version.
fn age(look: &Look) -> (u64, i64, u64) {
    (look.began_ns, look.since, look.id)
}

/// Says that no other open transaction of this user has the name of `ours`, which can be found itself by now: so of two
/// that begin at once one finds the other.
pub fn name_is_free(area: &Area, ours: &Look) -> Result<()> {
    let Some(name) = &ours.name else { return Ok(()) };
    let order = |look: &Look| (age(look), look.pid);
    let has_it = |one: &&Found| one.look.name.as_ref() == Some(name) && order(&one.look) < order(ours);
    let Asked { found, silent, .. } = asked(area)?;
    refuse_silent(&silent)?;
    match found.iter().find(has_it) {
        Some(other) => {
            let why = format!("nothing is begun: transaction {} has the name {name} already", other.look.id);
            Err(Failure::from(why).hint("end that one, or take another name"))
        }
        None => Ok(()),
    }
}

/// Why it is not known which of several is meant.
fn ambiguous(id: Option<&Id>, meant: &[Found]) -> Failure {
    let places: Vec<_> =
        meant.iter().map(|one| format!("pid {} on {}", one.look.pid, shown(&one.point))).collect();
    let places = places.join(", ");
    let (why, hint) = match id {
        Some(Id::Number(id)) => (
            format!(
                "each file system counts for itself, and several have an open transaction {id}: {places}"
            ),
            "say which with --pid",
        ),
        Some(Id::Name(name)) => {
            (format!("several open transactions are called {name}: {places}"), "say which with --pid")
        }
        _ => (format!("several transactions are open: {}", listed(meant)), "say which; @ is the newest"),
    };
    Failure::from(why).hint(hint)
}

/// Their numbers and names.
fn listed<'a>(open: impl IntoIterator<Item = &'a Found>) -> String {
    let one = |one: &Found| match &one.look.name {
        Some(name) => format!("{} ({name})", one.look.id),
        None => one.look.id.to_string(),
    };
    open.into_iter().map(one).collect::<Vec<_>>().join(", ")
}

const NONE_OPEN: &str = "no transaction is open";

/// Why there is no such transaction, and which there are.
fn unknown<'a>(wanted: &Session, open: impl Iterator<Item = &'a Found>) -> Failure {
    let mut open: Vec<_> = open.collect();
    open.sort_by_key(|one| (one.look.id, one.look.pid));
    let failing = || domains::failing().unwrap_or_default().into_iter().next();
    let elsewhere = match wanted.id {
        Some(Id::Number(id)) => super::elsewhere(id, &wanted.area),
        _ => None,
    };
    let why = match (&wanted.id, elsewhere) {
        (_, Some(why)) => why,
        (Some(Id::Number(id)), None) => match failing() {
            None => format!("transaction {id} is not open: it has ended, or never was"),
            Some(failing) => format!("transaction {id} is not to be found, unless it is there: {failing}"),
        },
        (Some(Id::Name(name)), None) => format!("no open transaction is called {name}"),
        (Some(back @ Id::Back(1..)), None) => format!("no transaction is {back}: fewer are open"),
        (Some(Id::Back(_)) | None, None) => match wanted.pid {
            Some(pid) => format!("no open transaction is kept by process {pid}"),
            None => NONE_OPEN.into(),
        },
    };
    let open = match open.len() {
        0 if why == NONE_OPEN => "`systx begin` begins one".to_string(),
        0 => "none is open; `systx begin` begins one".to_string(),
        1 => format!("open is {}", listed(open)),
        _ => format!("open are {}", listed(open)),
    };
    let whose = if ordinary::is_ordinary() {
        ". Those of other users are theirs alone: for root's use sudo"
    } else {
        ""
    };
    Failure::from(why).hint(format!("{open}{whose}"))
}
