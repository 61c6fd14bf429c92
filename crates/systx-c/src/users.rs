//! Transactions of the users that threads of this process act for.

use crate::errors::held;
use std::io;
use std::sync::Mutex;
use systx::Systx;

pub struct Users {
    /// For the user who came first; this one also tells a fork.
    first: Systx,
    /// For users that threads have acted for since.
    others: Mutex<Vec<Systx>>,
}

impl Users {
    pub fn new() -> io::Result<Users> {
        Ok(Users { first: Systx::new()?, others: Mutex::default() })
    }

    /// Returns true in a child of the process that made it.
    pub fn is_forked(&self) -> bool {
        self.first.is_forked()
    }

    /// Transactions for the user that the calling thread acts for.
    pub fn systx<T>(&self, begin: impl Fn(&Systx) -> io::Result<T>) -> io::Result<(Systx, T)> {
        let is_others = |error: &io::Error| matches!(systx::Error::of(error), Some(systx::Error::OtherUser));
        let others = held(&self.others).clone();
        for systx in std::iter::once(&self.first).chain(&others) {
            match begin(systx) {
                Err(error) if is_others(&error) => {}
                done => return done.map(|begun| (systx.clone(), begun)),
            }
        }
        let systx = Systx::new()?;
        held(&self.others).push(systx.clone());
        begin(&systx).map(|begun| (systx, begun))
    }

    /// Makes the checkpoints that are waited with.
    pub fn finish(&self) {
        self.first.finish();
        let others = held(&self.others).clone();
        others.iter().for_each(Systx::finish);
    }
}
