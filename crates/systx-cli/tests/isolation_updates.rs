//! No update is lost, nothing is read that was not so: the schedules on which others fail, each played to the letter.
//!
//! `cargo test -p systx-cli --test isolation_updates [-- PART-OF-A-NAME]`; `SYSTX_LONG=1` with larger bounds.

mod alone;

use alone::place::{code, err, out, Place};
use alone::{long, meet, turn, Case};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

fn main() {
    let cases: &[(&str, Case)] = &[
        ("any_edit_of_what_was_read_and_rewritten_wins", any_edit_of_what_was_read_and_rewritten_wins),
        ("an_edit_that_changes_nothing_else_is_found_in_what_was_only_read", an_edit_of_what_was_only_read),
        ("one_of_two_read_modify_writes_commits", one_of_two_read_modify_writes_commits),
        ("no_increment_of_a_counter_is_lost", no_increment_of_a_counter_is_lost),
        ("no_two_objects_have_one_number", no_two_objects_have_one_number),
        ("write_skew_is_a_conflict", write_skew_is_a_conflict),
        ("a_phantom_is_a_conflict", a_phantom_is_a_conflict),
        ("a_type_that_a_listing_has_shown_is_a_fact", a_type_that_a_listing_has_shown_is_a_fact),
        ("a_name_that_was_missing_is_a_fact", a_name_that_was_missing_is_a_fact),
        ("different_new_names_commute", different_new_names_commute),
        ("two_readers_agree_on_the_order", two_readers_agree_on_the_order),
        ("a_reader_never_sees_half_of_a_commit", a_reader_never_sees_half_of_a_commit),
        ("nor_when_the_kernel_forgets_what_it_cached", nor_when_the_kernel_forgets_what_it_cached),
        ("readers_in_a_storm_of_commits_see_pairs", readers_in_a_storm_of_commits_see_pairs),
        (
            "a_store_through_a_mapping_before_the_commit_wins",
            a_store_through_a_mapping_before_the_commit_wins,
        ),
        (
            "a_store_through_a_mapping_after_the_commit_stays",
            a_store_through_a_mapping_after_the_commit_stays,
        ),
    ];
    alone::enter(&["tmpfs", "ext4"], cases, &[]);
}

/// Shell scripts that change `f`, and what `f` then has (`None`: it is gone).
const EDITS: &[(&str, &str, Option<&str>)] = &[
    ("in place", "printf theirs > f", Some("theirs")),
    ("by rename", "printf theirs > f.new; mv f.new f", Some("theirs")),
    ("appended", "printf theirs >> f", Some("old 1theirs")),
    (
        "same size and times",
        "touch -r f ../ref; printf 'old 2' > f; touch -r ../ref f; rm ../ref",
        Some("old 2"),
    ),
    ("by dd", "printf X | dd of=f bs=1 seek=4 conv=notrunc status=none", Some("old X")),
    ("cut", "truncate -s 2 f", Some("ol")),
    ("removed", "rm f", None),
    ("removed and made again alike", "printf 'old 1' > f.new; rm f; mv f.new f; printf 2 > g", Some("old 1")),
    ("moved away", "mv f elsewhere", None),
];

fn outside(p: &Place, script: &str) {
    let status = Command::new("sh").args(["-c", script]).current_dir(&p.served).status().unwrap();
    assert!(status.success(), "{script}");
}

fn any_edit_of_what_was_read_and_rewritten_wins(p: &Place) {
    let rewrites = ["cat f > /dev/null; TURN printf ours > f", "cat f > g; printf ours >> g; mv g f; TURN :"];
    let mut n = 0;
    for rewrite in rewrites {
        for (how, edit, left) in EDITS {
            n += 1;
            let _ = std::fs::remove_file(p.served.join("f"));
            p.write("f", "old 1");
            let script = rewrite.replace("TURN", &turn(n));
            let meeting = meet(p, n, &[], &["sh", "-c", &script]);
            outside(p, edit);
            let end = meeting.end();
            assert_eq!(code(&end), 75, "{how}: {rewrite}: {}", err(&end));
            assert_eq!(
                std::fs::read_to_string(p.served.join("f")).ok().as_deref(),
                *left,
                "{how}: {rewrite}"
            );
            outside(p, "rm -f f g elsewhere");
        }
    }
}

fn an_edit_of_what_was_only_read(p: &Place) {
    for (n, (how, edit, left)) in (1..).zip(EDITS) {
        p.write("f", "old 1");
        let script = format!("cat f; {} printf made > made", turn(n));
        let meeting = meet(p, n, &[], &["sh", "-c", &script]);
        outside(p, edit);
        let end = meeting.end();
        assert_eq!((code(&end), p.served.join("made").exists()), (75, false), "{how}: {}", err(&end));
        assert_eq!(std::fs::read_to_string(p.served.join("f")).ok().as_deref(), *left, "{how}");
        outside(p, "rm -f f g elsewhere");
    }
}

fn one_of_two_read_modify_writes_commits(p: &Place) {
    p.write("count", "1\n");
    let script = |n| format!("read n < count; {} echo $((n + 1)) > count", turn(n));
    let first = meet(p, 1, &[], &["sh", "-c", &script(1)]);
    let second = meet(p, 2, &[], &["sh", "-c", &script(2)]);
    let mut codes = [code(&second.end()), code(&first.end())];
    assert_eq!(p.read("count"), "2\n");
    codes.sort_unstable();
    assert_eq!(codes, [0, 75]);
}

fn no_increment_of_a_counter_is_lost(p: &Place) {
    let (processes, times) = if long() { (8, 50) } else { (4, 10) };
    p.write("count", "0\n");
    // In place and by rename: the same object, published in different ways.
    let ways =
        ["read n < count; echo $((n + 1)) > count", "read n < count; echo $((n + 1)) > new; mv new count"];
    std::thread::scope(|scope| {
        for i in 0..processes {
            scope.spawn(move || {
                for _ in 0..times {
                    let end = p.systx(&["--retry", "10000"], &["sh", "-c", ways[i % 2]]).output().unwrap();
                    assert_eq!(code(&end), 0, "{}", err(&end));
                }
            });
        }
    });
    assert_eq!(p.read("count"), format!("{}\n", processes * times));
}

/// File systems give a removed object's inode number away, even at once. A transaction that met the one must
/// not get the other beside it: `mv new f` would report "the same file", and fail as if it were the command's
/// fault.
fn no_two_objects_have_one_number(p: &Place) {
    const MAKE: &str = "for n in 1 2 3 4 5 6 7 8; do printf old > f$n; done";
    const NUMBERS: &str = "old=$(echo $(stat -c %i f?))";
    const REMOVE: &str = "rm f?";
    let systx = |script: &str| {
        let end = p.systx(&[], &["sh", "-c", script]).output().unwrap();
        assert_eq!(code(&end), 0, "{script}: {}", err(&end));
        out(&end)
    };
    let (mut n, mut seen) = (0, 0);
    for make in [": > n$n", "mkdir n$n", "mkfifo n$n", "ln -s x n$n", "cp -p kept n$n"] {
        let told_again = format!(
            "for n in $(seq 40); do {make}; \
             case \" $old \" in *\" $(stat -c %i n$n) \"*) echo same; break;; esac; done"
        );
        for by_systx in [false, true] {
            n += 1;
            p.write("kept", "kept");
            // Checks if the file system reuses numbers, by transactions one after the other.
            let old = systx(&format!("{MAKE}; stat -c %i f?")).replace('\n', " ");
            outside(p, REMOVE);
            seen += usize::from(systx(&format!("old='{old}'; {told_again}")) == "same\n");
            outside(p, "rm -r n*");

            systx(MAKE);
            let script = format!("{NUMBERS}; {} {told_again}", turn(n));
            let meeting = meet(p, n, &[], &["sh", "-c", &script]);
            match by_systx {
                false => outside(p, REMOVE),
                true => drop(systx(REMOVE)),
            }
            let end = meeting.end();
            assert_eq!((code(&end), &out(&end)[..]), (75, ""), "{make}, by systx: {by_systx}: {}", err(&end));
            outside(p, "rm kept");
        }
    }
    if seen == 0 {
        println!("skipped: this file system gives numbers of what was removed to nobody");
    }
}

fn write_skew_is_a_conflict(p: &Place) {
    p.write("a", "on\n");
    p.write("b", "on\n");
    // Each may switch one off as long as the other is on.
    let script = |n, mine, other| {
        format!("read x < {mine}; read y < {other}; {} [ $y = on ] && echo off > {mine}", turn(n))
    };
    let first = meet(p, 1, &[], &["sh", "-c", &script(1, "a", "b")]);
    let second = meet(p, 2, &[], &["sh", "-c", &script(2, "b", "a")]);
    let mut codes = [code(&first.end()), code(&second.end())];
    codes.sort_unstable();
    assert_eq!(codes, [0, 75]);
    assert!([p.read("a"), p.read("b")].contains(&"on\n".to_string()));
}

fn a_phantom_is_a_conflict(p: &Place) {
    // Each takes a place if it counts fewer than one taken.
    let script =
        |n| format!("count=$(ls spool | wc -l); {} [ $count -lt 1 ] && echo $$ > spool/{n}", turn(n));
    std::fs::create_dir(p.served.join("spool")).unwrap();
    let first = meet(p, 1, &[], &["sh", "-c", &script(1)]);
    let second = meet(p, 2, &[], &["sh", "-c", &script(2)]);
    let mut codes = [code(&second.end()), code(&first.end())];
    codes.sort_unstable();
    assert_eq!(codes, [0, 75]);
    assert_eq!(std::fs::read_dir(p.served.join("spool")).unwrap().count(), 1);
    // Again, with an outsider as the other one.
    outside(p, "rm spool/*");
    let third = meet(p, 3, &[], &["sh", "-c", &script(3)]);
    outside(p, ": > spool/theirs");
    assert_eq!(code(&third.end()), 75);
    assert_eq!(std::fs::read_dir(p.served.join("spool")).unwrap().count(), 1);
}

/// `find` takes types from the listing, and looks at nothing else.
fn a_type_that_a_listing_has_shown_is_a_fact(p: &Place) {
    let retypes = ["rm g/a; mkdir g/a", "mv g/a b; mkdir e; mv -T e g/a"];
    for (n, (retype, inside)) in (1..).zip(retypes.into_iter().flat_map(|how| [(how, false), (how, true)])) {
        outside(p, "mkdir g; printf x > g/a");
        let script = format!("find g -mindepth 1 -type f > seen; {} :", turn(n));
        let meeting = meet(p, n, &[], &["sh", "-c", &script]);
        match inside {
            true => assert_eq!(code(&p.systx(&[], &["sh", "-c", retype]).output().unwrap()), 0),
            false => outside(p, retype),
        }
        let end = meeting.end();
        assert_eq!((code(&end), p.served.join("seen").exists()), (75, false), "{retype}: {}", err(&end));
        outside(p, "rm -rf g b");
    }
}

fn a_name_that_was_missing_is_a_fact(p: &Place) {
    let script = |n, lock| format!("[ ! -e {lock} ] || exit 9; {} : > did{n}", turn(n));
    let meeting = meet(p, 1, &[], &["sh", "-c", &script(1, "lock")]);
    assert_eq!(code(&p.shell(": > lock")), 0);
    assert_eq!(code(&meeting.end()), 75);
    let meeting = meet(p, 2, &[], &["sh", "-c", &script(2, "lock2")]);
    outside(p, "mkdir lock2");
    assert_eq!(code(&meeting.end()), 75);
    assert!(!p.served.join("did1").exists() && !p.served.join("did2").exists());
}

fn different_new_names_commute(p: &Place) {
    std::fs::create_dir(p.served.join("spool")).unwrap();
    let script = |n| format!(": > spool/{n}; {} mkdir spool/d{n}", turn(n));
    let first = meet(p, 1, &[], &["sh", "-c", &script(1)]);
    let second = meet(p, 2, &[], &["sh", "-c", &script(2)]);
    outside(p, ": > spool/theirs");
    assert_eq!((code(&second.end()), code(&first.end())), (0, 0));
    assert_eq!(std::fs::read_dir(p.served.join("spool")).unwrap().count(), 5);
}

/// Long fork: x and y change independently; one reader has x new and y old, the other x old and y new.
fn two_readers_agree_on_the_order(p: &Place) {
    p.write("x", "old\n");
    p.write("y", "old\n");
    let reader = |n, first, second| format!("cat {first}; {} cat {second}; : > saw{n}", turn(n));
    let one = meet(p, 1, &[], &["sh", "-c", &reader(1, "x", "y")]);
    let two = meet(p, 2, &[], &["sh", "-c", &reader(2, "y", "x")]);
    assert_eq!(code(&p.shell("echo new > x")), 0);
    assert_eq!(code(&p.shell("echo new > y")), 0);
    let (one, two) = (one.end(), two.end());
    let fork = out(&one) == "old\nnew\n" && out(&two) == "old\nnew\n";
    assert!(!fork || code(&one) == 75 || code(&two) == 75, "one saw y alone, the other x alone");
    // Each has the older of its first file and would need the newer of the second: neither order allows that.
    for end in [&one, &two] {
        assert!(code(end) == 75 && !out(end).contains("new"), "{}{}", out(end), err(end));
    }
}

/// Reader and writer, with `between` done while the reader is between its two reads.
fn half(p: &Place, n: u32, warm: &str, between: impl Fn()) {
    outside(p, "echo old > a; echo old > b; mkdir -p d; echo old > d/c");
    let script = format!("cat a; {warm} {} cat b; cat d/c; ls d; : > saw", turn(n));
    let meeting = meet(p, n, &[], &["sh", "-c", &script]);
    let writer = p.shell("echo new > a; echo new > b.t && mv b.t b; rm d/c; echo new > d/c; : > d/more");
    assert_eq!(code(&writer), 0, "{}", err(&writer));
    between();
    let end = meeting.end();
    assert_eq!(code(&end), 75, "{}", err(&end));
    let seen = out(&end);
    assert!(!seen.contains("new") && !seen.contains("more"), "half of a commit was seen: {seen}");
    assert!(!p.served.join("saw").exists());
    outside(p, "rm d/more");
}

fn a_reader_never_sees_half_of_a_commit(p: &Place) {
    half(p, 1, "", || ());
    half(p, 2, "ls d; cat d/c;", || ());
    half(p, 3, "stat b d/c > /dev/null;", || ());
}

/// Makes the kernel forget pages and names that it could ask for again; false, with a reason printed, where
/// not permitted.
fn forget(what: &str) -> bool {
    match std::fs::write("/proc/sys/vm/drop_caches", what) {
        Ok(()) => true,
        Err(e) => {
            println!("skipped: /proc/sys/vm/drop_caches: {e}");
            false
        }
    }
}

fn nor_when_the_kernel_forgets_what_it_cached(p: &Place) {
    if !forget("3") {
        return;
    }
    // Earlier reads reach the view again, and must be answered as before or not at all.
    half(p, 1, "cat b d/c; ls d;", || assert!(forget("3")));
    p.write("a", "old\n");
    let meeting = meet(p, 2, &[], &["sh", "-c", &format!("cat a; {} cat a", turn(2))]);
    assert!(forget("3"));
    p.write("a", "new\n");
    let end = meeting.end();
    // An outsider's change is found at the second reading or at the end, whatever was read; it is never shown.
    assert_eq!(code(&end), 75, "{}{}", out(&end), err(&end));
    assert!(["old\n", "old\nold\n"].contains(&out(&end).as_str()), "{}", out(&end));
    // Also when it forgets after the change only, before and after it, and never.
    for (n, first, then) in [(3, false, true), (4, true, true), (5, false, false)] {
        p.write("a", "old\n");
        let meeting = meet(p, n, &[], &["sh", "-c", &format!("cat a; {} cat a", turn(n))]);
        assert!(!first || forget("3"));
        p.write("a", "new\n");
        assert!(!then || forget("3"));
        let end = meeting.end();
        assert_eq!(code(&end), 75, "{first} {then}: {}{}", out(&end), err(&end));
        assert!(["old\n", "old\nold\n"].contains(&out(&end).as_str()), "{first} {then}: {}", out(&end));
    }
}

fn readers_in_a_storm_of_commits_see_pairs(p: &Place) {
    let times = if long() { 300 } else { 25 };
    outside(p, "echo 0 > a; echo 0 > b; mkdir d; echo 0 > d/c");
    let (mut good, mut bad) = (0, Vec::new());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for i in 1..=times {
                let script = format!("echo {i} > a; echo {i} > b.t; mv b.t b; echo {i} > d/c");
                let end = p.shell(&script);
                assert_eq!(code(&end), 0, "{}", err(&end));
            }
        });
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let all = (0..times)
                        .map(|_| p.systx(&[], &["sh", "-c", "cat a; cat b; cat d/c"]).output().unwrap());
                    all.map(|end| (code(&end), out(&end), err(&end))).collect::<Vec<_>>()
                })
            })
            .collect();
        for (code, seen, said) in readers.into_iter().flat_map(|reader| reader.join().unwrap()) {
            // Opacity: what a doomed one was shown counts, too.
            let mut words = seen.split('\n').filter(|word| !word.is_empty());
            let first = words.next();
            if words.any(|word| Some(word) != first) || ![0, 75].contains(&code) {
                bad.push((code, seen, said));
            } else {
                good += usize::from(code == 0);
            }
        }
    });
    assert!(bad.is_empty(), "half of a commit was seen: {bad:?}");
    assert!(good > 0, "no reader ever got through");
}

/// Maps a file shared, then does what lines on its standard input say: `OFFSET BYTE`; answers each when it is stored.
const MAPPER: &str = "import mmap, os, sys
f = os.open(sys.argv[1], os.O_RDWR)
m = mmap.mmap(f, 0)
os.close(f)
print('mapped', flush=True)
for line in sys.stdin:
    at, byte = line.split()
    m[int(at)] = int(byte)
    print('stored', flush=True)
";

/// An outsider that keeps a shared writable mapping.
struct Mapper(std::process::Child, std::io::BufReader<std::process::ChildStdout>);

impl Mapper {
    fn new(path: &Path) -> Option<Mapper> {
        let mut python = Command::new("python3");
        python.args(["-c", MAPPER]).arg(path).stdin(Stdio::piped()).stdout(Stdio::piped());
        let Ok(mut child) = python.spawn() else {
            println!("skipped: no python3 to keep a shared mapping with");
            return None;
        };
        let answers = std::io::BufReader::new(child.stdout.take().unwrap());
        let mut mapper = Mapper(child, answers);
        mapper.answer("mapped\n");
        Some(mapper)
    }
    fn answer(&mut self, expected: &str) {
        let mut line = String::new();
        std::io::BufRead::read_line(&mut self.1, &mut line).unwrap();
        assert_eq!(line, expected);
    }
    fn store(&mut self, at: usize, byte: u8) {
        use std::io::Write;
        writeln!(self.0.stdin.as_mut().unwrap(), "{at} {byte}").unwrap();
        self.answer("stored\n");
    }
}

impl Drop for Mapper {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

fn a_store_through_a_mapping_before_the_commit_wins(p: &Place) {
    let path = p.served.join("m");
    // With the page clean, and with it dirty already: then no time stamp moves.
    for (n, dirty) in [(1, false), (2, true)] {
        std::fs::write(&path, vec![b'.'; 8192]).unwrap();
        let Some(mut mapper) = Mapper::new(&path) else { return };
        if dirty {
            mapper.store(10, b'a');
        }
        let script =
            format!("tail -c 100 m; {} printf ours | dd of=m bs=1 conv=notrunc status=none", turn(n));
        let meeting = meet(p, n, &[], &["sh", "-c", &script]);
        let before = std::fs::metadata(&path).unwrap();
        mapper.store(4096 + 20, b'b');
        let after = std::fs::metadata(&path).unwrap();
        let end = meeting.end();
        assert_eq!(
            code(&end),
            75,
            "dirty: {dirty}, stamp moved: {}: {}",
            before.ctime_nsec() != after.ctime_nsec(),
            err(&end)
        );
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!((&bytes[..4], bytes[4116]), (&b"...."[..], b'b'));
        // Stored in the page that the command changes.
        let script = format!("cat m; {} printf ours | dd of=m bs=1 conv=notrunc status=none", turn(n + 10));
        let meeting = meet(p, n + 10, &[], &["sh", "-c", &script]);
        mapper.store(1, b'c');
        assert_eq!(code(&meeting.end()), 75, "dirty: {dirty}");
        assert_eq!(&std::fs::read(&path).unwrap()[..4], b".c..");
        // Stored in the sector that the command has changed without reading it: no reason for a conflict, but for care.
        let script = format!("printf ours | dd of=m bs=1 conv=notrunc status=none; {} :", turn(n + 20));
        let meeting = meet(p, n + 20, &[], &["sh", "-c", &script]);
        mapper.store(100, b'd');
        let end = meeting.end();
        let bytes = std::fs::read(&path).unwrap();
        let expected = if code(&end) == 0 { b"ours" } else { b".c.." };
        assert_eq!((&bytes[..4], bytes[100]), (&expected[..], b'd'), "status {}", code(&end));
        assert!([0, 75].contains(&code(&end)), "{}", err(&end));
    }
}

fn a_store_through_a_mapping_after_the_commit_stays(p: &Place) {
    let path = p.served.join("m");
    std::fs::write(&path, vec![b'.'; 8192]).unwrap();
    let Some(mut mapper) = Mapper::new(&path) else { return };
    mapper.store(10, b'a');
    let script = "tail -c 100 m > /dev/null; printf ours | dd of=m bs=1 conv=notrunc status=none";
    let end = p.systx(&[], &["sh", "-c", script]).output().unwrap();
    assert_eq!(code(&end), 0, "{}", err(&end));
    // The file that is mapped was changed in place: it is not another one.
    mapper.store(1, b'b');
    mapper.store(5000, b'c');
    let bytes = std::fs::read(&path).unwrap();
    assert_eq!((&bytes[..4], bytes[10], bytes[5000]), (&b"obrs"[..], b'a', b'c'));
    // And the next transaction starts from that.
    let end = p.shell("head -c 4 m");
    assert_eq!((code(&end), out(&end).as_str()), (0, "obrs"));
}
