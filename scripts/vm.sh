#!/usr/bin/env bash
# Runs test programs of systx in a virtual machine with a stock Debian kernel, for what the kernel here can't do or does
# otherwise. Usage: scripts/vm.sh [PROGRAM[=PART-OF-A-NAME]...]; without, the list in scripts/vm/list. docs/testing.md.
#   VM_SUITE=trixie       the kernel of another suite of Debian than this machine's
#   VM_PACKAGE=NAME       another kernel package than linux-image-amd64; VM_PACKAGE=./FILE.deb one that is there
#   VM_ACCEL=kvm or tcg   instead of what fits; VM_SECONDS the limit for everything (7200)
#   KEEP=1                keeps the scratch directory
# The guest's root is this machine's, read-only, below an overlay in its memory; its /run/systx is a disk of its own.
# Nothing is installed but QEMU, and that only as root. All files are below one scratch directory.
set -euo pipefail
cd "$(dirname "$0")/.."
limit=${VM_SECONDS:-7200}
# shellcheck source=scripts/vm/kernel.sh
. scripts/vm/kernel.sh
prepare
programs=("$@")
if [ ${#programs[@]} = 0 ]; then
    mapfile -t programs < <(grep -v '^#' scripts/vm/list)
fi
build_programs
get_kernel
make_initramfs
cp scripts/vm/inside.sh "$scratch/inside.sh"
cp scripts/vm/tests.sh "$scratch/role.sh"
truncate -s 8G "$scratch/disk.img"
mkfs.ext4 -q -E lazy_itable_init=1,lazy_journal_init=1 "$scratch/disk.img"

echo "vm: starting Linux $version, $(accelerator); at most $limit s"
start=$SECONDS
set_machine
qemu-system-x86_64 "${machine[@]}" -drive "file=$scratch/disk.img,format=raw,if=virtio,cache=unsafe" \
    >"$scratch/console" 2>&1 </dev/null &
qemu=$!
timeout "$limit" tail -n +1 -s 0.2 -f --pid="$qemu" "$scratch/console" | sed -u -n 's/\r$//; s/^vm| //p' || true
# Still there only when its time is over.
kill -KILL "$qemu" 2>/dev/null || true
wait "$qemu" || true
qemu=
echo "vm: $((SECONDS - start)) s"
verdict=$(sed -n 's/\r$//; s/^vm: verdict //p' "$scratch/console")
if [ "$verdict" != 0 ]; then
    [ -n "$verdict" ] || { echo "vm: no verdict: the guest died, or its time was over. Its last words:"; tail -n 30 "$scratch/console"; }
    echo "vm: FAILED"
    exit 1
fi
echo "vm: all passed"
