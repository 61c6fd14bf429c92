//! How does the cost of a commit grow with what was changed, and with what was not?

use crate::measure::{cpu_us, wall_ms, Samples};
use crate::plot::{log_log, Series};
use crate::report::{digits, Report};
use crate::world::{plain_files, World};
use crate::{Outcome, Setup};

const CHANGED: [usize; 5] = [10, 100, 1_000, 10_000, 100_000];
const UNTOUCHED: [usize; 5] = [10, 100, 1_000, 10_000, 100_000];
/// Files changed while the untouched tree grows.
const FEW: usize = 100;
const FILES_PER_DIRECTORY: usize = 1_000;

/// What a transaction does to n files.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    New,
    InPlace,
    Removed,
}

pub fn measure(setup: &Setup, report: &mut Report) -> Outcome<()> {
    report.heading("3. Cost against size");
    std::fs::create_dir_all(&setup.plots)?;
    changed(setup, report)?;
    untouched(setup, report)
}

fn changed(setup: &Setup, report: &mut Report) -> Outcome<()> {
    let kinds = [("new", Kind::New), ("changed in place", Kind::InPlace), ("removed", Kind::Removed)];
    let mut rows = Vec::new();
    let (mut series, mut growth) = (Vec::new(), Vec::new());
    for (name, kind) in kinds {
        let mut points = Vec::new();
        for count in CHANGED.into_iter().filter(|n| *n <= setup.size(usize::MAX, 1_000)) {
            let world = World::new(setup, "curve")?;
            let (wall, cpu) = match commits(setup, &world, kind, count) {
                Ok(costs) => costs,
                // What a machine can't do is a result, too.
                Err(why) => {
                    report.line(&format!("**{count} × {name}: did not commit**: {why}"));
                    break;
                }
            };
            points.push((count as f64, wall.min()));
            rows.push(row(name, count, &wall, &cpu, count));
        }
        growth.push(format!("{name} {:.2}", exponent(&points)));
        series.push(Series { name: name.into(), points });
    }
    report.table("Commit against the number of changed files:", &HEAD, &rows);
    report.line(&format!(
        "The cost grows with this power of the number of files, by least squares: {}.",
        growth.join(", ")
    ));
    let svg = log_log(
        "Durable commit against the number of changed files (100 bytes each)",
        "changed files",
        "ms (min)",
        &series,
    );
    std::fs::write(setup.plots.join("changed.svg"), svg)?;
    report.line("![commit against changed files](plots/changed.svg)");
    Ok(())
}

/// The power of the first coordinate with which the second grows.
fn exponent(points: &[(f64, f64)]) -> f64 {
    let n = points.len() as f64;
    let mean = |of: &dyn Fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / n;
    let (x, y) = (mean(&|p| p.0.ln()), mean(&|p| p.1.ln()));
    let covariance = mean(&|p| (p.0.ln() - x) * (p.1.ln() - y));
    covariance / mean(&|p| (p.0.ln() - x).powi(2))
}

fn untouched(setup: &Setup, report: &mut Report) -> Outcome<()> {
    let mut rows = Vec::new();
    let mut series = Vec::new();
    for (name, kind) in [("100 new", Kind::New), ("100 changed in place", Kind::InPlace)] {
        let world = World::new(setup, "untouched")?;
        let mut there = 0;
        let mut points = Vec::new();
        for count in UNTOUCHED.into_iter().filter(|n| *n <= setup.size(usize::MAX, 1_000)) {
            while there < count {
                let more = (count - there).min(FILES_PER_DIRECTORY);
                let dir = world.path.join(format!("untouched{there}"));
                std::fs::create_dir(&dir)?;
                plain_files(&dir, more, &[b'u'; 100])?;
                there += more;
            }
            let (wall, cpu) = commits(setup, &world, kind, FEW)?;
            points.push((count as f64, wall.min()));
            rows.push(row(name, count, &wall, &cpu, FEW));
        }
        series.push(Series { name: name.into(), points });
    }
    report.table("Commit against the number of files that it does not touch:", &HEAD, &rows);
    let svg = log_log(
        "Durable commit against the size of the untouched tree",
        "untouched files",
        "ms (min)",
        &series,
    );
    std::fs::write(setup.plots.join("untouched.svg"), svg)?;
    report.line("![commit against untouched files](plots/untouched.svg)");
    Ok(())
}

const HEAD: [&str; 6] = ["", "files", "min ms", "median ms", "CPU ms (min)", "CPU µs a changed file"];

fn row(name: &str, count: usize, wall: &Samples, cpu: &Samples, changed: usize) -> Vec<String> {
    let each = cpu.min() * 1e3 / changed as f64;
    let numbers = [wall.min(), wall.median(), cpu.min(), each].map(digits);
    [name.to_owned(), count.to_string()].into_iter().chain(numbers).collect()
}

/// Wall and CPU milliseconds of commits that change `count` files; CPU without syncs.
fn commits(setup: &Setup, world: &World, kind: Kind, count: usize) -> Outcome<(Samples, Samples)> {
    let (mut wall, mut cpu) = (Samples::default(), Samples::default());
    let dir = world.path.join("changed");
    for n in 0..setup.repeats {
        if dir.exists() {
            std::fs::remove_dir_all(&dir)?;
        }
        std::fs::create_dir(&dir)?;
        if kind != Kind::New {
            plain_files(&dir, count, &[b'a'; 100])?;
        }
        crate::world::sync_all(&dir)?;
        let mut t = world.begin()?;
        let root = t.root();
        let dir = t.find(root, "changed")?;
        for f in 0..count {
            let name = f.to_string();
            match kind {
                Kind::New => drop(t.create(dir, &name, &[b'0' + n as u8; 100])?),
                Kind::InPlace => {
                    let node = t.find(dir, &name)?;
                    t.write(node, &[b'0' + n as u8; 100], 0)?;
                }
                Kind::Removed => t.0.unlink(dir, name.as_bytes()).map_err(crate::world::said)?,
            }
        }
        world.meter.reset();
        let before = cpu_us();
        let (ms, committed) = wall_ms(|| t.commit());
        committed?;
        wall.push(ms);
        cpu.push((cpu_us() - before - world.meter.spent().cpu_us) / 1e3);
    }
    Ok((wall, cpu))
}
