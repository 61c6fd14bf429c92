//! A privileged reader that checks a file before it opens it, while another user may swap the name.
//!
//! `cargo run -p systx --example toctou -- plain|systx FILE TIMES`
//!
//! It serves FILE only if that is a regular file and no symbolic link, and prints how often it was served, refused, and
//! how often what it read began with "secret". Checked and opened by plain calls, the name may lead elsewhere the second
//! time. In a transaction it leads to the same object each time, or the transaction does not commit.

use std::io;
use std::path::Path;
use systx::{Durability, Error, Options, Systx};

fn refused() -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, "no regular file")
}

fn plainly(path: &Path) -> io::Result<String> {
    if !std::fs::symlink_metadata(path)?.is_file() {
        return Err(refused());
    }
    std::fs::read_to_string(path)
}

fn in_a_transaction(systx: &Systx, path: &Path) -> io::Result<String> {
    let options = Options::new().durability(Durability::None).label("toctou").retries(1000);
    systx.atomically(&options, |tx| {
        if !tx.symlink_metadata(path)?.is_file() {
            return Err(refused());
        }
        tx.read_to_string(path)
    })
}

fn main() -> io::Result<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [how, path, times] = arguments.as_slice() else {
        return Err(io::Error::other("usage: toctou plain|systx FILE TIMES"));
    };
    let (path, times): (_, u64) = (Path::new(path), times.parse().map_err(io::Error::other)?);
    let systx = Systx::new()?;
    let (mut served, mut refused, mut hits) = (0, 0, 0);
    for _ in 0..times {
        let read = if how == "plain" { plainly(path) } else { in_a_transaction(&systx, path) };
        match read {
            Ok(text) if text.starts_with("secret") => hits += 1,
            Ok(_) => served += 1,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => refused += 1,
            // So many swaps that no try found the name unchanged.
            Err(error) if Error::of(&error).is_some_and(Error::is_conflict) => refused += 1,
            Err(error) => return Err(error),
        }
    }
    println!("{served} served, {refused} refused, {hits} hits");
    Ok(())
}
