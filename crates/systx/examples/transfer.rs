//! Moves an amount from one file with a number to another, however many others do the same.
//!
//! `cargo run -p systx --example transfer -- FROM TO AMOUNT`

use std::io;
use std::path::Path;
use systx::{Options, Systx, Transaction};

fn balance(tx: &Transaction, account: &Path) -> io::Result<i64> {
    let text = tx.read_to_string(account)?;
    text.trim().parse().map_err(|_| io::Error::other(format!("{}: not a number", account.display())))
}

fn main() -> io::Result<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [from, to, amount] = arguments.as_slice() else {
        return Err(io::Error::other("usage: transfer FROM TO AMOUNT"));
    };
    let (from, to) = (Path::new(from), Path::new(to));
    let amount: i64 = amount.parse().map_err(io::Error::other)?;
    let systx = Systx::new()?;
    systx.atomically(&Options::new().label("transfer"), |tx| {
        let (has, gets) = (balance(tx, from)?, balance(tx, to)?);
        if has < amount {
            return Err(io::Error::other("not enough"));
        }
        tx.write(from, format!("{}\n", has - amount))?;
        tx.write(to, format!("{}\n", gets + amount))
    })
}
