//! Appends that came behind an outsider's last bytes (docs/protocol.md R3, "Appends"): their record says another place.
//!
//! Owns: the files `tx/<id>-<nonce>.<step>`. Guarantees: a durable commit that is over has one on the disk for each such
//! append, whose bytes are there before; no redo takes that step again, which would bring the bytes once more where the
//! outsider's are zeros. They go as marks do. Does not: help where the process was killed before.

use super::site::Site;
use crate::domain::marks::name_of_step;
use crate::mutant::{self, Mutant};
use crate::objects::identify;
use crate::record::{Act, Body, Step};
use systx_os::{Errno, Open, Os, Result};

/// Notes it for good. Its bytes have been synced.
pub(super) fn note<O: Os>(site: &Site<'_, O>, n: usize) -> Result<()> {
    let (Some(area), Some(body)) = (site.area, site.body) else { return Ok(()) };
    let tx = site.os.open(area, b"tx", Open::Directory)?;
    match site.os.create(&tx, &name_of_step(body, n), 0) {
        Ok(_) | Err(Errno::EXIST) => site.os.fsync(&tx),
        Err(error) => Err(error),
    }
}

/// Returns true if the owner has taken a step so.
pub(super) fn is_noted<O: Os>(site: &Site<'_, O>, body: &Body, n: usize, step: &Step) -> Result<bool> {
    let grows = |step: &Step| matches!(&step.act, Act::Patch(patch) if patch.size_after > patch.size_before);
    // Without durability there is no nonce, and nothing is redone.
    let may_be = !site.is_own && body.nonce != 0 && grows(step) && !mutant::on(Mutant::MovedForgotten);
    let Some(area) = site.area.filter(|_| may_be) else { return Ok(false) };
    let tx = site.os.open(area, b"tx", Open::Directory)?;
    Ok(identify(site.os, &tx, &name_of_step(body, n))?.is_some())
}
