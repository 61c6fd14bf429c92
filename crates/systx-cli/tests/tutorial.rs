//! The pages for newcomers show what really comes: every command of `docs/tutorial.md`, `docs/recipes.md` and
//! `docs/messages.md` is run, in order, by one bash, and its output compared with what stands below it. So
//! the last of them is also the snapshot of what systx says; with `SYSTX_BLESS=1` it is written anew instead.
//! The film is recorded again, and compared.
//!
//! The bash lives in a chroot on an ext4 in a file, in a mount and process namespace of its own: its `/` is
//! that file system, with the machine's `/usr` read-only. So also a transaction over the whole tree touches
//! nothing else.
//!
//! What a fenced block means:
//!
//! | first line | |
//! |---|---|
//! | `sh` | is run. Prints what the `text` block right after it shows; nothing, if there is none |
//! | `sh needs TOOL…` | the same, or skipped where the tool is not there |
//! | `sh no-run: WHY` | not run: the network, the machine itself, a terminal |
//! | `text` | what comes. Numbers that nobody can know are masked on both sides, see [`masked`] |
//!
//! Any other block is an error, so that nothing is overlooked.
//!
//! `cargo test -p systx-cli --test tutorial [-- PART-OF-A-NAME]`

mod machine;

use machine::volume::Volume;
use machine::{have, must, out};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
/// In place of what comes after a bash that is no more.
const ENDED: &str = "(here the page's bash had ended)\n";
/// Where `make install` puts it; the pages name it in files.
const SYSTX: &str = "usr/local/bin/systx";
/// Longer than a page can take on the slowest machine: a page that waits for ever must not do so here.
const LIMIT_SECONDS: &str = "300";

fn main() {
    machine::main(&[
        ("a_page_that_shows_something_else_is_noticed", a_page_that_shows_something_else_is_noticed),
        ("the_tutorial_shows_what_comes", the_tutorial_shows_what_comes),
        ("the_recipes_show_what_comes", the_recipes_show_what_comes),
        ("the_messages_are_what_comes", the_messages_are_what_comes),
        ("the_film_shows_what_comes", the_film_shows_what_comes),
    ]);
}

fn the_tutorial_shows_what_comes(dir: &Path) {
    let Some(world) = world(dir) else { return };
    shows_what_comes("tutorial.md", &world);
    assert!(!world.join("root/tour").exists(), "the tutorial leaves something behind");
    assert!(!world.join(".systx").exists(), "the tutorial leaves an area behind");
}

fn the_recipes_show_what_comes(dir: &Path) {
    let Some(world) = world(dir) else { return };
    shows_what_comes("recipes.md", &world);
    drop_in_is_sound(&world.join("etc/systemd/system/nightly.service.d/systx.conf"));
}

fn the_messages_are_what_comes(dir: &Path) {
    let Some(world) = world(dir) else { return };
    if std::env::var_os("SYSTX_BLESS").is_some() {
        bless("messages.md", &world);
    }
    shows_what_comes("messages.md", &world);
}

/// `docs/systx.cast`, recorded anew by the script that made it.
fn the_film_shows_what_comes(dir: &Path) {
    if !Path::new("/dev/fuse").exists() || !have("python3") || Volume::new(dir, "ext4", 16).is_none() {
        println!("skipped: no /dev/fuse, python3, or loop device");
        return;
    }
    let script = Path::new(DOCS).join("../demo/cast/record.sh");
    let film = dir.join("film");
    must(Command::new("bash").arg(script).arg(&film).env("SYSTX", machine::systx()).env("TMPDIR", dir));
    let shown = |film: &Path| {
        let text = std::fs::read_to_string(film).unwrap();
        let mut events = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        assert_eq!(events.next().unwrap()["version"], 2, "an asciicast has a header");
        let mut before = 0.0;
        let text: String = events
            .map(|event| {
                let time = event[0].as_f64().unwrap();
                assert!(time >= before, "{event}: time goes backwards");
                before = time;
                assert_eq!(event[1], "o");
                event[2].as_str().unwrap().to_string()
            })
            .collect();
        // bash prints the process id of a job.
        let lines = text.lines().map(|line| line.strip_prefix("[1] ").map_or(line, |_| "[1] #"));
        masked(&lines.map(|line| format!("{line}\n")).collect::<String>())
    };
    let (then, now) = (shown(&Path::new(DOCS).join("systx.cast")), shown(&film));
    assert!(now.contains("aborted, nothing was changed") && now.contains("conflict on"), "{now}");
    for (then, now) in then.lines().zip(now.lines()) {
        assert_eq!(then, now, "record it anew: demo/cast/record.sh");
    }
    assert_eq!(then.lines().count(), now.lines().count(), "record it anew: demo/cast/record.sh");
}

/// Writes what comes into the page.
fn bless(name: &str, world: &Path) {
    let path = Path::new(DOCS).join(name);
    let page = std::fs::read_to_string(&path).unwrap();
    let blocks = blocks(&page, &have).unwrap_or_else(|why| panic!("{name}: {why}"));
    let came = play(world, &blocks);
    let lines: Vec<&str> = page.lines().collect();
    let mut blessed: Vec<&str> = Vec::new();
    let mut at = 0;
    for (block, came) in blocks.iter().zip(&came) {
        // Up to the end of the commands; what was shown is left out.
        let end = block.line + block.commands.lines().count() + 1;
        blessed.extend(&lines[at..end]);
        at = end + if block.shown.is_empty() { 0 } else { block.shown.lines().count() + 2 };
        if !came.is_empty() {
            blessed.push("```text");
            blessed.extend(came.lines());
            blessed.push("```");
        }
    }
    blessed.extend(&lines[at..]);
    std::fs::write(path, blessed.join("\n") + "\n").unwrap();
}

/// One command of a page.
#[derive(Clone, Debug, PartialEq)]
struct Block {
    line: usize,
    commands: String,
    shown: String,
}

fn shows_what_comes(name: &str, world: &Path) {
    let page = std::fs::read_to_string(Path::new(DOCS).join(name)).unwrap();
    let blocks = blocks(&page, &have).unwrap_or_else(|why| panic!("{name}: {why}"));
    let came = play(world, &blocks);
    if let Err(why) = compare(&blocks, &came) {
        panic!("{name}: {why}");
    }
    for (n, block) in blocks.iter().enumerate() {
        for line in 0..block.shown.lines().count() {
            let mut wrong = blocks.clone();
            wrong[n].shown = without_line(&block.shown, line);
            assert!(
                compare(&wrong, &came).is_err(),
                "line {line} below {} of {name} is not needed",
                block.line
            );
        }
    }
    println!("{name}: {} blocks run", blocks.len());
}

fn without_line(text: &str, without: usize) -> String {
    let lines = text.lines().enumerate().filter(|(n, _)| *n != without);
    lines.map(|(_, line)| format!("{line}\n")).collect()
}

/// The blocks of a page that are run here.
fn blocks(page: &str, have: &dyn Fn(&str) -> bool) -> Result<Vec<Block>, String> {
    let mut blocks: Vec<Block> = Vec::new();
    // True if a block of output may come and its commands are run, false if they are not run.
    let mut open: Option<bool> = None;
    let mut lines = page.lines().enumerate();
    while let Some((n, first)) = lines.next() {
        let Some(kind) = first.strip_prefix("```") else {
            // Prose between the two would separate them for the reader, too.
            open = open.filter(|_| first.is_empty());
            continue;
        };
        let line = n + 1;
        let mut text = String::new();
        loop {
            match lines.next() {
                None => return Err(format!("line {line}: a block without end")),
                Some((_, "```")) => break,
                Some((_, inside)) => text = text + inside + "\n",
            }
        }
        let (word, rest) = kind.split_once(' ').unwrap_or((kind, ""));
        open = match (word, rest) {
            ("text", "") => {
                match open {
                    Some(true) => blocks.last_mut().expect("it was pushed").shown = text,
                    Some(false) => {}
                    None => return Err(format!("line {line}: output that follows no commands")),
                }
                None
            }
            ("sh", rest) if rest.strip_prefix("no-run: ").is_some_and(|why| !why.is_empty()) => None,
            ("sh", rest) => {
                let tools =
                    rest.strip_prefix("needs ").map_or(Vec::new(), |tools| tools.split(' ').collect());
                if tools.is_empty() && !rest.is_empty() {
                    return Err(format!("line {line}: neither `needs TOOL` nor `no-run: WHY`: {rest}"));
                }
                let run = tools.into_iter().all(have);
                if run {
                    blocks.push(Block { line, commands: text, shown: String::new() });
                }
                Some(run)
            }
            _ => return Err(format!("line {line}: a block that nobody checks: {kind}")),
        };
    }
    Ok(blocks)
}

/// Runs the blocks in one bash in the world; what each printed.
fn play(world: &Path, blocks: &[Block]) -> Vec<String> {
    const MARK: &str = "--- the next block of the page ---";
    let _ = std::fs::remove_dir_all(world.join("page"));
    std::fs::create_dir(world.join("page")).unwrap();
    let mut driver = String::from("exec 2>&1; cd; umask 022\n");
    for (n, block) in blocks.iter().enumerate() {
        std::fs::write(world.join(format!("page/{n}")), &block.commands).unwrap();
        driver += &format!(". /page/{n}; echo '{MARK}'\n");
    }
    std::fs::write(world.join("page/all"), driver).unwrap();
    // Ends with all that it has started, in a process namespace: what waits for ever would hold the pipe.
    let mut bash = Command::new("timeout");
    bash.args(["--kill-after=5", LIMIT_SECONDS, "chroot"]).arg(world);
    bash.args(["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "/page/all"]);
    bash.env_clear().env("PATH", "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    bash.env("HOME", "/root").env("LC_ALL", "C").stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = bash.output().unwrap();
    let text = out(&output);
    text.split_inclusive(&format!("{MARK}\n")).map(str::to_string).map(|part| unmarked(part, MARK)).collect()
}

/// Removes the mark, which shows that the block has come to its end.
fn unmarked(part: String, mark: &str) -> String {
    match part.strip_suffix(&format!("{mark}\n")) {
        Some(text) => text.to_string(),
        None => part + ENDED,
    }
}

/// Compares the output that a page shows with the real one, block by block.
fn compare(blocks: &[Block], came: &[String]) -> Result<(), String> {
    for (n, block) in blocks.iter().enumerate() {
        let came = came.get(n).map_or(ENDED, String::as_str);
        if masked(&block.shown) != masked(came) {
            let Block { line, commands, shown } = block;
            return Err(format!("line {line}:\n{commands}--- shown:\n{shown}--- came:\n{came}---"));
        }
    }
    Ok(())
}

/// Replaces unpredictable numbers by `#`: those of transactions and processes, after these words and at the
/// beginning of a line of `systx list`. All other numbers count.
fn masked(text: &str) -> String {
    const BEFORE: [&str; 6] =
        ["transaction ", "Transaction ", "pid ", "\"id\":", "\"pid\":", "\"transaction\":"];
    let mut done = String::new();
    for line in text.lines() {
        let mut rest = line;
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        if digits > 0 && rest[digits..].starts_with("  ") {
            done.push('#');
            rest = &rest[digits..];
        }
        while let Some((at, word)) =
            BEFORE.iter().filter_map(|word| rest.find(word).map(|at| (at, word))).min_by_key(|(at, _)| *at)
        {
            let (known, number) = rest.split_at(at + word.len());
            done += known;
            rest = number.trim_start_matches(|c: char| c.is_ascii_digit());
            if rest.len() < number.len() {
                done.push('#');
            }
        }
        done = done + rest + "\n";
    }
    done
}

/// A file system that is a whole tree to live in; `None`, with a reason printed, where it can't be had.
fn world(dir: &Path) -> Option<PathBuf> {
    if !Path::new("/dev/fuse").exists() {
        println!("skipped: no /dev/fuse");
        return None;
    }
    let root = Volume::new(dir, "ext4", 400)?.point;
    machine::programs_below(&root);
    for name in ["proc", "dev", "sys"] {
        std::fs::create_dir(root.join(name)).unwrap();
        must(Command::new("mount").arg("--rbind").arg(Path::new("/").join(name)).arg(root.join(name)));
    }
    for name in ["etc", "root", "run", "srv", "tmp", "var"] {
        std::fs::create_dir(root.join(name)).unwrap();
    }
    for name in ["passwd", "group", "ld.so.cache", "alternatives"] {
        let from = Path::new("/etc").join(name);
        if from.exists() {
            must(Command::new("cp").arg("-a").arg(from).arg(root.join("etc")));
        }
    }
    // Read-only in the end, so that it is no file system of its own for systx.
    let bin = root.join(SYSTX);
    let parent = bin.parent().unwrap();
    must(Command::new("mount").args(["-t", "tmpfs", "-o", "mode=755", "none"]).arg(parent));
    std::fs::copy(machine::systx(), &bin).unwrap();
    must(Command::new("mount").args(["-o", "remount,ro"]).arg(parent));
    Some(root)
}

/// Checks the drop-in as far as that is possible without systemd; where that is at hand, the page itself asks
/// it.
fn drop_in_is_sound(file: &Path) {
    let text = std::fs::read_to_string(file).unwrap();
    let lines: Vec<_> = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    assert_eq!(lines[0], "[Service]", "{text}");
    let settings: Vec<_> = lines[1..]
        .iter()
        .map(|line| line.split_once('=').unwrap_or_else(|| panic!("no setting: {line}")))
        .collect();
    let starts: Vec<_> =
        settings.iter().filter(|(name, _)| *name == "ExecStart").map(|(_, value)| *value).collect();
    // The empty one takes away the command of the unit itself; without it, both would run.
    assert_eq!((starts.len(), starts[0]), (2, ""), "{text}");
    assert!(starts[1].starts_with(&format!("/{SYSTX} run ")), "{text}");
}

fn a_page_that_shows_something_else_is_noticed(dir: &Path) {
    let wrong = [
        ("```sh\necho a\n```\n```text\na\n```\n\n```sh\necho b\n```\n```text\na\n```\n", "line 8:"),
        ("```sh\necho a; echo b\n```\n```text\na\n```\n", "came:\na\nb\n"),
        ("```sh\necho a\n```\n```text\na\nb\n```\n", "came:\na\n---"),
        ("```sh\necho a\n```\n\nProse.\n", "came:\na\n"),
        ("```sh\ntrue\n```\n```text\na\n```\n", "came:\n---"),
        ("```sh\necho a >&2\n```\n", "came:\na\n"),
        ("```sh\nexit\n```\n\n```sh\ntrue\n```\n", "the page's bash had ended"),
        ("```sh\ncd nowhere\n```\n", "nowhere"),
        ("```sh\nsystx run -- sh -c 'exit 3'\necho $?\n```\n```text\n3\n```\n", "exited with status 3"),
        ("```sh\necho pid 7 and 8\n```\n```text\npid 9 and 9\n```\n", "came:\npid 7 and 8\n"),
        ("```sh\necho a\n```\n\nProse.\n\n```text\na\n```\n", "line 7: output that follows no commands"),
        ("```python\nprint()\n```\n", "line 1: a block that nobody checks: python"),
        ("```sh no-run\ntrue\n```\n", "line 1: neither"),
        ("```sh\ntrue\n", "line 1: a block without end"),
    ];
    let Some(world) = world(dir) else { return };
    let have = |tool: &str| tool == "bash";
    let found = |page: &str| blocks(page, &have).and_then(|blocks| compare(&blocks, &play(&world, &blocks)));
    for (page, why) in wrong {
        let told = found(page).expect_err(page);
        assert!(told.contains(why), "{page}\nis told as\n{told}\nwithout {why}");
    }
    let right = "```sh\ncd /tmp; x=1\n```\n```sh\npwd; echo \"$x: pid 7\"; (exit 3); echo $?\n```\n\n```text\n/tmp\n1: pid 8\n3\n```\n\
        ```sh no-run: it ends everything\nexit 1\n```\n```sh needs bash a-bird\nexit 1\n```\n```text\nnothing\n```\n\
        ```sh needs bash\necho a\n```\n```text\na\n```\n";
    assert_eq!(found(right), Ok(()));
    let numbers =
        "12  running  pid 7  /  a 5\nTransaction 8 (pid 9): 3 objects {\"id\":4,\"n\":4}\n12 eggs\n";
    let known = "#  running  pid #  /  a 5\nTransaction # (pid #): 3 objects {\"id\":#,\"n\":4}\n12 eggs\n";
    assert_eq!(masked(numbers), known);
}
