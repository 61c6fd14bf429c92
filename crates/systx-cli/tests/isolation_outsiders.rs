//! Hostile outsiders: they rewrite in place, rename over, create, unlink and append at the very instants at
//! which transactions on the same objects commit. Every act that succeeded for an outsider is in the tree, or
//! aside and reported.
//!
//! Each object has one outsider, so that it knows what must be there: no other process writes its part of the
//! object, transactions only carry it along. The outsider looks again before each of its acts. Between the
//! two renames by which a commit takes back an exchange that came too late the outsider may be shown an older
//! state; it waits for its end and it counts as lost if there is none.
//!
//! `cargo test -p systx-cli --test isolation_outsiders [-- PART-OF-A-NAME]`; `SYSTX_LONG=1` for more of it.
//! `SYSTX_SEED`.

mod alone;

use alone::place::{code, err, must, out, Place, AREA, SYSTX};
use alone::{long, meet, role, turn, Case};
use rustix::process::{kill_process, Pid, Signal};
use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::{BufRead, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::time::Instant;

fn main() {
    let cases: &[(&str, Case)] = &[
        ("no_acknowledged_update_of_an_outsider_is_lost", no_acknowledged_update_of_an_outsider_is_lost),
        (
            "a_store_through_a_mapping_made_meanwhile_is_seen",
            a_store_through_a_mapping_made_meanwhile_is_seen,
        ),
        ("a_write_to_a_part_that_is_cut_off_stays", a_write_to_a_part_that_is_cut_off_stays),
        ("owners_in_three_pid_namespaces_die_and_stop", owners_in_three_pid_namespaces_die_and_stop),
    ];
    alone::enter(&["tmpfs", "ext4"], cases, &[("change", change), ("namespace", namespace)]);
}

const OUTSIDERS: usize = 3;
/// Length of a record in a file that is rewritten in place.
const RECORD_BYTES: usize = 16;

/// Role: a transaction that changes objects and carries along what outsiders wrote: TOKEN OBJECT...
fn change(args: &[String]) {
    let token = &args[0];
    let by_rename = token.len() % 2 == 0;
    for object in &args[1..] {
        match object.as_bytes()[0] {
            b'a' => {
                let mut file = OpenOptions::new().append(true).open(object).unwrap();
                file.write_all(format!("tx {token}\n").as_bytes()).unwrap();
            }
            b'r' => {
                // In the outsider's sector and in another page; half of them write everything that they have
                // read.
                let mut bytes = std::fs::read(object).unwrap();
                let ours = format!("{token:>RECORD_BYTES$}");
                for at in [100, 5000] {
                    bytes[at..at + RECORD_BYTES].copy_from_slice(ours.as_bytes());
                }
                let file = OpenOptions::new().write(true).open(object).unwrap();
                if by_rename {
                    file.write_all_at(&bytes, 0).unwrap();
                } else {
                    file.write_all_at(ours.as_bytes(), 100).unwrap();
                    file.write_all_at(ours.as_bytes(), 5000).unwrap();
                }
            }
            b'n' => {
                let text = std::fs::read_to_string(object).unwrap();
                let new = format!("{}\ntx {token}\n", text.lines().next().unwrap());
                if by_rename {
                    std::fs::write(format!("{object}.new"), new).unwrap();
                    std::fs::rename(format!("{object}.new"), object).unwrap();
                } else {
                    std::fs::write(object, new).unwrap();
                }
            }
            _ => match std::fs::read_to_string(object) {
                Err(_) => std::fs::write(object, format!("tx {token}")).unwrap(),
                Ok(text) if text.starts_with("tx") => std::fs::remove_file(object).unwrap(),
                Ok(_) => {}
            },
        }
    }
    println!("end");
}

/// One outsider with its objects, and what must be there.
struct Outsider<'a> {
    p: &'a Place,
    n: usize,
    acts: u64,
    record: u64,
    line: u64,
    created: Option<u64>,
    removed: String,
    appended: Vec<u64>,
    transients: u64,
    lost: Vec<String>,
}

impl Outsider<'_> {
    fn path(&self, kind: char) -> PathBuf {
        self.p.served.join(format!("{kind}{}", self.n))
    }

    /// Checks that the outsider's change is there, now or as soon as an exchange that came too late is taken
    /// back.
    fn look(&mut self, what: &str, there: impl Fn(&Self) -> bool) {
        if there(self) {
            return;
        }
        self.transients += 1;
        let start = Instant::now();
        while start.elapsed().as_secs() < 10 {
            if there(self) {
                return;
            }
            std::thread::yield_now();
        }
        self.lost.push(format!("outsider {}: {what} after act {}", self.n, self.acts));
    }

    fn look_at_all(&mut self) {
        self.look("record", |me| {
            std::fs::read(me.path('r')).is_ok_and(|bytes| bytes[..RECORD_BYTES] == *me.record_bytes())
        });
        self.look("line", |me| {
            std::fs::read_to_string(me.path('n'))
                .is_ok_and(|text| text.lines().next() == Some(&format!("his {}", me.line)))
        });
        self.look("created", |me| {
            let now = std::fs::read_to_string(me.path('c')).unwrap_or_default();
            match me.created {
                Some(act) => now == format!("his {act}"),
                None => now.is_empty() || (now.starts_with("tx") && now != me.removed),
            }
        });
    }

    fn record_bytes(&self) -> Vec<u8> {
        format!("{:>RECORD_BYTES$}", self.record).into_bytes()
    }

    fn act(&mut self, kind: char) {
        self.acts += 1;
        let (act, path) = (self.acts, self.path(kind));
        match kind {
            'a' => {
                let mut file = OpenOptions::new().append(true).open(path).unwrap();
                file.write_all(format!("his {act}\n").as_bytes()).unwrap();
                self.appended.push(act);
            }
            'r' => {
                let file = OpenOptions::new().write(true).open(path).unwrap();
                self.record = act;
                file.write_all_at(&self.record_bytes(), 0).unwrap();
            }
            'n' => {
                let new = self.p.served.join(format!("n{}.his", self.n));
                std::fs::write(&new, format!("his {act}\n")).unwrap();
                std::fs::rename(new, path).unwrap();
                self.line = act;
            }
            _ => match self.created {
                Some(_) => {
                    std::fs::remove_file(path).unwrap();
                    (self.created, self.removed) = (None, String::new());
                }
                None => {
                    // Complete before it has its name; link(2) never replaces.
                    let new = self.p.served.join(format!("c{}.his", self.n));
                    std::fs::write(&new, format!("his {act}")).unwrap();
                    match std::fs::hard_link(&new, &path) {
                        Ok(()) => self.created = Some(act),
                        Err(_) => {
                            // A transaction's: the outsider removes what it has seen, if it is still that at
                            // the removal.
                            let away = self.p.served.join(format!("c{}.away", self.n));
                            if std::fs::rename(&path, &away).is_ok() {
                                self.removed = std::fs::read_to_string(&away).unwrap();
                                std::fs::remove_file(away).unwrap();
                            }
                        }
                    }
                    std::fs::remove_file(new).unwrap();
                }
            },
        }
    }

    /// Acts at random instants of the commits that are announced to it.
    fn run(mut self, news: Receiver<Vec<String>>, commit_us: &AtomicU64, mut rng: fastrand::Rng) -> Self {
        for objects in news {
            let mine: Vec<char> = objects
                .iter()
                .filter(|o| o.ends_with(&self.n.to_string()))
                .map(|o| o.as_bytes()[0] as char)
                .collect();
            if mine.is_empty() {
                continue;
            }
            let start = Instant::now();
            let until_us = rng.u64(0..=commit_us.load(Relaxed) * 5 / 4);
            while start.elapsed().as_micros() < u128::from(until_us) {
                std::hint::spin_loop();
            }
            for _ in 0..rng.u8(1..=3) {
                self.act(*rng.choice(&mine).unwrap());
            }
            self.look_at_all();
        }
        self.look_at_all();
        self
    }
}

fn no_acknowledged_update_of_an_outsider_is_lost(p: &Place) {
    for n in 0..OUTSIDERS {
        p.write(&format!("a{n}"), "");
        std::fs::write(p.served.join(format!("r{n}")), vec![b' '; 8192]).unwrap();
        p.write(&format!("n{n}"), "his 0\n");
    }
    let (workers, times) = if long() { (3, 600) } else { (2, 60) };
    let seed = systx_runner::seed();
    let commit_us = AtomicU64::new(2000);
    let (mut codes, mut ended) = (std::collections::BTreeMap::new(), Vec::new());
    let outsiders = std::thread::scope(|scope| {
        let rng = |n: usize| fastrand::Rng::with_seed(seed ^ ((n as u64) << 32));
        let commit_us = &commit_us;
        let (senders, outsiders): (Vec<Sender<Vec<String>>>, Vec<_>) = (0..OUTSIDERS)
            .map(|n| {
                let (sender, news) = channel();
                let record = 0;
                let him = Outsider {
                    p,
                    n,
                    acts: 0,
                    record,
                    line: 0,
                    created: None,
                    removed: String::new(),
                    appended: vec![],
                    transients: 0,
                    lost: vec![],
                };
                him_first(&him);
                (sender, scope.spawn(move || him.run(news, commit_us, rng(n))))
            })
            .unzip();
        let workers: Vec<_> = (0..workers)
            .map(|w| {
                let senders = senders.clone();
                scope.spawn(move || work(p, w, times, &senders, commit_us, rng(100 + w)))
            })
            .collect();
        drop(senders);
        for done in workers.into_iter().flat_map(|worker| worker.join().unwrap()) {
            *codes.entry(done.code).or_insert(0) += 1;
            ended.push(done);
        }
        outsiders.into_iter().map(|outsider| outsider.join().unwrap()).collect::<Vec<_>>()
    });
    let aside = read_all(&p.mount.join(AREA).join("aside"));
    let mut lost: Vec<String> = Vec::new();
    for him in &outsiders {
        let there = p.read(&format!("a{}", him.n));
        let kept = |act: &u64| there.lines().chain(aside.lines()).any(|line| line == format!("his {act}"));
        lost.extend(
            him.appended
                .iter()
                .filter(|act| !kept(act))
                .map(|act| format!("outsider {}: append {act}", him.n)),
        );
        lost.extend(him.lost.clone());
    }
    for tx in &ended {
        let there = |object: &String| {
            p.read(object).lines().filter(|line| *line == format!("tx {}", tx.token)).count()
        };
        for object in &tx.appended {
            let expected = match tx.code {
                0 => 1..=1,
                // Left out, and that very object named; or aside with it.
                76 if tx.conflict_copies.iter().any(|path| path.ends_with(&format!("/{object}"))) => 0..=1,
                76 => 1..=1,
                _ => 0..=0,
            };
            if !expected.contains(&there(object)) {
                let (code, token, count) = (tx.code, &tx.token, there(object));
                lost.push(format!(
                    "{object}: {count} × append {token} of a transaction that ended with {code}"
                ));
            }
        }
        assert_eq!(tx.code == 76, !tx.conflict_copies.is_empty(), "{}: {:?}", tx.token, tx.conflict_copies);
    }
    let (acts, transients) =
        outsiders.iter().fold((0, 0), |(acts, transients), o| (acts + o.acts, transients + o.transients));
    println!("{acts} acts of outsiders, {transients} waited for; transactions by exit status: {codes:?}");
    assert!(lost.is_empty(), "{lost:#?}");
    assert!(codes.keys().all(|code| [0, 75, 76].contains(code)), "{codes:?}");
    assert!(codes[&0] > 0 && codes[&75] > 0, "both outcomes: {codes:?}");
}

/// Writes the outsider's record as it is at the start.
/// A program maps a file that a transaction has read, looks at a page and stores into it. On tmpfs the look makes the
/// page writable, so the store moves no time.
fn a_store_through_a_mapping_made_meanwhile_is_seen(p: &Place) {
    if !Command::new("xfs_io").arg("-V").stdout(Stdio::null()).status().is_ok_and(|status| status.success()) {
        println!("skipped: no xfs_io");
        return;
    }
    let acts = ["cat f", "rm f", "mv copy f", "echo new > f", "printf ours | dd of=f conv=notrunc", "mv f g"];
    for (n, act) in (0..).zip(acts) {
        p.write("f", &"x".repeat(40_000));
        let inside = format!("cp f copy; {} {act}", turn(n));
        let meeting = meet(p, n, &[], &["sh", "-c", &inside]);
        let mut store = Command::new("xfs_io");
        store.args(["-c", "mmap -rw 0 40000", "-c", "mread 2500 8", "-c", "mwrite -S 0x68 2500 8", "f"]);
        must(store.current_dir(&p.served).stdout(Stdio::null()));
        let end = meeting.end();
        assert_eq!(code(&end), 75, "{act}: {}", err(&end));
        assert!(p.read("f").contains("hhhhhhhh"), "{act}: the store is gone");
    }
}

/// A program that has a file open writes to it while a commit, which will cut it, publishes other steps. Before the last
/// comparison that is a conflict, behind the cut it stands there, and between the two the file keeps its size.
fn a_write_to_a_part_that_is_cut_off_stays(p: &Place) {
    std::fs::create_dir(p.served.join("new")).unwrap();
    for n in 0..4 {
        p.write("log", &"x".repeat(9000));
        let log = OpenOptions::new().write(true).open(p.served.join("log")).unwrap();
        let made = format!("{n}.1");
        let inside = format!("truncate -s 1000 log; for i in $(seq 1000); do echo > new/{n}.$i; done");
        let mut systx = p.systx(&[], &["sh", "-c", &inside]);
        let mut systx = systx.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        while !p.served.join("new").join(&made).exists() && systx.try_wait().unwrap().is_none() {}
        log.write_all_at(b"his", 5000).unwrap();
        let end = systx.wait_with_output().unwrap();
        assert!(p.read("log").contains("his"), "{}: {}", code(&end), err(&end));
        assert!([0, 75, 76].contains(&code(&end)), "{}", err(&end));
    }
}

fn him_first(him: &Outsider<'_>) {
    let file = OpenOptions::new().write(true).open(him.path('r')).unwrap();
    file.write_all_at(&him.record_bytes(), 0).unwrap();
}

/// How a transaction ended.
struct Done {
    code: i32,
    token: String,
    /// The lists that it appended to.
    appended: Vec<String>,
    /// Conflict copies that it reported.
    conflict_copies: Vec<String>,
}

fn work(
    p: &Place,
    w: usize,
    times: usize,
    senders: &[Sender<Vec<String>>],
    commit_us: &AtomicU64,
    mut rng: fastrand::Rng,
) -> Vec<Done> {
    let mut done = Vec::new();
    for i in 0..times {
        let token = format!("{w}.{i}{}", if rng.bool() { "" } else { "x" });
        let all: Vec<String> = ["a", "r", "n", "c"]
            .iter()
            .flat_map(|kind| (0..OUTSIDERS).map(move |n| format!("{kind}{n}")))
            .collect();
        let count = rng.usize(1..=4);
        let objects = rng.choose_multiple(all, count);
        let mut words = vec![token.as_str()];
        words.extend(objects.iter().map(String::as_str));
        let options: &[&str] = if rng.bool() { &["--json"] } else { &["--json", "--durability", "none"] };
        let mut systx = p.systx(options, &role("change", &words));
        let mut child = systx.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        std::io::BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
        let end = Instant::now();
        if rng.u8(0..4) > 0 {
            senders.iter().for_each(|sender| sender.send(objects.clone()).unwrap());
        }
        let mut told = String::new();
        child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
        let code = child.wait().unwrap().code().unwrap();
        let mean = commit_us.load(Relaxed);
        commit_us.store((mean * 7 + end.elapsed().as_micros() as u64) / 8, Relaxed);
        if ![0, 75].contains(&code) {
            println!("status {code}: {}", told.trim());
        }
        let told: serde_json::Value = serde_json::from_str(told.lines().last().unwrap()).unwrap();
        let conflict_copies = told["displaced"].as_array().into_iter().flatten();
        let conflict_copies = conflict_copies.map(|one| one["path"].as_str().unwrap().to_owned()).collect();
        let appended = objects.into_iter().filter(|o| o.starts_with('a')).collect();
        done.push(Done { code, token, appended, conflict_copies });
    }
    done
}

fn read_all(dir: &std::path::Path) -> String {
    let files = std::fs::read_dir(dir).into_iter().flatten().map(|entry| entry.unwrap().path());
    files.map(|path| String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()).collect()
}

/// Role: pid 1 of a namespace. Runs transactions that append a token to two lists, kills or stops some of
/// them, and says of each how it ended: NAME TIMES SEED, after which the words of `systx run`.
fn namespace(args: &[String]) {
    let (name, times, seed) = (&args[0], args[1].parse::<u32>().unwrap(), args[2].parse::<u64>().unwrap());
    let mut rng = fastrand::Rng::with_seed(seed);
    for i in 0..times {
        let token = format!("{name}.{i}");
        // By rename and in place.
        let script =
            format!("cp x x.{token}; echo {token} >> x.{token}; mv x.{token} x; echo {token} >> y; echo end");
        let mut child = Command::new(&args[3])
            .args(&args[4..])
            .args(["--retry", "1000", "--", "sh", "-c", &script])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let pid = Pid::from_raw(child.id() as i32).unwrap();
        let mut said = String::new();
        // Kept open to the end: what runs again says it again.
        let mut lines = std::io::BufReader::new(child.stdout.take().unwrap());
        lines.read_line(&mut said).unwrap();
        let fate = rng.u8(0..4);
        let spin = |us: u64| {
            let start = Instant::now();
            while start.elapsed().as_micros() < u128::from(us) {
                std::hint::spin_loop();
            }
        };
        if fate > 0 {
            spin(rng.u64(0..10_000));
        }
        if fate > 1 {
            // Not waited for yet, so the pid is still its own.
            let _ = kill_process(pid, Signal::STOP);
            spin(rng.u64(0..20_000));
        }
        match fate {
            1 | 2 => drop(child.kill()),
            3 => drop(kill_process(pid, Signal::CONT)),
            _ => {}
        }
        let mut told = String::new();
        child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
        match child.wait().unwrap().code() {
            Some(0) => println!("committed {token}"),
            None => println!("killed {token}"),
            Some(75) => println!("conflict {token}"),
            Some(code) => println!("failed {token} {code} {told}"),
        }
    }
}

fn owners_in_three_pid_namespaces_die_and_stop(p: &Place) {
    p.write("x", "");
    p.write("y", "");
    let times = if long() { 150 } else { 15 };
    let seed = systx_runner::seed();
    let children: Vec<_> = ["one", "two", "three"]
        .iter()
        .zip(0..)
        .map(|(name, n)| {
            let words = role("namespace", &[name, &times.to_string(), &(seed ^ (n << 32)).to_string()]);
            Command::new("unshare")
                .args(["--pid", "--mount", "--mount-proc", "--fork", "--kill-child", "--"])
                .args(words)
                .args([SYSTX, "run", "--area-name", AREA, "--only"])
                .arg(&p.served)
                .current_dir(&p.served)
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let ends: Vec<_> = children.into_iter().map(|child| child.wait_with_output().unwrap()).collect();
    let said: String = ends.iter().map(out).collect();
    assert!(ends.iter().all(|end| code(end) == 0), "{said}{}", ends.iter().map(err).collect::<String>());
    let recover = Command::new(SYSTX).args(["recover", "--area-name", AREA]).output().unwrap();
    assert_eq!(code(&recover), 0, "{}{}", out(&recover), err(&recover));
    // A transaction that reads waits for everything that is still being published.
    let end = p.shell("cat x y > /dev/null");
    assert_eq!(code(&end), 0, "{}", err(&end));
    let list = |name| p.read(name).lines().map(str::to_owned).collect::<Vec<_>>();
    let (x, y) = (list("x"), list("y"));
    assert_eq!(x, y, "each is in both or in neither, in one order");
    let present: BTreeSet<&str> = x.iter().map(String::as_str).collect();
    assert_eq!(present.len(), x.len(), "nothing is there twice");
    let of = |kind: &str| -> Vec<&str> {
        said.lines().filter_map(|line| line.strip_prefix(kind)?.strip_prefix(' ')).collect()
    };
    println!("{} committed, {} killed, {} there", of("committed").len(), of("killed").len(), x.len());
    assert!(of("failed").is_empty(), "{said}");
    assert!(of("committed").iter().all(|token| present.contains(token)), "{said}{x:?}");
    assert!(!of("conflict").iter().any(|token| present.contains(token)));
    assert!(!of("committed").is_empty() && !of("killed").is_empty());
    // Each is accounted for.
    assert!(x
        .iter()
        .all(|token| of("committed").contains(&token.as_str()) || of("killed").contains(&token.as_str())));
}
