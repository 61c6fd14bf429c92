//! Tests of the read set: which party a conflict names, all conflicts at once, and what becomes a fact under read
//! committed.

mod conflicts;
mod read_committed;
mod several;
