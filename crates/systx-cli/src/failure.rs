//! Why something could not be done: what was being done, to which path, and the cause.
//!
//! Owns: [`Failure`], the one error of this crate, and its sentence: doing, path, cause, and after a semicolon what to
//! do about it. Guarantees: the kernel's error number stays one, and is not taken apart from text. Does not: say on
//! which side of the commit point a run is (an [`Ending`](crate::report::Ending) does).

use crate::hint;
use crate::words::shown;
use std::borrow::Cow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use systx_engine::log::LogError;
use systx_engine::outcome::{Conflict, VerbError};
use systx_engine::undo::area::ImageError;
use systx_os::{error_text, Errno};

/// Result of what can fail before the commit.
pub type Result<T, E = Failure> = core::result::Result<T, E>;

/// Why something could not be done, as a fragment of a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure(Box<Parts>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Parts {
    /// The operation that failed; empty: the cause says it.
    doing: Cow<'static, str>,
    /// To which path, if to any.
    path: Vec<u8>,
    cause: Cause,
    /// The next step; empty: none is known.
    hint: Cow<'static, str>,
}

/// The cause of a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The kernel's answer, shown with its number.
    Os(Errno),
    /// The kernel's answer, shown in words only.
    OsWords(Errno),
    /// A conflict with another party.
    Conflict(Box<Conflict>),
    /// A refusal, with the reason.
    Refused(Cow<'static, str>),
}

impl Failure {
    /// Makes one of what was being done.
    pub fn new(doing: impl Into<Cow<'static, str>>, cause: impl Into<Cause>) -> Failure {
        let (doing, cause) = (doing.into(), cause.into());
        Failure(Box::new(Parts { doing, path: Vec::new(), cause, hint: "".into() }))
    }

    /// Makes one about a path or a mount point.
    pub fn at(path: &[u8], cause: impl Into<Cause>) -> Failure {
        Failure::new("", cause).on(path)
    }

    /// Makes one about a directory whose mount is not among those that the kernel lists.
    pub fn on_no_mount(dir: &[u8]) -> Failure {
        Failure::from(format!("{} is on none of the mounts in /proc/self/mountinfo", shown(dir))).hint(
            "in a chroot make its root a mount (mount --bind ROOT ROOT), \
             and where something has been mounted just now, run again",
        )
    }

    /// With the path that it was done to.
    pub fn on(mut self, path: &[u8]) -> Failure {
        self.0.path = path.to_vec();
        self
    }

    /// With what to do about it.
    pub fn hint(mut self, hint: impl Into<Cow<'static, str>>) -> Failure {
        self.0.hint = hint.into();
        self
    }

    /// With the next step after an error of the kernel, where one is known.
    pub fn with_step(self) -> Failure {
        match self.errno().and_then(hint::step) {
            Some(step) => self.hint(step),
            None => self,
        }
    }

    /// Returns the kernel's answer, if that is the cause.
    pub fn errno(&self) -> Option<Errno> {
        match self.0.cause {
            Cause::Os(errno) | Cause::OsWords(errno) => Some(errno),
            Cause::Conflict(_) | Cause::Refused(_) => None,
        }
    }
}

/// A place that is left out of a tree.
#[derive(Clone, Debug)]
pub struct LeftOut {
    /// Where.
    pub point: Vec<u8>,
    /// Why.
    pub why: Failure,
}

/// Makes a closure for `map_err`: an error of a system call with what was being done and the next step.
pub fn failed<E: Into<Cause>>(doing: &'static str) -> impl Fn(E) -> Failure {
    move |e| Failure::new(doing, e).with_step()
}

/// Makes a closure for `map_err`: an error with the path that it is about.
pub fn at<E: Into<Cause>>(path: &[u8]) -> impl Fn(E) -> Failure + '_ {
    move |e| Failure::at(path, e)
}

/// An error of a verb of the engine with what was being done and the next step.
pub fn verb_failed(doing: &'static str, error: VerbError) -> Failure {
    match error {
        VerbError::Os(e) => Failure::new(doing, e).with_step(),
        VerbError::Doomed(conflict) => Failure::new(doing, Cause::Conflict(conflict)),
    }
}

/// Returns the bytes of a path.
pub fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

/// The kernel's answer in words only, where an I/O error of the library has one.
pub fn in_words(error: &std::io::Error) -> Cause {
    match Errno::from_io_error(error) {
        Some(errno) => Cause::OsWords(errno),
        None => Cause::Refused(error.to_string().into()),
    }
}

impl core::fmt::Display for Failure {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Parts { doing, path, cause, hint } = &*self.0;
        f.write_str(doing)?;
        if !path.is_empty() {
            let space = if doing.is_empty() { "" } else { " " };
            write!(f, "{space}{}", shown(path))?;
        }
        if !(doing.is_empty() && path.is_empty()) {
            f.write_str(": ")?;
        }
        write!(f, "{cause}")?;
        if hint.is_empty() {
            Ok(())
        } else {
            write!(f, "; {}", hint)
        }
    }
}

impl core::fmt::Display for Cause {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Cause::Os(errno) => write!(f, "{errno}"),
            Cause::OsWords(errno) => f.write_str(&error_text(*errno)),
            Cause::Conflict(conflict) => write!(f, "{conflict}"),
            Cause::Refused(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Failure {}

impl From<Errno> for Cause {
    fn from(errno: Errno) -> Cause {
        Cause::Os(errno)
    }
}

impl From<std::io::Error> for Cause {
    fn from(error: std::io::Error) -> Cause {
        match Errno::from_io_error(&error) {
            Some(errno) => Cause::Os(errno),
            None => Cause::Refused(error.to_string().into()),
        }
    }
}

/// Errors of the engine are shown in its words.
macro_rules! of_the_engine {
    ($($error:ty),*) => {$(
        impl From<$error> for Cause {
            fn from(error: $error) -> Cause {
                Cause::Refused(error.to_string().into())
            }
        }
    )*};
}

of_the_engine!(ImageError, LogError);

impl From<String> for Cause {
    fn from(why: String) -> Cause {
        Cause::Refused(why.into())
    }
}

impl From<&'static str> for Cause {
    fn from(why: &'static str) -> Cause {
        Cause::Refused(why.into())
    }
}

/// A refusal whose reason is a sentence of its own.
impl From<String> for Failure {
    fn from(why: String) -> Failure {
        Failure::new("", why)
    }
}

/// A refusal whose reason is a sentence of its own.
impl From<&'static str> for Failure {
    fn from(why: &'static str) -> Failure {
        Failure::new("", why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_follows_where_one_is_known() {
        assert_eq!(
            failed::<Errno>("opening /dev/null")(Errno::MFILE).to_string(),
            "opening /dev/null: Too many open files (os error 24); raise its limit on open files (ulimit -n)"
        );
        assert_eq!(
            failed::<Errno>("forking")(Errno::BUSY).to_string(),
            "forking: Device or resource busy (os error 16)"
        );
    }

    #[test]
    fn a_sentence_has_what_was_done_and_to_which_path() {
        let all = [
            (Failure::from("no"), "no"),
            (Failure::new("asking", "no").hint("ask again"), "asking: no; ask again"),
            (Failure::at(b"/a\n", Errno::IO), "\"/a\\n\": Input/output error (os error 5)"),
            (Failure::new("--dir", Cause::OsWords(Errno::IO)).on(b"/a"), "--dir /a: Input/output error"),
        ];
        for (failure, sentence) in all {
            assert_eq!(failure.to_string(), sentence);
        }
    }

    #[test]
    fn an_error_of_the_library_keeps_its_number() {
        let error = || std::io::Error::from_raw_os_error(Errno::IO.raw_os_error());
        assert_eq!(Failure::new("reading", error()).errno(), Some(Errno::IO));
        assert_eq!(Failure::new("reading", in_words(&error())).errno(), Some(Errno::IO));
        let other = std::io::Error::other("why");
        assert_eq!(Failure::new("reading", in_words(&other)).to_string(), "reading: why");
    }
}
