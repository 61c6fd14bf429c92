//! Arguments and help texts.
//!
//! Owns: the grammar of the command line. Guarantees: everything from the first word of a command on belongs to the
//! command, byte for byte. Does not: act.

mod id;
mod network;
mod open;
mod undo;

pub use id::{Id, Number};
pub use network::{Network, Policy};
pub use open::{Begin, Check, Commit, Diff, End, Exec, Paths, Session};
pub use undo::{Undo, Undoable};

use crate::failure::Failure;
use crate::words::Voice;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// System transactions: what a command does to files takes effect all or not at all.
#[derive(Debug, Parser)]
#[command(name = "systx", version, disable_help_subcommand = true, max_term_width = 100, after_help = EXAMPLES)]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub verb: Verb,
}

impl Cli {
    /// Reads this process's arguments.
    ///
    /// Making the grammar of all commands is a twentieth of what a short run takes, so that of `run` is tried alone.
    /// What it can't take is read, and complained of, with the whole one.
    pub fn read() -> Result<Cli, clap::Error> {
        if std::env::args_os().nth(1).is_some_and(|verb| verb == "run") {
            if let Ok(alone) = RunAlone::try_parse() {
                let RunVerb::Run(args) = alone.verb;
                return Ok(Cli { verb: Verb::Run(args) });
            }
        }
        Cli::try_parse()
    }
}

/// [`Cli`] with one command.
#[derive(Debug, Parser)]
#[command(name = "systx")]
struct RunAlone {
    #[command(subcommand)]
    verb: RunVerb,
}

#[derive(Debug, Subcommand)]
enum RunVerb {
    Run(Run),
}

const EXAMPLES: &str = "\
Examples:
  systx run -- make install           commit if make succeeds, else leave no trace
  systx run --only /etc -- sh -c 'sed -i s/a/b/ /etc/hosts && nginx -t'
  systx recover                       finish what a crash has cut off
  systx doctor                        what holds on this machine, and what to do about the rest

Environment:
  SYSTX_LOG=debug                     print what systx does to standard error, for bug reports; or of one
                                      module, as in SYSTX_LOG=systx_engine::commit=trace
  SYSTX_LOG_FILE=FILE                 append that to FILE; the helper process logs there only";

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Runs a command as one transaction
    Run(Run),
    /// Runs your shell as one transaction, and asks at its end
    Shell(Shell),
    /// Begins a transaction that stays open over several commands, and prints its number
    Begin(Begin),
    /// Runs a command, or your shell, in an open transaction
    Exec(Exec),
    /// Shows what an open transaction would change
    Diff(Diff),
    /// Lists what keeps an open transaction from committing now, and leaves it as it is
    Check(Check),
    /// Makes the changes of an open transaction take effect
    Commit(Commit),
    /// Forgets an open transaction with all that was done in it
    Abort(End),
    /// Lists transactions that run, are open, or are being published
    List(Json),
    /// Shows one transaction, or how each file system stands
    Status(Status),
    /// Shows committed transactions: who, when, and the changes
    Log(Log),
    /// Takes a committed transaction back, where nothing has changed since
    Undo(Undo),
    /// Waits until a transaction has ended, and runs a command then
    OnEnd(OnEnd),
    /// Finishes publications that were cut off, and says what was done
    Recover(Recover),
    /// Removes displaced objects that were reported, leftovers, and what old undos need
    Prune(Prune),
    /// Says which guarantee holds on this machine, with the remedy for each that does not
    Doctor(Json),
    /// Makes programs run as transactions whenever they are started
    Wrap(Wrap),
    /// Installs a boot unit and a login hook that run `systx recover`
    InstallHooks(InstallHooks),
    /// Prints the script that completes systx's words in a shell
    Completions(Completions),
    /// Writes manual pages
    #[command(hide = true)]
    Manuals(Manuals),
    /// Finishes for processes of the library that are killed, until none is left
    #[command(hide = true)]
    WatchAreas(WatchAreas),
    /// Prints versions
    Version(Json),
}

/// How to print.
#[derive(Clone, Debug, Args)]
pub struct Json {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub area: Area,
}

/// `systx watch-areas`.
#[derive(Debug, Args)]
pub struct WatchAreas {
    /// Directories with areas
    #[arg(required = true)]
    pub tops: Vec<OsString>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub area: Area,
}

/// Where areas are.
#[derive(Clone, Debug, Args)]
pub struct Area {
    /// Name of the area at the top of each file system (for tests)
    #[arg(long, hide = true, default_value = ".systx")]
    pub area_name: OsString,
    /// The file systems are views of the transaction around this one, each of which says how the area is called.
    #[arg(skip)]
    pub is_in_view: bool,
}

/// `systx run`.
#[derive(Clone, Debug, Args)]
#[command(after_help = RUN_HELP)]
pub struct Run {
    /// Serve only this directory and what is mounted below it; may be repeated. Outside of it the command
    /// runs natively: what it does there takes effect at once and stays. Without it: all files; of users
    /// other than root those that they can change, and everything else is read-only
    #[arg(long, value_name = "DIR")]
    pub only: Vec<PathBuf>,
    /// Inside of a transaction: a subtransaction, which commits into that one, or is undone alone. Without
    /// this option an inner run is a part of the outer one; outside of any transaction this option changes
    /// nothing
    #[arg(long)]
    pub sub: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub promise: Promise,
    /// Run the command again after a conflict, at most N times. Its standard input is not rewound
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub retry: u32,
    /// Choose the fate of the changes when the command exits with another status than 0; abort by default,
    /// keep with --no-commit. A command that a signal kills is never committed
    #[arg(long, value_enum, value_name = "WHAT")]
    pub on_error: Option<OnError>,
    /// Choose the fate of the changes when they can't be committed, for a conflict, a full disk or another
    /// error before the commit: with keep the transaction is lost, but stays, for `systx diff`, `exec` and
    /// `abort`
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = OnConflict::Abort)]
    pub on_conflict: OnConflict,
    /// Commit nothing: the transaction stays open when the command has ended, for `systx commit`, `abort`,
    /// `exec` and `diff`. Processes that the command leaves behind stay, too
    #[arg(short, long, conflicts_with_all = ["retry", "hold_output", "dry_run"])]
    pub no_commit: bool,
    /// Kill the command and abort when it has not ended after this time, all tries included: 90, 1.5m, 2h, 1d
    #[arg(long, value_name = "TIME", value_parser = Timeout::parse)]
    pub timeout: Option<Timeout>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub changes: Changes,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub undoable: Undoable,
    /// Show what the command writes to standard output only after the commit, and never without one. Standard
    /// error comes with it, or alone when there is no commit. The command sees pipes, also where a terminal
    /// is
    #[arg(long)]
    pub hold_output: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub network: Network,
    /// Serve directories that the command makes as all others. Without it, and for root, the kernel serves such a
    /// directory by itself while the process that has made it runs: several times as fast where it makes many files, but
    /// for so long it is another file system to what keeps to one. A process outside that has got a descriptor of it keeps
    /// the transaction from committing
    #[arg(long)]
    pub no_native: bool,
    /// Write the outcome as one line of JSON to descriptor N, which the command does not get
    #[arg(long, value_name = "N")]
    pub status_fd: Option<i32>,
    /// Write the outcome, and the changes that were asked for, as JSON to standard error instead of text
    #[arg(long)]
    pub json: bool,
    /// Say that it committed, too, and which mounts are not served
    #[arg(short, long)]
    pub verbose: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub area: Area,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub command: Vec<OsString>,
    /// Asks at the terminal before the commit.
    #[arg(skip)]
    pub asks: bool,
}

/// `systx shell`.
#[derive(Clone, Debug, Args)]
#[command(after_help = SHELL_HELP)]
pub struct Shell {
    /// See `systx run`
    #[arg(long, value_name = "DIR")]
    pub only: Vec<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub promise: Promise,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub undoable: Undoable,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub network: Network,
    /// Say which mounts are not served
    #[arg(short, long)]
    pub verbose: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub area: Area,
}

const SHELL_HELP: &str = "\
The shell is that of SHELL, or /bin/sh; its prompt begins with the number of the transaction. Nobody else sees what it
does. When it ends, systx says how many conflicts a commit would meet now, and asks whether to commit, whatever its last command's status was; without a terminal, status 0
commits. If the terminal goes, the transaction stays open; after a conflict, or a full disk at the commit, it stays as lost: `systx list`. Exit status: as of `systx run`; 1 when the answer was no.";

const RUN_HELP: &str = "\
The command sees its own changes at once; nobody else does before it ends. Status 0 commits, any other one aborts, \
unless --on-error says otherwise. Processes that it leaves behind are killed before the commit. It keeps the terminal, \
standard streams, environment and working directory; SYSTX_ID is added.

Exit status:
  its own: it succeeded and is committed, or it failed and nothing was changed (128+n: signal n)
  75   conflict: somebody else changed what it had seen; nothing was changed, try again
  76   committed, but an outsider's objects stand in the way of some of ours: see the message
  124  the time of --timeout was over; nothing was changed
  125  systx itself failed, or --network abort ended it: nothing was changed; or pending, or in doubt; or, with --no-commit or \
--on-error keep, somebody else has ended the transaction: see the message
  126  the command can't be executed
  127  the command was not found

Examples:
  systx run -- apt-get install -y hello
  systx run --retry 3 -- sh -c 'n=$(cat counter); echo $((n+1)) > counter'
  systx run --only /srv/www -- tar -xf site.tar -C /srv/www
  systx run --undoable -- make install    `systx undo` can take it back later
  systx run -- sh -c 'systx run --sub -- ./risky || echo without it; ./rest'
  systx run --isolation committed -- tar -cf /backup/srv.tar /srv      reads what has committed, and is in nobody's way
  systx run -x -- make                no network, and no servers but its own
  systx run --dry-run -p -- sed -i s/old/new/ /etc/hosts";

/// The changes to show on standard error before they are committed.
#[derive(Clone, Debug, Default, Args)]
pub struct Changes {
    /// Show what would change, and commit nothing. A command's effects outside of the files that are served,
    /// over the network for instance, happen
    #[arg(long)]
    pub dry_run: bool,
    /// Show the changes before the commit: a line for each name, as `git diff --name-status`
    #[arg(long)]
    pub diff: bool,
    /// Show the changes, with the number of lines that change in each file, as `git diff --stat`
    #[arg(long)]
    pub stat: bool,
    /// Show the changes with their contents, as `git diff`
    #[arg(short, long)]
    pub patch: bool,
}

impl Changes {
    /// Returns true if any form of the changes was asked for.
    pub fn are_told(&self) -> bool {
        self.dry_run || self.diff || self.stat || self.patch
    }
}

/// The fate of the changes of a command that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnError {
    /// Leave no trace of it
    Abort,
    /// Commit what it did until then
    Commit,
    /// Leave the transaction open, for `systx diff`, `exec`, `commit` and `abort`
    Keep,
}

/// The fate of a transaction that can't be committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnConflict {
    /// Leave no trace of it
    Abort,
    /// Keep what was done in it, to be looked at
    Keep,
}

/// A time, as timeout(1) takes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeout {
    /// In the user's words, and always with a unit.
    pub text: String,
    /// The time.
    pub time: Duration,
}

impl Run {
    /// Returns how much is said on standard error.
    pub fn voice(&self) -> Voice {
        Voice { json: self.json, verbose: self.verbose }
    }
}

impl Timeout {
    fn parse(text: &str) -> Result<Timeout, Failure> {
        let (number, unit) = match text.strip_suffix(['s', 'm', 'h', 'd']) {
            Some(number) => (number, text.chars().last()),
            None => (text, None),
        };
        let seconds = match unit {
            Some('m') => 60.0,
            Some('h') => 3600.0,
            Some('d') => 86400.0,
            _ => 1.0,
        };
        let number: f64 =
            number.parse().map_err(|_| Failure::from("a number of seconds, or one with s, m, h or d"))?;
        let time = Duration::try_from_secs_f64(number * seconds).map_err(|e| Failure::from(e.to_string()))?;
        if time.is_zero() {
            return Err("no time at all".into());
        }
        let text = if unit.is_none() { format!("{text} s") } else { text.into() };
        Ok(Timeout { text, time })
    }
}

/// The promises of a transaction.
#[derive(Clone, Copy, Debug, Args)]
pub struct Promise {
    /// Choose what the commit waits for; for a subtransaction the outer one decides
    #[arg(long, value_enum, default_value_t = DurabilityArg::Durable)]
    pub durability: DurabilityArg,
    /// How long what the command has only read must stay as it was
    #[arg(long, value_enum, default_value_t = IsolationArg::Serializable)]
    pub isolation: IsolationArg,
}

/// See `Isolation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum IsolationArg {
    /// To the commit: it is as if nothing else ran between
    Serializable,
    /// Read committed: a file is guaranteed unchanged only while it is open. For backups and long readers;
    /// files that are written are still validated at commit
    Committed,
}

/// See `Durability`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DurabilityArg {
    /// The effects are on stable storage when systx returns
    Durable,
    /// Atomic as long as the machine stays up; power loss may tear it
    None,
}

/// `systx status`.
#[derive(Clone, Debug, Args)]
pub struct Status {
    /// The transaction: its number, or of an open one its name, or @, @1 as of `systx commit`
    #[arg(value_parser = Id::of_open)]
    pub id: Option<Id>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub json: Json,
}

/// `systx log`.
#[derive(Clone, Debug, Args)]
#[command(after_help = LOG_HELP)]
pub struct Log {
    /// Number of a transaction, or @ (or `last`) for the one that committed last, @1 for the one before it; its changes are
    /// shown, too
    #[arg(value_parser = Id::of_committed)]
    pub id: Option<Id>,
    /// At most N of them, the youngest ones
    #[arg(short, long, value_name = "N")]
    pub number: Option<usize>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub json: Json,
}

const LOG_HELP: &str = "\
The youngest comes first. Told are durable commits of the file systems that are mounted now: as many as fit in about a \
megabyte of each, with at most 20 changes of one. Commits with --durability none leave no record. `undoable` says that `systx \
undo` has what it needs; whether something has changed since, `systx undo ID --dry-run` tells.

Examples:
  systx log -n 10
  systx log 12                what transaction 12 has changed: A new, M changed, D gone, R renamed";

/// `systx on-end`.
#[derive(Clone, Debug, Args)]
#[command(after_help = ON_END_HELP)]
pub struct OnEnd {
    /// Number of a transaction that runs, as `systx list` shows it; or of an open one its name, or @, @1 as of `systx
    /// commit`
    #[arg(value_parser = Id::of_open)]
    pub id: Id,
    /// Process of the transaction, where several file systems have one of that number
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub area: Area,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

const ON_END_HELP: &str = "\
The command finds the number in SYSTX_ID, and in SYSTX_OUTCOME `committed`, `aborted`, or `unknown`: systx was killed, \
or can't know whether the log is on the disk. A try of `systx run --retry` that lost is aborted; the next one has another \
number.

Exit status: that of the command. 125: there was nothing to wait for, see the message; 126, 127: the command \
can't be executed, was not found.

Examples:
  systx list
  systx on-end 12 -- sh -c 'notify-send \"transaction $SYSTX_ID: $SYSTX_OUTCOME\"'
  systx on-end 12 -- sh -c 'test $SYSTX_OUTCOME = committed && systemctl restart nginx'";

const RECOVER_HELP: &str = "\
A transaction over several file systems is decided by one of them. If that one is away after a crash, the others are in doubt, and what they \
have to change conflicts until it is back. If it never comes back, --commit or --abort decides in its place: on this file system alone. Should it \
return after all and have decided otherwise, half of the transaction is there, which the next `systx recover` says.";

/// `systx recover`.
#[derive(Clone, Debug, Args)]
#[command(after_help = RECOVER_HELP)]
pub struct Recover {
    /// Say something only if something was done or has failed, and what was displaced only once
    #[arg(long)]
    pub quiet: bool,
    /// Have systemd read its units anew if something was finished and one of them has changed (for the boot unit)
    #[arg(long)]
    pub reload_units: bool,
    /// Commit a transaction in doubt here, whose deciding file system never comes back
    #[arg(long, value_name = "ID", group = "by_hand")]
    pub commit: Option<u64>,
    /// Abort a transaction in doubt here, whose deciding file system never comes back
    #[arg(long, value_name = "ID", group = "by_hand")]
    pub abort: Option<u64>,
    /// Say no more of a committed transaction that a file system has not heard of, which never comes back.
    /// What became of it stays known
    #[arg(long, value_name = "ID", group = "by_hand")]
    pub forget: Option<u64>,
    /// Where that is: the mount point, if transactions of that number are on several file systems
    #[arg(long, value_name = "DIR", requires = "by_hand")]
    pub at: Option<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub json: Json,
}

/// `systx prune`.
#[derive(Clone, Debug, Args)]
pub struct Prune {
    /// Don't ask
    #[arg(long)]
    pub yes: bool,
    /// Keep only what those N undoable transactions of each file system that committed last could be undone
    /// with; 0 keeps nothing
    #[arg(long, value_name = "N", default_value_t = systx_engine::undo::area::IMAGES_MAX)]
    pub keep: usize,
    /// Discard lost transactions, too: what was done in them can't be looked at any more
    #[arg(long)]
    pub lost: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub json: Json,
}

/// `systx wrap`.
#[derive(Clone, Debug, Args)]
#[command(after_help = WRAP_HELP)]
pub struct Wrap {
    /// Where the scripts stand, which must come first on the path [default: ~/.local/lib/systx/wrap]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// See `systx run`. A relative path is looked up when the program is started: `.` is the working
    /// directory then
    #[arg(long, value_name = "DIR")]
    pub only: Vec<PathBuf>,
    /// See `systx run`
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub retry: u32,
    /// Show what is wrapped
    #[arg(long, conflicts_with_all = ["remove", "names", "only", "retry"])]
    pub list: bool,
    /// Take the scripts of these names away again
    #[arg(long, conflicts_with_all = ["only", "retry"])]
    pub remove: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub area: Area,
    /// Programs, as they are typed
    #[arg(required_unless_present = "list", value_name = "NAME")]
    pub names: Vec<OsString>,
}

const WRAP_HELP: &str = "\
Writes a small script for each program into a directory of your own. It runs the program that the path has now by `systx \
run`; inside of a transaction the program joins that one. Who names a program by its path, or has another path, as cron \
and sudo do, starts it without.

Examples:
  systx wrap --only . make
  systx wrap --list
  systx wrap --remove make";

/// `systx install-hooks`.
#[derive(Clone, Debug, Args)]
pub struct InstallHooks {
    /// Remove them again
    #[arg(long)]
    pub uninstall: bool,
    /// Install below this directory
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
}

/// `systx completions`.
#[derive(Clone, Debug, Args)]
#[command(after_help = COMPLETIONS_HELP)]
pub struct Completions {
    /// The shell
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

const COMPLETIONS_HELP: &str = "\
Examples:
  systx completions bash > /etc/bash_completion.d/systx
  systx completions zsh > /usr/local/share/zsh/site-functions/_systx
  systx completions fish > ~/.config/fish/completions/systx.fish";

/// `systx manuals`.
#[derive(Clone, Debug, Args)]
pub struct Manuals {
    /// Where to
    pub dir: PathBuf,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(args: &[&str]) -> Vec<OsString> {
        match Cli::try_parse_from(args).unwrap().verb {
            Verb::Run(run) => run.command,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_commands_words_are_its_own() {
        assert_eq!(command(&["systx", "run", "--", "a", "--json", "", "x y"]), ["a", "--json", "", "x y"]);
        assert_eq!(command(&["systx", "run", "a", "--json", "-v"]), ["a", "--json", "-v"]);
        assert_eq!(command(&["systx", "run", "--", "grep", "--", "-v"]), ["grep", "--", "-v"]);
        assert_eq!(command(&["systx", "run", "grep", "--", "-v"]), ["grep", "--", "-v"]);
        assert_eq!(command(&["systx", "run", "-v", "--", "-odd"]), ["-odd"]);
        // An option of ours with a slip of the finger is no command.
        let slip = Cli::try_parse_from(["systx", "run", "--durabilty", "none", "a"]).map(|_| ()).unwrap_err();
        assert_eq!(slip.kind(), clap::error::ErrorKind::UnknownArgument);
    }

    #[test]
    fn a_run_is_the_same_read_alone_or_among_all_commands() {
        for words in [
            &["systx", "run", "--", "a", "--json", "", "x y"][..],
            &["systx", "run", "-v", "--only", "/a", "--only=b", "--retry", "3", "a", "--help"],
            &["systx", "run", "--durability", "none", "--on-error=keep", "--timeout", "2h", "a"],
            &["systx", "run", "--isolation", "committed", "--", "a", "--isolation"],
            &["systx", "run", "--isolation", "none", "a"],
            &["systx", "run", "--help"],
            &["systx", "run", "-h", "a"],
            &["systx", "run", "--version", "a"],
            &["systx", "run", "--odd", "a"],
            &["systx", "run", "-n", "--retry", "1", "a"],
            &["systx", "run"],
        ] {
            let alone = RunAlone::try_parse_from(words).map(|alone| {
                let RunVerb::Run(run) = alone.verb;
                format!("{:?}", Verb::Run(run))
            });
            let among = Cli::try_parse_from(words).map(|cli| format!("{:?}", cli.verb));
            assert_eq!(alone.map_err(|e| e.kind()), among.map_err(|e| e.kind()), "{words:?}");
        }
    }

    #[test]
    fn a_run_needs_a_command() {
        assert!(Cli::try_parse_from(["systx", "run"]).is_err());
    }

    #[test]
    fn times_are_those_of_timeout() {
        let seconds = |text: &str| Timeout::parse(text).map(|t| t.time.as_secs_f64());
        assert_eq!(
            (seconds("90"), seconds("1.5m"), seconds("2h"), seconds("1d")),
            (Ok(90.0), Ok(90.0), Ok(7200.0), Ok(86400.0))
        );
        let told = |text: &str| Timeout::parse(text).unwrap().text;
        assert_eq!((told("0.5"), told("1.5m")), ("0.5 s".to_string(), "1.5m".to_string()));
        for wrong in ["", "s", "-1", "0", "nan", "inf", "1w", "1e300", "1 m"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_grammar_is_sound() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }
}
