//! Times of committed directories in which names change: as the program saw them, unless an outsider has
//! changed a name, too.

use super::stuck::{change, ROOT};
use super::world::{machine, open, public};
use crate::outcome::{CommitError, Committed};
use std::sync::{Arc, Mutex};
use systx_os::{FsKind, Open, Os, Timestamp};
use systx_sim::machine::{run_process, Crash, Machine, SimOs};

const STEPS: u64 = 3;

/// Does three steps in `w`; the time that the program sees at the end is stored in `shown` at once.
fn work(os: &SimOs, shown: &Mutex<Option<Timestamp>>) -> Result<Committed, CommitError> {
    let domain = open(os).expect("opens");
    change(&domain, |t, w| {
        let (_, before) = t.lookup(w, b"untouched")?.expect("it is there");
        for name in [&b"new"[..], b"other"] {
            t.mkdir(w, name, 0o755, ROOT)?;
        }
        t.unlink(w, b"removed")?;
        let mtime = t.getattr(w)?.mtime;
        assert_ne!(mtime, before.mtime);
        *shown.lock().expect("one thread") = Some(mtime);
        Ok(())
    })
}

fn time(machine: &Machine) -> Timestamp {
    let os = machine.outsider("looks");
    os.stat_at(&os.root(0), b"w").expect("it is there").mtime
}

/// How often a name of an outsider's, made at each of the calls of a commit, is hidden by the time.
fn hidden(fs: FsKind) -> (u64, u64) {
    let world = machine(fs);
    let (mut hidden, mut at) = (0, 0);
    loop {
        let machine = world.fork();
        machine.set_word_points(false);
        let shown = Arc::new(Mutex::new(None));
        let (os, outsider) = (machine.spawn("owner"), machine.outsider("outsider"));
        let dir = outsider.open(&outsider.root(0), b"w", Open::Path).expect("it is there");
        let (mut count, known) = (0, Arc::clone(&shown));
        // After the program has seen the time: what is changed before it is a change that it could have seen.
        machine.set_hook(move |_, _| {
            if known.lock().expect("one thread").is_some() {
                if count == at {
                    outsider.mkdir(&dir, b"theirs", 0o755).expect("the name is free");
                }
                count += 1;
            }
        });
        let done = run_process(&os, || work(&os, &shown)).expect("lives").expect("commits");
        machine.clear_hook();
        assert!(done.conflict_copies.is_empty() && done.pending.is_none(), "{done:?}");
        if !public(&machine).contains_key("w/theirs") {
            return (hidden, at);
        }
        hidden += u64::from(Some(time(&machine)) == *shown.lock().expect("one thread"));
        at += 1;
    }
}

#[test]
fn a_directory_has_the_time_that_was_seen_unless_somebody_else_changes_it() {
    for fs in [FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs, FsKind::Tmpfs] {
        let machine = machine(fs);
        let (shown, os) = (Mutex::default(), machine.spawn("owner"));
        run_process(&os, || work(&os, &shown)).expect("lives").expect("commits");
        assert_eq!(Some(time(&machine)), *shown.lock().expect("one thread"), "{fs:?}");
        // Directories of tmpfs keep one time for a tick, whatever happens in them.
        if fs == FsKind::Tmpfs {
            continue;
        }
        let (hidden, calls) = hidden(fs);
        // Between a look and the calls of the step beside it, and at the end: far fewer than all.
        let unseen = 6 * STEPS + 2;
        assert!(calls > 2 * unseen, "{calls} calls are too few to tell");
        assert!(hidden <= unseen, "{fs:?}: of {calls} names of an outsider the time hides {hidden}");
    }
}

#[test]
fn a_redo_gives_a_directory_the_time_that_was_seen() {
    for fs in [FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs] {
        let world = machine(fs);
        let before = time(&world);
        for crash in Crash::WORST {
            let machine = world.fork();
            let (shown, os) = (Mutex::default(), machine.spawn("owner"));
            run_process(&os, || work(&os, &shown)).expect("lives").expect("commits");
            machine.power_loss(crash, &mut fastrand::Rng::with_seed(7));
            let helper = machine.spawn("helper");
            for _ in 0..2 {
                run_process(&helper, || drop(open(&helper).expect("opens"))).expect("lives");
            }
            let (now, shown) = (time(&machine), shown.lock().expect("one thread").expect("committed"));
            assert_ne!(now, before);
            assert_eq!(now, shown, "{fs:?}, {crash:?}");
        }
    }
}
