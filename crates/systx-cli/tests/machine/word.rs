//! Words between a test and a command that it has started, over FIFOs. The test does not wait for a command
//! that has ended: it shows at once what that one said at its end.

// Each test program uses its part.
#![allow(dead_code)]

use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, PidfdFlags};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Child;

/// Returns what the command, or one of its own, says next on a FIFO, up to its closing it.
pub fn hear(fifo: &Path, child: &mut Child) -> String {
    // Without waiting: a dead command opens nothing.
    let mut from = opened(OpenOptions::new().read(true), fifo).expect("a FIFO can be opened for reading");
    let ended = rustix::process::pidfd_open(Pid::from_child(child), PidfdFlags::empty()).unwrap();
    let mut said = Vec::new();
    loop {
        let mut fds = [PollFd::new(&from, PollFlags::IN), PollFd::new(&ended, PollFlags::IN)];
        if rustix::event::poll(&mut fds, None).is_err() {
            continue;
        }
        let gone = !fds[1].revents().is_empty();
        match from.read_to_end(&mut said) {
            // The other end is closed; where it was not open yet there is nothing to read either.
            Ok(_) if !said.is_empty() => return String::from_utf8_lossy(&said).into_owned(),
            Ok(_) => {}
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            Err(e) => panic!("{}: {e}", fifo.display()),
        }
        assert!(!gone, "ended without a word on {}: {}", fifo.display(), last_words(child));
    }
}

/// Says a word to who reads from a FIFO, or nothing if the command has ended.
pub fn say(fifo: &Path, child: &mut Child, word: &str) {
    loop {
        match opened(OpenOptions::new().write(true), fifo) {
            // A reader that dies now gets nothing, and nothing is missed.
            Ok(mut to) => return drop(to.write_all(format!("{word}\n").as_bytes())),
            Err(_) if child.try_wait().unwrap().is_some() => return,
            Err(_) => std::thread::yield_now(),
        }
    }
}

fn opened(options: &mut OpenOptions, fifo: &Path) -> std::io::Result<File> {
    options.custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32).open(fifo)
}

/// Status of a command that has ended, and what it said last on streams that are ours.
fn last_words(child: &mut Child) -> String {
    let mut words = format!("{}\n", child.wait().unwrap());
    if let Some(stream) = &mut child.stdout {
        let _ = stream.read_to_string(&mut words);
    }
    if let Some(stream) = &mut child.stderr {
        let _ = stream.read_to_string(&mut words);
    }
    words
}
