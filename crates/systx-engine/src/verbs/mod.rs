//! The operations of a program in a transaction: one file a family of system calls.
//!
//! Guarantees: results and error numbers are those of the plain system call on a plain directory; nothing of
//! the committed tree is changed. Does not: check permissions, nor resolve paths: a verb gets nodes and
//! single names.

mod attributes;
mod create;
mod data;
mod listing;
mod names;
mod native;
mod nodes;
mod rename;
mod savepoint;
mod xattrs;
