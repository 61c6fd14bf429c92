#!/usr/bin/env bash
# Checks that the oldest Rust which Cargo.toml names compiles everything, tests included. Fetches it, where rustup can.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}
oldest=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)

have=$("$cargo" --version | cut -d' ' -f2)
case $have in
"$oldest".*) exec "$cargo" check --locked --workspace --all-targets ;;
esac
if ! command -v rustup >/dev/null 2>&1 || ! { rustup run "$oldest" rustc --version >/dev/null 2>&1 ||
    timeout 300 rustup toolchain install "$oldest" --profile minimal >/dev/null 2>&1; }; then
    echo "oldest: SKIPPED: Rust $oldest is not here, and rustup can't fetch it"
    exit 0
fi
# Beside what the usual Rust has built, which would be built anew.
CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/oldest rustup run "$oldest" cargo check --quiet --locked --workspace --all-targets
echo "oldest: Rust $oldest compiles everything"
