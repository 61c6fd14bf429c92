//! `systx log`: what has committed, by whom and when.
//!
//! Owns: the words. Guarantees: reads only. Does not: know commits with durability `none`, which leave no record.

use crate::args::{Id, Log};
use crate::domains::{self, Existing, Mounted};
use crate::failure::{at, Failure, Result};
use crate::status::{Answer, Said};
use crate::words::{put, shown};
use serde_json::{json, Value};
use std::collections::BTreeSet;
use systx_engine::domain::history::Past;
use systx_engine::id::TxId;
use systx_os::linux::{local_time, Linux};

/// `systx log`.
pub fn log(args: &Log) -> Answer {
    let found = domains::existing(&Linux::new(), &args.json.area)?;
    let mut rows = rows(&found)?;
    match &args.id {
        Some(Id::Number(id)) => rows.retain(|row| row.past.tx.0 == *id),
        Some(Id::Back(n)) => rows = rows.into_iter().skip(*n).take(1).collect(),
        _ => {}
    }
    rows.truncate(args.number.unwrap_or(usize::MAX));
    let mut unfinished = Vec::new();
    for (mounted, domain) in &found.open {
        let told = systx::unfinished(domain).map_err(at(&mounted.lower.point))?;
        unfinished.extend(told.into_iter().map(|one| (one.id, one.actions)));
    }
    found.complain();
    let known = args.id.is_none() || !rows.is_empty();
    if args.json.json {
        let rows: Vec<_> = rows.iter().map(|row| row_json(row, &unfinished)).collect();
        return Ok(Said { text: format!("{}\n", Value::from(rows)), well: known && found.failed.is_empty() });
    }
    match &args.id {
        Some(back @ Id::Back(_)) if !known => Err(no_such(back)),
        Some(id) if !known => Err(Failure::from(format!(
            "no durable commit of transaction {id} is known here. `systx list` shows what runs, `systx log` what has committed"
        ))),
        Some(_) => Ok(Said { text: rows.iter().map(|one| whole(one, &unfinished)).collect(), well: true }),
        None => {
            let text = rows.iter().map(|one| row(one, &unfinished)).collect();
            Ok(Said { text, well: found.failed.is_empty() })
        }
    }
}

/// All that is known, the youngest first.
fn rows(found: &Existing) -> Result<Vec<Row<'_>>> {
    let mut rows: Vec<Row<'_>> = Vec::new();
    for (mounted, domain) in &found.open {
        let past = domain.history().map_err(at(&mounted.lower.point))?;
        let images = domain.images().map_err(at(&mounted.lower.point))?;
        let mut images: BTreeSet<_> = images.into_iter().collect();
        let first = rows.len();
        // Where a number is there twice, only the last one can have an image.
        let row = |past: Past| Row { mounted, undoable: images.remove(&past.tx), order: 0, past };
        rows.extend(past.into_iter().rev().map(row));
        rows[first..].reverse();
        // On each file system their order is that of the commits, also where the clock was set back.
        let mut latest = i64::MIN;
        for row in &mut rows[first..] {
            latest = latest.max(row.past.at);
            row.order = latest;
        }
    }
    // Of several the clock decides.
    rows.sort_by_key(|row| row.order);
    rows.reverse();
    Ok(rows)
}

/// Returns the number of the transaction that committed last, on one file system or on all, and the mount point on which it
/// has that number.
///
/// # Errors
/// There is none; or which it is can't be known, as a file system can't be looked at.
pub fn newest(found: &Existing, point: Option<&Vec<u8>>) -> Result<(TxId, Vec<u8>)> {
    if point.is_none() && !found.failed.is_empty() {
        return Err(Failure::from("which transaction is the newest is not known").hint("say its number"));
    }
    let rows = rows(found)?;
    let mut rows = rows.iter().filter(|row| point.is_none_or(|point| *point == row.mounted.lower.point));
    let row = rows.next().ok_or_else(|| no_such(&Id::Back(0)))?;
    Ok((row.past.tx, row.mounted.lower.point.clone()))
}

fn no_such(back: &Id) -> Failure {
    format!("no durable commit is {back}: fewer are known here. `systx log` shows them").into()
}

/// One commit on one file system.
struct Row<'a> {
    mounted: &'a Mounted,
    past: Past,
    /// The image that undoing it needs is there.
    undoable: bool,
    /// Seconds since the epoch, but never before an earlier commit of the same file system.
    order: i64,
}

/// Names of actions that are not known to have run, by transaction.
type Unfinished = [(u64, Vec<String>)];

fn actions_of<'a>(row: &Row<'_>, unfinished: &'a Unfinished) -> Vec<&'a String> {
    unfinished.iter().filter(|(id, _)| *id == row.past.tx.0).flat_map(|(_, actions)| actions).collect()
}

fn row(row: &Row<'_>, unfinished: &Unfinished) -> String {
    let left: Vec<_> = actions_of(row, unfinished).iter().map(|name| shown(name.as_bytes())).collect();
    let left = if left.is_empty() { String::new() } else { format!(", not run: {}", left.join(", ")) };
    let Row { mounted, past: Past { tx, at, uid, command, changes, more, .. }, undoable, .. } = row;
    let (when, count) = (local_time(*at), changes.len() + more);
    let what = if count == 1 { "change" } else { "changes" };
    let undoable = if *undoable { ", undoable" } else { "" };
    format!(
        "{tx}  {when}  uid {uid}  {}  {count} {what}{undoable}{left}  {}\n",
        mounted.point(),
        shown(command)
    )
}

fn whole(one: &Row<'_>, unfinished: &Unfinished) -> String {
    let (mut out, past) = (row(one, unfinished), &one.past);
    for changed in &past.changes {
        out += &format!("{}\t{}\n", changed.letter, shown(&changed.path));
    }
    if past.more > 0 {
        out += &format!("and {} more, which are not kept\n", past.more);
    }
    out
}

fn row_json(row: &Row<'_>, unfinished: &Unfinished) -> Value {
    let not_run = actions_of(row, unfinished);
    let Row { mounted, past, undoable, .. } = row;
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
        "not_run": not_run,
    });
    put(&mut value, "mount", &mounted.lower.point);
    put(&mut value, "command", &past.command);
    value
}
