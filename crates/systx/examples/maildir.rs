//! A mailbox of one file a message, without lock files and without names in `tmp`.
//!
//! - `cargo run -p systx --example maildir -- deliver DIR NAME` stores the message on standard input.
//! - `… flag DIR NAME FLAG` adds a flag, and moves the message out of `new`.
//! - `… list DIR` prints each message once, with its flags, as of one moment.
//!
//! With plain calls a reader that lists `cur` while another one renames a message in it may see it twice or not at all.

use std::io::{self, Read};
use std::path::Path;
use systx::{Options, Systx, Transaction};

/// The name of a message, without its flags.
fn base(name: &str) -> &str {
    name.split_once(":2,").map_or(name, |(base, _)| base)
}

/// The messages: directory, and name with flags.
fn messages(tx: &Transaction, mailbox: &Path) -> io::Result<Vec<(&'static str, String)>> {
    let mut all = Vec::new();
    for dir in ["new", "cur"] {
        for entry in tx.read_dir(mailbox.join(dir))? {
            all.push((dir, entry.file_name().to_string_lossy().into_owned()));
        }
    }
    Ok(all)
}

fn deliver(tx: &Transaction, mailbox: &Path, name: &str, text: &[u8]) -> io::Result<()> {
    let path = mailbox.join("new").join(name);
    if tx.try_exists(&path)? {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    // Nobody sees it before it is whole.
    tx.write(path, text)
}

fn flag(tx: &Transaction, mailbox: &Path, name: &str, flag: &str) -> io::Result<()> {
    let all = messages(tx, mailbox)?;
    let (dir, old) = all.iter().find(|(_, known)| base(known) == name).ok_or(io::ErrorKind::NotFound)?;
    let mut flags: Vec<char> = old.split_once(":2,").map_or("", |(_, flags)| flags).chars().collect();
    flags.extend(flag.chars());
    flags.sort_unstable();
    flags.dedup();
    let new = format!("{name}:2,{}", flags.into_iter().collect::<String>());
    tx.rename(mailbox.join(dir).join(old), mailbox.join("cur").join(new))
}

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let systx = Systx::new()?;
    let options = Options::new().label("maildir").retries(10_000);
    match arguments.as_slice() {
        ["deliver", mailbox, name] => {
            let mut text = Vec::new();
            io::stdin().read_to_end(&mut text)?;
            systx.atomically(&options, |tx| deliver(tx, Path::new(mailbox), name, &text))
        }
        ["flag", mailbox, name, letter] => {
            systx.atomically(&options, |tx| flag(tx, Path::new(mailbox), name, letter))
        }
        ["list", mailbox] => {
            let all = systx.atomically(&options, |tx| messages(tx, Path::new(mailbox)))?;
            all.iter().for_each(|(dir, name)| println!("{dir}/{name}"));
            Ok(())
        }
        _ => Err(io::Error::other("usage: maildir deliver DIR NAME | flag DIR NAME FLAG | list DIR")),
    }
}
