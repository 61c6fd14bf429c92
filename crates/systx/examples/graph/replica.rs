//! The execution of numbered requests: by several threads, with the result of a serial loop.
//!
//! Each request is a transaction that has its number. It runs beside others, reads and writes the file that they do, and
//! commits behind all lower numbers; if one of these has changed what it has read, it runs again. So neither requests nor
//! graph need locks, and nothing has to be known of a request before it runs.

use super::graph::{Graph, Request, Shape};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use systx::{Durability, Error, OpenOptions, Options, Systx};

/// A request that waits for a thread.
pub struct Job {
    pub number: u64,
    pub line: String,
    /// The client that is waiting for the answer.
    pub client: Option<Arc<Mutex<UnixStream>>>,
}

/// Requests that no thread has taken.
#[derive(Default)]
struct Waiting {
    jobs: BTreeMap<u64, Job>,
    no_more: bool,
    /// An execution has failed: what is left is for the next run.
    failed: bool,
}

/// Jobs, the lowest number first.
#[derive(Default)]
pub struct Queue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

impl Queue {
    pub fn put(&self, jobs: impl IntoIterator<Item = Job>) {
        let mut waiting = self.waiting.lock().expect("no thread panics here");
        waiting.jobs.extend(jobs.into_iter().map(|job| (job.number, job)));
        self.changed.notify_all();
    }

    /// No further request comes.
    pub fn end(&self) {
        self.waiting.lock().expect("no thread panics here").no_more = true;
        self.changed.notify_all();
    }

    /// Waits for a job; `None`: there will be none.
    fn take(&self) -> Option<Job> {
        let mut waiting = self.waiting.lock().expect("no thread panics here");
        loop {
            if waiting.failed {
                return None;
            }
            if let Some((_, job)) = waiting.jobs.pop_first() {
                return Some(job);
            }
            if waiting.no_more {
                return None;
            }
            waiting = self.changed.wait(waiting).expect("no thread panics here");
        }
    }

    /// A thread that executes jobs.
    ///
    /// Where one gives its number up, those with higher ones get [`Error::Order`]: all of them put their jobs back, and
    /// begin anew with the lowest. Any other error ends all threads.
    pub fn work(&self, execute: impl Fn(u64, &str) -> io::Result<String>) -> io::Result<()> {
        while let Some(job) = self.take() {
            match execute(job.number, &job.line) {
                Ok(answer) => {
                    if let Some(client) = &job.client {
                        let mut client = client.lock().expect("no thread panics here");
                        // A client that has gone needs no answer.
                        let _ = client.write_all(format!("{} {answer}\n", job.number).as_bytes());
                    }
                }
                Err(error) if matches!(Error::of(&error), Some(Error::Order(_))) => self.put([job]),
                Err(error) => {
                    self.waiting.lock().expect("no thread panics here").failed = true;
                    self.changed.notify_all();
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}

/// Requests between two checkpoints.
const CHECKPOINT_EVERY: u64 = 256;

/// How requests are executed.
enum Way {
    /// By one thread, on the open file.
    Plainly(File),
    /// The file is open only inside: a commit writes what no program has open faster.
    InTransactions(Systx),
}

/// The graph that requests are executed on.
pub struct Replica {
    path: PathBuf,
    shape: Shape,
    checkpoint: PathBuf,
    way: Way,
    tries: AtomicU64,
}

impl Replica {
    /// Opens the graph in a file, for transactions or plainly. The next request is the one behind
    /// [`Replica::checkpoint`].
    pub fn open(path: &Path, systx: Option<Systx>) -> io::Result<Replica> {
        let file = File::options().read(true).write(true).open(path)?;
        let shape = Graph::shape_of(&file)?;
        let way = systx.map_or(Way::Plainly(file), Way::InTransactions);
        let path = path.to_owned();
        let mut checkpoint = path.as_os_str().to_owned();
        checkpoint.push(".checkpoint");
        let checkpoint = PathBuf::from(checkpoint);
        let replica = Replica { path, shape, checkpoint, way, tries: AtomicU64::new(0) };
        if let Way::InTransactions(systx) = &replica.way {
            // The numbers go on from there, whatever another run in this process group has left.
            systx.atomically(&Options::new().sequence_from(replica.checkpoint()?), |_| io::Result::Ok(()))?;
        }
        Ok(replica)
    }

    /// All requests up to this number have been executed, and perhaps some behind it. To execute these once more is no
    /// harm: a request says whether there is to be an edge, not what is to be changed.
    pub fn checkpoint(&self) -> io::Result<u64> {
        match std::fs::read_to_string(&self.checkpoint) {
            Ok(text) => text.parse().map_err(io::Error::other),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// Notes that all requests up to this number were executed.
    pub fn set_checkpoint(&self, number: u64) -> io::Result<()> {
        match &self.way {
            Way::InTransactions(systx) => {
                systx.atomically(&Options::new(), |tx| tx.write(&self.checkpoint, number.to_string()))
            }
            Way::Plainly(_) => std::fs::write(&self.checkpoint, number.to_string()),
        }
    }

    /// Executes a request.
    pub fn execute(&self, number: u64, line: &str) -> io::Result<String> {
        let request = Request::of_line(line, self.shape);
        let checkpoint = (number % CHECKPOINT_EVERY == 0).then(|| number.to_string());
        let systx = match &self.way {
            Way::InTransactions(systx) => systx,
            Way::Plainly(file) => {
                let answer = answer(request, &Graph { file, shape: self.shape })?;
                checkpoint.map_or(Ok(()), |number| std::fs::write(&self.checkpoint, number))?;
                return Ok(answer);
            }
        };
        // After a power loss the log is executed once more, from a copy of the graph.
        let options = Options::new().durability(Durability::None).sequence(number).retries(u32::MAX);
        let in_place = OpenOptions::new().read(true).write(true);
        systx.atomically(&options, |tx| {
            self.tries.fetch_add(1, Ordering::Relaxed);
            let file = tx.open_with(&self.path, &in_place)?;
            let answer = answer(request, &Graph { file: &file, shape: self.shape })?;
            checkpoint.as_ref().map_or(Ok(()), |number| tx.write(&self.checkpoint, number))?;
            Ok(answer)
        })
    }

    /// Transactions that were begun.
    pub fn tries(&self) -> u64 {
        self.tries.load(Ordering::Relaxed)
    }
}

/// Executes a request. One that is refused commits too, since those behind it wait for its number.
fn answer(request: Option<Request>, graph: &Graph<'_, impl FileExt>) -> io::Result<String> {
    request.map_or(Ok("refused".into()), |request| request.execute(graph))
}
