//! How many small durable commits do several processes get through, and how many syncs do they share?

use crate::measure::{monotonic_us, Samples};
use crate::report::{digits, Report};
use crate::small::replace;
use crate::world::{fresh, World};
use crate::{Outcome, Setup};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

const PROCESSES: [usize; 4] = [1, 2, 4, 16];
const MILLISECONDS: usize = 1_500;

pub fn measure(setup: &Setup, report: &mut Report) -> Outcome<()> {
    report.heading("7. Many processes, one domain");
    let ms = setup.size(MILLISECONDS, 100);
    let mut rows = Vec::new();
    for processes in PROCESSES {
        let mut row = vec![processes.to_string()];
        for what in ["own", "shared", "plain"] {
            let (mut rate, mut syncs) = (Samples::default(), Samples::default());
            let mut conflicts = 0;
            for _ in 0..setup.repeats {
                let total = round(setup, what, processes, ms)?;
                rate.push(total.commits / ms as f64 * 1e3);
                syncs.push(total.syncs / total.commits.max(1.0));
                conflicts += total.conflicts;
            }
            row.extend([rate.max(), rate.median()].map(digits));
            match what {
                "own" => row.push(digits(syncs.median())),
                "shared" => row.push(conflicts.to_string()),
                _ => {}
            }
        }
        rows.push(row);
    }
    let head = [
        "processes",
        "own (max)",
        "median",
        "syncs a commit",
        "shared (max)",
        "median",
        "conflicts",
        "plain (max)",
        "median",
    ];
    report.table(
        "Commits per second of 100 bytes, each process in a file of its own, all in one shared file, and plain: write, fsync, \
         rename, fsync of the directory.",
        &head,
        &rows,
    );
    Ok(())
}

#[derive(Default)]
struct Total {
    commits: f64,
    syncs: f64,
    conflicts: u64,
}

/// All processes ready, then all at work for the same time.
fn round(setup: &Setup, what: &str, processes: usize, ms: usize) -> Outcome<Total> {
    let path = fresh(setup, "group")?;
    drop(World::open(&path)?);
    for n in 0..processes {
        std::fs::write(path.join(format!("file{n}")), [b'a'; 100])?;
        std::fs::create_dir(path.join(format!("dir{n}")))?;
    }
    let mut children = Vec::new();
    for n in 0..processes {
        let mut child = Command::new(std::env::current_exe()?);
        child.arg("--worker").arg(&path).args([what, &n.to_string(), &ms.to_string()]);
        let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let out = child.stdout.take().ok_or("no pipe")?;
        children.push((child, BufReader::new(out)));
    }
    let result = together(&mut children);
    for (child, _) in &mut children {
        if result.is_err() {
            // Ours, started above.
            let _ = child.kill();
        }
        child.wait()?;
    }
    result
}

fn together(children: &mut [(Child, BufReader<std::process::ChildStdout>)]) -> Outcome<Total> {
    let mut line = String::new();
    for (_, out) in children.iter_mut() {
        out.read_line(&mut line)?;
    }
    for (child, _) in children.iter_mut() {
        child.stdin.take().ok_or("no pipe")?.write_all(b"go\n")?;
    }
    let mut total = Total::default();
    for (_, out) in children.iter_mut() {
        line.clear();
        out.read_line(&mut line)?;
        let mut numbers = line.split_whitespace().map(str::parse::<f64>);
        let mut next = || numbers.next().ok_or(format!("a worker said {line:?}"));
        total.commits += next()??;
        total.syncs += next()??;
        total.conflicts += next()?? as u64;
    }
    Ok(total)
}

/// One process: DIR WHAT NUMBER MILLISECONDS.
pub fn worker(args: &[String]) -> Outcome<()> {
    let [dir, what, number, ms] = args else { return Err("a worker needs four arguments".into()) };
    let (dir, number, ms): (PathBuf, usize, f64) = (dir.into(), number.parse()?, ms.parse()?);
    let world = if what == "plain" { None } else { Some(World::open(&dir)?) };
    let own = match what.as_str() {
        "shared" => "file0".to_owned(),
        _ => format!("file{number}"),
    };
    println!("ready");
    std::io::stdin().lock().read_line(&mut String::new())?;
    if let Some(world) = &world {
        world.meter.reset();
    }
    let until = monotonic_us() + ms * 1e3;
    let (mut commits, mut conflicts) = (0usize, 0usize);
    while monotonic_us() < until {
        let done = match &world {
            None => replace(&dir.join(format!("dir{number}")), commits).map(|()| true)?,
            Some(world) => change(world, &own, (commits * 16 + number) % 64)?,
        };
        if done {
            commits += 1;
        } else {
            conflicts += 1;
        }
    }
    let syncs = world.map_or(2 * commits as u64, |w| w.meter.flushes());
    println!("{commits} {syncs} {conflicts}");
    Ok(())
}

/// Whether it committed; a conflict is an answer.
fn change(world: &World, name: &str, fill: usize) -> Outcome<bool> {
    use systx_engine::outcome::{CommitError, VerbError};
    use systx_engine::transaction::Access;
    let mut t = world.begin()?;
    let root = t.root();
    let node = t.find(root, name)?;
    let write = |t: &mut crate::world::Work| {
        t.0.open(node, Access::Write, false)?;
        t.0.write_at(node, &[b'0' + fill as u8; 100], 0)?;
        t.0.close(node);
        Ok(())
    };
    match write(&mut t) {
        Ok(()) => {}
        Err(VerbError::Doomed(_)) => {
            t.0.abort();
            return Ok(false);
        }
        Err(e) => return Err(crate::world::said(e)),
    }
    match t.0.commit() {
        Ok(_) => Ok(true),
        Err(CommitError::Conflict(_)) => Ok(false),
        Err(e) => Err(e.into()),
    }
}
