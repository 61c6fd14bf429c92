//! Cases that a review of the protocol has turned up, one test each.

use super::world::{machine, public, AREA};
use crate::bytes::{sector_crc, write_all};
use crate::commit::{aborted, run, Draft, Failing};
use crate::domain::{Bounds, Domain, Location};
use crate::facts::{Facts, LowerDir};
use crate::id::{ObjectId, TxId};
use crate::objects::Top;
use crate::outcome::{CommitError, Committed, Durability, Options, VerbError};
use crate::plan::Plan;
use crate::publish::publish;
use crate::publish::site::{Pass, Site};
use crate::record::*;
use crate::recovery::open_all;
use crate::transaction::Transaction;
use std::sync::Arc;
use systx_os::{Errno, FsKind, Open, Os, Rename};
use systx_sim::machine::{run_process, Call, Crash, Effect, Fault, FsSpec, Machine, Plant, SimOs, Tree};

pub(super) type Mounts = Vec<Arc<Domain<SimOs>>>;

/// Opens the domains on these file systems, in this order.
pub(super) fn open(os: &SimOs, systems: &[usize]) -> Mounts {
    let roots: Vec<_> = systems.iter().map(|fs| Arc::new(os.root(*fs))).collect();
    let sites: Vec<_> = roots
        .iter()
        .map(|root| Location { root: root.clone(), bounds: Bounds::FileSystem, parent: &**root, name: AREA })
        .collect();
    open_all(os, &sites).map_err(|(n, e)| format!("{n}: {e}")).expect("opens")
}

fn os_failed(error: Errno) -> CommitError {
    CommitError::Failed { doing: "staging", path: Vec::new(), error }
}

fn failed(error: VerbError) -> CommitError {
    aborted(error)
}

/// A draft that makes `name` in the root of a mount, riding in the record.
fn make(
    facts: &mut Facts<SimOs>,
    domain: &Arc<Domain<SimOs>>,
    mount: usize,
    root: &Arc<LowerDir<SimOs>>,
    name: &[u8],
) -> Result<Draft<SimOs>, CommitError> {
    let os = &domain.os;
    if facts.entry(root, name).map_err(failed)?.is_some() {
        return Err(CommitError::Refused("it is there".into()));
    }
    let (id, slots) = domain.begin_staging().map_err(os_failed)?;
    let fd = os.create(&slots, b"0", 0o644).map_err(os_failed)?;
    write_all(os, &fd, b"contents", 0).map_err(os_failed)?;
    let (handle, stat) = (os.handle(&fd).map_err(os_failed)?, os.stat(&fd).map_err(os_failed)?);
    let small = Small {
        handle,
        ctime: stat.ctime,
        mode: stat.mode,
        uid: stat.uid,
        gid: stat.gid,
        rdev: 0,
        mtime: stat.mtime,
        content: b"contents".to_vec(),
        xattrs: Vec::new(),
    };
    let at = At { dir: root.handle, path: Vec::new(), name: name.to_vec() };
    let steps = vec![Step { slot: 0, at, act: Act::Place { small: Some(small) } }];
    let (written, commuting) =
        (vec![ObjectId::entry(&root.handle, name)], vec![ObjectId::listing(&root.handle)]);
    let plan = Plan { steps, written, commuting, ..Plan::default() };
    Ok(Draft {
        mount,
        domain: domain.clone(),
        id,
        age: id,
        plan,
        directories: Default::default(),
        slots: Some(Arc::new(slots)),
        in_shared_staging: None,
        failing: Failing::Goes,
    })
}

/// Makes `name` on every mount, in one transaction.
pub(super) fn make_everywhere(mounts: &Mounts, names: &[&[u8]]) -> Result<Committed, CommitError> {
    let mut facts = Facts::new(mounts.clone());
    let mut drafts = Vec::new();
    for (mount, (domain, name)) in mounts.iter().zip(names).enumerate() {
        let (_, root) = facts.root(mount).map_err(failed)?;
        drafts.push(make(&mut facts, domain, mount, &root, name)?);
    }
    drafts.sort_by_key(|d| d.domain.key);
    run(&mut facts, drafts, Durability::Durable, "test")
}

/// Reads a file and changes its bytes in place.
fn rewrite(mounts: &Mounts, name: &[u8], old: &[u8], new: &[u8]) -> Result<Committed, CommitError> {
    let domain = &mounts[0];
    let mut facts = Facts::new(mounts.clone());
    let (_, root) = facts.root(0).map_err(failed)?;
    let found = facts.entry(&root, name).map_err(failed)?.expect("it is there");
    let file = facts.open(found.fact).map_err(failed)?;
    let mut bytes = vec![0; old.len()];
    facts.read(&file, &mut bytes, 0).map_err(failed)?;
    assert_eq!(bytes, old);
    drop(file);
    let patch = patch(found.handle, old, new);
    let at = At { dir: root.handle, path: Vec::new(), name: name.to_vec() };
    let steps = vec![Step { slot: Step::NO_SLOT, at, act: Act::Patch(patch) }];
    let plan = Plan { steps, written: vec![ObjectId::data(&found.handle)], ..Plan::default() };
    let id = domain.new_tx();
    let draft = Draft {
        mount: 0,
        domain: domain.clone(),
        id,
        age: id,
        plan,
        directories: Default::default(),
        slots: None,
        in_shared_staging: None,
        failing: Failing::Goes,
    };
    run(&mut facts, vec![draft], Durability::Durable, "test")
}

fn patch(file: systx_os::Handle, old: &[u8], new: &[u8]) -> Patch {
    let mut padded = old.to_vec();
    padded.resize(new.len().next_multiple_of(SECTOR_BYTES), 0);
    let before = Before::Sectors(padded.chunks(SECTOR_BYTES).map(sector_crc).collect());
    let range = PatchRange { offset: 0, len: new.len() as u64, source: Source::Inline(new.to_vec()), before };
    Patch {
        file,
        size_before: old.len() as u64,
        size_after: new.len() as u64,
        ranges: vec![range],
        ends: Vec::new(),
        by_pages: None,
    }
}

fn body(id: TxId, steps: Vec<Step>) -> Body {
    Body {
        version: BODY_VERSION,
        id,
        nonce: 0,
        uid: 0,
        table: [0; 16],
        coordinator: None,
        participants: Vec::new(),
        companions: Vec::new(),
        command: String::new(),
        shared_slots: None,
        linked: false,
        steps,
        times: Vec::new(),
    }
}

#[test]
fn a_file_that_an_outsider_cut_stays_cut() {
    let machine = machine(FsKind::Ext4);
    machine.plant(0, &[("f", Plant::File(&[7; 512]))]).expect("planting");
    let os = machine.spawn("owner");
    run_process(&os, || {
        let domain = open(&os, &[0]).remove(0);
        let root = Top::<SimOs>::whole(os.root(0));
        let file = os.handle_at(&root, b"f").expect("there");
        // It was empty, the record makes it 2048 bytes long, and the outsider has cut it to 512 meanwhile.
        let at = At { dir: os.handle(&root).expect("has one"), path: Vec::new(), name: b"f".to_vec() };
        let steps = vec![Step { slot: Step::NO_SLOT, at, act: Act::Patch(patch(file, b"", &[7; 2048])) }];
        let (id, slots) = domain.begin_staging().expect("staging");
        let body = body(id, steps);
        let mut site = Site::new(&os, &root, &slots, &domain.area.aside, id, Pass::First);
        let told = publish(&mut site, &body).expect("published");
        assert_eq!(told.len(), 1, "it is reported: {told:?}");
        assert_eq!(os.stat_at(&root, b"f").expect("there").size, 512);
    })
    .expect("not killed");
}

/// The owner is dead, and an outsider has the file open: growth would be appended. It stands on bytes that are
/// there no more.
#[test]
fn growth_of_a_file_that_an_outsider_has_written_anew_is_left_out_and_reported() {
    let machine = machine(FsKind::Ext4);
    machine.plant(0, &[("f", Plant::File(&[7; 512]))]).expect("planting");
    let outsider = machine.outsider("outsider");
    let held = outsider.open_path(0, "f", Open::ReadWrite).expect("opens");
    outsider.pwrite(&held, &[9; 512], 0).expect("writes");
    let os = machine.spawn("helper");
    run_process(&os, || {
        let domain = open(&os, &[0]).remove(0);
        let root = Top::<SimOs>::whole(os.root(0));
        let file = os.handle_at(&root, b"f").expect("there");
        let at = At { dir: os.handle(&root).expect("has one"), path: Vec::new(), name: b"f".to_vec() };
        let new = [[7; 512], [8; 512]].concat();
        let ends = vec![sector_crc(&[7; 512])];
        let grown = Patch { ends, ..patch(file, &[7; 512], &new) };
        let steps = vec![Step { slot: Step::NO_SLOT, at, act: Act::Patch(grown) }];
        let (id, slots) = domain.begin_staging().expect("staging");
        let body = body(id, steps);
        let mut site = Site::new(&os, &root, &slots, &domain.area.aside, id, Pass::First);
        let told = publish(&mut site, &body).expect("published");
        assert_eq!(told.len(), 1, "it is reported: {told:?}");
    })
    .expect("not killed");
    assert_eq!(machine.look(0, "f").expect("there").content, [9; 512]);
}

#[test]
fn our_own_lease_on_a_file_does_not_make_its_contents_look_changed() {
    let mut spec = FsSpec::new(FsKind::Ext4);
    // No stamp can be trusted: what was read is compared byte by byte.
    spec.info.file_stamps = false;
    let machine = Machine::new(1, &[spec]);
    machine.plant(0, &[("f", Plant::File(b"old"))]).expect("planting");
    let os = machine.spawn("owner");
    let done = run_process(&os, || rewrite(&open(&os, &[0]), b"f", b"old", b"new")).expect("not killed");
    assert!(done.is_ok(), "{done:?}");
    assert_eq!(machine.look(0, "f").expect("there").content, b"new");
}

/// A process whose publication got stuck once, for lack of space.
fn stuck(machine: &Machine, os: &SimOs) -> Mounts {
    let mounts = open(os, &[0]);
    let fault = Fault {
        process: Some(os.process()),
        call: Some(Call::Truncate),
        skip: 0,
        times: u64::MAX,
        effect: Effect::Fail(Errno::NOSPC),
    };
    machine.fault(fault);
    let done = rewrite(&mounts, b"f", b"old", b"longer").expect("committed");
    assert!(done.pending.is_some(), "{done:?}");
    mounts
}

#[test]
fn who_meets_a_publication_that_is_stuck_is_told_instead_of_waiting() {
    let machine = machine(FsKind::Ext4);
    machine.plant(0, &[("f", Plant::File(b"old"))]).expect("planting");
    let (os, other) = (machine.spawn("owner"), machine.spawn("other"));
    let mounts = run_process(&os, || stuck(&machine, &os)).expect("not killed");
    let told =
        run_process(&other, || rewrite(&open(&other, &[0]), b"f", b"old", b"his")).expect("not killed");
    assert!(matches!(told, Err(CommitError::Conflict(_))), "{told:?}");
    // The owner of the pending publication loses, too.
    let told = run_process(&os, || rewrite(&mounts, b"f", b"old", b"mine")).expect("not killed");
    assert!(matches!(told, Err(CommitError::Conflict(_))), "{told:?}");
}

#[test]
fn a_publication_that_was_stuck_goes_on_in_its_process_when_there_is_space() {
    let machine = machine(FsKind::Ext4);
    machine.plant(0, &[("f", Plant::File(b"old"))]).expect("planting");
    let os = machine.spawn("owner");
    let mounts = run_process(&os, || stuck(&machine, &os)).expect("not killed");
    machine.clear_plans();
    let done = run_process(&os, || rewrite(&mounts, b"f", b"longer", b"still longer")).expect("not killed");
    assert!(done.is_ok(), "{done:?}");
    assert_eq!(machine.look(0, "f").expect("there").content, b"still longer");
}

#[test]
fn after_a_failed_sync_the_next_opener_recovers() {
    let machine = machine(FsKind::Ext4);
    let os = machine.spawn("owner");
    let told = run_process(&os, || {
        let mounts = open(&os, &[0]);
        make_everywhere(&mounts, &[b"a"]).expect("commits");
        machine.fault(Fault::fail(Call::Fdatasync, Errno::IO));
        let told = make_everywhere(&mounts, &[b"b"]);
        assert!(matches!(told, Err(CommitError::InDoubt { .. })), "{told:?}");
        make_everywhere(&mounts, &[b"c"])
    });
    assert!(told.expect("not killed").is_err(), "nothing is appended behind a gap");
    os.exit();
    let os = machine.spawn("next");
    let told = run_process(&os, || make_everywhere(&open(&os, &[0]), &[b"d"])).expect("not killed");
    assert!(told.is_ok(), "{told:?}");
}

#[test]
fn two_mounts_with_one_area_commit_together() {
    let machine = machine(FsKind::Ext4);
    let os = machine.spawn("owner");
    let told = run_process(&os, || make_everywhere(&open(&os, &[0, 0]), &[b"a", b"b"])).expect("not killed");
    assert!(told.is_ok(), "{told:?}");
    run_process(&os, || open(&os, &[0, 0])[0].checkpoint()).expect("not killed").expect("a checkpoint");
    assert!(machine.look(0, "a").is_some() && machine.look(0, "b").is_some());
}

#[test]
fn a_file_that_not_even_its_owner_may_write_to_gets_its_contents_back() {
    let machine = machine(FsKind::Ext4);
    let os = machine.spawn("owner");
    run_process(&os, || make_everywhere(&open(&os, &[0]), &[b"a"])).expect("not killed").expect("commits");
    machine.power_loss(Crash::NamesWithoutData, &mut fastrand::Rng::with_seed(1));
    let os = machine.spawn("next");
    let fault = Fault {
        process: Some(os.process()),
        call: Some(Call::Reopen),
        skip: 0,
        times: 1,
        effect: Effect::Fail(Errno::ACCESS),
    };
    machine.fault(fault);
    run_process(&os, || drop(open(&os, &[0]))).expect("not killed");
    let found = machine.look(0, "a").expect("there");
    assert_eq!((found.content.as_slice(), found.mode & 0o7777), (&b"contents"[..], 0o644));
}

pub(super) fn two_systems() -> Machine {
    let machine = Machine::new(3, &[FsSpec::new(FsKind::Ext4), FsSpec::new(FsKind::Xfs)]);
    machine.set_word_points(false);
    let os = machine.spawn("earlier");
    run_process(&os, || drop(open(&os, &[0, 1]))).expect("not killed");
    os.exit();
    machine.settle();
    machine
}

pub(super) fn both(machine: &Machine) -> (bool, bool) {
    (machine.look(0, "a").is_some(), machine.look(1, "b").is_some())
}

/// Opens both domains with a new process, which finishes what was left.
pub(super) fn reopen(machine: &Machine, systems: &[usize]) {
    let os = machine.spawn("next");
    run_process(&os, || open(&os, systems).iter().for_each(|d| drop(d.finish_dead()))).expect("not killed");
    os.exit();
}

#[test]
fn a_commit_over_two_file_systems_is_all_or_nothing_whatever_it_loses() {
    let points = {
        let machine = two_systems();
        let os = machine.spawn("owner");
        run_process(&os, || make_everywhere(&open(&os, &[0, 1]), &[b"a", b"b"]))
            .expect("lives")
            .expect("commits");
        os.points()
    };
    let mut outcomes = [0; 2];
    for point in 0..=points {
        for power in [false, true] {
            let order = if point % 2 == 0 { [0, 1] } else { [1, 0] };
            let machine = two_systems();
            let os = machine.spawn("owner");
            machine.kill_at(&os, point);
            let told = run_process(&os, || make_everywhere(&open(&os, &[0, 1]), &[b"a", b"b"]));
            let mut rng = fastrand::Rng::with_seed(point);
            if power {
                machine.power_loss(Crash::Random, &mut rng);
            } else {
                os.exit();
            }
            reopen(&machine, &order);
            let at = format!("point {point} of {points}, power lost: {power}, order {order:?}");
            let (a, b) = both(&machine);
            assert_eq!(a, b, "a mixture at {at}");
            assert!(a || !matches!(told, Ok(Ok(_))), "lost at {at}");
            outcomes[usize::from(a)] += 1;
            if !a {
                continue;
            }
            // A later removal is final, also over another reboot.
            for (fs, name) in [(0, "a"), (1, "b")] {
                machine.remove(fs, name).expect("there");
            }
            machine.settle();
            machine.power_loss(Crash::Random, &mut rng);
            reopen(&machine, &order);
            assert_eq!(both(&machine), (false, false), "risen again at {at}");
        }
    }
    assert!(outcomes[0] > 0 && outcomes[1] > 0, "both outcomes are seen: {outcomes:?}");
}

#[test]
fn what_follows_a_record_that_a_missing_file_system_may_ask_for_does_not_rise_again() {
    let machine = two_systems();
    let os = machine.spawn("owner");
    run_process(&os, || {
        let mounts = open(&os, &[0, 1]);
        make_everywhere(&mounts, &[b"a", b"b"]).expect("commits");
        for mount in &mounts {
            make_everywhere(&vec![mount.clone()], &[b"later"]).expect("commits");
        }
    })
    .expect("not killed");
    let mut rng = fastrand::Rng::with_seed(1);
    for fs in [0, 1] {
        let machine = machine.fork();
        machine.power_loss(Crash::Everything, &mut rng);
        reopen(&machine, &[fs]);
        machine.remove(fs, "later").expect("there");
        machine.settle();
        machine.power_loss(Crash::Everything, &mut rng);
        reopen(&machine, &[fs]);
        let tree: Tree = if fs == 0 { public(&machine) } else { machine.tree(fs) };
        assert!(!tree.contains_key("later"), "risen again on {fs}");
    }
}

/// A process of another user, in root's transaction, and root outside.
#[test]
fn who_may_not_go_there_any_more_is_told_at_the_next_look() {
    const THEIRS: u32 = 1000;
    for moved in [false, true] {
        let machine = machine(FsKind::Ext4);
        let os = machine.spawn("owner");
        let ends = run_process(&os, || {
            let domains = open(&os, &[0]);
            let mut tx = Transaction::begin(os.clone(), domains, Options::default()).expect("begins");
            let mut node = tx.root(0);
            for name in [&b"w"[..], b"tree", b"sub"] {
                node = tx.lookup(node, name).expect("looks").expect("is there").0;
            }
            tx.way_still_holds(THEIRS, node).expect("nothing has changed");
            let root = machine.outsider("root");
            let [w, tree] = ["w", "w/tree"].map(|path| root.open_path(0, path, Open::Path).expect("opens"));
            match moved {
                true => root.rename((&w, b"tree"), (&w, b"elsewhere"), Rename::Replace).expect("moves it"),
                false => root.chmod(&tree, 0o700).expect("closes it"),
            }
            tx.way_still_holds(0, node).expect("it is root's own transaction");
            tx.way_still_holds(THEIRS, node)
        });
        assert!(matches!(ends, Ok(Err(VerbError::Doomed(_)))), "may not go there any more: {ends:?}");
        os.exit();
    }
}
