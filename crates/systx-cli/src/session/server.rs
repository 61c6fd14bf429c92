//! The session daemon's service: what it does while the transaction is open, and what it answers afterwards.
//!
//! Owns: the clients, and the two waits: [`Server::stay`], until there is a reason to end, and
//! [`Server::tell_end`], until a client has learned of an end that none asked for. Guarantees: no client can
//! hold the others up, but by a question about the changes. Does not: end anything.

use super::check;
use super::now;
use super::part::{self, Named};
use super::socket::Socket;
use super::wire::{Answer, Checked, Inside, Line, Look, Message, Request, Verdict, VERSION};
use crate::args::Changes;
use crate::diff::{self, Target};
use crate::failure::{Failure, Result};
use crate::life::Life;
use crate::report::Told;
use crate::words::Voice;
use std::ffi::OsStr;
use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use systx_engine::outcome::{Conflict, Verb, VerbError};
use systx_engine::transaction::Transaction;
use systx_os::process::{self, Deadline, Signals};
use systx_os::sandbox::join::Entry;
use systx_os::{sockets, Linux, Os};

/// The end that a client asks for.
#[derive(Debug)]
pub struct Wanted {
    /// To be committed.
    pub commit: bool,
    /// The client's description.
    pub by: Vec<u8>,
    /// Only this is to be committed.
    pub part: Option<Named>,
    /// The commit keeps an image for `systx undo`.
    pub undoable: bool,
    /// The terminal at which the client wants to see the progress of the commit.
    pub terminal: Option<OwnedFd>,
}

/// Why it is to end.
#[derive(Debug)]
pub enum End {
    /// A client asked for it.
    Wanted(Wanted),
    /// The view can't go on.
    Alarm,
    /// A conflict was found.
    Conflict(Conflict),
    /// The transaction's time is over.
    Expired,
    /// The owner, this process, has gone without a message.
    Left(u32),
    /// Pid 1 was killed.
    Lost,
    /// This process is to end.
    Signal(i32),
}

impl End {
    /// Returns true if no client may have learned of it.
    fn is_a_surprise(&self) -> bool {
        matches!(self, End::Alarm | End::Conflict(_) | End::Expired | End::Lost)
    }
}

/// So long a command inside may take to end when it is asked to.
const GRACE: std::time::Duration = std::time::Duration::from_secs(1);

struct Client {
    line: Line,
    pid: u32,
    inside: Option<Inside>,
    owner: bool,
    /// True if the end is the one that this client asked for.
    ended_it: bool,
}

impl Client {
    /// Sends the client an answer.
    fn hears(&self, answer: &Answer) -> Next {
        self.next(self.line.say(answer, &[]))
    }

    /// Sends the client an answer, or why there is none.
    fn learns(&self, answer: Result<Answer, Unheard>) -> Next {
        match answer {
            Ok(answer) => self.hears(&answer),
            Err(Unheard::Refused(why)) => self.hears(&Answer::Refused(why.to_string())),
            Err(Unheard::Ends(end)) => Next::Ends(end),
        }
    }

    /// Sends the client the way in.
    fn enter(&mut self, command: Vec<u8>, entry: &Entry) -> Next {
        self.inside = Some(Inside { pid: self.pid, command, since: now() });
        let group = (Linux::new().uid() != 0).then(process::group);
        self.next(self.line.say(&Answer::Entered { group }, &entry.descriptors()))
    }

    fn next(&self, said: std::io::Result<()>) -> Next {
        match said {
            Ok(()) => Next::Stays,
            Err(_) if self.owner => Next::Ends(End::Left(self.pid)),
            Err(_) => Next::Goes,
        }
    }
}

/// The descriptors that are ready.
struct Ready {
    /// Of those that are waited for besides.
    fixed: Vec<bool>,
    /// The socket, and behind it the clients.
    came: Vec<bool>,
}

/// The result of one message.
enum Next {
    Stays,
    Goes,
    Ends(End),
}

/// An open transaction: served, with pid 1 of its namespaces.
pub struct Kept {
    /// The transaction at work.
    pub life: Life,
    /// The way in.
    pub entry: Entry,
}

/// What kind of open transaction it is.
pub struct Kind {
    /// It is aborted when the process that began it goes.
    pub owned: bool,
    /// Its commit leaves a record in the log.
    pub recorded: bool,
    /// It stays if it can't be committed.
    pub keeps: bool,
    /// Given by its user.
    pub name: Option<String>,
}

/// The session daemon's clients.
pub struct Server {
    socket: Option<Socket>,
    clients: Vec<Client>,
    id: u64,
    since: i64,
    began_ns: u64,
    name: Option<String>,
    recorded: bool,
    numbers: Vec<(Vec<u8>, u64)>,
    /// The directories to which it is confined; none: it is the whole tree.
    named: Vec<Vec<u8>>,
    /// A transaction that can't be committed stays.
    pub keeps: bool,
    lost: Option<u64>,
    doomed: Option<Verdict>,
}

impl Server {
    /// Makes one with the client that began the transaction.
    pub fn new(line: Line, Kind { owned, recorded, keeps, name }: Kind) -> Server {
        let first = Client {
            line,
            pid: std::os::unix::process::parent_id(),
            inside: None,
            owner: owned,
            ended_it: false,
        };
        Server {
            socket: None,
            clients: vec![first],
            id: 0,
            since: now(),
            began_ns: 0,
            name,
            recorded,
            numbers: Vec::new(),
            named: Vec::new(),
            keeps,
            lost: None,
            doomed: None,
        }
    }

    /// Sends the client that began it why there is no transaction.
    pub fn refuse(&self, why: &str) {
        if let Some(first) = self.clients.first() {
            let _ = first.line.say(&Answer::Refused(why.into()), &[]);
        }
    }

    /// Opens the transaction to clients, and informs the one that began it.
    pub fn open(&mut self, socket: Socket, numbers: Vec<(Vec<u8>, u64)>, named: &[Vec<u8>]) {
        self.socket = Some(socket);
        // Only now: of two with one name the later one has to find the other.
        self.began_ns = Linux::new().monotonic_ns();
        self.named = named.to_vec();
        self.id = numbers.first().map_or(0, |(_, id)| *id);
        self.numbers = numbers;
        if let Some(first) = self.clients.first() {
            // A client that is gone already is noticed like any other.
            let _ = first.line.say(&Answer::Look(self.look()), &[]);
        }
    }

    fn look(&self) -> Look {
        Look {
            id: self.id,
            pid: std::process::id(),
            uid: Linux::new().uid(),
            since: self.since,
            began_ns: self.began_ns,
            version: VERSION,
            name: self.name.clone(),
            recorded: self.recorded,
            numbers: self.numbers.clone(),
            doomed: self.doomed.as_ref().map(|end| end.told.sentence.clone()),
            lost: self.lost,
            inside: self.clients.iter().filter_map(|client| client.inside.clone()).collect(),
        }
    }

    /// Serves clients until there is a reason to end.
    pub fn stay(&mut self, kept: &mut Kept, signals: &Signals, deadline: &Deadline) -> End {
        loop {
            let fixed = [
                kept.life.alarm.as_fd(),
                kept.life.child.talk().as_fd(),
                deadline.as_fd(),
                signals.fd().as_fd(),
            ];
            let Ready { fixed: ready, came } = self.wait(&fixed);
            if ready[0] {
                return End::Alarm;
            }
            // Before those are heard who ask why their command is gone.
            if ready[1] {
                return End::Lost;
            }
            if let Some(end) = self.attend(&came, Some(kept)) {
                return end;
            }
            if ready[2] {
                return End::Expired;
            }
            // Also one that came while a client was answered.
            if let Some(signal) = ending(signals) {
                return End::Signal(signal);
            }
        }
    }

    /// Waits for one of these descriptors, a client, or a connection; returns which of them are ready, and
    /// which clients.
    fn wait(&self, fixed: &[std::os::fd::BorrowedFd<'_>]) -> Ready {
        let listener = self.socket.as_ref().and_then(|socket| socket.listener.as_ref());
        let mut fds: Vec<_> = fixed.iter().copied().map(Some).collect();
        fds.push(listener.map(AsFd::as_fd));
        fds.extend(self.clients.iter().map(|client| Some(client.line.as_fd())));
        let mut ready = process::wait_readable_of(&fds);
        let came = ready.split_off(fixed.len());
        Ready { fixed: ready, came }
    }

    /// Accepts a new client, and hears those that have sent something, up to the first that ends the
    /// transaction; the others ask for something that is gone, and learn how it ended.
    fn attend(&mut self, came: &[bool], mut kept: Option<&mut Kept>) -> Option<End> {
        let (at_the_socket, came) = came.split_first()?;
        let mut end = None;
        // From the end, as those who go leave a gap that the last one fills.
        for n in (0..came.len()).rev().filter(|n| came[*n]) {
            match self.hear(n, kept.as_deref_mut()) {
                Next::Stays => {}
                Next::Goes => {
                    self.clients.swap_remove(n);
                }
                Next::Ends(why) => {
                    end = Some(why);
                    break;
                }
            }
        }
        if *at_the_socket {
            if let Some((line, peer)) = self.socket.as_ref().and_then(Socket::accept) {
                let sockets::Peer { pid, .. } = peer;
                self.clients.push(Client { line, pid, inside: None, owner: false, ended_it: false });
            }
        }
        end
    }

    /// Hears one client.
    fn hear(&mut self, n: usize, mut kept: Option<&mut Kept>) -> Next {
        let client = &mut self.clients[n];
        match client.line.more() {
            Ok(true) => {}
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            // The owner's command is over, or the owner was killed.
            Ok(false) if client.owner => return Next::Ends(End::Left(client.pid)),
            Ok(false) | Err(_) => return Next::Goes,
        }
        loop {
            match self.clients[n].line.take::<Message>() {
                Ok(None) => return Next::Stays,
                Ok(Some((request, fds))) => match self.answer(n, request, fds, kept.as_deref_mut()) {
                    Next::Stays => {}
                    next => return next,
                },
                Err(_) if self.clients[n].owner => return Next::Ends(End::Left(self.clients[n].pid)),
                Err(_) => return Next::Goes,
            }
        }
    }

    fn answer(&mut self, n: usize, message: Message, fds: Vec<OwnedFd>, kept: Option<&mut Kept>) -> Next {
        let Message { version, request } = message;
        if matches!(request, Request::Look) {
            return self.clients[n].hears(&Answer::Look(self.look()));
        }
        if version != VERSION {
            let ours = env!("CARGO_PKG_VERSION");
            let why = format!("its session daemon is another version of systx: {ours}");
            return self.clients[n].hears(&Answer::Refused(why));
        }
        // Of one that is lost nothing can be made any more.
        if matches!(request, Request::Keep | Request::End { commit: true, .. }) && kept.is_some() {
            if let Some(end) = self.doomed.clone() {
                return self.clients[n].hears(&Answer::Ended(end));
            }
        }
        let Some(kept) = kept else {
            let Some(end) = self.doomed.clone() else { return Next::Goes };
            let next = self.clients[n].hears(&Answer::Ended(end));
            let heard = matches!(request, Request::End { .. });
            return if heard { Next::Ends(End::Left(self.clients[n].pid)) } else { next };
        };
        let client = &mut self.clients[n];
        match request {
            Request::Look => Next::Stays,
            Request::Why => client.hears(&Answer::Open),
            Request::Keep => {
                client.owner = false;
                client.inside = None;
                self.keeps = true;
                client.hears(&Answer::Done)
            }
            Request::Enter { command, owner } => {
                client.owner |= owner;
                client.enter(command, &kept.entry)
            }
            Request::End { commit, by, part, undoable } => {
                let terminal = fds.into_iter().next();
                self.end(n, Wanted { commit, by, part, undoable, terminal }, kept)
            }
            Request::Diff { stat, patch, json, terminal, part } => {
                let voice = Voice { json, verbose: false };
                let form = Changes { stat, patch, ..Changes::default() };
                let Some(file) = fds.into_iter().next().map(File::from) else { return Next::Goes };
                let told = asked(kept, TELLING, |tx| match part::choose(tx, part)? {
                    Ok(chosen) => {
                        diff::into_file(&form, voice, tx, &chosen.changes(), Target { file, terminal })
                            .map(Ok)
                    }
                    Err(why) => Ok(Err(why)),
                });
                client.learns(told.map(|changes| Answer::Told { changes }))
            }
            Request::Check { most } => {
                let lost = self.doomed.as_ref().filter(|_| self.lost.is_some()).map(|end| end.told.clone());
                let answer = kept.life.look(|tx| check::look(tx, most).map(Ok));
                let checked = heard(kept, check::CHECKING, answer);
                client.learns(checked.map(|checked| Answer::Checked(Checked { lost, ..checked })))
            }
        }
    }

    /// Ends the transaction, as a client wants it.
    fn end(&mut self, n: usize, wanted: Wanted, kept: &mut Kept) -> Next {
        // Before anything is killed for a part that is none.
        if let Some(named) = wanted.part.clone().filter(|_| wanted.commit) {
            let found = asked(kept, TELLING, |tx| part::choose(tx, Some(named)).map(|found| found.map(drop)));
            match found {
                Ok(()) => {}
                Err(Unheard::Refused(why)) => {
                    return self.clients[n].hears(&Answer::Refused(why.to_string()))
                }
                Err(Unheard::Ends(end)) => {
                    // The client asked for the end, and learns of it.
                    if !self.keeps {
                        self.socket = None;
                    }
                    return Next::Ends(end);
                }
            }
        }
        // Where the commit fails it has to be served there again, or what was done in it is gone.
        let found = |dir: &Vec<u8>| Path::new(OsStr::from_bytes(dir)).symlink_metadata();
        let gone = |dir: &&Vec<u8>| !found(dir).is_ok_and(|found| found.is_dir());
        if let Some(dir) = self.named.iter().filter(|_| wanted.commit && self.keeps).find(gone) {
            let why = Failure::at(dir, "it has been moved or removed")
                .hint("put it back, and commit then; the transaction stays open");
            return self.clients[n].hears(&Answer::Refused(why.to_string()));
        }
        // The client learns how the end came about.
        let client = &mut self.clients[n];
        client.inside = None;
        client.owner = false;
        client.ended_it = true;
        Next::Ends(End::Wanted(wanted))
    }

    /// Accepts no client any more, unless one has to learn of the end.
    pub fn close(&mut self, end: &End) {
        if !end.is_a_surprise() || self.clients.iter().any(|client| client.owner) {
            self.socket = None;
        }
    }

    /// Returns true if a command runs inside.
    pub fn is_anybody_inside(&self) -> bool {
        self.clients.iter().any(|client| client.inside.is_some())
    }

    /// Gives the commands inside a moment to end after they were asked to. Of each that does its client has a
    /// word to say.
    pub fn let_them_end(&self) {
        let Ok(grace) = Deadline::new(Some(GRACE)) else { return };
        let mut inside: Vec<_> =
            self.clients.iter().filter(|client| client.inside.is_some()).map(|v| v.line.as_fd()).collect();
        while !inside.is_empty() {
            let mut fds = vec![Some(grace.as_fd())];
            fds.extend(inside.iter().copied().map(Some));
            let ready = process::wait_readable_of(&fds);
            if ready[0] {
                return;
            }
            let mut said = ready[1..].iter();
            inside.retain(|_| !said.next().copied().unwrap_or(false));
        }
    }

    /// Returns true if the transaction can't commit, and has stayed.
    pub fn is_lost(&self) -> bool {
        self.lost.is_some()
    }

    /// Marks the transaction as lost, and informs every client.
    pub fn lose(&mut self, told: Told, end: End, bytes: u64) {
        self.tell(told, end);
        // Clients that come later hear what the trouble was: the one that met it has ended nothing.
        self.doomed.iter_mut().for_each(|end| end.by = None);
        self.lost = Some(bytes);
        for client in &mut self.clients {
            (client.inside, client.owner, client.ended_it) = (None, false, false);
        }
    }

    /// Informs every client of the end, and, if none may have learned of it, waits for one that ends the
    /// transaction.
    pub fn tell_end(&mut self, told: Told, end: End, signals: &Signals) {
        self.tell(told, end);
        self.clients.iter_mut().for_each(|client| client.inside = None);
        while self.socket.is_some() {
            let fixed = [signals.fd().as_fd()];
            let Ready { fixed: ready, came } = self.wait(&fixed);
            if self.attend(&came, None).is_some() || (ready[0] && ending(signals).is_some()) {
                self.socket = None;
            }
        }
    }

    /// Informs every connected client of the end.
    fn tell(&mut self, told: Told, end: End) {
        let by = match end {
            End::Wanted(Wanted { by, .. }) => Some(by),
            _ => None,
        };
        let mut end = Verdict { told, by, yours: false };
        for client in &self.clients {
            end.yours = client.ended_it;
            // A client that has gone does not need it any more.
            let _ = client.line.say(&Answer::Ended(end.clone()), &[]);
        }
        end.yours = false;
        self.doomed = Some(end);
    }
}

/// Why there is no answer.
enum Unheard {
    /// A fragment.
    Refused(Failure),
    /// The transaction can't go on. All waiting clients learn why.
    Ends(End),
}

/// The work for a question about changes, for a message about an error in it.
const TELLING: &str = "telling what would change";

/// Asks the transaction something, while the commands inside wait.
fn asked<T>(
    kept: &mut Kept,
    doing: &'static str,
    question: impl FnOnce(&mut Transaction<Linux>) -> Verb<Result<T>>,
) -> Result<T, Unheard> {
    let answer = kept.life.ask(question);
    heard(kept, doing, answer)
}

fn heard<T>(kept: &Kept, doing: &'static str, answer: Result<Option<Verb<Result<T>>>>) -> Result<T, Unheard> {
    match answer {
        Ok(Some(Ok(answer))) => answer.map_err(Unheard::Refused),
        Ok(Some(Err(VerbError::Doomed(conflict)))) => Err(Unheard::Ends(End::Conflict(*conflict))),
        Ok(Some(Err(VerbError::Os(e)))) => Err(Unheard::Refused(Failure::new(doing, e).with_step())),
        Ok(None) => Err(Unheard::Ends(End::Alarm)),
        Err(why) if kept.life.serves() => Err(Unheard::Refused(why)),
        Err(_) => Err(Unheard::Ends(End::Alarm)),
    }
}

/// A signal that is to end this process, if one came.
fn ending(signals: &Signals) -> Option<i32> {
    let mut found = None;
    while let Some(arrived) = signals.next() {
        if process::asks_for_an_end(arrived.signal) {
            found = Some(arrived.signal);
        }
    }
    found
}
