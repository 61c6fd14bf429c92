//! Programs that close the engine's descriptors in mid-commit, and open their own file under each of their numbers.

use super::stuck::{make, ROOT};
use super::world::*;
use crate::domain::{Bounds, Domain, Location};
use crate::mutant::{self, Mutant};
use crate::outcome::{CommitError, Committed, Durability, Options, Verb};
use crate::transaction::{Access, SetAttr, Transaction};
use std::sync::{Arc, Mutex};
use systx_os::{FsKind, Guest, Os};
use systx_sim::machine::{run_process, Call, Crash, Machine, Plant, SimOs, Tree};

type Host = Guest<SimOs>;

/// The program's own file, and what is in it.
const OWN: &str = "own";
const BYTES: &[u8] = b"what the program has written";

/// What becomes of every descriptor at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Becomes {
    Closed,
    TheirFile,
}

fn world() -> Machine {
    let machine = machine(FsKind::Ext4);
    machine.plant(0, &[(OWN, Plant::File(BYTES))]).expect("planting");
    machine.settle();
    machine
}

fn host(os: &SimOs) -> Host {
    match mutant::on(Mutant::LostUnseen) {
        true => Guest::trusting(os.clone()),
        false => Guest::over(os.clone()),
    }
}

fn opened(host: &Host, os: &SimOs) -> Result<Arc<Domain<Host>>, CommitError> {
    let root = Arc::new(host.adopt(os.root(0)).expect("opens"));
    let opened = Domain::open(
        host,
        Location { root: root.clone(), bounds: Bounds::FileSystem, parent: &root, name: AREA },
    );
    opened.map_err(|e| CommitError::Refused(e.to_string()))
}

/// Changes with and without staging entries: a small file and a large one, a patch, a removal, attributes.
fn begun(domain: &Arc<Domain<Host>>, durability: Durability) -> Verb<Transaction<Host>> {
    let options = Options { durability, ..Options::default() };
    let mut t = Transaction::begin(domain.os.clone(), vec![domain.clone()], options)?;
    let w = t.lookup(t.root(0), b"w")?.expect("it is there").0;
    for (name, len) in [(&b"small"[..], 10), (b"large", 200_000)] {
        let (node, _) = t.create(w, name, 0o644, ROOT)?;
        t.open(node, Access::Write, false)?;
        t.write_at(node, &vec![b'x'; len], 0)?;
        t.close(node);
    }
    let (patched, _) = t.lookup(w, b"patched")?.expect("it is there");
    t.open(patched, Access::Write, false)?;
    t.write_at(patched, b"new bytes", 600)?;
    t.close(patched);
    let (attr, _) = t.lookup(w, b"attr")?.expect("it is there");
    t.setattr(attr, &SetAttr { mode: Some(0o600), ..SetAttr::default() })?;
    t.unlink(w, b"removed")?;
    Ok(t)
}

/// How a commit ended.
struct Ended {
    machine: Machine,
    told: Result<Committed, CommitError>,
    /// It got as far as losing something.
    lost: bool,
}

/// How often a commit looks at a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Looks {
    AtEachUse,
    /// Once for all that only looks, and behind each wait.
    Once,
}

/// Commits, and at its n-th look at a descriptor all become something else.
fn commit(start: &Machine, durability: Durability, becomes: Becomes, n: u64, often: Looks) -> Ended {
    let machine = start.fork();
    let os = machine.spawn("host");
    let lost = Arc::new(Mutex::new(false));
    let told = run_process(&os, || {
        let host = host(&os);
        let domain = opened(&host, &os)?;
        let t = begun(&domain, durability).map_err(crate::commit::aborted)?;
        let (process, seen) = (os.clone(), lost.clone());
        let mut left = n;
        // Without the rule nobody looks: before any call that does something, then.
        let looks = |call| match mutant::on(Mutant::LostUnseen) {
            true => {
                matches!(call, Call::Pwrite | Call::Fdatasync | Call::Rename | Call::Create | Call::Unlink)
            }
            false => call == Call::Still,
        };
        machine.set_hook(move |machine, point| {
            if point.process != process.process() || !looks(point.call) {
                return;
            }
            if left == 0 {
                *seen.lock().expect("nobody panicked") = true;
                match becomes {
                    Becomes::Closed => machine.close_all(&process),
                    Becomes::TheirFile => machine.replace_all(&process, 0, OWN).expect("it is there"),
                }
            }
            left = left.wrapping_sub(1);
        });
        let in_call = (often == Looks::Once).then(Host::in_call);
        let told = t.commit();
        drop(in_call);
        machine.clear_hook();
        told
    });
    let lost = *lost.lock().expect("nobody panicked");
    Ended { machine, told: told.expect("not killed"), lost }
}

fn own_file(machine: &Machine) -> bool {
    let bytes = |machine: &Machine| {
        let os = machine.outsider("looker");
        let fd = os.open_path(0, OWN, systx_os::Open::Read).expect("it is there");
        let mut bytes = vec![0; BYTES.len() + 512];
        let n = os.pread(&fd, &mut bytes, 0).expect("reads");
        bytes.truncate(n);
        bytes
    };
    bytes(machine) == BYTES
}

/// What is there when all that is left was finished.
fn settled(machine: &Machine) -> Tree {
    let next = machine.spawn("next");
    let done = run_process(&next, || {
        let domain = open(&next).expect("opens");
        let left = domain.finish_dead().expect("recovers");
        assert!(left.unfinished.is_empty(), "{:?}", left.unfinished);
    });
    done.expect("not killed");
    public(machine)
}

/// Runs `check` for a loss at every look of a commit.
fn at_every_look(durability: Durability, often: Looks, check: impl Fn(&str, Ended)) {
    let start = world();
    for becomes in [Becomes::Closed, Becomes::TheirFile] {
        for n in 0.. {
            let ended = commit(&start, durability, becomes, n, often);
            let reached = ended.lost;
            check(&format!("{durability:?}, {becomes:?} at look {n}, {often:?}"), ended);
            if !reached {
                assert!(n > 5, "a commit looks at its descriptors: {n}");
                break;
            }
        }
    }
}

#[test]
fn a_commit_writes_to_no_file_that_its_program_has_opened_meanwhile() {
    let both = |durability| [(durability, Looks::AtEachUse), (durability, Looks::Once)];
    for (durability, often) in [Durability::Durable, Durability::None].into_iter().flat_map(both) {
        at_every_look(durability, often, |case, ended| {
            assert!(own_file(&ended.machine), "written to the program's own file: {case}");
        });
    }
}

#[test]
fn a_commit_that_loses_its_descriptors_says_what_is_so() {
    let start = world();
    let before = public(&start);
    let after = {
        let ended = commit(&start, Durability::Durable, Becomes::Closed, u64::MAX, Looks::AtEachUse);
        ended.told.expect("commits");
        public(&ended.machine)
    };
    for durability in [Durability::Durable, Durability::None] {
        let outcomes = Mutex::new([0; 3]);
        at_every_look(durability, Looks::AtEachUse, |case, ended| {
            let Ended { machine, told, .. } = ended;
            // Without its process, as it can't open again what it has lost; but with others.
            machine.kill_everybody();
            let powerless = machine.fork();
            let tree = settled(&machine);
            let mut outcomes = outcomes.lock().expect("nobody panicked");
            match &told {
                Ok(_) => {
                    outcomes[0] += 1;
                    assert_eq!(tree, after, "committed, and it is not there: {case}");
                    if durability == Durability::Durable {
                        powerless.power_loss(Crash::NothingUnsynced, &mut fastrand::Rng::with_seed(1));
                        assert_eq!(settled(&powerless), after, "committed, and lost with the power: {case}");
                    }
                }
                Err(CommitError::InDoubt { .. }) => {
                    outcomes[1] += 1;
                    assert!(tree == before || tree == after, "a mixture: {case}");
                }
                Err(_) => {
                    outcomes[2] += 1;
                    assert_eq!(tree, before, "{told:?}, and something was changed: {case}");
                }
            }
        });
        let [committed, _, failed] = outcomes.into_inner().expect("nobody panicked");
        assert!(committed > 0 && failed > 0, "{committed} committed, {failed} failed");
    }
}

/// The loss of one process is no failure of the disk: the others go on.
#[test]
fn others_commit_beside_a_process_that_has_lost_its_descriptors() {
    at_every_look(Durability::Durable, Looks::AtEachUse, |case, ended| {
        let machine = ended.machine;
        machine.kill_everybody();
        let other = machine.spawn("other");
        let done = run_process(&other, || {
            let domain = open(&other).expect("opens");
            assert!(!domain.log.is_poisoned(), "the log is closed: {case}");
            make(&domain, b"others").map(drop)
        });
        done.expect("not killed").unwrap_or_else(|e| panic!("{e}: {case}"));
    });
}

/// Reads do not look at a descriptor each time, so it is looked at when it is closed.
#[test]
fn what_was_read_from_a_file_of_the_program_does_not_commit() {
    let start = world();
    for (lost, closed) in [(false, false), (false, true), (true, false), (true, true)] {
        let machine = start.fork();
        let os = machine.spawn("host");
        let told = run_process(&os, || {
            let domain = opened(&host(&os), &os).expect("opens");
            let mut t = Transaction::begin(domain.os.clone(), vec![domain.clone()], Options::default())?;
            let w = t.lookup(t.root(0), b"w")?.expect("it is there").0;
            let (node, _) = t.lookup(w, b"patched")?.expect("it is there");
            t.open(node, Access::Read, false)?;
            let (mut reads, mut first, mut second) = (0, [0; 16], [0; 16]);
            assert_eq!(t.read_at(node, &mut first, 0)?, 16);
            for again in [false, true] {
                let in_call = Host::in_call_of(&mut reads);
                assert_eq!(t.read_on(node, &mut second, 0), Some(16), "nothing else is to be asked");
                drop(in_call);
                if lost && !again {
                    machine.replace_all(&os, 0, OWN).expect("it is there");
                }
            }
            assert_eq!(second == BYTES[..16], lost, "a look would cost a call");
            if closed {
                t.close(node);
            }
            Ok::<_, crate::outcome::VerbError>(t.commit())
        });
        match told.expect("not killed").expect("the calls succeed") {
            Ok(_) => assert!(!lost, "it has read the program's own file"),
            Err(CommitError::Failed { error, .. }) => assert!(lost && error == systx_os::Errno::BADF),
            Err(other) => panic!("{other}"),
        }
    }
}
