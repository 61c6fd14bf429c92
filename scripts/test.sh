#!/usr/bin/env bash
# Format, lints, all short tests. Usage: scripts/test.sh [lint]. The last line sums up, in the words of cargo test
# (crates/xtask/src/summary.rs).
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:/usr/sbin:/sbin"
cargo=${CARGO:-cargo}

if ! command -v "$cargo" >/dev/null 2>&1; then
    echo "test: cargo not found. Install Rust 1.85 or later (https://www.rust-lang.org/tools/install)." >&2
    exit 1
fi

# A compiler for C, which Rust links with, is among them.
bash scripts/deps.sh

# Lints never keep the tests from running; `lint` and CI want them without a word, whatever their version.
lints=0
if [ "${1-}" = lint ]; then
    exec bash scripts/lint.sh
fi
bash scripts/lint.sh ${SYSTX_LINTS:-advice} || lints=1

log=$(mktemp)
status=0
# In a process group of its own, so that whoever stops this script stops the test programs.
set -m
bash scripts/side_by_side.sh "$log" --workspace </dev/null &
tests=$!
set +m
trap 'kill -- "-$tests" 2>/dev/null || true; rm -f "$log" "$log.lock"' EXIT
# What passed need not be listed twice.
tail -n +1 -s 0.2 -f --pid="$tests" "$log" |
    sed -u '/^successes:$/,/^\(failures:\|test result:\)/{/^\(failures:\|test result:\)/!d}'
wait "$tests" || status=$?

summed=0
"$cargo" xtask summary "$log" "$status" "$lints" || summed=$?
if [ "$summed" -gt 1 ]; then
    echo "test result: FAILED. 0 passed; 1 failed; 0 ignored; cargo xtask does not build, which sums up"
fi
[ "$summed" = 0 ] || status=1
exit "$status"
