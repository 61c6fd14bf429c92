//! The library beside `systx run`, programs that know of neither, and other threads and processes.
//!
//! `cargo test -p systx-cli --test library [-- PART-OF-A-NAME]`.

mod agreement;
mod alone;
mod appends;
mod ending;
mod host;
#[path = "../machine/mod.rs"]
mod machine;
mod manners;
mod mutants;
mod ordered;
mod pages;
mod parts;
mod pause;
mod rights;
mod watcher;
mod ways;

use machine::picture::{difference, picture};
use machine::volume::Volume;
use machine::{code, err, must, recover, rounds, run, AREA};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use systx::{Durability, Error, File, OpenOptions, Options, Systx, Unsupported};

/// Environment of a further process of this program: what it is to do, and where.
const ROLE: &str = "SYSTX_LIBRARY_ROLE";

fn main() {
    if let Some(role) = std::env::var_os(ROLE) {
        let place = PathBuf::from(std::env::args_os().nth(1).expect("a directory"));
        match role.to_str() {
            Some("add") => add(&place),
            Some("transfer") => transfer_for_ever(&place, 1),
            Some("transfer-threads") => transfer_for_ever(&place, THREADS as u64),
            Some("relative") => alone::play_relative(&place),
            Some("rights") => rights::play(&place),
            Some("order-threads") => ordered::play_threads(&place),
            Some("order-serial") => ordered::play_serial(&place),
            Some("order-third") => ordered::play_third(&place),
            Some("order-hold") => ordered::play_hold(&place),
            Some("transfer between") => transfer_between(&place, Path::new(&std::env::var(OTHER).unwrap())),
            Some("nested") => nested(&place),
            Some("act") => manners::play_act(&place),
            Some("first") => manners::play_first(&place),
            Some("change") => watcher::play_change(&place),
            Some("stay") => watcher::play_stay(&place),
            Some("order-counted") => ordered::play_counted(&place),
            Some("parts") => parts::play(&place),
            Some("appends") => appends::play(&place),
            Some("appends-for-ever") => appends::play_for_ever(&place),
            Some("pages") => pages::play(&place),
            Some("pages-for-ever") => pages::play_for_ever(&place),
            _ => panic!("no role is called {role:?}"),
        }
        return;
    }
    machine::main(&[
        ("a_commit_makes_all_of_it_public_and_an_abort_nothing", all_or_nothing),
        ("calls_answer_as_plain_ones_and_a_commit_makes_them_real", agreement::as_root),
        ("calls_of_an_ordinary_user_do_so_too", agreement::as_a_user),
        ("an_outsiders_change_is_a_conflict_and_is_kept", an_outsider),
        ("a_first_look_shows_what_is_there_and_holds_until_the_end", alone::first_looks),
        ("a_relative_path_begins_where_the_thread_stands_wherever_that_is_now", alone::relative),
        ("a_run_and_the_library_lose_no_update", beside_runs),
        ("threads_and_processes_lose_no_update", nobody_loses),
        ("who_writes_different_pages_of_a_file_has_no_conflict_and_loses_nothing", pages::nobody_loses),
        ("pages_beside_an_outsider_and_runs_lose_nothing", pages::beside_others),
        ("pages_of_the_killed_are_whole", pages::killed),
        ("who_appends_to_one_file_has_no_conflict_and_loses_nothing", appends::nobody_loses),
        ("appends_beside_outsiders_and_runs_lose_nothing", appends::beside_others),
        ("appends_of_the_killed_are_whole", appends::killed),
        ("an_append_that_asks_where_it_is_has_seen_the_end", appends::offsets),
        ("an_append_beyond_the_longest_file_changes_nothing", appends::beyond_the_longest),
        ("a_sum_is_kept_whoever_is_killed", killed),
        ("threads_of_killed_processes_keep_a_sum", killed_threads),
        ("a_sum_over_two_file_systems_is_kept_whoever_is_killed", killed_between),
        ("a_host_that_lives_on_gets_out_of_a_doubt", doubt_of_another),
        ("a_users_directory_is_one_however_it_is_reached", nested_mounts),
        ("a_table_that_makes_no_sense_is_opened_anew", condemned),
        ("an_area_that_was_removed_is_made_anew", removed_area),
        ("one_transaction_spans_file_systems", over_file_systems),
        ("paths_lead_where_they_lead_outside", ways::paths),
        ("mounts_in_what_is_served_are_crossed", ways::mounts),
        ("what_is_not_served_can_be_read", ways::outside),
        ("rights_are_the_calling_threads", rights::matrix),
        ("a_transaction_that_has_ended_says_so", ended),
        ("actions_run_once_behind_the_end", ending::actions),
        ("handles_end_with_their_transaction", ending::handles),
        ("a_descriptors_offset_moves_with_the_commit", ending::descriptors),
        ("a_part_is_undone_alone_and_without_a_trace", parts::undone_alone),
        ("handles_of_a_part_end_with_it_and_offsets_go_back", parts::handles),
        ("what_an_undone_part_has_read_stays_read", parts::reads_stay),
        ("parts_of_an_ordinary_users_transaction_are_undone_alone", parts::of_a_user),
        ("a_paused_transaction_is_resumed_once_by_those_who_took_part", pause::paused),
        ("who_waits_for_a_change_sleeps_until_there_is_one", pause::retry),
        ("who_waits_for_a_change_does_not_sleep_past_one", pause::changed_before),
        ("ordered_transactions_commit_by_number", ordered::threads),
        ("a_number_is_counted_behind_its_commit", ordered::counted),
        ("ordered_programs_leave_what_they_leave_one_after_the_other", ordered::serial),
        ("processes_of_a_group_commit_by_number_whoever_is_killed", ordered::processes),
        ("who_is_killed_in_its_turn_is_counted_if_it_has_committed", manners::killed_in_turn),
        ("of_many_threads_each_loses_a_bounded_number_of_times", manners::bounded_losses),
        ("who_would_wait_and_never_waits_ends_and_who_is_less_nice_does_not_wait", manners::who_waits),
        ("reads_of_degree_2_claim_nothing_and_changes_do", manners::read_committed),
        ("what_is_allowed_happens_at_once_and_is_told", manners::allowed),
        ("named_actions_of_the_dead_are_told_and_not_run", manners::actions_reported),
        ("the_host_is_as_it_was", host::stays_as_it_was),
        ("a_forked_child_ends_nothing_of_its_parents", host::may_fork),
        ("a_host_that_closes_everything_keeps_its_own_files", host::may_close_everything),
        ("nothing_is_done_again_after_an_orderly_unmount", a_checkpoint),
        ("a_watcher_finishes_for_a_host_that_is_killed_in_its_commit", watcher::finishes),
        ("a_watcher_finishes_for_an_ordinary_user", watcher::finishes_for_a_user),
        ("a_watcher_finishes_what_spans_two_file_systems", watcher::finishes_over_two),
        ("twenty_hosts_have_one_watcher_which_goes_with_the_last", watcher::one_for_all),
        ("a_watcher_that_is_switched_off_or_not_trusted_is_none", watcher::switched_off),
        ("each_rule_of_the_library_is_missed_by_a_case", mutants::each_is_missed),
    ]);
}

pub(crate) fn systx() -> Systx {
    Systx::with_area_name(AREA).unwrap()
}

pub(crate) fn loosely() -> Options {
    Options::new().durability(Durability::None)
}

/// A directory on a file system of this kind; the volume holds it.
pub fn place(dir: &Path, kind: &'static str) -> Option<(Volume, PathBuf)> {
    let volume = Volume::new(dir, kind, 300)?;
    let tree = volume.point.join("tree");
    std::fs::create_dir(&tree).unwrap();
    Some((volume, tree))
}

const KINDS: [&str; 4] = ["ext4", "xfs", "btrfs", "tmpfs"];

/// One of each kind of change; the same calls, plainly, are in [`plainly`].
fn change(tx: &systx::Dir) -> std::io::Result<()> {
    tx.create_dir("new")?;
    tx.write("new/file", "made inside")?;
    tx.write("old", "written anew")?;
    let mut large = tx.open_with("large", &OpenOptions::new().read(true).write(true))?;
    large.seek(SeekFrom::Start(1_000_000))?;
    large.write_all(b"in the middle")?;
    tx.open_with("log", &OpenOptions::new().append(true))?.write_all(b"one more line\n")?;
    tx.rename("moved", "new/moved")?;
    tx.remove_file("gone")?;
    tx.remove_dir_all("tree")?;
    tx.hard_link("old", "new/link")?;
    tx.symlink("../old", "new/symlink")?;
    tx.set_mode("old", 0o640)?;
    tx.open_with("cut", &OpenOptions::new().write(true))?.set_len(3)?;
    tx.copy("log", "copy")?;
    Ok(())
}

fn begin_with(tree: &Path) {
    for (name, text) in
        [("old", "old"), ("log", "a line\n"), ("moved", "m"), ("gone", "g"), ("cut", "cut off")]
    {
        std::fs::write(tree.join(name), text).unwrap();
    }
    std::fs::write(tree.join("large"), vec![b'x'; 3 << 20]).unwrap();
    std::fs::create_dir_all(tree.join("tree/a/b")).unwrap();
    std::fs::write(tree.join("tree/a/file"), "below").unwrap();
}

fn all_or_nothing(dir: &Path) {
    for kind in KINDS {
        let Some((volume, tree)) = place(dir, kind) else { continue };
        begin_with(&tree);
        let before = picture(&tree);
        let systx = systx();
        let tx = systx.begin(&Options::new()).unwrap();
        let inside = tx.open_dir(&tree).unwrap();
        change(&inside).unwrap();
        assert_eq!(tx.read_to_string(tree.join("new/link")).unwrap(), "written anew", "{kind}");
        assert_eq!(inside.read("large").unwrap()[1_000_000..][..13], *b"in the middle", "{kind}");
        let now = picture(&tree);
        assert!(now == before, "{kind}, before the end:\n{}", difference(&now, &before));
        drop(tx);
        let now = picture(&tree);
        assert!(now == before, "{kind}, dropped:\n{}", difference(&now, &before));
        let left: Vec<_> =
            std::fs::read_dir(volume.area().join("tx")).unwrap().map(|e| e.unwrap().path()).collect();
        assert!(left.is_empty(), "{kind}: staged files stay behind an abort: {left:?}");

        let tx = systx.begin(&Options::new()).unwrap();
        change(&tx.open_dir(&tree).unwrap()).unwrap();
        let committed = tx.commit().unwrap();
        assert!(committed.steps > 5 && committed.displaced.is_empty(), "{committed:?}");
        assert_eq!(committed.pending, None);
        assert_eq!(std::fs::read_to_string(tree.join("new/link")).unwrap(), "written anew");
        assert_eq!(std::fs::read_to_string(tree.join("copy")).unwrap(), "a line\none more line\n");
        assert_eq!(std::fs::read_to_string(tree.join("cut")).unwrap(), "cut");
        assert_eq!(std::fs::read(tree.join("large")).unwrap()[1_000_000..][..13], *b"in the middle");
        assert_eq!(std::fs::read_link(tree.join("new/symlink")).unwrap(), Path::new("../old"));
        for gone in ["moved", "gone", "tree"] {
            assert!(!tree.join(gone).exists(), "{kind}: {gone}");
        }
    }
}

fn an_outsider(dir: &Path) {
    let Some((_volume, tree)) = place(dir, "ext4") else { return };
    let systx = systx();
    let (read, written) = (tree.join("read"), tree.join("written"));
    std::fs::write(&read, "1").unwrap();
    let tx = systx.begin(&Options::new()).unwrap();
    assert_eq!(tx.read(&read).unwrap(), b"1");
    tx.write(&written, "on what was read").unwrap();
    std::fs::write(&read, "2").unwrap();
    let Err(Error::Conflict(conflict)) = tx.commit() else { panic!("it has committed") };
    assert_eq!(conflict.path(), read);
    assert!(!written.exists(), "nothing of it is public");
    // A missing name is read, too.
    let tx = systx.begin(&Options::new()).unwrap();
    assert!(!tx.try_exists(tree.join("lock")).unwrap());
    tx.write(&written, "none was there").unwrap();
    std::fs::write(tree.join("lock"), "").unwrap();
    assert!(tx.commit().unwrap_err().is_conflict());
    // The check in between says so at once, and so does each call after it.
    let tx = systx.begin(&Options::new()).unwrap();
    tx.read(&read).unwrap();
    tx.check().unwrap();
    std::fs::write(&read, "3").unwrap();
    let error = tx.check().unwrap_err();
    assert!(Error::of(&error).is_some_and(Error::is_conflict), "{error}");
    let error = tx.read(&written).unwrap_err();
    assert!(Error::of(&error).is_some_and(Error::is_conflict), "{error}");
    // `atomically` tries again, and sees what is there then.
    let mut tries = 0;
    let seen = systx.atomically(&Options::new(), |tx| {
        tries += 1;
        let seen = tx.read_to_string(&read)?;
        tx.write(&written, &seen)?;
        if tries == 1 {
            std::fs::write(&read, "4").unwrap();
        }
        Ok::<_, std::io::Error>(seen)
    });
    assert_eq!((seen.unwrap().as_str(), tries), ("4", 2));
    assert_eq!(std::fs::read_to_string(&written).unwrap(), "4");
    // An error of the work's own ends it at once, and nothing stays.
    let failed = systx.atomically(&Options::new(), |tx| {
        tx.remove_file(&written)?;
        Err::<(), _>(std::io::Error::other("not today"))
    });
    assert_eq!(failed.unwrap_err().to_string(), "not today");
    assert!(written.exists());
    // A conflict that each try meets is told in the end.
    let options = Options::new().retries(3);
    let mut tries = 0;
    let lost = systx.atomically(&options, |tx| {
        tries += 1;
        let seen = tx.read(&read)?;
        std::fs::write(&read, format!("again {tries}")).unwrap();
        tx.write(&written, seen)
    });
    assert!(Error::of(&lost.unwrap_err()).is_some_and(Error::is_conflict));
    assert_eq!(tries, 4);
}

/// Adds 1 to the number in a file.
fn add_one(systx: &Systx, options: &Options, file: &Path) {
    let done = systx.atomically(options, |tx| {
        let now: u64 = tx.read_to_string(file)?.trim().parse().expect("a number");
        tx.write(file, format!("{}\n", now + 1))
    });
    done.unwrap();
}

fn number(file: &Path) -> u64 {
    std::fs::read_to_string(file).unwrap().trim().parse().unwrap()
}

fn beside_runs(dir: &Path) {
    let Some((_volume, tree)) = place(dir, "ext4") else { return };
    let file = tree.join("number");
    std::fs::write(&file, "0\n").unwrap();
    let (systx, times) = (systx(), rounds(20, 400));
    std::thread::scope(|scope| {
        scope.spawn(|| (0..times).for_each(|_| add_one(&systx, &loosely(), &file)));
        for _ in 0..times {
            let script = "echo $(($(cat number) + 1)) >number";
            let done = run(&tree, &["--retry", "1000"], &["sh", "-c", script]).output().unwrap();
            assert_eq!(code(&done), 0, "{}", err(&done));
        }
    });
    assert_eq!(number(&file), 2 * times as u64);
}

/// Times that each process of [`nobody_loses`] adds, on each of its threads.
const ADDS: usize = 25;
const THREADS: usize = 4;

fn add(tree: &Path) {
    let systx = systx();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| (0..ADDS).for_each(|_| add_one(&systx, &loosely(), &tree.join("number"))));
        }
    });
}

/// A further process of this program.
pub fn process(role: &str, place: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg(place).env(ROLE, role).stdin(Stdio::null());
    command
}

fn nobody_loses(dir: &Path) {
    for kind in KINDS {
        let Some((_volume, tree)) = place(dir, kind) else { continue };
        let file = tree.join("number");
        std::fs::write(&file, "0\n").unwrap();
        let processes: Vec<_> = (0..2).map(|_| process("add", &tree).spawn().unwrap()).collect();
        for mut process in processes {
            assert!(process.wait().unwrap().success(), "{kind}");
        }
        assert_eq!(number(&file), (2 * THREADS * ADDS) as u64, "{kind}");
    }
}

const ACCOUNTS: u64 = 5;

fn transfer(systx: &Systx, tree: &Path, n: u64) -> std::io::Result<()> {
    let account = |n: u64| tree.join(format!("account{}", n % ACCOUNTS));
    let (from, to) = (account(n), account(n.wrapping_mul(7) + 1));
    systx.atomically(&Options::new().retries(10_000), |tx| {
        if from == to {
            return Ok(());
        }
        let read = |path: &Path| -> std::io::Result<i64> {
            Ok(tx.read_to_string(path)?.trim().parse().expect("a number"))
        };
        let (has, gets) = (read(&from)?, read(&to)?);
        tx.write(&from, format!("{}\n", has - 3))?;
        // One goes by a new file over the old one, as careful programs do it.
        let new = to.with_extension("new");
        tx.write(&new, format!("{}\n", gets + 3))?;
        tx.rename(&new, &to)
    })
}

/// Until it is killed, or nobody listens any more; says after each transfer that it is done.
fn transfer_for_ever(tree: &Path, threads: u64) {
    let systx = systx();
    let work = |thread: u64| {
        let mut told = std::io::stdout();
        for n in (u64::from(std::process::id()) + thread).. {
            transfer(&systx, tree, n).unwrap();
            if told.write_all(b".").and_then(|()| told.flush()).is_err() {
                return;
            }
        }
    };
    let work = &work;
    std::thread::scope(|scope| (0..threads).for_each(|thread| drop(scope.spawn(move || work(thread)))));
}

fn killed(dir: &Path) {
    killed_at_work(dir, "transfer", &["ext4", "btrfs"]);
}

fn killed_threads(dir: &Path) {
    killed_at_work(dir, "transfer-threads", &["ext4", "xfs", "tmpfs"]);
}

fn killed_at_work(dir: &Path, role: &str, kinds: &[&'static str]) {
    for kind in kinds.iter().copied() {
        let Some((_volume, tree)) = place(dir, kind) else { continue };
        for n in 0..ACCOUNTS {
            std::fs::write(tree.join(format!("account{n}")), "100\n").unwrap();
        }
        let systx = systx();
        for round in 0..rounds(6, 300) {
            let mut processes: Vec<_> =
                (0..3).map(|_| process(role, &tree).stdout(Stdio::piped()).spawn().unwrap()).collect();
            // Each is at work; then they go, one at a point of its work that nobody chose.
            for process in &mut processes {
                let mut done = vec![0; 1 + round % 3];
                process.stdout.as_mut().unwrap().read_exact(&mut done).unwrap();
            }
            for process in &mut processes {
                process.kill().unwrap();
                process.wait().unwrap();
            }
            // The next use finishes what they have left.
            let sum = systx.atomically(&Options::new(), |tx| {
                let mut sum = 0;
                for n in 0..ACCOUNTS {
                    let text = tx.read_to_string(tree.join(format!("account{n}")))?;
                    sum += text.trim().parse::<i64>().expect("a number");
                }
                assert!(tx
                    .read_dir(&tree)?
                    .all(|entry| !entry.file_name().as_encoded_bytes().ends_with(b".new")));
                Ok::<_, std::io::Error>(sum)
            });
            assert_eq!(sum.unwrap(), 100 * ACCOUNTS as i64, "{kind}, round {round}");
        }
    }
}

/// Environment of a further process: a second place.
const OTHER: &str = "SYSTX_LIBRARY_OTHER";

fn transfer_between(a: &Path, b: &Path) {
    let systx = systx();
    let mut told = std::io::stdout();
    for n in 0.. {
        let (from, to) = if n % 2 == 0 { (a, b) } else { (b, a) };
        let number = |tx: &systx::Dir, tree: &Path| -> std::io::Result<i64> {
            Ok(tx.read_to_string(tree.join("account"))?.trim().parse().expect("a number"))
        };
        let done = systx.atomically(&Options::new().retries(10_000), |tx| {
            let (has, gets) = (number(tx, from)?, number(tx, to)?);
            tx.write(from.join("account"), format!("{}\n", has - 3))?;
            tx.write(to.join("account"), format!("{}\n", gets + 3))
        });
        done.unwrap();
        if told.write_all(b".").and_then(|()| told.flush()).is_err() {
            return;
        }
    }
}

/// A file system with an account of 100.
fn account_on(dir: &Path, kind: &'static str) -> Option<(Volume, PathBuf)> {
    let placed = place(dir, kind)?;
    std::fs::write(placed.1.join("account"), "100\n").unwrap();
    Some(placed)
}

fn account(tx: &systx::Dir, tree: &Path) -> std::io::Result<i64> {
    Ok(tx.read_to_string(tree.join("account"))?.trim().parse().expect("a number"))
}

/// Kills a process that moves amounts between two accounts when it has moved so many.
fn kill_between(a: &Path, b: &Path, moved: usize) {
    let mut process = process("transfer between", a).env(OTHER, b).stdout(Stdio::piped()).spawn().unwrap();
    process.stdout.as_mut().unwrap().read_exact(&mut vec![0; moved]).unwrap();
    process.kill().unwrap();
    process.wait().unwrap();
}

fn killed_between(dir: &Path) {
    let Some((_one, a)) = account_on(dir, "ext4") else { return };
    let Some((_other, b)) = account_on(dir, "xfs") else { return };
    for round in 0..rounds(20, 300) {
        kill_between(&a, &b, 1 + round % 3);
        // The next use comes to one of the two file systems alone, first.
        let systx = systx();
        let first = if round % 2 == 0 { &a } else { &b };
        let seen = systx.atomically(&Options::new(), |tx| account(tx, first));
        assert!(seen.is_ok(), "round {round}: {}", seen.unwrap_err());
        let sum = systx
            .atomically(&Options::new(), |tx| Ok::<_, std::io::Error>(account(tx, &a)? + account(tx, &b)?));
        assert_eq!(sum.unwrap(), 200, "round {round}");
    }
}

/// What it has open is the participant alone; the other one dies beside it.
fn doubt_of_another(dir: &Path) {
    let Some((_one, a)) = account_on(dir, "ext4") else { return };
    let Some((_other, b)) = account_on(dir, "xfs") else { return };
    let (at_a, at_b) = (systx(), systx());
    let read = |systx: &Systx, tree: &Path| {
        systx.atomically(&Options::new().retries(100), |tx| account(tx, tree)).unwrap()
    };
    assert_eq!(read(&at_a, &a) + read(&at_b, &b), 200);
    for round in 0..rounds(20, 300) {
        kill_between(&a, &b, 1 + round % 3);
        // Either is asked first in turns.
        let mut both = [(&at_a, &a), (&at_b, &b)];
        both.rotate_left(round % 2);
        let sum: i64 = both.iter().map(|(systx, tree)| read(systx, tree)).sum();
        assert_eq!(sum, 200, "round {round}");
    }
}

/// The memory that the processes of a domain share is damaged under a host that goes on.
fn condemned(dir: &Path) {
    use std::os::unix::fs::FileExt;
    let Some((_volume, tree)) = place(dir, "ext4") else { return };
    let systx = systx();
    let add = || {
        systx.atomically(&Options::new(), |tx| {
            let before: u32 = match tx.read_to_string(tree.join("n")) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => 0,
                text => text?.parse().expect("a number"),
            };
            tx.write(tree.join("n"), (before + 1).to_string())?;
            Ok::<_, std::io::Error>(before + 1)
        })
    };
    for n in 1..=3 {
        assert_eq!(add().unwrap(), n);
    }
    let area = tree.parent().unwrap().join(AREA);
    let table = std::fs::OpenOptions::new().write(true).open(area.join("table")).unwrap();
    // Every entry is said to be active, and none makes sense.
    table.write_all_at(&[0xff; 8], 32 * 8).unwrap();
    table.write_all_at(&[0xff; 64 * 64 * 8], 200 * 8).unwrap();
    // The host's own thread may have met it before.
    match add() {
        Ok(n) => assert_eq!(n, 4),
        Err(first) => assert_eq!(add().unwrap_or_else(|e| panic!("after {first}: {e}")), 4),
    }
    assert_eq!(std::fs::read_to_string(tree.join("n")).unwrap(), "4");
}

/// The area is removed under a host that goes on, between two transactions and in one.
fn removed_area(dir: &Path) {
    for kind in KINDS {
        let Some((_volume, tree)) = place(dir, kind) else { continue };
        let systx = systx();
        let area = tree.parent().unwrap().join(AREA);
        let add = |meanwhile: &dyn Fn()| {
            systx.atomically(&Options::new(), |tx| {
                let before = tx.read_to_string(tree.join("n")).unwrap_or_default();
                tx.write(tree.join("n"), before + "x")?;
                meanwhile();
                Ok::<_, std::io::Error>(())
            })
        };
        let text = || std::fs::read_to_string(tree.join("n")).unwrap();
        // The host's own thread may be making a checkpoint in it.
        let remove = |path: &Path| {
            while path.symlink_metadata().is_ok() {
                let _ = std::fs::remove_dir_all(path).or_else(|_| std::fs::remove_file(path));
            }
        };
        add(&|| ()).unwrap();
        remove(&area);
        add(&|| ()).unwrap();
        assert!(area.join("table").exists(), "{kind}");
        for part in ["", "table", "owners", "log", "tx", "aside"] {
            let before = text();
            let ended = add(&|| remove(&area.join(part)));
            let told = ended.as_ref().map_or_else(ToString::to_string, |()| "committed".into());
            assert!(told.contains("was removed or moved meanwhile"), "{kind}: without {part:?}: {told}");
            assert_eq!(text(), before, "{kind}: without {part:?}");
            // The domain is opened anew.
            add(&|| ()).unwrap_or_else(|e| panic!("{kind}: behind {part:?}: {e}"));
            assert_eq!(text(), before.clone() + "x", "{kind}: behind {part:?}");
            remove(&area.join(part));
            add(&|| ()).unwrap_or_else(|e| panic!("{kind}: {part:?} between two: {e}"));
            assert_eq!(text(), before + "xx", "{kind}: {part:?} between two");
        }
    }
}

fn nested_mounts(dir: &Path) {
    use std::os::unix::fs::chown;
    use std::os::unix::process::CommandExt;
    let Some((_volume, tree)) = place(dir, "ext4") else { return };
    let own = tree.join("own");
    for name in ["", "project", "mounted"] {
        std::fs::create_dir(own.join(name)).unwrap();
        chown(own.join(name), Some(machine::user::USER), Some(machine::user::USER)).unwrap();
    }
    must(Command::new("mount").args(["-t", "tmpfs", "none"]).arg(own.join("mounted")));
    let user = machine::user::USER;
    let status = process("nested", &own).uid(user).gid(user).status().unwrap();
    must(Command::new("umount").arg(own.join("mounted")));
    assert!(status.success());
}

/// As an ordinary user, in whose directory something is mounted.
fn nested(own: &Path) {
    let systx = systx();
    std::env::set_current_dir(own.join("project")).unwrap();
    let tx = systx.begin(&loosely()).unwrap();
    tx.write(own.join("project/f"), "by the whole path").unwrap();
    assert_eq!(tx.read("f").unwrap(), b"by the whole path");
    tx.write("g", "from here").unwrap();
    assert_eq!(tx.read(own.join("project/g")).unwrap(), b"from here");
    tx.commit().unwrap();
}

fn over_file_systems(dir: &Path) {
    let Some((_one, a)) = place(dir, "ext4") else { return };
    let Some((_other, b)) = place(dir, "tmpfs") else { return };
    let Some((_third, c)) = place(dir, "xfs") else { return };
    let systx = systx();
    for place in [&a, &b, &c] {
        std::fs::write(place.join("n"), "0").unwrap();
    }
    let all = |tx: &systx::Transaction, text: &str| {
        [&a, &b, &c].map(|place| tx.write(place.join("n"), text).unwrap())
    };
    let tx = systx.begin(&Options::new()).unwrap();
    all(&tx, "1");
    let error = tx.rename(a.join("n"), b.join("m")).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::CrossesDevices);
    tx.commit().unwrap();
    let tx = systx.begin(&Options::new()).unwrap();
    all(&tx, "2");
    tx.read(b.join("n")).unwrap();
    std::fs::write(b.join("n"), "outsider").unwrap();
    assert!(tx.commit().unwrap_err().is_conflict());
    let now = [&a, &b, &c].map(|place| std::fs::read_to_string(place.join("n")).unwrap());
    assert_eq!(now, ["1", "outsider", "1"]);
    // Another order, and a retry over all of them.
    systx
        .atomically(&Options::new(), |tx| [&c, &b, &a].iter().try_for_each(|p| tx.write(p.join("n"), "3")))
        .unwrap();
    let now = [&a, &b, &c].map(|place| std::fs::read_to_string(place.join("n")).unwrap());
    assert_eq!(now, ["3", "3", "3"]);
}

fn ended(dir: &Path) {
    let Some((_volume, tree)) = place(dir, "ext4") else { return };
    let systx = systx();
    let tx = systx.begin(&Options::new()).unwrap();
    let mut file: File = tx.create(tree.join("f")).unwrap();
    file.write_all(b"text").unwrap();
    let inside = tx.open_dir(&tree).unwrap();
    tx.commit().unwrap();
    let told = |error: std::io::Error| matches!(Error::of(&error), Some(Error::Ended));
    assert!(told(file.write(b"more").unwrap_err()) && told(file.metadata().unwrap_err()));
    assert!(told(inside.read("f").unwrap_err()) && told(inside.create_dir("d").unwrap_err()));
    assert_eq!(std::fs::read_to_string(tree.join("f")).unwrap(), "text");
    // What can neither be held back nor undone spoils a transaction, or is refused alone.
    must(Command::new("mkfifo").arg(tree.join("fifo")));
    let tx = systx.begin(&Options::new()).unwrap();
    tx.write(tree.join("f"), "never").unwrap();
    assert_eq!(tx.open(tree.join("fifo")).unwrap_err().raw_os_error(), Some(95));
    assert!(matches!(tx.commit(), Err(Error::Refused(_))));
    let tx = systx.begin(&Options::new().unsupported(Unsupported::Deny)).unwrap();
    tx.write(tree.join("f"), "deny").unwrap();
    assert_eq!(tx.open(tree.join("fifo")).unwrap_err().raw_os_error(), Some(1));
    tx.commit().unwrap();
    assert_eq!(std::fs::read_to_string(tree.join("f")).unwrap(), "deny");
    // Handles may outlive everything else.
    let tx = systx.begin(&Options::new()).unwrap();
    let mut reading = tx.open(tree.join("f")).unwrap();
    drop((tx, systx));
    assert!(told(reading.read(&mut [0; 1]).unwrap_err()));
}

fn a_checkpoint(dir: &Path) {
    for kind in ["ext4", "xfs", "btrfs"] {
        let Some((volume, tree)) = place(dir, kind) else { continue };
        std::fs::write(tree.join("f"), "before").unwrap();
        let systx = systx();
        let tx = systx.begin(&Options::new()).unwrap();
        tx.write(tree.join("f"), "committed").unwrap();
        tx.set_mode(tree.join("f"), 0o600).unwrap();
        tx.commit().unwrap();
        drop(systx);
        std::fs::write(tree.join("f"), "put back").unwrap();
        volume.unmount();
        volume.mount();
        let told = recover();
        assert_eq!(std::fs::read_to_string(tree.join("f")).unwrap(), "put back", "{kind}: {told}");
    }
}
