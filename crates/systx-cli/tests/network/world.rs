//! Servers outside, and who calls them.

use super::alone::place::{Place, AREA, SYSTX};
use super::calls::MARK;
use super::user::{open_fuse_to_all, UNPRIVILEGED, USER};
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{chown, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// By whom each promise is tried.
pub const WHO: [&str; 2] = ["root", "user"];

/// The servers of one case, and a caller.
pub struct World<'a> {
    p: &'a Place,
    who: &'static str,
    dir: PathBuf,
    tcp: TcpListener,
    local: TcpListener,
    udp: UdpSocket,
    stream: UnixListener,
    datagram: UnixDatagram,
    named: UnixListener,
}

impl<'a> World<'a> {
    pub fn new(p: &'a Place, who: &'static str) -> World<'a> {
        let dir = p.beside.join(who);
        std::fs::create_dir(&dir).unwrap();
        let name = SocketAddr::from_abstract_name(format!("systx-test-{}", std::process::id())).unwrap();
        let world = World {
            p,
            who,
            tcp: TcpListener::bind("10.99.0.1:0").unwrap(),
            local: TcpListener::bind("127.0.0.1:0").unwrap(),
            udp: UdpSocket::bind("10.99.0.1:0").unwrap(),
            stream: UnixListener::bind(dir.join("out")).unwrap(),
            datagram: UnixDatagram::bind(dir.join("datagram")).unwrap(),
            named: UnixListener::bind_addr(&name).unwrap(),
            dir,
        };
        world.tcp.set_nonblocking(true).unwrap();
        world.local.set_nonblocking(true).unwrap();
        world.udp.set_nonblocking(true).unwrap();
        world.stream.set_nonblocking(true).unwrap();
        world.datagram.set_nonblocking(true).unwrap();
        world.named.set_nonblocking(true).unwrap();
        for path in ["out", "datagram"] {
            std::fs::set_permissions(world.dir.join(path), PermissionsExt::from_mode(0o777)).unwrap();
        }
        // Where they were built others may have no way to them.
        std::fs::copy(SYSTX, world.dir.join("systx")).unwrap();
        std::fs::copy(std::env::current_exe().unwrap(), world.dir.join("caller")).unwrap();
        world.has_left_its_mark();
        if who == "user" {
            open_fuse_to_all(&world.dir);
            for path in [&world.p.served, &world.dir] {
                chown(path, Some(USER), Some(USER)).unwrap();
            }
        }
        world
    }

    /// The program that plays the caller.
    pub fn caller(&self) -> String {
        self.path("caller")
    }

    fn path(&self, name: &str) -> String {
        self.dir.join(name).to_str().unwrap().to_owned()
    }

    /// How to reach the servers, where they are, and the end of what that is called.
    pub fn outside(&self) -> Vec<(&'static str, String, String)> {
        let tcp = self.tcp.local_addr().unwrap().to_string();
        let udp = self.udp.local_addr().unwrap().to_string();
        let (stream, datagram) = (self.path("out"), self.path("datagram"));
        let mut all: Vec<_> = [("tcp", tcp), ("udp", udp), ("unix", stream.clone())]
            .into_iter()
            .chain([("sendto", datagram.clone()), ("sendmsg", datagram)])
            .map(|(kind, target)| (kind, target.clone(), target))
            .collect();
        all.push(("relative", stream.clone(), "out".into()));
        all.push(("from-a-removed-directory", stream.clone(), "../out".into()));
        // The number of the descriptor is not known.
        all.push(("by-descriptor", stream, "/out".into()));
        all
    }

    /// A server at the machine's own loopback address.
    pub fn loopback(&self) -> String {
        self.local.local_addr().unwrap().to_string()
    }

    /// A server with a name of the machine's own network.
    pub fn abstract_name(&self) -> String {
        format!("@systx-test-{}", std::process::id())
    }

    /// Returns true if one of those two was called.
    pub fn reached_itself(&self) -> bool {
        self.local.accept().is_ok() || self.named.accept().is_ok()
    }

    /// Returns true if a server was called.
    pub fn reached(&self, kind: &str) -> bool {
        match kind {
            "tcp" => self.tcp.accept().is_ok(),
            "udp" => self.udp.recv(&mut [0]).is_ok(),
            "sendto" | "sendmsg" => self.datagram.recv(&mut [0]).is_ok(),
            _ => self.stream.accept().is_ok(),
        }
    }

    /// Returns true if the caller's file is there; it is not afterwards.
    pub fn has_left_its_mark(&self) -> bool {
        std::fs::remove_file(self.p.served.join(MARK)).is_ok()
    }

    /// A verb of systx's, by this user, in the served directory.
    pub fn verb(&self, words: &[&str]) -> Command {
        let (systx, served): (_, &Path) = (self.path("systx"), &self.p.served);
        let words = [&[systx.as_str(), words[0], "--area-name", AREA], &words[1..]].concat();
        let words: Vec<_> = match self.who {
            "user" => UNPRIVILEGED.iter().chain(&words).copied().collect(),
            _ => words,
        };
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).current_dir(served).env("BESIDE", &self.dir).env("HOME", &self.dir);
        command.env_remove("XDG_STATE_HOME").stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// `systx run OPTIONS -- WORDS`.
    pub fn run(&self, options: &[&str], words: &[&str]) -> Command {
        self.verb(&[&["run", "--only", "."], options, &["--"], words].concat())
    }

    /// A call inside, to the end of the run.
    pub fn call(&self, options: &[&str], kind: &str, target: &str) -> Output {
        self.run(options, &[&self.caller(), "--role", "call", kind, target]).output().unwrap()
    }
}

impl Drop for World<'_> {
    fn drop(&mut self) {
        if self.who == "user" {
            let _ = Command::new("umount").arg("/dev/fuse").status();
        }
    }
}
