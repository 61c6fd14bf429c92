//! Commands inside of a transaction, and ones that only look like it.

use super::place::{code, err, must, out, Place, SYSTX};
use super::Case;
use std::fs::File;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

pub const ALL: &[(&str, Case)] = &[
    ("an_inner_run_joins_without_its_environment", an_inner_run_joins_without_its_environment),
    ("a_number_in_the_environment_switches_nothing_off", a_number_in_the_environment_switches_nothing_off),
    ("a_users_mount_that_looks_like_a_view_switches_nothing_off", a_users_mount_switches_nothing_off),
    ("a_mount_of_root_that_is_no_view_switches_nothing_off", a_mount_of_root_switches_nothing_off),
];

fn an_inner_run_joins_without_its_environment(p: &Place) {
    // Without an environment, like under sudo.
    let output = p.shell(&format!("env -i {SYSTX} run -- /bin/sh -c 'echo inner > i'; cat i; exit 4"));
    assert_eq!((code(&output), out(&output).as_str()), (4, "inner\n"), "{}", err(&output));
    assert!(!p.served.join("i").exists(), "the inner one commits nothing by itself");
}

fn is_a_transaction(p: &Place) {
    let output = p.systx(&[], &["sh", "-c", "echo x > lost; exit 3"]).env("SYSTX_ID", "1").output().unwrap();
    let kept = p.served.join("lost").exists();
    assert_eq!((code(&output), kept), (3, false), "an aborted command's file stays: {}", err(&output));
    assert!(err(&output).contains("aborted, nothing was changed"), "{}", err(&output));
}

fn a_number_in_the_environment_switches_nothing_off(p: &Place) {
    is_a_transaction(p);
}

/// A FUSE mount that says to be a view, as `user_id`; only the process that has the device can answer.
struct Imposter {
    point: PathBuf,
    device: File,
}

impl Imposter {
    fn new(p: &Place, user_id: u32) -> Option<Imposter> {
        let device = File::options().read(true).write(true).open("/dev/fuse");
        let Ok(device) = device else {
            println!("skipped: /dev/fuse can't be opened");
            return None;
        };
        let point = p.beside.join("imposter");
        std::fs::create_dir(&point).unwrap();
        let options = format!("fd=0,rootmode=40000,user_id={user_id},group_id={user_id},allow_other");
        let mut mount = Command::new("mount");
        mount.args(["-i", "-t", "fuse.systx", "-o", &options, "systx"]).arg(&point);
        must(mount.stdin(device.try_clone().unwrap()));
        let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let line = table.lines().find(|line| line.contains(point.to_str().unwrap())).unwrap();
        assert!(
            line.contains(" - fuse.systx systx ") && line.contains(&format!("user_id={user_id},")),
            "{line}"
        );
        Some(Imposter { point, device })
    }

    /// Answers the first request as every server does, and all others with "not implemented".
    fn serve(mut self) -> impl FnOnce() {
        let mut device = self.device.try_clone().unwrap();
        let served = std::thread::spawn(move || {
            let mut request = vec![0; 1 << 20];
            while let Ok(length) = device.read(&mut request) {
                let word = |at: usize| u32::from_ne_bytes(request[at..at + 4].try_into().unwrap());
                let (opcode, unique) = (word(4), &request[8..16]);
                assert!(length >= 40);
                const INIT: u32 = 26;
                let (error, body): (i32, Vec<u8>) = match opcode {
                    // Version 7.31, and zeros for the rest: 64 bytes.
                    INIT => (0, [7u32, 31].iter().flat_map(|w| w.to_ne_bytes()).chain([0; 56]).collect()),
                    _ => (-38, Vec::new()),
                };
                let mut reply = (16 + body.len() as u32).to_ne_bytes().to_vec();
                reply.extend_from_slice(&error.to_ne_bytes());
                reply.extend_from_slice(unique);
                reply.extend_from_slice(&body);
                let _ = device.write_all(&reply);
            }
        });
        move || {
            self.end();
            served.join().unwrap();
        }
    }

    fn end(&mut self) {
        let _ = Command::new("umount").args(["-i", "-f"]).arg(&self.point).stderr(Stdio::null()).status();
        let _ = Command::new("umount").args(["-i", "-l"]).arg(&self.point).stderr(Stdio::null()).status();
    }
}

fn a_users_mount_switches_nothing_off(p: &Place) {
    // The mount's server answers nothing at all, which must not stop a run either.
    let Some(mut imposter) = Imposter::new(p, 65534) else { return };
    is_a_transaction(p);
    imposter.end();
}

fn a_mount_of_root_switches_nothing_off(p: &Place) {
    let Some(imposter) = Imposter::new(p, 0) else { return };
    let end = imposter.serve();
    is_a_transaction(p);
    end();
}
