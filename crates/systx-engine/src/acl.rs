//! POSIX access control lists as extended attributes hold them, and what a new object inherits.
//!
//! Owns: the byte layout (linux/posix_acl_xattr.h: version 2, then tag, permissions, id an entry,
//! little-endian), the tie between a list and the permission bits, and inheritance as posix_acl_create has
//! it; who may do what by a list.

use systx_os::Errno;

/// The list that goes with the mode.
pub const ACCESS: &[u8] = b"system.posix_acl_access";
/// The list that new objects in a directory get.
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

/// Privileges of a program file.
pub const CAPABILITY: &[u8] = b"security.capability";

/// XFS shows each list to root twice: by its own name, too, and in another form. Source:
/// xfs_xattr_put_listent in linux/fs/xfs.
const COPIES: [(&[u8], &[u8]); 2] =
    [(b"trusted.SGI_ACL_FILE", ACCESS), (b"trusted.SGI_ACL_DEFAULT", DEFAULT)];

/// The list that an attribute is XFS's second name for.
pub(crate) fn listed_as(name: &[u8]) -> Option<&'static [u8]> {
    COPIES.iter().find(|(copy, _)| *copy == name).map(|(_, list)| *list)
}

/// Names of an object's attributes, each list once: a copy would stay as it was when the list changes in a
/// transaction. On other file systems such a name without its list is an attribute like others.
pub(crate) fn each_list_once(names: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let is_copy =
        |name: &[u8]| listed_as(name).is_some_and(|list| names.iter().any(|other| other.as_slice() == list));
    let copies: Vec<bool> = names.iter().map(|name| is_copy(name)).collect();
    names.into_iter().zip(copies).filter(|(_, copy)| !copy).map(|(name, _)| name).collect()
}

const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// The number of a user without one in the reader's user namespace (posix_acl_to_xattr).
const STRANGER: u32 = u32::MAX;

/// An access control list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl(Vec<(u16, u16, u32)>);

impl Acl {
    /// Reads the attribute's value; `Ok(None)`: an empty list, which stands for none.
    pub fn parse(value: &[u8]) -> Result<Option<Acl>, Errno> {
        let Some((version, entries)) = value.split_first_chunk::<4>() else { return Err(Errno::INVAL) };
        if u32::from_le_bytes(*version) != 2 {
            return Err(Errno::OPNOTSUPP);
        }
        if entries.len() % 8 != 0 {
            return Err(Errno::INVAL);
        }
        let list: Vec<_> = entries
            .chunks_exact(8)
            .map(|e| {
                let [a, b, c, d, i, j, k, l] = [e[0], e[1], e[2], e[3], e[4], e[5], e[6], e[7]];
                (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]), u32::from_le_bytes([i, j, k, l]))
            })
            .collect();
        if list.is_empty() {
            return Ok(None);
        }
        let acl = Acl(list);
        acl.is_valid().then_some(Some(acl)).ok_or(Errno::INVAL)
    }

    /// Exactly one entry for owner, group and others, a mask when a user or group is named, in this order.
    fn is_valid(&self) -> bool {
        let count = |tag| self.0.iter().filter(|e| e.0 == tag).count();
        let named = count(USER) + count(GROUP) > 0;
        let rank = |tag| [USER_OBJ, USER, GROUP_OBJ, GROUP, MASK, OTHER].iter().position(|t| *t == tag);
        let sorted = self.0.windows(2).all(|w| rank(w[0].0) <= rank(w[1].0));
        self.0.iter().all(|e| e.1 <= 7 && rank(e.0).is_some())
            && [USER_OBJ, GROUP_OBJ, OTHER].iter().all(|t| count(*t) == 1)
            && count(MASK) <= 1
            && (!named || count(MASK) == 1)
            && sorted
    }

    /// The attribute's value.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = 2u32.to_le_bytes().to_vec();
        for (tag, perm, id) in &self.0 {
            out.extend_from_slice(&tag.to_le_bytes());
            out.extend_from_slice(&perm.to_le_bytes());
            out.extend_from_slice(&id.to_le_bytes());
        }
        out
    }

    /// Returns true if it names a user or group without a number in this process's user namespace: such a
    /// list can't be written.
    pub fn names_strangers(&self) -> bool {
        self.0.iter().any(|e| matches!(e.0, USER | GROUP) && e.2 == STRANGER)
    }

    /// Returns true if permission bits say as much.
    pub fn is_minimal(&self) -> bool {
        self.0.len() == 3
    }

    fn get(&self, tag: u16) -> u32 {
        self.0.iter().find(|e| e.0 == tag).map_or(0, |e| u32::from(e.1))
    }

    /// The entry that the group bits of the mode show.
    fn group_tag(&self) -> u16 {
        if self.0.iter().any(|e| e.0 == MASK) {
            MASK
        } else {
            GROUP_OBJ
        }
    }

    /// Returns true if the list lets a user have all of `want` (bits of rwx) on an object of `owner` and
    /// `group`. `is_in` says which groups the user is in.
    ///
    /// Source: posix_acl_permission in linux/fs/posix_acl.c.
    pub fn permits(&self, user: u32, owner: u32, group: u32, want: u32, is_in: &dyn Fn(u32) -> bool) -> bool {
        let has = |permissions: u16| u32::from(permissions) & want == want;
        let mask = self.0.iter().find(|entry| entry.0 == MASK).map_or(7, |entry| entry.1);
        if user == owner {
            return has(self.get(USER_OBJ) as u16);
        }
        if let Some(entry) = self.0.iter().find(|entry| entry.0 == USER && entry.2 == user) {
            return has(entry.1 & mask);
        }
        let is_of = |entry: &&(u16, u16, u32)| match entry.0 {
            GROUP_OBJ => is_in(group),
            GROUP => is_in(entry.2),
            _ => false,
        };
        // One group that suffices is enough; a user in groups that don't is not among the others.
        let mut groups = self.0.iter().filter(is_of).peekable();
        if groups.peek().is_some() {
            return has(mask) && groups.any(|entry| has(entry.1));
        }
        has(self.get(OTHER) as u16)
    }

    /// The nine permission bits that go with the list.
    pub fn mode(&self) -> u32 {
        self.get(USER_OBJ) << 6 | self.get(self.group_tag()) << 3 | self.get(OTHER)
    }

    /// Returns the list after chmod(2).
    pub fn with_mode(&self, mode: u32) -> Acl {
        let group = self.group_tag();
        let mut acl = self.clone();
        for entry in &mut acl.0 {
            match entry.0 {
                USER_OBJ => entry.1 = (mode >> 6 & 7) as u16,
                OTHER => entry.1 = (mode & 7) as u16,
                tag if tag == group => entry.1 = (mode >> 3 & 7) as u16,
                _ => {}
            }
        }
        acl
    }
}

/// Returns what a new object gets from the default list of its directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Inherited {
    /// Permission bits.
    pub mode: u32,
    /// The access list, unless the mode says as much.
    pub access: Option<Vec<u8>>,
}

/// Applies a default list to the mode asked for (posix_acl_create_masq in linux/fs/posix_acl.c).
pub(crate) fn inherit(default: &Acl, mode: u32) -> Inherited {
    let narrowed = default.mode() & mode;
    let acl = default.with_mode(narrowed);
    Inherited { mode: mode & !0o777 | narrowed, access: (!acl.is_minimal()).then(|| acl.bytes()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(entries: &[(u16, u16, u32)]) -> Acl {
        Acl::parse(&Acl(entries.to_vec()).bytes()).unwrap().unwrap()
    }

    #[test]
    fn a_minimal_default_list_only_narrows_the_mode() {
        let d = acl(&[(USER_OBJ, 7, 0), (GROUP_OBJ, 5, 0), (OTHER, 0, 0)]);
        assert_eq!(inherit(&d, 0o666), Inherited { mode: 0o640, access: None });
    }

    #[test]
    fn a_mask_stands_for_the_group_bits() {
        let d = acl(&[(USER_OBJ, 7, 0), (USER, 7, 12), (GROUP_OBJ, 5, 0), (MASK, 7, 0), (OTHER, 5, 0)]);
        let got = inherit(&d, 0o644);
        assert_eq!(got.mode, 0o644);
        let list = Acl::parse(&got.access.unwrap()).unwrap().unwrap();
        assert_eq!((list.get(MASK), list.get(GROUP_OBJ), list.get(USER)), (4, 5, 7));
    }

    #[test]
    fn the_second_name_of_a_list_is_left_out_and_only_that() {
        let names = |names: &[&[u8]]| names.iter().map(|name| name.to_vec()).collect::<Vec<_>>();
        let twice = names(&[ACCESS, b"trusted.SGI_ACL_FILE", b"trusted.SGI_ACL_DEFAULT", b"user.a"]);
        assert_eq!(each_list_once(twice), names(&[ACCESS, b"trusted.SGI_ACL_DEFAULT", b"user.a"]));
    }

    #[test]
    fn a_list_permits_as_the_kernel_says() {
        let list = acl(&[
            (USER_OBJ, 6, 0),
            (USER, 7, 12),
            (GROUP_OBJ, 4, 0),
            (GROUP, 2, 30),
            (GROUP, 7, 31),
            (MASK, 6, 0),
            (OTHER, 1, 0),
        ]);
        let may = |user: u32, groups: &[u32], want: u32| {
            list.permits(user, 1000, 100, want, &|group| groups.contains(&group))
        };
        // The owner's entry alone counts for the owner, and no mask.
        assert!(may(1000, &[31], 6) && !may(1000, &[31], 1));
        // A named user: within the mask.
        assert!(may(12, &[], 6) && !may(12, &[], 1));
        // One group has to suffice by itself, within the mask; its members are none of the others.
        assert!(may(5, &[100], 4) && !may(5, &[100], 1) && !may(5, &[100, 30], 6));
        assert!(may(5, &[100, 30, 31], 6) && !may(5, &[31], 1));
        assert!(may(5, &[], 1) && !may(5, &[], 4));
    }

    #[test]
    fn malformed_lists_are_refused() {
        assert_eq!(Acl::parse(b"\x02\0\0\0x"), Err(Errno::INVAL));
        assert_eq!(Acl::parse(b"\x01\0\0\0"), Err(Errno::OPNOTSUPP));
        assert_eq!(Acl::parse(b"\x02\0\0\0"), Ok(None));
        let no_mask = Acl(vec![(USER_OBJ, 7, 0), (USER, 7, 12), (GROUP_OBJ, 5, 0), (OTHER, 5, 0)]);
        assert_eq!(Acl::parse(&no_mask.bytes()), Err(Errno::INVAL));
    }
}
