//! Processes: whom to kill, and when they are gone. No waiting but for an event.

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, OwnedFd};
use rustix::process::{Pid, PidfdFlags, Signal};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::time::{Duration, Instant};

/// A process that was started here, held so that its number can't come to mean another one.
pub struct Held {
    pub pid: u32,
    fd: OwnedFd,
}

impl Held {
    /// `None`: it is gone.
    pub fn new(pid: u32) -> Option<Held> {
        let fd = rustix::process::pidfd_open(Pid::from_raw(pid as i32)?, PidfdFlags::empty()).ok()?;
        Some(Held { pid, fd })
    }

    pub fn signal(&self, signal: Signal) {
        // Gone is as good.
        let _ = rustix::process::pidfd_send_signal(&self.fd, signal);
    }

    pub fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// Returns true if it ends before so many seconds have passed.
    pub fn gone_within(&self, seconds: i64) -> bool {
        let limit = Timespec { tv_sec: seconds, tv_nsec: 0 };
        rustix::event::poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], Some(&limit)) == Ok(1)
    }

    /// Until it has ended.
    pub fn gone(&self) {
        while rustix::event::poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], None).is_err() {}
    }
}

/// The children of a process.
pub fn children(pid: u32) -> Vec<Held> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|word| Held::new(word.parse().ok()?)).collect()
}

/// Name of a process.
pub fn comm(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().into()
}

/// The systx process at or below a process that was started here.
pub fn systx_below(pid: u32) -> Option<Held> {
    // The part of a name that the kernel keeps.
    let name = super::systx().file_name().unwrap_or_default().to_string_lossy().into_owned();
    if comm(pid) == name[..name.len().min(15)] {
        return Held::new(pid);
    }
    children(pid).into_iter().find_map(|child| systx_below(child.pid))
}

/// A FIFO by which a command says that it is about to end.
pub struct Tell {
    pub path: PathBuf,
    // Open for both: the open does not wait for another process, and there is no end of file.
    fifo: std::fs::File,
}

impl Tell {
    pub fn new(dir: &Path) -> Tell {
        let path = dir.join("tell");
        if !path.exists() {
            // Whoever runs it.
            super::must(Command::new("mkfifo").args(["-m", "666"]).arg(&path));
        }
        let fifo = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
        Tell { path, fifo }
    }

    /// Waits for one line of the command; false: the process is gone without.
    pub fn wait(&mut self, child: &Child) -> bool {
        self.wait_until(child, None).expect("without a limit it comes to an end")
    }

    /// Like [`Tell::wait`], but `None` if neither has come after so many seconds.
    pub fn wait_within(&mut self, child: &Child, seconds: i64) -> Option<bool> {
        self.wait_until(child, Some(Timespec { tv_sec: seconds, tv_nsec: 0 }))
    }

    fn wait_until(&mut self, child: &Child, limit: Option<Timespec>) -> Option<bool> {
        let child = Held::new(child.id()).expect("it is our child");
        loop {
            let mut fds = [PollFd::new(&self.fifo, PollFlags::IN), PollFd::new(&child.fd, PollFlags::IN)];
            match rustix::event::poll(&mut fds, limit.as_ref()) {
                Err(_) => continue,
                Ok(0) => return None,
                Ok(_) if fds[0].revents().contains(PollFlags::IN) => {
                    return Some(self.fifo.read(&mut [0; 64]).unwrap() > 0)
                }
                Ok(_) => return Some(false),
            }
        }
    }
}

/// Returns true if the other end of a pipe is closed everywhere, after so many seconds at the latest. No
/// process may write into it.
pub fn at_end_within(pipe: &impl AsFd, seconds: i64) -> bool {
    let limit = Timespec { tv_sec: seconds, tv_nsec: 0 };
    rustix::event::poll(&mut [PollFd::new(pipe, PollFlags::empty())], Some(&limit)) == Ok(1)
}

/// Lets so many microseconds pass, as exactly as can be: a random instant, not a synchronisation.
pub fn let_pass(us: u64) {
    let end = Instant::now() + Duration::from_micros(us);
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}

/// A systx that stands still right after a call of its main thread.
pub struct Stopped {
    /// strace, which ends as systx does.
    pub child: Child,
    pub owner: Held,
    /// strace writes it to the end.
    _log: BufReader<std::fs::File>,
}

impl Stopped {
    /// Runs a command of systx until the n-th `call` of its main thread is done. `Err`: it ended before.
    pub fn after(dir: &Path, command: &Command, call: &str, n: usize) -> Result<Stopped, Output> {
        let log = dir.join("strace");
        if !log.exists() {
            super::must(Command::new("mkfifo").arg(&log));
        }
        let inject = format!("inject={call}:signal=STOP:when={n}");
        let mut child = traced(command, &["-o", log.to_str().unwrap(), "-e", &inject], call).spawn().unwrap();
        // Opening waits for strace to open it.
        let mut log = BufReader::new(std::fs::File::open(&log).unwrap());
        let mut line = String::new();
        while !line.contains("stopped by SIGSTOP") {
            line.clear();
            if log.read_line(&mut line).unwrap() == 0 {
                return Err(child.wait_with_output().unwrap());
            }
        }
        match systx_below(child.id()) {
            Some(owner) => Ok(Stopped { child, owner, _log: log }),
            None => {
                let _ = child.kill();
                panic!("a stopped process has gone")
            }
        }
    }

    /// Lets it go on to its end.
    pub fn go_on(self) -> Output {
        self.owner.signal(Signal::CONT);
        let Stopped { child, _log: log, .. } = self;
        let drain = std::thread::spawn(move || std::io::copy(&mut { log }, &mut std::io::sink()));
        let output = child.wait_with_output().unwrap();
        drain.join().unwrap().unwrap();
        output
    }
}

/// A command under strace, which looks at one kind of call of its main thread.
pub fn traced(command: &Command, options: &[&str], call: &str) -> Command {
    let mut strace = Command::new("strace");
    strace.args(["-qq", "-e", &format!("trace={call}")]).args(options).arg("--");
    strace.arg(command.get_program()).args(command.get_args());
    if let Some(dir) = command.get_current_dir() {
        strace.current_dir(dir);
    }
    for (name, value) in command.get_envs() {
        strace.env(name, value.unwrap_or_default());
    }
    strace.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::piped());
    strace.stderr(std::process::Stdio::piped());
    strace
}
