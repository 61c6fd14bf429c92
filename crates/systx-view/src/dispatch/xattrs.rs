//! Extended attributes.

use crate::call::Call;
use crate::view::View;
use crate::wire::layout::{GetxattrIn, SetxattrCompatIn, SetxattrIn, SETXATTR_ACL_KILL_SGID};
use crate::wire::{flag, Reply};
use std::os::fd::AsFd;
use systx_engine::outcome::{Isolation, Verb};
use systx_engine::transaction::SetAttr;
use systx_os::{Errno, Os, SetXattr};

/// XATTR_CREATE and XATTR_REPLACE of setxattr(2).
const CREATE: u32 = 1;
const REPLACE: u32 = 2;
const SETGID: u32 = 0o2000;

impl<O: Os<Fd: AsFd>> View<O> {
    pub(super) fn getxattr(&mut self, mut call: Call<'_>, reply: &mut Reply) -> Verb<()> {
        let args: GetxattrIn = call.take()?;
        let name = call.text()?;
        // Of every object: the root of a mount may be any directory of the view.
        if name == crate::ID_ATTRIBUTE.as_bytes() {
            return Ok(reply.sized(self.tx.id().to_string().as_bytes(), args.size)?);
        }
        let value = match name {
            // A read-committed node is found again by no handle, which an inner one needs.
            name if name == crate::DEPTH_ATTRIBUTE.as_bytes() => match self.tx.options().isolation {
                Isolation::Serializable => self.depth.to_string().into_bytes(),
                Isolation::Committed => return Err(Errno::NODATA.into()),
            },
            name if name == crate::SUB_AREA_ATTRIBUTE.as_bytes() => self.tx.sub_area_name(call.uid),
            name if name == crate::SUB_AREAS_ATTRIBUTE.as_bytes() => self
                .tx
                .sub_areas(call.root)
                .into_iter()
                .flat_map(|path| path.into_iter().chain([0]))
                .collect(),
            name => self.tx.getxattr(call.node, name)?,
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
            self.files.set_privileged(call.node, true);
        }
        Ok(())
    }

    pub(super) fn removexattr(&mut self, mut call: Call<'_>) -> Verb<()> {
        let name = call.text()?;
        self.may_change_attributes(&call)?;
        self.tx.removexattr(call.node, name)
    }
}
