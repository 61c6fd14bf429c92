#!/usr/bin/env bash
# Lives of a machine in which systx commits on an ext4 and an XFS at once: the same two disks through orderly shutdowns, power cuts,
# other orders of the disks, other kernels (Debian 12 and 13: the second one tells the UUIDs of file systems), and a boot and logins
# beside a frozen file system. Nothing is redone after an orderly shutdown, and an outsider's changes stay; after a power cut everything
# that was committed is there. What a life does is scripts/vm/life, in a guest that has nothing else. Usage: scripts/vm/lives.sh
# VM_ACCEL, KEEP as in scripts/vm.sh. VM_SECONDS: the limit for one start (600). VM_SYSTX=FILE: that program, not one built now.
set -euo pipefail
cd "$(dirname "$0")/../.."
limit=${VM_SECONDS:-600}
# shellcheck source=scripts/vm/kernel.sh
. scripts/vm/kernel.sh
prepare
[ -n "${VM_SYSTX-}" ] || bash scripts/build.sh
get_systx
boot_modules="virtio_pci virtio_blk crc32c_generic ext4 xfs fuse"
declare -A kernels
for VM_SUITE in bookworm trixie; do
    get_kernel
    make_initramfs scripts/vm/life "$scratch/$VM_SUITE.img" "$scratch/bin/systx"
    kernels[$VM_SUITE]=$vmlinuz
done
for kind in ext4 xfs; do
    truncate -s 320M "$scratch/$kind.img"
    "mkfs.$kind" -q "$scratch/$kind.img"
done

want='' number=0 last='' lives=0
# life SUITE ORDER END [WORD...]: one start. What the trees must be in it, and whether there is something to redo, the last one has said.
life() {
    local suite=$1 order=$2 end=$3 told='' kind drives=() images
    shift 3
    case $last in
        cut) told=redone ;;
        unit | helper) told=nothing ;;
    esac
    case $order in
        ab) images="ext4 xfs" ;;
        ba) images="xfs ext4" ;;
    esac
    for kind in $images; do drives+=(-drive "file=$scratch/$kind.img,format=raw,if=virtio,cache=writeback"); done
    vmlinuz=${kernels[$suite]}
    set_machine "order=$order told=$told want=$want number=$number end=$end $*" "$scratch/$suite.img" 512
    lives=$((lives + 1))
    run_to_the_cut "life $lives ($suite, $order, after ${last:-nothing}, ends by $end${*:+, $*})" "${drives[@]}"
    if grep -q '^vm| FAILED' "$scratch/console" || ! grep -q "^vm| \(ready for the cut\)\|^vm: verdict 0" "$scratch/console"; then
        has_failed "life $lives"
    fi
    read -r want number < <(sed -n 's/\r$//; s/^vm| tree //p' "$scratch/console")
    last=$end
}
# must PATTERN: a line of the last life, without which the next ones would prove nothing.
must() { grep -q "^vm| $1" "$scratch/console" || { echo "vm: life $lives FAILED: no line like: $1"; exit 1; }; }

life bookworm ab unit
must 'Linux 6\.1\.'
must 'uuids 0 0'
life bookworm ab helper
life bookworm ab cut
life bookworm ba cut
must 'uuids 0 0'
life trixie ba cut
must 'Linux 6\.12\.'
must 'uuids 1 1'
life trixie ab cut
life bookworm ab cut
life bookworm ba unit
life trixie ab cut
life trixie ba helper frozen=1
echo "vm: $lives lives in $SECONDS s: all passed"
