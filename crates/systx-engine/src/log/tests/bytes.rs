//! The layout: golden bytes, rejected bytes, and the document.

use super::super::format::{self, cell, header, Cell, Header, HeaderRead, CELL_BYTES, HEADER_BYTES, KINDS};
use super::*;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn a_header() -> Header {
    Header {
        fresh: true,
        nonce: 0x1122_3344_5566_7788,
        number: 3,
        uuid: UUID,
        cells: 1024,
        size: 1 << 20,
        checkpoint: Lsn(77),
        end_before: LogPos { segment: 2, cell: 9 },
        written: 1_700_000_000,
    }
}

fn all_kinds() -> [Cell; 6] {
    let body = BodyAt { segment: 3, offset: 0x11000, len: 200, crc: 0xdead_beef };
    let (lsn, id) = (Lsn(5), TxId(6));
    [
        Cell::Commit { lsn, id, body },
        Cell::Abort { lsn },
        Cell::Checkpoint { lsn },
        Cell::Prepared { lsn, id, body },
        Cell::Committed { id },
        Cell::Next { segment: 4 },
    ]
}

#[test]
fn the_bytes_of_a_commit_cell_never_change() {
    let bytes = all_kinds()[0].encode(0x1122_3344_5566_7788, 2, 1_700_000_000);
    assert_eq!(
        hex(&bytes),
        "887766554433221101000000efbeadde0500000000000000060000000000000000100100000000\
         00c80000000200000000f153650000000000000000CRC"
            .replace("CRC", &hex(&crc32c::crc32c(&bytes[..60]).to_le_bytes()))
    );
}

#[test]
fn the_bytes_of_a_header_never_change() {
    let bytes = a_header().encode();
    assert_eq!(bytes.len(), HEADER_BYTES);
    assert_eq!(
        hex(&bytes[..88]),
        "53595354584c4f4701000000010000008877665544332211030000000000000\
         0a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5000400000000000000001000000000004d000000000000000900000200000000\
         00f1536500000000"
    );
    assert!(bytes[88..4092].iter().all(|b| *b == 0));
    assert_eq!(bytes[4092..], crc32c::crc32c(&bytes[..4092]).to_le_bytes());
    assert_eq!(Header::decode(&bytes, 3), HeaderRead::Good(a_header()));
}

#[test]
fn every_kind_of_cell_is_read_back_only_where_it_was_written() {
    for c in all_kinds() {
        let bytes = c.encode(9, 2, -5);
        assert_eq!(Cell::decode(&bytes, 3, 9, 2), Some((c, -5)));
        assert_eq!(Cell::decode(&bytes, 3, 9, 1), None, "another index");
        assert_eq!(Cell::decode(&bytes, 3, 8, 2), None, "another nonce");
        for bit in 0..CELL_BYTES * 8 {
            let mut wrong = bytes;
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Cell::decode(&wrong, 3, 9, 2), None, "bit {bit}");
        }
    }
}

#[test]
fn a_cell_with_a_right_checksum_and_wrong_contents_is_refused() {
    let good = all_kinds()[1].encode(9, 2, 0);
    for (at, value) in [(cell::ALL[1].at, 0), (cell::ALL[1].at, 7), (9, 1), (24, 1), (56, 1), (40, 1)] {
        let mut wrong = good;
        wrong[at] = value;
        let crc = crc32c::crc32c(&wrong[..60]);
        wrong[60..].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(Cell::decode(&wrong, 3, 9, 2), None, "byte {at} = {value}");
    }
    let back = Cell::Next { segment: 3 }.encode(9, 2, 0);
    assert_eq!(Cell::decode(&back, 3, 9, 2), None, "a log goes on forwards only");
}

#[test]
fn a_header_is_refused_when_damaged_and_known_as_foreign_when_newer() {
    let good = a_header().encode();
    for bit in (0..HEADER_BYTES * 8).step_by(7) {
        let mut wrong = good.clone();
        wrong[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(Header::decode(&wrong, 3), HeaderRead::Bad, "bit {bit}");
    }
    assert_eq!(Header::decode(&good, 4), HeaderRead::Bad, "under another name");
    assert_eq!(Header::decode(&good[..4095], 3), HeaderRead::Bad);
    let mut newer = good.clone();
    newer[8] = 2;
    let crc = crc32c::crc32c(&newer[..4092]);
    newer[4092..].copy_from_slice(&crc.to_le_bytes());
    assert_eq!(Header::decode(&newer, 3), HeaderRead::OtherVersion(2));
    for insane in [
        Header { nonce: 0, ..a_header() },
        Header { cells: 1, ..a_header() },
        Header { cells: u64::MAX, ..a_header() },
        Header { size: 4096, ..a_header() },
    ] {
        // Not `bodies_at` of 2^64 cells: `encode` does not compute it.
        assert_eq!(Header::decode(&insane.encode(), 3), HeaderRead::Bad);
    }
}

#[test]
fn only_names_of_segments_are_segments() {
    assert_eq!(format::number(&format::name(0x1f)), Some(0x1f));
    for name in ["", "1f", "000000000000001F", "00000000000000001f", "0000000000000000", "ffffffffffffffff"] {
        assert_eq!(format::number(name.as_bytes()), None, "{name}");
    }
    assert_eq!(format::number(&[0xff; 16]), None);
}

#[test]
fn positions_are_ordered_as_words() {
    let at = |segment, cell| LogPos { segment, cell };
    for (a, b) in [(at(1, 5), at(1, 6)), (at(1, 9), at(2, 0)), (at(2, 1), at(1 << 33, 0))] {
        assert!(a < b && a.pack() < b.pack());
        assert_eq!(LogPos::unpack(b.pack()), b);
    }
}

/// Rows `| a | b | c | …` below a heading of the document.
fn table(heading: &str) -> Vec<Vec<String>> {
    let text = include_str!("../../../../../docs/log-format.md");
    let section = text.split("\n## ").find(|s| s.starts_with(heading)).unwrap();
    section
        .lines()
        .filter(|l| l.starts_with("| "))
        .skip(1)
        .map(|l| l.trim_matches('|').split('|').map(|c| c.trim().to_owned()).collect())
        .collect()
}

#[test]
fn the_document_says_what_the_code_does() {
    for (heading, fields) in [("Header block", header::ALL), ("Cells", cell::ALL)] {
        let expected: Vec<_> =
            fields.iter().map(|f| [f.at.to_string(), f.len.to_string(), f.name.to_owned()]).collect();
        let said: Vec<_> =
            table(heading).into_iter().map(|row| [row[0].clone(), row[1].clone(), row[2].clone()]).collect();
        assert_eq!(said, expected, "{heading}");
    }
    let kinds: Vec<_> = KINDS.iter().map(|(n, name)| [n.to_string(), (*name).to_owned()]).collect();
    let said: Vec<_> = table("Kinds").into_iter().map(|row| [row[0].clone(), row[1].clone()]).collect();
    assert_eq!(said, kinds);
    for c in all_kinds() {
        assert!(KINDS.iter().any(|(n, name)| *n == c.kind() && c.to_string().starts_with(name)));
    }
}
