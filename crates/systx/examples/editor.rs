//! Replaces a text in a file, in place and without a backup.
//!
//! `cargo run -p systx --example editor -- FILE OLD NEW`
//!
//! A careful editor writes a new file and renames it over the old one, which gives the file another identity: owner, mode,
//! attributes and hard links have to be copied, and some can't be. Here the file stays the one that it is, and holds the
//! old text or the new one, wherever the editor is killed.

use std::io;
use systx::{Options, Systx};

fn main() -> io::Result<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [file, old, new] = arguments.as_slice() else {
        return Err(io::Error::other("usage: editor FILE OLD NEW"));
    };
    let options = Options::new().label(format!("editor {file}"));
    let (replaced, _) = Systx::new()?.atomically_with_outcome(&options, |tx| {
        let text = tx.read_to_string(file)?;
        tx.write(file, text.replace(old, new))?;
        Ok::<_, io::Error>(text.matches(old).count())
    })?;
    println!("{replaced} replaced");
    Ok(())
}
