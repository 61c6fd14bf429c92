//! Request numbers.

/// The requests of the kernel. Those that the view never answers have no name here: they get `ENOSYS`.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Opcode {
    Lookup = 1,
    Forget = 2,
    Getattr = 3,
    Setattr = 4,
    Readlink = 5,
    Symlink = 6,
    Mknod = 8,
    Mkdir = 9,
    Unlink = 10,
    Rmdir = 11,
    Rename = 12,
    Link = 13,
    Open = 14,
    Read = 15,
    Write = 16,
    Statfs = 17,
    Release = 18,
    Setxattr = 21,
    Getxattr = 22,
    Listxattr = 23,
    Removexattr = 24,
    Init = 26,
    Opendir = 27,
    Readdir = 28,
    Releasedir = 29,
    Create = 35,
    Interrupt = 36,
    Destroy = 38,
    Ioctl = 39,
    BatchForget = 42,
    Fallocate = 43,
    Readdirplus = 44,
    Rename2 = 45,
    Lseek = 46,
    CopyFileRange = 47,
    Tmpfile = 51,
    CopyFileRange64 = 53,
}

impl Opcode {
    const ALL: [Opcode; 37] = [
        Opcode::Lookup,
        Opcode::Forget,
        Opcode::Getattr,
        Opcode::Setattr,
        Opcode::Readlink,
        Opcode::Symlink,
        Opcode::Mknod,
        Opcode::Mkdir,
        Opcode::Unlink,
        Opcode::Rmdir,
        Opcode::Rename,
        Opcode::Link,
        Opcode::Open,
        Opcode::Read,
        Opcode::Write,
        Opcode::Statfs,
        Opcode::Release,
        Opcode::Setxattr,
        Opcode::Getxattr,
        Opcode::Listxattr,
        Opcode::Removexattr,
        Opcode::Init,
        Opcode::Opendir,
        Opcode::Readdir,
        Opcode::Releasedir,
        Opcode::Create,
        Opcode::Interrupt,
        Opcode::Destroy,
        Opcode::Ioctl,
        Opcode::BatchForget,
        Opcode::Fallocate,
        Opcode::Readdirplus,
        Opcode::Rename2,
        Opcode::Lseek,
        Opcode::CopyFileRange,
        Opcode::Tmpfile,
        Opcode::CopyFileRange64,
    ];

    /// From the number in the header; `None` for what the view leaves to the kernel.
    pub fn from_wire(number: u32) -> Option<Opcode> {
        const TABLE: [Option<Opcode>; 54] = {
            let mut table = [None; 54];
            let mut i = 0;
            while i < Opcode::ALL.len() {
                table[Opcode::ALL[i] as usize] = Some(Opcode::ALL[i]);
                i += 1;
            }
            table
        };
        TABLE.get(number as usize).copied().flatten()
    }

    /// Returns true if a process has gone to a place of the tree to ask for this, and did not have it open.
    pub fn goes_there(self) -> bool {
        use Opcode::*;
        let looks =
            matches!(self, Lookup | Open | Opendir | Readdir | Readdirplus | Readlink | Getxattr | Listxattr);
        // An object with another name has another way.
        let names = matches!(self, Mknod | Mkdir | Symlink | Create | Tmpfile | Link | Unlink | Rmdir);
        looks || names || matches!(self, Rename | Rename2)
    }

    /// Returns true if it is about a name in a directory, or about all of them.
    pub fn is_in_directory(self) -> bool {
        use Opcode::*;
        let names =
            matches!(self, Lookup | Mknod | Mkdir | Symlink | Create | Tmpfile | Link | Unlink | Rmdir);
        names || matches!(self, Rename | Rename2 | Opendir | Readdir | Readdirplus)
    }

    /// Returns true if the kernel waits for an answer.
    pub fn has_reply(self) -> bool {
        !matches!(self, Opcode::Forget | Opcode::BatchForget | Opcode::Interrupt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_number_maps_to_itself_and_no_other_is_known() {
        let known: Vec<u32> = (0..10_000).filter(|n| Opcode::from_wire(*n).is_some()).collect();
        let mut all: Vec<u32> = Opcode::ALL.iter().map(|o| *o as u32).collect();
        all.sort_unstable();
        assert_eq!(known, all);
        assert!(known.iter().all(|n| Opcode::from_wire(*n).map(|o| o as u32) == Some(*n)));
    }
}
