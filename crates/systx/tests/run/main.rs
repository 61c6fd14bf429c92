//! `systx run` from outside: real commands on real file systems, as root.
//!
//! Without the test harness, so that it can put itself into a mount namespace of its own first: every mount made here is
//! gone with the last process, whatever happens. Each case runs on each file system; its name is the promise.
//!
//! `cargo test -p systx --test run [-- PART-OF-A-NAME]`

mod area;
mod beside;
mod cases;
mod diff;
mod doctor;
mod kinds;
mod log;
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

use place::Place;
use std::process::Command;

/// A promise.
type Case = fn(&Place);

fn main() {
    if !is_root() {
        println!("skipped: `systx run` needs root");
        return;
    }
    let inside = std::env::args().nth(1).is_some_and(|arg| arg == "--inside");
    if !inside {
        let me = std::env::current_exe().unwrap();
        let again = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "--"])
            .arg(me)
            .arg("--inside")
            .args(std::env::args().skip(1))
            .status();
        match again {
            Ok(status) => std::process::exit(status.code().unwrap_or(1)),
            Err(e) => println!("skipped: unshare can't be run: {e}"),
        }
        return;
    }
    let wanted = std::env::args().skip(2).find(|arg| !arg.starts_with('-')).unwrap_or_default();
    let scratch = place::Scratch::new();
    let mut count = 0;
    for kind in place::KINDS {
        let Some(mount) = scratch.mount(kind) else { continue };
        let told = names::ALL
            .iter()
            .chain(parties::ALL)
            .chain(retries::ALL)
            .chain(shells::ALL)
            .chain(doctor::ALL)
            .chain(diff::ALL)
            .chain(kinds::ALL)
            .chain(output::ALL)
            .chain(on_end::ALL)
            .chain(log::ALL)
            .chain(subvolumes::ALL)
            .chain(wrap::ALL);
        let all = cases::ALL.iter().chain(outside::ALL).chain(area::ALL).chain(nesting::ALL).chain(told);
        for (name, case) in all {
            if name.contains(&wanted) {
                case(&Place::new(&mount, name));
                println!("test {kind}::{name} ... ok");
                count += 1;
            }
        }
    }
    for (name, case) in whole::ALL.iter().chain(beside::ALL).chain(mounts::ALL) {
        if name.contains(&wanted) {
            case(&scratch.root());
            println!("test whole::{name} ... ok");
            count += 1;
        }
    }
    println!("{count} cases passed");
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|me| std::os::unix::fs::MetadataExt::uid(&me) == 0)
}
