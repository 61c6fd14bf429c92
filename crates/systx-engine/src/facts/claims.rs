//! The read set of one domain, object by object, and which of it a commit may have changed.
//!
//! Guarantees: a question costs as much as the commit changed, not as much as was read, once much was read: a
//! transaction that walks 100,000 files asks it at every first read while others commit.

use super::Which;
use crate::id::{ObjectId, Signature};

/// Up to here looking at all of them is cheaper than an index.
const UNINDEXED_MAX: usize = 512;

/// Objects that were read, each with its fact.
#[derive(Default)]
pub(super) struct Claims {
    list: Vec<(ObjectId, Which)>,
    /// The last place in `list` with each first bit of an object; empty while there are few.
    last: Vec<u32>,
    /// Of each place the one before it with the same bit.
    before: Vec<u32>,
}

/// No place.
const NONE: u32 = u32::MAX;

impl Claims {
    pub fn push(&mut self, object: ObjectId, which: Which) {
        self.list.push((object, which));
        match self.list.len() {
            0..=UNINDEXED_MAX => {}
            n if self.last.is_empty() => {
                self.last = vec![NONE; 64 * Signature::WORDS];
                (0..n).for_each(|n| self.index(n));
            }
            n => self.index(n - 1),
        }
    }

    /// Of each place in turn.
    fn index(&mut self, n: usize) {
        let last = &mut self.last[Signature::first_bit(self.list[n].0)];
        self.before.push(*last);
        *last = n as u32;
    }

    pub fn iter(&self) -> impl Iterator<Item = ObjectId> + '_ {
        self.list.iter().map(|(object, _)| *object)
    }

    pub fn len(&self) -> usize {
        self.list.len()
    }

    pub fn get(&self, n: usize) -> (ObjectId, Which) {
        self.list[n]
    }

    /// Places of those that may be in `changed`.
    pub fn hits(&self, changed: &Signature, mut each: impl FnMut(usize)) {
        let mut ask = |n: usize| {
            if changed.may_contain(self.list[n].0) {
                each(n);
            }
        };
        if self.last.is_empty() {
            (0..self.list.len()).for_each(ask);
            return;
        }
        for bit in changed.ones() {
            let mut at = self.last[bit];
            while at != NONE {
                ask(at as usize);
                at = self.before[at as usize];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_finds_what_a_look_at_all_finds() {
        let mut rng = fastrand::Rng::with_seed(5);
        let mut claims = Claims::default();
        for n in 0..3000 {
            claims.push(ObjectId(rng.u64(..)), Which::Seen(n));
            if n % 100 != 0 {
                continue;
            }
            let mut changed: Signature = (0..rng.usize(0..40)).map(|_| ObjectId(rng.u64(..))).collect();
            changed.insert(claims.get(rng.usize(0..claims.len())).0);
            let mut found = Vec::new();
            claims.hits(&changed, |n| found.push(n));
            found.sort_unstable();
            let all = claims.iter().enumerate().filter(|(_, o)| changed.may_contain(*o));
            assert_eq!(found, all.map(|(n, _)| n).collect::<Vec<_>>());
        }
    }
}
