//! Readahead: which threads look at the files of the directories that they read, and which want only names.
//!
//! A listing can carry what LOOKUP would say of each entry. For find(1) and `rm -r` that saves a request a
//! file; but attributes that were sent count as read, and then a file's later change is a conflict for a
//! program that only listed its directory. So a thread gets the files' attributes once it has looked at most
//! of those that it did not get.

use std::collections::HashMap;
use systx_engine::transaction::Node;

/// Listings in a row with attributes. Then one without: a thread that gets all attributes shows no interest
/// in them.
const TRUSTED: u32 = 32;
/// Threads that are remembered. Beyond, all begin anew.
const THREADS_MAX: usize = 256;

#[derive(Debug, Default)]
struct Reader {
    /// Files whose attributes it did not get, and lookups of such.
    hidden: u64,
    looked_up: u64,
    trusted: u32,
    reading: Option<Reading>,
}

/// A directory that a thread has not read to its end yet, and how many files of it were hidden.
///
/// Who begins it anew reads the same names again and looks at each file once: `rm -r` reads the first names
/// to see whether the directory is empty, and then all of them. Counted twice, they would hide what it does for
/// as long as there are files further up that it has not come to.
#[derive(Debug)]
struct Reading {
    dir: Node,
    hidden: u64,
}

/// What each of the asking threads does.
#[derive(Debug, Default)]
pub struct Readahead(HashMap<u32, Reader>);

impl Readahead {
    /// Returns true if a thread gets, with the part of a directory that it now reads, the attributes of the
    /// files in it.
    pub fn wants_files(&mut self, thread: u32, dir: Node, offset: u64) -> bool {
        let Some(reader) = self.0.get_mut(&thread) else { return false };
        reader.goes_on(dir, offset);
        if reader.hidden == 0 || reader.looked_up * 2 < reader.hidden {
            return false;
        }
        reader.trusted += 1;
        if reader.trusted > TRUSTED {
            *reader = Reader::default();
            return false;
        }
        true
    }

    /// Notes that a thread got the names of so many files of a directory, and no more of them.
    pub fn hidden(&mut self, thread: u32, dir: Node, files: u64) {
        if files == 0 {
            return;
        }
        if self.0.len() >= THREADS_MAX && !self.0.contains_key(&thread) {
            self.0.clear();
        }
        let reader = self.0.entry(thread).or_default();
        reader.hidden += files;
        // A thread that reads two at a time may go on with another than the one that it has begun last.
        reader.reading.take_if(|reading| reading.dir != dir);
        reader.reading.get_or_insert(Reading { dir, hidden: 0 }).hidden += files;
    }

    /// Notes that a thread has read a directory to its end.
    pub fn ended(&mut self, thread: u32) {
        if let Some(reader) = self.0.get_mut(&thread) {
            reader.reading = None;
        }
    }

    /// Notes that a thread looked at an entry of a directory that was listed.
    pub fn looked_up(&mut self, thread: u32) {
        if let Some(reader) = self.0.get_mut(&thread) {
            reader.looked_up += 1;
        }
    }
}

impl Reader {
    fn goes_on(&mut self, dir: Node, offset: u64) {
        let Some(reading) = self.reading.take_if(|reading| reading.dir != dir || offset == 0) else { return };
        if reading.dir == dir {
            self.hidden -= reading.hidden;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: Node = Node(3);
    const OTHER: Node = Node(4);

    #[test]
    fn who_reads_names_only_is_never_told_of_files() {
        let mut readahead = Readahead::default();
        for _ in 0..100 {
            assert!(!readahead.wants_files(7, OTHER, 0));
            readahead.hidden(7, DIR, 30);
            readahead.looked_up(7);
        }
    }

    #[test]
    fn who_looks_at_most_files_is_told_of_the_next_ones() {
        let mut readahead = Readahead::default();
        readahead.hidden(7, DIR, 30);
        (0..15).for_each(|_| readahead.looked_up(7));
        assert!(readahead.wants_files(7, OTHER, 0));
        assert!(!readahead.wants_files(8, OTHER, 0), "another thread is another reader");
    }

    #[test]
    fn names_of_a_directory_that_is_begun_anew_before_its_end_count_once() {
        let mut readahead = Readahead::default();
        for _ in 0..3 {
            assert!(!readahead.wants_files(7, DIR, 0));
            readahead.hidden(7, DIR, 20);
        }
        assert!(!readahead.wants_files(7, DIR, 22));
        readahead.hidden(7, DIR, 10);
        readahead.ended(7);
        (0..15).for_each(|_| readahead.looked_up(7));
        assert!(readahead.wants_files(7, OTHER, 0));
    }

    #[test]
    fn names_of_a_directory_that_is_read_again_count_again() {
        let mut readahead = Readahead::default();
        for _ in 0..3 {
            assert!(!readahead.wants_files(7, DIR, 0));
            readahead.hidden(7, DIR, 20);
            readahead.ended(7);
        }
        (0..15).for_each(|_| readahead.looked_up(7));
        assert!(!readahead.wants_files(7, OTHER, 0));
    }

    #[test]
    fn names_of_another_directory_are_none_of_the_one_that_is_begun_anew() {
        let mut readahead = Readahead::default();
        assert!(!readahead.wants_files(7, DIR, 0));
        readahead.hidden(7, DIR, 20);
        // The rest of what it has begun before, by READDIR.
        readahead.hidden(7, OTHER, 100);
        assert!(!readahead.wants_files(7, DIR, 0));
        readahead.hidden(7, DIR, 20);
        (0..15).for_each(|_| readahead.looked_up(7));
        assert!(!readahead.wants_files(7, OTHER, 0));
    }

    #[test]
    fn a_reader_is_looked_at_again_from_time_to_time() {
        let mut readahead = Readahead::default();
        readahead.hidden(7, DIR, 1);
        readahead.looked_up(7);
        assert_eq!((0..1000).take_while(|_| readahead.wants_files(7, OTHER, 0)).count(), TRUSTED as usize);
        // It has turned to names only.
        readahead.hidden(7, DIR, 30);
        assert!(!readahead.wants_files(7, OTHER, 0));
    }

    #[test]
    fn many_threads_are_no_burden() {
        let mut readahead = Readahead::default();
        for thread in 1..10_000 {
            readahead.hidden(thread, DIR, 1);
            assert!(readahead.0.len() <= THREADS_MAX);
        }
    }
}
