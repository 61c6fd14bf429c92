//! An ending for programs: one line of JSON, as docs/output.md has it.

use super::{Ending, Ours};
use crate::words::put;
use serde_json::{json, Value};
use systx_engine::outcome::{CommitError, Conflict, Party};
use systx_os::process::Ended;

impl Ours {
    fn json(&self) -> Value {
        party_json(self.id, self.pid, &self.command)
    }
}

impl Ending {
    /// The outcome for programs.
    pub fn json(&self, ours: &Ours) -> Value {
        if let Ending::Mute(ending, why) = self {
            let mut value = ending.json(ours);
            value["status"] = self.code().into();
            value["message"] = self.sentence(ours).into();
            value["output_lost"] = why.to_string().into();
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
            Ending::Committed(c, _) if !c.conflict_copies.is_empty() => "displaced",
            Ending::Committed(..) | Ending::Part(..) | Ending::Mute(..) => "committed",
            Ending::TooLate(_) | Ending::Expired(_) => "timed-out",
            Ending::Open(_) => "open",
            Ending::DryRun(..) => "dry-run",
            Ending::Aborted(_) | Ending::Declined | Ending::Discarded => "aborted",
            Ending::DaemonEnded(_) | Ending::Left(_) | Ending::DaemonKilled(Some(false)) => "aborted",
            Ending::Lost(_) => "lost",
            Ending::DaemonKilled(Some(true)) => "committed",
            Ending::DaemonKilled(None) => "in-doubt",
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
                value["displaced"] = c.conflict_copies.iter().map(conflict_copy_json).collect();
            }
            Ending::DryRun(_, status) => value["exit"] = (*status).into(),
            Ending::Aborted(Ended::Exited(status)) | Ending::Open(Ended::Exited(status)) => {
                value["exit"] = (*status).into()
            }
            Ending::Aborted(Ended::Signaled(signal)) | Ending::Open(Ended::Signaled(signal)) => {
                value["signal"] = (*signal).into()
            }
            Ending::Conflict(c) => {
                value["conflict"] = conflict_json(c);
                value["conflict"]["ours"] = ours.json();
            }
            Ending::Overtaken(why) => value["overtaken"] = why.json(),
            _ => {}
        }
        value
    }
}

/// One conflict for programs.
pub fn conflict_json(conflict: &Conflict) -> Value {
    let with = match &conflict.with {
        Party::Transaction { id, pid, command } => party_json(Some(id.0), *pid, command),
        Party::Outsider => json!("outsider"),
        _ => json!("unknown"),
    };
    let mut value = json!({ "what": conflict.what.fragment(), "code": conflict.what.code(), "with": with });
    put(&mut value, "path", &conflict.path);
    value
}

/// One displaced object for programs.
pub fn conflict_copy_json(d: &systx_engine::outcome::ConflictCopy) -> Value {
    let mut value = json!({ "aside": d.aside, "what": d.what.fragment(), "code": d.what.code() });
    put(&mut value, "path", &d.path);
    value
}

fn party_json(id: Option<u64>, pid: u32, command: &[u8]) -> Value {
    let mut value = json!({ "transaction": id, "pid": (pid != 0).then_some(pid) });
    put(&mut value, "command", command);
    value
}
