//! A planted anomaly of every class is found and explained; what looks like one but is none is not reported.

use systx_sim::history::text::parse;
use systx_sim::history::{check, check_with, Anomaly, Class, Reads};

fn of(text: &str) -> Vec<Anomaly> {
    check(&parse(text).expect("a well-formed history"))
}

/// Asserts that exactly `class` is found, and that the explanation names each of `names`.
fn finds(class: Class, names: &[&str], text: &str) {
    let found = of(text);
    let classes: Vec<Class> = found.iter().map(|a| a.class).collect();
    assert_eq!(classes, [class], "{found:#?}");
    for name in names {
        assert!(found[0].explanation.contains(name), "{name} is missing in: {}", found[0]);
    }
}

#[test]
fn a_serial_history_is_clean() {
    let text = "t 1 1 0 1 committed | r x | a x 1 | r x 1\nt 2 1 2 3 committed | r x 1 | a y 7\nfinal x 1\nfinal y 7\n";
    assert_eq!(of(text), []);
}

#[test]
fn a_duplicate_append_is_found() {
    finds(
        Class::DuplicateAppend,
        &["T1.1", "T2.1", "x"],
        "t 1 1 0 9 committed | a x 1\nt 2 1 0 9 committed | a x 1\nfinal x 1\n",
    );
}

#[test]
fn an_append_that_took_effect_twice_is_found() {
    finds(Class::DuplicateAppend, &["1", "x"], "t 1 1 0 9 committed | a x 1\nfinal x 1 1\n");
}

#[test]
fn a_value_out_of_nowhere_is_found() {
    finds(Class::Unborn, &["3", "x"], "t 1 1 0 9 committed | r x 3\n");
}

#[test]
fn a_transaction_that_misses_its_own_append_is_found() {
    finds(Class::Internal, &["T1.1", "x"], "t 1 1 0 9 committed | a x 1 | r x\nfinal x 1\n");
}

#[test]
fn a_read_that_does_not_repeat_is_found() {
    finds(
        Class::Internal,
        &["T1.1", "x"],
        "t 1 1 0 9 committed | r x | r x 1\nt 2 1 0 9 committed | a x 1\nfinal x 1\n",
    );
}

#[test]
fn reads_in_incompatible_orders_are_found() {
    let text = "t 1 1 0 9 committed | a x 1\nt 2 1 0 9 committed | a x 2\n\
                t 3 1 0 9 committed | r x 1 2\nt 4 1 0 9 committed | r x 2\nfinal x 1 2\n";
    finds(Class::IncompatibleOrder, &["T4.1", "T3.1", "x"], text);
}

#[test]
fn a_lost_append_is_found() {
    finds(Class::LostAppend, &["T1.1", "1", "x"], "t 1 1 0 9 committed | a x 1\nfinal x\n");
}

#[test]
fn an_append_that_was_seen_and_then_lost_is_found() {
    let found = of("t 1 1 0 9 committed | a x 1\nt 2 1 0 9 committed | r x 1\nfinal x\n");
    assert_eq!(found.iter().map(|a| a.class).collect::<Vec<_>>(), [Class::LostAppend], "{found:#?}");
}

#[test]
fn half_of_a_killed_transaction_is_found() {
    finds(Class::Torn, &["T1.1", "x", "y"], "t 1 1 0 - unknown | a x 1 | a y 2\nfinal x 1\nfinal y\n");
}

#[test]
fn a_killed_transaction_may_be_there_or_not() {
    assert_eq!(of("t 1 1 0 - unknown | a x 1 | a y 2\nfinal x 1\nfinal y 2\n"), []);
    assert_eq!(of("t 1 1 0 - unknown | a x 1 | a y 2\nfinal x\nfinal y\n"), []);
}

#[test]
fn an_aborted_read_is_found() {
    finds(Class::G1a, &["T1.1", "T2.1", "x"], "t 1 1 0 9 aborted | a x 1\nt 2 1 0 9 committed | r x 1\n");
}

#[test]
fn an_aborted_append_in_the_final_state_is_found() {
    finds(Class::G1a, &["T1.1", "the final state"], "t 1 1 0 9 aborted | a x 1\nfinal x 1\n");
}

#[test]
fn an_intermediate_read_is_found() {
    let found = of("t 1 1 0 9 committed | a x 1 | a x 2\nt 2 1 0 9 committed | r x 1\nfinal x 1 2\n");
    let g1b = found.iter().find(|a| a.class == Class::G1b).expect("an intermediate read");
    assert!(g1b.explanation.contains("T1.1") && g1b.explanation.contains("T2.1"), "{g1b}");
}

#[test]
fn a_cycle_of_overwritings_is_g0() {
    finds(
        Class::G0,
        &["T1.1 < T2.1", "T2.1 < T1.1"],
        "t 1 1 0 9 committed | a x 1 | a y 1\nt 2 1 0 9 committed | a x 2 | a y 2\nfinal x 1 2\nfinal y 2 1\n",
    );
}

#[test]
fn circular_information_flow_is_g1c() {
    finds(
        Class::G1c,
        &["T1.1 < T2.1", "T2.1 < T1.1"],
        "t 1 1 0 9 committed | a x 1 | r y 2\nt 2 1 0 9 committed | a y 2 | r x 1\nfinal x 1\nfinal y 2\n",
    );
}

#[test]
fn a_lost_update_is_g_single() {
    finds(
        Class::GSingle,
        &["T1.1", "T2.1", "x"],
        "t 1 1 0 9 committed | r x | a x 1\nt 2 1 0 9 committed | r x | a x 2\nfinal x 1 2\n",
    );
}

#[test]
fn half_of_a_commit_that_is_seen_is_g_single() {
    let text =
        "t 1 1 0 9 committed | a x 1 | a y 1\nt 2 1 0 9 committed | r x 1 | r y\nfinal x 1\nfinal y 1\n";
    finds(Class::GSingle, &["T1.1 < T2.1", "T2.1 < T1.1"], text);
}

#[test]
fn write_skew_is_g2() {
    finds(
        Class::G2,
        &["T1.1 < T2.1", "T2.1 < T1.1"],
        "t 1 1 0 9 committed | r x | a y 1\nt 2 1 0 9 committed | r y | a x 2\nfinal x 2\nfinal y 1\n",
    );
}

#[test]
fn a_long_fork_is_g2() {
    let text =
        "t 1 1 0 9 committed | a x 1\nt 2 1 0 9 committed | a y 2\nt 3 1 0 9 committed | r x 1 | r y\n\
                t 4 1 0 9 committed | r x | r y 2\nfinal x 1\nfinal y 2\n";
    finds(Class::G2, &["T3.1", "T4.1"], text);
}

#[test]
fn overwriting_against_real_time_is_g0_realtime() {
    finds(
        Class::G0Realtime,
        &["T1.1 returned at 1", "T2.1 began at 5"],
        "t 1 1 0 1 committed | a x 1\nt 2 1 5 6 committed | a x 2\nfinal x 2 1\n",
    );
}

#[test]
fn a_read_from_the_future_is_g1c_realtime() {
    finds(
        Class::G1cRealtime,
        &["T1.1 returned at 1", "T2.1 < T1.1"],
        "t 1 1 0 1 committed | r x 2\nt 2 1 5 6 committed | a x 2\nfinal x 2\n",
    );
}

#[test]
fn a_stale_read_is_g_single_realtime() {
    finds(
        Class::GSingleRealtime,
        &["T1.1 returned at 1", "T2.1 read x without T1.1's 1"],
        "t 1 1 0 1 committed | a x 1\nt 2 1 5 6 committed | r x\nfinal x 1\n",
    );
}

#[test]
fn two_stale_reads_that_only_time_forbids_are_g2_realtime() {
    let text = "t 1 1 0 1 committed | r x | a y 1\nt 2 1 5 6 committed | r z | a x 2\nt 3 1 0 9 committed | r y | a z 3\n\
                final x 2\nfinal y 1\nfinal z 3\n";
    // T1 < T2 by x, T2 < T3 by z, T3 < T1 by y: without time this is G2 already.
    finds(Class::G2, &["T3.1 < T1.1"], text);
    // Without T1's read of x only the time line closes the cycle.
    finds(Class::G2Realtime, &["T1.1 returned at 1", "T3.1 < T1.1"], &text.replace("| r x |", "|"));
}

#[test]
fn overlapping_transactions_may_be_ordered_either_way() {
    assert_eq!(of("t 1 1 0 5 committed | a x 1\nt 2 1 5 6 committed | r x\nfinal x 1\n"), []);
}

#[test]
fn an_unknown_outcome_may_take_effect_after_its_end_was_reported() {
    assert_eq!(of("t 1 1 0 1 unknown | a x 1\nt 2 1 5 6 committed | r x\nfinal x 1\n"), []);
}

#[test]
fn what_an_aborted_transaction_was_shown_counts_for_opacity_only() {
    let text = "t 1 1 0 9 committed | a x 1 | a y 1\nt 2 1 0 9 aborted | r x 1 | r y\nfinal x 1\nfinal y 1\n";
    let history = parse(text).expect("a well-formed history");
    assert_eq!(check_with(&history, Reads::OfCommitted), []);
    let found = check_with(&history, Reads::OfAll);
    assert_eq!(found.iter().map(|a| a.class).collect::<Vec<_>>(), [Class::GSingle], "{found:#?}");
}
