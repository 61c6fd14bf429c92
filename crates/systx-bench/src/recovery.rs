//! How long does opening take when the log has to be redone?

use crate::measure::{wall_ms, Samples};
use crate::report::Report;
use crate::world::{sync_all, World, AREA};
use crate::{Outcome, Setup};
use std::path::Path;
use std::process::Command;

const LOG_BYTES: usize = 16 << 20;
/// Inline bytes of one large patch: as many as a record takes.
const LARGE: usize = 60 << 10;
const SMALL: usize = 100;

pub fn measure(setup: &Setup, report: &mut Report) -> Outcome<()> {
    let bytes = setup.size(LOG_BYTES, 1 << 20);
    report.heading(&format!("6. Recovery of a log of {} MB", bytes >> 20));
    let large = one(setup, bytes / LARGE, LARGE)?;
    // A record of 100 bytes takes about 700: a sector, names, handles, a cell.
    let small = one(setup, bytes / 700, SMALL)?;
    let rows = [
        (format!("{} records of 60 KiB, all published before", bytes / LARGE), &large.published),
        (format!("{} records of 60 KiB, none of it on the disk", bytes / LARGE), &large.lost),
        (format!("{} records of 100 bytes, all published before", bytes / 700), &small.published),
        (format!("{} records of 100 bytes, none of it on the disk", bytes / 700), &small.lost),
    ];
    let rows: Vec<_> = rows.iter().map(|(name, samples)| (name.as_str(), *samples)).collect();
    report.compared(
        "Opening after the table is gone, as after a reboot, syncs included (target: 500 ms):",
        "ms",
        &rows,
    );
    for (name, times) in [("60 KiB", &large), ("100 bytes", &small)] {
        report.line(&format!("Log segments with records of {name}: {} KiB.", times.log_kib));
        report.calls(&format!("calls of the last recovery, records of {name}"), &times.calls);
    }
    Ok(())
}

struct Times {
    published: Samples,
    lost: Samples,
    log_kib: u64,
    calls: Vec<(&'static str, u64)>,
}

fn one(setup: &Setup, records: usize, each: usize) -> Outcome<Times> {
    let world = World::new(setup, "recovery")?;
    let path = world.path.clone();
    let file = path.join("file");
    let before = vec![b'a'; records * each];
    std::fs::write(&file, &before)?;
    sync_all(&path)?;
    for n in 0..records {
        let mut t = world.begin()?;
        let root = t.root();
        let node = t.find(root, "file")?;
        t.write(node, &vec![b'b'; each], (n * each) as u64)?;
        t.commit()?;
    }
    drop(world);
    let area = path.join(AREA);
    let kept = path.join("kept");
    copy(&area, &kept)?;
    // What stands in `kept` is restored into the same directory: an area whose directory has another inode is a copy.
    let log_kib = std::fs::read_dir(area.join("log"))?
        .map(|e| Ok(std::os::unix::fs::MetadataExt::blocks(&e?.metadata()?) / 2))
        .sum::<std::io::Result<u64>>()?;
    let mut times =
        Times { published: Samples::default(), lost: Samples::default(), log_kib, calls: Vec::new() };
    for repeat in 0..setup.repeats * 2 {
        let lost = repeat % 2 == 1;
        restore(&kept, &area)?;
        std::fs::remove_file(area.join("table"))?;
        let content = if lost { before.clone() } else { vec![b'b'; records * each] };
        // In place: the inode is what the record knows.
        std::os::unix::fs::FileExt::write_all_at(
            &std::fs::OpenOptions::new().write(true).open(&file)?,
            &content,
            0,
        )?;
        sync_all(&path)?;
        let (ms, opened) = wall_ms(|| World::open(&path));
        let world = opened?;
        if world.domain.recovered.finished != records as u64 || !world.domain.recovered.unfinished.is_empty()
        {
            return Err(format!("recovered {:?}, not {records}", world.domain.recovered).into());
        }
        if std::fs::read(&file)?.iter().any(|b| *b != b'b') {
            return Err("a byte that was committed is missing".into());
        }
        times.calls = world.meter.calls();
        if lost { &mut times.lost } else { &mut times.published }.push(ms);
    }
    Ok(times)
}

/// Puts the contents of `kept` back into the directory `area`.
fn restore(kept: &Path, area: &Path) -> Outcome<()> {
    for entry in std::fs::read_dir(area)? {
        let path = entry?.path();
        match path.is_dir() {
            true => std::fs::remove_dir_all(path)?,
            false => std::fs::remove_file(path)?,
        }
    }
    copy(&kept.join("."), area)
}

fn copy(from: &Path, to: &Path) -> Outcome<()> {
    match Command::new("cp").arg("-a").arg(from).arg(to).status()?.success() {
        true => Ok(()),
        false => Err(format!("cp {} failed", from.display()).into()),
    }
}
