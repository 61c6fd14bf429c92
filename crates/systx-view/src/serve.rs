//! The loop that answers.
//!
//! One thread: the work is short, and a second thread costs more in wake-ups than it saves. Between requests it looks
//! again for some microseconds before it sleeps, because a sleeping thread is woken only after most of the time that an
//! answer takes; it does so giving way to others, because who asks again and again is woken on the CPU of this thread.

use crate::view::View;
use crate::wire::init::TRANSFER_BYTES_MAX;
use crate::wire::{Reply, Request};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use systx_os::beside::{let_others_run, woken_here};
use systx_os::fuse::{wait, EventFd};
use systx_os::{Errno, Os};

/// How long it looks before it sleeps.
const SPIN: Duration = Duration::from_micros(20);
/// Requests between two looks at whether to stop.
const BATCH: u32 = 4096;
/// So many requests in a row of one thread, and it is taken to go on asking: then it and this thread share a CPU.
const CONVERSATION: u32 = 3;

/// Who asked last, and how often in a row.
#[derive(Default)]
pub(crate) struct Asker {
    thread: u32,
    in_a_row: u32,
}

impl Asker {
    /// Counts a request. True: it belongs to a conversation. What nobody waits for interrupts none.
    fn is_talking(&mut self, thread: u32) -> bool {
        if thread == 0 {
            return false;
        }
        if thread != self.thread {
            *self = Asker { thread, in_a_row: 0 };
        }
        self.in_a_row = self.in_a_row.saturating_add(1);
        self.in_a_row > CONVERSATION
    }
}

impl<O: Os<Fd: AsFd>> View<O> {
    /// Answers requests until `until` is rung or all mounts are gone, then those that are there already.
    ///
    /// # Errors
    /// The kernel's, of poll(2) or of the device: nothing that a view in use can cause. The connections are ended then, so
    /// that nobody waits for an answer for ever.
    pub fn serve(&mut self, until: &EventFd) -> Result<(), Errno> {
        let served = self.serve_until(until);
        if served.is_err() {
            self.connections.clear();
        }
        served
    }

    fn serve_until(&mut self, until: &EventFd) -> Result<(), Errno> {
        let mut message = vec![0; TRANSFER_BYTES_MAX as usize + 4096];
        let mut reply = Reply::new();
        loop {
            self.serve_busy(&mut message, &mut reply)?;
            let alive = self.connections.iter().filter(|link| link.alive).map(|link| &link.device);
            if wait(alive, until)? || self.connections.iter().all(|link| !link.alive) {
                return self.serve_waiting(&mut message, &mut reply).map(drop);
            }
        }
    }

    /// Serves until nothing came for some time.
    fn serve_busy(&mut self, message: &mut [u8], reply: &mut Reply) -> Result<(), Errno> {
        let mut idle = Instant::now();
        let mut left = BATCH;
        while left > 0 && idle.elapsed() < SPIN {
            let served = self.serve_waiting(message, reply)?;
            if served > 0 {
                idle = Instant::now();
                left = left.saturating_sub(served);
            } else {
                let_others_run();
            }
        }
        Ok(())
    }

    /// Serves what is there, one request of each connection in turn.
    fn serve_waiting(&mut self, message: &mut [u8], reply: &mut Reply) -> Result<u32, Errno> {
        let mut served = 0;
        for connection in 0..self.connections.len() {
            served += u32::from(self.serve_one(connection, message, reply)?);
        }
        Ok(served)
    }

    fn serve_one(&mut self, connection: usize, message: &mut [u8], reply: &mut Reply) -> Result<bool, Errno> {
        let link = &mut self.connections[connection];
        if !link.alive {
            return Ok(false);
        }
        let len = match link.device.read(message) {
            Ok(len) => len,
            Err(Errno::AGAIN) => return Ok(false),
            Err(Errno::INTR | Errno::NOENT) => return Ok(true),
            Err(Errno::NODEV | Errno::CONNABORTED) => {
                link.alive = false;
                return Ok(false);
            }
            Err(e) => return Err(e),
        };
        let message = &message[..len.min(message.len())];
        let asker = Request::asker(message);
        if let Some(bytes) = self.answer(connection, message, reply) {
            let link = &self.connections[connection];
            let write = || link.device.write(bytes);
            let written = if self.asker.is_talking(asker) { woken_here(asker, write) } else { write() };
            match written {
                // Who asked was killed meanwhile, or the mount is gone.
                Ok(()) | Err(Errno::NOENT | Errno::NODEV | Errno::CONNABORTED) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(true)
    }
}
