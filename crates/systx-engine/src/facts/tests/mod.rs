//! Tests of the read set: which party a conflict names, and what becomes a fact under read committed.

mod conflicts;
mod read_committed;
