//! What does the commit of a new tree of many small files cost beyond its flushes?

use crate::measure::{cpu_us, wall_ms, Samples};
use crate::report::Report;
use crate::world::{fresh, sync_all, World};
use crate::{Outcome, Setup};

const FILES: usize = 10_000;
const FILES_PER_DIRECTORY: usize = 100;
const CONTENT: [u8; 100] = [b'x'; 100];

pub fn measure(setup: &Setup, report: &mut Report) -> Outcome<()> {
    let files = setup.size(FILES, 500);
    report.heading(&format!("2. A new tree of {files} files of 100 bytes"));
    let world = World::new(setup, "tree")?;
    let mut commit = Samples::default();
    let mut beyond = Samples::default();
    let mut cpu = Samples::default();
    let mut sync = Samples::default();
    let mut plain_sync = Samples::default();
    let mut building = Samples::default();
    let mut plain_building = Samples::default();
    let mut calls = Vec::new();
    let mut flushes = 0;
    for n in 0..setup.repeats {
        let plain = fresh(setup, "tree-plain")?;
        sync_all(&plain)?;
        plain_building.push(done(wall_ms(|| build_plain(&plain, files)))?);
        plain_sync.push(done(wall_ms(|| sync_all(&plain)))?);

        let mut t = world.begin()?;
        let (ms, built) = wall_ms(|| -> Outcome<()> {
            let root = t.root();
            let top = t.mkdir(root, &format!("top{n}"))?;
            for d in 0..files / FILES_PER_DIRECTORY {
                let dir = t.mkdir(top, &format!("d{d}"))?;
                for f in 0..FILES_PER_DIRECTORY {
                    t.create(dir, &format!("f{f}"), &CONTENT)?;
                }
            }
            Ok(())
        });
        built?;
        building.push(ms);
        world.meter.reset();
        let before = cpu_us();
        let (ms, committed) = wall_ms(|| t.commit());
        committed?;
        let (spent, all_cpu) = (world.meter.spent(), cpu_us() - before);
        commit.push(ms);
        sync.push(spent.wall_us / 1e3);
        beyond.push(ms - spent.wall_us / 1e3);
        cpu.push((all_cpu - spent.cpu_us) / 1e3);
        flushes = world.meter.flushes();
        calls = world.meter.calls();
    }
    report.compared(
        &format!("Target: 50 ms beyond the flushes. Syncs asked for by one commit: {flushes}."),
        "ms",
        &[
            ("plain: syncfs of the same tree alone", &plain_sync),
            ("commit, whole", &commit),
            ("of it: in syncs", &sync),
            ("of it: **beyond the syncs**", &beyond),
            ("of it: CPU beyond the syncs", &cpu),
        ],
    );
    report.compared(
        "Before the commit, without a view between:",
        "ms",
        &[("plain: mkdir, create, write, close", &plain_building), ("the same verbs", &building)],
    );
    report.calls("calls of one commit of a tree", &calls);
    Ok(())
}

fn done((ms, outcome): (f64, Outcome<()>)) -> Outcome<f64> {
    outcome.map(|()| ms)
}

fn build_plain(dir: &std::path::Path, files: usize) -> Outcome<()> {
    for d in 0..files / FILES_PER_DIRECTORY {
        let dir = dir.join(format!("d{d}"));
        std::fs::create_dir(&dir)?;
        for f in 0..FILES_PER_DIRECTORY {
            std::fs::write(dir.join(format!("f{f}")), CONTENT)?;
        }
    }
    Ok(())
}
