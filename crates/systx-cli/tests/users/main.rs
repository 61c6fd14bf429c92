//! An ordinary user's runs: all that `systx run` promises holds without any privilege, for the user's own
//! files.
//!
//! Every run here is of a made-up user without capabilities, in a user namespace that systx makes. /dev/fuse
//! is a node that all users may open, as on most systems, in this program's own mount namespace.
//!
//! `cargo test -p systx-cli --test users [-- PART-OF-A-NAME]`

mod cut;
mod effects;
#[path = "../machine/mod.rs"]
mod machine;
mod machines;
mod names;
mod parties;
mod reach;
mod whole_programs;
mod whole_tree;
mod world;

fn main() {
    let own = [effects::ALL, parties::ALL, cut::ALL, names::ALL, reach::ALL, machines::ALL].concat();
    machine::main(&[&own, whole_tree::ALL, whole_programs::ALL].concat());
}
