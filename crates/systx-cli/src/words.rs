//! Bytes from outside as text: names and command lines; and how much text there is.
//!
//! Owns: the one way to show them. Guarantees: a name in a text can't command a terminal, and JSON loses no
//! byte of it. Does not: say what to do about an error ([`crate::hint`] does).

use serde_json::Value;
use systx_engine::shown::Shown;

/// How much is said on standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Voice {
    /// Standard error is for programs: nothing that is not asked for.
    pub json: bool,
    /// More than how it ended.
    pub verbose: bool,
}

/// Returns a name or a command line for people.
pub fn shown(bytes: &[u8]) -> String {
    Shown(bytes).to_string()
}

/// Puts bytes into `value` under `key`, and, where JSON's text is not all of them, in hexadecimal under `key_hex`.
pub fn put(value: &mut Value, key: &str, bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    value[key] = text.as_ref().into();
    if text.as_bytes() != bytes {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        value[format!("{key}_hex")] = hex.into();
    }
}
