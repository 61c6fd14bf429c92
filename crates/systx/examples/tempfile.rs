//! A file of a name that is free, with its contents, at once.
//!
//! `cargo run -p systx --example tempfile -- DIR PREFIX` stores standard input in the first free `PREFIX.0`, `PREFIX.1`, …
//! and prints its path. That a name was missing is compared at the commit, so of two programs that find the same one
//! free, one tries again; no name has to be random, and no program finds a file that is empty or half-written.

use std::io::{self, Read};
use std::path::Path;
use systx::{Durability, OpenOptions, Options, Systx};

fn main() -> io::Result<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [dir, prefix] = arguments.as_slice() else {
        return Err(io::Error::other("usage: tempfile DIR PREFIX"));
    };
    let mut contents = Vec::new();
    io::stdin().read_to_end(&mut contents)?;
    // What is on a tmpfs is gone after a power loss anyway.
    let options = Options::new().durability(Durability::None).label("tempfile").retries(10_000);
    let path = Systx::new()?.atomically(&options, |tx| {
        for n in 0.. {
            let path = Path::new(dir).join(format!("{prefix}.{n}"));
            if !tx.try_exists(&path)? {
                let private = OpenOptions::new().write(true).create_new(true).mode(0o600);
                io::Write::write_all(&mut tx.open_with(&path, &private)?, &contents)?;
                return Ok(path);
            }
        }
        Err(io::Error::other("no name is free"))
    })?;
    println!("{}", path.display());
    Ok(())
}
