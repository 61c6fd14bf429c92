//! A directory service that keeps each entry in a file, as OpenLDAP's back_ldif does, and moves subtrees at once.
//!
//! - `cargo run -p systx --example ldif -- add DIR DN` adds an entry; its attributes are lines on standard input.
//! - `… move DIR DN NEW-DN` gives an entry another name, with everything below it (modrdn).
//! - `… search DIR DN` prints the names of all entries from there on down, each checked, as of one moment.
//!
//! The entry `ou=people,dc=org` is the file `dc=org/ou=people.ldif`, and entries below it are in the directory
//! `dc=org/ou=people`. So a move renames a directory and a file, and writes the name into the file. With plain calls a
//! reader meets children without a parent, and a crash makes that last.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use systx::{Options, Systx, Transaction};

fn invalid(what: &str, name: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{name}: {what}"))
}

/// Where an entry and those below it are: its file is this and `.ldif`.
fn place(base: &Path, dn: &str) -> io::Result<PathBuf> {
    let mut place = base.to_owned();
    for rdn in dn.rsplit(',') {
        // back_ldif escapes such names; here they are refused.
        if !rdn.contains('=') || rdn.starts_with('.') || rdn.contains(['/', '\\', '\n']) {
            return Err(invalid("no name of an entry", dn));
        }
        place.push(rdn);
    }
    Ok(place)
}

/// Name and parent.
fn split(dn: &str) -> (&str, &str) {
    dn.split_once(',').unwrap_or((dn, ""))
}

fn file_of(place: &Path) -> PathBuf {
    let mut file = place.as_os_str().to_owned();
    file.push(".ldif");
    file.into()
}

fn add(tx: &Transaction, base: &Path, dn: &str, attributes: &str) -> io::Result<()> {
    let place = place(base, dn)?;
    let (rdn, parent) = split(dn);
    if tx.try_exists(file_of(&place))? {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    if !parent.is_empty() {
        let above = place.parent().expect("it is below its parent");
        // A parent that is removed meanwhile is a conflict.
        tx.metadata(file_of(above))?;
        tx.create_dir_all(above)?;
    }
    let (attribute, value) = rdn.split_once('=').expect("checked by place()");
    tx.write(file_of(&place), format!("dn: {rdn}\n{attribute}: {value}\n{attributes}"))
}

fn rename(tx: &Transaction, base: &Path, dn: &str, new_dn: &str) -> io::Result<()> {
    let ((old_rdn, _), (rdn, parent)) = (split(dn), split(new_dn));
    let (old, new) = (place(base, dn)?, place(base, new_dn)?);
    if tx.try_exists(file_of(&new))? {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    if !parent.is_empty() {
        tx.metadata(file_of(&place(base, parent)?))?;
        tx.create_dir_all(new.parent().expect("it is below its parent"))?;
    }
    // The entry says its name twice.
    let said = |rdn: &str| format!("dn: {rdn}\n{}\n", rdn.replacen('=', ": ", 1));
    let text = tx.read_to_string(file_of(&old))?;
    let rest = text.strip_prefix(&said(old_rdn)).ok_or_else(|| invalid("its file is another's", dn))?;
    tx.write(file_of(&old), said(rdn) + rest)?;
    tx.rename(file_of(&old), file_of(&new))?;
    if tx.try_exists(&old)? {
        tx.rename(&old, &new)?;
    }
    Ok(())
}

/// Appends the names from an entry on down.
fn search(tx: &Transaction, place: &Path, dn: &str, names: &mut Vec<String>) -> io::Result<()> {
    let text = tx.read_to_string(file_of(place))?;
    let rdn = dn.split(',').next().unwrap_or(dn);
    if text.lines().next() != Some(&format!("dn: {rdn}")) {
        return Err(invalid("its file is another's", dn));
    }
    names.push(dn.to_owned());
    if !tx.try_exists(place)? {
        return Ok(());
    }
    let entries = tx.read_dir(place)?;
    let mut below: Vec<_> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    below.sort_unstable();
    for name in &below {
        match name.strip_suffix(".ldif") {
            Some(rdn) => search(tx, &place.join(rdn), &format!("{rdn},{dn}"), names)?,
            None if below.contains(&format!("{name}.ldif")) => {}
            None => return Err(invalid("entries without a parent", name)),
        }
    }
    Ok(())
}

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let systx = Systx::new()?;
    let options = Options::new().label("ldif").retries(10_000);
    match arguments.as_slice() {
        ["add", base, dn] => {
            let mut attributes = String::new();
            io::stdin().read_to_string(&mut attributes)?;
            systx.atomically(&options, |tx| add(tx, Path::new(base), dn, &attributes))
        }
        ["move", base, dn, new_dn] => {
            systx.atomically(&options, |tx| rename(tx, Path::new(base), dn, new_dn))
        }
        ["search", base, dn] => {
            let names = systx.atomically(&options, |tx| {
                let mut names = Vec::new();
                search(tx, &place(Path::new(base), dn)?, dn, &mut names)?;
                io::Result::Ok(names)
            })?;
            names.iter().for_each(|name| println!("{name}"));
            Ok(())
        }
        _ => Err(io::Error::other("usage: ldif add DIR DN | move DIR DN NEW-DN | search DIR DN")),
    }
}
