#!/usr/bin/env bash
# Programs that nobody here wrote, as transactions: each committed run must leave what a plain run leaves, each aborted
# one nothing (programs/try.sh says how). Usage: scripts/programs.sh [NAME...], without names all
# but `machine`: apt-get over the whole of this machine, in transactions that abort, with COMMIT=1 also in some that commit
# (programs/lib/machine). Needs root.
# SYSTX=PROGRAM takes that instead of building one; KEEP=1 keeps the scratch directory with logs and pictures.
# FSTYPE=xfs or btrfs takes that instead of ext4. Everything happens on a scratch file system in an image file, mounted in a mount namespace of its own.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:/usr/sbin:/sbin"

if [ -z "${PROGRAMS_INSIDE-}" ]; then
    [ "$(id -u)" = 0 ] || { echo "programs: needs root" >&2; exit 1; }
    if [ -z "${SYSTX-}" ]; then
        bash scripts/build.sh
        SYSTX=$(realpath "${CARGO_TARGET_DIR:-target}/release/systx")
    fi
    SCRATCH=$(mktemp -d "${TMPDIR:-/tmp}/systx-programs.XXXXXX")
    chmod 755 "$SCRATCH" # for programs that become somebody else
    export SYSTX SCRATCH
    trap '[ -n "${KEEP-}" ] && echo "kept: $SCRATCH" || rm -rf --one-file-system "$SCRATCH"' EXIT
    trap 'exit 130' INT TERM
    status=0
    PROGRAMS_INSIDE=1 unshare --mount --propagation private bash scripts/programs.sh "$@" || status=$?
    exit "$status"
fi

export FS=$SCRATCH/fs
mkdir "$FS"
truncate -s 6G "$SCRATCH/disk.img"
mkfs -t "${FSTYPE:-ext4}" -q "$SCRATCH/disk.img" </dev/null
mount -o loop "$SCRATCH/disk.img" "$FS"
failed=0
[ $# -gt 0 ] || set -- $(cd scripts/programs && ls | sed -n 's/[.]sh$//p' | grep -vx try)
for name in "$@"; do
    if [ "$name" = machine ]; then
        bash scripts/programs/lib/machine || failed=$((failed + 1))
        continue
    fi
    bash scripts/programs/try.sh "scripts/programs/$name.sh" || failed=$((failed + 1))
done
umount "$FS"
[ "$failed" = 0 ] || echo "$failed of $# FAILED"
[ "$failed" = 0 ]
