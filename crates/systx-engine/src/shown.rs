//! Names and command lines as text for people.
//!
//! Guarantees: what comes out has no control character, no byte that is not UTF-8 and nothing that changes
//! the direction of text, so that a file's name can neither command a terminal nor pass for another line or
//! another name. Does not: shorten.

use core::fmt;

/// Bytes for people: as they are, or between double quotes with escapes as in C, like `git` and `ls --quoting-style=c`.
///
/// `\n`, `\t` and the like; `\"` and `\\`; all else that must not be shown as three octal digits a byte.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a>(pub &'a [u8]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match core::str::from_utf8(self.0) {
            Ok(text) if !text.chars().any(|c| c == '"' || c == '\\' || is_unseen(c)) => f.write_str(text),
            _ => quoted(self.0, f),
        }
    }
}

fn quoted(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str("\"")?;
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '"' | '\\' => write!(f, "\\{c}")?,
                '\n' => f.write_str("\\n")?,
                '\r' => f.write_str("\\r")?,
                '\t' => f.write_str("\\t")?,
                c if is_unseen(c) => octal(c.encode_utf8(&mut [0; 4]).as_bytes(), f)?,
                c => write!(f, "{c}")?,
            }
        }
        octal(chunk.invalid(), f)?;
    }
    f.write_str("\"")
}

fn octal(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "\\{byte:03o}"))
}

/// Returns true if a character acts instead of being seen: C0 and C1 controls, and those that end lines,
/// hide, or reverse text.
fn is_unseen(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(c, '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(bytes: &[u8]) -> String {
        Shown(bytes).to_string()
    }

    #[test]
    fn a_plain_name_is_shown_as_it_is() {
        for plain in ["etc/hosts", "a b", "it's", "Stra\u{df}e/\u{65e5}\u{672c}", "$(x) `y` *"] {
            assert_eq!(shown(plain.as_bytes()), plain);
        }
    }

    #[test]
    fn a_name_that_could_command_a_terminal_is_quoted() {
        assert_eq!(shown(b"\x1b]0;owned\x07"), "\"\\033]0;owned\\007\"");
        assert_eq!(shown(b"a\nsystx: committed"), "\"a\\nsystx: committed\"");
        assert_eq!(shown("\u{9b}2J".as_bytes()), "\"\\302\\2332J\"", "the eight-bit form of ESC [");
        assert_eq!(shown("a\u{202e}txt.exe".as_bytes()), "\"a\\342\\200\\256txt.exe\"");
        assert_eq!(shown(b"\x7f\r\t"), "\"\\177\\r\\t\"");
    }

    #[test]
    fn bytes_that_are_no_text_and_quotes_are_told_apart() {
        assert_eq!(shown(b"\xff\xc3"), "\"\\377\\303\"");
        assert_eq!(shown(b"\"\\377\""), "\"\\\"\\\\377\\\"\"");
    }

    #[test]
    fn whatever_the_bytes_nothing_unseen_comes_out() {
        for n in 0..=0x10ffff_u32 {
            if let Some(c) = char::from_u32(n) {
                let text = shown(c.encode_utf8(&mut [0; 4]).as_bytes());
                assert!(!text.chars().any(is_unseen), "{n:#x}");
            }
        }
    }
}
