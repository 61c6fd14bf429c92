//! `systx run` from outside: real commands on real file systems, as root.
//!
//! Each case runs on each file system; its name is the promise.
//!
//! `cargo test -p systx-cli --test run [-- PART-OF-A-NAME]`

mod area;
mod beside;
mod cases;
mod diff;
mod doctor;
mod kinds;
mod log;
mod logging;
mod mounts;
mod names;
mod nesting;
mod on_end;
mod output;
mod outside;
mod parties;
mod place;
mod retries;
mod shells;
mod subvolumes;
mod whole;
mod wrap;

use place::Case;
use std::sync::Arc;
use systx_runner::{self as runner, Tried};

fn main() {
    runner::in_a_mount_namespace();
    let scratch = Arc::new(place::Scratch::new());
    let served: [&[(&str, Case)]; 17] = [
        cases::ALL,
        outside::ALL,
        area::ALL,
        nesting::ALL,
        names::ALL,
        parties::ALL,
        retries::ALL,
        shells::ALL,
        doctor::ALL,
        diff::ALL,
        kinds::ALL,
        output::ALL,
        on_end::ALL,
        log::ALL,
        logging::ALL,
        subvolumes::ALL,
        wrap::ALL,
    ];
    let served = served.concat();
    let mut all = Vec::new();
    for kind in place::KINDS {
        all.extend(scratch.clone().cases(kind, &served));
    }
    for &(name, case) in [whole::ALL, beside::ALL, mounts::ALL].concat().iter() {
        let scratch = scratch.clone();
        all.push(runner::Case::new(format!("whole::{name}"), move || {
            case(&scratch.root());
            Tried::Passed
        }));
    }
    runner::run(all, move || drop(scratch));
}
