//! Requests to verbs: one function an operation, each decode → verb → encode.
//!
//! Guarantees: whatever comes, the answer is an answer; an error of ours is `EIO`, never a panic. Does not:
//! touch a file system; what it knows of files it has from
//! [`Transaction`](systx_engine::transaction::Transaction).
//!
//! Not answered, which the kernel takes as "never ask again" (`ENOSYS`): FSYNC, FSYNCDIR, FLUSH, because
//! durability comes with the commit; OPENDIR, because listings are cached (but see `view::read_committed`); ACCESS,
//! because the kernel checks permissions; STATX, because the engine knows no times of birth; POLL. Locks and
//! leases were not agreed on: they stay in the kernel, inside the view.

mod attrs;
mod data;
mod listing;
mod names;
mod open;
mod shared;
mod xattrs;

use crate::call::Call;
use crate::nodes::id_of;
use crate::view::View;
use crate::wire::layout::InitIn;
use crate::wire::{negotiate, Answer, Id, Lasts, Opcode, Reply, Request};
use std::os::fd::AsFd;
use systx_engine::outcome::{Verb, VerbError};
use systx_engine::transaction::{Attr, Node};
use systx_os::{Errno, Os};
use tracing::trace;

impl<O: Os<Fd: AsFd>> View<O> {
    /// Answers one message of a connection; `None` when the kernel does not wait for an answer.
    pub(crate) fn answer<'r>(
        &mut self,
        connection: usize,
        message: &[u8],
        reply: &'r mut Reply,
    ) -> Option<&'r [u8]> {
        let request = Request::parse(message).ok()?;
        let (unique, node) = (request.header.unique, request.header.nodeid);
        reply.clear();
        let result = match Opcode::from_wire(request.header.opcode) {
            None => Err(Errno::NOSYS),
            Some(opcode) if !opcode.has_reply() => {
                self.forget(connection, opcode, request);
                return None;
            }
            Some(Opcode::Init) => self.init(connection, request, reply),
            Some(Opcode::Destroy) => Ok(()),
            Some(opcode) => {
                let call = Call::new(connection, self.root(connection), self.known, request);
                let result = call.map_err(VerbError::from).and_then(|call| self.perform(opcode, call, reply));
                result.map_err(|e| self.error_number(e))
            }
        };
        trace!(request = %Request::named(message), node, ?result, "request");
        if reply.is_postponed() {
            return None;
        }
        Some(reply.finish(unique, result))
    }

    fn perform(&mut self, opcode: Opcode, call: Call<'_>, reply: &mut Reply) -> Verb<()> {
        if opcode.goes_there() {
            // The kernel has checked the way by what it was told of it before.
            self.tx.way_still_holds(call.uid, call.node)?;
        }
        if opcode.is_in_directory() {
            self.natives.is_entered(call.node);
        }
        match opcode {
            Opcode::Lookup => self.lookup(call, reply),
            Opcode::Getattr => self.getattr(call, reply),
            Opcode::Setattr => self.setattr(call, reply),
            Opcode::Readlink => self.readlink(call, reply),
            Opcode::Symlink => self.symlink(call, reply),
            Opcode::Mknod => self.mknod(call, reply),
            Opcode::Mkdir => self.mkdir(call, reply),
            Opcode::Unlink => self.unlink(call),
            Opcode::Rmdir => self.rmdir(call),
            Opcode::Rename => self.rename(call),
            Opcode::Rename2 => self.rename2(call),
            Opcode::Link => self.link(call, reply),
            Opcode::Open => self.open(call, reply),
            Opcode::Create => self.create(call, reply),
            Opcode::Tmpfile => self.tmpfile(call, reply),
            Opcode::Release => self.release(call),
            Opcode::Read => self.read(call, reply),
            Opcode::Write => self.write(call, reply),
            Opcode::Lseek => self.lseek(call, reply),
            Opcode::Fallocate => self.fallocate(call),
            Opcode::CopyFileRange | Opcode::CopyFileRange64 => self.copy_file_range(opcode, call, reply),
            Opcode::Opendir => self.opendir(call, reply),
            Opcode::Releasedir => self.releasedir(call),
            Opcode::Readdir => self.readdir(call, reply),
            Opcode::Readdirplus => self.readdirplus(call, reply),
            Opcode::Statfs => self.statfs(call, reply),
            Opcode::Getxattr => self.getxattr(call, reply),
            Opcode::Listxattr => self.listxattr(call, reply),
            Opcode::Setxattr => self.setxattr(call),
            Opcode::Removexattr => self.removexattr(call),
            // Asked for at every isatty(3). `ENOSYS` would not be remembered (fs/fuse/ioctl.c).
            Opcode::Ioctl => Err(Errno::NOTTY.into()),
            Opcode::Init | Opcode::Destroy | Opcode::Forget | Opcode::BatchForget | Opcode::Interrupt => {
                Err(Errno::IO.into())
            }
        }
    }

    /// A node's number for the kernel, which may use it from now on.
    fn number(&mut self, call: &Call<'_>, node: Node) -> Id {
        self.number_on(call.connection, node)
    }

    /// That, on a connection.
    pub(crate) fn number_on(&mut self, connection: usize, node: Node) -> Id {
        self.known = self.known.max(node);
        self.kernel_gets(connection, node);
        Id { number: id_of(node, self.root(connection)), generation: self.tx.generation(node) }
    }

    /// Answers with a node that has just got a name in the directory of the request.
    fn introduce(&mut self, call: &Call<'_>, node: Node, attr: &Attr, reply: &mut Reply) {
        // Where processes change names by themselves, they change that, too.
        let lasts = if self.tx.is_shared(call.node) { Lasts::Moment } else { Lasts::Forever };
        self.introduce_by(call, node, attr, lasts, reply);
    }

    /// Answers with a node.
    pub(crate) fn introduce_by(
        &mut self,
        call: &Call<'_>,
        node: Node,
        attr: &Attr,
        name: Lasts,
        reply: &mut Reply,
    ) {
        let lasts = self.lasts(node);
        reply.entry(self.number(call, node), attr, name, lasts);
    }

    /// How long the kernel may keep attributes.
    pub(super) fn lasts(&self, node: Node) -> Lasts {
        if self.tx.is_within_shared(node) {
            Lasts::Never
        } else if self.tx.stays(node) {
            Lasts::Forever
        } else {
            Lasts::Moment
        }
    }

    /// Returns the number that a program gets. The owner of a doomed transaction is informed first.
    pub(crate) fn error_number(&mut self, error: VerbError) -> Errno {
        match error {
            VerbError::Os(number) => number,
            VerbError::Doomed(conflict) => {
                self.doom(*conflict);
                Errno::IO
            }
        }
    }

    fn init(&mut self, connection: usize, mut request: Request<'_>, reply: &mut Reply) -> Result<(), Errno> {
        let asked: InitIn = request.take()?;
        match negotiate(&asked, self.stack_depth(connection)) {
            Answer::Again(out) => reply.put(&out),
            Answer::Ready(out, agreed) => {
                self.set_agreed(connection, agreed);
                reply.put(&out);
            }
            Answer::Unusable(missing) => {
                self.set_unusable(missing);
                return Err(Errno::PROTO);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::ShownAs;
    use crate::wire::layout::{InHeader, OutHeader};
    use std::os::fd::OwnedFd;
    use systx_engine::domain::{Bounds, Domain, Location};
    use systx_engine::outcome::Options;
    use systx_engine::transaction::Transaction;
    use systx_os::fuse::Device;
    use systx_os::{Linux, Open};
    use zerocopy::{FromBytes, IntoBytes};

    /// A view that no kernel talks to, over a scratch directory.
    fn view(scratch: &std::path::Path) -> View<Linux> {
        std::fs::create_dir(scratch).unwrap();
        std::fs::write(scratch.join("file"), "content").unwrap();
        let os = Linux::new();
        let root = std::sync::Arc::new(os.open_path(scratch, Open::Directory).unwrap());
        let location =
            Location { root: root.clone(), bounds: Bounds::FileSystem, parent: &*root, name: b".area" };
        let domain = Domain::open(&os, location).unwrap();
        let tx = Transaction::begin(os, vec![domain], Options::default()).unwrap();
        let null = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        View::with_devices(tx, vec![Device::from_fd(null)])
            .unwrap_or_else(|failed| panic!("{}", failed.doing))
    }

    /// Bodies of every length: zeros, ones, small numbers and noise.
    fn bodies() -> impl Iterator<Item = Vec<u8>> {
        let mut noise = 0x2545_f491_4f6c_dd1d_u64;
        (0..=96).flat_map(move |len: usize| {
            let random = (0..len).map(|_| {
                noise ^= noise << 13;
                noise ^= noise >> 7;
                noise ^= noise << 17;
                noise as u8
            });
            let small = (0..len).map(|i| if i % 8 == 0 { b'a' + (i as u8 % 3) } else { 0 });
            [vec![0; len], vec![0xff; len], random.collect(), small.collect()]
        })
    }

    #[test]
    fn whatever_is_sent_is_answered_or_ignored_and_never_a_panic() {
        let scratch = std::env::temp_dir().join(format!("systx-dispatch-{}", std::process::id()));
        let mut view = view(&scratch);
        let mut reply = Reply::new();
        let mut answered = 0;
        for opcode in 0..64u32 {
            for body in bodies() {
                for nodeid in [0, 1, 2, 3, 1 << 40, u64::MAX] {
                    let len = 40 + body.len() as u32;
                    let header = InHeader { len, opcode, unique: 5, nodeid, ..Default::default() };
                    let message = [header.as_bytes(), &body].concat();
                    let Some(bytes) = view.answer(0, &message, &mut reply) else { continue };
                    let (out, _) = OutHeader::read_from_prefix(bytes).unwrap();
                    assert_eq!((out.len as usize, out.unique), (bytes.len(), 5));
                    assert!(out.error <= 0 && (out.error == 0 || bytes.len() == 16));
                    answered += usize::from(out.error == 0);
                }
            }
        }
        assert!(answered > 100, "some of it was meant seriously");
        view.finish().abort();
        std::fs::remove_dir_all(&scratch).unwrap();
    }

    #[test]
    fn a_node_that_nobody_was_told_of_is_an_error() {
        let scratch = std::env::temp_dir().join(format!("systx-untold-{}", std::process::id()));
        let mut view = view(&scratch);
        let mut reply = Reply::new();
        let ask = |nodeid| InHeader { len: 40, opcode: Opcode::Getattr as u32, nodeid, ..Default::default() };
        let error = |bytes: Option<&[u8]>| OutHeader::read_from_prefix(bytes.unwrap()).unwrap().0.error;
        assert_eq!(error(view.answer(0, ask(1).as_bytes(), &mut reply)), 0);
        for nodeid in [0, 3, 99, u64::MAX] {
            let io = -Errno::IO.raw_os_error();
            assert_eq!(error(view.answer(0, ask(nodeid).as_bytes(), &mut reply)), io);
        }
        view.finish().abort();
        std::fs::remove_dir_all(&scratch).unwrap();
    }

    /// The kernel, which knows the true owner of a name, would refuse by itself: these go past it.
    #[test]
    fn a_root_that_is_shown_as_the_users_gives_him_no_owners_right() {
        let scratch = std::env::temp_dir().join(format!("systx-shared-{}", std::process::id()));
        let mut view = view(&scratch);
        std::fs::create_dir(scratch.join("dir")).unwrap();
        view.share(0, ShownAs { uid: 4711, gid: 4712 });
        let mut reply = Reply::new();
        let mut ask = |opcode: Opcode, body: &[u8]| {
            let len = 40 + body.len() as u32;
            let header = InHeader { len, opcode: opcode as u32, nodeid: 1, uid: 4711, ..Default::default() };
            view.answer(0, &[header.as_bytes(), body].concat(), &mut reply).unwrap().to_vec()
        };
        let error = |bytes: &[u8]| OutHeader::read_from_prefix(bytes).unwrap().0.error;
        let shown = ask(Opcode::Getattr, &[0; 16]);
        // fuse_attr behind the validity: its owner follows 64 bytes and the link count.
        let word = |at: usize| u32::from_ne_bytes(shown[at..at + 4].try_into().unwrap());
        assert_eq!((error(&shown), word(16 + 16 + 68), word(16 + 16 + 72)), (0, 4711, 4712));
        let rename = |from: &str, to: &str| {
            [&1u64.to_ne_bytes()[..], from.as_bytes(), b"\0", to.as_bytes(), b"\0"].concat()
        };
        let mode = [&crate::wire::layout::fattr::MODE.to_ne_bytes()[..], &[0; 84]].concat();
        for (opcode, body) in [
            (Opcode::Unlink, b"file\0".to_vec()),
            (Opcode::Rmdir, b"dir\0".to_vec()),
            (Opcode::Rename, rename("file", "other")),
            (Opcode::Rename, rename("dir", "other")),
            (Opcode::Setattr, mode),
            (Opcode::Removexattr, b"user.a\0".to_vec()),
        ] {
            assert_eq!(error(&ask(opcode, &body)), -Errno::PERM.raw_os_error(), "{opcode:?}");
        }
        // The user may remove and move what the user made; but not onto another user's object.
        assert_eq!(error(&ask(Opcode::Unlink, b"missing\0")), -Errno::NOENT.raw_os_error());
        let made = view.transaction().symlink(
            Node(1),
            b"own",
            b"x",
            systx_engine::transaction::Caller { uid: 4711, gid: 4712, umask: 0 },
        );
        if made == Err(Errno::PERM.into()) {
            println!("skipped: needs root, to make an object of another user");
            view.finish().abort();
            std::fs::remove_dir_all(&scratch).unwrap();
            return;
        }
        made.unwrap();
        let mut ask = |opcode: Opcode, body: &[u8]| {
            let len = 40 + body.len() as u32;
            let header = InHeader { len, opcode: opcode as u32, nodeid: 1, uid: 4711, ..Default::default() };
            error(view.answer(0, &[header.as_bytes(), body].concat(), &mut reply).unwrap())
        };
        assert_eq!(ask(Opcode::Rename, &rename("own", "file")), -Errno::PERM.raw_os_error());
        assert_eq!(ask(Opcode::Rename, &rename("own", "other")), 0);
        assert_eq!(ask(Opcode::Unlink, b"other\0"), 0);
        view.finish().abort();
        std::fs::remove_dir_all(&scratch).unwrap();
    }
}
