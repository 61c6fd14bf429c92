//! Rules of the library that can be left out, to see a test notice.
//!
//! Owns: the list of mutants and the question at each switch point. Guarantees: outside of tests the answer is a constant
//! `false`, so that what is shipped has no branch. Tests are this crate's own, and those of systx-cli, for which the
//! feature `mutants` is. Does not: switch anything at run time: the environment variable `SYSTX_MUTANT` holds for a whole
//! test process. `check_of` in systx-cli's `tests/library/mutants.rs` names the test that fails under each.

macro_rules! mutants {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A rule that is left out.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Mutant {
            $($(#[$doc])* $name,)*
        }

        #[cfg(any(test, feature = "mutants"))]
        impl Mutant {
            /// Every rule that can be left out.
            pub const ALL: &'static [Mutant] = &[$(Mutant::$name,)*];
        }
    };
}

mutants! {
    /// A forked child goes on with its parent's transactions.
    ForkUnseen,
    /// A forked child that drops its copy of a transaction runs the actions.
    ActionsInChild,
    /// Actions of a commit run before its outcome is known.
    ActionsEarly,
    /// Actions that were given in a part stay when the part is undone.
    ActionsOfUndoneStay,
    /// The counter moves on before the commit.
    NumberEarly,
    /// A further try keeps its place in the sequence for whatever its thread begins.
    NumberOfAnother,
    /// A process takes over an index in the sequence with what its last process had.
    PredecessorLives,
    /// A change of the sequence wakes none of those that wait.
    BellUnrung,
    /// The bell is asked after the look that is to be repeated.
    BellLate,
    /// A sleeper does not say so before its look.
    SleeperUncounted,
    /// Before it sleeps until a change, a transaction does not look whether there was one.
    WatchesUnchecked,
    /// Threads that have not taken part resume a transaction.
    StrangersResume,
    /// What is paused stays when its last thread has ended.
    DesertedStay,
    /// What is paused just when its last thread ends stays.
    PutUnlooked,
    /// Calls on a paused transaction go on.
    PausedGoesOn,
    /// Each call is judged as if the thread were root.
    JudgedAsRoot,
    /// A working directory is taken to be where it was.
    DirectoryStands,
    /// A thread that acts for another user is not refused.
    OtherUserUnseen,
}

/// Returns true if a rule is left out.
#[cfg(not(any(test, feature = "mutants")))]
pub(crate) const fn on(_mutant: Mutant) -> bool {
    false
}

/// Returns true if a rule is left out in this test process.
#[cfg(any(test, feature = "mutants"))]
pub(crate) fn on(mutant: Mutant) -> bool {
    static LEFT_OUT: std::sync::OnceLock<Option<Mutant>> = std::sync::OnceLock::new();
    let chosen = || {
        let name = std::env::var("SYSTX_MUTANT").ok()?;
        let named = Mutant::ALL.iter().copied().find(|mutant| format!("{mutant:?}") == name);
        // Of another crate.
        named
    };
    *LEFT_OUT.get_or_init(chosen) == Some(mutant)
}

#[cfg(test)]
mod tests {
    use super::Mutant;
    use std::process::Command;

    const DESERTED: &str = "paused::tests::what_has_lost_its_last_thread_is_dropped_in_every_schedule";

    /// Mutants that a test of this crate kills, the test, and what it reports. The others are killed by systx-cli's.
    const KILLED: [(Mutant, &str, &str); 6] = [
        (
            Mutant::PredecessorLives,
            "order::table::tests::a_number_is_one_transactions_until_it_leaves_or_dies",
            "right: Gone(0)",
        ),
        (Mutant::BellUnrung, "order::schedules::turns_come_in_every_schedule", "deadlock"),
        (Mutant::BellLate, "order::schedules::turns_come_in_every_schedule", "deadlock"),
        (Mutant::SleeperUncounted, "order::schedules::turns_come_in_every_schedule", "deadlock"),
        (Mutant::PutUnlooked, DESERTED, "it stays behind its last thread"),
        (Mutant::DesertedStay, DESERTED, "it stays behind its last thread"),
    ];

    #[test]
    fn each_of_these_rules_is_missed_by_a_test() {
        for (mutant, test, says) in KILLED {
            let mut run = Command::new(std::env::current_exe().unwrap());
            let run = run.args([test, "--exact", "--nocapture"]).env("SYSTX_MUTANT", format!("{mutant:?}"));
            let output = run.output().unwrap();
            let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
            assert!(!output.status.success() && said.contains(says), "{mutant:?} survives {test}:\n{said}");
        }
    }
}
