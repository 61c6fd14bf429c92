//! A large file is written anew, from O_TRUNC on, through the verbs and the planner; an outsider acts once,
//! before any call.
//!
//! Natively the file stays the same one: a process that has it open writes into it, and its other names show
//! the new bytes. So either that is what is found afterwards, or the commit says that it did not happen, or
//! the outsider's part is in `aside/` and reported.

use super::super::world::{machine_where, open, public, Finds};
use super::acts::{plant, Act, Outsider, HIS};
use super::judge::differences;
use super::{copy, long, Then};
use crate::outcome::{CommitError, Committed, Durability, Options, VerbError};
use crate::transaction::{Access, Transaction};
use std::sync::{Arc, Mutex};
use systx_os::{Errno, FsKind, Open};
use systx_sim::machine::{run_process, Call, Crash, Machine, Plant, PointInfo, SimOs, Tree};

const NAME: &str = "rewritten";
const PATH: &str = "w/rewritten";
const OLD_BYTES: usize = 5000;
/// Large enough to take the old one's place.
const NEW_BYTES: usize = (1 << 20) + 1000;

const ACTS: [Act; 16] = [
    Act::WriteOpenSinceBefore,
    Act::LinkElsewhere,
    Act::WriteStart,
    Act::WriteMiddle,
    Act::Append,
    Act::Truncate,
    Act::CreateOrTruncate,
    Act::Chmod,
    Act::Chown,
    Act::Utimens,
    Act::Unlink,
    Act::RenameMineOver,
    Act::ExchangeMine,
    Act::RenameAway,
    Act::RenameAwayAndBack,
    Act::WriteAndTimeBack,
];

fn new_bytes() -> Vec<u8> {
    (0..NEW_BYTES).map(|n| (n / 512) as u8 | 1).collect()
}

fn rewrite(os: &SimOs) -> Result<Committed, CommitError> {
    let failed = |e: VerbError| crate::commit::aborted(e);
    let domain = open(os).map_err(|e| CommitError::Refused(e.to_string()))?;
    let options =
        Options { durability: Durability::Durable, command: "rewrite".into(), ..Options::default() };
    let mut t = Transaction::begin(os.clone(), vec![domain], options).map_err(failed)?;
    let root = t.root(0);
    let mut node = root;
    for name in [&b"w"[..], NAME.as_bytes()] {
        let found = t.lookup(node, name).map_err(failed)?;
        node = found.ok_or_else(|| failed(VerbError::Os(Errno::NOENT)))?.0;
    }
    t.open(node, Access::Write, true).map_err(failed)?;
    let bytes = new_bytes();
    let mut at = 0;
    while at < bytes.len() {
        at += t.write_at(node, &bytes[at..], at as u64).map_err(failed)?;
    }
    t.close(node);
    t.commit()
}

struct Stage {
    machine: Machine,
    calls: Vec<PointInfo>,
    /// The first look at the file: what is done before is done before the transaction.
    touch: u64,
    /// The exchange.
    exchange: u64,
}

impl Stage {
    fn new(finds: Finds) -> Stage {
        let machine = machine_where(FsKind::Ext4, finds);
        plant(&machine);
        machine.plant(0, &[(PATH, Plant::File(&[3; OLD_BYTES]))]).expect("planting");
        machine.settle();
        let copy = copy(&machine);
        copy.start_trace();
        let os = copy.spawn("owner");
        run_process(&os, || rewrite(&os)).expect("lives").expect("commits");
        let calls = copy.take_trace();
        let last = |call: Call| calls.iter().rposition(|p| p.call == call).expect("is called");
        assert!(last(Call::Rename) > last(Call::Pwrite), "it is replaced");
        let touch = calls.iter().position(|p| p.call == Call::StatAt && p.name == NAME.as_bytes());
        let touch = touch.expect("is looked at");
        Stage { machine, touch: touch as u64, exchange: last(Call::Rename) as u64, calls }
    }
}

/// The state that was found in the end.
struct Found {
    end: Tree,
    /// Below `aside/`.
    aside: Tree,
    /// The path is in a report, or (the publisher was killed) something is aside.
    reported: bool,
}

impl Found {
    fn everywhere(&self) -> impl Iterator<Item = &systx_sim::machine::Look> {
        self.end.values().chain(self.aside.values().filter(|_| self.reported))
    }

    fn has_his_bytes(&self) -> bool {
        self.everywhere().any(|look| {
            let ends = [0, 620, OLD_BYTES, NEW_BYTES, look.content.len().saturating_sub(HIS.len())];
            ends.iter().any(|at| look.content.get(*at..*at + HIS.len()) == Some(HIS))
        })
    }

    /// Returns true if what an act left behind is there, all of the transaction's being there, too.
    fn holds(&self, act: Act, then: &Tree) -> bool {
        let new = new_bytes();
        let here = self.end.get(PATH);
        let is_new = here.is_some_and(|look| look.content == new);
        match act {
            Act::LinkElsewhere => {
                let kept = self.end.get("o/kept").map(|look| &look.content);
                self.reported || (is_new && kept == here.map(|look| &look.content))
            }
            Act::Chmod | Act::Chown => {
                let his = then.get(PATH).map(|look| (look.mode, look.owner));
                self.reported || (is_new && here.map(|look| (look.mode, look.owner)) == his)
            }
            Act::Utimens | Act::RenameAwayAndBack => is_new || self.reported,
            Act::Truncate => here.is_some_and(|look| look.size == 3) || self.reported,
            Act::Unlink => here.is_none() || is_new,
            Act::RenameAway => here.is_none() || self.reported || is_new,
            _ => self.has_his_bytes(),
        }
    }
}

fn run(stage: &Stage, act: Act, at: u64, then: Then) -> Result<(), String> {
    let machine = copy(&stage.machine);
    let os = machine.spawn("owner");
    let outsider = Outsider::new(&machine, act, NAME);
    let acted: Arc<Mutex<Option<(bool, Tree)>>> = Arc::default();
    let (shared, mut count) = (acted.clone(), 0);
    machine.set_hook(move |machine, _| {
        if count == at {
            let done = outsider.act().is_ok();
            *shared.lock().expect("one thread") = Some((done, public(machine)));
        }
        count += 1;
    });
    if let Then::Kill(later) | Then::PowerLoss(later) = then {
        machine.kill_at(&os, at + later);
    }
    let told = run_process(&os, || rewrite(&os)).ok();
    os.exit();
    machine.clear_plans();
    if matches!(then, Then::PowerLoss(_)) {
        machine.settle();
        machine.power_loss(Crash::Everything, &mut fastrand::Rng::with_seed(at));
    }
    let helper = machine.spawn("helper");
    let opened = run_process(&helper, || {
        let domain = open(&helper).map_err(|e| e.to_string())?;
        domain.finish_dead().map_err(|e| e.to_string())?;
        // Empties the staging entries of a process that was killed before it could.
        domain.checkpoint().map_err(|e| e.to_string())
    });
    opened.map_err(|_| "killed".to_owned())??;
    machine.clear_hook();
    machine.check()?;
    let acted = acted.lock().map_err(|_| "the hook panicked")?.take();
    let aside: Tree = machine
        .tree(0)
        .into_iter()
        .filter_map(|(p, l)| Some((p.strip_prefix(".systx/aside/")?.to_owned(), l)))
        .collect();
    let reported = match &told {
        Some(Ok(done)) if done.pending.is_some() => return Err(format!("waits: {done:?}")),
        Some(Ok(done)) => done.conflict_copies.iter().any(|d| d.path == PATH.as_bytes()),
        _ => !aside.is_empty(),
    };
    if !aside.is_empty() && !reported {
        return Err(format!("aside, and not told: {:?}", aside.keys()));
    }
    let found = Found { end: public(&machine), aside, reported };
    let before = acted.as_ref().map_or_else(|| public(&stage.machine), |(_, then)| then.clone());
    let (committed, aborted) = (matches!(told, Some(Ok(_))), matches!(told, Some(Err(_))));
    let wrong = differences(&before, &found.end);
    if aborted || (!committed && wrong.is_empty()) {
        return if wrong.is_empty() { Ok(()) } else { Err(format!("{told:?}, and {wrong:#?}")) };
    }
    let fine = match &acted {
        Some((true, then)) if at > stage.touch => found.holds(act, then),
        Some((true, _)) if found.has_his_bytes() => true,
        _ => found.end.get(PATH).is_some_and(|look| look.content == new_bytes()),
    };
    let here = found.end.get(PATH).map(|l| (l.size, l.mode, l.owner));
    fine.then_some(()).ok_or_else(|| {
        format!("acted {:?}, told {told:?}, {here:?}, aside {:?}", acted.map(|a| a.0), found.aside.keys())
    })
}

fn all(finds: Finds, then: fn(&mut fastrand::Rng, u64) -> Then, some: u64) {
    let stage = Stage::new(finds);
    let points = stage.calls.len() as u64;
    let mut rng = fastrand::Rng::with_seed(7);
    let mut wrong = Vec::new();
    for act in ACTS {
        let near = stage.exchange.saturating_sub(25)..(stage.exchange + 12).min(points);
        let at: Vec<u64> = if long() {
            (0..points).collect()
        } else {
            (0..some)
                .filter(|n| finds.takes(*n))
                .map(|n| if n % 3 == 0 { rng.u64(0..points) } else { rng.u64(near.clone()) })
                .collect()
        };
        for at in at {
            let then = then(&mut rng, points - at);
            if let Err(why) = run(&stage, act, at, then) {
                let call = &stage.calls[at as usize];
                let name = String::from_utf8_lossy(&call.name);
                wrong.push(format!("{act:?} before call {at} ({:?} {name}), {then:?}: {why}", call.call));
            }
        }
    }
    let first = wrong[..wrong.len().min(6)].join("\n");
    assert!(wrong.is_empty(), "{} runs went wrong, the first:\n{first}", wrong.len());
}

fn nothing(_: &mut fastrand::Rng, _: u64) -> Then {
    Then::Nothing
}

fn killed(rng: &mut fastrand::Rng, left: u64) -> Then {
    Then::Kill(rng.u64(0..left.min(30)))
}

fn power_lost(rng: &mut fastrand::Rng, left: u64) -> Then {
    Then::PowerLoss(rng.u64(0..left.min(30)))
}

#[test]
fn nothing_done_to_a_file_that_is_written_anew_is_lost() {
    all(Finds::ByHandle, nothing, 24);
}

#[test]
fn nothing_done_to_a_file_that_is_written_anew_is_lost_when_the_publisher_is_killed() {
    all(Finds::ByHandle, killed, 12);
}

#[test]
fn nothing_done_to_a_file_that_is_written_anew_is_lost_in_a_power_failure() {
    all(Finds::ByHandle, power_lost, 12);
}

#[test]
fn nothing_done_to_a_file_that_is_written_anew_is_lost_without_handles() {
    for (then, some) in [(nothing as fn(&mut _, _) -> _, 24), (killed, 12), (power_lost, 12)] {
        all(Finds::ByPath, then, some);
    }
}

#[test]
fn who_reads_a_file_that_is_written_anew_and_closes_it_again_stops_no_commit() {
    let stage = Stage::new(Finds::ByHandle);
    let mut waited = 0;
    for at in stage.touch..stage.exchange {
        let machine = copy(&stage.machine);
        let (os, outsider) = (machine.spawn("owner"), machine.outsider("reader"));
        let (reading, paused) = (Arc::new(Mutex::new(None)), Arc::new(Mutex::new(false)));
        let (mut count, noted) = (0, paused.clone());
        machine.set_hook(move |_, point| {
            let mut reading = reading.lock().expect("one thread");
            if count == at {
                *reading = outsider.open_path(0, PATH, Open::Read).ok();
            } else if point.call == Call::Pause && reading.take().is_some() {
                *noted.lock().expect("one thread") = true;
            }
            count += 1;
        });
        let told = run_process(&os, || rewrite(&os)).expect("lives");
        machine.clear_hook();
        assert!(told.is_ok(), "opened before call {at}: {told:?}");
        assert_eq!(
            public(&machine).get(PATH).map(|look| look.content == new_bytes()),
            Some(true),
            "call {at}"
        );
        waited += u32::from(*paused.lock().expect("one thread"));
    }
    assert!(waited > 0, "some reader held up the last look");
}
