//! Whatever an outsider does while a commit stands still between two of its steps, nothing of it is lost, and
//! the rest of the commit is there as a whole or not at all.
//!
//! A publisher is stopped right after one of the calls by which it changes something; then an outsider does
//! one thing to one name; then the publisher goes on. An outsider who has to wait for a lease does so
//! meanwhile. `systx-engine` does the same for every call, act and name on the simulated machine
//! (`commit::tests::outsider`); this is the real one.
//!
//! `cargo test -p systx-cli --test conservation`: acts on names just before the step on the name, and each act
//! after a few calls, a sample. `SYSTX_LONG=1`: every act on every name that it fits, after every step of
//! publication; and every act after every other call. `SYSTX_SEED` repeats a run.

#[path = "conservation/act.rs"]
mod act;
#[path = "conservation/judge.rs"]
mod judge;
mod machine;
#[path = "conservation/world.rs"]
mod world;

use act::{Act, ACTS};
use judge::judge;
use machine::bench::CALLS;
use machine::processes::{traced, Stopped};
use machine::{code, err, have, rounds};
use std::collections::{BTreeMap, VecDeque};
use std::fs::OpenOptions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use world::{inode, without_times, World};

fn main() {
    machine::main(&[
        ("nothing_an_outsider_does_between_two_steps_is_lost_on_ext4", |dir| conserve(dir, "ext4")),
        ("nothing_an_outsider_does_between_two_steps_is_lost_on_xfs", |dir| conserve(dir, "xfs")),
        ("what_is_lost_of_an_outsiders_is_found_out", what_is_lost_of_an_outsiders_is_found_out),
        ("a_rest_that_is_not_whole_is_found_out", a_rest_that_is_not_whole_is_found_out),
    ]);
}

/// A call of the commit after which to stop, counted by name.
struct Stop {
    call: String,
    count: usize,
    /// From the last lease, on which the last look follows, to the last step, after which leases are given back.
    step: bool,
    /// The call that comes then.
    next: String,
}

impl Stop {
    /// Returns true if the next call is a step on this very name.
    fn is_before(&self, target: &str) -> bool {
        let name = target.rsplit('/').next().unwrap_or_default();
        self.step && self.next.contains(&format!("\"{name}\""))
    }
}

/// After one that was not reached: in a long run the same again, else some step.
fn another<'a>(stops: &'a [Stop], missed: &'a Stop) -> &'a Stop {
    let steps: Vec<_> = stops.iter().filter(|stop| stop.step).collect();
    if rounds(0, 1) == 1 {
        missed
    } else {
        steps[fastrand::usize(..steps.len())]
    }
}

/// Returns the cases to play: a sample, or all.
fn cases(stops: &[Stop]) -> Vec<(&Stop, Act, &'static str)> {
    let any = |act: Act| act.targets()[fastrand::usize(..act.targets().len())];
    let mut cases = Vec::new();
    if rounds(0, 1) == 1 {
        for stop in stops {
            for act in ACTS {
                match stop.step {
                    true => cases.extend(act.targets().iter().map(|target| (stop, act, *target))),
                    false => cases.push((stop, act, any(act))),
                }
            }
        }
        return cases;
    }
    // All that an outsider can do to a name just before the step on it.
    for act in ACTS.into_iter().filter(|act| !act.in_place()) {
        for target in act.targets() {
            let before = stops.iter().filter(|stop| stop.is_before(target));
            cases.extend(before.map(|stop| (stop, act, *target)));
        }
    }
    let steps: Vec<_> = stops.iter().filter(|stop| stop.step).collect();
    for turn in 0..4 {
        for act in ACTS {
            let stop = match turn {
                0 => &stops[fastrand::usize(..stops.len())],
                _ => steps[fastrand::usize(..steps.len())],
            };
            cases.push((stop, act, any(act)));
        }
    }
    cases
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

fn conserve(dir: &Path, kind: &'static str) {
    if !have("strace") || !have("getfattr") {
        return;
    }
    let Some(w) = World::new(dir, kind) else { return };
    // Another sample on each.
    fastrand::seed(fastrand::u64(..).wrapping_add(kind.len() as u64));
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
    let stops = stops(&std::fs::read_to_string(&trace).unwrap());
    let (mut ends, mut lost, mut missed) = (BTreeMap::new(), Vec::new(), 0);
    // For each act, how often it met a step of publication, and how often it succeeded there.
    let mut met = [(0, 0); ACTS.len()];
    let mut cases: VecDeque<_> = cases(&stops).into_iter().map(|case| (case, 0)).collect();
    let mut played = 0;
    while let Some(((stop, act, target), tries)) = cases.pop_front() {
        let Stop { call, count, step, .. } = stop;
        w.begin();
        let mut before = w.before(target);
        let open = OpenOptions::new().write(true).open(w.tree.join(target)).ok();
        let open = open.filter(|_| act == Act::WriteOpenSinceBefore);
        let what = format!("after {call} {count}, {act:?} of {target}");
        // How often some calls come before the commit is a matter of luck; before it nothing can be lost.
        let undisturbed = match Stopped::after(&w.dir, &w.command(), call, *count) {
            Ok(stopped) if w.told() => Ok(stopped),
            Ok(stopped) => Err(stopped.go_on()),
            Err(output) => Err(output),
        };
        let stopped = match undisturbed {
            Ok(stopped) => stopped,
            Err(output) => {
                assert_eq!((code(&output), &without_times(&w.tree)), (0, &new), "{what}: {}", err(&output));
                match tries < 3 {
                    true => cases.push_back(((another(&stops, stop), act, target), tries + 1)),
                    false => missed += 1,
                }
                continue;
            }
        };
        played += 1;
        before.taken = inode(&w.tree.join(target));
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
        let problems = judge(&w, act, target, &before, answer.is_ok(), &output, [&old, &new]);
        for problem in problems {
            lost.push(format!("{what}: status {}: {problem}; {}", code(&output), err(&output)));
            println!("{}", lost[lost.len() - 1]);
        }
        if *step {
            met[act as usize].0 += 1;
            met[act as usize].1 += usize::from(answer.is_ok());
        }
        *ends.entry(code(&output)).or_insert(0) += 1;
        w.prune();
    }
    let each: Vec<_> =
        ACTS.iter().zip(met).map(|(act, (met, ok))| format!("{act:?} {ok} of {met}")).collect();
    println!("{kind}: {played} rounds, {missed} without a stop; commits by exit status: {ends:?}");
    println!("{kind}: acts that succeeded at a step of publication: {}", each.join(", "));
    assert!(lost.is_empty(), "{} problems, see above", lost.len());
    assert!(met.iter().all(|(met, _)| *met > 0), "an act met no step");
    assert!(met.iter().map(|(_, ok)| ok).sum::<usize>() > 10, "hardly an act succeeded");
    assert!(rounds(0, 1) == 0 || met.iter().all(|(_, ok)| *ok > 0), "an act never succeeded");
    assert!([0, 76].iter().all(|end| ends.contains_key(end)), "{ends:?}");
    w.quiet();
}

/// Calls that change something, and those that take a lease.
fn stops(trace: &str) -> Vec<Stop> {
    let (mut counts, mut stops) = (std::collections::HashMap::new(), Vec::<Stop>::new());
    let (mut first, mut last) = (0, 0);
    for line in trace.lines() {
        let Some((name, rest)) = line.split_once('(').filter(|(name, _)| !name.contains([' ', '_'])) else {
            continue;
        };
        let count = counts.entry(name).or_insert(0);
        *count += 1;
        match name {
            // The command's calls depend on what an outsider did before; so only when it has ended.
            "syncfs" => stops.clear(),
            "fcntl" if rest.contains("F_SETLEASE, F_WRLCK") => first = stops.len(),
            "fcntl" if rest.contains("F_SETLEASE, F_UNLCK") => {
                last = stops.len();
                continue;
            }
            "fcntl" => continue,
            _ => {}
        }
        if let Some(before) = stops.last_mut() {
            line.clone_into(&mut before.next);
        }
        stops.push(Stop { call: name.to_owned(), count: *count, step: false, next: String::new() });
    }
    assert!(first < last && last <= stops.len(), "no steps from {first} to {last} in {trace}");
    stops[first..last].iter_mut().for_each(|stop| stop.step = true);
    stops
}

/// Checks an undisturbed run, followed by the outsider's act: what the act left is whole, until something is
/// done to it by hand.
fn undisturbed(w: &World, act: Act, target: &str, harm: impl Fn(&World)) -> [Vec<String>; 2] {
    w.begin();
    let old = without_times(&w.tree);
    let mut before = w.before(target);
    let output = w.command().output().unwrap();
    assert_eq!(code(&output), 0, "{}", err(&output));
    let new = without_times(&w.tree);
    let name = w.tree.join(target);
    if act == Act::Rmdir {
        std::fs::create_dir(&name).unwrap();
    }
    before.taken = inode(&name);
    let open = OpenOptions::new().write(true).open(&name).ok();
    act.does(&w.tree, target, open.as_ref()).unwrap_or_else(|e| panic!("{act:?} of {target}: {e}"));
    let judged = || judge(w, act, target, &before, true, &output, [&old, &new]);
    let whole = judged();
    harm(w);
    [whole, judged()]
}

/// Takes away what an act left, as a publication would that loses it.
fn take_away(act: Act, name: &Path, tree: &Path) -> std::io::Result<()> {
    use Act::*;
    match act {
        CreateExclusive | CreateOrTruncate | WriteStart | WriteOpenSinceBefore | Append | Unlink => {
            std::fs::write(name, "ours\n")
        }
        Symlink | LinkMine => std::fs::remove_file(name),
        Rmdir => std::fs::create_dir(name),
        Mkdir => std::fs::remove_dir(name),
        LinkElsewhere => std::fs::remove_file(tree.join("his/kept")),
        // Bytes equal to those of the outsider's file, but in another file.
        RenameMineOver | ExchangeMine => {
            std::fs::copy(name, tree.join("copy"))?;
            std::fs::rename(tree.join("copy"), name)
        }
        RenameDirOver => std::fs::remove_file(name.join("in")),
        RenameAway => std::fs::remove_file(tree.join("his/away")),
        Chmod => std::fs::set_permissions(name, PermissionsExt::from_mode(0o644)),
        Chown => std::os::unix::fs::lchown(name, Some(0), Some(0)),
        SetXattr => rustix::fs::lremovexattr(name, "user.his").map_err(Into::into),
        CreateInside => std::fs::remove_file(name.join("his")),
        // Times are not looked at.
        Utimens => Ok(()),
    }
}

fn what_is_lost_of_an_outsiders_is_found_out(dir: &Path) {
    let Some(w) = World::new(dir, "ext4").filter(|_| have("getfattr")) else { return };
    for act in ACTS.into_iter().filter(|act| *act != Act::Utimens) {
        let target = match act {
            Act::CreateInside => "newdir",
            // It is not there after the commit.
            _ if !act.targets().contains(&"small") => "removed",
            _ => "small",
        };
        let [whole, harmed] = undisturbed(&w, act, target, |w| {
            take_away(act, &w.tree.join(target), &w.tree).unwrap();
        });
        assert!(whole.is_empty(), "{act:?} of {target}: {whole:?}");
        assert!(!harmed.is_empty(), "{act:?} of {target} was taken back, and nobody noticed");
    }
}

type Harm = fn(&World);

fn a_rest_that_is_not_whole_is_found_out(dir: &Path) {
    let Some(w) = World::new(dir, "ext4").filter(|_| have("getfattr")) else { return };
    let harms: [(&str, Harm); 4] = [
        ("an effect is missing", |w| std::fs::write(w.tree.join("grown"), "old\n").unwrap()),
        ("a name is left over", |w| std::fs::write(w.tree.join("removed"), "old\n").unwrap()),
        ("an attribute is missing", |w| {
            std::fs::set_permissions(w.tree.join("attr"), PermissionsExt::from_mode(0o644)).unwrap();
        }),
        ("something is aside and not reported", |w| std::fs::write(w.aside().join("his"), "").unwrap()),
    ];
    for (what, harm) in harms {
        let [whole, harmed] = undisturbed(&w, Act::Chmod, "small", harm);
        assert!(whole.is_empty(), "{whole:?}");
        assert!(!harmed.is_empty(), "{what}, and nobody noticed");
    }
}
