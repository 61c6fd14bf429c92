//! Objects that each transaction of the cooperation model reads and writes.

/// Objects that a transaction reads, in this order, the ones it then writes, and the listings in which its
/// writes appear.
#[derive(Debug)]
pub struct Program {
    /// Objects read, one first touch each.
    pub reads: &'static [u8],
    /// Objects written, one publication step each.
    pub writes: &'static [u8],
    /// Listings that the first step changes along with its entry.
    pub listings: &'static [u8],
    /// The objects by which it announces what it reads and writes.
    pub announced: Announced,
}

/// The objects that stand for what a transaction reads and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announced {
    /// Those themselves.
    Exactly,
    /// They are pages of one file, and few.
    AsPages,
    /// They are all pages of one file: too many to name, or whatever there is, as of a cut.
    AsWhole,
}

/// Written by those that write a file as a whole, read by those that read or write pages of it.
pub const WHOLE_WRITTEN: u8 = 8;
/// Read by those that read a file as a whole, written commutingly by those that write pages of it.
pub const WHOLE_READ: u8 = 9;

/// Two or three programs that run against each other.
#[derive(Debug)]
pub struct Workload {
    /// For messages.
    pub name: &'static str,
    /// One a transaction.
    pub programs: &'static [Program],
}

const fn program(reads: &'static [u8], writes: &'static [u8], listings: &'static [u8]) -> Program {
    Program { reads, writes, listings, announced: Announced::Exactly }
}

const fn pages(reads: &'static [u8], writes: &'static [u8]) -> Program {
    Program { reads, writes, listings: &[], announced: Announced::AsPages }
}

const fn whole(reads: &'static [u8], writes: &'static [u8]) -> Program {
    Program { reads, writes, listings: &[], announced: Announced::AsWhole }
}

/// Objects 0 to 2 are the pages of one file. An append that nobody reads is a blind write, so those are in
/// [`WORKLOADS`] already.
///
/// In the engine [`WHOLE_READ`] is the object data, and [`WHOLE_WRITTEN`] the object size, for the library's transactions;
/// those of a view announce every file as a whole. An append that has not seen the end writes both and reads neither, as
/// blind writers do; where it goes is in [`super::appends`].
pub const PAGES: [Workload; 5] = [
    Workload {
        name: "different pages",
        programs: &[pages(&[0], &[0]), pages(&[1], &[1]), pages(&[2], &[2])],
    },
    Workload {
        name: "a write skew over pages and a reader of all",
        programs: &[pages(&[0], &[1]), pages(&[1], &[0]), whole(&[0, 1, 2], &[])],
    },
    Workload {
        name: "a cut, and what goes by a page of it",
        programs: &[whole(&[], &[0, 1]), pages(&[0], &[2]), pages(&[2, 1], &[])],
    },
    Workload {
        name: "all read and one page written, against the same",
        programs: &[whole(&[0, 1], &[0]), whole(&[0, 1], &[1]), pages(&[0, 1], &[])],
    },
    Workload {
        name: "a page written, and a cut",
        programs: &[pages(&[0], &[0, 1]), whole(&[], &[0, 1]), pages(&[1, 0], &[])],
    },
];

/// Each has been the shortest way to some mistake.
pub const WORKLOADS: [Workload; 10] = [
    Workload {
        name: "write skew and a reader",
        programs: &[program(&[0], &[1], &[]), program(&[1], &[0], &[]), program(&[0, 1], &[], &[])],
    },
    Workload {
        name: "two read-modify-writes and a reader",
        programs: &[program(&[0, 1], &[0, 1], &[]), program(&[0], &[0], &[]), program(&[1, 0], &[], &[])],
    },
    Workload {
        name: "cycle of three",
        programs: &[program(&[0], &[1], &[]), program(&[1], &[2], &[]), program(&[2], &[0], &[])],
    },
    Workload {
        name: "blind writers and a reader",
        programs: &[program(&[], &[0, 1], &[]), program(&[], &[1, 0], &[]), program(&[0, 1], &[], &[])],
    },
    Workload {
        name: "create a, create b, readdir",
        programs: &[program(&[], &[0], &[2]), program(&[], &[1], &[2]), program(&[2, 0, 1], &[], &[])],
    },
    Workload {
        name: "create a if b is missing, create b, readdir",
        programs: &[program(&[1], &[0], &[2]), program(&[], &[1], &[2]), program(&[2, 1], &[], &[])],
    },
    Workload {
        name: "create a, rmdir if empty, reader",
        programs: &[program(&[], &[0], &[2]), program(&[2], &[1], &[]), program(&[1, 2], &[], &[])],
    },
    Workload {
        name: "long fork",
        programs: &[program(&[], &[0], &[]), program(&[0], &[1, 2], &[]), program(&[0, 1, 2], &[], &[])],
    },
    Workload {
        name: "anti-dependency chain and a blind writer",
        programs: &[program(&[2], &[0], &[]), program(&[], &[1], &[]), program(&[0], &[2], &[])],
    },
    Workload {
        name: "writers of pairs and a reader of three",
        programs: &[program(&[], &[0, 1], &[]), program(&[1], &[2], &[]), program(&[0, 2, 1], &[], &[])],
    },
];
