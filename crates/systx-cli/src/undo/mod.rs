//! `systx undo`: takes a committed transaction back.
//!
//! Owns: the order of things and the words. Where the image of a transaction is (it may have one on each of
//! several file systems) → a transaction over just those → is all as it was left ([`systx_engine::undo`]) →
//! put back → commit. Guarantees: an undo is committed as a run is, helper included; one that is refused names
//! everything that stands in its way ([`later`]). Does not: know what was read.

mod later;

use crate::args::{self, Id, IsolationArg, Promise};
use crate::cover::{self, Promised};
use crate::diff;
use crate::domains::{self, Existing, Mounted};
use crate::failure::{at, bytes, failed, in_words, verb_failed, Failure, Result};
use crate::life::{self, IfItFails};
use crate::log;
use crate::on_end::Notices;
use crate::progress::Progress;
use crate::report::{say, Ending, Ours, Told};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use systx_engine::domain::Domain;
use systx_engine::id::TxId;
use systx_engine::outcome::{Options, VerbError};
use systx_engine::transaction::Transaction;
use systx_engine::undo::area::{ImageError, OpenImage, IMAGES_MAX};
use systx_engine::undo::Looked;
use systx_os::process::Signals;
use systx_os::sandbox::helper::{self, Helper};
use systx_os::{Errno, Linux};

/// Why an inner run keeps nothing.
pub const PART_OF_ANOTHER: &str =
    "--undoable is for a transaction of its own, and this run is part of another one: give it to that";
const INSIDE: &str =
    "an undo is a transaction of its own, and this is inside of another one: do it outside, after that has ended";

/// `systx undo`; returns the exit code.
pub fn undo(args: &args::Undo) -> u8 {
    let words = ["systx".into(), "undo".into(), OsString::from(args.id.to_string())];
    systx_os::process::lift_size_limit();
    let mut notices = Notices::default();
    let ending = undone(args, &mut notices).unwrap_or_else(Ending::Failed);
    notices.ended(&ending);
    let ours = Ours::new(notices.id().map(|id| id.0), &words);
    say(&Told::new(&ending, &ours), args.voice(), None)
}

/// An error is one of ours, before the commit.
fn undone(args: &args::Undo, notices: &mut Notices) -> Result<Ending> {
    if domains::inside_a_transaction(&domains::table()?) {
        return Err(INSIDE.into());
    }
    let parts = parts(args)?;
    let mounts = &parts.mounts;
    let keep: Vec<_> = mounts.iter().flat_map(|mounted| mounted.copy.descriptors()).collect();
    let helper = helper::start(&keep, |call| cover::called(call, mounts, &args.area));
    let helper = helper.map_err(failed("starting the helper"))?;
    let mut promised = Promised::default();
    let ending = taken_back(args, &helper, &parts, notices, &mut promised);
    cover::end(helper, &promised);
    ending
}

/// The file systems that a transaction has changed.
struct Parts {
    /// The number by which the transaction is meant.
    id: TxId,
    mounts: Vec<Mounted>,
    /// Of each the key and its number there, as each of its images has to have them.
    keys: Vec<([u8; 16], TxId)>,
}

/// Finds them by the images.
fn parts(args: &args::Undo) -> Result<Parts> {
    let found = domains::existing(&Linux::new(), &args.area)?;
    found.complain();
    let mut wanted = args.mount.as_deref().map(|dir| mount_of(dir, &found)).transpose()?;
    let id = match args.id {
        Id::Number(id) => TxId(id),
        Id::Back(0) => {
            let (id, point) = log::newest(&found, wanted.as_ref())?;
            wanted = Some(point);
            id
        }
        // A line of the log is a part of a transaction where that has changed several file systems.
        Id::Back(_) | Id::Name(_) => {
            return Err(
                Failure::from("only the newest is undone without its number").hint("`systx log` shows that")
            )
        }
    };
    let mut images = Vec::new();
    for (mounted, domain) in &found.open {
        if wanted.as_ref().is_some_and(|wanted| *wanted != mounted.lower.point) {
            continue;
        }
        settle(domain).map_err(|e| e.on(&mounted.lower.point))?;
        let image = domain
            .image(id)
            .map_err(|e| Failure::new(format!("transaction {id} on"), e).on(&mounted.lower.point))?;
        images.extend(image.map(|OpenImage { image, .. }| (mounted.point(), image)));
    }
    let Some((_, first)) = images.first() else { return Err(unknown(id, &found)) };
    if let Some((point, _)) = images.iter().find(|(_, image)| image.parts != first.parts) {
        let (one, _) = &images[0];
        return Err(format!(
            "several file systems have an undoable transaction {id}: choose by --mount {one} or --mount {point}"
        )
        .into());
    }
    let keys = first.parts.clone();
    let mut open = found.open;
    let mut mounts = Vec::new();
    for (key, _) in &keys {
        let Some(n) = open.iter().position(|(_, domain)| domain.image_key() == *key) else {
            return Err(format!(
                "transaction {id} has changed another file system, too, which is not mounted or not open here: mount it first"
            )
            .into());
        };
        let (mounted, domain) = open.swap_remove(n);
        if wanted.is_some() {
            settle(&domain).map_err(|e| e.on(&mounted.lower.point))?;
        }
        mounts.push(mounted);
    }
    Ok(Parts { id, mounts, keys })
}

/// The file system that a directory is on, of those that have an area.
fn mount_of(dir: &Path, found: &Existing) -> Result<Vec<u8>> {
    let failed = |cause| Failure::new("--mount", cause).on(bytes(dir));
    let path = dir.canonicalize().map_err(|e| failed(in_words(&e)))?;
    let points = found.open.iter().map(|(mounted, _)| &mounted.lower.point);
    let above = points.filter(|point| path.starts_with(OsStr::from_bytes(point)));
    let nearest = above.max_by_key(|point| point.len());
    nearest
        .cloned()
        .ok_or_else(|| failed("nothing was done by systx there".into()).hint("`systx status` lists where"))
}

/// Finds out which images belong to a commit; returns how many belong to none.
pub fn settle(domain: &Domain<Linux>) -> Result<usize> {
    domain.finish_in_flight().map_err(at(b""))?;
    domain.settle_images().map_err(at(b""))
}

fn unknown(id: TxId, found: &Existing) -> Failure {
    let past = found.open.iter().filter_map(|(_, domain)| domain.history().ok()).flatten();
    let mut past = past.filter(|past| past.tx == id);
    match past.next() {
        Some(_) => format!(
            "transaction {id} can't be undone: it was not run with --undoable, or what was kept of it is gone (`systx prune`, or not among the \
             {IMAGES_MAX} that committed last). `systx log {id}` shows what it has changed, for putting it back by hand"
        )
        .into(),
        None => {
            format!("no committed transaction {id} is known here. `systx log` shows what has committed").into()
        }
    }
}

/// The transaction of the undo.
fn taken_back(
    args: &args::Undo,
    helper: &Helper,
    Parts { id, mounts, keys }: &Parts,
    notices: &mut Notices,
    promised: &mut Promised,
) -> Result<Ending> {
    let os = Linux::new();
    let domains = {
        let _held = Signals::hold().map_err(failed("holding signals"))?;
        domains::open(&os, mounts, &args.area).map_err(|refused| refused.why)?
    };
    life::finish_others(args.voice(), &domains);
    let mut images = Vec::with_capacity(keys.len());
    for ((domain, (_, id)), mounted) in domains.iter().zip(keys).zip(mounts) {
        let unreadable = |e: ImageError| Failure::new(format!("transaction {id}"), e);
        let gone = || format!("what was kept of it on {} is gone", mounted.point());
        let open = domain.image(*id).map_err(unreadable)?.ok_or_else(|| Failure::from(gone()))?;
        // Numbers are given out again once nothing is kept by them.
        if open.image.parts != *keys {
            return Err(format!(
                "{}: number {id} there is another transaction's by now; `systx log` tells what has committed",
                gone()
            )
            .into());
        }
        images.push(open);
    }
    let command = images.first().map_or_else(String::new, |open| {
        let known_by = open.image.parts.first().map_or(id.0, |(_, id)| id.0);
        format!("{}{known_by}: {}", later::UNDO_OF, String::from_utf8_lossy(&open.image.command))
    });
    let promise = Promise { durability: args.durability, isolation: IsolationArg::Serializable };
    let options = Options { command, ..life::options(promise, &[]) };
    let mut tx = life::begin(&domains, options, notices)?;
    let ready = put_back(&mut tx, id.0, &domains, &images)
        .and_then(|put| diff::before_commit(&args.changes, args.voice(), &mut tx, 0).map(|_| put));
    // A process that is killed before has undone nothing, and its helper process cleans up.
    let _held = Signals::hold().map_err(failed("holding signals"))?;
    let ready = ready.and_then(|put| {
        let mut put = images.iter().zip(&put).enumerate();
        put.try_for_each(|(mount, (open, looked))| tx.note_made_again(mount, &open.image, looked))
            .map_err(not_put_back)
    });
    let ending = match ready {
        Ok(()) => {
            let _progress = Progress::begin(args.voice());
            life::commit(IfItFails::Goes, tx, args.undoable, |done| Ending::Committed(done, 0)).0
        }
        Err(Ending::Conflict(conflict)) => {
            tx.lose(&conflict);
            Ending::Conflict(conflict)
        }
        Err(ending) => {
            tx.abort();
            ending
        }
    };
    *promised = cover::promise(helper, mounts, mounts.iter().zip(&domains));
    Ok(ending)
}

/// Everything as it was, in the transaction.
fn put_back(
    tx: &mut Transaction<Linux>,
    id: u64,
    domains: &[Arc<Domain<Linux>>],
    images: &[OpenImage<Linux>],
) -> Result<Vec<Looked>, Ending> {
    let mut all = Vec::with_capacity(images.len());
    for (mount, open) in images.iter().enumerate() {
        all.push(tx.look_at_image(mount, &open.image).map_err(not_looked)?);
    }
    let as_left = all.iter().all(|looked| looked.differs.is_empty());
    if as_left {
        for (mount, (open, looked)) in images.iter().zip(&mut all).enumerate() {
            let found = std::mem::take(looked);
            let back = tx.put_back(mount, &open.image, found, open.contents.as_ref());
            *looked = back.map_err(not_put_back)?;
        }
    }
    if all.iter().all(|looked| looked.differs.is_empty()) {
        return Ok(all);
    }
    let parts: Vec<_> =
        domains.iter().zip(images).zip(all.into_iter().map(|looked| looked.differs)).collect();
    Err(later::overtaken(id, parts).map_or_else(Ending::Failed, |why| Ending::Overtaken(Box::new(why))))
}

fn not_looked(error: VerbError) -> Ending {
    match error {
        VerbError::Doomed(conflict) => Ending::Conflict(*conflict),
        e => Ending::Failed(verb_failed("looking at what it changed", e)),
    }
}

fn not_put_back(error: VerbError) -> Ending {
    match error {
        VerbError::Doomed(conflict) => Ending::Conflict(*conflict),
        VerbError::Os(Errno::UCLEAN) => Ending::Failed("what was kept of it is damaged; what has changed since then has to be put back by hand: `systx log ID` tells what it was".into()),
        e => Ending::Failed(verb_failed("putting back what it changed", e)),
    }
}
