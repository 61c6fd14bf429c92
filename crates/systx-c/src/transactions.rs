//! Begin, end, and what is between them but files: the names of the papers.

use crate::border::{border, set_errno, Action, In, Out, Text};
use crate::options::{Begin, AGAIN};
use crate::outcome::LEAST_BYTES;
use crate::running::End;
use crate::structures::{systx_options, systx_outcome, systx_token};
use crate::thread;
use crate::world::World;
use libc::{c_int, c_void};
use systx::posix::Errno;

/// Begins a transaction, or joins the one that the thread is in.
#[no_mangle]
pub extern "C" fn sys_xbegin(flags: u32, options: In<systx_options>) -> c_int {
    border(|| thread::begin(&Begin::new(flags, &options)?).map(|()| 0))
}

/// Commits.
#[no_mangle]
pub extern "C" fn sys_xend() -> c_int {
    border(|| thread::end(End::Commit).map(|()| 0))
}

/// Aborts.
#[no_mangle]
pub extern "C" fn sys_xabort() -> c_int {
    border(|| thread::end(End::Abort).map(|()| 0))
}

/// Checks that everything read is still as it was.
#[no_mangle]
pub extern "C" fn sys_xcheck() -> c_int {
    border(|| thread::current()?.check().map(|()| 0))
}

/// Reports on the thread's transaction, or on its last.
#[no_mangle]
pub extern "C" fn sys_xoutcome(mut outcome: Out<systx_outcome>) -> c_int {
    border(|| thread::outcome(|found| outcome.put_sized(&found.for_c(), LEAST_BYTES)).map(|()| 0))
}

/// Takes the thread out of its transaction, for a token.
#[no_mangle]
pub extern "C" fn sys_xpause(mut token: Out<systx_token>) -> c_int {
    border(|| {
        token.is_there()?;
        token.put(thread::pause()?).map(|()| 0)
    })
}

/// Puts the thread into a paused transaction.
#[no_mangle]
pub extern "C" fn sys_xresume(token: In<systx_token>) -> c_int {
    border(|| thread::resume(token.get()?).map(|()| 0))
}

/// Forgets what was done, and sleeps until something that was read changes.
#[no_mangle]
pub extern "C" fn sys_xretry() -> c_int {
    border(|| thread::retry().map(|()| 0))
}

fn act(end: End, function: Option<extern "C" fn(*mut c_void)>, with: *mut c_void) -> c_int {
    border(|| {
        let action = Action::new(function, with)?;
        thread::current()?.act(end, action).map(|()| 0)
    })
}

/// Has a function run when the thread's transaction has committed.
#[no_mangle]
pub extern "C" fn systx_on_commit(action: Option<extern "C" fn(*mut c_void)>, with: *mut c_void) -> c_int {
    act(End::Commit, action, with)
}

/// The same, with a name that is noted in the area until it has run.
#[no_mangle]
pub extern "C" fn systx_on_commit_named(
    name: Text,
    action: Option<extern "C" fn(*mut c_void)>,
    with: *mut c_void,
) -> c_int {
    border(|| {
        let name = String::from_utf8_lossy(name.bytes()?).into_owned();
        thread::current()?.act_named(name, Action::new(action, with)?).map(|()| 0)
    })
}

/// Has a function run when the thread's transaction, or the part of it, was aborted.
#[no_mangle]
pub extern "C" fn systx_on_abort(action: Option<extern "C" fn(*mut c_void)>, with: *mut c_void) -> c_int {
    act(End::Abort, action, with)
}

/// Sets the thread's transaction aside.
#[no_mangle]
pub extern "C" fn systx_push() -> c_int {
    border(|| thread::push().map(|()| 0))
}

/// Goes back to it.
#[no_mangle]
pub extern "C" fn systx_pop() -> c_int {
    border(|| thread::pop().map(|()| 0))
}

/// Makes the checkpoints that are waited with.
#[no_mangle]
pub extern "C" fn systx_finish() -> c_int {
    border(|| {
        if let Some(world) = World::now() {
            world.users.finish();
        }
        Ok(0)
    })
}

/// SYSTX_RETRY: what such a function returns to wait.
const RETRY: c_int = c_int::MIN;

/// A function of C that is run as a transaction.
pub type Work = extern "C" fn(*mut c_void) -> c_int;

/// Runs a function as a transaction, after a conflict again.
#[no_mangle]
pub extern "C" fn systx_atomically(
    flags: u32,
    options: In<systx_options>,
    work: Option<Work>,
    with: *mut c_void,
) -> c_int {
    let mut retries = 0;
    let known = border(|| {
        work.ok_or(Errno::FAULT)?;
        retries = Begin::new(flags, &options)?.retries;
        Ok(0)
    });
    let (0, Some(work)) = (known, work) else { return -1 };
    let joins = thread::depth() > 0;
    loop {
        if border(|| thread::begin(&Begin::new(flags | AGAIN, &options)?).map(|()| 0)) != 0 {
            return -1;
        }
        let depth = thread::depth();
        // Outside of the border: it may do everything that C may do.
        let said = work(with);
        if thread::depth() != depth {
            // It has ended what it did not begin.
            set_errno(libc::EINVAL);
            return -1;
        }
        let lost = thread::current().is_ok_and(|running| running.is_lost());
        match said {
            0 if sys_xend() == 0 => return 0,
            0 => {}
            RETRY if !joins && !lost => {
                if sys_xretry() != 0 {
                    return -1;
                }
                continue;
            }
            said => {
                sys_xabort();
                if !lost {
                    return said;
                }
                set_errno(libc::ECANCELED);
            }
        }
        if joins || retries == 0 || !thread::can_retry() {
            return -1;
        }
        retries -= 1;
    }
}

/// Returns the version of the library, as SYSTX_VERSION is that of the header.
#[no_mangle]
pub extern "C" fn systx_version() -> u32 {
    VERSION
}

/// Major, minor and patch number, as of the package.
const VERSION: u32 = number(env!("CARGO_PKG_VERSION_MAJOR")) << 16
    | number(env!("CARGO_PKG_VERSION_MINOR")) << 8
    | number(env!("CARGO_PKG_VERSION_PATCH"));

const fn number(digits: &str) -> u32 {
    let (digits, mut at, mut value) = (digits.as_bytes(), 0, 0);
    while at < digits.len() {
        value = value * 10 + (digits[at] - b'0') as u32;
        at += 1;
    }
    value
}
