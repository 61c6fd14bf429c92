//! The graph server and its replica, with killed processes and aborted requests, beside a serial run.

#[allow(dead_code)] // The example uses all of it.
#[path = "../../examples/graph/graph.rs"]
mod graph;
#[allow(dead_code)]
#[path = "../../examples/graph/replica.rs"]
mod replica;

use super::{an_instant, example, fed, kill_after, said, Ends};
use graph::{Graph, Request};
use replica::{Job, Queue, Replica};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use systx::{Durability, Error, Options, OrderError, Systx};

const KINDS: [(&str, [&str; 3]); 2] =
    [("dense", ["dense", "70", "600"]), ("sparse", ["sparse", "300", "450"])];

fn run(arguments: &[&dyn AsRef<std::ffi::OsStr>]) -> String {
    let mut command = example("graph");
    // Numbers are those of a process group.
    said(command.args(arguments).process_group(0).output().unwrap())
}

/// Two copies of a random graph, and random requests, some of which can't be understood.
fn made(dir: &Path, kind: &str, graph: [&str; 3], count: usize, seed: u64) -> (PathBuf, PathBuf, String) {
    let dir = dir.join(kind);
    fs::create_dir_all(&dir).unwrap();
    let (first, second) = (dir.join("first.graph"), dir.join("second.graph"));
    run(&[&"make", &first, &graph[0], &graph[1], &graph[2]]);
    fs::copy(&first, &second).unwrap();
    let all = run(&[&"requests", &graph[1], &"50", &count.to_string(), &seed.to_string()]);
    let mut lines: Vec<_> = all.lines().collect();
    lines[count / 3] = "path 0 99999999";
    lines[count / 2] = "and what is this";
    lines[count - 3] = "";
    (first, second, lines.join("\n") + "\n")
}

/// A server, and what it answers until it ends or is killed after some time.
fn served(graph: &Path, how: &str, requests: &str, killed_after: Option<Duration>) -> Vec<String> {
    let (log, socket) = (graph.with_extension("log"), graph.with_extension("socket"));
    let mut server = example("graph");
    server.arg("serve").args([graph, &log, &socket]).arg(how).stdout(Stdio::piped()).process_group(0);
    let began = Instant::now();
    let mut server = server.spawn().unwrap();
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let answers = scope.spawn(|| {
            // What one that was killed has left is not its socket.
            while std::os::unix::net::UnixStream::connect(&socket).is_err() {
                if ended.load(Ordering::Acquire) {
                    return Vec::new();
                }
                std::thread::yield_now();
            }
            let child =
                fed(example("graph").arg("ask").arg(&socket).arg("32").stderr(Stdio::null()), requests);
            let output = child.wait_with_output().unwrap();
            String::from_utf8(output.stdout).unwrap().lines().map(String::from).collect()
        });
        let ends = Ends(&ended);
        match killed_after {
            Some(instant) => kill_after(&mut server, instant.saturating_sub(began.elapsed())),
            None => assert!(server.wait().unwrap().success()),
        }
        drop(ends);
        answers.join().unwrap()
    })
}

/// A server that is killed and started anew: it goes on from its log.
pub fn killed(dir: &Path) {
    for (n, (kind, graph)) in KINDS.into_iter().enumerate() {
        let (graph, serial, requests) = made(dir, kind, graph, 600, n as u64);
        let began = Instant::now();
        let expected = served(&serial, "plain", &(requests.clone() + "stop\n"), None);
        let takes = began.elapsed();
        assert_eq!(expected.len(), 600);
        let expected: BTreeMap<_, _> = expected.iter().map(|line| line.split_once(' ').unwrap()).collect();
        let log = graph.with_extension("log");
        let mut answered = 0;
        for round in 0..12 {
            let logged = fs::read_to_string(&log).unwrap_or_default();
            assert!(requests.starts_with(&logged));
            let rest = &requests[logged.rfind('\n').map_or(0, |end| end + 1)..];
            let last = round == 11;
            let rest = if last { rest.to_owned() + "stop\n" } else { rest.to_owned() };
            let instant = if last { None } else { Some(an_instant(takes)) };
            for line in served(&graph, "4", &rest, instant).iter().filter_map(|line| line.split_once(' ')) {
                assert_eq!(expected[line.0], line.1, "the answer to request {}", line.0);
                answered += 1;
            }
        }
        assert!(answered > 0);
        assert_eq!(fs::read_to_string(&log).unwrap(), requests, "each request was logged once");
        assert!(run(&[&"edges", &graph]) == run(&[&"edges", &serial]), "{kind}");
    }
}

/// Replicas that are killed and go on from a checkpoint, and one that is not.
pub fn replica(dir: &Path) {
    for (n, (kind, graph)) in KINDS.into_iter().enumerate() {
        let (graph, serial, requests) = made(dir, kind, graph, 1500, 10 + n as u64);
        let (log, whole) = (graph.with_extension("log"), graph.with_extension("whole"));
        fs::copy(&graph, &whole).unwrap();
        fs::write(&log, requests).unwrap();
        assert!(run(&[&"replay", &serial, &log, &"plain"]).starts_with("1500 requests, 0 aborts"));
        let began = Instant::now();
        assert!(run(&[&"replay", &whole, &log, &"4"]).starts_with("1500 requests"));
        let takes = began.elapsed();
        assert!(fs::read(&whole).unwrap() == fs::read(&serial).unwrap(), "{kind}: each byte");
        for _ in 0..12 {
            let mut command = example("graph");
            command.arg("replay").args([&graph, &log]).arg("3").stdout(Stdio::null()).process_group(0);
            kill_after(&mut command.spawn().unwrap(), an_instant(takes / 3));
        }
        run(&[&"replay", &graph, &log, &"4"]);
        assert!(run(&[&"edges", &graph]) == run(&[&"edges", &serial]), "{kind}");
        assert_eq!(run(&[&"replay", &graph, &log, &"4"]).split(',').next().unwrap(), "0 requests");
    }
}

/// Threads that give transactions up in the middle, and an outsider that touches the file: each request has its effect
/// once, in its turn.
pub fn aborted(dir: &Path) {
    for (n, (kind, graph)) in KINDS.into_iter().enumerate() {
        let (graph, serial, requests) = made(dir, kind, graph, 400, 20 + n as u64);
        let log = graph.with_extension("log");
        fs::write(&log, &requests).unwrap();
        run(&[&"replay", &serial, &log, &"plain"]);
        let systx = Systx::new().unwrap();
        let replica = Replica::open(&graph, Some(systx.clone())).unwrap();
        let file = fs::File::options().read(true).write(true).open(&graph).unwrap();
        let shape = Graph::shape_of(&file).unwrap();
        let given_up = AtomicU64::new(0);
        let seeds: Vec<_> = (0..4).map(|_| fastrand::u64(..)).collect();
        // Half of its work, and then nothing.
        let give_up = |number: u64, line: &str| {
            let options = Options::new().durability(Durability::None).sequence(number);
            let tx = systx.begin(&options)?;
            if let Some(request) = Request::of_line(line, shape) {
                request.execute(&Graph { file: &tx.file_of(&file)?, shape })?;
            }
            given_up.fetch_add(1, Ordering::Relaxed);
            drop(tx);
            Err(Error::Order(OrderError::Gone { number }).into())
        };
        let execute = |number: u64, line: &str| match fastrand::u8(0..6) {
            0 => give_up(number, line).map_err(|error: std::io::Error| match Error::of(&error) {
                Some(Error::Conflict(_)) => Error::Order(OrderError::Gone { number }).into(),
                _ => error,
            }),
            1 => {
                // What is there, written once more by an outsider, is a change of what others have read.
                let mut byte = [0];
                file.read_exact_at(&mut byte, 4)?;
                file.write_all_at(&byte, 4)?;
                replica.execute(number, line)
            }
            _ => replica.execute(number, line),
        };
        let queue = Queue::default();
        let jobs = requests.lines().zip(1..);
        queue.put(jobs.map(|(line, number)| Job { number, line: line.into(), client: None }));
        queue.end();
        std::thread::scope(|scope| {
            let work = |seed| {
                fastrand::seed(seed);
                queue.work(execute)
            };
            let workers: Vec<_> = seeds.into_iter().map(|seed| scope.spawn(move || work(seed))).collect();
            for worker in workers {
                worker.join().unwrap().unwrap();
            }
        });
        assert!(given_up.into_inner() > 20);
        assert!(fs::read(&graph).unwrap() == fs::read(&serial).unwrap(), "{kind}: each byte");
    }
}
