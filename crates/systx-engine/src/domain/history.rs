//! The commits on a file system: user, time, changes.
//!
//! The log holds them until a checkpoint drops it. Before, each record becomes a line of the file `history`
//! in the area; when that is full it becomes `history.1`, in place of the one before.
//!
//! Owns: these files. Guarantees: a durable commit has one line in the result of [`Domain::history`], as long
//! as less than [`FILE_BYTES_MAX`] bytes of younger lines follow it. Does not: know commits without
//! durability, which leave no record; fail a checkpoint where there is no room for a line.

use super::{own_file, Domain};
use crate::bytes::read_file;
use crate::id::{Lsn, TxId};
use crate::log::LogError;
use crate::paths::unescape;
use crate::record::{Act, Body, Step};
use std::collections::{BTreeMap, HashSet};
use systx_os::{Os, Rename, Result};

const FILE: &[u8] = b"history";
const OLDER: &[u8] = b"history.1";
/// A file that has grown to this size is the older one from then on.
const FILE_BYTES_MAX: u64 = 512 << 10;
/// Changes that a line names; of more it says how many.
const CHANGES_MAX: usize = 20;
/// Of a command.
const COMMAND_BYTES_MAX: usize = 400;
/// The end of a line that was not cut off.
const END: &str = "\t.";

/// A commit of the past.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Past {
    /// Place in the order of commits.
    pub lsn: Lsn,
    /// The transaction.
    pub tx: TxId,
    /// When its record was written, in seconds since the epoch.
    pub at: i64,
    /// User on whose behalf it ran.
    pub uid: u32,
    /// Command, the beginning of a long one.
    pub command: Vec<u8>,
    /// Changes, with paths from the root of the mount, the first ones of very many.
    pub changes: Vec<Changed>,
    /// How many more.
    pub more: usize,
}

/// A change of the past.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Changed {
    /// `A` a new name, `M` another object or a changed one, `D` a name that went, `R` an end of a rename.
    pub letter: char,
    /// Where.
    pub path: Vec<u8>,
}

impl Past {
    /// Makes the entry from a record.
    pub(crate) fn of(lsn: Lsn, at: i64, body: &Body) -> Past {
        let mut seen = HashSet::new();
        let mut changes: Vec<_> =
            changes(&body.steps).filter(|changed| seen.insert(changed.path.clone())).collect();
        let more = changes.len().saturating_sub(CHANGES_MAX);
        changes.truncate(CHANGES_MAX);
        let command = body.command.bytes().take(COMMAND_BYTES_MAX).collect();
        Past { lsn, tx: body.id, at, uid: body.uid, command, changes, more }
    }

    fn line(&self) -> String {
        let Past { lsn, tx, at, uid, command, changes, more } = self;
        let mut line = format!("{}\t{tx}\t{at}\t{uid}\t{more}\t{}", lsn.0, command.escape_ascii());
        for Changed { letter, path } in changes {
            line += &format!("\t{letter}{}", path.escape_ascii());
        }
        line + END + "\n"
    }

    fn parse(line: &str) -> Option<Past> {
        let mut fields = line.strip_suffix(END)?.split('\t');
        let lsn = Lsn(fields.next()?.parse().ok()?);
        let tx = TxId(fields.next()?.parse().ok()?);
        let (at, uid) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        let (more, command) = (fields.next()?.parse().ok()?, unescape(fields.next()?)?);
        let change = |field: &str| {
            let letter = field.chars().next().filter(|letter| "AMDR".contains(*letter))?;
            Some(Changed { letter, path: unescape(&field[1..])? })
        };
        let changes = fields.map(change).collect::<Option<Vec<_>>>()?;
        Some(Past { lsn, tx, at, uid, command, changes, more })
    }
}

/// Returns one change for each name or object, as far as one step shows.
fn changes(steps: &[Step]) -> impl Iterator<Item = Changed> + '_ {
    let moved: HashSet<u32> =
        steps.iter().filter(|step| matches!(step.act, Act::Take { .. })).map(|step| step.slot).collect();
    steps.iter().map(move |step| {
        let letter = match step.act {
            Act::Take { .. } => 'R',
            Act::Place { .. } | Act::Replace { .. } if moved.contains(&step.slot) => 'R',
            Act::Place { .. } | Act::Link { .. } => 'A',
            Act::Replace { .. } | Act::Patch(_) | Act::Attr { .. } => 'M',
            Act::Remove { .. } => 'D',
        };
        Changed { letter, path: crate::paths::join(&step.at.path, &step.at.name) }
    })
}

/// Notes what the log is about to let go of, oldest first. A line may be written twice (a kill in between):
/// the reader sees one. Returns the files that have grown.
pub(crate) fn keep<O: Os>(os: &O, area: &O::Fd, past: &[Past]) -> Result<Vec<O::Fd>> {
    let open = || own_file::open_or_make(os, area, FILE);
    let mut lines = past.iter().map(Past::line).peekable();
    let mut grown = Vec::new();
    // There may be more of them than one file takes.
    while lines.peek().is_some() {
        let mut fd = open()?;
        let mut size = os.stat(&fd)?.size;
        if size >= FILE_BYTES_MAX {
            os.rename((area, FILE), (area, OLDER), Rename::Replace)?;
            (fd, size) = (open()?, 0);
        }
        // Behind a line that a full disk or a kill has cut, one begins anew.
        let mut text = "\n".to_owned();
        for line in lines.by_ref() {
            text += &line;
            if size + text.len() as u64 >= FILE_BYTES_MAX {
                break;
            }
        }
        os.append(&fd, text.as_bytes())?;
        grown.push(fd);
    }
    Ok(grown)
}

/// Returns the noted commits, in order.
fn kept<O: Os>(os: &O, area: &O::Fd) -> core::result::Result<BTreeMap<(Lsn, TxId), Past>, LogError> {
    let mut all = BTreeMap::new();
    for (name, doing) in [(OLDER, "reading the file history.1"), (FILE, "reading the file history")] {
        let failed = |error| LogError::Os { doing, segment: 0, error };
        let Some(fd) = own_file::open_if_there(os, area, name).map_err(failed)? else { continue };
        let bytes = read_file(os, &fd).map_err(failed)?;
        let text = String::from_utf8_lossy(&bytes);
        all.extend(text.lines().filter_map(Past::parse).map(|past| ((past.lsn, past.tx), past)));
    }
    Ok(all)
}

impl<O: Os> Domain<O> {
    /// Notes a commit that has no record here. Who has no room for it does without.
    pub(crate) fn note_past(&self, lsn: Lsn, body: &Body) {
        let _ = keep(&self.os, &self.area.dir, &[Past::of(lsn, self.os.now().sec, body)]);
    }

    /// Returns the durable commits, oldest first, with paths as people know them.
    ///
    /// # Errors
    ///
    /// Of the log.
    pub fn history(&self) -> core::result::Result<Vec<Past>, LogError> {
        // The log first: what leaves it meanwhile is found in the files.
        let outline = crate::log::outline(&self.os, &self.area.dir, self.area.id)?;
        let mut logged = Vec::new();
        for (lsn, entry) in outline.replay.published() {
            let body = outline.body(&self.os, entry)?;
            logged.extend(body.map(|body| Past::of(lsn, entry.written, &body)));
        }
        let mut all = kept(&self.os, &self.area.dir)?;
        all.extend(logged.into_iter().map(|past| ((past.lsn, past.tx), past)));
        let shown = |mut past: Past| {
            past.changes.iter_mut().for_each(|changed| changed.path = self.shown(&changed.path));
            past
        };
        Ok(all.into_values().map(shown).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use systx_os::FsKind;
    use systx_sim::machine::{run_process, Machine, SimOs};

    fn past() -> Past {
        let changed = |letter, path: &[u8]| Changed { letter, path: path.to_vec() };
        Past {
            lsn: Lsn(7),
            tx: TxId(9),
            at: -1,
            uid: 1000,
            command: b"sh -c 'a\tb\n\xff'".to_vec(),
            changes: vec![changed('A', b"a/\\x41\t"), changed('D', b""), changed('R', b"\n")],
            more: 3,
        }
    }

    #[test]
    fn a_line_comes_back_as_it_was() {
        let line = past().line();
        assert_eq!(line.matches('\n').count(), 1);
        assert_eq!(Past::parse(line.trim_end()), Some(past()));
    }

    #[test]
    fn what_is_no_line_or_not_all_of_one_is_left_out() {
        let line = past().line();
        for cut in 0..line.len() - 1 {
            assert_eq!(Past::parse(&line[..cut]), None, "{}", &line[..cut]);
        }
        for wrong in [
            "",
            "\t.",
            "7\t9\t-1\t1000\tmany\tx\t.",
            "7\t9\t-1\t1000\t3\tx\tZa\t.",
            "7\t9\t-1\t1000\t3\tx\t\t.",
        ] {
            assert_eq!(Past::parse(wrong), None, "{wrong}");
        }
    }

    /// Some of one long line each.
    fn pasts(lsns: std::ops::Range<u64>) -> Vec<Past> {
        lsns.map(|n| Past { lsn: Lsn(10_000 + n), command: vec![b'x'; 400], ..past() }).collect()
    }

    /// Bytes of such a line.
    fn line() -> u64 {
        pasts(0..1)[0].line().len() as u64
    }

    fn told(os: &SimOs) -> Vec<u64> {
        kept(os, &os.root(0)).expect("reads").into_keys().map(|(lsn, _)| lsn.0 - 10_000).collect()
    }

    #[test]
    fn a_commit_is_told_until_half_a_megabyte_of_younger_ones_stands_behind_it() {
        let lines = FILE_BYTES_MAX / line() + 1;
        for together in [1, 700, 6 * lines] {
            let machine = Machine::with(FsKind::Ext4);
            let os = machine.spawn("checkpoints");
            let mut next = 1;
            while next <= 6 * lines {
                keep(&os, &os.root(0), &pasts(next..next + together)).expect("writes");
                next += together;
                if together == 1 && next % 50 != 0 {
                    continue;
                }
                let told = told(&os);
                let oldest = told.first().copied().expect("some");
                assert!(told.iter().copied().eq(oldest..next), "{together} together: one is left out");
                let at_least = lines.min(next - 1);
                assert!(next - oldest >= at_least, "{together} together: {oldest} to {next} are told");
                let size = |name| os.stat_at(&os.root(0), name).map_or(0, |stat| stat.size);
                let (older, file) = (size(OLDER), size(FILE));
                let most = FILE_BYTES_MAX + line();
                assert!(older <= most && file <= most, "{together} together: {older} and {file} bytes");
            }
        }
    }

    #[test]
    fn a_kill_while_a_file_becomes_the_older_one_loses_no_line() {
        let start = Machine::with(FsKind::Ext4);
        let os = start.spawn("earlier");
        let full = FILE_BYTES_MAX / line() + 1;
        keep(&os, &os.root(0), &pasts(0..full)).expect("writes");
        assert!(os.stat_at(&os.root(0), FILE).expect("is there").size >= FILE_BYTES_MAX);
        for at in 0.. {
            let machine = start.fork();
            let os = machine.spawn("checkpoints");
            machine.kill_at(&os, at);
            let more = pasts(full..full + 3);
            let whole = run_process(&os, || keep(&os, &os.root(0), &more).expect("writes")).is_ok();
            os.exit();
            machine.clear_plans();
            let next = machine.spawn("next");
            assert!(told(&next).starts_with(&(0..full).collect::<Vec<_>>()), "killed before call {at}");
            // The next checkpoint tries again.
            keep(&next, &next.root(0), &more).expect("writes");
            assert!(told(&next).into_iter().eq(0..full + 3), "killed before call {at}, and again");
            if whole {
                assert!(at > 3, "it was cut off somewhere: {at}");
                break;
            }
        }
    }
}
