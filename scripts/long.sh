#!/usr/bin/env bash
# The long suites: the same tests with larger bounds (SYSTX_LONG=1), optimized. Usage: scripts/long.sh [PACKAGE...]
# Without packages also the file system tests of others (scripts/posix.sh) and the programs of others (scripts/programs.sh).
# Seeds and single suites: docs/testing.md.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:/usr/sbin:/sbin" SYSTX_LONG=1

packages=(--workspace)
if [ $# -gt 0 ]; then
    packages=()
    for package; do packages+=(-p "$package"); done
fi
bash scripts/deps.sh
status=0
"${CARGO:-cargo}" test --locked --release --no-fail-fast "${packages[@]}" -- --show-output || status=$?
if [ $# = 0 ]; then
    bash scripts/posix.sh || status=$?
    if [ "$(id -u)" = 0 ]; then
        bash scripts/programs.sh || status=$?
        # On the other file systems a few, quick ones.
        for kind in xfs btrfs; do
            FSTYPE=$kind bash scripts/programs.sh coreutils tar git sqlite dpkg dpkg-broken apt apt-broken || status=$?
        done
    else
        echo "skipped: programs: needs root"
    fi
fi
exit $status
