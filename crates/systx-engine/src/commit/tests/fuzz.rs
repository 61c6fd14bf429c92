//! Every file of an area, damaged in every way: each operation on the area ends in a bounded number of calls,
//! with an answer or an error, and nothing outside of the area is changed but as a record of its log says.
//!
//! `SYSTX_LONG=1`: a million cases, two hours. `SYSTX_SEED`: the first of them.

use super::stuck::{change, make, ROOT};
use super::world::*;
use crate::domain::layout::NEXT_WORD;
use crate::domain::{Bounds, Domain, Location};
use crate::outcome::{CommitError, Committed, Durability, Options};
use crate::recovery::open_existing;
use crate::transaction::{Access, Transaction};
use std::collections::{BTreeMap, HashSet};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use systx_os::{Errno, FileType, FsKind, Open, Os, Words};
use systx_sim::machine::{run_process, Crash, Killed, Look, Machine, Plant, SimFd, SimOs, Tree};

/// Far more calls than any operation makes on these areas: a process that makes as many loops for ever.
const CALLS_MAX: u64 = 50_000;
/// Cases of the short form.
const CASES: u64 = 10_000;

/// An area in one of the states that a machine leaves behind, and what may be at each path of the tree beside it.
struct Base {
    what: &'static str,
    machine: Machine,
    states: BTreeMap<String, HashSet<Look>>,
}

fn within<T>(machine: &Machine, name: &str, work: impl FnOnce(&SimOs) -> T) -> Option<T> {
    let os = machine.spawn(name);
    let done = run_process(&os, || work(&os)).ok();
    os.exit();
    done
}

/// Plants objects that no transaction ever names.
fn plant_canary(machine: &Machine) {
    let canary = [
        ("canary", Plant::Dir),
        ("canary/file", Plant::FileMode(b"nobody writes here", 0o640)),
        ("canary/dir", Plant::Dir),
        ("canary/dir/inside", Plant::File(b"nor here")),
        ("canary/link", Plant::Symlink("file")),
    ];
    machine.plant(0, &canary).expect("planting");
    machine.settle();
}

fn undoable(domain: &Arc<Domain<SimOs>>, name: &[u8]) -> Result<Committed, CommitError> {
    let mut t = Transaction::begin(domain.os.clone(), vec![domain.clone()], Options::default())
        .map_err(crate::commit::aborted)?;
    let done = (|| {
        let root = t.root(0);
        let w = t.lookup(root, b"w")?.expect("it is there").0;
        let f = t.lookup(w, b"untouched")?.expect("it is there").0;
        t.open(f, Access::Write, false)?;
        t.write_at(f, b"overwritten and longer", 0)?;
        t.close(f);
        t.unlink(w, b"attr")?;
        t.mkdir(w, name, 0o755, ROOT)?;
        t.keep_image()
    })();
    let kept = done.map_err(crate::commit::aborted)?;
    let committed = t.commit()?;
    kept.committed(8).expect("there is room");
    Ok(committed)
}

/// An outsider's file comes to a name at which the commit places one: it is displaced.
fn conflict_copies(machine: &Machine) {
    let os = machine.spawn("owner");
    let outsider = machine.outsider("outsider");
    let mut acted = false;
    machine.set_hook(move |_, info| {
        if !acted && info.call == systx_sim::machine::Call::Rename && info.process_name == "owner" {
            acted = true;
            let w = outsider.open_path(0, "w", Open::Path).expect("is there");
            let _ = outsider.create(&w, b"newdir", 0o600);
        }
    });
    let _ = run_process(&os, || transact(&os, Kind::Everything, Durability::Durable));
    machine.clear_hook();
    os.exit();
}

/// The states. Each commit is cut at a call, or whole; with a settled disk, so that nothing depends on a power loss.
fn bases() -> Vec<Base> {
    let mut bases = Vec::new();
    let mut add = |what, kind, act: &dyn Fn(&Machine)| {
        let machine = machine(kind);
        plant_canary(&machine);
        let mut states: BTreeMap<String, HashSet<Look>> = BTreeMap::new();
        let mut note = |tree: Tree| {
            tree.into_iter().for_each(|(path, look)| {
                states.entry(path).or_default().insert(Look { same_as: None, ..look });
            });
        };
        note(public(&machine));
        act(&machine);
        machine.settle();
        note(public(&machine));
        let other = machine.fork();
        other.set_word_points(false);
        within(&other, "helper", |os| open(os).map(drop));
        note(public(&other));
        other.power_loss(Crash::Everything, &mut fastrand::Rng::with_seed(1));
        within(&other, "helper", |os| open(os).map(drop));
        note(public(&other));
        bases.push(Base { what, machine, states });
    };
    for (what, fs) in [("cut on ext4", FsKind::Ext4), ("cut on btrfs", FsKind::Btrfs)] {
        for kind in [Kind::Everything, Kind::Small] {
            let total = {
                let machine = machine(fs);
                let os = machine.spawn("owner");
                let _ = run_process(&os, || transact(&os, kind, Durability::Durable));
                os.points()
            };
            for part in [40, 70, 80, 90] {
                add(what, fs, &|machine| {
                    let os = machine.spawn("owner");
                    machine.kill_at(&os, total * part / 100);
                    let _ = run_process(&os, || transact(&os, kind, Durability::Durable));
                    machine.clear_plans();
                    os.exit();
                });
            }
        }
    }
    add("finished", FsKind::Ext4, &|machine| {
        within(machine, "owner", |os| transact(os, Kind::Everything, Durability::Durable).map(drop));
        within(machine, "owner", |os| make(&open(os).expect("opens"), b"one").map(drop));
    });
    add("displaced", FsKind::Ext4, &conflict_copies);
    add("undoable", FsKind::Ext4, &|machine| {
        within(machine, "owner", |os| undoable(&open(os).expect("opens"), b"made").map(drop));
        within(machine, "owner", |os| open(os).expect("opens").checkpoint());
        within(machine, "owner", |os| make(&open(os).expect("opens"), b"two").map(drop));
    });
    bases
}

/// One object of the area.
struct Object {
    path: String,
    kind: FileType,
    size: u64,
}

/// All of them. Not by a picture of the tree, which reads every byte.
fn objects(os: &SimOs) -> Result<Vec<Object>, Errno> {
    let top = os.open_path(0, ".systx", Open::Path)?;
    let stat = os.stat(&top)?;
    let mut all = vec![Object { path: ".systx".into(), kind: stat.kind(), size: stat.size }];
    let mut next = 0;
    while let Some(Object { path, kind, .. }) = all.get(next) {
        let path = path.clone();
        if *kind == FileType::Directory {
            let dir = os.open_path(0, &path, Open::Directory)?;
            let mut entries = os.read_dir(&dir)?;
            entries.sort();
            for entry in entries {
                let name = String::from_utf8_lossy(&entry.name);
                let size = os.stat_at(&dir, &entry.name)?.size;
                all.push(Object { path: format!("{path}/{name}"), kind: entry.kind, size });
            }
        }
        next += 1;
    }
    Ok(all)
}

fn split(path: &str) -> (&str, &[u8]) {
    let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
    (above, name.as_bytes())
}

fn above(os: &SimOs, path: &str) -> Result<SimFd, Errno> {
    os.open_path(0, split(path).0, Open::Directory)
}

fn bytes_of(os: &SimOs, path: &str, most: u64) -> Result<Vec<u8>, Errno> {
    let fd = os.open_path(0, path, Open::Read)?;
    let mut bytes = vec![0; os.stat(&fd)?.size.min(most) as usize];
    let got = os.pread(&fd, &mut bytes, 0)?;
    bytes.truncate(got);
    Ok(bytes)
}

/// Numbers on which arithmetic overflows, and allocation fails.
const EXTREMES: [u64; 10] =
    [0, 1, 64, 1 << 20, 1 << 31, u32::MAX as u64, 1 << 32, 1 << 43, 1 << 62, u64::MAX];

/// Damages one file of the area, and says how.
fn damage(machine: &Machine, rng: &mut fastrand::Rng) -> Result<(String, String), Errno> {
    let os = machine.outsider("damage");
    let all = objects(&os)?;
    let files: Vec<_> = all.iter().filter(|o| o.kind == FileType::File).collect();
    if files.is_empty() {
        return Err(Errno::NOENT);
    }
    let file = files[rng.usize(..files.len())];
    let picked = &all[rng.usize(..all.len())];
    let other = files[rng.usize(..files.len())];
    // The first pages of a segment have its header, its cells and bodies; the rest is mostly zeros.
    let at = |rng: &mut fastrand::Rng, size: u64| match rng.u8(..4) {
        0 => rng.u64(..size.max(1)),
        1 => rng.u64(..size.clamp(1, 512)),
        _ => rng.u64(..size.clamp(1, 16 << 10)),
    };
    let write = |path: &str, bytes: &[u8], at: u64| {
        os.pwrite(&os.open_path(0, path, Open::ReadWrite)?, bytes, at).map(drop)
    };
    let how = rng.u8(..16);
    let of_file = how < 10;
    let what = match how {
        0 | 1 => {
            let at = at(rng, file.size);
            let mut byte = [0];
            os.pread(&os.open_path(0, &file.path, Open::Read)?, &mut byte, at)?;
            byte[0] ^= 1 << rng.u8(..8);
            write(&file.path, &byte, at)?;
            format!("a bit flipped at {at}")
        }
        2 => {
            let at = at(rng, file.size);
            os.truncate(&os.open_path(0, &file.path, Open::ReadWrite)?, at)?;
            format!("cut at {at}")
        }
        3 => {
            let size = EXTREMES[rng.usize(..EXTREMES.len())].min(1 << 43);
            os.truncate(&os.open_path(0, &file.path, Open::ReadWrite)?, size)?;
            format!("made {size} bytes long")
        }
        4 | 5 => {
            let (at, number) = (at(rng, file.size) / 8 * 8, EXTREMES[rng.usize(..EXTREMES.len())]);
            let bytes = number.to_le_bytes();
            write(&file.path, if rng.bool() { &bytes } else { &bytes[..4] }, at)?;
            format!("{number} at {at}")
        }
        6 => {
            let bytes: Vec<u8> = (0..rng.usize(1..600)).map(|_| rng.u8(..)).collect();
            let at = at(rng, file.size);
            write(&file.path, &bytes, at)?;
            format!("{} bytes of garbage at {at}", bytes.len())
        }
        7 | 8 => {
            let unit = [64, 512, 4096][rng.usize(..3)];
            let bytes = bytes_of(&os, &other.path, 64 << 10)?;
            let from = at(rng, bytes.len() as u64) / unit * unit;
            let to = at(rng, file.size) / unit * unit;
            let end = (from + unit * rng.u64(1..4)).min(bytes.len() as u64);
            write(&file.path, &bytes[from as usize..end as usize], to)?;
            format!("{from}..{end} of {} at {to}", other.path)
        }
        9 => {
            let bytes = bytes_of(&os, &other.path, 4 << 20)?;
            let fd = os.open_path(0, &file.path, Open::ReadWrite)?;
            os.truncate(&fd, 0)?;
            os.pwrite(&fd, &bytes, 0)?;
            format!("what is in {}", other.path)
        }
        10 => {
            machine.remove(0, &picked.path)?;
            "removed".into()
        }
        11 | 12 => {
            machine.remove(0, &picked.path)?;
            let (dir, name) = (above(&os, &picked.path)?, split(&picked.path).1);
            match rng.u8(..7) {
                0 => os.mkdir(&dir, name, 0o700)?,
                1 => os.symlink(&dir, name, b"../canary/file")?,
                2 => os.symlink(&dir, name, b"../../canary/dir")?,
                3 => os.mknod(&dir, name, FileType::Fifo.mode_bits() | 0o600, 0)?,
                4 => os.mknod(&dir, name, FileType::Socket.mode_bits() | 0o600, 0)?,
                5 => drop(os.create(&dir, name, 0)?),
                _ => {
                    os.mkdir(&dir, name, 0o700)?;
                    let made = os.open(&dir, name, Open::Directory)?;
                    os.symlink(&made, b"x", b"../../canary")?;
                    os.mkdir(&made, b"d", 0)?;
                }
            }
            "of another type".into()
        }
        13 => {
            // A stray name.
            let dirs: Vec<_> = all.iter().filter(|o| o.kind == FileType::Directory).collect();
            if dirs.is_empty() {
                return Err(Errno::NOENT);
            }
            let above = &dirs[rng.usize(..dirs.len())].path;
            let dir = os.open_path(0, above, Open::Directory)?;
            let names: [&[u8]; 8] = [
                b"99",
                b"0000000000000009",
                b"ffffffffffffffff",
                b"18446744073709551615",
                b"7.1~",
                b"-1",
                b"slots.0.1",
                b"\xff.txt",
            ];
            let name = names[rng.usize(..names.len())];
            if rng.bool() {
                os.mkdir(&dir, name, 0o700)?
            } else {
                os.symlink(&dir, name, b"../../canary/file")?
            }
            // In a directory that is staged it is published with that.
            let name = String::from_utf8_lossy(name);
            return Ok((format!("{above}/{name}"), "made".into()));
        }
        14 => {
            let to = &all[rng.usize(..all.len())];
            let (from_dir, to_dir) = (above(&os, &picked.path)?, above(&os, &to.path)?);
            let (from, to_name) = (split(&picked.path).1, split(&to.path).1);
            os.rename((&from_dir, from), (&to_dir, to_name), systx_os::Rename::Exchange)?;
            format!("exchanged with {}", to.path)
        }
        _ => {
            let fd = os.open_path(0, &picked.path, Open::Path)?;
            let mode = [0, 0o777, 0o400, 0o1777][rng.usize(..4)];
            if rng.bool() {
                os.chmod(&fd, mode)?
            } else {
                os.chown(&fd, 7, 7)?
            }
            format!("mode {mode:o}, or of another user")
        }
    };
    let whose = if of_file { &file.path } else { &picked.path };
    Ok((whose.clone(), what))
}

/// Everything that the commands ask of an area that is there, whatever comes of it.
fn use_it(os: &SimOs) {
    let root = os.root(0);
    let site = Location { root: Arc::new(os.root(0)), bounds: Bounds::FileSystem, parent: &root, name: AREA };
    let found = open_existing(os, &[site], &[]);
    for domain in found.into_iter().flatten().flatten() {
        let _ = domain.finish_in_flight();
        let _ = domain.finish_dead();
        let _ = domain.transactions();
        let _ = domain.history();
        let _ = domain.awaited();
        let _ = domain.settle_images();
        for id in domain.images().unwrap_or_default() {
            drop(domain.image(id));
            let _ = domain.remove_image(id);
        }
        for report in domain.reports().unwrap_or_default() {
            let _ = domain.remove_reports(report.tx);
        }
        for name in domain.kept_aside().unwrap_or_default() {
            let _ = domain.remove_aside(&name);
        }
        if let Ok(Some(goal)) = domain.owed() {
            let _ = domain.cover(goal);
        }
        let _ = crate::log::raw(os, &domain.area.dir);
        let _ = domain.checkpoint();
    }
}

/// Another transaction, in whatever area is there or can be made.
fn go_on(os: &SimOs) {
    if let Ok(domain) = open(os) {
        let _ = change(&domain, |t, w| t.create(w, b"after", 0o644, ROOT).map(drop));
    }
}

fn bounded(machine: &Machine, name: &str, work: impl FnOnce(&SimOs)) -> Result<(), String> {
    let os = machine.spawn(name);
    machine.kill_at(&os, CALLS_MAX);
    let ended = catch_unwind(AssertUnwindSafe(|| run_process(&os, || work(&os))));
    machine.clear_plans();
    os.exit();
    match ended {
        Ok(Ok(())) => Ok(()),
        Ok(Err(Killed(_))) => Err(format!("{name}: no end after {CALLS_MAX} calls")),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string()));
            Err(format!("{name} panics: {}", text.unwrap_or_default()))
        }
    }
}

/// One case: what is wrong with it.
fn case(bases: &[Base], seed: u64) -> Result<(), String> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let base = &bases[rng.usize(..bases.len())];
    let machine = base.machine.fork();
    machine.set_word_points(false);
    let canary = |machine: &Machine| machine.tree_of(0, |path| path.split('/').next() == Some("canary"));
    let before = canary(&machine);
    let mut what = format!("case {seed}, {}", base.what);
    let mut in_bytes_of_slots = false;
    for _ in 0..rng.usize(1..4) {
        // Damage that can't be done to an object, such as to read a FIFO, is skipped.
        if let Ok((path, how)) = damage(&machine, &mut rng) {
            // Slots have the bytes and attributes that are published, and nothing else has them.
            in_bytes_of_slots |= !(path.starts_with(".systx/log") || path.matches('/').count() == 1)
                || how.contains("exchanged")
                || path.contains("/slots.");
            what += &format!("; {path}: {how}");
        }
    }
    if rng.bool() {
        let crash = if rng.bool() { Crash::Everything } else { Crash::NothingUnsynced };
        machine.settle();
        machine.power_loss(crash, &mut rng);
        what += "; power loss";
    }
    let failed = |why: String| format!("{what}: {why}");
    for (name, work) in [("use", use_it as fn(&SimOs)), ("run", go_on), ("use again", use_it)] {
        bounded(&machine, name, work).map_err(failed)?;
    }
    if canary(&machine) != before {
        return Err(failed(format!("outside: {:?}", canary(&machine))));
    }
    for (path, look) in public(&machine) {
        let known =
            base.states.get(&path).is_some_and(|all| all.contains(&Look { same_as: None, ..look.clone() }));
        let stray = path == "w/after" || path.starts_with(".systx");
        if !(known || stray || in_bytes_of_slots) {
            return Err(failed(format!("{path} is in no state that it ever had: {look:?}")));
        }
    }
    Ok(())
}

#[test]
fn a_table_without_a_next_number_covers_nothing() {
    let machine = machine(FsKind::Ext4);
    within(&machine, "owner", |os| {
        let domain = open(os).expect("opens");
        make(&domain, b"one").expect("commits");
        domain.table.mem().store(NEXT_WORD, 0, Ordering::SeqCst);
        assert!(domain.checkpoint().is_err(), "everything counts as covered");
    });
}

#[test]
fn whatever_is_damaged_in_an_area_every_use_of_it_ends_and_nothing_outside_is_changed() {
    let bases = bases();
    let long = std::env::var_os("SYSTX_LONG").is_some();
    let first = std::env::var("SYSTX_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0);
    let cases = if long { 1_000_000 } else { CASES };
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get().min(4)) as u64;
    let bases = &bases;
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let part = |n: u64| {
            move || {
                (first + n..first + cases)
                    .step_by(threads as usize)
                    .filter_map(|seed| case(bases, seed).err())
                    .take(5)
                    .collect::<Vec<_>>()
            }
        };
        let all: Vec<_> = (0..threads).map(|n| scope.spawn(part(n))).collect();
        all.into_iter().flat_map(|thread| thread.join().expect("no case ends it")).collect()
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
