//! One random act of an outsider, and what the outsider may expect of it afterwards.

use super::verbs::PATHS;
use systx_os::{Errno, Handle, Open, Os, Rename};
use systx_sim::machine::{Machine, SimFd, SimOs};

/// Bytes that no other process writes.
pub(super) const HIS: &[u8] = b"these bytes are the outsider's";
/// A mode that no other process sets.
pub(super) const HIS_MODE: u32 = 0o711;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Create,
    CreateInside,
    Mkdir,
    Write,
    /// Through a descriptor that the outsider has had since before.
    WriteOpen,
    Append,
    Truncate,
    Chmod,
    Unlink,
    Rmdir,
    RenameAway,
    RenameParent,
    ReplaceByFile,
    ReplaceByDirectory,
}

const KINDS: [Kind; 14] = [
    Kind::Create,
    Kind::CreateInside,
    Kind::Mkdir,
    Kind::Write,
    Kind::WriteOpen,
    Kind::Append,
    Kind::Truncate,
    Kind::Chmod,
    Kind::Unlink,
    Kind::Rmdir,
    Kind::RenameAway,
    Kind::RenameParent,
    Kind::ReplaceByFile,
    Kind::ReplaceByDirectory,
];

/// The outsider's claim after the act.
#[derive(Clone, Debug)]
pub(super) enum Claim {
    /// This object is under this name of this directory, with the outsider's bytes if it wrote some, or it is
    /// kept aside.
    There { object: Handle, dir: Handle, name: Vec<u8>, bytes: bool },
    /// This object has the outsider's bytes, wherever it is.
    Bytes(Handle),
    /// This object has the outsider's mode.
    Mode(Handle),
    /// This object is not under this name of this directory.
    Gone { object: Handle, dir: Handle, name: Vec<u8> },
    /// Nothing that could be distinguished from the transaction's own changes.
    Nothing,
}

/// An act that the outsider has done.
#[derive(Clone, Debug)]
pub(super) struct Done {
    pub claim: Claim,
    /// Names that the outsider gave or took, and objects that it changed, by path.
    pub touched: Vec<String>,
    /// Another name of a directory, and its name before.
    pub renamed: Option<(String, String)>,
}

/// Any act on any name.
pub(super) fn any(rng: &mut fastrand::Rng) -> (Kind, &'static str) {
    (KINDS[rng.usize(0..KINDS.len())], PATHS[rng.usize(0..PATHS.len())])
}

pub(super) struct Outsider {
    os: SimOs,
    pub kind: Kind,
    pub path: String,
    open: Option<SimFd>,
}

impl Outsider {
    pub(super) fn new(machine: &Machine, kind: Kind, path: &str) -> Outsider {
        let (os, path) = (machine.outsider("outsider"), path.to_owned());
        let open = (kind == Kind::WriteOpen).then(|| os.open_path(0, &path, Open::ReadWrite).ok()).flatten();
        Outsider { os, kind, path, open }
    }

    fn dir(&self, path: &str) -> Result<(SimFd, Vec<u8>), Errno> {
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        Ok((self.os.open_path(0, above, Open::Directory)?, name.as_bytes().to_vec()))
    }

    fn there(&self, path: &str, bytes: bool) -> Result<Claim, Errno> {
        let (dir, name) = self.dir(path)?;
        let (object, dir) = (self.os.handle_at(&dir, &name)?, self.os.handle(&dir)?);
        Ok(Claim::There { object, dir, name, bytes })
    }

    /// Acts. `Err`: nothing was changed.
    pub(super) fn act(&self) -> Result<Done, Errno> {
        let (os, path) = (&self.os, self.path.as_str());
        let (dir, name) = self.dir(path)?;
        let done = |claim, touched: &[&str]| {
            Ok(Done { claim, touched: touched.iter().map(|p| p.to_string()).collect(), renamed: None })
        };
        let handle = || os.handle_at(&dir, &name);
        let gone = |object| -> Result<Claim, Errno> {
            Ok(Claim::Gone { object, dir: os.handle(&dir)?, name: name.clone() })
        };
        match self.kind {
            Kind::Create => {
                os.pwrite(&os.create(&dir, &name, 0o600)?, HIS, 0)?;
                done(self.there(path, true)?, &[path])
            }
            Kind::CreateInside => {
                let inside = os.open(&dir, &name, Open::Directory)?;
                os.pwrite(&os.create(&inside, b"his", 0o600)?, HIS, 0)?;
                let path = format!("{path}/his");
                done(self.there(&path, true)?, &[&path])
            }
            Kind::Mkdir => {
                os.mkdir(&dir, &name, 0o711)?;
                done(self.there(path, false)?, &[path])
            }
            Kind::Write | Kind::Append => {
                let at = if self.kind == Kind::Append { os.stat_at(&dir, &name)?.size } else { 520 };
                let object = handle()?;
                os.pwrite(&os.open(&dir, &name, Open::Write)?, HIS, at)?;
                done(Claim::Bytes(object), &[path])
            }
            Kind::WriteOpen => {
                let file = self.open.as_ref().ok_or(Errno::NOENT)?;
                os.pwrite(file, HIS, 100)?;
                done(Claim::Bytes(os.handle(file)?), &[path])
            }
            Kind::Truncate => {
                os.truncate(&os.open(&dir, &name, Open::Write)?, 3)?;
                done(Claim::Nothing, &[path])
            }
            Kind::Chmod => {
                let object = handle()?;
                os.chmod(&os.open(&dir, &name, Open::Path)?, HIS_MODE)?;
                done(Claim::Mode(object), &[path])
            }
            Kind::Unlink | Kind::Rmdir => {
                let object = handle()?;
                match self.kind {
                    Kind::Unlink => os.unlink(&dir, &name)?,
                    _ => os.rmdir(&dir, &name)?,
                }
                done(gone(object)?, &[path])
            }
            Kind::RenameAway => {
                let o = os.open_path(0, "o", Open::Directory)?;
                os.rename((&dir, &name), (&o, b"away"), Rename::NoReplace)?;
                done(self.there("o/away", false)?, &[path, "o/away"])
            }
            Kind::RenameParent => {
                let (above, moved) = match path.rsplit_once('/') {
                    Some((above, _)) => (above.to_owned(), format!("{above}Z")),
                    None => return Err(Errno::INVAL),
                };
                let ((dir, old), (_, new)) = (self.dir(&above)?, self.dir(&moved)?);
                os.rename((&dir, &old), (&dir, &new), Rename::NoReplace)?;
                let claim = self.there(&moved, false)?;
                let touched = vec![above.clone(), moved.clone()];
                Ok(Done { claim, touched, renamed: Some((moved, above)) })
            }
            Kind::ReplaceByFile | Kind::ReplaceByDirectory => {
                let o = os.open_path(0, "o", Open::Directory)?;
                let (mine, with): (&[u8], _) = match self.kind {
                    Kind::ReplaceByFile => (b"mine", "o/mine"),
                    _ => (b"dir", "o/dir"),
                };
                os.rename((&o, mine), (&dir, &name), Rename::Replace)?;
                done(self.there(path, self.kind == Kind::ReplaceByFile)?, &[path, with])
            }
        }
    }
}
