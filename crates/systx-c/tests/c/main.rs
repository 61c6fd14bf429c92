//! Programs in C over libsystx, compiled and run on scratch file systems.
//!
//! `cargo test -p systx-c --test c [-- PART-OF-A-NAME]`. Each case is a program beside this file. It runs in this
//! process's mount namespace, as root.

mod agreement;
mod built;
mod examples;
mod interface;
mod volume;

use built::{Built, Compiler};
use std::path::Path;
use std::sync::Arc;
use systx_runner::{self as runner, Tried};
use volume::Volume;

/// File systems that programs run on.
const KINDS: [&str; 2] = ["tmpfs", "ext4"];

/// A case: the library, a directory of its own, and what it has tried.
type Case = fn(&Built, &Path) -> Tried;

fn main() {
    // A systx that is installed on this machine is not what is tested.
    std::env::set_var("SYSTX_WATCHER", "off");
    runner::in_a_mount_namespace();
    let scratch = Arc::new(volume::Scratch::new());
    let cases: [(&str, Case); 21] = [
        ("a_program_in_c_commits_and_aborts", |built, dir| on_each(built, dir, "first")),
        ("each_compiler_takes_the_header", interface::compilers),
        ("exported_is_what_is_declared", interface::symbols),
        ("each_function_has_its_manual_page", interface::manual),
        ("calls_answer_as_plain_ones", agreement::as_root),
        ("calls_of_an_ordinary_user_do_so_too", agreement::as_a_user),
        ("bad_input_is_an_error_and_changes_nothing", bad_input),
        ("threads_forks_and_outsiders_lose_nothing", |built, dir| on_each(built, dir, "together")),
        ("parts_actions_order_and_waiting_are_those_of_rust", |built, dir| on_each(built, dir, "more")),
        ("nothing_invalid_is_read_or_written_says_valgrind", under_valgrind),
        ("amounts_are_kept_whoever_is_killed", examples::transfer),
        ("a_privileged_open_is_not_led_astray", examples::toctou),
        ("a_temporary_file_is_whole_and_its_own", examples::tempfile),
        ("an_edited_file_is_old_or_new_wherever_the_editor_dies", examples::editor),
        ("a_graph_of_several_threads_is_that_of_a_serial_loop", examples::graph),
        ("a_loop_in_parallel_writes_what_a_serial_one_does", examples::parallel),
        ("a_subtree_is_moved_beside_readers_who_never_see_half", examples::ldif),
        ("files_are_checked_in_together_or_not_at_all", examples::check),
        ("each_compiler_takes_the_examples", examples::compilers),
        ("an_index_agrees_with_its_maildir", examples::maildir),
        ("the_package_for_python_passes_its_tests", python),
    ];
    let built = if runner::only_listed() { None } else { Built::new(scratch.path()).map(Arc::new) };
    let case = |(name, case): (&'static str, Case)| {
        let (built, scratch) = (built.clone(), scratch.clone());
        runner::Case::new(name, move || {
            let Some(built) = built else { return Tried::Skipped };
            fastrand::seed(runner::seed());
            let dir = scratch.path().join(name);
            std::fs::create_dir(&dir).unwrap();
            case(&built, &dir)
        })
    };
    let cases = cases.map(case).into();
    runner::run(cases, move || drop(scratch));
}

/// Runs a program on each kind of file system, in a directory of its own.
fn on_each(built: &Built, dir: &Path, name: &str) -> Tried {
    let program = built.program(Compiler::C, name, &[]);
    let volumes: Vec<_> = KINDS.into_iter().filter_map(|kind| Volume::new(dir, kind, 64)).collect();
    for volume in &volumes {
        built.run(&program, &[volume.tree().as_os_str()]);
    }
    if volumes.is_empty() {
        Tried::Skipped
    } else {
        Tried::Passed
    }
}

/// `VALGRIND`: the program. It must know openat2(2): 3.19 does not, 3.24 does.
fn under_valgrind(built: &Built, dir: &Path) -> Tried {
    let valgrind = std::env::var("VALGRIND").unwrap_or_else(|_| "valgrind".into());
    if !built::have(&valgrind) {
        return Tried::Skipped;
    }
    let Some(volume) = Volume::new(dir, "tmpfs", 64) else { return Tried::Skipped };
    for name in ["first", "more", "together"] {
        let tree = volume.tree().join(name);
        std::fs::create_dir(&tree).unwrap();
        let program = built.program(Compiler::C, name, &[]);
        let mut command = built.command(Path::new(&valgrind));
        let output = command.args(["-q", "--error-exitcode=99"]).arg(&program).arg(&tree).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        if said.contains("unhandled amd64-linux syscall: 437") {
            println!("skipped: this valgrind does not know openat2(2): VALGRIND names another one");
            return Tried::Skipped;
        }
        assert!(output.status.success(), "{name}: {}\n{said}", output.status);
    }
    Tried::Passed
}

fn bad_input(built: &Built, dir: &Path) -> Tried {
    // Small enough to be filled.
    let Some(volume) = Volume::new(dir, "tmpfs", 16) else { return Tried::Skipped };
    built.run(&built.program(Compiler::C, "bad", &[]), &[volume.tree().as_os_str()]);
    Tried::Passed
}

fn python(built: &Built, dir: &Path) -> Tried {
    if !built::have("python3") {
        return Tried::Skipped;
    }
    let Some(volume) = Volume::new(dir, "tmpfs", 32) else { return Tried::Skipped };
    let package = built::package().join("../../python");
    let mut python = std::process::Command::new("python3");
    python.args(["-B", "-W", "error", "-m", "unittest", "discover", "-s", "tests"]).current_dir(&package);
    python.env("PYTHONPATH", &package).env("SYSTX_LIBRARY", built.lib.join("libsystx.so"));
    // Numbers of ordered transactions are those of a process group, and other test programs run in this one's.
    std::os::unix::process::CommandExt::process_group(&mut python, 0);
    built::must(python.env("SYSTX_TEST_DIR", volume.tree()));
    Tried::Passed
}
