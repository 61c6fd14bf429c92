//! `systx install-hooks`: what finishes cut-off publications at boot and at login.
//!
//! Owns: a systemd unit and its link, a template and a generator for file systems that come later, and a
//! login script. Guarantees: it names every file that it writes or removes, writes all or none, leaves files
//! alone that it did not write, and runs nothing. What it writes is bounded in time, and its failure keeps
//! neither a boot nor a login from going on. Does not: run by itself.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Every installed file has this line; a file without it is not ours.
const MARK: &str = "# Written by `systx install-hooks`; removed by `systx install-hooks --uninstall`.";
const UNIT: &str = "etc/systemd/system/systx-recover.service";
const WANTED: &str = "etc/systemd/system/sysinit.target.wants/systx-recover.service";
/// Where the link was when the unit ran later in the boot.
const WANTED_EARLIER: &str = "etc/systemd/system/multi-user.target.wants/systx-recover.service";
const LINK_TARGET: &str = "../systx-recover.service";
const TEMPLATE: &str = "etc/systemd/system/systx-recover@.service";
const GENERATOR: &str = "etc/systemd/system-generators/systx-recover-generator";
const LOGIN: &str = "etc/profile.d/systx.sh";

fn unit(systx: &Path) -> String {
    format!(
        "{MARK}
[Unit]
Description=Finish system transactions that a crash cut off
# Once all local file systems are there: before logins are allowed, and before any service reads what is half published.
DefaultDependencies=no
RequiresMountsFor=\"{0}\"
After=local-fs.target
Before=sysinit.target systemd-tmpfiles-setup.service shutdown.target
Conflicts=shutdown.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=\"{0}\" recover --quiet --reload-units
# A checkpoint: the next boot does nothing again.
ExecStop=\"{0}\" recover --quiet
# A file system that does not answer holds up boot, logins and shutdown no longer than this.
TimeoutStartSec=90
TimeoutStopSec=30

[Install]
WantedBy=sysinit.target
",
        systx.display()
    )
}

/// For a file system that is mounted later; the instance is the mount unit's name without its suffix.
fn template(systx: &Path) -> String {
    format!(
        "{MARK}
[Unit]
Description=Finish system transactions that a crash cut off on %f
DefaultDependencies=no
RequiresMountsFor=\"{0}\"
After=%i.mount
Before=shutdown.target
Conflicts=shutdown.target

[Service]
Type=oneshot
ExecStart=\"{0}\" recover --quiet --reload-units
TimeoutStartSec=90
TimeoutStopSec=30
",
        systx.display()
    )
}

/// A generator (systemd.generator(7)): which mounts of fstab may come after local-fs.target, only fstab says.
fn generator(_: &Path) -> String {
    format!(
        "#!/bin/sh
{MARK}
# Has systx-recover@ run after each mount of fstab for which the boot does not wait.
set -u
to=${{1:?}}
fstab=${{SYSTEMD_FSTAB:-/etc/fstab}}
[ -r \"$fstab\" ] || exit 0
while read -r what where kind options _; do
    case $what in '#'*) continue ;; esac
    case $where in /?*) ;; *) continue ;; esac
    case ,$options, in
    *,nofail,* | *,noauto,* | *,_netdev,* | *,x-systemd.automount,*) ;;
    *) continue ;;
    esac
    # Spaces are octal there.
    mount=$(systemd-escape --path --suffix=mount \"$(printf '%b' \"$where\")\") || continue
    mkdir -p \"$to/$mount.wants\" &&
        ln -sf /{TEMPLATE} \"$to/$mount.wants/systx-recover@${{mount%.mount}}.service\"
done <\"$fstab\"
exit 0
"
    )
}

/// For ordinary users: root's areas are the unit's. In the background and without standard output, since a
/// login waits for nothing, and what a script has it write belongs to that script. Only for a person at a
/// terminal.
fn login(systx: &Path) -> String {
    format!(
        "{MARK}
case $- in
*i*)
    if [ -t 0 ] && [ -t 2 ] && [ -x '{0}' ] && [ \"$(id -u)\" != 0 ]; then
        (timeout -k 5 60 '{0}' recover --quiet </dev/null >&2 &)
    fi
    ;;
esac
",
        systx.display()
    )
}

/// Installs the hooks for the program `systx` below `root`; returns what it did, line by line.
pub fn install(root: &Path, systx: &Path) -> io::Result<Vec<String>> {
    if systx.to_string_lossy().contains(['\'', '"', '\\', '%', '$', '\n']) {
        return Err(io::Error::other(format!(
            "the path {} can't be quoted in a unit; move systx elsewhere",
            systx.display()
        )));
    }
    let mut staged = Staged::default();
    for (path, mode, text) in [
        (UNIT, 0o644, unit(systx)),
        (TEMPLATE, 0o644, template(systx)),
        (GENERATOR, 0o755, generator(systx)),
        (LOGIN, 0o644, login(systx)),
    ] {
        let path = root.join(path);
        refuse_foreign(&path)?;
        let new = staged.beside(&path)?;
        write_synced(&new, mode, &text).map_err(|e| named(&path, e))?;
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
    let said = |path: &PathBuf| {
        if *path == link {
            format!("enabled {}", path.display())
        } else {
            format!("wrote {}", path.display())
        }
    };
    let mut done: Vec<_> = staged.put_in_place()?.iter().map(said).collect();
    done.extend(unlink_ours(&root.join(WANTED_EARLIER))?);
    Ok(done)
}

/// Removes a link that enables the unit; what it did.
fn unlink_ours(link: &Path) -> io::Result<Option<String>> {
    if std::fs::read_link(link).is_ok_and(|target| target == Path::new(LINK_TARGET)) {
        std::fs::remove_file(link).map_err(|e| named(link, e))?;
        return Ok(Some(format!("removed {}", link.display())));
    }
    Ok(None)
}

/// A file that is on its device before it gets its name: a loss of power would leave an empty one there,
/// which stands for a unit that is not to run, and has not our mark.
fn write_synced(path: &Path, mode: u32, text: &str) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    file.write_all(text.as_bytes())?;
    file.set_permissions(std::fs::Permissions::from_mode(mode))?;
    file.sync_all()
}

/// Files that are written, each beside its place. Once all are there, only a rename within a directory is
/// left to fail. Dropped before, it removes everything.
///
/// So each file is whole or absent: a half-written login script would greet every user with an error.
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
        // A file that can't be replaced, because it is immutable or mounted on, can't get another name
        // either.
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
        // A file that can't be removed was not written by us, or holds foreign contents by now.
        for (new, _) in &self.files {
            let _ = std::fs::remove_file(new);
        }
        for dir in self.made.iter().rev() {
            let _ = std::fs::remove_dir(dir);
        }
    }
}

/// Removes the hooks below `root`; returns what it did.
pub fn uninstall(root: &Path) -> io::Result<Vec<String>> {
    let mut done = Vec::new();
    for link in [WANTED, WANTED_EARLIER] {
        done.extend(unlink_ours(&root.join(link))?);
    }
    for path in [UNIT, TEMPLATE, GENERATOR, LOGIN] {
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

/// Only a regular file is opened: a FIFO would wait for its writer.
fn refuse_foreign(path: &Path) -> io::Result<()> {
    let is_ours =
        || Ok(std::fs::symlink_metadata(path)?.is_file() && std::fs::read_to_string(path)?.contains(MARK));
    match is_ours() {
        Ok(false) => {
            Err(io::Error::other(format!("{} was not written by systx: left alone", path.display())))
        }
        Ok(true) => Ok(()),
        Err(e) => if_there(Err(e)).map_err(|e| named(path, e)),
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
    use systx_runner::Scratch;

    #[test]
    fn what_is_installed_is_removed_again() {
        let root = Scratch::new("hooks-both");
        let done = install(&root, Path::new("/usr/bin/systx")).unwrap();
        assert_eq!(done.len(), 5);
        let unit = std::fs::read_to_string(root.join(UNIT)).unwrap();
        assert!(
            unit.contains("ExecStop=\"/usr/bin/systx\" recover --quiet\n")
                && unit.contains("RemainAfterExit=yes")
        );
        assert!(unit.contains("ExecStart=\"/usr/bin/systx\" recover --quiet --reload-units\n"));
        assert!(std::fs::metadata(root.join(WANTED)).unwrap().is_file(), "the link leads to the unit");
        assert_eq!(install(&root, Path::new("/usr/bin/systx")).unwrap().len(), 4, "again is no error");
        let earlier = root.join(WANTED_EARLIER);
        std::fs::create_dir_all(earlier.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(LINK_TARGET, &earlier).unwrap();
        assert_eq!(install(&root, Path::new("/usr/bin/systx")).unwrap().len(), 5);
        assert!(std::fs::symlink_metadata(&earlier).is_err(), "one link, and an early one");
        assert_eq!(uninstall(&root).unwrap().len(), 5);
        assert_eq!(uninstall(&root).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn a_file_of_somebody_else_is_left_alone() {
        let root = Scratch::new("hooks-foreign");
        let path = root.join(LOGIN);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, "mine\n").unwrap();
        assert!(install(&root, Path::new("/usr/bin/systx")).is_err());
        assert!(uninstall(&root).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine\n");
    }

    #[test]
    fn what_is_no_file_is_left_alone_and_not_waited_for() {
        let root = Scratch::new("hooks-kinds");
        let path = root.join(LOGIN);
        let ours = root.join("ours");
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&ours, MARK).unwrap();
        let makes: [&dyn Fn(); 3] = [
            &|| assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success()),
            &|| std::os::unix::fs::symlink(&ours, &path).unwrap(),
            &|| std::os::unix::fs::symlink("nowhere", &path).unwrap(),
        ];
        for make in makes {
            make();
            let was = std::fs::symlink_metadata(&path).unwrap().file_type();
            assert!(install(&root, Path::new("/usr/bin/systx")).is_err());
            assert!(uninstall(&root).is_err());
            assert_eq!(std::fs::symlink_metadata(&path).unwrap().file_type(), was);
            std::fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn a_program_path_that_cannot_be_quoted_is_refused() {
        let root = Scratch::new("hooks-quote");
        assert!(install(&root, Path::new("/opt/a'b/systx")).is_err());
    }
}
