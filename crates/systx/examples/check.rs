//! Check-out and check-in of sets of files, after QuickSilver's `check` (SOSP 1991, section 3).
//!
//! - `cargo run -p systx --example check -- new ARCHIVE WORK FILE…` makes files of the directory WORK the first versions.
//! - `… out ARCHIVE WORK FILE…` copies the last versions to WORK, to be edited there and nowhere else.
//! - `… in ARCHIVE WORK FILE…` stores what became of them as new versions.
//!
//! ARCHIVE has a directory for each file: the versions `1`, `2` and so on, and `out`, which says where it is edited. A
//! problem with any file, such as one that was not checked out, leaves archive and working copies as they were, without
//! a line of code that puts back what was done for the files before it.

use std::io;
use std::path::Path;
use systx::{Options, Systx, Transaction};

const WRITABLE: u32 = 0o644;
const READ_ONLY: u32 = 0o444;

fn problem(file: &str, what: &str) -> io::Error {
    io::Error::other(format!("{file}: {what}"))
}

/// The number of the last version.
fn last(tx: &Transaction, versions: &Path) -> io::Result<u64> {
    let numbers = tx.read_dir(versions)?.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    Ok(numbers.max().unwrap_or(0))
}

fn check_new(tx: &Transaction, archive: &Path, work: &Path, file: &str) -> io::Result<()> {
    let versions = archive.join(file);
    tx.create_dir(&versions)?;
    tx.copy(work.join(file), versions.join("1"))?;
    tx.set_mode(work.join(file), READ_ONLY)
}

fn check_out(tx: &Transaction, archive: &Path, work: &Path, file: &str) -> io::Result<()> {
    let (versions, copy) = (archive.join(file), work.join(file));
    if tx.try_exists(versions.join("out"))? {
        let place = tx.read_to_string(versions.join("out"))?;
        return Err(problem(file, &format!("is checked out to {place}")));
    }
    tx.write(versions.join("out"), work.to_string_lossy().as_bytes())?;
    let version = last(tx, &versions)?;
    if tx.try_exists(&copy)? {
        tx.remove_file(&copy)?;
    }
    tx.copy(versions.join(version.to_string()), &copy)?;
    tx.set_mode(&copy, WRITABLE)
}

fn check_in(tx: &Transaction, archive: &Path, work: &Path, file: &str) -> io::Result<()> {
    let (versions, copy) = (archive.join(file), work.join(file));
    match tx.read_to_string(versions.join("out")) {
        Ok(place) if place == work.to_string_lossy() => {}
        Ok(place) => return Err(problem(file, &format!("is checked out to {place}"))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(problem(file, "is not checked out"));
        }
        Err(error) => return Err(error),
    }
    let version = last(tx, &versions)? + 1;
    tx.copy(&copy, versions.join(version.to_string()))?;
    tx.remove_file(versions.join("out"))?;
    tx.set_mode(&copy, READ_ONLY)
}

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [verb, archive, work, files @ ..] = arguments.as_slice() else {
        return Err(io::Error::other("usage: check new|out|in ARCHIVE WORK FILE…"));
    };
    let check = match verb.as_str() {
        "new" => check_new,
        "out" => check_out,
        "in" => check_in,
        _ => return Err(io::Error::other("check: new, out or in")),
    };
    let options = Options::new().label(format!("check {verb}")).retries(10_000);
    Systx::new()?.atomically(&options, |tx| {
        files.iter().try_for_each(|file| check(tx, Path::new(archive), Path::new(work), file))
    })
}
