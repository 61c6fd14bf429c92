#!/usr/bin/env bash
# The tests of the inner loop: those beside the code, without the long explorations. No root, no packages.
# Usage: scripts/quick.sh [PART-OF-A-NAME]
set -euo pipefail
cd "$(dirname "$0")/.."
# Each takes more than a few seconds, on two cores.
long="mutants interleaving invariants disturbed outsider tests::crash contention reference apart checkpointing found links full::
redone survives_each_loss interleavings"
skip=()
for name in $long; do skip+=(--skip "$name"); done
exec "${CARGO:-cargo}" test --locked -p systx-os -p systx-engine -p systx-view -p systx-places -p systx -p systx-c -p systx-cli --lib --bins -- "${skip[@]}" "$@"
