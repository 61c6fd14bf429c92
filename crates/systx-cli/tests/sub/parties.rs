//! A subtransaction among others: processes of the outer one, other subtransactions, and outsiders of both.

use super::machine::{code, err, out, Case};
use super::world::{each, World};
use std::path::Path;

pub const ALL: &[(&str, Case)] = &[
    ("nobody_sees_it_before_its_commit", nobody_sees_it_before_its_commit),
    ("a_change_beside_it_is_a_conflict_that_ends_it_alone", a_change_beside_it_is_a_conflict),
    ("a_change_beside_it_of_what_it_has_not_seen_is_none", a_change_of_what_it_has_not_seen),
    ("of_two_that_change_one_file_one_loses", of_two_that_change_one_file_one_loses),
    ("two_that_change_one_file_get_through_by_trying_again", by_trying_again),
    ("two_that_change_different_files_both_commit", two_with_different_files_both_commit),
    ("who_has_a_file_open_sees_what_it_has_committed", who_has_a_file_open_sees_the_commit),
    ("a_store_by_who_has_a_file_mapped_is_a_conflict", a_store_through_a_mapping_is_a_conflict),
    ("it_takes_no_lease_on_what_may_be_mapped", it_takes_no_lease),
    ("a_conflict_of_the_outer_one_ends_both", a_conflict_of_the_outer_one_ends_both),
    ("what_the_kernel_has_forgotten_is_found_again", what_the_kernel_has_forgotten),
];

const SETUP: &str = "echo 0 > c; echo 0 > d; mkdir dir; echo b > dir/b";

/// A subtransaction that waits after its first words until the outer one has done something.
fn beside(first: &str, meanwhile: &str, then: &str) -> String {
    format!(
        "sub -- sh -c '{first}; echo > $BESIDE/one; read x < $BESIDE/two; {then}' 2> $BESIDE/said & read x < $BESIDE/one
        {meanwhile}; echo > $BESIDE/two; wait $!; echo $?"
    )
}

fn said(w: &World) -> String {
    std::fs::read_to_string(w.beside.join("said")).unwrap()
}

fn nobody_sees_it_before_its_commit(dir: &Path) {
    each(dir, SETUP, |w| {
        w.fifos(&["one", "two"]);
        let first = "echo new > new; echo x > c; rm -r dir; mkdir made; chmod 600 d";
        let script = beside(first, "ls -A; cat c; stat -c %a d", "true");
        assert_eq!(
            w.commits(&format!("{script}; ls -A; cat c")),
            "c\nd\ndir\n0\n644\n0\nc\nd\nmade\nnew\nx\n"
        );
        assert_eq!(w.names(), ["c", "d", "made", "new"]);
    });
}

fn a_change_beside_it_is_a_conflict(dir: &Path) {
    // Objects that it has seen, and the later changes of the outer one.
    let changes = [
        ("cat c", "echo 1 > c"),
        ("cat c", "echo 1 >> c"),
        ("cat c", "printf 1 | dd of=c conv=notrunc 2>/dev/null"),
        ("echo 5 > c", "echo 1 > c"),
        ("ls dir", "echo 1 > dir/new"),
        ("ls dir", "rm dir/b"),
        ("cat none", "echo 1 > none"),
        ("stat -c %a dir/b", "chmod 600 dir/b"),
        ("cat c", "echo 1 > t; mv t c"),
        ("cat dir/b", "mv dir gone"),
        ("cat c", "touch -d @1 t; cp -p c t; echo 1 > t; touch -r c t; cat t > c; touch -r t c"),
        ("getfattr -n user.a c", "setfattr -n user.a -v b c"),
    ];
    each(dir, SETUP, |w| {
        w.fifos(&["one", "two"]);
        for (n, (seen, changed)) in changes.iter().enumerate() {
            let first = format!("({seen}) >/dev/null 2>&1; echo sub > made");
            let script = beside(&first, changed, "true");
            // The outer one goes on, and is undone in the end for the next one.
            let output = w.run(&[], &format!("{script}; ls -A | grep made; echo {n} > $BESIDE/on; exit 5"));
            let text = said(w);
            assert_eq!((code(&output), out(&output).as_str()), (5, "75\n"), "{seen}; {changed}: {text}");
            assert!(
                text.starts_with("systx: conflict on ")
                    && text.contains("is undone, the outer transaction goes on. Run again"),
                "{text}"
            );
            assert_eq!(std::fs::read_to_string(w.beside.join("on")).unwrap(), format!("{n}\n"));
        }
        w.nothing_is_left();
    });
}

fn a_change_of_what_it_has_not_seen(dir: &Path) {
    each(dir, SETUP, |w| {
        w.fifos(&["one", "two"]);
        let script = beside("cat c; echo s > s", "echo 1 > d; echo o > o; rm -r dir", "cat d; echo 2 > c");
        assert_eq!(w.commits(&script), "0\n1\n0\n");
        assert_eq!(
            (w.names().join(" "), w.read("c"), w.read("d")),
            ("c d o s".into(), "2\n".into(), "1\n".into())
        );
    });
}

/// Two at a time, each of which reads before the other one writes.
fn two(first: &str, second: &str) -> String {
    let one = |n: u8, script: &str| format!("sub -- sh -c '{script}' 2>/dev/null; echo $? > $BESIDE/{n}");
    let meet = |mine: &str, other: &str| format!("echo > $BESIDE/{mine} & read x < $BESIDE/{other}; wait");
    let first = format!("n=$(cat {first}); {}; echo $((n + 1)) > {first}", meet("one", "two"));
    let second = format!("n=$(cat {second}); {}; echo $((n + 1)) > {second}", meet("two", "one"));
    format!("({}) & ({}); wait; cat $BESIDE/1 $BESIDE/2 | sort; cat c d", one(1, &first), one(2, &second))
}

fn of_two_that_change_one_file_one_loses(dir: &Path) {
    each(dir, SETUP, |w| {
        w.fifos(&["one", "two"]);
        assert_eq!(w.commits(&two("c", "c")), "0\n75\n1\n0\n");
        assert_eq!(w.read("c"), "1\n");
    });
}

fn two_with_different_files_both_commit(dir: &Path) {
    each(dir, SETUP, |w| {
        w.fifos(&["one", "two"]);
        assert_eq!(w.commits(&two("c", "d")), "0\n0\n1\n1\n");
    });
}

fn by_trying_again(dir: &Path) {
    each(dir, SETUP, |w| {
        let said = w.commits(
            "for i in 1 2 3 4; do
                (for j in 1 2 3; do sub --retry 4 -- sh -c 'n=$(cat c); echo $((n + 1)) > c' || echo $?; done) &
            done; wait; cat c",
        );
        assert_eq!((said.as_str(), w.read("c").as_str()), ("12\n", "12\n"));
    });
}

fn who_has_a_file_open_sees_the_commit(dir: &Path) {
    each(dir, SETUP, |w| {
        let said = w.commits(
            "exec 3<> c; sub -- sh -c 'echo 12345 > c; echo 6 >> d' || exit 9; cat <&3; echo 7 >> d",
        );
        assert_eq!(
            (said.as_str(), w.read("c").as_str(), w.read("d").as_str()),
            ("12345\n", "12345\n", "0\n6\n7\n")
        );
    });
}

fn a_store_through_a_mapping_is_a_conflict(dir: &Path) {
    if !super::machine::have("python3") {
        return;
    }
    each(dir, SETUP, |w| {
        w.fifos(&["one", "two", "go", "gone"]);
        // It is mapped before any process reads it, and no call shows the store.
        let store = "import mmap, os; fd = os.open(\"c\", os.O_RDWR); m = mmap.mmap(fd, 0); os.close(fd); x = m[0]; \
            b = os.environ[\"BESIDE\"]; open(b + \"/gone\", \"w\").close(); open(b + \"/go\").read(); m[0:1] = b\"7\"; \
            open(b + \"/gone\", \"w\").close()";
        let meanwhile = "echo > $BESIDE/go; cat $BESIDE/gone";
        let script = format!(
            "python3 -c '{store}' & cat $BESIDE/gone; {}; cat c; cat c > copy",
            beside("cat c >/dev/null; echo s > s", meanwhile, "true")
        );
        let output = w.run(&[], &script);
        assert_eq!((code(&output), out(&output).as_str()), (0, "75\n7\n"), "{}{}", err(&output), said(w));
        assert_eq!((w.names().join(" "), w.read("c")), ("c copy d dir".into(), "7\n".into()));
    });
}

/// The loss of a store between a look and a write is a matter of nanoseconds; the possibility is not.
fn it_takes_no_lease(dir: &Path) {
    if !super::machine::have("strace") {
        return;
    }
    each(dir, SETUP, |w| {
        let script = "strace -f -qq -e trace=fcntl -o $BESIDE/trace \"$S\" run --sub -- sh -c 'cat c; echo 1 > c; echo n > n' || exit 9";
        assert_eq!(w.commits(script), "0\n");
        let trace = std::fs::read_to_string(w.beside.join("trace")).unwrap();
        let leases: Vec<_> =
            trace.lines().filter(|line| line.contains("F_SETLEASE") && !line.contains("F_UNLCK")).collect();
        assert!(trace.contains("fcntl(") && leases.is_empty(), "{leases:?}");
    });
}

fn a_conflict_of_the_outer_one_ends_both(dir: &Path) {
    each(dir, SETUP, |w| {
        w.fifos(&["one", "two"]);
        // By the time that it looks for more, what it has read is no more.
        let outer = w.outer(&[], "cat c; sub -- sh -c 'cat d; echo > $BESIDE/one; read x < $BESIDE/two; echo s > s'; echo o > o").spawn();
        std::fs::read(w.beside.join("one")).unwrap();
        std::fs::write(w.tree.join("d"), "outside\n").unwrap();
        std::fs::write(w.beside.join("two"), "\n").unwrap();
        let output = outer.unwrap().wait_with_output().unwrap();
        assert_eq!(code(&output), 75, "{}", err(&output));
        assert!(err(&output).contains("is aborted, nothing was changed. Run again"), "{}", err(&output));
        assert_eq!((w.names().join(" "), w.read("d")), ("c d dir".into(), "outside\n".into()));
        w.nothing_is_left();
    });
}

fn what_the_kernel_has_forgotten(dir: &Path) {
    if let Err(e) = std::fs::write("/proc/sys/vm/drop_caches", "2") {
        return println!("skipped: /proc/sys/vm/drop_caches: {e}");
    }
    each(dir, SETUP, |w| {
        let said = w.commits(
            "mkdir -p x/y; echo o > x/y/o
            sub -- sh -c 'cat c dir/b x/y/o; echo s > x/y/s; mv x/y y; echo > t; rm t; echo 2 > /proc/sys/vm/drop_caches
                echo 1 > c; ls y dir; echo 2 > /proc/sys/vm/drop_caches' || exit 9
            echo 2 > /proc/sys/vm/drop_caches; cat c y/s",
        );
        assert_eq!(said, "0\nb\no\ndir:\nb\n\ny:\no\ns\n1\ns\n");
    });
}
