//! How a run ended: one sentence, one exit code, one line of JSON.
//!
//! Owns: the words and the numbers, as docs/guarantees.md and docs/output.md have them. Guarantees: every ending says on
//! which side of the commit point it is and what to do; a name in a text can't command a terminal. Does not: print.

use crate::network::Seen;
use crate::remedy;
use crate::undo::Overtaken;
use serde::{Deserialize, Serialize};
use serde_json::{json, Value};
use systx_engine::domain::records::COMMAND_BYTES_MAX;
use systx_engine::outcome::{CommitError, Committed, Conflict, Party};
use systx_engine::shown::Shown;
use systx_os::process::Ended;
use systx_os::Errno;

/// Conflict: EX_TEMPFAIL of sysexits.h.
pub const CONFLICT: u8 = 75;
/// Committed with displaced objects.
pub const DISPLACED: u8 = 76;
/// The user does not want it.
pub const DECLINED: u8 = 1;
/// Out of time, as timeout(1) has it.
pub const TOO_LATE: u8 = 124;
/// Our own failure, pending or in doubt.
pub const OURS: u8 = 125;
/// The command can't be executed.
pub const NOT_EXECUTABLE: u8 = 126;
/// The command was not found.
pub const NOT_FOUND: u8 = 127;

/// The transaction that is told about.
#[derive(Clone, Debug)]
pub struct Ours {
    /// Its number, once it has one.
    pub id: Option<u64>,
    /// Its process.
    pub pid: u32,
    /// Its command.
    pub command: Vec<u8>,
    /// Whether it stays open over several commands.
    pub kept: bool,
    /// Whether it is inside of another one.
    pub sub: bool,
}

impl Ours {
    /// The transaction of this process.
    pub fn new(id: Option<u64>, command: &[std::ffi::OsString]) -> Ours {
        let words: Vec<_> = command.iter().map(|word| word.as_encoded_bytes()).collect();
        Ours { id, pid: std::process::id(), command: words.join(&b' '), kept: false, sub: false }
    }

    /// As a sentence begins with it; the other party's command is cut off at the same length.
    fn text(&self) -> String {
        let command = shown(&self.command[..self.command.len().min(COMMAND_BYTES_MAX)]);
        match self.id {
            Some(id) => format!("Transaction {id} (pid {}: {command})", self.pid),
            None => format!("This transaction (pid {}: {command})", self.pid),
        }
    }

    fn json(&self) -> Value {
        party_json(self.id, self.pid, &self.command)
    }
}

/// An ending in words, as one process tells it another one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Told {
    /// Exit code.
    pub code: u8,
    /// Whether there is nothing to say unless asked.
    pub plain: bool,
    /// What happened.
    pub sentence: String,
    /// Something else that somebody should look at.
    pub warning: Option<String>,
    /// Whom the command has reached outside, or would have.
    pub outside: Option<String>,
    /// The outcome for programs.
    pub json: Value,
}

impl Told {
    /// The words of an ending.
    pub fn new(ending: &Ending, ours: &Ours) -> Told {
        Told {
            code: ending.code(),
            plain: ending.is_plain_success(),
            sentence: ending.sentence(ours),
            warning: ending.warning().map(str::to_string),
            outside: None,
            json: ending.json(ours),
        }
    }

    /// The end that somebody else has given the transaction, for who wanted to end it himself.
    pub fn by_another(self, by: &[u8]) -> Told {
        let sentence = format!("the transaction was ended by {}: {}", shown(by), self.sentence);
        let mut json = json!({ "outcome": "ended", "status": OURS, "message": sentence, "end": self.json });
        put(&mut json, "by", by);
        Told { code: OURS, plain: false, sentence, warning: None, outside: self.outside, json }
    }

    /// With what the command has reached.
    pub fn having(mut self, seen: &Seen) -> Told {
        self.outside = seen.sentence();
        let json = seen.json();
        if !json.is_null() {
            self.json["outside"] = json;
        }
        self
    }
}

/// A change that was given up.
#[derive(Clone, Debug)]
pub struct Discarded {
    /// For people, without its end.
    pub line: String,
    /// For programs.
    pub value: Value,
}

/// What is said of a transaction that is in no other one, and of one that is.
const SUB_WORDS: [(&str, &str); 5] = [
    ("aborted, nothing happened", "undone, the outer transaction goes on"),
    ("committed: all changes are in place.", "committed: all changes are part of the outer transaction."),
    (
        "The next systx command here, a boot or a login with hooks finishes it; `systx recover` does it now.",
        "The next subtransaction finishes it, or the end of the outer transaction, which can't commit before.",
    ),
    (
        "Run `systx recover` to learn whether it is committed; don't run the command again before.",
        "The outer transaction finishes it, or can't commit.",
    ),
    (
        "Look at them, then remove them with `systx prune`.",
        "At the end of the outer transaction they are in the directory that this one has served, as systx-displaced.1 and so on.",
    ),
];

/// As many of them are told in words.
const DISCARDED_LINES_MAX: usize = 100;

/// How a run ended.
#[derive(Clone, Debug)]
pub enum Ending {
    /// The command is past the commit point. It ended with this status: 0, or whatever was to be committed, too.
    Committed(Committed, u8),
    /// The part of an open transaction that was asked for is past the commit point; the rest is given up.
    Part(Committed, Vec<Discarded>),
    /// So many changes were told and not committed, as was asked for: nothing happened. The command's status.
    DryRun(usize, u8),
    /// The command failed: nothing happened.
    Aborted(Ended),
    /// It ended so, but its output could not be written.
    Mute(Box<Ending>, String),
    /// The user said so: nothing happened.
    Declined,
    /// An open transaction was to be aborted: nothing happened.
    Discarded,
    /// An open transaction had so much time, in the user's words: nothing happened.
    Expired(String),
    /// The process that kept an open transaction was ended by this signal: nothing happened.
    KeeperEnded(i32),
    /// The process that kept an open transaction was killed; whether it is committed, by somebody else, as far as that is known.
    KeeperKilled(Option<bool>),
    /// An open transaction could not commit, for the reason of this ending, but what was done in it stays to be looked at.
    Lost(Box<Ending>),
    /// Who an open transaction was for, the process with this number, went without a word: nothing happened.
    Left(u32),
    /// The command ended so, and the transaction stays open: nothing happened yet.
    Open(Ended),
    /// It had so much time, in the user's words, and was killed: nothing happened.
    TooLate(String),
    /// It would have reached what is outside, as these words tell, and was killed: nothing happened.
    Outside(String),
    /// The command was not started, by this error and with this exit code: nothing happened.
    NotStarted(String, u8),
    /// A conflict ended it while it ran, or at its commit: nothing happened.
    Conflict(Conflict),
    /// The commit failed, or its fate is unknown.
    NotCommitted(CommitError),
    /// What was to be undone has changed since: nothing happened.
    Overtaken(Box<Overtaken>),
    /// We failed before the commit: nothing happened.
    Failed(String),
}

impl From<CommitError> for Ending {
    fn from(error: CommitError) -> Ending {
        match error {
            CommitError::Conflict(conflict) => Ending::Conflict(*conflict),
            other => Ending::NotCommitted(other),
        }
    }
}

impl Ending {
    /// Exit code of `systx run`.
    pub fn code(&self) -> u8 {
        match self {
            Ending::Committed(c, _) if c.pending.is_some() => OURS,
            Ending::Committed(c, _) if !c.displaced.is_empty() => DISPLACED,
            Ending::Committed(_, status) | Ending::DryRun(_, status) => *status,
            Ending::Part(c, _) => Ending::Committed(c.clone(), 0).code(),
            Ending::Aborted(ended) | Ending::Open(ended) => ended.code(),
            Ending::Discarded => 0,
            Ending::Declined => DECLINED,
            Ending::TooLate(_) | Ending::Expired(_) => TOO_LATE,
            Ending::NotStarted(_, code) => *code,
            Ending::Conflict(_) | Ending::Overtaken(_) => CONFLICT,
            Ending::NotCommitted(_) | Ending::Failed(_) | Ending::Mute(..) | Ending::Outside(_) => OURS,
            Ending::KeeperEnded(_) | Ending::KeeperKilled(_) | Ending::Left(_) => OURS,
            Ending::Lost(why) => why.code(),
        }
    }

    /// Whether there is nothing to say unless asked.
    pub fn is_plain_success(&self) -> bool {
        matches!(self, Ending::Committed(..) | Ending::Discarded) && self.code() == 0
    }

    /// Something else that somebody should look at.
    pub fn warning(&self) -> Option<&str> {
        match self {
            Ending::Committed(c, _) | Ending::Part(c, _) => c.warning.as_deref(),
            Ending::Mute(ending, _) => ending.warning(),
            _ => None,
        }
    }

    /// What happened, on which side of the commit point, and what to do; without the leading `systx: `.
    pub fn sentence(&self, ours: &Ours) -> String {
        let sentence = self.sentence_of_one(ours);
        match ours.sub {
            true => SUB_WORDS.iter().fold(sentence, |text, (alone, inside)| text.replacen(alone, inside, 1)),
            false => sentence,
        }
    }

    fn sentence_of_one(&self, ours: &Ours) -> String {
        match self {
            Ending::Committed(Committed { pending: Some(why), .. }, _) => format!(
                "committed, publication pending: {why}. The next systx command here, a boot or a login with hooks finishes it; `systx recover` does it now."
            ),
            Ending::Committed(c, _) if !c.displaced.is_empty() => displaced(c),
            Ending::Committed(c, 0) if c.steps == 0 => "committed; there was nothing to change.".into(),
            Ending::Committed(_, 0) => "committed: all changes are in place.".into(),
            Ending::Committed(_, status) => {
                format!("committed, as was asked for, though the command exited with status {status}.")
            }
            Ending::Part(c, rest) => {
                let done = match c.pending.is_some() || !c.displaced.is_empty() {
                    true => Ending::Committed(c.clone(), 0).sentence(ours),
                    false => "committed: what was chosen is in place.".into(),
                };
                format!("{done} {}", discarded(rest))
            }
            Ending::Mute(ending, why) => format!(
                "{} Its output could not be written: {why}. What is missing of it is lost; the changes are there, so don't run the command again for it.",
                ending.sentence(ours)
            ),
            Ending::Declined | Ending::Discarded => "aborted, nothing happened.".into(),
            Ending::Expired(time) => format!(
                "aborted, nothing happened: the transaction was still open after {time}. Give it more with --timeout, or none."
            ),
            Ending::KeeperEnded(signal) => {
                format!("aborted, nothing happened: its keeper (pid {}) was ended by signal {signal}.", ours.pid)
            }
            Ending::KeeperKilled(committed) => {
                let id = ours.id.unwrap_or_default();
                match committed {
                    Some(true) => format!("transaction {id} is committed from another terminal: its keeper was killed thereafter."),
                    Some(false) => format!("transaction {id} is aborted, nothing happened: its keeper was killed, and what ran in it."),
                    None => format!("in doubt: the keeper of transaction {id} was killed. Nothing happened, unless somebody was just committing it."),
                }
            }
            Ending::Lost(why) => {
                let id = ours.id.unwrap_or_default();
                let why = match &**why {
                    Ending::Conflict(conflict) => format!("{conflict}."),
                    why => why.sentence(ours).replacen("aborted, nothing happened: ", "", 1),
                };
                format!(
                    "{why} {} is lost: it can't be committed, nothing happened. What was done in it stays: `systx diff {id} -p` shows it, `systx exec {id}` goes in to look, `systx abort {id}` discards it.",
                    ours.text()
                )
            }
            Ending::Left(pid) => format!("aborted, nothing happened: the systx that it was for (pid {pid}) is gone."),
            Ending::Open(_) => {
                let id = ours.id.unwrap_or_default();
                format!(
"nothing happened yet: transaction {id} stays open until `systx commit {id}` or `systx abort {id}`; see `systx diff {id}`, and go on with `systx exec {id}`."
                )
            }
            Ending::TooLate(time) => format!(
                "aborted, nothing happened: the command had not ended after {time}. Give it more with --timeout, or none."
            ),
            Ending::Outside(why) => format!(
                "aborted, nothing happened: {why}. Allow it with --network allow, or go on without it by --network deny."
            ),
            Ending::DryRun(0, _) => "dry run, nothing happened: there is nothing to commit.".into(),
            Ending::DryRun(1, _) => "dry run, nothing happened: 1 change is not committed.".into(),
            Ending::DryRun(count, _) => format!("dry run, nothing happened: {count} changes are not committed."),
            Ending::Aborted(Ended::Exited(status)) => {
                format!("aborted, nothing happened: the command exited with status {status}.")
            }
            Ending::Aborted(Ended::Signaled(signal)) => {
                format!("aborted, nothing happened: the command was killed by signal {signal}.")
            }
            Ending::NotStarted(why, _) | Ending::Failed(why) => format!("aborted, nothing happened: {why}."),
            Ending::Conflict(c) => {
                let again = match ours.kept {
                    true => "Begin again, and repeat what it did",
                    false => "Run again, or use --retry",
                };
                format!("{c}. {} is aborted, nothing happened. {again}.", ours.text())
            }
            Ending::Overtaken(why) => why.sentence(),
            Ending::NotCommitted(e @ CommitError::InDoubt { .. }) => {
                format!("{e}. Run `systx recover` to learn whether it is committed; don't run the command again before.")
            }
            Ending::NotCommitted(e) => {
                let step = match e {
                    CommitError::Failed { error: Errno::AGAIN, path, .. } if !path.is_empty() => {
                        "; a program holds a lease on it and does not give it back: /proc/locks shows its process".into()
                    }
                    CommitError::Failed { error, .. } => remedy::and_step(*error),
                    _ => String::new(),
                };
                format!("aborted, nothing happened: {e}{step}.")
            }
        }
    }

    /// The outcome for programs.
    pub fn json(&self, ours: &Ours) -> Value {
        if let Ending::Mute(ending, why) = self {
            let mut value = ending.json(ours);
            value["status"] = self.code().into();
            value["message"] = self.sentence(ours).into();
            value["output_lost"] = why.as_str().into();
            return value;
        }
        if let Ending::Lost(why) = self {
            let mut value = why.json(ours);
            value["reason"] = value["outcome"].take();
            value["outcome"] = "lost".into();
            value["message"] = self.sentence(ours).into();
            return value;
        }
        if let Ending::Part(c, rest) = self {
            let mut value = Ending::Committed(c.clone(), 0).json(ours);
            value["message"] = self.sentence(ours).into();
            value["discarded"] = rest.iter().map(|one| one.value.clone()).collect();
            return value;
        }
        let outcome = match self {
            Ending::Committed(c, _) if c.pending.is_some() => "pending",
            Ending::Committed(c, _) if !c.displaced.is_empty() => "displaced",
            Ending::Committed(..) | Ending::Part(..) | Ending::Mute(..) => "committed",
            Ending::TooLate(_) | Ending::Expired(_) => "timed-out",
            Ending::Open(_) => "open",
            Ending::DryRun(..) => "dry-run",
            Ending::Aborted(_) | Ending::Declined | Ending::Discarded => "aborted",
            Ending::KeeperEnded(_) | Ending::Left(_) | Ending::KeeperKilled(Some(false)) => "aborted",
            Ending::Lost(_) => "lost",
            Ending::KeeperKilled(Some(true)) => "committed",
            Ending::KeeperKilled(None) => "in-doubt",
            Ending::Outside(_) => "outside",
            Ending::NotStarted(..) => "not-started",
            Ending::Conflict(_) => "conflict",
            Ending::Overtaken(_) => "overtaken",
            Ending::NotCommitted(CommitError::InDoubt { .. }) => "in-doubt",
            Ending::NotCommitted(_) | Ending::Failed(_) => "failed",
        };
        let mut value = json!({ "outcome": outcome, "status": self.code(), "message": self.sentence(ours), "pid": ours.pid });
        if ours.sub {
            value["sub"] = true.into();
        }
        if let Some(id) = ours.id {
            value["id"] = id.into();
        }
        match self {
            Ending::Committed(c, status) => {
                value["steps"] = c.steps.into();
                if *status != 0 {
                    value["exit"] = (*status).into();
                }
                if let Some(warning) = &c.warning {
                    value["warning"] = warning.as_str().into();
                }
                value["displaced"] = c.displaced.iter().map(displaced_json).collect();
            }
            Ending::DryRun(_, status) => value["exit"] = (*status).into(),
            Ending::Aborted(Ended::Exited(status)) | Ending::Open(Ended::Exited(status)) => {
                value["exit"] = (*status).into()
            }
            Ending::Aborted(Ended::Signaled(signal)) | Ending::Open(Ended::Signaled(signal)) => {
                value["signal"] = (*signal).into()
            }
            Ending::Conflict(c) => {
                let with = match &c.with {
                    Party::Transaction { id, pid, command } => party_json(Some(id.0), *pid, command),
                    Party::Outsider => json!("outsider"),
                    _ => json!("unknown"),
                };
                let mut conflict = json!({ "what": c.what, "with": with, "ours": ours.json() });
                put(&mut conflict, "path", &c.path);
                value["conflict"] = conflict;
            }
            Ending::Overtaken(why) => value["overtaken"] = why.json(),
            _ => {}
        }
        value
    }
}

fn displaced(c: &Committed) -> String {
    let count = c.displaced.len();
    let mut text = format!("committed, {count} object{} displaced:", if count == 1 { "" } else { "s" });
    for d in &c.displaced {
        text += &format!("\n  {}: {}", shown(&d.path), d.what);
        if let Some(aside) = &d.aside {
            text += &format!("; kept as aside/{aside} in the area");
        }
    }
    text + "\nLook at them, then remove them with `systx prune`."
}

fn discarded(rest: &[Discarded]) -> String {
    let mut text = match rest.len() {
        1 => "Discarded is 1 other change:".to_string(),
        count => format!("Discarded are {count} other changes:"),
    };
    for one in rest.iter().take(DISCARDED_LINES_MAX) {
        text += &format!("\n  {}", one.line);
    }
    match rest.len().saturating_sub(DISCARDED_LINES_MAX) {
        0 => text,
        more => text + &format!("\n  and {more} more, which --json would have named."),
    }
}

/// One displaced object for programs.
pub fn displaced_json(d: &systx_engine::outcome::Displaced) -> Value {
    let mut value = json!({ "aside": d.aside, "what": d.what });
    put(&mut value, "path", &d.path);
    value
}

fn party_json(id: Option<u64>, pid: u32, command: &[u8]) -> Value {
    let mut value = json!({ "transaction": id, "pid": (pid != 0).then_some(pid) });
    put(&mut value, "command", command);
    value
}

/// What the kernel says, without its number.
pub fn os_words(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_string()
}

/// A name or a command line for people.
pub fn shown(bytes: &[u8]) -> String {
    Shown(bytes).to_string()
}

/// The same for programs: `key`, and where that is not all of it, since JSON has text only, the bytes as `key_hex`.
pub fn put(value: &mut Value, key: &str, bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    value[key] = text.as_ref().into();
    if text.as_bytes() != bytes {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        value[format!("{key}_hex")] = hex.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use systx_engine::id::TxId;
    use systx_engine::outcome::Displaced;

    fn ours() -> Ours {
        Ours { id: Some(815), pid: 77, command: b"make install".to_vec(), kept: false, sub: false }
    }

    fn conflict() -> Ending {
        let with = Party::Transaction { id: TxId(812), pid: 4410, command: b"sed -i".to_vec() };
        Ending::Conflict(Conflict { path: b"etc/hosts".to_vec(), what: "contents changed", with })
    }

    fn overtaken() -> Overtaken {
        Overtaken { id: 1, undone_by: Some(2), obstacles: Vec::new(), later: Vec::new() }
    }

    #[test]
    fn exit_codes_are_those_of_the_contract() {
        let displaced = vec![Displaced { path: b"a".to_vec(), aside: None, what: "was replaced" }];
        let committed = Committed { steps: 3, displaced, ..Committed::default() };
        assert_eq!(Ending::Committed(Committed::default(), 0).code(), 0);
        assert_eq!(Ending::Committed(Committed::default(), 3).code(), 3);
        assert_eq!(Ending::TooLate("5m".into()).code(), 124);
        assert_eq!(Ending::Outside("curl wanted to".into()).code(), 125);
        assert_eq!(Ending::Committed(committed.clone(), 3).code(), 76);
        assert_eq!(
            Ending::Committed(Committed { pending: Some("disk full".into()), ..committed }, 3).code(),
            125
        );
        assert_eq!(Ending::Aborted(Ended::Exited(7)).code(), 7);
        assert_eq!(Ending::Aborted(Ended::Signaled(9)).code(), 137);
        assert_eq!(conflict().code(), 75);
        assert_eq!(Ending::Overtaken(Box::new(overtaken())).code(), 75);
        assert_eq!(Ending::from(CommitError::InDoubt { error: systx_os::Errno::IO }).code(), 125);
    }

    #[test]
    fn every_ending_says_on_which_side_of_the_commit_point_it_is() {
        let endings = [
            Ending::Committed(Committed::default(), 0),
            Ending::Committed(Committed::default(), 1),
            Ending::Committed(Committed { pending: Some("no space".into()), ..Default::default() }, 0),
            Ending::Mute(Box::new(Ending::Committed(Committed::default(), 0)), "disk full".into()),
            Ending::Declined,
            Ending::Discarded,
            Ending::Expired("1h".into()),
            Ending::KeeperEnded(15),
            Ending::Lost(Box::new(conflict())),
            Ending::Lost(Box::new(Ending::Failed("no room".into()))),
            Ending::KeeperKilled(None),
            Ending::KeeperKilled(Some(true)),
            Ending::KeeperKilled(Some(false)),
            Ending::Left(7),
            Ending::Open(Ended::Exited(0)),
            Ending::TooLate("1.5".into()),
            Ending::Outside("curl wanted to".into()),
            Ending::DryRun(2, 0),
            Ending::Aborted(Ended::Exited(1)),
            Ending::Aborted(Ended::Signaled(15)),
            Ending::NotStarted("x: not found".into(), 127),
            conflict(),
            Ending::Overtaken(Box::new(overtaken())),
            Ending::NotCommitted(CommitError::Refused("an open writer".into())),
            Ending::NotCommitted(CommitError::InDoubt { error: systx_os::Errno::IO }),
            Ending::Failed("no /dev/fuse".into()),
        ];
        for ending in endings {
            let text = ending.sentence(&ours());
            let sides = ["nothing happened", "committed", "in doubt"];
            assert!(sides.iter().any(|side| text.contains(side)), "{text}");
            assert!(text.ends_with('.'), "{text}");
        }
    }

    #[test]
    fn a_conflict_names_the_path_and_both_parties_in_words_and_in_json() {
        assert_eq!(
            conflict().sentence(&ours()),
            "conflict on etc/hosts: contents changed by transaction 812 (pid 4410: sed -i). \
            Transaction 815 (pid 77: make install) is aborted, nothing happened. Run again, or use --retry."
        );
        let value = conflict().json(&ours());
        let party = |id, pid, command| json!({ "transaction": id, "pid": pid, "command": command });
        assert_eq!(value["conflict"]["with"], party(812, 4410, "sed -i"));
        assert_eq!(value["conflict"]["ours"], party(815, 77, "make install"));
        assert_eq!((value["id"].as_u64(), value["outcome"].as_str()), (Some(815), Some("conflict")));
        assert!(value["conflict"].get("path_hex").is_none());
    }

    #[test]
    fn who_is_not_known_is_not_blamed() {
        let with = Party::Unknown;
        let ending = Ending::Conflict(Conflict { path: b"a".to_vec(), what: "contents changed", with });
        let text = ending.sentence(&ours());
        assert!(text.contains("another transaction or a program outside of any"), "{text}");
        assert_eq!(ending.json(&ours())["conflict"]["with"], "unknown");
    }

    #[test]
    fn a_party_of_an_earlier_boot_has_no_process() {
        let with = Party::Transaction { id: TxId(7), pid: 0, command: Vec::new() };
        let what = "held (prepared, not decided yet)";
        let ending = Ending::Conflict(Conflict { path: b"a".to_vec(), what, with });
        let text = ending.sentence(&ours());
        assert!(
            text.starts_with("conflict on a: held (prepared, not decided yet) by transaction 7. "),
            "{text}"
        );
        assert!(ending.json(&ours())["conflict"]["with"]["pid"].is_null());
    }

    #[test]
    fn of_a_transaction_in_another_one_nothing_is_said_to_be_settled() {
        let inner = Ours { sub: true, ..ours() };
        let committed = |pending: Option<&str>| {
            let done = Committed { pending: pending.map(str::to_string), ..Committed::default() };
            Ending::Committed(Committed { steps: 1, ..done }, 0)
        };
        let doubt = Ending::NotCommitted(CommitError::InDoubt { error: systx_os::Errno::IO });
        for ending in [
            committed(None),
            committed(Some("no room")),
            Ending::Committed(
                Committed {
                    displaced: vec![Displaced { path: b"a".to_vec(), aside: None, what: "was replaced" }],
                    ..Committed::default()
                },
                0,
            ),
            doubt,
            Ending::Aborted(Ended::Exited(3)),
            Ending::Declined,
            Ending::Failed("why".into()),
        ] {
            let (alone, inside) = (ending.sentence(&ours()), ending.sentence(&inner));
            assert_ne!(alone, inside);
            for wrong in ["nothing happened", "in place", "systx recover", "systx prune"] {
                assert!(!inside.contains(wrong), "{inside}");
            }
            assert_eq!(ending.json(&inner)["sub"], true);
            assert!(ending.json(&ours()).get("sub").is_none());
        }
    }

    #[test]
    fn a_name_keeps_its_bytes_in_json_and_its_lines_in_words() {
        let displaced = Displaced { path: b"/a\n\x1b[2J\xff".to_vec(), aside: None, what: "was replaced" };
        let value = displaced_json(&displaced);
        assert_eq!(value["path_hex"], "2f610a1b5b324aff");
        assert!(!value.to_string().contains(|c: char| c.is_control()));
        let ending =
            Ending::Committed(Committed { steps: 1, displaced: vec![displaced], ..Committed::default() }, 0);
        let text = ending.sentence(&ours());
        assert!(text.contains("\n  \"/a\\n\\033[2J\\377\": was replaced"), "{text}");
    }

    #[test]
    fn a_commit_that_failed_on_a_full_disk_says_what_to_do() {
        let error = systx_os::Errno::NOSPC;
        let ending =
            Ending::NotCommitted(CommitError::Failed { doing: "reserving space", path: Vec::new(), error });
        let text = ending.sentence(&Ours::new(None, &[]));
        assert!(text.starts_with("aborted, nothing happened: reserving space: No space left"), "{text}");
        assert!(text.ends_with("; make room on that file system."), "{text}");
    }
}
