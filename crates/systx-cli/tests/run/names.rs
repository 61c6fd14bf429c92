//! Names that are no text, in what is printed about them.

use super::place::word::{hear, say};
use super::place::{code, err, out, Place, AREA, SYSTX};
use super::Case;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};

pub const ALL: &[(&str, Case)] = &[
    ("a_name_commands_no_terminal_and_begins_no_line", a_name_commands_no_terminal),
    ("a_command_in_a_list_commands_no_terminal", a_command_in_a_list_commands_no_terminal),
];

/// A title for the terminal, a line as if of ours, and a byte that is no text.
const NAME: &[u8] = b"\x1b]0;owned\x07\nsystx: committed\xff";
const QUOTED: &str = r#"\033]0;owned\007\nsystx: committed\377""#;

/// A conflict about that name.
fn conflict(p: &Place, options: &[&str]) -> std::process::Output {
    let file = p.served.join(OsStr::from_bytes(NAME));
    std::fs::write(&file, "1\n").unwrap();
    let (here, word) = (p.fifo("here"), p.fifo("word"));
    let script = "cat *committed* > copy; echo > $BESIDE/here; read w < $BESIDE/word; echo 2 > *committed*";
    let mut systx = p.systx(options, &["sh", "-c", script]);
    let mut systx = systx.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    hear(&here, &mut systx);
    std::fs::write(&file, "theirs\n").unwrap();
    say(&word, &mut systx, "go");
    let output = systx.wait_with_output().unwrap();
    assert_eq!(code(&output), 75, "{}", err(&output));
    output
}

fn quiet(text: &str) {
    assert!(!text.trim_end().contains(|c: char| c.is_control()), "{text:?}");
}

fn a_name_commands_no_terminal(p: &Place) {
    let text = err(&conflict(p, &[]));
    assert!(text.contains(QUOTED), "{text:?}");
    quiet(&text);
    for fifo in ["here", "word"] {
        std::fs::remove_file(p.beside.join(fifo)).unwrap();
    }
    let text = err(&conflict(p, &["--json"]));
    quiet(&text);
    let told: serde_json::Value = serde_json::from_str(&text).unwrap();
    let hex = told["conflict"]["path_hex"].as_str().unwrap();
    let bytes: Vec<u8> =
        (0..hex.len()).step_by(2).map(|n| u8::from_str_radix(&hex[n..n + 2], 16).unwrap()).collect();
    assert_eq!(bytes, p.served.join(OsStr::from_bytes(NAME)).as_os_str().as_bytes());
}

fn a_command_in_a_list_commands_no_terminal(p: &Place) {
    let (here, word) = (p.fifo("here"), p.fifo("word"));
    let script = "echo > $BESIDE/here; read w < $BESIDE/word; : \x1b[2J";
    let mut systx = p.systx(&[], &["sh", "-c", script]).spawn().unwrap();
    hear(&here, &mut systx);
    let list = Command::new(SYSTX).args(["list", "--area-name", AREA]).output().unwrap();
    say(&word, &mut systx, "go");
    assert!(systx.wait().unwrap().success());
    assert!(out(&list).contains(r"\033[2J"), "{:?}", out(&list));
    out(&list).lines().for_each(quiet);
}
