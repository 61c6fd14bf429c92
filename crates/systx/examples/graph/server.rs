//! The server: gives requests their numbers, logs them, and answers.
//!
//! A line of the log is a request, and its number is the line's. That is all that a replica elsewhere needs to come to
//! the same state, and what this one goes on from after it was killed.

use super::replica::{Job, Queue, Replica};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// The lines of the log behind a number.
pub fn logged(log: &Path, behind: u64) -> io::Result<Vec<Job>> {
    let lines = BufReader::new(File::open(log)?).lines().zip(1..);
    let job = |(line, number): (io::Result<String>, u64)| Ok(Job { number, line: line?, client: None });
    lines.filter(|(_, number)| *number > behind).map(job).collect()
}

/// The log, open to append, and the number of its last line.
struct Log {
    file: File,
    last: u64,
}

impl Log {
    fn open(path: &Path) -> io::Result<Log> {
        let mut file = File::options().read(true).append(true).create(true).open(path)?;
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        // A line that was cut off has no number yet.
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        file.set_len(whole as u64)?;
        let last = text[..whole].iter().filter(|byte| **byte == b'\n').count();
        Ok(Log { file, last: last as u64 })
    }

    /// Appends lines; returns the number of the first.
    fn append(&mut self, lines: &[u8]) -> io::Result<u64> {
        self.file.write_all(lines)?;
        let first = self.last + 1;
        self.last += lines.iter().filter(|byte| **byte == b'\n').count() as u64;
        Ok(first)
    }
}

/// Answers on a socket until a client says `stop`; returns the number of requests.
pub fn serve(replica: &Arc<Replica>, log: &Path, socket: &Path, threads: usize) -> io::Result<u64> {
    let queue = Arc::new(Queue::default());
    let workers: Vec<_> = (0..threads)
        .map(|_| (queue.clone(), replica.clone()))
        .map(|(queue, replica)| {
            std::thread::spawn(move || queue.work(|number, line| replica.execute(number, line)))
        })
        .collect();
    let behind = replica.checkpoint()?;
    let log_path = log;
    let log = Log::open(log_path)?;
    queue.put(logged(log_path, behind)?);
    let log = Arc::new(Mutex::new(log));
    // Left by one that was killed.
    let _ = std::fs::remove_file(socket);
    let listener = UnixListener::bind(socket)?;
    let (accepting, numbering) = (queue.clone(), log.clone());
    // It ends with the process.
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let (queue, log) = (accepting.clone(), numbering.clone());
            std::thread::spawn(move || receive(client, &queue, &log));
        }
    });
    for worker in workers {
        if let Err(error) = worker.join().expect("it does not panic") {
            // The log has what is missing.
            eprintln!("graph: {error}");
            std::process::exit(1);
        }
    }
    let last = log.lock().expect("no thread panics here").last;
    replica.set_checkpoint(last)?;
    Ok(last - behind)
}

/// Takes the requests of one client.
fn receive(mut from: UnixStream, queue: &Queue, log: &Mutex<Log>) -> io::Result<()> {
    let client = Arc::new(Mutex::new(from.try_clone()?));
    let (mut lines, mut chunk) = (Vec::new(), [0; 1 << 16]);
    loop {
        let read = from.read(&mut chunk)?;
        if read == 0 {
            return Ok(());
        }
        lines.extend_from_slice(&chunk[..read]);
        let Some(end) = lines.iter().rposition(|byte| *byte == b'\n') else { continue };
        let rest = lines.split_off(end + 1);
        let stops = lines.ends_with(b"stop\n");
        lines.truncate(lines.len() - if stops { 5 } else { 0 });
        let text = String::from_utf8_lossy(&lines);
        // Numbers and lines of the log go together.
        let mut log = log.lock().expect("no thread panics here");
        let first = log.append(text.as_bytes())?;
        let job =
            |(number, line): (u64, &str)| Job { number, line: line.into(), client: Some(client.clone()) };
        queue.put((first..).zip(text.lines()).map(job));
        if stops {
            queue.end();
            return Ok(());
        }
        drop(log);
        lines = rest;
    }
}

/// Sends requests, keeps up to `window` of them unanswered, and returns the answers, as they come.
pub fn ask(socket: &Path, requests: &str, window: usize) -> io::Result<Vec<String>> {
    let mut server = UnixStream::connect(socket)?;
    let mut answers = BufReader::new(server.try_clone()?);
    let mut unsent = requests.split_inclusive('\n');
    let mut send = |count: usize| -> io::Result<()> {
        server.write_all(unsent.by_ref().take(count).collect::<String>().as_bytes())
    };
    send(window)?;
    let count = requests.lines().filter(|line| *line != "stop").count();
    let mut all = Vec::with_capacity(count);
    while all.len() < count {
        let before = all.len();
        // All that are there, and one at least.
        loop {
            let mut answer = String::new();
            // A server that was killed says no more.
            if answers.read_line(&mut answer).is_err() || !answer.ends_with('\n') {
                return Ok(all);
            }
            all.push(answer);
            if !answers.buffer().contains(&b'\n') {
                break;
            }
        }
        if send(all.len() - before).is_err() {
            return Ok(all);
        }
    }
    Ok(all)
}
