//! The bytes of a segment: its header block and its cells. `docs/log-format.md` says the same in words; a
//! test compares.
//!
//! Owns: the layout. Guarantees: decoding never panics, whatever the bytes, and accepts exactly what encoding
//! makes. All numbers are little-endian. Does not: read or write files.

use crate::id::{Lsn, TxId};

/// First bytes of every segment.
pub const MAGIC: [u8; 8] = *b"SYSTXLOG";
/// Version of the layout. Magic, version and checksum keep their places in every version.
pub const VERSION: u32 = 2;
/// The oldest version that is read, and written to where it is found: its cells don't say what was synced before them.
pub const VERSION_LEAST: u32 = 1;
/// Bytes of the header block.
pub const HEADER_BYTES: usize = 4096;
/// Bytes of a cell.
pub const CELL_BYTES: usize = 64;
/// Bodies start at multiples of this.
pub const BODY_ALIGN: u64 = 64;

/// A field of a block of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name in the document.
    pub name: &'static str,
    /// First byte.
    pub at: usize,
    /// Bytes.
    pub len: usize,
}

macro_rules! fields {
    ($(#[$doc:meta])* $module:ident $size:literal: $($name:ident $text:literal $at:literal $len:literal;)*) => {
        $(#[$doc])*
        pub mod $module {
            use super::Field;
            $(pub(super) const $name: Field = Field { name: $text, at: $at, len: $len };)*
            /// All fields in the order of their bytes.
            pub const ALL: &[Field] = &[$($name),*];
            const _: () = {
                // The fields cover the block without gap or overlap.
                let mut i = 0;
                let mut end = 0;
                while i < ALL.len() {
                    assert!(ALL[i].at == end);
                    end += ALL[i].len;
                    i += 1;
                }
                assert!(end == $size);
            };
        }
    };
}

fields! {
    /// Fields of the header block.
    header 4096:
    MAGIC "magic" 0 8;
    VERSION "version" 8 4;
    FLAGS "flags" 12 4;
    NONCE "nonce" 16 8;
    NUMBER "segment" 24 8;
    AREA "area" 32 16;
    CELLS "cells" 48 8;
    SIZE "size" 56 8;
    CHECKPOINT "checkpoint" 64 8;
    END_BEFORE "end before" 72 8;
    WRITTEN "written" 80 8;
    ZERO "zero" 88 4004;
    CRC "crc" 4092 4;
}

fields! {
    /// Fields of a cell.
    cell 64:
    NONCE "nonce" 0 8;
    KIND "kind" 8 1;
    ZERO "zero" 9 3;
    BODY_CRC "body crc" 12 4;
    LSN "lsn" 16 8;
    ID "id" 24 8;
    PLACE "place" 32 8;
    LEN "length" 40 4;
    INDEX "index" 44 4;
    WRITTEN "written" 48 8;
    SYNCED "synced" 56 4;
    CRC "crc" 60 4;
}

const FLAG_FRESH: u32 = 1;

fn put(block: &mut [u8], field: Field, bytes: &[u8]) {
    block[field.at..field.at + field.len].copy_from_slice(bytes);
}

fn get<const N: usize>(block: &[u8], field: Field) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&block[field.at..field.at + field.len]);
    out
}

fn is_zero(block: &[u8], field: Field) -> bool {
    block[field.at..field.at + field.len].iter().all(|b| *b == 0)
}

/// Place of a cell in the log. Ordered as the log is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LogPos {
    /// Number of the segment; the first is 1.
    pub segment: u64,
    /// Index of the cell in the segment.
    pub cell: u32,
}

impl LogPos {
    const CELL_BITS: u32 = 24;
    /// Most cells of a segment.
    pub(super) const CELLS_MAX: u64 = 1 << Self::CELL_BITS;
    /// One past the highest segment number; the place of bodies is packed into a word, too (see `shared`).
    pub(super) const SEGMENTS_MAX: u64 = 1 << 34;

    /// One word that is ordered like the position.
    pub(super) fn pack(self) -> u64 {
        self.segment << Self::CELL_BITS | u64::from(self.cell)
    }
    pub(super) fn unpack(word: u64) -> LogPos {
        LogPos { segment: word >> Self::CELL_BITS, cell: (word & (Self::CELLS_MAX - 1)) as u32 }
    }
    pub(super) fn next(self) -> LogPos {
        LogPos { cell: self.cell + 1, ..self }
    }
}

impl core::fmt::Display for LogPos {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:x}:{}", self.segment, self.cell)
    }
}

/// Place and checksum of a body that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyAt {
    /// Segment.
    pub segment: u64,
    /// Bytes from the start of the segment.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
    /// CRC32C of the bytes.
    pub crc: u32,
}

/// The content of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell {
    /// The transaction is committed if no `Abort` follows.
    Commit {
        /// Place in the serial order.
        lsn: Lsn,
        /// Number of the transaction.
        id: TxId,
        /// Changes of the transaction.
        body: BodyAt,
    },
    /// The transaction is aborted, whether or not it has a `Commit` or a `Prepared` before.
    Abort {
        /// Place in the serial order.
        lsn: Lsn,
    },
    /// Everything up to here is published and synced: never redone.
    Checkpoint {
        /// The last one that is.
        lsn: Lsn,
    },
    /// The transaction is prepared: its coordinator decides. The last one of an id counts.
    Prepared {
        /// Place in the serial order.
        lsn: Lsn,
        /// Number of the transaction.
        id: TxId,
        /// Changes, if it commits.
        body: BodyAt,
    },
    /// The prepared transaction is committed.
    Committed {
        /// Number of the transaction.
        id: TxId,
    },
    /// Last cell of a segment, written by the log itself: it goes on there.
    Next {
        /// Number of the segment.
        segment: u64,
    },
}

/// Numbers of the kinds of cells, with their names in the document.
pub const KINDS: [(u8, &str); 6] =
    [(1, "COMMIT"), (2, "ABORT"), (3, "CKPT"), (4, "PREPARED"), (5, "COMMITTED"), (6, "NEXT")];

impl Cell {
    /// Number of the kind.
    pub fn kind(&self) -> u8 {
        match self {
            Cell::Commit { .. } => 1,
            Cell::Abort { .. } => 2,
            Cell::Checkpoint { .. } => 3,
            Cell::Prepared { .. } => 4,
            Cell::Committed { .. } => 5,
            Cell::Next { .. } => 6,
        }
    }
    /// The body, if the kind has one.
    pub fn body(&self) -> Option<BodyAt> {
        match self {
            Cell::Commit { body, .. } | Cell::Prepared { body, .. } => Some(*body),
            _ => None,
        }
    }
    /// The place in the serial order that the cell names, if it does.
    pub fn lsn(&self) -> Option<Lsn> {
        match *self {
            Cell::Commit { lsn, .. }
            | Cell::Abort { lsn }
            | Cell::Checkpoint { lsn }
            | Cell::Prepared { lsn, .. } => Some(lsn),
            Cell::Committed { .. } | Cell::Next { .. } => None,
        }
    }
    /// The transaction that the cell names, if it does.
    pub fn id(&self) -> Option<TxId> {
        match *self {
            Cell::Commit { id, .. } | Cell::Prepared { id, .. } | Cell::Committed { id } => Some(id),
            Cell::Abort { .. } | Cell::Checkpoint { .. } | Cell::Next { .. } => None,
        }
    }

    /// The bytes of this cell at `index` of the segment with `nonce`; `written` in seconds since the epoch.
    /// `synced`: so many cells of the segment are on the disk; 0 says nothing.
    pub fn encode(&self, nonce: u64, index: u32, written: i64, synced: u32) -> [u8; CELL_BYTES] {
        let mut b = [0; CELL_BYTES];
        put(&mut b, cell::NONCE, &nonce.to_le_bytes());
        put(&mut b, cell::KIND, &[self.kind()]);
        put(&mut b, cell::LSN, &self.lsn().unwrap_or_default().0.to_le_bytes());
        put(&mut b, cell::ID, &self.id().map_or(0, |id| id.0).to_le_bytes());
        if let Some(body) = self.body() {
            put(&mut b, cell::BODY_CRC, &body.crc.to_le_bytes());
            put(&mut b, cell::PLACE, &body.offset.to_le_bytes());
            put(&mut b, cell::LEN, &body.len.to_le_bytes());
        }
        if let Cell::Next { segment } = self {
            put(&mut b, cell::PLACE, &segment.to_le_bytes());
        }
        put(&mut b, cell::INDEX, &index.to_le_bytes());
        put(&mut b, cell::WRITTEN, &written.to_le_bytes());
        put(&mut b, cell::SYNCED, &synced.to_le_bytes());
        let crc = crc32c::crc32c(&b[..cell::CRC.at]);
        put(&mut b, cell::CRC, &crc.to_le_bytes());
        b
    }

    /// Reads the cell at `index` of `segment`, whose nonce is `nonce`.
    pub fn decode(b: &[u8; CELL_BYTES], segment: u64, nonce: u64, index: u32) -> CellRead {
        if u32::from_le_bytes(get(b, cell::CRC)) != crc32c::crc32c(&b[..cell::CRC.at])
            || u64::from_le_bytes(get(b, cell::NONCE)) != nonce
            || u32::from_le_bytes(get(b, cell::INDEX)) != index
        {
            return CellRead::Bad;
        }
        let lsn = Lsn(u64::from_le_bytes(get(b, cell::LSN)));
        let id = TxId(u64::from_le_bytes(get(b, cell::ID)));
        let place = u64::from_le_bytes(get(b, cell::PLACE));
        let body = BodyAt {
            segment,
            offset: place,
            len: u32::from_le_bytes(get(b, cell::LEN)),
            crc: u32::from_le_bytes(get(b, cell::BODY_CRC)),
        };
        let kind = b[cell::KIND.at];
        let c = match kind {
            1 => Cell::Commit { lsn, id, body },
            2 => Cell::Abort { lsn },
            3 => Cell::Checkpoint { lsn },
            4 => Cell::Prepared { lsn, id, body },
            5 => Cell::Committed { id },
            6 if place > segment && place < LogPos::SEGMENTS_MAX => Cell::Next { segment: place },
            _ => return CellRead::Unknown { kind },
        };
        let written = i64::from_le_bytes(get(b, cell::WRITTEN));
        let synced = u32::from_le_bytes(get(b, cell::SYNCED));
        // Unused fields of a kind are zero, so that a later version can give them a meaning.
        if c.encode(nonce, index, written, synced) == *b {
            CellRead::Good(Written { cell: c, written, synced })
        } else {
            CellRead::Unknown { kind }
        }
    }
}

/// A cell as it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// The content.
    pub cell: Cell,
    /// When it was written, in seconds since the epoch.
    pub written: i64,
    /// This many cells of its segment, at least, were on the disk when it was written.
    pub synced: u32,
}

/// The result of decoding 64 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellRead {
    /// A cell.
    Good(Written),
    /// A cell that was written there, and says what this version does not know.
    Unknown {
        /// Number of its kind.
        kind: u8,
    },
    /// Never finished, of another place, or damaged.
    Bad,
}

/// The header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Format version, at least [`VERSION_LEAST`].
    pub version: u32,
    /// Begins a log after a recovery: what stands in lower segments ended where that recovery found it.
    pub fresh: bool,
    /// Random, not 0, in every cell of the segment, so that stale bytes are never taken for cells.
    pub nonce: u64,
    /// Number, also the file's name.
    pub number: u64,
    /// The area that it was written in ([`crate::id::AreaId`]).
    pub area: [u8; 16],
    /// Number of cells.
    pub cells: u64,
    /// Size of the file in bytes.
    pub size: u64,
    /// If fresh: counts as a CKPT cell before the first one.
    pub checkpoint: Lsn,
    /// If fresh: where the recovery found the end of what is before.
    pub end_before: LogPos,
    /// When it was made, in seconds since the epoch.
    pub written: i64,
}

/// The result of decoding the header block of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderRead {
    /// A header.
    Good(Header),
    /// Intact, of another version.
    OtherVersion(u32),
    /// Never finished, or damaged.
    Bad,
}

impl Header {
    /// Where bodies start.
    pub fn bodies_at(&self) -> u64 {
        bodies_at(self.cells)
    }

    /// The header block.
    pub fn encode(&self) -> Vec<u8> {
        let mut b = vec![0; HEADER_BYTES];
        put(&mut b, header::MAGIC, &MAGIC);
        put(&mut b, header::VERSION, &self.version.to_le_bytes());
        put(&mut b, header::FLAGS, &(if self.fresh { FLAG_FRESH } else { 0 }).to_le_bytes());
        put(&mut b, header::NONCE, &self.nonce.to_le_bytes());
        put(&mut b, header::NUMBER, &self.number.to_le_bytes());
        put(&mut b, header::AREA, &self.area);
        put(&mut b, header::CELLS, &self.cells.to_le_bytes());
        put(&mut b, header::SIZE, &self.size.to_le_bytes());
        put(&mut b, header::CHECKPOINT, &self.checkpoint.0.to_le_bytes());
        put(&mut b, header::END_BEFORE, &self.end_before.pack().to_le_bytes());
        put(&mut b, header::WRITTEN, &self.written.to_le_bytes());
        let crc = crc32c::crc32c(&b[..header::CRC.at]);
        put(&mut b, header::CRC, &crc.to_le_bytes());
        b
    }

    /// Reads the header block of the segment that is named `number`.
    pub fn decode(b: &[u8], number: u64) -> HeaderRead {
        if b.len() != HEADER_BYTES
            || get(b, header::MAGIC) != MAGIC
            || u32::from_le_bytes(get(b, header::CRC)) != crc32c::crc32c(&b[..header::CRC.at])
        {
            return HeaderRead::Bad;
        }
        let version = u32::from_le_bytes(get(b, header::VERSION));
        if !(VERSION_LEAST..=VERSION).contains(&version) {
            return HeaderRead::OtherVersion(version);
        }
        let flags = u32::from_le_bytes(get(b, header::FLAGS));
        let h = Header {
            version,
            fresh: flags & FLAG_FRESH != 0,
            nonce: u64::from_le_bytes(get(b, header::NONCE)),
            number: u64::from_le_bytes(get(b, header::NUMBER)),
            area: get(b, header::AREA),
            cells: u64::from_le_bytes(get(b, header::CELLS)),
            size: u64::from_le_bytes(get(b, header::SIZE)),
            checkpoint: Lsn(u64::from_le_bytes(get(b, header::CHECKPOINT))),
            end_before: LogPos::unpack(u64::from_le_bytes(get(b, header::END_BEFORE))),
            written: i64::from_le_bytes(get(b, header::WRITTEN)),
        };
        let sane = flags & !FLAG_FRESH == 0
            && h.nonce != 0
            && h.number == number
            && h.number != 0
            && h.cells >= 2
            && h.cells <= LogPos::CELLS_MAX
            && h.size >= h.bodies_at()
            && is_zero(b, header::ZERO);
        if sane {
            HeaderRead::Good(h)
        } else {
            HeaderRead::Bad
        }
    }
}

/// Where bodies start in a segment of so many cells.
pub(super) fn bodies_at(cells: u64) -> u64 {
    HEADER_BYTES as u64 + cells * CELL_BYTES as u64
}

/// File name of a segment.
pub fn name(segment: u64) -> Vec<u8> {
    format!("{segment:016x}").into_bytes()
}

/// Number of the segment with that file name; `None` for every other name.
pub fn number(name: &[u8]) -> Option<u64> {
    let digits = |b: &u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
    let text = core::str::from_utf8(name).ok().filter(|_| name.len() == 16 && name.iter().all(digits))?;
    u64::from_str_radix(text, 16).ok().filter(|n| *n > 0 && *n < LogPos::SEGMENTS_MAX)
}
