//! The loop that answers.
//!
//! One thread: the work is short, and a second thread costs more in wake-ups than it saves. Between requests it looks
//! again for some microseconds before it sleeps, because a sleeping thread is woken only after most of the time that an
//! answer takes; it does so giving way to others. Where that is chosen ([`View::answers_on`]) it shares the CPU of a
//! thread that asks again and again ([`systx_os::beside`]).

use crate::view::View;
use crate::wire::init::TRANSFER_BYTES_MAX;
use crate::wire::{Reply, Request};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use systx_os::beside::{ask_for_short_slices, let_others_run};
use systx_os::fuse::{wait, EventFd};
use systx_os::{Errno, Os};

/// How long it looks before it sleeps.
const SPIN: Duration = Duration::from_micros(20);
/// Requests between two looks at whether to stop.
const BATCH: u32 = 4096;
/// Requests of one connection between two looks at the others. Who has asked there mostly asks there again.
const TURN: u32 = 64;
/// The same time while it runs only where no other thread wants to.
const SPIN_BESIDE: Duration = Duration::from_millis(1);

impl<O: Os<Fd: AsFd>> View<O> {
    /// Answers requests until `until` is rung or all mounts are gone, then those that are there already.
    ///
    /// # Errors
    ///
    /// The kernel's, of poll(2) or of the device: nothing that a view in use can cause. The connections are
    /// ended then, so that no program waits for an answer for ever.
    pub fn serve(&mut self, until: &EventFd) -> Result<(), Errno> {
        ask_for_short_slices();
        let served = self.serve_until(until);
        self.beside.end();
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
            self.hear_of_natives(&mut reply)?;
            let alive = self.connections.iter().filter(|link| link.alive).map(|link| &link.device);
            let (bells, limit) = (self.natives.bells(), self.natives.limit_ms());
            if wait(alive, until, bells, limit)? || self.connections.iter().all(|link| !link.alive) {
                return self.serve_waiting(&mut message, &mut reply).map(drop);
            }
        }
    }

    /// Serves until nothing came for some time.
    fn serve_busy(&mut self, message: &mut [u8], reply: &mut Reply) -> Result<(), Errno> {
        let mut idle = Instant::now();
        let mut left = BATCH;
        let (mut latest, mut in_a_row) = (0, TURN);
        while left > 0 {
            let served = if in_a_row < TURN && self.serve_one(latest, message, reply)? {
                in_a_row += 1;
                true
            } else {
                let found = self.serve_waiting(message, reply)?;
                in_a_row = if found.is_some() { 0 } else { TURN };
                latest = found.unwrap_or(latest);
                found.is_some()
            };
            let limit = if self.beside.is_near() { SPIN_BESIDE } else { SPIN };
            if served {
                idle = Instant::now();
                left -= 1;
            } else if idle.elapsed() < limit {
                self.beside.not_asked();
                let_others_run();
            } else {
                self.beside.part();
                break;
            }
        }
        Ok(())
    }

    /// Serves what is there, one request of each connection in turn; the last one that had one.
    fn serve_waiting(&mut self, message: &mut [u8], reply: &mut Reply) -> Result<Option<usize>, Errno> {
        let mut latest = None;
        for connection in 0..self.connections.len() {
            if self.serve_one(connection, message, reply)? {
                latest = Some(connection);
            }
        }
        Ok(latest)
    }

    fn serve_one(&mut self, connection: usize, message: &mut [u8], reply: &mut Reply) -> Result<bool, Errno> {
        self.hear_of_natives(reply)?;
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
        // No program waits for the answer to INIT, which the process that mounts sends itself.
        debug_assert!(
            !self.for_others || Request::is_init(message) || !link.device.is_held_by(asker),
            "a thread of this process that holds the connection looks into the view: {}",
            Request::named(message)
        );
        if let Some(bytes) = self.answer(connection, message, reply) {
            let link = &self.connections[connection];
            self.beside.asked_by(asker);
            link.device.answer(bytes)?;
        }
        self.ask_to_forget();
        Ok(true)
    }
}
