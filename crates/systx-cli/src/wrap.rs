//! `systx wrap NAME…`: programs that run as transactions whenever they are started.
//!
//! Owns: small shell scripts with the programs' names, in a directory that stands first on the path.
//! Guarantees: a script exists whole or not at all; only files that it wrote are replaced or removed; nothing
//! is written unless all names can be. Does not: change a user's path, or the program.
//!
//! The program is looked up when the script is written, as update-alternatives does it: a search at each
//! start could find another script of ours. Inside a transaction the program joins it, as every `systx run`
//! does.

use crate::args::Wrap;
use crate::failure::{in_words, Failure, Result};
use crate::hooks;
use crate::status::{Answer, Said};
use crate::words::shown;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const SHEBANG: &[u8] = b"#!/bin/sh\n";
/// Every script has this line; a file without it is not ours.
const MARK: &str = "# Written by `systx wrap`; removed by `systx wrap --remove`.";
/// Below HOME.
const DIR: &str = ".local/lib/systx/wrap";

/// `systx wrap`.
pub fn wrap(args: &Wrap) -> Answer {
    let dir = directory(args)?;
    match (args.list, args.remove) {
        (true, _) => list(&dir),
        (_, true) => remove(&dir, &args.names),
        _ => write(args, &dir),
    }
}

fn directory(args: &Wrap) -> Result<PathBuf> {
    let home = || std::env::var_os("HOME").filter(|home| !home.is_empty());
    let dir = match &args.dir {
        Some(dir) => dir.clone(),
        None => {
            Path::new(&home().ok_or_else(|| Failure::from("HOME is not set").hint("say where with --dir"))?)
                .join(DIR)
        }
    };
    std::path::absolute(&dir).map_err(named(&dir))
}

fn write(args: &Wrap, dir: &Path) -> Answer {
    let systx = hooks::this_program().map_err(|e| Failure::new("", e))?;
    let mut scripts = Vec::new();
    for name in &args.names {
        let program = program(dir, name)?;
        // Another one of that name would be as little use inside of a transaction.
        if same_file(&program, &systx) || Some(name.as_os_str()) == systx.file_name() {
            return Err(
                Failure::from("systx is no program to wrap").hint("name the programs that it is to run")
            );
        }
        let at = dir.join(name);
        may_be_ours(&at)?;
        scripts.push((at, script(args, &systx, &program), program));
    }
    std::fs::create_dir_all(dir).map_err(named(dir))?;
    let mut out = String::new();
    for (at, text, program) in &scripts {
        put(at, text).map_err(named(at))?;
        out += &format!("{}: runs {} as a transaction\n", path(at), path(program));
    }
    if !scripts.iter().all(|(at, ..)| is_found_first(at)) {
        out += "Put that directory first on your path, for instance by this line in ~/.profile:\n";
        out += &format!("  PATH={}:$PATH\n", String::from_utf8_lossy(&quoted(dir.as_os_str())));
    }
    Ok(Said { text: out, well: true })
}

/// The program that a name stands for: the first on the path that is no script of ours.
fn program(dir: &Path, name: &OsStr) -> Result<PathBuf> {
    let bytes = name.as_bytes();
    if bytes.is_empty() || bytes.contains(&b'/') || bytes.starts_with(b".") {
        return Err(Failure::at(bytes, "name a program as it is typed, without a directory"));
    }
    let found = on_path(name).find(|at| at.parent() != Some(dir) && !is_ours(at));
    found.ok_or_else(|| {
        Failure::at(bytes, "there is no such program on the path").hint("install it first, or check PATH")
    })
}

fn on_path(name: &OsStr) -> impl Iterator<Item = PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs: Vec<_> = std::env::split_paths(&path).filter(|dir| dir.is_absolute()).collect();
    let name = name.to_os_string();
    let is_program = |at: &PathBuf| {
        std::fs::metadata(at).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    dirs.into_iter().map(move |dir| dir.join(&name)).filter(is_program)
}

/// Returns true if the name already leads to the script.
fn is_found_first(at: &Path) -> bool {
    at.file_name().and_then(|name| on_path(name).next()).is_some_and(|first| same_file(&first, at))
}

fn same_file(a: &Path, b: &Path) -> bool {
    match (a.canonicalize(), b.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        _ => false,
    }
}

fn script(args: &Wrap, systx: &Path, program: &Path) -> Vec<u8> {
    let mut words = vec![systx.as_os_str().to_os_string(), "run".into()];
    if args.area.area_name != ".systx" {
        words.extend(["--area-name".into(), args.area.area_name.clone()]);
    }
    for dir in &args.only {
        words.extend(["--only".into(), dir.clone().into_os_string()]);
    }
    if args.retry > 0 {
        words.extend(["--retry".into(), args.retry.to_string().into()]);
    }
    words.extend(["--".into(), program.as_os_str().to_os_string()]);
    let words: Vec<_> = words.iter().map(|word| quoted(word)).collect();
    [SHEBANG, MARK.as_bytes(), b"\nexec ", &words.join(&b' '), b" \"$@\"\n"].concat()
}

/// A word as a shell takes it.
fn quoted(word: &OsStr) -> Vec<u8> {
    let bytes = word.as_bytes();
    let plain = |b: &u8| b.is_ascii_alphanumeric() || b"/._-+:@%,".contains(b);
    if !bytes.is_empty() && bytes.iter().all(plain) {
        return bytes.to_vec();
    }
    let parts: Vec<_> = bytes.split(|b| *b == b'\'').collect();
    [&b"'"[..], &parts.join(&b"'\\''"[..]), b"'"].concat()
}

/// Writes a script whole or not at all: a user may start it at this moment.
fn put(at: &Path, text: &[u8]) -> io::Result<()> {
    let (mut file, new) = new_file(at)?;
    let done = file
        .write_all(text)
        .and_then(|()| file.set_permissions(std::fs::Permissions::from_mode(0o755)))
        .and_then(|()| std::fs::rename(&new, at));
    if done.is_err() {
        let _ = std::fs::remove_file(&new);
    }
    done
}

/// Makes a file beside a script, under a fresh name.
fn new_file(at: &Path) -> io::Result<(File, PathBuf)> {
    let mut number = 0u32;
    loop {
        let new = at.with_file_name(format!(".systx-wrap.{}.{number}", std::process::id()));
        match File::create_new(&new) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => number += 1,
            made => return made.map(|file| (file, new)),
        }
    }
}

/// Only a regular file is opened, since a FIFO would wait for its writer, and of a large program only the
/// beginning is read.
fn is_ours(at: &Path) -> bool {
    let first = || -> io::Result<Vec<u8>> {
        if !std::fs::metadata(at)?.is_file() {
            return Ok(Vec::new());
        }
        let mut text = Vec::new();
        File::open(at)?.take(SHEBANG.len() as u64 + MARK.len() as u64 + 1).read_to_end(&mut text)?;
        Ok(text)
    };
    first().is_ok_and(|text| text == [SHEBANG, MARK.as_bytes(), b"\n"].concat())
}

/// An error where something stands that is not ours.
fn may_be_ours(at: &Path) -> Result<()> {
    match std::fs::symlink_metadata(at) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(named(at)(e)),
        Ok(meta) if meta.is_file() && is_ours(at) => Ok(()),
        Ok(_) => Err(Failure::from(format!("{} was not written by `systx wrap`: left alone", path(at)))
            .hint("move it away first, or choose another place with --dir")),
    }
}

fn list(dir: &Path) -> Answer {
    let names = match std::fs::read_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
        names => names
            .and_then(|names| names.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<_>>())
            .map_err(named(dir))?,
    };
    let mut ours: Vec<_> = names.into_iter().filter(|at| is_ours(at)).collect();
    ours.sort();
    let mut out = String::new();
    for at in &ours {
        let text = std::fs::read(at).map_err(named(at))?;
        let line = text.split(|b| *b == b'\n').nth(2).unwrap_or_default();
        let command =
            line.strip_prefix(b"exec ").and_then(|line| line.strip_suffix(b" \"$@\"")).unwrap_or(line);
        out += &format!("{}: {}\n", path(at), shown(command));
    }
    if ours.is_empty() {
        out = format!("{}: nothing is wrapped\n", path(dir));
    }
    Ok(Said { text: out, well: true })
}

fn remove(dir: &Path, names: &[OsString]) -> Answer {
    let all: Vec<_> = names.iter().map(|name| dir.join(name)).collect();
    for (at, name) in all.iter().zip(names) {
        if name.as_bytes().contains(&b'/') || std::fs::symlink_metadata(at).is_err() {
            let name = shown(name.as_bytes());
            let why = format!("{name} is not wrapped in {}", path(dir));
            return Err(Failure::from(why).hint("`systx wrap --list` shows what is"));
        }
        may_be_ours(at)?;
    }
    let mut out = String::new();
    for at in &all {
        std::fs::remove_file(at).map_err(named(at))?;
        out += &format!("removed {}\n", path(at));
    }
    // Not while others are there.
    let _ = std::fs::remove_dir(dir);
    Ok(Said { text: out, well: true })
}

fn path(at: &Path) -> String {
    shown(at.as_os_str().as_bytes())
}

/// Makes a closure for `map_err`.
fn named(at: &Path) -> impl Fn(io::Error) -> Failure + '_ {
    |e| Failure::at(at.as_os_str().as_bytes(), in_words(&e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_every_word_as_it_was() {
        let words = ["plain/-_.", "", "a b", "it's", "$HOME `x` \"y\" \\", "\n*?~"];
        let line: Vec<_> = words.iter().map(|word| quoted(OsStr::new(word))).collect();
        let script = [b"printf '%s\\0' ", &line.join(&b' ')[..]].concat();
        let output =
            std::process::Command::new("sh").arg("-c").arg(OsStr::from_bytes(&script)).output().unwrap();
        let came: Vec<_> = output.stdout.split(|b| *b == 0).map(<[u8]>::to_vec).collect();
        let sent: Vec<_> = words.iter().chain([&""]).map(|word| word.as_bytes().to_vec()).collect();
        assert_eq!(came, sent);
    }
}
