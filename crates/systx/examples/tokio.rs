//! Transactions from the tasks of an async program: each task adds 1 to a number in a file, so many times.
//!
//! `cargo run -p systx --example tokio -- FILE TASKS TIMES`
//!
//! File calls wait for the disk, so the work is on threads that may wait.

use std::io;
use std::path::PathBuf;
use systx::{Durability, Options, Systx};

fn add_one(systx: &Systx, file: &PathBuf) -> io::Result<u64> {
    let options = Options::new().durability(Durability::None).label("tokio").retries(10_000);
    systx.atomically(&options, |tx| {
        let now: u64 = tx.read_to_string(file)?.trim().parse().map_err(io::Error::other)?;
        tx.write(file, format!("{}\n", now + 1))?;
        Ok(now + 1)
    })
}

async fn add(systx: Systx, file: PathBuf, times: u32) -> io::Result<u64> {
    let mut last = 0;
    for _ in 0..times {
        let (systx, file) = (systx.clone(), file.clone());
        last = tokio::task::spawn_blocking(move || add_one(&systx, &file)).await??;
    }
    Ok(last)
}

fn main() -> io::Result<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [file, tasks, times] = arguments.as_slice() else {
        return Err(io::Error::other("usage: tokio FILE TASKS TIMES"));
    };
    let tasks: u32 = tasks.parse().map_err(io::Error::other)?;
    let times: u32 = times.parse().map_err(io::Error::other)?;
    let systx = Systx::new()?;
    let most = tokio::runtime::Runtime::new()?.block_on(async {
        let all: Vec<_> = (0..tasks).map(|_| tokio::spawn(add(systx.clone(), file.into(), times))).collect();
        let mut most = 0;
        for task in all {
            most = most.max(task.await??);
        }
        Ok::<_, io::Error>(most)
    })?;
    println!("{most}");
    Ok(())
}
