//! `systx run --hold-output`: the command's output leaves after the commit, or not at all.
//!
//! Owns: the pipes that the command writes to, the thread that reads them, the file that keeps the bytes, and
//! the choice of what is shown in the end. Guarantees: standard output leaves at most once, and only behind
//! the commit point; memory is that of one piece, however much arrives; of several tries only the last one's
//! is kept. Does not: outlive this process: killed between commit and output, the output is lost.
//!
//! Both streams are kept in one file in the order in which they arrive: a byte for the stream, four for the
//! length, the bytes. Each has a pipe of its own, so only the bytes of one stream have an order for certain.
//! Where both lead to the same file or pipe anyway, their order counts, and there is one pipe:
//! [`Stream::Both`].
//!
//! Pipes, not the file itself: a program that opens /dev/stdout anew would begin at the start of the file,
//! and could empty it.

use crate::failure::{bytes, in_words, Cause, Failure, Result};
use crate::report::Ending;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread::JoinHandle;
use systx_os::fuse::EventFd;
use systx_os::{process, streams, Errno};

/// Why an inner run holds nothing back.
pub const PART_OF_ANOTHER: &str =
    "--hold-output is for a transaction of its own, and this run is part of another one: give it to that, or make this one of its own with --sub";

/// The usual capacity of a pipe.
const PIECE_BYTES_MAX: usize = 64 << 10;
const HEADER_BYTES: usize = 5;

/// The stream that a piece belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stream {
    Out = 0,
    Err = 1,
    /// Both streams lead to the same place.
    Both = 2,
}

impl Stream {
    fn from_byte(byte: u8) -> Option<Stream> {
        [Stream::Out, Stream::Err, Stream::Both].into_iter().find(|stream| *stream as u8 == byte)
    }
}

/// The output of one run.
pub struct Output {
    wanted: bool,
    kept: Option<File>,
}

/// Pipes for a command that is about to start.
pub struct Pipes {
    read: Vec<(Stream, OwnedFd)>,
    out: OwnedFd,
    err: OwnedFd,
    file: File,
}

/// The thread that reads what a command prints.
pub struct Reader {
    stop: EventFd,
    thread: JoinHandle<io::Result<File>>,
}

impl Output {
    /// Held back if that is `wanted`.
    pub fn new(wanted: bool) -> Output {
        Output { wanted, kept: None }
    }

    /// Makes the pipes of the next try; forgets the output of the last one.
    pub fn pipes(&mut self) -> Result<Option<Pipes>> {
        self.kept = None;
        if !self.wanted {
            return Ok(None);
        }
        let pipes = Pipes::new()?;
        Ok(Some(pipes))
    }

    /// Takes all that has come. No process of the command is there any more.
    pub fn keep(&mut self, reader: Option<Reader>) -> Result<()> {
        let Some(reader) = reader else { return Ok(()) };
        reader.stop.ring();
        let came = reader.thread.join().map_err(|_| "the reader of its output has a bug: it panicked")?;
        let file = came.map_err(|e| {
            let dir = std::env::temp_dir();
            Failure::new("holding its output back in", in_words(&e))
                .on(bytes(&dir))
                .hint("make room there, or set TMPDIR")
        })?;
        self.kept = Some(file);
        Ok(())
    }

    /// Writes what is to be seen after such an end; an ending that says so if it can't be.
    pub fn leave(self, ending: Ending) -> Ending {
        let Some(file) = self.kept else { return ending };
        match (write_out(file, |stream| shown(&ending, stream)), &ending) {
            (Err(why), Ending::Committed(..)) => Ending::Mute(Box::new(ending), why),
            // Standard error itself is gone, so there is no way to report it.
            _ => ending,
        }
    }
}

/// Returns true if a stream is shown after such an end. Standard error says why a command failed.
fn shown(ending: &Ending, stream: Stream) -> bool {
    match ending {
        Ending::Committed(..) => true,
        Ending::Aborted(_) | Ending::TooLate(_) | Ending::Outside(_) | Ending::Failed(_) => {
            stream != Stream::Out
        }
        // It did not fail: what it printed there is no reason of anything.
        _ => stream == Stream::Err,
    }
}

const HOLDING: &str = "holding its output back";

impl Pipes {
    fn new() -> Result<Pipes> {
        let dir = std::env::temp_dir();
        let file = streams::unnamed_file(&dir).map_err(|e| {
            Failure::new("holding its output back:", Cause::OsWords(e))
                .on(bytes(&dir))
                .hint("set TMPDIR to another directory")
        })?;
        let pipe = || streams::pipe().map_err(|e| Failure::new(HOLDING, Cause::OsWords(e)));
        let (read, out) = pipe()?;
        let (read, err) = if streams::are_one() {
            (vec![(Stream::Both, read)], out.try_clone().map_err(|e| Failure::new(HOLDING, in_words(&e)))?)
        } else {
            let (read_err, err) = pipe()?;
            (vec![(Stream::Out, read), (Stream::Err, read_err)], err)
        };
        Ok(Pipes { read, out, err, file: file.into() })
    }

    /// In place of our own streams, for the process that is started meanwhile.
    pub fn lend(&self) -> Result<streams::Lent> {
        streams::lend(self.out.as_fd(), self.err.as_fd()).map_err(|e| Failure::new(HOLDING, e))
    }

    /// Begins to read. The command has its own ends by now.
    pub fn read(self) -> Result<Reader> {
        let failed = |e: Errno| Failure::new("making an eventfd", e);
        let stop = EventFd::new().map_err(failed)?;
        let until = stop.try_clone().map_err(failed)?;
        let Pipes { read, out, err, mut file } = self;
        drop((out, err));
        let work = move || take(read, &until, &mut file).map(|()| file);
        let thread = std::thread::Builder::new()
            .name("systx-output".into())
            .spawn(work)
            .map_err(|e| Failure::new(HOLDING, e))?;
        Ok(Reader { stop, thread })
    }
}

/// A pipe that has not ended.
struct Open {
    stream: Stream,
    from: File,
    /// So much may still come after the end of the command: what it has left in the pipe. Who else has got
    /// its end may write on.
    left: usize,
}

/// Keeps all that comes, until the pipes are at their ends, or nothing is left in them and `stop` is rung.
fn take(pipes: Vec<(Stream, OwnedFd)>, stop: &EventFd, to: &mut File) -> io::Result<()> {
    let mut open = [None, None];
    for (place, (stream, from)) in open.iter_mut().zip(pipes) {
        *place = Some(Open { stream, left: 0, from: from.into() });
    }
    let mut stopped = false;
    let mut buffer = vec![0; HEADER_BYTES + PIECE_BYTES_MAX];
    while open.iter().any(Option::is_some) {
        let ready = process::wait_readable([stop.as_fd(), end_of(&open[0], stop), end_of(&open[1], stop)]);
        if ready[0] && !stopped {
            stopped = true;
            for open in open.iter_mut().flatten() {
                open.left = streams::pipe_bytes_max(&open.from)?;
            }
        }
        let mut nothing = true;
        for (place, ready) in open.iter_mut().zip([ready[1], ready[2]]) {
            let Some(one) = place.as_mut().filter(|_| ready) else { continue };
            nothing = false;
            let n = read_some(&mut one.from, &mut buffer[HEADER_BYTES..])?;
            put(to, one.stream, &mut buffer, n)?;
            one.left = one.left.saturating_sub(n);
            if n == 0 || (stopped && one.left == 0) {
                *place = None;
            }
        }
        if stopped && nothing {
            break;
        }
    }
    Ok(())
}

/// Where to wait for more of it; of one that has ended the bell answers instead.
fn end_of<'a>(place: &'a Option<Open>, stop: &'a EventFd) -> BorrowedFd<'a> {
    place.as_ref().map_or(stop.as_fd(), |open| open.from.as_fd())
}

fn read_some(from: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match from.read(buffer) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// A piece of `n` bytes, which stand behind the room for its header.
fn put(to: &mut File, stream: Stream, buffer: &mut [u8], n: usize) -> io::Result<()> {
    if n == 0 {
        return Ok(());
    }
    buffer[0] = stream as u8;
    buffer[1..HEADER_BYTES].copy_from_slice(&(n as u32).to_le_bytes());
    to.write_all(&buffer[..HEADER_BYTES + n])
}

/// Writes what is wanted of it to our own streams. The error is the first one; the other stream still gets its part.
fn write_out(mut file: File, wanted: impl Fn(Stream) -> bool) -> Result<(), Cause> {
    let mut gone = [false; 2];
    let mut lost = Ok(());
    let read = each_piece(&mut file, |stream, bytes| {
        // A piece of both streams counts as standard error where standard output is not wanted.
        let to_err = stream == Stream::Err || !wanted(Stream::Out);
        if !wanted(stream) || gone[usize::from(to_err)] {
            return;
        }
        let written = if to_err {
            streams::write_all(io::stderr(), bytes)
        } else {
            streams::write_all(io::stdout(), bytes)
        };
        if let Err(e) = written {
            gone[usize::from(to_err)] = true;
            // A reader that has closed it does not want the rest.
            if lost.is_ok() && e != Errno::PIPE {
                lost = Err(Cause::OsWords(e));
            }
        }
    });
    read.map_err(|e| in_words(&e)).and(lost)
}

/// Calls `f` for each piece, in order.
fn each_piece(file: &mut File, mut f: impl FnMut(Stream, &[u8])) -> io::Result<()> {
    file.rewind()?;
    let mut from = BufReader::with_capacity(PIECE_BYTES_MAX, file);
    let mut bytes = vec![0; PIECE_BYTES_MAX];
    loop {
        let mut header = [0; HEADER_BYTES];
        match from.read_exact(&mut header) {
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            other => other?,
        }
        let [stream, length @ ..] = header;
        let length = u32::from_le_bytes(length) as usize;
        let broken = || io::Error::from(io::ErrorKind::InvalidData);
        let piece = bytes.get_mut(..length).ok_or_else(broken)?;
        from.read_exact(piece)?;
        f(Stream::from_byte(stream).ok_or_else(broken)?, piece);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unnamed() -> File {
        streams::unnamed_file(&std::env::temp_dir()).unwrap().into()
    }

    /// Returns what a reader keeps of the bytes in its pipes.
    fn kept(pipes: Vec<(Stream, OwnedFd)>, stop: &EventFd) -> Vec<(Stream, Vec<u8>)> {
        let mut file = unnamed();
        take(pipes, stop, &mut file).unwrap();
        let mut pieces = Vec::new();
        each_piece(&mut file, |stream, bytes| pieces.push((stream, bytes.to_vec()))).unwrap();
        pieces
    }

    #[test]
    fn both_streams_are_kept_to_their_ends() {
        let (out, to_out) = streams::pipe().unwrap();
        let (err, to_err) = streams::pipe().unwrap();
        let much = vec![b'x'; 3 * PIECE_BYTES_MAX + 1];
        let sent = much.clone();
        let writer = std::thread::spawn(move || {
            streams::write_all(&to_err, b"why").unwrap();
            drop(to_err);
            streams::write_all(&to_out, &sent).unwrap();
        });
        let pieces = kept(vec![(Stream::Out, out), (Stream::Err, err)], &EventFd::new().unwrap());
        writer.join().unwrap();
        let of = |wanted| -> Vec<u8> {
            pieces
                .iter()
                .filter(|(stream, _)| *stream == wanted)
                .flat_map(|(_, bytes)| bytes.clone())
                .collect()
        };
        assert!(of(Stream::Out) == much && of(Stream::Err) == b"why");
        assert!(pieces.iter().all(|(_, bytes)| bytes.len() <= PIECE_BYTES_MAX));
    }

    #[test]
    fn who_still_has_the_end_of_a_dead_command_holds_nobody_up() {
        let (read, kept_open) = streams::pipe().unwrap();
        streams::write_all(&kept_open, b"all").unwrap();
        let stop = EventFd::new().unwrap();
        stop.ring();
        assert_eq!(kept(vec![(Stream::Both, read)], &stop), [(Stream::Both, b"all".to_vec())]);
        drop(kept_open);
    }

    #[test]
    fn who_writes_on_after_the_end_is_not_read_for_ever() {
        let (read, write) = streams::pipe().unwrap();
        let stop = EventFd::new().unwrap();
        stop.ring();
        let room = streams::pipe_bytes_max(&write).unwrap();
        // Ends when the pipe has no reader any more.
        let writer = std::thread::spawn(move || while streams::write_all(&write, b"on and on").is_ok() {});
        let pieces = kept(vec![(Stream::Both, read)], &stop);
        writer.join().unwrap();
        assert!(pieces.iter().map(|(_, bytes)| bytes.len()).sum::<usize>() < room + PIECE_BYTES_MAX);
    }

    #[test]
    fn a_file_that_holds_something_else_is_an_error() {
        for bytes in [&[3, 0, 0, 0, 0][..], &[0, 255, 255, 255, 255], &[0, 2, 0, 0, 0, 1]] {
            let mut file = unnamed();
            file.write_all(bytes).unwrap();
            let told = each_piece(&mut file, |_, _| {});
            assert!(told.is_err(), "{bytes:?}");
        }
    }
}
