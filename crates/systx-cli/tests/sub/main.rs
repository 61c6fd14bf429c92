//! Subtransactions: `systx run --sub` inside of a transaction commits into that one as a whole, or is undone
//! alone.
//!
//! `cargo test -p systx-cli --test sub [-- PART-OF-A-NAME]`; `SYSTX_LONG=1`: a kill before every call, and many
//! at any instant. Random calls in a subtransaction are compared with plain ones by `--test agreement`.

#[path = "../machine/mod.rs"]
mod machine;

mod ends;
mod kills;
mod parties;
mod words;
mod world;

fn main() {
    let cases: Vec<_> = [ends::ALL, parties::ALL, words::ALL, kills::ALL].concat();
    machine::main(&cases);
}
