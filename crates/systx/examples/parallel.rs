//! A serial loop that several threads execute, with the output that one would have written.
//!
//! `cargo run -p systx --example parallel -- serial|THREADS REPORT FILE…`
//!
//! For each file in turn it appends a line to REPORT: how many words the file has, and the sum so far, which it reads from
//! the line before. So each turn depends on the one before, and the loop can't simply be divided.
//! Here each turn is a transaction with the turn's number. The numbers decide the order of the commits, and a turn that
//! has read what an earlier one changes is repeated. A program that was killed has written whole lines, of the first
//! files; started again, it goes on behind them.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use systx::{Durability, OpenOptions, Options, Systx, Transaction};

/// The next line of the report.
fn line(file: &Path, text: &str, report: &str) -> String {
    let words = text.split_whitespace().count() as u64;
    let before: u64 = report.trim_end().rsplit(' ').next().and_then(|sum| sum.parse().ok()).unwrap_or(0);
    format!("{}: {words} words, sum {}\n", file.display(), before + words)
}

fn serially(report: &Path, file: &Path) -> io::Result<()> {
    let text = fs::read_to_string(file)?;
    let line = line(file, &text, &fs::read_to_string(report)?);
    fs::File::options().append(true).open(report)?.write_all(line.as_bytes())
}

/// The same, with `tx` before the calls.
fn in_a_transaction(tx: &Transaction, report: &Path, file: &Path) -> io::Result<()> {
    let text = tx.read_to_string(file)?;
    let line = line(file, &text, &tx.read_to_string(report)?);
    tx.open_with(report, &OpenOptions::new().append(true))?.write_all(line.as_bytes())
}

fn in_parallel(threads: usize, report: &Path, files: &[String]) -> io::Result<()> {
    let systx = Systx::new()?;
    let options = Options::new().durability(Durability::None).label("parallel").retries(u32::MAX);
    // The numbers begin anew, whatever this process group has counted before. Number 0 is this transaction's. It counts
    // the files that are done: also what a killed program has committed and could not make public is there then.
    let begin = |tx: &Transaction| Ok::<_, io::Error>(tx.read_to_string(report)?.lines().count());
    let done = systx.atomically(&options.clone().sequence_from(0), begin)?;
    let (files, next) = (files.get(done..).unwrap_or_default(), AtomicUsize::new(0));
    let turns = || -> io::Result<()> {
        loop {
            let turn = next.fetch_add(1, Ordering::Relaxed);
            let Some(file) = files.get(turn) else { return Ok(()) };
            let options = options.clone().sequence(turn as u64 + 1);
            systx.atomically(&options, |tx| in_a_transaction(tx, report, Path::new(file)))?;
        }
    };
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(turns)).collect();
        all.into_iter().try_for_each(|thread| thread.join().expect("it does not panic"))
    })
}

fn main() -> io::Result<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [how, report, files @ ..] = arguments.as_slice() else {
        return Err(io::Error::other("usage: parallel serial|THREADS REPORT FILE…"));
    };
    let report = Path::new(report);
    fs::File::options().append(true).create(true).open(report)?;
    match how.as_str() {
        "serial" => {
            let done = fs::read_to_string(report)?.lines().count();
            let mut left = files.iter().skip(done);
            left.try_for_each(|file| serially(report, Path::new(file)))
        }
        threads => in_parallel(threads.parse().map_err(io::Error::other)?, report, files),
    }
}
