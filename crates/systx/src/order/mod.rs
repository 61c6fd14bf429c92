//! Ordered transactions: those of one process group commit one after the other, by their numbers.
//!
//! Owns: [`Order`], this process's part in the sequence of its group, and [`Turn`], one transaction's place in it.
//! Guarantees: a number is one transaction's at a time; its commit begins when all lower ones are past their commit
//! points, also those whose processes have died there; a wait
//! ends with an error when the number that is waited for can't come, and after a bounded time in any case. Nothing
//! is held meanwhile that others need. Does not: survive the group, or keep apart programs that share one.

mod group;
#[cfg(test)]
mod schedules;
mod table;

pub(crate) use group::name_of;

use crate::kernel::Kernel;
use crate::mutant::{self, Mutant};
use crate::options::Sequence;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use systx_engine::corrupt::Corrupt;
use systx_engine::id::{OwnerIx, OWNERS};
use systx_os::guest::GuestFd;
use systx_os::{Errno, Linux, Os};
use table::{Claimed, Place, Table, WORDS};

/// Why an ordered transaction can't begin or commit.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OrderError {
    /// The number is below the counter: it was used, or left out.
    Used {
        /// The number of the transaction.
        number: u64,
        /// The next number to commit.
        next: u64,
    },
    /// Another transaction has the number.
    Taken {
        /// The number of the transaction.
        number: u64,
    },
    /// The transaction with a lower number was given up, or its process has died before the commit point: nothing of
    /// it is there. It can begin again.
    Gone {
        /// The number that is waited for.
        number: u64,
    },
    /// The transaction with a lower number did not commit in time.
    Late {
        /// The number that is waited for.
        number: u64,
    },
    /// As many transactions as can have numbers at once have them.
    Full,
    /// The shared counter can't be used.
    Unusable(String),
}

impl fmt::Display for OrderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OrderError::Used { number, next } => {
                write!(f, "number {number} is over: the next to commit is {next}")
            }
            OrderError::Taken { number } => write!(f, "another transaction has the number {number}"),
            OrderError::Gone { number } => {
                write!(f, "the transaction with the number {number} was given up, or its process has died")
            }
            OrderError::Late { number } => {
                write!(f, "the transaction with the number {number} did not commit in time")
            }
            OrderError::Full => f.write_str("too many ordered transactions are open in this process group"),
            OrderError::Unusable(why) => write!(f, "the counter of the process group can't be used: {why}"),
        }
    }
}

impl From<Corrupt> for OrderError {
    fn from(corrupt: Corrupt) -> OrderError {
        OrderError::Unusable(corrupt.to_string())
    }
}

/// This process's part in the sequence of its group.
pub(crate) struct Order {
    os: Kernel,
    file: GuestFd<Linux>,
    table: Table<<Kernel as Os>::Mem>,
    me: OwnerIx,
    /// Says that this process lives.
    _byte: <Kernel as Os>::Owned,
    lineage: u64,
    group: u32,
}

impl Order {
    /// Opens the sequence of the present process group of a user; `name` tells its files from others.
    ///
    /// # Errors
    /// [`OrderError::Unusable`], [`OrderError::Full`].
    pub fn open(os: &Kernel, uid: u32, name: &str) -> Result<Order, OrderError> {
        let unusable = |errno: Errno| OrderError::Unusable(std::io::Error::from(errno).to_string());
        let group = systx_os::process::process_group();
        let file = group::open(os, uid, name, group).map_err(unusable)?;
        let table = Table::new(os.map(&file, WORDS).map_err(unusable)?);
        for index in 1..OWNERS {
            let byte = match os.own_byte(&file, index.into()) {
                Err(Errno::AGAIN) => continue,
                owned => owned.map_err(unusable)?,
            };
            let me = OwnerIx(index);
            table.succeed(me, &|owner| lives(os, &file, owner))?;
            let (os, lineage) = (os.clone(), os.lineage());
            return Ok(Order { os, file, table, me, _byte: byte, lineage, group });
        }
        Err(OrderError::Full)
    }

    /// Returns true if it is the present group's, and its descriptor was not closed by the program.
    pub fn is_present(&self) -> bool {
        self.group == systx_os::process::process_group() && !self.os.is_lost(&self.file)
    }

    fn alive(&self) -> impl Fn(OwnerIx) -> bool + '_ {
        |owner| owner == self.me || lives(&self.os, &self.file, owner)
    }

    /// Takes a number.
    ///
    /// # Errors
    /// [`OrderError::Used`], [`OrderError::Taken`], [`OrderError::Full`].
    pub fn claim(self: &Arc<Self>, sequence: Sequence, stall: Duration) -> Result<Turn, OrderError> {
        let number = sequence.number;
        let place = match self.table.claim(self.me, &self.alive(), sequence)? {
            Claimed::At(place) => place,
            Claimed::Used(next) => return Err(OrderError::Used { number, next }),
            Claimed::Taken => return Err(OrderError::Taken { number }),
            Claimed::Full => return Err(OrderError::Full),
        };
        Ok(Turn { order: self.clone(), number, place, stall, leaving: Leaving::GivenUp })
    }
}

/// An error of the probe is no proof of a death.
fn lives(os: &Kernel, file: &GuestFd<Linux>, owner: OwnerIx) -> bool {
    os.byte_owned(file, owner.0.into()).unwrap_or(true)
}

/// What is known of a number when its transaction leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaving {
    /// It has committed.
    Done,
    /// It has lost, and its program may begin it again: others wait for it.
    Lost,
    /// It was given up: who waits for it fails.
    GivenUp,
}

/// A transaction's place in the sequence. Dropping it gives it up.
pub(crate) struct Turn {
    order: Arc<Order>,
    number: u64,
    place: Place,
    stall: Duration,
    leaving: Leaving,
}

impl Turn {
    /// Returns true if it is the place of this number.
    pub fn has(&self, number: u64) -> bool {
        self.number == number || mutant::on(Mutant::NumberOfAnother)
    }

    /// Waits until all lower numbers have committed.
    ///
    /// # Errors
    /// [`OrderError::Gone`], [`OrderError::Late`], [`OrderError::Used`].
    pub fn wait(&self) -> Result<(), OrderError> {
        let order = &*self.order;
        let stall_ns = u64::try_from(self.stall.as_nanos()).unwrap_or(u64::MAX);
        let until = order.os.monotonic_ns().saturating_add(stall_ns);
        let left_ns = || until.saturating_sub(order.os.monotonic_ns());
        order.table.await_turn(self.number, order.me, &order.alive(), &left_ns)
    }

    /// What its commit point calls: it is the next one's turn from then on, also if this process dies. What overlaps
    /// waits until all is public.
    pub fn counts(&self) -> impl FnOnce() + Send + 'static {
        let (order, number) = (self.order.clone(), self.number);
        move || order.table.count(number)
    }

    /// Has committed: it is the next one's turn.
    pub fn pass(mut self) {
        self.leaving = Leaving::Done;
    }

    /// Has lost a conflict, and may come again.
    pub fn lose(mut self) {
        self.leaving = Leaving::Lost;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let order = &*self.order;
        // In a forked child it is the parent's.
        if order.os.lineage() != order.lineage {
            return;
        }
        // A table that makes no sense is reported to those who wait.
        let _ = order.table.leave(order.me, &order.alive(), self.place, self.number, self.leaving);
    }
}
