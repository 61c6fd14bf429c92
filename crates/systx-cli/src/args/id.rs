//! How a user says which transaction is meant.
//!
//! Owns: the words for one. Guarantees: a name can't be taken for a number, an option, or another way to say it. Does
//! not: look for the transaction.

use crate::failure::Failure;
use std::fmt;

/// Longest name, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// A transaction, in the words of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Id {
    /// By its number.
    Number(u64),
    /// The one before so many newer ones.
    Back(usize),
    /// By its name.
    Name(String),
}

impl Id {
    /// Reads the words for an open transaction.
    pub fn of_open(text: &str) -> Result<Id, Failure> {
        Id::of_committed(text).or_else(|_| name(text).map(Id::Name)).map_err(|_| {
            "a number that `systx list` shows, a name of `systx begin --name`, or @ for the newest, @1 for the one before it".into()
        })
    }

    /// Reads the words for a committed transaction, which has no name.
    pub fn of_committed(text: &str) -> Result<Id, Failure> {
        let back = if text == "last" { Some("") } else { text.strip_prefix('@') };
        let read = match back {
            Some("") => Some(Id::Back(0)),
            Some(back) if is_number(back) => back.parse().ok().map(Id::Back),
            None if is_number(text) => text.parse().ok().map(Id::Number),
            _ => None,
        };
        read.ok_or_else(|| {
            "a number that `systx log` shows, or @ for the newest, @1 for the one before it".into()
        })
    }
}

/// A transaction by its number.
#[derive(Clone, Copy, Debug)]
pub struct Number {
    /// The number.
    pub id: u64,
    /// Process that runs or keeps it, where several file systems may have one of that number.
    pub pid: Option<u32>,
}

impl Number {
    /// Returns true if it is this one.
    pub fn is(self, id: u64, pid: u32) -> bool {
        self.id == id && self.pid.is_none_or(|wanted| wanted == pid)
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Id::Number(id) => write!(f, "{id}"),
            Id::Back(0) => f.write_str("@"),
            Id::Back(n) => write!(f, "@{n}"),
            Id::Name(name) => f.write_str(name),
        }
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Reads a name that a transaction may have.
pub fn name(text: &str) -> Result<String, Failure> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let is_name = (1..=NAME_BYTES_MAX).contains(&text.len())
        && text.bytes().all(plain)
        && !text.starts_with('-')
        && !is_number(text)
        && text != "last";
    if is_name {
        Ok(text.to_string())
    } else {
        Err("a name has 1 to 64 letters, digits, dots, _ and -, not digits alone and no - in front; and `last` is none".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_a_number_a_name_or_how_many_are_newer() {
        let open = |text| Id::of_open(text).ok();
        assert_eq!(open("12"), Some(Id::Number(12)));
        assert_eq!(
            (open("@"), open("last"), open("@0")),
            (Some(Id::Back(0)), Some(Id::Back(0)), Some(Id::Back(0)))
        );
        assert_eq!(open("@17"), Some(Id::Back(17)));
        for name in ["a", "12a", "1.2", "-", "_", "Deploy-2.x", "lasts", "a@"] {
            let expected = (name != "-" && name != "a@").then(|| Id::Name(name.into()));
            assert_eq!(open(name), expected, "{name}");
        }
        let longest = "n".repeat(64);
        assert_eq!(open(&longest), Some(Id::Name(longest.clone())));
        for wrong in
            ["", "@x", "@-1", "-1", "+1", "a b", "a/b", "ä", "99999999999999999999", &format!("{longest}n")]
        {
            assert_eq!(open(wrong), None, "{wrong}");
        }
        assert_eq!(Id::of_committed("@2"), Ok(Id::Back(2)));
        assert!(Id::of_committed("name").is_err() && Id::of_committed("--").is_err());
        assert!(name("last").is_err() && name("12").is_err() && name("--").is_err());
    }
}
