//! How much each file changes, as `git diff --stat` shows it.

use super::lines::path;
use super::patch::texts;
use super::Out;
use crate::words::shown;
use systx_engine::changes::{Change, Kind, Version};
use systx_engine::outcome::Verb;
use systx_engine::transaction::Transaction;
use systx_os::{FileType, Linux};

/// Columns of the longest bar.
const BAR_MAX: usize = 40;

/// How much one changes.
enum Amount {
    /// Lines that come, and that go.
    Lines(usize, usize),
    /// Size before and after, in bytes.
    Binary(u64, u64),
}

pub fn tell(changes: &[Change], tx: &mut Transaction<Linux>, out: &mut Out) -> Verb<()> {
    let mut rows = Vec::with_capacity(changes.len());
    for change in changes {
        rows.push((name(change, tx), amount(change, tx)?));
    }
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let (mut come, mut go, mut most) = (0, 0, 0);
    for (_, amount) in &rows {
        if let Amount::Lines(c, g) = amount {
            (come, go, most) = (come + c, go + g, most.max(c + g));
        }
    }
    let digits = most.to_string().len().max(3);
    for (name, amount) in &rows {
        out.put(&match amount {
            Amount::Lines(c, g) => format!(" {name:width$} | {:>digits$} {}", c + g, bar(*c, *g, most)),
            Amount::Binary(before, after) => format!(" {name:width$} | Bin {before} -> {after} bytes"),
        });
        out.put("\n");
    }
    if !rows.is_empty() {
        out.put(&summary(rows.len(), come, go));
    }
    Ok(())
}

fn name(change: &Change, tx: &Transaction<Linux>) -> String {
    let named = |version: &Version| shown(&path(change, version, tx));
    match (&change.before, &change.after) {
        (Some(old), Some(new)) if change.kind == Kind::Renamed => format!("{} => {}", named(old), named(new)),
        (_, Some(version)) | (Some(version), None) => named(version),
        (None, None) => String::new(),
    }
}

fn amount(change: &Change, tx: &mut Transaction<Linux>) -> Verb<Amount> {
    let has_bytes = |v: &&Version| matches!(v.kind(), FileType::File | FileType::Symlink);
    let size = |v: &Option<Version>| v.as_ref().filter(has_bytes).map_or(0, |version| version.size);
    let differs = change.what.contents || matches!(change.kind, Kind::Added | Kind::Deleted);
    // Names alone: no byte comes or goes.
    if !differs || change.link_to.is_some() || (change.after.is_none() && change.what.links) {
        return Ok(Amount::Lines(0, 0));
    }
    let wanted = [&change.before, &change.after].map(|v| v.as_ref().filter(has_bytes).is_some());
    Ok(match texts(change, wanted, tx)? {
        Some(texts) => {
            let (come, go) = texts.counts();
            Amount::Lines(come, go)
        }
        None => Amount::Binary(size(&change.before), size(&change.after)),
    })
}

/// Draws a bar in which any change is visible, however small beside the longest one.
fn bar(come: usize, go: usize, most: usize) -> String {
    let part = |count: usize| match count {
        0 => 0,
        count if most <= BAR_MAX => count,
        count => (count * BAR_MAX / most).max(1),
    };
    "+".repeat(part(come)) + &"-".repeat(part(go))
}

fn summary(changes: usize, come: usize, go: usize) -> String {
    let plural = |count: usize| if count == 1 { "" } else { "s" };
    let mut text = format!(" {changes} change{}", plural(changes));
    if come > 0 {
        text += &format!(", {come} insertion{}(+)", plural(come));
    }
    if go > 0 {
        text += &format!(", {go} deletion{}(-)", plural(go));
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_shows_every_change_and_has_its_longest() {
        assert_eq!(bar(2, 1, 3), "++-");
        assert_eq!(bar(1, 0, 100_000), "+");
        assert_eq!(bar(60_000, 40_000, 100_000).len(), BAR_MAX);
        assert_eq!(bar(0, 0, 0), "");
    }

    #[test]
    fn a_summary_leaves_out_what_is_not() {
        assert_eq!(summary(1, 0, 1), " 1 change, 1 deletion(-)\n");
        assert_eq!(summary(2, 3, 0), " 2 changes, 3 insertions(+)\n");
    }
}
