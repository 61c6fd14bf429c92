//! The promises of `trait Os`, checked against the running kernel on tmpfs and on the file system of the temp dir.

mod attributes;
mod bytes;
mod cooperation;
mod file_systems;
mod leases;
mod names;
mod open;
mod place;
