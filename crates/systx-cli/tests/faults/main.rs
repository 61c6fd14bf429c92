//! Bad input and failing machines: each a clear error that says on which side of the commit point it is; nothing lost,
//! nothing left mounted, locked or staged; and the next `systx run` works.
//!
//! `cargo test -p systx-cli --test faults [-- PART-OF-A-NAME]`

mod garbled;
#[path = "../machine/mod.rs"]
mod machine;
mod room;
mod stopped;
mod world;

/// A case, in a directory of its own.
type Case = fn(&std::path::Path);

fn main() {
    machine::main(&[room::ALL, garbled::ALL, stopped::ALL].concat());
}
