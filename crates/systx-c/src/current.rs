//! A transaction that a thread is in, or has paused.
//!
//! Guarantees: it is aborted when its thread ends.

use crate::running::{End, Home, Running};
use crate::structures::systx_token;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use systx::posix::OpenPart;

/// A transaction that a thread is in.
pub struct Current {
    pub running: Arc<Running>,
    pub home: &'static dyn Home,
    /// Begins without an end.
    pub depth: u32,
    /// Parts that can be undone alone, with the depth of their begins.
    pub parts: Vec<(u32, OpenPart)>,
}

impl Drop for Current {
    fn drop(&mut self) {
        // The thread has ended. A child's is forgotten.
        if self.home.is_here() && !self.running.has_ended() {
            self.running.end(self.home, End::Abort);
        }
    }
}

/// Transactions that no thread is in.
#[derive(Default)]
pub struct Paused(pub Mutex<HashMap<systx_token, Current>>);
