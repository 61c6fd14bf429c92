#!/usr/bin/env bash
# Builds packages as they are shipped; their programs go to ${CARGO_TARGET_DIR:-target}/release.
#   scripts/build.sh [-p PACKAGE]...     default: -p systx-cli
# They bring their own C library where there is one to bring: finding and linking it is a tenth of a short run.
set -eu
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}
target=${CARGO_TARGET_DIR:-target}
[ $# != 0 ] || set -- -p systx-cli

if echo 'int main(void) { return 0; }' | "${CC:-cc}" -static-pie -x c -o /dev/null - 2>/dev/null; then
    # Named, although it is this machine's: else plug-ins of the compiler would be linked in the same way, and can't be.
    host=$("${RUSTC:-rustc}" -vV | sed -n 's/^host: //p')
    RUSTFLAGS="${RUSTFLAGS:-} -C target-feature=+crt-static" "$cargo" build --release --locked --target "$host" "$@"
    mkdir -p "$target/release"
    find "$target/$host/release" -maxdepth 1 -type f -perm -u+x -exec ln -f -t "$target/release" {} +
else
    "$cargo" build --release --locked "$@"
fi
