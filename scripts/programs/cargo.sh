# A crate without dependencies: build, test, install.
needs=cargo
named='/incremental/'
# A map in the order of its hashes; a database of when each crate was used last, in seconds.
dated='rustc_info[.]json$|[.]global-cache$'
prepare() { cargo new -q --vcs none --name tiny crate && echo 'fn main() { println!("{}", env!("CARGO_PKG_NAME")); }' >crate/src/main.rs; }
work() {
    cd crate
    cargo build -q --offline -j2 && cargo build -q --offline && cargo test -q --offline && cargo run -q --offline
    cargo install -q --offline --path . --root "$T/usr" && "$T/usr/bin/tiny"
}
check() { [ "$(usr/bin/tiny)" = tiny ] && cargo build --offline --manifest-path crate/Cargo.toml; }
