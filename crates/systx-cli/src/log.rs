//! `systx log`: what has committed, by whom and when.
//!
//! Owns: the words. Guarantees: reads only. Does not: know commits with durability `none`, which leave no record.

use crate::args::Log;
use crate::domains::{self, Mounted};
use crate::failure::{at, Failure};
use crate::status::{Answer, Said};
use crate::words::{put, shown};
use serde_json::{json, Value};
use std::collections::BTreeSet;
use systx_engine::domain::history::Past;
use systx_os::linux::{local_time, Linux};

/// `systx log`.
pub fn log(args: &Log) -> Answer {
    let found = domains::existing(&Linux::new(), &args.json.area)?;
    let mut rows: Vec<Row<'_>> = Vec::new();
    for (mounted, domain) in &found.open {
        let past = domain.history().map_err(at(&mounted.lower.point))?;
        let images = domain.images().map_err(at(&mounted.lower.point))?;
        let mut images: BTreeSet<_> = images.into_iter().collect();
        let first = rows.len();
        // Where a number is there twice, only the last one can have an image.
        let row = |past: Past| Row { mounted, undoable: images.remove(&past.tx), past };
        rows.extend(past.into_iter().rev().map(row));
        rows[first..].reverse();
    }
    rows.retain(|Row { past, .. }| args.id.is_none_or(|id| past.tx.0 == id));
    // Of several file systems the clock decides; on each their order is that of the commits.
    rows.sort_by_key(|row| row.past.at);
    rows.reverse();
    rows.truncate(args.number.unwrap_or(usize::MAX));
    found.complain();
    let known = args.id.is_none() || !rows.is_empty();
    if args.json.json {
        let rows: Vec<_> = rows.iter().map(row_json).collect();
        return Ok(Said { text: format!("{}\n", Value::from(rows)), well: known && found.failed.is_empty() });
    }
    match args.id {
        Some(id) if !known => Err(Failure::from(format!(
            "no durable commit of transaction {id} is known here. `systx list` shows what runs, `systx log` what has committed"
        ))),
        Some(_) => Ok(Said { text: rows.iter().map(whole).collect(), well: true }),
        None => Ok(Said { text: rows.iter().map(row).collect(), well: found.failed.is_empty() }),
    }
}

/// One commit on one file system.
struct Row<'a> {
    mounted: &'a Mounted,
    past: Past,
    /// The image that undoing it needs is there.
    undoable: bool,
}

fn row(row: &Row<'_>) -> String {
    let Row { mounted, past: Past { tx, at, uid, command, changes, more, .. }, undoable } = row;
    let (when, count) = (local_time(*at), changes.len() + more);
    let what = if count == 1 { "change" } else { "changes" };
    let undoable = if *undoable { ", undoable" } else { "" };
    format!("{tx}  {when}  uid {uid}  {}  {count} {what}{undoable}  {}\n", mounted.point(), shown(command))
}

fn whole(one: &Row<'_>) -> String {
    let (mut out, past) = (row(one), &one.past);
    for changed in &past.changes {
        out += &format!("{}\t{}\n", changed.letter, shown(&changed.path));
    }
    if past.more > 0 {
        out += &format!("and {} more, which are not kept\n", past.more);
    }
    out
}

fn row_json(row: &Row<'_>) -> Value {
    let Row { mounted, past, undoable } = row;
    let changed = |changed: &systx_engine::domain::history::Changed| {
        let mut value = json!({ "kind": changed.letter.to_string() });
        put(&mut value, "path", &changed.path);
        value
    };
    let mut value = json!({
        "id": past.tx.0,
        "at": past.at,
        "uid": past.uid,
        "changes": past.changes.iter().map(changed).collect::<Vec<_>>(),
        "more": past.more,
        "undoable": undoable,
    });
    put(&mut value, "mount", &mounted.lower.point);
    put(&mut value, "command", &past.command);
    value
}
