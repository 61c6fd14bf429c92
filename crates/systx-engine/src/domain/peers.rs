//! The domains of one process, known to each other: parties of commits over several of them.
//!
//! Owns: who is open and whose area is at hand, by key. Guarantees: an area is known before any domain recovers, so that each
//! recovery finds the others' logs. Does not: keep a domain open.

use super::decisions::{self, Kept};
use super::{Domain, Owners, SlotState, Table};
use crate::id::{AreaId, TxId};
use crate::log::{LogError, Outline};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use systx_os::{Os, Result};

/// The other domains, by [`Domain::key`]: parties of commits over several of them.
pub struct Peers<O: Os>(Arc<Mutex<Known<O>>>);

struct Known<O: Os> {
    /// Identities that two areas within reach have: neither answers for them.
    doubted: Vec<[u8; 16]>,
    domains: HashMap<[u8; 16], Weak<Domain<O>>>,
    areas: HashMap<[u8; 16], PeerArea<O>>,
}

/// A domain's area, as others see it.
pub(crate) struct PeerArea<O: Os> {
    dir: Arc<O::Fd>,
    id: AreaId,
    life: u64,
}

impl<O: Os> PeerArea<O> {
    pub fn new(dir: O::Fd, id: AreaId, life: u64) -> Self {
        PeerArea { dir: Arc::new(dir), id, life }
    }

    /// What its log says.
    pub fn outline(&self, os: &O) -> core::result::Result<Outline<O>, LogError> {
        crate::log::outline(os, &self.dir, self.id)
    }

    /// Whether a transaction is in flight there before its commit point: then its log has not the last word. What can't be looked
    /// at may be.
    pub fn is_undecided(&self, os: &O, tx: TxId) -> bool {
        let table = Owners::open_in(os, &self.dir)
            .ok()
            .and_then(|owners| Table::of_this_life(os, &self.dir, &owners, self.life).ok());
        let Some(table) = table else { return true };
        let before = |state| matches!(state, SlotState::Validated | SlotState::Aborting);
        table.is_some_and(|table| {
            table.slots().in_flight().any(|s| s.is_ok_and(|s| s.info.tx == tx && before(s.seen.state())))
        })
    }

    /// What is kept beside its log.
    pub fn decisions(&self, os: &O) -> Result<Vec<Kept>> {
        decisions::all(os, &self.dir)
    }
}

impl<O: Os> Clone for PeerArea<O> {
    fn clone(&self) -> Self {
        PeerArea { dir: self.dir.clone(), id: self.id, life: self.life }
    }
}

impl<O: Os> Clone for Peers<O> {
    fn clone(&self) -> Self {
        Peers(self.0.clone())
    }
}

impl<O: Os> Default for Peers<O> {
    fn default() -> Self {
        Peers(Arc::new(Mutex::new(Known {
            doubted: Vec::new(),
            domains: HashMap::new(),
            areas: HashMap::new(),
        })))
    }
}

impl<O: Os> Peers<O> {
    /// As `default`, where these identities are known to be doubtful.
    pub(super) fn doubting(doubted: &[[u8; 16]]) -> Peers<O> {
        let peers = Peers::default();
        peers.known().doubted = doubted.to_vec();
        peers
    }
    pub(super) fn add_area(&self, key: [u8; 16], area: PeerArea<O>) {
        self.known().areas.insert(key, area);
    }
    pub(super) fn add(&self, domain: &Arc<Domain<O>>) {
        self.known().domains.insert(domain.key, Arc::downgrade(domain));
    }
    fn known(&self) -> std::sync::MutexGuard<'_, Known<O>> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
    /// The domain of that key, if it is open in this process.
    pub fn get(&self, key: &[u8; 16]) -> Option<Arc<Domain<O>>> {
        self.known().domains.get(key).and_then(Weak::upgrade)
    }
    /// The area of that key, if it is at hand.
    pub(crate) fn area(&self, key: &[u8; 16]) -> Option<PeerArea<O>> {
        let known = self.known();
        known.areas.get(key).filter(|_| !known.doubted.contains(key)).cloned()
    }
}
