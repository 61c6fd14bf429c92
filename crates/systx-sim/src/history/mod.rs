//! Judges a recorded history of transactions over append-only lists, in the manner of Elle's list-append.
//!
//! Owns the history ([`History`], its text form in [`text`]) and the verdict ([`check()`]). Lists are the right
//! object: a read shows every append before it and their order, so the order of versions needs no guess and
//! each dependency between transactions can be named. Guarantees: whatever is reported is an anomaly in every
//! explanation of the history, with the cycle or the values as evidence; time and memory are linear in the
//! size of the input but for the search for cycles to show, which is bounded. Does not do: prove a history
//! right (it finds what the reads reveal: many reads, few keys and a final state of every list reveal most),
//! predicates, or anything but appends and whole reads.
//!
//! Adya's classes, from worst to mildest; each cycle is reported in the worst class that a part of it has:
//!
//! | class | meaning |
//! |---|---|
//! | G0 | cycle of overwritings alone |
//! | G1a, G1b | an aborted, an intermediate value was read |
//! | G1c | cycle of overwritings and reads |
//! | G-single | the same with exactly one anti-dependency (lost update, read skew) |
//! | G2 | with several (write skew) |
//! | …-realtime | the cycle closes only because one transaction returned before another began |

mod check;
mod graph;
pub mod text;
mod versions;

use std::collections::BTreeMap;
use std::fmt;

pub use check::{check, check_with};
pub use versions::Reads;

/// An element of a list. Every append of a history must append a value of its own to its key.
pub type Value = u64;

/// One call inside a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Appends `value` to the list at `key`.
    Append {
        /// Which list.
        key: String,
        /// Unique within the list.
        value: Value,
    },
    /// Reads the whole list at `key`.
    Read {
        /// Which list.
        key: String,
        /// List that the read returned.
        list: Vec<Value>,
    },
}

/// How a transaction ended, as far as its process knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Commit returned.
    Committed,
    /// Reported as aborted: nothing was changed.
    Aborted,
    /// Killed, cut off or in doubt: all or nothing of it may be there.
    Unknown,
}

/// One transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// Process that ran it; with `id` the transaction's name.
    pub process: u64,
    /// Unique within the process.
    pub id: u64,
    /// When it began. Any unit, one clock for all processes.
    pub invoke: u64,
    /// When its end was known; `None` if it never was.
    pub complete: Option<u64>,
    /// Outcome.
    pub outcome: Outcome,
    /// Calls, in order.
    pub ops: Vec<Op>,
}

impl Transaction {
    /// The name used in explanations.
    pub fn name(&self) -> String {
        format!("T{}.{}", self.process, self.id)
    }
}

/// Everything that was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// In any order.
    pub transactions: Vec<Transaction>,
    /// The lists as they are after everybody has ended. A key that is missing here is not checked for lost appends.
    pub finals: BTreeMap<String, Vec<Value>>,
}

/// Class of an anomaly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)] // The table above and `Display` say what each is.
pub enum Class {
    /// A value was appended twice, or stands twice in a list.
    DuplicateAppend,
    /// A value that no transaction appended.
    Unborn,
    /// A transaction does not see its own appends, or the same list twice.
    Internal,
    /// Two reads of a list of which neither is a prefix of the other.
    IncompatibleOrder,
    /// A committed append is not in the final list.
    LostAppend,
    /// Of a transaction with unknown outcome some appends are there and some are not.
    Torn,
    G1a,
    G1b,
    G0,
    G1c,
    GSingle,
    G2,
    G0Realtime,
    G1cRealtime,
    GSingleRealtime,
    G2Realtime,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Class::DuplicateAppend => "duplicate append",
            Class::Unborn => "unborn value",
            Class::Internal => "internal inconsistency",
            Class::IncompatibleOrder => "incompatible order",
            Class::LostAppend => "lost append",
            Class::Torn => "torn transaction",
            Class::G1a => "G1a (aborted read)",
            Class::G1b => "G1b (intermediate read)",
            Class::G0 => "G0 (write cycle)",
            Class::G1c => "G1c (circular information flow)",
            Class::GSingle => "G-single (single anti-dependency cycle)",
            Class::G2 => "G2 (anti-dependency cycle)",
            Class::G0Realtime => "G0-realtime",
            Class::G1cRealtime => "G1c-realtime",
            Class::GSingleRealtime => "G-single-realtime",
            Class::G2Realtime => "G2-realtime",
        })
    }
}

/// A proof that the history has no serial explanation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anomaly {
    /// Class of the anomaly.
    pub class: Class,
    /// Why, in sentences.
    pub explanation: String,
}

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.class, self.explanation)
    }
}
