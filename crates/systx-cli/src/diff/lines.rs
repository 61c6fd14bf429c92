//! One line a change: a letter as `git diff --name-status` has it, the name, and what git has no letter for.

use crate::words::shown;
use systx_engine::changes::{Change, Kind, Version};
use systx_engine::transaction::Transaction;
use systx_os::{FileType, Linux};

/// `LETTER<tab>NAME[<tab>NEW NAME][<tab>(what else)]`, with its end.
pub fn line(change: &Change, tx: &Transaction<Linux>) -> String {
    let mut line = String::from(letter(change));
    let named = |version: &Version| shown(&path(change, version, tx));
    let sides = match change.kind {
        Kind::Renamed => [change.before.as_ref(), change.after.as_ref()],
        _ => [None, change.after.as_ref().or(change.before.as_ref())],
    };
    for version in sides.into_iter().flatten() {
        line += "\t";
        line += &named(version);
    }
    let details = details(change, tx);
    if !details.is_empty() {
        line += &format!("\t({})", details.join(", "));
    }
    line + "\n"
}

fn letter(change: &Change) -> &'static str {
    match change.kind {
        Kind::Added => "A",
        Kind::Modified => "M",
        Kind::Deleted => "D",
        // How much is the same of what has changed is not counted.
        Kind::Renamed if change.what.contents => "R",
        Kind::Renamed => "R100",
        Kind::Retyped => "T",
    }
}

/// The name of one version as people know it; a directory's ends with `/`.
pub fn path(change: &Change, version: &Version, tx: &Transaction<Linux>) -> Vec<u8> {
    let mut path = tx.shown_path(change.mount, &version.path);
    if version.kind() == FileType::Directory && !path.ends_with(b"/") {
        path.push(b'/');
    }
    path
}

/// Returns the details that the letter does not say.
fn details(change: &Change, tx: &Transaction<Linux>) -> Vec<String> {
    let what = &change.what;
    let mut details = Vec::new();
    if let Some(other) = &change.link_to {
        details.push(format!("link to {}", shown(&tx.shown_path(change.mount, other))));
    }
    if what.contents && matches!(change.kind, Kind::Renamed | Kind::Deleted) {
        details.push("contents".into());
    }
    if let (Some(old), Some(new)) = (&change.before, &change.after) {
        if change.kind == Kind::Retyped {
            details.push(format!("{} -> {}", word(old.kind()), word(new.kind())));
        }
        if what.mode {
            details.push(format!("mode {:04o} -> {:04o}", old.mode & 0o7777, new.mode & 0o7777));
        }
        if what.owner {
            details.push(format!("owner {}:{} -> {}:{}", old.uid, old.gid, new.uid, new.gid));
        }
        if what.links {
            details.push(format!("links {} -> {}", old.nlink, new.nlink));
        }
    } else {
        details.extend(what.mode.then(|| "mode".into()));
        details.extend(what.owner.then(|| "owner".into()));
        details.extend(what.links.then(|| "other names stay".into()));
    }
    if !what.xattrs.is_empty() {
        let mut text = String::from("xattr");
        for x in &what.xattrs {
            let sign = match (x.before, x.after) {
                (false, _) => '+',
                (true, false) => '-',
                (true, true) => '~',
            };
            text += &format!(" {sign}{}", shown(&x.name));
        }
        details.push(text);
    }
    // Writing moves the time, so that needs no detail.
    if (what.mtime && !what.contents && change.kind != Kind::Retyped) || what.atime {
        details.push("times".into());
    }
    details
}

/// A type in words.
pub fn word(kind: FileType) -> &'static str {
    match kind {
        FileType::File => "file",
        FileType::Directory => "directory",
        FileType::Symlink => "symlink",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
        FileType::CharDevice => "char-device",
        FileType::BlockDevice => "block-device",
    }
}
