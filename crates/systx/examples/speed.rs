//! How long small transactions take, beside the plain calls, in one run. Not a test: prints microseconds.
//!
//! `cargo run --release -p systx --example speed -- DIR [ROUNDS]`

use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;
use systx::{Durability, OpenOptions, Options, Systx};

/// Shortest and median time of a call, in microseconds.
fn time(rounds: usize, mut call: impl FnMut() -> io::Result<()>) -> io::Result<(f64, f64)> {
    let mut times = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let begin = Instant::now();
        call()?;
        times.push(begin.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    Ok((times[0], times[rounds / 2]))
}

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().ok_or_else(|| io::Error::other("usage: speed DIR [ROUNDS]"))?;
    let rounds: usize = arguments.next().and_then(|n| n.parse().ok()).unwrap_or(1000);
    let dir = Path::new(&dir).join("systx-speed");
    fs::create_dir_all(dir.join("a/b/c/d"))?;
    let (file, deep) = (dir.join("file"), dir.join("a/b/c/d/file"));
    fs::write(&file, [b'x'; 4096])?;
    fs::write(&deep, "deep")?;
    let systx = Systx::new()?;
    let quick = Options::new().durability(Durability::None);
    let show = |what: &str, (least, median): (f64, f64)| println!("{what:48} {least:9.2} {median:9.2} us");
    show(
        "begin and commit, nothing touched",
        time(rounds, || systx.begin(&quick)?.commit().map(drop).map_err(Into::into))?,
    );
    let mut page = [0; 512];
    let plain = fs::File::open(&file)?;
    show("plain: pread of 512 bytes", time(rounds, || plain.read_exact_at(&mut page, 0))?);
    show("plain: open, fstat, read, close", time(rounds, || fs::read(&deep).map(drop))?);
    show(
        "transaction: the same, with begin and commit",
        time(rounds, || {
            let tx = systx.begin(&quick)?;
            tx.read(&deep)?;
            tx.commit().map(drop).map_err(Into::into)
        })?,
    );
    let plain = fs::OpenOptions::new().write(true).open(&file)?;
    show("plain: pwrite of 512 bytes", time(rounds, || plain.write_all_at(&page, 512))?);
    let overwrite = |options: &Options| {
        let tx = systx.begin(options)?;
        tx.open_with(&file, &OpenOptions::new().write(true))?.write_all_at(&[b'y'; 512], 512)?;
        tx.commit().map(drop).map_err(io::Error::from)
    };
    show("transaction: overwrite, durability none", time(rounds, || overwrite(&quick))?);
    show(
        "plain: pwrite and fdatasync",
        time(rounds, || plain.write_all_at(&page, 512).and_then(|()| plain.sync_data()))?,
    );
    show("transaction: overwrite, durable", time(rounds, || overwrite(&Options::new()))?);
    fs::remove_dir_all(dir)
}
