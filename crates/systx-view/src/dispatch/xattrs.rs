//! Extended attributes.

use crate::call::Call;
use crate::view::View;
use crate::wire::layout::{GetxattrIn, SetxattrCompatIn, SetxattrIn, SETXATTR_ACL_KILL_SGID};
use crate::wire::{flag, Reply};
use std::os::fd::AsFd;
use systx_engine::outcome::Verb;
use systx_engine::transaction::SetAttr;
use systx_os::{Errno, Os, SetXattr};

/// XATTR_CREATE and XATTR_REPLACE of setxattr(2).
const CREATE: u32 = 1;
const REPLACE: u32 = 2;
const SETGID: u32 = 0o2000;

/// Bytes of a value of an attribute (XATTR_SIZE_MAX in linux/limits.h).
const VALUE_BYTES_MAX: usize = 65_536;

/// The number behind a prefix.
fn after(name: &[u8], prefix: &str) -> Option<usize> {
    std::str::from_utf8(name.strip_prefix(prefix.as_bytes())?).ok()?.parse().ok()
}

/// As many paths from the one with index `first` on as a value holds.
fn page_of(paths: Vec<Vec<u8>>, first: usize) -> Vec<u8> {
    let mut page = Vec::new();
    for path in paths.into_iter().skip(first) {
        let path = if path.len() < VALUE_BYTES_MAX { path } else { Vec::new() };
        if page.len() + path.len() >= VALUE_BYTES_MAX {
            break;
        }
        page.extend(path.into_iter().chain([0]));
    }
    page
}

impl<O: Os<Fd: AsFd>> View<O> {
    pub(super) fn getxattr(&mut self, mut call: Call<'_>, reply: &mut Reply) -> Verb<()> {
        let args: GetxattrIn = call.take()?;
        let name = call.text()?;
        // Of every object: the root of a mount may be any directory of the view.
        if name == crate::ID_ATTRIBUTE.as_bytes() {
            return Ok(reply.sized(self.tx.id().to_string().as_bytes(), args.size)?);
        }
        let value = match name {
            // A read-committed node is found again by no handle, which an inner one needs; and an inner one's programs
            // would see by requests what the kernel serves to others by itself.
            name if name == crate::DEPTH_ATTRIBUTE.as_bytes() => {
                if self.is_read_committed() || self.natives.may_be_bound() {
                    return Err(Errno::NODATA.into());
                }
                self.depth.to_string().into_bytes()
            }
            name if name == crate::SUB_AREA_ATTRIBUTE.as_bytes() => {
                // Whoever makes such an area has to make it by a request.
                self.natives.bind_no_more();
                self.tx.sub_area_name(call.uid)
            }
            name => match after(name, crate::SUB_AREAS_ATTRIBUTE) {
                Some(first) => page_of(self.tx.sub_areas(call.root, call.uid), first),
                None => self.tx.getxattr(call.node, name)?,
            },
        };
        Ok(reply.sized(&value, args.size)?)
    }

    pub(super) fn listxattr(&mut self, mut call: Call<'_>, reply: &mut Reply) -> Verb<()> {
        let args: GetxattrIn = call.take()?;
        // The file systems below show trusted attributes to the privileged only, which this process may be.
        let hidden = |name: &[u8]| call.uid != 0 && name.starts_with(b"trusted.");
        let mut list = Vec::new();
        for name in self.tx.listxattr(call.node)?.iter().filter(|name| !hidden(name)) {
            list.extend_from_slice(name);
            list.push(0);
        }
        Ok(reply.sized(&list, args.size)?)
    }

    pub(super) fn setxattr(&mut self, mut call: Call<'_>) -> Verb<()> {
        let args = if self.agreed(call.connection).has(flag::SETXATTR_EXT) {
            call.take::<SetxattrIn>()?
        } else {
            let old: SetxattrCompatIn = call.take()?;
            SetxattrIn { size: old.size, flags: old.flags, ..Default::default() }
        };
        let (name, value) = (call.text()?, call.bytes(args.size)?);
        self.may_change_attributes(&call)?;
        let mode = match args.flags {
            0 => SetXattr::Any,
            CREATE => SetXattr::Create,
            REPLACE => SetXattr::Replace,
            _ => return Err(Errno::INVAL.into()),
        };
        self.tx.setxattr(call.node, name, value, mode)?;
        if args.setxattr_flags & SETXATTR_ACL_KILL_SGID != 0 {
            let mode = self.tx.getattr(call.node)?.mode & 0o7777 & !SETGID;
            self.tx.setattr(call.node, &SetAttr { mode: Some(mode), ..Default::default() })?;
        }
        if name == b"security.capability" {
            self.files.has_privileges(call.node);
        }
        Ok(())
    }

    pub(super) fn removexattr(&mut self, mut call: Call<'_>) -> Verb<()> {
        let name = call.text()?;
        self.may_change_attributes(&call)?;
        self.tx.removexattr(call.node, name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_are_more_than_a_value_holds_come_in_pages() {
        let long = vec![b'l'; VALUE_BYTES_MAX];
        let paths: Vec<_> =
            (0..9).map(|n| if n == 4 { long.clone() } else { vec![b'0' + n; 30_000] }).collect();
        let (mut told, mut pages) = (Vec::new(), 0);
        loop {
            let page = page_of(paths.clone(), told.len());
            assert!(page.len() <= VALUE_BYTES_MAX);
            if page.is_empty() {
                break;
            }
            told.extend(page.strip_suffix(&[0]).unwrap().split(|byte| *byte == 0).map(<[u8]>::to_vec));
            pages += 1;
        }
        let expected: Vec<_> =
            paths.iter().map(|path| if *path == long { Vec::new() } else { path.clone() }).collect();
        assert!(told == expected && pages == 4, "{} in {pages} pages", told.len());
    }
}
