//! What does a durable commit of one small change cost, in flushes and CPU, beside what programs do today?

use crate::measure::{cpu_us, monotonic_us, Samples};
use crate::report::{digits, Report};
use crate::world::{fresh, World};
use crate::{Outcome, Setup};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use systx_engine::transaction::{SetAttr, SetTime};
use systx_os::Timestamp;

const COMMITS: usize = 1_000;
const CONTENT: usize = 100;

/// What one way of doing it costs a change.
#[derive(Default)]
struct Cost {
    wall_us: Samples,
    cpu_us: Samples,
    /// From the call of commit to its return, without the syncs.
    commit_us: Samples,
    beyond_us: Samples,
    flushes: f64,
}

pub fn measure(setup: &Setup, report: &mut Report) -> Outcome<()> {
    let commits = setup.size(COMMITS, 50);
    report.heading(&format!("4. One small durable change, {commits} times in a row"));
    let world = World::new(setup, "small")?;
    std::fs::write(world.path.join("file"), [b'a'; CONTENT])?;
    let plain = fresh(setup, "small-plain")?;
    std::fs::write(plain.join("file"), [b'a'; CONTENT])?;
    let prewritten = File::create(plain.join("prewritten"))?;
    prewritten.write_all_at(&vec![0; 1 << 20], 0)?;
    prewritten.sync_all()?;
    let mut ways: [(&str, Cost); 11] = [
        ("floor: pwrite + fdatasync of a prewritten file", Cost::default()),
        ("write + fsync + rename + fsync of the directory", Cost::default()),
        ("SQLite, WAL, synchronous=FULL, one UPDATE", Cost::default()),
        ("systx: change 100 bytes in place", Cost::default()),
        ("systx: create a file of 100 bytes", Cost::default()),
        ("systx: remove a file", Cost::default()),
        ("systx: change in place what nobody has synced", Cost::default()),
        ("systx: change the mode of what nobody has synced", Cost::default()),
        ("systx: change the mode (leaves a mark)", Cost::default()),
        ("systx: change the modification time (leaves none)", Cost::default()),
        ("systx: read a file and remove it (what is taken out is compared)", Cost::default()),
    ];
    let mut calls = [const { Vec::new() }; 8];
    let file = world.path.join("file");
    let mut sqlite = None;
    for repeat in 0..setup.repeats {
        run(&mut ways[0].1, commits, |n| {
            prewritten.write_all_at(&[n as u8; 512], (n as u64 * 512) % (1 << 20))?;
            Ok(prewritten.sync_data()?)
        })?;
        ways[0].1.flushes = 1.0;
        run(&mut ways[1].1, commits, |n| replace(&plain, n))?;
        ways[1].1.flushes = 2.0;
        match with_sqlite(&plain, commits) {
            Ok((wall, cpu)) => {
                ways[2].1.wall_us.push(wall);
                ways[2].1.cpu_us.push(cpu);
            }
            Err(why) => sqlite = Some(why.to_string()),
        }
        for (way, done) in calls.iter_mut().enumerate() {
            if way == 7 {
                for n in 0..commits {
                    let mut t = world.begin()?;
                    let root = t.root();
                    t.create(root, &format!("r{repeat}n{n}"), &[b'x'; CONTENT])?;
                    t.commit()?;
                }
            }
            world.meter.reset();
            let before = world.meter.spent().cpu_us;
            let mut committing = 0.0;
            run(&mut ways[3 + way].1, commits, |n| {
                if way == 3 || way == 4 {
                    // What somebody else has written a moment ago is on the disk before the commit
                    // (docs/protocol.md, C10). Closed at once: a commit has what it changes to itself.
                    File::options()
                        .write(true)
                        .open(&file)?
                        .write_all_at(&[b'0' + (n % 64) as u8; CONTENT], 4096)?;
                }
                let mut t = world.begin()?;
                let root = t.root();
                let name = format!("r{repeat}n{n}");
                match way {
                    4 | 5 => {
                        let node = t.find(root, "file")?;
                        let mode = Some(0o600 + (n % 2) as u32 * 0o40);
                        let set = SetAttr { mode, ..SetAttr::default() };
                        t.0.setattr(node, &set).map_err(crate::world::said)?;
                    }
                    0 | 3 => {
                        let node = t.find(root, "file")?;
                        t.write(node, &[b'0' + ((repeat + n) % 64) as u8; CONTENT], 0)?;
                    }
                    6 => {
                        let node = t.find(root, "file")?;
                        let mtime = Some(SetTime::At(Timestamp { sec: 1_000_000 + n as i64, nsec: 0 }));
                        let set = SetAttr { mtime, ..SetAttr::default() };
                        t.0.setattr(node, &set).map_err(crate::world::said)?;
                    }
                    1 => drop(t.create(root, &name, &[b'x'; CONTENT])?),
                    7 => {
                        let node = t.find(root, &name)?;
                        t.read(node, &mut [0; CONTENT])?;
                        t.0.unlink(root, name.as_bytes()).map_err(crate::world::said)?;
                    }
                    _ => t.0.unlink(root, name.as_bytes()).map_err(crate::world::said)?,
                }
                let asked = cpu_us();
                t.commit()?;
                committing += cpu_us() - asked;
                Ok(())
            })?;
            let cost = &mut ways[3 + way].1;
            let synced = (world.meter.spent().cpu_us - before) / commits as f64;
            cost.flushes = world.meter.flushes() as f64 / commits as f64;
            cost.beyond_us.push(cost.cpu_us.last() - synced);
            cost.commit_us.push(committing / commits as f64 - synced);
            *done = world.meter.calls().into_iter().map(|(c, n)| (c, n / commits as u64)).collect();
        }
    }
    let rows: Vec<_> =
        ways.iter().filter(|(_, c)| c.wall_us.len() > 0).map(|(name, c)| row(name, c)).collect();
    report.table(
        "A change each, in µs (target: a commit of 1 flush and 60 µs of CPU beyond it). CPU is this process's; what the flush itself \
         costs the caller is left out in the last two columns, once with begin and verbs, once of the commit alone.",
        &["", "wall min", "wall median", "CPU min", "CPU median", "syncs", "beyond syncs (min)", "commit alone (min)"],
        &rows,
    );
    if let Some(why) = sqlite {
        report.line(&format!("SQLite was not measured: {why}."));
    }
    let names = [
        "Changing in place",
        "Creating",
        "Removing",
        "Changing what nobody has synced",
        "Changing its mode",
        "Changing the mode of what is synced",
        "Changing the time",
        "Reading and removing",
    ];
    for (what, calls) in names.iter().zip(&calls) {
        let often: Vec<_> = calls.iter().filter(|(_, n)| *n > 0).copied().collect();
        report.calls(what, &often);
    }
    Ok(())
}

fn row(name: &str, cost: &Cost) -> Vec<String> {
    let least = |of: &Samples| if of.len() > 0 { digits(of.min()) } else { "–".into() };
    let flushes = if cost.flushes > 0.0 { format!("{:.2}", cost.flushes) } else { "–".into() };
    let numbers = [cost.wall_us.min(), cost.wall_us.median(), cost.cpu_us.min(), cost.cpu_us.median()];
    let mut row = vec![name.to_owned()];
    row.extend(numbers.map(digits));
    row.extend([flushes, least(&cost.beyond_us), least(&cost.commit_us)]);
    row
}

/// Does it `count` times and notes what one costs.
fn run(cost: &mut Cost, count: usize, mut once: impl FnMut(usize) -> Outcome<()>) -> Outcome<()> {
    let (cpu, wall) = (cpu_us(), monotonic_us());
    for n in 0..count {
        once(n)?;
    }
    cost.wall_us.push((monotonic_us() - wall) / count as f64);
    cost.cpu_us.push((cpu_us() - cpu) / count as f64);
    Ok(())
}

/// What careful programs do today.
pub fn replace(dir: &Path, n: usize) -> Outcome<()> {
    let new = dir.join("file.new");
    let mut file = File::create(&new)?;
    file.write_all(&[b'0' + (n % 64) as u8; CONTENT])?;
    file.sync_all()?;
    std::fs::rename(&new, dir.join("file"))?;
    Ok(File::open(dir)?.sync_all()?)
}

/// Wall and CPU microseconds of one transaction. Warm: the log has its size.
const SQLITE: &str = "
import sqlite3, sys, time
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute('pragma journal_mode=wal'); db.execute('pragma synchronous=full')
db.execute('create table if not exists t(k integer primary key, v blob)')
db.execute('insert or replace into t values(1, ?)', (b'a' * 100,))
count = int(sys.argv[2])
for n in range(1200): db.execute('update t set v=? where k=1', (bytes([48 + n % 64]) * 100,))
wall, cpu = time.monotonic(), time.process_time()
for n in range(count): db.execute('update t set v=? where k=1', (bytes([48 + n % 64]) * 100,))
print((time.monotonic() - wall) / count * 1e6, (time.process_time() - cpu) / count * 1e6)
";

fn with_sqlite(dir: &Path, count: usize) -> Outcome<(f64, f64)> {
    let output =
        Command::new("python3").args(["-c", SQLITE]).arg(dir.join("db")).arg(count.to_string()).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut numbers = text.split_whitespace().map(str::parse::<f64>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(wall)), Some(Ok(cpu))) => Ok((wall, cpu)),
        _ => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned().into()),
    }
}
