//! How many durable commits do one and sixteen clients get through in the library, beside what programs do today?
//!
//! A commit writes 4 KiB each to two files, or rows, that are the client's own. Each round has fresh files, and all
//! clients begin at once. Flushes are those that reached the block device. The second table is of a disk with a flush of
//! a millisecond ([`crate::disk`]), as solid-state disks without a protected cache have.

use crate::disk::SlowDisk;
use crate::measure::{monotonic_us, Samples};
use crate::postgres::Cluster;
use crate::report::{digits, Report};
use crate::world::fresh_in;
use crate::{Outcome, Setup};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;
use systx::{Durability, Options, Systx};

const MILLISECONDS: usize = 1_500;
const CLIENTS: [usize; 2] = [1, 16];
const BYTES: usize = 4096;
const SLOW_FLUSH: Duration = Duration::from_millis(1);

/// A way to do it.
struct Way {
    name: &'static str,
    /// For the worker.
    what: &'static str,
    by: By,
}

/// The clients.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    /// Threads of one process.
    Threads,
    Processes,
    /// Processes of Python; the first one makes the database.
    Python(&'static str),
    /// Those of pgbench.
    Pgbench,
}

const WAYS: [Way; 11] = [
    Way { name: "systx, threads", what: "systx", by: By::Threads },
    Way { name: "systx, processes", what: "systx", by: By::Processes },
    Way { name: "2 × write + fsync + rename + fsync of the directory", what: "replace", by: By::Processes },
    Way { name: "SQLite, WAL, FULL, warm", what: "warm", by: By::Python(SQLITE) },
    Way { name: "SQLite, WAL, FULL, cold", what: "cold", by: By::Python(SQLITE) },
    Way { name: "LMDB", what: "lmdb", by: By::Python(LMDB) },
    Way { name: "redb, threads", what: "redb", by: By::Threads },
    Way { name: "PostgreSQL", what: "postgres", by: By::Pgbench },
    Way { name: "systx, threads, durability none", what: "none", by: By::Threads },
    Way { name: "systx, processes, durability none", what: "none", by: By::Processes },
    Way { name: "2 × pwrite, threads", what: "pwrite", by: By::Threads },
];

pub fn measure(setup: &Setup, report: &mut Report) -> Outcome<()> {
    report.heading("12. Durable commits of two files, and who else makes them");
    on(setup, report, &setup.dir, &WAYS, "Each client has two files of 4 KiB, or two rows of one database.");
    match SlowDisk::new(setup, SLOW_FLUSH) {
        Ok(disk) => on(setup, report, &disk.point, &WAYS[..8], "The same on a disk with a flush of 1 ms."),
        Err(why) => report.line(&format!("A disk with a flush of 1 ms can't be had here: {why}.")),
    }
    Ok(())
}

/// All ways in a directory.
fn on(setup: &Setup, report: &mut Report, dir: &Path, ways: &[Way], title: &str) {
    let ms = setup.size(MILLISECONDS, 100);
    let mut rows = Vec::new();
    let mut missing = Vec::new();
    for way in ways {
        let mut row = vec![way.name.to_owned()];
        let mut medians = Vec::new();
        for clients in CLIENTS {
            let (mut rate, mut flushes) = (Samples::default(), Samples::default());
            let rounds: Outcome<()> = (0..setup.repeats).try_for_each(|_| {
                let (a_second, flushed) = round(dir, way, clients, ms)?;
                rate.push(a_second);
                flushes.push(flushed);
                Ok(())
            });
            if let Err(why) = rounds {
                missing.push(format!("{} was not measured: {why}.", way.name));
                break;
            }
            row.extend([digits(rate.max()), digits(rate.median()), format!("{:.2}", flushes.median())]);
            medians.push(rate.median());
        }
        if let [one, many] = medians[..] {
            row.push(format!("{:.2}", many / one));
            rows.push(row);
        }
    }
    let head = [
        "",
        "1 client, commits/s (max)",
        "median",
        "flushes a commit",
        "16 clients (max)",
        "median",
        "flushes a commit",
        "16 to 1, medians",
    ];
    report.table(title, &head, &rows);
    missing.iter().for_each(|why| report.line(why));
}

/// Flushes that the block device below a directory has done.
fn flushed(dir: &Path) -> Outcome<f64> {
    let device = fs::metadata(dir)?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let stat = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat"))?;
    Ok(stat.split_whitespace().nth(15).ok_or("no flushes are counted")?.parse()?)
}

/// Commits a second, and flushes a commit.
fn round(dir: &Path, way: &Way, clients: usize, ms: usize) -> Outcome<(f64, f64)> {
    let dir = fresh_in(dir, "peers")?;
    if way.by == By::Pgbench {
        let cluster = Cluster::start(&dir, BYTES)?;
        let before = flushed(&dir)?;
        let (commits, seconds) = cluster.run(clients, ms)?;
        return Ok((commits / seconds, (flushed(&dir)? - before) / commits.max(1.0)));
    }
    for n in 0..2 * clients {
        fs::create_dir(dir.join(format!("dir{n}")))?;
        fs::write(dir.join(format!("dir{n}/file")), [b'a'; BYTES])?;
    }
    crate::world::sync_all(&dir)?;
    let (processes, threads) = if way.by == By::Threads { (1, clients) } else { (clients, 1) };
    let mut children = Vec::new();
    for n in 0..processes {
        let mut child = match way.by {
            By::Python(script) => {
                let mut python = Command::new("python3");
                python.args(["-c", script]).arg(dir.join("db")).args([n.to_string(), way.what.into()]);
                python
            }
            _ => {
                let mut worker = Command::new(std::env::current_exe()?);
                worker.arg("--peer").arg(&dir).args([way.what, &n.to_string(), &threads.to_string()]);
                worker
            }
        };
        let mut child = child.arg(ms.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let out = child.stdout.take().ok_or("no pipe")?;
        children.push((child, BufReader::new(out)));
        if matches!(way.by, By::Python(_)) {
            // The database is made by one.
            ready(children.last_mut().ok_or("no child")?)?;
        }
    }
    if !matches!(way.by, By::Python(_)) {
        children.iter_mut().try_for_each(ready)?;
    }
    let before = flushed(&dir)?;
    for (child, _) in &mut children {
        child.stdin.take().ok_or("no pipe")?.write_all(b"go\n")?;
    }
    let mut commits = 0.0;
    for (child, out) in &mut children {
        let mut line = String::new();
        out.read_line(&mut line)?;
        commits += line.trim().parse::<f64>().map_err(|_| format!("a client said {line:?}"))?;
        child.wait()?;
    }
    Ok((commits / ms as f64 * 1e3, (flushed(&dir)? - before) / commits.max(1.0)))
}

fn ready((_, out): &mut (Child, BufReader<ChildStdout>)) -> Outcome<()> {
    let mut line = String::new();
    out.read_line(&mut line)?;
    if line.trim() == "ready" {
        Ok(())
    } else {
        Err("a client can't begin".into())
    }
}

/// One process: DIR WHAT NUMBER THREADS MILLISECONDS.
pub fn worker(args: &[String]) -> Outcome<()> {
    let [dir, what, number, threads, ms] = args else { return Err("a client needs five arguments".into()) };
    let (dir, number, ms): (PathBuf, usize, f64) = (dir.into(), number.parse()?, ms.parse()?);
    let threads: usize = threads.parse()?;
    let systx = Systx::new()?;
    let redb = (what == "redb").then(|| Rows::new(&dir.join("redb"))).transpose()?;
    println!("ready");
    std::io::stdin().lock().read_line(&mut String::new())?;
    let until = monotonic_us() + ms * 1e3;
    let client = |n: usize| -> Result<usize, String> {
        let own = [2 * n, 2 * n + 1].map(|n| dir.join(format!("dir{n}")));
        let mut commits = 0;
        while monotonic_us() < until {
            let done = match &redb {
                Some(rows) => rows.commit(n, commits),
                None => commit(&systx, what, &own, commits),
            };
            done.map_err(|e| e.to_string())?;
            commits += 1;
        }
        Ok(commits)
    };
    let all: Result<usize, String> = std::thread::scope(|scope| {
        let client = &client;
        let all: Vec<_> = (0..threads).map(|n| scope.spawn(move || client(number + n))).collect();
        all.into_iter().map(|thread| thread.join().map_err(|_| "a client has panicked".to_owned())?).sum()
    });
    println!("{}", all?);
    Ok(())
}

fn commit(systx: &Systx, what: &str, own: &[PathBuf; 2], n: usize) -> Outcome<()> {
    let bytes = [b'0' + (n % 64) as u8; BYTES];
    if what == "replace" {
        for dir in own {
            let mut file = File::create(dir.join("new"))?;
            file.write_all(&bytes)?;
            file.sync_all()?;
            fs::rename(dir.join("new"), dir.join("file"))?;
            File::open(dir)?.sync_all()?;
        }
        return Ok(());
    }
    if what == "pwrite" {
        for dir in own {
            File::options().write(true).open(dir.join("file"))?.write_all(&bytes)?;
        }
        return Ok(());
    }
    let durability = if what == "none" { Durability::None } else { Durability::Durable };
    let options = Options::new().durability(durability).label("peers");
    let in_place = systx::OpenOptions::new().write(true);
    Ok(systx.atomically(&options, |tx| {
        own.iter().try_for_each(|dir| tx.open_with(dir.join("file"), &in_place)?.write_all(&bytes))
    })?)
}

/// Two rows a client in redb.
struct Rows(redb::Database);

const ROWS: redb::TableDefinition<'_, u64, &[u8]> = redb::TableDefinition::new("rows");

impl Rows {
    fn new(path: &Path) -> Outcome<Rows> {
        Ok(Rows(redb::Database::create(path)?))
    }

    fn commit(&self, client: usize, n: usize) -> Outcome<()> {
        let bytes = [b'0' + (n % 64) as u8; BYTES];
        let write = self.0.begin_write()?;
        {
            let mut rows = write.open_table(ROWS)?;
            for key in [2 * client, 2 * client + 1] {
                rows.insert(key as u64, bytes.as_slice())?;
            }
        }
        Ok(write.commit()?)
    }
}

/// Cold: the log grows, which is a flush more. Warm: it has its size.
const SQLITE: &str = "
import sqlite3, sys, time
path, number, temperature, ms = sys.argv[1], int(sys.argv[2]), sys.argv[3], float(sys.argv[4])
db = sqlite3.connect(path, isolation_level=None, timeout=60)
db.execute('pragma journal_mode=wal'); db.execute('pragma synchronous=full')
db.execute('create table if not exists t(k integer primary key, v blob)')
keys = (2 * number, 2 * number + 1)
for key in keys: db.execute('insert or replace into t values(?, zeroblob(4096))', (key,))
if number == 0 and temperature == 'warm':
    for n in range(1200): db.execute('update t set v = ? where k = 0', (bytes([n % 64]) * 4096,))
print('ready', flush=True)
sys.stdin.readline()
until, commits = time.monotonic() + ms / 1e3, 0
while time.monotonic() < until:
    db.execute('begin immediate')
    for key in keys: db.execute('update t set v = ? where k = ?', (bytes([commits % 64]) * 4096, key))
    db.execute('commit')
    commits += 1
print(commits)
";

const LMDB: &str = "
import lmdb, sys, time
path, number, ms = sys.argv[1], int(sys.argv[2]), float(sys.argv[4])
env = lmdb.open(path, map_size=1 << 30)
keys = [str(2 * number + n).encode() for n in range(2)]
print('ready', flush=True)
sys.stdin.readline()
until, commits = time.monotonic() + ms / 1e3, 0
while time.monotonic() < until:
    with env.begin(write=True) as tx:
        for key in keys: tx.put(key, bytes([commits % 64]) * 4096)
    commits += 1
print(commits)
";
