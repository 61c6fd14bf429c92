//! `systx run --sub`: a transaction inside of one, which commits into it, or leaves it as it was.
//!
//! Owns: what is around it, what is refused there, and how an outer transaction ends its inner ones. The view
//! of the outer one is a file system like others to the inner one: it makes its view over it, and its area in
//! it, which the outer one's engine keeps apart from everything else. Guarantees: when the outer one commits,
//! each inner one is part of it as a whole or not at all, however it ended. Does not: know how a transaction
//! works; an inner one is one.

mod finish;

pub use finish::{last, set_aside};

use crate::tree::{NATIVE, VIEW};
use systx_os::sandbox::mounts::{self, Mount};
use systx_os::{Linux, Os};
use systx_view::{DEPTH_ATTRIBUTE, ID_ATTRIBUTE};

/// Limit of transactions inside one another. Each has namespaces of its own, of which the kernel allows 32 in
/// one another.
pub const DEPTH_MAX: u32 = 8;

/// Where this process is.
pub struct Around {
    /// Where its views are mounted.
    points: Vec<Vec<u8>>,
    /// How many transactions deep that is; `None`: it takes no inner ones.
    depth: Option<u32>,
}

/// Returns the transaction that this process is inside of: some mount is a view that answers.
///
/// The name of a mount proves nothing, since any user may choose it; nor does the environment, which any
/// program may set. A view is what root, or this user, mounted as one and what answers with a transaction's
/// number.
pub fn around(table: &[Mount]) -> Option<Around> {
    let uid = Linux::new().uid();
    let mounted_by = |mount: &Mount| mount.user_id.is_some_and(|id| id == 0 || id == uid);
    let views = table.iter().filter(|m| m.fs_type == b"fuse.systx" && m.source == b"systx" && mounted_by(m));
    let mut around: Option<Around> = None;
    for view in views.filter(|m| mounts::look(&m.point).is_ok_and(|found| found.mount_id == m.id)) {
        let number = |name| {
            let answer = mounts::attribute(&view.point, name, NUMBER_BYTES_MAX).ok()?;
            std::str::from_utf8(&answer).ok()?.parse::<u64>().ok()
        };
        if number(ID_ATTRIBUTE).is_some() {
            let depth = number(DEPTH_ATTRIBUTE).and_then(|depth| u32::try_from(depth).ok());
            let around = around.get_or_insert(Around { points: Vec::new(), depth });
            around.depth = around.depth.zip(depth).map(|(one, other)| one.max(other));
            around.points.push(view.point.clone());
        }
    }
    around
}

/// In decimal.
const NUMBER_BYTES_MAX: usize = 20;

impl Around {
    /// Where the views of the outer one are mounted.
    pub fn points(&self) -> &[Vec<u8>] {
        &self.points
    }

    /// How many transactions deep the outer one is; `None`: it takes no inner ones.
    pub fn depth(&self) -> Option<u32> {
        self.depth
    }

    /// How many transactions deep an inner one will be.
    pub fn depth_inside(&self) -> u32 {
        1 + self.depth.unwrap_or(1)
    }

    /// The mount table with the views as what is to be served, and everything else as what is not.
    pub fn table(&self, mut table: Vec<Mount>) -> Vec<Mount> {
        for mount in &mut table {
            let is_new_inside =
                matches!(mount.fs_type.as_slice(), b"proc" | b"mqueue") || mount.point == b"/dev/shm";
            if self.points.contains(&mount.point) && mount.fs_type == b"fuse.systx" {
                mount.fs_type = VIEW.to_vec();
            } else if !is_new_inside {
                mount.fs_type = NATIVE.to_vec();
            }
        }
        table
    }
}
