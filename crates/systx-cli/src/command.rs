//! The command's start: arguments, environment, directory, tree.
//!
//! Owns: their form for the kernel. Guarantees: arguments and environment are the user's, byte for byte, but
//! for SYSTX_ID, a shell's prompt, and a log, which is of this systx alone. Does not: start anything.

use crate::domains::Mounted;
use crate::failure::{at, Failure, Result};
use crate::logging;
use crate::tree::Tree;
use std::ffi::{CString, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use systx_os::sandbox::mounts;
use systx_os::sandbox::root::{set_attributes, Root};

/// Program and arguments.
pub fn words(command: &[OsString]) -> Result<Vec<CString>> {
    command.iter().cloned().map(c_string).collect()
}

/// Our environment, with the transaction's number and what a prompt needs.
pub fn environment(id: u64, prompt: &[(&str, OsString)]) -> Result<Vec<CString>> {
    let id = OsString::from(format!("SYSTX_ID={id}"));
    // A systx in there would append to the file from inside of the view, and this one from outside: a conflict.
    let is_ours = |name: &OsString| {
        name == "SYSTX_ID"
            || logging::VARIABLES.iter().any(|ours| name == ours)
            || prompt.iter().any(|(ours, _)| name == *ours)
    };
    let inherited = std::env::vars_os().filter(|(name, _)| !is_ours(name));
    let prompt = prompt.iter().map(|(name, value)| (OsString::from(name), value.clone()));
    let env = inherited.chain(prompt).map(|(mut name, value)| {
        name.push("=");
        name.push(value);
        name
    });
    env.chain([id]).map(c_string).collect()
}

/// Our working directory.
pub fn directory() -> Result<CString> {
    let directory = std::env::current_dir()
        .map_err(|e| Failure::new("the working directory", e).hint("change to one that is there"))?;
    c_string(directory.into_os_string())
}

/// The tree that it sees, over these views of the served mounts.
pub fn root(tree: &Tree, lower: &[&Mounted], views: Vec<OwnedFd>) -> Result<Root> {
    for (view, mounted) in views.iter().zip(lower) {
        let set = set_attributes(view, mounted.lower.attributes);
        set.map_err(at(&mounted.lower.point))?;
    }
    let mut all = views;
    for path in &tree.copied {
        all.push(mounts::detached_with_all_below(path).map_err(at(path))?);
    }
    Ok(Root { base: tree.base, mounts: all, steps: tree.steps.clone() })
}

fn c_string(text: OsString) -> Result<CString> {
    CString::new(text.into_vec()).map_err(|e| Failure::at(&e.into_vec(), "NUL byte"))
}
