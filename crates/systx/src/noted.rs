//! Named actions, noted in the area from before the commit until they have run.
//!
//! Owns: the files `actions/<transaction>.<random>` of an area. Guarantees: a transaction of which not all actions are
//! known to have run has one, if it has committed: a durable one also behind a power loss; a note is a living process's
//! as long as that holds its first byte. Does not: run an action again.
//!
//! A name ends in `~` until the commit point. Of a note that ends so when its process is dead, the history says whether
//! the transaction has committed; of one without durability it has not, unless it was killed in that very instant.

use crate::kernel::Kernel;
use crate::served::Open as Served;
use std::sync::Arc;
use systx_engine::domain::history::Past;
use systx_engine::domain::Domain;
use systx_engine::id::TxId;
use systx_engine::outcome::Durability;
use systx_engine::transaction::Transaction;
use systx_os::{Errno, Open, Os, Rename, Result};

const DIRECTORY: &[u8] = b"actions";
/// The most of a note that is read.
const NOTE_BYTES_MAX: u64 = 1 << 20;

/// A transaction that has committed, not all actions of which are known to have run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unfinished {
    /// Number of the transaction, as `systx log` has it.
    pub id: u64,
    /// Its label.
    pub label: String,
    /// Names of its actions, in order.
    pub actions: Vec<String>,
    note: Vec<u8>,
}

/// A note of a living process, on each file system that its transaction has touched.
pub(crate) struct Noted(Vec<OnOne>);

struct OnOne {
    domain: Arc<Domain<Kernel>>,
    dir: <Kernel as Os>::Fd,
    /// Without the `~`.
    name: Vec<u8>,
    _mine: <Kernel as Os>::Owned,
}

fn before(name: &[u8]) -> Vec<u8> {
    [name, b"~"].concat()
}

impl Noted {
    /// Notes these actions, if there are any.
    pub fn write(
        engine: &Transaction<Kernel>,
        mounts: &[Served],
        actions: Vec<String>,
    ) -> Result<Option<Noted>> {
        if actions.is_empty() {
            return Ok(None);
        }
        let options = engine.options();
        let words = std::iter::once(&options.command).chain(&actions);
        let text: String = words.map(|word| word.replace('\0', " ") + "\0").collect();
        let mut noted = Noted(Vec::new());
        for (open, id) in mounts.iter().zip(engine.ids()) {
            match on_one(&open.domain, *id, &text, options.durability) {
                Ok(one) => noted.0.push(one),
                Err(error) => {
                    noted.forget();
                    return Err(error);
                }
            }
        }
        Ok(Some(noted))
    }

    /// It has committed.
    pub fn mark(&self) {
        for OnOne { domain, dir, name, .. } in &self.0 {
            // Without the mark, the history of a durable one says the same.
            let _ = domain.os.rename((dir, &before(name)), (dir, name), Rename::NoReplace);
        }
    }

    /// All have run, or none is to.
    pub fn forget(&self) {
        for OnOne { domain, dir, name, .. } in &self.0 {
            if domain.os.unlink(dir, name).is_err() {
                let _ = domain.os.unlink(dir, &before(name));
            }
        }
    }
}

fn on_one(domain: &Arc<Domain<Kernel>>, id: TxId, text: &str, durability: Durability) -> Result<OnOne> {
    let os = &domain.os;
    match os.mkdir(&domain.area.dir, DIRECTORY, 0o700) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error),
    }
    let dir = os.open(&domain.area.dir, DIRECTORY, Open::Directory)?;
    let name = format!("{id}.{:016x}", os.random()).into_bytes();
    // Whole, and this process's, before it has a name by which others find it.
    let file = os.tmpfile(&dir, 0o600)?;
    let mine = os.own_byte(&file, 0)?;
    os.append(&file, text.as_bytes())?;
    let durable = durability == Durability::Durable;
    if durable {
        os.fsync(&file)?;
    }
    os.link(&file, &dir, &before(&name))?;
    let one = OnOne { domain: domain.clone(), dir, name, _mine: mine };
    if durable {
        if let Err(error) = os.fsync(&one.dir) {
            Noted(vec![one]).forget();
            return Err(error);
        }
    }
    Ok(one)
}

/// The label and the names in a note; `None`: it is none of ours.
fn words<O: Os>(os: &O, file: &O::Fd) -> Result<Option<Vec<String>>> {
    let size = os.stat(file)?.size.min(NOTE_BYTES_MAX);
    let mut bytes = vec![0; size as usize];
    let got = os.pread(file, &mut bytes, 0)?;
    let Some(text) = bytes[..got].strip_suffix(b"\0") else { return Ok(None) };
    let words = text.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned());
    Ok(Some(words.collect()))
}

/// Forgets one.
///
/// # Errors
/// Of unlink(2).
pub(crate) fn forget<O: Os>(domain: &Arc<Domain<O>>, one: &Unfinished) -> Result<()> {
    let dir = domain.os.open(&domain.area.dir, DIRECTORY, Open::Directory)?;
    match domain.os.unlink(&dir, &one.note) {
        Err(Errno::NOENT) => Ok(()),
        done => done,
    }
}

/// The notes of the dead in an area whose transactions have committed. Others go.
///
/// # Errors
/// Of reading them, and the history.
pub fn unfinished<O: Os>(domain: &Arc<Domain<O>>) -> Result<Vec<Unfinished>> {
    let os = &domain.os;
    let Some(dir) = os.open_if_there(&domain.area.dir, DIRECTORY, Open::Directory)? else {
        return Ok(Vec::new());
    };
    let mut all = Vec::new();
    let mut history = None;
    for entry in os.read_dir(&dir)? {
        let Some(file) = os.open_if_there(&dir, &entry.name, Open::ReadWrite)? else { continue };
        if os.byte_owned(&file, 0)? {
            continue;
        }
        // A name or a text of another kind is no note of ours.
        let id = entry.name.split(|byte| *byte == b'.').next();
        let id = id.and_then(|id| std::str::from_utf8(id).ok()?.parse().ok());
        let (Some(id), Some(mut words)) = (id, words(os, &file)?) else { continue };
        let written = os.stat(&file)?.mtime.sec;
        let is_marked = !entry.name.ends_with(b"~");
        if history.is_none() && !is_marked {
            history = Some(domain.history().map_err(|_| Errno::IO)?);
        }
        let is_it = |past: &Past| past.tx == TxId(id) && past.at >= written;
        if words.len() > 1 && (is_marked || history.iter().flatten().any(is_it)) {
            let label = words.remove(0);
            all.push(Unfinished { id, label, actions: words, note: entry.name });
        } else {
            os.unlink(&dir, &entry.name)?;
        }
    }
    all.sort_by_key(|one| one.id);
    Ok(all)
}
