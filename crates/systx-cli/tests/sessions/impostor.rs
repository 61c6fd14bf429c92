//! A socket in the area that is no session daemon's.

use super::alone::place::{Place, AREA};
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::thread::JoinHandle;

/// Gives each client one answer, and hangs up at its next message, as on one that it does not understand.
pub struct Impostor {
    place: PathBuf,
    serving: JoinHandle<()>,
}

impl Impostor {
    /// Answers with this; empty: hangs up at once.
    pub fn new(p: &Place, answer: &str) -> Impostor {
        let place = p.mount.join(AREA).join(format!("open/4711.{}", std::process::id()));
        let listener = UnixListener::bind(&place).unwrap();
        let json = answer.as_bytes().to_vec();
        let serving = std::thread::spawn(move || {
            for client in listener.incoming().map(Result::unwrap) {
                match message(&client).as_deref() {
                    Some(b"end") => return,
                    Some(_) if !json.is_empty() => {
                        let len = u32::try_from(json.len()).unwrap().to_le_bytes();
                        (&client).write_all(&[&len[..], &json].concat()).unwrap();
                        let _ = message(&client);
                    }
                    _ => {}
                }
            }
        });
        Impostor { place, serving }
    }

    pub fn end(self) {
        UnixStream::connect(&self.place).unwrap().write_all(b"\x03\0\0\0end").unwrap();
        self.serving.join().unwrap();
        std::fs::remove_file(&self.place).unwrap();
        // As the last daemon does; another one may still have its own there.
        let _ = std::fs::remove_dir(self.place.parent().unwrap());
    }
}

/// What a client says, if it says something.
fn message(mut client: &UnixStream) -> Option<Vec<u8>> {
    let mut len = [0; 4];
    client.read_exact(&mut len).ok()?;
    let mut json = vec![0; u32::from_le_bytes(len) as usize];
    client.read_exact(&mut json).ok()?;
    Some(json)
}
