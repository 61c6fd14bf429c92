//! The peers outside of its transaction that a command has reached, or tried to reach.
//!
//! Owns: their text for people and for programs. Does not: watch calls ([`crate::network`] does).

use crate::args::Policy;
use crate::words::{put, shown};
use serde_json::{json, Value};

/// This many are named; the others are counted.
const NAMED_MAX: usize = 8;

/// A program, and the peer that it wanted to reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Name of the program.
    pub program: Vec<u8>,
    /// Process of the program.
    pub pid: u32,
    /// Address or path.
    pub to: String,
}

impl Attempt {
    fn text(&self) -> String {
        format!("{} (pid {}) to {}", shown(&self.program), self.pid, self.to)
    }
}

/// The peers that were reached, or were to be.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    policy: Option<Policy>,
    named: Vec<Attempt>,
    others: usize,
}

impl Seen {
    /// Of a policy.
    pub fn new(policy: Option<Policy>) -> Seen {
        Seen { policy, ..Seen::default() }
    }

    /// Adds an attempt; one by the same program to the same address counts once.
    pub fn add(&mut self, attempt: Attempt) {
        let same = |known: &Attempt| known.program == attempt.program && known.to == attempt.to;
        if self.named.iter().any(same) {
            return;
        }
        if self.named.len() < NAMED_MAX {
            self.named.push(attempt)
        } else {
            self.others += 1
        }
    }

    /// Of another try as well.
    pub fn merge(&mut self, other: Seen) {
        self.others += other.others;
        other.named.into_iter().for_each(|attempt| self.add(attempt));
    }

    /// The attempt that ends the transaction.
    pub fn fatal(&self) -> Option<String> {
        self.named.first().filter(|_| self.policy == Some(Policy::Abort)).map(|first| {
            format!(
                "{} (pid {}) wanted to reach {}, which --network abort does not let happen",
                shown(&first.program),
                first.pid,
                first.to
            )
        })
    }

    /// Returns the text for people; `None`: there is nothing to report, or the outcome has it.
    pub fn sentence(&self) -> Option<String> {
        let what = match self.policy {
            Some(Policy::Allow) => "outside of the transaction, and not taken back",
            Some(Policy::Deny) => "denied",
            _ => return None,
        };
        let all: Vec<_> = self.named.iter().map(Attempt::text).collect();
        let more = match self.others {
            0 => String::new(),
            n => format!(", and {n} more"),
        };
        (!all.is_empty()).then(|| format!("{what}: {}{more}.", all.join(", ")))
    }

    /// For programs; null without a policy.
    pub fn json(&self) -> Value {
        let Some(policy) = self.policy else { return Value::Null };
        let policy = match policy {
            Policy::Allow => "allow",
            Policy::Deny => "deny",
            Policy::Abort => "abort",
        };
        let attempt = |attempt: &Attempt| {
            let mut value = json!({ "pid": attempt.pid, "to": attempt.to });
            put(&mut value, "program", &attempt.program);
            value
        };
        let reached: Vec<_> = self.named.iter().map(attempt).collect();
        json!({ "policy": policy, "reached": reached, "more": self.others })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(to: &str) -> Attempt {
        Attempt { program: b"curl".to_vec(), pid: 7, to: to.into() }
    }

    #[test]
    fn the_first_few_are_named_and_the_others_counted() {
        let mut seen = Seen::new(Some(Policy::Allow));
        assert_eq!(seen.sentence(), None);
        seen.add(attempt("10.0.0.1:80"));
        seen.add(attempt("10.0.0.1:80"));
        assert_eq!(
            seen.sentence().unwrap(),
            "outside of the transaction, and not taken back: curl (pid 7) to 10.0.0.1:80."
        );
        (0..20).for_each(|n| seen.add(attempt(&format!("10.0.1.{n}:80"))));
        assert!(seen.sentence().unwrap().ends_with(", and 13 more."));
        let value = seen.json();
        assert_eq!((value["reached"].as_array().unwrap().len(), &value["more"]), (8, &json!(13)));
        assert_eq!(seen.fatal(), None);
    }

    #[test]
    fn without_a_policy_there_is_nothing_to_tell() {
        let seen = Seen::default();
        assert_eq!((seen.sentence(), seen.fatal(), seen.json()), (None, None, Value::Null));
    }

    #[test]
    fn an_attempt_that_ends_the_transaction_is_told_by_its_end() {
        let mut seen = Seen::new(Some(Policy::Abort));
        seen.add(attempt("/run/docker.sock"));
        assert!(seen.fatal().unwrap().starts_with("curl (pid 7) wanted to reach /run/docker.sock,"));
        assert_eq!(seen.sentence(), None);
    }
}
