//! The domains of one process, known to each other: parties of commits over several of them.
//!
//! Owns: who is open and whose area is at hand, by key. Guarantees: an area is known before any domain recovers, so that each
//! recovery finds the others' logs. Does not: keep a domain open.

use super::Domain;
use crate::id::AreaId;
use crate::log::{LogError, Replay};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use systx_os::Os;

/// The other domains, by [`Domain::key`]: parties of commits over several of them.
pub struct Peers<O: Os>(Arc<Mutex<Known<O>>>);

struct Known<O: Os> {
    domains: HashMap<[u8; 16], Weak<Domain<O>>>,
    areas: HashMap<[u8; 16], PeerArea<O>>,
}

/// A domain's area, as others see it.
pub(crate) struct PeerArea<O: Os> {
    dir: Arc<O::Fd>,
    id: AreaId,
}

impl<O: Os> PeerArea<O> {
    pub fn new(dir: O::Fd, id: AreaId) -> Self {
        PeerArea { dir: Arc::new(dir), id }
    }

    /// What its log says.
    pub fn replay(&self, os: &O) -> core::result::Result<Replay, LogError> {
        crate::log::outline(os, &self.dir, self.id).map(|outline| outline.replay)
    }
}

impl<O: Os> Clone for PeerArea<O> {
    fn clone(&self) -> Self {
        PeerArea { dir: self.dir.clone(), id: self.id }
    }
}

impl<O: Os> Clone for Peers<O> {
    fn clone(&self) -> Self {
        Peers(self.0.clone())
    }
}

impl<O: Os> Default for Peers<O> {
    fn default() -> Self {
        Peers(Arc::new(Mutex::new(Known { domains: HashMap::new(), areas: HashMap::new() })))
    }
}

impl<O: Os> Peers<O> {
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
        self.known().areas.get(key).cloned()
    }
}
