//! Random transactions by several processes; those that committed, replayed one after another in LSN order on
//! a plain tree, give the same tree and the same answers.

use super::world::open;
use crate::domain::Domain;
use crate::id::{Lsn, TxId};
use crate::outcome::{CommitError, Durability, Options, Verb, VerbError};
use crate::transaction::{Access, Caller, Node, Transaction};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use systx_os::{Errno, FileType, FsKind, Rename};
use systx_sim::machine::{run_process, Ended, Machine, Plant, Schedule, SimOs};

const ME: Caller = Caller { uid: 0, gid: 0, umask: 0o022 };
const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const CLIENTS: u64 = 3;

/// One verb; paths have one or two components.
#[derive(Clone, Debug)]
enum Step {
    Create(String, u8),
    Write(String, u64, u8),
    Mkdir(String),
    Unlink(String),
    Rmdir(String),
    Rename(String, String, Rename),
    Read(String),
    List(String),
}

/// Result of a verb: bytes or names, or an error number.
type Answer = Result<Vec<u8>, Errno>;

/// A tree of files and directories: path to contents (`None`: a directory).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Model(BTreeMap<String, Option<Vec<u8>>>);

fn path(rng: &mut fastrand::Rng) -> String {
    let mut name = || NAMES[rng.usize(0..NAMES.len())].to_owned();
    let (above, below) = (name(), name());
    if rng.bool() {
        above
    } else {
        format!("{above}/{below}")
    }
}

fn step(rng: &mut fastrand::Rng) -> Step {
    let (one, two) = (path(rng), path(rng));
    match rng.u8(0..12) {
        0 | 1 => Step::Create(one, rng.u8(1..)),
        2 | 3 => Step::Write(one, rng.u64(0..1200), rng.u8(1..)),
        4 => Step::Mkdir(one),
        5 => Step::Unlink(one),
        6 => Step::Rmdir(one),
        7 | 8 => Step::Rename(one, two, Rename::Replace),
        9 => Step::Rename(one, two, [Rename::NoReplace, Rename::Exchange][usize::from(rng.bool())]),
        10 => Step::Read(one),
        _ => Step::List(one),
    }
}

impl Model {
    fn above(&self, path: &str) -> Result<(), Errno> {
        match path.rsplit_once('/').map(|(above, _)| self.0.get(above)) {
            None | Some(Some(None)) => Ok(()),
            Some(Some(Some(_))) => Err(Errno::NOTDIR),
            Some(None) => Err(Errno::NOENT),
        }
    }
    fn names(&self, dir: &str) -> Vec<u8> {
        let below = format!("{dir}/");
        let names = self.0.keys().filter_map(|p| p.strip_prefix(&below)).filter(|n| !n.contains('/'));
        names.map(|n| format!("{n} ")).collect::<String>().into_bytes()
    }
    fn take(&mut self, path: &str) -> Vec<(String, Option<Vec<u8>>)> {
        let within = |p: &String| p == path || p.starts_with(&format!("{path}/"));
        let paths: Vec<String> = self.0.keys().filter(|p| within(p)).cloned().collect();
        paths.into_iter().filter_map(|p| Some((p[path.len()..].to_owned(), self.0.remove(&p)?))).collect()
    }
    fn put(&mut self, path: &str, objects: Vec<(String, Option<Vec<u8>>)>) {
        self.0.extend(objects.into_iter().map(|(below, object)| (format!("{path}{below}"), object)));
    }

    /// Takes a step, with the answer that Linux gives.
    fn take_step(&mut self, step: &Step) -> Answer {
        match step {
            Step::Create(p, byte) => {
                self.above(p)?;
                if self.0.contains_key(p) {
                    return Err(Errno::EXIST);
                }
                self.0.insert(p.clone(), Some(vec![*byte; 20]));
            }
            Step::Mkdir(p) => {
                self.above(p)?;
                if self.0.contains_key(p) {
                    return Err(Errno::EXIST);
                }
                self.0.insert(p.clone(), None);
            }
            Step::Write(p, at, byte) => {
                self.above(p)?;
                let file = self.0.get_mut(p).ok_or(Errno::NOENT)?.as_mut().ok_or(Errno::ISDIR)?;
                let at = *at as usize;
                file.resize(file.len().max(at + 30), 0);
                file[at..at + 30].fill(*byte);
            }
            Step::Unlink(p) => {
                self.above(p)?;
                self.0.get(p).ok_or(Errno::NOENT)?.as_ref().ok_or(Errno::ISDIR)?;
                self.0.remove(p);
            }
            Step::Rmdir(p) => {
                self.above(p)?;
                match self.0.get(p).ok_or(Errno::NOENT)? {
                    Some(_) => return Err(Errno::NOTDIR),
                    None if !self.names(p).is_empty() => return Err(Errno::NOTEMPTY),
                    None => drop(self.0.remove(p)),
                }
            }
            Step::Read(p) => {
                self.above(p)?;
                return self.0.get(p).ok_or(Errno::NOENT)?.clone().ok_or(Errno::ISDIR);
            }
            Step::List(p) => {
                self.above(p)?;
                return match self.0.get(p).ok_or(Errno::NOENT)? {
                    Some(_) => Err(Errno::NOTDIR),
                    None => Ok(self.names(p)),
                };
            }
            Step::Rename(from, to, how) => self.rename(from, to, *how)?,
        }
        Ok(Vec::new())
    }

    fn rename(&mut self, from: &str, to: &str, how: Rename) -> Result<(), Errno> {
        self.above(from)?;
        self.above(to)?;
        let source_is_dir = self.0.get(from).ok_or(Errno::NOENT)?.is_none();
        let target = self.0.get(to).map(Option::is_none);
        match (how, target) {
            (Rename::NoReplace, Some(_)) => return Err(Errno::EXIST),
            (Rename::Exchange, None) => return Err(Errno::NOENT),
            _ => {}
        }
        if to.starts_with(&format!("{from}/")) {
            return Err(Errno::INVAL);
        }
        if from.starts_with(&format!("{to}/")) {
            return Err(if how == Rename::Exchange { Errno::INVAL } else { Errno::NOTEMPTY });
        }
        if from == to {
            return Ok(());
        }
        let moved = match (how, target) {
            (Rename::Exchange, _) => {
                let (one, two) = (self.take(from), self.take(to));
                self.put(from, two);
                one
            }
            (_, Some(target_is_dir)) => {
                match (source_is_dir, target_is_dir) {
                    (true, false) => return Err(Errno::NOTDIR),
                    (false, true) => return Err(Errno::ISDIR),
                    (true, true) if !self.names(to).is_empty() => return Err(Errno::NOTEMPTY),
                    _ => drop(self.take(to)),
                }
                self.take(from)
            }
            (_, None) => self.take(from),
        };
        self.put(to, moved);
        Ok(())
    }
}

/// The directory of a path and its last name, through a transaction.
fn place<'p>(t: &mut Transaction<SimOs>, path: &'p str) -> Verb<(Node, &'p [u8])> {
    let root = t.root(0);
    let Some((above, name)) = path.rsplit_once('/') else { return Ok((root, path.as_bytes())) };
    let (dir, attr) = t.lookup(root, above.as_bytes())?.ok_or(Errno::NOENT)?;
    match FileType::from_mode(attr.mode) {
        Some(FileType::Directory) => Ok((dir, name.as_bytes())),
        _ => Err(Errno::NOTDIR.into()),
    }
}

fn take_step(t: &mut Transaction<SimOs>, step: &Step) -> Verb<Vec<u8>> {
    let find = |t: &mut Transaction<SimOs>, path: &str| -> Verb<(Node, bool)> {
        let (dir, name) = place(t, path)?;
        let (node, attr) = t.lookup(dir, name)?.ok_or(Errno::NOENT)?;
        Ok((node, FileType::from_mode(attr.mode) == Some(FileType::Directory)))
    };
    match step {
        Step::Create(p, byte) => {
            let (dir, name) = place(t, p)?;
            let (file, _) = t.create(dir, name, 0o644, ME)?;
            t.open(file, Access::Write, false)?;
            t.write_at(file, &[*byte; 20], 0)?;
            t.close(file);
        }
        Step::Mkdir(p) => {
            let (dir, name) = place(t, p)?;
            t.mkdir(dir, name, 0o755, ME)?;
        }
        Step::Write(p, at, byte) => {
            let (file, _) = find(t, p)?;
            t.open(file, Access::Write, false)?;
            t.write_at(file, &[*byte; 30], *at)?;
            t.close(file);
        }
        Step::Unlink(p) => {
            let (dir, name) = place(t, p)?;
            t.unlink(dir, name)?;
        }
        Step::Rmdir(p) => {
            let (dir, name) = place(t, p)?;
            t.rmdir(dir, name)?;
        }
        Step::Rename(from, to, how) => {
            let (from, to) = (place(t, from)?, place(t, to)?);
            t.rename(from.0, from.1, to.0, to.1, *how)?;
        }
        Step::Read(p) => {
            let (file, is_dir) = find(t, p)?;
            if is_dir {
                return Err(Errno::ISDIR.into());
            }
            t.open(file, Access::Read, false)?;
            let mut bytes = vec![0; 4096];
            let got = t.read_at(file, &mut bytes, 0)?;
            t.close(file);
            bytes.truncate(got);
            return Ok(bytes);
        }
        Step::List(p) => {
            let (dir, is_dir) = find(t, p)?;
            if !is_dir {
                return Err(Errno::NOTDIR.into());
            }
            let mut names: Vec<_> = t.readdir(dir)?.iter().map(|entry| entry.name.clone()).collect();
            names.sort();
            return Ok(names.iter().flat_map(|name| [&**name, &b" "[..]].concat()).collect());
        }
    }
    Ok(Vec::new())
}

/// A transaction that committed.
struct Done {
    id: TxId,
    steps: Vec<(Step, Answer)>,
}

fn client(os: &SimOs, domain: &Arc<Domain<SimOs>>, rng: &mut fastrand::Rng, done: &Mutex<Vec<Done>>) {
    let durability = [Durability::Durable, Durability::None][usize::from(rng.bool())];
    let options = Options { durability, command: String::new(), ..Options::default() };
    let mut steps = Vec::new();
    let mut body = || -> Verb<Transaction<SimOs>> {
        let mut t = Transaction::begin(os.clone(), vec![domain.clone()], options.clone())?;
        for _ in 0..rng.u8(1..7) {
            let step = step(rng);
            let answer = match take_step(&mut t, &step) {
                Ok(bytes) => Ok(bytes),
                Err(VerbError::Os(error)) => Err(error),
                Err(doomed) => return Err(doomed),
            };
            steps.push((step, answer));
        }
        Ok(t)
    };
    let Ok(t) = body() else { return };
    let id = t.id();
    match t.commit() {
        // Those that changed nothing have no LSN: what they saw is the history checker's to judge.
        Ok(told) if told.steps > 0 => {
            assert!(told.conflict_copies.is_empty() && told.pending.is_none(), "{told:?}");
            done.lock().expect("sound").push(Done { id, steps });
        }
        Ok(_) | Err(CommitError::Conflict(_)) => {}
        Err(why) => panic!("a commit fails: {why}"),
    }
}

/// One run; the number of commits.
fn agrees(seed: u64) -> usize {
    let machine = Machine::new(seed, &[systx_sim::machine::FsSpec::new(FsKind::Ext4)]);
    machine
        .plant(0, &[("a", Plant::Dir), ("a/b", Plant::File(b"first")), ("b", Plant::Dir)])
        .expect("planting");
    let mut model = Model::default();
    model.0.extend([("a".into(), None), ("a/b".into(), Some(b"first".to_vec())), ("b".into(), None)]);
    machine.set_word_points(false);
    let os = machine.spawn("earlier");
    let watched = run_process(&os, || open(&os).expect("opens")).expect("lives");
    let done = Arc::new(Mutex::new(Vec::new()));
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut processes: Vec<(SimOs, Box<dyn FnOnce() + Send>)> = Vec::new();
    for _ in 0..CLIENTS {
        let (os, mut rng, done) = (machine.spawn("client"), rng.fork(), done.clone());
        let body = os.clone();
        let transactions = move || {
            let domain = open(&body).expect("opens");
            (0..5).for_each(|_| client(&body, &domain, &mut rng, &done));
        };
        processes.push((os, Box::new(transactions)));
    }
    let report = Schedule::run(seed, processes);
    assert!(report.ended.iter().all(|e| *e == Ended::Finished), "seed {seed}: {report:?}");
    // The ring still has every number.
    let table = &watched.table;
    let order = (1..table.next().0).filter_map(|lsn| table.ring().get(Lsn(lsn))).map(|(who, _)| who.tx);
    let done = std::mem::take(&mut *done.lock().expect("sound"));
    let mut commits = 0;
    for id in order {
        let Some(done) = done.iter().find(|d| d.id == id) else { continue };
        commits += 1;
        for (step, answer) in &done.steps {
            let expected = model.take_step(step);
            assert_eq!(*answer, expected, "seed {seed}, transaction {id}: {step:?} of {:?}", done.steps);
        }
    }
    assert_eq!(commits, done.len(), "seed {seed}: every commit has its number");
    let tree = super::world::public(&machine);
    let content =
        |look: &systx_sim::machine::Look| (look.kind == FileType::File).then(|| look.content.clone());
    let found = Model(tree.iter().map(|(path, look)| (path.clone(), content(look))).collect());
    assert_eq!(found, model, "seed {seed}");
    drop(watched);
    commits
}

#[test]
fn commits_replayed_in_the_order_of_their_numbers_give_the_same_tree() {
    let seeds = if std::env::var_os("SYSTX_LONG").is_some() { 20_000 } else { 120 };
    let first = systx_runner::first_seed();
    let commits: usize = (first..first + seeds).map(agrees).sum();
    assert!(commits > 100, "commits are seen: {commits}");
}
