//! The grammar of the verbs for transactions that stay open.

use super::id::{self, Id};
use super::{Area, Network, Promise, Timeout, Undoable};
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;

/// `systx begin`.
#[derive(Clone, Debug, Args)]
#[command(after_help = BEGIN_HELP)]
pub struct Begin {
    /// See `systx run`
    #[arg(long, value_name = "DIR")]
    pub only: Vec<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub promise: Promise,
    /// Give it a name, which stands for its number wherever one is asked for: of letters, digits, dots, _ and -. No other
    /// open one of the user has it
    #[arg(long, value_name = "NAME", value_parser = id::name)]
    pub name: Option<String>,
    /// Abort it when it is still open after this time: 90, 1.5m, 2h, 1d
    #[arg(long, value_name = "TIME", value_parser = Timeout::parse)]
    pub timeout: Option<Timeout>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub undoable: Undoable,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub network: Network,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Say which mounts are not served
    #[arg(short, long)]
    pub verbose: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub area: Area,
}

const BEGIN_HELP: &str = "\
Prints the number of the transaction and returns. Commands run in it with `systx exec`, from any terminal of the same user, \
also several at a time; nobody outside sees what they do before `systx commit`. A process called systx keeps it open: when \
that is killed, or the machine goes down, the transaction is aborted. After a conflict it can't be committed: the commands in it are killed at \
once, but what was done stays, as `lost`, until `systx abort`; `systx diff ID -p` and `systx exec ID` show it.

Exit status: 0, or 125: see the message.

Example:
  id=$(systx begin --only /etc)
  systx exec $id -- sed -i s/old/new/ /etc/hosts
  systx diff $id -p
  systx commit $id

  systx begin --name upgrade && systx exec upgrade -- apt-get upgrade -y && systx commit upgrade";

/// An open transaction that must be named: a variable that is empty by mistake means none.
#[derive(Clone, Debug, Args)]
pub struct Meant {
    /// The transaction: its number, as `systx begin` and `systx list` show it; its name; or @ (or `last`) for the newest
    /// open one, @1 for the one before it
    #[arg(value_parser = Id::of_open)]
    pub id: Id,
    /// The process that keeps it, where several file systems have one of that number
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub area: Area,
}

impl From<&Meant> for Session {
    fn from(meant: &Meant) -> Session {
        let Meant { id, pid, area } = meant.clone();
        Session { id: Some(id), pid, area }
    }
}

/// An open transaction that is only looked at.
#[derive(Clone, Debug, Args)]
pub struct Session {
    /// The transaction: its number, as `systx begin` and `systx list` show it; its name; or @ (or `last`) for the newest
    /// open one, @1 for the one before it. It may be left out where exactly one is open
    #[arg(value_parser = Id::of_open)]
    pub id: Option<Id>,
    /// The process that keeps it, where several file systems have one of that number
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub area: Area,
}

/// `systx exec`.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXEC_HELP)]
pub struct Exec {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub session: Meant,
    /// The command and its arguments; without one, the shell that SHELL names
    #[arg(trailing_var_arg = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

const EXEC_HELP: &str = "\
The command keeps the terminal, standard streams, environment and working directory; SYSTX_ID is added. What it leaves \
running stays until the transaction ends. Its status decides nothing.

Exit status:
  its own (128+n: signal n); 137 when the transaction ended while it ran
  75   a conflict was met: the transaction is lost; nothing was changed
  124  the time of the transaction was over; nothing was changed
  125  there is no such open transaction, or systx itself failed: see the message
  126, 127  the command can't be executed, was not found

Examples:
  systx exec 12 -- make install
  systx exec @                        a shell, in the newest";

/// `systx diff`.
#[derive(Clone, Debug, Args)]
#[command(after_help = DIFF_HELP)]
pub struct Diff {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub session: Session,
    /// The number of lines that change in each file, as `git diff --stat`
    #[arg(long)]
    pub stat: bool,
    /// The contents, as `git diff`
    #[arg(short, long)]
    pub patch: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Only what `systx commit --only` would commit of these paths
    #[arg(value_name = "PATH")]
    pub only: Vec<PathBuf>,
    /// Nothing at or below these paths, as of `systx commit`
    #[arg(long, value_name = "PATH", num_args = 1..)]
    pub exclude: Vec<PathBuf>,
}

const DIFF_HELP: &str = "\
A line for each name, as `git diff --name-status`, unless another form is asked for. Commands inside wait meanwhile, and go on.

Exit status: 0; 75, 124: the transaction is over, by a conflict or its time; 125: there is no such open transaction, or it \
changes nothing at a path, see the message";

/// `systx check`.
#[derive(Clone, Debug, Args)]
#[command(after_help = CHECK_HELP)]
pub struct Check {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub session: Session,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

const CHECK_HELP: &str = "\
Compares all that was read in the transaction with what is there now, and lists each conflict: the path, what has changed, and by \
whom; of more than 1000 the rest is counted. That decides nothing. The transaction stays as it is, and commits if what was changed \
is put back as it was; a conflict may also come up later. What a commit of another transaction has not published yet is not seen, nor \
that a stuck one has read what this one changes. Of a lost \
transaction the reason is told, too. Commands inside wait meanwhile, and go on.

Exit status:
  0    nothing conflicts now
  75   there are conflicts, or the transaction is lost by one
  124  the time of the transaction was over
  125  there is no such open transaction, or it is lost for another reason: see the message

Example:
  systx check 12 && systx commit 12";

/// `systx commit`.
#[derive(Clone, Debug, Args)]
#[command(after_help = COMMIT_HELP)]
pub struct Commit {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub end: End,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub paths: Paths,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub undoable: Undoable,
}

/// A part of a transaction.
#[derive(Clone, Debug, Default, Args)]
pub struct Paths {
    /// Commit only changes at or below these paths. THE REST IS DISCARDED, and reported
    #[arg(long, value_name = "PATH", num_args = 1..)]
    pub only: Vec<PathBuf>,
    /// Commit no changes at or below these paths: they are discarded, and reported
    #[arg(long, value_name = "PATH", num_args = 1..)]
    pub exclude: Vec<PathBuf>,
}

const COMMIT_HELP: &str = "\
When somebody works in the transaction (`systx exec`), they are named, and you are asked; without a terminal --force is needed. Their commands \
get SIGHUP and SIGTERM, a second later they are killed.

What can't be committed stays, as `lost`, until `systx abort`: `systx diff ID -p` and `systx exec ID` show it.

With --only or --exclude a part of the changes takes effect, all of it or nothing, on the same conditions as the whole: all that \
was seen inside must still be true. The transaction ends, and the rest is discarded; `systx diff ID PATH... --exclude PATH...` shows \
beforehand what such a part is. A directory means everything below it, and a path is meant from the working directory. A rename is \
chosen by either of its names; new and renamed directories come along with what is in them; what is excluded takes along what \
can't be without it. Where nothing changes at a path, that is an error, and the transaction stays open as it is.

Exit status:
  0    done
  75   conflict: somebody else changed what was seen inside; nothing was changed, the transaction is lost
  76   committed, but an outsider's objects stand in the way of some of ours: see the message
  125  there is no such open transaction, or somebody else has just ended it, or it changes nothing at a path, or it could not \
be committed, or only in part: see the message

Examples:
  systx commit 12
  systx diff 12 etc/hosts && systx commit 12 --only etc/hosts
  systx commit 12 --exclude build node_modules";

/// `systx abort`, and what `systx commit` has, too.
#[derive(Clone, Debug, Args)]
#[command(after_help = END_HELP)]
pub struct End {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub session: Meant,
    /// Don't ask, and don't refuse, when commands still run in it
    #[arg(long)]
    pub force: bool,
    /// Write the outcome as JSON to standard error instead of words
    #[arg(long)]
    pub json: bool,
    /// Say it, too, when all went well
    #[arg(short, long)]
    pub verbose: bool,
}

const END_HELP: &str = "\
When somebody works in the transaction (`systx exec`), they are named, and you are asked; without a terminal --force is needed. Their commands \
get SIGHUP and SIGTERM, a second later they are killed.

Exit status:
  0    done
  125  there is no such open transaction, or somebody else has just ended it: see the message";
