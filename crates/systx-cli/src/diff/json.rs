//! The changes for programs: one line, `{"changes": […]}` (docs/output.md).

use super::lines::word;
use super::Out;
use crate::words::put;
use serde_json::{json, Value};
use systx_engine::changes::{Change, Kind, Version, What};
use systx_engine::transaction::Transaction;
use systx_os::Linux;

pub fn tell(changes: &[Change], tx: &Transaction<Linux>, out: &mut Out) {
    out.put("{\"changes\":[");
    for (n, change) in changes.iter().enumerate() {
        // One at a time: there may be very many.
        out.put(if n == 0 { "" } else { "," });
        out.put(&value(change, tx).to_string());
    }
    out.put("]}\n");
}

pub fn value(change: &Change, tx: &Transaction<Linux>) -> Value {
    let kind = match change.kind {
        Kind::Added => "added",
        Kind::Modified => "modified",
        Kind::Deleted => "deleted",
        Kind::Renamed => "renamed",
        Kind::Retyped => "retyped",
    };
    let mut value = json!({ "kind": kind, "what": words(&change.what) });
    put(&mut value, "path", &tx.shown_path(change.mount, change.path()));
    if let (Some(before), Some(after)) = (&change.before, &change.after) {
        if before.path != after.path {
            put(&mut value, "path_before", &tx.shown_path(change.mount, &before.path));
        }
    }
    if let Some(other) = &change.link_to {
        put(&mut value, "link_to", &tx.shown_path(change.mount, other));
    }
    for (key, version) in [("before", &change.before), ("after", &change.after)] {
        value[key] = version.as_ref().map_or(Value::Null, object);
    }
    if !change.what.xattrs.is_empty() {
        let xattr = |x: &systx_engine::changes::Xattr| {
            let mut value = json!({ "before": x.before, "after": x.after });
            put(&mut value, "name", &x.name);
            value
        };
        value["xattrs"] = change.what.xattrs.iter().map(xattr).collect();
    }
    value
}

fn object(version: &Version) -> Value {
    json!({
        "type": word(version.kind()),
        "mode": format!("{:04o}", version.mode & 0o7777),
        "uid": version.uid,
        "gid": version.gid,
        "links": version.nlink,
        "size": version.size,
        "rdev": version.rdev,
        "mtime": version.mtime.sec,
        "mtime_nsec": version.mtime.nsec,
    })
}

fn words(what: &What) -> Vec<&'static str> {
    let all = [
        (what.contents, "contents"),
        (what.mode, "mode"),
        (what.owner, "owner"),
        (what.mtime, "mtime"),
        (what.atime, "atime"),
        (what.links, "links"),
        (!what.xattrs.is_empty(), "xattrs"),
    ];
    all.into_iter().filter_map(|(on, word)| on.then_some(word)).collect()
}
