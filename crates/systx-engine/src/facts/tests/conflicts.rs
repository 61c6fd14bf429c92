//! Whom a conflict names.

use crate::domain::layout::RING;
use crate::domain::{Bounds, Domain, Location};
use crate::outcome::{CommitError, Conflict, ConflictKind, Durability, Options, Party, VerbError};
use crate::recovery::open_all;
use crate::transaction::{Access, Caller, SetAttr, Transaction};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;
use systx_os::{Errno, FsKind, Linux, Open, Os, Rename};
use systx_sim::machine::{run_process, Call, Crash, Effect, Fault, FsSpec, Machine, Plant, SimFd, SimOs};

pub(super) const CALLER: Caller = Caller { uid: 0, gid: 0, umask: 0o022 };

pub(super) fn machine() -> Machine {
    let machine = Machine::with(FsKind::Ext4);
    let files = ["read", "other", "third"].map(|name| (name, Plant::File(b"contents")));
    machine.plant(0, &files).expect("planting");
    machine.settle();
    machine.set_word_points(false);
    machine
}

pub(super) fn open(os: &SimOs) -> Arc<Domain<SimOs>> {
    open_all_of(os, &[0]).remove(0)
}

/// The domains on these file systems.
pub(super) fn open_all_of(os: &SimOs, systems: &[usize]) -> Vec<Arc<Domain<SimOs>>> {
    let roots: Vec<_> = systems.iter().map(|fs| Arc::new(os.root(*fs))).collect();
    let sites = roots.iter().map(|root| Location {
        root: root.clone(),
        bounds: Bounds::FileSystem,
        parent: &**root,
        name: b".systx",
    });
    let sites: Vec<_> = sites.collect();
    open_all(os, &sites).map_err(|(n, e)| format!("{n}: {e}")).expect("opens")
}

pub(super) fn begin(
    os: &SimOs,
    domain: &Arc<Domain<SimOs>>,
    durability: Durability,
    command: &str,
) -> Transaction<SimOs> {
    let options = Options { durability, command: command.into(), ..Options::default() };
    Transaction::begin(os.clone(), vec![domain.clone()], options).expect("begins")
}

/// Reads all of a file.
pub(super) fn read(tx: &mut Transaction<SimOs>, name: &[u8]) -> Result<usize, VerbError> {
    let (node, _) = tx.lookup(tx.root(0), name)?.expect("is there");
    tx.open(node, Access::Read, false)?;
    tx.read_at(node, &mut [0; 64], 0)
}

fn store(os: &SimOs, name: &[u8], bytes: &[u8]) {
    let file = os.open(&os.root(0), name, Open::Write).expect("opens");
    assert_eq!(os.pwrite(&file, bytes, 0), Ok(bytes.len()));
}

/// Makes so many commits that change another object.
fn commits(machine: &Machine, count: usize) {
    let os = machine.spawn("others");
    let many = || {
        let domain = open(&os);
        for n in 0..count {
            let mut tx = begin(&os, &domain, Durability::None, "other");
            let (node, _) = tx.lookup(tx.root(0), b"other").expect("looks").expect("is there");
            let mode = Some(if n % 2 == 0 { 0o600 } else { 0o644 });
            tx.setattr(node, &SetAttr { mode, ..Default::default() }).expect("sets");
            tx.commit().expect("commits");
        }
    };
    run_process(&os, many).expect("not killed");
}

/// The conflict of a transaction that has read a file, when an outsider has stored into it after so many commits.
fn after(count: usize) -> Conflict {
    let machine = machine();
    let os = machine.spawn("ours");
    let outsider = machine.spawn("outsider");
    let (domain, mut tx) = run_process(&os, || {
        let domain = open(&os);
        let mut tx = begin(&os, &domain, Durability::Durable, "ours");
        read(&mut tx, b"read").expect("reads");
        (domain, tx)
    })
    .expect("not killed");
    commits(&machine, count);
    run_process(&outsider, || store(&outsider, b"read", b"theirs")).expect("not killed");
    let ended = run_process(&os, || match read(&mut tx, b"third") {
        Err(VerbError::Doomed(conflict)) => Err(CommitError::Conflict(conflict)),
        Err(e) => panic!("{e:?}"),
        Ok(_) => tx.commit(),
    });
    drop(domain);
    match ended.expect("not killed") {
        Err(CommitError::Conflict(conflict)) => *conflict,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_outsider_is_blamed_while_the_ring_says_that_nobody_else_can_be() {
    let conflict = after(RING / 2);
    assert_eq!((conflict.with, conflict.path.as_slice()), (Party::Outsider, &b"read"[..]));
}

#[test]
fn nobody_is_blamed_when_the_ring_was_overrun() {
    let conflict = after(RING + 1);
    assert_eq!((&conflict.with, conflict.path.as_slice()), (&Party::Unknown, &b"read"[..]));
    assert!(conflict.to_string().contains("another transaction or a program outside of any"), "{conflict}");
}

/// A process whose new file `name` is committed and can't be put in place; it lives on. `None`: this call of its
/// publication was not the one.
pub(super) fn pending(machine: &Machine, name: &[u8], skip: u64) -> Option<(SimOs, Arc<Domain<SimOs>>)> {
    let os = machine.spawn("stuck");
    let (process, call) = (Some(os.process()), Some(Call::Rename));
    machine.fault(Fault { process, call, skip, times: 1000, effect: Effect::Fail(Errno::NOSPC) });
    let body = || {
        let domain = open(&os);
        let mut tx = begin(&os, &domain, Durability::Durable, "make it");
        let (node, _) = tx.create(tx.root(0), name, 0o644, CALLER).expect("creates");
        tx.write_at(node, b"new", 0).expect("writes");
        (tx.commit(), domain)
    };
    match run_process(&os, body).expect("not killed") {
        (Ok(committed), domain) if committed.pending.is_some() => Some((os, domain)),
        _ => None,
    }
}

/// When a transaction meets a name, seen from the publication of that.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    Before,
    Meanwhile,
}

/// Checks the conflict that `meet` gets with another process: about a name that is part of a pending
/// publication.
fn told(meet: impl Fn(&mut Transaction<SimOs>) -> Result<(), VerbError>, when: When) {
    let tried = (0..10).find_map(|skip| {
        let machine = machine();
        let os = machine.spawn("ours");
        // The area is made by a process whose renames work.
        let (domain, mut tx) = run_process(&os, || {
            let domain = open(&os);
            let tx = begin(&os, &domain, Durability::Durable, "ours");
            (domain, tx)
        })
        .expect("not killed");
        if when == When::Before {
            run_process(&os, || meet(&mut tx)).expect("not killed").expect("meets nobody yet");
        }
        let stuck = pending(&machine, b"new", skip)?;
        let ended = run_process(&os, || {
            if when == When::Before {
                tx.commit().map(drop)
            } else {
                meet(&mut tx).map_err(|e| match e {
                    VerbError::Doomed(conflict) => CommitError::Conflict(conflict),
                    e => panic!("{e:?}"),
                })
            }
        });
        drop((domain, stuck));
        Some(ended.expect("not killed"))
    });
    let Some(Err(CommitError::Conflict(conflict))) = tried else { panic!("{tried:?}") };
    assert_eq!(conflict.path, b"new");
    assert_eq!(conflict.what, ConflictKind::HeldPending);
    let Party::Transaction { command, .. } = &conflict.with else { panic!("{conflict:?}") };
    assert_eq!(command, b"make it");
}

#[test]
fn who_meets_a_pending_publication_is_told_its_path_and_whose_it_is() {
    let look = |tx: &mut Transaction<SimOs>| tx.lookup(tx.root(0), b"new").map(drop);
    told(look, When::Meanwhile);
}

#[test]
fn who_has_made_the_same_name_is_told_so_at_its_commit() {
    let make = |tx: &mut Transaction<SimOs>| tx.create(tx.root(0), b"new", 0o644, CALLER).map(drop);
    told(make, When::Before);
}

pub(super) fn two_systems() -> Machine {
    let machine = Machine::new(3, &[FsSpec::new(FsKind::Ext4), FsSpec::new(FsKind::Xfs)]);
    machine.set_word_points(false);
    let os = machine.spawn("earlier");
    run_process(&os, || drop(open_all_of(&os, &[0, 1]))).expect("not killed");
    os.exit();
    machine.settle();
    machine
}

/// Makes a name on both.
fn make_both(os: &SimOs) {
    let options = Options { command: "make both".into(), ..Options::default() };
    let mut tx = Transaction::begin(os.clone(), open_all_of(os, &[0, 1]), options).expect("begins");
    for mount in [0, 1] {
        tx.create(tx.root(mount), b"new", 0o644, CALLER).expect("creates");
    }
    tx.commit().expect("commits");
}

/// Returns the conflict that a transaction on one file system alone gets about the name, when the commit was
/// cut off at this call.
fn after_a_cut(point: u64, fs: usize, power: bool) -> Option<Conflict> {
    let machine = two_systems();
    let os = machine.spawn("owner");
    machine.kill_at(&os, point);
    assert!(run_process(&os, || make_both(&os)).is_err(), "it has as many calls each time");
    if power {
        machine.power_loss(Crash::NothingUnsynced, &mut fastrand::Rng::with_seed(point));
    }
    let os = machine.spawn("next");
    let meet = || {
        let domain = open_all_of(&os, &[fs]).remove(0);
        let mut tx = begin(&os, &domain, Durability::Durable, "ours");
        match tx.lookup(tx.root(0), b"new") {
            Err(VerbError::Doomed(conflict)) => Some(*conflict),
            looked => looked.map(|_| None).expect("looks"),
        }
    };
    run_process(&os, meet).expect("not killed")
}

#[test]
fn prepared_and_in_doubt_are_told_apart() {
    let machine = two_systems();
    let os = machine.spawn("owner");
    run_process(&os, || make_both(&os)).expect("lives");
    let points = os.points();
    let told = |power: bool| -> BTreeSet<_> {
        // It is prepared in the second half of its calls.
        let cuts = (points / 2..points).step_by(2).flat_map(|point| [(point, 0), (point, 1)]);
        let conflicts = cuts.filter_map(|(point, fs)| after_a_cut(point, fs, power));
        let told = conflicts.map(|conflict| {
            assert_eq!(conflict.path, b"new");
            // After a reboot the table with the owners' commands is gone.
            let known =
                matches!(&conflict.with, Party::Transaction { command, .. } if command == b"make both");
            assert!(known || power && matches!(conflict.with, Party::Transaction { .. }), "{conflict:?}");
            conflict.what
        });
        told.collect()
    };
    // The decision stands on the other file system. In the same boot the table says how far it had come;
    // after a reboot the log knows only that it was promised. The one that has decided waits for no other, so
    // it is not pending there.
    assert_eq!(told(false), BTreeSet::from([ConflictKind::HeldInDoubt]));
    assert_eq!(told(true), BTreeSet::from([ConflictKind::HeldPrepared]));
}

/// Returns the result of the commit, after an outsider's act, of a transaction that found many names missing,
/// and made another one.
fn after_misses(act: impl FnOnce(&SimOs)) -> Result<(), Conflict> {
    let machine = machine();
    let os = machine.spawn("ours");
    let outsider = machine.spawn("outsider");
    let body = || {
        let domain = open(&os);
        let mut tx = begin(&os, &domain, Durability::Durable, "ours");
        for n in 0..8 {
            assert!(tx.lookup(tx.root(0), format!("missing{n}").as_bytes()).expect("looks").is_none());
        }
        tx.create(tx.root(0), b"new", 0o644, CALLER).expect("creates");
        run_process(&outsider, || act(&outsider)).expect("not killed");
        match tx.commit() {
            Err(CommitError::Conflict(conflict)) => Err(*conflict),
            other => other.map(drop).map_err(|e| panic!("{e:?}")),
        }
    };
    run_process(&os, body).expect("not killed")
}

#[test]
fn of_many_missing_names_the_one_that_appears_is_noticed_and_no_other_name_is() {
    for n in 0..8 {
        let name = format!("missing{n}");
        let conflict = after_misses(|os| drop(os.create(&os.root(0), name.as_bytes(), 0o600))).unwrap_err();
        assert_eq!((conflict.path, conflict.what), (name.into_bytes(), ConflictKind::NameMade));
    }
    after_misses(|os| drop(os.create(&os.root(0), b"nobody asked", 0o600).unwrap())).unwrap();
    after_misses(|os| os.unlink(&os.root(0), b"other").unwrap()).unwrap();
    after_misses(|os| {
        drop(os.create(&os.root(0), b"missing3", 0o600).unwrap());
        os.unlink(&os.root(0), b"missing3").unwrap();
    })
    .unwrap();
}

#[test]
fn what_takes_the_place_of_a_file_at_any_call_of_a_commit_is_a_conflict_and_no_failure() {
    type Makes = fn(&SimOs, &SimFd);
    let place: [(&str, Makes); 3] = [
        ("a link", |os, top| os.symlink(top, b"other thing", b"third").expect("links")),
        ("a FIFO", |os, top| os.mknod(top, b"other thing", 0o010_600, 0).expect("makes")),
        ("a directory", |os, top| os.mkdir(top, b"other thing", 0o700).expect("makes")),
    ];
    // On tmpfs the bytes themselves are compared, so the file is opened again.
    for ((what, make), fs) in place.into_iter().flat_map(|it| [(it, FsKind::Tmpfs), (it, FsKind::Ext4)]) {
        let (mut conflicts, mut at) = (0, 0);
        loop {
            let machine = Machine::with(fs);
            machine
                .plant(0, &[("read", Plant::File(b"contents")), ("third", Plant::File(b""))])
                .expect("plants");
            machine.settle();
            machine.set_word_points(false);
            let (os, outsider) = (machine.spawn("ours"), machine.spawn("outsider"));
            let process = os.process();
            let body = || {
                let domain = open(&os);
                let mut tx = begin(&os, &domain, Durability::None, "ours");
                read(&mut tx, b"read").expect("reads");
                tx.create(tx.root(0), b"new", 0o644, CALLER).expect("creates");
                let mut act = Some((os.points() + at, outsider));
                machine.set_hook(move |_, point| {
                    if let Some((_, outsider)) =
                        act.take_if(|(at, _)| point.process == process && point.point >= *at)
                    {
                        let top = outsider.root(0);
                        make(&outsider, &top);
                        let _ = outsider.unlink(&top, b"read");
                        outsider
                            .rename((&top, b"other thing"), (&top, b"read"), Rename::NoReplace)
                            .expect("renames");
                    }
                });
                let ended = tx.commit();
                machine.clear_hook();
                ended
            };
            match run_process(&os, body).expect("not killed") {
                Err(CommitError::Conflict(conflict)) => {
                    assert_eq!(conflict.path, b"read", "{what} at call {at}");
                    conflicts += 1;
                }
                Ok(_) if machine.look(0, "other thing").is_none() && conflicts > 0 => break,
                ended => panic!("{what} at call {at} on {fs:?}: {ended:?}"),
            }
            at += 1;
        }
        assert!(conflicts > 3, "{what}: compared at {conflicts} calls");
    }
}

#[test]
fn a_stamp_taken_while_somebody_makes_a_name_does_not_hide_it() {
    let scratch =
        std::env::temp_dir().join(format!("systx-stamps-{}-{}", std::process::id(), fastrand::u64(..)));
    std::fs::create_dir(&scratch).unwrap();
    let os = Linux::new();
    let top = Arc::new(os.open_path(&scratch, Open::Directory).unwrap());
    let site = Location { root: top.clone(), bounds: Bounds::FileSystem, parent: &*top, name: b".systx" };
    let domain = open_all(&os, &[site]).map_err(|(_, e)| e.to_string()).unwrap().remove(0);
    if !domain.info.dir_stamps {
        println!("skipped: the stamps of directories are not exact in {}", scratch.display());
    } else if std::thread::available_parallelism().map_or(1, |n| n.get()) < 2 {
        println!("skipped: nobody else runs while we look, with one CPU");
    } else {
        let hidden = hidden(&os, &domain, &scratch);
        assert_eq!(hidden, 0, "names that had been made and were not noticed");
    }
    drop((domain, top));
    std::fs::remove_dir_all(&scratch).unwrap();
}

/// How often a name that another thread made at the time of the look was taken for missing later, by the
/// directory's stamp.
fn hidden(os: &Linux, domain: &Arc<Domain<Linux>>, scratch: &std::path::Path) -> u32 {
    const ROUNDS: u32 = 1000;
    let (begun, made) = (AtomicU32::new(0), AtomicU32::new(0));
    let path = |n: u32| scratch.join(format!("d/{n}"));
    std::fs::create_dir(scratch.join("d")).unwrap();
    let new = scratch.join("new");
    std::fs::File::create(&new).unwrap();
    // On ext4 the disk is waited for then between the stamp's move and the moment from which the name is seen.
    if !std::process::Command::new("chattr")
        .arg("+D")
        .arg(scratch.join("d"))
        .status()
        .is_ok_and(|s| s.success())
    {
        println!(
            "no directory that is synced at each change: it takes luck to meet somebody who makes a name"
        );
    }
    let await_at_least = |count: &AtomicU32, n: u32| {
        while count.load(Ordering::SeqCst) < n {
            std::thread::yield_now();
        }
    };
    let mut hidden = 0;
    std::thread::scope(|threads| {
        threads.spawn(|| {
            for n in 1..=ROUNDS {
                await_at_least(&begun, n);
                std::fs::rename(&new, path(n)).unwrap();
                made.store(n, Ordering::SeqCst);
            }
        });
        for n in 1..=ROUNDS {
            let mut facts = crate::facts::Facts::new(vec![domain.clone()]);
            let (_, root) = facts.root(0).unwrap();
            let d = facts.entry(&root, b"d").unwrap().unwrap();
            let dir = facts.dir(d.fact).unwrap();
            // From here on the kernel knows it as missing.
            assert!(os.stat_at(&*facts.opened_now(&dir).unwrap(), n.to_string().as_bytes()).is_err());
            begun.store(n, Ordering::SeqCst);
            for _ in 0..fastrand::u32(..200) {
                std::hint::spin_loop();
            }
            facts.entry(&dir, b"never").unwrap();
            let missed = facts.entry(&dir, n.to_string().as_bytes()).unwrap().is_none();
            await_at_least(&made, n);
            hidden += u32::from(missed && facts.check_all_named().is_ok());
            std::fs::rename(path(n), &new).unwrap();
        }
    });
    hidden
}
