//! The command inside: one call, and its error number. It leaves a file in its working directory, whatever
//! comes of the call.

use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};
use std::path::Path;

/// Left behind.
pub const MARK: &str = "mark";

/// `call KIND TARGET`.
pub fn play(words: &[String]) {
    std::fs::write(MARK, "").unwrap();
    match call(&words[0], &words[1]) {
        Ok(()) if matches!(words[0].as_str(), "state" | "holds") => {}
        Ok(()) => println!("ok"),
        Err(e) => match e.raw_os_error() {
            Some(number) => println!("error {number}"),
            None => println!("{e}"),
        },
    }
}

fn call(kind: &str, target: &str) -> Result<()> {
    match kind {
        "tcp" => TcpStream::connect(target).map(drop),
        "udp" => UdpSocket::bind("0.0.0.0:0")?.send_to(b"x", target).map(drop),
        "unix" => UnixStream::connect(target).map(drop),
        "relative" => {
            let target = Path::new(target);
            std::env::set_current_dir(target.parent().unwrap())?;
            UnixStream::connect(target.file_name().unwrap()).map(drop)
        }
        "from-a-removed-directory" => {
            let gone = Path::new(target).with_file_name("gone");
            std::fs::create_dir(&gone)?;
            std::env::set_current_dir(&gone)?;
            std::fs::remove_dir(&gone)?;
            UnixStream::connect("../out").map(drop)
        }
        "by-descriptor" => {
            let target = Path::new(target);
            let dir = std::fs::File::open(target.parent().unwrap())?;
            let name = target.file_name().unwrap().to_str().unwrap();
            UnixStream::connect(format!("/proc/self/fd/{}/{name}", dir.as_raw_fd())).map(drop)
        }
        "abstract" => {
            let name = SocketAddr::from_abstract_name(target.strip_prefix('@').unwrap())?;
            UnixStream::connect_addr(&name).map(drop)
        }
        "sendto" => UnixDatagram::unbound()?.send_to(b"x", target).map(drop),
        "sendmsg" => {
            let socket = UnixDatagram::unbound()?;
            let (to, bytes) = (SocketAddrUnix::new(target)?, [std::io::IoSlice::new(b"x")]);
            let (mut beside, flags) = (Default::default(), rustix::net::SendFlags::empty());
            Ok(rustix::net::sendmsg_addr(socket, &to, &bytes, &mut beside, flags).map(drop)?)
        }
        "vsock" => Ok(rustix::net::socket(AddressFamily::from_raw(40), SocketType::STREAM, None).map(drop)?),
        "own" => own(),
        "state" => state(),
        "holds" => {
            let link = std::fs::read_link(format!("/proc/self/fd/{target}")).unwrap_or_default();
            let socket = link.to_string_lossy().starts_with("socket:");
            println!("{}", if socket { "a socket" } else { "nothing" });
            Ok(())
        }
        other => panic!("{other}"),
    }
}

/// Prints the network of the process, and how it is watched.
fn state() -> Result<()> {
    println!("{}", std::fs::read_link("/proc/self/ns/net")?.display());
    let status = std::fs::read_to_string("/proc/self/status")?;
    for name in ["Seccomp:", "NoNewPrivs:"] {
        println!("{}", status.lines().find(|line| line.starts_with(name)).unwrap());
    }
    Ok(())
}

/// Servers that it starts itself, of every kind, and talks to.
fn own() -> Result<()> {
    for address in ["127.0.0.1:0", "127.1.2.3:0", "[::1]:0"] {
        let server = match TcpListener::bind(address) {
            // Without IPv6.
            Err(e) if address.starts_with('[') && e.kind() != ErrorKind::PermissionDenied => continue,
            server => server?,
        };
        let mut client = TcpStream::connect(server.local_addr()?)?;
        talk(&mut client, &mut server.accept()?.0)?;
    }
    let server = UdpSocket::bind("127.0.0.1:0")?;
    UdpSocket::bind("127.0.0.1:0")?.send_to(b"x", server.local_addr()?)?;
    server.recv(&mut [0])?;
    let beside = std::env::var("BESIDE").unwrap();
    let absolute = std::env::current_dir()?.join("own");
    for path in [Path::new("own"), &absolute, &Path::new(&beside).join("own")] {
        let server = UnixListener::bind(path)?;
        talk(&mut UnixStream::connect(path)?, &mut server.accept()?.0)?;
        std::fs::remove_file(path)?;
        let server = UnixDatagram::bind(path)?;
        UnixDatagram::unbound()?.send_to(b"x", path)?;
        server.recv(&mut [0])?;
        std::fs::remove_file(path)?;
    }
    let name = SocketAddr::from_abstract_name("own")?;
    let server = UnixListener::bind_addr(&name)?;
    talk(&mut UnixStream::connect_addr(&name)?, &mut server.accept()?.0)
}

fn talk(one: &mut impl Write, other: &mut impl Read) -> Result<()> {
    one.write_all(b"word")?;
    let mut heard = [0; 4];
    other.read_exact(&mut heard)?;
    match &heard {
        b"word" => Ok(()),
        _ => Err(Error::from(ErrorKind::InvalidData)),
    }
}
