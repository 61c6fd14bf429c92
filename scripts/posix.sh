#!/usr/bin/env bash
# pjdfstest and fsx through the view and natively (crates/systx-cli/tests/posix.rs). Usage: scripts/posix.sh [PART-OF-A-NAME]
# Installs both from crates.io below the target directory on first use: some minutes. fsx is under the Apple Public Source
# License; neither is part of systx or shipped with it.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:/usr/sbin:/sbin"
cargo=${CARGO:-cargo}
tools=$(realpath -m "${CARGO_TARGET_DIR:-target}")/posix

if [ ! -x "$tools/bin/pjdfstest" ] || [ ! -x "$tools/bin/fsx" ]; then
    if ! "$cargo" install --quiet --locked --root "$tools" --target-dir "$tools/build" pjdfstest@0.2.2 fsx@0.3.2; then
        echo "skipped: posix: pjdfstest and fsx could not be installed from crates.io"
        exit 0
    fi
    rm -rf "$tools/build"
fi
SYSTX_POSIX_BIN="$tools/bin" exec "$cargo" test --locked --release -p systx-cli --test posix -- "$@"
