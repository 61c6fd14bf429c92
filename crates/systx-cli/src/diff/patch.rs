//! Contents as `git diff` shows them, so that `git apply` and `patch` read them; and what they have no words
//! for, as a line of `lines` before it, which they skip.

use super::lines::{line, path};
use super::Out;
use crate::words::shown;
use similar::{Algorithm, ChangeTag, TextDiff};
use std::time::Duration;
use systx_engine::changes::{Change, Kind, Side, Version};
use systx_engine::outcome::Verb;
use systx_engine::transaction::Transaction;
use systx_os::{FileType, Linux};

/// Larger files count as binary: both sides of a text have to be in memory.
const TEXT_BYTES_MAX: u64 = 16 << 20;
/// git looks this far for a NUL byte.
const BINARY_LOOK_BYTES: usize = 8000;
/// After this time the differences within one file become coarser. They stay right.
const TIME_MAX: Duration = Duration::from_secs(5);
const CHUNK_BYTES: usize = 1 << 20;

/// Both sides of a file as text; one that is missing is empty.
pub struct Texts([Vec<u8>; 2]);

/// Writes one change with its contents.
pub fn tell(change: &Change, tx: &mut Transaction<Linux>, out: &mut Out) -> Verb<()> {
    let what = &change.what;
    let (old, new) = (change.before.as_ref(), change.after.as_ref());
    let blocks: &[[Option<&Version>; 2]] = match change.kind {
        // Names alone: no byte comes or goes.
        _ if change.link_to.is_some() || (new.is_none() && what.links) => &[],
        Kind::Retyped => &[[old, None], [None, new]],
        Kind::Modified if !what.contents && !what.mode => &[],
        _ => &[[old, new]],
    };
    let has_bytes = |v: &Version| matches!(v.kind(), FileType::File | FileType::Symlink);
    let shown: Vec<_> =
        blocks.iter().filter(|sides| sides.iter().flatten().all(|version| has_bytes(version))).collect();
    let unsaid = what.owner || what.atime || what.links || !what.xattrs.is_empty();
    if shown.len() < blocks.len() || shown.is_empty() || unsaid || (what.mtime && !what.contents) {
        out.put(&line(change, tx));
    }
    shown.into_iter().try_for_each(|[old, new]| block(change, [*old, *new], tx, out))
}

/// Writes git's block for one file.
fn block(
    change: &Change,
    [old, new]: [Option<&Version>; 2],
    tx: &mut Transaction<Linux>,
    out: &mut Out,
) -> Verb<()> {
    let Some(any) = old.or(new) else { return Ok(()) };
    let named = |prefix: &str, version: &Version| {
        let path = path(change, version, tx);
        let path = path.strip_prefix(b"/").unwrap_or(&path);
        shown(&[prefix.as_bytes(), path].concat())
    };
    let (a, b) = (named("a/", old.unwrap_or(any)), named("b/", new.unwrap_or(any)));
    out.put(&format!("diff --git {a} {b}\n"));
    let mut contents = change.what.contents;
    match (old, new) {
        (Some(old), Some(new)) => {
            if old.mode != new.mode {
                out.put(&format!("old mode {:06o}\nnew mode {:06o}\n", old.mode, new.mode));
            }
            if change.kind == Kind::Renamed {
                let same = if contents { "" } else { "similarity index 100%\n" };
                out.put(&format!("{same}rename from {}\nrename to {}\n", named("", old), named("", new)));
            }
        }
        (None, Some(new)) => out.put(&format!("new file mode {:06o}\n", new.mode)),
        (Some(old), None) => out.put(&format!("deleted file mode {:06o}\n", old.mode)),
        (None, None) => {}
    }
    contents |= old.is_none() || new.is_none();
    if !contents {
        return Ok(());
    }
    let a = if old.is_some() { a } else { "/dev/null".into() };
    let b = if new.is_some() { b } else { "/dev/null".into() };
    match texts(change, [old.is_some(), new.is_some()], tx)? {
        None => out.put(&format!("Binary files {a} and {b} differ\n")),
        Some(texts) if texts.0[0] != texts.0[1] => {
            out.put(&format!("--- {a}\n+++ {b}\n"));
            hunks(&texts, out);
        }
        Some(_) => {}
    }
    Ok(())
}

/// The sides that are wanted, as text; `None`: one of them is binary, or too large.
pub fn texts(change: &Change, wanted: [bool; 2], tx: &mut Transaction<Linux>) -> Verb<Option<Texts>> {
    let mut texts = [Vec::new(), Vec::new()];
    for (n, side) in [Side::Before, Side::After].into_iter().enumerate() {
        let size = change.version(side).filter(|_| wanted[n]).map_or(0, |version| version.size);
        if size > TEXT_BYTES_MAX {
            return Ok(None);
        }
        let text = &mut texts[n];
        while (text.len() as u64) < size {
            let at = text.len();
            text.resize(at + CHUNK_BYTES.min(size as usize - at), 0);
            let got = tx.contents(change, side, &mut text[at..], at as u64)?;
            text.truncate(at + got);
            if got == 0 {
                break;
            }
            if at == 0 && text.iter().take(BINARY_LOOK_BYTES).any(|byte| *byte == 0) {
                return Ok(None);
            }
        }
    }
    Ok(Some(Texts(texts)))
}

impl Texts {
    /// Lines end with a newline only, as for git.
    fn lines(&self) -> [Vec<&[u8]>; 2] {
        [0, 1].map(|n| self.0[n].split_inclusive(|byte| *byte == b'\n').collect())
    }

    /// How many lines come and how many go.
    pub fn counts(&self) -> (usize, usize) {
        let [old, new] = self.lines();
        let diff = diff(&old, &new);
        let (mut come, mut go) = (0, 0);
        for op in diff.ops() {
            if op.tag() != similar::DiffTag::Equal {
                go += op.old_range().len();
                come += op.new_range().len();
            }
        }
        (come, go)
    }
}

fn diff<'a>(old: &[&'a [u8]], new: &[&'a [u8]]) -> TextDiff<'a, 'a, [u8]> {
    let mut config = TextDiff::configure();
    config.algorithm(Algorithm::Myers).timeout(TIME_MAX).diff_slices(old, new)
}

fn hunks(texts: &Texts, out: &mut Out) {
    let [old, new] = texts.lines();
    let diff = diff(&old, &new);
    for hunk in diff.unified_diff().iter_hunks() {
        out.put(&format!("{}\n", hunk.header()));
        for change in hunk.iter_changes() {
            out.put(match change.tag() {
                ChangeTag::Equal => " ",
                ChangeTag::Delete => "-",
                ChangeTag::Insert => "+",
            });
            out.put_contents(change.value());
            if !change.value().ends_with(b"\n") {
                out.put("\n\\ No newline at end of file\n");
            }
        }
    }
}
