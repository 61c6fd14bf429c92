//! Two equal trees in one scratch directory: one plain, one under a view.

use crate::tap::{self, Asked};
use rustix::fs::{Mode, OFlags};
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use systx_engine::domain::{Bounds, Domain, Location};
use systx_engine::outcome::Options;
use systx_engine::transaction::Transaction;
use systx_os::fuse::EventFd;
use systx_os::sandbox::mounts::Detached;
use systx_os::{Errno, Linux};
use systx_view::View;

/// Name of the area.
pub const AREA: &str = ".systx-test";

/// Where the trees are made, and whether the kernel may use passthrough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    tmpfs: bool,
    direct: bool,
}

/// Below the directory for temporary files, with passthrough.
pub const TEMP: Place = Place { tmpfs: false, direct: true };
/// All places worth a try.
pub const PLACES: [Place; 3] =
    [TEMP, Place { tmpfs: true, direct: true }, Place { tmpfs: true, direct: false }];

/// The two trees, and the thread that serves one of them.
pub struct World {
    /// A plain directory.
    pub plain: PathBuf,
    /// The root of a view over an equal directory.
    pub view: PathBuf,
    /// The directory below the view.
    pub below: PathBuf,
    /// Its domain.
    pub domain: Arc<Domain<Linux>>,
    /// Rung when the transaction is doomed.
    pub alarm: EventFd,
    /// The directory that holds all of it.
    pub scratch: PathBuf,
    place: Place,
    stop: Arc<EventFd>,
    server: Option<JoinHandle<View<Linux>>>,
}

impl World {
    /// Makes the trees. `None`, with a printed reason, where that is not possible.
    pub fn new(place: Place) -> Option<World> {
        let made = World::with(place, |tx, at| {
            let served = mount(tx, &[at]);
            (if place.direct { served } else { served.without_passthrough() }, ())
        });
        made.map(|(world, ())| world)
    }

    /// The same, below the directory for temporary files, with what the kernel asks counted.
    pub fn counted() -> Option<(World, Asked)> {
        World::with(Place { tmpfs: false, direct: false }, |tx, at| {
            let (served, mounted, asked) = tap::view(tx);
            put(&mounted, at);
            (served, asked)
        })
    }

    fn with<T>(
        place: Place,
        serve: impl FnOnce(Transaction<Linux>, &Path) -> (View<Linux>, T),
    ) -> Option<(World, T)> {
        if !rustix::process::geteuid().is_root() {
            return skip("mounting needs root");
        }
        if let Err(e) = rustix::fs::access("/dev/fuse", rustix::fs::Access::WRITE_OK) {
            return skip(&format!("/dev/fuse: {e}"));
        }
        let scratch = scratch();
        if let Err(e) = private_mounts() {
            return skip(&format!("a private mount namespace: {e}"));
        }
        if place.tmpfs {
            put_tmpfs_on(&scratch);
        }
        let [plain, below, view] = ["plain", "below", "view"].map(|name| scratch.join(name));
        [&plain, &below, &view].into_iter().for_each(|dir| fs::create_dir(dir).unwrap());
        [&plain, &below].into_iter().for_each(|dir| populate(dir));
        let domain = domain(&below);
        let (mut served, more) = serve(begin(&[&domain]), &view);
        let alarm = served.alarm().unwrap();
        let stop = Arc::new(EventFd::new().unwrap());
        let until = stop.clone();
        let server = std::thread::spawn(move || {
            served.serve(&until).unwrap();
            served
        });
        let server = Some(server);
        Some((World { place, domain, alarm, plain, view, below, scratch, stop, server }, more))
    }

    /// Ends the view and commits what was done in it: the plain tree below is then as the view was.
    pub fn commit(&mut self) {
        let root = rustix::fs::open(&self.view, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap();
        rustix::fs::syncfs(&root).unwrap();
        drop(root);
        let view = self.stop();
        assert_eq!(view.trouble(), None);
        assert_eq!(view.is_direct(), self.place.direct, "root may use passthrough");
        let committed = view.finish().commit().unwrap();
        assert_eq!((&committed.conflict_copies[..], &committed.pending), (&[][..], &None));
        fs::remove_dir_all(self.below.join(AREA)).unwrap();
    }

    /// Mounts a tmpfs.
    pub fn put_tmpfs_on(&self, dir: &Path) {
        put_tmpfs_on(dir);
    }

    /// Stops serving; from now on the view only has its end.
    pub fn stop(&mut self) -> View<Linux> {
        self.stop.ring();
        self.server.take().unwrap().join().unwrap()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if self.server.is_some() {
            drop(self.stop());
        }
        let detach = rustix::mount::UnmountFlags::DETACH;
        rustix::mount::unmount(&self.view, detach).unwrap();
        if rustix::mount::unmount(&self.scratch, detach) == Err(Errno::INVAL) {
            // No tmpfs there.
            fs::remove_dir_all(&self.scratch).unwrap();
        } else {
            fs::remove_dir(&self.scratch).unwrap();
        }
    }
}

fn put_tmpfs_on(dir: &Path) {
    use rustix::mount::{mount, MountFlags};
    mount("systx-test", dir, "tmpfs", MountFlags::empty(), c"size=256m").unwrap();
}

fn skip<T>(why: &str) -> Option<T> {
    println!("skipped: {why}");
    None
}

fn scratch() -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let scratch = std::env::temp_dir().join(format!("systx-view-{}-{count}", std::process::id()));
    fs::create_dir(&scratch).unwrap();
    scratch
}

/// Gives this thread, and what it starts, mounts of its own.
fn private_mounts() -> Result<(), Errno> {
    use rustix::mount::{mount_change, MountPropagationFlags};
    #[allow(deprecated, reason = "a thread of its own has nothing that could be surprised")]
    rustix::thread::unshare(rustix::thread::UnshareFlags::NEWNS)?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
}

/// What both trees begin with.
fn populate(dir: &Path) {
    fs::write(dir.join("small"), "small file\n").unwrap();
    fs::write(dir.join("lines"), (0..2000).map(|n| format!("line {n}\n")).collect::<String>()).unwrap();
    fs::write(dir.join("large"), (0..3_000_000u32).map(|n| (n / 7) as u8).collect::<Vec<u8>>()).unwrap();
    fs::write(dir.join("empty"), "").unwrap();
    fs::create_dir_all(dir.join("tree/a/b")).unwrap();
    for n in 0..300 {
        fs::write(dir.join(format!("tree/file-{n:03}")), format!("{n}\n")).unwrap();
    }
    fs::write(dir.join("tree/a/b/deep"), "deep").unwrap();
    std::os::unix::fs::symlink("a/b/deep", dir.join("tree/link")).unwrap();
    fs::hard_link(dir.join("small"), dir.join("small-too")).unwrap();
}

/// Opens the domain of a directory, with its area in it.
pub fn domain(below: &Path) -> Arc<Domain<Linux>> {
    let os = Linux::new();
    let window = Detached::of(below.as_os_str().as_encoded_bytes()).unwrap();
    let root = window.root.clone();
    let location =
        Location { root: root.clone(), bounds: Bounds::FileSystem, parent: &*root, name: AREA.as_bytes() };
    Domain::open(&os, location).unwrap()
}

/// Begins a transaction.
pub fn begin(domains: &[&Arc<Domain<Linux>>]) -> Transaction<Linux> {
    let domains = domains.iter().map(|domain| Arc::clone(domain)).collect();
    Transaction::begin(Linux::new(), domains, Options::default()).unwrap()
}

/// Makes a view of a transaction and puts its mounts on directories.
pub fn mount(tx: Transaction<Linux>, at: &[&Path]) -> View<Linux> {
    let (view, mounted) = match View::new(tx, at.len()) {
        Ok(made) => made,
        Err(failed) => panic!("{}: {:?}", failed.doing, failed.error),
    };
    for (mount, at) in mounted.iter().zip(at) {
        put(mount, at);
    }
    view
}

fn put(mount: &OwnedFd, at: &Path) {
    let flags = rustix::mount::MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    rustix::mount::move_mount(mount, "", rustix::fs::CWD, at, flags).unwrap();
}
