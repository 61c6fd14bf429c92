//! The verbs of a transaction, on the running kernel's file systems.

mod agreement;
mod cases;
mod changes;
mod part;
mod rewritten_files;
mod world;
