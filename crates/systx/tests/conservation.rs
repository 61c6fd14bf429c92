//! Whatever an outsider does while a commit stands still between two of its steps, nothing of it is lost, and the rest of
//! the commit is there as a whole or not at all.
//!
//! A publisher is stopped right after one of the calls by which it changes something; then an outsider does one thing to one
//! name; then the publisher goes on. An outsider who has to wait for a lease does so meanwhile. `systx-engine` does the same
//! for every call, act and name on the simulated machine (`commit::tests::outsider`); this is the real one, in samples.
//!
//! `cargo test -p systx --test conservation`; many more with `SYSTX_LONG=1`; `SYSTX_SEED` repeats a run.

mod machine;

use machine::bench::CALLS;
use machine::picture::{picture, Picture};
use machine::processes::{traced, Stopped};
use machine::volume::Volume;
use machine::{code, err, have, must, rounds, run, verb, AREA};
use rustix::fs::{RenameFlags, XattrFlags, CWD};
use std::fs::{File, OpenOptions};
use std::io::{Result, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

fn main() {
    machine::main(&[
        ("nothing_an_outsider_does_between_two_steps_is_lost_on_ext4", |dir| conserve(dir, "ext4")),
        ("nothing_an_outsider_does_between_two_steps_is_lost_on_xfs", |dir| conserve(dir, "xfs")),
    ]);
}

const BEGIN: &str =
    "mkdir dst gone his; echo c > gone/c; echo old > small; echo old > replaced; echo old > removed
    echo old > moved; echo old > attr; echo old > grown; tr '\\0' x < /dev/zero | head -c 300000 > patched";
const SCRIPT: &str =
    "echo ours > new; mkdir newdir; echo ours > newdir/in; echo ours > small; echo ours > t; mv t replaced
    rm removed; mv moved dst/moved; chmod 751 attr; echo ours >> grown; rm -r gone
    printf ours | dd of=patched bs=1 seek=150000 conv=notrunc status=none";
const TARGETS: [&str; 12] = [
    "new",
    "newdir",
    "small",
    "replaced",
    "removed",
    "moved",
    "dst/moved",
    "dst",
    "attr",
    "grown",
    "gone",
    "patched",
];

macro_rules! acts {
    ($($name:ident,)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        enum Act {
            $($name,)*
        }
        const ACTS: [Act; 20] = [$(Act::$name,)*];
    };
}

acts! {
    CreateExclusive,
    CreateOrTruncate,
    Unlink,
    Rmdir,
    Mkdir,
    Symlink,
    LinkMine,
    LinkElsewhere,
    RenameMineOver,
    RenameDirOver,
    ExchangeMine,
    RenameAway,
    WriteStart,
    WriteOpenSinceBefore,
    Append,
    Chmod,
    Chown,
    SetXattr,
    Utimens,
    CreateInside,
}

/// Bytes that nobody else writes.
const HIS: &str = "these bytes are the outsider's";

impl Act {
    fn does(self, tree: &Path, target: &str, open: Option<&File>) -> Result<()> {
        let (name, mine, dir) = (tree.join(target), tree.join("his/mine"), tree.join("his/dir"));
        let rename = |how| rustix::fs::renameat_with(CWD, &mine, CWD, &name, how).map_err(Into::into);
        match self {
            Act::CreateExclusive => File::create_new(name)?.write_all(HIS.as_bytes()),
            Act::CreateOrTruncate => File::create(name)?.write_all(HIS.as_bytes()),
            Act::Unlink => std::fs::remove_file(name),
            Act::Rmdir => std::fs::remove_dir(name),
            Act::Mkdir => std::fs::create_dir(name),
            Act::Symlink => std::os::unix::fs::symlink(HIS, name),
            Act::LinkMine => std::fs::hard_link(mine, name),
            Act::LinkElsewhere => std::fs::hard_link(name, tree.join("his/kept")),
            Act::RenameMineOver => rename(RenameFlags::empty()),
            Act::RenameDirOver => std::fs::rename(dir, name),
            Act::ExchangeMine => rename(RenameFlags::EXCHANGE),
            Act::RenameAway => std::fs::rename(name, tree.join("his/away")),
            Act::WriteStart => OpenOptions::new().write(true).open(name)?.write_all_at(HIS.as_bytes(), 0),
            Act::WriteOpenSinceBefore => {
                let file = open.ok_or(std::io::ErrorKind::NotFound)?;
                file.write_all_at(HIS.as_bytes(), 0)
            }
            Act::Append => OpenOptions::new().append(true).open(name)?.write_all(HIS.as_bytes()),
            Act::Chmod => std::fs::set_permissions(name, PermissionsExt::from_mode(0o604)),
            Act::Chown => std::os::unix::fs::lchown(name, Some(77), Some(78)),
            Act::SetXattr => rustix::fs::lsetxattr(name, "user.his", HIS.as_bytes(), XattrFlags::empty())
                .map_err(Into::into),
            Act::Utimens => File::open(name)?.set_modified(std::time::UNIX_EPOCH),
            Act::CreateInside => std::fs::write(name.join("his"), HIS),
        }
    }

    /// The names to which it can be done.
    fn targets(self) -> &'static [&'static str] {
        use Act::*;
        match self {
            CreateExclusive | Mkdir | Symlink | LinkMine => &["new", "newdir", "dst/moved"],
            RenameDirOver => &["newdir", "new", "dst/moved"],
            Rmdir | CreateInside => &["newdir", "gone", "dst"],
            _ => &TARGETS,
        }
    }

    /// Leaves bytes of his.
    fn writes(self) -> bool {
        use Act::*;
        matches!(
            self,
            CreateExclusive
                | CreateOrTruncate
                | Symlink
                | LinkMine
                | RenameMineOver
                | RenameDirOver
                | ExchangeMine
                | WriteStart
                | WriteOpenSinceBefore
                | Append
                | SetXattr
                | CreateInside
        )
    }

    /// Changes the object and not the name.
    fn in_place(self) -> bool {
        use Act::*;
        matches!(
            self,
            CreateOrTruncate
                | WriteStart
                | WriteOpenSinceBefore
                | Append
                | Chmod
                | Chown
                | SetXattr
                | Utimens
        )
    }
}

/// Waits until the act is done, or stands in a lease of the publisher's.
fn done_or_waiting(done: &AtomicBool, thread: i32) {
    while !done.load(Ordering::Acquire) {
        let wchan = std::fs::read_to_string(format!("/proc/self/task/{thread}/wchan")).unwrap_or_default();
        if wchan.contains("lease") {
            return;
        }
        std::thread::yield_now();
    }
}

fn without_times(tree: &Path) -> Picture {
    let one = |(name, line): (String, String)| {
        let words: Vec<_> =
            line.split(' ').enumerate().filter(|(n, _)| *n != 2).map(|(_, word)| word).collect();
        (name, words.join(" "))
    };
    picture(tree).into_iter().map(one).collect()
}

struct World {
    dir: PathBuf,
    volume: Volume,
    tree: PathBuf,
}

impl World {
    fn command(&self) -> Command {
        run(&self.tree, &[], &["sh", "-c", SCRIPT])
    }

    /// The old tree, and two things of the outsider's.
    fn begin(&self) {
        let _ = std::fs::remove_dir_all(&self.tree);
        std::fs::create_dir(&self.tree).unwrap();
        must(Command::new("sh").args(["-ec", BEGIN]).current_dir(&self.tree));
        std::fs::write(self.tree.join("his/mine"), HIS).unwrap();
        std::fs::create_dir(self.tree.join("his/dir")).unwrap();
        std::fs::write(self.tree.join("his/dir/in"), HIS).unwrap();
    }

    /// All that is there or was put aside, as one text.
    fn everything(&self) -> String {
        let mut text = String::new();
        for dir in [self.tree.clone(), self.volume.area().join("aside")] {
            let list = "find . -printf '%p %y %m %U %l\\n'; find . -type f -exec cat {} +; getfattr -hRd . 2>/dev/null";
            text += &must(Command::new("sh").args(["-c", list]).current_dir(dir));
        }
        text
    }
}

fn conserve(dir: &Path, kind: &'static str) {
    if !have("strace") || !have("getfattr") {
        return;
    }
    let Some(volume) = Volume::new(dir, kind, if kind == "xfs" { 320 } else { 128 }) else { return };
    let tree = volume.point.join("tree");
    let w = World { dir: dir.to_path_buf(), volume, tree };
    w.begin();
    let old = without_times(&w.tree);
    // The area is made, and then the calls of a usual run are counted.
    assert_eq!(code(&w.command().output().unwrap()), 0);
    let new = without_times(&w.tree);
    w.begin();
    let trace = dir.join("trace");
    let output =
        traced(&w.command(), &["-o", trace.to_str().unwrap()], &format!("{CALLS},fcntl")).output().unwrap();
    assert_eq!(code(&output), 0, "{}", err(&output));
    let (stops, steps) = stops(&std::fs::read_to_string(&trace).unwrap());
    let (mut ends, mut acted, mut lost) = (std::collections::BTreeMap::new(), 0, Vec::new());
    for round in 0..rounds(80, 3000) {
        // Every act has its turn; most stops are where the steps are.
        let act = ACTS[round % ACTS.len()];
        let target = act.targets()[fastrand::usize(..act.targets().len())];
        let among = if round % 5 == 0 { 0..stops.len() } else { steps.clone() };
        let (call, count) = &stops[fastrand::usize(among)];
        w.begin();
        let open = OpenOptions::new().write(true).open(w.tree.join(target)).ok();
        let open = open.filter(|_| act == Act::WriteOpenSinceBefore);
        let Ok(stopped) = Stopped::after(&w.dir, &w.command(), call, *count) else { continue };
        let (done, (send, thread)) = (AtomicBool::new(false), std::sync::mpsc::channel());
        let (answer, output) = std::thread::scope(|scope| {
            let his = scope.spawn(|| {
                send.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
                let answer = act.does(&w.tree, target, open.as_ref());
                done.store(true, Ordering::Release);
                answer
            });
            done_or_waiting(&done, thread.recv().unwrap());
            let output = stopped.go_on();
            (his.join().unwrap(), output)
        });
        drop(open);
        let what = format!("after {call} {count}, {act:?} of {target}");
        let problems = judge(&w, act, target, answer.is_ok(), &output, [&old, &new]);
        lost.extend(
            problems
                .into_iter()
                .map(|problem| format!("{what}: status {}: {problem}; {}", code(&output), err(&output))),
        );
        acted += usize::from(answer.is_ok());
        *ends.entry(code(&output)).or_insert(0) += 1;
        must(Command::new(machine::systx()).args(["prune", "--yes", "--area-name", AREA]));
    }
    println!("{kind}: {acted} acts succeeded; commits by exit status: {ends:?}");
    assert!(lost.is_empty(), "{}", lost.join("\n"));
    assert!(acted > 10 && [0, 76].iter().all(|end| ends.contains_key(end)), "{ends:?}");
    let status: serde_json::Value = serde_json::from_slice(&verb("status", &["--json"]).stdout).unwrap();
    assert_eq!((&status[0]["running"], &status[0]["in_flight"]), (&0.into(), &0.into()), "{status}");
}

/// Calls of the commit after which to stop, counted by name: those that change something, and those that take a lease. And
/// which of them are from the last lease, on which the last look follows, to the last step, after which leases are given
/// back.
fn stops(trace: &str) -> (Vec<(String, usize)>, std::ops::Range<usize>) {
    let (mut counts, mut stops) = (std::collections::HashMap::new(), Vec::new());
    let (mut first, mut last) = (0, 0);
    for line in trace.lines() {
        let Some((name, rest)) = line.split_once('(').filter(|(name, _)| !name.contains([' ', '_'])) else {
            continue;
        };
        let count = counts.entry(name).or_insert(0);
        *count += 1;
        match name {
            // What the command does next depends on what an outsider did before; so only when it has ended.
            "syncfs" => stops.clear(),
            "fcntl" if rest.contains("F_SETLEASE, F_WRLCK") => first = stops.len(),
            "fcntl" if rest.contains("F_SETLEASE, F_UNLCK") => {
                last = stops.len();
                continue;
            }
            "fcntl" => continue,
            _ => {}
        }
        stops.push((name.to_owned(), *count));
    }
    assert!(first < last && last <= stops.len(), "no steps from {first} to {last} in {trace}");
    (stops, first..last)
}

fn judge(
    w: &World,
    act: Act,
    target: &str,
    acknowledged: bool,
    output: &std::process::Output,
    [old, new]: [&Picture; 2],
) -> Vec<String> {
    let mut wrong = Vec::new();
    let end = code(output);
    if ![0, 75, 76].contains(&end) {
        wrong.push("an outsider is no reason for that".into());
    }
    let aside: Vec<_> = std::fs::read_dir(w.volume.area().join("aside")).unwrap().collect();
    if !aside.is_empty() && (end != 76 || !err(output).contains("aside/")) {
        wrong.push(format!("{} aside and not reported", aside.len()));
    }
    let there = without_times(&w.tree);
    // What nobody but the transaction touched is all new or all old.
    let expected = if end == 75 { old } else { new };
    let other = if target == "moved" {
        "dst/moved"
    } else if target == "dst/moved" {
        "moved"
    } else {
        target
    };
    let his = |path: &str| {
        let below = |of: &str| path == of || path.starts_with(&format!("{of}/"));
        below("his")
            || path.is_empty()
            || below(target)
            || below(other)
            || (target == "dst" && below("moved"))
    };
    for path in expected.keys().chain(there.keys()).filter(|path| !his(path)) {
        // Without the parent, which his act may have changed.
        if expected.get(path) != there.get(path) && !target.starts_with(&format!("{path}/")) {
            wrong.push(format!("{path}: {:?} instead of {:?}", there.get(path), expected.get(path)));
        }
    }
    if !acknowledged {
        return wrong;
    }
    // An object that the transaction removes, or whose name it gives to another, goes with what was written into it before.
    let goes = ["removed", "replaced", "gone"].contains(&target);
    let everything = w.everything();
    if act.writes() && !(goes && act.in_place()) && !everything.contains(HIS) {
        wrong.push("his bytes are lost".into());
    }
    let named = w.tree.join(target).symlink_metadata().is_ok();
    match act {
        Act::Unlink | Act::Rmdir if named => wrong.push("what he removed is there".into()),
        Act::RenameAway if named => wrong.push("what he moved away is there".into()),
        Act::RenameAway if !there.contains_key("his/away") => {
            wrong.push("what he moved away is nowhere".into())
        }
        Act::LinkElsewhere if !there.contains_key("his/kept") => wrong.push("his name for it is gone".into()),
        Act::Mkdir if !named => wrong.push("his directory is gone".into()),
        // The mode of what gets another mode at the same time is gap (d) of docs/guarantees.md.
        Act::Chmod if !goes && target != "attr" && !everything.contains(" 604 ") => {
            wrong.push("his mode is lost".into())
        }
        Act::Chown if !goes && target != "attr" && !everything.contains(" 77 ") => {
            wrong.push("his owner is lost".into())
        }
        _ => {}
    }
    wrong
}
