//! What do ordinary programs cost inside, until everything is durable?

use crate::measure::Samples;
use crate::report::{digits, Report};
use crate::start::{systx, timed};
use crate::world::{fresh, sync_all};
use crate::{Outcome, Setup};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Files of the tree that is packed, copied, listed and removed.
const FILES: usize = 9_000;
const UNITS: usize = 24;

/// Name, target, the shell script (`$1` is the input), and whether the result of the plain run is its input.
struct Program {
    name: &'static str,
    target: &'static str,
    /// Made before, in the directory.
    before: Before,
    script: &'static str,
}

/// What a program finds in its directory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Before {
    Nothing,
    Tree,
    Sources,
}

/// The directory with everything that programs are given.
pub struct Input(PathBuf);

impl Input {
    /// Makes a tree, sources, and an archive of the tree.
    pub fn make(setup: &Setup) -> Outcome<Input> {
        let input = Input(fresh(setup, "input")?);
        make_tree(&input.0.join("tree"), setup.size(FILES, 300))?;
        make_sources(&input.0.join("sources"), setup.size(UNITS, 3))?;
        timed(Command::new("tar").arg("cf").arg(input.archive()).arg("-C").arg(&input.0).arg("tree"))?;
        Ok(input)
    }

    /// Path of the archive.
    pub fn archive(&self) -> PathBuf {
        self.0.join("tree.tar")
    }
}

const PROGRAMS: &[Program] = &[
    Program { name: "create 10,000 × 100 B", target: "1.5", before: Before::Nothing, script: CREATE },
    Program {
        name: "the same in a new directory",
        target: "–",
        before: Before::Nothing,
        script: CREATE_BELOW,
    },
    Program { name: "tar x", target: "2.0", before: Before::Nothing, script: "tar xf \"$1\"" },
    Program { name: "cp -r", target: "–", before: Before::Tree, script: "cp -r tree copy" },
    Program { name: "find, first", target: "4", before: Before::Tree, script: "find . -newer . > /dev/null" },
    Program {
        name: "find, twice",
        target: "–",
        before: Before::Tree,
        script: "find . -newer . > /dev/null; find . -newer . > /dev/null",
    },
    Program { name: "rm -rf", target: "1.5", before: Before::Tree, script: "rm -rf tree" },
    Program {
        name: "make -j2 of 24 units of C",
        target: "1.05",
        before: Before::Sources,
        script: "make -sj2",
    },
];

const CREATE: &str = "exec python3 -c '
for n in range(10000):
    with open(str(n), \"wb\") as f: f.write(b\"x\" * 100)'";

const CREATE_BELOW: &str = "exec python3 -c '
import os
os.mkdir(\"new\")
for n in range(10000):
    with open(\"new/%d\" % n, \"wb\") as f: f.write(b\"x\" * 100)'";

pub fn measure(setup: &Setup, report: &mut Report) -> Outcome<()> {
    report.heading("8. Programs, until durable");
    let input = Input::make(setup)?;
    let archive = input.archive();
    let mut rows = Vec::new();
    for program in PROGRAMS {
        let (mut plain, mut ours, mut requests) =
            (Samples::default(), Samples::default(), Samples::default());
        for _ in 0..setup.repeats {
            let dir = prepared(setup, &input, program.before)?;
            plain.push(timed(
                Command::new("/bin/sh")
                    .args(["-c", &format!("{{ {}\n}} && exec sync -f .", program.script), "sh"])
                    .arg(&archive)
                    .current_dir(&dir),
            )?);
            for (samples, options) in [(&mut ours, &[][..]), (&mut requests, &["--no-native"][..])] {
                let dir = prepared(setup, &input, program.before)?;
                let mut command = systx(setup, &dir);
                let words = ["--", "/bin/sh", "-c", program.script, "sh"];
                samples.push(timed(command.args(options).args(words).arg(&archive))?);
            }
        }
        let all = [plain.min(), plain.median(), ours.min(), ours.median(), requests.min(), requests.median()];
        let numbers = all.map(digits);
        let mut row = vec![program.name.to_owned()];
        row.extend(numbers);
        row.push(format!("{:.2}", ours.min() / plain.min()));
        row.push(format!("{:.2}", requests.min() / plain.min()));
        row.push(program.target.to_owned());
        rows.push(row);
    }
    let head = [
        "",
        "plain min ms",
        "median",
        "systx min",
        "median",
        "`--no-native` min",
        "median",
        "ratio of min",
        "of `--no-native`",
        "target",
    ];
    report.table("Plain: the program, then `sync -f`.", &head, &rows);
    Ok(())
}

/// A fresh directory with what the program needs, synced.
pub fn prepared(setup: &Setup, input: &Input, before: Before) -> Outcome<PathBuf> {
    let dir = fresh(setup, "programs")?;
    let from = match before {
        Before::Nothing => None,
        Before::Tree => Some("tree"),
        Before::Sources => Some("sources/."),
    };
    if let Some(from) = from {
        timed(Command::new("cp").arg("-a").arg(input.0.join(from)).arg(&dir))?;
    }
    sync_all(&dir)?;
    Ok(dir)
}

/// A tree like a source tree: directories of 30 files, of 100 bytes to 24 KiB, six deep at most.
fn make_tree(top: &Path, files: usize) -> Outcome<()> {
    let mut made = 0;
    for d in 0.. {
        let dir = top.join(format!("p{}", d % 7)).join(format!("q{}", d % 31)).join(format!("r{d}"));
        std::fs::create_dir_all(&dir)?;
        for f in 0..30 {
            if made == files {
                return Ok(());
            }
            let size = 100 + (made * 7919) % 24_000 / (1 + made % 5);
            std::fs::write(dir.join(format!("file{f}.c")), vec![b'a' + (made % 26) as u8; size])?;
            made += 1;
        }
    }
    Ok(())
}

/// A C program of many small units.
fn make_sources(dir: &Path, units: usize) -> Outcome<()> {
    std::fs::create_dir_all(dir)?;
    let mut header = String::new();
    let mut main = String::from("#include <stdio.h>\n#include \"all.h\"\nint main(void) {\n\tlong s = 0;\n");
    let mut objects = String::from("main.o");
    for n in 0..units {
        let _ = writeln!(header, "long f{n}(long);");
        let _ = writeln!(main, "\ts += f{n}(s);");
        let _ = write!(objects, " u{n}.o");
        let mut unit = String::from(
            "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include \"all.h\"\n",
        );
        for k in 0..40 {
            let _ = writeln!(
                unit,
                "static long g{k}(long x) {{ for (long i = 0; i < {k}; i++) x = x * 31 + i % 7; return x; }}"
            );
        }
        let _ = writeln!(unit, "long f{n}(long x) {{");
        for k in 0..40 {
            let _ = writeln!(unit, "\tx ^= g{k}(x + {n});");
        }
        unit.push_str("\treturn x;\n}\n");
        std::fs::write(dir.join(format!("u{n}.c")), unit)?;
    }
    main.push_str("\treturn printf(\"%ld\\n\", s) < 0;\n}\n");
    std::fs::write(dir.join("all.h"), header)?;
    std::fs::write(dir.join("main.c"), main)?;
    let makefile = format!("CFLAGS = -O1\nall: {objects}\n\t$(CC) -o prog {objects}\n%.o: %.c all.h\n\t$(CC) $(CFLAGS) -c -o $@ $<\n");
    std::fs::write(dir.join("Makefile"), makefile)?;
    Ok(())
}
