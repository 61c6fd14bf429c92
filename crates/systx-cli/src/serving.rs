//! The thread that serves a view, and the one that takes its mounts apart afterwards.
//!
//! Owns: their start and their end. Guarantees: when the former ends by itself, the view's alarm says so.
//! Does not: know why it is to end.

use crate::failure::{failed, Result};
use std::thread::JoinHandle;
use systx_os::beside::Placing;
use systx_os::fuse::EventFd;
use systx_os::{Errno, Linux};
use systx_view::View;

/// The environment variable that chooses the CPU of the thread that answers: with `shared` that of the thread that
/// asks, else the kernel's choice.
const VARIABLE: &str = "SYSTX_CPU";

/// Returns the choice of the environment.
pub fn placing() -> Placing {
    match std::env::var_os(VARIABLE) {
        Some(value) if value == "shared" => Placing::Shared,
        _ => Placing::Scheduled,
    }
}

/// The thread that answers what the command asks of its files.
pub struct Serving {
    stop: EventFd,
    thread: JoinHandle<Served>,
}

/// The view back, and what ended the serving.
pub type Served = (View<Linux>, Result<(), Errno>);

impl Serving {
    /// Starts it.
    pub fn start(mut view: View<Linux>) -> Result<Serving> {
        let stop = EventFd::new().map_err(failed("making an eventfd"))?;
        let until = stop.try_clone().map_err(failed("making an eventfd"))?;
        let alarm = view.alarm().map_err(failed("making an eventfd"))?;
        let serve = move || {
            let served = view.serve(&until);
            // An early end must not leave the command waiting for answers.
            if !until.is_rung() {
                alarm.ring();
            }
            (view, served)
        };
        let thread = std::thread::Builder::new()
            .name("systx-view".into())
            .spawn(serve)
            .map_err(failed("serving files"))?;
        Ok(Serving { stop, thread })
    }

    /// Ends it; it can be [started](Serving::start) again.
    pub fn stop(self) -> Result<Served> {
        self.stop.ring();
        self.thread.join().map_err(|_| "the view has a bug: its thread panicked".into())
    }
}

/// Takes mounts apart while something else is done. That takes 2 µs for every object that the kernel knew of.
pub struct Unmounting(Option<JoinHandle<()>>);

impl Unmounting {
    /// Begins; it is done when this is dropped.
    pub fn begin(mounts: impl Send + 'static) -> Unmounting {
        let thread = std::thread::Builder::new().name("systx-unmount".into());
        // Without a thread it is done here.
        Unmounting(thread.spawn(move || drop(mounts)).ok())
    }
}

impl Drop for Unmounting {
    fn drop(&mut self) {
        // Nothing may keep a file system busy when the run is over.
        if let Some(thread) = self.0.take() {
            let _ = thread.join();
        }
    }
}
