//! Shared words and owner bytes of simulated processes.
//!
//! Guarantees: words are the file's own contents (pread sees them), survive the death of every process, and are old,
//! new or noise after a power loss; an owner byte is held until its value is dropped or its process is dead.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::Arc;

use systx_os::Words;

use super::mapped::Mapped;
use super::plan::Call;
use super::process::{Entered, SimFd};
use super::{Inner, Machine, ProcId, SimOs};
use crate::machine::meta::Id;

/// Words in a page of 4 KiB.
const PAGE_WORDS: usize = 512;

/// A shared mapping of a file's first words.
pub struct SimMem {
    pub(super) os: SimOs,
    pub(super) id: Id,
    pub(super) len: usize,
    /// A mapping keeps its file open.
    pub(super) _file: SimFd,
}

/// A byte of an owners file.
pub struct SimOwned {
    pub(super) machine: Machine,
    pub(super) process: ProcId,
    pub(super) key: (Id, u64),
}

impl Drop for SimOwned {
    fn drop(&mut self) {
        let owned = &mut self.machine.lock().state.owned;
        if owned.get(&self.key) == Some(&self.process) {
            owned.remove(&self.key);
        }
    }
}

impl Inner {
    fn word(&self, id: Id, index: usize) -> Option<u64> {
        self.state.inodes.get(&id)?.mapped.as_ref()?.word(index)
    }

    fn mapped_mut(&mut self, id: Id) -> Option<&mut Mapped> {
        Arc::make_mut(self.state.inodes.get_mut(&id)?).mapped.as_mut()
    }
}

impl SimMem {
    /// Changes a word; `None` when the process is dead (then nothing happens) or the file is gone.
    fn at<R>(&self, call: Call, index: usize, change: impl FnOnce(&mut u64) -> R) -> Option<R> {
        assert!(index < self.len, "word {index} of a mapping of {}", self.len);
        let mut entered = self.point(call, index)?;
        entered.inner.mapped_mut(self.id)?.word_mut(index).map(change)
    }

    fn point(&self, call: Call, index: usize) -> Option<Entered<'_>> {
        self.os.enter_word(call, index).ok()
    }
}

impl Words for SimMem {
    fn len(&self) -> usize {
        self.len
    }

    fn load(&self, index: usize, _: Ordering) -> u64 {
        assert!(index < self.len, "word {index} of a mapping of {}", self.len);
        self.point(Call::Load, index).and_then(|entered| entered.inner.word(self.id, index)).unwrap_or(0)
    }

    fn store(&self, index: usize, value: u64, _: Ordering) {
        self.at(Call::Store, index, |w| *w = value);
    }

    /// One point for each page, not for each word: nobody reads a table that is being emptied.
    fn clear(&self, words: Range<usize>) {
        assert!(words.end <= self.len, "words {words:?} of a mapping of {}", self.len);
        for first in words.clone().step_by(PAGE_WORDS) {
            let part = first..words.end.min(first + PAGE_WORDS);
            let Some(mut entered) = self.point(Call::Store, first) else { return };
            entered.inner.mapped_mut(self.id).into_iter().for_each(|mapped| mapped.clear(part.clone()));
        }
    }

    fn compare_exchange(&self, index: usize, current: u64, new: u64) -> core::result::Result<u64, u64> {
        let exchange = |w: &mut u64| {
            let seen = *w;
            if seen == current {
                *w = new;
                Ok(seen)
            } else {
                Err(seen)
            }
        };
        // A dead process's loops must end: its exchange seems to succeed.
        self.at(Call::CompareExchange, index, exchange).unwrap_or(Ok(current))
    }

    fn fetch_or(&self, index: usize, bits: u64) -> u64 {
        self.at(Call::FetchOr, index, |w| std::mem::replace(w, *w | bits)).unwrap_or(0)
    }

    fn fetch_add(&self, index: usize, n: u64) -> u64 {
        self.at(Call::FetchAdd, index, |w| std::mem::replace(w, w.wrapping_add(n))).unwrap_or(0)
    }

    fn wait(&self, index: usize, seen: u64, timeout_ns: u64) {
        assert!(index < self.len, "word {index} of a mapping of {}", self.len);
        let Some(entered) = self.point(Call::Wait, index) else { return };
        let same = entered.inner.word(self.id, index).is_some_and(|w| w as u32 == seen as u32);
        if same {
            let inner = self.os.machine.block(entered.inner, Some((self.id, index)), timeout_ns);
            // Unwinds here if the process was killed meanwhile.
            drop(self.os.living(inner));
        }
    }

    fn wake(&self, index: usize) {
        assert!(index < self.len, "word {index} of a mapping of {}", self.len);
        if let Some(mut entered) = self.point(Call::Wake, index) {
            entered.inner.wake(self.id, index);
        }
    }
}
