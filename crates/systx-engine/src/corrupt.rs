//! Words of shared memory that make no sense: any process of the user can store into them, so each is checked
//! before it is used.

use crate::id::{OwnerIx, OWNERS};

/// A word of the table holds something that no version of systx puts there.
///
/// Never the result of a crash: some program stored through a mapping of the file. Nothing may be decided from such a
/// table; [`crate::domain::Table::condemn`] makes the next opener rebuild it from the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt {
    /// Purpose of the word.
    pub what: &'static str,
    /// Index of the word.
    pub word: usize,
    /// Value of the word.
    pub value: u64,
}

impl core::fmt::Display for Corrupt {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Corrupt { what, word, value } = self;
        write!(
            f,
            "the domain table is damaged: {what} (word {word}) holds {value:#x}; end the \
            programs that run under systx, "
        )?;
        write!(f, "remove the file `table` of the area and run `systx recover`")
    }
}

impl std::error::Error for Corrupt {}

/// Checks an owner index found in shared memory.
pub(crate) fn owner_from(what: &'static str, word: usize, value: u64) -> Result<OwnerIx, Corrupt> {
    if value == 0 || value >= u64::from(OWNERS) {
        return Err(Corrupt { what, word, value });
    }
    Ok(OwnerIx(value as u32))
}
