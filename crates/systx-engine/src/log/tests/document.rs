//! Contents of `docs/log-format.md` besides its tables: numbers in sentences, and rules, each with the test
//! that checks it.

use super::super::segment;
use super::*;
use super::{appending, dropping, garbled, sharing};
use crate::log::format::{self, Header};

const TEXT: &str = include_str!("../../../../../docs/log-format.md");

/// The text with every run of white space as one space, so that its lines may be broken anywhere.
fn flowing(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn said(sentence: &str) {
    assert!(flowing(TEXT).contains(sentence), "the document does not say: {sentence}");
}

#[test]
fn the_document_has_the_sizes_of_the_code() {
    let [first, second, others] = [0, 1, 2].map(|nth| segment::geometry(nth, 0));
    assert_eq!(segment::geometry(1000, 0), others);
    let mib = |bytes: u64| bytes >> 20;
    said(&format!(
        "The first segment after a recovery has {} MiB and {} cells, the second {} MiB and {}, all others {} MiB and {};",
        mib(first.0), first.1, mib(second.0), second.1, mib(others.0), others.1
    ));
    // One that is made for a larger body: whole MiB, and not one more than it needs.
    said("one that is made for a larger body has as many MiB as it needs");
    let need = others.0;
    let (bytes, cells) = segment::geometry(2, need);
    let least = format::bodies_at(cells) + need;
    assert!(bytes >= least && bytes - least < 1 << 20 && bytes % (1 << 20) == 0, "{bytes}");

    said(&format!("Version {}.", format::VERSION));
    said(&format!(
        "A segment is one header block of {} bytes, an array of {}-byte cells, and bodies, each at a multiple of {} bytes.",
        format::HEADER_BYTES, format::CELL_BYTES, format::BODY_ALIGN
    ));
    said("named by their number in 16 hexadecimal digits. Numbers ascend from 1");
    assert_eq!((format::name(1).len(), format::number(&format::name(1))), (16, Some(1)));
    said(&format!("at least 2, at most 2^{}", LogPos::CELLS_MAX.ilog2()));
    assert!(LogPos::CELLS_MAX.is_power_of_two());
    let magic = std::str::from_utf8(&format::MAGIC).unwrap();
    said(&format!("`{magic}`"));
}

#[test]
fn an_eighth_of_the_cells_is_kept_for_those_without_body_and_one_for_next() {
    said("One cell of each segment is kept for NEXT, and an eighth of them for cells without body.");
    let rig = Rig::started();
    let (_, cells) = segment::geometry(0, 0);
    let in_first = (1..=cells).take_while(|n| rig.commit(*n, 10).segment == 1).count() as u64;
    assert_eq!(in_first, cells - cells / 8);
    // The rest, but for one, takes cells that need no room for a body.
    let rig = Rig::started();
    let in_first =
        (1..=cells).take_while(|n| rig.cell(Cell::Abort { lsn: Lsn(*n) }).unwrap().segment == 1).count();
    assert_eq!(in_first as u64, cells - 1);
}

/// `fsync` of a directory that is open by identity only is EBADF; making files in it works.
#[test]
fn a_segment_whose_name_cannot_be_synced_is_none() {
    let rig = Rig::started();
    rig.commit(1, 10);
    let header = Header { number: 2, ..rig.log.segment(1).unwrap().header };
    let dir = rig.os.open(&rig.area, b"log", Open::Path).unwrap();
    assert!(segment::create(&rig.os, &dir, header).is_err());
    assert!(!rig.segment_path(2).exists(), "somebody could refer to it");
    assert_eq!(rig.segments(), [1]);
}

/// Rules of a section: its list.
fn rules(heading: &str) -> Vec<String> {
    let section = TEXT.split("\n## ").find(|s| s.starts_with(heading)).unwrap();
    let mut rules: Vec<String> = Vec::new();
    for line in section.lines().skip(1) {
        let item = line
            .strip_prefix("- ")
            .or_else(|| line.split_once(". ").filter(|(n, _)| n.parse::<u8>().is_ok()).map(|(_, rest)| rest));
        match (item, rules.last_mut()) {
            (Some(item), _) => rules.push(item.to_string()),
            (None, Some(rule)) if line.starts_with(' ') => *rule += line,
            _ => {}
        }
    }
    rules.iter().map(|rule| flowing(rule)).collect()
}

/// A rule that is new, or changed, has to come with its test: here it is named.
#[test]
fn every_rule_of_the_document_has_a_test() {
    type Test = fn();
    let reading: &[(&str, &[Test])] = &[
        (
            "NEXT to a file that does not exist is an error",
            &[garbled::a_missing_middle_segment_is_an_error_that_names_it],
        ),
        ("An invalid header is an end", &[garbled::a_newest_segment_without_header_is_an_end_not_an_error]),
        (
            "Another area or another version is an error",
            &[garbled::a_segment_of_another_area_or_version_is_refused_and_left_alone],
        ),
        (
            "A cell whose checksum, nonce and index are right and whose kind is unknown",
            &[garbled::a_cell_of_a_later_version_is_an_error_not_an_end],
        ),
        (
            "A valid cell behind the end that says that the place of the end was synced",
            &[garbled::cells_behind_a_damaged_one_of_their_segment_are_told],
        ),
        (
            "Cells in a segment that the log does not lead to mean that something was damaged",
            &[garbled::a_log_cut_before_synced_cells_says_that_it_is_damaged],
        ),
    ];
    let writing: &[(&str, &[Test])] = &[
        (
            "A new segment's name is synced (fsync of `log/`) before anything refers to it",
            &[a_segment_whose_name_cannot_be_synced_is_none],
        ),
        (
            "A body is written before its cell, a cell before the next one",
            &[
                appending::a_cell_that_its_writer_did_not_live_to_count_is_overwritten,
                garbled::whatever_happens_to_the_bytes_what_is_read_is_a_prefix_of_what_was_appended,
            ],
        ),
        (
            "Before the first cell of a segment the one before gets NEXT and is synced",
            &[sharing::a_segment_that_cannot_be_synced_is_not_left],
        ),
        (
            "One cell of each segment is kept for NEXT, and an eighth",
            &[an_eighth_of_the_cells_is_kept_for_those_without_body_and_one_for_next],
        ),
        (
            "A failed sync closes the log until a recovery has made a fresh segment",
            &[
                sharing::a_failed_sync_closes_the_log_for_all_and_is_not_tried_again,
                sharing::a_poisoned_log_refuses_everything_until_a_recovery,
            ],
        ),
        (
            "Segments are removed oldest first",
            &[
                dropping::segments_go_in_order_up_to_the_bound_and_name_their_transactions,
                dropping::nothing_goes_without_a_checkpoint,
            ],
        ),
    ];
    for (heading, known) in [("Reading", reading), ("Writing", writing)] {
        let rules = rules(heading);
        assert_eq!(rules.len(), known.len(), "{heading}: {rules:?}");
        for (rule, (begin, tests)) in rules.iter().zip(known) {
            assert!(rule.starts_with(begin) && !tests.is_empty(), "{heading}: {rule:?} is not {begin:?}");
        }
    }
    said("Where it ends, it goes on in the next *fresh* segment");
    let _: Test = appending::a_recovery_begins_a_new_segment_and_nothing_older_comes_back;
}
