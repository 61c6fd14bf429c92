//! Assertions of the protocol's invariants (docs/protocol.md §5), in release too.
//!
//! They stand on both sides of a handover between phases. Guarantees: nothing from outside (a disk, the shared
//! table, another process, a person) can make one fail, as whatever comes from there is checked and is an error.
//! A rule that is left out to see a test notice makes none fail either: the damage is to show.

/// Asserts an invariant, which is named first. For what costs more than a few comparisons there is
/// `debug_assert!`.
macro_rules! invariant {
    ($name:literal, $holds:expr, $what:literal) => {
        assert!($holds || $crate::mutant::any(), concat!($name, ": ", $what))
    };
}

pub(crate) use invariant;
