//! Tokens: the content of a staging entry before its step has been taken.
//!
//! A step that takes an object out of a name renames it *over* the token, so that the entry shows whether
//! that has happened. File tokens of a transaction are hard links of a few files `token.<k>` in its staging
//! directory: cheap to make, and told from any foreign object by identity. A directory can only replace a
//! directory, so a directory's token is one: empty, without any permission, and with a modification time at
//! the epoch.

use crate::objects::{identify, slot_name};

use std::cell::OnceCell;
use systx_os::{Errno, FileType, Handle, Open, Os, Result, Stat, Timestamp};

/// Type of a token: rename(2) replaces a directory by a directory only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token {
    /// An empty regular file.
    File,
    /// The one for all LINKs, beside the slot of the first of them. An empty regular file, too.
    Links,
    /// An empty directory.
    Directory,
}

/// Links to one token file: below the smallest limit of the file systems in the allow-list (ext4: 65,000).
const LINKS_MAX: u32 = 60_000;
const EPOCH: Timestamp = Timestamp { sec: 0, nsec: 0 };

/// Handles of a transaction's token files, looked for when the first step asks.
#[derive(Debug, Default)]
pub(crate) struct TokenHandles(OnceCell<Vec<Handle>>);

/// Name of the token of a record's LINKs: that of the slot of the first LINK, and a letter.
pub(crate) fn token_name(slot: u32) -> Vec<u8> {
    [slot_name(slot).as_slice(), b"l"].concat()
}

/// Begin of the names of token files.
const BASE: &str = "token.";

fn token_file(k: u32) -> Vec<u8> {
    format!("{BASE}{k}").into_bytes()
}

/// Returns true if this is the name of a token file.
pub(crate) fn is_base(name: &[u8]) -> bool {
    name.starts_with(BASE.as_bytes())
}

/// Returns true if an object of a staging directory with these attributes is a directory's token.
pub(crate) fn is_directory(stat: &Stat) -> bool {
    stat.kind() == FileType::Directory && stat.perm() == 0 && stat.mtime == EPOCH
}

impl TokenHandles {
    /// The only one, where it is known.
    pub fn of(handle: Handle) -> TokenHandles {
        TokenHandles(OnceCell::from(vec![handle]))
    }

    /// The token files that are there.
    fn load<O: Os>(os: &O, slots: &O::Fd) -> Result<Vec<Handle>> {
        let mut found = Vec::new();
        for k in 0u32.. {
            match identify(os, slots, &token_file(k))? {
                Some(handle) => found.push(handle),
                // They are made in order: the first number that is missing ends them.
                None => break,
            }
        }
        Ok(found)
    }

    /// Returns true if the object `handle`, which the entry `name` holds, is its token.
    pub fn is_token<O: Os>(&self, os: &O, slots: &O::Fd, name: &[u8], handle: &Handle) -> Result<bool> {
        let known = match self.0.get() {
            Some(known) => known,
            None => {
                let found = TokenHandles::load(os, slots)?;
                self.0.get_or_init(|| found)
            }
        };
        // By identity, not by attributes: a step may take out an empty file of mode 0 as well.
        if known.contains(handle) {
            return Ok(true);
        }
        let stat = match os.stat_at(slots, name) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(false),
            Err(e) => return Err(e),
        };
        Ok(is_directory(&stat))
    }
}

/// Makes the tokens of a transaction in its slot directory. Slots that hold something already are left.
/// `shared`: the token file of a shared staging directory, where there is only one.
pub(crate) fn make<O: Os>(
    os: &O,
    slots: &O::Fd,
    tokens: &[(u32, Token)],
    shared: Option<&O::Fd>,
) -> Result<()> {
    let mut base: Option<(u32, O::Fd, u32)> = None;
    for (slot, token) in tokens {
        let name = match token {
            Token::Links => token_name(*slot),
            _ => slot_name(*slot),
        };
        match token {
            Token::Directory => match os.mkdir(slots, &name, 0) {
                // A kill between the two calls leaves half a token, but nothing that counts before the seal (P3).
                Ok(()) => os.utimens(&os.open(slots, &name, Open::Path)?, Some(EPOCH), Some(EPOCH))?,
                Err(Errno::EXIST) => {}
                Err(e) => return Err(e),
            },
            Token::File | Token::Links => {
                if let Some(file) = shared {
                    match os.link(file, slots, &name) {
                        Ok(()) | Err(Errno::EXIST) => continue,
                        Err(e) => return Err(e),
                    }
                }
                let (k, links) = base.as_ref().map_or((0, 0), |(k, _, links)| (*k, *links));
                // Another file before the kernel refuses the link (EMLINK), which would fail the commit.
                if base.is_none() || links >= LINKS_MAX {
                    let k = if base.is_none() { 0 } else { k + 1 };
                    base = Some((k, token_base(os, slots, k)?, 0));
                }
                if let Some((_, fd, links)) = base.as_mut() {
                    match os.link(fd, slots, &name) {
                        Ok(()) => *links += 1,
                        Err(Errno::EXIST) => {}
                        Err(e) => return Err(e),
                    }
                }
            }
        }
    }
    Ok(())
}

fn token_base<O: Os>(os: &O, slots: &O::Fd, k: u32) -> Result<O::Fd> {
    match os.create(slots, &token_file(k), 0) {
        Err(Errno::EXIST) => os.open(slots, &token_file(k), Open::Path),
        made => made,
    }
}
