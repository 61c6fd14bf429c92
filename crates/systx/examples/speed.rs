//! How long small transactions take, beside the plain calls, in one run. Not a test: prints microseconds, shortest and
//! median.
//!
//! `cargo run --release -p systx --example speed -- DIR [ROUNDS [PART-OF-A-NAME]]`

use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;
use systx::{Durability, OpenOptions, Options, Systx};

/// The rounds of each line, and which lines are asked for.
struct Lines {
    rounds: usize,
    part: String,
}

impl Lines {
    /// Shortest and median time of a call, behind a first one that opens what stays open.
    fn show(&self, what: &str, mut call: impl FnMut() -> io::Result<()>) -> io::Result<()> {
        if !what.contains(&self.part) {
            return Ok(());
        }
        call()?;
        let mut times = Vec::with_capacity(self.rounds);
        for _ in 0..self.rounds {
            let begin = Instant::now();
            call()?;
            times.push(begin.elapsed().as_secs_f64() * 1e6);
        }
        times.sort_by(f64::total_cmp);
        println!("{what:52} {:9.2} {:9.2}", times[0], times[self.rounds / 2]);
        Ok(())
    }
}

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let dir =
        arguments.next().ok_or_else(|| io::Error::other("usage: speed DIR [ROUNDS [PART-OF-A-NAME]]"))?;
    let rounds: usize = arguments.next().and_then(|n| n.parse().ok()).unwrap_or(1000).max(1);
    let lines = Lines { rounds, part: arguments.next().unwrap_or_default() };
    let dir = Path::new(&dir).join("systx-speed");
    fs::create_dir_all(dir.join("a/b/c/d"))?;
    let [large, file, shared, deep] = ["large", "file", "shared", "a/b/c/d/file"].map(|name| dir.join(name));
    for (path, len) in [(&large, 4 << 20), (&file, 4096), (&shared, 4096)] {
        fs::write(path, vec![b'x'; len])?;
    }
    fs::write(&deep, "deep")?;
    let systx = Systx::new()?;
    let quick = Options::new().durability(Durability::None);
    let durable = Options::new();
    lines.show("begin and commit, nothing touched", || Ok(systx.begin(&quick)?.commit().map(drop)?))?;

    let mut page = [0; 512];
    let plain = fs::File::open(&large)?;
    lines.show("plain: pread of 512 bytes, fstat", || {
        plain.read_exact_at(&mut page, 0)?;
        plain.metadata().map(drop)
    })?;
    let tx = systx.begin(&quick)?;
    let known = tx.open(&large)?;
    lines.show("transaction: pread of 512 bytes, file open", || known.read_exact_at(&mut page, 0))?;
    drop((known, tx));
    lines.show("plain: open, fstat, close of a path", || fs::File::open(&deep)?.metadata().map(drop))?;
    lines.show("transaction: begin, fstat of the path, commit", || {
        let tx = systx.begin(&quick)?;
        tx.metadata(&deep)?;
        Ok(tx.commit().map(drop)?)
    })?;
    lines.show("plain: a whole small file", || fs::read(&deep).map(drop))?;
    lines.show("transaction: begin, the whole small file, commit", || {
        let tx = systx.begin(&quick)?;
        tx.read(&deep)?;
        Ok(tx.commit().map(drop)?)
    })?;
    let thousand = |read: &mut dyn FnMut(&mut [u8], u64) -> io::Result<()>| {
        let mut page = [0; 4096];
        (0..1000).try_for_each(|n| read(&mut page, n * 4096))
    };
    lines.show("plain: 1000 pages", || thousand(&mut |page, at| plain.read_exact_at(page, at)))?;
    lines.show("transaction: begin, 1000 pages, commit", || {
        let tx = systx.begin(&quick)?;
        let file = tx.open(&large)?;
        thousand(&mut |page, at| file.read_exact_at(page, at))?;
        drop(file);
        Ok(tx.commit().map(drop)?)
    })?;

    // Other bytes each time: what a file has already is not written again.
    let mut byte = b'x';
    let mut overwrite = |path: &Path, options: &Options| -> io::Result<()> {
        byte = byte.wrapping_add(1);
        let tx = systx.begin(options)?;
        tx.open_with(path, &OpenOptions::new().write(true))?.write_all_at(&[byte; 512], 512)?;
        Ok(tx.commit().map(drop)?)
    };
    let plain = fs::OpenOptions::new().write(true).open(&shared)?;
    lines.show("plain: pwrite of 512 bytes", || plain.write_all_at(&page, 512))?;
    lines.show("transaction: overwrite, none, no other opener", || overwrite(&file, &quick))?;
    lines.show("transaction: overwrite, none, file open elsewhere", || overwrite(&shared, &quick))?;
    lines.show("plain: pwrite, fdatasync", || {
        plain.write_all_at(&page, 512)?;
        plain.sync_data()
    })?;
    lines.show("transaction: overwrite, durable", || overwrite(&file, &durable))?;
    fs::remove_dir_all(dir)
}
