//! Decoding of requests.
//!
//! Guarantees: no panic on any bytes; what is too short or lacks a terminator is [`Malformed`].

use super::layout::InHeader;
use super::Opcode;
use systx_os::Errno;
use zerocopy::FromBytes;

/// Bytes that are no request of this protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl From<Malformed> for Errno {
    fn from(_: Malformed) -> Errno {
        Errno::IO
    }
}

/// One request: the header, and what follows it, taken piece by piece from the front.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The header.
    pub header: InHeader,
    rest: &'a [u8],
}

impl<'a> Request<'a> {
    /// Splits what one read of the device returned.
    pub fn parse(bytes: &'a [u8]) -> Result<Request<'a>, Malformed> {
        let (header, _) = InHeader::read_from_prefix(bytes).map_err(|_| Malformed)?;
        let extensions = usize::from(header.total_extlen) * 8;
        let end = (header.len as usize).checked_sub(extensions).ok_or(Malformed)?;
        if header.len as usize > bytes.len() {
            return Err(Malformed);
        }
        let rest = bytes.get(size_of::<InHeader>()..end).ok_or(Malformed)?;
        Ok(Request { header, rest })
    }

    /// The thread that waits for the answer, as this process's pid namespace numbers it; 0: none, or none of ours.
    pub fn asker(bytes: &[u8]) -> u32 {
        InHeader::read_from_prefix(bytes).map_or(0, |(header, _)| header.pid)
    }

    /// Returns true for the first request of a connection.
    pub fn is_init(bytes: &[u8]) -> bool {
        InHeader::read_from_prefix(bytes).is_ok_and(|(header, _)| header.opcode == Opcode::Init as u32)
    }

    /// Describes the request, for messages.
    pub fn named(bytes: &[u8]) -> String {
        let opcode = InHeader::read_from_prefix(bytes).map_or(0, |(header, _)| header.opcode);
        Opcode::from_wire(opcode).map_or_else(|| opcode.to_string(), |opcode| format!("{opcode:?}"))
    }

    /// Takes one fixed structure.
    pub fn take<T: FromBytes>(&mut self) -> Result<T, Malformed> {
        let (value, rest) = T::read_from_prefix(self.rest).map_err(|_| Malformed)?;
        self.rest = rest;
        Ok(value)
    }

    /// Takes one string that ends with NUL, without the NUL.
    pub fn text(&mut self) -> Result<&'a [u8], Malformed> {
        let end = self.rest.iter().position(|b| *b == 0).ok_or(Malformed)?;
        let text = &self.rest[..end];
        self.rest = &self.rest[end + 1..];
        Ok(text)
    }

    /// Takes the name of a directory entry: not empty, no `/`, at most 255 bytes.
    ///
    /// # Errors
    /// `ENAMETOOLONG`: the kernel passes up to 1024 bytes, the file systems below take 255.
    pub fn name(&mut self) -> Result<&'a [u8], Errno> {
        checked(self.text()?)
    }

    /// Returns a name, or `.` or `..`: asked for only by a program that opens by handle what the kernel has
    /// forgotten.
    pub fn name_or_dots(&mut self) -> Result<&'a [u8], Errno> {
        match self.text()? {
            dots @ (b"." | b"..") => Ok(dots),
            name => checked(name),
        }
    }

    /// Takes exactly `len` bytes.
    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (bytes, rest) = self.rest.split_at_checked(len).ok_or(Malformed)?;
        self.rest = rest;
        Ok(bytes)
    }
}

fn checked(name: &[u8]) -> Result<&[u8], Errno> {
    match name.len() {
        0 => Err(Errno::IO),
        1..=255 if name.contains(&b'/') || name == b"." || name == b".." => Err(Errno::IO),
        1..=255 => Ok(name),
        _ => Err(Errno::NAMETOOLONG),
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::*;
    use super::*;
    use zerocopy::IntoBytes;

    /// A request as the kernel would send it.
    fn raw(opcode: u32, body: &[u8]) -> Vec<u8> {
        let header = InHeader {
            len: 40 + body.len() as u32,
            opcode,
            unique: 7,
            nodeid: 3,
            uid: 5,
            ..Default::default()
        };
        [header.as_bytes(), body].concat()
    }

    #[test]
    fn a_lookup_is_read_from_its_golden_bytes() {
        let golden: [u8; 45] = [
            45, 0, 0, 0, 1, 0, 0, 0, // len, LOOKUP
            9, 0, 0, 0, 0, 0, 0, 0, // unique
            2, 0, 0, 0, 0, 0, 0, 0, // nodeid
            232, 3, 0, 0, 233, 3, 0, 0, // uid 1000, gid 1001
            77, 0, 0, 0, 0, 0, 0, 0, // pid, extlen, padding
            b'h', b'o', b's', b't', 0,
        ];
        let mut request = Request::parse(&golden).unwrap();
        let h = request.header;
        assert_eq!((h.opcode, h.unique, h.nodeid, h.uid, h.gid, h.pid), (1, 9, 2, 1000, 1001, 77));
        assert_eq!(request.name(), Ok(&b"host"[..]));
        assert_eq!(request.text(), Err(Malformed));
    }

    #[test]
    fn two_names_of_a_rename_follow_its_structure() {
        let body = [Rename2In { newdir: 8, flags: 2, padding: 0 }.as_bytes(), b"old\0new\0"].concat();
        let bytes = raw(45, &body);
        let mut request = Request::parse(&bytes).unwrap();
        let args: Rename2In = request.take().unwrap();
        assert_eq!((args.newdir, args.flags), (8, 2));
        assert_eq!((request.name(), request.name()), (Ok(&b"old"[..]), Ok(&b"new"[..])));
    }

    #[test]
    fn every_truncation_of_a_request_is_malformed_and_never_a_panic() {
        let body = [WriteIn { size: 4, ..Default::default() }.as_bytes(), b"data"].concat();
        let whole = raw(16, &body);
        for len in 0..whole.len() {
            // Cut by the transport: the header's length no longer fits.
            assert!(Request::parse(&whole[..len]).is_err(), "cut at {len}");
            // Cut by a lying header: what it needs is missing.
            let mut short = whole[..len].to_vec();
            if len < 40 {
                continue;
            }
            short[..4].copy_from_slice(&(len as u32).to_ne_bytes());
            let mut request = Request::parse(&short).unwrap();
            let payload = request.take::<WriteIn>().and_then(|w| request.bytes(w.size as usize));
            assert_eq!(payload, Err(Malformed), "cut at {len}");
        }
    }

    #[test]
    fn extensions_are_cut_off_and_may_not_exceed_the_request() {
        let mut bytes = raw(9, b"x\0");
        bytes.extend_from_slice(&[1; 16]);
        let len = bytes.len() as u32;
        bytes[..4].copy_from_slice(&len.to_ne_bytes());
        bytes[36..38].copy_from_slice(&2u16.to_ne_bytes());
        let mut request = Request::parse(&bytes).unwrap();
        assert_eq!(request.name(), Ok(&b"x"[..]));
        assert_eq!(request.bytes(1), Err(Malformed));
        bytes[36..38].copy_from_slice(&9u16.to_ne_bytes());
        assert!(Request::parse(&bytes).is_err());
    }

    #[test]
    fn names_that_no_directory_can_hold_are_refused() {
        let long = [vec![b'a'; 256], vec![0]].concat();
        for (name, error) in [
            (&b"\0"[..], Errno::IO),
            (b"a/b\0", Errno::IO),
            (b".\0", Errno::IO),
            (b"..\0", Errno::IO),
            (b"no end", Errno::IO),
            (&long, Errno::NAMETOOLONG),
        ] {
            assert_eq!(Request::parse(&raw(1, name)).unwrap().name(), Err(error));
            let dots = name.starts_with(b".");
            assert_eq!(Request::parse(&raw(1, name)).unwrap().name_or_dots().is_ok(), dots);
        }
        assert!(Request::parse(&raw(1, &long[1..])).unwrap().name().is_ok());
    }
}
