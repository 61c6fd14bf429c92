#!/usr/bin/env bash
# The long suites: the same tests with larger bounds (SYSTX_LONG=1), optimized. Usage: scripts/long.sh [PACKAGE...]
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
[ $# -gt 0 ] || bash scripts/posix.sh || status=$?
exit $status
