//! Inode flags that a directory passes on: what is made in a transaction has those that the kernel would have
//! given it, also after a redo.

use super::stuck::{change, ROOT};
use super::world::*;
use crate::transaction::Access;
use systx_os::inode_flag::{DIRSYNC, NOATIME, NODUMP};
use systx_os::{FsKind, Open, Os};
use systx_sim::machine::{run_process, Crash, Machine, SimOs};

/// What is made, with the flags that the kernel gives it plainly.
const MADE: [(&str, u32); 5] = [
    ("file", NODUMP | NOATIME),
    ("large", NODUMP | NOATIME),
    ("link", 0),
    ("dir", NODUMP | NOATIME | DIRSYNC),
    ("dir/inner", NODUMP | NOATIME),
];

/// A directory `w` that passes flags on.
fn flagged() -> Machine {
    let machine = machine(FsKind::Ext4);
    machine.set_inode_flags(0, "w", NODUMP | NOATIME | DIRSYNC).expect("is there");
    machine.settle();
    machine
}

fn make_all(os: &SimOs) {
    let made = change(&open(os).expect("opens"), |t, w| {
        let file = |t: &mut crate::transaction::Transaction<SimOs>, dir, name: &[u8], bytes: &[u8]| {
            let (node, _) = t.create(dir, name, 0o644, ROOT)?;
            t.open(node, Access::Write, false)?;
            t.write_at(node, bytes, 0)?;
            t.close(node);
            Ok(())
        };
        file(t, w, b"file", b"bytes")?;
        file(t, w, b"large", &vec![b'x'; 100_000])?;
        t.symlink(w, b"link", b"file", ROOT)?;
        let (dir, _) = t.mkdir(w, b"dir", 0o755, ROOT)?;
        file(t, dir, b"inner", b"bytes")
    });
    made.expect("commits");
}

fn flags(machine: &Machine, name: &str) -> Option<u32> {
    machine.inode_flags(0, &format!("w/{name}")).ok()
}

#[test]
fn what_is_made_has_the_flags_that_the_kernel_would_have_given_it() {
    let machine = flagged();
    let os = machine.spawn("plainly");
    run_process(&os, || {
        let w = os.open_path(0, "w", Open::Directory).expect("opens");
        os.create(&w, b"file", 0o644).expect("creates");
        os.mkdir(&w, b"dir", 0o755).expect("makes");
        os.symlink(&w, b"link", b"file").expect("links");
    })
    .expect("not killed");
    for (name, given) in MADE.iter().filter(|(name, _)| ["file", "dir", "link"].contains(name)) {
        assert_eq!(flags(&machine, name), Some(*given), "{name}, plainly");
    }
    let machine = flagged();
    let os = machine.spawn("owner");
    run_process(&os, || make_all(&os)).expect("not killed");
    for (name, given) in MADE {
        assert_eq!(flags(&machine, name), Some(given), "{name}: other flags than plainly");
    }
}

#[test]
fn a_redo_gives_the_flags_too_wherever_the_power_failed() {
    let start = flagged();
    let mut seen = [0; 2];
    for crash in [Crash::NothingUnsynced, Crash::Random] {
        for at in (0..).step_by(3) {
            let machine = start.fork();
            let os = machine.spawn("owner");
            machine.kill_at(&os, at);
            let whole = run_process(&os, || make_all(&os)).is_ok();
            machine.clear_plans();
            machine.power_loss(crash, &mut fastrand::Rng::with_seed(at));
            let os = machine.spawn("boot");
            run_process(&os, || drop(open(&os).expect("opens"))).expect("not killed");
            let is_there = flags(&machine, "file").is_some();
            for (name, given) in MADE {
                let expected = is_there.then_some(given);
                assert_eq!(
                    flags(&machine, name),
                    expected,
                    "{name}, {crash:?} before call {at}: other flags"
                );
            }
            seen[usize::from(is_there)] += 1;
            if whole {
                break;
            }
        }
    }
    assert!(seen[0] > 0 && seen[1] > 0, "both outcomes are seen: {seen:?}");
}
