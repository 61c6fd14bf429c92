//! A map from numbers of sectors that costs little to copy, since a machine is copied for each case of a test.
//!
//! Guarantees: order by number; neighbours are kept together, and shared between copies until one of them changes.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Numbers that are kept together.
pub(super) const SPAN: u64 = 64;

/// Values by number.
#[derive(Clone, Debug)]
pub(super) struct Sparse<T> {
    /// In order, none of them empty.
    spans: BTreeMap<u64, Arc<Vec<(u64, T)>>>,
}

impl<T> Default for Sparse<T> {
    fn default() -> Sparse<T> {
        Sparse { spans: BTreeMap::new() }
    }
}

impl<T: Clone> Sparse<T> {
    pub(super) fn get(&self, n: u64) -> Option<&T> {
        let span = self.spans.get(&(n / SPAN))?;
        place(span, n).ok().map(|at| &span[at].1)
    }

    pub(super) fn get_mut(&mut self, n: u64) -> Option<&mut T> {
        let span = self.spans.get_mut(&(n / SPAN))?;
        let at = place(span, n).ok()?;
        Some(&mut Arc::make_mut(span)[at].1)
    }

    pub(super) fn insert(&mut self, n: u64, value: T) {
        let span = Arc::make_mut(self.spans.entry(n / SPAN).or_default());
        match place(span, n) {
            Ok(at) => span[at].1 = value,
            Err(at) => span.insert(at, (n, value)),
        }
    }

    /// Gives values to all numbers of an empty span, the first of which is `n`.
    pub(super) fn fill(&mut self, n: u64, values: impl Iterator<Item = T>) {
        let span: Vec<_> = (n..).zip(values).collect();
        assert!(
            n % SPAN == 0 && span.len() as u64 == SPAN && self.has_none(n),
            "a whole span that was empty"
        );
        self.spans.insert(n / SPAN, Arc::new(span));
    }

    /// Returns true if no number of the span of `n` has a value.
    pub(super) fn has_none(&self, n: u64) -> bool {
        !self.spans.contains_key(&(n / SPAN))
    }

    pub(super) fn remove(&mut self, n: u64) {
        let Some(span) = self.spans.get_mut(&(n / SPAN)) else { return };
        let Ok(at) = place(span, n) else { return };
        if span.len() == 1 {
            self.spans.remove(&(n / SPAN));
        } else {
            Arc::make_mut(span).remove(at);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.spans.values().flat_map(|span| span.iter()).map(|(n, value)| (*n, value))
    }

    pub(super) fn range(&self, range: Range<u64>) -> impl Iterator<Item = (u64, &T)> {
        let spans = range.start / SPAN..range.end.div_ceil(SPAN).max(range.start / SPAN);
        let inside = move |n: &u64| range.contains(n);
        let all = self.spans.range(spans).flat_map(|(_, span)| span.iter());
        all.filter(move |(n, _)| inside(n)).map(|(n, value)| (*n, value))
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.spans.values_mut().flat_map(|span| Arc::make_mut(span).iter_mut()).map(|(_, value)| value)
    }

    pub(super) fn retain(&mut self, mut keep: impl FnMut(u64, &mut T) -> bool) {
        self.spans.retain(|_, span| {
            let span = Arc::make_mut(span);
            span.retain_mut(|(n, value)| keep(*n, value));
            !span.is_empty()
        });
    }

    /// Removes everything from `end` on.
    pub(super) fn truncate(&mut self, end: u64) {
        self.spans.split_off(&end.div_ceil(SPAN));
        let Some(span) = self.spans.get_mut(&(end / SPAN)) else { return };
        let keep = place(span, end).unwrap_or_else(|at| at);
        if keep == 0 {
            self.spans.remove(&(end / SPAN));
        } else if keep < span.len() {
            Arc::make_mut(span).truncate(keep);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.spans.clear();
    }
}

impl<T: Clone + Default> Sparse<T> {
    /// The value of `n`, made if it isn't there.
    pub(super) fn made(&mut self, n: u64) -> &mut T {
        let span = Arc::make_mut(self.spans.entry(n / SPAN).or_default());
        let at = place(span, n).unwrap_or_else(|at| {
            span.insert(at, (n, T::default()));
            at
        });
        &mut span[at].1
    }
}

/// Where `n` stands, or would.
fn place<T>(span: &[(u64, T)], n: u64) -> Result<usize, usize> {
    span.binary_search_by_key(&n, |(n, _)| *n)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random calls leave the same as those of an ordered map, and a copy stays as it was.
    #[test]
    fn it_is_an_ordered_map_and_its_copies_stay() {
        for seed in 0..200 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let (mut sparse, mut map) = (Sparse::default(), BTreeMap::new());
            let mut copies = Vec::new();
            for value in 0..100u64 {
                let n = rng.u64(0..300);
                match rng.u8(0..16) {
                    0..6 => {
                        sparse.insert(n, value);
                        map.insert(n, value);
                    }
                    6..10 => {
                        sparse.remove(n);
                        map.remove(&n);
                    }
                    10 => {
                        *sparse.made(n) += 1;
                        *map.entry(n).or_default() += 1;
                    }
                    11 => {
                        sparse.get_mut(n).into_iter().for_each(|v| *v += 1);
                        map.get_mut(&n).into_iter().for_each(|v| *v += 1);
                    }
                    12 => {
                        sparse.values_mut().for_each(|v| *v += 2);
                        map.values_mut().for_each(|v| *v += 2);
                    }
                    13 => {
                        sparse.retain(|n, v| (n + *v) % 9 != 0);
                        map.retain(|n, v| (n + *v) % 9 != 0);
                    }
                    14 => {
                        sparse.truncate(n);
                        map.retain(|at, _| *at < n);
                    }
                    _ => {}
                }
                copies.push((sparse.clone(), map.clone()));
            }
            for (sparse, map) in copies {
                let to = rng.u64(0..300);
                let from = rng.u64(0..=to);
                let all = |map: &BTreeMap<u64, u64>| map.iter().map(|(n, v)| (*n, *v)).collect::<Vec<_>>();
                assert_eq!(sparse.iter().map(|(n, v)| (n, *v)).collect::<Vec<_>>(), all(&map), "{seed}");
                let range: Vec<_> = map.range(from..to).map(|(n, v)| (*n, *v)).collect();
                assert_eq!(sparse.range(from..to).map(|(n, v)| (n, *v)).collect::<Vec<_>>(), range, "{seed}");
                assert_eq!((sparse.get(to), sparse.is_empty()), (map.get(&to), map.is_empty()), "{seed}");
            }
        }
    }
}
