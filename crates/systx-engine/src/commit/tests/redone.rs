//! Records on the same file, redone one after the other: what an outsider does between two of them, and what
//! other records do.

use super::stuck::{change, ROOT};
use super::world::*;
use crate::outcome::{CommitError, Committed, ConflictCopyKind, Durability, Options, Recovered, VerbError};
use crate::transaction::{Access, SetAttr, Transaction};
use std::sync::{Arc, Mutex};
use systx_os::{Errno, FsKind, Open, Os, Rename};
use systx_sim::machine::{run_process, Call, Crash, Effect, Fault, Machine, Plant, SimFd, SimOs};

const SECTOR: usize = 512;
/// Size from which a file that is written anew is replaced.
const LARGE: usize = (1 << 20) + SECTOR;

/// Writes into an existing file, in place.
pub(super) fn write(os: &SimOs, name: &[u8], sector: usize, bytes: &[u8]) -> Result<Committed, CommitError> {
    change(&open(os).expect("opens"), |t, w| {
        let (node, _) = t.lookup(w, name)?.expect("it is there");
        t.open(node, Access::Write, false)?;
        t.write_at(node, bytes, (sector * SECTOR) as u64)?;
        t.close(node);
        Ok(())
    })
}

/// Returns a machine after a power loss: `work` has committed over the files `w/a` and `w/b`, and nothing of
/// that is in the tree.
fn lost(work: impl FnOnce(&SimOs)) -> Machine {
    let machine = machine(FsKind::Ext4);
    let old = vec![b'.'; 4 * SECTOR];
    let objects = [("w/a", Plant::File(&old)), ("w/b", Plant::File(&old)), ("w/c", Plant::File(b"theirs"))];
    machine.plant(0, &objects).expect("planting");
    machine.plant(0, &[("w/large", Plant::File(&vec![b'.'; LARGE]))]).expect("planting");
    machine.settle();
    let os = machine.spawn("owner");
    run_process(&os, || work(&os)).expect("not killed");
    machine.power_loss(Crash::NothingUnsynced, &mut fastrand::Rng::with_seed(1));
    machine
}

/// Two records on `w/a`, which change a sector each.
fn twice() -> Machine {
    lost(|os| {
        write(os, b"a", 0, b"first").expect("commits");
        write(os, b"a", 1, b"second").expect("commits");
    })
}

/// Recovers; `between` is called before each call that follows the first so many records, with the number of this call.
pub(super) fn recover(
    machine: &Machine,
    records: usize,
    mut between: impl FnMut(&Machine, u64) + Send + 'static,
) -> Recovered {
    let os = machine.spawn("recovery");
    let (mut redone, mut calls) = (0, 0);
    machine.set_hook(move |machine, point| {
        if redone >= records {
            between(machine, calls);
            calls += 1;
        }
        // A patch's last step sets the time.
        redone += usize::from(point.call == Call::Utimens);
    });
    let recovered = run_process(&os, || open(&os).expect("opens").recovered.clone());
    machine.clear_hook();
    machine.clear_plans();
    os.exit();
    recovered.expect("not killed")
}

fn sector(machine: &Machine, path: &str, n: usize) -> String {
    let content = machine.look(0, path).expect("it is there").content;
    String::from_utf8_lossy(&content[n * SECTOR..][..6]).into_owned()
}

/// A file stays open, and a process that waits for it is let in also where no further record changes it.
#[test]
fn who_waits_for_a_file_gets_it_before_the_next_record_of_whatever_file() {
    let machine = lost(|os| {
        for (name, n) in [(b"a", 0), (b"b", 0), (b"b", 1)] {
            write(os, name, n, b"ours").expect("commits");
        }
    });
    let outsider = machine.outsider("outsider");
    let tries = Arc::new(Mutex::new(Vec::new()));
    let told = tries.clone();
    let recovered = recover(&machine, 1, move |machine, call| {
        let mut tries = told.lock().expect("whole");
        let second_done = sector(machine, "w/b", 0).starts_with("ours");
        if call == 0 || (second_done && tries.len() == 1) {
            tries.push(outsider.open_path(0, "w/a", Open::Write).err());
        }
    });
    assert_eq!(recovered.finished, 3);
    assert_eq!(*tries.lock().expect("whole"), [Some(Errno::AGAIN), None], "kept, and let go of");
}

/// The outsider opens it as soon as the first one is redone, and stores before any call of the second.
#[test]
fn what_an_outsider_writes_between_two_records_of_a_file_stays() {
    let world = twice();
    for at in 0.. {
        let machine = world.fork();
        machine.set_word_points(false);
        let outsider = machine.outsider("outsider");
        let stored = Arc::new(Mutex::new(false));
        let told = stored.clone();
        let mut held: Option<SimFd> = None;
        let recovered = recover(&machine, 1, move |machine, call| {
            if call == 0 {
                let refused = outsider.open_path(0, "w/a", Open::ReadWrite).err();
                assert_eq!(refused, Some(Errno::AGAIN), "it is kept");
                // The kernel ends a lease that isn't given back for so long.
                machine.advance_ns(60_000_000_000);
                held = outsider.open_path(0, "w/a", Open::ReadWrite).ok();
            }
            if call == at {
                let held = held.as_ref().expect("has it open");
                outsider.pwrite(held, b"theirs", SECTOR as u64).expect("writes");
                *told.lock().expect("whole") = true;
            }
        });
        assert_eq!((recovered.finished, &recovered.unfinished[..]), (2, &[][..]));
        if !*stored.lock().expect("whole") {
            assert!(at > 0);
            break;
        }
        assert_eq!(sector(&machine, "w/a", 0), "first.");
        assert_eq!(sector(&machine, "w/a", 1), "theirs", "stored before call {at}");
    }
}

#[test]
fn a_file_that_was_replaced_between_two_records_is_not_changed_by_the_second() {
    let machine = twice();
    let outsider = machine.outsider("outsider");
    let recovered = recover(&machine, 1, move |_, call| {
        if call == 0 {
            let w = outsider.open_path(0, "w", Open::Directory).expect("opens");
            outsider.rename((&w, b"c"), (&w, b"a"), Rename::Replace).expect("renames");
        }
    });
    assert_eq!((recovered.finished, &recovered.unfinished[..]), (2, &[][..]));
    let told: Vec<_> = recovered.conflict_copies.iter().map(|conflict_copies| conflict_copies.what).collect();
    assert!(told.contains(&ConflictCopyKind::ContentsGone), "{recovered:?}");
    assert_eq!(machine.look(0, "w/a").expect("it is there").content, b"theirs");
}

#[test]
fn a_file_that_nobody_may_open_any_more_is_not_changed_by_the_second_of_two_records() {
    for (immutable, append_only) in [(true, false), (false, true)] {
        let machine = twice();
        let recovered = recover(&machine, 1, move |machine, call| {
            if call == 0 {
                machine.set_flags(0, "w/a", immutable, append_only).expect("sets");
            }
        });
        assert_eq!((recovered.finished, &recovered.unfinished[..]), (2, &[][..]));
        assert_eq!((&sector(&machine, "w/a", 0)[..], &sector(&machine, "w/a", 1)[..]), ("first.", "......"));
        assert!(
            recovered.conflict_copies.iter().any(|conflict_copies| conflict_copies.aside.is_some()),
            "{recovered:?}"
        );
    }
}

/// The old file is deleted only if no process has it open, this recovery included.
#[test]
fn a_file_that_one_record_changes_and_the_next_writes_anew_is_no_outsiders() {
    let new = vec![b'n'; LARGE];
    let machine = lost(|os| {
        write(os, b"large", 0, b"first").expect("commits");
        let domain = open(os).expect("opens");
        change(&domain, |t, w| {
            let (node, _) = t.lookup(w, b"large")?.expect("it is there");
            t.open(node, Access::Write, true)?;
            t.write_at(node, &new, 0)?;
            t.close(node);
            Ok(())
        })
        .expect("commits");
        write(os, b"large", 1, b"third").expect("commits");
    });
    let recovered = recover(&machine, 1, |_, _| {});
    assert_eq!((recovered.finished, &recovered.unfinished[..]), (3, &[][..]));
    assert_eq!(recovered.conflict_copies, []);
    assert_eq!(
        (&sector(&machine, "w/large", 0)[..], &sector(&machine, "w/large", 1)[..]),
        ("nnnnnn", "thirdn")
    );
}

/// A change that is refused for good is looked at once more, through a descriptor of its own.
#[test]
fn a_change_that_is_refused_is_set_aside_also_where_an_earlier_one_was_not() {
    let machine = twice();
    let recovered = recover(&machine, 1, |machine, call| {
        if call == 0 {
            machine.fault(Fault::fail(Call::Pwrite, Errno::PERM));
        }
    });
    assert_eq!((recovered.finished, &recovered.unfinished[..]), (2, &[][..]));
    assert!(
        recovered.conflict_copies.iter().any(|conflict_copies| conflict_copies.aside.is_some()),
        "{recovered:?}"
    );
}

#[test]
fn what_is_kept_open_takes_no_descriptor_that_a_record_needs() {
    let machine = lost(|os| {
        write(os, b"a", 0, b"first").expect("commits");
        write(os, b"b", 0, b"second").expect("commits");
    });
    let recovered = recover(&machine, 1, |machine, call| {
        if call == 0 {
            machine.fault(Fault::fail(Call::OpenHandle, Errno::MFILE));
        }
    });
    assert_eq!((recovered.finished, &recovered.unfinished[..]), (2, &[][..]));
    assert_eq!(sector(&machine, "w/b", 0), "second");
}

/// Published once more from its beginning, with the descriptors of what was kept.
#[test]
fn what_is_displaced_before_descriptors_run_out_is_told_once() {
    let world = lost(|os| {
        write(os, b"a", 0, b"first").expect("commits");
        let all = change(&open(os).expect("opens"), |t, w| {
            for name in [b"a", b"b", b"c"] {
                let (node, _) = t.lookup(w, name)?.expect("it is there");
                t.open(node, Access::Write, false)?;
                t.write_at(node, b"second", 0)?;
                t.close(node);
            }
            Ok(())
        });
        all.expect("commits");
    });
    let told = |failing: Option<u64>| {
        let machine = world.fork();
        machine.set_word_points(false);
        recover(&machine, 1, move |machine, call| {
            if call == 0 {
                machine.set_flags(0, "w/a", true, false).expect("sets");
            }
            if Some(call) == failing {
                machine.fault(Fault { times: 2, ..Fault::fail(Call::OpenHandle, Errno::MFILE) });
            }
        })
    };
    let wanted = told(None).conflict_copies;
    assert_eq!(wanted.len(), 1);
    for at in 0..80 {
        let recovered = told(Some(at));
        // Else it waits for the next process that opens the domain.
        if recovered.finished == 2 {
            assert_eq!(recovered.conflict_copies, wanted, "at call {at}");
        }
    }
}

/// A redo asks for each object whether a later record has changed it. The answers for all objects take one
/// look at the log.
#[test]
fn a_redo_reads_no_record_again_for_each_object_that_an_outsider_has_changed() {
    const RECORDS: usize = 2000;
    let machine = machine(FsKind::Ext4);
    let names: Vec<String> = (0..RECORDS).map(|n| format!("w/f{n}")).collect();
    let planted: Vec<_> = names.iter().map(|name| (name.as_str(), Plant::File(b"f"))).collect();
    machine.plant(0, &planted).expect("planting");
    machine.settle();
    let os = machine.spawn("owner");
    run_process(&os, || {
        let domain = open(&os).expect("opens");
        for name in &names {
            let set = SetAttr { mode: Some(0o700), ..SetAttr::default() };
            change(&domain, |t, w| {
                let (node, _) = t.lookup(w, &name.as_bytes()[2..])?.expect("it is there");
                t.setattr(node, &set).map(drop)
            })
            .expect("commits");
        }
    })
    .expect("not killed");
    machine.power_loss(Crash::NothingUnsynced, &mut fastrand::Rng::with_seed(1));
    let outsider = machine.spawn("outsider");
    run_process(&outsider, || {
        for name in &names {
            let file = outsider.open_path(0, name, Open::Path).expect("opens");
            outsider.chmod(&file, 0o751).expect("changes it");
        }
    })
    .expect("not killed");
    let os = machine.spawn("recovery");
    machine.start_trace();
    run_process(&os, || drop(open(&os).expect("opens"))).expect("not killed");
    let reads = machine.take_trace().iter().filter(|call| call.call == Call::Pread).count();
    assert!(reads > RECORDS, "they are not redone: {reads}");
    assert!(reads < 10 * RECORDS, "{reads} reads for {RECORDS} records");
    assert_eq!(machine.look(0, "w/f0").expect("is there").mode & 0o777, 0o751);
}

/// On a full disk. An administrator puts a file back, makes room, and all is redone but that.
#[test]
fn a_redo_that_finds_no_room_for_a_new_log_is_not_repeated_over_what_others_do_meanwhile() {
    let world = twice();
    // Of the files that an opening makes, the segment comes after others.
    let full = (0..16).find_map(|skip| {
        let (machine, effect) = (world.fork(), Effect::Fail(Errno::NOSPC));
        machine.fault(Fault { process: None, call: Some(Call::Create), skip, times: 1, effect });
        let os = machine.spawn("recovery");
        let refused =
            run_process(&os, || open(&os).err().map(|error| error.to_string())).expect("not killed");
        os.exit();
        refused.filter(|error| error.contains("log/")).map(|_| machine)
    });
    let machine = full.expect("a new segment is made");
    assert_eq!([0, 1].map(|n| sector(&machine, "w/a", n)), ["first.", "second"], "it is redone");
    let outsider = machine.outsider("outsider");
    let file = outsider.open_path(0, "w/a", Open::ReadWrite).expect("opens");
    outsider.pwrite(&file, &[b'.'; SECTOR], 0).expect("puts it back");
    machine.clear_plans();
    let recovered = recover(&machine, 0, |_, _| {});
    assert_eq!(
        [0, 1].map(|n| sector(&machine, "w/a", n)),
        ["......", "second"],
        "put back, and redone once more"
    );
    assert_eq!((recovered.finished, &recovered.unfinished[..]), (0, &[][..]));
    // It goes on.
    let os = machine.spawn("later");
    run_process(&os, || write(&os, b"a", 2, b"third").map(drop).expect("commits")).expect("not killed");
    os.exit();
    machine.power_loss(Crash::NothingUnsynced, &mut fastrand::Rng::with_seed(1));
    assert_eq!(recover(&machine, 0, |_, _| {}).finished, 1);
    assert_eq!(sector(&machine, "w/a", 2), "third.");
}

/// What can't be written into the file that is in place is not lost: it is kept once.
#[test]
fn contents_of_a_small_file_that_has_become_immutable_are_kept() {
    let mut seen = 0;
    for (seed, (immutable, append_only)) in
        (0..20).flat_map(|seed| [(seed, (true, false)), (seed, (false, true))])
    {
        let machine = machine(FsKind::Ext4);
        let os = machine.spawn("owner");
        let made = run_process(&os, || {
            change(&open(&os).expect("opens"), |t, w| {
                let (node, _) = t.create(w, b"small", 0o644, ROOT)?;
                t.write_at(node, b"contents", 0).map(drop)
            })
            .expect("commits");
        });
        made.expect("lives");
        machine.power_loss(Crash::Random, &mut fastrand::Rng::with_seed(seed));
        // Its name is there, and its contents are not.
        if machine.look(0, "w/small").is_none_or(|found| !found.content.iter().all(|byte| *byte == 0)) {
            continue;
        }
        seen += 1;
        let left = machine.look(0, "w/small").expect("is there").content;
        machine.set_flags(0, "w/small", immutable, append_only).expect("sets");
        for _ in 0..2 {
            let recovered = recover(&machine, 1, |_, _| {});
            assert!(recovered.unfinished.is_empty(), "{recovered:?}");
            let kept = machine.look(0, ".systx/aside/1.patch0").map(|kept| kept.content);
            assert_eq!(kept.as_deref(), Some(&b"contents"[..]), "{recovered:?}");
        }
        assert_eq!(machine.look(0, "w/small").expect("is there").content, left);
    }
    assert!(seen > 1, "{seen}");
}

/// An earlier state of a new file, on the disk by somebody's sync or a cut, is no outsider's.
#[test]
fn a_small_new_file_that_was_synced_before_it_was_written_on_survives() {
    for (cuts, syncs) in [(false, true), (true, false), (true, true)] {
        for (seed, crash) in Crash::WORST.into_iter().chain([Crash::Random; 20]).enumerate() {
            let machine = machine(FsKind::Ext4);
            let os = machine.spawn("owner");
            let made = run_process(&os, || {
                let other = machine.spawn("other");
                change(&open(&os).expect("opens"), |t, w| {
                    let (node, _) = t.create(w, b"small", 0o644, ROOT)?;
                    t.write_at(node, &[b'a'; 600], 0)?;
                    if cuts {
                        t.setattr(node, &SetAttr { size: Some(100), ..SetAttr::default() })?;
                    }
                    if syncs {
                        other.syncfs(&other.root(0)).expect("syncs");
                    }
                    t.write_at(node, &[b'b'; 700], 0).map(drop)
                })
                .expect("commits");
            });
            made.expect("lives");
            machine.power_loss(crash, &mut fastrand::Rng::with_seed(seed as u64));
            recover(&machine, 1, |_, _| {});
            let found = machine.look(0, "w/small").map(|found| found.content);
            assert!(
                found == Some(vec![b'b'; 700]),
                "cut {cuts}, synced {syncs}, {crash:?} {seed}: {found:?}"
            );
        }
    }
}

/// FALLOC_FL_KEEP_SIZE and FALLOC_FL_PUNCH_HOLE.
const PUNCH_HOLE: i32 = 3;

/// In `w` and `w/d`.
type Does = fn(&SimOs, &SimFd, &SimFd);

/// Acts of others on a small new file before the checkpoint.
const ACTS: [(&str, Does); 10] = [
    ("nothing", |_, _, _| {}),
    ("moves it", |os, w, _| os.rename((w, b"small"), (w, b"other"), Rename::NoReplace).expect("moves")),
    ("moves it to another directory", |os, w, d| {
        os.rename((w, b"small"), (d, b"small"), Rename::NoReplace).expect("moves")
    }),
    ("keeps it under another name, and replaces it", |os, w, d| {
        os.link(&os.open(w, b"small", Open::Path).expect("opens"), w, b"small~").expect("links");
        os.pwrite(&os.create(d, b"new", 0o644).expect("makes"), b"new", 0).expect("writes");
        os.rename((d, b"new"), (w, b"small"), Rename::Replace).expect("replaces");
    }),
    ("touches it", |os, w, _| {
        let fd = os.open(w, b"small", Open::ReadWrite).expect("opens");
        os.utimens(&fd, None, Some(os.now())).expect("sets");
    }),
    ("appends", |os, w, _| {
        let fd = os.open(w, b"small", Open::ReadWrite).expect("opens");
        os.append(&fd, b"more").expect("appends");
    }),
    ("writes a byte", |os, w, _| {
        let fd = os.open(w, b"small", Open::ReadWrite).expect("opens");
        os.pwrite(&fd, b"x", 0).expect("writes");
    }),
    ("cuts it", |os, w, _| {
        let fd = os.open(w, b"small", Open::ReadWrite).expect("opens");
        os.truncate(&fd, 4).expect("cuts");
    }),
    ("changes its mode", |os, w, _| {
        os.chmod(&os.open(w, b"small", Open::Path).expect("opens"), 0o600).expect("sets");
    }),
    ("has a hole punched", |_, _, _| {}),
];

/// They sync the directory, and the power fails.
#[test]
fn contents_of_small_files_that_others_change_since_are_not_lost() {
    let crashes = || Crash::WORST.into_iter().chain([Crash::Random; 20]).enumerate();
    for (kind, finds) in
        [(FsKind::Ext4, Finds::ByHandle), (FsKind::Ext4, Finds::ByPath), (FsKind::Btrfs, Finds::ByHandle)]
    {
        for (act, does) in ACTS {
            for (seed, crash) in crashes() {
                let machine = machine_where(kind, finds);
                machine.plant(0, &[("w/d", Plant::Dir)]).expect("planting");
                machine.settle();
                let os = machine.spawn("owner");
                let made = run_process(&os, || {
                    change(&open(&os).expect("opens"), |t, w| {
                        let (node, _) = t.create(w, b"small", 0o644, ROOT)?;
                        t.write_at(node, &[b'a'; 700], 0)?;
                        if act == "has a hole punched" {
                            t.fallocate(node, PUNCH_HOLE, 0, 4096)?;
                        }
                        t.write_at(node, &[b'b'; 700], 0).map(drop)
                    })
                    .expect("commits");
                });
                made.expect("lives");
                machine.advance_ns(50_000_000);
                let other = machine.spawn("other");
                let w = other.open(&other.root(0), b"w", Open::Directory).expect("opens");
                let d = other.open(&w, b"d", Open::Directory).expect("opens");
                does(&other, &w, &d);
                [&d, &w].into_iter().for_each(|dir| other.fsync(dir).expect("syncs"));
                machine.power_loss(crash, &mut fastrand::Rng::with_seed(seed as u64));
                let what = format!("{kind:?} {finds:?}, {act}, {crash:?} {seed}");
                for _ in 0..2 {
                    let recovered = recover(&machine, 1, |_, _| {});
                    assert!(recovered.unfinished.is_empty(), "{what}: {recovered:?}");
                }
                let places = [
                    "w/small",
                    "w/other",
                    "w/d/small",
                    "w/small~",
                    ".systx/aside/1.patch0",
                    ".systx/aside/1.0",
                ];
                let left: &[&[u8]] = match act {
                    "cuts it" => &[b"bbbb"],
                    "writes a byte" => &[b"x", &[b'b'; 699]],
                    _ => &[],
                };
                let left = left.concat();
                let found =
                    places.map(|path| machine.look(0, path).map_or(Vec::new(), |found| found.content));
                let whole =
                    |bytes: &Vec<u8>| bytes.starts_with(&[b'b'; 700]) || (!left.is_empty() && *bytes == left);
                assert!(found.iter().any(whole), "{what}: lost");
            }
        }
    }
}

/// A commit without a record that a durable one builds on, or a sync has brought to the disk, is not undone by the redo of
/// a record before it.
#[test]
fn what_a_commit_without_a_record_has_put_back_stays_after_a_power_loss() {
    for kind in [FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs] {
        for synced in [true, false] {
            let machine = machine(kind);
            let planted = [("w/f", Plant::File(b"A")), ("w/g", Plant::File(b"X"))];
            machine.plant(0, &planted).expect("planting");
            machine.settle();
            let os = machine.spawn("owner");
            run_process(&os, || {
                let domain = open(&os).expect("opens");
                let commit = |durability, files: &[(&[u8], &[u8])]| {
                    let options = Options { durability, ..Options::default() };
                    let mut t =
                        Transaction::begin(os.clone(), vec![domain.clone()], options).expect("begins");
                    let root = t.root(0);
                    let (w, _) = t.lookup(root, b"w").expect("works").expect("is there");
                    for (name, bytes) in files {
                        let (node, _) = t.lookup(w, name).expect("works").expect("is there");
                        t.open(node, Access::Write, false).expect("works");
                        t.write_at(node, bytes, 0).expect("works");
                        t.close(node);
                    }
                    t.commit().expect("commits");
                };
                commit(Durability::Durable, &[(b"f", b"B")]);
                commit(Durability::None, &[(b"f", b"A"), (b"g", b"Y")]);
                if synced {
                    os.syncfs(&os.root(0)).expect("syncs");
                } else {
                    commit(Durability::Durable, &[(b"g", b"Z")]);
                }
            })
            .expect("not killed");
            machine.power_loss(Crash::NothingUnsynced, &mut fastrand::Rng::with_seed(1));
            drop(recover(&machine, usize::MAX, |_, _| {}));
            let found = ["w/f", "w/g"].map(|path| machine.look(0, path).expect("is there").content);
            let g: &[u8] = if synced { b"Y" } else { b"Z" };
            assert_eq!(found, [b"A".to_vec(), g.to_vec()], "{kind:?}, synced {synced}: undone in part");
        }
    }
}

/// A commit without a record removes or replaces the object that a record has changed.
#[test]
fn what_a_commit_without_a_record_has_removed_or_replaced_is_not_reported_as_taken_by_others() {
    type Take = fn(&mut Transaction<SimOs>, crate::types::Node) -> Result<(), VerbError>;
    let takes: [Take; 2] =
        [|t, w| t.unlink(w, b"f"), |t, w| t.rename(w, b"g", w, b"f", Rename::Replace).map(drop)];
    let cases = takes.into_iter().enumerate().flat_map(|(n, take)| [(n, take, true), (n, take, false)]);
    for (n, take, bytes) in cases {
        for kind in [FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs] {
            let machine = machine(kind);
            machine.plant(0, &[("w/f", Plant::File(b"A")), ("w/g", Plant::File(b"X"))]).expect("planting");
            machine.settle();
            let os = machine.spawn("owner");
            run_process(&os, || {
                let domain = open(&os).expect("opens");
                let mode = |t: &mut Transaction<SimOs>, w| {
                    let (f, _) = t.lookup(w, b"f")?.expect("it is there");
                    t.setattr(f, &SetAttr { mode: Some(0o600), ..SetAttr::default() }).map(drop)
                };
                let changed = if bytes { write(&os, b"f", 0, b"B") } else { change(&domain, mode) };
                changed.expect("commits");
                let options = Options { durability: Durability::None, ..Options::default() };
                let mut t = Transaction::begin(os.clone(), vec![domain], options).expect("begins");
                let (w, _) = t.lookup(t.root(0), b"w").expect("works").expect("is there");
                take(&mut t, w).expect("works");
                t.commit().expect("commits");
                os.syncfs(&os.root(0)).expect("syncs");
            })
            .expect("not killed");
            machine.power_loss(Crash::NothingUnsynced, &mut fastrand::Rng::with_seed(1));
            let told = recover(&machine, usize::MAX, |_, _| {}).conflict_copies;
            assert!(told.is_empty(), "{kind:?}, {n}, bytes {bytes}: nobody else was there, {told:?}");
        }
    }
}

/// A record that can't be finished holds the log. Who would put back what a record behind it expects, or cuts what that one
/// changed, is in conflict; others go on.
#[test]
fn a_log_that_is_held_back_keeps_only_those_from_committing_whose_commit_could_be_lost() {
    let machine = machine(FsKind::Ext4);
    let files = [("w/f", Plant::File(b"A")), ("w/g", Plant::File(b"X")), ("w/h", Plant::File(b"h"))];
    machine.plant(0, &files).expect("planting");
    machine.settle();
    let os = machine.spawn("owner");
    let owns = |t: &mut Transaction<SimOs>, w| {
        let (h, _) = t.lookup(w, b"h")?.expect("it is there");
        t.setattr(h, &SetAttr { uid: Some(5), ..SetAttr::default() }).map(drop)
    };
    run_process(&os, || change(&open(&os).expect("opens"), owns).expect("commits")).expect("not killed");
    os.exit();
    machine.power_loss(Crash::NothingUnsynced, &mut fastrand::Rng::with_seed(1));
    let (call, effect) = (Some(Call::Chown), Effect::Fail(Errno::IO));
    machine.fault(Fault { process: None, call, skip: 0, times: u64::MAX, effect });
    let os = machine.spawn("after");
    run_process(&os, || {
        let domain = open(&os).expect("opens");
        let held = domain.finish_in_flight().expect("tries");
        assert_eq!(held.unfinished.len(), 1, "{held:?}");
        let commit = |durability, name: &[u8], bytes: &[u8], size| {
            let options = Options { durability, ..Options::default() };
            let mut t = Transaction::begin(os.clone(), vec![domain.clone()], options).expect("begins");
            let root = t.root(0);
            let (w, _) = t.lookup(root, b"w").expect("works").expect("is there");
            let (f, _) = t.lookup(w, name).expect("works").expect("is there");
            t.setattr(f, &SetAttr { size: Some(size), ..SetAttr::default() }).expect("works");
            t.open(f, Access::Write, false).expect("works");
            t.write_at(f, bytes, 0).expect("works");
            t.close(f);
            t.commit().map(drop)
        };
        let refused = |ended: Result<(), CommitError>| matches!(ended, Err(CommitError::Conflict(_)));
        commit(Durability::Durable, b"f", b"BBBB", 0).expect("commits");
        commit(Durability::Durable, b"f", b"CCCCC", 4).expect("grows on");
        let cut = commit(Durability::Durable, b"f", b"D", 0);
        let told = format!("a cut over a record: {cut:?}");
        assert!(refused(cut), "{told}");
        commit(Durability::None, b"g", b"Y", 1).expect("touches nothing of a record");
        machine.clear_plans();
        domain.finish_in_flight().expect("finishes");
        commit(Durability::Durable, b"f", b"D", 0).expect("the log is free");
    })
    .expect("not killed");
}
