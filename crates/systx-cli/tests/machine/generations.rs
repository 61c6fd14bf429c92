//! A tree that one command takes from generation 0 to 1 and back, by every kind of change.
//!
//! A plain directory, where the same scripts ran without systx, shows what the generations look like.

use super::picture::{difference, picture, Picture};
use super::who::{Account, Who};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Generation 0.
const BEGIN: &str = r#"
set -e
i=0; while [ $i -lt $FILES ]; do echo "file $i of 0" > f$i; i=$((i + 1)); done
head -c 300000 /dev/zero | tr '\0' 'x' > large; printf 'gen 0' | dd of=large bs=1 seek=100000 conv=notrunc 2>/dev/null
mkdir -p stays/below moved.0/deep gone.0/deep onto.0
echo a > moved.0/a; echo b > moved.0/deep/b; ln -s ../f0 moved.0/deep/up
echo c > gone.0/deep/c; ln -s nowhere gone.0/s
echo h > stays/h; ln stays/h link.0
echo x > stays/x; setfattr -n user.generation -v 0 stays/x; setfattr -n user.only0 -v here stays/below
echo y > swap.a; echo z > swap.b; mkdir dirs.a dirs.b; echo 1 > dirs.a/one; echo 2 > dirs.b/two
echo r > replaced; echo o > stays/owned; ln -s target.0 symlink; mkfifo fifo.0
chmod 600 stays/owned; chmod 755 stays
G=0
"#;

/// From generation $O to generation $G.
const STEP: &str = r#"
set -e
i=0; while [ $i -lt $FILES ]; do echo "file $i of $G" > f$i; i=$((i + 1)); done
printf "gen $G" | dd of=large bs=1 seek=100000 conv=notrunc 2>/dev/null
if [ $G = 1 ]; then echo appended >> stays/x; else echo x > stays/x; fi
setfattr -n user.generation -v $G stays/x; setfattr -x user.only$O stays/below; setfattr -n user.only$G -v here stays/below
echo n > moved.$O/a.$G; rm -f moved.$O/a.$O; mv moved.$O moved.$G
rm -r gone.$O; mkdir -p gone.$G/deep; echo c > gone.$G/deep/c; ln -s nowhere gone.$G/s; mkdir gone.$G/empty
mkdir onto.$G; mv onto.$O from.here; mv -T from.here onto.$G
ln stays/h link.$G; rm link.$O
mv swap.a t; mv swap.b swap.a; mv t swap.b
mv dirs.a t; mv dirs.b dirs.a; mv t dirs.b
echo "r $G" > replaced.new; mv replaced.new replaced
if [ $CHOWN = yes ]; then chown $G:$G stays/owned; fi; chmod 64$G stays/owned; chmod 75$G stays
rm symlink; ln -s target.$G symlink
mkfifo fifo.$G; rm fifo.$O
"#;

/// Times are part of the picture, so that they are the generation's.
const TIMES: &str = r#"
find . -name .systx-crash -prune -o -name lost+found -prune -o -exec touch -h -d @$((1000000000 + G)) {} +
"#;

/// A command's last words: it is about to end, well or not.
const LAST: &str = "trap 'echo ending > $TELL' EXIT\n";

/// Both generations as they must look.
pub struct Generations {
    pub expected: [Picture; 2],
    /// What the scripts are told.
    told: [(&'static str, String); 2],
}

impl Generations {
    /// Learns what they look like in a plain directory.
    pub fn learn(dir: &Path, files: usize, account: &Account) -> Generations {
        let plain = dir.join("plain");
        account.make(&plain);
        // Only root gives files to others.
        let chown = if account.who == Who::Root { "yes" } else { "no" };
        let told = [("FILES", files.to_string()), ("CHOWN", chown.to_owned())];
        let mut seen = Vec::new();
        for (script, old, new) in [(BEGIN, "0", "0"), (STEP, "0", "1"), (STEP, "1", "0"), (STEP, "0", "1")] {
            natively(account, &plain, &told, script, [old, new]);
            seen.push(picture(&plain));
        }
        // `appended`, `a.1` and the like come and go with it.
        let again: [Picture; 2] = [seen[2].clone(), seen[3].clone()];
        assert!(again[1] == seen[1], "{}", difference(&again[1], &seen[1]));
        Generations { expected: again, told }
    }

    /// Makes generation 1 natively.
    pub fn begin(&self, served: &Path, account: &Account) {
        for (script, old, new) in [(BEGIN, "0", "0"), (STEP, "0", "1")] {
            natively(account, served, &self.told, script, [old, new]);
        }
        assert_eq!(self.of(served), Some(1), "{}", difference(&picture(served), &self.expected[1]));
    }

    /// Gives everything the times of its generation, natively.
    pub fn set_times(&self, served: &Path, generation: usize) {
        super::must(
            Command::new("sh").args(["-c", TIMES]).current_dir(served).env("G", generation.to_string()),
        );
    }

    /// The change to the other generation, as a script.
    pub fn script(&self) -> String {
        format!("{LAST}{STEP}{TIMES}")
    }

    /// Sets what the script needs.
    pub fn environment(&self, command: &mut Command, from: usize, tell: &Path) {
        command.env("O", from.to_string()).env("G", (1 - from).to_string());
        command.envs(self.told.iter().map(|(name, value)| (name, value))).env("TELL", tell);
    }

    /// Which generation the tree is, if it is exactly one.
    pub fn of(&self, served: &Path) -> Option<usize> {
        let found = picture(served);
        self.expected.iter().position(|expected| *expected == found)
    }

    /// Which generation it is but for modification times that are neither's: those of a publication that lost power.
    pub fn but_for_times(&self, served: &Path) -> Option<usize> {
        let found = picture(served);
        (0..2).find(|generation| {
            let expected = &self.expected[*generation];
            let same = |(name, line): (&String, &String)| {
                let Some(wanted) = expected.get(name) else { return false };
                let (found, wanted) = (Line::of(line), Line::of(wanted));
                let ours = ["1000000000.0", "1000000001.0"].contains(&found.time);
                found.rest() == wanted.rest() && (found.time == wanted.time || !ours)
            };
            found.len() == expected.len() && found.iter().all(same)
        })
    }

    /// Returns the generation that the tree is; a mixture is a failure.
    pub fn whole(&self, served: &Path, what: &str) -> usize {
        self.of(served).unwrap_or_else(|| {
            let found = picture(served);
            let [zero, one] = [0, 1].map(|g| difference(&found, &self.expected[g]));
            panic!("{what}: a mixture. Against generation 0:\n{zero}Against generation 1:\n{one}")
        })
    }
}

/// A line of a picture, apart.
struct Line<'a> {
    mode: &'a str,
    owner: &'a str,
    time: &'a str,
    more: &'a str,
}

impl Line<'_> {
    fn of(line: &str) -> Line<'_> {
        let mut words = line.splitn(4, ' ');
        let mut word = || words.next().unwrap_or_default();
        Line { mode: word(), owner: word(), time: word(), more: word() }
    }

    fn rest(&self) -> [&str; 3] {
        [self.mode, self.owner, self.more]
    }
}

fn natively(account: &Account, dir: &Path, told: &[(&str, String)], script: &str, [old, new]: [&str; 2]) {
    let mut sh = account.command("sh");
    sh.args(["-c", &format!("{script}{TIMES}")]).current_dir(dir);
    super::must(sh.env("O", old).env("G", new).envs(told.iter().map(|(name, value)| (name, value))));
}

/// A directory to serve, in generation 1.
pub fn tree(point: &Path, generations: &Generations, account: &Account) -> PathBuf {
    let served = account.served(point);
    generations.begin(&served, account);
    served
}
