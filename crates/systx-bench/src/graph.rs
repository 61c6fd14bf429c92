//! Does a server of ordered requests pay for its transactions with its threads (TxOS+ 8.1 and figure 4)?
//!
//! The example `graph` of the library answers requests on a unix socket, and replays the log of the same requests without
//! one. Both run plainly, which is one thread without transactions, and in transactions by several threads.

use crate::measure::Samples;
use crate::report::{digits, Report};
use crate::world::ran;
use crate::{Outcome, Setup};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Kind, vertices and edges: those of the paper.
const GRAPHS: [[&str; 3]; 2] = [["dense", "5000", "3174615"], ["sparse", "10900", "31180"]];
const WRITE_PERCENTS: [u64; 3] = [0, 50, 100];
/// Threads; the first is the serial loop.
const WAYS: [&str; 4] = ["plain", "1", "2", "4"];
/// Requests that a client keeps unanswered.
const WINDOW: &str = "64";

/// The runs of one way.
#[derive(Default)]
struct Runs {
    seconds: Samples,
    cpu_seconds: Samples,
    aborts: Samples,
}

pub fn measure(setup: &Setup, report: &mut Report) -> Outcome<()> {
    let program = setup.graph.as_ref().ok_or("--graph is missing; use scripts/bench.sh")?;
    report.heading("11. A graph server: ordered requests, by several threads");
    let dir = crate::world::fresh(setup, "graph")?;
    let mut served_rows = Vec::new();
    let mut replayed_rows = Vec::new();
    for graph in GRAPHS {
        let pristine = dir.join(graph[0]);
        let [kind, vertices, edges] = graph;
        let edges = if setup.quick { "20000" } else { edges };
        ran(Command::new(program).arg("make").arg(&pristine).args([kind, vertices, edges]))?;
        for percent in WRITE_PERCENTS {
            // A path through a sparse graph reads thousands of slots.
            let real = if percent == 100 || kind == "dense" { 5_000 } else { 200 };
            let count = setup.size(real, 100);
            let log = dir.join("log");
            let numbers = [vertices.to_owned(), percent.to_string(), count.to_string(), "7".into()];
            fs::write(&log, ran(Command::new(program).arg("requests").args(numbers))?.stdout)?;
            let mut served: [Runs; WAYS.len()] = Default::default();
            let mut replayed: [Runs; WAYS.len()] = Default::default();
            for repeat in 0..setup.repeats {
                for turn in 0..WAYS.len() {
                    // Each is the first one in turn.
                    let way = (turn + repeat) % WAYS.len();
                    let runs = Run { program, dir: &dir, pristine: &pristine, log: &log, how: WAYS[way] };
                    runs.replay(&mut replayed[way])?;
                    runs.serve(&mut served[way])?;
                }
            }
            served_rows.push(row(kind, percent, count, &served));
            replayed_rows.push(row(kind, percent, count, &replayed));
        }
    }
    let head = [
        "graph, writes",
        "serial, requests/s (min time)",
        "median",
        "1 thread, ratio of min",
        "of median",
        "2 threads",
        "",
        "aborts",
        "4 threads",
        "",
        "aborts",
        "CPU µs a request: serial",
        "1 thread",
        "4 threads",
    ];
    report.table(
        "Over a unix socket, 64 requests unanswered; ratios are of throughput, in transactions to serial without them \
         (goals: 1.5 at 0 % writes, 0.9 at 100 %); aborts per 100 requests; CPU is the server's, at least. Durability none.",
        &head,
        &served_rows,
    );
    report.table(
        "The library alone, without socket and client: a replica that replays the same requests (goal: 1.25, which is \
         20 % less time).",
        &head,
        &replayed_rows,
    );
    Ok(())
}

fn row(kind: &str, percent: u64, count: usize, ways: &[Runs; WAYS.len()]) -> Vec<String> {
    let serial = &ways[0].seconds;
    let mut row = vec![format!("{kind}, {percent} %")];
    row.extend([serial.min(), serial.median()].map(|seconds| digits(count as f64 / seconds)));
    for (way, runs) in ways.iter().enumerate().skip(1) {
        let ratios = [serial.min() / runs.seconds.min(), serial.median() / runs.seconds.median()];
        row.extend(ratios.map(|ratio| format!("{ratio:.2}")));
        if way > 1 {
            row.push(format!("{:.1}", 100.0 * runs.aborts.median() / count as f64));
        }
    }
    row.extend([0, 1, 3].map(|way| digits(ways[way].cpu_seconds.min() * 1e6 / count as f64)));
    row
}

/// One run, on a fresh copy of the graph.
struct Run<'a> {
    program: &'a Path,
    dir: &'a Path,
    pristine: &'a Path,
    log: &'a Path,
    how: &'a str,
}

impl Run<'_> {
    fn copy(&self) -> Outcome<PathBuf> {
        let graph = self.dir.join("graph");
        fs::copy(self.pristine, &graph)?;
        fs::write(self.dir.join("graph.checkpoint"), "0")?;
        // What is dirty is written now, and not during the run.
        crate::world::sync_all(self.dir)?;
        Ok(graph)
    }

    /// A command in a process group of its own, to which the numbers belong.
    fn command(&self, verb: &str) -> Command {
        let mut command = Command::new(self.program);
        command.arg(verb).process_group(0);
        command
    }

    fn replay(&self, runs: &mut Runs) -> Outcome<()> {
        let graph = self.copy()?;
        let output = ran(self.command("replay").arg(&graph).arg(self.log).arg(self.how))?;
        let [_, aborts, seconds, cpu_seconds] = numbers(&output.stdout)?;
        runs.seconds.push(seconds);
        runs.cpu_seconds.push(cpu_seconds);
        runs.aborts.push(aborts);
        Ok(())
    }

    fn serve(&self, runs: &mut Runs) -> Outcome<()> {
        let graph = self.copy()?;
        let (log, socket) = (self.dir.join("served.log"), self.dir.join("socket"));
        for left in [&log, &socket] {
            let _ = fs::remove_file(left);
        }
        let requests = self.dir.join("asked");
        let mut lines = fs::read(self.log)?;
        lines.extend_from_slice(b"stop\n");
        fs::write(&requests, lines)?;
        let mut server = self.command("serve");
        let server = server.arg(&graph).arg(&log).arg(&socket).arg(self.how);
        let mut server = server.stdout(Stdio::piped()).spawn()?;
        while !socket.exists() {
            if let Some(status) = server.try_wait()? {
                return Err(format!("the server has ended: {status}").into());
            }
            std::thread::yield_now();
        }
        let mut client = Command::new(self.program);
        client.arg("ask").arg(&socket).arg(WINDOW).stdin(fs::File::open(&requests)?);
        let asked = ran(&mut client);
        if asked.is_err() {
            // Ours, started above.
            server.kill()?;
        }
        let served = server.wait_with_output()?;
        let [_, seconds] = numbers(&asked?.stderr)?;
        let [_, aborts, _, cpu_seconds] = numbers(&served.stdout)?;
        runs.seconds.push(seconds);
        runs.cpu_seconds.push(cpu_seconds);
        runs.aborts.push(aborts);
        Ok(())
    }
}

/// The numbers in a line.
fn numbers<const N: usize>(line: &[u8]) -> Outcome<[f64; N]> {
    let line = String::from_utf8_lossy(line);
    let words = line.split(|c: char| !c.is_ascii_digit() && c != '.');
    let all: Vec<f64> = words.filter_map(|word| word.parse().ok()).collect();
    all.try_into().map_err(|_| format!("not {N} numbers: {line}").into())
}
