//! A PostgreSQL of our own, with the settings of its package, over a unix socket.

use crate::world::ran;
use crate::Outcome;
use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A running server, on a fresh database.
pub struct Cluster {
    dir: PathBuf,
    programs: PathBuf,
    user: (u32, u32),
}

/// Rows have their size on the disk: bytes that can't be compressed.
const TABLES: &str = "
create table t(k int primary key, v bytea);
alter table t alter column v set storage external;
create table s(n int primary key, v bytea);
alter table s alter column v set storage external;
insert into s select n, (select decode(string_agg(md5(random()::text || i || n), ''), 'hex')
    from generate_series(1, BYTES / 16) i) from generate_series(0, 63) n;
insert into t select k, (select v from s where n = 0) from generate_series(0, 255) k;
checkpoint;
";

const COMMIT: &str = "
\\set one 2 * :client_id
\\set other 2 * :client_id + 1
\\set n random(0, 63)
begin;
update t set v = (select v from s where n = :n) where k = :one;
update t set v = (select v from s where n = :n) where k = :other;
commit;
";

impl Cluster {
    /// # Errors
    /// Without PostgreSQL and its user.
    pub fn start(dir: &Path, bytes: usize) -> Outcome<Cluster> {
        let dir = dir.join("pg");
        fs::create_dir(&dir)?;
        let cluster = Cluster { programs: programs()?, user: user()?, dir };
        chown(&cluster.dir, Some(cluster.user.0), Some(cluster.user.1))?;
        cluster.tool("initdb", &["-A", "trust", "-U", "postgres", "-D", "data"])?;
        let socket = format!("-c listen_addresses='' -c unix_socket_directories='{}'", cluster.dir.display());
        cluster.tool("pg_ctl", &["-w", "-D", "data", "-l", "log", "-o", &socket, "start"])?;
        cluster.sql("psql", &["-q", "-c", &TABLES.replace("BYTES", &bytes.to_string())])?;
        fs::write(cluster.dir.join("commit.sql"), COMMIT)?;
        Ok(cluster)
    }

    /// Commits, and the seconds that they took.
    pub fn run(&self, clients: usize, ms: usize) -> Outcome<(f64, f64)> {
        let (clients, seconds) = (clients.to_string(), ms.div_ceil(1000));
        let timed = ["-n", "-M", "prepared", "-c", &clients, "-j", "1", "-f", "commit.sql", "-T"];
        let told = self.sql("pgbench", &[&timed[..], &[&seconds.to_string()]].concat())?;
        let number = |line: &str| line.rsplit([' ', '/']).find_map(|word| word.parse::<f64>().ok());
        let processed = told.lines().find(|line| line.contains("actually processed")).and_then(number);
        Ok((processed.ok_or(format!("pgbench said {told:?}"))?, seconds as f64))
    }

    fn sql(&self, program: &str, arguments: &[&str]) -> Outcome<String> {
        let host = self.dir.to_str().ok_or("a path that is no text")?;
        self.tool(program, &[&["-h", host, "-U", "postgres"], arguments, &["postgres"]].concat())
    }

    fn tool(&self, program: &str, arguments: &[&str]) -> Outcome<String> {
        let mut command = Command::new(self.programs.join(program));
        command.args(arguments).current_dir(&self.dir).uid(self.user.0).gid(self.user.1);
        // A server keeps the pipes of its starter.
        if program == "pg_ctl" {
            let done = command.stdout(std::process::Stdio::null()).status()?;
            return if done.success() {
                Ok(String::new())
            } else {
                Err(format!("{command:?}: {done}").into())
            };
        }
        Ok(String::from_utf8_lossy(&ran(&mut command)?.stdout).into_owned())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.tool("pg_ctl", &["-D", "data", "-m", "immediate", "-w", "stop"]);
    }
}

/// The newest version of Debian's packages.
fn programs() -> Outcome<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").map_err(|_| "there is no PostgreSQL")?;
    let found = versions.flatten().map(|version| version.path().join("bin")).filter(|bin| bin.exists());
    Ok(found.max().ok_or("there is no PostgreSQL")?)
}

/// It refuses to be root.
fn user() -> Outcome<(u32, u32)> {
    let users = fs::read_to_string("/etc/passwd")?;
    let line = users.lines().find(|line| line.starts_with("postgres:")).ok_or("there is no user postgres")?;
    let mut numbers = line.split(':').skip(2).map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(uid)), Some(Ok(gid))) => Ok((uid, gid)),
        _ => Err("the user postgres has no number".into()),
    }
}
