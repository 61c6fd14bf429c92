//! `systx log`: what has committed, by whom and when.
//!
//! Owns: the words. Guarantees: reads only. Does not: know commits with durability `none`, which leave no record.

use crate::args::Log;
use crate::domains::{self, Mounted};
use crate::report::{put, shown};
use crate::status::{complain, Answer};
use serde_json::{json, Value};
use systx_engine::domain::history::Past;
use systx_os::linux::{local_time, Linux};

/// `systx log`.
pub fn log(args: &Log) -> Answer {
    let found = domains::existing(&Linux::new(), &args.json.area)?;
    let mut rows: Vec<(&Mounted, Past)> = Vec::new();
    for (mounted, domain) in &found.open {
        let past = domain.history().map_err(|e| format!("{}: {e}", mounted.point()))?;
        rows.extend(past.into_iter().map(|past| (mounted, past)));
    }
    rows.retain(|(_, past)| args.id.is_none_or(|id| past.tx.0 == id));
    // Of several file systems the clock decides; on each their order is that of the commits.
    rows.sort_by_key(|(_, past)| past.at);
    rows.reverse();
    rows.truncate(args.number.unwrap_or(usize::MAX));
    complain(&found);
    let known = args.id.is_none() || !rows.is_empty();
    if args.json.json {
        let rows: Vec<_> = rows.iter().map(|(mounted, past)| row_json(mounted, past)).collect();
        return Ok((format!("{}\n", Value::from(rows)), known && found.failed.is_empty()));
    }
    match args.id {
        Some(id) if !known => Err(format!(
            "no durable commit of transaction {id} is known here. `systx list` shows what runs, `systx log` what has committed"
        )),
        Some(_) => Ok((rows.iter().map(|(mounted, past)| whole(mounted, past)).collect(), true)),
        None => Ok((rows.iter().map(|(mounted, past)| row(mounted, past)).collect(), found.failed.is_empty())),
    }
}

fn row(mounted: &Mounted, past: &Past) -> String {
    let Past { tx, at, uid, command, changes, more, .. } = past;
    let (when, count) = (local_time(*at), changes.len() + more);
    let what = if count == 1 { "change" } else { "changes" };
    format!("{tx}  {when}  uid {uid}  {}  {count} {what}  {}\n", mounted.point(), shown(command))
}

fn whole(mounted: &Mounted, past: &Past) -> String {
    let mut out = row(mounted, past);
    for changed in &past.changes {
        out += &format!("{}\t{}\n", changed.letter, shown(&changed.path));
    }
    if past.more > 0 {
        out += &format!("and {} more, which are not kept\n", past.more);
    }
    out
}

fn row_json(mounted: &Mounted, past: &Past) -> Value {
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
    });
    put(&mut value, "mount", &mounted.lower.point);
    put(&mut value, "command", &past.command);
    value
}
