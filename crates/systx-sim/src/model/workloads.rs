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
}

/// Two or three programs that run against each other.
#[derive(Debug)]
pub struct Workload {
    /// For messages.
    pub name: &'static str,
    /// One a transaction.
    pub programs: &'static [Program],
}

const fn program(reads: &'static [u8], writes: &'static [u8], listings: &'static [u8]) -> Program {
    Program { reads, writes, listings }
}

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
