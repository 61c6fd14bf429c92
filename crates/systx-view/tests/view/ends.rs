//! How a view ends, and what several mounts are to each other.

use crate::world::{self, World, TEMP};
use std::fs;
use std::path::Path;
use systx_engine::transaction::Access;
use systx_os::fuse::EventFd;
use systx_os::Errno;
use systx_view::Trouble;

fn errno<T>(result: std::io::Result<T>) -> Option<i32> {
    result.err().and_then(|e| e.raw_os_error())
}

/// Another transaction changes a file and commits.
fn change_elsewhere(world: &World, name: &str) {
    let mut tx = world::begin(&[&world.domain]);
    let (node, _) = tx.lookup(tx.root(0), name.as_bytes()).unwrap().unwrap();
    tx.open(node, Access::Write, true).unwrap();
    tx.write_at(node, b"changed elsewhere", 0).unwrap();
    tx.close(node);
    tx.commit().unwrap();
}

#[test]
fn a_doomed_transaction_shows_nothing_more_and_rings() {
    let Some(mut world) = World::new(TEMP) else { return };
    assert_eq!(fs::read(world.view.join("small")).unwrap(), b"small file\n");
    change_elsewhere(&world, "small");
    assert_eq!(fs::read(world.view.join("small")).unwrap(), b"small file\n", "reads repeat");
    assert!(!world.alarm.is_rung());
    // With this the program would know two states of the tree that never were together.
    let seen = errno(fs::metadata(world.view.join("tree/file-001")));
    assert_eq!(seen, Some(Errno::IO.raw_os_error()));
    assert!(world.alarm.is_rung());
    let view = world.stop();
    let Some(Trouble::Doomed(conflict)) = view.trouble() else { panic!("{:?}", view.trouble()) };
    assert_eq!(conflict.path, b"small");
    view.finish().abort();
}

#[test]
fn a_change_elsewhere_that_was_not_seen_does_no_harm() {
    let Some(mut world) = World::new(TEMP) else { return };
    assert_eq!(fs::read_dir(&world.view).unwrap().count(), 6, "names are read, and only names");
    change_elsewhere(&world, "small");
    fs::write(world.view.join("mine"), "x").unwrap();
    world.commit();
    assert_eq!(fs::read(world.below.join("small")).unwrap(), b"changed elsewhere");
}

#[test]
fn an_aborted_view_leaves_nothing() {
    let Some(mut world) = World::new(TEMP) else { return };
    let before = crate::plain::dump(&world.plain);
    fs::write(world.view.join("small"), "lost").unwrap();
    fs::remove_dir_all(world.view.join("tree")).unwrap();
    fs::write(world.view.join("new"), "lost").unwrap();
    world.stop().finish().abort();
    assert_eq!(errno(fs::metadata(world.view.join("new"))), Some(Errno::NOTCONN.raw_os_error()));
    let mut below = crate::plain::dump(&world.below);
    below.retain(|line| !line.starts_with(world::AREA));
    assert_eq!(below, before);
}

#[test]
fn two_mounts_are_two_file_systems_in_one_transaction() {
    let Some(mut world) = World::new(TEMP) else { return };
    let other = world.scratch.join("other");
    let [below, view] = ["below", "view"].map(|name| other.join(name));
    fs::create_dir(&other).unwrap();
    world.put_tmpfs_on(&other);
    [&below, &view].into_iter().for_each(|dir| fs::create_dir(dir).unwrap());
    fs::write(below.join("there"), "there").unwrap();

    world.stop().finish().abort();
    rustix::mount::unmount(&world.view, rustix::mount::UnmountFlags::DETACH).unwrap();
    let second = world::domain(&below);
    let mut served = world::mount(world::begin(&[&world.domain, &second]), &[&world.view, &view]);
    let until = EventFd::new().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| served.serve(&until).unwrap());
        two_mounts(&world.view, &view);
        until.ring();
    });
    served.finish().commit().unwrap();
    assert_eq!(fs::read(world.below.join("a")).unwrap(), b"a");
    assert_eq!((fs::read(below.join("b")).unwrap(), below.join("there").exists()), (b"b".to_vec(), false));
    rustix::mount::unmount(&view, rustix::mount::UnmountFlags::DETACH).unwrap();
    rustix::mount::unmount(&other, rustix::mount::UnmountFlags::DETACH).unwrap();
}

fn two_mounts(one: &Path, two: &Path) {
    use std::os::unix::fs::MetadataExt;
    fs::write(one.join("a"), "a").unwrap();
    fs::write(two.join("b"), "b").unwrap();
    let xdev = Some(Errno::XDEV.raw_os_error());
    assert_eq!(errno(fs::rename(one.join("a"), two.join("a"))), xdev);
    assert_eq!(errno(fs::hard_link(two.join("there"), one.join("there"))), xdev);
    assert_ne!(fs::metadata(one).unwrap().dev(), fs::metadata(two).unwrap().dev());
    assert_eq!(fs::read(two.join("there")).unwrap(), b"there");
    fs::remove_file(two.join("there")).unwrap();
    assert_eq!(fs::read_dir(two).unwrap().count(), 1);
}

#[test]
fn who_asks_again_and_again_may_run_where_it_may_outside() {
    let Some(mut world) = World::new(TEMP) else { return };
    let file = fs::File::create(world.view.join("asks")).unwrap();
    let cpus = || rustix::thread::sched_getaffinity(None).unwrap();
    let before = cpus();
    for n in 0..3000u64 {
        file.set_len(n % 2).unwrap();
        assert_eq!(cpus(), before, "after {n} requests");
    }
    drop(file);
    world.stop().finish().abort();
}
