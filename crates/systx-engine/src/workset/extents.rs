//! Which ranges of a large file a transaction changed.
//!
//! Owns: [`Extents`], an ordered map of disjoint, non-adjacent ranges, each bytes of ours or a hole. Whatever
//! lies in none is the committed file's. Does not: know the file's size; ranges past it are cut by who reads.

use std::collections::BTreeMap;
use std::ops::Range;

/// The content of a changed range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Bytes in the private file, at the same offset.
    Data,
    /// Zeros.
    Hole,
}

/// The changed ranges of a file, in bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extents(BTreeMap<u64, (u64, Extent)>);

impl Extents {
    /// Makes `range` one of `kind`, whatever it was.
    pub fn insert(&mut self, range: Range<u64>, kind: Extent) {
        if range.is_empty() {
            return;
        }
        self.remove(range.clone());
        let (mut start, mut end) = (range.start, range.end);
        if let Some((&s, &(e, k))) = self.0.range(..start).next_back() {
            if e == start && k == kind {
                self.0.remove(&s);
                start = s;
            }
        }
        if let Some(&(e, k)) = self.0.get(&end) {
            if k == kind {
                self.0.remove(&end);
                end = e;
            }
        }
        self.0.insert(start, (end, kind));
    }

    /// Makes `range` the committed file's again.
    pub fn remove(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let before = self.0.range(..range.start).next_back().map(|(s, v)| (*s, *v));
        if let Some((s, (e, k))) = before {
            if e > range.start {
                self.0.insert(s, (range.start, k));
                if e > range.end {
                    self.0.insert(range.end, (e, k));
                }
            }
        }
        let inside: Vec<u64> = self.0.range(range.start..range.end).map(|(s, _)| *s).collect();
        for s in inside {
            if let Some((e, k)) = self.0.remove(&s) {
                if e > range.end {
                    self.0.insert(range.end, (e, k));
                }
            }
        }
    }

    /// The pieces of `range` in order, without gaps: `None` is the committed file's.
    pub fn pieces(&self, range: Range<u64>) -> Vec<(Range<u64>, Option<Extent>)> {
        let mut out = Vec::new();
        let mut at = range.start;
        let first = self.0.range(..=range.start).next_back().map(|(s, _)| *s).unwrap_or(range.start);
        for (&s, &(e, k)) in self.0.range(first..range.end.max(first)) {
            let (s, e) = (s.max(range.start), e.min(range.end));
            if s >= e {
                continue;
            }
            if s > at {
                out.push((at..s, None));
            }
            out.push((s..e, Some(k)));
            at = e;
        }
        if at < range.end {
            out.push((at..range.end, None));
        }
        out
    }

    /// All changed ranges in order.
    pub fn iter(&self) -> impl Iterator<Item = (Range<u64>, Extent)> + '_ {
        self.0.iter().map(|(s, (e, k))| (*s..*e, *k))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_agree_with_an_array_of_bytes() {
        let mut rng = fastrand::Rng::with_seed(7);
        for _ in 0..300 {
            let mut map = Extents::default();
            let mut model = [None; 64];
            for _ in 0..40 {
                let a = rng.u64(0..64);
                let b = rng.u64(a..=64);
                let what = [None, Some(Extent::Data), Some(Extent::Hole)][rng.usize(0..3)];
                match what {
                    None => map.remove(a..b),
                    Some(kind) => map.insert(a..b, kind),
                }
                model[a as usize..b as usize].fill(what);
                let a = rng.u64(0..64);
                let b = rng.u64(a..=64);
                let mut seen = Vec::new();
                for (range, kind) in map.pieces(a..b) {
                    assert_eq!(range.start, a + seen.len() as u64);
                    seen.extend(range.map(|_| kind));
                }
                assert_eq!(seen, model[a as usize..b as usize]);
                let ranges: Vec<_> = map.iter().collect();
                for pair in ranges.windows(2) {
                    let apart = pair[0].0.end < pair[1].0.start;
                    assert!(apart || (pair[0].0.end == pair[1].0.start && pair[0].1 != pair[1].1));
                }
            }
        }
    }
}
