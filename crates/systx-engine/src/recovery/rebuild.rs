//! Slots that a power loss took, made again from the record.
//!
//! Metadata survives as a prefix and a slot directory gets its final name last, so a missing `tx/<id>` says
//! that none of the record's steps on names survived. On a shared staging directory the seal says so. (Not so on ext4
//! without a journal: docs/limits.md.)

use crate::bytes::write_all;
use crate::domain::shared_staging::sealed_shared_staging_of;
use crate::domain::Area;
use crate::mutant::{self, Mutant};
use crate::objects::{remove_all, slot_name};
use crate::publish::tokens;
use crate::publish::tokens::Token;
use crate::record::{Act, Body, Small, Step};
use systx_os::{Errno, FileType, Open, Os, Rename, Result, SetXattr};

/// The slot directory of a record.
pub(super) struct SlotDir<O: Os> {
    /// `None`: the record needs none.
    pub dir: Option<O::Fd>,
    /// A staged object that the record doesn't carry is lost.
    pub lost: bool,
}

/// Opens the slot directory of a record, and makes it again if it is missing.
pub(super) fn slots_of<O: Os>(os: &O, area: &Area<O>, body: &Body) -> Result<SlotDir<O>> {
    if !body.has_slots() {
        return Ok(SlotDir { dir: None, lost: false });
    }
    let name = body.id.to_string();
    match os.open(&area.tx, name.as_bytes(), Open::Directory) {
        Ok(slots) => return Ok(SlotDir { dir: Some(slots), lost: false }),
        Err(Errno::NOENT) => {}
        Err(e) => return Err(e),
    }
    // Its shared staging directory stays until no record can be redone, and its seal never moves back: a
    // second question gets the same answer.
    if let Some(shared_staging) = sealed_shared_staging_of(os, &area.dir, body)? {
        return Ok(SlotDir { dir: Some(shared_staging), lost: false });
    }
    let temporary = format!("{name}.r~");
    match os.mkdir(&area.tx, temporary.as_bytes(), 0o700) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(e) => return Err(e),
    }
    let slots = os.open(&area.tx, temporary.as_bytes(), Open::Directory)?;
    // Of a recovery that was cut off.
    remove_all(os, &slots)?;
    let mut lost = false;
    let mut taken = Vec::new();
    let mut wanted = Vec::new();
    let mut links = None;
    for step in &body.steps {
        match &step.act {
            Act::Place { small: Some(small) } => make(os, &slots, step, small)?,
            // A PUT: the TAKE before it makes the token.
            Act::Place { small: None } | Act::Replace { .. } if taken.contains(&step.slot) => {}
            Act::Place { small: None } | Act::Replace { .. } => lost = true,
            Act::Take { directory, .. } | Act::Remove { directory, .. } => {
                taken.push(step.slot);
                let directory = *directory && !mutant::on(Mutant::TokensOfFiles);
                wanted.push((step.slot, if directory { Token::Directory } else { Token::File }));
            }
            Act::Link { .. } => {
                links.get_or_insert((step.slot, Token::Links));
            }
            Act::Patch(_) | Act::Attr { .. } => {}
        }
    }
    wanted.extend(links);
    tokens::make(os, &slots, &wanted, None)?;
    // Contents before the name that promises them.
    if !mutant::on(Mutant::RebuiltNotSynced) {
        // By a descriptor of its own: the one by which the recovery syncs at its end is told of an error, too.
        os.syncfs(&os.reopen(&area.dir, Open::Directory)?)?;
    }
    os.rename((&area.tx, temporary.as_bytes()), (&area.tx, name.as_bytes()), Rename::NoReplace)?;
    Ok(SlotDir { dir: Some(slots), lost })
}

fn make<O: Os>(os: &O, slots: &O::Fd, step: &Step, small: &Small) -> Result<()> {
    let name = slot_name(step.slot);
    let kind = FileType::from_mode(small.mode).ok_or(Errno::BADMSG)?;
    let made = match kind {
        // Open to its owner until it has its contents; then it gets its mode.
        FileType::File => os.create(slots, &name, small.mode & 0o7777 | 0o600).map(|_| ()),
        FileType::Directory => os.mkdir(slots, &name, small.mode & 0o7777),
        FileType::Symlink => os.symlink(slots, &name, &small.content),
        _ => os.mknod(slots, &name, small.mode, small.rdev),
    };
    match made {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(e) => return Err(e),
    }
    if kind == FileType::File {
        let fd = os.open(slots, &name, Open::ReadWrite)?;
        os.truncate(&fd, small.content.len() as u64)?;
        write_all(os, &fd, &small.content, 0)?;
    }
    let fd = os.open(slots, &name, Open::Path)?;
    os.chown(&fd, small.uid, small.gid)?;
    if kind != FileType::Symlink {
        os.chmod(&fd, small.mode & 0o7777)?;
    }
    for (xattr, value) in &small.xattrs {
        os.setxattr(&fd, xattr, value, SetXattr::Any)?;
    }
    os.utimens(&fd, None, Some(small.mtime))
}
