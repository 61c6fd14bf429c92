//! A replicated graph server: requests that several threads execute, with answers and state as if one thread did.
//!
//! - `cargo run -p systx --example graph -- make GRAPH dense|sparse VERTICES EDGES` makes a random graph.
//! - `… serve GRAPH LOG SOCKET plain|THREADS` answers on a unix socket. Requests are lines: `add U V`, `remove U V`,
//!   `edge U V`, `path U V`; an answer is a line, too: the request's number, and what it is. `stop` ends the server.
//! - `… replay GRAPH LOG plain|THREADS` is a replica that catches up: it executes what its graph lacks.
//! - `… requests VERTICES WRITE-PERCENT COUNT SEED` prints random requests, `… ask SOCKET WINDOW` sends standard input
//!   and prints the answers, `… edges GRAPH` prints the edges.
//!
//! `plain` is one thread without transactions. Give each server a process group of its own, as a shell does: the numbers
//! are those of the group.

mod graph;
mod replica;
mod server;

use graph::{Graph, Kind, Shape};
use replica::{Queue, Replica};
use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use systx::Systx;

/// A file in memory, to make a large graph without a call for each edge.
struct Memory(RefCell<Vec<u8>>);

impl FileExt for Memory {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let all = self.0.borrow();
        let there = all.get(offset as usize..).unwrap_or_default();
        let read = buf.len().min(there.len());
        buf[..read].copy_from_slice(&there[..read]);
        Ok(read)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let (mut all, end) = (self.0.borrow_mut(), offset as usize + bytes.len());
        if all.len() < end {
            all.resize(end, 0);
        }
        all[offset as usize..end].copy_from_slice(bytes);
        Ok(bytes.len())
    }
}

fn make(path: &Path, shape: Shape, edges: u64) -> io::Result<()> {
    fastrand::seed(1);
    let memory = Memory(RefCell::default());
    let graph = Graph { file: &memory, shape };
    graph.make()?;
    // Sparse: an end of a random edge is a vertex picked in proportion to its degree, so that few have many neighbours.
    let mut ends = vec![0];
    let mut left = edges;
    while left > 0 {
        let any = || fastrand::u32(0..shape.vertices);
        let known = || ends[fastrand::usize(0..ends.len())];
        let newest = ends.len() as u32 / 2 + 1;
        let (u, v) = match shape.kind {
            Kind::Dense => (any(), any()),
            Kind::Sparse if newest < shape.vertices => (newest, known()),
            Kind::Sparse => (known(), known()),
        };
        if graph.set_edge(u, v, true)? {
            left -= 1;
            if shape.kind == Kind::Sparse {
                ends.extend([u, v]);
            }
        }
    }
    std::fs::write(path, memory.0.into_inner())
}

/// Random requests: edges added and removed, as many as `write_percent`; paths else.
fn requests(vertices: u32, write_percent: u32, count: u64, seed: u64) -> String {
    fastrand::seed(seed);
    let any = || fastrand::u32(0..vertices);
    let request = |_| {
        let verb = match fastrand::u32(0..100) < write_percent {
            true if fastrand::bool() => "add",
            true => "remove",
            false => "path",
        };
        format!("{verb} {} {}\n", any(), any())
    };
    (0..count).map(request).collect()
}

/// Executes what the graph lacks of a log; returns the number of requests.
fn replay(replica: &Arc<Replica>, log: &Path, threads: usize) -> io::Result<u64> {
    let queue = Queue::default();
    let jobs = server::logged(log, replica.checkpoint()?)?;
    let Some(last) = jobs.last().map(|job| job.number) else { return Ok(0) };
    let count = jobs.len() as u64;
    queue.put(jobs);
    queue.end();
    std::thread::scope(|scope| {
        let work = || queue.work(|number, line| replica.execute(number, line));
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("it does not panic"))
    })?;
    replica.set_checkpoint(last)?;
    Ok(count)
}

/// Opens the graph for so many threads, or `plain`.
fn open(path: &str, how: &str) -> io::Result<(Arc<Replica>, usize)> {
    let (systx, threads) = match how {
        "plain" => (None, 1),
        threads => (Some(Systx::new()?), threads.parse().map_err(io::Error::other)?),
    };
    Ok((Arc::new(Replica::open(Path::new(path), systx)?), threads))
}

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse::<u64>().map_err(io::Error::other);
    let began = Instant::now();
    let (replica, count) = match arguments.as_slice() {
        ["make", path, kind, vertices, edges] => {
            let kind = if *kind == "dense" { Kind::Dense } else { Kind::Sparse };
            return make(Path::new(path), Shape { kind, vertices: number(vertices)? as u32 }, number(edges)?);
        }
        ["requests", vertices, percent, count, seed] => {
            let all =
                requests(number(vertices)? as u32, number(percent)? as u32, number(count)?, number(seed)?);
            return io::stdout().write_all(all.as_bytes());
        }
        ["edges", path] => {
            let file = File::open(path)?;
            let (mut text, shape) = (String::new(), Graph::shape_of(&file)?);
            Graph { file: &file, shape }.edges(|u, v| text.push_str(&format!("{u} {v}\n")))?;
            return io::stdout().write_all(text.as_bytes());
        }
        ["ask", socket, window] => {
            let mut lines = String::new();
            io::stdin().read_to_string(&mut lines)?;
            let answers = server::ask(Path::new(socket), &lines, number(window)? as usize)?;
            eprintln!("{} answers in {:.6} s", answers.len(), began.elapsed().as_secs_f64());
            return io::stdout().write_all(answers.concat().as_bytes());
        }
        ["serve", path, log, socket, how] => {
            let (replica, threads) = open(path, how)?;
            let count = server::serve(&replica, Path::new(log), Path::new(socket), threads)?;
            (replica, count)
        }
        ["replay", path, log, how] => {
            let (replica, threads) = open(path, how)?;
            let count = replay(&replica, Path::new(log), threads)?;
            (replica, count)
        }
        _ => return Err(io::Error::other("usage: graph make|serve|replay|requests|ask|edges …")),
    };
    let aborts = replica.tries().saturating_sub(count);
    let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let cpu_s = cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9;
    let took_s = began.elapsed().as_secs_f64();
    println!("{count} requests, {aborts} aborts, {took_s:.6} s, {cpu_s:.6} s of CPU");
    Ok(())
}
