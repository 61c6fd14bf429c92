//! What does publication cost a step, by kind?

use crate::measure::Samples;
use crate::report::{digits, Report};
use crate::world::{fresh, plain_files, said, sync_all, Work, World};
use crate::{Outcome, Setup};
use systx_engine::transaction::{Node, SetAttr};
use systx_os::Rename;

const STEPS: usize = 1_000;

/// What to do to file `n` of `d`.
type Change = fn(&mut Work, Node, usize) -> Outcome<()>;

/// Name, whether files are there before, steps a change, the change.
const KINDS: &[(&str, bool, usize, Change)] = &[
    ("PLACE: a new file", false, 1, |t, d, n| t.create(d, &n.to_string(), &[b'n'; 100]).map(drop)),
    ("PLACE: a new directory", false, 1, |t, d, n| t.mkdir(d, &n.to_string()).map(drop)),
    ("REPLACE: a new file renamed over an old one", true, 1, |t, d, n| {
        let name = n.to_string();
        t.create(d, "new", &[b'n'; 100])?;
        t.0.rename(d, b"new", d, name.as_bytes(), Rename::Replace).map_err(said)
    }),
    ("REMOVE", true, 1, |t, d, n| t.0.unlink(d, n.to_string().as_bytes()).map_err(said)),
    ("PATCH: 100 bytes in place, with its time", true, 2, |t, d, n| {
        let node = t.find(d, &n.to_string())?;
        t.write(node, &[b'n'; 100], 0)
    }),
    ("TAKE + PLACE: a rename", true, 2, |t, d, n| {
        t.0.rename(d, n.to_string().as_bytes(), d, format!("r{n}").as_bytes(), Rename::NoReplace)
            .map_err(said)
    }),
    ("ATTR: chmod", true, 1, |t, d, n| {
        let node = t.find(d, &n.to_string())?;
        t.0.setattr(node, &SetAttr { mode: Some(0o600), ..SetAttr::default() }).map(drop).map_err(said)
    }),
    ("LINK: one more name", true, 1, |t, d, n| {
        let node = t.find(d, &n.to_string())?;
        t.0.link(node, d, format!("l{n}").as_bytes()).map(drop).map_err(said)
    }),
];

pub fn measure(setup: &Setup, report: &mut Report) -> Outcome<()> {
    let count = setup.size(STEPS, 100);
    report.heading(&format!("5. Publication, a step (commits of {count} changes)"));
    let mut rows = Vec::new();
    for (name, files, per_change, change) in KINDS {
        let world = World::open(&fresh(setup, "steps")?)?;
        let mut phases: [Samples; 4] = Default::default();
        let mut steps = 0;
        for _ in 0..setup.repeats {
            let dir = world.path.join("d");
            if dir.exists() {
                std::fs::remove_dir_all(&dir)?;
            }
            std::fs::create_dir(&dir)?;
            if *files {
                plain_files(&dir, count, &[b'o'; 100])?;
            }
            sync_all(&dir)?;
            let mut t = world.begin()?;
            let root = t.root();
            let d = t.find(root, "d")?;
            for n in 0..count {
                change(&mut t, d, n)?;
            }
            world.meter.take_marks();
            let begin = world.meter.now_mark();
            steps = t.commit()?.steps;
            let end = world.meter.now_mark();
            let marks = world.meter.take_marks();
            let [publish, reclaim] = marks[..] else {
                return Err(format!("{} marks in one commit", marks.len()).into());
            };
            let cpu = |from: crate::meter::Mark, to: crate::meter::Mark| {
                (to.cpu_us - from.cpu_us - (to.sync_cpu_us - from.sync_cpu_us)) / steps as f64
            };
            phases[0].push(cpu(begin, publish));
            phases[1].push(cpu(publish, reclaim));
            phases[2].push(cpu(reclaim, end));
            phases[3].push(cpu(begin, end));
        }
        let mut row = vec![(*name).to_owned(), format!("{:.2}", steps as f64 / count as f64)];
        row.push(digits(phases[0].min()));
        row.push(format!("**{}**", digits(phases[1].min())));
        row.extend([digits(phases[1].median()), digits(phases[2].min()), digits(phases[3].min())]);
        rows.push(row);
        if steps < (count * per_change) as u64 {
            report.line(&format!("{name}: only {steps} steps, {} were expected.", count * per_change));
        }
    }
    report.table(
        "CPU in µs a step, without syncs (target for publication: 20).",
        &[
            "",
            "steps a change",
            "prepare to commit point",
            "publish (min)",
            "median",
            "reclaim",
            "whole commit",
        ],
        &rows,
    );
    Ok(())
}
