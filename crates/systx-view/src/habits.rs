//! Who looks at the files of the directories that it reads, and who wants their names only.
//!
//! A listing can carry what LOOKUP would say of each entry. For find(1) and `rm -r` that saves a request a file; but what
//! is told counts as read, and then a file's later change is a conflict for somebody who only listed its directory. So a
//! thread is told of files once it has looked at most of those that it was not told of.

use std::collections::HashMap;

/// Listings in a row with files told. Then one without: a thread whose files are told shows no interest in them.
const TRUSTED: u32 = 32;
/// Threads that are remembered. Beyond, all begin anew.
const THREADS_MAX: usize = 256;

#[derive(Debug, Default)]
struct Habit {
    /// Files that it was not told of, and lookups of such.
    hidden: u64,
    looked_up: u64,
    trusted: u32,
}

/// What is known of the threads that ask.
#[derive(Debug, Default)]
pub struct Habits(HashMap<u32, Habit>);

impl Habits {
    /// Whether to tell a thread, with the listing that it now reads, of the files in it.
    pub fn wants_files(&mut self, thread: u32) -> bool {
        let Some(habit) = self.0.get_mut(&thread) else { return false };
        if habit.hidden == 0 || habit.looked_up * 2 < habit.hidden {
            return false;
        }
        habit.trusted += 1;
        if habit.trusted > TRUSTED {
            *habit = Habit::default();
            return false;
        }
        true
    }

    /// Notes that a thread got the names of so many files, and no more of them.
    pub fn hidden(&mut self, thread: u32, files: u64) {
        if files == 0 {
            return;
        }
        if self.0.len() >= THREADS_MAX && !self.0.contains_key(&thread) {
            self.0.clear();
        }
        self.0.entry(thread).or_default().hidden += files;
    }

    /// Notes that a thread looked at an entry of a directory that was listed.
    pub fn looked_up(&mut self, thread: u32) {
        if let Some(habit) = self.0.get_mut(&thread) {
            habit.looked_up += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_reads_names_only_is_never_told_of_files() {
        let mut habits = Habits::default();
        for _ in 0..100 {
            assert!(!habits.wants_files(7));
            habits.hidden(7, 30);
            habits.looked_up(7);
        }
    }

    #[test]
    fn who_looks_at_most_files_is_told_of_the_next_ones() {
        let mut habits = Habits::default();
        habits.hidden(7, 30);
        (0..15).for_each(|_| habits.looked_up(7));
        assert!(habits.wants_files(7));
        assert!(!habits.wants_files(8), "another thread is another reader");
    }

    #[test]
    fn a_habit_is_looked_at_again_from_time_to_time() {
        let mut habits = Habits::default();
        habits.hidden(7, 1);
        habits.looked_up(7);
        assert_eq!((0..1000).take_while(|_| habits.wants_files(7)).count(), TRUSTED as usize);
        // It has turned to names only.
        habits.hidden(7, 30);
        assert!(!habits.wants_files(7));
    }

    #[test]
    fn many_threads_are_no_burden() {
        let mut habits = Habits::default();
        for thread in 1..10_000 {
            habits.hidden(thread, 1);
            assert!(habits.0.len() <= THREADS_MAX);
        }
    }
}
