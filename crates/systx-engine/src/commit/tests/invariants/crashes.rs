//! The state that is left if everything ends before a call, and what I5, I8, I11 and I12 say of it.

use super::super::world::AREA;
use super::book::Book;
use super::watch::{is_public, Moment, Rule, Verdict};
use crate::domain::{Bounds, Domain, Location};
use crate::outcome::ConflictCopy;
use crate::recovery::open_all;
use std::sync::Arc;
use systx_os::Os;
use systx_sim::machine::{run_process, Crash, Machine, SimOs, Tree};

/// How everything ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// Everybody is killed; the next process finishes what they left.
    Kill,
    /// All are killed as in `Kill`; then the power fails, nothing is lost, and everything is redone.
    KillAndRedo,
    /// The power fails.
    Power(Crash),
    /// The power fails when everything was synced.
    PowerAfterSync,
}

/// The state that was found then.
#[derive(Clone)]
pub(super) struct Aftermath {
    pub how: How,
    /// The trees that all processes see.
    pub trees: Vec<Tree>,
    /// After one more recovery.
    pub again: Option<Vec<Tree>>,
    /// Slots in flight.
    pub in_flight: Vec<String>,
    /// Slot directories that a checkpoint leaves.
    pub staged: Vec<(usize, String)>,
    /// Objects that are set aside, and are not reported.
    pub unreported: Vec<String>,
    /// Conflict copies.
    pub conflict_copies: Vec<ConflictCopy>,
    /// Everything but log and table, the area included.
    pub whole: Vec<Tree>,
}

/// Opens every file system's domain.
pub(super) fn open_each(os: &SimOs, systems: usize) -> Result<Vec<Arc<Domain<SimOs>>>, String> {
    let roots: Vec<_> = (0..systems).map(|fs| Arc::new(os.root(fs))).collect();
    let sites: Vec<_> = roots
        .iter()
        .map(|root| Location { root: root.clone(), bounds: Bounds::FileSystem, parent: &**root, name: AREA })
        .collect();
    open_all(os, &sites).map_err(|(fs, why)| format!("file system {fs} can't be opened: {why}"))
}

fn trees(machine: &Machine, systems: usize) -> Vec<Tree> {
    (0..systems).map(|fs| machine.tree_of(fs, is_public)).collect()
}

/// A process comes by, finishes what was left, and does something more.
fn come_by<T>(
    machine: &Machine,
    systems: usize,
    conflict_copies: &mut Vec<ConflictCopy>,
    more: impl FnOnce(&[Arc<Domain<SimOs>>]) -> Result<T, String>,
) -> Result<T, String> {
    let os = machine.spawn("next");
    let done = run_process(&os, || {
        let domains = open_each(&os, systems)?;
        for domain in &domains {
            let finished = domain.finish_dead().map_err(|e| format!("can't recover: {e:?}"))?;
            conflict_copies
                .extend(domain.recovered.conflict_copies.iter().cloned().chain(finished.conflict_copies));
            let unfinished: Vec<_> = domain.recovered.unfinished.iter().chain(&finished.unfinished).collect();
            if !unfinished.is_empty() {
                return Err(format!("unfinished: {unfinished:?}"));
            }
        }
        more(&domains)
    });
    os.exit();
    done.map_err(|_| "killed".to_owned())?
}

impl Aftermath {
    /// Ends a copy of the machine in that way, and recovers.
    pub(super) fn of(machine: &Machine, how: How, systems: usize, seed: u64) -> Result<Aftermath, String> {
        let machine = machine.fork();
        machine.set_word_points(false);
        let mut rng = fastrand::Rng::with_seed(seed);
        match how {
            How::Kill | How::KillAndRedo => machine.kill_everybody(),
            How::Power(crash) => machine.power_loss(crash, &mut rng),
            How::PowerAfterSync => machine.power_loss(Crash::Everything, &mut rng),
        }
        let mut conflict_copies = Vec::new();
        come_by(&machine, systems, &mut conflict_copies, |_| Ok(()))?;
        let found = trees(&machine, systems);
        let again = match how {
            How::KillAndRedo => {
                machine.settle();
                machine.power_loss(Crash::Everything, &mut rng);
                come_by(&machine, systems, &mut conflict_copies, |_| Ok(()))?;
                Some(trees(&machine, systems))
            }
            _ => None,
        };
        let mut end = Aftermath {
            how,
            trees: found,
            again,
            in_flight: Vec::new(),
            staged: Vec::new(),
            unreported: Vec::new(),
            conflict_copies: Vec::new(),
            whole: Vec::new(),
        };
        come_by(&machine, systems, &mut conflict_copies, |domains| {
            for (fs, domain) in domains.iter().enumerate() {
                let failed = |e| format!("can't read the area: {e:?}");
                end.list(fs, domain).map_err(failed)?;
            }
            Ok(())
        })?;
        machine.check()?;
        let told: Vec<_> = conflict_copies.iter().filter_map(|d| d.aside.clone()).collect();
        end.unreported.retain(|name| !told.contains(name));
        end.conflict_copies = conflict_copies;
        end.whole = (0..systems)
            .map(|fs| machine.tree_of(fs, |p| p != ".systx/log" && p != ".systx/table"))
            .collect();
        Ok(end)
    }

    /// Notes what is in the table and the area.
    fn list(&mut self, fs: usize, domain: &Domain<SimOs>) -> systx_os::Result<()> {
        for slot in domain.table.slots().in_flight() {
            let slot = domain.checked(slot)?;
            self.in_flight.push(format!("{fs}: {} {:?}", slot.info.tx, slot.seen.state()));
        }
        if domain.checkpoint().is_err() {
            return Err(systx_os::Errno::IO);
        }
        let names = domain.os.read_dir(&domain.area.tx)?;
        self.staged.extend(names.iter().map(|e| (fs, String::from_utf8_lossy(&e.name).into_owned())));
        let reports: Vec<_> = domain.reports()?.into_iter().filter_map(|report| report.aside).collect();
        let kept = domain.kept_aside()?.into_iter().map(|name| String::from_utf8_lossy(&name).into_owned());
        self.unreported.extend(kept.filter(|name| !reports.contains(name)));
        Ok(())
    }

    /// Returns a copy with other trees.
    pub(super) fn with_trees(&self, trees: Vec<Tree>) -> Aftermath {
        Aftermath { trees, ..self.clone() }
    }

    fn is_kill(&self) -> bool {
        matches!(self.how, How::Kill | How::KillAndRedo)
    }
}

/// I5: U∘U = U, cut before any call and continued by another process.
pub(super) struct Again;

impl Rule for Again {
    fn name(&self) -> &'static str {
        "I5"
    }

    fn after(&mut self, now: &Moment<'_>, end: &Aftermath, book: &Book) -> Verdict {
        for chain in &book.chains {
            let found = chain.state_of(&end.trees);
            if end.is_kill() {
                let expected = chain.here();
                if found != Some(expected) {
                    return Err(format!(
                        "{:?}: what another process finished is not what the owner would have left: {:?}",
                        end.how,
                        chain.difference(expected, &end.trees)
                    ));
                }
            } else if chain.all_durable() && found.is_none() {
                let differences: Vec<_> = chain.possible().map(|n| chain.difference(n, &end.trees)).collect();
                let logs: Vec<_> = now.fs.iter().map(|fs| &fs.log.cells).collect();
                return Err(format!("{:?}: a mixture: {differences:?}, logs {logs:?}", end.how));
            }
            let Some(again) = &end.again else { continue };
            // Without durability nothing is redone, and all of it was synced.
            if chain.part_of(again) != chain.part_of(&end.trees) {
                let what = chain.difference(found.unwrap_or(0), again);
                return Err(format!("taking all steps again changed {what:?}"));
            }
        }
        Ok(book.chains.iter().any(|chain| chain.here() > 0))
    }
}

/// I8: a reported outcome stays true.
pub(super) struct Kept;

impl Rule for Kept {
    fn name(&self) -> &'static str {
        "I8"
    }

    fn after(&mut self, _: &Moment<'_>, end: &Aftermath, book: &Book) -> Verdict {
        let mut judged = false;
        for chain in &book.chains {
            // A mixture is I5's. What is not durable may go with the power.
            let known = end.is_kill() || chain.all_durable();
            let Some(found) = chain.state_of(&end.trees).filter(|_| known) else { continue };
            judged |= !chain.told.is_empty();
            if found < *chain.possible().start() {
                return Err(format!(
                    "{:?}: {found} transactions are there, {} were told committed",
                    end.how,
                    chain.base()
                ));
            }
            if found > *chain.possible().end() {
                return Err(format!(
                    "{:?}: transaction {} was told aborted, and is there",
                    end.how,
                    found - 1
                ));
            }
        }
        Ok(judged)
    }
}

/// I11: after a recovery table and areas are empty, or what is there is listed, and nothing else was touched.
pub(super) struct Cleared;

impl Rule for Cleared {
    fn name(&self) -> &'static str {
        "I11"
    }

    fn after(&mut self, _: &Moment<'_>, end: &Aftermath, book: &Book) -> Verdict {
        if !end.in_flight.is_empty() {
            return Err(format!("{:?}: in flight after a recovery: {:?}", end.how, end.in_flight));
        }
        if !end.staged.is_empty() {
            return Err(format!("{:?}: left in `tx` after a recovery: {:?}", end.how, end.staged));
        }
        if !end.unreported.is_empty() {
            return Err(format!("{:?}: aside, and not reported: {:?}", end.how, end.unreported));
        }
        for trees in [Some(&end.trees), end.again.as_ref()].into_iter().flatten() {
            let found = book.others_in(trees);
            if found != book.others {
                let paths = book.others.keys().chain(found.keys());
                let touched: Vec<_> = paths.filter(|p| book.others.get(*p) != found.get(*p)).collect();
                return Err(format!("{:?}: touched, and in no record: {touched:?}", end.how));
            }
        }
        Ok(true)
    }
}

/// I12: after a power loss the durable commits that are left are a prefix of the log, and none builds on a lost one.
pub(super) struct Prefix;

impl Rule for Prefix {
    fn name(&self) -> &'static str {
        "I12"
    }

    fn after(&mut self, now: &Moment<'_>, end: &Aftermath, book: &Book) -> Verdict {
        if end.is_kill() {
            return Ok(false);
        }
        let mut judged = false;
        for chain in book.chains.iter().filter(|chain| !chain.all_durable()) {
            let part = chain.part_of(&end.trees);
            let (last, whole) = (chain.states.len() - 1, chain.states.last());
            let own = |path: &&String| chain.states[last - 1].get(*path) != chain.states[last].get(*path);
            let survived = chain.states[last]
                .keys()
                .filter(own)
                .any(|path| part.get(path) == chain.states[last].get(path));
            judged |= survived;
            if chain.durable[last - 1] && survived && Some(&part) != whole {
                let lost = chain.difference(last, &end.trees);
                return Err(format!(
                    "{:?}: transaction {} is there, and what it builds on is not: {lost:?}",
                    end.how,
                    last - 1
                ));
            }
        }
        for (fs, now) in now.fs.iter().enumerate() {
            let mut lost = None;
            for (id, lsn, coordinates) in now.log.headers() {
                let Some((chain, n)) = book.label(fs, id).filter(|_| coordinates && !now.log.aborted(lsn))
                else {
                    continue;
                };
                if !book.chains[chain].all_durable() {
                    continue;
                }
                let Some(found) = book.chains[chain].state_of(&end.trees) else { return Ok(false) };
                judged = true;
                match (found > n, lost) {
                    (true, Some(earlier)) => {
                        return Err(format!(
                            "{:?}: {id} is there, and {earlier}, which is before it in the log, is not",
                            end.how
                        ))
                    }
                    (true, None) => {}
                    (false, _) => lost = lost.or(Some(id)),
                }
            }
        }
        Ok(judged)
    }
}
