//! Each rule of the library is left out, and a case must notice.
//!
//! The case runs in a process of its own, this very program with `SYSTX_MUTANT` set: see `crates/systx/src/mutant.rs`.

use std::path::Path;
use std::process::Command;
use systx::Mutant;

/// The case that fails without a rule, and its message: the damage. `None`: a test beside the code does, as
/// `mutant::tests` of the library checks.
fn check_of(mutant: Mutant) -> Option<(&'static str, &'static str)> {
    const FORKS: &str = "a_forked_child_ends_nothing_of_its_parents";
    const ACTIONS: &str = "actions_run_once_behind_the_end";
    const PAUSE: &str = "a_paused_transaction_is_resumed_once_by_those_who_took_part";
    const RIGHTS: &str = "rights_are_the_calling_threads";
    match mutant {
        Mutant::ForkUnseen => Some((FORKS, "a child goes on with its parent's")),
        Mutant::ActionsInChild => Some((ACTIONS, "a child has run an action of its parent's")),
        Mutant::ActionsEarly => Some((ACTIONS, r#"left: ["commit 1", "commit 2"]"#)),
        Mutant::ActionsOfUndoneStay => {
            Some(("what_an_undone_part_has_read_stays_read", r#"right: ["abort undone"]"#))
        }
        Mutant::NumberEarly => Some((
            "a_number_is_counted_behind_its_commit",
            "the number of one that has lost is counted as committed",
        )),
        Mutant::NumberOfAnother => {
            Some(("a_number_is_counted_behind_its_commit", "4 has committed in the place of 3"))
        }
        Mutant::WatchesUnchecked => Some((
            "who_waits_for_a_change_does_not_sleep_past_one",
            "it sleeps although what it has read has changed",
        )),
        Mutant::StrangersResume => Some((PAUSE, "a stranger has resumed it")),
        Mutant::DesertedStay => Some((PAUSE, "it is still there behind its last thread")),
        Mutant::PausedGoesOn => Some((PAUSE, "a call on what is paused has been answered")),
        Mutant::DirectoryStands => {
            Some(("a_relative_path_begins_where_the_thread_stands_wherever_that_is_now", "it has moved"))
        }
        Mutant::JudgedAsRoot => Some((RIGHTS, "a user was given root's right")),
        Mutant::OtherUserUnseen => Some((RIGHTS, "a thread of another user's acts in root's")),
        Mutant::PredecessorLives
        | Mutant::BellUnrung
        | Mutant::BellLate
        | Mutant::SleeperUncounted
        | Mutant::PutUnlooked => None,
    }
}

pub fn each_is_missed(_: &Path) {
    for mutant in Mutant::ALL {
        let Some((case, says)) = check_of(*mutant) else { continue };
        let mut run = Command::new(std::env::current_exe().unwrap());
        let output = run.arg(case).env("SYSTX_MUTANT", format!("{mutant:?}")).output().unwrap();
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        let is_missed = said.contains(&format!("test {case} ... FAILED")) && said.contains(says);
        assert!(is_missed, "{mutant:?} survives {case}:\n{said}");
        println!("{mutant:?}: missed by {case}");
    }
}
