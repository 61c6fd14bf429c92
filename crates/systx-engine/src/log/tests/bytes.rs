//! The layout: golden bytes, rejected bytes, and the document.

use super::super::format::{
    self, cell, header, Cell, CellRead, Header, HeaderRead, Written, CELL_BYTES, HEADER_BYTES, KINDS,
};
use super::*;
use crate::record::{
    Act, At, Before, Body, Change, DirectoryTime, Gone, Patch, PatchRange, Piece, Read, Share, SharedSlots,
    Small, Source, Step, Was, BODY_VERSION,
};
use systx_os::{Handle, Timestamp};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn a_header() -> Header {
    Header {
        version: format::VERSION,
        fresh: true,
        nonce: 0x1122_3344_5566_7788,
        number: 3,
        area: UUID,
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
    let bytes = all_kinds()[0].encode(0x1122_3344_5566_7788, 2, 1_700_000_000, 1);
    assert_eq!(
        hex(&bytes),
        "887766554433221101000000efbeadde0500000000000000060000000000000000100100000000\
         00c80000000200000000f153650000000001000000CRC"
            .replace("CRC", &hex(&crc32c::crc32c(&bytes[..60]).to_le_bytes()))
    );
}

#[test]
fn the_bytes_of_a_header_never_change() {
    let bytes = a_header().encode();
    assert_eq!(bytes.len(), HEADER_BYTES);
    assert_eq!(
        hex(&bytes[..88]),
        "53595354584c4f4702000000010000008877665544332211030000000000000\
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
        let bytes = c.encode(9, 2, -5, 1);
        let written = Written { cell: c, written: -5, synced: 1 };
        assert_eq!(Cell::decode(&bytes, 3, 9, 2), CellRead::Good(written));
        assert_eq!(Cell::decode(&bytes, 3, 9, 1), CellRead::Bad, "another index");
        assert_eq!(Cell::decode(&bytes, 3, 8, 2), CellRead::Bad, "another nonce");
        for bit in 0..CELL_BYTES * 8 {
            let mut wrong = bytes;
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Cell::decode(&wrong, 3, 9, 2), CellRead::Bad, "bit {bit}");
        }
    }
}

#[test]
fn a_cell_with_a_right_checksum_and_unknown_contents_is_unknown_not_damaged() {
    let good = all_kinds()[1].encode(9, 2, 0, 0);
    for (at, value) in [(cell::ALL[1].at, 0), (cell::ALL[1].at, 7), (9, 1), (24, 1), (40, 1)] {
        let mut wrong = good;
        wrong[at] = value;
        let crc = crc32c::crc32c(&wrong[..60]);
        wrong[60..].copy_from_slice(&crc.to_le_bytes());
        let kind = wrong[cell::ALL[1].at];
        assert_eq!(Cell::decode(&wrong, 3, 9, 2), CellRead::Unknown { kind }, "byte {at} = {value}");
    }
    let back = Cell::Next { segment: 3 }.encode(9, 2, 0, 0);
    let unknown = CellRead::Unknown { kind: 6 };
    assert_eq!(Cell::decode(&back, 3, 9, 2), unknown, "a log goes on forwards only");
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
    for (version, known) in [(0, false), (format::VERSION_LEAST, true), (format::VERSION + 1, false)] {
        newer[8] = version as u8;
        let crc = crc32c::crc32c(&newer[..4092]);
        newer[4092..].copy_from_slice(&crc.to_le_bytes());
        let expected = if known {
            HeaderRead::Good(Header { version, ..a_header() })
        } else {
            HeaderRead::OtherVersion(version)
        };
        assert_eq!(Header::decode(&newer, 3), expected);
    }
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
    let bodies = table("Bodies");
    assert_eq!(bodies[0], ["version".to_owned(), format!("u16: {BODY_VERSION}")]);
    for c in all_kinds() {
        assert!(KINDS.iter().any(|(n, name)| *n == c.kind() && c.to_string().starts_with(name)));
    }
}

/// A body with every kind of step, source and change. A change of its bytes needs a change of
/// [`BODY_VERSION`] and docs/log-format.md.
#[test]
fn the_bytes_of_a_body_never_change() {
    let handle = |byte| Handle::new(1, &[byte; 8]).expect("fits");
    let at = |name: &[u8]| At { dir: handle(1), path: b"a/b".to_vec(), name: name.to_vec() };
    let time = |sec| Timestamp { sec, nsec: 7 };
    let small = Small {
        handle: handle(2),
        ctime: time(1),
        mode: 0o100_644,
        uid: 3,
        gid: 4,
        rdev: 5,
        mtime: time(-2),
        content: b"content".to_vec(),
        xattrs: vec![(b"user.k".to_vec(), b"v".to_vec())],
    };
    let was = Was { size: 300, mtime: time(3), mode: 0o100_600, owner: (5, 6) };
    let read = |of| {
        let pieces = vec![Piece { offset: 1, asked: 300, hash: 400 }];
        vec![Read { of: Some(of), was: was.clone(), ctime: Some(time(4)), pieces }]
    };
    let read = read(0);
    let range = |offset, source, before| PatchRange { offset, len: 512, source, before };
    let ranges = vec![
        range(0, Source::Inline(vec![8; 2]), Before::Sectors(vec![0xdead_beef])),
        range(512, Source::Slot, Before::Zeros),
        range(1024, Source::Hole, Before::Zeros),
    ];
    let changes = vec![
        Change::Mode { old: 0o600, new: 0o644 },
        Change::Owner { old: (1, 2), new: (3, 4) },
        Change::Xattr { name: b"user.k".to_vec(), old: None, new: Some(b"w".to_vec()) },
        Change::Times { atime: None, mtime: Some(time(9)), before: time(8) },
    ];
    let gone = Gone { handle: handle(6), place: 13 };
    let acts = [
        Act::Place { small: None },
        Act::Place { small: Some(small) },
        Act::Link { object: handle(3), found: Box::new(at(b"found")) },
        Act::Replace { ours: handle(4), before: handle(5), tree: vec![gone], read, rewrites: Some(was) },
        Act::Remove { before: handle(7), tree: Vec::new(), read: Vec::new(), directory: true },
        Act::Take { before: handle(8), directory: false },
        Act::Patch(Patch {
            file: handle(9),
            size_before: 10,
            size_after: 2000,
            ranges,
            ends: vec![0xdead_beef],
            by_pages: Some(time(12)),
        }),
        Act::Attr { object: handle(10), changes, power_over: Some([0xaa; 32]) },
    ];
    let steps = acts.into_iter().zip([0, 1, 2, 3, 4, 5, 6, Step::NO_SLOT]);
    let body = Body {
        version: BODY_VERSION,
        id: TxId(300),
        nonce: 7,
        uid: 1000,
        table: [0xb0; 16],
        coordinator: Some(Share { area: UUID, id: TxId(2) }),
        participants: vec![Share { area: UUID, id: TxId(3) }],
        companions: vec![Share { area: [1; 16], id: TxId(4) }],
        command: "make".to_owned(),
        shared_slots: Some(SharedSlots { owner: 4, seal: 5 }),
        linked: true,
        steps: steps.map(|(act, slot)| Step { slot, at: at(b"name"), act }).collect(),
        times: vec![DirectoryTime { step: 2, mtime: time(10), before: time(11) }],
    };
    let bytes = body.encode();
    assert_eq!(Body::decode(&bytes), Ok(body));
    // `_` is the rest of a handle.
    let golden = "\
        0cac0207e807b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b001a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a50201a5a5a5a5a5a5a5a5a5a5 \
        a5a5a5a5a5a503010101010101010101010101010101010104046d616b6501040501080002080101010101010101_03612f62046e616d650000010208010101010101010 \
        1_03612f62046e616d65000102080202020202020202_0207a48302030405030707636f6e74656e740106757365722e6b017 \
        60202080101010101010101_03612f62046e616d650102080303030303030303_02080101010101010101_03612f6205666f \
        756e640302080101010101010101_03612f62046e616d650202080404040404040404_02080505050505050505_010208060 \
        6060606060606_0d010100ac02060780830205060108070101ac02900301ac02060780830205060402080101010101010101_0 \
        3612f62046e616d650302080707070707070707_0000010502080101010101010101_03612f62046e616d65040208080808080 \
        8080808_000602080101010101010101_03612f62046e616d650502080909090909090909_0ad00f03008004000208080001ef \
        fdb6f50d80048004010180088004020101effdb6f50d011807ffffffff0f02080101010101010101_03612f62046e616d650602080a0a0a0a0a0a0 \
        a0a_04008003a40301010203040206757365722e6b000101770300011207100701aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa \
        aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa010214071607";
    assert_eq!(hex(&bytes).replace(&"00".repeat(32), "_"), golden.replace(' ', ""));
}
