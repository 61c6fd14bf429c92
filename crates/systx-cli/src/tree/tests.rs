//! Which mounts are served, and where they stand.

use super::*;
use std::ffi::CString;
use systx_os::sandbox::mounts::Attributes;

fn mount(id: u64, parent: u64, device: &str, root: &str, point: &str, fs_type: &str, options: &str) -> Mount {
    Mount {
        id,
        parent,
        device: device.into(),
        root: root.into(),
        point: point.into(),
        fs_type: fs_type.into(),
        source: b"none".to_vec(),
        attributes: Attributes { read_only: options.contains("ro"), ..Default::default() },
        file_system_read_only: false,
        idmapped: options.contains("idmapped"),
        user_id: None,
    }
}

fn machine() -> Vec<Mount> {
    vec![
        mount(1, 0, "8:1", "/", "/", "ext4", ""),
        mount(2, 1, "0:2", "/", "/proc", "proc", ""),
        mount(3, 1, "0:3", "/", "/sys", "sysfs", ""),
        mount(4, 3, "0:4", "/", "/sys/fs/cgroup", "cgroup2", ""),
        mount(5, 1, "0:5", "/", "/dev", "devtmpfs", ""),
        mount(6, 5, "0:6", "/", "/dev/shm", "tmpfs", ""),
        mount(7, 1, "0:7", "/", "/tmp", "tmpfs", ""),
        mount(8, 1, "8:2", "/", "/boot/efi", "vfat", ""),
        mount(9, 1, "8:1", "/srv/data", "/data", "ext4", ""),
        mount(10, 1, "8:3", "/", "/usr", "xfs", "ro"),
    ]
}

fn directory(_: &Mount) -> Seen {
    Seen::Directory
}

fn c(s: &str) -> CString {
    CString::new(s).unwrap()
}

fn step_at<'a>(tree: &'a Tree, at: &str) -> Vec<&'a Step> {
    tree.steps.iter().filter(|s| s.at().to_bytes() == at.as_bytes()).collect()
}

#[test]
fn every_writable_mount_is_served_or_the_kernels_or_read_only() {
    let tree = plan(&machine(), &[], &directory).unwrap();
    assert_eq!(tree.base, Base::Mount(0));
    assert_eq!(
        tree.lower.iter().map(|l| l.point.clone()).collect::<Vec<_>>(),
        [b"/".to_vec(), b"/tmp".to_vec()]
    );
    assert_eq!(step_at(&tree, "tmp"), [&Step::Mount { mount: 1, at: c("tmp") }]);
    assert_eq!(step_at(&tree, "sys"), [&Step::Move { at: c("sys") }]);
    assert!(step_at(&tree, "sys/fs/cgroup").is_empty(), "moves with /sys");
    assert_eq!(step_at(&tree, "usr"), [&Step::Move { at: c("usr") }]);
    assert_eq!(
        step_at(&tree, "boot/efi"),
        [&Step::Move { at: c("boot/efi") }, &Step::ReadOnly { at: c("boot/efi") }]
    );
    assert_eq!(step_at(&tree, "dev"), [&Step::Move { at: c("dev") }, &Step::ReadOnly { at: c("dev") }]);
    let read_only = |point: &[u8], fs_type: &str| (point.to_vec(), fs_type.to_string());
    assert_eq!(tree.read_only, [read_only(b"/dev", "devtmpfs"), read_only(b"/boot/efi", "vfat")]);
}

#[test]
fn what_keeps_what_was_stored_is_never_left_writable() {
    for (fs_type, point) in [
        ("ramfs", "/ram"),
        ("hugetlbfs", "/huge"),
        ("hugetlbfs", "/dev/hugepages"),
        ("devtmpfs", "/else/dev"),
        ("efivarfs", "/sys/firmware/efi/efivars"),
        ("pstore", "/sys/fs/pstore"),
        ("tmpfs", "/dev/scratch"),
        ("tmpfs", "/sys/scratch"),
        ("ext4", "/proc/scratch"),
        ("overlay", "/merged"),
        ("fuse.sshfs", "/remote"),
        ("nfs4", "/net"),
    ] {
        let mut mounts = machine();
        mounts.push(mount(11, 1, "0:99", "/", point, fs_type, ""));
        let tree = plan(&mounts, &[], &directory).unwrap();
        assert!(tree.read_only.contains(&(point.into(), fs_type.into())), "{fs_type} at {point}");
        let last = step_at(&tree, &point[1..]).pop();
        assert_eq!(last, Some(&Step::ReadOnly { at: c(&point[1..]) }), "{fs_type} at {point}");
    }
}

#[test]
fn process_ids_and_posix_ipc_are_the_commands_own() {
    let tree = plan(&machine(), &[], &directory).unwrap();
    assert!(matches!(step_at(&tree, "proc")[..], [Step::Fresh { .. }]));
    assert!(matches!(step_at(&tree, "dev/shm")[..], [Step::Fresh { .. }]));
}

#[test]
fn a_bind_mount_of_a_served_file_system_is_a_part_of_its_view() {
    let tree = plan(&machine(), &[], &directory).unwrap();
    let part = Step::Part { mount: 0, part: c("srv/data"), at: c("data"), attributes: Attributes::default() };
    assert_eq!(step_at(&tree, "data"), [&part]);
    assert_eq!(tree.lower.len(), 2);
}

#[test]
fn a_bind_mount_before_the_mount_that_it_is_a_part_of_shares_its_view() {
    let mounts = [
        mount(1, 0, "8:9", "/", "/", "squashfs", "ro"),
        mount(2, 1, "8:1", "/a", "/x", "ext4", ""),
        mount(3, 1, "8:1", "/", "/y/z", "ext4", ""),
    ];
    let tree = plan(&mounts, &[], &directory).unwrap();
    assert_eq!((tree.base, tree.lower.len()), (Base::Same, 1));
    assert_eq!(tree.lower[0].point, b"/y/z");
    let part =
        |part, at| Step::Part { mount: 0, part: c(part), at: c(at), attributes: Attributes::default() };
    assert_eq!(tree.steps, [Step::Mount { mount: 0, at: c("x") }, part("a", "x"), part("", "y/z")]);
}

#[test]
fn what_stands_on_a_served_mount_below_a_read_only_root_is_kept() {
    let mounts = [
        mount(1, 0, "8:9", "/", "/", "squashfs", "ro"),
        mount(2, 1, "8:1", "/", "/home", "ext4", ""),
        mount(3, 2, "8:2", "/", "/home/usb", "vfat", "ro"),
    ];
    let tree = plan(&mounts, &[], &directory).unwrap();
    assert_eq!(tree.copied, [b"/home/usb".to_vec()]);
    assert_eq!(step_at(&tree, "home/usb"), [&Step::Mount { mount: 1, at: c("home/usb") }]);
}

#[test]
fn a_hidden_mount_is_left_out() {
    let mut mounts = machine();
    mounts.push(mount(11, 7, "0:11", "/", "/tmp", "tmpfs", ""));
    let see = |m: &Mount| if m.id == 7 { Seen::Hidden } else { Seen::Directory };
    let tree = plan(&mounts, &[], &see).unwrap();
    assert_eq!(step_at(&tree, "tmp").len(), 1);
}

/// Else what is written there would go into the directory under it, in silence.
#[test]
fn a_mount_that_fails_stays_in_its_place_and_is_not_served() {
    let failing = |m: &Mount| if m.point == b"/var" { Seen::Silent } else { Seen::Directory };
    for fs_type in ["xfs", "ext4", "fuse.sshfs", "nfs4"] {
        let mut mounts = machine();
        mounts.push(mount(11, 1, "8:4", "/", "/var", fs_type, ""));
        let tree = plan(&mounts, &[], &failing).unwrap();
        let (moved, read_only) = (Step::Move { at: c("var") }, Step::ReadOnly { at: c("var") });
        assert_eq!(step_at(&tree, "var"), [&moved, &read_only], "{fs_type}");
        assert!(tree.read_only.contains(&(b"/var".to_vec(), format!("{fs_type} that can't be looked at"))));
        assert!(tree.lower.iter().all(|lower| lower.point != b"/var"), "{fs_type}");
        let why = plan(&mounts, &[b"/var/lib".to_vec()], &failing).unwrap_err();
        assert!(why.to_string().contains("/var/lib can't be served"), "{why}");
    }
}

#[test]
fn a_mount_over_a_hidden_one_comes_along_with_the_tree_below() {
    let mut mounts = machine();
    mounts.push(mount(11, 5, "0:11", "/", "/dev/pts", "devpts", ""));
    mounts.push(mount(12, 11, "0:11", "/", "/dev/pts", "devpts", ""));
    let see = |m: &Mount| if m.id == 11 { Seen::Hidden } else { Seen::Directory };
    let tree = plan(&mounts, &[], &see).unwrap();
    assert!(step_at(&tree, "dev/pts").is_empty(), "moves with /dev");
}

#[test]
fn a_single_file_of_another_file_system_becomes_read_only() {
    let mut mounts = machine();
    mounts.push(mount(11, 1, "8:7", "/hosts", "/etc/hosts", "ext4", ""));
    let see = |m: &Mount| if m.id == 11 { Seen::File } else { Seen::Directory };
    let tree = plan(&mounts, &[], &see).unwrap();
    assert_eq!(step_at(&tree, "etc/hosts").len(), 2);
    assert!(tree.read_only.iter().any(|(point, _)| point == b"/etc/hosts"));
}

#[test]
fn only_covers_the_directory_and_leaves_the_rest() {
    let tree = plan(&machine(), &[b"/home/me".to_vec(), b"/home/me/sub".to_vec()], &directory).unwrap();
    assert_eq!((tree.base, tree.lower.len()), (Base::Same, 1));
    let at = || c("home/me");
    let part = Step::Part { mount: 0, part: at(), at: at(), attributes: Attributes::default() };
    assert_eq!(step_at(&tree, "home/me"), [&Step::Mount { mount: 0, at: at() }, &part]);
    assert_eq!(tree.steps.len(), 3, "and /proc");
}

/// To mount it a second time would move it, and with it the part that is on it.
#[test]
fn directories_of_one_file_system_are_parts_of_one_view_that_is_mounted_once() {
    let only = [b"/home".to_vec(), b"/srv".to_vec(), b"/data/in".to_vec()];
    let tree = plan(&machine(), &only, &directory).unwrap();
    assert_eq!(tree.lower.len(), 1);
    let mounted: Vec<_> =
        tree.steps.iter().filter(|step| matches!(step, Step::Mount { .. })).map(Step::at).collect();
    assert_eq!(mounted, [c"home"]);
    for (at, part) in [("home", "home"), ("srv", "srv"), ("data/in", "srv/data/in")] {
        let is_it = |step: &&Step| matches!(step, Step::Part { mount: 0, part: p, .. } if *p == c(part));
        assert_eq!(step_at(&tree, at).into_iter().filter(is_it).count(), 1, "{at}");
    }
}

#[test]
fn only_serves_and_keeps_what_is_mounted_below_it() {
    let mut mounts = machine();
    mounts.push(mount(11, 1, "0:11", "/", "/home/me/t", "tmpfs", ""));
    mounts.push(mount(12, 1, "8:7", "/", "/home/me/usb", "vfat", ""));
    let tree = plan(&mounts, &[b"/home/me".to_vec()], &directory).unwrap();
    assert_eq!(tree.lower.len(), 2);
    assert_eq!(tree.copied, [b"/home/me/usb".to_vec()]);
    assert_eq!(step_at(&tree, "home/me/t"), [&Step::Mount { mount: 1, at: c("home/me/t") }]);
    let usb = || c("home/me/usb");
    assert_eq!(
        step_at(&tree, "home/me/usb"),
        [&Step::Mount { mount: 2, at: usb() }, &Step::ReadOnly { at: usb() }]
    );
}

#[test]
fn only_says_what_to_do_about_a_directory_whose_mount_is_not_listed() {
    // A chroot whose root is no mount looks like this.
    let listed: Vec<_> = machine().into_iter().filter(|mount| mount.point != b"/").collect();
    let told = plan(&listed, &[b"/home/me".to_vec()], &directory).unwrap_err().to_string();
    assert!(told.contains("/home/me is on none") && told.contains("mount --bind ROOT ROOT"), "{told}");
}

#[test]
fn only_refuses_a_directory_that_cannot_be_served() {
    assert!(plan(&machine(), &[b"/usr/lib".to_vec()], &directory)
        .unwrap_err()
        .to_string()
        .contains("read-only"));
    assert!(plan(&machine(), &[b"/sys/kernel".to_vec()], &directory).is_err());
}

#[test]
fn what_can_be_served_is_found_also_where_the_root_cannot_be() {
    let points = |mounts: &[Mount]| -> Vec<_> {
        served(mounts, &directory).into_iter().map(|lower| lower.point).collect()
    };
    let whole: Vec<_> =
        plan(&machine(), &[], &directory).unwrap().lower.into_iter().map(|l| l.point).collect();
    assert_eq!(points(&machine()), whole);
    let mut container = machine();
    container[0].fs_type = b"overlay".to_vec();
    assert!(plan(&container, &[], &directory).is_err());
    assert_eq!(points(&container), [b"/tmp".to_vec(), b"/data".to_vec()]);
}

#[test]
fn around_a_users_places_everything_is_read_only_but_what_the_kernel_talks_through() {
    let mut mounts = machine();
    mounts.push(mount(11, 5, "0:11", "/", "/dev/pts", "devpts", ""));
    mounts.push(mount(12, 5, "0:12", "/", "/dev/mqueue", "mqueue", ""));
    mounts.push(mount(13, 2, "0:13", "/", "/proc/sys/fs/binfmt_misc", "binfmt_misc", ""));
    let places = [b"/home/u".to_vec(), b"/tmp".to_vec()];
    let narrowed = owned::narrow(
        &mounts,
        &[(places[0].clone(), mounts[0].clone()), (places[1].clone(), mounts[6].clone())],
    );
    let tree = plan_places(&mounts, &narrowed, &places, &directory).unwrap();
    assert_eq!((tree.base, tree.steps.first()), (Base::Same, Some(&Step::AllReadOnly)));
    let writable: Vec<_> =
        tree.steps.iter().filter(|s| matches!(s, Step::Writable { .. })).map(Step::at).collect();
    assert_eq!(writable, [c"sys", c"dev/pts", c"sys/fs/cgroup"]);
    for fresh in ["proc", "dev/shm", "dev/mqueue"] {
        assert!(matches!(step_at(&tree, fresh)[..], [Step::Fresh { .. }]), "{fresh}");
    }
    assert_eq!(tree.lower.iter().map(|l| l.point.clone()).collect::<Vec<_>>(), places);
    for (n, at) in [(0, "home/u"), (1, "tmp")] {
        assert!(
            matches!(step_at(&tree, at)[..], [Step::Mount { .. }, Step::Part { mount, .. }] if *mount == n),
            "{at}"
        );
    }
}

/// Changes through such a mount would get the numbers that it shows.
#[test]
fn a_mount_with_mapped_numbers_is_as_it_is_and_read_only() {
    let mut mounts = machine();
    mounts.push(mount(11, 1, "8:1", "/srv/volume", "/volume", "ext4", "rw,idmapped"));
    let tree = plan(&mounts, &[], &directory).unwrap();
    assert_eq!(
        step_at(&tree, "volume"),
        [&Step::Move { at: c("volume") }, &Step::ReadOnly { at: c("volume") }]
    );
    let told = (b"/volume".to_vec(), "ext4 with mapped numbers of users and groups".to_owned());
    assert!(tree.read_only.contains(&told), "{:?}", tree.read_only);
    let why = plan(&mounts, &[b"/volume".to_vec()], &directory).unwrap_err().to_string();
    assert!(why.contains("mapped numbers of users"), "{why}");
}
