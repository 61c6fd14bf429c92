//! Files of an area to which lines are added: `history`, `report.<id>`, `barrier`.
//!
//! An area may come out of an archive, or be hard-linked by a backup. Guarantees: what is opened is a regular file of the
//! area's user without another name; nothing else is opened at all, as opening a device or a FIFO is an act. Does not:
//! care for who may make names in the area, which only its user may.

use crate::bytes::read_file;
use systx_os::{Errno, FileType, Open, Os, Result, Stat};

/// Up to this many bytes of a file that has other names go on in one of our own.
const COPIED_BYTES_MAX: u64 = 2 << 20;

fn is_own_file<O: Os>(os: &O, stat: &Stat) -> bool {
    stat.kind() == FileType::File && stat.uid == os.uid()
}

/// Opens a file to add to it. What else has its name loses it.
///
/// # Errors
/// `EISDIR`: it is a directory.
pub(crate) fn open_or_make<O: Os>(os: &O, area: &O::Fd, name: &[u8]) -> Result<O::Fd> {
    loop {
        let kept = match os.stat_at(area, name) {
            Err(Errno::NOENT) => Vec::new(),
            Ok(stat) if is_own_file(os, &stat) && stat.nlink == 1 => {
                return os.open(area, name, Open::ReadWrite)
            }
            Ok(stat) => {
                let copied = is_own_file(os, &stat) && stat.size <= COPIED_BYTES_MAX;
                let kept =
                    if copied { read_file(os, &os.open(area, name, Open::Read)?)? } else { Vec::new() };
                os.unlink(area, name)?;
                kept
            }
            Err(error) => return Err(error),
        };
        match os.create(area, name, 0o600) {
            // Another process has made it.
            Err(Errno::EXIST) => {}
            made => {
                let fd = made?;
                if !kept.is_empty() {
                    os.append(&fd, &kept)?;
                }
                return Ok(fd);
            }
        }
    }
}

/// Opens a file to read it, if that is what has the name.
pub(crate) fn open_if_there<O: Os>(os: &O, area: &O::Fd, name: &[u8]) -> Result<Option<O::Fd>> {
    match os.stat_at(area, name) {
        Ok(stat) if is_own_file(os, &stat) => os.open_if_there(area, name, Open::Read),
        Ok(_) | Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}
