//! A run inside of another transaction: the options that it can't have, and the meaning of the others.

use crate::args::{DurabilityArg, Run};
use crate::failure::{Failure, Result};
use crate::session::kept;
use crate::sub::{Around, DEPTH_MAX};
use crate::{network, undo};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Returns the options of a run inside of a transaction as they are meant there.
pub fn options(around: &Around, args: &Run) -> Result<Run> {
    if let Some(why) = is_the_outermost_ones(args) {
        return Err(why.into());
    }
    let leave_it = "leave --sub out, and it joins the one around it; or run that one with --no-native";
    match around.depth() {
        None => {
            return Err(Failure::from(
                "a transaction of isolation `committed` has no subtransactions, nor has one while a program in it uses a directory that it has made",
            )
            .hint(leave_it))
        }
        Some(DEPTH_MAX..) => {
            let why = format!("this would be more than {DEPTH_MAX} transactions in one another");
            return Err(Failure::from(why).hint(leave_it));
        }
        Some(_) => {}
    }
    systx_os::linux::prove_nothing();
    let mut run = args.clone();
    // The outer transaction decides about durability, and a sync does nothing inside it. But only a log joins
    // several file systems.
    run.promise.durability = DurabilityArg::Durable;
    run.area.is_in_view = true;
    if run.only.is_empty() && !around.points().iter().any(|point| point == b"/") {
        run.only = around.points().iter().map(|point| PathBuf::from(OsStr::from_bytes(point))).collect();
    }
    Ok(run)
}

/// Why the options are none of a run inside of a transaction, joined or not: they are of the outermost one alone.
pub fn is_the_outermost_ones(args: &Run) -> Option<&'static str> {
    if kept::Keep::of(args).is_some() {
        return Some(kept::PART_OF_ANOTHER);
    }
    if args.network.policy().is_some() {
        return Some(network::PART_OF_ANOTHER);
    }
    args.undoable.undoable.then_some(undo::PART_OF_ANOTHER)
}
