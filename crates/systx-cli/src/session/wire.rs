//! The messages between a session daemon and its clients.
//!
//! Owns: [`Message`], [`Answer`] and their form on a stream: four bytes of length, lowest first, and JSON;
//! the descriptors that belong to a message travel beside its first byte. Guarantees: a message is checked
//! before it is used, and is never longer than its bound. Does not: act. Both sides are this program, but one
//! may be older: [`VERSION`].

use super::part::Named;
use crate::report::Told;
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use systx_os::{sockets, Errno};

/// Version of these messages. A message of another version is refused.
pub const VERSION: u32 = 6;
/// Bound of what a client says: names of a part, each byte as a number, are the longest that it can be.
pub const REQUEST_BYTES_MAX: usize = 4 << 20;
/// Bound of an answer: each displaced object has a line.
pub const ANSWER_BYTES_MAX: usize = 256 << 20;

/// A message of a client.
#[derive(Debug, Serialize, Deserialize)]
pub struct Message {
    /// The client's.
    pub version: u32,
    /// The request.
    pub request: Request,
}

/// A client's request.
#[derive(Debug, Serialize, Deserialize)]
pub enum Request {
    /// To know how it stands.
    Look,
    /// To run a command inside. The connection stays as long as that runs.
    Enter {
        /// Command line.
        command: Vec<u8>,
        /// True if the transaction is this client's: it is aborted if the client goes without [`Request::Keep`].
        owner: bool,
    },
    /// It stays open when its owner goes.
    Keep,
    /// The client's command is gone for an unknown reason.
    Why,
    /// The changes, into the file that is handed over.
    Diff {
        /// The form.
        stat: bool,
        /// The form.
        patch: bool,
        /// The form.
        json: bool,
        /// It is for a terminal.
        terminal: bool,
        /// Only of this.
        part: Option<Named>,
    },
    /// The conflicts with what is there now; the transaction stays as it is.
    Check {
        /// At most so many are listed.
        most: usize,
    },
    /// The end. A terminal may come with it, to show there how far a commit is.
    End {
        /// True: commit; false: abort.
        commit: bool,
        /// In the transaction's own words: by whom.
        by: Vec<u8>,
        /// Only this is to be committed, and the rest given up.
        part: Option<Named>,
        /// The commit keeps an image for `systx undo`.
        undoable: bool,
    },
}

/// A message of the session daemon.
#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    /// How it stands.
    Look(Look),
    /// The way in: descriptors come with it.
    Entered {
        /// The group that everything inside belongs to, if it can be only one.
        group: Option<u32>,
    },
    /// Done as requested.
    Done,
    /// It is still open.
    Open,
    /// Number of changes that are written.
    Told {
        /// Their number.
        changes: usize,
    },
    /// The conflicts.
    Checked(Checked),
    /// It has ended, or can only be aborted.
    Ended(Verdict),
    /// Not possible, as a fragment.
    Refused(String),
}

/// The end of a transaction, as a client learns it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Verdict {
    /// How.
    pub told: Told,
    /// The client that ended it, if one did.
    pub by: Option<Vec<u8>>,
    /// True for the client that asked for this end: only then is it the answer.
    pub yours: bool,
}

impl Verdict {
    /// Returns the message for a client that wanted another end.
    pub fn of_another(self) -> Told {
        match self.by {
            Some(by) if !self.yours => self.told.by_another(&by),
            _ => self.told,
        }
    }

    /// Returns true if another party ended the transaction.
    pub fn is_of_another(&self) -> bool {
        self.by.is_some() && !self.yours
    }
}

/// The present conflicts of a transaction.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Checked {
    /// By path.
    pub conflicts: Vec<Clash>,
    /// How many more there are.
    pub more: usize,
    /// Why it is lost, if it is.
    pub lost: Option<Told>,
}

impl Checked {
    /// Returns how many there are.
    pub fn count(&self) -> usize {
        self.conflicts.len() + self.more
    }
}

/// One conflict.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Clash {
    /// For people, without its end.
    pub line: String,
    /// For programs.
    pub value: serde_json::Value,
}

/// How an open transaction stands.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Look {
    /// Number.
    pub id: u64,
    /// Process of the session daemon.
    pub pid: u32,
    /// User.
    pub uid: u32,
    /// Seconds since 1970.
    pub since: i64,
    /// When others could find it, on the monotonic clock, in nanoseconds; of an older version 0.
    #[serde(default)]
    pub began_ns: u64,
    /// Of the session daemon's messages; of one that does not say 0.
    #[serde(default)]
    pub version: u32,
    /// Given by its user.
    #[serde(default)]
    pub name: Option<String>,
    /// True if its commit leaves a record in the log.
    pub recorded: bool,
    /// Where each file system is mounted, and its number there.
    pub numbers: Vec<(Vec<u8>, u64)>,
    /// Why it can't be committed any more.
    pub doomed: Option<String>,
    /// Set if it stays all the same: about how much room its changes take, in bytes.
    pub lost: Option<u64>,
    /// The commands that run inside.
    pub inside: Vec<Inside>,
}

/// A command that runs inside.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Inside {
    /// The `systx` that waits for it.
    pub pid: u32,
    /// Command line.
    pub command: Vec<u8>,
    /// Seconds since 1970.
    pub since: i64,
}

/// The form of changes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Form {
    /// With the numbers of lines.
    pub stat: bool,
    /// As a patch.
    pub patch: bool,
    /// For programs.
    pub json: bool,
    /// For a terminal.
    pub terminal: bool,
}

impl Request {
    /// Asks for the changes in this form.
    pub fn diff(form: Form, part: Option<Named>) -> Request {
        let Form { stat, patch, json, terminal } = form;
        Request::Diff { stat, patch, json, terminal, part }
    }
}

/// One end of a connection.
pub struct Line {
    stream: UnixStream,
    bytes: Vec<u8>,
    fds: Vec<OwnedFd>,
    bytes_max: usize,
}

impl Line {
    /// Over a connected stream; what comes is at most so long.
    pub fn new(stream: UnixStream, bytes_max: usize) -> Line {
        Line { stream, bytes: Vec::new(), fds: Vec::new(), bytes_max }
    }

    /// The stream.
    pub fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Sends a message.
    pub fn say(&self, message: &impl Serialize, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let json = serde_json::to_vec(message)?;
        let len = u32::try_from(json.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let bytes = [&len.to_le_bytes()[..], &json].concat();
        Ok(sockets::send(&self.stream, &bytes, fds)?)
    }

    /// Waits for a message and takes it, with what came beside it. `None`: the other one is gone. `WouldBlock`: the time
    /// that its stream has for it is over.
    pub fn hear<T: for<'a> Deserialize<'a>>(&mut self) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
        loop {
            if let Some(message) = self.take()? {
                return Ok(Some(message));
            }
            if !self.more()? {
                return Ok(None);
            }
        }
    }

    /// Receives what is there; false: the other end is closed. `WouldBlock`: there is nothing.
    pub fn more(&mut self) -> io::Result<bool> {
        let mut piece = [0; 16 << 10];
        match sockets::receive(&self.stream, &mut piece, &mut self.fds) {
            Ok(0) | Err(Errno::CONNRESET) => Ok(false),
            Ok(n) => {
                self.bytes.extend_from_slice(&piece[..n]);
                Ok(true)
            }
            Err(e) => Err(e.into()),
        }
    }

    /// A message that has arrived whole.
    pub fn take<T: for<'a> Deserialize<'a>>(&mut self) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
        if self.fds.len() > sockets::DESCRIPTORS_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let Some((len, rest)) = self.bytes.split_first_chunk::<4>() else { return Ok(None) };
        let len = u32::from_le_bytes(*len) as usize;
        if len > self.bytes_max {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let Some(json) = rest.get(..len) else { return Ok(None) };
        let message = serde_json::from_slice(json)?;
        self.bytes.drain(..4 + len);
        Ok(Some((message, std::mem::take(&mut self.fds))))
    }
}

impl AsFd for Line {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn pair() -> (Line, Line) {
        let (one, other) = UnixStream::pair().unwrap();
        (Line::new(one, ANSWER_BYTES_MAX), Line::new(other, REQUEST_BYTES_MAX))
    }

    #[test]
    fn messages_arrive_one_by_one_with_what_belongs_to_them() {
        let (one, mut other) = pair();
        let request = Request::Enter { command: b"a \xff".to_vec(), owner: true };
        one.say(&Message { version: VERSION, request }, &[one.as_fd()]).unwrap();
        one.say(&Message { version: VERSION, request: Request::Look }, &[]).unwrap();
        let (first, fds) = other.hear::<Message>().unwrap().unwrap();
        assert!(matches!(first.request, Request::Enter { command, owner: true } if command == b"a \xff"));
        assert_eq!(fds.len(), 1);
        let (second, fds) = other.hear::<Message>().unwrap().unwrap();
        assert!(matches!(second.request, Request::Look) && fds.is_empty());
        drop((one, fds));
    }

    #[test]
    fn what_is_no_message_is_an_error() {
        for wrong in [&b"\xff\xff\xff\xff"[..], b"\x02\0\0\0{]", b"\x02\0\0\0{}"] {
            let (one, mut other) = pair();
            one.stream().write_all(wrong).unwrap();
            assert!(other.hear::<Message>().is_err(), "{wrong:?}");
        }
        let (one, mut other) = pair();
        one.stream().write_all(b"\x09\0\0\0{}").unwrap();
        drop(one);
        assert!(other.hear::<Message>().unwrap().is_none(), "half a message is none");
    }
}
