//! `systx run` from outside: real commands on real file systems, as root.
//!
//! Without the test harness, so that it can put itself into a mount namespace of its own first: every mount made here is
//! gone with the last process, whatever happens. Each case runs on each file system; its name is the promise.
//!
//! `cargo test -p systx --test run [-- PART-OF-A-NAME]`

mod cases;
mod outside;
mod place;
mod whole;

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
        for (name, case) in cases::ALL.iter().chain(outside::ALL) {
            if name.contains(&wanted) {
                case(&Place::new(&mount, name));
                println!("test {kind}::{name} ... ok");
                count += 1;
            }
        }
    }
    for (name, case) in whole::ALL {
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
