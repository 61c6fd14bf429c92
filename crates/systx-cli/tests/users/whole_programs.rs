//! Programs of other authors, run by an ordinary user over the whole tree: a committed run leaves what the
//! plain run makes, and an aborted one leaves nothing.

use super::machine::picture::{difference, Picture};
use super::machine::user::USER;
use super::machine::{code, err, must, Case};
use super::whole_tree::{plain, run, seen, with_tmp};
use super::world::sized;
use std::path::Path;
use std::process::Command;

pub const ALL: &[(&str, Case)] =
    &[("whole_programs_do_what_they_do_plainly", programs_do_what_they_do_plainly)];

/// A program, what it needs, and its work in ~/work, with temporary files where it wants them.
struct Work {
    name: &'static str,
    needs: &'static [&'static str],
    script: &'static str,
}

const WORKS: &[Work] = &[
    Work {
        name: "bash",
        needs: &[],
        script: "t=$(mktemp); d=$(mktemp -d); cat >$t <<<$'c\\nb\\na'; sort $t >$d/s; diff <(sort $t) $d/s; cp $d/s sorted; rm -r $t $d; \
                 echo kept >/tmp/kept; mkdir /tmp/dir; mv sorted /tmp/dir/; ln -s /tmp/dir link",
    },
    Work {
        name: "git",
        needs: &["git"],
        script: "export GIT_AUTHOR_DATE='2026-01-01 00:00 +0000' GIT_COMMITTER_DATE='2026-01-01 00:00 +0000'; git init -q -b main one; cd one; \
                 git config user.name u; git config user.email u@example.org; seq 1000 >a; mkdir d; echo b >d/b; git add .; \
                 git commit -qm one; echo c >>a; git commit -qam two; cd ..; git clone -q one two; cd two; git checkout -q HEAD~1; git gc -q; git fsck",
    },
    Work {
        name: "make",
        needs: &["gcc", "make"],
        script: "printf 'int f(void);int main(void){return f();}' >m.c; printf 'int f(void){return 0;}' >f.c; \
                 printf 'm: m.o f.o\\n\\tgcc -o m m.o f.o\\n' >Makefile; make -j2 m; ./m",
    },
    Work { name: "venv", needs: &["python3"], script: "python3 -m venv --without-pip v; v/bin/python -c 'import json; print(json.dumps([1]))'" },
    Work {
        name: "sqlite",
        needs: &["python3"],
        script: "python3 -c 'import sqlite3; d = sqlite3.connect(\"db\"); d.execute(\"pragma journal_mode=wal\"); d.execute(\"create table t(a)\"); \
                 d.executemany(\"insert into t values(?)\", [(i,) for i in range(1000)]); d.commit(); d.execute(\"pragma wal_checkpoint(truncate)\"); d.close()'",
    },
    Work {
        name: "tar",
        needs: &["tar", "gzip"],
        script: "mkdir -p in/deep; seq 5000 >in/a; ln in/a in/b; ln -s a in/c; chmod 640 in/a; touch -d @1 in/a in/deep; \
                 tar czf /tmp/in.tgz in; mkdir out; tar xzf /tmp/in.tgz -C out; rm /tmp/in.tgz",
    },
    Work {
        name: "npm",
        needs: &["npm"],
        script: "mkdir dep app; echo '{\"name\":\"dep\",\"version\":\"1.0.0\"}' >dep/package.json; echo 'module.exports=1' >dep/index.js; cd app; \
                 echo '{\"name\":\"app\",\"version\":\"1.0.0\"}' >package.json; npm install --logs-max=0 --offline --no-audit --no-fund ../dep",
    },
    Work {
        name: "cargo",
        needs: &["cargo"],
        script: "cargo init -q --vcs none --name one one; cd one; cargo build -q --offline; ./target/debug/one",
    },
];

/// Contents that hold times, inode numbers or an order: only their presence is compared.
const VARYING: [&str; 7] = [".git/index", ".pyc", ".npm", ".cargo", "/target/", ".package-lock.json", "/db"];

/// Returns the part of a picture that does not depend on when it was made.
fn lasting(picture: Picture) -> Picture {
    let told = |(name, line): (String, String)| {
        let mut words: Vec<_> = line.split(' ').collect();
        // Mode, owner, and the time.
        if !words[2].starts_with("1.") {
            words[2] = "";
        }
        let varies = VARYING.iter().any(|part| name.contains(part));
        let line = if varies { words[..2].join(" ") } else { words.join(" ") };
        (name, line)
    };
    picture.into_iter().map(told).collect()
}

fn programs_do_what_they_do_plainly(dir: &Path) {
    let Some(w) = sized(dir, 512).and_then(with_tmp) else { return };
    let clear = || {
        let all = format!("cd {} && find . -mindepth 1 -maxdepth 1 ! -name '.systx*' ! -name .local -exec rm -r {{}} + ; cd /tmp && rm -rf kept dir .??*[!0-9]", w.own.display());
        must(Command::new("sh").args(["-c", &all]));
    };
    let look = || [lasting(seen(&w.own)), lasting(seen(Path::new("/tmp")))];
    // With the user's own tools: a toolchain in root's home is not to be reached.
    for Work { name, needs, script } in WORKS {
        let there = needs.iter().all(|tool| code(&plain(&w, USER, &format!("{tool} --version"))) == 0);
        if !there {
            println!("skipped: no {needs:?} for an ordinary user");
            continue;
        }
        let script = format!("set -e; mkdir ~/work; cd ~/work; {{ {script}; }} >/dev/null");
        clear();
        let before = look();
        let aborted = run(&w, &[], &format!("{script}; exit 9"));
        assert_eq!(code(&aborted), 9, "{name}: {}", err(&aborted));
        let after = look();
        assert_eq!(after, before, "{name} left something");
        let done = run(&w, &[], &script);
        assert_eq!(code(&done), 0, "{name}: {}", err(&done));
        let inside = look();
        clear();
        let plainly = plain(&w, USER, &script);
        assert_eq!(code(&plainly), 0, "{name}: {}", err(&plainly));
        let expected = look();
        for (inside, expected) in inside.iter().zip(&expected) {
            assert!(inside == expected, "{name}:\n{}", difference(inside, expected));
        }
        println!("{name}: {} paths", expected[0].len() + expected[1].len());
    }
}
