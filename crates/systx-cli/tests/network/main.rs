//! Reach of a command over sockets, by policy: `--network allow`, `deny`, `abort`, and `-x`.
//!
//! Everything happens in a network namespace of this program, with servers at its loopback device: 10.99.0.1
//! is an address that only it has. Each promise is checked of root, and of an ordinary user.
//!
//! `cargo test -p systx-cli --test network [-- PART-OF-A-NAME]`

#[path = "../alone/mod.rs"]
mod alone;
mod calls;
mod sessions;
mod world;

#[path = "../machine/user.rs"]
mod user;

use alone::place::word::{hear, say};
use alone::place::{code, err, must, out, Place};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Output};
use systx_runner as runner;
use world::{World, WHO};

/// Says that this program is in its own network already.
const INSIDE: &str = "SYSTX_TEST_NETWORK";

fn main() {
    if std::env::var_os(INSIDE).is_none() && !runner::only_listed() {
        runner::as_root();
        let words = std::env::args_os().skip(1);
        let mut again = Command::new("unshare");
        again.args(["--net", "--"]).arg(std::env::current_exe().unwrap()).args(words);
        match again.env(INSIDE, "1").status() {
            Ok(status) => std::process::exit(status.code().unwrap_or(1)),
            Err(e) => runner::skip(&format!("unshare can't be run: {e}")),
        }
    }
    let words: Vec<_> = std::env::args().skip(1).collect();
    if !words.iter().any(|word| word == "--role" || word == "--inside" || word == "--list") {
        let up = Command::new("sh")
            .args(["-c", "ip link set lo up && ip address add 10.99.0.1/32 dev lo"])
            .status();
        if !up.is_ok_and(|status| status.success()) {
            runner::skip("no network of its own, or no ip command");
        }
    }
    let cases = [CASES, sessions::ALL].concat();
    alone::enter(&["tmpfs"], &cases, &[("call", calls::play)]);
}

const CASES: &[(&str, alone::Case)] = &[
    ("allowed_it_is_reached_and_named", allowed_it_is_reached_and_named),
    ("denied_it_fails_and_the_rest_commits", denied_it_fails_and_the_rest_commits),
    ("the_first_attempt_ends_it", the_first_attempt_ends_it),
    ("held_output_tells_why_an_attempt_was_made", held_output_tells_why_an_attempt_was_made),
    ("servers_of_its_own_work", servers_of_its_own_work),
    ("the_machines_own_addresses_are_others", the_machines_own_addresses_are_others),
    ("without_a_policy_nothing_is_watched", without_a_policy_nothing_is_watched),
    ("sockets_that_no_namespace_keeps_in_are_denied", sockets_that_no_namespace_keeps_in),
    ("rings_and_other_abis_are_denied", rings_and_other_abis_are_denied),
    ("inherited_sockets_are_not_passed_on", inherited_sockets_are_not_passed_on),
    ("another_network_namespace_is_outside", another_network_namespace_is_outside),
    ("after_a_conflict_it_is_watched_again", after_a_conflict_it_is_watched_again),
    ("an_inner_run_has_no_policy_of_its_own", an_inner_run_has_no_policy_of_its_own),
];

const EPERM: &str = "error 1\n";
const ECONNREFUSED: &str = "error 111\n";

/// All that a run says.
fn all(output: &Output) -> (i32, String, String) {
    (code(output), out(output), err(output))
}

fn allowed_it_is_reached_and_named(p: &Place) {
    for who in WHO {
        let world = World::new(p, who);
        for (kind, target, shown) in world.outside() {
            let (code, out, err) = all(&world.call(&["--network", "allow"], kind, &target));
            assert_eq!((code, out.as_str()), (0, "ok\n"), "{who:?} {kind}: {err}");
            assert!(world.reached(kind), "{who:?} {kind}");
            let named =
                err.starts_with("systx: outside of the transaction, and not taken back: caller (pid ");
            assert!(named && err.ends_with(&format!("{shown}.\n")), "{who:?} {kind}: {err}");
        }
        let (kind, target, shown) = world.outside().remove(0);
        let told = err(&world.call(&["--network", "allow", "--json"], kind, &target));
        let told: serde_json::Value = serde_json::from_str(&told).unwrap();
        assert_eq!((&told["outside"]["policy"], &told["outside"]["more"]), (&"allow".into(), &0.into()));
        let first = &told["outside"]["reached"][0];
        assert_eq!((&first["program"], &first["to"]), (&"caller".into(), &shown.into()), "{told}");
    }
}

fn denied_it_fails_and_the_rest_commits(p: &Place) {
    for who in WHO {
        let world = World::new(p, who);
        for (n, (kind, target, shown)) in world.outside().into_iter().enumerate() {
            let options: &[&str] = if n % 2 == 0 { &["--network", "deny"] } else { &["-x"] };
            let (code, out, err) = all(&world.call(options, kind, &target));
            assert_eq!((code, out.as_str()), (0, EPERM), "{who:?} {kind}: {err}");
            assert!(!world.reached(kind), "{who:?} {kind}");
            assert!(err.starts_with("systx: denied: caller (pid "), "{who:?} {kind}: {err}");
            assert!(err.ends_with(&format!("{shown}.\n")), "{who:?} {kind}: {err}");
            assert!(world.has_left_its_mark(), "{who:?} {kind}");
        }
    }
}

fn the_first_attempt_ends_it(p: &Place) {
    for who in WHO {
        let world = World::new(p, who);
        for (kind, target, shown) in world.outside() {
            let (code, _, err) = all(&world.call(&["--network", "abort"], kind, &target));
            assert_eq!(code, 125, "{who:?} {kind}: {err}");
            assert!(!world.reached(kind) && !world.has_left_its_mark(), "{who:?} {kind}");
            assert!(err.starts_with("systx: aborted, nothing was changed: caller (pid "), "{err}");
            assert!(err.contains(&format!("{shown}, which --network abort")), "{who:?} {kind}: {err}");
            assert!(err.contains("--network allow"), "{err}");
        }
        let (kind, target, _) = world.outside().remove(0);
        let told = err(&world.call(&["--network", "abort", "--json"], kind, &target));
        let told: serde_json::Value = serde_json::from_str(&told).unwrap();
        assert_eq!((&told["outcome"], &told["status"]), (&"outside".into(), &125.into()), "{told}");
    }
}

fn held_output_tells_why_an_attempt_was_made(p: &Place) {
    let world = World::new(p, "root");
    let (kind, target, _) = world.outside().remove(0);
    let script = format!("echo out; echo why >&2; exec {} --role call {kind} {target}", world.caller());
    let output =
        world.run(&["--network", "abort", "--hold-output"], &["sh", "-c", &script]).output().unwrap();
    let (code, out, err) = all(&output);
    assert_eq!((code, out.as_str()), (125, ""), "{err}");
    assert!(err.starts_with("why\nsystx: aborted, nothing was changed: caller (pid "), "{err}");
}

fn servers_of_its_own_work(p: &Place) {
    for who in WHO {
        let world = World::new(p, who);
        for policy in ["deny", "abort"] {
            let output = world.call(&["--network", policy], "own", "");
            assert_eq!(all(&output), (0, "ok\n".into(), String::new()), "{who:?} {policy}");
            assert!(world.has_left_its_mark());
        }
    }
}

fn the_machines_own_addresses_are_others(p: &Place) {
    let world = World::new(p, "root");
    for policy in ["deny", "abort"] {
        for (kind, target) in [("tcp", world.loopback()), ("abstract", world.abstract_name())] {
            let output = world.call(&["--network", policy], kind, &target);
            assert_eq!(all(&output), (0, ECONNREFUSED.into(), String::new()), "{policy} {kind}");
            assert!(!world.reached_itself());
        }
    }
    for (kind, target) in [("tcp", world.loopback()), ("abstract", world.abstract_name())] {
        let (code, out, err) = all(&world.call(&["--network", "allow"], kind, &target));
        assert_eq!((code, out.as_str()), (0, "ok\n"), "{err}");
        assert!(err.contains(&target) && world.reached_itself(), "{err}");
    }
}

fn without_a_policy_nothing_is_watched(p: &Place) {
    for who in WHO {
        let world = World::new(p, who);
        let ours = std::fs::read_link("/proc/self/ns/net").unwrap();
        let state = |options: &[&str]| {
            let state = out(&world.call(options, "state", ""));
            let lines: Vec<_> = state.lines().map(str::to_string).collect();
            let [network, seccomp, privileges]: [String; 3] = lines.try_into().unwrap();
            (network == ours.to_str().unwrap(), seccomp, privileges)
        };
        let told = |watched| (format!("Seccomp:\t{watched}"), "NoNewPrivs:\t0".to_string());
        for (options, own_network, watched) in [
            (&["--no-native"][..], false, 0),
            (&["--network", "allow"], false, 2),
            (&["-x"], true, 2),
            (&["--network", "abort"], true, 2),
        ] {
            let (same, seccomp, privileges) = state(options);
            assert_eq!((!same, (seccomp, privileges)), (own_network, told(watched)), "{who:?} {options:?}");
        }
    }
}

fn sockets_that_no_namespace_keeps_in(p: &Place) {
    for who in WHO {
        let world = World::new(p, who);
        let (code, out, err) = all(&world.call(&["-x"], "vsock", ""));
        assert_eq!((code, out.as_str()), (0, EPERM), "{err}");
        assert!(err.contains("AF_VSOCK"), "{err}");
    }
}

/// Calls that Rust has no safe words for: a call of 64 bits by its number, and one of 32 bits.
const PYTHON: &str = r#"
import ctypes, mmap, sys
if sys.argv[1] == "ring":
    ring = ctypes.CDLL(None, use_errno=True).syscall(425, 1, ctypes.create_string_buffer(120))
    print("ok" if ring >= 0 else "error %d" % ctypes.get_errno())
else:
    number = int(sys.argv[2])
    # push rbx; mov eax, number; mov ebx, -1; xor ecx, ecx; xor edx, edx; int 0x80; pop rbx; ret
    code = b"\x53\xb8" + number.to_bytes(4, "little") + b"\xbb\xff\xff\xff\xff\x31\xc9\x31\xd2\xcd\x80\x5b\xc3"
    memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(code)
    call = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(memory)))
    print("error %d" % -call())
"#;

fn rings_and_other_abis_are_denied(p: &Place) {
    if !Command::new("python3").arg("--version").output().is_ok_and(|output| output.status.success()) {
        return println!("skipped: no python3");
    }
    let world = World::new(p, "root");
    let python = |options: &[&str], words: &[&str]| {
        let output = world.run(options, &[&["python3", "-c", PYTHON], words].concat()).output().unwrap();
        (out(&output), err(&output))
    };
    // The answer of the machine itself: it may have no rings.
    let (plain, _) = python(&[], &["ring"]);
    let (denied, said) = python(&["-x"], &["ring"]);
    assert_eq!(denied, EPERM, "{said}");
    assert!(said.contains("io_uring"), "{said}");
    let (allowed, said) = python(&["--network", "allow"], &["ring"]);
    assert_eq!(allowed, plain);
    assert!(said.contains("io_uring"), "{said}");
    if !cfg!(target_arch = "x86_64") {
        return println!("skipped: no second ABI is known on this architecture");
    }
    // connect(-1) and socketcall(-1) of 32 bits, and getpid, which reaches nothing.
    if python(&[], &["call", "362"]).0 != "error 9\n" {
        return println!("skipped: this kernel has no calls of 32 bits");
    }
    for number in ["362", "102", "425"] {
        let (denied, said) = python(&["-x"], &["call", number]);
        assert_eq!(denied, EPERM, "{number}: {said}");
        assert!(said.contains("another ABI"), "{said}");
    }
    let (allowed, said) = python(&["--network", "allow"], &["call", "362"]);
    assert_eq!(allowed, "error 9\n");
    assert!(said.contains("another ABI"), "{said}");
    let (_, said) = python(&["-x"], &["call", "20"]);
    assert_eq!(said, "");
}

fn inherited_sockets_are_not_passed_on(p: &Place) {
    for who in WHO {
        let world = World::new(p, who);
        let (ours, theirs) = UnixStream::pair().unwrap();
        rustix::io::fcntl_setfd(&theirs, rustix::io::FdFlags::empty()).unwrap();
        let number = theirs.as_raw_fd().to_string();
        for (options, kept) in [
            (&[][..], true),
            (&["--network", "allow"], true),
            (&["-x"], false),
            (&["--network", "abort"], false),
        ] {
            let (code, out, err) = all(&world.call(options, "holds", &number));
            let expected = if kept { "a socket\n" } else { "nothing\n" };
            assert_eq!((code, out.as_str()), (0, expected), "{who:?} {options:?}: {err}");
        }
        // A standard stream is passed on: the command was started to write there.
        let mut command = world.run(&["-x"], &["echo", "said"]);
        command.stdout(std::os::fd::OwnedFd::from(theirs));
        let status = command.status().unwrap();
        drop(command);
        ours.set_nonblocking(true).unwrap();
        let mut said = [0; 8];
        let n = std::io::Read::read(&mut &ours, &mut said).unwrap();
        assert_eq!((status.code(), &said[..n]), (Some(0), &b"said\n"[..]));
    }
}

fn another_network_namespace_is_outside(p: &Place) {
    let world = World::new(p, "root");
    let there = p.beside.join("ns");
    std::fs::write(&there, "").unwrap();
    must(Command::new("mount").args(["--bind", "/proc/self/ns/net"]).arg(&there));
    let enter = format!("nsenter --net={} true && echo entered; true", there.display());
    let (code, out, err) = all(&world.run(&["-x"], &["sh", "-c", &enter]).output().unwrap());
    must(Command::new("umount").arg(&there));
    assert_eq!((code, out.as_str()), (0, ""), "{err}");
    assert!(err.contains("nsenter (pid ") && err.contains("another network namespace"), "{err}");
}

fn after_a_conflict_it_is_watched_again(p: &Place) {
    let world = World::new(p, "root");
    p.write("count", "1\n");
    let caller = world.caller();
    let (_, target, shown) = world.outside().remove(0);
    let script = format!(
        "read n < count; {} {caller} --role call tcp {target}; echo $((n + 1)) > count",
        alone::turn(1)
    );
    let options = ["--network", "deny", "--retry", "1"];
    let mut meeting = alone::meet(p, 1, &options, &["sh", "-c", &script]);
    p.write("count", "41\n");
    // The second try waits for a word of its own.
    let word = p.beside.join("word1");
    say(&word, &mut meeting.systx, "go");
    assert_eq!(hear(&p.beside.join("here1"), &mut meeting.systx), "here\n");
    let (code, out, err) = all(&meeting.end());
    assert_eq!(code, 0, "{err}");
    assert!(out.ends_with(EPERM) && err.contains("denied: caller (pid "), "{out}{err}");
    assert!(err.contains(&shown) && p.read("count") == "42\n", "{err}");
}

fn an_inner_run_has_no_policy_of_its_own(p: &Place) {
    let inner = format!("{} run --area-name {} -x -- true", alone::place::SYSTX, alone::place::AREA);
    let output = p.shell(&inner);
    assert_eq!(code(&output), 125);
    assert!(err(&output).contains("--network and -x are for a transaction of its own"), "{}", err(&output));
}
