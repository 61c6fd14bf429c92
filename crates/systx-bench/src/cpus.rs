//! Does it pay to answer on the CPU of the thread that asks (`SYSTX_CPU=shared`)?

use crate::measure::Samples;
use crate::programs::{prepared, Before, Input};
use crate::report::{digits, Report};
use crate::start::{systx, timed};
use crate::{Outcome, Setup};

/// A program, and what is in its directory.
struct Asker {
    name: &'static str,
    before: Before,
    /// The shell script; `$1` is the archive.
    script: &'static str,
}

const ASKERS: &[Asker] = &[
    Asker { name: "find", before: Before::Tree, script: "find . -newer ." },
    Asker { name: "tar x", before: Before::Nothing, script: "tar xf \"$1\"" },
    Asker { name: "cp -r", before: Before::Tree, script: "cp -r tree copy" },
    Asker { name: "rm -r", before: Before::Tree, script: "rm -r tree" },
    Asker { name: "make -j2", before: Before::Sources, script: "make -sj2" },
    Asker { name: "10,000 names, one by one", before: Before::Nothing, script: LOOKUPS },
];

const LOOKUPS: &str = "exec python3 -c '
import os
for n in range(10000): os.path.lexists(str(n))'";

pub fn measure(setup: &Setup, report: &mut Report) -> Outcome<()> {
    report.heading("9. The CPU of the thread that answers");
    let input = Input::make(setup)?;
    let mut rows = Vec::new();
    for asker in ASKERS {
        let mut samples = [Samples::default(), Samples::default()];
        for repeat in 0..setup.repeats {
            // Each is the first one in every other round.
            for way in [repeat % 2, 1 - repeat % 2] {
                let dir = prepared(setup, &input, asker.before)?;
                let mut command = systx(setup, &dir);
                command.env("SYSTX_CPU", ["kernel", "shared"][way]);
                command.args(["--", "/bin/sh", "-c", asker.script, "sh"]).arg(input.archive());
                samples[way].push(timed(&mut command)?);
            }
        }
        let [kernel, shared] = &samples;
        let mut row = vec![asker.name.to_owned()];
        row.extend([kernel.min(), kernel.median(), shared.min(), shared.median()].map(digits));
        row.extend(
            [shared.min() / kernel.min(), shared.median() / kernel.median()].map(|r| format!("{r:.2}")),
        );
        rows.push(row);
    }
    let head = ["", "kernel's min ms", "median", "shared min", "median", "ratio of min", "of median"];
    report.table("", &head, &rows);
    Ok(())
}
