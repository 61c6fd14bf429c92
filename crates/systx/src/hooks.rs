//! `systx install-hooks`: what finishes cut-off publications at boot and at login.
//!
//! Owns: two files, a systemd unit and a login script, and the link that enables the unit. Guarantees: it names every
//! file that it writes or removes, writes all or none, leaves files alone that it did not write, and runs nothing. Does not: run by itself.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Every file of ours has this line; a file without it is somebody else's.
const MARK: &str = "# Written by `systx install-hooks`; removed by `systx install-hooks --uninstall`.";
const UNIT: &str = "etc/systemd/system/systx-recover.service";
const WANTED: &str = "etc/systemd/system/multi-user.target.wants/systx-recover.service";
const LINK_TARGET: &str = "../systx-recover.service";
const LOGIN: &str = "etc/profile.d/systx.sh";

fn unit(systx: &Path) -> String {
    format!(
        "{MARK}
[Unit]
Description=Finish system transactions that a crash cut off
# Before services use what was half published, once all local file systems are there.
After=local-fs.target
Before=multi-user.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=\"{0}\" recover --quiet
# A checkpoint: the next boot does nothing again.
ExecStop=\"{0}\" recover --quiet

[Install]
WantedBy=multi-user.target
",
        systx.display()
    )
}

fn login(systx: &Path) -> String {
    format!(
        "{MARK}
if [ -x '{0}' ]; then
    '{0}' recover --quiet || :
fi
",
        systx.display()
    )
}

/// Installs the hooks for the program `systx` below `root`; tells what it did, line by line.
pub fn install(root: &Path, systx: &Path) -> io::Result<Vec<String>> {
    if systx.to_string_lossy().contains(['\'', '"', '\\', '%', '$', '\n']) {
        return Err(io::Error::other(format!(
            "the path {} can't be quoted in a unit; move systx elsewhere",
            systx.display()
        )));
    }
    let mut staged = Staged::default();
    for (path, text) in [(UNIT, unit(systx)), (LOGIN, login(systx))] {
        let path = root.join(path);
        refuse_foreign(&path)?;
        let new = staged.beside(&path)?;
        write_synced(&new, &text).map_err(|e| named(&path, e))?;
    }
    let link = root.join(WANTED);
    match std::fs::symlink_metadata(&link) {
        Ok(_) => {}
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let new = staged.beside(&link)?;
            std::os::unix::fs::symlink(LINK_TARGET, &new).map_err(|e| named(&link, e))?;
        }
        Err(e) => return Err(named(&link, e)),
    }
    let said = |path: &PathBuf| match *path == link {
        true => format!("enabled {}", path.display()),
        false => format!("wrote {}", path.display()),
    };
    Ok(staged.put_in_place()?.iter().map(said).collect())
}

/// A file that is on its device before it gets its name: a loss of power would leave an empty one there, which stands for a
/// unit that is not to run, and has not our mark.
fn write_synced(path: &Path, text: &str) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    file.write_all(text.as_bytes())?;
    file.set_permissions(std::fs::Permissions::from_mode(0o644))?;
    file.sync_all()
}

/// What is written, each beside its place: once all of it is there, nothing is left that could fail but a rename within a
/// directory, of what can be replaced. Dropped before, it takes everything away again.
///
/// So each file is whole or not at all, too: a half-written login script would greet everybody with an error.
#[derive(Default)]
struct Staged {
    /// Directories that were missing, the outer ones first.
    made: Vec<PathBuf>,
    /// Where each file stands, and its place.
    files: Vec<(PathBuf, PathBuf)>,
}

impl Staged {
    /// A name in the directory of `path`, which is there then, for what is to be renamed to it.
    fn beside(&mut self, path: &Path) -> io::Result<PathBuf> {
        let parent = path.parent().unwrap_or(path);
        // Above the first name of a relative path there is the empty one.
        let is_missing = |dir: &&Path| !dir.as_os_str().is_empty() && !dir.is_dir();
        let mut missing: Vec<_> = parent.ancestors().take_while(is_missing).collect();
        while let Some(dir) = missing.pop() {
            std::fs::create_dir(dir).map_err(|e| named(dir, e))?;
            self.made.push(dir.to_path_buf());
        }
        let new = path.with_extension("systx-new");
        // Of an installation that was cut off.
        remove_if_there(&new).map_err(|e| named(&new, e))?;
        // What can't be replaced, because it is immutable or mounted on, can't get another name either.
        if_there(std::fs::hard_link(path, &new)).map_err(|e| named(path, e))?;
        remove_if_there(&new).map_err(|e| named(&new, e))?;
        self.files.push((new.clone(), path.to_path_buf()));
        Ok(new)
    }

    /// All of it, in order; the places.
    fn put_in_place(mut self) -> io::Result<Vec<PathBuf>> {
        for (new, path) in &self.files {
            std::fs::rename(new, path).map_err(|e| named(path, e))?;
        }
        self.made.clear();
        Ok(std::mem::take(&mut self.files).into_iter().map(|(_, path)| path).collect())
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        // What can't be removed was not written, or holds somebody else's files by now.
        for (new, _) in &self.files {
            let _ = std::fs::remove_file(new);
        }
        for dir in self.made.iter().rev() {
            let _ = std::fs::remove_dir(dir);
        }
    }
}

/// Removes the hooks below `root`; tells what it did.
pub fn uninstall(root: &Path) -> io::Result<Vec<String>> {
    let mut done = Vec::new();
    let link = root.join(WANTED);
    if std::fs::read_link(&link).is_ok_and(|target| target == Path::new(LINK_TARGET)) {
        std::fs::remove_file(&link).map_err(|e| named(&link, e))?;
        done.push(format!("removed {}", link.display()));
    }
    for path in [UNIT, LOGIN] {
        let path = root.join(path);
        refuse_foreign(&path)?;
        match std::fs::remove_file(&path) {
            Ok(()) => done.push(format!("removed {}", path.display())),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(named(&path, e)),
        }
    }
    Ok(done)
}

/// The path of this program, for the hooks to name.
pub fn this_program() -> io::Result<PathBuf> {
    std::env::current_exe()
}

fn refuse_foreign(path: &Path) -> io::Result<()> {
    match std::fs::read_to_string(path) {
        Ok(text) if !text.contains(MARK) => {
            Err(io::Error::other(format!("{} was not written by systx: left alone", path.display())))
        }
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(named(path, e)),
        _ => Ok(()),
    }
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    if_there(std::fs::remove_file(path))
}

fn if_there(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

fn named(path: &Path, e: io::Error) -> io::Error {
    io::Error::new(e.kind(), format!("{}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Scratch {
            let path = std::env::temp_dir().join(format!("systx-hooks-{name}-{}", std::process::id()));
            std::fs::create_dir(&path).unwrap();
            Scratch(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn what_is_installed_is_removed_again() {
        let root = Scratch::new("both");
        let done = install(&root.0, Path::new("/usr/bin/systx")).unwrap();
        assert_eq!(done.len(), 3);
        let unit = std::fs::read_to_string(root.0.join(UNIT)).unwrap();
        assert!(unit.contains("ExecStart=\"/usr/bin/systx\" recover --quiet\n"));
        assert!(
            unit.contains("ExecStop=\"/usr/bin/systx\" recover --quiet\n")
                && unit.contains("RemainAfterExit=yes")
        );
        assert!(std::fs::metadata(root.0.join(WANTED)).unwrap().is_file(), "the link leads to the unit");
        assert_eq!(install(&root.0, Path::new("/usr/bin/systx")).unwrap().len(), 2, "again is no error");
        assert_eq!(uninstall(&root.0).unwrap().len(), 3);
        assert_eq!(uninstall(&root.0).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn a_file_of_somebody_else_is_left_alone() {
        let root = Scratch::new("foreign");
        let path = root.0.join(LOGIN);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, "mine\n").unwrap();
        assert!(install(&root.0, Path::new("/usr/bin/systx")).is_err());
        assert!(uninstall(&root.0).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine\n");
    }

    #[test]
    fn a_program_path_that_cannot_be_quoted_is_refused() {
        let root = Scratch::new("quote");
        assert!(install(&root.0, Path::new("/opt/a'b/systx")).is_err());
    }
}
