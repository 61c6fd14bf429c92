#!/usr/bin/env bash
# Cuts the power of a virtual machine in which systx commits: every commit that was reported must be there afterwards, whole,
# on both of the file systems that it changes, and no other one by half. Usage: scripts/vm/power.sh [ROUNDS] (5)
# The disks are scripts/vm/disk.py, which loses what was not flushed. SYSTX_SEED repeats when and what is lost, as far as the
# guest's timing does; VM_SUITE, VM_PACKAGE, VM_ACCEL, KEEP as in scripts/vm.sh. VM_SECONDS: the limit for one start (600).
set -euo pipefail
cd "$(dirname "$0")/../.."
rounds=${1:-5} limit=${VM_SECONDS:-600}
# shellcheck source=scripts/vm/kernel.sh
. scripts/vm/kernel.sh
prepare
command -v python3 >/dev/null || { echo "skipped: vm: no python3 for the disks"; exit 0; }
seed=${SYSTX_SEED:-$$}
echo "vm: SYSTX_SEED=$seed"
RANDOM=$seed

[ -n "${VM_SYSTX-}" ] || bash scripts/build.sh
get_systx
get_kernel
make_initramfs
cp scripts/vm/inside.sh scripts/vm/disk.py "$scratch/"
cp scripts/vm/commits.sh "$scratch/role.sh"
truncate -s 1G "$scratch/disk.img"
mkfs.ext4 -q "$scratch/disk.img"
truncate -s 320M "$scratch/ext4.img" "$scratch/xfs.img"
mkfs.ext4 -q "$scratch/ext4.img"
mkfs.xfs -q "$scratch/xfs.img"

# Starts the machine; returns when it has ended. With `last` it ends by itself after the check.
start() {
    local kind drives=()
    echo "$1 $reported" >"$scratch/round"
    : >"$scratch/console"
    for kind in ext4 xfs; do
        rm -f "$scratch/$kind.socket"
        python3 "$scratch/disk.py" "$scratch/$kind.socket" "$scratch/$kind.img" "$RANDOM" >"$scratch/$kind.log" &
        disks+=($!)
        drives+=(-drive "file=nbd+unix:///?socket=$scratch/$kind.socket,format=raw,if=virtio,cache=writeback")
    done
    # They are there before they answer: QEMU does not wait for a socket.
    until [ -S "$scratch/ext4.socket" ] && [ -S "$scratch/xfs.socket" ]; do
        kill -0 "${disks[@]}" || exit 1
    done
    set_machine
    qemu-system-x86_64 "${machine[@]}" -drive "file=$scratch/disk.img,format=raw,if=virtio,cache=unsafe" "${drives[@]}" \
        >"$scratch/console" 2>&1 </dev/null &
    qemu=$!
    local before=$SECONDS commits=0 wanted=$((1 + RANDOM % 8))
    while kill -0 "$qemu" 2>/dev/null && [ $((SECONDS - before)) -lt "$limit" ]; do
        commits=$(grep -c '^vm| committed' "$scratch/console" || true)
        if [ "$1" != last ] && [ "$commits" -ge "$wanted" ]; then
            # Anywhere in the one that runs now, or two later.
            sleep "$((RANDOM % 3)).$((RANDOM % 1000))"
            break
        fi
        sleep 0.1
    done
    # By the number of our own child; the disks see their client go.
    kill -KILL "$qemu" 2>/dev/null || true
    wait "$qemu" 2>/dev/null || true
    qemu=
    wait "${disks[@]}"
    disks=()
}

reported=0 failed=0
for ((round = 1; round <= rounds + 1; round++)); do
    kind=cut
    [ "$round" -le "$rounds" ] || kind=last
    start $kind
    sed -n 's/\r$//; s/^vm| /  /p' "$scratch/console" | grep -v '^  committed' || true
    told=$(sed -n 's/\r$//; s/^vm| committed \([0-9]*\)$/\1/p' "$scratch/console" | tail -n 1)
    if ! grep -q '^vm| whole' "$scratch/console" || grep -q '^vm| FAILED' "$scratch/console" || { [ $kind = cut ] && [ -z "$told" ]; }; then
        echo "vm: round $round FAILED; the console's end:"
        tail -n 30 "$scratch/console"
        failed=1
        break
    fi
    [ $kind = last ] && break
    reported=$told
    echo "vm: round $round: cut after $reported was reported; ext4: $(cat "$scratch/ext4.log"); xfs: $(cat "$scratch/xfs.log")"
done
[ "$failed" = 0 ] && echo "vm: $rounds power cuts, nothing lost, nothing by half: all passed"
exit "$failed"
