//! The beginning of a transaction: its options, and what others have left behind.

use crate::args::{DurabilityArg, IsolationArg, Promise};
use crate::failure::{verb_failed, Result};
use crate::on_end::Notices;
use crate::words::{shown, Voice};
use std::ffi::OsString;
use std::sync::Arc;
use systx_engine::domain::Domain;
use systx_engine::outcome::{Durability, Isolation, Options};
use systx_engine::transaction::Transaction;
use systx_os::no_room::{self, Stage};
use systx_os::Linux;

/// Begins a transaction over these domains, and lets those who wait for its end find it.
pub fn begin(
    domains: &[Arc<Domain<Linux>>],
    options: Options,
    notices: &mut Notices,
) -> Result<Transaction<Linux>> {
    no_room::stage(Stage::Before);
    let begun = Transaction::begin(Linux::new(), domains.to_vec(), options);
    let tx = begun.map_err(|e| verb_failed("beginning", e))?;
    notices.began(domains, tx.ids());
    Ok(tx)
}

/// Returns what a transaction is begun with; others know it by its command.
pub fn options(promise: Promise, command: &[OsString]) -> Options {
    let durability = match promise.durability {
        DurabilityArg::Durable => Durability::Durable,
        DurabilityArg::None => Durability::None,
    };
    let isolation = match promise.isolation {
        IsolationArg::Serializable => Isolation::Serializable,
        IsolationArg::Committed => Isolation::Committed,
    };
    let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
    Options { durability, isolation, command: words.join(" "), ..Options::default() }
}

/// Finishes transactions of others that were cut off in mid-publication, also where this command does not come by.
pub fn finish_others(voice: Voice, domains: &[Arc<Domain<Linux>>]) {
    for domain in domains {
        if let Some(moved) = domain.area.moved.as_ref().filter(|_| !voice.json) {
            let moved = shown(&domain.shown(moved));
            eprintln!("systx: another user's object had the name of the area; it is {moved} now.");
        }
        let mut recovered = domain.recovered.clone();
        // A publication that can't be finished now is met again, and reported, by the transaction that needs
        // its objects.
        recovered.merge(domain.finish_in_flight().unwrap_or_default());
        if !recovered.is_empty() {
            let _ = domain.settle_images();
        }
        let count = recovered.conflict_copies.len();
        if count > 0 && !voice.json {
            eprintln!(
                "systx: finished an earlier transaction that was cut off; objects displaced: {count}. See `systx status`."
            );
        }
    }
}
